//! Small files that lie on every disk beside its label: the pool's history, the progress of a
//! scrub.
//!
//! A header (magic, version, length, checksum) and a text that a person can read, replaced
//! atomically.
//!
//! - `sidefile.nothing_depends_on_it`: a copy that cannot be read or written is passed over. Labels
//!   and objects find out whether the disk is well.
//! - `sidefile.copies_may_differ`: the copies need not agree, and the reader chooses among them.

use std::sync::Arc;

use larder_base::checksum::checksum;

use crate::disk::work::Work;
use crate::disk::{self, DiskIo};
use crate::object::shard::Reader;

const FORMAT_VERSION: u32 = 1;
pub const HEADER_BYTES: u64 = 24;

/// One kind of such files.
pub struct Sidecar {
    pub name: &'static str,
    pub magic: [u8; 8],
    /// The longest text.
    pub bytes_max: u64,
}

impl Sidecar {
    pub fn encode(&self, text: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEADER_BYTES as usize + text.len());
        out.extend_from_slice(&self.magic);
        out.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
        out.extend_from_slice(&(text.len() as u32).to_le_bytes());
        out.extend_from_slice(&checksum(u64::from(FORMAT_VERSION), text).to_le_bytes());
        out.extend_from_slice(text);
        out
    }

    /// The text, if the file is whole and of a version that is known.
    pub fn decode<'a>(&self, bytes: &'a [u8]) -> Option<&'a [u8]> {
        let mut reader = Reader(bytes);
        let ours = reader.take(8)? == self.magic && reader.u32()? == FORMAT_VERSION;
        let length = reader.u32()? as usize;
        let sum = reader.u64()?;
        let text = reader.take(length)?;
        (ours && checksum(u64::from(FORMAT_VERSION), text) == sum).then_some(text)
    }

    /// The texts of all intact copies (`sidefile.nothing_depends_on_it`).
    pub fn read(&self, disks: &[Arc<dyn DiskIo>]) -> Vec<Vec<u8>> {
        let read = |disk: &Arc<dyn DiskIo>| {
            let bytes = disk::read_file(&**disk, self.name, self.bytes_max + HEADER_BYTES).ok()?;
            self.decode(&bytes).map(<[u8]>::to_vec)
        };
        disks.iter().filter_map(read).collect()
    }

    /// Replaces all copies, side by side; returns on how many disks that worked
    /// (`sidefile.nothing_depends_on_it`).
    pub fn write(&self, work: &Work, disks: &[Arc<dyn DiskIo>], text: &[u8]) -> usize {
        let bytes: Arc<[u8]> = self.encode(text).into();
        let write = |disk: &Arc<dyn DiskIo>| {
            let (name, bytes) = (self.name, bytes.clone());
            let written = work.on_disk(disk, move |disk| disk::write_file_atomically(disk, name, &bytes));
            if let Err(error) = &written {
                tracing::debug!(file = self.name, %error, "not written");
            }
            written
        };
        work.side_by_side(disks.iter().collect(), write).iter().filter(|written| written.is_ok()).count()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::disk::DiskOpener;
    use crate::disk::folder::FileDisks;

    const EXAMPLE: Sidecar = Sidecar { name: "larder.example", magic: *b"LARDEXMP", bytes_max: 100 };

    #[test]
    fn a_file_round_trips_and_damage_is_noticed() {
        let bytes = EXAMPLE.encode(b"hello");
        assert_eq!(&bytes[..16], b"LARDEXMP\x01\0\0\0\x05\0\0\0", "golden");
        assert_eq!(EXAMPLE.decode(&bytes), Some(&b"hello"[..]));
        for at in 0..bytes.len() {
            let mut bad = bytes.clone();
            bad[at] ^= 1;
            assert_eq!(EXAMPLE.decode(&bad), None, "byte {at}");
            assert_eq!(EXAMPLE.decode(&bytes[..at]), None);
        }
    }

    #[test]
    fn copies_that_cannot_be_read_or_written_are_passed_over() {
        let dir = tempfile::tempdir().unwrap();
        let disks: Vec<Arc<dyn DiskIo>> = ["a", "b"]
            .map(|name| {
                let path = dir.path().join(name);
                std::fs::create_dir(&path).unwrap();
                FileDisks.open_disk(&path).unwrap()
            })
            .into();
        assert_eq!(EXAMPLE.read(&disks), Vec::<Vec<u8>>::new());
        std::fs::create_dir(dir.path().join("a/larder.example.new")).unwrap();
        assert_eq!(EXAMPLE.write(&Work::Threads, &disks, b"one"), 1);
        assert_eq!(EXAMPLE.read(&disks), [b"one"]);
    }
}
