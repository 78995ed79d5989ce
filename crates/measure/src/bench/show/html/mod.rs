//! A result as one HTML file that needs nothing else: no network, no other file, no script to be readable.
//!
//! - `page.text_escaped`: everything that comes from a result is text: it passes [`escape`], and the JSON inside the page
//!   cannot end its element ([`json`]).
//! - `page.own_script_only`: the page forbids itself everything but its own style sheet and script, by their hashes (CSP
//!   level 2). It has neither an inline style nor a handler in an attribute.
//! - `page.whole_without_scripts`: without scripts every plot and every figure is there. The script adds values under the
//!   pointer or the arrow keys, hidden series and saved files; it draws no data.

mod page;
mod parts;
mod sections;

use super::figures;
use super::plot::{Head, Size};
use crate::bench::result::BenchResult;
pub(crate) use page::Page;
pub(crate) use parts::{figure, grid, wrapped};

pub fn html(result: &BenchResult) -> String {
    let title = format!("larder bench {}", super::words::clean(&result.title));
    let mut page = Page::new(&title);
    sections::all(result, &mut page);
    page.embed(&serde_json::to_string(result).unwrap_or_default());
    page.finish()
}

/// One plot alone, in light colours, as a file of its own. The names: [`svg_names`].
pub fn svg(result: &BenchResult, which: &str) -> Option<String> {
    let figure = figures::all(result).into_iter().find(|f| f.id == which)?;
    let head = Head { id: &figure.id, title: &figure.title, desc: &figure.desc, alone: true };
    Some(figure.plot.svg(&head, Size::Wide))
}

pub fn svg_names(result: &BenchResult) -> Vec<String> {
    figures::all(result).into_iter().map(|f| f.id).collect()
}

#[cfg(test)]
mod tests;
