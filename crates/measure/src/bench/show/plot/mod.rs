//! Plots as SVG: geometry only. `figures` chooses the data, `plot.css` the looks.
//!
//! - `plot.complete_alone`: a plot is complete without scripts and without its page: axes, ticks, legend, title and
//!   description are in it.
//! - `plot.size_by_kind`: the size of a plot depends on its kind, never on its data: series come thinned, rows are counted
//!   before.
//! - `plot.inside_view_box`: every coordinate is finite and inside the view box.
//! - `plot.no_inline_styles`: text from elsewhere passes [`svg::escape`]; colours and dashes are classes, so that a page
//!   may forbid inline styles.

pub(crate) mod colours;
pub(crate) mod panels;
mod parts;
pub(crate) mod rows;
pub(crate) mod svg;

pub(crate) use panels::{Panel, Panels, Series};
pub(crate) use parts::{Axis, Head, Size};
pub(crate) use rows::{Dot, Row, Rows};

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

#[cfg(test)]
mod tests;
