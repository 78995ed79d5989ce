//! What limits a box, in one sentence, and what would help most.
//!
//! The reasoning is in `reason/`: it works on a description and on ids. Here are its two sources, and its answer.
//!
//! `describe/`      A box as a person describes it. `chain.rs` and `from_bench.rs` make the same of a machine and a bench.
//! `findings/`      What stands out in what a machine says of itself; `fix.rs` changes it.
//! `questions.rs`   What a description says that cannot be true: then nothing is concluded.
//! `assume.rs`      What a box would give with other parts.
//! `answer.rs`      The verdict, the findings and the fixes; `sentences.rs` puts them into words, which nothing reads back.

mod answer;
mod assume;
pub(crate) mod chain;
pub(crate) mod describe;
mod examine;
mod findings;
mod fix;
pub(crate) mod from_bench;
pub(crate) mod limits;
mod questions;
mod sentences;
pub mod text;
mod words;

#[cfg(test)]
mod tests;

pub use crate::reason::{
    Basis, Confidence, Cost, End, Evidence, Misfit, Mode, Property, Remedy, ResourceId, ResourceKind, Stage, Use,
};
pub use answer::{Advice, Diagnosis, Finding, NamedStage, ToldContrast, diagnose};
pub use assume::{Assumed, AssumedWay, Plan, PlannedWay, assume, plan};
pub use describe::{BadDescription, Caching, Described, Ends, How, Measured, Path, Shape, What};
pub(crate) use examine::judge_result;
pub use examine::{Examination, Sources, described, examine};
pub use findings::{Change, Gain, Notice, notices};
pub use fix::{Done, FixError, Fixer, Undone};
pub use questions::Question;
pub use words::{bytes_words, rate_words};
