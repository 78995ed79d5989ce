//! One file as a page: what a browser can show of it, and what can be done with it.
//!
//! - `view.files_run_nothing`: a stored file is shown as a picture, a film, sound or text, or by a
//!   frame that has no rights of this origin. Text is part of the page as text.

use askama::Template;
use hyper::StatusCode;
use larder_dav::browsers::{Answer, Fail, content_type, name, parent};
use larder_doors::tree::Room;
use larder_fs::{ACCESS_READ, Attr};

use super::listing::kind_icon;
use super::shelf::{Shelf, human, respond};
use super::visit::FileVisit;
use crate::text::Moment;
use crate::visit::Frame;

/// What is shown of a text.
const TEXT_BYTES_MAX: usize = 256 << 10;
/// What is looked at to tell text from other things.
const SNIFF_BYTES: usize = 8 << 10;

enum Preview {
    Picture,
    Video,
    Audio,
    Pdf,
    Text(String, bool),
    Unknown,
}

#[derive(Template)]
#[template(path = "files/file.html")]
struct FilePage {
    frame: Frame,
    shelf: Shelf,
    name: String,
    href: String,
    back_href: Option<String>,
    size: String,
    at: Moment,
    mark: &'static str,
    preview: Preview,
    may_change: bool,
    has_versions: bool,
    may_share: bool,
}

pub async fn page(visit: &FileVisit, room: &Room, attr: &Attr) -> Answer {
    room.files().access(&room.cred, attr.id.ino, ACCESS_READ).await?;
    let title = String::from_utf8_lossy(name(visit.path())).into_owned();
    let may_change = visit.may_change(Some(room));
    let is_own_now = visit.link.is_none() && !visit.is_in_the_past();
    let page = FilePage {
        frame: visit.viewer.frame(&title),
        shelf: Shelf::of(visit, if may_change { "one can-change" } else { "one" }),
        name: title,
        href: visit.href(visit.path(), false),
        back_href: (visit.path() != &visit.top()).then(|| visit.href(&parent(visit.path()), true)),
        size: human(attr.size),
        at: Moment::of_stamp(attr.mtime),
        mark: kind_icon(name(visit.path())),
        preview: preview(visit, room, attr).await?,
        may_change,
        has_versions: is_own_now,
        may_share: is_own_now && visit.viewer.has_session,
    };
    respond(StatusCode::OK, &page, &page.frame.nonce, visit.is_head())
}

async fn preview(visit: &FileVisit, room: &Room, attr: &Attr) -> Result<Preview, Fail> {
    let kind = content_type(name(visit.path()));
    Ok(match kind {
        // Browsers know none of these.
        "image/tiff" | "image/heic" => Preview::Unknown,
        _ if kind.starts_with("image/") => Preview::Picture,
        "video/x-msvideo" | "video/mpeg" => Preview::Unknown,
        _ if kind.starts_with("video/") => Preview::Video,
        _ if kind.starts_with("audio/") => Preview::Audio,
        "application/pdf" => Preview::Pdf,
        _ => text(room, attr).await?,
    })
}

async fn text(room: &Room, attr: &Attr) -> Result<Preview, Fail> {
    let mut bytes = Vec::new();
    while bytes.len() < TEXT_BYTES_MAX {
        let read = room.files().read(attr.id.ino, bytes.len() as u64, TEXT_BYTES_MAX - bytes.len()).await?;
        if read.is_empty() {
            break;
        }
        read.chunks.iter().for_each(|chunk| bytes.extend_from_slice(chunk));
        if !is_text(bytes.get(..SNIFF_BYTES.min(bytes.len())).unwrap_or_default()) {
            return Ok(Preview::Unknown);
        }
    }
    let is_cut = (bytes.len() as u64) < attr.size;
    Ok(Preview::Text(String::from_utf8_lossy(&bytes).into_owned(), is_cut))
}

/// Without zeros, and of UTF-8 up to a letter that is cut off.
fn is_text(bytes: &[u8]) -> bool {
    let is_utf8 = match std::str::from_utf8(bytes) {
        Ok(_) => true,
        Err(error) => error.error_len().is_none(),
    };
    is_utf8 && !bytes.contains(&0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_told_from_other_things() {
        for (bytes, is) in [
            (&b"plain\n"[..], true),
            ("ä".as_bytes(), true),
            (b"\xc3", true),
            (b"\xc3a", false),
            (b"a\0", false),
            (b"", true),
        ] {
            assert_eq!(is_text(bytes), is, "{bytes:?}");
        }
    }
}
