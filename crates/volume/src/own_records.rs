//! Records of the volume's own among extended attributes. No protocol can ask for them.

use larder_fs::Ino;

/// Leads to the directory of named attributes ([`crate::named`]). No extended attribute of a user
/// begins with a zero byte.
pub(crate) const NAMED: &[u8] = b"\0named";

/// The secret of NFS handles, at the root ([`crate::handle_key`]).
pub(crate) const HANDLES: &[u8] = b"\0handles";

/// Clients of NFS with opens and locks, at the root ([`crate::nfs_clients`]).
pub(crate) const NFS_CLIENTS: &[u8] = b"\0nfs4";

/// Whether a record among the extended attributes is one of the volume's own.
pub(crate) fn is_own(name: &[u8]) -> bool {
    name.first() == Some(&0)
}

/// The directory that the record `name` of an owner leads to.
pub(crate) fn directory_in(name: &[u8], value: &[u8]) -> Option<Ino> {
    (name == NAMED).then(|| value.try_into().ok().map(|ino| Ino(u64::from_be_bytes(ino)))).flatten()
}
