//! Disks into one object store: labels, placement, mirror and parity, journal, repair.
//!
//! A pool cuts immutable objects into shards, one a disk, and serves them as an `ObjectStore`.
//! Small records go to its journal, a `LogStore`. It knows nothing of files, volumes and protocols.
//!
//! ```text
//! pool.rs status.rs metrics.rs history.rs error.rs    the pool to its users, its reports, its history
//! change/    creating, opening, other disks and layouts, moving
//! heal/      repair, scrub, misplaced shards
//! object/    geometry, parity, shards, placement, index; write, upload, read, delete; the ObjectStore face
//! journal/   the LogStore face
//! member/    labels, disks by slot, adoption, reserves, side files
//! disk/      the trait of a disk, real folders, watching, timing, counting, buffers, threads or turns
//! salvage/   reading damaged pools; structures decoded for people
//! core.rs    the state that all parts of an open pool share
//! ```
//!
//! A few paths through it:
//!
//! ```text
//! a put             store.rs -> write.rs: place, write shards, name them -> index.rs
//! a delete          store.rs -> tombstones.rs: a record in the journal -> reaper.rs unlinks the files
//! a read            store.rs -> read.rs: units of a range, each block verified
//! a degraded read   read.rs: a block failed or a disk is out -> `reconstruct` with parity.rs -> heal/repair.rs
//! an append         journal/log.rs -> queue.rs -> writer.rs -> copies.rs -> receipt
//! a failed write    member/faults.rs: probe, put out of use, labels (`member.out_before_answer`)
//! a disk hangs      disk/watch.rs counts the seconds -> member/faults.rs puts it out of use and closes the way
//!                   -> member/waiting.rs: its callers go on without it -> change/recover.rs takes it back
//! opening           change/open.rs: member/found.rs, label.rs -> journal/stored.rs -> change/recover.rs
//! a new layout      object/layout.rs names it and says what it survives; geometry.rs and parity.rs lay out
//!                   and compute its shards; change/moving.rs brings old objects into its shape
//! ```
//!
//! Absences: no module but `disk/folder.rs` touches a file; nothing here knows what a filesystem
//! is; nothing is overwritten in place (the journal's ring excepted), so there is no write hole.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod change;
mod core;
pub mod disk;
mod error;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod heal;
mod history;
mod journal;
mod member;
mod metrics;
mod object;
mod pool;
pub mod salvage;
mod status;

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

pub use change::create::{CreateOptions, Plan, PlannedDisk, Room};
pub use change::disks::{Change, ChangePlan, Worth};
pub use change::mover::Moving;
pub use error::PoolError;
pub use heal::scrub::{Damage, MissingObjects, ScrubPhase, ScrubStatus, Users};
pub use history::{Event, EventKind};
pub use member::divergence::{LastLife, LastLives};
pub use member::member_disk::DiskState;
pub use metrics::DiskTimes;
pub use object::layout::{DISKS_MAX, Layout, ParseLayoutError};
pub use object::parity;
pub use pool::{OpenOptions, Pool};
pub use status::{DiskStatus, FoundDisk, FoundPool, PoolState, PoolStatus};
