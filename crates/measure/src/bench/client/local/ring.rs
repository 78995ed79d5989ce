//! Large files past the cache, through io_uring: one thread keeps as many requests in flight as are wanted, and they go
//! to the kernel and come back together. A thread that sleeps in each request costs a fifth more (`bench/generators.py`).

use std::cell::{Cell, RefCell};
use std::io;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use compio_buf::{BufResult, IoBuf};
use compio_fs::{File, OpenOptions};
use compio_io::{AsyncReadAt, AsyncWriteAt};
use compio_runtime::Runtime;
use rustix::fs::OFlags;

use super::{ALIGN, LocalShare, LocalTarget, failure, first_wrong, put_stamps};
use crate::bench::client::error::{ClientError, Outcome};
use crate::bench::client::share::{Entry, Identity, Share, Target, ended_early};
use crate::bench::result::Workload;

/// Requests of which the kernel is told at once. Disks answer many together; if it heard of all that follow only when
/// the last is made, the disk would wait.
const TOGETHER: u32 = 4;

pub(super) struct RingTarget<'a>(pub &'a LocalTarget);

/// Containers and old kernels may not have it.
pub(super) fn is_possible() -> bool {
    Runtime::new().is_ok()
}

impl Target for RingTarget<'_> {
    type Share = RingShare;
    const ACCESS: &'static str = LocalTarget::ACCESS;

    async fn connect(&self, workload: Option<&Workload>) -> Outcome<RingShare> {
        Ok(RingShare { plain: self.0.connect(workload).await?, buffers: RefCell::default(), waiting: Cell::new(0) })
    }

    fn describe(&self) -> String {
        self.0.describe()
    }

    fn block_on<R>(work: impl Future<Output = Outcome<R>>) -> Outcome<R> {
        let failed = |e: io::Error| ClientError::Local { what: "io_uring".into(), reason: e.to_string() };
        Runtime::new().map_err(failed)?.block_on(work)
    }

    async fn sleep(time: Duration) {
        compio_runtime::time::sleep(time).await;
    }
}

pub(super) struct RingShare {
    plain: LocalShare,
    /// Those that are in no request.
    buffers: RefCell<Vec<Vec<u8>>>,
    /// Requests that the kernel has not been told of.
    waiting: Cell<u32>,
}

pub(super) struct RingFile {
    file: File,
    name: String,
}

/// Where the first aligned byte is.
fn aligned(buffer: &[u8]) -> usize {
    buffer.as_ptr().align_offset(ALIGN).min(ALIGN)
}

impl RingShare {
    /// A buffer with room for `len` aligned bytes; random where it is new.
    fn take(&self, len: usize, identity: Identity<'_>) -> Vec<u8> {
        let found = self.buffers.borrow_mut().pop().filter(|buffer| buffer.len() == len + ALIGN);
        found.unwrap_or_else(|| {
            let mut buffer = vec![0; len + ALIGN];
            let salt = buffer.as_ptr() as usize as u64;
            identity.contents.fill(salt, &mut buffer);
            buffer
        })
    }

    /// Waits for a request, of which the kernel hears soon.
    async fn hand_over<R>(&self, request: impl Future<Output = R>) -> R {
        let mut request = pin!(request);
        if let Poll::Ready(done) = futures::poll!(request.as_mut()) {
            return done;
        }
        self.waiting.set(self.waiting.get() + 1);
        if self.waiting.get() >= TOGETHER {
            self.waiting.set(0);
            Runtime::with_current(|runtime| {
                // Somebody has called meanwhile: that must not be lost.
                if runtime.flush() {
                    runtime.waker().wake();
                }
            });
        }
        request.await
    }

    fn give_back(&self, mut buffer: Vec<u8>, len: usize) {
        // A read that ended early has made it shorter.
        buffer.resize(len + ALIGN, 0);
        self.buffers.borrow_mut().push(buffer);
    }

    async fn open_as(&self, path: &str, options: &mut OpenOptions) -> Outcome<RingFile> {
        let full = self.plain.path(path);
        let file = match options.custom_flags((OFlags::DIRECT | OFlags::NOFOLLOW).bits() as i32).open(&full).await {
            // A filesystem without O_DIRECT: then it is measured through its cache.
            Err(e) if e.kind() == io::ErrorKind::InvalidInput => {
                options.custom_flags(OFlags::NOFOLLOW.bits() as i32).open(&full).await
            }
            outcome => outcome,
        };
        Ok(RingFile { file: file.map_err(|e| failure(path, &e))?, name: path.to_owned() })
    }
}

impl Share for RingShare {
    type File = RingFile;

    async fn make_folder(&self, path: &str) -> Outcome<()> {
        self.plain.make_folder(path).await
    }

    async fn list(&self, path: &str) -> Outcome<Vec<Entry>> {
        self.plain.list(path).await
    }

    async fn is_own_folder(&self, path: &str) -> Outcome<bool> {
        self.plain.is_own_folder(path).await
    }

    async fn free_bytes(&self) -> Outcome<Option<u64>> {
        self.plain.free_bytes().await
    }

    async fn remove(&self, path: &str) -> Outcome<()> {
        self.plain.remove(path).await
    }

    async fn remove_folder(&self, path: &str) -> Outcome<()> {
        self.plain.remove_folder(path).await
    }

    async fn size(&self, path: &str) -> Outcome<u64> {
        self.plain.size(path).await
    }

    async fn create(&self, path: &str) -> Outcome<RingFile> {
        self.open_as(path, OpenOptions::new().read(true).write(true).create(true).truncate(true)).await
    }

    async fn open(&self, path: &str, to_write: bool) -> Outcome<RingFile> {
        self.open_as(path, OpenOptions::new().read(true).write(to_write)).await
    }

    async fn read(&self, file: &RingFile, at: u64, len: u64, identity: Identity<'_>) -> Outcome<()> {
        let len = len as usize;
        let (mut buffer, mut done) = (self.take(len, identity), 0);
        let begin = aligned(&buffer);
        while done < len {
            let request = file.file.read_at(buffer.slice(begin + done..begin + len), at + done as u64);
            let BufResult(outcome, slice) = self.hand_over(request).await;
            buffer = compio_buf::IntoInner::into_inner(slice);
            match outcome {
                Ok(0) => return Err(ended_early(&file.name, at + done as u64)),
                Ok(n) => done += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(failure(&file.name, &e)),
            }
        }
        let wrong = buffer.get(begin..begin + len).and_then(|data| first_wrong(data, at, identity));
        self.give_back(buffer, len);
        match wrong {
            None => Ok(()),
            Some(offset) => Err(ClientError::WrongData { file: file.name.clone(), offset }),
        }
    }

    async fn write(&self, file: &RingFile, at: u64, len: u64, identity: Identity<'_>) -> Outcome<()> {
        let len = len as usize;
        let (mut buffer, mut done) = (self.take(len, identity), 0);
        let begin = aligned(&buffer);
        put_stamps(&mut buffer[begin..begin + len], at, identity);
        while done < len {
            let mut target = &file.file;
            let request = target.write_at(buffer.slice(begin + done..begin + len), at + done as u64);
            let BufResult(outcome, slice) = self.hand_over(request).await;
            buffer = compio_buf::IntoInner::into_inner(slice);
            match outcome {
                Ok(0) => return Err(ended_early(&file.name, at + done as u64)),
                Ok(n) => done += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(failure(&file.name, &e)),
            }
        }
        self.give_back(buffer, len);
        Ok(())
    }

    async fn flush(&self, file: &RingFile, _: Identity<'_>) -> Outcome<()> {
        file.file.sync_all().await.map_err(|e| failure(&file.name, &e))
    }

    async fn close(&self, file: RingFile) -> Outcome<()> {
        file.file.close().await.map_err(|e| failure(&file.name, &e))
    }
}
