//! Administrative acts: each request to the API that changes something, or takes data out, is a record of the audit log.
//!
//! - `acts.recorded_in_the_end`: a record says how it ended. Where the caller went away in the middle, the record says that.
//! - `acts.socket_alone`: what lets its asker act as the user that larder runs as (`config.deeds_of_the_machine`), and what makes or
//!   shows what opens the box elsewhere, is asked for by the socket. From other machines it is refused, and that is recorded.
//! - `acts.dry_runs_are_questions`: a dry run is no act, and has no record. Where an endpoint has none, the word in a request means
//!   nothing, and the act is recorded.

use std::sync::Arc;

use axum::body::{Body, to_bytes};
use axum::extract::{Request, connect_info};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::serve::IncomingStream;
use futures::future::BoxFuture;
use hyper::Method;
use larder_alerts::audit::{Record, RecordKind};
use larder_api::endpoint::{Form, status_of};
use larder_api::{BODY_BYTES_MAX, BY_HEADER, FOR_HEADER, Failure};
use larder_base::task;
use serde_json::Value;

use crate::Daemon;
use larder_config::may_run;
use larder_config::user::Accounts;
use larder_servers::json;
use larder_servers::remote::Remote;

/// POST requests that change nothing and take out nothing but what a listing would say.
const QUESTIONS: [&str; 9] = [
    "CheckVolumes",
    "CompareBenches",
    "DiffSnapshots",
    "ExplainAccess",
    "GetAudit",
    "PlanConfig",
    "PreviewLayouts",
    "ReadConfig",
    "WhatIfPower",
];
/// Fields of requests that name what it is about. No other field is kept (`audit.names_only`).
const NAMES: [&str; 10] = ["name", "pool", "volume", "replica", "share", "user", "dir", "disks", "to", "id"];
const NAME_CHARS_MAX: usize = 200;
const NAMES_MAX: usize = 12;

/// The process at the other end of the API's socket.
#[derive(Clone, Debug)]
pub struct Peer {
    uid: Option<u32>,
}

impl connect_info::Connected<IncomingStream<'_, tokio::net::UnixListener>> for Peer {
    fn connect_info(stream: IncomingStream<'_, tokio::net::UnixListener>) -> Self {
        Self { uid: stream.io().peer_cred().ok().map(|peer| peer.uid()) }
    }
}

/// The endpoint of a request.
#[derive(Clone, Debug)]
pub struct Asked {
    pub name: &'static str,
    pub method: Method,
    pub form: Form,
}

/// Lets `respond` answer about what the path names, and records what it did if that is an act.
pub async fn audited(
    asked: Asked,
    daemon: Arc<Daemon>,
    peer: Option<Peer>,
    named: String,
    request: Request,
    respond: fn(Arc<Daemon>, String, Request) -> BoxFuture<'static, Response>,
) -> Response {
    if asked.method == Method::GET || QUESTIONS.contains(&asked.name) {
        return respond(daemon, named, request).await;
    }
    let mut target = named.clone();
    let is_remote = request.extensions().get::<Remote>().is_some();
    let mut asked_for = Value::Null;
    let Asker { who, from, by } = asker(&request, peer);
    let request = match asked.form {
        // Its body is a stream of bytes.
        Form::Upload => request,
        _ => match read(request).await {
            Ok((request, value)) => {
                if is_dry_run(asked.name, &value) {
                    return respond(daemon, named, request).await;
                }
                let names = names(&value);
                target = [target, names].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ");
                asked_for = value;
                request
            }
            Err(failure) => return (status_of(failure.kind), json::answer(&failure)).into_response(),
        },
    };
    let record = Record {
        number: 0,
        at_ms: 0,
        kind: RecordKind::Act,
        who,
        from,
        by,
        what: asked.name.to_owned(),
        target,
        result: "its caller went away before it ended".to_owned(),
    };
    let mut act = Act { daemon: Arc::clone(&daemon), record: Some(record) };
    let may_ask = match is_remote {
        true => may_ask_from_afar(&daemon, asked.name, &asked_for).await,
        false => Ok(()),
    };
    let response = match may_ask {
        Ok(()) => respond(daemon, named, request).await,
        Err(failure) => (status_of(failure.kind), json::answer(&failure)).into_response(),
    };
    act.ended(response.status());
    drop(act);
    response
}

/// `acts.socket_alone`
async fn may_ask_from_afar(daemon: &Daemon, endpoint: &str, asked_for: &Value) -> Result<(), Failure> {
    let text = |field: &str| asked_for[field].as_str().unwrap_or_default();
    let what = match endpoint {
        "RenewRecoveryKey" => "a new recovery key".to_owned(),
        "RestoreConfig" => "going back to an older configuration".to_owned(),
        "AddShare" if asked_for["volume"].is_null() && text("folder").starts_with('/') => {
            format!("a share of the folder {} of this machine", text("folder"))
        }
        "ApplyConfig" => {
            let now = daemon.applying.read().await?.text;
            let deeds = |text: &str| may_run::deeds(text, daemon.folder().path());
            let new: Vec<String> = deeds(text("text")).difference(&deeds(&now)).cloned().collect();
            if new.is_empty() {
                return Ok(());
            }
            new.join("; ")
        }
        _ => return Ok(()),
    };
    if daemon.document.config().page.may_run {
        return Ok(());
    }
    Err(Failure::denied(format!("nothing was changed: {what}: not from another machine")).action(
        "type it on this machine, as the user that larder runs as or root (larder config apply FILE, share add, config \
         recovery-key, config restore); or allow owners to do such things from other machines: may_run = true under [page] in \
         larder.toml",
    ))
}

struct Asker {
    who: String,
    from: String,
    by: String,
}

/// Who asks, and by what. Whoever may open the socket may do everything, so what they say of themselves is believed.
fn asker(request: &Request, peer: Option<Peer>) -> Asker {
    if let Some(Remote { who, from, by }) = request.extensions().get::<Remote>() {
        return Asker { who: who.clone(), from: from.to_string(), by: (*by).to_owned() };
    }
    let header = |name| request.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let by = header(BY_HEADER).filter(|by| matches!(by.as_str(), "command" | "page"));
    let uid = peer.and_then(|peer| peer.uid);
    let user = uid.map(|uid| Accounts::of_machine().name_of_user(uid).unwrap_or_else(|| format!("uid {uid}")));
    Asker {
        who: header(FOR_HEADER).or(user).unwrap_or_default(),
        from: "local".to_owned(),
        by: by.unwrap_or_else(|| "api".to_owned()),
    }
}

/// An act under way. It is recorded when it is dropped (`acts.recorded_in_the_end`).
struct Act {
    daemon: Arc<Daemon>,
    record: Option<Record>,
}

impl Act {
    fn ended(&mut self, status: StatusCode) {
        let Some(record) = &mut self.record else { return };
        record.result = match status {
            status if status.is_success() => "done".to_owned(),
            status => format!("refused: {}", status.canonical_reason().unwrap_or(status.as_str()).to_lowercase()),
        };
    }
}

impl Drop for Act {
    fn drop(&mut self) {
        let Some(record) = self.record.take() else { return };
        let daemon = Arc::clone(&self.daemon);
        // Its line is made durable: that is a wait for the disk of the data folder.
        match tokio::runtime::Handle::try_current() {
            Ok(_) => drop(task::blocking(move || daemon.watch.record(record))),
            Err(_) => daemon.watch.record(record),
        }
    }
}

/// The request, and the value that its body is.
async fn read(request: Request) -> Result<(Request, Value), Failure> {
    let (head, body) = request.into_parts();
    let bytes = to_bytes(body, BODY_BYTES_MAX)
        .await
        .map_err(|e| Failure::invalid(format!("the request cannot be read: {e}")))?;
    let value = serde_json::from_slice(&bytes).unwrap_or_default();
    Ok((Request::from_parts(head, Body::from(bytes)), value))
}

/// Some requests are one of several kinds: `{"add": {...}}`.
fn inner(value: &Value) -> Option<&Value> {
    match value.as_object() {
        Some(fields) if fields.len() == 1 => fields.values().next().filter(|inner| inner.is_object()),
        _ => None,
    }
}

/// `acts.dry_runs_are_questions`: where the endpoint itself looks for the word, and nowhere else.
fn is_dry_run(endpoint: &str, value: &Value) -> bool {
    let of = match endpoint {
        "ChangePool" | "ImportFolder" | "RestoreConfig" => value,
        "ChangeSnapshots" => &value["destroy"],
        _ => return false,
    };
    of["dry_run"] == Value::Bool(true)
}

/// `name=ann`, of the fields that are names.
fn names(value: &Value) -> String {
    let inner = inner(value);
    let mut found = Vec::new();
    let mut kind = String::new();
    if let (Some(fields), true) = (value.as_object(), inner.is_some()) {
        kind = fields.keys().next().cloned().unwrap_or_default();
    }
    for tag in ["change", "action"] {
        if let Some(text) = value[tag].as_str() {
            kind = text.to_owned();
        }
    }
    for field in NAMES {
        match inner.unwrap_or(value).get(field) {
            Some(Value::String(text)) => found.push(format!("{field}={}", short(text))),
            Some(Value::Number(number)) => found.push(format!("{field}={number}")),
            Some(Value::Array(list)) => {
                let texts = list.iter().filter_map(Value::as_str).take(NAMES_MAX).map(short);
                found.push(format!("{field}={}", texts.collect::<Vec<_>>().join(",")));
            }
            _ => {}
        }
    }
    if !kind.is_empty() {
        found.insert(0, short(&kind));
    }
    found.join(" ")
}

fn short(text: &str) -> String {
    text.chars().take(NAME_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_kept_and_secrets_are_not() {
        let check =
            |json: &str, expected: &str| assert_eq!(names(&serde_json::from_str(json).unwrap()), expected, "{json}");
        check(r#"{"name":"ann","password":"Pantry-42","uid":1000}"#, "name=ann");
        check(r#"{"password":"Pantry-42","force":true}"#, "");
        check(r#"{"unlock":{"secret":{"passphrase":"x"}}}"#, "unlock");
        check(r#"{"add":{"volume":"tank/a","to":"b:/c","code":"1234"}}"#, "add volume=tank/a to=b:/c");
        check(r#"{"change":"replace","old":"1","new":"/d"}"#, "replace");
        check(r#"{"disks":["/a","/b"],"force":false,"pool":null}"#, "disks=/a,/b");
        check("null", "");
    }

    /// `acts.dry_runs_are_questions`: by the requests themselves, as endpoints read them.
    #[test]
    fn dry_runs_are_told_from_deeds() {
        use larder_api::endpoints::{AddGroup, ChangePool, ChangeSnapshots, ImportFolder, RestoreConfig};
        fn check<E: larder_api::endpoint::Endpoint>(json: &str, expected: bool) {
            assert!(serde_json::from_str::<E::Request>(json).is_ok(), "{json} is no request of {}", E::NAME);
            assert_eq!(is_dry_run(E::NAME, &serde_json::from_str(json).unwrap()), expected, "{json}");
        }
        check::<ChangePool>(r#"{"change":"remove","disk":"1","dry_run":true}"#, true);
        check::<ChangePool>(r#"{"change":"remove","disk":"1","dry_run":false}"#, false);
        check::<ChangeSnapshots>(r#"{"destroy":{"names":"a","dry_run":true}}"#, true);
        check::<ChangeSnapshots>(r#"{"destroy":{"names":"a","dry_run":false}}"#, false);
        check::<ChangeSnapshots>(r#"{"create":{"name":"dry_run"}}"#, false);
        // Words that mean nothing there hide no act.
        check::<ChangeSnapshots>(r#"{"create":{"name":"a","dry_run":true}}"#, false);
        check::<AddGroup>(r#"{"name":"a","members":[],"dry_run":true}"#, false);
        check::<ImportFolder>(r#"{"dir":"/a","dry_run":true}"#, true);
        check::<ImportFolder>(r#"{"dir":"/a"}"#, false);
        check::<RestoreConfig>(r#"{"number":3,"dry_run":true}"#, true);
        check::<RestoreConfig>(r#"{"number":3}"#, false);
        // One that says both is refused by its endpoint.
        assert!(
            serde_json::from_str::<larder_api::PoolChangeRequest>(
                r#"{"change":"remove","disk":"1","dry_run":false,"dry_run":true}"#
            )
            .is_err()
        );
    }
}
