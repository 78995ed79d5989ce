//! The model of a pool: the objects and log entries that must be there, and those that may be.
//!
//! - `poolmodel.answers_are_true`: the answer of an operation is the truth from then on. An
//!   operation that failed, or was under way when power was cut, leaves either the state before it
//!   or the state after it. The next opening shows one of the two, for good.

use std::collections::BTreeMap;

use larder_base::checksum::checksum;

use crate::contended::Contended;

/// Bytes by number: the same number, the same bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Content {
    pub number: u64,
    pub length: usize,
}

impl Content {
    pub fn bytes(self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.length + 8);
        let mut state = checksum(self.number, b"content") | 1;
        while out.len() < self.length {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            out.extend_from_slice(&state.to_le_bytes());
        }
        out.truncate(self.length);
        out
    }
}

/// The contents that an object may have; `None` is an absent object.
#[derive(Clone, Debug)]
pub struct Known {
    pub may_be: Vec<Option<Content>>,
}

impl Known {
    /// Its content, where that is certain.
    pub fn certain(&self) -> Option<Option<Content>> {
        match self.may_be.as_slice() {
            [only] => Some(*only),
            _ => None,
        }
    }

    pub fn begin(&mut self, after: Option<Content>) {
        if !self.may_be.contains(&after) {
            self.may_be.push(after);
        }
    }

    pub fn is(&mut self, now: Option<Content>) {
        self.may_be = vec![now];
    }

    /// Which of the possible states was found, or why none.
    pub fn settle(&mut self, found: Option<&[u8]>) -> Result<(), String> {
        let same = |state: &&Option<Content>| match (state, found) {
            (None, None) => true,
            (Some(content), Some(bytes)) => content.length == bytes.len() && content.bytes() == bytes,
            _ => false,
        };
        let Some(state) = self.may_be.iter().find(same).copied() else {
            return Err(format!("it is {}, it should be {}", describe(found), self.text()));
        };
        self.is(state);
        Ok(())
    }

    pub fn text(&self) -> String {
        let state = |state: &Option<Content>| match state {
            None => "absent".to_owned(),
            Some(content) => format!("{} bytes of content {}", content.length, content.number),
        };
        self.may_be.iter().map(state).collect::<Vec<_>>().join(" or ")
    }
}

fn describe(found: Option<&[u8]>) -> String {
    match found {
        None => "absent".to_owned(),
        Some(bytes) => {
            let head: Vec<String> = bytes.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
            format!("{} bytes beginning with {}", bytes.len(), head.concat())
        }
    }
}

/// A stream of the journal. Entry `id` has content `id`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stream {
    /// Entries up to this one need not be there.
    pub trimmed: u64,
    pub acknowledged: u64,
    /// The last that was handed over.
    pub started: u64,
}

impl Stream {
    pub fn content(stream: u64, id: u64) -> Content {
        let number = checksum(stream, &id.to_le_bytes());
        Content { number, length: (number % 3000) as usize + if number.is_multiple_of(16) { 60_000 } else { 1 } }
    }

    /// Judges a replay; what it found is durable from now on.
    pub fn settle(&mut self, stream: u64, found: &[(u64, Vec<u8>)]) -> Result<(), String> {
        let mut last = None;
        for (id, bytes) in found {
            if last.is_some_and(|last| *id != last + 1) {
                return Err(format!("entry {id} follows entry {last:?}"));
            }
            if *id > self.started || Self::content(stream, *id).bytes() != *bytes {
                return Err(format!("entry {id} is not what was written"));
            }
            last = Some(*id);
        }
        let first = found.first().map_or(u64::MAX, |(id, _)| *id);
        if self.acknowledged > self.trimmed && first > self.trimmed + 1 {
            return Err(format!("entries {} to {} are missing", self.trimmed + 1, first.saturating_sub(1)));
        }
        let last = last.unwrap_or(self.trimmed);
        if last < self.acknowledged {
            return Err(format!("entries {} to {} are missing", last + 1, self.acknowledged));
        }
        (self.acknowledged, self.started) = (last, last);
        Ok(())
    }
}

#[derive(Clone, Debug, Default)]
pub struct Objects {
    pub known: BTreeMap<String, Known>,
    /// Those that belong to no client.
    pub contended: BTreeMap<String, Contended>,
    pub streams: BTreeMap<u64, Stream>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_what_was_answered_or_one_of_two() {
        let (a, b) = (Content { number: 1, length: 100 }, Content { number: 2, length: 100 });
        let mut known = Known { may_be: vec![Some(a)] };
        known.begin(Some(b));
        assert!(known.clone().settle(Some(&a.bytes())).is_ok());
        assert!(known.clone().settle(Some(&b.bytes())).is_ok());
        assert!(known.clone().settle(None).is_err());
        assert!(known.clone().settle(Some(&b.bytes()[..99])).is_err());
        assert!(known.settle(Some(&b.bytes())).is_ok());
        assert!(known.settle(Some(&a.bytes())).is_err(), "it was the new one for good");
    }

    #[test]
    fn a_stream_has_all_that_was_acknowledged_and_no_gap() {
        let entry = |id| (id, Stream::content(7, id).bytes());
        let check = |ids: &[u64]| {
            let mut stream = Stream { trimmed: 2, acknowledged: 4, started: 6 };
            stream.settle(7, &ids.iter().map(|id| entry(*id)).collect::<Vec<_>>()).is_ok()
        };
        for good in [&[3, 4][..], &[3, 4, 5], &[3, 4, 5, 6], &[1, 2, 3, 4]] {
            assert!(check(good), "{good:?}");
        }
        for bad in [&[][..], &[3], &[4], &[3, 5], &[3, 4, 6], &[3, 4, 5, 6, 7], &[1, 3, 4]] {
            assert!(!check(bad), "{bad:?}");
        }
        let mut stream = Stream { trimmed: 2, acknowledged: 4, started: 4 };
        assert!(stream.settle(7, &[entry(3), (4, b"garbage".to_vec())]).is_err());
    }
}
