//! The MOUNT protocol, version 3 (RFC 1813 5), and of versions 1 and 2 what does not hand out handles.
//!
//! A directory below an export may be mounted too: the caller's own permissions lead there.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use larder_fs::{Attr, Cred, FileKind, FsError, NameMatch};
use parking_lot::Mutex;

use super::export::{ExportState, Exports, cred_of, refusal_words};
use super::handle;
use super::outbox::Reply;
use super::rpc::{AcceptStat, CallHeader, begin_accepted, prog_mismatch, set_record_mark};
use super::shared::Shared;
use super::xdr::{Garbage, Writer};
use larder_doors::door::shown;

pub const MOUNT_PROGRAM: u32 = 100_005;
pub const MOUNT_V3: u32 = 3;
/// MNTPATHLEN and MNTNAMLEN (5.1.4).
const PATH_BYTES_MAX: usize = 1024;
/// Mounts are remembered for DUMP alone: a courtesy with a bound.
const MOUNTS_MAX: usize = 1024;

/// `mountstat3` (5.1.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum MountStatus {
    Ok = 0,
    NoEnt = 2,
    Io = 5,
    Acces = 13,
    NotDir = 20,
    NameTooLong = 63,
    ServerFault = 10006,
}

impl From<FsError> for MountStatus {
    fn from(error: FsError) -> Self {
        match error {
            FsError::NotFound | FsError::Stale => MountStatus::NoEnt,
            FsError::Access | FsError::NotPermitted => MountStatus::Acces,
            FsError::NotDirectory => MountStatus::NotDir,
            FsError::NameTooLong => MountStatus::NameTooLong,
            FsError::Io(_) | FsError::Poisoned(_) | FsError::Unsupported(_) => MountStatus::Io,
            _ => MountStatus::ServerFault,
        }
    }
}

#[derive(Default)]
pub struct Mounts {
    list: Mutex<VecDeque<(IpAddr, String)>>,
}

impl Mounts {
    fn add(&self, client: IpAddr, path: &str) {
        let mut list = self.list.lock();
        list.retain(|(ip, mounted)| *ip != client || mounted != path);
        if list.len() >= MOUNTS_MAX {
            list.pop_front();
        }
        list.push_back((client, path.to_owned()));
    }

    fn remove(&self, client: IpAddr, path: Option<&str>) {
        self.list.lock().retain(|(ip, mounted)| *ip != client || path.is_some_and(|path| mounted != path));
    }
}

/// A MNT whose export is found and open to the client: the rest needs the volume.
pub struct Mnt {
    xid: u32,
    client: IpAddr,
    /// As the client wrote it.
    path: String,
    export: Arc<ExportState>,
    cred: Cred,
    /// Directories below the export's root.
    below: Vec<Vec<u8>>,
    scratch: Vec<u8>,
}

pub enum Answered {
    Now(Writer),
    Mnt(Mnt),
    /// A MNT that is not allowed: the answer, the path and why.
    Refused(Writer, Vec<u8>, String),
}

/// Answers a call of the MOUNT program.
pub fn answer(
    call: &CallHeader<'_>,
    exports: &Exports,
    mounts: &Mounts,
    from: SocketAddr,
    scratch: Vec<u8>,
) -> Answered {
    let client = from.ip();
    let mut w = Writer::new(scratch);
    if !(1..=MOUNT_V3).contains(&call.vers) {
        prog_mismatch(&mut w, call.xid, 1, MOUNT_V3);
        return Answered::Now(w);
    }
    begin_accepted(&mut w, call.xid, AcceptStat::Success);
    match call.proc_num {
        0 => {}
        1 => return mnt(call, exports, from, w),
        2 => dump(&mut w, mounts, client),
        3 => match path_arg(call) {
            Ok(path) => mounts.remove(client, Some(&String::from_utf8_lossy(path))),
            Err(_) => restart(&mut w, call.xid, AcceptStat::GarbageArgs),
        },
        4 => mounts.remove(client, None),
        5 => export_list(&mut w, exports, client),
        _ => restart(&mut w, call.xid, AcceptStat::ProcUnavail),
    }
    Answered::Now(w)
}

fn path_arg<'a>(call: &CallHeader<'a>) -> Result<&'a [u8], Garbage> {
    let mut args = call.args;
    args.opaque(PATH_BYTES_MAX)
}

fn restart(w: &mut Writer, xid: u32, stat: AcceptStat) {
    w.truncate(0);
    begin_accepted(w, xid, stat);
}

fn mnt(call: &CallHeader<'_>, exports: &Exports, from: SocketAddr, mut w: Writer) -> Answered {
    let Ok(path) = path_arg(call) else {
        restart(&mut w, call.xid, AcceptStat::GarbageArgs);
        return Answered::Now(w);
    };
    let found = match call.vers {
        // Handles of versions 1 and 2 are 32 bytes and for NFS v2, which we do not speak.
        1 | 2 => {
            Err((MountStatus::Acces, "it asks for NFS version 2, which is not spoken here: mount with vers=3".into()))
        }
        _ => find(exports, path).ok_or_else(|| missing(exports, from.ip())),
    };
    let allowed = found.and_then(|(export, below)| {
        let rights =
            export.entrance(from).map_err(|refusal| (MountStatus::Acces, refusal_words(refusal, &export.path)))?;
        let cred = cred_of(&rights, &call.auth);
        Ok((export, cred, below))
    });
    match allowed {
        Ok((export, cred, below)) => {
            let path = String::from_utf8_lossy(path).into_owned();
            Answered::Mnt(Mnt { xid: call.xid, client: from.ip(), path, export, cred, below, scratch: w.into_inner() })
        }
        Err((status, why)) => {
            w.u32(status as u32);
            Answered::Refused(w, path.to_vec(), why)
        }
    }
}

/// The answer to a path that no export has. A machine that may use no export does not learn which paths there are.
fn missing(exports: &Exports, client: IpAddr) -> (MountStatus, String) {
    let is_known = exports.list.is_empty() || exports.list.iter().any(|export| export.shows_to(client));
    let status = if is_known { MountStatus::NoEnt } else { MountStatus::Acces };
    (status, "there is no such export".to_owned())
}

/// The export with the longest path that `path` begins with, and what of `path` is left.
fn find(exports: &Exports, path: &[u8]) -> Option<(Arc<ExportState>, Vec<Vec<u8>>)> {
    let parts = |path: &[u8]| {
        path.split(|&byte| byte == b'/').filter(|part| !part.is_empty()).map(<[u8]>::to_vec).collect::<Vec<_>>()
    };
    let wanted = parts(path);
    let candidates = exports.list.iter().filter_map(|export| {
        let own = parts(export.path.as_bytes());
        let below = wanted.strip_prefix(own.as_slice())?;
        Some((own.len(), export, below))
    });
    let (_, export, below) = candidates.max_by_key(|(depth, ..)| *depth)?;
    // An export of "/" does not make every path one of its directories' by dots.
    (!below.iter().any(|part| part == b".." || part == b".")).then(|| (Arc::clone(export), below.to_vec()))
}

/// Carries out a MNT: the handle of the directory, and AUTH_SYS as the flavor to use.
pub async fn run(mnt: Mnt, shared: &Shared) -> Reply {
    const FLAVORS: [u32; 2] = [1, 0];
    let found = walk(&mnt).await;
    let mut w = Writer::new(mnt.scratch);
    restart(&mut w, mnt.xid, AcceptStat::Success);
    match found {
        Ok(dir) => {
            shared.mounts.add(mnt.client, &mnt.path);
            let (client, path) = (mnt.client, shown(&mnt.path));
            shared.door.came_in(client, None, || format!("NFS: {client} mounted {path}"));
            w.u32(MountStatus::Ok as u32);
            w.opaque(&handle::encode(&mnt.export.key, &mnt.export.seal, dir.id));
            w.length(FLAVORS.len());
            FLAVORS.iter().for_each(|&flavor| w.u32(flavor));
        }
        Err(status) => {
            w.u32(status as u32);
            let (client, path) = (mnt.client, shown(&mnt.path));
            shared.door.refused(client, || format!("NFS: {client} could not mount {path}: {status:?}"));
        }
    }
    set_record_mark(&mut w, 0);
    Reply { head: w.into_inner(), ..Reply::default() }
}

async fn walk(mnt: &Mnt) -> Result<Attr, MountStatus> {
    let files = &mnt.export.export.files;
    let mut dir = files.getattr(mnt.export.export.root).await?;
    for name in &mnt.below {
        dir = files.lookup(&mnt.cred, dir.id.ino, name, NameMatch::Exact).await?;
        if dir.kind != FileKind::Directory {
            return Err(MountStatus::NotDir);
        }
    }
    Ok(dir)
}

/// 5.2.2: `mountlist`, the mounts of the machine that asks alone.
fn dump(w: &mut Writer, mounts: &Mounts, asks: IpAddr) {
    for (client, path) in mounts.list.lock().iter().filter(|(client, _)| *client == asks) {
        w.bool(true);
        w.opaque(client.to_canonical().to_string().as_bytes());
        w.opaque(path.as_bytes());
    }
    w.bool(false);
}

/// 5.2.5: `exports`, those that the machine may use. A rule for everybody shows as no group at all, which clients print as
/// "everyone".
fn export_list(w: &mut Writer, exports: &Exports, client: IpAddr) {
    for export in exports.list.iter().filter(|export| export.shows_to(client)) {
        w.bool(true);
        w.opaque(export.path.as_bytes());
        let networks = export.export.share.nfs_networks().unwrap_or_default();
        if !networks.iter().any(|network| network.prefix == 0) {
            for network in networks {
                w.bool(true);
                w.opaque(network.to_string().as_bytes());
            }
        }
        w.bool(false);
    }
    w.bool(false);
}
