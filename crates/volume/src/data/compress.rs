//! Codecs of records: zeros are found, incompressible data is noticed early, the rest is packed.
//!
//! - `compress.worth_an_eighth`: a record is stored compressed only if that saves at least an
//!   eighth of it.
//! - `compress.samples_first`: incompressible data costs two samples, not a pass. The whole record
//!   is compressed only if one of the samples shrinks.

use std::cell::RefCell;

use bytes::Bytes;

use super::extents::Codec;
use super::memory::RecordBuffer;
use crate::properties::Compression;

/// The least saving, as a fraction of the record: 1/8.
const SAVING_DIVISOR: usize = 8;
/// Records up to this are tried as a whole.
const SAMPLE_BYTES: usize = 4096;
/// Smaller records are not worth a header of their own in the decoder.
const COMPRESS_BYTES_MIN: usize = 512;
const ZSTD_LEVEL: i32 = 3;

thread_local! {
    static SCRATCH: RefCell<Scratch> = const { RefCell::new(Scratch { input: Vec::new(), output: Vec::new() }) };
}

struct Scratch {
    input: Vec<u8>,
    output: Vec<u8>,
}

/// True if all of `data` is zero. Fails within the first bytes for nearly everything else.
pub(crate) fn is_zero(data: &[u8]) -> bool {
    let (blocks, rest) = data.as_chunks::<64>();
    let zero = |block: &[u8; 64]| block.as_chunks::<8>().0.iter().fold(0, |sum, w| sum | u64::from_ne_bytes(*w)) == 0;
    rest.iter().all(|&byte| byte == 0) && blocks.iter().all(zero)
}

/// The compressed form of `chunks` if it is worth it (`compress.worth_an_eighth`).
pub(crate) fn compress(compression: Compression, chunks: &[Bytes], len: usize) -> Option<(Codec, Bytes)> {
    assert_eq!(len, chunks.iter().map(Bytes::len).sum::<usize>(), "the chunks are the record");
    if len < COMPRESS_BYTES_MIN || compression == Compression::None {
        return None;
    }
    SCRATCH.with_borrow_mut(|scratch| {
        let Scratch { input, output } = scratch;
        if len > 2 * SAMPLE_BYTES && !samples_shrink(chunks, len, output) {
            return None;
        }
        let whole: &[u8] = match chunks {
            [one] => one,
            _ => {
                input.clear();
                chunks.iter().for_each(|chunk| input.extend_from_slice(chunk));
                input
            }
        };
        let (codec, packed) = match compression {
            Compression::Zstd => (Codec::Zstd, zstd_into(whole, output)?),
            _ => (Codec::Lz4, lz4_into(whole, output)?),
        };
        let kept = packed <= len - len / SAVING_DIVISOR;
        kept.then(|| (codec, Bytes::copy_from_slice(&output[..packed])))
    })
}

/// Whether the beginning of the second or of the last quarter shrinks (`compress.samples_first`).
fn samples_shrink(chunks: &[Bytes], len: usize, output: &mut Vec<u8>) -> bool {
    [len / 4, len / 4 * 3].into_iter().any(|at| {
        let sample = sample_at(chunks, at);
        sample.len() >= COMPRESS_BYTES_MIN
            && lz4_into(sample, output).is_some_and(|packed| packed <= sample.len() - sample.len() / SAVING_DIVISOR)
    })
}

/// Up to [`SAMPLE_BYTES`] of the chunk that holds the byte at `at`.
fn sample_at(chunks: &[Bytes], mut at: usize) -> &[u8] {
    for chunk in chunks {
        if at < chunk.len() {
            let from = at.min(chunk.len().saturating_sub(SAMPLE_BYTES));
            return &chunk[from..chunk.len().min(from + SAMPLE_BYTES)];
        }
        at -= chunk.len();
    }
    &[]
}

fn lz4_into(data: &[u8], output: &mut Vec<u8>) -> Option<usize> {
    grow(output, lz4_flex::block::get_maximum_output_size(data.len()));
    lz4_flex::block::compress_into(data, output).ok()
}

fn zstd_into(data: &[u8], output: &mut Vec<u8>) -> Option<usize> {
    thread_local! {
        static CONTEXT: RefCell<Option<zstd::bulk::Compressor<'static>>> = const { RefCell::new(None) };
    }
    grow(output, zstd::zstd_safe::compress_bound(data.len()));
    CONTEXT.with_borrow_mut(|context| {
        if context.is_none() {
            *context = zstd::bulk::Compressor::new(ZSTD_LEVEL).ok();
        }
        context.as_mut()?.compress_to_buffer(data, &mut output[..]).ok()
    })
}

fn grow(output: &mut Vec<u8>, len: usize) {
    if output.len() < len {
        output.resize(len, 0);
    }
}

/// The record of `raw_len` bytes that `stored` stands for; `None` if it does not decode to exactly
/// that.
pub(crate) fn decompress(codec: Codec, stored: &Bytes, raw_len: usize) -> Option<Bytes> {
    if codec == Codec::Raw {
        return (stored.len() == raw_len).then(|| stored.clone());
    }
    let mut raw = RecordBuffer::of(raw_len);
    let got = match codec {
        Codec::Zstd => zstd::bulk::decompress_to_buffer(stored, raw.bytes_mut()).ok()?,
        _ => lz4_flex::block::decompress_into(stored, raw.bytes_mut()).ok()?,
    };
    (got == raw_len).then(|| raw.freeze())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use rand::{RngCore, SeedableRng};

    fn noise(len: usize) -> Bytes {
        let mut data = vec![0; len];
        rand::rngs::StdRng::seed_from_u64(1).fill_bytes(&mut data);
        data.into()
    }

    #[test]
    fn text_round_trips_through_every_codec() {
        let text: Bytes = b"the quick brown fox ".repeat(7000).into();
        for compression in [Compression::Lz4, Compression::Zstd] {
            let ropes = [vec![text.clone()], vec![text.slice(..1000), text.slice(1000..70_001), text.slice(70_001..)]];
            for rope in ropes {
                let (codec, packed) = compress(compression, &rope, text.len()).unwrap();
                assert!(packed.len() < text.len() / 10);
                assert_eq!(decompress(codec, &packed, text.len()).unwrap(), text);
                assert_eq!(decompress(codec, &packed, text.len() - 1), None);
                assert_eq!(decompress(codec, &packed.slice(..packed.len() / 2), text.len()), None);
            }
        }
        assert_eq!(compress(Compression::None, std::slice::from_ref(&text), text.len()), None);
    }

    #[test]
    fn noise_stays_raw() {
        for len in [1, 511, 4096, 131_072] {
            assert_eq!(compress(Compression::Lz4, &[noise(len)], len), None);
        }
    }

    #[test]
    fn zeros_are_found() {
        for len in [0, 1, 63, 64, 65, 4096] {
            let mut data = vec![0; len];
            assert!(is_zero(&data));
            for at in [0, len / 2, len.wrapping_sub(1)] {
                if let Some(byte) = data.get_mut(at) {
                    *byte = 1;
                    assert!(!is_zero(&data), "{len} {at}");
                    data[at] = 0;
                }
            }
        }
    }
}
