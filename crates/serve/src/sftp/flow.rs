//! The requests of one session under way: overlapped, in bounds, answered as they end.
//!
//! ```text
//!  bytes -> Frames -> waiting --take--> running --> answers --> channel
//!                       |  bounded by requests and bytes  |
//!                       '-- refilled as answers leave  <--'
//! ```
//!
//! - `flow.bounded`: at most [`RUNNING_MAX`] requests of a session run, and what runs and what is
//!   answered but not taken holds at most the connection's part of memory ([`Shared::bytes_for_connection`]).
//! - `flow.slow_volume_slows_client`: while requests run that the bounds do not let pass, the next
//!   packet of the connection is not read, so TCP slows the client down. They end without the
//!   client's help.
//! - `flow.answers_wait_apart`: a client that does not read its answers must still be heard, for its
//!   window is what lets them leave. Its further requests wait as they came, at most [`WAITING_BYTES_MAX`];
//!   a client that sends more is cut off.
//! - `flow.in_place_first`: a request is polled once where it was read. Most end there, and their
//!   answers leave in one piece with the next.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use russh::ChannelId;
use russh::server::Handle;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::ops::Session;
use super::order::{Order, Place};
use super::packet::{self, Code, Garbage, Request};

/// Requests of a session that run at a time.
pub const RUNNING_MAX: usize = 64;
/// A request, its answer, and their places in tables hold at least this.
const REQUEST_BYTES_MIN: usize = 1024;
/// Requests that wait for a client to read its answers: those for 16 GiB in reads of 32 KiB.
const WAITING_BYTES_MAX: usize = 16 << 20;

#[derive(Default)]
struct State {
    waiting: VecDeque<Bytes>,
    waiting_bytes: usize,
    running: usize,
    /// What runs, and answers that the channel has not taken.
    held_bytes: usize,
    /// Bytes that the client's window still takes, as far as they are known here.
    window: usize,
    over: bool,
}

/// What ends a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bad {
    /// It is not SFTP.
    Garbage,
    /// Requests without end, and no answer read.
    DoesNotRead,
}

impl From<Garbage> for Bad {
    fn from(_: Garbage) -> Self {
        Bad::Garbage
    }
}

/// A request that may run.
struct Started {
    id: u32,
    request: Result<Request, Garbage>,
    bytes: usize,
    place: Place,
    waits: Vec<CancellationToken>,
}

pub struct Flow {
    session: Arc<Session>,
    channel: ChannelId,
    handle: Handle,
    order: Order,
    state: Mutex<State>,
    /// A request has ended.
    ended: Notify,
}

type Running = Pin<Box<dyn Future<Output = Bytes> + Send>>;

impl Flow {
    pub fn new(session: Arc<Session>, channel: ChannelId, handle: Handle, window: usize) -> Arc<Self> {
        let state = Mutex::new(State { window, ..State::default() });
        Arc::new(Self { session, channel, handle, order: Order::default(), state, ended: Notify::new() })
    }

    /// Takes packets in. Returns the answers that are there at once, whole packets in one piece.
    pub async fn take(self: &Arc<Self>, packets: Vec<Bytes>) -> Result<Bytes, Bad> {
        {
            let mut state = self.state.lock();
            state.waiting_bytes += packets.iter().map(Bytes::len).sum::<usize>();
            state.waiting.extend(packets);
        }
        let mut answers = BytesMut::new();
        loop {
            while let Some(started) = self.next()? {
                self.run(started, Some(&mut answers));
            }
            {
                let state = self.state.lock();
                if state.waiting.is_empty() {
                    break;
                }
                // Nothing runs: answers have to leave first (`flow.answers_wait_apart`).
                if state.running == 0 {
                    if state.waiting_bytes > WAITING_BYTES_MAX {
                        return Err(Bad::DoesNotRead);
                    }
                    break;
                }
            }
            self.ended.notified().await;
        }
        Ok(answers.freeze())
    }

    /// The client takes so many bytes now.
    pub fn window(&self, bytes: usize) {
        self.state.lock().window = bytes;
    }

    /// Waits until everything that came is answered.
    pub async fn drained(&self) {
        loop {
            {
                let state = self.state.lock();
                if state.over || (state.waiting.is_empty() && state.held_bytes == 0) {
                    return;
                }
            }
            let _ = tokio::time::timeout(std::time::Duration::from_millis(20), self.ended.notified()).await;
        }
    }

    /// Nothing begins any more.
    pub fn end(&self) {
        let mut state = self.state.lock();
        state.over = true;
        state.waiting.clear();
        drop(state);
        self.session.end();
    }

    /// The next request, if the bounds let it pass (`flow.bounded`).
    fn next(&self) -> Result<Option<Started>, Bad> {
        let mut state = self.state.lock();
        let Some(packet) = state.waiting.front() else { return Ok(None) };
        let (id, request) = packet::decode(packet.clone())?;
        let bytes = held(packet.len(), &request);
        let most = self.session.shared.bytes_for_connection();
        let fits = state.held_bytes == 0 || state.held_bytes + bytes <= most;
        if state.over || state.running >= RUNNING_MAX || !fits {
            return Ok(None);
        }
        if let Some(packet) = state.waiting.pop_front() {
            state.waiting_bytes -= packet.len();
        }
        state.running += 1;
        state.held_bytes += bytes;
        // Under the lock: places are taken in the order of the packets.
        let footprint = request.as_ref().map(|request| self.session.footprint(request)).unwrap_or_default();
        let (place, waits) = self.order.enter(footprint);
        Ok(Some(Started { id, request, bytes, place, waits }))
    }

    /// Runs a request in place if it ends at once and its answer may leave, else as a task (`flow.in_place_first`).
    fn run(self: &Arc<Self>, started: Started, answers: Option<&mut BytesMut>) {
        let Started { id, request, bytes, place, waits } = started;
        let is_free = waits.is_empty();
        let session = Arc::clone(&self.session);
        let mut running: Running = Box::pin(async move {
            for wait in waits {
                wait.cancelled().await;
            }
            let answer = match request {
                Ok(request) => session.answer(id, request).await,
                Err(Garbage) => packet::status(id, Code::BadMessage, "the request's fields are cut short"),
            };
            drop(place);
            answer
        });
        let mut ready = None;
        if is_free
            && answers.is_some()
            && let Poll::Ready(answer) = running.as_mut().poll(&mut Context::from_waker(Waker::noop()))
        {
            if let Some(answers) = answers
                && self.leaves_now(answer.len(), bytes)
            {
                answers.extend_from_slice(&answer);
                return;
            }
            ready = Some(answer);
        }
        let flow = Arc::clone(self);
        tokio::spawn(async move {
            let answer = match ready {
                Some(answer) => answer,
                None => {
                    let answer = running.await;
                    flow.state.lock().running -= 1;
                    flow.ended.notify_one();
                    answer
                }
            };
            flow.send(answer, bytes).await;
        });
    }

    /// The request has ended; whether the client's window has room for its answer.
    fn leaves_now(&self, len: usize, bytes: usize) -> bool {
        let mut state = self.state.lock();
        state.running -= 1;
        let fits = len <= state.window;
        if fits {
            state.window -= len;
            state.held_bytes -= bytes;
        }
        fits
    }

    async fn send(self: Arc<Self>, answer: Bytes, bytes: usize) {
        let len = answer.len();
        let sent = self.handle.data(self.channel, answer).await;
        {
            let mut state = self.state.lock();
            state.held_bytes -= bytes;
            state.window = state.window.saturating_sub(len);
            if sent.is_err() {
                state.over = true;
                state.waiting.clear();
            }
        }
        self.ended.notify_one();
        // What had to wait for room.
        while let Ok(Some(started)) = self.next() {
            self.run(started, None);
        }
    }
}

/// What a request holds until its answer has left.
fn held(packet: usize, request: &Result<Request, Garbage>) -> usize {
    let answer = match request {
        Ok(Request::Read { len, .. }) => (*len).min(packet::IO_BYTES_MAX) as usize,
        Ok(Request::ReadDir { .. }) => 32 << 10,
        Ok(Request::CopyData { .. }) => 1 << 20,
        _ => 0,
    };
    packet + answer + REQUEST_BYTES_MIN
}
