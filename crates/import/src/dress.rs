//! Attributes of what was copied: extended attributes, lists, mode, owner and times, and last the marker, which says that all of
//! it is done (`import.marked_when_dressed`).

use std::os::fd::AsFd;

use bytes::Bytes;
use larder_fs::acl::Acl;
use larder_fs::posix_acl;
use larder_fs::{Attr, CreateMode, FileKind, FsError, Ino, SetAttr, SetTime, Stability, XattrMode};
use rustix::io::Errno;

use crate::marker::{self, Marker};
use crate::source::{self, NameAndValue, PIECE_BYTES, Stat, Xattrs};
use crate::state::Import;

/// A fault of either side.
pub(crate) enum Trouble {
    Source(Errno),
    Volume(FsError),
}

impl From<Errno> for Trouble {
    fn from(error: Errno) -> Self {
        Trouble::Source(error)
    }
}

impl From<FsError> for Trouble {
    fn from(error: FsError) -> Self {
        Trouble::Volume(error)
    }
}

/// Gives `ino` the attributes of the source. `file` is the source, where it can be opened: only files and directories are.
pub(crate) fn dress(import: &Import, ino: Ino, stat: &Stat, file: Option<&impl AsFd>) -> Result<(), Trouble> {
    let (mut list, mut dos, mut btime) = (None, None, stat.btime);
    if let Some(file) = file {
        let wanted = source::xattrs(file.as_fd())?;
        list = acl(&wanted, stat)?;
        set_xattrs(import, ino, &wanted)?;
        set_streams(import, ino, &wanted.streams)?;
        (dos, btime) = (wanted.dos, wanted.created.or(stat.btime));
    }
    // Links have no mode of their own.
    let mode = (stat.kind != FileKind::Symlink).then_some(stat.mode);
    let set = SetAttr {
        mode,
        uid: Some(stat.uid),
        gid: Some(stat.gid),
        atime: Some(SetTime::To(stat.atime)),
        mtime: Some(SetTime::To(stat.mtime)),
        btime,
        dos,
        ..SetAttr::default()
    };
    let (files, cred) = (&import.files, &import.cred);
    let has_list = import.on(files.acl(ino))?.1.is_some();
    match list.is_some() || has_list {
        true => import.on(files.set_acl(cred, ino, set, list))?,
        false => import.on(files.setattr(cred, ino, set))?,
    };
    Ok(mark(import, ino, stat)?)
}

/// The list of the volume for the POSIX lists of the source.
pub(crate) fn acl(xattrs: &Xattrs, stat: &Stat) -> Result<Option<Acl>, Errno> {
    let is_directory = stat.kind == FileKind::Directory;
    posix_acl::convert(xattrs.access.as_deref(), xattrs.default.as_deref(), stat.mode, is_directory)
        .map_err(|()| Errno::INVAL)
}

/// Remembers the state of the source that was copied.
pub(crate) fn mark(import: &Import, ino: Ino, stat: &Stat) -> Result<(), FsError> {
    if marker(import, ino)? == Some(Marker::of(stat)) {
        return Ok(());
    }
    let value = Marker::of(stat).encode();
    import.on(import.files.setxattr(&import.cred, ino, marker::NAME, &value, XattrMode::Set))
}

/// The state of the source when `ino` was copied; `None` if an import did not bring it.
pub(crate) fn marker(import: &Import, ino: Ino) -> Result<Option<Marker>, FsError> {
    match import.on(import.files.getxattr(&import.cred, ino, marker::NAME)) {
        Ok(value) => Ok(Marker::decode(&value)),
        Err(FsError::NoAttribute) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Makes the copied attributes those of the source, and no others.
fn set_xattrs(import: &Import, ino: Ino, wanted: &Xattrs) -> Result<(), FsError> {
    let (files, cred) = (&import.files, &import.cred);
    let there = xattrs_there(import, ino)?;
    for (name, _) in there.iter().filter(|(name, _)| !wanted.copied.iter().any(|(wanted, _)| wanted == name)) {
        import.on(files.removexattr(cred, ino, name))?;
    }
    for (name, value) in wanted.copied.iter().filter(|wanted| !there.contains(wanted)) {
        import.on(files.setxattr(cred, ino, name, value, XattrMode::Set)).map_err(|error| match error {
            // Of one file, not of the volume.
            FsError::NoSpace(why) => FsError::Refused(why.into()),
            error => error,
        })?;
    }
    Ok(())
}

/// Whether a copy has what Samba kept of the source (`import.samba_kept`).
pub(crate) fn has_kept(import: &Import, attr: &Attr, wanted: &Xattrs) -> Result<bool, FsError> {
    let has_dos = wanted.dos.is_none_or(|dos| dos == attr.dos);
    let has_created = wanted.created.is_none_or(|created| created == attr.btime);
    if !(has_dos && has_created) {
        return Ok(false);
    }
    has_streams(import, attr.id.ino, &wanted.streams)
}

/// Whether an inode has these streams, beside others.
pub(crate) fn has_streams(import: &Import, ino: Ino, wanted: &[NameAndValue]) -> Result<bool, FsError> {
    let Some(dir) = streams_of(import, ino, wanted, false)? else {
        return Ok(wanted.is_empty());
    };
    for (name, data) in wanted {
        if !has_stream(import, dir, name, data)?.1 {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The directory of an inode's streams, if any are wanted.
fn streams_of(import: &Import, ino: Ino, wanted: &[NameAndValue], make: bool) -> Result<Option<Ino>, FsError> {
    match wanted.is_empty() {
        true => Ok(None),
        false => import.on(import.files.named_dir(ino, make)),
    }
}

/// The stream of that name, and whether it has these bytes.
fn has_stream(import: &Import, dir: Ino, name: &[u8], data: &[u8]) -> Result<(Option<Ino>, bool), FsError> {
    let Some(attr) = import.lookup(Some(dir), name)? else { return Ok((None, false)) };
    let ino = attr.id.ino;
    if attr.size != data.len() as u64 {
        return Ok((Some(ino), false));
    }
    let mut offset = 0;
    for piece in data.chunks(PIECE_BYTES) {
        let read = import.on(import.files.read(ino, offset, piece.len()))?;
        if read.chunks.concat() != piece {
            return Ok((Some(ino), false));
        }
        offset += piece.len() as u64;
    }
    Ok((Some(ino), true))
}

/// Gives a copy the streams of its source, durably: the name of the copy waits for its own data alone. Streams that the source does
/// not have stay.
pub(crate) fn set_streams(import: &Import, ino: Ino, wanted: &[NameAndValue]) -> Result<(), FsError> {
    let (files, cred) = (&import.files, &import.cred);
    let Some(dir) = streams_of(import, ino, wanted, true)? else { return Ok(()) };
    let owner = import.on(files.getattr(ino))?;
    for (name, data) in wanted {
        let stream = match has_stream(import, dir, name, data)? {
            (_, true) => continue,
            (Some(stream), false) => stream,
            (None, false) => import.on(files.create_named(cred, &owner, (dir, name), CreateMode::Guarded))?.id.ino,
        };
        import.on(files.setattr(cred, stream, SetAttr { size: Some(data.len() as u64), ..SetAttr::default() }))?;
        let mut offset = 0;
        for piece in data.chunks(PIECE_BYTES) {
            let bytes = vec![Bytes::copy_from_slice(piece)];
            import.on(files.write(cred, stream, offset, bytes, Stability::Unstable))?;
            offset += piece.len() as u64;
        }
        import.on(files.commit(stream))?;
    }
    Ok(())
}

/// The attributes in the volume that are copied from a source, sorted.
pub(crate) fn xattrs_there(import: &Import, ino: Ino) -> Result<Vec<NameAndValue>, FsError> {
    let mut there = Vec::new();
    for name in import.on(import.files.listxattr(&import.cred, ino))? {
        if source::is_copied(&name) {
            let value = import.on(import.files.getxattr(&import.cred, ino, &name))?;
            there.push((name.to_vec(), value.to_vec()));
        }
    }
    there.sort_unstable();
    Ok(there)
}

/// The differences that a look at a source and its copy shows, beside contents. The mode is not among them where a list
/// decides, because it follows from the list.
pub(crate) fn difference(attr: &Attr, stat: &Stat, has_list: bool) -> Option<&'static str> {
    let is_link = stat.kind == FileKind::Symlink;
    [
        (attr.kind != stat.kind, "it is of another type in the volume"),
        (stat.kind == FileKind::File && attr.size != stat.size, "its size differs"),
        (attr.mtime != stat.mtime, "its time differs"),
        ((attr.uid, attr.gid) != (stat.uid, stat.gid), "its owner differs"),
        (!is_link && !has_list && attr.mode != stat.mode, "its mode differs"),
        (attr.rdev != device(stat), "its device number differs"),
    ]
    .into_iter()
    .find_map(|(differs, why)| differs.then_some(why))
}

/// The device number of a device, as volumes keep it.
pub(crate) fn device(stat: &Stat) -> (u32, u32) {
    match stat.kind {
        FileKind::CharDevice | FileKind::BlockDevice => stat.rdev,
        _ => (0, 0),
    }
}

/// Notes the trouble at its path.
pub(crate) fn fault(import: &Import, path: &std::path::Path, done: Result<(), Trouble>) {
    match done {
        Ok(()) => {}
        Err(Trouble::Source(error)) => import.source_fault(path, error),
        Err(Trouble::Volume(error)) => import.volume_fault(path, error),
    }
}
