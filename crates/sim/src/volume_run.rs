//! Schedules of files in a volume on a pool.
//!
//! Each client works in a directory of its own, one operation after the other; what they share is all that lies below: the
//! journal, segments, the engine, the pool. An operation that was under way when power was cut has happened or has not.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use larder_pool::{Pool, PoolState};
use larder_volume::{
    Backing, Cred, FileId, FsError, Ino, MemoryBudget, NameMatch, Properties, Registry, SetAttr, Space, Volume,
    WriteVerifier,
};
use parking_lot::Mutex;
use rand::Rng;

use crate::disk::Plant;
use crate::early::{EarlySegments, EarlyTrims};
use crate::file_client::{Client, Model};
use crate::plan::{Trouble, cut_point};
use crate::session::{Outcome, Run, Stop, text};
use crate::tree_model::{Tree, compare, explore, settle};
use crate::turns::SimClock;

const VOLUME: &str = "v";
const MEMORY_BYTES: u64 = 32 << 20;
/// What runs in the background after opening is done by then.
const SETTLE: Duration = Duration::from_secs(2);

pub struct VolumeRun {
    run: Arc<Run>,
    models: Vec<Arc<Mutex<Model>>>,
    verifier: Mutex<Option<WriteVerifier>>,
    is_made: Mutex<bool>,
}

/// What is open.
struct Open {
    pool: Arc<Pool>,
    registry: Registry,
    volume: Volume,
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
        Self { run, models, verifier: Mutex::default(), is_made: Mutex::default() }
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
        let Some(open) = self.start(life, is_last).await? else { return Ok(()) };
        self.verify(&open, is_last).await?;
        if !is_last {
            run.world.cut_after(Some(run.draw(|random| cut_point(random, 4000))));
            run.catch_up(&open.pool).await?;
            self.work(&open).await?;
        }
        self.end(open, is_last).await
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
        let (mut store, mut log) = (pool.store(), pool.log());
        match self.run.world.planted() {
            Some(Plant::EarlySegment) => store = Arc::new(EarlySegments::new(store)),
            Some(Plant::EarlyTrim) => log = Arc::new(EarlyTrims(log)),
            _ => {}
        }
        let space = Arc::new(PoolSpace(pool.clone()));
        let backing = Backing { store, log: Some(log), space, clock: Arc::new(SimClock) };
        let registry = Registry::open(backing, MemoryBudget { total_bytes: MEMORY_BYTES }).await?;
        if !*self.is_made.lock() {
            match registry.create(VOLUME, self.properties()).await {
                Ok(_) | Err(FsError::Exists) => {}
                Err(error) => return Err(error),
            }
        }
        let volume = registry.volume(VOLUME).await?;
        if !*self.is_made.lock() {
            self.make_directories(&volume).await?;
            *self.is_made.lock() = true;
        }
        Ok(Open { pool, registry, volume })
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

    async fn work(&self, open: &Open) -> Outcome<()> {
        let mut tasks: Vec<BoxFuture<'static, ()>> = Vec::new();
        for (number, model) in self.models.iter().enumerate() {
            tasks.push(Box::pin(Client::new(self.run.clone(), model.clone(), open.volume.clone(), number).work()));
        }
        tasks.push(Box::pin(administer(self.run.clone(), open.pool.clone())));
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
                let closed = run.powered(open.registry.close()).await?;
                if let Err(error) = closed {
                    return if run.may_be_late() { Ok(()) } else { Err(run.unexpected("closing the volume", error)) };
                }
                self.models.iter().for_each(|model| model.lock().tree.committed());
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
        run.powered(open.registry.close()).await?.map_err(|error| run.unexpected("closing the volume", error))?;
        self.models.iter().for_each(|model| model.lock().tree.committed());
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

    async fn verify(&self, open: &Open, is_strict: bool) -> Outcome<()> {
        let run = &self.run;
        let verifier = open.volume.verifier();
        if self.verifier.lock().replace(verifier) == Some(verifier) && !is_strict {
            return Err(Stop::Failed("the write verifier is that of an earlier life".to_owned()));
        }
        let mut unlinked = Vec::new();
        for (number, model) in self.models.iter().enumerate() {
            match self.verify_client(open, number, model).await {
                Err(_) if run.world.has_power() && run.may_refuse() && !is_strict => return Ok(()),
                other => unlinked.extend(other?),
            }
        }
        run.powered(tokio::time::sleep(SETTLE)).await?;
        for id in unlinked {
            if let Ok(attr) = run.powered(open.volume.resolve(id)).await? {
                return Err(Stop::Failed(format!("{:?} had no name any more and is back", attr.id)));
            }
        }
        let report = match run.powered(open.registry.check(VOLUME, true)).await? {
            Ok(report) => report,
            Err(_) if run.may_refuse() && !is_strict => return Ok(()),
            Err(error) => return Err(run.unexpected("check", error)),
        };
        match report.problems.first() {
            Some(problem) if is_strict || !run.may_refuse() => {
                Err(Stop::Failed(format!("check found {} problems: {problem}", report.problems.len())))
            }
            _ => Ok(()),
        }
    }

    /// What a client left; returns the inodes that must be gone before long.
    async fn verify_client(&self, open: &Open, number: usize, model: &Arc<Mutex<Model>>) -> Outcome<Vec<FileId>> {
        let run = &self.run;
        let Some(top) = model.lock().tree.ino(crate::tree_model::TOP) else { return Ok(Vec::new()) };
        let found = run.powered(explore(&open.volume, top)).await?;
        let found = found.map_err(|error| run.unexpected(&format!("reading c{number}"), error))?;
        let mut model = model.lock();
        let Model { tree, after, unlinked } = &mut *model;
        let before = compare(tree, &found);
        match (before, after.take()) {
            (Ok(()), _) => {}
            (Err(_), Some(after)) if compare(&after, &found).is_ok() => *tree = after,
            (Err(why), after) => {
                let also = after.and_then(|after| compare(&after, &found).err()).map(|why| format!("; or {why}"));
                return Err(Stop::Failed(format!("c{number}{why}{}", also.unwrap_or_default())));
            }
        }
        tree.drop_unlinked();
        run.world.note(|| format!("found of client{number}: {}", found.outline()));
        settle(tree, crate::tree_model::TOP, found);
        Ok(std::mem::take(unlinked))
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
