//! Lease state of a file and the rules that grant and break it (MS-SMB2
//! 3.3.1.4, 3.3.5.9.8, 3.3.5.9.11; MS-FSA 2.1.4.12, 2.1.5.18). Plain data:
//! the file table builds the inputs and applies the results under its lock.
//!
//! An oplock is a lease that one open holds alone: level II caches reads (R),
//! exclusive reads and writes (RW), batch handles too (RWH). What differs is
//! stated where it does: it breaks to level II or nothing, no other open
//! shares it, and the client is told with the open's FileId.

use std::sync::atomic::{AtomicU64, Ordering};

use larder_opens::{Caches, Promise};
use uuid::Uuid;

use larder_smb_wire::access_mask::{FILE_READ_ATTRIBUTES, FILE_WRITE_ATTRIBUTES, READ_CONTROL, SYNCHRONIZE};
use larder_smb_wire::messages::lease::{LEASE_HANDLE_CACHING, LEASE_READ_CACHING, LEASE_WRITE_CACHING};
use larder_smb_wire::messages::{FileId, OplockLevel};

/// A lease: the client that holds it and the key the client chose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct LeaseId {
    pub client: Uuid,
    pub key: [u8; 16],
}

/// Source of [`LeaseId::new_oplock`].
static NEXT_OPLOCK: AtomicU64 = AtomicU64::new(1);

impl LeaseId {
    /// The lease `key` of `client`. `None` for the one ClientGuid that
    /// stands for oplocks here, which a client could only send on purpose.
    pub fn of_client(client: Uuid, key: [u8; 16]) -> Option<Self> {
        (client != Uuid::max()).then_some(Self { client, key })
    }

    /// A new id for the oplock of one open.
    pub fn new_oplock() -> Self {
        let number = NEXT_OPLOCK.fetch_add(1, Ordering::Relaxed);
        Self { client: Uuid::max(), key: u128::from(number).to_le_bytes() }
    }

    pub fn is_oplock(self) -> bool {
        self.client == Uuid::max()
    }
}

/// Caching a lease grants: NONE, R, RH, RW or RWH.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct LeaseState(u8);

impl LeaseState {
    pub const NONE: Self = Self(0);
    pub const R: Self = Self(LEASE_READ_CACHING as u8);
    pub const H: Self = Self(LEASE_HANDLE_CACHING as u8);
    pub const W: Self = Self(LEASE_WRITE_CACHING as u8);
    #[cfg(test)]
    pub const RH: Self = Self(Self::R.0 | Self::H.0);
    pub const RW: Self = Self(Self::R.0 | Self::W.0);
    pub const RWH: Self = Self(Self::R.0 | Self::W.0 | Self::H.0);

    /// The state a CREATE asks for. Only NONE, R, RH, RW and RWH are lease
    /// states (MS-SMB2 2.2.13.2.8); any other request, which lacks R, asks
    /// for NONE, and unknown bits are ignored.
    pub fn requested(bits: u32) -> Self {
        let state = Self((bits & Self::RWH.bits()) as u8);
        if state.contains(Self::R) { state } else { Self::NONE }
    }

    /// What an oplock of `level` caches; NONE for a level that is none.
    pub fn of_oplock(level: u8) -> Self {
        match OplockLevel::from_u8(level) {
            Some(OplockLevel::Ii) => Self::R,
            Some(OplockLevel::Exclusive) => Self::RW,
            Some(OplockLevel::Batch) => Self::RWH,
            _ => Self::NONE,
        }
    }

    /// The level of an oplock that caches this.
    pub fn oplock_level(self) -> OplockLevel {
        match self {
            Self::RWH => OplockLevel::Batch,
            Self::RW => OplockLevel::Exclusive,
            Self::NONE => OplockLevel::None,
            _ => OplockLevel::Ii,
        }
    }

    /// The caching bits of `bits`, as a client acknowledges them.
    pub fn from_bits(bits: u32) -> Self {
        Self((bits & Self::RWH.bits()) as u8)
    }

    pub fn bits(self) -> u32 {
        u32::from(self.0)
    }

    pub fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    pub fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// What it lets the client cache, as all doors know it.
    pub fn caches(self) -> Caches {
        Caches::NOTHING
            .and_if(self.contains(Self::R), Caches::READS)
            .and_if(self.contains(Self::W), Caches::WRITES)
            .and_if(self.contains(Self::H), Caches::HANDLES)
    }

    /// The caching both states grant.
    pub fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

/// Lease.Version, or an oplock, which is no lease to the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LeaseVersion {
    V1,
    V2,
    Oplock,
}

/// A lease or oplock request from a CREATE.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LeaseRequest {
    pub id: LeaseId,
    pub state: LeaseState,
    pub version: LeaseVersion,
    /// Epoch of a version 2 request.
    pub epoch: u16,
    /// ParentLeaseKey of a version 2 request that sets it.
    pub parent: Option<[u8; 16]>,
}

impl LeaseRequest {
    /// The lease of the directory, by its ParentLeaseKey.
    pub fn parent_lease(&self) -> Option<LeaseId> {
        self.parent.and_then(|key| LeaseId::of_client(self.id.client, key))
    }
}

/// One lease held on a file (MS-SMB2 3.3.1.12). It exists while at least
/// one open of the file holds it.
#[derive(Debug)]
pub(crate) struct FileLease {
    pub id: LeaseId,
    /// Tells this lease from an earlier one with the same id on the file.
    pub serial: u64,
    /// Lease.LeaseState. Changed by [`FileLease::set_state`] and [`FileLease::settle`] alone.
    pub state: LeaseState,
    /// The same, as other doors know it.
    pub promise: Promise,
    /// Lease.Epoch, version 2 only.
    pub epoch: u16,
    pub version: LeaseVersion,
    /// Lease.ParentLeaseKey, stored and returned only.
    pub parent: Option<[u8; 16]>,
    /// CREATE responses carrying this lease that are not yet queued. While
    /// any are, a break notification waits in `unsent` so the client never
    /// sees a break before the grant.
    pub grants_in_flight: u32,
    /// Lease.BreakNotification not yet sent.
    pub unsent: Option<Notification>,
    /// The open whose oplock this is, once its CREATE has given it a FileId,
    /// before the response is queued.
    pub file_id: FileId,
    /// A break the client has to acknowledge (Lease.Breaking).
    pub breaking: Option<Breaking>,
}

/// What a break notification tells the client.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Notification {
    pub from: LeaseState,
    pub to: LeaseState,
    /// Lease.Epoch at the break.
    pub epoch: u16,
    pub ack: bool,
}

/// A break in progress, waiting for the client's acknowledgment.
#[derive(Debug)]
pub(crate) struct Breaking {
    /// Lease.BreakToLeaseState, as notified: the acknowledged state must be
    /// within it.
    pub to: LeaseState,
    /// What the server needs once the break completes, within `to`. A later
    /// trigger lowers it, and the acknowledgment then breaks on to it.
    pub required: LeaseState,
    /// Tells this break from a later one of the same lease.
    pub seq: u64,
    /// The acknowledgment timer, once the notification is sent.
    pub timer: Option<tokio::task::AbortHandle>,
}

impl Drop for Breaking {
    fn drop(&mut self) {
        if let Some(timer) = self.timer.take() {
            timer.abort();
        }
    }
}

impl FileLease {
    /// A lease created by `req` with `state` granted. A version 2 lease
    /// starts at the request's epoch, moved by one when something is
    /// granted.
    pub fn new(req: &LeaseRequest, state: LeaseState, serial: u64, promise: Promise) -> Self {
        let epoch = match req.version {
            LeaseVersion::V1 | LeaseVersion::Oplock => 0,
            LeaseVersion::V2 if state == LeaseState::NONE => req.epoch,
            LeaseVersion::V2 => req.epoch.wrapping_add(1),
        };
        Self {
            id: req.id,
            serial,
            state,
            promise,
            epoch,
            version: req.version,
            parent: req.parent,
            grants_in_flight: 0,
            unsent: None,
            file_id: FileId::default(),
            breaking: None,
        }
    }

    /// Moves the lease to `state`. A version 2 lease counts the change in
    /// its epoch (MS-SMB2 3.3.4.7, 3.3.5.9.11).
    pub fn set_state(&mut self, state: LeaseState) {
        if state != self.state {
            self.bump_epoch();
        }
        self.settle(state);
    }

    /// As [`FileLease::set_state`], to what the client has acknowledged or is left with: the break
    /// has counted the change.
    pub fn settle(&mut self, state: LeaseState) {
        if state != self.state {
            self.state = state;
            self.promise.keep(state.caches());
        }
    }

    /// Counts a state change in a version 2 lease's epoch.
    pub fn bump_epoch(&mut self) {
        if self.version == LeaseVersion::V2 {
            self.epoch = self.epoch.wrapping_add(1);
        }
    }
}

/// A lease as a CREATE response reports it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Granted {
    pub id: LeaseId,
    pub state: LeaseState,
    /// SMB2_LEASE_FLAG_BREAK_IN_PROGRESS.
    pub breaking: bool,
    pub epoch: u16,
    pub version: LeaseVersion,
    pub parent: Option<[u8; 16]>,
}

/// True for an open whose access is limited to attributes, security reads
/// and SYNCHRONIZE. Such an open breaks no lease (MS-FSA 2.1.4.12, OPEN).
pub(crate) fn stat_only(access: u32) -> bool {
    access & !(FILE_READ_ATTRIBUTES | FILE_WRITE_ATTRIBUTES | READ_CONTROL | SYNCHRONIZE) == 0
}

/// What an open for `access` breaks, if anything. An open limited to
/// attributes breaks nothing unless it overwrites; reading the security
/// descriptor as well counts as more to an oplock (Windows, Samba).
pub(crate) fn open_trigger(access: u32, overwrite: bool) -> Option<Trigger> {
    match () {
        () if overwrite || !stat_only(access) => Some(Trigger::Open { overwrite }),
        () if access & READ_CONTROL != 0 => Some(Trigger::ReadControl),
        () => None,
    }
}

/// The file a lease is requested on.
pub(crate) struct FileView<'a> {
    /// An open is more than attribute-only, beside those that hold the lease that is asked for.
    pub used_beside: bool,
    /// Every lease on the file.
    pub leases: &'a [(LeaseId, LeaseState)],
    pub has_locks: bool,
    pub delete_pending: bool,
}

impl FileView<'_> {
    /// MS-FSA 2.1.5.18.1 and 2.1.5.18.2 for leases. Write caching needs every
    /// other open to be attribute-only and no other lease to hold anything.
    /// Read and handle caching need no other lease with write caching and no
    /// byte-range lock. Handle caching is refused on a delete-pending file
    /// (MS-FSA 2.1.5.18). Level II oplocks and handle caching exclude each
    /// other (MS-FSA 2.1.5.18.1 LEVEL_TWO_OPLOCK, 2.1.5.18.2). Opens and
    /// leases with `me` as key never count.
    fn can_grant(&self, me: LeaseId, state: LeaseState) -> bool {
        if self.delete_pending && state.contains(LeaseState::H) {
            return false;
        }
        let mut others = self.leases.iter().filter(|(id, _)| *id != me);
        let excluded = others.clone().any(|(id, s)| {
            (me.is_oplock() && s.contains(LeaseState::H))
                || (state.contains(LeaseState::H) && id.is_oplock() && *s != LeaseState::NONE)
        });
        if excluded {
            return false;
        }
        if state.contains(LeaseState::W) {
            !self.used_beside && others.all(|(_, s)| *s == LeaseState::NONE)
        } else {
            !self.has_locks && others.all(|(_, s)| !s.contains(LeaseState::W))
        }
    }
}

/// The states to try for a request, best first: the request, then without
/// W, then without W and H (MS-SMB2 3.3.5.9). An oplock is granted as asked
/// for or as level II.
fn candidates(requested: LeaseState, oplock: bool) -> impl Iterator<Item = LeaseState> {
    let without_wh = requested.without(LeaseState::W).without(LeaseState::H);
    let without_w = match oplock {
        true => without_wh,
        false => requested.without(LeaseState::W),
    };
    [requested, without_w, without_wh]
        .into_iter()
        .enumerate()
        .filter(move |&(at, c)| {
            c != LeaseState::NONE
                && match at {
                    0 => true,
                    1 => requested.contains(LeaseState::W),
                    _ => without_w.contains(LeaseState::H),
                }
        })
        .map(|(_, c)| c)
}

/// A lease another open already holds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Current {
    pub state: LeaseState,
    pub breaking: bool,
}

/// The state the lease `me` holds after a CREATE requests `requested` on
/// `file`, with `existing` the lease when another open already holds it,
/// and whether a break of it is in progress. Nothing outside `grantable` is
/// granted. An existing lease is never downgraded. It is upgraded to all that
/// is requested or, as Windows does it, not at all, and only while no break
/// is in progress (MS-SMB2 3.3.5.9.8: such a request promotes nothing).
pub(crate) fn grant(
    me: LeaseId,
    requested: LeaseState,
    existing: Option<Current>,
    file: &FileView<'_>,
    grantable: LeaseState,
) -> (LeaseState, bool) {
    let fits = |c: LeaseState| grantable.contains(c) && file.can_grant(me, c);
    match existing {
        None => (candidates(requested, me.is_oplock()).find(|&c| fits(c)).unwrap_or(LeaseState::NONE), false),
        Some(current) if current.breaking => (current.state, true),
        Some(current) if requested.contains(current.state) && fits(requested) => (requested, false),
        Some(current) => (current.state, false),
    }
}

/// What makes the server break the leases on a file, all but the one the
/// acting open holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trigger {
    /// An open that is not attribute-only joins the file; `overwrite` when
    /// it supersedes or overwrites the file (MS-FSA 2.1.4.12, OPEN).
    Open { overwrite: bool },
    /// An open limited to attributes and the security descriptor: no more
    /// than that to a lease, an open to an oplock.
    ReadControl,
    /// WRITE, SET_INFO EndOfFile or Allocation, and LOCK (MS-FSA 2.1.4.12,
    /// WRITE, SET_INFORMATION, LOCK_CONTROL).
    Write,
    /// An open that fails the sharing check while handles are cached
    /// (MS-FSA 2.1.5.1.2, OPEN_BREAK_H).
    SharingViolation,
    /// A rename of the file or over it, or marking it delete-pending
    /// (MS-FSA 2.1.4.12, SET_INFORMATION).
    Handle,
}

impl Trigger {
    /// An access by another door, which needs this of a client's cache.
    pub fn by_others(what: Caches) -> Self {
        match what {
            Caches::WRITES => Self::Open { overwrite: false },
            Caches::HANDLES => Self::Handle,
            _ => Self::Write,
        }
    }
}

/// The part of a lease that an access by another door waits for.
pub(crate) const AWAITED: Caches = Caches::WRITES.and(Caches::HANDLES);

/// How a lease breaks for a trigger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BreakTo {
    pub to: LeaseState,
    /// The caching the trigger needs gone is cached by the client until it
    /// acknowledges, so the operation waits for the break to complete
    /// (MS-FSA 2.1.4.12: write caching, or handle caching when only that
    /// is broken).
    pub wait: bool,
}

/// How a lease in `state` breaks for `trigger`, or `None` when it keeps its
/// state. An open breaks write caching; an overwrite or a write breaks
/// every lease to NONE; a sharing violation, a rename or a delete breaks
/// handle caching. An `oplock` that caches more than reads breaks to level II
/// at best, and so keeps none of it (MS-FSA 2.1.4.12).
pub(crate) fn break_to(trigger: Trigger, state: LeaseState, oplock: bool) -> Option<BreakTo> {
    let (to, wait) = match trigger {
        Trigger::ReadControl if !oplock => return None,
        Trigger::ReadControl | Trigger::Open { overwrite: false } => (state.without(LeaseState::W), true),
        Trigger::Open { overwrite: true } | Trigger::Write => (LeaseState::NONE, state.contains(LeaseState::W)),
        Trigger::SharingViolation | Trigger::Handle => (state.without(LeaseState::H), true),
    };
    let lowered = to != state;
    let to = if oplock { to.and(LeaseState::R) } else { to };
    lowered.then_some(BreakTo { to, wait })
}

/// The next step of a break that goes on, of a lease whose client has just acknowledged `acked`, to `required`: handle
/// caching goes before the rest, as Windows breaks it.
pub(crate) fn next_step(acked: LeaseState, required: LeaseState, oplock: bool) -> LeaseState {
    let to = acked.and(required);
    let by_steps = !oplock && acked.contains(LeaseState::H) && !to.contains(LeaseState::R);
    if by_steps { acked.without(LeaseState::H).without(LeaseState::W) } else { to }
}

/// Whether breaking a lease in `state` needs the client's acknowledgment:
/// anything beyond read caching does (MS-SMB2 3.3.4.7).
pub(crate) fn needs_ack(state: LeaseState) -> bool {
    state.without(LeaseState::R) != LeaseState::NONE
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use larder_fs::Ino;
    use larder_opens::Table;

    use super::*;

    const STATES: [LeaseState; 5] = [LeaseState::NONE, LeaseState::R, LeaseState::RH, LeaseState::RW, LeaseState::RWH];

    fn id(n: u8) -> LeaseId {
        LeaseId { client: Uuid::nil(), key: [n; 16] }
    }

    #[test]
    fn requests_normalize_to_lease_states() {
        let expected = [
            (0, LeaseState::NONE),
            (1, LeaseState::R),
            (2, LeaseState::NONE),
            (3, LeaseState::RH),
            (4, LeaseState::NONE),
            (5, LeaseState::RW),
            (6, LeaseState::NONE),
            (7, LeaseState::RWH),
            (0xF9, LeaseState::R),
        ];
        for (bits, state) in expected {
            assert_eq!(LeaseState::requested(bits), state, "{bits:#x}");
        }
    }

    #[test]
    fn retry_chain_drops_write_then_handle() {
        let chain = |s| candidates(s, false).collect::<Vec<_>>();
        assert_eq!(chain(LeaseState::RWH), [LeaseState::RWH, LeaseState::RH, LeaseState::R]);
        assert_eq!(chain(LeaseState::RW), [LeaseState::RW, LeaseState::R]);
        assert_eq!(chain(LeaseState::RH), [LeaseState::RH, LeaseState::R]);
        assert_eq!(chain(LeaseState::R), [LeaseState::R]);
        assert!(chain(LeaseState::NONE).is_empty());

        let oplock = |s| candidates(s, true).collect::<Vec<_>>();
        assert_eq!(oplock(LeaseState::RWH), [LeaseState::RWH, LeaseState::R]);
        assert_eq!(oplock(LeaseState::RW), [LeaseState::RW, LeaseState::R]);
        assert_eq!(oplock(LeaseState::R), [LeaseState::R]);
    }

    #[test]
    fn oplock_levels_and_what_they_cache() {
        for level in [0, 1, 8, 9] {
            assert_eq!(LeaseState::of_oplock(level).oplock_level() as u8, level);
        }
        for level in [2, 10, 255] {
            assert_eq!(LeaseState::of_oplock(level), LeaseState::NONE);
        }
        assert_eq!(LeaseId::of_client(Uuid::max(), [1; 16]), None);
        assert_ne!(LeaseId::new_oplock(), LeaseId::new_oplock());
    }

    #[test]
    fn level_ii_and_handle_caching_exclude_each_other() {
        let (leased, oplocked) = (id(1), LeaseId::new_oplock());
        let state = |me, asked, other, held| {
            let file =
                FileView { used_beside: true, leases: &[(other, held)], has_locks: false, delete_pending: false };
            grant(me, asked, None, &file, LeaseState::RWH).0
        };
        use LeaseState as S;
        assert_eq!(state(oplocked, S::R, leased, S::RH), S::NONE);
        assert_eq!(state(oplocked, S::RWH, leased, S::R), S::R);
        assert_eq!(state(leased, S::RH, oplocked, S::R), S::R);
        assert_eq!(state(leased, S::RWH, oplocked, S::NONE), S::RH);
    }

    #[test]
    fn break_table() {
        use LeaseState as S;
        let b = |to, wait| Some(BreakTo { to, wait });
        let rows = [
            (Trigger::Open { overwrite: false }, [None, None, None, b(S::R, true), b(S::RH, true)]),
            (
                Trigger::Open { overwrite: true },
                [None, b(S::NONE, false), b(S::NONE, false), b(S::NONE, true), b(S::NONE, true)],
            ),
            (Trigger::Write, [None, b(S::NONE, false), b(S::NONE, false), b(S::NONE, true), b(S::NONE, true)]),
            (Trigger::ReadControl, [None; 5]),
            (Trigger::SharingViolation, [None, None, b(S::R, true), None, b(S::RW, true)]),
            (Trigger::Handle, [None, None, b(S::R, true), None, b(S::RW, true)]),
        ];
        for (trigger, expected) in rows {
            for (state, to) in STATES.into_iter().zip(expected) {
                assert_eq!(break_to(trigger, state, false), to, "{trigger:?} {state:?}");
            }
        }
        for (trigger, batch, exclusive) in [
            (Trigger::Open { overwrite: false }, b(S::R, true), b(S::R, true)),
            (Trigger::Open { overwrite: true }, b(S::NONE, true), b(S::NONE, true)),
            (Trigger::Write, b(S::NONE, true), b(S::NONE, true)),
            (Trigger::ReadControl, b(S::R, true), b(S::R, true)),
            (Trigger::SharingViolation, b(S::R, true), None),
            (Trigger::Handle, b(S::R, true), None),
        ] {
            assert_eq!(break_to(trigger, S::RWH, true), batch, "{trigger:?}");
            assert_eq!(break_to(trigger, S::RW, true), exclusive, "{trigger:?}");
        }
        assert!(!needs_ack(S::NONE));
        assert!(!needs_ack(S::R));
        for state in [S::RH, S::RW, S::RWH] {
            assert!(needs_ack(state));
        }
    }

    #[test]
    fn epochs_move_with_state_changes_in_version_2() {
        let new = |version, state| {
            let req = LeaseRequest { id: id(1), state: LeaseState::RWH, version, epoch: 5, parent: None };
            FileLease::new(&req, state, 0, Arc::<Table>::default().promise(Ino(7), 1, AWAITED))
        };
        assert_eq!(new(LeaseVersion::V2, LeaseState::R).epoch, 6);
        assert_eq!(new(LeaseVersion::V2, LeaseState::NONE).epoch, 5);
        assert_eq!(new(LeaseVersion::V1, LeaseState::R).epoch, 0);

        let mut lease = new(LeaseVersion::V2, LeaseState::R);
        lease.set_state(LeaseState::R);
        assert_eq!(lease.epoch, 6);
        lease.set_state(LeaseState::NONE);
        assert_eq!((lease.state, lease.epoch), (LeaseState::NONE, 7));

        let mut lease = new(LeaseVersion::V1, LeaseState::R);
        lease.set_state(LeaseState::NONE);
        assert_eq!(lease.epoch, 0);
    }

    #[tokio::test]
    async fn a_finished_break_stops_its_timer() {
        let timer = tokio::spawn(std::future::pending::<()>());
        drop(Breaking { to: LeaseState::R, required: LeaseState::R, seq: 1, timer: Some(timer.abort_handle()) });
        assert!(timer.await.unwrap_err().is_cancelled());
    }

    #[test]
    fn stat_only_access() {
        assert!(stat_only(FILE_READ_ATTRIBUTES | SYNCHRONIZE));
        assert!(stat_only(FILE_WRITE_ATTRIBUTES | READ_CONTROL));
        assert!(!stat_only(FILE_READ_ATTRIBUTES | 0x1));
        assert!(!stat_only(0x0001_0000));
    }

    /// An open of the file.
    #[derive(Clone, Copy)]
    struct OpenView {
        lease: Option<LeaseId>,
        stat_only: bool,
    }

    /// Every file of up to three other opens, with leases in every state, is
    /// checked against the grant invariants for every request.
    #[test]
    fn grant_invariants_hold_for_every_small_file() {
        let me = id(1);
        let keys = [None, Some(me), Some(id(2)), Some(id(3))];
        let mut open_sets: Vec<Vec<OpenView>> = vec![Vec::new()];
        for _ in 0..3 {
            let mut next = Vec::new();
            for set in &open_sets {
                for lease in keys {
                    for stat_only in [false, true] {
                        let mut set = set.clone();
                        set.push(OpenView { lease, stat_only });
                        next.push(set);
                    }
                }
            }
            open_sets.extend(next);
        }
        let grantables = [LeaseState::R, LeaseState::RH, LeaseState::RWH];
        for others in &open_sets {
            let used_beside = others.iter().any(|o| o.lease != Some(me) && !o.stat_only);
            for (s2, s3) in STATES.iter().flat_map(|&a| STATES.map(|b| (a, b))) {
                let leases = [(id(2), s2), (id(3), s3)];
                for (has_locks, delete_pending) in [(false, false), (true, false), (false, true)] {
                    let file = FileView { used_beside, leases: &leases, has_locks, delete_pending };
                    for bits in 0..8 {
                        let requested = LeaseState::requested(bits);
                        for grantable in grantables {
                            let existing = STATES
                                .into_iter()
                                .flat_map(|state| [false, true].map(|breaking| Some(Current { state, breaking })));
                            for existing in std::iter::once(None).chain(existing) {
                                let got = grant(me, requested, existing, &file, grantable);
                                check(&file, me, requested, existing, grantable, got);
                            }
                        }
                    }
                }
            }
        }
    }

    fn check(
        file: &FileView<'_>,
        me: LeaseId,
        requested: LeaseState,
        existing: Option<Current>,
        grantable: LeaseState,
        (got, in_progress): (LeaseState, bool),
    ) {
        let ctx = || format!("{requested:?} {existing:?} {grantable:?} -> {got:?}");
        assert!(STATES.contains(&got), "{}", ctx());
        assert_eq!(in_progress, existing.is_some_and(|c| c.breaking), "{}", ctx());
        if let Some(current) = existing {
            assert!(got.contains(current.state), "downgraded: {}", ctx());
            if !requested.contains(current.state) || current.breaking {
                assert_eq!(got, current.state, "promoted: {}", ctx());
            }
            if got == current.state {
                return;
            }
            assert_eq!(got, requested, "promoted in part: {}", ctx());
        }
        assert!(grantable.contains(got), "{}", ctx());
        assert!(
            !(file.delete_pending && got.contains(LeaseState::H)),
            "handle caching on a delete-pending file: {}",
            ctx()
        );
        assert!(requested.contains(got), "{}", ctx());
        let others = || file.leases.iter().filter(|(id, _)| *id != me);
        if got.contains(LeaseState::W) {
            assert!(!file.used_beside, "W beside another open: {}", ctx());
            assert!(others().all(|(_, s)| *s == LeaseState::NONE), "W beside another lease: {}", ctx());
        }
        if got != LeaseState::NONE && !got.contains(LeaseState::W) {
            assert!(!file.has_locks, "granted with locks: {}", ctx());
            assert!(others().all(|(_, s)| !s.contains(LeaseState::W)), "granted beside W: {}", ctx());
        }
        if existing.is_none() && got == LeaseState::NONE {
            assert!(
                candidates(requested, false).all(|c| !grantable.contains(c) || !file.can_grant(me, c)),
                "nothing granted although a candidate fits: {}",
                ctx()
            );
        }
    }
}
