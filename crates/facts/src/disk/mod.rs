//! Is this disk fit to be a member of a pool, and how is an empty one made ready?
//!
//! [`check`] gathers facts of what is given and of the members that are there already, and holds them against rules.
//! Every rule is a pure function from facts to [`Finding`]s: `rules/filesystem.rs` for what a folder lies on,
//! `rules/device.rs` for one disk, `rules/health.rs` for what it says of itself, `rules/together.rs` for disks beside
//! each other.
//!
//! D1. A refusal is for what breaks the durability contract or would lose data: a pool must not be built on it.
//!     A warning is for what will hurt one day, a note for what is good to know.
//! D2. [`check`] writes nothing but the flush test's file of 1 MiB, which it removes, and that only into a folder.
//! D3. [`Prepare`] writes to a disk only after everything that uses it was looked for, and after its
//!     serial number was given if it is not empty.

mod check;
mod flush;
mod fstab;
mod known;
mod list;
mod prepare;
mod report;
mod rules;
mod usage;

#[cfg(test)]
mod tests;

pub use check::{CheckOptions, check};
pub use flush::{FlushRate, measure_flushes};
pub use list::{Listed, list};
pub use prepare::{Prepare, PrepareError, PrepareOptions, Prepared};
pub use report::{CheckReport, DeviceReport, DiskReport, Finding, Level, Space, Unknown};
pub use usage::{Use, uses};
