//! PROPFIND and PROPPATCH (RFC 4918 9.1, 9.2): what is told of a file, and what a client may change of it.
//!
//! - `props.row_bounded`: an answer is written row by row, a row for each file, so a row has a bounded size: a
//!   property is told once however often it is asked for, at most [`LOCKS_TOLD_MAX`] locks are told, and properties
//!   that clients made up beyond [`DEAD_BYTES_MAX`] have the status 507. Asked for by name they fit in further answers.

use std::collections::HashSet;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use futures::stream;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use hyper::header::{self, HeaderValue};
use hyper::{Response, StatusCode};
use larder_base::{Timestamp, task};
use larder_fs::{ACCESS_EXECUTE, ACCESS_READ, Attr, FileKind, FsResult, Ino, Listing, SetAttr, SetTime};
use roxmltree::Node;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::civil::{civil, http_date};
use super::context::{Answer, Context, Depth, XML_TYPE, file_key, xml as xml_answer};
use super::dead;
use super::deep::{self, Below};
use super::fail::Fail;
use super::kinds::content_type;
use super::lock_ops::push_discovery;
use super::path::{name as last_name, push_href};
use super::text::{push_decimal, push_http_date, push_validator};
use super::xml::{self, DAV, Name, push_text};
use larder_doors::tree::{LOOKS_MAX, Room, Spot};

/// Entries asked of the volume at once. Each question costs as much as some dozen entries.
const ENTRIES_AT_ONCE: usize = 512;
/// Bytes of an answer that go together, and how many of such pieces may wait for a client.
const PIECE_BYTES: usize = 64 << 10;
const PIECES_MAX: usize = 2;
/// Properties that clients made up, of one file in one answer: each has up to 32 KiB and is parsed before it is told.
const DEAD_BYTES_MAX: usize = 256 << 10;
/// Each has an owner of up to 4 KiB and a path. More than one or two are shared locks, which few clients take.
const LOCKS_TOLD_MAX: usize = 32;
const APACHE: &str = "http://apache.org/dav/props/";
const MICROSOFT: &str = "urn:schemas-microsoft-com:";
const BEGIN: &str = "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<D:multistatus xmlns:D=\"DAV:\">";
const END: &str = "</D:multistatus>";
const SUPPORTED_LOCKS: &str = "<D:supportedlock><D:lockentry><D:lockscope><D:exclusive/></D:lockscope><D:locktype>\
     <D:write/></D:locktype></D:lockentry><D:lockentry><D:lockscope><D:shared/></D:lockscope><D:locktype><D:write/>\
     </D:locktype></D:lockentry></D:supportedlock>";

/// Properties that the server knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Live {
    CreationDate,
    DisplayName,
    ContentLength,
    ContentType,
    Etag,
    LastModified,
    LockDiscovery,
    ResourceType,
    SupportedLock,
    Executable,
    QuotaAvailable,
    QuotaUsed,
}

/// Those that `allprop` names; quotas are told to those who ask for them (RFC 4331 3).
const ALL: [Live; 10] = [
    Live::CreationDate,
    Live::DisplayName,
    Live::ContentLength,
    Live::ContentType,
    Live::Etag,
    Live::LastModified,
    Live::LockDiscovery,
    Live::ResourceType,
    Live::SupportedLock,
    Live::Executable,
];
const QUOTAS: [Live; 2] = [Live::QuotaAvailable, Live::QuotaUsed];

impl Live {
    const fn name(self) -> (&'static str, &'static str) {
        match self {
            Self::CreationDate => (DAV, "creationdate"),
            Self::DisplayName => (DAV, "displayname"),
            Self::ContentLength => (DAV, "getcontentlength"),
            Self::ContentType => (DAV, "getcontenttype"),
            Self::Etag => (DAV, "getetag"),
            Self::LastModified => (DAV, "getlastmodified"),
            Self::LockDiscovery => (DAV, "lockdiscovery"),
            Self::ResourceType => (DAV, "resourcetype"),
            Self::SupportedLock => (DAV, "supportedlock"),
            Self::Executable => (APACHE, "executable"),
            Self::QuotaAvailable => (DAV, "quota-available-bytes"),
            Self::QuotaUsed => (DAV, "quota-used-bytes"),
        }
    }

    fn of(name: &Name) -> Option<Self> {
        ALL.into_iter().chain(QUOTAS).find(|live| live.name() == (name.space.as_str(), name.local.as_str()))
    }
}

#[derive(Clone, Debug)]
enum Wanted {
    Live(Live),
    Dead(Name),
}

impl Wanted {
    fn of(name: Name) -> Self {
        Live::of(&name).map_or(Self::Dead(name), Self::Live)
    }

    fn push_name(&self, out: &mut String) {
        match self {
            Self::Dead(name) => name.push_empty(out),
            Self::Live(live) => {
                let (space, local) = live.name();
                Name { space: space.to_owned(), local: local.to_owned() }.push_empty(out);
            }
        }
    }
}

/// What a PROPFIND asks for.
enum Asked {
    /// Everything that is there, and these.
    All(Vec<Wanted>),
    Names,
    Some(Vec<Wanted>),
}

/// RFC 4918 9.1: no body asks for everything.
fn asked(body: &[u8]) -> Result<Asked, Fail> {
    const BAD: Fail = Fail::bad_request("the body is no propfind of RFC 4918");
    if body.iter().all(u8::is_ascii_whitespace) {
        return Ok(Asked::All(Vec::new()));
    }
    let text = std::str::from_utf8(body).map_err(|_| BAD)?;
    let document = xml::parse(text)?;
    let root = document.root_element();
    if !xml::is(root, "propfind") {
        return Err(BAD);
    }
    let names = |node: Node<'_, '_>| {
        let names: Vec<_> = xml::elements(node).take(xml::NAMES_MAX + 1).map(Name::of).collect();
        if names.len() > xml::NAMES_MAX {
            return Err(TOO_MANY);
        }
        let mut seen = HashSet::new();
        Ok(names.into_iter().filter(|name| seen.insert(name.clone())).map(Wanted::of).collect::<Vec<_>>())
    };
    if let Some(node) = xml::child(root, "prop") {
        return Ok(Asked::Some(names(node)?));
    }
    if xml::child(root, "propname").is_some() {
        return Ok(Asked::Names);
    }
    xml::child(root, "allprop").ok_or(BAD)?;
    Ok(Asked::All(xml::child(root, "include").map(names).transpose()?.unwrap_or_default()))
}

/// `deep.small_trees_only`.
fn too_deep() -> Fail {
    Fail::forbidden("the tree is too large for one answer: ask with depth 1, folder by folder")
        .with("<D:propfind-finite-depth/>")
}

const TOO_MANY: Fail = Fail::bad_request("the body names more properties than anything has");

/// A resource that is told about.
struct Resource<'r> {
    path: &'r [u8],
    /// `None`: the directory of shares.
    at: Option<(&'r Room, &'r Attr)>,
}

impl Resource<'_> {
    fn is_folder(&self) -> bool {
        self.at.is_none_or(|(_, attr)| attr.kind == FileKind::Directory)
    }
}

pub async fn propfind(context: Arc<Context>, body: &[u8]) -> Answer {
    let asked = xml::read((&context.shared.parsing, context.view.address), body, asked).await?;
    let depth = context.depth(Depth::Infinity)?;
    let spot = context.view.find(&context.place.path, true).await?;
    let is_folder = match &spot {
        Spot::Top => true,
        Spot::In(_, attr) => attr.kind == FileKind::Directory,
    };
    let everything = match &spot {
        Spot::In(room, attr) if depth == Depth::Infinity && is_folder => {
            Some(deep::everything(&context, room, attr, &context.place.path).await?.ok_or_else(too_deep)?)
        }
        Spot::Top if depth == Depth::Infinity => return Err(too_deep()),
        _ => None,
    };
    let spot = match spot {
        Spot::In(room, attr) if attr.kind == FileKind::File => {
            let attr = room.files().getattr_settled(attr.id).await?;
            Spot::In(room, attr)
        }
        spot => spot,
    };
    let mut out = String::with_capacity(PIECE_BYTES);
    out.push_str(BEGIN);
    let at = match &spot {
        Spot::Top => None,
        Spot::In(room, attr) => Some((room, attr)),
    };
    push_response(&context, &mut out, &Resource { path: &context.place.path, at }, &asked).await?;
    if !is_folder || depth == Depth::Zero {
        out.push_str(END);
        return Ok(no_store(xml_answer(StatusCode::MULTI_STATUS, out)));
    }
    // Who may not read the folder, or look its names up, is told so by the status.
    if let Spot::In(room, attr) = &spot {
        room.files().access(&room.cred, attr.id.ino, ACCESS_READ | ACCESS_EXECUTE).await?;
    }
    let (pieces, waiting) = mpsc::channel(PIECES_MAX);
    task::spawn(async move {
        let teller = Teller { context, asked, out, pieces: pieces.clone() };
        let told = match everything {
            Some(all) => teller.tell_all(all).await,
            None => teller.tell(spot).await,
        };
        if let Err(fail) = told {
            // The answer ends in the middle, so that the client knows that it is not whole.
            let _ = pieces.send(Err(io::Error::other(fail.text))).await;
        }
    });
    let pieces = stream::unfold(waiting, |mut waiting| async {
        let piece: Option<io::Result<Bytes>> = waiting.recv().await;
        piece.map(|piece| (piece.map(Frame::data), waiting))
    });
    let mut response = Response::new(BodyExt::boxed_unsync(StreamBody::new(pieces)));
    *response.status_mut() = StatusCode::MULTI_STATUS;
    response.headers_mut().insert(header::CONTENT_TYPE, XML_TYPE);
    Ok(no_store(response))
}

fn no_store(mut response: Response<super::context::Body>) -> Response<super::context::Body> {
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Tells about the entries of a folder, as fast as the client takes it.
struct Teller {
    context: Arc<Context>,
    asked: Asked,
    out: String,
    pieces: mpsc::Sender<io::Result<Bytes>>,
}

impl Teller {
    async fn tell(mut self, spot: Spot) -> Result<(), Fail> {
        let mut path = self.context.place.path.to_vec();
        match spot {
            Spot::Top => {
                let rooms: Vec<Room> = self.context.view.rooms().collect();
                for room in rooms {
                    // A share whose folder is gone meanwhile is left out.
                    let Ok(attr) = room.files().getattr(room.root()).await else { continue };
                    let name = room.name().to_owned();
                    self.entry(name.as_bytes(), &room, &attr).await?;
                }
            }
            Spot::In(room, dir) => {
                if !path.is_empty() {
                    path.push(b'/');
                }
                let (top, room) = (path.len(), Arc::new(room));
                let (mut page, mut end) = (ask(&room, dir.id.ino, 0, u64::MAX), u64::MAX);
                loop {
                    let listing = page
                        .await
                        .map_err(|_| Fail::new(StatusCode::INTERNAL_SERVER_ERROR, "a listing broke off"))??;
                    end = end.min(listing.end);
                    let following = listing.entries.last().filter(|_| !listing.eof && !self.pieces.is_closed());
                    let following = following.map(|last| ask(&room, dir.id.ino, last.cookie, end));
                    for entry in &listing.entries {
                        // Removed since it was listed.
                        let Some(attr) = &entry.attr else { continue };
                        path.truncate(top);
                        path.extend_from_slice(&entry.name);
                        if matches!(attr.kind, FileKind::File | FileKind::Directory) {
                            self.entry(&path, &room, attr).await?;
                            continue;
                        }
                        let leads_to = self.context.resolved(&room, attr, &Bytes::copy_from_slice(&path)).await;
                        if let Some(Spot::In(room, attr)) = leads_to {
                            self.entry(&path, &room, &attr).await?;
                        }
                    }
                    match following {
                        Some(following) => page = following,
                        None => break,
                    }
                }
            }
        }
        self.out.push_str(END);
        self.flush().await;
        Ok(())
    }

    async fn tell_all(mut self, all: Vec<Below>) -> Result<(), Fail> {
        for Below { path, room, attr } in &all {
            if self.pieces.is_closed() {
                return Ok(());
            }
            self.entry(path, room, attr).await?;
        }
        self.out.push_str(END);
        self.flush().await;
        Ok(())
    }

    async fn entry(&mut self, path: &[u8], room: &Room, attr: &Attr) -> Result<(), Fail> {
        let begin = self.out.len();
        let mut newer: Option<(Room, Attr)> = None;
        for _ in 0..LOOKS_MAX {
            let (room, attr) = newer.as_ref().map_or((room, attr), |(room, attr)| (room, attr));
            let resource = Resource { path, at: Some((room, attr)) };
            match push_response(&self.context, &mut self.out, &resource, &self.asked).await {
                // Replaced since it was listed (`tree.names_are_always_there`).
                Err(fail) if fail.is_stale => self.out.truncate(begin),
                pushed => {
                    pushed?;
                    break;
                }
            }
            newer = match self.context.look(&Bytes::copy_from_slice(path)).await? {
                Some(Spot::In(room, attr)) => Some((room, attr)),
                Some(Spot::Top) | None => return Ok(()),
            };
        }
        if self.out.len() >= PIECE_BYTES {
            self.flush().await;
        }
        Ok(())
    }

    /// A client that is gone takes nothing more; the listing ends with the next page.
    async fn flush(&mut self) {
        let piece = std::mem::replace(&mut self.out, String::with_capacity(PIECE_BYTES + (8 << 10)));
        let _ = self.pieces.send(Ok(Bytes::from(piece))).await;
    }
}

/// Asks for the entries after `cookie`. The answer comes while those before are written.
fn ask(room: &Arc<Room>, dir: Ino, cookie: u64, end: u64) -> JoinHandle<FsResult<Listing>> {
    let room = Arc::clone(room);
    task::spawn_for(async move {
        let (files, cred) = (room.files(), &room.cred);
        match end {
            u64::MAX => files.readdir(cred, dir, cookie, ENTRIES_AT_ONCE, true).await,
            end => files.readdir_before(cred, dir, cookie, end, ENTRIES_AT_ONCE, true).await,
        }
    })
}

impl Context {
    /// What an entry of a folder is: a file, a folder, or what a symbolic link leads to. `None`: nothing that clients
    /// can use.
    pub async fn resolved(&self, room: &Room, attr: &Attr, path: &Bytes) -> Option<Spot> {
        match attr.kind {
            FileKind::File | FileKind::Directory => Some(Spot::In(room.clone(), *attr)),
            FileKind::Symlink => {
                let found = self.view.find(path, true).await.ok()?;
                let is_usable =
                    matches!(&found, Spot::In(_, attr) if matches!(attr.kind, FileKind::File | FileKind::Directory));
                is_usable.then_some(found)
            }
            _ => None,
        }
    }
}

/// The properties of one resource, by the status that they are told with.
struct Row<'o> {
    out: &'o mut String,
    dead_bytes: usize,
    missing: String,
    left_out: String,
}

async fn push_response(
    context: &Context,
    out: &mut String,
    resource: &Resource<'_>,
    asked: &Asked,
) -> Result<(), Fail> {
    out.push_str("<D:response><D:href>");
    push_href(out, resource.path, resource.is_folder());
    out.push_str("</D:href><D:propstat><D:prop>");
    let mut row = Row { out, dead_bytes: 0, missing: String::new(), left_out: String::new() };
    match asked {
        Asked::Some(list) => {
            for wanted in list {
                row.push_wanted(context, resource, wanted).await?;
            }
        }
        Asked::All(more) => {
            for live in ALL {
                push_live(context, row.out, resource, live);
            }
            if let Some((room, attr)) = resource.at {
                for name in dead::names(room, attr.id.ino).await? {
                    row.push_dead(room, attr.id.ino, &name).await?;
                }
            }
            let is_more = |wanted: &&Wanted| matches!(wanted, Wanted::Live(live) if !ALL.contains(live));
            for wanted in more.iter().filter(is_more) {
                row.push_wanted(context, resource, wanted).await?;
            }
        }
        Asked::Names => {
            let mut scratch = String::new();
            for live in ALL.into_iter().chain(QUOTAS) {
                scratch.clear();
                if push_live(context, &mut scratch, resource, live) {
                    Wanted::Live(live).push_name(row.out);
                }
            }
            if let Some((room, attr)) = resource.at {
                for name in dead::names(room, attr.id.ino).await? {
                    name.push_empty(row.out);
                }
            }
        }
    }
    row.end();
    Ok(())
}

impl Row<'_> {
    async fn push_wanted(&mut self, context: &Context, resource: &Resource<'_>, wanted: &Wanted) -> Result<(), Fail> {
        let is_there = match (wanted, resource.at) {
            (Wanted::Live(live), _) => push_live(context, self.out, resource, *live),
            (Wanted::Dead(_), None) => false,
            (Wanted::Dead(name), Some((room, attr))) => self.push_dead(room, attr.id.ino, name).await?,
        };
        if !is_there {
            wanted.push_name(&mut self.missing);
        }
        Ok(())
    }

    /// `false`: there is no such property.
    async fn push_dead(&mut self, room: &Room, ino: Ino, name: &Name) -> Result<bool, Fail> {
        // `props.row_bounded`: what is left out is not even read.
        if self.dead_bytes > DEAD_BYTES_MAX {
            name.push_empty(&mut self.left_out);
            return Ok(true);
        }
        let element = dead::read(room, ino, name).await?;
        self.dead_bytes += element.as_ref().map_or(0, String::len);
        self.out.extend(element.as_deref());
        Ok(element.is_some())
    }

    fn end(self) {
        self.out.push_str("</D:prop><D:status>HTTP/1.1 200 OK</D:status></D:propstat>");
        for (names, status) in [(self.missing, "404 Not Found"), (self.left_out, "507 Insufficient Storage")] {
            if !names.is_empty() {
                self.out.push_str("<D:propstat><D:prop>");
                self.out.push_str(&names);
                self.out.push_str(&format!("</D:prop><D:status>HTTP/1.1 {status}</D:status></D:propstat>"));
            }
        }
        self.out.push_str("</D:response>");
    }
}

fn push_live(context: &Context, out: &mut String, resource: &Resource<'_>, live: Live) -> bool {
    use std::fmt::Write;
    let is_file = !resource.is_folder();
    let attr = resource.at.map(|(_, attr)| attr);
    let (mtime, btime) = attr.map_or((context.shared.started, context.shared.started), |attr| (attr.mtime, attr.btime));
    // Writing to memory does not fail.
    let _ = match live {
        Live::CreationDate => write!(out, "<D:creationdate>{}</D:creationdate>", rfc3339(btime)),
        Live::DisplayName => {
            out.push_str("<D:displayname>");
            push_text(out, &String::from_utf8_lossy(last_name(resource.path)));
            out.push_str("</D:displayname>");
            Ok(())
        }
        Live::ContentLength | Live::ContentType | Live::Executable if !is_file => return false,
        Live::ContentLength => {
            out.push_str("<D:getcontentlength>");
            push_decimal(out, attr.map_or(0, |attr| attr.size));
            out.push_str("</D:getcontentlength>");
            Ok(())
        }
        Live::ContentType => {
            write!(out, "<D:getcontenttype>{}</D:getcontenttype>", content_type(last_name(resource.path)))
        }
        Live::Etag => match attr {
            Some(attr) => {
                out.push_str("<D:getetag>&quot;");
                push_validator(out, attr);
                out.push_str("&quot;</D:getetag>");
                Ok(())
            }
            None => return false,
        },
        Live::LastModified => {
            out.push_str("<D:getlastmodified>");
            push_http_date(out, mtime);
            out.push_str("</D:getlastmodified>");
            Ok(())
        }
        Live::LockDiscovery => {
            let file = resource.at.and_then(|(room, attr)| file_key(room, attr));
            let locks = match context.shared.locks.is_empty() {
                true => Vec::new(),
                false => context.shared.locks.covering(resource.path, file, LOCKS_TOLD_MAX),
            };
            push_discovery(out, &locks);
            Ok(())
        }
        Live::ResourceType => {
            out.push_str(match is_file {
                true => "<D:resourcetype/>",
                false => "<D:resourcetype><D:collection/></D:resourcetype>",
            });
            Ok(())
        }
        Live::SupportedLock => {
            out.push_str(SUPPORTED_LOCKS);
            Ok(())
        }
        Live::Executable => {
            let is_set = attr.is_some_and(|attr| attr.mode & 0o100 != 0);
            let word = if is_set { "T" } else { "F" };
            write!(out, "<p:executable xmlns:p=\"{APACHE}\">{word}</p:executable>")
        }
        Live::QuotaAvailable | Live::QuotaUsed => match resource.at {
            Some((room, attr)) if attr.kind == FileKind::Directory => {
                let left = room.files().statfs(&room.cred);
                let used = left.total_bytes.saturating_sub(left.free_bytes);
                match live {
                    Live::QuotaUsed => write!(out, "<D:quota-used-bytes>{used}</D:quota-used-bytes>"),
                    _ => {
                        let available = left.available_bytes;
                        write!(out, "<D:quota-available-bytes>{available}</D:quota-available-bytes>")
                    }
                }
            }
            _ => return false,
        },
    };
    true
}

/// `2026-11-25T12:30:00Z`.
pub fn rfc3339(time: Timestamp) -> String {
    let (year, month, day, secs) = civil(time);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", secs / 3600, secs / 60 % 60, secs % 60)
}

/// Undoes one change of a PROPPATCH.
enum Undo {
    Attributes(SetAttr),
    Dead(dead::Before),
    Nothing,
}

/// A property to be set or removed.
struct Update {
    is_set: bool,
    name: Name,
    /// What it says, for properties of the server.
    text: String,
    /// All of it, for others that are set.
    element: Result<String, Fail>,
}

/// What a PROPPATCH changes, in its order.
fn updates(body: &[u8]) -> Result<Vec<Update>, Fail> {
    const BAD: Fail = Fail::bad_request("the body is no propertyupdate of RFC 4918");
    let text = std::str::from_utf8(body).map_err(|_| BAD)?;
    let document = xml::parse(text)?;
    let root = document.root_element();
    if !xml::is(root, "propertyupdate") {
        return Err(BAD);
    }
    let mut changes = Vec::new();
    for instruction in xml::elements(root) {
        let is_set = xml::is(instruction, "set");
        if !is_set && !xml::is(instruction, "remove") {
            continue;
        }
        let properties = xml::child(instruction, "prop").ok_or(BAD)?;
        changes.extend(xml::elements(properties).take(xml::NAMES_MAX + 1).map(|property| (is_set, property)));
        if changes.len() > xml::NAMES_MAX {
            return Err(TOO_MANY);
        }
    }
    let update = |(is_set, property): (bool, Node<'_, '_>)| {
        let (name, mut element) = (Name::of(property), String::new());
        let pushed = if is_set { xml::push_element(&mut element, property) } else { Ok(()) };
        let text = property.text().unwrap_or_default().trim().to_owned();
        Update { is_set, name, text, element: pushed.map(|()| element) }
    };
    Ok(changes.into_iter().map(update).collect())
}

pub async fn proppatch(context: &Context, body: &[u8]) -> Answer {
    let changes = xml::read((&context.shared.parsing, context.view.address), body, updates).await?;
    let spot = context.view.find(&context.place.path, true).await?;
    context.check_conditions(Some(&spot)).await?;
    context.check_locks(&context.place.path, Some(&spot), &context.tokens()?)?;
    let Spot::In(room, attr) = spot else { return Err(Fail::forbidden("the list of shares cannot be changed")) };
    room.to_change()?;
    let (mut undos, mut failed) = (Vec::new(), None);
    for (number, update) in changes.iter().enumerate() {
        match change(&room, &attr, update).await {
            Ok(undo) => undos.push(undo),
            Err(fail) => {
                failed = Some((number, fail));
                break;
            }
        }
    }
    // All of them or none (RFC 4918 9.2).
    if failed.is_some() {
        while let Some(undo) = undos.pop() {
            undo_one(&room, attr.id.ino, undo).await;
        }
    }
    let is_folder = attr.kind == FileKind::Directory;
    let names: Vec<&Name> = changes.iter().map(|update| &update.name).collect();
    let mut out = BEGIN.to_owned();
    out.push_str("<D:response><D:href>");
    push_href(&mut out, &context.place.path, is_folder);
    out.push_str("</D:href>");
    match &failed {
        None => push_propstat(&mut out, names.iter().copied(), StatusCode::OK, None),
        Some((at, fail)) => {
            push_propstat(&mut out, names.iter().copied().skip(*at).take(1), fail.status, fail.condition.as_deref());
            let others = names.iter().copied().enumerate().filter(|(number, _)| number != at).map(|(_, name)| name);
            if names.len() > 1 {
                push_propstat(&mut out, others, StatusCode::FAILED_DEPENDENCY, None);
            }
        }
    }
    out.push_str("</D:response>");
    out.push_str(END);
    Ok(xml_answer(StatusCode::MULTI_STATUS, out))
}

fn push_propstat<'n>(
    out: &mut String,
    names: impl Iterator<Item = &'n Name>,
    status: StatusCode,
    condition: Option<&str>,
) {
    out.push_str("<D:propstat><D:prop>");
    names.for_each(|name| name.push_empty(out));
    out.push_str(&format!("</D:prop><D:status>HTTP/1.1 {status}</D:status>"));
    if let Some(condition) = condition {
        out.push_str(&format!("<D:error>{condition}</D:error>"));
    }
    out.push_str("</D:propstat>");
}

async fn change(room: &Room, attr: &Attr, update: &Update) -> Result<Undo, Fail> {
    const PROTECTED: Fail = Fail::forbidden("the server alone sets this property");
    let Update { is_set, name, text, element } = update;
    let (is_set, text) = (*is_set, text.as_str());
    let set = match (Live::of(name), name.space.as_str(), name.local.as_str()) {
        (Some(Live::Executable), ..) if is_set && attr.kind == FileKind::File => {
            let bits = match text {
                "T" => attr.mode | 0o111 & attr.mode >> 2 | 0o100,
                "F" => attr.mode & !0o111,
                _ => return Err(Fail::conflict("the property is neither T nor F")),
            };
            SetAttr { mode: Some(bits), ..SetAttr::default() }
        }
        (Some(_), ..) => return Err(PROTECTED.with("<D:cannot-modify-protected-property/>")),
        // The redirector of Windows sends times and attributes of files this way.
        (None, MICROSOFT, what) if is_set => match windows(what, text)? {
            Some(set) => set,
            None => return Ok(Undo::Nothing),
        },
        (None, MICROSOFT, _) => return Ok(Undo::Nothing),
        _ => {
            let element = element.as_ref().map_err(Clone::clone)?;
            return Ok(Undo::Dead(dead::change(room, attr.id.ino, name, is_set.then_some(element)).await?));
        }
    };
    room.to_change()?.setattr(&room.cred, attr.id.ino, set).await?;
    let time = |set: Option<SetTime>, time: Timestamp| set.map(|_| SetTime::To(time));
    Ok(Undo::Attributes(SetAttr {
        mode: set.mode.map(|_| attr.mode),
        atime: time(set.atime, attr.atime),
        mtime: time(set.mtime, attr.mtime),
        btime: set.btime.map(|_| attr.btime),
        dos: set.dos.map(|_| attr.dos),
        ..SetAttr::default()
    }))
}

/// `None`: it is taken for set, as that client expects, and means nothing here.
fn windows(what: &str, text: &str) -> Result<Option<SetAttr>, Fail> {
    /// READONLY, HIDDEN, SYSTEM, ARCHIVE.
    const KEPT: u32 = 0x27;
    const BAD: Fail = Fail::conflict("the value of the property is not understood");
    let time = || http_date(text).map(|secs| Timestamp::new(secs, 0)).ok_or(BAD);
    let set = SetAttr::default();
    Ok(match what {
        "Win32LastModifiedTime" => Some(SetAttr { mtime: Some(SetTime::To(time()?)), ..set }),
        "Win32LastAccessTime" => Some(SetAttr { atime: Some(SetTime::To(time()?)), ..set }),
        "Win32CreationTime" => Some(SetAttr { btime: Some(time()?), ..set }),
        "Win32FileAttributes" => {
            Some(SetAttr { dos: Some(u32::from_str_radix(text, 16).map_err(|_| BAD)? & KEPT), ..set })
        }
        _ => None,
    })
}

async fn undo_one(room: &Room, ino: Ino, undo: Undo) {
    match undo {
        Undo::Nothing => {}
        Undo::Dead(before) => dead::undo(room, ino, before).await,
        Undo::Attributes(set) => {
            let Ok(files) = room.to_change() else { return };
            if let Err(error) = files.setattr(&room.cred, ino, set).await {
                tracing::warn!(%error, "WebDAV: an attribute could not be set back");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn dates_of_the_calendar() {
        for (secs, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_795_609_800, "2026-11-25T12:30:00Z"),
            (-1, "1969-12-31T23:59:59Z"),
            (i64::MAX, "9999-12-31T23:59:59Z"),
            (i64::MIN, "0001-01-01T00:00:00Z"),
        ] {
            assert_eq!(rfc3339(Timestamp::new(secs, 0)), text);
        }
    }

    #[test]
    fn bodies_of_propfind() {
        let of = |body: &str| asked(body.as_bytes());
        assert!(matches!(of(""), Ok(Asked::All(more)) if more.is_empty()));
        assert!(matches!(of("<propfind xmlns='DAV:'><propname/></propfind>"), Ok(Asked::Names)));
        let some =
            of("<D:propfind xmlns:D='DAV:'><D:prop><D:getetag/><x xmlns='urn:y'/></D:prop></D:propfind>").unwrap();
        assert!(matches!(some, Asked::Some(list) if matches!(&list[..], [Wanted::Live(Live::Etag), Wanted::Dead(_)])));
        for bad in ["x", "<propfind/>", "<propfind xmlns='DAV:'/>", "<a xmlns='DAV:'><prop/></a>"] {
            assert!(of(bad).is_err(), "{bad}");
        }
    }
}
