//! Opening a volume: formatting, replay, and the start of background tasks.

use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, OnceLock};

use futures::future::BoxFuture;
use larder_base::{Clock, Timestamp, task};
use larder_fs::Events;
use larder_fs::Keepers;
use larder_fs::*;
use object_store::ObjectStore;
use object_store::path::Path;

use crate::backing::Space;
use crate::cores::Cores;
use crate::data::{Data, DataParts, DataSettings, InodeSource, Memory};
use crate::follow::Followed;
use crate::handle_key::{self, HandleKey};
use crate::inode::Inode;
use crate::inode_core::new_core;
use crate::keys::{self, Superblock};
use crate::lineage::Lineage;
use crate::marks::Marks;
use crate::meta::{Batch, Meta};
use crate::numbers::{Numbers, mix};
use crate::owner_limits::OwnerLimits;
use crate::properties::Properties;
use crate::reap_queue::ReapQueue;
use crate::snapshots::Catalog;
use crate::snapshots::route::Routed;
use crate::state::State;
use crate::table::{EntryCache, InodeBudget, InodeTable, VolumeTag};

/// A receiver that falls further behind is told that it lost events.
const EVENTS_MAX: usize = 4096;

/// Numbers of changes that were told and that a crash took away are fewer.
const LOST_CHANGES_MAX: u64 = 1 << 32;

/// The parts that a volume is opened from.
pub(crate) struct StateParts {
    pub(crate) id: uuid::Uuid,
    /// The id in the handles of clients.
    pub(crate) handles: uuid::Uuid,
    pub(crate) name: String,
    pub(crate) tag: VolumeTag,
    pub(crate) meta: Arc<dyn Meta>,
    pub(crate) store: Arc<dyn ObjectStore>,
    pub(crate) prefix: Path,
    pub(crate) memory: Arc<Memory>,
    pub(crate) inode_budget: Arc<InodeBudget>,
    pub(crate) entries: Arc<EntryCache>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) space: Arc<dyn Space>,
    pub(crate) properties: Properties,
    /// It was never opened before; otherwise a missing superblock is damage.
    pub(crate) may_format: bool,
    pub(crate) marks: Arc<Marks>,
    /// The log has lost acknowledged changes. Files and segments without a name or a reference may
    /// be all that is left of them.
    pub(crate) keeps_orphans: bool,
    /// Other machines can reach the store (`segment.numbers_of_an_opening`).
    pub(crate) shared: bool,
    /// It is encrypted.
    pub(crate) is_sealed: bool,
    pub(crate) tenure: Option<Arc<dyn larder_base::log::Tenure>>,
    /// The same as `meta`, if another process writes the volume.
    pub(crate) followed: Option<Arc<Followed>>,
    /// The newest segment of its ancestors, if it is a clone; 0 otherwise.
    pub(crate) inherited: u64,
    pub(crate) lineage: Option<Lineage>,
    /// The clones of its snapshots.
    pub(crate) clones: Vec<(u64, String)>,
}

/// The inode table as file data sees it.
struct TableSource(Arc<InodeTable>);

#[async_trait::async_trait]
impl InodeSource for TableSource {
    async fn load(&self, ino: Ino) -> FsResult<Arc<Inode>> {
        self.0.load(ino).await
    }

    fn cached(&self, ino: Ino) -> Option<Arc<Inode>> {
        self.0.cached(ino)
    }
}

impl State {
    /// Formats a volume without a superblock, replays, and starts the background tasks. `None`: it went back to a snapshot, and is to
    /// be opened again.
    pub(crate) fn open(parts: StateParts) -> BoxFuture<'static, FsResult<Option<Arc<State>>>> {
        Box::pin(async move {
            let meta = parts.meta;
            match meta.get(keys::SUPERBLOCK_KEY).await? {
                Some(value) => verify_superblock(&value, parts.id)?,
                None if parts.may_format => format(&*meta, parts.id, parts.clock.now()).await?,
                None => return Err(keys::damaged(keys::SUPERBLOCK_KEY, "it is missing")),
            }
            let next = match meta.get(keys::NEXT_INO_KEY).await? {
                Some(value) => keys::decode_next_ino(&value)?,
                None => return Err(keys::damaged(keys::NEXT_INO_KEY, "it is missing")),
            };
            let handle_key = handle_key::load(&*meta).await?;
            let (catalog, epoch) =
                Catalog::open(meta, Arc::clone(&parts.store), parts.prefix.clone(), mix(parts.id.as_u64_pair().0))
                    .await?;
            parts.clones.iter().for_each(|(number, name)| catalog.begin_clone(*number, name));
            let meta: Arc<dyn Meta> = Arc::new(Routed::new(Arc::clone(&catalog)));
            meta.set_epoch((!catalog.is_empty()).then_some(epoch));
            let change_base = begin_changes(&*meta, parts.clock.now(), parts.followed.is_some()).await?;
            let inodes = Arc::new(InodeTable::new(Arc::clone(&meta), parts.inode_budget));
            let settings = Arc::new(DataSettings::new(&parts.properties));
            let data = Data::open(DataParts {
                store: parts.store,
                prefix: parts.prefix,
                meta: Arc::clone(&meta),
                settings: Arc::clone(&settings),
                memory: parts.memory,
                clock: Arc::clone(&parts.clock),
                space: Arc::clone(&parts.space),
                inodes: Arc::new(TableSource(Arc::clone(&inodes))),
                keeps_orphans: parts.keeps_orphans,
                marks: Arc::clone(&parts.marks),
                shared: parts.shared,
                is_sealed: parts.is_sealed,
                inherited: parts.inherited,
                epoch,
                snapshots: catalog.numbers(),
                followed: parts.followed.is_some(),
            })
            .await?;
            let state = Arc::new(State {
                id: parts.id,
                handles: parts.handles,
                handle_key: handle_key.map(OnceLock::from).unwrap_or_default(),
                name: parts.name,
                marks: parts.marks,
                tag: parts.tag,
                meta,
                data,
                inodes,
                entries: parts.entries,
                events: Events::new(EVENTS_MAX),
                keepers: Keepers::default(),
                clock: parts.clock,
                verifier: WriteVerifier(rand::random()),
                change_base,
                moves: tokio::sync::Mutex::new(()),
                reaps: ReapQueue::new(),
                catalog,
                lineage: parts.lineage,
                // Nothing says what the last life changed. Who only reads takes no snapshot anyway.
                changed: AtomicBool::new(parts.followed.is_none()),
                space: parts.space,
                tenure: parts.tenure,
                followed: parts.followed,
                settings,
                relaxed: AtomicBool::new(false),
                quota_bytes: AtomicU64::new(u64::MAX),
                owner_quotas: OwnerLimits::default(),
                at_quota: tokio::sync::Mutex::new(()),
                numbers: Numbers::new(next),
                runtime: tokio::runtime::Handle::current(),
            });
            if let Some(followed) = &state.followed {
                state.set_properties(&parts.properties);
                let caches: std::sync::Weak<dyn crate::follow::Caches> = Arc::downgrade(&(Arc::clone(&state) as _));
                followed.serves(caches);
                return Ok(Some(state));
            }
            if state.roll_back().await? {
                // What is cached is of later (`rollback.before_anybody`).
                if let Err(error) = state.close().await {
                    tracing::warn!(volume = state.name, %error, "the volume did not close cleanly after it went back to a snapshot");
                }
                return Ok(None);
            }
            state.set_properties(&parts.properties);
            state.meta.opened();
            if !parts.keeps_orphans {
                if let Err(error) = state.make_handle_key().await {
                    let volume = &state.name;
                    tracing::warn!(volume, %error, "NFS handles of the volume have no seal until it is opened again");
                }
                if let Err(error) = state.drop_saved().await {
                    let volume = &state.name;
                    tracing::warn!(volume, %error, "the snapshot of a rollback that was cut off stays until the next opening");
                }
                task::spawn(crate::reap::sweep(Arc::downgrade(&state)));
                if epoch > 1 {
                    task::spawn(Arc::clone(&state).sweep_images(epoch));
                }
            }
            Ok(Some(state))
        })
    }
}

impl State {
    /// Gives a volume of an older larder its secret (`handles.older_end`).
    async fn make_handle_key(&self) -> FsResult<()> {
        if self.handle_key.get().is_some() || self.meta.get(&handle_key::row_key()).await?.is_some() {
            return Ok(());
        }
        let root = self.inode(Ino::ROOT).await?;
        self.meta.admit().await?;
        let made = HandleKey::new(self.numbers.peek(), self.now());
        let ticket = {
            let mut cores = Cores::lock(&[&root]);
            let mut batch = Batch::default();
            batch.put(handle_key::row_key(), keys::encode_xattr(&made.encode()));
            cores.of(&root).xattrs += 1;
            cores.submit(&*self.meta, batch)?
        };
        self.meta.durable(ticket).await?;
        let _ = self.handle_key.set(made);
        Ok(())
    }
}

/// The base of this opening ([`State::change_base`]): beyond all that was told by those before, whatever the clock says.
async fn begin_changes(meta: &dyn Meta, now: Timestamp, is_followed: bool) -> FsResult<u64> {
    // Older larders kept none and had the clock's, a million changes a second.
    let by_clock = (now.secs.max(0) as u64) << 20 | u64::from(now.nanos >> 10);
    let before = meta.get(keys::CHANGE_BASE_KEY).await?;
    let before = before.map_or(Ok(0), |value| keys::decode_next_ino(&value))?;
    let base = by_clock.max(before.saturating_add(LOST_CHANGES_MAX));
    if !is_followed {
        let mut batch = Batch::default();
        batch.put(keys::CHANGE_BASE_KEY, keys::encode_next_ino(base));
        let ticket = meta.write(batch).await?;
        meta.durable(ticket).await?;
    }
    Ok(base)
}

fn verify_superblock(value: &[u8], id: uuid::Uuid) -> FsResult<()> {
    let superblock = keys::decode_superblock(value)?;
    if superblock.id == id {
        return Ok(());
    }
    Err(keys::damaged(keys::SUPERBLOCK_KEY, &format!("it belongs to volume {}, not {id}", superblock.id)))
}

async fn format(meta: &dyn Meta, id: uuid::Uuid, now: Timestamp) -> FsResult<()> {
    let root = FileId { ino: Ino::ROOT, generation: rand::random() };
    let mut core = new_core(root, FileKind::Directory, Ino::ROOT, now);
    core.attr.mode = 0o755;
    let mut batch = Batch::default();
    handle_key::format(&mut core, &mut batch);
    batch.put(keys::SUPERBLOCK_KEY, keys::encode_superblock(Superblock { id, created: now }));
    batch.put(keys::NEXT_INO_KEY, keys::encode_next_ino(Ino::ROOT.0 + 1));
    batch.put_record(Ino::ROOT, &mut core);
    batch.usage.inodes = 1;
    let ticket = meta.write(batch).await?;
    meta.durable(ticket).await
}
