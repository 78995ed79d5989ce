//! A plot with its words and its table.

use crate::bench::result::Run;
use crate::bench::show::plot::Plot;
use crate::bench::show::words;

/// Rows beyond these are in the tables only.
pub(super) const ROWS_MAX: usize = 48;

/// Figures behind a plot, as text.
#[derive(Clone, Debug, Default)]
pub(crate) struct Grid {
    pub(crate) head: Vec<String>,
    pub(crate) rows: Vec<Vec<String>>,
}

impl Grid {
    pub(super) fn new(head: &[&str]) -> Self {
        Self { head: head.iter().map(|h| (*h).to_owned()).collect(), rows: Vec::new() }
    }
}

/// The part of a report that it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Chapter {
    Overview,
    BlockSize,
    Compared,
    OverTime,
    Repeats,
    Latency,
    /// The machine during the n-th of the main runs.
    Run(usize),
}

#[derive(Clone, Debug)]
pub(crate) struct Figure {
    pub(crate) chapter: Chapter,
    /// Unique in the report, safe as an id and as a file name.
    pub(crate) id: String,
    pub(crate) title: String,
    pub(crate) desc: String,
    pub(crate) plot: Plot,
    pub(crate) grid: Grid,
}

pub(super) fn name(run: &Run) -> String {
    format!("{}: {}", words::subject(run), words::workload(&run.workload))
}
