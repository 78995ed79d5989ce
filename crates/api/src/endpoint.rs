//! What an endpoint is. `endpoints.rs` declares each of them once; from that declaration follow the client, the daemon's
//! router, the form without a daemon, and the schema.

use hyper::{Method, StatusCode};
#[cfg(test)]
use schemars::{Schema, SchemaGenerator};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::FailureKind;

/// Callers of an endpoint. The daemon's socket has mode 0600 in a folder of mode 0700, so its owner and root may open it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caller {
    /// Whoever may open the daemon's socket.
    Owner,
    /// The owner; and over TLS a machine that was let into the replica named, or over ssh whoever the system lets in.
    OwnerOrSender,
    /// The owner; and everybody who reaches the address for metrics, where the configuration names one.
    OwnerOrScraper,
    /// Not on the socket: over TLS, a machine that says the secret of a code.
    Invited,
}

impl Caller {
    /// The word of the schema, and what it means.
    pub fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Owner => ("owner", "Whoever may open the daemon's socket: its owner, and root."),
            Self::OwnerOrSender => ("owner-or-sender", "The owner, and a machine that was let into this replica."),
            Self::OwnerOrScraper => {
                ("owner-or-scraper", "The owner, and everybody who reaches the address for metrics.")
            }
            Self::Invited => ("invited", "A machine with a code, on the address for replication alone."),
        }
    }
}

/// The forms of requests and answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// One JSON value each way; no body where the request is `()`.
    Json,
    /// The answer is text.
    Text,
    /// The answer is a stream of bytes, with about how many in a header.
    Download,
    /// The answer is a stream of lines, each a JSON value. The last is the outcome.
    Lines,
    /// The request is in the query, and the body is a stream of bytes. The answer may come before its end.
    Upload,
}

/// The HTTP status that carries a failure.
pub fn status_of(kind: FailureKind) -> StatusCode {
    match kind {
        FailureKind::Invalid => StatusCode::BAD_REQUEST,
        FailureKind::Denied => StatusCode::FORBIDDEN,
        FailureKind::NotFound => StatusCode::NOT_FOUND,
        FailureKind::Exists => StatusCode::CONFLICT,
        FailureKind::Busy | FailureKind::Locked => StatusCode::LOCKED,
        FailureKind::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        FailureKind::Internal => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// What a path names beside its endpoint: nothing, or one thing.
pub trait Param: DeserializeOwned + Send + 'static {
    /// How a caller gives it.
    type Given<'a>: Copy + Send;

    fn of(given: Self::Given<'_>) -> Self;

    /// `pattern` with what was given in its place.
    fn fill(pattern: &str, given: Self::Given<'_>) -> String;
}

impl Param for () {
    type Given<'a> = ();

    fn of((): ()) {}

    fn fill(pattern: &str, (): ()) -> String {
        pattern.to_owned()
    }
}

impl Param for String {
    type Given<'a> = &'a str;

    fn of(name: &str) -> String {
        name.to_owned()
    }

    fn fill(pattern: &str, name: &str) -> String {
        match (pattern.split_once("{*"), pattern.split_once('{')) {
            // The rest of the path, slashes included.
            (Some((before, _)), _) => format!("{before}{}", encoded(name, |byte| plain(byte) || byte == b'/')),
            (None, Some((before, rest))) => {
                let after = rest.split_once('}').map_or("", |(_, after)| after);
                format!("{before}{}{after}", encoded(name, plain))
            }
            (None, None) => pattern.to_owned(),
        }
    }
}

fn plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~')
}

/// Names of users and shares may have blanks and letters of any alphabet.
fn encoded(name: &str, stays: impl Fn(u8) -> bool) -> String {
    name.bytes().map(|byte| if stays(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

/// A request that travels in the query of its address, since the body is a stream.
pub trait Query: Sized {
    /// With its question mark; empty where nothing is asked.
    fn written(&self) -> String;

    /// `None`: nobody who knows the endpoint writes that.
    fn read(query: Option<&str>) -> Option<Self>;
}

/// Requests and answers. Each is described by the schema, which only tests make
/// (`openapi.made_in_tests`).
#[cfg(test)]
pub trait Described: schemars::JsonSchema {}
#[cfg(test)]
impl<T: schemars::JsonSchema> Described for T {}
#[cfg(not(test))]
pub trait Described {}
#[cfg(not(test))]
impl<T> Described for T {}

/// One endpoint: a type without values of interest, which names all that belongs together.
pub trait Endpoint: Copy + Send + Sync + 'static {
    const NAME: &'static str;
    const METHOD: Method;
    /// With `{name}` for one segment, or `{*name}` for the rest of the path.
    const PATH: &'static str;
    /// One sentence.
    const ABOUT: &'static str;
    const CALLER: Caller;
    const FORM: Form;
    type Param: Param;
    type Request: Serialize + DeserializeOwned + Described + Send + Sync + 'static;
    /// Of a stream of lines: one line. Of other streams: `()`.
    type Response: Serialize + DeserializeOwned + Described + Send + 'static;

    /// Its path for one thing.
    fn path(given: <Self::Param as Param>::Given<'_>) -> String {
        Self::Param::fill(Self::PATH, given)
    }
}

/// An endpoint of [`Form::Json`].
pub trait Json: Endpoint {}

/// An endpoint of [`Form::Text`].
pub trait Text: Endpoint {}

/// An endpoint of [`Form::Download`].
pub trait Download: Endpoint {}

/// An endpoint of [`Form::Lines`].
pub trait Lines: Endpoint {}

/// An endpoint of [`Form::Upload`].
pub trait Upload: Endpoint<Request: Query> {}

/// A declaration as a value, for the schema and for tests.
pub struct Declared {
    pub name: &'static str,
    pub method: Method,
    pub path: &'static str,
    pub about: &'static str,
    pub caller: Caller,
    pub form: Form,
    #[cfg(test)]
    pub(crate) request: fn(&mut SchemaGenerator) -> Schema,
    #[cfg(test)]
    pub(crate) response: fn(&mut SchemaGenerator) -> Schema,
}

impl Declared {
    /// Whether it changes something: the box, or what others may do with it. One that asks by GET changes nothing
    /// (RFC 9110 9.2.1); any other method counts as a change.
    pub fn changes(&self) -> bool {
        self.method != Method::GET
    }

    /// Whether the API over HTTPS has it: one answer to one request. Streams stay on the socket.
    pub fn is_over_https(&self) -> bool {
        self.caller != Caller::Invited && matches!(self.form, Form::Json | Form::Text)
    }

    /// Whether a request is for it.
    pub fn matches(&self, method: &Method, path: &str) -> bool {
        let (mut pattern, mut path) = (self.path.split('/'), path.split('/'));
        self.method == *method
            && loop {
                match (pattern.next(), path.next()) {
                    (None, None) => break true,
                    (Some(part), Some(given)) if part.starts_with("{*") => break !given.is_empty(),
                    (Some(part), Some(given)) if part.starts_with('{') && !given.is_empty() => {}
                    (Some(part), Some(given)) if part == given => {}
                    _ => break false,
                }
            }
    }

    pub(crate) fn of<E: Endpoint>() -> Self {
        Self {
            name: E::NAME,
            method: E::METHOD,
            path: E::PATH,
            about: E::ABOUT,
            caller: E::CALLER,
            form: E::FORM,
            #[cfg(test)]
            request: SchemaGenerator::subschema_for::<E::Request>,
            #[cfg(test)]
            response: SchemaGenerator::subschema_for::<E::Response>,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_put_into_paths() {
        let segment = |name| <String as Param>::fill("/v1/users/{name}/keys", name);
        assert_eq!(segment("Family photos/ä?#"), "/v1/users/Family%20photos%2F%C3%A4%3F%23/keys");
        assert_eq!(segment("ann-1_b.c"), "/v1/users/ann-1_b.c/keys");
        let rest = |name| <String as Param>::fill("/v1/volumes/{*name}", name);
        assert_eq!(rest("tank/files"), "/v1/volumes/tank/files");
        assert_eq!(rest("a?b/../#"), "/v1/volumes/a%3Fb/../%23");
        assert_eq!(<() as Param>::fill("/v1/info", ()), "/v1/info");
    }
}
