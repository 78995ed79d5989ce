//! Schedules in which sets of disks that do not know of each other open one pool by turns.
//!
//! - `split.nothing_acknowledged_goes`: each life of the process is a node of a tree: its parent is
//!   the life that the disks which it opened had seen last. A disk whose last life is not among the
//!   ancestors of the life that runs holds what was acknowledged there alone. It must have diverged,
//!   and a later opening of that side must find all of it, unless somebody has discarded it.
//! - `split.sides_never_mix`: a pool that opens has what one line of lives acknowledged, and nothing
//!   of another, entries of the log included.

use std::sync::Arc;

use larder_pool::{Change, DiskState, Pool, PoolState};
use parking_lot::Mutex;
use rand::Rng;
use rand::seq::SliceRandom;

use crate::objects::Objects;
use crate::plan::cut_point;
use crate::pool_run::PoolRun;
use crate::session::{Outcome, Run, Stop, text};

/// A life of the process.
struct Life {
    parent: Option<usize>,
    /// Operations that were answered in it.
    answered: u64,
    model: Arc<Mutex<Objects>>,
}

#[derive(Default)]
struct Tree {
    lives: Vec<Life>,
    /// The last life whose answers each disk has; `None` where nobody can tell.
    last: Vec<Option<usize>>,
    /// Power was cut at some time: labels may be on some disks only.
    was_cut: bool,
    /// The pool was opened by disks that were being brought up to date when the process ended: nobody can tell what they should have.
    was_unknown: bool,
}

impl Tree {
    fn ancestors(&self, life: usize) -> Vec<usize> {
        std::iter::successors(Some(life), |at| self.lives[*at].parent).collect()
    }

    /// Answers that a disk with this last life has and the other life has not.
    fn only_in(&self, last: usize, life: usize) -> u64 {
        let known = self.ancestors(life);
        let own = self.ancestors(last).into_iter().take_while(|at| !known.contains(at));
        own.map(|at| self.lives[at].answered).sum()
    }
}

pub struct SplitRun {
    run: Arc<Run>,
    tree: Mutex<Tree>,
    content_next: Arc<Mutex<u64>>,
}

impl SplitRun {
    pub fn new(run: Arc<Run>) -> Self {
        Self { run, tree: Mutex::default(), content_next: Arc::new(Mutex::new(1)) }
    }

    fn disks(&self) -> usize {
        self.run.plan.disks.len()
    }

    /// The fewest disks that open the pool.
    fn fewest(&self) -> usize {
        self.disks() - usize::from(self.run.plan.layout.failures())
    }

    pub async fn session(&self, life: u32) -> Outcome<()> {
        let is_last = life + 1 == self.run.plan.sessions;
        if is_last {
            return self.last(life).await;
        }
        let outcome = self.one_life(life).await;
        if outcome == Err(Stop::Cut) {
            self.tree.lock().was_cut = true;
        }
        outcome
    }

    async fn one_life(&self, life: u32) -> Outcome<()> {
        let run = &self.run;
        if life > 0 {
            self.choose_disks();
            if run.one_in(3) {
                run.world.cut_after(Some(run.draw(|random| cut_point(random, 300))));
            }
        }
        let Some((pool, at)) = self.open(life).await? else { return Ok(()) };
        let subject = self.subject(at);
        subject.verify(&pool).await?;
        run.choose_end(3000);
        let before = *run.answered.lock();
        let worked = subject.work(&pool).await;
        self.tree.lock().lives[at].answered += *run.answered.lock() - before;
        worked?;
        self.note_online(&pool, at);
        if run.one_in(2) {
            self.return_disks(&pool, at).await?;
        }
        subject.end(pool, false).await
    }

    /// Some of the disks are there: more often than not those that were away before.
    fn choose_disks(&self) {
        let (run, count) = (&self.run, self.disks());
        let mut all: Vec<usize> = (0..count).collect();
        all.shuffle(&mut *run.random.lock());
        let away: Vec<usize> = (0..count).filter(|disk| run.is_away(*disk)).collect();
        let here = match run.draw(|random| random.random_range(0..6)) {
            0 => all,
            1 | 2 if away.len() >= self.fewest() => away,
            _ => {
                let some = run.draw(|random| random.random_range(self.fewest()..=count));
                all.into_iter().take(some).collect()
            }
        };
        (0..count).for_each(|disk| run.set_gone(disk, !here.contains(&disk)));
    }

    /// Opens the pool with the disks that are here. `None`: refused, because too few of them know of each other.
    async fn open(&self, life: u32) -> Outcome<Option<(Arc<Pool>, usize)>> {
        let run = &self.run;
        let pool = match life {
            0 => run.create().await?,
            _ => match run.open(life).await? {
                Ok(pool) => pool,
                Err(error) => {
                    run.world.note(|| format!("refused: {}", text(&error)));
                    return Ok(None);
                }
            },
        };
        if life > 0 && !self.is_known(&pool) {
            self.tree.lock().was_unknown = true;
            return Ok(None);
        }
        let at = self.begin_life(&pool)?;
        self.judge(&pool, at)?;
        self.forget_what_changes(&pool);
        Ok(Some((Arc::new(pool), at)))
    }

    /// The life that begins goes on from the last life of the disks that are in use.
    fn begin_life(&self, pool: &Pool) -> Outcome<usize> {
        let online = self.online(pool);
        let tree = &mut *self.tree.lock();
        if tree.last.is_empty() {
            tree.last = vec![None; self.disks()];
        }
        let parents = online.iter().filter_map(|disk| tree.last[*disk]);
        let parent = parents.max_by_key(|life| tree.ancestors(*life).len());
        let model = parent.map_or_else(Objects::default, |parent| tree.lives[parent].model.lock().clone());
        tree.lives.push(Life { parent, answered: 0, model: Arc::new(Mutex::new(model)) });
        let at = tree.lives.len() - 1;
        for disk in online {
            if let Some(last) = tree.last[disk]
                && tree.only_in(last, at) > 0
            {
                return Err(Stop::Failed(format!("disk{disk} is in use with what only life {last} has")));
            }
            tree.last[disk] = Some(at);
        }
        Ok(at)
    }

    fn is_known(&self, pool: &Pool) -> bool {
        let (online, tree) = (self.online(pool), self.tree.lock());
        online.iter().any(|disk| tree.last[*disk].is_some())
    }

    fn online(&self, pool: &Pool) -> Vec<usize> {
        let paths = self.run.world.paths();
        let online = pool.status().disks.into_iter().filter(|disk| disk.state == DiskState::Online);
        online.filter_map(|disk| paths.iter().position(|path| *path == disk.path)).collect()
    }

    /// `split.nothing_acknowledged_goes`
    fn judge(&self, pool: &Pool, at: usize) -> Outcome<()> {
        let (paths, tree) = (self.run.world.paths(), self.tree.lock());
        for disk in pool.status().disks {
            let Some(number) = paths.iter().position(|path| *path == disk.path) else { continue };
            let Some(last) = tree.last[number].filter(|_| !self.run.is_away(number)) else { continue };
            let (only, state) = (tree.only_in(last, at), disk.state);
            if only > 0 && state != DiskState::Diverged {
                let why = format!("disk{number} alone has {only} answers of up to life {last}, and is {state}");
                return Err(Stop::Failed(why));
            }
            // A life of its own makes a side, whether anything was answered in it or not.
            let was_merely_away = tree.ancestors(at).contains(&last);
            if was_merely_away && state == DiskState::Diverged && !tree.was_cut {
                return Err(Stop::Failed(format!("disk{number} was merely away, and is {state}")));
            }
        }
        Ok(())
    }

    /// The disks that were away come back while the pool runs. Some of those that have diverged are discarded.
    async fn return_disks(&self, pool: &Pool, at: usize) -> Outcome<()> {
        let run = &self.run;
        (0..self.disks()).for_each(|disk| run.set_gone(disk, false));
        run.powered(pool.reconnect()).await?.map_err(|error| run.unexpected("reconnecting", text(&error)))?;
        self.judge(pool, at)?;
        self.forget_what_changes(pool);
        if run.one_in(3) {
            self.discard(pool).await?;
        }
        self.bring_up_to_date(pool, at).await
    }

    /// All disks that have diverged give up their sides.
    async fn discard(&self, pool: &Pool) -> Outcome<()> {
        let (run, paths) = (&self.run, self.run.world.paths());
        for disk in pool.status().disks.into_iter().filter(|disk| disk.state == DiskState::Diverged) {
            if let Some(number) = paths.iter().position(|path| *path == disk.path) {
                self.tree.lock().last[number] = None;
            }
            let change = Change::Online { disk: disk.path.display().to_string(), discard: true };
            run.powered(pool.change(&change)).await?.map_err(|error| run.unexpected("discarding", text(&error)))?;
        }
        Ok(())
    }

    async fn bring_up_to_date(&self, pool: &Pool, at: usize) -> Outcome<()> {
        self.run.powered(pool.repaired()).await?;
        self.note_online(pool, at);
        Ok(())
    }

    /// These disks have everything.
    fn note_online(&self, pool: &Pool, at: usize) {
        for disk in self.online(pool) {
            self.tree.lock().last[disk] = Some(at);
        }
    }

    /// A disk that is being brought up to date is so at any moment from now on.
    fn forget_what_changes(&self, pool: &Pool) {
        let paths = self.run.world.paths();
        for disk in pool.status().disks.into_iter().filter(|disk| disk.state == DiskState::Resilvering) {
            if let Some(number) = paths.iter().position(|path| *path == disk.path) {
                self.tree.lock().last[number] = None;
            }
        }
    }

    fn subject(&self, at: usize) -> PoolRun {
        let model = self.tree.lock().lives[at].model.clone();
        PoolRun::over(self.run.clone(), model, self.content_next.clone())
    }

    /// Each side is opened alone and has everything; then all but one are discarded.
    async fn last(&self, life: u32) -> Outcome<()> {
        let run = &self.run;
        run.end_trouble();
        let mut number = life;
        let sides: Vec<Vec<usize>> = {
            let tree = self.tree.lock();
            let lives = (0..tree.lives.len()).filter(|life| tree.last.contains(&Some(*life)));
            lives.map(|life| (0..self.disks()).filter(|disk| tree.last[*disk] == Some(life)).collect()).collect()
        };
        for side in sides.iter().filter(|side| sides.len() > 1 && side.len() >= self.fewest()) {
            (0..self.disks()).for_each(|disk| run.set_gone(disk, !side.contains(&disk)));
            number += 1000;
            let Some((pool, at)) = self.open(number).await? else {
                let (tree, first) = (self.tree.lock(), side[0]);
                let answered = tree.last[first].map_or(0, |life| tree.lives[life].answered);
                // Those that joined it last were out of date, or nothing was answered since they were alone.
                if answered > 0 && !tree.was_cut {
                    return Err(Stop::Failed(format!("the side of disks {side:?} does not open any more")));
                }
                continue;
            };
            self.subject(at).verify(&pool).await?;
            run.powered(pool.close()).await?.map_err(|error| run.unexpected("closing", text(&error)))?;
        }
        run.end_trouble();
        let Some((pool, at)) = self.open(number + 1000).await? else {
            let tree = self.tree.lock();
            return match tree.was_cut || tree.was_unknown {
                true => Ok(()),
                false => Err(Stop::Failed("with all disks the pool does not open".to_owned())),
            };
        };
        self.subject(at).verify(&pool).await?;
        self.discard(&pool).await?;
        self.bring_up_to_date(&pool, at).await?;
        let status = pool.status();
        if status.state != PoolState::Online {
            return Err(Stop::Failed(format!("in the end the pool is {:?}: {}", status.state, status.status)));
        }
        self.subject(at).end(pool, true).await
    }
}
