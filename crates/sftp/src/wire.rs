//! The byte stream of one connection, which can be cut from outside.
//!
//! - `wire.cut_ends_all`: reads and writes fail once the connection is cut: at a stop, when its user
//!   changes, and when nobody has logged in in time. So the session below ends wherever it waits.
//! - `wire.strangers_send_little`: before a login a connection may send [`STRANGER_BYTES_MAX`], its buffer is
//!   small, and it counts as holding a packet of the greatest length as soon as it has sent anything
//!   (`strangers.one_budget`). The session makes room for a packet by the length that the packet names.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, BufReader, ReadBuf};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use larder_doors::handshake::Paced;
use larder_doors::strangers::Meter;

/// A packet of SSH is read in two steps. With a buffer most of them need no system call.
const READ_BUFFER_BYTES: usize = 256 << 10;
const STRANGER_BUFFER_BYTES: usize = 8 << 10;
/// A key exchange takes 3 KiB, and each of six tries a key or certificate of some KiB.
const STRANGER_BYTES_MAX: usize = 128 << 10;
/// The session, its task and its buffers, before the client has sent anything.
const IDLE_BYTES: usize = 32 << 10;
/// The same with a packet of the greatest length that the session takes, 256 KiB.
const PACKET_BYTES: usize = IDLE_BYTES + (256 << 10);

pub struct Wire {
    /// `None` only while it is exchanged.
    stream: Option<BufReader<Paced>>,
    cut: CancellationToken,
    waits: [Pin<Box<WaitForCancellationFutureOwned>>; 2],
    /// Until somebody has logged in.
    stranger: Option<Unknown>,
}

/// What a stranger has sent.
struct Unknown {
    known: CancellationToken,
    meter: Meter,
    bytes: usize,
}

impl Unknown {
    fn add(&mut self, bytes: usize) -> io::Result<()> {
        let is_first = self.bytes == 0;
        self.bytes += bytes;
        if self.bytes > STRANGER_BYTES_MAX {
            return Err(io::Error::new(io::ErrorKind::QuotaExceeded, "too much came without a login"));
        }
        if is_first && !self.meter.holds(PACKET_BYTES) {
            return Err(io::Error::new(io::ErrorKind::QuotaExceeded, "connections without a login hold too much"));
        }
        Ok(())
    }
}

/// The directions are polled by two wakers.
const READING: usize = 0;
const WRITING: usize = 1;

impl Wire {
    pub fn new(stream: Paced, cut: CancellationToken, known: CancellationToken, meter: Meter) -> Self {
        let waits = [cut.clone(), cut.clone()].map(|cut| Box::pin(cut.cancelled_owned()));
        if !meter.holds(IDLE_BYTES) {
            cut.cancel();
        }
        let stranger = Some(Unknown { known, meter, bytes: 0 });
        Self { stream: Some(BufReader::with_capacity(STRANGER_BUFFER_BYTES, stream)), cut, waits, stranger }
    }

    fn poll_cut(&mut self, direction: usize, cx: &mut Context<'_>) -> Option<io::Error> {
        let is_cut = self.cut.is_cancelled()
            || self.waits.get_mut(direction).is_some_and(|wait| wait.as_mut().poll(cx).is_ready());
        is_cut.then(|| io::ErrorKind::ConnectionAborted.into())
    }

    fn stream(&mut self) -> io::Result<Pin<&mut BufReader<Paced>>> {
        self.stream.as_mut().map(Pin::new).ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    /// Somebody has logged in: the buffer is as large as it should be, once it is empty.
    fn widen(&mut self) {
        if self.stranger.as_ref().is_some_and(|stranger| stranger.known.is_cancelled())
            && let Some(stream) = self.stream.take_if(|stream| stream.buffer().is_empty())
        {
            self.stranger = None;
            self.stream = Some(BufReader::with_capacity(READ_BUFFER_BYTES, stream.into_inner()));
        }
    }
}

impl AsyncRead for Wire {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.cut.is_cancelled() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        self.widen();
        let before = buf.filled().len();
        match self.stream()?.poll_read(cx, buf) {
            Poll::Pending => self.poll_cut(READING, cx).map_or(Poll::Pending, |error| Poll::Ready(Err(error))),
            Poll::Ready(done) => {
                let bytes = buf.filled().len() - before;
                let counted = match &mut self.stranger {
                    Some(stranger) if !stranger.known.is_cancelled() => stranger.add(bytes),
                    _ => Ok(()),
                };
                Poll::Ready(done.and(counted))
            }
        }
    }
}

impl AsyncWrite for Wire {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.stream()?.poll_write(cx, bytes) {
            Poll::Pending => self.poll_cut(WRITING, cx).map_or(Poll::Pending, |error| Poll::Ready(Err(error))),
            ready => ready,
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream()?.poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream()?.poll_shutdown(cx)
    }
}
