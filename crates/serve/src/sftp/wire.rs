//! The byte stream of one connection, which can be cut from outside.
//!
//! - `wire.cut_ends_all`: reads and writes fail once the connection is cut: at a stop, when its user
//!   changes, and when nobody has logged in in time. So the session below ends wherever it waits.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, BufReader, ReadBuf};
use tokio::net::TcpStream;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

/// A packet of SSH is read in two steps. With a buffer most of them need no system call.
const READ_BUFFER_BYTES: usize = 256 << 10;

pub struct Wire {
    stream: BufReader<TcpStream>,
    cut: CancellationToken,
    waits: [Pin<Box<WaitForCancellationFutureOwned>>; 2],
}

/// The directions are polled by two wakers.
const READING: usize = 0;
const WRITING: usize = 1;

impl Wire {
    pub fn new(stream: TcpStream, cut: CancellationToken) -> Self {
        let waits = [cut.clone(), cut.clone()].map(|cut| Box::pin(cut.cancelled_owned()));
        Self { stream: BufReader::with_capacity(READ_BUFFER_BYTES, stream), cut, waits }
    }

    fn poll_cut(&mut self, direction: usize, cx: &mut Context<'_>) -> Option<io::Error> {
        let is_cut = self.cut.is_cancelled()
            || self.waits.get_mut(direction).is_some_and(|wait| wait.as_mut().poll(cx).is_ready());
        is_cut.then(|| io::ErrorKind::ConnectionAborted.into())
    }
}

impl AsyncRead for Wire {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.cut.is_cancelled() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        match Pin::new(&mut self.stream).poll_read(cx, buf) {
            Poll::Pending => self.poll_cut(READING, cx).map_or(Poll::Pending, |error| Poll::Ready(Err(error))),
            ready => ready,
        }
    }
}

impl AsyncWrite for Wire {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.cut.is_cancelled() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        match Pin::new(&mut self.stream).poll_write(cx, bytes) {
            Poll::Pending => self.poll_cut(WRITING, cx).map_or(Poll::Pending, |error| Poll::Ready(Err(error))),
            ready => ready,
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
