//! Server-wide logon policy: signing, encryption, the per-connection session limit and
//! per-session tree limit, the failed-logon throttle, and SessionId
//! allocation.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::admission::network;

/// Most networks the failed-logon throttle tracks at once, and names of all
/// of them. While all have failed of late, logons that would be a further one
/// are refused: none goes uncounted.
const NETWORKS_MAX: usize = 16_384;
const NAMES_MAX: usize = 65_536;

/// A network is locked out after this many times `max_logon_failures` failed
/// logons, so clients behind one address do not lock each other out at the
/// limit of a name.
const ADDRESS_FAILURE_FACTOR: u32 = 10;

/// A name is locked out for everybody after this many times
/// `max_logon_failures` failed logons within `lockout`. One network adds at
/// most `max_logon_failures` before the name is locked out there, so it takes
/// a hundred networks to keep a user out.
const NAME_FAILURE_FACTOR: u32 = 100;

/// Counters of names. Names share one by chance, and all of them are far
/// below the limit of a name unless one of theirs is guessed.
const NAME_COUNTERS: usize = 4096;

/// Logon settings chosen on the builder.
#[derive(Debug, Clone, Copy)]
pub struct AuthSettings {
    /// Set Session.SigningRequired on every authenticated session
    /// (RequireMessageSigning in MS-SMB2 3.3.1.5).
    pub require_signing: bool,
    pub max_sessions_per_connection: usize,
    pub max_trees_per_session: usize,
    /// Failed logons before a user name is locked out for the network of the
    /// client (an address, or a /64 of IPv6) and a connection is closed. A
    /// network is locked out after ten times as many, a name everywhere after
    /// a hundred times as many. 0 turns the throttle off.
    pub max_logon_failures: u32,
    pub lockout: Duration,
}

impl Default for AuthSettings {
    fn default() -> Self {
        Self {
            require_signing: false,
            max_sessions_per_connection: 64,
            max_trees_per_session: 128,
            max_logon_failures: 10,
            lockout: Duration::from_secs(60),
        }
    }
}

pub struct AuthPolicy {
    pub settings: AuthSettings,
    failures: Mutex<Failures>,
    /// Hashes names into their counters, unpredictably.
    hasher: RandomState,
    next_session_id: AtomicU64,
}

/// Failed logons of one name from one network, of one network, or of the
/// names of one counter.
#[derive(Debug, Clone, Copy)]
struct Count {
    failures: u32,
    first: Instant,
    last: Instant,
}

impl Count {
    fn new(now: Instant) -> Self {
        Self { failures: 0, first: now, last: now }
    }

    /// The failures that still count: each within `lockout` of the next.
    fn recent(&self, lockout: Duration, now: Instant) -> u32 {
        if now.duration_since(self.last) < lockout { self.failures } else { 0 }
    }

    fn add(&mut self, lockout: Duration, now: Instant) {
        if self.recent(lockout, now) == 0 {
            (self.failures, self.first) = (0, now);
        }
        self.failures = self.failures.saturating_add(1);
        self.last = now;
    }
}

/// What one network has failed at.
#[derive(Debug)]
struct Network {
    all: Count,
    names: HashMap<String, Count>,
}

#[derive(Debug, Default)]
struct Failures {
    networks: HashMap<Option<IpAddr>, Network>,
    /// Of all networks.
    names: usize,
    /// By the hash of a name, of a window of `lockout`.
    by_name: Vec<Count>,
}

impl Failures {
    /// Forgets what no longer counts.
    fn forget(&mut self, lockout: Duration, now: Instant) {
        self.networks.retain(|_, network| {
            network.names.retain(|_, count| count.recent(lockout, now) > 0);
            network.all.recent(lockout, now) > 0
        });
        self.names = self.networks.values().map(|network| network.names.len()).sum();
    }
}

/// A logon counts as failed while it is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LockedOut;

impl AuthPolicy {
    pub fn new(settings: AuthSettings) -> Self {
        Self { settings, failures: Mutex::default(), hasher: RandomState::new(), next_session_id: AtomicU64::new(1) }
    }

    /// A SessionId no other session on this server has had.
    pub fn alloc_session_id(&self) -> u64 {
        self.next_session_id.fetch_add(1, Ordering::Relaxed)
    }

    /// Counts a logon as failed before it is looked at, so that those that
    /// come at once are no more than those that come in turn;
    /// [`succeeded`](Self::succeeded) takes it back. Refused unseen while
    /// `user` has failed `max_logon_failures` times from the network of
    /// `addr`, that network ten times as often, or `user` a hundred times as
    /// often from anywhere. An empty `user` counts by network only. Names
    /// that are not configured count the same, so a lockout says nothing
    /// about which names exist.
    pub fn attempt(&self, user: &str, addr: Option<IpAddr>) -> Result<(), LockedOut> {
        self.attempt_at(user, addr, Instant::now())
    }

    /// [`AuthPolicy::attempt`] at `now`.
    fn attempt_at(&self, user: &str, addr: Option<IpAddr>, now: Instant) -> Result<(), LockedOut> {
        let (max, lockout) = (self.settings.max_logon_failures, self.settings.lockout);
        if max == 0 {
            return Ok(());
        }
        let (user, addr) = (user_key(user), addr.map(network));
        let counter = self.counter(&user);
        let mut failures = self.lock_failures();
        let failures = &mut *failures;
        if failures.by_name.is_empty() {
            failures.by_name.resize(NAME_COUNTERS, Count::new(now));
        }
        let is_new_name = |failures: &Failures| {
            !user.is_empty() && failures.networks.get(&addr).is_none_or(|known| !known.names.contains_key(&user))
        };
        let is_full = |failures: &Failures| {
            (!failures.networks.contains_key(&addr) && failures.networks.len() >= NETWORKS_MAX)
                || (is_new_name(failures) && failures.names >= NAMES_MAX)
        };
        if is_full(failures) {
            failures.forget(lockout, now);
            if is_full(failures) {
                return Err(LockedOut);
            }
        }
        let is_new_name = is_new_name(failures);
        let new = || Network { all: Count::new(now), names: HashMap::new() };
        let known = failures.networks.entry(addr).or_insert_with(new);
        let everywhere = failures.by_name.get_mut(counter);
        if let Some(count) = &everywhere
            && !user.is_empty()
            && now.duration_since(count.first) < lockout
            && count.failures >= max.saturating_mul(NAME_FAILURE_FACTOR)
        {
            return Err(LockedOut);
        }
        let of_name = known.names.get(&user).map_or(0, |count| count.recent(lockout, now));
        let of_all = known.all.recent(lockout, now);
        if of_name >= max || of_all >= max.saturating_mul(ADDRESS_FAILURE_FACTOR) {
            return Err(LockedOut);
        }
        known.all.add(lockout, now);
        if user.is_empty() {
            return Ok(());
        }
        known.names.entry(user).or_insert_with(|| Count::new(now)).add(lockout, now);
        failures.names += usize::from(is_new_name);
        if let Some(count) = everywhere {
            if now.duration_since(count.first) >= lockout {
                *count = Count::new(now);
            }
            count.failures = count.failures.saturating_add(1);
        }
        Ok(())
    }

    /// Failed logons that are counted against the network of `addr`.
    pub fn failures_of(&self, addr: IpAddr) -> u32 {
        let failures = self.lock_failures();
        let known = failures.networks.get(&Some(network(addr)));
        known.map_or(0, |known| known.all.recent(self.settings.lockout, Instant::now()))
    }

    /// Forgets the failures of `user` from the network of `addr` after a
    /// successful logon, and takes the logon itself back. Failures of other
    /// names stay counted against the network.
    pub fn succeeded(&self, user: &str, addr: Option<IpAddr>) {
        let (user, addr) = (user_key(user), addr.map(network));
        let counter = self.counter(&user);
        let mut failures = self.lock_failures();
        let failures = &mut *failures;
        let Some(known) = failures.networks.get_mut(&addr) else { return };
        let forgiven = match known.names.remove(&user) {
            Some(count) => {
                failures.names -= 1;
                count.failures
            }
            // A logon without a name.
            None => 1,
        };
        known.all.failures = known.all.failures.saturating_sub(forgiven);
        if known.all.failures == 0 && known.names.is_empty() {
            failures.networks.remove(&addr);
        }
        if let Some(count) = failures.by_name.get_mut(counter) {
            count.failures = count.failures.saturating_sub(1);
        }
    }

    /// True once a connection has seen enough failed logons to be closed.
    pub fn connection_exhausted(&self, failures: u32) -> bool {
        let max = self.settings.max_logon_failures;
        max != 0 && failures >= max
    }

    fn counter(&self, user: &str) -> usize {
        (self.hasher.hash_one(user) % NAME_COUNTERS as u64) as usize
    }

    fn lock_failures(&self) -> std::sync::MutexGuard<'_, Failures> {
        self.failures.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Default for AuthPolicy {
    fn default() -> Self {
        Self::new(AuthSettings::default())
    }
}

/// Names are compared without case. A longer one is nobody's, and counts as
/// one with its beginning.
fn user_key(user: &str) -> String {
    user.chars().take(64).flat_map(char::to_uppercase).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(max: u32, lockout: Duration) -> AuthPolicy {
        AuthPolicy::new(AuthSettings { max_logon_failures: max, lockout, ..AuthSettings::default() })
    }

    fn minute(max: u32) -> AuthPolicy {
        policy(max, Duration::from_secs(60))
    }

    fn ip(text: &str) -> Option<IpAddr> {
        Some(text.parse().unwrap())
    }

    /// How many of `count` failed logons are looked at.
    fn seen(p: &AuthPolicy, user: &str, addr: Option<IpAddr>, count: usize) -> usize {
        (0..count).filter(|_| p.attempt(user, addr).is_ok()).count()
    }

    #[test]
    fn a_name_is_locked_out_where_it_failed_ignoring_case() {
        let (p, here, there) = (minute(3), ip("192.0.2.7"), ip("192.0.2.8"));
        assert_eq!(seen(&p, "alice", here, 2) + seen(&p, "ALICE", here, 5), 3);
        assert!(p.attempt("Alice", here).is_err() && p.attempt("bob", here).is_ok());
        assert!(p.attempt("alice", there).is_ok(), "elsewhere she is let in");
        p.succeeded("alice", there);
        assert!(p.attempt("alice", here).is_err(), "her logon there says nothing about here");
    }

    #[test]
    fn a_name_alone_is_locked_out_far_above() {
        let p = minute(10);
        let addr = |n: u8| Some(IpAddr::from([10, 0, n, 1]));
        let total: usize = (0..120).map(|n| seen(&p, "bob", addr(n), 20)).sum();
        assert_eq!(total, 1000);
        assert!(p.attempt("bob", ip("192.0.2.1")).is_err());
        let start = Instant::now() + Duration::from_secs(61);
        assert!(p.attempt_at("bob", ip("192.0.2.1"), start).is_ok(), "it ends, however often it is tried");
    }

    #[test]
    fn lockout_expires() {
        let (lockout, start, here) = (Duration::from_secs(60), Instant::now(), ip("192.0.2.7"));
        let p = policy(1, lockout);
        p.attempt_at("alice", here, start).unwrap();
        assert!(p.attempt_at("alice", here, start + lockout - Duration::from_millis(1)).is_err());
        assert!(p.attempt_at("alice", here, start + lockout).is_ok());
        // The old count does not carry over into a new window.
        let p = policy(2, lockout);
        p.attempt_at("alice", here, start).unwrap();
        p.attempt_at("alice", here, start + lockout).unwrap();
        assert!(p.attempt_at("alice", here, start + lockout).is_ok());
    }

    #[test]
    fn zero_turns_the_throttle_off() {
        let p = minute(0);
        assert_eq!(seen(&p, "alice", None, 100), 100);
        assert!(!p.connection_exhausted(u32::MAX));
        assert!(p.lock_failures().networks.is_empty());
    }

    #[test]
    fn a_full_table_refuses_and_keeps_its_lockouts() {
        let (p, start) = (minute(2), Instant::now());
        let addr = |n: usize| Some(IpAddr::from(u32::try_from(n).unwrap().to_be_bytes()));
        for n in 0..NETWORKS_MAX {
            p.attempt_at(&format!("user{n}"), addr(n), start + Duration::from_secs(n as u64 / 600)).unwrap();
        }
        let now = start + Duration::from_secs(27);
        assert_eq!(p.attempt_at("late", addr(NETWORKS_MAX), now), Err(LockedOut), "it would go uncounted");
        assert!(p.attempt_at("user0", addr(0), now).is_ok(), "known networks are counted");
        assert!(p.attempt_at("user0", addr(0), now).is_err());
        let later = start + Duration::from_secs(61);
        assert!(p.attempt_at("late", addr(NETWORKS_MAX), later).is_ok(), "the first have made room");
        let failures = p.lock_failures();
        assert!(failures.networks.len() <= NETWORKS_MAX);
        assert_eq!(failures.names, failures.networks.values().map(|one| one.names.len()).sum::<usize>());
    }

    #[test]
    fn networks_lock_after_ten_times_the_limit_of_a_name() {
        let p = minute(2);
        let (addr, mapped) = (ip("192.0.2.7"), ip("::ffff:192.0.2.7"));
        for i in 0..19 {
            p.attempt(&format!("user{i}"), addr).unwrap();
        }
        p.attempt("right", addr).unwrap();
        p.succeeded("right", addr);
        p.attempt("user19", mapped).unwrap();
        assert!(p.attempt("", addr).is_err() && p.attempt("bob", mapped).is_err());
        assert!(p.attempt("bob", ip("192.0.2.8")).is_ok());
        // IPv6 counts by /64.
        let of_64: usize = (0..40).map(|n| seen(&p, &format!("user{n}"), ip(&format!("2001:db8::{n:x}")), 1)).sum();
        assert_eq!(of_64, 20);
        assert!(p.attempt("bob", ip("2001:db8:0:1::1")).is_ok());
    }

    #[test]
    fn many_names_of_few_networks_fill_no_table() {
        let p = minute(10);
        for n in 0..5000_usize {
            let _ = p.attempt(&format!("nobody{n}"), Some(IpAddr::from([10, 0, 0, (n % 250) as u8])));
        }
        assert!(p.attempt("ann", ip("192.0.2.1")).is_ok());
        assert_eq!(seen(&p, "bob", ip("192.0.2.1"), 20), 10, "and failures are still counted");
    }

    #[test]
    fn guesses_of_another_name_are_not_forgiven() {
        let (p, here) = (minute(10), ip("192.0.2.7"));
        let mut guesses = 0;
        for _ in 0..20 {
            guesses += seen(&p, "bob", here, 9);
            if p.attempt("mallory", here).is_ok() {
                p.succeeded("mallory", here);
            }
        }
        assert_eq!(guesses, 10);
    }
}
