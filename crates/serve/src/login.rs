//! Logins: users, their passwords and keys, and what guessing costs.
//!
//! - `login.guessing_is_slow`: a refused password is answered after a delay that doubles with each
//!   refusal of its address. After [`GUESSES_MAX`] of them within [`GUESSES_TIME`] the address is locked
//!   out for [`LOCKED_TIME`]: its passwords are refused unseen, right or wrong. Keys are not guessed and
//!   stay.
//! - `login.no_user_is_told`: a user that there is not is refused like a wrong password, after as long
//!   a time.
//! - `login.tables_bounded`: at most [`ADDRESSES_MAX`] addresses are remembered; the one that was quiet
//!   longest is forgotten first. An IPv6 client has a whole /64, so that counts as one address.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use larder_volume::Cred;
use parking_lot::Mutex;
use russh::keys::ssh_key::public::KeyData;
use russh::keys::{Algorithm, HashAlg, PublicKey};

pub use crate::certificate::CaKey;
use crate::password::PasswordHash;
use crate::token::DoorToken;

const GUESSES_MAX: u32 = 10;
const GUESSES_TIME: Duration = Duration::from_secs(10 * 60);
const LOCKED_TIME: Duration = Duration::from_secs(60);
const ADDRESSES_MAX: usize = 4096;
const RSA_BITS_MIN: u32 = 2048;

/// A public key that lets a user in.
#[derive(Clone, PartialEq, Eq)]
pub struct AuthorizedKey(KeyData);

/// The text is no public key.
#[derive(Debug, thiserror::Error)]
#[error("not a public key: {0}; it is one line such as ssh-ed25519 AAAA... ann@laptop")]
pub struct BadKey(String);

impl std::str::FromStr for AuthorizedKey {
    type Err = BadKey;

    /// A line of an authorized_keys file. Options before the key are refused: they would be ignored.
    fn from_str(line: &str) -> Result<Self, BadKey> {
        public_key(line).map(Self)
    }
}

impl AuthorizedKey {
    /// As `ssh-keygen -l` shows it: `SHA256:...`.
    pub fn fingerprint(&self) -> String {
        self.0.fingerprint(HashAlg::Sha256).to_string()
    }

    /// The kind of key, as its line begins.
    pub fn kind(&self) -> String {
        self.0.algorithm().to_string()
    }
}

/// The key of a line; a weak one is refused.
pub(crate) fn public_key(line: &str) -> Result<KeyData, BadKey> {
    let key = PublicKey::from_openssh(line.trim()).map_err(|e| BadKey(e.to_string()))?;
    check_strength(key.key_data())?;
    Ok(key.key_data().clone())
}

pub(crate) fn check_strength(key: &KeyData) -> Result<(), BadKey> {
    match key.algorithm() {
        Algorithm::Dsa => Err(BadKey("DSA keys are too weak".to_owned())),
        Algorithm::Rsa { .. } if key.rsa().is_some_and(|rsa| rsa.key_size() < RSA_BITS_MIN) => {
            Err(BadKey(format!("an RSA key of fewer than {RSA_BITS_MIN} bits is too weak")))
        }
        _ => Ok(()),
    }
}

impl std::fmt::Debug for AuthorizedKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "AuthorizedKey({})", self.0.algorithm())
    }
}

/// A user that can log in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DoorUser {
    /// The name to log in with.
    pub name: String,
    /// `None`: the password is not known in this form, and the user logs in with keys alone.
    pub password: Option<PasswordHash>,
    /// The keys that let the user in.
    pub keys: Vec<AuthorizedKey>,
    /// The POSIX user that the user's files belong to.
    pub uid: u32,
    /// The primary group.
    pub gid: u32,
    /// Further groups.
    pub groups: Vec<u32>,
    /// The app token that it logged in with, which narrows its rights; `None` for the user itself.
    pub token: Option<Arc<DoorToken>>,
}

impl DoorUser {
    /// The same user with the rights that `token` leaves.
    pub(crate) fn narrowed(&self, token: Arc<DoorToken>) -> DoorUser {
        DoorUser { token: Some(token), ..self.clone() }
    }

    /// Whether it is that user as it is now, whatever it logged in with.
    pub(crate) fn is(&self, user: &DoorUser) -> bool {
        DoorUser { token: None, ..self.clone() } == *user
    }

    pub(crate) fn cred(&self) -> Cred {
        Cred::new(self.uid, self.gid, self.groups.clone())
    }

    pub(crate) fn has_key(&self, key: &PublicKey) -> bool {
        self.keys.iter().any(|known| known.0 == *key.key_data())
    }
}

/// All users, by name.
pub(crate) type Users = HashMap<String, Arc<DoorUser>>;

struct Guesses {
    count: u32,
    first: Instant,
    locked_until: Option<Instant>,
    seen: Instant,
}

/// The refused passwords of each address (`login.guessing_is_slow`).
#[derive(Default)]
pub(crate) struct Guard(Mutex<HashMap<IpAddr, Guesses>>);

impl Guard {
    /// Whether passwords of `address` are not looked at now.
    pub fn is_locked(&self, address: IpAddr, now: Instant) -> bool {
        self.0.lock().get(&place(address)).is_some_and(|guesses| guesses.locked_until.is_some_and(|until| now < until))
    }

    /// Counts a wrong password. `true`: it is locked out from now on.
    pub fn wrong(&self, address: IpAddr, now: Instant) -> bool {
        let (mut all, address) = (self.0.lock(), place(address));
        if !all.contains_key(&address) && all.len() >= ADDRESSES_MAX {
            let oldest = all.iter().min_by_key(|(_, guesses)| guesses.seen).map(|(address, _)| *address);
            oldest.map(|oldest| all.remove(&oldest));
        }
        let new = Guesses { count: 0, first: now, locked_until: None, seen: now };
        let guesses = all.entry(address).or_insert(new);
        guesses.seen = now;
        if now.duration_since(guesses.first) >= GUESSES_TIME {
            (guesses.count, guesses.first) = (0, now);
        }
        guesses.count += 1;
        let locks = guesses.count >= GUESSES_MAX;
        if locks {
            (guesses.count, guesses.first, guesses.locked_until) = (0, now, Some(now + LOCKED_TIME));
        }
        locks
    }

    /// A login succeeded: who mistyped starts anew.
    pub fn right(&self, address: IpAddr) {
        self.0.lock().remove(&place(address));
    }
}

/// The network that an address counts as.
pub fn place(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(six) => IpAddr::V6(Ipv6Addr::from_bits(six.to_bits() & !u128::from(u64::MAX))),
        four => four,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn an_address_that_guesses_is_locked_out_for_a_while() {
        let (guard, begin) = (Guard::default(), Instant::now());
        let [a, b] = ["10.0.0.1", "10.0.0.2"].map(|text| text.parse::<IpAddr>().unwrap());
        let locks: Vec<bool> = (0..GUESSES_MAX).map(|_| guard.wrong(a, begin)).collect();
        assert_eq!(locks.iter().position(|locks| *locks), Some(GUESSES_MAX as usize - 1));
        assert!(guard.is_locked(a, begin) && !guard.is_locked(b, begin));
        assert!(guard.is_locked("::ffff:10.0.0.1".parse().unwrap(), begin));
        let later = begin + LOCKED_TIME;
        assert!(!guard.is_locked(a, later) && !guard.wrong(a, later), "it begins anew");
        for n in 0..GUESSES_MAX * 3 {
            assert!(!guard.wrong(b, begin + GUESSES_TIME / 5 * n), "now and then is no guessing");
        }
    }

    #[test]
    fn a_login_forgives_and_a_network_is_one_address() {
        let (guard, now) = (Guard::default(), Instant::now());
        let [a, b] = ["2001:db8::1", "2001:db8::ffff:2"].map(|text| text.parse::<IpAddr>().unwrap());
        (1..GUESSES_MAX).for_each(|_| assert!(!guard.wrong(a, now)));
        guard.right(b);
        (1..GUESSES_MAX).for_each(|_| assert!(!guard.wrong(b, now)));
        assert!(guard.wrong(a, now) && guard.is_locked(b, now));
    }

    #[test]
    fn the_table_is_bounded() {
        let (guard, now) = (Guard::default(), Instant::now());
        for n in 0..10_000u32 {
            guard.wrong(IpAddr::V4(n.into()), now + Duration::from_millis(n.into()));
        }
        assert_eq!(guard.0.lock().len(), ADDRESSES_MAX);
    }

    #[test]
    fn keys_are_lines_of_authorized_keys() {
        let good = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJdD7y3aLq454yWBdwLWbieU1ebz9/cu7/QEXn9OIeZJ ann@laptop";
        let key: AuthorizedKey = good.parse().unwrap();
        let same: AuthorizedKey = good.trim_end_matches(" ann@laptop").parse().unwrap();
        assert!(key == same, "the comment is no part of it");
        for bad in ["", "ssh-ed25519", "ssh-ed25519 AAAA", "hello", &format!("command=\"x\" {good}")] {
            assert!(bad.parse::<AuthorizedKey>().is_err(), "{bad}");
        }
    }
}
