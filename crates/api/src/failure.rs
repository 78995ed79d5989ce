//! One shape for everything that can go wrong in front of a person: what happened to which thing and
//! why (`message`), and the way out (`action`, copy-pasteable where it is a command).

use std::fmt;

/// What sort of failure, for scripts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum FailureKind {
    /// The request makes no sense: a bad name, too few disks, a wrong config.
    Invalid,
    /// The pool, volume, share, user or folder named is not there.
    NotFound,
    /// What should be made is there already, or a folder is not empty.
    Exists,
    /// In use: a pool locked by another process, a busy volume or mount, a port taken.
    Busy,
    /// It is encrypted, and its keys are not there.
    Locked,
    /// The operating system says that this user may not.
    Denied,
    /// Damaged, missing disks, no space: the world below does not let us.
    Unavailable,
    /// Our own bug, or an error nobody foresaw.
    Internal,
}

impl FailureKind {
    pub const ALL: [Self; 8] = [
        Self::Invalid,
        Self::NotFound,
        Self::Exists,
        Self::Busy,
        Self::Locked,
        Self::Denied,
        Self::Unavailable,
        Self::Internal,
    ];
}

#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Failure {
    pub kind: FailureKind,
    pub message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
}

impl Failure {
    pub fn new(kind: FailureKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), action: None }
    }

    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(FailureKind::Invalid, message)
    }

    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(FailureKind::NotFound, message)
    }

    pub fn exists(message: impl Into<String>) -> Self {
        Self::new(FailureKind::Exists, message)
    }

    pub fn busy(message: impl Into<String>) -> Self {
        Self::new(FailureKind::Busy, message)
    }

    pub fn locked(message: impl Into<String>) -> Self {
        Self::new(FailureKind::Locked, message)
    }

    pub fn denied(message: impl Into<String>) -> Self {
        Self::new(FailureKind::Denied, message)
    }

    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(FailureKind::Unavailable, message)
    }

    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(FailureKind::Internal, message)
    }

    /// The same with a way out.
    #[must_use]
    pub fn action(mut self, action: impl Into<String>) -> Self {
        self.action = Some(action.into());
        self
    }

    /// The same with what has become of the thing.
    #[must_use]
    pub fn outcome(mut self, outcome: impl AsRef<str>) -> Self {
        self.message.push_str("; ");
        self.message.push_str(outcome.as_ref());
        self
    }

    /// What happened and the way out in one line.
    pub fn line(&self) -> String {
        let action = self.action.as_ref().map(|action| format!("; {action}")).unwrap_or_default();
        format!("{}{action}", self.message)
    }

    /// An I/O error about one path or address; the kind follows from the error.
    pub fn io(what: impl fmt::Display, error: &std::io::Error) -> Self {
        use std::io::ErrorKind;
        let kind = match error.kind() {
            ErrorKind::NotFound => FailureKind::NotFound,
            ErrorKind::AlreadyExists | ErrorKind::DirectoryNotEmpty => FailureKind::Exists,
            ErrorKind::PermissionDenied => FailureKind::Denied,
            ErrorKind::AddrInUse | ErrorKind::ResourceBusy => FailureKind::Busy,
            ErrorKind::AddrNotAvailable | ErrorKind::InvalidInput | ErrorKind::NotADirectory => FailureKind::Invalid,
            _ => FailureKind::Unavailable,
        };
        Self::new(kind, format!("{what}: {}", plain(error)))
    }
}

/// The operating system's words without "(os error 98)".
fn plain(error: &std::io::Error) -> String {
    let text = error.to_string();
    match text.split_once(" (os error") {
        Some((words, _)) => words.to_lowercase(),
        None => text,
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        if let Some(action) = &self.action {
            write!(f, "\naction: {action}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Failure {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_out_follows_the_message() {
        let failure = Failure::busy("the volume 'tank/a' is in use");
        assert_eq!(failure.line(), "the volume 'tank/a' is in use");
        let failure = failure.action("close its files");
        assert_eq!(failure.line(), "the volume 'tank/a' is in use; close its files");
        assert_eq!(failure.message, "the volume 'tank/a' is in use");
        assert_eq!(failure.kind, FailureKind::Busy);
    }
}
