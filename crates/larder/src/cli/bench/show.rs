//! Results for people: in the terminal, and as pages that stand alone.

use std::path::Path;

use larder_api::Failure;
use larder_measure::bench::result::BenchResult;
use larder_measure::bench::show::{Style, html, markdown, text};
use larder_measure::bench::{compare, history};

use crate::cli::args::Global;
use crate::out;

/// How a result is shown, where that is not the terminal's text.
#[derive(Clone, Copy)]
pub(super) struct Form<'a> {
    pub(super) page: Option<&'a Path>,
    pub(super) markdown: bool,
    pub(super) cores: bool,
}

pub(super) fn result_text(result: &BenchResult, as_markdown: bool, cores: bool) -> String {
    if as_markdown { markdown(result) } else { text(result, &Style { cores, ..out::style() }) }
}

pub(super) fn one(global: &Global, folder: &Path, id: &str, title: Option<String>, form: Form) -> Result<(), Failure> {
    let mut result = history::load(folder, id).map_err(|e| larder_daemon::bench_words::failure(&e))?;
    result.title = title.unwrap_or(result.title);
    if let Some(page) = form.page {
        return written(global, page, &html(&result));
    }
    global.out().answer(&result, |result| result_text(result, form.markdown, form.cores))
}

pub(super) fn two(global: &Global, folder: &Path, ids: [&str; 2], form: Form) -> Result<(), Failure> {
    let [a, b] = ids.map(|id| history::load(folder, id).map_err(|e| larder_daemon::bench_words::failure(&e)));
    let found = compare::compare(&a?, &b?);
    if let Some(page) = form.page {
        return written(global, page, &compare::html(&found));
    }
    global.out().answer(&found, |found| match form.markdown {
        true => compare::markdown(found),
        false => compare::text(found, &out::style()),
    })
}

fn written(global: &Global, page: &Path, content: &str) -> Result<(), Failure> {
    std::fs::write(page, content).map_err(|e| Failure::io(format_args!("cannot write {}", page.display()), &e))?;
    global.out().answer(&page, |page| format!("written: {}", page.display()))
}
