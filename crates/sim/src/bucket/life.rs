//! The life of a process on one machine: what a daemon does with a store in a bucket, and its clients.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use larder_base::task;
use larder_fs::{CreateMode, Cred, FileId, FsError, Ino, NameMatch, SetAttr, Stability};
use larder_store::{
    BucketError, BucketLog, BucketUrl, Health, JournaledLog, Machine, Owner, Requests, Retried, TakeOver,
};
use larder_volume::{Backing, MemoryBudget, Properties, Registry, Space, SyncMode, Volume};
use object_store::ObjectStore;
use parking_lot::Mutex;
use rand::Rng;

use super::journal::{Disks, Ground};
use super::known::{Judged, Known, Models, Tenure};
use super::net::{Line, WAY_MS_MAX, Weather};
use super::run::Shape;
use super::seated;
use crate::clones::{self, COUNT_MAX};
use crate::file_client::Client;
use crate::front::Front;
use crate::sealing::SimKeys;
use crate::session::{Outcome, Run, Stop};
use crate::snapshots::{self, Shots, Stage};
use crate::tree_model::explore;
use crate::turns::{SimClock, elapsed};

/// The first volume, and the only one of a store with one seat.
pub const VOLUME: &str = "v";
const MEMORY_BYTES: u64 = 32 << 20;
/// What was late has arrived by then.
pub const ALL_ARRIVED: Duration = Duration::from_secs(700);
/// Nothing may be asked for so long.
pub const IDLE: Duration = Duration::from_secs(600);
/// A durable answer: a proof and an entry of the log, each there and back, and the spacing of entries.
const DURABLE_MS_MAX: u64 = 8 * WAY_MS_MAX;
pub const LOG_ENTRIES_MIN: u64 = 512;
/// Opening a volume in good weather: a log of hundreds of entries, tables and listings.
pub const OPENING_MAX: Duration = Duration::from_secs(30);

/// How a process begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// As `larder up`: the store has to be free.
    Free,
    /// As `larder up --force`.
    Forced,
    /// As `larder up --standby`.
    StandBy,
}

/// Nothing of it is shared with other processes but what is known, and the bucket.
pub struct Life {
    pub run: Arc<Run>,
    pub known: Arc<Known>,
    pub line: Line,
    pub how: How,
    /// The pool whose journal answers.
    pub disks: Option<Disks>,
    pub shape: Shape,
    pub is_last: bool,
    /// It took the store, or its seat.
    pub has_taken: AtomicBool,
    /// What it serves, or looks at just now.
    pub volume: &'static str,
    /// Where it is one of several machines at the store.
    pub seated: Option<seated::Place>,
}

/// An open volume, and the owner.
pub struct Open {
    pub owner: Owner,
    pub registry: Arc<Registry>,
    pub volume: Volume,
    pub tenure: Tenure,
    sync: SyncMode,
    journal: Option<JournaledLog>,
}

impl Open {
    /// A volume that is open already.
    pub fn again(owner: &Owner, registry: &Arc<Registry>, volume: Volume, tenure: Tenure) -> Self {
        let (owner, registry) = (owner.clone(), registry.clone());
        Self { owner, registry, volume, tenure, sync: SyncMode::Standard, journal: None }
    }
}

struct Room {
    line: Line,
    bytes: Option<u64>,
}

impl Space for Room {
    fn space(&self) -> (u64, u64) {
        match self.bytes {
            None => (1 << 50, 1 << 50),
            Some(total) => (total, total.saturating_sub(self.line.net.look(|s3| s3.bytes()))),
        }
    }
}

fn url() -> BucketUrl {
    BucketUrl { bucket: "sim".to_owned(), prefix: String::new() }
}

fn machine(host: usize) -> Machine {
    let name = ["a", "b", "c", "d", "e"].get(host).copied().unwrap_or("z");
    Machine { name: name.to_owned(), id: format!("id-{name}") }
}

pub fn plain(store: &Arc<dyn ObjectStore>, log: BucketLog) -> Ground {
    Ground { store: store.clone(), log: Arc::new(log), journal: None }
}

impl Life {
    /// All of it. Ends when the process ends by itself.
    pub async fn live(self: Arc<Self>) {
        let outcome = self.clone().serve().await;
        if let Err(Stop::Failed(why)) = outcome {
            self.run.fail(why);
        }
        self.run.world.note(|| "ends".to_owned());
        self.end();
    }

    /// The process is no more: nothing of it counts from now on.
    pub fn end(&self) {
        self.line.is_dead.store(true, Ordering::Relaxed);
        self.run.world.cut_now();
        self.line.sent.notify_one();
    }

    /// An error that may be: the process ends, and is started again.
    pub fn gives_up<T>(&self, what: &str, error: impl std::fmt::Display) -> Outcome<T> {
        self.run.check_power()?;
        self.run.world.note(|| format!("{what}: {error}"));
        if self.is_last { Err(Stop::Failed(format!("{what}: {error}"))) } else { Err(Stop::Cut) }
    }

    pub async fn until_killed<T>(&self, work: impl Future<Output = T>) -> Outcome<T> {
        let mut cut = std::pin::pin!(self.run.world.cut.notified());
        cut.as_mut().enable();
        self.run.check_power()?;
        let done = tokio::select! {
            biased;
            () = cut => return Err(Stop::Cut),
            done = work => done,
        };
        self.run.check_power()?;
        Ok(done)
    }

    async fn serve(self: Arc<Self>) -> Outcome<()> {
        let store: Arc<dyn ObjectStore> =
            Arc::new(Retried::new(self.line.clone(), Arc::<Health>::default(), Arc::<Requests>::default()));
        let Some(owner) = self.take(&store).await? else { return Ok(()) };
        let dying = self.clone();
        owner.on_loss(move |error| {
            dying.run.world.note(|| format!("lost the store: {error}"));
            dying.end();
        });
        self.until_killed(owner.await_silence()).await?;
        if self.how == How::StandBy {
            let owner = owner.clone();
            drop(task::spawn(async move { owner.beat().await }));
        }
        if let Some(place) = &self.seated {
            return seated::serve(&self, place, store, owner).await;
        }
        let begun = elapsed();
        let ground = self.ground(&store, &owner).await?;
        let opened = self.run.powered(self.open(ground, &owner)).await?;
        let open = match opened {
            Ok(open) => open,
            Err(error) => return self.gives_up("opening", error),
        };
        self.run.world.note(|| format!("has opened the volume as epoch {}", owner.epoch()));
        if self.is_last && elapsed() - begun > OPENING_MAX {
            return Err(Stop::Failed(format!("opening the volume took {:?}", elapsed() - begun)));
        }
        let Some((models, shots)) = self.verify(&open).await? else { return Ok(()) };
        if self.run.plan.has_snapshots && self.run.one_in(3) {
            self.clone_or_destroy(&open).await?;
        }
        self.work(&open, &models, &shots).await?;
        if self.is_last { self.conclude(open, &store).await } else { self.linger(open).await }
    }

    async fn take(&self, store: &Arc<dyn ObjectStore>) -> Outcome<Option<Owner>> {
        let me = machine(self.line.host);
        if self.how == How::StandBy {
            let url = url();
            let stood = Owner::stand_by_seat(store.clone(), &url, &self.line.seat, me.clone(), |_| {});
            if let Err(error) = self.until_killed(stood).await? {
                return self.gives_up("standing by", error);
            }
        }
        let how = if self.how == How::Forced { TakeOver::Forced } else { TakeOver::No };
        match self.run.powered(Owner::take_seat(store.clone(), &url(), &self.line.seat, me, how)).await? {
            Ok(owner) => {
                self.has_taken.store(true, Ordering::Relaxed);
                self.run.world.note(|| format!("took the store, epoch {}", owner.epoch()));
                Ok(Some(owner))
            }
            Err(BucketError::Owned { machine, .. }) if !self.is_last => {
                self.run.world.note(|| format!("{machine} has the store"));
                Ok(None)
            }
            Err(error) => self.gives_up("taking the store", error),
        }
    }

    pub fn log(&self, store: &Arc<dyn ObjectStore>, owner: &Owner) -> BucketLog {
        BucketLog::new(store.clone(), Some(owner.clone())).with_room_for(self.shape.log_entries)
    }

    /// The bucket, and the journal before it if this machine has one.
    async fn ground(&self, store: &Arc<dyn ObjectStore>, owner: &Owner) -> Outcome<Ground> {
        let log = self.log(store, owner);
        let Some(disks) = self.disks.clone() else { return Ok(plain(store, log)) };
        match self.run.powered(disks.answer(store.clone(), owner.clone(), log)).await? {
            Ok(ground) => Ok(ground),
            // What a successor has taken is nobody's fault; what has no place in its own bucket is.
            Err(error @ BucketError::Invalid(_)) => self.contradicts(owner, format!("the journal: {error}")).await,
            Err(error) => self.gives_up("opening the journal", error),
        }
    }

    /// The volumes of its seat.
    pub async fn registry(&self, ground: &Ground) -> Result<Arc<Registry>, FsError> {
        let keys = SimKeys::new(self.run.seed, self.known.next_opening(), Arc::clone(&self.run.ring));
        let backing = Backing {
            store: ground.store.clone(),
            log: Some(ground.log.clone()),
            space: Arc::new(Room { line: self.line.clone(), bytes: self.shape.room_bytes }),
            clock: Arc::new(SimClock),
        };
        let memory = MemoryBudget { total_bytes: MEMORY_BYTES };
        Registry::open_seat(backing, memory, Arc::new(keys), self.line.seat.clone()).await.map(Arc::new)
    }

    async fn open(&self, ground: Ground, owner: &Owner) -> Result<Open, FsError> {
        let registry = self.registry(&ground).await?;
        let tenure = Tenure { epoch: owner.epoch(), ..Tenure::default() };
        self.open_volume(registry, owner, tenure, ground.journal).await
    }

    /// The volume, which is made if there is none.
    pub async fn open_volume(
        &self,
        registry: Arc<Registry>,
        owner: &Owner,
        tenure: Tenure,
        journal: Option<JournaledLog>,
    ) -> Result<Open, FsError> {
        let is_made = self.known.is_made();
        if !is_made {
            let record_bytes = self.shape.record_bytes;
            let properties = Properties { record_bytes, ..Properties::default() };
            match registry.enter(self.volume, properties, self.run.plan.is_sealed).await {
                Ok(_) | Err(FsError::Exists) => {}
                Err(error) => return Err(error),
            }
        }
        let volume = registry.volume(self.volume).await?;
        self.known.opened(tenure, elapsed());
        if !is_made {
            let tops = self.make_directories(&volume).await?;
            self.known.made(tenure, tops);
        }
        let sync = if self.run.one_in(4) { SyncMode::Relaxed } else { SyncMode::Standard };
        let listed = registry.list().await?.into_iter().find(|info| info.name == self.volume);
        if let Some(properties) = listed.map(|info| info.properties).filter(|properties| properties.sync != sync) {
            registry.set(self.volume, Properties { sync, ..properties }).await?;
        }
        Ok(Open { owner: owner.clone(), registry, volume, tenure, sync, journal })
    }

    async fn make_directories(&self, volume: &Volume) -> Result<Vec<FileId>, FsError> {
        let mut tops = Vec::new();
        for number in 0..self.run.plan.clients {
            let name = format!("c{number}");
            let set = SetAttr { mode: Some(0o755), ..SetAttr::default() };
            tops.push(match volume.mkdir(&Cred::root(), Ino::ROOT, name.as_bytes(), set).await {
                Ok((attr, _)) => attr.id,
                Err(FsError::Exists) => {
                    volume.lookup(&Cred::root(), Ino::ROOT, name.as_bytes(), NameMatch::Exact).await?.id
                }
                Err(error) => return Err(error),
            });
        }
        volume.sync().await?;
        Ok(tops)
    }

    // ---- judging ----------------------------------------------------------------------------

    /// Something does not fit: that counts if this process still has the store.
    pub async fn contradicts<T>(&self, owner: &Owner, why: String) -> Outcome<T> {
        self.run.world.note(|| format!("contradiction: {why}"));
        match self.run.powered(owner.verify()).await? {
            Ok(()) => Err(Stop::Failed(why)),
            Err(error) => self.gives_up("looking whose the store is", error),
        }
    }

    /// Looks at everything. `None`: another owner has looked meanwhile.
    pub async fn verify(&self, open: &Open) -> Outcome<Option<Judged>> {
        let run = &self.run;
        let mut found = Vec::new();
        for top in self.known.tops().into_iter().flatten() {
            match run.powered(explore(&open.volume, top)).await? {
                Ok(one) => found.push(one),
                Err(error) => return self.gives_up("reading the volume", error),
            }
        }
        let shots = Mutex::new(self.known.shots());
        match run.powered(snapshots::verify(&open.volume, &shots)).await? {
            Ok(Ok(())) => {}
            Ok(Err(why)) => return self.contradicts(&open.owner, why).await,
            Err(error) => return self.gives_up("reading snapshots", error),
        }
        let outlines: Vec<String> = found.iter().map(|found| found.outline()).collect();
        run.world.note(|| format!("found {}", outlines.join(" ")));
        let tenure = (open.tenure, open.volume.verifier());
        let settled = match self.known.settle(tenure, found, shots.into_inner()) {
            Ok(Some(settled)) => settled,
            Ok(None) => return Ok(None),
            Err(why) => return self.contradicts(&open.owner, why).await,
        };
        match run.powered(clones::verify(&open.registry, &self.known.clones)).await? {
            Ok(Ok(())) => {}
            Ok(Err(why)) => return self.contradicts(&open.owner, why).await,
            Err(error) => return self.gives_up("reading clones", error),
        }
        self.check(open, self.volume).await?;
        Ok(Some(settled))
    }

    /// `check --read-data`. What a bad line to the bucket keeps from being read is no damage: it is read once more in good weather.
    pub async fn check(&self, open: &Open, volume: &str) -> Outcome<()> {
        for try_ in 0.. {
            let report = match self.run.powered(open.registry.check(volume, true)).await? {
                Ok(report) => report,
                Err(error) => return self.gives_up("check", error),
            };
            let Some(problem) = report.problems.first() else { return Ok(()) };
            self.run.world.note(|| format!("check: {problem}"));
            if self.is_last || try_ > 2 {
                let count = report.problems.len();
                return self
                    .contradicts(&open.owner, format!("check of {volume} found {count} problems: {problem}"))
                    .await;
            }
            self.line.net.set_weather(self.line.host, Weather::default());
            self.run.powered(tokio::time::sleep(Duration::from_secs(90))).await?;
        }
        Ok(())
    }

    // ---- clients ----------------------------------------------------------------------------

    pub async fn work(&self, open: &Open, models: &Models, shots: &Arc<Mutex<Shots>>) -> Outcome<()> {
        let (known, tenure) = (self.known.clone(), open.tenure);
        let (own, own_shots) = (models.clone(), shots.clone());
        let judge = move |begun| known.judge(tenure, begun, &own, &own_shots);
        *self.run.judge.lock() = Some(Arc::new(judge));
        if !self.is_last && self.run.one_in(3) {
            self.run.end_at_an_answer();
        }
        let mut tasks: Vec<BoxFuture<'static, ()>> = Vec::new();
        for (number, model) in models.iter().enumerate() {
            let front = Front::new(open.volume.clone(), None, open.sync == SyncMode::Standard);
            let is_relaxed = open.sync == SyncMode::Relaxed;
            let known = (model.clone(), shots.clone());
            tasks.push(Box::pin(Client::new(self.run.clone(), known, front, is_relaxed, number).work()));
        }
        self.run.all(tasks).await
    }

    /// Makes a clone of some snapshot, or destroys one.
    async fn clone_or_destroy(&self, open: &Open) -> Outcome<()> {
        let (run, clones) = (&self.run, &self.known.clones);
        let (there, taken) = (clones.lock().taken(), self.known.shots().taken());
        let destroys = !there.is_empty() && (run.one_in(2) || clones.lock().len() >= COUNT_MAX);
        let of = if destroys { &there } else { &taken };
        if of.is_empty() {
            return Ok(());
        }
        let name = of[run.draw(|random| random.random_range(0..of.len()))].clone();
        let done = if destroys {
            run.world.note(|| format!("destroys the clone {name}"));
            clones.lock().set(&name, Stage::Leaving);
            let destroyed = run.powered(open.registry.destroy(&name)).await?;
            if destroyed.is_ok() {
                clones.lock().forget(&name);
            }
            destroyed
        } else if let Some(shows) = self.known.shots().whole(&name).cloned() {
            let clone = clones.lock().begin(shows);
            run.world.note(|| format!("clones {name} as {clone}"));
            let made = run.powered(open.registry.clone_snapshot(self.volume, &name, &clone)).await?;
            run.world.note(|| format!("clone {clone}: {:?}", made.as_ref().err()));
            if made.is_ok() && !clones.lock().has(&clone) {
                return Err(Stop::Failed(format!("the clone {clone} was acknowledged, and is gone")));
            }
            if made.is_ok() {
                clones.lock().set(&clone, Stage::Taken);
            }
            made.map(drop)
        } else {
            Ok(())
        };
        match done {
            Ok(()) => Ok(()),
            Err(error) => self.gives_up("cloning", error),
        }
    }

    // ---- the end ----------------------------------------------------------------------------

    /// Goes on for a while, does nothing, and ends: well, or not.
    async fn linger(&self, open: Open) -> Outcome<()> {
        let run = &self.run;
        if run.one_in(3) {
            let seconds = run.draw(|random| 1u64 << random.random_range(0..11));
            run.powered(tokio::time::sleep(Duration::from_secs(seconds))).await?;
        }
        if run.one_in(3) {
            return Ok(());
        }
        if run.one_in(2) {
            self.close(open).await?;
            return Ok(());
        }
        // Until somebody ends it.
        self.until_killed(std::future::pending()).await
    }

    async fn close(&self, open: Open) -> Outcome<()> {
        let Open { owner, registry, volume, journal, .. } = open;
        drop(volume);
        let is_exact = self.is_last;
        match self.run.powered(registry.close()).await? {
            Err(error) if is_exact => return self.gives_up("closing", error),
            Err(error) => self.run.world.note(|| format!("closing: {error}")),
            Ok(()) => self.run.world.note(|| "has closed the volume".to_owned()),
        }
        if let Some(journal) = journal
            && let Err(error) = self.run.powered(journal.drained()).await?
        {
            return self.gives_up("emptying the journal", error);
        }
        match self.run.powered(owner.release()).await? {
            Err(error) => self.gives_up("giving the store back", error),
            Ok(()) => Ok(()),
        }
    }

    /// Nothing is wrong any more.
    async fn conclude(&self, open: Open, store: &Arc<dyn ObjectStore>) -> Outcome<()> {
        let run = &self.run;
        // A log that is nearly full makes room first.
        if self.shape.log_entries >= LOG_ENTRIES_MIN {
            self.durable_answers_are_quick(&open.volume).await?;
        }
        // What is late arrives in a volume that is open.
        run.powered(tokio::time::sleep(ALL_ARRIVED)).await?;
        let before = self.line.net.requests();
        run.powered(tokio::time::sleep(IDLE)).await?;
        let asked = self.line.net.requests() - before;
        if asked > 0 {
            return Err(Stop::Failed(format!("{asked} requests in {IDLE:?} in which nobody asked for anything")));
        }
        self.verify_again(&open).await?;
        let clones = self.known.clones.lock().taken();
        for name in clones {
            if run.one_in(2) {
                let freed = run.powered(open.registry.promote(&name)).await?;
                if let Err(error) = freed {
                    return self.gives_up("making a clone independent", error);
                }
            }
            self.check(&open, &name).await?;
        }
        self.close(open).await?;
        // Whoever comes next need not ask for force.
        let owner = self.take_again(store, 2).await?;
        let ground = plain(store, self.log(store, &owner));
        match run.powered(self.open(ground, &owner)).await? {
            Ok(open) => {
                self.verify(&open).await?;
                self.close(open).await
            }
            Err(error) => self.gives_up("opening once more", error),
        }
    }

    /// Another machine takes what was given back.
    pub async fn take_again(&self, store: &Arc<dyn ObjectStore>, host: usize) -> Outcome<Owner> {
        let url = url();
        let taken = Owner::take_seat(store.clone(), &url, &self.line.seat, machine(host), TakeOver::No);
        match self.run.powered(taken).await? {
            Ok(owner) => Ok(owner),
            Err(error) => self.gives_up("taking what was given back", error),
        }
    }

    /// Looks at a volume that is open since its last opening.
    pub async fn verify_again(&self, open: &Open) -> Outcome<()> {
        for top in self.known.tops().into_iter().flatten() {
            if let Err(error) = self.run.powered(explore(&open.volume, top)).await? {
                return self.gives_up("reading the volume", error);
            }
        }
        self.check(open, self.volume).await
    }

    /// No fsync waits for a timer.
    pub async fn durable_answers_are_quick(&self, volume: &Volume) -> Outcome<()> {
        let cred = Cred::root();
        for number in 0..4u8 {
            let name = format!("quick{number}");
            // Tables that nobody has read yet are no part of an answer's way.
            let _ = self.run.powered(volume.lookup(&cred, Ino::ROOT, name.as_bytes(), NameMatch::Exact)).await?;
            let begun = elapsed();
            let timed = async {
                let set = SetAttr { mode: Some(0o600), ..SetAttr::default() };
                let (attr, ..) = volume.create(&cred, Ino::ROOT, name.as_bytes(), CreateMode::Unchecked, set).await?;
                volume.commit(Ino::ROOT).await?;
                let created = elapsed() - begun;
                let data = vec![Bytes::from(vec![number; 3000])];
                volume.write(&cred, attr.id.ino, 0, data, Stability::FileSync).await?;
                let written = elapsed() - begun - created;
                volume.unlink(&cred, Ino::ROOT, name.as_bytes()).await?;
                Ok([created, written])
            };
            let took: Result<_, FsError> = self.run.powered(timed).await?;
            match took {
                Ok(took) if took.iter().all(|took| took.as_millis() as u64 <= DURABLE_MS_MAX) => {}
                Ok(took) => return Err(Stop::Failed(format!("durable answers took {took:?}"))),
                Err(error) => return self.gives_up("changing the volume", error),
            }
            self.run.powered(tokio::time::sleep(Duration::from_secs(u64::from(number) * 3))).await?;
        }
        Ok(())
    }
}
