//! Calls to a disk that end when the disk hangs, whether or not they have returned.

use std::io;
use std::sync::Arc;

use crate::disk::DiskIo;
use crate::disk::watch::{Watch, hangs};
use crate::disk::work::Work;

impl Work {
    /// Calls a disk and waits for it, but no longer than it answers (`hang.call_too_long`).
    pub fn on_disk<T: Send + 'static>(
        &self,
        disk: &Arc<dyn DiskIo>,
        work: impl FnOnce(&dyn DiskIo) -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let watches: Vec<Arc<Watch>> = disk.watch().into_iter().collect();
        let disk = disk.clone();
        self.watched(&watches, move || work(&*disk)).unwrap_or_else(|| Err(hangs()))
    }
}
