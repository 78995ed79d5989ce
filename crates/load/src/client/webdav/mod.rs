//! WebDAV (RFC 4918) over HTTP/1.1: PUT and ranged GET move the data, PROPFIND, MKCOL and DELETE do the rest.
//!
//! A file is written as a whole, in one stream. Nobody can ask a WebDAV server to flush: when it answers a PUT, it
//! has the file, on its disks or in its memory.

mod http;
mod multistatus;
mod tls;

use std::rc::Rc;
use std::sync::Mutex;
use std::task::Poll;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::{Frame, Incoming};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST, RANGE};
use hyper::{Method, Request, Response, StatusCode};

use super::error::{ClientError, Outcome};
use super::options::ClientOptions;
use super::patience;
use super::share::{Entry, Identity, Share, Target, ended_early};
use super::url::{ShareUrl, decode, encode_path};
use crate::workload::Workload;
use http::{Payload, Place, Pool, Sent};
use larder_facts::base64;

const ANSWER_BYTES_MAX: usize = 64 << 20;
const PROPERTIES: &str = r#"<?xml version="1.0" encoding="utf-8"?>
<propfind xmlns="DAV:"><prop><resourcetype/><getcontentlength/></prop></propfind>"#;

pub(super) struct DavTarget {
    place: Place,
    /// Of the `Host` header.
    authority: String,
    base: String,
    user: Option<String>,
    authorization: Option<String>,
    /// The cipher, and the whole connection in words.
    found: Mutex<Option<(String, String)>>,
}

impl DavTarget {
    pub fn new(url: &ShareUrl, options: &ClientOptions) -> Outcome<Self> {
        let secure = matches!(url.scheme.as_str(), "https" | "davs" | "webdavs");
        let port = url.port.unwrap_or(if secure { 443 } else { 80 });
        let any = options.any_certificate || url.option("any-certificate").is_some_and(|v| v != "0");
        let user = url.user.clone().or_else(|| options.user.clone());
        let password = url.password.clone().or_else(|| options.password.clone()).unwrap_or_default();
        let parts = url.parts()?;
        Ok(Self {
            place: Place { host: url.host.clone(), port, tls: secure.then(|| tls::connector(any)).transpose()? },
            authority: url.address(port),
            base: if parts.is_empty() { String::new() } else { format!("/{}", parts.join("/")) },
            authorization: user
                .as_ref()
                .map(|user| format!("Basic {}", base64::encode(format!("{user}:{password}").as_bytes()))),
            user,
            found: Mutex::new(None),
        })
    }
}

/// HTTP without TLS.
const PLAIN: &str = "not encrypted";

impl Target for DavTarget {
    type Share = DavShare;
    const ACCESS: &'static str = "webdav";
    const STREAMS: bool = true;

    async fn connect(&self, _: Option<&Workload>) -> Outcome<DavShare> {
        let share = DavShare {
            pool: Pool::new(self.place.clone()),
            authority: self.authority.clone(),
            base: self.base.clone(),
            user: self.user.clone(),
            authorization: self.authorization.clone(),
        };
        share.properties("", "0").await?;
        if let Ok(mut found) = self.found.lock() {
            let protection = share.pool.protection.borrow().clone().unwrap_or_else(|| PLAIN.into());
            let description = format!(
                "WebDAV over HTTP/1.1 to {}, folder {}, {protection}; the server alone decides when data is on its disks",
                self.authority,
                if self.base.is_empty() { "/" } else { &self.base }
            );
            *found = Some((protection, description));
        }
        Ok(share)
    }

    fn describe(&self) -> String {
        let found = self.found.lock().ok().and_then(|found| found.clone());
        found.map_or_else(|| format!("WebDAV to {}", self.authority), |(_, description)| description)
    }

    fn encryption(&self) -> String {
        let found = self.found.lock().ok().and_then(|found| found.clone());
        match found {
            Some((protection, _)) if protection == PLAIN => "none".to_owned(),
            Some((protection, _)) => protection,
            None => "unknown".to_owned(),
        }
    }
}

pub(super) struct DavShare {
    pool: Pool,
    authority: String,
    base: String,
    user: Option<String>,
    authorization: Option<String>,
}

pub(super) struct DavFile {
    path: String,
}

impl DavShare {
    fn request(&self, method: &str, path: &str, headers: &[(&str, &str)], body: Payload) -> Request<Payload> {
        let uri = match format!("{}/{path}", self.base) {
            full if path.is_empty() && !self.base.is_empty() => format!("{}/", full.trim_end_matches('/')),
            full => full,
        };
        let mut request = Request::new(body);
        *request.method_mut() = Method::from_bytes(method.as_bytes()).unwrap_or(Method::GET);
        *request.uri_mut() = encode_path(&uri).parse().unwrap_or_default();
        let authority = (HOST.as_str(), self.authority.as_str());
        let authorization = self.authorization.as_deref().map(|value| (AUTHORIZATION.as_str(), value));
        for (name, value) in [authority].into_iter().chain(authorization).chain(headers.iter().copied()) {
            if let (Ok(name), Ok(value)) = (hyper::header::HeaderName::try_from(name), value.parse()) {
                request.headers_mut().insert(name, value);
            }
        }
        request
    }

    /// A request without much of a body, and its answer, which is read to the end.
    async fn simple(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &'static str,
    ) -> Outcome<(StatusCode, String)> {
        let text = || {
            if body.is_empty() { Payload::empty() } else { Payload::Text(Some(Bytes::from_static(body.as_bytes()))) }
        };
        let (response, lease) = self.pool.ask(|| self.request(method, path, headers, text())).await?;
        let (head, body) = response.into_parts();
        let bytes = collect(body, path).await?;
        lease.keep();
        Ok((head.status, String::from_utf8_lossy(&bytes).into_owned()))
    }

    async fn properties(&self, path: &str, depth: &str) -> Outcome<Vec<multistatus::Found>> {
        let headers = [("depth", depth), (CONTENT_TYPE.as_str(), "application/xml")];
        let (status, text) = self.simple("PROPFIND", path, &headers, PROPERTIES).await?;
        let what = if path.is_empty() { &self.base } else { path };
        if status != StatusCode::MULTI_STATUS {
            return Err(self.failure(status, what));
        }
        multistatus::parse(&text)
            .ok_or_else(|| ClientError::protocol(what, "the server's list of files makes no sense"))
    }

    fn failure(&self, status: StatusCode, what: &str) -> ClientError {
        let what = if what.is_empty() { "/" } else { what }.to_owned();
        let reason = format!("HTTP status {status}");
        match status.as_u16() {
            401 => ClientError::WrongPassword {
                host: self.authority.clone(),
                who: self
                    .user
                    .as_ref()
                    .map_or("a visitor without a name".into(), |user| format!("user {user} with this password")),
                reason: "check both; basic authentication is what is tried".into(),
            },
            403 => ClientError::Denied { what, reason },
            404 | 409 | 410 => ClientError::NotFound { what, reason },
            405 | 501 => ClientError::Unsupported {
                access: "webdav".into(),
                reason: format!("{what} on {} is a web server's, without WebDAV for it ({reason})", self.authority),
            },
            413 | 507 => ClientError::NoSpace { what },
            300..=399 => ClientError::Protocol {
                what,
                reason: format!("{reason}: the share is at another address, give that one"),
            },
            _ => ClientError::Protocol { what, reason },
        }
    }

    /// The data of a GET, checked as it comes.
    async fn receive(
        &self,
        path: &str,
        headers: &[(&str, &str)],
        at: u64,
        len: u64,
        identity: Identity<'_>,
    ) -> Outcome<()> {
        let (response, lease) = self.pool.ask(|| self.request("GET", path, headers, Payload::empty())).await?;
        let expected = if headers.is_empty() { StatusCode::OK } else { StatusCode::PARTIAL_CONTENT };
        match response.status() {
            status if status == expected => {}
            StatusCode::OK => {
                let reason = "the server does not send parts of files".to_owned();
                return Err(ClientError::Unsupported { access: "webdav".into(), reason });
            }
            StatusCode::RANGE_NOT_SATISFIABLE => return Err(ended_early(path, at)),
            status => return Err(self.failure(status, path)),
        }
        let got = self.check(response, path, at, len, identity).await?;
        lease.keep();
        if got == len { Ok(()) } else { Err(ended_early(path, at + got)) }
    }

    async fn check(
        &self,
        response: Response<Incoming>,
        path: &str,
        at: u64,
        len: u64,
        identity: Identity<'_>,
    ) -> Outcome<u64> {
        let mut body = response.into_body();
        let mut got = 0;
        while let Some(frame) = next_frame(&mut body, path).await? {
            let Some(data) = frame.data_ref() else { continue };
            identity.check(path, at + got, data)?;
            got += data.len() as u64;
            if got > len {
                return Err(ended_early(path, at + len));
            }
        }
        Ok(got)
    }
}

async fn next_frame(body: &mut Incoming, what: &str) -> Outcome<Option<Frame<Bytes>>> {
    patience::reply(what, async { body.frame().await.transpose().map_err(|e| ClientError::lost(what, e)) }).await
}

async fn collect(mut body: Incoming, what: &str) -> Outcome<Vec<u8>> {
    let mut bytes = Vec::new();
    while let Some(frame) = next_frame(&mut body, what).await? {
        let data = frame.data_ref().map(Bytes::as_ref).unwrap_or_default();
        if bytes.len() + data.len() > ANSWER_BYTES_MAX {
            return Err(ClientError::protocol(what, "an answer without end"));
        }
        bytes.extend_from_slice(data);
    }
    Ok(bytes)
}

/// The last part of an address, decoded.
fn name_of(href: &str) -> Option<String> {
    let path = href.split(['?', '#']).next()?.trim_end_matches('/');
    decode(path.rsplit('/').next()?)
        .filter(|name| !name.is_empty() && !name.contains('/') && name != "." && name != "..")
}

impl Share for DavShare {
    type File = DavFile;

    async fn make_folder(&self, path: &str) -> Outcome<()> {
        let (status, _) = self.simple("MKCOL", &format!("{path}/"), &[], "").await?;
        match status {
            // "Not allowed" is what a server says where something is already.
            StatusCode::METHOD_NOT_ALLOWED if self.properties(path, "0").await.is_ok() => Ok(()),
            status if status.is_success() => Ok(()),
            status => Err(self.failure(status, path)),
        }
    }

    async fn list(&self, path: &str) -> Outcome<Vec<Entry>> {
        let slash = if path.is_empty() { String::new() } else { format!("{path}/") };
        let found = self.properties(&slash, "1").await?;
        let own = format!("{}/{path}", self.base);
        let own_depth = own.split('/').filter(|p| !p.is_empty()).count();
        // The folder itself is in its own list.
        let depth = |href: &str| {
            let path = href.split_once("://").map_or(href, |(_, rest)| rest.find('/').map_or("", |at| &rest[at..]));
            path.split('/').filter(|p| !p.is_empty()).count()
        };
        let inner = found.into_iter().filter(|f| depth(&f.href) == own_depth + 1);
        Ok(inner.filter_map(|f| Some(Entry { name: name_of(&f.href)?, folder: f.folder })).collect())
    }

    async fn remove(&self, path: &str) -> Outcome<()> {
        let (status, _) = self.simple("DELETE", path, &[], "").await?;
        if status.is_success() { Ok(()) } else { Err(self.failure(status, path)) }
    }

    /// DELETE takes what is inside as well (RFC 4918 9.6.1), and a listing leaves out names that make no sense: what
    /// is not seen to be empty stays.
    async fn remove_folder(&self, path: &str) -> Outcome<()> {
        let folder = format!("{path}/");
        if self.properties(&folder, "1").await?.len() > 1 {
            return Err(ClientError::protocol(path, "the folder is not empty: look at it and remove it by hand"));
        }
        self.remove(&folder).await
    }

    async fn size(&self, path: &str) -> Outcome<u64> {
        let found = self.properties(path, "0").await?;
        let first = found.first().ok_or_else(|| ClientError::not_found(path, "the server lists nothing"))?;
        Ok(first.size.unwrap_or(0))
    }

    async fn create(&self, path: &str) -> Outcome<DavFile> {
        let (status, _) = self.simple("PUT", path, &[], "").await?;
        match status.is_success() {
            true => Ok(DavFile { path: path.to_owned() }),
            false => Err(self.failure(status, path)),
        }
    }

    async fn open(&self, path: &str, _to_write: bool) -> Outcome<DavFile> {
        Ok(DavFile { path: path.to_owned() })
    }

    async fn read(&self, file: &DavFile, at: u64, len: u64, identity: Identity<'_>) -> Outcome<()> {
        let range = format!("bytes={at}-{}", at + len - 1);
        self.receive(&file.path, &[(RANGE.as_str(), &range)], at, len, identity).await
    }

    async fn write(&self, _: &DavFile, _: u64, _: u64, _: Identity<'_>) -> Outcome<()> {
        let reason = "a file is written as a whole, not in its middle".to_owned();
        Err(ClientError::Unsupported { access: "webdav".into(), reason })
    }

    async fn flush(&self, _: &DavFile, _: Identity<'_>) -> Outcome<()> {
        Ok(())
    }

    async fn close(&self, _: DavFile) -> Outcome<()> {
        Ok(())
    }

    async fn put(
        &self,
        path: &str,
        len: u64,
        block: u64,
        _sync: bool,
        identity: Identity<'_>,
        told: &dyn Fn(u64) -> bool,
    ) -> Outcome<()> {
        let sent = Rc::new(Sent::default());
        let payload = || Payload::Contents {
            contents: identity.contents.clone(),
            file: identity.file,
            generation: identity.generation,
            at: 0,
            len,
            sent: sent.clone(),
        };
        // An upload that is as good as sent is not begun again.
        let mut asking = std::pin::pin!(self.pool.ask_long(|| self.request("PUT", path, &[], payload()), len <= block));
        // As long as bytes go out, the server takes them.
        let mut silence = std::pin::pin!(tokio::time::sleep(patience::REPLY_TIME_MAX));
        let (mut counted, mut seen) = (0, 0);
        let outcome = std::future::poll_fn(|cx| {
            let bytes = sent.poll_bytes(cx);
            if std::mem::replace(&mut seen, bytes) != bytes {
                silence.as_mut().reset(tokio::time::Instant::now() + patience::REPLY_TIME_MAX);
            }
            while counted < bytes && (bytes - counted >= block || bytes == len) {
                let part = block.min(bytes - counted);
                counted += part;
                if !told(part) {
                    // Cut short: the connection goes with the rest of it.
                    return Poll::Ready(None);
                }
            }
            match asking.as_mut().poll(cx) {
                Poll::Pending if silence.as_mut().poll(cx).is_ready() => {
                    Poll::Ready(Some(Err(patience::silent(path, patience::REPLY_TIME_MAX))))
                }
                polled => polled.map(Some),
            }
        })
        .await;
        let Some(outcome) = outcome else { return Ok(()) };
        let (response, lease) = outcome?;
        let status = response.status();
        collect(response.into_body(), path).await?;
        lease.keep();
        if !status.is_success() {
            return Err(self.failure(status, path));
        }
        if counted < len {
            told(len - counted);
        }
        Ok(())
    }

    async fn get(&self, path: &str, len: u64, _block: u64, identity: Identity<'_>) -> Outcome<()> {
        self.receive(path, &[], 0, len, identity).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_keep_to_their_folder() {
        assert_eq!(name_of("/dav/a%20b/"), Some("a b".into()));
        assert_eq!(name_of("http://nas/dav/x"), Some("x".into()));
        for href in ["/", "/a/%2e%2e", "/a/%2Fb", "/a/%zz"] {
            assert_eq!(name_of(href), None, "{href}");
        }
    }
}
