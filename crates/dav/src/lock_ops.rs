//! LOCK and UNLOCK (RFC 4918 9.10, 9.11).

use std::time::{Duration, Instant};

use hyper::StatusCode;
use hyper::header::{HeaderName, HeaderValue};
use larder_fs::FileKind;

use super::conditions::{self, text};
use super::context::{Answer, Context, Depth, file_key, status, xml as xml_answer};
use super::fail::Fail;
use super::locks::{Held, Lock, TIME_MAX, TIME_USUAL, Wanted};
use super::upload::Upload;
use super::xml::{self, push_element};
use larder_doors::tree::{Entry, Spot};

/// Bytes of the element that says whose lock it is.
const OWNER_BYTES_MAX: usize = 4096;

/// `DAV:lockdiscovery`.
pub fn push_discovery(out: &mut String, locks: &[Lock]) {
    if locks.is_empty() {
        out.push_str("<D:lockdiscovery/>");
        return;
    }
    out.push_str("<D:lockdiscovery>");
    for lock in locks {
        let scope = if lock.exclusive { "exclusive" } else { "shared" };
        let depth = if lock.deep { "infinity" } else { "0" };
        // Rounded up: a client that asked for 100 seconds is told 100.
        let left = lock.until.saturating_duration_since(Instant::now()).as_millis().div_ceil(1000).max(1);
        out.push_str(&format!(
            "<D:activelock><D:locktype><D:write/></D:locktype><D:lockscope><D:{scope}/></D:lockscope>\
             <D:depth>{depth}</D:depth>{}<D:timeout>Second-{left}</D:timeout><D:locktoken><D:href>{}</D:href>\
             </D:locktoken><D:lockroot><D:href>{}</D:href></D:lockroot></D:activelock>",
            lock.owner,
            lock.token,
            lock.href(),
        ));
    }
    out.push_str("</D:lockdiscovery>");
}

fn answer(code: StatusCode, lock: &Lock, is_new: bool) -> Answer {
    let mut out = "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<D:prop xmlns:D=\"DAV:\">".to_owned();
    push_discovery(&mut out, std::slice::from_ref(lock));
    out.push_str("</D:prop>");
    let mut response = xml_answer(code, out);
    if is_new && let Ok(token) = HeaderValue::from_str(&format!("<{}>", lock.token)) {
        response.headers_mut().insert(HeaderName::from_static("lock-token"), token);
    }
    Ok(response)
}

/// The Timeout header (RFC 4918 10.7): the first of its times that is understood.
fn time(header: Option<&str>) -> Duration {
    let words = header.unwrap_or_default().split(',').map(str::trim);
    let mut known = words.filter_map(|word| match word.split_once('-') {
        None if word.eq_ignore_ascii_case("infinite") => Some(TIME_MAX),
        Some((unit, count)) if unit.eq_ignore_ascii_case("second") => {
            let is_number = !count.is_empty() && count.bytes().all(|byte| byte.is_ascii_digit());
            is_number
                .then(|| count.parse().map_or(TIME_MAX, Duration::from_secs).clamp(Duration::from_secs(1), TIME_MAX))
        }
        _ => None,
    });
    known.next().unwrap_or(TIME_USUAL)
}

/// Scope and owner that a body asks for.
fn lock_info(body: &[u8]) -> Result<(bool, String), Fail> {
    const BAD: Fail = Fail::bad_request("the body is no lockinfo of RFC 4918");
    let text = std::str::from_utf8(body).map_err(|_| BAD)?;
    let document = xml::parse(text)?;
    let root = document.root_element();
    if !xml::is(root, "lockinfo") {
        return Err(BAD);
    }
    let scope = xml::child(root, "lockscope").ok_or(BAD)?;
    let kind = xml::child(root, "locktype").ok_or(BAD)?;
    if xml::child(kind, "write").is_none() {
        return Err(Fail::new(StatusCode::UNPROCESSABLE_ENTITY, "only locks for writing are known"));
    }
    let exclusive = match (xml::child(scope, "exclusive"), xml::child(scope, "shared")) {
        (Some(_), None) => true,
        (None, Some(_)) => false,
        _ => return Err(BAD),
    };
    let mut owner = String::new();
    if let Some(node) = xml::child(root, "owner") {
        push_element(&mut owner, node)?;
    }
    if owner.len() > OWNER_BYTES_MAX {
        return Err(Fail::bad_request("the owner of the lock is too long"));
    }
    Ok((exclusive, owner))
}

pub async fn lock(context: &Context, body: &[u8]) -> Answer {
    let time = time(text(&context.headers, HeaderName::from_static("timeout")));
    let spot = context.look(&context.place.path).await?;
    let file = match &spot {
        Some(Spot::In(room, attr)) => file_key(room, attr),
        _ => None,
    };
    let (locks, user) = (&context.shared.locks, &context.user.name);
    if body.iter().all(u8::is_ascii_whitespace) {
        // A new time for a lock that is held (RFC 4918 9.10.2).
        context.check_conditions(spot.as_ref()).await?;
        let tokens = context.tokens()?;
        let [token] = tokens.as_slice() else {
            return Err(Fail::bad_request("a lock is refreshed with an If header that holds its token alone"));
        };
        let lock = locks.refresh(token, user, &context.place.path, file, time);
        let lock = lock.ok_or(Fail::precondition().with("<D:lock-token-matches-request-uri/>"))?;
        return answer(StatusCode::OK, &lock, false);
    }
    let (exclusive, owner) = xml::read((&context.shared.parsing, context.view.address), body, lock_info).await?;
    let depth = context.depth(Depth::Infinity)?;
    if depth == Depth::One {
        return Err(Fail::bad_request("a lock has depth 0 or infinity"));
    }
    context.check_conditions(spot.as_ref()).await?;
    let (room, attr, is_new) = match spot {
        Some(Spot::Top) => return Err(Fail::forbidden("the list of shares cannot be locked")),
        Some(Spot::In(room, attr)) => (room, attr, false),
        None => {
            if context.place.slash {
                return Err(Fail::conflict("there is no such folder: make it first"));
            }
            context.check_parent_locks(&context.place.path, &context.tokens()?)?;
            let entry = context.view.entry(&context.place.path).await.map_err(|e| Fail::from(e).of_parent())?;
            let Entry { room, dir, name } = entry;
            // An empty file stands for the name that is locked (RFC 4918 7.3).
            let mut upload = Upload::begin(&room, dir, None).await?;
            upload.settle().await?;
            let taken = |old: Option<&larder_fs::Attr>| match old {
                None => Ok(()),
                Some(_) => Err(Fail::conflict("another client made it in the same moment")),
            };
            let made = upload.publish(dir, &name, locks, taken).await?;
            (room, made.attr, true)
        }
    };
    room.to_change()?;
    room.files().access(&room.cred, attr.id.ino, larder_fs::ACCESS_WRITE).await?;
    let is_folder = attr.kind == FileKind::Directory;
    let held = match is_folder {
        true => None,
        false => Some(Held::take(room.files(), attr.id.ino, exclusive).await?),
    };
    let wanted = Wanted {
        user: user.clone(),
        path: context.place.path.clone(),
        is_folder,
        exclusive,
        deep: is_folder && depth == Depth::Infinity,
        owner,
        time,
        file: file_key(&room, &attr),
    };
    let lock = locks.add(wanted, held)?;
    answer(if is_new { StatusCode::CREATED } else { StatusCode::OK }, &lock, true)
}

pub async fn unlock(context: &Context) -> Answer {
    let token = text(&context.headers, HeaderName::from_static("lock-token"));
    let token = token.and_then(|token| token.trim().strip_prefix('<')?.strip_suffix('>'));
    let token = token.ok_or(Fail::bad_request("the Lock-Token header is missing or no <token>"))?;
    let spot = context.look(&context.place.path).await?;
    let file = match &spot {
        Some(Spot::In(room, attr)) => file_key(room, attr),
        _ => None,
    };
    if conditions::parse_if(&context.headers)?.is_some() {
        context.check_conditions(spot.as_ref()).await?;
    }
    context.shared.locks.remove(token, &context.user.name, &context.place.path, file)?;
    Ok(status(StatusCode::NO_CONTENT))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn times_that_clients_ask_for() {
        for (header, secs) in [
            ("Infinite, Second-4100000000", 3600),
            ("Second-4100000000", 3600),
            ("Second-99999999999999999999999", 3600),
            ("Second-120", 120),
            ("Second-0", 1),
            ("Extend-5, Second-7", 7),
            ("", 600),
            ("Second-x", 600),
        ] {
            assert_eq!(time(Some(header)).as_secs(), secs, "{header}");
        }
        assert_eq!(time(None), TIME_USUAL);
    }

    #[test]
    fn bodies_of_lock() {
        let of = |inner: &str| lock_info(format!("<lockinfo xmlns='DAV:'>{inner}</lockinfo>").as_bytes());
        let write = "<locktype><write/></locktype>";
        let (exclusive, owner) =
            of(&format!("<lockscope><exclusive/></lockscope>{write}<owner><href>x&amp;</href></owner>")).unwrap();
        assert!(exclusive && owner == "<D:owner><D:href>x&amp;</D:href></D:owner>", "{owner}");
        assert!(!of(&format!("<lockscope><shared/></lockscope>{write}")).unwrap().0);
        for bad in ["", write, "<lockscope><shared/></lockscope>", "<lockscope/><locktype><write/></locktype>"] {
            assert!(of(bad).is_err(), "{bad}");
        }
    }
}
