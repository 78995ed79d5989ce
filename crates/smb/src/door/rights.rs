//! Rights as SMB has them: attributes, and mode bits as rules.
//!
//! The share has its own say before (read or read and write, per user); who may do what with a file is for the volume to say
//! ([`larder_files::Tree::rights`]), by its mode bits or its access control list. READONLY, kept for Windows, takes writing away as well.

use larder_fs::acl::{ALWAYS, DELETE_CHILD, EXECUTE, READING, WRITING};
pub use larder_fs::acl::{APPEND_DATA, DELETE, OWNING, READ_DATA, WRITE_ATTRIBUTES, WRITE_DATA};
use larder_fs::{Attr, FileKind};

/// MS-FSCC 2.6.
pub const DOS_READONLY: u32 = 0x1;
pub const DOS_ARCHIVE: u32 = 0x20;
/// HIDDEN, SYSTEM: who overwrites such a file has to ask for one.
pub const DOS_GUARDED: u32 = 0x2 | 0x4;
/// Set and cleared by a request of its own; nothing in the volume depends on it.
pub const DOS_SPARSE: u32 = 0x200;
/// READONLY, HIDDEN, SYSTEM, ARCHIVE, TEMPORARY, OFFLINE, NOT_CONTENT_INDEXED: what a client may set.
pub const DOS_SETTABLE: u32 = 0x1 | 0x2 | 0x4 | 0x20 | 0x100 | 0x1000 | 0x2000;

/// The rights that an open gets of those that the volume grants: a share may be read-only for the user, and a file may have
/// the attribute READONLY.
pub fn granted(rights: u32, attr: &Attr, writable: bool) -> u32 {
    let special = !matches!(attr.kind, FileKind::File | FileKind::Directory);
    let mut denied = 0;
    if special {
        denied |= READ_DATA;
    }
    if special || !writable {
        denied |= WRITE_DATA | APPEND_DATA;
    }
    if !writable {
        denied |= DELETE | WRITE_ATTRIBUTES;
    }
    if attr.dos & DOS_READONLY != 0 && attr.kind != FileKind::Directory {
        denied |= WRITE_DATA | APPEND_DATA;
    }
    rights & !denied
}

/// Whether the attribute READONLY keeps a file or folder from being deleted (MS-FSA 2.1.5.15.3).
pub fn is_kept(attr: &Attr) -> bool {
    attr.dos & DOS_READONLY != 0
}

/// The rights of one class's mode bits (rwx): those that the volume derives from them. Writing includes DELETE, although
/// the directory grants it.
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
