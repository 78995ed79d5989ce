//! Which LOCK requests of an open were carried out (MS-SMB2 3.3.1.10
//! Open.LockSequenceArray, 3.3.5.14): a client that reconnected sends those
//! again that it got no answer to.

use std::sync::Mutex;
use std::sync::PoisonError;

/// Entries of Open.LockSequenceArray; a request names them from 1.
const ENTRIES: usize = 64;

#[derive(Debug)]
pub(crate) struct LockSequences(Mutex<[Option<u8>; ENTRIES]>);

impl Default for LockSequences {
    fn default() -> Self {
        Self(Mutex::new([None; ENTRIES]))
    }
}

impl LockSequences {
    /// The entry and the number in a request's LockSequenceNumber and
    /// LockSequenceIndex (MS-SMB2 2.2.26), `None` when it names no entry.
    pub(crate) fn of(lock_sequence: u32) -> Option<(usize, u8)> {
        let index = (lock_sequence >> 4) as usize;
        let entry = index.checked_sub(1).filter(|&entry| entry < ENTRIES)?;
        Some((entry, (lock_sequence & 0xF) as u8))
    }

    /// Whether the request was carried out already. One that was not makes
    /// the entry invalid until it is [`done`](Self::done).
    pub(crate) fn is_replay(&self, entry: usize, number: u8) -> bool {
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if entries[entry] == Some(number) {
            return true;
        }
        entries[entry] = None;
        false
    }

    /// Notes that the request was carried out.
    pub(crate) fn done(&self, entry: usize, number: u8) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)[entry] = Some(number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_carried_out_once() {
        assert_eq!(LockSequences::of(0x5), None);
        assert_eq!(LockSequences::of(65 << 4), None);
        assert_eq!(LockSequences::of(u32::MAX), None);
        assert_eq!(LockSequences::of(64 << 4 | 3), Some((63, 3)));
        let sequences = LockSequences::default();
        assert!(!sequences.is_replay(0, 1));
        assert!(!sequences.is_replay(0, 1), "not done yet");
        sequences.done(0, 1);
        assert!(sequences.is_replay(0, 1));
        assert!(!sequences.is_replay(1, 1));
        assert!(!sequences.is_replay(0, 2));
        assert!(!sequences.is_replay(0, 1), "forgotten for another");
    }
}
