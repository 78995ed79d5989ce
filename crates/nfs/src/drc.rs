//! The duplicate request cache: a call that must not be carried out twice is answered from memory when
//! a client that lost our reply (or its connection) sends it again.
//!
//! - `drc.call_identity`: the client's address and port, the xid, the procedure, the caller and the
//!   arguments identify a call. A client that wants its retries recognised after a reconnect keeps
//!   its port, as kernels do. Another port means another client: many programs number their calls
//!   alike at each start, and the answer to one of them is wrong for the next. That call is carried
//!   out; at worst it gets EXIST or NOENT for its own earlier change.
//! - `drc.duplicate_waits`: a duplicate of a call under way waits for the call's reply and does not
//!   run.
//! - `drc.bounded_answers`: the cache holds at most [`ENTRIES_MAX`] answers of at most
//!   [`REPLY_BYTES_MAX`] each, and forgets them after [`AGE_MAX`]. The connections' limits bound
//!   the calls under way, which are never forgotten.
//! - `drc.no_reply_no_trace`: a call that ends without a reply (its future was dropped) leaves no
//!   trace. A duplicate that waited for it runs.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
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
    client: SocketAddr,
    xid: u32,
    sum: u64,
}

impl Key {
    /// `caller` and `args` as they came, `proc_num` as in the call. Of equal calls the tails are
    /// cut alike.
    pub fn new(client: SocketAddr, xid: u32, proc_num: u32, caller: &[u8], args: &[u8], tail: &[Bytes]) -> Self {
        let sum = checksum(seed(caller, u64::from(proc_num)), args);
        Self { client, xid, sum: tail.iter().fold(sum, |sum, chunk| checksum(sum, chunk)) }
    }
}

enum State {
    /// With those who wait for the outcome.
    Running(Vec<oneshot::Sender<Bytes>>),
    Done(Bytes, Instant),
}

impl State {
    fn is_done_since(&self, when: Instant) -> bool {
        matches!(self, State::Done(_, since) if *since == when)
    }
}

#[derive(Default)]
struct Shard {
    entries: HashMap<Key, State>,
    /// Answers in the order in which they came.
    done: VecDeque<(Key, Instant)>,
}

#[derive(Default)]
pub struct Cache {
    shards: [Mutex<Shard>; SHARDS],
}

/// The way to handle a call.
pub enum Begin<'a> {
    /// It is new: carry it out, then [`Ticket::finish`].
    Run(Ticket<'a>),
    /// It was answered so before.
    Replay(Bytes),
    /// It is under way: the answer comes through here, or the sender is dropped and it is to be begun again.
    Wait(oneshot::Receiver<Bytes>),
}

/// The duty to report the outcome of a call.
pub struct Ticket<'a> {
    cache: &'a Cache,
    key: Key,
}

impl Cache {
    pub fn begin(&self, key: Key) -> Begin<'_> {
        let mut shard = self.shard(&key).lock();
        match shard.entries.get_mut(&key) {
            Some(State::Running(waiting)) => {
                let (sender, receiver) = oneshot::channel();
                waiting.push(sender);
                return Begin::Wait(receiver);
            }
            Some(State::Done(reply, when)) if when.elapsed() < AGE_MAX => return Begin::Replay(reply.clone()),
            Some(State::Done(..)) | None => {}
        }
        shard.entries.insert(key, State::Running(Vec::new()));
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
        if let State::Running(waiting) = std::mem::replace(entry, State::Done(reply.clone(), now)) {
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
        if shard.entries.get(&self.key).is_some_and(|entry| matches!(entry, State::Running(_))) {
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
        from_port(1000, xid)
    }

    fn from_port(port: u16, xid: u32) -> Key {
        Key::new(([127, 0, 0, 1], port).into(), xid, 8, b"me", b"args", &[])
    }

    #[test]
    fn a_retry_gets_the_first_answer() {
        let cache = Cache::default();
        let Begin::Run(ticket) = cache.begin(key(1)) else { panic!("new") };
        let Begin::Wait(mut waiting) = cache.begin(key(1)) else { panic!("under way") };
        ticket.finish(b"reply");
        assert_eq!(&waiting.try_recv().unwrap()[..], b"reply");
        let Begin::Replay(reply) = cache.begin(key(1)) else { panic!("done") };
        assert_eq!(&reply[..], b"reply");
        assert!(matches!(cache.begin(key(2)), Begin::Run(_)));
        let other = Key::new(([127, 0, 0, 1], 1000).into(), 1, 8, b"me", b"argz", &[]);
        assert!(matches!(cache.begin(other), Begin::Run(_)));
    }

    #[test]
    fn a_call_from_another_port_is_another_call() {
        let cache = Cache::default();
        let Begin::Run(first) = cache.begin(key(1)) else { panic!("new") };
        let Begin::Run(beside) = cache.begin(from_port(1001, 1)) else { panic!("another client's, under way") };
        first.finish(b"reply");
        beside.finish(b"other");
        let Begin::Replay(reply) = cache.begin(key(1)) else { panic!("the first one's") };
        assert_eq!(&reply[..], b"reply");
        let Begin::Replay(reply) = cache.begin(from_port(1001, 1)) else { panic!("its own") };
        assert_eq!(&reply[..], b"other");
        assert!(matches!(cache.begin(from_port(1002, 1)), Begin::Run(_)), "another client's, later");
    }

    #[test]
    fn a_dropped_call_leaves_no_trace() {
        let cache = Cache::default();
        let Begin::Run(ticket) = cache.begin(key(1)) else { panic!("new") };
        let Begin::Wait(mut waiting) = cache.begin(key(1)) else { panic!("under way") };
        drop(ticket);
        assert_eq!(waiting.try_recv(), Err(oneshot::error::TryRecvError::Closed));
        assert!(matches!(cache.begin(key(1)), Begin::Run(_)));
    }

    #[test]
    fn memory_is_bounded() {
        let cache = Cache::default();
        for xid in 0..(ENTRIES_MAX as u32 * 3) {
            let Begin::Run(ticket) = cache.begin(key(xid)) else { panic!("new") };
            ticket.finish(&[0; 100]);
        }
        let entries: usize = cache.shards.iter().map(|shard| shard.lock().entries.len()).sum();
        let order: usize = cache.shards.iter().map(|shard| shard.lock().done.len()).sum();
        assert_eq!(entries, order);
        assert!(entries <= ENTRIES_MAX);
        assert!(matches!(cache.begin(key(ENTRIES_MAX as u32 * 3 - 1)), Begin::Replay(_)));
    }
}
