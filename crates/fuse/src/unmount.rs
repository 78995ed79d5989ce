//! The mount table's side: is a directory fit to mount on, taking a mount away, and the knobs in /sys.
//!
//! - `unmount.newest_only`: a mount is taken away only while it is the newest on its directory. It
//!   is known by its device number, which no other filesystem has while it lives. Another larder's
//!   mount on the same directory stays.
//! - `unmount.mount_table_decides`: the mount table says whether a mount exists. Its connection may
//!   live longer: in another mount namespace, or through open files of a mount that was detached.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{OnceLock, mpsc};
use std::time::Duration;

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, UnmountFlags};

/// Takes the remains of a mount away whose process died, if `dir` is such a one, and says whether it was.
pub fn clear_remains(dir: &Path) -> io::Result<bool> {
    // The kernel may remember the attributes of the mount's root, but not its statistics.
    match rustix::fs::statfs(dir) {
        Err(Errno::NOTCONN) => unmount_newest(dir, true).map(|()| true),
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

/// A mount of this process.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) dir: PathBuf,
    /// Major and minor number.
    device: (u32, u32),
}

impl Place {
    /// The newest mount on `dir`, which somebody has just made there.
    pub(super) fn look(dir: &Path) -> io::Result<Place> {
        let table = mount_table().unwrap_or_default();
        let gone =
            || io::Error::new(io::ErrorKind::NotFound, "the mount is not in the mount table: was it taken away again?");
        let device = newest_on(&table, dir).ok_or_else(gone)?;
        Ok(Place { dir: dir.to_owned(), device })
    }

    pub(super) fn is_mounted(&self) -> bool {
        mount_table().is_none_or(|table| {
            mounts_in(&table).any(|(device, path)| device == self.device && is_at(&path, &self.dir))
        })
    }

    /// Takes it out of the tree, if it is there (`unmount.newest_only`). By force means at once:
    /// programs that hold files open get errors from then on.
    pub(super) fn unmount(&self, by_force: bool) -> io::Result<()> {
        if !self.is_mounted() {
            return Ok(());
        }
        if mount_table().and_then(|table| newest_on(&table, &self.dir)).is_some_and(|newest| newest != self.device) {
            let why = format!("another filesystem is mounted over {}: unmount that first", self.dir.display());
            return Err(io::Error::new(io::ErrorKind::ResourceBusy, why));
        }
        unmount_newest(&self.dir, by_force)
    }

    /// Whether the kernel still has the connection, as far as it lets us see. The minor number is its name.
    pub(super) fn is_connected(&self) -> bool {
        connections().is_some_and(|all| rustix::fs::statat(all, self.device.1.to_string(), AtFlags::empty()).is_ok())
    }

    /// Ends the connection: every request, also one that waits, fails with ENOTCONN or ECONNABORTED.
    pub(super) fn abort(&self) {
        let Some(all) = connections() else { return };
        let name = format!("{}/abort", self.device.1);
        let opened = rustix::fs::openat(all, &name, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty());
        if let Err(error) = opened.and_then(|file| rustix::io::write(&file, b"1")) {
            tracing::debug!(name, %error, "the connection ends by itself");
        }
    }

    /// The kernel limits what a FUSE server may ask for at 128 KiB; root may raise it afterwards.
    pub(super) fn set_read_ahead(&self, kib: u32) {
        let (major, minor) = self.device;
        let file = format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb");
        if let Err(error) = std::fs::write(&file, kib.to_string()) {
            tracing::debug!(file, %error, "read-ahead stays as the kernel chose it");
        }
    }
}

/// The kernel's file system of FUSE connections: as it is mounted, or mounted for this process alone.
fn connections() -> Option<&'static OwnedFd> {
    const FUSECTL_SUPER_MAGIC: u64 = 0x6573_5543;
    static OPENED: OnceLock<Option<OwnedFd>> = OnceLock::new();
    let open = || {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mounted = rustix::fs::open("/sys/fs/fuse/connections", flags, Mode::empty()).ok();
        let is_it =
            |dir: &OwnedFd| rustix::fs::fstatfs(dir).is_ok_and(|stat| stat.f_type as u64 == FUSECTL_SUPER_MAGIC);
        mounted.filter(is_it).or_else(|| {
            let context = rustix::mount::fsopen("fusectl", FsOpenFlags::FSOPEN_CLOEXEC).ok()?;
            rustix::mount::fsconfig_create(&context).ok()?;
            let attributes = MountAttrFlags::empty();
            rustix::mount::fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes).ok()
        })
    };
    OPENED.get_or_init(open).as_ref()
}

fn unmount_newest(dir: &Path, by_force: bool) -> io::Result<()> {
    let flags = if by_force { UnmountFlags::DETACH | UnmountFlags::FORCE } else { UnmountFlags::empty() };
    match rustix::mount::unmount(dir, flags) {
        Ok(()) => Ok(()),
        Err(Errno::PERM) => unmount_as_user(dir, by_force),
        Err(Errno::BUSY) => {
            let why =
                format!("{} is in use: close the files and leave the folders there, then try again", dir.display());
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

/// Asking the mount itself would be a request to ourselves.
fn mount_table() -> Option<Vec<u8>> {
    std::fs::read("/proc/self/mountinfo").ok()
}

/// Device and path of each mount, the newest first.
/// `36 35 0:55 / /mnt/dir rw,... - fuse larder rw,...`; blanks in paths are written as `\040`.
fn mounts_in(table: &[u8]) -> impl Iterator<Item = ((u32, u32), Vec<u8>)> {
    table.split(|&byte| byte == b'\n').rev().filter_map(|line| {
        let mut fields = line.split(|&byte| byte == b' ').skip(2);
        let (major, minor) = std::str::from_utf8(fields.next()?).ok()?.split_once(':')?;
        let path = unescape(fields.nth(1)?);
        Some(((major.parse().ok()?, minor.parse().ok()?), path))
    })
}

fn newest_on(table: &[u8], dir: &Path) -> Option<(u32, u32)> {
    mounts_in(table).find_map(|(device, path)| is_at(&path, dir).then_some(device))
}

fn is_at(path: &[u8], dir: &Path) -> bool {
    path == std::os::unix::ffi::OsStrExt::as_bytes(dir.as_os_str())
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
        let newest = |table: &[u8], dir: &str| newest_on(table, Path::new(dir));
        assert_eq!(newest(table, "/mnt/a b"), Some((0, 55)));
        assert_eq!(newest(table, "/mnt"), Some((0, 56)));
        assert_eq!(newest(table, "/nowhere"), None);
        assert_eq!(newest(b"\n1\n1 2\n1 2 x / /mnt", "/mnt"), None);
    }
}
