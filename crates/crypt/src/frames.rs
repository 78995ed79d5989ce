//! Where the bytes of an object lie once it is sealed: pure arithmetic.
//!
//! A header, then frames: each holds [`FRAME_BYTES`] of content, the last one what is left, followed by its tag. An empty object has
//! one empty frame, so that it, too, is authenticated.

use std::ops::Range;

use crate::cipher::TAG_BYTES;

/// A header says how the object is sealed ([`crate::object`]).
pub const HEADER_BYTES: usize = 48;
/// Content of a frame. A read of 4 KiB opens two frames at most.
pub const FRAME_BYTES: u64 = 4096;
/// A full frame with its tag.
pub const SEALED_FRAME_BYTES: u64 = FRAME_BYTES + TAG_BYTES as u64;

/// How many frames `content` bytes have.
pub fn frames_of(content: u64) -> u64 {
    content.div_ceil(FRAME_BYTES).max(1)
}

/// The length of an object of `content` bytes once it is sealed.
pub fn sealed_len(content: u64) -> u64 {
    HEADER_BYTES as u64 + content + frames_of(content) * TAG_BYTES as u64
}

/// The length of the content of a sealed object; `None` if no object has `sealed` bytes.
pub fn content_len(sealed: u64) -> Option<u64> {
    let frames_len = sealed.checked_sub(HEADER_BYTES as u64)?;
    let content = frames_len.checked_sub(frames_len.div_ceil(SEALED_FRAME_BYTES).max(1) * TAG_BYTES as u64)?;
    (sealed_len(content) == sealed).then_some(content)
}

/// Frames that hold the content `range` of an object with `content` bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// Numbers of the frames.
    pub frames: Range<u64>,
    /// Where they lie in the sealed object.
    pub sealed: Range<u64>,
    /// What of their content was asked for.
    pub wanted: Range<u64>,
}

/// `range` is not empty and lies within `content`, or both are empty.
pub fn span(range: Range<u64>, content: u64) -> Span {
    debug_assert!(range.start <= range.end && range.end <= content, "a range within the object");
    let first = range.start / FRAME_BYTES;
    let end = frames_of(range.end).max(first + 1);
    let at = |frame: u64| HEADER_BYTES as u64 + frame * SEALED_FRAME_BYTES;
    let base = first * FRAME_BYTES;
    Span {
        frames: first..end,
        sealed: at(first)..at(end).min(sealed_len(content)),
        wanted: range.start - base..range.end - base,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lengths_at_the_edges() {
        let header = HEADER_BYTES as u64;
        for (content, sealed) in [(0, 16), (1, 17), (4095, 4111), (4096, 4112), (4097, 4129), (8192, 8224)] {
            assert_eq!(sealed_len(content), header + sealed);
            assert_eq!(content_len(header + sealed), Some(content));
        }
        for impossible in [0, header, header + 15, header + 4113, header + 4128] {
            assert_eq!(content_len(impossible), None, "{impossible}");
        }
    }

    proptest! {
        #[test]
        fn every_length_leads_back(content in 0_u64..1 << 40) {
            prop_assert_eq!(content_len(sealed_len(content)), Some(content));
        }

        #[test]
        fn a_span_covers_what_is_asked_for(content in 1_u64..100_000, a in 0_u64..100_000, b in 0_u64..100_000) {
            let (a, b) = (a.min(content - 1), b.min(content));
            prop_assume!(a < b);
            let span = span(a..b, content);
            let base = span.frames.start * FRAME_BYTES;
            prop_assert_eq!((span.wanted.start + base, span.wanted.end + base), (a, b));
            prop_assert!(span.sealed.end <= sealed_len(content));
            let opened = span.sealed.end - span.sealed.start - (span.frames.end - span.frames.start) * TAG_BYTES as u64;
            prop_assert!(span.wanted.end <= opened && opened < b - a + 2 * FRAME_BYTES);
        }
    }
}
