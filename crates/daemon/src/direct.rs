//! The endpoints that need open pools and no daemon: what they do on a [`Storage`].
//!
//! A command without a daemon opens the pools and calls this. Where a daemon has nothing to add (no configuration to change, no
//! shares or mounts to close), its handler is the same function.

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;
use larder_api::endpoint;
use larder_api::endpoints::*;
use larder_api::{Done, ExportRequest, Failure, ImportEvent, ImportRequest};
use larder_keep::Storage;
use larder_keep::export::Owners;

use super::create_volume;
use super::imports::{self, Own};
use super::translate::as_failure;

/// What an endpoint does without a daemon.
pub trait Direct: endpoint::Json {
    fn direct(
        storage: &Storage,
        param: Self::Param,
        request: Self::Request,
    ) -> impl Future<Output = Result<Self::Response, Failure>> + Send;
}

macro_rules! direct {
    ($endpoint:ident, |$storage:ident, $param:pat_param, $request:pat_param| $answer:expr) => {
        impl Direct for $endpoint {
            async fn direct(
                $storage: &Storage,
                $param: Self::Param,
                $request: Self::Request,
            ) -> Result<Self::Response, Failure> {
                $answer
            }
        }
    };
}

direct!(ListPools, |storage, (), ()| Ok(storage.listed()));
direct!(ClearPool, |storage, name, ()| storage
    .pool(Some(&name))
    .map_err(as_failure)?
    .clear()
    .await
    .map(|()| Done {})
    .map_err(as_failure));
direct!(GetPoolScrub, |storage, name, ()| Ok(storage.pool(Some(&name)).map_err(as_failure)?.scrub_status().await));
direct!(ScrubPool, |storage, name, request| storage
    .pool(Some(&name))
    .map_err(as_failure)?
    .scrub_do(&request.action, "asked for")
    .await
    .map_err(as_failure));

direct!(GetVolumes, |storage, (), ()| storage.volumes().await.map_err(as_failure));
direct!(CreateVolume, |storage, (), request| {
    let pool = storage.pool(request.pool.as_deref()).map_err(as_failure)?;
    create_volume(&pool, &request.name, &request.properties, request.encrypt).await
});
direct!(SetVolume, |storage, name, change| {
    let (pool, volume) = storage.find(&name).await.map_err(as_failure)?;
    pool.set(&volume, &change).await.map_err(as_failure)
});
direct!(DestroyVolume, |storage, name, request| {
    let (pool, volume) = storage.find(&name).await.map_err(as_failure)?;
    pool.may_be_destroyed(&volume, request.with_snapshots).await.map_err(as_failure)?;
    pool.destroy(&volume).await.map(|()| Done {}).map_err(as_failure)
});
direct!(GetOwners, |storage, name, ()| {
    let (pool, volume) = storage.find(&name).await.map_err(as_failure)?;
    pool.owners(&volume).await.map_err(as_failure)
});
direct!(GetKeys, |storage, name, ()| {
    let (pool, volume) = storage.find(&name).await.map_err(as_failure)?;
    pool.keys_status(&volume).await.map_err(as_failure)
});
direct!(ChangeKeys, |storage, name, request| {
    let (pool, volume) = storage.find(&name).await.map_err(as_failure)?;
    pool.change_keys(&volume, request).await.map_err(as_failure)
});
direct!(CheckVolumes, |storage, (), request| {
    storage.check(request.pool.as_deref(), request.volume.as_deref(), request.read_data).await.map_err(as_failure)
});

direct!(GetSnapshots, |storage, name, ()| {
    let (pool, volume) = storage.find(&name).await.map_err(as_failure)?;
    pool.snapshots(&volume).await.map_err(as_failure)
});
direct!(ChangeSnapshots, |storage, name, request| {
    let (pool, volume) = storage.find(&name).await.map_err(as_failure)?;
    pool.change_snapshots(&volume, request).await.map_err(as_failure)
});
direct!(DiffSnapshots, |storage, name, request| {
    let (pool, volume) = storage.find(&name).await.map_err(as_failure)?;
    pool.diff(&volume, &request).await.map_err(as_failure)
});
direct!(CloneSnapshot, |storage, name, request| {
    let (pool, volume) = storage.find(&name).await.map_err(as_failure)?;
    pool.clone_snapshot(&volume, &request).await.map_err(as_failure)
});

direct!(GetReplica, |storage, name, ()| {
    let (pool, volume) = storage.named(&name).map_err(as_failure)?;
    pool.replica_state(&volume).await.map_err(as_failure)
});
direct!(PromoteReplica, |storage, name, ()| {
    let (pool, volume) = storage.find(&name).await.map_err(as_failure)?;
    pool.promote(&volume).await.map_err(as_failure)
});

/// A stream of bytes, and about how many there are, where that is known.
pub struct Outgoing {
    pub bytes: Option<u64>,
    pub pieces: BoxStream<'static, Result<Bytes, Failure>>,
}

/// A stream of bytes without a daemon.
pub trait DirectDownload: endpoint::Download {
    fn direct(
        storage: &Storage,
        param: Self::Param,
        request: Self::Request,
    ) -> impl Future<Output = Result<Outgoing, Failure>> + Send;
}

impl DirectDownload for SendSnapshot {
    async fn direct(storage: &Storage, name: String, request: Self::Request) -> Result<Outgoing, Failure> {
        let (pool, volume) = storage.find(&name).await.map_err(as_failure)?;
        let outgoing = pool.send_out(&volume, &request).await.map_err(as_failure)?;
        let pieces = outgoing.stream.map(move |piece| piece.map_err(|error| as_failure(pool.failure(&volume, &error))));
        Ok(Outgoing { bytes: Some(outgoing.bytes), pieces: pieces.boxed() })
    }
}

impl DirectDownload for ExportSnapshot {
    async fn direct(storage: &Storage, name: String, request: Self::Request) -> Result<Outgoing, Failure> {
        export(storage, &name, &request, Owners::default()).await
    }
}

/// A tar stream, with the names of owners.
pub(super) async fn export(
    storage: &Storage,
    name: &str,
    request: &ExportRequest,
    owners: Owners,
) -> Result<Outgoing, Failure> {
    let (pool, volume) = storage.find(name).await.map_err(as_failure)?;
    let stream = pool.export_tar(&volume, &request.snapshot, owners).await.map_err(as_failure)?;
    let pieces = stream.map(move |piece| piece.map_err(|error| as_failure(pool.failure(&volume, &error))));
    Ok(Outgoing { bytes: None, pieces: pieces.boxed() })
}

/// Copies a folder of the host, except for places of larder itself.
pub async fn import(
    storage: &Storage,
    name: &str,
    request: ImportRequest,
    own: Own,
) -> Result<BoxStream<'static, ImportEvent>, Failure> {
    let (pool, volume) = storage.find(name).await.map_err(as_failure)?;
    imports::import(pool, &volume, request, own).await
}
