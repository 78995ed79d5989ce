//! A filesystem on any object store.
//!
//! The volume knows no disks, no redundancy and no protocol: below it is one
//! `Arc<dyn ObjectStore>` (and, where the store has one, a [`larder_base::LogStore`] for the
//! write-ahead log); above it is everything that serves files. [`Volume`] is its public face.
#![forbid(unsafe_code)]

mod access;
mod attr;
mod check;
mod data;
mod dir;
mod inode;
mod io;
mod keys;
mod meta;
mod names;
mod namespace;
mod reap;
mod registry;
mod rename;
mod state;
mod table;
mod types;
mod volume;
mod xattr;

pub use registry::Registry;
pub use types::*;
pub use volume::*;

#[cfg(test)]
mod tests;
