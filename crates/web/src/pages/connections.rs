//! Who is connected, how fast, and what limits each transfer.

use std::sync::Arc;
use std::time::Duration;

use askama::Template;
use futures::future::BoxFuture;
use larder_api::endpoints::{EndOpenFile, GetOpenFiles, GetTop, GetTopWorst};
use larder_api::{Failure, OpenFile, OpenUse, Top, TopConnection, TopLimit, TopWorst};

use crate::ask;
use crate::live::{self, Look, Watch};
use crate::note::Note;
use crate::text::{Moment, counted, duration, rate};
use crate::visit::{Answer, Frame, Local, Server, Visit, page as show, rendered};

/// Transfers of the last two days on the page.
const WORST_SHOWN_MAX: usize = 50;
/// Between two looks of a second each, while something is transferred; while clients are idle; while there are none.
const BUSY: Duration = Duration::from_secs(1);
const IDLE: Duration = Duration::from_secs(5);
const NOBODY: Duration = Duration::from_secs(10);

pub struct ConnectionView {
    pub client: String,
    pub user: Option<String>,
    pub door: String,
    pub does: String,
    pub rate: String,
    pub limit: &'static str,
    pub sentence: String,
    pub help: Option<String>,
}

impl ConnectionView {
    fn of(one: &TopConnection) -> Self {
        let bytes = one.read_bytes_per_s.saturating_add(one.written_bytes_per_s);
        Self {
            client: one.address.clone(),
            user: one.user.clone(),
            door: door(&one.door),
            does: one.does.clone(),
            rate: if bytes > 0 { rate(bytes) } else { format!("{:.0} requests/s", one.requests_per_s) },
            limit: one.limited_by.word(),
            sentence: one.sentence.clone(),
            help: one.help.clone(),
        }
    }
}

/// A door as people write it.
pub fn door(word: &str) -> String {
    match word {
        "webdav" => "WebDAV".to_owned(),
        other => other.to_uppercase(),
    }
}

/// The connections at one moment.
#[derive(Template)]
#[template(path = "parts/connections.html")]
pub struct Connections {
    transfers: Vec<ConnectionView>,
    idle: Vec<ConnectionView>,
    /// Such as "3 connections are idle.".
    rest: String,
}

impl Connections {
    pub fn of(top: &Top) -> Self {
        let (idle, busy): (Vec<_>, Vec<_>) =
            top.connections.iter().partition(|one| one.limited_by == TopLimit::Nothing);
        let rest = match idle.len() {
            0 if busy.is_empty() => "Nobody is connected.".to_owned(),
            0 => String::new(),
            count => format!("{} idle.", counted(count, "connection is", "connections are")),
        };
        let views = |all: Vec<&TopConnection>| all.into_iter().map(ConnectionView::of).collect();
        Self { transfers: views(busy), idle: views(idle), rest }
    }
}

/// When to look again.
pub fn again(top: &Top) -> Duration {
    match top.connections.iter().any(|one| one.limited_by != TopLimit::Nothing) {
        true => BUSY,
        false if top.connections.is_empty() => NOBODY,
        false => IDLE,
    }
}

pub async fn look(server: &Server) -> Result<Top, Failure> {
    ask::call(&*server.ask, None, GetTop, (), None).await
}

pub struct WorstView {
    pub at: Moment,
    pub client: String,
    pub user: Option<String>,
    pub door: String,
    pub does: String,
    pub rate: String,
    pub lasted: String,
    pub limit: &'static str,
    pub sentence: String,
    pub help: Option<String>,
}

impl WorstView {
    fn of(one: &TopWorst) -> Self {
        Self {
            at: Moment::of_ms_unsigned(one.at_ms),
            client: one.address.clone(),
            user: one.user.clone(),
            door: door(&one.door),
            does: one.does.clone(),
            rate: rate(one.bytes_per_s),
            lasted: duration(one.lasted_ms / 1000),
            limit: one.limited_by.word(),
            sentence: one.sentence.clone(),
            help: one.help.clone(),
        }
    }
}

/// A file that a client has open.
pub struct OpenView {
    pub id: String,
    pub path: String,
    pub place: String,
    pub holder: String,
    pub client: String,
    pub does: String,
    pub denies: String,
    pub locks: u64,
    pub caches: bool,
}

impl OpenView {
    fn of(open: &OpenFile) -> Self {
        let address = open.address.clone().unwrap_or_else(|| "away, may come back".to_owned());
        Self {
            id: open.id.clone(),
            path: open.path.clone().unwrap_or_else(|| "a file opened by its handle".to_owned()),
            place: open.share.clone().or_else(|| open.volume.clone()).unwrap_or_default(),
            holder: open.user.clone().unwrap_or_else(|| "a guest".to_owned()),
            client: format!("{address}, {}", door(&open.door)),
            does: uses(&open.does),
            denies: uses(&open.denies),
            locks: open.locks,
            caches: open.caches,
        }
    }
}

fn uses(all: &[OpenUse]) -> String {
    let words: Vec<&str> = all.iter().map(|one| one.word()).collect();
    if words.is_empty() { "\u{2013}".to_owned() } else { words.join(", ") }
}

#[derive(Template)]
#[template(path = "connections.html")]
struct ConnectionsPage {
    frame: Frame,
    connections: String,
    opens: Vec<OpenView>,
    more_opens: u64,
    worst: Vec<WorstView>,
}

/// Takes the second that a look takes.
pub async fn page(visit: &Visit<'_>) -> Answer {
    let top = visit.ask(GetTop).await?;
    let worst = visit.ask(GetTopWorst).await?;
    let open = visit.ask(GetOpenFiles).await?;
    show(&ConnectionsPage {
        frame: visit.frame("connections", "Connections"),
        connections: rendered(&Connections::of(&top))?,
        opens: open.opens.iter().map(OpenView::of).collect(),
        more_opens: open.more,
        worst: worst.iter().take(WORST_SHOWN_MAX).map(WorstView::of).collect(),
    })
}

pub async fn end_open(visit: &Visit<'_>) -> Answer {
    let change = async {
        let id = visit.required("id", "the open")?;
        visit.about(EndOpenFile, &id).await?;
        Ok(Note::done("The file is closed for that client, and its locks are released.".to_owned()))
    };
    visit.back(Local::of("/connections"), change.await)
}

pub async fn live(visit: &Visit<'_>) -> Answer {
    live::stream(visit, ConnectionWatch)
}

/// `live.wakes_nothing`: figures come from memory, `/proc` and `/sys`.
struct ConnectionWatch;

impl Watch for ConnectionWatch {
    fn look<'a>(&'a mut self, server: &'a Arc<Server>) -> BoxFuture<'a, Result<Look, Failure>> {
        Box::pin(async move {
            let top = look(server).await?;
            Ok(Look { fragment: rendered(&Connections::of(&top))?, again: again(&top) })
        })
    }
}
