//! SMB2/3 message signing per MS-SMB2 §3.1.4.1.
//!
//! Three algorithms are supported:
//! 1. **HMAC-SHA-256** for SMB 2.0.2 / 2.1.
//! 2. **AES-CMAC** for SMB 3.0+.
//! 3. **AES-GMAC** for SMB 3.1.1, when the client offers it: the one whose
//!    blocks do not wait for each other.
//!
//! All produce a 16-byte signature that lives at bytes 48..64 of the SMB2
//! header (the `Signature` field, MS-SMB2 §2.2.1.2).
//!
//! Algorithm:
//! 1. Zero out bytes 48..64 of the message.
//! 2. Compute MAC over the **entire** message (header + body).
//! 3. Place the first 16 bytes of MAC at bytes 48..64.

use aws_lc_rs::cmac as aes_cmac;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::crypto::gmac::Gmac;
use crate::error::{ProtoError, ProtoResult};

type HmacSha256 = Hmac<Sha256>;

/// SMB2 header is 64 bytes; the 16-byte signature field starts at offset 48.
const SIG_OFF: usize = 48;
const SIG_LEN: usize = 16;
const SMB2_HEADER_LEN: usize = 64;

/// Which signing algorithm to use for a given session/dialect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SigningAlgo {
    /// HMAC-SHA-256, used by SMB 2.x.
    HmacSha256,
    /// AES-CMAC over AES-128, used by SMB 3.0+.
    AesCmac,
    /// AES-128-GMAC, negotiated by SMB 3.1.1.
    AesGmac,
}

/// The GMAC nonce of MS-SMB2 3.1.4.1: MessageId, whether the server sent the
/// message, and whether it is a CANCEL.
fn gmac_nonce(header: &[u8]) -> [u8; 12] {
    const CANCEL: u8 = 0x0C;
    let mut nonce = [0u8; 12];
    nonce[..8].copy_from_slice(&header[24..32]);
    nonce[8] = (header[16] & 1) | u8::from(header[12] == CANCEL) << 1;
    nonce
}

/// The MAC over a message in pieces: `head`, which holds the whole SMB2
/// header and whose signature field counts as zero, then `rest`. `None` when
/// the cryptographic library fails.
#[allow(clippy::redundant_slicing, reason = "it shortens the lifetime to the head's")]
fn compute_mac<'a>(
    head: &[u8],
    rest: impl Iterator<Item = &'a [u8]>,
    key: &[u8; 16],
    algo: SigningAlgo,
) -> Option<[u8; SIG_LEN]> {
    const UNSIGNED: [u8; SIG_LEN] = [0; SIG_LEN];
    let pieces =
        [&head[..SIG_OFF], &UNSIGNED, &head[SIG_OFF + SIG_LEN..]].into_iter().chain(rest.map(|piece| &piece[..]));
    match algo {
        SigningAlgo::HmacSha256 => {
            let mut mac = HmacSha256::new_from_slice(key).ok()?;
            pieces.for_each(|piece| mac.update(piece));
            mac.finalize().into_bytes()[..SIG_LEN].try_into().ok()
        }
        SigningAlgo::AesCmac => {
            let key = aes_cmac::Key::new(aes_cmac::AES_128, key).ok()?;
            let mut mac = aes_cmac::Context::with_key(&key);
            for piece in pieces {
                mac.update(piece).ok()?;
            }
            mac.sign().ok()?.as_ref().try_into().ok()
        }
        SigningAlgo::AesGmac => {
            let mut mac = Gmac::new(key, &gmac_nonce(head))?;
            for piece in pieces {
                mac.update(piece)?;
            }
            mac.finish()
        }
    }
}

/// Compute the signature of the message that begins with `head` and goes on
/// with `rest`, and embed it in `head`.
///
/// The caller is responsible for setting the SMB2 SIGNED flag (`0x00000008`)
/// on the header *before* calling - it is part of the bytes that get MAC'd.
///
/// Errors if `head` is too short to contain an SMB2 header (< 64 bytes).
pub fn sign_pieces<'a>(
    head: &mut [u8],
    rest: impl Iterator<Item = &'a [u8]>,
    key: &[u8; 16],
    algo: SigningAlgo,
) -> ProtoResult<()> {
    if head.len() < SMB2_HEADER_LEN {
        return Err(ProtoError::Crypto("message too short to sign"));
    }
    let mac = compute_mac(head, rest, key, algo).ok_or(ProtoError::Crypto("signing failed"))?;
    head[SIG_OFF..SIG_OFF + SIG_LEN].copy_from_slice(&mac);
    Ok(())
}

/// Like [`sign_pieces`], for a message in one piece.
pub fn sign(msg: &mut [u8], key: &[u8; 16], algo: SigningAlgo) -> ProtoResult<()> {
    sign_pieces(msg, std::iter::empty(), key, algo)
}

/// Verify the signature in `msg`. Does **not** modify `msg`.
///
/// Uses constant-time comparison. Returns `Ok(())` if the embedded signature
/// matches the freshly computed MAC.
pub fn verify(msg: &[u8], key: &[u8; 16], algo: SigningAlgo) -> ProtoResult<()> {
    if msg.len() < SMB2_HEADER_LEN {
        return Err(ProtoError::Crypto("message too short to verify"));
    }

    // Capture the embedded signature.
    let mut embedded = [0u8; SIG_LEN];
    embedded.copy_from_slice(&msg[SIG_OFF..SIG_OFF + SIG_LEN]);

    let computed =
        compute_mac(msg, std::iter::empty(), key, algo).ok_or(ProtoError::Crypto("signature not computed"))?;

    if constant_time_eq(&embedded, &computed) { Ok(()) } else { Err(ProtoError::Crypto("signature mismatch")) }
}

/// Constant-time comparison of two 16-byte arrays.
#[inline]
fn constant_time_eq(a: &[u8; SIG_LEN], b: &[u8; SIG_LEN]) -> bool {
    let mut diff: u8 = 0;
    for i in 0..SIG_LEN {
        diff |= a[i] ^ b[i];
    }
    diff == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Build a 100-byte message: a plausible 64-byte SMB2 header followed by
    /// 36 bytes of body. The signature region (bytes 48..64) is left zero;
    /// `sign` will overwrite it.
    fn fixture_message() -> Vec<u8> {
        let mut msg = vec![0u8; 100];
        // Magic: 0xFE 'S' 'M' 'B'
        msg[0..4].copy_from_slice(&[0xFE, b'S', b'M', b'B']);
        // StructureSize = 64
        msg[4..6].copy_from_slice(&64u16.to_le_bytes());
        // Pretend ChannelSequence = 0
        msg[6..8].copy_from_slice(&0u16.to_le_bytes());
        // Command = NEGOTIATE (0)
        msg[12..14].copy_from_slice(&0u16.to_le_bytes());
        // Flags: SIGNED (0x00000008)
        msg[16..20].copy_from_slice(&0x0000_0008u32.to_le_bytes());
        // Body filler
        for (i, b) in msg[64..].iter_mut().enumerate() {
            *b = (i as u8).wrapping_mul(7);
        }
        msg
    }

    #[test]
    fn sign_and_verify_hmac_sha256() {
        let key = [0xAAu8; 16];
        let mut msg = fixture_message();
        sign(&mut msg, &key, SigningAlgo::HmacSha256).expect("sign ok");

        // Signature should now be non-zero (overwhelmingly likely).
        assert_ne!(&msg[SIG_OFF..SIG_OFF + SIG_LEN], &[0u8; 16]);

        verify(&msg, &key, SigningAlgo::HmacSha256).expect("verify ok");
    }

    #[test]
    fn sign_and_verify_aes_cmac() {
        let key = [0x55u8; 16];
        let mut msg = fixture_message();
        sign(&mut msg, &key, SigningAlgo::AesCmac).expect("sign ok");
        assert_ne!(&msg[SIG_OFF..SIG_OFF + SIG_LEN], &[0u8; 16]);
        verify(&msg, &key, SigningAlgo::AesCmac).expect("verify ok");
    }

    /// GMAC is GCM of nothing, with the message as associated data.
    #[test]
    fn gmac_agrees_with_gcm() {
        use aes_gcm::aead::{AeadInOut, KeyInit};
        let key = [0x5Au8; 16];
        for len in [64, 65, 80, 100, 1000] {
            let mut msg: Vec<u8> = fixture_message().into_iter().cycle().take(len).collect();
            msg[24..32].copy_from_slice(&0x0102_0304_0506_0708u64.to_le_bytes());
            msg[16] |= 1;
            msg[48..64].fill(0);
            let mut nonce = [0u8; 12];
            nonce[..8].copy_from_slice(&msg[24..32]);
            nonce[8] = 1;
            let tag = aes_gcm::Aes128Gcm::new(&key.into())
                .encrypt_inout_detached(&nonce.into(), &msg, (&mut [][..]).into())
                .expect("gcm");
            sign(&mut msg, &key, SigningAlgo::AesGmac).expect("sign ok");
            assert_eq!(msg[48..64], tag[..]);
            verify(&msg, &key, SigningAlgo::AesGmac).expect("verify ok");
        }
    }

    /// Where a message is cut does not show in its signature.
    #[test]
    fn pieces_sign_as_the_whole_does() {
        let key = [0x5Au8; 16];
        let message: Vec<u8> = fixture_message().into_iter().cycle().take(5000).collect();
        for algo in [SigningAlgo::HmacSha256, SigningAlgo::AesCmac, SigningAlgo::AesGmac] {
            let mut whole = message.clone();
            sign(&mut whole, &key, algo).expect("sign ok");
            for (head, piece) in [(64, 1), (64, 16), (80, 4096), (77, 333), (5000, 1)] {
                let (start, rest) = message.split_at(head);
                let mut start = start.to_vec();
                sign_pieces(&mut start, rest.chunks(piece), &key, algo).expect("sign ok");
                assert_eq!(start[SIG_OFF..64], whole[SIG_OFF..64], "{algo:?} {head} {piece}");
            }
        }
    }

    /// AES-CMAC as another implementation has it (RFC 4493's is in `cmac`).
    #[test]
    fn cmac_agrees_with_another() {
        use cmac::{KeyInit, Mac};
        let key = [0x5Au8; 16];
        for len in [64, 65, 80, 1000] {
            let mut msg: Vec<u8> = fixture_message().into_iter().cycle().take(len).collect();
            msg[SIG_OFF..64].fill(0);
            let mut mac = cmac::Cmac::<aes::Aes128>::new_from_slice(&key).expect("key");
            mac.update(&msg);
            sign(&mut msg, &key, SigningAlgo::AesCmac).expect("sign ok");
            assert_eq!(msg[SIG_OFF..64], mac.finalize().into_bytes()[..]);
        }
    }

    #[test]
    fn tamper_outside_sig_fails_verify_hmac() {
        let key = [0xAAu8; 16];
        let mut msg = fixture_message();
        sign(&mut msg, &key, SigningAlgo::HmacSha256).expect("sign ok");

        // Flip one body byte.
        msg[80] ^= 0x01;
        let res = verify(&msg, &key, SigningAlgo::HmacSha256);
        assert!(matches!(res, Err(ProtoError::Crypto(_))));
    }

    #[test]
    fn tamper_outside_sig_fails_verify_cmac() {
        let key = [0x55u8; 16];
        let mut msg = fixture_message();
        sign(&mut msg, &key, SigningAlgo::AesCmac).expect("sign ok");

        // Flip a header byte (not in the sig region).
        msg[10] ^= 0xFF;
        let res = verify(&msg, &key, SigningAlgo::AesCmac);
        assert!(matches!(res, Err(ProtoError::Crypto(_))));
    }

    #[test]
    fn tamper_signature_fails_verify() {
        let key = [0xAAu8; 16];
        let mut msg = fixture_message();
        sign(&mut msg, &key, SigningAlgo::HmacSha256).expect("sign ok");
        msg[SIG_OFF] ^= 0x01;
        let res = verify(&msg, &key, SigningAlgo::HmacSha256);
        assert!(matches!(res, Err(ProtoError::Crypto(_))));
    }

    #[test]
    fn wrong_key_fails_verify() {
        let key = [0xAAu8; 16];
        let bad_key = [0xBBu8; 16];
        let mut msg = fixture_message();
        sign(&mut msg, &key, SigningAlgo::HmacSha256).expect("sign ok");
        let res = verify(&msg, &bad_key, SigningAlgo::HmacSha256);
        assert!(matches!(res, Err(ProtoError::Crypto(_))));
    }

    #[test]
    fn too_short_message_errors() {
        let mut tiny = [0u8; 10];
        let key = [0u8; 16];
        let res = sign(&mut tiny, &key, SigningAlgo::HmacSha256);
        assert!(matches!(res, Err(ProtoError::Crypto(_))));
        let res = verify(&tiny, &key, SigningAlgo::HmacSha256);
        assert!(matches!(res, Err(ProtoError::Crypto(_))));
    }

    #[test]
    fn verify_does_not_mutate_message_hmac_sha256() {
        let key = [0xAAu8; 16];
        let mut msg = fixture_message();
        sign(&mut msg, &key, SigningAlgo::HmacSha256).expect("sign ok");
        let snapshot = msg.clone();
        verify(&msg, &key, SigningAlgo::HmacSha256).expect("verify ok");
        assert_eq!(msg, snapshot);
    }

    #[test]
    fn verify_does_not_mutate_message_aes_cmac() {
        let key = [0x55u8; 16];
        let mut msg = fixture_message();
        sign(&mut msg, &key, SigningAlgo::AesCmac).expect("sign ok");
        let snapshot = msg.clone();
        verify(&msg, &key, SigningAlgo::AesCmac).expect("verify ok");
        assert_eq!(msg, snapshot);
    }

    #[test]
    fn sign_ignores_existing_signature_bytes() {
        let key = [0xAAu8; 16];
        let mut clean = fixture_message();
        let mut dirty = fixture_message();
        dirty[SIG_OFF..SIG_OFF + SIG_LEN].fill(0xCC);

        sign(&mut clean, &key, SigningAlgo::HmacSha256).expect("sign clean");
        sign(&mut dirty, &key, SigningAlgo::HmacSha256).expect("sign dirty");

        assert_eq!(&clean[SIG_OFF..SIG_OFF + SIG_LEN], &dirty[SIG_OFF..SIG_OFF + SIG_LEN]);
        verify(&dirty, &key, SigningAlgo::HmacSha256).expect("verify dirty");
    }
}
