//! The configuration of a running larder: its file and data folder, the secrets of its people, the
//! lock under which all of it changes, and how each thing that it names stands.
//!
//! ```text
//! file, people --Document--> Source --Reconcile--> Standings --> alerts, page, commands, metrics
//! ```
//!
//! The parts that make a configuration true are above this crate: it knows no door and no pool.

pub mod box_time;
mod document;
pub mod entitled;
pub mod folder;
#[cfg(test)]
mod fuzz;
pub mod known;
pub mod last_lives;
mod seal;
pub mod secrets;
pub mod standing;
pub mod things;
pub mod tokens;

pub use document::{Document, Overrides, State};
pub use folder::DataFolder;
pub use secrets::{NtHashes, Secrets, check_password, hash_of, random_password};
pub use standing::{Kind, Standing, Standings, Wait};
pub use things::{Look, Reconcile, Source};
pub use tokens::Tokens;
