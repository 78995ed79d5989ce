//! A folder as a page: sorted, in pieces of [`ROWS_OF_PAGE`], with what can be done to its entries.
//!
//! - `listing.bounded`: of a folder at most [`ENTRIES_MAX`] entries are looked at, by at most
//!   [`LISTINGS_AT_ONCE`] requests at a time. Attributes are read of the rows that are shown,
//!   unless the order needs those of all.

use std::cmp::Ordering;

use askama::Template;
use bytes::Bytes;
use futures::StreamExt;
use futures::stream;
use hyper::StatusCode;
use larder_base::{Timestamp, task};
use larder_dav::browsers::{Answer, Fail, content_type, join, name, push_escaped};
use larder_doors::tree::Room;
use larder_fs::{ACCESS_EXECUTE, ACCESS_READ, Attr, FileKind, Ino};
use tokio::sync::Semaphore;

use super::shelf::{SearchBox, Shelf, counted, human, respond};
use super::visit::FileVisit;
use crate::text::Moment;
use crate::visit::Frame;

const ROWS_OF_PAGE: usize = 500;
const ENTRIES_MAX: usize = 250_000;
const LISTINGS_AT_ONCE: usize = 4;
const ENTRIES_AT_ONCE: usize = 512;
const LOOKS_AT_ONCE: usize = 16;
static TURNS: Semaphore = Semaphore::const_new(LISTINGS_AT_ONCE);

/// An entry of a folder.
pub struct Listed {
    pub name: Bytes,
    /// The name without regard to case, for the order.
    key: String,
    pub is_folder: bool,
    pub size: u64,
    pub mtime: Timestamp,
    /// Its attributes are still to be read.
    ino: Option<Ino>,
}

impl Listed {
    pub fn new(name: &[u8], attr: &Attr) -> Self {
        let key = String::from_utf8_lossy(name).to_lowercase();
        let (is_folder, name) = (attr.kind == FileKind::Directory, Bytes::copy_from_slice(name));
        Self { name, key, is_folder, size: attr.size, mtime: attr.mtime, ino: None }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Column {
    Name,
    Size,
    Time,
}

#[derive(Clone, Copy, Debug)]
pub struct Order {
    by: Column,
    down: bool,
}

impl Order {
    /// `sort=size&down`.
    pub fn of(visit: &FileVisit) -> Self {
        let by = match visit.query.get("sort") {
            Some("size") => Column::Size,
            Some("time") => Column::Time,
            _ => Column::Name,
        };
        Self { by, down: visit.query.has("down") }
    }

    /// Folders come first.
    fn compare(self, a: &Listed, b: &Listed) -> Ordering {
        let by_name = || natural(&a.key, &b.key).then_with(|| a.name.cmp(&b.name));
        let by = match self.by {
            Column::Name => by_name(),
            Column::Size => a.size.cmp(&b.size).then_with(by_name),
            Column::Time => a.mtime.cmp(&b.mtime).then_with(by_name),
        };
        b.is_folder.cmp(&a.is_folder).then(if self.down { by.reverse() } else { by })
    }

    fn query(self) -> String {
        let word = match self.by {
            Column::Name => "name",
            Column::Size => "size",
            Column::Time => "time",
        };
        format!("sort={word}{}", if self.down { "&down" } else { "" })
    }
}

/// Numbers in names count as numbers: 2 comes before 10.
fn natural(a: &str, b: &str) -> Ordering {
    let (mut a, mut b) = (a.as_bytes(), b.as_bytes());
    loop {
        match (a.first(), b.first()) {
            (Some(x), Some(y)) if x.is_ascii_digit() && y.is_ascii_digit() => {
                let ((x, rest_a), (y, rest_b)) = (number(a), number(b));
                match x.len().cmp(&y.len()).then_with(|| x.cmp(y)) {
                    Ordering::Equal => (a, b) = (rest_a, rest_b),
                    different => return different,
                }
            }
            (Some(x), Some(y)) if x == y => {
                (a, b) = (a.get(1..).unwrap_or_default(), b.get(1..).unwrap_or_default());
            }
            (x, y) => return x.cmp(&y),
        }
    }
}

/// Digits without zeros before them, and the rest.
fn number(text: &[u8]) -> (&[u8], &[u8]) {
    let end = text.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    let (digits, rest) = text.split_at(end);
    let zeros = digits.iter().take_while(|&&byte| byte == b'0').count();
    (digits.get(zeros..).unwrap_or_default(), rest)
}

/// All that is in a folder, in order, and whether there is more than is looked at.
pub async fn rows(visit: &FileVisit, room: &Room, dir: &Attr, order: Order) -> Result<(Vec<Listed>, bool), Fail> {
    room.files().access(&room.cred, dir.id.ino, ACCESS_READ | ACCESS_EXECUTE).await?;
    let (mut rows, mut is_cut) = (Vec::new(), false);
    let mut cookie = 0;
    let with_attrs = order.by != Column::Name;
    loop {
        let listing = room.files().readdir(&room.cred, dir.id.ino, cookie, ENTRIES_AT_ONCE, with_attrs).await?;
        for entry in &listing.entries {
            cookie = entry.cookie;
            match (entry.kind, &entry.attr) {
                (FileKind::File | FileKind::Directory, Some(attr)) => rows.push(Listed::new(&entry.name, attr)),
                (FileKind::File | FileKind::Directory, None) if !with_attrs => rows.push(Listed {
                    key: String::from_utf8_lossy(&entry.name).to_lowercase(),
                    name: Bytes::copy_from_slice(&entry.name),
                    is_folder: entry.kind == FileKind::Directory,
                    size: 0,
                    mtime: Timestamp::new(0, 0),
                    ino: Some(entry.ino),
                }),
                (FileKind::Symlink, _) => {
                    let Ok(attr) = room.files().getattr(entry.ino).await else { continue };
                    let path = join(visit.path(), &entry.name);
                    if let Some((_, attr)) = visit.entry(room, &attr, &path).await {
                        rows.push(Listed::new(&entry.name, &attr));
                    }
                }
                _ => {}
            }
        }
        if listing.eof {
            break;
        }
        if rows.len() >= ENTRIES_MAX {
            is_cut = true;
            break;
        }
    }
    // Comparing a hundred thousand names takes long enough for others to wait.
    let sorted = task::blocking(move || {
        rows.sort_unstable_by(|a, b| order.compare(a, b));
        rows
    });
    Ok((sorted.await.map_err(|_| Fail::new(hyper::StatusCode::INTERNAL_SERVER_ERROR, "the listing failed"))?, is_cut))
}

/// Reads the attributes that are missing. What is gone meanwhile goes from the rows.
async fn complete(room: &Room, rows: Vec<Listed>) -> Vec<Listed> {
    let look = |mut row: Listed| async move {
        if let Some(ino) = row.ino.take() {
            let attr = room.files().getattr(ino).await.ok()?;
            (row.size, row.mtime) = (attr.size, attr.mtime);
        }
        Some(row)
    };
    let looks: Vec<_> = rows.into_iter().map(look).collect();
    stream::iter(looks).buffered(LOOKS_AT_ONCE).filter_map(std::future::ready).collect().await
}

pub struct ShareView {
    pub href: String,
    pub name: String,
    pub is_read_only: bool,
}

#[derive(Template)]
#[template(path = "files/shares.html")]
struct SharesPage {
    frame: Frame,
    shelf: Shelf,
    shares: Vec<ShareView>,
}

/// The list of shares.
pub async fn shares(visit: &FileVisit) -> Answer {
    let shares = visit.context.view.rooms().map(|room| ShareView {
        href: format!("{}/", relative(room.name().as_bytes())),
        name: room.name().to_owned(),
        is_read_only: !room.may_write,
    });
    let shares = shares.collect();
    let page = SharesPage { frame: visit.viewer.frame("Shares"), shelf: Shelf::of(visit, ""), shares };
    respond(StatusCode::OK, &page, &page.frame.nonce, visit.is_head())
}

/// The URL of a name in the folder of the page.
fn relative(name: &[u8]) -> String {
    let mut href = "./".to_owned();
    push_escaped(&mut href, name);
    href
}

/// A head of the table, which sorts it.
pub struct ColumnView {
    pub word: &'static str,
    pub title: &'static str,
    /// `aria-sort`; empty where the table is in another order.
    pub sorted: &'static str,
    pub href: String,
}

/// An entry as the page shows it.
pub struct RowView {
    pub is_folder: bool,
    pub mark: &'static str,
    pub href: String,
    pub name: String,
    /// Empty for a folder.
    pub size: String,
    pub at: Moment,
}

impl RowView {
    pub fn of(row: &Listed) -> Self {
        let href = relative(&row.name);
        Self {
            is_folder: row.is_folder,
            mark: if row.is_folder { "folder" } else { kind_icon(&row.name) },
            href: if row.is_folder { format!("{href}/") } else { format!("{href}?view") },
            name: String::from_utf8_lossy(&row.name).into_owned(),
            size: if row.is_folder { String::new() } else { human(row.size) },
            at: Moment::of_stamp(row.mtime),
        }
    }
}

/// Addresses of other pieces of a folder.
pub struct Pager {
    pub page: usize,
    pub pages: usize,
    pub query: String,
}

#[derive(Template)]
#[template(path = "files/folder.html")]
struct FolderPage {
    frame: Frame,
    shelf: Shelf,
    name: String,
    may_change: bool,
    has_versions: bool,
    may_share: bool,
    is_past: bool,
    /// By a link entries are opened, and nothing else is done to them.
    is_own: bool,
    columns: Vec<ColumnView>,
    rows: Vec<RowView>,
    pager: Option<Pager>,
    about: String,
}

/// A folder.
pub async fn folder(visit: &FileVisit, room: &Room, dir: &Attr) -> Answer {
    let Ok(_turn) = TURNS.acquire().await else { return Err(Fail::not_found()) };
    let order = Order::of(visit);
    let (mut rows, is_cut) = rows(visit, room, dir, order).await?;
    let folders = rows.iter().filter(|row| row.is_folder).count();
    let total = rows.len();
    let pages = total.div_ceil(ROWS_OF_PAGE).max(1);
    let wanted: usize = visit.query.get("page").and_then(|page| page.parse().ok()).unwrap_or(1);
    let page = wanted.clamp(1, pages);
    let shown: Vec<Listed> = rows.drain((page - 1) * ROWS_OF_PAGE..total.min(page * ROWS_OF_PAGE)).collect();
    drop(rows);
    let shown = complete(room, shown).await;
    let mut about = format!(
        "{}, {}",
        counted(folders as u64, "folder", "folders"),
        counted((total - folders) as u64, "file", "files")
    );
    if is_cut {
        about = format!("The first {total} entries are listed here: {about}. Search finds the others");
    }
    let (may_change, is_own, is_past) = (visit.may_change(Some(room)), visit.link.is_none(), visit.is_in_the_past());
    let title = String::from_utf8_lossy(name(visit.path())).into_owned();
    let page = FolderPage {
        frame: visit.viewer.frame(&title),
        shelf: Shelf {
            search: search_box(visit, ""),
            ..Shelf::of(visit, if may_change { "folder can-change" } else { "folder" })
        },
        name: title,
        may_change,
        has_versions: is_own && visit.trail(visit.path()).len() > 1 && !is_past,
        may_share: is_own && visit.viewer.has_session && !is_past,
        is_past,
        is_own,
        columns: columns(order),
        rows: shown.iter().map(RowView::of).collect(),
        pager: (pages > 1).then(|| Pager { page, pages, query: order.query() }),
        about,
    };
    respond(StatusCode::OK, &page, &page.frame.nonce, visit.is_head())
}

pub fn search_box(visit: &FileVisit, words: &str) -> Option<SearchBox> {
    let action = visit.href(visit.path(), true);
    visit.link.is_none().then(|| SearchBox { action, words: words.to_owned() })
}

fn columns(order: Order) -> Vec<ColumnView> {
    let all = [(Column::Name, "name", "Name"), (Column::Size, "size", "Size"), (Column::Time, "time", "Changed")];
    let view = |(column, word, title)| {
        let is_it = column == order.by;
        let sorted = match (is_it, order.down) {
            (false, _) => "",
            (true, false) => "ascending",
            (true, true) => "descending",
        };
        let down = if is_it && !order.down { "&down" } else { "" };
        ColumnView { word, title, sorted, href: format!("?sort={word}{down}") }
    };
    all.map(view).into()
}

/// Which picture stands for a file.
pub fn kind_icon(name: &[u8]) -> &'static str {
    let kind = content_type(name);
    match kind.split_once('/') {
        Some(("image", _)) => "picture",
        Some(("video", _)) => "video",
        Some(("audio", _)) => "audio",
        Some(("text", _)) => "text",
        _ if kind.contains("zip") || kind.ends_with("tar") || kind.contains("7z") => "archive",
        _ if kind == "application/octet-stream" => "file",
        _ => "text",
    }
}

/// The folders of a folder, for the script that lets one be chosen: an array of names in JSON.
pub async fn folders(visit: &FileVisit, at: Option<(Room, Attr)>) -> Result<String, Fail> {
    let Ok(_turn) = TURNS.acquire().await else { return Err(Fail::not_found()) };
    let mut names = Vec::new();
    match at {
        None => {
            names.extend(visit.context.view.rooms().filter(|room| room.may_write).map(|room| room.name().to_owned()))
        }
        Some((room, dir)) => {
            let (rows, _) = rows(visit, &room, &dir, Order { by: Column::Name, down: false }).await?;
            let folders = rows.iter().filter(|row| row.is_folder).take(2 * ROWS_OF_PAGE);
            // A name that is no text cannot be chosen here.
            names.extend(folders.filter_map(|row| String::from_utf8(row.name.to_vec()).ok()));
        }
    }
    let texts: Vec<String> = names.iter().map(|name| json(name)).collect();
    Ok(format!("[{}]", texts.join(",")))
}

/// RFC 8259 7.
fn json(text: &str) -> String {
    let mut out = "\"".to_owned();
    for char in text.chars() {
        match char {
            '"' | '\\' => out.extend(['\\', char]),
            '\0'..='\x1f' | '\u{7f}' | '<' | '>' => out.push_str(&format!("\\u{:04x}", u32::from(char))),
            char => out.push(char),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, is_folder: bool, size: u64) -> Listed {
        let key = name.to_lowercase();
        let mtime = Timestamp::new(0, 0);
        Listed { name: Bytes::copy_from_slice(name.as_bytes()), key, is_folder, size, mtime, ino: None }
    }

    #[test]
    fn folders_come_first_and_numbers_are_numbers() {
        let mut rows = [
            row("b10", false, 1),
            row("B2", false, 2),
            row("b02", false, 3),
            row("z", true, 0),
            row("a", false, 9),
            row("b", false, 0),
        ];
        let mut names = |by, down| {
            rows.sort_by(|a, b| Order { by, down }.compare(a, b));
            let names: Vec<_> = rows.iter().map(|row| String::from_utf8_lossy(&row.name).into_owned()).collect();
            names.join(" ")
        };
        assert_eq!(names(Column::Name, false), "z a b B2 b02 b10");
        assert_eq!(names(Column::Name, true), "z b10 b02 B2 b a");
        assert_eq!(names(Column::Size, false), "z b b10 B2 b02 a");
        assert_eq!(names(Column::Time, false), "z a b B2 b02 b10");
    }

    #[test]
    fn names_cannot_be_markup() {
        let name = "\"><script>'&\n";
        let viewer = super::super::viewer::Viewer::default();
        let page = FolderPage {
            frame: viewer.frame(name),
            shelf: Shelf::of_viewer(&viewer, true),
            name: name.to_owned(),
            may_change: true,
            has_versions: true,
            may_share: true,
            is_past: false,
            is_own: true,
            columns: columns(Order { by: Column::Name, down: false }),
            rows: vec![RowView::of(&row(name, false, 1))],
            pager: None,
            about: String::new(),
        };
        let out = page.render().unwrap_or_default();
        assert!(
            !out.contains("<script>") && out.contains("&#60;script&#62;") && out.contains("%22%3E%3Cscript"),
            "{out}"
        );
        assert_eq!(json("a\"\\\n<ä"), "\"a\\\"\\\\\\u000a\\u003cä\"");
    }
}
