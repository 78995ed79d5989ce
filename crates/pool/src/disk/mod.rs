//! Disks: the trait that a pool asks, the folder of a real filesystem behind it, and the layers
//! that watch, time and count its calls.

pub(crate) mod activity;
pub(crate) mod buffer;
mod call;
pub(crate) mod counted;
pub(crate) mod folder;
mod io;
pub(crate) mod timed_disk;
pub mod watch;
pub mod work;

pub use folder::FileDisks;
pub use io::{DIRECT_ALIGN, DiskFile, DiskIo, DiskOpener, DiskSpace, LOCK_NAME, PROBE_NAME};
pub(crate) use io::{is_no_room, read_file, write_file_atomically};
