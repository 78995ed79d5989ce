//! Who has what open, for people who look after the server (MS-SRVS 3.1.4.4 and 3.1.4.6 have the same for programs of
//! Windows), and the end of one open.

use std::net::IpAddr;
use std::sync::Arc;

use tokio::sync::RwLock;

use crate::config::ConfigHandle;
use crate::conn::pending::Stop;
use crate::conn::state::{Connection, Open, TreeConnect};
use crate::files::{Standing, close_open};
use larder_smb_wire::messages::FileId;

/// An open of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SmbOpen {
    /// Of this run of the server.
    pub id: u64,
    /// `None`: a guest.
    pub user: Option<String>,
    /// `None`: the client is away and may come back for it.
    pub address: Option<IpAddr>,
    pub share: String,
    /// Below the share, with backslashes.
    pub path: String,
    pub is_directory: bool,
    pub standing: Standing,
}

/// The place of an open of a session.
struct Placed {
    conn: Arc<Connection>,
    tree: Arc<TreeConnect>,
    file_id: FileId,
    user: Option<String>,
    open: Arc<RwLock<Open>>,
}

impl ConfigHandle {
    /// The newest opens, so many at most, and how many more there are. An open that is being closed is left out.
    pub async fn open_list(&self, count_max: usize) -> (Vec<SmbOpen>, usize) {
        let mut all = Vec::new();
        for placed in self.placed().await {
            let address = placed.conn.peer_addr.map(|peer| peer.ip().to_canonical());
            all.push((placed.file_id.volatile, placed.user, address, placed.open));
        }
        for (user, open) in self.state().durable.kept() {
            let id = open.try_read().map(|open| open.file_id.volatile);
            all.extend(id.ok().map(|id| (id, Some(user), None, open)));
        }
        all.sort_unstable_by_key(|(id, ..)| std::cmp::Reverse(*id));
        let more = all.len().saturating_sub(count_max);
        all.truncate(count_max);
        let listed = all.into_iter().filter_map(|(id, user, address, open)| {
            let open = open.try_read().ok()?;
            let file = open.file.as_ref()?;
            let (share, standing) = (file.share().name.clone(), file.standing());
            let path = file.name().opened_as().display_backslash();
            Some((
                SmbOpen { id, user, address, share, path, is_directory: open.is_directory, standing },
                Arc::clone(file.name()),
            ))
        });
        let mut opens = Vec::new();
        for (mut open, name) in listed.collect::<Vec<_>>() {
            // What was removed keeps the name that it was opened by.
            if let Ok(path) = name.path().await {
                open.path = path.display_backslash();
            }
            opens.push(open);
        }
        (opens, more)
    }

    /// Closes an open as its client would, with its locks. Requests that wait on it end; later ones are answered
    /// STATUS_FILE_CLOSED. `false`: there is none of this id.
    pub async fn end_open(&self, id: u64) -> bool {
        let kept = self.state().durable.kept();
        let of_id = |open: &Arc<RwLock<Open>>| open.try_read().is_ok_and(|open| open.file_id.volatile == id);
        if let Some((_, open)) = kept.iter().find(|(_, open)| of_id(open)) {
            return match self.state().durable.take_kept(open) {
                Some(open) => {
                    close_open(&open, false).await;
                    true
                }
                None => false,
            };
        }
        let Some(placed) = self.placed().await.into_iter().find(|placed| placed.file_id.volatile == id) else {
            return false;
        };
        let Placed { conn, tree, file_id, .. } = placed;
        let removed = tree.remove_file(file_id);
        let Some(open) = removed else { return false };
        conn.pending.stop_where(Stop::Retry, |op| op.file_id == Some(file_id));
        close_open(&open, false).await;
        true
    }

    async fn placed(&self) -> Vec<Placed> {
        let mut all = Vec::new();
        for conn in self.state().active_connections.live().await {
            for session in conn.sessions.values() {
                let user = session.identity.user().map(str::to_owned);
                for tree in session.trees.values() {
                    for (file_id, open) in tree.files() {
                        let (conn, tree, user) = (Arc::clone(&conn), Arc::clone(&tree), user.clone());
                        all.push(Placed { conn, tree, file_id, user, open });
                    }
                }
            }
        }
        all
    }
}
