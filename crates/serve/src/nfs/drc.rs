//! The duplicate request cache: a call that must not be carried out twice is answered from memory when
//! a client that lost our reply (or its connection) sends it again.
//!
//! D1. A call is known by client address, xid, procedure, caller and arguments; the port is not part
//!     of it, because a retry after a reconnect comes from another one. But a reconnect comes after the call: what
//!     comes over a connection that was there before is another client of that machine, which counts alike.
//! D2. While the first is still under way, a duplicate waits for its reply instead of running.
//! D3. Bounded: at most [`ENTRIES_MAX`] answers of at most [`REPLY_BYTES_MAX`] each, forgotten after [`AGE_MAX`].
//!     Calls under way are bounded by the connections' limits and are never forgotten.
//! D4. A call that ends without a reply (its future was dropped) leaves no trace; whoever waited runs it.
//! D5. Programs that begin to count anew at each start send what looks like a retry. An answer given over another
//!     connection is therefore told again only where what it says can still be seen (`Call::stands`); where it is not, that connection's
//!     calls are its own from then on ([`Origin::counts_anew`]).

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use larder_base::checksum::{checksum, seed};

pub const ENTRIES_MAX: usize = 8192;
pub const REPLY_BYTES_MAX: usize = 1024;
pub const AGE_MAX: Duration = Duration::from_secs(120);
const SHARDS: usize = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    client: IpAddr,
    xid: u32,
    sum: u64,
    /// The connection, for a call that is known by it as well (D1, D5).
    apart: Option<u64>,
}

impl Key {
    /// `caller` and `args` as they came, `proc_num` as in the call.
    pub fn new(client: IpAddr, xid: u32, proc_num: u32, caller: &[u8], args: &[u8], tail: Option<&[u8]>) -> Self {
        let sum = checksum(seed(caller, u64::from(proc_num)), args);
        Self { client, xid, sum: tail.map_or(sum, |tail| checksum(sum, tail)), apart: None }
    }
}

/// The connection that a call came over. They are numbered as they are opened.
#[derive(Debug, Default)]
pub struct Origin {
    number: u64,
    anew: AtomicBool,
}

impl Origin {
    /// D5: no call of other connections is one of this.
    pub fn counts_anew(&self) {
        self.anew.store(true, Relaxed);
    }
}

struct Entry {
    /// The connection it came over, and the newest one there was then.
    origin: u64,
    newest: u64,
    state: State,
}

enum State {
    /// With those who wait for the outcome.
    Running(Vec<oneshot::Sender<Bytes>>),
    Done(Bytes, Instant),
}

impl Entry {
    /// D1
    fn may_be_retried_by(&self, origin: &Origin) -> bool {
        self.origin == origin.number || (origin.number > self.newest && !origin.anew.load(Relaxed))
    }

    fn is_done_since(&self, when: Instant) -> bool {
        matches!(self.state, State::Done(_, since) if since == when)
    }
}

#[derive(Default)]
struct Shard {
    entries: HashMap<Key, Entry>,
    /// Answers in the order in which they came.
    done: VecDeque<(Key, Instant)>,
}

#[derive(Default)]
pub struct Cache {
    shards: [Mutex<Shard>; SHARDS],
    /// Connections so far.
    origins: AtomicU64,
}

/// What to do with a call.
pub enum Begin<'a> {
    /// It is new: carry it out, then [`Ticket::finish`].
    Run(Ticket<'a>),
    /// It was answered so over this connection.
    Replay(Bytes),
    /// It was answered so over another: a retry if that answer still stands (D5).
    ReplayIfStanding(Bytes),
    /// It is under way: the answer comes through here, or the sender is dropped and it is to be begun again.
    Wait(oneshot::Receiver<Bytes>),
}

/// The duty to report the outcome of a call.
pub struct Ticket<'a> {
    cache: &'a Cache,
    key: Key,
}

impl Cache {
    /// For a new connection.
    pub fn origin(&self) -> Origin {
        Origin { number: self.origins.fetch_add(1, Relaxed) + 1, ..Origin::default() }
    }

    pub fn begin(&self, key: Key, origin: &Origin) -> Begin<'_> {
        let mut shard = self.shard(&key).lock();
        let other = shard.entries.get(&key).is_some_and(|entry| !entry.may_be_retried_by(origin));
        let key = if other { Key { apart: Some(origin.number), ..key } } else { key };
        if let Some(entry) = shard.entries.get_mut(&key) {
            match &mut entry.state {
                State::Running(waiting) => {
                    let (sender, receiver) = oneshot::channel();
                    waiting.push(sender);
                    return Begin::Wait(receiver);
                }
                State::Done(reply, when) if when.elapsed() < AGE_MAX => {
                    let reply = reply.clone();
                    let same = entry.origin == origin.number;
                    return if same { Begin::Replay(reply) } else { Begin::ReplayIfStanding(reply) };
                }
                State::Done(..) => {}
            }
        }
        let newest = self.origins.load(Relaxed);
        shard.entries.insert(key, Entry { origin: origin.number, newest, state: State::Running(Vec::new()) });
        Begin::Run(Ticket { cache: self, key })
    }

    fn shard(&self, key: &Key) -> &Mutex<Shard> {
        // The remainder is in range, whatever the key.
        let index = (key.sum ^ u64::from(key.xid)) as usize % SHARDS;
        self.shards.get(index).unwrap_or(&self.shards[0])
    }
}

impl Ticket<'_> {
    /// Remembers the reply and hands it to whoever waits for it.
    pub fn finish(self, reply: &[u8]) {
        if reply.len() > REPLY_BYTES_MAX {
            return;
        }
        let reply = Bytes::copy_from_slice(reply);
        let now = Instant::now();
        let mut shard = self.cache.shard(&self.key).lock();
        let Some(entry) = shard.entries.get_mut(&self.key) else { return };
        if let State::Running(waiting) = std::mem::replace(&mut entry.state, State::Done(reply.clone(), now)) {
            for waiter in waiting {
                // A waiter whose connection is gone needs no answer.
                let _ = waiter.send(reply.clone());
            }
        }
        shard.done.push_back((self.key, now));
        shard.forget(now);
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        let mut shard = self.cache.shard(&self.key).lock();
        if shard.entries.get(&self.key).is_some_and(|entry| matches!(entry.state, State::Running(_))) {
            shard.entries.remove(&self.key);
        }
    }
}

impl Shard {
    fn forget(&mut self, now: Instant) {
        while let Some(&(key, when)) = self.done.front() {
            if self.done.len() <= ENTRIES_MAX / SHARDS && now.duration_since(when) < AGE_MAX {
                return;
            }
            self.done.pop_front();
            // The key may have been used anew meanwhile: that entry has its own place in the queue.
            if self.entries.get(&key).is_some_and(|entry| entry.is_done_since(when)) {
                self.entries.remove(&key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;

    fn key(xid: u32) -> Key {
        Key::new(IpAddr::from([127, 0, 0, 1]), xid, 8, b"me", b"args", None)
    }

    #[test]
    fn a_retry_gets_the_first_answer() {
        let cache = Cache::default();
        let origin = cache.origin();
        let Begin::Run(ticket) = cache.begin(key(1), &origin) else { panic!("new") };
        let Begin::Wait(mut waiting) = cache.begin(key(1), &origin) else { panic!("under way") };
        ticket.finish(b"reply");
        assert_eq!(&waiting.try_recv().unwrap()[..], b"reply");
        let Begin::Replay(reply) = cache.begin(key(1), &origin) else { panic!("done") };
        assert_eq!(&reply[..], b"reply");
        assert!(matches!(cache.begin(key(2), &origin), Begin::Run(_)));
        let other = Key::new(IpAddr::from([127, 0, 0, 1]), 1, 8, b"me", b"argz", None);
        assert!(matches!(cache.begin(other, &origin), Begin::Run(_)));
    }

    #[test]
    fn a_retry_comes_over_the_same_connection_or_a_later_one() {
        let cache = Cache::default();
        let (first, beside) = (cache.origin(), cache.origin());
        let Begin::Run(ticket) = cache.begin(key(1), &first) else { panic!("new") };
        let later = cache.origin();
        let Begin::Run(own) = cache.begin(key(1), &beside) else { panic!("another client's") };
        assert!(matches!(cache.begin(key(1), &later), Begin::Wait(_)));
        ticket.finish(b"reply");
        own.finish(b"other");
        let Begin::Replay(reply) = cache.begin(key(1), &beside) else { panic!("its own") };
        assert_eq!(&reply[..], b"other");
        let Begin::ReplayIfStanding(reply) = cache.begin(key(1), &later) else { panic!("the first one's") };
        assert_eq!(&reply[..], b"reply");
        later.counts_anew();
        assert!(matches!(cache.begin(key(1), &later), Begin::Run(_)));
        assert!(matches!(cache.begin(key(1), &first), Begin::Replay(_)));
    }

    #[test]
    fn a_dropped_call_leaves_no_trace() {
        let cache = Cache::default();
        let origin = cache.origin();
        let Begin::Run(ticket) = cache.begin(key(1), &origin) else { panic!("new") };
        let Begin::Wait(mut waiting) = cache.begin(key(1), &origin) else { panic!("under way") };
        drop(ticket);
        assert_eq!(waiting.try_recv(), Err(oneshot::error::TryRecvError::Closed));
        assert!(matches!(cache.begin(key(1), &origin), Begin::Run(_)));
    }

    #[test]
    fn memory_is_bounded() {
        let cache = Cache::default();
        let origin = cache.origin();
        for xid in 0..(ENTRIES_MAX as u32 * 3) {
            let Begin::Run(ticket) = cache.begin(key(xid), &origin) else { panic!("new") };
            ticket.finish(&[0; 100]);
        }
        let entries: usize = cache.shards.iter().map(|shard| shard.lock().entries.len()).sum();
        let order: usize = cache.shards.iter().map(|shard| shard.lock().done.len()).sum();
        assert_eq!(entries, order);
        assert!(entries <= ENTRIES_MAX);
        assert!(matches!(cache.begin(key(ENTRIES_MAX as u32 * 3 - 1), &origin), Begin::Replay(_)));
    }
}
