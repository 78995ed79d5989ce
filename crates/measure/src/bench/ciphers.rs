//! The rates at which one core of this machine encrypts: the price of a cipher depends on the processor first.
//!
//! The same library as below TLS, SSH and SMB here. What a kernel does (dm-crypt) is as fast where both use the processor's
//! own instructions for AES, and as slow where there are none.

use std::time::{Duration, Instant};

use aws_lc_rs::aead::{AES_128_GCM, AES_256_GCM, Aad, Algorithm, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};

use super::result::{CipherRate, Note};
use super::show::units::rate;
use larder_load::Control;

const CIPHERS: [(&str, &Algorithm); 3] =
    [("AES-128-GCM", &AES_128_GCM), ("AES-256-GCM", &AES_256_GCM), ("ChaCha20-Poly1305", &CHACHA20_POLY1305)];
/// A record, as storage encrypts it.
const RECORD_BYTES: usize = 128 << 10;
const REPEATS: usize = 3;
const REPEAT: Duration = Duration::from_millis(150);

/// Nothing where somebody stops it, or the library refuses.
pub(super) fn rates(control: &Control) -> Option<Vec<CipherRate>> {
    let mut found = Vec::new();
    for (name, algorithm) in CIPHERS {
        let mut rates = (0..REPEATS).map(|_| bytes_per_s(algorithm, control)).collect::<Option<Vec<f64>>>()?;
        rates.sort_by(f64::total_cmp);
        found.push(CipherRate { name: name.to_owned(), bytes_per_s: *rates.get(REPEATS / 2)? });
    }
    Some(found)
}

pub(super) fn note(found: &[CipherRate]) -> Note {
    let told: Vec<String> = found.iter().map(|one| format!("{} {}", one.name, rate(one.bytes_per_s))).collect();
    let text = format!(
        "one core of this machine encrypts in memory: {}; what is to be faster needs more cores",
        told.join(", ")
    );
    Note { code: "ciphers".to_owned(), text, misleading: false }
}

fn bytes_per_s(algorithm: &'static Algorithm, control: &Control) -> Option<f64> {
    let key = [7; 32];
    let key = LessSafeKey::new(UnboundKey::new(algorithm, key.get(..algorithm.key_len())?).ok()?);
    let mut record = vec![0x5a; RECORD_BYTES];
    let (start, mut sealed) = (Instant::now(), 0_u64);
    while start.elapsed() < REPEAT {
        if control.is_stopped() {
            return None;
        }
        // Each with a nonce of its own, as it has to be.
        let mut nonce = [0; 12];
        nonce[..8].copy_from_slice(&sealed.to_le_bytes());
        let nonce = Nonce::assume_unique_for_key(nonce);
        let _tag = key.seal_in_place_separate_tag(nonce, Aad::empty(), &mut record).ok()?;
        sealed += 1;
    }
    Some(sealed as f64 * RECORD_BYTES as f64 / start.elapsed().as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cipher_has_a_rate() {
        let patient = || Control::new(|_| ());
        let note = note(&rates(&patient()).unwrap());
        for (name, algorithm) in CIPHERS {
            assert!(note.text.contains(name), "{}", note.text);
            assert!(bytes_per_s(algorithm, &patient()).unwrap() > 1e6, "{name}");
        }
        let stopped = patient();
        stopped.stop();
        assert_eq!(rates(&stopped), None);
    }
}
