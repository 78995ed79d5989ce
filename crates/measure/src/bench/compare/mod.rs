//! Two results side by side: what differs, by how much, and whether that is more than chance.
//!
//! - `compare.repeats_show_it`: a difference is called one only if repeats show it. A median alone proves nothing, and
//!   neither does one repeat.
//! - `compare.same_method`: rows are compared only where the method was the same. Otherwise the row names the differing
//!   properties and has figures but no verdict, or (on another machine) a verdict about boxes and not about a change.
//! - `compare.fixed_seed`: the same two results always give the same answer: resampling uses a fixed seed.
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
//! A difference below [`SAME_WITHIN`](crate::stats::SAME_WITHIN) is none that anybody would notice, however sure it is. "The same" is a claim too: it is
//! made of a ratio within that band whose interval is within it as well, or excludes 1.

mod comparison;
mod differ;
mod html;
mod rows;
mod sampling;
mod text;

pub use comparison::{Comparison, Difference, Effect, Figures, Row, SCHEMA, Side, VERSION, Verdict};
pub use html::html;
pub(crate) use sampling::sample;
pub use text::{markdown, text};

use super::result::BenchResult;
use super::show::capital;

/// B, compared to A.
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

/// The disturbances of a whole bench, which may explain all of a change.
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
