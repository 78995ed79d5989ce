//! Stores of volumes that are open: pools and buckets, their keys, snapshots, scrubs and schedules.
//!
//! The daemon holds one [`Storage`] for its life; a command without a daemon opens one, asks, and closes it. This crate knows
//! neither of them, no configuration file and no command line. Its answers are the plain data types of `larder-api`; what goes
//! wrong is a [`Failure`].
#![forbid(unsafe_code)]

pub mod bucket;
mod damage;
pub mod export;
mod import_tasks;
pub mod journal_place;
pub mod keyrings;
mod keys;
pub mod memory;
pub mod missing;
mod names;
mod owner_quotas;
mod owners;
mod passes;
mod replicas;
pub mod retention;
mod rollback;
mod schedule;
mod scrub;
pub mod sealing;
mod seats;
mod settings;
pub mod snapshot_runs;
pub mod snapshot_schedule;
pub mod snapshot_words;
mod snapshots;
mod storage;
mod store;
pub mod times;
pub mod translate;
pub mod uses;

pub use names::{VolumeName, check_name};
pub use replicas::Input;
pub use schedule::Schedule;
pub use settings::{CacheSettings, StoreSettings};
pub use storage::Storage;
pub use store::{Remedy, Store};
