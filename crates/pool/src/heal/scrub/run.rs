//! The task that scrubs, and the requests of a pool's users to it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use futures::StreamExt;
use futures::stream;
use larder_base::units::{ByteSize, Elapsed};

use super::found::{Damage, MISSING, MissingObjects, ObjectDone, Outcome};
use super::scrubs::{GO_ON, PAUSE, PLACES, STOP, STREAMS_MAX, Users, streams};
use super::state::{self, ScrubPhase, ScrubStatus, State};
use super::verify::{self, ShardCheck};
use crate::core::Core;
use crate::error::PoolError;
use crate::history::EventKind;
use crate::history::now_ms;
use crate::object::index::Object;
use crate::pool::Pool;

/// Objects under way at once.
const WINDOW: usize = 32;
/// The time between saves of the progress: a crash makes a scrub repeat at most this much.
const SAVE_EVERY: Duration = Duration::from_secs(15);
/// How long the end of a scrub waits for each answer of the pool's users.
const ANSWER_WAIT_MAX: Duration = Duration::from_secs(10);
/// The time between looks of a caller that waits for the end.
const WAIT_STEP: Duration = Duration::from_millis(20);

/// The task that scrubs on request: runs until the pool is closed.
pub async fn run(core: Arc<Core>) {
    while !core.is_closed() {
        if core.scrubs.state.lock().is_running() {
            core.scrub_session().await;
        }
        core.scrubs.wanted.notified().await;
    }
}

impl Core {
    /// A scrub in the middle of an object stops here.
    pub fn scrub_interrupted(&self) -> bool {
        self.scrubs.wish.load(Ordering::Acquire) != GO_ON || self.is_closed()
    }

    /// Reads the rest, until the end or another request.
    async fn scrub_session(self: &Arc<Self>) {
        let after = self.begin_session_of_scrub();
        if after.is_empty() {
            let found = self.blocking(|core| core.scrub_records()).await.unwrap_or_default();
            self.scrubs.state.lock().add_records(found);
            let _ = self.blocking(|core| core.bury_copies()).await;
            self.objects.graveyard.barrier().await;
        }
        let objects = stream::unfold(after, |after| async move {
            let object = self.next_object(&after)?;
            Some((object.clone(), object.path.clone()))
        });
        let mut objects = objects.map(|object| self.scrub_object(object)).buffered(WINDOW).boxed();
        let mut saved = Instant::now();
        let mut outcome = Outcome::Done;
        while let Some(done) = objects.next().await {
            match done {
                Ok(done) => self.scrubs.state.lock().add(done),
                Err(stopped) => {
                    outcome = stopped;
                    break;
                }
            }
            if saved.elapsed() >= SAVE_EVERY {
                saved = Instant::now();
                let _ = self.blocking(|core| core.save_scrub()).await;
            }
        }
        drop(objects);
        self.end_session(outcome).await;
    }

    /// Does the work that needs no index, and measures how much there is to read. Returns the path
    /// to go on from.
    fn begin_session_of_scrub(&self) -> String {
        let after = self.scrubs.state.lock().after.clone();
        let (objects, bytes) = {
            use std::ops::Bound;
            let index = self.objects.index();
            let rest = index.objects.range::<str, _>((Bound::Excluded(after.as_str()), Bound::Unbounded));
            rest.fold((0, 0), |(objects, bytes), (_, object)| (objects + 1, bytes + verify::stored_bytes(object)))
        };
        self.scrubs.state.lock().begin_session(objects, bytes);
        after
    }

    async fn end_session(self: &Arc<Self>, outcome: Outcome) {
        let phase = match (outcome, self.scrubs.wish.swap(GO_ON, Ordering::AcqRel)) {
            // It goes on at the next opening.
            (Outcome::Interrupted, GO_ON) => return,
            (Outcome::Interrupted, PAUSE) | (Outcome::Faulted, _) => ScrubPhase::Paused,
            (Outcome::Interrupted, _) => ScrubPhase::Stopped,
            (Outcome::Done, _) => ScrubPhase::Finished,
        };
        let unused = if phase == ScrubPhase::Finished { self.ask_users().await } else { 0 };
        let (kind, text) = {
            let is_current = |damage: &Damage| self.is_damaged_still(damage);
            let mut state = self.scrubs.state.lock();
            state.end(phase, now_ms(), is_current);
            let Some(mut status) = state.status() else { return };
            if phase == ScrubPhase::Finished {
                // All has been read: lost objects that were deleted since are lost no more.
                let is_lost = status.unrepaired > 0 || state.damage() != (Vec::new(), 0);
                self.scrubs.has_lost.store(is_lost, Ordering::Release);
            }
            status.unrepaired = status.unrepaired.saturating_sub(unused);
            match (phase, outcome) {
                (ScrubPhase::Finished, _) => (EventKind::ScrubFinished, result_text(&status)),
                (_, Outcome::Faulted) => (EventKind::ScrubPaused, "too many disks are out of use".to_owned()),
                (ScrubPhase::Paused, _) => (EventKind::ScrubPaused, progress_text(&status)),
                _ => (EventKind::ScrubStopped, progress_text(&status)),
            }
        };
        tracing::info!(pool = %self.members.name, "scrub: {} {text}", kind.name());
        self.members.event(kind, text);
        let _ = self.blocking(|core| core.save_scrub()).await;
    }

    /// Records missing objects, and returns how many damaged objects no volume uses any more.
    async fn ask_users(&self) -> u64 {
        let Some(users) = self.scrubs.users.lock().clone() else { return 0 };
        if let Ok(Some(missing_objects)) = tokio::time::timeout(ANSWER_WAIT_MAX, users.find_missing()).await {
            self.note_missing(missing_objects);
        }
        let damage = self.scrubs.state.lock().damage().0;
        if damage.is_empty() {
            return 0;
        }
        tokio::time::timeout(ANSWER_WAIT_MAX, users.count_unused(damage)).await.unwrap_or(0)
    }

    /// One object: all its shards at once, each when its disk's turn has come.
    async fn scrub_object(self: &Arc<Self>, object: Arc<Object>) -> Result<ObjectDone, Outcome> {
        let checks = object.placed().map(|(index, slot)| self.check_in_turn(&object, index, slot));
        let checks = futures::future::join_all(checks.collect::<Vec<_>>()).await;
        if self.scrub_interrupted() {
            return Err(Outcome::Interrupted);
        }
        if self.members.is_faulted() {
            return Err(Outcome::Faulted);
        }
        let of_task = object.clone();
        self.blocking(move |core| core.settle_object(&of_task, checks)).await.map_err(|_| Outcome::Interrupted)
    }

    async fn check_in_turn(self: &Arc<Self>, object: &Arc<Object>, index: u8, slot: u8) -> ShardCheck {
        let check = self.members.while_answering([slot], self.wait_and_check(object, index, slot)).await;
        check.unwrap_or_else(|_| ShardCheck::absent(index, slot))
    }

    async fn wait_and_check(self: &Arc<Self>, object: &Arc<Object>, index: u8, slot: u8) -> ShardCheck {
        let absent = || ShardCheck::absent(index, slot);
        let member = self.members.member(slot).filter(|member| member.is_readable());
        let (Some(turns), Some(member)) = (self.scrubs.turns.get(usize::from(slot)), member) else {
            return absent();
        };
        let Ok(_place) = turns.places.acquire().await else { return absent() };
        let permits = STREAMS_MAX / streams(member);
        let Ok(turn) = turns.reading.clone().acquire_many_owned(permits).await else { return absent() };
        let of_task = object.clone();
        let check = self.blocking(move |core| core.check_shard(&of_task, index, slot, turn)).await;
        check.unwrap_or_else(|_| absent())
    }

    /// The pool is being closed: the progress so far is kept, and no scrub touches a disk any more.
    pub async fn stop_scrubbing(self: &Arc<Self>) {
        self.scrubs.forget_users();
        for turns in &self.scrubs.turns {
            // All readers have seen by now that the pool is closed.
            drop(turns.places.acquire_many(PLACES).await);
        }
        self.scrubs.wanted.notify_one();
        if self.scrubs.state.lock().is_running() {
            let _ = self.blocking(|core| core.save_scrub()).await;
        }
    }

    /// Takes over the state of scrubs from the disks. Blocks.
    pub fn load_scrub(&self) {
        let state = State::read(&self.members.disks_readable());
        self.scrubs.has_lost.store(state.damage() != (Vec::new(), 0), Ordering::Release);
        *self.scrubs.state.lock() = state;
    }

    /// Blocks.
    pub fn save_scrub(&self) {
        let _one = self.scrubs.saving.lock();
        let text = self.scrubs.state.lock().encode();
        if let Some(text) = text {
            state::FILE.write(&self.members.work, &self.members.disks_writable(), &text);
        }
    }

    /// Forgets damage of deleted objects.
    pub fn forget_old_damage(&self) {
        let is_current = |damage: &Damage| self.is_damaged_still(damage);
        self.scrubs.state.lock().retain_damage(is_current);
    }

    /// From now on only lost bytes still count. Called when the counters are set to zero.
    pub fn forget_losses(&self) {
        self.forget_old_damage();
        let is_lost = self.scrubs.state.lock().damage() != (Vec::new(), 0);
        self.scrubs.has_lost.store(is_lost, Ordering::Release);
    }

    fn scrub_refused(&self, why: &str) -> PoolError {
        let why = format!("{why}; see 'larder pool scrub status {}'", self.members.name);
        PoolError::Refused { pool: self.members.name.clone(), why }
    }

    fn is_damaged_still(&self, damage: &Damage) -> bool {
        let index = self.objects.index();
        let object = index.get(&damage.object);
        object.map_or(damage.version == MISSING, |object| object.version == damage.version)
    }
}

fn progress_text(status: &ScrubStatus) -> String {
    format!("at {} of {}", ByteSize(status.bytes_done), ByteSize(status.bytes_total))
}

fn result_text(status: &ScrubStatus) -> String {
    let repaired = ByteSize(status.repaired_bytes);
    let errors = match status.unrepaired {
        1 => "1 error".to_owned(),
        n => format!("{n} errors"),
    };
    format!("repaired {repaired} in {} with {errors} left", Elapsed(status.elapsed_ms / 1000))
}

impl Pool {
    /// Users of the pool that are asked at the end of a scrub, until the pool is closed.
    pub fn used_by(&self, users: Arc<dyn Users>) {
        *self.core.scrubs.users.lock() = Some(users);
    }

    /// A user of the pool has found objects missing that it needs.
    pub fn note_missing(&self, missing_objects: MissingObjects) {
        self.core.note_missing(missing_objects);
    }

    /// Begins a scrub, or goes on with one that was paused. `why` is for the history.
    pub async fn scrub_start(&self, why: &str) -> Result<(), PoolError> {
        let core = &self.core;
        core.check_open()?;
        let was_paused = {
            let mut state = core.scrubs.state.lock();
            let was_paused = state.phase() == Some(ScrubPhase::Paused);
            if !state.start(why, now_ms()) {
                return Err(core.scrub_refused("a scrub runs already"));
            }
            core.scrubs.wish.store(GO_ON, Ordering::Release);
            was_paused
        };
        core.members.event(EventKind::ScrubStarted, if was_paused { "where it was paused" } else { why });
        core.blocking(|core| core.save_scrub()).await?;
        core.scrubs.wanted.notify_one();
        Ok(())
    }

    /// Returns when it has paused.
    pub async fn scrub_pause(&self) -> Result<(), PoolError> {
        self.scrub_halt(PAUSE, "no scrub runs").await
    }

    /// Gives a scrub up, running or paused.
    pub async fn scrub_stop(&self) -> Result<(), PoolError> {
        let paused = {
            let mut state = self.core.scrubs.state.lock();
            let paused = state.phase() == Some(ScrubPhase::Paused);
            if paused {
                state.end(ScrubPhase::Stopped, now_ms(), |_| true);
            }
            paused
        };
        if !paused {
            return self.scrub_halt(STOP, "no scrub runs or is paused").await;
        }
        self.core.members.event(EventKind::ScrubStopped, "while it was paused");
        self.core.blocking(|core| core.save_scrub()).await
    }

    async fn scrub_halt(&self, wish: u8, refusal: &'static str) -> Result<(), PoolError> {
        if !self.core.scrubs.state.lock().is_running() {
            return Err(self.core.scrub_refused(refusal));
        }
        self.core.scrubs.wish.store(wish, Ordering::Release);
        self.scrub_wait().await;
        Ok(())
    }

    /// The scrub that runs, or the last one; nothing if there never was one.
    pub fn scrub_status(&self) -> Option<ScrubStatus> {
        self.core.scrubs.state.lock().status()
    }

    /// Objects with damage beyond repair, and how many more there are than can be listed.
    pub fn damage(&self) -> (Vec<Damage>, u64) {
        self.core.forget_old_damage();
        self.core.scrubs.state.lock().damage()
    }

    /// Objects that cannot be read while disks are away or not up to date, and how many more there
    /// are than can be listed.
    pub fn out_of_reach(&self) -> (Vec<Damage>, u64) {
        self.core.out_of_reach()
    }

    /// The pool is in use just now, or a disk is being brought up to date.
    pub fn is_busy(&self) -> bool {
        self.core.is_busy()
    }

    /// Waits until no scrub runs, or the pool is closed.
    pub async fn scrub_wait(&self) {
        while self.core.scrubs.state.lock().is_running() && !self.core.is_closed() {
            tokio::time::sleep(WAIT_STEP).await;
        }
    }

    /// Reads and verifies everything, repairs the damage, and waits for the end.
    pub async fn scrub(&self) -> Result<ScrubStatus, PoolError> {
        // One that runs already serves as well.
        let started = self.scrub_start("asked for").await;
        if !matches!(started, Ok(()) | Err(PoolError::Refused { .. })) {
            started?;
        }
        self.scrub_wait().await;
        self.core.check_open()?;
        self.scrub_status().ok_or_else(|| self.core.scrub_refused("it was given up"))
    }
}
