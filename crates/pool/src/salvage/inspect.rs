//! The files of a disk decoded for `larder debug`: every field with its place, and each fault with
//! its byte.
//!
//! These readers go on behind damage where the decoders of the pool refuse; they decide nothing.

use std::io::IoSliceMut;

use bytes::Bytes;
use larder_base::Sheet;
use larder_base::checksum::checksum;
use larder_base::log::LogEntry;
use uuid::Uuid;

use crate::disk::{DiskFile, DiskIo, read_file};
use crate::heal::scrub;
use crate::history;
use crate::journal::format::{
    ALIGN_BYTES, BATCH_HEADER_BYTES, BATCH_MAGIC, BatchHeader, Kind, RecordHeader, SegmentHeader, decode_checkpoint,
    segment_seed,
};
use crate::member::label::{self, Label};
use crate::member::side_file::{self, Sidecar};
use crate::object::geometry::{CHECKSUM_BYTES, Geometry};
use crate::object::shard::{self, Found, HEADER_BYTES_MAX, Header, PathName, Reader};
use crate::object::tombstones;

/// A label or a segment longer than this is not read to its end.
const FILE_BYTES_MAX: u64 = 1 << 30;
/// Damaged blocks that are listed one by one.
const FAULTS_MAX: usize = 1000;

/// The label in `bytes`.
pub fn label(bytes: &[u8]) -> Sheet {
    let mut sheet = Sheet::new("label");
    let mut reader = Reader(bytes);
    let magic = reader.take(8).unwrap_or_default();
    sheet.field(0, "magic", String::from_utf8_lossy(magic));
    if magic != label::MAGIC {
        sheet.fault(0, "this is no label: the magic is not LARDLABL");
        return sheet;
    }
    let (Some(version), Some(length), Some(sum)) = (reader.u32(), reader.u32(), reader.u64()) else {
        sheet.fault(bytes.len() as u64, "the header is cut short");
        return sheet;
    };
    sheet.field(8, "version", version);
    sheet.field(12, "body bytes", length);
    sheet.field(16, "checksum", format!("{sum:016x}"));
    let Some(body) = reader.take(length as usize) else {
        let have = bytes.len() - label::HEADER_BYTES;
        sheet.fault(12, format!("the body should have {length} bytes, the file has {have}"));
        return sheet;
    };
    let computed = checksum(u64::from(version), body);
    if computed != sum {
        sheet.fault(16, format!("the checksum of version and body is {computed:016x}: one of them is damaged"));
    }
    match serde_json::from_slice::<serde_json::Value>(body) {
        Ok(serde_json::Value::Object(fields)) => {
            for (name, value) in fields {
                sheet.note(&name, value);
            }
        }
        Ok(_) => sheet.fault(24, "the body is JSON and no label"),
        Err(error) => {
            let before = body.split(|byte| *byte == b'\n').take(error.line().saturating_sub(1));
            let line_start: usize = before.map(|line| line.len() + 1).sum();
            sheet.fault(
                (24 + line_start + error.column().saturating_sub(1)) as u64,
                format!("the body is no JSON: {error}"),
            );
        }
    }
    if sheet.faults.is_empty()
        && let Err(why) = Label::decode(bytes)
    {
        sheet.fault(24, why);
    }
    sheet
}

/// The history of a pool, as this copy has it.
pub fn history(bytes: &[u8]) -> Sheet {
    let mut sheet = Sheet::new("history");
    let text = sidecar(&history::FILE, bytes, &mut sheet);
    sheet.columns = vec!["NUMBER", "AT_MS", "KIND", "TEXT"];
    for (number, line) in text.split(|byte| *byte == b'\n').enumerate().filter(|(_, line)| !line.is_empty()) {
        match serde_json::from_slice::<history::Event>(line) {
            Ok(event) => {
                sheet.rows.push(vec![event.number.to_string(), event.at_ms.to_string(), event.kind, event.text]);
            }
            Err(error) => sheet.fault(side_file::HEADER_BYTES, format!("line {}: {error}", number + 1)),
        }
    }
    sheet
}

/// The progress of a scrub, as this copy has it.
pub fn scrub(bytes: &[u8]) -> Sheet {
    let mut sheet = Sheet::new("scrub");
    let text = sidecar(&scrub::state::FILE, bytes, &mut sheet);
    match serde_json::from_slice::<serde_json::Value>(text) {
        Ok(serde_json::Value::Object(fields)) => fields.iter().for_each(|(name, value)| sheet.note(name, value)),
        Ok(_) => sheet.fault(side_file::HEADER_BYTES, "the text is JSON and not what a scrub writes"),
        Err(error) => sheet.fault(side_file::HEADER_BYTES, format!("the text is no JSON: {error}")),
    }
    sheet
}

/// The header of such a file; returns the text behind it.
fn sidecar<'a>(kind: &Sidecar, bytes: &'a [u8], sheet: &mut Sheet) -> &'a [u8] {
    let mut reader = Reader(bytes);
    let magic = reader.take(8).unwrap_or_default();
    sheet.field(0, "magic", String::from_utf8_lossy(magic));
    if magic != kind.magic {
        let expected = String::from_utf8_lossy(&kind.magic).into_owned();
        sheet.fault(0, format!("this is no {}: the magic is not {expected}", kind.name));
        return b"";
    }
    let (Some(version), Some(length), Some(sum)) = (reader.u32(), reader.u32(), reader.u64()) else {
        sheet.fault(bytes.len() as u64, "the header is cut short");
        return b"";
    };
    sheet.field(8, "version", version);
    sheet.field(12, "text bytes", length);
    sheet.field(16, "checksum", format!("{sum:016x}"));
    let text = reader.take(length as usize).unwrap_or_else(|| {
        sheet.fault(bytes.len() as u64, format!("the text should have {length} bytes: the file is cut short"));
        bytes.get(side_file::HEADER_BYTES as usize..).unwrap_or_default()
    });
    if checksum(u64::from(version), text) != sum {
        sheet.fault(16, "the checksum of version and text is another: one of them is damaged");
    }
    text
}

/// A shard file: its name, its header, each of its blocks.
pub fn shard(disk: &dyn DiskIo, file: &str) -> std::io::Result<Sheet> {
    let name = file.rsplit('/').next().unwrap_or(file);
    let mut sheet = Sheet::new(format!("shard {name}"));
    let opened = disk.open(file, false)?;
    let length = opened.length()?;
    let named = match shard::parse_name(name) {
        Found::Shard(named) => Some(named),
        Found::Temp => {
            sheet.note("name", "of a shard that is being written, or was when the machine stopped");
            None
        }
        Found::Unknown => {
            sheet.note("name", "not that of a shard");
            None
        }
    };
    let bytes = read_file(disk, file, HEADER_BYTES_MAX as u64)?;
    let header = header_fields(&bytes, &mut sheet);
    if let (Some(named), Some((header, header_bytes))) = (&named, &header) {
        let path = matches!(&named.path, PathName::Hashed(_)) || named.path == PathName::Plain(header.path.clone());
        let same = (named.version, named.geometry, named.index, named.header_bytes)
            == (header.version, header.geometry, header.index, *header_bytes);
        if !path || !same {
            sheet.fault(0, "name and header say different things");
        }
    }
    match header {
        Some((header, header_bytes)) => blocks(&*opened, length, &header, header_bytes, &mut sheet)?,
        None => sheet.note("blocks", "not verified: without a header the pool is not known, nor the checksums' seed"),
    }
    Ok(sheet)
}

fn header_fields(bytes: &[u8], sheet: &mut Sheet) -> Option<(Header, u32)> {
    let mut reader = Reader(bytes);
    let magic = reader.take(8).unwrap_or_default();
    sheet.field(0, "magic", String::from_utf8_lossy(magic));
    if magic != shard::MAGIC {
        sheet.fault(0, "the magic is not LARDSHRD");
        return None;
    }
    let version = reader.u32()?;
    sheet.field(8, "format version", version);
    let Some(length) = shard::header_length(bytes) else {
        sheet.fault(8, "the version is unknown, or the length of the header impossible");
        return None;
    };
    sheet.field(12, "header bytes", length);
    reader.u32()?;
    sheet.field(16, "pool", Uuid::from_slice(reader.take(16)?).ok()?);
    sheet.field(32, "object version", format!("{:x}", reader.u64()?));
    sheet.field(40, "modified, ms", reader.u64()?);
    sheet.field(48, "object bytes", reader.u64()?);
    sheet.field(56, "unit bytes", reader.u32()?);
    sheet.field(60, "block bytes", reader.u32()?);
    let &[k, m, index, _] = reader.take(4)? else { return None };
    sheet.field(64, "data + parity", format!("{k}+{m}"));
    sheet.field(66, "shard", index);
    let Some(whole) = bytes.get(..length as usize) else {
        sheet.fault(bytes.len() as u64, format!("the header should have {length} bytes: the file is cut short"));
        return None;
    };
    match Header::decode(whole) {
        Some(header) => {
            sheet.field(96, "path", &header.path);
            for (key, value) in &header.attributes {
                sheet.note(&format!("attribute {key}"), value);
            }
            Some((header, length))
        }
        None => {
            let sum = whole.split_last_chunk::<8>().map(|(body, _)| checksum(0, body)).unwrap_or_default();
            let why = format!("the header's checksum should be {sum:016x}, or a field is impossible");
            sheet.fault(u64::from(length) - 8, why);
            None
        }
    }
}

fn blocks(
    file: &dyn DiskFile,
    length: u64,
    header: &Header,
    header_bytes: u32,
    sheet: &mut Sheet,
) -> std::io::Result<()> {
    let geometry: Geometry = header.geometry;
    let expected = geometry.file_bytes(header.index, u64::from(header_bytes));
    if length != expected {
        sheet.fault(length.min(expected), format!("the file has {length} bytes instead of {expected}"));
    }
    let data = geometry.shard_bytes(header.index);
    let block_bytes = geometry.block_bytes();
    let count = data.div_ceil(block_bytes);
    let seed = shard::shard_seed(header.pool, header.version, header.index);
    let mut bad = 0;
    for block in 0..count {
        let offset = geometry.block_offset(u64::from(header_bytes), block);
        let bytes = block_bytes.min(data - block * block_bytes);
        let mut stored = vec![0; (bytes + CHECKSUM_BYTES) as usize];
        let why = match file.read_at(&mut [IoSliceMut::new(&mut stored)], offset) {
            Ok(read) if read < stored.len() => Some("is cut short".to_owned()),
            Ok(_) => stored.split_last_chunk::<8>().and_then(|(data, sum)| {
                let right = checksum(shard::block_seed(seed, block), data).to_le_bytes() == *sum;
                (!right).then(|| "has a wrong checksum".to_owned())
            }),
            Err(error) => Some(format!("cannot be read: {error}")),
        };
        if let Some(why) = why {
            bad += 1;
            if sheet.faults.len() < FAULTS_MAX {
                sheet.fault(offset, format!("block {block} {why}"));
            }
        }
    }
    sheet.note("blocks", format!("{count}, {bad} of them damaged"));
    Ok(())
}

/// One segment file of a journal.
pub fn journal_segment(disk: &dyn DiskIo, file: &str) -> std::io::Result<Sheet> {
    let bytes = read_file(disk, file, FILE_BYTES_MAX)?;
    Ok(journal(file, &bytes))
}

/// Batches and records of one segment as this copy has them.
pub fn journal(name: &str, bytes: &[u8]) -> Sheet {
    let mut sheet = Sheet::new(format!("journal {name}"));
    walk(bytes, &mut sheet, &mut |_, _, _| ());
    sheet
}

/// The entries of one segment: those of the pool's own stream are decoded here, others by `decode`.
pub fn journal_entries(
    disk: &dyn DiskIo,
    file: &str,
    decode: impl Fn(&str, u64, &Bytes) -> Option<Sheet>,
) -> std::io::Result<Vec<Sheet>> {
    let bytes = read_file(disk, file, FILE_BYTES_MAX)?;
    let mut sheets = Vec::new();
    walk(&bytes, &mut Sheet::default(), &mut |stream, id, payload| {
        let payload = Bytes::copy_from_slice(payload);
        let sheet = if stream == tombstones::STREAM { Some(deleted(&payload)) } else { decode(stream, id, &payload) };
        let mut sheet = sheet.unwrap_or_default();
        sheet.what = format!("entry {id} of {stream}");
        sheets.push(sheet);
    });
    Ok(sheets)
}

/// An entry of the pool's stream of deleted objects.
fn deleted(payload: &Bytes) -> Sheet {
    let mut sheet = Sheet { columns: vec!["DELETED", "VERSION"], ..Sheet::default() };
    let entry = LogEntry { id: 0, payload: payload.clone() };
    for (path, version) in tombstones::decode_all(&[entry]) {
        sheet.rows.push(vec![path, format!("{version:x}")]);
    }
    sheet
}

/// Reports the intact records: stream, id and payload of each entry.
type OnEntry<'a> = dyn FnMut(&str, u64, &[u8]) + 'a;

fn walk(bytes: &[u8], sheet: &mut Sheet, on_entry: &mut OnEntry<'_>) {
    sheet.note("bytes", bytes.len());
    let pool = bytes.get(16..32).and_then(|id| Uuid::from_slice(id).ok()).unwrap_or_default();
    let Some(header) = SegmentHeader::decode(bytes, pool) else {
        if bytes.iter().take(ALIGN_BYTES as usize).all(|byte| *byte == 0) {
            sheet.note("state", "never used: it lies ready");
        } else {
            sheet.fault(0, "the header of the segment is damaged or of another version");
        }
        return;
    };
    sheet.field(16, "pool", pool);
    sheet.field(32, "sequence", header.sequence);
    sheet.field(40, "length", header.bytes);
    sheet.columns = vec!["BYTE", "BATCH", "KIND", "STREAM", "ID", "AFTER", "TRIMMED", "BYTES"];
    let seed = segment_seed(pool, header.sequence);
    let mut offset = ALIGN_BYTES;
    let (mut last, mut stale) = (0, 0);
    while (offset as usize) < bytes.len() {
        let here = bytes.get(offset as usize..).unwrap_or_default();
        match BatchHeader::decode(here, seed, offset).filter(|batch| batch.batch > last) {
            Some(batch) => {
                last = batch.batch;
                let end = records(bytes, seed, offset, &batch, sheet, on_entry);
                offset = end.next_multiple_of(ALIGN_BYTES).max(offset + ALIGN_BYTES);
            }
            None => {
                stale += u64::from(here.starts_with(&BATCH_MAGIC));
                offset += ALIGN_BYTES;
            }
        }
    }
    sheet.note("last batch", last);
    if stale > 0 {
        sheet.note("other batches", format!("{stale}: of an earlier life of the file, torn, or damaged"));
    }
}

/// The records of a batch; where it ends.
fn records(
    bytes: &[u8],
    seed: u64,
    offset: u64,
    batch: &BatchHeader,
    sheet: &mut Sheet,
    on_entry: &mut OnEntry<'_>,
) -> u64 {
    let mut at = offset + BATCH_HEADER_BYTES as u64;
    for number in 0..batch.records {
        let head = bytes.get(at as usize..).and_then(|here| RecordHeader::decode(here, seed, at));
        // `journal.records_of_one_batch`
        let Some(record) = head.filter(|record| record.binding == batch.binding) else {
            sheet.fault(
                at,
                format!("record {number} of batch {} has a damaged header, or another batch's", batch.batch),
            );
            return offset.saturating_add(batch.bytes).min(bytes.len() as u64);
        };
        let from = at as usize + record.head_bytes();
        let payload = bytes.get(from..from.saturating_add(record.payload_bytes as usize));
        match payload {
            Some(payload) if checksum(seed ^ from as u64, payload) == record.payload_checksum => {
                if record.kind == Kind::Entry {
                    on_entry(&record.stream, record.id, payload);
                }
            }
            _ => {
                sheet.fault(from as u64, format!("the payload of record {number} of batch {} is damaged", batch.batch))
            }
        }
        let kind = match record.kind {
            Kind::Entry => "entry".to_owned(),
            Kind::Remove => "remove".to_owned(),
            Kind::Checkpoint => {
                let marks = payload.and_then(decode_checkpoint).unwrap_or_default();
                let marks = marks.iter().map(|mark| format!("{} {}/{}", mark.stream, mark.trimmed, mark.last));
                format!("checkpoint [{}]", marks.collect::<Vec<_>>().join(", "))
            }
        };
        sheet.rows.push(vec![
            at.to_string(),
            batch.batch.to_string(),
            kind,
            record.stream.clone(),
            record.id.to_string(),
            record.previous.to_string(),
            record.trimmed.to_string(),
            record.payload_bytes.to_string(),
        ]);
        at += record.bytes() as u64;
    }
    at
}

/// The segment files in a folder: a disk, or its `journal`.
pub fn journal_files(disk: &dyn DiskIo) -> std::io::Result<Vec<String>> {
    let (folder, names) = match disk.list("journal") {
        Ok(names) => ("journal/", names),
        Err(_) => ("", disk.list("")?),
    };
    let mut files: Vec<String> =
        names.into_iter().filter(|name| name.starts_with("segment-")).map(|name| format!("{folder}{name}")).collect();
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::disk::DiskOpener;
    use crate::disk::folder::FileDisks;
    use crate::journal::format::RecordHeader;

    #[test]
    fn a_label_tells_its_fields_and_where_it_is_damaged() {
        let bytes = crate::member::label::tests::example(1).encode();
        let sheet = label(&bytes);
        assert_eq!(sheet.faults, []);
        assert!(sheet.fields.iter().any(|field| field.name == "generation" && field.value == "5"));
        let mut bad = bytes.clone();
        bad[40] ^= 0x80;
        assert_eq!(label(&bad).faults[0].at_byte, Some(16), "the checksum");
        assert_eq!(label(b"LARDLABX").faults[0].at_byte, Some(0));
        for cut in 0..bytes.len() {
            assert!(!label(&bytes[..cut]).faults.is_empty(), "{cut}");
        }
    }

    #[test]
    fn sidecars_tell_their_text_and_where_they_are_damaged() {
        let events = br#"{"number":1,"at_ms":5,"kind":"created","text":"a"}
{"number":2,"at_ms":6,"kind":"opened","text":"b"}
"#;
        let bytes = history::FILE.encode(events);
        let sheet = history(&bytes);
        assert_eq!((sheet.faults.len(), sheet.rows.len(), sheet.rows[1][2].as_str()), (0, 2, "opened"));
        let mut bad = bytes.clone();
        bad[60] ^= 1;
        assert_eq!(history(&bad).faults[0].at_byte, Some(16));
        assert_eq!(history(&bytes[1..]).faults[0].at_byte, Some(0));
        (0..bytes.len()).for_each(|cut| assert!(!history(&bytes[..cut]).faults.is_empty(), "{cut}"));
        let bytes = scrub::state::FILE.encode(br#"{"number":4,"after":"x"}"#);
        assert!(scrub(&bytes).fields.iter().any(|field| field.name == "after"));
        assert!(!scrub(&scrub::state::FILE.encode(b"[]")).faults.is_empty());
    }

    #[test]
    fn a_shard_tells_which_blocks_are_damaged() {
        let folder = tempfile::tempdir().unwrap();
        let header = Header {
            pool: Uuid::from_u128(5),
            version: 7,
            modified_ms: 1,
            geometry: Geometry::new(100_000, 1, 1),
            index: 1,
            path: "a".into(),
            attributes: Vec::new(),
        };
        let mut bytes = header.encode();
        let name = shard::file_name(&header, bytes.len());
        let seed = shard::shard_seed(header.pool, 7, 1);
        for (block, data) in (0..).zip(vec![3u8; 100_000].chunks(header.geometry.block_bytes() as usize)) {
            bytes.extend_from_slice(data);
            bytes.extend_from_slice(&checksum(shard::block_seed(seed, block), data).to_le_bytes());
        }
        let disk = FileDisks.open_disk(folder.path()).unwrap();
        let look = |bytes: &[u8]| {
            std::fs::write(folder.path().join(&name), bytes).unwrap();
            shard(&*disk, &name).unwrap()
        };
        assert_eq!(look(&bytes).faults, []);
        let header_bytes = header.encode().len();
        let mut bad = bytes.clone();
        bad[header_bytes + 8_200 + 9] ^= 1;
        let faults = look(&bad).faults;
        assert_eq!((faults.len(), faults[0].at_byte), (1, Some(header_bytes as u64 + 8_200)));
        assert_eq!(look(&bytes[..bytes.len() - 1]).faults.len(), 2, "length and last block");
        bad[70] ^= 1;
        assert_eq!(look(&bad).faults[0].at_byte, Some(header_bytes as u64 - 8));
    }

    #[test]
    fn a_journal_tells_its_records() {
        let pool = Uuid::from_u128(3);
        let mut bytes = SegmentHeader { sequence: 4, bytes: 16384, file: None }.encode(pool);
        bytes.resize(4096, 0);
        let seed = segment_seed(pool, 4);
        let at = 4096 + BATCH_HEADER_BYTES as u64;
        let mut record = RecordHeader {
            kind: Kind::Entry,
            stream: "wal".into(),
            id: 9,
            previous: 8,
            trimmed: 2,
            payload_bytes: 5,
            payload_checksum: 0,
            binding: 0,
        };
        let from = at + record.head_bytes() as u64;
        record.payload_checksum = checksum(seed ^ from, b"hello");
        let batch =
            BatchHeader { batch: 1, bytes: (record.bytes() + BATCH_HEADER_BYTES) as u64, records: 1, binding: 0 };
        bytes.extend(batch.encode(seed, 4096));
        bytes.extend(record.encode(seed, at));
        bytes.extend(b"hello");
        bytes.resize(16384, 0);
        let sheet = journal("segment-0000", &bytes);
        assert_eq!((sheet.faults.len(), sheet.rows.len()), (0, 1));
        assert_eq!(sheet.rows[0][2..5], ["entry", "wal", "9"]);
        bytes[from as usize] ^= 1;
        assert_eq!(journal("x", &bytes).faults[0].at_byte, Some(from));
        bytes[at as usize] ^= 1;
        assert_eq!(journal("x", &bytes).faults[0].at_byte, Some(at));
        bytes[20] ^= 1;
        assert_eq!(journal("x", &bytes).faults[0].at_byte, Some(0));
        assert_eq!(journal("x", &[0; 8192]).faults, []);
    }
}
