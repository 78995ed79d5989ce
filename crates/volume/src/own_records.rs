//! Records of the volume's own among extended attributes. No protocol can ask for them.

use bytes::Bytes;
use larder_fs::{FsResult, Ino};

use crate::keys;
use crate::meta::{Batch, Meta};

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

/// The rows at the root that stay as they are when the volume goes back to a snapshot, key and value.
pub(crate) async fn lasting(meta: &dyn Meta) -> FsResult<Vec<(Bytes, Bytes)>> {
    let mut rows = Vec::new();
    for name in [HANDLES, NFS_CLIENTS] {
        let key = keys::xattr_key(Ino::ROOT, name);
        if let Some(value) = meta.get(&key).await? {
            rows.push((key, value));
        }
    }
    Ok(rows)
}

/// Puts these rows back where going back to a snapshot took them, or made them older.
pub(crate) async fn keep(meta: &dyn Meta, rows: Vec<(Bytes, Bytes)>, batch: &mut Batch) -> FsResult<()> {
    let mut added = 0;
    for (key, value) in rows {
        added += u32::from(meta.get(&key).await?.is_none());
        batch.put(key, value);
    }
    if added > 0 {
        let key = keys::inode_key(Ino::ROOT);
        let record = meta.get(&key).await?.ok_or_else(|| keys::damaged(&key, "it is missing"))?;
        let mut root = keys::decode_inode(Ino::ROOT, &record)?;
        root.xattrs += added;
        let (key, record) = keys::encode_inode(Ino::ROOT, &root);
        batch.put(key, record);
    }
    Ok(())
}

/// The directory that the record `name` of an owner leads to.
pub(crate) fn directory_in(name: &[u8], value: &[u8]) -> Option<Ino> {
    (name == NAMED).then(|| value.try_into().ok().map(|ino| Ino(u64::from_be_bytes(ino)))).flatten()
}
