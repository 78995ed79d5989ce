//! As much of a portmapper (RFC 1833 3, program 100000 version 2) as clients without port options need:
//! NULL, GETPORT, DUMP. Nobody may register anything. It knows itself: `rpcinfo -p` asks for that first.

use super::mount::{MOUNT_PROGRAM, MOUNT_V3};
use super::nlm::{NLM_PROGRAM, NLM_V4, NSM_PROGRAM, NSM_V1};
use super::proto::{NFS_PROGRAM, NFS_V3, NFS_V4};
use super::rpc::{AcceptStat, CallHeader, begin_accepted, prog_mismatch};
use super::xdr::Writer;

pub const PORTMAP_PROGRAM: u32 = 100_000;
const PORTMAP_V2: u32 = 2;
const TCP: u32 = 6;
const UDP: u32 = 17;
/// The port of every portmapper (RFC 1833, 3).
const PORTMAP_PORT: u16 = 111;
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

/// Answers a call, where NFS, MOUNT, NLM and NSM are at `port`.
pub fn answer(call: &CallHeader<'_>, port: u16, w: &mut Writer) {
    if call.vers != PORTMAP_V2 {
        return prog_mismatch(w, call.xid, PORTMAP_V2, PORTMAP_V2);
    }
    begin_accepted(w, call.xid, AcceptStat::Success);
    match call.proc_num {
        0 => {}
        // SET and UNSET: refused.
        1 | 2 => w.bool(false),
        3 => get_port(call, port, w),
        4 => {
            let own = [TCP, UDP].map(|protocol| [PORTMAP_PROGRAM, PORTMAP_V2, protocol, PORTMAP_PORT.into()]);
            let files = SERVICES.map(|(prog, vers)| [prog, vers, TCP, port.into()]);
            let monitor = [UDP_SERVICE.0, UDP_SERVICE.1, UDP, port.into()];
            for mapping in own.iter().chain(&files).chain([&monitor]) {
                w.bool(true);
                mapping.iter().for_each(|word| w.u32(*word));
            }
            w.bool(false);
        }
        _ => {
            w.truncate(0);
            begin_accepted(w, call.xid, AcceptStat::ProcUnavail);
        }
    }
}

/// The port of a program, 0 if there is none. A version that we lack still gets it: the program itself
/// says better which it has.
fn get_port(call: &CallHeader<'_>, port: u16, w: &mut Writer) {
    let mut args = call.args;
    let (Ok(prog), Ok(_), Ok(protocol), Ok(_)) = (args.u32(), args.u32(), args.u32(), args.u32()) else {
        w.truncate(0);
        return begin_accepted(w, call.xid, AcceptStat::GarbageArgs);
    };
    let over_tcp = protocol == TCP && SERVICES.iter().any(|&(program, _)| program == prog);
    let files = over_tcp || (prog, protocol) == (UDP_SERVICE.0, UDP);
    let found = match (prog, protocol) {
        (PORTMAP_PROGRAM, TCP | UDP) => PORTMAP_PORT,
        _ if files => port,
        _ => 0,
    };
    w.u32(found.into());
}
