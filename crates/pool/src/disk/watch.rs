//! Whether a disk answers: the calls under way on it, and their age.
//!
//! A disk may fail without saying so: its controller hangs, or its filesystem is frozen. A call to
//! it then never returns, and neither would a caller that waits for it. The thread in the call
//! cannot be interrupted, so its callers stop waiting instead.
//!
//! - `hang.call_too_long`: a disk hangs when one call has been under way for longer than
//!   [`CALL_SECONDS_MAX`]. It is put out of use if the others can do without it
//!   (`member.no_more_out_than_survivable`), and after that its callers go on with an error.
//! - `hang.way_closed`: then the way to the disk is closed. Everything opened through it refuses
//!   further calls. So nothing comes late but the calls that hung, and these write where nothing is
//!   read: a file without a name, a copy of the journal, or a shard that counts only after the disk
//!   was verified.
//! - `hang.calls_return_first`: the disk is not taken back before all its calls have returned.
//!
//! - `hang.idle_sleeps`: who counts the seconds sleeps while no call is under way. A call wakes it
//!   ([`sleep_until_called`]), so an idle pool wakes no processor, and no call goes uncounted.
//!
//! The pool counts the seconds, one a tick. A machine that was suspended for a while blames no
//! disk.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// Seconds after which a call hangs. Linux gives a command to a disk 30 seconds, so a longer wait
/// is not for a slow disk. SMB clients give up after 60, and should be answered before.
pub const CALL_SECONDS_MAX: u64 = 30;
/// A whole filesystem is synced with all that others have written to it.
pub const SYNC_ALL_SECONDS_MAX: u64 = 600;
/// The message of every error that a closed way gives.
pub const HANGS: &str = "it does not answer: a call has been waiting for 30 seconds";

/// Who counts seconds sleeps no longer than this: its pool may be closed by then.
const SLEEP_MAX: Duration = Duration::from_secs(60);

/// The threads of the process that sleep until a call begins (`hang.idle_sleeps`).
static SLEEPERS: AtomicUsize = AtomicUsize::new(0);
/// Grows when a call has woken them.
static WOKEN: Mutex<u64> = Mutex::new(0);
static WAKES: Condvar = Condvar::new();

/// Sleeps until some call of the process begins, unless `is_called` finds one under way; a minute at most.
pub fn sleep_until_called(is_called: impl FnOnce() -> bool) {
    let seen = *WOKEN.lock();
    SLEEPERS.fetch_add(1, Ordering::SeqCst);
    // A call that did not see this sleeper was under way before, and `is_called` sees it: both take the lock of its disk.
    if !is_called() {
        let mut woken = WOKEN.lock();
        if *woken == seen {
            WAKES.wait_for(&mut woken, SLEEP_MAX);
        }
    }
    SLEEPERS.fetch_sub(1, Ordering::SeqCst);
}

fn wake_sleepers() {
    if SLEEPERS.load(Ordering::SeqCst) > 0 {
        *WOKEN.lock() += 1;
        WAKES.notify_all();
    }
}

/// The calls to a disk since it was attached.
#[derive(Debug, Default)]
pub struct Watch {
    calls: Mutex<Calls>,
    is_closed: AtomicBool,
}

#[derive(Debug, Default)]
struct Calls {
    seconds: u64,
    next: u64,
    /// Number, and the second from which it hangs.
    under_way: Vec<(u64, u64)>,
}

/// A call under way.
pub struct Call<'a> {
    watch: &'a Watch,
    number: u64,
}

/// The error of a call to a disk that hangs, of kind `TimedOut`.
pub fn hangs() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, HANGS)
}

impl Watch {
    /// Enters a call; an error where the way is closed (`hang.way_closed`).
    pub fn enter(&self) -> io::Result<Call<'_>> {
        self.enter_for(CALL_SECONDS_MAX)
    }

    /// As `enter`, for a sync of a whole filesystem.
    pub fn enter_long(&self) -> io::Result<Call<'_>> {
        self.enter_for(SYNC_ALL_SECONDS_MAX)
    }

    /// A call that may take so long.
    pub fn enter_for(&self, seconds: u64) -> io::Result<Call<'_>> {
        let mut calls = self.calls.lock();
        if self.is_closed() {
            return Err(hangs());
        }
        let (number, until) = (calls.next, calls.seconds + seconds);
        calls.next += 1;
        calls.under_way.push((number, until));
        drop(calls);
        wake_sleepers();
        Ok(Call { watch: self, number })
    }

    /// A second has passed.
    pub fn tick(&self) {
        let mut calls = self.calls.lock();
        calls.seconds += if calls.under_way.is_empty() { 0 } else { 1 };
    }

    /// Whether a call hangs, or will within `margin` seconds.
    pub fn hangs(&self, margin: u64) -> bool {
        let calls = self.calls.lock();
        !self.is_closed() && calls.under_way.iter().any(|(_, until)| calls.seconds + margin > *until)
    }

    /// Closes the way to the disk (`hang.way_closed`).
    pub fn close(&self) {
        // No call enters after this returns.
        let _calls = self.calls.lock();
        self.is_closed.store(true, Ordering::Release);
    }

    /// Whether the way to the disk is closed (`hang.way_closed`).
    pub fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    /// Whether some call has not returned (`hang.calls_return_first`).
    pub fn is_waiting(&self) -> bool {
        !self.calls.lock().under_way.is_empty()
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        let mut calls = self.watch.calls.lock();
        let before = calls.under_way.len();
        calls.under_way.retain(|(number, _)| *number != self.number);
        assert_eq!(calls.under_way.len() + 1, before, "`hang.calls_return_first`: each call returns once");
    }
}

/// Whether the way to one of these disks is closed.
pub fn any_closed(watches: &[Arc<Watch>]) -> bool {
    watches.iter().any(|watch| watch.is_closed())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_call_hangs_when_it_takes_too_long_and_nothing_follows_it() {
        let watch = Watch::default();
        (0..100).for_each(|_| watch.tick());
        let (call, long) = (watch.enter().unwrap(), watch.enter_long().unwrap());
        (0..CALL_SECONDS_MAX).for_each(|_| watch.tick());
        drop(watch.enter().unwrap());
        assert!(!watch.hangs(0) && watch.hangs(1));
        watch.tick();
        assert!(watch.hangs(0));
        watch.close();
        assert!(!watch.hangs(0) && watch.is_waiting());
        assert_eq!(watch.enter().err().unwrap().kind(), io::ErrorKind::TimedOut);
        drop(call);
        assert!(watch.is_waiting());
        drop(long);
        assert!(!watch.is_waiting());
    }

    #[test]
    fn a_call_wakes_who_counts_and_nothing_else_does() {
        let watch = Arc::new(Watch::default());
        let counting = Arc::clone(&watch);
        let (ready, is_ready) = std::sync::mpsc::channel();
        let counter = std::thread::spawn(move || {
            sleep_until_called(|| {
                ready.send(()).unwrap();
                counting.is_waiting()
            });
            counting.is_waiting()
        });
        is_ready.recv().unwrap();
        let began = std::time::Instant::now();
        let call = watch.enter().unwrap();
        assert!(counter.join().unwrap(), "it woke while the call was under way");
        assert!(began.elapsed() < SLEEP_MAX / 2);
        // One under way is not slept through.
        sleep_until_called(|| watch.is_waiting());
        assert!(began.elapsed() < SLEEP_MAX / 2);
        drop(call);
    }
}
