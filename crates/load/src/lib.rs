//! Load on storage and wires, and its measured rate: shares by URL, files and devices of this machine, the wire.
//!
//! `client/`        Shares by URL: NFS, SMB, SFTP and WebDAV, without a mount. `remote.rs` makes a load of them.
//! `fio/`           Blocks of files and devices, by fio. `files.rs` has small files, trees and `cat`; `local.rs` chooses.
//! `iperf3/`        The wire alone; `both.rs`: disks and wire at once.
//! `load.rs`        The face of each towards a runner: prepare, run, clean up.
//! `workload.rs`    A workload, its limits and its results.
//! `scratch.rs`     Folders that a bench writes into; `removal.rs` takes them away, `leftovers.rs` remembers them.
#![forbid(unsafe_code)]

mod both;
mod caches;
pub mod client;
mod control;
mod device;
mod error;
mod files;
mod fio;
mod iperf3;
mod leftovers;
mod load;
mod local;
pub mod process;
mod remote;
mod removal;
mod scratch;
mod series;
pub mod workload;

pub use both::BothLoad;
pub use caches::{drop_caches, may_drop_caches};
pub use control::{Control, Progress};
pub use device::{Device, is_device};
pub use error::BenchError;
pub use iperf3::{NetLoad, PORT, checked_host, version as iperf3_version};
pub use load::{Load, Scene};
pub use local::{LocalLoad, Place, SETTLE};
pub use remote::{ClientLoad, CopyLoad};
pub use scratch::{Scratch, sweep};
pub use workload::{Caches, Kind, Knee, Latency, Moment, Note, Repeat, RunLimits, Side, Workload};

use larder_facts::Machine;

#[cfg(test)]
#[path = "../../facts/src/machine/fixture.rs"]
mod fixture;
