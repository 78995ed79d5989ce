//! Protocols: each a codec, a session and operations on a volume.
#![warn(missing_docs)]

pub mod ask;
mod certificate;
mod counted;
pub mod door;
pub mod fuse;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
pub mod handshake;
pub mod login;
pub mod nfs;
mod parties;
mod password;
mod residents;
pub mod sftp;
pub mod share;
pub mod smb;
mod stats;
mod steps;
pub mod strangers;
mod tree;
mod turns;
mod unread;
pub mod web;
