//! One connection: a single task that reads, starts calls, gathers replies and writes them.
//!
//! ```text
//!   socket -> Receiver -> Session -> poll once --ready--------------------------> Outbox -> socket
//!                                        |                                           ^
//!                                        +--not ready--> own task, or `waiting` -----+
//! ```
//!
//! A call that finds all it needs in caches is answered in place: no task, no allocation, and a batch of
//! such calls is one read and one write. Replies leave in the order in which they are ready.
//!
//! - `conn.bounded_reading`: reading stops while `requests_max` calls or `connection_bytes_max`
//!   bytes are under way or unread by the client. It also stops while the server's total is used up
//!   and a call of this connection is under way. So an event of the same connection ends every
//!   stop, and no connection starves.
//! - `conn.stall_ends_it`: a connection ends if the rest of a message, or the reading of a reply,
//!   takes longer than [`STALL_MAX`].
//! - `conn.calls_finish`: calls under way finish after their connection has ended. A change is
//!   never cut short.
//! - `conn.idle_holds_nothing`: an idle connection holds no buffers.
//! - `conn.strangers_end`: a connection that no export admits ends after [`STRANGER_TIME`]. From an address
//!   that none would admit, messages are short ([`STRANGER_MESSAGE_BYTES_MAX`]).
//! - `conn.partial_is_metered`: what incomplete messages hold is metered (`strangers.one_budget`). A client
//!   that an export admits reads on when there is room. Its message counts as a stranger's when it is
//!   incomplete for [`SLOW_TIME`].

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures::stream::{FuturesUnordered, Stream, StreamExt};
use futures::task::AtomicWaker;
use larder_base::traffic::{self, Live, Protocol};
use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::time::{Instant, Sleep};
use tokio_util::sync::{CancellationToken, ReusableBoxFuture, WaitForCancellationFutureOwned};
use tokio_util::task::TaskTracker;

use super::ops::IO_BYTES_MAX;
use super::outbox::{Outbox, Reply};
use super::record::{Receiver, RecordError};
use super::session::{Next, Service, Session, Work};
use super::shared::{Charge, Shared};
use larder_doors::parties::{Party, PartyPlace};
use larder_doors::strangers::{Borrower, STRANGER_TIME, Stranger};

/// A connection that stalls for longer ends (`conn.stall_ends_it`). A client on a slow line needs
/// this time for a WRITE of 1 MiB at 17 KB/s.
pub const STALL_MAX: Duration = Duration::from_secs(60);
/// The largest WRITE that is kept whole and the largest RPC header there may be.
pub const MESSAGE_BYTES_MAX: usize = IO_BYTES_MAX as usize + 4096;
/// The path of a MNT is the longest that somebody without a right has to say.
const STRANGER_MESSAGE_BYTES_MAX: usize = 8 << 10;
/// What a connection holds beside its messages.
const IDLE_BYTES: usize = 8 << 10;
/// A client that an export admits has this long for a message before it makes room for others. At 200 KB/s
/// it suffices for a WRITE of 1 MiB.
const SLOW_TIME: Duration = Duration::from_secs(5);
/// Turns of the loop before other connections get theirs.
const TURNS_MAX: u32 = 16;
/// Calls started in one turn: replies to them should not wait for all that came in.
const STARTS_MAX: u32 = 128;

/// Why a connection ends.
#[derive(Debug, thiserror::Error)]
pub enum End {
    #[error("closed by the client")]
    Closed,
    #[error("the server stops")]
    Shutdown,
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Record(#[from] RecordError),
    #[error("not RPC")]
    NotRpc,
    #[error("no progress for {} s", STALL_MAX.as_secs())]
    Stalled,
    #[error("no share admitted it within {} s", STRANGER_TIME.as_secs())]
    Stranger,
    #[error("it made room for others")]
    MakesRoom,
    #[error("a call failed in an unforeseen way")]
    Panicked,
}

/// Outcomes of calls that have tasks of their own. `None`: the task died.
#[derive(Default)]
struct Finished {
    list: Mutex<Vec<(Option<Reply>, Option<Charge>)>>,
    waker: AtomicWaker,
}

impl Finished {
    fn push(&self, reply: Option<Reply>, charge: Option<Charge>) {
        self.list.lock().push((reply, charge));
        self.waker.wake();
    }
}

/// Reports that a task is over, however it ends.
struct Report {
    to: Arc<Finished>,
    charge: Option<Charge>,
    reply: Option<Reply>,
}

impl Report {
    fn finish(mut self, reply: Reply) {
        self.reply = Some(reply);
    }
}

impl Drop for Report {
    fn drop(&mut self) {
        self.to.push(self.reply.take(), self.charge.take());
    }
}

/// A call that waits for its group commit.
struct Waiting {
    future: ReusableBoxFuture<'static, Reply>,
    charge: Option<Charge>,
}

impl Future for Waiting {
    type Output = (Reply, Option<Charge>);

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let reply = std::task::ready!(self.future.poll(cx));
        Poll::Ready((reply, self.charge.take()))
    }
}

pub struct Connection {
    shared: Arc<Shared>,
    /// Before the socket (`traffic.fd_outlived`).
    live: Live,
    rd: OwnedReadHalf,
    wr: OwnedWriteHalf,
    session: Session,
    /// The user that those who look at connections are told: of the last call that transferred something.
    named: Option<u32>,
    receiver: Receiver,
    outbox: Outbox,
    /// Room for the next call's future and reply, reused while calls finish at once.
    slot: Option<ReusableBoxFuture<'static, Reply>>,
    scratch: Vec<u8>,
    waiting: FuturesUnordered<Waiting>,
    finished: Arc<Finished>,
    /// Calls in tasks of their own.
    tasks: usize,
    /// File data of calls under way.
    bytes_under_way: usize,
    /// The client has sent its last byte, or the server stops.
    input_ended: bool,
    /// The received bytes may hold another complete message.
    may_have_message: bool,
    tracker: TaskTracker,
    shutdown: Pin<Box<WaitForCancellationFutureOwned>>,
    /// Fires no later than the stall deadline; set again when it fires too early.
    timer: Option<Pin<Box<Sleep>>>,
    /// Since when the present message is incomplete and bytes for it are wanted.
    message_since: Option<Instant>,
    /// When the client last took bytes of a reply, or there was none.
    written_at: Option<Instant>,
    /// Until when it has time to show that an export admits it.
    stranger: Option<(Stranger, Instant)>,
    /// From then on.
    borrower: Option<Borrower>,
    place: Option<PartyPlace>,
    evicted: Pin<Box<WaitForCancellationFutureOwned>>,
    /// What was metered last.
    metered_bytes: usize,
    /// The present message has taken longer than [`SLOW_TIME`].
    is_slow: bool,
}

/// Serves one connection to its end.
pub async fn serve(
    shared: Arc<Shared>,
    socket: TcpStream,
    (peer, stranger): (std::net::SocketAddr, Stranger),
    service: Service,
    tracker: TaskTracker,
    shutdown: CancellationToken,
) -> End {
    let session = Session::new(Arc::clone(&shared), peer, service).at(socket.local_addr().ok());
    let may_be_admitted = service == Service::Files && shared.exports().admit(session.peer());
    let (payload_bytes_max, message_bytes_max) = match may_be_admitted {
        true => (IO_BYTES_MAX as usize, MESSAGE_BYTES_MAX),
        false => (0, STRANGER_MESSAGE_BYTES_MAX),
    };
    let evicted = Box::pin(stranger.evicted().cancelled_owned());
    if !stranger.meter().holds(IDLE_BYTES) {
        return End::MakesRoom;
    }
    let live = Live::begin(Protocol::Nfs, peer, &socket);
    let (rd, wr) = socket.into_split();
    let mut connection = Connection {
        shared,
        live,
        rd,
        wr,
        session,
        named: None,
        receiver: Receiver::new(payload_bytes_max, message_bytes_max),
        outbox: Outbox::default(),
        slot: None,
        scratch: Vec::new(),
        waiting: FuturesUnordered::new(),
        finished: Arc::default(),
        tasks: 0,
        bytes_under_way: 0,
        input_ended: false,
        may_have_message: false,
        tracker,
        shutdown: Box::pin(shutdown.cancelled_owned()),
        timer: None,
        message_since: None,
        written_at: None,
        stranger: Some((stranger, Instant::now() + STRANGER_TIME)),
        borrower: None,
        place: None,
        evicted,
        metered_bytes: 0,
        is_slow: false,
    };
    let end = std::future::poll_fn(|cx| connection.poll(cx)).await;
    connection.finish_waiting();
    end
}

impl Connection {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<End> {
        match self.turns(cx) {
            Ok(()) => Poll::Pending,
            Err(end) => Poll::Ready(end),
        }
    }

    /// Turns until nothing moves; then wake-ups are arranged for.
    fn turns(&mut self, cx: &mut Context<'_>) -> Result<(), End> {
        for _ in 0..TURNS_MAX {
            let mut moved = self.collect(cx)?;
            moved |= self.start_calls()?;
            moved |= self.write(cx)?;
            moved |= self.read(cx)?;
            if self.input_ended && self.outbox.is_empty() && self.under_way() == 0 && !self.may_have_message {
                return Err(if self.shutdown.as_mut().poll(cx).is_ready() { End::Shutdown } else { End::Closed });
            }
            if !moved {
                self.rest();
                if self.evicted.as_mut().poll(cx).is_ready() {
                    return Err(End::MakesRoom);
                }
                self.check_shutdown(cx);
                return self.check_stall(cx);
            }
        }
        if self.evicted.as_mut().poll(cx).is_ready() {
            return Err(End::MakesRoom);
        }
        cx.waker().wake_by_ref();
        Ok(())
    }

    fn under_way(&self) -> usize {
        self.tasks + self.waiting.len()
    }

    /// Whether another call may start (`conn.bounded_reading`).
    fn may_start(&self) -> bool {
        let config = &self.shared.config;
        let own = self.under_way() < config.requests_max
            && self.bytes_under_way + self.outbox.len() < config.connection_bytes_max;
        let idle = self.under_way() == 0 && self.outbox.is_empty();
        own && (idle || self.shared.bytes_under_way.load(Relaxed) < config.total_bytes_max)
    }

    /// Takes the outcomes of calls that did not finish at once.
    fn collect(&mut self, cx: &mut Context<'_>) -> Result<bool, End> {
        let mut moved = false;
        while let Some(head) = self.session.next_call(cx.waker()) {
            self.queue(Reply { head, ..Reply::default() });
            moved = true;
        }
        while let Poll::Ready(Some((reply, charge))) = Pin::new(&mut self.waiting).poll_next(cx) {
            self.bytes_under_way -= charge.map_or(0, |charge| charge.bytes);
            self.queue(reply);
            moved = true;
        }
        if self.tasks > 0 {
            self.finished.waker.register(cx.waker());
            let list = std::mem::take(&mut *self.finished.list.lock());
            for (reply, charge) in list {
                self.tasks -= 1;
                self.bytes_under_way -= charge.map_or(0, |charge| charge.bytes);
                self.queue(reply.ok_or(End::Panicked)?);
                moved = true;
            }
        }
        Ok(moved)
    }

    fn queue(&mut self, reply: Reply) {
        if !self.outbox.has_buffer() {
            self.outbox.give_buffer(self.shared.buffers.take());
        }
        if let Some(scratch) = self.outbox.push(reply)
            && self.scratch.capacity() == 0
        {
            self.scratch = scratch;
        }
    }

    /// Starts the calls that have arrived completely, within the limits (`conn.bounded_reading`).
    fn start_calls(&mut self) -> Result<bool, End> {
        let mut moved = false;
        for _ in 0..STARTS_MAX {
            if !self.may_have_message || !self.may_start() {
                break;
            }
            let Some(message) = self.receiver.next()? else {
                self.may_have_message = false;
                break;
            };
            moved = true;
            (self.message_since, self.is_slow) = (None, false);
            let scratch = std::mem::take(&mut self.scratch);
            match self.session.next(message, scratch) {
                Next::Reply(reply) => self.queue(reply),
                Next::Work(work) => self.start(work),
                Next::Ignore(scratch) => self.scratch = scratch,
                Next::Close => return Err(End::NotRpc),
            }
        }
        Ok(moved)
    }

    /// One connection of a client machine has the calls of all its users.
    fn name_user(&mut self) {
        let caller = self.session.caller();
        if caller != self.named {
            self.named = caller;
            self.live.traffic().set_user(&caller.map_or_else(|| "nobody".to_owned(), |uid| uid.to_string()));
        }
    }

    /// Polls a call once where it is; what does not finish goes on elsewhere.
    fn start(&mut self, work: Work) {
        let (bytes, deserves_task) = (work.data_bytes(), work.deserves_task());
        if bytes > 0 {
            self.name_user();
        }
        let run = traffic::of(Arc::clone(self.live.traffic()), work.run());
        let mut future = match self.slot.take() {
            Some(mut slot) => {
                slot.set(run);
                slot
            }
            None => ReusableBoxFuture::new(run),
        };
        // The budget of cooperative scheduling is for the connection's own turns; a call that is not
        // ready is polled again by whoever takes it over, so nobody needs to be woken for this poll.
        let mut once = Context::from_waker(Waker::noop());
        let polled = Pin::new(&mut tokio::task::coop::unconstrained(&mut future)).poll(&mut once);
        if let Poll::Ready(reply) = polled {
            self.slot = Some(future);
            return self.queue(reply);
        }
        let charge = (bytes > 0).then(|| Charge::new(&self.shared, bytes));
        self.bytes_under_way += bytes;
        if deserves_task {
            self.tasks += 1;
            let report = Report { to: Arc::clone(&self.finished), charge, reply: None };
            self.tracker.spawn(async move { report.finish(future.await) });
        } else {
            self.waiting.push(Waiting { future, charge });
        }
    }

    fn write(&mut self, cx: &mut Context<'_>) -> Result<bool, End> {
        let mut moved = false;
        while !self.outbox.is_empty() {
            match self.outbox.poll_write(&mut self.wr, cx) {
                Poll::Ready(written) => written?,
                Poll::Pending => break,
            };
            moved = true;
        }
        if moved || self.outbox.is_empty() {
            self.written_at = None;
        }
        Ok(moved)
    }

    fn read(&mut self, cx: &mut Context<'_>) -> Result<bool, End> {
        if self.input_ended || self.may_have_message || !self.may_start() {
            return Ok(false);
        }
        if !self.meter(cx)? {
            return Ok(false);
        }
        if !self.receiver.has_buffer() {
            self.receiver.give_buffer(self.shared.buffers.take());
        }
        match self.receiver.poll_fill(&mut self.rd, cx) {
            Poll::Pending => return Ok(false),
            Poll::Ready(received) => match received? {
                0 => self.input_ended = true,
                _ => self.may_have_message = true,
            },
        }
        Ok(true)
    }

    /// Once an export has admitted the client it is no stranger. Its machine may have too many connections
    /// (`parties.fair_part`).
    fn admit(&mut self) -> Result<(), End> {
        if self.session.is_admitted()
            && let Some((stranger, _)) = self.stranger.take()
        {
            let open = self.shared.stats.connections_open.load(Relaxed) as usize;
            let machine = Party::of(None, self.session.peer().ip());
            let place = stranger.enters(&self.shared.parties, machine, None, open, || false);
            self.place = Some(place.ok_or(End::MakesRoom)?);
            self.receiver.trust();
            self.borrower = Some(stranger.becomes_known());
            self.metered_bytes = 0;
        }
        Ok(())
    }

    /// Reports what the present message holds (`conn.partial_is_metered`). `false`: there is no room to read on.
    fn meter(&mut self, cx: &mut Context<'_>) -> Result<bool, End> {
        self.admit()?;
        let bytes = self.receiver.held_bytes();
        if bytes == self.metered_bytes {
            return Ok(true);
        }
        let has_room = match (&self.stranger, &self.borrower) {
            (Some((stranger, _)), _) if stranger.meter().holds(IDLE_BYTES + bytes) => true,
            (None, Some(borrower)) if self.is_slow && borrower.meter().holds(bytes) => true,
            (None, Some(borrower)) if !self.is_slow => borrower.meter().borrows(bytes, cx.waker()),
            _ => return Err(End::MakesRoom),
        };
        if has_room {
            self.metered_bytes = bytes;
        }
        Ok(has_room)
    }

    /// Gives back the buffers of an idle connection (`conn.idle_holds_nothing`).
    fn rest(&mut self) {
        if let Some(buf) = self.receiver.take_buffer() {
            self.shared.buffers.give(buf);
        }
        if let Some(buf) = self.outbox.take_buffer() {
            self.shared.buffers.give(buf);
        }
    }

    fn check_shutdown(&mut self, cx: &mut Context<'_>) {
        if !self.input_ended && self.shutdown.as_mut().poll(cx).is_ready() {
            self.input_ended = true;
            self.may_have_message = false;
            cx.waker().wake_by_ref();
        }
    }

    /// Ends a connection that stalls (`conn.stall_ends_it`) or that no export has admitted
    /// (`conn.strangers_end`).
    fn check_stall(&mut self, cx: &mut Context<'_>) -> Result<(), End> {
        let receiving = !self.receiver.is_idle() && !self.may_have_message && !self.input_ended && self.may_start();
        if !receiving {
            self.message_since = None;
        }
        self.admit()?;
        let admitted_by = self.stranger.as_ref().map(|(_, until)| *until);
        if !receiving && self.outbox.is_empty() && admitted_by.is_none() {
            self.timer = None;
            return Ok(());
        }
        let now = Instant::now();
        if receiving {
            self.message_since.get_or_insert(now);
        }
        if !self.outbox.is_empty() {
            self.written_at.get_or_insert(now);
        }
        let slow_from = self.message_since.filter(|_| self.borrower.is_some() && !self.is_slow);
        let slow_from = slow_from.map(|since| since + SLOW_TIME);
        if slow_from.is_some_and(|from| from <= now) {
            (self.is_slow, self.metered_bytes) = (true, usize::MAX);
            self.meter(cx)?;
            // It may have waited for room.
            cx.waker().wake_by_ref();
        }
        let slow_from = slow_from.filter(|_| !self.is_slow);
        let since = self.message_since.into_iter().chain(self.written_at).min();
        let moves_by = since.map(|since| since + STALL_MAX);
        if moves_by.is_some_and(|by| by <= now) {
            return Err(End::Stalled);
        }
        if admitted_by.is_some_and(|by| by <= now) {
            return Err(End::Stranger);
        }
        let Some(deadline) = moves_by.into_iter().chain(admitted_by).chain(slow_from).min() else { return Ok(()) };
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline)));
        while timer.as_mut().poll(cx).is_ready() {
            timer.as_mut().reset(deadline);
        }
        Ok(())
    }

    /// Lets the calls that wait for their group commit go on without the connection
    /// (`conn.calls_finish`).
    fn finish_waiting(&mut self) {
        let mut waiting = std::mem::take(&mut self.waiting);
        if !waiting.is_empty() {
            self.tracker.spawn(async move { while waiting.next().await.is_some() {} });
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.rest();
    }
}
