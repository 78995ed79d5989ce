//! Networks that addresses stand for, where strangers are counted.

use std::net::{IpAddr, Ipv6Addr};

/// The address itself, or of IPv6 the first address of its /64: a host has all of these (RFC 6177, RFC 4862 5.5.3).
pub fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(six) => IpAddr::V6(Ipv6Addr::from_bits(six.to_bits() & !u128::from(u64::MAX))),
        four => four,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_are_addresses_of_v4_and_halves_of_v6() {
        for (address, right) in [
            ("192.0.2.7", "192.0.2.7"),
            ("::ffff:192.0.2.7", "192.0.2.7"),
            ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
            ("::1", "::"),
        ] {
            assert_eq!(network(address.parse().unwrap()), right.parse::<IpAddr>().unwrap());
        }
    }
}
