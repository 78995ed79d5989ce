//! The origin of an imported file, kept with it as the extended attribute `trusted.larder.import` (FORMAT.md, "Import
//! markers"): the state of the source when it was copied.

use larder_base::Timestamp;
use larder_fs::{Attr, FileKind};

use crate::source::Stat;

/// The name of the attribute. Only root sees attributes of this space.
pub(crate) const NAME: &[u8] = b"trusted.larder.import";
const VERSION: u8 = 1;
const BYTES: usize = 41;

/// The state of a source when it was copied. A directory's has no times: only that it was imported counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Marker {
    pub(crate) ino: u64,
    pub(crate) size: u64,
    pub(crate) mtime: Timestamp,
    pub(crate) ctime: Timestamp,
}

impl Marker {
    pub(crate) fn of(stat: &Stat) -> Marker {
        match stat.kind {
            FileKind::Directory => Marker { ino: 0, size: 0, mtime: Timestamp::default(), ctime: Timestamp::default() },
            _ => Marker { ino: stat.ino, size: stat.size, mtime: stat.mtime, ctime: stat.ctime },
        }
    }

    /// Whether the file in the volume is still as it was imported, as far as its size and time tell.
    pub(crate) fn is_unchanged(&self, attr: &Attr) -> bool {
        attr.kind == FileKind::Directory || attr.mtime == self.mtime && attr.size == self.size
    }

    pub(crate) fn encode(&self) -> [u8; BYTES] {
        let mut out = [0; BYTES];
        out[0] = VERSION;
        out[1..9].copy_from_slice(&self.ino.to_be_bytes());
        out[9..17].copy_from_slice(&self.size.to_be_bytes());
        out[17..25].copy_from_slice(&self.mtime.secs.to_be_bytes());
        out[25..29].copy_from_slice(&self.mtime.nanos.to_be_bytes());
        out[29..37].copy_from_slice(&self.ctime.secs.to_be_bytes());
        out[37..41].copy_from_slice(&self.ctime.nanos.to_be_bytes());
        out
    }

    /// `None` for anything that [`Marker::encode`] does not write.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Marker> {
        let bytes: &[u8; BYTES] = bytes.try_into().ok()?;
        let u64_at = |at: usize| Some(u64::from_be_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        let time_at = |at: usize| {
            let nanos = u32::from_be_bytes(bytes.get(at + 8..at + 12)?.try_into().ok()?);
            (nanos < 1_000_000_000).then_some(Timestamp { secs: u64_at(at)? as i64, nanos })
        };
        (bytes[0] == VERSION).then_some(())?;
        Some(Marker { ino: u64_at(1)?, size: u64_at(9)?, mtime: time_at(17)?, ctime: time_at(29)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_bytes() {
        let marker = Marker {
            ino: 7,
            size: 0x1234,
            mtime: Timestamp { secs: -1, nanos: 5 },
            ctime: Timestamp { secs: 9, nanos: 6 },
        };
        let mut bytes = vec![1];
        bytes.extend([0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0x12, 0x34]);
        bytes.extend([0xff; 8]);
        bytes.extend([0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 6]);
        assert_eq!(marker.encode().to_vec(), bytes);
        assert_eq!(Marker::decode(&bytes), Some(marker));
    }

    #[test]
    fn other_bytes_are_no_marker() {
        let good = Marker { ino: 1, size: 1, mtime: Timestamp::default(), ctime: Timestamp::default() }.encode();
        let mut other_version = good;
        other_version[0] = 2;
        let mut bad_time = good;
        bad_time[25] = 0xff;
        for bytes in [&b""[..], &good[1..], &other_version, &bad_time] {
            assert_eq!(Marker::decode(bytes), None);
        }
    }
}
