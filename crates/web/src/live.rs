//! Fragments of a page as a stream of server-sent events (WHATWG HTML 9.2).
//!
//! - `live.wakes_nothing`: a stream asks the daemon for what it has in memory, and looks at no disk.
//! - `live.bounded`: a stream ends after [`STREAM_AGE_MAX`], with its session, and with its browser, which opens
//!   another by itself. Their number is bounded (`streams.bounded`).

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use hyper::StatusCode;
use larder_api::Failure;
use larder_base::task;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

use crate::session::Session;
use crate::visit::{Answer, Outcome, Server, Visit};

const STREAM_AGE_MAX: Duration = Duration::from_secs(600);
/// A browser that is slower misses states in between, and no more.
const EVENTS_MAX: usize = 4;

/// The fragment now, and when to look again.
pub struct Look {
    pub fragment: String,
    pub again: Duration,
}

/// Makes fragments for one stream.
pub trait Watch: Send + 'static {
    fn look<'a>(&'a mut self, server: &'a Arc<Server>) -> BoxFuture<'a, Result<Look, Failure>>;
}

/// When the daemon does not answer.
const AFTER_FAILURE: Duration = Duration::from_secs(10);

pub fn stream(visit: &Visit<'_>, watch: impl Watch) -> Answer {
    let session = visit.session.as_ref().map(Session::id).unwrap_or_default();
    let Some(permit) = visit.server.streams.admit(visit.user(), session) else {
        return Ok(Outcome::Refused(StatusCode::SERVICE_UNAVAILABLE));
    };
    let (sender, receiver) = mpsc::channel(EVENTS_MAX);
    let server = visit.server.clone();
    let token = visit.token.clone().unwrap_or_default();
    task::spawn(async move {
        let _permit = permit;
        tokio::select! {
            () = run(&server, &token, watch, &sender) => {}
            () = sender.closed() => {}
            () = server.streams.over() => {}
        }
    });
    Ok(Outcome::Stream(receiver))
}

async fn run(server: &Arc<Server>, token: &str, mut watch: impl Watch, sender: &mpsc::Sender<Bytes>) {
    let end = Instant::now() + STREAM_AGE_MAX;
    let mut before = String::new();
    while Instant::now() < end && server.find(token, false).is_some() {
        let (event, again) = match watch.look(server).await {
            Ok(Look { fragment, again }) if fragment != before => {
                let event = event(&fragment);
                before = fragment;
                (event, again)
            }
            // A comment, so that a browser that has gone is noticed.
            Ok(look) => (Bytes::from_static(b":\n\n"), look.again),
            Err(_) => (Bytes::from_static(b":\n\n"), AFTER_FAILURE),
        };
        if sender.send(event).await.is_err() {
            return;
        }
        sleep(again).await;
    }
}

/// A fragment has no carriage returns: the escaper writes those of names out.
fn event(fragment: &str) -> Bytes {
    let mut out = String::with_capacity(fragment.len() + 64);
    for line in fragment.lines() {
        out.push_str("data: ");
        out.push_str(line);
        out.push('\n');
    }
    out.push('\n');
    Bytes::from(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fragments_are_one_event_each() {
        assert_eq!(event("<p>\ndata: x\n\n</p>"), "data: <p>\ndata: data: x\ndata: \ndata: </p>\n\n");
    }
}
