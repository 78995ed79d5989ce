//! Turns: the order of work and the passing of time, from the seed.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use larder_base::{Clock, Timestamp};
use larder_pool::disk::work::Turns;
use parking_lot::Mutex;
use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use tokio::time::Instant;

use crate::chance;
use crate::disk::{Plant, World};

/// How long a piece of work may wait for its turn.
const WAIT_MS_MAX: u64 = 4;

/// The time that slow disks took is paid by whoever's turn is next, though it may be another's work that met them: so no
/// more than this. Erasing a disk of two seconds a request would else hold up a journal on others for ten minutes.
const DEBT_MAX: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub struct SimTurns {
    world: Arc<World>,
    random: Mutex<StdRng>,
}

impl SimTurns {
    pub fn new(world: Arc<World>, seed: u64) -> Self {
        Self { world, random: Mutex::new(chance::generator(seed, "turns")) }
    }
}

impl Turns for SimTurns {
    fn turn(&self) -> BoxFuture<'static, ()> {
        let (yields, wait_ms) = {
            let mut random = self.random.lock();
            let wait_ms = if random.random_range(0..4) == 0 { random.random_range(1..=WAIT_MS_MAX) } else { 0 };
            (random.random_range(0..3), wait_ms)
        };
        let wait = Duration::from_millis(wait_ms) + self.world.take_debt().min(DEBT_MAX);
        Box::pin(async move {
            for _ in 0..yields {
                tokio::task::yield_now().await;
            }
            if !wait.is_zero() {
                tokio::time::sleep(wait).await;
            }
            tell_time();
        })
    }

    fn order(&self, count: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..count).collect();
        order.shuffle(&mut *self.random.lock());
        order
    }

    fn trusts_blocks(&self) -> bool {
        self.world.planted() == Some(Plant::TrustBlocks)
    }
}

thread_local! {
    static START: std::cell::Cell<Option<Instant>> = const { std::cell::Cell::new(None) };
}

/// Called once, first thing in the runtime of a schedule. Time goes on from `elapsed`.
pub fn start_time(elapsed: Duration) {
    START.set(Instant::now().checked_sub(elapsed));
    larder_base::clock::simulate_boot_clock(Some(boot));
    tell_time();
}

thread_local! {
    static SEAMS: std::cell::RefCell<Option<StdRng>> = const { std::cell::RefCell::new(None) };
}

/// From now on others go on at the seams of this thread's volumes, for as long as the seed says.
pub fn open_seams(seed: u64) {
    SEAMS.replace(Some(chance::generator(seed, "seams")));
    larder_base::seam::simulate(Some(at_a_seam));
}

fn at_a_seam() -> larder_base::seam::Wait {
    let drawn = SEAMS.with_borrow_mut(|random| {
        random.as_mut().map(|random| (random.random_range(0..8u32), random.random_range(0..=WAIT_MS_MAX)))
    });
    let (kind, wait_ms) = drawn.unwrap_or_default();
    Box::pin(async move {
        for _ in 0..kind.saturating_sub(1) {
            tokio::task::yield_now().await;
        }
        if kind > 4 && wait_ms > 0 {
            tokio::time::sleep(Duration::from_millis(wait_ms)).await;
        }
        tell_time();
    })
}

/// The clock that goes on while a process is suspended.
fn boot() -> Duration {
    chance::UPTIME_START + elapsed()
}

/// Where [`start_time`] put the beginning.
pub fn started() -> Option<Instant> {
    START.get()
}

/// From now on the time is that of another runtime, which began there.
pub fn switch(start: Option<Instant>) {
    START.set(start);
}

/// Virtual time since the schedule began.
pub fn elapsed() -> Duration {
    START.get().map_or(Duration::ZERO, |start| start.elapsed())
}

/// The clocks of the process show what the runtime's shows.
pub fn tell_time() {
    chance::reached(elapsed());
}

/// The clock that is handed to a volume: the process's own, which here is simulated.
pub struct SimClock;

impl Clock for SimClock {
    fn now(&self) -> Timestamp {
        tell_time();
        std::time::SystemTime::now().into()
    }

    fn elapsed(&self) -> Duration {
        elapsed()
    }
}
