//! Tests that take more than one module, and the parts they are made of.

use std::sync::Arc;

use crate::share::ShareBindings;
use crate::state::ServerState;
use crate::{Access, Admitted, Share, SmbServerBuilder};
use larder_smb_wire::auth::ntlm::UserCreds;

mod async_requests;
mod chains;
mod durable;
mod dynamic_config;
pub(crate) mod memfs;
mod notify;
pub(crate) mod peer;
mod pipes;

/// What `path` of `share` leads to.
pub(crate) async fn index_of(share: &ShareBindings, path: &str) -> u64 {
    share.backend.locate(&path.parse().unwrap()).await.unwrap().file.unwrap_or_default()
}

/// The users and shares that a test's server begins with.
#[derive(Default)]
pub(crate) struct Seed {
    users: Vec<(String, UserCreds)>,
    shares: Vec<Arc<ShareBindings>>,
}

impl Seed {
    pub(crate) fn sow(self, state: &mut ServerState) {
        state.users.table.get_mut().extend(self.users);
        for share in self.shares {
            state.shares.insert_first(share);
        }
    }
}

impl Share {
    /// Everybody reads and writes.
    pub(crate) fn public(self) -> Self {
        self.doorkeeper(Arc::new(|_| Some(Admitted { backend: None, access: Access::ReadWrite })))
    }

    /// The user too gets `access`.
    pub(crate) fn user(self, name: &'static str, access: Access) -> Self {
        let others = Arc::clone(&self.doorkeeper);
        self.doorkeeper(Arc::new(move |visitor| match visitor.user {
            Some(user) if user == name => Some(Admitted { backend: None, access }),
            _ => others(visitor),
        }))
    }

    /// The doorkeeper is told first, and then decides.
    pub(crate) fn watched(self, told: impl Fn() + Send + Sync + 'static) -> Self {
        let decides = Arc::clone(&self.doorkeeper);
        self.doorkeeper(Arc::new(move |visitor| {
            told();
            decides(visitor)
        }))
    }
}

impl SmbServerBuilder {
    pub(crate) fn user(mut self, name: &str, password: &str) -> Self {
        self.seed.users.push((name.to_owned(), UserCreds::from_password(password)));
        self
    }

    pub(crate) fn share(mut self, share: Share) -> Self {
        self.seed.shares.push(ShareBindings::from_share(share));
        self
    }
}
