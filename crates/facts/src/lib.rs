//! Facts about the machine: what its disks really are, what it does just now, and what it costs to run.
//!
//! Nothing here stores, serves or concludes. Facts come in through [`Machine`] alone, which can be pointed at a
//! recorded copy of another machine's `/sys` and `/proc`; what follows from facts is pure.
//!
//! - `facts.unknown_is_said`: a fact that cannot be known is reported as unknown. A missing tool, a missing right or a
//!   virtual disk takes a fact away; it never turns into "all is well".
//! - `facts.looking_changes_nothing`: reading facts changes nothing. Each function that writes (the flush test,
//!   `disk prepare`) stands alone and has a name that says so.
//! - `facts.reads_bounded`: everything that is read is bounded: files, directories, the output and the running time of
//!   other programs.
#![forbid(unsafe_code)]

pub mod about;
pub mod base64;
pub mod disk;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
pub mod machine;
pub mod power;
pub mod reading;
pub mod sampler;
pub mod samples;
pub mod wires;
pub mod work;

pub use machine::Machine;
