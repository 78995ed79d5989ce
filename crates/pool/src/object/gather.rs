//! Bytes that lie in several places, as an object's payload comes.

use std::ops::Range;

use bytes::Bytes;

/// A run of bytes in several pieces, addressable without copying.
pub struct Gather {
    parts: Vec<Bytes>,
    /// Where each part starts.
    starts: Vec<u64>,
    pub length: u64,
}

impl Gather {
    pub fn new(parts: impl IntoIterator<Item = Bytes>) -> Self {
        let parts: Vec<Bytes> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        let mut length = 0;
        let starts = parts
            .iter()
            .map(|part| {
                let start = length;
                length += part.len() as u64;
                start
            })
            .collect();
        Self { parts, starts, length }
    }

    /// The slices that make up `start..end`, which must lie within.
    pub fn slices(&self, start: u64, end: u64) -> impl Iterator<Item = &[u8]> {
        self.places(start, end).map(|(part, place)| &part[place])
    }

    /// The same, shared.
    pub fn shared(&self, start: u64, end: u64) -> impl Iterator<Item = Bytes> {
        self.places(start, end).map(|(part, place)| part.slice(place))
    }

    fn places(&self, start: u64, end: u64) -> impl Iterator<Item = (&Bytes, Range<usize>)> {
        let first = self.starts.partition_point(|&at| at <= start).saturating_sub(1);
        self.starts.iter().zip(&self.parts).skip(first).take_while(move |(at, _)| **at < end).map(move |(&at, part)| {
            let from = start.saturating_sub(at).min(part.len() as u64) as usize;
            let to = (end - at).min(part.len() as u64) as usize;
            (part, from..to.max(from))
        })
    }
}
