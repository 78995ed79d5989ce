//! An open volume from the inside: engine, data, caches, and the waits that every operation shares.
//!
//! - `volume.wait_without_locks`: the wait for durability comes after every lock is released, so 32
//!   creates in one directory share one commit.
//! - `volume.proven_before_answer`: where another machine can take the store over, every operation begins with a proof of
//!   ownership that is young enough ([`Tenure`]), also one that finds everything in memory.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use futures::future::BoxFuture;
use larder_base::log::Tenure;
use larder_base::{Clock, Timestamp, task};
use larder_fs::Events;
use larder_fs::Keepers;
use larder_fs::places::{self, Place, place_of};
use larder_fs::*;

use crate::backing::Space;
use crate::data::{Data, DataSettings};
use crate::follow::{self, Followed};
use crate::handle_key::HandleKey;
use crate::inode::{Inode, kind_of};
use crate::lineage::{Ancestor, INHERITED, Lineage};
use crate::marks::Marks;
use crate::meta::{Meta, Ticket};
use crate::numbers::Numbers;
use crate::owner_limits::OwnerLimits;
use crate::properties::{Properties, SyncMode};
use crate::reap_queue::ReapQueue;
use crate::snapshots::Catalog;
use crate::table::{EntryCache, InodeTable, VolumeTag};

/// One read may meet as many turns; a writer makes one in some seconds.
const TURNS_MAX: u32 = 16;

pub(crate) struct State {
    pub(crate) id: uuid::Uuid,
    /// The id in the handles of clients.
    pub(crate) handles: uuid::Uuid,
    /// The secret of handles. None yet where an older larder made the volume.
    pub(crate) handle_key: OnceLock<HandleKey>,
    /// The name that people see. It does not change.
    pub(crate) name: String,
    pub(crate) tag: VolumeTag,
    pub(crate) meta: Arc<dyn Meta>,
    pub(crate) data: Arc<Data>,
    pub(crate) inodes: Arc<InodeTable>,
    pub(crate) entries: Arc<EntryCache>,
    pub(crate) events: Events,
    pub(crate) keepers: Keepers,
    pub(crate) marks: Arc<Marks>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) verifier: WriteVerifier,
    pub(crate) change_base: u64,
    /// Directories move between directories one at a time, so that no two moves make a loop.
    pub(crate) moves: tokio::sync::Mutex<()>,
    pub(crate) reaps: Arc<ReapQueue>,
    pub(crate) catalog: Arc<Catalog>,
    /// The store of a clone's segments.
    pub(crate) lineage: Option<Lineage>,
    /// Something may have changed since the newest snapshot.
    pub(crate) changed: AtomicBool,
    pub(crate) space: Arc<dyn Space>,
    pub(crate) tenure: Option<Arc<dyn Tenure>>,
    /// Another process writes the volume.
    pub(crate) followed: Option<Arc<Followed>>,
    pub(crate) settings: Arc<DataSettings>,
    pub(crate) relaxed: AtomicBool,
    /// `u64::MAX` is none.
    pub(crate) quota_bytes: AtomicU64,
    pub(crate) owner_quotas: OwnerLimits,
    /// Held by the one writer at the quota that waits until pending data is stored
    /// ([`State::admit_data`]).
    pub(crate) at_quota: tokio::sync::Mutex<()>,
    pub(crate) numbers: Numbers,
    /// The open-file guard of the last user may drop outside the runtime.
    pub(crate) runtime: tokio::runtime::Handle,
}

impl State {
    /// Its segments are those of other ancestors from now on; without any they are its own, and none is inherited any more.
    pub(crate) fn set_lineage(&self, ancestors: Vec<Ancestor>) {
        let is_own = ancestors.is_empty();
        if let Some(lineage) = &self.lineage {
            lineage.set(ancestors);
        }
        if is_own {
            self.data.end_snapshot(INHERITED, self.meta.newest());
        }
    }

    pub(crate) fn set_properties(self: &Arc<Self>, properties: &Properties) {
        self.settings.set(properties);
        self.relaxed.store(properties.sync == SyncMode::Relaxed, Ordering::Relaxed);
        self.quota_bytes.store(properties.quota_bytes.unwrap_or(u64::MAX), Ordering::Relaxed);
        self.set_owner_quotas(&properties.owner_quotas);
    }

    /// Everything durable, then closed.
    pub(crate) fn close(&self) -> BoxFuture<'_, FsResult<()>> {
        Box::pin(async move {
            let data = match self.followed.is_some() {
                true => {
                    self.data.leave();
                    Ok(())
                }
                false => self.data.close().await,
            };
            let meta = self.meta.close().await;
            // Shared with other volumes: nothing of this one stays in it.
            self.entries.forget_volume(self.tag);
            data.and(meta)
        })
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub(crate) fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) {
        task::spawn_on(&self.runtime, future);
    }

    /// `volume.proven_before_answer`
    async fn prove_tenure(&self) -> FsResult<()> {
        match &self.tenure {
            Some(tenure) if !tenure.is_proven() => {
                tenure.prove().await.map_err(|error| FsError::Io(error.to_string().into()))
            }
            _ => Ok(()),
        }
    }

    /// Where every operation begins. Here and in reads and writes, whatever waits is behind a box: the state of an operation
    /// that finds all in memory is small, and each door's crate has its code once more.
    pub(crate) async fn inode(&self, ino: Ino) -> FsResult<Arc<Inode>> {
        self.prove_tenure().await?;
        // What is cached of a snapshot outlives it.
        if let Place::Snapshot(number) = place_of(ino)
            && !self.catalog.has(number)
        {
            return Err(FsError::Stale);
        }
        let inode = match self.inodes.cached(ino) {
            Some(inode) => inode,
            None => self.inodes.load(ino).await?,
        };
        if let Place::Catalog(dir) = place_of(ino) {
            self.catalog.refresh(dir, &mut inode.core.lock())?;
        }
        Ok(inode)
    }

    pub(crate) async fn directory(&self, ino: Ino) -> FsResult<Arc<Inode>> {
        let inode = self.inode(ino).await?;
        if kind_of(&inode) != FileKind::Directory {
            return Err(FsError::NotDirectory);
        }
        Ok(inode)
    }

    /// Whether an operation may change the inode (`snap.read_only`).
    pub(crate) fn check_changeable(&self, ino: Ino) -> FsResult<()> {
        if self.followed.is_some() {
            return Err(follow::read_only());
        }
        places::check_changeable(ino)
    }

    /// After a failed read of an inode that was loaded before: whether to load it again and to repeat the read, within its `tries`
    /// (`follow.gone_means_look`).
    pub(crate) async fn reads_again(&self, inode: &Inode, tries: &mut u32) -> bool {
        let Some(followed) = &self.followed else { return false };
        if inode.superseded.load(Ordering::Acquire) {
            *tries += 1;
            return *tries <= TURNS_MAX;
        }
        followed.looks_again(tries).await
    }

    /// An inode that an operation is going to change (`snap.read_only`).
    pub(crate) async fn changeable(&self, ino: Ino) -> FsResult<Arc<Inode>> {
        self.check_changeable(ino)?;
        self.inode(ino).await
    }

    /// A directory whose entries an operation is going to change (`snap.read_only`).
    pub(crate) async fn changeable_directory(&self, ino: Ino) -> FsResult<Arc<Inode>> {
        self.check_changeable(ino)?;
        self.directory(ino).await
    }

    /// A file whose data an operation is going to change (`snap.read_only`).
    pub(crate) async fn changeable_file(&self, ino: Ino) -> FsResult<Arc<Inode>> {
        self.check_changeable(ino)?;
        self.file(ino).await
    }

    pub(crate) async fn file(&self, ino: Ino) -> FsResult<Arc<Inode>> {
        let inode = self.inode(ino).await?;
        match kind_of(&inode) {
            FileKind::File => Ok(inode),
            FileKind::Directory => Err(FsError::IsDirectory),
            _ => Err(FsError::Invalid("not a regular file")),
        }
    }

    /// The wait before an answer (`meta.durable_before_answer`).
    pub(crate) async fn await_durable(&self, ticket: Ticket) -> FsResult<()> {
        if self.relaxed.load(Ordering::Relaxed) { Ok(()) } else { self.meta.durable(ticket).await }
    }

    /// A number and a generation that were never used.
    pub(crate) async fn new_id(&self) -> FsResult<FileId> {
        self.numbers.new_id(&*self.meta).await
    }

    /// A change of the volume, for those that watch it.
    pub(crate) fn send(&self, event: impl FnOnce() -> Event) {
        if !self.changed.load(Ordering::Relaxed) {
            self.changed.store(true, Ordering::Release);
        }
        self.events.send(event);
    }
}
