//! A folder or a selection as an archive, written while the client takes it.
//!
//! - `archive.whole_or_broken`: the answer has no length and ends in its own way (RFC 9112 7.1). If
//!   a file cannot be read, or is shorter than it was, the connection is closed before that end:
//!   the client sees a download that failed, never an archive in which something is missing.
//! - `archive.bounded`: nothing is written to disk. In memory are [`PIECES_MAX`] pieces, a place in
//!   each folder on the way down, one path, and the directory of the archive.
//! - `archive.in_turn`: [`OF_USERS_MAX`] are made at a time for users and [`OF_LINKS_MAX`] by
//!   links, of which a user, a link and an address have a few. Nobody with a link takes a user's
//!   place.
//! - `archive.slow_readers_end`: a client that takes longer than [`WINDOW_TIME`] for
//!   [`WINDOW_BYTES`] loses its place.
//!
//! A symbolic link to a file is the file; one to a folder is left out, since it could lead round in
//! a circle. By a link of the server all symbolic links are left out (`visit.links_stay_below`).

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::stream;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use hyper::header::{self, HeaderValue};
use hyper::{Response, StatusCode};
use larder_base::task;
use larder_dav::browsers::{Answer, Fail, Turn, disposition, empty, join, name};
use larder_doors::strangers::network;
use larder_doors::tree::{Room, Spot};
use larder_files::Uses;
use larder_fs::{ACCESS_EXECUTE, ACCESS_READ, Attr, FileKind, Ino, NameMatch};
use tokio::sync::mpsc;

use super::shelf::private;
use super::state::ArchiveKey as Key;
use super::visit::{FileVisit, SNAPSHOTS};
use super::zip::{Zip, name_of};

const READ_BYTES: usize = 512 << 10;
const PIECES_MAX: usize = 3;
const ENTRIES_AT_ONCE: usize = 128;
const OF_USERS_MAX: usize = 16;
const OF_USER_MAX: usize = 4;
/// Users of one household or office come from one address.
const OF_USERS_ADDRESS_MAX: usize = 8;
const OF_LINKS_MAX: usize = 8;
const OF_LINK_MAX: usize = 3;
const OF_LINKS_ADDRESS_MAX: usize = 3;
/// About 35 KB/s: a slow telephone's rate. Time in which the volume is read does not count.
const WINDOW_BYTES: usize = 2 << 20;
const WINDOW_TIME: Duration = Duration::from_secs(60);
/// Names that one selection may have.
const SELECTION_MAX: usize = 10_000;

fn turn(visit: &FileVisit) -> Result<Turn<Key>, Fail> {
    const FULL: Fail =
        Fail::new(StatusCode::SERVICE_UNAVAILABLE, "too many archives are being downloaded: try again soon");
    let (user, address) = (&visit.context.user.name, network(visit.context.view.address));
    let bounds = match &visit.link {
        None => [
            (Key::Users, OF_USERS_MAX),
            (Key::User(user.clone()), OF_USER_MAX),
            (Key::UsersAt(address), OF_USERS_ADDRESS_MAX),
        ],
        Some(link) => [
            (Key::Links, OF_LINKS_MAX),
            (Key::Link(link.prefix.clone()), OF_LINK_MAX),
            (Key::LinksAt(address), OF_LINKS_ADDRESS_MAX),
        ],
    };
    visit.files.archives.take(&bounds).ok_or(FULL)
}

/// Something to go into the archive: where it is, and its name in it.
struct Item {
    room: Room,
    attr: Attr,
    path: Bytes,
    name: String,
}

/// A folder that is being walked. Its path and name in the archive end there in those of the walk.
struct Level {
    room: Room,
    dir: Ino,
    path_bytes: usize,
    name_bytes: usize,
    cookie: u64,
    end: u64,
    pending: Vec<(Bytes, Attr)>,
    is_read: bool,
}

/// The way to the client.
struct Pieces {
    to: mpsc::Sender<io::Result<Bytes>>,
    /// Of the window (`archive.slow_readers_end`): bytes taken, and the time that they were waited
    /// for.
    bytes: usize,
    waited: Duration,
}

/// The folder `dir`, or only these names of it.
pub async fn answer(visit: FileVisit, room: Room, dir: Attr, names: Vec<Bytes>) -> Answer {
    room.files().access(&room.cred, dir.id.ino, ACCESS_READ | ACCESS_EXECUTE).await?;
    if names.len() > SELECTION_MAX {
        return Err(Fail::bad_request("too many names are selected: download the folder"));
    }
    let title = match (names.as_slice(), name(visit.path())) {
        ([one], _) => one.clone(),
        (_, folder) => Bytes::copy_from_slice(folder),
    };
    let mut items = Vec::new();
    let top = visit.path().clone();
    if names.is_empty() {
        let name = name_of(&title);
        items.push(Item { room, attr: dir, path: top, name });
    } else {
        for name in names {
            if name.is_empty() || name.contains(&b'/') || name == *".." || name == *"." || name == SNAPSHOTS {
                return Err(Fail::bad_request("a selected name is none"));
            }
            let attr = room.files().lookup(&room.cred, dir.id.ino, &name, NameMatch::Exact).await?;
            let path = join(&top, &name);
            let (room, attr) = visit.entry(&room, &attr, &path).await.ok_or(Fail::not_found())?;
            items.push(Item { room, attr, path, name: name_of(&name) });
        }
    }
    let turn = turn(&visit)?;
    let mut response = Response::new(empty());
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/zip"));
    private(headers);
    let mut file_name = title.to_vec();
    file_name.extend_from_slice(b".zip");
    if let Ok(value) = HeaderValue::from_str(&disposition(&file_name)) {
        headers.insert(header::CONTENT_DISPOSITION, value);
    }
    if visit.is_head() {
        return Ok(response);
    }
    let (sender, mut receiver) = mpsc::channel(PIECES_MAX);
    let whole = Arc::new(AtomicBool::new(false));
    let is_whole = Arc::clone(&whole);
    task::spawn(async move {
        let pieces = Pieces { to: sender, bytes: 0, waited: Duration::ZERO };
        write(visit, items, pieces, turn, &whole).await;
    });
    // `archive.whole_or_broken`: only a whole archive ends well.
    let end = move || match is_whole.swap(true, Ordering::AcqRel) {
        true => None,
        false => Some(Err(io::Error::other("the archive is not whole"))),
    };
    let pieces = stream::poll_fn(move |cx| {
        receiver.poll_recv(cx).map(|piece| piece.or_else(&end).map(|piece| piece.map(Frame::data)))
    });
    *response.body_mut() = BodyExt::boxed_unsync(StreamBody::new(pieces));
    Ok(response)
}

async fn write(visit: FileVisit, items: Vec<Item>, mut pieces: Pieces, _turn: Turn<Key>, whole: &AtomicBool) {
    let mut zip = Zip::default();
    for item in items {
        let Err(stop) = add(&visit, item, &mut zip, &mut pieces).await else { continue };
        let (user, at, why) = match stop {
            Stop::ClientLeft => return,
            Stop::Slow => (&visit.context.user.name, visit.path().clone(), "the client takes it too slowly".to_owned()),
            Stop::Failed(path, why) => (&visit.context.user.name, path, why),
        };
        tracing::warn!("WebDAV: an archive for '{user}' ends early: {}: {why}", at.escape_ascii());
        return;
    }
    if pieces.send(Bytes::from(zip.finish())).await.is_ok() {
        whole.store(true, Ordering::Release);
    }
}

enum Stop {
    ClientLeft,
    Slow,
    Failed(Bytes, String),
}

impl Pieces {
    async fn send(&mut self, bytes: Bytes) -> Result<(), Stop> {
        if bytes.is_empty() {
            return Ok(());
        }
        let (began, len) = (Instant::now(), bytes.len());
        let sending = tokio::time::timeout(WINDOW_TIME.saturating_sub(self.waited), self.to.send(Ok(bytes)));
        sending.await.map_err(|_| Stop::Slow)?.map_err(|_| Stop::ClientLeft)?;
        self.waited += began.elapsed();
        self.bytes += len;
        if self.bytes >= WINDOW_BYTES {
            (self.bytes, self.waited) = (0, Duration::ZERO);
        }
        Ok(())
    }
}

/// One item, with all that is below it.
async fn add(visit: &FileVisit, item: Item, zip: &mut Zip, pieces: &mut Pieces) -> Result<(), Stop> {
    if item.attr.kind == FileKind::File {
        return add_file(visit, &item, zip, pieces).await;
    }
    let mut levels = vec![enter(&item, zip, pieces).await?];
    let (mut path, mut name) = (item.path.to_vec(), item.name);
    while let Some(level) = levels.last_mut() {
        path.truncate(level.path_bytes);
        name.truncate(level.name_bytes);
        let Some((entry, attr)) = next(level, &path).await? else {
            levels.pop();
            continue;
        };
        path.push(b'/');
        path.extend_from_slice(&entry);
        let is_link = attr.kind == FileKind::Symlink;
        let at = Bytes::copy_from_slice(&path);
        let Some((room, attr)) = visit.entry(&level.room, &attr, &at).await else { continue };
        if is_link && attr.kind == FileKind::Directory {
            continue;
        }
        if !name.is_empty() {
            name.push('/');
        }
        name.push_str(&name_of(&entry));
        let item = Item { room, attr, path: at, name: name.clone() };
        match attr.kind {
            FileKind::Directory => levels.push(enter(&item, zip, pieces).await?),
            _ => add_file(visit, &item, zip, pieces).await?,
        }
    }
    Ok(())
}

async fn enter(item: &Item, zip: &mut Zip, pieces: &mut Pieces) -> Result<Level, Stop> {
    let failed = |why: String| Stop::Failed(item.path.clone(), why);
    let (files, cred) = (item.room.files(), &item.room.cred);
    let entered = files.access(cred, item.attr.id.ino, ACCESS_READ | ACCESS_EXECUTE).await;
    entered.map_err(|error| failed(error.to_string()))?;
    if !item.name.is_empty() {
        let begun = zip.begin(&item.name, true, item.attr.mode, item.attr.mtime);
        let (member, head) = begun.map_err(|_| failed(TOO_MANY.to_owned()))?;
        pieces.send(head.into()).await?;
        zip.end(member);
    }
    Ok(Level {
        room: item.room.clone(),
        dir: item.attr.id.ino,
        path_bytes: item.path.len(),
        name_bytes: item.name.len(),
        cookie: 0,
        end: u64::MAX,
        pending: Vec::new(),
        is_read: false,
    })
}

const TOO_MANY: &str = "it has too many names for one archive, or too long ones";

/// The next entry of a folder. Entries that are made meanwhile are left out.
async fn next(level: &mut Level, path: &[u8]) -> Result<Option<(Bytes, Attr)>, Stop> {
    while level.pending.is_empty() && !level.is_read {
        let (files, cred) = (level.room.files(), &level.room.cred);
        let listing = match level.end {
            u64::MAX => files.readdir(cred, level.dir, level.cookie, ENTRIES_AT_ONCE, true).await,
            end => files.readdir_before(cred, level.dir, level.cookie, end, ENTRIES_AT_ONCE, true).await,
        };
        let listing = listing.map_err(|error| Stop::Failed(Bytes::copy_from_slice(path), error.to_string()))?;
        (level.end, level.is_read) = (level.end.min(listing.end), listing.eof);
        level.cookie = listing.entries.last().map_or(level.cookie, |entry| entry.cookie);
        level.pending = listing.entries.into_iter().filter_map(|entry| Some((entry.name, entry.attr?))).collect();
        level.pending.reverse();
    }
    Ok(level.pending.pop())
}

async fn add_file(visit: &FileVisit, item: &Item, zip: &mut Zip, pieces: &mut Pieces) -> Result<(), Stop> {
    let (files, ino) = (item.room.files(), item.attr.id.ino);
    let failed = |why: String| Stop::Failed(item.path.clone(), why);
    let of = |error: larder_fs::FsError| failed(error.to_string());
    visit.context.room_now(&item.room).map_err(|fail| failed(fail.text.into_owned()))?;
    files.access(&item.room.cred, ino, ACCESS_READ).await.map_err(of)?;
    let _open = files.open_judged(item.attr.id, Uses::READ).await.map_err(of)?;
    let attr = files.getattr_settled(item.attr.id).await.map_err(of)?;
    let begun = zip.begin(&item.name, false, attr.mode, attr.mtime);
    let (mut member, head) = begun.map_err(|_| failed(TOO_MANY.to_owned()))?;
    pieces.send(head.into()).await?;
    let mut at = 0;
    while at < attr.size {
        let read = files.read(ino, at, READ_BYTES.min((attr.size - at) as usize)).await.map_err(of)?;
        if read.is_empty() {
            return Err(failed("it was truncated while it was sent".to_owned()));
        }
        at += read.len() as u64;
        visit.context.sends(read.len());
        for chunk in read.chunks {
            member.add(&chunk);
            pieces.send(chunk).await?;
        }
    }
    pieces.send(zip.end(member).into()).await
}

/// Whether a path can be an archive at all.
pub fn folder_of(spot: Spot) -> Result<(Room, Attr), Fail> {
    match spot {
        Spot::In(room, attr) if attr.kind == FileKind::Directory => Ok((room, attr)),
        _ => Err(Fail::bad_request("only a folder can be downloaded as an archive")),
    }
}
