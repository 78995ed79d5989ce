//! File attributes (RFC 7530 5, RFC 8881 5, RFC 7862 12.2, RFC 8276 8.2, RFC 8275 5): each with its number and type.
//!
//! - `attrs.ascending_and_exact`: the values of an attribute list come in the order of their numbers and fill it exactly
//!   (RFC 8881 3.3.8). Anything else does not decode.

use super::super::xdr::{Garbage, Reader};
use super::bitmap::Bitmap;
use super::types::{
    Acl4, Acl41, ChangeAttrKind, ChangePolicy, DeviceNumber, ENTRIES_MAX, Fattr, FileType4, FsId4, FsLocations,
    FsLocationsInfo, FsStatus4, Handle4, LayoutBody, ModeMasked, NfsStat, RetentionGet, RetentionSet, SecLabel,
    SetTime4, Text, ThresholdItem, Time4,
};
#[cfg(any(test, fuzzing))]
use super::wire::Opaque;
use super::wire::{Xdr, XdrList, XdrOut, xdr_struct};

xdr_struct! {
    /// `mode_umask4` (RFC 8275 5).
    ModeUmask {
        mode: u32,
        umask: u32,
    }
}

xdr_struct! {
    /// `open_arguments4` (RFC 9754 3): what OPEN takes, each a set of numbers.
    OpenArguments {
        share_access: Bitmap,
        share_deny: Bitmap,
        wishes: Bitmap,
        claims: Bitmap,
        create_modes: Bitmap,
    }
}

type Layouts<'a> = XdrList<'a, u32, ENTRIES_MAX>;
type Thresholds<'a> = XdrList<'a, ThresholdItem<'a>, ENTRIES_MAX>;

/// Defines [`FileAttrs`] with one field an attribute, and the numbers in [`number`].
macro_rules! attributes {
    ($($field:ident $name:ident = $number:literal: $ty:ty,)*) => {
        /// Numbers of attributes (`FATTR4_*`).
        #[allow(dead_code, reason = "those of attributes that no volume has stand here all the same")]
        pub mod number {
            $(pub const $name: u32 = $number;)*
        }

        /// Attributes with their values, as many as there are.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct FileAttrs<'a> {
            $(pub $field: Option<$ty>,)*
        }

        impl<'a> FileAttrs<'a> {
            /// Every attribute that has a type here.
            #[cfg(any(test, fuzzing))]
            pub fn all() -> Bitmap {
                Bitmap::of(&[$($number,)*])
            }

            /// Attributes that have a value.
            pub fn mask(&self) -> Bitmap {
                let mut mask = Bitmap::EMPTY;
                $(if self.$field.is_some() {
                    mask.insert($number);
                })*
                mask
            }

            /// Of all attributes the wanted ones alone.
            pub fn only_wanted(mut self, wanted: &Bitmap) -> Self {
                $(if !wanted.has($number) {
                    self.$field = None;
                })*
                self
            }

            /// All attributes with some value each.
            #[cfg(test)]
            pub fn sample(chance: &mut super::sample::Sampler) -> Self {
                Self { $($field: Some(super::sample::Sample::sample(chance)),)* }
            }

            /// Of all attributes these alone.
            #[cfg(test)]
            pub fn only(&self, kept: &Bitmap) -> Self {
                Self { $($field: self.$field.filter(|_| kept.has($number)),)* }
            }

            fn get_one(&mut self, number: u32, r: &mut Reader<'a>) -> Result<(), NfsStat> {
                match number {
                    $($number => self.$field = Some(Xdr::get(r)?),)*
                    _ => return Err(NfsStat::AttrNotSupp),
                }
                Ok(())
            }

            fn put_one(&self, number: u32, out: &mut XdrOut) {
                match number {
                    $($number => if let Some(value) = &self.$field {
                        value.put(out);
                    },)*
                    _ => {}
                }
            }
        }
    };
}

attributes! {
    supported_attrs SUPPORTED_ATTRS = 0: Bitmap,
    kind TYPE = 1: FileType4,
    fh_expire_type FH_EXPIRE_TYPE = 2: u32,
    change CHANGE = 3: u64,
    size SIZE = 4: u64,
    link_support LINK_SUPPORT = 5: bool,
    symlink_support SYMLINK_SUPPORT = 6: bool,
    named_attr NAMED_ATTR = 7: bool,
    fsid FSID = 8: FsId4,
    unique_handles UNIQUE_HANDLES = 9: bool,
    lease_time LEASE_TIME = 10: u32,
    rdattr_error RDATTR_ERROR = 11: NfsStat,
    acl ACL = 12: Acl4<'a>,
    acl_support ACLSUPPORT = 13: u32,
    archive ARCHIVE = 14: bool,
    can_set_time CANSETTIME = 15: bool,
    case_insensitive CASE_INSENSITIVE = 16: bool,
    case_preserving CASE_PRESERVING = 17: bool,
    chown_restricted CHOWN_RESTRICTED = 18: bool,
    file_handle FILEHANDLE = 19: Handle4<'a>,
    file_id FILEID = 20: u64,
    files_avail FILES_AVAIL = 21: u64,
    files_free FILES_FREE = 22: u64,
    files_total FILES_TOTAL = 23: u64,
    fs_locations FS_LOCATIONS = 24: FsLocations<'a>,
    hidden HIDDEN = 25: bool,
    homogeneous HOMOGENEOUS = 26: bool,
    max_file_size MAXFILESIZE = 27: u64,
    max_link MAXLINK = 28: u32,
    max_name MAXNAME = 29: u32,
    max_read MAXREAD = 30: u64,
    max_write MAXWRITE = 31: u64,
    mime_type MIMETYPE = 32: Text<'a>,
    mode MODE = 33: u32,
    no_trunc NO_TRUNC = 34: bool,
    num_links NUMLINKS = 35: u32,
    owner OWNER = 36: Text<'a>,
    owner_group OWNER_GROUP = 37: Text<'a>,
    quota_avail_hard QUOTA_AVAIL_HARD = 38: u64,
    quota_avail_soft QUOTA_AVAIL_SOFT = 39: u64,
    quota_used QUOTA_USED = 40: u64,
    raw_dev RAWDEV = 41: DeviceNumber,
    space_avail SPACE_AVAIL = 42: u64,
    space_free SPACE_FREE = 43: u64,
    space_total SPACE_TOTAL = 44: u64,
    space_used SPACE_USED = 45: u64,
    system SYSTEM = 46: bool,
    time_access TIME_ACCESS = 47: Time4,
    time_access_set TIME_ACCESS_SET = 48: SetTime4,
    time_backup TIME_BACKUP = 49: Time4,
    time_create TIME_CREATE = 50: Time4,
    time_delta TIME_DELTA = 51: Time4,
    time_metadata TIME_METADATA = 52: Time4,
    time_modify TIME_MODIFY = 53: Time4,
    time_modify_set TIME_MODIFY_SET = 54: SetTime4,
    mounted_on_file_id MOUNTED_ON_FILEID = 55: u64,
    dir_notif_delay DIR_NOTIF_DELAY = 56: Time4,
    dirent_notif_delay DIRENT_NOTIF_DELAY = 57: Time4,
    dacl DACL = 58: Acl41<'a>,
    sacl SACL = 59: Acl41<'a>,
    change_policy CHANGE_POLICY = 60: ChangePolicy,
    fs_status FS_STATUS = 61: FsStatus4<'a>,
    fs_layout_types FS_LAYOUT_TYPES = 62: Layouts<'a>,
    layout_hint LAYOUT_HINT = 63: LayoutBody<'a>,
    layout_types LAYOUT_TYPES = 64: Layouts<'a>,
    layout_blksize LAYOUT_BLKSIZE = 65: u32,
    layout_alignment LAYOUT_ALIGNMENT = 66: u32,
    fs_locations_info FS_LOCATIONS_INFO = 67: FsLocationsInfo<'a>,
    mds_threshold MDSTHRESHOLD = 68: Thresholds<'a>,
    retention_get RETENTION_GET = 69: RetentionGet,
    retention_set RETENTION_SET = 70: RetentionSet,
    retentevt_get RETENTEVT_GET = 71: RetentionGet,
    retentevt_set RETENTEVT_SET = 72: RetentionSet,
    retention_hold RETENTION_HOLD = 73: u64,
    mode_set_masked MODE_SET_MASKED = 74: ModeMasked,
    suppattr_exclcreat SUPPATTR_EXCLCREAT = 75: Bitmap,
    fs_charset_cap FS_CHARSET_CAP = 76: u32,
    clone_blksize CLONE_BLKSIZE = 77: u32,
    space_freed SPACE_FREED = 78: u64,
    change_attr_type CHANGE_ATTR_TYPE = 79: ChangeAttrKind,
    sec_label SEC_LABEL = 80: SecLabel<'a>,
    mode_umask MODE_UMASK = 81: ModeUmask,
    xattr_support XATTR_SUPPORT = 82: bool,
    open_arguments OPEN_ARGUMENTS = 86: OpenArguments,
}

impl From<Garbage> for NfsStat {
    fn from(_: Garbage) -> Self {
        NfsStat::BadXdr
    }
}

impl<'a> FileAttrs<'a> {
    /// NFS4ERR_ATTRNOTSUPP for an attribute that nobody has, NFS4ERR_BADXDR where the values are not those of the mask
    /// (`attrs.ascending_and_exact`).
    pub fn decode(list: &Fattr<'a>) -> Result<Self, NfsStat> {
        if list.mask.has_unknown() {
            return Err(NfsStat::AttrNotSupp);
        }
        let mut attrs = Self::default();
        let mut r = Reader::new(list.values.0);
        for number in list.mask.iter() {
            attrs.get_one(number, &mut r)?;
        }
        if r.remaining() == 0 { Ok(attrs) } else { Err(NfsStat::BadXdr) }
    }

    /// The attributes up to the number `last`. Later ones are not looked at: a client may add some that are new to this
    /// server to its answer.
    pub fn decode_up_to(list: &Fattr<'a>, last: u32) -> Result<Self, NfsStat> {
        let mut attrs = Self::default();
        let mut r = Reader::new(list.values.0);
        for number in list.mask.iter().take_while(|number| *number <= last) {
            attrs.get_one(number, &mut r)?;
        }
        Ok(attrs)
    }

    /// Writes a `fattr4` of those attributes in `wanted` that have a value.
    pub fn put_wanted(&self, wanted: &Bitmap, out: &mut XdrOut) {
        let mask = self.mask().common(wanted);
        mask.put(out);
        let length_at = out.mark();
        out.writer().u32(0);
        let before = out.len();
        for number in mask.iter() {
            self.put_one(number, out);
        }
        // A list of attributes is far below 4 GiB: its parts are.
        let length = u32::try_from(out.len() - before).unwrap_or(u32::MAX);
        out.set_u32(length_at, length);
    }

    /// The values alone, in their order, for [`Fattr::values`].
    pub fn encode_values(&self) -> Vec<u8> {
        let mut out = XdrOut::default();
        self.mask().iter().for_each(|number| self.put_one(number, &mut out));
        out.into_bytes()
    }

    /// A `fattr4` whose values [`FileAttrs::encode_values`] has written.
    #[cfg(any(test, fuzzing))]
    pub fn list<'b>(&self, values: &'b [u8]) -> Fattr<'b> {
        Fattr { mask: self.mask(), values: Opaque(values) }
    }
}
