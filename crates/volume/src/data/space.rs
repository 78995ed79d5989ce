//! Whether there is room, asked before a write is accepted (`data.room_before_accept`).
//!
//! Dirty data has not reached the store yet, so its room is set aside; so is a margin for metadata
//! and for the segments that garbage collection writes before it can delete others. A writer waits
//! instead of failing while garbage could still be collected, while dirty data is on its way
//! (compressed it may need less), and while files are being removed.
//!
//! - `space.slow_is_not_full`: segments on their way hold room, and their data counts as dirty.
//!   No writer gives up before they are stored, unless the store refuses them.
//!
//! Room for reserved ranges is set aside as well. A write into one asks for that room, so other
//! writers that fill the store to the brim do not get in its way.

use std::sync::atomic::Ordering;
use std::time::Duration;

use larder_fs::{FsError, FsResult};

use super::gate::{RoomRequest, SEGMENT_MIN_GARBAGE, margin, set_aside};
use super::shared::Inner;

/// How long an answer of the store about its room is believed while there is plenty.
const BELIEVED: Duration = Duration::from_millis(100);
/// Waits without any gain of room after which a writer gives up (`space.slow_is_not_full`).
const FUTILE_WAITS_MAX: u32 = 20;
const WAIT: Duration = Duration::from_millis(100);

impl Inner {
    /// (total, available), at most [`BELIEVED`] old while there is plenty, fresh otherwise.
    pub(super) fn room(&self, accepting: u64) -> (u64, u64) {
        let gate = &self.gate;
        let now = self.parts.clock.elapsed().as_micros() as u64 + 1;
        let asked = gate.asked_at_us.load(Ordering::Relaxed);
        let accepted = gate.accepted_since.fetch_add(accepting, Ordering::Relaxed) + accepting;
        let (total, available) = (gate.total.load(Ordering::Relaxed), gate.available.load(Ordering::Relaxed));
        let fresh = asked > 0 && now.saturating_sub(asked) < BELIEVED.as_micros() as u64;
        if fresh && available > total / 8 && accepted < available / 16 {
            return (total, available);
        }
        let (total, available) = self.parts.space.space();
        gate.total.store(total, Ordering::Relaxed);
        gate.available.store(available, Ordering::Relaxed);
        gate.accepted_since.store(0, Ordering::Relaxed);
        gate.asked_at_us.store(now, Ordering::Relaxed);
        (total, available)
    }

    /// Bytes that are dead in segments now.
    pub(super) fn garbage_bytes(&self) -> u64 {
        let (objects, live) = self.segments.lock().bytes();
        objects - live
    }

    /// Room with the bytes that collection will free: not all garbage, since it writes before it
    /// deletes.
    fn reachable(&self, available: u64, garbage: u64) -> u64 {
        let worthwhile = if garbage > SEGMENT_MIN_GARBAGE { garbage - garbage / 8 } else { 0 };
        available.saturating_add(worthwhile)
    }

    /// Bytes that a waiting writer can still write, as [`Inner::wait_for_room`] judges it.
    pub(super) fn writable(&self, (total, available): (u64, u64)) -> u64 {
        let promised = self.promised(RoomRequest::New(0), total);
        self.reachable(available, self.garbage_bytes()).saturating_sub(promised)
    }

    /// Room that must be there for `ask` to be granted.
    fn promised(&self, ask: RoomRequest, total: u64) -> u64 {
        let memory = &self.parts.memory;
        let others = match ask {
            RoomRequest::New(_) => margin(total).saturating_add(set_aside(memory.reserved())),
            // Metadata of reserved bytes may use up the rest of the margin.
            RoomRequest::Promised(_) => margin(total) / 4,
        };
        memory.dirty_used().saturating_add(ask.bytes()).saturating_add(others)
    }

    fn missing_room(&self, ask: RoomRequest) -> Option<FsError> {
        let (total, available) = self.room(ask.bytes());
        let promised = self.promised(ask, total);
        (available < promised).then(|| match self.parts.space.is_away() {
            true => FsError::Io("too few disks of the store take writes".into()),
            false => FsError::NoSpace(format!(
                "{available} bytes are available in the store, {promised} are promised already"
            )),
        })
    }

    pub(super) fn has_room(&self, ask: RoomRequest) -> bool {
        self.missing_room(ask).is_none()
    }

    /// Waits for room while some may become free, then fails.
    pub(super) async fn wait_for_room(&self, ask: RoomRequest) -> FsResult<()> {
        let mut futile = 0;
        let mut last = (u64::MAX, u64::MAX);
        loop {
            // Ask in this order: removed or flushed data becomes garbage, and garbage becomes room.
            // Nothing may be missing in all of them.
            let removing = self.removals.load(Ordering::Acquire) > 0;
            let dirty = self.parts.memory.dirty_used();
            let garbage = self.garbage_bytes();
            let Some(no_space) = self.missing_room(ask) else { return Ok(()) };
            self.check_poison()?;
            let (total, available) = self.room(0);
            let reachable = self.reachable(available, garbage);
            let hope = reachable >= self.promised(ask, total) && garbage > SEGMENT_MIN_GARBAGE;
            if dirty == 0 && !hope && !removing || ask.bytes() > total || futile > FUTILE_WAITS_MAX {
                return Err(no_space);
            }
            let now = (self.gc_rounds.load(Ordering::Relaxed), available);
            let has_loads = self.loads.1.load(Ordering::Relaxed) < self.loads.0.load(Ordering::Relaxed);
            let is_storing = has_loads && self.failing.lock().is_none() && !self.stop.is_cancelled();
            let is_same = now == last;
            (futile, last) = (if is_same && !is_storing { futile + 1 } else { 0 }, now);
            self.hurry();
            self.gc_wanted.store(true, Ordering::Relaxed);
            self.gc_wake.notify_one();
            let progress = self.progress.notified();
            // A round that collects nothing ends at once: that alone must not use up the patience.
            let pause = if is_same { WAIT / 4 } else { Duration::ZERO };
            let _ = tokio::join!(tokio::time::timeout(WAIT, progress), tokio::time::sleep(pause));
        }
    }
}
