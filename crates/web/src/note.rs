//! One message to a person: the outcome of a change, shown on the next page.

use larder_api::Failure;

use crate::shell_words::on_page;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    pub is_fault: bool,
    pub text: String,
    /// What to do about it, line by line.
    pub action: Vec<String>,
}

impl Note {
    pub fn done(text: impl Into<String>) -> Self {
        Self { is_fault: false, text: text.into(), action: Vec::new() }
    }

    pub fn fault(text: impl Into<String>) -> Self {
        Self { is_fault: true, text: text.into(), action: Vec::new() }
    }

    /// Done, with what the person should know about it.
    pub fn with(mut self, lines: Vec<String>) -> Self {
        self.action = lines.iter().map(|line| on_page(line)).collect();
        self
    }
}

impl From<Failure> for Note {
    fn from(failure: Failure) -> Self {
        let action = failure.action.as_deref().unwrap_or_default().lines().map(str::to_owned).collect();
        Self { is_fault: true, text: failure.message, action }
    }
}
