//! The number of this server's life, as status monitors count lives.
//!
//! - `life.grows`: each life has another number, that of a later start is higher, and all are odd: clients take an even
//!   number for a machine that is down.

use larder_base::{Clock, SystemClock};

/// By quarters of a second, so that it takes eight years to come round.
pub fn first_life() -> u32 {
    let now = SystemClock::default().now();
    let quarters = now.secs.unsigned_abs().wrapping_mul(4).wrapping_add(u64::from(now.nanos / 250_000_000));
    let quarters = u32::try_from(quarters & 0x3fff_ffff).unwrap_or(0);
    quarters << 1 | 1
}
