//! How a receiver is reached, and where secrets come from.

use std::path::PathBuf;
use std::process::Stdio;

use tokio::io::AsyncReadExt;

use super::process::{OUTPUT_BYTES_MAX, SendError, run};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Way {
    Webhook { url: Text, token: Option<Secret> },
    Ntfy { url: Text, token: Option<Secret> },
    Mail(Mail),
    Command(Vec<String>),
}

impl Way {
    pub fn word(&self) -> &'static str {
        match self {
            Self::Webhook { .. } => "webhook",
            Self::Ntfy { .. } => "ntfy",
            Self::Mail(_) => "mail",
            Self::Command(_) => "command",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mail {
    pub from: String,
    pub to: Vec<String>,
    /// `None`: the machine's `sendmail`.
    pub server: Option<MailServer>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MailServer {
    pub host: String,
    pub port: u16,
    pub tls: MailTls,
    pub login: Option<(String, Secret)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MailTls {
    /// From the first byte (RFC 8314).
    Implicit,
    /// STARTTLS, and nothing is sent without it.
    Start,
    /// In clear, to this machine alone.
    None,
}

/// The source of something that must not be in the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Secret {
    File(PathBuf),
    Command(Vec<String>),
}

/// A text that may hold a secret, as the addresses of many webhooks do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Text {
    Written(String),
    Secret(Secret),
}

impl Secret {
    /// Reads it (`watch.secrets_elsewhere`).
    pub(crate) async fn read(&self) -> Result<String, SendError> {
        let (bytes, what) = match self {
            Self::File(path) => {
                let what = path.display().to_string();
                let file = tokio::fs::File::open(path).await;
                let file = file.map_err(|e| SendError::Later(format!("cannot read the secret in {what}: {e}")))?;
                let mut bytes = Vec::new();
                let read = file.take(OUTPUT_BYTES_MAX).read_to_end(&mut bytes).await;
                read.map_err(|e| SendError::Later(format!("cannot read the secret in {what}: {e}")))?;
                (bytes, what)
            }
            Self::Command(words) => {
                let what = words.first().cloned().unwrap_or_default();
                (run(words, b"", Stdio::piped()).await?, what)
            }
        };
        let text = String::from_utf8_lossy(&bytes).trim().to_owned();
        let is_fit = !text.is_empty() && !text.contains(char::is_control);
        is_fit.then_some(text).ok_or_else(|| SendError::Later(format!("{what} gives no secret of one line")))
    }
}

impl Text {
    pub(crate) async fn read(&self) -> Result<String, SendError> {
        match self {
            Self::Written(text) => Ok(text.clone()),
            Self::Secret(secret) => secret.read().await,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[tokio::test]
    async fn secrets_come_from_files_and_commands() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("token");
        std::fs::write(&file, "tk_42\n").unwrap();
        assert_eq!(Secret::File(file.clone()).read().await.unwrap(), "tk_42");
        std::fs::write(&file, "two\nlines\n").unwrap();
        assert!(Secret::File(file).read().await.is_err());
        let words = ["/bin/echo", "tk_43"].map(str::to_owned).to_vec();
        assert_eq!(Secret::Command(words).read().await.unwrap(), "tk_43");
    }
}
