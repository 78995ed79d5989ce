//! Addresses at which SMB clients may open further connections for a session, with the speed of each.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

use crate::handlers::interfaces::NetworkInterface;
use nix::ifaddrs::getifaddrs;
use nix::net::if_::{InterfaceFlags, if_nametoindex};

const SYS: &str = "/sys/class/net";
/// The speed that clients are told for an interface without one, such as a bridge. As in Samba.
const UNKNOWN_MEGABITS: u64 = 1000;

/// The addresses that the server answers at when it listens at `listen`: those of the machine's networks, or the one it was told.
pub fn answering(listen: SocketAddr) -> Vec<NetworkInterface> {
    let Ok(all) = getifaddrs() else { return Vec::new() };
    let mut seen = HashSet::new();
    all.filter(|one| one.flags.contains(InterfaceFlags::IFF_UP | InterfaceFlags::IFF_RUNNING))
        .filter_map(|one| {
            let storage = one.address?;
            let v4 = storage.as_sockaddr_in().map(|at| IpAddr::V4(at.ip()));
            let address = v4.or_else(|| storage.as_sockaddr_in6().map(|at| IpAddr::V6(at.ip())))?;
            (is_answering(listen.ip(), address) && seen.insert(address))
                .then(|| interface(&one.interface_name, address))
        })
        .collect()
}

fn is_answering(listen: IpAddr, address: IpAddr) -> bool {
    let is_far = match address {
        IpAddr::V4(v4) => !v4.is_loopback() && !v4.is_link_local(),
        IpAddr::V6(v6) => !v6.is_loopback() && !v6.is_unicast_link_local(),
    };
    match listen {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED) => is_far && address.is_ipv4(),
        IpAddr::V6(Ipv6Addr::UNSPECIFIED) => is_far,
        one => one == address,
    }
}

fn interface(name: &str, address: IpAddr) -> NetworkInterface {
    let dir = Path::new(SYS).join(name);
    let speed = std::fs::read_to_string(dir.join("speed")).ok().and_then(|text| text.trim().parse::<u64>().ok());
    let megabits = speed.filter(|&megabits| megabits > 0).unwrap_or(UNKNOWN_MEGABITS);
    let queues = std::fs::read_dir(dir.join("queues")).into_iter().flatten().flatten();
    let receiving = queues.filter(|queue| queue.file_name().as_encoded_bytes().starts_with(b"rx-")).count();
    NetworkInterface {
        index: if_nametoindex(name).unwrap_or(0),
        address,
        bits_per_second: megabits * 1_000_000,
        spreads_load: receiving > 1,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn addresses_that_others_cannot_reach_are_kept_back() {
        let check = |listen: &str, address: &str, told| {
            assert_eq!(is_answering(listen.parse().unwrap(), address.parse().unwrap()), told, "{listen} {address}");
        };
        check("0.0.0.0", "192.168.1.2", true);
        check("0.0.0.0", "127.0.0.1", false);
        check("0.0.0.0", "169.254.1.1", false);
        check("0.0.0.0", "fd00::2", false);
        check("::", "fd00::2", true);
        check("::", "fe80::2", false);
        check("127.0.0.1", "127.0.0.1", true);
        check("192.168.1.2", "192.168.2.2", false);
    }

    #[test]
    fn the_loopback_is_found_when_it_is_listened_at() {
        let found = answering("127.0.0.1:445".parse().unwrap());
        assert_eq!(found.iter().map(|one| one.address.to_string()).collect::<Vec<_>>(), ["127.0.0.1"]);
        assert!(found[0].index > 0 && found[0].bits_per_second >= 10_000_000);
    }
}
