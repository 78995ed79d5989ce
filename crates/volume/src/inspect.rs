//! The structures of a volume in words, for `larder debug`: rows of the metadata, segments, the
//! registry.

use bytes::Bytes;
use larder_base::Sheet;
use larder_base::log::LogEntry;
use larder_fs::*;
use slatedb::ValueDeletable;

use crate::data::{
    EXTENT_TAG, FOOTER_BYTES, HEADER_BYTES, INTENT_TAG, IntentPayload, Place, RESERVED_TAG, SEGMENT_TAG, SegmentId,
    decode_extent, decode_intent, decode_mask, decode_reserved, decode_segment, decode_sharer, parse_footer,
    parse_index, verify_and_unpack, verify_header,
};
use crate::keys::{self, tag};
use crate::meta::wal;
use crate::registry::seats::Seated;

/// A state of `registry.json`, for judges of its changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegistryState {
    /// How often the registry was changed (`document.never_equal`).
    pub changes: u64,
    /// All entries, doomed ones too.
    pub entries: Vec<RegistryEntry>,
}

/// An entry of the registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegistryEntry {
    /// The volume, its seat and its handover.
    pub seated: Seated,
    /// It was opened once.
    pub formatted: bool,
    /// It is being removed.
    pub doomed: bool,
    /// It is a clone.
    pub is_clone: bool,
}

/// Decodes `registry.json`.
pub fn registry_state(bytes: &[u8]) -> FsResult<RegistryState> {
    let document = crate::registry::document::decode_document(bytes)?;
    let changes = document.changes();
    let entries = document.volumes.into_iter().map(|entry| {
        let (formatted, doomed, is_clone) = (entry.formatted, entry.doomed, entry.origin.is_some());
        let seated = Seated { info: entry.info(), seat: entry.seat, handover: entry.handover };
        RegistryEntry { seated, formatted, doomed, is_clone }
    });
    Ok(RegistryState { changes, entries: entries.collect() })
}

/// A row of the metadata in words: its key, and its value or the reason why it does not decode.
pub fn row(key: &Bytes, value: &Bytes) -> (String, Result<String, String>) {
    let name = key_text(key);
    let text = value_text(key, value).map_err(|error| error.to_string());
    (name, text)
}

fn show(bytes: &[u8]) -> String {
    format!("\"{}\"", bytes.escape_ascii())
}

fn number(key: &[u8], at: usize) -> Option<u64> {
    key.get(at..)?.first_chunk().map(|bytes| u64::from_be_bytes(*bytes))
}

fn key_text(key: &[u8]) -> String {
    let of = |what: &str| number(key, 1).map(|ino| format!("{what} {ino}"));
    let tail = |at: usize| show(key.get(at..).unwrap_or_default());
    let text = match key.first() {
        Some(&tag::SUPERBLOCK) => Some("superblock".to_owned()),
        Some(&tag::NEXT_INO) => Some("next inode".to_owned()),
        Some(&tag::BLOCK) => Some("next block of segments".to_owned()),
        Some(&tag::CHANGE_BASE) => Some("base of changes".to_owned()),
        Some(&tag::USAGE) => Some("usage".to_owned()),
        Some(&tag::INODE) => of("inode"),
        Some(&tag::ENTRY) => of("entry").map(|text| format!("{text} {}", tail(9))),
        Some(&tag::COOKIE) => of("cookie").and_then(|text| Some(format!("{text} {}", number(key, 9)?))),
        Some(&tag::FOLDED) => of("folded").map(|text| format!("{text} {}", tail(9))),
        Some(&tag::XATTR) => of("xattr").map(|text| format!("{text} {}", tail(9))),
        Some(&tag::ORPHAN) => of("orphan"),
        Some(&tag::NOTHING) => Some("nothing".to_owned()),
        Some(&EXTENT_TAG) => of("extent").and_then(|text| Some(format!("{text} @{}", number(key, 9)?))),
        Some(&RESERVED_TAG) => of("reserved").and_then(|text| Some(format!("{text} @{}", number(key, 9)?))),
        Some(&INTENT_TAG) => of("intent").and_then(|text| {
            let mask = if key.len() == 26 { " mask" } else { "" };
            Some(format!("{text} #{} @{}{mask}", number(key, 9)?, number(key, 17)?))
        }),
        Some(&SEGMENT_TAG) => number(key, 1).map(|segment| format!("segment {segment:016x}")),
        Some(&tag::SHARER) => of("sharer").and_then(|text| Some(format!("{text} of segment {:016x}", number(key, 9)?))),
        _ => None,
    };
    text.unwrap_or_else(|| format!("unknown {}", show(key)))
}

fn value_text(key: &Bytes, value: &Bytes) -> FsResult<String> {
    Ok(match key.first() {
        Some(&tag::SUPERBLOCK) => {
            let superblock = keys::decode_superblock(value)?;
            format!("volume {} created {}", superblock.id, superblock.created.secs)
        }
        Some(&tag::NEXT_INO | &tag::CHANGE_BASE) => keys::decode_next_ino(value)?.to_string(),
        Some(&tag::BLOCK) => keys::decode_block(value)?.to_string(),
        Some(&tag::USAGE) => {
            let usage = keys::decode_usage(value)?;
            let reserved = match usage.reserved_bytes {
                0 => String::new(),
                bytes => format!(" reserved {bytes}"),
            };
            format!("inodes {} logical {} stored {}{reserved}", usage.inodes, usage.logical_bytes, usage.stored_bytes)
        }
        Some(&tag::INODE) => inode_text(keys::ino_of(key)?, value)?,
        Some(&tag::ENTRY) => {
            let entry = keys::decode_entry(key, value)?;
            format!("{:?} {} cookie {}", entry.kind, entry.ino.0, entry.cookie)
        }
        Some(&tag::COOKIE) => {
            let entry = keys::decode_cookie(key, value)?;
            format!("{:?} {} {}", entry.kind, entry.ino.0, show(&entry.name))
        }
        Some(&tag::XATTR) => show(&keys::decode_xattr(key, value)?),
        Some(&tag::FOLDED | &tag::ORPHAN) => "mark".to_owned(),
        Some(&tag::SHARER) => decode_sharer(key, value).map(|_| "mark".to_owned())?,
        Some(&EXTENT_TAG) => extent_text(key, value)?,
        Some(&RESERVED_TAG) => {
            let (_, range) = decode_reserved(key, value)?;
            format!("{} bytes", range.end - range.start)
        }
        Some(&INTENT_TAG) => match decode_mask(key, value)? {
            Some(ranges) => ranges.iter().map(|r| format!("{}-{}", r.start, r.end)).collect::<Vec<_>>().join(" "),
            None => {
                let intent = decode_intent(key, value)?;
                let what = if intent.payload == IntentPayload::Zero { "zeros" } else { "bytes" };
                format!("{} {what}", intent.len)
            }
        },
        Some(&SEGMENT_TAG) => {
            let (_, s) = decode_segment(key, value)?;
            let (bytes, live) = (s.object_bytes, s.live_bytes);
            format!("{bytes} bytes, {} records, {live} live in {} extents, birth {}", s.records, s.extents, s.birth)
        }
        _ => show(value),
    })
}

fn inode_text(ino: Ino, value: &[u8]) -> FsResult<String> {
    let core = keys::decode_inode(ino, value)?;
    let a = core.attr;
    let mut text = format!(
        "{:?} mode {:o} links {} owner {}:{} size {} stored {} mtime {}.{:09} generation {} change {}",
        a.kind,
        a.mode,
        a.nlink,
        a.uid,
        a.gid,
        a.size,
        a.allocated,
        a.mtime.secs,
        a.mtime.nanos,
        a.id.generation,
        a.change
    );
    if let Some(acl) = &core.acl {
        text.push_str(&format!(" acl of {} rules", acl.rules.len()));
    }
    if core.has_reserved {
        text.push_str(" has-reserved");
    }
    match a.kind {
        FileKind::Directory => text.push_str(&format!(" parent {} entries {}", core.parent.0, core.entries)),
        FileKind::Symlink => text.push_str(&format!(" to {}", show(&core.target))),
        _ => {}
    }
    Ok(text)
}

fn extent_text(key: &Bytes, value: &Bytes) -> FsResult<String> {
    let (_, _, extent) = decode_extent(key, value)?;
    Ok(match extent.place {
        Place::Inline(bytes) => format!("{} bytes inline, skip {} of {}", extent.len, extent.skip, bytes.len()),
        Place::Record(r) => format!(
            "{} bytes, skip {} of record {:016x}+{} ({:?}, {} stored, {} raw, {})",
            extent.len, extent.skip, r.segment.0, r.position, r.codec, r.stored_len, r.raw_len, r.sums
        ),
    })
}

/// An entry of a volume's log: the rows that it adds to the metadata.
pub fn log_entry(stream: &str, id: u64, payload: &Bytes) -> Sheet {
    let mut sheet = Sheet::new(format!("entry {id} of {stream}"));
    let entry = LogEntry { id, payload: payload.clone() };
    let rows = match wal::rows_of(stream, &entry) {
        Ok(rows) => rows,
        Err(why) => {
            sheet.fault(0, why);
            return sheet;
        }
    };
    sheet.columns = vec!["SEQ", "KEY", "VALUE"];
    for entry in rows {
        let (key, text) = match &entry.value {
            ValueDeletable::Value(value) => row(&entry.key, value),
            ValueDeletable::Tombstone => (key_text(&entry.key), Ok("deleted".to_owned())),
            ValueDeletable::Merge(_) => (key_text(&entry.key), Err("a merge, which volumes do not use".to_owned())),
        };
        let text = text.unwrap_or_else(|why| {
            sheet.fault(0, format!("{key}: {why}"));
            "?".to_owned()
        });
        sheet.rows.push(vec![entry.seq.to_string(), key, text]);
    }
    sheet
}

/// A segment object: header, index, footer, and the checksum of each record.
pub fn segment(object: &Bytes) -> Sheet {
    let mut sheet = Sheet::new("segment");
    let Some(id) = number(object, 16).map(SegmentId) else {
        sheet.fault(object.len() as u64, "it is too short to be a segment");
        return sheet;
    };
    sheet.field(0, "magic", show(object.get(..8).unwrap_or_default()));
    sheet.field(8, "version", object.get(8..10).and_then(|b| b.first_chunk()).map_or(0, |b| u16::from_be_bytes(*b)));
    sheet.field(16, "number", format!("{:016x}", id.0));
    sheet.field(24, "birth", number(object, 24).unwrap_or_default());
    if let Err(why) = verify_header(id, object.get(..HEADER_BYTES).unwrap_or(object)) {
        sheet.fault(0, why);
    }
    let footer_at = object.len().saturating_sub(FOOTER_BYTES);
    let footer = match parse_footer(id, &object[footer_at..], object.len() as u64) {
        Ok(footer) => footer,
        Err(why) => {
            sheet.fault(footer_at as u64, why);
            return sheet;
        }
    };
    sheet.field(footer_at as u64 + 16, "records", footer.records);
    sheet.field(footer_at as u64 + 20, "index at", footer.index_at);
    let index_at = footer.index_at as usize;
    let entries = match parse_index(id, &footer, object.get(index_at..footer_at).unwrap_or_default()) {
        Ok(entries) => entries,
        Err(why) => {
            sheet.fault(index_at as u64, why);
            return sheet;
        }
    };
    sheet.columns = vec!["BYTE", "STORED", "RAW", "CODEC", "INODE", "GENERATION", "OFFSET", "ORDER", "BIRTH"];
    for entry in entries {
        let r = entry.record;
        let at = u64::from(r.position);
        let stored = object.get(r.position as usize..(r.position as usize).saturating_add(r.stored_len as usize));
        match stored.map(|stored| object.slice_ref(stored)) {
            Some(stored) => {
                if let Some(at) = r.first_damaged(&stored) {
                    sheet.fault(at, "the record's checksum is wrong");
                } else if verify_and_unpack(&r, &stored).is_none() {
                    sheet.fault(at, "the record does not decompress to its length");
                }
            }
            None => sheet.fault(at, "the record reaches beyond the object"),
        }
        let numbers = [at, u64::from(r.stored_len), u64::from(r.raw_len)].map(|n| n.to_string());
        let rest = [entry.ino.0, entry.generation, entry.offset, entry.order, entry.birth].map(|n| n.to_string());
        sheet.rows.push(numbers.into_iter().chain([format!("{:?}", r.codec)]).chain(rest).collect());
    }
    sheet
}

/// The content of `registry.json`.
pub fn registry(bytes: &[u8]) -> Sheet {
    let mut sheet = Sheet::new("registry");
    match serde_json::from_slice::<serde_json::Value>(bytes) {
        Ok(serde_json::Value::Object(fields)) => {
            for (name, value) in fields.iter().filter(|(name, _)| *name != "volumes") {
                sheet.note(name, value);
            }
            let volumes = fields.get("volumes").and_then(|volumes| volumes.as_array());
            sheet.columns = vec!["NAME", "ID", "STATE", "PROPERTIES"];
            for volume in volumes.into_iter().flatten() {
                let text = |name: &str| volume.get(name).map(|v| v.as_str().map_or(v.to_string(), str::to_owned));
                let is = |name: &str| volume.get(name).and_then(serde_json::Value::as_bool).unwrap_or(false);
                let state = match (is("doomed"), is("formatted")) {
                    (true, _) => "being destroyed",
                    (false, true) => "formatted",
                    (false, false) => "not formatted yet",
                };
                let cell = |name: &str| text(name).unwrap_or_default();
                sheet.rows.push(vec![cell("name"), cell("id"), state.to_owned(), cell("properties")]);
            }
        }
        Ok(_) => sheet.fault(0, "it is JSON and no registry"),
        Err(error) => {
            let before = bytes.split(|byte| *byte == b'\n').take(error.line().saturating_sub(1));
            let line_start: usize = before.map(|line| line.len() + 1).sum();
            sheet.fault((line_start + error.column().saturating_sub(1)) as u64, format!("it is no JSON: {error}"));
        }
    }
    if sheet.faults.is_empty()
        && let Err(error) = crate::registry::document::decode_document(bytes)
    {
        sheet.fault(0, error.to_string());
    }
    sheet
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::data::{Codec, SegmentBuilder};

    #[test]
    fn rows_are_told_in_words() {
        let entry = keys::Entry { ino: Ino(7), kind: FileKind::File, cookie: 4 };
        let (name, text) = row(&keys::entry_key(Ino(2), b"a b\n"), &keys::encode_entry(entry));
        assert_eq!((name.as_str(), text.unwrap().as_str()), ("entry 2 \"a b\\n\"", "File 7 cookie 4"));
        let (name, text) = row(&keys::inode_key(Ino(9)), &Bytes::from_static(b"\x01\x01\x00"));
        assert_eq!(name, "inode 9");
        assert!(text.unwrap_err().contains("cut short"));
        let (name, _) = row(&Bytes::from_static(b"?x"), &Bytes::new());
        assert_eq!(name, "unknown \"?x\"");
    }

    #[test]
    fn an_entry_of_the_log_tells_its_rows() {
        let entry = keys::Entry { ino: Ino(7), kind: FileKind::File, cookie: 4 };
        let new = |key: Bytes, value, seq| slatedb::RowEntry { key, value, seq, create_ts: None, expire_ts: None };
        let rows = wal::encode_rows(&[
            new(keys::entry_key(Ino(2), b"a"), ValueDeletable::Value(keys::encode_entry(entry)), 5),
            new(keys::entry_key(Ino(2), b"b"), ValueDeletable::Tombstone, 6),
        ]);
        let payload = wal::payload_of("volume-x", 9, &rows.unwrap());
        let sheet = log_entry("volume-x", 9, &payload);
        assert_eq!(sheet.faults, []);
        assert_eq!(sheet.rows, [["5", "entry 2 \"a\"", "File 7 cookie 4"], ["6", "entry 2 \"b\"", "deleted"]]);
        assert!(!log_entry("volume-x", 8, &payload).faults.is_empty(), "bound to its place");
    }

    #[test]
    fn a_segment_tells_its_records_and_where_it_is_damaged() {
        let mut builder = SegmentBuilder::new(SegmentId(3), 1);
        builder.push((Ino(7), 1, 0), (3, 1), (Codec::Raw, None), 5, &[Bytes::from_static(b"hello")]);
        let object = builder.finish().0.concat();
        let sheet = segment(&object.clone().into());
        assert_eq!((sheet.faults.len(), sheet.rows.len()), (0, 1));
        assert_eq!(sheet.rows[0][..4], ["64", "5", "5", "Raw"]);
        for (flip, at) in [(3, 0), (66, 64), (80, 69), (object.len() - 20, object.len() - 48)] {
            let mut bad = object.clone();
            bad[flip] ^= 1;
            let faults = segment(&bad.into()).faults;
            assert_eq!(faults[0].at_byte, Some(at as u64), "byte {flip}: {faults:?}");
        }
        (0..object.len()).for_each(|cut| assert!(!segment(&object[..cut].to_vec().into()).faults.is_empty()));
    }

    #[test]
    fn a_registry_tells_its_volumes() {
        let good = br#"{"format": 1, "volumes": [{"name": "v", "id": "00000000-0000-0000-0000-000000000001",
            "properties": {"record_bytes": 4096, "compression": "lz4", "quota_bytes": null, "sync": "standard"},
            "formatted": true, "doomed": false}]}"#;
        let sheet = registry(good);
        assert_eq!((sheet.faults.len(), sheet.rows[0][0].as_str(), sheet.rows[0][2].as_str()), (0, "v", "formatted"));
        assert_eq!(registry(b"{\n  \"format\": x}").faults[0].at_byte, Some(14));
        assert!(registry(b"{\"format\": 99, \"volumes\": []}").faults[0].why.contains("99"));
    }
}
