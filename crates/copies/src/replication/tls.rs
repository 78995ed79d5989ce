//! TLS between machines that know each other by the fingerprints of their certificates, as ssh does. No authority, no name and no
//! date counts.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use larder_api::{Connect, Connecting, Connection, Failure};
use larder_base::hex;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tokio::net::TcpStream;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use tokio_rustls::rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use tokio_rustls::rustls::version::TLS13;
use tokio_rustls::rustls::{
    ClientConfig, DigitallySignedStruct, DistinguishedName, Error, ServerConfig, SignatureScheme,
};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use larder_config::edit::replace_file;

const CONNECT_MAX: Duration = Duration::from_secs(20);
/// Certificates need a name. Nobody reads it.
const NAME: &str = "larder";
const FILE: &str = "machine.json";

/// This machine, as others know it. The key never leaves its file, which has mode 0600.
pub(super) struct Identity {
    certificate: Vec<u8>,
    key: Vec<u8>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct IdentityFile {
    certificate: String,
    key: String,
}

/// SHA-256 of a certificate, in hexadecimal digits.
pub(super) fn fingerprint(certificate: &[u8]) -> String {
    hex::encode(&Sha256::digest(certificate))
}

impl Identity {
    /// Reads it from the data folder; makes it on the first call.
    pub(super) fn load_or_create(folder: &Path) -> Result<Self, Failure> {
        let file = folder.join(FILE);
        match std::fs::read(&file) {
            Ok(text) => Self::parse(&text).ok_or_else(|| damaged(&file)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Self::create(&file),
            Err(error) => Err(Failure::io(format_args!("cannot read {}", file.display()), &error)),
        }
    }

    fn parse(text: &[u8]) -> Option<Self> {
        let file: IdentityFile = serde_json::from_slice(text).ok()?;
        Some(Self { certificate: hex::decode(&file.certificate)?, key: hex::decode(&file.key)? })
    }

    fn create(file: &Path) -> Result<Self, Failure> {
        let failed = |error: &dyn std::fmt::Display| Failure::internal(format!("cannot make a certificate: {error}"));
        let made = rcgen::generate_simple_self_signed([NAME.to_owned()]).map_err(|error| failed(&error))?;
        let identity = Self { certificate: made.cert.der().to_vec(), key: made.signing_key.serialize_der() };
        let text = IdentityFile { certificate: hex::encode(&identity.certificate), key: hex::encode(&identity.key) };
        let text = serde_json::to_vec_pretty(&text).map_err(|error| failed(&error))?;
        replace_file(file, &text, 0o600)?;
        Ok(identity)
    }

    pub(super) fn fingerprint(&self) -> String {
        fingerprint(&self.certificate)
    }

    fn chain(&self) -> Vec<CertificateDer<'static>> {
        vec![CertificateDer::from(self.certificate.clone())]
    }

    fn private(&self) -> PrivatePkcs8KeyDer<'static> {
        PrivatePkcs8KeyDer::from(self.key.clone())
    }

    pub(super) fn acceptor(&self) -> Result<TlsAcceptor, Error> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider)).with_protocol_versions(&[&TLS13])?;
        let builder = builder.with_client_cert_verifier(Arc::new(Anybody(provider)));
        let config = builder.with_single_cert(self.chain(), self.private().into())?;
        Ok(TlsAcceptor::from(Arc::new(config)))
    }

    fn connector(&self, expected: &str) -> Result<TlsConnector, Error> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider)).with_protocol_versions(&[&TLS13])?;
        let pinned = Pinned { expected: expected.to_owned(), provider };
        let builder = builder.dangerous().with_custom_certificate_verifier(Arc::new(pinned));
        let config = builder.with_client_auth_cert(self.chain(), self.private().into())?;
        Ok(TlsConnector::from(Arc::new(config)))
    }
}

fn damaged(file: &Path) -> Failure {
    Failure::unavailable(format!("{} is damaged", file.display()))
        .action("restore it from a backup; or remove it, and pair this machine with the others anew")
}

/// The way to the daemon of another machine.
pub(super) struct Machine {
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) identity: Identity,
    /// Its fingerprint, or the beginning of it.
    pub(super) expected: String,
    /// The whole fingerprint that it showed last.
    pub(super) seen: Mutex<Option<String>>,
}

impl Connect for Machine {
    fn connect(&self) -> Connecting<'_> {
        Box::pin(async {
            let connected = tokio::time::timeout(CONNECT_MAX, self.handshake()).await;
            connected.unwrap_or_else(|_| Err(io::Error::new(io::ErrorKind::TimedOut, "no answer in 20 s")))
        })
    }

    fn place(&self) -> String {
        format!("{} port {}", self.host, self.port)
    }
}

impl Machine {
    async fn handshake(&self) -> io::Result<Box<dyn Connection>> {
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await?;
        stream.set_nodelay(true)?;
        let name = ServerName::try_from(NAME).map_err(io::Error::other)?;
        let connector = self.identity.connector(&self.expected).map_err(io::Error::other)?;
        let stream = connector.connect(name, stream).await?;
        let shown = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
        *self.seen.lock() = shown.map(|certificate| fingerprint(certificate));
        Ok(Box::new(stream))
    }
}

/// Takes one certificate only.
#[derive(Debug)]
struct Pinned {
    expected: String,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if fingerprint(certificate).starts_with(&self.expected) {
            return Ok(ServerCertVerified::assertion());
        }
        Err(Error::General("another machine answers than the one that was paired".to_owned()))
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// Takes every certificate whose key its owner has: what it may do is decided by its fingerprint.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ClientCertVerifier for Anybody {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    async fn meet(expected: Option<&str>) -> (io::Result<()>, Option<String>) {
        let (near, far) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let server = Identity::load_or_create(far.path()).unwrap();
        let expected = expected.map_or_else(|| server.fingerprint(), str::to_owned);
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let acceptor = server.acceptor().unwrap();
        let serve = async {
            let (stream, _) = listener.accept().await.unwrap();
            let mut stream = acceptor.accept(stream).await.ok()?;
            let shown = fingerprint(stream.get_ref().1.peer_certificates()?.first()?);
            stream.write_all(b"hello").await.ok()?;
            stream.shutdown().await.ok()?;
            Some(shown)
        };
        let identity = Identity::load_or_create(near.path()).unwrap();
        assert_eq!(Identity::load_or_create(near.path()).unwrap().fingerprint(), identity.fingerprint());
        let own = identity.fingerprint();
        let machine = Machine { host: "127.0.0.1".into(), port, identity, expected, seen: Mutex::new(None) };
        let connect = async {
            let mut stream = machine.connect().await?;
            let mut text = String::new();
            stream.read_to_string(&mut text).await?;
            assert_eq!(text, "hello");
            Ok(())
        };
        let (shown, connected) = tokio::join!(serve, connect);
        if let Some(shown) = &shown {
            assert_eq!(*shown, own);
            assert_eq!(machine.seen.lock().as_ref(), Some(&server.fingerprint()));
        }
        (connected, shown)
    }

    #[tokio::test]
    async fn machines_know_each_other_by_their_certificates() {
        let (connected, shown) = meet(None).await;
        assert!(connected.is_ok() && shown.is_some(), "{connected:?}");
        let (connected, shown) = meet(Some(&"0".repeat(32))).await;
        assert!(connected.unwrap_err().to_string().contains("another machine") && shown.is_none());
    }

    #[test]
    fn a_damaged_identity_is_named() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(FILE), "{").unwrap();
        let failure = Identity::load_or_create(folder.path()).err().unwrap();
        assert!(failure.message.contains("machine.json is damaged"), "{failure}");
    }
}
