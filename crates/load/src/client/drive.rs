//! Runs one repeat: threads with a connection each, slots that keep requests in flight, one clock.
//!
//! ```text
//!   SETUP --all connected--> WARM --warm-up over--> MEASURE --time over--> STOP      (slots finish what they began)
//!     |                        |                       |                    |
//!     +------ stopped by a person, or an error --------+--------------------+-----> ABORT (everything is dropped)
//! ```
//! The caller's thread holds the clock: it alone moves the phase, samples the counters and tells how far it is.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::contents::Contents;
use super::error::{ClientError, Outcome};
use super::histogram::Histogram;
use super::layout::{Layout, Shape};
use super::share::Target;
use super::{RunLimits, slots};
use crate::control::{Control, Progress};
use crate::workload::{Kind, Moment, Repeat, Side, Workload};

const MOMENT: Duration = Duration::from_millis(250);
const LOOK: Duration = Duration::from_millis(10);
const CONNECTIONS_MAX: u64 = 64;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(super) enum Phase {
    Setup,
    Warm,
    Measure,
    Stop,
    Abort,
}

/// What is to be done.
#[derive(Clone)]
pub(super) struct Job {
    pub workload: Workload,
    pub layout: Layout,
    /// The bench's own, with a `/` at its end.
    pub folder: String,
    pub contents: Arc<Contents>,
    pub generation: u64,
    /// See [`RunLimits::again`].
    pub again: bool,
    pub connections: Option<u32>,
}

impl Job {
    pub fn slots(&self) -> u64 {
        match self.workload.kind {
            Kind::Cat => 1,
            _ => u64::from(self.workload.depth.max(1)) * self.jobs(),
        }
    }

    pub fn jobs(&self) -> u64 {
        match self.workload.kind {
            Kind::Cat => 1,
            _ => u64::from(self.workload.jobs.max(1)),
        }
    }

    fn threads(&self) -> u64 {
        u64::from(self.connections.unwrap_or(self.workload.jobs)).clamp(1, CONNECTIONS_MAX).min(self.slots())
    }

    pub fn blocks_per_file(&self) -> u64 {
        (self.layout.file_bytes / self.workload.block_bytes).max(1)
    }

    /// How many units of work there are when everything is done once.
    fn units(&self) -> u64 {
        match self.layout.shape {
            Shape::Large => self.layout.files * self.blocks_per_file(),
            Shape::Small | Shape::Tree => self.layout.files,
        }
    }

    pub fn is_random(&self) -> bool {
        matches!(self.workload.kind, Kind::RandomRead | Kind::RandomWrite | Kind::RandomMixed)
    }

    pub fn writes(&self) -> bool {
        use Kind::*;
        matches!(self.workload.kind, Write | RandomWrite | RandomMixed | CreateFiles | CopyTreeIn)
    }

    /// Whether the time runs until the server has said that all of it is on its disks.
    pub fn flushes(&self) -> bool {
        self.writes() && self.workload.synced
    }

    /// Whether the end of the data is followed by its beginning.
    fn goes_round(&self) -> bool {
        self.again && matches!(self.workload.kind, Kind::Read | Kind::Cat | Kind::Write)
    }

    /// Whether everybody waits at the end of the data, until all of it is flushed (G3). An upload is so when it is answered.
    pub fn waits_for_flush(&self, streams: bool) -> bool {
        self.goes_round() && self.flushes() && !streams
    }

    /// What is done once cannot be warmed up; and a flush is also that of whatever was written to warm up.
    fn can_warm_up(&self) -> bool {
        use Kind::*;
        !self.flushes() && !matches!(self.workload.kind, CreateFiles | DeleteFiles | CopyTreeIn | CopyTreeOut)
    }
}

/// Where the next unit of work of a job comes from.
pub(super) struct Cursor {
    next: AtomicU64,
    limit: AtomicU64,
    pub first: u64,
    pub units: u64,
}

impl Cursor {
    pub fn take(&self) -> Option<u64> {
        let taken = self.next.fetch_add(1, Ordering::Relaxed);
        (taken < self.limit.load(Ordering::Relaxed)).then_some(taken)
    }

    pub fn has_more(&self) -> bool {
        self.next.load(Ordering::Relaxed) < self.limit.load(Ordering::Relaxed)
    }

    /// By one more pass over its part of the data. Those who found nothing left have counted on.
    fn extend(&self) {
        let limit = self.limit.load(Ordering::Relaxed);
        self.next.store(limit, Ordering::Relaxed);
        self.limit.store(limit.saturating_add(self.units), Ordering::Relaxed);
    }
}

/// On a cache line of its own: its thread writes it at every request.
#[repr(align(128))]
#[derive(Default)]
pub(super) struct Counter {
    pub operations: AtomicU64,
    pub bytes: AtomicU64,
    /// Blocks that were written.
    pub writes: AtomicU64,
}

#[derive(Default)]
struct Gate {
    ready: u64,
    /// Threads that flushed all of this pass over the data.
    flushed: u64,
    ended: u64,
    error: Option<ClientError>,
    last_end: Option<Instant>,
    latencies: [Histogram; 2],
    cpu_s: f64,
}

pub(super) struct Shared {
    pub job: Job,
    phase: AtomicU8,
    gate: Mutex<Gate>,
    changed: Condvar,
    start: tokio::sync::watch::Sender<bool>,
    /// Folders of a tree are made or listed before its files are touched.
    pub walked: tokio::sync::watch::Sender<bool>,
    /// How many passes over the data were flushed, and whether another one follows.
    passes: tokio::sync::watch::Sender<(u64, bool)>,
    pub counters: Vec<Counter>,
    pub cursors: Vec<Cursor>,
}

impl Shared {
    fn new(job: Job, threads: u64, endless: bool) -> Self {
        let parts = if job.layout.shape == Shape::Large && !job.is_random() { job.jobs() } else { 1 };
        let units = job.units();
        let cursor = |part: u64| {
            let (first, end) = (part * units / parts, (part + 1) * units / parts);
            let limit = if endless { u64::MAX } else { end - first };
            Cursor { next: AtomicU64::new(0), limit: AtomicU64::new(limit), first, units: end - first }
        };
        Self {
            phase: AtomicU8::new(Phase::Setup as u8),
            gate: Mutex::default(),
            changed: Condvar::new(),
            start: tokio::sync::watch::Sender::new(false),
            walked: tokio::sync::watch::Sender::new(false),
            passes: tokio::sync::watch::Sender::new((0, true)),
            counters: (0..threads).map(|_| Counter::default()).collect(),
            cursors: (0..parts).map(cursor).filter(|c| c.units > 0).collect(),
            job,
        }
    }

    pub fn phase(&self) -> Phase {
        match self.phase.load(Ordering::Relaxed) {
            0 => Phase::Setup,
            1 => Phase::Warm,
            2 => Phase::Measure,
            3 => Phase::Stop,
            _ => Phase::Abort,
        }
    }

    fn set_phase(&self, phase: Phase) {
        self.phase.fetch_max(phase as u8, Ordering::Relaxed);
    }

    fn gate(&self) -> MutexGuard<'_, Gate> {
        self.gate.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Until everybody is ready.
    pub async fn wait_for_start(&self) {
        self.gate().ready += 1;
        self.changed.notify_all();
        let mut start = self.start.subscribe();
        // The sender is in `self`: it cannot be gone.
        let _ = start.wait_for(|go| *go).await;
    }

    /// Whether all of it is written once more. Every thread asks when it has flushed, and waits for the others.
    pub async fn writes_again(&self) -> bool {
        let mut passes = self.passes.subscribe();
        let passed = passes.borrow_and_update().0;
        self.flushed();
        // The sender is in `self`: it cannot be gone.
        passes.wait_for(|(now, _)| *now > passed).await.is_ok_and(|next| next.1)
    }

    /// The last one of all begins the next pass: nobody takes anything meanwhile.
    fn flushed(&self) {
        let mut gate = self.gate();
        gate.flushed += 1;
        if gate.flushed < self.counters.len() as u64 {
            return;
        }
        gate.flushed = 0;
        let goes_on = self.phase() == Phase::Measure;
        self.cursors.iter().filter(|_| goes_on).for_each(Cursor::extend);
        self.passes.send_modify(|(passed, more)| (*passed, *more) = (*passed + 1, goes_on));
    }

    /// Operations, bytes, and how many of the operations wrote.
    fn totals(&self) -> (u64, u64, u64) {
        let sum = |of: fn(&Counter) -> &AtomicU64| self.counters.iter().map(|c| of(c).load(Ordering::Relaxed)).sum();
        // A write is counted after its operation: looked at before, there are never more of them.
        let writes: u64 = sum(|c| &c.writes);
        let operations: u64 = sum(|c| &c.operations);
        // Two counters of a running thread never belong to the same moment; of blocks one is enough.
        let bytes = match self.job.layout.shape {
            Shape::Large => operations * self.job.workload.block_bytes,
            Shape::Small | Shape::Tree => sum(|c| &c.bytes),
        };
        (operations, bytes, writes)
    }

    /// From now on it counts, and what has an end is done once more.
    fn begin_measuring(&self) {
        if !self.job.is_random() && !self.job.goes_round() {
            for cursor in &self.cursors {
                let now = cursor.next.load(Ordering::Relaxed);
                cursor.limit.store(now.saturating_add(cursor.units), Ordering::Relaxed);
            }
        }
        self.set_phase(Phase::Measure);
    }

    fn ended(&self, outcome: Outcome<slots::End>) {
        let mut gate = self.gate();
        gate.ended += 1;
        match outcome {
            Ok(end) => {
                gate.latencies.iter_mut().zip(&end.latencies).for_each(|(all, own)| all.add(own));
                gate.cpu_s += end.cpu_s;
                gate.last_end = gate.last_end.max(Some(end.at));
            }
            Err(error) => {
                // The first one tells the reason, the others are its consequence.
                gate.error.get_or_insert(error);
                self.set_phase(Phase::Abort);
            }
        }
        self.changed.notify_all();
    }
}

/// A runtime for one thread. Everything that a share starts runs on it too, so its time is that of the thread.
pub(super) fn block_on<R>(work: impl Future<Output = Outcome<R>>) -> Outcome<R> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime =
        runtime.map_err(|e| ClientError::Local { what: "a thread of the bench".into(), reason: e.to_string() })?;
    let outcome = tokio::task::LocalSet::new().block_on(&runtime, work);
    // A name that is just being looked up must not hold up a person who wants to stop.
    runtime.shutdown_background();
    outcome
}

pub(super) fn drive<T: Target>(target: &T, job: Job, limits: &RunLimits, control: &Control) -> Outcome<Repeat> {
    let threads = job.threads();
    let (warm_up, measure_max) = match job.can_warm_up() {
        true => (limits.warm_up, limits.measure_max),
        false if job.flushes() => (Duration::ZERO, limits.warm_up + limits.measure_max),
        false => (Duration::ZERO, limits.measure_max),
    };
    let endless = !warm_up.is_zero() || job.is_random() || (job.goes_round() && !job.waits_for_flush(T::STREAMS));
    let shared = Shared::new(job, threads, endless);
    std::thread::scope(|scope| {
        for index in 0..threads {
            let shared = &shared;
            let spawned = std::thread::Builder::new().name(format!("bench-{index}")).spawn_scoped(scope, move || {
                let work = std::panic::AssertUnwindSafe(|| T::block_on(slots::work(target, shared, index, threads)));
                let outcome = std::panic::catch_unwind(work).unwrap_or_else(|_| {
                    Err(ClientError::Local { what: T::ACCESS.into(), reason: "a defect in the bench's client".into() })
                });
                shared.ended(outcome);
            });
            if let Err(error) = spawned {
                let what = format!("thread {index} of {threads}");
                shared.ended(Err(ClientError::Local { what, reason: error.to_string() }));
            }
        }
        Watch { shared: &shared, control, threads, moments: Vec::new() }.run(warm_up, measure_max)
    })
}

struct Watch<'a> {
    shared: &'a Shared,
    control: &'a Control,
    threads: u64,
    moments: Vec<Moment>,
}

/// Counters at one time.
#[derive(Clone, Copy)]
struct Mark {
    at: Instant,
    operations: u64,
    bytes: u64,
    writes: u64,
}

impl Watch<'_> {
    fn mark(&self) -> Mark {
        let (operations, bytes, writes) = self.shared.totals();
        Mark { at: Instant::now(), operations, bytes, writes }
    }

    /// A short sleep, ended by whatever a worker says.
    fn look(&self, done: impl Fn(&Gate) -> bool) -> bool {
        let gate = self.shared.gate();
        if done(&gate) {
            return true;
        }
        let (gate, _) = self.shared.changed.wait_timeout(gate, LOOK).unwrap_or_else(PoisonError::into_inner);
        if self.control.is_stopped() {
            self.shared.set_phase(Phase::Abort);
        }
        done(&gate)
    }

    fn run(mut self, warm_up: Duration, measure_max: Duration) -> Outcome<Repeat> {
        let threads = self.threads;
        while !self.look(|gate| gate.ready + gate.ended >= threads || gate.ended == threads) {}
        let begun = self.mark();
        self.shared.set_phase(Phase::Warm);
        if warm_up.is_zero() {
            self.shared.set_phase(Phase::Measure);
        }
        self.shared.start.send_replace(true);
        let (from, until) = self.clock(begun, warm_up, measure_max);
        self.result(begun, from, until)
    }

    /// Where the part that counts began, and where it was cut off, if it was.
    fn clock(&mut self, begun: Mark, warm_up: Duration, measure_max: Duration) -> (Mark, Option<Mark>) {
        let (mut from, mut until, mut last) = (begun, None, begun);
        let threads = self.threads;
        while !self.look(|gate| gate.ended == threads) {
            let now = self.mark();
            if self.shared.phase() == Phase::Warm && now.at - begun.at >= warm_up {
                from = now;
                self.shared.begin_measuring();
            }
            if self.shared.phase() == Phase::Measure && now.at - from.at >= measure_max {
                until = Some(now);
                self.shared.set_phase(Phase::Stop);
            }
            if now.at - last.at >= MOMENT {
                self.moment(begun, last, now);
                self.tell(from, last, now, measure_max);
                last = now;
            }
        }
        let now = self.mark();
        // Less than that says more about the clock than about the share.
        if now.at - last.at >= MOMENT / 4 || self.moments.is_empty() {
            self.moment(begun, last, now);
        }
        (from, until)
    }

    fn moment(&mut self, begun: Mark, last: Mark, now: Mark) {
        let seconds = (now.at - last.at).as_secs_f64().max(1e-9);
        self.moments.push(Moment {
            at_ms: (now.at - begun.at).as_millis() as u64,
            bytes_per_s: (now.bytes - last.bytes) as f64 / seconds,
            operations_per_s: (now.operations - last.operations) as f64 / seconds,
        });
    }

    fn tell(&self, from: Mark, last: Mark, now: Mark, measure_max: Duration) {
        let seconds = (now.at - last.at).as_secs_f64().max(1e-9);
        let job = &self.shared.job;
        let by_time = (now.at - from.at).as_secs_f64() / measure_max.as_secs_f64().max(1e-9);
        let by_data = match job.is_random() || job.goes_round() {
            true => 0.0,
            false => (now.operations - from.operations) as f64 / job.units().max(1) as f64,
        };
        let measuring = self.shared.phase() > Phase::Warm;
        self.control.tell(Progress {
            done: measuring.then_some(by_time.max(by_data).clamp(0.0, 1.0)),
            bytes_per_s: (now.bytes - last.bytes) as f64 / seconds,
            operations_per_s: (now.operations - last.operations) as f64 / seconds,
        });
    }

    fn result(self, begun: Mark, from: Mark, until: Option<Mark>) -> Outcome<Repeat> {
        let mut gate = self.shared.gate();
        if self.control.is_stopped() {
            return Err(ClientError::Stopped);
        }
        if let Some(error) = gate.error.take() {
            return Err(error);
        }
        let now = self.mark();
        let finished = Mark { at: gate.last_end.unwrap_or(now.at), ..now };
        // The flush at the end belongs to what was written.
        let to = until.filter(|_| !self.shared.job.flushes()).unwrap_or(finished);
        let seconds = to.at.saturating_duration_since(from.at).as_secs_f64().max(1e-9);
        let (bytes, operations) = (to.bytes - from.bytes, to.operations - from.operations);
        let [reads, writes] = &gate.latencies;
        let mut latencies = reads.clone();
        latencies.add(writes);
        let written = (to.writes - from.writes).min(operations);
        let block = self.shared.job.workload.block_bytes;
        let side = |count: u64, latencies: &Histogram| {
            let mixed = self.shared.job.workload.kind == Kind::RandomMixed;
            mixed.then(|| Side::new(count * block, count, seconds, latencies.latency()))
        };
        debug_assert!(from.at >= begun.at);
        Ok(Repeat {
            seconds,
            bytes,
            operations,
            bytes_per_s: bytes as f64 / seconds,
            operations_per_s: operations as f64 / seconds,
            latency: latencies.latency(),
            read: side(operations - written, reads),
            write: side(written, writes),
            over_time: self.moments,
            load_cpu_s: Some(gate.cpu_s),
            ..Repeat::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::super::share::{Entry, Identity, Share};
    use super::*;
    use crate::workload::Caches;

    const FLUSH: Duration = Duration::from_millis(250);

    /// A server that takes everything into its memory at once, and needs a while to bring it to its disks.
    #[derive(Clone, Default)]
    struct Memory {
        taken: Arc<AtomicU64>,
        /// Places that were written and not flushed, and how often one of them was written then.
        dirty: Arc<Mutex<HashSet<(String, u64)>>>,
        overwritten: Arc<AtomicU64>,
    }

    impl Target for Memory {
        type Share = Self;
        const ACCESS: &'static str = "memory";

        async fn connect(&self, _: Option<&Workload>) -> Outcome<Self> {
            Ok(self.clone())
        }

        fn describe(&self) -> String {
            String::new()
        }
    }

    impl Share for Memory {
        type File = String;

        async fn make_folder(&self, _: &str) -> Outcome<()> {
            Ok(())
        }

        async fn list(&self, _: &str) -> Outcome<Vec<Entry>> {
            Ok(Vec::new())
        }

        async fn remove(&self, _: &str) -> Outcome<()> {
            Ok(())
        }

        async fn remove_folder(&self, _: &str) -> Outcome<()> {
            Ok(())
        }

        async fn size(&self, _: &str) -> Outcome<u64> {
            Ok(0)
        }

        async fn create(&self, path: &str) -> Outcome<String> {
            Ok(path.to_owned())
        }

        async fn open(&self, path: &str, _: bool) -> Outcome<String> {
            Ok(path.to_owned())
        }

        async fn read(&self, _: &String, _: u64, _: u64, _: Identity<'_>) -> Outcome<()> {
            tokio::task::yield_now().await;
            Ok(())
        }

        async fn write(&self, file: &String, at: u64, len: u64, _: Identity<'_>) -> Outcome<()> {
            self.taken.fetch_add(len, Ordering::Relaxed);
            let new = self.dirty.lock().unwrap().insert((file.clone(), at));
            self.overwritten.fetch_add(u64::from(!new), Ordering::Relaxed);
            tokio::task::yield_now().await;
            Ok(())
        }

        async fn flush(&self, file: &String, _: Identity<'_>) -> Outcome<()> {
            let flushed: Vec<_> = self.dirty.lock().unwrap().iter().filter(|(of, _)| of == file).cloned().collect();
            tokio::time::sleep(FLUSH).await;
            let mut dirty = self.dirty.lock().unwrap();
            dirty.retain(|place| !flushed.contains(place));
            Ok(())
        }

        async fn close(&self, _: String) -> Outcome<()> {
            Ok(())
        }
    }

    const DATA_BYTES: u64 = 64 << 20;

    fn driven(memory: &Memory, kind: Kind, block_bytes: u64, limits: &RunLimits) -> Repeat {
        let workload = Workload {
            kind,
            block_bytes,
            depth: 4,
            jobs: 2,
            data_bytes: DATA_BYTES,
            files: 2,
            caches: Caches::Unknown,
            compressible: false,
            synced: matches!(kind, Kind::Write | Kind::RandomWrite),
        };
        let layout = Layout::of(&workload, "memory").unwrap();
        let contents = Arc::new(Contents::new(1, false, false));
        let (folder, again) = (String::new(), limits.again);
        let job = Job { workload, layout, folder, contents, generation: 1, again, connections: None };
        drive(memory, job, limits, &Control::new(|_| {})).unwrap()
    }

    /// However fast a server is: what is over at once says nothing.
    #[test]
    fn sequential_access_lasts_as_long_as_is_wanted() {
        let limits =
            RunLimits { warm_up: Duration::from_millis(50), measure_max: Duration::from_millis(1200), again: true };
        for kind in [Kind::Read, Kind::Cat, Kind::Write] {
            let memory = Memory::default();
            let found = driven(&memory, kind, 1 << 20, &limits);
            assert!(found.seconds >= 1.2 && found.bytes > DATA_BYTES, "{kind:?}: {found:?}");
            // Nobody writes for the second time what another one has not flushed yet.
            assert_eq!(memory.overwritten.load(Ordering::Relaxed), 0, "{kind:?}");
            assert!(kind != Kind::Write || found.bytes == memory.taken.load(Ordering::Relaxed), "{found:?}");
            assert!(memory.dirty.lock().unwrap().is_empty(), "{kind:?}");
        }
        let once = driven(
            &Memory::default(),
            Kind::Read,
            1 << 20,
            &RunLimits { warm_up: Duration::ZERO, again: false, ..limits },
        );
        assert_eq!(once.bytes, DATA_BYTES);
    }

    #[test]
    fn what_was_written_counts_when_it_is_flushed() {
        let ms = Duration::from_millis;
        for (kind, warm_up) in [(Kind::Write, 0), (Kind::Write, 50), (Kind::RandomWrite, 50)] {
            let memory = Memory::default();
            let limits = RunLimits { warm_up: ms(warm_up), measure_max: ms(100), again: true };
            let found = driven(&memory, kind, 4096, &limits);
            // Neither more nor less than what was flushed, and the flush of both files is in the time.
            assert_eq!(found.bytes, memory.taken.load(Ordering::Relaxed), "{kind:?}");
            assert!(found.seconds >= 2.0 * FLUSH.as_secs_f64(), "{kind:?}: {found:?}");
            assert!((found.bytes_per_s - found.bytes as f64 / found.seconds).abs() < 1.0, "{kind:?}");
        }
    }
}
