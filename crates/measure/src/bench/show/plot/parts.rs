//! Parts of every plot: a size, a head, axes.

use crate::bench::show::scale::Scale;
use crate::bench::show::units::Unit;

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

/// The words of a plot, and its independence of a page.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head<'a> {
    pub(crate) id: &'a str,
    pub(crate) title: &'a str,
    pub(crate) desc: &'a str,
    /// With its own colours, to stand alone.
    pub(crate) alone: bool,
}
