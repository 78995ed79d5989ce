//! Time limits for disks that no pool watches yet: while a pool opens, and while a disk joins or
//! returns.
//!
//! - `hang.each_call_timed`: until a disk is in use each call to it has a thread of its own, and is
//!   given up when it takes longer than any call may (`hang.call_too_long`). Then the way to the
//!   disk is closed (`hang.way_closed`), and the pool opens without it.
//! - `hang.late_call_blocks_opening`: after a call was given up, the disk is not opened again
//!   before that call has returned (`hang.calls_return_first`).
//! - `hang.direct_once_in_use`: once the disk is in use ([`DiskIo::settle`]) calls are made on the
//!   caller's thread, and the pool watches them. Only calls that are made with locks held keep a
//!   thread of their own.

use std::any::Any;
use std::io::{self, IoSlice, IoSliceMut};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use parking_lot::Mutex;

use crate::disk::watch::{CALL_SECONDS_MAX, SYNC_ALL_SECONDS_MAX, Watch, hangs};
use crate::disk::work::Work;
use crate::disk::{DiskFile, DiskIo, DiskOpener, DiskSpace};

/// The step in which waits are counted, so that a machine that was suspended for a while blames no
/// disk for it.
const TICK: Duration = Duration::from_millis(if cfg!(test) { 100 } else { 1000 });

/// The limit for calls that a filesystem answers from memory: their callers can do without an
/// answer.
const ANSWER_SECONDS_MAX: u64 = 2;

/// Where a disk did not answer.
type Closed = Mutex<Vec<(PathBuf, Arc<Watch>)>>;

/// Opens disks whose calls have a time limit.
#[derive(Debug)]
pub struct TimedDisks {
    inner: Arc<dyn DiskOpener>,
    closed: Arc<Closed>,
}

/// As `inner`, with time limits. In a simulator calls end by themselves.
pub fn over(inner: Arc<dyn DiskOpener>) -> Arc<dyn DiskOpener> {
    match inner.work() {
        Work::Threads => Arc::new(TimedDisks { inner, closed: Arc::default() }),
        Work::InTurns(_) => inner,
    }
}

impl DiskOpener for TimedDisks {
    fn open_disk(&self, path: &Path) -> io::Result<Arc<dyn DiskIo>> {
        {
            let mut closed = self.closed.lock();
            closed.retain(|(_, watch)| watch.is_waiting());
            if closed.iter().any(|(other, _)| other == path) {
                return Err(hangs());
            }
        }
        let closed = Arc::downgrade(&self.closed);
        let way = Arc::new(Way {
            path: path.to_owned(),
            watch: Arc::default(),
            is_settled: false.into(),
            is_asked: false.into(),
            closed,
        });
        let (inner, of_call) = (self.inner.clone(), path.to_owned());
        let disk = way.call(move || inner.open_disk(&of_call))?;
        Ok(Arc::new(TimedDisk { inner: disk, way }))
    }

    fn make_directory(&self, path: &Path) -> io::Result<()> {
        self.inner.make_directory(path)
    }
}

/// The state that a disk and its files share.
#[derive(Debug)]
struct Way {
    path: PathBuf,
    watch: Arc<Watch>,
    is_settled: AtomicBool,
    /// It has been asked for its room, and has not answered yet.
    is_asked: AtomicBool,
    closed: Weak<Closed>,
}

impl Way {
    fn is_settled(&self) -> bool {
        self.is_settled.load(Ordering::Acquire)
    }

    fn call<T: Send + 'static>(&self, work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
        self.call_for(CALL_SECONDS_MAX, CALL_SECONDS_MAX, work)
    }

    /// Waits for `wait_seconds` seconds; the disk hangs after `seconds` (`hang.each_call_timed`).
    fn call_for<T: Send + 'static>(
        &self,
        wait_seconds: u64,
        seconds: u64,
        work: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let (done, wait) = sync_channel(1);
        let watch = self.watch.clone();
        let call = move || {
            let result = match watch.enter_for(seconds) {
                Ok(_call) => work(),
                Err(error) => Err(error),
            };
            drop(done.send(result));
        };
        std::thread::Builder::new().name("larder-call".into()).spawn(call)?;
        for _ in 0..wait_seconds {
            match wait.recv_timeout(TICK) {
                Ok(result) => return result,
                Err(RecvTimeoutError::Disconnected) => return Err(io::Error::other("a thread died")),
                Err(RecvTimeoutError::Timeout) if self.watch.is_closed() => break,
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
        // Whether the others can do without a disk in use is not known here.
        if !self.is_settled() {
            self.watch.close();
            if let Some(closed) = self.closed.upgrade() {
                closed.lock().push((self.path.clone(), self.watch.clone()));
            }
        }
        Err(hangs())
    }
}

#[derive(Clone, Debug)]
struct TimedDisk {
    inner: Arc<dyn DiskIo>,
    way: Arc<Way>,
}

/// Until it has answered, or could not be asked.
struct Asked(Arc<Way>);

impl Drop for Asked {
    fn drop(&mut self) {
        self.0.is_asked.store(false, Ordering::Release);
    }
}

struct TimedFile {
    inner: Arc<dyn DiskFile>,
    way: Arc<Way>,
    /// The answer to `flushed_together`.
    filesystem: OnceLock<Option<u64>>,
}

impl TimedDisk {
    fn file(&self, inner: Arc<dyn DiskFile>) -> Arc<dyn DiskFile> {
        Arc::new(TimedFile { inner, way: self.way.clone(), filesystem: OnceLock::new() })
    }

    /// A call that names one file or folder.
    fn named<T: Send + 'static>(
        &self,
        name: &str,
        work: impl FnOnce(&dyn DiskIo, &str) -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        if self.way.is_settled() {
            return work(&*self.inner, name);
        }
        let (inner, name) = (self.inner.clone(), name.to_owned());
        self.way.call(move || work(&*inner, &name))
    }
}

impl DiskIo for TimedDisk {
    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        self.named(name, |disk, name| disk.create(name)).map(|file| self.file(file))
    }

    fn open(&self, name: &str, writable: bool) -> io::Result<Arc<dyn DiskFile>> {
        self.named(name, move |disk, name| disk.open(name, writable)).map(|file| self.file(file))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        if self.way.is_settled() {
            return self.inner.rename(from, to);
        }
        let to = to.to_owned();
        self.named(from, move |disk, from| disk.rename(from, &to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.named(name, |disk, name| disk.remove(name))
    }

    fn list(&self, directory: &str) -> io::Result<Vec<String>> {
        self.named(directory, |disk, name| disk.list(name))
    }

    fn make_directory(&self, name: &str) -> io::Result<()> {
        self.named(name, |disk, name| disk.make_directory(name))
    }

    fn remove_directory(&self, name: &str) -> io::Result<()> {
        self.named(name, |disk, name| disk.remove_directory(name))
    }

    fn sync_directory(&self, name: &str) -> io::Result<()> {
        self.named(name, |disk, name| disk.sync_directory(name))
    }

    fn sync_all(&self) -> io::Result<()> {
        if self.way.is_settled() {
            return self.inner.sync_all();
        }
        let inner = self.inner.clone();
        self.way.call_for(SYNC_ALL_SECONDS_MAX, SYNC_ALL_SECONDS_MAX, move || inner.sync_all())
    }

    /// Called while places are chosen, with locks held (`hang.direct_once_in_use`).
    fn space(&self) -> io::Result<DiskSpace> {
        if self.way.is_asked.swap(true, Ordering::AcqRel) {
            return Err(hangs());
        }
        let (inner, asked) = (self.inner.clone(), Asked(self.way.clone()));
        let wait_seconds = if self.way.is_settled() { ANSWER_SECONDS_MAX } else { CALL_SECONDS_MAX };
        self.way.call_for(wait_seconds, CALL_SECONDS_MAX, move || {
            let _asked = asked;
            inner.space()
        })
    }

    fn lock(&self, owner: &str) -> io::Result<Box<dyn Any + Send + Sync>> {
        self.named(owner, |disk, owner| disk.lock(owner))
    }

    fn holder(&self) -> io::Result<Option<String>> {
        self.named("", |disk, _| disk.holder())
    }

    fn identity(&self) -> io::Result<(u64, u64)> {
        self.named("", |disk, _| disk.identity())
    }

    fn seeks(&self) -> bool {
        self.inner.seeks()
    }

    fn watch(&self) -> Option<Arc<Watch>> {
        Some(self.way.watch.clone())
    }

    fn settle(&self) {
        // It remembers that, and does not look again.
        let _ = self.inner.seeks();
        self.way.is_settled.store(true, Ordering::Release);
    }
}

impl TimedFile {
    fn call<T: Send + 'static>(
        &self,
        work: impl FnOnce(&dyn DiskFile) -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let inner = self.inner.clone();
        self.way.call(move || work(&*inner))
    }
}

/// Buffers belong to the call, so bytes are copied after a read and before a write.
impl DiskFile for TimedFile {
    fn read_at(&self, buffers: &mut [IoSliceMut<'_>], offset: u64) -> io::Result<usize> {
        if self.way.is_settled() {
            return self.inner.read_at(buffers, offset);
        }
        let mut bytes = vec![0; buffers.iter().map(|buffer| buffer.len()).sum()];
        let bytes = self.call(move |file| {
            let count = file.read_at(&mut [IoSliceMut::new(&mut bytes)], offset)?;
            bytes.truncate(count);
            Ok(bytes)
        })?;
        let mut rest = &bytes[..];
        for buffer in buffers {
            let (now, later) = rest.split_at(rest.len().min(buffer.len()));
            buffer[..now.len()].copy_from_slice(now);
            rest = later;
        }
        Ok(bytes.len())
    }

    fn read_cached_at(&self, buffers: &mut [IoSliceMut<'_>], offset: u64) -> io::Result<usize> {
        self.inner.read_cached_at(buffers, offset)
    }

    fn write_at(&self, buffers: &mut [IoSlice<'_>], offset: u64) -> io::Result<()> {
        if self.way.is_settled() {
            return self.inner.write_at(buffers, offset);
        }
        let bytes = buffers.iter().flat_map(|buffer| buffer.iter().copied()).collect::<Vec<u8>>();
        self.call(move |file| file.write_at(&mut [IoSlice::new(&bytes)], offset))
    }

    fn read_direct_at(&self, buffers: &mut [IoSliceMut<'_>], offset: u64) -> io::Result<usize> {
        if self.way.is_settled() {
            return self.inner.read_direct_at(buffers, offset);
        }
        self.read_at(buffers, offset)
    }

    fn write_direct_at(&self, bytes: &[u8], offset: u64) -> io::Result<bool> {
        if self.way.is_settled() {
            return self.inner.write_direct_at(bytes, offset);
        }
        self.write_at(&mut [IoSlice::new(bytes)], offset).map(|()| false)
    }

    fn begin_direct(&self, bytes: u64) -> io::Result<bool> {
        if self.way.is_settled() {
            return self.inner.begin_direct(bytes);
        }
        self.call(move |file| file.begin_direct(bytes))
    }

    fn flushed_together(&self) -> Option<u64> {
        let inner = self.inner.clone();
        let ask = || self.way.call_for(ANSWER_SECONDS_MAX, CALL_SECONDS_MAX, move || Ok(inner.flushed_together()));
        *self.filesystem.get_or_init(|| ask().ok().flatten())
    }

    fn sync(&self) -> io::Result<()> {
        if self.way.is_settled() {
            return self.inner.sync();
        }
        self.call(|file| file.sync())
    }

    fn start_writeback(&self, offset: u64, length: u64) {
        if self.way.is_settled() {
            return self.inner.start_writeback(offset, length);
        }
        // A hint.
        drop(self.call(move |file| {
            file.start_writeback(offset, length);
            Ok(())
        }));
    }

    fn length(&self) -> io::Result<u64> {
        if self.way.is_settled() {
            return self.inner.length();
        }
        self.call(|file| file.length())
    }
}
