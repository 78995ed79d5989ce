//! Encryption of a volume, as decorators: [`SealedStore`] around its object store and [`SealedLog`] around its log.
//!
//! Neither the volume above nor the pool below knows of it. The pool stores, scrubs and repairs objects that it cannot read; a
//! replica of a volume needs no key.
//!
//! - `crypt.nothing_in_clear`: every byte of a volume's objects and of its log entries is sealed by an AEAD cipher. In clear are the
//!   headers ([`object`], [`log`]): a format, a cipher, the number of a key and a random salt.
//! - `crypt.fresh_key`: each object, and each session of a log, has a key of its own, derived from the volume's key and 32 random
//!   bytes. A key stream is never used twice, whatever is rolled back, cloned or restored: nothing counts on from an earlier state.
//! - `crypt.bound_to_place`: the derivation also takes the volume's domain and the object's path within it. Nothing sealed can be
//!   passed off as another object, frame, log entry or volume.
//! - `crypt.whole_or_error`: each frame is authenticated with its number and with whether it is the last. A frame that was changed,
//!   moved, left out or added, and an object that was cut short or extended, is an error and never data.
//!
//! What an attacker with the disks still sees: sizes, numbers and times of objects, and which of them are metadata. What this cannot
//! notice: one object put back whole as it was at an earlier time under the same path. See `docs/encryption.md`.

mod cipher;
mod failure;
mod frames;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
#[cfg(test)]
mod golden_tests;
mod half;
mod keyring;
mod keys;
pub mod log;
pub mod object;
mod recovery;
mod reseal;
mod store;
mod upload;

pub use cipher::Cipher;
pub use half::HalfSealed;
pub use keyring::{Keyring, KeyringError, Master, Renewal, Secret, Slot, SlotKind, Work};
pub use keys::{Keys, Random, SystemRandom, VolumeKey};
pub use log::SealedLog;
pub use recovery::RecoveryKey;
pub use reseal::{Passed, Progress, Resealing};
pub use store::SealedStore;

/// Why sealed bytes could not be opened, or not be sealed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    #[error("it is not sealed: it has no header of an encrypted object")]
    NotSealed,
    #[error("it is sealed in a format that this larder does not know ({0}): a newer larder is needed")]
    UnknownFormat(u8),
    #[error("it is sealed with volume key {0}, which is not among the keys that were unlocked")]
    UnknownKey(u32),
    #[error("it does not authenticate: it was changed, cut, or belongs somewhere else")]
    Forged,
    #[error("the system gives no random bytes")]
    NoRandomness,
}
