//! The names by which browsers may ask for the page.
//!
//! - `hosts.known_alone`: a page is given to those alone who ask for this machine. Somebody's domain may lead here
//!   (DNS rebinding); its pages would then speak with this server as their own. So the header Host is an address, a name
//!   of this machine or its certificate, or one of the configuration.

use std::net::IpAddr;

pub(super) struct Hosts {
    /// In lower case.
    names: Vec<String>,
}

impl Hosts {
    /// `configured`: what the configuration adds to the machine's own names.
    pub(super) fn new(configured: &[String]) -> Self {
        let mut names = vec!["localhost".to_owned()];
        let own = rustix::system::uname().nodename().to_string_lossy().to_ascii_lowercase();
        if let Some(first) = own.split('.').next().filter(|first| !first.is_empty()) {
            names.extend([first.to_owned(), format!("{first}.local")]);
        }
        names.push(own);
        names.extend(configured.iter().cloned());
        Self { names }
    }

    /// `header`: the value of Host. `is_certified`: whether the certificate is for a name.
    pub(super) fn has(&self, header: &str, is_certified: impl Fn(&str) -> bool) -> bool {
        let Some(host) = without_port(header) else { return false };
        let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
        if bare.parse::<IpAddr>().is_ok() {
            return true;
        }
        let name = host.trim_end_matches('.').to_ascii_lowercase();
        self.names.contains(&name) || is_certified(&name)
    }
}

/// RFC 9110 7.2: `host` or `host:port`.
fn without_port(header: &str) -> Option<&str> {
    let at = header.rfind(']').map_or(0, |at| at + 1);
    let (head, tail) = header.split_at_checked(at)?;
    let (host, port) = match tail.split_once(':') {
        Some((host, port)) => (head.len() + host.len(), port),
        None => (header.len(), ""),
    };
    port.bytes().all(|byte| byte.is_ascii_digit()).then(|| header.get(..host))?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_own_names_are_answered() {
        let hosts = Hosts { names: vec!["localhost".to_owned(), "nas".to_owned(), "nas.local".to_owned()] };
        let certified = |name: &str| name == "nas.example.org";
        for fine in [
            "192.168.1.2",
            "192.168.1.2:10443",
            "[fd00::1]:10443",
            "[::1]",
            "localhost:1",
            "NAS:10443",
            "nas.local.",
            "nas.example.org:10443",
        ] {
            assert!(hosts.has(fine, certified), "{fine}");
        }
        for strange in [
            "",
            "evil.test",
            "evil.test:10443",
            "nas.evil.test",
            "nas:1@evil.test",
            "[",
            "]:",
            "nas:x",
            "ä",
            "1.2.3.4.evil",
        ] {
            assert!(!hosts.has(strange, certified), "{strange}");
        }
    }
}
