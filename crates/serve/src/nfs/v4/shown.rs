//! Attributes of files as clients see and set them.
//!
//! - `shown.supported_by_minor`: each minor version is told of the attributes that it knows. Any other is refused when
//!   set and left out when asked for.
//! - `shown.numbers_as_owners`: owners are numbers in decimal (RFC 7530 5.9), with AUTH_SYS the only names that both
//!   sides know.

use std::sync::LazyLock;

use larder_fs::{Attr, FILE_BYTES_MAX, LINKS_MAX, NAME_BYTES_MAX, SetAttr, SetTime, StatFs};

use super::super::handle::HANDLE_BYTES;
use super::super::ops::IO_BYTES_MAX;
use super::attrs::{FileAttrs, OpenArguments, number};
use super::bitmap::Bitmap;
use super::convert::{kind_of, time_of, timestamp};
use super::place::{Caller, Object, PseudoDir, mounted_on};
use super::server::LEASE;
use super::types::{ChangeAttrKind, DeviceNumber, Fattr, FileType4, FsId4, NfsStat, SetTime4, Time4};
use super::wire::Opaque;

/// The pseudo file system's own.
const PSEUDO_FSID: FsId4 = FsId4 { major: u64::from_be_bytes(*b"\0\0larder"), minor: 0 };
const NANOSECOND: Time4 = Time4 { seconds: 0, nanoseconds: 1 };

const WRITABLE: [u32; 6] =
    [number::SIZE, number::MODE, number::OWNER, number::OWNER_GROUP, number::TIME_ACCESS_SET, number::TIME_MODIFY_SET];

#[rustfmt::skip]
const READABLE: [u32; 46] = [
    number::SUPPORTED_ATTRS, number::TYPE, number::FH_EXPIRE_TYPE, number::CHANGE, number::SIZE, number::LINK_SUPPORT,
    number::SYMLINK_SUPPORT, number::NAMED_ATTR, number::FSID, number::UNIQUE_HANDLES, number::LEASE_TIME,
    number::RDATTR_ERROR, number::ACLSUPPORT, number::CANSETTIME, number::CASE_INSENSITIVE, number::CASE_PRESERVING,
    number::CHOWN_RESTRICTED, number::FILEHANDLE, number::FILEID, number::FILES_AVAIL, number::FILES_FREE,
    number::FILES_TOTAL, number::HOMOGENEOUS, number::MAXFILESIZE, number::MAXLINK, number::MAXNAME, number::MAXREAD,
    number::MAXWRITE, number::MODE, number::NO_TRUNC, number::NUMLINKS, number::OWNER, number::OWNER_GROUP,
    number::RAWDEV,
    number::SPACE_AVAIL, number::SPACE_FREE, number::SPACE_TOTAL, number::SPACE_USED, number::TIME_ACCESS,
    number::TIME_CREATE, number::TIME_DELTA, number::TIME_METADATA, number::TIME_MODIFY, number::MOUNTED_ON_FILEID,
    number::SUPPATTR_EXCLCREAT, number::OPEN_ARGUMENTS,
];
const READABLE_IN_2: [u32; 2] = [number::CHANGE_ATTR_TYPE, number::XATTR_SUPPORT];

/// The last attribute of NFSv4.0.
const LAST_IN_0: u32 = number::MOUNTED_ON_FILEID;

static SUPPORTED: LazyLock<[Bitmap; 3]> = LazyLock::new(|| {
    let all = READABLE.iter().chain(&WRITABLE).copied();
    let first: Vec<u32> = all.clone().filter(|number| *number <= LAST_IN_0).collect();
    let second: Vec<u32> = all.collect();
    let third: Vec<u32> = second.iter().copied().chain(READABLE_IN_2).collect();
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

const ROOM: [u32; 6] = [
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

/// Buffers behind attributes that are no numbers.
#[derive(Default)]
pub struct Texts {
    owner: Digits,
    group: Digits,
    handle: Option<[u8; HANDLE_BYTES]>,
    pseudo_handle: Vec<u8>,
}

/// A number in decimal.
#[derive(Default)]
struct Digits {
    bytes: [u8; 10],
    len: usize,
}

impl Digits {
    fn set(&mut self, mut value: u32) {
        self.len = 0;
        let mut digits = [0; 10];
        let mut at = digits.len();
        for place in digits.iter_mut().rev() {
            *place = b'0' + u8::try_from(value % 10).unwrap_or(0);
            (value, at) = (value / 10, at - 1);
            if value == 0 {
                break;
            }
        }
        for (place, digit) in self.bytes.iter_mut().zip(digits.iter().skip(at)) {
            *place = *digit;
            self.len += 1;
        }
    }

    fn text(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
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
        acl_support: Some(0),
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
        suppattr_exclcreat: Some(*EXCLUSIVE),
        open_arguments: Some(*OPEN_ARGUMENTS),
        // It grows with every change, by a lock of the inode.
        change_attr_type: Some(ChangeAttrKind::MonotonicIncrease),
        xattr_support: Some(true),
        rdattr_error: Some(NfsStat::Ok),
        ..FileAttrs::default()
    }
}

/// The attributes of `attr`, which is an object of the export of `object`.
pub fn attrs_of<'t>(object: &Object, attr: &Attr, wanted: &Bitmap, minor: u32, texts: &'t mut Texts) -> FileAttrs<'t> {
    texts.owner.set(attr.uid);
    texts.group.set(attr.gid);
    if wanted.has(number::FILEHANDLE) {
        texts.handle = Some(object.handle(attr.id));
    }
    let texts: &'t Texts = texts;
    let is_root = attr.id.ino == object.export.export.root;
    let mounted = if is_root { mounted_on(&object.export) } else { attr.id.ino.0 };
    let mut attrs = FileAttrs {
        kind: Some(kind_of(attr.kind)),
        change: Some(attr.change),
        size: Some(attr.size),
        fsid: Some(FsId4 { major: object.export.key.fsid, minor: 0 }),
        file_handle: texts.handle.as_ref().map(|handle| Opaque(handle)),
        file_id: Some(attr.id.ino.0),
        mode: Some(attr.mode & 0o7777),
        num_links: Some(attr.nlink),
        owner: Some(Opaque(texts.owner.text())),
        owner_group: Some(Opaque(texts.group.text())),
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
    }
    attrs
}

/// The attributes of an entry that nobody looked at.
pub fn attrs_of_entry<'t>(object: &Object, ino: u64, kind: FileType4, minor: u32) -> FileAttrs<'t> {
    FileAttrs {
        supported_attrs: Some(supported(minor)),
        kind: Some(kind),
        fsid: Some(FsId4 { major: object.export.key.fsid, minor: 0 }),
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
    texts.owner.set(0);
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
        owner: Some(Opaque(texts.owner.text())),
        owner_group: Some(Opaque(texts.owner.text())),
        raw_dev: Some(DeviceNumber { major: 0, minor: 0 }),
        files_avail: Some(0),
        files_free: Some(0),
        files_total: Some(0),
        space_avail: Some(0),
        space_free: Some(0),
        space_total: Some(0),
        space_used: Some(0),
        time_access: Some(time),
        time_create: Some(time),
        time_metadata: Some(time),
        time_modify: Some(time),
        mounted_on_file_id: Some(dir.number()),
        ..common(minor)
    }
}

/// Attributes that a client sets, and their numbers for its answer.
pub fn to_set(list: &Fattr<'_>, minor: u32) -> Result<(SetAttr, Bitmap), NfsStat> {
    if list.mask.has_unknown() || !list.mask.without(&supported(minor)).is_empty() {
        return Err(NfsStat::AttrNotSupp);
    }
    if !list.mask.without(&Bitmap::of(&WRITABLE)).is_empty() {
        return Err(NfsStat::Inval);
    }
    let attrs = FileAttrs::decode(list)?;
    if attrs.size.is_some_and(|size| size > FILE_BYTES_MAX) {
        return Err(NfsStat::FBig);
    }
    if attrs.mode.is_some_and(|mode| mode > 0o7777) {
        return Err(NfsStat::Inval);
    }
    let time = |time: Option<SetTime4>| match time {
        None => Ok(None),
        Some(SetTime4::Server(())) => Ok(Some(SetTime::Now)),
        Some(SetTime4::Client(time)) => timestamp(time).map(|time| Some(SetTime::To(time))),
    };
    let set = SetAttr {
        mode: attrs.mode,
        uid: attrs.owner.map(|owner| owner_number(owner.0)).transpose()?,
        gid: attrs.owner_group.map(|group| owner_number(group.0)).transpose()?,
        size: attrs.size,
        atime: time(attrs.time_access_set)?,
        mtime: time(attrs.time_modify_set)?,
        ..SetAttr::default()
    };
    Ok((set, list.mask))
}

/// `shown.numbers_as_owners`
fn owner_number(text: &[u8]) -> Result<u32, NfsStat> {
    if text.is_empty() {
        return Err(NfsStat::Inval);
    }
    let digits = std::str::from_utf8(text).map_err(|_| NfsStat::Inval)?;
    let is_number = digits.bytes().all(|digit| digit.is_ascii_digit());
    // The number that leaves an owner as it is has no user.
    let number = digits.parse::<u32>().ok().filter(|number| is_number && *number != u32::MAX);
    number.ok_or(NfsStat::BadOwner)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn owners_are_numbers() {
        let cases: [(&[u8], Result<u32, NfsStat>); 7] = [
            (b"0", Ok(0)),
            (b"4294967294", Ok(4_294_967_294)),
            (b"4294967295", Err(NfsStat::BadOwner)),
            (b"+5", Err(NfsStat::BadOwner)),
            (b"ann@home", Err(NfsStat::BadOwner)),
            (b"", Err(NfsStat::Inval)),
            (b"\xff", Err(NfsStat::Inval)),
        ];
        for (text, wanted) in cases {
            assert_eq!(owner_number(text), wanted);
        }
        let mut digits = Digits::default();
        for value in [0, 7, 10, 65_534, u32::MAX] {
            digits.set(value);
            assert_eq!(digits.text(), value.to_string().as_bytes());
        }
    }

    #[test]
    fn what_may_be_set() {
        let given = |attrs: FileAttrs<'_>| {
            let values = attrs.encode_values();
            to_set(&attrs.list(&values), 1).map(|(set, _)| set)
        };
        let set =
            given(FileAttrs { size: Some(5), mode: Some(0o600), owner: Some(Opaque(b"7")), ..Default::default() });
        assert_eq!(set, Ok(SetAttr { size: Some(5), mode: Some(0o600), uid: Some(7), ..SetAttr::default() }));
        let read_only = FileAttrs { file_id: Some(5), ..Default::default() };
        assert_eq!(given(read_only), Err(NfsStat::Inval));
        let unsupported = FileAttrs { hidden: Some(true), ..Default::default() };
        assert_eq!(given(unsupported), Err(NfsStat::AttrNotSupp));
        let time = Time4 { seconds: 1, nanoseconds: 1_000_000_000 };
        let bad_time = FileAttrs { time_modify_set: Some(SetTime4::Client(time)), ..Default::default() };
        assert_eq!(given(bad_time), Err(NfsStat::Inval));
        assert_eq!(given(FileAttrs { size: Some(u64::MAX), ..Default::default() }), Err(NfsStat::FBig));
        assert!(supported(0).without(&supported(1)).is_empty() && supported(1).without(&supported(2)).is_empty());
        assert!(!supported(0).has(number::SUPPATTR_EXCLCREAT) && !supported(1).has(number::XATTR_SUPPORT));
    }
}
