//! Load on storage and wires, and its measured rate: shares by URL, files and devices of this machine, the wire.
//!
//! `client/`        Shares by URL: NFS, SMB, SFTP and WebDAV, without a mount.
//! `fio/`           Blocks of files and devices, by fio. `files.rs` has small files, trees and `cat`.
//! `iperf3/`        The wire alone.
//! `load.rs`        What a runner sees of each: prepare, run, clean up.
//! `workload.rs`    What was done, and what came of it.
//! `scratch.rs`     What was written, and its removal, also after a kill.
#![forbid(unsafe_code)]

mod both;
pub mod client;
mod control;
mod device;
mod error;
mod files;
mod fio;
mod iperf3;
mod load;
mod local;
pub mod process;
mod scratch;
mod series;
pub mod workload;

pub use both::BothLoad;
pub use control::{Control, Progress};
pub use device::{Device, is_device};
pub use error::BenchError;
pub use iperf3::{NetLoad, PORT, checked_host, version as iperf3_version};
pub use load::{ClientLoad, CopyLoad, Load, Scene};
pub use local::{LocalLoad, Place, SETTLE, drop_caches, may_drop_caches};
pub use scratch::{Scratch, sweep};
pub use workload::{Caches, Kind, Knee, Latency, Moment, Note, Repeat, Side, Workload};

use larder_facts::Machine;

#[cfg(test)]
#[path = "../../facts/src/machine/fixture.rs"]
mod fixture;
