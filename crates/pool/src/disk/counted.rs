//! A disk that counts its calls, and is watched (`watch.rs`).

use std::any::Any;
use std::io::{self, IoSlice, IoSliceMut};
use std::sync::Arc;
use std::time::Instant;

use larder_base::metrics::{Counter, Latency};

use crate::disk::watch::{Watch, hangs};
use crate::disk::{DiskFile, DiskIo, DiskSpace};

/// Since the pool was opened.
#[derive(Debug, Default)]
pub struct DiskCounts {
    pub reads: Counter,
    pub read_bytes: Counter,
    /// Answered by the kernel's cache, without the disk.
    pub cached_bytes: Counter,
    pub writes: Counter,
    pub written_bytes: Counter,
    pub syncs: Counter,
    /// Counts of reads that the kernel's cache may answer, of writes that it may take, and of
    /// flushes.
    pub read_time: Latency,
    pub write_time: Latency,
    pub sync_time: Latency,
}

#[derive(Debug)]
pub struct CountedDisk {
    pub inner: Arc<dyn DiskIo>,
    pub counts: Arc<DiskCounts>,
    pub watch: Arc<Watch>,
}

struct CountedFile {
    inner: Arc<dyn DiskFile>,
    counts: Arc<DiskCounts>,
    watch: Arc<Watch>,
}

impl DiskCounts {
    fn synced<T>(&self, sync: impl FnOnce() -> T) -> T {
        let begun = Instant::now();
        let result = sync();
        self.syncs.add(1);
        self.sync_time.add(begun.elapsed());
        result
    }
}

impl CountedDisk {
    fn file(&self, inner: Arc<dyn DiskFile>) -> Arc<dyn DiskFile> {
        Arc::new(CountedFile { inner, counts: Arc::clone(&self.counts), watch: Arc::clone(&self.watch) })
    }
}

impl DiskIo for CountedDisk {
    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let _call = self.watch.enter()?;
        self.inner.create(name).map(|file| self.file(file))
    }

    fn open(&self, name: &str, writable: bool) -> io::Result<Arc<dyn DiskFile>> {
        let _call = self.watch.enter()?;
        self.inner.open(name, writable).map(|file| self.file(file))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let _call = self.watch.enter()?;
        self.inner.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let _call = self.watch.enter()?;
        self.inner.remove(name)
    }

    fn list(&self, directory: &str) -> io::Result<Vec<String>> {
        let _call = self.watch.enter()?;
        self.inner.list(directory)
    }

    fn make_directory(&self, name: &str) -> io::Result<()> {
        let _call = self.watch.enter()?;
        self.inner.make_directory(name)
    }

    fn remove_directory(&self, name: &str) -> io::Result<()> {
        let _call = self.watch.enter()?;
        self.inner.remove_directory(name)
    }

    fn sync_directory(&self, name: &str) -> io::Result<()> {
        let _call = self.watch.enter()?;
        self.counts.synced(|| self.inner.sync_directory(name))
    }

    fn sync_all(&self) -> io::Result<()> {
        let _call = self.watch.enter_long()?;
        self.counts.synced(|| self.inner.sync_all())
    }

    fn space(&self) -> io::Result<DiskSpace> {
        let _call = self.watch.enter()?;
        self.inner.space()
    }

    fn lock(&self, owner: &str) -> io::Result<Box<dyn Any + Send + Sync>> {
        let _call = self.watch.enter()?;
        self.inner.lock(owner)
    }

    fn holder(&self) -> io::Result<Option<String>> {
        let _call = self.watch.enter()?;
        self.inner.holder()
    }

    fn identity(&self) -> io::Result<(u64, u64)> {
        let _call = self.watch.enter()?;
        self.inner.identity()
    }

    fn seeks(&self) -> bool {
        self.inner.seeks()
    }

    fn watch(&self) -> Option<Arc<Watch>> {
        Some(Arc::clone(&self.watch))
    }

    fn settle(&self) {
        self.inner.settle();
    }
}

impl CountedFile {
    fn read(&self, read: impl FnOnce() -> io::Result<usize>) -> io::Result<usize> {
        let _call = self.watch.enter()?;
        let begun = Instant::now();
        let result = read();
        self.counts.read_time.add(begun.elapsed());
        self.counts.reads.add(1);
        self.counts.read_bytes.add(*result.as_ref().unwrap_or(&0) as u64);
        result
    }

    fn write<T>(&self, bytes: u64, write: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let _call = self.watch.enter()?;
        let begun = Instant::now();
        let result = write();
        self.counts.write_time.add(begun.elapsed());
        self.counts.writes.add(1);
        self.counts.written_bytes.add(if result.is_ok() { bytes } else { 0 });
        result
    }
}

impl DiskFile for CountedFile {
    fn read_at(&self, buffers: &mut [IoSliceMut<'_>], offset: u64) -> io::Result<usize> {
        self.read(|| self.inner.read_at(buffers, offset))
    }

    fn read_cached_at(&self, buffers: &mut [IoSliceMut<'_>], offset: u64) -> io::Result<usize> {
        if self.watch.is_closed() {
            return Err(hangs());
        }
        // It never waits for the disk.
        let result = self.inner.read_cached_at(buffers, offset);
        self.counts.cached_bytes.add(*result.as_ref().unwrap_or(&0) as u64);
        result
    }

    fn write_at(&self, buffers: &mut [IoSlice<'_>], offset: u64) -> io::Result<()> {
        let bytes = buffers.iter().map(|buffer| buffer.len() as u64).sum();
        self.write(bytes, || self.inner.write_at(buffers, offset))
    }

    fn read_direct_at(&self, buffers: &mut [IoSliceMut<'_>], offset: u64) -> io::Result<usize> {
        self.read(|| self.inner.read_direct_at(buffers, offset))
    }

    fn write_direct_at(&self, bytes: &[u8], offset: u64) -> io::Result<bool> {
        self.write(bytes.len() as u64, || self.inner.write_direct_at(bytes, offset))
    }

    fn begin_direct(&self, bytes: u64) -> io::Result<bool> {
        let _call = self.watch.enter()?;
        self.inner.begin_direct(bytes)
    }

    fn flushed_together(&self) -> Option<u64> {
        self.inner.flushed_together()
    }

    fn sync(&self) -> io::Result<()> {
        let _call = self.watch.enter()?;
        self.counts.synced(|| self.inner.sync())
    }

    fn start_writeback(&self, offset: u64, length: u64) {
        if let Ok(_call) = self.watch.enter() {
            self.inner.start_writeback(offset, length);
        }
    }

    fn length(&self) -> io::Result<u64> {
        let _call = self.watch.enter()?;
        self.inner.length()
    }
}
