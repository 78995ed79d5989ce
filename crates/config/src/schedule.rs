//! How often disks test themselves.

use larder_keep::Schedule;

/// How often disks of pools test themselves. Off unless somebody asks for it: a test takes hours of a disk, and `smartd` of the
/// system may run its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SelfTestSchedule {
    pub short: Schedule,
    pub long: Schedule,
}

impl Default for SelfTestSchedule {
    fn default() -> Self {
        Self { short: Schedule::Off, long: Schedule::Off }
    }
}
