//! Mail: by SMTP, or by the `sendmail` of the machine.

use std::process::Stdio;
use std::time::Duration;

use lettre::message::header::ContentType;
use lettre::transport::smtp::authentication::Credentials;
use lettre::transport::smtp::client::{Tls, TlsParameters};
use lettre::transport::smtp::extension::ClientId;
use lettre::{AsyncSmtpTransport, AsyncTransport, Tokio1Executor};

use super::process::{SendError, run};
use super::way::{Mail, MailServer, MailTls};
use crate::message::Message;

const COMMAND_TIME_MAX: Duration = Duration::from_secs(20);
/// Where mail programs put it; the first is named by the Linux Standard Base.
const SENDMAIL: [&str; 3] = ["/usr/sbin/sendmail", "/usr/lib/sendmail", "/usr/bin/sendmail"];

pub(super) async fn send(mail: &Mail, message: &Message) -> Result<(), SendError> {
    let letter = letter(mail, message)?;
    match &mail.server {
        Some(server) => transport(server, &message.host).await?.send(letter).await.map(drop).map_err(|e| failure(&e)),
        None => {
            let program = SENDMAIL.iter().find(|path| std::path::Path::new(path).exists());
            let program = program.ok_or_else(|| {
                SendError::Later("there is no sendmail on this machine: name a server = \"HOST\"".to_owned())
            })?;
            // -t: to whom the letter says; -i: a line with a dot alone is none's end.
            let words = [*program, "-t", "-i"].map(str::to_owned);
            run(&words, &letter.formatted(), Stdio::null()).await.map(drop)
        }
    }
}

fn letter(mail: &Mail, message: &Message) -> Result<lettre::Message, SendError> {
    let wrong = |what: &str, e: &dyn std::fmt::Display| SendError::Refused(format!("'{what}' is no address: {e}"));
    let mut builder = lettre::Message::builder().from(mail.from.parse().map_err(|e| wrong(&mail.from, &e))?);
    for to in &mail.to {
        builder = builder.to(to.parse().map_err(|e| wrong(to, &e))?);
    }
    // The same message has the same id, so that a mail program shows a repetition once.
    let id = format!("<larder-{}-{}@{}>", message.number, message.at_ms, host_word(&message.host));
    let builder = builder.message_id(Some(id)).subject(message.title()).header(ContentType::TEXT_PLAIN);
    builder.body(message.body()).map_err(|e| SendError::Refused(e.to_string()))
}

/// The name of the box as far as it is one of a host.
fn host_word(host: &str) -> String {
    let word: String = host.chars().filter(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '.')).take(64).collect();
    if word.is_empty() { "larder".to_owned() } else { word }
}

async fn transport(server: &MailServer, host: &str) -> Result<AsyncSmtpTransport<Tokio1Executor>, SendError> {
    let tls = match server.tls {
        MailTls::None => Tls::None,
        way => {
            let parameters = TlsParameters::new(server.host.clone()).map_err(|e| failure(&e))?;
            if way == MailTls::Implicit { Tls::Wrapper(parameters) } else { Tls::Required(parameters) }
        }
    };
    let mut builder = AsyncSmtpTransport::<Tokio1Executor>::builder_dangerous(&server.host)
        .port(server.port)
        .tls(tls)
        .hello_name(ClientId::Domain(host_word(host)))
        .timeout(Some(COMMAND_TIME_MAX));
    if let Some((user, secret)) = &server.login {
        builder = builder.credentials(Credentials::new(user.clone(), secret.read().await?));
    }
    Ok(builder.build())
}

/// A server that refuses for good (5yz, RFC 5321 4.2.1) refuses the message; a wrong password may be mended.
fn failure(error: &lettre::transport::smtp::Error) -> SendError {
    use std::error::Error;
    let mut text = error.to_string();
    if let Some(cause) = error.source().map(ToString::to_string).filter(|cause| !text.contains(cause)) {
        text = format!("{text}: {cause}");
    }
    let code = error.status().map(u16::from);
    match error.is_permanent() && !code.is_some_and(|code| (530..540).contains(&code)) {
        true => SendError::Refused(text),
        false => SendError::Later(text),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::message::MessageKind;

    #[test]
    fn a_letter_has_no_headers_of_others() {
        let mail = Mail { from: "larder <box@example.org>".into(), to: vec!["ann@example.org".into()], server: None };
        let message = Message::of_box("K\u{fc}che\r\nBcc: eve@example.org", 5, MessageKind::Test, "x", "hello".into());
        let text = String::from_utf8(letter(&mail, &message).unwrap().formatted()).unwrap();
        assert!(text.contains("To: ann@example.org\r\n") && !text.to_lowercase().contains("\nbcc:"), "{text}");
        assert!(text.contains("Message-ID: <larder-0-5@KcheBcceveexample.org>\r\n"), "{text}");
        let wrong = Mail { to: vec!["nobody".into()], ..mail };
        assert!(matches!(letter(&wrong, &message), Err(SendError::Refused(_))));
    }
}
