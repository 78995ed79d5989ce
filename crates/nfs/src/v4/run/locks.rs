//! LOCK, LOCKT, LOCKU, RELEASE_LOCKOWNER, TEST_STATEID, FREE_STATEID (RFC 8881 18.10 to 18.12, 18.38, 18.48; RFC 7530
//! 16.37), and the order of an owner's requests in NFSv4.0.

use larder_fs::{ACCESS_EXECUTE, ACCESS_READ, ACCESS_WRITE};
use larder_opens::{Caches, Range};

use super::super::compound::CompoundReply;
use super::super::convert::{check_file, stat_of};
use super::super::file_key::ShareBits;
use super::super::ops::{ArgOp, LockArgs, LockDenied, LockTestArgs, Locker, OpNumber, OpenArgs, ResOp, UnlockArgs};
use super::super::owner_seq::OwnerOrder;
use super::super::place::Object;
use super::super::server::V4State;
use super::super::state::{LockRefusal, LockerOf, OwnerId, OwnerKind, lock_range};
use super::super::types::{DetailedResult, LockKind, NfsStat, StateId, StateOwner};
use super::super::wire::{Opaque, Xdr, XdrList, XdrOut};
use super::Run;
use crate::may_io;

/// The owner whose request is to be remembered, in NFSv4.0.
pub(super) type Order = Option<OwnerId>;

impl<'m> Run<'m> {
    pub(super) async fn lock_operation(&mut self, op: &ArgOp<'m>, reply: &mut CompoundReply) {
        match op {
            ArgOp::Lock(args) => Box::pin(self.lock(args, reply)).await,
            ArgOp::LockTest(args) => match Box::pin(self.test_lock(args)).await {
                Ok(()) => self.push(reply, &ResOp::LockTest(DetailedResult::Ok(()))),
                Err(refusal) => with_denial(&refusal, |result| match result {
                    Ok(denied) => self.push(reply, &ResOp::LockTest(DetailedResult::Detailed(denied))),
                    Err(status) => self.push(reply, &ResOp::LockTest(DetailedResult::Err(status))),
                }),
            },
            ArgOp::Unlock(args) => {
                let Some(owner) = self.begin_owner(&args.stateid, args.seqid, OpNumber::Unlock, reply) else { return };
                let result = ResOp::Unlock(self.unlock(args));
                self.end_owner(owner, args.seqid, &result, reply);
            }
            ArgOp::ReleaseLockOwner(owner) => {
                let mut state = self.v4.lock();
                let done = state.clients.renew(owner.client, self.v4.now());
                let done = done.and_then(|()| state.states.release_lock_owner(owner.client, owner.owner.0));
                drop(state);
                self.push(reply, &ResOp::ReleaseLockOwner(done));
            }
            ArgOp::TestStateId(stateids) => {
                let Some(client) = self.client else {
                    return self.push(reply, &ResOp::TestStateId(Err(NfsStat::OpNotInSession)));
                };
                let state = self.v4.lock();
                let verdicts: Vec<NfsStat> =
                    stateids.iter().map(|stateid| state.states.test(&stateid, client)).collect();
                drop(state);
                self.push(reply, &ResOp::TestStateId(Ok(XdrList::of(&verdicts))));
            }
            ArgOp::FreeStateId(stateid) => {
                let done = self.client.ok_or(NfsStat::OpNotInSession).and_then(|client| {
                    let stateid = self.stateids.resolve(*stateid, self.minor)?;
                    let mut state = self.v4.lock();
                    state.states.free(&stateid, client)?;
                    state.refresh_status(client);
                    Ok(())
                });
                self.push(reply, &ResOp::FreeStateId(done));
            }
            other => self.push(reply, &ResOp::failed(other.number(), NfsStat::ServerFault)),
        }
    }

    async fn lock(&mut self, args: &LockArgs<'_>, reply: &mut CompoundReply) {
        let (stateid, seqid) = match args.locker {
            Locker::New(new) => (new.open_stateid, new.open_seqid),
            Locker::Existing(existing) => (existing.stateid, existing.seqid),
        };
        let Some(owner) = self.begin_owner(&stateid, seqid, OpNumber::Lock, reply) else { return };
        if let Locker::New(new) = args.locker {
            Box::pin(self.make_room(self.client.unwrap_or(new.owner.client))).await;
        }
        let done = self.take_lock(args).await;
        let refusal = match done {
            Ok(stateid) => {
                self.stateids.set(stateid);
                self.begin_lock_owner(args, &stateid);
                return self.end_owner(owner, seqid, &ResOp::Lock(DetailedResult::Ok(stateid)), reply);
            }
            Err(refusal) => refusal,
        };
        with_denial(&refusal, |result| {
            let result = match result {
                Ok(denied) => DetailedResult::Detailed(denied),
                Err(status) => DetailedResult::Err(status),
            };
            self.end_owner(owner, seqid, &ResOp::Lock(result), reply);
        });
    }

    /// NFSv4.0: a new owner of locks counts on from the number that it came with (RFC 7530 9.1.7).
    fn begin_lock_owner(&self, args: &LockArgs<'_>, stateid: &StateId) {
        let Locker::New(new) = args.locker else { return };
        if self.minor > 0 {
            return;
        }
        let mut out = XdrOut::default();
        ResOp::Lock(DetailedResult::Ok(*stateid)).put(&mut out);
        let mut state = self.v4.lock();
        if let Some(owner) = state.states.owner_by_stateid(stateid)
            && let Some(seq) = state.states.owner_seq(owner)
        {
            seq.finish(new.lock_seqid, NfsStat::Ok, &out.into_bytes());
        }
    }

    async fn take_lock(&self, args: &LockArgs<'_>) -> Result<StateId, LockRefusal> {
        let (object, range) = self.lockable(args.offset, args.length).await?;
        let is_exclusive = args.kind.is_exclusive();
        let (access, masks) = match is_exclusive {
            true => (ShareBits::WRITE, [ACCESS_WRITE, ACCESS_WRITE]),
            false => (ShareBits::READ, [ACCESS_READ, ACCESS_EXECUTE]),
        };
        let granted = object.files().resolve_granted(&object.cred, object.id).await;
        let (attr, bits) = granted.map_err(|error| stat_of(&error))?;
        let is_granted = may_io(&object.cred, &attr, bits, &masks);
        let locker = match args.locker {
            Locker::New(new) => {
                let open = self.stateids.resolve(new.open_stateid, self.minor)?;
                LockerOf::New { open, owner: new.owner.owner.0 }
            }
            Locker::Existing(existing) => LockerOf::Existing(self.stateids.resolve(existing.stateid, self.minor)?),
        };
        // `files.locks_asked_for`
        object.files().recall(object.id.ino, Caches::of_lock(is_exclusive)).await;
        let volume = self.v4.volume(object.files()).await?;
        let named = match locker {
            LockerOf::New { open, .. } => open,
            LockerOf::Existing(stateid) => stateid,
        };
        let try_lock = || -> Result<_, LockRefusal> {
            let mut state = self.v4.lock();
            let state = &mut *state;
            let file = Self::key(state, object.files(), object.id.ino)?;
            let client = self.client.map_or_else(|| state.states.client_of(&named), Ok)?;
            state.may_take(client, volume.book(), args.reclaim)?;
            if self.minor == 0 {
                if let Locker::New(new) = args.locker
                    && new.owner.client != client
                {
                    return Err(NfsStat::StaleClientId.into());
                }
                state.clients.renew(client, self.v4.now())?;
            }
            // `openers.each_their_own`
            if !is_granted && state.states.is_opener(&named, object.cred.uid, access, self.by()) == Some(false) {
                return Err(NfsStat::Access.into());
            }
            Ok((file, client, state.states.lock(locker, file, range, is_exclusive, self.by())))
        };
        let (file, client, taken) = try_lock()?;
        let taken = match taken {
            Err(LockRefusal::Denied { .. }) if self.end_silent(file, Some(client)).await? => try_lock()?.2,
            taken => taken,
        };
        let waits = matches!(taken, Err(LockRefusal::Denied { .. })) && args.kind.waits() && self.minor > 0;
        let owner = match args.locker {
            Locker::New(new) => Some(Box::from(new.owner.owner.0)),
            Locker::Existing(_) => self.v4.lock().states.owner_name(&named),
        };
        let Some(owner) = owner.filter(|_| waits) else { return taken };
        let (files, ino) = (object.files(), object.id.ino);
        self.v4.notify_of_lock(client, &owner, (files, ino, file), object.handle(object.id));
        // It may have become free before that.
        try_lock()?.2
    }

    /// A file and a range of it.
    async fn lockable(&self, offset: u64, length: u64) -> Result<(Object, Range), NfsStat> {
        let object = self.object(NfsStat::IsDir)?;
        check_file(&object.resolve().await?, self.minor)?;
        Ok((object, lock_range(offset, length)?))
    }

    async fn test_lock(&self, args: &LockTestArgs<'_>) -> Result<(), LockRefusal> {
        let (object, range) = self.lockable(args.offset, args.length).await?;
        let volume = self.v4.volume(object.files()).await?;
        let client = self.client.unwrap_or(args.owner.client);
        let test = || -> Result<_, LockRefusal> {
            let mut state = self.v4.lock();
            if self.minor == 0 {
                state.clients.renew(client, self.v4.now())?;
            }
            if state.is_in_grace(volume.book()) {
                // What was locked before the restart is not known yet.
                return Err(NfsStat::Grace.into());
            }
            let file = Self::key(&mut state, object.files(), object.id.ino)?;
            Ok((file, state.states.test_lock(client, args.owner.owner.0, file, range, args.kind.is_exclusive())))
        };
        let (file, tested) = test()?;
        if tested.is_err() && self.end_silent(file, Some(client)).await? { test()?.1 } else { tested }
    }

    fn unlock(&mut self, args: &UnlockArgs) -> Result<StateId, NfsStat> {
        let object = self.object(NfsStat::IsDir)?;
        let range = lock_range(args.offset, args.length)?;
        let stateid = self.stateids.resolve(args.stateid, self.minor)?;
        let mut state = self.v4.lock();
        let file = Self::key(&mut state, object.files(), object.id.ino)?;
        let unlocked = state.states.unlock(&stateid, file, range, self.by())?;
        self.stateids.set(unlocked);
        Ok(unlocked)
    }

    /// NFSv4.0: an OPEN of this owner, in its order. `Err(None)`: it was answered before, and is answered so again.
    pub(super) fn begin_open(&self, args: &OpenArgs<'_>, reply: &mut CompoundReply) -> Result<Order, Option<NfsStat>> {
        if self.minor > 0 {
            return Ok(None);
        }
        let mut state = self.v4.lock();
        state.clients.renew(args.owner.client, self.v4.now())?;
        let owner = state.states.owner(args.owner.client, OwnerKind::Open, args.owner.owner.0)?;
        // An owner that has not confirmed begins again with each OPEN (RFC 7530 16.18.5).
        state.states.restart_unconfirmed(owner);
        self.ordered(&mut state, owner, args.seqid, reply)
    }

    /// NFSv4.0: a request of the owner of a state, in its order. `None`: it was answered.
    pub(super) fn begin_owner(
        &self,
        stateid: &StateId,
        seqid: u32,
        number: OpNumber,
        reply: &mut CompoundReply,
    ) -> Option<Order> {
        if self.minor > 0 {
            return Some(None);
        }
        let mut state = self.v4.lock();
        // The operation says what is wrong with a stateid that has no owner.
        let Some(owner) = state.states.owner_by_stateid(stateid) else { return Some(None) };
        match self.ordered(&mut state, owner, seqid, reply) {
            Ok(order) => Some(order),
            Err(None) => None,
            Err(Some(status)) => {
                drop(state);
                self.push(reply, &ResOp::failed(number, status));
                None
            }
        }
    }

    fn ordered(
        &self,
        state: &mut V4State,
        owner: OwnerId,
        seqid: u32,
        reply: &mut CompoundReply,
    ) -> Result<Order, Option<NfsStat>> {
        let seq = state.states.owner_seq(owner).ok_or(Some(NfsStat::ServerFault))?;
        match seq.check(seqid)? {
            OwnerOrder::New => Ok(Some(owner)),
            OwnerOrder::Replayed(result) => {
                reply.push_result(&result);
                Err(None)
            }
        }
    }

    /// The operation is answered; in NFSv4.0 its owner remembers how.
    pub(super) fn end_owner(&self, owner: Order, seqid: u32, result: &ResOp<'_>, reply: &mut CompoundReply) {
        if let Some(owner) = owner {
            let mut out = XdrOut::default();
            result.put(&mut out);
            if let Some(seq) = self.v4.lock().states.owner_seq(owner) {
                seq.finish(seqid, result.status(), &out.into_bytes());
            }
        }
        self.push(reply, result);
    }
}

/// The refusal as an operation says it.
fn with_denial(refusal: &LockRefusal, say: impl FnOnce(Result<LockDenied<'_>, NfsStat>)) {
    match refusal {
        LockRefusal::Status(status) => say(Err(*status)),
        LockRefusal::Denied { held, client, owner } => {
            let length = match held.range.last {
                u64::MAX => u64::MAX,
                last => last - held.range.start + 1,
            };
            let kind = if held.exclusive { LockKind::Write } else { LockKind::Read };
            let owner = StateOwner { client: *client, owner: Opaque(owner) };
            say(Ok(LockDenied { offset: held.range.start, length, kind, owner }));
        }
    }
}
