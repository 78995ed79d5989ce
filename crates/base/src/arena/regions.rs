//! Which slots of which regions are free: numbers only, no memory.
//!
//! ```text
//!                begin_touch            end_touch
//!   cold, partly ------------> in no list ----------> warm
//!    ^      ^ | begin_release   ^   |                 | ^
//!    |      | +-----------------+   |                 | |
//!    |      |         end_release   |  begin_release  | |
//!    +------|-----------------------+<----------------+ |
//!           |                                           |
//!           +--- give of the last slot --- cut ---------+     take: warm, partly, cold -> cut
//! ```
//!
//! - `arena.lowest_first`: a slot comes from the lowest region of its size that has a free one. So
//!   the slots in use gather in few regions, and the others become free as a whole.

use std::collections::BTreeSet;

/// The shortest slot: a block of a pool, and a piece of a record.
pub(super) const UNIT_BYTES: usize = 8 << 10;
/// A huge page.
pub(super) const REGION_BYTES: usize = 2 << 20;
const UNITS: usize = REGION_BYTES / UNIT_BYTES;
/// The lengths of slots. Each divides a region, so that a slot lies on a multiple of its length.
pub(super) const CLASS_BYTES: [usize; 5] = [UNIT_BYTES, 32 << 10, 128 << 10, 1 << 20, REGION_BYTES];
const _: () = assert!(UNITS.is_multiple_of(64));

/// An index into [`CLASS_BYTES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Class(u8);

/// The use of a region's slots, which decides about its pages (`arena.small_while_costly`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Bytes that are kept: dirty data and records.
    Keep,
    /// Disks are read into them and written from them, and they go back soon.
    Transfer,
}

impl Class {
    /// The shortest slots that hold `length` bytes.
    pub(super) fn of(length: usize) -> Option<Class> {
        let at = CLASS_BYTES.iter().position(|bytes| length <= *bytes)?;
        Some(Class(u8::try_from(at).ok()?))
    }

    pub(super) fn bytes(self) -> usize {
        CLASS_BYTES.get(self.index()).copied().unwrap_or(REGION_BYTES)
    }

    pub(super) fn purpose(self) -> Purpose {
        if self.bytes() > 128 << 10 { Purpose::Transfer } else { Purpose::Keep }
    }

    fn units(self) -> usize {
        self.bytes() / UNIT_BYTES
    }

    fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// A set of a region's units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Units([u64; UNITS / 64]);

impl Units {
    const ALL: Units = Units([u64::MAX; UNITS / 64]);

    fn set(&mut self, first: usize, count: usize, value: bool) {
        for unit in first..first + count {
            if let Some(word) = self.0.get_mut(unit / 64) {
                let bit = 1 << (unit % 64);
                *word = if value { *word | bit } else { *word & !bit };
            }
        }
    }

    fn has(&self, unit: usize) -> bool {
        self.0.get(unit / 64).is_some_and(|word| word & (1 << (unit % 64)) != 0)
    }

    fn first(&self) -> Option<usize> {
        let (at, word) = self.0.iter().enumerate().find(|(_, word)| **word != 0)?;
        Some(at * 64 + word.trailing_zeros() as usize)
    }

    fn count(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }
}

#[derive(Debug, Default)]
struct Region {
    /// `None`: none of its slots is in use.
    class: Option<Class>,
    /// What its pages were chosen for.
    purpose: Option<Purpose>,
    free: Units,
    touched: Units,
    /// Slots to be zeroed before they are free.
    wiped: Units,
}

/// A slot by its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) region: u32,
    pub(super) unit: usize,
    pub(super) class: Class,
}

/// A slot that is in use from now on.
#[derive(Debug)]
pub(super) struct Taken {
    pub(super) place: Place,
    pub(super) is_resident: bool,
    /// The region's pages have to be chosen first.
    pub(super) choose_pages: Option<Purpose>,
    /// A region was begun for it.
    pub(super) is_first: bool,
    /// No resident region was free.
    pub(super) is_in_vain: bool,
}

#[derive(Debug)]
pub(super) struct Regions {
    all: Vec<Region>,
    regions_max: u32,
    /// Regions with a free slot, by the class of their slots.
    cut: [BTreeSet<u32>; CLASS_BYTES.len()],
    /// Free regions that are wholly resident.
    warm_keep: BTreeSet<u32>,
    warm_transfer: BTreeSet<u32>,
    /// Free regions that are resident in parts.
    partly: BTreeSet<u32>,
    /// Free regions without memory.
    cold: BTreeSet<u32>,
    resident_units: usize,
    used_bytes: usize,
    /// The fewest warm regions since [`Self::forget_lowest`].
    warm_lowest: usize,
}

impl Regions {
    pub(super) const fn new(regions_max: u32) -> Regions {
        Regions {
            all: Vec::new(),
            regions_max,
            cut: [const { BTreeSet::new() }; CLASS_BYTES.len()],
            warm_keep: BTreeSet::new(),
            warm_transfer: BTreeSet::new(),
            partly: BTreeSet::new(),
            cold: BTreeSet::new(),
            resident_units: 0,
            used_bytes: 0,
            warm_lowest: 0,
        }
    }

    pub(super) fn resident_bytes(&self) -> usize {
        self.resident_units * UNIT_BYTES
    }

    pub(super) fn used_bytes(&self) -> usize {
        self.used_bytes
    }

    pub(super) fn warm(&self, purpose: Purpose) -> usize {
        match purpose {
            Purpose::Keep => self.warm_keep.len(),
            Purpose::Transfer => self.warm_transfer.len(),
        }
    }

    pub(super) fn warm_lowest(&self) -> usize {
        self.warm_lowest
    }

    pub(super) fn forget_lowest(&mut self) {
        self.warm_lowest = self.warm_keep.len() + self.warm_transfer.len();
    }

    pub(super) fn take(&mut self, class: Class) -> Option<Taken> {
        let cut = self.cut.get(class.index()).and_then(BTreeSet::first).copied();
        let (region, begun) = match cut {
            Some(region) => (region, None),
            None => self.begin(class).map(|(region, choose, in_vain)| (region, Some((choose, in_vain))))?,
        };
        let state = self.all.get_mut(region as usize)?;
        let unit = state.free.first()?;
        state.free.set(unit, class.units(), false);
        let missing = (unit..unit + class.units()).filter(|unit| !state.touched.has(*unit)).count();
        state.touched.set(unit, class.units(), true);
        let is_full = state.free.first().is_none();
        self.resident_units += missing;
        self.used_bytes += class.bytes();
        if is_full && let Some(cut) = self.cut.get_mut(class.index()) {
            cut.remove(&region);
        }
        let is_first = begun.is_some();
        let (choose_pages, is_in_vain) = begun.unwrap_or_default();
        let place = Place { region, unit, class };
        Some(Taken { place, is_resident: missing == 0, choose_pages, is_first, is_in_vain })
    }

    /// Cuts a free region into slots.
    fn begin(&mut self, class: Class) -> Option<(u32, Option<Purpose>, bool)> {
        let purpose = class.purpose();
        let warm = match purpose {
            Purpose::Keep => self.warm_keep.pop_first(),
            Purpose::Transfer => self.warm_transfer.pop_first(),
        };
        self.warm_lowest = self.warm_lowest.min(self.warm_keep.len() + self.warm_transfer.len());
        // Pages of the other kind are better than none.
        let region = warm.or_else(|| self.next_cold()).or_else(|| match purpose {
            Purpose::Keep => self.warm_transfer.pop_first(),
            Purpose::Transfer => self.warm_keep.pop_first(),
        })?;
        let choose = self.choose(region, purpose);
        let state = self.all.get_mut(region as usize)?;
        (state.class, state.free) = (Some(class), Units::ALL);
        self.cut.get_mut(class.index())?.insert(region);
        Some((region, choose, warm.is_none()))
    }

    fn choose(&mut self, region: u32, purpose: Purpose) -> Option<Purpose> {
        let state = self.all.get_mut(region as usize)?;
        let is_new = state.purpose != Some(purpose);
        state.purpose = Some(purpose);
        is_new.then_some(purpose)
    }

    fn next_cold(&mut self) -> Option<u32> {
        self.partly.pop_first().or_else(|| self.cold.pop_first()).or_else(|| {
            let next = u32::try_from(self.all.len()).ok().filter(|next| *next < self.regions_max)?;
            self.all.push(Region::default());
            Some(next)
        })
    }

    /// Gives a slot back. False: it has to be zeroed first, and given back then.
    pub(super) fn give(&mut self, place: Place) -> bool {
        let Some(state) = self.all.get_mut(place.region as usize) else { return true };
        assert!(state.class == Some(place.class) && !state.free.has(place.unit), "a slot is given back once");
        if state.wiped.has(place.unit) {
            state.wiped.set(place.unit, place.class.units(), false);
            return false;
        }
        state.free.set(place.unit, place.class.units(), true);
        let (is_free, purpose) = (state.free == Units::ALL, state.purpose);
        if is_free {
            state.class = None;
        }
        let is_warm = state.touched == Units::ALL;
        self.used_bytes -= place.class.bytes();
        let Some(cut) = self.cut.get_mut(place.class.index()) else { return true };
        match (is_free, is_warm, purpose) {
            (false, ..) => cut.insert(place.region),
            (true, ..) => cut.remove(&place.region),
        };
        if is_free {
            self.put(place.region, is_warm.then_some(purpose).flatten());
        }
        true
    }

    fn put(&mut self, region: u32, warm: Option<Purpose>) {
        match warm {
            Some(Purpose::Keep) => self.warm_keep.insert(region),
            Some(Purpose::Transfer) => self.warm_transfer.insert(region),
            None => self.partly.insert(region),
        };
    }

    /// The slot in use that holds the unit.
    pub(super) fn slot_at(&self, region: u32, unit: usize) -> Option<Place> {
        let state = self.all.get(region as usize)?;
        let class = state.class?;
        let unit = unit - unit % class.units();
        (!state.free.has(unit)).then_some(Place { region, unit, class })
    }

    /// The slot is zeroed before it is free.
    pub(super) fn wipe_when_given(&mut self, place: Place) {
        if let Some(state) = self.all.get_mut(place.region as usize) {
            state.wiped.set(place.unit, place.class.units(), true);
        }
    }

    /// A free region to be made resident; whether its pages have to be chosen.
    pub(super) fn begin_touch(&mut self, purpose: Purpose) -> Option<(u32, Option<Purpose>)> {
        let region = self.next_cold()?;
        Some((region, self.choose(region, purpose)))
    }

    pub(super) fn end_touch(&mut self, region: u32) {
        let Some(state) = self.all.get_mut(region as usize) else { return };
        let (before, purpose) = (state.touched.count(), state.purpose);
        state.touched = Units::ALL;
        self.resident_units += UNITS - before;
        self.put(region, purpose);
    }

    /// A free region whose memory goes back to the system: the highest.
    pub(super) fn begin_release(&mut self) -> Option<u32> {
        let lists = [&mut self.warm_keep, &mut self.warm_transfer, &mut self.partly];
        let region = lists.iter().filter_map(|list| list.last()).max().copied()?;
        lists.into_iter().for_each(|list| _ = list.remove(&region));
        self.warm_lowest = self.warm_lowest.min(self.warm_keep.len() + self.warm_transfer.len());
        Some(region)
    }

    pub(super) fn end_release(&mut self, region: u32) {
        let Some(state) = self.all.get_mut(region as usize) else { return };
        self.resident_units -= state.touched.count();
        (state.touched, state.purpose) = (Units::default(), None);
        self.cold.insert(region);
    }

    /// Bytes of free regions that are resident.
    pub(super) fn idle_bytes(&self) -> usize {
        let resident = |region: &u32| self.all.get(*region as usize).map_or(0, |state| state.touched.count());
        let partly: usize = self.partly.iter().map(resident).sum();
        (self.warm_keep.len() + self.warm_transfer.len()) * REGION_BYTES + partly * UNIT_BYTES
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn slots_in_use_never_overlap(ops in prop::collection::vec((0u8..8, 0usize..5, any::<usize>()), 1..300)) {
            let mut regions = Regions::new(6);
            let mut used: Vec<Place> = Vec::new();
            for (op, class, which) in ops {
                match op {
                    0..=3 => if let Some(taken) = regions.take(Class(class as u8)) {
                        used.push(taken.place);
                    },
                    4 | 5 if !used.is_empty() => {
                        let place = used.swap_remove(which % used.len());
                        if which % 3 == 0 {
                            regions.wipe_when_given(place);
                            prop_assert!(!regions.give(place), "it has to be zeroed first");
                        }
                        prop_assert!(regions.give(place));
                    }
                    6 => if let Some((region, _)) = regions.begin_touch(Purpose::Keep) {
                        regions.end_touch(region);
                    },
                    7 => if let Some(region) = regions.begin_release() {
                        prop_assert!(used.iter().all(|place| place.region != region));
                        regions.end_release(region);
                    },
                    _ => {}
                }
                let mut units = std::collections::HashSet::new();
                for place in &used {
                    prop_assert_eq!(regions.slot_at(place.region, place.unit), Some(*place));
                    for unit in place.unit..place.unit + place.class.units() {
                        prop_assert!(units.insert((place.region, unit)));
                        prop_assert!(regions.all[place.region as usize].touched.has(unit));
                    }
                }
                prop_assert_eq!(regions.used_bytes(), units.len() * UNIT_BYTES);
                let resident: usize = regions.all.iter().map(|region| region.touched.count()).sum();
                prop_assert_eq!(regions.resident_bytes(), resident * UNIT_BYTES);
                prop_assert!(regions.idle_bytes() + regions.used_bytes() <= regions.resident_bytes());
            }
        }
    }

    /// `arena.lowest_first`
    #[test]
    fn slots_in_use_gather_in_the_lowest_regions() {
        let mut regions = Regions::new(100);
        let class = Class::of(128 << 10).unwrap();
        let mut used: Vec<Place> = (0..160).map(|_| regions.take(class).unwrap().place).collect();
        // Of each region one slot stays.
        used.retain(|place| place.unit == 0 || !regions.give(*place));
        assert_eq!(regions.warm(Purpose::Keep), 0);
        let again: Vec<Place> = (0..30).map(|_| regions.take(class).unwrap().place).collect();
        assert!(again.iter().all(|place| place.region < 2));
    }

    #[test]
    fn regions_change_their_slots_once_all_are_free() {
        let mut regions = Regions::new(1);
        let small = Class::of(1).unwrap();
        let used: Vec<Place> = (0..UNITS).map(|_| regions.take(small).unwrap().place).collect();
        assert!(regions.take(Class::of(REGION_BYTES).unwrap()).is_none() && regions.take(small).is_none());
        used.iter().for_each(|place| assert!(regions.give(*place)));
        assert_eq!((regions.warm(Purpose::Keep), regions.idle_bytes()), (1, REGION_BYTES));
        let region = regions.begin_release().unwrap();
        regions.end_release(region);
        assert_eq!(regions.resident_bytes(), 0);
        let taken = regions.take(Class::of(REGION_BYTES).unwrap()).unwrap();
        assert!(!taken.is_resident && taken.choose_pages == Some(Purpose::Transfer));
    }
}
