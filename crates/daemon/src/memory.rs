//! Gives memory back: data that was not used for minutes, and step by step data that can be read again while memory is
//! short, on the machine or in our control group. Then the arena gives up its free memory, too
//! (`arena.kept_until_idle`).
//!
//! - `pressure.kernel_wakes_us`: a trigger of the kernel (PSI) wakes the task, at most once per window.
//!   Without pressure the task asks the kernel nothing.
//! - `pressure.judged_by_room`: the kernel reports pressure of the whole machine for any process that strains against a
//!   limit of its own. So a trigger is a reason to look, and memory is short when little is available on the machine, or when
//!   our group is near its limit.
//! - `pressure.in_steps`: each step gives a part of the cache back; the next one comes only while memory is still short.
//! - `pressure.limit_is_polled`: the limit of a control group, where there is one, is looked at
//!   every few seconds once a quarter of it is in use: the kernel kills a group that reaches it, without slowing it first.
//!   Below that a look in each round is enough: what grows fast is caches, whose bound is a quarter.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use larder_base::arena;
use larder_base::units::ByteSize;
use larder_keep::Storage;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use larder_base::rounds;
use larder_config::machine;

/// A round of the cache (`memory.unused_is_given_back`).
const ROUND: Duration = Duration::from_secs(60);
/// Some task waited for memory for 150 ms within 2 s. Windows of 2 s are allowed to users who are not root, too.
const TRIGGER: &[u8] = b"some 150000 2000000\0";
const NONBLOCK: i32 = rustix::fs::OFlags::NONBLOCK.bits() as i32;
/// Between two steps, so that the first can be seen in what is available.
const STEP_EVERY: Duration = Duration::from_secs(1);
/// The time between two looks at the group's limit, a quarter of which is in use (`pressure.limit_is_polled`).
const LOOK_EVERY: Duration = Duration::from_secs(5);
const LOOK_OFTEN_PERCENT: u64 = 25;
/// So much of the group's limit in use counts as short; the second where tasks wait for memory.
const LIMIT_PERCENT: [u64; 2] = [95, 80];
/// So little of the machine's memory available counts as short; the second where tasks wait for memory.
const AVAILABLE_PERCENT: [u64; 2] = [5, 10];

pub async fn run(storage: Arc<Storage>) {
    let mut triggers = machine::pressure_files().iter().filter_map(|file| trigger(file)).collect::<Vec<_>>();
    let (mut round, mut next) = (Instant::now(), tokio::time::Instant::now());
    let mut told: Option<Instant> = None;
    loop {
        let is_pressed = tokio::select! {
            () = tokio::time::sleep_until(next) => {
                next = rounds::next(if Room::now().group_percent() >= LOOK_OFTEN_PERCENT { LOOK_EVERY } else { ROUND });
                false
            }
            () = pressed(&mut triggers) => true,
        };
        let mut bytes = 0;
        while Room::now().is_short(is_pressed) {
            let given: u64 = storage.all().iter().map(|pool| pool.give_some_memory_back()).sum();
            arena::shed();
            bytes += given;
            // Whoever waits for memory is not helped by us any more.
            tokio::time::sleep(STEP_EVERY).await;
            if given == 0 {
                break;
            }
        }
        if bytes > 0 && told.is_none_or(|told| told.elapsed() >= ROUND) {
            tracing::info!("memory is short: {} of cached data were given back", ByteSize(bytes));
            told = Some(Instant::now());
        }
        // A tick may come a little early after one that came late.
        if !is_pressed && bytes == 0 && round.elapsed() + LOOK_EVERY / 2 >= ROUND {
            round = Instant::now();
            for pool in &storage.all() {
                pool.give_back_memory();
            }
        }
    }
}

/// How much memory there is for us.
#[derive(Clone, Copy, Debug)]
struct Room {
    /// Available on the machine, and all of it.
    machine: Option<(u64, u64)>,
    /// In use by our group, and its limit.
    group: Option<(u64, u64)>,
}

impl Room {
    fn now() -> Self {
        let available = larder_keep::memory::available_bytes();
        Self { machine: available.zip(larder_keep::memory::total_bytes()), group: machine::group_memory() }
    }

    /// Of the group's limit; 0 where there is none.
    fn group_percent(self) -> u64 {
        self.group.map_or(0, |(used, limit)| used / (limit / 100).max(1))
    }

    /// `pressure.judged_by_room`
    fn is_short(self, is_pressed: bool) -> bool {
        let [available, limit] = [AVAILABLE_PERCENT, LIMIT_PERCENT].map(|percent| percent[usize::from(is_pressed)]);
        let is_scarce = self.machine.is_some_and(|(there, total)| there < total / 100 * available);
        is_scarce || self.group_percent() >= limit
    }
}

fn trigger(file: &Path) -> Option<AsyncFd<File>> {
    let open = std::fs::OpenOptions::new().read(true).write(true).custom_flags(NONBLOCK).open(file);
    let mut open = open.ok()?;
    open.write_all(TRIGGER).ok()?;
    // SAFETY: a `File` has one open descriptor of its own for as long as it lives.
    #[allow(unsafe_code)]
    unsafe { AsyncFd::register_with_interest(open, Interest::PRIORITY) }.ok()
}

/// Returns when one of the triggers fires. One that cannot be waited for any more is given up.
async fn pressed(triggers: &mut Vec<AsyncFd<File>>) {
    loop {
        if triggers.is_empty() {
            return std::future::pending().await;
        }
        let waits = triggers.iter().map(|trigger| {
            Box::pin(async move {
                let mut ready = trigger.ready(Interest::PRIORITY).await?;
                ready.clear_ready();
                std::io::Result::Ok(())
            })
        });
        let (fired, at, _) = futures::future::select_all(waits).await;
        match fired {
            Ok(()) => return,
            Err(_) => drop(triggers.remove(at)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `pressure.judged_by_room`
    #[test]
    fn memory_is_short_where_there_is_little_room() {
        const GIB: u64 = 1 << 30;
        let check = |machine: (u64, u64), group: Option<(u64, u64)>, waiting: [bool; 2]| {
            let room = Room { machine: Some(machine), group };
            assert_eq!([false, true].map(|is_pressed| room.is_short(is_pressed)), waiting, "{room:?}");
        };
        // Somebody else strains against a limit of its own.
        check((20 * GIB, 24 * GIB), None, [false, false]);
        check((2 * GIB, 24 * GIB), None, [false, true]);
        check((GIB, 24 * GIB), None, [true, true]);
        check((20 * GIB, 24 * GIB), Some((GIB, 4 * GIB)), [false, false]);
        check((20 * GIB, 24 * GIB), Some((GIB * 7 / 2, 4 * GIB)), [false, true]);
        check((20 * GIB, 24 * GIB), Some((GIB * 39 / 10, 4 * GIB)), [true, true]);
        let unknown = Room { machine: None, group: None };
        assert!(!unknown.is_short(true), "the kernel does not say, so nothing is thrown away");
    }
}
