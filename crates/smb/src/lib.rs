//! SMB 2 and 3 (MS-SMB2): what a server keeps and says between a socket and a store of files.
//!
//! ```text
//!   socket   conn       frames, credits, channels, requests that wait
//!            dispatch   signatures, encryption, compounds; one reply for each request
//!            handlers   one file for each command
//!            files      opens, share modes, byte ranges, leases, durable opens, watches
//!            door       a share as a visitor sees it, and its opens, on the service of all doors
//! ```
//!
//! Crate `larder-smb-wire` has the bytes of messages and of what is in them, of their protection and
//! of logons; `rpc` the list of shares. `builder` makes a server, `config` changes its users and
//! shares while it runs.
//!
//! - A path comes to the store as [`larder_smb_wire::path::SmbPath`]: relative to the share's root,
//!   without `.`, `..` and separators.
//! - The store judges permissions. This crate judges what an open was granted, before the store is called.
//! - An open ends in one way (`files/closing.rs`): CLOSE, TREE_DISCONNECT, LOGOFF, the end of a connection, a
//!   change by [`ConfigHandle`], a task that is cancelled.
//! - Share modes, byte ranges, leases and the mark "to be deleted" belong to a file, whatever share and
//!   connection it was opened by ([`files::FileTable`]). A file is deleted when its last open ends.
//! - Renames of a share run one at a time; a CREATE or a delete waits for one in progress. An open follows
//!   the rename of its path.
//! - Each [`error::SmbError`] is one NTSTATUS.

mod admission;
mod auth_policy;
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
mod open_list;
mod rpc;
mod server;
mod share;
mod state;
#[cfg(test)]
mod tests;
mod utils;
mod words;

pub(crate) use admission::{Admission, AdmissionObserver, Room, StrangerAccount, StrangerLedger};
pub(crate) use builder::BuildError;
pub(crate) use config::{ConfigError, ConfigHandle};
pub(crate) use larder_smb_wire::access_mask::Access;
pub(crate) use server::SmbServer;
pub(crate) use share::{Admitted, Doorkeeper, Share, Visitor};
