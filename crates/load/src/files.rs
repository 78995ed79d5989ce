//! Files as people have them: many small ones, a tree, one large one read by `cat`. Plain calls of the system, as
//! `cp` and `cat` make them.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{Advice, OFlags};

use super::caches;
use super::control::{Control, Progress};
use super::error::BenchError;
use super::load::Scene;
use crate::workload::{Caches, Kind, Latency, Moment, Repeat, Workload};

const TICK: Duration = Duration::from_millis(500);
const MOMENTS_MAX: usize = 200_000;
const BUFFER_BYTES: usize = 1 << 20;
/// One request: enough for a disk without a write cache to be kept busy, and soon over on the slowest.
const FILL_BYTES: usize = 4 << 20;
/// Alignment of direct I/O: the largest sector that there is.
const SECTOR_BYTES: usize = 4096;
/// A person who stops a bench waits as long as a flush takes, so no flush may grow much beyond this.
const FLUSH_TIME: Duration = Duration::from_millis(500);
const UNFLUSHED_BYTES: std::ops::RangeInclusive<u64> = (1 << 20)..=(256 << 20);
/// Files of a folder.
const PER_FOLDER: u64 = 500;
/// Filesystems (`f_type` of statfs(2)) whose server hears of a flush only when a file or a folder is flushed: FUSE, CIFS,
/// SMB2, 9p.
const SERVED: [i64; 4] = [0x6573_5546, 0xff53_4d42, 0xfe53_4d42, 0x0102_1997];
/// The sizes in a tree: from 2^10 to 2^22 bytes, each power as likely.
const TREE_POWERS: std::ops::RangeInclusive<u32> = 10..=22;

/// Bytes that no compressor makes smaller, different for each seed (xorshift64*).
pub(crate) struct Noise(u64);

impl Noise {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Compressible data is half zeroes.
    pub(crate) fn fill(&mut self, buffer: &mut [u8], compressible: bool) {
        for block in buffer.chunks_mut(4096) {
            let (noisy, zero) = block.split_at_mut(if compressible { block.len() / 2 } else { block.len() });
            for word in noisy.chunks_mut(8) {
                let bytes = self.next().to_le_bytes();
                word.copy_from_slice(bytes.get(..word.len()).unwrap_or_default());
            }
            zero.fill(0);
        }
    }
}

/// The work done so far; read by a thread that keeps time.
#[derive(Default)]
struct Done {
    bytes: AtomicU64,
    operations: AtomicU64,
    over: AtomicBool,
}

impl Done {
    fn add(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.operations.fetch_add(1, Ordering::Relaxed);
    }
}

/// Ends the thread that keeps time, however the work ends: a scope waits for its threads, also in a panic.
struct Over<'a>(&'a Done);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.over.store(true, Ordering::Release);
    }
}

/// Runs `work` while progress is told and written down.
fn timed(
    control: &Control,
    expected: u64,
    work: impl FnOnce(&Done) -> Result<Vec<Duration>, BenchError>,
) -> Result<Repeat, BenchError> {
    let done = Done::default();
    let started = Instant::now();
    let (worked, over_time) = std::thread::scope(|scope| {
        let clock = scope.spawn(|| tick(&done, control, expected, started));
        let over = Over(&done);
        let worked = work(&done).map(|times| (times, started.elapsed()));
        drop(over);
        (worked, clock.join().unwrap_or_default())
    });
    let (times, took) = worked?;
    let seconds = took.as_secs_f64().max(1e-9);
    let (bytes, operations) = (done.bytes.load(Ordering::Relaxed), done.operations.load(Ordering::Relaxed));
    Ok(Repeat {
        seconds,
        bytes,
        operations,
        bytes_per_s: bytes as f64 / seconds,
        operations_per_s: operations as f64 / seconds,
        latency: latency(times),
        over_time,
        ..Repeat::default()
    })
}

fn tick(done: &Done, control: &Control, expected: u64, started: Instant) -> Vec<Moment> {
    let mut moments = Vec::new();
    let (mut bytes_before, mut operations_before, mut before) = (0, 0, started);
    while !done.over.load(Ordering::Acquire) {
        std::thread::sleep(TICK / 10);
        if before.elapsed() < TICK || moments.len() >= MOMENTS_MAX {
            continue;
        }
        let (bytes, operations) = (done.bytes.load(Ordering::Relaxed), done.operations.load(Ordering::Relaxed));
        let seconds = before.elapsed().as_secs_f64();
        let bytes_per_s = (bytes - bytes_before) as f64 / seconds;
        let operations_per_s = (operations - operations_before) as f64 / seconds;
        let at_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        moments.push(Moment { at_ms, bytes_per_s, operations_per_s });
        let part = (expected > 0).then(|| (bytes.max(operations) as f64 / expected as f64).min(1.0));
        control.tell(Progress { done: part, bytes_per_s, operations_per_s });
        (bytes_before, operations_before, before) = (bytes, operations, Instant::now());
    }
    moments
}

fn latency(mut times: Vec<Duration>) -> Option<Latency> {
    times.sort();
    let us = |time: &Duration| time.as_secs_f64() * 1e6;
    let at = |share: f64| {
        let index = ((times.len() as f64 * share).ceil() as usize).saturating_sub(1);
        times.get(index).map_or(0.0, us)
    };
    let max_us = times.last().map(us)?;
    let mean_us = times.iter().map(us).sum::<f64>() / times.len() as f64;
    Some(Latency { mean_us, p50_us: at(0.5), p95_us: at(0.95), p99_us: at(0.99), p999_us: at(0.999), max_us })
}

fn go_on(control: &Control) -> Result<(), BenchError> {
    if control.is_stopped() { Err(BenchError::Stopped) } else { Ok(()) }
}

/// Writes a file of noise, so that what is read later lies on the disk and cannot be compressed.
///
/// Data in memory cannot be taken back: a bench cannot be stopped while a slow disk is given a gigabyte of it. So data
/// goes to the disk directly where that can be done, and elsewhere in pieces that are flushed.
pub(crate) fn fill(
    path: &Path,
    bytes: u64,
    compressible: bool,
    direct: bool,
    control: &Control,
) -> Result<(), BenchError> {
    let wrong = |e| BenchError::at("write", path, e);
    match fs::remove_file(path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(wrong(e)),
        _ => {}
    }
    let file = File::create_new(path).map_err(wrong)?;
    let mut directly = if direct { past_the_cache(path) } else { None };
    let mut noise = Noise::new(bytes);
    let mut memory = vec![0u8; FILL_BYTES + SECTOR_BYTES];
    let start = memory.as_ptr().align_offset(SECTOR_BYTES).min(SECTOR_BYTES);
    let buffer = memory.get_mut(start..start + FILL_BYTES).unwrap_or_default();
    let mut pace = Pace::default();
    let mut at = 0;
    while at < bytes {
        go_on(control)?;
        let length = usize::try_from(bytes - at).unwrap_or(usize::MAX).min(buffer.len());
        let part = buffer.get_mut(..length).unwrap_or_default();
        noise.fill(part, compressible);
        // An odd rest has no place in sectors, and some filesystems take less than they promise.
        directly = directly.filter(|file| length.is_multiple_of(SECTOR_BYTES) && file.write_all_at(part, at).is_ok());
        if directly.is_none() {
            file.write_all_at(part, at).map_err(wrong)?;
            pace.wrote(length as u64, || file.sync_data()).map_err(wrong)?;
        }
        at += length as u64;
    }
    file.sync_all().map_err(wrong)?;
    forget(&file);
    Ok(())
}

fn past_the_cache(path: &Path) -> Option<File> {
    let flags = i32::try_from(OFlags::DIRECT.bits()).ok()?;
    OpenOptions::new().write(true).custom_flags(flags).open(path).ok()
}

/// Flushes as often as keeps each flush short, however slow the disk is just now.
struct Pace {
    unflushed: u64,
    most: u64,
}

impl Default for Pace {
    fn default() -> Self {
        Self { unflushed: 0, most: 16 << 20 }
    }
}

impl Pace {
    fn wrote<E>(&mut self, bytes: u64, flush: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
        self.unflushed += bytes;
        if self.unflushed < self.most {
            return Ok(());
        }
        let started = Instant::now();
        flush()?;
        self.took(started.elapsed());
        Ok(())
    }

    fn took(&mut self, time: Duration) {
        let most = match time {
            long if long > FLUSH_TIME => self.most / 2,
            short if short < FLUSH_TIME / 4 => self.most * 2,
            _ => self.most,
        };
        (self.unflushed, self.most) = (0, most.clamp(*UNFLUSHED_BYTES.start(), *UNFLUSHED_BYTES.end()));
    }
}

/// Whether its filesystem hears of a flush only file by file.
pub(crate) fn is_served(folder: &File) -> std::io::Result<bool> {
    let kind = rustix::fs::fstatfs(folder)?.f_type;
    // As wide as a word of the machine.
    #[allow(clippy::useless_conversion)]
    Ok(i64::try_from(kind).is_ok_and(|kind| SERVED.contains(&(kind & 0xffff_ffff))))
}

/// Takes a file out of the page cache, where the filesystem listens.
pub(crate) fn forget(file: &File) {
    let _ = rustix::fs::fadvise(file, 0, None, Advice::DontNeed);
}

/// One large file from its beginning, one request at a time.
pub(crate) fn cat(
    path: &Path,
    workload: &Workload,
    time_max: Duration,
    control: &Control,
) -> Result<Repeat, BenchError> {
    let wrong = |e| BenchError::at("read", path, e);
    let mut file = File::open(path).map_err(wrong)?;
    forget(&file);
    let mut buffer = vec![0u8; usize::try_from(workload.block_bytes).unwrap_or(BUFFER_BYTES)];
    timed(control, workload.data_bytes, |done| {
        let started = Instant::now();
        loop {
            go_on(control)?;
            match file.read(&mut buffer).map_err(wrong)? {
                0 => return Ok(Vec::new()),
                count => done.add(count as u64),
            }
            if started.elapsed() >= time_max {
                return Ok(Vec::new());
            }
        }
    })
}

/// Which files a workload is about.
struct Set {
    top: PathBuf,
    files: Vec<(PathBuf, u64)>,
    folders: Vec<PathBuf>,
}

impl Set {
    /// The same for the same workload.
    fn of(top: &Path, workload: &Workload) -> Self {
        let tree = matches!(workload.kind, Kind::CopyTreeIn | Kind::CopyTreeOut);
        let top = top.join(if tree { "tree" } else { "files" });
        let mut set = Self { top: top.clone(), files: Vec::new(), folders: vec![top] };
        let mut noise = Noise::new(workload.files);
        let mut bytes = 0;
        for _ in 0..workload.files.max(1) {
            let size = if tree { size_in_tree(&mut noise) } else { workload.block_bytes };
            if tree && bytes + size > workload.data_bytes.max(size) {
                // A smaller one may still fit.
                continue;
            }
            bytes += size;
            set.add(size);
        }
        set
    }

    fn add(&mut self, size: u64) {
        let n = self.files.len() as u64;
        let group = n / PER_FOLDER;
        let folder = self.top.join(format!("a{}", group % 10)).join(format!("b{group}"));
        if n.is_multiple_of(PER_FOLDER) {
            self.folders.push(folder.clone());
        }
        self.files.push((folder.join(format!("file{n}")), size));
    }

    fn make_folders(&self) -> Result<(), BenchError> {
        self.folders.iter().try_for_each(|f| fs::create_dir_all(f).map_err(|e| BenchError::at("make the folder", f, e)))
    }

    fn remove(&self) -> Result<(), BenchError> {
        match fs::remove_dir_all(&self.top) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(BenchError::at("remove", &self.top, e)),
            _ => Ok(()),
        }
    }

    /// Does something with every file, in order, and keeps the time of each.
    fn each(
        &self,
        control: &Control,
        done: &Done,
        mut act: impl FnMut(&Path, u64) -> std::io::Result<u64>,
    ) -> Result<Vec<Duration>, BenchError> {
        let mut times = Vec::with_capacity(self.files.len());
        for (path, size) in &self.files {
            go_on(control)?;
            let before = Instant::now();
            let bytes = act(path, *size).map_err(|e| BenchError::at("measure with", path, e))?;
            times.push(before.elapsed());
            done.add(bytes);
        }
        Ok(times)
    }

    /// Of what is only made ready nobody counts the time, and `pace` flushes it in between.
    fn create(
        &self,
        workload: &Workload,
        control: &Control,
        done: &Done,
        mut pace: Option<Pace>,
    ) -> Result<Vec<Duration>, BenchError> {
        let mut noise = Noise::new(workload.files ^ 0x5eed);
        let mut buffer = vec![0u8; BUFFER_BYTES];
        let times = self.each(control, done, |path, size| {
            let mut file = File::create_new(path)?;
            let mut left = size;
            while left > 0 {
                let length = usize::try_from(left).unwrap_or(usize::MAX).min(BUFFER_BYTES);
                let part = buffer.get_mut(..length).unwrap_or_default();
                noise.fill(part, workload.compressible);
                file.write_all(part)?;
                left -= length as u64;
            }
            if let Some(pace) = &mut pace {
                pace.wrote(size, || self.flush_all())?;
            }
            Ok(size)
        })?;
        self.flush()?;
        Ok(times)
    }

    /// Brings acknowledged data to the disk before the clock stops.
    fn flush(&self) -> Result<(), BenchError> {
        let above = self.top.parent().unwrap_or(&self.top);
        let folder = File::open(above).map_err(|e| BenchError::at("flush", above, e))?;
        self.flush_all().map_err(|e| BenchError::at("flush", above, e))?;
        let served = is_served(&folder).map_err(|e| BenchError::at("flush", above, e))?;
        if served { self.flush_each() } else { Ok(()) }
    }

    /// Everything on its filesystem.
    fn flush_all(&self) -> std::io::Result<()> {
        let folder = File::open(self.top.parent().unwrap_or(&self.top))?;
        Ok(rustix::fs::syncfs(folder.as_fd())?)
    }

    fn flush_each(&self) -> Result<(), BenchError> {
        let files = self.files.iter().map(|(path, _)| (path, OpenOptions::new().write(true).open(path)));
        let folders = self.folders.iter().map(|path| (path, File::open(path)));
        for (path, opened) in files.chain(folders) {
            match opened.and_then(|file| file.sync_all()) {
                Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(BenchError::at("flush", path, e)),
                _ => {}
            }
        }
        Ok(())
    }

    fn forget(&self) {
        self.files.iter().filter_map(|(path, _)| File::open(path).ok()).for_each(|file| forget(&file));
    }
}

fn size_in_tree(noise: &mut Noise) -> u64 {
    let span = u64::from(TREE_POWERS.end() - TREE_POWERS.start());
    let power = u64::from(*TREE_POWERS.start()) + noise.next() % span;
    let least = 1u64 << power;
    least + noise.next() % least
}

/// Makes what the workload reads, looks at or deletes.
pub(crate) fn prepare(top: &Path, workload: &Workload, control: &Control) -> Result<(), BenchError> {
    let set = Set::of(top, workload);
    if matches!(workload.kind, Kind::CreateFiles | Kind::CopyTreeIn) {
        return set.remove();
    }
    if set.files.iter().all(|(path, size)| fs::metadata(path).is_ok_and(|m| m.len() == *size)) {
        return Ok(());
    }
    set.remove()?;
    set.make_folders()?;
    set.create(workload, control, &Done::default(), Some(Pace::default())).map(drop)
}

/// One repeat. Caches of this machine were dropped before, where that can be done; those of the files are in any case.
pub(crate) fn run(top: &Path, workload: &Workload, scene: &Scene) -> Result<Repeat, BenchError> {
    let control = scene.control;
    prepare(top, workload, control)?;
    let set = Set::of(top, workload);
    set.forget();
    if reads_only(workload.kind) && matches!(workload.caches, Caches::Dropped | Caches::Unknown) {
        // Making sure that all is there has put names and sizes back into memory.
        caches::drop_caches(scene.machine, scene.control)?;
    }
    let count = set.files.len() as u64;
    let mut buffer = vec![0u8; BUFFER_BYTES];
    match workload.kind {
        Kind::CreateFiles | Kind::CopyTreeIn => timed(control, count, |done| {
            set.make_folders()?;
            set.create(workload, control, done, None)
        }),
        Kind::StatFiles => timed(control, count, |done| set.each(control, done, |p, _| fs::metadata(p).map(|_| 0))),
        Kind::DeleteFiles => timed(control, count, |done| {
            let times = set.each(control, done, |p, _| fs::remove_file(p).map(|()| 0))?;
            set.flush()?;
            Ok(times)
        }),
        _ => timed(control, count, |done| set.each(control, done, |path, _| read_whole(path, &mut buffer))),
    }
}

fn reads_only(kind: Kind) -> bool {
    matches!(kind, Kind::StatFiles | Kind::ReadFiles | Kind::CopyTreeOut)
}

fn read_whole(path: &Path, buffer: &mut [u8]) -> std::io::Result<u64> {
    let mut file = File::open(path)?;
    let mut bytes = 0;
    loop {
        match file.read(buffer)? {
            0 => return Ok(bytes),
            count => bytes += count as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Machine;

    fn workload(kind: Kind, files: u64) -> Workload {
        Workload {
            kind,
            block_bytes: 4096,
            depth: 1,
            jobs: 1,
            data_bytes: 1 << 20,
            files,
            caches: Caches::Warm,
            compressible: false,
            synced: true,
        }
    }

    fn scene<'a>(machine: &'a Machine, control: &'a Control) -> Scene<'a> {
        Scene { machine, control, keep: Path::new("/"), run: 0, repeat: 0 }
    }

    #[test]
    fn files_are_made_read_looked_at_and_deleted() {
        let folder = tempfile::tempdir().unwrap();
        let (machine, control) = (Machine::this(), Control::new(|_| {}));
        let check = |kind, operations: u64, bytes: u64| {
            // Each repeat finds what it needs, whatever the one before left.
            for _ in 0..2 {
                let found = run(folder.path(), &workload(kind, 600), &scene(&machine, &control)).unwrap();
                assert_eq!((found.operations, found.bytes), (operations, bytes), "{kind:?}");
                assert!(found.seconds > 0.0 && found.latency.is_some(), "{found:?}");
            }
        };
        check(Kind::ReadFiles, 600, 600 * 4096);
        check(Kind::CreateFiles, 600, 600 * 4096);
        check(Kind::StatFiles, 600, 0);
        check(Kind::DeleteFiles, 600, 0);
        let tree = run(folder.path(), &workload(Kind::CopyTreeIn, 100), &scene(&machine, &control)).unwrap();
        assert!((1 << 19..=1 << 20).contains(&tree.bytes), "{tree:?}");
        let back = run(folder.path(), &workload(Kind::CopyTreeOut, 100), &scene(&machine, &control)).unwrap();
        assert_eq!((back.bytes, back.operations), (tree.bytes, tree.operations));
    }

    #[test]
    #[should_panic(expected = "it broke")]
    fn a_panic_ends_the_clock_too() {
        let _ = timed(&Control::new(|_| {}), 1, |_| panic!("it broke"));
    }

    #[test]
    fn cat_reads_the_file_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("data");
        let (machine, control) = (Machine::this(), Control::new(|_| {}));
        fill(&path, (3 << 20) + 5, false, false, &control).unwrap();
        let found = cat(&path, &workload(Kind::Cat, 1), Duration::from_secs(20), &control).unwrap();
        assert_eq!(found.bytes, (3 << 20) + 5);
        control.stop();
        assert!(matches!(fill(&path, 1 << 20, false, true, &control), Err(BenchError::Stopped)));
        assert!(matches!(
            run(folder.path(), &workload(Kind::ReadFiles, 5), &scene(&machine, &control)),
            Err(BenchError::Stopped)
        ));
    }

    #[test]
    fn data_is_the_same_however_it_gets_to_the_disk() {
        // On a disk: a memory filesystem may not take direct I/O.
        let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let control = Control::new(|_| {});
        for bytes in [5, 4096, (3 << 20) + 4096, (2 << 20) + 5] {
            let [direct, gathered] = [true, false].map(|direct| {
                let path = folder.path().join("data");
                fill(&path, bytes, false, direct, &control).unwrap();
                fs::read(&path).unwrap()
            });
            assert_eq!(direct.len() as u64, bytes);
            assert!(direct == gathered, "{bytes}");
        }
    }

    #[test]
    fn a_slow_disk_is_given_less_before_each_flush() {
        let mut pace = Pace::default();
        let first = pace.most;
        pace.took(FLUSH_TIME * 3);
        assert_eq!(pace.most, first / 2);
        (0..40).for_each(|_| pace.took(FLUSH_TIME * 3));
        assert_eq!(pace.most, *UNFLUSHED_BYTES.start());
        (0..40).for_each(|_| pace.took(Duration::ZERO));
        assert_eq!(pace.most, *UNFLUSHED_BYTES.end());
        let mut flushed = 0;
        let mut wrote = |bytes| {
            let flush = || -> std::io::Result<()> {
                flushed += 1;
                Ok(())
            };
            pace.wrote(bytes, flush).unwrap();
            flushed
        };
        assert_eq!([wrote(255 << 20), wrote(1 << 20), wrote(1)], [0, 1, 1]);
    }

    #[test]
    fn noise_does_not_compress() {
        let mut bytes = vec![0u8; 1 << 16];
        Noise::new(7).fill(&mut bytes, false);
        let mut counts = [0u32; 256];
        bytes.iter().for_each(|b| counts[usize::from(*b)] += 1);
        assert!(counts.iter().all(|c| (160..360).contains(c)), "each value about 256 times");
        Noise::new(7).fill(&mut bytes, true);
        assert_eq!(bytes.iter().filter(|b| **b == 0).count() / 1000, 32, "half of it is zeroes");
    }
}
