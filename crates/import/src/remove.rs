//! Removal of what an import brought and the folder no longer has.

use std::ffi::CString;
use std::path::Path;

use larder_volume::{DirEntry, FileKind, FsError, Ino};
use rustix::io::Errno;

use crate::directory::Directory;
use crate::source;
use crate::state::Import;
use crate::{copy, dress};

/// Names of a directory in the volume that are looked at at once.
const PAGE: usize = 512;
/// Directories below one another. Beyond it they stay, and are named.
const LEVELS_MAX: usize = 512;

const KEPT: &str = "the folder no longer has it; kept, because no import brought it or somebody changed it since";

/// Removes the names of a directory that the source lacks.
pub(crate) fn gone(import: &Import, dir: &Directory) {
    let Some(dest) = dir.dest else { return };
    let done = each(import, dest, &mut |entry| {
        let Ok(name) = CString::new(&entry.name[..]) else { return Ok(()) };
        match source::stat(&dir.fd, &name) {
            Err(Errno::NOENT) => remove(import, dest, entry, &dir.path_of(&name), 0).map(drop),
            // It is there, or nobody knows.
            _ => Ok(()),
        }
    });
    if let Err(error) = done {
        import.volume_fault(&dir.path, error);
    }
}

fn each(import: &Import, dir: Ino, work: &mut dyn FnMut(&DirEntry) -> Result<(), FsError>) -> Result<(), FsError> {
    let mut cookie = 0;
    loop {
        let page = import.on(import.files.readdir(&import.cred, dir, cookie, PAGE, true))?;
        for entry in &page.entries {
            if import.progress.is_stopped() {
                return Ok(());
            }
            cookie = entry.cookie;
            work(entry)?;
        }
        if page.eof || page.entries.is_empty() {
            return Ok(());
        }
    }
}

/// Removes a name and everything below it that an import brought. Returns whether nothing of it is left.
fn remove(import: &Import, dir: Ino, entry: &DirEntry, path: &Path, level: usize) -> Result<bool, FsError> {
    let Some(attr) = &entry.attr else { return Ok(true) };
    let (files, cred) = (&import.files, &import.cred);
    let is_directory = entry.kind == FileKind::Directory;
    let may = match is_directory {
        true => level < LEVELS_MAX && dress::marker(import, entry.ino)?.is_some(),
        false => copy::may_replace(import, attr)?,
    };
    if !may {
        import.leave_out(path, KEPT);
        return Ok(false);
    }
    if is_directory {
        let mut is_empty = true;
        each(import, entry.ino, &mut |below| {
            let path = path.join(<std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(&below.name));
            is_empty &= remove(import, entry.ino, below, &path, level + 1)?;
            Ok(())
        })?;
        if !is_empty {
            return Ok(false);
        }
    }
    import.counts.removed.add(1);
    if import.options.dry_run {
        return Ok(true);
    }
    match is_directory {
        true => drop(import.on(files.rmdir(cred, dir, &entry.name))?),
        false => drop(import.on(files.unlink(cred, dir, &entry.name))?),
    }
    Ok(true)
}
