//! Machines that send to this one: pairing by a code, and the door that they come in by.
//!
//! - `machines.one_replica_each`: a machine may send into the replicas whose `from` has its fingerprint, and do nothing else.
//! - `machines.code_once`: a code names this machine and a secret. The first who says the secret within an hour is the machine
//!   that the replica is open to.
//! - `machines.strangers_make_room`: a connection is a stranger until its machine asks for a replica that is open to it. Strangers
//!   are bounded, timed and evicted as those of the other doors (`strangers.make_room`), and count apart from machines with a
//!   right. So nobody without one keeps a sender out.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use axum::body::Body;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use larder_api::endpoint::{Caller, Endpoint};
use larder_api::endpoints::{PairMachine, ReceiveRecord, ReceiveSnapshot};
use larder_api::{Accept, Accepted, Client, Failure, Pair, Paired};
use larder_base::{hex, task};
use larder_doors::handshake::Paced;
use larder_doors::strangers::{STRANGER_TIME, Stranger, Strangers};
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::Replication;
use super::door;
use super::invitations::SECRET_BYTES;
use super::receiver::Receiver;
use super::tls::{self, Identity};
use larder_config::{ReplicaConfig, VolumeName};
use larder_servers::answer::Refusal;
use larder_servers::json;

/// Connections of machines with a right at the same time. A sender has one.
const CONNECTIONS_MAX: usize = 32;
/// Strangers at the same time; the oldest makes room for a newcomer.
const STRANGERS_MAX: usize = 64;
/// What a stranger holds: a handshake with certificates of both sides, and the head of a request.
const STRANGER_BYTES: usize = 64 << 10;
/// The head of a request: one path, a few headers.
const HEAD_BYTES_MAX: usize = 16 << 10;
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);
const HEAD_MAX: Duration = Duration::from_secs(30);
const PAIR_BYTES_MAX: usize = 4096;
/// So much of a fingerprint is in a code: nobody finds another certificate with it.
const FINGERPRINT_DIGITS: usize = 32;

const _: () = assert!(matches!(PairMachine::CALLER, Caller::Invited));

/// The parts of a code: the beginning of the other machine's fingerprint, and the secret.
pub(super) fn parse_code(code: &str) -> Result<(String, String), Failure> {
    let code = code.trim();
    let is_whole = code.len() == FINGERPRINT_DIGITS + 2 * SECRET_BYTES && hex::decode(code).is_some();
    match code.split_at_checked(FINGERPRINT_DIGITS).filter(|_| is_whole) {
        Some((fingerprint, secret)) => Ok((fingerprint.to_owned(), secret.to_owned())),
        None => Err(Failure::invalid("the code is none that larder made, or a part of one")
            .action("ask the other machine for one with: larder replicate accept POOL/NAME")),
    }
}

/// Listens until `stop`.
pub fn listen(replication: Arc<Replication>, listener: TcpListener, stop: CancellationToken) -> Result<(), Failure> {
    let identity = Identity::load_or_create(replication.folder.path())?;
    let acceptor = identity.acceptor().map_err(|error| Failure::internal(format!("TLS: {error}")))?;
    let strangers = Arc::new(Strangers::new(replication.servers.strangers()));
    task::spawn(async move {
        let (places, waiting) = (Arc::new(Semaphore::new(CONNECTIONS_MAX)), Arc::new(AtomicUsize::new(0)));
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = stop.cancelled() => return,
            };
            let Ok((stream, from)) = accepted else {
                // No descriptors, mostly.
                tokio::time::sleep(Duration::from_secs(1)).await;
                continue;
            };
            let is_full = waiting.load(Relaxed) >= STRANGERS_MAX;
            let Some(stranger) = strangers.admit_newest(from.ip(), is_full) else { continue };
            let stream = stranger.paces(stream, from.ip());
            let visit = Visit {
                evicted: stranger.evicted(),
                known: CancellationToken::new(),
                places: Arc::clone(&places),
                status: Mutex::new(Status::Stranger { stranger, _waiting: Waiting::new(&waiting) }),
            };
            let (replication, acceptor, stop) = (Arc::clone(&replication), acceptor.clone(), stop.clone());
            task::spawn(async move {
                let visit = Arc::new(visit);
                tokio::select! {
                    served = serve(replication, stream, acceptor, Arc::clone(&visit)) => {
                        if let Err(why) = served {
                            tracing::debug!(%from, "replication: {why}");
                        }
                    }
                    () = visit.ends() => tracing::debug!(%from, "replication: no right was shown in time, or others came"),
                    () = stop.cancelled() => {}
                }
            });
        }
    });
    Ok(())
}

/// Counts strangers while they are that.
struct Waiting(Arc<AtomicUsize>);

impl Waiting {
    fn new(all: &Arc<AtomicUsize>) -> Self {
        all.fetch_add(1, Relaxed);
        Self(Arc::clone(all))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

enum Status {
    Stranger {
        stranger: Stranger,
        _waiting: Waiting,
    },
    /// A machine with a right, in a place of its own.
    Known {
        _place: OwnedSemaphorePermit,
    },
}

/// One connection (`machines.strangers_make_room`).
struct Visit {
    evicted: CancellationToken,
    /// Cancelled when it has a right.
    known: CancellationToken,
    places: Arc<Semaphore>,
    status: Mutex<Status>,
}

impl Visit {
    /// Its machine has a right. `false`: there are as many as there may be.
    fn admit(&self) -> bool {
        let mut status = self.status.lock();
        if matches!(*status, Status::Known { .. }) {
            return true;
        }
        let Ok(place) = Arc::clone(&self.places).try_acquire_owned() else { return false };
        *status = Status::Known { _place: place };
        self.known.cancel();
        true
    }

    fn has_room(&self) -> bool {
        match &*self.status.lock() {
            Status::Stranger { stranger, .. } => stranger.meter().holds(STRANGER_BYTES),
            Status::Known { .. } => true,
        }
    }

    /// Returns when a stranger has to end.
    async fn ends(&self) {
        tokio::select! {
            () = tokio::time::sleep(STRANGER_TIME) => {}
            () = self.evicted.cancelled() => {}
            () = self.known.cancelled() => std::future::pending().await,
        }
    }
}

async fn serve(
    replication: Arc<Replication>,
    stream: Paced,
    acceptor: TlsAcceptor,
    visit: Arc<Visit>,
) -> Result<(), String> {
    if !visit.has_room() {
        return Err("strangers hold too much".to_owned());
    }
    let pace = stream.pace().clone();
    let handshake = tokio::time::timeout(HANDSHAKE_MAX, acceptor.accept(stream)).await;
    let stream = handshake.map_err(|_| "no handshake in time")?.map_err(|error| error.to_string())?;
    pace.end();
    let certificate = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
    let machine = tls::fingerprint(certificate.ok_or("no certificate")?);
    let service = hyper::service::service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
        let (replication, machine, visit) = (Arc::clone(&replication), machine.clone(), Arc::clone(&visit));
        async move { Ok::<_, Infallible>(answer(&replication, &machine, &visit, request.map(Body::new)).await) }
    });
    let mut builder = hyper::server::conn::http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD_MAX).max_buf_size(HEAD_BYTES_MAX);
    builder.serve_connection(TokioIo::new(stream), service).await.map_err(|error| error.to_string())
}

async fn answer(replication: &Replication, machine: &str, visit: &Visit, request: axum::extract::Request) -> Response {
    if request.uri().path() == PairMachine::PATH && request.method() == PairMachine::METHOD {
        let paired = replication.pair(machine, request.into_body()).await;
        return paired.map_or_else(|failure| Refusal(failure).into_response(), |paired| json::answer(&paired));
    }
    let path = request.uri().path().to_owned();
    let is_its = |replica: &VolumeName| {
        let replica = replica.to_string();
        path == ReceiveSnapshot::path(&replica) || path == ReceiveRecord::path(&replica)
    };
    let Some(name) = replication.replicas_of(machine).into_iter().find(is_its) else {
        let failure = Failure::denied("this machine may not send into such a replica");
        return Refusal(failure.action("let it in there with: larder replicate accept POOL/NAME")).into_response();
    };
    if !visit.admit() {
        let failure = Failure::busy(format!("{CONNECTIONS_MAX} machines send to this one already"));
        return Refusal(failure.action("wait until one of them has finished")).into_response();
    }
    let pool = match replication.storage.pool(Some(&name.pool)) {
        Ok(pool) => pool,
        Err(failure) => return Refusal(failure).into_response(),
    };
    let of_stream = ReceiveSnapshot::path(&name.to_string());
    let is_stream = request.method() == ReceiveSnapshot::METHOD && path == of_stream;
    let limits = replication.limits_of(&name);
    let response = door::answer(request, &of_stream, Receiver::Pool(pool, name.volume.clone(), limits)).await;
    if is_stream && response.status() == StatusCode::OK {
        replication.came(&name).await;
    }
    response
}

impl Replication {
    /// The replicas that a machine may send into (`machines.one_replica_each`).
    fn replicas_of(&self, machine: &str) -> Vec<VolumeName> {
        let is_open = |replica: &&ReplicaConfig| replica.from.iter().any(|from| from == machine);
        self.document.config().replicas.iter().filter(is_open).map(|replica| replica.name.clone()).collect()
    }

    async fn pair(&self, machine: &str, body: Body) -> Result<Paired, Failure> {
        let wrong = || {
            Failure::denied("the code is not good any more: each is good once, for an hour")
                .action("make another there with: larder replicate accept POOL/NAME")
        };
        let bytes = axum::body::to_bytes(body, PAIR_BYTES_MAX).await.map_err(|_| wrong())?;
        let Pair { secret, replica: wanted } = serde_json::from_slice(&bytes).map_err(|_| wrong())?;
        let secret = hex::decode(&secret).ok_or_else(wrong)?;
        let replica = self.invitations.find(&secret).ok_or_else(wrong)?;
        if wanted != replica.to_string() {
            return Err(Failure::invalid(format!("the code is good for the replica '{replica}', not for '{wanted}'"))
                .action("name that one; or make a code for another there with: larder replicate accept POOL/NAME"));
        }
        // Nobody else uses it meanwhile.
        let invitation = self.invitations.take(&secret).ok_or_else(wrong)?;
        let opened = self.open_replica(&replica, |known| {
            if !known.from.iter().any(|from| from == machine) {
                known.from.push(machine.to_owned());
            }
        });
        if let Err(failure) = opened.await {
            self.invitations.give_back(invitation);
            return Err(failure);
        }
        tracing::info!("a machine may send into the replica '{replica}' from now on: {machine}");
        Ok(Paired { replica: replica.to_string() })
    }

    /// Changes what the file says of a replica.
    async fn open_replica(&self, name: &VolumeName, change: impl FnOnce(&mut ReplicaConfig)) -> Result<(), Failure> {
        let mut state = self.document.lock().await;
        let known = state.config.replicas.iter().find(|replica| replica.name == *name).cloned();
        let mut replica = known.unwrap_or_else(|| ReplicaConfig {
            name: name.clone(),
            keep: None,
            quota_bytes: None,
            from: Vec::new(),
        });
        change(&mut replica);
        self.document.edit(&mut state, |editor| editor.set_replica(&replica)).await
    }

    /// Makes a code for a machine that shall send into a replica.
    pub async fn accept(&self, request: Accept) -> Result<Accepted, Failure> {
        let (pool, volume) = self.storage.named(&request.replica)?;
        let name = VolumeName { pool: pool.name.clone(), volume };
        let name = VolumeName::parse(&name.to_string()).map_err(Failure::invalid)?;
        let addr = self.servers.replication_addr().ok_or_else(|| {
            Failure::unavailable("this larder does not listen to other machines").action(
                "write replication = \":12077\" below [listen] in larder.toml, and start larder anew; or: larder up --replication :12077",
            )
        })?;
        // A volume of its own says so.
        pool.replica_state(&name.volume).await?;
        self.open_replica(&name, |replica| {
            replica.keep = request.keep.or(replica.keep);
            if let Some(bytes) = request.quota_bytes {
                replica.quota_bytes = Some(bytes).filter(|bytes| *bytes > 0);
            }
        })
        .await?;
        let fingerprint = Identity::load_or_create(self.folder.path())?.fingerprint();
        let secret = hex::encode(&self.invitations.add(name.clone()));
        let code = format!("{}{secret}", fingerprint.get(..FINGERPRINT_DIGITS).unwrap_or_default());
        Ok(Accepted { code, addr, replica: name.to_string() })
    }
}

/// Makes this machine known to another by its code, and returns the other's fingerprint.
pub(super) async fn pair_with(
    folder: &std::path::Path,
    (host, port): (&str, u16),
    replica: &VolumeName,
    code: &str,
) -> Result<String, Failure> {
    let (expected, secret) = parse_code(code)?;
    let identity = Identity::load_or_create(folder)?;
    let way = tls::Machine { host: host.to_owned(), port, identity, expected, seen: Mutex::new(None) };
    let way = Arc::new(way);
    let wanted = Pair { secret, replica: replica.to_string() };
    let Paired { .. } = Client::over(way.clone()).call(PairMachine, (), &wanted).await?;
    let seen = way.seen.lock().clone();
    seen.ok_or_else(|| Failure::internal("the other machine has shown no certificate"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn codes_have_two_parts() {
        let code = format!("{}{}", "a".repeat(32), "b".repeat(32));
        assert_eq!(parse_code(&format!(" {code}\n")).unwrap(), ("a".repeat(32), "b".repeat(32)));
        for wrong in ["", "abc", &code[1..], &code.replace('a', "x")] {
            assert!(parse_code(wrong).is_err(), "{wrong}");
        }
    }
}
