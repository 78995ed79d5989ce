//! Is this disk fit to be a member of a pool, and how is an empty one made ready?
//!
//! [`check`] gathers facts of what is given and of the members that are there already, and holds them against rules.
//! Every rule is a pure function from facts to [`Finding`]s: `rules/filesystem.rs` for what a folder lies on,
//! `rules/device.rs` for one disk, `rules/health.rs` for what it says of itself, `rules/together.rs` for disks beside
//! each other.
//!
//! - `disk.refusal_protects_data`: a refusal means that the disk breaks the durability contract or would lose data, so
//!   no pool may be built on it. A warning is for a fault that will hurt one day, a note for a fact that is good to know.
//! - `disk.check_writes_one_file`: [`check`] writes nothing but the flush test's file of 1 MiB, only into a folder, and
//!   removes it.
//! - `disk.users_looked_for`: [`Prepare`] writes to a disk only after a search for everything that uses it, and only
//!   with its serial number if the disk is not empty (`prepare.serial_typed`).

mod check;
mod contents;
mod flush;
mod fstab;
mod known;
mod list;
mod prepare;
mod report;
mod room;
mod rules;
mod usage;

#[cfg(test)]
mod tests;

pub use check::{CheckOptions, check};
pub use contents::{Contents, contents};
pub use flush::{FlushRate, measure_flushes};
pub use list::{Listed, list};
pub use prepare::{Prepare, PrepareError, PrepareOptions, Prepared};
pub use report::{CheckReport, DeviceReport, DiskReport, Finding, Level, Space, Unknown};
pub use room::{FilesystemFound, filesystems};
pub use usage::{Use, uses};
