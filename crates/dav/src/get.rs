//! GET and HEAD: files, whole or in ranges, read while the client takes them.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use futures::stream::{self, StreamExt, TryStreamExt};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::{Method, Response, StatusCode};
use larder_base::traffic::{self, Traffic};
use larder_files::{Open, Uses};
use larder_fs::{ACCESS_READ, Attr};

use super::conditions::{self, Present, text};
use super::context::{Answer, Body, Context, empty, full};
use super::fail::Fail;
use super::kinds::content_type;
use super::path::name;
use super::shared::Shared;
use super::text::push_http_date;
use super::wire::Arrivals;
use larder_doors::tree::Room;
use larder_doors::unread::Hold;

/// Bytes read at a time, and how many such reads of one client are under way or wait for it.
const READ_BYTES: u64 = 512 << 10;
const READS_MAX: usize = 2;
/// Ranges of one request. More of them get the whole file, as RFC 9110 (14.2) allows.
const RANGES_MAX: usize = 32;

/// An open file that is being sent.
struct Source {
    shared: Arc<Shared>,
    traffic: Arc<Traffic>,
    room: Room,
    ino: larder_fs::Ino,
    arrivals: Arc<Arrivals>,
    /// Keeps the file, and tells the other doors.
    _open: Open,
}

/// What a stored file may do when a browser shows it in this server's name: nothing runs.
const SANDBOX: HeaderValue = HeaderValue::from_static(
    "sandbox; default-src 'none'; img-src 'self' data:; media-src 'self'; style-src 'unsafe-inline'",
);
/// Browsers show PDF by a program of their own, which a sandbox forbids. That program runs apart from this origin.
const PDF: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; object-src 'self'; img-src 'self'; style-src 'unsafe-inline'; frame-ancestors 'self'",
);

/// The answer to GET or HEAD of a file; `save_as` makes a browser keep it under that name instead of showing it.
pub async fn file(context: &Context, room: Room, attr: Attr, save_as: Option<&[u8]>) -> Answer {
    let files = room.files().clone();
    files.access(&room.cred, attr.id.ino, ACCESS_READ).await?;
    let open = files.open_judged(attr.id, Uses::READ).await?;
    let attr = files.getattr_settled(attr.id).await?;
    let present = Present::of(&attr);
    let mut response = Response::new(empty());
    let headers = response.headers_mut();
    set(headers, header::ETAG, &present.etag);
    let mut modified = String::new();
    push_http_date(&mut modified, attr.mtime);
    set(headers, header::LAST_MODIFIED, &modified);
    headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    let kind = content_type(name(&context.place.path));
    headers.insert(header::CONTENT_SECURITY_POLICY, if kind == "application/pdf" { PDF } else { SANDBOX });
    if let Some(name) = save_as {
        set(headers, header::CONTENT_DISPOSITION, &disposition(name));
    }
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("private, no-cache"));
    if let Err(status) = conditions::check(&context.method, &context.headers, Some(&present)) {
        if status == StatusCode::PRECONDITION_FAILED {
            return Err(Fail::precondition());
        }
        *response.status_mut() = status;
        return Ok(response);
    }
    let ranges = match context.method == Method::GET && conditions::range_fits(&context.headers, &present) {
        true => ranges(text(&context.headers, header::RANGE), attr.size),
        false => Ranges::Whole,
    };
    let source = Arc::new(Source {
        shared: Arc::clone(&context.shared),
        traffic: Arc::clone(&context.traffic),
        room,
        ino: attr.id.ino,
        arrivals: Arc::clone(&context.arrivals),
        _open: open,
    });
    match ranges {
        Ranges::None => {
            set(headers, header::CONTENT_RANGE, &format!("bytes */{}", attr.size));
            *response.status_mut() = StatusCode::RANGE_NOT_SATISFIABLE;
        }
        Ranges::Whole => {
            set(headers, header::CONTENT_TYPE, kind);
            set(headers, header::CONTENT_LENGTH, &attr.size.to_string());
            if context.method == Method::GET {
                *response.body_mut() = body(source, vec![(Bytes::new(), 0, attr.size)], Bytes::new());
            }
        }
        Ranges::Some(list) => {
            if let [(start, len)] = list[..] {
                set(headers, header::CONTENT_TYPE, kind);
                set(headers, header::CONTENT_LENGTH, &len.to_string());
                set(headers, header::CONTENT_RANGE, &content_range(start, len, attr.size));
                *response.body_mut() = body(source, vec![(Bytes::new(), start, len)], Bytes::new());
            } else {
                multipart(&mut response, source, &list, &attr, kind);
            }
            *response.status_mut() = StatusCode::PARTIAL_CONTENT;
        }
    }
    Ok(response)
}

/// RFC 6266, with the name of RFC 8187.
pub fn disposition(name: &[u8]) -> String {
    let mut out = "attachment; filename*=UTF-8''".to_owned();
    super::path::push_escaped(&mut out, String::from_utf8_lossy(name).replace('/', "_").as_bytes());
    out
}

fn set(headers: &mut HeaderMap, name: header::HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}

fn content_range(start: u64, len: u64, size: u64) -> String {
    format!("bytes {start}-{}/{size}", start + len - 1)
}

/// RFC 9110 14.6.
fn multipart(response: &mut Response<Body>, source: Arc<Source>, list: &[(u64, u64)], attr: &Attr, kind: &str) {
    let boundary = uuid::Uuid::new_v4().simple().to_string();
    let mut parts = Vec::new();
    for (number, (start, len)) in list.iter().enumerate() {
        let before = if number == 0 { "" } else { "\r\n" };
        let range = content_range(*start, *len, attr.size);
        let head = format!("{before}--{boundary}\r\nContent-Type: {kind}\r\nContent-Range: {range}\r\n\r\n");
        parts.push((Bytes::from(head), *start, *len));
    }
    let tail = Bytes::from(format!("\r\n--{boundary}--\r\n"));
    let total: u64 = parts.iter().map(|(head, _, len)| head.len() as u64 + len).sum::<u64>() + tail.len() as u64;
    set(response.headers_mut(), header::CONTENT_TYPE, &format!("multipart/byteranges; boundary={boundary}"));
    set(response.headers_mut(), header::CONTENT_LENGTH, &total.to_string());
    *response.body_mut() = body(source, parts, tail);
}

/// Texts and ranges of a file in turn, and a text at the end.
fn body(source: Arc<Source>, parts: Vec<(Bytes, u64, u64)>, tail: Bytes) -> Body {
    let ranges = stream::iter(parts).flat_map(move |(head, start, len)| {
        let source = Arc::clone(&source);
        let rooms = Arc::clone(&source);
        // A later read takes its room after an earlier one: none waits for what is sent behind it.
        let parts = stream::iter(0..len.div_ceil(READ_BYTES)).then(move |n| {
            let (source, at) = (Arc::clone(&rooms), n * READ_BYTES);
            let bytes = (len - at).min(READ_BYTES) as usize;
            async move { (at, bytes, source.room_for(bytes).await) }
        });
        let reads = parts.map(move |(at, bytes, room)| {
            let source = Arc::clone(&source);
            async move {
                let read = source.read(start + at, bytes, &room);
                traffic::part_of(Arc::clone(&source.traffic), read).await
            }
        });
        let text = stream::iter((!head.is_empty()).then_some(Ok(head)));
        text.chain(reads.buffered(READS_MAX).map_ok(|chunks| stream::iter(chunks.into_iter().map(Ok))).try_flatten())
    });
    let all = ranges.chain(stream::iter((!tail.is_empty()).then_some(Ok::<_, io::Error>(tail))));
    BodyExt::boxed_unsync(StreamBody::new(all.map_ok(Frame::data)))
}

/// A chunk that counts until the client has taken it (`unread.until_it_left`).
fn counted(chunk: Bytes, room: &Option<Arc<Hold>>) -> Bytes {
    struct Counted {
        chunk: Bytes,
        _room: Arc<Hold>,
    }
    impl AsRef<[u8]> for Counted {
        fn as_ref(&self) -> &[u8] {
            &self.chunk
        }
    }
    match room {
        Some(room) => Bytes::from_owner(Counted { chunk, _room: Arc::clone(room) }),
        None => chunk,
    }
}

impl Source {
    /// `unread.large_parties_wait`
    async fn room_for(&self, bytes: usize) -> Option<Arc<Hold>> {
        match self.arrivals.memory() {
            Some(memory) => Some(Arc::new(memory.room(bytes).await)),
            None => None,
        }
    }

    /// Exactly `len` bytes: an answer that says its length and ends early is cut off, so that the client knows.
    async fn read(&self, offset: u64, len: usize, room: &Option<Arc<Hold>>) -> io::Result<Vec<Bytes>> {
        let (mut chunks, mut done) = (Vec::new(), 0);
        while done < len {
            let read = self.room.files().read(self.ino, offset + done as u64, len - done).await;
            let read = read.map_err(io::Error::other)?;
            if read.is_empty() {
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the file was truncated while it was sent"));
            }
            done += read.len();
            chunks.extend(read.chunks);
        }
        self.shared.stats.read(len);
        Ok(chunks.into_iter().map(|chunk| counted(chunk, room)).collect())
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Ranges {
    Whole,
    /// Starts and lengths.
    Some(Vec<(u64, u64)>),
    /// None of them lies in the file.
    None,
}

/// Every range lies in the file, and all of them are no longer than it.
#[cfg(any(test, fuzzing))]
pub fn fuzz_ranges(header: &str, size: u64) {
    let Ranges::Some(list) = ranges(Some(header), size) else { return };
    assert!(!list.is_empty() && list.len() <= RANGES_MAX);
    assert!(list.iter().all(|(start, len)| *len > 0 && start.checked_add(*len).is_some_and(|end| end <= size)));
    assert!(list.len() == 1 || list.iter().map(|(_, len)| len).sum::<u64>() <= size);
}

/// RFC 9110 14.1.2. What is no range of bytes is ignored.
fn ranges(header: Option<&str>, size: u64) -> Ranges {
    let Some(list) = header.and_then(|header| header.trim().strip_prefix("bytes=")) else { return Ranges::Whole };
    let (mut found, mut count) = (Vec::new(), 0);
    for one in list.split(',').map(str::trim).filter(|one| !one.is_empty()) {
        count += 1;
        let number = |text: &str| match text.bytes().all(|byte| byte.is_ascii_digit()) {
            // More digits than any file has bytes.
            true if text.len() > 19 => Some(u64::MAX),
            true => text.parse::<u64>().ok(),
            false => None,
        };
        let Some((first, last)) = one.split_once('-') else { return Ranges::Whole };
        let (start, end) = match (number(first), number(last)) {
            (None, Some(suffix)) if first.is_empty() => (size.saturating_sub(suffix), size),
            (Some(start), None) if last.is_empty() => (start, size),
            (Some(start), Some(last)) if start <= last => (start, last.saturating_add(1).min(size)),
            _ => return Ranges::Whole,
        };
        if start < end {
            found.push((start, end - start));
        }
    }
    // Overlapping ranges would make an answer much longer than the file.
    let total: u64 = found.iter().map(|(_, len)| *len).fold(0, u64::saturating_add);
    match found.is_empty() {
        _ if count == 0 || count > RANGES_MAX || (found.len() > 1 && total > size) => Ranges::Whole,
        true => Ranges::None,
        false => Ranges::Some(found),
    }
}

/// A short text.
pub fn plain_text(status: StatusCode, text: String) -> Response<Body> {
    let mut response = Response::new(full(Bytes::from(text)));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_the_rfc() {
        let some = |list: &[(u64, u64)]| Ranges::Some(list.to_vec());
        for (header, expected) in [
            ("bytes=0-499", some(&[(0, 500)])),
            ("bytes=500-999", some(&[(500, 500)])),
            ("bytes=-500", some(&[(9500, 500)])),
            ("bytes=9500-", some(&[(9500, 500)])),
            ("bytes=0-0,-1", some(&[(0, 1), (9999, 1)])),
            ("bytes= 0-999, 4500-5499, -1000", some(&[(0, 1000), (4500, 1000), (9000, 1000)])),
            ("bytes=0-99999", some(&[(0, 10_000)])),
            ("bytes=-20000", some(&[(0, 10_000)])),
            ("bytes=10000-", Ranges::None),
            ("bytes=-0", Ranges::None),
            ("bytes=99999999999999999999-", Ranges::None),
            ("bytes=5-1", Ranges::Whole),
            ("bytes=a-b", Ranges::Whole),
            ("bytes=+1-2", Ranges::Whole),
            ("items=0-1", Ranges::Whole),
            ("bytes=", Ranges::Whole),
            ("bytes=0-,0-,0-", Ranges::Whole),
        ] {
            assert_eq!(ranges(Some(header), 10_000), expected, "{header}");
        }
        assert_eq!(ranges(None, 5), Ranges::Whole);
        assert_eq!(ranges(Some("bytes=0-"), 0), Ranges::None);
    }
}
