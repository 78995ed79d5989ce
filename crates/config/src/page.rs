//! The page: where it is served, to whom, and by what names.

use std::net::SocketAddr;
use std::path::PathBuf;

use larder_people::Network;
use larder_web::{IssuerOptions, is_issuer_address};

pub const PAGE_PORT: u16 = 10443;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageConfig {
    /// `None`: nobody said anything about it.
    pub listen: Option<PageListen>,
    /// Clients elsewhere are not answered.
    pub networks: Vec<Network>,
    /// Further names of this machine, in lower case.
    pub hosts: Vec<String>,
    pub oidc: Option<OidcConfig>,
    /// See `config.deeds_of_the_machine`.
    pub may_run: bool,
}

/// An issuer of OpenID Connect. Its secret is in a file, never in the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OidcConfig {
    pub options: IssuerOptions,
    pub secret_file: Option<PathBuf>,
}

pub(super) const USUAL_CLAIM: &str = "preferred_username";
const WORD_CHARS_MAX: usize = 200;

pub(super) fn check_issuer(address: &str) -> Result<String, String> {
    match is_issuer_address(address) && !address.contains('?') {
        true => Ok(address.to_owned()),
        false => Err(format!(
            "'{address}' is not the address of an issuer: write it as in https://id.example.org/realm; http:// is for this machine alone"
        )),
    }
}

pub(super) fn host_of(address: &str) -> &str {
    let rest = address.split_once("://").map_or(address, |(_, rest)| rest);
    rest.split('/').next().unwrap_or(rest)
}

pub(super) fn check_word(text: &str) -> Result<String, String> {
    let is_word = (1..=WORD_CHARS_MAX).contains(&text.chars().count()) && !text.contains(char::is_control);
    is_word.then(|| text.to_owned()).ok_or_else(|| format!("write 1 to {WORD_CHARS_MAX} characters in one line"))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageListen {
    Off,
    At(SocketAddr),
    /// Where it usually is. It joins WebDAV over TLS, and is off if the port is in use: a default is no reason not to start.
    Usual(SocketAddr),
}

/// A name as the header Host has it, without a port.
pub(super) fn check_host(name: &str) -> Result<String, String> {
    let is_name = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte));
    match is_name {
        true => Ok(name.trim_end_matches('.').to_ascii_lowercase()),
        false => {
            Err(format!("'{name}' is not the name of a host: write it as in nas.example.org, without port or https://"))
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::path::Path;

    use super::super::{Config, private_networks};
    use super::*;

    fn parsed(text: &str) -> Result<PageConfig, String> {
        Config::parse(text, Path::new("/larder.toml")).map(|config| config.page).map_err(|failure| failure.message)
    }

    #[test]
    fn the_page_is_for_private_networks_unless_somebody_says_otherwise() {
        let unsaid = parsed("").unwrap();
        assert_eq!((unsaid.listen, &unsaid.networks), (None, &private_networks()));
        assert_eq!(parsed("[page]\nlisten = \"off\"").unwrap().listen, Some(PageListen::Off));
        let text = "[page]\nlisten = \"127.0.0.1:8443\"\nnetworks = [\"private\", \"203.0.113.0/24\"]\nhosts = [\"NAS.example.org\"]";
        let said = parsed(text).unwrap();
        assert_eq!(said.listen, Some(PageListen::At("127.0.0.1:8443".parse().unwrap())));
        assert_eq!(
            (said.networks.len(), said.hosts),
            (private_networks().len() + 1, vec!["nas.example.org".to_owned()])
        );
        let text = "[page]\noidc = { issuer = \"https://id.example.org/x\", client_id = \"nas\", client_secret_file = \"oidc\" }";
        let oidc = parsed(text).unwrap().oidc.unwrap();
        assert_eq!(
            (oidc.options.user_claim.as_str(), oidc.options.label.as_str()),
            ("preferred_username", "id.example.org")
        );
        assert_eq!(oidc.secret_file, Some("/oidc".into()));
        for (text, why) in [
            ("[page]\nlisten = \"nowhere\"", "2:10"),
            ("[page]\nnetworks = [\"10.0.0.0/99\"]", "2:13"),
            ("[page]\nhosts = [\"https://nas\"]", "not the name of a host"),
            ("[page]\nport = 1", "port"),
            ("[page.oidc]\nissuer = \"http://id.example.org\"\nclient_id = \"a\"", "not the address of an issuer"),
            ("[page.oidc]\nissuer = \"https://id.example.org\"\nclient_id = \"\"", "1 to 200"),
            (
                "[page.oidc]\nissuer = \"https://id.example.org\"\nclient_id = \"a\"\nclient_secret = \"b\"",
                "client_secret",
            ),
        ] {
            assert!(parsed(text).unwrap_err().contains(why), "{text}");
        }
    }
}
