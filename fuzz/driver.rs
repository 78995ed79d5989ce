// A small fuzzer for the stable compiler: the corpus first, then mutations of it from a printed seed.
//
// Included by the tests of each crate that has entry functions (`fuzz.rs` there); cargo-fuzz drives the same functions
// with coverage (see `fuzz/README.md`).

use std::path::PathBuf;
use std::time::{Duration, Instant};

/// For each target; about fifty of them make thirty seconds.
const BUDGET_MS: u64 = 600;
/// What a length field of 32 bits taken at its word would allocate.
const MEMORY_BYTES_MAX: u64 = 3 << 30;
const INPUT_BYTES_MAX: usize = 64 << 10;

/// xorshift64*: no dependency, the same everywhere.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }
}

/// Runs `entry` on the corpus of `name` and on `seeds`, then on mutations of them.
pub fn drive(name: &str, seeds: &[Vec<u8>], entry: fn(&[u8])) {
    let mut inputs = corpus(name, seeds);
    let before = memory_peak();
    for input in &inputs {
        check(name, 0, input, entry);
    }
    let seed = number("LARDER_FUZZ_SEED").unwrap_or_else(|| {
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(1, |since| since.as_nanos() as u64)
    }) | 1;
    eprintln!("fuzz {name}: LARDER_FUZZ_SEED={seed}, {} inputs in the corpus", inputs.len());
    let end = Instant::now() + Duration::from_millis(number("LARDER_FUZZ_MS").unwrap_or(BUDGET_MS));
    let mut random = Random(seed);
    inputs.push(Vec::new());
    while Instant::now() < end {
        for _ in 0..64 {
            let input = mutate(&inputs, &mut random);
            check(name, seed, &input, entry);
        }
    }
    let grown = memory_peak().saturating_sub(before);
    assert!(grown < MEMORY_BYTES_MAX, "fuzz {name}: LARDER_FUZZ_SEED={seed} asked for {grown} bytes of memory");
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// What is committed, and what the test makes itself; LARDER_FUZZ_WRITE=1 commits the latter.
fn corpus(name: &str, seeds: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(name);
    if std::env::var_os("LARDER_FUZZ_WRITE").is_some() {
        std::fs::create_dir_all(&folder).expect("the corpus");
        for (n, seed) in seeds.iter().enumerate() {
            std::fs::write(folder.join(format!("made-{n}")), seed).expect("the corpus");
        }
    }
    let mut files: Vec<PathBuf> = std::fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("{}: {error}; make it with LARDER_FUZZ_WRITE=1", folder.display()))
        .map(|entry| entry.expect("the corpus").path())
        .collect();
    files.sort();
    assert!(!files.is_empty(), "{} is empty", folder.display());
    files.into_iter().map(|file| std::fs::read(file).expect("the corpus")).chain(seeds.iter().cloned()).collect()
}

/// A panic is told with what it takes to have it again.
fn check(name: &str, seed: u64, input: &[u8], entry: fn(&[u8])) {
    if let Err(panic) = std::panic::catch_unwind(|| entry(input)) {
        let hex: String = input.iter().map(|byte| format!("{byte:02x}")).collect();
        eprintln!("fuzz {name}: LARDER_FUZZ_SEED={seed} fails on {} bytes: {hex}", input.len());
        std::panic::resume_unwind(panic);
    }
}

fn mutate(inputs: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    let mut bytes = inputs[random.below(inputs.len())].clone();
    for _ in 0..=random.below(4) {
        let at = random.below(bytes.len());
        match random.below(8) {
            0 if !bytes.is_empty() => bytes[at] ^= 1 << random.below(8),
            1 if !bytes.is_empty() => bytes[at] = random.next() as u8,
            // Numbers at the edges, of each width.
            2 | 3 if !bytes.is_empty() => {
                let edge = [0, 1, 0x7F, 0x80, 0xFF, u64::MAX, 1 << 31, 1 << 63, u64::from(u32::MAX)][random.below(9)];
                let width = 1 << random.below(4);
                let (little, big) = (edge.to_le_bytes(), edge.to_be_bytes());
                let number = if random.below(2) == 0 { &little[..width] } else { &big[8 - width..] };
                for (place, byte) in bytes[at..].iter_mut().zip(number) {
                    *place = *byte;
                }
            }
            4 => bytes.truncate(at),
            5 => {
                let more = random.below(24);
                let extra: Vec<u8> = (0..more).map(|_| random.next() as u8).collect();
                bytes.splice(at..at, extra);
            }
            6 => {
                // A piece of another input.
                let other = &inputs[random.below(inputs.len())];
                let from = random.below(other.len());
                let piece = &other[from..other.len().min(from + random.below(64))];
                let end = bytes.len().min(at + piece.len());
                bytes.splice(at.min(end)..end, piece.iter().copied());
            }
            _ => {
                let to = bytes.len().min(at + random.below(32));
                let piece: Vec<u8> = bytes[at.min(to)..to].to_vec();
                bytes.splice(at..at, piece);
            }
        }
        bytes.truncate(INPUT_BYTES_MAX);
    }
    bytes
}

/// The most address space this process has had: what is asked for counts, used or not.
fn memory_peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmPeak:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").trim().parse::<u64>().ok()).map_or(0, |kib| kib << 10)
}
