//! Schedules of files in a volume on a pool.
//!
//! Each client works in a directory of its own: one task changes things, one operation after the other, and others commit them
//! meanwhile. What clients share is all that lies below: the journal, segments, the engine, the pool. An operation that was
//! under way when power was cut has happened or has not. In some lives the volume is relaxed (`sync=relaxed`).

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;
use larder_crypt::Resealing;
use larder_fs::{Cred, FileId, FsError, Ino, NameMatch, SetAttr, WriteVerifier};
use larder_pool::{Pool, PoolState};
use larder_volume::{Backing, MemoryBudget, Properties, Registry, Sealing, Space, SyncMode, Volume, VolumeInfo};
use object_store::ObjectStore;
use parking_lot::Mutex;
use rand::Rng;
use rand::rngs::StdRng;

use crate::chance;
use crate::churn::Churner;
use crate::clones::{self, COUNT_MAX, Clones};
use crate::disk::Plant;
use crate::early::{EarlyReceipts, EarlyStore, EarlyTrims};
use crate::file_client::Client;
use crate::front::{Answer, Front};
use crate::history::Model;
use crate::plan::{Trouble, cut_point};
use crate::sealing::SimKeys;
use crate::session::{Outcome, Run, Stop, text};
use crate::snapshots::{self, Shots, Stage};
use crate::tree_model::{Tree, explore};
use crate::turns::SimClock;

const VOLUME: &str = "v";
const MEMORY_BYTES: u64 = 32 << 20;
/// The background work after an opening is done by then.
const SETTLE: Duration = Duration::from_secs(2);
/// Disks that are slow, or fail now and then, may take this long.
const SETTLE_MAX: Duration = Duration::from_secs(120);
/// Whatever was answered is durable after this time, asked for or not.
const DURABLE_AFTER: Duration = Duration::from_secs(5);

pub struct VolumeRun {
    run: Arc<Run>,
    models: Vec<Arc<Mutex<Model>>>,
    shots: Arc<Mutex<Shots>>,
    clones: Mutex<Clones>,
    verifier: Mutex<Option<WriteVerifier>>,
    is_made: Mutex<bool>,
    /// How often the volume was opened.
    openings: AtomicU32,
}

/// An open pool with its volume.
struct Open {
    pool: Arc<Pool>,
    store: Arc<dyn ObjectStore>,
    keys: Arc<SimKeys>,
    registry: Registry,
    volume: Volume,
    /// How the volume is to behave: with an answer planted that comes too early it may be opened as relaxed for that alone.
    sync: SyncMode,
}

struct PoolSpace(Arc<Pool>);

impl Space for PoolSpace {
    fn space(&self) -> (u64, u64) {
        self.0.space()
    }
}

impl VolumeRun {
    pub fn new(run: Arc<Run>) -> Self {
        let models = (0..run.plan.clients).map(|_| Arc::default()).collect();
        Self {
            run,
            models,
            shots: Arc::default(),
            clones: Mutex::default(),
            verifier: Mutex::default(),
            is_made: Mutex::default(),
            openings: AtomicU32::new(0),
        }
    }

    /// One life of the process.
    pub async fn session(&self, life: u32) -> Outcome<()> {
        let run = &self.run;
        let is_last = life + 1 == run.plan.sessions;
        if is_last {
            run.end_trouble();
        } else if life > 0 {
            run.trouble_at_start();
        }
        if run.is_beyond() {
            return self.beyond(life).await;
        }
        let Some(open) = self.start(life, is_last).await? else { return Ok(()) };
        self.verify(&open, is_last).await?;
        let open = if !is_last && run.plan.has_snapshots && run.one_in(4) { self.go_back(open).await? } else { open };
        if !is_last && run.plan.has_snapshots && run.one_in(3) {
            self.clone_or_destroy(&open).await?;
        }
        // Of its own chance, so that schedules without it are what they were.
        let mut random = chance::generator(run.seed ^ (u64::from(life) << 40), "seal anew");
        let open = if is_last || random.random_range(0..6) == 0 {
            self.seal_anew(open, is_last, &mut random).await?
        } else {
            open
        };
        if !is_last {
            run.choose_end(4000);
            run.catch_up(&open.pool).await?;
            self.work(&open).await?;
        }
        self.end(open, is_last).await
    }

    /// More is struck than the layout survives: it is refused, or everything is there. Then somebody puts all back as it was.
    async fn beyond(&self, life: u32) -> Outcome<()> {
        let run = &self.run;
        let before: Vec<Model> = self.models.iter().map(|model| model.lock().clone()).collect();
        let (shots, clones) = (self.shots.lock().clone(), self.clones.lock().clone());
        if let Ok(pool) = run.open(life).await?
            && let Ok(open) = run.powered(self.open_volume(Arc::new(pool))).await?
        {
            self.verify(&open, false).await?;
        }
        for (model, before) in self.models.iter().zip(before) {
            *model.lock() = before;
        }
        (*self.shots.lock(), *self.clones.lock()) = (shots, clones);
        run.undo();
        Ok(())
    }

    async fn start(&self, life: u32, is_last: bool) -> Outcome<Option<Open>> {
        let run = &self.run;
        let pool = if life == 0 {
            run.create().await?
        } else {
            if !is_last && run.one_in(3) {
                run.world.cut_after(Some(run.draw(|random| cut_point(random, 300))));
            }
            match run.open(life).await? {
                Ok(pool) => pool,
                Err(_) if run.plan.trouble == Trouble::Exceeded && !is_last => return Ok(None),
                Err(error) => return Err(run.unexpected("opening the pool", text(&error))),
            }
        };
        let pool = Arc::new(pool);
        match run.powered(self.open_volume(pool.clone())).await? {
            Ok(open) => Ok(Some(open)),
            Err(_) if run.may_refuse() && !is_last => Ok(None),
            Err(error) => Err(run.unexpected("opening the volume", error)),
        }
    }

    async fn open_volume(&self, pool: Arc<Pool>) -> Result<Open, FsError> {
        let (store, mut log) = (EarlyStore::over(pool.store(), self.run.world.planted()), pool.log());
        let (below, ring) = (Arc::clone(&store), Arc::clone(&self.run.ring));
        let keys = Arc::new(SimKeys::new(self.run.seed, self.openings.fetch_add(1, Ordering::Relaxed), ring));
        match self.run.world.planted() {
            Some(Plant::EarlyTrim) => log = Arc::new(EarlyTrims(log)),
            Some(Plant::EarlyReceipt) => log = Arc::new(EarlyReceipts(log)),
            _ => {}
        }
        let space = Arc::new(PoolSpace(pool.clone()));
        let backing = Backing { store, log: Some(log), space, clock: Arc::new(SimClock) };
        let memory = MemoryBudget { total_bytes: MEMORY_BYTES };
        let registry = Registry::open_sealed(backing, memory, Arc::clone(&keys) as _).await?;
        if !*self.is_made.lock() {
            match registry.enter(VOLUME, self.properties(), self.run.plan.is_sealed).await {
                Ok(_) | Err(FsError::Exists) => {}
                Err(error) => return Err(error),
            }
        }
        let volume = registry.volume(VOLUME).await?;
        if !*self.is_made.lock() {
            self.make_directories(&volume).await?;
            *self.is_made.lock() = true;
        }
        let sync = if self.run.one_in(3) { SyncMode::Relaxed } else { SyncMode::Standard };
        let is_relaxed = sync == SyncMode::Relaxed || self.early().is_some_and(Answer::needs_relaxed);
        self.set_sync(&registry, if is_relaxed { SyncMode::Relaxed } else { SyncMode::Standard }).await?;
        Ok(Open { pool, store: below, keys, registry, volume, sync })
    }

    /// Encrypts the volume, gives it another key, or goes on with that; power may be cut on the way. Now and then objects of both kinds are
    /// left for the clients.
    async fn seal_anew(&self, open: Open, is_last: bool, random: &mut StdRng) -> Outcome<Open> {
        let run = &self.run;
        let listed = run.powered(open.registry.list()).await?.map_err(|error| run.unexpected("listing", error))?;
        let Some(info) = listed.into_iter().find(|info| info.name == VOLUME) else { return Ok(open) };
        if info.sealing.is_none() && (is_last || self.clones.lock().len() > 0) {
            return Ok(open);
        }
        let leaves_both = !is_last && random.random_range(0..3) == 0;
        if !is_last && random.random_range(0..2) == 0 {
            run.world.cut_after(Some(cut_point(random, 300)));
        }
        let Open { pool, store, keys, registry, volume, sync } = open;
        drop(volume);
        let done = run.powered(self.seal_objects((&store, &keys, &registry), info, leaves_both)).await?;
        let opened = match done {
            Ok(()) => run.powered(registry.volume(VOLUME)).await?,
            Err(error) => Err(error),
        };
        run.world.cut_after(None);
        match opened {
            Ok(volume) => Ok(Open { pool, store, keys, registry, volume, sync }),
            // The next opening goes on.
            Err(_) if !is_last && (run.may_refuse() || run.may_be_late()) => {
                run.world.cut_now();
                Err(Stop::Cut)
            }
            Err(error) => Err(run.unexpected("sealing the volume anew", error)),
        }
    }

    async fn seal_objects(
        &self,
        (store, keys, registry): (&Arc<dyn ObjectStore>, &SimKeys, &Registry),
        info: VolumeInfo,
        leaves_both: bool,
    ) -> Result<(), FsError> {
        let run = &self.run;
        let info = match info.sealing {
            Some(_) => info,
            None => {
                let sealing = if info.sealed { Sealing::Rekey } else { Sealing::Encrypt };
                run.world.note(|| format!("the volume is to be {}", sealing.word()));
                let ring = async {
                    if sealing == Sealing::Rekey {
                        run.ring.add();
                    }
                    Ok(())
                };
                registry.begin_sealing(VOLUME, sealing, ring).await?
            }
        };
        if leaves_both {
            return Ok(());
        }
        // Its background work goes on meanwhile.
        let _open = registry.volume(VOLUME).await?;
        let resealing = Resealing {
            store: Arc::clone(store),
            prefix: object_store::path::Path::from(info.prefix().trim_end_matches('/')),
            keys: keys.keys(),
            from_clear: info.sealing == Some(Sealing::Encrypt),
        };
        loop {
            let passed = resealing.pass(|_| {}).await.map_err(|error| FsError::Io(error.to_string().into()))?;
            if let Some(fault) = passed.faults.first() {
                return Err(FsError::Io(fault.clone().into()));
            }
            if passed.sealed == 0 {
                break;
            }
        }
        run.ring.forget_old();
        registry.end_sealing(info.id).await?;
        run.done("seal-anew");
        Ok(())
    }

    /// The answer that a test has given too early.
    fn early(&self) -> Option<Answer> {
        match self.run.world.planted() {
            Some(Plant::Answer(answer)) => Some(answer),
            _ => None,
        }
    }

    async fn set_sync(&self, registry: &Registry, sync: SyncMode) -> Result<(), FsError> {
        let volumes = registry.list().await?;
        let properties = volumes.into_iter().find(|info| info.name == VOLUME).map(|info| info.properties);
        match properties {
            Some(properties) if properties.sync != sync => {
                registry.set(VOLUME, Properties { sync, ..properties }).await.map(drop)
            }
            _ => Ok(()),
        }
    }

    fn properties(&self) -> Properties {
        let record_bytes = self.run.draw(|random| 4096 << random.random_range(0..6));
        Properties { record_bytes, ..Properties::default() }
    }

    async fn make_directories(&self, volume: &Volume) -> Result<(), FsError> {
        for (number, model) in self.models.iter().enumerate() {
            let name = format!("c{number}");
            let set = SetAttr { mode: Some(0o755), ..SetAttr::default() };
            let id = match volume.mkdir(&Cred::root(), Ino::ROOT, name.as_bytes(), set).await {
                Ok((attr, _)) => attr.id,
                Err(FsError::Exists) => {
                    volume.lookup(&Cred::root(), Ino::ROOT, name.as_bytes(), NameMatch::Exact).await?.id
                }
                Err(error) => return Err(error),
            };
            *model.lock() = Model::new(Tree::new(Some(id)));
        }
        Ok(())
    }

    /// Takes the volume back to some snapshot; power may be cut on the way.
    async fn go_back(&self, open: Open) -> Outcome<Open> {
        let run = &self.run;
        let taken = self.shots.lock().taken();
        if taken.is_empty() {
            return Ok(open);
        }
        let name = taken[run.draw(|random| random.random_range(0..taken.len()))].clone();
        if self.shots.lock().whole(&name).is_none() {
            return Ok(open);
        }
        let Open { pool, store, keys, registry, volume, sync } = open;
        drop(volume);
        run.world.note(|| format!("the volume goes back to {name}"));
        self.shots.lock().going_back = Some(name.clone());
        if run.one_in(2) {
            run.world.cut_after(Some(run.draw(|random| cut_point(random, 200))));
        }
        let went = run.powered(registry.roll_back(VOLUME, &name)).await?;
        let opened = match went {
            Ok(()) => run.powered(registry.volume(VOLUME)).await?,
            Err(error) => Err(error),
        };
        run.world.cut_after(None);
        match opened {
            Ok(volume) => {
                let open = Open { pool, store, keys, registry, volume, sync };
                if !self.went_back(&open).await? {
                    return Err(Stop::Failed("the volume was answered to have gone back, and has not".to_owned()));
                }
                Ok(open)
            }
            // The next opening goes on.
            Err(_) if run.may_refuse() || run.may_be_late() => {
                run.world.cut_now();
                Err(Stop::Cut)
            }
            Err(error) => Err(run.unexpected("going back to a snapshot", error)),
        }
    }

    /// Makes a clone of some snapshot, or destroys one; power may be cut on the way.
    async fn clone_or_destroy(&self, open: &Open) -> Outcome<()> {
        let run = &self.run;
        let (there, taken) = (self.clones.lock().taken(), self.shots.lock().taken());
        let destroys = !there.is_empty() && (run.one_in(2) || self.clones.lock().len() >= COUNT_MAX);
        let of = if destroys { &there } else { &taken };
        if of.is_empty() {
            return Ok(());
        }
        let name = of[run.draw(|random| random.random_range(0..of.len()))].clone();
        let shows = self.shots.lock().whole(&name).cloned();
        if run.one_in(2) {
            run.world.cut_after(Some(run.draw(|random| cut_point(random, 200))));
        }
        let done = if destroys {
            run.world.note(|| format!("destroys the clone {name}"));
            self.clones.lock().set(&name, Stage::Leaving);
            let destroyed = run.powered(open.registry.destroy(&name)).await?;
            if destroyed.is_ok() {
                self.clones.lock().forget(&name);
                run.done("destroy-clone");
            }
            destroyed
        } else if let Some(shows) = shows {
            match run.powered(open.registry.list()).await? {
                Err(error) => Err(error),
                // A clone is refused until that has ended.
                Ok(infos) if infos.iter().any(|info| info.name == VOLUME && info.sealing.is_some()) => Ok(()),
                Ok(_) => {
                    let clone = self.clones.lock().begin(shows);
                    run.world.note(|| format!("clones {name} as {clone}"));
                    let made = run.powered(open.registry.clone_snapshot(VOLUME, &name, &clone)).await?;
                    if made.is_ok() {
                        self.clones.lock().set(&clone, Stage::Taken);
                        run.done("clone");
                    }
                    made.map(drop)
                }
            }
        } else {
            Ok(())
        };
        run.world.cut_after(None);
        match done {
            // Whether it is there is looked at the next opening.
            Err(_) if run.may_refuse() || run.may_be_late() => {
                run.world.cut_now();
                Err(Stop::Cut)
            }
            Err(error) => Err(run.unexpected("cloning a snapshot", error)),
            Ok(()) => Ok(()),
        }
    }

    /// A clone needs the volume no more, and shows what it did.
    async fn free_clones(&self, open: &Open) -> Outcome<()> {
        let run = &self.run;
        let there = self.clones.lock().taken();
        for name in there {
            if run.one_in(2) {
                let freed = run.powered(open.registry.promote(&name)).await?;
                freed.map_err(|error| run.unexpected("making a clone independent", error))?;
            }
            let report = run.powered(open.registry.check(&name, true)).await?;
            let report = report.map_err(|error| run.unexpected("checking a clone", error))?;
            if let Some(problem) = report.problems.first() {
                return Err(Stop::Failed(format!("check of the clone {name}: {problem}")));
            }
        }
        Ok(())
    }

    /// Whether the volume has gone back to where it was asked to; then that is how things are.
    async fn went_back(&self, open: &Open) -> Outcome<bool> {
        let run = &self.run;
        let Some(name) = self.shots.lock().going_back.clone() else { return Ok(false) };
        let found = match run.powered(explore(&open.volume, Ino::ROOT)).await? {
            Ok(found) => found,
            Err(_) if run.may_refuse() || run.is_beyond() => return Ok(false),
            Err(error) => return Err(run.unexpected("looking where the volume went", error)),
        };
        // Known only now: a cut on the way leaves the question to the next opening.
        self.shots.lock().going_back = None;
        let compared = self.shots.lock().whole(&name).map(|whole| found.is_as(whole, true));
        run.world.note(|| format!("compared with {name}: {compared:?}"));
        let is_back = compared.is_some_and(|compared| compared.is_ok());
        if is_back {
            for (number, model) in self.models.iter().enumerate() {
                if let Some(own) = found.child(&format!("c{number}")) {
                    *model.lock() = Model::of(own);
                }
            }
        }
        Ok(is_back)
    }

    async fn work(&self, open: &Open) -> Outcome<()> {
        let mut tasks: Vec<BoxFuture<'static, ()>> = Vec::new();
        for (number, model) in self.models.iter().enumerate() {
            let front = Front::new(open.volume.clone(), self.early(), open.sync == SyncMode::Standard);
            let is_relaxed = open.sync == SyncMode::Relaxed;
            tasks.push(Box::pin(
                Client::new(self.run.clone(), (model.clone(), self.shots.clone()), front, is_relaxed, number).work(),
            ));
        }
        tasks.push(Box::pin(administer(self.run.clone(), open.pool.clone())));
        if self.run.plan.has_snapshots && self.run.plan.churns {
            let random = chance::generator(self.run.draw(|random| random.random()), "churn");
            if let Some(churner) = Churner::begin(&self.run, &open.volume, &self.shots, random).await? {
                tasks.push(Box::pin(churner.work()));
            }
        }
        self.run.all(tasks).await?;
        if self.run.one_in(3) {
            // Long enough for compaction and for the collection of garbage.
            let minutes = self.run.draw(|random| random.random_range(1..30));
            self.run.powered(tokio::time::sleep(Duration::from_secs(60 * minutes))).await?;
        }
        Ok(())
    }

    async fn end(&self, open: Open, is_last: bool) -> Outcome<()> {
        let run = &self.run;
        if is_last {
            return self.last(open).await;
        }
        match run.draw(|random| random.random_range(0..4)) {
            0 => Ok(()),
            1 => {
                let is_early = self.early() == Some(Answer::Close);
                let closed = if is_early { Ok(()) } else { run.powered(open.registry.close()).await? };
                if let Err(error) = closed {
                    return if run.may_be_late() { Ok(()) } else { Err(run.unexpected("closing the volume", error)) };
                }
                self.all_is_durable();
                match run.powered(open.pool.close()).await? {
                    Err(error) if !run.may_refuse() => Err(run.unexpected("closing the pool", text(&error))),
                    _ => Ok(()),
                }
            }
            _ => {
                run.world.cut_now();
                Err(Stop::Cut)
            }
        }
    }

    /// All is well again: what can be repaired is, and then any m disks may go.
    async fn last(&self, open: Open) -> Outcome<()> {
        let run = &self.run;
        run.powered(open.pool.clear()).await?.map_err(|error| run.unexpected("looking for disks", text(&error)))?;
        run.powered(open.pool.repaired()).await?;
        if run.plan.new_disks.is_some() {
            crate::changes::conclude(run, &open.pool).await?;
        }
        run.powered(open.pool.scrub()).await?.map_err(|error| run.unexpected("scrub", text(&error)))?;
        run.powered(open.pool.repaired()).await?;
        let status = open.pool.status();
        let is_whole = status.state == PoolState::Online;
        if !is_whole && !run.may_lose_a_label() {
            return Err(Stop::Failed(format!("after the repair the pool is {:?}: {}", status.state, status.status)));
        }
        self.verify(&open, true).await?;
        self.free_clones(&open).await?;
        if run.plan.has_snapshots {
            crate::replicas::lay_keyring(run, &open.registry, VOLUME, &open.store).await?;
            crate::replicas::replicate(run, &open.registry, VOLUME, &self.shots).await?;
        }
        run.powered(open.registry.close()).await?.map_err(|error| run.unexpected("closing the volume", error))?;
        self.all_is_durable();
        run.powered(open.pool.close()).await?.map_err(|error| run.unexpected("closing", text(&error)))?;
        drop(open);
        if !is_whole {
            return Ok(());
        }
        let gone = run.take_some_away(&status);
        let opened = run.open(u32::MAX).await?;
        let pool = opened.map_err(|error| run.unexpected(&format!("opening without disks {gone:?}"), text(&error)))?;
        let open = run.powered(self.open_volume(Arc::new(pool))).await?;
        let open = open.map_err(|error| run.unexpected(&format!("the volume without disks {gone:?}"), error))?;
        self.verify(&open, true).await
    }

    // ---- judging ----------------------------------------------------------------------------

    fn all_is_durable(&self) {
        for model in &self.models {
            let mut model = model.lock();
            let promise = model.promise();
            model.keep(&promise);
        }
    }

    async fn verify(&self, open: &Open, is_strict: bool) -> Outcome<()> {
        let run = &self.run;
        let verifier = open.volume.verifier();
        if self.verifier.lock().replace(verifier) == Some(verifier) && !is_strict {
            return Err(Stop::Failed("the write verifier is that of an earlier life".to_owned()));
        }
        if run.plan.trouble == Trouble::None {
            let time = run.ended.lock().saturating_sub(DURABLE_AFTER);
            self.models.iter().for_each(|model| model.lock().keep_all_before(time));
        }
        let may_fail = !is_strict && (run.may_refuse() || run.is_beyond());
        // If it has not, it is as it was.
        self.went_back(open).await?;
        let mut unlinked = Vec::new();
        for (number, model) in self.models.iter().enumerate() {
            match self.verify_client(open, number, model, may_fail).await? {
                Some(gone) => unlinked.extend(gone),
                None => return Ok(()),
            }
        }
        match run.powered(snapshots::verify(&open.volume, &self.shots)).await? {
            Ok(judged) => judged.map_err(Stop::Failed)?,
            Err(_) if may_fail => return Ok(()),
            Err(error) => return Err(run.unexpected("reading snapshots", error)),
        }
        match run.powered(clones::verify(&open.registry, &self.clones)).await? {
            Ok(judged) => judged.map_err(Stop::Failed)?,
            Err(_) if may_fail => return Ok(()),
            Err(error) => return Err(run.unexpected("reading clones", error)),
        }
        run.powered(tokio::time::sleep(SETTLE)).await?;
        let mut waited = SETTLE;
        for id in unlinked {
            while let Ok(attr) = run.powered(open.volume.resolve(id)).await? {
                if waited >= SETTLE_MAX {
                    let links = attr.nlink;
                    return Err(Stop::Failed(format!("{id:?} had no name any more and is back, with {links} links")));
                }
                run.powered(tokio::time::sleep(SETTLE)).await?;
                waited += SETTLE;
            }
        }
        let report = match run.powered(open.registry.check(VOLUME, true)).await? {
            Ok(report) => report,
            Err(_) if may_fail => return Ok(()),
            Err(error) => return Err(run.unexpected("check", error)),
        };
        match report.problems.first() {
            Some(problem) if !may_fail => {
                Err(Stop::Failed(format!("check found {} problems: {problem}", report.problems.len())))
            }
            _ => Ok(()),
        }
    }

    /// Checks the tree of a client. Returns the inodes that must be gone before long, and `None` where the tree may be
    /// unreadable.
    async fn verify_client(
        &self,
        open: &Open,
        number: usize,
        model: &Arc<Mutex<Model>>,
        may_fail: bool,
    ) -> Outcome<Option<Vec<FileId>>> {
        let run = &self.run;
        let Some(top) = model.lock().top() else { return Ok(Some(Vec::new())) };
        let found = match run.powered(explore(&open.volume, top)).await? {
            Ok(found) => found,
            Err(_) if may_fail => return Ok(None),
            Err(error) => return Err(run.unexpected(&format!("reading c{number}"), error)),
        };
        run.world.note(|| format!("found of client{number}: {}", found.outline()));
        model.lock().settle(found).map(Some).map_err(|why| Stop::Failed(format!("c{number}{why}")))
    }
}

async fn administer(run: Arc<Run>, pool: Arc<Pool>) {
    for _ in 0..run.plan.operations / 16 {
        run.pause().await;
        if run.plan.new_disks.is_some() && run.one_in(2) {
            crate::changes::change(&run, &pool).await;
            continue;
        }
        let result = match run.draw(|random| random.random_range(0..3)) {
            0 => pool.scrub().await.map(|_| ()),
            1 => pool.clear().await,
            _ => pool.check().await,
        };
        if let Err(error) = result
            && !run.may_refuse()
        {
            run.fail(format!("an administrator's command: {}", text(&error)));
        }
    }
}
