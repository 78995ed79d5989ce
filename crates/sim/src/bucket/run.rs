//! A schedule of machines that fight for a bucket: who begins, stops, is suspended, cut off or killed, and when.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use larder_base::Seat;
use object_store::GetOptions;
use object_store::path::Path;
use parking_lot::Mutex;
use rand::Rng;
use rand::rngs::StdRng;

use super::journal::Disks;
use super::known::Known;
use super::life::{How, Life, VOLUME};
use super::net::{Line, Net, Weather};
use super::process::Process;
use super::s3::{Got, S3};
use super::seated::{Meeting, Place};
use crate::chance;
use crate::disk::World;
use crate::plan::{Plan, Trouble};
use crate::sealing::Ring;
use crate::session::Run;

/// Machines that serve. One process runs on each at most: its data folder has a lock.
const HOSTS: usize = 2;
/// With seats: two of them, and two machines that fight for each.
const SEATED_HOSTS: usize = 4;
/// Another one takes in the end what was given back.
const LINES: usize = SEATED_HOSTS + 1;
/// Volumes of machines at seats.
const VOLUMES: [&str; 3] = [VOLUME, "w", "x"];
/// What was late has arrived by then.
const ALL_ARRIVED_MS: u64 = 700_000;
const SLICE_MS: u64 = 500;
/// No schedule lasts longer: something hangs.
const END_MS: u64 = 12 * 3600 * 1000;

/// The properties of a bucket schedule, the same in all lives.
#[derive(Clone, Debug)]
pub struct Shape {
    /// Owners renew their record, and others stand by.
    pub has_standby: bool,
    /// Owners answer from journals of their own, and nobody takes a store by force.
    pub has_journals: bool,
    pub log_entries: u64,
    pub room_bytes: Option<u64>,
    pub record_bytes: u32,
    /// Of a thousand requests, in bad weather.
    pub rough: u32,
}

impl Shape {
    fn new(seed: u64, has_seats: bool) -> Self {
        let random = &mut chance::generator(seed, "bucket");
        let has_standby = random.random();
        Self {
            has_standby,
            // Where answers come from a journal volumes are not handed over.
            has_journals: has_standby && !has_seats && chance::generator(seed, "bucket journals").random(),
            log_entries: 1 << random.random_range(4..11),
            room_bytes: (random.random_range(0..4) == 0).then(|| random.random_range(8..40u64) << 20),
            record_bytes: 4096 << random.random_range(0..6),
            rough: 1 << random.random_range(0..9),
        }
    }
}

/// How a schedule went.
pub struct Outcome {
    pub failure: Option<String>,
    pub answered: u64,
    pub virtual_time: Duration,
}

/// What befalls a machine while a volume is handed over.
#[derive(Clone, Copy, Debug)]
enum Blow {
    Kill,
    Suspend { for_ms: u64 },
    Weather(Weather),
}

struct Running {
    process: Process,
    life: Arc<Life>,
}

struct Schedule<'a> {
    seed: u64,
    plan: &'a Plan,
    world: &'a Arc<World>,
    shape: Shape,
    net: Arc<Net>,
    known: Vec<Arc<Known>>,
    meeting: Arc<Meeting>,
    ring: Arc<Ring>,
    random: StdRng,
    hosts: Vec<Option<Running>>,
    disks: [Disks; HOSTS],
    now_ms: u64,
    lives: u32,
    /// By when and whom.
    blows: BTreeMap<u64, (usize, Blow)>,
    is_concluding: bool,
    failure: Option<String>,
    answered: u64,
}

pub fn run(seed: u64, plan: &Plan, world: &Arc<World>) -> Outcome {
    let mut shape = Shape::new(seed, plan.has_seats);
    let mut known = vec![Arc::<Known>::default()];
    if plan.has_seats {
        shape.room_bytes = None;
        let volumes = chance::generator(seed, "seated volumes").random_range(1..=VOLUMES.len());
        known.resize_with(volumes, Arc::default);
    }
    world.note(|| format!("{shape:?}"));
    let s3 = {
        let random = &mut chance::generator(seed, "bucket server");
        let skew_s = if random.random_range(0..3) == 0 { random.random_range(-7200..7200) } else { 0 };
        let page_max = if random.random() { 1000 } else { random.random_range(1..20) };
        S3::new(random.random_range(0..4) != 0, skew_s, page_max)
    };
    let mut schedule = Schedule {
        seed,
        plan,
        world,
        shape,
        net: Net::new(seed, world.clone(), s3, LINES),
        known,
        meeting: Arc::default(),
        ring: Arc::default(),
        random: chance::generator(seed, "machines"),
        hosts: (0..if plan.has_seats { SEATED_HOSTS } else { HOSTS }).map(|_| None).collect(),
        disks: [Disks::new("a"), Disks::new("b")],
        now_ms: 0,
        lives: 0,
        blows: BTreeMap::new(),
        is_concluding: false,
        failure: None,
        answered: 0,
    };
    schedule.all_hosts().for_each(|host| schedule.change_weather(host));
    schedule.fight();
    if schedule.failure.is_none() {
        schedule.conclude();
    }
    schedule.all_hosts().for_each(|host| schedule.kill(host));
    world.note(|| format!("fates: {:?}", schedule.net.fates()));
    Outcome {
        failure: schedule.failure,
        answered: schedule.answered,
        virtual_time: Duration::from_millis(schedule.now_ms),
    }
}

/// Machines next to each other sit at different seats.
fn seat_of(host: usize) -> Seat {
    let name = ["first", "b"][host % HOSTS];
    name.parse().unwrap_or_default()
}

impl Schedule<'_> {
    fn note(&self, line: impl FnOnce() -> String) {
        self.world.note(|| format!("{:10.3} {}", self.now_ms as f64 / 1000.0, line()));
    }

    fn all_hosts(&self) -> std::ops::Range<usize> {
        0..self.hosts.len()
    }

    fn draw_ms(&mut self, least: f64, most: f64) -> u64 {
        self.random.random_range(least.ln()..most.ln()).exp() as u64
    }

    /// Until all lives but the last are used up.
    fn fight(&mut self) {
        let lives = self.plan.sessions.max(2) + if self.plan.sessions > 2 { 3 } else { 0 };
        while self.lives + 1 < lives && self.failure.is_none() {
            let pause_ms = match self.plan.has_seats {
                true => {
                    self.act_at_seats();
                    self.draw_ms(200.0, 120_000.0)
                }
                false => {
                    self.act();
                    self.draw_ms(50.0, 60_000.0)
                }
            };
            self.run_until(self.now_ms + pause_ms, None);
        }
    }

    fn act(&mut self) {
        let running: Vec<usize> = (0..HOSTS).filter(|host| self.hosts[*host].is_some()).collect();
        if running.is_empty() {
            let host = self.random.random_range(0..HOSTS);
            return self.start(host);
        }
        let host = running[self.random.random_range(0..running.len())];
        match self.random.random_range(0..12) {
            0..4 => {
                let idle: Vec<usize> = (0..HOSTS).filter(|host| self.hosts[*host].is_none()).collect();
                if let Some(host) = idle.first() {
                    self.start(*host);
                }
            }
            4 => self.kill(host),
            5..8 => {
                let for_ms = self.draw_ms(500.0, 600_000.0);
                self.note(|| format!("machine {host} is suspended for {for_ms} ms"));
                if let Some(running) = &mut self.hosts[host] {
                    running.process.wakes_ms = self.now_ms + for_ms;
                }
            }
            _ => {
                let host = self.random.random_range(0..HOSTS);
                self.change_weather(host);
            }
        }
    }

    /// As [`Self::act`]. Mostly somebody sits at each seat.
    fn act_at_seats(&mut self) {
        let idle: Vec<usize> = self.all_hosts().filter(|host| self.hosts[*host].is_none()).collect();
        let free: Vec<usize> =
            idle.iter().copied().filter(|host| self.hosts[(host + HOSTS) % SEATED_HOSTS].is_none()).collect();
        let host = self.random.random_range(0..self.hosts.len());
        match self.random.random_range(0..12) {
            0..5 if !free.is_empty() => {
                let host = free[self.random.random_range(0..free.len())];
                self.start(host);
            }
            0..2 if !idle.is_empty() => {
                let host = idle[self.random.random_range(0..idle.len())];
                self.start(host);
            }
            0..6 => self.kill(host),
            6 | 7 => {
                let for_ms = self.draw_ms(500.0, 600_000.0);
                self.suspend(host, for_ms);
            }
            _ => self.change_weather(host),
        }
    }

    /// A volume is on its way: now and then something befalls the one who gives it, or the one who takes it.
    fn strike(&mut self, (from, to): (Seat, Seat)) {
        if self.random.random_range(0..5) > 1 || self.is_concluding {
            return;
        }
        let seat = if self.random.random_range(0..3) == 0 { to } else { from };
        let there: Vec<usize> =
            self.all_hosts().filter(|host| seat_of(*host) == seat && self.hosts[*host].is_some()).collect();
        let Some(host) = there.first().copied() else { return };
        let at_ms = self.now_ms + self.draw_ms(1.0, 3000.0);
        let bad = Weather { rough: self.shape.rough, is_cut: false };
        let blow = match self.random.random_range(0..8) {
            0 | 1 => Blow::Kill,
            2 => Blow::Suspend { for_ms: self.draw_ms(500.0, 200_000.0) },
            3..6 => Blow::Weather(Weather { is_cut: true, ..bad }),
            _ => Blow::Weather(Weather { rough: 500, ..bad }),
        };
        if let Blow::Weather(_) = blow {
            // Calls are given up after a minute and more.
            let end_ms = at_ms + self.draw_ms(2000.0, 300_000.0);
            self.blows.insert(end_ms, (host, Blow::Weather(bad)));
        }
        self.blows.insert(at_ms, (host, blow));
    }

    fn deal_blows(&mut self) {
        while let Some(entry) = self.blows.first_entry()
            && *entry.key() <= self.now_ms
        {
            let (host, blow) = entry.remove();
            self.note(|| format!("machine {host}: {blow:?}"));
            match blow {
                _ if self.is_concluding => {}
                Blow::Kill => self.kill(host),
                Blow::Suspend { for_ms } => self.suspend(host, for_ms),
                Blow::Weather(weather) => self.net.set_weather(host, weather),
            }
        }
    }

    fn suspend(&mut self, host: usize, for_ms: u64) {
        if let Some(running) = &mut self.hosts[host] {
            running.process.wakes_ms = self.now_ms + for_ms;
            self.note(|| format!("machine {host} is suspended for {for_ms} ms"));
        }
    }

    fn change_weather(&mut self, host: usize) {
        let weather = match self.random.random_range(0..6) {
            0 => Weather { is_cut: true, ..Weather::default() },
            1 => Weather::default(),
            _ => Weather { rough: self.shape.rough, is_cut: false },
        };
        self.note(|| format!("machine {host} has {weather:?}"));
        self.net.set_weather(host, weather);
    }

    fn start(&mut self, host: usize) {
        let how = match (self.shape.has_standby, self.random.random_range(0..4)) {
            _ if self.shape.has_journals => How::StandBy,
            (true, 0..3) => How::StandBy,
            (false, 0) => How::Free,
            _ => How::Forced,
        };
        self.begin(host, how, false);
    }

    fn begin(&mut self, host: usize, how: How, is_last: bool) {
        self.kill(host);
        self.lives += 1;
        let (number, seed) = (self.lives, self.seed ^ (u64::from(self.lives) << 40));
        self.note(|| format!("life {number} begins on machine {host}: {how:?}"));
        let world = World::below(self.world, format!("life{number}"), seed);
        let trouble = if is_last { Trouble::None } else { self.plan.trouble };
        let mut run = Run::new(seed, Plan { trouble, ..self.plan.clone() }, world);
        // Keys and ciphers are the volume's.
        (run.seed, run.ring) = (self.seed, self.ring.clone());
        let seat = if self.plan.has_seats { seat_of(host) } else { Seat::default() };
        let line = Line { net: self.net.clone(), host, seat, sent: Arc::default(), is_dead: Arc::default() };
        let seated = self.plan.has_seats.then(|| self.place(host));
        let life = Arc::new(Life {
            run: Arc::new(run),
            known: self.known[0].clone(),
            line: line.clone(),
            how,
            disks: self.shape.has_journals.then(|| self.disks[host].clone()),
            shape: self.shape.clone(),
            is_last,
            has_taken: false.into(),
            volume: VOLUME,
            seated,
        });
        let main = Box::pin(life.clone().live());
        self.hosts[host] = Process::new(self.now_ms, line, main).map(|process| Running { process, life });
    }

    fn place(&self, host: usize) -> Place {
        Place {
            other: seat_of(host + 1),
            volumes: VOLUMES.into_iter().zip(self.known.iter().cloned()).collect(),
            meeting: self.meeting.clone(),
            leads: host % HOSTS == (self.seed % HOSTS as u64) as usize,
            parts: Mutex::default(),
        }
    }

    fn kill(&mut self, host: usize) {
        let Some(Running { process, life }) = self.hosts[host].take() else { return };
        if life.run.world.has_power() {
            self.note(|| format!("the process of machine {host} is killed"));
            life.run.world.cut_now();
        }
        drop(process);
        self.answered += *life.run.answered.lock();
        let parts = life.seated.iter().flat_map(|place| place.parts.lock().clone());
        self.answered += parts.map(|run| *run.answered.lock()).sum::<u64>();
    }

    /// Runs until then, or until the process of a machine has ended.
    fn run_until(&mut self, until_ms: u64, ends: Option<usize>) {
        while self.failure.is_none() && ends.is_none_or(|host| self.hosts[host].is_some()) {
            let wakes = self.hosts.iter().flatten().map(|running| running.process.wakes_ms);
            let wakes = wakes.filter(|wakes| *wakes > self.now_ms).min();
            let blow = self.blows.keys().next().copied();
            // The last processes wait for each other beside the bucket: none of them runs far ahead.
            let slice = (self.plan.has_seats && self.is_concluding).then_some(self.now_ms + SLICE_MS);
            let next = [self.net.next_event_ms(), wakes, blow, slice, Some(until_ms)].into_iter().flatten().min();
            let next = next.unwrap_or(until_ms).clamp(self.now_ms, until_ms);
            let now_ms = self.now_ms;
            let behind = self.all_hosts().filter_map(|host| {
                let clock = self.hosts[host].as_ref()?.process.clock_ms(now_ms)?;
                (clock < next).then_some((clock, host))
            });
            if let Some((_, host)) = behind.min() {
                self.step(host, next);
                continue;
            }
            self.now_ms = next;
            self.net.run_until(next);
            if let Some(why) = self.net.look(|s3| s3.ledger.take_wrong()) {
                self.note(|| format!("FAILED: {why}"));
                self.failure.get_or_insert(why);
            }
            if self.plan.has_seats {
                if let Some(seats) = self.net.look(|s3| s3.ledger.take_under_way()) {
                    self.strike(seats);
                }
                self.deal_blows();
            }
            if next >= until_ms {
                return;
            }
        }
    }

    fn step(&mut self, host: usize, until_ms: u64) {
        let now_ms = self.now_ms;
        let Some(running) = &mut self.hosts[host] else { return };
        running.process.step(now_ms, until_ms);
        let run = &running.life.run;
        let parts = running.life.seated.iter().flat_map(|place| place.parts.lock().clone());
        let failure = run.failed().or_else(|| parts.filter_map(|run| run.failed()).next());
        let is_dead = !run.world.has_power();
        if failure.is_some() {
            self.failure = failure;
        }
        if is_dead {
            self.kill(host);
        }
    }

    /// The weather is good. One machine takes the store, whatever others do; then it is the only one.
    fn conclude(&mut self) {
        self.all_hosts().for_each(|host| self.net.set_weather(host, Weather::default()));
        self.is_concluding = true;
        self.net.end_storms();
        if self.plan.has_seats {
            return self.conclude_at_seats();
        }
        if self.shape.has_journals {
            return self.conclude_with_journals();
        }
        let host = self.random.random_range(0..HOSTS);
        let other = (host + 1) % HOSTS;
        self.begin(host, How::Forced, true);
        let with_other_ms = self.draw_ms(1000.0, 120_000.0);
        self.run_until(self.now_ms + with_other_ms, Some(host));
        self.kill(other);
        self.run_last(host);
    }

    /// At each seat a machine goes on, whatever others do; then they are the only ones.
    fn conclude_at_seats(&mut self) {
        let last = [0, 1].map(|seat| seat + HOSTS * self.random.random_range(0..SEATED_HOSTS / HOSTS));
        // Nobody is about to take a seat, but the last ones.
        let has_taken = |running: &Running| running.life.has_taken.load(Ordering::Relaxed);
        let takers = self.all_hosts().filter(|host| self.hosts[*host].as_ref().is_some_and(|it| !has_taken(it)));
        takers.collect::<Vec<_>>().into_iter().for_each(|host| self.kill(host));
        for host in last {
            self.begin(host, How::Forced, true);
            let with_others_ms = self.draw_ms(1000.0, 120_000.0);
            self.run_until(self.now_ms + with_others_ms, None);
        }
        self.all_hosts().filter(|host| !last.contains(host)).for_each(|host| self.kill(host));
        last.into_iter().for_each(|host| self.run_last(host));
        if self.failure.is_none() && self.meeting.done() != 2 {
            self.failure = Some("a machine lost its seat in the last life".to_owned());
        }
        let handovers = self.net.look(|s3| s3.ledger.handovers());
        self.note(|| format!("{handovers} handovers"));
    }

    fn run_last(&mut self, host: usize) {
        self.run_until(END_MS, Some(host));
        if self.failure.is_none() && self.hosts[host].is_some() {
            self.failure = Some("the last life does not end".to_owned());
        }
    }

    /// The machine that the record names may have what the bucket lacks. Nobody else takes the store.
    fn conclude_with_journals(&mut self) {
        self.all_hosts().for_each(|host| self.kill(host));
        self.run_until(self.now_ms + ALL_ARRIVED_MS, None);
        let record = self.net.look(|s3| s3.get(&Path::from("owner.json"), &GetOptions::default()).ok());
        let is_second = |record: Got| String::from_utf8_lossy(&record.body).contains(r#""id": "id-b""#);
        let host = usize::from(record.is_some_and(is_second));
        self.begin(host, How::Free, true);
        self.run_last(host);
    }
}
