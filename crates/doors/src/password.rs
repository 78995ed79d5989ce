//! Passwords that clients send, looked at in turn.
//!
//! - `password.bounded_work`: at most [`AT_ONCE`] hashes are computed at a time, so that guesses
//!   take neither the memory nor the processors of the users. Networks take turns (`turns.one_a_network`),
//!   and a hash that has begun keeps its turn to its end.

use larder_base::{boxed, task};
use larder_people::PasswordHash;

use crate::turns::Turn;

pub const AT_ONCE: usize = 2;

/// Whether `password` is the one that was hashed. Without a hash it takes as long and says no: nobody learns from the
/// time which users there are.
#[boxed]
pub async fn verify(turn: Turn, hash: Option<PasswordHash>, password: String) -> bool {
    let work = task::blocking(move || {
        let _turn = turn;
        match hash {
            Some(hash) => hash.matches(&password),
            None => {
                // As slow as a wrong password, so that the time does not tell which names there are.
                let _ = PasswordHash::of_nobody().matches(&password);
                false
            }
        }
    });
    work.await.unwrap_or(false)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[tokio::test]
    async fn a_password_is_right_for_its_own_hash_alone() {
        let hash = PasswordHash::new("s3cret ä").unwrap();
        let turns = std::sync::Arc::new(crate::turns::Turns::new(AT_ONCE, crate::turns::WAITING_OF_NETWORK_MAX));
        let turn = async || turns.take([10, 0, 0, 1].into(), false).await.unwrap();
        assert!(verify(turn().await, Some(hash.clone()), "s3cret ä".into()).await);
        assert!(!verify(turn().await, Some(hash), "s3cret a".into()).await);
        assert!(!verify(turn().await, None, "".into()).await);
    }
}
