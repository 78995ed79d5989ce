//! The index: every object of the pool, in memory, in order.
//!
//! - `index.acknowledged_only`: an object is in the index if and only if it is acknowledged, or was
//!   found complete when the pool was opened. Conditional puts are decided under the index's lock.
//! - `index.last_reader_unlinks`: files of a version that left the index are unlinked when its last
//!   reader lets go of it.
//! - `index.owed_are_listed`: an object that is known to lack a shard, or to have two on one disk, is
//!   listed until it has all on disks of their own, or leaves the index. Whatever a disk that is away
//!   may have is not known.
//! - `index.moved_shard_may_return`: a moved shard is unlinked in its old place only if it is not
//!   there again by then. Moving an object's shards and unlinking them exclude each other.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use object_store::Attributes;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use uuid::Uuid;

use crate::object::geometry::Geometry;
use crate::object::shard::{self, Header};

/// No disk holds this shard.
pub const NO_SLOT: u8 = 0xff;

/// One version of one object.
#[derive(Debug)]
pub struct Object {
    pub pool: Uuid,
    pub path: String,
    pub version: u64,
    pub modified_ms: u64,
    pub geometry: Geometry,
    pub header_bytes: u32,
    /// Which disk holds shard i.
    slots: Box<[AtomicU8]>,
    /// Empty until read from a header, where the object has any.
    pub attributes: OnceLock<Attributes>,
    pub has_attributes: bool,
    pub graveyard: Graveyard,
    dead: AtomicBool,
    /// Earlier versions that are still being read (`tombstone.kept_until_unlinked`).
    older: Mutex<Vec<Weak<Object>>>,
    /// The task that works on the object's shards, if any: moving and unlinking exclude each other.
    claim: AtomicU8,
    /// Its shards still have their temporary names.
    pub is_draft: bool,
}

/// Versions that have left are looked through when there are so many.
const READ_PRUNE: usize = 64;

const MOVING: u8 = 1;
const DELETING: u8 = 2;

/// The input of an [`Object`].
pub struct NewObject {
    pub pool: Uuid,
    pub path: String,
    pub version: u64,
    pub modified_ms: u64,
    pub geometry: Geometry,
    pub header_bytes: u32,
    pub has_attributes: bool,
}

impl Object {
    pub fn new(new: NewObject, slots: &[u8], graveyard: Graveyard) -> Self {
        let shards = usize::from(new.geometry.shards());
        let slot = |i: usize| AtomicU8::new(slots.get(i).copied().unwrap_or(NO_SLOT));
        Self {
            pool: new.pool,
            path: new.path,
            version: new.version,
            modified_ms: new.modified_ms,
            geometry: new.geometry,
            header_bytes: new.header_bytes,
            slots: (0..shards).map(slot).collect(),
            attributes: OnceLock::new(),
            has_attributes: new.has_attributes,
            graveyard,
            dead: AtomicBool::new(false),
            older: Mutex::default(),
            claim: AtomicU8::new(0),
            is_draft: false,
        }
    }

    /// The same version, to be read before its shards have been given their names.
    pub fn as_draft(&self) -> Self {
        let mut draft = self.shadow();
        draft.is_draft = true;
        self.placed().for_each(|(index, slot)| draft.set_slot(index, slot));
        draft
    }

    /// The same version, as if it lay nowhere.
    pub fn shadow(&self) -> Self {
        let new = NewObject {
            pool: self.pool,
            path: self.path.clone(),
            version: self.version,
            modified_ms: self.modified_ms,
            geometry: self.geometry,
            header_bytes: self.header_bytes,
            has_attributes: self.has_attributes,
        };
        Self::new(new, &[], self.graveyard.clone())
    }

    pub fn slot(&self, index: u8) -> Option<u8> {
        let slot = self.slots.get(usize::from(index))?.load(Ordering::Acquire);
        (slot != NO_SLOT).then_some(slot)
    }

    pub fn set_slot(&self, index: u8, slot: u8) {
        if let Some(cell) = self.slots.get(usize::from(index)) {
            cell.store(slot, Ordering::Release);
        }
    }

    /// (shard, disk) of every shard that exists.
    pub fn placed(&self) -> impl Iterator<Item = (u8, u8)> + '_ {
        (0..self.geometry.shards()).filter_map(|index| Some((index, self.slot(index)?)))
    }

    pub fn is_whole(&self) -> bool {
        self.placed().count() == usize::from(self.geometry.shards())
    }

    /// Shards on a disk that has another shard of the object already (`misplaced.two_shards_part`).
    pub fn crowded(&self) -> Vec<u8> {
        let is_second = |(index, slot): &(u8, u8)| self.placed().any(|(other, at)| at == *slot && other < *index);
        self.placed().filter(is_second).map(|(index, _)| index).collect()
    }

    /// Each shard is on a disk of its own.
    pub fn is_spread(&self) -> bool {
        self.is_whole() && self.crowded().is_empty()
    }

    pub fn e_tag(&self) -> String {
        format!("\"{:x}\"", self.version)
    }

    /// The file of shard `index`, relative to its disk.
    pub fn file_name(&self, index: u8) -> String {
        if self.is_draft {
            return shard::temp_name(&self.path, self.version, index);
        }
        let attributes = if self.has_attributes { vec![(String::new(), String::new())] } else { Vec::new() };
        let header = self.header(index, attributes);
        format!("{}/{}", shard::directory(&self.path), shard::file_name(&header, self.header_bytes as usize))
    }

    pub fn header(&self, index: u8, attributes: Vec<(String, String)>) -> Header {
        Header {
            pool: self.pool,
            version: self.version,
            modified_ms: self.modified_ms,
            geometry: self.geometry,
            index,
            path: self.path.clone(),
            attributes,
        }
    }

    /// From now on no read finds this version; its files are unlinked after its last reader
    /// (`index.last_reader_unlinks`).
    pub fn bury(&self) {
        self.dead.store(true, Ordering::Release);
    }

    /// This version and those before it that are still read.
    pub fn and_older(self: &Arc<Self>) -> Vec<Weak<Self>> {
        let read = |older: &&Weak<Self>| older.strong_count() > 0;
        let older: Vec<Weak<Self>> = self.older.lock().iter().filter(read).cloned().collect();
        older.into_iter().chain([Arc::downgrade(self)]).collect()
    }

    /// From now on it is not written anew. `false` while that is being done.
    pub fn begin_delete(&self) -> bool {
        self.claim.compare_exchange(0, DELETING, Ordering::AcqRel, Ordering::Acquire) != Err(MOVING)
    }

    /// From now on a delete waits, until `release`. `false` when it is being deleted.
    pub fn begin_move(&self) -> bool {
        self.claim.compare_exchange(0, MOVING, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// The task that began has ended, and the object is still there.
    pub fn release(&self) {
        self.claim.store(0, Ordering::Release);
    }

    pub fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Acquire)
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        if self.is_dead() {
            let grave = |(index, slot)| {
                let (file, version) = (self.file_name(index), self.version);
                Grave { slot, file, version, index, of: None, is_copy: false }
            };
            self.graveyard.send(self.placed().map(grave).collect());
        }
    }
}

/// The way of files to the reaper, which unlinks them. Deletes bound its length: they wait while
/// [`Graveyard::backlog`] is high.
#[derive(Clone, Debug)]
pub struct Graveyard {
    sender: mpsc::UnboundedSender<Burial>,
    backlog: Arc<AtomicUsize>,
}

/// A file to be unlinked; its version and shard, so that it is not kept open either.
#[derive(Debug)]
pub struct Grave {
    pub slot: u8,
    pub file: String,
    pub version: u64,
    pub index: u8,
    /// The living object: its shard is on another disk, but may come back to this one
    /// (`index.moved_shard_may_return`).
    pub of: Option<String>,
    /// The indexed copy has not been read: until then this one is still needed
    /// (`misplaced.copy_goes_after_reading`).
    pub is_copy: bool,
}

#[derive(Debug)]
pub enum Burial {
    Files(Vec<Grave>),
    /// Answered when everything before it is unlinked.
    Barrier(tokio::sync::oneshot::Sender<()>),
    Stop,
}

impl Graveyard {
    pub fn new() -> (Self, mpsc::UnboundedReceiver<Burial>) {
        let (sender, receiver) = mpsc::unbounded_channel();
        (Self { sender, backlog: Arc::default() }, receiver)
    }

    pub fn send(&self, files: Vec<Grave>) {
        self.backlog.fetch_add(1, Ordering::Relaxed);
        // After the reaper has stopped the files wait for the next opening of the pool.
        let _ = self.sender.send(Burial::Files(files));
    }

    pub fn done(&self) {
        let before = self.backlog.fetch_sub(1, Ordering::Relaxed);
        assert!(before > 0, "the backlog counts what was sent");
    }

    pub fn backlog(&self) -> usize {
        self.backlog.load(Ordering::Relaxed)
    }

    pub async fn barrier(&self) {
        let (done, wait) = tokio::sync::oneshot::channel();
        if self.sender.send(Burial::Barrier(done)).is_ok() {
            let _ = wait.await;
        }
    }

    pub fn stop(&self) {
        let _ = self.sender.send(Burial::Stop);
    }
}

/// All objects by path.
#[derive(Debug, Default)]
pub struct Index {
    pub objects: BTreeMap<String, Arc<Object>>,
    /// Object bytes in all, before redundancy.
    pub bytes: u64,
    /// Objects that are owed shards, by version (`index.owed_are_listed`).
    owed: BTreeMap<u64, Weak<Object>>,
    /// Versions that left the index while they were being read.
    read: Vec<Weak<Object>>,
}

impl Index {
    pub fn get(&self, path: &str) -> Option<&Arc<Object>> {
        self.objects.get(path)
    }

    /// Inserts a version and buries the one it replaces.
    pub fn insert(&mut self, object: Arc<Object>) {
        self.bytes += object.geometry.size;
        if let Some(old) = self.objects.insert(object.path.clone(), object.clone()) {
            assert!(old.version < object.version, "`write.outrun`: the version stored last has the highest number");
            self.bytes -= old.geometry.size;
            object.older.lock().extend(old.and_older());
            self.bury(&old);
        }
    }

    pub fn remove(&mut self, path: &str) -> Option<Arc<Object>> {
        let old = self.objects.remove(path)?;
        assert!(self.bytes >= old.geometry.size, "the index counts the bytes of each object once");
        self.bytes -= old.geometry.size;
        self.bury(&old);
        Some(old)
    }

    /// Lists an object if it lacks shards, where no disk that is away may have them
    /// (`index.owed_are_listed`); whether it does.
    pub fn owe(&mut self, object: &Arc<Object>) -> bool {
        let is_owed = !object.is_spread() && self.is_current(object);
        if is_owed {
            self.owed.insert(object.version, Arc::downgrade(object));
        }
        is_owed
    }

    /// A shard of it was found or made: the object is listed no longer if it has all.
    pub fn settle(&mut self, object: &Object) {
        if object.is_spread() {
            self.owed.remove(&object.version);
        }
    }

    /// Lists all that are owed shards. All disks are there.
    pub fn owe_all(&mut self) {
        let lacking = self.objects.values().filter(|object| !object.is_spread());
        self.owed = lacking.map(|object| (object.version, Arc::downgrade(object))).collect();
    }

    pub fn is_owed(&self, object: &Object) -> bool {
        self.owed.contains_key(&object.version)
    }

    /// How many objects are owed shards.
    pub fn owed_count(&self) -> usize {
        self.owed.len()
    }

    /// At most `most` of them with versions beyond `after`.
    pub fn owed_after(&self, after: u64, most: usize) -> Vec<Arc<Object>> {
        let beyond = self.owed.range(after.saturating_add(1)..);
        beyond.filter_map(|(_, object)| object.upgrade()).take(most).collect()
    }

    fn bury(&mut self, old: &Arc<Object>) {
        old.bury();
        self.owed.remove(&old.version);
        if Arc::strong_count(old) > 1 {
            if self.read.len() >= READ_PRUNE {
                self.read.retain(|version| version.strong_count() > 0);
            }
            self.read.push(Arc::downgrade(old));
        }
    }

    /// Whether a version that left the index, and has shards on this disk, is still being read.
    pub fn is_read_on(&self, slot: u8) -> bool {
        let mut alive = self.read.iter().filter_map(Weak::upgrade);
        alive.any(|version| version.placed().any(|(_, at)| at == slot))
    }

    pub fn is_current(&self, object: &Object) -> bool {
        self.get(&object.path).is_some_and(|current| current.version == object.version)
    }
}
