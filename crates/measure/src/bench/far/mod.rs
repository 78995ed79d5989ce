//! The other end of a measurement: what its machine does while a bench elsewhere runs.
//!
//! `larder bench net --listen` offers it, and the bench asks for it: lines of JSON over TCP, an answer to each.
//!
//! ```text
//! near  {"magic": "larder-far-end", "version": 1, "at_ms": 5210}
//! far   {"magic": "larder-far-end", "version": 1, "larder": "0.1.0", "machine": {"host": "nas", ...}}
//! near  {"ask": "look"}       far  {"done": true}         before a repeat
//! near  {"ask": "rest"}       far  {"done": true}         after it
//! near  {"ask": "samples"}    far  {"samples": {...}}     once all repeats are over; then both close
//!                             far  {"error": "..."}       instead of any answer; then it closes
//! ```
//!
//! - `far.near_clock`: times count from the near end's beginning, and the near end sends its time. Half a round trip is far
//!   below the half second between two looks.
//! - `far.no_trust`: neither end trusts the other. Lines, requests, looks, values, names and connections are bounded, every
//!   wait ends, and no control character gets through.
//! - `far.changes_nothing`: the far end tells only facts that any user of its machine could read, changes nothing, and
//!   speaks only when spoken to.
//! - `far.absence_is_a_note`: a far end that is absent or goes away is a note, and the measurement goes on.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::result::{MachineFacts, Samples};

mod lines;
mod listen;
mod sound;
mod visit;

/// What a far end answers, fed with anything.
#[cfg(any(test, fuzzing))]
pub fn fuzz_samples(data: &[u8]) {
    sound::fuzz_samples(data);
}

pub(super) use listen::Listener;
pub use visit::FarEnd;
pub(super) use visit::{FarError, Visit, is_same_host};

pub(super) const MAGIC: &str = "larder-far-end";
pub(super) const VERSION: u32 = 1;
/// Whoever watches sends a few dozen bytes at a time.
const REQUEST_BYTES_MAX: usize = 1024;
/// Samples of an hour, of many cores.
const ANSWER_BYTES_MAX: usize = 8 << 20;
/// Of all series of a run together; each takes 25 bytes of JSON at most.
const VALUES_MAX: usize = 250_000;
const _: () = assert!(VALUES_MAX * 25 < ANSWER_BYTES_MAX);
/// A machine's name, a disk's, a sensor's.
const NAME_CHARS_MAX: usize = 128;
/// Both ends count milliseconds of a bench, not of a life.
const AT_MS_MAX: u64 = 30 * 24 * 3600 * 1000;
/// How often a wait looks whether it is still wanted.
const POLL: Duration = Duration::from_millis(100);

#[derive(Debug, Serialize, Deserialize)]
struct Hello {
    magic: String,
    version: u32,
    at_ms: u64,
}

#[derive(Debug, Serialize, Deserialize)]
struct Request {
    ask: Ask,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Ask {
    Look,
    Rest,
    Samples,
}

/// Untagged fields: whichever is there is the answer.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Answer {
    #[serde(default, skip_serializing_if = "String::is_empty")]
    magic: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    version: Option<u32>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    larder: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    machine: Option<MachineFacts>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    done: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    samples: Option<Samples>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

#[cfg(test)]
mod tests;
