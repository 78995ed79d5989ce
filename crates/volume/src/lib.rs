//! A filesystem on any object store.
//!
//! The volume knows no disks, no redundancy and no protocol: below it is one
//! `Arc<dyn ObjectStore>` (and, where the store has one, a [`larder_base::LogStore`] for the
//! write-ahead log); above it is everything that serves files. [`Volume`] is its public face.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod alone;
mod attr;
mod backing;
mod charge;
mod check;
mod cores;
mod counts;
mod damage;
mod data;
mod dir;
mod features;
mod follow;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod handle_key;
mod inode;
mod inode_core;
pub mod inspect;
mod io;
mod keys;
mod layout;
mod lineage;
mod marks;
mod meta;
mod metrics;
mod missing_objects;
mod named;
mod names;
mod namespace;
mod nfs_clients;
mod numbers;
mod opening;
mod own_records;
mod owner_limits;
mod owner_quotas;
mod permit;
mod properties;
mod reap;
mod reap_queue;
mod registry;
mod rename;
pub mod replica;
mod room;
pub mod salvage;
mod snapshots;
mod state;
mod table;
mod turns;
mod under_way;
mod volume;
mod xattr;

pub use backing::{Backing, Beneath, MemoryBudget, NoKeys, Seals, Space};
pub use check::CheckReport;
pub use damage::{DamageReport, DamagedFile, DamagedObject};
pub use handle_key::HandleKey;
pub use missing_objects::MissingObjects;
pub use properties::{Compression, OwnerQuota, OwnerQuotas, Properties, Sealing, SyncMode, VolumeInfo, ZstdLevel};
pub use registry::followed::Outdated;
pub use registry::handover::{Handover, HandoverStage};
pub use registry::seats::Seated;
pub use registry::{HAS_CLONES, Registry};
pub use volume::{OpenFile, Volume};

#[cfg(test)]
mod tests;
