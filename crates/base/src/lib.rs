//! The vocabulary every layer shares: ids, sizes, time, checksums and the record log.
//! No I/O happens here; what needs a clock, a disk or a random source is handed one.
#![forbid(unsafe_code)]

pub mod checksum;
pub mod clock;
pub mod log;
pub mod units;

pub use clock::{Clock, SystemClock, Timestamp};
pub use log::{LogError, LogStore, MemLog};
