//! The public face: what a volume stands on, what it is, and its handle. The operations are in `attr`, `dir`,
//! `namespace`, `io` and `xattr`; the volumes of a store in `registry`.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::broadcast;

use crate::inode::Inode;
use crate::meta::Ticket;
use crate::state::State;
use crate::types::*;
use crate::witness::Witness;

/// An open volume. Cheap to clone; all clones are one volume. Operations are linearizable
/// per inode. Dropping a future cancels the wait, never half of the change.
///
/// Fast path: an operation that finds all it needs in caches completes without suspending, so a
/// server may poll it once in place before it spawns.
#[derive(Clone)]
pub struct Volume {
    pub(crate) state: Arc<State>,
    pub(crate) origin: u32,
    pub(crate) answers: Answers,
    pub(crate) access_times: bool,
}

impl Volume {
    /// The same volume with another origin tag in the events that its operations send.
    pub fn with_origin(&self, origin: u32) -> Volume {
        Volume { origin, ..self.clone() }
    }

    /// The same volume with other answers.
    pub fn with_answers(&self, answers: Answers) -> Volume {
        Volume { answers, ..self.clone() }
    }

    /// The same volume, whose reads move access times (as relatime has it, the default) or leave them.
    pub fn with_access_times(&self, access_times: bool) -> Volume {
        Volume { access_times, ..self.clone() }
    }

    /// The wait before an answer (`meta.durable_before_answer`).
    pub(crate) async fn await_durable(&self, ticket: Ticket) -> FsResult<()> {
        match self.answers {
            Answers::Durable => self.state.await_durable(ticket).await,
            Answers::Ordered => Ok(()),
        }
    }

    /// The wait before an answer that changes nothing, and says of an inode what another's change made of it (`meta.durable_before_answer`).
    pub(crate) async fn await_newest(&self, inode: &Inode) -> FsResult<()> {
        let ticket = inode.core.lock().ticket;
        self.await_durable(ticket).await
    }

    pub fn origin(&self) -> u32 {
        self.origin
    }

    pub fn id(&self) -> uuid::Uuid {
        self.state.id
    }

    pub fn events(&self) -> broadcast::Receiver<Event> {
        self.state.events.subscribe()
    }

    /// For a cache that has to be right when a change by others is answered ([`Volume::await_witnesses`]).
    pub fn witness(&self) -> (broadcast::Receiver<Event>, Witness) {
        self.state.events.witness(self.origin)
    }

    /// Waits, no longer than `timeout`, until the caches of others that witness changes know of all that were made before. For
    /// servers, between a change and its answer.
    pub async fn await_witnesses(&self, timeout: Duration) {
        self.state.events.await_witnesses(self.origin, timeout).await;
    }

    pub fn verifier(&self) -> WriteVerifier {
        self.state.verifier
    }

    pub fn statfs(&self) -> StatFs {
        self.state.statfs()
    }

    pub fn contents(&self) -> Contents {
        self.state.contents()
    }

    /// Everything acknowledged or not so far becomes durable.
    pub async fn sync(&self) -> FsResult<()> {
        self.state.data.sync_all().await?;
        self.state.meta.durable(self.state.meta.newest()).await
    }
}

/// Keeps an inode alive while it is open, also when its last name is removed.
pub struct OpenFile {
    pub(crate) inode: Arc<Inode>,
    pub(crate) state: Arc<State>,
}

impl OpenFile {
    pub fn id(&self) -> FileId {
        self.inode.id
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        self.state.closed(&self.inode);
    }
}
