//! Tasks of tokio, boxed. What tokio compiles for a task, some twenty functions, it compiles for
//! each kind of future, and there are hundreds of kinds; boxed ones are all of one kind. A task
//! costs one allocation more than tokio's own, a blocking one two.

use std::any::Any;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::{JoinError, JoinHandle};

/// Starts a task on the runtime that this is called in.
///
/// # Panics
/// Outside of a runtime, as `tokio::spawn`.
#[track_caller]
pub fn spawn(work: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
    start(&Handle::current(), Box::pin(work))
}

/// Starts a task on `runtime`.
pub fn spawn_on(runtime: &Handle, work: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
    start(runtime, Box::pin(work))
}

/// [`spawn`], for a task whose result somebody waits for.
///
/// # Panics
/// As [`spawn`].
#[track_caller]
pub fn spawn_for<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
    tokio::spawn(Box::pin(work) as Pin<Box<dyn Future<Output = T> + Send>>)
}

fn start(runtime: &Handle, work: Pin<Box<dyn Future<Output = ()> + Send>>) -> JoinHandle<()> {
    runtime.spawn(work)
}

/// Runs work that keeps a processor busy for long where it blocks no other task; `None` when the
/// runtime shuts down. Tests and simulators have a runtime of one thread: there the work is done in
/// place, so that the order of all work follows from one seed.
pub async fn computed<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    if Handle::current().runtime_flavor() == RuntimeFlavor::CurrentThread {
        return Some(work());
    }
    blocking(work).await.ok()
}

type Work = Box<dyn FnOnce() -> Box<dyn Any + Send> + Send>;

/// Runs work that blocks on a thread for such work. It begins at once, and goes on when nobody
/// waits for it any more.
///
/// # Panics
/// As [`spawn`].
#[track_caller]
pub fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Blocking<T> {
    Blocking { result: start_blocking(Box::new(|| Box::new(work()))), of: PhantomData }
}

#[track_caller]
fn start_blocking(work: Work) -> JoinHandle<Box<dyn Any + Send>> {
    tokio::task::spawn_blocking(work)
}

/// Of [`blocking`]: its result, or that it panicked.
pub struct Blocking<T> {
    result: JoinHandle<Box<dyn Any + Send>>,
    of: PhantomData<fn() -> T>,
}

impl<T: 'static> Future for Blocking<T> {
    type Output = Result<T, JoinError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let done = ready!(Pin::new(&mut self.result).poll(cx))?;
        let Ok(result) = done.downcast() else { unreachable!("the work's own type") };
        Poll::Ready(Ok(*result))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn results_come_back() {
        assert_eq!(spawn_for(async { 5 }).await.unwrap(), 5);
        assert_eq!(blocking(|| String::from("read")).await.unwrap(), "read");
        spawn(async {}).await.unwrap();
        spawn_on(&Handle::current(), async {}).await.unwrap();
    }

    #[tokio::test]
    async fn one_thread_computes_in_place() {
        let here = std::thread::current().id();
        assert_eq!(computed(|| std::thread::current().id()).await, Some(here));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn several_threads_compute_elsewhere() {
        let here = std::thread::current().id();
        assert!(computed(|| std::thread::current().id()).await.is_some_and(|there| there != here));
    }

    #[tokio::test]
    async fn a_panic_is_told_to_whoever_waits() {
        assert!(blocking(|| -> u8 { panic!("expected") }).await.unwrap_err().is_panic());
        assert!(spawn(async { panic!("expected") }).await.unwrap_err().is_panic());
    }

    /// As a write that must not be cut off when its request is.
    #[tokio::test]
    async fn blocking_work_goes_on_when_nobody_waits() {
        let (begin, begun) = mpsc::channel();
        let (done, ended) = mpsc::channel();
        drop(blocking(move || done.send(begun.recv().unwrap()).unwrap()));
        begin.send(5).unwrap();
        assert_eq!(blocking(move || ended.recv().unwrap()).await.unwrap(), 5);
    }
}
