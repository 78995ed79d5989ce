//! From a message to what is to be done about it: programs and versions, exports, access, squashing.
//! Everything here is decided in place; only what needs a volume becomes [`Work`].

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};
use std::task::Waker;
use std::time::Duration;

use larder_fs::Cred;
use larder_people::Reason;

use super::drc;
use super::export::{ExportState, cred_of, refusal_words};
use super::handle::{self, ExportKey, HANDLE_BYTES_MAX};
use super::mount::{self, MOUNT_PROGRAM};
use super::nlm::{self, NLM_PROGRAM, NLM_V4, NSM_PROGRAM, NSM_V1};
use super::ops::{self, Call, IO_BYTES_MAX, encode_fail};
use super::outbox::Reply;
use super::portmap::{self, CalledAt, PORTMAP_PROGRAM};
use super::proto::{Fail, NFS_PROGRAM, NFS_V3, NFS_V4, Proc, Status};
use super::record::Message;
use super::rpc::{
    AcceptStat, Auth, BadCall, CallHeader, begin_accepted, deny, parse_call, prog_mismatch, set_record_mark, too_weak,
};
use super::shared::Shared;
use super::v4;
use super::xdr::{Reader, Writer};
use larder_doors::door::shown;

/// Callers of one connection whose credentials are kept decoded. A client machine has few users at a time.
const CREDS_MAX: usize = 8;

/// Which programs a connection may call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    Files,
    Portmapper,
    /// NSM alone, over UDP.
    Monitor,
}

/// Calls that need a volume.
pub enum Work {
    Nfs(Call),
    /// Of version 4.
    Compound(Box<v4::Call4>),
    Mnt(mount::Mnt, Arc<Shared>),
    /// Of locks for version 3.
    Lock(Box<nlm::NlmCall>),
    /// An answer that waits.
    Refused(Reply, Duration),
}

impl Work {
    pub async fn run(self) -> Reply {
        match self {
            Work::Nfs(call) => ops::run(call).await,
            Work::Compound(call) => v4::run(*call).await,
            Work::Lock(call) => Box::pin(nlm::run(*call)).await,
            Work::Mnt(mnt, shared) => Box::pin(mount::run(mnt, &shared)).await,
            Work::Refused(reply, wait) => Box::pin(late(reply, wait)).await,
        }
    }

    /// File data that the call holds or will hold in memory.
    pub fn data_bytes(&self) -> usize {
        let call = match self {
            Work::Nfs(call) => call,
            Work::Compound(call) => return call.outline.data_bytes,
            _ => return 0,
        };
        match call.proc {
            Proc::Write => call.message.len() + call.tail.iter().flatten().map(|chunk| chunk.len()).sum::<usize>(),
            Proc::Read => {
                let mut args = Reader::new(call.message.get(call.args_at..).unwrap_or_default());
                let count = args.skip(8).and_then(|()| args.u32()).unwrap_or(0);
                count.min(IO_BYTES_MAX) as usize
            }
            Proc::ReadDir | Proc::ReadDirPlus => 64 << 10,
            _ => 0,
        }
    }

    /// Whether a call that did not finish at once should go on in a task of its own: what computes or
    /// fetches may then use another core. What merely waits for its group commit stays with the
    /// connection, where one wake-up answers the whole group.
    pub fn deserves_task(&self) -> bool {
        use Proc::*;
        let call = match self {
            Work::Nfs(call) => call,
            Work::Compound(call) => return call.outline.deserves_task,
            // It may wait for another client, which must not hold up this one's other calls.
            Work::Lock(_) => return true,
            _ => return false,
        };
        match call.proc {
            Read | GetAttr | Lookup | Access | ReadLink | ReadDir | ReadDirPlus => true,
            Write => call.tail.is_some(),
            _ => false,
        }
    }
}

pub enum Next {
    Reply(Reply),
    Work(Work),
    /// Nothing to answer; the scratch buffer comes back.
    Ignore(Vec<u8>),
    /// Not a client of ours.
    Close,
}

/// The access of one credential to one export.
struct CachedAccess {
    raw: Vec<u8>,
    key: ExportKey,
    /// Not held: an idle connection keeps no volume open.
    export: Weak<ExportState>,
    cred: Cred,
    read_only: bool,
}

pub struct Session {
    shared: Arc<Shared>,
    client: IpAddr,
    port: u16,
    /// The address that the client called.
    local: Option<IpAddr>,
    service: Service,
    /// The version of the exports that `cached_access` is from.
    exports_version: u64,
    cached_access: Vec<CachedAccess>,
    /// The place in `cached_access` that is replaced next.
    replace: usize,
    /// An export has admitted this client.
    admitted: bool,
    /// As a connection of version 4, once it has used that.
    connection: Option<v4::Connected>,
    /// The user that the last call claimed to be.
    caller: Option<u32>,
}

impl Session {
    pub fn new(shared: Arc<Shared>, peer: SocketAddr, service: Service) -> Self {
        let (exports_version, client) = (shared.exports_version(), peer.ip().to_canonical());
        Self {
            shared,
            client,
            port: peer.port(),
            local: None,
            service,
            exports_version,
            cached_access: Vec::new(),
            replace: 0,
            admitted: false,
            connection: None,
            caller: None,
        }
    }

    /// The address that was called.
    #[must_use]
    pub fn at(self, local: Option<SocketAddr>) -> Self {
        Self { local: local.map(|local| local.ip().to_canonical()), ..self }
    }

    /// The number of the user that the last call claimed to be, before any squashing.
    pub fn caller(&self) -> Option<u32> {
        self.caller
    }

    pub fn is_admitted(&self) -> bool {
        self.admitted
    }

    /// A call of the server to this client, with its record mark.
    pub fn next_call(&self, waker: &Waker) -> Option<Vec<u8>> {
        self.connection.as_ref()?.back.next(waker)
    }

    fn called_at(&self) -> CalledAt {
        let (port, client, local) = (self.shared.port, self.client, self.local);
        CalledAt { port, client, local, is_datagram: local.is_none() }
    }

    pub(super) fn peer(&self) -> SocketAddr {
        SocketAddr::new(self.client, self.port)
    }

    /// Decides about one message. `scratch` is room for the reply.
    pub fn next(&mut self, message: Message, scratch: Vec<u8>) -> Next {
        let mut w = Writer::new(scratch);
        w.truncate(0);
        let call = match parse_call(&message.head) {
            Ok(call) => call,
            Err(bad) => {
                if let (BadCall::NotACall, Some(connected)) = (bad, &self.connection) {
                    connected.back.answered(&message.head);
                }
                return self.bad_call(bad, w);
            }
        };
        self.caller = match call.auth {
            Auth::Sys { uid, .. } => Some(uid),
            Auth::None => None,
        };
        match (self.service, call.prog) {
            (Service::Files, NFS_PROGRAM) if call.vers == NFS_V4 => {
                let (header, args_at) = ((call.xid, call.proc_num), message.head.len() - call.args.remaining());
                return self.nfs4(header, args_at, message, w);
            }
            (Service::Files, NFS_PROGRAM) => return self.nfs(&call, &message, w),
            (Service::Files, MOUNT_PROGRAM) => {
                match mount::answer(&call, &self.shared.exports(), &self.shared.mounts, self.peer(), w.into_inner()) {
                    mount::Answered::Mnt(mnt) => {
                        self.admitted = true;
                        return Next::Work(Work::Mnt(mnt, Arc::clone(&self.shared)));
                    }
                    mount::Answered::Refused(written, path, why) => return self.refused_mount(written, &path, &why),
                    mount::Answered::Now(written) => w = written,
                }
            }
            (Service::Files, NLM_PROGRAM) => return self.nlm(&call, w),
            (Service::Files | Service::Monitor, NSM_PROGRAM) => return self.nsm(&call, w),
            (Service::Portmapper, PORTMAP_PROGRAM) => portmap::answer(&call, self.called_at(), &mut w),
            _ => {
                self.shared.stats.rejected.fetch_add(1, Relaxed);
                begin_accepted(&mut w, call.xid, AcceptStat::ProgUnavail);
            }
        }
        reply(w)
    }

    /// A MNT that is refused is logged, and answered the later the more there are.
    fn refused_mount(&self, written: Writer, path: &[u8], why: &str) -> Next {
        let client = self.client;
        let path = shown(&String::from_utf8_lossy(path));
        let wait = self.shared.door.refused(client, || format!("NFS: {client} may not mount {path}: {why}"));
        let Next::Reply(reply) = reply(written) else { return Next::Close };
        match wait.is_zero() {
            true => Next::Reply(reply),
            false => Next::Work(Work::Refused(reply, wait)),
        }
    }

    fn bad_call(&self, bad: BadCall, mut w: Writer) -> Next {
        self.shared.stats.rejected.fetch_add(1, Relaxed);
        match bad {
            BadCall::Malformed => Next::Close,
            _ if deny(&mut w, bad).is_some() => reply(w),
            _ => Next::Ignore(w.into_inner()),
        }
    }

    fn refresh(&mut self) {
        let now = self.shared.exports_version();
        if self.exports_version != now {
            self.exports_version = now;
            self.cached_access.clear();
        }
    }

    fn nfs(&mut self, call: &CallHeader<'_>, message: &Message, mut w: Writer) -> Next {
        if call.vers != NFS_V3 {
            prog_mismatch(&mut w, call.xid, NFS_V3, NFS_V4);
            return reply(w);
        }
        let Some(proc) = Proc::from_number(call.proc_num) else {
            begin_accepted(&mut w, call.xid, AcceptStat::ProcUnavail);
            return reply(w);
        };
        if proc == Proc::Null {
            self.shared.stats.count(proc, false);
            begin_accepted(&mut w, call.xid, AcceptStat::Success);
            return reply(w);
        }
        match self.admit(call, message, proc) {
            Ok(mut admitted) => {
                admitted.scratch = w.into_inner();
                Next::Work(Work::Nfs(admitted))
            }
            Err(fail) => {
                self.shared.stats.count(proc, true);
                encode_fail(&mut w, call.xid, proc, &fail, None, 0);
                reply(w)
            }
        }
    }

    /// Version 4: NULL and COMPOUND. Handles of all exports may be in one request, so only the machine is judged here:
    /// one that no export is open to has nothing to say, and makes no state.
    fn nfs4(&mut self, (xid, procedure): (u32, u32), args_at: usize, message: Message, mut w: Writer) -> Next {
        const NULL: u32 = 0;
        const COMPOUND: u32 = 1;
        match procedure {
            NULL => {
                begin_accepted(&mut w, xid, AcceptStat::Success);
                return reply(w);
            }
            COMPOUND => {}
            _ => {
                begin_accepted(&mut w, xid, AcceptStat::ProcUnavail);
                return reply(w);
            }
        }
        // A connection goes on whose share is gone for a moment or for good: its handles say which.
        let goes_on = self.admitted || self.shared.is_pausing();
        if !goes_on && !self.shared.exports().admit(self.peer()) {
            too_weak(&mut w, xid);
            let client = self.client;
            let why = || format!("NFS: {client} may not use NFSv4: no share is open to it; {}", self.way_out());
            let wait = self.shared.door.refused(client, why);
            let Next::Reply(reply) = reply(w) else { return Next::Close };
            return if wait.is_zero() { Next::Reply(reply) } else { Next::Work(Work::Refused(reply, wait)) };
        }
        self.admitted = true;
        let connection = self.connection.get_or_insert_with(|| v4::Connected::new(&self.shared.v4)).id;
        let outline = v4::Outline::of(&message, args_at);
        let (shared, peer) = (Arc::clone(&self.shared), self.peer());
        Next::Work(Work::Compound(Box::new(v4::Call4 {
            shared,
            connection,
            peer,
            message,
            outline,
            scratch: w.into_inner(),
        })))
    }

    /// Locks: every call but few is about a file, whose export decides as for any other call.
    fn nlm(&mut self, call: &CallHeader<'_>, mut w: Writer) -> Next {
        let request = match (call.vers, call.proc_num) {
            (NLM_V4, 0) => {
                begin_accepted(&mut w, call.xid, AcceptStat::Success);
                return reply(w);
            }
            (NLM_V4, procedure) => nlm::Request::decode(procedure, call.args),
            _ => {
                prog_mismatch(&mut w, call.xid, NLM_V4, NLM_V4);
                return reply(w);
            }
        };
        let request = match request {
            Ok(Some(request)) => request,
            Ok(None) => {
                begin_accepted(&mut w, call.xid, AcceptStat::ProcUnavail);
                return reply(w);
            }
            Err(_) => {
                begin_accepted(&mut w, call.xid, AcceptStat::GarbageArgs);
                return reply(w);
            }
        };
        let access = request.handle().map(|handle| self.lock_access(handle, &call.auth));
        if access.is_none() && !self.shared.exports().admit(self.peer()) {
            too_weak(&mut w, call.xid);
            return reply(w);
        }
        Next::Work(Work::Lock(Box::new(nlm::NlmCall {
            nlm: Arc::clone(&self.shared.nlm),
            xid: call.xid,
            client: self.client,
            local: self.local,
            request,
            access,
            scratch: w.into_inner(),
        })))
    }

    fn lock_access(&mut self, handle: &[u8], auth: &Auth<'_>) -> Result<nlm::LockAccess, nlm::LockStat> {
        let (key, id) = handle::decode(handle).ok_or(nlm::LockStat::StaleHandle)?;
        self.refresh();
        let (export, cred, read_only) = self.who(&key, auth).map_err(|fail| match fail {
            // Its clients are asked to wait, as after a restart.
            Fail::Status(Status::Jukebox) => nlm::LockStat::DeniedGracePeriod,
            Fail::Status(Status::Stale) => nlm::LockStat::StaleHandle,
            _ => nlm::LockStat::Failed,
        })?;
        if !handle::is_of(handle, id.ino, &export.seal) {
            return Err(nlm::LockStat::StaleHandle);
        }
        Ok(nlm::LockAccess { export: key, files: export.locks.clone(), id, cred, read_only })
    }

    /// The status monitor: machines that some export admits are heard.
    fn nsm(&mut self, call: &CallHeader<'_>, mut w: Writer) -> Next {
        match (call.vers, call.proc_num) {
            (NSM_V1, 0) => begin_accepted(&mut w, call.xid, AcceptStat::Success),
            (NSM_V1, _) if !self.shared.exports().admit(self.peer()) => too_weak(&mut w, call.xid),
            (NSM_V1, _) => self.shared.nlm.monitor(call, self.client, &mut w),
            _ => prog_mismatch(&mut w, call.xid, NSM_V1, NSM_V1),
        }
        reply(w)
    }

    /// Why no share is open to the client, and what to do about it.
    fn way_out(&self) -> String {
        let exports = self.shared.exports();
        let refusals = exports.list.iter().filter_map(|export| Some((export, export.entrance(self.peer()).err()?)));
        // A port is nearer to being right than a network.
        let nearest = refusals.min_by_key(|(_, refusal)| !matches!(refusal, Reason::Port(_)));
        nearest.map_or_else(
            || "there are no shares with NFS".to_owned(),
            |(export, refusal)| refusal_words(refusal, &export.path),
        )
    }

    /// Every procedure but NULL begins with a handle: it says which export, the export who may do what.
    fn admit(&mut self, header: &CallHeader<'_>, message: &Message, proc: Proc) -> Result<Call, Fail> {
        let mut args = header.args;
        let handle = args.opaque(HANDLE_BYTES_MAX)?;
        let (key, id) = handle::decode(handle).ok_or(Status::BadHandle)?;
        self.refresh();
        let (export, cred, read_only) = self.who(&key, &header.auth)?;
        if !handle::is_of(handle, id.ino, &export.seal) {
            return Err(Status::BadHandle.into());
        }
        if read_only && proc.modifies() {
            return Err(Status::RoFs.into());
        }
        let once = proc.once().then(|| self.once_key(header, message));
        Ok(Call {
            shared: Arc::clone(&self.shared),
            export,
            cred,
            id,
            read_only,
            proc,
            xid: header.xid,
            args_at: message.head.len() - args.remaining(),
            message: message.head.clone(),
            tail: message.tail.clone(),
            once,
            scratch: Vec::new(),
        })
    }

    fn once_key(&self, header: &CallHeader<'_>, message: &Message) -> drc::Key {
        let caller = match &header.auth {
            Auth::None => &[],
            Auth::Sys { raw, .. } => *raw,
        };
        let args = message.head.get(message.head.len() - header.args.remaining()..).unwrap_or_default();
        let tail = message.tail.as_deref().unwrap_or_default();
        drc::Key::new(self.peer(), header.xid, header.proc_num, caller, args, tail)
    }

    /// The export of a handle and the caller in it, decoded once per caller.
    fn who(&mut self, key: &ExportKey, auth: &Auth<'_>) -> Result<(Arc<ExportState>, Cred, bool), Fail> {
        let raw = match auth {
            Auth::None => &[],
            Auth::Sys { raw, .. } => *raw,
        };
        let cached = self.cached_access.iter().find(|cached| cached.key == *key && cached.raw == raw);
        if let Some((cached, export)) = cached.and_then(|cached| Some((cached, cached.export.upgrade()?))) {
            return Ok((export, cached.cred.clone(), cached.read_only));
        }
        let exports = self.shared.exports();
        let missing = || if self.shared.is_paused(&key.volume) { Status::Jukebox } else { Status::Stale };
        let export = exports.by_key(key).ok_or_else(missing)?;
        let rights = match export.entrance(self.peer()) {
            Ok(rights) => rights,
            Err(refusal) => {
                let (client, path) = (self.client, shown(&export.path));
                let why = || format!("NFS: {client} may not use {path}: {}", refusal_words(refusal, &export.path));
                self.shared.door.refused(client, why);
                return Err(Status::Acces.into());
            }
        };
        self.admitted = true;
        let (cred, read_only) = (cred_of(&rights, auth).of_client(Some(self.client), None), !rights.may_write);
        let weak = Arc::downgrade(export);
        let cached = CachedAccess { raw: raw.to_vec(), key: *key, export: weak, cred: cred.clone(), read_only };
        let export = Arc::clone(export);
        match self.cached_access.get_mut(self.replace) {
            Some(place) => *place = cached,
            None => self.cached_access.push(cached),
        }
        self.replace = (self.replace + 1) % CREDS_MAX;
        Ok((export, cred, read_only))
    }
}

async fn late(reply: Reply, wait: Duration) -> Reply {
    tokio::time::sleep(wait).await;
    reply
}

fn reply(mut w: Writer) -> Next {
    set_record_mark(&mut w, 0);
    Next::Reply(Reply { head: w.into_inner(), ..Reply::default() })
}
