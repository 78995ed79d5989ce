//! Addresses of shares, as far as a bench needs them (RFC 3986 without what no NAS uses).

use super::error::{ClientError, Outcome};

const URL_BYTES_MAX: usize = 4096;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ShareUrl {
    pub scheme: String,
    pub user: Option<String>,
    pub password: Option<String>,
    /// Without the brackets of an IPv6 address.
    pub host: String,
    pub port: Option<u16>,
    /// Decoded; begins with `/`.
    pub path: String,
    pub query: Vec<(String, String)>,
}

impl ShareUrl {
    pub fn parse(text: &str) -> Outcome<Self> {
        let bad = |reason: &str| ClientError::BadUrl { url: shown(text), reason: reason.to_owned() };
        if text.len() > URL_BYTES_MAX {
            return Err(bad("it is too long"));
        }
        let Some((scheme, rest)) = text.split_once("://") else {
            return Err(bad("it names no protocol"));
        };
        let scheme = scheme.to_ascii_lowercase();
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = match rest.find('/') {
            Some(at) => rest.split_at(at),
            None => (rest, "/"),
        };
        let (login, place) = match authority.rsplit_once('@') {
            Some((login, place)) => (Some(login), place),
            None => (None, authority),
        };
        let (host, port) = host_and_port(place).ok_or_else(|| bad("the host or the port makes no sense"))?;
        let mut url = Self { scheme, host, port, ..Self::default() };
        url.path = decode(path).ok_or_else(|| bad("a % is not followed by two hexadecimal digits"))?;
        if let Some(login) = login {
            let (user, password) = login.split_once(':').map_or((login, None), |(u, p)| (u, Some(p)));
            let decoded = |s: &str| decode(s).ok_or_else(|| bad("the user or the password is not encoded properly"));
            url.user = Some(decoded(user)?);
            url.password = password.map(decoded).transpose()?;
        }
        for pair in query.split('&').filter(|p| !p.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, "1"));
            let value = decode(value).ok_or_else(|| bad("the query is not encoded properly"))?;
            url.query.push((key.to_owned(), value));
        }
        Ok(url)
    }

    pub fn option(&self, key: &str) -> Option<&str> {
        self.query.iter().find(|(k, _)| k == key).map(|(_, v)| v.as_str())
    }

    /// An option that nobody reads would seem to have been tried.
    pub fn check_options(&self, known: &[&str]) -> Outcome<()> {
        let Some((key, _)) = self.query.iter().find(|(key, _)| !known.contains(&key.as_str())) else { return Ok(()) };
        let reason = format!("'{key}' is no option of {}: it has {}", self.scheme, known.join(", "));
        Err(ClientError::BadUrl { url: format!("{}://{}{}", self.scheme, self.host, self.path), reason })
    }

    /// For messages: neither user nor password.
    pub fn address(&self, port: u16) -> String {
        match self.host.contains(':') {
            true => format!("[{}]:{port}", self.host),
            false => format!("{}:{port}", self.host),
        }
    }

    /// The parts of the path, without `.` and empty ones; `..` is refused.
    pub fn parts(&self) -> Outcome<Vec<&str>> {
        let parts: Vec<&str> = self.path.split('/').filter(|p| !p.is_empty() && *p != ".").collect();
        match parts.contains(&"..") {
            true => Err(ClientError::BadUrl { url: self.path.clone(), reason: "'..' in a path".into() }),
            false => Ok(parts),
        }
    }
}

/// As it may be shown and stored: without a password, and without what tells only how to get there.
pub fn shown(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, tail) = rest.split_at(end);
    let (path, query) = tail.split_once('?').unwrap_or((tail, ""));
    let told = |pair: &&str| !WAYS.contains(&pair.split('=').next().unwrap_or_default());
    let told: Vec<&str> = query.split('&').filter(|pair| !pair.is_empty()).filter(told).collect();
    let query = if told.is_empty() { String::new() } else { format!("?{}", told.join("&")) };
    let place = match authority.rsplit_once('@') {
        Some((login, place)) => format!("{}@{place}", login.split(':').next().unwrap_or("")),
        None => authority.to_owned(),
    };
    format!("{scheme}://{place}{path}{query}")
}

/// In a URL's query: a file whose first line is this share's password. Shares of several owners are measured at once.
pub(super) const PASSWORD_FILE: &str = "password-file";
/// Of a query.
const WAYS: [&str; 4] = [PASSWORD_FILE, "nfsport", "mountport", "any-certificate"];

fn host_and_port(text: &str) -> Option<(String, Option<u16>)> {
    let (host, port) = if let Some(rest) = text.strip_prefix('[') {
        let (host, after) = rest.split_once(']')?;
        let port = match after {
            "" => None,
            _ => Some(after.strip_prefix(':')?),
        };
        (host, port)
    } else {
        match text.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        }
    };
    let port = match port {
        Some(port) => Some(port.parse::<u16>().ok().filter(|p| *p > 0)?),
        None => None,
    };
    let sound = !host.is_empty() && host.chars().all(|c| !c.is_whitespace() && !c.is_control() && c != '@');
    sound.then(|| (host.to_owned(), port))
}

pub(super) fn decode(text: &str) -> Option<String> {
    let mut bytes = text.bytes();
    let mut out = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let (high, low) = (bytes.next()?, bytes.next()?);
        let digit = |b: u8| (b as char).to_digit(16);
        out.push(u8::try_from(digit(high)? * 16 + digit(low)?).ok()?);
    }
    String::from_utf8(out).ok().filter(|s| !s.contains('\0'))
}

/// For a path in a request line: everything but what RFC 3986 calls unreserved, and `/`.
pub(super) fn encode_path(path: &str) -> String {
    let mut out = String::with_capacity(path.len());
    for byte in path.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => out.push(byte as char),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_urls() {
        let url = ShareUrl::parse("smb://me:p%40ss@[fe80::1]:4450/data/a%20b?encrypt=1").unwrap();
        assert_eq!((url.scheme.as_str(), url.host.as_str(), url.port), ("smb", "fe80::1", Some(4450)));
        assert_eq!((url.user.as_deref(), url.password.as_deref()), (Some("me"), Some("p@ss")));
        assert_eq!((url.path.as_str(), url.option("encrypt")), ("/data/a b", Some("1")));
        assert_eq!(url.address(4450), "[fe80::1]:4450");
        assert_eq!(ShareUrl::parse("NFS://nas").unwrap().path, "/");
    }

    #[test]
    fn nonsense_is_refused_without_showing_a_password() {
        for text in ["nas", "nfs://", "nfs://nas:99999/a", "nfs://nas:0/a", "nfs://nas/%zz", "nfs://[::1/a", "/mnt/a"] {
            assert!(matches!(ShareUrl::parse(text), Err(ClientError::BadUrl { .. })), "{text}");
        }
        let error = ShareUrl::parse("smb://me:secret@nas:x/a").unwrap_err().to_string();
        assert!(!error.contains("secret") && error.contains("smb://me@nas:x/a"), "{error}");
    }

    #[test]
    fn what_is_shown_tells_no_secret() {
        for (url, told) in [
            ("smb://me:secret@nas/x", "smb://me@nas/x"),
            ("smb://me:sec@ret@nas/x", "smb://me@nas/x"),
            ("smb://me:secret@nas?encrypt=1&password-file=/root/pw", "smb://me@nas?encrypt=1"),
            ("nfs://nas:2049/a@b?mountport=20048", "nfs://nas:2049/a@b"),
            ("/mnt/a@b", "/mnt/a@b"),
        ] {
            assert_eq!(shown(url), told);
        }
    }

    #[test]
    fn paths_survive_encoding() {
        assert_eq!(encode_path("/a b/ü%"), "/a%20b/%C3%BC%25");
        assert_eq!(decode(&encode_path("/a b/ü%")).unwrap(), "/a b/ü%");
    }
}
