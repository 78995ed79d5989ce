//! Two results side by side: what differs, by how much, and whether that is more than chance.
//!
//! C1. A difference is only called one if repeats show it. A median alone proves nothing; one repeat neither.
//! C2. Rows are only compared where the method was the same. What differs is named in words; such a row has figures
//!     but no verdict, or (another machine) a verdict about boxes and not about a change to one of them.
//! C3. The same two results always give the same answer: resampling uses a fixed seed.
//!
//! # Statistics
//!
//! Rates are compared as ratios, so everything happens on logarithms: `d = mean(ln B) - mean(ln A)` over repeats.
//!
//! 1. *Between repeats.* Welch's interval and test, which do not suppose equal variances, with the degrees of
//!    freedom of Welch and Satterthwaite (B. L. Welch, Biometrika 34, 1947). With two or three repeats the
//!    quantiles of Student's t are wide, and that is the honest part of it.
//! 2. *Within repeats.* Three repeats can agree by luck. The variance of one side is therefore never taken as smaller
//!    than what the moments of its own repeats say: the mean of each repeat is resampled by the circular block bootstrap
//!    (D. N. Politis and J. P. Romano, 1992), whose blocks keep the autocorrelation of neighbouring moments;
//!    their length is chosen by D. N. Politis and H. White (Econometric Reviews 23, 2004, corrected by A. Patton, Politis
//!    and White, 28, 2009). Moments before a knee do not count, as in the result itself.
//! 3. *Many rows.* Twenty comparisons at 5 % find one difference that is not there. The p of all rows that are compared are adjusted
//!    by Y. Benjamini and Y. Hochberg (1995): of the rows called faster or slower one in twenty may be chance.
//!
//! A difference below [`SAME_WITHIN`] is none that anybody would notice, however sure it is. "The same" is a claim too: it is
//! made of a ratio within that band whose interval is within it as well, or excludes 1.

mod differ;
mod html;
mod rows;
mod sampling;
mod text;

pub use html::html;
pub(crate) use sampling::sample;
pub use text::{markdown, text};

use serde::Serialize;

use super::result::{BenchResult, Layer};
use super::show::capital;
use crate::reason::stats::{CHANCE, SAME_WITHIN};

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
    /// What is different between the two results as wholes.
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
    /// Where the true ratio is in 95 of 100 cases, by repeats.
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
    fn is_change(self) -> bool {
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

/// What B is, compared to A.
pub fn compare(a: &BenchResult, b: &BenchResult) -> Comparison {
    let differences = differ::results(a, b);
    let matched = rows::matched(a, b);
    let mut rows: Vec<Row> = matched.pairs.iter().flat_map(|(a, b)| rows::rows(a, b, &differences)).collect();
    rows::judge(&mut rows);
    let disturbed = disturbed(&differ::disturbances(a), &differ::disturbances(b));
    if let Some(disturbed) = &disturbed {
        rows.iter_mut().filter(|row| row.verdict.is_change()).for_each(|row| row.why += &format!("; {disturbed}"));
    }
    Comparison {
        schema: SCHEMA.to_owned(),
        version: VERSION,
        a: side(a),
        b: side(b),
        summary: summary(&rows, &differences, disturbed.as_deref()),
        differences,
        rows,
        only_a: matched.only_a,
        only_b: matched.only_b,
    }
}

/// What was in the way of a whole bench may be all of a change.
fn disturbed(a: &str, b: &str) -> Option<String> {
    let which = match (a, b) {
        ("no", "no") => return None,
        (a, "no") => format!("A was disturbed ({a})"),
        ("no", b) => format!("B was disturbed ({b})"),
        (a, b) if a == b => format!("both were disturbed ({a})"),
        (a, b) => format!("A was disturbed ({a}) and B ({b})"),
    };
    Some(format!("{which}, which may be all of it"))
}

fn side(result: &BenchResult) -> Side {
    Side {
        id: result.id.clone(),
        title: result.title.clone(),
        host: result.machine.host.clone(),
        larder: result.larder.clone(),
        started_ms: result.started_ms,
    }
}

fn summary(rows: &[Row], differences: &[Difference], disturbed: Option<&str>) -> String {
    let count = |verdict: Verdict| rows.iter().filter(|r| r.verdict == verdict).count();
    if rows.is_empty() {
        return "The two have no run in common.".to_owned();
    }
    let verdicts = [Verdict::Faster, Verdict::Slower, Verdict::Same, Verdict::CannotTell, Verdict::NotComparable];
    let told = verdicts.into_iter().filter(|v| count(*v) > 0).map(|v| format!("{} {}", count(v), v.word()));
    let told: Vec<String> = told.collect();
    let mut text = format!("Of {} runs in both, B is: {}.", rows.len(), told.join(", "));
    let other: Vec<&str> =
        differences.iter().filter(|d| d.effect == Effect::OtherBox).map(|d| d.what.as_str()).collect();
    if !other.is_empty() {
        let list = other.join(", ");
        text.push_str(&format!(" Not the same box ({list}): this compares boxes, not a change to one of them."));
    }
    if let Some(disturbed) = disturbed.filter(|_| rows.iter().any(|row| row.verdict.is_change())) {
        text.push_str(&format!(" {}: stop what disturbs, and measure both again.", capital(disturbed)));
    }
    text
}

#[cfg(test)]
mod tests;
