//! Processes that may only use a part of the processor: control groups with a quota.

use std::path::{Component, Path, PathBuf};

use super::Machine;

const FOUND_MAX: usize = 16;
/// Servers and their kind, by the names that the kernel gives their processes.
const SERVERS: &[&str] =
    &["larder", "smbd", "ganesha.nfsd", "nfsd", "sshd", "rclone", "nginx", "apache2", "httpd", "iperf3", "fio"];

/// A control group that has a quota, named after one of its processes.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    pub(crate) pid: u32,
    pub(crate) name: String,
    /// Its limit, in cores.
    pub(crate) cores: f64,
    pub(crate) folder: PathBuf,
}

impl Group {
    /// The periods in which it ran, and those in which its quota was used up before they ended.
    pub(crate) fn periods(&self, machine: &Machine) -> Option<(u64, u64)> {
        let text = machine.read(self.folder.join("cpu.stat"))?;
        let of = |field: &str| text.lines().find_map(|l| l.strip_prefix(field)?.trim().parse().ok());
        Some((of("nr_periods")?, of("nr_throttled")?))
    }

    /// Whether a process of it could be what was measured.
    pub(crate) fn serves(&self) -> bool {
        serves(&self.name)
    }
}

fn serves(name: &str) -> bool {
    SERVERS.iter().any(|server| name.starts_with(server))
}

/// Each group once; a server among its processes names it.
pub(crate) fn groups(machine: &Machine) -> Vec<Group> {
    let mut found: Vec<Group> = Vec::new();
    for pid in machine.process_ids() {
        let Some(text) = machine.read(format!("/proc/{pid}/cgroup")) else { continue };
        let name = || machine.read(format!("/proc/{pid}/comm")).unwrap_or_default();
        for folder in text.lines().filter_map(folder) {
            let known = found.iter_mut().find(|group| group.folder == folder);
            if let Some(group) = known {
                if !group.serves() && serves(&name()) {
                    (group.pid, group.name) = (pid, name());
                }
            } else if let Some(cores) = cores(machine, &folder).filter(|_| found.len() < FOUND_MAX) {
                found.push(Group { pid, name: name(), cores, folder });
            }
        }
    }
    found
}

/// `0::/PATH` in version 2, `3:cpu,cpuacct:/PATH` in version 1 (cgroups(7)).
fn folder(line: &str) -> Option<PathBuf> {
    let mut fields = line.splitn(3, ':').skip(1);
    let (controllers, path) = (fields.next()?, fields.next()?.trim_start_matches('/'));
    let inside = !path.is_empty() && !Path::new(path).components().any(|c| matches!(c, Component::ParentDir));
    match controllers {
        "" if inside => Some(Path::new("/sys/fs/cgroup").join(path)),
        list if inside && list.split(',').any(|c| c == "cpu") => Some(Path::new("/sys/fs/cgroup/cpu").join(path)),
        _ => None,
    }
}

fn cores(machine: &Machine, folder: &Path) -> Option<f64> {
    let number = |file: &str| machine.read(folder.join(file))?.parse::<f64>().ok();
    let cores = match machine.read(folder.join("cpu.max")) {
        // `25000 100000` or `max 100000`.
        Some(text) => {
            let mut words = text.split(' ');
            words.next()?.parse::<f64>().ok()? / words.next()?.parse::<f64>().ok()?
        }
        None => number("cpu.cfs_quota_us").filter(|q| *q > 0.0)? / number("cpu.cfs_period_us")?,
    };
    cores.is_finite().then_some(cores)
}
