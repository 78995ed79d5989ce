//! Search by name below a folder.
//!
//! - `search.bounded`: a search ends after [`TIME_MAX`], with [`RESULTS_MAX`] results, or
//!   [`FOLDERS_MAX`] folders or [`PATHS_BYTES_MAX`] of their paths still to be read, and says so.
//!   [`SEARCHES_AT_ONCE`] run at a time. One whose client has left ends where it waits next.
//! - `search.enters`: only folders that the user may list and search are looked into.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use askama::Template;
use bytes::Bytes;
use hyper::StatusCode;
use larder_dav::browsers::{Answer, Fail, join, name, parent};
use larder_doors::tree::Room;
use larder_fs::{ACCESS_EXECUTE, ACCESS_READ, Attr, FileKind, FsError, Ino};
use tokio::sync::Semaphore;

use super::listing::{kind_icon, search_box};
use super::shelf::{Shelf, counted, human, respond};
use super::visit::FileVisit;
use crate::text::Moment;
use crate::visit::Frame;

const TIME_MAX: Duration = Duration::from_secs(10);
const RESULTS_MAX: usize = 500;
const FOLDERS_MAX: usize = 100_000;
const PATHS_BYTES_MAX: usize = 16 << 20;
/// Behind a longer path nothing can be opened here.
const PATH_BYTES_MAX: usize = 4096;
const ENTRIES_AT_ONCE: usize = 512;
const SEARCHES_AT_ONCE: usize = 4;
const WORDS_MAX: usize = 16;
static TURNS: Semaphore = Semaphore::const_new(SEARCHES_AT_ONCE);

struct Hit {
    path: Bytes,
    attr: Attr,
}

#[derive(Default)]
struct Found {
    hits: Vec<Hit>,
    looked_at: u64,
    /// Why it ended early.
    cut: Option<&'static str>,
}

/// Each word is in the name, in any order and either case.
struct Words(Vec<String>);

impl Words {
    fn of(text: &str) -> Self {
        Self(text.split_whitespace().take(WORDS_MAX).map(str::to_lowercase).collect())
    }

    fn are_in(&self, name: &[u8]) -> bool {
        let name = String::from_utf8_lossy(name).to_lowercase();
        self.0.iter().all(|word| name.contains(word.as_str()))
    }
}

/// A match as the page shows it.
struct HitView {
    href: String,
    mark: &'static str,
    name: String,
    folder_href: String,
    /// Below the folder of the search; empty for itself.
    folder: String,
    size: String,
    at: Moment,
}

impl HitView {
    fn of(visit: &FileVisit, hit: &Hit) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let is_folder = hit.attr.kind == FileKind::Directory;
        let (mark, query) = if is_folder { ("folder", "") } else { (kind_icon(name(&hit.path)), "?view") };
        let folder = parent(&hit.path);
        let below = folder.strip_prefix(&visit.path()[..]).unwrap_or_default();
        Self {
            href: format!("{}{query}", visit.href(&hit.path, is_folder)),
            mark,
            name: text(name(&hit.path)),
            folder_href: visit.href(&folder, true),
            folder: text(below.strip_prefix(b"/").unwrap_or(below)),
            size: if is_folder { String::new() } else { human(hit.attr.size) },
            at: Moment::of_stamp(hit.attr.mtime),
        }
    }
}

#[derive(Template)]
#[template(path = "files/search.html")]
struct FileSearchPage {
    frame: Frame,
    shelf: Shelf,
    matches: String,
    words: String,
    top_href: String,
    top: String,
    looked_at: String,
    cut: &'static str,
    hits: Vec<HitView>,
}

pub async fn page(visit: &FileVisit, room: &Room, dir: &Attr, text: &str) -> Answer {
    let text: String = text.chars().take(200).collect();
    let words = Words::of(&text);
    let Ok(_turn) = TURNS.acquire().await else { return Err(Fail::not_found()) };
    let found = match words.0.is_empty() {
        true => Found::default(),
        false => search(room, dir, visit.path(), &words).await?,
    };
    let page = FileSearchPage {
        frame: visit.viewer.frame(&format!("Search: {text}")),
        shelf: Shelf { search: search_box(visit, &text), ..Shelf::of(visit, "") },
        matches: counted(found.hits.len() as u64, "match", "matches"),
        words: text,
        top_href: visit.href(visit.path(), true),
        top: String::from_utf8_lossy(name(visit.path())).into_owned(),
        looked_at: counted(found.looked_at, "name", "names"),
        cut: found.cut.unwrap_or_default(),
        hits: found.hits.iter().map(|hit| HitView::of(visit, hit)).collect(),
    };
    respond(StatusCode::OK, &page, &page.frame.nonce, visit.is_head())
}

/// The nearest folders first.
async fn search(room: &Room, top: &Attr, path: &Bytes, words: &Words) -> Result<Found, Fail> {
    let (began, files) = (Instant::now(), room.files());
    let mut found = Found::default();
    let mut folders: VecDeque<(Ino, Bytes)> = VecDeque::from([(top.id.ino, path.clone())]);
    let mut paths_bytes = path.len();
    while let Some((dir, path)) = folders.pop_front() {
        paths_bytes -= path.len();
        match files.access(&room.cred, dir, ACCESS_READ | ACCESS_EXECUTE).await {
            Ok(_) => {}
            // Not this user's to read, or removed meanwhile: its names are nobody's business.
            Err(FsError::Access | FsError::NotFound | FsError::Stale) if dir != top.id.ino => continue,
            Err(error) => return Err(error.into()),
        }
        let mut cookie = 0;
        loop {
            let listing = match files.readdir(&room.cred, dir, cookie, ENTRIES_AT_ONCE, false).await {
                Ok(listing) => listing,
                Err(FsError::Access | FsError::NotFound | FsError::Stale) if dir != top.id.ino => break,
                Err(error) => return Err(error.into()),
            };
            for entry in &listing.entries {
                cookie = entry.cookie;
                found.looked_at += 1;
                let below = || join(&path, &entry.name);
                if matches!(entry.kind, FileKind::File | FileKind::Directory)
                    && words.are_in(&entry.name)
                    && let Ok(attr) = files.getattr(entry.ino).await
                {
                    found.hits.push(Hit { path: below(), attr });
                }
                if entry.kind == FileKind::Directory && path.len() + entry.name.len() < PATH_BYTES_MAX {
                    let below = below();
                    paths_bytes += below.len();
                    folders.push_back((entry.ino, below));
                }
            }
            found.cut = match () {
                () if found.hits.len() >= RESULTS_MAX => Some("There are more: say more of the name."),
                () if began.elapsed() >= TIME_MAX => {
                    Some("The search took too long and ended early: search below a smaller folder.")
                }
                () if folders.len() > FOLDERS_MAX || paths_bytes > PATHS_BYTES_MAX => {
                    Some("There are too many folders: search below a smaller one.")
                }
                () => None,
            };
            if found.cut.is_some() {
                return Ok(found);
            }
            if listing.eof {
                break;
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_in_any_order() {
        for (text, name, is_in) in [
            ("sum rep", "Summer Report.pdf", true),
            ("REP", "report", true),
            ("ü", "Übung", true),
            ("a b", "a", false),
            ("", "x", true),
        ] {
            assert_eq!(Words::of(text).are_in(name.as_bytes()), is_in, "{text} in {name}");
        }
    }
}
