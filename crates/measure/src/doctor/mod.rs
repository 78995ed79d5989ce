//! What caps a box, in one sentence, and what would help most.
//!
//! A byte passes stages on its way: the disks, the links that they share, the processor, the network. Each has a
//! capacity for what is asked of it, and the lowest caps the whole. So a described box says what it could do, and
//! a measurement beside that says which stage is the limit:
//!
//! B1. A measurement that reaches [`PROOF_SHARE`] of the lowest capacity proves that stage.
//! B2. While a core is at its end that takes [`FULL_SHARE`], and what stays below proves the processor: one core, where
//!     only one is busy, not all of them.
//! B3. One that does neither is not explained, and is called so: the description lacks a stage, or the other end is
//!     slow.
//! B4. What would help is what the next stage allows, never more, and no more than the busiest core has to spare, unless
//!     it is the core that gets relief. A half-duplex stage that a byte passes twice counts twice: a network card behind
//!     the same link as the disks halves it.
//! B5. A measurement that could not have measured what it says (a file that fits into memory) is named, and proves
//!     nothing.
//! B6. What contradicts itself or physics gets a question back. While there is one, nothing is concluded.
//! B7. Figures that look like something known, without proving it, are called likely.

mod advice;
pub(crate) mod chain;
pub(crate) mod describe;
mod diagnose;
mod examine;
mod findings;
mod fix;
pub(crate) mod from_bench;
pub(crate) mod limits;
mod misleading;
mod questions;
mod reading;
mod remarks;
mod stages;
mod suspects;
mod words;

#[cfg(test)]
mod tests;

pub use advice::{Advice, Means};
pub use describe::{BadDescription, Caching, Described, Ends, How, Measured, Path, Shape, What};
pub use diagnose::{Cause, Confidence, Diagnosis, Finding, diagnose};
pub use examine::{Evidence, Examination, examine};
pub use findings::{Change, Gain, Notice, notices};
pub use fix::{Done, FixError, Fixer, Undone};
pub use questions::Question;
pub use reading::{Busy, Drive, Hog, Hop, HopKind, Host, Nic, Processor, Quota, ReadOptions, Reading, Store, Tcp};
pub use stages::{Basis, FULL_SHARE, PROOF_SHARE, Stage, StageKind};
pub use suspects::Suspicion;
pub use words::{bytes_words, rate_words};
