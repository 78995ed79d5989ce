//! Files `._NAME` beside files and folders NAME, in which macOS and Samba keep the rest of a Mac's file (`import.samba_kept`).
//!
//! They are no files of the volume: when all names of their folder are there, the streams in them are given to the copies.

use std::ffi::CStr;
use std::os::fd::AsFd;

use larder_fs::FileKind;
use rustix::io::Errno;

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

/// Whether a name of a directory is such a file. One that cannot be read is told by whoever copies it.
pub(crate) fn is_double(dir: &impl AsFd, name: &CStr, stat: &Stat) -> bool {
    read(dir, name, stat).is_ok_and(|found| found.is_some())
}

struct Double<'a> {
    /// The name of the file that it belongs to.
    owner: &'a CStr,
    own: Stat,
    streams: Vec<NameAndValue>,
}

/// `None`: it is no such file.
fn read<'a>(dir: &impl AsFd, name: &'a CStr, stat: &Stat) -> Result<Option<Double<'a>>, Errno> {
    let Some(owner) = owner_of(name) else { return Ok(None) };
    if stat.kind != FileKind::File || stat.size > BYTES_MAX {
        return Ok(None);
    }
    let own = match source::stat(dir, owner) {
        Ok(own) if matches!(own.kind, FileKind::File | FileKind::Directory) => own,
        Ok(_) | Err(Errno::NOENT) => return Ok(None),
        Err(error) => return Err(error),
    };
    let file = source::open(dir, name, FileKind::File)?;
    if !apple::begins_so(&source::read(&file, 0, HEAD_BYTES)?) {
        return Ok(None);
    }
    let len = usize::try_from(stat.size).unwrap_or(usize::MAX);
    let streams = apple::streams(&source::read(&file, 0, len)?);
    source::drop_cache(&file);
    Ok(streams.map(|streams| Double { owner, own, streams }))
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
    if let Err(error) = each_name(import, dir, what) {
        import.source_fault(&dir.path, error);
    }
}

fn each_name(import: &Import, dir: &Directory, what: Do) -> Result<(), Errno> {
    let mut names = Names::of(&dir.fd)?;
    loop {
        let page = names.page()?;
        if page.is_empty() {
            return Ok(());
        }
        for name in page.iter().filter(|name| owner_of(name).is_some()) {
            if import.progress.is_stopped() {
                return Ok(());
            }
            let done = one(import, dir, name, what);
            dress::fault(import, &dir.path_of(name), done);
        }
    }
}

fn one(import: &Import, dir: &Directory, name: &CStr, what: Do) -> Result<(), Trouble> {
    let stat = source::stat(&dir.fd, name)?;
    let Some(Double { owner, own, mut streams }) = read(&dir.fd, name, &stat)? else { return Ok(()) };
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
