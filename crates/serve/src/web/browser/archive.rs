//! A folder or a selection as an archive, written while the client takes it.
//!
//! - `archive.whole_or_broken`: the answer has no length and ends in its own way (RFC 9112 7.1). If a
//!   file cannot be read, or is shorter than it was, the connection is closed before that end: the
//!   client sees a download that failed, never an archive in which something is missing.
//! - `archive.bounded`: nothing is written to disk. In memory are [`PIECES_MAX`] pieces, a place in each
//!   folder on the way down, and the directory of the archive. [`ARCHIVES_AT_ONCE`] are made at a time.
//!
//! A symbolic link to a file is the file; one to a folder is left out, since it could lead round in a
//! circle. By a link of the server all symbolic links are left out (`visit.links_stay_below`).

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use futures::stream;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use hyper::header::{self, HeaderValue};
use hyper::{Response, StatusCode};
use larder_files::Uses;
use larder_volume::{ACCESS_READ, Attr, FileKind, Ino, NameMatch};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use super::super::context::Answer;
use super::super::fail::Fail;
use super::super::get::disposition;
use super::super::path::{join, name};
use super::html::private;
use super::visit::{SNAPSHOTS, Visit};
use super::zip::{Zip, name_of};
use crate::tree::{Room, Spot};

const READ_BYTES: usize = 512 << 10;
const PIECES_MAX: usize = 3;
const ENTRIES_AT_ONCE: usize = 128;
const ARCHIVES_AT_ONCE: usize = 16;
/// Names that one selection may have.
const SELECTION_MAX: usize = 10_000;
static TURNS: std::sync::LazyLock<Arc<Semaphore>> =
    std::sync::LazyLock::new(|| Arc::new(Semaphore::new(ARCHIVES_AT_ONCE)));

/// Something to go into the archive: where it is, and its name in it.
struct Item {
    room: Room,
    attr: Attr,
    path: Bytes,
    name: String,
}

/// A folder that is being walked.
struct Level {
    room: Room,
    dir: Ino,
    path: Bytes,
    name: String,
    cookie: u64,
    end: u64,
    pending: Vec<(Bytes, Attr)>,
    is_read: bool,
}

type Pieces = mpsc::Sender<io::Result<Bytes>>;

/// The folder `dir`, or only these names of it.
pub async fn answer(visit: Visit, room: Room, dir: Attr, names: Vec<Bytes>) -> Answer {
    room.files().access(&room.cred, dir.id.ino, ACCESS_READ).await?;
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
    let turn = Arc::clone(&TURNS).try_acquire_owned();
    let turn = turn.map_err(|_| {
        Fail::new(StatusCode::SERVICE_UNAVAILABLE, "too many archives are being downloaded: try again soon")
    })?;
    let mut response = Response::new(super::super::context::empty());
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
    tokio::spawn(write(visit, items, sender, turn));
    let pieces =
        stream::poll_fn(move |cx| receiver.poll_recv(cx).map(|piece| piece.map(|piece| piece.map(Frame::data))));
    *response.body_mut() = BodyExt::boxed_unsync(StreamBody::new(pieces));
    Ok(response)
}

async fn write(visit: Visit, items: Vec<Item>, pieces: Pieces, _turn: OwnedSemaphorePermit) {
    let mut zip = Zip::default();
    for item in items {
        match add(&visit, item, &mut zip, &pieces).await {
            Ok(()) => {}
            Err(Stop::ClientLeft) => return,
            Err(Stop::Failed(path, why)) => {
                tracing::warn!(
                    "WebDAV: an archive for '{}' ends early: {}: {why}",
                    visit.context.user.name,
                    path.escape_ascii()
                );
                let _ = pieces.send(Err(io::Error::other(why))).await;
                return;
            }
        }
    }
    let _ = pieces.send(Ok(Bytes::from(zip.finish()))).await;
}

enum Stop {
    ClientLeft,
    Failed(Bytes, String),
}

async fn send(pieces: &Pieces, bytes: Vec<u8>) -> Result<(), Stop> {
    if bytes.is_empty() {
        return Ok(());
    }
    pieces.send(Ok(Bytes::from(bytes))).await.map_err(|_| Stop::ClientLeft)
}

/// One item, with all that is below it.
async fn add(visit: &Visit, item: Item, zip: &mut Zip, pieces: &Pieces) -> Result<(), Stop> {
    if item.attr.kind == FileKind::File {
        return add_file(visit, &item, zip, pieces).await;
    }
    let mut levels = vec![enter(&item, zip, pieces).await?];
    while let Some(level) = levels.last_mut() {
        let Some((entry, attr)) = next(level).await? else {
            levels.pop();
            continue;
        };
        let path = join(&level.path, &entry);
        let is_link = attr.kind == FileKind::Symlink;
        let Some((room, attr)) = visit.entry(&level.room, &attr, &path).await else { continue };
        if is_link && attr.kind == FileKind::Directory {
            continue;
        }
        let inner = name_of(&entry);
        let name = if level.name.is_empty() { inner } else { format!("{}/{inner}", level.name) };
        let item = Item { room, attr, path, name };
        match attr.kind {
            FileKind::Directory => levels.push(enter(&item, zip, pieces).await?),
            _ => add_file(visit, &item, zip, pieces).await?,
        }
    }
    Ok(())
}

async fn enter(item: &Item, zip: &mut Zip, pieces: &Pieces) -> Result<Level, Stop> {
    let failed = |why: String| Stop::Failed(item.path.clone(), why);
    if !item.name.is_empty() {
        let begun = zip.begin(&item.name, true, item.attr.mode, item.attr.mtime);
        let (member, head) = begun.map_err(|_| failed(TOO_MANY.to_owned()))?;
        send(pieces, head).await?;
        zip.end(member);
    }
    Ok(Level {
        room: item.room.clone(),
        dir: item.attr.id.ino,
        path: item.path.clone(),
        name: item.name.clone(),
        cookie: 0,
        end: u64::MAX,
        pending: Vec::new(),
        is_read: false,
    })
}

const TOO_MANY: &str = "it has too many names for one archive, or too long ones";

/// The next entry of a folder. Entries that are made meanwhile are left out.
async fn next(level: &mut Level) -> Result<Option<(Bytes, Attr)>, Stop> {
    while level.pending.is_empty() && !level.is_read {
        let (files, cred) = (level.room.files(), &level.room.cred);
        let listing = match level.end {
            u64::MAX => files.readdir(cred, level.dir, level.cookie, ENTRIES_AT_ONCE, true).await,
            end => files.readdir_before(cred, level.dir, level.cookie, end, ENTRIES_AT_ONCE, true).await,
        };
        let listing = listing.map_err(|error| Stop::Failed(level.path.clone(), error.to_string()))?;
        (level.end, level.is_read) = (level.end.min(listing.end), listing.eof);
        level.cookie = listing.entries.last().map_or(level.cookie, |entry| entry.cookie);
        level.pending = listing.entries.into_iter().filter_map(|entry| Some((entry.name, entry.attr?))).collect();
        level.pending.reverse();
    }
    Ok(level.pending.pop())
}

async fn add_file(visit: &Visit, item: &Item, zip: &mut Zip, pieces: &Pieces) -> Result<(), Stop> {
    let (files, ino) = (item.room.files(), item.attr.id.ino);
    let failed = |why: String| Stop::Failed(item.path.clone(), why);
    let of = |error: larder_volume::FsError| failed(error.to_string());
    visit.context.room_now(&item.room).map_err(|fail| failed(fail.text.into_owned()))?;
    files.access(&item.room.cred, ino, ACCESS_READ).await.map_err(of)?;
    let _open = files.open_judged(item.attr.id, Uses::READ).await.map_err(of)?;
    let attr = files.getattr_settled(item.attr.id).await.map_err(of)?;
    let begun = zip.begin(&item.name, false, attr.mode, attr.mtime);
    let (mut member, head) = begun.map_err(|_| failed(TOO_MANY.to_owned()))?;
    send(pieces, head).await?;
    let mut at = 0;
    while at < attr.size {
        let read = files.read(ino, at, READ_BYTES.min((attr.size - at) as usize)).await.map_err(of)?;
        if read.is_empty() {
            return Err(failed("it was truncated while it was sent".to_owned()));
        }
        at += read.len() as u64;
        visit.context.shared.stats.read(read.len());
        for chunk in read.chunks {
            member.add(&chunk);
            pieces.send(Ok(chunk)).await.map_err(|_| Stop::ClientLeft)?;
        }
    }
    send(pieces, zip.end(member)).await
}

/// Whether a path can be an archive at all.
pub fn folder_of(spot: Spot) -> Result<(Room, Attr), Fail> {
    match spot {
        Spot::In(room, attr) if attr.kind == FileKind::Directory => Ok((room, attr)),
        _ => Err(Fail::bad_request("only a folder can be downloaded as an archive")),
    }
}
