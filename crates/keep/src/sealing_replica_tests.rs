//! What opens a replica, through cuts, older streams and a sender that is in the hands of somebody else.
//!
//! After each step the replica opens with exactly the secrets of one moment of its volume, not older than the last keyring that it
//! acknowledged, and with those that were added at the replica. `keyring.signed_by_its_master`, `keyring.slots_here_are_apart`

use std::collections::BTreeSet;

use futures::StreamExt;
use larder_crypt::Work as Cost;
use larder_volume::Seals;

use super::*;

/// Takes any keyring that comes: the fault that the schedule has to find.
struct Gullible(Arc<Unlocked>);

impl Seals for Gullible {
    fn are_unlocked(&self, volume: &VolumeInfo) -> bool {
        self.0.are_unlocked(volume)
    }

    fn decorate(&self, volume: &VolumeInfo, beneath: larder_volume::Beneath) -> FsResult<larder_volume::Beneath> {
        self.0.decorate(volume, beneath)
    }

    fn share(&self, from: &VolumeInfo, to: &VolumeInfo) -> FsResult<()> {
        self.0.share(from, to)
    }

    fn renewed_keyring(&self, _own: &[u8], came: &[u8]) -> FsResult<Option<Vec<u8>>> {
        Ok(Some(came.to_vec()))
    }
}

struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = larder_base::checksum::checksum(self.0, b"next");
        (self.0 % bound as u64) as usize
    }
}

struct Schedule {
    near: Life,
    far: Registry,
    far_store: Arc<CutStore>,
    far_keys: Arc<Unlocked>,
    chance: Chance,
    /// The secrets of the volume at each moment, oldest first.
    history: Vec<BTreeSet<u8>>,
    /// The moment of the newest keyring that the replica acknowledged.
    acknowledged: usize,
    added_there: BTreeSet<u8>,
    next_secret: u8,
    snapshots: usize,
    streams: Vec<Vec<Bytes>>,
}

async fn ring_in(store: &dyn ObjectStore, id: Uuid) -> (Keyring, object_store::UpdateVersion) {
    keyrings::keyring(store, id).await.unwrap().unwrap()
}

/// No beginning of an id.
fn label(secret: u8) -> String {
    format!("slot {secret}")
}

fn cost() -> Cost {
    Cost::for_memory(0)
}

impl Schedule {
    async fn begin(seed: u64, is_gullible: bool) -> Self {
        let disks = Disks { store: Arc::new(InMemory::new()), log: MemLog::default() };
        let near = Life::begin(&disks, Arc::clone(&disks.store) as _).await;
        let info = near.registry.enter("v", Properties::default(), true).await.unwrap();
        let (ring, master) = Keyring::create(Cipher::Aes256Gcm, &label(1), &secret(1), cost(), 7).unwrap();
        keyrings::write_keyring(&*near.store, info.id, &ring, PutMode::Create).await.unwrap();
        near.unlocked.put(info.id, Arc::new(ring.keys(&master).unwrap()));
        let volume = near.registry.volume("v").await.unwrap();
        let set = SetAttr::default();
        volume.create(&Cred::root(), Ino::ROOT, b"f", CreateMode::Guarded, set).await.unwrap();
        volume.snapshot("s0").await.unwrap();
        let inner = Arc::new(InMemory::new());
        let far_store = Arc::new(CutStore { inner, left: AtomicUsize::new(usize::MAX), began: AtomicBool::new(true) });
        let far_keys = Arc::<Unlocked>::default();
        let seals: Arc<dyn Seals> =
            if is_gullible { Arc::new(Gullible(Arc::clone(&far_keys))) } else { Arc::clone(&far_keys) as _ };
        let backing = Backing {
            store: Arc::clone(&far_store) as _,
            log: Some(Arc::new(MemLog::default())),
            space: Arc::new(Room),
            clock: Arc::new(SystemClock::default()),
        };
        let far = Registry::open_sealed(backing, MemoryBudget { total_bytes: 64 << 20 }, seals).await.unwrap();
        let schedule = Self {
            near,
            far,
            far_store,
            far_keys,
            chance: Chance(seed),
            history: vec![BTreeSet::from([1])],
            acknowledged: 0,
            added_there: BTreeSet::new(),
            next_secret: 2,
            snapshots: 1,
            streams: Vec::new(),
        };
        let first = schedule.stream("s0", None, false).await;
        schedule.receive(first).await.unwrap();
        schedule
    }

    async fn stream(&self, snapshot: &str, from: Option<&str>, keys_only: bool) -> Vec<Bytes> {
        let outgoing = match keys_only {
            true => self.near.registry.send_keyring("v", snapshot).await,
            false => self.near.registry.send("v", snapshot, from, None).await,
        };
        outgoing.unwrap().stream.try_collect().await.unwrap()
    }

    async fn receive(&self, stream: Vec<Bytes>) -> FsResult<()> {
        let input = futures::stream::iter(stream.into_iter().map(Ok)).boxed();
        self.far.receive("r", input).await.map(drop)
    }

    async fn id(registry: &Registry) -> Uuid {
        registry.list().await.unwrap()[0].id
    }

    fn fresh(&mut self) -> u8 {
        self.next_secret += 1;
        self.next_secret
    }

    async fn change_volume(&mut self) {
        let id = Self::id(&self.near.registry).await;
        let (mut ring, version) = ring_in(&*self.near.store, id).await;
        let mut set = self.history.last().unwrap().clone();
        let master = ring.unlock(&secret(*set.first().unwrap())).unwrap();
        if set.len() > 1 && self.chance.below(2) == 0 {
            let gone = *set.iter().nth(self.chance.below(set.len())).unwrap();
            ring.remove_slot(&master, &label(gone)).unwrap();
            set.remove(&gone);
        } else {
            let new = self.fresh();
            ring.add_slot(&master, &label(new), &secret(new), cost(), 8).unwrap();
            set.insert(new);
        }
        keyrings::write_keyring(&*self.near.store, id, &ring, PutMode::Update(version)).await.unwrap();
        self.history.push(set);
    }

    async fn change_replica(&mut self) {
        let id = Self::id(&self.far).await;
        let (mut ring, version) = ring_in(&*self.far_store, id).await;
        let known = (1..=self.next_secret).find_map(|byte| ring.unlock(&secret(byte)).ok());
        let Some(master) = known else { return };
        let new = self.fresh();
        ring.add_slot_here(&master, &format!("here {new}"), &secret(new), cost(), 8).unwrap();
        keyrings::write_keyring(&*self.far_store, id, &ring, PutMode::Update(version)).await.unwrap();
        self.added_there.insert(new);
    }

    /// A keyring that the volume's master key did not sign, sent by the volume's own machine.
    async fn forge(&mut self) {
        let id = Self::id(&self.near.registry).await;
        let path = folder_of(id).join("keyring.json");
        let honest = self.near.store.get(&path).await.unwrap().bytes().await.unwrap();
        let (mut other, master) = Keyring::create(Cipher::Aes256Gcm, "evil", &secret(255), cost(), 9).unwrap();
        other.add_slot(&master, "evil, too", &secret(254), cost(), 9).unwrap();
        let mut forged: serde_json::Value = serde_json::from_slice(&honest).unwrap();
        let evil: serde_json::Value = serde_json::from_slice(&other.encode()).unwrap();
        forged["changes"] = serde_json::json!(self.chance.below(1000));
        match self.chance.below(4) {
            0 => forged["slots"] = evil["slots"].clone(),
            1 => {
                forged["slots"] = evil["slots"].clone();
                forged["signature"] = evil["signature"].clone();
            }
            2 => forged = evil,
            _ => {
                if let Some(slots) = forged["slots"].as_array_mut() {
                    slots.truncate(1);
                }
            }
        }
        let put = |bytes: Bytes| self.near.store.put(&path, bytes.into());
        put(serde_json::to_vec(&forged).unwrap().into()).await.unwrap();
        let newest = format!("s{}", self.snapshots_there().await - 1);
        let stream = self.stream(&newest, None, true).await;
        put(honest).await.unwrap();
        let _ = self.receive(stream).await;
    }

    async fn snapshots_there(&self) -> usize {
        self.far.replica("r").await.unwrap().snapshots.len()
    }

    /// An increment, or the keyring alone; whole, cut, or to disks whose power goes.
    async fn send(&mut self) {
        let there = self.snapshots_there().await;
        let from = format!("s{}", there - 1);
        let moment = self.history.len() - 1;
        let mut stream = match self.chance.below(2) {
            0 => self.stream(&from, None, true).await,
            _ => {
                if there == self.snapshots {
                    let volume = self.near.registry.volume("v").await.unwrap();
                    volume.snapshot(&format!("s{there}")).await.unwrap();
                    self.snapshots += 1;
                }
                self.stream(&format!("s{there}"), Some(&from), false).await
            }
        };
        self.streams.push(stream.clone());
        match self.chance.below(3) {
            0 => {
                let mut whole = stream.concat();
                whole.truncate(self.chance.below(whole.len()));
                stream = vec![whole.into()];
            }
            1 => self.far_store.left.store(self.chance.below(4), Ordering::SeqCst),
            _ => {}
        }
        let received = self.receive(stream).await;
        self.far_store.left.store(usize::MAX, Ordering::SeqCst);
        if received.is_ok() {
            self.acknowledged = moment;
        }
    }

    async fn check(&self) -> std::result::Result<(), String> {
        let (ring, _) = ring_in(&*self.far_store, Self::id(&self.far).await).await;
        let opens = |byte: &u8| {
            let master = ring.unlock(&secret(*byte));
            master.is_ok_and(|master| ring.keys(&master).is_ok())
        };
        let all: BTreeSet<u8> = (1..=self.next_secret).chain([254, 255]).filter(opens).collect();
        if !all.is_superset(&self.added_there) {
            return Err(format!("a secret that was added at the replica is lost: {all:?}, {:?}", self.added_there));
        }
        let set: BTreeSet<u8> = all.difference(&self.added_there).copied().collect();
        match self.history.iter().skip(self.acknowledged).any(|moment| *moment == set) {
            true => Ok(()),
            false => {
                Err(format!("{set:?} open it, and at no moment since {:?} the volume", self.history[self.acknowledged]))
            }
        }
    }

    async fn run(&mut self) -> std::result::Result<(), String> {
        for step in 0..24 {
            match self.chance.below(6) {
                0 | 1 => self.change_volume().await,
                2 => self.forge().await,
                3 if !self.streams.is_empty() => {
                    let old = self.streams[self.chance.below(self.streams.len())].clone();
                    let _ = self.receive(old).await;
                }
                4 if self.added_there.len() < 3 => self.change_replica().await,
                _ => self.send().await,
            }
            self.check().await.map_err(|why| format!("step {step}: {why}"))?;
        }
        // An honest sender is heard at last, and the replica opens with what the volume has now.
        let newest = format!("s{}", self.snapshots_there().await - 1);
        self.receive(self.stream(&newest, None, true).await).await.map_err(|error| error.to_string())?;
        self.acknowledged = self.history.len() - 1;
        self.check().await?;
        let id = Self::id(&self.far).await;
        let (ring, _) = ring_in(&*self.far_store, id).await;
        let master = ring.unlock(&secret(*self.history.last().unwrap().last().unwrap())).unwrap();
        self.far_keys.put(id, Arc::new(ring.keys(&master).unwrap()));
        self.far.promote("r").await.map_err(|error| error.to_string())?;
        let volume = self.far.volume("r").await.map_err(|error| error.to_string())?;
        volume.lookup(&Cred::root(), Ino::ROOT, b"f", NameMatch::Exact).await.map_err(|error| error.to_string())?;
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_opens_with_what_its_volume_has_and_nobody_is_locked_out() {
    for seed in 0..24 {
        let outcome = Schedule::begin(seed, false).await.run().await;
        assert_eq!(outcome, Ok(()), "seed {seed}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_schedule_finds_a_replica_that_takes_any_keyring() {
    let mut found = 0;
    for seed in 0..8 {
        // It may also be found by opening nothing at all any more.
        found += usize::from(Schedule::begin(seed, true).await.run().await.is_err());
    }
    assert!(found >= 6, "found in {found} of 8");
}
