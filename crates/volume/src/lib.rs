//! A filesystem on any object store.
//!
//! The volume knows no disks, no redundancy and no protocol: below it is one
//! `Arc<dyn ObjectStore>` (and, where the store has one, a [`larder_base::LogStore`] for the
//! write-ahead log); above it is everything that serves files. [`Volume`] is its public face.
#![forbid(unsafe_code)]

mod access;
pub mod acl;
mod attr;
mod check;
mod damage;
mod data;
mod dir;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod gone;
mod inode;
pub mod inspect;
mod io;
mod keys;
mod known;
mod marks;
mod meta;
mod metrics;
mod named;
mod names;
mod namespace;
mod reap;
mod registry;
mod rename;
pub mod salvage;
mod state;
mod table;
mod types;
mod volume;
mod witness;
mod xattr;

pub use damage::{DamageReport, DamagedFile, DamagedObject};
pub use gone::GoneObjects;
pub use registry::Registry;
pub use types::*;
pub use volume::*;
pub use witness::Witness;

#[cfg(test)]
mod tests;
