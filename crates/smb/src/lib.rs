//! SMB 2 and 3 (MS-SMB2): what a server keeps and says between a socket and a store of files.
//!
//! ```text
//!   socket   conn       frames, credits, channels, requests that wait
//!            dispatch   signatures, encryption, compounds; one reply for each request
//!            handlers   one file for each command
//!            files      opens, share modes, byte ranges, leases, durable opens, watches
//!            backend    the traits of the store behind a share, one call for each step
//! ```
//!
//! Crate `larder-smb-wire` has the bytes of messages, of their protection and of logons; `rpc` the
//! list of shares. `builder` makes a server, `config` changes its users and shares while it runs.
//!
//! - A path comes to the store as [`SmbPath`]: relative to the share's root, without `.`, `..` and separators.
//! - The store judges permissions. This crate judges what an open was granted, before the store is called.
//! - [`Handle::close`] runs wherever an open ends: CLOSE, TREE_DISCONNECT, LOGOFF, the end of a connection, a
//!   change by [`ConfigHandle`]. Only a task that is cancelled drops a handle without it.
//! - Share modes, byte ranges, leases and the mark "to be deleted" belong to a file, whatever share and
//!   connection it was opened by ([`OpenFiles`]). A file is deleted when its last open ends.
//! - Renames of a share run one at a time; a CREATE or a delete waits for one in progress. An open follows
//!   the rename of its path.
//! - Each [`SmbError`] is one NTSTATUS ([`SmbError::to_nt_status`]).

mod access_mask;
mod admission;
mod auth_policy;
mod backend;
mod builder;
mod config;
pub(crate) mod conn;
mod dispatch;
pub mod door;
mod error;
mod files;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod handlers;
pub(crate) mod info_class;
mod moment;
pub mod ntstatus;
mod open_list;
mod path;
mod rpc;
mod security;
mod server;
mod share;
mod state;
#[cfg(test)]
mod tests;
mod utils;
mod wildcard;

pub use access_mask::Access;
pub use admission::{Admission, AdmissionObserver, Room, StrangerAccount, StrangerLedger};
pub use backend::{
    BackendCapabilities, DirEntry, DirPage, ExtendedAttribute, FileInfo, FileTimes, Handle, Located, OpenAction,
    OpenIntent, OpenName, OpenOptions, ShareBackend, StreamInfo, VolumeInfo, Watching,
};
pub use builder::{BuildError, SmbServerBuilder};
pub use bytes::Bytes;
pub use config::{ConfigError, ConfigHandle};
pub use error::{SmbError, SmbResult};
pub use files::{Above, Notice, NoticeKind, Observed, OpenFiles, Standing, Watches};
pub use handlers::interfaces::{Interfaces, NetworkInterface};
pub use larder_smb_wire::auth::ntlm::Identity;
pub use moment::Moment;
pub use open_list::SmbOpen;
pub use path::SmbPath;
pub use security::{Ace, Dacl, SecurityDescriptor, Sid};
pub use server::{ShutdownHandle, SmbServer};
pub use share::{Admitted, Doorkeeper, Share, Visitor};
pub use wildcard::Pattern;
