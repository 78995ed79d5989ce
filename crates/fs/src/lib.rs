//! The words of a filesystem, and its judges: what a tree of files is asked and answers, whichever tree it is.
//!
//! A volume and a folder of the host are such trees; doors know them by these words alone.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod access;
pub mod acl;
mod error;
mod events;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
pub mod judge;
mod keepers;
mod names;
mod permit;
pub mod places;
pub mod posix_acl;
mod words;

pub use error::{FsError, FsResult};
pub use events::{Events, Witness};
pub use keepers::{Keeper, Keepers, Kept};
pub use names::SNAPSHOTS_NAME;
pub use permit::{Grounds, ModeClass, Wish};
pub use words::*;
