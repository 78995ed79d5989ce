//! Files of this machine; also what is used where fio is missing.
//!
//! Blocks of large files past the cache go through io_uring where there is one (`ring.rs`). All else is done by
//! system calls, with one thread for each request in flight. Buffers are aligned and used again: instead of new contents
//! every 4 KiB of them get a stamp, so that no two blocks are alike and what is read is known again.

mod buffer;
mod ring;

use std::cell::RefCell;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use bytes::BytesMut;
use rustix::fs::{Advice, OFlags};

use self::buffer::buffers;
use super::RunLimits;
use super::drive::{Job, drive};
use super::error::{ClientError, Outcome};
use super::layout::Shape;
use super::share::{Entry, Identity, Share, Target, ended_early};
use super::url::ShareUrl;
use crate::bench::control::Control;
use crate::bench::result::{Caches, Repeat, Workload};

/// What O_DIRECT wants on every disk there is.
const ALIGN: usize = 4096;
const STAMP_EVERY: u64 = 4096;
/// A reader looks at one stamp in so many bytes.
const SAMPLE_EVERY: u64 = 64 << 10;

pub(super) struct LocalTarget {
    folder: PathBuf,
    ring: bool,
    owner: Owner,
}

/// Who owns what is made here: a network filesystem may give it to another user than us.
type Owner = Arc<OnceLock<u32>>;

impl LocalTarget {
    pub fn new(url: &ShareUrl) -> Outcome<Self> {
        Ok(Self { folder: PathBuf::from(&url.path), ring: ring::is_possible(), owner: Owner::default() })
    }
}

impl Target for LocalTarget {
    type Share = LocalShare;
    const ACCESS: &'static str = "local";
    const BLOCKS: bool = true;

    async fn connect(&self, workload: Option<&Workload>) -> Outcome<LocalShare> {
        let shown = self.folder.display().to_string();
        let meta = fs::metadata(&self.folder).map_err(|e| failure(&shown, &e))?;
        if !meta.is_dir() {
            return Err(ClientError::not_found(shown, "it is no folder"));
        }
        let caches = workload.map_or(Caches::Warm, |w| w.caches);
        let block = workload.map_or(0, |w| w.block_bytes);
        Ok(LocalShare {
            folder: self.folder.clone(),
            direct: caches == Caches::Bypassed && block.is_multiple_of(ALIGN as u64),
            drop_caches: caches == Caches::Dropped,
            device: meta.dev(),
            owner: self.owner.clone(),
            buffer: RefCell::default(),
        })
    }

    fn describe(&self) -> String {
        let how = if self.ring {
            "io_uring for blocks past the cache, system calls for the rest"
        } else {
            "system calls, a thread for each request"
        };
        format!("the files of {} by {how}", self.folder.display())
    }

    fn drive(&self, job: Job, limits: &RunLimits, control: &Control) -> Outcome<Repeat> {
        let past_cache =
            job.workload.caches == Caches::Bypassed && job.workload.block_bytes.is_multiple_of(ALIGN as u64);
        // Alone, a request is as well off in a system call.
        match self.ring && past_cache && job.layout.shape == Shape::Large && job.slots() > 1 {
            true => drive(&ring::RingTarget(self), job, limits, control),
            false => drive(self, job, limits, control),
        }
    }
}

pub(super) struct LocalShare {
    folder: PathBuf,
    direct: bool,
    drop_caches: bool,
    /// Of the folder that was given.
    device: u64,
    owner: Owner,
    buffer: RefCell<BytesMut>,
}

pub(super) struct LocalFile {
    file: File,
    name: String,
    direct: bool,
}

fn stamp(identity: Identity<'_>, generation: u64, at: u64) -> [u8; 8] {
    identity.contents.stamp(identity.file, generation, at / STAMP_EVERY).to_le_bytes()
}

/// The places of stamps within `len` bytes from `at`.
fn stamps(at: u64, len: u64, step: u64) -> impl Iterator<Item = usize> {
    let first = at.next_multiple_of(STAMP_EVERY) - at;
    (first..len.saturating_sub(7)).step_by(step as usize).map(|n| n as usize)
}

fn put_stamps(buffer: &mut [u8], at: u64, identity: Identity<'_>) {
    for place in stamps(at, buffer.len() as u64, STAMP_EVERY) {
        buffer[place..place + 8].copy_from_slice(&stamp(identity, identity.generation, at + place as u64));
    }
}

fn first_wrong(buffer: &[u8], at: u64, identity: Identity<'_>) -> Option<u64> {
    let step = if identity.contents.is_thorough() { STAMP_EVERY } else { SAMPLE_EVERY };
    let wrong = |place: &usize| {
        let found = &buffer[*place..place + 8];
        !(0..super::contents::GENERATIONS).any(|g| found == stamp(identity, g, at + *place as u64))
    };
    stamps(at, buffer.len() as u64, step).find(wrong).map(|place| at + place as u64)
}

fn failure(what: &str, error: &io::Error) -> ClientError {
    let what = what.to_owned();
    match error.kind() {
        io::ErrorKind::NotFound => ClientError::NotFound { what, reason: "there is no such file or folder".into() },
        io::ErrorKind::PermissionDenied => ClientError::Denied { what, reason: error.to_string() },
        io::ErrorKind::ReadOnlyFilesystem => ClientError::ReadOnly { what },
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => ClientError::NoSpace { what },
        _ => ClientError::Local { what, reason: error.to_string() },
    }
}

/// At least `len` bytes, aligned: those of the last request, where they suffice.
fn at_least<'a>(kept: &'a mut BytesMut, len: usize, identity: Identity<'_>) -> &'a mut [u8] {
    if kept.len() < len {
        *kept = buffers(1, len, identity).swap_remove(0);
    }
    &mut kept[..len]
}

impl LocalShare {
    fn path(&self, path: &str) -> PathBuf {
        self.folder.join(path)
    }

    fn open_file(&self, path: &str, options: &mut fs::OpenOptions) -> Outcome<LocalFile> {
        // What is a link was not made by us.
        let plain = OFlags::NOFOLLOW.bits() as i32;
        let full = self.path(path);
        let (file, direct) = match self.direct {
            true => match options.custom_flags((OFlags::DIRECT | OFlags::NOFOLLOW).bits() as i32).open(&full) {
                Ok(file) => (file, true),
                // A filesystem without O_DIRECT: then it is measured through its cache.
                Err(e) if e.kind() == io::ErrorKind::InvalidInput => {
                    (options.custom_flags(plain).open(&full).map_err(|e| failure(path, &e))?, false)
                }
                Err(e) => return Err(failure(path, &e)),
            },
            false => (options.custom_flags(plain).open(&full).map_err(|e| failure(path, &e))?, false),
        };
        Ok(LocalFile { file, name: path.to_owned(), direct })
    }
}

impl Share for LocalShare {
    type File = LocalFile;

    async fn make_folder(&self, path: &str) -> Outcome<()> {
        match fs::create_dir(self.path(path)) {
            Ok(()) => {
                let meta = fs::symlink_metadata(self.path(path)).map_err(|e| failure(path, &e))?;
                self.owner.get_or_init(|| meta.uid());
                Ok(())
            }
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists && self.is_own_folder(path).await? => Ok(()),
            outcome => outcome.map_err(|e| failure(path, &e)),
        }
    }

    async fn list(&self, path: &str) -> Outcome<Vec<Entry>> {
        let mut entries = Vec::new();
        for entry in fs::read_dir(self.path(path)).map_err(|e| failure(path, &e))? {
            let entry = entry.map_err(|e| failure(path, &e))?;
            let folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
            // Ours are plain ASCII.
            if let Ok(name) = entry.file_name().into_string() {
                entries.push(Entry { name, folder });
            }
        }
        Ok(entries)
    }

    /// Whoever may write here could put a link in a folder's place, and we may be root.
    async fn is_own_folder(&self, path: &str) -> Outcome<bool> {
        let meta = fs::symlink_metadata(self.path(path)).map_err(|e| failure(path, &e))?;
        let ours = meta.uid() == rustix::process::geteuid().as_raw() || self.owner.get() == Some(&meta.uid());
        Ok(meta.is_dir() && ours && meta.dev() == self.device)
    }

    async fn free_bytes(&self) -> Outcome<Option<u64>> {
        let found = rustix::fs::statvfs(&self.folder).map_err(|e| failure("the folder", &e.into()))?;
        Ok(Some(found.f_bavail.saturating_mul(found.f_frsize)))
    }

    async fn remove(&self, path: &str) -> Outcome<()> {
        fs::remove_file(self.path(path)).map_err(|e| failure(path, &e))
    }

    async fn remove_folder(&self, path: &str) -> Outcome<()> {
        fs::remove_dir(self.path(path)).map_err(|e| failure(path, &e))
    }

    async fn size(&self, path: &str) -> Outcome<u64> {
        fs::metadata(self.path(path)).map(|m| m.len()).map_err(|e| failure(path, &e))
    }

    async fn create(&self, path: &str) -> Outcome<LocalFile> {
        self.open_file(path, File::options().read(true).write(true).create(true).truncate(true))
    }

    async fn open(&self, path: &str, to_write: bool) -> Outcome<LocalFile> {
        let file = self.open_file(path, File::options().read(true).write(to_write))?;
        if self.drop_caches && !to_write {
            // A request, not an order: what is dirty stays.
            let _ = rustix::fs::fadvise(&file.file, 0, None, Advice::DontNeed);
        }
        Ok(file)
    }

    async fn read(&self, file: &LocalFile, at: u64, len: u64, identity: Identity<'_>) -> Outcome<()> {
        let mut buffer = self.buffer.borrow_mut();
        let whole = at_least(&mut buffer, (len as usize).next_multiple_of(ALIGN), identity);
        let mut done = 0;
        while done < len as usize {
            // The last block of a file may be shorter than what O_DIRECT takes.
            let end = if file.direct { whole.len() } else { len as usize };
            match file.file.read_at(&mut whole[done..end], at + done as u64) {
                Ok(0) => return Err(ended_early(&file.name, at + done as u64)),
                Ok(n) => done += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(failure(&file.name, &e)),
            }
        }
        match first_wrong(&whole[..len as usize], at, identity) {
            None => Ok(()),
            Some(offset) => Err(ClientError::WrongData { file: file.name.clone(), offset }),
        }
    }

    async fn write(&self, file: &LocalFile, at: u64, len: u64, identity: Identity<'_>) -> Outcome<()> {
        let mut buffer = self.buffer.borrow_mut();
        let whole = at_least(&mut buffer, (len as usize).next_multiple_of(ALIGN), identity);
        let block = &mut whole[..len as usize];
        put_stamps(block, at, identity);
        if file.direct && !block.len().is_multiple_of(ALIGN) {
            // The end of a file: through the cache.
            rustix::fs::fcntl_setfl(&file.file, OFlags::empty()).map_err(|e| failure(&file.name, &e.into()))?;
        }
        file.file.write_all_at(block, at).map_err(|e| failure(&file.name, &e))
    }

    async fn flush(&self, file: &LocalFile, _: Identity<'_>) -> Outcome<()> {
        file.file.sync_all().map_err(|e| failure(&file.name, &e))
    }

    async fn close(&self, _: LocalFile) -> Outcome<()> {
        Ok(())
    }
}
