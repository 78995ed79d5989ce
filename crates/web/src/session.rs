//! Sessions of browsers, in memory.
//!
//! - `browsers.hashed`: the table has a hash of each token, never the token, so no look-up tells by
//!   its time how much of a guess was right.
//! - `browsers.bounded`: a session ends some time ([`Bounds`]) after its last request and
//!   [`AGE_MAX`] after its first, with its user, and with its user's password. A user has so many,
//!   and there are so many in all; the longest idle goes first.
//! - `browsers.three_tables`: sessions of the page, those of the file view's own log-in, and those
//!   of visitors by a link with a password are apart. So what was sent in clear, or opens one link,
//!   never opens the page.
//! - `browsers.survive_a_restart`: whoever serves the page keeps [`Sessions::written`] in a file
//!   and gives it back at the next start, so a page that is open goes on. The file has no token and
//!   opens nothing; a user who is gone or has another password by then has no session.
//! - `browsers.end_before_the_answer`: a session that a request ended is out of that file, durably,
//!   before the answer: no restart opens it again. A session that began costs a log-in at worst.
//! - `browsers.renewed_at_log_in`: a log-in draws a new token, and ends the session that the
//!   browser had.
//! - `browsers.password_again`: each request that makes or ends a way in, of whomever, needs the
//!   password of the person before the browser, and a code where that person has codes, given
//!   within [`PROVED_FOR`]: so a browser left open gives nobody a lasting way in. Wrong ones count
//!   as guesses. A log-in counts as given; for somebody without a password it is what counts.
//! - `browsers.token_on_each_change`: a change needs a second token, which is in the page and not
//!   in the cookie. A page of another site can make a browser send the cookie, and cannot read the
//!   page. Before the log-in the second token is a MAC of the first, so that nobody fills a table
//!   by asking for the form.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::{digest, hmac};
use larder_base::hex;
use larder_people::PasswordHash;
use parking_lot::Mutex;
use rand::TryRngCore;
use rand::rngs::OsRng;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use crate::note::Note;

pub const AGE_MAX: Duration = Duration::from_secs(7 * 24 * 3600);
/// The time for which a log-in, or a password given again, says who sits before the browser.
pub const PROVED_FOR: Duration = Duration::from_secs(5 * 60);
/// Longer than any token.
const TOKEN_BYTES_MAX: usize = 128;
/// Of a browser's name: enough to tell one from another.
const AGENT_CHARS_MAX: usize = 160;

/// How long sessions last without a request, and how many there may be.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    pub idle: Duration,
    pub of_user: usize,
    pub all: usize,
}

impl Bounds {
    pub const PAGE: Self = Self { idle: Duration::from_secs(12 * 3600), of_user: 16, all: 1024 };
    /// Of the file view, and of links.
    pub const FILES: Self = Self { idle: Duration::from_secs(24 * 3600), of_user: 32, all: 4096 };
}

/// A hash of a token.
pub type Hash = [u8; 32];

/// A session that a request belongs to.
#[derive(Clone, Debug)]
pub struct Session {
    key: Hash,
    /// The user; of a visitor, the link.
    pub user: String,
    pub generation: u64,
    /// The second token (`browsers.token_on_each_change`).
    pub csrf: String,
}

impl Session {
    /// Names it, and opens nothing.
    pub fn id(&self) -> String {
        id_of(&self.key)
    }
}

/// A session as its user sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Names it, and opens nothing.
    pub id: String,
    pub is_this: bool,
    pub agent: String,
    pub from: Option<IpAddr>,
    pub idle: Duration,
    pub age: Duration,
}

struct Entry {
    user: String,
    generation: u64,
    csrf: String,
    agent: String,
    from: Option<IpAddr>,
    began: Duration,
    seen: Duration,
    /// When its user last showed who that is (`browsers.password_again`). A restart remembers the
    /// log-in alone.
    proved: Option<Duration>,
    note: Option<Note>,
}

impl Entry {
    fn is_over(&self, now: Duration, bounds: Bounds) -> bool {
        now.saturating_sub(self.seen) >= bounds.idle || now.saturating_sub(self.began) >= AGE_MAX
    }
}

/// Times are those of a monotonic clock.
pub struct Sessions {
    bounds: Bounds,
    all: Mutex<HashMap<Hash, Entry>>,
    /// Signs second tokens of browsers that have not logged in.
    key: hmac::Key,
    /// Told when sessions begin or end.
    pub changed: Notify,
    /// How many sessions have ended before their time.
    ended: AtomicU64,
}

/// A session in a file. Times are those of the wall.
#[derive(Serialize, Deserialize)]
struct Kept {
    key: String,
    user: String,
    generation: u64,
    csrf: String,
    agent: String,
    from: Option<IpAddr>,
    began_secs: i64,
    seen_secs: i64,
}

/// Random bytes that nobody can guess.
pub fn secret<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    // The generator of the process is seeded by the system too.
    if OsRng.try_fill_bytes(&mut bytes).is_err() {
        bytes.fill_with(rand::random);
    }
    bytes
}

pub fn hash(token: &str) -> Hash {
    let mut hash = [0; 32];
    hash.copy_from_slice(digest::digest(&digest::SHA256, token.as_bytes()).as_ref());
    hash
}

/// Names a session without opening it.
fn id_of(key: &Hash) -> String {
    hex::encode(key.get(..8).unwrap_or_default())
}

pub fn is_same(given: &str, right: &str) -> bool {
    verify_slices_are_equal(given.as_bytes(), right.as_bytes()).is_ok()
}

/// Changes with each password that is set, since each hash has a salt of its own, and is the same
/// after a restart.
pub fn generation(password: Option<&PasswordHash>) -> u64 {
    let hash = hash(&password.map(PasswordHash::to_text).unwrap_or_default());
    u64::from_le_bytes(hash.first_chunk().copied().unwrap_or_default())
}

impl Sessions {
    pub fn new(bounds: Bounds) -> Self {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &secret::<32>());
        Self { bounds, all: Mutex::default(), key, changed: Notify::new(), ended: AtomicU64::new(0) }
    }

    /// Begins a session; returns its token.
    pub fn begin(&self, user: &str, generation: u64, from: Option<IpAddr>, agent: &str, now: Duration) -> String {
        let mut all = self.all.lock();
        all.retain(|_, entry| !entry.is_over(now, self.bounds));
        while all.values().filter(|entry| entry.user == user).count() >= self.bounds.of_user {
            drop_longest_idle(&mut all, |entry| entry.user == user);
        }
        while all.len() >= self.bounds.all {
            drop_longest_idle(&mut all, |_| true);
        }
        let token = hex::encode(&secret::<32>());
        let csrf = hex::encode(&secret::<16>());
        let agent = agent.chars().take(AGENT_CHARS_MAX).collect();
        let user = user.to_owned();
        let (began, seen, proved) = (now, now, Some(now));
        all.insert(hash(&token), Entry { user, generation, csrf, agent, from, began, seen, proved, note: None });
        self.changed.notify_one();
        token
    }

    /// The session of a token. A `request` keeps it alive; a stream that merely watches does not.
    pub fn find(&self, token: &str, now: Duration, request: bool) -> Option<Session> {
        if token.len() > TOKEN_BYTES_MAX {
            return None;
        }
        let key = hash(token);
        let mut all = self.all.lock();
        if all.get(&key)?.is_over(now, self.bounds) {
            all.remove(&key);
            return None;
        }
        let entry = all.get_mut(&key)?;
        if request {
            entry.seen = now;
        }
        Some(Session { key, user: entry.user.clone(), generation: entry.generation, csrf: entry.csrf.clone() })
    }

    pub fn end(&self, session: &Session) {
        let has_ended = self.all.lock().remove(&session.key).is_some();
        self.note_ended(usize::from(has_ended));
    }

    fn note_ended(&self, count: usize) {
        self.ended.fetch_add(count as u64, Ordering::Relaxed);
        self.changed.notify_one();
    }

    /// How many sessions requests and passwords have ended so far.
    pub fn ended(&self) -> u64 {
        self.ended.load(Ordering::Relaxed)
    }

    /// Ends the user's session of that id; whether there was one.
    pub fn end_id(&self, user: &str, id: &str) -> bool {
        let mut all = self.all.lock();
        let key = all.iter().find(|(key, entry)| entry.user == user && id_of(key) == id).map(|(key, _)| *key);
        let has_ended = key.and_then(|key| all.remove(&key)).is_some();
        self.note_ended(usize::from(has_ended));
        has_ended
    }

    /// Ends all sessions of a user but one; returns how many.
    pub fn end_others(&self, user: &str, stays: Option<&Session>) -> usize {
        let mut all = self.all.lock();
        let before = all.len();
        all.retain(|key, entry| entry.user != user || stays.is_some_and(|stays| stays.key == *key));
        let ended = before - all.len();
        self.note_ended(ended);
        ended
    }

    /// The session goes on under a new password.
    pub fn renew(&self, session: &Session, generation: u64) {
        if let Some(entry) = self.all.lock().get_mut(&session.key) {
            entry.generation = generation;
        }
        self.changed.notify_one();
    }

    /// All sessions as bytes of a file. `now` is of the monotonic clock, `secs` of the wall.
    pub fn written(&self, now: Duration, secs: i64) -> Vec<u8> {
        let at = |then: Duration| secs.saturating_sub(i64::try_from(now.saturating_sub(then).as_secs()).unwrap_or(0));
        let kept = |(key, entry): (&Hash, &Entry)| Kept {
            key: hex::encode(key),
            user: entry.user.clone(),
            generation: entry.generation,
            csrf: entry.csrf.clone(),
            agent: entry.agent.clone(),
            from: entry.from,
            began_secs: at(entry.began),
            seen_secs: at(entry.seen),
        };
        let all: Vec<Kept> =
            self.all.lock().iter().filter(|(_, entry)| !entry.is_over(now, self.bounds)).map(kept).collect();
        serde_json::to_vec(&all).unwrap_or_default()
    }

    /// Takes in what [`Sessions::written`] wrote in an earlier run.
    pub fn read(&self, bytes: &[u8], now: Duration, secs: i64) {
        let mut all = self.all.lock();
        for kept in serde_json::from_slice::<Vec<Kept>>(bytes).unwrap_or_default().into_iter().take(self.bounds.all) {
            let age = |then: i64| Duration::from_secs(u64::try_from(secs.saturating_sub(then)).unwrap_or(0));
            let (age, idle) = (age(kept.began_secs), age(kept.seen_secs));
            let key = hex::decode(&kept.key).and_then(|key| Hash::try_from(key).ok());
            let Some(key) = key.filter(|_| age < AGE_MAX && idle < self.bounds.idle) else { continue };
            let Kept { user, generation, csrf, agent, from, .. } = kept;
            let (began, seen) = (now.saturating_sub(age), now.saturating_sub(idle));
            all.insert(
                key,
                Entry { user, generation, csrf, agent, from, began, seen, proved: Some(began), note: None },
            );
        }
    }

    /// Its user has shown again who that is (`browsers.password_again`).
    pub fn prove(&self, session: &Session, now: Duration) {
        if let Some(entry) = self.all.lock().get_mut(&session.key) {
            entry.proved = Some(now);
        }
    }

    pub fn is_proved(&self, session: &Session, now: Duration) -> bool {
        let proved = self.all.lock().get(&session.key).and_then(|entry| entry.proved);
        proved.is_some_and(|proved| now.saturating_sub(proved) <= PROVED_FOR)
    }

    /// The sessions of a user, the latest used first.
    pub fn of_user(&self, session: &Session, now: Duration) -> Vec<Listed> {
        let all = self.all.lock();
        let own = all.iter().filter(|(_, entry)| entry.user == session.user && !entry.is_over(now, self.bounds));
        let mut listed: Vec<Listed> = own
            .map(|(key, entry)| Listed {
                id: id_of(key),
                is_this: *key == session.key,
                agent: entry.agent.clone(),
                from: entry.from,
                idle: now.saturating_sub(entry.seen),
                age: now.saturating_sub(entry.began),
            })
            .collect();
        listed.sort_by_key(|one| (!one.is_this, one.idle));
        listed
    }

    /// Leaves a note for the next page of the session; one at most.
    pub fn leave(&self, session: &Session, note: Note) {
        if let Some(entry) = self.all.lock().get_mut(&session.key) {
            entry.note = Some(note);
        }
    }

    pub fn take_note(&self, session: &Session) -> Option<Note> {
        self.all.lock().get_mut(&session.key)?.note.take()
    }

    /// The second token of a browser that has not logged in.
    pub fn csrf_before_log_in(&self, token: &str) -> String {
        hex::encode(hmac::sign(&self.key, token.as_bytes()).as_ref())
    }
}

fn drop_longest_idle(all: &mut HashMap<Hash, Entry>, is_meant: impl Fn(&Entry) -> bool) {
    let oldest = all.iter().filter(|(_, entry)| is_meant(entry)).min_by_key(|(_, entry)| entry.seen);
    let Some(key) = oldest.map(|(key, _)| *key) else { return };
    all.remove(&key);
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE_MAX: Duration = Bounds::PAGE.idle;
    const SESSIONS_MAX: usize = Bounds::PAGE.all;
    const OF_USER_MAX: usize = Bounds::PAGE.of_user;

    fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    #[test]
    fn sessions_end_in_time() {
        let sessions = Sessions::new(Bounds::PAGE);
        let token = sessions.begin("ann", 1, None, "", secs(0));
        assert!(sessions.find(&token, IDLE_MAX - secs(1), false).is_some());
        assert!(sessions.find(&token, IDLE_MAX, true).is_none(), "watching keeps no session alive");

        let token = sessions.begin("ann", 1, None, "", secs(0));
        let mut now = secs(0);
        while now < AGE_MAX {
            assert!(sessions.find(&token, now, true).is_some());
            now += IDLE_MAX / 2;
        }
        assert!(sessions.find(&token, now, true).is_none());
        assert!(sessions.find(&"a".repeat(TOKEN_BYTES_MAX + 1), secs(0), true).is_none());
    }

    #[test]
    fn sessions_are_bounded_in_number() {
        let sessions = Sessions::new(Bounds::PAGE);
        let first = sessions.begin("ann", 1, None, "", secs(0));
        let bob = sessions.begin("bob", 1, None, "", secs(0));
        for at in 1..=OF_USER_MAX as u64 {
            sessions.begin("ann", 1, None, &"x".repeat(4096), secs(at));
        }
        assert!(sessions.find(&first, secs(100), true).is_none(), "the longest idle went");
        let bob = sessions.find(&bob, secs(100), true).unwrap();
        assert_eq!(sessions.of_user(&bob, secs(100)).len(), 1);
        for user in 0..2 * SESSIONS_MAX {
            sessions.begin(&user.to_string(), 1, None, "", secs(200));
        }
        assert!(sessions.all.lock().len() <= SESSIONS_MAX);
    }

    #[test]
    fn sessions_survive_a_restart_and_their_file_opens_nothing() {
        let (before, after) = (Sessions::new(Bounds::PAGE), Sessions::new(Bounds::PAGE));
        let tokens = ["ann", "bob"].map(|user| before.begin(user, 7, None, "agent", secs(100)));
        let csrf = before.find(&tokens[0], secs(200), true).unwrap().csrf;
        let file = before.written(secs(300), 5000);
        let text = String::from_utf8(file.clone()).unwrap();
        assert!(!tokens.iter().any(|token| text.contains(token)));
        let start = AGE_MAX;
        after.read(&file, start, 5000 + 60);
        let session = after.find(&tokens[0], start, false).unwrap();
        assert_eq!((session.user.as_str(), session.generation, &session.csrf), ("ann", 7, &csrf));
        assert_eq!(after.of_user(&session, start)[0].idle, secs(160), "it was idle before, and while nobody served");
        assert!(after.find(&tokens[1], start + IDLE_MAX - secs(261), false).is_some());
        assert!(after.find(&tokens[1], start + IDLE_MAX - secs(260), false).is_none());
        let late = Sessions::new(Bounds::PAGE);
        late.read(&file, start, 5000 + i64::try_from(AGE_MAX.as_secs()).unwrap());
        late.read(b"[{\"key\":1}]", start, 0);
        late.read(b"", start, 0);
        assert!(late.all.lock().is_empty());
    }

    #[test]
    fn sessions_are_listed_and_ended_by_their_user_alone() {
        let sessions = Sessions::new(Bounds::PAGE);
        let tokens = ["a", "b", "c"].map(|agent| sessions.begin("ann", 1, None, agent, secs(0)));
        let this = sessions.find(&tokens[0], secs(1), true).unwrap();
        let listed = sessions.of_user(&this, secs(1));
        assert!(listed.len() == 3 && listed[0].is_this && listed[0].agent == "a");
        assert!(!sessions.end_id("bob", &listed[1].id));
        assert!(sessions.end_id("ann", &listed[1].id) && !sessions.end_id("ann", &listed[1].id));
        assert_eq!(sessions.end_others("ann", Some(&this)), 1);
        assert_eq!(sessions.of_user(&this, secs(1)).len(), 1);
        assert!(!listed.iter().any(|one| tokens.iter().any(|token| token.contains(&one.id))));
    }

    /// As [`sessions_end_in_time`], by hand and with the bounds of the file view.
    #[test]
    fn sessions_end_in_time_and_by_hand() {
        let (all, idle) = (Sessions::new(Bounds::FILES), Bounds::FILES.idle);
        let begin = || all.begin("ann", 0, None, "", secs(0));
        let token = begin();
        let session = all.find(&token, secs(0), true).unwrap();
        assert!(
            is_same(&session.csrf, &session.csrf) && !is_same("", &session.csrf) && !is_same(&token, &session.csrf)
        );
        assert!(all.find("", secs(0), true).is_none() && all.find(&session.csrf, secs(0), true).is_none());
        let mut now = secs(0);
        while now + idle / 2 < AGE_MAX {
            now += idle / 2;
            assert!(all.find(&token, now, true).is_some(), "it is used");
        }
        assert!(all.find(&token, AGE_MAX, true).is_none());
        let token = begin();
        assert!(all.find(&token, idle, true).is_none());
        let token = begin();
        let session = all.find(&token, secs(0), true).unwrap();
        assert!(all.end_id("ann", &session.id()));
        assert!(all.find(&token, secs(0), true).is_none());
    }

    #[test]
    fn their_number_is_bounded() {
        let all = Sessions::new(Bounds::FILES);
        let begin = |user: &str, at: u64| all.begin(user, 0, None, "", secs(at));
        let first = begin("ann", 0);
        let others: Vec<String> = (1..=Bounds::FILES.of_user).map(|at| begin("ann", at as u64)).collect();
        assert!(all.find(&first, secs(60), true).is_none(), "the oldest of the user went");
        assert!(others.iter().all(|token| all.find(token, secs(60), true).is_some()));
        for n in 0..Bounds::FILES.all {
            begin(&n.to_string(), 100);
        }
        assert_eq!(all.all.lock().len(), Bounds::FILES.all);
    }

    #[test]
    fn another_password_is_another_generation() {
        let [one, two] = ["x", "x"].map(|text| PasswordHash::new(text).unwrap());
        assert_eq!(generation(Some(&one)), generation(Some(&one)));
        assert_ne!(generation(Some(&one)), generation(Some(&two)));
        assert_ne!(generation(Some(&one)), generation(None));
    }
}
