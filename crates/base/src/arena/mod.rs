//! One arena for bulk bytes: received data, dirty data, cached records, and what disks are read
//! into and written from. It is made of slots that are used again and again.
//!
//! A first touch of fresh memory costs more than all else that happens to a byte: 0.4 s a GiB in
//! pages of 4 KiB. So memory is touched once and kept. Addresses are reserved once and never given
//! back; they fall into regions of a huge page each, and a region into slots of one length.
//!
//! - `arena.old_bytes_hidden`: a slot may hold bytes of an earlier use. No reader may see more
//!   of it than was written since it was taken.
//! - `arena.small_while_costly`: while the first touch of a huge page is costly, bytes that are
//!   kept lie in small pages. A virtual machine is an example if its host takes free memory back:
//!   the host takes huge pages first, and touching one costs ten times its clearing. Slots that
//!   disks are read into are few and soon used again, so they always lie in huge pages.
//! - `arena.touched_ahead`: a thread makes free regions resident before they are needed, the more
//!   of them the faster they go. It begins with the first use, so a small machine that stores
//!   little touches little.
//! - `arena.kept_until_idle`: free regions stay resident. Memory goes back to the system in whole
//!   regions, from the thread, once they were free for [`WINDOW`], when memory is short ([`shed`]),
//!   and beyond the limit ([`configure`]).
//! - `arena.wiped`: a slot that was marked by [`wipe_when_freed`] is zeroed before it is free.

use std::ops::{Deref, DerefMut};
use std::sync::OnceLock;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::{Condvar, Mutex};

mod pages;
mod received;
mod regions;

use pages::Pages;
pub use received::{RECORD_BYTES, Received, cut};
use regions::{Class, Place, Purpose, REGION_BYTES, Regions, Taken, UNIT_BYTES};

/// The longest slot.
pub const SLOT_BYTES_MAX: usize = REGION_BYTES;
/// How long regions are free before their memory goes back (`arena.kept_until_idle`).
const WINDOW: Duration = Duration::from_secs(30);
/// Regions touched ahead: at first, and at most. The latter are written in a tenth of a second.
const AHEAD_MIN: usize = 4;
const AHEAD_MAX: usize = 64;
/// The limit of a process that sets none.
const LIMIT_BYTES: usize = 512 << 20;
/// Addresses beyond the machine's memory: slots of disks, and regions that are partly free.
const SPARE_BYTES: usize = 1 << 30;

static ARENA: Arena = Arena::new();

/// A slot for `length` bytes with their old contents (`arena.old_bytes_hidden`). `None` if that is
/// more than [`SLOT_BYTES_MAX`], or the system has no memory.
pub fn take(length: usize) -> Option<Slot> {
    ARENA.take(length)
}

/// The length of the slot that [`take`] would find. `None`: there is none so long.
pub fn slot_bytes_for(length: usize) -> Option<usize> {
    Class::of(length).map(Class::bytes)
}

/// The length of the slot that holds all of `bytes`. `None`: they lie elsewhere.
pub fn slot_bytes(bytes: &[u8]) -> Option<usize> {
    ARENA.slot_bytes(bytes)
}

/// The slots that hold `bytes` are zeroed when they become free (`arena.wiped`). The caller holds
/// the bytes. False if they lie elsewhere: then they stay as they are.
pub fn wipe_when_freed(bytes: &[u8]) -> bool {
    ARENA.wipe_when_freed(bytes)
}

/// So much memory stays resident at most while part of it is free. From now on memory that was free
/// for a while goes back to the system; without a call it never does, and no clock is asked.
pub fn configure(limit_bytes: u64) {
    ARENA.configure(limit_bytes);
}

/// Memory is short: all that is free goes back to the system, from the arena's thread.
pub fn shed() {
    ARENA.shed();
}

/// (bytes that are resident, bytes in slots that are in use)
pub fn usage() -> (u64, u64) {
    let state = ARENA.state.lock();
    (state.regions.resident_bytes() as u64, state.regions.used_bytes() as u64)
}

#[derive(Debug)]
struct Arena {
    state: Mutex<State>,
    wake: Condvar,
    keeper: OnceLock<bool>,
}

#[derive(Debug)]
struct State {
    /// `None`: not asked for yet, or refused.
    pages: Option<Pages>,
    is_refused: bool,
    regions: Regions,
    limit_bytes: usize,
    /// Regions to be touched ahead.
    ahead: usize,
    gives_back: bool,
    is_short: bool,
    /// Slots taken since the thread last looked.
    is_used: bool,
}

/// Memory of which the first bytes are used. Goes back when dropped.
#[derive(Debug)]
pub struct Slot {
    memory: &'static mut [u8],
    length: usize,
    place: Place,
    home: &'static Arena,
}

impl Arena {
    const fn new() -> Arena {
        let state = State {
            pages: None,
            is_refused: false,
            regions: Regions::new(0),
            limit_bytes: LIMIT_BYTES,
            ahead: 0,
            gives_back: false,
            is_short: false,
            is_used: false,
        };
        Arena { state: Mutex::new(state), wake: Condvar::new(), keeper: OnceLock::new() }
    }

    fn take(&'static self, length: usize) -> Option<Slot> {
        let class = Class::of(length)?;
        let mut state = self.state.lock();
        let taken = state.take(class)?;
        let place = taken.place;
        state.is_used = true;
        let is_due = taken.is_first && class.purpose() == Purpose::Keep && state.wants_more(taken.is_in_vain);
        let is_probe = taken.choose_pages.is_some_and(|purpose| state.choose(place.region, purpose));
        // SAFETY: the slot is the caller's from now on: `Regions` says so of no other until it is
        // given back.
        #[allow(unsafe_code)]
        let memory = unsafe { state.pages.as_ref()?.memory(place.region, place.unit * UNIT_BYTES, class.bytes()) };
        drop(state);
        if is_due {
            self.wake_keeper();
        }
        // Two faults of a short one cost less than the call.
        if !taken.is_resident && class.bytes() > 4 * UNIT_BYTES {
            pages::touch(memory, is_probe);
        }
        Some(Slot { memory, length, place, home: self })
    }

    fn give(&self, memory: &mut [u8], place: Place) {
        let mut state = self.state.lock();
        if !state.regions.give(place) {
            drop(state);
            std::hint::black_box(&mut *memory).fill(0);
            std::hint::black_box(memory);
            state = self.state.lock();
            state.regions.give(place);
        }
        let is_over = state.regions.resident_bytes() > state.limit_bytes && state.regions.warm(Purpose::Keep) > 0;
        drop(state);
        if is_over {
            self.wake.notify_one();
        }
    }

    fn slot_bytes(&self, bytes: &[u8]) -> Option<usize> {
        let state = self.state.lock();
        let (region, at) = state.pages.as_ref()?.place_of(bytes.as_ptr().addr())?;
        let place = state.regions.slot_at(region, at / UNIT_BYTES)?;
        let end = place.unit * UNIT_BYTES + place.class.bytes();
        (at + bytes.len() <= end).then_some(place.class.bytes())
    }

    fn wipe_when_freed(&self, bytes: &[u8]) -> bool {
        let mut state = self.state.lock();
        let start = state.pages.as_ref().and_then(|pages| pages.place_of(bytes.as_ptr().addr()));
        let Some((region, at)) = start else { return false };
        let Some(place) = state.regions.slot_at(region, at / UNIT_BYTES) else { return false };
        state.regions.wipe_when_given(place);
        true
    }

    fn configure(&'static self, limit_bytes: u64) {
        let mut state = self.state.lock();
        state.limit_bytes = usize::try_from(limit_bytes).unwrap_or(usize::MAX).max(2 * AHEAD_MIN * REGION_BYTES);
        state.gives_back = true;
        drop(state);
        self.wake_keeper();
    }

    fn shed(&'static self) {
        let mut state = self.state.lock();
        (state.is_short, state.ahead) = (true, 0);
        drop(state);
        self.wake_keeper();
    }

    /// Wakes the thread; starts it first.
    fn wake_keeper(&'static self) {
        let keep = || std::thread::Builder::new().name("arena".into()).spawn(move || self.keep()).is_ok();
        if *self.keeper.get_or_init(keep) {
            self.wake.notify_one();
        }
    }

    /// The work of the thread. It sleeps while there is none.
    fn keep(&'static self) {
        loop {
            while self.release_one() || self.touch_one() {}
            let mut state = self.state.lock();
            if state.has_work() || state.has_excess() {
                continue;
            }
            state.is_short = false;
            state.is_used = false;
            state.regions.forget_lowest();
            if !state.gives_back || state.regions.idle_bytes() == 0 {
                self.wake.wait(&mut state);
                continue;
            }
            if self.wake.wait_for(&mut state, WINDOW).timed_out() {
                self.give_back_unused(state);
            }
        }
    }

    /// Of the regions that were free all the time half go back; all, if nothing was taken.
    fn give_back_unused(&self, mut state: parking_lot::MutexGuard<'_, State>) {
        let mut count = state.regions.warm_lowest().div_ceil(2);
        if !state.is_used {
            (count, state.ahead) = (usize::MAX, 0);
        }
        drop(state);
        while count > 0 && self.release_any() {
            count -= 1;
        }
    }

    fn release_one(&self) -> bool {
        self.state.lock().has_excess() && self.release_any()
    }

    fn release_any(&self) -> bool {
        let mut state = self.state.lock();
        let Some(region) = state.regions.begin_release() else { return false };
        let Some(memory) = state.region(region) else { return false };
        drop(state);
        pages::release(memory);
        self.state.lock().regions.end_release(region);
        true
    }

    fn touch_one(&self) -> bool {
        let mut state = self.state.lock();
        if !state.has_work() {
            return false;
        }
        let Some((region, choose)) = state.regions.begin_touch(Purpose::Keep) else {
            state.ahead = 0;
            return false;
        };
        if !state.pages.as_mut().is_some_and(|pages| pages.open(region)) {
            // It stays out of use, as there is no memory for it.
            state.ahead = 0;
            return false;
        }
        let is_probe = choose.is_some_and(|purpose| state.choose(region, purpose));
        let Some(memory) = state.region(region) else { return false };
        drop(state);
        pages::touch(memory, is_probe);
        self.state.lock().regions.end_touch(region);
        true
    }
}

impl State {
    fn take(&mut self, class: Class) -> Option<Taken> {
        if self.pages.is_none() && !self.is_refused {
            let machine = usize::try_from(rustix::system::sysinfo().totalram).unwrap_or(usize::MAX);
            self.pages = Pages::reserve(machine.saturating_add(SPARE_BYTES).min(usize::MAX / 8));
            self.is_refused = self.pages.is_none();
            let regions = self.pages.as_ref().map_or(0, Pages::regions);
            self.regions = Regions::new(u32::try_from(regions).unwrap_or(u32::MAX));
        }
        let taken = self.regions.take(class)?;
        if self.pages.as_mut()?.open(taken.place.region) {
            return Some(taken);
        }
        self.regions.give(taken.place);
        None
    }

    /// Notes that a region was begun; `in_vain`: it was not touched ahead. Whether more are to be
    /// touched.
    fn wants_more(&mut self, in_vain: bool) -> bool {
        if in_vain {
            let most = (self.limit_bytes / REGION_BYTES / 16).clamp(1, AHEAD_MAX);
            self.ahead = (self.ahead * 2).clamp(AHEAD_MIN.min(most), most);
        }
        self.has_work() && (in_vain || self.regions.warm(Purpose::Keep) < self.ahead / 2)
    }

    /// Regions are to be touched ahead, and may be.
    fn has_work(&self) -> bool {
        self.regions.warm(Purpose::Keep) < self.ahead && self.regions.resident_bytes() < self.limit_bytes
    }

    /// Free regions are to go back at once.
    fn has_excess(&self) -> bool {
        (self.is_short || self.regions.resident_bytes() > self.limit_bytes) && self.regions.idle_bytes() > 0
    }

    fn choose(&self, region: u32, purpose: Purpose) -> bool {
        self.region(region).is_some_and(|memory| pages::choose(memory, purpose)) && purpose == Purpose::Keep
    }

    /// The memory of a region of which no slot is in use, or the first alone.
    fn region(&self, region: u32) -> Option<&'static mut [u8]> {
        let pages = self.pages.as_ref()?;
        // SAFETY: the region is in no list, so no other caller gets any of its slots meanwhile.
        #[allow(unsafe_code)]
        let memory = unsafe { pages.memory(region, 0, REGION_BYTES) };
        Some(memory)
    }
}

impl Slot {
    /// The bytes, shared; the slot goes back with the last of them.
    pub fn freeze(self) -> Bytes {
        Bytes::from_owner(self)
    }

    /// As long as was asked for, or shorter.
    pub fn truncate(&mut self, length: usize) {
        self.length = self.length.min(length);
    }
}

impl Deref for Slot {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.memory.get(..self.length).unwrap_or_default()
    }
}

impl DerefMut for Slot {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.memory.get_mut(..self.length).unwrap_or_default()
    }
}

impl AsRef<[u8]> for Slot {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.home.give(std::mem::take(&mut self.memory), self.place);
    }
}

#[cfg(test)]
mod tests;
