//! The common part of a process's lives, for any kind of store: opening, clients, troubles, the end.
//!
//! - `lives.no_answer_after_the_cut`: an answer after the power cut does not count. A client that
//!   waits for an answer looks at the power first.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;
use larder_pool::{CreateOptions, LastLife, LastLives, OpenOptions, Pool, PoolError, PoolStatus};
use parking_lot::Mutex;
use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use uuid::Uuid;

use crate::chance;
use crate::disk::{Fault, Health, Image, JournalDamage, World};
use crate::plan::{Kind, Plan, Trouble, cut_point, sickness};
use crate::sealing::Ring;

/// Why a session ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Power was cut.
    Cut,
    /// Something is wrong that must not be.
    Failed(String),
}

pub type Outcome<T> = Result<T, Stop>;

/// Hears that something was answered, and when the operation began, if that matters. A contradiction is a sentence.
pub type Judge = Arc<dyn Fn(Option<Duration>) -> Result<(), String> + Send + Sync>;

/// The memory of the simulated machine, on a disk of its own that never fails.
#[derive(Debug, Default)]
struct Remembered(Mutex<BTreeMap<Uuid, LastLife>>);

impl LastLives for Remembered {
    fn last(&self, pool: Uuid) -> Option<LastLife> {
        self.0.lock().get(&pool).copied()
    }

    fn remember(&self, pool: Uuid, _: &str, life: LastLife) {
        self.0.lock().insert(pool, life);
    }
}

/// A schedule on its way.
pub struct Run {
    pub seed: u64,
    pub plan: Plan,
    pub world: Arc<World>,
    pub random: Mutex<StdRng>,
    /// States of victims from earlier.
    images: Mutex<Vec<(usize, Image)>>,
    /// States of any disks from earlier, for `Trouble::Journal`.
    older: Mutex<Vec<(usize, Image)>>,
    /// Disks that were struck, and have not been brought up to date since.
    behind: Mutex<BTreeSet<usize>>,
    /// All disks, and which were behind, before somebody struck more of them than the layout survives.
    whole: Mutex<Option<(Vec<Image>, BTreeSet<usize>)>>,
    /// The first failure that a task met.
    failure: Mutex<Option<String>>,
    /// Operations of clients that were answered.
    pub answered: Mutex<u64>,
    /// After which answer the machine or the process dies.
    end: Mutex<Option<End<'static>>>,
    /// The process was to be killed in the middle of a commit.
    was_killed_in_commit: Mutex<bool>,
    /// What the machine remembers of its pools.
    last_lives: Arc<Remembered>,
    /// The keys of its volume.
    pub ring: Arc<Ring>,
    /// Hears of each answer, and when it was asked for.
    pub judge: Mutex<Option<Judge>>,
    /// When the last life ended.
    pub ended: Mutex<Duration>,
    /// Clients begin nothing any more.
    is_shut: AtomicBool,
}

/// The answer after which a life ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End<'a> {
    /// The one of this number.
    Answer(u64),
    /// The first to something of this kind: what is rare is as likely as what is not.
    Done(&'a str),
}

/// Operations of a volume's clients: the first words of their notes.
const KINDS: [&str; 23] = [
    "create",
    "mkdir",
    "symlink",
    "mknod",
    "link",
    "relink",
    "unlink",
    "rmdir",
    "rename",
    "exchange",
    "chmod",
    "truncate",
    "allocate",
    "setxattr",
    "removexattr",
    "makenamed",
    "removenamed",
    "write",
    "append",
    "commit",
    "sync",
    "snapshot",
    "destroy",
];
/// Within so many commits of the journal the process is killed.
const COMMITS_MAX: u64 = 200;
const JOURNAL_BYTES: u64 = 4 << 20;
/// Virtual time after which a wait is taken for a hang.
pub const PATIENCE: Duration = Duration::from_secs(3600);

impl Run {
    pub fn new(seed: u64, plan: Plan, world: Arc<World>) -> Self {
        Self {
            seed,
            plan,
            world,
            random: Mutex::new(chance::generator(seed, "run")),
            images: Mutex::default(),
            older: Mutex::default(),
            behind: Mutex::default(),
            whole: Mutex::default(),
            failure: Mutex::default(),
            answered: Mutex::default(),
            end: Mutex::default(),
            was_killed_in_commit: Mutex::default(),
            last_lives: Arc::default(),
            ring: Arc::default(),
            judge: Mutex::default(),
            ended: Mutex::default(),
            is_shut: AtomicBool::new(false),
        }
    }

    pub fn draw<T>(&self, draw: impl FnOnce(&mut StdRng) -> T) -> T {
        draw(&mut self.random.lock())
    }

    pub fn one_in(&self, times: u32) -> bool {
        self.draw(|random| random.random_range(0..times) == 0)
    }

    /// A task found something wrong. Only the first counts, and nothing after a power cut.
    pub fn fail(&self, why: String) {
        if self.world.has_power() {
            self.world.note(|| format!("FAILED: {why}"));
            self.failure.lock().get_or_insert(why);
        }
    }

    pub fn failed(&self) -> Option<String> {
        self.failure.lock().clone()
    }

    /// An error may be answered: more is broken than the layout survives, or there is no room.
    pub fn may_refuse(&self) -> bool {
        matches!(self.plan.trouble, Trouble::Exceeded | Trouble::Full)
    }

    /// A client that was refused once stops: what it reads before that is exactly what it wrote.
    pub fn is_exact(&self) -> bool {
        self.plan.kind == Kind::Bucket
    }

    /// Reading may fail: too many disks are away, or were struck.
    pub fn may_not_read(&self) -> bool {
        self.plan.trouble == Trouble::Exceeded || self.is_beyond()
    }

    /// Closing waits 45 s for the last table, which a disk that takes seconds for each step does not get done, nor two that
    /// hang one after the other: it stays in the journal.
    pub fn may_be_late(&self) -> bool {
        self.may_refuse() || matches!(self.plan.trouble, Trouble::Time) || self.plan.hangs
    }

    // ---- the end of a life ------------------------------------------------------------------

    /// When this life ends, unless it ends well: after some change of a disk; right after an answer, which is when one that was given
    /// too early is found out; or by a kill in the middle of a commit of the journal, after which power is soon cut as well.
    pub fn choose_end(&self, changes_max: u64) {
        if std::mem::take(&mut *self.was_killed_in_commit.lock()) && !self.one_in(4) {
            return self.world.cut_power_after(self.draw(|random| random.random_range(1..4)));
        }
        match self.draw(|random| random.random_range(0..16)) {
            0..3 => self.set_end(End::Answer(self.draw(|random| cut_point(random, self.answers_max())))),
            3..8 if self.plan.kind == Kind::Volume => {
                self.set_end(End::Done(KINDS[self.draw(|random| random.random_range(0..KINDS.len()))]))
            }
            8..11 => {
                *self.was_killed_in_commit.lock() = true;
                self.world.kill_at_commit(self.draw(|random| cut_point(random, COMMITS_MAX)));
            }
            _ => self.world.cut_after(Some(self.draw(|random| cut_point(random, changes_max)))),
        }
    }

    fn set_end(&self, end: End<'static>) {
        self.world.cut_after(None);
        *self.end.lock() = Some(match end {
            End::Answer(count) => End::Answer(*self.answered.lock() + count),
            done => done,
        });
    }

    fn answers_max(&self) -> u64 {
        u64::from(self.plan.operations) * u64::from(self.plan.clients)
    }

    /// A client did something of this kind, and hears of it now.
    pub fn done(&self, kind: &str) {
        if *self.end.lock() == Some(End::Done(kind)) {
            self.end_now();
        }
    }

    /// An operation that began then has its answer, which the model knows already, or will soon.
    pub fn judge_answer(&self, begun: Option<Duration>) {
        let judge = self.judge.lock().clone();
        if let Some(judge) = judge
            && let Err(why) = judge(begun)
        {
            self.fail(why);
        }
    }

    /// After so many answers, or the first to some kind of operation, this life ends.
    pub fn end_at_an_answer(&self) {
        let end = match self.one_in(2) {
            true => End::Answer(self.draw(|random| cut_point(random, self.answers_max()))),
            false => End::Done(KINDS[self.draw(|random| random.random_range(0..KINDS.len()))]),
        };
        self.set_end(end);
    }

    /// The volume is about to be closed: clients end after what they have begun.
    pub fn shut(&self) {
        self.is_shut.store(true, Ordering::Relaxed);
    }

    pub fn is_shut(&self) -> bool {
        self.is_shut.load(Ordering::Relaxed)
    }

    /// A client has its answer.
    pub fn answer(&self) {
        let answered = {
            let mut answered = self.answered.lock();
            *answered += 1;
            *answered
        };
        if *self.end.lock() == Some(End::Answer(answered)) {
            self.end_now();
        }
    }

    fn end_now(&self) {
        *self.end.lock() = None;
        match self.draw(|random| random.random_range(0..4)) {
            0..3 => self.world.cut_now(),
            _ if self.plan.kind == Kind::Bucket => self.world.cut_now(),
            _ => self.world.cut_after(Some(self.draw(|random| random.random_range(1..4)))),
        }
    }

    /// An error that nobody expected; nothing if power was cut.
    pub fn unexpected(&self, what: &str, error: impl std::fmt::Display) -> Stop {
        if self.world.has_power() { Stop::Failed(format!("{what}: {error}")) } else { Stop::Cut }
    }

    pub fn check_power(&self) -> Outcome<()> {
        if self.world.has_power() { Ok(()) } else { Err(Stop::Cut) }
    }

    /// Waits for `work`, but no longer than the power lasts.
    pub async fn powered<T>(&self, work: impl Future<Output = T>) -> Outcome<T> {
        let mut cut = std::pin::pin!(self.world.cut.notified());
        cut.as_mut().enable();
        self.check_power()?;
        let outcome = tokio::select! {
            biased;
            () = cut => Err(Stop::Cut),
            outcome = tokio::time::timeout(PATIENCE, work) => match outcome {
                Ok(done) => Ok(done),
                // A volume waits for its disks as long as it is open.
                Err(_) if self.has_too_few() => {
                    self.world.cut_now();
                    Err(Stop::Cut)
                }
                Err(_) => Err(Stop::Failed("it hangs: an hour went by".to_owned())),
            },
        };
        self.check_power()?;
        outcome
    }

    // ---- the pool ---------------------------------------------------------------------------

    pub async fn create(&self) -> Outcome<Pool> {
        let options = CreateOptions {
            opener: self.world.opener(self.seed),
            journal_bytes: Some(JOURNAL_BYTES),
            last_lives: Some(self.last_lives.clone()),
            ..CreateOptions::new("tank", self.plan.layout, self.first_disks())
        };
        let created = self.powered(Pool::create(options)).await?;
        created.map_err(|error| self.unexpected("creating the pool", text(&error)))
    }

    /// The disks that the pool is made of.
    fn first_disks(&self) -> Vec<PathBuf> {
        let mut paths = self.world.paths();
        paths.truncate(paths.len() - self.plan.new_disks.unwrap_or(0));
        paths
    }

    pub async fn open(&self, life: u32) -> Outcome<Result<Pool, PoolError>> {
        let opener = self.world.opener(self.seed ^ (u64::from(life) << 40));
        // Where older states of disks come back, or sides open by turns, a person says yes.
        let degraded = matches!(self.plan.trouble, Trouble::Exceeded | Trouble::Journal | Trouble::Split);
        let last_lives: Option<Arc<dyn LastLives>> = Some(self.last_lives.clone());
        let options = OpenOptions { opener, degraded, last_lives, ..OpenOptions::new(self.world.paths()) };
        self.powered(Pool::open(options)).await
    }

    // ---- trouble ----------------------------------------------------------------------------

    /// Before the process starts: disks that were pulled are put back, or others pulled.
    pub fn trouble_at_start(&self) {
        // With more disks away than the layout survives the rest goes on alone. Disks that come back without it cannot know
        // what it answered: so all come back at once.
        if self.plan.trouble == Trouble::Exceeded && !(self.has_too_few() && self.one_in(2)) {
            self.plan.victims.iter().for_each(|disk| self.set_gone(*disk, false));
        }
        if self.plan.trouble == Trouble::Journal {
            return self.strike_journals();
        }
        if self.plan.trouble != Trouble::Gone {
            return;
        }
        for &victim in &self.plan.victims {
            let is_gone = self.draw(|random| random.random());
            self.set_gone(victim, is_gone);
        }
    }

    /// While the pool is closed somebody damages copies of the journal, takes disks away, and puts older states of others back.
    fn strike_journals(&self) {
        let disks = 0..self.plan.disks.len();
        disks.clone().for_each(|disk| self.set_gone(disk, false));
        let whole: Vec<Image> = disks.map(|disk| self.world.copy(disk)).collect();
        let mut struck = self.behind.lock();
        let behind = struck.clone();
        for &victim in &self.plan.victims {
            let older = {
                let older = self.older.lock();
                let states: Vec<&(usize, Image)> = older.iter().filter(|(disk, _)| *disk == victim).collect();
                (!states.is_empty()).then(|| states[self.draw(|random| random.random_range(0..states.len()))].1.clone())
            };
            match (self.draw(|random| random.random_range(0..7)), older) {
                (0, _) => self.world.damage_journal(victim, JournalDamage::Removed),
                (1, _) => self.world.damage_journal(victim, JournalDamage::Emptied),
                (2, _) => self.world.damage_journal(victim, JournalDamage::Zeroed),
                (3, Some(image)) => self.world.put_back(victim, &image),
                (4 | 5, _) => self.set_gone(victim, true),
                _ => continue,
            }
            struck.insert(victim);
        }
        self.older.lock().extend(whole.iter().cloned().enumerate());
        if struck.len() > usize::from(self.plan.layout.failures()) {
            *self.whole.lock() = Some((whole, behind));
        }
    }

    /// More disks were struck than the layout survives: the pool refuses, or has everything. What cannot be read is no lie.
    pub fn is_beyond(&self) -> bool {
        self.whole.lock().is_some()
    }

    /// All disks are as they were before somebody struck too many of them.
    pub fn undo(&self) {
        let Some((whole, behind)) = self.whole.lock().take() else { return };
        *self.behind.lock() = behind;
        self.images.lock().clear();
        for (disk, image) in whole.iter().enumerate() {
            self.world.put_back(disk, image);
            self.world.set_health(disk, |health| *health = Health::default());
        }
    }

    /// More disks are away than the layout survives.
    fn has_too_few(&self) -> bool {
        self.images.lock().len() > usize::from(self.plan.layout.failures())
    }

    /// Before disks leave again, those that came back are brought up to date.
    pub async fn catch_up(&self, pool: &Pool) -> Outcome<()> {
        if matches!(self.plan.trouble, Trouble::Exceeded | Trouble::Journal) {
            self.powered(pool.repaired()).await?;
            let is_gone = |disk: &usize| self.images.lock().iter().any(|(other, _)| other == disk);
            self.behind.lock().retain(is_gone);
        }
        Ok(())
    }

    pub fn is_away(&self, disk: usize) -> bool {
        self.images.lock().iter().any(|(other, _)| *other == disk)
    }

    /// A disk that goes is remembered as it was; one that comes is as it was then.
    pub fn set_gone(&self, disk: usize, is_gone: bool) {
        let mut images = self.images.lock();
        let at = images.iter().position(|(other, _)| *other == disk);
        match (at, is_gone) {
            (None, true) => {
                images.push((disk, self.world.image(disk)));
                self.world.set_health(disk, |health| health.is_gone = true);
                self.world.count(Fault::Gone);
            }
            (Some(at), false) => {
                let (_, image) = images.swap_remove(at);
                self.world.put_back(disk, &image);
                self.world.set_health(disk, |health| health.is_gone = false);
            }
            _ => {}
        }
    }

    /// While clients work: victims sicken and recover.
    pub async fn make_trouble(&self) {
        loop {
            let wait_ms = self.draw(|random| 1 << random.random_range(0..13));
            tokio::time::sleep(Duration::from_millis(wait_ms)).await;
            self.trouble_now();
        }
    }

    pub fn trouble_now(&self) {
        let trouble = self.plan.trouble;
        if trouble == Trouble::Time && self.one_in(3) {
            let seconds = self.draw(|random| random.random_range(-100_000..100_000));
            chance::step_wall_clock(seconds);
            self.world.count(Fault::ClockStep);
        }
        if self.plan.victims.is_empty() || trouble == Trouble::Journal {
            return;
        }
        let victim = self.draw(|random| self.plan.victims[random.random_range(0..self.plan.victims.len())]);
        let is_well: bool = self.draw(|random| random.random());
        match trouble {
            Trouble::Gone => self.set_gone(victim, !is_well),
            Trouble::Exceeded => self.set_gone(victim, true),
            _ if is_well => self.world.set_health(victim, |health| *health = Health::default()),
            _ if self.plan.hangs => self.world.set_health(victim, |health| health.hangs = true),
            _ => {
                let sickness = self.draw(|random| sickness(trouble, random));
                self.world.set_health(victim, |health| *health = sickness);
            }
        }
    }

    /// All disks are there and well.
    pub fn end_trouble(&self) {
        for disk in 0..self.plan.disks.len() {
            self.set_gone(disk, false);
            self.world.set_health(disk, |health| *health = Health::default());
        }
    }

    /// A disk that lies, or on which writes get lost, can lose both copies of its label. If nothing else on it is the pool's it is
    /// not known again, and an administrator has to replace it.
    pub fn may_lose_a_label(&self) -> bool {
        matches!(self.plan.trouble, Trouble::Liar | Trouble::Silent)
    }

    /// Takes away as many disks as the layout survives, of those that the pool has now.
    pub fn take_some_away(&self, status: &PoolStatus) -> Vec<usize> {
        let is_member = |path: &PathBuf| status.disks.iter().any(|disk| disk.path == *path);
        let paths = self.world.paths();
        let mut disks: Vec<usize> = (0..paths.len()).filter(|at| is_member(&paths[*at])).collect();
        disks.shuffle(&mut *self.random.lock());
        disks.truncate(usize::from(status.layout.failures()));
        disks.iter().for_each(|disk| self.world.set_health(*disk, |health| health.is_gone = true));
        disks
    }

    // ---- clients ----------------------------------------------------------------------------

    /// Runs tasks until all are done, one fails, or power is cut.
    pub async fn all(&self, tasks: Vec<BoxFuture<'static, ()>>) -> Outcome<()> {
        let mut running = tokio::task::JoinSet::new();
        tasks.into_iter().for_each(|task| drop(running.spawn(task)));
        let work = async {
            while let Some(joined) = running.join_next().await {
                if let Err(error) = joined {
                    self.fail(format!("a task died: {error}"));
                }
                if self.failed().is_some() {
                    return;
                }
            }
        };
        tokio::select! {
            biased;
            done = self.powered(work) => done?,
            () = self.make_trouble() => {}
        }
        match self.failed() {
            Some(why) => Err(Stop::Failed(why)),
            None => Ok(()),
        }
    }

    /// A client does one thing after the other, with pauses.
    pub async fn pause(&self) {
        let wait_ms =
            self.draw(|random| if random.random_range(0..3) == 0 { 1 << random.random_range(0..9) } else { 0 });
        tokio::time::sleep(Duration::from_millis(wait_ms)).await;
        crate::turns::tell_time();
    }
}

/// An error with all its causes.
pub fn text(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
}
