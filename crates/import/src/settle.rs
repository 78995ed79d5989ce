//! Directories whose entries all have their names.

use std::os::fd::AsFd;

use larder_fs::Ino;

use crate::directory::Directory;
use crate::dress::{self, Trouble};
use crate::state::Import;
use crate::{doubles, source};

/// One entry of a directory is there, or will not be.
pub(crate) fn release(import: &Import, dir: &Directory) {
    if dir.release() && !import.progress.is_stopped() {
        directory(import, dir);
    }
}

/// All entries of a directory have their names: now it gets its attributes, if it has not had them
/// (`import.times_of_directories_last`).
fn directory(import: &Import, dir: &Directory) {
    if !import.options.dry_run {
        doubles::each(import, dir, doubles::Do::Give);
    }
    // The root of a volume keeps its own: it is the share's top folder.
    let Some(ino) = dir.dest.filter(|ino| *ino != Ino::ROOT && !import.options.dry_run) else { return };
    let done = directory_attributes(import, dir, ino);
    dress::fault(import, &dir.path, done);
}

fn directory_attributes(import: &Import, dir: &Directory, ino: Ino) -> Result<(), Trouble> {
    let wanted = source::xattrs(dir.fd.as_fd())?;
    let (attr, list) = import.on(import.files.acl(ino))?;
    let same = dress::difference(&attr, &dir.stat, list.is_some()).is_none()
        && dress::acl(&wanted, &dir.stat)?.as_ref() == list.as_deref()
        && dress::xattrs_there(import, ino)? == wanted.copied
        && dress::has_kept(import, &attr, &wanted)?
        && dress::marker(import, ino)?.is_some();
    if same { Ok(()) } else { dress::dress(import, ino, &dir.stat, Some(&dir.fd)) }
}
