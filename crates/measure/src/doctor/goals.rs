//! Goals of a description: `[[goal]] network = "10 GbE", clients = 2`. Each is held against the chain of the box, which
//! says everything that stands in the way, not only the first (`goal.all_in_the_way`).

use serde::Serialize;

use super::sentences::what_words;
use super::words::rate_words;
use crate::describe::{Described, Goal, Path, What};
use crate::reason::{Rig, Stage, expected};

/// A limit that reaches so much of a goal reaches it: figures are not better known.
const REACHED: f64 = 0.95;
/// As many as fit a line or two.
const LIMITS_MAX: usize = 3;

/// A goal in one direction, and what keeps the box from it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ToldGoal {
    pub of: What,
    /// Of all clients together.
    pub rate_wanted: f64,
    /// The lowest limit on the way, or the best that was measured there.
    pub rate: f64,
    pub is_measured: bool,
    pub reached: bool,
    /// Every limit below the goal, the lowest first.
    pub limits: Vec<String>,
    pub sentence: String,
}

pub(super) fn goals(described: &Described) -> Vec<ToldGoal> {
    let ways = |goal: &Goal| match goal.what {
        Some(what) => vec![what],
        None => vec![What::Read, What::Write],
    };
    described
        .goals
        .iter()
        .flat_map(|goal| ways(goal).into_iter().filter_map(move |what| told(described, goal, what)))
        .collect()
}

fn told(described: &Described, goal: &Goal, what: What) -> Option<ToldGoal> {
    let path = if described.network.is_some() { Path::Share } else { Path::Local };
    let wanted = goal.rate * f64::from(goal.clients);
    let stages = expected(described, path, what, None);
    let lowest = stages.first()?;
    let rows = described.measured.iter().filter(|m| (m.path, m.what) == (path, what) && m.how.doubt.is_none());
    let measured = rows.map(|m| m.rate).reduce(f64::max);
    let is_measured = measured.is_some_and(|rate| rate >= wanted * REACHED || rate >= lowest.limit);
    let rate = measured.filter(|_| is_measured).unwrap_or(lowest.limit);
    let reached = rate >= wanted * REACHED;
    let name =
        |stage: &Stage| format!("{} ({})", Rig::new(described).name(stage.resource), rate_words(stage.limit, what));
    let mut limits: Vec<String> =
        stages.iter().filter(|stage| !reached && stage.limit < wanted * REACHED).map(name).collect();
    limits.dedup();
    let sentence = {
        let goal = format!("{} for {} needs {}", what_words(what), goal.words(), rate_words(wanted, what));
        let more = limits.len().saturating_sub(LIMITS_MAX);
        let shown: Vec<&str> = limits.iter().take(LIMITS_MAX).map(String::as_str).collect();
        let shown = if more > 0 { format!("{} and {more} more", shown.join(", ")) } else { shown.join(", ") };
        match (reached, is_measured) {
            (true, true) => format!("{goal}: reached, {} were measured", rate_words(rate, what)),
            (true, false) => format!("{goal}: reached on paper, up to {}", rate_words(rate, what)),
            (false, _) if limits.is_empty() => {
                format!("{goal}: {} were measured, and nothing in the parts says why", rate_words(rate, what))
            }
            (false, _) => format!("{goal}: not with {shown}"),
        }
    };
    Some(ToldGoal { of: what, rate_wanted: wanted, rate, is_measured, reached, limits, sentence })
}
