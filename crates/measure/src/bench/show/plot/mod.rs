//! Plots as SVG: geometry only. What is plotted is decided in `figures`, what it looks like in `plot.css`.
//!
//! V1. A plot is complete without scripts and without its page: axes, ticks, legend, title and description are in it.
//! V2. It is as large as its kind, never as its data: series come thinned, rows are counted before.
//! V3. Every coordinate is finite and inside the view box.
//! V4. Text from elsewhere passes [`svg::escape`]; colours and dashes are classes, so that a page may forbid inline
//!     styles.

pub(crate) mod colours;
pub(crate) mod panels;
pub(crate) mod rows;
pub(crate) mod svg;

pub(crate) use panels::{Panel, Panels, Series};
pub(crate) use rows::{Dot, Row, Rows};

use super::scale::Scale;
use super::units::Unit;

/// Two drawings of each plot, as text does not shrink with a picture: one for desks and paper, one for phones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Size {
    Wide,
    Narrow,
}

impl Size {
    pub(crate) fn width(self) -> f64 {
        match self {
            Self::Wide => 720.0,
            Self::Narrow => 360.0,
        }
    }

    /// Points of one series; more than pixels show nothing more.
    pub(crate) fn points_max(self) -> usize {
        match self {
            Self::Wide => 300,
            Self::Narrow => 150,
        }
    }

    pub(crate) fn suffix(self) -> &'static str {
        match self {
            Self::Wide => "w",
            Self::Narrow => "n",
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Axis {
    pub(crate) scale: Scale,
    pub(crate) unit: Unit,
    /// Beside the axis; with its unit.
    pub(crate) name: String,
}

#[derive(Clone, Debug)]
pub(crate) enum Plot {
    Panels(Panels),
    Rows(Rows),
}

impl Plot {
    pub(crate) fn svg(&self, head: &Head<'_>, size: Size) -> String {
        match self {
            Self::Panels(p) => p.svg(head, size),
            Self::Rows(r) => r.svg(head, size),
        }
    }
}

/// What every plot has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head<'a> {
    pub(crate) id: &'a str,
    pub(crate) title: &'a str,
    pub(crate) desc: &'a str,
    /// With its own colours, to stand alone.
    pub(crate) alone: bool,
}

#[cfg(test)]
mod tests;
