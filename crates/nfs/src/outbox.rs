//! Replies on their way to the socket: one queue of bytes per connection, written with vectored I/O.
//!
//! Small replies are copied behind each other into one buffer, so that a batch of them is one
//! segment of one system call; data read from a file is queued as the chunks in which the cache
//! holds it.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::AsyncWrite;

use super::record::BUFFER_BYTES;
use super::xdr::padding;

/// A reply without data up to this size is copied; a larger one becomes a segment of its own.
const COPY_BYTES_MAX: usize = 8 << 10;
/// Segments handed to the kernel at once: a MiB that lies in blocks of a pool.
const SLICES_MAX: usize = 256;

/// An answer: its encoded bytes with the record mark set, and file data that follows them.
#[derive(Debug, Default)]
pub struct Reply {
    pub head: Vec<u8>,
    pub data: Vec<Bytes>,
    pub data_bytes: usize,
}

impl Reply {
    pub fn len(&self) -> usize {
        self.head.len() + self.data_bytes + padding(self.data_bytes)
    }
}

#[derive(Default)]
pub struct Outbox {
    segments: VecDeque<Bytes>,
    tail: BytesMut,
    len: usize,
}

impl Outbox {
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Queues `reply`. Returns its head for another use where it was copied.
    pub fn push(&mut self, mut reply: Reply) -> Option<Vec<u8>> {
        self.len += reply.len();
        if reply.data.is_empty() && reply.head.len() > COPY_BYTES_MAX {
            self.cut();
            self.segments.push_back(reply.head.into());
            return None;
        }
        self.tail.extend_from_slice(&reply.head);
        if reply.data_bytes > 0 {
            self.cut();
            self.segments.extend(reply.data.into_iter().filter(|chunk| !chunk.is_empty()));
            let pad = padding(reply.data_bytes);
            self.tail.extend_from_slice([0; 4].get(..pad).unwrap_or_default());
        }
        reply.head.clear();
        Some(reply.head)
    }

    fn cut(&mut self) {
        if !self.tail.is_empty() {
            self.segments.push_back(self.tail.split().freeze());
        }
    }

    /// Writes once; ready with the number of bytes that the kernel took.
    pub fn poll_write<W: AsyncWrite + Unpin>(
        &mut self,
        socket: &mut W,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        let mut slices = [IoSlice::new(&[]); SLICES_MAX];
        let mut used = 0;
        let queued = self.segments.iter().map(|segment| segment.as_ref()).chain([self.tail.as_ref()]);
        for (slice, bytes) in slices.iter_mut().zip(queued) {
            *slice = IoSlice::new(bytes);
            used += 1;
        }
        let written = ready!(Pin::new(socket).poll_write_vectored(cx, slices.get(..used).unwrap_or_default()))?;
        if written == 0 {
            return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
        }
        self.advance(written);
        Poll::Ready(Ok(written))
    }

    fn advance(&mut self, mut written: usize) {
        self.len = self.len.saturating_sub(written);
        while let Some(front) = self.segments.front_mut() {
            if front.len() > written {
                front.advance(written);
                return;
            }
            written -= front.len();
            self.segments.pop_front();
        }
        self.tail.advance(written.min(self.tail.len()));
    }

    pub fn has_buffer(&self) -> bool {
        self.tail.capacity() != 0
    }

    pub fn give_buffer(&mut self, buf: BytesMut) {
        self.tail = buf;
    }

    /// The buffer of small replies, when nothing is queued.
    pub fn take_buffer(&mut self) -> Option<BytesMut> {
        (self.is_empty() && self.tail.try_reclaim(BUFFER_BYTES)).then(|| std::mem::take(&mut self.tail))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// Takes at most `step` bytes per write.
    struct Slow {
        step: usize,
        got: Vec<u8>,
    }

    impl AsyncWrite for Slow {
        fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
            let n = buf.len().min(self.step);
            self.got.extend_from_slice(buf.get(..n).unwrap());
            Poll::Ready(Ok(n))
        }
        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[test]
    fn order_is_kept_however_the_socket_takes_it() {
        for step in [1, 3, 1000, 1 << 20] {
            let mut outbox = Outbox::default();
            let mut want = Vec::new();
            for i in 0..200u8 {
                let head = vec![i; if i % 50 == 7 { COPY_BYTES_MAX + 4 } else { 28 }];
                let data: Vec<Bytes> =
                    if i % 3 == 0 { vec![vec![i; 5].into(), Bytes::new(), vec![i; 8].into()] } else { vec![] };
                want.extend_from_slice(&head);
                data.iter().for_each(|chunk| want.extend_from_slice(chunk));
                want.resize(want.len() + if data.is_empty() { 0 } else { 3 }, 0);
                let data_bytes = data.iter().map(Bytes::len).sum();
                outbox.push(Reply { head, data, data_bytes });
            }
            assert_eq!(outbox.len(), want.len());
            let mut socket = Slow { step, got: Vec::new() };
            let mut cx = Context::from_waker(std::task::Waker::noop());
            while !outbox.is_empty() {
                assert!(outbox.poll_write(&mut socket, &mut cx).is_ready());
            }
            assert!(socket.got == want, "step {step}");
        }
    }
}
