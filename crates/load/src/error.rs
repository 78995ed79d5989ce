//! Why a bench cannot be made, or ended early, and the way out.

use std::path::Path;

use super::client::ClientError;

#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// The request makes no sense, or its result would mislead.
    #[error("{what}")]
    Invalid { what: String, action: String },
    #[error("{program} is not installed")]
    Missing { program: String, package: String },
    #[error("it was stopped")]
    Stopped,
    #[error("{what}: {source}")]
    Io { what: String, source: std::io::Error },
    #[error("{program} failed: {reason}")]
    Tool { program: String, reason: String },
    #[error("{program} answers in a way that is not understood: {reason}")]
    Answer { program: String, reason: String },
    #[error("{what} is in use: {reasons}")]
    Busy { what: String, reasons: String },
    #[error(transparent)]
    Client(#[from] ClientError),
}

impl BenchError {
    pub fn invalid(what: impl Into<String>, action: impl Into<String>) -> Self {
        Self::Invalid { what: what.into(), action: action.into() }
    }

    pub fn io(what: impl Into<String>, source: std::io::Error) -> Self {
        Self::Io { what: what.into(), source }
    }

    pub fn at(verb: &str, path: &Path, source: std::io::Error) -> Self {
        Self::io(format!("cannot {verb} {}", path.display()), source)
    }

    pub fn tool(program: &str, reason: impl Into<String>) -> Self {
        Self::Tool { program: program.to_owned(), reason: reason.into() }
    }

    pub fn answer(program: &str, reason: impl Into<String>) -> Self {
        Self::Answer { program: program.to_owned(), reason: reason.into() }
    }

    /// The way out, where there is one.
    pub fn action(&self) -> Option<String> {
        match self {
            Self::Invalid { action, .. } if !action.is_empty() => Some(action.clone()),
            Self::Missing { package, .. } => Some(format!("apt install {package}")),
            Self::Busy { .. } => Some("unmount it, or measure the folder it is mounted on".to_owned()),
            _ => None,
        }
    }
}
