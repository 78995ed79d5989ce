//! The memory of the machine: a passphrase is hashed with a part of it.

/// All of it, in bytes, as the kernel says.
pub fn total_bytes() -> Option<u64> {
    bytes_of("MemTotal:")
}

/// What programs could take without anybody being the worse for it, in bytes, as the kernel estimates
/// (Documentation/filesystems/proc.rst, MemAvailable).
pub fn available_bytes() -> Option<u64> {
    bytes_of("MemAvailable:")
}

fn bytes_of(key: &str) -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}
