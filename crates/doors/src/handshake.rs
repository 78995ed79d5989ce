//! Handshakes of strangers, in turns over all doors.
//!
//! A handshake of TLS or SSH costs some 100 us of processor, and its sender nothing: it may repeat recorded bytes.
//!
//! - `handshake.in_turns`: during a handshake the bytes of a client are handed on in turns by network
//!   (`turns.one_a_network`), of which [`AT_ONCE`] run. So whoever waits behind handshakes waits for these, however many
//!   clients knock.
//! - `handshake.turn_is_work`: a turn begins when bytes are there, and ends with the next read or write. So it covers what
//!   the processor does with them, and never a wait for a client.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures::future::BoxFuture;
use larder_base::traffic::{Live, Protocol, Traffic};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::strangers::STRANGERS_MAX;
use crate::turns::{Full, Turn, Turns};

const AT_ONCE: usize = 2;
/// Doors where strangers shake hands: WebDAV, SFTP, replication, and room for one more.
const DOORS: usize = 4;

/// The turns of all doors.
pub fn turns() -> Arc<Turns> {
    Arc::new(Turns::new(AT_ONCE, DOORS * STRANGERS_MAX))
}

enum Stage {
    /// Nothing has come that was not dealt with.
    Quiet,
    Waits(BoxFuture<'static, Result<Turn, Full>>),
    Works {
        _turn: Turn,
    },
    /// The handshake is over.
    Over,
}

/// Where a handshake is. Its connection and whoever notices its end share it.
#[derive(Clone)]
pub struct Pace {
    turns: Arc<Turns>,
    address: IpAddr,
    stage: Arc<Mutex<Stage>>,
}

impl Pace {
    /// The pace of one connection from `address`.
    pub fn new(turns: Arc<Turns>, address: IpAddr) -> Self {
        Self { turns, address, stage: Arc::new(Mutex::new(Stage::Quiet)) }
    }

    /// The handshake is over: what comes now is not paced.
    pub fn end(&self) {
        *self.stage.lock() = Stage::Over;
    }

    fn is_over(&self) -> bool {
        matches!(*self.stage.lock(), Stage::Over)
    }

    /// The turn is over, if there is one.
    fn rest(&self) {
        let mut stage = self.stage.lock();
        if let Stage::Works { .. } = *stage {
            *stage = Stage::Quiet;
        }
    }

    fn poll_turn(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut stage = self.stage.lock();
        if let Stage::Quiet = *stage {
            let (turns, address) = (Arc::clone(&self.turns), self.address);
            *stage = Stage::Waits(Box::pin(async move { turns.take(address, false).await }));
        }
        let Stage::Waits(waits) = &mut *stage else { return Poll::Ready(Ok(())) };
        match ready!(waits.as_mut().poll(cx)) {
            Ok(turn) => {
                *stage = Stage::Works { _turn: turn };
                Poll::Ready(Ok(()))
            }
            Err(Full) => {
                *stage = Stage::Quiet;
                Poll::Ready(Err(io::Error::other("too many handshakes wait")))
            }
        }
    }
}

/// The socket of a stranger (`handshake.in_turns`).
pub struct Paced {
    /// Before the socket (`traffic.fd_outlived`).
    live: Option<Live>,
    stream: TcpStream,
    pace: Pace,
}

impl Paced {
    /// A socket that takes turns while its handshake lasts.
    pub fn new(stream: TcpStream, pace: Pace) -> Self {
        Self { live: None, stream, pace }
    }

    /// Lists the connection among those of clients.
    pub fn watched(mut self, protocol: Protocol, peer: SocketAddr) -> (Self, Arc<Traffic>) {
        let live = Live::begin(protocol, peer, &self.stream);
        let traffic = Arc::clone(live.traffic());
        self.live = Some(live);
        (self, traffic)
    }

    /// By which the end of the handshake is told.
    pub fn pace(&self) -> &Pace {
        &self.pace
    }
}

impl AsyncRead for Paced {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if !self.pace.is_over() {
            self.pace.rest();
            ready!(self.stream.poll_read_ready(cx))?;
            ready!(self.pace.poll_turn(cx))?;
        }
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        if read.is_pending() {
            self.pace.rest();
        }
        read
    }
}

impl AsyncWrite for Paced {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.pace.rest();
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.pace.rest();
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.pace.rest();
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.pace.rest();
        Pin::new(&mut self.stream).poll_write_vectored(cx, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    async fn pair(turns: &Arc<Turns>, last: u8) -> (TcpStream, Paced) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (socket, _) = listener.accept().await.unwrap();
        (client, Paced::new(socket, Pace::new(Arc::clone(turns), IpAddr::from([10, 0, 0, last]))))
    }

    async fn comes(paced: &mut Paced) -> bool {
        tokio::time::timeout(Duration::from_millis(100), paced.read_u8()).await.is_ok_and(|read| read.is_ok())
    }

    #[tokio::test]
    async fn a_network_has_one_turn_and_waits_for_no_client() {
        let turns = turns();
        let (_silent, mut idle) = pair(&turns, 1).await;
        let (mut one, mut first) = pair(&turns, 1).await;
        let (mut two, mut second) = pair(&turns, 1).await;
        let (mut three, mut other) = pair(&turns, 2).await;
        for client in [&mut one, &mut two, &mut three] {
            client.write_all(b"ab").await.unwrap();
        }
        assert!(!comes(&mut idle).await, "a client that says nothing has no turn");
        assert!(comes(&mut first).await);
        assert!(!comes(&mut second).await, "its network has a turn");
        assert!(comes(&mut other).await);
        // An answer ends the turn.
        first.write_all(b"x").await.unwrap();
        assert!(comes(&mut second).await);
        assert!(!comes(&mut first).await);
        // So does the end of the handshake, or of the connection.
        second.pace().end();
        assert!(comes(&mut first).await && comes(&mut second).await);
        drop(first);
        assert!(comes(&mut other).await);
        let (mut four, mut fourth) = pair(&turns, 1).await;
        four.write_all(b"a").await.unwrap();
        assert!(comes(&mut fourth).await);
    }
}
