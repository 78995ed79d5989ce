//! The number of this server's life, as status monitors count lives.
//!
//! - `life.grows`: each life has another number, that of a later start is higher, and all are odd: clients take an even
//!   number for a machine that is down.

use larder_base::{Clock, SystemClock};

/// By sixteenths of a second, so that a start within one of another has another number, and it takes two years to come round.
pub fn first_life() -> u32 {
    let now = SystemClock::default().now();
    let sixteenths = now.secs.unsigned_abs().wrapping_mul(16).wrapping_add(u64::from(now.nanos / 62_500_000));
    let sixteenths = u32::try_from(sixteenths & 0x3fff_ffff).unwrap_or(0);
    sixteenths << 1 | 1
}
