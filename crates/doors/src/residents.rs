//! Connections with a login: one that is idle ends where a full server needs its place.
//!
//! - `residents.make_room`: a server that has all the connections it may have, and no stranger among them, ends the connection
//!   that was used longest ago, if that is [`IDLE_MIN`] ago or more.
//! - `residents.never_at_work`: a connection with something open or under way is not ended. Its next request and its end are
//!   decided under one lock, so none begins on a connection that ends.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

/// Shorter pauses are those of people and programs at work.
pub const IDLE_MIN: Duration = Duration::from_secs(60);

/// Whether a connection has something open or under way.
type IsBusy = Box<dyn Fn() -> bool + Send + Sync>;

struct State {
    used: Instant,
    ends: bool,
}

/// When a connection was used last.
pub struct Use {
    state: Mutex<State>,
    is_busy: IsBusy,
    end: CancellationToken,
}

impl Use {
    /// It is used now. Returns `false` if it ends: nothing may begin.
    pub fn touch(&self) -> bool {
        let mut state = self.state.lock();
        state.used = Instant::now();
        !state.ends
    }

    /// Since when nobody has used it, if it may end.
    fn idle_since(&self, now: Instant) -> Option<Instant> {
        let state = self.state.lock();
        let is_long = now.duration_since(state.used) >= IDLE_MIN;
        (is_long && !state.ends && !(self.is_busy)()).then_some(state.used)
    }

    /// Returns `false` if it was used meanwhile.
    fn end(&self, now: Instant) -> bool {
        let mut state = self.state.lock();
        if now.duration_since(state.used) < IDLE_MIN || state.ends || (self.is_busy)() {
            return false;
        }
        state.ends = true;
        self.end.cancel();
        true
    }
}

/// The connections of one server that somebody has logged in to.
#[derive(Default)]
pub struct Residents(Mutex<Table>);

#[derive(Default)]
struct Table {
    next: u64,
    all: HashMap<u64, Arc<Use>>,
}

/// One of them, until it is dropped.
pub struct Resident {
    residents: Arc<Residents>,
    id: u64,
    used: Arc<Use>,
}

impl Residents {
    /// `end` is cancelled when the connection has to end for the sake of a newcomer.
    pub fn enter(self: &Arc<Self>, end: CancellationToken, is_busy: IsBusy) -> Resident {
        let state = Mutex::new(State { used: Instant::now(), ends: false });
        let used = Arc::new(Use { state, is_busy, end });
        let mut table = self.0.lock();
        let id = table.next;
        table.next += 1;
        table.all.insert(id, Arc::clone(&used));
        Resident { residents: Arc::clone(self), id, used }
    }

    /// Ends the connection that was used longest ago (`residents.make_room`). Returns whether there was one.
    pub fn make_room(&self) -> bool {
        self.make_room_at(Instant::now())
    }

    fn make_room_at(&self, now: Instant) -> bool {
        // Looked at apart from the table: whether one is busy is its own to say.
        let all: Vec<Arc<Use>> = self.0.lock().all.values().cloned().collect();
        let mut idle: Vec<(Instant, &Arc<Use>)> =
            all.iter().filter_map(|used| Some((used.idle_since(now)?, used))).collect();
        idle.sort_by_key(|(since, _)| *since);
        idle.iter().any(|(_, used)| used.end(now))
    }
}

impl Resident {
    /// The record of its use.
    pub fn used(&self) -> Arc<Use> {
        Arc::clone(&self.used)
    }
}

impl Drop for Resident {
    fn drop(&mut self) {
        self.residents.0.lock().all.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn the_one_that_was_used_longest_ago_makes_room() {
        let residents = Arc::new(Residents::default());
        let busy = Arc::new(AtomicBool::new(true));
        let ends: Vec<CancellationToken> = (0..4).map(|_| CancellationToken::new()).collect();
        let enter = |n: usize| {
            let busy = Arc::clone(&busy);
            let is_busy: IsBusy =
                if n == 0 { Box::new(move || busy.load(Ordering::Relaxed)) } else { Box::new(|| false) };
            residents.enter(ends[n].clone(), is_busy)
        };
        let held: Vec<Resident> = (0..4).map(enter).collect();
        let ended = || ends.iter().map(CancellationToken::is_cancelled).collect::<Vec<_>>();
        assert!(!residents.make_room(), "nobody is idle for long");
        assert!(held[1].used().touch());
        let later = Instant::now() + IDLE_MIN;
        assert!(residents.make_room_at(later));
        assert_eq!(ended(), [false, false, true, false], "the first has a file open, the second was used later");
        assert!(!held[2].used().touch() && held[3].used().touch());
        busy.store(false, Ordering::Relaxed);
        let later = Instant::now() + IDLE_MIN;
        assert!(residents.make_room_at(later) && residents.make_room_at(later) && residents.make_room_at(later));
        assert_eq!(ended(), [true; 4]);
        assert!(!residents.make_room_at(later), "each ends once");
        drop(held);
        assert!(residents.0.lock().all.is_empty());
    }
}
