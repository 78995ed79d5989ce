//! One file as a page: what a browser can show of it, and what can be done with it.
//!
//! - `view.files_run_nothing`: a stored file is shown as a picture, a film, sound or text, or by a frame
//!   that has no rights of this origin. Text is part of the page as text.

use larder_fs::{ACCESS_READ, Attr};

use super::super::context::Answer;
use super::super::fail::Fail;
use super::super::kinds::content_type;
use super::super::path::{name, parent};
use super::frame::{around_of, crumbs, tools};
use super::html::{Page, escaped, human, icon, shown, time, verbatim};
use super::visit::Visit;
use larder_doors::tree::Room;

/// What is shown of a text.
const TEXT_BYTES_MAX: usize = 256 << 10;
/// What is looked at to tell text from other things.
const SNIFF_BYTES: usize = 8 << 10;

enum Kind {
    Picture,
    Video,
    Audio,
    Pdf,
    Text(String, bool),
    Unknown,
}

pub async fn page(visit: &Visit, room: &Room, attr: &Attr) -> Answer {
    room.files().access(&room.cred, attr.id.ino, ACCESS_READ).await?;
    let title = String::from_utf8_lossy(name(visit.path())).into_owned();
    let url = visit.href(visit.path(), false);
    let raw = format!("{url}?raw");
    let (shown_name, own_name) = (shown(name(visit.path())), verbatim(name(visit.path())));
    let picture = match kind(visit, room, attr).await? {
        Kind::Picture => {
            format!("<div class=\"stage\"><img src=\"{raw}\" alt=\"{shown_name}\" decoding=\"async\"></div>")
        }
        Kind::Video => format!(
            "<div class=\"stage\"><video src=\"{raw}\" controls preload=\"metadata\" playsinline></video></div>"
        ),
        Kind::Audio => format!(
            "<div class=\"stage sound\">{}<audio src=\"{raw}\" controls preload=\"metadata\"></audio></div>",
            icon("audio")
        ),
        Kind::Pdf => format!(
            "<iframe class=\"paper\" src=\"{raw}\" title=\"{shown_name}\"></iframe>\
             <p class=\"dim\"><a href=\"{raw}\">Open it alone</a> if your browser does not show it here.</p>"
        ),
        Kind::Text(text, is_cut) => {
            let cut = if is_cut {
                "<p class=\"dim\">This is the beginning. Download the file for all of it.</p>"
            } else {
                ""
            };
            format!(
                "<pre class=\"text\" tabindex=\"0\" aria-label=\"Text of {shown_name}\">{}</pre>{cut}",
                escaped(&text)
            )
        }
        Kind::Unknown => format!(
            "<div class=\"stage none\">{}<p>Browsers cannot show this kind of file.</p></div>",
            icon(super::listing::kind_icon(name(visit.path())))
        ),
    };
    let mut actions = String::new();
    if visit.may_change(Some(room)) {
        actions.push_str(&format!(
            "<button class=\"button js\" id=\"one-rename\" hidden>{} <span>Rename</span></button>\
             <button class=\"button js\" id=\"one-delete\" hidden>{} <span>Delete</span></button>",
            icon("pen"),
            icon("bin")
        ));
    }
    if visit.link.is_none() && !visit.is_in_the_past() {
        actions
            .push_str(&format!("<a class=\"button\" href=\"?versions\">{} <span>Versions</span></a>", icon("clock")));
        if visit.session.is_some() {
            actions.push_str(&format!("<a class=\"button\" href=\"?share\">{} <span>Share</span></a>", icon("link")));
        }
    }
    let back = match visit.path() == &visit.top() {
        true => String::new(),
        false => format!(
            "<a class=\"button round\" id=\"back\" href=\"{}\" aria-label=\"Back to the folder\">{}</a>",
            visit.href(&parent(visit.path()), true),
            icon("back")
        ),
    };
    let main = format!(
        "<div class=\"about\" data-name=\"{own_name}\">{back}<div><h1><bdi>{shown_name}</bdi></h1><p class=\"dim\">{} · {}</p></div></div>\
         <div class=\"actions\"><a class=\"button primary\" href=\"{url}?download\">{} Download</a>{actions}</div>{picture}",
        human(attr.size),
        time(attr.mtime),
        icon("down")
    );
    let page = Page {
        title,
        head: crumbs(visit),
        tools: tools(visit),
        around: around_of(visit),
        main,
        csrf: visit.csrf(),
        class: if visit.may_change(Some(room)) { "one can-change" } else { "one" },
        ..Page::default()
    };
    Ok(page.respond(visit.is_head()))
}

async fn kind(visit: &Visit, room: &Room, attr: &Attr) -> Result<Kind, Fail> {
    let kind = content_type(name(visit.path()));
    Ok(match kind {
        // Browsers know none of these.
        "image/tiff" | "image/heic" => Kind::Unknown,
        _ if kind.starts_with("image/") => Kind::Picture,
        "video/x-msvideo" | "video/mpeg" => Kind::Unknown,
        _ if kind.starts_with("video/") => Kind::Video,
        _ if kind.starts_with("audio/") => Kind::Audio,
        "application/pdf" => Kind::Pdf,
        _ => text(room, attr).await?,
    })
}

async fn text(room: &Room, attr: &Attr) -> Result<Kind, Fail> {
    let mut bytes = Vec::new();
    while bytes.len() < TEXT_BYTES_MAX {
        let read = room.files().read(attr.id.ino, bytes.len() as u64, TEXT_BYTES_MAX - bytes.len()).await?;
        if read.is_empty() {
            break;
        }
        read.chunks.iter().for_each(|chunk| bytes.extend_from_slice(chunk));
        if !is_text(bytes.get(..SNIFF_BYTES.min(bytes.len())).unwrap_or_default()) {
            return Ok(Kind::Unknown);
        }
    }
    let is_cut = (bytes.len() as u64) < attr.size;
    Ok(Kind::Text(String::from_utf8_lossy(&bytes).into_owned(), is_cut))
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
