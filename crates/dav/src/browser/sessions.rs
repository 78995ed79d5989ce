//! Sessions of browsers: kept in memory, so that they end with the server.
//!
//! - `sessions.hashed`: the table has a hash of each token, never the token, so no look-up tells by its
//!   time how much of a guess was right.
//! - `sessions.end`: a session ends after [`IDLE_MAX`] without a request and [`AGE_MAX`] in all, when
//!   its user logs out, and with the user's password. A user has at most [`OF_USER_MAX`], and there are
//!   at most [`SESSIONS_MAX`]; the one that was idle longest goes first.
//! - `sessions.token_on_each_change`: a change needs the session's second token, which is in the page
//!   and not in the cookie: a page of another site can make a browser send the cookie, and cannot read
//!   the page.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest;
use larder_base::hex;
use larder_people::PasswordHash;
use parking_lot::Mutex;
use rand::TryRngCore;
use rand::rngs::OsRng;

use super::super::guest::{GuestPlace, GuestUser};

const IDLE_MAX: Duration = Duration::from_secs(24 * 3600);
pub const AGE_MAX: Duration = Duration::from_secs(7 * 24 * 3600);
const SESSIONS_MAX: usize = 4096;
const OF_USER_MAX: usize = 32;
/// Longer than any token.
const TOKEN_BYTES_MAX: usize = 128;

/// A hash of a token.
pub type TokenHash = [u8; 32];

/// Whom a session lets in.
#[derive(Clone, PartialEq, Eq)]
pub enum Who {
    /// A user, while the password is this one.
    User { name: String, password: Option<PasswordHash> },
    /// Anybody who knew the password of this link.
    Link(TokenHash),
}

impl Who {
    fn is_same_owner(&self, other: &Who) -> bool {
        match (self, other) {
            (Who::User { name, .. }, Who::User { name: other, .. }) => name == other,
            (Who::Link(link), Who::Link(other)) => link == other,
            _ => false,
        }
    }
}

/// A session that a request belongs to.
#[derive(Clone)]
pub struct Session {
    key: TokenHash,
    pub who: Who,
    /// The second token (`sessions.token_on_each_change`).
    pub csrf: String,
    /// Of the guest, where the user logged in there.
    pub guest: Option<GuestPaths>,
}

/// Pages of the guest for one of its sessions.
#[derive(Clone, PartialEq, Eq)]
pub struct GuestPaths {
    pub log_out: &'static str,
    pub places: Vec<GuestPlace>,
    pub theme: &'static str,
}

impl Session {
    /// A session that the guest keeps; this table has no entry of it.
    pub fn of_guest(user: GuestUser) -> Self {
        let GuestUser { name, csrf, log_out, places, theme } = user;
        let guest = Some(GuestPaths { log_out, places, theme });
        Session { key: hash(&csrf), who: Who::User { name, password: None }, csrf, guest }
    }

    pub fn allows_change(&self, given: Option<&str>) -> bool {
        given.is_some_and(|given| verify_slices_are_equal(given.as_bytes(), self.csrf.as_bytes()).is_ok())
    }
}

struct Entry {
    who: Who,
    csrf: String,
    began: Instant,
    seen: Instant,
}

impl Entry {
    fn is_over(&self, now: Instant) -> bool {
        now.duration_since(self.seen) >= IDLE_MAX || now.duration_since(self.began) >= AGE_MAX
    }
}

#[derive(Default)]
pub struct Sessions(Mutex<HashMap<TokenHash, Entry>>);

/// Random bytes that nobody can guess.
pub fn secret<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    // The generator of the process is seeded by the system too.
    if OsRng.try_fill_bytes(&mut bytes).is_err() {
        bytes.fill_with(rand::random);
    }
    bytes
}

pub fn hash(token: &str) -> TokenHash {
    let mut hash = [0; 32];
    hash.copy_from_slice(digest::digest(&digest::SHA256, token.as_bytes()).as_ref());
    hash
}

impl Sessions {
    /// Begins a session; returns its token.
    pub fn begin(&self, who: Who, now: Instant) -> String {
        let mut all = self.0.lock();
        all.retain(|_, entry| !entry.is_over(now));
        while all.values().filter(|entry| entry.who.is_same_owner(&who)).count() >= OF_USER_MAX {
            Self::drop_oldest(&mut all, |entry| entry.who.is_same_owner(&who));
        }
        while all.len() >= SESSIONS_MAX {
            Self::drop_oldest(&mut all, |_| true);
        }
        let token = hex::encode(&secret::<32>());
        let csrf = hex::encode(&secret::<16>());
        all.insert(hash(&token), Entry { who, csrf, began: now, seen: now });
        token
    }

    fn drop_oldest(all: &mut HashMap<TokenHash, Entry>, is_meant: impl Fn(&Entry) -> bool) {
        let oldest = all.iter().filter(|(_, entry)| is_meant(entry)).min_by_key(|(_, entry)| entry.seen);
        let Some(key) = oldest.map(|(key, _)| *key) else { return };
        all.remove(&key);
    }

    pub fn find(&self, token: &str, now: Instant) -> Option<Session> {
        if token.len() > TOKEN_BYTES_MAX {
            return None;
        }
        let key = hash(token);
        let mut all = self.0.lock();
        if all.get(&key)?.is_over(now) {
            all.remove(&key);
            return None;
        }
        let entry = all.get_mut(&key)?;
        entry.seen = now;
        Some(Session { key, who: entry.who.clone(), csrf: entry.csrf.clone(), guest: None })
    }

    pub fn end(&self, session: &Session) {
        self.0.lock().remove(&session.key);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn user(name: &str) -> Who {
        Who::User { name: name.into(), password: None }
    }

    #[test]
    fn sessions_end_in_time_and_by_hand() {
        let (all, begin) = (Sessions::default(), Instant::now());
        let token = all.begin(user("ann"), begin);
        let session = all.find(&token, begin).unwrap();
        assert!(session.allows_change(Some(&session.csrf)));
        assert!(
            !session.allows_change(None) && !session.allows_change(Some("")) && !session.allows_change(Some(&token))
        );
        assert!(all.find("", begin).is_none() && all.find(&session.csrf, begin).is_none());
        let mut now = begin;
        while now + IDLE_MAX / 2 < begin + AGE_MAX {
            now += IDLE_MAX / 2;
            assert!(all.find(&token, now).is_some(), "it is used");
        }
        assert!(all.find(&token, begin + AGE_MAX).is_none());
        let token = all.begin(user("ann"), begin);
        assert!(all.find(&token, begin + IDLE_MAX).is_none());
        let token = all.begin(user("ann"), begin);
        all.end(&all.find(&token, begin).unwrap());
        assert!(all.find(&token, begin).is_none());
    }

    #[test]
    fn their_number_is_bounded() {
        let (all, begin) = (Sessions::default(), Instant::now());
        let first = all.begin(user("ann"), begin);
        let others: Vec<String> =
            (1..=OF_USER_MAX).map(|n| all.begin(user("ann"), begin + Duration::from_secs(n as u64))).collect();
        assert!(all.find(&first, begin).is_none(), "the oldest of the user went");
        assert!(others.iter().all(|token| all.find(token, begin + Duration::from_secs(60)).is_some()));
        for n in 0..SESSIONS_MAX {
            all.begin(user(&n.to_string()), begin + Duration::from_secs(100));
        }
        assert_eq!(all.0.lock().len(), SESSIONS_MAX);
    }
}
