//! Users: their names, their numbers, their groups, and what they log in with.

use std::sync::Arc;

use larder_fs::Cred;

use crate::token::Token;
use crate::{AuthorizedKey, PasswordHash};

/// MD4 of a password in UTF-16LE (MS-NLMP 3.3.1): what SMB knows a password by.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct NtHash(pub [u8; 16]);

impl std::fmt::Debug for NtHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("NtHash")
    }
}

/// A user, for all doors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// The name to log in with.
    pub name: String,
    /// The POSIX user that the user's files belong to.
    pub uid: u32,
    /// The primary group.
    pub gid: u32,
    /// Numbers of further groups.
    pub gids: Vec<u32>,
    /// Names of all groups, as lists of shares call them.
    pub groups: Vec<String>,
    /// For doors at which the client sends the password. `None`: there is none, or none in this form.
    pub password: Option<PasswordHash>,
    /// For SMB. `None`: the user cannot log in there.
    pub nt_hash: Option<NtHash>,
    /// The keys that let the user in over SFTP.
    pub keys: Vec<AuthorizedKey>,
    /// The app token that it logged in with, which narrows its rights; `None` for the user itself.
    pub token: Option<Arc<Token>>,
}

impl User {
    /// A user with these numbers and nothing to log in with.
    pub fn new(name: impl Into<String>, uid: u32, gid: u32) -> Self {
        Self {
            name: name.into(),
            uid,
            gid,
            gids: Vec::new(),
            groups: Vec::new(),
            password: None,
            nt_hash: None,
            keys: Vec::new(),
            token: None,
        }
    }

    /// The same user with the rights that `token` leaves.
    pub fn narrowed(&self, token: Arc<Token>) -> User {
        User { token: Some(token), ..self.clone() }
    }

    /// Whether it is that user as it is now, whatever it logged in with.
    pub fn is(&self, user: &User) -> bool {
        self.is_over_smb(user) && (&self.password, &self.keys) == (&user.password, &user.keys)
    }

    /// Whether nothing differs for SMB, where keys and tokens let nobody in.
    pub fn is_over_smb(&self, user: &User) -> bool {
        let parts = |user: &User| (user.uid, user.gid, user.nt_hash);
        parts(self) == parts(user) && (&self.name, &self.gids, &self.groups) == (&user.name, &user.gids, &user.groups)
    }

    /// Whom files take the user for.
    pub fn cred(&self) -> Cred {
        Cred::new(self.uid, self.gid, self.gids.clone())
    }

    /// Whether the key lets the user in.
    pub fn has_key(&self, key: &russh::keys::PublicKey) -> bool {
        self.keys.iter().any(|known| known.is(key))
    }
}
