//! Reasons for a meter that gives no figure.

use serde::Serialize;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize)]
#[error("{source_name}: {why}")]
pub struct SourceError {
    #[serde(rename = "source")]
    pub source_name: String,
    pub why: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
    /// It waits for a password that nobody has given.
    #[serde(skip)]
    pub locked: bool,
}

impl SourceError {
    pub(super) fn new(source: impl Into<String>, why: impl Into<String>) -> Self {
        Self { source_name: source.into(), why: why.into(), action: None, locked: false }
    }

    #[must_use]
    pub(super) fn action(mut self, action: impl Into<String>) -> Self {
        self.action = Some(action.into());
        self
    }
}

#[derive(Debug)]
pub(super) enum HttpError {
    Unreachable(String),
    /// It wants to be logged in to, and nobody gave a password.
    Locked,
    WrongPassword,
    Status(u16),
    NotUnderstood(&'static str),
}

impl std::fmt::Display for HttpError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unreachable(why) => write!(f, "cannot be reached: {why}"),
            Self::Locked => write!(f, "asks for a password, and larder has none for it"),
            Self::WrongPassword => write!(f, "does not take this user and password"),
            Self::Status(code) => write!(f, "answers with HTTP status {code}"),
            Self::NotUnderstood(why) => write!(f, "answers in a way that is not understood: {why}"),
        }
    }
}
