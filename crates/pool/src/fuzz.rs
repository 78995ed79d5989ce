//! Decoders of files on disks, fed with anything. Driven by the tests below, and with coverage by
//! `fuzz/`.
//!
//! None panics, none allocates on the word of a length field, and a decoded value encodes to itself
//! again. Checksums would keep nearly all mutations out: each function also tries the input with
//! them put right.
#![allow(clippy::unwrap_used)]

use larder_base::checksum::checksum;
use larder_base::log::LogEntry;
use uuid::Uuid;

use crate::journal::format::{
    ALIGN_BYTES, BATCH_HEADER_BYTES, BatchHeader, RecordHeader, SegmentHeader, decode_checkpoint, encode_checkpoint,
    segment_seed,
};
use crate::journal::replay::{Rebuild, SegmentImage, scan};
use crate::member::label::Label;
use crate::object::shard::{self, Found, Header, PathName, Reader};
use crate::object::tombstones;
use crate::salvage::inspect;

const POOL: Uuid = Uuid::from_u128(5);
const SEQUENCE: u64 = 3;

/// A label, and its decoding for people.
pub fn label(data: &[u8]) {
    let mut sealed = data.to_vec();
    if let Some((head, body)) = sealed.split_at_mut_checked(24) {
        let (version, length) = (u32::from_le_bytes(head[8..12].try_into().unwrap()), body.len() as u32);
        head[12..16].copy_from_slice(&length.to_le_bytes());
        head[16..24].copy_from_slice(&checksum(u64::from(version), body).to_le_bytes());
    }
    for bytes in [data, &sealed] {
        if let Ok(label) = Label::decode(bytes) {
            assert_eq!(Label::decode(&label.encode()).as_ref(), Ok(&label));
            assert_eq!(crate::member::label::winner(std::slice::from_ref(&label), |_| false), Some(&label));
        }
        inspect::label(bytes);
    }
}

/// The header of a shard file.
pub fn shard_header(data: &[u8]) {
    let mut sealed = data.to_vec();
    sealed.extend([0; 8]);
    let length = sealed.len() as u32;
    if let Some(place) = sealed.get_mut(12..16) {
        place.copy_from_slice(&length.to_le_bytes());
    }
    let body = sealed.len() - 8;
    let sum = checksum(0, &sealed[..body]);
    sealed[body..].copy_from_slice(&sum.to_le_bytes());
    for bytes in [data, &sealed] {
        shard::header_length(bytes);
        if let Some(header) = Header::decode(bytes) {
            assert_eq!(Header::decode(&header.encode()), Some(header));
        }
    }
}

/// The name of a shard file.
pub fn shard_name(data: &[u8]) {
    let Ok(name) = std::str::from_utf8(data) else { return };
    let Found::Shard(found) = shard::parse_name(name) else { return };
    // No range of it leads to an overflow.
    for index in 0..found.geometry.shards() {
        found.geometry.file_bytes(index, u64::from(found.header_bytes));
    }
    let PathName::Plain(path) = found.path.clone() else { return };
    let attributes = if found.has_attributes { vec![(String::new(), String::new())] } else { Vec::new() };
    let (version, modified_ms) = (found.version, found.modified_ms);
    let header =
        Header { pool: POOL, version, modified_ms, geometry: found.geometry, index: found.index, path, attributes };
    let again = shard::file_name(&header, found.header_bytes as usize);
    match shard::parse_name(&again) {
        Found::Shard(same) if matches!(same.path, PathName::Plain(_)) => assert_eq!(same, found),
        Found::Shard(hashed) => assert_eq!(hashed.version, found.version),
        other => panic!("{again} is {other:?}"),
    }
}

/// A segment with the input behind its header, and one with batches and records as the input says.
pub fn journal_segment(data: &[u8]) {
    let header = SegmentHeader { sequence: SEQUENCE, bytes: 1 << 20, file: None };
    let mut bytes = header.encode(POOL);
    bytes.resize(ALIGN_BYTES as usize, 0);
    let forged = [bytes.clone(), forge(data)].concat();
    bytes.extend_from_slice(data);
    inspect::journal("fuzz", data);
    for copy in [bytes, forged] {
        inspect::journal("fuzz", &copy);
        let damaged: Vec<u8> =
            copy.iter().enumerate().map(|(n, byte)| if n % 4093 == 4092 { !byte } else { *byte }).collect();
        let found = scan(POOL, &SegmentImage { header, copies: vec![copy, damaged] });
        let mut rebuild = Rebuild::default();
        for (record, location) in &found.records {
            let from = location.offset as usize;
            rebuild.apply(record, *location, &found.merged[from..from + location.bytes as usize]);
        }
        rebuild.finish();
    }
}

/// A batch whose numbers come from `data` and whose checksums are right.
fn forge(data: &[u8]) -> Vec<u8> {
    let mut reader = Reader(data);
    let seed = segment_seed(POOL, SEQUENCE);
    let mut number = || reader.u64().unwrap_or(7);
    let batch = BatchHeader { batch: number(), bytes: number(), records: number() as u32, binding: 0 };
    let mut out = batch.encode(seed, ALIGN_BYTES);
    let at = ALIGN_BYTES + BATCH_HEADER_BYTES as u64;
    let kinds = [crate::journal::format::Kind::Entry, crate::journal::format::Kind::Checkpoint];
    let mut record = RecordHeader {
        kind: kinds[(number() % 2) as usize],
        stream: "s".into(),
        id: number(),
        previous: number(),
        trimmed: number(),
        payload_bytes: number() as u32,
        payload_checksum: 0,
        binding: 0,
    };
    let payload = reader.0.to_vec();
    if data.len().is_multiple_of(2) {
        record.payload_bytes = payload.len() as u32;
    }
    record.payload_checksum = checksum(seed ^ (at + record.head_bytes() as u64), &payload);
    out.extend(record.encode(seed, at));
    out.extend(payload);
    out
}

/// A checkpoint record of the journal.
pub fn checkpoint(data: &[u8]) {
    if let Some(marks) = decode_checkpoint(data) {
        assert_eq!(decode_checkpoint(&encode_checkpoint(&marks)), Some(marks));
    }
}

/// The payload of a tombstone.
pub fn tombstones(data: &[u8]) {
    let entry = LogEntry { id: 1, payload: data.to_vec().into() };
    let deleted = tombstones::decode_all(&[entry]);
    assert!(deleted.len() <= data.len() / 12);
}

/// The history file.
pub fn history(data: &[u8]) {
    crate::history::tell_again(data);
}

/// The file with the progress of a scrub.
pub fn scrub_state(data: &[u8]) {
    crate::heal::scrub::go_on(data);
}

#[cfg(test)]
#[path = "../../../fuzz/driver.rs"]
mod driver;

#[cfg(test)]
mod tests {
    use super::driver::drive;
    use super::*;
    use crate::journal::format::StreamMark;
    use crate::object::geometry::Geometry;

    fn header() -> Header {
        let attributes = vec![("content-type".to_owned(), "text/plain".to_owned())];
        let geometry = Geometry::new(300_000, 2, 1);
        Header {
            pool: POOL,
            version: 77,
            modified_ms: 1_700_000_000_000,
            geometry,
            index: 1,
            path: "a/b c".into(),
            attributes,
        }
    }

    #[test]
    fn fuzz_label() {
        drive("label", &[crate::member::label::tests::example(1).encode()], label);
    }

    #[test]
    fn fuzz_shard_header() {
        drive("shard_header", &[header().encode()], shard_header);
    }

    #[test]
    fn fuzz_shard_name() {
        let long = Header { path: "x/".repeat(200), ..header() };
        let names = [&header(), &long].map(|header| shard::file_name(header, header.encode().len()).into_bytes());
        drive("shard_name", &names, shard_name);
    }

    #[test]
    fn fuzz_journal_segment() {
        let numbers: Vec<u8> = [1u64, 200, 1, 0, 4, 3, 1, 5].iter().flat_map(|n| n.to_le_bytes()).collect();
        let whole =
            [SegmentHeader { sequence: SEQUENCE, bytes: 8192, file: None }.encode(POOL), forge(&numbers)].concat();
        drive(
            "journal_segment",
            &[[numbers.clone(), b"hello".to_vec()].concat(), forge(&numbers), whole],
            journal_segment,
        );
    }

    #[test]
    fn fuzz_checkpoint() {
        let marks = [StreamMark { stream: "wal".into(), last: 4, trimmed: 2 }];
        drive("checkpoint", &[encode_checkpoint(&marks)], checkpoint);
    }

    #[test]
    fn fuzz_tombstones() {
        let mut entry = 9u64.to_le_bytes().to_vec();
        entry.extend(3u32.to_le_bytes());
        entry.extend(b"a/b");
        drive("tombstones", &[entry.repeat(2)], tombstones);
    }

    #[test]
    fn fuzz_history() {
        let line = r#"{"number":7,"at_ms":5,"kind":"disk-out","text":"disk1: gone"}"#;
        let more = line.replace("7", "9");
        drive("history", &[format!("{line}\n{more}\n").into_bytes()], history);
    }

    #[test]
    fn fuzz_scrub_state() {
        let text = r#"{"number":3,"status":{"phase":"paused","why":"asked for","started_ms":5,"ended_ms":9,"elapsed_ms":4,"objects_done":1,"objects_total":2,
            "bytes_done":10,"bytes_total":20,"errors":1,"repaired":1,"repaired_bytes":10,"unrepaired":0},"after":"a/b","damage":[{"object":"a/b","version":7,
            "ranges":[{"start":0,"end":4096}]}],"damage_more":0}"#;
        drive("scrub_state", &[text.as_bytes().to_vec()], scrub_state);
    }
}
