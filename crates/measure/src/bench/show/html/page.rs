//! The frame of a page: head with its policy, body, data, script.

use super::parts::json as escaped_json;
use crate::bench::show::plot::colours;
use crate::bench::show::plot::svg::escape;

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");
/// SHA-256 of [`style`] and of the script, in base64, as the policy names them; a test computes them again.
pub(super) const STYLE_HASH: &str = "60YDPoOEe9VZyIHvFcZvhRDrYfTlmCYIRzoL1iVQNuQ=";
pub(super) const SCRIPT_HASH: &str = "DpAy5qnyZUGwrZpgLtcVGHakkbMkIouhjelfOzKCouk=";

pub(crate) struct Page {
    title: String,
    body: String,
    embedded: String,
}

/// Of the page and of its plots: one sheet, so that one hash allows it.
pub(super) fn style() -> String {
    format!("{}{STYLE}", colours::CSS)
}

#[cfg(test)]
pub(super) fn script() -> &'static str {
    SCRIPT
}

impl Page {
    pub(crate) fn new(title: &str) -> Self {
        Self { title: title.to_owned(), body: String::new(), embedded: String::new() }
    }

    /// Already markup.
    pub(crate) fn push(&mut self, markup: &str) {
        self.body.push_str(markup);
    }

    /// The JSON that was shown, to be taken out again.
    pub(crate) fn embed(&mut self, json: &str) {
        self.embedded = escaped_json(json);
    }

    pub(crate) fn finish(self) -> String {
        let policy = format!(
            "default-src 'none'; style-src 'sha256-{STYLE_HASH}'; script-src 'sha256-{SCRIPT_HASH}'; img-src data:; \
             base-uri 'none'; form-action 'none'"
        );
        format!(
            "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
             <meta http-equiv=\"Content-Security-Policy\" content=\"{policy}\">\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
             <meta name=\"color-scheme\" content=\"light dark\"><meta name=\"generator\" content=\"larder\">\
             <title>{}</title><link rel=\"icon\" href=\"data:,\"><style id=\"style\">{}</style></head>\n<body>\
             <a class=\"skip\" href=\"#main\">To the results</a>\n{}\n\
             <script type=\"application/json\" id=\"result\">{}</script>\n<script>{SCRIPT}</script></body></html>\n",
            escape(&self.title),
            style(),
            self.body,
            self.embedded
        )
    }
}
