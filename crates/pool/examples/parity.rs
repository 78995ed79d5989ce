//! Parity, ours beside reed-solomon-simd: GB/s of data encoded, and of one lost unit rebuilt.
//!
//!     cargo run --release --example parity      (ARCHITECTURE.md has the figures under "Decisions")
//!
//! Both get 32 KiB of each unit at a time, as the pool's writer does, from units that do not fit in the caches.

use std::hint::black_box;
use std::time::Instant;

use larder_pool::parity;

const UNIT_BYTES: usize = 1 << 20;
const BLOCK_BYTES: usize = 32 << 10;
const STRIPES: usize = 8;
const ROUNDS: usize = 5;

fn main() -> Result<(), reed_solomon_simd::Error> {
    println!(" k  m   encode: ours  theirs   rebuild: ours  theirs   GB/s of data");
    for (k, m) in [(2, 1), (2, 2), (4, 1), (4, 2), (8, 2), (8, 3), (16, 3)] {
        let data: Vec<Vec<u8>> = (0..k * STRIPES).map(|unit| noise(unit as u64)).collect();
        let ours = best(k, || encode(&data, k, m));
        let mut encoder = reed_solomon_simd::ReedSolomonEncoder::new(k, m, BLOCK_BYTES)?;
        let theirs = best(k, || {
            each_block(&data, k, |blocks| {
                for block in blocks {
                    let _ = black_box(encoder.add_original_shard(block));
                }
                let _ = black_box(encoder.encode().map(|rows| rows.recovery_iter().count()));
            });
        });
        let ours_back = best(k, || rebuild(&data, k));
        let theirs_back = rebuild_theirs(&data, k, m)?;
        println!("{k:2} {m:2} {ours:14.1} {theirs:7.1} {ours_back:15.1} {theirs_back:7.1}");
    }
    Ok(())
}

fn noise(seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let step = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    std::iter::repeat_with(step).take(UNIT_BYTES).collect()
}

/// The best rate of some rounds: others use the machine too.
fn best(k: usize, mut work: impl FnMut()) -> f64 {
    let seconds = (0..ROUNDS).map(|_| {
        let start = Instant::now();
        work();
        start.elapsed().as_secs_f64()
    });
    (k * STRIPES * UNIT_BYTES) as f64 / seconds.fold(f64::MAX, f64::min) / 1e9
}

fn each_block(data: &[Vec<u8>], k: usize, mut work: impl FnMut(&[&[u8]])) {
    for stripe in data.chunks(k) {
        for from in (0..UNIT_BYTES).step_by(BLOCK_BYTES) {
            let blocks: Vec<&[u8]> = stripe.iter().map(|unit| &unit[from..from + BLOCK_BYTES]).collect();
            work(&blocks);
        }
    }
}

fn encode(data: &[Vec<u8>], k: usize, m: usize) {
    let mut rows = vec![vec![0u8; BLOCK_BYTES]; m];
    each_block(data, k, |blocks| {
        rows.iter_mut().for_each(|row| row.fill(0));
        for block in blocks {
            rows.iter_mut().enumerate().for_each(|(at, row)| parity::step(row, block, at));
        }
        black_box(&rows);
    });
}

/// Unit 0 from the others and row 0.
fn rebuild(data: &[Vec<u8>], k: usize) {
    let row = vec![7u8; BLOCK_BYTES];
    each_block(data, k, |blocks| {
        let mut have: Vec<(usize, &[u8])> = blocks.iter().copied().enumerate().skip(1).collect();
        have.push((k, &row));
        black_box(parity::reconstruct(k, 0, &have));
    });
}

fn rebuild_theirs(data: &[Vec<u8>], k: usize, m: usize) -> Result<f64, reed_solomon_simd::Error> {
    let mut decoder = reed_solomon_simd::ReedSolomonDecoder::new(k, m, BLOCK_BYTES)?;
    let row = vec![7u8; BLOCK_BYTES];
    Ok(best(k, || {
        each_block(data, k, |blocks| {
            for (at, block) in blocks.iter().enumerate().skip(1) {
                let _ = black_box(decoder.add_original_shard(at, block));
            }
            let _ = black_box(decoder.add_recovery_shard(0, &row));
            let _ = black_box(decoder.decode().map(|units| units.restored_original_iter().count()));
        });
    }))
}
