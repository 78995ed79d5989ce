//! Randomness and time of a simulated process: every source of either in the process answers from the seed.
//!
//! Larder and its libraries draw random numbers in many places: ids, nonces, the seeds of hash maps, the first branch of
//! `tokio::select!`. All of them come down to getrandom(2), and all clocks to clock_gettime(2). The two symbols of the C library
//! are replaced here. A thread with a seed gets numbers from it, and the time that its simulation has reached; all other
//! threads get what the kernel says. So no source has to be passed through code of others.
//!
//! - `chance.fresh_thread`: a schedule runs on a fresh thread, so that the state of libraries per
//!   thread (generators, hash keys) starts anew.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngCore, SeedableRng};

/// The start of simulated wall time: 2025-01-01.
const WALL_START: Duration = Duration::from_secs(1_735_689_600);
/// The start of simulated monotonic time: not zero, so that earlier moments exist.
const UPTIME_START: Duration = Duration::from_secs(1_000_000);

thread_local! {
    static RANDOM: RefCell<Option<StdRng>> = const { RefCell::new(None) };
    static ELAPSED: Cell<Option<Duration>> = const { Cell::new(None) };
    /// Seconds that the wall clock was set forward or back.
    static WALL_STEP_S: Cell<i64> = const { Cell::new(0) };
}

/// A generator for one purpose of one seed.
pub fn generator(seed: u64, purpose: &str) -> StdRng {
    StdRng::seed_from_u64(larder_base::checksum::checksum(seed, purpose.as_bytes()))
}

/// From now on this thread lives in the simulation of `seed`.
pub fn enter(seed: u64) {
    let random = generator(seed, "process");
    RANDOM.with(|cell| *cell.borrow_mut() = Some(random));
    ELAPSED.set(Some(Duration::ZERO));
    WALL_STEP_S.set(0);
    larder_base::clock::simulate_boot_clock(Some(boot));
}

/// Back in the real world, before what lives on this thread is torn down.
pub fn leave() {
    RANDOM.with(|cell| *cell.borrow_mut() = None);
    ELAPSED.set(None);
    larder_base::clock::simulate_boot_clock(None);
}

/// The clock that goes on while a process is suspended.
fn boot() -> Duration {
    UPTIME_START + crate::turns::elapsed()
}

/// Wall time of a machine whose clock is right, at a time of the simulation.
pub fn wall_at(elapsed: Duration) -> std::time::SystemTime {
    std::time::SystemTime::UNIX_EPOCH + WALL_START + elapsed
}

/// The simulation has come this far.
pub fn reached(elapsed: Duration) {
    ELAPSED.set(Some(elapsed));
}

/// Somebody sets the clock.
pub fn step_wall_clock(seconds: i64) {
    WALL_STEP_S.set(WALL_STEP_S.get().saturating_add(seconds));
}

/// Simulated wall time, as seconds and nanoseconds.
fn wall(elapsed: Duration) -> (i64, i64) {
    let now = WALL_START + elapsed;
    (now.as_secs() as i64 + WALL_STEP_S.get(), i64::from(now.subsec_nanos()))
}

#[repr(C)]
struct Timespec {
    seconds: i64,
    nanoseconds: i64,
}

const CLOCK_REALTIME: i32 = 0;
const CLOCK_REALTIME_COARSE: i32 = 5;

/// getrandom(2), for whoever asks in this process.
///
/// # Safety
/// As the C library's: `buffer` has room for `length` bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn getrandom(buffer: *mut u8, length: usize, flags: u32) -> isize {
    if buffer.is_null() || length == 0 {
        return 0;
    }
    // SAFETY: the caller gives `length` writable bytes at `buffer`; nobody else has them while this runs.
    let bytes = unsafe { std::slice::from_raw_parts_mut(buffer, length) };
    // Not at the end of a thread, when its locals are gone.
    let simulated = RANDOM.try_with(|random| {
        let mut random = random.try_borrow_mut().ok()?;
        random.as_mut().map(|random| random.fill_bytes(bytes))
    });
    if let Ok(Some(())) = simulated {
        return length as isize;
    }
    let flags = rustix::rand::GetRandomFlags::from_bits_retain(flags);
    rustix::rand::getrandom(bytes, flags).map_or(-1, |filled| filled as isize)
}

/// clock_gettime(2), for whoever asks in this process.
///
/// # Safety
/// As the C library's: `time` may be written to.
#[unsafe(no_mangle)]
unsafe extern "C" fn clock_gettime(clock: i32, time: *mut Timespec) -> i32 {
    if time.is_null() {
        return -1;
    }
    let simulated = ELAPSED.try_with(Cell::get).ok().flatten();
    let (seconds, nanoseconds) = match simulated {
        Some(elapsed) if clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE => wall(elapsed),
        Some(elapsed) => {
            let now = UPTIME_START + elapsed;
            (now.as_secs() as i64, i64::from(now.subsec_nanos()))
        }
        None => real_time(clock),
    };
    // SAFETY: not null, and the caller lets us write one timespec there.
    unsafe { time.write(Timespec { seconds, nanoseconds }) };
    0
}

fn real_time(clock: i32) -> (i64, i64) {
    use rustix::time::{ClockId, clock_gettime};
    let id = match clock {
        CLOCK_REALTIME | CLOCK_REALTIME_COARSE => ClockId::Realtime,
        2 => ClockId::ProcessCPUTime,
        3 => ClockId::ThreadCPUTime,
        _ => ClockId::Monotonic,
    };
    let now = clock_gettime(id);
    (now.tv_sec, now.tv_nsec)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::HashMap;
    use std::time::{Instant, SystemTime};

    use super::*;

    /// Everything that a program can observe of chance and time.
    fn observe(seed: u64) -> (u64, Vec<u32>, Duration, SystemTime) {
        let run = move || {
            enter(seed);
            let start = Instant::now();
            reached(Duration::from_secs(5));
            let order = (0..50).map(|n| (n, n)).collect::<HashMap<u32, u32>>().into_keys().collect();
            let seen = (rand::random(), order, start.elapsed(), SystemTime::now());
            leave();
            seen
        };
        std::thread::spawn(run).join().unwrap()
    }

    #[test]
    fn a_seed_decides_what_looks_random() {
        let (a, b, other) = (observe(1), observe(1), observe(2));
        assert_eq!(a, b);
        assert_ne!(a.0, other.0);
        assert_ne!(a.1, other.1, "hash maps have an order of their own");
        assert_eq!(a.2, Duration::from_secs(5));
        assert_eq!(a.3, SystemTime::UNIX_EPOCH + WALL_START + Duration::from_secs(5));
    }

    #[test]
    fn other_threads_live_in_the_real_world() {
        let start = Instant::now();
        std::thread::sleep(Duration::from_millis(2));
        assert!(start.elapsed() >= Duration::from_millis(2));
        assert_ne!(rand::random::<u64>(), rand::random::<u64>());
        assert!(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap() > WALL_START);
    }
}
