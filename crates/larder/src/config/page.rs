//! The page: where it is served, to whom, and by what names.

use std::net::SocketAddr;

use larder_people::Network;

pub(crate) const PAGE_PORT: u16 = 10443;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PageConfig {
    /// `None`: nobody said anything about it.
    pub(crate) listen: Option<PageListen>,
    /// Clients elsewhere are not answered.
    pub(crate) networks: Vec<Network>,
    /// Further names of this machine, in lower case.
    pub(crate) hosts: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PageListen {
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
        for (text, why) in [
            ("[page]\nlisten = \"nowhere\"", "2:10"),
            ("[page]\nnetworks = [\"10.0.0.0/99\"]", "2:13"),
            ("[page]\nhosts = [\"https://nas\"]", "not the name of a host"),
            ("[page]\nport = 1", "port"),
        ] {
            assert!(parsed(text).unwrap_err().contains(why), "{text}");
        }
    }
}
