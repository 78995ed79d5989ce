//! The HTTP API on the Unix socket: routes, and nothing that decides.
//!
//! Whoever may open the socket (its owner; mode 0600 in a folder of mode 0700) may do everything.

use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::{DefaultBodyLimit, Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, patch, post};
use futures::StreamExt;
use larder_api::{
    BODY_BYTES_MAX, CheckRequest, Done, Failure, MountRequest, PoolChangeRequest, PoolImport, ShareAdd, ShareChange,
    SocketPath, TakeAway, UnmountRequest, UserAdd, UserPassword, VolumeChange, VolumeCreate,
};
use larder_volume::replica::ReceiveLimits;
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use super::Daemon;
use crate::config::VolumeName;

type Answer<T> = Result<Json<T>, Refusal>;

/// A failure as a response.
pub(super) struct Refusal(pub(super) Failure);

impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Self {
        Self(failure)
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.0.kind.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        (status, Json(self.0)).into_response()
    }
}

fn ok<T: Serialize>(value: T) -> Answer<T> {
    Ok(Json(value))
}

fn done(result: Result<(), Failure>) -> Answer<Done> {
    result?;
    ok(Done {})
}

/// Listens on the daemon's socket until `stop`.
pub(crate) fn listen(daemon: Arc<Daemon>, stop: CancellationToken) -> Result<(), Failure> {
    let socket = daemon.folder().socket();
    let failed = |e: &std::io::Error| Failure::io(format_args!("the API socket {}", socket.display()), e);
    // The lock of the data folder is ours: whatever lies here was left by a crash.
    let _ = std::fs::remove_file(&socket);
    let path = SocketPath::of(&socket).map_err(|e| failed(&e))?;
    let listener = tokio::net::UnixListener::bind(path.path()).map_err(|e| failed(&e))?;
    std::fs::set_permissions(&socket, std::fs::Permissions::from_mode(0o600)).map_err(|e| failed(&e))?;
    let router = router(daemon);
    tokio::spawn(async move {
        let served = axum::serve(listener, router).with_graceful_shutdown(stop.cancelled_owned()).await;
        if let Err(error) = served {
            tracing::error!("the API ended: {error}");
        }
    });
    Ok(())
}

fn router(daemon: Arc<Daemon>) -> axum::Router {
    axum::Router::new()
        .route("/v1/info", get(info))
        .route("/v1/pools", get(pool_statuses))
        .route("/v1/pools/list", get(pool_list))
        .route("/v1/pools/import", post(pool_import))
        .route("/v1/pools/{name}/export", post(pool_export))
        .route("/v1/pools/{name}/rename", post(pool_rename))
        .route("/v1/pools/{name}/clear", post(pool_clear))
        .route("/v1/pools/{name}/change", post(pool_change))
        .route("/v1/pools/{name}/history", get(pool_history))
        .route("/v1/pools/{name}/scrub", get(pool_scrub).post(pool_scrub_do))
        .route("/v1/volumes", get(volumes).post(volume_create))
        .route("/v1/volumes/{*name}", patch(volume_set).delete(volume_destroy))
        .route("/v1/move", post(volume_move))
        .route("/v1/stores/{name}/forget", post(store_forget))
        .route("/v1/owners/{*name}", get(owners))
        .route("/v1/keys/{*name}", get(keys).post(keys_change))
        .route("/v1/snapshots/{*name}", get(snapshots).post(snapshots_change))
        .route("/v1/snapshot-schedules", get(snapshot_schedules))
        .route("/v1/diff/{*name}", post(diff))
        .route("/v1/send/{*name}", post(send))
        .route("/v1/export/{*name}", post(export))
        .route("/v1/receive/{*name}", get(replica_state).post(receive))
        .route("/v1/promote/{*name}", post(promote))
        .route("/v1/import/{*name}", post(import))
        .route("/v1/clone/{*name}", post(clone))
        .route("/v1/replications", get(replications).post(replications_change))
        .route("/v1/replicate", post(replicate))
        .route("/v1/accept", post(accept))
        .route("/v1/check", post(check))
        .route("/metrics", get(metrics))
        .route("/v1/shares", get(shares).post(share_add))
        .route("/v1/shares/{name}", patch(share_set).delete(share_remove))
        .route("/v1/explain", post(explain))
        .route("/v1/reload", post(reload))
        .route("/v1/pools/{name}/destroy", post(pool_destroy))
        .route("/v1/users", get(users).post(user_add))
        .route("/v1/users/{name}", delete(user_remove))
        .route("/v1/users/{name}/password", post(user_passwd))
        .route("/v1/users/{name}/keys", get(user_keys).post(user_keys_change))
        .route("/v1/groups", get(groups).post(group_add))
        .route("/v1/groups/{name}", patch(group_change).delete(group_remove))
        .route("/v1/links", get(links))
        .route("/v1/links/{id}", delete(link_revoke))
        .route("/v1/users/{name}/links", delete(links_revoke_of))
        .route("/v1/tokens", get(tokens).post(token_create))
        .route("/v1/tokens/{which}", delete(token_revoke))
        .route("/v1/mounts", get(mounts).post(mount))
        .route("/v1/unmount", post(unmount))
        .fallback(async || {
            Refusal(Failure::not_found("the daemon does not know this request: it is of another version"))
        })
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .with_state(daemon)
}

type Shared = State<Arc<Daemon>>;

async fn info(State(daemon): Shared) -> Answer<larder_api::DaemonInfo> {
    ok(daemon.info())
}

async fn pool_statuses(State(daemon): Shared) -> Answer<Vec<larder_api::PoolStatus>> {
    ok(daemon.pool_statuses().await)
}

async fn pool_list(State(daemon): Shared) -> Answer<Vec<larder_api::PoolListed>> {
    ok(daemon.pool_list().await)
}

async fn pool_import(State(daemon): Shared, Json(request): Json<PoolImport>) -> Answer<larder_api::PoolStatus> {
    ok(finish(async move { daemon.pool_import(request).await }).await?)
}

async fn pool_export(State(daemon): Shared, Path(name): Path<String>, Json(request): Json<TakeAway>) -> Answer<Done> {
    done(finish(async move { daemon.pool_export(&name, request).await }).await)
}

async fn pool_rename(
    State(daemon): Shared,
    Path(name): Path<String>,
    Json(request): Json<larder_api::PoolRename>,
) -> Answer<larder_api::PoolStatus> {
    ok(finish(async move { daemon.pool_rename(&name, request).await }).await?)
}

async fn pool_clear(State(daemon): Shared, Path(name): Path<String>) -> Answer<Done> {
    done(daemon.storage.pool(Some(&name))?.clear().await)
}

async fn pool_change(
    State(daemon): Shared,
    Path(name): Path<String>,
    Json(request): Json<PoolChangeRequest>,
) -> Answer<larder_api::PoolChangePlan> {
    ok(finish(async move { daemon.pool_change(&name, request).await }).await?)
}

async fn pool_history(State(daemon): Shared, Path(name): Path<String>) -> Answer<larder_api::PoolHistory> {
    ok(daemon.storage.pool(Some(&name))?.history())
}

async fn pool_scrub(State(daemon): Shared, Path(name): Path<String>) -> Answer<larder_api::PoolScrub> {
    ok(daemon.storage.pool(Some(&name))?.scrub_status().await)
}

async fn pool_scrub_do(
    State(daemon): Shared,
    Path(name): Path<String>,
    Json(request): Json<larder_api::ScrubRequest>,
) -> Answer<larder_api::PoolScrub> {
    let pool = daemon.storage.pool(Some(&name))?;
    ok(finish(async move { pool.scrub_do(&request.action, "asked for").await }).await?)
}

async fn volumes(State(daemon): Shared) -> Answer<Vec<larder_api::VolumeStatus>> {
    ok(daemon.storage.volumes().await?)
}

async fn volume_create(State(daemon): Shared, Json(request): Json<VolumeCreate>) -> Answer<larder_api::VolumeStatus> {
    ok(finish(async move { daemon.volume_create(request).await }).await?)
}

async fn volume_set(
    State(daemon): Shared,
    Path(name): Path<String>,
    Json(change): Json<VolumeChange>,
) -> Answer<larder_api::VolumeStatus> {
    ok(finish(async move { daemon.volume_set(&name, change).await }).await?)
}

async fn volume_destroy(
    State(daemon): Shared,
    Path(name): Path<String>,
    Json(request): Json<TakeAway>,
) -> Answer<Done> {
    done(finish(async move { daemon.volume_destroy(&name, request).await }).await)
}

/// Who asked and goes away interrupts the copying; then the volume stays where it is.
async fn volume_move(
    State(daemon): Shared,
    Json(request): Json<larder_api::VolumeMove>,
) -> Answer<larder_api::VolumeMoved> {
    // A volume has a name that follows that of its pool. A machine has none.
    if !request.to.contains('/') {
        let offered = daemon.offer_volume(&request).await?;
        return ok(finish(async move { daemon.hand_over(offered).await }).await?);
    }
    let copied = daemon.copy_volume(&request).await?;
    ok(finish(async move { daemon.change_places(copied).await }).await?)
}

async fn store_forget(State(daemon): Shared, Path(name): Path<String>) -> Answer<Done> {
    let store = daemon.storage.pool(Some(&name))?;
    done(finish(async move { store.forget_lost().await }).await)
}

async fn owners(State(daemon): Shared, Path(name): Path<String>) -> Answer<Vec<larder_api::OwnerUse>> {
    ok(daemon.owners_of(&name).await?)
}

async fn keys(State(daemon): Shared, Path(name): Path<String>) -> Answer<larder_api::KeysStatus> {
    ok(daemon.keys_status(&name).await?)
}

async fn keys_change(
    State(daemon): Shared,
    Path(name): Path<String>,
    Json(request): Json<larder_api::KeysRequest>,
) -> Answer<larder_api::KeysStatus> {
    ok(finish(async move { daemon.change_keys(&name, request).await }).await?)
}

async fn snapshots(State(daemon): Shared, Path(name): Path<String>) -> Answer<larder_api::SnapshotsStatus> {
    let (pool, volume) = daemon.storage.find(&name).await?;
    ok(pool.snapshots(&volume).await?)
}

async fn snapshots_change(
    State(daemon): Shared,
    Path(name): Path<String>,
    Json(request): Json<larder_api::SnapshotsRequest>,
) -> Answer<larder_api::SnapshotsStatus> {
    if let larder_api::SnapshotsRequest::Rollback { name: snapshot, destroy_later, force } = request {
        return ok(finish(async move { daemon.roll_back(&name, &snapshot, destroy_later, force).await }).await?);
    }
    let (pool, volume) = daemon.storage.find(&name).await?;
    daemon.not_mounted(&pool, &volume, &request).await?;
    let changed = finish(async move { pool.change_snapshots(&volume, request).await }).await?;
    daemon.snapshots_changed();
    ok(changed)
}

async fn snapshot_schedules(State(daemon): Shared) -> Answer<Vec<larder_api::SnapshotSchedule>> {
    ok(daemon.snapshot_schedules().await)
}

async fn diff(
    State(daemon): Shared,
    Path(name): Path<String>,
    Json(request): Json<larder_api::DiffRequest>,
) -> Answer<Vec<larder_api::DiffEntry>> {
    let (pool, volume) = daemon.storage.find(&name).await?;
    ok(pool.diff(&volume, &request).await?)
}

async fn send(
    State(daemon): Shared,
    Path(name): Path<String>,
    Json(request): Json<larder_api::SendRequest>,
) -> Result<Response, Refusal> {
    let (pool, volume) = daemon.storage.find(&name).await?;
    let outgoing = pool.send_out(&volume, &request).await?;
    let told = outgoing.stream.inspect(move |piece| {
        if let Err(error) = piece {
            tracing::warn!(volume = name, %error, "sending a snapshot was cut off");
        }
    });
    Ok(([(larder_api::STREAM_BYTES_HEADER, outgoing.bytes.to_string())], Body::from_stream(told)).into_response())
}

async fn export(
    State(daemon): Shared,
    Path(name): Path<String>,
    Json(request): Json<larder_api::ExportRequest>,
) -> Result<Response, Refusal> {
    let (pool, volume) = daemon.storage.find(&name).await?;
    let stream = pool.export_tar(&volume, &request.snapshot, daemon.owners().await).await?;
    Ok(Body::from_stream(stream).into_response())
}

/// The quota that a request names (`stream_path`).
fn quota_of(request: &axum::extract::Request) -> Result<Option<u64>, Failure> {
    let Some(query) = request.uri().query() else { return Ok(None) };
    let bytes = query.strip_prefix("quota_bytes=").and_then(|bytes| bytes.parse().ok());
    bytes.map(Some).ok_or_else(|| Failure::invalid("a stream into a replica takes quota_bytes=BYTES and nothing else"))
}

/// A refusal is answered at once, in the middle of the stream. What comes after it is read and dropped until the client has read
/// the answer and gone: a connection that is closed before takes the answer with it.
async fn receive(
    State(daemon): Shared,
    Path(name): Path<String>,
    request: axum::extract::Request,
) -> Answer<larder_api::Received> {
    let (pool, volume) = daemon.storage.named(&name)?;
    let named = VolumeName { pool: pool.name.clone(), volume: volume.clone() };
    let quota_bytes = quota_of(&request)?;
    let configured = daemon.limits_of(&named).await.quota_bytes;
    let limits =
        ReceiveLimits { quota_bytes: configured.into_iter().chain(quota_bytes.filter(|bytes| *bytes > 0)).min() };
    let mut body = request.into_body().into_data_stream();
    let input = body.by_ref().map(|piece| piece.map_err(|error| error.to_string()));
    let received = pool.receive(&volume, limits, input.boxed()).await;
    match &received {
        Ok(_) => daemon.came(&named).await,
        Err(_) => drop(tokio::spawn(body.for_each(|_| std::future::ready(())))),
    }
    ok(received?)
}

async fn replica_state(State(daemon): Shared, Path(name): Path<String>) -> Answer<larder_api::ReplicaState> {
    let (pool, volume) = daemon.storage.named(&name)?;
    ok(pool.replica_state(&volume).await?)
}

async fn promote(State(daemon): Shared, Path(name): Path<String>) -> Answer<Done> {
    let (pool, volume) = daemon.storage.find(&name).await?;
    ok(finish(async move { pool.promote(&volume).await }).await?)
}

/// Lines of JSON, the last of which is the outcome. Who asked and goes away stops it.
async fn import(
    State(daemon): Shared,
    Path(name): Path<String>,
    Json(request): Json<larder_api::ImportRequest>,
) -> Result<Response, Refusal> {
    let (pool, volume) = daemon.storage.find(&name).await?;
    let events = pool.import(&volume, request, daemon.own_places()).await?;
    let lines = events.map(|event| {
        serde_json::to_vec(&event).map(|mut line| {
            line.push(b'\n');
            line
        })
    });
    Ok(Body::from_stream(lines).into_response())
}

async fn clone(
    State(daemon): Shared,
    Path(name): Path<String>,
    Json(request): Json<larder_api::CloneRequest>,
) -> Answer<larder_api::VolumeStatus> {
    let (pool, volume) = daemon.storage.find(&name).await?;
    ok(finish(async move { pool.clone_snapshot(&volume, &request).await }).await?)
}

async fn replications(State(daemon): Shared) -> Answer<larder_api::Replications> {
    ok(daemon.replications().await)
}

async fn replications_change(
    State(daemon): Shared,
    Json(change): Json<larder_api::ReplicationChange>,
) -> Answer<larder_api::Replications> {
    ok(finish(async move { daemon.change_replication(change).await }).await?)
}

/// Who asked and goes away interrupts it.
async fn replicate(
    State(daemon): Shared,
    Json(request): Json<larder_api::Replicate>,
) -> Answer<larder_api::Replications> {
    ok(daemon.replicate(request).await?)
}

async fn accept(State(daemon): Shared, Json(request): Json<larder_api::Accept>) -> Answer<larder_api::Accepted> {
    ok(finish(async move { daemon.accept_replica(request).await }).await?)
}

async fn metrics(State(daemon): Shared) -> Response {
    super::metrics::answer(&daemon).await
}

async fn check(State(daemon): Shared, Json(request): Json<CheckRequest>) -> Answer<Vec<larder_api::CheckResult>> {
    ok(daemon.storage.check(request.pool.as_deref(), request.volume.as_deref(), request.read_data).await?)
}

async fn shares(State(daemon): Shared) -> Answer<Vec<larder_api::ShareStatus>> {
    ok(daemon.shares().await)
}

async fn share_add(State(daemon): Shared, Json(request): Json<ShareAdd>) -> Answer<larder_api::ShareChanged> {
    ok(finish(async move { daemon.share_add(request).await }).await?)
}

async fn share_set(
    State(daemon): Shared,
    Path(name): Path<String>,
    Json(change): Json<ShareChange>,
) -> Answer<larder_api::ShareChanged> {
    ok(finish(async move { daemon.share_set(&name, change).await }).await?)
}

async fn share_remove(State(daemon): Shared, Path(name): Path<String>) -> Answer<Done> {
    done(finish(async move { daemon.share_remove(&name).await }).await)
}

async fn explain(
    State(daemon): Shared,
    Json(request): Json<larder_api::ExplainRequest>,
) -> Answer<larder_api::Explanation> {
    ok(daemon.explain(&request).await?)
}

async fn reload(State(daemon): Shared) -> Answer<larder_api::ConfigRead> {
    ok(finish(async move { daemon.reload().await }).await?)
}

async fn pool_destroy(
    State(daemon): Shared,
    Path(name): Path<String>,
    Json(request): Json<TakeAway>,
) -> Answer<larder_api::PoolDestroyed> {
    ok(finish(async move { daemon.pool_destroy(&name, request).await }).await?)
}

async fn users(State(daemon): Shared) -> Answer<Vec<larder_api::UserStatus>> {
    ok(daemon.users().await)
}

async fn user_add(State(daemon): Shared, Json(request): Json<UserAdd>) -> Answer<larder_api::UserAdded> {
    ok(finish(async move { daemon.user_add(request).await }).await?)
}

async fn user_remove(State(daemon): Shared, Path(name): Path<String>) -> Answer<larder_api::UserRemoved> {
    ok(finish(async move { daemon.user_remove(&name).await }).await?)
}

async fn user_passwd(
    State(daemon): Shared,
    Path(name): Path<String>,
    Json(request): Json<UserPassword>,
) -> Answer<larder_api::LinksEnded> {
    ok(finish(async move { daemon.user_passwd(&name, &request).await }).await?)
}

async fn user_keys(State(daemon): Shared, Path(name): Path<String>) -> Answer<Vec<larder_api::UserKey>> {
    ok(daemon.user_keys(&name).await?)
}

async fn user_keys_change(
    State(daemon): Shared,
    Path(name): Path<String>,
    Json(change): Json<larder_api::UserKeysChange>,
) -> Answer<Vec<larder_api::UserKey>> {
    ok(finish(async move { daemon.user_keys_change(&name, change).await }).await?)
}

async fn groups(State(daemon): Shared) -> Answer<Vec<larder_api::GroupStatus>> {
    ok(daemon.groups().await)
}

async fn group_add(
    State(daemon): Shared,
    Json(request): Json<larder_api::GroupAdd>,
) -> Answer<larder_api::GroupStatus> {
    ok(finish(async move { daemon.group_add(request).await }).await?)
}

async fn group_change(
    State(daemon): Shared,
    Path(name): Path<String>,
    Json(change): Json<larder_api::GroupChange>,
) -> Answer<larder_api::GroupStatus> {
    ok(finish(async move { daemon.group_change(&name, change).await }).await?)
}

async fn group_remove(State(daemon): Shared, Path(name): Path<String>) -> Answer<larder_api::GroupRemoved> {
    ok(finish(async move { daemon.group_remove(&name).await }).await?)
}

async fn links(State(daemon): Shared) -> Answer<Vec<larder_api::LinkStatus>> {
    ok(daemon.links().await)
}

async fn link_revoke(State(daemon): Shared, Path(id): Path<String>) -> Answer<larder_api::LinksEnded> {
    ok(finish(async move { daemon.link_revoke(&id).await }).await?)
}

async fn links_revoke_of(State(daemon): Shared, Path(name): Path<String>) -> Answer<larder_api::LinksEnded> {
    ok(finish(async move { daemon.links_revoke_of(&name).await }).await?)
}

async fn tokens(State(daemon): Shared) -> Answer<Vec<larder_api::TokenStatus>> {
    ok(daemon.tokens().await)
}

async fn token_create(
    State(daemon): Shared,
    Json(request): Json<larder_api::TokenCreate>,
) -> Answer<larder_api::TokenCreated> {
    ok(finish(async move { daemon.token_create(request).await }).await?)
}

async fn token_revoke(State(daemon): Shared, Path(which): Path<String>) -> Answer<larder_api::TokenStatus> {
    ok(finish(async move { daemon.token_revoke(&which).await }).await?)
}

async fn mounts(State(daemon): Shared) -> Answer<Vec<larder_api::MountStatus>> {
    ok(daemon.mounts().await)
}

async fn mount(State(daemon): Shared, Json(request): Json<MountRequest>) -> Answer<larder_api::MountStatus> {
    ok(finish(async move { daemon.mount(request).await }).await?)
}

async fn unmount(State(daemon): Shared, Json(request): Json<UnmountRequest>) -> Answer<Done> {
    done(finish(async move { daemon.unmount(&request).await }).await)
}

/// Runs a change to its end also when the client goes away in the middle of it.
async fn finish<T: Send + 'static>(
    work: impl Future<Output = Result<T, Failure>> + Send + 'static,
) -> Result<T, Failure> {
    tokio::spawn(work).await.unwrap_or_else(|e| Err(Failure::internal(format!("the daemon failed at this: {e}"))))
}
