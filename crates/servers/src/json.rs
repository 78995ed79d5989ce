//! JSON in the bodies of requests and answers.
//!
//! - `json.one_form`: each type is read by `serde_json::from_slice` alone, the form of the client
//!   too. The code that reads a type is compiled again for every other form. So the place of an
//!   error is found afterwards, in the text.

use axum::body::Bytes;
use axum::extract::{FromRequest, Request};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use futures::FutureExt;
use futures::future::BoxFuture;
use serde::Serialize;
use serde_json::error::Category;

/// The body of a request, or the response to one without JSON, or with more of it than the router's
/// limit.
pub fn body(request: Request) -> BoxFuture<'static, Result<Bytes, Response>> {
    async {
        if !is_json(request.headers()) {
            let wanted = "Expected request with `Content-Type: application/json`";
            return Err((StatusCode::UNSUPPORTED_MEDIA_TYPE, wanted).into_response());
        }
        Bytes::from_request(request, &()).await.map_err(IntoResponse::into_response)
    }
    .boxed()
}

/// `application/json`, or another type with its suffix (RFC 6839 3.1).
fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    kind.strip_prefix("application/").is_some_and(|kind| kind == "json" || kind.ends_with("+json"))
}

/// The response to a body that is not what its endpoint reads.
pub fn refusal(body: &[u8], error: &serde_json::Error) -> Response {
    let (status, what) = match error.classify() {
        Category::Data => {
            (StatusCode::UNPROCESSABLE_ENTITY, "Failed to deserialize the JSON body into the target type")
        }
        _ => (StatusCode::BAD_REQUEST, "Failed to parse the request body as JSON"),
    };
    let place = place_of(body, error);
    let colon = if place.is_empty() { "" } else { ": " };
    (status, format!("{what}: {place}{colon}{error}")).into_response()
}

pub fn answer<T: Serialize>(value: &T) -> Response {
    written(serde_json::to_vec(value))
}

fn written(json: serde_json::Result<Vec<u8>>) -> Response {
    match json {
        Ok(json) => ([(CONTENT_TYPE, "application/json")], json).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

/// The element of an array, or the field of an object, that the text has reached.
enum Reached<'a> {
    Element(usize),
    Field(Option<&'a [u8]>),
}

/// The place of an error, such as `change.networks[1]`; empty where that is the whole.
fn place_of(text: &[u8], error: &serde_json::Error) -> String {
    let before = error.line().saturating_sub(1);
    let line: usize = text.split_inclusive(|byte| *byte == b'\n').take(before).map(<[u8]>::len).sum();
    // An error of the syntax is at the byte that should not be there.
    let wrong = usize::from(error.classify() == Category::Syntax);
    let end = (line + error.column()).saturating_sub(wrong);
    let mut place = String::new();
    for reached in reached(text.get(..end).unwrap_or(text)) {
        match reached {
            Reached::Element(number) => place.push_str(&format!("[{number}]")),
            Reached::Field(Some(name)) => {
                place.push_str(if place.is_empty() { "" } else { "." });
                place.push_str(&String::from_utf8_lossy(name));
            }
            Reached::Field(None) => {}
        }
    }
    place
}

/// What the end of `text` is in, from the outermost. The text has no error in it.
fn reached(text: &[u8]) -> Vec<Reached<'_>> {
    let mut within = Vec::new();
    let mut last_string: &[u8] = &[];
    let mut at = 0;
    while let Some(byte) = text.get(at) {
        at += 1;
        match byte {
            b'"' => {
                let rest = text.get(at..).unwrap_or_default();
                let length = string_length(rest);
                last_string = rest.get(..length).unwrap_or(rest);
                at += length + 1;
            }
            b'[' => within.push(Reached::Element(0)),
            b'{' => within.push(Reached::Field(None)),
            b']' | b'}' => drop(within.pop()),
            b':' => {
                if let Some(Reached::Field(name)) = within.last_mut() {
                    *name = Some(last_string);
                }
            }
            b',' => match within.last_mut() {
                Some(Reached::Element(number)) => *number += 1,
                Some(Reached::Field(name)) => *name = None,
                None => {}
            },
            _ => {}
        }
    }
    within
}

/// Bytes up to the quotation mark that ends a string.
fn string_length(text: &[u8]) -> usize {
    let mut is_escaped = false;
    let is_end = |byte: &u8| {
        let is_end = *byte == b'"' && !is_escaped;
        is_escaped = *byte == b'\\' && !is_escaped;
        is_end
    };
    text.iter().position(is_end).unwrap_or(text.len())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use larder_api::{BODY_BYTES_MAX, KeysRequest, ShareAdd};
    use serde::de::DeserializeOwned;

    use super::*;

    /// The status of the response to a body, and its words after those of its kind.
    async fn refused<T: DeserializeOwned>(body: &[u8]) -> (u16, String) {
        let error = serde_json::from_slice::<T>(body).err().expect("it is refused");
        let response = refusal(body, &error);
        let status = response.status().as_u16();
        let text = axum::body::to_bytes(response.into_body(), BODY_BYTES_MAX).await.unwrap();
        let text = String::from_utf8(text.to_vec()).unwrap();
        (status, text.split_once(": ").unwrap().1.to_owned())
    }

    #[tokio::test]
    async fn an_error_has_its_line_its_column_and_its_field() {
        let check = async |body: &str, status: u16, expected: &str| {
            assert_eq!(refused::<ShareAdd>(body.as_bytes()).await, (status, expected.to_owned()), "{body}");
        };
        check("{", 400, "EOF while parsing an object at line 1 column 1").await;
        check("", 400, "EOF while parsing a value at line 1 column 0").await;
        check("5", 422, "invalid type: integer `5`, expected struct ShareAdd at line 1 column 1").await;
        check("{}", 422, "missing field `name` at line 1 column 2").await;
        check("{\"name\":5}", 422, "name: invalid type: integer `5`, expected a string at line 1 column 9").await;
        check("{\"name\":\"a\",\"name\":\"b\"}", 422, "duplicate field `name` at line 1 column 18").await;
        let change = |change: &str| format!("{{\"na\\\"m,e\":[\"\\\\\"],\n\"name\":\"a}}\",\n\"change\":{change}}}");
        check(
            &change("{\"usual_networks\":5.5 , \"folder\":\"a\"}"),
            422,
            "change.usual_networks: invalid type: floating point `5.5`, expected a boolean at line 3 column 30",
        )
        .await;
        check(
            &change("{\"networks\":[\"x\", {\"a\":[]}]}"),
            422,
            "change.networks[1]: invalid type: map, expected a string at line 3 column 27",
        )
        .await;
        check(&change("{\"networks\":[\"x\",}"), 400, "change.networks[1]: expected value at line 3 column 27").await;
        check(
            &change("true"),
            422,
            "change: invalid type: boolean `true`, expected struct ShareChange at line 3 column 13",
        )
        .await;
        let body = b"{\"name\":\"a\xff\"}";
        let expected = "name: invalid unicode code point at line 1 column 11".to_owned();
        assert_eq!(refused::<ShareAdd>(body).await, (400, expected));
        let check = async |body: &str, status: u16, expected: &str| {
            assert_eq!(refused::<KeysRequest>(body.as_bytes()).await, (status, expected.to_owned()), "{body}");
        };
        check("{\"unlock\":{}}", 422, "unlock: missing field `secret` at line 1 column 12").await;
        check("{\"unlock\":{\"secret\":5}}", 400, "unlock.secret: expected value at line 1 column 21").await;
        check(
            "{\"unlock\":{\"secret\":{\"key-file\":[5,999]}}}",
            422,
            "unlock.secret.key-file[1]: invalid value: integer `999`, expected u8 at line 1 column 38",
        )
        .await;
    }

    #[test]
    fn types_of_json_are_known() {
        let check = |kind: &str, expected: bool| {
            let headers = HeaderMap::from_iter([(CONTENT_TYPE, kind.parse().unwrap())]);
            assert_eq!(is_json(&headers), expected, "{kind}");
        };
        check("application/json", true);
        check("Application/JSON; charset=utf-8", true);
        check("application/a+json", true);
        check("application/a+json+", false);
        check("application/jsonx", false);
        check("text/plain", false);
        assert!(!is_json(&HeaderMap::new()));
    }
}
