//! As much of a portmapper (RFC 1833, program 100000) as clients without port options need. Version 2 has NULL, GETPORT and
//! DUMP; versions 3 and 4, which clients over IPv6 use, have NULL, GETADDR, GETVERSADDR, GETADDRLIST, DUMP and GETTIME.
//! Nobody may register anything. It knows itself: `rpcinfo -p` asks for that first.
//!
//! - `portmap.as_called`: a universal address has the server's address at which the client called.
//! - `portmap.short_datagrams`: whatever is asked for in a datagram is answered with about as many bytes, since the address
//!   that it comes from may be made up. DUMP is longer, and comes over TCP alone.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::{SystemTime, UNIX_EPOCH};

use super::mount::{MOUNT_PROGRAM, MOUNT_V3};
use super::nlm::{NLM_PROGRAM, NLM_V4, NSM_PROGRAM, NSM_V1};
use super::proto::{NFS_PROGRAM, NFS_V3, NFS_V4};
use super::rpc::{AcceptStat, CallHeader, begin_accepted, prog_mismatch};
use super::xdr::{Garbage, Reader, Writer};

pub const PORTMAP_PROGRAM: u32 = 100_000;
const PORTMAP_V2: u32 = 2;
/// The versions of rpcbind, with universal addresses.
const RPCBIND_V3: u32 = 3;
const RPCBIND_V4: u32 = 4;
const TCP: u32 = 6;
const UDP: u32 = 17;
/// The port of every portmapper (RFC 1833, 3).
const PORTMAP_PORT: u16 = 111;
/// Net ids, universal addresses and owners: a name of a transport or an address has some 50 bytes.
const STRING_BYTES_MAX: usize = 256;
/// `NC_TPI_CLTS` and `NC_TPI_COTS_ORD`: datagrams, and a stream with an end.
const DATAGRAMS: u32 = 1;
const STREAM: u32 = 3;
/// Over TCP. Locks are taken over TCP alone (`nlm.address_decides`).
const SERVICES: [(u32, u32); 7] = [
    (NFS_PROGRAM, NFS_V3),
    (NFS_PROGRAM, NFS_V4),
    (MOUNT_PROGRAM, MOUNT_V3),
    (MOUNT_PROGRAM, 1),
    (MOUNT_PROGRAM, 2),
    (NLM_PROGRAM, NLM_V4),
    (NSM_PROGRAM, NSM_V1),
];
/// Over UDP: Linux announces its restarts so.
const UDP_SERVICE: (u32, u32) = (NSM_PROGRAM, NSM_V1);

/// The way by which a call came.
#[derive(Clone, Copy, Debug)]
pub struct CalledAt {
    /// The port of NFS, MOUNT, NLM and NSM.
    pub port: u16,
    pub client: IpAddr,
    /// The address that was called; `None` where the kernel does not say it.
    pub local: Option<IpAddr>,
    pub is_datagram: bool,
}

impl CalledAt {
    fn protocol(&self) -> u32 {
        if self.is_datagram { UDP } else { TCP }
    }

    /// `portmap.as_called`
    fn address(&self) -> IpAddr {
        let any = match self.client {
            IpAddr::V4(_) => IpAddr::from(Ipv4Addr::UNSPECIFIED),
            IpAddr::V6(_) => IpAddr::from(Ipv6Addr::UNSPECIFIED),
        };
        self.local.or_else(|| source_to(self.client)).unwrap_or(any)
    }
}

/// The address from which this machine's calls to a client leave. Nothing is sent, and nothing is waited for.
pub fn source_to(client: IpAddr) -> Option<IpAddr> {
    const ANY_PORT: u16 = 111;
    let any = if client.is_ipv4() { IpAddr::from(Ipv4Addr::UNSPECIFIED) } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind(SocketAddr::new(any, 0)).ok()?;
    socket.connect(SocketAddr::new(client, ANY_PORT)).ok()?;
    Some(socket.local_addr().ok()?.ip().to_canonical())
}

/// Answers a call.
pub fn answer(call: &CallHeader<'_>, at: CalledAt, w: &mut Writer) {
    let answered = match call.vers {
        PORTMAP_V2 => answer_v2(call, at, w),
        RPCBIND_V3 | RPCBIND_V4 => answer_rpcbind(call, at, w),
        _ => return prog_mismatch(w, call.xid, PORTMAP_V2, RPCBIND_V4),
    };
    let refused = match answered {
        Ok(true) => return,
        Ok(false) => AcceptStat::ProcUnavail,
        Err(Garbage) => AcceptStat::GarbageArgs,
    };
    w.truncate(0);
    begin_accepted(w, call.xid, refused);
}

/// Whether there is such a procedure.
fn answer_v2(call: &CallHeader<'_>, at: CalledAt, w: &mut Writer) -> Result<bool, Garbage> {
    begin_accepted(w, call.xid, AcceptStat::Success);
    let port = at.port;
    match call.proc_num {
        0 => {}
        // SET and UNSET: refused.
        1 | 2 => w.bool(false),
        3 => {
            let mut args = call.args;
            let (program, _, protocol, _) = (args.u32()?, args.u32()?, args.u32()?, args.u32()?);
            w.u32(port_of(program, protocol, port).into());
        }
        4 if !at.is_datagram => {
            let own = [TCP, UDP].map(|protocol| [PORTMAP_PROGRAM, PORTMAP_V2, protocol, PORTMAP_PORT.into()]);
            let files = SERVICES.map(|(prog, vers)| [prog, vers, TCP, port.into()]);
            let monitor = [UDP_SERVICE.0, UDP_SERVICE.1, UDP, port.into()];
            for mapping in own.iter().chain(&files).chain([&monitor]) {
                w.bool(true);
                mapping.iter().for_each(|word| w.u32(*word));
            }
            w.bool(false);
        }
        _ => return Ok(false),
    }
    Ok(true)
}

/// The port of a program, 0 if there is none. A version that we lack still gets it: the program itself
/// says better which it has.
fn port_of(program: u32, protocol: u32, port: u16) -> u16 {
    let over_tcp = protocol == TCP && SERVICES.iter().any(|&(known, _)| known == program);
    let is_served = over_tcp || (program, protocol) == (UDP_SERVICE.0, UDP);
    match (program, protocol) {
        (PORTMAP_PROGRAM, TCP | UDP) => PORTMAP_PORT,
        _ if is_served => port,
        _ => 0,
    }
}

/// `rpcb` (RFC 1833 2.1), without the owner.
struct Mapping<'a> {
    program: u32,
    version: u32,
    net_id: &'a [u8],
}

fn mapping<'a>(r: &mut Reader<'a>) -> Result<Mapping<'a>, Garbage> {
    let (program, version) = (r.u32()?, r.u32()?);
    let net_id = r.opaque(STRING_BYTES_MAX)?;
    let (_address, _owner) = (r.opaque(STRING_BYTES_MAX)?, r.opaque(STRING_BYTES_MAX)?);
    Ok(Mapping { program, version, net_id })
}

/// Whether there is such a procedure.
fn answer_rpcbind(call: &CallHeader<'_>, at: CalledAt, w: &mut Writer) -> Result<bool, Garbage> {
    const GET_VERSION_ADDRESS: u32 = 9;
    begin_accepted(w, call.xid, AcceptStat::Success);
    let mut args = call.args;
    match (call.proc_num, call.vers) {
        (0, _) => {}
        // SET and UNSET: refused.
        (1 | 2, _) => w.bool(false),
        (3, _) | (GET_VERSION_ADDRESS, RPCBIND_V4) => {
            let asked = mapping(&mut args)?;
            let port = port_over(&asked, at, call.proc_num == GET_VERSION_ADDRESS);
            w.opaque(port.map(|port| universal(at.address(), port)).unwrap_or_default().as_bytes());
        }
        (4, _) if !at.is_datagram => {
            for (program, version, protocol, port) in registered(at.port) {
                w.bool(true);
                w.u32(program);
                w.u32(version);
                w.opaque(net_id(at.address(), protocol));
                w.opaque(universal(at.address(), port).as_bytes());
                w.opaque(b"superuser");
            }
            w.bool(false);
        }
        (6, _) => {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
            w.u32(u32::try_from(now).unwrap_or(u32::MAX));
        }
        // GETADDRLIST: the transports over which exactly this version is served.
        (11, RPCBIND_V4) => {
            let asked = mapping(&mut args)?;
            let of_it =
                |(program, version, ..): &(u32, u32, u32, u16)| (*program, *version) == (asked.program, asked.version);
            for (_, _, protocol, port) in registered(at.port).filter(of_it) {
                w.bool(true);
                w.opaque(universal(at.address(), port).as_bytes());
                w.opaque(net_id(at.address(), protocol));
                w.u32(if protocol == TCP { STREAM } else { DATAGRAMS });
                w.opaque(if at.address().is_ipv4() { b"inet" } else { b"inet6" });
                w.opaque(if protocol == TCP { b"tcp" } else { b"udp" });
            }
            w.bool(false);
        }
        _ => return Ok(false),
    }
    Ok(true)
}

/// Programs with their versions, protocols and ports.
fn registered(port: u16) -> impl Iterator<Item = (u32, u32, u32, u16)> {
    let own = [PORTMAP_V2, RPCBIND_V3, RPCBIND_V4]
        .into_iter()
        .flat_map(|version| [TCP, UDP].map(|protocol| (PORTMAP_PROGRAM, version, protocol, PORTMAP_PORT)));
    let files = SERVICES.into_iter().map(move |(program, version)| (program, version, TCP, port));
    own.chain(files).chain([(UDP_SERVICE.0, UDP_SERVICE.1, UDP, port)])
}

/// The port of what is asked for, over the transport that is named; over the one that the call came by where none is. `None`
/// for what is not served, and for another family of addresses.
fn port_over(asked: &Mapping<'_>, at: CalledAt, this_version_alone: bool) -> Option<u16> {
    let protocol = match asked.net_id {
        b"" => at.protocol(),
        name => [TCP, UDP].into_iter().find(|protocol| name == net_id(at.address(), *protocol))?,
    };
    let has_version = registered(at.port)
        .any(|(program, version, over, _)| (program, version, over) == (asked.program, asked.version, protocol));
    let port = port_of(asked.program, protocol, at.port);
    (port != 0 && (has_version || !this_version_alone)).then_some(port)
}

/// RFC 5665 5.2.3
fn net_id(address: IpAddr, protocol: u32) -> &'static [u8] {
    match (address, protocol) {
        (IpAddr::V4(_), TCP) => b"tcp",
        (IpAddr::V4(_), _) => b"udp",
        (IpAddr::V6(_), TCP) => b"tcp6",
        (IpAddr::V6(_), _) => b"udp6",
    }
}

/// A universal address (RFC 5665 5.2.3).
fn universal(address: IpAddr, port: u16) -> String {
    let [high, low] = port.to_be_bytes();
    format!("{address}.{high}.{low}")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::rpc::{call_with, parse_call, reply_results};
    use super::*;

    const SERVER: &str = "fd00::7";

    fn asked(vers: u32, procedure: u32, args: &[u8], is_datagram: bool, server: &str) -> Option<Vec<u8>> {
        let call = call_with(7, (PORTMAP_PROGRAM, vers, procedure), None, args);
        let local: IpAddr = server.parse().unwrap();
        let at = CalledAt { port: 2049, client: local, local: Some(local), is_datagram };
        let mut w = Writer::default();
        answer(&parse_call(&call[4..]).unwrap(), at, &mut w);
        reply_results(&w.into_inner()[4..]).map(<[u8]>::to_vec)
    }

    fn rpcb(program: u32, version: u32, net_id: &str) -> Vec<u8> {
        let mut w = Writer::default();
        w.u32(program);
        w.u32(version);
        [net_id, "::.0.0", "somebody"].iter().for_each(|text| w.opaque(text.as_bytes()));
        w.into_inner()
    }

    fn address(vers: u32, procedure: u32, args: &[u8], is_datagram: bool) -> String {
        let results = asked(vers, procedure, args, is_datagram, SERVER).unwrap();
        String::from_utf8(Reader::new(&results).opaque(STRING_BYTES_MAX).unwrap().to_vec()).unwrap()
    }

    #[test]
    fn addresses_of_programs() {
        for vers in [RPCBIND_V3, RPCBIND_V4] {
            let of =
                |program, version, net_id, is_datagram| address(vers, 3, &rpcb(program, version, net_id), is_datagram);
            assert_eq!(of(NFS_PROGRAM, NFS_V3, "tcp6", false), "fd00::7.8.1");
            assert_eq!(of(NLM_PROGRAM, NLM_V4, "", false), "fd00::7.8.1", "over the transport of the call");
            assert_eq!(of(NLM_PROGRAM, NLM_V4, "", true), "", "no locks over UDP");
            assert_eq!(of(NSM_PROGRAM, NSM_V1, "udp6", false), "fd00::7.8.1");
            assert_eq!(of(PORTMAP_PROGRAM, 2, "tcp6", false), "fd00::7.0.111");
            assert_eq!(of(NFS_PROGRAM, 2, "tcp6", false), "fd00::7.8.1", "NFS says better which versions it has");
            assert_eq!(of(NFS_PROGRAM, NFS_V3, "tcp", false), "", "another family");
            assert_eq!(of(1, 1, "tcp6", false), "");
        }
        let exactly = |version| address(RPCBIND_V4, 9, &rpcb(NFS_PROGRAM, version, "tcp6"), false);
        assert_eq!((exactly(3).as_str(), exactly(2).as_str()), ("fd00::7.8.1", ""));
        assert_eq!(asked(RPCBIND_V3, 9, &rpcb(NFS_PROGRAM, 3, "tcp6"), false, SERVER), None, "not of version 3");
        let over_four = asked(RPCBIND_V3, 3, &rpcb(NFS_PROGRAM, 3, "tcp"), false, "10.1.2.3").unwrap();
        assert_eq!(over_four, b"\0\0\0\x0c10.1.2.3.8.1");
    }

    #[test]
    fn lists_come_over_tcp_alone() {
        assert_eq!(asked(PORTMAP_V2, 4, b"", true, SERVER), None, "portmap.short_datagrams");
        assert!(asked(PORTMAP_V2, 4, b"", false, SERVER).is_some_and(|list| list.len() > 150));
        for vers in [RPCBIND_V3, RPCBIND_V4] {
            assert_eq!(asked(vers, 4, b"", true, SERVER), None, "portmap.short_datagrams");
            let list = asked(vers, 4, b"", false, SERVER).unwrap();
            let (mut r, mut found) = (Reader::new(&list), Vec::new());
            while r.bool().unwrap() {
                let program = (r.u32().unwrap(), r.u32().unwrap());
                let [net_id, _, owner] = [0; 3].map(|_| r.opaque(STRING_BYTES_MAX).unwrap());
                assert_eq!(owner, b"superuser");
                found.push((program, net_id));
            }
            assert_eq!((r.remaining(), found.len()), (0, 14));
            assert!(found.contains(&((NFS_PROGRAM, NFS_V4), b"tcp6")) && found.contains(&((NSM_PROGRAM, 1), b"udp6")));
        }
        let list = asked(RPCBIND_V4, 11, &rpcb(NSM_PROGRAM, NSM_V1, ""), false, SERVER).unwrap();
        let mut r = Reader::new(&list);
        for (net_id, semantics, protocol) in [(b"tcp6", STREAM, b"tcp"), (b"udp6", DATAGRAMS, b"udp")] {
            assert!(r.bool().unwrap());
            assert_eq!(r.opaque(64).unwrap(), b"fd00::7.8.1");
            assert_eq!(r.opaque(64).unwrap(), net_id);
            assert_eq!(r.u32().unwrap(), semantics);
            assert_eq!((r.opaque(64).unwrap(), r.opaque(64).unwrap()), (&b"inet6"[..], &protocol[..]));
        }
        assert!(!r.bool().unwrap());
    }

    #[test]
    fn what_is_refused() {
        for (vers, procedure, args) in
            [(2, 3, &b"\0\0"[..]), (3, 3, b""), (4, 5, b""), (2, 5, b""), (4, 12, b""), (5, 3, b"")]
        {
            assert_eq!(asked(vers, procedure, args, false, SERVER), None, "{vers} {procedure}");
        }
        for vers in [2, 3, 4] {
            assert_eq!(
                asked(vers, 1, &rpcb(NFS_PROGRAM, 3, "tcp6"), false, SERVER),
                Some(vec![0; 4]),
                "nobody registers"
            );
        }
        assert!(asked(4, 6, b"", true, SERVER).is_some_and(|time| time.len() == 4));
    }
}
