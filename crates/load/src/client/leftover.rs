//! The name of a bench's folder says whose it is, so that what a killed one left can be told from what another one
//! is using (`load.one_folder`): `.larder-bench-MACHINE-PID-START-NUMBER`.

use std::sync::atomic::{AtomicU64, Ordering};

use larder_facts::Machine;

use super::contents::mix;

const PREFIX: &str = ".larder-bench-";

fn hash(parts: &[&str]) -> u32 {
    let state = parts.iter().flat_map(|p| p.bytes().chain([0])).fold(0u64, |h, b| mix(h ^ u64::from(b)));
    (state >> 32) as u32
}

/// Process numbers mean something within one machine and one namespace only.
fn machine() -> u32 {
    let this = Machine::this();
    let parts = [this.machine_id(), this.host_name(), this.pid_namespace()].map(Option::unwrap_or_default);
    hash(&parts.each_ref().map(String::as_str))
}

/// Of a running process: its number may have belonged to another one before.
fn start(pid: u32) -> Option<u32> {
    let this = Machine::this();
    let ticks = this.process_started(pid)?.to_string();
    Some(hash(&[&this.boot_id().unwrap_or_default(), &ticks]))
}

/// For a new folder.
pub(super) fn new_name() -> String {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let pid = std::process::id();
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    format!("{PREFIX}{:08x}-{pid}-{:08x}-{number}", machine(), start(pid).unwrap_or(0))
}

/// Whether it is of this machine and nobody uses it any more.
pub(super) fn is_orphan(name: &str) -> bool {
    let Some(rest) = name.strip_prefix(PREFIX) else { return false };
    let parts: Vec<&str> = rest.split('-').collect();
    let [of, pid, started, number] = parts[..] else { return false };
    let (Ok(of), Ok(pid), Ok(started)) = (u32::from_str_radix(of, 16), pid.parse(), u32::from_str_radix(started, 16))
    else {
        return false;
    };
    number.parse::<u64>().is_ok() && of == machine() && start(pid) != Some(started)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_dead_and_ours_is_an_orphan() {
        let mine = new_name();
        assert!(!is_orphan(&mine));
        assert_ne!(mine, new_name());
        let dead = format!("{PREFIX}{:08x}-{}-00000001-0", machine(), std::process::id());
        assert!(is_orphan(&dead), "same number, another start");
        let foreign = format!("{PREFIX}{:08x}-1-00000001-0", machine() ^ 1);
        for name in
            [foreign.as_str(), ".larder-bench-", ".larder-bench-x-y-z-0", "data", &dead[1..], &format!("{dead}-x")]
        {
            assert!(!is_orphan(name), "{name}");
        }
    }
}
