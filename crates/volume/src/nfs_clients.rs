//! The NFS server's record of clients with opens and locks in this volume. It lives with the volume, so whichever machine
//! opens the volume next knows whose locks come back.
//!
//! - `nfsclients.with_the_volume`: the record is a row of the volume's own at its root. Its bytes mean nothing here. Going back
//!   to a snapshot keeps it: the clients of then are not those of now.

use bytes::Bytes;
use larder_fs::{FsError, FsResult, Ino};

use crate::cores::Cores;
use crate::keys;
use crate::meta::Batch;
use crate::own_records;
use crate::volume::Volume;

/// Some thousand clients. A longer record is refused.
const RECORD_BYTES_MAX: usize = 1 << 20;

impl Volume {
    /// The record as it was written last, by whichever machine.
    pub async fn nfs_clients(&self) -> FsResult<Option<Bytes>> {
        let key = keys::xattr_key(Ino::ROOT, own_records::NFS_CLIENTS);
        let value = self.state.meta.get(&key).await?;
        value.map(|value| keys::decode_xattr(&key, &value)).transpose()
    }

    /// Replaces the record, durably as any change of the volume.
    pub async fn set_nfs_clients(&self, record: &[u8]) -> FsResult<()> {
        if record.len() > RECORD_BYTES_MAX {
            return Err(FsError::TooBig);
        }
        let state = &*self.state;
        let root = state.changeable(Ino::ROOT).await?;
        state.meta.admit().await?;
        let guard = root.namespace.lock().await;
        let is_new = self.nfs_clients().await?.is_none();
        let key = keys::xattr_key(Ino::ROOT, own_records::NFS_CLIENTS);
        let ticket = {
            let mut batch = Batch::default();
            batch.put(key, keys::encode_xattr(record));
            let mut cores = Cores::lock(&[&root]);
            cores.of(&root).xattrs += u32::from(is_new);
            cores.submit(&*state.meta, batch)?
        };
        drop(guard);
        state.await_durable(ticket).await
    }
}
