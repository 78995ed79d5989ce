//! The server over a real socket, with a client that speaks raw bytes, on a volume in memory.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::cast_possible_truncation, clippy::panic)]

pub mod client;
mod data;
mod limits;
mod procedures;
mod rpc_edges;

/// A call that holds one of these fails as a program does that has a fault: at once, or after it has waited.
const PANICS: &[u8] = b"planted fault";
const PANICS_LATER: &[u8] = b"planted fault, later";

pub(super) async fn fail_as_planted(call: &[u8]) {
    let has = |planted: &[u8]| call.windows(planted.len()).any(|part| part == planted);
    if has(PANICS_LATER) {
        tokio::task::yield_now().await;
    }
    assert!(!has(PANICS), "the fault of the test");
}
