//! TLS: the certificate that clients are shown, and the handshake.
//!
//! - `tls.own_or_made`: without files of the owner's the server makes a certificate of its own at the first
//!   start and keeps it. Clients ask whether they may trust it, or are told its fingerprint.
//! - `tls.changed_files_are_read`: files that a renewal has changed are read again within
//!   [`CHECK_EVERY`]. Files that are damaged or half written change nothing: the certificate in use stays.

use std::fs::{OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use aws_lc_rs::digest;
use base64ct::{Base64, Encoding};
use larder_base::Timestamp;
use parking_lot::Mutex;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::client::verify_server_name;
use tokio_rustls::rustls::crypto::aws_lc_rs as provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::server::ParsedCertificate;

use super::civil::civil;

const CHECK_EVERY: Duration = Duration::from_secs(10);
const FILE_BYTES_MAX: u64 = 1 << 20;
const YEARS: i64 = 10;

/// Reasons for which there is no TLS.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// It cannot be read or made.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is no certificate, or no private key, or the two are not of each other.
    #[error("{} cannot be used: {reason}", path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
}

/// A certificate, and where it comes from.
pub struct Tls {
    certificate: PathBuf,
    key: PathBuf,
    current: Mutex<Current>,
}

struct Current {
    loaded: Loaded,
    stamps: [Option<SystemTime>; 2],
    checked: Instant,
}

/// What a certificate and its key are good for.
struct Loaded {
    acceptor: TlsAcceptor,
    fingerprint: String,
    leaf: CertificateDer<'static>,
}

impl Tls {
    /// Uses the files of the owner: a chain of certificates and the key of the first one, both in PEM.
    pub fn of_files(certificate: &Path, key: &Path) -> Result<Tls, TlsError> {
        let stamps = [stamp(certificate), stamp(key)];
        let current = Current { loaded: load(certificate, key)?, stamps, checked: Instant::now() };
        Ok(Tls { certificate: certificate.to_owned(), key: key.to_owned(), current: Mutex::new(current) })
    }

    /// Uses the files in `folder`, and makes them where there are none, for the names and addresses `names`.
    pub fn load_or_create(folder: &Path, names: Vec<String>) -> Result<Tls, TlsError> {
        let (certificate, key) = (folder.join("webdav_certificate.pem"), folder.join("webdav_key.pem"));
        if !certificate.exists() || !key.exists() {
            create(&certificate, &key, names)?;
        }
        Self::of_files(&certificate, &key)
    }

    /// SHA-256 of the certificate, as browsers and curl show it.
    pub fn fingerprint(&self) -> String {
        self.current.lock().loaded.fingerprint.clone()
    }

    /// Whether the certificate is for a host of this name.
    pub fn is_for(&self, host: &str) -> bool {
        let Ok(name) = ServerName::try_from(host.to_owned()) else { return false };
        let current = self.current.lock();
        let leaf = ParsedCertificate::try_from(&current.loaded.leaf);
        leaf.is_ok_and(|leaf| verify_server_name(&leaf, &name).is_ok())
    }

    /// SHA-256 of the public key in base64, as curl pins it (RFC 7469, 2.4).
    pub fn pin(&self) -> Option<String> {
        let key = PrivateKeyDer::from_pem_slice(&read(&self.key).ok()?).ok()?;
        let pair = rcgen::KeyPair::try_from(&key).ok()?;
        let hash = digest::digest(&digest::SHA256, &rcgen::PublicKeyData::subject_public_key_info(&pair));
        Some(Base64::encode_string(hash.as_ref()))
    }

    /// What shakes hands with the next client (`tls.changed_files_are_read`).
    pub fn acceptor(&self) -> TlsAcceptor {
        let mut current = self.current.lock();
        if current.checked.elapsed() >= CHECK_EVERY {
            current.checked = Instant::now();
            let stamps = [stamp(&self.certificate), stamp(&self.key)];
            if stamps != current.stamps {
                match load(&self.certificate, &self.key) {
                    Ok(loaded) => {
                        tracing::info!("WebDAV: the certificate was read anew: {}", loaded.fingerprint);
                        current.loaded = loaded;
                    }
                    Err(error) => tracing::warn!("WebDAV: the changed certificate is not used: {error}"),
                }
                current.stamps = stamps;
            }
        }
        current.loaded.acceptor.clone()
    }
}

fn stamp(path: &Path) -> Option<SystemTime> {
    std::fs::metadata(path).and_then(|about| about.modified()).ok()
}

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    let failed = |source| TlsError::File { path: path.to_owned(), source };
    if std::fs::metadata(path).map_err(failed)?.len() > FILE_BYTES_MAX {
        return Err(TlsError::Unusable { path: path.to_owned(), reason: "it is far too large".to_owned() });
    }
    std::fs::read(path).map_err(failed)
}

fn load(certificate: &Path, key: &Path) -> Result<Loaded, TlsError> {
    let unusable = |path: &Path, reason: String| TlsError::Unusable { path: path.to_owned(), reason };
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(&read(certificate)?)
        .collect::<Result<_, _>>()
        .map_err(|e| unusable(certificate, e.to_string()))?;
    let first = chain.first().ok_or_else(|| unusable(certificate, "it has no certificate in PEM".to_owned()))?;
    let leaf = first.clone();
    let hash = digest::digest(&digest::SHA256, first);
    let pairs: Vec<String> = hash.as_ref().iter().map(|byte| format!("{byte:02X}")).collect();
    let private = PrivateKeyDer::from_pem_slice(&read(key)?).map_err(|e| unusable(key, e.to_string()))?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(provider::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|e| unusable(certificate, e.to_string()))?
        .with_no_client_auth()
        .with_single_cert(chain, private)
        .map_err(|e| unusable(key, e.to_string()))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Loaded { acceptor: TlsAcceptor::from(Arc::new(config)), fingerprint: pairs.join(":"), leaf })
}

fn create(certificate: &Path, key: &Path, names: Vec<String>) -> Result<(), TlsError> {
    let unusable = |e: rcgen::Error| TlsError::Unusable { path: certificate.to_owned(), reason: e.to_string() };
    let pair = rcgen::KeyPair::generate().map_err(unusable)?;
    let mut params = rcgen::CertificateParams::new(names).map_err(unusable)?;
    params.distinguished_name.push(rcgen::DnType::CommonName, "larder");
    let (year, month, day, _) = civil(Timestamp::from(SystemTime::now()));
    // The 29th of February is not there ten years later.
    let date = |year: i64| rcgen::date_time_ymd(year as i32, month as u8, day.min(28) as u8);
    (params.not_before, params.not_after) = (date(year - 1), date(year + YEARS));
    let made = params.self_signed(&pair).map_err(unusable)?;
    write(key, "PRIVATE KEY", 0o600, &pair.serialize_der())?;
    // It is sent to everybody who connects.
    write(certificate, "CERTIFICATE", 0o644, made.der())
}

/// PEM (RFC 7468), whole or not at all. `mode` holds whatever the umask is.
fn write(path: &Path, label: &str, mode: u32, der: &[u8]) -> Result<(), TlsError> {
    let mut text = format!("-----BEGIN {label}-----\n");
    for line in Base64::encode_string(der).as_bytes().chunks(64) {
        text.push_str(&String::from_utf8_lossy(line));
        text.push('\n');
    }
    text.push_str(&format!("-----END {label}-----\n"));
    let beside = path.with_extension("new");
    let write = || {
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&beside)?;
        file.set_permissions(Permissions::from_mode(mode))?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&beside, path)
    };
    write().map_err(|source| TlsError::File { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn a_certificate_is_made_once_and_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let names = || vec!["nas".to_owned(), "192.168.1.2".to_owned(), "::1".to_owned()];
        let made = Tls::load_or_create(folder.path(), names()).unwrap();
        assert_eq!(made.fingerprint().len(), 95);
        assert!(made.is_for("nas") && made.is_for("192.168.1.2") && !made.is_for("evil.test") && !made.is_for(""));
        let again = Tls::load_or_create(folder.path(), names()).unwrap();
        assert_eq!(made.fingerprint(), again.fingerprint());
        for (name, mode) in [("webdav_certificate.pem", 0o644), ("webdav_key.pem", 0o600)] {
            assert_eq!(folder.path().join(name).metadata().unwrap().mode() & 0o777, mode);
        }
        std::fs::write(folder.path().join("webdav_certificate.pem"), "garbage").unwrap();
        again.current.lock().checked -= CHECK_EVERY;
        again.acceptor();
        assert_eq!(made.fingerprint(), again.fingerprint(), "what cannot be used changes nothing");
        assert!(Tls::load_or_create(folder.path(), names()).is_err());
        std::fs::remove_file(folder.path().join("webdav_certificate.pem")).unwrap();
        let other = Tls::load_or_create(folder.path(), names()).unwrap();
        again.current.lock().checked -= CHECK_EVERY;
        again.acceptor();
        assert_eq!(again.fingerprint(), other.fingerprint());
    }
}
