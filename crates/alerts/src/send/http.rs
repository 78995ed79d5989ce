//! Webhooks, ntfy, and the dead man's ping.
//!
//! A receiver is not trusted: redirections are not followed, and its answer is not read beyond the status.

use std::time::Duration;

use reqwest::redirect::Policy;
use reqwest::{Client, RequestBuilder, StatusCode};

use super::process::SendError;
use super::way::{Secret, Text};
use crate::event::Severity;
use crate::message::{Message, MessageKind, one_line};

const CONNECT_TIME_MAX: Duration = Duration::from_secs(10);
const ANSWER_TIME_MAX: Duration = Duration::from_secs(25);
/// ntfy turns longer messages into attachments.
const NTFY_CHARS_MAX: usize = 3500;

fn client() -> Result<Client, SendError> {
    let builder = Client::builder()
        .redirect(Policy::none())
        .connect_timeout(CONNECT_TIME_MAX)
        .timeout(ANSWER_TIME_MAX)
        .pool_max_idle_per_host(0)
        .user_agent(concat!("larder/", env!("CARGO_PKG_VERSION")));
    builder.build().map_err(|e| SendError::Later(plain(e)))
}

/// An error without the address, which may hold a secret.
fn plain(error: reqwest::Error) -> String {
    use std::error::Error;
    let error = error.without_url();
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let more = inner.to_string();
        if !text.contains(&more) {
            text.push_str(&format!(": {more}"));
        }
        cause = inner.source();
    }
    text
}

async fn deliver(request: RequestBuilder, token: Option<&Secret>) -> Result<(), SendError> {
    let request = match token {
        Some(token) => request.bearer_auth(token.read().await?),
        None => request,
    };
    let answer = request.send().await.map_err(|e| SendError::Later(plain(e)))?;
    judged(answer.status())
}

/// A wrong token refuses every message alike, and may be mended; so may what is too early (RFC 8470) or too much.
fn judged(status: StatusCode) -> Result<(), SendError> {
    let later = status.is_server_error()
        || matches!(
            status,
            StatusCode::REQUEST_TIMEOUT
                | StatusCode::TOO_EARLY
                | StatusCode::TOO_MANY_REQUESTS
                | StatusCode::UNAUTHORIZED
        );
    match status {
        status if status.is_success() => Ok(()),
        status if status.is_redirection() => {
            Err(SendError::Later(format!("it answered {status}: write the address that it redirects to")))
        }
        status if later => Err(SendError::Later(format!("it answered {status}"))),
        status => Err(SendError::Refused(format!("it answered {status}"))),
    }
}

pub(super) async fn webhook(url: &Text, token: Option<&Secret>, message: &Message) -> Result<(), SendError> {
    let json = serde_json::to_vec(message).map_err(|e| SendError::Refused(e.to_string()))?;
    let request = client()?.post(url.read().await?).header("content-type", "application/json").body(json);
    deliver(request, token).await
}

/// <https://docs.ntfy.sh/publish/>: the text is the body, the rest are headers. Headers are ASCII, so what is not is encoded as RFC 2047
/// says, which ntfy decodes.
pub(super) async fn ntfy(url: &Text, token: Option<&Secret>, message: &Message) -> Result<(), SendError> {
    let (priority, tag) = match (message.kind, message.severity) {
        (MessageKind::Cleared, _) => ("default", "white_check_mark"),
        (_, Severity::Critical) => ("urgent", "rotating_light"),
        (_, Severity::Warning) => ("high", "warning"),
        (_, Severity::Info) => ("low", "information_source"),
    };
    let request = client()?
        .post(url.read().await?)
        .header("title", encoded(&message.title()))
        .header("priority", priority)
        .header("tags", tag)
        .body(crate::alerts::cut(&message.body(), NTFY_CHARS_MAX));
    deliver(request, token).await
}

/// A header's value.
fn encoded(text: &str) -> String {
    let text = one_line(text);
    if text.is_ascii() {
        return text;
    }
    let encoded = text.bytes().map(|byte| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => char::from(byte).to_string(),
        byte => format!("={byte:02X}"),
    });
    format!("=?UTF-8?Q?{}?=", encoded.collect::<String>())
}

/// Tells a dead man's switch that the box lives.
pub async fn ping(url: &Text) -> Result<(), SendError> {
    let url = url.read().await?;
    deliver(client()?.get(url), None).await
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_is_refused_for_good_is_told_from_what_may_pass() {
        let is = |code: u16| match judged(StatusCode::from_u16(code).unwrap()) {
            Ok(()) => "taken",
            Err(SendError::Later(_)) => "later",
            Err(SendError::Refused(_)) => "refused",
        };
        for (codes, expected) in [
            (vec![200, 201, 204], "taken"),
            (vec![301, 401, 408, 425, 429, 500, 503], "later"),
            (vec![400, 403, 404, 405, 410, 413, 422], "refused"),
        ] {
            codes.into_iter().for_each(|code| assert_eq!(is(code), expected, "{code}"));
        }
    }

    #[test]
    fn headers_are_ascii() {
        assert_eq!(encoded("box: critical\r\nX: y"), "box: critical  X: y");
        assert_eq!(encoded("Küche 1"), "=?UTF-8?Q?K=C3=BCche=201?=");
    }
}
