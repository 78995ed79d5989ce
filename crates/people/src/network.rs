//! Networks: addresses that share their first bits.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use crate::PeopleError;

/// This machine.
pub const LOOPBACK: [Network; 2] = [
    Network { address: IpAddr::V4(Ipv4Addr::new(127, 0, 0, 0)), prefix: 8 },
    Network { address: IpAddr::V6(Ipv6Addr::LOCALHOST), prefix: 128 },
];

/// Addresses that share their first `prefix` bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    /// Any address of the network.
    pub address: IpAddr,
    /// Length of the prefix in bits: 0 to 32 for IPv4, 0 to 128 for IPv6.
    pub prefix: u8,
}

impl Network {
    /// The addresses that are in a network of both lists. Of two networks one lies within the other, or they have nothing in
    /// common.
    pub fn common(some: &[Self], others: &[Self]) -> Vec<Self> {
        let within = |a: &Self, b: &Self| (a.prefix >= b.prefix && b.contains(a.address)).then_some(*a);
        let pairs = some.iter().flat_map(|a| others.iter().filter_map(move |b| within(a, b).or_else(|| within(b, a))));
        let mut common: Vec<Self> = Vec::new();
        for network in pairs {
            if !common.contains(&network) {
                common.push(network);
            }
        }
        common
    }

    /// Whether `client` is in the network. An IPv4 address that is mapped into IPv6 counts as IPv4.
    pub fn contains(&self, client: IpAddr) -> bool {
        match (self.address, client.to_canonical()) {
            (IpAddr::V4(net), IpAddr::V4(ip)) => {
                let shift = 32u32.saturating_sub(self.prefix.into());
                (net.to_bits() ^ ip.to_bits()).checked_shr(shift).unwrap_or(0) == 0
            }
            (IpAddr::V6(net), IpAddr::V6(ip)) => {
                let shift = 128u32.saturating_sub(self.prefix.into());
                (net.to_bits() ^ ip.to_bits()).checked_shr(shift).unwrap_or(0) == 0
            }
            _ => false,
        }
    }
}

impl FromStr for Network {
    type Err = PeopleError;

    fn from_str(text: &str) -> Result<Self, PeopleError> {
        let bad = || PeopleError::Network(text.to_owned());
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix.parse::<u8>().map_err(|_| bad())?)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| bad())?;
        let bits = if address.is_ipv4() { 32 } else { 128 };
        let prefix = prefix.unwrap_or(bits);
        if prefix > bits { Err(bad()) } else { Ok(Self { address, prefix }) }
    }
}

impl std::fmt::Display for Network {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn networks() {
        let check = |network: &str, client: &str| network.parse::<Network>().unwrap().contains(client.parse().unwrap());
        assert!(check("192.168.1.0/24", "192.168.1.77"));
        assert!(check("192.168.1.0/24", "::ffff:192.168.1.77"));
        assert!(!check("192.168.1.0/24", "192.168.2.1"));
        assert!(check("0.0.0.0/0", "8.8.8.8") && !check("0.0.0.0/0", "::1"));
        assert!(check("::/0", "::1") && check("fd00::/8", "fd12::1") && !check("fd00::/8", "fe80::1"));
        assert!(check("127.0.0.1", "127.0.0.1") && !check("127.0.0.1", "127.0.0.2"));
        for bad in ["", "1.2.3.4/33", "::/129", "1.2.3/8", "1.2.3.4/", "host"] {
            assert!(bad.parse::<Network>().is_err(), "{bad}");
        }
    }

    #[test]
    fn common_networks() {
        let list = |text: &str| -> Vec<Network> { text.split_whitespace().map(|word| word.parse().unwrap()).collect() };
        let check = |a: &str, b: &str, both: &str| {
            assert_eq!(Network::common(&list(a), &list(b)), list(both), "{a} and {b}");
            assert_eq!(Network::common(&list(b), &list(a)).len(), list(both).len());
        };
        check("10.0.0.0/8 ::1", "10.1.0.0/16 192.168.0.0/16 ::/0", "10.1.0.0/16 ::1");
        check("10.1.2.3", "10.0.0.0/8", "10.1.2.3");
        check("10.0.0.0/8", "fd00::/8", "");
        check("10.0.0.0/8", "10.0.0.0/8 10.0.0.0/8", "10.0.0.0/8");
        check("0.0.0.0/0", "", "");
    }
}
