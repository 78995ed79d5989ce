//! The bottleneck of a box, in one sentence, and the best remedies.
//!
//! The reasoning is in `reason/`: it works on a description and on ids. Here are its two sources, and its answer.
//!
//! `chain.rs`, `from_bench.rs`   A description (`describe/`), made of a machine and of a bench.
//! `findings/`      Notices about a machine from its own facts; `fix.rs` changes it.
//! `questions.rs`   What a description says that cannot be true: then nothing is concluded.
//! `assume.rs`      What a box would give with other parts; `goals.rs` whether it gives what somebody wants.
//! `examples.rs`    Reports of others, as examples.
//! `answer.rs`      The verdict, the findings and the fixes; `sentences.rs` puts them into words, which nothing reads back.

mod answer;
mod assume;
pub(crate) mod chain;
mod examine;
mod examples;
mod findings;
mod fix;
pub(crate) mod from_bench;
mod goals;
mod kinds;
mod questions;
mod sentences;
pub mod text;
mod words;

#[cfg(test)]
mod tests;

pub use crate::describe::limits::DiskKind;
pub use crate::describe::{BadDescription, Caching, Described, Ends, How, Measured, Path, Shape, What};
pub use crate::reason::{
    Basis, Confidence, Cost, End, Evidence, Misfit, Mode, Property, Remedy, ResourceId, ResourceKind, Stage, Use,
};
pub use answer::{Advice, Diagnosis, Finding, NamedStage, ToldContrast, diagnose};
pub use assume::{Assumed, AssumedWay, Plan, PlannedWay, assume, plan};
pub(crate) use examine::judge_result;
pub use examine::{Examination, Sources, described, examine};
pub use examples::{Example, Examples, examples};
pub use findings::{Change, Gain, Notice, notices};
pub use fix::{Done, FixError, Fixer, Undone};
pub use goals::ToldGoal;
pub use kinds::{KindRates, kind_name, kind_of, kind_rates};
pub use questions::Question;
pub use words::{bytes_words, rate_words};
