//! Large files past the cache, through io_uring: one thread keeps as many requests in flight as are wanted, and they go
//! to the kernel and come back together. A thread that sleeps in each request costs a fifth more (`bench/generators.py`).

use std::cell::{Cell, RefCell};
use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use bytes::BytesMut;
use compio_buf::{BufResult, IntoInner, IoBuf};
use compio_driver::ProactorBuilder;
use compio_fs::{File, OpenOptions};
use compio_io::{AsyncReadAt, AsyncWriteAt};
use compio_runtime::{Runtime, RuntimeBuilder};
use rustix::fs::OFlags;

use super::buffer::buffers;
use super::{LocalShare, LocalTarget, failure, first_wrong, put_stamps};
use crate::bench::client::error::{ClientError, Outcome};
use crate::bench::client::share::{Entry, Identity, Share, Target, ended_early};
use crate::bench::result::Workload;

/// Requests of which the kernel is told at once. Disks answer many together; if it heard of all that follow only when
/// the last is made, the disk would wait.
const TOGETHER: u32 = 4;
/// ext2 to ext4 and FUSE, as statfs(2) names them.
const WAIT_FOR_EXTENDING: [u64; 2] = [0xef53, 0x6573_5546];

pub(super) struct RingTarget<'a>(pub &'a LocalTarget);

/// Containers and old kernels may not have it.
pub(super) fn is_possible() -> bool {
    ring().is_ok()
}

/// The thread asks for what has come when it is ready for more, instead of being interrupted for each: a seventh less
/// processor time at 4 KiB, and writes a fifth faster. Linux before 5.19 interrupts.
fn ring() -> io::Result<Runtime> {
    let mut patient = ProactorBuilder::new();
    patient.coop_taskrun(true).taskrun_flag(true);
    RuntimeBuilder::new().with_proactor(patient).build().or_else(|_| Runtime::new())
}

impl Target for RingTarget<'_> {
    type Share = RingShare;
    const ACCESS: &'static str = LocalTarget::ACCESS;

    async fn connect(&self, workload: Option<&Workload>) -> Outcome<RingShare> {
        let slots = workload.map_or(1, |w| w.depth.max(1) as usize);
        Ok(RingShare {
            plain: self.0.connect(workload).await?,
            buffers: RefCell::default(),
            waiting: Cell::new(0),
            slots,
        })
    }

    fn describe(&self) -> String {
        self.0.describe()
    }

    fn block_on<R>(work: impl Future<Output = Outcome<R>>) -> Outcome<R> {
        let failed = |e: io::Error| ClientError::Local { what: "io_uring".into(), reason: e.to_string() };
        ring().map_err(failed)?.block_on(work)
    }

    async fn sleep(time: Duration) {
        compio_runtime::time::sleep(time).await;
    }
}

pub(super) struct RingShare {
    plain: LocalShare,
    /// Those that are in no request.
    buffers: RefCell<Vec<BytesMut>>,
    /// Requests at a time.
    slots: usize,
    /// Requests that the kernel has not been told of.
    waiting: Cell<u32>,
}

pub(super) struct RingFile {
    file: File,
    name: String,
    /// The same, for system calls, where the filesystem waits for each write that makes a file longer.
    extended: Option<fs::File>,
    len: Cell<u64>,
}

impl RingFile {
    fn new(file: File, name: &str) -> io::Result<Self> {
        let waits = WAIT_FOR_EXTENDING.contains(&(rustix::fs::fstatfs(file.as_fd())?.f_type as u64));
        let extended = waits.then(|| file.as_fd().try_clone_to_owned()).transpose()?.map(fs::File::from);
        Ok(Self { file, name: name.to_owned(), extended, len: Cell::new(0) })
    }

    /// For a write up to `end` that is as well off in a system call: io_uring would leave it to a thread of the kernel, at
    /// half the rate.
    fn to_extend(&self, end: u64) -> io::Result<Option<&fs::File>> {
        let Some(file) = &self.extended else { return Ok(None) };
        if end > self.len.get() {
            self.len.set(file.metadata()?.len());
        }
        Ok((end > self.len.get()).then_some(file))
    }
}

impl RingShare {
    fn take(&self, len: usize, identity: Identity<'_>) -> BytesMut {
        let mut free = self.buffers.borrow_mut();
        if free.last().is_none_or(|buffer| buffer.len() != len) {
            *free = buffers(self.slots, len, identity);
        }
        free.pop().unwrap_or_default()
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

    async fn open_as(&self, path: &str, options: &mut OpenOptions) -> Outcome<RingFile> {
        let full = self.plain.path(path);
        let file = match options.custom_flags((OFlags::DIRECT | OFlags::NOFOLLOW).bits() as i32).open(&full).await {
            // A filesystem without O_DIRECT: then it is measured through its cache.
            Err(e) if e.kind() == io::ErrorKind::InvalidInput => {
                options.custom_flags(OFlags::NOFOLLOW.bits() as i32).open(&full).await
            }
            outcome => outcome,
        };
        file.and_then(|file| RingFile::new(file, path)).map_err(|e| failure(path, &e))
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
        let mut buffer = self.take(len as usize, identity);
        let mut done = 0;
        while done < len as usize {
            let request = file.file.read_at(buffer.slice(done..), at + done as u64);
            let BufResult(outcome, slice) = self.hand_over(request).await;
            buffer = slice.into_inner();
            match outcome {
                Ok(0) => return Err(ended_early(&file.name, at + done as u64)),
                Ok(n) => done += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(failure(&file.name, &e)),
            }
        }
        let wrong = first_wrong(&buffer, at, identity);
        self.buffers.borrow_mut().push(buffer);
        match wrong {
            None => Ok(()),
            Some(offset) => Err(ClientError::WrongData { file: file.name.clone(), offset }),
        }
    }

    async fn write(&self, file: &RingFile, at: u64, len: u64, identity: Identity<'_>) -> Outcome<()> {
        let mut buffer = self.take(len as usize, identity);
        put_stamps(&mut buffer, at, identity);
        let failed = |e: io::Error| failure(&file.name, &e);
        if let Some(extended) = file.to_extend(at + len).map_err(failed)? {
            extended.write_all_at(&buffer, at).map_err(failed)?;
            self.buffers.borrow_mut().push(buffer);
            return Ok(());
        }
        let mut done = 0;
        while done < len as usize {
            let mut target = &file.file;
            let request = target.write_at(buffer.slice(done..), at + done as u64);
            let BufResult(outcome, slice) = self.hand_over(request).await;
            buffer = slice.into_inner();
            match outcome {
                Ok(0) => return Err(ended_early(&file.name, at + done as u64)),
                Ok(n) => done += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(failure(&file.name, &e)),
            }
        }
        self.buffers.borrow_mut().push(buffer);
        Ok(())
    }

    async fn flush(&self, file: &RingFile, _: Identity<'_>) -> Outcome<()> {
        file.file.sync_all().await.map_err(|e| failure(&file.name, &e))
    }

    async fn close(&self, file: RingFile) -> Outcome<()> {
        file.file.close().await.map_err(|e| failure(&file.name, &e))
    }
}
