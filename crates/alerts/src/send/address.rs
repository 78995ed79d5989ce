//! Which addresses a message may be sent to.

use url::{Host, Url};

/// An address as it may be written into a configuration: without a secret that is plainly one, and not in clear across a network
/// unless somebody says so.
pub fn check_url(text: &str, allow_http: bool) -> Result<(), String> {
    if Url::parse(text).is_ok_and(|url| !url.username().is_empty() || url.password().is_some()) {
        return Err("write no user and password into an address: use token_file, or url_file".to_owned());
    }
    url_fault(text, allow_http).map_or(Ok(()), |fault| Err(format!("'{text}' {fault}")))
}

/// What is wrong with an address, in words that do not contain it.
pub(super) fn url_fault(text: &str, allow_http: bool) -> Option<String> {
    let url = match Url::parse(text) {
        Ok(url) => url,
        Err(error) => return Some(format!("is no address: {error}")),
    };
    let is_near = match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(ip)) => ip.is_loopback() || ip.is_private(),
        Some(Host::Ipv6(ip)) => ip.is_loopback() || ip.is_unique_local(),
        None => return Some("names no host".to_owned()),
    };
    match url.scheme() {
        "https" => None,
        "http" if is_near || allow_http => None,
        "http" => Some("would cross the network in clear: use https://, or say allow_http = true".to_owned()),
        _ => Some("is not understood: use https://".to_owned()),
    }
}
