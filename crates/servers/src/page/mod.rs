//! The page and the API over HTTPS, as guests of WebDAV's server.
//!
//! The page asks the daemon by the router of its socket, in process. It logs people in by the doors' own users, with their
//! one table of guesses.
//!
//! - `page.kept_factors`: second factors are in a file of the data folder that their user alone may read. It is written before a
//!   change of them is acknowledged; one that cannot be read lets nobody in.
//! - `page.kept_sessions`: sessions of browsers are written to a file of the data folder when one begins or ends, and
//!   when the daemon stops. A page that is open goes on after a restart.

mod hosts;
mod https_api;
mod in_process;
mod issuer;

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;
use http_body_util::{BodyExt, Full};
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Request, Response, StatusCode};
use larder_api::{Failure, UserRole};
use larder_base::{Clock, SystemClock, task};
use larder_dav::{Guest, GuestBody, PasswordRefused, Tls, WebHandle};
use larder_document::entitled::Entitlements;
use larder_document::folder::FACTORS_NAME;
use larder_web::{BASE, FactorsEnded, FileView, LogIn, Options, Peer, Refusal, Role, Standing, Web, generation};

use self::hosts::Hosts;
use self::in_process::InProcess;
use crate::passwords::Passwords;
use larder_config::PageConfig;
use larder_config::edit::replace_file;

const SESSIONS_FILE: &str = "page_sessions";
/// Of a file of sessions or factors: more is no file of ours.
pub const SESSIONS_BYTES_MAX: u64 = 4 << 20;
/// The list of shares in the file view.
const FILES: &str = "/?shares";

/// All that the page needs of the daemon.
pub struct Surroundings {
    pub handle: WebHandle,
    pub entitlements: Entitlements,
    pub tls: Arc<Tls>,
    pub config: PageConfig,
    /// Whether shares are served at the same address.
    pub has_files: bool,
    /// The view of them.
    pub files: FileView,
    pub data: PathBuf,
    /// Passwords that open the record of the box.
    pub passwords: Arc<Passwords>,
}

pub struct PageGuest {
    web: Web,
    api: InProcess,
    around: Surroundings,
    hosts: Arc<Hosts>,
}

impl PageGuest {
    pub fn new(router: axum::Router, around: Surroundings) -> Self {
        let people = People {
            handle: around.handle.clone(),
            entitlements: around.entitlements.clone(),
            factors: around.data.join(FACTORS_NAME),
            sessions: around.data.join(SESSIONS_FILE),
            passwords: Arc::clone(&around.passwords),
        };
        let files = around.has_files.then_some(FILES);
        let ask = Arc::new(InProcess::new(router.clone()));
        let options = Options { is_secure: true, files };
        let clock = (Arc::new(SystemClock::default()) as Arc<dyn Clock>, options);
        let issuer = around.config.oidc.as_ref().map(issuer::of);
        let web = Web::with_issuer(ask, Arc::new(people), clock, issuer);
        let hosts = Arc::new(Hosts::new(&around.config.hosts));
        let (known, tls) = (Arc::clone(&hosts), Arc::clone(&around.tls));
        around.files.set_page(web.clone(), move |headers| is_asked_for(&known, &tls, headers));
        let guest = Self { web, api: InProcess::new(router), hosts, around };
        guest.take_factors();
        guest.take_sessions();
        guest
    }

    fn sessions_file(&self) -> PathBuf {
        self.around.data.join(SESSIONS_FILE)
    }

    /// `page.kept_factors`
    fn take_factors(&self) {
        let file = self.around.data.join(FACTORS_NAME);
        match std::fs::metadata(&file) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => self.web.take_factors(None),
            Ok(about) if about.len() <= SESSIONS_BYTES_MAX => {
                self.web.take_factors(Some(&std::fs::read(&file).unwrap_or_default()));
            }
            _ => self.web.take_factors(Some(&[])),
        }
    }

    /// A file that is missing or damaged costs a log-in.
    fn take_sessions(&self) {
        let file = self.sessions_file();
        if std::fs::metadata(&file).is_ok_and(|about| about.len() <= SESSIONS_BYTES_MAX) {
            self.web.take_sessions(&std::fs::read(&file).unwrap_or_default());
        }
    }

    /// `page.kept_sessions`: at the end, when nobody is answered any more.
    pub fn keep_sessions(&self) -> Result<(), Failure> {
        replace_file(&self.sessions_file(), &self.web.sessions(), 0o600)
    }

    pub async fn end_factors(&self, user: &str) -> Result<FactorsEnded, Failure> {
        self.web.end_factors(user).await
    }

    /// The page is over: the files have a log-in of their own again.
    pub fn leave_files(&self) {
        self.around.files.end_page();
    }

    /// The server stops: streams end, so that it does not wait for them.
    pub fn end_streams(&self) {
        self.web.end_streams();
    }

    /// Keeps sessions as they begin and end. Never returns.
    pub async fn keep_all_sessions(self: Arc<Self>) {
        loop {
            self.web.sessions_changed().await;
            if let Err(failure) = self.web.keep_sessions().await {
                tracing::warn!("sessions of the page end with this run: {}", failure.message);
            }
        }
    }

    async fn page(&self, head: Parts, body: Bytes, from: IpAddr) -> Response<GuestBody> {
        if !is_asked_for(&self.hosts, &self.around.tls, &head.headers) {
            let text = "This larder does not know itself by the name in the address. Open the page by the machine's \
                        address or name. If the name is right, add it to the configuration: hosts = [\"NAME\"] under \
                        [page] in larder.toml.\n";
            return plain(StatusCode::MISDIRECTED_REQUEST, text);
        }
        if matches!(head.uri.path(), "/" | BASE) {
            return redirect(&format!("{BASE}/"));
        }
        let request = Request::from_parts(head, Full::new(body));
        let response = self.web.answer(request, Peer { addr: from }).await;
        response.map(|body| body.map_err(|never| match never {}).boxed_unsync())
    }
}

impl Guest for PageGuest {
    fn lets_in(&self, from: IpAddr) -> bool {
        self.around.config.networks.iter().any(|network| network.contains(from))
    }

    fn has(&self, path: &str, has_share: &dyn Fn(&str) -> bool) -> bool {
        let below = |root: &str| path.strip_prefix(root).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        below(BASE) || (below(https_api::ROOT) && !has_share(https_api::ROOT.trim_start_matches('/')))
    }

    fn knows(&self, head: &Parts) -> Option<String> {
        match api_path(head.uri.path()) {
            true => https_api::grant(&head.headers, &self.around.entitlements.now()).map(|grant| grant.user),
            false => self.web.known(&head.headers, false).map(|known| known.user),
        }
    }

    fn answer(&self, mut head: Parts, body: Bytes, from: IpAddr) -> BoxFuture<'_, Response<GuestBody>> {
        Box::pin(async move {
            if !api_path(head.uri.path()) {
                return self.page(head, body, from).await;
            }
            // Where a share is called api, the API is below the page.
            let path = head.uri.path_and_query().map_or("", |path| path.as_str());
            if let Some(Ok(uri)) = path.strip_prefix(BASE).map(str::parse) {
                head.uri = uri;
            }
            let entitled = self.around.entitlements.now();
            https_api::answer(head, body, from, &entitled, &self.api).await
        })
    }
}

/// `hosts.known_alone`
fn is_asked_for(hosts: &Hosts, tls: &Tls, headers: &HeaderMap) -> bool {
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    host.is_some_and(|host| hosts.has(host, |name| tls.is_for(name)))
}

fn api_path(path: &str) -> bool {
    let path = path.strip_prefix(BASE).unwrap_or(path);
    path.strip_prefix(https_api::ROOT).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn full(bytes: Bytes) -> GuestBody {
    Full::new(bytes).map_err(|never| match never {}).boxed_unsync()
}

/// What each answer says to a browser that is not a page.
fn guarded(mut response: Response<GuestBody>) -> Response<GuestBody> {
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, "default-src 'none'; frame-ancestors 'none'"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-store"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ] {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

fn plain(status: StatusCode, text: &'static str) -> Response<GuestBody> {
    let mut response = guarded(Response::new(full(Bytes::from_static(text.as_bytes()))));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

fn redirect(to: &str) -> Response<GuestBody> {
    let mut response = guarded(Response::new(full(Bytes::new())));
    *response.status_mut() = StatusCode::SEE_OTHER;
    if let Ok(to) = HeaderValue::from_str(to) {
        response.headers_mut().insert(header::LOCATION, to);
    }
    response
}

/// The users of the doors, as people of the page.
struct People {
    handle: WebHandle,
    entitlements: Entitlements,
    /// The file of second factors.
    factors: PathBuf,
    /// The file of sessions.
    sessions: PathBuf,
    passwords: Arc<Passwords>,
}

impl People {
    fn keep(&self, file: &Path, bytes: Vec<u8>) -> BoxFuture<'_, Result<(), Failure>> {
        let file = file.to_owned();
        Box::pin(async move {
            let kept = task::blocking(move || replace_file(&file, &bytes, 0o600)).await;
            kept.unwrap_or_else(|e| Err(Failure::internal(format!("the daemon failed at this: {e}"))))
        })
    }
}

impl LogIn for People {
    fn check(&self, name: String, password: String, from: IpAddr) -> BoxFuture<'_, Result<Standing, Refusal>> {
        Box::pin(async move {
            match self.handle.check_password(&name, password.clone(), from).await {
                Ok(()) => {
                    let standing = self.standing(&name).ok_or(Refusal::Wrong)?;
                    // `record.log_in_mends`
                    if standing.role == Role::Owner {
                        self.passwords.seen(&name, &password);
                    }
                    Ok(standing)
                }
                Err(PasswordRefused::Wrong) => Err(Refusal::Wrong),
                Err(PasswordRefused::Wait(time)) => Err(Refusal::Wait(time)),
            }
        })
    }

    fn standing(&self, name: &str) -> Option<Standing> {
        let user = self.handle.user(name)?;
        let role = match self.entitlements.now().roles.get(name)? {
            UserRole::Owner => Role::Owner,
            UserRole::User => Role::User,
            UserRole::Looker => Role::Looker,
        };
        // Without one nobody logs in but by the issuer.
        let (has_password, generation) = (user.password.is_some(), generation(user.password.as_ref()));
        Some(Standing { role, generation, uid: user.uid, has_password })
    }

    fn entered(&self, name: &str, from: IpAddr, by: &str) {
        self.handle.came_in(name, from, by);
    }

    fn keep_factors(&self, bytes: Vec<u8>) -> BoxFuture<'_, Result<(), Failure>> {
        self.keep(&self.factors, bytes)
    }

    fn keep_sessions(&self, bytes: Vec<u8>) -> BoxFuture<'_, Result<(), Failure>> {
        self.keep(&self.sessions, bytes)
    }
}
