//! The work of one thread of the load: connect, open, keep its slots busy, flush.

use std::cell::{Cell, RefCell};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use futures::stream::{FuturesUnordered, TryStreamExt};
use rustix::time::{ClockId, clock_gettime};

use super::contents::mix;
use super::error::{ClientError, Outcome};
use super::histogram::Histogram;
use super::layout::Shape;
use super::share::{Identity, Share, Target};
use super::shared::{Cursor, End, Phase, Shared};
use crate::workload::Kind;

const ABORT_LOOK: Duration = Duration::from_millis(20);
/// Prime and larger than any number of files: multiplying with it visits each file once, out of order.
const STRIDE: u64 = 2_654_435_761;

fn cpu_s() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// One thread's side of [`Shared`].
struct Worker<'a> {
    shared: &'a Shared,
    index: u64,
    latencies: RefCell<[Histogram; 2]>,
    cpu_at_begin_s: Cell<Option<f64>>,
}

pub(super) async fn work<T: Target>(target: &T, shared: &Shared, index: u64, threads: u64) -> Outcome<End> {
    let worker = Worker { shared, index, latencies: RefCell::default(), cpu_at_begin_s: Cell::new(None) };
    let at = tokio::select! {
        outcome = worker.run::<T>(target, threads) => outcome?,
        () = aborted::<T>(shared) => return Err(ClientError::Stopped),
    };
    let cpu_s = worker.cpu_at_begin_s.get().map_or(0.0, |begin| cpu_s() - begin);
    Ok(End { at, latencies: worker.latencies.into_inner(), cpu_s })
}

async fn aborted<T: Target>(shared: &Shared) {
    while shared.phase() != Phase::Abort {
        T::sleep(ABORT_LOOK).await;
    }
}

impl Worker<'_> {
    async fn run<T: Target>(&self, target: &T, threads: u64) -> Outcome<Instant> {
        let job = &self.shared.job;
        let share = target.connect(Some(&job.workload)).await?;
        let streams = T::STREAMS && job.workload.kind == Kind::Write;
        let files = match job.layout.shape == Shape::Large && !streams {
            true => self.open(&share).await?,
            false => Vec::new(),
        };
        self.shared.wait_for_start().await;
        if self.shared.phase() == Phase::Measure {
            self.cpu_at_begin_s.set(Some(cpu_s()));
        }
        if self.index == 0 && job.layout.shape == Shape::Tree {
            self.walk(&share).await?;
        }
        let slots = if streams { job.jobs() } else { job.slots() };
        let mut at;
        loop {
            let own = (self.index..slots).step_by(threads as usize);
            let running: FuturesUnordered<_> = own.map(|n| self.slot(&share, &files, n, streams)).collect();
            running.try_collect::<()>().await?;
            self.flush(&share, &files).await?;
            at = Instant::now();
            if !job.waits_for_flush(streams) || !self.shared.writes_again().await {
                break;
            }
        }
        for file in files {
            share.close(file).await?;
        }
        Ok(at)
    }

    async fn flush<S: Share>(&self, share: &S, files: &[S::File]) -> Outcome<()> {
        if self.shared.job.flushes() {
            for (number, file) in (0..).zip(files) {
                share.flush(file, self.identity(number, 0)).await?;
            }
        }
        Ok(())
    }

    async fn open<S: Share>(&self, share: &S) -> Outcome<Vec<S::File>> {
        let job = &self.shared.job;
        let mut files = Vec::new();
        for file in 0..job.layout.files {
            files.push(share.open(&self.path(file), job.writes()).await?);
        }
        Ok(files)
    }

    async fn slot<S: Share>(&self, share: &S, files: &[S::File], number: u64, streams: bool) -> Outcome<()> {
        match self.shared.job.layout.shape {
            Shape::Large if streams => self.stream(share, number).await,
            Shape::Large => self.blocks(share, files, number).await,
            Shape::Small | Shape::Tree => self.files(share).await,
        }
    }

    fn path(&self, file: u64) -> String {
        format!("{}{}", self.shared.job.folder, self.shared.job.layout.name(file))
    }

    fn identity(&self, file: u64, pass: u64) -> Identity<'_> {
        let job = &self.shared.job;
        Identity { contents: &job.contents, file, generation: job.generation + pass }
    }

    fn goes_on(&self) -> bool {
        self.shared.phase() < Phase::Stop
    }

    fn count(&self, operations: u64, bytes: u64) {
        if let Some(counter) = self.shared.counters.get(self.index as usize) {
            counter.operations.fetch_add(operations, Ordering::Relaxed);
            counter.bytes.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// One request, begun at `started`; the time now.
    fn timed(&self, started: Instant, write: bool) -> Instant {
        let now = Instant::now();
        if self.shared.phase() == Phase::Measure {
            if self.cpu_at_begin_s.get().is_none() {
                self.cpu_at_begin_s.set(Some(cpu_s()));
            }
            let [reads, writes] = &mut *self.latencies.borrow_mut();
            if write { writes } else { reads }.record(now - started);
        }
        now
    }

    async fn blocks<S: Share>(&self, share: &S, files: &[S::File], number: u64) -> Outcome<()> {
        let job = &self.shared.job;
        let block = job.workload.block_bytes;
        let Some(cursor) = self.shared.cursors.get(number as usize % self.shared.cursors.len().max(1)) else {
            return Ok(());
        };
        let mut started = Instant::now();
        while self.goes_on() {
            let Some(taken) = cursor.take() else { break };
            let (unit, pass) = self.place(cursor, taken);
            let (file, at) = (unit / job.blocks_per_file(), unit % job.blocks_per_file() * block);
            let Some(handle) = files.get(file as usize) else { break };
            let identity = self.identity(file, pass);
            let write = match job.workload.kind {
                Kind::RandomMixed => mix(taken).is_multiple_of(4),
                _ => job.writes(),
            };
            match write {
                true => share.write(handle, at, block, identity).await?,
                false => share.read(handle, at, block, identity).await?,
            }
            self.count(1, block);
            if write && let Some(counter) = self.shared.counters.get(self.index as usize) {
                counter.writes.fetch_add(1, Ordering::Relaxed);
            }
            started = self.timed(started, write);
        }
        Ok(())
    }

    /// Which block a taken number is, and in which pass over the data.
    fn place(&self, cursor: &Cursor, taken: u64) -> (u64, u64) {
        match self.shared.job.is_random() {
            true => (mix(taken ^ (self.shared.job.generation << 48)) % cursor.units, 0),
            false => (cursor.first + taken % cursor.units, taken / cursor.units),
        }
    }

    /// Uploads whole files, one after the other, the last one to its end: what is not answered is not on a disk.
    async fn stream<S: Share>(&self, share: &S, number: u64) -> Outcome<()> {
        let job = &self.shared.job;
        let Some(cursor) = self.shared.cursors.get(number as usize) else { return Ok(()) };
        for pass in 0.. {
            for file in (number..job.layout.files).step_by(job.jobs() as usize) {
                if !self.goes_on() {
                    return Ok(());
                }
                let told = |bytes| {
                    self.count(1, bytes);
                    let _ = cursor.take();
                    true
                };
                let len = job.blocks_per_file() * job.workload.block_bytes;
                share
                    .put(
                        &self.path(file),
                        len,
                        job.workload.block_bytes,
                        job.workload.synced,
                        self.identity(file, pass),
                        &told,
                    )
                    .await?;
            }
            if !cursor.has_more() {
                break;
            }
        }
        Ok(())
    }

    async fn files<S: Share>(&self, share: &S) -> Outcome<()> {
        let job = &self.shared.job;
        if job.layout.shape == Shape::Tree {
            let mut walked = self.shared.walked.subscribe();
            let _ = walked.wait_for(|done| *done).await;
        }
        let Some(cursor) = self.shared.cursors.first() else { return Ok(()) };
        let mut started = Instant::now();
        while self.goes_on() {
            let Some(taken) = cursor.take() else { break };
            let in_order = matches!(job.workload.kind, Kind::CreateFiles | Kind::CopyTreeIn);
            let file = if in_order { taken % cursor.units } else { taken % cursor.units * STRIDE % cursor.units };
            let bytes = self.file(share, file).await?;
            self.count(1, bytes);
            started = self.timed(started, false);
        }
        Ok(())
    }

    /// Bytes that are not counted yet.
    async fn file<S: Share>(&self, share: &S, file: u64) -> Outcome<u64> {
        let job = &self.shared.job;
        let (path, len, block) = (self.path(file), job.layout.bytes(file), job.workload.block_bytes);
        match job.workload.kind {
            Kind::CreateFiles | Kind::CopyTreeIn => {
                let told = |bytes| {
                    self.count(0, bytes);
                    true
                };
                share.put(&path, len, block, job.workload.synced, self.identity(file, 0), &told).await?;
                Ok(0)
            }
            Kind::ReadFiles | Kind::CopyTreeOut => {
                share.get(&path, len, block, self.identity(file, 0)).await.map(|()| len)
            }
            Kind::StatFiles => match share.size(&path).await? {
                size if size == len => Ok(0),
                size => Err(ClientError::WrongData { file: path, offset: size.min(len) }),
            },
            _ => share.remove(&path).await.map(|()| 0),
        }
    }

    /// The folders of a tree: made on the way in, listed on the way out.
    async fn walk<S: Share>(&self, share: &S) -> Outcome<()> {
        let job = &self.shared.job;
        for folder in job.layout.folders() {
            let path = format!("{}{folder}", job.folder);
            match job.workload.kind {
                Kind::CopyTreeIn => share.make_folder(&path).await?,
                _ => drop(share.list(&path).await?),
            }
        }
        self.shared.walked.send_replace(true);
        Ok(())
    }
}
