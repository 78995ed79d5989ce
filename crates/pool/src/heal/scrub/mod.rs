//! Scrub: everything that the pool holds is read and verified, and damage is mended.
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
//! - `scrub.past_the_cache`: all shards of all objects are read past the kernel's cache, so that
//!   the disk itself answers. Labels and journal copies come first.
//! - `scrub.streams_of_a_disk`: one stream reads each disk in the order of the index; two streams
//!   read a disk that does not seek. A window of objects, in the same order, keeps every disk
//!   supplied. The last pieces of a shard may still be verified while the next shard is read. That
//!   bounds memory: three shards a disk, three pieces each.
//! - `scrub.done_up_to_a_path`: progress is a path, and all objects up to it are done. An
//!   interrupted scrub goes on there. The progress on the disks is at most [`SAVE_EVERY`] old.
//! - `scrub.yields_to_users`: while the pool is in use, or a disk is brought up to date, a scrub
//!   takes a small part of each disk's time. The part is never zero, so a scrub ends on a busy pool
//!   too.
//! - `scrub.damage_remembered`: damage that cannot be repaired is remembered, with the object's
//!   lost bytes, until the object is deleted or found intact.

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
