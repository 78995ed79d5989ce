//! Codecs of records: zeros are found, incompressible data is noticed early, the rest is packed.
//!
//! - `compress.worth_an_eighth`: a record is stored compressed only if that saves at least an
//!   eighth of it.
//! - `compress.samples_first`: incompressible data costs two samples, not a pass. The whole record
//!   is compressed only if one of the samples shrinks: with LZ4, or with zstd where more than its
//!   default level is asked for, because it also packs what LZ4 cannot.
//! - `compress.frames_by_themselves`: a record is packed in frames that need no other, so that a
//!   reader unpacks those that it wants (`pieces.read_alone`).

use std::cell::RefCell;

use bytes::Bytes;
use larder_base::wipe;

use crate::properties::{Compression, ZstdLevel};

/// The least saving, as a fraction of the record: 1/8.
const SAVING_DIVISOR: usize = 8;
/// Records up to this are tried as a whole.
const SAMPLE_BYTES: usize = 4096;
/// Smaller records are not worth a header of their own in the decoder.
const COMPRESS_BYTES_MIN: usize = 512;
/// Enough to see that a record shrinks.
const SAMPLE_LEVEL: i32 = 1;
/// Bytes of a frame before packing. Smaller ones cost more of the ratio than reads gain
/// (docs/performance.md).
const FRAME_LOG2: u8 = 15;

/// How a record is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Codec {
    Raw = 0,
    Lz4 = 1,
    Zstd = 2,
}

impl Codec {
    pub(crate) fn from_u8(raw: u8) -> Option<Codec> {
        [Codec::Raw, Codec::Lz4, Codec::Zstd].into_iter().find(|&codec| codec as u8 == raw)
    }
}

/// How the bytes of a packed record fall into pieces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frames {
    /// Each has this many bytes before packing, the last one what is left.
    pub(crate) log2: u8,
    /// Stored lengths. One that is as long as the content is not packed.
    pub(crate) lens: Vec<u16>,
}

/// A compressed record.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Packed {
    pub(crate) codec: Codec,
    pub(crate) bytes: Bytes,
    /// `None` where there is one.
    pub(crate) frames: Option<Frames>,
}

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
pub(crate) fn compress(compression: Compression, chunks: &[Bytes], len: usize) -> Option<Packed> {
    assert_eq!(len, chunks.iter().map(Bytes::len).sum::<usize>(), "the chunks are the record");
    if len < COMPRESS_BYTES_MIN || compression == Compression::None {
        return None;
    }
    SCRATCH.with_borrow_mut(|scratch| {
        let packed = scratch.compress(compression, chunks, len);
        if wipe::is_on() {
            // `wipe.freed_is_zeroed`: this memory is never freed.
            wipe::wipe(&mut scratch.input);
            wipe::wipe(&mut scratch.output);
        }
        packed
    })
}

impl Scratch {
    fn compress(&mut self, compression: Compression, chunks: &[Bytes], len: usize) -> Option<Packed> {
        let Scratch { input, output } = self;
        let (codec, level) = match compression {
            Compression::Zstd(level) => (Codec::Zstd, level),
            _ => (Codec::Lz4, ZstdLevel::DEFAULT),
        };
        let samples = if level > ZstdLevel::DEFAULT { Codec::Zstd } else { Codec::Lz4 };
        if len > 2 * SAMPLE_BYTES && !samples_shrink(samples, chunks, len, output) {
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
        let limit = len - len / SAVING_DIVISOR;
        let lens = pack_frames((codec, level), whole, limit, output)?;
        let packed: usize = lens.iter().map(|len| usize::from(*len)).sum();
        let frames = (lens.len() > 1).then_some(Frames { log2: FRAME_LOG2, lens });
        (packed <= limit).then(|| Packed { codec, bytes: Bytes::copy_from_slice(&output[..packed]), frames })
    }
}

/// Packs each frame behind the one before it. The lengths; `None` once they exceed `limit`.
fn pack_frames(
    (codec, level): (Codec, ZstdLevel),
    whole: &[u8],
    limit: usize,
    output: &mut Vec<u8>,
) -> Option<Vec<u16>> {
    let mut lens = Vec::with_capacity(whole.len().div_ceil(1 << FRAME_LOG2));
    let mut at = 0;
    for frame in whole.chunks(1 << FRAME_LOG2) {
        grow(output, at + bound(codec, frame.len()).max(frame.len()));
        let room = &mut output[at..];
        let packed = match codec {
            Codec::Zstd => zstd_into(i32::from(level.get()), frame, room)?,
            _ => lz4_into(frame, room)?,
        };
        // A frame as long as its content is not packed (`Frames::lens`).
        let len = if packed < frame.len() {
            packed
        } else {
            room[..frame.len()].copy_from_slice(frame);
            frame.len()
        };
        lens.push(u16::try_from(len).ok()?);
        at += len;
        if at > limit {
            return None;
        }
    }
    Some(lens)
}

const _: () = assert!(FRAME_LOG2 < 16, "lengths of frames have 16 bits");

/// Whether the beginning of the second or of the last quarter shrinks (`compress.samples_first`).
fn samples_shrink(codec: Codec, chunks: &[Bytes], len: usize, output: &mut Vec<u8>) -> bool {
    [len / 4, len / 4 * 3].into_iter().any(|at| {
        let sample = sample_at(chunks, at);
        sample.len() >= COMPRESS_BYTES_MIN
            && pack_sample(codec, sample, output)
                .is_some_and(|packed| packed <= sample.len() - sample.len() / SAVING_DIVISOR)
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

fn pack_sample(codec: Codec, data: &[u8], output: &mut Vec<u8>) -> Option<usize> {
    grow(output, bound(codec, data.len()));
    match codec {
        Codec::Zstd => zstd_into(SAMPLE_LEVEL, data, output),
        _ => lz4_into(data, output),
    }
}

/// The most bytes that packing gives.
fn bound(codec: Codec, len: usize) -> usize {
    match codec {
        Codec::Zstd => zstd::zstd_safe::compress_bound(len),
        _ => lz4_flex::block::get_maximum_output_size(len),
    }
}

fn lz4_into(data: &[u8], output: &mut [u8]) -> Option<usize> {
    lz4_flex::block::compress_into(data, output).ok()
}

fn zstd_into(level: i32, data: &[u8], output: &mut [u8]) -> Option<usize> {
    thread_local! {
        static CONTEXT: RefCell<Option<(i32, zstd::bulk::Compressor<'static>)>> = const { RefCell::new(None) };
    }
    CONTEXT.with_borrow_mut(|context| {
        if context.is_none() {
            *context = zstd::bulk::Compressor::new(level).ok().map(|new| (level, new));
        }
        let (at, compressor) = context.as_mut()?;
        if *at != level {
            compressor.set_compression_level(level).ok()?;
            *at = level;
        }
        compressor.compress_to_buffer(data, output).ok()
    })
}

fn grow(output: &mut Vec<u8>, len: usize) {
    if output.len() < len {
        output.resize(len, 0);
    }
}

/// Fills `raw` with what `stored` stands for; false if it does not decode to exactly that.
pub(crate) fn decompress_into(codec: Codec, stored: &[u8], raw: &mut [u8]) -> bool {
    match codec {
        Codec::Raw if stored.len() == raw.len() => {
            raw.copy_from_slice(stored);
            true
        }
        Codec::Raw => false,
        Codec::Zstd => zstd_from(stored, raw) == Some(raw.len()),
        Codec::Lz4 => lz4_flex::block::decompress_into(stored, raw).is_ok_and(|got| got == raw.len()),
    }
}

fn zstd_from(stored: &[u8], raw: &mut [u8]) -> Option<usize> {
    thread_local! {
        static CONTEXT: RefCell<Option<zstd::bulk::Decompressor<'static>>> = const { RefCell::new(None) };
    }
    CONTEXT.with_borrow_mut(|context| {
        if context.is_none() {
            *context = zstd::bulk::Decompressor::new().ok();
        }
        context.as_mut()?.decompress_to_buffer(stored, raw).ok()
    })
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
        let hardest = "zstd:19".parse().unwrap();
        for compression in [Compression::Lz4, Compression::ZSTD, hardest] {
            let ropes = [vec![text.clone()], vec![text.slice(..1000), text.slice(1000..70_001), text.slice(70_001..)]];
            for rope in ropes {
                let packed = compress(compression, &rope, text.len()).unwrap();
                assert!(packed.bytes.len() < text.len() / 10);
                let frames = packed.frames.unwrap();
                let (mut stored, mut raw) = (&packed.bytes[..], vec![0; text.len()]);
                for (len, raw) in frames.lens.iter().zip(raw.chunks_mut(1 << frames.log2)) {
                    let (frame, rest) = stored.split_at(usize::from(*len));
                    stored = rest;
                    assert!(!decompress_into(packed.codec, &frame[..frame.len() / 2], raw));
                    assert!(!decompress_into(packed.codec, frame, &mut raw[1..]));
                    assert!(decompress_into(packed.codec, frame, raw));
                }
                assert!(stored.is_empty() && raw == text);
            }
        }
        assert_eq!(compress(Compression::None, std::slice::from_ref(&text), text.len()), None);
    }

    #[test]
    fn noise_stays_raw() {
        for compression in ["lz4", "zstd", "zstd:19"] {
            for len in [1, 511, 4096, 131_072] {
                assert_eq!(compress(compression.parse().unwrap(), &[noise(len)], len), None);
            }
        }
    }

    #[test]
    fn higher_levels_pack_harder() {
        // Words in an order without a period.
        let noise = noise(64 << 10);
        let text: Bytes =
            noise.iter().flat_map(|byte| format!("{} of {} ", byte % 61, byte % 7).into_bytes()).collect();
        let text = text.slice(..128 << 10);
        let len = |compression: &str| {
            let packed = compress(compression.parse().unwrap(), std::slice::from_ref(&text), text.len()).unwrap();
            assert_eq!(packed.codec == Codec::Zstd, compression != "lz4");
            packed.bytes.len()
        };
        let lens = ["lz4", "zstd:1", "zstd:9", "zstd:19"].map(len);
        assert!(lens.is_sorted_by(|one, other| one > other), "{lens:?}");
        // Letters without repetition: LZ4 cannot, zstd can.
        let letters: Bytes = noise.iter().map(|byte| b'a' + byte % 16).collect();
        let packs = |compression: &str| {
            compress(compression.parse().unwrap(), std::slice::from_ref(&letters), letters.len()).is_some()
        };
        assert_eq!(["lz4", "zstd:9"].map(packs), [false, true]);
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
