//! FILETIME (MS-DTYP 2.3.3): 100 ns ticks since 1601-01-01 UTC.

use larder_base::Timestamp;

const TICKS_PER_SEC: i64 = 10_000_000;
const NANOS_PER_TICK: u32 = 100;
/// From 1601-01-01 to 1970-01-01.
const EPOCH_SECS: i64 = 11_644_473_600;

/// Times before 1601 are shown as 1601 plus one tick: 0 means "no time" on the wire.
pub fn filetime(time: Timestamp) -> u64 {
    let secs = i128::from(time.secs) + i128::from(EPOCH_SECS);
    let ticks = secs * i128::from(TICKS_PER_SEC) + i128::from(time.nanos / NANOS_PER_TICK);
    ticks.clamp(1, i128::from(i64::MAX)) as u64
}

pub fn timestamp(filetime: u64) -> Timestamp {
    let ticks = i64::try_from(filetime).unwrap_or(i64::MAX);
    let nanos = (ticks % TICKS_PER_SEC) as u32 * NANOS_PER_TICK;
    Timestamp::new(ticks / TICKS_PER_SEC - EPOCH_SECS, nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_round_trip() {
        assert_eq!(filetime(Timestamp::new(0, 0)), 116_444_736_000_000_000);
        for ticks in [1, 116_444_736_000_000_000, 133_000_000_012_345_678, i64::MAX as u64] {
            assert_eq!(filetime(timestamp(ticks)), ticks);
        }
    }

    #[test]
    fn times_out_of_range_are_clamped() {
        assert_eq!(filetime(Timestamp::new(-20_000_000_000, 0)), 1);
        assert_eq!(filetime(Timestamp::new(i64::MAX, 999_999_999)), i64::MAX as u64);
        assert_eq!(timestamp(u64::MAX), timestamp(i64::MAX as u64));
    }
}
