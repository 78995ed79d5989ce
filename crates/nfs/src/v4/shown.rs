//! Attributes of files as clients see and set them.
//!
//! - `shown.supported_by_minor`: each minor version is told of the attributes that it knows. Any other is refused when
//!   set and left out when asked for.
//! - `shown.past_apart`: what lies in snapshots is a file system of its own, so programs that stay in one do not enter it.

use std::sync::LazyLock;

use larder_fs::acl::Acl;
use larder_fs::{Attr, FILE_BYTES_MAX, Ino, LINKS_MAX, NAME_BYTES_MAX, StatFs};

use super::super::export::ExportState;
use super::super::handle::HANDLE_BYTES;
use super::super::ops::IO_BYTES_MAX;
use super::super::owners::{NoOwner, Owners};
use super::super::xdr::Reader;
use super::access_list;
use super::attrs::{FileAttrs, OpenArguments, number};
use super::bitmap::Bitmap;
use super::convert::{kind_of, time_of, told_change};
use super::place::{Caller, Object, PseudoDir, mounted_on};
use super::server::LEASE;
use super::types::{Acl4, Acl41, ChangeAttrKind, DeviceNumber, FileType4, FsId4, NfsStat, Time4};
use super::wire::{Opaque, Xdr};

/// The pseudo file system's own.
const PSEUDO_FSID: FsId4 = FsId4 { major: u64::from_be_bytes(*b"\0\0larder"), minor: 0 };
const NANOSECOND: Time4 = Time4 { seconds: 0, nanoseconds: 1 };

/// The size is the first.
#[rustfmt::skip]
pub const WRITABLE: [u32; 15] = [
    number::SIZE, number::ACL, number::ARCHIVE, number::HIDDEN, number::MODE, number::OWNER, number::OWNER_GROUP,
    number::SYSTEM, number::TIME_ACCESS_SET, number::TIME_CREATE, number::TIME_MODIFY_SET, number::DACL, number::SACL,
    number::MODE_SET_MASKED, number::MODE_UMASK,
];
/// RFC 8881 5.5, RFC 8275 5.
pub const WRITE_ONLY: [u32; 4] =
    [number::TIME_ACCESS_SET, number::TIME_MODIFY_SET, number::MODE_SET_MASKED, number::MODE_UMASK];

/// HIDDEN, SYSTEM and ARCHIVE (MS-FSCC 2.6).
pub const DOS_BITS: [u32; 3] = [0x2, 0x4, 0x20];

#[rustfmt::skip]
const READABLE: [u32; 50] = [
    number::SUPPORTED_ATTRS, number::TYPE, number::FH_EXPIRE_TYPE, number::CHANGE, number::SIZE, number::LINK_SUPPORT,
    number::SYMLINK_SUPPORT, number::NAMED_ATTR, number::FSID, number::UNIQUE_HANDLES, number::LEASE_TIME,
    number::RDATTR_ERROR, number::ACLSUPPORT, number::CANSETTIME, number::CASE_INSENSITIVE, number::CASE_PRESERVING,
    number::CHOWN_RESTRICTED, number::FILEHANDLE, number::FILEID, number::FILES_AVAIL, number::FILES_FREE,
    number::FILES_TOTAL, number::HOMOGENEOUS, number::MAXFILESIZE, number::MAXLINK, number::MAXNAME, number::MAXREAD,
    number::MAXWRITE, number::MODE, number::NO_TRUNC, number::NUMLINKS, number::OWNER, number::OWNER_GROUP,
    number::RAWDEV,
    number::SPACE_AVAIL, number::SPACE_FREE, number::SPACE_TOTAL, number::SPACE_USED, number::TIME_ACCESS,
    number::TIME_CREATE, number::TIME_DELTA, number::TIME_METADATA, number::TIME_MODIFY, number::MOUNTED_ON_FILEID,
    number::SUPPATTR_EXCLCREAT, number::OPEN_ARGUMENTS, number::QUOTA_AVAIL_HARD, number::QUOTA_AVAIL_SOFT,
    number::QUOTA_USED, number::FS_CHARSET_CAP,
];
const READABLE_IN_2: [u32; 3] = [number::CHANGE_ATTR_TYPE, number::CLONE_BLKSIZE, number::XATTR_SUPPORT];

/// The last attribute of NFSv4.0.
const LAST_IN_0: u32 = number::MOUNTED_ON_FILEID;

static SUPPORTED: LazyLock<[Bitmap; 3]> = LazyLock::new(|| {
    let all = READABLE.iter().chain(&WRITABLE).copied();
    let first: Vec<u32> = all.clone().filter(|number| *number <= LAST_IN_0).collect();
    let second: Vec<u32> = all.clone().filter(|number| *number != number::MODE_UMASK).collect();
    let third: Vec<u32> = all.chain(READABLE_IN_2).collect();
    [Bitmap::of(&first), Bitmap::of(&second), Bitmap::of(&third)]
});

/// RFC 9754 3: shares of reading and writing, wishes for any delegation, none, and to cancel a wish; claims but those of
/// delegations from before a restart; all modes of creation.
static OPEN_ARGUMENTS: LazyLock<OpenArguments> = LazyLock::new(|| OpenArguments {
    share_access: Bitmap::of(&[1, 2, 3]),
    share_deny: Bitmap::of(&[0, 1, 2, 3]),
    wishes: Bitmap::of(&[3, 4, 5]),
    claims: Bitmap::of(&[0, 1, 2, 4, 5]),
    create_modes: Bitmap::of(&[0, 1, 2, 3]),
});

/// Of the attributes in an exclusive create all but the size, which is 0.
static EXCLUSIVE: LazyLock<Bitmap> = LazyLock::new(|| Bitmap::of(WRITABLE.get(1..).unwrap_or_default()));

const ROOM: [u32; 9] = [
    number::QUOTA_AVAIL_HARD,
    number::QUOTA_AVAIL_SOFT,
    number::QUOTA_USED,
    number::FILES_AVAIL,
    number::FILES_FREE,
    number::FILES_TOTAL,
    number::SPACE_AVAIL,
    number::SPACE_FREE,
    number::SPACE_TOTAL,
];

/// Attributes that a listing knows without a look at the file.
static IN_ENTRY: LazyLock<Bitmap> = LazyLock::new(|| {
    Bitmap::of(&[
        number::TYPE,
        number::FSID,
        number::FILEID,
        number::MOUNTED_ON_FILEID,
        number::RDATTR_ERROR,
        number::SUPPORTED_ATTRS,
    ])
});

pub fn supported(minor: u32) -> Bitmap {
    let at = usize::try_from(minor).unwrap_or(usize::MAX).min(2);
    SUPPORTED.get(at).copied().unwrap_or(Bitmap::EMPTY)
}

/// Whether a listing has to look at each file.
pub fn needs_look(wanted: &Bitmap, minor: u32) -> bool {
    !wanted.common(&supported(minor)).without(&IN_ENTRY).is_empty()
}

/// Whether the list of a file is looked at, and its DOS attributes, which a folder of the host keeps apart.
pub fn needs_list(wanted: &Bitmap) -> bool {
    [number::ACL, number::DACL, number::HIDDEN, number::SYSTEM, number::ARCHIVE]
        .iter()
        .any(|number| wanted.has(*number))
}

/// An owner or a principal of a list that names nobody.
pub fn owner_status(error: NoOwner) -> NfsStat {
    match error {
        NoOwner::Malformed => NfsStat::Inval,
        NoOwner::Unknown => NfsStat::BadOwner,
    }
}

/// The file system that an inode of an export belongs to (`shown.past_apart`).
fn fsid_of(export: &ExportState, ino: Ino) -> FsId4 {
    FsId4 { major: export.key.fsid, minor: u64::from(ino.is_past()) }
}

/// Buffers behind attributes that are no numbers.
#[derive(Default)]
pub struct Texts {
    owner: String,
    group: String,
    handle: Option<[u8; HANDLE_BYTES]>,
    pseudo_handle: Vec<u8>,
    list: Vec<u8>,
}

impl Texts {
    fn set(&mut self, attr: &Attr, acl: Option<&Acl>, owners: &Owners, wanted: &Bitmap, minor: u32) {
        (self.owner, self.group) = (owners.show_user(attr.uid), owners.show_group(attr.gid));
        if wanted.has(number::ACL) || wanted.has(number::DACL) {
            self.list = access_list::shown(attr, acl, owners, minor);
        }
    }

    fn list(&self) -> Option<Acl4<'_>> {
        Acl4::get(&mut Reader::new(&self.list)).ok()
    }
}

/// What the attributes of all files of an export have in common.
fn common<'t>(minor: u32) -> FileAttrs<'t> {
    FileAttrs {
        supported_attrs: Some(supported(minor)),
        // FH4_PERSISTENT
        fh_expire_type: Some(0),
        link_support: Some(true),
        symlink_support: Some(true),
        named_attr: Some(false),
        unique_handles: Some(true),
        lease_time: Some(u32::try_from(LEASE.as_secs()).unwrap_or(u32::MAX)),
        acl_support: Some(access_list::SUPPORT),
        can_set_time: Some(true),
        case_insensitive: Some(false),
        case_preserving: Some(true),
        chown_restricted: Some(true),
        homogeneous: Some(true),
        max_file_size: Some(FILE_BYTES_MAX),
        max_link: Some(LINKS_MAX),
        max_name: u32::try_from(NAME_BYTES_MAX).ok(),
        max_read: Some(u64::from(IO_BYTES_MAX)),
        max_write: Some(u64::from(IO_BYTES_MAX)),
        no_trunc: Some(true),
        time_delta: Some(NANOSECOND),
        sacl: Some(access_list::empty_sacl()),
        // FSCHARSET_CAP4_CONTAINS_NON_UTF8: names are bytes.
        fs_charset_cap: Some(1),
        clone_blksize: Some(1),
        suppattr_exclcreat: Some(*EXCLUSIVE),
        open_arguments: Some(*OPEN_ARGUMENTS),
        // It grows with every change, by a lock of the inode, and over restarts (`change4.never_told_twice`).
        change_attr_type: Some(ChangeAttrKind::MonotonicIncrease),
        xattr_support: Some(true),
        rdattr_error: Some(NfsStat::Ok),
        ..FileAttrs::default()
    }
}

/// The attributes of `attr`, which is an object of the export of `object`, with its list where that is wanted.
pub fn attrs_of<'t>(
    object: &Object,
    (attr, acl): (&Attr, Option<&Acl>),
    wanted: &Bitmap,
    minor: u32,
    texts: &'t mut Texts,
) -> FileAttrs<'t> {
    texts.set(attr, acl, &object.export.owners, wanted, minor);
    if wanted.has(number::FILEHANDLE) {
        texts.handle = Some(object.handle(attr.id));
    }
    let texts: &'t Texts = texts;
    let is_root = attr.id.ino == object.export.export.root;
    let mounted = if is_root { mounted_on(&object.export) } else { attr.id.ino.0 };
    let mut attrs = FileAttrs {
        kind: Some(kind_of(attr.kind)),
        change: Some(told_change(object.files(), attr.change)),
        size: Some(attr.size),
        fsid: Some(fsid_of(&object.export, attr.id.ino)),
        acl: texts.list(),
        dacl: texts.list().map(|aces| Acl41 { flag: access_list::shown_flags(acl), aces }),
        hidden: Some(attr.dos & DOS_BITS[0] != 0),
        system: Some(attr.dos & DOS_BITS[1] != 0),
        archive: Some(attr.dos & DOS_BITS[2] != 0),
        file_handle: texts.handle.as_ref().map(|handle| Opaque(handle)),
        file_id: Some(attr.id.ino.0),
        mode: Some(attr.mode & 0o7777),
        num_links: Some(attr.nlink),
        owner: Some(Opaque(texts.owner.as_bytes())),
        owner_group: Some(Opaque(texts.group.as_bytes())),
        raw_dev: Some(DeviceNumber { major: attr.rdev.0, minor: attr.rdev.1 }),
        space_used: Some(attr.allocated),
        time_access: Some(time_of(attr.atime)),
        time_create: Some(time_of(attr.btime)),
        time_metadata: Some(time_of(attr.ctime)),
        time_modify: Some(time_of(attr.mtime)),
        mounted_on_file_id: Some(mounted),
        ..common(minor)
    };
    if ROOM.iter().any(|number| wanted.has(*number)) {
        let StatFs { total_bytes, free_bytes, available_bytes, total_files, free_files, .. } =
            object.files().statfs(&object.cred);
        (attrs.space_total, attrs.space_free) = (Some(total_bytes), Some(free_bytes));
        (attrs.space_avail, attrs.files_total) = (Some(available_bytes), Some(total_files));
        (attrs.files_free, attrs.files_avail) = (Some(free_files), Some(free_files));
        (attrs.quota_avail_hard, attrs.quota_avail_soft) = (Some(available_bytes), Some(available_bytes));
        attrs.quota_used = Some(object.files().quota_used(&object.cred));
    }
    attrs
}

/// The attributes of an entry that nobody looked at.
pub fn attrs_of_entry<'t>(object: &Object, ino: u64, kind: FileType4, minor: u32) -> FileAttrs<'t> {
    FileAttrs {
        supported_attrs: Some(supported(minor)),
        kind: Some(kind),
        fsid: Some(fsid_of(&object.export, Ino(ino))),
        file_id: Some(ino),
        mounted_on_file_id: Some(ino),
        rdattr_error: Some(NfsStat::Ok),
        ..FileAttrs::default()
    }
}

/// The attributes of a pseudo directory.
pub fn attrs_of_pseudo<'t>(caller: &Caller<'_>, dir: &PseudoDir, minor: u32, texts: &'t mut Texts) -> FileAttrs<'t> {
    /// Nobody changes them; some number that clients can show.
    const LINKS: u32 = 2;
    texts.owner = caller.shared.exports().owners.show_user(0);
    texts.group = caller.shared.exports().owners.show_group(0);
    texts.pseudo_handle = dir.handle().to_vec();
    let texts: &'t Texts = texts;
    let at = caller.shared.exports_set_at();
    let time = Time4 { seconds: at.secs, nanoseconds: at.nanos };
    let change = at.secs.cast_unsigned().wrapping_mul(1_000_000_000).wrapping_add(u64::from(at.nanos));
    FileAttrs {
        kind: Some(FileType4::Directory),
        change: Some(change),
        size: Some(0),
        fsid: Some(PSEUDO_FSID),
        file_handle: Some(Opaque(&texts.pseudo_handle)),
        file_id: Some(dir.number()),
        mode: Some(0o555),
        num_links: Some(LINKS),
        owner: Some(Opaque(texts.owner.as_bytes())),
        owner_group: Some(Opaque(texts.group.as_bytes())),
        raw_dev: Some(DeviceNumber { major: 0, minor: 0 }),
        files_avail: Some(0),
        files_free: Some(0),
        files_total: Some(0),
        space_avail: Some(0),
        space_free: Some(0),
        space_total: Some(0),
        space_used: Some(0),
        quota_avail_hard: Some(0),
        quota_avail_soft: Some(0),
        quota_used: Some(0),
        hidden: Some(false),
        system: Some(false),
        archive: Some(false),
        time_access: Some(time),
        time_create: Some(time),
        time_metadata: Some(time),
        time_modify: Some(time),
        mounted_on_file_id: Some(dir.number()),
        ..common(minor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_versions_have_more() {
        assert!(supported(0).without(&supported(1)).is_empty() && supported(1).without(&supported(2)).is_empty());
        assert!(!supported(0).has(number::SUPPATTR_EXCLCREAT) && !supported(1).has(number::XATTR_SUPPORT));
        assert!(!supported(1).has(number::MODE_UMASK) && supported(2).has(number::MODE_UMASK));
    }
}
