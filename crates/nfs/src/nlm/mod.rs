//! Locks for clients of NFS v3: the network lock manager (NLM version 4) and the network status monitor (NSM), both on the
//! port of NFS (X/Open, Protocols for Interworking: XNFS, chapters 10, 11 and 14).
//!
//! `wire` is the codec; `lock_book` is what clients hold and wait for; `server` carries out calls on files; `call_out` calls
//! clients; `restarts` is the status monitor: restarts of clients, and of this server.
//!
//! Locks are in the table of all doors, and clients in the records of NFSv4 (`v4::lockers`), so grace after a restart is
//! one for both.
//!
//! - `nlm.address_decides`: a client is its address and its name for itself. Nobody frees, cancels or sees as his own what
//!   was locked from another address, whatever name he gives. So TCP alone takes locks: its addresses are not made up.
//! - `nlm.open_beside_lock`: while a file has locks it is open for this door, for writing with an exclusive one. So nobody
//!   is granted a delegation that would let him lock alone, and its inode's number stays.
//! - `nlm.no_lease`: a client that is gone keeps its locks until it says that it has restarted, or until this server
//!   restarts: the protocol has no lease, and its programs may go on.
#![deny(clippy::indexing_slicing, clippy::cast_possible_truncation, clippy::panic)]

mod call_out;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod life;
mod lock_book;
mod restarts;
mod server;
#[cfg(test)]
mod tests;
mod wire;

pub use server::{LockAccess, Nlm, NlmCall, run};
pub use wire::{LockStat, NLM_PROGRAM, NLM_V4, NSM_PROGRAM, NSM_V1, Request};
