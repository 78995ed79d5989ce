//! Whether the store answers.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// What is wrong with a store now.
#[derive(Clone, Debug)]
pub struct Trouble {
    /// For how long.
    pub lasts: Duration,
    /// The newest error.
    pub why: String,
}

/// Whether the store answers; changed by each request.
#[derive(Debug, Default)]
pub struct Health(Mutex<Option<(Instant, String)>>);

impl Health {
    /// What is wrong; `None`: it answers.
    pub fn trouble(&self) -> Option<Trouble> {
        self.0.lock().as_ref().map(|(since, why)| Trouble { lasts: since.elapsed(), why: why.clone() })
    }

    pub(crate) fn answered(&self) {
        let Some((since, _)) = self.0.lock().take() else { return };
        tracing::info!("the store answers again, after {} s", since.elapsed().as_secs());
    }

    pub(crate) fn failed(&self, why: &str) {
        let mut state = self.0.lock();
        let since = state.as_ref().map_or_else(Instant::now, |(since, _)| *since);
        if state.is_none() {
            tracing::warn!("the store does not answer: {why}; writes wait");
        }
        *state = Some((since, why.to_owned()));
    }
}
