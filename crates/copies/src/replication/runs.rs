//! What the daemon remembers of each way that a volume is replicated.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use chrono::Utc;
use larder_api::{Failure, ReplicationStatus, SentSnapshot};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::courier::Progress;
use larder_config::{Place, ReplicateConfig, VolumeName};
use larder_document::{Kind, Standings};

/// A receiver that has taken nothing for so long is mentioned. A piece takes less on a line that is in use, and disks that wake do, too.
const SILENT_MIN: Duration = Duration::from_secs(15);
const AGAIN_MIN: Duration = Duration::from_secs(60);
const AGAIN_MAX: Duration = Duration::from_secs(3600);

/// A volume and the place of its replica.
pub(super) type Way = (VolumeName, Place);

/// What the daemon remembers of each way.
pub struct Runs {
    standings: Standings,
    runs: Mutex<BTreeMap<Way, Run>>,
    wake: Notify,
    /// A run has ended.
    ended: Notify,
}

#[derive(Clone, Default)]
struct Run {
    progress: Arc<Mutex<Progress>>,
    running: bool,
    fault: Option<Failure>,
    /// Failures in a row.
    tries: u32,
    again: Option<Instant>,
    /// Something may have changed since the last run began.
    woken: bool,
}

impl Runs {
    pub fn new(standings: &Standings) -> Self {
        let (runs, wake, ended) = Default::default();
        Self { standings: standings.clone(), runs, wake, ended }
    }

    pub(super) async fn woken(&self) {
        self.wake.notified().await;
    }

    /// Lets every way look again now: there is a snapshot, or volumes, keys or the configuration changed.
    pub fn wake(&self) {
        self.runs.lock().values_mut().for_each(|run| run.woken = true);
        self.wake.notify_one();
    }

    /// Whether the run began: one way is gone by one run at a time.
    pub(super) fn begin(&self, way: &Way) -> Option<Arc<Mutex<Progress>>> {
        let mut runs = self.runs.lock();
        let run = runs.entry(way.clone()).or_default();
        if run.running {
            return None;
        }
        (run.running, run.woken) = (true, false);
        Some(Arc::clone(&run.progress))
    }

    /// As [`Runs::begin`], after the run that goes on.
    pub(super) async fn begin_in_turn(&self, way: &Way) -> Arc<Mutex<Progress>> {
        loop {
            let mut ended = std::pin::pin!(self.ended.notified());
            ended.as_mut().enable();
            match self.begin(way) {
                Some(progress) => return progress,
                None => ended.await,
            }
        }
    }

    /// The run ended because its volume is closed for a moment, or another machine's. Another begins when it is back.
    pub(super) fn rest(&self, way: &Way) {
        if let Some(run) = self.runs.lock().get_mut(way) {
            (run.running, run.woken) = (false, true);
            let mut progress = run.progress.lock();
            (progress.sending, progress.moved) = (None, None);
        }
        self.wake.notify_one();
        self.ended.notify_waiters();
    }

    /// The outcome of a run (`replication.tried_again`).
    pub(super) fn end(&self, way: &Way, outcome: &Result<u64, Failure>) {
        let standing = outcome.as_ref().map(drop).map_err(Failure::clone);
        self.standings.set(Kind::Replica, &thing(way), standing);
        let mut runs = self.runs.lock();
        let run = runs.entry(way.clone()).or_default();
        run.running = false;
        let mut progress = run.progress.lock();
        (progress.sending, progress.moved) = (None, None);
        drop(progress);
        match outcome {
            Ok(_) => {
                (run.fault, run.tries, run.again) = (None, 0, None);
            }
            Err(failure) => {
                run.fault = Some(failure.clone());
                run.progress.lock().behind = None;
                // One that came early, for a snapshot or because somebody asked, does not put the next one off.
                let now = Instant::now();
                if run.again.is_none_or(|at| at <= now) {
                    let wait = AGAIN_MIN.saturating_mul(1 << run.tries.min(6)).min(AGAIN_MAX);
                    (run.tries, run.again) = (run.tries + 1, Some(now + wait));
                }
            }
        }
        self.wake.notify_one();
        self.ended.notify_waiters();
    }

    /// Those whose time has come.
    pub(super) fn due(&self, ways: &[ReplicateConfig]) -> Vec<ReplicateConfig> {
        let mut runs = self.runs.lock();
        // One that somebody asked for is remembered while it goes on.
        runs.retain(|way, run| run.running || ways.iter().any(|one| (&one.volume, &one.to) == (&way.0, &way.1)));
        self.standings.keep_only(Kind::Replica, |name| runs.keys().any(|way| thing(way) == name));
        let now = Instant::now();
        let is_due = |one: &&ReplicateConfig| {
            // It is new: nothing is known of it.
            let Some(run) = runs.get(&(one.volume.clone(), one.to.clone())) else { return true };
            !run.running && (run.woken || run.again.is_some_and(|at| at <= now))
        };
        ways.iter().filter(is_due).cloned().collect()
    }

    pub(super) fn next(&self) -> Option<Instant> {
        self.runs.lock().values().filter(|run| !run.running).filter_map(|run| run.again).min()
    }

    pub(super) fn running(&self) -> Vec<Way> {
        self.runs.lock().iter().filter(|(_, run)| run.running).map(|(way, _)| way.clone()).collect()
    }

    /// Waits until no run is under way on these, for `patience` at most.
    pub(super) async fn settled(&self, ways: &[Way], patience: Duration) {
        let settled = async {
            loop {
                let ended = self.ended.notified();
                tokio::pin!(ended);
                // A run that ends from now on is not missed.
                ended.as_mut().enable();
                if self.running().iter().all(|way| !ways.contains(way)) {
                    return;
                }
                ended.await;
            }
        };
        // One that sends much goes on: what it sends was there before.
        let _ = tokio::time::timeout(patience, settled).await;
    }

    pub(super) fn status(&self, way: &Way, named: Option<&ReplicateConfig>) -> ReplicationStatus {
        let run = self.runs.lock().get(way).cloned().unwrap_or_default();
        let progress = run.progress.lock().clone();
        let now_ms = u64::try_from(Utc::now().timestamp_millis()).unwrap_or(0);
        let time_ms = |sent: &SentSnapshot| u64::try_from(sent.created_ns / 1_000_000).unwrap_or(0);
        let newest_ms = progress.newest.as_ref().map(time_ms);
        let age_max_ms = named.map_or(u64::MAX, |one| u64::from(one.late_after_hours) * 3_600_000);
        let is_old = newest_ms.is_some_and(|at| now_ms.saturating_sub(at) > age_max_ms);
        let silence = progress.moved.map(|at| std::time::Instant::now().saturating_duration_since(at));
        let silence = silence.filter(|silence| run.running && progress.sending.is_some() && *silence >= SILENT_MIN);
        let waits = run.again.map(|at| at.saturating_duration_since(Instant::now()).as_millis() as u64);
        ReplicationStatus {
            volume: way.0.to_string(),
            to: way.1.to_string(),
            newest: progress.newest.map(|sent| sent.name),
            newest_ms,
            behind: progress.behind,
            sending: progress.sending,
            sent_bytes: progress.sent_bytes,
            total_bytes: progress.total_bytes,
            silent_ms: silence.map(|silence| silence.as_millis() as u64),
            late: is_old && (run.fault.is_some() || progress.behind.is_none_or(|behind| behind > 0)),
            fault: run.fault.as_ref().map(told),
            again_ms: waits.filter(|_| !run.running).map(|wait| now_ms + wait),
        }
    }
}

/// The name of a way among the standings.
fn thing((volume, to): &Way) -> String {
    format!("{volume} to {to}")
}

fn told(failure: &Failure) -> String {
    match &failure.action {
        Some(action) => format!("{}; {action}", failure.message),
        None => failure.message.clone(),
    }
}
