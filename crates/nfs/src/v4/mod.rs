//! NFS version 4: minor versions 0 (RFC 7530), 1 (RFC 8881) and 2 (RFC 7862), with extended
//! attributes (RFC 8276).
//!
//! The first half needs no I/O. `wire` and the files that use it are the codec of COMPOUND and
//! CB_COMPOUND; `clients` and `slots` are client records and sessions; `state` are stateids, opens,
//! locks and delegations; `grace` is the time after a restart. A clock and a source of random
//! numbers are passed in, and nothing waits. A session has a lock of its own; how the rest is
//! shared is decided by its owner.
//!
//! The second half is the server: `server` owns the state under one lock, which the most common
//! requests pass by (`known_rights`, sessions), `run` carries out requests on files, `exported` are
//! the volumes, `recalls` calls clients back (over `back_channel`, and over `callback_link` those
//! of version 4.0), `offload` and `copy_job` are copies that go on behind their answer, and
//! `client_book` outlives a crash. `lockers` lends record and grace to the locks of version 3.
#![deny(clippy::indexing_slicing, clippy::cast_possible_truncation, clippy::panic)]

mod access_list;
mod asked;
mod attrs;
mod back_channel;
mod bitmap;
mod callback;
mod callback_link;
mod client_book;
mod clients;
mod clock;
mod compound;
mod convert;
mod copy_job;
mod delegation;
mod exported;
mod file_key;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod grace;
mod known_rights;
mod lockers;
mod offload;
mod open_list;
mod openers;
mod ops;
mod owner_seq;
mod place;
mod recalls;
mod run;
#[cfg(test)]
mod sample;
mod server;
mod shown;
mod slots;
mod state;
mod stateids;
#[cfg(test)]
mod tests;
mod types;
mod wire;

pub use compound::payload_place;
pub use open_list::NfsOpen;
pub use run::{Call4, Outline, run};
pub use server::{Connected, KnownVolume, NfsV4};

/// Operations with their numbers, for people.
pub fn operation_names() -> impl Iterator<Item = (&'static str, u32)> {
    ops::OpNumber::ALL.iter().map(|number| (number.name(), number.number()))
}
