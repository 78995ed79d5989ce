//! Basic authentication (RFC 7617) against the users' passwords, and app tokens as Basic passwords
//! or alone as Bearer (RFC 6750).
//!
//! - `auth.verified_are_remembered`: a password that was right is looked up, not hashed again, for
//!   [`REMEMBERED_TIME`], while its user stays as it was, and where it came from: somebody elsewhere would
//!   learn of each guess whether it is remembered. What is kept of it is a keyed hash under a key of this
//!   process alone.
//! - `auth.same_are_verified_once`: requests that come at once with the same credentials wait for the
//!   first of them. A program that begins with 64 of them makes one guess, not 64.
//! - `auth.guessing_is_slow`: guesses cost what `login.guessing_is_slow` says. Credentials that are
//!   remembered are let in meanwhile: whoever guesses beside a user shuts nobody out.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use aws_lc_rs::hmac;
use base64ct::{Base64, Encoding};
use larder_base::passed;
use larder_people::{PasswordHash, User};
use parking_lot::Mutex;
use rand::TryRngCore;
use rand::rngs::OsRng;

use super::shared::Shared;
use larder_doors::door::shown;
use larder_doors::login::{LOCKED_TIME, PASSWORD_BYTES_MAX, Unseen, Verdict};
use larder_doors::strangers::network;

const REMEMBERED_TIME: Duration = Duration::from_secs(300);
const REMEMBERED_MAX: usize = 1024;

/// Whose credentials they are, and until when they are remembered.
type Known = (Arc<User>, Instant);

/// A network, name and password.
type Tag = [u8; 32];

/// Credentials that were right a short while ago (`auth.verified_are_remembered`).
pub struct Remembered {
    key: hmac::Key,
    known: Mutex<HashMap<Tag, Known>>,
    /// Credentials that are being verified (`auth.same_are_verified_once`).
    under_way: Mutex<HashMap<Tag, Weak<tokio::sync::Mutex<()>>>>,
}

impl Remembered {
    pub fn new() -> Self {
        let mut key = [0; 32];
        // The generator of the process is seeded by the system too.
        if OsRng.try_fill_bytes(&mut key).is_err() {
            key = rand::random();
        }
        Self { key: hmac::Key::new(hmac::HMAC_SHA256, &key), known: Mutex::default(), under_way: Mutex::default() }
    }

    fn tag(&self, address: IpAddr, name: &str, password: &str) -> Tag {
        let mut context = hmac::Context::with_key(&self.key);
        let network = match network(address) {
            IpAddr::V4(network) => network.to_ipv6_mapped(),
            IpAddr::V6(network) => network,
        };
        context.update(&network.octets());
        context.update(&(name.len() as u64).to_le_bytes());
        context.update(name.as_bytes());
        context.update(password.as_bytes());
        let mut tag = [0; 32];
        tag.copy_from_slice(context.sign().as_ref());
        tag
    }

    /// One at a time of those with the same credentials. Entries last while a request holds them.
    fn one_of(&self, tag: Tag) -> Arc<tokio::sync::Mutex<()>> {
        let mut all = self.under_way.lock();
        if let Some(one) = all.get(&tag).and_then(Weak::upgrade) {
            return one;
        }
        all.retain(|_, one| one.strong_count() > 0);
        let one = Arc::default();
        all.insert(tag, Arc::downgrade(&one));
        one
    }

    fn find(&self, tag: &Tag, now: Instant) -> Option<Arc<User>> {
        let mut known = self.known.lock();
        match known.get(tag) {
            Some((user, since)) if now.duration_since(*since) < REMEMBERED_TIME => Some(Arc::clone(user)),
            Some(_) => {
                known.remove(tag);
                None
            }
            None => None,
        }
    }

    fn add(&self, tag: Tag, user: Arc<User>, now: Instant) {
        let mut known = self.known.lock();
        if known.len() >= REMEMBERED_MAX {
            known.retain(|_, (_, since)| now.duration_since(*since) < REMEMBERED_TIME);
        }
        if known.len() >= REMEMBERED_MAX {
            let oldest = known.iter().min_by_key(|(_, (_, since))| *since).map(|(tag, _)| *tag);
            oldest.map(|oldest| known.remove(&oldest));
        }
        known.insert(tag, (user, now));
    }
}

/// Why nobody is let in.
pub enum Refused {
    /// No credentials, or none that could be anybody's.
    Asked,
    Wrong,
    /// The address has guessed too often, or too many passwords wait to be looked at.
    LockedOut,
}

/// The name and password of an Authorization header.
fn credentials(header: &str) -> Option<(String, String)> {
    let (scheme, rest) = header.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") || rest.len() > 2 * PASSWORD_BYTES_MAX {
        return None;
    }
    let text = String::from_utf8(Base64::decode_vec(rest.trim()).ok()?).ok()?;
    let (name, password) = text.split_once(':')?;
    Some((name.to_owned(), password.to_owned()))
}

/// The token of an Authorization header (RFC 6750, 2.1).
fn bearer(header: &str) -> Option<&str> {
    let (scheme, rest) = header.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(rest.trim())
}

/// The user that a token lets in; `name` is the one that came with it, if any. A token is not
/// guessed: an address that guessed passwords is let in with it.
fn by_token(shared: &Shared, address: IpAddr, name: Option<&str>, given: &str) -> Option<Arc<User>> {
    let token = shared.tokens().find(given, passed::latest())?;
    let user = shared.user(&token.user).filter(|user| name.is_none_or(|name| name == user.name))?;
    let (tag, now) = (shared.remembered.tag(address, &user.name, given), Instant::now());
    if shared.remembered.find(&tag, now).is_none() {
        let (name, id) = (&user.name, &token.id);
        shared
            .door
            .came_in(address, Some(name), || format!("WebDAV: '{name}' from {address} logged in with the token {id}"));
        shared.stats.logins.add(1);
    }
    let narrowed = Arc::new(user.narrowed(token));
    // For the log alone: a narrowed user is never equal to one that a password lets in.
    shared.remembered.add(tag, Arc::clone(&narrowed), now);
    Some(narrowed)
}

pub async fn log_in(shared: &Shared, address: IpAddr, header: Option<&str>) -> Result<Arc<User>, Refused> {
    let Some(header) = header else { return Err(Refused::Asked) };
    if let Some(given) = bearer(header) {
        if let Some(user) = by_token(shared, address, None, given) {
            return Ok(user);
        }
        refuse(shared, "WebDAV", address, "a token", "no such token, or its time is over").await;
        return Err(Refused::Wrong);
    }
    let Some((name, given)) = credentials(header) else { return Err(Refused::Asked) };
    if let Some(user) = by_token(shared, address, Some(&name), &given) {
        return Ok(user);
    }
    let tag = shared.remembered.tag(address, &name, &given);
    let remembered = || {
        let user = shared.remembered.find(&tag, Instant::now())?;
        (shared.user(&name).as_ref() == Some(&user)).then_some(user)
    };
    if let Some(user) = remembered() {
        return Ok(user);
    }
    let one = shared.remembered.one_of(tag);
    let _one = one.lock().await;
    if let Some(user) = remembered() {
        return Ok(user);
    }
    let user = verify(shared, address, &name, given).await?;
    shared.remembered.add(tag, Arc::clone(&user), Instant::now());
    Ok(user)
}

/// Reasons for which a password lets nobody in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PasswordRefused {
    /// The name or the password is wrong.
    Wrong,
    /// The address has guessed too often, or too many passwords wait: ask again after so long.
    Wait(Duration),
}

/// The password of a user, for a guest on this server.
pub async fn check_for_guest(
    shared: &Shared,
    address: IpAddr,
    name: &str,
    given: String,
) -> Result<(), PasswordRefused> {
    match verify_at("page", shared, address, name, given).await {
        Ok(_) => Ok(()),
        Err(Refused::LockedOut) => Err(PasswordRefused::Wait(LOCKED_TIME)),
        Err(Refused::Asked | Refused::Wrong) => Err(PasswordRefused::Wrong),
    }
}

/// Looks at a password at the price of a guess (`login.guessing_is_slow`). A wrong one is told the door, with `why`.
async fn look(
    shared: &Shared,
    door: &str,
    (address, name): (IpAddr, &str),
    hash: Option<PasswordHash>,
    given: String,
    why: &str,
) -> Result<(), Refused> {
    let gate = &shared.config.gate;
    let seen = match gate.turn(address).await {
        Ok(turn) => gate.verify(turn, (address, name), hash, given).await,
        Err(unseen) => Err(unseen),
    };
    match seen {
        Ok(Verdict::Right) => return Ok(()),
        Ok(Verdict::Wrong) => refuse(shared, door, address, name, why).await,
        Ok(Verdict::Locks) => {
            let why = "wrong password, and too many of them: locked out for a minute";
            refuse(shared, door, address, name, why).await;
        }
        Err(unseen) => {
            if unseen == Unseen::LockedOut {
                shared.stats.logins_locked_out.add(1);
            }
            refuse(shared, door, address, name, unseen.why()).await;
            return Err(Refused::LockedOut);
        }
    }
    Err(Refused::Wrong)
}

/// The password of a link, which is guessed at the same price as a user's.
pub async fn verify_link(
    shared: &Shared,
    address: IpAddr,
    name: &str,
    hash: Option<PasswordHash>,
    given: String,
) -> Result<(), Refused> {
    look(shared, "WebDAV", (address, name), hash, given, "wrong password").await
}

/// A name and a password, however they came.
pub async fn verify(shared: &Shared, address: IpAddr, name: &str, given: String) -> Result<Arc<User>, Refused> {
    verify_at("WebDAV", shared, address, name, given).await
}

async fn verify_at(
    door: &str,
    shared: &Shared,
    address: IpAddr,
    name: &str,
    given: String,
) -> Result<Arc<User>, Refused> {
    let user = shared.user(name);
    let hash = user.as_ref().and_then(|user| user.password.clone());
    let why = match user.is_some() && hash.is_none() {
        true => format!(
            "there is no password, or none that can be checked here; set it (again) with: larder user passwd {}",
            shown(name)
        ),
        false => "wrong name or password".to_owned(),
    };
    look(shared, door, (address, name), hash, given, &why).await?;
    let user = user.ok_or(Refused::Wrong)?;
    shared.stats.logins.add(1);
    shared.door.came_in(address, Some(&user.name), || format!("{door}: '{}' from {address} logged in", user.name));
    Ok(user)
}

async fn refuse(shared: &Shared, door: &str, address: IpAddr, name: &str, why: &str) {
    shared.stats.logins_refused.add(1);
    let name = shown(name);
    let wait = shared.door.refused(address, || format!("{door}: '{name}' from {address} was refused: {why}"));
    tokio::time::sleep(wait).await;
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn credentials_of_the_rfc() {
        let of = |header: &str| credentials(header);
        assert_eq!(of("Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==").unwrap(), ("Aladdin".into(), "open sesame".into()));
        assert_eq!(of("basic dGVzdDoxMjPCow==").unwrap(), ("test".into(), "123£".into()));
        assert_eq!(of("Basic YTpiOmM=").unwrap(), ("a".into(), "b:c".into()));
        for bad in ["", "Basic", "Bearer YTpi", "Basic !", "Basic YWI=", "Basic /w=="] {
            assert!(of(bad).is_none(), "{bad}");
        }
        assert!(of(&format!("Basic {}", "A".repeat(1 << 20))).is_none());
    }

    #[test]
    fn what_is_remembered_is_bounded_and_short() {
        let (all, now) = (Remembered::new(), Instant::now());
        let user = |name: &str| Arc::new(User::new(name, 1, 1));
        let [here, there, v6] = ["192.0.2.1", "192.0.2.2", "2001:db8::1"].map(|text| text.parse().unwrap());
        let tag = all.tag(here, "ann", "secret");
        assert_eq!(tag, all.tag("::ffff:192.0.2.1".parse().unwrap(), "ann", "secret"));
        assert_eq!(all.tag(v6, "ann", "secret"), all.tag("2001:db8::2".parse().unwrap(), "ann", "secret"));
        for other in [all.tag(here, "annsecret", ""), all.tag(there, "ann", "secret"), all.tag(v6, "ann", "secret")] {
            assert_ne!(tag, other);
        }
        assert_ne!(tag, Remembered::new().tag(here, "ann", "secret"), "each has a key of its own");
        all.add(tag, user("ann"), now);
        assert!(all.find(&tag, now).is_some() && all.find(&all.tag(here, "ann", "Secret"), now).is_none());
        assert!(all.find(&tag, now + REMEMBERED_TIME).is_none());
        for n in 0..2 * REMEMBERED_MAX {
            all.add(all.tag(here, "bob", &n.to_string()), user("bob"), now);
        }
        assert_eq!(all.known.lock().len(), REMEMBERED_MAX);
    }
}
