//! Scrub: everything that the pool holds is read and verified, and what is damaged is made anew.
//!
//! ```text
//!            start              all read
//!   (none) --------> Running ------------> Finished
//!              start |  ^  | stop
//!              pause |  |  +----> Stopped
//!                    v  | start
//!                   Paused
//! ```
//!
//! C1. All shards of all objects are read, past the kernel's cache: what counts is what the disk says.
//!     Labels and journal copies first.
//! C2. Each disk is read by one stream, one that does not seek by two, in the order of the index; a window of objects, in
//!     the same order, keeps every disk supplied. Of a shard that has been read the last pieces may be verified still while
//!     the next is read. Memory is bounded by that: three shards a disk, three pieces each.
//! C3. What is counted as done is done for all objects before it: a scrub that is interrupted goes on there.
//!     Its state is on the disks, at most [`SAVE_EVERY`] old.
//! C4. While somebody uses the pool, or a disk is brought up to date, a scrub takes a small part of each
//!     disk's time; never none, so that it ends on a pool that is always in use.
//! C5. Damage that cannot be repaired is remembered, with the object's bytes that are lost, until the object is gone
//!     or found intact.

mod damage;
mod found;
mod pace;
mod records;
mod run;
mod scrubs;
pub mod state;
#[cfg(test)]
mod tests;
mod verify;

pub use found::{Damage, MissingObjects, Records};
pub use run::run;
pub use scrubs::{Scrubs, Users};
#[cfg(any(test, fuzzing))]
pub use state::go_on;
pub use state::{FILE_NAME, ScrubPhase, ScrubStatus};
