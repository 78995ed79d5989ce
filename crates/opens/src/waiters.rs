//! The waiters of one file, and the changes that wake them.

use std::task::Waker;

/// The waiters that a change of a file may let through (`opens.woken_by_change`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wakes {
    Nobody,
    /// An open, a denial or a promise has ended: those who wait for anything.
    ForOpens,
    /// A range has ended: everybody.
    ForRanges,
}

impl Wakes {
    pub fn for_opens_if(is_one_gone: bool) -> Self {
        if is_one_gone { Wakes::ForOpens } else { Wakes::Nobody }
    }

    pub fn for_ranges_if(is_one_gone: bool) -> Self {
        if is_one_gone { Wakes::ForRanges } else { Wakes::Nobody }
    }
}

/// The waiters of one file.
#[derive(Default)]
pub(crate) struct Waits {
    /// Changes that may let somebody through, and those of ranges among them.
    changes: u64,
    of_ranges: u64,
    pub waiters: Vec<Registered>,
}

pub(crate) struct Registered {
    pub id: u64,
    pub for_ranges: bool,
    pub waker: Option<Waker>,
}

impl Waits {
    pub fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    /// A change: those who have to be woken.
    pub fn wake(&mut self, wakes: Wakes) -> Vec<Waker> {
        if wakes == Wakes::Nobody {
            return Vec::new();
        }
        let is_of_range = wakes == Wakes::ForRanges;
        self.changes += 1;
        self.of_ranges += u64::from(is_of_range);
        let woken = self.waiters.iter_mut().filter(|waits| is_of_range || !waits.for_ranges);
        woken.filter_map(|waits| waits.waker.take()).collect()
    }

    pub fn seen(&self, for_ranges: bool) -> u64 {
        if for_ranges { self.of_ranges } else { self.changes }
    }
}
