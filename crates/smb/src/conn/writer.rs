//! Per-connection writer task: adds the transport length prefix and writes
//! responses to the socket.

use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::admission::Room;
use larder_smb_wire::framing::{FRAME_HEADER_LEN, Message, frame_header};
use tokio::io::{AsyncWriteExt, WriteHalf};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tracing::{debug, error, warn};

/// Responses one connection may have waiting for the writer.
pub const WRITER_CHANNEL: usize = 64;

/// Bytes of responses one connection may have waiting for the writer. A
/// larger response waits until the queue is empty.
pub const QUEUED_RESPONSE_BYTES: usize = 4 * 1024 * 1024;

/// Bytes of unsolicited messages, such as lease breaks, one connection may
/// have waiting for the writer. They never wait for room, so this bound is
/// separate from the response limits.
pub const QUEUED_NOTICE_BYTES: usize = 1024 * 1024;

/// One message to send: the final SMB2 header and body, *with signing
/// already applied if required*, and its share of the queue limits.
pub struct FramePayload {
    message: Message,
    _budget: Option<OwnedSemaphorePermit>,
    _slot: Option<OwnedSemaphorePermit>,
    _notice: Option<NoticeBytes>,
    _room: Option<Room>,
}

/// Bytes of a queued unsolicited message, given back when it leaves the
/// queue.
struct NoticeBytes {
    queued: Arc<AtomicUsize>,
    len: usize,
}

impl Drop for NoticeBytes {
    fn drop(&mut self) {
        self.queued.fetch_sub(self.len, Ordering::AcqRel);
    }
}

/// Why an unsolicited message was not queued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoticeError {
    /// [`QUEUED_NOTICE_BYTES`] are already waiting: the client has not read
    /// for a long time.
    Full,
    /// The writer is gone.
    Closed,
}

/// Sending side of the response queue. Responses and unsolicited messages
/// share one queue, so they reach the socket in the order they were queued.
#[derive(Clone)]
pub struct ResponseQueue {
    tx: mpsc::UnboundedSender<FramePayload>,
    budget: Arc<Semaphore>,
    slots: Arc<Semaphore>,
    notices: Arc<AtomicUsize>,
}

/// Receiving side of the response queue, owned by the writer. Dropping it
/// wakes a reader waiting for queue space. The writer stops once every
/// [`ResponseQueue`] is dropped.
pub struct ResponseReceiver {
    rx: mpsc::UnboundedReceiver<FramePayload>,
    budget: Arc<Semaphore>,
    slots: Arc<Semaphore>,
}

/// Response queue bounded by [`WRITER_CHANNEL`] responses and
/// [`QUEUED_RESPONSE_BYTES`] bytes, plus [`QUEUED_NOTICE_BYTES`] of
/// unsolicited messages.
pub fn response_queue() -> (ResponseQueue, ResponseReceiver) {
    let (tx, rx) = mpsc::unbounded_channel();
    let budget = Arc::new(Semaphore::new(QUEUED_RESPONSE_BYTES));
    let slots = Arc::new(Semaphore::new(WRITER_CHANNEL));
    (
        ResponseQueue { tx, budget: budget.clone(), slots: slots.clone(), notices: Arc::default() },
        ResponseReceiver { rx, budget, slots },
    )
}

impl ResponseQueue {
    /// Queues a response, waiting while the queue is full. Fails once the
    /// writer is gone.
    pub async fn send(&self, message: impl Into<Message>) -> Result<(), ()> {
        self.send_keeping(message.into(), None).await
    }

    /// [`ResponseQueue::send`], with the room that the response takes until it has left.
    pub(crate) async fn send_keeping(&self, message: Message, room: Option<Room>) -> Result<(), ()> {
        let slot = self.slots.clone().acquire_owned().await.map_err(|_| ())?;
        let cost = message.len().clamp(1, QUEUED_RESPONSE_BYTES) as u32;
        let budget = self.budget.clone().acquire_many_owned(cost).await.map_err(|_| ())?;
        let payload = FramePayload { message, _budget: Some(budget), _slot: Some(slot), _notice: None, _room: room };
        self.tx.send(payload).map_err(|_| ())
    }

    /// Queues an unsolicited message without waiting.
    pub fn try_send_notice(&self, bytes: Vec<u8>) -> Result<(), NoticeError> {
        let len = bytes.len();
        self.notices
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |queued| {
                (queued + len <= QUEUED_NOTICE_BYTES).then_some(queued + len)
            })
            .map_err(|_| NoticeError::Full)?;
        let notice = NoticeBytes { queued: Arc::clone(&self.notices), len };
        self.tx
            .send(FramePayload {
                message: bytes.into(),
                _budget: None,
                _slot: None,
                _notice: Some(notice),
                _room: None,
            })
            .map_err(|_| NoticeError::Closed)
    }

    /// Resolves once the writer is gone.
    pub async fn closed(&self) {
        self.tx.closed().await;
    }
}

#[cfg(test)]
impl ResponseReceiver {
    /// The next queued message, if one is waiting.
    pub(crate) fn try_recv(&mut self) -> Option<Vec<u8>> {
        self.rx.try_recv().ok().map(|payload| payload.message.head.clone())
    }

    /// The next queued message, waiting for one.
    pub(crate) async fn recv(&mut self) -> Option<Vec<u8>> {
        self.rx.recv().await.map(|payload| payload.message.head.clone())
    }
}

impl Drop for ResponseReceiver {
    fn drop(&mut self) {
        self.budget.close();
        self.slots.close();
    }
}

/// Bytes of waiting messages after which no more join the one being sent.
const BATCH_BYTES: usize = 128 * 1024;

/// Most messages sent at once: with their prefixes and heads, and few
/// pieces of bulk data each, within what one system call takes.
const BATCH_MESSAGES: usize = 32;

/// Writes the responses in order, those that wait together at once, giving
/// up on the connection when that takes longer than `io_timeout`.
pub async fn writer_task(mut writer: WriteHalf<TcpStream>, mut queue: ResponseReceiver, io_timeout: Duration) {
    let mut batch = Vec::with_capacity(BATCH_MESSAGES);
    while let Some(payload) = queue.rx.recv().await {
        let mut len = payload.message.len();
        batch.push(payload);
        while len < BATCH_BYTES
            && batch.len() < BATCH_MESSAGES
            && let Ok(payload) = queue.rx.try_recv()
        {
            len += payload.message.len();
            batch.push(payload);
        }
        let sent = write_frames(&mut writer, &batch);
        match tokio::time::timeout(io_timeout, sent).await {
            Ok(Ok(())) => debug!(len, frames = batch.len(), "wrote frames"),
            Ok(Err(e)) if e.kind() == std::io::ErrorKind::InvalidData => {
                error!(error = %e, "cannot frame response; closing connection");
                return;
            }
            Ok(Err(e)) => {
                debug!(error = %e, "writer task: socket write failed");
                return;
            }
            Err(_) => {
                warn!(len, "responses not sent in time; closing connection");
                return;
            }
        }
        batch.clear();
    }
    // Channel closed: flush and bail.
    if let Err(e) = writer.shutdown().await {
        debug!(error = %e, "writer shutdown error (best-effort)");
    }
}

/// Writes frames, prefixes and pieces, from where they lie.
async fn write_frames(writer: &mut WriteHalf<TcpStream>, frames: &[FramePayload]) -> std::io::Result<()> {
    let mut prefixes = Vec::<[u8; FRAME_HEADER_LEN]>::with_capacity(frames.len());
    for frame in frames {
        let prefix = frame_header(frame.message.len())
            .map_err(|e| std::io::Error::new(std::io::ErrorKind::InvalidData, e.to_string()))?;
        prefixes.push(prefix);
    }
    let mut slices: Vec<IoSlice<'_>> = prefixes
        .iter()
        .zip(frames)
        .flat_map(|(prefix, frame)| std::iter::once(&prefix[..]).chain(frame.message.pieces()))
        .filter(|piece| !piece.is_empty())
        .map(IoSlice::new)
        .collect();
    let mut left = &mut slices[..];
    while !left.is_empty() {
        let n = writer.write_vectored(left).await?;
        if n == 0 {
            return Err(std::io::ErrorKind::WriteZero.into());
        }
        IoSlice::advance_slices(&mut left, n);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn notices_bypass_the_response_limits_and_keep_queue_order() {
        let (tx, mut rx) = response_queue();
        for n in 0..WRITER_CHANNEL {
            tx.send(vec![n as u8]).await.unwrap();
        }
        let blocked = tokio::time::timeout(Duration::from_millis(10), tx.send(vec![0xEE])).await;
        assert!(blocked.is_err(), "the response limit holds");
        tx.try_send_notice(vec![0xAA]).unwrap();
        for n in 0..WRITER_CHANNEL {
            assert_eq!(rx.rx.recv().await.unwrap().message.head, [n as u8]);
        }
        assert_eq!(rx.rx.recv().await.unwrap().message.head, [0xAA]);
    }

    #[tokio::test]
    async fn notices_stop_at_their_byte_limit() {
        let (tx, mut rx) = response_queue();
        tx.try_send_notice(vec![0; QUEUED_NOTICE_BYTES - 10]).unwrap();
        assert_eq!(tx.try_send_notice(vec![0; 11]), Err(NoticeError::Full));
        tx.try_send_notice(vec![0; 10]).unwrap();
        drop(rx.rx.recv().await.unwrap());
        tx.try_send_notice(vec![0; 11]).unwrap();
        drop(rx);
        assert_eq!(tx.try_send_notice(vec![0]), Err(NoticeError::Closed));
        assert!(tx.send(vec![0]).await.is_err());
    }
}
