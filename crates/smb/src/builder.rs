//! The settings of a server. Its users and shares come later, by `ConfigHandle`.

use std::net::SocketAddr;
use std::sync::Arc;

use thiserror::Error;
use uuid::Uuid;

use crate::admission::AdmissionObserver;
use crate::auth_policy::AuthSettings;
use crate::conn::limits::Limits;
use crate::server::SmbServer;
use crate::state::{ServerConfig, ServerState};

/// Smallest and largest READ and WRITE that a server can be set to. Every client may send the smallest; the
/// largest, with its headers, fits the length of a frame.
const IO_BYTES_MIN: u32 = 64 << 10;
const IO_BYTES_MAX: u32 = 8 << 20;

/// Errors raised by [`SmbServerBuilder::build`].
#[derive(Debug, Error)]
pub enum BuildError {
    #[error("listen address must be set")]
    MissingListenAddr,
    #[error("`{setting}` must be {expected}")]
    OutOfRange { setting: &'static str, expected: &'static str },
}

/// Builder for `SmbServer`. See `SmbServer::builder`.
pub struct SmbServerBuilder {
    listen_addr: Option<SocketAddr>,
    netbios_name: Option<String>,
    max_read_size: u32,
    max_write_size: u32,
    observer: Option<AdmissionObserver>,
    strangers: Option<Arc<dyn crate::StrangerLedger>>,
    interfaces: Option<crate::handlers::interfaces::Interfaces>,
    pub(crate) limits: Limits,
    pub(crate) auth: AuthSettings,
    #[cfg(test)]
    pub(crate) seed: crate::tests::Seed,
}

impl SmbServer {
    pub fn builder() -> SmbServerBuilder {
        SmbServerBuilder {
            listen_addr: None,
            netbios_name: None,
            max_read_size: 1 << 20,
            max_write_size: 1 << 20,
            observer: None,
            strangers: None,
            interfaces: None,
            limits: Limits::default(),
            auth: AuthSettings::default(),
            #[cfg(test)]
            seed: crate::tests::Seed::default(),
        }
    }
}

impl SmbServerBuilder {
    pub fn listen(mut self, addr: SocketAddr) -> Self {
        self.listen_addr = Some(addr);
        self
    }

    /// The host's name unless set.
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

    pub fn max_read_size(mut self, bytes: u32) -> Self {
        self.max_read_size = bytes;
        self
    }

    pub fn max_write_size(mut self, bytes: u32) -> Self {
        self.max_write_size = bytes;
        self
    }

    /// Most connections served at once, counting every client together. A
    /// connection accepted beyond the limit is closed straight away.
    pub fn max_connections(mut self, connections: usize) -> Self {
        self.limits.max_connections = connections;
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
    pub fn interfaces(mut self, interfaces: crate::handlers::interfaces::Interfaces) -> Self {
        self.interfaces = Some(interfaces);
        self
    }

    /// Tells `observer` of logons and refusals.
    pub fn on_admission(mut self, observer: AdmissionObserver) -> Self {
        self.observer = Some(observer);
        self
    }

    pub fn build(self) -> Result<SmbServer, BuildError> {
        if self.limits.max_connections == 0 {
            return Err(BuildError::OutOfRange { setting: "max_connections", expected: "at least 1" });
        }
        for (setting, size) in [("max_read_size", self.max_read_size), ("max_write_size", self.max_write_size)] {
            if !(IO_BYTES_MIN..=IO_BYTES_MAX).contains(&size) {
                return Err(BuildError::OutOfRange { setting, expected: "between 65536 and 8388608 bytes" });
            }
        }
        let config = ServerConfig {
            listen_addr: self.listen_addr.ok_or(BuildError::MissingListenAddr)?,
            netbios_name: self.netbios_name.unwrap_or_else(default_netbios_name),
            max_read_size: self.max_read_size,
            max_write_size: self.max_write_size,
            server_guid: Uuid::new_v4(),
            limits: self.limits,
        };
        let mut state = ServerState::new(config, self.auth);
        state.observer = self.observer;
        if let Some(ledger) = self.strangers {
            state.strangers = ledger;
        }
        state.interfaces = self.interfaces;
        #[cfg(test)]
        self.seed.sow(&mut state);
        Ok(SmbServer::from_state(state))
    }
}

/// The host name's first label, uppercased and cut to the 15 characters a
/// NetBIOS name holds, or `SMBSERVER` when the host name is unknown.
fn default_netbios_name() -> String {
    let host = host_name().unwrap_or_default();
    let label: String = host.split('.').next().unwrap_or("").chars().take(15).collect();
    if label.is_empty() { "SMBSERVER".to_string() } else { label.to_uppercase() }
}

fn host_name() -> Option<String> {
    let mut buf = [0u8; 256];
    // SAFETY: `buf` is valid for writes of `buf.len()` bytes.
    let rc = unsafe { libc::gethostname(buf.as_mut_ptr().cast(), buf.len()) };
    if rc != 0 {
        return None;
    }
    let end = buf.iter().position(|&b| b == 0).unwrap_or(buf.len());
    String::from_utf8(buf[..end].to_vec()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn default_netbios_name_comes_from_the_host_name() {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").expect("hostname");
        let label = host.trim().split('.').next().expect("label");
        let expected: String = label.chars().take(15).collect::<String>().to_uppercase();
        let server = SmbServer::builder().listen("127.0.0.1:0".parse().unwrap()).build().expect("build");
        assert_eq!(server.state().config.netbios_name, expected);
    }
}
