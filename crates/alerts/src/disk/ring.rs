//! The history of one thing, in a file that does not grow: hours of days, days of a year, weeks of ten years.
//!
//! ```text
//! 0   "LARDRING"                    8 bytes
//! 8   version, 1                    u32, little-endian as all numbers here
//! 12  bytes of the subject          u32, at most 1024
//! 16  the subject                   UTF-8
//!     for each level, shortest periods first:
//!       samples                     u32, at most the level's capacity
//!       for each sample, oldest first:
//!         period since 1970         u32
//!         columns                   8 x u32; 0xffffffff: not known
//!     XXH3-64 of all before         u64
//! ```
//!
//! - `ring.maxima`: a sample of a period is the largest value seen in it, in each column. Counters only grow, and of temperatures the
//!   highest is wanted.
//! - `ring.one_size`: a full file has [`BYTES_MAX`] bytes, whatever happens for however long.

use std::collections::VecDeque;

use larder_base::checksum::checksum;
use larder_base::passed;

pub const COLUMNS: usize = 8;
/// The newest sample of a clock that was set back a little stays.
const AHEAD_SLOTS_MAX: u32 = 2;
const UNKNOWN: u32 = u32::MAX;
const MAGIC: &[u8; 8] = b"LARDRING";
const VERSION: u32 = 1;
const SUBJECT_BYTES_MAX: usize = 1024;
/// Seconds of a period, and how many are kept.
pub const LEVELS: [(u64, usize); 3] = [(3600, 96), (24 * 3600, 400), (7 * 24 * 3600, 520)];
const SAMPLE_BYTES: usize = 4 + 4 * COLUMNS;
/// The longest file.
pub const BYTES_MAX: usize =
    16 + SUBJECT_BYTES_MAX + 3 * 4 + SAMPLE_BYTES * (LEVELS[0].1 + LEVELS[1].1 + LEVELS[2].1) + 8;

/// Of a disk. Pools and volumes have the bytes in use, in MiB, in the first and the bytes that fit in the second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Column {
    Celsius = 0,
    WearPercent = 1,
    Reallocated = 2,
    Pending = 3,
    Uncorrectable = 4,
    /// Transfers damaged on the cable.
    Crc = 5,
    PowerOnHours = 6,
    /// Spin-ups of a hard disk.
    Starts = 7,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// The beginning of its period, in seconds since 1970.
    pub at_s: u64,
    pub values: [Option<u32>; COLUMNS],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Slot {
    period: u32,
    values: [u32; COLUMNS],
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RingError {
    #[error("it is no history of larder")]
    Foreign,
    #[error("version {0} is of a newer larder")]
    Newer(u32),
    #[error("it is damaged: {0}")]
    Damaged(&'static str),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ring {
    pub subject: String,
    levels: [VecDeque<Slot>; 3],
}

impl Ring {
    pub fn new(subject: &str) -> Self {
        let mut subject = subject.to_owned();
        while subject.len() > SUBJECT_BYTES_MAX {
            subject.pop();
        }
        Self { subject, levels: Default::default() }
    }

    /// Adds what was seen at a time (`ring.maxima`). A clock that was set back adds to the newest sample.
    pub fn add(&mut self, at_s: u64, values: [Option<u32>; COLUMNS]) {
        self.add_by(at_s, passed::is_behind(), values);
    }

    /// Samples from the future are of a clock that was ahead: they go, or they would swallow those of today. A clock that is behind
    /// takes none away.
    fn add_by(&mut self, at_s: u64, is_behind: bool, values: [Option<u32>; COLUMNS]) {
        let values = values.map(|value| value.map_or(UNKNOWN, |value| value.min(UNKNOWN - 1)));
        for (slots, (period_s, slots_max)) in self.levels.iter_mut().zip(LEVELS) {
            let period = u32::try_from(at_s / period_s).unwrap_or(u32::MAX);
            while !is_behind && slots.back().is_some_and(|last| last.period > period.saturating_add(AHEAD_SLOTS_MAX)) {
                slots.pop_back();
            }
            match slots.back_mut() {
                Some(last) if period <= last.period => {
                    for (old, new) in last.values.iter_mut().zip(values) {
                        *old = match (*old, new) {
                            (UNKNOWN, new) => new,
                            (old, UNKNOWN) => old,
                            (old, new) => old.max(new),
                        };
                    }
                }
                _ => {
                    if slots.len() >= slots_max {
                        slots.pop_front();
                    }
                    slots.push_back(Slot { period, values });
                }
            }
        }
    }

    /// The samples of a level, oldest first.
    pub fn samples(&self, level: usize) -> Vec<Sample> {
        let Some((slots, (period_s, _))) = self.levels.get(level).zip(LEVELS.get(level)) else { return Vec::new() };
        let known = |value: u32| (value != UNKNOWN).then_some(value);
        slots.iter().map(|s| Sample { at_s: u64::from(s.period) * period_s, values: s.values.map(known) }).collect()
    }

    /// The newest value of a column that is at least so old: of the finest level that reaches back that far.
    pub fn before(&self, column: Column, at_s: u64) -> Option<u32> {
        (0..LEVELS.len()).find_map(|level| {
            let (period_s, _) = LEVELS[level];
            let samples = self.samples(level);
            let old = samples.iter().rev().filter(|sample| sample.at_s + period_s <= at_s);
            old.filter_map(|sample| sample.values.get(column as usize).copied().flatten()).next()
        })
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(BYTES_MAX);
        let number = |bytes: &mut Vec<u8>, n: usize| bytes.extend(u32::try_from(n).unwrap_or(0).to_le_bytes());
        bytes.extend(MAGIC);
        bytes.extend(VERSION.to_le_bytes());
        number(&mut bytes, self.subject.len());
        bytes.extend(self.subject.as_bytes());
        for slots in &self.levels {
            number(&mut bytes, slots.len());
            for slot in slots {
                bytes.extend(slot.period.to_le_bytes());
                slot.values.iter().for_each(|value| bytes.extend(value.to_le_bytes()));
            }
        }
        bytes.extend(checksum(0, &bytes).to_le_bytes());
        bytes
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, RingError> {
        let mut rest = bytes.strip_prefix(MAGIC).ok_or(RingError::Foreign)?;
        match u32_of(&mut rest)? {
            VERSION => {}
            newer => return Err(RingError::Newer(newer)),
        }
        let (all, sum) = bytes.split_last_chunk::<8>().ok_or(RingError::Damaged("it is too short"))?;
        if checksum(0, all) != u64::from_le_bytes(*sum) {
            return Err(RingError::Damaged("its checksum differs"));
        }
        let subject_bytes = u32_of(&mut rest)? as usize;
        let subject = take(&mut rest, subject_bytes, SUBJECT_BYTES_MAX)?;
        let subject = std::str::from_utf8(subject).map_err(|_| RingError::Damaged("its subject is no text"))?;
        let mut ring = Self::new(subject);
        for (slots, (_, slots_max)) in ring.levels.iter_mut().zip(LEVELS) {
            let count = u32_of(&mut rest)? as usize;
            if count > slots_max {
                return Err(RingError::Damaged("it has too many samples"));
            }
            for _ in 0..count {
                let period = u32_of(&mut rest)?;
                if slots.back().is_some_and(|last: &Slot| last.period >= period) {
                    return Err(RingError::Damaged("its samples are in no order"));
                }
                let mut values = [UNKNOWN; COLUMNS];
                for value in &mut values {
                    *value = u32_of(&mut rest)?;
                }
                slots.push_back(Slot { period, values });
            }
        }
        if rest.len() != 8 {
            return Err(RingError::Damaged("it is too long"));
        }
        Ok(ring)
    }
}

fn take<'a>(rest: &mut &'a [u8], bytes: usize, bytes_max: usize) -> Result<&'a [u8], RingError> {
    let cut = (bytes <= bytes_max).then(|| rest.split_at_checked(bytes)).flatten();
    let (taken, more) = cut.ok_or(RingError::Damaged("it ends in the middle"))?;
    *rest = more;
    Ok(taken)
}

fn u32_of(rest: &mut &[u8]) -> Result<u32, RingError> {
    let (number, more) = rest.split_first_chunk::<4>().ok_or(RingError::Damaged("it ends in the middle"))?;
    *rest = more;
    Ok(u32::from_le_bytes(*number))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn values(celsius: u32, reallocated: u32) -> [Option<u32>; COLUMNS] {
        let mut values = [None; COLUMNS];
        values[Column::Celsius as usize] = Some(celsius);
        values[Column::Reallocated as usize] = Some(reallocated);
        values
    }

    #[test]
    fn golden_bytes() {
        let mut ring = Ring::new("d");
        ring.add(7200, [Some(30), None, Some(1), None, None, None, None, Some(9)]);
        let hex: String = ring.encode().iter().map(|byte| format!("{byte:02x}")).collect();
        let columns = "1e000000ffffffff01000000ffffffffffffffffffffffffffffffff09000000";
        let body = format!(
            "4c41524452494e47010000000100000064 01000000 02000000{columns} 01000000 00000000{columns} 01000000 00000000{columns}"
        );
        let body = body.replace(' ', "");
        assert_eq!(hex[..body.len()], body);
        assert_eq!(hex.len(), body.len() + 16);
        assert_eq!(&hex[body.len()..], GOLDEN_SUM);
        assert_eq!(Ring::decode(&ring.encode()).unwrap(), ring);
    }

    const GOLDEN_SUM: &str = "0711aa801a5baaec";

    #[test]
    fn ten_years_fit_into_the_same_file_as_one() {
        let mut ring = Ring::new("WDC WD80EFZX VK0ABC");
        let hours = |years: u64| years * 365 * 24;
        let mut at_year = 0;
        for hour in 0..hours(12) {
            ring.add(hour * 3600, values(30 + (hour % 24 / 4) as u32, (hour / 1000) as u32));
            if hour == hours(1) {
                at_year = ring.encode().len();
            }
        }
        let bytes = ring.encode().len();
        assert!(bytes <= BYTES_MAX && at_year <= bytes && BYTES_MAX < 40_000, "{at_year} {bytes} {BYTES_MAX}");
        assert_eq!(Ring::decode(&ring.encode()).unwrap(), ring);
        let days = ring.samples(1);
        assert_eq!((days.len(), days[0].values[Column::Celsius as usize]), (400, Some(35)), "the day's highest");
        let now = hours(12) * 3600;
        assert_eq!(ring.before(Column::Reallocated, now - 30 * 24 * 3600), Some(((hours(12) - 720 - 1) / 1000) as u32));
        assert_eq!(ring.before(Column::Reallocated, now - 3000 * 24 * 3600).map(|n| n / 10), Some(3));
        assert_eq!(ring.before(Column::Pending, now), None);
        assert_eq!(ring.before(Column::Reallocated, 5), None);
    }

    #[test]
    fn a_clock_that_is_set_back_does_no_harm() {
        let mut ring = Ring::new("x");
        ring.add(1_000_000, values(30, 1));
        ring.add_by(5, true, values(40, 0));
        let hours = ring.samples(0);
        assert_eq!((hours.len(), hours[0].values[0], hours[0].values[2]), (1, Some(40), Some(1)));
    }

    #[test]
    fn damage_is_noticed() {
        let mut ring = Ring::new("x");
        (0..50).for_each(|n| ring.add(n * 90_000, values(n as u32, 1)));
        let whole = ring.encode();
        assert_eq!(Ring::decode(b"something else"), Err(RingError::Foreign));
        for at in 8..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 1;
            assert!(Ring::decode(&bytes).is_err(), "byte {at}");
            assert!(Ring::decode(&whole[..at]).is_err(), "cut at {at}");
        }
    }
}
