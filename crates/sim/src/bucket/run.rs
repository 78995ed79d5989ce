//! A schedule of machines that fight for a bucket: who begins, stops, is suspended, cut off or killed, and when.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use object_store::GetOptions;
use object_store::path::Path;
use rand::Rng;
use rand::rngs::StdRng;

use super::journal::Disks;
use super::known::Known;
use super::life::{How, Life};
use super::net::{Line, Net, Weather};
use super::process::Process;
use super::s3::{Got, S3};
use crate::chance;
use crate::disk::World;
use crate::plan::{Plan, Trouble};
use crate::sealing::Ring;
use crate::session::Run;

/// Machines that serve. One process runs on each at most: its data folder has a lock.
const HOSTS: usize = 2;
/// What was late has arrived by then.
const ALL_ARRIVED_MS: u64 = 700_000;
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
    fn new(seed: u64) -> Self {
        let random = &mut chance::generator(seed, "bucket");
        let has_standby = random.random();
        Self {
            has_standby,
            has_journals: has_standby && chance::generator(seed, "bucket journals").random(),
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
    known: Arc<Known>,
    ring: Arc<Ring>,
    random: StdRng,
    hosts: [Option<Running>; HOSTS],
    disks: [Disks; HOSTS],
    now_ms: u64,
    lives: u32,
    failure: Option<String>,
    answered: u64,
}

pub fn run(seed: u64, plan: &Plan, world: &Arc<World>) -> Outcome {
    let shape = Shape::new(seed);
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
        net: Net::new(seed, world.clone(), s3, HOSTS + 1),
        known: Arc::default(),
        ring: Arc::default(),
        random: chance::generator(seed, "machines"),
        hosts: [None, None],
        disks: [Disks::new("a"), Disks::new("b")],
        now_ms: 0,
        lives: 0,
        failure: None,
        answered: 0,
    };
    (0..HOSTS).for_each(|host| schedule.change_weather(host));
    schedule.fight();
    if schedule.failure.is_none() {
        schedule.conclude();
    }
    (0..HOSTS).for_each(|host| schedule.kill(host));
    world.note(|| format!("fates: {:?}", schedule.net.fates()));
    Outcome {
        failure: schedule.failure,
        answered: schedule.answered,
        virtual_time: Duration::from_millis(schedule.now_ms),
    }
}

impl Schedule<'_> {
    fn note(&self, line: impl FnOnce() -> String) {
        self.world.note(|| format!("{:10.3} {}", self.now_ms as f64 / 1000.0, line()));
    }

    fn draw_ms(&mut self, least: f64, most: f64) -> u64 {
        self.random.random_range(least.ln()..most.ln()).exp() as u64
    }

    /// Until all lives but the last are used up.
    fn fight(&mut self) {
        let lives = self.plan.sessions.max(2) + if self.plan.sessions > 2 { 3 } else { 0 };
        while self.lives + 1 < lives && self.failure.is_none() {
            self.act();
            let pause_ms = self.draw_ms(50.0, 60_000.0);
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
        let line = Line { net: self.net.clone(), host, sent: Arc::default(), is_dead: Arc::default() };
        let life = Arc::new(Life {
            run: Arc::new(run),
            known: self.known.clone(),
            line: line.clone(),
            how,
            disks: self.shape.has_journals.then(|| self.disks[host].clone()),
            shape: self.shape.clone(),
            is_last,
            epoch: AtomicU64::new(0),
        });
        let main = Box::pin(life.clone().live());
        self.hosts[host] = Process::new(self.now_ms, line, main).map(|process| Running { process, life });
    }

    fn kill(&mut self, host: usize) {
        let Some(Running { process, life }) = self.hosts[host].take() else { return };
        if life.run.world.has_power() {
            self.note(|| format!("the process of machine {host} is killed"));
            life.run.world.cut_now();
        }
        drop(process);
        self.answered += *life.run.answered.lock();
    }

    /// Runs until then, or until the process of a machine has ended.
    fn run_until(&mut self, until_ms: u64, ends: Option<usize>) {
        while self.failure.is_none() && ends.is_none_or(|host| self.hosts[host].is_some()) {
            let wakes = self.hosts.iter().flatten().map(|running| running.process.wakes_ms);
            let wakes = wakes.filter(|wakes| *wakes > self.now_ms).min();
            let next = [self.net.next_event_ms(), wakes, Some(until_ms)].into_iter().flatten().min();
            let next = next.unwrap_or(until_ms).clamp(self.now_ms, until_ms);
            let now_ms = self.now_ms;
            let behind = (0..HOSTS).filter_map(|host| {
                let clock = self.hosts[host].as_ref()?.process.clock_ms(now_ms)?;
                (clock < next).then_some((clock, host))
            });
            if let Some((_, host)) = behind.min() {
                self.step(host, next);
                continue;
            }
            self.now_ms = next;
            self.net.run_until(next);
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
        let (failure, is_dead) = (run.failed(), !run.world.has_power());
        if failure.is_some() {
            self.failure = failure;
        }
        if is_dead {
            self.kill(host);
        }
    }

    /// The weather is good. One machine takes the store, whatever others do; then it is the only one.
    fn conclude(&mut self) {
        (0..HOSTS).for_each(|host| self.net.set_weather(host, Weather::default()));
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

    fn run_last(&mut self, host: usize) {
        self.run_until(END_MS, Some(host));
        if self.failure.is_none() && self.hosts[host].is_some() {
            self.failure = Some("the last life does not end".to_owned());
        }
    }

    /// The machine that the record names may have what the bucket lacks. Nobody else takes the store.
    fn conclude_with_journals(&mut self) {
        (0..HOSTS).for_each(|host| self.kill(host));
        self.run_until(self.now_ms + ALL_ARRIVED_MS, None);
        let record = self.net.look(|s3| s3.get(&Path::from("owner.json"), &GetOptions::default()).ok());
        let is_second = |record: Got| String::from_utf8_lossy(&record.body).contains(r#""id": "id-b""#);
        let host = usize::from(record.is_some_and(is_second));
        self.begin(host, How::Free, true);
        self.run_last(host);
    }
}
