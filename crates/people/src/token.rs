//! App tokens: random words that a program logs in with in place of its user's password.
//!
//! - `token.fast_keyed_hash`: of a token only HMAC-SHA-256 under a key of the data folder is kept.
//!   A slow hash makes guesses expensive; a token has 256 random bits and is not guessed, so a slow
//!   hash would only make every request of WebDAV expensive. The key makes the hashes worthless to
//!   a reader of their file alone.
//! - `token.narrows`: a token grants nothing that its user may not do. It may be for one share, for
//!   reading alone, and for a time.
//! - `token.looked_up_each_time`: WebDAV looks the token of every request up, and SFTP cuts the
//!   connections of a token that was revoked or is over. So a revoked token ends with the next
//!   request.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use aws_lc_rs::hmac;
use larder_base::hex;
use rand::TryRngCore;
use rand::rngs::OsRng;

/// Every token begins with this, so that a person and a scanner for leaked secrets know one.
pub const PREFIX: &str = "larder_";
/// 256 bits.
const RANDOM_BYTES: usize = 32;
const TOKEN_CHARS: usize = PREFIX.len() + 2 * RANDOM_BYTES;

/// The hash of a token.
pub type Tag = [u8; 32];

/// A new token (`token.fast_keyed_hash`). `None`: the system gives no random numbers.
pub fn new_token() -> Option<String> {
    let mut bytes = [0; RANDOM_BYTES];
    OsRng.try_fill_bytes(&mut bytes).ok()?;
    Some(format!("{PREFIX}{}", hex::encode(&bytes)))
}

/// The key under which tokens are hashed.
#[derive(Clone)]
pub struct TokenKey(hmac::Key);

impl TokenKey {
    /// From secret bytes that are the same at every start.
    pub fn new(bytes: &[u8; 32]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, bytes))
    }

    /// The hash of a token; `None`: the text has not the form of one.
    pub fn tag(&self, text: &str) -> Option<Tag> {
        let is_token = text.len() == TOKEN_CHARS && text.starts_with(PREFIX);
        is_token.then(|| hmac::sign(&self.0, text.as_bytes()).as_ref().first_chunk().copied())?
    }
}

/// The rights of one token (`token.narrows`).
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    /// Its hash.
    pub tag: Tag,
    /// The short id that people revoke it by.
    pub id: String,
    /// The user that it lets in.
    pub user: String,
    /// The only share that it opens, if it is for one.
    pub share: Option<String>,
    /// It lets nobody change anything.
    pub read_only: bool,
    /// The moment from which on it lets nobody in, since 1970.
    pub expires: Option<Duration>,
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Token({} of {})", self.id, self.user)
    }
}

impl Token {
    /// Whether its time is over.
    pub fn is_over(&self, now: SystemTime) -> bool {
        let now = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        self.expires.is_some_and(|end| end <= now)
    }
}

/// All tokens of a server, by their hashes.
#[derive(Default)]
pub struct Tokens {
    key: Option<TokenKey>,
    all: HashMap<Tag, Arc<Token>>,
}

impl Tokens {
    /// These tokens, hashed under `key`.
    pub fn new(key: TokenKey, tokens: impl IntoIterator<Item = Token>) -> Self {
        Self { key: Some(key), all: tokens.into_iter().map(|token| (token.tag, Arc::new(token))).collect() }
    }

    /// The token that `text` is, unless its time is over.
    pub fn find(&self, text: &str, now: SystemTime) -> Option<Arc<Token>> {
        let tag = self.key.as_ref()?.tag(text)?;
        self.all.get(&tag).filter(|token| !token.is_over(now)).cloned()
    }

    /// Whether the token is still one of them, with the same rights.
    pub fn has(&self, token: &Token) -> bool {
        self.all.get(&token.tag).is_some_and(|known| **known == *token)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_token_is_found_by_its_text_until_its_time_is_over() {
        let key = TokenKey::new(&[7; 32]);
        let text = new_token().unwrap();
        assert!(text.len() == TOKEN_CHARS && text != new_token().unwrap());
        let tag = key.tag(&text).unwrap();
        assert_ne!(Some(tag), TokenKey::new(&[8; 32]).tag(&text), "another key makes another hash");
        let expires = Some(Duration::from_secs(100));
        let token = Token { tag, id: "1".into(), user: "ann".into(), share: None, read_only: true, expires };
        let tokens = Tokens::new(key.clone(), [token.clone()]);
        let at = |secs| SystemTime::UNIX_EPOCH + Duration::from_secs(secs);
        assert_eq!(tokens.find(&text, at(99)).as_deref(), Some(&token));
        assert!(tokens.find(&text, at(100)).is_none());
        assert!(tokens.has(&token) && !tokens.has(&Token { read_only: false, ..token.clone() }));
        assert!(!format!("{token:?}").contains(&hex::encode(&tag)));
        for bad in ["", PREFIX, &text[1..], &(text.clone() + "0"), &text.replace("larder_", "lardex_")] {
            assert!(key.tag(bad).is_none() && tokens.find(bad, at(1)).is_none(), "{bad}");
        }
    }
}
