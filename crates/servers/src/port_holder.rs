//! Which program has a port that larder wants.
//!
//! Sockets of other users' processes need CAP_SYS_PTRACE, which no daemon keeps (`rights.no_way_back`). A service of systemd that
//! is known to take such a port is found by its control group, which everybody sees.

use std::fmt;
use std::path::Path;

/// The services of Debian that take a port which larder wants, too.
const SERVICES: [(u16, &[&str]); 5] = [
    (445, &["smbd", "samba-ad-dc", "samba", "ksmbd"]),
    (2049, &["nfs-server", "nfs-kernel-server", "nfs-ganesha"]),
    (111, &["rpcbind"]),
    (443, &["nginx", "apache2", "caddy", "lighttpd", "haproxy", "traefik"]),
    (22, &["ssh", "sshd"]),
];
const NFS_PORT: u16 = 2049;
const GROUPS: &str = "/sys/fs/cgroup/system.slice";

/// A program, or a service of the kernel.
#[derive(Debug, PartialEq, Eq)]
pub struct Holder {
    name: String,
    pid: Option<u32>,
    /// The unit that runs it.
    unit: Option<String>,
}

impl Holder {
    fn unit(name: &str) -> Self {
        Self { name: name.to_owned(), pid: None, unit: Some(name.to_owned()) }
    }

    /// How to stop it.
    pub fn stop(&self) -> String {
        match (&self.unit, self.pid) {
            // Its socket unit would start it again.
            (Some(unit), _) if unit == "rpcbind" => "sudo systemctl disable --now rpcbind.socket rpcbind".to_owned(),
            (Some(unit), _) => format!("sudo systemctl disable --now {unit}"),
            (None, Some(pid)) => format!("kill {pid}"),
            (None, None) => format!("end {}", self.name),
        }
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.pid {
            Some(pid) => write!(f, "{} (process {pid})", self.name),
            None => write!(f, "the service {}", self.name),
        }
    }
}

pub fn of(port: u16) -> Option<Holder> {
    process(port).or_else(|| service(port, Path::new(GROUPS))).or_else(|| {
        let statistics = std::fs::read_to_string("/proc/net/rpc/nfsd").unwrap_or_default();
        (port == NFS_PORT && has_threads(&statistics)).then(|| Holder::unit("nfs-server"))
    })
}

/// Also one that systemd starts at the first connection: its socket has a group of its own.
fn service(port: u16, groups: &Path) -> Option<Holder> {
    let (_, units) = SERVICES.iter().find(|(known, _)| *known == port)?;
    let is_there =
        |unit: &&&str| ["service", "socket"].iter().any(|kind| groups.join(format!("{unit}.{kind}")).is_dir());
    units.iter().find(is_there).map(|unit| Holder::unit(unit))
}

/// Whether the NFS server of the kernel runs, which is no process: the line `th COUNT ...` of its statistics.
fn has_threads(statistics: &str) -> bool {
    let threads = statistics.lines().find_map(|line| line.strip_prefix("th ")?.split_whitespace().next()?.parse().ok());
    threads.is_some_and(|count: u32| count > 0)
}

/// The process that has the listening socket, as far as `/proc` shows it.
fn process(port: u16) -> Option<Holder> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(|table| std::fs::read_to_string(table).unwrap_or_default());
    let sockets: Vec<String> = tables
        .iter()
        .flat_map(|table| table.lines().filter_map(|line| listening(line, port)))
        .map(|inode| format!("socket:[{inode}]"))
        .collect();
    let processes = std::fs::read_dir("/proc").ok()?.flatten();
    let mut pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let pid = pids.find(|pid| {
        let files = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        let mut links = files.filter_map(|file| std::fs::read_link(file.path()).ok());
        links.any(|link| sockets.iter().any(|socket| Path::new(socket) == link))
    })?;
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let group = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    Some(Holder {
        name: larder_base::printed::shown(name.trim_end()).into_owned(),
        pid: Some(pid),
        unit: unit_of(&group),
    })
}

/// The inode of a line of proc_net_tcp(5) that is a listening socket of this port.
fn listening(line: &str, port: u16) -> Option<u64> {
    const LISTEN: &str = "0A";
    let fields: Vec<&str> = line.split_whitespace().collect();
    let (_, local) = fields.get(1)?.rsplit_once(':')?;
    let is_it = u16::from_str_radix(local, 16) == Ok(port) && *fields.get(3)? == LISTEN;
    if is_it { fields.get(9)?.parse().ok() } else { None }
}

/// `0::/system.slice/smbd.service`
fn unit_of(group: &str) -> Option<String> {
    let path = group.lines().find_map(|line| line.strip_prefix("0::/system.slice/"))?;
    let unit = path.split('/').next()?.strip_suffix(".service")?;
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.@".contains(c);
    unit.chars().all(is_plain).then(|| unit.to_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn our_own_listener_is_found() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let holder = of(listener.local_addr().unwrap().port()).unwrap();
        assert_eq!(holder.pid, Some(std::process::id()));
        assert!(holder.stop().contains("kill") || holder.unit.is_some());
    }

    #[test]
    fn a_known_service_is_found_by_its_group() {
        let groups = tempfile::tempdir().unwrap();
        assert_eq!(service(445, groups.path()), None);
        std::fs::create_dir(groups.path().join("smbd.service")).unwrap();
        let found = service(445, groups.path()).unwrap();
        assert_eq!(
            (found.to_string().as_str(), found.stop().as_str()),
            ("the service smbd", "sudo systemctl disable --now smbd")
        );
        assert_eq!(service(446, groups.path()), None);
        std::fs::create_dir(groups.path().join("rpcbind.socket")).unwrap();
        let found = service(111, groups.path()).unwrap();
        assert_eq!(found.stop(), "sudo systemctl disable --now rpcbind.socket rpcbind");
    }

    #[test]
    fn the_server_of_the_kernel_is_known_by_its_threads() {
        assert!(has_threads("rc 0 0 0\nth 8 0 0.000 0.000\n"));
        assert!(!has_threads("rc 0 0 0\nth 0 0 0.000 0.000\n") && !has_threads("") && !has_threads("th x\n"));
    }

    #[test]
    fn lines_of_the_kernel_are_read() {
        let line = "   0: 00000000:01BD 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1 0000 100";
        assert_eq!((listening(line, 445), listening(line, 446), listening("x", 445)), (Some(4711), None, None));
        assert_eq!(listening(&line.replace(" 0A ", " 01 "), 445), None);
        assert_eq!(unit_of("0::/system.slice/smbd.service\n"), Some("smbd".to_owned()));
        assert_eq!(unit_of("0::/user.slice/x.service"), None);
        assert_eq!(unit_of("0::/system.slice/$(x).service"), None);
    }
}
