//! The caches of the kernel, emptied before data is read from disks.

use std::fs::OpenOptions;

use super::control::Control;
use super::error::BenchError;
use super::process;
use crate::Machine;

/// Every cache of the kernel; root alone may. What others wrote is flushed before: that takes as long as it takes, so a
/// program does it, which is not waited for when the bench is stopped.
pub fn drop_caches(machine: &Machine, control: &Control) -> Result<bool, BenchError> {
    match process::run_and_leave(machine, "sync", control) {
        Ok(()) => {}
        Err(BenchError::Stopped) => return Err(BenchError::Stopped),
        Err(_) => rustix::fs::sync(),
    }
    Ok(std::fs::write("/proc/sys/vm/drop_caches", "3").is_ok())
}

pub fn may_drop_caches() -> bool {
    OpenOptions::new().write(true).open("/proc/sys/vm/drop_caches").is_ok()
}
