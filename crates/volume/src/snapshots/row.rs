//! The rows of snapshots in the engine: key `P` for the number of the epoch, `P` and a number for each snapshot.

use bytes::{BufMut, Bytes, BytesMut};
use larder_base::Timestamp;
use larder_fs::{FsResult, Hold};
use ulid::Ulid;

use crate::keys::{Reader, damaged, tag};
use crate::meta::Usage;

pub(crate) const EPOCH_KEY: &[u8] = &[tag::SNAPSHOT];
/// The number of the snapshot that the volume goes back to when it is opened next; coded as the epoch is.
pub(crate) const ROLLBACK_KEY: &[u8] = &[tag::SNAPSHOT, b'R'];
/// A copy as files: its head is on the way to the snapshot of this number (`copy.unseen_until_whole`); coded as the epoch is.
pub(crate) const COPYING_KEY: &[u8] = &[tag::SNAPSHOT, b'C'];
const VERSION: u8 = 1;
/// The longest name of a snapshot, and of the reason of a hold, in bytes.
pub(crate) const NAME_LEN_MAX: usize = 200;
/// A hold that nobody but its release ends.
const FOR_EVER: i64 = i64::MAX;

/// A table of the engine that the snapshot reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Table {
    pub(crate) id: Ulid,
    pub(crate) bytes: u64,
}

/// A snapshot, as its row has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) created: Timestamp,
    /// Inodes that were made later have this number or a higher one.
    pub(crate) next_ino: u64,
    /// The counters of the volume at that moment.
    pub(crate) usage: Usage,
    /// The length of its image.
    pub(crate) image_bytes: u64,
    pub(crate) holds: Vec<Hold>,
    pub(crate) tables: Vec<Table>,
}

pub(crate) fn snapshot_key(epoch: u64) -> Bytes {
    let mut key = BytesMut::with_capacity(9);
    key.put_u8(tag::SNAPSHOT);
    key.put_u64(epoch);
    key.freeze()
}

/// Of the key of a snapshot; `None`: it is one of the others.
pub(crate) fn decode_key(key: &[u8]) -> FsResult<Option<u64>> {
    if [EPOCH_KEY, ROLLBACK_KEY, COPYING_KEY].contains(&key) {
        return Ok(None);
    }
    let number = key.get(1..).and_then(|bytes| <[u8; 8]>::try_from(bytes).ok());
    number.map(|bytes| Some(u64::from_be_bytes(bytes))).ok_or_else(|| damaged(key, "wrong key length"))
}

/// Version, epoch.
pub(crate) fn encode_epoch(epoch: u64) -> Bytes {
    let mut out = BytesMut::with_capacity(9);
    out.put_u8(VERSION);
    out.put_u64(epoch);
    out.freeze()
}

pub(crate) fn decode_epoch(value: &[u8]) -> FsResult<u64> {
    let mut r = Reader::new(EPOCH_KEY, value)?;
    let epoch = r.u64()?;
    r.finish()?;
    Ok(epoch)
}

fn put_text(out: &mut BytesMut, text: &str) {
    assert!(text.len() <= NAME_LEN_MAX, "names are checked before");
    out.put_u8(text.len() as u8);
    out.put_slice(text.as_bytes());
}

/// Version; created (s, ns); next inode number; inodes, logical, stored and reserved bytes; bytes of the image; name; holds (reason, end in
/// seconds since 1970); tables (id, bytes).
pub(crate) fn encode(row: &Row) -> Bytes {
    let mut out = BytesMut::with_capacity(80 + row.tables.len() * 24);
    out.put_u8(VERSION);
    out.put_i64(row.created.secs);
    out.put_u32(row.created.nanos);
    out.put_u64(row.next_ino);
    let Usage { inodes, logical_bytes, stored_bytes, reserved_bytes } = row.usage;
    [inodes, logical_bytes, stored_bytes, reserved_bytes].into_iter().for_each(|count| out.put_i64(count));
    out.put_u64(row.image_bytes);
    put_text(&mut out, &row.name);
    out.put_u16(row.holds.len() as u16);
    for hold in &row.holds {
        put_text(&mut out, &hold.reason);
        out.put_i64(hold.until.map_or(FOR_EVER, |until| until.secs));
    }
    out.put_u32(row.tables.len() as u32);
    for table in &row.tables {
        out.put_slice(&table.id.to_bytes());
        out.put_u64(table.bytes);
    }
    out.freeze()
}

pub(crate) fn decode(key: &[u8], value: &[u8]) -> FsResult<Row> {
    let mut r = Reader::new(key, value)?;
    let created = Timestamp::new(r.i64()?, r.u32()?);
    let next_ino = r.u64()?;
    let usage = Usage { inodes: r.i64()?, logical_bytes: r.i64()?, stored_bytes: r.i64()?, reserved_bytes: r.i64()? };
    let image_bytes = r.u64()?;
    let text = |r: &mut Reader<'_>| -> FsResult<String> {
        let len = usize::from(r.u8()?);
        let text = std::str::from_utf8(r.bytes(len)?).map_err(|_| damaged(key, "a name is not text"))?;
        Ok(text.to_owned())
    };
    let name = text(&mut r)?;
    let mut holds = Vec::new();
    for _ in 0..r.u16()? {
        let (reason, until) = (text(&mut r)?, r.i64()?);
        holds.push(Hold { reason, until: (until != FOR_EVER).then(|| Timestamp::new(until, 0)) });
    }
    let mut tables = Vec::new();
    for _ in 0..r.u32()? {
        let id = r.bytes(16)?.try_into().map(Ulid::from_bytes).map_err(|_| damaged(key, "it is cut short"))?;
        tables.push(Table { id, bytes: r.u64()? });
    }
    r.finish()?;
    Ok(Row { name, created, next_ino, usage, image_bytes, holds, tables })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn golden_bytes() {
        let row = Row {
            name: "before".into(),
            created: Timestamp::new(0x1234, 5),
            next_ino: 0x77,
            usage: Usage { inodes: 1, logical_bytes: 2, stored_bytes: 3, reserved_bytes: 4 },
            image_bytes: 0x99,
            holds: vec![
                Hold { reason: "a".into(), until: None },
                Hold { reason: "b".into(), until: Some(Timestamp::new(7, 0)) },
            ],
            tables: vec![Table { id: Ulid::from_bytes([0xAB; 16]), bytes: 0x1000 }],
        };
        let value = encode(&row);
        let hex: String = value.iter().map(|byte| format!("{byte:02x}")).collect();
        let want = "01 0000000000001234 00000005 0000000000000077 0000000000000001 0000000000000002 0000000000000003 0000000000000004 \
                    0000000000000099 06 6265666f7265 0002 01 61 7fffffffffffffff 01 62 0000000000000007 00000001 \
                    abababababababababababababababab 0000000000001000";
        assert_eq!(hex, want.replace([' ', '\n'], ""));
        let key = snapshot_key(9);
        assert_eq!(&key[..], b"P\0\0\0\0\0\0\0\x09");
        assert_eq!(decode(&key, &value).unwrap(), row);
        for cut in 0..value.len() {
            assert!(decode(&key, &value[..cut]).is_err());
        }
        assert_eq!(decode_key(&key).unwrap(), Some(9));
        assert_eq!(decode_key(EPOCH_KEY).unwrap(), None);
        assert_eq!(decode_key(ROLLBACK_KEY).unwrap(), None);
        assert_eq!(decode_key(COPYING_KEY).unwrap(), None);
        assert!(decode_key(b"P12").is_err());
        assert_eq!(decode_epoch(&encode_epoch(6)).unwrap(), 6);
    }
}
