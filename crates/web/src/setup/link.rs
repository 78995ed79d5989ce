//! The link of a first run, and the one browser that it lets in.
//!
//! - `setup.link_once`: the link has 256 random bits and is good once. It ends after [`LINK_AGE_MAX`]; a restart of
//!   larder draws another.
//! - `setup.one_browser`: whoever used the link has a cookie with a token of its own, and is alone until the set-up
//!   ends. It ends for a browser that is silent for [`IDLE_MAX`].
//! - `setup.hashes_compared`: tokens are kept and compared as hashes, in constant time.

use std::net::IpAddr;
use std::time::Duration;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest;
use larder_base::hex;

use crate::session::secret;

pub const LINK_AGE_MAX: Duration = Duration::from_secs(3600);
pub const IDLE_MAX: Duration = Duration::from_secs(3600);
/// Digits of a token.
const TOKEN_DIGITS: usize = 64;

type Hash = [u8; 32];

fn hash(token: &str) -> Hash {
    let mut hash = [0; 32];
    hash.copy_from_slice(digest::digest(&digest::SHA256, token.as_bytes()).as_ref());
    hash
}

fn new_token() -> String {
    hex::encode(&secret::<32>())
}

pub struct Link {
    token: Hash,
    since: Duration,
    guest: Option<Guest>,
}

/// The browser that used the link.
struct Guest {
    token: Hash,
    csrf: String,
    from: IpAddr,
    seen: Duration,
}

/// What a link is good for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    Wrong,
    Good,
    /// Somebody at this address used it.
    Used(IpAddr),
    Expired,
}

impl Link {
    /// The link, and its token, which is told to the person who started larder and kept nowhere.
    pub fn new(now: Duration) -> (Self, String) {
        let token = new_token();
        (Self { token: hash(&token), since: now, guest: None }, token)
    }

    pub fn standing(&self, token: &str, now: Duration) -> Standing {
        let is_right = token.len() == TOKEN_DIGITS && verify_slices_are_equal(&hash(token), &self.token).is_ok();
        match &self.guest {
            _ if !is_right => Standing::Wrong,
            Some(guest) => Standing::Used(guest.from),
            None if now.saturating_sub(self.since) >= LINK_AGE_MAX => Standing::Expired,
            None => Standing::Good,
        }
    }

    /// Uses the link (`setup.link_once`); returns the token for the browser's cookie.
    pub fn enter(&mut self, token: &str, from: IpAddr, now: Duration) -> Result<String, Standing> {
        match self.standing(token, now) {
            Standing::Good => {
                let token = new_token();
                let csrf = hex::encode(&secret::<32>());
                self.guest = Some(Guest { token: hash(&token), csrf, from, seen: now });
                Ok(token)
            }
            other => Err(other),
        }
    }

    /// The second token of the browser whose cookie this is.
    pub fn guest(&mut self, token: &str, now: Duration) -> Option<String> {
        let guest = self.guest.as_mut()?;
        let is_right = verify_slices_are_equal(&hash(token), &guest.token).is_ok();
        if !is_right || now.saturating_sub(guest.seen) >= IDLE_MAX {
            return None;
        }
        guest.seen = now;
        Some(guest.csrf.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_lets_one_browser_in_once_and_for_a_time() {
        let (a, b) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        let zero = Duration::ZERO;
        let (mut link, token) = Link::new(zero);
        assert_eq!(token.len(), TOKEN_DIGITS);
        for wrong in ["", "0", &token[1..], &new_token(), &token.to_uppercase(), &format!("{token}0")] {
            assert_eq!(link.standing(wrong, zero), Standing::Wrong, "{wrong}");
            assert_eq!(link.enter(wrong, a, zero), Err(Standing::Wrong));
        }
        assert_eq!(link.standing(&token, LINK_AGE_MAX), Standing::Expired);
        let cookie = link.enter(&token, a, zero).unwrap();
        assert_eq!(link.enter(&token, b, zero), Err(Standing::Used(a)));
        assert_eq!(link.standing(&token, LINK_AGE_MAX * 2), Standing::Used(a));
        assert!(link.guest(&token, zero).is_none(), "the link is no cookie");
        let half = IDLE_MAX / 2;
        for at in 1..5 {
            assert!(link.guest(&cookie, half * at).is_some());
        }
        assert!(link.guest(&cookie, half * 4 + IDLE_MAX).is_none());
        assert_ne!(Link::new(zero).1, token);
    }
}
