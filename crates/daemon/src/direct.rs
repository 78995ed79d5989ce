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

use super::imports::{self, Own};
use super::parts::volumes::create_volume;

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
direct!(ClearPool, |storage, name, ()| {
    storage.pool(Some(&name))?.clear().await?;
    Ok(Done {})
});
direct!(GetPoolScrub, |storage, name, ()| Ok(storage.pool(Some(&name))?.scrub_status().await));
direct!(ScrubPool, |storage, name, request| {
    storage.pool(Some(&name))?.scrub_do(&request.action, "asked for").await
});

direct!(GetVolumes, |storage, (), ()| storage.volumes().await);
direct!(CreateVolume, |storage, (), request| {
    let pool = storage.pool(request.pool.as_deref())?;
    create_volume(&pool, &request.name, &request.properties, request.encrypt).await
});
direct!(SetVolume, |storage, name, change| {
    let (pool, volume) = storage.find(&name).await?;
    pool.set(&volume, &change).await
});
direct!(DestroyVolume, |storage, name, request| {
    let (pool, volume) = storage.find(&name).await?;
    pool.may_be_destroyed(&volume, request.with_snapshots).await?;
    pool.destroy(&volume).await?;
    Ok(Done {})
});
direct!(GetOwners, |storage, name, ()| {
    let (pool, volume) = storage.find(&name).await?;
    pool.owners(&volume).await
});
direct!(GetKeys, |storage, name, ()| {
    let (pool, volume) = storage.find(&name).await?;
    pool.keys_status(&volume).await
});
direct!(ChangeKeys, |storage, name, request| {
    let (pool, volume) = storage.find(&name).await?;
    pool.change_keys(&volume, request).await
});
direct!(CheckVolumes, |storage, (), request| {
    storage.check(request.pool.as_deref(), request.volume.as_deref(), request.read_data).await
});

direct!(GetSnapshots, |storage, name, ()| {
    let (pool, volume) = storage.find(&name).await?;
    pool.snapshots(&volume).await
});
direct!(ChangeSnapshots, |storage, name, request| {
    let (pool, volume) = storage.find(&name).await?;
    pool.change_snapshots(&volume, request).await
});
direct!(DiffSnapshots, |storage, name, request| {
    let (pool, volume) = storage.find(&name).await?;
    pool.diff(&volume, &request).await
});
direct!(CloneSnapshot, |storage, name, request| {
    let (pool, volume) = storage.find(&name).await?;
    pool.clone_snapshot(&volume, &request).await
});

direct!(GetReplica, |storage, name, ()| {
    let (pool, volume) = storage.named(&name)?;
    pool.replica_state(&volume).await
});
direct!(PromoteReplica, |storage, name, ()| {
    let (pool, volume) = storage.find(&name).await?;
    pool.promote(&volume).await
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
        let (pool, volume) = storage.find(&name).await?;
        let outgoing = pool.send_out(&volume, &request).await?;
        let pieces = outgoing.stream.map(move |piece| piece.map_err(|error| pool.failure(&volume, &error)));
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
    let (pool, volume) = storage.find(name).await?;
    let stream = pool.export_tar(&volume, &request.snapshot, owners).await?;
    let pieces = stream.map(move |piece| piece.map_err(|error| pool.failure(&volume, &error)));
    Ok(Outgoing { bytes: None, pieces: pieces.boxed() })
}

/// Copies a folder of the host, except for places of larder itself.
pub async fn import(
    storage: &Storage,
    name: &str,
    request: ImportRequest,
    own: Own,
) -> Result<BoxStream<'static, ImportEvent>, Failure> {
    let (pool, volume) = storage.find(name).await?;
    imports::import(pool, &volume, request, own).await
}
