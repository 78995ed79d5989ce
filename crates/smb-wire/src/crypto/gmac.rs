//! AES-128-GMAC (NIST SP 800-38D) of a message that lies in pieces.
//!
//! Through aws-lc's EVP interface, which takes associated data piece by
//! piece: the AEAD interface of aws-lc-rs wants it in one slice, and joining
//! a READ response costs more than signing it does.

use std::ffi::c_int;
use std::ptr::{NonNull, null_mut};

use aws_lc_sys::{
    EVP_CIPHER_CTX, EVP_CIPHER_CTX_ctrl, EVP_CIPHER_CTX_free, EVP_CIPHER_CTX_new, EVP_CTRL_AEAD_GET_TAG,
    EVP_EncryptFinal_ex, EVP_EncryptInit_ex, EVP_EncryptUpdate, EVP_aes_128_gcm,
};

const TAG_LEN: usize = 16;

/// Computes one tag. Every call may fail, for want of memory if for nothing
/// else; then there is no tag.
pub(super) struct Gmac(NonNull<EVP_CIPHER_CTX>);

impl Gmac {
    pub(super) fn new(key: &[u8; 16], nonce: &[u8; 12]) -> Option<Self> {
        // SAFETY: takes nothing, returns a context of our own or null.
        let gmac = Self(NonNull::new(unsafe { EVP_CIPHER_CTX_new() })?);
        // SAFETY: the context is live, and AES-128-GCM reads 16 bytes of key
        // and, by default, 12 of nonce, which is what the arrays have.
        let ok =
            unsafe { EVP_EncryptInit_ex(gmac.0.as_ptr(), EVP_aes_128_gcm(), null_mut(), key.as_ptr(), nonce.as_ptr()) };
        (ok == 1).then_some(gmac)
    }

    /// Adds `piece` to the message.
    pub(super) fn update(&mut self, piece: &[u8]) -> Option<()> {
        let len = c_int::try_from(piece.len()).ok()?;
        if len == 0 {
            return Some(());
        }
        let mut written: c_int = 0;
        // SAFETY: the context is live, `piece` is readable for `len` bytes,
        // and without an output buffer the bytes are associated data:
        // nothing but `written` is written.
        let ok = unsafe { EVP_EncryptUpdate(self.0.as_ptr(), null_mut(), &mut written, piece.as_ptr(), len) };
        (ok == 1).then_some(())
    }

    pub(super) fn finish(self) -> Option<[u8; TAG_LEN]> {
        let mut tag = [0u8; TAG_LEN];
        let mut rest = [0u8; TAG_LEN];
        let mut written: c_int = 0;
        // SAFETY: the context is live; GCM has no last block to write, and
        // any cipher's would fit `rest`.
        let ok = unsafe { EVP_EncryptFinal_ex(self.0.as_ptr(), rest.as_mut_ptr(), &mut written) };
        if ok != 1 {
            return None;
        }
        // SAFETY: the context is live and finished; the tag's length is
        // what `tag` holds.
        let ok = unsafe {
            EVP_CIPHER_CTX_ctrl(self.0.as_ptr(), EVP_CTRL_AEAD_GET_TAG, TAG_LEN as c_int, tag.as_mut_ptr().cast())
        };
        (ok == 1).then_some(tag)
    }
}

impl Drop for Gmac {
    fn drop(&mut self) {
        // SAFETY: the context is ours and nobody uses it after this. It
        // wipes the key.
        unsafe { EVP_CIPHER_CTX_free(self.0.as_ptr()) }
    }
}
