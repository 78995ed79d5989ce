//! Runs one repeat: threads with a connection each, slots that keep requests in flight, one clock.
//!
//! ```text
//!   SETUP --all connected--> WARM --warm-up over--> MEASURE --time over--> STOP      (slots finish what they began)
//!     |                        |                       |                    |
//!     +------ stopped by a person, or an error --------+--------------------+-----> ABORT (everything is dropped)
//! ```
//! The caller's thread holds the clock: it alone moves the phase, samples the counters and tells how far it is.

use std::sync::PoisonError;
use std::time::{Duration, Instant};

use super::error::{ClientError, Outcome};
use super::histogram::Histogram;
use super::job::Job;
use super::share::Target;
use super::shared::{Gate, Phase, Shared};
use super::slots;
use crate::control::{Control, Progress};
use crate::workload::{Kind, Moment, Repeat, RunLimits, Side};

const MOMENT: Duration = Duration::from_millis(250);
const LOOK: Duration = Duration::from_millis(10);
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

    /// The beginning of the part that counts, and its end if it was cut off.
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
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::sync::{Arc, Mutex};

    use super::super::contents::Contents;
    use super::super::layout::Layout;
    use super::super::share::{Entry, Identity, Share};
    use super::*;
    use crate::workload::{Caches, Workload};

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
