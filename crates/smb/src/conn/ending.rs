//! The end of sessions and trees: each is made unreachable first, then its opens end.

use std::sync::Arc;

use tokio::sync::RwLock;

use crate::conn::pending::{AsyncOp, Stop};
use crate::conn::state::{Connection, Open, Session, TreeConnect};
use crate::files::{DurableTable, close_opens, end_opens};
use crate::share::ShareBindings;

/// Most sessions of a connection whose keys are kept once they have ended.
const MAX_ENDED_SESSIONS: usize = 16;

impl Connection {
    /// Removes the session `session_id`, from all its connections, and ends
    /// its opens; with `keep`, the durable opens that qualify stay in that
    /// table. Returns false when the connection has no such session.
    pub async fn close_session(&self, session_id: u64, keep: Option<&Arc<DurableTable>>) -> bool {
        let keep = keep.map(|table| (table, table.sweeps()));
        let Some(sess_arc) = self.forget_session(session_id).await else {
            return false;
        };
        let others = sess_arc.channels.end();
        for other in others {
            other.forget_session(session_id).await;
        }
        end_opens(detach_session(&sess_arc).await, keep).await;
        true
    }

    /// Takes no more requests of the session `session_id` here.
    async fn forget_session(&self, session_id: u64) -> Option<Arc<Session>> {
        let session = self.sessions.change().await.remove(session_id)?;
        self.remember_ended(session_id, &session);
        self.channel_keys.forget(session_id);
        self.pending.stop_where(Stop::Retry, |op| op.session_id == session_id);
        Some(session)
    }

    /// Keeps the key of a session that has ended.
    fn remember_ended(&self, session_id: u64, session: &Session) {
        let Some(key) = self.signing_key(session_id, session) else {
            return;
        };
        let mut ended = self.lock_ended();
        if ended.len() == MAX_ENDED_SESSIONS {
            ended.pop_front();
        }
        ended.push_back((session_id, key));
    }

    pub async fn close_tree(&self, session_id: u64, tree_id: u32) -> bool {
        let Some(session) = self.sessions.get(session_id) else {
            return false;
        };
        let removed = session.trees.change().await.remove(tree_id);
        let Some(tree) = removed else {
            return false;
        };
        let is_of_tree = |op: &AsyncOp| op.session_id == session_id && op.tree_id == tree_id;
        self.pending.stop_where(Stop::Retry, is_of_tree);
        let others = session.channels.live();
        others.iter().for_each(|other| other.pending.stop_where(Stop::Retry, is_of_tree));
        close_opens(tree.close()).await;
        true
    }

    /// Removes every session of `user` and returns their opens, which the
    /// caller closes with [`close_opens`].
    pub async fn detach_sessions_for_user(&self, user: &str) -> Vec<Arc<RwLock<Open>>> {
        let removed = {
            let sessions = self.sessions.change().await;
            let is_users = |session: &Session| session.identity.user() == Some(user);
            let of_user = sessions.entries().into_iter().filter(|(_, session)| is_users(session));
            let ids: Vec<_> = of_user.map(|(id, _)| id).collect();
            ids.into_iter().filter_map(|id| Some((id, sessions.remove(id)?))).collect::<Vec<_>>()
        };
        let mut opens = Vec::new();
        for (id, sess_arc) in removed {
            self.remember_ended(id, &sess_arc);
            self.channel_keys.forget(id);
            self.pending.stop_where(Stop::Retry, |op| op.session_id == id);
            // One that was bound to it meanwhile is not in the list that the caller goes through.
            for other in sess_arc.channels.end() {
                other.forget_session(id).await;
            }
            opens.extend(detach_session(&sess_arc).await);
        }
        opens
    }

    /// Removes every tree connected to `share` and returns their opens,
    /// which the caller closes with [`close_opens`].
    pub async fn detach_trees_for_share(&self, share: &Arc<ShareBindings>) -> Vec<Arc<RwLock<Open>>> {
        self.detach_matching_trees(|_, tree| Arc::ptr_eq(&tree.share, share)).await
    }

    /// Removes every tree `user` has connected to `share` and returns their
    /// opens, which the caller closes with [`close_opens`].
    pub async fn detach_trees_for_user_share(&self, user: &str, share: &Arc<ShareBindings>) -> Vec<Arc<RwLock<Open>>> {
        self.detach_matching_trees(|sess, tree| sess.identity.user() == Some(user) && Arc::ptr_eq(&tree.share, share))
            .await
    }

    async fn detach_matching_trees(
        &self,
        matches_tree: impl Fn(&Session, &TreeConnect) -> bool,
    ) -> Vec<Arc<RwLock<Open>>> {
        let sessions = self.sessions.change().await.entries();
        let mut opens = Vec::new();
        for (session_id, sess) in sessions {
            let (ids, removed) = {
                let trees = sess.trees.change().await;
                let matching = trees.entries().into_iter().filter(|(_, tree)| matches_tree(&sess, tree));
                let ids: Vec<_> = matching.map(|(id, _)| id).collect();
                let removed: Vec<_> = ids.iter().filter_map(|id| trees.remove(*id)).collect();
                (ids, removed)
            };
            let is_of_them = |op: &AsyncOp| op.session_id == session_id && ids.contains(&op.tree_id);
            self.pending.stop_where(Stop::Retry, is_of_them);
            sess.channels.live().iter().for_each(|other| other.pending.stop_where(Stop::Retry, is_of_them));
            opens.extend(removed.iter().flat_map(|tree| tree.close()));
        }
        opens
    }

    /// Closes every session that no other connection has, with its trees,
    /// and ends their opens; with `keep`, the durable opens that qualify stay
    /// in that table. Runs when the connection ends.
    pub async fn close_all(&self, keep: Option<&Arc<DurableTable>>) {
        let keep = keep.map(|table| (table, table.sweeps()));
        let sessions = self.sessions.change().await.remove_all();
        let mut opens = Vec::new();
        for (_, sess_arc) in sessions {
            if sess_arc.channels.remove(self) {
                opens.extend(detach_session(&sess_arc).await);
            }
        }
        end_opens(opens, keep).await;
    }
}

/// Removes every tree of a session that is no longer reachable and returns
/// their opens.
async fn detach_session(session: &Session) -> Vec<Arc<RwLock<Open>>> {
    let trees = session.trees.change().await.remove_all();
    trees.iter().flat_map(|(_, tree)| tree.close()).collect()
}
