//! Who comes into a share of SMB. The library asks at TREE_CONNECT, and when it lists shares.
//!
//! - `smb.unknown_is_refused`: a session of a user who is there no longer, and a client whose address cannot be looked at,
//!   are admitted nowhere.

use std::collections::HashMap;
use std::sync::Arc;

use crate::share::Visitor;
use larder_fs::Cred;
use larder_people::{Door, Share, User, Who};
use parking_lot::RwLock;

/// All users of the server; shared by its shares.
#[derive(Clone, Default)]
pub struct Directory(Arc<RwLock<HashMap<String, Arc<User>>>>);

impl Directory {
    pub fn set(&self, users: HashMap<String, Arc<User>>) {
        *self.0.write() = users;
    }

    fn find(&self, name: &str) -> Option<Arc<User>> {
        self.0.read().get(name).cloned()
    }
}

/// The rules of one share, which may change while clients are connected.
pub struct Doorkeeper {
    directory: Directory,
    share: RwLock<Arc<Share>>,
}

impl Doorkeeper {
    pub fn new(directory: Directory, share: Arc<Share>) -> Self {
        Self { directory, share: RwLock::new(share) }
    }

    pub fn set(&self, share: Arc<Share>) {
        *self.share.write() = share;
    }

    /// Whom files take the visitor for, and whether anything may be changed; `None`: shut out.
    pub fn admit(&self, visitor: &Visitor<'_>) -> Option<(Cred, bool)> {
        let address = visitor.address?;
        let user = match visitor.user {
            Some(name) => Some(self.directory.find(name)?),
            None => None,
        };
        let share = Arc::clone(&self.share.read());
        let who = user.as_deref().map_or(Who::Guest, Who::User);
        let rights = share.entrance(who, Some(address), Door::Smb { encrypts: visitor.encrypts }).rights?;
        let cred = rights.cred_of(user.as_deref()).of_client(Some(address), Some(visitor.user.unwrap_or("guest")));
        Some((cred, rights.may_write))
    }
}
