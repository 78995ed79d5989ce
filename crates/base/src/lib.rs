//! The vocabulary every layer shares: ids, sizes, time, checksums and the record log.
//! No disk or socket is touched here; what needs a clock, a disk or a random source is handed one.
#![deny(unsafe_code)]

pub mod arena;
pub mod checksum;
pub mod clock;
pub mod features;
pub mod group_commit;
pub mod hex;
pub mod log;
pub mod metrics;
pub mod negative_names;
pub mod network;
pub mod passed;
pub mod printed;
pub mod rounds;
pub mod seam;
pub mod seat;
pub mod sheet;
pub mod shell;
mod system_clock;
pub mod task;
pub mod traffic;
pub mod units;
pub mod wipe;

/// Puts the future of an `async fn` on the heap, `Send`. An `async fn` is compiled in each crate
/// that polls it, with all that it awaits; a boxed one is compiled where it stands. Where one
/// crate's calls are asked by several others, an allocation for each call is less than a copy of
/// everything below for each caller.
pub use async_recursion::async_recursion as boxed;
pub use clock::{Clock, Timestamp};
pub use features::Features;
pub use log::{LogError, LogStore, MemLog};
pub use seat::Seat;
pub use sheet::Sheet;
pub use system_clock::SystemClock;
