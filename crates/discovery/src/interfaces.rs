//! The addresses that announcements go out from (`discovery.private_only`).

use std::net::{IpAddr, Ipv4Addr};

/// An address of a private network. A link-local one is not: everybody at the link has one, also beside a public address.
pub fn is_private(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_private(),
        IpAddr::V6(v6) => match v6.to_ipv4_mapped() {
            Some(v4) => v4.is_private(),
            None => v6.is_unique_local(),
        },
    }
}

/// Whether announcements go out from an interface with this address. No interface is named: from all.
pub(crate) fn is_meant(name: &str, address: IpAddr, named: &[String]) -> bool {
    is_private(address) && (named.is_empty() || named.iter().any(|wanted| wanted == name))
}

/// An address to speak from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Address {
    pub(crate) ip: Ipv4Addr,
    pub(crate) mask: Ipv4Addr,
}

impl Address {
    /// Whether `other` is in the network of this address. All sockets of a multicast group hear what any interface hears, and
    /// a sender's address may be forged: so each answers its own network alone.
    pub(crate) fn is_on_link(&self, other: IpAddr) -> bool {
        matches!(other, IpAddr::V4(other) if other & self.mask == self.ip & self.mask)
    }
}

/// The address by which clients most likely reach this machine where no route says so: of a network card before bridges and the
/// like, of a private network before others, IPv4 before IPv6. `None` without a network.
pub fn likely_address() -> Option<IpAddr> {
    let all = if_addrs::get_if_addrs().unwrap_or_default();
    let all = all.iter().filter(|interface| !interface.is_loopback() && !is_link_local_v6(interface.ip()));
    all.min_by_key(|interface| rank(interface.ip(), is_card(&interface.name))).map(if_addrs::Interface::ip)
}

/// An address of this kind means nothing without the interface.
fn is_link_local_v6(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local())
}

/// Hardware, as the kernel has it.
fn is_card(interface: &str) -> bool {
    std::path::Path::new("/sys/class/net").join(interface).join("device").exists()
}

/// The lowest is taken.
fn rank(address: IpAddr, is_card: bool) -> (bool, bool, bool, IpAddr) {
    let is_self_made = matches!(address, IpAddr::V4(v4) if v4.is_link_local());
    (!is_card, is_self_made, !is_private(address), address)
}

/// The IPv4 addresses to speak from, sorted.
pub(crate) fn addresses(named: &[String]) -> Vec<Address> {
    let mut found: Vec<Address> = if_addrs::get_if_addrs()
        .unwrap_or_default()
        .iter()
        .filter(|interface| is_meant(&interface.name, interface.ip(), named))
        .filter_map(|interface| match &interface.addr {
            if_addrs::IfAddr::V4(v4) => Some(Address { ip: v4.ip, mask: v4.netmask }),
            if_addrs::IfAddr::V6(_) => None,
        })
        .collect();
    found.sort_unstable();
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_card_and_its_private_address_come_first() {
        let at = |text: &str, is_card| rank(text.parse().unwrap(), is_card);
        assert!(at("192.168.1.2", true) < at("172.17.0.1", false));
        assert!(at("8.8.8.8", true) < at("10.0.0.1", false));
        assert!(at("192.168.1.2", true) < at("8.8.8.8", true));
        assert!(at("2001:db8::1", true) < at("169.254.3.4", true));
        assert!(at("10.0.0.1", false) < at("fd00::1", false));
        assert!(is_link_local_v6("fe80::1".parse().unwrap()) && !is_link_local_v6("fd00::1".parse().unwrap()));
    }

    #[test]
    fn only_private_addresses_count() {
        for (address, private) in [
            ("192.168.1.2", true),
            ("10.0.0.1", true),
            ("172.16.0.1", true),
            ("169.254.3.4", false),
            ("100.64.3.4", false),
            ("127.0.0.1", false),
            ("8.8.8.8", false),
            ("fe80::1", false),
            ("fd00::1", true),
            ("::1", false),
            ("2001:db8::1", false),
            ("::ffff:10.0.0.1", true),
            ("::ffff:8.8.8.8", false),
        ] {
            assert_eq!(is_private(address.parse().unwrap()), private, "{address}");
        }
        let lan = "192.168.1.2".parse().unwrap();
        assert!(is_meant("eth0", lan, &[]) && is_meant("eth0", lan, &["eth0".into()]));
        assert!(!is_meant("eth0", lan, &["eth1".into()]));
        let own = Address { ip: [192, 168, 1, 2].into(), mask: [255, 255, 255, 0].into() };
        for (from, on_link) in [("192.168.1.99", true), ("192.168.2.1", false), ("8.8.8.8", false), ("fe80::1", false)]
        {
            assert_eq!(own.is_on_link(from.parse().unwrap()), on_link, "{from}");
        }
    }
}
