//! Search by name below a folder.
//!
//! - `search.bounded`: a search ends after [`TIME_MAX`], with [`RESULTS_MAX`] results, or [`FOLDERS_MAX`] folders or
//!   [`PATHS_BYTES_MAX`] of their paths still to be read, and says so. [`SEARCHES_AT_ONCE`] run at a time. One
//!   whose client has left ends where it waits next.
//! - `search.enters`: only folders that the user may list and search are looked into.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use bytes::Bytes;
use larder_fs::{ACCESS_EXECUTE, ACCESS_READ, Attr, FileKind, FsError, Ino};
use tokio::sync::Semaphore;

use super::super::context::Answer;
use super::super::fail::Fail;
use super::super::path::{join, name, parent};
use super::frame::{around_of, crumbs, tools};
use super::html::{Page, counted, escaped, human, icon, shown, time};
use super::listing::{kind_icon, search_box};
use super::visit::Visit;
use larder_doors::tree::Room;

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

pub async fn page(visit: &Visit, room: &Room, dir: &Attr, text: &str) -> Answer {
    let text: String = text.chars().take(200).collect();
    let words = Words::of(&text);
    let Ok(_turn) = TURNS.acquire().await else { return Err(Fail::not_found()) };
    let found = match words.0.is_empty() {
        true => Found::default(),
        false => search(room, dir, visit.path(), &words).await?,
    };
    let count = counted(found.hits.len() as u64, "match", "matches");
    let mut main = format!("<h1 class=\"title\">{count} for “{}”</h1>", escaped(&text));
    let cut = found.cut.map(|why| format!(" {why}")).unwrap_or_default();
    main.push_str(&format!(
        "<p class=\"dim\">Below <a href=\"{}\"><bdi>{}</bdi></a>, among {}.{cut}</p>",
        visit.href(visit.path(), true),
        shown(name(visit.path())),
        counted(found.looked_at, "name", "names")
    ));
    if !found.hits.is_empty() {
        main.push_str(
            "<table class=\"files\"><thead><tr><th scope=\"col\" class=\"name\">Name</th><th scope=\"col\" class=\"size\">Size</th>\
             <th scope=\"col\" class=\"time\">Changed</th></tr></thead><tbody>",
        );
        found.hits.iter().for_each(|hit| push_hit(&mut main, visit, hit));
        main.push_str("</tbody></table>");
    }
    let page = Page {
        title: format!("Search: {text}"),
        head: crumbs(visit),
        tools: format!("{}{}", search_box(visit, &text), tools(visit)),
        around: around_of(visit),
        main,
        csrf: visit.csrf(),
        ..Page::default()
    };
    Ok(page.respond(visit.is_head()))
}

fn push_hit(out: &mut String, visit: &Visit, hit: &Hit) {
    let is_folder = hit.attr.kind == FileKind::Directory;
    let (mark, query) = if is_folder { ("folder", "") } else { (kind_icon(name(&hit.path)), "?view") };
    let size = if is_folder { String::new() } else { human(hit.attr.size) };
    let folder = parent(&hit.path);
    let below = folder.strip_prefix(&visit.path()[..]).unwrap_or_default();
    let below = below.strip_prefix(b"/").unwrap_or(below);
    let place = if below.is_empty() { "this folder".to_owned() } else { shown(below) };
    out.push_str(&format!(
        "<tr><td class=\"name\"><a href=\"{}{query}\">{}<span class=\"label\"><bdi>{}</bdi></span></a>\
         <span class=\"place dim\">in <a href=\"{}\"><bdi>{place}</bdi></a></span></td><td class=\"size\">{size}</td>\
         <td class=\"time\">{}</td></tr>\n",
        visit.href(&hit.path, is_folder),
        icon(mark),
        shown(name(&hit.path)),
        visit.href(&folder, true),
        time(hit.attr.mtime)
    ));
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
