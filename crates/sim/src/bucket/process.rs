//! A process on a machine of its own: a runtime, whose time goes on while the world lets it.
//!
//! - `process.one_time`: all processes and the bucket live in one virtual time. A process runs until it sends something, or until the
//!   next moment at which something happens outside of it. So nothing arrives before it was sent, in an order that the seed decides.
//! - `process.suspended_is_late`: a process that is suspended does nothing, and its clocks go on: when it goes on, all timers that
//!   ended meanwhile end at once, and all answers are there.
//! - `process.dead_at_once`: whoever is killed does not even tidy up.

use std::time::Duration;

use futures::future::BoxFuture;
use tokio::runtime::Runtime;
use tokio::time::Instant;

use super::net::Line;
use crate::turns;
use larder_base::task;

pub struct Process {
    runtime: Option<Runtime>,
    start: Option<Instant>,
    line: Line,
    clock_ms: u64,
    /// Nothing of it runs before.
    pub wakes_ms: u64,
}

impl Process {
    /// `main` begins at `now_ms`.
    pub fn new(now_ms: u64, line: Line, main: BoxFuture<'static, ()>) -> Option<Process> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().ok()?;
        let start = runtime.block_on(async {
            turns::start_time(Duration::from_millis(now_ms));
            drop(task::spawn(main));
            turns::started()
        });
        Some(Process { runtime: Some(runtime), start, line, clock_ms: now_ms, wakes_ms: 0 })
    }

    /// How far it has come; `None` while it is suspended.
    pub fn clock_ms(&self, now_ms: u64) -> Option<u64> {
        (self.wakes_ms <= now_ms).then_some(self.clock_ms)
    }

    /// Runs until then, or until it has sent something. If it is behind `now_ms`, it was suspended.
    pub fn step(&mut self, now_ms: u64, until_ms: u64) {
        let (Some(runtime), Some(start)) = (&self.runtime, self.start) else { return };
        turns::switch(self.start);
        let lag_ms = now_ms.saturating_sub(self.clock_ms);
        let sent = self.line.sent.clone();
        self.clock_ms = runtime.block_on(async move {
            if lag_ms > 0 {
                tokio::time::advance(Duration::from_millis(lag_ms)).await;
            }
            turns::tell_time();
            tokio::select! {
                biased;
                () = sent.notified() => {}
                () = tokio::time::sleep_until(start + Duration::from_millis(until_ms)) => {}
            }
            turns::tell_time();
            turns::elapsed().as_millis() as u64
        });
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        turns::switch(self.start);
        drop(self.runtime.take());
    }
}
