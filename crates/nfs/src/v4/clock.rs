//! Time and chance, passed in.

use std::time::Duration;

/// A moment of a clock that never goes back, from any beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(pub Duration);

impl Moment {
    #[must_use]
    pub fn after(self, wait: Duration) -> Moment {
        Moment(self.0.saturating_add(wait))
    }

    pub fn since(self, earlier: Moment) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

/// A source of numbers that a client cannot guess.
pub trait Chance: Send {
    fn next(&mut self) -> u64;
}
