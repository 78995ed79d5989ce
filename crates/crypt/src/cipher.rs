//! The AEAD ciphers, and which of them this machine is quickest at.

use std::time::{Duration, Instant};

use aws_lc_rs::aead::{AES_128_GCM, AES_256_GCM, Aad, Algorithm, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};

use crate::SealError;

/// Bytes that each sealed frame is longer than its content: the authentication tag (128 bits for all ciphers).
pub const TAG_BYTES: usize = 16;

/// How a volume is encrypted. All three have 96-bit nonces and 128-bit tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cipher {
    /// AES-256 in Galois/counter mode (NIST SP 800-38D).
    #[serde(rename = "aes-256-gcm")]
    Aes256Gcm,
    #[serde(rename = "aes-128-gcm")]
    Aes128Gcm,
    /// RFC 8439: for processors without instructions for AES.
    #[serde(rename = "chacha20-poly1305")]
    ChaCha20Poly1305,
}

impl Cipher {
    pub const ALL: [Cipher; 3] = [Cipher::Aes256Gcm, Cipher::Aes128Gcm, Cipher::ChaCha20Poly1305];

    pub fn name(self) -> &'static str {
        match self {
            Cipher::Aes256Gcm => "aes-256-gcm",
            Cipher::Aes128Gcm => "aes-128-gcm",
            Cipher::ChaCha20Poly1305 => "chacha20-poly1305",
        }
    }

    pub fn of_name(name: &str) -> Option<Cipher> {
        Self::ALL.into_iter().find(|cipher| cipher.name() == name)
    }

    /// Its number on disk.
    pub(crate) fn code(self) -> u8 {
        match self {
            Cipher::Aes256Gcm => 1,
            Cipher::Aes128Gcm => 2,
            Cipher::ChaCha20Poly1305 => 3,
        }
    }

    pub(crate) fn of_code(code: u8) -> Option<Cipher> {
        Self::ALL.into_iter().find(|cipher| cipher.code() == code)
    }

    fn algorithm(self) -> &'static Algorithm {
        match self {
            Cipher::Aes256Gcm => &AES_256_GCM,
            Cipher::Aes128Gcm => &AES_128_GCM,
            Cipher::ChaCha20Poly1305 => &CHACHA20_POLY1305,
        }
    }

    pub(crate) fn key_bytes(self) -> usize {
        self.algorithm().key_len()
    }

    /// Bytes per second that one core of this machine seals in frames of 4 KiB, measured for about `time`.
    pub fn measure(self, time: Duration) -> f64 {
        let key = FrameKey::new(self, &[7; 32][..self.key_bytes()]);
        let mut frame = vec![1; 4096];
        let (began, mut sealed) = (Instant::now(), 0_u64);
        loop {
            for nonce in 0..16 {
                if key.seal(&mut frame, nonce, &[]).is_err() {
                    return 0.0;
                }
            }
            sealed += 16 * 4096;
            let taken = began.elapsed();
            if taken >= time {
                return sealed as f64 / taken.as_secs_f64();
            }
        }
    }

    /// The cipher for new volumes on this machine: AES-256-GCM unless the processor is quicker at ChaCha20-Poly1305, as those
    /// without instructions for AES are. Both are as strong.
    pub fn for_this_machine() -> Cipher {
        let time = Duration::from_millis(5);
        match Cipher::Aes256Gcm.measure(time) >= Cipher::ChaCha20Poly1305.measure(time) {
            true => Cipher::Aes256Gcm,
            false => Cipher::ChaCha20Poly1305,
        }
    }
}

impl std::fmt::Display for Cipher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// A key that seals numbered frames. The number is the nonce: whoever holds the key seals each number once.
pub(crate) struct FrameKey(LessSafeKey);

impl FrameKey {
    /// # Panics
    /// If `key` has another length than the cipher wants: derivation gives the right one.
    pub fn new(cipher: Cipher, key: &[u8]) -> Self {
        let key = UnboundKey::new(cipher.algorithm(), key).expect("a derived key has its cipher's length");
        Self(LessSafeKey::new(key))
    }

    /// Encrypts `content` in place and returns its tag.
    pub fn seal(&self, content: &mut [u8], nonce: u128, aad: &[u8]) -> Result<[u8; TAG_BYTES], SealError> {
        let tag = self.0.seal_in_place_separate_tag(nonce_of(nonce), Aad::from(aad), content);
        let tag = tag.map_err(|_| SealError::Forged)?;
        tag.as_ref().try_into().map_err(|_| SealError::Forged)
    }

    /// Decrypts `sealed` with its `tag` into `content`, which has the same length.
    pub fn open(
        &self,
        sealed: &[u8],
        tag: &[u8],
        nonce: u128,
        aad: &[u8],
        content: &mut [u8],
    ) -> Result<(), SealError> {
        self.0
            .open_separate_gather(nonce_of(nonce), Aad::from(aad), sealed, tag, content)
            .map_err(|_| SealError::Forged)
    }
}

/// The low 96 bits, big-endian.
fn nonce_of(number: u128) -> Nonce {
    let bytes = number.to_be_bytes();
    let mut nonce = [0; 12];
    nonce.copy_from_slice(&bytes[4..]);
    Nonce::assume_unique_for_key(nonce)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(text: &str) -> Vec<u8> {
        (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).expect("hex")).collect()
    }

    fn check(cipher: Cipher, key: &str, nonce: &str, aad: &str, plain: &str, sealed: &str, tag: &str) {
        let nonce = u128::from_str_radix(nonce, 16).expect("hex");
        let key = FrameKey::new(cipher, &hex(key));
        let mut content = hex(plain);
        assert_eq!(key.seal(&mut content, nonce, &hex(aad)).expect("seals").to_vec(), hex(tag), "{cipher}");
        assert_eq!(content, hex(sealed), "{cipher}");
        let mut opened = vec![0; content.len()];
        key.open(&content, &hex(tag), nonce, &hex(aad), &mut opened).expect("opens");
        assert_eq!(opened, hex(plain));
    }

    /// The GCM specification (McGrew and Viega), test cases 4 and 16; RFC 8439, 2.8.2.
    #[test]
    fn known_answers() {
        let plain = "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a721c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b39";
        let aad = "feedfacedeadbeeffeedfacedeadbeefabaddad2";
        check(
            Cipher::Aes128Gcm,
            "feffe9928665731c6d6a8f9467308308",
            "cafebabefacedbaddecaf888",
            aad,
            plain,
            "42831ec2217774244b7221b784d0d49ce3aa212f2c02a4e035c17e2329aca12e21d514b25466931c7d8f6a5aac84aa051ba30b396a0aac973d58e091",
            "5bc94fbc3221a5db94fae95ae7121a47",
        );
        check(
            Cipher::Aes256Gcm,
            "feffe9928665731c6d6a8f9467308308feffe9928665731c6d6a8f9467308308",
            "cafebabefacedbaddecaf888",
            aad,
            plain,
            "522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa8cb08e48590dbb3da7b08b1056828838c5f61e6393ba7a0abcc9f662",
            "76fc6ece0f4e1768cddf8853bb2d551b",
        );
        check(
            Cipher::ChaCha20Poly1305,
            "808182838485868788898a8b8c8d8e8f909192939495969798999a9b9c9d9e9f",
            "070000004041424344454647",
            "50515253c0c1c2c3c4c5c6c7",
            "4c616469657320616e642047656e746c656d656e206f662074686520636c617373206f66202739393a204966204920636f756c64206f6666657220796f75206f6e6c79206f6e652074697020666f7220746865206675747572652c2073756e73637265656e20776f756c642062652069742e",
            "d31a8d34648e60db7b86afbc53ef7ec2a4aded51296e08fea9e2b5a736ee62d63dbea45e8ca9671282fafb69da92728b1a71de0a9e060b2905d6a5b67ecd3b3692ddbd7f2d778b8c9803aee328091b58fab324e4fad675945585808b4831d7bc3ff4def08e4b7a9de576d26586cec64b6116",
            "1ae10b594f09e26a7e902ecbd0600691",
        );
    }

    #[test]
    fn names_and_codes_lead_back() {
        for cipher in Cipher::ALL {
            assert_eq!(Cipher::of_name(cipher.name()), Some(cipher));
            assert_eq!(Cipher::of_code(cipher.code()), Some(cipher));
            assert_eq!(serde_json::to_string(&cipher).expect("json"), format!("\"{cipher}\""));
        }
        assert_eq!(Cipher::of_code(0), None);
    }
}
