//! Disks over time: what their reports say in words, and how their counters went.

mod health;
mod ring;

pub use health::{About, Finding, Health, Verdict, judge, judge_link, temperature_limits};
pub use ring::{BYTES_MAX, COLUMNS, Column, LEVELS, Ring, RingError, Sample};
