//! The HTTP API on the Unix socket: a handler for each endpoint, and nothing that decides.
//!
//! Whoever may open the socket (its owner; mode 0600 in a folder of mode 0700) may do everything. The endpoints are declared in
//! `larder_api::endpoints` (`endpoints.declared_once`). The router has all of them: one without a handler does not compile, nor does one with two.

use std::any::{Any, TypeId};
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::{ConnectInfo, DefaultBodyLimit, RawPathParams, Request, State};
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, on};
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
use larder_api::endpoint::{self, Caller, Endpoint, Query};
use larder_api::endpoints::*;
use larder_api::{BODY_BYTES_MAX, Done, Failure, ReceiveQuery, STREAM_BYTES_HEADER, SocketPath};
use larder_base::task;
use tokio_util::sync::CancellationToken;

use super::Daemon;
use super::acts;
use super::direct::{self, Direct, DirectDownload, Outgoing};
use larder_servers::answer::{Refusal, finish};
use larder_servers::json;

/// The handler of an endpoint.
pub(super) trait Answers: Endpoint {
    fn respond(daemon: Arc<Daemon>, param: Self::Param, request: Request) -> impl Future<Output = Response> + Send;
}

/// Listens on the daemon's socket until `stop`.
pub fn listen(daemon: Arc<Daemon>, stop: CancellationToken) -> Result<(), Failure> {
    let socket = daemon.folder().socket();
    let failed = |e: &std::io::Error| Failure::io(format_args!("the API socket {}", socket.display()), e);
    // The lock of the data folder is ours: whatever lies here was left by a crash.
    let _ = std::fs::remove_file(&socket);
    let path = SocketPath::of(&socket).map_err(|e| failed(&e))?;
    let listener = tokio::net::UnixListener::bind(path.path()).map_err(|e| failed(&e))?;
    std::fs::set_permissions(&socket, std::fs::Permissions::from_mode(0o600)).map_err(|e| failed(&e))?;
    let router = router(daemon);
    task::spawn(async move {
        let service = router.into_make_service_with_connect_info::<acts::Peer>();
        let served = axum::serve(listener, service).with_graceful_shutdown(stop.cancelled_owned()).await;
        if let Err(error) = served {
            tracing::error!("the API ended: {error}");
        }
    });
    Ok(())
}

impl Daemon {
    /// Serves the page, if there is one.
    pub fn begin_page(self: &Arc<Self>) -> Option<Arc<larder_servers::page::PageGuest>> {
        self.servers.begin_page(router(Arc::clone(self)), self.folder.path(), self.record.passwords())
    }
}

/// All endpoints of the socket.
pub fn router(daemon: Arc<Daemon>) -> axum::Router {
    routes()
        .fallback(async || {
            Refusal(Failure::not_found("the daemon does not know this request: it is of another version"))
        })
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .with_state(daemon)
}

type Routes = axum::Router<Arc<Daemon>>;

fn routes() -> Routes {
    macro_rules! all {
        ($($endpoint:ident)*) => { Routes::new()$(.merge(route::<$endpoint>()))* };
    }
    larder_api::for_each_endpoint!(all)
}

fn route<E: Answers>() -> Routes {
    const { assert!(!matches!(E::CALLER, Caller::Invited), "this one is not for the socket") };
    route_to(acts::Asked { name: E::NAME, method: E::METHOD, form: E::FORM }, E::PATH, respond::<E>)
}

/// Answers a request about what its path names.
type Respond = fn(Arc<Daemon>, String, Request) -> BoxFuture<'static, Response>;

/// All that is the same for every endpoint is compiled once: a router of its own for each was a tenth of this crate.
fn route_to(asked: acts::Asked, path: &str, respond: Respond) -> Routes {
    let method = MethodFilter::try_from(asked.method.clone()).unwrap_or(MethodFilter::GET);
    let handler = move |State(daemon): State<Arc<Daemon>>, named: RawPathParams, request: Request| {
        let peer = request.extensions().get::<ConnectInfo<acts::Peer>>().map(|peer| peer.0.clone());
        let named = named.iter().next().map(|(_, value)| value.to_owned()).unwrap_or_default();
        acts::audited(asked.clone(), daemon, peer, named, request, respond)
    };
    Routes::new().route(path, on(method, handler))
}

fn respond<E: Answers>(daemon: Arc<Daemon>, named: String, request: Request) -> BoxFuture<'static, Response> {
    let param: Box<dyn Any> = match TypeId::of::<E::Param>() == TypeId::of::<()>() {
        true => Box::new(()),
        false => Box::new(named),
    };
    match param.downcast::<E::Param>() {
        Ok(param) => E::respond(daemon, *param, request).boxed(),
        Err(_) => {
            let wrong = Failure::internal(format!("{} names something that no path has", E::NAME));
            std::future::ready(Refusal(wrong).into_response()).boxed()
        }
    }
}

/// The request of an endpoint, or the response to one that cannot be read.
async fn read<E: Endpoint>(request: Request) -> Result<E::Request, Response> {
    let body = match TypeId::of::<E::Request>() == TypeId::of::<()>() {
        true => Bytes::from_static(b"null"),
        false => json::body(request).await?,
    };
    serde_json::from_slice(&body).map_err(|error| json::refusal(&body, &error))
}

fn whole<E: endpoint::Json>(_: E, answer: Result<E::Response, Failure>) -> Response {
    answer.map_or_else(|failure| Refusal(failure).into_response(), |value| json::answer(&value))
}

fn download<E: endpoint::Download>(_: E, answer: Result<Outgoing, Failure>) -> Response {
    let Outgoing { bytes, pieces } = match answer {
        Ok(outgoing) => outgoing,
        Err(failure) => return Refusal(failure).into_response(),
    };
    let mut response = Body::from_stream(pieces).into_response();
    if let Some(bytes) = bytes {
        response.headers_mut().insert(STREAM_BYTES_HEADER, bytes.into());
    }
    response
}

/// An answer whose work ends when its caller goes away.
macro_rules! answers {
    ($endpoint:ident, |$daemon:ident, $param:pat_param, $request:pat_param| $answer:expr) => {
        answers!($endpoint as whole, |$daemon, $param, $request| $answer);
    };
    ($endpoint:ident as $form:ident, |$daemon:ident, $param:pat_param, $request:pat_param| $answer:expr) => {
        impl Answers for $endpoint {
            async fn respond($daemon: Arc<Daemon>, $param: <Self as Endpoint>::Param, request: Request) -> Response {
                match read::<Self>(request).await {
                    Ok($request) => $form($endpoint, async move { $answer }.await),
                    Err(response) => response,
                }
            }
        }
    };
}

/// An answer whose work goes on to its end also when its caller goes away in the middle of it.
macro_rules! finishes {
    ($endpoint:ident, |$daemon:ident, $param:pat_param, $request:pat_param| $answer:expr) => {
        answers!($endpoint, |$daemon, $param, $request| finish(async move { $answer }).await);
    };
}

/// The answer is that without a daemon.
macro_rules! direct {
    ($how:ident: $($endpoint:ident),*) => {
        $($how!($endpoint, |daemon, param, request| $endpoint::direct(&daemon.storage, param, request).await);)*
    };
}

direct!(answers: GetVolumes, GetKeys, CheckVolumes, GetSnapshots, DiffSnapshots, GetReplica, GetPoolScrub);
direct!(finishes: ScrubPool, CloneSnapshot, PromoteReplica);

answers!(GetInfo, |daemon, (), ()| Ok(daemon.info()));
answers!(GetPools, |daemon, (), ()| Ok(daemon.pools.statuses().await));
answers!(GetPoolsKnown, |daemon, (), ()| Ok(daemon.pools.known_statuses()));
answers!(ListPools, |daemon, (), ()| Ok(daemon.pools.list().await));
finishes!(ImportPool, |daemon, (), request| daemon.pools.import(request).await);
finishes!(ExportPool, |daemon, name, request| daemon.pools.export(&name, request).await.map(done));
finishes!(ClearPool, |daemon, name, ()| daemon.pools.clear(&name).await.map(|()| Done {}));
finishes!(RenamePool, |daemon, name, request| daemon.pools.rename(&name, request).await);
finishes!(ChangePool, |daemon, name, request| daemon.pools.change(&name, request).await);
answers!(GetPoolHistory, |daemon, name, ()| Ok(daemon.storage.pool(Some(&name))?.history()));
finishes!(DestroyPool, |daemon, name, request| daemon.pools.destroy(&name, request).await);
finishes!(ForgetLost, |daemon, name, ()| {
    let pool = daemon.storage.pool(Some(&name))?;
    pool.forget_lost().await.map(done)
});

answers!(GetDisks, |_daemon, (), ()| super::disks::answer_found().await);
answers!(PreviewLayouts, |_daemon, (), request| super::disks::answer_layouts(request).await);

finishes!(CreateVolume, |daemon, (), request| daemon.volumes.create(request).await);
finishes!(SetVolume, |daemon, name, change| daemon.volumes.set(&name, change).await);
finishes!(DestroyVolume, |daemon, name, request| daemon.volumes.destroy(&name, request).await.map(done));
answers!(MoveVolume, |daemon, (), request| daemon.moves.clone().start(request).await);
answers!(GetOwners, |daemon, name, ()| daemon.volumes.owners(&name).await);
finishes!(ChangeKeys, |daemon, name, request| daemon.volumes.change_keys(&name, request).await);

finishes!(ChangeSnapshots, |daemon, name, request| daemon.snapshots.change(&name, request).await);
answers!(GetSnapshotSchedules, |daemon, (), ()| Ok(daemon.snapshots.list()));
finishes!(SetSnapshotSchedule, |daemon, (), request| daemon.snapshots.set_schedule(request).await);
answers!(GetScrubSchedules, |daemon, (), ()| Ok(daemon.scrubs.list()));
finishes!(SetScrubSchedule, |daemon, (), request| daemon.scrubs.set(request).await);
answers!(SendSnapshot as download, |daemon, name, request| {
    let Outgoing { bytes, pieces } = SendSnapshot::direct(&daemon.storage, name.clone(), request).await?;
    let pieces = pieces.inspect(move |piece| {
        if let Err(failure) = piece {
            tracing::warn!(volume = name, error = failure.message, "sending a snapshot was cut off");
        }
    });
    Ok(Outgoing { bytes, pieces: pieces.boxed() })
});
answers!(ExportSnapshot as download, |daemon, name, request| {
    direct::export(&daemon.storage, &name, &request, daemon.document.owners()).await
});

answers!(GetReplications, |daemon, (), ()| Ok(daemon.replication.list()));
finishes!(ChangeReplications, |daemon, (), change| daemon.replication.change(change).await);
answers!(ReplicateNow, |daemon, (), request| daemon.replication.replicate(request).await);
finishes!(AcceptReplica, |daemon, (), request| daemon.replication.accept(request).await);

answers!(GetShares, |daemon, (), ()| Ok(daemon.sharing.list()));
finishes!(AddShare, |daemon, (), request| daemon.sharing.add(request).await);
finishes!(SetShare, |daemon, name, change| daemon.sharing.set(&name, change).await);
finishes!(RemoveShare, |daemon, name, ()| daemon.sharing.remove(&name).await.map(done));
answers!(ExplainAccess, |daemon, (), request| daemon.explaining.access(&request).await);

answers!(GetUsers, |daemon, (), ()| Ok(daemon.people.users().await));
finishes!(AddUser, |daemon, (), request| daemon.people.user_add(request).await);
finishes!(SetUser, |daemon, name, change| daemon.people.user_set(&name, change).await);
finishes!(RemoveUser, |daemon, name, ()| daemon.people.user_remove(&name).await);
finishes!(SetPassword, |daemon, name, request| daemon.people.user_passwd(&name, &request).await);
answers!(GetUserKeys, |daemon, name, ()| daemon.people.user_keys(&name));
finishes!(ChangeUserKeys, |daemon, name, change| daemon.people.user_keys_change(&name, change).await);
answers!(GetGroups, |daemon, (), ()| Ok(daemon.people.groups()));
finishes!(AddGroup, |daemon, (), request| daemon.people.group_add(request).await);
finishes!(ChangeGroup, |daemon, name, change| daemon.people.group_change(&name, change).await);
finishes!(RemoveGroup, |daemon, name, ()| daemon.people.group_remove(&name).await);
answers!(GetLinks, |daemon, (), ()| Ok(daemon.links.list()));
finishes!(RevokeLink, |daemon, id, ()| daemon.links.revoke(&id).await);
finishes!(RevokeLinksOf, |daemon, user, ()| daemon.people.links_revoke_of(&user).await);
answers!(GetTokens, |daemon, (), ()| Ok(daemon.people.tokens().await));
finishes!(CreateToken, |daemon, (), request| daemon.people.token_create(request).await);
finishes!(RevokeToken, |daemon, which, ()| daemon.people.token_revoke(&which).await);

answers!(GetAlerts, |daemon, (), ()| daemon.watcher.alerts().await);
finishes!(ChangeAlert, |daemon, (), change| daemon.watcher.alert_change(change).await);
answers!(GetDamage, |daemon, (), ()| daemon.watcher.damage_kept().await);
answers!(GetUps, |daemon, (), ()| daemon.watcher.ups_status());
finishes!(TestAlerts, |daemon, (), ()| daemon.watcher.alerts_test().await);
answers!(GetAudit, |daemon, (), query| daemon.watcher.audit_records(query).await);
finishes!(GetTop, |daemon, (), ()| Ok(daemon.top.look().await));
answers!(GetOpenFiles, |daemon, (), ()| Ok(daemon.opens.list().await));
finishes!(EndOpenFile, |daemon, id, ()| daemon.opens.end(&id).await.map(done));
answers!(GetTopWorst, |daemon, (), ()| Ok(daemon.top.worst()));
finishes!(GetDiskHealth, |daemon, (), ()| daemon.watcher.disk_health().await);

answers!(GetLog, |_daemon, (), ()| Ok(crate::log::kept()));
answers!(GetCharts, |daemon, (), ()| Ok(daemon.charts.told()));
answers!(GetPower, |daemon, (), ()| daemon.care.power().await);
answers!(WhatIfPower, |daemon, (), request| daemon.care.power_what_if(request).await);
answers!(GetAwake, |daemon, (), ()| daemon.care.power_awake().await);
answers!(RunDoctor, |daemon, (), ()| daemon.care.doctor().await);
answers!(GetBenchState, |daemon, (), ()| Ok(daemon.care.benches.state()));
finishes!(StartBench, |daemon, (), request| daemon.care.bench_start(request).await);
finishes!(StopBench, |daemon, (), ()| Ok(daemon.care.benches.stop()));
answers!(GetBenches, |daemon, (), ()| daemon.care.bench_list().await);
answers!(GetBench, |daemon, id, ()| daemon.care.bench_show(id).await);
finishes!(RemoveBench, |daemon, id, ()| daemon.care.bench_remove(id).await.map(done));
answers!(CompareBenches, |daemon, (), request| daemon.care.bench_compare(request).await);

answers!(GetMounts, |daemon, (), ()| Ok(daemon.mounting.list()));
finishes!(MountVolume, |daemon, (), request| daemon.mounting.mount(request).await);
finishes!(UnmountVolume, |daemon, (), request| daemon.mounting.unmount(&request).await.map(done));
answers!(DrawSetupLink, |daemon, (), ()| daemon.setup_link());
finishes!(ReloadConfig, |daemon, (), ()| {
    let reread = daemon.applying.reload().await;
    daemon.watch.config_fault(reread.as_ref().map(drop));
    reread
});

answers!(ReadConfig, |daemon, (), ()| daemon.applying.read().await);
answers!(PlanConfig, |daemon, (), request| daemon.applying.plan_for(&request).await);
finishes!(ApplyConfig, |daemon, (), request| daemon.applying.apply(request).await);

answers!(GetConfigHistory, |daemon, (), ()| daemon.record.history().await);
answers!(GetConfigVersion, |daemon, number, ()| daemon.record.version_text(&number).await);
finishes!(RestoreConfig, |daemon, (), request| daemon.restoring.restore(request).await);
finishes!(RenewRecoveryKey, |daemon, (), ()| daemon.record.renew_recovery_key().await);
finishes!(ReceiveRecord, |daemon, name, request| daemon.record.receive(&name, request).await.map(done));

impl Answers for GetMetrics {
    async fn respond(daemon: Arc<Daemon>, (): (), _: Request) -> Response {
        super::metrics::answer(&daemon).await
    }
}

/// Lines of JSON, the last of which is the outcome. A caller that goes away stops it.
impl Answers for ImportFolder {
    async fn respond(daemon: Arc<Daemon>, name: String, request: Request) -> Response {
        let request = match read::<Self>(request).await {
            Ok(request) => request,
            Err(response) => return response,
        };
        let events = match direct::import(&daemon.storage, &name, request, daemon.mounting.own_places()).await {
            Ok(events) => events,
            Err(failure) => return Refusal(failure).into_response(),
        };
        let lines = events.map(|event| {
            serde_json::to_vec(&event).map(|mut line| {
                line.push(b'\n');
                line
            })
        });
        ([(CONTENT_TYPE, "application/x-ndjson")], Body::from_stream(lines)).into_response()
    }
}

/// A refusal is answered at once, in the middle of the stream. What comes after it is read and dropped until the client has read
/// the answer and gone: a connection that is closed before takes the answer with it.
impl Answers for ReceiveSnapshot {
    async fn respond(daemon: Arc<Daemon>, name: String, request: Request) -> Response {
        let Some(query) = ReceiveQuery::read(request.uri().query()) else {
            let wrong = Failure::invalid("a stream into a replica takes quota_bytes=BYTES and nothing else");
            return Refusal(wrong).into_response();
        };
        let mut body = request.into_body().into_data_stream();
        let input = body.by_ref().map(|piece| piece.map_err(|error| error.to_string()));
        match daemon.replication.receive(&name, query, input.boxed()).await {
            Ok(received) => json::answer(&received),
            Err(failure) => {
                task::spawn(body.for_each(|_| std::future::ready(())));
                Refusal(failure).into_response()
            }
        }
    }
}

fn done((): ()) -> Done {
    Done {}
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `endpoints.declared_once`: two endpoints with one method and path would end this here.
    #[test]
    fn all_endpoints_have_a_route() {
        assert!(routes().has_routes());
    }
}
