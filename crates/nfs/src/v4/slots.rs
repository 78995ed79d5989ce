//! Sessions of NFSv4.1 and their slots (RFC 8881 2.10.6): each request is carried out once, however often it comes.
//!
//! ```text
//!            begin: the next number                finish
//!   Idle ------------------------------> Running ---------> Idle, one number on, with the reply or without
//!    | begin: the last number                | begin: the same number
//!    v                                       v
//!   Replay, RETRY_UNCACHED_REP              DELAY
//!   or SEQ_FALSE_RETRY
//! ```
//!
//! - `slots.error_leaves_slot`: a request that SEQUENCE refuses changes nothing in its slot: the client sends the same
//!   number with the next one.
//! - `slots.replay_never_writes`: only the request that was carried out finishes its slot. A replay has no ticket.
//! - `slots.digest_tells_retries`: the last number with other arguments is NFS4ERR_SEQ_FALSE_RETRY, not the old reply.
//! - `slots.bounded_replies`: a slot keeps one reply of at most the session's bound, and a session's slots and bound are
//!   taken from a budget when it is made.
//! - `slots.no_reply_no_rerun`: a request that ended without a reply was perhaps carried out. Its retry is
//!   NFS4ERR_RETRY_UNCACHED_REP.

use std::sync::Arc;

use super::ops::{ChannelAttrs, SequenceArgs, SequenceOk};
use super::types::{ClientId, NfsStat, SessionId};

/// Slots of one session. Linux asks for 64.
pub const SLOTS_MAX: u32 = 64;
/// A reply that a slot keeps. Linux asks for 4 KiB and an RPC header.
pub const CACHED_REPLY_BYTES_MAX: u32 = 6 << 10;
/// Connections of one session: `nconnect` is 16 at most, over as many addresses as a machine has.
pub const CONNECTIONS_MAX: usize = 64;

/// A connection, by a number that is never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnectionId(pub u64);

/// A digest of a request's bytes behind its RPC header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestDigest(pub u64);

#[derive(Debug, Default)]
struct ReplySlot {
    sequence: u32,
    /// Number and request that are being carried out.
    running: Option<(u32, RequestDigest)>,
    /// The request of `sequence`, once there was one.
    last: Option<LastRequest>,
}

#[derive(Debug)]
struct LastRequest {
    digest: RequestDigest,
    reply: Option<Arc<[u8]>>,
}

/// What is known of a request when its SEQUENCE is looked at.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    pub connection: ConnectionId,
    pub digest: RequestDigest,
    /// Bytes of the request with its RPC header.
    pub bytes: usize,
    pub operations: u32,
}

/// The duty to finish a slot, once.
#[derive(Debug)]
pub struct SlotTicket {
    session: SessionId,
    slot: u32,
    sequence: u32,
    cache_this: bool,
}

impl SlotTicket {
    pub fn session(&self) -> SessionId {
        self.session
    }

    /// Slot and number, as a call-back refers to the request (RFC 8881 2.10.6.3).
    pub fn referring(&self) -> (u32, u32) {
        (self.slot, self.sequence)
    }
}

/// Bytes of a slot with the longest reply that it keeps.
pub fn slot_bytes_max(cached_reply_bytes: u32) -> usize {
    let reply = usize::try_from(cached_reply_bytes).unwrap_or(usize::MAX);
    reply.saturating_add(size_of::<ReplySlot>())
}

/// The way to handle a request whose SEQUENCE is right.
#[derive(Debug)]
pub enum Sequenced {
    Run(SequenceOk, SlotTicket),
    /// It was answered so before: the whole COMPOUND4res.
    Replayed(Arc<[u8]>),
    /// It was carried out before and its reply was not kept: SEQUENCE succeeds, and what follows it is
    /// NFS4ERR_RETRY_UNCACHED_REP.
    Uncached(SequenceOk),
}

/// Directions in which a connection is bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bound {
    connection: ConnectionId,
    fore: bool,
    back: bool,
}

/// The bounds of a session's replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyBounds {
    pub bytes_max: usize,
    /// A longer reply is [`ReplyBounds::too_big`].
    pub too_big: NfsStat,
}

/// Calls to the client: they go one at a time.
#[derive(Debug, Default)]
pub struct Callbacks {
    /// The minor version that the client speaks.
    pub minor: u32,
    /// The body of AUTH_SYS that the client asked for; `None`: AUTH_NONE.
    pub cred: Option<Box<[u8]>>,
    /// The number of the last call in the one slot.
    pub sequence: u32,
    pub is_busy: bool,
}

#[derive(Debug)]
pub struct ClientSession {
    pub id: SessionId,
    pub client: ClientId,
    pub fore: ChannelAttrs,
    pub back: ChannelAttrs,
    pub callback_program: u32,
    pub callbacks: Callbacks,
    /// It was destroyed, and takes no request any more.
    pub is_ended: bool,
    slots: Vec<ReplySlot>,
    bound: Vec<Bound>,
}

impl ClientSession {
    pub fn new(id: SessionId, client: ClientId, fore: ChannelAttrs, back: ChannelAttrs, callback_program: u32) -> Self {
        let count = fore.requests.clamp(1, SLOTS_MAX);
        let slots = (0..count).map(|_| ReplySlot::default()).collect();
        let callbacks = Callbacks::default();
        Self { id, client, fore, back, callback_program, callbacks, is_ended: false, slots, bound: Vec::new() }
    }

    /// Bytes that its slots with their replies may take.
    pub fn reply_bytes_max(&self) -> usize {
        self.slots.len().saturating_mul(slot_bytes_max(self.fore.cached_reply_bytes))
    }

    fn highest(&self) -> u32 {
        u32::try_from(self.slots.len()).unwrap_or(SLOTS_MAX).saturating_sub(1)
    }

    /// SEQUENCE (RFC 8881 18.46.3). `flags` are its `sr_status_flags`.
    pub fn begin(&mut self, args: &SequenceArgs, arrival: Arrival, flags: u32) -> Result<Sequenced, NfsStat> {
        if self.is_ended {
            return Err(NfsStat::BadSession);
        }
        if arrival.bytes > usize::try_from(self.fore.request_bytes).unwrap_or(usize::MAX) {
            return Err(NfsStat::ReqTooBig);
        }
        if arrival.operations > self.fore.operations {
            return Err(NfsStat::TooManyOps);
        }
        let highest = self.highest();
        let at = usize::try_from(args.slot).map_err(|_| NfsStat::BadSlot)?;
        let slot = self.slots.get_mut(at).ok_or(NfsStat::BadSlot)?;
        if args.highest_slot > highest {
            return Err(NfsStat::BadHighSlot);
        }
        let ok = SequenceOk {
            session: args.session,
            sequence: args.sequence,
            slot: args.slot,
            highest_slot: highest,
            target_highest_slot: highest,
            status_flags: flags,
        };
        if let Some((running, digest)) = slot.running {
            return Err(match running == args.sequence {
                true if digest == arrival.digest => NfsStat::Delay,
                true => NfsStat::SeqFalseRetry,
                false => NfsStat::SeqMisordered,
            });
        }
        if args.sequence == slot.sequence.wrapping_add(1) {
            slot.running = Some((args.sequence, arrival.digest));
            let ticket =
                SlotTicket { session: self.id, slot: args.slot, sequence: args.sequence, cache_this: args.cache_this };
            self.bind(arrival.connection, true, false);
            return Ok(Sequenced::Run(ok, ticket));
        }
        match &slot.last {
            Some(_) if args.sequence != slot.sequence => Err(NfsStat::SeqMisordered),
            None => Err(NfsStat::SeqMisordered),
            Some(last) if last.digest != arrival.digest => Err(NfsStat::SeqFalseRetry),
            Some(LastRequest { reply: Some(reply), .. }) => Ok(Sequenced::Replayed(Arc::clone(reply))),
            Some(_) => Ok(Sequenced::Uncached(ok)),
        }
    }

    /// The bound of the replies to a request: of all, or of those that are kept (RFC 8881 2.10.6.4).
    pub fn reply_bounds(&self, ticket: &SlotTicket) -> ReplyBounds {
        let bytes = |bytes: u32| usize::try_from(bytes).unwrap_or(usize::MAX);
        match ticket.cache_this && self.fore.cached_reply_bytes < self.fore.reply_bytes {
            true => ReplyBounds { bytes_max: bytes(self.fore.cached_reply_bytes), too_big: NfsStat::RepTooBigToCache },
            false => ReplyBounds { bytes_max: bytes(self.fore.reply_bytes), too_big: NfsStat::RepTooBig },
        }
    }

    /// The request is answered with `reply`, the whole COMPOUND4res; `None` if it ended without one
    /// (`slots.no_reply_no_rerun`).
    pub fn finish(&mut self, ticket: SlotTicket, reply: Option<&[u8]>) {
        let bytes_max = usize::try_from(self.fore.cached_reply_bytes).unwrap_or(usize::MAX);
        let slot = usize::try_from(ticket.slot).ok().and_then(|at| self.slots.get_mut(at));
        let Some(slot) = slot else { return };
        let Some((sequence, digest)) = slot.running.take() else { return };
        debug_assert_eq!(sequence, ticket.sequence, "a slot runs one request at a time");
        let kept = reply.filter(|reply| ticket.cache_this && reply.len() <= bytes_max);
        slot.sequence = sequence;
        slot.last = Some(LastRequest { digest, reply: kept.map(Arc::from) });
    }

    /// Requests under way, without the one that asks.
    pub fn running_beside(&self, own: Option<&SlotTicket>) -> usize {
        let own = usize::from(own.is_some_and(|ticket| ticket.session == self.id));
        self.slots.iter().filter(|slot| slot.running.is_some()).count().saturating_sub(own)
    }

    /// Binds a connection; `false` if there are as many as there may be.
    pub fn bind(&mut self, connection: ConnectionId, fore: bool, back: bool) -> bool {
        if let Some(bound) = self.bound.iter_mut().find(|bound| bound.connection == connection) {
            (bound.fore, bound.back) = (bound.fore | fore, bound.back | back);
            return true;
        }
        let has_room = self.bound.len() < CONNECTIONS_MAX;
        if has_room {
            self.bound.push(Bound { connection, fore, back });
        }
        has_room
    }

    pub fn is_bound(&self, connection: ConnectionId) -> bool {
        self.bound.iter().any(|bound| bound.connection == connection)
    }

    /// The connection has ended. Whether it was a back channel.
    pub fn unbind(&mut self, connection: ConnectionId) -> bool {
        let was_back = self.bound.iter().any(|bound| bound.connection == connection && bound.back);
        self.bound.retain(|bound| bound.connection != connection);
        was_back
    }

    /// A connection for call-backs that is bound now: the one bound last.
    pub fn back_channel(&self) -> Option<ConnectionId> {
        self.bound.iter().rev().find(|bound| bound.back).map(|bound| bound.connection)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]
    use super::*;

    const ID: SessionId = [3; 16];
    const CONNECTION: ConnectionId = ConnectionId(1);

    pub fn channel(requests: u32) -> ChannelAttrs {
        ChannelAttrs {
            header_pad: 0,
            request_bytes: 4096,
            reply_bytes: 4096,
            cached_reply_bytes: 64,
            operations: 8,
            requests,
            rdma_ird: None,
        }
    }

    fn session() -> ClientSession {
        ClientSession::new(ID, ClientId(1), channel(4), channel(4), 0x4000_0000)
    }

    fn sequence(slot: u32, sequence: u32, cache_this: bool) -> SequenceArgs {
        SequenceArgs { session: ID, sequence, slot, highest_slot: 3, cache_this }
    }

    fn arrival(digest: u64) -> Arrival {
        Arrival { connection: CONNECTION, digest: RequestDigest(digest), bytes: 200, operations: 3 }
    }

    fn run(session: &mut ClientSession, args: SequenceArgs, digest: u64) -> SlotTicket {
        match session.begin(&args, arrival(digest), 0) {
            Ok(Sequenced::Run(ok, ticket)) => {
                assert_eq!((ok.sequence, ok.slot, ok.highest_slot), (args.sequence, args.slot, 3));
                ticket
            }
            other => panic!("{other:?}"),
        }
    }

    fn refused(session: &mut ClientSession, args: SequenceArgs, arrival: Arrival) -> NfsStat {
        session.begin(&args, arrival, 0).unwrap_err()
    }

    #[test]
    fn a_request_is_carried_out_once() {
        let mut session = session();
        let ticket = run(&mut session, sequence(0, 1, true), 7);
        assert_eq!(refused(&mut session, sequence(0, 1, true), arrival(7)), NfsStat::Delay, "both at once");
        assert_eq!(refused(&mut session, sequence(0, 1, true), arrival(8)), NfsStat::SeqFalseRetry);
        assert_eq!(refused(&mut session, sequence(0, 2, true), arrival(9)), NfsStat::SeqMisordered, "before its end");
        session.finish(ticket, Some(b"reply"));
        for _ in 0..3 {
            let Ok(Sequenced::Replayed(reply)) = session.begin(&sequence(0, 1, true), arrival(7), 0) else {
                panic!("a replay, and never a ticket")
            };
            assert_eq!(&reply[..], b"reply");
        }
        assert_eq!(refused(&mut session, sequence(0, 1, true), arrival(8)), NfsStat::SeqFalseRetry, "another request");
        let ticket = run(&mut session, sequence(0, 2, false), 9);
        session.finish(ticket, Some(b"other"));
        assert!(matches!(session.begin(&sequence(0, 2, false), arrival(9), 0), Ok(Sequenced::Uncached(_))));
        assert_eq!(refused(&mut session, sequence(0, 1, true), arrival(7)), NfsStat::SeqMisordered, "an older one");
    }

    #[test]
    fn what_sequence_refuses_leaves_its_slot() {
        let cases: [(SequenceArgs, Arrival, NfsStat); 7] = [
            (sequence(0, 1, true), Arrival { bytes: 4097, ..arrival(1) }, NfsStat::ReqTooBig),
            (sequence(0, 1, true), Arrival { operations: 9, ..arrival(1) }, NfsStat::TooManyOps),
            (sequence(4, 1, true), arrival(1), NfsStat::BadSlot),
            (SequenceArgs { highest_slot: 4, ..sequence(0, 1, true) }, arrival(1), NfsStat::BadHighSlot),
            (sequence(0, 0, true), arrival(1), NfsStat::SeqMisordered),
            (sequence(0, 2, true), arrival(1), NfsStat::SeqMisordered),
            (sequence(0, u32::MAX, true), arrival(1), NfsStat::SeqMisordered),
        ];
        let mut session = session();
        for (args, arrival, status) in cases {
            assert_eq!(refused(&mut session, args, arrival), status);
            assert!(session.slots.iter().all(|slot| slot.sequence == 0 && slot.running.is_none()), "{status:?}");
        }
        let ticket = run(&mut session, sequence(0, 1, true), 1);
        session.finish(ticket, Some(b"first"));
        for (args, arrival, status) in cases.into_iter().skip(2).take(2) {
            assert_eq!(refused(&mut session, SequenceArgs { sequence: 2, ..args }, arrival), status);
        }
        run(&mut session, sequence(0, 2, true), 2);
    }

    #[test]
    fn replies_are_bounded() {
        let mut session = session();
        let ticket = run(&mut session, sequence(1, 1, true), 1);
        assert_eq!(session.reply_bounds(&ticket), ReplyBounds { bytes_max: 64, too_big: NfsStat::RepTooBigToCache });
        session.finish(ticket, Some(&[0; 65]));
        assert!(matches!(session.begin(&sequence(1, 1, true), arrival(1), 0), Ok(Sequenced::Uncached(_))));
        let ticket = run(&mut session, sequence(1, 2, false), 2);
        assert_eq!(session.reply_bounds(&ticket), ReplyBounds { bytes_max: 4096, too_big: NfsStat::RepTooBig });
        session.finish(ticket, None);
        assert!(matches!(session.begin(&sequence(1, 2, false), arrival(2), 0), Ok(Sequenced::Uncached(_))), "no rerun");
        assert_eq!(session.reply_bytes_max(), 4 * (64 + size_of::<ReplySlot>()));
        let huge = ClientSession::new(ID, ClientId(1), channel(u32::MAX), channel(1), 0);
        assert_eq!(huge.slots.len(), SLOTS_MAX as usize);
    }

    #[test]
    fn numbers_wrap() {
        let mut session = session();
        session.slots[2].sequence = u32::MAX;
        session.slots[2].last = Some(LastRequest { digest: RequestDigest(1), reply: None });
        let ticket = run(&mut session, sequence(2, 0, true), 2);
        session.finish(ticket, Some(b"zero"));
        assert!(matches!(session.begin(&sequence(2, 0, true), arrival(2), 0), Ok(Sequenced::Replayed(_))));
        run(&mut session, sequence(2, 1, true), 3);
    }

    #[test]
    fn targets_and_connections() {
        let mut session = session();
        let Ok(Sequenced::Run(ok, _)) = session.begin(&sequence(3, 1, false), arrival(1), 0x20) else { panic!() };
        assert_eq!((ok.highest_slot, ok.target_highest_slot, ok.status_flags), (3, 3, 0x20));
        assert!(session.is_bound(CONNECTION) && session.back_channel().is_none());
        assert!(session.bind(ConnectionId(2), true, true) && session.bind(ConnectionId(3), false, true));
        assert_eq!(session.back_channel(), Some(ConnectionId(3)));
        assert!(session.unbind(ConnectionId(3)) && !session.unbind(CONNECTION));
        assert_eq!(session.back_channel(), Some(ConnectionId(2)), "whichever is bound now");
        assert_eq!((3..200).filter(|at| session.bind(ConnectionId(*at), true, false)).count(), CONNECTIONS_MAX - 1);
        assert_eq!(session.running_beside(None), 1);
    }
}
