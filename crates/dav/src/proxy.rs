//! The client behind a proxy: `X-Forwarded-For`, and `Forwarded` (RFC 7239).
//!
//! - `proxy.trusted_alone`: the headers of a connection are believed only if it comes from a network
//!   of `trusted_proxies`. Each proxy appends the address that it was asked from. So the client is the rightmost
//!   address that is not a trusted proxy; anything left of it may be the client's invention.
//! - `proxy.one_answer`: a proxy writes one of the headers and passes on the other as a client sent it.
//!   A request with both is refused unless they name the same client.

use std::net::{IpAddr, SocketAddr};

use hyper::header::{HeaderMap, HeaderName};
use larder_people::Network;

use super::fail::Fail;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// The address that asks by a connection from `peer`.
pub fn client(peer: IpAddr, headers: &HeaderMap, trusted: &[Network]) -> Result<IpAddr, Fail> {
    let is_trusted = |address: IpAddr| trusted.iter().any(|network| network.contains(address));
    if !is_trusted(peer) {
        return Ok(peer);
    }
    let found = |header: HeaderName, of: fn(&str) -> Option<IpAddr>| {
        let values: Vec<&str> =
            headers.get_all(&header).iter().map(|value| value.to_str().unwrap_or_default()).collect();
        let mut nearest = None;
        for word in values.iter().rev().flat_map(|value| value.rsplit(',')) {
            // An address that is hidden or malformed: the proxy that names it is as far as anybody can see.
            let Some(address) = of(word.trim()) else { break };
            nearest = Some(address);
            if !is_trusted(address) {
                break;
            }
        }
        nearest
    };
    match (found(X_FORWARDED_FOR, address), found(hyper::header::FORWARDED, forwarded_for)) {
        (Some(one), Some(other)) if one != other => {
            Err(Fail::bad_request("X-Forwarded-For and Forwarded name different clients"))
        }
        (one, other) => Ok(one.or(other).unwrap_or(peer)),
    }
}

/// An address as proxies write it: alone or with a port, IPv6 in brackets or bare.
fn address(word: &str) -> Option<IpAddr> {
    let bare = word.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(word);
    let found = bare.parse::<IpAddr>().or_else(|_| word.parse::<SocketAddr>().map(|with_port| with_port.ip()));
    found.ok().map(|address| address.to_canonical())
}

/// The `for` of an element of `Forwarded` (RFC 7239 4).
fn forwarded_for(element: &str) -> Option<IpAddr> {
    let pairs = element.split(';').filter_map(|pair| pair.split_once('='));
    let mut names = pairs.filter(|(name, _)| name.trim().eq_ignore_ascii_case("for"));
    let (_, value) = names.next()?;
    address(value.trim().trim_matches('"'))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn check(peer: &str, all: &[(&str, &str)], expected: Option<&str>) {
        let trusted: Vec<Network> = ["127.0.0.1", "10.0.0.0/8", "fd00::/8"].map(|net| net.parse().unwrap()).to_vec();
        let mut headers = HeaderMap::new();
        for (name, value) in all {
            headers.append(HeaderName::from_bytes(name.as_bytes()).unwrap(), value.parse().unwrap());
        }
        let found = client(peer.parse().unwrap(), &headers, &trusted).ok();
        assert_eq!(found, expected.map(|text| text.parse().unwrap()), "{peer} {all:?}");
    }

    #[test]
    fn the_rightmost_untrusted_address_asks() {
        let xff = "x-forwarded-for";
        check("192.0.2.9", &[(xff, "198.51.100.1")], Some("192.0.2.9"));
        check("127.0.0.1", &[], Some("127.0.0.1"));
        check("127.0.0.1", &[(xff, "198.51.100.1")], Some("198.51.100.1"));
        check("127.0.0.1", &[(xff, "127.0.0.1, 203.0.113.5, 198.51.100.1, 10.1.2.3")], Some("198.51.100.1"));
        check("127.0.0.1", &[(xff, "203.0.113.5"), (xff, "198.51.100.1")], Some("198.51.100.1"));
        check("127.0.0.1", &[(xff, "203.0.113.5, unknown, 10.1.2.3")], Some("10.1.2.3"));
        check("127.0.0.1", &[(xff, "nonsense")], Some("127.0.0.1"));
        check("127.0.0.1", &[(xff, "10.0.0.1, 10.0.0.2")], Some("10.0.0.1"));
        check("127.0.0.1", &[(xff, "2001:db8::1")], Some("2001:db8::1"));
        check("127.0.0.1", &[(xff, "[2001:db8::1]:4711")], Some("2001:db8::1"));
        check("127.0.0.1", &[(xff, "198.51.100.1:4711")], Some("198.51.100.1"));
        check("127.0.0.1", &[(xff, "::ffff:198.51.100.1")], Some("198.51.100.1"));
    }

    #[test]
    fn forwarded_is_understood_and_contradictions_are_refused() {
        check("10.0.0.1", &[("forwarded", "for=198.51.100.1;proto=https")], Some("198.51.100.1"));
        check(
            "10.0.0.1",
            &[("forwarded", "for=203.0.113.5, For=\"[2001:db8::1]:47\";by=10.0.0.2")],
            Some("2001:db8::1"),
        );
        check("10.0.0.1", &[("forwarded", "for=_hidden")], Some("10.0.0.1"));
        check("10.0.0.1", &[("forwarded", "by=198.51.100.1")], Some("10.0.0.1"));
        let both = |other| [("forwarded", "for=198.51.100.1"), ("x-forwarded-for", other)];
        check("10.0.0.1", &both("198.51.100.1"), Some("198.51.100.1"));
        check("10.0.0.1", &both("198.51.100.2"), None);
    }
}
