//! Decoders of stored structures, fed with arbitrary bytes. Driven by the tests below, and with
//! coverage by `fuzz/`.
//!
//! None panics, none allocates as much as a length field claims, and every value that decodes is
//! encoded to the same value again. Where checksums would keep mutations out, the input is
//! also tried with corrected ones.
#![allow(clippy::unwrap_used)]

use bytes::{Bytes, BytesMut};
use larder_base::checksum::checksum;
use larder_base::log::LogEntry;

use crate::data::{
    Codec, EXTENT_TAG, FOOTER_BYTES, HEADER_BYTES, INTENT_TAG, RESERVED_TAG, SEGMENT_TAG, SegmentId, decode_extent,
    decode_intent, decode_mask, decode_reserved, decode_segment, decode_sharer, decompress_into, encode_reserved,
    encode_segment, place_seed, put_extent, reserved_key, sharer_key,
};
use crate::keys::{self, tag};
use crate::meta::wal;
use crate::registry;
use crate::snapshots::{image, row as snapshot_row};
use crate::{inspect, replica, salvage};

/// A row: one byte says how long the key is.
pub fn row(data: &[u8]) {
    let Some((length, rest)) = data.split_first() else { return };
    let (key, value) = rest.split_at_checked(usize::from(*length)).unwrap_or((rest, &[]));
    let (key, value) = (Bytes::copy_from_slice(key), Bytes::copy_from_slice(value));
    let _ = inspect::row(&key, &value);
    again(&key, &value);
}

/// Encodes what was decoded: the same bytes, where nothing is normalised; else the same from then
/// on.
fn again(key: &Bytes, value: &Bytes) {
    match key.first() {
        Some(&tag::INODE) => {
            let Ok(ino) = keys::ino_of(key) else { return };
            let Ok(core) = keys::decode_inode(ino, value) else { return };
            let (_, once) = keys::encode_inode(ino, &core);
            let (_, twice) = keys::encode_inode(ino, &keys::decode_inode(ino, &once).unwrap());
            assert_eq!(once, twice);
        }
        Some(&tag::ENTRY) => {
            if let Ok(entry) = keys::decode_entry(key, value) {
                assert_eq!(keys::encode_entry(entry), value);
            }
        }
        Some(&tag::COOKIE) => {
            if let Ok(entry) = keys::decode_cookie(key, value) {
                assert_eq!(keys::encode_cookie(entry.ino, entry.kind, &entry.name), value);
            }
        }
        Some(&tag::XATTR) => {
            if let Ok(bytes) = keys::decode_xattr(key, value) {
                assert_eq!(keys::encode_xattr(&bytes), value);
            }
        }
        Some(&tag::USAGE) => {
            if let Ok(usage) = keys::decode_usage(value) {
                assert_eq!(keys::encode_usage(usage), value);
            }
        }
        Some(&tag::NEXT_INO) => {
            if let Ok(next) = keys::decode_next_ino(value) {
                assert_eq!(keys::encode_next_ino(next), value);
            }
        }
        Some(&tag::SUPERBLOCK) => {
            if let Ok(superblock) = keys::decode_superblock(value) {
                let once = keys::encode_superblock(superblock);
                assert_eq!(keys::decode_superblock(&once).unwrap(), superblock);
            }
        }
        Some(&EXTENT_TAG) => {
            if let Ok((_, _, extent)) = decode_extent(key, value) {
                let mut out = BytesMut::new();
                put_extent(&mut out, &extent);
                assert_eq!(out, value);
            }
        }
        Some(&RESERVED_TAG) => {
            if let Ok((ino, range)) = decode_reserved(key, value) {
                assert_eq!(reserved_key(ino, range.start), key);
                assert_eq!(encode_reserved(range.end - range.start), value);
            }
        }
        Some(&INTENT_TAG) => {
            let _ = decode_mask(key, value);
            let _ = decode_intent(key, value);
        }
        Some(&SEGMENT_TAG) => {
            if let Ok((_, segment)) = decode_segment(key, value) {
                // The death of a segment is not kept: it is read and stays zero.
                let once = encode_segment(&segment);
                assert_eq!(decode_segment(key, &once).unwrap().1, segment);
            }
        }
        Some(&tag::SHARER) => {
            if let Ok((ino, segment)) = decode_sharer(key, value) {
                assert_eq!(sharer_key(ino, segment), key);
            }
        }
        _ => {}
    }
}

const STREAM: &str = "volume-fuzz";

/// An entry of the log: as it is, and with version and checksum put right.
pub fn log_entry(data: &[u8]) {
    let _ = wal::rows_of(STREAM, &LogEntry { id: 7, payload: Bytes::copy_from_slice(data) });
    let entry = LogEntry { id: 7, payload: wal::payload_of(STREAM, 7, data) };
    if let Ok(rows) = wal::rows_of(STREAM, &entry) {
        let encoded = wal::encode_rows(&rows).unwrap();
        let again = wal::rows_of(STREAM, &LogEntry { id: 7, payload: wal::payload_of(STREAM, 7, &encoded) }).unwrap();
        assert_eq!(rows, again);
    }
}

/// A segment object: as it is, and with its checksums put right.
pub fn segment(data: &[u8]) {
    inspect::segment(&Bytes::copy_from_slice(data));
    let mut sealed = data.to_vec();
    if sealed.len() < HEADER_BYTES + FOOTER_BYTES {
        return;
    }
    let id = SegmentId(u64::from_be_bytes(sealed[16..24].try_into().unwrap()));
    let sum = checksum(place_seed(id, 0), &sealed[..HEADER_BYTES - 8]);
    sealed[HEADER_BYTES - 8..HEADER_BYTES].copy_from_slice(&sum.to_be_bytes());
    let at = sealed.len() - FOOTER_BYTES;
    let index_at = u32::from_be_bytes(sealed[at + 20..at + 24].try_into().unwrap());
    if let Some(index) = sealed.get(index_at as usize..at) {
        let sum = checksum(place_seed(id, index_at), index);
        sealed[at + 24..at + 32].copy_from_slice(&sum.to_be_bytes());
    }
    sealed[at + 8..at + 16].copy_from_slice(&id.0.to_be_bytes());
    let end = sealed.len() - 8;
    let sum = checksum(place_seed(id, u32::MAX), &sealed[at..end]);
    sealed[end..].copy_from_slice(&sum.to_be_bytes());
    inspect::segment(&sealed.into());
}

/// A stored record: codec, length, bytes.
pub fn record(data: &[u8]) {
    let Some((&[codec, a, b, c], stored)) = data.split_first_chunk() else { return };
    let raw_len = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
    let (Some(codec), true) = (Codec::from_u8(codec), raw_len <= 1 << 20) else { return };
    decompress_into(codec, stored, &mut vec![0; raw_len]);
}

/// `registry.json`: a document that decodes is written and decoded again without change.
pub fn registry(data: &[u8]) {
    inspect::registry(data);
    if let Ok(document) = registry::document::decode_document(data) {
        let once = serde_json::to_vec(&document).unwrap();
        let twice = serde_json::to_vec(&registry::document::decode_document(&once).unwrap()).unwrap();
        assert_eq!(once, twice);
    }
}

/// Names of volumes and of their logs.
pub fn names(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(id) = text.parse() {
        let stream = salvage::log_stream(id);
        assert!(
            stream.len() <= 64 && stream.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        );
    }
    let folded = larder_fs::judge::fold(data);
    assert_eq!(larder_fs::judge::fold(&folded), folded, "folding twice is folding once");
}

/// A stream of a sender that nobody trusts: as it is, and with the checksums of its frames put right.
pub fn replica_stream(data: &[u8]) {
    replica::fuzz::stream(data);
}

/// `replica.json`: a document that decodes is written and decoded again without change, and can be counted, thinned and brought up to
/// the present.
pub fn replica_document(data: &[u8]) {
    replica::fuzz::document(data);
}

/// The image of a snapshot: as it is, and with its checksum put right.
pub fn snapshot_image(data: &[u8]) {
    const EPOCH: u64 = 3;
    let _ = image::decode(EPOCH, Bytes::copy_from_slice(data));
    let mut sealed = data.to_vec();
    let Some(at) = sealed.len().checked_sub(8) else { return };
    let sum = checksum(EPOCH, &sealed[..at]);
    sealed[at..].copy_from_slice(&sum.to_be_bytes());
    let Ok(found) = image::decode(EPOCH, sealed.into()) else { return };
    let once = image::encode(EPOCH, &found);
    assert_eq!(image::decode(EPOCH, once).unwrap(), found);
}

/// The row of a snapshot, which a sender makes, too.
pub fn snapshot(data: &[u8]) {
    let key = snapshot_row::snapshot_key(3);
    let _ = (snapshot_row::decode_key(data), snapshot_row::decode_epoch(data));
    let Ok(row) = snapshot_row::decode(&key, data) else { return };
    // Longer names and reasons are refused before they are kept.
    if row.name.len() <= 200 && row.holds.iter().all(|hold| hold.reason.len() <= 200) {
        assert_eq!(snapshot_row::decode(&key, &snapshot_row::encode(&row)).unwrap(), row);
    }
}

#[cfg(test)]
#[path = "../../../fuzz/driver.rs"]
mod driver;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{Extent, Place, RecordRef, SegmentBuilder, Sums};
    use larder_fs::*;

    /// The addresses of the arena are no memory that an input asked for: they are there before it is measured.
    fn drive(name: &str, seeds: &[Vec<u8>], entry: fn(&[u8])) {
        drop(larder_base::arena::take(1));
        super::driver::drive(name, seeds, entry);
    }

    fn pair(key: &[u8], value: &[u8]) -> Vec<u8> {
        [&[key.len() as u8], key, value].concat()
    }

    #[test]
    fn fuzz_row() {
        let core = keys::tests::sample();
        let (key, value) = keys::encode_inode(Ino(7), &core);
        let entry = keys::Entry { ino: Ino(7), kind: FileKind::File, cookie: 4 };
        let superblock = keys::Superblock { id: uuid::Uuid::from_u128(1), created: larder_base::Timestamp::new(3, 4) };
        let record = RecordRef {
            segment: SegmentId(3),
            position: 64,
            stored_len: 100,
            raw_len: 200,
            codec: Codec::Lz4,
            sums: Sums::Whole(5),
        };
        let mut extent = BytesMut::new();
        put_extent(&mut extent, &Extent { len: 150, skip: 20, place: Place::Record(record.clone()) });
        let table = [&[14][..], &[0, 50, 1, 2, 3, 4, 5, 6, 7, 8].repeat(2)].concat();
        let sums = Sums::from_table(&table, Codec::Lz4, 100, 20_000).unwrap();
        let pieces = RecordRef { raw_len: 20_000, sums, ..record };
        let mut in_pieces = BytesMut::new();
        put_extent(&mut in_pieces, &Extent { len: 150, skip: 20, place: Place::Record(pieces) });
        let mut inline = BytesMut::new();
        put_extent(&mut inline, &Extent { len: 2, skip: 0, place: Place::Inline(Bytes::from_static(b"hi")) });
        let numbers = |tag: u8, numbers: &[u64]| {
            std::iter::once(tag).chain(numbers.iter().flat_map(|n| n.to_be_bytes())).collect::<Vec<u8>>()
        };
        let segment = crate::data::Segment {
            birth: 1,
            object_bytes: 9,
            records: 1,
            live_bytes: 4,
            extents: 1,
            ..Default::default()
        };
        let seeds = [
            pair(&key, &value),
            pair(&keys::entry_key(Ino(1), b"name"), &keys::encode_entry(entry)),
            pair(&keys::cookie_key(Ino(1), 4), &keys::encode_cookie(Ino(7), FileKind::File, b"name")),
            pair(&keys::xattr_key(Ino(7), b"user.a"), &keys::encode_xattr(b"red")),
            pair(keys::USAGE_KEY, &keys::encode_usage(Default::default())),
            pair(keys::NEXT_INO_KEY, &keys::encode_next_ino(9)),
            pair(keys::SUPERBLOCK_KEY, &keys::encode_superblock(superblock)),
            pair(&numbers(EXTENT_TAG, &[7, 0]), &extent),
            pair(&numbers(EXTENT_TAG, &[7, 4096]), &inline),
            pair(&numbers(EXTENT_TAG, &[7, 8192]), &in_pieces),
            pair(&numbers(RESERVED_TAG, &[7, 4096]), &encode_reserved(1 << 40)),
            pair(&numbers(INTENT_TAG, &[7, 1, 0]), b"\x01\x00hello"),
            pair(&numbers(INTENT_TAG, &[7, 1, 0]), b"\x01\x01\0\0\0\0\0\0\0\x09"),
            pair(
                &[&numbers(INTENT_TAG, &[7, 1, 0])[..], b"M"].concat(),
                &[1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 3],
            ),
            pair(&numbers(SEGMENT_TAG, &[3]), &encode_segment(&segment)),
        ];
        drive("row", &seeds, row);
    }

    #[test]
    fn fuzz_log_entry() {
        let row = slatedb::RowEntry {
            key: Bytes::from_static(b"Ikey"),
            value: slatedb::ValueDeletable::Value(Bytes::from_static(b"value")),
            seq: 5,
            create_ts: Some(7),
            expire_ts: None,
        };
        let rows = wal::encode_rows(&[row]).unwrap();
        drive("log_entry", &[rows.to_vec(), wal::payload_of(STREAM, 7, &rows).to_vec()], log_entry);
    }

    #[test]
    fn fuzz_segment() {
        let mut builder = SegmentBuilder::new(SegmentId(3), 1);
        builder.push((Ino(7), 1, 0), (3, 1), (Codec::Raw, None), 5, &[Bytes::from_static(b"hello")]);
        builder.push((Ino(8), 1, 0), (2, 1), (Codec::Lz4, None), 4096, &[Bytes::from_static(b"packed")]);
        drive("segment", &[builder.finish().0.concat()], segment);
    }

    #[test]
    fn fuzz_record() {
        let text = b"the quick brown fox ".repeat(50);
        let lz4 = lz4_flex::block::compress(&text);
        let zstd = zstd::bulk::compress(&text, 3).unwrap();
        let head = |codec: u8| vec![codec, 0, (text.len() >> 8) as u8, text.len() as u8];
        drive("record", &[[head(1), lz4].concat(), [head(2), zstd].concat(), [head(0), text.clone()].concat()], record);
    }

    #[test]
    fn fuzz_registry() {
        let good = br#"{"format": 1, "volumes": [{"name": "v", "id": "00000000-0000-0000-0000-000000000001",
            "properties": {"record_bytes": 4096, "compression": "lz4", "quota_bytes": null, "sync": "standard"},
            "formatted": true, "doomed": false, "features": {"compatible": ["a"]}}]}"#;
        drive("registry", &[good.to_vec()], registry);
    }

    #[test]
    fn fuzz_replica_stream() {
        drive("replica_stream", &replica::fuzz::streams(), replica_stream);
    }

    #[test]
    fn fuzz_replica_document() {
        let good = br#"{"format":1,"source":"00000000-0000-0000-0000-000000000001","snapshots":[{"number":3,"name":"s3",
            "created_ns":1,"over":2,"from":2,"arrived":7,"holds":[{"reason":"tax","until":5}]}],"objects":{"seg/0000000000000001":
            {"bytes":10,"first":3,"last":3},"snap/0000000000000003":{"bytes":9,"first":1,"last":9}},"partial":{"to":{"number":4,
            "name":"s4","created_ns":2}},"time":{"now":9,"wall":8,"boot":"b","since_boot":7}}"#;
        drive("replica_document", &[good.to_vec()], replica_document);
    }

    #[test]
    fn fuzz_snapshot_image() {
        let rows = [(&b"I1"[..], Some(&b"record"[..])), (&b"W1"[..], None)];
        let rows = || rows.map(|(key, value)| (Bytes::from_static(key), value.map(Bytes::from_static))).into();
        let engine = image::Ground::Engine { manifest_id: 7, manifest: Bytes::from_static(b"manifest") };
        let seeds = [engine, image::Ground::Snapshot(2)]
            .map(|ground| image::encode(3, &image::Image { ground, rows: rows() }).to_vec());
        drive("snapshot_image", &seeds, snapshot_image);
    }

    #[test]
    fn fuzz_snapshot() {
        let row = snapshot_row::Row {
            name: "before".into(),
            created: larder_base::Timestamp::new(5, 5),
            next_ino: 7,
            usage: Default::default(),
            image_bytes: 9,
            holds: vec![Hold { reason: "a".into(), until: None }],
            tables: vec![snapshot_row::Table { id: ulid::Ulid::from_bytes([0xAB; 16]), bytes: 4096 }],
        };
        let seeds = [snapshot_row::encode(&row).to_vec(), snapshot_row::encode_epoch(6).to_vec()];
        drive("snapshot", &seeds, snapshot);
    }

    #[test]
    fn fuzz_names() {
        drive("names", &[b"00000000-0000-0000-0000-000000000001".to_vec(), "Straße ΣΑΣ".into()], names);
    }
}
