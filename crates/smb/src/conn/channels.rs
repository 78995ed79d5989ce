//! The connections of a session (MS-SMB2 3.3.1.7, Session.ChannelList): a
//! session begins on one, others are bound to it, and it ends with the last.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::conn::outbound::{Outbound, SessionOutbounds};
use crate::conn::state::{Connection, SigningKey};
use larder_smb_wire::ntstatus;

/// As many as Windows and Samba allow.
const CHANNELS_MAX: usize = 32;

/// The connections that have one session.
#[derive(Default)]
pub(crate) struct Channels(Mutex<List>);

#[derive(Default)]
struct List {
    connections: Vec<Weak<Connection>>,
    /// The session is over: no connection gets it any more.
    has_ended: bool,
}

impl Channels {
    fn list(&self) -> MutexGuard<'_, List> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `conn` has the session as well.
    pub(crate) fn add(&self, conn: &Arc<Connection>) -> Result<(), u32> {
        let mut list = self.list();
        if list.has_ended {
            return Err(ntstatus::STATUS_USER_SESSION_DELETED);
        }
        list.connections.retain(|other| other.strong_count() > 0);
        if list.connections.len() >= CHANNELS_MAX {
            return Err(ntstatus::STATUS_INSUFFICIENT_RESOURCES);
        }
        list.connections.push(Arc::downgrade(conn));
        Ok(())
    }

    /// `conn` no longer has it. True if no other has it either: the session
    /// has ended.
    pub(crate) fn remove(&self, conn: &Connection) -> bool {
        let mut list = self.list();
        list.connections.retain(|other| other.strong_count() > 0 && !std::ptr::eq(other.as_ptr(), conn));
        list.has_ended |= list.connections.is_empty();
        list.connections.is_empty()
    }

    /// The session ends, on all its connections, which the caller tells.
    pub(crate) fn end(&self) -> Vec<Arc<Connection>> {
        self.list().has_ended = true;
        self.live()
    }

    /// Those that are there and not about to close.
    pub(crate) fn live(&self) -> Vec<Arc<Connection>> {
        self.list().connections.iter().filter_map(Weak::upgrade).filter(|conn| !conn.is_closing()).collect()
    }
}

impl SessionOutbounds for Channels {
    fn live_outbounds(&self) -> Vec<Arc<Outbound>> {
        self.live().iter().map(|conn| Arc::clone(&conn.outbound)).collect()
    }
}

/// What the sessions bound to a connection sign with on it (MS-SMB2 3.3.1.14,
/// Channel.SigningKey). The session a connection began has its own key.
#[derive(Default)]
pub(crate) struct ChannelKeys {
    keys: Mutex<HashMap<u64, [u8; 16]>>,
    /// As many as `keys`. Few connections have any, and requests of the others take no lock.
    count: AtomicUsize,
}

impl ChannelKeys {
    fn keys(&self) -> MutexGuard<'_, HashMap<u64, [u8; 16]>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set(&self, session_id: u64, key: [u8; 16]) {
        let mut keys = self.keys();
        keys.insert(session_id, key);
        self.count.store(keys.len(), Ordering::Release);
    }

    pub(crate) fn get(&self, session_id: u64) -> Option<[u8; 16]> {
        if self.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        self.keys().get(&session_id).copied()
    }

    pub(crate) fn forget(&self, session_id: u64) {
        let mut keys = self.keys();
        keys.remove(&session_id);
        self.count.store(keys.len(), Ordering::Release);
    }
}

/// A session that a connection asks to be bound to.
pub(crate) struct Binding {
    pub(crate) session: Arc<crate::conn::state::Session>,
    /// What the session's first connection signs with: it signs the requests
    /// and the answers until the channel has a key.
    pub(crate) key: SigningKey,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::conn::state::{Session, TreeConnect};
    use crate::share::ShareBindings;
    use larder_smb_wire::access_mask::Access;
    use larder_smb_wire::auth::ntlm::Identity;

    fn conn() -> Arc<Connection> {
        Arc::new(Connection::new(uuid::Uuid::nil(), 1 << 16, 1 << 16))
    }

    #[test]
    fn a_session_ends_with_its_last_connection() {
        let channels = Channels::default();
        let (one, two) = (conn(), conn());
        channels.add(&one).unwrap();
        channels.add(&two).unwrap();
        two.mark_closing();
        assert_eq!(channels.live().len(), 1);
        assert!(!channels.remove(&one));
        assert!(channels.remove(&two));
        assert_eq!(channels.add(&one), Err(ntstatus::STATUS_USER_SESSION_DELETED), "what has ended is not begun again");
    }

    #[test]
    fn there_is_a_bound_and_dead_connections_do_not_count() {
        let channels = Channels::default();
        let mut all: Vec<_> = (0..CHANNELS_MAX).map(|_| conn()).collect();
        all.iter().for_each(|conn| channels.add(conn).unwrap());
        let more = conn();
        assert_eq!(channels.add(&more), Err(ntstatus::STATUS_INSUFFICIENT_RESOURCES));
        all.pop();
        channels.add(&more).unwrap();
    }

    /// Two connections with one session, which has a tree.
    async fn two_channels() -> (Arc<Connection>, Arc<Connection>, Arc<Session>) {
        let session = Session::new(Identity::Anonymous, [0; 16], false);
        let tree = TreeConnect::new(1, ShareBindings::ipc(), Access::Read);
        session.trees.change().await.insert(1, Arc::new(tree));
        let (one, two) = (conn(), conn());
        let session = Arc::new(session);
        for conn in [&one, &two] {
            session.channels.add(conn).unwrap();
            conn.sessions.change().await.insert(7, Arc::clone(&session));
        }
        (one, two, session)
    }

    #[tokio::test]
    async fn trees_stay_while_a_connection_is_left_and_a_logoff_ends_them_all() {
        let (one, two, session) = two_channels().await;
        one.close_all(None).await;
        assert_eq!(session.trees.len(), 1);
        two.close_all(None).await;
        assert_eq!(session.trees.len(), 0);

        let (one, two, session) = two_channels().await;
        assert!(two.close_session(7, None).await);
        assert!(one.sessions.is_empty());
        assert_eq!(session.channels.add(&one), Err(ntstatus::STATUS_USER_SESSION_DELETED));
        assert_eq!(session.trees.len(), 0);
    }
}
