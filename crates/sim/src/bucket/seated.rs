//! The life of a process at one of the seats of a store: serves the volumes of its seat, gives some away and takes others, as the daemon does.
//!
//! ```text
//!   watch       looks at the registry, accepts offers, serves what is its own
//!   administer  offers, shuts the doors, gives, settles; makes, changes and removes entries beside
//!   attend      one volume: opens it, verifies it, serves its clients
//! ```
//!
//! - `seatrun.all_that_was_answered`: a volume is closed before it is given, so the taker has all that was answered, durable or not.
//! - `seatrun.in_good_weather`: between two machines that live, and with nothing in the way, each handover works in time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use larder_base::{Seat, task};
use larder_fs::FsError;
use larder_store::Owner;
use larder_volume::{HandoverStage, Properties, Registry};
use object_store::ObjectStore;
use parking_lot::Mutex;
use rand::Rng;
use uuid::Uuid;

use super::known::{Judged, Known, Tenure};
use super::life::{ALL_ARRIVED, IDLE, LOG_ENTRIES_MIN, Life, OPENING_MAX, Open, plain};
use crate::disk::Plant;
use crate::plan::Plan;
use crate::session::{Outcome, Run, Stop};
use crate::turns::elapsed;

/// As the daemon has them.
const LOOK: Duration = Duration::from_secs(3);
const LOOK_SOON: Duration = Duration::from_millis(200);
const SOON_FOR: Duration = Duration::from_secs(60);
const ANSWER_MAX: Duration = Duration::from_secs(20);
const TAKEN_MAX: Duration = Duration::from_secs(60);
const PATIENCE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(200);
const PAUSE_MAX: Duration = Duration::from_secs(3);

const SECOND: Duration = Duration::from_secs(1);
/// Volumes that nobody opens.
const OTHERS: [&str; 3] = ["n1", "n2", "n3"];
/// Things that an administrator does in one life.
const ACTIONS_MAX: u32 = 12;
/// Whoever takes a store again in the end.
const NEWCOMER: usize = 4;

/// One of the seats at a store.
pub struct Place {
    /// The other one.
    pub other: Seat,
    pub volumes: Vec<(&'static str, Arc<Known>)>,
    pub meeting: Arc<Meeting>,
    /// It gives first in the end, and has all volumes at last.
    pub leads: bool,
    /// The runs of volumes.
    pub parts: Mutex<Vec<Arc<Run>>>,
}

/// The last processes of all seats wait for each other.
#[derive(Default)]
pub struct Meeting {
    ready: AtomicU32,
    turn: AtomicU32,
    done: AtomicU32,
}

impl Meeting {
    /// How many have come to their end.
    pub fn done(&self) -> u32 {
        self.done.load(Ordering::Relaxed)
    }
}

struct Served {
    part: Arc<Life>,
    tenure: Tenure,
    /// What its clients know, once it was verified.
    judged: Option<Judged>,
    is_busy: bool,
}

#[derive(Default)]
struct State {
    served: BTreeMap<&'static str, Served>,
    handing: Option<&'static str>,
    openings: u32,
    version: Option<String>,
    soon_until: Duration,
    looks: u32,
    is_closing: bool,
}

struct Desk {
    life: Arc<Life>,
    owner: Owner,
    registry: Arc<Registry>,
    /// A bug: it gives volumes away that the other one has open.
    giver: Option<Arc<Registry>>,
    state: Mutex<State>,
}

/// All of it, once the seat is this process's.
pub async fn serve(life: &Arc<Life>, place: &Place, store: Arc<dyn ObjectStore>, owner: Owner) -> Outcome<()> {
    let registry = open(life, &store, &owner).await?;
    let is_planted = life.line.net.planted() == Some(Plant::EarlyHandover);
    let giver = if is_planted { Some(open(life, &store, &owner).await?) } else { None };
    let desk = Arc::new(Desk { life: life.clone(), owner, registry, giver, state: Mutex::default() });
    desk.enter_missing(place).await?;
    let watching = desk.clone();
    drop(task::spawn(async move {
        if let Err(stop) = watching.clone().watch().await {
            watching.fail(stop);
        }
    }));
    if life.is_last {
        return desk.conclude(place, &store).await;
    }
    desk.administer(place).await?;
    desk.linger().await
}

async fn open(life: &Life, store: &Arc<dyn ObjectStore>, owner: &Owner) -> Outcome<Arc<Registry>> {
    let ground = plain(store, life.log(store, owner));
    match life.run.powered(life.registry(&ground)).await? {
        Ok(registry) => Ok(registry),
        Err(error) => life.gives_up("opening the registry", error),
    }
}

/// An error that may be, but for the last life.
fn tolerate(life: &Life, what: &str, error: &FsError) -> Outcome<()> {
    if life.is_last {
        return life.gives_up(what, error);
    }
    life.run.check_power()?;
    life.run.world.note(|| format!("{what}: {error}"));
    Ok(())
}

impl Desk {
    fn place(&self) -> Option<&Place> {
        self.life.seated.as_ref()
    }

    fn known(&self, name: &str) -> Option<(&'static str, Arc<Known>)> {
        self.place()?.volumes.iter().find(|(known, _)| *known == name).cloned()
    }

    fn seat(&self) -> &Seat {
        self.registry.seat()
    }

    /// A task has failed: so has the process.
    fn fail(&self, stop: Stop) {
        if let Stop::Failed(why) = stop {
            self.life.run.fail(why);
        }
        self.life.end();
    }

    async fn pause(&self, duration: Duration) -> Outcome<()> {
        self.life.run.powered(tokio::time::sleep(duration)).await
    }

    /// Volumes that there are not yet, in some lives.
    async fn enter_missing(&self, place: &Place) -> Outcome<()> {
        let run = &self.life.run;
        for (name, _) in &place.volumes {
            if self.life.line.net.look(|s3| s3.ledger.whose(name)).is_some() || !(self.life.is_last || run.one_in(2)) {
                continue;
            }
            let properties = Properties { record_bytes: self.life.shape.record_bytes, ..Properties::default() };
            match run.powered(self.registry.enter(name, properties, run.plan.is_sealed)).await? {
                Ok(_) | Err(FsError::Exists) => {}
                Err(error) => tolerate(&self.life, "entering a volume", &error)?,
            }
        }
        Ok(())
    }

    // ---- the taker ------------------------------------------------------------------------------

    async fn watch(self: Arc<Self>) -> Outcome<()> {
        loop {
            // `handing.idle_alone`
            if self.state.lock().looks == 0 || self.registry.has_seats() {
                match self.look().await? {
                    Ok(()) => self.state.lock().looks += 1,
                    Err(error) => tolerate(&self.life, "looking at the registry", &error)?,
                }
            }
            let is_soon = elapsed() < self.state.lock().soon_until;
            self.pause(if is_soon { LOOK_SOON } else { LOOK }).await?;
            if self.state.lock().is_closing {
                return Ok(());
            }
        }
    }

    async fn look(self: &Arc<Self>) -> Outcome<Result<(), FsError>> {
        let run = &self.life.run;
        let version = match run.powered(self.registry.version()).await? {
            Ok(version) => version,
            Err(error) => return Ok(Err(error)),
        };
        if version.is_some() && self.state.lock().version == version {
            return Ok(Ok(()));
        }
        let all = match run.powered(self.registry.seated()).await? {
            Ok(all) => all,
            Err(error) => return Ok(Err(error)),
        };
        let mut is_done = true;
        for one in all {
            let Some((name, known)) = self.known(&one.info.name) else { continue };
            let stage = one.handover.as_ref().filter(|handover| handover.to == *self.seat()).map(|it| it.stage);
            if one.seat == *self.seat() {
                is_done &= self.begin(name, known, stage == Some(HandoverStage::Given));
            } else if stage == Some(HandoverStage::Offered) && (self.life.is_last || !run.one_in(8)) {
                match run.powered(self.registry.accept(one.info.id, &["here".to_owned()])).await? {
                    Ok(true) => self.state.lock().soon_until = elapsed() + SOON_FOR,
                    Ok(false) => {}
                    Err(error) => return Ok(Err(error)),
                }
            }
        }
        self.state.lock().version = if is_done { version } else { None };
        Ok(Ok(()))
    }

    /// Serves a volume of this seat, unless it does. Whether that has begun.
    fn begin(self: &Arc<Self>, name: &'static str, known: Arc<Known>, was_given: bool) -> bool {
        let mut state = self.state.lock();
        if state.handing == Some(name) || state.is_closing {
            return false;
        }
        if state.served.contains_key(name) {
            return true;
        }
        state.openings += 1;
        let part = Arc::new(self.part(name, known, state.openings));
        let tenure = Tenure { epoch: self.owner.epoch(), opening: state.openings, ..Tenure::default() };
        state.served.insert(name, Served { part: part.clone(), tenure, judged: None, is_busy: true });
        let desk = self.clone();
        drop(task::spawn(async move {
            match desk.attend(name, &part, tenure, was_given).await {
                Ok(true) => {
                    desk.state.lock().served.get_mut(name).into_iter().for_each(|served| served.is_busy = false)
                }
                Ok(false) => {
                    let mut state = desk.state.lock();
                    state.served.remove(name);
                    state.version = None;
                }
                Err(stop) => desk.fail(stop),
            }
        }));
        true
    }

    /// The life of a volume in this process.
    fn part(&self, name: &'static str, known: Arc<Known>, opening: u32) -> Life {
        let life = &self.life;
        let of = life.line.net.next_part();
        let plan = Plan { operations: life.run.plan.operations / 2 + 1, ..life.run.plan.clone() };
        let mut run = Run::new(life.run.seed ^ (of << 24), plan, life.run.world.clone());
        // Keys and ciphers are the same for all.
        (run.seed, run.ring) = (life.run.seed, life.run.ring.clone());
        let run = Arc::new(run);
        self.place().into_iter().for_each(|place| place.parts.lock().push(run.clone()));
        life.run.world.note(|| format!("serves {name}, its opening {opening}"));
        Life {
            run,
            known,
            line: life.line.clone(),
            how: life.how,
            disks: None,
            shape: life.shape.clone(),
            is_last: life.is_last,
            has_taken: true.into(),
            volume: name,
            seated: None,
        }
    }

    /// Whether it served the volume until the end of its clients.
    async fn attend(&self, name: &'static str, part: &Life, tenure: Tenure, was_given: bool) -> Outcome<bool> {
        let begun = elapsed();
        let Some(open) = self.open_volume(name, part, tenure).await? else { return Ok(false) };
        let tenure = open.tenure;
        if part.is_last && elapsed() - begun > OPENING_MAX {
            return Err(Stop::Failed(format!("opening the volume took {:?}", elapsed() - begun)));
        }
        if was_given && let Err(error) = part.run.powered(self.registry.took(open.volume.id(), None)).await? {
            tolerate(part, "saying that it was taken", &error)?;
        }
        let Some(judged) = part.verify(&open).await? else {
            part.run.world.note(|| format!("another has looked at {name} since"));
            return Err(Stop::Cut);
        };
        if let Some(served) = self.state.lock().served.get_mut(name) {
            (served.tenure, served.judged) = (tenure, Some(judged.clone()));
        }
        part.work(&open, &judged.0, &judged.1).await?;
        Ok(true)
    }

    /// `None`: it is not this seat's, or not yet again.
    async fn open_volume(&self, name: &str, part: &Life, tenure: Tenure) -> Outcome<Option<Open>> {
        let whose = part.line.net.look(|s3| s3.ledger.whose(name));
        let Some((_, handovers)) = whose.filter(|(seat, _)| seat == self.seat()) else { return Ok(None) };
        let tenure = Tenure { handovers, ..tenure };
        let opened = part.open_volume(self.registry.clone(), &self.owner, tenure, None);
        match part.run.powered(opened).await? {
            Ok(open) => Ok(Some(open)),
            Err(error @ (FsError::Busy(_) | FsError::Refused(_))) => {
                part.run.world.note(|| format!("{name} is not opened: {error}"));
                Ok(None)
            }
            Err(error) => part.gives_up("opening", error),
        }
    }

    // ---- the giver ------------------------------------------------------------------------------

    async fn administer(&self, place: &Place) -> Outcome<()> {
        let run = &self.life.run;
        for _ in 0..run.draw(|random| random.random_range(1..=ACTIONS_MAX)) {
            let wait_ms = run.draw(|random| random.random_range(200f64.ln()..20_000f64.ln()).exp() as u64);
            self.pause(Duration::from_millis(wait_ms)).await?;
            match run.draw(|random| random.random_range(0..10)) {
                0..7 => {
                    let names = self.verified();
                    if !names.is_empty() {
                        let name = names[run.draw(|random| random.random_range(0..names.len()))];
                        self.hand_over(place, name).await?;
                    }
                }
                what => self.change_another(what == 7, what == 8).await?,
            }
        }
        Ok(())
    }

    /// The volumes that were verified, and may work.
    fn verified(&self) -> Vec<&'static str> {
        let state = self.state.lock();
        state.served.iter().filter(|(_, served)| served.judged.is_some()).map(|(name, _)| *name).collect()
    }

    /// Entries of the registry come, change and go.
    async fn change_another(&self, makes: bool, removes: bool) -> Outcome<()> {
        let run = &self.life.run;
        let name = OTHERS[run.draw(|random| random.random_range(0..OTHERS.len()))];
        let quota_bytes = Some(run.draw(|random| random.random_range(1..1u64 << 40)));
        let properties = Properties { quota_bytes, ..Properties::default() };
        let done = match (makes, removes) {
            (true, _) => run.powered(self.registry.enter(name, properties, false)).await?.map(drop),
            (_, true) => run.powered(self.registry.destroy(name)).await?,
            _ => run.powered(self.registry.set(name, properties)).await?.map(drop),
        };
        run.world.note(|| format!("changes {name}: {done:?}"));
        Ok(())
    }

    /// Whether the volume is the other seat's now.
    async fn hand_over(&self, place: &Place, name: &'static str) -> Outcome<bool> {
        let run = &self.life.run;
        let giver = self.giver.as_ref().unwrap_or(&self.registry);
        run.world.note(|| format!("offers {name} to {}", place.other));
        let id = match run.powered(giver.offer(name, &place.other)).await? {
            Ok(id) => id,
            Err(error) => {
                tolerate(&self.life, "offering a volume", &error)?;
                return Ok(false);
            }
        };
        let is_accepted = self.await_answer(id).await?;
        if !is_accepted || (!self.life.is_last && run.one_in(12)) {
            // An offer that stays has no effect.
            let _ = run.powered(giver.settle(id)).await?;
            return Ok(false);
        }
        let part = {
            let mut state = self.state.lock();
            state.handing = Some(name);
            state.served.get(name).map(|served| served.part.clone())
        };
        // A bug leaves the doors open, too.
        part.iter().filter(|_| self.giver.is_none()).for_each(|part| part.run.shut());
        let (is_theirs, was_closed) = self.give(giver, id).await?;
        run.world.note(|| format!("{name} is the other seat's now: {is_theirs}"));
        let served = {
            let mut state = self.state.lock();
            (state.handing, state.version) = (None, None);
            if is_theirs || was_closed { state.served.remove(name) } else { None }
        };
        if is_theirs && self.giver.is_none() {
            served.as_ref().map_or(Ok(()), judge_given)?;
        }
        Ok(is_theirs)
    }

    async fn await_answer(&self, id: Uuid) -> Outcome<bool> {
        let until = elapsed() + ANSWER_MAX;
        while elapsed() < until {
            let all = match self.life.run.powered(self.registry.seated()).await? {
                Ok(all) => all,
                Err(error) => {
                    tolerate(&self.life, "waiting for an answer", &error)?;
                    return Ok(false);
                }
            };
            let handover = all.into_iter().find(|one| one.info.id == id).and_then(|one| one.handover);
            match handover.map(|handover| handover.stage) {
                Some(HandoverStage::Accepted) => return Ok(true),
                Some(HandoverStage::Offered) => self.pause(PAUSE).await?,
                _ => return Ok(false),
            }
        }
        Ok(false)
    }

    /// Whether the volume is theirs, and whether it was closed here.
    async fn give(&self, giver: &Registry, id: Uuid) -> Outcome<(bool, bool)> {
        let (run, until) = (&self.life.run, elapsed() + PATIENCE);
        let failed = loop {
            match run.powered(giver.give(id)).await? {
                Ok(()) => return Ok((true, true)),
                Err(FsError::Busy(_)) if elapsed() < until => self.pause(PAUSE).await?,
                Err(error) => break error,
            }
        };
        tolerate(&self.life, "giving a volume", &failed)?;
        let mut pause = PAUSE;
        loop {
            // `handing.known_before_open`
            match run.powered(giver.settle(id)).await? {
                Ok(seat) => return Ok((seat != *self.seat(), !matches!(failed, FsError::Busy(_)))),
                Err(FsError::NotFound) => return Err(Stop::Failed(format!("the volume {id} is gone"))),
                Err(error) => tolerate(&self.life, "settling", &error)?,
            }
            self.pause(pause).await?;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    // ---- the end --------------------------------------------------------------------------------

    /// Goes on, and ends: well, or not.
    async fn linger(&self) -> Outcome<()> {
        let run = &self.life.run;
        let seconds = run.draw(|random| 1u64 << random.random_range(0..9));
        self.pause(Duration::from_secs(seconds)).await?;
        match run.draw(|random| random.random_range(0..6)) {
            0 => Ok(()),
            1 | 2 => self.close().await,
            // Until somebody ends it.
            _ => self.life.until_killed(std::future::pending()).await,
        }
    }

    async fn close(&self) -> Outcome<()> {
        let life = &self.life;
        let parts: Vec<Arc<Life>> = {
            let mut state = self.state.lock();
            state.is_closing = true;
            state.served.values().map(|served| served.part.clone()).collect()
        };
        parts.iter().for_each(|part| part.run.shut());
        match life.run.powered(self.registry.close()).await? {
            Err(error) => tolerate(life, "closing", &error)?,
            Ok(()) => life.run.world.note(|| "has closed its volumes".to_owned()),
        }
        match life.run.powered(self.owner.release()).await? {
            Err(error) => life.gives_up("giving the seat back", error),
            Ok(()) => Ok(()),
        }
    }

    /// Until all clients of all volumes are done.
    async fn idle(&self) -> Outcome<()> {
        loop {
            let is_idle = {
                let state = self.state.lock();
                state.looks > 0 && state.served.values().all(|served| !served.is_busy)
            };
            if is_idle {
                return Ok(());
            }
            self.pause(SECOND).await?;
        }
    }

    async fn wait_for(&self, is_so: impl Fn() -> bool) -> Outcome<()> {
        while !is_so() {
            self.pause(SECOND).await?;
        }
        Ok(())
    }

    /// Nothing is wrong any more: volumes go to and fro.
    async fn conclude(&self, place: &Place, store: &Arc<dyn ObjectStore>) -> Outcome<()> {
        let (run, meeting) = (&self.life.run, &place.meeting);
        self.idle().await?;
        meeting.ready.fetch_add(1, Ordering::Relaxed);
        self.wait_for(|| meeting.ready.load(Ordering::Relaxed) == 2).await?;
        // As any command does: who came second is seen.
        if let Err(error) = run.powered(self.registry.seated()).await? {
            return self.life.gives_up("reading the registry", error);
        }
        for turn in 0..2 {
            if place.leads == (turn == 0) {
                for name in self.verified() {
                    self.hand_over_in_time(place, name).await?;
                }
                meeting.turn.fetch_add(1, Ordering::Relaxed);
            }
            self.wait_for(|| meeting.turn.load(Ordering::Relaxed) > turn).await?;
            self.idle().await?;
        }
        let here = self.verified().len();
        if here != if place.leads { place.volumes.len() } else { 0 } {
            return Err(Stop::Failed(format!("{here} volumes are at the seat {} in the end", self.seat())));
        }
        if place.leads {
            self.look_once_more(place).await?;
        } else {
            self.pause(ALL_ARRIVED + IDLE + ALL_ARRIVED).await?;
        }
        self.close().await?;
        if place.leads {
            self.open_again(place, store).await?;
        }
        meeting.done.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// `seatrun.in_good_weather`
    async fn hand_over_in_time(&self, place: &Place, name: &'static str) -> Outcome<()> {
        if !self.hand_over(place, name).await? {
            return Err(Stop::Failed(format!("{name} could not be handed over")));
        }
        let until = elapsed() + TAKEN_MAX;
        while elapsed() < until {
            match self.life.run.powered(self.registry.seated()).await? {
                Ok(all) if all.iter().any(|one| one.info.name == name && one.handover.is_none()) => return Ok(()),
                Ok(_) => self.pause(PAUSE).await?,
                Err(error) => return self.life.gives_up("waiting for the taker", error),
            }
        }
        Err(Stop::Failed(format!("{name} is not served {TAKEN_MAX:?} after it was given")))
    }

    /// At volumes that are open.
    async fn look_once_more(&self, place: &Place) -> Outcome<()> {
        let run = &self.life.run;
        // What is late arrives in volumes that are open.
        self.pause(ALL_ARRIVED).await?;
        let before = self.life.line.net.requests();
        self.pause(IDLE).await?;
        let asked = self.life.line.net.requests() - before;
        // Each machine looks at the registry.
        let looks = 2 * (IDLE.as_secs() / LOOK.as_secs() + 2);
        if asked > looks {
            return Err(Stop::Failed(format!("{asked} requests in {IDLE:?}, and there are {looks} looks")));
        }
        for (name, _) in &place.volumes {
            let (part, tenure) = {
                let state = self.state.lock();
                let Some(served) = state.served.get(name) else { continue };
                (served.part.clone(), served.tenure)
            };
            let volume = match run.powered(self.registry.volume(name)).await? {
                Ok(volume) => volume,
                Err(error) => return self.life.gives_up("looking at a volume", error),
            };
            let open = Open::again(&self.owner, &self.registry, volume, tenure);
            part.verify_again(&open).await?;
            if self.life.shape.log_entries >= LOG_ENTRIES_MIN {
                part.durable_answers_are_quick(&open.volume).await?;
            }
        }
        Ok(())
    }

    /// Another machine takes the seat, with all volumes.
    async fn open_again(&self, place: &Place, store: &Arc<dyn ObjectStore>) -> Outcome<()> {
        let life = &self.life;
        let owner = life.take_again(store, NEWCOMER).await?;
        let registry = open(life, store, &owner).await?;
        let desk = Desk { life: life.clone(), owner, registry, giver: None, state: Mutex::default() };
        for (number, (name, known)) in place.volumes.iter().enumerate() {
            let part = desk.part(name, known.clone(), number as u32);
            let tenure = Tenure { epoch: desk.owner.epoch(), ..Tenure::default() };
            match desk.open_volume(name, &part, tenure).await? {
                Some(open) => drop(part.verify(&open).await?),
                None => return Err(Stop::Failed(format!("{name} is not at the seat {}", desk.seat()))),
            }
        }
        desk.close().await
    }
}

/// `seatrun.all_that_was_answered`
fn judge_given(served: &Served) -> Outcome<()> {
    let Some((models, shots)) = &served.judged else { return Ok(()) };
    models.iter().for_each(|model| model.lock().keep_all_before(elapsed()));
    served.part.known.judge(served.tenure, None, models, shots).map_err(Stop::Failed)
}
