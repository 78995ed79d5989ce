//! A connection's way out for messages other connections raise, such as
//! lease breaks: queued without waiting, never holding the writer open.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use tokio::sync::Notify;

use crate::conn::writer::{NoticeError, ResponseQueue};
use crate::files::Punctual;
use larder_smb_wire::crypto::SessionCipher;

/// Unsolicited-message handle of one connection. File state refers to it
/// only weakly, and [`Outbound::close`] drops its queue, so neither keeps
/// the writer running after the reader is done.
#[derive(Default)]
pub(crate) struct Outbound {
    /// Never held across an await.
    queue: Mutex<Option<ResponseQueue>>,
    killed: Notify,
    is_killed: AtomicBool,
    is_mac: AtomicBool,
    client: OnceLock<Arc<Punctual>>,
}

impl Outbound {
    /// Starts sending through `queue`.
    pub(crate) fn attach(&self, queue: ResponseQueue) {
        *self.queue.lock().unwrap_or_else(PoisonError::into_inner) = Some(queue);
    }

    /// Stops sending, so the writer can finish once the reader has.
    pub(crate) fn close(&self) {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    /// Queues an unsolicited message without waiting.
    pub(crate) fn try_send_notice(&self, bytes: Vec<u8>) -> Result<(), NoticeError> {
        match &*self.queue.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(queue) => queue.try_send_notice(bytes),
            None => Err(NoticeError::Closed),
        }
    }

    /// The queue of responses, until the connection ends. A task holds it only while it sends.
    pub(crate) fn queue(&self) -> Option<ResponseQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Who is at the other end (`lease.late_once`).
    pub(crate) fn set_client(&self, client: Punctual) {
        let _ = self.client.set(Arc::new(client));
    }

    /// The client has sent Apple's create context.
    pub(crate) fn set_mac(&self) {
        self.is_mac.store(true, Ordering::Relaxed);
    }

    /// Whether the client has sent Apple's create context.
    pub(crate) fn is_mac(&self) -> bool {
        self.is_mac.load(Ordering::Relaxed)
    }

    /// Ends the connection: its reader stops at the next frame boundary.
    pub(crate) fn kill(&self) {
        self.is_killed.store(true, Ordering::Release);
        self.killed.notify_waiters();
    }

    /// Resolves once [`Outbound::kill`] has been called.
    pub(crate) async fn killed(&self) {
        loop {
            let notified = self.killed.notified();
            tokio::pin!(notified);
            notified.as_mut().enable();
            if self.is_killed.load(Ordering::Acquire) {
                return;
            }
            notified.await;
        }
    }
}

/// The connections of a session, as ways out for its notifications.
pub(crate) trait SessionOutbounds: Send + Sync {
    /// Of the connections that are there and not about to close.
    fn live_outbounds(&self) -> Vec<Arc<Outbound>>;
}

/// Where the break notifications of an open go: to its connection, encrypted
/// when its session or share is (MS-SMB2 3.3.4.1.4).
#[derive(Clone, Default)]
pub(crate) struct Notified {
    outbound: Weak<Outbound>,
    /// The session's connections: another takes what the first no longer does.
    channels: Option<Weak<dyn SessionOutbounds>>,
    /// The session and its keys.
    cipher: Option<(u64, Arc<SessionCipher>)>,
    client: Option<Arc<Punctual>>,
}

impl Notified {
    pub(crate) fn new(outbound: &Arc<Outbound>, cipher: Option<(u64, Arc<SessionCipher>)>) -> Self {
        Self { outbound: Arc::downgrade(outbound), channels: None, cipher, client: outbound.client.get().cloned() }
    }

    /// As `self`, and through another of `channels` where that fails.
    pub(crate) fn or_through(self, channels: &Arc<impl SessionOutbounds + 'static>) -> Self {
        let channels = Arc::downgrade(channels);
        Self { channels: Some(channels), ..self }
    }

    fn others(&self) -> Vec<Arc<Outbound>> {
        let channels = self.channels.as_ref().and_then(Weak::upgrade);
        channels.map(|channels| channels.live_outbounds()).unwrap_or_default()
    }

    /// Whether both are the same connection and, if encrypted, session.
    pub(crate) fn same(&self, other: &Self) -> bool {
        let session = |n: &Self| n.cipher.as_ref().map(|(id, _)| *id);
        self.outbound.ptr_eq(&other.outbound) && session(self) == session(other)
    }

    /// Whether the connection is still there.
    pub(crate) fn is_alive(&self) -> bool {
        self.outbound.strong_count() > 0 || !self.others().is_empty()
    }

    /// Whether the connection is there and a Mac's.
    pub(crate) fn is_mac(&self) -> bool {
        self.outbound.upgrade().is_some_and(|outbound| outbound.is_mac())
    }

    /// Who is at the other end (`lease.late_once`).
    pub(crate) fn client(&self) -> Option<&Arc<Punctual>> {
        self.client.as_ref()
    }

    /// Whether the client let a break go unanswered a while ago.
    pub(crate) fn is_late(&self) -> bool {
        self.client().is_some_and(|client| client.is_late())
    }

    /// Queues the notification `bytes`; false when the connection takes none.
    /// One whose queue is full has not read for a long time and is closed.
    pub(crate) fn send(&self, bytes: &[u8]) -> bool {
        if self.outbound.upgrade().is_some_and(|outbound| self.send_through(&outbound, bytes)) {
            return true;
        }
        self.others().iter().any(|outbound| self.send_through(outbound, bytes))
    }

    fn send_through(&self, outbound: &Outbound, bytes: &[u8]) -> bool {
        let message = match &self.cipher {
            None => Ok(bytes.to_vec()),
            Some((session_id, cipher)) => cipher.encrypt(*session_id, &[bytes]),
        };
        let Ok(message) = message else {
            outbound.kill();
            return false;
        };
        match outbound.try_send_notice(message) {
            Ok(()) => true,
            Err(NoticeError::Full) => {
                outbound.kill();
                false
            }
            Err(NoticeError::Closed) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conn::writer::response_queue;

    #[tokio::test]
    async fn notices_need_an_attached_queue() {
        let outbound = Outbound::default();
        assert_eq!(outbound.try_send_notice(vec![1]), Err(NoticeError::Closed));
        let (tx, rx) = response_queue();
        outbound.attach(tx.clone());
        outbound.try_send_notice(vec![1]).unwrap();
        drop(tx);
        outbound.close();
        assert_eq!(outbound.try_send_notice(vec![1]), Err(NoticeError::Closed));
        drop(rx);
    }

    #[tokio::test]
    async fn kill_wakes_a_waiter_and_later_ones() {
        let outbound = std::sync::Arc::new(Outbound::default());
        let waiter = tokio::spawn({
            let outbound = std::sync::Arc::clone(&outbound);
            async move { outbound.killed().await }
        });
        tokio::task::yield_now().await;
        outbound.kill();
        waiter.await.unwrap();
        outbound.killed().await;
    }
}
