//! The public face: the handle of a volume. Its operations are in `attr`, `dir`, `namespace`,
//! `rename`, `io`, `xattr` and `named`; the volumes of a store are in `registry`.

use std::sync::{Arc, Weak};
use std::time::Duration;

use larder_fs::Keeper;
use larder_fs::*;
use larder_fs::{Events, Witness};
use tokio::sync::broadcast;

use crate::handle_key::HandleKey;
use crate::inode::Inode;
use crate::meta::Ticket;
use crate::state::State;

/// An open volume. Cheap to clone; all clones are one volume. Operations are linearizable per
/// inode. Dropping a future cancels the wait, never half of the change.
///
/// Fast path: an operation that finds everything in caches completes without suspending, so a
/// server may poll it once in place before it spawns a task.
///
/// Any operation may fail with [`FsError::Io`] when the store fails or a record is damaged, and any
/// change with [`FsError::Poisoned`] after a failed flush.
#[derive(Clone)]
pub struct Volume {
    pub(crate) state: Arc<State>,
    pub(crate) origin: u32,
    pub(crate) answers: Answers,
    pub(crate) access_times: AccessTimes,
    /// See [`Volume::only`].
    pub(crate) only: Option<Ino>,
}

impl Volume {
    /// The same volume with another tag in the events that its operations send. A cache uses the
    /// tag to skip its own changes.
    pub fn with_origin(&self, origin: u32) -> Volume {
        Volume { origin, ..self.clone() }
    }

    /// The same volume with another moment at which operations are answered.
    pub fn with_answers(&self, answers: Answers) -> Volume {
        Volume { answers, ..self.clone() }
    }

    /// The same volume with another rule for the access times of what is read.
    pub fn with_access_times(&self, access_times: AccessTimes) -> Volume {
        Volume { access_times, ..self.clone() }
    }

    /// The same volume, whose removals and renames act on the inode `ino` alone: [`FsError::NotFound`] for a name that leads to
    /// another one, also if it has only just come to lead there.
    pub fn only(&self, ino: Ino) -> Volume {
        Volume { only: Some(ino), ..self.clone() }
    }

    /// See [`Volume::only`].
    pub(crate) fn check_only(&self, ino: Ino) -> FsResult<()> {
        if self.only.is_none_or(|only| only == ino) { Ok(()) } else { Err(FsError::NotFound) }
    }

    /// The wait before an answer (`meta.durable_before_answer`).
    pub(crate) async fn await_durable(&self, ticket: Ticket) -> FsResult<()> {
        match self.answers {
            Answers::Durable => self.state.await_durable(ticket).await,
            Answers::Ordered => Ok(()),
        }
    }

    /// The wait before an answer that changes nothing but reports the result of another operation's
    /// change of `inode` (`meta.durable_before_answer`).
    pub(crate) async fn await_newest(&self, inode: &Inode) -> FsResult<()> {
        let ticket = inode.core.lock().ticket;
        self.await_durable(ticket).await
    }

    /// The tag in the events that this handle sends; 0 unless [`Volume::with_origin`] set another.
    pub fn origin(&self) -> u32 {
        self.origin
    }

    /// The id of the volume, which never changes.
    pub fn id(&self) -> uuid::Uuid {
        self.state.id
    }

    /// The id in handles that clients keep: [`Volume::id`], unless it took the place of another volume.
    pub fn handle_id(&self) -> uuid::Uuid {
        self.state.handles
    }

    /// The secret that seals handles. `None`: an older larder made the volume, and nobody who may change it has opened it since.
    pub fn handle_key(&self) -> Option<HandleKey> {
        self.state.handle_key.get().copied()
    }

    /// Changes from now on. A receiver that falls 4096 events behind is told that it lost some and
    /// must drop its cache.
    pub fn events(&self) -> broadcast::Receiver<Event> {
        self.state.events.subscribe()
    }

    /// The channel of the events.
    pub fn channel(&self) -> &Events {
        &self.state.events
    }

    /// Registers a cache that must be correct when a change by another handle is answered
    /// ([`Volume::await_witnesses`]). Dropping the [`Witness`] ends that.
    pub fn witness(&self) -> (broadcast::Receiver<Event>, Witness) {
        self.state.events.witness(self.origin)
    }

    /// Asks `keeper` about each inode that loses its last name from now on, as long as somebody holds it.
    pub fn add_keeper(&self, keeper: Weak<dyn Keeper>) {
        self.state.keepers.add(keeper);
    }

    /// Waits until the caches of other handles have seen every change made before this call, but no
    /// longer than `timeout`. Servers call it between a change and its answer.
    pub async fn await_witnesses(&self, timeout: Duration) {
        self.state.events.await_witnesses(self.origin, timeout).await;
    }

    /// Differs between any two openings of the volume: a client that sees another one repeats its
    /// unstable writes.
    pub fn verifier(&self) -> WriteVerifier {
        self.state.verifier
    }

    /// What [`Attr::change`] is added to where clients keep what they read by it: numbers of changes that a crash took away
    /// come again with other content. It grows from opening to opening by more than any file can change meanwhile.
    pub fn change_base(&self) -> u64 {
        self.state.change_base
    }

    /// Why nothing that is written from now on can become durable, until the volume is opened anew. Does no I/O.
    pub fn fault(&self) -> Option<FsError> {
        self.state.data.fault().or_else(|| self.state.meta.fault())
    }

    /// Whether another machine writes the volume, so that it changes without a word to the caches of clients.
    pub fn is_followed(&self) -> bool {
        self.state.followed.is_some()
    }

    /// [`FsError::ReadOnly`] for an inode of a snapshot, and for all of a volume that another machine writes.
    pub fn check_changeable(&self, ino: Ino) -> FsResult<()> {
        self.state.check_changeable(ino)
    }

    /// Room in bytes and inodes, within the quotas of the volume and of `cred`, if there are any. Does no I/O.
    pub fn statfs(&self, cred: &Cred) -> StatFs {
        self.state.statfs(cred)
    }

    /// Bytes that count against the narrowest quota of `cred`: those of the user, of its group, or else of the volume. Does no
    /// I/O.
    pub fn quota_used(&self, cred: &Cred) -> u64 {
        self.state.quota_used(cred)
    }

    /// The bytes that files hold now. Does no I/O.
    pub fn contents(&self) -> Contents {
        self.state.contents()
    }

    /// Makes every change made before this call durable, acknowledged or not.
    pub async fn sync(&self) -> FsResult<()> {
        if self.state.followed.is_some() {
            return Ok(());
        }
        self.state.data.sync_all().await?;
        self.state.meta.durable(self.state.meta.newest()).await
    }
}

/// Keeps an inode alive while it is open, even after its last name is removed. Dropping it closes
/// the file.
pub struct OpenFile {
    pub(crate) inode: Arc<Inode>,
    pub(crate) state: Arc<State>,
}

impl OpenFile {
    /// The inode that is open.
    pub fn id(&self) -> FileId {
        self.inode.id
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        self.state.closed(&self.inode);
    }
}
