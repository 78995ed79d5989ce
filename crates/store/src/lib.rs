//! Buckets of S3 as object stores: opened from a URL, with bounded retries, requests counted, and one owner.
//!
//! ```text
//!   volumes                     the log of volumes
//!      |  ObjectStore              |  LogStore (one object an entry)
//!   Cached: ranges on a local disk  |                                                     cached.rs, cache.rs
//!   Retried: time limits, tries, pauses, conditional writes that know their own work      retried.rs
//!      |
//!   object_store's client of S3, each of whose requests is counted                        requests.rs
//! ```
//!
//! - `bucket.one_owner`: `owner.json` is taken by conditional write, with an epoch that only grows ([`owner`]). The log ends
//!   whoever had it before ([`log`]), so an owner that lost the store acknowledges nothing more.
//! - `bucket.no_secret_told`: keys come from the environment, a profile or the machine's role. No type that holds one is printed.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod after_log;
mod bill;
mod bucket;
mod cache;
mod cached;
mod check;
mod credentials;
mod early;
mod follow;
#[cfg(test)]
mod follow_tests;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod health;
mod journaled;
mod kept;
pub mod log;
mod names;
pub mod owner;
mod owner_record;
mod requests;
mod retried;
#[cfg(test)]
mod seat_tests;
#[cfg(test)]
#[path = "bin/larder-test-bucket/server.rs"]
mod server;
mod settings;
pub mod standby;
#[cfg(test)]
mod standby_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod volume_tests;

pub use after_log::AfterLog;
pub use bill::{Bill, Nanos, Prices, Use};
pub use bucket::Bucket;
pub use cache::{Bypass, CACHE_BYTES_MIN, DiskCache};
pub use cached::Cached;
pub use check::{Probe, ProbeState, check};
pub use follow::{FollowedLog, ReadOnly, left_of_log};
pub use health::{Health, Trouble};
pub use journaled::{JournaledLog, Local, LostEntries, Undrained};
pub use log::BucketLog;
pub use owner::{BEAT, Beating, JournalTeller, Owner, TakeOver};
pub use owner_record::{JournalMark, Machine, OwnerRecord, look, look_at, look_at_all};
pub use requests::{Kind, Requests};
pub use retried::Retried;
pub use settings::{BucketSettings, BucketUrl};
pub use standby::{HandOver, Look, Silence, Watched, hand_over};

/// Why a bucket cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum BucketError {
    /// What was said of the bucket makes no sense.
    #[error("{0}")]
    Invalid(String),
    /// Another machine has the store.
    #[error("the store {url} belongs to {machine}, which took it {since}")]
    Owned {
        /// The bucket and prefix.
        url: String,
        /// The machine that has it.
        machine: String,
        /// When it took it.
        since: String,
    },
    /// This machine had the store and lost it.
    #[error("the store {url} was taken over by {machine}")]
    Lost {
        /// The bucket and prefix.
        url: String,
        /// The machine that has it.
        machine: String,
    },
    /// The store answered with an error, or not at all.
    #[error("{what}: {source}")]
    Store {
        /// What was tried.
        what: String,
        /// The store's error.
        source: object_store::Error,
    },
    /// An object that larder wrote is not as it should be.
    #[error("{0} is damaged: {1}")]
    Damaged(String, String),
}
