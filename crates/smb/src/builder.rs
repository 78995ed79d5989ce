//! Public builder API for `SmbServer`.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use thiserror::Error;
use uuid::Uuid;

use crate::conn::limits::Limits;
use crate::proto::auth::ntlm::UserCreds;
use crate::server::SmbServer;
use crate::share::{Share, ShareBindings, ShareMode, ShareNameError, check_share_name, valid_remark};
use crate::state::{ServerConfig, ServerState, ServerUsers};

// ---------------------------------------------------------------------------
// BuildError
// ---------------------------------------------------------------------------

/// Errors raised by `SmbServerBuilder::build`.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum BuildError {
    #[error("listen address must be set")]
    MissingListenAddr,
    #[error("share `{0}` is declared more than once")]
    DuplicateShare(String),
    #[error("share `{0}` mixes .public()/.public_read_only() with explicit .user(...) entries")]
    PublicMixedWithUsers(String),
    #[error("share `{share}` references unknown user `{user}`")]
    UnknownUser { share: String, user: String },
    #[error("user name `{0}` is reserved (use .public()/.public_read_only() for anonymous)")]
    ReservedUserName(String),
    #[error("user name must be non-empty")]
    EmptyUserName,
    #[error("share name `{0}` is reserved")]
    ReservedShareName(String),
    #[error("share name `{0}` must be non-empty and contain no `\\`, `/` or NUL")]
    InvalidShareName(String),
    #[error("remark of share `{0}` must hold no NUL and at most 1024 UTF-16 code units")]
    InvalidShareRemark(String),
    #[error("`{setting}` must be {expected}")]
    OutOfRange { setting: &'static str, expected: &'static str },
    #[error("discovery name `{0}` must be 1 to 63 bytes without control characters")]
    DiscoveryName(String),
    #[error("discovery model `{0}` must be 1 to 249 printable ASCII characters")]
    DiscoveryModel(String),
    #[error("discovery cannot announce the loopback listen address {0}")]
    DiscoveryOnLoopback(SocketAddr),
    #[error(
        "discovery workgroup `{0}` must be 1 to 15 characters without control characters or any of \"/\\[]:|<>+=;,?*"
    )]
    DiscoveryWorkgroup(String),
    #[error("discovery {setting} `{value}` must be 1 to 255 characters without control characters")]
    DiscoveryMetadata { setting: &'static str, value: String },
    #[error("WS-Discovery needs the server on port 445, not {0}")]
    WsDiscoveryPort(u16),
    #[error(
        "WS-Discovery needs a NetBIOS name of 1 to 15 characters without control characters or any of \"/\\[]:|<>+=;,?*, not `{0}`"
    )]
    WsDiscoveryNetbiosName(String),
}

// ---------------------------------------------------------------------------
// SmbServerBuilder
// ---------------------------------------------------------------------------

/// Builder for `SmbServer`. See `SmbServer::builder`.
pub struct SmbServerBuilder {
    listen_addr: Option<SocketAddr>,
    users: HashMap<String, UserCreds>,
    user_order: Vec<String>,
    shares: Vec<Share>,
    netbios_name: Option<String>,
    max_read_size: u32,
    max_write_size: u32,
    server_guid: Option<Uuid>,
    limits: Limits,
    observer: Option<crate::admission::AdmissionObserver>,
    strangers: Option<Arc<dyn crate::StrangerLedger>>,
    interfaces: Option<crate::Interfaces>,
    auth: crate::auth_policy::AuthSettings,
    max_opens_per_connection: usize,
    max_locks_per_open: usize,
    share_listing: bool,
}

impl SmbServer {
    pub fn builder() -> SmbServerBuilder {
        SmbServerBuilder::default()
    }
}

impl Default for SmbServerBuilder {
    fn default() -> Self {
        Self::new()
    }
}

impl SmbServerBuilder {
    pub(crate) fn new() -> Self {
        Self {
            listen_addr: None,
            users: HashMap::new(),
            user_order: Vec::new(),
            shares: Vec::new(),
            netbios_name: None,
            max_read_size: 1024 * 1024,
            max_write_size: 1024 * 1024,
            server_guid: None,
            limits: Limits::default(),
            observer: None,
            strangers: None,
            interfaces: None,
            auth: crate::auth_policy::AuthSettings::default(),
            max_opens_per_connection: crate::conn::limits::DEFAULT_MAX_OPENS_PER_CONNECTION,
            max_locks_per_open: crate::conn::limits::DEFAULT_MAX_LOCKS_PER_OPEN,
            share_listing: true,
        }
    }

    pub fn listen(mut self, addr: SocketAddr) -> Self {
        self.listen_addr = Some(addr);
        self
    }

    pub fn user(self, name: impl Into<String>, password: impl Into<String>) -> Self {
        self.creds(name.into(), UserCreds::from_password(&password.into()))
    }

    /// Like [`user`](Self::user), for a caller that keeps only the NT hash
    /// of the password: MD4 of it in UTF-16LE (MS-NLMP 3.3.1, NTOWFv1).
    pub fn user_nt_hash(self, name: impl Into<String>, nt_hash: [u8; 16]) -> Self {
        self.creds(name.into(), UserCreds { nt_hash })
    }

    fn creds(mut self, name: String, creds: UserCreds) -> Self {
        if !self.users.contains_key(&name) {
            self.user_order.push(name.clone());
        }
        self.users.insert(name, creds);
        self
    }

    pub fn share(mut self, share: Share) -> Self {
        self.shares.push(share);
        self
    }

    pub fn netbios_name(mut self, name: impl Into<String>) -> Self {
        self.netbios_name = Some(name.into());
        self
    }

    /// Require every authenticated session to sign its requests, and set
    /// SMB2_NEGOTIATE_SIGNING_REQUIRED in the NEGOTIATE response. It does
    /// not apply to anonymous and guest sessions, which have no key and stay
    /// unsigned. Off by default; a client can still require signing for its
    /// own sessions.
    pub fn require_signing(mut self, required: bool) -> Self {
        self.auth.require_signing = required;
        self
    }

    /// Encrypt every authenticated session on a connection that negotiated
    /// a cipher. While `reject_unencrypted_access` is on, clients that
    /// cannot encrypt get no session, and anonymous and guest sessions get
    /// no tree.
    /// Off by default; with it off, a client that sends encrypted requests
    /// gets encrypted replies, and `Share::encrypt_data` turns encryption
    /// on for one share.
    pub fn encrypt_data(mut self, encrypt: bool) -> Self {
        self.auth.encrypt_data = encrypt;
        self
    }

    /// Whether a session or share that must be encrypted refuses clients
    /// that cannot encrypt: SMB 2.x, SMB 3.0 and 3.0.2 without the
    /// encryption capability, SMB 3.1.1 without a common cipher, and
    /// anonymous and guest sessions. On SMB 3.0 and 3.0.2 it also refuses
    /// unencrypted requests from clients that can encrypt; SMB 3.1.1 always
    /// refuses them. On by default. Turned off, clients that cannot encrypt
    /// are served unencrypted.
    pub fn reject_unencrypted_access(mut self, reject: bool) -> Self {
        self.auth.reject_unencrypted_access = reject;
        self
    }

    /// Most sessions one connection may hold. SESSION_SETUP past the limit
    /// fails with STATUS_INSUFFICIENT_RESOURCES. Default 64.
    pub fn max_sessions_per_connection(mut self, sessions: usize) -> Self {
        self.auth.max_sessions_per_connection = sessions;
        self
    }

    /// Most tree connects one session may hold. TREE_CONNECT past the limit
    /// fails with STATUS_INSUFFICIENT_RESOURCES. Default 128.
    pub fn max_trees_per_session(mut self, trees: usize) -> Self {
        self.auth.max_trees_per_session = trees;
        self
    }

    /// Failed-logon throttle. After `max_failures` failed logons for one
    /// user name, each within `lockout` of the one before, logons with that
    /// name fail with STATUS_ACCOUNT_LOCKED_OUT until `lockout` has passed
    /// since the last failure. One client address is locked out the same
    /// way after ten times `max_failures` failed logons, whatever names they
    /// used. A connection is closed after `max_failures` failed logons.
    /// Unknown names are tracked the same way as configured ones.
    /// `max_failures` 0 turns the throttle off. Default 10 failures and 60
    /// seconds.
    pub fn logon_throttle(mut self, max_failures: u32, lockout: Duration) -> Self {
        self.auth.max_logon_failures = max_failures;
        self.auth.lockout = lockout;
        self
    }

    pub fn max_read_size(mut self, bytes: u32) -> Self {
        self.max_read_size = bytes;
        self
    }

    pub fn max_write_size(mut self, bytes: u32) -> Self {
        self.max_write_size = bytes;
        self
    }

    /// Override the random per-process server GUID. Mostly useful in tests.
    pub fn server_guid(mut self, guid: Uuid) -> Self {
        self.server_guid = Some(guid);
        self
    }

    /// Most connections served at once, counting every client together;
    /// per-host limits belong in the firewall. A connection accepted beyond
    /// the limit is closed straight away. Defaults to 1024.
    pub fn max_connections(mut self, connections: usize) -> Self {
        self.limits.max_connections = connections;
        self
    }

    /// Most connections of one address (IPv6: of one /64) that have not
    /// logged on yet. One beyond them is closed straight away. Defaults to
    /// 256; a ledger ([`strangers`](Self::strangers)) decides in its place.
    pub fn max_unauthenticated_per_address(mut self, connections: usize) -> Self {
        self.limits.max_unauthenticated_per_address = connections;
        self
    }

    /// Asks `ledger` to admit connections that have not logged on, and tells
    /// it what they hold.
    pub fn strangers(mut self, ledger: Arc<dyn crate::StrangerLedger>) -> Self {
        self.strangers = Some(ledger);
        self
    }

    /// Tells clients the addresses that `interfaces` lists, at which they may
    /// open further connections for their sessions (multichannel).
    pub fn interfaces(mut self, interfaces: crate::Interfaces) -> Self {
        self.interfaces = Some(interfaces);
        self
    }

    /// Tells `observer` of logons and refusals.
    pub fn on_admission(mut self, observer: crate::admission::AdmissionObserver) -> Self {
        self.observer = Some(observer);
        self
    }

    /// Time a new connection has to establish a session, and each
    /// SESSION_SETUP exchange has to finish. A connection still without a
    /// session at the deadline is closed, and an unfinished exchange is
    /// dropped. Defaults to 30 seconds.
    pub fn handshake_timeout(mut self, timeout: Duration) -> Self {
        self.limits.handshake_timeout = timeout;
        self
    }

    /// Closes a connection that has sent no request for this long and has no
    /// open files. Defaults to 15 minutes.
    pub fn idle_timeout(mut self, timeout: Duration) -> Self {
        self.limits.idle_timeout = timeout;
        self
    }

    /// Time allowed to receive the rest of a request once its first bytes
    /// have arrived, and to send one response. The connection closes when
    /// either takes longer. Defaults to 60 seconds.
    pub fn io_timeout(mut self, timeout: Duration) -> Self {
        self.limits.io_timeout = timeout;
        self
    }

    /// Idle time before TCP keepalive probes start on accepted connections,
    /// or `None` to leave keepalive off. Defaults to 60 seconds.
    pub fn tcp_keepalive(mut self, idle: Option<Duration>) -> Self {
        self.limits.tcp_keepalive = idle;
        self
    }

    /// Most files and named pipes one connection may hold open at once. A
    /// CREATE past the limit fails with STATUS_INSUFFICIENT_RESOURCES.
    /// Named pipes are also limited to 16 per connection. Defaults to
    /// [`DEFAULT_MAX_OPENS_PER_CONNECTION`](crate::DEFAULT_MAX_OPENS_PER_CONNECTION).
    /// [`ConfigHandle::set_max_opens_per_connection`](crate::ConfigHandle::set_max_opens_per_connection)
    /// changes it at run time.
    pub fn max_opens_per_connection(mut self, opens: usize) -> Self {
        self.max_opens_per_connection = opens;
        self
    }

    /// Answer clients that list the server's shares: Explorer and `net
    /// view` on Windows, the Finder and `smbutil view` on macOS, `smbclient
    /// -L` and file managers on Linux. A client sees the shares its session
    /// may connect to, the public ones for an anonymous session, and IPC$,
    /// in the order the shares were added; a share whose traffic is
    /// encrypted is left out for a session that cannot encrypt. Shares left
    /// out with [`Share::listed`] are not in the list. Clients list shares through the
    /// `srvsvc` named pipe on IPC$; one connection may hold 16 named pipes
    /// at once. On by default; turned off, IPC$ opens no pipe and clients
    /// get no list.
    pub fn share_listing(mut self, enabled: bool) -> Self {
        self.share_listing = enabled;
        self
    }

    /// Most byte-range locks one open may hold at once. A LOCK past the
    /// limit fails with STATUS_INSUFFICIENT_RESOURCES. Defaults to
    /// [`DEFAULT_MAX_LOCKS_PER_OPEN`](crate::DEFAULT_MAX_LOCKS_PER_OPEN).
    pub fn max_locks_per_open(mut self, locks: usize) -> Self {
        self.max_locks_per_open = locks;
        self
    }

    /// How long the server keeps an open file for a client whose
    /// connection dropped or that logged off; see
    /// [`Share::durable_handles`]. A client that asks for a time in a
    /// version 2 durable handle request gets it, up to this timeout or 5
    /// minutes, whichever is longer. Must be between 1 millisecond and 49
    /// days. Defaults to
    /// [`DEFAULT_DURABLE_HANDLE_TIMEOUT`](crate::DEFAULT_DURABLE_HANDLE_TIMEOUT),
    /// 2 minutes.
    pub fn durable_handle_timeout(mut self, timeout: Duration) -> Self {
        self.limits.durable_handle_timeout = timeout;
        self
    }

    /// Most open files the server keeps for clients whose connection
    /// dropped or that logged off, counting every client together; one user
    /// gets at most a quarter of them, rounded up. Past the limit, such a
    /// client's files are closed. Defaults to
    /// [`DEFAULT_MAX_DISCONNECTED_OPENS`](crate::DEFAULT_MAX_DISCONNECTED_OPENS),
    /// 4096.
    pub fn max_disconnected_opens(mut self, opens: usize) -> Self {
        self.limits.max_disconnected_opens = opens;
        self
    }

    pub fn build(self) -> Result<SmbServer, BuildError> {
        let limits = &self.limits;
        if limits.max_connections == 0 {
            return Err(BuildError::OutOfRange { setting: "max_connections", expected: "at least 1" });
        }
        for (setting, size) in [("max_read_size", self.max_read_size), ("max_write_size", self.max_write_size)] {
            if !(MIN_IO_SIZE..=MAX_IO_SIZE).contains(&size) {
                return Err(BuildError::OutOfRange { setting, expected: "between 65536 and 8388608 bytes" });
            }
        }
        for (setting, timeout) in [
            ("handshake_timeout", Some(limits.handshake_timeout)),
            ("idle_timeout", Some(limits.idle_timeout)),
            ("io_timeout", Some(limits.io_timeout)),
            ("tcp_keepalive", limits.tcp_keepalive),
        ] {
            if timeout == Some(Duration::ZERO) {
                return Err(BuildError::OutOfRange { setting, expected: "greater than zero" });
            }
        }
        if !(MIN_DURABLE_HANDLE_TIMEOUT..=MAX_DURABLE_HANDLE_TIMEOUT).contains(&limits.durable_handle_timeout) {
            return Err(BuildError::OutOfRange {
                setting: "durable_handle_timeout",
                expected: "between 1 millisecond and 49 days",
            });
        }

        for name in &self.user_order {
            if name.is_empty() {
                return Err(BuildError::EmptyUserName);
            }
            if name.eq_ignore_ascii_case("anonymous") {
                return Err(BuildError::ReservedUserName(name.clone()));
            }
        }

        let mut seen_names = std::collections::HashSet::new();
        for share in &self.shares {
            match check_share_name(&share.name) {
                Err(ShareNameError::Reserved) => {
                    return Err(BuildError::ReservedShareName(share.name.clone()));
                }
                Err(ShareNameError::Invalid) => {
                    return Err(BuildError::InvalidShareName(share.name.clone()));
                }
                Ok(()) => {}
            }
            if !valid_remark(&share.remark) {
                return Err(BuildError::InvalidShareRemark(share.name.clone()));
            }
            if !seen_names.insert(share.name.to_ascii_lowercase()) {
                return Err(BuildError::DuplicateShare(share.name.clone()));
            }
            let is_public = matches!(share.mode, ShareMode::Public | ShareMode::PublicReadOnly);
            if is_public && !share.users.is_empty() {
                return Err(BuildError::PublicMixedWithUsers(share.name.clone()));
            }
            // Each per-share user must exist in the global user table.
            for u in share.users.keys() {
                if !self.users.contains_key(u) {
                    return Err(BuildError::UnknownUser { share: share.name.clone(), user: u.clone() });
                }
            }
        }

        let listen = self.listen_addr.ok_or(BuildError::MissingListenAddr)?;

        let netbios = self.netbios_name.unwrap_or_else(default_netbios_name);

        let mut share_bindings: Vec<Arc<ShareBindings>> = Vec::with_capacity(self.shares.len());
        for s in self.shares {
            share_bindings.push(ShareBindings::from_share(s));
        }

        let user_table = self.users;

        let server_guid = self.server_guid.unwrap_or_else(Uuid::new_v4);

        let cfg = ServerConfig {
            listen_addr: listen,
            netbios_name: netbios,
            max_read_size: self.max_read_size,
            max_write_size: self.max_write_size,
            server_guid,
            limits: self.limits,
            share_listing: self.share_listing,
        };
        let users = ServerUsers { table: tokio::sync::RwLock::new(user_table) };

        let state = ServerState::new(cfg, users, share_bindings);
        let mut state = state.with_auth(self.auth);
        state.observer = self.observer;
        if let Some(ledger) = self.strangers {
            state.strangers = ledger;
        }
        state.interfaces = self.interfaces;
        state.max_opens_per_connection.store(self.max_opens_per_connection, Ordering::Relaxed);
        state.max_locks_per_open.store(self.max_locks_per_open, Ordering::Relaxed);
        Ok(SmbServer::from_state(state))
    }
}

/// Shortest and longest accepted `durable_handle_timeout`. Version 2
/// responses carry the timeout in whole milliseconds, in 32 bits.
const MIN_DURABLE_HANDLE_TIMEOUT: Duration = Duration::from_millis(1);
const MAX_DURABLE_HANDLE_TIMEOUT: Duration = Duration::from_secs(49 * 24 * 60 * 60);

/// Smallest and largest accepted `max_read_size` and `max_write_size`.
const MIN_IO_SIZE: u32 = 64 * 1024;
const MAX_IO_SIZE: u32 = 8 * 1024 * 1024;

/// The host name's first label, uppercased and cut to the 15 characters a
/// NetBIOS name holds, or `SMBSERVER` when the host name is unknown.
fn default_netbios_name() -> String {
    let host = host_name().unwrap_or_default();
    let label: String = host.split('.').next().unwrap_or("").chars().take(15).collect();
    if label.is_empty() { "SMBSERVER".to_string() } else { label.to_uppercase() }
}

#[cfg(unix)]
pub(crate) fn host_name() -> Option<String> {
    let mut buf = [0u8; 256];
    // SAFETY: `buf` is valid for writes of `buf.len()` bytes.
    let rc = unsafe { libc::gethostname(buf.as_mut_ptr().cast(), buf.len()) };
    if rc != 0 {
        return None;
    }
    let end = buf.iter().position(|&b| b == 0).unwrap_or(buf.len());
    String::from_utf8(buf[..end].to_vec()).ok()
}

#[cfg(windows)]
pub(crate) fn host_name() -> Option<String> {
    std::env::var("COMPUTERNAME").ok()
}

#[cfg(not(any(unix, windows)))]
pub(crate) fn host_name() -> Option<String> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::memfs::MemFsBackend;

    fn build_with_share(name: &str) -> Result<SmbServer, BuildError> {
        SmbServer::builder()
            .listen("127.0.0.1:0".parse().unwrap())
            .share(Share::new(name, MemFsBackend::new()).public())
            .build()
    }

    #[test]
    fn reserved_and_unreachable_share_names_are_rejected() {
        for name in ["IPC$", "ipc$"] {
            assert!(matches!(
                build_with_share(name),
                Err(BuildError::ReservedShareName(n)) if n == name
            ));
        }
        for name in ["", "a\\b", "a/b", "\\share", "a\0b"] {
            assert!(matches!(
                build_with_share(name),
                Err(BuildError::InvalidShareName(n)) if n == name
            ));
        }
        assert!(build_with_share("share$").is_ok());
    }

    #[test]
    fn remarks_hold_no_nul_and_at_most_1024_units() {
        let build = |remark: String| {
            SmbServer::builder()
                .listen("127.0.0.1:0".parse().unwrap())
                .share(Share::new("s", MemFsBackend::new()).remark(remark).public())
                .build()
        };
        // U+1F9A4 takes two UTF-16 code units.
        for remark in ["a".repeat(1024), "\u{1F9A4}".repeat(512)] {
            assert!(build(remark).is_ok());
        }
        for remark in ["a".repeat(1025), "\u{1F9A4}".repeat(513), "a\0b".to_string()] {
            assert!(matches!(
                build(remark),
                Err(BuildError::InvalidShareRemark(n)) if n == "s"
            ));
        }
    }

    #[test]
    fn io_sizes_must_fit_a_frame() {
        let build = |read: u32, write: u32| {
            SmbServer::builder()
                .listen("127.0.0.1:0".parse().unwrap())
                .max_read_size(read)
                .max_write_size(write)
                .build()
        };
        const MIB: u32 = 1024 * 1024;
        assert!(build(64 * 1024, 8 * MIB).is_ok());
        for (read, write, setting) in [
            (64 * 1024 - 1, MIB, "max_read_size"),
            (8 * MIB + 1, MIB, "max_read_size"),
            (MIB, 0, "max_write_size"),
            (MIB, 16 * MIB, "max_write_size"),
        ] {
            assert!(matches!(
                build(read, write),
                Err(BuildError::OutOfRange { setting: s, .. }) if s == setting
            ));
        }
    }

    #[test]
    fn the_durable_handle_timeout_is_bounded() {
        let build = |timeout| {
            SmbServer::builder().listen("127.0.0.1:0".parse().unwrap()).durable_handle_timeout(timeout).build()
        };
        for timeout in [
            Duration::ZERO,
            Duration::from_micros(999),
            MAX_DURABLE_HANDLE_TIMEOUT + Duration::from_nanos(1),
            Duration::MAX,
        ] {
            assert!(
                matches!(build(timeout), Err(BuildError::OutOfRange { setting: "durable_handle_timeout", .. })),
                "{timeout:?}"
            );
        }
        for timeout in [MIN_DURABLE_HANDLE_TIMEOUT, MAX_DURABLE_HANDLE_TIMEOUT] {
            assert!(build(timeout).is_ok(), "{timeout:?}");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn default_netbios_name_comes_from_the_host_name() {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").expect("hostname");
        let label = host.trim().split('.').next().expect("label");
        let expected: String = label.chars().take(15).collect::<String>().to_uppercase();
        let server = SmbServer::builder().listen("127.0.0.1:0".parse().unwrap()).build().expect("build");
        assert_eq!(server.state().config.netbios_name, expected);
    }
}
