//! The time of the box: what really passed. Whatever destroys, ends or protects by age goes by it, not by the wall clock.
//!
//! - `passed.really`: within one start of the machine it advances by the time since boot, and by no more than the wall clock.
//!   Across a restart it advances by the wall clock, by no more than [`ACROSS_BOOTS_MAX`]. It never goes back. So a clock that
//!   jumps makes nothing old and ends nothing.
//! - `passed.eras`: times that the wall clock stamped on things are translated. An era is a stretch in which the wall clock was
//!   ahead of the box's time by one amount; a jump of the clock begins another. A stamp belongs to the newest era that has seen
//!   it, or to the beginning of the era that skipped it, or to this moment: so nothing is taken for older than it can be.
//! - `passed.begun_once`: the time goes on from what the data folder has kept. A box that kept nothing begins by its wall clock,
//!   or with the release of this program where the clock is before that.

use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::clock::{Timestamp, boot_id, since_boot};

/// A machine that was off for longer cannot prove that, and its clock may have been set: what exceeds this is not counted.
pub const ACROSS_BOOTS_MAX: Duration = Duration::from_secs(7 * 24 * 3600);
/// No clock that is right says less: 2025-01-01.
pub const RELEASED_SECS: i64 = 1_735_689_600;
/// A clock that moves by less goes on in its era: time services slew and step less than this, and leap seconds are one.
const JUMP_MIN_MS: i64 = 60_000;
/// Stamps that are further ahead are of a clock that was wrong.
const AHEAD_MAX_MS: i64 = 10 * 60_000;
/// The clock of a machine without a battery makes two eras with each start.
const ERAS_MAX: usize = 64;
/// Readings closer to one another do not move what is remembered, so their rounding adds up to nothing.
const STEP_MIN_MS: u64 = 60_000;

/// The clocks of the machine at one moment. The units of `wall` and `since_boot` are the caller's.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reading {
    /// Since 1970, by the wall clock.
    pub wall: i64,
    /// The start of the machine that `since_boot` counts from.
    pub boot: String,
    pub since_boot: u64,
}

impl Reading {
    /// How much has really passed until `now`; `across_boots_max` is [`ACROSS_BOOTS_MAX`] in the readings' unit (`passed.really`).
    pub fn passed_until(&self, now: &Reading, across_boots_max: i64) -> i64 {
        let by_wall = now.wall.saturating_sub(self.wall).max(0);
        let is_same_boot = !now.boot.is_empty() && now.boot == self.boot;
        let passed_max = match is_same_boot {
            true => i64::try_from(now.since_boot.saturating_sub(self.since_boot)).unwrap_or(0),
            false => across_boots_max,
        };
        by_wall.min(passed_max)
    }

    /// In milliseconds.
    fn of_machine(wall: Timestamp) -> Self {
        let since_boot = u64::try_from(since_boot().as_millis()).unwrap_or(u64::MAX);
        static BOOT: OnceLock<String> = OnceLock::new();
        Reading { wall: ms_of(wall), boot: BOOT.get_or_init(boot_id).clone(), since_boot }
    }
}

fn ms_of(time: Timestamp) -> i64 {
    time.secs.saturating_mul(1000).saturating_add(i64::from(time.nanos / 1_000_000))
}

/// A stretch of the box's time in which the wall clock was ahead of it by one amount (`passed.eras`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Era {
    from_ms: i64,
    ahead_ms: i64,
}

/// The box's time, and the clocks of the machine when it was read last: what the data folder keeps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BoxTime {
    now_ms: i64,
    read: Reading,
    /// At least one.
    eras: Vec<Era>,
    /// How often the wall clock went back since this process began to count.
    #[serde(skip)]
    set_backs: u64,
}

impl BoxTime {
    /// The first time of a box (`passed.begun_once`).
    pub fn begin(read: Reading) -> Self {
        let now_ms = read.wall.max(RELEASED_SECS * 1000);
        let ahead_ms = read.wall.saturating_sub(now_ms);
        BoxTime { now_ms, eras: vec![Era { from_ms: now_ms, ahead_ms }], read, set_backs: 0 }
    }

    /// Whether it can be what this program has written.
    pub fn is_plausible(&self) -> bool {
        let ordered = self.eras.windows(2).all(|pair| pair[0].from_ms <= pair[1].from_ms);
        let last = self.eras.last();
        ordered && self.eras.len() <= ERAS_MAX && last.is_some_and(|era| era.from_ms <= self.now_ms)
    }

    /// Since 1970, as far as this box knows, in milliseconds.
    pub fn now_ms(&self) -> i64 {
        self.now_ms
    }

    /// What the wall clock said when this was read last, in milliseconds since 1970.
    pub fn wall_ms(&self) -> i64 {
        self.read.wall
    }

    fn at(&self, read: &Reading) -> i64 {
        let max = i64::try_from(ACROSS_BOOTS_MAX.as_millis()).unwrap_or(i64::MAX);
        self.now_ms.saturating_add(self.read.passed_until(read, max))
    }

    fn last(&self) -> Era {
        self.eras.last().copied().unwrap_or(Era { from_ms: self.now_ms, ahead_ms: 0 })
    }

    /// Goes on to this moment. Returns whether the clock jumped.
    pub fn go_on(&mut self, read: Reading) -> bool {
        let now_ms = self.at(&read);
        let ahead_ms = read.wall.saturating_sub(now_ms);
        let has_jumped = ahead_ms.saturating_sub(self.last().ahead_ms).saturating_abs() >= JUMP_MIN_MS;
        let is_soon = read.boot == self.read.boot && read.since_boot.saturating_sub(self.read.since_boot) < STEP_MIN_MS;
        if is_soon && !has_jumped {
            return false;
        }
        if has_jumped {
            self.set_backs += u64::from(read.wall < self.read.wall);
            if self.eras.len() >= ERAS_MAX {
                // The oldest stamps are then those of the era after it, which takes none for older.
                self.eras.remove(0);
            }
            self.eras.push(Era { from_ms: now_ms, ahead_ms });
        }
        (self.now_ms, self.read) = (now_ms, read);
        has_jumped
    }

    /// The moment at which the wall clock said `wall_ms`, or a later one (`passed.eras`).
    pub fn when_ms(&self, wall_ms: i64) -> i64 {
        let mut end = self.now_ms;
        let mut skipped = None;
        for (place, era) in self.eras.iter().enumerate().rev() {
            let then = wall_ms.saturating_sub(era.ahead_ms);
            // Before all that is known, with a clock that may have been right.
            let is_first = place == 0 && wall_ms >= RELEASED_SECS * 1000;
            if then <= end.saturating_add(JUMP_MIN_MS) && (is_first || then >= era.from_ms.saturating_sub(JUMP_MIN_MS))
            {
                let from = if is_first { i64::MIN } else { era.from_ms };
                return then.clamp(from, end);
            }
            if then < era.from_ms {
                skipped.get_or_insert(era.from_ms);
            }
            end = era.from_ms;
        }
        skipped.unwrap_or(self.now_ms)
    }

    /// How far the wall clock is ahead now, in milliseconds.
    fn ahead_ms(&self, read: &Reading) -> i64 {
        read.wall.saturating_sub(self.at(read))
    }
}

/// The time of the box that this process runs on. Empty until it is asked for or begun.
static OF_BOX: Mutex<Option<BoxTime>> = Mutex::new(None);

/// Goes on from what the data folder has kept. Before anything asks for the time of the box.
pub fn begin(kept: Option<BoxTime>) {
    *OF_BOX.lock() = kept.filter(BoxTime::is_plausible);
    with_box(|_, _| ());
}

fn with_box<T>(ask: impl FnOnce(&BoxTime, &Reading) -> T) -> T {
    let read = Reading::of_machine(SystemTime::now().into());
    let mut of_box = OF_BOX.lock();
    let time = of_box.get_or_insert_with(|| BoxTime::begin(read.clone()));
    time.go_on(read.clone());
    ask(time, &read)
}

/// What the data folder is to keep.
pub fn to_keep() -> BoxTime {
    with_box(|time, _| time.clone())
}

/// The time of the box, in seconds since 1970.
pub fn now_secs() -> i64 {
    with_box(BoxTime::at).div_euclid(1000)
}

/// How often the wall clock was found to have gone back, since the time that was kept.
pub fn set_backs() -> u64 {
    with_box(|time, _| time.set_backs)
}

/// The moment of the box's time at which its wall clock said `wall`, or a later one (`passed.eras`); in seconds since 1970.
pub fn when_secs(wall: i64) -> i64 {
    with_box(|time, _| time.when_ms(wall.saturating_mul(1000))).div_euclid(1000)
}

/// How far the wall clock is ahead of the time of the box, in seconds.
pub fn ahead_secs() -> i64 {
    let ahead_ms = with_box(BoxTime::ahead_ms);
    // Rounded, so that a clock that goes right is ahead by nothing.
    ahead_ms.saturating_add(500).div_euclid(1000)
}

/// Whether the wall clock is behind what has really passed here.
pub fn is_behind() -> bool {
    ahead_secs().saturating_mul(1000) < -AHEAD_MAX_MS
}

/// The wall clock or the time of the box, whichever is later: for what opens a door until some time. So a clock that is wrong may
/// close one until it is right, and opens none again.
pub fn latest() -> SystemTime {
    let wall = Timestamp::from(SystemTime::now());
    Timestamp { secs: wall.secs.max(now_secs()), ..wall }.to_system_time()
}

/// Milliseconds from a stamp to `now_ms`, both by the wall clock. A stamp from the future is of a clock that was wrong, and long
/// over: it keeps nothing from happening.
pub fn since_ms(then_ms: u64, now_ms: u64) -> u64 {
    match now_ms.checked_sub(then_ms) {
        Some(since) => since,
        None if then_ms - now_ms <= AHEAD_MAX_MS.unsigned_abs() => 0,
        None => u64::MAX / 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: i64 = 24 * 3600 * 1000;
    const START: i64 = RELEASED_SECS * 1000 + 100 * DAY;

    fn read(wall: i64, boot: &str, since_boot: i64) -> Reading {
        Reading { wall, boot: boot.into(), since_boot: since_boot.unsigned_abs() }
    }

    fn begun() -> BoxTime {
        BoxTime::begin(read(START, "a", 0))
    }

    #[test]
    fn it_goes_on_by_what_has_passed() {
        let mut time = begun();
        assert!(!time.go_on(read(START + DAY, "a", DAY)));
        assert_eq!((time.now_ms(), time.eras.len()), (START + DAY, 1));
        // Off for two days, then for a month.
        assert!(!time.go_on(read(START + 3 * DAY, "b", 5)));
        assert_eq!(time.now_ms(), START + 3 * DAY);
        assert!(time.go_on(read(START + 33 * DAY, "c", 5)));
        assert_eq!(time.now_ms(), START + 10 * DAY);
        // A second is lost by no number of readings.
        let mut often = begun();
        for step in 1..200_000 {
            often.go_on(read(START + step * 7 / 3, "a", step * 7 / 3));
        }
        assert!((often.at(&read(START + 466_664, "a", 466_664)) - START - 466_664).abs() < 100);
    }

    #[test]
    fn a_clock_that_jumps_ends_nothing() {
        let mut time = begun();
        assert!(time.go_on(read(START + 365 * DAY, "a", 60_000)));
        assert_eq!(time.now_ms(), START + 60_000, "a year within a minute");
        assert!(time.go_on(read(START + 120_000, "a", 120_000)));
        assert!(time.now_ms() <= START + 120_000 && time.now_ms() >= START + 60_000);
        let before = time.now_ms();
        assert!(time.go_on(read(0, "b", 5)), "1970 after a restart");
        assert_eq!((time.now_ms(), time.set_backs), (before, 2));
        assert!(time.go_on(read(i64::MAX, "c", 5)));
        assert_eq!(time.now_ms(), before + 7 * DAY);
        time.go_on(read(i64::MIN, "", i64::MIN));
        assert_eq!(time.now_ms(), before + 7 * DAY);
        // Without a battery, and without anything kept.
        assert_eq!(BoxTime::begin(read(0, "a", 0)).now_ms(), RELEASED_SECS * 1000);
    }

    #[test]
    fn stamps_are_taken_for_no_older_than_they_can_be() {
        let mut time = begun();
        time.go_on(read(START + 10 * DAY, "a", 10 * DAY));
        // A board without a battery starts in 1970, and is set right after an hour.
        time.go_on(read(0, "b", 0));
        let off = time.now_ms();
        time.go_on(read(DAY / 24, "b", DAY / 24));
        time.go_on(read(START + 12 * DAY, "b", DAY / 24 + 1));
        time.go_on(read(START + 13 * DAY, "b", DAY / 24 + 1 + DAY));
        let now = time.now_ms();
        assert_eq!(time.when_ms(START + 5 * DAY), START + 5 * DAY, "before all that");
        assert_eq!(time.when_ms(START - 90 * DAY), START - 90 * DAY);
        assert!(time.when_ms(-5) >= START, "no clock that was right said so");
        let minutes = |n: i64| n * 60_000;
        assert_eq!(time.when_ms(minutes(5)), off + minutes(5), "in 1970, which was an hour ago");
        assert!(now - time.when_ms(minutes(5)) < 2 * DAY);
        assert_eq!(now - time.when_ms(START + 12 * DAY + minutes(7)), DAY - minutes(7));
        assert_eq!(time.when_ms(START + 11 * DAY), now - DAY, "while it was off: as of its start");
        assert_eq!(time.when_ms(START + 400 * DAY), now, "a time to come is of now");
        assert_eq!(time.when_ms(i64::MAX), now);
        assert_eq!(time.when_ms(minutes(120)), off + minutes(60) + 1, "it was never that late in 1970");
        let kept: Vec<_> = [i64::MIN, 0, minutes(59), START, now].map(|wall| time.when_ms(wall)).into();
        assert!(kept.iter().all(|&then| then <= now));
    }

    #[test]
    fn a_stamp_from_the_future_is_long_over() {
        assert_eq!([(5, 9), (9, 9), (60_000, 9)].map(|(then, now)| since_ms(then, now)), [4, 0, 0]);
        assert!(since_ms(u64::MAX, 9) > 100 * 365 * DAY.unsigned_abs());
    }

    #[test]
    fn eras_are_bounded() {
        let mut time = begun();
        for start in 1..500i64 {
            let boot = start.to_string();
            time.go_on(read(0, &boot, 0));
            time.go_on(read(START + start * DAY, &boot, 1000));
            assert!(time.eras.len() <= ERAS_MAX && time.is_plausible());
            assert!(time.when_ms(500) <= time.now_ms() && time.when_ms(500) >= time.now_ms() - DAY);
        }
    }
}
