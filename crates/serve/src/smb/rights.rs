//! What POSIX permissions grant, in the rights that an SMB open asks for (MS-SMB2 2.2.13.1.1).
//!
//! The share has its own say before (read or read and write, per user); what is computed here is the
//! file's. Mode bits are the truth, as they are for every other protocol: there are no ACLs, and the
//! security descriptor is a view of them (`security.rs`). READONLY, kept for Windows, takes writing away as well.

use larder_files::Uses;
use larder_volume::{Attr, Cred, FileKind};

pub const READ_DATA: u32 = 0x0000_0001;
pub const WRITE_DATA: u32 = 0x0000_0002;
pub const APPEND_DATA: u32 = 0x0000_0004;
const READ_EA: u32 = 0x0000_0008;
const WRITE_EA: u32 = 0x0000_0010;
const EXECUTE: u32 = 0x0000_0020;
const DELETE_CHILD: u32 = 0x0000_0040;
const READ_ATTRIBUTES: u32 = 0x0000_0080;
pub const WRITE_ATTRIBUTES: u32 = 0x0000_0100;
pub const DELETE: u32 = 0x0001_0000;
const READ_CONTROL: u32 = 0x0002_0000;
const WRITE_DAC: u32 = 0x0004_0000;
const WRITE_OWNER: u32 = 0x0008_0000;
const SYNCHRONIZE: u32 = 0x0010_0000;

/// What anybody may who reached the file: stat it, and wait for it.
const ALWAYS: u32 = READ_EA | READ_ATTRIBUTES | READ_CONTROL | SYNCHRONIZE;
const READING: u32 = READ_DATA | EXECUTE;
const WRITING: u32 = WRITE_DATA | APPEND_DATA | WRITE_EA | WRITE_ATTRIBUTES;
/// What the owner may whatever the mode says: change it.
pub const OWNING: u32 = WRITE_ATTRIBUTES | WRITE_EA | WRITE_DAC | WRITE_OWNER;
const EVERYTHING: u32 = 0x001f_01ff;

/// MS-FSCC 2.6.
pub const DOS_READONLY: u32 = 0x1;
pub const DOS_ARCHIVE: u32 = 0x20;
/// HIDDEN, SYSTEM: who overwrites such a file has to ask for one.
pub const DOS_GUARDED: u32 = 0x2 | 0x4;
/// Set and cleared by a request of its own; nothing in the volume depends on it.
pub const DOS_SPARSE: u32 = 0x200;
/// READONLY, HIDDEN, SYSTEM, ARCHIVE, TEMPORARY, OFFLINE, NOT_CONTENT_INDEXED: what a client may set.
pub const DOS_SETTABLE: u32 = 0x1 | 0x2 | 0x4 | 0x20 | 0x100 | 0x1000 | 0x2000;

const STICKY: u32 = 0o1000;

/// What an open with `access` does to the file, as other protocols know it.
pub fn uses(access: u32) -> Uses {
    Uses::NOTHING
        .and_if(access & (READ_DATA | EXECUTE) != 0, Uses::READ)
        .and_if(access & (WRITE_DATA | APPEND_DATA) != 0, Uses::WRITE)
        .and_if(access & DELETE != 0, Uses::DELETE)
}

/// What an open that shares the file for `share` (MS-SMB2 2.2.13, ShareAccess) denies to others.
pub fn denied(share: u32) -> Uses {
    const SHARE_READ: u32 = 1;
    const SHARE_WRITE: u32 = 2;
    const SHARE_DELETE: u32 = 4;
    Uses::NOTHING
        .and_if(share & SHARE_READ == 0, Uses::READ)
        .and_if(share & SHARE_WRITE == 0, Uses::WRITE)
        .and_if(share & SHARE_DELETE == 0, Uses::DELETE)
}

/// The rights of `who` on a file in `parent`. The root has none; its owner is granted DELETE as part of
/// "full access", and the delete itself is refused.
pub fn granted(who: &Cred, attr: &Attr, parent: Option<&Attr>) -> u32 {
    let root = who.uid == 0;
    let bits = if root { 7 } else { mode_bits(who, attr) };
    let directory = attr.kind == FileKind::Directory;
    let mut rights = ALWAYS;
    if bits & 4 != 0 {
        rights |= READING;
    }
    if bits & 1 != 0 {
        // An executable that may not be read cannot be run either: the client does the running.
        rights |= if directory { EXECUTE } else { 0 };
    }
    if bits & 2 != 0 {
        rights |= WRITING;
        // On a file it means nothing, but "full access" asks for it.
        if !directory || bits & 1 != 0 {
            rights |= DELETE_CHILD;
        }
    }
    if root || who.uid == attr.uid {
        rights |= OWNING;
    }
    let removable = match parent {
        Some(parent) => may_remove(who, attr, parent),
        None => rights & OWNING == OWNING,
    };
    if removable {
        rights |= DELETE;
    }
    if attr.dos & DOS_READONLY != 0 && !directory {
        rights &= !(WRITE_DATA | APPEND_DATA);
    }
    rights & EVERYTHING
}

/// What the mode bits of one class (rwx) say, in rights: what [`granted`] makes of them, and DELETE, which is
/// the directory's to grant, with writing.
pub fn of_bits(bits: u32, directory: bool) -> u32 {
    let mut rights = ALWAYS;
    if bits & 4 != 0 {
        rights |= READING & !if directory { EXECUTE } else { 0 };
    }
    if bits & 2 != 0 {
        rights |= WRITING | DELETE | DELETE_CHILD;
    }
    if bits & 1 != 0 && directory {
        rights |= EXECUTE;
    }
    rights
}

/// The mode bits of one class that `rights` come to.
pub fn to_bits(rights: u32, directory: bool) -> u32 {
    let has = |wanted: u32| rights & wanted == wanted;
    u32::from(has(READ_DATA)) << 2
        | u32::from(has(WRITE_DATA | APPEND_DATA)) << 1
        | u32::from(directory && has(EXECUTE))
}

/// A mask of a rule, its generic rights replaced by the file's (MS-SMB2 2.2.13.1.1).
pub fn specific(mask: u32) -> u32 {
    const GENERIC: [(u32, u32); 4] = [
        (0x8000_0000, READ_DATA | READ_EA | READ_ATTRIBUTES | READ_CONTROL | SYNCHRONIZE),
        (0x4000_0000, WRITING | READ_CONTROL | SYNCHRONIZE),
        (0x2000_0000, EXECUTE | READ_ATTRIBUTES | READ_CONTROL | SYNCHRONIZE),
        (0x1000_0000, EVERYTHING),
    ];
    let mapped = GENERIC.iter().filter(|(generic, _)| mask & generic != 0).fold(0, |rights, (_, of)| rights | of);
    (mask | mapped) & EVERYTHING
}

/// unlink(2): write and search on the directory; where it is sticky, as the owner of either.
fn may_remove(who: &Cred, attr: &Attr, parent: &Attr) -> bool {
    if who.uid == 0 {
        return true;
    }
    let sticky = parent.mode & STICKY != 0 && who.uid != attr.uid && who.uid != parent.uid;
    mode_bits(who, parent) & 3 == 3 && !sticky
}

fn mode_bits(who: &Cred, attr: &Attr) -> u32 {
    let shift = match () {
        () if who.uid == attr.uid => 6,
        () if who.in_group(attr.gid) => 3,
        () => 0,
    };
    attr.mode >> shift & 7
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_base::Timestamp;
    use larder_volume::{FileId, Ino};

    fn attr(kind: FileKind, mode: u32, uid: u32, dos: u32) -> Attr {
        let time = Timestamp::new(0, 0);
        Attr {
            id: FileId { ino: Ino(2), generation: 1 },
            kind,
            mode,
            nlink: 1,
            uid,
            gid: uid,
            size: 0,
            allocated: 0,
            rdev: (0, 0),
            atime: time,
            mtime: time,
            ctime: time,
            btime: time,
            change: 0,
            dos,
        }
    }

    #[track_caller]
    fn check(uid: u32, file: Attr, parent_mode: u32, has: u32, lacks: u32) {
        let parent = attr(FileKind::Directory, parent_mode, 1, 0);
        let rights = granted(&Cred::new(uid, uid, []), &file, Some(&parent));
        assert_eq!(rights & has, has, "{rights:#x}");
        assert_eq!(rights & lacks, 0, "{rights:#x}");
    }

    #[test]
    fn mode_bits_become_rights() {
        let file = |mode, dos| attr(FileKind::File, mode, 1, dos);
        check(1, file(0o600, 0), 0o755, READ_DATA | WRITE_DATA | DELETE | WRITE_ATTRIBUTES, 0);
        check(2, file(0o600, 0), 0o755, READ_ATTRIBUTES, READ_DATA | WRITE_DATA | DELETE | WRITE_ATTRIBUTES);
        check(2, file(0o644, 0), 0o777, READ_DATA | EXECUTE | DELETE, WRITE_DATA);
        check(2, file(0o666, 0), 0o1777, WRITE_DATA, DELETE);
        check(1, file(0o444, 0), 0o755, DELETE | WRITE_ATTRIBUTES, WRITE_DATA);
        check(0, file(0, 0), 0, EVERYTHING, 0);
    }

    #[test]
    fn readonly_takes_writing_away_but_not_from_directories() {
        check(1, attr(FileKind::File, 0o644, 1, DOS_READONLY), 0o755, WRITE_ATTRIBUTES, WRITE_DATA | APPEND_DATA);
        check(1, attr(FileKind::Directory, 0o755, 1, DOS_READONLY), 0o755, WRITE_DATA | APPEND_DATA, 0);
    }
}
