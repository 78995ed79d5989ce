//! What the daemon and its command line say to each other: request and response types, and the client.
//!
//! The daemon listens on a Unix socket in its data folder (mode 0600: whoever may open it may do
//! everything). Requests and answers are JSON over HTTP/1.1; `--json` of every command prints the
//! same structures. Nothing here does anything: a type, its wire form, and how to carry it.
#![forbid(unsafe_code)]

mod bench;
mod care;
mod charts;
mod client;
mod config;
mod disks;
pub mod endpoint;
pub mod endpoints;
mod explain;
mod failure;
mod import;
mod keys;
pub mod openapi;
mod opens;
mod people;
mod replication;
pub mod setting;
mod setup;
pub mod share;
mod snapshots;
mod socket;
mod top;
mod types;
mod watch;

pub use bench::*;
pub use care::*;
pub use charts::{ChartSample, ChartSpan, ChartSpanName, Charts};
pub use client::{Client, Connect, Connecting, Connection, Download, Lines};
pub use config::{
    BoxFound, BoxRecoveryKey, CONFIG_BYTES_MAX, ConfigApplied, ConfigApply, ConfigDifference, ConfigHistory, ConfigHow,
    ConfigKey, ConfigPlan, ConfigRestore, ConfigText, ConfigVersion, ConfigVersionText, SentRecord,
};
pub use disks::{
    DiskFound, DiskNote, DisksFound, FolderFound, LayoutPreview, LayoutSpeed, LayoutsPreview, LayoutsRequest,
    PoolOnDisks, PreviewedDisk, SpeedRange,
};
pub use explain::{
    ExplainRequest, ExplainedDoor, ExplainedObject, ExplainedOperation, ExplainedReason, Explanation, ReasonEffect,
};
pub use failure::{Failure, FailureKind};
pub use import::{ImportEvent, ImportFault, ImportProgress, ImportReport, ImportRequest};
pub use keys::{Encrypt, KeySlot, KeysRequest, KeysStatus, Rekey, SealingStatus, VolumeSecret};
pub use opens::{OpenFile, OpenFiles, OpenUse};
pub use people::{
    ApiScope, GroupAdd, GroupChange, GroupRemoved, GroupStatus, LinkStatus, LinksEnded, PasswordSet, TokenCreate,
    TokenCreated, TokenStatus, UserKey, UserKeysChange,
};
pub use replication::{
    Accept, Accepted, AsFiles, Pair, Paired, Replicate, ReplicationChange, ReplicationStatus, Replications,
};
pub use setup::{
    SetupCheck, SetupDevice, SetupDoors, SetupErased, SetupFailure, SetupImport, SetupLink, SetupNfs, SetupPlan,
    SetupProgress, SetupSecure, SetupServed,
};
pub use share::{ShareAdd, ShareChange, ShareChanged, SharePeople, ShareStatus, ShareUsers};
pub use snapshots::{
    CloneRequest, DiffEntry, DiffRequest, ExportRequest, ReceiveQuery, Received, ReplicaState, STREAM_BYTES_HEADER,
    SendRequest, SentSnapshot, SnapshotCounts, SnapshotHold, SnapshotSchedule, SnapshotStatus, SnapshotsRequest,
    SnapshotsStatus,
};
pub use socket::SocketPath;
pub use top::*;
pub use types::*;
pub use watch::*;

/// The name of the socket within the data folder.
pub const SOCKET_NAME: &str = "larder.sock";
/// A caller of the daemon's socket says in this header how it was asked: `command`, `page`, or nothing.
pub const BY_HEADER: &str = "larder-by";
/// The user for whom a page acts.
pub const FOR_HEADER: &str = "larder-for";
/// The largest body that either side reads. A listing of 32 disks or of a thousand shares is far below.
pub const BODY_BYTES_MAX: usize = 16 << 20;
