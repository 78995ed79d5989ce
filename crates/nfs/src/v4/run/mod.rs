//! Carries out a COMPOUND (RFC 7530 15.2, RFC 8881 16.2), operation by operation.
//!
//! - `run.slot_always_finishes`: a request that was begun in a slot ends it, with its reply or, if its future is
//!   dropped, without.
//! - `run.results_after_files`: a result is written only after the file service has answered, as in version 3
//!   (`ops.reply_after_volume`).
//! - `run.bounded_reply`: a reply grows to the session's bound and no further: the operation that exceeds it fails.

mod attributes;
mod data;
mod list;
mod locks;
mod names;
mod opens;
mod ranges;
mod sessions;
mod xattrs;

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use larder_base::checksum::checksum_slices;
use larder_files::Files;
use larder_fs::Ino;

use super::super::drc;
use super::super::handle::HANDLE_BYTES;
use super::super::ops::IO_BYTES_MAX;
use super::super::outbox::Reply;
use super::super::record::Message;
use super::super::rpc::{AcceptStat, Auth, LAST_FRAGMENT, begin_accepted, parse_call};
use super::super::shared::Shared;
use super::super::xdr::Writer;
use super::compound::{Arrived, Compound, CompoundReply, OPERATIONS_MAX};
use super::file_key::FileKey;
use super::ops::{ArgOp, OpNumber, ResOp};
use super::place::{Caller, Object, Place};
use super::server::{NfsV4, V4State};
use super::slots::{Arrival, CACHED_REPLY_BYTES_MAX, ConnectionId, ReplyBounds, RequestDigest, Sequenced, SlotTicket};
use super::state::Caller as StateCaller;
use super::stateids::CurrentState;
use super::types::{ClientId, NfsStat, SecInfo, SessionId};
use super::wire::{Opaque, XdrList, XdrOut};

/// Bytes of a reply in NFSv4.0, which has no bound of the client's.
const REPLY_BYTES_MAX_IN_0: usize = IO_BYTES_MAX as usize + (64 << 10);
/// Bytes of a payload at each of its ends that tell retries apart, with its length.
const DIGEST_BYTES: usize = 64;
const DIGEST_SEED: u64 = 0x7365_7175_656e_6365;
/// The last minor version.
const MINOR_MAX: u32 = 2;
pub(super) const AUTH_SYS: u32 = 1;

/// A request that may be carried out: some export is open to its caller's machine.
pub struct Call4 {
    pub shared: Arc<Shared>,
    pub connection: ConnectionId,
    pub peer: SocketAddr,
    pub message: Message,
    pub outline: Outline,
    /// Room for the reply.
    pub scratch: Vec<u8>,
}

/// What a request is about to need.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outline {
    /// File data that it holds or will hold in memory.
    pub data_bytes: usize,
    /// It changes names and its client has no slots: a request that comes again must not be carried out again.
    pub once: bool,
    /// It reads, or writes much: see [`super::super::session::Work::deserves_task`].
    pub deserves_task: bool,
}

impl Outline {
    /// `args_at`: where the arguments begin in the message.
    pub fn of(message: &Message, args_at: usize) -> Self {
        let tail_bytes: usize = message.tail.iter().flatten().map(Bytes::len).sum();
        let mut outline = Self { data_bytes: 0, once: false, deserves_task: tail_bytes > 0 };
        let Ok(mut compound) = Compound::parse(arrived(message, args_at)) else { return outline };
        for _ in 0..compound.count.min(OPERATIONS_MAX) {
            let Some(Ok(op)) = compound.next_op() else { break };
            let bytes = match op {
                ArgOp::Read(args) | ArgOp::ReadPlus(args) => args.count.min(IO_BYTES_MAX) as usize,
                ArgOp::ReadDir(args) => args.bytes_max.min(IO_BYTES_MAX) as usize,
                ArgOp::Write(args) => args.data.len(),
                _ => 0,
            };
            outline.data_bytes = outline.data_bytes.saturating_add(bytes).min(2 * IO_BYTES_MAX as usize);
            outline.once |= compound.minor == 0
                && matches!(op, ArgOp::Create(_) | ArgOp::Remove(_) | ArgOp::Rename(_) | ArgOp::Link(_));
            outline.deserves_task |= matches!(
                op,
                ArgOp::Read(_)
                    | ArgOp::ReadPlus(_)
                    | ArgOp::ReadDir(_)
                    | ArgOp::GetAttr(_)
                    | ArgOp::Lookup(_)
                    | ArgOp::Access(_)
                    | ArgOp::Copy(_)
            );
        }
        outline
    }
}

fn arrived(message: &Message, args_at: usize) -> Arrived<'_> {
    let before = message.head.get(args_at..).unwrap_or_default();
    Arrived { before, apart: message.tail.as_deref().map(|payload| (payload, message.after.as_slice())) }
}

/// The duty to finish a slot (`run.slot_always_finishes`).
struct Slot<'m> {
    v4: &'m NfsV4,
    ticket: Option<SlotTicket>,
}

impl Slot<'_> {
    /// The request as call-backs name it: session, slot, number.
    fn request(&self) -> Option<(SessionId, u32, u32)> {
        let ticket = self.ticket.as_ref()?;
        let (slot, sequence) = ticket.referring();
        Some((ticket.session(), slot, sequence))
    }

    fn finish(&mut self, reply: Option<&[u8]>) {
        if let Some(ticket) = self.ticket.take() {
            self.v4.finish(ticket, reply);
        }
    }
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        self.finish(None);
    }
}

/// One request on its way.
struct Run<'m> {
    caller: Caller<'m>,
    v4: &'m Arc<NfsV4>,
    connection: ConnectionId,
    minor: u32,
    /// Of the request's session.
    client: Option<ClientId>,
    current: Option<Place>,
    saved: Option<Place>,
    stateids: CurrentState,
    slot: Slot<'m>,
    bounds: ReplyBounds,
    /// Records of clients were changed (`grace.recorded_before_answered`).
    is_unsettled: bool,
    /// No operation follows the present one.
    is_last: bool,
}

pub async fn run(call: Call4) -> Reply {
    match call.once_key() {
        None => carry_out(call).await,
        Some(key) => Box::pin(run_once(call, key)).await,
    }
}

impl Call4 {
    /// The identity of a request that is answered once (`drc.call_identity`).
    fn once_key(&self) -> Option<drc::Key> {
        let header = parse_call(&self.message.head).ok().filter(|_| self.outline.once)?;
        let caller = match &header.auth {
            Auth::None => &[],
            Auth::Sys { raw, .. } => *raw,
        };
        let args = self.message.head.get(self.message.head.len() - header.args.remaining()..).unwrap_or_default();
        let tail = self.message.tail.as_deref().unwrap_or_default();
        Some(drc::Key::new(self.peer, header.xid, header.proc_num, caller, args, tail))
    }
}

/// Carries out a request of NFSv4.0 once: a duplicate gets the stored reply, or waits for the first
/// (`drc.duplicate_waits`).
async fn run_once(call: Call4, key: drc::Key) -> Reply {
    /// The status behind the record mark and the header of an accepted reply.
    const STATUS_AT: std::ops::Range<usize> = 28..32;
    let shared = Arc::clone(&call.shared);
    let replayed = |head: &Bytes| {
        shared.stats.replayed.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Reply { head: head.to_vec(), ..Reply::default() }
    };
    loop {
        match shared.drc.begin(key) {
            drc::Begin::Run(ticket) => {
                let reply = carry_out(call).await;
                // "Try later" is no outcome to remember.
                let later = [NfsStat::Delay, NfsStat::Grace, NfsStat::Resource].map(|status| status as u32);
                let status = reply.head.get(STATUS_AT).and_then(|status| status.first_chunk::<4>());
                let is_outcome = status.is_some_and(|status| !later.contains(&u32::from_be_bytes(*status)));
                if is_outcome && reply.data.is_empty() {
                    ticket.finish(&reply.head);
                }
                return reply;
            }
            drc::Begin::Replay(head) => return replayed(&head),
            drc::Begin::Wait(outcome) => {
                if let Ok(head) = outcome.await {
                    return replayed(&head);
                }
            }
        }
    }
}

async fn carry_out(mut call: Call4) -> Reply {
    let mut out = XdrOut::new(std::mem::take(&mut call.scratch));
    out.writer().truncate(0);
    let start = out.mark();
    let Ok(header) = parse_call(&call.message.head) else { return Reply::default() };
    begin_accepted(out.writer(), header.xid, AcceptStat::Success);
    let results_at = out.len();
    let args_at = call.message.head.len() - header.args.remaining();
    let Ok(mut compound) = Compound::parse(arrived(&call.message, args_at)) else {
        let mut w = Writer::default();
        begin_accepted(&mut w, header.xid, AcceptStat::GarbageArgs);
        super::super::rpc::set_record_mark(&mut w, 0);
        return Reply { head: w.into_inner(), ..Reply::default() };
    };
    let v4 = &call.shared.v4;
    let mut run = Run {
        caller: Caller { shared: &call.shared, peer: call.peer, auth: header.auth },
        v4,
        connection: call.connection,
        minor: compound.minor,
        client: None,
        current: None,
        saved: None,
        stateids: CurrentState::default(),
        slot: Slot { v4, ticket: None },
        is_unsettled: false,
        bounds: ReplyBounds { bytes_max: REPLY_BYTES_MAX_IN_0, too_big: NfsStat::Resource },
        is_last: false,
    };
    let mut reply = CompoundReply::begin(out, compound.tag);
    let replayed = run.carry_out(&mut compound, &mut reply, &call.message, args_at).await;
    if run.is_unsettled {
        // Where that fails, a client that is gone might reclaim, which it does not; and grace goes on.
        let _ = Box::pin(v4.settle()).await;
    }
    let mut out = reply.finish();
    if let Some(results) = replayed {
        let mut w = Writer::default();
        begin_accepted(&mut w, header.xid, AcceptStat::Success);
        w.fixed(&results);
        out = XdrOut::new(w.into_inner());
        call.shared.stats.replayed.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }
    let bytes = out.len();
    out.set_u32(start, LAST_FRAGMENT | u32::try_from(bytes.saturating_sub(4)).unwrap_or(0));
    let mut segments = out.into_segments().into_iter();
    let head = segments.next().unwrap_or_default();
    let data: Vec<Bytes> = segments.collect();
    if run.slot.ticket.is_some() {
        let is_short = bytes - results_at <= CACHED_REPLY_BYTES_MAX as usize;
        let kept = is_short.then(|| [std::slice::from_ref(&head), data.as_slice()].concat().concat());
        run.slot.finish(kept.as_deref().and_then(|whole| whole.get(results_at..)));
    }
    let head = Vec::from(head);
    Reply { data_bytes: bytes - head.len(), head, data }
}

impl<'m> Run<'m> {
    /// The whole `COMPOUND4res` of a request that was carried out before, where it is known.
    async fn carry_out(
        &mut self,
        compound: &mut Compound<'m>,
        reply: &mut CompoundReply,
        message: &Message,
        args_at: usize,
    ) -> Option<Arc<[u8]>> {
        if self.minor > MINOR_MAX {
            reply.refuse(NfsStat::MinorVersMismatch);
            return None;
        }
        if compound.count > OPERATIONS_MAX {
            reply.refuse(if self.minor == 0 { NfsStat::Resource } else { NfsStat::TooManyOps });
            return None;
        }
        if self.minor > 0 {
            match self.begin(compound, reply, message, args_at) {
                Begun::Go => {}
                Begun::Only(op) => {
                    Box::pin(self.operation(op, reply)).await;
                    return None;
                }
                Begun::Over => return None,
                Begun::Replay(results) => return Some(results),
            }
        }
        while let Some(op) = compound.next_op() {
            self.is_last = !compound.has_more();
            match op {
                Ok(op) => Box::pin(self.operation(op, reply)).await,
                Err(bad) => self.push(reply, &ResOp::failed(bad.number, bad.status)),
            }
            if reply.status() != NfsStat::Ok {
                break;
            }
        }
        None
    }

    /// The first operation of a request with sessions (RFC 8881 2.10.2.1): SEQUENCE, or one that needs no session and
    /// stands alone.
    fn begin(
        &mut self,
        compound: &mut Compound<'m>,
        reply: &mut CompoundReply,
        message: &Message,
        args_at: usize,
    ) -> Begun<'m> {
        let args = match compound.next_op() {
            None => return Begun::Over,
            Some(Err(bad)) => {
                self.push(reply, &ResOp::failed(bad.number, bad.status));
                return Begun::Over;
            }
            Some(Ok(ArgOp::Sequence(args))) => args,
            Some(Ok(op)) => {
                let stands_alone = matches!(
                    op,
                    ArgOp::ExchangeId(_)
                        | ArgOp::CreateSession(_)
                        | ArgOp::DestroySession(_)
                        | ArgOp::DestroyClientId(_)
                        | ArgOp::BindConnToSession(_)
                );
                self.is_last = true;
                let why = match stands_alone {
                    true if compound.count == 1 => return Begun::Only(op),
                    true => NfsStat::NotOnlyOp,
                    false => NfsStat::OpNotInSession,
                };
                self.push(reply, &ResOp::failed(op.number(), why));
                return Begun::Over;
            }
        };
        let tail_bytes: usize = message.tail.iter().flatten().map(Bytes::len).sum();
        let arrival = Arrival {
            connection: self.connection,
            digest: digest(message, args_at),
            bytes: message.head.len() + tail_bytes + message.after.len(),
            operations: compound.count,
        };
        match self.sequence(&args, arrival) {
            Err(status) => {
                self.push(reply, &ResOp::Sequence(Err(status)));
                Begun::Over
            }
            Ok(Sequenced::Replayed(results)) => Begun::Replay(results),
            Ok(Sequenced::Run(ok, ticket)) => {
                self.slot.ticket = Some(ticket);
                self.push(reply, &ResOp::Sequence(Ok(ok)));
                Begun::Go
            }
            Ok(Sequenced::Uncached(ok)) => {
                self.push(reply, &ResOp::Sequence(Ok(ok)));
                if let Some(next) = compound.next_op() {
                    let number = next.map_or_else(|bad| bad.number, |op| op.number());
                    self.push(reply, &ResOp::failed(number, NfsStat::RetryUncachedRep));
                }
                Begun::Over
            }
        }
    }

    /// `run.bounded_reply`
    fn push(&self, reply: &mut CompoundReply, result: &ResOp<'_>) {
        // The record mark does not count.
        reply.push_within(result, self.bounds.bytes_max.saturating_add(4), self.bounds.too_big);
        self.caller.shared.stats.count_operation(result.number().number(), reply.status() != NfsStat::Ok);
    }

    async fn operation(&mut self, op: ArgOp<'m>, reply: &mut CompoundReply) {
        let number = op.number();
        if self.minor > 0 && is_of_zero_alone(number) {
            return self.push(reply, &ResOp::failed(number, NfsStat::NotSupp));
        }
        match op {
            ArgOp::PutFh(handle) => {
                let done = self.put(self.caller.place(handle.0).await);
                self.push(reply, &ResOp::PutFh(done));
            }
            ArgOp::PutRootFh(()) => {
                let done = self.put(self.caller.root().await);
                self.push(reply, &ResOp::PutRootFh(done));
            }
            ArgOp::PutPubFh(()) => {
                let done = self.put(self.caller.root().await);
                self.push(reply, &ResOp::PutPubFh(done));
            }
            ArgOp::GetFh(()) => match &self.current {
                None => self.push(reply, &ResOp::GetFh(Err(NfsStat::NoFileHandle))),
                Some(Place::Pseudo(dir)) => self.push(reply, &ResOp::GetFh(Ok(Opaque(&dir.handle())))),
                Some(Place::Object(object)) => {
                    let handle: [u8; HANDLE_BYTES] = object.handle(object.id);
                    self.push(reply, &ResOp::GetFh(Ok(Opaque(&handle))));
                }
            },
            ArgOp::SaveFh(()) => {
                let done = self.current.clone().ok_or(NfsStat::NoFileHandle);
                if let Ok(place) = &done {
                    self.saved = Some(place.clone());
                    self.stateids.save();
                }
                self.push(reply, &ResOp::SaveFh(done.map(|_| ())));
            }
            ArgOp::RestoreFh(()) => {
                let missing = if self.minor == 0 { NfsStat::RestoreFh } else { NfsStat::NoFileHandle };
                let done = self.saved.clone().ok_or(missing);
                if let Ok(place) = &done {
                    self.current = Some(place.clone());
                    self.stateids.restore();
                }
                self.push(reply, &ResOp::RestoreFh(done.map(|_| ())));
            }
            ArgOp::SecInfo(name) => {
                let found = self.lookup_place(name.0).await;
                // RFC 8881 2.6.3.1.1.8: it consumes the current handle.
                let found = found.map(|_| self.consume_place());
                self.push(reply, &ResOp::SecInfo(found.map(|()| XdrList::of(&[SecInfo::Flavor(AUTH_SYS)]))));
            }
            ArgOp::SecInfoNoName(style) => {
                let found = self.secinfo_no_name(style).await;
                self.push(reply, &ResOp::SecInfoNoName(found.map(|()| XdrList::of(&[SecInfo::Flavor(AUTH_SYS)]))));
            }
            ArgOp::Access(_)
            | ArgOp::GetAttr(_)
            | ArgOp::SetAttr(_)
            | ArgOp::Verify(_)
            | ArgOp::NVerify(_)
            | ArgOp::ReadLink(()) => self.attribute_operation(op, reply).await,
            ArgOp::Lookup(_)
            | ArgOp::LookupParent(())
            | ArgOp::Create(_)
            | ArgOp::Remove(_)
            | ArgOp::Rename(_)
            | ArgOp::Link(_) => self.name_operation(op, reply).await,
            ArgOp::ReadDir(args) => self.read_dir(&args, reply).await,
            ArgOp::Read(_) | ArgOp::Write(_) | ArgOp::Commit(_) => self.data_operation(op, reply).await,
            ArgOp::Allocate(_)
            | ArgOp::Deallocate(_)
            | ArgOp::Seek(_)
            | ArgOp::ReadPlus(_)
            | ArgOp::IoAdvise(_)
            | ArgOp::Clone(_)
            | ArgOp::Copy(_)
            | ArgOp::OffloadStatus(_)
            | ArgOp::OffloadCancel(_) => self.range_operation(op, reply).await,
            ArgOp::Open(_)
            | ArgOp::OpenConfirm(_)
            | ArgOp::OpenDowngrade(_)
            | ArgOp::Close(_)
            | ArgOp::DelegReturn(_) => self.open_operation(op, reply).await,
            ArgOp::Lock(_)
            | ArgOp::LockTest(_)
            | ArgOp::Unlock(_)
            | ArgOp::ReleaseLockOwner(_)
            | ArgOp::TestStateId(_)
            | ArgOp::FreeStateId(_) => self.lock_operation(&op, reply).await,
            ArgOp::GetXattr(_) | ArgOp::SetXattr(_) | ArgOp::ListXattrs(_) | ArgOp::RemoveXattr(_) => {
                self.xattr_operation(op, reply).await;
            }
            ArgOp::ExchangeId(_)
            | ArgOp::CreateSession(_)
            | ArgOp::DestroySession(_)
            | ArgOp::DestroyClientId(_)
            | ArgOp::BindConnToSession(_)
            | ArgOp::BackchannelCtl(_)
            | ArgOp::ReclaimComplete(_)
            | ArgOp::SetClientId(_)
            | ArgOp::SetClientIdConfirm(_)
            | ArgOp::Renew(_) => self.session_operation(op, reply),
            ArgOp::Sequence(_) => self.push(reply, &ResOp::Sequence(Err(NfsStat::SequencePos))),
            _ => self.push(reply, &ResOp::failed(number, NfsStat::NotSupp)),
        }
    }

    /// The current handle is this one now, without a stateid.
    fn put(&mut self, place: Result<Place, NfsStat>) -> Result<(), NfsStat> {
        self.current = Some(place?);
        self.stateids.clear();
        Ok(())
    }

    fn consume_place(&mut self) {
        if self.minor > 0 {
            self.current = None;
            self.stateids.clear();
        }
    }

    fn place(&self) -> Result<&Place, NfsStat> {
        self.current.as_ref().ok_or(NfsStat::NoFileHandle)
    }

    /// The current handle as an object of an export; `pseudo` is what an operation says of the pseudo file system.
    fn object(&self, pseudo: NfsStat) -> Result<Object, NfsStat> {
        match self.place()? {
            Place::Pseudo(_) => Err(pseudo),
            Place::Object(object) => Ok(object.clone()),
        }
    }

    fn key(state: &mut V4State, files: &Files, ino: Ino) -> Result<FileKey, NfsStat> {
        state.exported.key(files, ino).ok_or(NfsStat::Stale)
    }

    /// Ends clients, except `by`, that hold something of a file and have been silent for a lease. Whether there were any;
    /// they are out of the durable record by then.
    async fn end_silent(&self, file: FileKey, by: Option<ClientId>) -> Result<bool, NfsStat> {
        let had_any = {
            let mut state = self.v4.lock();
            let had_any = state.end_silent(file, by, self.v4.now());
            if had_any {
                self.v4.delegations_changed(&state);
            }
            had_any
        };
        if had_any {
            self.v4.settle().await.map_err(|_| NfsStat::Delay)?;
        }
        Ok(had_any)
    }

    /// Clients that are gone make room for what a client is about to open or lock.
    async fn make_room(&self, client: ClientId) {
        let had_any = {
            let mut state = self.v4.lock();
            let had_any = state.make_room(client, self.v4.now());
            if had_any {
                self.v4.delegations_changed(&state);
            }
            had_any
        };
        if had_any {
            // What could not be written is tried again: those who are gone might reclaim until then.
            let _ = self.v4.settle().await;
        }
    }

    fn by(&self) -> StateCaller {
        StateCaller { client: self.client, minor: self.minor }
    }
}

/// The way on after the first operation.
enum Begun<'m> {
    Go,
    Only(ArgOp<'m>),
    Over,
    Replay(Arc<[u8]>),
}

/// Operations that sessions took the place of (RFC 8881 18).
fn is_of_zero_alone(number: OpNumber) -> bool {
    matches!(
        number,
        OpNumber::SetClientId
            | OpNumber::SetClientIdConfirm
            | OpNumber::Renew
            | OpNumber::OpenConfirm
            | OpNumber::ReleaseLockOwner
    )
}

/// `slots.digest_tells_retries`: of a payload its ends and its length.
fn digest(message: &Message, args_at: usize) -> RequestDigest {
    let args = message.head.get(args_at..).unwrap_or_default();
    let payload = message.tail.as_deref().unwrap_or_default();
    let bytes = payload.iter().map(Bytes::len).sum::<usize>().to_be_bytes();
    let first = payload.first().map(|chunk| chunk.get(..DIGEST_BYTES).unwrap_or(chunk)).unwrap_or_default();
    let last = payload.last().map(|chunk| chunk.get(chunk.len().saturating_sub(DIGEST_BYTES)..).unwrap_or(chunk));
    let parts = [args, &message.after, &bytes, first, last.unwrap_or_default()];
    RequestDigest(checksum_slices(DIGEST_SEED, parts.into_iter()))
}
