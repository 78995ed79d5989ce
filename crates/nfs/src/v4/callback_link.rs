//! The server's own connection to a client of NFSv4.0, over which it calls that client (RFC 7530 3.3, 16.33).
//!
//! - `link.same_machine`: the address that a client gives is connected to only if it is the one that the client calls from:
//!   nobody makes this server call others.
//! - `link.probed`: a client is called back, and given delegations, once it has answered CB_NULL over the connection. A
//!   connection that ends is made again as long as the client has delegations, and when it confirms itself again.
//! - `link.ends_with_client`: the sweeper closes the links of clients that are gone.

use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Notify;

use super::super::rpc::{LAST_FRAGMENT, call_with, reply_results};
use super::back_channel::BackChannel;
use super::callback::{CbArgOp, CbCompound};
use super::clients::CallbackPath;
use super::compound::NO_TAG;
use super::recalls::{CB_COMPOUND, CB_VERSION};
use super::types::AuthSysParms;
use super::wire::{Opaque, Xdr, XdrList, XdrOut};

const CB_NULL: u32 = 0;
/// To connect, and for the answer to CB_NULL.
const PROBE_MAX: Duration = Duration::from_secs(5);
/// Between tries to reach a client that has delegations.
const AGAIN_AFTER: Duration = Duration::from_secs(5);
/// An answer to a call-back of ours has two operations without data.
const ANSWER_BYTES_MAX: usize = 4096;

/// The way back to one client.
pub struct CallbackLink {
    path: CallbackPath,
    address: SocketAddr,
    /// The connection, once it was probed.
    up: Mutex<Option<Arc<BackChannel>>>,
    closed: Notify,
    is_closed: std::sync::atomic::AtomicBool,
}

/// A universal address of TCP (RFC 5665 5.2.3).
fn parse(netid: &[u8], address: &[u8]) -> Option<SocketAddr> {
    let text = std::str::from_utf8(address).ok()?;
    let (rest, low) = text.rsplit_once('.')?;
    let (host, high) = rest.rsplit_once('.')?;
    let port = u16::from(high.parse::<u8>().ok()?) << 8 | u16::from(low.parse::<u8>().ok()?);
    let ip = match netid {
        b"tcp" => IpAddr::V4(host.parse::<Ipv4Addr>().ok()?),
        b"tcp6" => IpAddr::V6(host.parse::<Ipv6Addr>().ok()?).to_canonical(),
        _ => return None,
    };
    (port != 0).then_some(SocketAddr::new(ip, port))
}

impl CallbackLink {
    /// `None` where the client gave no address of its own (`link.same_machine`).
    pub fn new(path: &CallbackPath, caller: IpAddr) -> Option<Arc<Self>> {
        let address = parse(&path.netid, &path.address).filter(|address| address.ip() == caller.to_canonical())?;
        Some(Arc::new(Self {
            path: path.clone(),
            address,
            up: Mutex::default(),
            closed: Notify::new(),
            is_closed: std::sync::atomic::AtomicBool::new(false),
        }))
    }

    pub fn is_up(&self) -> bool {
        self.up.lock().is_some()
    }

    pub fn is_to(&self, path: &CallbackPath) -> bool {
        self.path == *path
    }

    /// Ends the connection and its tries.
    pub fn close(&self) {
        self.is_closed.store(true, std::sync::atomic::Ordering::Release);
        self.closed.notify_one();
    }

    /// Queues a call with one operation. The answer is `None`'s where there is no connection.
    pub fn call(&self, op: CbArgOp<'_>) -> Option<tokio::sync::oneshot::Receiver<Bytes>> {
        let back = self.up.lock().clone()?;
        back.call(|xid| {
            let mut out = XdrOut::default();
            CbCompound { tag: NO_TAG, minor: 0, ident: self.path.ident, ops: XdrList::of(&[op]) }.put(&mut out);
            self.encode(xid, CB_COMPOUND, &out.into_bytes())
        })
    }

    /// Linux answers CB_COMPOUND to AUTH_SYS alone.
    fn encode(&self, xid: u32, procedure: u32, args: &[u8]) -> Vec<u8> {
        let parms = AuthSysParms { stamp: 0, machine: Opaque(b"larder"), uid: 0, gid: 0, gids: XdrList::of(&[]) };
        let mut cred = XdrOut::default();
        parms.put(&mut cred);
        call_with(xid, (self.path.program, CB_VERSION, procedure), Some(&cred.into_bytes()), args)
    }

    /// Connects, until the link is closed or `is_needed` says no after an end. `changed` hears of a connection that is up or
    /// has ended.
    pub async fn serve(&self, is_needed: impl Fn() -> bool, changed: impl Fn()) {
        let connections = async {
            loop {
                let back = Arc::<BackChannel>::default();
                let connected = tokio::time::timeout(PROBE_MAX, TcpStream::connect(self.address)).await;
                if let Ok(Ok(stream)) = connected {
                    tokio::select! {
                        ended = carry(stream, &back) => drop::<io::Result<()>>(ended),
                        () = self.probe(&back, &changed) => {}
                    }
                }
                back.close();
                *self.up.lock() = None;
                changed();
                if !is_needed() {
                    return;
                }
                tokio::time::sleep(AGAIN_AFTER).await;
            }
        };
        if self.is_closed.load(std::sync::atomic::Ordering::Acquire) {
            return;
        }
        tokio::select! {
            () = connections => {}
            () = self.closed.notified() => {}
        }
        if let Some(back) = self.up.lock().take() {
            back.close();
        }
    }

    /// Ends if the client does not answer, and never if it does (`link.probed`).
    async fn probe(&self, back: &Arc<BackChannel>, changed: &impl Fn()) {
        let Some(answer) = back.call(|xid| self.encode(xid, CB_NULL, &[])) else { return };
        let answer = tokio::time::timeout(PROBE_MAX, answer).await;
        let is_there = answer.ok().and_then(Result::ok).is_some_and(|reply| reply_results(&reply).is_some());
        if is_there {
            *self.up.lock() = Some(Arc::clone(back));
            changed();
            std::future::pending::<()>().await;
        }
    }
}

/// Sends what is queued and takes what is answered, until the connection ends.
async fn carry(stream: TcpStream, back: &BackChannel) -> io::Result<()> {
    let (mut from, mut to) = stream.into_split();
    let sending = async {
        let next = |waker: &std::task::Waker| back.next(waker).map_or(Poll::Pending, |call| Poll::Ready(Some(call)));
        while let Some(call) = poll_fn(|cx| next(cx.waker())).await {
            to.write_all(&call).await?;
        }
        Ok::<(), io::Error>(())
    };
    let receiving = async {
        loop {
            let mark = from.read_u32().await?;
            let bytes = usize::try_from(mark & !LAST_FRAGMENT).unwrap_or(usize::MAX);
            if mark & LAST_FRAGMENT == 0 || bytes > ANSWER_BYTES_MAX {
                return Err::<(), io::Error>(io::ErrorKind::InvalidData.into());
            }
            let mut answer = vec![0; bytes];
            from.read_exact(&mut answer).await?;
            back.answered(&answer.into());
        }
    };
    tokio::try_join!(sending, receiving).map(|_| ())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]
    use super::super::callback::CbRecallArgs;
    use super::super::stateids;
    use super::*;

    fn path(netid: &str, address: &str) -> CallbackPath {
        let bytes = |text: &str| text.as_bytes().into();
        CallbackPath { program: 0x4000_0000, netid: bytes(netid), address: bytes(address), ident: 7 }
    }

    #[test]
    fn universal_addresses() {
        let cases = [
            ("tcp", "10.1.2.3.4.1", Some("10.1.2.3:1025")),
            ("tcp6", "::1.0.111", Some("[::1]:111")),
            ("tcp6", "::ffff:10.1.2.3.4.1", Some("10.1.2.3:1025")),
            ("udp", "10.1.2.3.4.1", None),
            ("tcp", "10.1.2.3.4", None),
            ("tcp", "10.1.2.3.0.0", None),
            ("tcp", "10.1.2.3.256.1", None),
            ("tcp", "", None),
        ];
        for (netid, address, wanted) in cases {
            let wanted = wanted.map(|text| text.parse::<SocketAddr>().unwrap());
            assert_eq!(parse(netid.as_bytes(), address.as_bytes()), wanted, "{netid} {address}");
        }
    }

    #[test]
    fn nobody_makes_the_server_call_others() {
        let there = "10.1.2.3".parse().unwrap();
        assert!(CallbackLink::new(&path("tcp", "10.1.2.3.4.1"), there).is_some());
        assert!(CallbackLink::new(&path("tcp", "10.1.2.4.4.1"), there).is_none());
        assert!(CallbackLink::new(&path("tcp", "10.1.2.3.4.1"), "::ffff:10.1.2.3".parse().unwrap()).is_some());
    }

    async fn read_call(stream: &mut TcpStream) -> Vec<u8> {
        let bytes = stream.read_u32().await.unwrap() & !LAST_FRAGMENT;
        let mut call = vec![0; bytes as usize];
        stream.read_exact(&mut call).await.unwrap();
        call
    }

    async fn accept(stream: &mut TcpStream, call: &[u8], results: &[u8]) {
        let reply = [&call[..4], &[0, 0, 0, 1], &[0; 16], results].concat();
        stream.write_u32(LAST_FRAGMENT | u32::try_from(reply.len()).unwrap()).await.unwrap();
        stream.write_all(&reply).await.unwrap();
    }

    #[tokio::test]
    async fn a_client_is_probed_called_and_called_again() {
        let client = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = client.local_addr().unwrap().port();
        let address = format!("127.0.0.1.{}.{}", port >> 8, port & 0xff);
        let link = CallbackLink::new(&path("tcp", &address), "127.0.0.1".parse().unwrap()).unwrap();
        let changed = Arc::new(Notify::new());
        let (served, heard) = (Arc::clone(&link), Arc::clone(&changed));
        let serving = tokio::spawn(async move { served.serve(|| true, || heard.notify_one()).await });
        let (mut stream, _) = client.accept().await.unwrap();
        let null = read_call(&mut stream).await;
        assert_eq!(null[20..24], [0; 4], "CB_NULL");
        let recall =
            CbArgOp::Recall(CbRecallArgs { stateid: stateids::ANONYMOUS, truncate: false, handle: Opaque(b"h") });
        assert!(!link.is_up() && link.call(recall).is_none(), "it has not answered");
        accept(&mut stream, &null, &[]).await;
        changed.notified().await;
        assert!(link.is_up());
        let answer = link.call(recall).unwrap();
        let call = read_call(&mut stream).await;
        assert_eq!(call[20..28], [0, 0, 0, 1, 0, 0, 0, 1], "CB_COMPOUND with AUTH_SYS");
        accept(&mut stream, &call, b"done").await;
        assert_eq!(reply_results(&answer.await.unwrap()), Some(&b"done"[..]));
        drop(stream);
        changed.notified().await;
        assert!(!link.is_up());
        link.close();
        serving.await.unwrap();
    }
}
