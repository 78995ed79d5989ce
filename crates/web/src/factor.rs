//! Second factors: passkeys, codes of a clock that a telephone shares with this box (TOTP, RFC 6238), and codes for the day both are
//! lost.
//!
//! - `factors.kept_first`: a factor is begun or ended, and a recovery code used, when that is on disk, not before.
//! - `factors.code_once`: a code opens once, over restarts too: the step of the last one is on disk before it opens. The step of a
//!   clock that was ahead refuses no others once the clock is right.
//! - `factors.guesses_bounded`: after [`WRONG_MAX`] wrong codes of a user none is tried until [`WRONG_FOR`] is over. Codes
//!   are tried for somebody who gave the right password, so strangers lock nobody out.
//! - `factors.damage_opens_nothing`: while the file cannot be read, nobody logs in.
//! - `factors.of_one`: codes and passkeys belong to one user, not to the next one of that name. The log-in of another ends them.
//! - `factors.password_first`: between password and code a browser has a token that opens nothing but the form for the code,
//!   for [`PENDING_FOR`].
//! - `factors.end_with_a_reset`: a password that the owner sets ends the user's factors, unless the owner keeps them.
//! - `factors.passkey_of_one`: a passkey belongs to one user and one name of this box. One whose counter went back was copied, and opens nothing.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use aws_lc_rs::{digest, hmac};
use larder_api::Failure;
use larder_base::hex;
use parking_lot::Mutex;
use qrcodegen::{QrCode, QrCodeEcc};
use serde::{Deserialize, Serialize};

use crate::form::encoded;
use crate::oidc::Subject;
use crate::passkey::is_copy;
use crate::session::{is_same, secret};

/// Of a secret: what RFC 4226 4 recommends.
const SECRET_BYTES: usize = 20;
/// Of a step (RFC 6238 4.1).
const STEP_SECS: u64 = 30;
const DIGITS: usize = 6;
/// Clocks of telephones differ by so many steps (RFC 6238 5.2).
const SKEW_STEPS: u64 = 1;
const RECOVERY_CODES: usize = 10;
/// 60 bits: nobody tries that many.
const RECOVERY_CHARS: usize = 12;
pub const PASSKEYS_MAX: usize = 16;
pub const WRONG_MAX: u32 = 5;
pub const WRONG_FOR: Duration = Duration::from_secs(15 * 60);
pub const PENDING_FOR: Duration = Duration::from_secs(5 * 60);
/// People between password and code.
const PENDING_MAX: usize = 256;
const BASE32: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";

/// What is kept of a user's factors.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Factor {
    /// Of the user; none in files of earlier releases, which did not know it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    uid: Option<u32>,
    /// Of codes; empty: the user has none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    secret: String,
    /// Hashes of recovery codes that were not used.
    recovery: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    passkeys: Vec<Passkey>,
    /// The last step whose code was taken; 0: none, or before this was kept.
    #[serde(default)]
    last_step: u64,
}

/// A credential of an authenticator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Passkey {
    /// As base64url, as the key.
    pub id: String,
    /// A COSE key.
    pub key: String,
    /// The name of this box that it is for.
    pub party: String,
    /// What the authenticator calls the user: random, the same for all passkeys of a user.
    pub handle: String,
    pub name: String,
    /// Of the user, who may be removed while another gets the name.
    pub uid: u32,
    pub count: u32,
    pub made_secs: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used_secs: Option<i64>,
}

/// `oidc.bound_once`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Issued {
    uid: u32,
    #[serde(flatten)]
    subject: Subject,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    is_demanded: bool,
    of: BTreeMap<String, Factor>,
    /// Who each user is at the issuer.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    issued: BTreeMap<String, Issued>,
}

struct Pending {
    user: String,
    generation: u64,
    since: Duration,
    /// Whom the user is bound to once the code is right (`oidc.bound_once`).
    subject: Option<Subject>,
}

#[derive(Default)]
struct Table {
    kept: Kept,
    is_damaged: bool,
    /// Secrets that were shown, and not confirmed by a code yet.
    begun: BTreeMap<String, [u8; SECRET_BYTES]>,
    /// Wrong codes, and when the first of them was given.
    wrong: HashMap<String, (u32, Duration)>,
    pending: HashMap<[u8; 32], Pending>,
}

#[derive(Default)]
pub struct Factors {
    table: Mutex<Table>,
    /// Held while a change is on its way to the disk: one after another.
    changing: tokio::sync::Mutex<()>,
}

/// A user's factors that open nothing any more.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct FactorsEnded {
    /// Their names.
    pub passkeys: Vec<String>,
    pub has_codes: bool,
    /// The user was bound to a person at the issuer.
    pub was_issued: bool,
}

/// The outcome of a code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tried {
    /// Of the clock.
    Right,
    /// A recovery code; it counts once its end is on disk.
    Recovery,
    Wrong,
    Wait(Duration),
}

/// A secret as a person takes it into a telephone.
pub struct Shown {
    pub secret: String,
    /// Of the picture, in modules, its quiet zone included.
    pub side: usize,
    /// The path of the picture's dark modules.
    pub path: String,
}

pub fn step_of(secs: i64) -> u64 {
    u64::try_from(secs).unwrap_or(0) / STEP_SECS
}

/// RFC 4226 5.3.
fn code(secret: &[u8], step: u64) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, secret);
    let tag = hmac::sign(&key, &step.to_be_bytes());
    let tag = tag.as_ref();
    let at = usize::from(tag.last().copied().unwrap_or(0) & 15);
    let word = tag.get(at..).and_then(|rest| rest.first_chunk().copied()).unwrap_or_default();
    let number = (u32::from_be_bytes(word) & 0x7fff_ffff) % 10u32.pow(DIGITS as u32);
    format!("{number:0DIGITS$}")
}

fn base32(bytes: &[u8]) -> String {
    let (mut out, mut bits, mut count) = (String::new(), 0u32, 0);
    for byte in bytes {
        (bits, count) = (bits << 8 | u32::from(*byte), count + 8);
        while count >= 5 {
            count -= 5;
            out.push(char::from(BASE32[(bits >> count & 31) as usize]));
        }
    }
    if count > 0 {
        out.push(char::from(BASE32[(bits << (5 - count) & 31) as usize]));
    }
    out
}

fn hash(text: &str) -> String {
    hex::encode(digest::digest(&digest::SHA256, text.as_bytes()).as_ref())
}

/// A code as people type it: blanks, hyphens and the size of letters are nothing.
fn plain(given: &str) -> String {
    given.chars().filter(char::is_ascii_alphanumeric).map(|letter| letter.to_ascii_uppercase()).collect()
}

fn recovery_code() -> String {
    let mut code = base32(&secret::<8>());
    code.truncate(RECOVERY_CHARS);
    code
}

fn recovery_codes() -> Vec<String> {
    (0..RECOVERY_CODES).map(|_| recovery_code()).collect()
}

/// A code in groups of four.
fn grouped(code: &str) -> String {
    let groups: Vec<&str> = code.as_bytes().chunks(4).filter_map(|chunk| std::str::from_utf8(chunk).ok()).collect();
    groups.join("-")
}

/// The step of a code that is right now and was not taken yet (`factors.code_once`).
fn right_step(secret: &[u8], last_step: u64, given: &str, now: u64) -> Option<u64> {
    let newest = now.saturating_add(SKEW_STEPS);
    let steps = now.saturating_sub(SKEW_STEPS)..=newest;
    steps.filter(|step| *step > last_step || last_step > newest).find(|step| is_same(given, &code(secret, *step)))
}

fn shown(user: &str, secret: &[u8]) -> Shown {
    let secret = base32(secret);
    let url = format!("otpauth://totp/larder:{}?secret={secret}&issuer=larder", encoded(user));
    let (mut path, mut side) = (String::new(), 0);
    if let Ok(qr) = QrCode::encode_text(&url, QrCodeEcc::Medium) {
        const QUIET: i32 = 4;
        side = usize::try_from(qr.size() + 2 * QUIET).unwrap_or(0);
        for y in 0..qr.size() {
            for x in (0..qr.size()).filter(|x| qr.get_module(*x, y)) {
                path.push_str(&format!("M{} {}h1v1h-1z", x + QUIET, y + QUIET));
            }
        }
    }
    let secret = secret.as_bytes().chunks(4).filter_map(|chunk| std::str::from_utf8(chunk).ok()).collect::<Vec<_>>();
    Shown { secret: secret.join(" "), side, path }
}

impl Kept {
    /// `factors.end_with_a_reset`
    fn end(&mut self, user: &str) -> FactorsEnded {
        let factor = self.of.remove(user).unwrap_or_default();
        let passkeys = factor.passkeys.into_iter().map(|key| key.name).collect();
        let was_issued = self.issued.remove(user).is_some();
        FactorsEnded { passkeys, has_codes: !factor.secret.is_empty(), was_issued }
    }

    fn to_bytes(&self) -> Result<Vec<u8>, Failure> {
        serde_json::to_vec(self).map_err(|e| Failure::internal(e.to_string()))
    }
}

fn unreadable() -> Failure {
    Failure::unavailable("nothing was changed: the second factors cannot be read").action(
        "Restore the file page_factors in the data folder; or stop larder, remove the file and with it all second \
         factors, and start larder again",
    )
}

/// The file of factors without those of a user, for a box whose page is not served.
pub fn without(file: &[u8], user: &str) -> Result<(Vec<u8>, FactorsEnded), Failure> {
    let mut kept: Kept = serde_json::from_slice(file).map_err(|_| unreadable())?;
    let ended = kept.end(user);
    Ok((kept.to_bytes()?, ended))
}

/// The file of factors as it was before anybody used them: uses alone are no change of the people of a box.
pub fn without_uses(file: &[u8]) -> Vec<u8> {
    let Ok(mut kept) = serde_json::from_slice::<Kept>(file) else { return file.to_vec() };
    for factor in kept.of.values_mut() {
        factor.last_step = 0;
        for key in &mut factor.passkeys {
            (key.count, key.used_secs) = (0, None);
        }
    }
    kept.to_bytes().unwrap_or_else(|_| file.to_vec())
}

impl Factors {
    /// Takes in the file of an earlier run; nothing where there was none.
    pub fn read(&self, bytes: Option<&[u8]>) {
        let mut table = self.table.lock();
        match bytes.map(serde_json::from_slice::<Kept>) {
            None => {}
            Some(Ok(kept)) => table.kept = kept,
            Some(Err(_)) => table.is_damaged = true,
        }
    }

    /// `factors.damage_opens_nothing`
    pub fn is_damaged(&self) -> bool {
        self.table.lock().is_damaged
    }

    pub fn has(&self, user: &str) -> bool {
        self.table.lock().kept.of.contains_key(user)
    }

    /// The user whom a person at the issuer is bound to (`oidc.bound_once`).
    pub fn issued(&self, subject: &Subject) -> Option<(String, u32)> {
        let table = self.table.lock();
        let found = table.kept.issued.iter().find(|(_, one)| one.subject == *subject);
        found.map(|(user, one)| (user.clone(), one.uid))
    }

    /// Whether this user is bound to somebody.
    pub fn knows(&self, user: &str, uid: u32) -> bool {
        self.table.lock().kept.issued.get(user).is_some_and(|one| one.uid == uid)
    }

    /// Binds a user to a person at the issuer, durably (`oidc.bound_once`).
    pub async fn bind<K: AsyncFnOnce(Vec<u8>) -> Result<(), Failure>>(
        &self,
        (user, uid): (&str, u32),
        subject: &Subject,
        keep: K,
    ) -> Result<(), Failure> {
        let bind = |kept: &mut Kept| {
            // Of users who are gone, or of this one's predecessor.
            kept.issued.retain(|other, one| one.subject != *subject && (other != user || one.uid == uid));
            if kept.issued.contains_key(user) {
                return Err(Failure::exists(format!("{user} is bound to somebody else there")));
            }
            kept.issued.insert(user.to_owned(), Issued { uid, subject: subject.clone() });
            Ok(())
        };
        self.try_change(bind, keep).await
    }

    /// Ends who a user is at the issuer.
    pub async fn unbind<K: AsyncFnOnce(Vec<u8>) -> Result<(), Failure>>(
        &self,
        user: &str,
        keep: K,
    ) -> Result<(), Failure> {
        self.change(|kept| drop(kept.issued.remove(user)), keep).await
    }

    /// Whether a user is bound to somebody at the issuer.
    pub fn is_issued(&self, user: &str) -> bool {
        self.table.lock().kept.issued.contains_key(user)
    }

    /// Codes of a telephone.
    pub fn has_codes(&self, user: &str) -> bool {
        self.table.lock().kept.of.get(user).is_some_and(|factor| !factor.secret.is_empty())
    }

    pub fn passkeys(&self, user: &str) -> Vec<Passkey> {
        self.table.lock().kept.of.get(user).map(|factor| factor.passkeys.clone()).unwrap_or_default()
    }

    /// The passkey of that id for a name of this box, and its user.
    pub fn passkey(&self, id: &str, party: &str) -> Option<(String, Passkey)> {
        let table = self.table.lock();
        let mut all =
            table.kept.of.iter().flat_map(|(user, factor)| factor.passkeys.iter().map(move |key| (user, key)));
        all.find(|(_, key)| key.id == id && key.party == party).map(|(user, key)| (user.clone(), key.clone()))
    }

    /// Returns recovery codes where it is the user's first factor.
    pub async fn add_passkey<K: AsyncFnOnce(Vec<u8>) -> Result<(), Failure>>(
        &self,
        user: &str,
        passkey: Passkey,
        keep: K,
    ) -> Result<Option<Vec<String>>, Failure> {
        let mut codes = None;
        let add = |kept: &mut Kept| {
            // `factors.passkey_of_one`
            if kept.of.values().flat_map(|factor| &factor.passkeys).any(|other| other.id == passkey.id) {
                return Err(Failure::exists("nothing was added: this passkey is somebody's already"));
            }
            let factor = kept.of.entry(user.to_owned()).or_insert_with(|| {
                let drawn = recovery_codes();
                let recovery = drawn.iter().map(|code| hash(code)).collect();
                codes = Some(drawn);
                Factor { uid: Some(passkey.uid), recovery, ..Factor::default() }
            });
            if factor.passkeys.len() >= PASSKEYS_MAX {
                return Err(Failure::invalid(format!("nothing was added: you have {PASSKEYS_MAX} passkeys"))
                    .action("Remove one first"));
            }
            factor.passkeys.push(passkey);
            Ok(())
        };
        self.try_change(add, keep).await?;
        Ok(codes.map(|codes| codes.iter().map(|code| grouped(code)).collect()))
    }

    /// Changes a passkey of a user, or removes it where `change` says so.
    pub async fn change_passkey<K: AsyncFnOnce(Vec<u8>) -> Result<(), Failure>>(
        &self,
        user: &str,
        id: &str,
        change: impl FnOnce(&mut Passkey) -> bool,
        keep: K,
    ) -> Result<(), Failure> {
        let change = |kept: &mut Kept| {
            let factor = kept.of.get_mut(user);
            let at = factor.as_ref().and_then(|factor| factor.passkeys.iter().position(|key| key.id == id));
            let (Some(factor), Some(at)) = (factor, at) else {
                return Err(Failure::not_found("you have no such passkey"));
            };
            if factor.passkeys.get_mut(at).is_some_and(change) {
                factor.passkeys.remove(at);
            }
            let is_over = factor.passkeys.is_empty() && factor.secret.is_empty();
            if is_over {
                kept.of.remove(user);
            }
            Ok(())
        };
        self.try_change(change, keep).await
    }

    /// A passkey signed (`factors.passkey_of_one`).
    pub async fn passkey_signed<K: AsyncFnOnce(Vec<u8>) -> Result<(), Failure>>(
        &self,
        user: &str,
        id: &str,
        (count, secs): (u32, i64),
        keep: K,
    ) -> Result<(), Failure> {
        let mut is_copied = false;
        let count = |passkey: &mut Passkey| {
            is_copied = is_copy(passkey.count, count);
            if !is_copied {
                (passkey.count, passkey.used_secs) = (count, Some(secs));
            }
            false
        };
        self.change_passkey(user, id, count, keep).await?;
        match is_copied {
            false => Ok(()),
            true => Err(Failure::denied("the counter of the passkey went back: somebody has a copy of it")
                .action("Log in by another factor, and remove the passkey")),
        }
    }

    /// Ends the codes of a telephone. Passkeys stay.
    pub async fn end_codes<K: AsyncFnOnce(Vec<u8>) -> Result<(), Failure>>(
        &self,
        user: &str,
        keep: K,
    ) -> Result<(), Failure> {
        let end = |kept: &mut Kept| {
            let Some(factor) = kept.of.get_mut(user) else { return };
            factor.secret.clear();
            if factor.passkeys.is_empty() {
                kept.of.remove(user);
            }
        };
        self.change(end, keep).await
    }

    pub fn is_demanded(&self) -> bool {
        self.table.lock().kept.is_demanded
    }

    /// The owner of the box demands one, and this user has none.
    pub fn owes(&self, user: &str) -> bool {
        let table = self.table.lock();
        table.kept.is_demanded && !table.kept.of.contains_key(user)
    }

    /// Recovery codes of the user that were not used.
    pub fn recovery_left(&self, user: &str) -> usize {
        self.table.lock().kept.of.get(user).map_or(0, |factor| factor.recovery.len())
    }

    /// Draws a secret for a user, who shows by a code to have it.
    pub fn begin(&self, user: &str) -> Shown {
        let drawn = secret::<SECRET_BYTES>();
        self.table.lock().begun.insert(user.to_owned(), drawn);
        shown(user, &drawn)
    }

    /// The secret that was begun, once more.
    pub fn begun(&self, user: &str) -> Option<Shown> {
        self.table.lock().begun.get(user).map(|drawn| shown(user, drawn))
    }

    /// A factor whose code was shown right. Returns its recovery codes, which nothing shows again.
    pub async fn confirm<K: AsyncFnOnce(Vec<u8>) -> Result<(), Failure>>(
        &self,
        (user, uid): (&str, u32),
        given: &str,
        secs: i64,
        keep: K,
    ) -> Result<Vec<String>, Failure> {
        let step = {
            let table = self.table.lock();
            let drawn = table.begun.get(user).ok_or_else(|| Failure::invalid("no second factor was begun"))?;
            right_step(drawn, 0, &plain(given), step_of(secs)).map(|step| (step, *drawn))
        };
        let (last_step, drawn) = step.ok_or_else(|| {
            Failure::invalid("nothing was changed: the code is wrong").action("Compare the clocks of telephone and box")
        })?;
        let codes = recovery_codes();
        let recovery = codes.iter().map(|code| hash(code)).collect();
        let add = |kept: &mut Kept| {
            let factor = kept.of.entry(user.to_owned()).or_default();
            factor.uid = Some(uid);
            (factor.secret, factor.recovery, factor.last_step) = (hex::encode(&drawn), recovery, last_step);
        };
        self.change(add, keep).await?;
        self.table.lock().begun.remove(user);
        Ok(codes.iter().map(|code| grouped(code)).collect())
    }

    pub async fn end<K: AsyncFnOnce(Vec<u8>) -> Result<(), Failure>>(
        &self,
        user: &str,
        keep: K,
    ) -> Result<FactorsEnded, Failure> {
        let mut ended = FactorsEnded::default();
        self.change(|kept| ended = kept.end(user), keep).await?;
        // A secret that somebody else may have seen is shown to nobody again.
        self.table.lock().begun.remove(user);
        Ok(ended)
    }

    /// Ends what another user of that name left (`factors.of_one`).
    pub async fn end_of_another<K: AsyncFnOnce(Vec<u8>) -> Result<(), Failure>>(
        &self,
        (user, uid): (&str, u32),
        keep: K,
    ) -> Result<(), Failure> {
        let owner = self.table.lock().kept.of.get(user).and_then(|factor| {
            // Files of earlier releases have it at passkeys alone.
            factor.uid.or_else(|| factor.passkeys.first().map(|key| key.uid))
        });
        let bound = self.table.lock().kept.issued.get(user).map(|one| one.uid);
        match owner.or(bound).is_some_and(|owner| owner != uid) {
            true => self.end(user, keep).await.map(drop),
            false => Ok(()),
        }
    }

    pub async fn demand<K: AsyncFnOnce(Vec<u8>) -> Result<(), Failure>>(
        &self,
        is_demanded: bool,
        keep: K,
    ) -> Result<(), Failure> {
        self.change(|kept| kept.is_demanded = is_demanded, keep).await
    }

    /// The code that was right opens nothing any more, over restarts too (`factors.code_once`).
    pub async fn keep_step<K: AsyncFnOnce(Vec<u8>) -> Result<(), Failure>>(&self, keep: K) -> Result<(), Failure> {
        self.change(|_| (), keep).await
    }

    /// The recovery code opens nothing any more.
    pub async fn use_up<K: AsyncFnOnce(Vec<u8>) -> Result<(), Failure>>(
        &self,
        user: &str,
        given: &str,
        keep: K,
    ) -> Result<(), Failure> {
        let used = hash(&plain(given));
        let is_there = |kept: &Kept| kept.of.get(user).is_some_and(|factor| factor.recovery.contains(&used));
        let mut was_there = false;
        let drop_it = |kept: &mut Kept| {
            was_there = is_there(kept);
            if let Some(factor) = kept.of.get_mut(user) {
                factor.recovery.retain(|code| *code != used);
            }
        };
        self.change(drop_it, keep).await?;
        match was_there {
            true => Ok(()),
            // Two browsers gave it at once.
            false => Err(Failure::invalid("the recovery code was used already")),
        }
    }

    /// `factors.kept_first`
    async fn change<K: AsyncFnOnce(Vec<u8>) -> Result<(), Failure>>(
        &self,
        change: impl FnOnce(&mut Kept),
        keep: K,
    ) -> Result<(), Failure> {
        let change = |kept: &mut Kept| {
            change(kept);
            Ok(())
        };
        self.try_change(change, keep).await
    }

    async fn try_change<K: AsyncFnOnce(Vec<u8>) -> Result<(), Failure>>(
        &self,
        change: impl FnOnce(&mut Kept) -> Result<(), Failure>,
        keep: K,
    ) -> Result<(), Failure> {
        let _alone = self.changing.lock().await;
        if self.is_damaged() {
            return Err(unreadable());
        }
        let mut kept = self.table.lock().kept.clone();
        change(&mut kept)?;
        keep(kept.to_bytes()?).await?;
        let mut table = self.table.lock();
        // Codes may have been taken meanwhile.
        for (user, factor) in &mut kept.of {
            if let Some(now) = table.kept.of.get(user).filter(|now| now.secret == factor.secret) {
                factor.last_step = now.last_step;
            }
        }
        table.kept = kept;
        Ok(())
    }

    /// Tries a code of a user who gave the right password.
    pub fn try_code(&self, user: &str, given: &str, now: Duration, secs: i64) -> Tried {
        let mut table = self.table.lock();
        let Table { kept, wrong, .. } = &mut *table;
        let Some(factor) = kept.of.get_mut(user) else { return Tried::Wrong };
        wrong.retain(|_, (_, since)| now.saturating_sub(*since) < WRONG_FOR);
        if let Some((count, since)) = wrong.get(user)
            && *count >= WRONG_MAX
        {
            return Tried::Wait(WRONG_FOR.saturating_sub(now.saturating_sub(*since)));
        }
        let given = plain(given);
        let secret = hex::decode(&factor.secret).unwrap_or_default();
        if !secret.is_empty()
            && let Some(step) = right_step(&secret, factor.last_step, &given, step_of(secs))
        {
            factor.last_step = step;
            wrong.remove(user);
            return Tried::Right;
        }
        if given.len() == RECOVERY_CHARS && factor.recovery.contains(&hash(&given)) {
            wrong.remove(user);
            return Tried::Recovery;
        }
        wrong.entry(user.to_owned()).or_insert((0, now)).0 += 1;
        Tried::Wrong
    }

    /// Somebody gave the right password. Returns the token that the form for the code is bound to (`factors.password_first`).
    pub fn wait_for_code(&self, user: &str, generation: u64, subject: Option<Subject>, now: Duration) -> String {
        let token = hex::encode(&secret::<32>());
        let mut table = self.table.lock();
        table.pending.retain(|_, one| now.saturating_sub(one.since) < PENDING_FOR);
        while table.pending.len() >= PENDING_MAX {
            let oldest = table.pending.iter().min_by_key(|(_, one)| one.since).map(|(key, _)| *key);
            oldest.map(|key| table.pending.remove(&key));
        }
        table.pending.insert(key_of(&token), Pending { user: user.to_owned(), generation, since: now, subject });
        token
    }

    /// Whose code a browser is to give, and the generation of the password that was given.
    pub fn waits(&self, token: &str, now: Duration) -> Option<(String, u64)> {
        let table = self.table.lock();
        let one = table.pending.get(&key_of(token))?;
        (now.saturating_sub(one.since) < PENDING_FOR).then(|| (one.user.clone(), one.generation))
    }

    /// Returns whom the user is to be bound to.
    pub fn came(&self, token: &str) -> Option<Subject> {
        self.table.lock().pending.remove(&key_of(token))?.subject
    }
}

fn key_of(token: &str) -> [u8; 32] {
    let mut key = [0; 32];
    key.copy_from_slice(digest::digest(&digest::SHA256, token.as_bytes()).as_ref());
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 6238, appendix B, of SHA-1: its last six digits.
    #[test]
    fn codes_are_those_of_the_standard() {
        let secret = b"12345678901234567890";
        for (secs, right) in
            [(59, "287082"), (1_111_111_109, "081804"), (1_234_567_890, "005924"), (20_000_000_000, "353130")]
        {
            assert_eq!(code(secret, step_of(secs)), right);
        }
        // RFC 4648, 10, without its padding.
        for (text, right) in [("", ""), ("f", "MY"), ("fo", "MZXQ"), ("foo", "MZXW6"), ("foobar", "MZXW6YTBOI")] {
            assert_eq!(base32(text.as_bytes()), right);
        }
    }

    async fn with(secs: i64) -> (Factors, Vec<u8>, [u8; SECRET_BYTES], Vec<String>) {
        let factors = Factors::default();
        factors.begin("ann");
        let secret = factors.table.lock().begun["ann"];
        let mut file = Vec::new();
        let keep = async |bytes| {
            file = bytes;
            Ok(())
        };
        let codes = factors.confirm(("ann", 7), &code(&secret, step_of(secs)), secs, keep).await.unwrap();
        (factors, file, secret, codes)
    }

    const AT: i64 = 1_700_000_000;

    #[tokio::test]
    async fn a_code_opens_once_and_in_its_time() {
        let (factors, file, secret, _) = with(AT).await;
        let now = step_of(AT);
        let try_at = |factors: &Factors, step: u64, secs: i64| {
            factors.try_code("ann", &code(&secret, step), Duration::ZERO, secs)
        };
        assert_eq!(try_at(&factors, now, AT), Tried::Wrong, "it confirmed the factor");
        let next = AT + 30;
        assert_eq!(try_at(&factors, now + 1, next), Tried::Right);
        assert_eq!(try_at(&factors, now + 1, next), Tried::Wrong);
        assert_eq!(try_at(&factors, now + 4, next), Tried::Wrong, "of a clock too far ahead");
        // After a start, whatever the clock says then.
        let mut kept = Vec::new();
        let keep = async |bytes| {
            kept = bytes;
            Ok(())
        };
        factors.keep_step(keep).await.unwrap();
        let after = Factors::default();
        after.read(Some(&kept));
        assert!(after.has("ann") && !after.owes("ann"));
        assert_eq!(try_at(&after, now + 1, next), Tried::Wrong);
        assert_eq!(try_at(&after, now + 2, next), Tried::Right);
        let year = 365 * 24 * 3600;
        assert_eq!(try_at(&after, step_of(next + year), next + year), Tried::Right, "the clock is ahead");
        let late = next + 120;
        assert_eq!(try_at(&after, step_of(late), late), Tried::Right, "and right again");
        assert_eq!(try_at(&after, step_of(late), late), Tried::Wrong);
        // A start with a clock that is ahead takes nothing for used.
        let ahead = Factors::default();
        ahead.read(Some(&kept));
        assert_eq!(try_at(&ahead, step_of(late), late), Tried::Right);
        assert!(!String::from_utf8(file).unwrap().contains("MY"), "codes are kept as hashes");
    }

    #[tokio::test]
    async fn the_next_user_of_a_name_has_no_factor() {
        let (factors, file, ..) = with(AT).await;
        let full = async |_| Err(Failure::invalid("no room"));
        factors.end_of_another(("ann", 7), full).await.unwrap();
        assert!(factors.has("ann"));
        assert!(factors.end_of_another(("ann", 8), full).await.is_err() && factors.has("ann"));
        let after = Factors::default();
        after.read(Some(&file));
        after.end_of_another(("ann", 8), async |_| Ok(())).await.unwrap();
        assert!(!after.has("ann") && factors.has("ann"));
        // Of an earlier release.
        let old = Factors::default();
        old.read(Some(br#"{"is_demanded":false,"of":{"ann":{"secret":"00","recovery":[]}}}"#));
        old.end_of_another(("ann", 8), full).await.unwrap();
        assert!(old.has("ann"), "nobody knows whose it was");
    }

    #[tokio::test]
    async fn wrong_codes_are_few() {
        let (factors, _, secret, codes) = with(AT).await;
        let (late, right) = (AT + 300, code(&secret, step_of(AT + 300)));
        for _ in 0..WRONG_MAX {
            assert_eq!(factors.try_code("ann", "abc", Duration::ZERO, late), Tried::Wrong);
        }
        for given in [&right, &codes[0]] {
            assert!(matches!(factors.try_code("ann", given, Duration::from_secs(1), late), Tried::Wait(_)));
        }
        assert_eq!(factors.try_code("ann", &right, WRONG_FOR, late), Tried::Right);
        assert_eq!(factors.try_code("bob", &right, WRONG_FOR, late), Tried::Wrong);
    }

    #[tokio::test]
    async fn recovery_codes_are_used_up_on_disk() {
        let (factors, _, _, codes) = with(AT).await;
        assert_eq!((codes.len(), factors.recovery_left("ann")), (RECOVERY_CODES, RECOVERY_CODES));
        let typed = codes[3].to_lowercase().replace('-', " ");
        assert_eq!(factors.try_code("ann", &typed, Duration::ZERO, AT), Tried::Recovery);
        let full = async |_| Err(Failure::invalid("no room"));
        assert!(factors.use_up("ann", &typed, full).await.is_err());
        assert_eq!(factors.recovery_left("ann"), RECOVERY_CODES, "what is not on disk did not happen");
        factors.use_up("ann", &typed, async |_| Ok(())).await.unwrap();
        assert_eq!(factors.try_code("ann", &typed, Duration::ZERO, AT), Tried::Wrong);
        assert!(factors.use_up("ann", &typed, async |_| Ok(())).await.is_err());
        factors.demand(true, async |_| Ok(())).await.unwrap();
        factors.end("ann", async |_| Ok(())).await.unwrap();
        assert!(factors.owes("ann") && !factors.has("ann"));
    }

    fn passkey(id: &str, count: u32) -> Passkey {
        let text = |text: &str| text.to_owned();
        Passkey {
            id: text(id),
            key: text("key"),
            party: text("nas"),
            handle: text("h"),
            name: text("n"),
            uid: 1000,
            count,
            made_secs: AT,
            used_secs: None,
        }
    }

    #[tokio::test]
    async fn passkeys_are_of_one_user_and_one_name() {
        let factors = Factors::default();
        let codes = factors.add_passkey("ann", passkey("a", 0), async |_| Ok(())).await.unwrap();
        assert_eq!(codes.unwrap().len(), RECOVERY_CODES);
        assert!(factors.has("ann") && !factors.has_codes("ann"));
        assert_eq!(factors.try_code("ann", &code(&[], step_of(AT)), Duration::ZERO, AT), Tried::Wrong);
        assert!(factors.add_passkey("ann", passkey("b", 5), async |_| Ok(())).await.unwrap().is_none());
        assert!(factors.add_passkey("bob", passkey("a", 0), async |_| Ok(())).await.is_err());
        assert_eq!(factors.passkey("a", "nas").unwrap().0, "ann");
        assert!(factors.passkey("a", "other").is_none() && factors.passkey("c", "nas").is_none());
        let mut file = Vec::new();
        let keep = async |bytes| {
            file = bytes;
            Ok(())
        };
        factors.passkey_signed("ann", "b", (6, AT), keep).await.unwrap();
        assert!(factors.passkey_signed("ann", "b", (6, AT), async |_| Ok(())).await.is_err());
        let after = Factors::default();
        after.read(Some(&file));
        assert_eq!(after.passkeys("ann"), factors.passkeys("ann"));
        assert!(after.add_passkey("ann", passkey("d", 0), async |_| Err(Failure::invalid("full"))).await.is_err());
        assert_eq!(after.passkeys("ann").len(), 2, "what is not on disk did not happen");
        for id in ["a", "b"] {
            assert!(after.has("ann"));
            assert!(after.change_passkey("bob", id, |_| true, async |_| Ok(())).await.is_err());
            after.change_passkey("ann", id, |_| true, async |_| Ok(())).await.unwrap();
        }
        assert!(!after.has("ann") && after.recovery_left("ann") == 0);
        for n in 0..PASSKEYS_MAX {
            after.add_passkey("ann", passkey(&n.to_string(), 0), async |_| Ok(())).await.unwrap();
        }
        assert!(after.add_passkey("ann", passkey("more", 0), async |_| Ok(())).await.is_err());
    }

    #[tokio::test]
    async fn codes_and_passkeys_end_apart() {
        let (factors, ..) = with(AT).await;
        factors.add_passkey("ann", passkey("a", 0), async |_| Ok(())).await.unwrap();
        factors.end_codes("ann", async |_| Ok(())).await.unwrap();
        assert!(factors.has("ann") && !factors.has_codes("ann") && factors.recovery_left("ann") == RECOVERY_CODES);
        factors.end("ann", async |_| Ok(())).await.unwrap();
        assert!(!factors.has("ann"));
    }

    #[test]
    fn damage_is_told_and_pending_logins_are_bounded() {
        let factors = Factors::default();
        for damaged in [&b""[..], b"{", b"[]", b"{\"is_demanded\":true}"] {
            let factors = Factors::default();
            factors.read(Some(damaged));
            assert!(factors.is_damaged(), "{damaged:?}");
        }
        factors.read(None);
        assert!(!factors.is_damaged());
        let first = factors.wait_for_code("ann", 1, None, Duration::ZERO);
        assert_eq!(factors.waits(&first, PENDING_FOR - Duration::from_secs(1)), Some(("ann".to_owned(), 1)));
        assert_eq!(factors.waits(&first, PENDING_FOR), None);
        (0..2 * PENDING_MAX).for_each(|_| drop(factors.wait_for_code("bob", 1, None, Duration::from_secs(1))));
        assert!(
            factors.table.lock().pending.len() <= PENDING_MAX
                && factors.waits(&first, Duration::from_secs(2)).is_none()
        );
    }

    #[test]
    fn a_picture_has_its_quiet_zone() {
        let shown = shown("ann b&c", &[7; SECRET_BYTES]);
        assert!(shown.side > 30 && shown.path.starts_with("M4 4h1v1h-1z"), "{}", shown.side);
        assert_eq!(shown.secret.replace(' ', "").len(), 32);
    }
}
