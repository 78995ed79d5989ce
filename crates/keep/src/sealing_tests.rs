#![allow(clippy::unwrap_used)]
//! The work is cut off at each of its puts, and ended by the next life.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use futures::TryStreamExt;
use futures::stream::BoxStream;
use larder_base::{MemLog, SystemClock};
use larder_crypt::{Cipher, Secret};
use larder_fs::{CreateMode, Cred, IO_BYTES_MAX, Ino, NameMatch, SetAttr, Stability};
use larder_volume::{Backing, MemoryBudget, Properties, Registry, Space, Volume};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStoreExt, PutMultipartOptions,
    PutOptions, PutPayload, PutResult, Result,
};

use super::*;
use crate::keyrings::folder_of;

const PLAIN: &[u8] = b"the plaintext that nobody may find ";

struct Room;

impl Space for Room {
    fn space(&self) -> (u64, u64) {
        (1 << 40, 1 << 39)
    }
}

/// A store whose power goes after some puts of the work.
struct CutStore {
    inner: Arc<InMemory>,
    /// Puts that still work.
    left: AtomicUsize,
    /// Objects count, too: before, documents alone do.
    began: AtomicBool,
}

impl CutStore {
    fn count(&self, location: &Path) -> Result<()> {
        if location.as_ref().ends_with(".json") || self.began.load(Ordering::SeqCst) {
            let took = self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
            took.map_err(|_| object_store::Error::Generic { store: "cut", source: "the power is gone".into() })?;
        }
        Ok(())
    }
}

impl fmt::Debug for CutStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CutStore")
    }
}

impl fmt::Display for CutStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CutStore")
    }
}

#[async_trait]
impl ObjectStore for CutStore {
    async fn put_opts(&self, location: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        self.count(location)?;
        self.inner.put_opts(location, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(location, options).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.inner.get_opts(location, options).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}

/// The disks, which outlive the process.
struct Disks {
    store: Arc<InMemory>,
    log: MemLog,
}

/// One life of the process.
struct Life {
    registry: Arc<Registry>,
    unlocked: Arc<Unlocked>,
    store: Arc<dyn ObjectStore>,
}

impl Life {
    async fn begin(disks: &Disks, store: Arc<dyn ObjectStore>) -> Self {
        let unlocked = Arc::<Unlocked>::default();
        let backing = Backing {
            store: Arc::clone(&store),
            log: Some(Arc::new(disks.log.clone())),
            space: Arc::new(Room),
            clock: Arc::new(SystemClock::default()),
        };
        let budget = MemoryBudget { total_bytes: 64 << 20 };
        let registry = Registry::open_sealed(backing, budget, Arc::clone(&unlocked) as _).await.unwrap();
        Self { registry: Arc::new(registry), unlocked, store }
    }

    async fn info(&self) -> VolumeInfo {
        self.registry.list().await.unwrap().remove(0)
    }

    /// With the secrets that stay, whatever has become of the volume.
    async fn unlock(&self) {
        let info = self.info().await;
        if info.sealed {
            let (ring, _) = keyrings::keyring(&*self.store, info.id).await.unwrap().unwrap();
            let master = ring.unlock(&secret(1)).unwrap();
            self.unlocked.put(info.id, Arc::new(ring.keys(&master).unwrap()));
        }
    }

    async fn work(&self) -> Work {
        let info = self.info().await;
        let keys = self.unlocked.of(info.id).unwrap();
        Work::new("tank", &info, &self.registry, Arc::clone(&self.store), keys)
    }

    async fn change_over(&self, sealing: Sealing) -> FsResult<()> {
        let info = self.info().await;
        let new = new_keys(self, sealing).await;
        let keyring = new.store(Arc::clone(&self.store), Arc::clone(&self.unlocked), info.id);
        self.registry.begin_sealing("v", sealing, keyring).await.map(drop)
    }

    /// The keyring never came to be.
    async fn lacks(&self, sealing: Sealing) -> bool {
        let info = self.info().await;
        match sealing {
            Sealing::Encrypt => !info.sealed,
            Sealing::Rekey => {
                let (ring, _) = keyrings::keyring(&*self.store, info.id).await.unwrap().unwrap();
                ring.unlock(&secret(2)).is_ok()
            }
        }
    }

    /// To the end, as [`Work::run`] does without its pauses.
    async fn end(&self) -> std::result::Result<(), String> {
        let work = self.work().await;
        loop {
            let passed = work.pass().await.map_err(|error| error.to_string())?;
            if let Some(fault) = passed.faults.first() {
                return Err(fault.clone());
            }
            if passed.sealed == 0 {
                return work.end().await.map_err(|failure| failure.message);
            }
        }
    }
}

fn secret(byte: u8) -> Secret {
    Secret::KeyFile(vec![byte; 64].into())
}

async fn new_keys(life: &Life, sealing: Sealing) -> NewKeys {
    let work = larder_crypt::Work::for_memory(0);
    let (ring, master, mode) = match sealing {
        Sealing::Encrypt => {
            let (mut ring, master) = Keyring::create(Cipher::Aes256Gcm, "first", &secret(1), work, 7).unwrap();
            ring.add_slot(&master, "lost", &secret(2), work, 7).unwrap();
            (ring, master, PutMode::Overwrite)
        }
        Sealing::Rekey => {
            let (ring, version) = keyrings::keyring(&*life.store, life.info().await.id).await.unwrap().unwrap();
            let (ring, master) = ring.rekeyed(&[secret(1)], &["lost".into()], None, 8).unwrap();
            (ring, master, PutMode::Update(version))
        }
    };
    let keys = ring.keys(&master).unwrap();
    NewKeys { ring, keys, mode, recovery: None }
}

async fn files_of(volume: &Volume) -> Vec<(Ino, Vec<u8>)> {
    let mut files = Vec::new();
    for number in 0..8u64 {
        let name = format!("telling-name-{number}");
        let attr = volume.lookup(&Cred::root(), Ino::ROOT, name.as_bytes(), NameMatch::Exact).await.unwrap();
        files.push((attr.id.ino, volume.read(attr.id.ino, 0, IO_BYTES_MAX).await.unwrap().chunks.concat()));
    }
    files
}

/// A volume in clear with files in tables, segments, the log and a snapshot.
async fn written(disks: &Disks) -> Vec<(Ino, Vec<u8>)> {
    let life = Life::begin(disks, Arc::clone(&disks.store) as _).await;
    life.registry.create("v", Properties::default()).await.unwrap();
    let volume = life.registry.volume("v").await.unwrap();
    for number in 0..8u8 {
        let name = format!("telling-name-{number}");
        let (attr, ..) = volume
            .create(&Cred::root(), Ino::ROOT, name.as_bytes(), CreateMode::Guarded, SetAttr::default())
            .await
            .unwrap();
        let mut noise = vec![number];
        noise.extend(
            (0..2000 * u64::from(number))
                .flat_map(|at| larder_base::checksum::checksum(u64::from(number), &at.to_le_bytes()).to_le_bytes()),
        );
        let content = vec![Bytes::from(noise), Bytes::from_static(PLAIN)];
        volume.write(&Cred::root(), attr.id.ino, 0, content, Stability::FileSync).await.unwrap();
        if number == 4 {
            volume.snapshot("a").await.unwrap();
        }
    }
    let want = files_of(&volume).await;
    drop(volume);
    life.registry.close().await.unwrap();
    want
}

async fn check_whole(life: &Life, want: &[(Ino, Vec<u8>)]) {
    let volume = life.registry.volume("v").await.unwrap();
    assert_eq!(files_of(&volume).await, want);
    assert_eq!(volume.snapshots().len(), 1);
    drop(volume);
    assert_eq!(life.registry.check("v", true).await.unwrap().problems, Vec::<String>::new());
}

/// All objects, and all that the log replays.
async fn everything(disks: &Disks) -> Vec<(String, Bytes)> {
    let objects: Vec<ObjectMeta> = disks.store.list(None).try_collect().await.unwrap();
    let mut all = Vec::new();
    for object in objects {
        let bytes = disks.store.get(&object.location).await.unwrap().bytes().await.unwrap();
        all.push((object.location.to_string(), bytes));
    }
    all
}

async fn cut_after(puts: usize, sealing: Sealing) -> bool {
    let disks = Disks { store: Arc::new(InMemory::new()), log: MemLog::default() };
    let want = written(&disks).await;
    if sealing == Sealing::Rekey {
        let life = Life::begin(&disks, Arc::clone(&disks.store) as _).await;
        life.change_over(Sealing::Encrypt).await.unwrap();
        life.end().await.unwrap();
        life.registry.close().await.unwrap();
    }
    let before = everything(&disks).await;
    let cut = CutStore { inner: Arc::clone(&disks.store), left: AtomicUsize::new(puts), began: AtomicBool::new(false) };
    let cut = Arc::new(cut);
    let life = Life::begin(&disks, Arc::clone(&cut) as _).await;
    life.unlock().await;
    let mut is_whole = life.change_over(sealing).await.is_ok();
    if is_whole {
        cut.began.store(true, Ordering::SeqCst);
        is_whole = life.end().await.is_ok();
    }
    drop(life);
    // The next life: nobody is locked out, and nothing is lost.
    let life = Life::begin(&disks, Arc::clone(&disks.store) as _).await;
    life.unlock().await;
    check_whole(&life, &want).await;
    if life.info().await.sealing.is_some() {
        life.end().await.unwrap();
    }
    // A cut before the keyring leaves the keys of before. Nobody was answered, so it is asked for again.
    if life.lacks(sealing).await {
        assert!(!is_whole);
        life.change_over(sealing).await.unwrap();
        life.end().await.unwrap();
    }
    check_whole(&life, &want).await;
    life.registry.close().await.unwrap();
    let life = Life::begin(&disks, Arc::clone(&disks.store) as _).await;
    let info = life.info().await;
    assert!(info.sealed && info.sealing.is_none());
    assert!(matches!(life.registry.volume("v").await, Err(FsError::Locked)));
    life.unlock().await;
    check_whole(&life, &want).await;
    let in_clear = |bytes: &Bytes| {
        [PLAIN, b"telling-name"].iter().any(|word| bytes.windows(word.len()).any(|window| window == *word))
    };
    let after = everything(&disks).await;
    let found: Vec<&String> = after.iter().filter(|(_, bytes)| in_clear(bytes)).map(|(path, _)| path).collect();
    assert!(found.is_empty(), "cut after {puts} puts: {found:?}");
    if sealing == Sealing::Rekey {
        check_nothing_for_a_thief(&before, &after, info.id);
    } else {
        assert!(before.iter().any(|(_, bytes)| in_clear(bytes)), "the search finds it where it is");
    }
    life.registry.close().await.unwrap();
    is_whole
}

/// The keyring of before, with the secret that was let go, opens no object.
fn check_nothing_for_a_thief(before: &[(String, Bytes)], after: &[(String, Bytes)], id: Uuid) {
    let folder = format!("{}/", folder_of(id));
    let ring_of = |all: &[(String, Bytes)]| {
        let found = all.iter().find(|(path, _)| path.ends_with("keyring.json")).unwrap();
        Keyring::decode(&found.1).unwrap()
    };
    let (old, new) = (ring_of(before), ring_of(after));
    let master = old.unlock(&secret(2)).unwrap();
    assert!(new.unlock(&secret(2)).is_err() && new.keys(&master).is_err() && !new.has_old_keys());
    let known = old.keys(&master).unwrap().newest();
    for (path, bytes) in after {
        let sealed = path.strip_prefix(&folder).is_some_and(|rest| rest.contains('/'));
        if sealed {
            let header = larder_crypt::object::Header::decode(bytes).unwrap();
            assert!(header.generation > known, "{path} is still sealed with the old key");
        }
    }
}

async fn cut_everywhere(sealing: Sealing) {
    let mut puts = 0;
    while !cut_after(puts, sealing).await {
        // The first puts are documents, then come objects: of those every third.
        puts += if puts < 6 { 1 } else { 3 };
        assert!(puts < 1000);
    }
    assert!(puts > 6, "it has objects");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_encryption_that_is_cut_off_after_any_put_is_ended_by_the_next_life() {
    cut_everywhere(Sealing::Encrypt).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_key_that_is_cut_off_after_any_put_locks_nobody_out() {
    cut_everywhere(Sealing::Rekey).await;
}

#[path = "sealing_replica_tests.rs"]
mod replicas;
