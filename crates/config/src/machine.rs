//! Resources of the machine: memory, file descriptors, addresses, names.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::path::Path;

use larder_base::units::ByteSize;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// One descriptor per connection, per open segment and some: what a daemon asks for.
const DESCRIPTORS: u64 = 65536;

/// Caches and dirty data below this do not work sensibly.
pub const MEMORY_MIN: ByteSize = ByteSize(64 << 20);

/// A quarter of what this process may use: of RAM, or of the control groups' limit when that is less.
pub fn memory_default() -> ByteSize {
    let ram = larder_keep::memory::total_bytes().unwrap_or(1 << 30);
    let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let limit = group_limit(Path::new("/sys/fs/cgroup"), &groups).unwrap_or(u64::MAX);
    ByteSize((ram.min(limit) / 4).max(MEMORY_MIN.0))
}

/// Memory in use by this process's group, and its limit if that is less than all memory, both in bytes. The kernel's cache
/// of files does not count: the kernel gives it back by itself.
pub fn group_memory() -> Option<(u64, u64)> {
    let groups = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    group_use(Path::new("/sys/fs/cgroup"), &groups, memory_total().0)
}

fn group_use(root: &Path, groups: &str, total: u64) -> Option<(u64, u64)> {
    let old = groups.lines().find_map(|line| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        controllers.split(',').any(|c| c == "memory").then(|| root.join("memory").join(path.trim_start_matches('/')))
    });
    let new =
        groups.lines().find_map(|line| line.strip_prefix("0::")).map(|path| root.join(path.trim_start_matches('/')));
    let in_group = |group: &Path, names: [&str; 3]| {
        let [used, limit, files] = names;
        let number = |file: &str| std::fs::read_to_string(group.join(file)).ok()?.trim().parse::<u64>().ok();
        let stat = std::fs::read_to_string(group.join("memory.stat")).ok()?;
        let cached = stat.lines().find_map(|line| line.strip_prefix(files)?.trim().parse::<u64>().ok()).unwrap_or(0);
        let limit = number(limit).filter(|limit| *limit < total)?;
        Some((number(used)?.saturating_sub(cached), limit))
    };
    let old =
        old.and_then(|group| in_group(&group, ["memory.usage_in_bytes", "memory.limit_in_bytes", "total_cache "]));
    old.or_else(|| in_group(&new?, ["memory.current", "memory.max", "file "]))
}

/// The folder of this process's control group in version 2.
fn own_group() -> Option<std::path::PathBuf> {
    let groups = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    Some(Path::new("/sys/fs/cgroup").join(path.trim_start_matches('/')))
}

/// Files in which the kernel reports that memory is short: for the machine and for our group.
pub fn pressure_files() -> Vec<std::path::PathBuf> {
    let group = own_group().map(|group| group.join("memory.pressure"));
    [Some("/proc/pressure/memory".into()), group].into_iter().flatten().collect()
}

/// All that there is.
pub fn memory_total() -> ByteSize {
    ByteSize(larder_keep::memory::total_bytes().unwrap_or(u64::MAX))
}

/// The least limit of the groups a process is in and of those around them, in version 2 (`0::/PATH`) and in
/// version 1 (`N:memory:/PATH`). A container may see its own group as the root, whatever path it is told.
fn group_limit(root: &Path, groups: &str) -> Option<u64> {
    let limits = groups.lines().flat_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next().unwrap_or_default(), fields.next().unwrap_or_default());
        let (top, file) = match controllers {
            "" => (root.to_owned(), "memory.max"),
            list if list.split(',').any(|c| c == "memory") => (root.join("memory"), "memory.limit_in_bytes"),
            _ => return Vec::new(),
        };
        let group = top.join(path.trim_start_matches('/'));
        let around = group.ancestors().take_while(|dir| dir.starts_with(&top));
        around.filter_map(|dir| std::fs::read_to_string(dir.join(file)).ok()?.trim().parse().ok()).collect()
    });
    limits.min()
}

/// Raises the soft limit of open files as far as is useful and allowed.
pub fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    let most = limit.maximum.unwrap_or(DESCRIPTORS);
    let want = DESCRIPTORS.min(most);
    if limit.current.is_some_and(|now| now < want) {
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(want), maximum: limit.maximum });
    }
}

/// No core files, and no other process of this user may read the memory: it holds keys and the contents of files.
pub fn leave_no_dumps() {
    let dumpable = rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable);
    let cores = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
    for (what, done) in [("PR_SET_DUMPABLE", dumpable), ("RLIMIT_CORE", cores)] {
        if let Err(error) = done {
            tracing::warn!("the memory of this process may be dumped: {what} cannot be set: {error}");
        }
    }
}

/// Whose files a new share's are: whoever runs this, or whoever called sudo. Plain root serves
/// the first ordinary user of the machine, who is 1000 everywhere.
pub fn owner() -> (u32, u32) {
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

pub fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// The address by which others in the network reach this machine: the one it would send from, or without a default route the
/// likeliest of its own.
pub fn address_outward() -> Option<IpAddr> {
    address_of_default_route().or_else(larder_discovery::likely_address)
}

/// Nothing is sent.
fn address_of_default_route() -> Option<IpAddr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    socket.connect((Ipv4Addr::new(192, 0, 2, 1), 9)).ok()?;
    let addr = socket.local_addr().ok()?.ip();
    (!addr.is_unspecified() && !addr.is_loopback()).then_some(addr)
}

/// This program as it has to be typed: its name where the shell finds it by that, its path elsewhere.
pub fn program() -> String {
    let Ok(own) = std::env::current_exe() else { return "larder".to_owned() };
    let name = own.file_name().unwrap_or_default();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let first = std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file());
    let is_own =
        first.and_then(|file| file.canonicalize().ok()).is_some_and(|file| Some(file) == own.canonicalize().ok());
    if is_own { name.to_string_lossy().into_owned() } else { own.to_string_lossy().into_owned() }
}

/// The host that a client on this machine connects to when the server listens at `addr`.
pub fn host_local(addr: SocketAddr) -> String {
    match addr.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => "127.0.0.1".to_owned(),
        IpAddr::V6(ip) if ip.is_unspecified() => "::1".to_owned(),
        ip => ip.to_string(),
    }
}

/// The host that a client elsewhere connects to.
pub fn host_outward(addr: SocketAddr) -> String {
    if addr.ip().is_unspecified()
        && let Some(ip) = address_outward()
    {
        return ip.to_string();
    }
    host_local(addr)
}

/// The folder in which running daemons announce themselves: root's, the user session's, or one of our own in /tmp.
pub fn runtime_folder() -> std::path::PathBuf {
    let uid = rustix::process::getuid().as_raw();
    if uid == 0 {
        return Path::new("/run/larder").to_owned();
    }
    match std::env::var_os("XDG_RUNTIME_DIR") {
        Some(folder) if !folder.is_empty() => Path::new(&folder).join("larder"),
        _ => std::env::temp_dir().join(format!("larder-{uid}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_group_uses_leaves_the_kernels_cache_out() {
        let root = tempfile::tempdir().unwrap();
        let write = |file: &str, text: &str| {
            let path = root.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let check = |groups: &str, found: Option<(u64, u64)>| {
            assert_eq!(group_use(root.path(), groups, 1000), found, "{groups}");
        };
        write("a/memory.current", "900\n");
        write("a/memory.max", "950\n");
        write("a/memory.stat", "anon 300\nfile 600\nfile_mapped 1\n");
        check("0::/a\n", Some((300, 950)));
        write("a/memory.max", "max\n");
        check("0::/a\n", None);
        write("memory/b/memory.usage_in_bytes", "80\n");
        write("memory/b/memory.limit_in_bytes", "90\n");
        write("memory/b/memory.stat", "cache 1\ntotal_cache 30\n");
        check("4:memory:/b\n0::/a\n", Some((50, 90)));
        write("memory/b/memory.limit_in_bytes", "9223372036854771712\n");
        check("4:memory:/b\n0::/a\n", None);
    }

    #[test]
    fn the_least_limit_of_all_groups_counts() {
        let check = |files: &[(&str, &str)], groups: &str, limit: Option<u64>| {
            let root = tempfile::tempdir().unwrap();
            for (file, text) in files {
                let path = root.path().join(file);
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(path, text).unwrap();
            }
            assert_eq!(group_limit(root.path(), groups), limit, "{files:?} {groups:?}");
        };
        check(&[], "", None);
        check(&[("memory.max", "max\n")], "0::/\n", None);
        check(&[("memory.max", "1000\n")], "0::/\n", Some(1000));
        check(&[("memory.max", "1000\n")], "0::/not/seen/from/here\n", Some(1000));
        check(&[("a/b/memory.max", "70\n"), ("a/memory.max", "60\n")], "0::/a/b\n", Some(60));
        check(&[("a/b/memory.max", "50\n"), ("a/memory.max", "60\n")], "0::/a/b\n", Some(50));
        check(&[("other/memory.max", "5\n")], "0::/a:b\n", None);
        let old = "9:cpu,cpuacct:/x\n4:memory:/x\n0::/x\n";
        check(&[("memory/x/memory.limit_in_bytes", "9\n"), ("x/memory.max", "8\n")], old, Some(8));
        check(&[("memory/x/memory.limit_in_bytes", "9\n"), ("cpu/x/memory.limit_in_bytes", "1\n")], old, Some(9));
    }
}
