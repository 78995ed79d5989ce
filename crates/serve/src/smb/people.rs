//! The user of a session on a share: POSIX ids, and the right to read or write.

use std::collections::HashMap;
use std::sync::Arc;

use larder_fs::Cred;
use parking_lot::RwLock;

use super::SmbUser;
use crate::share::Access;

/// The ids of a guest, and of a user who is not known (any more).
const NOBODY: u32 = 65534;

/// All users of the server; shared by its shares.
#[derive(Clone, Default)]
pub struct Directory(Arc<RwLock<HashMap<String, Cred>>>);

impl Directory {
    /// Of one user alone.
    pub fn of(name: &str, cred: Cred) -> Self {
        Self(Arc::new(RwLock::new(HashMap::from([(name.to_owned(), cred)]))))
    }

    pub fn set(&self, users: &[SmbUser]) {
        let creds = users.iter().map(|u| (u.name.clone(), u.cred()));
        *self.0.write() = creds.collect();
    }
}

/// The users of one share, each with its access. Trees of users who stay as they are outlive a change of the others.
#[derive(Clone, Default)]
pub struct AccessList(Arc<RwLock<HashMap<String, Access>>>);

impl AccessList {
    pub fn set(&self, users: &[(String, Access)]) {
        *self.0.write() = users.iter().cloned().collect();
    }
}

impl FromIterator<(String, Access)> for AccessList {
    fn from_iter<I: IntoIterator<Item = (String, Access)>>(users: I) -> Self {
        Self(Arc::new(RwLock::new(users.into_iter().collect())))
    }
}

/// The users of one share.
pub struct People {
    pub directory: Directory,
    pub access: AccessList,
    /// Anybody may come in, and write.
    pub guest: bool,
    /// The identity that every user of the share acts under, if not their own.
    pub act_as: Option<Cred>,
}

impl People {
    /// The credentials of `user`, and whether the share lets it write.
    pub fn find(&self, user: Option<&str>) -> (Cred, bool) {
        let known = user.and_then(|user| self.directory.0.read().get(user).cloned());
        let access = user.and_then(|user| self.access.0.read().get(user).copied());
        let writes = access.map_or(self.guest, |access| access == Access::ReadWrite);
        if let Some(everybody) = &self.act_as {
            return (everybody.clone(), writes);
        }
        (known.unwrap_or_else(|| Cred::new(NOBODY, NOBODY, [])), writes)
    }
}
