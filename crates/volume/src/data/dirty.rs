//! The dirty ranges of one inode: accepted data that is not in extents yet. Pure, no locks, no I/O.
//!
//! - `dirty.no_overlap`: ranges never overlap. Each remembers the write (`seq`) that made it, and a
//!   newer write cuts older ranges.
//! - `dirty.flush_removes_its_own`: a flush takes ranges (`in_flight`) and later removes exactly
//!   those that still carry the `seq` it took. A range overwritten in between stays dirty.
//! - `dirty.charge_is_divided`: the charge of a range is its share of the memory bound, and cutting
//!   divides it exactly. While a range is in flight the flush owns its charge, because the flush
//!   holds the bytes even if the range is overwritten.
//! - `dirty.zeros_cost_nothing`: `Zero` ranges are truncations and punched holes on their way to
//!   the extents. They cost no bytes.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use bytes::Bytes;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Payload {
    Zero,
    Bytes(Bytes),
}

impl Payload {
    /// `from..to` of it.
    pub(crate) fn cut(&self, from: u64, to: u64) -> Payload {
        match self {
            Payload::Zero => Payload::Zero,
            Payload::Bytes(bytes) => Payload::Bytes(bytes.slice(from as usize..to as usize)),
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct DirtyPiece {
    pub(crate) len: u64,
    pub(crate) payload: Payload,
    pub(crate) seq: u64,
    pub(crate) charge: u64,
    pub(crate) in_flight: bool,
    /// It is in the engine as an intent: durable (or about to be, in batch order) without a flush.
    pub(crate) intent: bool,
}

impl DirtyPiece {
    pub(crate) fn is_data(&self) -> bool {
        matches!(self.payload, Payload::Bytes(_))
    }

    fn data_len(&self) -> u64 {
        if self.is_data() { self.len } else { 0 }
    }

    /// `from..to` of it, with its share of the charge.
    fn cut(&self, from: u64, to: u64) -> DirtyPiece {
        assert!(from < to && to <= self.len, "a part of a range lies within it");
        let share = |at: u64| ((u128::from(self.charge) * u128::from(at)) / u128::from(self.len.max(1))) as u64;
        DirtyPiece {
            len: to - from,
            payload: self.payload.cut(from, to),
            charge: share(to) - share(from),
            ..self.clone()
        }
    }
}

/// A range that a flush took.
#[derive(Clone, Debug)]
pub(crate) struct Taken {
    pub(crate) offset: u64,
    pub(crate) len: u64,
    pub(crate) seq: u64,
    pub(crate) payload: Payload,
}

impl Taken {
    pub(crate) fn range(&self) -> Range<u64> {
        self.offset..self.offset + self.len
    }
}

/// Below this, neighbours written one after the other are copied together.
const COALESCE_BYTES: u64 = 4096;
/// The size of a piece beside its bytes when a flush gathers: its entry in the index of the
/// segment.
const TAKE_OVERHEAD_BYTES: u64 = 64;

#[derive(Debug, Default)]
pub(crate) struct DirtyMap {
    pieces: BTreeMap<u64, DirtyPiece>,
    /// Where the pieces begin that are in no intent: a small commit must not look at all others.
    unstable: BTreeSet<u64>,
    data_bytes: u64,
}

impl DirtyMap {
    pub(crate) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.pieces.len()
    }

    /// Bytes of data held (not of zero ranges).
    pub(crate) fn data_bytes(&self) -> u64 {
        self.data_bytes
    }

    #[cfg(test)]
    fn iter(&self) -> impl Iterator<Item = (u64, &DirtyPiece)> {
        self.pieces.iter().map(|(&offset, piece)| (offset, piece))
    }

    /// Lays `piece` over the map. Returns the charge that the map no longer holds.
    pub(crate) fn insert(&mut self, offset: u64, piece: DirtyPiece) -> u64 {
        if piece.len == 0 {
            return piece.charge;
        }
        let released = self.clear(offset..offset + piece.len);
        self.data_bytes += piece.data_len();
        if let Some((&at, last)) = self.pieces.range_mut(..offset).next_back()
            && at + last.len == offset
            && Self::coalesces(last, &piece)
            && let (Payload::Bytes(head), Payload::Bytes(tail)) = (&last.payload, &piece.payload)
        {
            let mut joined = Vec::with_capacity(head.len() + tail.len());
            joined.extend_from_slice(head);
            joined.extend_from_slice(tail);
            last.payload = Payload::Bytes(joined.into());
            last.len += piece.len;
            last.seq = piece.seq;
            last.charge += piece.charge;
        } else {
            self.put(offset, piece);
        }
        released
    }

    fn put(&mut self, offset: u64, piece: DirtyPiece) {
        assert!(piece.len > 0, "a dirty range holds bytes");
        if !piece.intent {
            self.unstable.insert(offset);
        }
        self.pieces.insert(offset, piece);
    }

    fn coalesces(last: &DirtyPiece, next: &DirtyPiece) -> bool {
        !last.in_flight && !last.intent && !next.intent && !next.in_flight && last.len + next.len <= COALESCE_BYTES
    }

    /// Removes everything in `range`. Returns the charge released.
    pub(crate) fn clear(&mut self, range: Range<u64>) -> u64 {
        self.remove_where(range, |_| true)
    }

    /// Removes stored ranges (`dirty.flush_removes_its_own`). The flush owned the charge.
    pub(crate) fn remove_flushed(&mut self, taken: &Taken) {
        let released = self.remove_where(taken.range(), |piece| piece.in_flight && piece.seq == taken.seq);
        assert_eq!(released, 0, "`dirty.charge_is_divided`: the flush owns the charge of what it took");
    }

    fn remove_where(&mut self, range: Range<u64>, want: impl Fn(&DirtyPiece) -> bool) -> u64 {
        let mut released = 0;
        let first = self.pieces.range(..range.start).next_back().filter(|(at, p)| *at + p.len > range.start);
        let mut from = first.map_or(range.start, |(&at, _)| at);
        while from < range.end {
            let Some((&at, piece)) = self.pieces.range(from..range.end).next() else { break };
            let end = at + piece.len;
            from = end;
            if !want(piece) {
                continue;
            }
            let Some(piece) = self.pieces.remove(&at) else { break };
            self.unstable.remove(&at);
            let (lo, hi) = (at.max(range.start), end.min(range.end));
            let middle = piece.cut(lo - at, hi - at);
            assert!(self.data_bytes >= middle.data_len(), "the map counts every byte of data that it holds");
            self.data_bytes -= middle.data_len();
            let mut divided = middle.charge;
            if !piece.in_flight {
                released += middle.charge;
            }
            if at < lo {
                let head = piece.cut(0, lo - at);
                divided += head.charge;
                self.put(at, head);
            }
            if hi < end {
                let tail = piece.cut(hi - at, end - at);
                divided += tail.charge;
                self.put(hi, tail);
            }
            assert_eq!(divided, piece.charge, "`dirty.charge_is_divided`");
        }
        released
    }

    /// Where the piece that holds `at` begins.
    pub(crate) fn start_of(&self, at: u64) -> u64 {
        self.pieces.range(..=at).next_back().map_or(at, |(&start, _)| start)
    }

    /// The pieces that touch `range`, with the part of each that lies in it, in order.
    pub(crate) fn view(&self, range: Range<u64>) -> impl Iterator<Item = (u64, u64, &DirtyPiece)> {
        let before = self.pieces.range(..range.start).next_back().filter(|(at, p)| *at + p.len > range.start);
        let from = before.map_or(range.start, |(&at, _)| at);
        let (start, end) = (range.start, range.end);
        self.pieces.range(from..end.max(from)).map(move |(&at, piece)| {
            let (lo, hi) = (at.max(start), (at + piece.len).min(end));
            (lo, hi, piece)
        })
    }

    /// Takes ranges for a flush: all zero ranges, and data up to about `max_bytes` from the start.
    /// Returns them in order of offset, and the charge, which the caller owns from now on
    /// (`dirty.charge_is_divided`).
    pub(crate) fn take(&mut self, max_bytes: u64) -> (Vec<Taken>, u64) {
        let (mut taken, mut charge, mut bytes) = (Vec::new(), 0, 0);
        for (&offset, piece) in self.pieces.iter_mut().filter(|(_, piece)| !piece.in_flight) {
            if piece.is_data() {
                if bytes >= max_bytes {
                    continue;
                }
                bytes += piece.len + TAKE_OVERHEAD_BYTES;
            }
            piece.in_flight = true;
            charge += piece.charge;
            taken.push(Taken { offset, len: piece.len, seq: piece.seq, payload: piece.payload.clone() });
        }
        (taken, charge)
    }

    /// All ranges, in order of offset, sharing their bytes.
    pub(crate) fn copy(&self) -> Vec<Taken> {
        let copy = |(&offset, piece): (&u64, &DirtyPiece)| Taken {
            offset,
            len: piece.len,
            seq: piece.seq,
            payload: piece.payload.clone(),
        };
        self.pieces.iter().map(copy).collect()
    }

    /// Whether some data is neither in extents nor in an intent.
    pub(crate) fn is_unstable(&self) -> bool {
        !self.unstable.is_empty()
    }

    /// There is something that no flush has taken.
    pub(crate) fn has_idle(&self) -> bool {
        self.pieces.values().any(|piece| !piece.in_flight)
    }

    /// The pieces in no intent yet, unless they are more than `max_bytes` or `max_pieces`.
    pub(crate) fn without_intent(&self, max_bytes: u64, max_pieces: usize) -> Option<Vec<(u64, DirtyPiece)>> {
        let (mut found, mut bytes) = (Vec::new(), 0);
        let unstable = self.unstable.iter().filter_map(|offset| self.pieces.get_key_value(offset));
        for (&offset, piece) in unstable {
            bytes += piece.data_len();
            found.push((offset, piece.clone()));
            if bytes > max_bytes || found.len() > max_pieces {
                return None;
            }
        }
        Some(found)
    }

    pub(crate) fn mark_intent(&mut self, offset: u64, seq: u64) {
        if let Some(piece) = self.pieces.get_mut(&offset)
            && piece.seq == seq
        {
            piece.intent = true;
            self.unstable.remove(&offset);
        }
    }

    /// Where the first data that is neither flushed nor in an intent, and ends behind `size`,
    /// begins.
    pub(crate) fn first_unstable_beyond(&self, size: u64) -> Option<u64> {
        let before = self.unstable.range(..size).next_back();
        let mut all = before.into_iter().chain(self.unstable.range(size..));
        let beyond = |at: &u64| self.pieces.get(at).is_some_and(|piece| piece.is_data() && at + piece.len > size);
        all.find(|at| beyond(at)).copied()
    }

    /// Drops everything. Returns the charge that the map held.
    pub(crate) fn drain(&mut self) -> u64 {
        let pieces = std::mem::take(&mut self.pieces);
        self.unstable.clear();
        self.data_bytes = 0;
        pieces.values().filter(|piece| !piece.in_flight).map(|piece| piece.charge).sum()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    fn piece(data: &[u8], seq: u64) -> DirtyPiece {
        let payload = Payload::Bytes(Bytes::copy_from_slice(data));
        let len = data.len() as u64;
        DirtyPiece { len, payload, seq, charge: len + 100, in_flight: false, intent: false }
    }

    proptest! {
        #[test]
        fn behaves_like_an_array(ops in prop::collection::vec((0u64..200, 1u64..60, 0u8..5), 1..60)) {
            let (mut map, mut model) = (DirtyMap::default(), vec![None::<u8>; 300]);
            let (mut held, mut flushes): (u64, Vec<Vec<Taken>>) = (0, Vec::new());
            for (seq, (offset, len, what)) in ops.into_iter().enumerate() {
                let seq = seq as u64 + 1;
                match what {
                    0..=2 => {
                        let new = piece(&vec![seq as u8; len as usize], seq);
                        held += new.charge;
                        held -= map.insert(offset, new);
                        model[offset as usize..(offset + len) as usize].fill(Some(seq as u8));
                    }
                    3 => {
                        let (taken, charge) = map.take(u64::MAX);
                        held -= charge;
                        flushes.push(taken);
                    }
                    _ => for taken in flushes.pop().unwrap_or_default() {
                        for at in taken.range() {
                            // The remaining bytes of that write are stored now.
                            let Payload::Bytes(bytes) = &taken.payload else { unreachable!() };
                            if model[at as usize] == Some(bytes[(at - taken.offset) as usize]) {
                                model[at as usize] = None;
                            }
                        }
                        map.remove_flushed(&taken);
                    },
                }
                let mut seen = vec![None; 300];
                for (lo, hi, piece) in map.view(0..300) {
                    prop_assert_eq!(hi - lo, piece.len);
                    prop_assert_eq!(map.start_of(hi - 1), lo);
                    let Payload::Bytes(bytes) = &piece.payload else { unreachable!() };
                    for at in lo..hi {
                        seen[at as usize] = Some(bytes[(at - lo) as usize]);
                    }
                }
                prop_assert_eq!(&seen, &model);
                let own: u64 = map.iter().filter(|(_, p)| !p.in_flight).map(|(_, p)| p.charge).sum();
                prop_assert_eq!(own, held);
            }
        }
    }

    #[test]
    fn small_neighbours_become_one_piece() {
        let mut map = DirtyMap::default();
        for at in 0..5000u64 {
            map.insert(at, piece(&[7], at + 1));
        }
        assert!(map.len() <= 2, "{}", map.len());
    }
}
