//! The NFS, SMB, SFTP and WebDAV servers of this process: bound first, fed with shares, watched, stopped.
//!
//! - `servers.ports_first`: ports are bound before anything is made or opened, so that a port in
//!   use costs nothing.
//! - `servers.end_is_a_fault`: a server's task that ends before the daemon stops it is a fault of
//!   the daemon, and is reported.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use larder_api::{Failure, FailureKind};
use larder_base::units::ByteSize;
use larder_base::{SystemClock, task};
use larder_dav::{Serves, Tls, WebConfig, WebHandle, WebServer};
use larder_document::entitled::{Entitled, Entitlements};
use larder_document::folder::LINKS_NAME;
use larder_doors::login::Gate;
use larder_doors::share::ServedShare;
use larder_doors::strangers::Budget;
use larder_nfs::{Export, NfsConfig, NfsHandle, NfsOpen, NfsServer, Owners};
use larder_people::User;
use larder_people::token::Tokens;
use larder_sftp::CaKey;
use larder_sftp::{HostKey, SftpConfig, SftpHandle, SftpServer};
use larder_smb::door::{SmbConfig, SmbError, SmbOpen, SmbServer};
use larder_web::{FileView, Links};
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::page::{PageGuest, Surroundings};
use crate::passwords::Passwords;
use larder_config::{Listen, PageConfig, PageListen, WebdavConfig};

/// Requests in flight get this long to finish when the daemon stops.
const STOP_TIMEOUT: Duration = Duration::from_secs(20);

pub struct Servers {
    nfs: Option<Nfs>,
    smb: Option<Arc<SmbServer>>,
    sftp: Option<Sftp>,
    web: Option<Web>,
    /// Taken when serving begins.
    replication: Option<(SocketAddr, Mutex<Option<TcpListener>>)>,
    entitlements: Entitlements,
    /// Of connections without a right, at all doors.
    strangers: Arc<Budget>,
    shutdown: CancellationToken,
}

struct Nfs {
    addr: SocketAddr,
    handle: NfsHandle,
    /// Taken when serving begins.
    server: Mutex<Option<NfsServer>>,
}

struct Sftp {
    addr: SocketAddr,
    handle: SftpHandle,
    /// What clients are shown at their first login.
    fingerprint: String,
    /// Taken when serving begins.
    server: Mutex<Option<SftpServer>>,
}

struct Web {
    addr: Option<SocketAddr>,
    tls_addr: Option<SocketAddr>,
    page: Option<Page>,
    /// Of the certificate.
    fingerprint: Option<String>,
    handle: WebHandle,
    files: FileView,
    /// Taken when serving begins.
    server: Mutex<Option<WebServer>>,
}

struct Page {
    addr: SocketAddr,
    tls: Arc<Tls>,
    config: PageConfig,
    has_files: bool,
    guest: Mutex<Option<Arc<PageGuest>>>,
}

/// What the doors have in common.
struct Doors {
    connections_max: usize,
    strangers: Arc<Budget>,
    /// For the caches of all pools.
    memory: ByteSize,
    /// Where passwords of SFTP and WebDAV are looked at.
    gate: Arc<Gate>,
}

/// The running servers.
pub struct Serving {
    tasks: Vec<(&'static str, JoinHandle<Result<(), String>>)>,
    shutdown: CancellationToken,
}

impl Servers {
    /// Takes the ports (`servers.ports_first`).
    pub async fn bind(
        listen: &Listen,
        (webdav, page): (&WebdavConfig, &PageConfig),
        (connections, strangers, memory): (u32, ByteSize, ByteSize),
        folder: &Path,
    ) -> Result<Servers, Failure> {
        let doors = Doors {
            connections_max: connections as usize,
            strangers: Arc::new(Budget::new(usize::try_from(strangers.0).unwrap_or(usize::MAX / 2))),
            memory,
            gate: Arc::default(),
        };
        let nfs = match listen.nfs {
            Some(addr) => Some(bind_nfs(addr, listen.portmapper, &doors, folder).await?),
            None => None,
        };
        let smb = match listen.smb {
            Some(addr) => Some(Arc::new(bind_smb(addr, &doors).await?)),
            None => None,
        };
        let sftp = match listen.sftp {
            Some(addr) => Some(bind_sftp(addr, &doors, folder).await?),
            None => None,
        };
        let web = bind_web(listen, webdav, page, &doors, folder).await?;
        let replication = match listen.replication {
            Some(addr) => Some(bind_replication(addr).await?),
            None => None,
        };
        let Doors { strangers, .. } = doors;
        let entitlements = Entitlements::default();
        Ok(Servers { nfs, smb, sftp, web, replication, entitlements, strangers, shutdown: CancellationToken::new() })
    }

    /// What connections without a right may hold.
    pub fn strangers(&self) -> Arc<Budget> {
        Arc::clone(&self.strangers)
    }

    pub fn replication_addr(&self) -> Option<SocketAddr> {
        self.replication.as_ref().map(|(addr, _)| *addr)
    }

    pub fn take_replication(&self) -> Option<TcpListener> {
        self.replication.as_ref().and_then(|(_, listener)| listener.lock().take())
    }

    pub fn nfs_addr(&self) -> Option<SocketAddr> {
        self.nfs.as_ref().map(|nfs| nfs.addr)
    }

    pub fn smb_addr(&self) -> Option<SocketAddr> {
        self.smb.as_ref().map(|smb| smb.local_addr())
    }

    pub fn sftp_addr(&self) -> Option<SocketAddr> {
        self.sftp.as_ref().map(|sftp| sftp.addr)
    }

    pub fn webdav_addr(&self) -> Option<SocketAddr> {
        self.web.as_ref().and_then(|web| web.addr)
    }

    pub fn webdavs_addr(&self) -> Option<SocketAddr> {
        self.web.as_ref().and_then(|web| web.tls_addr)
    }

    fn page(&self) -> Option<(&Web, &Page)> {
        self.web.as_ref().and_then(|web| Some((web, web.page.as_ref()?)))
    }

    pub fn page_addr(&self) -> Option<SocketAddr> {
        self.page().map(|(_, page)| page.addr)
    }

    /// As a browser elsewhere reaches it.
    pub fn page_url(&self) -> Option<String> {
        let addr = self.page_addr()?;
        Some(format!(
            "https://{}/",
            SocketAddr::new(larder_config::machine::host_outward(addr).parse().ok()?, addr.port())
        ))
    }

    /// Serves the page, which asks by `router`.
    pub fn begin_page(&self, router: axum::Router, data: &Path, passwords: Arc<Passwords>) -> Option<Arc<PageGuest>> {
        let (web, page) = self.page()?;
        let around = Surroundings {
            handle: web.handle.clone(),
            entitlements: self.entitlements.clone(),
            tls: Arc::clone(&page.tls),
            config: page.config.clone(),
            has_files: page.has_files,
            files: web.files.clone(),
            data: data.to_owned(),
            passwords,
        };
        let guest = Arc::new(PageGuest::new(router, around));
        web.handle.set_guest(Some(guest.clone()));
        *page.guest.lock() = Some(Arc::clone(&guest));
        Some(guest)
    }

    /// The page, while it is served.
    pub fn page_guest(&self) -> Option<Arc<PageGuest>> {
        self.page().and_then(|(_, page)| page.guest.lock().clone())
    }

    /// Nobody waits for streams of the page's while the servers stop.
    pub fn end_page_streams(&self) {
        self.page_guest().inspect(|guest| guest.end_streams());
    }

    /// The page is over. It holds the daemon, by its router.
    pub fn end_page(&self) {
        let Some((web, page)) = self.page() else { return };
        web.handle.set_guest(None);
        let Some(guest) = page.guest.lock().take() else { return };
        guest.leave_files();
        if let Err(failure) = guest.keep_sessions() {
            tracing::warn!("sessions of the page end with this run: {}", failure.message);
        }
    }

    /// What users and tokens may do on the page and by the API from now on.
    pub fn set_entitled(&self, entitled: Entitled) {
        self.entitlements.set(entitled);
    }

    /// The fingerprint of WebDAV's certificate.
    pub fn webdavs_fingerprint(&self) -> Option<&str> {
        self.web.as_ref().and_then(|web| web.fingerprint.as_deref())
    }

    /// The fingerprint of the host key.
    pub fn sftp_fingerprint(&self) -> Option<&str> {
        self.sftp.as_ref().map(|sftp| sftp.fingerprint.as_str())
    }

    pub fn metrics(&self, out: &mut larder_base::metrics::Metrics) {
        if let Some(nfs) = &self.nfs {
            nfs.handle.metrics(out);
        }
        if let Some(smb) = &self.smb {
            smb.metrics(out);
        }
        if let Some(sftp) = &self.sftp {
            sftp.handle.metrics(out);
        }
        if let Some(web) = &self.web {
            web.handle.metrics(out);
        }
        self.strangers.metrics(out);
        larder_fuse::metrics(out);
    }

    /// The newest opens of SMB, so many at most, and how many more there are.
    pub async fn smb_opens(&self, count_max: usize) -> (Vec<SmbOpen>, usize) {
        match &self.smb {
            Some(smb) => smb.open_list(count_max).await,
            None => (Vec::new(), 0),
        }
    }

    pub async fn end_smb_open(&self, id: u64) -> bool {
        match &self.smb {
            Some(smb) => smb.end_open(id).await,
            None => false,
        }
    }

    /// The newest opens of NFSv4.
    pub fn nfs_opens(&self, count_max: usize) -> (Vec<NfsOpen>, usize) {
        self.nfs.as_ref().map(|nfs| nfs.handle.open_list(count_max)).unwrap_or_default()
    }

    pub fn end_nfs_open(&self, number: u64) -> bool {
        self.nfs.as_ref().is_some_and(|nfs| nfs.handle.end_open(number))
    }

    pub fn set_exports(&self, exports: Vec<Export>) {
        if let Some(nfs) = &self.nfs {
            nfs.handle.set_exports(exports);
        }
    }

    /// Names of users and groups for NFS, from the next [`Servers::set_exports`] on.
    pub fn set_owners(&self, owners: Owners) {
        if let Some(nfs) = &self.nfs {
            nfs.handle.set_owners(owners);
        }
    }

    /// Clients of this volume that can wait are asked to, until [`Servers::resume`].
    pub fn pause(&self, volume: uuid::Uuid) {
        if let Some(nfs) = &self.nfs {
            nfs.handle.pause(Some(volume));
        }
    }

    /// The same for a volume that is another machine's now, for so long.
    pub fn linger(&self, volume: uuid::Uuid, lasts: std::time::Duration) {
        if let Some(nfs) = &self.nfs {
            nfs.handle.linger(volume, lasts);
        }
    }

    pub fn resume(&self) {
        if let Some(nfs) = &self.nfs {
            nfs.handle.pause(None);
        }
    }

    /// Those of SMB.
    pub async fn set_shares(&self, shares: Vec<ServedShare>) -> Result<(), Failure> {
        let Some(smb) = &self.smb else { return Ok(()) };
        smb.set_shares(shares).await.map_err(|e| refused(&e))
    }

    /// The users of all doors.
    pub async fn set_users(&self, users: &[User]) -> Result<(), Failure> {
        if let Some(web) = &self.web {
            web.handle.set_users(users.to_vec());
        }
        if let Some(server) = &self.sftp {
            server.handle.set_users(users.to_vec());
        }
        match &self.smb {
            Some(smb) => smb.set_users(users.to_vec()).await.map_err(|e| refused(&e)),
            None => Ok(()),
        }
    }

    /// Tokens, and the authorities whose certificates are taken. What is gone lets nobody in from now on.
    pub fn set_credentials(&self, tokens: Tokens, authorities: Vec<CaKey>) {
        let tokens = Arc::new(tokens);
        if let Some(web) = &self.web {
            web.handle.set_tokens(Arc::clone(&tokens));
        }
        if let Some(server) = &self.sftp {
            server.handle.set_tokens(tokens);
            server.handle.set_authorities(authorities);
        }
    }

    /// The links of the file view, where browsers are served.
    pub fn links(&self) -> Option<&Links> {
        self.web.as_ref().map(|web| web.files.links())
    }

    pub fn set_sftp(&self, shares: Vec<ServedShare>) {
        if let Some(server) = &self.sftp {
            server.handle.set_shares(shares);
        }
    }

    pub fn set_webdav(&self, shares: Vec<ServedShare>) {
        if let Some(web) = &self.web {
            web.handle.set_shares(shares);
        }
    }

    pub fn serve(&self) -> Serving {
        let mut tasks = Vec::new();
        if let Some(nfs) = self.nfs.as_ref().and_then(|nfs| nfs.server.lock().take()) {
            let stop = self.shutdown.clone();
            let work = async move {
                nfs.serve(stop).await;
                Ok(())
            };
            tasks.push(("NFS", task::spawn_for(work)));
        }
        if let Some(smb) = self.smb.clone() {
            let stop = self.shutdown.clone();
            let work = async move { smb.serve(stop).await.map_err(|e| e.to_string()) };
            tasks.push(("SMB", task::spawn_for(work)));
        }
        if let Some(sftp) = self.sftp.as_ref().and_then(|sftp| sftp.server.lock().take()) {
            let stop = self.shutdown.clone();
            let work = async move {
                sftp.serve(stop).await;
                Ok(())
            };
            tasks.push(("SFTP", task::spawn_for(work)));
        }
        if let Some(web) = self.web.as_ref().and_then(|web| web.server.lock().take()) {
            let stop = self.shutdown.clone();
            let work = async move {
                web.serve(stop).await;
                Ok(())
            };
            tasks.push(("WebDAV", task::spawn_for(work)));
        }
        Serving { tasks, shutdown: self.shutdown.clone() }
    }
}

fn refused(error: &SmbError) -> Failure {
    Failure::internal(format!("the SMB server refused its shares: {error}"))
}

/// The record of NFSv4 clients, in the data folder.
const NFS4_CLIENTS: &str = "nfs4-clients";

async fn bind_nfs(
    addr: SocketAddr,
    portmapper: Option<SocketAddr>,
    doors: &Doors,
    folder: &Path,
) -> Result<Nfs, Failure> {
    let strangers = Arc::clone(&doors.strangers);
    let client_book = Some(folder.join(NFS4_CLIENTS));
    let config = NfsConfig { connections_max: doors.connections_max, strangers, client_book, ..NfsConfig::default() };
    let portmapper = portmapper.map(portmapper_place).transpose()?.flatten();
    let config = NfsConfig { portmapper, ..config };
    let server = NfsServer::bind(addr, config).await.map_err(|e| port_failure("NFS", "--nfs", addr, &e))?;
    Ok(Nfs { addr: server.local_addr(), handle: server.handle(), server: Mutex::new(Some(server)) })
}

/// The portmapper's port is another address: it is tried alone first, so that a failure names the right one. `None`: another
/// program has it. Then only clients of NFS version 3 that are told no ports miss it, and the doors open without.
fn portmapper_place(addr: SocketAddr) -> Result<Option<SocketAddr>, Failure> {
    let Err(error) = std::net::TcpListener::bind(addr) else { return Ok(Some(addr)) };
    let failure = port_failure("the portmapper", "--portmapper", addr, &error);
    if failure.kind != FailureKind::Busy {
        return Err(failure);
    }
    tracing::warn!(
        "{}; NFS goes on without it, and clients of version 3 need the options port= and mountport=. {}",
        failure.message,
        failure.action.unwrap_or_default()
    );
    Ok(None)
}

async fn bind_smb(addr: SocketAddr, doors: &Doors) -> Result<SmbServer, Failure> {
    let (connections_max, strangers) = (doors.connections_max, Arc::clone(&doors.strangers));
    let config = SmbConfig { connections_max, strangers, ..SmbConfig::new(addr) };
    let started = SmbServer::start(config, Vec::new(), Vec::new()).await;
    started.map_err(|error| match error {
        SmbError::Listen { addr, source } => port_failure("SMB", "--smb", addr, &source),
        other => Failure::internal(format!("cannot start the SMB server: {other}")),
    })
}

async fn bind_replication(addr: SocketAddr) -> Result<(SocketAddr, Mutex<Option<TcpListener>>), Failure> {
    let failed = |error: &std::io::Error| port_failure("replication", "--replication", addr, error);
    let listener = TcpListener::bind(addr).await.map_err(|error| failed(&error))?;
    let addr = listener.local_addr().map_err(|error| failed(&error))?;
    Ok((addr, Mutex::new(Some(listener))))
}

/// The file of the host key, in the data folder.
const HOST_KEY: &str = "ssh_host_ed25519_key";

async fn bind_sftp(addr: SocketAddr, doors: &Doors, folder: &Path) -> Result<Sftp, Failure> {
    let key = HostKey::load_or_create(&folder.join(HOST_KEY)).map_err(|error| {
        let file = larder_base::shell::word(&folder.join(HOST_KEY));
        Failure::unavailable(error.to_string()).action(format!(
            "restore it from a backup, or: rm {file}; larder then makes another, and clients ask whether they may trust it"
        ))
    })?;
    let fingerprint = key.fingerprint();
    let config = SftpConfig {
        connections_max: doors.connections_max,
        strangers: Arc::clone(&doors.strangers),
        // The caches have a quarter of the machine's memory, so this is a sixteenth of it.
        unread_bytes_max: SftpConfig::unread_bytes(doors.memory.0 / 4),
        gate: Arc::clone(&doors.gate),
        ..SftpConfig::new(key)
    };
    let server = SftpServer::bind(addr, config).await.map_err(|e| port_failure("SFTP", "--sftp", addr, &e))?;
    Ok(Sftp { addr: server.local_addr(), handle: server.handle(), fingerprint, server: Mutex::new(Some(server)) })
}

/// The page's address, beside the one of WebDAV over TLS: an address that both have is bound once.
fn page_place(page: Option<PageListen>, webdavs: Option<SocketAddr>) -> Option<SocketAddr> {
    match (page?, webdavs) {
        (PageListen::Off, _) => None,
        (PageListen::Usual(_), Some(webdavs)) => Some(webdavs),
        (PageListen::Usual(addr) | PageListen::At(addr), _) => Some(addr),
    }
}

async fn bind_web(
    listen: &Listen,
    webdav: &WebdavConfig,
    page: &PageConfig,
    doors: &Doors,
    folder: &Path,
) -> Result<Option<Web>, Failure> {
    let page_at = page_place(page.listen, listen.webdavs);
    if listen.webdav.or(listen.webdavs).or(page_at).is_none() {
        return Ok(None);
    }
    let links = Some(folder.join(LINKS_NAME));
    let config = WebConfig {
        connections_max: doors.connections_max,
        strangers: Arc::clone(&doors.strangers),
        gate: Arc::clone(&doors.gate),
        trusted_proxies: webdav.trusted_proxies.clone(),
        ..WebConfig::default()
    };
    let files = FileView::new(links, Arc::new(SystemClock::default()));
    let mut server = WebServer::new(config, Arc::new(files.clone()));
    let (mut bound, mut tls_bound, mut page_bound) = (None, None, None);
    if let Some(addr) = listen.webdav {
        if !addr.ip().is_loopback() && !webdav.insecure_http {
            return Err(Failure::invalid(format!(
                "WebDAV on {addr} would send passwords over the network in clear"
            ))
            .action(
                "serve it over TLS with --webdavs :10443; or, in a network that you trust, write insecure_http = true \
                 under [webdav] in larder.toml, or say --insecure-http",
            ));
        }
        let serves = Serves { shares: true, guest: false };
        let listened = server.listen(addr, None, serves).await;
        bound = Some(listened.map_err(|e| port_failure("WebDAV", "--webdav", addr, &e))?);
    }
    let tls = match listen.webdavs.or(page_at) {
        Some(addr) => Some(certificate(addr, webdav, folder)?),
        None => None,
    };
    let is_shared = page_at.is_some() && page_at == listen.webdavs;
    if let Some(addr) = listen.webdavs {
        let serves = Serves { shares: true, guest: is_shared };
        let listened = server.listen(addr, tls.clone(), serves).await;
        let failed = |error: std::io::Error| match is_shared {
            true => door_failure("WebDAV and the page", "--webdavs", BOTH_LINES, addr, &error),
            false => port_failure("WebDAV", "--webdavs", addr, &error),
        };
        tls_bound = Some(listened.map_err(failed)?);
        page_bound = tls_bound.filter(|_| is_shared);
    }
    if let Some(addr) = page_at.filter(|_| !is_shared) {
        let serves = Serves { shares: false, guest: true };
        match server.listen(addr, tls.clone(), serves).await {
            Ok(addr) => page_bound = Some(addr),
            Err(error) if matches!(page.listen, Some(PageListen::Usual(_))) => tracing::warn!(
                "the page is off, because its usual address {addr} cannot be had: {error}; choose another with: larder \
                 up --page :PORT (or say --page off)"
            ),
            Err(error) => return Err(port_failure("the page", "--page", addr, &error)),
        }
    }
    if bound.or(tls_bound).or(page_bound).is_none() {
        return Ok(None);
    }
    let fingerprint = tls.as_ref().map(|tls| tls.fingerprint());
    let page = page_bound.zip(tls).map(|(addr, tls)| Page {
        addr,
        tls,
        config: page.clone(),
        has_files: is_shared,
        guest: Mutex::default(),
    });
    let handle = server.handle();
    let server = Mutex::new(Some(server));
    Ok(Some(Web { addr: bound, tls_addr: tls_bound, page, fingerprint, handle, files, server }))
}

fn certificate(addr: SocketAddr, webdav: &WebdavConfig, folder: &Path) -> Result<Arc<Tls>, Failure> {
    let tls = match &webdav.certificate {
        Some((certificate, key)) => Tls::of_files(certificate, key),
        None => Tls::load_or_create(folder, own_names(addr)),
    };
    tls.map(Arc::new).map_err(|error| {
        Failure::unavailable(format!("no certificate for HTTPS: {error}"))
            .action("mend or remove the file; without files named under [webdav] larder makes a certificate of its own")
    })
}

/// By what names clients may reach this machine.
pub fn own_names(addr: SocketAddr) -> Vec<String> {
    let mut names = vec!["localhost".to_owned(), "127.0.0.1".to_owned(), "::1".to_owned()];
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let is_name = !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-.".contains(&byte));
    if is_name {
        names.push(format!("{host}.local"));
        names.push(host);
    }
    match addr.ip() {
        ip if ip.is_unspecified() => names.extend(larder_config::machine::address_outward().map(|ip| ip.to_string())),
        ip => names.push(ip.to_string()),
    }
    names.sort();
    names.dedup();
    names
}

impl Serving {
    /// Returns when a server ended by itself (`servers.end_is_a_fault`): its name and the reason.
    pub async fn broken(&mut self) -> String {
        if self.tasks.is_empty() {
            return std::future::pending().await;
        }
        let waits = self.tasks.iter_mut().map(|(_, task)| task);
        let (result, index, _) = futures::future::select_all(waits).await;
        let (name, _) = self.tasks.remove(index);
        match result {
            Ok(Ok(())) => format!("the {name} server ended unasked"),
            Ok(Err(why)) => format!("the {name} server failed: {why}"),
            Err(error) => format!("the {name} server crashed: {error}"),
        }
    }

    pub async fn stop(self) {
        self.shutdown.cancel();
        for (name, task) in self.tasks {
            let abort = task.abort_handle();
            if tokio::time::timeout(STOP_TIMEOUT, task).await.is_err() {
                tracing::warn!("the {name} server did not stop in {} s: cut off", STOP_TIMEOUT.as_secs());
                abort.abort();
            }
        }
    }
}

/// What moves WebDAV over TLS and the page, where they have one address.
const BOTH_LINES: &str = "under [listen]: webdavs = \":PORT\", and under [page]: listen = \":PORT\"";

fn port_failure(protocol: &str, flag: &str, addr: SocketAddr, error: &std::io::Error) -> Failure {
    let lines = match flag.trim_start_matches('-') {
        "page" => "under [page]: listen = \":PORT\"".to_owned(),
        "portmapper" => "under [listen]: take out the line portmapper".to_owned(),
        key => format!("under [listen]: {key} = \":PORT\""),
    };
    door_failure(protocol, flag, &lines, addr, error)
}

/// `lines`: of larder.toml, that move the door.
fn door_failure(protocol: &str, flag: &str, lines: &str, addr: SocketAddr, error: &std::io::Error) -> Failure {
    let failure = Failure::io(format_args!("cannot serve {protocol} on {addr}"), error);
    let port = addr.port();
    match failure.kind {
        FailureKind::Busy => {
            let elsewhere = match flag {
                "--portmapper" => format!("or in larder.toml, {lines}"),
                _ => format!(
                    "or choose a port with {flag} :PORT ({flag} :0 takes a free one), or in larder.toml, {lines}"
                ),
            };
            match crate::port_holder::of(port) {
                Some(holder) => {
                    failure.action(format!("{holder} has port {port}: stop it with: {}; {elsewhere}", holder.stop()))
                }
                None => failure.action(format!(
                    "another program (perhaps another larder) has port {port}: stop it, {elsewhere}; see who has it with: \
                     sudo ss -ltnp 'sport = :{port}'"
                )),
            }
        }
        FailureKind::Denied => failure.action(format!(
            "ports below 1024 are root's: use {flag} :{}, or allow them with: sudo sysctl \
             net.ipv4.ip_unprivileged_port_start={port}",
            u32::from(port) + 10000
        )),
        FailureKind::Invalid => {
            failure.action(format!("this machine has no address {}: see those it has with: ip addr", addr.ip()))
        }
        _ => failure,
    }
}
