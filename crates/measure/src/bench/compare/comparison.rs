//! A comparison: its sides, its rows, its differences.

use serde::Serialize;

use crate::bench::result::Layer;

pub const SCHEMA: &str = "larder-bench-comparison";

pub const VERSION: u32 = 1;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// [`SCHEMA`].
    pub schema: String,
    /// [`VERSION`].
    pub version: u32,
    /// The earlier one, or what is compared to.
    pub a: Side,
    pub b: Side,
    /// Differences between the two results as wholes.
    pub differences: Vec<Difference>,
    pub rows: Vec<Row>,
    /// Runs without a counterpart, in words.
    pub only_a: Vec<String>,
    pub only_b: Vec<String>,
    /// One sentence.
    pub summary: String,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Side {
    pub id: String,
    pub title: String,
    pub host: String,
    pub larder: String,
    pub started_ms: u64,
}

/// Something that was not the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// `machine`, `kernel`, `caches`, `block size`, `misleading`, ...
    pub what: String,
    pub a: String,
    pub b: String,
    pub effect: Effect,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Effect {
    /// Worth knowing.
    Mentioned,
    /// It may itself be the cause: rows compare two boxes, not a change to one.
    OtherBox,
    /// Something else was measured: no verdict.
    OtherMethod,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    pub layer: Layer,
    pub subject_a: String,
    pub subject_b: String,
    pub access: String,
    pub variant: String,
    /// In words.
    pub workload: String,
    /// `bytes/s` or `operations/s`.
    pub unit: &'static str,
    pub a: Figures,
    pub b: Figures,
    /// Of the medians, B to A; above 1 B is faster.
    pub ratio: Option<f64>,
    /// The interval that holds the true ratio in 95 of 100 cases, by repeats.
    pub interval: Option<[f64; 2]>,
    /// By the moments within the repeats alone: how sure a single repeat can be of itself.
    pub interval_within: Option<[f64; 2]>,
    /// That repeats differ so much by chance: Welch.
    pub p: Option<f64>,
    /// After Benjamini and Hochberg, over all rows that are compared.
    pub p_adjusted: Option<f64>,
    pub verdict: Verdict,
    /// A sentence to the verdict.
    pub why: String,
    /// Nothing but what is compared was different.
    pub comparable: bool,
    pub differences: Vec<Difference>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Figures {
    pub median: Option<f64>,
    pub spread: Option<f64>,
    pub repeats: usize,
    /// Of each repeat.
    pub values: Vec<f64>,
    pub p99_us: Option<f64>,
}

/// Of B, seen from A.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    Faster,
    Slower,
    Same,
    CannotTell,
    NotComparable,
}

impl Verdict {
    pub(super) fn is_change(self) -> bool {
        matches!(self, Self::Faster | Self::Slower)
    }

    pub fn word(self) -> &'static str {
        match self {
            Self::Faster => "faster",
            Self::Slower => "slower",
            Self::Same => "the same",
            Self::CannotTell => "cannot tell",
            Self::NotComparable => "not comparable",
        }
    }
}
