//! The charge for an inode beside its data: what quotas count of names, symbolic links and attributes.
//!
//! - `charge.from_the_record`: the charge follows from the inode's record alone. A pass over all records gives the same sum as the
//!   batches that wrote them, so the count is right after a restart and after a crash.
//! - `charge.fixed_per_name`: a name has a fixed charge, which its bytes in three rows seldom exceed. So a rename changes no charge.

use larder_fs::FileKind;
use larder_fs::acl::Acl;

/// An inode's record, and its share of indexes and logs. Each inode counts for this much at least.
pub(crate) const INODE_BYTES: u64 = 512;
/// A name: its entry, the entry's place in listings, the folded name.
pub(crate) const NAME_BYTES: u64 = 512;
/// An extended attribute, beside the bytes of its name and value.
pub(crate) const ATTRIBUTE_BYTES: u64 = 64;

/// No inode has more bytes of attributes: their names together have 64 KiB, and so has each value.
pub(crate) const ATTRIBUTES_BYTES_MAX: u64 = 1 << 33;

/// The parts of an inode's record that have a charge.
pub(crate) struct Charged<'a> {
    pub(crate) kind: FileKind,
    pub(crate) nlink: u32,
    pub(crate) target: &'a [u8],
    pub(crate) acl: Option<&'a Acl>,
    pub(crate) xattrs: u32,
    pub(crate) xattr_bytes: u64,
}

impl Charged<'_> {
    /// The codec of the record bounds each part, so the sum does not overflow.
    pub(crate) fn bytes(&self) -> u64 {
        let names = match self.kind {
            // The links of a directory count its subdirectories, too.
            FileKind::Directory => self.nlink.min(1),
            _ => self.nlink,
        };
        INODE_BYTES
            + NAME_BYTES * u64::from(names)
            + self.target.len() as u64
            + of_list(self.acl)
            + ATTRIBUTE_BYTES * u64::from(self.xattrs)
            + self.xattr_bytes
    }
}

/// The charge for an access control list.
pub(crate) fn of_list(acl: Option<&Acl>) -> u64 {
    acl.map_or(0, |acl| acl.encoded_len() as u64)
}

/// The bytes of an extended attribute, as the record counts them.
pub(crate) fn attribute_bytes(name: &[u8], value: &[u8]) -> u64 {
    name.len() as u64 + value.len() as u64
}
