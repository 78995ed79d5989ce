//! A folder as a page: sorted, in pieces of [`ROWS_OF_PAGE`], with what can be done to its entries.
//!
//! - `listing.bounded`: of a folder at most [`ENTRIES_MAX`] entries are looked at, by at most
//!   [`LISTINGS_AT_ONCE`] requests at a time. Attributes are read of the rows that are shown, unless the
//!   order needs those of all.

use std::cmp::Ordering;

use bytes::Bytes;
use futures::StreamExt;
use futures::stream;
use larder_base::Timestamp;
use larder_fs::{ACCESS_EXECUTE, ACCESS_READ, Attr, FileKind, Ino};
use tokio::sync::Semaphore;

use super::super::context::Answer;
use super::super::fail::Fail;
use super::super::kinds::content_type;
use super::super::path::{join, name, push_escaped};
use super::frame::{around_of, crumbs, tools};
use super::html::{Page, counted, escaped, human, icon, shown, time, verbatim};
use super::visit::Visit;
use larder_doors::tree::Room;

const ROWS_OF_PAGE: usize = 500;
const ENTRIES_MAX: usize = 250_000;
const LISTINGS_AT_ONCE: usize = 4;
const ENTRIES_AT_ONCE: usize = 512;
const LOOKS_AT_ONCE: usize = 16;
static TURNS: Semaphore = Semaphore::const_new(LISTINGS_AT_ONCE);

pub struct Row {
    pub name: Bytes,
    /// The name without regard to case, for the order.
    key: String,
    pub is_folder: bool,
    pub size: u64,
    pub mtime: Timestamp,
    /// Its attributes are still to be read.
    ino: Option<Ino>,
}

impl Row {
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
    pub fn of(visit: &Visit) -> Self {
        let by = match visit.query.text("sort") {
            Some("size") => Column::Size,
            Some("time") => Column::Time,
            _ => Column::Name,
        };
        Self { by, down: visit.query.has("down") }
    }

    /// Folders come first.
    fn compare(self, a: &Row, b: &Row) -> Ordering {
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
        format!("sort={word}{}", if self.down { "&amp;down" } else { "" })
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
pub async fn rows(visit: &Visit, room: &Room, dir: &Attr, order: Order) -> Result<(Vec<Row>, bool), Fail> {
    room.files().access(&room.cred, dir.id.ino, ACCESS_READ | ACCESS_EXECUTE).await?;
    let (mut rows, mut is_cut) = (Vec::new(), false);
    let mut cookie = 0;
    let with_attrs = order.by != Column::Name;
    loop {
        let listing = room.files().readdir(&room.cred, dir.id.ino, cookie, ENTRIES_AT_ONCE, with_attrs).await?;
        for entry in &listing.entries {
            cookie = entry.cookie;
            match (entry.kind, &entry.attr) {
                (FileKind::File | FileKind::Directory, Some(attr)) => rows.push(Row::new(&entry.name, attr)),
                (FileKind::File | FileKind::Directory, None) if !with_attrs => rows.push(Row {
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
                        rows.push(Row::new(&entry.name, &attr));
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
    let sorted = tokio::task::spawn_blocking(move || {
        rows.sort_unstable_by(|a, b| order.compare(a, b));
        rows
    });
    Ok((sorted.await.map_err(|_| Fail::new(hyper::StatusCode::INTERNAL_SERVER_ERROR, "the listing failed"))?, is_cut))
}

/// Reads the attributes that are missing. What is gone meanwhile goes from the rows.
async fn complete(room: &Room, rows: Vec<Row>) -> Vec<Row> {
    let look = |mut row: Row| async move {
        if let Some(ino) = row.ino.take() {
            let attr = room.files().getattr(ino).await.ok()?;
            (row.size, row.mtime) = (attr.size, attr.mtime);
        }
        Some(row)
    };
    let looks: Vec<_> = rows.into_iter().map(look).collect();
    stream::iter(looks).buffered(LOOKS_AT_ONCE).filter_map(std::future::ready).collect().await
}

/// The list of shares.
pub async fn shares(visit: &Visit) -> Answer {
    let mut main = "<h1 class=\"hidden\">Shares</h1><div class=\"shares\">".to_owned();
    let mut count = 0;
    for room in visit.context.view.rooms() {
        let share = room.name();
        let mut href = "./".to_owned();
        push_escaped(&mut href, share.as_bytes());
        let about = if room.may_write { "" } else { "<span class=\"dim\">read-only</span>" };
        main.push_str(&format!(
            "<a class=\"share\" href=\"{href}/\">{}<span class=\"label\"><bdi>{}</bdi>{about}</span></a>",
            icon("share"),
            escaped(share)
        ));
        count += 1;
    }
    main.push_str("</div>");
    if count == 0 {
        main.push_str("<p class=\"empty\">No share lists you as a user.</p>");
    }
    let page = Page {
        title: "Shares".to_owned(),
        head: crumbs(visit),
        tools: tools(visit),
        around: around_of(visit),
        main,
        csrf: visit.csrf(),
        ..Page::default()
    };
    Ok(page.respond(visit.is_head()))
}

/// A folder.
pub async fn folder(visit: &Visit, room: &Room, dir: &Attr) -> Answer {
    let Ok(_turn) = TURNS.acquire().await else { return Err(Fail::not_found()) };
    let order = Order::of(visit);
    let (mut rows, is_cut) = rows(visit, room, dir, order).await?;
    let folders = rows.iter().filter(|row| row.is_folder).count();
    let total = rows.len();
    let pages = total.div_ceil(ROWS_OF_PAGE).max(1);
    let wanted: usize = visit.query.text("page").and_then(|page| page.parse().ok()).unwrap_or(1);
    let page = wanted.clamp(1, pages);
    let shown: Vec<Row> = rows.drain((page - 1) * ROWS_OF_PAGE..total.min(page * ROWS_OF_PAGE)).collect();
    drop(rows);
    let shown = complete(room, shown).await;
    let mut main = bar(visit, room);
    table(&mut main, visit, &shown, order);
    if total == 0 {
        let hint = if visit.may_change(Some(room)) { " Drop files here, or use Upload." } else { "" };
        main.push_str(&format!("<p class=\"empty\">This folder is empty.<span class=\"js\" hidden>{hint}</span></p>"));
    }
    pager(&mut main, order, page, pages);
    let mut about = format!(
        "{}, {}",
        counted(folders as u64, "folder", "folders"),
        counted((total - folders) as u64, "file", "files")
    );
    if is_cut {
        about = format!("The first {total} entries are listed here: {about}. Search finds the others");
    }
    main.push_str(&format!("<p class=\"count dim\">{about}</p>"));
    let page = Page {
        title: String::from_utf8_lossy(name(visit.path())).into_owned(),
        head: crumbs(visit),
        tools: format!("{}{}", search_box(visit, ""), tools(visit)),
        around: around_of(visit),
        main,
        csrf: visit.csrf(),
        class: if visit.may_change(Some(room)) { "folder can-change" } else { "folder" },
        ..Page::default()
    };
    Ok(page.respond(visit.is_head()))
}

pub fn search_box(visit: &Visit, words: &str) -> String {
    if visit.link.is_some() {
        return String::new();
    }
    format!(
        "<form class=\"search\" role=\"search\" action=\"{}\"><label class=\"hidden\" for=\"q\">Search below this folder\
         </label>{}<input id=\"q\" name=\"q\" type=\"search\" placeholder=\"Search\" value=\"{}\" maxlength=\"200\"></form>",
        visit.href(visit.path(), true),
        icon("search"),
        escaped(words)
    )
}

/// What can be done here. Buttons that need the script are shown by it.
fn bar(visit: &Visit, room: &Room) -> String {
    let mut out = format!("<h1 class=\"hidden\">{}</h1><div class=\"actions\">", shown(name(visit.path())));
    if visit.may_change(Some(room)) {
        out.push_str(&format!(
            "<button class=\"button primary js\" id=\"upload\" hidden>{} Upload</button>\
             <button class=\"button js\" id=\"upload-folder\" hidden>{} <span>Upload folder</span></button>\
             <button class=\"button js\" id=\"make-folder\" hidden>{} <span>New folder</span></button>",
            icon("up"),
            icon("folder"),
            icon("plus"),
        ));
    }
    out.push_str(&format!("<a class=\"button\" href=\"?zip\" download>{} <span>Download</span></a>", icon("down")));
    if visit.link.is_none() && visit.trail(visit.path()).len() > 1 && !visit.is_in_the_past() {
        out.push_str(&format!("<a class=\"button\" href=\"?versions\">{} <span>Versions</span></a>", icon("clock")));
    }
    if visit.link.is_none() && visit.session.is_some() && !visit.is_in_the_past() {
        out.push_str(&format!("<a class=\"button\" href=\"?share\">{} <span>Share</span></a>", icon("link")));
    }
    out.push_str("</div>");
    if visit.is_in_the_past() {
        out.push_str("<p class=\"note\">This is the past: a snapshot, which can be read and not changed.</p>");
    }
    out
}

pub fn table(out: &mut String, visit: &Visit, rows: &[Row], order: Order) {
    if rows.is_empty() {
        return;
    }
    // By a link entries are opened, and nothing else is done to them.
    let own = visit.link.is_none();
    out.push_str("<table class=\"files\"><thead><tr>");
    if own {
        out.push_str("<th class=\"pick js\" scope=\"col\" hidden><input type=\"checkbox\" id=\"all\" aria-label=\"Select all\"></th>");
    }
    for (column, word, title) in
        [(Column::Name, "name", "Name"), (Column::Size, "size", "Size"), (Column::Time, "time", "Changed")]
    {
        let is_it = column == order.by;
        let sort = match (is_it, order.down) {
            (false, _) => "",
            (true, false) => " aria-sort=\"ascending\"",
            (true, true) => " aria-sort=\"descending\"",
        };
        let down = if is_it && !order.down { "&amp;down" } else { "" };
        out.push_str(&format!(
            "<th scope=\"col\" class=\"{word}\"{sort}><a href=\"?sort={word}{down}\">{title}</a></th>"
        ));
    }
    if own {
        out.push_str("<th class=\"more js\" scope=\"col\" hidden><span class=\"hidden\">More</span></th>");
    }
    out.push_str("</tr></thead><tbody>");
    for row in rows {
        push_row(out, own, row);
    }
    out.push_str("</tbody></table>");
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

fn push_row(out: &mut String, own: bool, row: &Row) {
    let mut href = "./".to_owned();
    push_escaped(&mut href, &row.name);
    let (name, own_name) = (shown(&row.name), verbatim(&row.name));
    let (kind, mark, slash, query) = match row.is_folder {
        true => ("folder", "folder", "/", ""),
        false => ("file", kind_icon(&row.name), "", "?view"),
    };
    let size = if row.is_folder { String::new() } else { human(row.size) };
    let at = time(row.mtime);
    let below = if row.is_folder { at.clone() } else { format!("{size} · {at}") };
    let (pick, more) = match own {
        true => (
            format!("<td class=\"pick js\" hidden><input type=\"checkbox\" aria-label=\"Select {name}\"></td>"),
            format!(
                "<td class=\"more js\" hidden><button class=\"round\" aria-haspopup=\"menu\" aria-label=\"More for {name}\">{}\
                 </button></td>",
                icon("more")
            ),
        ),
        false => (String::new(), String::new()),
    };
    out.push_str(&format!(
        "<tr data-kind=\"{kind}\" data-name=\"{own_name}\">{pick}<td class=\"name\"><a href=\"{href}{slash}{query}\">{}\
         <span class=\"label\"><bdi>{name}</bdi></span></a><span class=\"below dim\">{below}</span></td>\
         <td class=\"size\">{size}</td><td class=\"time\">{at}</td>{more}</tr>\n",
        icon(mark),
    ));
}

fn pager(out: &mut String, order: Order, page: usize, pages: usize) {
    if pages < 2 {
        return;
    }
    let query = order.query();
    out.push_str("<nav class=\"pager\" aria-label=\"Pages\">");
    let link = |to: usize, text: &str| format!("<a class=\"button\" href=\"?{query}&amp;page={to}\">{text}</a>");
    if page > 1 {
        out.push_str(&link(1, "First"));
        out.push_str(&link(page - 1, "Previous"));
    }
    out.push_str(&format!("<span aria-current=\"page\">Page {page} of {pages}</span>"));
    if page < pages {
        out.push_str(&link(page + 1, "Next"));
        out.push_str(&link(pages, "Last"));
    }
    out.push_str("</nav>");
}

/// The folders of a folder, for the script that lets one be chosen: an array of names in JSON.
pub async fn folders(visit: &Visit, at: Option<(Room, Attr)>) -> Result<String, Fail> {
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

    fn row(name: &str, is_folder: bool, size: u64) -> Row {
        let key = name.to_lowercase();
        let mtime = Timestamp::new(0, 0);
        Row { name: Bytes::copy_from_slice(name.as_bytes()), key, is_folder, size, mtime, ino: None }
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
        let mut out = String::new();
        push_row(&mut out, true, &row("\"><script>'&\n", false, 1));
        assert!(
            !out.contains("<script>") && out.contains("&lt;script&gt;") && out.contains("%22%3E%3Cscript"),
            "{out}"
        );
        assert_eq!(json("a\"\\\n<ä"), "\"a\\\"\\\\\\u000a\\u003cä\"");
    }
}
