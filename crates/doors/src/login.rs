//! Logins: users, their passwords and keys, and what guessing costs.
//!
//! - `login.guessing_is_slow`: a refused password is answered after a delay that doubles with each
//!   refusal of its address. After [`GUESSES_MAX`] of them within [`GUESSES_TIME`] the address is locked
//!   out for [`LOCKED_TIME`]: its passwords are refused unseen, right or wrong. Keys are not guessed and
//!   stay. SFTP, WebDAV, its pages and larder's page have one table.
//! - `login.counted_first`: a password counts as wrong before it is hashed, and the count is given back
//!   if it was right. Passwords that come at once are thus no more than those that come in turn.
//! - `login.forgives_one_name`: a login forgives the guesses of its own name from its own address. A user
//!   who guesses another's password gains nothing by logging in.
//! - `login.no_user_is_told`: a user that there is not is refused like a wrong password, after as long
//!   a time.
//! - `login.full_refuses`: at most [`NETWORKS_MAX`] networks are remembered. While all of them have guessed
//!   of late, passwords of others are refused unseen: nothing goes uncounted. An IPv6 client has a whole
//!   /64, so that counts as one address.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use larder_base::boxed;
use larder_people::{PasswordHash, User};
use parking_lot::Mutex;

use crate::password;
use crate::strangers::network;
use crate::turns::{Turn, Turns, WAITING_OF_NETWORK_MAX};

const GUESSES_MAX: u32 = 10;
const GUESSES_TIME: Duration = Duration::from_secs(10 * 60);
/// How long a network that has guessed too often is locked out.
pub const LOCKED_TIME: Duration = Duration::from_secs(60);
/// Of 200 bytes each.
const NETWORKS_MAX: usize = 16_384;
/// The longest password that is looked at.
pub const PASSWORD_BYTES_MAX: usize = 1024;
/// Letters by which names of guesses are told apart.
const NAME_CHARS_MAX: usize = 64;

/// All users, by name.
pub type Users = HashMap<String, Arc<User>>;

/// The wrong passwords of one network.
struct Guesses {
    count: u32,
    first: Instant,
    locked_until: Option<Instant>,
    /// The guesses of each name: a login forgives those of its own name alone.
    names: Vec<(String, u32)>,
}

impl Guesses {
    fn is_locked(&self, now: Instant) -> bool {
        self.locked_until.is_some_and(|until| now < until)
    }

    /// Nothing about it matters any more.
    fn is_over(&self, now: Instant) -> bool {
        !self.is_locked(now) && (self.locked_until.is_some() || now.duration_since(self.first) >= GUESSES_TIME)
    }
}

/// Why a password is not looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unseen {
    /// The network has guessed too often.
    LockedOut,
    /// Too many networks guess, or too many passwords of this one wait (`login.full_refuses`).
    Full,
}

impl Unseen {
    /// For the log.
    pub fn why(self) -> &'static str {
        match self {
            Unseen::LockedOut => "its address has guessed too often and is locked out for a minute",
            Unseen::Full => "too many passwords are being guessed at the moment; ask again in a minute",
        }
    }
}

/// A password that was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is the password.
    Right,
    /// It is not.
    Wrong,
    /// Wrong, and from now on its network is locked out.
    Locks,
}

/// Checks passwords for SFTP, WebDAV and its pages: one table of guesses, one queue of hashes.
pub struct Gate {
    guesses: Mutex<HashMap<IpAddr, Guesses>>,
    turns: Arc<Turns>,
}

impl std::fmt::Debug for Gate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Gate")
    }
}

impl Default for Gate {
    fn default() -> Self {
        Self { guesses: Mutex::default(), turns: Arc::new(Turns::new(password::AT_ONCE, WAITING_OF_NETWORK_MAX)) }
    }
}

impl Gate {
    /// Waits until a password of `address` may be hashed; one that is locked out does not wait.
    #[boxed]
    pub async fn turn(&self, address: IpAddr) -> Result<Turn, Unseen> {
        let has_guessed = {
            let guesses = self.guesses.lock();
            let guesses = guesses.get(&network(address));
            if guesses.is_some_and(|guesses| guesses.is_locked(Instant::now())) {
                return Err(Unseen::LockedOut);
            }
            guesses.is_some_and(|guesses| guesses.count > 0)
        };
        self.turns.take(address, has_guessed).await.map_err(|_| Unseen::Full)
    }

    /// Looks at a password (`login.counted_first`).
    #[boxed]
    pub async fn verify(
        &self,
        turn: Turn,
        (address, name): (IpAddr, &str),
        hash: Option<PasswordHash>,
        given: String,
    ) -> Result<Verdict, Unseen> {
        self.count(address, name, Instant::now())?;
        if given.len() <= PASSWORD_BYTES_MAX && password::verify(turn, hash, given).await {
            self.right(address, name);
            return Ok(Verdict::Right);
        }
        Ok(if self.wrong(address, Instant::now()) { Verdict::Locks } else { Verdict::Wrong })
    }

    /// Counts a guess at a secret that needs no hash, such as a link, before it is looked at; `false`: it is not looked at.
    pub fn counts(&self, address: IpAddr, name: &str) -> bool {
        self.count(address, name, Instant::now()).is_ok()
    }

    /// It was right after all.
    pub fn forgives(&self, address: IpAddr, name: &str) {
        self.right(address, name);
    }

    /// Counts a password as wrong before it is looked at.
    fn count(&self, address: IpAddr, name: &str, now: Instant) -> Result<(), Unseen> {
        let (mut all, network) = (self.guesses.lock(), network(address));
        if all.get(&network).is_some_and(|guesses| guesses.is_over(now)) {
            all.remove(&network);
        }
        if !all.contains_key(&network) && all.len() >= NETWORKS_MAX && !make_room(&mut all, now) {
            return Err(Unseen::Full);
        }
        let new = || Guesses { count: 0, first: now, locked_until: None, names: Vec::new() };
        let guesses = all.entry(network).or_insert_with(new);
        if guesses.is_locked(now) {
            return Err(Unseen::LockedOut);
        }
        guesses.count += 1;
        let name: String = name.chars().take(NAME_CHARS_MAX).collect();
        match guesses.names.iter_mut().find(|(known, _)| *known == name) {
            Some((_, count)) => *count += 1,
            None => guesses.names.push((name, 1)),
        }
        if guesses.count >= GUESSES_MAX {
            guesses.locked_until = Some(now + LOCKED_TIME);
        }
        Ok(())
    }

    /// It was wrong. Returns whether its network is locked out.
    fn wrong(&self, address: IpAddr, now: Instant) -> bool {
        let mut all = self.guesses.lock();
        let Some(guesses) = all.get_mut(&network(address)).filter(|guesses| guesses.count >= GUESSES_MAX) else {
            return false;
        };
        guesses.locked_until = Some(now + LOCKED_TIME);
        true
    }

    /// A login succeeded: the typing errors of this name from there are forgiven (`login.forgives_one_name`).
    fn right(&self, address: IpAddr, name: &str) {
        let (mut all, network) = (self.guesses.lock(), network(address));
        let Some(guesses) = all.get_mut(&network) else { return };
        let name: String = name.chars().take(NAME_CHARS_MAX).collect();
        let Some(at) = guesses.names.iter().position(|(known, _)| *known == name) else { return };
        let (_, forgiven) = guesses.names.swap_remove(at);
        guesses.count = guesses.count.saturating_sub(forgiven);
        if guesses.count < GUESSES_MAX {
            guesses.locked_until = None;
        }
        if guesses.count == 0 {
            all.remove(&network);
        }
    }
}

/// Drops a network whose guesses are over, or else the oldest that has made one in a minute: it gains nothing by that.
fn make_room(all: &mut HashMap<IpAddr, Guesses>, now: Instant) -> bool {
    all.retain(|_, guesses| !guesses.is_over(now));
    if all.len() < NETWORKS_MAX {
        return true;
    }
    let may_go = |guesses: &Guesses| {
        guesses.count <= 1 && !guesses.is_locked(now) && now.duration_since(guesses.first) >= LOCKED_TIME
    };
    let oldest = all.iter().filter(|(_, guesses)| may_go(guesses)).min_by_key(|(_, guesses)| guesses.first);
    let oldest = oldest.map(|(network, _)| *network);
    oldest.is_some_and(|oldest| all.remove(&oldest).is_some())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    /// Whether a wrong password of `name` was looked at.
    fn guess(gate: &Gate, address: IpAddr, name: &str, now: Instant) -> bool {
        let is_seen = gate.count(address, name, now).is_ok();
        if is_seen {
            gate.wrong(address, now);
        }
        is_seen
    }

    #[test]
    fn an_address_that_guesses_is_locked_out_for_a_while() {
        let (gate, begin) = (Gate::default(), Instant::now());
        let [a, b] = ["10.0.0.1", "10.0.0.2"].map(ip);
        let seen = (0..GUESSES_MAX * 2).filter(|_| guess(&gate, a, "ann", begin)).count();
        assert_eq!(seen, GUESSES_MAX as usize);
        assert!(!guess(&gate, ip("::ffff:10.0.0.1"), "bob", begin) && guess(&gate, b, "ann", begin));
        let later = begin + LOCKED_TIME;
        assert!(guess(&gate, a, "ann", later), "it begins anew");
        for n in 0..GUESSES_MAX * 3 {
            assert!(guess(&gate, b, "ann", begin + GUESSES_TIME / 5 * n), "now and then is no guessing");
        }
    }

    #[test]
    fn passwords_are_counted_before_they_are_looked_at() {
        let (gate, now, a) = (Gate::default(), Instant::now(), ip("10.0.0.1"));
        let at_once = (0..200).filter(|_| gate.count(a, "ann", now).is_ok()).count();
        assert_eq!(at_once, GUESSES_MAX as usize);
        gate.right(a, "ann");
        assert!(gate.guesses.lock().is_empty(), "the right one gives all of its name back");
    }

    #[test]
    fn a_login_forgives_its_own_name_alone() {
        let (gate, now) = (Gate::default(), Instant::now());
        let [a, b] = ["2001:db8::1", "2001:db8::ffff:2"].map(ip);
        for n in 0..GUESSES_MAX * 3 {
            let is_seen = guess(&gate, a, "bob", now);
            assert_eq!(is_seen, n < GUESSES_MAX, "guess {n}");
            if is_seen && n + 1 < GUESSES_MAX {
                gate.count(b, "mallory", now).unwrap();
                gate.right(b, "mallory");
            }
        }
        let gate = Gate::default();
        for _ in 0..100 {
            (1..GUESSES_MAX).for_each(|_| assert!(guess(&gate, a, "ann", now)));
            gate.count(b, "ann", now).unwrap();
            gate.right(b, "ann");
        }
    }

    #[test]
    fn a_full_table_refuses_newcomers_and_goes_on_counting() {
        let (gate, now) = (Gate::default(), Instant::now());
        let of = |n: usize| IpAddr::V4(u32::try_from(n).unwrap().into());
        (0..GUESSES_MAX).for_each(|_| assert!(guess(&gate, of(0), "ann", now)));
        for n in 1..NETWORKS_MAX {
            assert!(guess(&gate, of(n), "ann", now));
        }
        assert_eq!(gate.count(of(NETWORKS_MAX), "ann", now), Err(Unseen::Full));
        assert_eq!(gate.count(of(0), "ann", now), Err(Unseen::LockedOut), "its lock is kept");
        assert!(guess(&gate, of(1), "ann", now));
        let later = now + LOCKED_TIME;
        assert!(guess(&gate, of(NETWORKS_MAX), "ann", later), "a single guess a minute ago makes room");
        assert_eq!(gate.guesses.lock().len(), NETWORKS_MAX);
    }

    #[tokio::test]
    async fn the_right_one_of_many_at_once_is_not_looked_at() {
        let (gate, a) = (Gate::default(), ip("10.0.0.1"));
        let hash = PasswordHash::new("right").unwrap();
        let ask = async |given: String| {
            let turn = gate.turn(a).await?;
            gate.verify(turn, (a, "ann"), Some(hash.clone()), given).await
        };
        let all = (0..60).map(|n| ask(if n == 40 { "right".to_owned() } else { n.to_string() }));
        let all = futures::future::join_all(all).await;
        let seen = all.iter().filter(|one| one.is_ok()).count();
        assert_eq!((seen, all[40]), (GUESSES_MAX as usize, Err(Unseen::LockedOut)));
        assert!(all.contains(&Ok(Verdict::Locks)) && !all.contains(&Ok(Verdict::Right)));
    }
}
