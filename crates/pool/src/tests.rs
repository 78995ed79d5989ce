//! The pool as a whole.
#![allow(clippy::unwrap_used)]

mod changing;
mod conformance;
mod crash;
mod degraded;
mod direct_writes;
mod diverged;
mod hanging;
mod long_reads;
mod membership;
mod misplaced;
mod overwriting;
mod owed;
mod returning;
mod rolled_back;
mod small_blocks;
mod speed;

/// A disk, or a folder of it, goes away although the pool may be writing to it this moment: a file
/// made meanwhile keeps its folder.
pub(crate) fn remove_folder(folder: impl AsRef<std::path::Path>) {
    loop {
        match std::fs::remove_dir_all(&folder) {
            Err(error) if error.kind() == std::io::ErrorKind::DirectoryNotEmpty => {}
            done => return done.unwrap(),
        }
    }
}
