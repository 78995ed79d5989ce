//! Tests that take more than one module, and the parts they are made of.

use std::sync::Arc;

use crate::builder::SmbServerBuilder;
use crate::door::open_name::EntryName;
use crate::door::view::VisitedShare;
use crate::share::ShareBindings;
use crate::state::ServerState;
use crate::{Access, Admitted, Share};
use larder_smb_wire::auth::ntlm::UserCreds;

mod async_requests;
mod chains;
mod durable;
mod dynamic_config;
mod notify;
pub(crate) mod peer;
mod pipes;
pub(crate) mod seam;
pub(crate) mod store;

/// What `path` of `share` leads to.
pub(crate) async fn index_of(share: &ShareBindings, path: &str) -> u64 {
    share.view().unwrap().locate(&path.parse().unwrap()).await.unwrap().file.unwrap_or_default()
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

impl ShareBindings {
    /// A name that leads to nothing, of an open of `path` that a test has made up.
    pub(crate) fn name_at(&self, path: &str) -> Arc<EntryName> {
        self.view().unwrap().name_at(path)
    }
}

impl Share {
    pub(crate) fn of(name: &str, view: VisitedShare) -> Self {
        let files = Arc::clone(view.core.seam.table.get().unwrap());
        Self::new(name, view, files)
    }

    /// Everybody reads and writes.
    pub(crate) fn public(self) -> Self {
        self.doorkeeper(Arc::new(|_| Some(Admitted { view: None, access: Access::ReadWrite })))
    }

    /// The user too gets `access`.
    pub(crate) fn user(self, name: &'static str, access: Access) -> Self {
        let others = Arc::clone(&self.doorkeeper);
        self.doorkeeper(Arc::new(move |visitor| match visitor.user {
            Some(user) if user == name => Some(Admitted { view: None, access }),
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
