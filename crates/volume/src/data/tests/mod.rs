//! The data half by itself: against a model, through crashes, faults and full stores.
#![allow(clippy::unwrap_used)]

mod far;
mod model;
mod reserving;
mod scenarios;
mod sharing;
mod speed;

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use larder_base::{SystemClock, Timestamp};
use larder_fs::*;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::*;
use parking_lot::Mutex;

use super::shared::DataUsage;
use super::*;
use crate::backing::Space;
use crate::inode::Inode;
use crate::inode_core::InodeCore;
use crate::keys;
use crate::meta::{Batch, Meta, Ticket, Usage};
use crate::properties::{Compression, Properties};

// -------------------------------------------------------------------------------------------- engine

/// The engine as a map and a journal, so that a crash can take back what is not durable.
#[derive(Default)]
pub(super) struct TestMeta {
    state: Mutex<MetaState>,
    /// Nothing becomes durable by itself.
    pub(super) fail: AtomicBool,
}

#[derive(Default)]
struct MetaState {
    map: BTreeMap<Bytes, Bytes>,
    journal: Vec<Batch>,
    durable: usize,
    usage: Usage,
}

impl TestMeta {
    /// The state after a crash: everything durable, and the first `extra` batches after that.
    pub(super) fn crash(&self, extra: usize) -> TestMeta {
        let state = self.state.lock();
        let mut after = MetaState::default();
        for batch in state.journal.iter().take(state.durable + extra) {
            after.apply(batch.clone());
        }
        after.durable = after.journal.len();
        TestMeta { state: Mutex::new(after), fail: AtomicBool::new(false) }
    }

    pub(super) fn records(&self) -> Vec<(Ino, InodeCore)> {
        let state = self.state.lock();
        let records = state.map.iter().filter(|(key, _)| key[0] == keys::tag::INODE);
        let decoded = records.map(|(key, value)| {
            let ino = keys::ino_of(key).unwrap();
            (ino, keys::decode_inode(ino, value).unwrap())
        });
        decoded.collect()
    }

    pub(super) fn keys(&self, tag: u8) -> usize {
        self.state.lock().map.keys().filter(|key| key[0] == tag).count()
    }
}

impl MetaState {
    fn apply(&mut self, batch: Batch) {
        let mut seen = std::collections::HashSet::new();
        for (key, value) in &batch.ops {
            assert!(seen.insert(key.clone()), "a key occurs twice in one batch");
            match value {
                Some(value) => self.map.insert(key.clone(), value.clone()),
                None => self.map.remove(key),
            };
        }
        self.usage = self.usage.plus(batch.usage);
        self.journal.push(batch);
    }
}

#[async_trait]
impl Meta for TestMeta {
    async fn get(&self, key: &[u8]) -> FsResult<Option<Bytes>> {
        Ok(self.state.lock().map.get(key).cloned())
    }
    async fn scan(&self, from: &[u8], to: &[u8], limit: usize) -> FsResult<Vec<(Bytes, Bytes)>> {
        tokio::task::yield_now().await;
        let state = self.state.lock();
        let range = state.map.range(Bytes::copy_from_slice(from)..Bytes::copy_from_slice(to));
        Ok(range.take(limit).map(|(key, value)| (key.clone(), value.clone())).collect())
    }
    async fn last(&self, from: &[u8], to: &[u8]) -> FsResult<Option<(Bytes, Bytes)>> {
        let state = self.state.lock();
        let range = state.map.range(Bytes::copy_from_slice(from)..Bytes::copy_from_slice(to));
        Ok(range.last().map(|(key, value)| (key.clone(), value.clone())))
    }
    async fn admit(&self) -> FsResult<()> {
        Ok(())
    }
    fn submit(&self, batch: Batch) -> FsResult<Ticket> {
        if self.fail.load(Ordering::Relaxed) {
            return Err(FsError::Io("the engine failed".into()));
        }
        let mut state = self.state.lock();
        state.apply(batch);
        Ok(Ticket(state.journal.len() as u64))
    }
    async fn durable(&self, ticket: Ticket) -> FsResult<()> {
        tokio::task::yield_now().await;
        let mut state = self.state.lock();
        state.durable = state.durable.max(ticket.0 as usize);
        Ok(())
    }
    fn newest(&self) -> Ticket {
        Ticket(self.state.lock().journal.len() as u64)
    }
    fn usage(&self) -> Usage {
        self.state.lock().usage
    }
    fn fault(&self) -> Option<FsError> {
        None
    }
    async fn close(&self) -> FsResult<()> {
        Ok(())
    }
}

// --------------------------------------------------------------------------------------------- store

/// A store in memory that counts, fails and lies when told to.
#[derive(Debug, Default)]
pub(super) struct TestStore {
    inner: InMemory,
    pub(super) total: AtomicI64,
    pub(super) put_bytes: AtomicU64,
    pub(super) puts: AtomicU32,
    pub(super) gets: AtomicU32,
    pub(super) got_bytes: AtomicU64,
    pub(super) failing_puts: AtomicU32,
    /// The seconds that a put takes. Meanwhile its room counts twice, as in a pool.
    pub(super) put_s: AtomicU32,
    under_way_bytes: AtomicI64,
    pub(super) lying_gets: AtomicU32,
    pub(super) failing_gets: AtomicU32,
    /// Bodies come in pieces, as from a network. `None`: at once.
    network: Option<Arc<far::Network>>,
}

impl std::fmt::Display for TestStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TestStore")
    }
}

fn count_down(counter: &AtomicU32) -> bool {
    counter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1)).is_ok()
}

fn fault(what: &'static str) -> object_store::Error {
    object_store::Error::Generic { store: "test", source: what.into() }
}

#[async_trait]
impl ObjectStore for TestStore {
    async fn put_opts(&self, at: &Path, payload: PutPayload, options: PutOptions) -> object_store::Result<PutResult> {
        tokio::task::yield_now().await;
        let len = payload.content_length() as i64;
        let total = self.total.load(Ordering::Relaxed);
        if total > 0 && self.measure() + len > total {
            let full = std::io::Error::from(std::io::ErrorKind::StorageFull);
            return Err(object_store::Error::Generic { store: "test", source: Box::new(full) });
        }
        if count_down(&self.failing_puts) {
            return Err(fault("put fails"));
        }
        self.puts.fetch_add(1, Ordering::Relaxed);
        self.put_bytes.fetch_add(len as u64, Ordering::Relaxed);
        self.under_way_bytes.fetch_add(len, Ordering::Relaxed);
        if let put_s @ 1.. = self.put_s.load(Ordering::Relaxed) {
            tokio::time::sleep(std::time::Duration::from_secs(put_s.into())).await;
        }
        self.under_way_bytes.fetch_sub(len, Ordering::Relaxed);
        self.inner.put_opts(at, payload, options).await
    }
    async fn put_multipart_opts(
        &self,
        at: &Path,
        options: PutMultipartOptions,
    ) -> object_store::Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(at, options).await
    }
    async fn get_opts(&self, at: &Path, options: GetOptions) -> object_store::Result<GetResult> {
        tokio::task::yield_now().await;
        self.gets.fetch_add(1, Ordering::Relaxed);
        if count_down(&self.failing_gets) {
            return Err(fault("get fails"));
        }
        let mut got = self.inner.get_opts(at, options).await?;
        if let Some(network) = &self.network {
            got = network.slow(got).await;
        }
        self.got_bytes.fetch_add(got.range.end - got.range.start, Ordering::Relaxed);
        if !count_down(&self.lying_gets) {
            return Ok(got);
        }
        let (meta, range, attributes, extensions) =
            (got.meta.clone(), got.range.clone(), got.attributes.clone(), got.extensions.clone());
        let mut bytes = got.bytes().await?.to_vec();
        if let Some(byte) = bytes.last_mut() {
            *byte ^= 1;
        }
        let stream = futures::stream::iter([Ok(Bytes::from(bytes))]);
        Ok(GetResult { payload: GetResultPayload::Stream(Box::pin(stream)), meta, range, attributes, extensions })
    }
    fn delete_stream(
        &self,
        locations: BoxStream<'static, object_store::Result<Path>>,
    ) -> BoxStream<'static, object_store::Result<Path>> {
        self.inner.delete_stream(locations)
    }
    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, object_store::Result<ObjectMeta>> {
        self.inner.list(prefix)
    }
    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> object_store::Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }
    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> object_store::Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}

pub(super) struct TestSpace(pub(super) Arc<TestStore>);

impl TestStore {
    /// The bytes in the store now.
    pub(super) fn measure(&self) -> i64 {
        use futures::{FutureExt, StreamExt};
        let sum = self.inner.list(None).fold(0, |sum, object| async move { sum + object.unwrap().size as i64 });
        sum.now_or_never().expect("a list in memory does not wait") + 2 * self.under_way_bytes.load(Ordering::Relaxed)
    }
}

impl Space for TestSpace {
    fn space(&self) -> (u64, u64) {
        let total = self.0.total.load(Ordering::Relaxed);
        if total == 0 {
            return (1 << 40, 1 << 40);
        }
        (total as u64, (total - self.0.measure()).max(0) as u64)
    }
}

// ------------------------------------------------------------------------------------------ inodes

/// The inode table of the namespace, in its simplest form.
#[derive(Default)]
pub(super) struct TestInodes {
    meta: Mutex<Option<Arc<TestMeta>>>,
    table: Mutex<HashMap<Ino, Arc<Inode>>>,
}

#[async_trait]
impl InodeSource for TestInodes {
    async fn load(&self, ino: Ino) -> FsResult<Arc<Inode>> {
        if let Some(inode) = self.table.lock().get(&ino) {
            return Ok(Arc::clone(inode));
        }
        let meta = self.meta.lock().clone().unwrap();
        let value = meta.get(&keys::inode_key(ino)).await?.ok_or(FsError::NotFound)?;
        let core = keys::decode_inode(ino, &value)?;
        let file = FileState::new(core.has_reserved);
        let inode = inode_with(ino, core, file);
        Ok(Arc::clone(self.table.lock().entry(ino).or_insert(inode)))
    }

    fn cached(&self, ino: Ino) -> Option<Arc<Inode>> {
        self.table.lock().get(&ino).cloned()
    }
}

fn inode_with(ino: Ino, core: InodeCore, file: FileState) -> Arc<Inode> {
    Arc::new(Inode {
        id: FileId { ino, generation: core.attr.id.generation },
        core: Mutex::new(core),
        namespace: Default::default(),
        file,
        opens: AtomicU32::new(0),
        used: AtomicBool::new(false),
        entries_version: AtomicU64::new(0),
        superseded: Default::default(),
    })
}

fn new_core(ino: Ino) -> InodeCore {
    let t = Timestamp::new(1, 0);
    let attr = Attr {
        id: FileId { ino, generation: ino.0 * 10 },
        kind: FileKind::File,
        mode: 0o644,
        nlink: 1,
        uid: 0,
        gid: 0,
        size: 0,
        allocated: 0,
        rdev: (0, 0),
        atime: t,
        mtime: t,
        ctime: t,
        btime: t,
        change: 1,
        dos: 0,
    };
    InodeCore {
        attr,
        attr_dirty: false,
        size_stored: None,
        has_unstable: false,
        stored_bytes: 0,
        has_reserved: false,
        recorded: None,
        acl: None,
        ticket: Ticket(0),
        gone: false,
        parent: Ino(1),
        verifier: None,
        next_cookie: 3,
        entries: 0,
        negative_names: None,
        xattrs: 0,
        xattr_bytes: 0,
        target: Bytes::new(),
    }
}

// ------------------------------------------------------------------------------------------- world

/// A volume's data and everything below it.
pub(super) struct World {
    pub(super) store: Arc<TestStore>,
    pub(super) meta: Arc<TestMeta>,
    pub(super) inodes: Arc<TestInodes>,
    pub(super) data: Arc<Data>,
    pub(super) settings: Arc<DataSettings>,
    memory_bytes: u64,
    shared: bool,
}

impl World {
    pub(super) async fn new(record_bytes: u32, compression: Compression, memory_bytes: u64, total: i64) -> World {
        let store = Arc::new(TestStore::default());
        store.total.store(total, Ordering::Relaxed);
        let properties = Properties { record_bytes, compression, ..Properties::default() };
        let settings = Arc::new(DataSettings::new(&properties));
        Self::open(store, Arc::new(TestMeta::default()), settings, (memory_bytes, false)).await.unwrap()
    }

    async fn open(
        store: Arc<TestStore>,
        meta: Arc<TestMeta>,
        settings: Arc<DataSettings>,
        (memory_bytes, shared): (u64, bool),
    ) -> FsResult<World> {
        let inodes = Arc::new(TestInodes::default());
        *inodes.meta.lock() = Some(Arc::clone(&meta));
        let parts = DataParts {
            store: Arc::clone(&store) as Arc<dyn ObjectStore>,
            prefix: Path::from("volumes/x"),
            meta: Arc::clone(&meta) as Arc<dyn Meta>,
            settings: Arc::clone(&settings),
            memory: Memory::new(memory_bytes),
            clock: if shared { Arc::new(far::PausedClock::default()) } else { Arc::new(SystemClock::default()) },
            space: Arc::new(TestSpace(Arc::clone(&store))),
            inodes: Arc::clone(&inodes) as Arc<dyn InodeSource>,
            keeps_orphans: false,
            shared,
            is_sealed: false,
            marks: crate::marks::Marks::without_registry(),
            inherited: 0,
            epoch: 1,
            snapshots: Vec::new(),
            followed: false,
        };
        let data = Data::open(parts).await?;
        Ok(World { store, meta, inodes, data, settings, memory_bytes, shared })
    }

    /// Drops everything in memory; what is left is what was durable and `extra` batches more.
    pub(super) async fn crash(self, extra: usize) -> World {
        let World { store, meta, inodes, data, settings, memory_bytes, shared } = self;
        data.0.stop.cancel();
        let tasks = std::mem::take(&mut *data.0.tasks.lock());
        tasks.iter().for_each(tokio::task::JoinHandle::abort);
        for task in tasks {
            let _ = task.await;
        }
        let after = Arc::new(meta.crash(extra));
        drop((data, inodes));
        Self::open(store, after, settings, (memory_bytes, shared)).await.unwrap()
    }

    pub(super) async fn reopen(self) -> World {
        self.data.close().await.unwrap();
        let World { store, meta, settings, memory_bytes, shared, .. } = self;
        Self::open(store, meta, settings, (memory_bytes, shared)).await.unwrap()
    }

    pub(super) async fn create(&self, ino: u64) -> Arc<Inode> {
        let inode = inode_with(Ino(ino), new_core(Ino(ino)), FileState::fresh());
        self.inodes.table.lock().insert(Ino(ino), Arc::clone(&inode));
        let mut batch = Batch::default();
        batch.record(&inode);
        let ticket = self.meta.write(batch).await.unwrap();
        self.meta.durable(ticket).await.unwrap();
        inode
    }

    pub(super) async fn inode(&self, ino: u64) -> Arc<Inode> {
        self.inodes.load(Ino(ino)).await.unwrap()
    }

    pub(super) async fn try_write(&self, inode: &Arc<Inode>, at: u64, data: &[u8], how: Stability) -> FsResult<()> {
        let chunks = data.chunks(300_000).map(Bytes::copy_from_slice).collect();
        let now = Timestamp::new(2, 0);
        self.data.write(inode, WriteAt::Offset(at), chunks, how, now, |_| {}).await.map(|_| ())
    }

    pub(super) async fn write(&self, inode: &Arc<Inode>, at: u64, data: &[u8]) {
        self.try_write(inode, at, data, Stability::Unstable).await.unwrap();
    }

    pub(super) async fn read(&self, inode: &Arc<Inode>, range: Range<u64>) -> Vec<u8> {
        let mut out = Vec::new();
        let mut at = range.start;
        while at < range.end {
            let len = (range.end - at).min(IO_BYTES_MAX as u64) as usize;
            out.extend(self.data.read(inode, at, len).await.unwrap().concat());
            at += len as u64;
        }
        out
    }

    pub(super) async fn allocate(&self, inode: &Arc<Inode>, range: Range<u64>, mode: AllocateMode) -> FsResult<()> {
        let _turn = self.data.reserving().await;
        let len = range.end - range.start;
        let (_, ticket) = self.data.allocate(inode, range.start, len, mode, |_| {}).await?;
        self.meta.durable(ticket).await
    }

    /// The reserved ranges of an inode, by its rows.
    pub(super) fn reserved_rows(&self, ino: u64) -> Vec<Range<u64>> {
        let state = self.meta.state.lock();
        let rows = state.map.iter().filter(|(key, _)| key[0] == RESERVED_TAG);
        let decoded = rows.map(|(key, value)| decode_reserved(key, value).unwrap());
        decoded.filter(|(owner, _)| owner.0 == ino).map(|(_, range)| range).collect()
    }

    pub(super) async fn check(&self, read_data: bool) {
        let mut report = crate::CheckReport::default();
        self.data.sync_all().await.unwrap();
        let records = self.meta.records();
        let allocated = records.iter().filter(|(_, core)| core.stored_bytes > 0).map(|(ino, _)| ino.0).collect();
        self.data.check(read_data, allocated, &mut report).await.unwrap();
        assert_eq!(report.problems, Vec::<String>::new());
        // Nothing is dirty: all that is reserved is promised, and nothing else.
        let promised = self.data.usage().reserved_bytes;
        assert_eq!(promised as i64, self.meta.usage().reserved_bytes);
        assert_eq!(promised, self.data.0.parts.memory.reserved());
    }
}

/// Bytes that do not compress and say where they came from.
pub(super) fn noise(seed: u64, len: usize) -> Vec<u8> {
    use rand::{RngCore, SeedableRng};
    let mut data = vec![0; len];
    rand::rngs::StdRng::seed_from_u64(seed).fill_bytes(&mut data);
    data
}
