//! The bytes of SMB 2 and 3 (MS-SMB2) and of what they carry, for the server and for the bench's
//! client: no I/O, no clock, no connection, no store.
//!
//! * [`framing`] - Direct-TCP/NetBIOS transport framing.
//! * [`header`]  - SMB2 64-byte fixed header.
//! * [`messages`] - Per-command request/response structs.
//! * [`auth`]    - NTLMv2, both sides, and minimal SPNEGO.
//! * [`crypto`]  - Signing, encryption, key derivation, pre-auth integrity.
//! * [`answers`] - A server's answers, as a client takes them.
//! * [`path`], [`moment`], [`wildcard`], [`text`] - Names, snapshots' labels and patterns.
//! * [`access_mask`], [`security`] - Rights, and security descriptors.
//! * [`file_info`], [`info_class`] - What is told of files and volumes.
//! * [`rpc`]     - Calls over pipes: packets, associations, the list of shares.
//! * [`ntstatus`] - Statuses.
//! * [`error`]   - Protocol-layer error type.

pub mod access_mask;
pub mod answers;
pub mod auth;
pub mod crypto;
pub mod error;
pub mod file_info;
pub mod framing;
pub mod header;
pub mod info_class;
pub mod messages;
pub mod moment;
pub mod ntstatus;
pub mod path;
pub mod rpc;
pub mod security;
pub mod text;
pub mod wildcard;
