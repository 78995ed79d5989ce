//! What can go wrong with what is kept: what happened to which thing and why, and the way out.

use std::fmt;

/// A failed question or change. Each variant is a sort of failure; its words are for a person.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeepError {
    /// The request makes no sense: a bad name, too few disks, a wrong setting.
    #[error("{0}")]
    Invalid(Words),
    /// The pool, volume, snapshot or key named is not there.
    #[error("{0}")]
    NotFound(Words),
    /// The new thing is there already, or a folder is not empty.
    #[error("{0}")]
    Exists(Words),
    /// In use: a pool locked by another process, a volume that is served, a snapshot that is held.
    #[error("{0}")]
    Busy(Words),
    /// It is encrypted, and its keys are not in memory.
    #[error("{0}")]
    Locked(Words),
    /// The operating system, a secret or a hold says no.
    #[error("{0}")]
    Denied(Words),
    /// Damage, missing disks, no space, a bucket that does not answer.
    #[error("{0}")]
    Unavailable(Words),
    /// Our own bug, or an error nobody foresaw.
    #[error("{0}")]
    Internal(Words),
}

/// What happened to which thing and why, and what to do about it: a command where there is one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Words {
    pub message: String,
    pub action: Option<String>,
}

impl fmt::Display for Words {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        self.action.iter().try_for_each(|action| write!(f, "; {action}"))
    }
}

impl Words {
    pub(crate) fn of(message: impl Into<String>) -> Self {
        Self { message: message.into(), action: None }
    }
}

impl KeepError {
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::Invalid(Words::of(message))
    }

    pub fn not_found(message: impl Into<String>) -> Self {
        Self::NotFound(Words::of(message))
    }

    pub fn exists(message: impl Into<String>) -> Self {
        Self::Exists(Words::of(message))
    }

    pub fn busy(message: impl Into<String>) -> Self {
        Self::Busy(Words::of(message))
    }

    pub fn locked(message: impl Into<String>) -> Self {
        Self::Locked(Words::of(message))
    }

    pub fn denied(message: impl Into<String>) -> Self {
        Self::Denied(Words::of(message))
    }

    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::Unavailable(Words::of(message))
    }

    pub fn internal(message: impl Into<String>) -> Self {
        Self::Internal(Words::of(message))
    }

    /// The same with a way out.
    #[must_use]
    pub fn action(mut self, action: impl Into<String>) -> Self {
        self.words_mut().action = Some(action.into());
        self
    }

    /// The same with what has become of the thing.
    #[must_use]
    pub fn outcome(mut self, outcome: impl AsRef<str>) -> Self {
        let message = &mut self.words_mut().message;
        message.push_str("; ");
        message.push_str(outcome.as_ref());
        self
    }

    pub fn words(&self) -> &Words {
        match self {
            Self::Invalid(words)
            | Self::NotFound(words)
            | Self::Exists(words)
            | Self::Busy(words)
            | Self::Locked(words)
            | Self::Denied(words)
            | Self::Unavailable(words)
            | Self::Internal(words) => words,
        }
    }

    pub fn into_words(mut self) -> Words {
        std::mem::replace(self.words_mut(), Words { message: String::new(), action: None })
    }

    fn words_mut(&mut self) -> &mut Words {
        match self {
            Self::Invalid(words)
            | Self::NotFound(words)
            | Self::Exists(words)
            | Self::Busy(words)
            | Self::Locked(words)
            | Self::Denied(words)
            | Self::Unavailable(words)
            | Self::Internal(words) => words,
        }
    }

    /// What happened, without the way out.
    pub fn message(&self) -> &str {
        &self.words().message
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_out_follows_the_message() {
        let error = KeepError::busy("the volume 'tank/a' is in use");
        assert_eq!(error.to_string(), "the volume 'tank/a' is in use");
        let error = error.action("close its files");
        assert_eq!(error.to_string(), "the volume 'tank/a' is in use; close its files");
        assert_eq!(error.message(), "the volume 'tank/a' is in use");
        assert!(matches!(error, KeepError::Busy(_)));
    }
}
