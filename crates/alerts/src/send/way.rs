//! How a receiver is reached, and where secrets come from.
//!
//! - `way.judged_when_read`: an address from a file or program obeys the rules of one in the configuration: nothing crosses a network
//!   in clear unless somebody says so. What is said of it does not contain it.

use std::path::PathBuf;
use std::process::Stdio;

use tokio::io::AsyncReadExt;

use super::address::url_fault;
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
    /// An address that nobody sees before it is used: it is judged then (`way.judged_when_read`).
    Secret {
        from: Secret,
        allow_http: bool,
    },
}

impl Secret {
    /// The file or program, for people.
    fn name(&self) -> String {
        match self {
            Self::File(path) => path.display().to_string(),
            Self::Command(words) => words.first().cloned().unwrap_or_default(),
        }
    }

    /// Reads it (`watch.secrets_elsewhere`).
    pub(crate) async fn read(&self) -> Result<String, SendError> {
        let what = self.name();
        let bytes = match self {
            Self::File(path) => {
                let file = tokio::fs::File::open(path).await;
                let file = file.map_err(|e| SendError::Later(format!("cannot read the secret in {what}: {e}")))?;
                let mut bytes = Vec::new();
                let read = file.take(OUTPUT_BYTES_MAX).read_to_end(&mut bytes).await;
                read.map_err(|e| SendError::Later(format!("cannot read the secret in {what}: {e}")))?;
                bytes
            }
            Self::Command(words) => run(words, b"", Stdio::piped()).await?,
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
            Self::Secret { from, allow_http } => {
                let text = from.read().await?;
                match url_fault(&text, *allow_http) {
                    None => Ok(text),
                    Some(fault) => Err(SendError::Later(format!("the address that {} gives {fault}", from.name()))),
                }
            }
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
        // `way.judged_when_read`
        let file = folder.path().join("url");
        let read = async |url: &str, allow_http| {
            std::fs::write(&file, url).unwrap();
            let read = Text::Secret { from: Secret::File(file.clone()), allow_http }.read().await;
            read.map_err(|error| error.to_string())
        };
        assert_eq!(read("https://example.org/SECRET", false).await.unwrap(), "https://example.org/SECRET");
        assert!(read("http://127.0.0.1:81/SECRET", false).await.is_ok());
        assert!(read("http://example.org/SECRET", true).await.is_ok());
        for (url, why) in [
            ("http://example.org/SECRET", "in clear"),
            ("ftp://example.org/SECRET", "not understood"),
            ("SECRET", "is no address"),
        ] {
            let said = read(url, false).await.unwrap_err();
            assert!(said.contains(why) && said.contains("/url gives ") && !said.contains("SECRET"), "{said}");
        }
        let words = ["/bin/echo", "tk_43"].map(str::to_owned).to_vec();
        assert_eq!(Secret::Command(words).read().await.unwrap(), "tk_43");
    }
}
