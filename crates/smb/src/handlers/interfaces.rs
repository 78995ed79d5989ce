//! FSCTL_QUERY_NETWORK_INTERFACE_INFO (MS-SMB2 3.3.5.15.11): where a client
//! may open further connections for its session.

use std::net::IpAddr;
use std::sync::Arc;

/// One address of an interface of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkInterface {
    /// IfIndex.
    pub index: u32,
    pub address: IpAddr,
    pub bits_per_second: u64,
    /// The interface spreads connections over processors: clients open
    /// several to it.
    pub spreads_load: bool,
}

/// Lists the server's interfaces at the time.
pub type Interfaces = Arc<dyn Fn() -> Vec<NetworkInterface> + Send + Sync>;

/// Size of a NETWORK_INTERFACE_INFO structure (MS-SMB2 2.2.32.5).
const ENTRY_LEN: usize = 152;
const RSS_CAPABLE: u32 = 1;
/// AddressFamily of SOCKADDR_STORAGE (MS-SMB2 2.2.32.5.1).
const FAMILY_INET: u16 = 0x0002;
const FAMILY_INET6: u16 = 0x0017;

/// The structures, as many as `room` bytes hold.
pub(super) fn encode(interfaces: &[NetworkInterface], room: usize) -> Vec<u8> {
    let count = interfaces.len().min(room / ENTRY_LEN);
    let mut out = Vec::with_capacity(count * ENTRY_LEN);
    for (at, interface) in interfaces.iter().take(count).enumerate() {
        let next = if at + 1 < count { ENTRY_LEN as u32 } else { 0 };
        out.extend_from_slice(&next.to_le_bytes());
        out.extend_from_slice(&interface.index.to_le_bytes());
        out.extend_from_slice(&if interface.spreads_load { RSS_CAPABLE } else { 0 }.to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&interface.bits_per_second.to_le_bytes());
        // Family, port, then the address; of IPv6 the flow before it.
        match interface.address {
            IpAddr::V4(address) => {
                out.extend_from_slice(&FAMILY_INET.to_le_bytes());
                out.extend_from_slice(&[0; 2]);
                out.extend_from_slice(&address.octets());
            }
            IpAddr::V6(address) => {
                out.extend_from_slice(&FAMILY_INET6.to_le_bytes());
                out.extend_from_slice(&[0; 6]);
                out.extend_from_slice(&address.octets());
            }
        }
        out.resize((at + 1) * ENTRY_LEN, 0);
    }
    out
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn addresses_are_where_clients_look_for_them() {
        let of = |address: &str| NetworkInterface {
            index: 7,
            address: address.parse().unwrap(),
            bits_per_second: 2_500_000_000,
            spreads_load: true,
        };
        let both = [of("10.1.2.3"), of("fd00::1")];
        let out = encode(&both, 1000);
        assert_eq!(out.len(), 304);
        assert_eq!(out[..12], [152, 0, 0, 0, 7, 0, 0, 0, 1, 0, 0, 0]);
        assert_eq!(out[16..24], 2_500_000_000u64.to_le_bytes());
        assert_eq!(out[24..32], [2, 0, 0, 0, 10, 1, 2, 3]);
        assert_eq!(out[152..156], [0; 4], "the last one");
        assert_eq!(out[176..178], [0x17, 0]);
        assert_eq!((out[184], out[199]), (0xfd, 1));
        assert_eq!(encode(&both, 303).len(), 152);
        assert!(encode(&both, 151).is_empty());
    }
}
