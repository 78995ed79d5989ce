//! The way of a request of a browser's: what is public, what is a user's, and which page shows it.

use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;
use hyper::body::Incoming;
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Method, Response, StatusCode};
use larder_base::{Clock, task};
use larder_dav::browsers::{
    Answer, Asked, Body, BrowserSession, Browsers, Fail, Place, Refused, Stranger, Way, file, full, join, name,
    read_form, status, text,
};
use larder_doors::tree::{LOOKS_MAX, Room, ShareState, Spot};
use larder_fs::{Attr, FileKind, FsError};
use larder_people::User;

use super::entrance::{self, OWN, check_origin, check_token, is_secure};
use super::link_pages::{self, LINK};
use super::links::{self, Links};
use super::shelf::{failure, private, redirect};
use super::state::{Files, PageBeside};
use super::viewer::Viewer;
use super::visit::{FileVisit, OfLink};
use super::{archive, listing, search, upload_ops, versions, view};
use crate::asset::{self, Asset};
use crate::form::{Form, cookies, decoded};
use crate::router::Web;

/// The file view, for a server of WebDAV.
#[derive(Clone)]
pub struct FileView(Arc<Files>);

impl FileView {
    /// `links`: the file that keeps links to files (mode 0600); without one they end with the
    /// server.
    pub fn new(links: Option<PathBuf>, clock: Arc<dyn Clock>) -> Self {
        Self(Arc::new(Files::new(links, clock)))
    }

    /// The links that users made.
    pub fn links(&self) -> &Links {
        &self.0.links
    }

    /// Takes the log-in of the page at the same address, for requests of which `is_asked_for` says
    /// that they mean this machine.
    pub fn set_page(&self, web: Web, is_asked_for: impl Fn(&HeaderMap) -> bool + Send + Sync + 'static) {
        self.0.set_page(Some(PageBeside { web, is_asked_for: Box::new(is_asked_for) }));
    }

    /// The page is over.
    pub fn end_page(&self) {
        self.0.set_page(None);
    }

    async fn answer_public(&self, stranger: Stranger, head: Parts) -> (Answer, Option<Arc<str>>) {
        let path = head.uri.path();
        if path.starts_with(LINK) {
            return self.by_link(stranger, head).await;
        }
        if let Some(asset) = asset::of_path(path) {
            return (Ok(send_asset(asset, &head.headers)), None);
        }
        let query = Form::read_leniently(head.uri.query().unwrap_or_default().as_bytes());
        let find = |name: &str| stranger.user(name);
        let answer = match head.method.as_str() {
            "POST" => entrance::log_in(&self.0, &stranger, &head.headers).await,
            _ if entrance::own_session(&self.0, &head.headers, &find).is_some() => Ok(redirect("/")),
            _ => entrance::login_page(query.get("to"), "", None),
        };
        (answer, None)
    }

    /// A request by a link, and which one, where the visitor may use it.
    async fn by_link(&self, stranger: Stranger, head: Parts) -> (Answer, Option<Arc<str>>) {
        const OVER: Fail = Fail::new(StatusCode::NOT_FOUND, "this link has ended, or never was: ask for a new one");
        let files = &self.0;
        let rest = head.uri.path().strip_prefix(LINK).unwrap_or_default();
        let (token, below) = rest.split_once('/').map_or((rest, None), |(token, below)| (token, Some(below)));
        let Some(link) = files.links.find(token) else { return (failure(&OVER, None, false), None) };
        // `links.rights_of_the_maker`.
        let maker = stranger.user(&link.maker).filter(|user| link.is_of(&user.name, user.uid));
        let Some(user) = maker else { return (failure(&OVER, None, false), None) };
        let prefix = format!("{LINK}{token}");
        if link.password.is_some() && !self.has_opened(&head.headers, &link) {
            if head.method != Method::POST {
                return (link_pages::door(head.uri.path(), false), None);
            }
            return (self.open_link(&stranger, &head, &link, &prefix).await, None);
        }
        let is_by: Option<Arc<str>> = Some(link.id().into());
        if head.method != Method::GET && head.method != Method::HEAD {
            return (
                Err(Fail::new(StatusCode::METHOD_NOT_ALLOWED, "what a link leads to is read, not changed")),
                is_by,
            );
        }
        if files.links.note_use(&link) {
            let files = Arc::clone(files);
            task::spawn(async move { files.links.store_uses().await });
        }
        let place = Place::of_url(&format!("/{}", below.unwrap_or_default()));
        let answer = match place {
            Err(fail) => Err(fail),
            Ok(place) => {
                let path = if place.path.is_empty() { link.path.clone() } else { join(&link.path, &place.path) };
                let slash = below.is_some_and(|below| below.is_empty() || below.ends_with('/'));
                let query = Form::read_leniently(head.uri.query().unwrap_or_default().as_bytes());
                let context = stranger.into_context(user, head.method, head.headers, Place { path, slash });
                let link = Some(OfLink { prefix, base: link.path.clone() });
                page(FileVisit { files: Arc::clone(files), context, query, viewer: Viewer::default(), link }).await
            }
        };
        let answer = answer.or_else(|fail| match fail.status {
            StatusCode::NOT_MODIFIED | StatusCode::PRECONDITION_FAILED | StatusCode::SERVICE_UNAVAILABLE => Err(fail),
            _ => failure(&OVER, None, false),
        });
        (answer, is_by)
    }

    fn has_opened(&self, headers: &HeaderMap, link: &links::Link) -> bool {
        let mut tokens = cookies(headers, link_pages::COOKIE);
        tokens.any(|token| {
            self.0.visitors.find(token, self.0.now(), true).is_some_and(|found| found.user == link.whole_id())
        })
    }

    async fn open_link(&self, stranger: &Stranger, head: &Parts, link: &links::Link, prefix: &str) -> Answer {
        check_origin(&head.headers)?;
        let form = Form::read_leniently(&stranger.form);
        let given = form.get("password").unwrap_or_default().to_owned();
        let name = format!("link {}", link.id());
        match stranger.verify_other(&name, link.password.clone(), given).await {
            Ok(()) => {
                let token = self.0.visitors.begin(&link.whole_id(), 0, Some(stranger.address), "", self.0.now());
                let mut response = redirect(head.uri.path());
                let secure = is_secure(stranger.way.tls, &head.headers);
                if let Some(cookie) = link_pages::cookie(&token, prefix, secure) {
                    response.headers_mut().append(header::SET_COOKIE, cookie);
                }
                Ok(response)
            }
            Err(Refused::LockedOut) => {
                let (status, text) = entrance::why(&Refused::LockedOut);
                failure(&Fail::new(status, text), None, false)
            }
            Err(_) => link_pages::door(head.uri.path(), true),
        }
    }

    /// `change`: the form that was sent.
    async fn answer_user(&self, asked: Asked, change: Option<Vec<u8>>) -> Answer {
        let Asked { context, session, query, way } = asked;
        let is_page = text(&context.headers, header::ACCEPT).is_some_and(|accept| accept.contains("text/html"));
        let is_head = context.method == Method::HEAD;
        let viewer = Viewer::of(&self.0, &context.user.name, session.as_ref(), &context.headers);
        let query = Form::read_leniently(query.as_bytes());
        let visit = FileVisit { files: Arc::clone(&self.0), context, query, viewer: viewer.clone(), link: None };
        let answer = match change {
            None => page(visit).await,
            Some(form) => {
                let form = Form::read_leniently(&form);
                match check_token(session.as_ref(), &visit.context.headers, Some(&form)) {
                    Ok(()) => posted(visit, way, form).await,
                    Err(fail) => Err(fail),
                }
            }
        };
        match answer {
            Err(fail) if is_page && fail.status != StatusCode::NOT_MODIFIED => failure(&fail, Some(&viewer), is_head),
            answer => answer,
        }
    }

    /// A request below [`OWN`] by a user.
    async fn own_page(&self, asked: Asked, below: &str, body: &mut Incoming) -> Answer {
        let Asked { context, session, way, .. } = asked;
        if let Some(id) = below.strip_prefix("upload/") {
            return upload_ops::go_on(&self.0, context, id, body).await;
        }
        // Links are the user's, wherever they lead; a token is less than its user.
        if context.user.token.is_some() {
            return Err(Fail::forbidden("an app token sees no links and ends none: log in with the password"));
        }
        let viewer = Viewer::of(&self.0, &context.user.name, session.as_ref(), &context.headers);
        match (below, context.method.as_str()) {
            ("links", "GET" | "HEAD") => link_pages::list(&self.0.links, &viewer),
            ("links" | "logout", "POST") => {
                let form = Form::read_leniently(&read_form(body).await?);
                check_token(session.as_ref(), &context.headers, Some(&form))?;
                match (below, &session) {
                    ("links", _) => link_pages::revoke(&self.0.links, &viewer, &form).await,
                    (_, Some(session)) => {
                        let secure = is_secure(way.tls, &context.headers);
                        Ok(entrance::log_out(&self.0, &context.user.name, session, secure))
                    }
                    _ => Err(Fail::bad_request("there is no session to end")),
                }
            }
            _ => Err(Fail::not_found()),
        }
    }
}

impl Browsers for FileView {
    fn is_public(&self, path: &str) -> bool {
        path.starts_with(LINK) || path.strip_prefix(OWN) == Some("login") || asset::of_path(path).is_some()
    }

    fn public(&self, stranger: Stranger, head: Parts) -> BoxFuture<'_, (Answer, Option<Arc<str>>)> {
        Box::pin(self.answer_public(stranger, head))
    }

    fn session(
        &self,
        headers: &HeaderMap,
        way: Way,
        find: &dyn Fn(&str) -> Option<Arc<User>>,
    ) -> Option<(Arc<User>, BrowserSession)> {
        entrance::session(&self.0, headers, way, find)
    }

    fn to_log_in(&self, head: &Parts, way: Way) -> Response<Body> {
        entrance::to_login(&self.0, head, way)
    }

    fn check_change(&self, headers: &HeaderMap, session: Option<&BrowserSession>) -> Result<(), Fail> {
        check_token(session, headers, None)
    }

    fn own<'p>(&self, path: &'p str) -> Option<&'p str> {
        path.strip_prefix(OWN)
    }

    fn answer_own<'a>(&'a self, asked: Asked, below: String, body: &'a mut Incoming) -> BoxFuture<'a, Answer> {
        Box::pin(async move { self.own_page(asked, &below, body).await })
    }

    fn get(&self, asked: Asked) -> BoxFuture<'_, Answer> {
        Box::pin(self.answer_user(asked, None))
    }

    fn post(&self, asked: Asked, form: Vec<u8>) -> BoxFuture<'_, Answer> {
        Box::pin(self.answer_user(asked, Some(form)))
    }

    fn set_users(&self, users: &[User]) {
        // `uploads.of_one_user`
        self.0.uploads.keep_users(&users.iter().map(|user| (user.name.as_str(), user.uid)).collect());
    }

    fn forget_share(&self, share: &Arc<ShareState>) {
        self.0.uploads.forget_share(share);
    }

    fn work(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.0.uploads.expire_in_time())
    }
}

fn send_asset(asset: &'static Asset, headers: &HeaderMap) -> Response<Body> {
    let is_known = text(headers, header::IF_NONE_MATCH) == Some(asset.etag.as_str());
    let mut response = Response::new(full(if is_known { Bytes::new() } else { Bytes::from_static(asset.bytes) }));
    if is_known {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
    }
    let headers = response.headers_mut();
    private(headers);
    for (name, value) in [
        (header::CONTENT_TYPE, asset.kind),
        (header::ETAG, asset.etag.as_str()),
        (header::CACHE_CONTROL, asset::CACHED),
    ] {
        if let Ok(value) = HeaderValue::from_str(value) {
            headers.insert(name, value);
        }
    }
    response
}

async fn page(visit: FileVisit) -> Answer {
    for _ in 0..LOOKS_MAX {
        match visit.find().await {
            Ok(Spot::In(room, attr)) if attr.kind == FileKind::File => match one_file(&visit, room, attr).await {
                // Replaced since it was looked up (`tree.names_are_always_there`).
                Err(fail) if fail.is_stale => {}
                answer => return answer,
            },
            spot => return folder_page(visit, spot?).await,
        }
    }
    Err(FsError::Stale.into())
}

async fn folder_page(visit: FileVisit, spot: Spot) -> Answer {
    let query = &visit.query;
    match spot {
        Spot::Top if query.has("folders") => folders(&visit, None).await,
        Spot::Top if visit.context.place.slash => listing::shares(&visit).await,
        Spot::In(room, attr) if attr.kind == FileKind::Directory => {
            if query.has("zip") {
                return archive::answer(visit, room, attr, Vec::new()).await;
            }
            if query.has("share") && visit.link.is_none() {
                return link_pages::share(&visit, true, None);
            }
            if query.has("versions") && visit.link.is_none() {
                return versions::page(&visit, &room, &attr).await;
            }
            if !visit.context.place.slash {
                // Links on the page are relative to it.
                return Ok(redirect_permanently(&visit.href(visit.path(), true)));
            }
            if query.has("folders") && visit.link.is_none() {
                return folders(&visit, Some((room, attr))).await;
            }
            match query.get("q") {
                Some(words) if visit.link.is_none() => search::page(&visit, &room, &attr, words).await,
                _ => listing::folder(&visit, &room, &attr).await,
            }
        }
        Spot::In(..) => Err(Fail::forbidden("it is no file")),
        Spot::Top => Ok(redirect_permanently("/")),
    }
}

async fn one_file(visit: &FileVisit, room: Room, attr: Attr) -> Answer {
    if visit.context.place.slash {
        return Err(Fail::new(StatusCode::NOT_FOUND, "a file's URL does not end in a slash"));
    }
    let query = &visit.query;
    let is_page = query.has("view") || (visit.link.is_some() && !query.has("raw") && !query.has("download"));
    match () {
        () if query.has("download") => file(&visit.context, room, attr, Some(name(visit.path()))).await,
        () if query.has("share") && visit.link.is_none() => link_pages::share(visit, false, None),
        () if query.has("versions") && visit.link.is_none() => versions::page(visit, &room, &attr).await,
        () if is_page => view::page(visit, &room, &attr).await,
        () => file(&visit.context, room, attr, None).await,
    }
}

fn redirect_permanently(to: &str) -> Response<Body> {
    let mut response = status(StatusCode::MOVED_PERMANENTLY);
    if let Ok(url) = HeaderValue::from_str(to) {
        response.headers_mut().insert(header::LOCATION, url);
    }
    response
}

async fn folders(visit: &FileVisit, at: Option<(Room, Attr)>) -> Answer {
    let mut response = Response::new(full(Bytes::from(listing::folders(visit, at).await?)));
    private(response.headers_mut());
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}

/// A form of a page, or the beginning of an upload.
async fn posted(visit: FileVisit, way: Way, form: Form) -> Answer {
    if visit.query.has("upload") {
        return upload_ops::begin(&visit.files, &visit.context).await;
    }
    if visit.query.has("share") {
        // A link has its maker's rights, which are more than a token's, and outlives it.
        if visit.context.user.token.is_some() {
            return Err(Fail::forbidden("an app token makes no links: log in with the password"));
        }
        let secure = is_secure(way.tls, &visit.context.headers);
        return link_pages::make(&visit, &form, secure).await;
    }
    if visit.query.has("zip") {
        let (room, dir) = archive::folder_of(visit.find().await?)?;
        let names: Vec<Bytes> = form.all("name").map(|name| Bytes::from(decoded(name.as_bytes(), false))).collect();
        if names.is_empty() {
            return Err(Fail::bad_request("nothing is selected"));
        }
        return archive::answer(visit, room, dir, names).await;
    }
    Err(Fail::new(StatusCode::METHOD_NOT_ALLOWED, "this method has no meaning here"))
}
