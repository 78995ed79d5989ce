//! Removal of what an import brought and the folder no longer has.

use std::ffi::{CString, OsStr};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use larder_fs::{DirEntry, FileKind, FsError, Ino};
use rustix::io::Errno;

use crate::directory::Directory;
use crate::source;
use crate::state::Import;
use crate::{copy, directory, dress};

/// Names of a directory in the volume that are looked at at once.
const PAGE: usize = 512;
/// Directories below one another, as many as an import brings. Beyond it they stay, and are named.
const LEVELS_MAX: usize = directory::LEVELS_MAX;

const KEPT: &str = "the folder no longer has it; kept, because no import brought it or somebody changed it since";

/// Removes the names of a directory that the source lacks.
pub(crate) fn gone(import: &Import, dir: &Directory) {
    let Some(dest) = dir.dest else { return };
    let mut level = Level::of(dest, 0);
    loop {
        match level.next(import) {
            Ok(Some(entry)) => {
                let Ok(name) = CString::new(&entry.name[..]) else { continue };
                let done = match source::stat(&dir.fd, &name) {
                    Err(Errno::NOENT) => remove(import, dest, entry, dir.path_of(&name)),
                    // It is there, or nobody knows.
                    _ => Ok(()),
                };
                if let Err(error) = done {
                    return import.volume_fault(&dir.path, error);
                }
            }
            Ok(None) => return,
            Err(error) => return import.volume_fault(&dir.path, error),
        }
    }
}

/// A directory of the volume on the way down.
struct Level {
    dir: Ino,
    cookie: u64,
    page: std::vec::IntoIter<DirEntry>,
    eof: bool,
    /// Nothing of it is left so far.
    is_empty: bool,
    /// The directory above, and its name there; the topmost has none.
    entry: Option<(Ino, Bytes)>,
    /// Where its path ends.
    path_bytes: usize,
}

impl Level {
    fn of(dir: Ino, path_bytes: usize) -> Level {
        let page = Vec::new().into_iter();
        Level { dir, cookie: 0, page, eof: false, is_empty: true, entry: None, path_bytes }
    }

    fn next(&mut self, import: &Import) -> Result<Option<DirEntry>, FsError> {
        loop {
            if import.progress.is_stopped() {
                return Ok(None);
            }
            if let Some(entry) = self.page.next() {
                self.cookie = entry.cookie;
                return Ok(Some(entry));
            }
            if self.eof {
                return Ok(None);
            }
            let listing = import.on(import.files.readdir(&import.cred, self.dir, self.cookie, PAGE, true))?;
            self.eof = listing.eof || listing.entries.is_empty();
            self.page = listing.entries.into_iter();
        }
    }
}

/// A name that was looked at.
enum Looked {
    Gone,
    Stays,
    Enter(Level),
}

/// Removes a name and everything below it that an import brought. The way down is a list, because folders may be deep.
fn remove(import: &Import, dir: Ino, entry: DirEntry, path: PathBuf) -> Result<(), FsError> {
    let mut path = path.into_os_string().into_vec();
    let mut levels = Vec::new();
    levels.extend(match look(import, dir, entry, &path, 0)? {
        Looked::Enter(top) => Some(top),
        Looked::Gone | Looked::Stays => None,
    });
    while let Some(level) = levels.last_mut() {
        path.truncate(level.path_bytes);
        let stays = match level.next(import)? {
            Some(entry) => {
                path.push(b'/');
                path.extend_from_slice(&entry.name);
                let (dir, depth) = (level.dir, levels.len());
                match look(import, dir, entry, &path, depth)? {
                    Looked::Enter(below) => {
                        levels.push(below);
                        false
                    }
                    looked => matches!(looked, Looked::Stays),
                }
            }
            // Nobody knows what is left.
            None if import.progress.is_stopped() => return Ok(()),
            None => leave(import, levels.pop())?,
        };
        if let Some(level) = levels.last_mut() {
            level.is_empty &= !stays;
        }
    }
    Ok(())
}

fn look(import: &Import, dir: Ino, entry: DirEntry, path: &[u8], depth: usize) -> Result<Looked, FsError> {
    let Some(attr) = &entry.attr else { return Ok(Looked::Gone) };
    let is_directory = entry.kind == FileKind::Directory;
    let may = match is_directory {
        true => depth < LEVELS_MAX && dress::marker(import, entry.ino)?.is_some(),
        false => copy::may_replace(import, attr)?,
    };
    if !may {
        import.leave_out(Path::new(OsStr::from_bytes(path)), KEPT);
        return Ok(Looked::Stays);
    }
    if is_directory {
        return Ok(Looked::Enter(Level { entry: Some((dir, entry.name.clone())), ..Level::of(entry.ino, path.len()) }));
    }
    import.counts.removed.add(1);
    if !import.options.dry_run {
        import.on(import.files.unlink(&import.cred, dir, &entry.name))?;
    }
    Ok(Looked::Gone)
}

/// Removes a directory that is empty by now. Returns whether it stays.
fn leave(import: &Import, level: Option<Level>) -> Result<bool, FsError> {
    let Some(Level { entry: Some((dir, name)), is_empty: true, .. }) = level else { return Ok(true) };
    import.counts.removed.add(1);
    if !import.options.dry_run {
        import.on(import.files.rmdir(&import.cred, dir, &name))?;
    }
    Ok(false)
}
