//! The server over a real socket, with a client that speaks raw bytes, on a volume in memory.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::cast_possible_truncation, clippy::panic)]

mod client;
mod data;
mod limits;
mod procedures;
mod rpc_edges;
