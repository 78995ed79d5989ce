//! Stateids (RFC 7530 9.1.4, RFC 8881 8.2): the life of the server, a number, and how often the state has changed.
//!
//! - `stateids.numbers_are_secrets`: in NFSv4.0 whoever names a stateid acts for its client, so the number is drawn at random.
//!   It is told to its client alone; people see states by numbers of another kind.
//! - `stateids.never_stale_in_sessions`: NFSv4.1 has no NFS4ERR_STALE_STATEID: a stateid of another life is
//!   NFS4ERR_BAD_STATEID, for TEST_STATEID as well.
//! - `stateids.zero_is_skipped`: the number of changes is never 0, which means the newest in NFSv4.1.

use super::types::{NfsStat, StateId};

const ZERO: [u8; 12] = [0; 12];
const ONES: [u8; 12] = [0xff; 12];

/// Neither opens nor locks: the rights of whoever asks.
pub const ANONYMOUS: StateId = StateId { seqid: 0, other: ZERO };
/// As [`ANONYMOUS`], and a READ passes over the denials of others.
pub const READ_BYPASS: StateId = StateId { seqid: u32::MAX, other: ONES };
/// The stateid of the operation before, in the same request (NFSv4.1).
pub const CURRENT: StateId = StateId { seqid: 1, other: ZERO };
/// None at all (NFSv4.1).
pub const INVALID: StateId = StateId { seqid: u32::MAX, other: ZERO };

/// A state's number, which nobody guesses (`stateids.numbers_are_secrets`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StateNumber(pub u64);

/// What a stateid names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Named {
    Anonymous,
    ReadBypass,
    State { number: StateNumber, seqid: u32 },
}

pub fn make(life: u32, number: StateNumber, seqid: u32) -> StateId {
    let mut other = ZERO;
    let bytes = life.to_be_bytes().into_iter().chain(number.0.to_be_bytes());
    other.iter_mut().zip(bytes).for_each(|(place, byte)| *place = byte);
    StateId { seqid, other }
}

/// What a stateid names in a life of the server. [`CurrentState::resolve`] comes before it.
pub fn name(stateid: &StateId, life: u32, minor: u32) -> Result<Named, NfsStat> {
    match *stateid {
        ANONYMOUS => return Ok(Named::Anonymous),
        READ_BYPASS => return Ok(Named::ReadBypass),
        StateId { other: ZERO | ONES, .. } => return Err(NfsStat::BadStateId),
        _ => {}
    }
    let (of_life, number) = stateid.other.split_first_chunk::<4>().ok_or(NfsStat::BadStateId)?;
    if u32::from_be_bytes(*of_life) != life {
        return Err(if minor == 0 { NfsStat::StaleStateId } else { NfsStat::BadStateId });
    }
    let number = number.first_chunk::<8>().ok_or(NfsStat::BadStateId)?;
    Ok(Named::State { number: StateNumber(u64::from_be_bytes(*number)), seqid: stateid.seqid })
}

/// Whether a stateid is that of the state as it is now, which has changed `now` times.
pub fn check_seqid(seqid: u32, now: u32, minor: u32) -> Result<(), NfsStat> {
    if seqid == now || (seqid == 0 && minor > 0) {
        return Ok(());
    }
    // Half of all numbers are older, across the wrap (RFC 8881 8.2.2).
    let is_older = now.wrapping_sub(seqid) < 1 << 31;
    Err(if is_older && seqid != 0 { NfsStat::OldStateId } else { NfsStat::BadStateId })
}

/// The number after a change (`stateids.zero_is_skipped`).
pub fn next_seqid(seqid: u32) -> u32 {
    seqid.wrapping_add(1).max(1)
}

/// The current and the saved stateid of one request (RFC 8881 16.2.3.1.2).
#[derive(Clone, Copy, Debug, Default)]
pub struct CurrentState {
    current: Option<StateId>,
    saved: Option<StateId>,
}

impl CurrentState {
    /// An operation answered with this stateid.
    pub fn set(&mut self, stateid: StateId) {
        self.current = Some(stateid);
    }

    /// An operation replaced the current file handle and has no stateid.
    pub fn clear(&mut self) {
        self.current = None;
    }

    /// SAVEFH.
    pub fn save(&mut self) {
        self.saved = self.current;
    }

    /// RESTOREFH.
    pub fn restore(&mut self) {
        self.current = self.saved;
    }

    /// The stateid that an argument means.
    pub fn resolve(&self, stateid: StateId, minor: u32) -> Result<StateId, NfsStat> {
        match stateid {
            CURRENT if minor > 0 => self.current.ok_or(NfsStat::BadStateId),
            stateid => Ok(stateid),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_a_stateid_names() {
        let one = make(7, StateNumber(9), 3);
        assert_eq!(name(&one, 7, 0), Ok(Named::State { number: StateNumber(9), seqid: 3 }));
        assert_eq!(name(&one, 8, 0), Err(NfsStat::StaleStateId));
        assert_eq!(name(&one, 8, 1), Err(NfsStat::BadStateId), "moot with sessions");
        assert_eq!(name(&ANONYMOUS, 7, 1), Ok(Named::Anonymous));
        assert_eq!(name(&READ_BYPASS, 7, 1), Ok(Named::ReadBypass));
        let odd = [CURRENT, INVALID, StateId { seqid: 5, other: ZERO }, StateId { seqid: 0, other: ONES }];
        for bad in odd {
            assert_eq!(name(&bad, 7, 1), Err(NfsStat::BadStateId));
        }
    }

    #[test]
    fn older_and_newer() {
        let cases = [
            (5, 5, 0, Ok(())),
            (5, 5, 1, Ok(())),
            (0, 5, 1, Ok(())),
            (0, 5, 0, Err(NfsStat::BadStateId)),
            (4, 5, 1, Err(NfsStat::OldStateId)),
            (6, 5, 1, Err(NfsStat::BadStateId)),
            (u32::MAX, 1, 1, Err(NfsStat::OldStateId)),
            (1, u32::MAX, 1, Err(NfsStat::BadStateId)),
        ];
        for (seqid, now, minor, wanted) in cases {
            assert_eq!(check_seqid(seqid, now, minor), wanted, "{seqid} of {now} in 4.{minor}");
        }
        assert_eq!((next_seqid(1), next_seqid(u32::MAX)), (2, 1));
    }

    #[test]
    fn the_current_stateid() {
        let (one, two) = (make(1, StateNumber(1), 1), make(1, StateNumber(2), 1));
        let mut state = CurrentState::default();
        assert_eq!(state.resolve(CURRENT, 1), Err(NfsStat::BadStateId));
        state.set(one);
        state.save();
        state.set(two);
        assert_eq!((state.resolve(CURRENT, 1), state.resolve(one, 1)), (Ok(two), Ok(one)));
        assert_eq!(state.resolve(CURRENT, 0), Ok(CURRENT), "NFSv4.0 has none");
        state.restore();
        assert_eq!(state.resolve(CURRENT, 2), Ok(one));
        state.clear();
        assert_eq!(state.resolve(CURRENT, 1), Err(NfsStat::BadStateId));
    }
}
