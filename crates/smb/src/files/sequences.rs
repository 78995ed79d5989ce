//! Which LOCK requests of an open were carried out (MS-SMB2 3.3.1.10
//! Open.LockSequenceArray, 3.3.5.14): a client that reconnected sends those
//! again that it got no answer to.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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

/// Which of a client's channels an open's changes come through (MS-SMB2
/// 3.3.1.10 Open.ChannelSequence, 3.3.5.2.10): a client that lost a connection
/// counts up and sends again what was not answered. What comes late through
/// the lost one must not undo it.
#[derive(Debug, Default)]
pub(crate) struct ChannelSequence(Mutex<Changes>);

#[derive(Debug, Default)]
struct Changes {
    current: u16,
    /// Under way, of the current sequence and of those before.
    now: u32,
    before: u32,
}

impl Changes {
    /// Moves on to `sequence`; false if it lies behind.
    fn move_to(&mut self, sequence: u16) -> bool {
        match sequence.wrapping_sub(self.current) {
            0 => true,
            1..0x8000 => {
                self.before += self.now;
                (self.now, self.current) = (0, sequence);
                true
            }
            _ => false,
        }
    }
}

/// A change that is under way.
pub(crate) struct UnderWay {
    of: Arc<ChannelSequence>,
    sequence: u16,
}

impl ChannelSequence {
    fn changes(&self) -> MutexGuard<'_, Changes> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes the sequence of a request that changes nothing. It is carried out also when it comes late.
    pub(crate) fn note(&self, sequence: u16) {
        self.changes().move_to(sequence);
    }

    /// Begins a change that the client sent with `sequence`, a second time
    /// where it `is_replay`. `None` if it must not be carried out (any more,
    /// or yet).
    pub(crate) fn begin(self: &Arc<Self>, sequence: u16, is_replay: bool) -> Option<UnderWay> {
        let mut changes = self.changes();
        if !changes.move_to(sequence) {
            return None;
        }
        if is_replay && changes.before > 0 {
            return None;
        }
        changes.now += 1;
        Some(UnderWay { of: Arc::clone(self), sequence })
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let mut changes = self.of.changes();
        let counted = if self.sequence == changes.current { &mut changes.now } else { &mut changes.before };
        *counted = counted.saturating_sub(1);
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

    #[test]
    fn what_comes_late_through_a_lost_channel_is_refused() {
        let open = Arc::new(ChannelSequence::default());
        let slow = open.begin(0, false).expect("the first");
        let second = open.begin(1, false).expect("a new channel");
        assert!(open.begin(0, false).is_none(), "the old one");
        assert!(open.begin(1, true).is_none(), "what it repeats may still be under way");
        drop(slow);
        assert!(open.begin(1, true).is_some());
        drop(second);
        assert!(open.begin(0x8001, false).is_none(), "that is one before, too");
        assert!(open.begin(0x8000, false).is_some());
        assert!(open.begin(0x7fff, false).is_none());
        open.note(0x8002);
        open.note(0x8001);
        assert!(open.begin(0x8001, false).is_none(), "a read has told of the next channel");
    }
}
