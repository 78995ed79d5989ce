//! Disks that fail on demand: wrappers around real directories.
#![allow(clippy::unwrap_used)]

use std::any::Any;
use std::collections::HashMap;
use std::io::{self, IoSlice, IoSliceMut};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicI64, AtomicU64, Ordering::SeqCst};

use parking_lot::{Condvar, Mutex};

use crate::CreateOptions;
use crate::Layout;
use crate::OpenOptions;
use crate::Pool;
use crate::disk::folder::FileDisks;
use crate::disk::{DiskFile, DiskIo, DiskOpener, DiskSpace};

/// What is wrong with one disk.
#[derive(Debug)]
pub struct Faults {
    pub read_error: AtomicBool,
    pub write_error: AtomicBool,
    pub read_only: AtomicBool,
    pub quota_bytes: AtomicU64,
    /// The filesystem takes no direct I/O.
    pub no_direct: AtomicBool,
    pub syncs: AtomicU64,
    /// So many syncs fail; then all is well again.
    pub failing_syncs: AtomicI64,
    /// So many listings of objects fail.
    pub failing_lists: AtomicI64,
    /// New files that it still takes, and the number of the error beyond them: of want of inodes, or of a
    /// quota.
    pub files_left: AtomicI64,
    pub files_error: AtomicI32,
    /// Shards are given no names, and the number of the error for that.
    pub renames_error: AtomicI32,
    pub no_renames: AtomicBool,
    /// It has no head to move.
    pub no_seeks: AtomicBool,
    /// What cannot be read, and what cannot be written.
    pub bad_reads: Mutex<Trouble>,
    pub bad_writes: Mutex<Trouble>,
    pub bad_syncs: Mutex<Trouble>,
    /// Writes past the cache take so long; how many of shards there are, were at most, and were
    /// done.
    pub direct_write_ms: AtomicU64,
    pub direct_writes: AtomicU64,
    pub direct_writes_max: AtomicU64,
    pub direct_writes_done: AtomicU64,
    /// Reads past the cache take so long; how many there are, and were at most.
    pub direct_read_ms: AtomicU64,
    pub direct_reads: AtomicU64,
    pub direct_reads_max: AtomicU64,
    /// Calls do not return, but for those that only look: see [`Faults::freeze`].
    frozen: Mutex<Frozen>,
    thawed: Condvar,
    sizes: Mutex<HashMap<String, u64>>,
    /// Disks with one number say that they share a filesystem.
    pub filesystem: AtomicU64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Frozen {
    #[default]
    No,
    /// As a filesystem after `fsfreeze`: reads are answered.
    Writes,
    All,
}

impl Faults {
    /// From now on calls hang until [`Faults::thaw`]; then they are done.
    pub fn freeze(&self, what: Frozen) {
        *self.frozen.lock() = what;
    }

    pub fn thaw(&self) {
        *self.frozen.lock() = Frozen::No;
        self.thawed.notify_all();
    }

    fn wait_while_frozen(&self, is_write: bool) {
        let hangs = |frozen: &mut Frozen| *frozen == Frozen::All || (is_write && *frozen == Frozen::Writes);
        self.thawed.wait_while(&mut self.frozen.lock(), hangs);
    }

    /// Somebody else takes all the room that is left.
    pub fn fill_up(&self) {
        let used = self.sizes.lock().values().map(|size| size.next_multiple_of(4096)).sum();
        self.quota_bytes.store(used, SeqCst);
    }
}

/// So many times some bytes of the files whose names begin so fail; the names themselves are not
/// affected.
#[derive(Debug, Default)]
pub struct Trouble {
    pub with: &'static str,
    pub bytes: Range<u64>,
    pub left: u64,
}

impl Trouble {
    pub fn all(with: &'static str, left: u64) -> Self {
        Self { with, bytes: 0..u64::MAX, left }
    }

    fn meet(&mut self, name: &str, bytes: Range<u64>) -> io::Result<()> {
        let is_met = name.starts_with(self.with) && bytes.start < self.bytes.end && self.bytes.start < bytes.end;
        if !is_met || self.left == 0 {
            return Ok(());
        }
        self.left -= 1;
        Err(io::Error::from_raw_os_error(5))
    }
}

/// Opens faulty disks; mutating operations left before the whole machine "loses power".
#[derive(Debug)]
pub struct FaultyDisks {
    disks: Mutex<HashMap<PathBuf, Arc<Faults>>>,
    pub fuel: Arc<AtomicI64>,
    pub spent: Arc<AtomicI64>,
}

impl Default for FaultyDisks {
    fn default() -> Self {
        Self { disks: Mutex::default(), fuel: Arc::new(AtomicI64::new(i64::MAX)), spent: Arc::default() }
    }
}

impl FaultyDisks {
    pub fn faults(&self, path: &Path) -> Arc<Faults> {
        let mut disks = self.disks.lock();
        let number = disks.len() as u64 + 1;
        disks
            .entry(path.to_owned())
            .or_insert_with(|| {
                Arc::new(Faults {
                    read_error: false.into(),
                    write_error: false.into(),
                    read_only: false.into(),
                    quota_bytes: AtomicU64::new(1 << 30),
                    no_direct: false.into(),
                    syncs: AtomicU64::new(0),
                    failing_syncs: AtomicI64::new(0),
                    failing_lists: AtomicI64::new(0),
                    files_left: AtomicI64::new(i64::MAX),
                    files_error: AtomicI32::new(28),
                    renames_error: AtomicI32::new(5),
                    no_renames: false.into(),
                    no_seeks: false.into(),
                    bad_reads: Mutex::default(),
                    bad_writes: Mutex::default(),
                    bad_syncs: Mutex::default(),
                    direct_write_ms: AtomicU64::new(0),
                    direct_writes: AtomicU64::new(0),
                    direct_writes_max: AtomicU64::new(0),
                    direct_writes_done: AtomicU64::new(0),
                    direct_read_ms: AtomicU64::new(0),
                    direct_reads: AtomicU64::new(0),
                    direct_reads_max: AtomicU64::new(0),
                    frozen: Mutex::default(),
                    thawed: Condvar::new(),
                    sizes: Mutex::default(),
                    filesystem: AtomicU64::new(number),
                })
            })
            .clone()
    }
}

impl DiskOpener for FaultyDisks {
    fn open_disk(&self, path: &Path) -> io::Result<Arc<dyn DiskIo>> {
        let inner = FileDisks.open_disk(path)?;
        Ok(Arc::new(FaultyDisk {
            inner,
            faults: self.faults(path),
            fuel: self.fuel.clone(),
            spent: self.spent.clone(),
        }))
    }

    fn make_directory(&self, path: &Path) -> io::Result<()> {
        FileDisks.make_directory(path)
    }
}

#[derive(Debug, Clone)]
struct FaultyDisk {
    inner: Arc<dyn DiskIo>,
    faults: Arc<Faults>,
    fuel: Arc<AtomicI64>,
    spent: Arc<AtomicI64>,
}

impl FaultyDisk {
    fn may_write(&self) -> io::Result<()> {
        self.faults.wait_while_frozen(true);
        self.spent.fetch_add(1, SeqCst);
        if self.fuel.fetch_sub(1, SeqCst) <= 0 {
            return Err(io::Error::other("power lost"));
        }
        if self.faults.read_only.load(SeqCst) {
            return Err(io::ErrorKind::ReadOnlyFilesystem.into());
        }
        if self.faults.write_error.load(SeqCst) {
            return Err(io::Error::from_raw_os_error(5));
        }
        Ok(())
    }

    fn may_read(&self) -> io::Result<()> {
        self.faults.wait_while_frozen(false);
        if self.faults.read_error.load(SeqCst) { Err(io::Error::from_raw_os_error(5)) } else { Ok(()) }
    }

    fn used(&self) -> u64 {
        self.faults.sizes.lock().values().map(|size| size.next_multiple_of(4096)).sum()
    }
}

impl DiskIo for FaultyDisk {
    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        self.may_write()?;
        let is_new = self.inner.open(name, false).is_err();
        if is_new && self.faults.files_left.fetch_sub(1, SeqCst) <= 0 {
            self.faults.files_left.fetch_add(1, SeqCst);
            return Err(io::Error::from_raw_os_error(self.faults.files_error.load(SeqCst)));
        }
        let file = self.inner.create(name)?;
        self.faults.sizes.lock().insert(name.to_owned(), 0);
        Ok(Arc::new(FaultyFile { file, name: name.to_owned(), disk: self.clone() }))
    }

    fn open(&self, name: &str, writable: bool) -> io::Result<Arc<dyn DiskFile>> {
        self.may_read()?;
        let file = self.inner.open(name, writable)?;
        Ok(Arc::new(FaultyFile { file, name: name.to_owned(), disk: self.clone() }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.may_write()?;
        if to.starts_with("objects/") && self.faults.no_renames.load(SeqCst) {
            return Err(io::Error::from_raw_os_error(self.faults.renames_error.load(SeqCst)));
        }
        self.inner.rename(from, to)?;
        let mut sizes = self.faults.sizes.lock();
        let size = sizes.remove(from).unwrap_or(0);
        sizes.insert(to.to_owned(), size);
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.may_write()?;
        self.inner.remove(name)?;
        self.faults.files_left.fetch_add(i64::from(self.faults.files_left.load(SeqCst) < i64::MAX / 2), SeqCst);
        self.faults.sizes.lock().remove(name);
        Ok(())
    }

    fn list(&self, directory: &str) -> io::Result<Vec<String>> {
        self.may_read()?;
        self.faults.bad_reads.lock().meet(directory, 0..1)?;
        if directory.starts_with("objects/") && self.faults.failing_lists.fetch_sub(1, SeqCst) > 0 {
            return Err(io::Error::from_raw_os_error(5));
        }
        self.inner.list(directory)
    }

    fn make_directory(&self, name: &str) -> io::Result<()> {
        self.may_write()?;
        self.inner.make_directory(name)
    }

    fn remove_directory(&self, name: &str) -> io::Result<()> {
        self.may_write()?;
        self.inner.remove_directory(name)
    }

    fn sync_directory(&self, _: &str) -> io::Result<()> {
        // A cut of the simulated power keeps what was done: syncing would only cost time.
        self.may_write()
    }

    fn sync_all(&self) -> io::Result<()> {
        self.may_write()
    }

    fn space(&self) -> io::Result<DiskSpace> {
        if self.faults.read_error.load(SeqCst) {
            return Err(io::Error::from_raw_os_error(5));
        }
        let total_bytes = self.faults.quota_bytes.load(SeqCst);
        let free_bytes = total_bytes.saturating_sub(self.used());
        let filesystem = self.faults.filesystem.load(SeqCst);
        Ok(DiskSpace { total_bytes, free_bytes, filesystem, without_inodes: false })
    }

    fn lock(&self, owner: &str) -> io::Result<Box<dyn Any + Send + Sync>> {
        self.inner.lock(owner)
    }

    fn identity(&self) -> io::Result<(u64, u64)> {
        self.inner.identity()
    }

    fn seeks(&self) -> bool {
        !self.faults.no_seeks.load(SeqCst)
    }
}

struct FaultyFile {
    file: Arc<dyn DiskFile>,
    name: String,
    disk: FaultyDisk,
}

impl FaultyFile {
    /// Writing these bytes is allowed and there is room.
    fn grow(&self, bytes: Range<u64>) -> io::Result<()> {
        self.disk.may_write()?;
        let end = bytes.end;
        self.disk.faults.bad_writes.lock().meet(&self.name, bytes)?;
        self.reserve(end)
    }

    /// There is room for a file of this length.
    fn reserve(&self, end: u64) -> io::Result<()> {
        let used = self.disk.used();
        let mut sizes = self.disk.faults.sizes.lock();
        // Read back under whatever name the file has by now: tests write before they rename.
        let size = sizes.entry(self.name.clone()).or_default();
        let grown = end.next_multiple_of(4096).saturating_sub(size.next_multiple_of(4096));
        if used + grown > self.disk.faults.quota_bytes.load(SeqCst) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        *size = (*size).max(end);
        Ok(())
    }
}

impl DiskFile for FaultyFile {
    fn read_at(&self, buffers: &mut [IoSliceMut<'_>], offset: u64) -> io::Result<usize> {
        self.disk.may_read()?;
        let length = buffers.iter().map(|buffer| buffer.len() as u64).sum::<u64>();
        self.disk.faults.bad_reads.lock().meet(&self.name, offset..offset + length)?;
        self.file.read_at(buffers, offset)
    }

    fn read_cached_at(&self, buffers: &mut [IoSliceMut<'_>], offset: u64) -> io::Result<usize> {
        if *self.disk.faults.frozen.lock() == Frozen::All {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        self.disk.may_read()?;
        self.file.read_cached_at(buffers, offset)
    }

    fn write_at(&self, buffers: &mut [IoSlice<'_>], offset: u64) -> io::Result<()> {
        let length = buffers.iter().map(|buffer| buffer.len() as u64).sum::<u64>();
        self.grow(offset..offset + length)?;
        self.file.write_at(buffers, offset)
    }

    fn write_direct_at(&self, bytes: &[u8], offset: u64) -> io::Result<bool> {
        let faults = &self.disk.faults;
        let of_shard = u64::from(self.name.starts_with("objects/"));
        let now = faults.direct_writes.fetch_add(of_shard, SeqCst) + of_shard;
        faults.direct_writes_max.fetch_max(now, SeqCst);
        std::thread::sleep(std::time::Duration::from_millis(faults.direct_write_ms.load(SeqCst)));
        let result = self.grow(offset..offset + bytes.len() as u64);
        faults.direct_writes.fetch_sub(of_shard, SeqCst);
        result?;
        faults.direct_writes_done.fetch_add(of_shard, SeqCst);
        if faults.no_direct.load(SeqCst) {
            return self.file.write_at(&mut [IoSlice::new(bytes)], offset).map(|()| false);
        }
        self.file.write_direct_at(bytes, offset)
    }

    fn begin_direct(&self, bytes: u64) -> io::Result<bool> {
        if self.disk.faults.no_direct.load(SeqCst) {
            return Ok(false);
        }
        self.disk.may_write()?;
        self.reserve(bytes)?;
        self.file.begin_direct(bytes)
    }

    fn flushed_together(&self) -> Option<u64> {
        self.file.flushed_together()
    }

    fn read_direct_at(&self, buffers: &mut [IoSliceMut<'_>], offset: u64) -> io::Result<usize> {
        self.disk.may_read()?;
        let faults = &self.disk.faults;
        let now = faults.direct_reads.fetch_add(1, SeqCst) + 1;
        faults.direct_reads_max.fetch_max(now, SeqCst);
        std::thread::sleep(std::time::Duration::from_millis(faults.direct_read_ms.load(SeqCst)));
        faults.direct_reads.fetch_sub(1, SeqCst);
        if self.disk.faults.no_direct.load(SeqCst) {
            return self.file.read_at(buffers, offset);
        }
        self.file.read_direct_at(buffers, offset)
    }

    fn sync(&self) -> io::Result<()> {
        // The simulated power cut keeps what was written: a crash of the process, not of the page
        // cache.
        self.disk.may_write()?;
        self.disk.faults.bad_syncs.lock().meet(&self.name, 0..1)?;
        self.disk.faults.syncs.fetch_add(1, SeqCst);
        if self.disk.faults.failing_syncs.fetch_sub(1, SeqCst) > 0 {
            return Err(io::Error::from_raw_os_error(5));
        }
        Ok(())
    }

    fn start_writeback(&self, _: u64, _: u64) {}

    fn length(&self) -> io::Result<u64> {
        self.file.length()
    }
}

/// A pool in temporary directories, with disks that can be made to fail.
pub struct Bench {
    pub dir: tempfile::TempDir,
    pub disks: Vec<PathBuf>,
    pub opener: Arc<FaultyDisks>,
}

impl Bench {
    pub fn new(disks: usize) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let disks: Vec<PathBuf> = (0..disks).map(|i| dir.path().join(format!("disk{i}"))).collect();
        disks.iter().for_each(|disk| std::fs::create_dir(disk).unwrap());
        Self { dir, disks, opener: Arc::default() }
    }

    pub fn options(&self, layout: Layout) -> CreateOptions {
        CreateOptions {
            opener: self.opener.clone(),
            journal_bytes: Some(4 << 20),
            ..CreateOptions::new("tank", layout, self.disks.clone())
        }
    }

    pub async fn create(&self, layout: Layout) -> Pool {
        let pool = Pool::create(self.options(layout)).await.unwrap();
        // Nothing is written behind the back of a test that counts.
        pool.core.blocking(|core| core.members.write_history()).await.unwrap();
        pool
    }

    pub fn open_options(&self) -> OpenOptions {
        OpenOptions { opener: self.opener.clone(), degraded: true, ..OpenOptions::new(self.disks.clone()) }
    }

    pub async fn open(&self) -> Pool {
        Pool::open(self.open_options()).await.unwrap()
    }

    pub fn faults(&self, disk: usize) -> Arc<Faults> {
        self.opener.faults(&self.disks[disk])
    }

    /// All shard files of a disk.
    pub fn shards(&self, disk: usize) -> Vec<PathBuf> {
        let Ok(directories) = std::fs::read_dir(self.disks[disk].join("objects")) else { return Vec::new() };
        directories
            .flat_map(|entry| std::fs::read_dir(entry.unwrap().path()).unwrap())
            .map(|entry| entry.unwrap().path())
            .collect()
    }
}

/// Bytes that no compressor likes, the same every time.
pub fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut out = Vec::with_capacity(length + 8);
    while out.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        out.extend_from_slice(&state.to_le_bytes());
    }
    out.truncate(length);
    out
}
