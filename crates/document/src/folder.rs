//! The data folder of a daemon, and its announcement to commands.
//!
//! `larder.toml` (the configuration), `pool-lives` (the newest lives of pools that ran here), `passed-time` (`passed.really`), `secrets` (sealed password hashes), `larder.sock` (the API),
//! `larder.pid` (a lock that holds the pid). The folder is private: mode 0700.
//!
//! - `folder.one_daemon`: a data folder has one daemon. The lock on `larder.pid` is held from
//!   before the first look at a pool until the process ends in any way.
//!   Who was killed and still has it is waited for.
//! - `folder.announcement_is_a_hint`: a daemon announces its socket in the runtime folder under its
//!   pid, so that commands find it from any directory. The announcement is a hint; only the socket
//!   shows whether a daemon listens.
//! - `folder.root_leaves_no_files`: root may work on a data folder whose larder runs as another user. Afterwards it is that
//!   user's as before.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use larder_api::{Failure, SOCKET_NAME};
use rustix::fs::{AtFlags, FileType, FlockOperation, Gid, Mode, OFlags, Uid, flock};

use crate::box_time;
use larder_config::machine;

pub const CONFIG_NAME: &str = "larder.toml";
/// Links that users made in the browser.
pub const LINKS_NAME: &str = "links";
/// Second factors of the page.
pub const FACTORS_NAME: &str = "page_factors";
pub const DEFAULT: &str = "larder-data";
/// The data folder of the larder that a package installed.
pub const OF_PACKAGE: &str = "/var/lib/larder";
/// Announcements beyond these are not looked at.
const ANNOUNCED_MAX: usize = 256;
/// Folders within folders of a data folder: `watch/history` is the deepest.
const SWEPT_DEPTH: usize = 3;
/// How long the end of a killed daemon is waited for. It frees its memory first, of gigabytes in tenths of a second.
const ENDING_MAX: Duration = Duration::from_secs(10);

/// A data folder that is ours while this value lives (`folder.one_daemon`).
pub struct DataFolder {
    path: PathBuf,
    _lock: File,
    announcement: OnceLock<PathBuf>,
}

impl DataFolder {
    /// Makes the folder if need be and takes its lock.
    pub fn claim(path: &Path) -> Result<DataFolder, Failure> {
        let show = path.display();
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(|e| {
            Failure::io(format_args!("cannot make the data folder {show}"), &e)
                .action("name another folder with --data DIR")
        })?;
        let path = path.canonicalize().map_err(|e| Failure::io(&show, &e))?;
        close_to_others(&path);
        let pid_file = path.join("larder.pid");
        let mut lock = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&pid_file)
            .map_err(|e| Failure::io(format_args!("cannot open {}", pid_file.display()), &e))?;
        let patience = Instant::now() + ENDING_MAX;
        while flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            let mut pid = String::new();
            lock.rewind()
                .and_then(|()| (&mut lock).take(32).read_to_string(&mut pid))
                .map_err(|e| Failure::io(format_args!("cannot read {}", pid_file.display()), &e))?;
            let pid = pid.trim();
            if pid.parse().is_ok_and(is_ending) && Instant::now() < patience {
                std::thread::sleep(Duration::from_millis(20));
                continue;
            }
            let message = format!("another larder (pid {pid}) already serves the data folder {}", path.display());
            return Err(Failure::busy(message)
                .action(format!("stop it first (kill {pid}), or name another folder with --data DIR")));
        }
        let mut write = || -> std::io::Result<()> {
            lock.set_len(0)?;
            lock.rewind()?;
            writeln!(&lock, "{}", std::process::id())
        };
        write().map_err(|e| Failure::io(format_args!("cannot write {}", pid_file.display()), &e))?;
        box_time::begin(&path);
        box_time::keep(&path);
        Ok(DataFolder { path, _lock: lock, announcement: OnceLock::new() })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn socket(&self) -> PathBuf {
        self.path.join(SOCKET_NAME)
    }

    fn leave_no_files(&self) -> rustix::io::Result<()> {
        let folder = rustix::fs::open(&self.path, OFlags::DIRECTORY | OFlags::RDONLY, Mode::empty())?;
        let about = rustix::fs::fstat(&folder)?;
        if about.st_uid == 0 || !rustix::process::geteuid().is_root() {
            return Ok(());
        }
        leave_no_files(&folder, (Uid::from_raw(about.st_uid), Gid::from_raw(about.st_gid)), SWEPT_DEPTH)
    }

    /// Announces the socket in the runtime folder (`folder.announcement_is_a_hint`). A failure is
    /// no fault, since `--data` still works.
    pub fn announce(&self) {
        let folder = machine::runtime_folder();
        let _ = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder);
        if !owned_by_us(&folder) {
            tracing::debug!(folder = %folder.display(), "runtime folder is not ours: not announced there");
            return;
        }
        let file = folder.join(format!("{}.socket", std::process::id()));
        if std::fs::write(&file, self.socket().as_os_str().as_encoded_bytes()).is_ok() {
            let _ = self.announcement.set(file);
        }
    }
}

impl Drop for DataFolder {
    fn drop(&mut self) {
        box_time::keep(&self.path);
        if let Err(error) = self.leave_no_files() {
            tracing::warn!("files of root stay in {}: {error}", self.path.display());
        }
        let _ = std::fs::remove_file(self.socket());
        if let Some(file) = self.announcement.take() {
            let _ = std::fs::remove_file(file);
        }
    }
}

/// The sockets that daemons of this user announced, with their pids. Some may be stale
/// (`folder.announcement_is_a_hint`).
pub fn announced() -> Vec<(u32, PathBuf)> {
    let folder = machine::runtime_folder();
    if !owned_by_us(&folder) {
        return Vec::new();
    }
    let Ok(entries) = std::fs::read_dir(&folder) else { return Vec::new() };
    let mut found = Vec::new();
    for entry in entries.flatten().take(ANNOUNCED_MAX) {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|n| n.strip_suffix(".socket")).and_then(|n| n.parse::<u32>().ok());
        let (Some(pid), Ok(bytes)) = (pid, std::fs::read(entry.path())) else { continue };
        if !Path::new("/proc").join(pid.to_string()).exists() {
            // Left by a kill -9: nobody else will take it away.
            let _ = std::fs::remove_file(entry.path());
            continue;
        }
        use std::os::unix::ffi::OsStringExt;
        found.push((pid, PathBuf::from(std::ffi::OsString::from_vec(bytes))));
    }
    found
}

/// Files that root made in another user's data folder become that user's (`folder.root_leaves_no_files`). That user may change
/// the folder meanwhile, so each thing is held open, and what has a name elsewhere stays root's.
fn leave_no_files(folder: &OwnedFd, of: (Uid, Gid), depth: usize) -> rustix::io::Result<()> {
    for entry in rustix::fs::Dir::read_from(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        let Ok(found) = rustix::fs::openat(folder, name, OFlags::PATH | OFlags::NOFOLLOW, Mode::empty()) else {
            continue;
        };
        let about = rustix::fs::fstat(&found)?;
        let kind = FileType::from_raw_mode(about.st_mode);
        if about.st_uid == 0 && (kind == FileType::Directory || about.st_nlink == 1) {
            rustix::fs::chownat(&found, c"", Some(of.0), Some(of.1), AtFlags::EMPTY_PATH)?;
        }
        if kind == FileType::Directory && depth > 0 {
            let inner = rustix::fs::openat(&found, c".", OFlags::DIRECTORY | OFlags::RDONLY, Mode::empty())?;
            leave_no_files(&inner, of, depth - 1)?;
        }
    }
    Ok(())
}

/// A folder that was there may be open to other users. An empty one of ours is closed; of another one it is said, since its
/// other contents may be meant for them.
fn close_to_others(path: &Path) {
    const OTHERS: u32 = 0o077;
    let Ok(found) = std::fs::metadata(path) else { return };
    if found.mode() & OTHERS == 0 {
        return;
    }
    let is_empty = std::fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none());
    let narrow = || std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o700)).is_ok();
    if is_empty && owned_by_us(path) && narrow() {
        return;
    }
    tracing::warn!(
        "the data folder {} is open to other users of this machine (mode {:04o}): they see its names and read larder.toml; close \
         it with: chmod 700 {}",
        path.display(),
        found.mode() & 0o7777,
        larder_base::shell::word(path)
    );
}

/// Whether a process is gone, or was killed and is on its way out (proc_pid_stat(5), proc_pid_status(5)).
fn is_ending(pid: u32) -> bool {
    const PF_EXITING: u64 = 0x4;
    const SIGKILL: u64 = 1 << 8;
    let read = |name: &str| std::fs::read_to_string(format!("/proc/{pid}/{name}"));
    let (Ok(stat), Ok(status)) = (read("stat"), read("status")) else { return true };
    // The name, in parentheses, may hold anything. The state comes after it, and the flags six fields later.
    let flags = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(6)?.parse::<u64>().ok());
    let is_exiting = flags.is_some_and(|flags| flags & PF_EXITING != 0);
    let pending = |line: &str| {
        let mask = line.strip_prefix("SigPnd:").or_else(|| line.strip_prefix("ShdPnd:"))?;
        u64::from_str_radix(mask.trim(), 16).ok()
    };
    is_exiting || status.lines().filter_map(pending).any(|mask| mask & SIGKILL != 0)
}

/// A folder in /tmp could be anybody's: believe only our own.
fn owned_by_us(folder: &Path) -> bool {
    std::fs::symlink_metadata(folder).is_ok_and(|m| m.is_dir() && m.uid() == rustix::process::getuid().as_raw())
}

/// The path from the root, whether anything is there or not.
pub fn absolute(path: &Path) -> Result<PathBuf, Failure> {
    std::path::absolute(path).map_err(|e| Failure::io(path.display(), &e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_folder_of_ours_is_closed_to_others() {
        let folder = tempfile::tempdir().unwrap();
        let mode = || std::fs::metadata(folder.path()).unwrap().mode() & 0o777;
        let open = || std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        open();
        close_to_others(folder.path());
        assert_eq!(mode(), 0o700);
        open();
        std::fs::write(folder.path().join("photo"), "").unwrap();
        close_to_others(folder.path());
        assert_eq!(mode(), 0o755, "its contents may be meant for others");
    }

    #[test]
    fn who_was_killed_is_ending() {
        assert!(!is_ending(std::process::id()));
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        assert!(!is_ending(child.id()));
        child.kill().unwrap();
        // Nobody has waited for it: it is there as long.
        assert!(is_ending(child.id()));
        child.wait().unwrap();
        assert!(is_ending(child.id()));
    }
}
