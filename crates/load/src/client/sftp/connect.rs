//! SSH below SFTP: who the server is, who we are, which cipher.

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use russh::client::{AuthResult, Config, Handle, Handler, Msg};
use russh::keys::{HashAlg, PrivateKeyWithHashAlg, PublicKeyOrCertificate, load_secret_key};
use russh::{Channel, Names, Preferred, cipher};

use crate::client::error::{ClientError, Outcome};
use crate::client::options::ClientOptions;
use crate::client::url::ShareUrl;

const PORT: u16 = 22;
const CONNECT_TIME_MAX: Duration = Duration::from_secs(15);
/// As OpenSSH's own client (64 packets of 32 KiB). More than a switch holds for one port is lost, and TCP slows down: with
/// 16 MiB a gigabit wire gave a fifth of its rate.
const WINDOW_BYTES: u32 = 2 << 20;
const PACKET_BYTES: u32 = 64 << 10;

/// Findings of the key exchange.
#[derive(Default)]
pub(super) struct Seen {
    pub fingerprint: String,
    pub cipher: String,
}

/// Every host key is taken: nothing secret is stored. The password is the exception, so its use is up to the user, who
/// is shown the fingerprint.
pub(super) struct Watch(Arc<Mutex<Seen>>);

impl Handler for Watch {
    type Error = russh::Error;

    async fn check_server_key(&mut self, key: &PublicKeyOrCertificate) -> Result<bool, Self::Error> {
        if let (Ok(mut seen), PublicKeyOrCertificate::PublicKey { key, .. }) = (self.0.lock(), key) {
            seen.fingerprint = key.fingerprint(HashAlg::Sha256).to_string();
        }
        Ok(true)
    }

    async fn kex_done(
        &mut self,
        _: Option<&[u8]>,
        names: &Names,
        _: &mut russh::client::Session,
    ) -> Result<(), Self::Error> {
        if let Ok(mut seen) = self.0.lock() {
            seen.cipher = names.cipher.as_ref().to_owned();
        }
        Ok(())
    }
}

/// With AES in the processor its GCM mode is the fastest by far, without it ChaCha20 is.
fn has_aes() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::arch::is_x86_feature_detected!("aes");
    #[cfg(target_arch = "aarch64")]
    return std::arch::is_aarch64_feature_detected!("aes");
    #[allow(unreachable_code)]
    false
}

fn ciphers(wanted: Option<&str>) -> Outcome<Vec<cipher::Name>> {
    let aes = [cipher::AES_128_GCM, cipher::AES_256_GCM, cipher::AES_128_CTR, cipher::AES_256_CTR];
    let all: Vec<cipher::Name> = match has_aes() {
        true => aes.into_iter().chain([cipher::CHACHA20_POLY1305]).collect(),
        false => [cipher::CHACHA20_POLY1305].into_iter().chain(aes).collect(),
    };
    let Some(wanted) = wanted else { return Ok(all) };
    let known = all.iter().map(|c| c.as_ref()).collect::<Vec<_>>().join(", ");
    match all.into_iter().find(|c| c.as_ref() == wanted) {
        Some(cipher) => Ok(vec![cipher]),
        None => Err(ClientError::Unsupported {
            access: "sftp".into(),
            reason: format!("cipher {wanted}; there are {known}"),
        }),
    }
}

pub(super) fn config(cipher: Option<&str>) -> Outcome<Config> {
    Ok(Config {
        window_size: WINDOW_BYTES,
        maximum_packet_size: PACKET_BYTES,
        channel_buffer_size: 1024,
        nodelay: true,
        preferred: Preferred { cipher: Cow::Owned(ciphers(cipher)?), ..Preferred::default() },
        ..Config::default()
    })
}

/// The keys that `ssh` would try.
fn own_keys() -> Vec<PathBuf> {
    let Some(home) = std::env::var_os("HOME").map(PathBuf::from) else { return Vec::new() };
    let names = ["id_ed25519", "id_ecdsa", "id_rsa"];
    names.iter().map(|name| home.join(".ssh").join(name)).filter(|path| path.is_file()).collect()
}

pub(in crate::client) struct SftpTarget {
    pub(super) url: ShareUrl,
    pub(super) port: u16,
    pub(super) base: String,
    pub(super) user: String,
    password: Option<String>,
    key_file: Option<PathBuf>,
    config: Arc<russh::client::Config>,
    pub(super) seen: Arc<Mutex<Seen>>,
    pub(super) transfers: Mutex<Option<(u64, u64)>>,
}

impl SftpTarget {
    pub(in crate::client) fn new(url: &ShareUrl, options: &ClientOptions) -> Outcome<Self> {
        let own = || std::env::var("USER").ok().filter(|u| !u.is_empty()).unwrap_or_else(|| "root".into());
        Ok(Self {
            port: url.port.unwrap_or(PORT),
            base: format!("/{}", url.parts()?.join("/")),
            user: url.user.clone().or_else(|| options.user.clone()).unwrap_or_else(own),
            password: url.password.clone().or_else(|| options.password.clone()),
            key_file: options.key_file.clone(),
            config: Arc::new(config(url.option("cipher"))?),
            seen: Arc::default(),
            transfers: Mutex::new(None),
            url: url.clone(),
        })
    }
}

impl SftpTarget {
    pub(super) async fn channel(&self) -> Outcome<(Handle<Watch>, Channel<Msg>)> {
        let address = self.url.address(self.port);
        let failed = |e: russh::Error| match e {
            russh::Error::IO(e) => ClientError::unreachable(&address, &e),
            e => ClientError::protocol(&address, e),
        };
        let place = (self.url.host.as_str(), self.port);
        let connecting = russh::client::connect(self.config.clone(), place, Watch(self.seen.clone()));
        let mut handle = match tokio::time::timeout(CONNECT_TIME_MAX, connecting).await {
            Ok(outcome) => outcome.map_err(failed)?,
            Err(_) => return Err(ClientError::unreachable(&address, &std::io::ErrorKind::TimedOut.into())),
        };
        self.log_in(&mut handle).await?;
        let channel = handle.channel_open_session().await.map_err(failed)?;
        channel.request_subsystem(true, "sftp").await.map_err(failed)?;
        Ok((handle, channel))
    }

    async fn log_in(&self, handle: &mut Handle<Watch>) -> Outcome<()> {
        let lost = |e: russh::Error| ClientError::lost(self.url.host.clone(), e);
        let keys = match &self.key_file {
            Some(path) => vec![path.clone()],
            None if self.password.is_some() => Vec::new(),
            None => own_keys(),
        };
        for path in &keys {
            if self.try_key(handle, path).await? {
                return Ok(());
            }
        }
        if let Some(password) = &self.password {
            let outcome = handle.authenticate_password(&self.user, password).await.map_err(lost)?;
            if matches!(outcome, AuthResult::Success) {
                return Ok(());
            }
        }
        let reason = match (&self.password, keys.len()) {
            (Some(_), _) => "check the user and the password, and that the server takes passwords".to_owned(),
            (None, 0) => "give a password or a key file: there is no key in ~/.ssh".to_owned(),
            (None, _) => {
                "none of the keys is allowed there: add one to its authorized_keys, or give a password".to_owned()
            }
        };
        Err(ClientError::WrongPassword {
            host: self.url.address(self.port),
            who: format!("user {}", self.user),
            reason,
        })
    }

    async fn try_key(&self, handle: &mut Handle<Watch>, path: &Path) -> Outcome<bool> {
        let key = match load_secret_key(path, None) {
            Ok(key) => key,
            // One that was not asked for may be of a kind, or behind a passphrase, that does not matter here.
            Err(_) if self.key_file.is_none() => return Ok(false),
            Err(error) => {
                let what = path.display().to_string();
                return Err(ClientError::Local {
                    what,
                    reason: format!("{error}; a key without a passphrase is needed"),
                });
            }
        };
        let lost = |e: russh::Error| ClientError::lost(self.url.host.clone(), e);
        let hash = handle.best_supported_rsa_hash().await.map_err(lost)?.flatten();
        let key = PrivateKeyWithHashAlg::new(Arc::new(key), hash);
        let outcome = handle.authenticate_publickey(&self.user, key).await.map_err(lost)?;
        Ok(matches!(outcome, AuthResult::Success))
    }
}
