//! Between whoever runs a bench and what makes the load: stop, and how far it is.

use std::sync::atomic::{AtomicBool, Ordering};

use super::leftovers::Leftovers;

/// How far one repeat is.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Progress {
    /// 0 to 1; `None` where nobody can know.
    pub done: Option<f64>,
    pub bytes_per_s: f64,
    pub operations_per_s: f64,
}

/// Shared by all threads of a bench.
pub struct Control {
    stop: AtomicBool,
    leftovers: Leftovers,
    told: Box<dyn Fn(Progress) + Send + Sync>,
}

impl Control {
    /// `told` is called a few times a second, from any thread.
    pub fn new(told: impl Fn(Progress) + Send + Sync + 'static) -> Self {
        Self { stop: AtomicBool::new(false), leftovers: Leftovers::default(), told: Box::new(told) }
    }

    pub fn stop(&self) {
        self.stop.store(true, Ordering::Release);
    }

    /// Every worker asks at least ten times a second; once stopped, it ends and cleans up (`bench.data_taken_away`).
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// Takes away at once what can be, for whoever will not wait for the work to end; then there is only leaving. What
    /// may be left, in words.
    pub fn abandon(&self) -> Vec<String> {
        self.leftovers.abandon()
    }

    pub fn leftovers(&self) -> &Leftovers {
        &self.leftovers
    }

    pub fn tell(&self, progress: Progress) {
        (self.told)(progress);
    }
}
