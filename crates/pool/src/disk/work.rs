//! How blocking work is run: on threads, or, in a simulator, in turns on the one thread of its
//! runtime.
//!
//! The opener of the disks decides ([`DiskOpener::work`](crate::disk::DiskOpener::work)). In turns
//! nothing runs beside anything else: a piece of work runs from its beginning to its end, and the
//! simulator decides which is next. A thread that lasts as long as the pool is open becomes a task.

use std::fmt::Debug;
use std::io;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use futures::future::BoxFuture;
use parking_lot::Mutex;

use crate::disk::watch::{Watch, any_closed};
use crate::object::geometry::MIRROR_BYTES_MAX;
use larder_base::task;

/// The simulator's side.
pub trait Turns: Send + Sync + Debug + 'static {
    /// Awaited before each piece of work: others run meanwhile, and time may pass.
    fn turn(&self) -> BoxFuture<'static, ()>;
    /// The order in which `count` pieces are done that would run side by side.
    fn order(&self, count: usize) -> Vec<usize>;
    /// A bug on purpose, to see that the simulator finds it: checksums of blocks are not looked at.
    fn trusts_blocks(&self) -> bool {
        false
    }
}

/// How blocking work is run.
#[derive(Clone, Debug, Default)]
pub enum Work {
    /// On threads of the runtime's pool, or of its own.
    #[default]
    Threads,
    /// On the one thread of a simulator's runtime, in the order that it chooses.
    InTurns(Arc<dyn Turns>),
}

/// Too much for a mirror, so uploads in a simulator are cut into stripes, too.
const SIMULATED_GATHER_BYTES: u64 = 256 << 10;
const _: () = assert!(SIMULATED_GATHER_BYTES > MIRROR_BYTES_MAX);

/// The time between looks whether a disk that is waited for is still in use.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// The step of waits for work that is nearly always done already.
const STEP: Duration = Duration::from_millis(1);

/// Stagings of shards in a simulator: objects are small, and are to need several.
const SIMULATED_STAGING_BYTES: usize = 72 << 10;

type Kept = Arc<Mutex<Option<Box<dyn FnOnce() + Send>>>>;

/// Work that was started and may be waited for.
pub enum Started {
    /// A thread that does the work.
    Thread(JoinHandle<()>),
    /// Taken by the task that is to do it or by a caller that waits, whichever is first.
    Turn(Kept),
}

/// Work that was begun beside its caller.
pub enum Begun<T> {
    /// A thread does it.
    UnderWay(mpsc::Receiver<T>),
    /// It was done in its caller's place.
    Done(T),
}

impl<T> Begun<T> {
    /// Waits for the result, but no longer than all these disks answer (`hang.call_too_long`).
    pub fn wait(self, watches: &[Arc<Watch>]) -> Option<T> {
        match self {
            Self::Done(result) => Some(result),
            Self::UnderWay(wait) => wait_watched(&wait, watches),
        }
    }
}

impl Work {
    /// Only ever true in a simulator.
    pub fn trusts_blocks(&self) -> bool {
        matches!(self, Self::InTurns(turns) if turns.trusts_blocks())
    }

    /// Bytes that an upload gathers before it begins to write: fewer in a simulator, whose objects
    /// are small.
    pub fn gather_bytes(&self, usual: u64) -> u64 {
        match self {
            Self::Threads => usual,
            Self::InTurns(_) => usual.min(SIMULATED_GATHER_BYTES),
        }
    }

    /// Bytes of a shard that are gathered for one write: fewer in a simulator.
    pub fn staging_bytes(&self, usual: usize) -> usize {
        match self {
            Self::Threads => usual,
            Self::InTurns(_) => usual.min(SIMULATED_STAGING_BYTES),
        }
    }

    /// Begins `work` beside the caller, which blocks later to wait for it. In turns, and where
    /// there is no runtime, it is done at once.
    ///
    /// `work` must not wait for other work of this kind: the runtime's threads are bounded.
    pub fn begin<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Begun<T> {
        match (self, tokio::runtime::Handle::try_current()) {
            (Self::Threads, Ok(_)) => {
                let (done, wait) = mpsc::sync_channel(1);
                drop(task::blocking(move || drop(done.send(work()))));
                Begun::UnderWay(wait)
            }
            _ => Begun::Done(work()),
        }
    }

    /// Runs `work` on a thread that may block; `None` when the runtime shuts down.
    pub async fn blocking<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        match self {
            Self::Threads => task::blocking(work).await.ok(),
            Self::InTurns(turns) => {
                turns.turn().await;
                Some(work())
            }
        }
    }

    /// As `blocking`, for callers that do not wait.
    pub fn detach(&self, work: impl FnOnce() + Send + 'static) {
        match self {
            Self::Threads => drop(task::blocking(work)),
            Self::InTurns(turns) => drop(task::spawn(after(turns.turn(), work))),
        }
    }

    /// Does `each` for all items at once, the last on the thread of the caller. The results are in
    /// the order of the items; that of a thread that died is an error.
    pub fn side_by_side<I, T>(&self, items: Vec<I>, each: impl Fn(I) -> io::Result<T> + Sync) -> Vec<io::Result<T>>
    where
        I: Send,
        T: Send,
    {
        match self {
            Self::Threads => on_threads(items, &each),
            Self::InTurns(turns) => in_order(&turns.order(items.len()), items, each),
        }
    }

    /// Does `work` on a thread of its own and waits for it, but no longer than all these disks
    /// answer (`hang.call_too_long`). `None` when one of them does not, or the thread died. `work`
    /// then goes on, and its result is dropped.
    pub fn watched<T: Send + 'static>(
        &self,
        watches: &[Arc<Watch>],
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        if matches!(self, Self::InTurns(_)) {
            return Some(work());
        }
        let (done, wait) = mpsc::sync_channel(1);
        let call = move || drop(done.send(work()));
        std::thread::Builder::new().name("larder-call".into()).spawn(call).ok()?;
        wait_watched(&wait, watches)
    }

    /// Starts `work` on a thread of its own.
    pub fn start(&self, name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<Started> {
        match self {
            Self::Threads => std::thread::Builder::new().name(name.to_owned()).spawn(work).map(Started::Thread),
            Self::InTurns(turns) => {
                let kept: Kept = Arc::new(Mutex::new(Some(Box::new(work))));
                let of_task = kept.clone();
                drop(task::spawn(after(turns.turn(), move || take_and_run(&of_task))));
                Ok(Started::Turn(kept))
            }
        }
    }
}

impl Started {
    /// Waits for the end; whether it was reached.
    pub fn finish(self) -> bool {
        match self {
            Self::Thread(thread) => thread.join().is_ok(),
            Self::Turn(kept) => {
                take_and_run(&kept);
                true
            }
        }
    }

    /// As `finish`, but waits no longer than all these disks answer (`hang.call_too_long`): `None`
    /// if the work goes on.
    pub fn finish_watched(self, watches: &[Arc<Watch>]) -> Option<bool> {
        if let Self::Thread(thread) = &self {
            while !thread.is_finished() {
                if any_closed(watches) {
                    return None;
                }
                std::thread::sleep(STEP);
            }
        }
        Some(self.finish())
    }
}

/// The next message, or `None` once one of these disks hangs (`hang.call_too_long`).
pub fn wait_watched<T>(wait: &mpsc::Receiver<T>, watches: &[Arc<Watch>]) -> Option<T> {
    loop {
        match wait.recv_timeout(LOOK_EVERY) {
            Ok(done) => return Some(done),
            Err(mpsc::RecvTimeoutError::Disconnected) => return None,
            Err(mpsc::RecvTimeoutError::Timeout) if any_closed(watches) => return None,
            Err(mpsc::RecvTimeoutError::Timeout) => {}
        }
    }
}

fn take_and_run(kept: &Mutex<Option<Box<dyn FnOnce() + Send>>>) {
    let work = kept.lock().take();
    if let Some(work) = work {
        work();
    }
}

async fn after(turn: BoxFuture<'static, ()>, work: impl FnOnce()) {
    turn.await;
    work();
}

fn on_threads<I: Send, T: Send>(mut items: Vec<I>, each: &(impl Fn(I) -> io::Result<T> + Sync)) -> Vec<io::Result<T>> {
    let Some(last) = items.pop() else { return Vec::new() };
    std::thread::scope(|scope| {
        let threads: Vec<_> = items.into_iter().map(|item| scope.spawn(move || each(item))).collect();
        let last = each(last);
        let joined = threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Err(died())));
        joined.chain([last]).collect()
    })
}

fn in_order<I, T>(order: &[usize], items: Vec<I>, each: impl Fn(I) -> io::Result<T>) -> Vec<io::Result<T>> {
    assert_eq!(order.len(), items.len(), "each piece of work has its turn");
    let mut items: Vec<Option<I>> = items.into_iter().map(Some).collect();
    let mut results: Vec<io::Result<T>> = items.iter().map(|_| Err(died())).collect();
    for &at in order {
        if let Some(item) = items.get_mut(at).and_then(Option::take) {
            results[at] = each(item);
        }
    }
    assert!(items.iter().all(Option::is_none), "each piece of work had its turn");
    results
}

fn died() -> io::Error {
    io::Error::other("a thread died")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[derive(Debug)]
    struct Backwards;

    impl Turns for Backwards {
        fn turn(&self) -> BoxFuture<'static, ()> {
            Box::pin(tokio::task::yield_now())
        }

        fn order(&self, count: usize) -> Vec<usize> {
            (0..count).rev().collect()
        }
    }

    #[test]
    fn results_are_in_the_order_of_the_items() {
        for work in [Work::Threads, Work::InTurns(Arc::new(Backwards))] {
            let done = Mutex::new(Vec::new());
            let results = work.side_by_side(vec![1, 2, 3], |item| {
                done.lock().push(item);
                if item == 2 { Err(io::Error::other("two")) } else { Ok(item * 10) }
            });
            let results: Vec<Option<i32>> = results.into_iter().map(Result::ok).collect();
            assert_eq!(results, [Some(10), None, Some(30)]);
            if matches!(work, Work::InTurns(_)) {
                assert_eq!(*done.lock(), [3, 2, 1]);
            }
            assert!(work.side_by_side(Vec::<i32>::new(), Ok).is_empty());
        }
    }

    #[tokio::test]
    async fn what_was_started_is_done_once_whoever_comes_first() {
        for work in [Work::Threads, Work::InTurns(Arc::new(Backwards))] {
            for wait_first in [true, false] {
                let done = Arc::new(Mutex::new(0));
                let of_work = done.clone();
                let started = work.start("test", move || *of_work.lock() += 1).unwrap();
                if !wait_first {
                    for _ in 0..10 {
                        tokio::task::yield_now().await;
                    }
                }
                assert!(started.finish());
                tokio::task::yield_now().await;
                assert_eq!(*done.lock(), 1);
            }
            assert_eq!(work.blocking(|| 7).await, Some(7));
        }
    }
}
