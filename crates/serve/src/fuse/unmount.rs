//! The mount table's side: is a directory fit to mount on, taking a mount away, and the knobs in /sys.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;

/// Takes the remains of a mount away whose process died, if `dir` is such a one, and says whether it was.
pub fn clear_remains(dir: &Path) -> io::Result<bool> {
    // The kernel may remember the attributes of the mount's root, but not its statistics.
    match rustix::fs::statfs(dir) {
        Err(Errno::NOTCONN) => unmount(dir, true).map(|()| true),
        _ => Ok(false),
    }
}

/// The directory's absolute path, if mounting there hides nothing.
pub(super) fn mountable(dir: &Path) -> io::Result<PathBuf> {
    let name = |error: io::Error| io::Error::new(error.kind(), format!("cannot mount on {}: {error}", dir.display()));
    clear_remains(dir)?;
    let dir = dir.canonicalize().map_err(name)?;
    let mut entries = dir.read_dir().map_err(name)?;
    if entries.next().is_some() {
        let why = format!("cannot mount on {}: it is not empty, and mounting would hide what it holds", dir.display());
        return Err(io::Error::new(io::ErrorKind::DirectoryNotEmpty, format!("{why}; choose an empty directory")));
    }
    Ok(dir)
}

/// By force means: out of the tree at once, and those who hold files open get errors from then on.
pub(super) fn unmount(dir: &Path, by_force: bool) -> io::Result<()> {
    let flags = if by_force { UnmountFlags::DETACH | UnmountFlags::FORCE } else { UnmountFlags::empty() };
    match rustix::mount::unmount(dir, flags) {
        Ok(()) => Ok(()),
        Err(Errno::PERM) => unmount_as_user(dir, by_force),
        Err(Errno::BUSY) => {
            let why = format!("{} is busy: close the files and leave the folders there, then try again", dir.display());
            Err(io::Error::new(io::ErrorKind::ResourceBusy, why))
        }
        Err(error) => Err(error.into()),
    }
}

/// Only the helper of the fuse3 package may unmount for an ordinary user.
fn unmount_as_user(dir: &Path, by_force: bool) -> io::Result<()> {
    let mut helper = Command::new("fusermount3");
    helper.arg("-u").args(by_force.then_some("-z")).arg("--").arg(dir).stdin(Stdio::null());
    let output = helper.output().map_err(|error| helper_failure(error, "unmount"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    let kind = if said.contains("busy") { io::ErrorKind::ResourceBusy } else { io::ErrorKind::Other };
    Err(io::Error::new(kind, format!("cannot unmount {}: {said}", dir.display())))
}

/// A helper that is not there must not be taken for a folder that is not there.
pub(super) fn helper_failure(error: io::Error, what: &str) -> io::Error {
    if error.kind() != io::ErrorKind::NotFound {
        return error;
    }
    let why = format!("an ordinary user needs fusermount3 to {what}, which is not installed");
    io::Error::new(io::ErrorKind::Unsupported, format!("{why}: apt install fuse3, or {what} as root"))
}

/// Ends the connection: every request, also one that waits, fails with ENOTCONN or ECONNABORTED.
pub(super) fn abort(connection: Option<u32>) {
    let Some(connection) = connection else { return };
    let file = format!("/sys/fs/fuse/connections/{connection}/abort");
    if let Err(error) = std::fs::write(&file, "1") {
        tracing::debug!(file, %error, "the connection ends by itself");
    }
}

/// Writes out what programs changed through mappings. The kernel does it through the very mount, so it
/// happens on a thread that may be left behind.
pub(super) fn sync_pages(dir: &Path, patience: Duration) {
    let (done, finished) = mpsc::sync_channel(1);
    let dir = dir.to_owned();
    let spawned = std::thread::Builder::new().name("larder-syncfs".to_owned()).spawn(move || {
        let opened = rustix::fs::open(&dir, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
        if let Ok(dir) = opened {
            let _ = rustix::fs::syncfs(&dir);
        }
        let _ = done.send(());
    });
    if spawned.is_ok() {
        let _ = finished.recv_timeout(patience);
    }
}

/// Major and minor number of the newest mount on `dir`. Read from the mount table: asking the mount itself
/// would be a request to ourselves.
pub(super) fn device_of(dir: &Path) -> Option<(u32, u32)> {
    let table = std::fs::read("/proc/self/mountinfo").ok()?;
    device_in(&table, std::os::unix::ffi::OsStrExt::as_bytes(dir.as_os_str()))
}

/// `36 35 0:55 / /mnt/dir rw,... - fuse larder rw,...`; blanks in paths are written as `\040`.
fn device_in(table: &[u8], dir: &[u8]) -> Option<(u32, u32)> {
    table.split(|&byte| byte == b'\n').rev().find_map(|line| {
        let mut fields = line.split(|&byte| byte == b' ').skip(2);
        let device = std::str::from_utf8(fields.next()?).ok()?;
        let path = unescape(fields.nth(1)?);
        let (major, minor) = device.split_once(':')?;
        (path == dir).then_some((major.parse().ok()?, minor.parse().ok()?))
    })
}

fn unescape(field: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let [first, tail @ ..] = rest {
        let escaped = match tail {
            [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', ..] if *first == b'\\' => {
                Some((a - b'0') * 64 + (b - b'0') * 8 + (c - b'0'))
            }
            _ => None,
        };
        plain.push(escaped.unwrap_or(*first));
        rest = if escaped.is_some() { &tail[3..] } else { tail };
    }
    plain
}

/// The kernel limits what a FUSE server may ask for at 128 KiB; root may raise it afterwards.
pub(super) fn set_read_ahead((major, minor): (u32, u32), kib: u32) {
    let file = format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb");
    if let Err(error) = std::fs::write(&file, kib.to_string()) {
        tracing::debug!(file, %error, "read-ahead stays as the kernel chose it");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_helper_is_no_missing_folder() {
        let failure = helper_failure(io::ErrorKind::NotFound.into(), "unmount");
        assert_eq!(failure.kind(), io::ErrorKind::Unsupported);
        assert!(failure.to_string().contains("apt install fuse3"), "{failure}");
        assert_eq!(helper_failure(io::ErrorKind::OutOfMemory.into(), "mount").kind(), io::ErrorKind::OutOfMemory);
    }

    #[test]
    fn the_newest_mount_on_a_path_is_found() {
        let table = b"22 1 0:20 / /mnt rw - ext4 x rw\n36 22 0:55 / /mnt/a\\040b rw - fuse l rw\n37 22 0:56 / /mnt rw - fuse l rw\n";
        assert_eq!(device_in(table, b"/mnt/a b"), Some((0, 55)));
        assert_eq!(device_in(table, b"/mnt"), Some((0, 56)));
        assert_eq!(device_in(table, b"/nowhere"), None);
        assert_eq!(device_in(b"\n1\n1 2\n1 2 x / /mnt", b"/mnt"), None);
    }
}
