//! The newest life of a disk, once more, for when both of its labels are damaged.
//!
//! - `life.outlives_labels`: `larder.life` is written before each label with another newest mark. So a disk whose labels are
//!   gone still tells whether it took part in a life that the pool does not know (`label.lineage_tells_divergence`).

use std::io::IoSlice;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::disk::{self, DiskIo, is_no_room};
use crate::member::side_file::{HEADER_BYTES, Sidecar};

pub const FILE: Sidecar = Sidecar { name: "larder.life", magic: *b"LARDLIFE", bytes_max: 1024 };

/// Always of one length, so that a full disk can take another in its place.
#[derive(Serialize, Deserialize)]
struct Newest {
    pool: Uuid,
    disk: Uuid,
    /// 16 hexadecimal digits.
    mark: String,
}

/// Called before a label is written with this newest mark.
pub fn write(disk: &dyn DiskIo, pool: Uuid, id: Uuid, mark: u64) -> std::io::Result<()> {
    let newest = Newest { pool, disk: id, mark: format!("{mark:016x}") };
    // A struct of strings always serialises.
    let bytes = FILE.encode(&serde_json::to_vec(&newest).unwrap_or_default());
    if disk::read_file(disk, FILE.name, FILE.bytes_max + HEADER_BYTES).is_ok_and(|there| there == bytes) {
        return Ok(());
    }
    match disk::write_file_atomically(disk, FILE.name, &bytes) {
        Err(full) if is_no_room(&full) => {
            let file = disk.open(FILE.name, true).map_err(|_| full)?;
            file.write_at(&mut [IoSlice::new(&bytes)], 0)?;
            file.sync()
        }
        written => written,
    }
}

/// The newest mark that a disk of this pool knows. `None`: there is no such file, or it is damaged.
pub fn read(disk: &dyn DiskIo, pool: Uuid) -> Option<u64> {
    let bytes = disk::read_file(disk, FILE.name, FILE.bytes_max + HEADER_BYTES).ok()?;
    let newest: Newest = serde_json::from_slice(FILE.decode(&bytes)?).ok()?;
    (newest.pool == pool).then(|| u64::from_str_radix(&newest.mark, 16).ok())?
}

pub fn remove(disk: &dyn DiskIo) {
    // A file that cannot be removed was most likely never written.
    let _ = disk.remove(FILE.name);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::disk::DiskOpener;
    use crate::disk::folder::FileDisks;

    #[test]
    fn the_newest_mark_is_kept_and_damage_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let disk = FileDisks.open_disk(folder.path()).unwrap();
        let (pool, id) = (Uuid::from_u128(9), Uuid::from_u128(2));
        assert_eq!(read(&*disk, pool), None);
        for mark in [7, 7, u64::MAX] {
            write(&*disk, pool, id, mark).unwrap();
            assert_eq!(read(&*disk, pool), Some(mark));
        }
        let path = folder.path().join(FILE.name);
        let bytes = std::fs::read(&path).unwrap();
        let text = String::from_utf8(bytes[HEADER_BYTES as usize..].to_vec()).unwrap();
        assert_eq!(text, format!(r#"{{"pool":"{pool}","disk":"{id}","mark":"ffffffffffffffff"}}"#), "golden");
        assert_eq!(read(&*disk, Uuid::from_u128(1)), None, "of another pool");
        std::fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
        assert_eq!(read(&*disk, pool), None);
        remove(&*disk);
        assert!(!path.exists());
    }
}
