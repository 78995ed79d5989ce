//! The way between machines and the bucket: each request has a fate, drawn from the seed.
//!
//! ```text
//!   machine ---- up ----> effect ---- down ----> machine
//!                  \----> effect once more, up to minutes later
//! ```
//!
//! - `net.effect_needs_no_sender`: what is on its way takes effect, whatever has become of its sender: it may have given up waiting,
//!   have ended, or have been overtaken.
//! - `net.storms`: now and then a machine's line is cut from the very request on that hands a volume over.
//! - `net.fates`: late, or early with a late answer, or none; refused before it takes effect, or cut off afterwards; done twice.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use larder_base::Seat;
use object_store::Result;
use parking_lot::Mutex;
use rand::Rng;
use rand::rngs::StdRng;
use tokio::sync::{Notify, oneshot};

use super::s3::{S3, generic};
use crate::chance;
use crate::disk::{Plant, World};

/// A way takes this long at most where nothing is wrong.
pub const WAY_MS_MAX: u64 = 20;
/// What is late is late by this much at most, and its answer.
const LATE_MS_MAX: f64 = 300_000.0;
const LATE_ANSWER_MS_MAX: f64 = 60_000.0;

/// Of so many changes of a handover one meets a storm.
const STORM_EVERY: u32 = 8;
/// How long it lasts: calls are given up after a minute and more.
const STORM_MS: std::ops::Range<u64> = 5_000..300_000;

/// The state of one machine's way to the bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Weather {
    /// Of a thousand requests: those that meet with something.
    pub rough: u32,
    /// Nothing is answered. Some of it arrives.
    pub is_cut: bool,
}

/// A change or a look, done at one moment.
pub type Effect<T> = Arc<dyn Fn(&mut S3, SystemTime) -> Result<T> + Send + Sync>;

type Event = Box<dyn FnOnce(&mut State) + Send>;

struct State {
    s3: S3,
    now_ms: u64,
    next: u64,
    events: BTreeMap<(u64, u64), Event>,
    random: StdRng,
    weather: Vec<Weather>,
    /// Until when a machine's line is cut (`net.storms`), and whether there are more storms to come.
    storms: Vec<u64>,
    has_storms: bool,
    requests: u64,
    parts: u64,
    fates: BTreeMap<&'static str, u64>,
    /// Fates of the next requests of a machine whose text has this in it.
    #[cfg(test)]
    script: Vec<(usize, &'static str, Fate)>,
}

impl State {
    fn at(&mut self, at_ms: u64, event: Event) {
        self.next += 1;
        self.events.insert((at_ms, self.next), event);
    }

    #[cfg(test)]
    fn scripted(&mut self, host: usize, what: &str) -> Option<Fate> {
        let at = self.script.iter().position(|(of, part, _)| *of == host && what.contains(part))?;
        Some(self.script.remove(at).2)
    }

    fn wall(&self) -> SystemTime {
        chance::wall_at(Duration::from_millis(self.now_ms))
    }
}

/// All that is on its way, and the bucket.
pub struct Net {
    state: Mutex<State>,
    world: Arc<World>,
}

/// The way of one process of one machine.
#[derive(Clone)]
pub struct Line {
    pub net: Arc<Net>,
    pub host: usize,
    /// Where the machine sits.
    pub seat: Seat,
    /// Somebody sent something: the world looks what comes of it.
    pub sent: Arc<Notify>,
    /// The process has ended: what it would still send is not sent.
    pub is_dead: Arc<AtomicBool>,
}

fn late(random: &mut StdRng, most: f64) -> u64 {
    random.random_range(100.0f64.ln()..most.ln()).exp() as u64
}

/// From which effect, and how much later; or when, and what, instead of one.
pub type Answer = std::result::Result<(usize, u64), (u64, &'static str)>;

/// What becomes of a request, in milliseconds from when it was sent.
#[derive(Clone, Default)]
pub struct Fate {
    pub name: &'static str,
    pub effects: Vec<u64>,
    pub answer: Option<Answer>,
}

fn fate(random: &mut StdRng, weather: Weather) -> Fate {
    let (up, down) = (random.random_range(1..=WAY_MS_MAX), random.random_range(1..=WAY_MS_MAX));
    if weather.is_cut {
        let effects = match random.random_range(0..4) {
            0 | 1 => Vec::new(),
            2 => vec![up],
            _ => vec![late(random, LATE_MS_MAX)],
        };
        return Fate { name: "cut", effects, answer: None };
    }
    if random.random_range(0..1000) >= weather.rough {
        return Fate { name: "fine", effects: vec![up], answer: Some(Ok((0, down))) };
    }
    match random.random_range(0..11) {
        0 | 1 => Fate { name: "late", effects: vec![late(random, LATE_MS_MAX)], answer: Some(Ok((0, down))) },
        2 | 3 => {
            Fate { name: "late answer", effects: vec![up], answer: Some(Ok((0, late(random, LATE_ANSWER_MS_MAX)))) }
        }
        4 => Fate { name: "no answer", effects: vec![up], answer: None },
        5 => Fate { name: "cut off", effects: vec![up], answer: Some(Err((up + down, "connection reset"))) },
        6 => Fate { name: "refused", effects: Vec::new(), answer: Some(Err((up + down, "503 SlowDown"))) },
        7 => Fate { name: "lost", effects: Vec::new(), answer: None },
        8 => Fate { name: "twice", effects: vec![up, up + late(random, LATE_MS_MAX)], answer: Some(Ok((0, down))) },
        9 => Fate {
            name: "twice, the second answered",
            effects: vec![up, up + random.random_range(1..=WAY_MS_MAX)],
            answer: Some(Ok((1, down))),
        },
        _ => Fate {
            name: "500 and done later",
            effects: vec![up + down + late(random, LATE_MS_MAX)],
            answer: Some(Err((up + down, "500 InternalError"))),
        },
    }
}

impl Net {
    pub fn new(seed: u64, world: Arc<World>, s3: S3, hosts: usize) -> Arc<Self> {
        let state = Mutex::new(State {
            s3,
            now_ms: 0,
            next: 0,
            events: BTreeMap::new(),
            random: chance::generator(seed, "net"),
            weather: vec![Weather::default(); hosts],
            storms: vec![0; hosts],
            has_storms: true,
            requests: 0,
            parts: 0,
            fates: BTreeMap::new(),
            #[cfg(test)]
            script: Vec::new(),
        });
        Arc::new(Self { state, world })
    }

    pub fn set_weather(&self, host: usize, weather: Weather) {
        self.state.lock().weather[host] = weather;
    }

    /// No line is cut any more.
    pub fn end_storms(&self) {
        let mut state = self.state.lock();
        state.has_storms = false;
        state.storms.fill(0);
    }

    pub fn next_event_ms(&self) -> Option<u64> {
        self.state.lock().events.first_key_value().map(|((at, _), _)| *at)
    }

    /// All that is due by then.
    pub fn run_until(&self, now_ms: u64) {
        let mut state = self.state.lock();
        while let Some(entry) = state.events.first_entry()
            && entry.key().0 <= now_ms
        {
            let ((at, _), event) = entry.remove_entry();
            state.now_ms = at;
            event(&mut state);
        }
        state.now_ms = now_ms;
    }

    #[cfg(test)]
    pub fn script(&self, host: usize, part: &'static str, fate: Fate) {
        self.state.lock().script.push((host, part, fate));
    }

    pub fn planted(&self) -> Option<Plant> {
        self.world.planted()
    }

    /// Counts the openings of volumes by machines that sit at seats.
    pub fn next_part(&self) -> u64 {
        let mut state = self.state.lock();
        state.parts += 1;
        state.parts
    }

    pub fn requests(&self) -> u64 {
        self.state.lock().requests
    }

    pub fn fates(&self) -> BTreeMap<&'static str, u64> {
        self.state.lock().fates.clone()
    }

    pub fn look<T>(&self, look: impl FnOnce(&mut S3) -> T) -> T {
        look(&mut self.state.lock().s3)
    }
}

impl Line {
    /// Sends a request, and waits for its answer, perhaps for ever.
    pub async fn ask<T: Send + 'static>(&self, what: impl FnOnce() -> String, effect: Effect<T>) -> Result<T> {
        let (answer, answered) = oneshot::channel();
        let what = if self.net.world.has_trace() { what() } else { String::new() };
        self.send(what, effect, answer);
        self.sent.notify_one();
        match answered.await {
            Ok(answer) => answer,
            // There will be none.
            Err(_) => std::future::pending().await,
        }
    }

    fn send<T: Send + 'static>(&self, what: String, effect: Effect<T>, answer: oneshot::Sender<Result<T>>) {
        if self.is_dead.load(Ordering::Relaxed) {
            return;
        }
        let now_ms = crate::turns::elapsed().as_millis() as u64;
        let mut state = self.net.state.lock();
        let mut weather = state.weather[self.host];
        weather.is_cut |= now_ms < state.storms[self.host];
        state.requests += 1;
        let drawn = fate(&mut state.random, weather);
        #[cfg(test)]
        let drawn = state.scripted(self.host, &what).unwrap_or(drawn);
        let Fate { name, effects, answer: kind } = drawn;
        *state.fates.entry(name).or_default() += 1;
        let mut answer = Some(answer);
        for (number, after_ms) in effects.into_iter().enumerate() {
            let (effect, what, world, host) = (effect.clone(), what.clone(), self.net.world.clone(), self.host);
            let replies = match kind {
                Some(Ok((of, down_ms))) if of == number => answer.take().map(|answer| (answer, down_ms)),
                _ => None,
            };
            let event = Box::new(move |state: &mut State| {
                let now = state.wall();
                let outcome = effect(&mut state.s3, now);
                let (at, of) = (state.now_ms as f64 / 1000.0, now_ms as f64 / 1000.0);
                world.note(|| {
                    let why = outcome.as_ref().err().map(ToString::to_string).unwrap_or_default();
                    format!("{at:10.3} machine {host} {what}, sent at {of:.3}: {name} {why}")
                });
                if let Some((answer, down_ms)) = replies {
                    // Whoever is gone hears nothing.
                    let reply = Box::new(move |_: &mut State| drop(answer.send(outcome)));
                    state.at(state.now_ms + down_ms, reply);
                }
            });
            state.at(now_ms + after_ms, event);
        }
        if let (Some(Err((after_ms, why))), Some(answer)) = (kind, answer) {
            state.at(now_ms + after_ms, Box::new(move |_| drop(answer.send(Err(generic(why))))));
        }
    }

    /// A request follows that takes a handover further (`net.storms`).
    pub fn may_meet_a_storm(&self) {
        let now_ms = crate::turns::elapsed().as_millis() as u64;
        let mut state = self.net.state.lock();
        if state.has_storms && state.random.random_range(0..STORM_EVERY) == 0 {
            let for_ms = state.random.random_range(STORM_MS);
            state.storms[self.host] = now_ms + for_ms;
            self.net.world.note(|| format!("the line of machine {} is cut for {for_ms} ms", self.host));
        }
    }

    /// Half of a body, now and then.
    pub fn breaks_off(&self) -> Option<f64> {
        let mut state = self.net.state.lock();
        let rough = state.weather[self.host].rough;
        (state.random.random_range(0..4000) < rough).then(|| state.random.random_range(0.0..1.0))
    }
}
