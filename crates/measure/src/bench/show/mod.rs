//! Results to look at: in a terminal, in a browser, in a forum.
//!
//! [`view`] decides what a result says (which run speaks for a layer, what is a sweep, what compares); [`text`] and
//! [`html`] only draw it. Titles, paths and notes are other people's text: [`words::clean`] makes it harmless in a
//! terminal, `html::escape` in a page.

mod facts;
pub(crate) mod figures;
pub(crate) mod html;
pub(crate) mod markdown;
pub(crate) mod plot;
pub(crate) mod scale;
mod style;
pub(crate) mod text;
pub(crate) mod units;
mod view;
pub(crate) mod words;

#[cfg(test)]
pub(crate) mod sample;

pub(crate) use units::{ratio, size};
pub(crate) use view::{capital, runs};

pub use html::{html, svg, svg_names};
pub use markdown::markdown;
pub use style::Style;
pub use text::text;

/// With its unit, by the unit's name in a comparison.
pub(crate) fn figure_of(unit: &str, value: Option<f64>) -> String {
    let show = if unit == "operations/s" { units::iops } else { units::rate };
    value.map_or_else(|| units::UNKNOWN.to_owned(), show)
}

pub(crate) fn median_p99_us(run: &super::result::Run) -> Option<f64> {
    facts::latency(run, |l| l.p99_us)
}
