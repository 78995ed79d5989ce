//! Passwords of plugs: where they come from, and how they are proved (RFC 7617 Basic, RFC 7616 Digest with SHA-256).
//!
//! A password is in memory and in what is sent to its plug, and nowhere else: not in what is printed, kept or logged.

use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::error::{HttpError, SourceError};
use crate::base64;

/// A password is a line.
const FILE_BYTES_MAX: u64 = 4096;
/// Of realm and nonce, which the plug chooses.
const CHALLENGE_BYTES_MAX: usize = 512;
/// The name of a plug's only user, unless it was renamed (Shelly Gen1).
pub(super) const USER: &str = "admin";

#[derive(Clone, PartialEq, Eq)]
struct Secret(String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(a password)")
    }
}

/// How to log in to a plug. What a person typed counts before a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Login {
    user: Option<String>,
    password_file: Option<PathBuf>,
    typed: Option<Secret>,
}

impl Login {
    pub fn new(user: Option<String>, password_file: Option<PathBuf>) -> Self {
        Self { user, password_file, typed: None }
    }

    pub(super) fn typed(&mut self, password: String) {
        self.typed = Some(Secret(password));
    }

    pub(super) fn user(&self) -> &str {
        self.user.as_deref().unwrap_or(USER)
    }

    /// Read anew each time: a file may be changed while a machine is watched.
    pub(super) fn password(&self, source: &str) -> Result<Option<String>, SourceError> {
        match (&self.typed, &self.password_file) {
            (Some(Secret(password)), _) => Ok(Some(password.clone())),
            (None, Some(file)) => read(file).map(Some).map_err(|e| {
                SourceError::new(source, format!("its password in {} cannot be read: {e}", file.display()))
                    .action("check password_file = in [[power.source]]; its first line is the password")
            }),
            (None, None) => Ok(None),
        }
    }
}

fn read(file: &Path) -> std::io::Result<String> {
    let mut text = String::new();
    std::fs::File::open(file)?.take(FILE_BYTES_MAX).read_to_string(&mut text)?;
    Ok(text.lines().next().unwrap_or_default().to_owned())
}

/// Which way of logging in a plug is known to have: a stranger at its address does not choose a weaker one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scheme {
    Basic,
    Digest,
}

pub(super) struct Credentials<'a> {
    pub(super) scheme: Scheme,
    pub(super) user: &'a str,
    pub(super) password: &'a str,
}

impl Credentials<'_> {
    /// The value of `Authorization` for a GET of `path`, after `challenges` (values of `WWW-Authenticate`).
    pub(super) fn answer(&self, challenges: &[&str], path: &str) -> Result<String, HttpError> {
        let name = match self.scheme {
            Scheme::Basic => "basic",
            Scheme::Digest => "digest",
        };
        let parameters = challenges.iter().find_map(|challenge| {
            let (scheme, rest) = challenge.split_once(' ').unwrap_or((challenge, ""));
            scheme.eq_ignore_ascii_case(name).then_some(rest)
        });
        let parameters = parameters.ok_or(HttpError::NotUnderstood("it asks for another kind of login"))?;
        match self.scheme {
            Scheme::Basic => Ok(format!("Basic {}", base64::encode(self.pair().as_bytes()))),
            Scheme::Digest => self.digest(parameters, path, &client_nonce()?),
        }
    }

    fn pair(&self) -> String {
        format!("{}:{}", self.user, self.password)
    }

    /// RFC 7616, 3.4.
    fn digest(&self, parameters: &str, path: &str, client_nonce: &str) -> Result<String, HttpError> {
        let odd = HttpError::NotUnderstood("its challenge is not one of RFC 7616");
        if parameters.len() > CHALLENGE_BYTES_MAX || parameters.contains(|c: char| c.is_control() || c == '\\') {
            return Err(odd);
        }
        let algorithm = parameter(parameters, "algorithm").unwrap_or_else(|| "MD5".to_owned());
        if !algorithm.eq_ignore_ascii_case("SHA-256") {
            return Err(HttpError::NotUnderstood("it logs in with something else than SHA-256"));
        }
        let all = parameter(parameters, "qop").unwrap_or_default();
        let (Some(realm), Some(nonce)) = (parameter(parameters, "realm"), parameter(parameters, "nonce")) else {
            return Err(odd);
        };
        if !all.split(',').any(|qop| qop.trim() == "auth") {
            return Err(odd);
        }
        let a1 = sha256(&format!("{}:{realm}:{}", self.user, self.password));
        let a2 = sha256(&format!("GET:{path}"));
        let response = sha256(&format!("{a1}:{nonce}:00000001:{client_nonce}:auth:{a2}"));
        let opaque = parameter(parameters, "opaque").map_or(String::new(), |text| format!(", opaque=\"{text}\""));
        Ok(format!(
            "Digest username=\"{}\", realm=\"{realm}\", uri=\"{path}\", algorithm=SHA-256, nonce=\"{nonce}\", \
             nc=00000001, cnonce=\"{client_nonce}\", qop=auth, response=\"{response}\"{opaque}",
            self.user
        ))
    }
}

/// `name=value` or `name="value"`, with commas between and within quotes.
fn parameter(parameters: &str, name: &str) -> Option<String> {
    let mut quoted = false;
    let parts = parameters.split(|c: char| {
        quoted ^= c == '"';
        c == ',' && !quoted
    });
    let mut pairs = parts.filter_map(|part| part.trim().split_once('='));
    let (_, value) = pairs.find(|(key, _)| key.trim().eq_ignore_ascii_case(name))?;
    Some(value.trim().trim_matches('"').to_owned())
}

fn sha256(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn client_nonce() -> Result<String, HttpError> {
    let uuid = std::fs::read_to_string("/proc/sys/kernel/random/uuid");
    let uuid = uuid.map_err(|e| HttpError::Unreachable(format!("this machine gives no random numbers: {e}")))?;
    Ok(uuid.chars().filter(char::is_ascii_hexdigit).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of RFC 7616, 3.9.1.
    #[test]
    fn the_digest_of_the_rfc() {
        let mufasa = Credentials { scheme: Scheme::Digest, user: "Mufasa", password: "Circle of Life" };
        let challenge = "realm=\"http-auth@example.org\", qop=\"auth, auth-int\", algorithm=SHA-256, \
             nonce=\"7ypf/xlj9XXwfDPEoM4URrv/xwf94BcCAzFZH4GiTo0v\", opaque=\"FQhe/qaU925kfnzjCev0ciny7QMkPqMAFRtzCUYo5tdS\"";
        let found =
            mufasa.digest(challenge, "/dir/index.html", "f2/wE4q74E6zIJEtWaHKaf5wv/H5QzzpXusqGemxURZJ").unwrap();
        assert!(
            found.contains("response=\"753927fa0e85d155564e2e272a28d1802ca10daf4496794697cf8db5856cb6c1\""),
            "{found}"
        );
        assert!(found.contains("opaque=\"FQhe/") && !found.contains("Circle"), "{found}");
    }

    #[test]
    fn only_the_scheme_of_the_plug_is_spoken() {
        let admin = |scheme| Credentials { scheme, user: "admin", password: "x y" };
        let digest = "Digest qop=\"auth\", realm=\"plug\", nonce=\"1\", algorithm=SHA-256";
        assert_eq!(admin(Scheme::Basic).answer(&[digest, "Basic realm=\"p\""], "/").unwrap(), "Basic YWRtaW46eCB5");
        assert!(admin(Scheme::Digest).answer(&["Basic realm=\"p\""], "/").is_err());
        assert!(admin(Scheme::Basic).answer(&[], "/").is_err());
        for bad in [
            "Digest realm=\"p\", nonce=\"1\", qop=\"auth\"",
            "Digest realm=\"p\", nonce=\"1\", algorithm=SHA-256",
            "Digest nonce=\"1\", qop=auth, algorithm=SHA-256",
            "Digest realm=\"a\\\"\", nonce=\"1\", qop=auth, algorithm=SHA-256",
        ] {
            assert!(admin(Scheme::Digest).answer(&[bad], "/").is_err(), "{bad}");
        }
    }

    #[test]
    fn passwords_do_not_show() {
        let mut login = Login::default();
        login.typed("hunter2".to_owned());
        assert_eq!(login.password("plug").unwrap().as_deref(), Some("hunter2"));
        assert!(!format!("{login:?}").contains("hunter2"), "{login:?}");
        let missing = Login { password_file: Some("/no/such/file".into()), ..Login::default() };
        assert!(missing.password("plug").unwrap_err().why.contains("/no/such/file"));
    }
}
