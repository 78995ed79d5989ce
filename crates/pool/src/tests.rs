//! The pool as a whole.
#![allow(clippy::unwrap_used)]

mod changing;
mod conformance;
mod crash;
mod degraded;
mod hanging;
mod long_reads;
mod membership;
mod misplaced;
mod overwriting;
mod returning;
mod rolled_back;
mod speed;
