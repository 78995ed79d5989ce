//! The live connections of clients: what each asks for, and what its requests wait for.
//!
//! A door opens a [`Live`] for each connection and runs each request within [`of`]. Layers below report to the
//! connection of the running request: [`did`] counts its bytes, [`waiting`] says what it waits for. They know no
//! connection and no door.
//!
//! - `traffic.gauges`: only numbers of the moment are kept (requests under way, requests that wait, by what), and sums
//!   of bytes and requests: relaxed additions, no clock. Whoever wants to know samples them; shares of time and
//!   latencies follow from the samples (a mean of requests under way, divided by requests a second, is their latency).
//! - `traffic.fd_outlived`: a [`Live`] is dropped before the socket that it was opened for. Its owner has it in a field
//!   before the socket's. So a look never asks another socket.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, RawFd};
use std::pin::pin;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

mod tcp;

pub use tcp::TcpState;

/// The protocol of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    Nfs,
    Smb,
    Sftp,
    WebDav,
}

impl Protocol {
    pub fn name(self) -> &'static str {
        match self {
            Self::Nfs => "nfs",
            Self::Smb => "smb",
            Self::Sftp => "sftp",
            Self::WebDav => "webdav",
        }
    }
}

/// What a request under way waits for. What waits for none of these is computed, or waits for a processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Wait {
    /// Bytes from disks, and room in memory that disks have to free.
    Disk,
    /// The log: a change is answered once it is durable.
    Durable,
    /// Another request, or a client that has to give back a lease.
    Other,
    /// The rest of the request, from its client.
    Client,
}

/// How many there are.
pub const WAITS: usize = 4;

/// What a request did with files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Did {
    Read,
    Written,
    Listed,
}

const DEEDS: usize = 3;

/// One connection's numbers (`traffic.gauges`).
#[derive(Debug)]
pub struct Traffic {
    id: u64,
    protocol: Protocol,
    peer: SocketAddr,
    since: SystemTime,
    user: Mutex<Option<String>>,
    /// `traffic.fd_outlived`
    socket: Mutex<Option<RawFd>>,
    under_way: AtomicU32,
    waiting: [AtomicU32; WAITS],
    requests: AtomicU64,
    /// Times and bytes.
    done: [(AtomicU64, AtomicU64); DEEDS],
}

/// The numbers of a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Moment {
    /// Requests that came completely and are not answered.
    pub under_way: u32,
    /// Of these.
    pub waiting: [u32; WAITS],
    /// Requests since the connection began.
    pub requests: u64,
    /// Times and bytes since then, by [`Did`].
    pub done: [(u64, u64); DEEDS],
    /// Nothing once the connection is closed.
    pub tcp: Option<TcpState>,
}

#[derive(Default)]
struct Table {
    next: u64,
    open: BTreeMap<u64, Arc<Traffic>>,
}

static TABLE: Mutex<Table> = Mutex::new(Table { next: 1, open: BTreeMap::new() });

thread_local! {
    /// Of the request that this thread works on.
    static CURRENT: RefCell<Option<Arc<Traffic>>> = const { RefCell::new(None) };
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The connections that are open, the oldest first.
pub fn open() -> Vec<Arc<Traffic>> {
    lock(&TABLE).open.values().cloned().collect()
}

/// A connection while it is open (`traffic.fd_outlived`). Doors bound how many there are.
#[derive(Debug)]
pub struct Live(Arc<Traffic>);

impl Live {
    pub fn begin(protocol: Protocol, peer: SocketAddr, socket: &impl AsRawFd) -> Self {
        let mut table = lock(&TABLE);
        let id = table.next;
        table.next += 1;
        let traffic = Arc::new(Traffic {
            id,
            protocol,
            peer,
            since: SystemTime::now(),
            user: Mutex::default(),
            socket: Mutex::new(Some(socket.as_raw_fd())),
            under_way: AtomicU32::new(0),
            waiting: Default::default(),
            requests: AtomicU64::new(0),
            done: Default::default(),
        });
        table.open.insert(id, Arc::clone(&traffic));
        Self(traffic)
    }

    pub fn traffic(&self) -> &Arc<Traffic> {
        &self.0
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        *lock(&self.0.socket) = None;
        lock(&TABLE).open.remove(&self.0.id);
    }
}

impl Traffic {
    /// Of the process's connections, counted from 1.
    pub fn id(&self) -> u64 {
        self.id
    }

    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    pub fn since(&self) -> SystemTime {
        self.since
    }

    pub fn user(&self) -> Option<String> {
        lock(&self.user).clone()
    }

    pub fn set_user(&self, name: &str) {
        let mut user = lock(&self.user);
        if user.as_deref() != Some(name) {
            *user = Some(name.to_owned());
        }
    }

    /// Bytes of files so far, in both directions.
    pub fn bytes(&self) -> u64 {
        self.done.iter().map(|(_, bytes)| bytes.load(Relaxed)).sum()
    }

    /// Whether a request has read, written or listed.
    pub fn has_done(&self) -> bool {
        self.done.iter().any(|(times, _)| times.load(Relaxed) > 0)
    }

    /// The numbers of now. Asks the kernel about the socket.
    pub fn moment(&self) -> Moment {
        let socket = lock(&self.socket);
        Moment {
            under_way: self.under_way.load(Relaxed),
            waiting: self.waiting.each_ref().map(|waits| waits.load(Relaxed)),
            requests: self.requests.load(Relaxed),
            done: self.done.each_ref().map(|(times, bytes)| (times.load(Relaxed), bytes.load(Relaxed))),
            tcp: socket.and_then(tcp::state),
        }
    }

    fn gauge(&self, on: Option<Wait>) -> &AtomicU32 {
        on.and_then(|on| self.waiting.get(on as usize)).unwrap_or(&self.under_way)
    }
}

/// Keeps a gauge one higher.
struct Raised {
    traffic: Arc<Traffic>,
    on: Option<Wait>,
}

impl Raised {
    fn new(traffic: Arc<Traffic>, on: Option<Wait>) -> Self {
        traffic.gauge(on).fetch_add(1, Relaxed);
        Self { traffic, on }
    }
}

impl Drop for Raised {
    fn drop(&mut self) {
        self.traffic.gauge(self.on).fetch_sub(1, Relaxed);
    }
}

/// Makes a connection the current one of this thread, until it is dropped.
struct Entered(Option<Arc<Traffic>>);

impl Entered {
    fn new(traffic: &Arc<Traffic>) -> Self {
        Self(CURRENT.with(|current| current.borrow_mut().replace(Arc::clone(traffic))))
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        let before = self.0.take();
        CURRENT.with(|current| *current.borrow_mut() = before);
    }
}

/// The connection of the running request.
pub fn current() -> Option<Arc<Traffic>> {
    CURRENT.with(|current| current.borrow().clone())
}

/// Runs one request of a connection.
pub async fn of<F: Future>(traffic: Arc<Traffic>, request: F) -> F::Output {
    traffic.requests.fetch_add(1, Relaxed);
    part_of(traffic, request).await
}

/// Runs a further part of a request, such as one read for an answer that is sent while it is read.
pub async fn part_of<F: Future>(traffic: Arc<Traffic>, work: F) -> F::Output {
    let _under_way = Raised::new(Arc::clone(&traffic), None);
    within(traffic, work).await
}

/// Runs work of a request that is counted elsewhere, in a task of its own.
pub async fn within<F: Future>(traffic: Arc<Traffic>, work: F) -> F::Output {
    let mut work = pin!(work);
    poll_fn(|cx| {
        let _entered = Entered::new(&traffic);
        work.as_mut().poll(cx)
    })
    .await
}

/// Waits for `work` in the name of the running request. Work that is ready at once is no wait.
pub async fn waiting<F: Future>(on: Wait, work: F) -> F::Output {
    let mut work = pin!(work);
    let mut raised = None;
    poll_fn(|cx| {
        let polled = work.as_mut().poll(cx);
        if polled.is_pending() && raised.is_none() {
            raised = current().map(|traffic| Raised::new(traffic, Some(on)));
        }
        polled
    })
    .await
}

/// The running request did this with so many bytes.
pub fn did(what: Did, bytes: usize) {
    CURRENT.with(|current| {
        let current = current.borrow();
        if let Some((times, sum)) = current.as_ref().and_then(|traffic| traffic.done.get(what as usize)) {
            times.fetch_add(1, Relaxed);
            sum.fetch_add(bytes as u64, Relaxed);
        }
    });
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn pair() -> (TcpStream, TcpStream, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, peer) = listener.accept().unwrap();
        (client, server, peer)
    }

    #[test]
    fn gauges_follow_a_request_from_thread_to_thread() {
        let (_client, server, peer) = pair();
        let live = Live::begin(Protocol::Nfs, peer, &server);
        let traffic = Arc::clone(live.traffic());
        let mut ready = false;
        let request = async {
            did(Did::Read, 7);
            waiting(
                Wait::Disk,
                poll_fn(|_| if std::mem::replace(&mut ready, true) { Poll::Ready(()) } else { Poll::Pending }),
            )
            .await;
            did(Did::Written, 9);
        };
        let mut work = Box::pin(of(Arc::clone(&traffic), request));
        let mut cx = Context::from_waker(Waker::noop());
        assert!(work.as_mut().poll(&mut cx).is_pending());
        let seen = traffic.moment();
        assert_eq!((seen.under_way, seen.waiting[Wait::Disk as usize], seen.requests), (1, 1, 1));
        assert!(current().is_none(), "no poll runs");
        assert!(work.as_mut().poll(&mut cx).is_ready());
        let seen = traffic.moment();
        assert_eq!((seen.under_way, seen.waiting), (0, [0; WAITS]));
        assert_eq!(seen.done, [(1, 7), (1, 9), (0, 0)]);
        // Outside of a request nothing is counted.
        did(Did::Read, 5);
        assert_eq!(traffic.bytes(), 16);
    }

    #[test]
    fn a_request_that_is_dropped_waits_no_more() {
        let (_client, server, peer) = pair();
        let live = Live::begin(Protocol::Smb, peer, &server);
        let traffic = Arc::clone(live.traffic());
        let mut work = Box::pin(of(Arc::clone(&traffic), waiting(Wait::Durable, std::future::pending::<()>())));
        assert!(work.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        drop(work);
        assert_eq!((traffic.moment().under_way, traffic.moment().waiting), (0, [0; WAITS]));
    }

    #[test]
    fn a_closed_connection_is_not_asked() {
        let (mut client, mut server, peer) = pair();
        let live = Live::begin(Protocol::Sftp, peer, &server);
        let traffic = Arc::clone(live.traffic());
        client.write_all(b"hello").unwrap();
        server.read_exact(&mut [0; 5]).unwrap();
        let tcp = traffic.moment().tcp.unwrap();
        assert_eq!(tcp.received_bytes, 5);
        assert!(tcp.mss > 500, "{tcp:?}");
        let is_open = |id| open().iter().any(|one| one.id() == id);
        assert!(is_open(traffic.id()));
        drop(live);
        assert!(!is_open(traffic.id()) && traffic.moment().tcp.is_none());
    }
}
