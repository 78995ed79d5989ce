//! Stores of volumes that are open: pools and buckets, their keys, snapshots, scrubs and schedules.
//!
//! The daemon holds one `Storage` for its life; a command without a daemon opens one, asks, and closes it. This crate knows
//! neither of them, no configuration file and no command line. Its answers are the plain data types of `larder-api`; what goes
//! wrong is a [`KeepError`].
#![forbid(unsafe_code)]

mod error;
pub mod memory;
pub mod missing;
mod names;
pub mod retention;
mod schedule;
mod settings;
pub mod times;

pub use error::{KeepError, Words};
pub use names::{VolumeName, check_name};
pub use schedule::Schedule;
pub use settings::{CacheSettings, StoreSettings};
