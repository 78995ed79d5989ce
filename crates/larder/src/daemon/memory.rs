//! Gives memory back: data that was not used for minutes, and all data that can be read again as soon as the
//! kernel says that memory is short (PSI), on the machine or in our control group. Then the arena gives up its free
//! memory, too (`arena.kept_until_idle`).
//!
//! - `pressure.kernel_wakes_us`: a trigger of the kernel wakes the task, at most once per window.
//!   Without pressure the task asks the kernel nothing.
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
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::Daemon;
use crate::machine;
use crate::rounds;

/// A round of the cache (`memory.unused_is_given_back`).
const ROUND: Duration = Duration::from_secs(60);
/// Some task waited for memory for 150 ms within 2 s. Windows of 2 s are allowed to users who are not root, too.
const TRIGGER: &[u8] = b"some 150000 2000000\0";
const NONBLOCK: i32 = rustix::fs::OFlags::NONBLOCK.bits() as i32;
/// Nothing more is given back so soon.
const SHED_EVERY: Duration = Duration::from_secs(1);
/// The time between two looks at the group's limit, a quarter of which is in use (`pressure.limit_is_polled`).
const LOOK_EVERY: Duration = Duration::from_secs(5);
const LOOK_OFTEN_PERCENT: u64 = 25;
/// So much of the group's limit in use counts as short.
const LIMIT_PERCENT: u64 = 95;

pub(crate) async fn run(daemon: Arc<Daemon>) {
    let mut triggers = machine::pressure_files().iter().filter_map(|file| trigger(file)).collect::<Vec<_>>();
    let (mut round, mut next) = (Instant::now(), tokio::time::Instant::now());
    let mut told: Option<Instant> = None;
    loop {
        let short = tokio::select! {
            () = tokio::time::sleep_until(next) => {
                let used = used_percent();
                next = rounds::next(if used >= LOOK_OFTEN_PERCENT { LOOK_EVERY } else { ROUND });
                used >= LIMIT_PERCENT
            }
            () = pressed(&mut triggers) => true,
        };
        let pools = daemon.storage.all();
        if !short {
            // A tick may come a little early after one that came late.
            if round.elapsed() + LOOK_EVERY / 2 >= ROUND {
                round = Instant::now();
                for pool in &pools {
                    pool.give_back_memory();
                }
            }
            continue;
        }
        let bytes: u64 = pools.iter().map(|pool| pool.give_all_memory_back()).sum();
        arena::shed();
        if bytes > 0 && told.is_none_or(|told| told.elapsed() >= ROUND) {
            tracing::info!("memory is short: {} of cached data were given back", ByteSize(bytes));
            told = Some(Instant::now());
        }
        tokio::time::sleep(SHED_EVERY).await;
    }
}

/// Of the group's limit; 0 where there is none.
fn used_percent() -> u64 {
    machine::group_memory().map_or(0, |(used, limit)| used / (limit / 100).max(1))
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
