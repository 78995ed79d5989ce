//! Contents of a bench's files: bytes that neither compress nor repeat, made at no cost, and known again when read.
//!
//! Every MiB of a file is a window into one pool of random bytes, at one of two million places that follow from
//! (seed, file, generation, number of the MiB). A client sends windows as they are, without copying; whoever reads
//! knows what must be there. Each rewriting has a generation of its own, so that no server can take it for
//! the same data again.

use bytes::Bytes;

const UNIT_BYTES: u64 = 1 << 20;
const POOL_BYTES: usize = 16 << 20;
/// Generations repeat after as many: a reader accepts each of them.
pub(super) const GENERATIONS: u64 = 4;
/// Alignment of the borders between writes of different times.
pub(super) const SEAM_BYTES: u64 = 8;
/// A reader looks at this many bytes...
const SAMPLE_BYTES: usize = 16;
/// ... at the beginning of each of these, and at the end.
const SAMPLE_EVERY: usize = 64 << 10;
/// Compressible data is random and zero by turns of this length: half its size for whatever compresses at all.
const TURN_BYTES: usize = 2048;

pub(super) struct Contents {
    pool: Bytes,
    seed: u64,
    /// All that is read is compared, not just samples.
    thorough: bool,
}

pub(super) fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

impl Contents {
    pub fn new(seed: u64, compressible: bool, thorough: bool) -> Self {
        let words = (POOL_BYTES + UNIT_BYTES as usize) / 8;
        let mut pool = Vec::with_capacity(words * 8);
        let mut x = mix(seed);
        for _ in 0..words {
            // A full-period counter through a good mixer: random enough for any compressor.
            x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
            pool.extend_from_slice(&mix(x).to_le_bytes());
        }
        if compressible {
            pool.chunks_mut(TURN_BYTES).skip(1).step_by(2).for_each(|turn| turn.fill(0));
        }
        Self { pool: pool.into(), seed, thorough }
    }

    /// A number that identifies a block wherever it is written.
    pub fn stamp(&self, file: u64, generation: u64, number: u64) -> u64 {
        mix(self.seed ^ mix(file.wrapping_mul(GENERATIONS) + generation % GENERATIONS) ^ mix(number))
    }

    fn range(&self, file: u64, generation: u64, offset: u64, len_max: usize) -> std::ops::Range<usize> {
        let window = self.stamp(file, generation, offset / UNIT_BYTES) as usize % (POOL_BYTES / 8) * 8;
        let inside = (offset % UNIT_BYTES) as usize;
        let len = len_max.min(UNIT_BYTES as usize - inside);
        window + inside..window + inside + len
    }

    /// The bytes that belong at `offset`: at most `len_max`, fewer where a MiB ends.
    pub fn piece(&self, file: u64, generation: u64, offset: u64, len_max: usize) -> Bytes {
        self.pool.slice(self.range(file, generation, offset, len_max))
    }

    /// Any length, in one buffer.
    #[cfg(test)]
    pub fn copy(&self, file: u64, generation: u64, offset: u64, len: usize) -> Vec<u8> {
        let mut out = Vec::with_capacity(len);
        while out.len() < len {
            let at = self.range(file, generation, offset + out.len() as u64, len - out.len());
            out.extend_from_slice(&self.pool[at]);
        }
        out
    }

    /// The first byte (in the file) that is not what was written, going by samples.
    pub fn first_wrong(&self, file: u64, offset: u64, data: &[u8]) -> Option<u64> {
        let step = if self.thorough { SAMPLE_BYTES } else { SAMPLE_EVERY };
        let last = data.len().saturating_sub(SAMPLE_BYTES);
        let wrong = |at: usize| {
            let sample = &data[at..data.len().min(at + SAMPLE_BYTES)];
            !self.is_known(file, offset + at as u64, sample)
        };
        (0..data.len())
            .step_by(step)
            .chain((!data.is_empty()).then_some(last))
            .find(|at| wrong(*at))
            .map(|at| offset + at as u64)
    }

    /// A sample over the end of a MiB, or of a block that was written again, is of two pieces.
    fn is_known(&self, file: u64, offset: u64, sample: &[u8]) -> bool {
        let whole = |at: u64, data: &[u8]| {
            let is = |generation| self.pool.get(self.range(file, generation, at, data.len())) == Some(data);
            (0..GENERATIONS).any(is)
        };
        let split = |at: usize| {
            let (head, tail) = sample.split_at(at);
            whole(offset, head) && whole(offset + at as u64, tail)
        };
        // Blocks are multiples of eight bytes: one wrong byte alone is hardly ever taken for another generation's.
        let seam = |at: &usize| (offset + *at as u64).is_multiple_of(SEAM_BYTES);
        whole(offset, sample) || (1..sample.len()).filter(seam).any(split)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_known_again_and_nothing_else() {
        let contents = Contents::new(7, false, true);
        let offset = UNIT_BYTES - 1000;
        let mut data = contents.copy(3, 1, offset, 300_000);
        assert_eq!(contents.first_wrong(3, offset, &data), None);
        assert_eq!(contents.first_wrong(4, offset, &data), Some(offset), "another file");
        assert_eq!(contents.first_wrong(3, offset + 8, &data), Some(offset + 8), "another place");
        data[70_001] ^= 1;
        assert_eq!(contents.first_wrong(3, offset, &data), Some(offset + 70_000));
        let short = contents.copy(3, 2, 5, 7);
        assert_eq!(contents.first_wrong(3, 5, &short), None);
        assert_eq!(contents.first_wrong(3, 0, &[]), None);
    }

    #[test]
    fn blocks_of_several_generations_are_all_known() {
        let contents = Contents::new(7, false, true);
        let mut data = contents.copy(3, 0, 0, 100_000);
        for (at, generation) in [(4096, 1), (8192, 3), (50_000, 2)] {
            data.splice(at..at + 4096, contents.copy(3, generation, at as u64, 4096));
        }
        // Samples begin wherever a piece does.
        for from in [0, 1, 4090, 4095, 8000, 49_995, 50_000] {
            assert_eq!(contents.first_wrong(3, from as u64, &data[from..]), None, "{from}");
        }
        data[4096 + 4095] ^= 1;
        assert!(contents.first_wrong(3, 0, &data).is_some());
    }

    #[test]
    fn pieces_end_where_a_window_ends_and_agree_with_copies() {
        let contents = Contents::new(1, false, false);
        let piece = contents.piece(0, 0, UNIT_BYTES - 10, 4096);
        assert_eq!(piece.len(), 10);
        assert_eq!(contents.copy(0, 0, UNIT_BYTES - 10, 4096)[..10], piece[..]);
    }

    #[test]
    fn data_compresses_only_when_asked() {
        let zeros = |compressible| {
            let data = Contents::new(1, compressible, false).copy(0, 0, 0, 1 << 20);
            data.iter().filter(|b| **b == 0).count()
        };
        assert!(zeros(false) < 5000);
        assert!(zeros(true) > 500_000);
    }
}
