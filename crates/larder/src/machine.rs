//! What the machine gives: memory, file descriptors, addresses, names.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::path::Path;

use larder_base::units::ByteSize;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::config::MEMORY_MIN;

/// One descriptor per connection, per open segment and some: what a daemon asks for.
const DESCRIPTORS: u64 = 65536;

/// A quarter of what this process may use: of RAM, or of the control group's limit when that is less.
pub(crate) fn memory_default() -> ByteSize {
    let ram = meminfo_total().unwrap_or(1 << 30);
    let group = std::fs::read_to_string("/sys/fs/cgroup/memory.max").ok().and_then(|t| t.trim().parse().ok());
    ByteSize((ram.min(group.unwrap_or(u64::MAX)) / 4).max(MEMORY_MIN.0))
}

fn meminfo_total() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// Raises the soft limit of open files as far as is useful and allowed.
pub(crate) fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    let most = limit.maximum.unwrap_or(DESCRIPTORS);
    let want = DESCRIPTORS.min(most);
    if limit.current.is_some_and(|now| now < want) {
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(want), maximum: limit.maximum });
    }
}

/// Whose files a new share's are: whoever runs this, or whoever called sudo. Plain root serves
/// the first ordinary user of the machine, who is 1000 everywhere.
pub(crate) fn owner() -> (u32, u32) {
    let var = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u32>().ok());
    let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    if uid != 0 {
        return (uid, gid);
    }
    match (var("SUDO_UID"), var("SUDO_GID")) {
        (Some(uid), Some(gid)) if uid != 0 => (uid, gid),
        _ => (1000, 1000),
    }
}

/// The address by which others in the network reach this machine: the one it would send from. Nothing is sent.
pub(crate) fn address_outward() -> Option<IpAddr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    socket.connect((Ipv4Addr::new(192, 0, 2, 1), 9)).ok()?;
    let addr = socket.local_addr().ok()?.ip();
    (!addr.is_unspecified() && !addr.is_loopback()).then_some(addr)
}

/// What a client on this machine connects to when the server listens at `addr`.
pub(crate) fn host_local(addr: SocketAddr) -> String {
    match addr.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => "127.0.0.1".to_owned(),
        IpAddr::V6(ip) if ip.is_unspecified() => "::1".to_owned(),
        ip => ip.to_string(),
    }
}

/// What a client elsewhere connects to.
pub(crate) fn host_outward(addr: SocketAddr) -> String {
    if addr.ip().is_unspecified()
        && let Some(ip) = address_outward()
    {
        return ip.to_string();
    }
    host_local(addr)
}

/// The folder in which running daemons announce themselves: root's, the user session's, or one of our own in /tmp.
pub(crate) fn runtime_folder() -> std::path::PathBuf {
    let uid = rustix::process::getuid().as_raw();
    if uid == 0 {
        return Path::new("/run/larder").to_owned();
    }
    match std::env::var_os("XDG_RUNTIME_DIR") {
        Some(folder) if !folder.is_empty() => Path::new(&folder).join("larder"),
        _ => std::env::temp_dir().join(format!("larder-{uid}")),
    }
}
