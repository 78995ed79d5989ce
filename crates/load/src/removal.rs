//! Removal of a bench's folder, found again by its device and inode.

use std::fs;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;
use rustix::mount::UnmountFlags;

use crate::Machine;

/// Names the maker of a folder.
pub(super) const MARKER: &str = "larder-bench.json";
/// The places in it where a bench mounts something, the one above first: gocryptfs on a pool that it made, an encrypted
/// volume of it, and its plain one.
pub(super) const MOUNTS: [&str; 3] = ["plain", "sealed", "mount"];

/// `FUSE_SUPER_MAGIC` of statfs(2).
const FUSE: u64 = 0x6573_5546;
const MARKER_BYTES_MAX: u64 = 4096;

/// Which folder it is, whatever its name says later. A filesystem in user space may give a folder another inode each time
/// that it is asked (sshfs does); there the marker in the folder says whose it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) device: u64,
    which: Which,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Which {
    Inode(u64),
    Marker(Vec<u8>),
}

impl Identity {
    /// Of a folder itself; a link to one is none.
    pub(super) fn of(path: &Path) -> std::io::Result<Self> {
        let found = fs::symlink_metadata(path)?;
        if !found.is_dir() {
            return Err(std::io::Error::from(std::io::ErrorKind::NotADirectory));
        }
        let is_fuse = rustix::fs::statfs(path).is_ok_and(|stat| u64::try_from(stat.f_type) == Ok(FUSE));
        let which = if is_fuse { Which::Marker(marker(path)?) } else { Which::Inode(found.ino()) };
        Ok(Self { device: found.dev(), which })
    }

    /// Whether a look at the same path a moment later saw this folder.
    pub(super) fn is_of(&self, found: &fs::Metadata) -> bool {
        self.device == found.dev() && !matches!(self.which, Which::Inode(inode) if inode != found.ino())
    }
}

fn marker(folder: &Path) -> std::io::Result<Vec<u8>> {
    let flags = i32::try_from((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits()).map_err(std::io::Error::other)?;
    let file = fs::OpenOptions::new().read(true).custom_flags(flags).open(folder.join(MARKER))?;
    let mut text = Vec::new();
    file.take(MARKER_BYTES_MAX).read_to_end(&mut text)?;
    Ok(text)
}

/// Unmounts before it removes: a pool that is mounted in the folder is not for us to empty.
pub(super) fn remove(machine: &Machine, path: &Path, identity: &Identity) -> std::io::Result<()> {
    let same = || match Identity::of(path)? == *identity {
        true => Ok(()),
        false => Err(std::io::Error::other("another folder has its name")),
    };
    same()?;
    MOUNTS.iter().try_for_each(|mount| unmount(machine, &path.join(mount), identity.device))?;
    same()?;
    empty(path)?;
    fs::remove_file(path.join(MARKER))?;
    fs::remove_dir(path)
}

/// All but the marker: whoever is killed in the middle of this leaves a folder that can be swept.
fn empty(path: &Path) -> std::io::Result<()> {
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        match entry.file_type()?.is_dir() {
            true => fs::remove_dir_all(entry.path())?,
            false if entry.file_name() == MARKER => {}
            false => fs::remove_file(entry.path())?,
        }
    }
    Ok(())
}

/// Its server may be gone: such a mount cannot be looked at, but it can be unmounted.
fn unmount(machine: &Machine, point: &Path, device: u64) -> std::io::Result<()> {
    let mounted = || match fs::symlink_metadata(point) {
        Ok(found) => found.is_dir() && found.dev() != device,
        Err(error) => error.kind() != std::io::ErrorKind::NotFound,
    };
    if !mounted() {
        return Ok(());
    }
    if rustix::mount::unmount(point, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW).is_err() {
        let _ = machine.work("fusermount3", &["-u", "-z", &point.to_string_lossy()]);
    }
    match mounted() {
        true => Err(std::io::Error::other(format!("{} is still mounted", point.display()))),
        false => Ok(()),
    }
}
