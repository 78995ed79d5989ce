//! Removal of a bench's folder, found again by its device and inode.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::mount::UnmountFlags;

use crate::Machine;

/// Names the maker of a folder.
pub(super) const MARKER: &str = "larder-bench.json";
/// The one place in it where a bench mounts something: the pool that it made.
pub(super) const MOUNT: &str = "mount";

/// Which folder it is, whatever its name says later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) device: u64,
    pub(super) inode: u64,
}

impl Identity {
    /// Of a folder itself; a link to one is none.
    pub(super) fn of(path: &Path) -> std::io::Result<Self> {
        let found = fs::symlink_metadata(path)?;
        match found.is_dir() {
            true => Ok(Self { device: found.dev(), inode: found.ino() }),
            false => Err(std::io::Error::from(std::io::ErrorKind::NotADirectory)),
        }
    }
}

/// Unmounts before it removes: a pool that is mounted in the folder is not for us to empty.
pub(super) fn remove(machine: &Machine, path: &Path, identity: Identity) -> std::io::Result<()> {
    let same = || match Identity::of(path)? == identity {
        true => Ok(()),
        false => Err(std::io::Error::other("another folder has its name")),
    };
    same()?;
    unmount(machine, &path.join(MOUNT), identity.device)?;
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
