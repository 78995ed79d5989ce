//! Does a flush take as long as the medium needs, or does somebody on the way only say that it is done?
//!
//! One block of 4 KiB is written past the kernel's cache and flushed, again and again, at the same place of a file
//! that is there already: the filesystem has no metadata to write, and a hard disk has to wait for the platter to
//! come round every time. 15,000 turns a minute are 250 flushes a second; more than [`SPINNING_PER_S_MAX`] is a cache
//! that keeps what it should have written (a non-volatile one may).

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::OFlags;
use serde::Serialize;

/// No platter turns faster than 250 times a second.
pub(super) const SPINNING_PER_S_MAX: f64 = 300.0;

const BLOCK_BYTES: usize = 4096;
const FILE_BYTES: usize = 1 << 20;
const FLUSHES_MAX: usize = 256;
/// A slow disk gives enough to judge by within this.
const TIME_MAX: Duration = Duration::from_secs(2);

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct FlushRate {
    pub flushes: usize,
    pub per_s: f64,
    pub median_us: u64,
    pub worst_us: u64,
    /// Whether writes passed the kernel's cache by; a filesystem may refuse that.
    pub direct: bool,
}

/// The test file; gone when this is.
struct Scratch {
    file: File,
    path: PathBuf,
    direct: bool,
}

impl Scratch {
    fn make(folder: &Path) -> io::Result<Self> {
        let path = folder.join(format!(".larder-flush-test-{}", std::process::id()));
        let open = |flags: OFlags| {
            let flags = i32::try_from(flags.bits()).unwrap_or_default();
            OpenOptions::new().write(true).create_new(true).mode(0o600).custom_flags(flags).open(&path)
        };
        // A filesystem that refuses direct I/O does so after it has made the file.
        let (file, direct) = match open(OFlags::DIRECT) {
            Ok(file) => (file, true),
            Err(e) if e.raw_os_error() == Some(rustix::io::Errno::INVAL.raw_os_error()) => {
                let _ = std::fs::remove_file(&path);
                (open(OFlags::empty())?, false)
            }
            Err(e) => return Err(e),
        };
        Ok(Self { file, path, direct })
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Aligned as direct I/O wants it: more than is needed, and the part of it that begins at a multiple.
struct Aligned {
    memory: Vec<u8>,
    skip: usize,
}

impl Aligned {
    fn new(length: usize) -> Self {
        let memory = vec![0xA5; length + BLOCK_BYTES];
        let skip = memory.as_ptr().align_offset(BLOCK_BYTES).min(BLOCK_BYTES);
        Self { memory, skip }
    }

    fn bytes(&mut self, length: usize) -> &mut [u8] {
        &mut self.memory[self.skip..self.skip + length]
    }
}

/// Writes and flushes in `folder` for two seconds at most.
pub fn measure_flushes(folder: &Path) -> io::Result<FlushRate> {
    let scratch = Scratch::make(folder)?;
    let mut buffer = Aligned::new(FILE_BYTES);
    scratch.file.write_all_at(buffer.bytes(FILE_BYTES), 0)?;
    scratch.file.sync_all()?;
    let started = Instant::now();
    let mut times = Vec::with_capacity(FLUSHES_MAX);
    while times.len() < FLUSHES_MAX && (times.is_empty() || started.elapsed() < TIME_MAX) {
        let block = buffer.bytes(BLOCK_BYTES);
        // Different bytes each time: what does not change could be left out.
        block[..8].copy_from_slice(&(times.len() as u64).to_le_bytes());
        let before = Instant::now();
        scratch.file.write_all_at(block, 0)?;
        rustix::fs::fdatasync(&scratch.file)?;
        times.push(before.elapsed());
    }
    Ok(summary(times, scratch.direct))
}

fn summary(mut times: Vec<Duration>, direct: bool) -> FlushRate {
    let total: Duration = times.iter().sum();
    times.sort();
    let us = |time: Option<&Duration>| time.map_or(0, |t| u64::try_from(t.as_micros()).unwrap_or(u64::MAX));
    FlushRate {
        flushes: times.len(),
        per_s: times.len() as f64 / total.as_secs_f64().max(1e-9),
        median_us: us(times.get(times.len() / 2)),
        worst_us: us(times.last()),
        direct,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flushes_are_counted_and_nothing_is_left() {
        let folder = tempfile::tempdir().unwrap();
        let rate = measure_flushes(folder.path()).unwrap();
        assert!((1..=FLUSHES_MAX).contains(&rate.flushes) && rate.per_s > 0.0 && rate.worst_us >= rate.median_us);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        assert!(measure_flushes(&folder.path().join("missing")).is_err());
    }

    #[test]
    fn the_rate_counts_only_the_time_of_flushes() {
        let rate = summary(vec![Duration::from_millis(8), Duration::from_millis(10), Duration::from_millis(7)], true);
        assert_eq!((rate.flushes, rate.median_us, rate.worst_us), (3, 8000, 10_000));
        assert!((rate.per_s - 120.0).abs() < 0.001);
    }
}
