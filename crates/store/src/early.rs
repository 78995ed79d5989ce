//! The gate before answers from a local journal: `owner.said_before_early`.
//!
//! ```text
//!              try_rest                       open
//!   Open  ------------------> Shut  ------------------> Open         end: Ended, from any state, for good
//!          then `at_rest`            a record that is
//!          is written                not is stored
//! ```
//!
//! An entry is among those that wait for the bucket before it looks at the gate. So once the gate is shut, what has passed it either
//! waits still, and there is no rest, or is in the bucket.

use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::Instant;

/// A journal in which nothing has begun for so long may rest. Shorter, and clients that work now and then would wait for the record
/// at every other change; longer, and an idle owner that dies leaves its standby in doubt for longer.
const QUIET: Duration = Duration::from_secs(2);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Gate {
    /// Answers wait for the bucket, or for a record that says what may be missing.
    #[default]
    Shut,
    /// Answers leave from the journal.
    Open,
    /// Never again.
    Ended,
}

/// The gate. It begins shut.
pub struct Early {
    gate: watch::Sender<Gate>,
    wanted: Notify,
    begun: parking_lot::Mutex<Option<Instant>>,
}

impl Default for Early {
    fn default() -> Self {
        Self { gate: watch::Sender::default(), wanted: Notify::new(), begun: parking_lot::Mutex::default() }
    }
}

impl Early {
    /// One that nobody shuts: for a log that has no owner.
    pub(crate) fn unowned() -> Self {
        let early = Self::default();
        early.open();
        early
    }

    /// An entry waits for the bucket from now on: the gate should be open.
    pub(crate) fn begun(&self) {
        *self.begun.lock() = Some(Instant::now());
        if *self.gate.borrow() == Gate::Shut {
            self.wanted.notify_one();
        }
    }

    /// Waits until an answer waits for the gate.
    pub(crate) async fn wanted(&self) {
        self.wanted.notified().await;
    }

    /// Waits until answers may leave.
    pub(crate) async fn opened(&self) {
        let mut gate = self.gate.subscribe();
        if gate.wait_for(|gate| *gate == Gate::Open).await.is_err() {
            std::future::pending().await
        }
    }

    /// A record is stored that says that changes may be missing, and none that says otherwise is on its way.
    pub(crate) fn open(&self) {
        self.set(Gate::Open);
    }

    /// Nothing leaves from the journal any more.
    pub(crate) fn end(&self) {
        self.gate.send_replace(Gate::Ended);
    }

    /// Shuts the gate if nobody works and the bucket has everything. If so, a record at rest may be written.
    pub(crate) fn try_rest(&self, is_drained: impl Fn() -> bool) -> bool {
        let is_quiet = self.begun.lock().is_none_or(|begun| begun.elapsed() >= QUIET);
        if !is_quiet || !is_drained() {
            return false;
        }
        let was_open = *self.gate.borrow() == Gate::Open;
        self.set(Gate::Shut);
        if is_drained() {
            return true;
        }
        // An entry came in between. The record says still what it said.
        if was_open {
            self.set(Gate::Open);
        }
        false
    }

    fn set(&self, to: Gate) {
        self.gate.send_if_modified(|gate| {
            let differs = *gate != Gate::Ended && *gate != to;
            if differs {
                *gate = to;
            }
            differs
        });
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use futures::FutureExt;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn who_passes_the_gate() {
        let early = Early::default();
        let passes = || early.opened().now_or_never().is_some();
        assert!(!passes() && early.try_rest(|| true), "it begins shut");
        early.begun();
        assert!(early.wanted().now_or_never().is_some(), "an entry wants it open");
        early.open();
        early.begun();
        assert!(passes() && early.wanted().now_or_never().is_none(), "it is open: nobody asks for more");
        assert!(!early.try_rest(|| true) && passes(), "somebody works");
        tokio::time::advance(QUIET).await;
        assert!(!early.try_rest(|| false) && passes(), "the bucket does not have everything");
        let asked = Cell::new(0);
        let comes_between = || asked.replace(asked.get() + 1) == 0;
        assert!(!early.try_rest(comes_between) && passes(), "an entry came after the first look");
        assert!(early.try_rest(|| true) && !passes());
        early.open();
        early.end();
        early.open();
        assert!(!passes(), "never again");
    }
}
