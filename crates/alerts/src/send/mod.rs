//! Delivery: one message to one receiver, with a time limit.

use std::process::Stdio;
use std::time::Duration;

use crate::event::Severity;
use crate::message::{Message, MessageKind};

mod address;
mod http;
mod mail;
mod process;
mod way;

pub use address::check_url;
pub use http::ping;
pub use process::SendError;
pub use way::{Mail, MailServer, MailTls, Secret, Text, Way};

/// One try. A receiver that takes longer is tried again later.
pub const TRY_TIME_MAX: Duration = Duration::from_secs(30);

/// A receiver of messages, as the configuration names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receiver {
    /// Unique, and kept over restarts: by it messages wait.
    pub name: String,
    pub way: Way,
    /// Nothing below it.
    pub min: Severity,
    /// Whether it gets the week's digest.
    pub digest: bool,
}

impl Receiver {
    pub fn wants(&self, message: &Message) -> bool {
        match message.kind {
            MessageKind::Digest => self.digest,
            MessageKind::Test => true,
            _ => message.severity >= self.min,
        }
    }

    /// One try, [`TRY_TIME_MAX`] at most.
    pub async fn send(&self, message: &Message) -> Result<(), SendError> {
        let sent = async {
            match &self.way {
                Way::Webhook { url, token } => http::webhook(url, token.as_ref(), message).await,
                Way::Ntfy { url, token } => http::ntfy(url, token.as_ref(), message).await,
                Way::Mail(mail) => mail::send(mail, message).await,
                Way::Command(words) => {
                    let json = serde_json::to_vec(message).map_err(|e| SendError::Refused(e.to_string()))?;
                    process::run(words, &json, Stdio::null()).await.map(drop)
                }
            }
        };
        let late = || SendError::Later(format!("no answer within {} s", TRY_TIME_MAX.as_secs()));
        tokio::time::timeout(TRY_TIME_MAX, sent).await.unwrap_or_else(|_| Err(late()))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn receiver(words: &[&str]) -> Receiver {
        let words = words.iter().map(|word| (*word).to_owned()).collect();
        Receiver { name: "command".into(), way: Way::Command(words), min: Severity::Warning, digest: false }
    }

    #[tokio::test]
    async fn a_command_gets_the_message_as_json() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("got");
        let message = Message::of_box("box", 1, MessageKind::Test, "mail", "hello".into());
        receiver(&["/bin/sh", "-c", "cat > \"$0\"", file.to_str().unwrap()]).send(&message).await.unwrap();
        let got: Message = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        assert_eq!(got, message);
        assert!(matches!(receiver(&["/bin/false"]).send(&message).await, Err(SendError::Later(_))));
        assert!(matches!(receiver(&["/no/such/program"]).send(&message).await, Err(SendError::Later(_))));
    }

    #[test]
    fn receivers_want_what_is_severe_enough() {
        let of = |severity, kind| Message { severity, ..Message::of_box("box", 1, kind, "x", String::new()) };
        let one = receiver(&["true"]);
        assert!(one.wants(&of(Severity::Warning, MessageKind::Cleared)));
        assert!(!one.wants(&of(Severity::Info, MessageKind::Noted)));
        assert!(one.wants(&of(Severity::Info, MessageKind::Test)));
        assert!(!one.wants(&of(Severity::Info, MessageKind::Digest)));
    }
}
