//! The requests of one session under way: overlapped, in bounds, answered as they end.
//!
//! ```text
//!  bytes -> Frames -> waiting --take--> running --> answers --> channel
//!                       |  bounded by requests and bytes  |
//!                       '-- refilled as answers leave  <--'
//! ```
//!
//! - `flow.bounded`: at most [`RUNNING_MAX`] requests of a session run, and what runs and what is
//!   answered but not taken, of all sessions of a connection, holds at most the connection's part of
//!   memory ([`Shared::bytes_for_connection`]). One request of a session may always run.
//! - `flow.slow_volume_slows_client`: while requests run that the bounds do not let pass, the next
//!   packet of the connection is not read, so TCP slows the client down. They end without the
//!   client's help.
//! - `flow.answers_wait_apart`: a client that does not read its answers must still be heard, for its
//!   window is what lets them leave. Its further requests wait as they came, at most [`WAITING_BYTES_MAX`] of a
//!   connection; a client that sends more is cut off. All connections share a budget (`unread.one_budget`).
//! - `flow.in_place_first`: a request is polled once where it was read. Most end there, and their
//!   answers leave in one piece with the next, at most [`IN_PLACE_BYTES_MAX`] whatever the client's window takes.
//! - `flow.writes_answered_in_order`: writes to one handle are answered in the order in which they came,
//!   although they overlap. scp (OpenSSH 9.2) takes the first answer that is out of order for the end of
//!   the file and truncates it there. So these answers never leave in place: all go through the one
//!   queue `leaving`.

use std::collections::{HashMap, VecDeque};
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
use super::packet::{self, Code, Garbage, HandleId, Request};
use larder_base::task;
use larder_doors::unread::{Account, Hold};

/// Requests of a session that run at a time.
pub const RUNNING_MAX: usize = 64;
/// A request, its answer, and their places in tables hold at least this.
const REQUEST_BYTES_MIN: usize = 1024;
/// Requests of a connection that wait for the client to read its answers: those for 10 GiB in reads of 32 KiB.
const WAITING_BYTES_MAX: usize = 32 << 20;
/// The places in memory of a request that waits.
const WAITING_REQUEST_BYTES: usize = 72;
/// Answers to the requests of one packet of SSH that leave with it. A packet has room for thousands of requests.
const IN_PLACE_BYTES_MAX: usize = 1 << 20;
/// Small answers leave in pieces of about this.
const PIECE_BYTES: usize = 64 << 10;

#[derive(Default)]
struct State {
    waiting: VecDeque<(Bytes, Hold)>,
    running: usize,
    /// What runs, and answers that the channel has not taken.
    held_bytes: usize,
    /// Bytes that the client's window still takes, as far as they are known here.
    window: usize,
    /// Answers to writes that wait for the answers before them (`flow.writes_answered_in_order`).
    writes: HashMap<HandleId, Writes>,
    /// Answers in the order in which they leave.
    leaving: VecDeque<Answer>,
    /// A task sends them.
    is_sending: bool,
    over: bool,
}

struct Answer {
    packet: Bytes,
    /// What its request holds.
    bytes: usize,
    hold: Option<Hold>,
}

/// What leaves in one piece.
struct Piece {
    packets: Bytes,
    bytes: usize,
    holds: Vec<Hold>,
}

/// The writes of one handle under way, the oldest first.
#[derive(Default)]
struct Writes {
    first: u64,
    answers: VecDeque<Option<Answer>>,
}

/// The place of a write among those of its handle.
type Turn = (HandleId, u64);

impl State {
    fn enter_write(&mut self, handle: HandleId) -> Turn {
        let writes = self.writes.entry(handle).or_default();
        writes.answers.push_back(None);
        (handle, writes.first + writes.answers.len() as u64 - 1)
    }

    /// An answer that does not leave in place.
    fn leave(&mut self, turn: Option<Turn>, answer: Answer) {
        let Some((handle, number)) = turn else { return self.leaving.push_back(answer) };
        let Some(writes) = self.writes.get_mut(&handle) else { return };
        let at = usize::try_from(number - writes.first).ok();
        if let Some(place) = at.and_then(|at| writes.answers.get_mut(at)) {
            *place = Some(answer);
        }
        while let Some(Some(_)) = writes.answers.front() {
            self.leaving.extend(writes.answers.pop_front().flatten());
            writes.first += 1;
        }
        if writes.answers.is_empty() {
            self.writes.remove(&handle);
        }
    }

    /// The next piece to send. `None`: nothing is to be sent.
    fn piece(&mut self) -> Option<Piece> {
        let first = self.leaving.pop_front()?;
        let fits = |next: &Answer, len: usize| len + next.packet.len() <= PIECE_BYTES;
        let (mut bytes, mut holds) = (first.bytes, Vec::from_iter(first.hold));
        if self.leaving.front().is_none_or(|next| !fits(next, first.packet.len())) {
            return Some(Piece { packets: first.packet, bytes, holds });
        }
        let mut packets = BytesMut::from(&first.packet[..]);
        while let Some(next) = self.leaving.pop_front_if(|next| fits(next, packets.len())) {
            packets.extend_from_slice(&next.packet);
            bytes += next.bytes;
            holds.extend(next.hold);
        }
        Some(Piece { packets: packets.freeze(), bytes, holds })
    }
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
    hold: Hold,
    place: Place,
    waits: Vec<CancellationToken>,
    turn: Option<Turn>,
}

pub struct Flow {
    session: Arc<Session>,
    account: Arc<Account>,
    channel: ChannelId,
    handle: Handle,
    order: Order,
    state: Mutex<State>,
    /// A request has ended.
    ended: Notify,
}

type Running = Pin<Box<dyn Future<Output = Bytes> + Send>>;

impl Flow {
    pub fn new(
        (session, account): (Arc<Session>, Arc<Account>),
        channel: ChannelId,
        handle: Handle,
        window: usize,
    ) -> Arc<Self> {
        let state = Mutex::new(State { window, ..State::default() });
        Arc::new(Self { session, account, channel, handle, order: Order::default(), state, ended: Notify::new() })
    }

    /// Takes packets in. Returns the answers that are there at once, whole packets in one piece.
    pub async fn take(self: &Arc<Self>, packets: Vec<Bytes>) -> Result<Bytes, Bad> {
        {
            let held = |packet: Bytes| {
                let hold = self.account.waits(packet.len() + WAITING_REQUEST_BYTES);
                (packet, hold)
            };
            self.state.lock().waiting.extend(packets.into_iter().map(held));
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
                    if self.account.waiting() > WAITING_BYTES_MAX {
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
        self.account.progress();
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

    /// Nothing is open or under way.
    pub fn is_idle(&self) -> bool {
        let is_still = {
            let state = self.state.lock();
            state.waiting.is_empty() && state.running == 0 && state.held_bytes == 0
        };
        is_still && self.session.handles.is_empty()
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
        let Some((packet, _)) = state.waiting.front() else { return Ok(None) };
        let (id, request) = packet::decode(packet.clone())?;
        let bytes = held(packet.len(), &request);
        let most = self.session.shared.bytes_for_connection();
        let fits = state.held_bytes == 0 || self.account.held() + bytes <= most;
        if state.over || state.running >= RUNNING_MAX || !fits {
            return Ok(None);
        }
        state.waiting.pop_front();
        state.running += 1;
        state.held_bytes += bytes;
        let hold = self.account.runs(bytes);
        // Under the lock: places are taken in the order of the packets.
        let footprint = request.as_ref().map(|request| self.session.footprint(request)).unwrap_or_default();
        let (place, waits) = self.order.enter(footprint);
        let turn = match &request {
            Ok(Request::Write { handle, .. }) => Some(state.enter_write(*handle)),
            _ => None,
        };
        Ok(Some(Started { id, request, bytes, hold, place, waits, turn }))
    }

    /// Runs a request in place if it ends at once and its answer may leave, else as a task (`flow.in_place_first`).
    fn run(self: &Arc<Self>, started: Started, answers: Option<&mut BytesMut>) {
        let Started { id, request, bytes, hold, place, waits, turn } = started;
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
        if is_free
            && let Some(answers) = answers
            && let Poll::Ready(packet) = running.as_mut().poll(&mut Context::from_waker(Waker::noop()))
        {
            return self.ended_in_place(turn, Answer { packet, bytes, hold: Some(hold) }, answers);
        }
        let flow = Arc::clone(self);
        task::spawn(async move {
            let packet = running.await;
            {
                let mut state = flow.state.lock();
                state.running -= 1;
                state.leave(turn, Answer { packet, bytes, hold: Some(hold) });
            }
            flow.ended.notify_one();
            flow.send();
        });
    }

    /// The answer leaves at once where the client's window has room for it.
    fn ended_in_place(self: &Arc<Self>, turn: Option<Turn>, answer: Answer, answers: &mut BytesMut) {
        {
            let mut state = self.state.lock();
            state.running -= 1;
            let is_small = answers.len() + answer.packet.len() <= IN_PLACE_BYTES_MAX;
            if turn.is_none() && is_small && answer.packet.len() <= state.window {
                state.window -= answer.packet.len();
                state.held_bytes -= answer.bytes;
                return answers.extend_from_slice(&answer.packet);
            }
            state.leave(turn, answer);
        }
        self.send();
    }

    /// Sees to it that a task sends what is to leave, and begins what had to wait for room.
    fn send(self: &Arc<Self>) {
        {
            let mut state = self.state.lock();
            if state.is_sending || state.leaving.is_empty() {
                return;
            }
            state.is_sending = true;
        }
        task::spawn(Arc::clone(self).send_all());
    }

    async fn send_all(self: Arc<Self>) {
        loop {
            let Some(Piece { packets, bytes, holds }) = self.next_piece() else { return };
            let len = packets.len();
            let sent = self.handle.data(self.channel, self.account.piece(packets, holds)).await;
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
            while let Ok(Some(started)) = self.next() {
                self.run(started, None);
            }
        }
    }

    fn next_piece(&self) -> Option<Piece> {
        let mut state = self.state.lock();
        let piece = state.piece();
        state.is_sending = piece.is_some();
        piece
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

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(text: &'static str) -> Answer {
        Answer { packet: Bytes::from_static(text.as_bytes()), bytes: 1, hold: None }
    }

    fn piece(state: &mut State) -> Option<(Bytes, usize)> {
        state.piece().map(|piece| (piece.packets, piece.bytes))
    }

    #[test]
    fn writes_to_a_handle_are_answered_in_order() {
        let mut state = State::default();
        let turns = [1, 1, 2, 1].map(|handle| state.enter_write(handle));
        state.leave(Some(turns[1]), answer("b"));
        assert!(piece(&mut state).is_none(), "the first is not done");
        state.leave(Some(turns[2]), answer("other"));
        state.leave(None, answer("read"));
        state.leave(Some(turns[0]), answer("a"));
        assert_eq!(piece(&mut state), Some((Bytes::from_static(b"otherreadab"), 4)));
        state.leave(Some(turns[3]), answer("c"));
        assert_eq!(piece(&mut state), Some((Bytes::from_static(b"c"), 1)));
        assert!(piece(&mut state).is_none() && state.writes.is_empty());
        let again = state.enter_write(1);
        state.leave(Some(again), answer("d"));
        assert_eq!(piece(&mut state), Some((Bytes::from_static(b"d"), 1)));
    }
}
