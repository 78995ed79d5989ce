//! The part of S3 that larder uses, over a map in memory: objects with metadata, ranges, conditions, listings, copies, multipart
//! uploads, bulk deletes. Faults come from a seed.
//!
//! - `test_bucket.cut_after`: a request that is cut off after it was served has had its effect. That is the fault that shows whether
//!   a client takes its own success for the work of another.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures::StreamExt;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::{Method, Request, Response, StatusCode};
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio::sync::Notify;

type Answer = Response<UnsyncBoxBody<Bytes, std::io::Error>>;

#[derive(Clone, Debug)]
struct Object {
    bytes: Bytes,
    e_tag: String,
    modified: SystemTime,
    headers: Vec<(String, String)>,
}

#[derive(Debug, Default)]
struct Upload {
    key: String,
    headers: Vec<(String, String)>,
    parts: BTreeMap<u32, Bytes>,
}

/// Chances are per mille.
#[derive(Debug, Default)]
pub struct Faults {
    pub latency_ms: AtomicU64,
    pub seed: AtomicU64,
    /// 503 SlowDown.
    pub slow_down: AtomicU64,
    /// The connection ends before the request is served.
    pub cut_before: AtomicU64,
    /// The connection ends after it was served (`test_bucket.cut_after`).
    pub cut_after: AtomicU64,
    /// Half of an answer's body.
    pub half: AtomicU64,
    /// The connection ends in the middle of a request's body.
    pub cut_body: AtomicU64,
    /// One byte of an object that is read is another.
    pub flip: AtomicU64,
    /// Not 0: no request is answered, all get 503.
    pub down: AtomicU64,
    /// Not 0: the keys have expired, as session tokens do.
    pub expired: AtomicU64,
    /// An HTTP status that writes of objects get, as from a server whose disks or quotas are full: 403, 400 or 507.
    pub full: AtomicU64,
    /// Not 0: conditions of PUT are ignored, as some servers do.
    pub unconditional: AtomicU64,
    /// Other than 0: every request comes with a time that is too far from the server's.
    pub skewed: AtomicU64,
}

/// One bucket for all names.
#[derive(Debug, Default)]
pub struct Server {
    objects: Mutex<BTreeMap<String, Object>>,
    uploads: Mutex<BTreeMap<String, Upload>>,
    counts: Mutex<BTreeMap<String, u64>>,
    next: AtomicU64,
    /// Answers with a byte that is another.
    pub flipped: AtomicU64,
    pub faults: Faults,
    /// PUT requests whose key contains this wait until they are let go, and then arrive.
    held: Mutex<Option<String>>,
    holding: AtomicU64,
    let_go: Notify,
}

struct Call {
    method: Method,
    key: String,
    query: BTreeMap<String, String>,
    headers: hyper::HeaderMap,
    body: Bytes,
}

impl Server {
    /// Serves until it is dropped by its runtime.
    pub async fn serve(self: Arc<Self>, listener: TcpListener) {
        loop {
            let Ok((stream, _)) = listener.accept().await else { continue };
            let _ = stream.set_nodelay(true);
            let server = Arc::clone(&self);
            tokio::spawn(async move {
                let service = hyper::service::service_fn(move |request| Arc::clone(&server).handle(request));
                let io = hyper_util::rt::TokioIo::new(stream);
                let _ = hyper::server::conn::http1::Builder::new().serve_connection(io, service).await;
            });
        }
    }

    /// A server on a port of its own, and its address.
    #[allow(dead_code)]
    pub async fn start() -> std::io::Result<(Arc<Self>, String)> {
        let server = Arc::new(Self::default());
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}", listener.local_addr()?);
        tokio::spawn(Arc::clone(&server).serve(listener));
        Ok((server, url))
    }

    pub fn set_fault(&self, name: &str, value: &str) {
        let faults = &self.faults;
        let at = match name {
            "latency_ms" => &faults.latency_ms,
            "seed" => &faults.seed,
            "slow_down" => &faults.slow_down,
            "cut_before" => &faults.cut_before,
            "cut_after" => &faults.cut_after,
            "half" => &faults.half,
            "cut_body" => &faults.cut_body,
            "flip" => &faults.flip,
            "down" => &faults.down,
            "expired" => &faults.expired,
            "full" => &faults.full,
            "unconditional" => &faults.unconditional,
            "skewed" => &faults.skewed,
            _ => return,
        };
        at.store(value.parse().unwrap_or(0), Ordering::Relaxed);
    }

    /// Requests of each kind so far.
    #[allow(dead_code)]
    pub fn counts(&self) -> BTreeMap<String, u64> {
        self.counts.lock().clone()
    }

    #[allow(dead_code)]
    pub fn requests(&self) -> u64 {
        self.counts.lock().values().sum()
    }

    /// Holds PUT requests of keys with this in them, from now on.
    #[allow(dead_code)]
    pub fn hold(&self, part: &str) {
        *self.held.lock() = Some(part.to_owned());
    }

    #[allow(dead_code)]
    pub fn held(&self) -> u64 {
        self.holding.load(Ordering::Relaxed)
    }

    /// What is held arrives now.
    #[allow(dead_code)]
    pub fn let_go(&self) {
        *self.held.lock() = None;
        self.let_go.notify_waiters();
    }

    #[allow(dead_code)]
    pub fn keys(&self) -> Vec<String> {
        self.objects.lock().keys().cloned().collect()
    }

    fn chance(&self, of: &AtomicU64) -> bool {
        let chance = of.load(Ordering::Relaxed);
        if chance == 0 {
            return false;
        }
        let mut hasher = DefaultHasher::new();
        let at = self.next.fetch_add(1, Ordering::Relaxed);
        (self.faults.seed.load(Ordering::Relaxed), at).hash(&mut hasher);
        hasher.finish() % 1000 < chance
    }

    async fn handle(self: Arc<Self>, request: Request<Incoming>) -> Result<Answer, std::io::Error> {
        let (parts, mut body) = request.into_parts();
        if parts.method == Method::PUT && self.chance(&self.faults.cut_body) {
            let _ = body.frame().await;
            return Err(cut());
        }
        let Ok(body) = body.collect().await else { return Err(cut()) };
        let path = percent_decode(parts.uri.path());
        let key = path.trim_start_matches('/').split_once('/').map_or("", |(_, key)| key).to_owned();
        let query = parse_query(parts.uri.query().unwrap_or(""));
        if path.starts_with("/_") {
            return Ok(self.control(&path, &query));
        }
        let call = Call { method: parts.method, key, query, headers: parts.headers, body: body.to_bytes() };
        *self.counts.lock().entry(kind_of(&call).to_owned()).or_default() += 1;
        let is_object = call.method == Method::GET && !call.key.is_empty();
        // The effect of a request comes once, somewhere in its latency.
        let latency = Duration::from_millis(self.faults.latency_ms.load(Ordering::Relaxed));
        tokio::time::sleep(latency / 2).await;
        if self.faults.down.load(Ordering::Relaxed) != 0 || self.chance(&self.faults.slow_down) {
            return Ok(failure(StatusCode::SERVICE_UNAVAILABLE, "SlowDown"));
        }
        if self.faults.expired.load(Ordering::Relaxed) != 0 {
            return Ok(failure(StatusCode::BAD_REQUEST, "ExpiredToken"));
        }
        if self.faults.skewed.load(Ordering::Relaxed) != 0 {
            return Ok(failure(StatusCode::FORBIDDEN, "RequestTimeTooSkewed"));
        }
        if let Some(full) = self.full().filter(|_| call.method == Method::PUT) {
            return Ok(full);
        }
        if self.chance(&self.faults.cut_before) {
            return Err(cut());
        }
        // Somebody who gives up waiting does not take the request back: it is served by a task of its own.
        let server = Arc::clone(&self);
        let served = tokio::spawn(async move {
            if call.method == Method::PUT {
                server.wait_if_held(&call.key).await;
            }
            server.serve_one(call)
        });
        let Ok(answer) = served.await else { return Err(cut()) };
        tokio::time::sleep(latency / 2).await;
        if self.chance(&self.faults.cut_after) {
            return Err(cut());
        }
        if self.chance(&self.faults.half) {
            return Ok(halved(answer).await);
        }
        if is_object && self.chance(&self.faults.flip) {
            self.flipped.fetch_add(1, Ordering::Relaxed);
            return Ok(flipped(answer, self.next.load(Ordering::Relaxed)).await);
        }
        Ok(answer)
    }

    fn full(&self) -> Option<Answer> {
        let status = u16::try_from(self.faults.full.load(Ordering::Relaxed)).ok().filter(|status| *status != 0)?;
        Some(failure(StatusCode::from_u16(status).ok()?, "QuotaExceeded"))
    }

    async fn wait_if_held(&self, key: &str) {
        let is_held = || self.held.lock().as_ref().is_some_and(|part| key.contains(part.as_str()));
        loop {
            let let_go = self.let_go.notified();
            if !is_held() {
                return;
            }
            self.holding.fetch_add(1, Ordering::Relaxed);
            let_go.await;
            self.holding.fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn control(&self, path: &str, query: &BTreeMap<String, String>) -> Answer {
        match path {
            "/_faults" => query.iter().for_each(|(name, value)| self.set_fault(name, value)),
            "/_hold" => query.get("part").into_iter().for_each(|part| self.hold(part)),
            "/_let_go" => self.let_go(),
            "/_reset" => self.counts.lock().clear(),
            _ => {}
        }
        let counts = self.counts.lock();
        let text: Vec<String> = counts.iter().map(|(kind, count)| format!("\"{kind}\":{count}")).collect();
        answer(StatusCode::OK, format!("{{{}}}", text.join(",")))
    }

    fn serve_one(&self, call: Call) -> Answer {
        match (&call.method, call.key.is_empty()) {
            (&Method::GET, true) => self.list(&call),
            (&Method::POST, true) => self.delete_many(&call),
            (&Method::GET | &Method::HEAD, false) => self.get(&call),
            (&Method::PUT, false) if call.query.contains_key("uploadId") => self.put_part(&call),
            (&Method::PUT, false) => self.put(&call),
            (&Method::POST, false) if call.query.contains_key("uploads") => self.begin_upload(&call),
            (&Method::POST, false) => self.complete_upload(&call),
            (&Method::DELETE, false) => self.delete(&call),
            _ => failure(StatusCode::BAD_REQUEST, "InvalidRequest"),
        }
    }

    fn get(&self, call: &Call) -> Answer {
        let Some(object) = self.objects.lock().get(&call.key).cloned() else {
            return failure(StatusCode::NOT_FOUND, "NoSuchKey");
        };
        let header = |name: &str| call.headers.get(name).and_then(|value| value.to_str().ok());
        if header("if-match").is_some_and(|tag| tag != "*" && tag != object.e_tag) {
            return failure(StatusCode::PRECONDITION_FAILED, "PreconditionFailed");
        }
        if header("if-none-match").is_some_and(|tag| tag == "*" || tag == object.e_tag) {
            return failure(StatusCode::NOT_MODIFIED, "NotModified");
        }
        let modified = |name: &str| header(name).and_then(|text| httpdate::parse_http_date(text).ok());
        let second = httpdate::parse_http_date(&httpdate::fmt_http_date(object.modified)).unwrap_or(object.modified);
        if modified("if-modified-since").is_some_and(|since| second <= since) {
            return failure(StatusCode::NOT_MODIFIED, "NotModified");
        }
        if modified("if-unmodified-since").is_some_and(|since| second > since) {
            return failure(StatusCode::PRECONDITION_FAILED, "PreconditionFailed");
        }
        let len = object.bytes.len();
        let range = header("range").and_then(|text| parse_range(text, len));
        if header("range").is_some() && range.is_none() {
            return failure(StatusCode::RANGE_NOT_SATISFIABLE, "InvalidRange");
        }
        let (status, body) = match &range {
            Some(range) => (StatusCode::PARTIAL_CONTENT, object.bytes.slice(range.clone())),
            None => (StatusCode::OK, object.bytes.clone()),
        };
        let mut out = Response::builder().status(status).header("etag", &object.e_tag);
        out = out.header("last-modified", httpdate::fmt_http_date(object.modified)).header("accept-ranges", "bytes");
        if let Some(range) = &range {
            out = out.header("content-range", format!("bytes {}-{}/{len}", range.start, range.end - 1));
        }
        for (name, value) in &object.headers {
            out = out.header(name, value);
        }
        out = out.header("content-length", body.len());
        let body = if call.method == Method::HEAD { Bytes::new() } else { body };
        out.body(full(body)).unwrap_or_else(|_| failure(StatusCode::INTERNAL_SERVER_ERROR, "InternalError"))
    }

    fn put(&self, call: &Call) -> Answer {
        let header = |name: &str| call.headers.get(name).and_then(|value| value.to_str().ok());
        let mut objects = self.objects.lock();
        let there = objects.get(&call.key);
        if self.faults.unconditional.load(Ordering::Relaxed) == 0 {
            if header("if-none-match") == Some("*") && there.is_some() {
                return failure(StatusCode::PRECONDITION_FAILED, "PreconditionFailed");
            }
            if let Some(tag) = header("if-match") {
                match there {
                    None => return failure(StatusCode::NOT_FOUND, "NoSuchKey"),
                    Some(object) if object.e_tag != tag => {
                        return failure(StatusCode::PRECONDITION_FAILED, "PreconditionFailed");
                    }
                    Some(_) => {}
                }
            }
        }
        let mut object = object_of(call.body.clone(), kept_headers(&call.headers));
        if let Some(source) = header("x-amz-copy-source") {
            let source = percent_decode(source);
            let from = source.trim_start_matches('/').split_once('/').map_or("", |(_, key)| key);
            let Some(source) = objects.get(from) else { return failure(StatusCode::NOT_FOUND, "NoSuchKey") };
            object = object_of(source.bytes.clone(), source.headers.clone());
            let xml = format!("<CopyObjectResult><ETag>{}</ETag></CopyObjectResult>", escape(&object.e_tag));
            objects.insert(call.key.clone(), object);
            return answer(StatusCode::OK, xml);
        }
        let e_tag = object.e_tag.clone();
        objects.insert(call.key.clone(), object);
        let out = Response::builder().header("etag", e_tag).body(full(Bytes::new()));
        out.unwrap_or_else(|_| failure(StatusCode::INTERNAL_SERVER_ERROR, "InternalError"))
    }

    fn delete(&self, call: &Call) -> Answer {
        if let Some(id) = call.query.get("uploadId") {
            self.uploads.lock().remove(id);
        } else {
            self.objects.lock().remove(&call.key);
        }
        answer(StatusCode::NO_CONTENT, String::new())
    }

    fn delete_many(&self, call: &Call) -> Answer {
        let text = String::from_utf8_lossy(&call.body).into_owned();
        let mut objects = self.objects.lock();
        let mut out = String::from("<DeleteResult>");
        for key in text.split("<Key>").skip(1).filter_map(|rest| rest.split_once("</Key>")) {
            let key = unescape(key.0);
            objects.remove(&key);
            out.push_str(&format!("<Deleted><Key>{}</Key></Deleted>", escape(&key)));
        }
        out.push_str("</DeleteResult>");
        answer(StatusCode::OK, out)
    }

    fn list(&self, call: &Call) -> Answer {
        let get = |name: &str| call.query.get(name).cloned().unwrap_or_default();
        let (prefix, delimiter) = (get("prefix"), get("delimiter"));
        let after = call.query.get("continuation-token").cloned().unwrap_or_else(|| get("start-after"));
        let max: usize = call.query.get("max-keys").and_then(|max| max.parse().ok()).unwrap_or(1000).min(1000);
        let objects = self.objects.lock();
        let (mut keys, mut folders) = (String::new(), Vec::<String>::new());
        let (mut count, mut last, mut more) = (0, String::new(), false);
        for (key, object) in objects.range(prefix.clone()..).take_while(|(key, _)| key.starts_with(&prefix)) {
            if *key <= after || (!delimiter.is_empty() && after.ends_with(&delimiter) && key.starts_with(&after)) {
                continue;
            }
            let rest = key.get(prefix.len()..).unwrap_or("");
            let folder = rest.find(&delimiter).filter(|_| !delimiter.is_empty()).map(|at| {
                let end = prefix.len() + at + delimiter.len();
                key.get(..end).unwrap_or(key).to_owned()
            });
            if folder.as_ref().is_some_and(|folder| folders.last() == Some(folder)) {
                continue;
            }
            if count == max {
                more = true;
                break;
            }
            count += 1;
            last = folder.clone().unwrap_or_else(|| key.clone());
            match folder {
                Some(folder) => folders.push(folder),
                None => keys.push_str(&format!(
                    "<Contents><Key>{}</Key><LastModified>{}</LastModified><ETag>{}</ETag><Size>{}</Size></Contents>",
                    escape(key),
                    iso(object.modified),
                    escape(&object.e_tag),
                    object.bytes.len()
                )),
            }
        }
        let folders: String = folders
            .iter()
            .map(|folder| format!("<CommonPrefixes><Prefix>{}</Prefix></CommonPrefixes>", escape(folder)))
            .collect();
        let next = if more {
            format!("<NextContinuationToken>{}</NextContinuationToken>", escape(&last))
        } else {
            String::new()
        };
        answer(
            StatusCode::OK,
            format!("<ListBucketResult><IsTruncated>{more}</IsTruncated>{next}{keys}{folders}</ListBucketResult>"),
        )
    }

    fn begin_upload(&self, call: &Call) -> Answer {
        let id = format!("upload-{}", self.next.fetch_add(1, Ordering::Relaxed));
        let upload = Upload { key: call.key.clone(), headers: kept_headers(&call.headers), parts: BTreeMap::new() };
        self.uploads.lock().insert(id.clone(), upload);
        let xml = format!("<InitiateMultipartUploadResult><UploadId>{id}</UploadId></InitiateMultipartUploadResult>");
        answer(StatusCode::OK, xml)
    }

    fn put_part(&self, call: &Call) -> Answer {
        let number = call.query.get("partNumber").and_then(|number| number.parse().ok()).unwrap_or(0);
        let mut uploads = self.uploads.lock();
        let Some(upload) = call.query.get("uploadId").and_then(|id| uploads.get_mut(id)) else {
            return failure(StatusCode::NOT_FOUND, "NoSuchUpload");
        };
        upload.parts.insert(number, call.body.clone());
        let out = Response::builder().header("etag", tag_of(&call.body)).body(full(Bytes::new()));
        out.unwrap_or_else(|_| failure(StatusCode::INTERNAL_SERVER_ERROR, "InternalError"))
    }

    fn complete_upload(&self, call: &Call) -> Answer {
        let upload = call.query.get("uploadId").and_then(|id| self.uploads.lock().remove(id));
        let Some(upload) = upload.filter(|upload| upload.key == call.key) else {
            return failure(StatusCode::NOT_FOUND, "NoSuchUpload");
        };
        let bytes: Vec<u8> = upload.parts.values().flat_map(|part| part.iter().copied()).collect();
        let object = object_of(bytes.into(), upload.headers);
        let xml = format!(
            "<CompleteMultipartUploadResult><ETag>{}</ETag></CompleteMultipartUploadResult>",
            escape(&object.e_tag)
        );
        self.objects.lock().insert(call.key.clone(), object);
        answer(StatusCode::OK, xml)
    }
}

fn kind_of(call: &Call) -> &'static str {
    match (&call.method, call.key.is_empty()) {
        (&Method::GET, true) => "list",
        (&Method::GET, _) => "get",
        (&Method::HEAD, _) => "head",
        (&Method::PUT, _) => "put",
        (&Method::POST, true) | (&Method::DELETE, _) => "delete",
        _ => "post",
    }
}

fn object_of(bytes: Bytes, headers: Vec<(String, String)>) -> Object {
    Object { e_tag: tag_of(&bytes), modified: SystemTime::now(), bytes, headers }
}

/// As with S3, equal content has an equal tag.
fn tag_of(bytes: &Bytes) -> String {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    format!("\"{:016x}\"", hasher.finish())
}

fn kept_headers(headers: &hyper::HeaderMap) -> Vec<(String, String)> {
    let standard = [
        "cache-control",
        "content-disposition",
        "content-encoding",
        "content-language",
        "content-type",
        "x-amz-storage-class",
    ];
    let is_kept = |name: &str| name.starts_with("x-amz-meta-") || standard.contains(&name);
    let kept = headers.iter().filter(|(name, _)| is_kept(name.as_str()));
    kept.filter_map(|(name, value)| Some((name.as_str().to_owned(), value.to_str().ok()?.to_owned()))).collect()
}

fn parse_range(text: &str, len: usize) -> Option<std::ops::Range<usize>> {
    let (start, end) = text.strip_prefix("bytes=")?.split_once('-')?;
    if start.is_empty() {
        let last: usize = end.parse().ok()?;
        return (len > 0).then(|| len.saturating_sub(last)..len);
    }
    let start: usize = start.parse().ok()?;
    let end = if end.is_empty() { len } else { end.parse::<usize>().ok()?.saturating_add(1).min(len) };
    (start < end).then_some(start..end)
}

fn parse_query(query: &str) -> BTreeMap<String, String> {
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (percent_decode(name), percent_decode(&value.replace('+', " ")))
        })
        .collect()
}

fn percent_decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let (mut out, mut at) = (Vec::with_capacity(bytes.len()), 0);
    while let Some(&byte) = bytes.get(at) {
        let hex = (byte == b'%').then(|| text.get(at + 1..at + 3)).flatten();
        match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(decoded) => {
                out.push(decoded);
                at += 3;
            }
            None => {
                out.push(byte);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

fn unescape(text: &str) -> String {
    text.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&apos;", "'").replace("&amp;", "&")
}

fn iso(time: SystemTime) -> String {
    let secs = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    // Days to a date, after Howard Hinnant's civil_from_days.
    let (days, rest) = ((secs.as_secs() / 86400) as i64, secs.as_secs() % 86400);
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let doe = z.rem_euclid(146_097);
    let yoe = (doe - doe / 1460 + doe / 36524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let (day, month) = (doy - (153 * mp + 2) / 5 + 1, if mp < 10 { mp + 3 } else { mp - 9 });
    let year = yoe + era * 400 + i64::from(month <= 2);
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z", secs.subsec_millis())
}

fn full(bytes: Bytes) -> UnsyncBoxBody<Bytes, std::io::Error> {
    Full::new(bytes).map_err(|never: Infallible| match never {}).boxed_unsync()
}

fn answer(status: StatusCode, text: String) -> Answer {
    let mut out = Response::new(full(text.into()));
    *out.status_mut() = status;
    out
}

fn failure(status: StatusCode, code: &str) -> Answer {
    answer(status, format!("<Error><Code>{code}</Code><Message>{code}</Message></Error>"))
}

fn cut() -> std::io::Error {
    std::io::Error::other("cut off")
}

/// The body with another byte in it.
async fn flipped(answer: Answer, seed: u64) -> Answer {
    let (parts, body) = answer.into_parts();
    let mut whole = body.collect().await.map(|body| body.to_bytes().to_vec()).unwrap_or_default();
    let at = seed.wrapping_mul(0x9e37_79b9) as usize % whole.len().max(1);
    if let Some(byte) = whole.get_mut(at) {
        *byte ^= 0x10;
    }
    Response::from_parts(parts, full(whole.into()))
}

/// The first half of the body, then the end of the connection.
async fn halved(answer: Answer) -> Answer {
    let (parts, body) = answer.into_parts();
    let whole = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    if whole.len() < 2 {
        return Response::from_parts(parts, full(whole));
    }
    let half = whole.slice(..whole.len() / 2);
    let mut parts = parts;
    parts.headers.insert("content-length", whole.len().into());
    let pieces = futures::stream::iter([Ok(Frame::data(half)), Err(cut())]);
    Response::from_parts(parts, BodyExt::boxed_unsync(StreamBody::new(pieces.boxed())))
}
