//! Which processes use a folder: what `/proc` says they have open, mapped, or work in.
//!
//! Only links and lists of the kernel are read, nothing below the folder itself: that may be a mount of our own. Those of other
//! users need CAP_SYS_PTRACE, which no daemon keeps (`rights.no_way_back`): the kernel says that a mount is busy, and `fuser` why.

use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    pid: u32,
    name: String,
}

impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (process {})", self.name, self.pid)
    }
}

/// In the order of their numbers, this process left out.
pub fn of(dir: &Path) -> Vec<Process> {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut found: Vec<Process> = processes
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid| *pid != std::process::id() && uses(*pid, dir))
        .map(|pid| Process { pid, name: name_of(pid) })
        .collect();
    found.sort_by_key(|user| user.pid);
    found
}

fn name_of(pid: u32) -> String {
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    larder_base::printed::shown(name.trim_end()).into_owned()
}

fn uses(pid: u32, dir: &Path) -> bool {
    let process = PathBuf::from(format!("/proc/{pid}"));
    let leads_there = |link: PathBuf| std::fs::read_link(link).is_ok_and(|target| target.starts_with(dir));
    let files = std::fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
    ["cwd", "root", "exe"].iter().any(|link| leads_there(process.join(link)))
        || files.map(|file| file.path()).any(leads_there)
        || std::fs::read(process.join("maps")).is_ok_and(|maps| maps_below(&maps, dir))
}

/// `7f00-7f01 r--p 00000000 00:2f 12   /mnt/dir/file`: what is mapped stays in use when its file is closed.
fn maps_below(maps: &[u8], dir: &Path) -> bool {
    let path = |line: &[u8]| line.iter().position(|byte| *byte == b'/').map(|at| at..line.len());
    let mut lines = maps.split(|byte| *byte == b'\n');
    lines.any(|line| {
        let mapped = path(line).and_then(|range| line.get(range));
        mapped.is_some_and(|mapped| Path::new(std::ffi::OsStr::from_bytes(mapped)).starts_with(dir))
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn who_works_in_a_folder_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().canonicalize().unwrap();
        assert_eq!(of(&dir), []);
        let mut child = std::process::Command::new("sleep").arg("60").current_dir(&dir).spawn().unwrap();
        let found = of(&dir);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(found, [Process { pid: child.id(), name: "sleep".to_owned() }]);
    }

    #[test]
    fn mapped_files_count() {
        let maps = b"7f00-7f01 r--p 00000000 00:2f 12 /mnt/a b/lib.so (deleted)\n7f02-7f03 rw-p 0 00:00 0 \n";
        assert!(maps_below(maps, Path::new("/mnt/a b")) && !maps_below(maps, Path::new("/mnt/a")));
    }
}
