//! ONC RPC over one TCP connection (RFC 5531), any number of calls in flight.
//!
//! A call encodes its arguments, puts them into the queue of what is to be sent and waits in a slot. Two tasks live
//! beside the calls: one writes what is queued, all calls of a turn in one system call, the other reads and wakes
//! the slots. Payloads are sent from the pool of contents and checked in the receive buffer: neither is copied.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::AsyncReadExt;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinHandle;

use super::proto::COMMIT;
use super::records::{Begin, Receiver, Records};
use super::xdr::{Reader, Short, Writer};
use crate::client::contents::{Contents, mix};
use crate::client::error::{ClientError, Outcome};
use crate::client::outbox::{Outbox, send_all};
use crate::client::patience::{FLUSH_TIME_MAX, REPLY_TIME_MAX, reply_within};

const RECEIVE_BYTES: usize = 256 << 10;
const CONNECT_TIME_MAX: Duration = Duration::from_secs(10);
/// Servers take calls of AUTH_SYS from privileged ports only, unless told otherwise.
const PRIVILEGED_PORTS: std::ops::Range<u16> = 600..1023;
const VERIFIER_BYTES_MAX: usize = 400;

/// The data that a READ should find.
pub(super) struct Expected {
    pub contents: Arc<Contents>,
    pub file: u64,
    pub offset: u64,
    pub len: u32,
}

/// The results of a call, behind the RPC header.
pub(super) enum Answer {
    Body(Vec<u8>),
    Data { count: u32, first_wrong: Option<u64> },
}

enum State {
    Free,
    Waiting(Option<Waker>),
    Done(Outcome<Answer>),
}

struct Slot {
    xid: u32,
    state: State,
    expected: Option<Expected>,
}

/// A READ whose data is coming in.
struct Incoming {
    slot: usize,
    at: u64,
    left: u32,
    count: u32,
    first_wrong: Option<u64>,
}

#[derive(Default)]
struct Shared {
    slots: Vec<Slot>,
    free: Vec<usize>,
    waiting: HashMap<u32, usize>,
    xid: u32,
    outbox: Outbox,
    incoming: Option<Incoming>,
    broken: Option<ClientError>,
    what: String,
}

pub(super) struct Connection {
    shared: Rc<RefCell<Shared>>,
    credential: Vec<u8>,
    tasks: [JoinHandle<()>; 2],
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// AUTH_SYS (RFC 5531 appendix A): stamp, machine, user, group, further groups.
fn credential(uid: u32, gid: u32) -> Vec<u8> {
    let mut body = Writer(Vec::new());
    body.u32(1);
    body.opaque(b"larder");
    body.u32(uid);
    body.u32(gid);
    body.u32(0);
    let mut all = Writer(Vec::new());
    all.u32(1);
    all.opaque(&body.0);
    // AUTH_NONE as the verifier.
    all.u32(0);
    all.u32(0);
    all.0
}

/// A server answers a number that it has seen with the reply that it gave then: connections must not begin alike.
fn first_xid() -> u32 {
    let now = std::time::UNIX_EPOCH.elapsed().unwrap_or_default();
    let salt = std::process::id() ^ now.as_secs() as u32;
    (mix(u64::from(salt) << 32 ^ now.as_nanos() as u64) >> 32) as u32
}

pub(super) async fn resolve(host: &str, port: u16) -> Outcome<SocketAddr> {
    let failed = |reason: String| ClientError::Unreachable {
        address: host.to_owned(),
        reason,
        way_out: "check the name, or give the address in numbers".into(),
    };
    let found = tokio::time::timeout(CONNECT_TIME_MAX, tokio::net::lookup_host((host, port))).await;
    let mut found =
        found.map_err(|_| failed("the name server does not answer".into()))?.map_err(|e| failed(e.to_string()))?;
    found.next().ok_or_else(|| failed("the name has no address".into()))
}

async fn connect(address: SocketAddr) -> std::io::Result<TcpStream> {
    let begin = PRIVILEGED_PORTS.start + (std::process::id() % 400) as u16;
    for port in (begin..PRIVILEGED_PORTS.end).chain(PRIVILEGED_PORTS.start..begin).rev() {
        let (socket, own): (_, SocketAddr) = match address {
            SocketAddr::V4(_) => (TcpSocket::new_v4()?, (Ipv4Addr::UNSPECIFIED, port).into()),
            SocketAddr::V6(_) => (TcpSocket::new_v6()?, (Ipv6Addr::UNSPECIFIED, port).into()),
        };
        use std::io::ErrorKind::*;
        match socket.bind(own) {
            Err(e) if e.kind() == AddrInUse => continue,
            Err(_) => break,
            Ok(()) => {}
        }
        match socket.connect(address).await {
            Err(e) if matches!(e.kind(), AddrInUse | AddrNotAvailable) => continue,
            outcome => return outcome,
        }
    }
    TcpStream::connect(address).await
}

impl Connection {
    /// Must be called within a `LocalSet`.
    pub async fn open(address: SocketAddr, uid: u32, gid: u32) -> Outcome<Self> {
        let timed_out = || std::io::Error::from(std::io::ErrorKind::TimedOut);
        let stream =
            tokio::time::timeout(CONNECT_TIME_MAX, connect(address)).await.unwrap_or_else(|_| Err(timed_out()));
        let stream = stream.map_err(|e| ClientError::unreachable(address.to_string(), &e))?;
        stream.set_nodelay(true).map_err(|e| ClientError::unreachable(address.to_string(), &e))?;
        let (read, write) = stream.into_split();
        let shared = Shared { what: address.to_string(), xid: first_xid(), ..Shared::default() };
        let shared = Rc::new(RefCell::new(shared));
        let tasks = [
            tokio::task::spawn_local(receive(shared.clone(), read)),
            tokio::task::spawn_local(send(shared.clone(), write)),
        ];
        Ok(Self { shared, credential: credential(uid, gid), tasks })
    }

    /// The reply is waited for so long and no longer.
    pub async fn call(
        &self,
        program: (u32, u32),
        procedure: u32,
        arguments: impl FnOnce(&mut Writer),
        payload: &[Bytes],
        expected: Option<Expected>,
    ) -> Outcome<Answer> {
        let call = self.begin(program, procedure, arguments, payload, expected);
        let time_max = if procedure == COMMIT { FLUSH_TIME_MAX } else { REPLY_TIME_MAX };
        let what = self.shared.borrow().what.clone();
        reply_within(time_max, &what, call).await
    }

    /// `payload` belongs to the arguments: it is sent behind them, with its padding.
    fn begin(
        &self,
        program: (u32, u32),
        procedure: u32,
        arguments: impl FnOnce(&mut Writer),
        payload: &[Bytes],
        expected: Option<Expected>,
    ) -> Call {
        let shared = &mut *self.shared.borrow_mut();
        let slot = shared.take_slot(expected);
        let mut writer = Writer(Vec::with_capacity(256));
        writer.u32(0);
        // RFC 5531 9: xid, CALL, RPC version 2, program, version, procedure, credential, verifier.
        for word in [shared.slots[slot].xid, 0, 2, program.0, program.1, procedure] {
            writer.u32(word);
        }
        writer.0.extend_from_slice(&self.credential);
        arguments(&mut writer);
        let payload_bytes: usize = payload.iter().map(Bytes::len).sum();
        let padding = payload_bytes.next_multiple_of(4) - payload_bytes;
        let mark = 1 << 31 | (writer.0.len() - 4 + payload_bytes + padding) as u32;
        writer.0[..4].copy_from_slice(&mark.to_be_bytes());
        let padding = Bytes::from_static(&[0; 3]).slice(..padding);
        let padding = (!padding.is_empty()).then_some(padding);
        shared.outbox.push(std::iter::once(writer.0.into()).chain(payload.iter().cloned()).chain(padding));
        Call { shared: self.shared.clone(), slot, done: false }
    }
}

impl Shared {
    fn take_slot(&mut self, expected: Option<Expected>) -> usize {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot { xid: 0, state: State::Free, expected: None });
            self.slots.len() - 1
        });
        self.xid = self.xid.wrapping_add(1);
        let xid = self.xid;
        self.waiting.insert(xid, slot);
        self.slots[slot] = Slot { xid, state: State::Waiting(None), expected };
        slot
    }

    /// The slot that waits for this reply.
    fn slot_of(&self, xid: u32) -> Option<usize> {
        self.waiting.get(&xid).copied()
    }

    fn complete(&mut self, slot: usize, outcome: Outcome<Answer>) {
        let Some(slot) = self.slots.get_mut(slot) else { return };
        self.waiting.remove(&slot.xid);
        if let State::Waiting(waker) = std::mem::replace(&mut slot.state, State::Done(outcome))
            && let Some(waker) = waker
        {
            waker.wake();
        }
    }

    fn fail_all(&mut self, error: ClientError) {
        for slot in 0..self.slots.len() {
            if matches!(self.slots[slot].state, State::Waiting(_)) {
                self.complete(slot, Err(error.clone()));
            }
        }
        self.broken = Some(error);
    }
}

/// The reply to one call. Dropped, its slot is free and a late reply is ignored.
struct Call {
    shared: Rc<RefCell<Shared>>,
    slot: usize,
    done: bool,
}

impl Future for Call {
    type Output = Outcome<Answer>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let slot = self.slot;
        let mut shared = self.shared.borrow_mut();
        if let Some(error) = &shared.broken
            && !matches!(shared.slots[slot].state, State::Done(_))
        {
            return Poll::Ready(Err(error.clone()));
        }
        match std::mem::replace(&mut shared.slots[slot].state, State::Free) {
            State::Done(outcome) => {
                shared.slots[slot].expected = None;
                shared.free.push(slot);
                drop(shared);
                self.done = true;
                Poll::Ready(outcome)
            }
            _ => {
                shared.slots[slot].state = State::Waiting(Some(cx.waker().clone()));
                Poll::Pending
            }
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if self.done {
            return;
        }
        let mut shared = self.shared.borrow_mut();
        let slot = self.slot;
        if let Some(slot) = shared.slots.get_mut(slot) {
            slot.state = State::Free;
            let xid = slot.xid;
            shared.waiting.remove(&xid);
        }
        // Data that is coming in for it goes nowhere.
        if shared.incoming.as_ref().is_none_or(|incoming| incoming.slot != slot) {
            shared.free.push(slot);
        }
    }
}

async fn send(shared: Rc<RefCell<Shared>>, mut write: OwnedWriteHalf) {
    let mut batch: VecDeque<Bytes> = VecDeque::new();
    loop {
        std::future::poll_fn(|cx| shared.borrow_mut().outbox.poll_take(&mut batch, cx)).await;
        if let Err(error) = send_all(&mut batch, &mut write).await {
            let what = shared.borrow().what.clone();
            shared.borrow_mut().fail_all(ClientError::lost(what, error));
            return;
        }
    }
}

async fn receive(shared: Rc<RefCell<Shared>>, mut read: OwnedReadHalf) {
    let mut buffer = vec![0; RECEIVE_BYTES];
    let mut records = Records::default();
    let what = shared.borrow().what.clone();
    let error = loop {
        match read.read(&mut buffer).await {
            Ok(0) => break ClientError::lost(what, "the server closed it"),
            Ok(n) => {
                if let Err(error) = records.feed(&buffer[..n], &mut *shared.borrow_mut()) {
                    break ClientError::protocol(what, error);
                }
            }
            Err(error) => break ClientError::lost(what, error),
        }
    };
    shared.borrow_mut().fail_all(error);
}

/// RFC 5531 9: who is answered, and where the results begin.
fn header(reply: &[u8]) -> Result<(u32, Result<usize, String>), Short> {
    let mut r = Reader(reply);
    let xid = r.u32()?;
    if r.u32()? != 1 {
        return Err(Short);
    }
    if r.flag()? {
        let reason = match r.u32()? {
            0 => "it speaks another version of RPC".to_owned(),
            _ => format!("it does not accept our credentials (auth status {})", r.u32()?),
        };
        return Ok((xid, Err(reason)));
    }
    r.u32()?;
    r.opaque(VERIFIER_BYTES_MAX)?;
    let outcome = match r.u32()? {
        0 => Ok(reply.len() - r.0.len()),
        1 => Err("the program does not run there".to_owned()),
        2 => Err("it has another version of the program only".to_owned()),
        3 => Err("it does not know the procedure".to_owned()),
        4 => Err("it did not understand the arguments".to_owned()),
        status => Err(format!("it had an error of its own (accept status {status})")),
    };
    Ok((xid, outcome))
}

/// RFC 1813 3.3.6: READ3resok up to the data. (count, where the data begins)
fn read_header(reply: &[u8], results: usize) -> Result<Option<(u32, usize)>, Short> {
    let mut r = Reader(reply.get(results..).ok_or(Short)?);
    if r.u32()? != 0 {
        return Ok(None);
    }
    if r.flag()? {
        r.take(84)?;
    }
    let (count, _eof, len) = (r.u32()?, r.flag()?, r.u32()?);
    Ok(Some((count.min(len), reply.len() - r.0.len())))
}

impl Receiver for Shared {
    fn begin(&mut self, head: &[u8]) -> Begin {
        let Ok((xid, outcome)) = header(head) else { return Begin::Skip };
        let Some(slot) = self.slot_of(xid) else { return Begin::Skip };
        let (Ok(results), Some(expected)) = (outcome, &self.slots[slot].expected) else { return Begin::Keep };
        match read_header(head, results) {
            Ok(Some((count, from))) if count <= expected.len => {
                self.incoming = Some(Incoming { slot, at: expected.offset, left: count, count, first_wrong: None });
                Begin::Pass { from }
            }
            _ => Begin::Keep,
        }
    }

    fn piece(&mut self, data: &[u8]) {
        let Some(incoming) = &mut self.incoming else { return };
        // The rest is padding.
        let data = &data[..data.len().min(incoming.left as usize)];
        let expected = self.slots.get(incoming.slot).and_then(|slot| slot.expected.as_ref());
        if let Some(expected) = expected
            && incoming.first_wrong.is_none()
        {
            incoming.first_wrong = expected.contents.first_wrong(expected.file, incoming.at, data);
        }
        incoming.at += data.len() as u64;
        incoming.left -= data.len() as u32;
    }

    fn end(&mut self, kept: &[u8]) {
        if let Some(incoming) = self.incoming.take() {
            return match self.slots.get(incoming.slot).map(|slot| &slot.state) {
                Some(State::Free) => self.free.push(incoming.slot),
                _ => {
                    let Incoming { slot, left, count, first_wrong, .. } = incoming;
                    let short = || ClientError::protocol(self.what.clone(), "a READ has less data than it says");
                    let outcome = if left == 0 { Ok(Answer::Data { count, first_wrong }) } else { Err(short()) };
                    self.complete(slot, outcome);
                }
            };
        }
        let Ok((xid, outcome)) = header(kept) else { return };
        let Some(slot) = self.slot_of(xid) else { return };
        let outcome = match outcome {
            Ok(results) => Ok(Answer::Body(kept.get(results..).unwrap_or_default().to_vec())),
            Err(reason) => Err(ClientError::protocol(self.what.clone(), reason)),
        };
        self.complete(slot, outcome);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(xid: u32, words: &[u32], tail: &[u8]) -> Vec<u8> {
        let mut w = Writer(Vec::new());
        w.u32(xid);
        words.iter().for_each(|word| w.u32(*word));
        w.0.extend_from_slice(tail);
        w.0
    }

    #[test]
    fn replies_of_all_kinds() {
        let accepted = [1, 0, 0, 0, 0];
        assert_eq!(header(&reply(9, &accepted, b"abcd")), Ok((9, Ok(24))));
        assert!(matches!(header(&reply(9, &[1, 0, 0, 0, 1], b"")), Ok((9, Err(_)))));
        assert!(matches!(header(&reply(9, &[1, 1, 1, 5], b"")), Ok((9, Err(why))) if why.contains("credentials")));
        for cut in 0..24 {
            assert!(header(&reply(9, &accepted, b"")[..cut]).is_err(), "{cut}");
        }
        assert!(header(&reply(9, &[0, 0, 0, 0, 0], b"")).is_err(), "a call is no reply");
        assert!(header(&reply(9, &[1, 0, 0, 4000, 0], b"")).is_err(), "a verifier without bytes");
    }

    #[test]
    fn data_is_checked_as_it_comes_and_lengths_are_not_believed() {
        let contents = Arc::new(Contents::new(1, false, true));
        let mut shared = Shared::default();
        let ask = |shared: &mut Shared, len: u32| {
            let expected = Expected { contents: contents.clone(), file: 0, offset: 4096, len };
            let slot = shared.take_slot(Some(expected));
            (slot, shared.slots[slot].xid)
        };
        let data = contents.copy(0, 0, 4096, 3000);
        let answer = |xid, count: u32, data: &[u8]| {
            let mut record = reply(xid, &[1, 0, 0, 0, 0, 0, 0, count, 1, count], data);
            record.splice(0..0, (1 << 31 | record.len() as u32).to_be_bytes());
            record
        };
        let (slot, xid) = ask(&mut shared, 3000);
        Records::default().feed(&answer(xid, 3000, &data), &mut shared).unwrap();
        assert!(matches!(shared.slots[slot].state, State::Done(Ok(Answer::Data { count: 3000, first_wrong: None }))));

        let (slot, xid) = ask(&mut shared, 3000);
        Records::default().feed(&answer(xid, 3000, &data[..2000]), &mut shared).unwrap();
        assert!(matches!(shared.slots[slot].state, State::Done(Err(ClientError::Protocol { .. }))));

        let (slot, xid) = ask(&mut shared, 1000);
        Records::default().feed(&answer(xid, 3000, &data), &mut shared).unwrap();
        assert!(matches!(shared.slots[slot].state, State::Done(Ok(Answer::Body(_)))), "more than was asked for");

        let (slot, xid) = ask(&mut shared, 3000);
        let mut wrong = data.clone();
        wrong[2047] ^= 1;
        Records::default().feed(&answer(xid, 3000, &wrong), &mut shared).unwrap();
        assert!(matches!(shared.slots[slot].state, State::Done(Ok(Answer::Data { first_wrong: Some(_), .. }))));
        // One that nobody waits for changes nothing.
        Records::default().feed(&answer(xid ^ 1 << 20, 3000, &data), &mut shared).unwrap();
        assert!(shared.incoming.is_none());
    }
}
