//! Calls of the server to a client, over the connection that the client has made (RFC 8881 2.10.3.1).
//!
//! - `backchannel.bounded`: a connection carries [`CALLS_MAX`] calls at a time. A further one fails at once and is
//!   sent later.
//! - `backchannel.ends_with_connection`: the end of the connection ends the waits for answers, with nothing.

use std::collections::{HashMap, VecDeque};
use std::task::Waker;

use bytes::Bytes;
use futures::task::AtomicWaker;
use parking_lot::Mutex;
use tokio::sync::oneshot;

/// Calls of one connection that wait to be sent or answered. A session has one at a time.
const CALLS_MAX: usize = 64;

#[derive(Default)]
struct Calls {
    to_send: VecDeque<Vec<u8>>,
    awaited: HashMap<u32, oneshot::Sender<Bytes>>,
    xid: u32,
    is_closed: bool,
}

/// The way back over one connection.
#[derive(Default)]
pub struct BackChannel {
    calls: Mutex<Calls>,
    waker: AtomicWaker,
}

impl BackChannel {
    /// Queues a call, which `encode` makes for its xid. The answer comes whole, from its xid on; an error if the
    /// connection ends.
    pub fn call(&self, encode: impl FnOnce(u32) -> Vec<u8>) -> Option<oneshot::Receiver<Bytes>> {
        let mut calls = self.calls.lock();
        calls.awaited.retain(|_, answer| !answer.is_closed());
        if calls.is_closed || calls.awaited.len() >= CALLS_MAX || calls.to_send.len() >= CALLS_MAX {
            return None;
        }
        calls.xid = calls.xid.wrapping_add(1);
        let xid = calls.xid;
        let (answer, receiver) = oneshot::channel();
        calls.to_send.push_back(encode(xid));
        calls.awaited.insert(xid, answer);
        drop(calls);
        self.waker.wake();
        Some(receiver)
    }

    /// The next call to be written, with its record mark. `waker` hears of a later one.
    pub fn next(&self, waker: &Waker) -> Option<Vec<u8>> {
        self.waker.register(waker);
        self.calls.lock().to_send.pop_front()
    }

    /// A reply has come. One that nobody awaits is ignored.
    pub fn answered(&self, reply: &Bytes) {
        let Some(xid) = reply.first_chunk::<4>().map(|xid| u32::from_be_bytes(*xid)) else { return };
        if let Some(answer) = self.calls.lock().awaited.remove(&xid) {
            let _ = answer.send(Bytes::copy_from_slice(reply));
        }
    }

    /// `backchannel.ends_with_connection`
    pub fn close(&self) {
        let mut calls = self.calls.lock();
        calls.is_closed = true;
        calls.awaited.clear();
        calls.to_send.clear();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn reply(xid: u32) -> Bytes {
        Bytes::copy_from_slice(&[&xid.to_be_bytes()[..], b"answer"].concat())
    }

    #[test]
    fn an_answer_finds_its_call() {
        let back = BackChannel::default();
        let mut first = back.call(|xid| xid.to_be_bytes().to_vec()).unwrap();
        let mut second = back.call(|xid| xid.to_be_bytes().to_vec()).unwrap();
        assert_eq!(back.next(Waker::noop()), Some(vec![0, 0, 0, 1]));
        assert_eq!(back.next(Waker::noop()), Some(vec![0, 0, 0, 2]));
        assert_eq!(back.next(Waker::noop()), None);
        back.answered(&reply(9));
        back.answered(&reply(2));
        assert_eq!(second.try_recv().unwrap(), reply(2));
        assert!(first.try_recv().is_err());
        back.close();
        assert!(matches!(first.try_recv(), Err(oneshot::error::TryRecvError::Closed)));
        assert!(back.call(|_| Vec::new()).is_none());
    }

    #[test]
    fn it_is_bounded() {
        let back = BackChannel::default();
        let kept: Vec<_> = (0..CALLS_MAX).map(|_| back.call(|_| Vec::new()).unwrap()).collect();
        assert!(back.call(|_| Vec::new()).is_none());
        drop(kept);
        while back.next(Waker::noop()).is_some() {}
        assert!(back.call(|_| Vec::new()).is_some(), "nobody waits for the former answers");
    }
}
