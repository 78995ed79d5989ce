//! A copy from one place to another, as people copy: each file is read at one end and written at the other at the same
//! time, one file after the other, and at last everything is flushed.
//!
//! Both ends are [`ShareClient`]s with a thread and a connection each. What is read is compared with what the near end
//! wrote there before; the far end writes contents of its own, which are as hard to compress: so no byte has to pass
//! from one thread to the other, and a copy costs this machine what `cp` costs it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use super::error::{ClientError, Outcome};
use super::share_client::ShareClient;
use super::steps::{LOOK, Step, Steps};
use crate::control::{Control, Progress};
use crate::workload::{Moment, Repeat, Workload};

const MOMENT: Duration = Duration::from_millis(250);
const MOMENTS_MAX: usize = 200_000;

/// The side of an end that asks.
struct Asking {
    ask: UnboundedSender<Step>,
    done: Receiver<()>,
}

impl Asking {
    fn ask(&self, step: Step) {
        // One that has ended is found out by waiting for it.
        let _ = self.ask.send(step);
    }
}

/// All of it once, flushed.
pub fn copy(
    from: &mut dyn ShareClient,
    to: &mut dyn ShareClient,
    workload: &Workload,
    control: &Control,
) -> Outcome<Repeat> {
    let bytes = std::sync::Arc::new(AtomicU64::new(0));
    let stopped = std::sync::Arc::new(AtomicBool::new(false));
    let end = || {
        let ((ask, asked), (done, is_done)) = (unbounded_channel(), channel());
        (Asking { ask, done: is_done }, Steps { asked, done, bytes: bytes.clone(), stopped: stopped.clone() })
    };
    let ((reading, reads), (writing, writes)) = (end(), end());
    let files = workload.files.max(1);
    let (source, target, driven) = std::thread::scope(|scope| {
        let source = scope.spawn(|| from.serve_copy(workload, reads));
        let target = scope.spawn(|| to.serve_copy(workload, writes));
        let mut clock = Clock::new(control, &bytes, files);
        let driven = clock.drive(&reading, &writing, files);
        let measured = driven.then(|| clock.end());
        if measured.is_none() {
            stopped.store(true, Ordering::Release);
        }
        drop((reading, writing));
        (ended(source.join()), ended(target.join()), measured)
    });
    // The end that failed tells the reason; the other one was stopped because of that.
    let reason = [source, target].into_iter().filter_map(Result::err);
    let reason = reason.min_by_key(|error| matches!(error, ClientError::Stopped));
    match (reason, driven) {
        (None, Some(repeat)) => Ok(repeat),
        (Some(error), _) => Err(error),
        (None, None) => Err(ClientError::Stopped),
    }
}

fn ended(joined: std::thread::Result<Outcome<()>>) -> Outcome<()> {
    let defect = |_| ClientError::Local { what: "copy".into(), reason: "a defect in the bench's client".into() };
    joined.map_err(defect)?
}

struct Clock<'a> {
    control: &'a Control,
    bytes: &'a AtomicU64,
    files: u64,
    copied: u64,
    began: Instant,
    moments: Vec<Moment>,
    /// When the last moment ended, and how many bytes and files were there then.
    last: (Instant, u64, u64),
}

impl<'a> Clock<'a> {
    fn new(control: &'a Control, bytes: &'a AtomicU64, files: u64) -> Self {
        let began = Instant::now();
        let last = (began, 0, 0);
        Self { control, bytes, files, copied: 0, began, moments: Vec::new(), last }
    }

    /// Whether all of it was done.
    fn drive(&mut self, reading: &Asking, writing: &Asking, files: u64) -> bool {
        // Connections stand before the clock begins: the folders are there from then on.
        writing.ask(Step::Folders);
        if !self.wait(writing) {
            return false;
        }
        self.began = Instant::now();
        self.last = (self.began, 0, 0);
        for file in 0..files {
            reading.ask(Step::Read(file));
            writing.ask(Step::Write(file));
            if !self.wait(reading) || !self.wait(writing) {
                return false;
            }
            self.copied += 1;
        }
        writing.ask(Step::Flush);
        self.wait(writing)
    }

    fn wait(&mut self, end: &Asking) -> bool {
        use std::sync::mpsc::RecvTimeoutError::*;
        loop {
            match end.done.recv_timeout(LOOK) {
                Ok(()) => break,
                Err(Timeout) if !self.control.is_stopped() => self.tick(),
                Err(Timeout | Disconnected) => return false,
            }
        }
        self.tick();
        true
    }

    fn tick(&mut self) {
        let (at, bytes_before, copied_before) = self.last;
        let seconds = at.elapsed().as_secs_f64();
        if at.elapsed() < MOMENT || self.moments.len() >= MOMENTS_MAX {
            return;
        }
        let bytes = self.bytes.load(Ordering::Relaxed);
        let bytes_per_s = bytes.saturating_sub(bytes_before) as f64 / seconds;
        let operations_per_s = (self.copied - copied_before) as f64 / seconds;
        let at_ms = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.moments.push(Moment { at_ms, bytes_per_s, operations_per_s });
        let done = Some(self.copied as f64 / self.files as f64);
        self.control.tell(Progress { done, bytes_per_s, operations_per_s });
        self.last = (Instant::now(), bytes, self.copied);
    }

    fn end(&mut self) -> Repeat {
        let seconds = self.began.elapsed().as_secs_f64().max(1e-9);
        let bytes = self.bytes.load(Ordering::Relaxed);
        Repeat {
            seconds,
            bytes,
            operations: self.copied,
            bytes_per_s: bytes as f64 / seconds,
            operations_per_s: self.copied as f64 / seconds,
            over_time: std::mem::take(&mut self.moments),
            ..Repeat::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::open_folder;
    use super::*;
    use crate::workload::{Caches, Kind};

    fn workload(files: u64) -> Workload {
        Workload {
            kind: Kind::Copy,
            block_bytes: 1 << 20,
            depth: 1,
            jobs: 1,
            data_bytes: 4 << 20,
            files,
            caches: Caches::Unknown,
            compressible: false,
            synced: true,
        }
    }

    fn bytes_below(folder: &Path) -> u64 {
        let of = |entry: std::fs::DirEntry| match entry.file_type().unwrap().is_dir() {
            true => bytes_below(&entry.path()),
            false => entry.metadata().unwrap().len(),
        };
        std::fs::read_dir(folder).unwrap().map(|entry| of(entry.unwrap())).sum()
    }

    #[test]
    fn everything_arrives_and_nothing_is_left() {
        let control = Control::new(|_| {});
        for files in [1, 70] {
            let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
            let mut ends = [open_folder(from.path()).unwrap(), open_folder(to.path()).unwrap()];
            let [source, target] = &mut ends;
            source.prepare_copy(&workload(files), true, &control).unwrap();
            // The second one finds what the first one left.
            for _ in 0..2 {
                target.prepare_copy(&workload(files), false, &control).unwrap();
                let found = copy(source.as_mut(), target.as_mut(), &workload(files), &control).unwrap();
                assert_eq!(found.operations, files);
                assert_eq!((found.bytes, found.bytes), (bytes_below(to.path()), bytes_below(from.path())));
                assert!((3 << 20..=5 << 20).contains(&found.bytes) && found.seconds > 0.0, "{found:?}");
            }
            ends.iter_mut().for_each(|end| end.clean_up().unwrap());
            for folder in [from, to] {
                assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
            }
        }
    }

    #[test]
    fn the_end_that_fails_tells_the_reason() {
        let (control, folder) = (Control::new(|_| {}), tempfile::tempdir().unwrap());
        let (from, to) = (folder.path().join("from"), folder.path().join("to"));
        std::fs::create_dir(&from).unwrap();
        std::fs::create_dir(&to).unwrap();
        let mut ends = [open_folder(&from).unwrap(), open_folder(&to).unwrap()];
        let [source, target] = &mut ends;
        source.prepare_copy(&workload(70), true, &control).unwrap();
        target.prepare_copy(&workload(70), false, &control).unwrap();
        std::fs::remove_dir_all(&from).unwrap();
        let error = copy(source.as_mut(), target.as_mut(), &workload(70), &control).unwrap_err();
        assert!(matches!(error, ClientError::NotFound { .. }), "{error}");
        control.stop();
        std::fs::create_dir(&from).unwrap();
        let error = copy(source.as_mut(), target.as_mut(), &workload(70), &control).unwrap_err();
        assert!(matches!(error, ClientError::Stopped | ClientError::NotFound { .. }), "{error}");
        assert!(open_folder(&folder.path().join("none")).is_err());
    }
}
