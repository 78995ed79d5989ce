//! Disks into one object store: labels, placement, mirror and parity, journal, repair.
//!
//! ```text
//! pool.rs status.rs metrics.rs history.rs error.rs    what a pool is to its users, what it says and remembers
//! change/    creating, opening, other disks and layouts, moving
//! heal/      repair, scrub, misplaced shards
//! object/    geometry, parity, shards, placement, index; write, upload, read, delete; the ObjectStore face
//! journal/   the LogStore face
//! member/    labels, disks by slot, adoption, reserves, side files
//! disk/      the trait of a disk, real folders, watching, timing, counting, buffers, threads or turns
//! salvage/   what is left of a pool, read only; structures decoded for people
//! core.rs    what all parts of an open pool share
//! ```
//!
//! Absences: no module but `disk/folder.rs` touches a file; nothing here knows what a filesystem is;
//! nothing is ever overwritten in place (the journal's ring excepted), so there is no write hole.
#![forbid(unsafe_code)]

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

pub use change::create::{CreateOptions, Plan, PlannedDisk};
pub use change::disks::{Change, ChangePlan, Worth};
pub use change::mover::Moving;
pub use error::PoolError;
pub use heal::scrub::{Damage, MissingObjects, ScrubPhase, ScrubStatus, Users};
pub use history::{Event, EventKind};
pub use member::member_disk::DiskState;
pub use object::layout::{DISKS_MAX, Layout, ParseLayoutError};
pub use object::parity;
pub use pool::{OpenOptions, Pool};
pub use status::{DiskStatus, FoundDisk, FoundPool, PoolState, PoolStatus};
