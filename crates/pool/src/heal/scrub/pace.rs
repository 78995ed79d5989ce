//! How much of a disk's time a scrub may take (`scrub.yields_to_users`).

use std::time::{Duration, Instant};

use super::scrubs::streams;
use crate::core::Core;
use crate::disk::work::Work;
use crate::member::member_disk::MemberDisk;

/// Part of a device's time while others use the pool.
const BUSY_PERCENT: u32 = 15;
/// How often a scrub that stands back looks whether it may go on.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// A disk that hangs for others hangs for the scrub, too; but it is not avoided for ever.
const PAUSE_MAX: Duration = Duration::from_secs(2);

impl Core {
    /// The pool is in use, or a disk is being brought up to date.
    pub fn is_busy(&self) -> bool {
        self.activity.is_busy() || !self.repairs.is_idle()
    }

    /// Waits after a read that took `took`, so that others have the disk for the rest of the time.
    /// Blocks.
    pub fn stand_back(&self, member: &MemberDisk, took: Duration) {
        // In turns no other work waits for the disk meanwhile.
        if !self.is_busy() || matches!(self.members.work, Work::InTurns(_)) {
            return;
        }
        let pause = pause_after(took, self.sharers(member));
        let since = Instant::now();
        while since.elapsed() < pause && self.is_busy() && !self.scrub_interrupted() {
            std::thread::sleep(LOOK_EVERY.min(pause));
        }
    }

    /// Streams of all disks of the pool on the same device, this one included. Together they may
    /// take no more than one.
    fn sharers(&self, member: &MemberDisk) -> u32 {
        let device = member.space().filesystem;
        let same = |other: &&MemberDisk| other.is_readable() && other.space().filesystem == device;
        self.members.iter().filter(same).map(streams).sum::<u32>().max(1)
    }
}

fn pause_after(took: Duration, sharers: u32) -> Duration {
    (took * (100 * sharers) / BUSY_PERCENT).saturating_sub(took).min(PAUSE_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_disks_on_one_device_share_one_part() {
        let took = Duration::from_millis(6);
        assert_eq!(pause_after(took, 1), Duration::from_millis(34));
        assert_eq!(pause_after(took, 3), Duration::from_millis(114));
        assert_eq!(pause_after(Duration::from_secs(60), 3), PAUSE_MAX);
    }
}
