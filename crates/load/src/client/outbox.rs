//! Bytes on their way to a socket: all that several callers queue in one turn goes out in one
//! system call.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use tokio::io::AsyncWriteExt;
use tokio::net::tcp::OwnedWriteHalf;

const IOV_MAX: usize = 64;

#[derive(Default)]
pub(super) struct Outbox {
    queue: VecDeque<Bytes>,
    writer: Option<Waker>,
}

impl Outbox {
    pub fn push(&mut self, pieces: impl IntoIterator<Item = Bytes>) {
        self.queue.extend(pieces);
        if let Some(writer) = self.writer.take() {
            writer.wake();
        }
    }

    /// Everything that is queued, into an empty `batch`.
    pub fn poll_take(&mut self, batch: &mut VecDeque<Bytes>, cx: &mut Context<'_>) -> Poll<()> {
        if self.queue.is_empty() {
            self.writer = Some(cx.waker().clone());
            return Poll::Pending;
        }
        std::mem::swap(batch, &mut self.queue);
        Poll::Ready(())
    }
}

pub(super) async fn send_all(batch: &mut VecDeque<Bytes>, write: &mut OwnedWriteHalf) -> std::io::Result<()> {
    while !batch.is_empty() {
        let mut slices = [IoSlice::new(&[]); IOV_MAX];
        let mut count = 0;
        for (slice, bytes) in slices.iter_mut().zip(batch.iter()) {
            *slice = IoSlice::new(bytes);
            count += 1;
        }
        let mut sent = write.write_vectored(&slices[..count]).await?;
        if sent == 0 {
            return Err(std::io::ErrorKind::WriteZero.into());
        }
        while let Some(first) = batch.front_mut() {
            if sent < first.len() {
                bytes::Buf::advance(first, sent);
                break;
            }
            sent -= first.len();
            batch.pop_front();
        }
    }
    Ok(())
}
