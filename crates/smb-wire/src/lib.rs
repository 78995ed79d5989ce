//! The bytes of SMB 2 and 3 (MS-SMB2), for the server and for the bench's client: no I/O, no state
//! of a connection.
//!
//! * [`framing`] - Direct-TCP/NetBIOS transport framing.
//! * [`header`]  - SMB2 64-byte fixed header.
//! * [`messages`] - Per-command request/response structs.
//! * [`auth`]    - NTLMv2, both sides, and minimal SPNEGO.
//! * [`crypto`]  - Signing, encryption, key derivation, pre-auth integrity.
//! * [`answers`] - A server's answers, as a client takes them.
//! * [`error`]   - Protocol-layer error type.

pub mod answers;
pub mod auth;
pub mod crypto;
pub mod error;
pub mod framing;
pub mod header;
pub mod messages;
