//! The bench that runs within the daemon, for the page and the API.
//!
//! - `benches.one_at_a_time`: two benches would measure each other.
//! - `benches.taken_away`: a bench that is stopped, and a daemon that stops, remove what the bench wrote. A daemon waits for that for
//!   [`END_TIME_MAX`]; then what can be removed at once is removed (`Control::abandon`).
//! - `benches.bounded`: of results and notes the newest [`LINES_MAX`] are shown while it runs. The kept result has all.

use std::sync::Arc;
use std::time::{Duration, Instant};

use larder_api::{BenchEnded, BenchRunning, BenchState, Failure};
use larder_base::task;
use larder_load::{Control, Note};
use larder_measure::bench::Watch;
use larder_measure::bench::result::Run;
use parking_lot::Mutex;

use crate::bench_progress::{State, line};

/// More than any preset has.
const LINES_MAX: usize = 500;
/// Removing files takes a moment; a disk that hangs would keep the daemon forever.
const END_TIME_MAX: Duration = Duration::from_secs(10);

pub(super) struct Running {
    title: String,
    preset: String,
    control: Arc<Control>,
    watched: Arc<Watched>,
}

#[derive(Default)]
struct Inner {
    running: Option<Running>,
    ended: Option<BenchEnded>,
}

#[derive(Default)]
pub struct Benches {
    inner: Mutex<Inner>,
    /// Told when one ends.
    over: tokio::sync::Notify,
}

/// What a bench tells while it runs.
pub(super) struct Watched {
    state: Mutex<State>,
    lines: Mutex<(Vec<String>, Vec<String>)>,
}

fn push(lines: &mut Vec<String>, text: String) {
    if lines.len() == LINES_MAX {
        lines.remove(0);
    }
    lines.push(text);
}

impl Watch for Watched {
    fn planned(&self, seconds: f64) {
        self.state.lock().planned(seconds);
    }

    fn began(&self, what: &str, repeat: u32, repeats: u32, seconds: f64) {
        self.state.lock().began(what, repeat, repeats, seconds);
    }

    fn ended(&self, run: &Run) {
        push(&mut self.lines.lock().0, line(run));
    }

    fn noted(&self, note: &Note) {
        push(&mut self.lines.lock().1, note.text.clone());
    }
}

impl Running {
    /// One that is about to begin, what stops it, and what it tells.
    pub(super) fn new(title: String, preset: String) -> (Self, Arc<Control>, Arc<Watched>) {
        let watched = Arc::new(Watched { state: Mutex::new(State::new(Instant::now())), lines: Mutex::default() });
        let telling = watched.clone();
        let control = Arc::new(Control::new(move |progress| telling.state.lock().live = progress));
        (Self { title, preset, control: control.clone(), watched: watched.clone() }, control, watched)
    }

    fn shown(&self) -> BenchRunning {
        let now = Instant::now();
        let state = self.watched.state.lock();
        let (part, left_s) = state.part_and_left(now);
        let (results, notes) = self.watched.lines.lock().clone();
        BenchRunning {
            title: self.title.clone(),
            preset: self.preset.clone(),
            elapsed_s: state.elapsed_s(now),
            left_s,
            percent: (part * 100.0).clamp(0.0, 100.0) as u8,
            workload: state.what.clone(),
            repeat: state.repeat.0,
            repeats: state.repeat.1,
            bytes_per_s: state.live.bytes_per_s,
            operations_per_s: state.live.operations_per_s,
            stopping: self.control.is_stopped(),
            results,
            notes,
        }
    }
}

impl Benches {
    pub(super) fn state(&self) -> BenchState {
        let inner = self.inner.lock();
        BenchState { running: inner.running.as_ref().map(Running::shown), ended: inner.ended.clone() }
    }

    pub(super) fn stop(&self) -> BenchState {
        if let Some(running) = &self.inner.lock().running {
            running.control.stop();
        }
        self.state()
    }

    /// `benches.one_at_a_time`
    pub(super) fn begin(&self, running: Running) -> Result<(), Failure> {
        let mut inner = self.inner.lock();
        if let Some(other) = &inner.running {
            let text = format!("the bench of {} runs: two would measure each other", other.title);
            return Err(Failure::busy(text).action("wait until it is done, or stop it"));
        }
        inner.running = Some(running);
        Ok(())
    }

    pub(super) fn end_with(&self, ended: BenchEnded) {
        let mut inner = self.inner.lock();
        (inner.running, inner.ended) = (None, Some(ended));
        self.over.notify_waiters();
    }

    /// The daemon stops (`benches.taken_away`).
    pub(super) async fn end(&self) {
        let control = self.inner.lock().running.as_ref().map(|running| running.control.clone());
        let Some(control) = control else { return };
        control.stop();
        let over = async {
            loop {
                let told = self.over.notified();
                if self.inner.lock().running.is_none() {
                    return;
                }
                // A bench that ended between the two looks told nobody.
                let _ = tokio::time::timeout(Duration::from_millis(200), told).await;
            }
        };
        if tokio::time::timeout(END_TIME_MAX, over).await.is_err() {
            let left = task::blocking(move || control.abandon()).await.unwrap_or_default();
            left.iter().for_each(|text| tracing::warn!("the bench was ended before it could end in order: {text}"));
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use larder_api::FailureKind;

    use super::*;

    #[test]
    fn one_runs_at_a_time() {
        let benches = Benches::default();
        let running = || Running::new("a".to_owned(), "quick".to_owned()).0;
        let ended = BenchEnded { title: "a".to_owned(), at_ms: 1, id: None, fault: None, action: None };
        benches.begin(running()).unwrap();
        assert_eq!(benches.begin(running()).unwrap_err().kind, FailureKind::Busy);
        assert!(benches.stop().running.unwrap().stopping);
        benches.end_with(ended);
        let state = benches.state();
        assert!(state.running.is_none() && state.ended.unwrap().id.is_none());
        benches.begin(running()).unwrap();
    }
}
