//! The receiver's own time, by which snapshots of a replica arrive and grow old.
//!
//! A sender says the name and the moment of each snapshot, so neither counts for what is removed here. The time of arrival does. It
//! is the replica's own: it begins as the wall clock of the first arrival, and goes on by what has really passed.
//!
//! - `arrival.really_passed`: it goes on as the time of the box does (`passed.really`), so a clock that jumps makes no snapshot old.
//! - `arrival.unknown_is_now`: a snapshot without a time of arrival, from an older program, arrived when this program first saw it.

use larder_base::Timestamp;
use larder_base::clock::{boot_id, since_boot};
use larder_base::passed::{ACROSS_BOOTS_MAX, Reading};
use serde::{Deserialize, Serialize};

/// The replica's time, and the clocks of the machine when it was read last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ReceiverTime {
    /// Seconds since 1970, as the replica counts them.
    now: i64,
    /// In seconds.
    #[serde(flatten)]
    read: Reading,
}

/// The clocks of the machine at this moment, in seconds.
fn reading(wall: Timestamp) -> Reading {
    Reading { wall: wall.secs, boot: boot_id(), since_boot: since_boot().as_secs() }
}

impl ReceiverTime {
    /// The time now, after `before` if there was one (`arrival.really_passed`).
    pub(super) fn after(before: Option<&Self>, wall: Timestamp) -> Self {
        Self::at(before, reading(wall))
    }

    fn at(before: Option<&Self>, read: Reading) -> Self {
        let across_boots_max = i64::try_from(ACROSS_BOOTS_MAX.as_secs()).unwrap_or(i64::MAX);
        let after = |before: &Self| before.now.saturating_add(before.read.passed_until(&read, across_boots_max));
        Self { now: before.map_or(read.wall, after), read }
    }

    pub(super) fn now(&self) -> i64 {
        self.now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: i64 = 24 * 3600;

    fn at(before: Option<&ReceiverTime>, wall: i64, boot: &str, since_boot: u64) -> ReceiverTime {
        ReceiverTime::at(before, Reading { wall, boot: boot.into(), since_boot })
    }

    #[test]
    fn it_goes_on_by_what_has_passed() {
        let first = at(None, 1_000_000, "a", 50);
        assert_eq!(first.now(), 1_000_000);
        let second = at(Some(&first), 1_000_060, "a", 110);
        assert_eq!(second.now(), 1_000_060);
        // Another start of the machine.
        assert_eq!(at(Some(&second), 1_000_060 + 2 * DAY, "b", 5).now(), 1_000_060 + 2 * DAY);
    }

    #[test]
    fn a_clock_that_jumps_makes_nothing_old() {
        let first = at(None, 1_000_000, "a", 50);
        let ahead = at(Some(&first), 1_000_000 + 3650 * DAY, "a", 60);
        assert_eq!(ahead.now(), 1_000_010, "ten years ahead within ten seconds");
        let back = at(Some(&ahead), 1_000_020, "a", 70);
        assert_eq!(back.now(), 1_000_010, "set right again");
        assert_eq!(at(Some(&back), 1_000_080, "a", 130).now(), 1_000_070);
        assert_eq!(at(Some(&first), 1_000_000 + 3650 * DAY, "b", 5).now(), 1_000_000 + 7 * DAY, "across a restart");
        assert_eq!(at(Some(&first), 5, "b", 5).now(), 1_000_000, "a clock without a battery");
        assert_eq!(at(Some(&first), 1_000_000 + 30 * DAY, "", 5).now(), 1_000_000 + 7 * DAY, "the kernel says nothing");
        assert_eq!(at(Some(&first), i64::MAX, "b", u64::MAX).now(), 1_000_000 + 7 * DAY);
        assert_eq!(at(Some(&at(None, i64::MAX, "a", 0)), i64::MIN, "a", u64::MAX).now(), i64::MAX);
    }
}
