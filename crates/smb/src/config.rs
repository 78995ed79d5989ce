//! Changes to a server's users and shares while it runs.

use std::sync::Arc;

use thiserror::Error;

use crate::files::close_opens;
use crate::share::{Share, ShareBindings, ShareNameError, check_share_name};
use crate::state::ServerState;
use larder_smb_wire::auth::ntlm::UserCreds;

#[derive(Debug, Error, PartialEq, Eq)]
pub enum ConfigError {
    #[error("user `{0}` does not exist")]
    UnknownUser(String),
    #[error("share `{0}` does not exist")]
    UnknownShare(String),
    #[error("duplicate share `{0}`")]
    DuplicateShare(String),
    #[error("user name `{0}` is reserved")]
    ReservedUserName(String),
    #[error("user name must be non-empty")]
    EmptyUserName,
    #[error("share name `{0}` is reserved")]
    ReservedShareName(String),
    #[error("share name `{0}` must be non-empty and contain no `\\`, `/` or NUL")]
    InvalidShareName(String),
}

#[derive(Clone)]
pub struct ConfigHandle {
    state: Arc<ServerState>,
}

impl ConfigHandle {
    pub(crate) fn new(state: Arc<ServerState>) -> Self {
        Self { state }
    }

    pub(crate) fn state(&self) -> &ServerState {
        &self.state
    }

    /// Add a user, known by the NT hash of its password: MD4 of it in UTF-16LE
    /// (MS-NLMP 3.3.1, NTOWFv1). Replacing the hash of an existing one ends the
    /// user's sessions and closes the user's durable opens kept after their
    /// session ended.
    pub async fn add_user_nt_hash(&self, name: impl Into<String>, nt_hash: [u8; 16]) -> Result<(), ConfigError> {
        let name = name.into();
        validate_user_name(&name)?;
        let replaced = self.state.users.table.write().await.insert(name.clone(), UserCreds { nt_hash });
        if replaced.is_some_and(|old| old.nt_hash != nt_hash) {
            self.close_user_sessions(&name).await;
        }
        Ok(())
    }

    pub async fn remove_user(&self, name: &str) -> Result<(), ConfigError> {
        validate_user_name(name)?;
        let removed = self.state.users.table.write().await.remove(name);
        if removed.is_none() {
            return Err(ConfigError::UnknownUser(name.to_string()));
        }

        self.close_user_sessions(name).await;
        Ok(())
    }

    pub async fn add_share(&self, share: Share) -> Result<(), ConfigError> {
        validate_share_name(&share.name)?;
        let binding = ShareBindings::from_share(share);
        if !self.state.shares.insert(Arc::clone(&binding)).await {
            return Err(ConfigError::DuplicateShare(binding.name.clone()));
        }
        Ok(())
    }

    pub async fn remove_share(&self, name: &str) -> Result<(), ConfigError> {
        validate_share_name(name)?;
        let removed =
            self.state.shares.remove(name).await.ok_or_else(|| ConfigError::UnknownShare(name.to_string()))?;

        self.close_share_trees(&removed, None).await;
        Ok(())
    }

    /// Ends the trees of `user` on a share, and closes the user's durable opens on it kept after their session
    /// ended. The doorkeeper answers anew from now on: told of a change first, it leaves nothing open to what
    /// the user had before.
    pub async fn end_trees(&self, share_name: &str, user: &str) -> Result<(), ConfigError> {
        let share =
            self.state.find_share(share_name).await.ok_or_else(|| ConfigError::UnknownShare(share_name.to_string()))?;
        self.close_share_trees(&share, Some(user)).await;
        Ok(())
    }

    /// Ends every session of `user` on every connection, and closes the
    /// user's durable opens kept after their session ended. All of them are
    /// cut off before any open is closed, and closing waits for requests
    /// still using an open.
    async fn close_user_sessions(&self, user: &str) {
        let mut opens = Vec::new();
        for conn in self.state.active_connections.live().await {
            opens.extend(conn.detach_sessions_for_user(user).await);
        }
        opens.extend(self.state.durable.take_for(None, Some(user)));
        close_opens(opens).await;
    }

    /// Ends the trees on `share`, only those of `user` when given, on every
    /// connection, and closes the matching durable opens kept after their
    /// session ended, cutting all of them off before closing any open.
    async fn close_share_trees(&self, share: &Arc<ShareBindings>, user: Option<&str>) {
        let mut opens = Vec::new();
        for conn in self.state.active_connections.live().await {
            opens.extend(match user {
                Some(user) => conn.detach_trees_for_user_share(user, share).await,
                None => conn.detach_trees_for_share(share).await,
            });
        }
        opens.extend(self.state.durable.take_for(Some(share), user));
        close_opens(opens).await;
    }
}

fn validate_user_name(name: &str) -> Result<(), ConfigError> {
    if name.is_empty() {
        return Err(ConfigError::EmptyUserName);
    }
    if name.eq_ignore_ascii_case("anonymous") {
        return Err(ConfigError::ReservedUserName(name.to_string()));
    }
    Ok(())
}

fn validate_share_name(name: &str) -> Result<(), ConfigError> {
    match check_share_name(name) {
        Ok(()) => Ok(()),
        Err(ShareNameError::Reserved) => Err(ConfigError::ReservedShareName(name.to_string())),
        Err(ShareNameError::Invalid) => Err(ConfigError::InvalidShareName(name.to_string())),
    }
}
