//! Files, links and attributes in the folder for recovered data.
//!
//! - `output.made_anew`: every name is made anew (`mkdir`, `O_EXCL`). No name can make the command
//!   follow a link or write over a file.
//! - `output.loss_is_noted`: a note names each property that this machine cannot keep (an owner, an
//!   attribute). No content is lost for it.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions, Permissions};
use std::io;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use larder_base::Timestamp;
use larder_fs::FileKind;
use larder_volume::salvage::{Node, Plan, Salvage};
use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, Timespec, Timestamps, Uid, XattrFlags};

/// The outcome of writing a file's content.
#[derive(Debug, Default)]
pub(super) struct Written {
    pub(super) bytes: u64,
    /// Written as holes.
    pub(super) missing: Vec<Range<u64>>,
    pub(super) why: Vec<String>,
}

/// Reasons told for one file.
const WHY_MAX: usize = 8;

/// The name in the folder for a name of the volume; `None` where it cannot be one.
pub(super) fn child(parent: &Path, name: &[u8]) -> Option<PathBuf> {
    let plain = !name.is_empty() && name != b"." && name != b".." && !name.contains(&b'/') && !name.contains(&0);
    plain.then(|| parent.join(OsStr::from_bytes(name)))
}

pub(super) async fn write_file(salvage: &Salvage, path: &Path, plan: &Plan) -> io::Result<Written> {
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.set_len(plan.size)?;
    let mut written = Written { why: plan.faults.clone(), ..Written::default() };
    for piece in plan.pieces.iter().filter(|piece| !piece.is_zero()) {
        match salvage.read(piece).await {
            Ok(bytes) => {
                write_at(&file, &bytes, piece.offset)?;
                written.bytes += bytes.len() as u64;
            }
            Err(why) => {
                match written.missing.last_mut() {
                    Some(last) if last.end == piece.offset => last.end = piece.range().end,
                    _ => written.missing.push(piece.range()),
                }
                written.why.push(why);
            }
        }
    }
    written.why.dedup();
    written.why.truncate(WHY_MAX);
    Ok(written)
}

/// Zeros stay holes.
fn write_at(file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
    const STEP: usize = 64 << 10;
    for (at, part) in (offset..).step_by(STEP).zip(bytes.chunks(STEP)) {
        if part.iter().any(|byte| *byte != 0) {
            file.write_all_at(part, at)?;
        }
    }
    Ok(())
}

/// A symbolic link, a device, a pipe or a socket.
pub(super) fn make_special(path: &Path, node: &Node) -> io::Result<()> {
    let kind = match node.attr.kind {
        FileKind::Symlink => return std::os::unix::fs::symlink(OsStr::from_bytes(&node.target), path),
        FileKind::Fifo => FileType::Fifo,
        FileKind::Socket => FileType::Socket,
        FileKind::CharDevice => FileType::CharacterDevice,
        FileKind::BlockDevice => FileType::BlockDevice,
        FileKind::File | FileKind::Directory => return Err(io::ErrorKind::InvalidInput.into()),
    };
    let (major, minor) = node.attr.rdev;
    let device = rustix::fs::makedev(major, minor);
    Ok(rustix::fs::mknodat(CWD, path, kind, Mode::from_raw_mode(0o600), device)?)
}

/// Owner, extended attributes, permissions, times: in this order, because each may undo those after it. Returns
/// what could not be set.
pub(super) fn set_attributes(path: &Path, node: &Node, xattrs: &[(bytes::Bytes, bytes::Bytes)]) -> Vec<String> {
    let attr = &node.attr;
    let mut notes = Vec::new();
    let mut note = |what: &str, error: io::Error| notes.push(format!("{what} could not be set: {error}"));
    let (owner, group) = (Uid::from_raw(attr.uid), Gid::from_raw(attr.gid));
    if let Err(error) = rustix::fs::chownat(CWD, path, Some(owner), Some(group), AtFlags::SYMLINK_NOFOLLOW) {
        note(&format!("the owner {}:{}", attr.uid, attr.gid), error.into());
    }
    for (name, value) in xattrs {
        if let Err(error) = rustix::fs::lsetxattr(path, OsStr::from_bytes(name), value, XattrFlags::empty()) {
            note(&format!("the attribute {}", String::from_utf8_lossy(name)), error.into());
        }
    }
    if attr.kind != FileKind::Symlink
        && let Err(error) = std::fs::set_permissions(path, Permissions::from_mode(attr.mode & 0o7777))
    {
        note("the permissions", error);
    }
    let times = Timestamps { last_access: timespec(attr.atime), last_modification: timespec(attr.mtime) };
    if let Err(error) = rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW) {
        note("the times", error.into());
    }
    notes
}

fn timespec(time: Timestamp) -> Timespec {
    Timespec { tv_sec: time.secs, tv_nsec: i64::from(time.nanos) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_never_lead_out_of_the_folder() {
        let parent = Path::new("/to");
        for bad in [&b""[..], b".", b"..", b"a/b", b"/etc", b"a\0"] {
            assert_eq!(child(parent, bad), None, "{bad:?}");
        }
        assert_eq!(child(parent, b"..."), Some("/to/...".into()));
    }
}
