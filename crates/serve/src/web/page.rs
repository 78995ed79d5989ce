//! What a browser is shown of a folder: a page without scripts.

use bytes::Bytes;
use hyper::header::{self, HeaderValue};
use hyper::{Method, Response, StatusCode};
use larder_volume::{ACCESS_READ, Attr, FileKind};

use super::context::{Answer, Context, full};
use super::fail::Fail;
use super::path::{href, join, push_escaped};
use super::props::civil;
use super::xml::push_text;
use crate::tree::{Room, Spot};

/// Entries that one page shows. WebDAV's own listing has no such limit.
const ENTRIES_MAX: usize = 20_000;
const ENTRIES_AT_ONCE: usize = 256;
const STYLE: &str = include_str!("page.css");

struct Row {
    name: Vec<u8>,
    is_folder: bool,
    size: u64,
    mtime: larder_base::Timestamp,
}

/// GET of a folder. `at` is `None` for the directory of shares.
pub async fn folder(context: &Context, at: Option<(Room, Attr)>) -> Answer {
    if !context.place.slash {
        // Links on the page are relative to it.
        let mut response = super::context::status(StatusCode::MOVED_PERMANENTLY);
        if let Ok(url) = HeaderValue::from_str(&href(&context.place.path, true)) {
            response.headers_mut().insert(header::LOCATION, url);
        }
        return Ok(response);
    }
    let mut rows = Vec::new();
    let mut is_cut = false;
    match &at {
        None => {
            for room in context.view.rooms() {
                let Ok(attr) = room.files().getattr(room.root()).await else { continue };
                rows.push(Row {
                    name: room.state.share.name.clone().into(),
                    is_folder: true,
                    size: 0,
                    mtime: attr.mtime,
                });
            }
        }
        Some((room, dir)) => {
            room.files().access(&room.cred, dir.id.ino, ACCESS_READ).await?;
            is_cut = fill(context, room, dir, &mut rows).await?;
        }
    }
    let order = Order::of(&context.query);
    rows.sort_by(|a, b| order.compare(a, b));
    let page = page(context, &rows, order, is_cut);
    let mut response = Response::new(match context.method == Method::HEAD {
        true => super::context::empty(),
        false => full(Bytes::from(page)),
    });
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    // The page has a style and links, and nothing else: nothing in it can run or load.
    headers.insert(
        header::CONTENT_SECURITY_POLICY,
        HeaderValue::from_static(
            "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
        ),
    );
    Ok(response)
}

/// Returns whether there are more entries than a page shows.
async fn fill(context: &Context, room: &Room, dir: &Attr, rows: &mut Vec<Row>) -> Result<bool, Fail> {
    let mut cookie = 0;
    loop {
        let listing = room.files().readdir(&room.cred, dir.id.ino, cookie, ENTRIES_AT_ONCE, true).await?;
        for entry in &listing.entries {
            cookie = entry.cookie;
            let Some(attr) = &entry.attr else { continue };
            let path = join(&context.place.path, &entry.name);
            if let Some(Spot::In(_, attr)) = context.resolved(room, attr, &path).await {
                let is_folder = attr.kind == FileKind::Directory;
                rows.push(Row { name: entry.name.to_vec(), is_folder, size: attr.size, mtime: attr.mtime });
            }
        }
        if rows.len() >= ENTRIES_MAX {
            return Ok(!listing.eof);
        }
        if listing.eof {
            return Ok(false);
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Column {
    Name,
    Size,
    Time,
}

#[derive(Clone, Copy)]
struct Order {
    by: Column,
    down: bool,
}

impl Order {
    /// `sort=size&down`.
    fn of(query: &str) -> Self {
        let mut order = Self { by: Column::Name, down: false };
        for word in query.split('&') {
            match word {
                "sort=size" => order.by = Column::Size,
                "sort=time" => order.by = Column::Time,
                "down" => order.down = true,
                _ => {}
            }
        }
        order
    }

    /// Folders come first.
    fn compare(self, a: &Row, b: &Row) -> std::cmp::Ordering {
        let by_name = || {
            let lower = |row: &Row| String::from_utf8_lossy(&row.name).to_lowercase();
            lower(a).cmp(&lower(b)).then_with(|| a.name.cmp(&b.name))
        };
        let by = match self.by {
            Column::Name => by_name(),
            Column::Size => a.size.cmp(&b.size).then_with(by_name),
            Column::Time => a.mtime.cmp(&b.mtime).then_with(by_name),
        };
        b.is_folder.cmp(&a.is_folder).then(if self.down { by.reverse() } else { by })
    }
}

fn page(context: &Context, rows: &[Row], order: Order, is_cut: bool) -> String {
    let path = &context.place.path;
    let mut out = String::with_capacity(1024 + rows.len() * 160);
    out.push_str("<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">");
    out.push_str("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">");
    out.push_str("<meta name=\"color-scheme\" content=\"light dark\"><title>");
    let title = String::from_utf8_lossy(super::path::name(path)).into_owned();
    push_text(&mut out, if title.is_empty() { "Shares" } else { &title });
    out.push_str("</title><style>");
    out.push_str(STYLE);
    out.push_str("</style></head><body><header><nav aria-label=\"Path\">");
    crumbs(&mut out, path);
    out.push_str("</nav></header><main><table><thead><tr>");
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
    out.push_str("</tr></thead><tbody>");
    for row in rows {
        push_row(&mut out, row);
    }
    out.push_str("</tbody></table>");
    if rows.is_empty() {
        out.push_str("<p>This folder is empty.</p>");
    }
    if is_cut {
        out.push_str(&format!("<p>Only {} entries are shown here. WebDAV clients see them all.</p>", rows.len()));
    }
    out.push_str("</main></body></html>\n");
    out
}

fn crumbs(out: &mut String, path: &[u8]) {
    out.push_str("<a href=\"/\">Shares</a>");
    let mut so_far = Vec::new();
    for name in path.split(|&byte| byte == b'/').filter(|name| !name.is_empty()) {
        so_far = join(&so_far, name).to_vec();
        out.push_str(" / <a href=\"");
        out.push_str(&href(&so_far, true));
        out.push_str("\">");
        push_text(out, &String::from_utf8_lossy(name));
        out.push_str("</a>");
    }
}

fn push_row(out: &mut String, row: &Row) {
    let slash = if row.is_folder { "/" } else { "" };
    out.push_str("<tr><td class=\"name\"><a href=\"./");
    push_escaped(out, &row.name);
    out.push_str(slash);
    out.push_str("\">");
    push_text(out, &String::from_utf8_lossy(&row.name));
    out.push_str(slash);
    let size = if row.is_folder { String::new() } else { human(row.size) };
    let (year, month, day, secs) = civil(row.mtime);
    let (hour, minute) = (secs / 3600, secs / 60 % 60);
    out.push_str(&format!(
        "</a></td><td class=\"size\">{size}</td><td class=\"time\">{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}</td></tr>\n"
    ));
}

fn human(bytes: u64) -> String {
    let mut value = bytes as f64;
    for unit in ["B", "KiB", "MiB", "GiB", "TiB"] {
        if value < 1024.0 {
            return if unit == "B" { format!("{bytes} B") } else { format!("{value:.1} {unit}") };
        }
        value /= 1024.0;
    }
    format!("{value:.1} PiB")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_orders() {
        for (bytes, text) in
            [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (5 << 30, "5.0 GiB"), (u64::MAX, "16384.0 PiB")]
        {
            assert_eq!(human(bytes), text);
        }
        let row = |name: &str, is_folder, size| Row {
            name: name.into(),
            is_folder,
            size,
            mtime: larder_base::Timestamp::new(0, 0),
        };
        let mut rows = [row("b", false, 1), row("A", false, 2), row("z", true, 0)];
        let names =
            |rows: &[Row]| rows.iter().map(|row| String::from_utf8_lossy(&row.name).into_owned()).collect::<String>();
        rows.sort_by(|a, b| Order::of("").compare(a, b));
        assert_eq!(names(&rows), "zAb");
        rows.sort_by(|a, b| Order::of("sort=size&down").compare(a, b));
        assert_eq!(names(&rows), "zAb");
        rows.sort_by(|a, b| Order::of("sort=size").compare(a, b));
        assert_eq!(names(&rows), "zbA");
    }

    #[test]
    fn names_cannot_be_markup() {
        let mut out = String::new();
        let name = b"\"><script>'&".to_vec();
        push_row(&mut out, &Row { name, is_folder: false, size: 1, mtime: larder_base::Timestamp::new(0, 0) });
        assert!(
            !out.contains("<script>") && out.contains("&lt;script&gt;") && out.contains("%22%3E%3Cscript"),
            "{out}"
        );
    }
}
