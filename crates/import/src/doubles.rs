//! Files `._NAME` beside files and folders NAME, in which macOS and Samba keep the rest of a Mac's file (`import.samba_kept`).
//!
//! They are no files of the volume: when all names of their folder are there, the streams in them are given to the copies.

use std::ffi::{CStr, CString};
use std::os::fd::AsFd;

use larder_fs::FileKind;

use crate::apple;
use crate::directory::Directory;
use crate::dress::{self, Trouble};
use crate::source::{self, NameAndValue, Names, Stat};
use crate::state::Import;

/// Larger ones are copied as files. Resource forks of Macs end at 16 MiB.
const BYTES_MAX: u64 = 17 << 20;
const HEAD_BYTES: usize = 8;

/// The name of whose it is.
fn owner_of(name: &CStr) -> Option<&CStr> {
    let rest = name.to_bytes_with_nul().strip_prefix(b"._")?;
    CStr::from_bytes_with_nul(rest).ok().filter(|name| !name.is_empty())
}

/// Whether a name of a directory is such a file.
pub(crate) fn is_double(dir: &impl AsFd, name: &CStr, stat: &Stat) -> bool {
    let Some(owner) = owner_of(name) else { return false };
    if stat.kind != FileKind::File || stat.size > BYTES_MAX {
        return false;
    }
    let has_owner = |stat: Stat| matches!(stat.kind, FileKind::File | FileKind::Directory);
    let file = source::open(dir, name, FileKind::File);
    let begins_so = file.and_then(|file| source::read(&file, 0, HEAD_BYTES)).is_ok_and(|head| apple::begins_so(&head));
    begins_so && source::stat(dir, owner).is_ok_and(has_owner) && read(dir, name).is_ok_and(|streams| streams.is_some())
}

fn read(dir: &impl AsFd, name: &CStr) -> Result<Option<Vec<NameAndValue>>, rustix::io::Errno> {
    let file = source::open(dir, name, FileKind::File)?;
    let bytes = source::read(&file, 0, BYTES_MAX as usize)?;
    source::drop_cache(&file);
    Ok(apple::streams(&bytes))
}

/// What is to be done with the streams.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Do {
    Give,
    Compare,
}

/// All names of the directory are in the volume: those with such a file beside them get its streams, or are compared with it.
pub(crate) fn each(import: &Import, dir: &Directory, what: Do) {
    if !dir.has_doubles() {
        return;
    }
    let Ok(mut names) = Names::of(&dir.fd) else { return };
    while let Ok(page) = names.page()
        && !page.is_empty()
    {
        for name in page.iter().filter(|name| owner_of(name).is_some()) {
            if import.progress.is_stopped() {
                return;
            }
            let done = one(import, dir, name, what);
            dress::fault(import, &dir.path_of(name), done);
        }
    }
}

fn one(import: &Import, dir: &Directory, name: &CString, what: Do) -> Result<(), Trouble> {
    let stat = source::stat(&dir.fd, name)?;
    let Some(owner) = owner_of(name).filter(|_| is_double(&dir.fd, name, &stat)) else { return Ok(()) };
    let Some(mut streams) = read(&dir.fd, name)? else { return Ok(()) };
    let own = source::stat(&dir.fd, owner)?;
    let kept = source::xattrs(source::open(&dir.fd, owner, own.kind)?.as_fd())?.streams;
    // What lies at the file itself counts.
    streams.retain(|(name, _)| kept.iter().all(|(own, _)| own != name));
    let Some(attr) = import.lookup(dir.dest, owner.to_bytes())? else { return Ok(()) };
    let ino = attr.id.ino;
    match what {
        Do::Compare if !dress::has_streams(import, ino, &streams)? => {
            import.fault(&dir.path_of(owner), "its streams differ from those in its AppleDouble file");
        }
        // `import.nothing_of_others`
        Do::Give if import.options.overwrite || dress::marker(import, ino)?.is_some() => {
            dress::set_streams(import, ino, &streams)?;
        }
        _ => {}
    }
    Ok(())
}
