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
        let others = sess_arc.read().await.channels.end();
        for other in others {
            other.forget_session(session_id).await;
        }
        end_opens(detach_session(&sess_arc).await, keep).await;
        true
    }

    /// Takes no more requests of the session `session_id` here.
    async fn forget_session(&self, session_id: u64) -> Option<Arc<RwLock<Session>>> {
        let session = self.sessions.write().await.remove(&session_id)?;
        self.remember_ended(session_id, &session).await;
        self.channel_keys.forget(session_id);
        self.pending.stop_where(Stop::Retry, |op| op.session_id == session_id);
        Some(session)
    }

    /// Keeps the key of a session that has ended.
    async fn remember_ended(&self, session_id: u64, session: &RwLock<Session>) {
        let Some(key) = self.signing_key(session_id, &*session.read().await).await else {
            return;
        };
        let mut ended = self.lock_ended();
        if ended.len() == MAX_ENDED_SESSIONS {
            ended.pop_front();
        }
        ended.push_back((session_id, key));
    }

    pub async fn close_tree(&self, session_id: u64, tree_id: u32) -> bool {
        let sess_arc = {
            let sessions = self.sessions.read().await;
            sessions.get(&session_id).cloned()
        };
        let Some(sess_arc) = sess_arc else {
            return false;
        };
        let removed = {
            let sess = sess_arc.read().await;
            let mut trees = sess.trees.write().await;
            trees.remove(&tree_id)
        };
        let Some(tree_arc) = removed else {
            return false;
        };
        let is_of_tree = |op: &AsyncOp| op.session_id == session_id && op.tree_id == tree_id;
        self.pending.stop_where(Stop::Retry, is_of_tree);
        let others = sess_arc.read().await.channels.live();
        others.iter().for_each(|other| other.pending.stop_where(Stop::Retry, is_of_tree));
        close_opens(detach_tree(&tree_arc).await).await;
        true
    }

    /// Removes every session of `user` and returns their opens, which the
    /// caller closes with [`close_opens`].
    pub async fn detach_sessions_for_user(&self, user: &str) -> Vec<Arc<RwLock<Open>>> {
        let removed = {
            let mut sessions = self.sessions.write().await;
            let mut ids = Vec::new();
            for (session_id, sess_arc) in sessions.iter() {
                let sess = sess_arc.read().await;
                if sess.identity.user() == Some(user) {
                    ids.push(*session_id);
                }
            }
            self.pending.stop_where(Stop::Retry, |op| ids.contains(&op.session_id));
            ids.into_iter().filter_map(|id| Some((id, sessions.remove(&id)?))).collect::<Vec<_>>()
        };
        let mut opens = Vec::new();
        for (id, sess_arc) in removed {
            sess_arc.read().await.channels.end();
            self.remember_ended(id, &sess_arc).await;
            self.channel_keys.forget(id);
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
        let sessions: Vec<_> = {
            let sessions = self.sessions.read().await;
            sessions.iter().map(|(id, s)| (*id, Arc::clone(s))).collect()
        };

        let mut opens = Vec::new();
        for (session_id, sess_arc) in sessions {
            let removed = {
                let sess = sess_arc.read().await;
                let mut trees = sess.trees.write().await;
                let mut ids = Vec::new();
                for (tree_id, tree_arc) in trees.iter() {
                    let tree = tree_arc.read().await;
                    if matches_tree(&sess, &tree) {
                        ids.push(*tree_id);
                    }
                }
                let is_of_them = |op: &AsyncOp| op.session_id == session_id && ids.contains(&op.tree_id);
                self.pending.stop_where(Stop::Retry, is_of_them);
                sess.channels.live().iter().for_each(|other| other.pending.stop_where(Stop::Retry, is_of_them));
                ids.into_iter().filter_map(|id| trees.remove(&id)).collect::<Vec<_>>()
            };
            for tree_arc in removed {
                opens.extend(detach_tree(&tree_arc).await);
            }
        }
        opens
    }

    /// Closes every session that no other connection has, with its trees,
    /// and ends their opens; with `keep`, the durable opens that qualify stay
    /// in that table. Runs when the connection ends.
    pub async fn close_all(&self, keep: Option<&Arc<DurableTable>>) {
        let keep = keep.map(|table| (table, table.sweeps()));
        let sessions: Vec<_> = self.sessions.write().await.drain().collect();
        let mut opens = Vec::new();
        for (_, sess_arc) in sessions {
            if sess_arc.read().await.channels.remove(self) {
                opens.extend(detach_session(&sess_arc).await);
            }
        }
        end_opens(opens, keep).await;
    }
}

/// Removes every tree of a session that is no longer reachable and returns
/// their opens.
async fn detach_session(sess_arc: &Arc<RwLock<Session>>) -> Vec<Arc<RwLock<Open>>> {
    let trees: Vec<_> = {
        let sess = sess_arc.read().await;
        let mut trees = sess.trees.write().await;
        trees.drain().collect()
    };
    let mut opens = Vec::new();
    for (_, tree_arc) in trees {
        opens.extend(detach_tree(&tree_arc).await);
    }
    opens
}

/// Marks a tree that is no longer reachable as closed, so no CREATE adds to
/// it, drops its pipes and takes its opens. Waits for no request.
async fn detach_tree(tree_arc: &Arc<RwLock<TreeConnect>>) -> Vec<Arc<RwLock<Open>>> {
    let mut tree = tree_arc.write().await;
    tree.closed = true;
    tree.pipes.get_mut().unwrap_or_else(|poisoned| poisoned.into_inner()).clear();
    let opens: Vec<_> = tree.opens.write().await.drain().map(|(_, o)| o).collect();
    opens
}
