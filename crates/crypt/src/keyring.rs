//! The keyring of a volume: its keys, sealed under a master key, and the master key sealed in slots.
//!
//! One small document beside the volume's objects, in clear but for the keys themselves. Each slot opens with a secret of its own:
//! a passphrase (Argon2id, RFC 9106), a key file, or the recovery key. Adding a slot, removing one and changing a secret touch no
//! data.
//!
//! - `keyring.old_key_first`: whatever changes a keyring needs its master key, and so one of its secrets.
//! - `keyring.signed_by_its_master`: each change counts up and signs the slots with a key that the master key gives. A replica
//!   knows that key's public half from its first snapshot on, so it tells an honest change from a forged, torn or older one while
//!   it is locked ([`signed`]).
//! - `keyring.slots_here_are_apart`: slots that were added at a replica, and those of the volume's that were removed there, are noted
//!   beside the signed ones. No keyring that arrives touches these notes. Signed slots stay whole, so that they can be passed on.
//! - `keyring.last_slot_stays`: the last slot is not removed. Without any, nothing on earth opens the volume.
//! - `keyring.rekeyed_slot_by_slot`: a re-keyed volume has another master key, and each slot that stays is sealed anew with its own
//!   secret. So the secret of a slot that was removed opens nothing that is written since, whoever has the keyring of before.
//! - `keyring.bound`: sealed keys authenticate with the domain, their number or slot, the cipher and the cost of the passphrase. None
//!   can be exchanged for another, or be made cheaper to guess.

use std::collections::BTreeMap;

use argon2::{Algorithm, Argon2, Params, Version};
use larder_base::wipe::LockedKey;
use serde::{Deserialize, Serialize};
use uuid::Uuid;
use zeroize::Zeroizing;

mod signed;

use crate::SealError;
use crate::cipher::{Cipher, FrameKey, TAG_BYTES};
use crate::keys::{Keys, SALT_BYTES, VolumeKey, fill_random, hkdf};
use crate::recovery::RecoveryKey;

/// Without a signature: older programs wrote it.
const FORMAT_UNSIGNED: u32 = 1;
const FORMAT: u32 = 2;
/// A keyring larger than this is not ours.
const DOCUMENT_BYTES_MAX: usize = 1 << 20;
pub const SLOTS_MAX: usize = 32;
/// Slots of a volume and of its replica are one list after a promotion. None is added beyond [`SLOTS_MAX`].
const SLOTS_STORED_MAX: usize = 4 * SLOTS_MAX;
/// Slots of a volume's that were removed at one replica.
const WITHOUT_MAX: usize = 4096;
const GENERATIONS_MAX: usize = 4096;
/// Shorter passphrases are refused: they are guessed.
pub const PASSPHRASE_CHARS_MIN: usize = 8;
/// A key file has at least the entropy of a key, and is read whole.
pub const KEY_FILE_BYTES_MIN: usize = 32;
pub const KEY_FILE_BYTES_MAX: usize = 1 << 20;
/// The cipher of the keys themselves, whatever that of the data is.
const WRAP: Cipher = Cipher::Aes256Gcm;

/// Why a keyring could not be read, opened or changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyringError {
    #[error("the keyring is damaged: {0}")]
    Damaged(String),
    #[error("the keyring has format {0}: a newer larder is needed")]
    UnknownFormat(u32),
    #[error("no slot opens with this {0}")]
    Refused(&'static str),
    #[error("this is the last slot: without it nothing opens the volume, ever; add another one first")]
    LastSlot,
    #[error("there is no slot '{0}'")]
    NoSuchSlot(String),
    #[error("{1} slots are called '{0}': name one by its id")]
    SeveralSlots(String, usize),
    #[error("a keyring has at most {SLOTS_MAX} slots: remove one first")]
    TooManySlots,
    #[error("no secret was given for {0}: nothing would open the volume with it any more")]
    NoSecretFor(String),
    #[error("{0}")]
    Weak(String),
    #[error("{0}")]
    Foreign(&'static str),
    #[error(transparent)]
    Seal(#[from] SealError),
}

/// What opens a slot.
pub enum Secret {
    Passphrase(Zeroizing<String>),
    /// The bytes of a file.
    KeyFile(Zeroizing<Vec<u8>>),
    Recovery(RecoveryKey),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SlotKind {
    Passphrase,
    KeyFile,
    Recovery,
}

impl SlotKind {
    pub fn name(self) -> &'static str {
        match self {
            SlotKind::Passphrase => "passphrase",
            SlotKind::KeyFile => "key file",
            SlotKind::Recovery => "recovery key",
        }
    }
}

/// What one guess at a passphrase costs (Argon2id, RFC 9106).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Work {
    pub memory_kib: u32,
    pub passes: u32,
    pub lanes: u32,
}

impl Work {
    /// An eighth of the memory, between 64 MiB (RFC 9106, section 4, second recommendation) and 512 MiB.
    pub fn for_memory(total_bytes: u64) -> Work {
        let kib = (total_bytes / 8 / 1024).clamp(64 << 10, 512 << 10);
        Work { memory_kib: kib as u32, passes: 3, lanes: 4 }
    }

    /// A damaged or hostile keyring must not take all memory, or for ever.
    fn check(&self) -> Result<(), KeyringError> {
        let sane = (8..=4 << 20).contains(&self.memory_kib)
            && (1..=100).contains(&self.passes)
            && (1..=64).contains(&self.lanes);
        if sane && self.memory_kib >= 8 * self.lanes {
            return Ok(());
        }
        Err(KeyringError::Damaged(format!("a slot asks for {self:?}, which no larder writes")))
    }
}

/// One way to open the volume.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Slot {
    pub id: Uuid,
    pub kind: SlotKind,
    /// What people call it; not secret.
    pub name: String,
    /// Seconds since 1970.
    pub created: u64,
    /// Of passphrases only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work: Option<Work>,
    salt: Hex,
    /// The master key.
    sealed: Hex,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Generation {
    number: u32,
    created: u64,
    salt: Hex,
    sealed: Hex,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Signature {
    /// The public half of the key that signed.
    signer: Hex,
    bytes: Hex,
}

/// What a keyring that arrived is to one's own.
#[derive(Debug)]
pub enum Renewal {
    /// It is the same, or an older one.
    Nothing,
    /// The own keyring, with the slots of the one that arrived.
    Replaced(Box<Keyring>),
    /// The own keyring, with the one that arrived beside it: its master key has to prove it.
    Unproved(Box<Keyring>),
}

/// The document, as it lies in the store.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Keyring {
    format: u32,
    domain: Uuid,
    cipher: Cipher,
    generations: Vec<Generation>,
    slots: Vec<Slot>,
    /// Counts the changes of the slots.
    #[serde(default, skip_serializing_if = "is_zero")]
    changes: u64,
    /// `None`: an older program wrote it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    signature: Option<Signature>,
    /// Of a replica: slots that were added there (`keyring.slots_here_are_apart`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    here: Vec<Slot>,
    /// Of a replica: signed slots that open it no more, because they were removed there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    without: Vec<Uuid>,
    /// Of a replica without a signature: the newest keyring that arrived, until the master key has proved it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    unproved: Option<Box<Keyring>>,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// The opened keyring: everything that changes it asks for this (`keyring.old_key_first`).
pub struct Master(LockedKey);

impl std::fmt::Debug for Master {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Master")
    }
}

impl Keyring {
    /// For a new volume, with its first key and one slot. `now` in seconds since 1970.
    pub fn create(
        cipher: Cipher,
        name: &str,
        secret: &Secret,
        work: Work,
        now: u64,
    ) -> Result<(Self, Master), KeyringError> {
        let mut master = Master(LockedKey::zeroed());
        fill_random(&mut *master.0)?;
        let mut keyring = Self::empty(Uuid::new_v4(), cipher);
        keyring.add_key(&master, now)?;
        keyring.add_slot(&master, name, secret, work, now)?;
        Ok((keyring, master))
    }

    fn empty(domain: Uuid, cipher: Cipher) -> Self {
        Self {
            format: FORMAT,
            domain,
            cipher,
            generations: Vec::new(),
            slots: Vec::new(),
            changes: 0,
            signature: None,
            here: Vec::new(),
            without: Vec::new(),
            unproved: None,
        }
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, KeyringError> {
        if bytes.len() > DOCUMENT_BYTES_MAX {
            return Err(KeyringError::Damaged(format!("it has {} bytes", bytes.len())));
        }
        #[derive(Deserialize)]
        struct Format {
            format: u32,
        }
        let damaged = |error: serde_json::Error| KeyringError::Damaged(error.to_string());
        let Format { format } = serde_json::from_slice(bytes).map_err(damaged)?;
        if ![FORMAT_UNSIGNED, FORMAT].contains(&format) {
            return Err(KeyringError::UnknownFormat(format));
        }
        let keyring: Self = serde_json::from_slice(bytes).map_err(damaged)?;
        keyring.check_counts()?;
        if let Some(unproved) = &keyring.unproved {
            unproved.check_counts()?;
            if unproved.unproved.is_some() {
                return Err(KeyringError::Damaged("it has keyrings within keyrings".into()));
            }
        }
        Ok(keyring)
    }

    fn check_counts(&self) -> Result<(), KeyringError> {
        let (keys, slots, here) = (self.generations.len(), self.slots.len(), self.here.len());
        let is_sane = (1..=GENERATIONS_MAX).contains(&keys)
            && (1..=SLOTS_STORED_MAX).contains(&slots)
            && here <= SLOTS_STORED_MAX
            && self.without.len() <= WITHOUT_MAX;
        if !is_sane {
            return Err(KeyringError::Damaged(format!("it has {keys} keys and {} slots", slots + here)));
        }
        Ok(())
    }

    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec_pretty(self).expect("a keyring is plain data")
    }

    /// The identity of the volume as far as encryption goes.
    pub fn domain(&self) -> Uuid {
        self.domain
    }

    pub fn cipher(&self) -> Cipher {
        self.cipher
    }

    /// The slots, those that were added at this replica last.
    pub fn slots(&self) -> impl Iterator<Item = &Slot> {
        self.slots.iter().filter(|slot| !self.without.contains(&slot.id)).chain(&self.here)
    }

    /// Whether the slot was added at this replica, or stayed here after the volume lost it.
    pub fn is_here_only(&self, id: Uuid) -> bool {
        self.here.iter().any(|slot| slot.id == id)
    }

    /// Opens it with any slot that `secret` is for.
    pub fn unlock(&self, secret: &Secret) -> Result<Master, KeyringError> {
        self.unlock_slot(secret).map(|(master, _)| master)
    }

    /// As [`Keyring::unlock`], with the slot that opened it.
    pub fn unlock_slot(&self, secret: &Secret) -> Result<(Master, Uuid), KeyringError> {
        for slot in self.slots() {
            if let Some(master) = self.open_slot(slot, secret)? {
                return Ok((master, slot.id));
            }
        }
        // A keyring that nobody has proved opens what the own one has, or nothing: its generations are the same bytes.
        for slot in self.unproved.iter().flat_map(|unproved| unproved.slots()) {
            if let Some(master) = self.open_slot(slot, secret)?.filter(|master| self.keys(master).is_ok()) {
                return Ok((master, slot.id));
            }
        }
        Err(KeyringError::Refused(secret.kind().name()))
    }

    /// What seals and opens the volume's objects.
    pub fn keys(&self, master: &Master) -> Result<Keys, KeyringError> {
        let opened = self.opened_generations(master)?;
        let generations: BTreeMap<_, _> = self.generations.iter().map(|one| one.number).zip(opened).collect();
        Ok(Keys::new(self.domain, self.cipher, generations))
    }

    /// The volume keys, in the order of their generations.
    fn opened_generations(&self, master: &Master) -> Result<Vec<VolumeKey>, KeyringError> {
        let open = |one: &Generation| {
            let key = hkdf(&one.salt.0, &master.0[..], &[b"larder keyring"], WRAP.key_bytes());
            let opened = unwrap(&key, &one.sealed.0, &self.generation_aad(one.number));
            let opened = opened
                .map_err(|_| KeyringError::Damaged(format!("volume key {} does not authenticate", one.number)))?;
            Ok(VolumeKey::from(opened))
        };
        self.generations.iter().map(open).collect()
    }

    /// Another secret that opens the volume.
    pub fn add_slot(
        &mut self,
        master: &Master,
        name: &str,
        secret: &Secret,
        work: Work,
        now: u64,
    ) -> Result<Uuid, KeyringError> {
        let slot = self.new_slot(master, name, secret, work, now)?;
        let id = slot.id;
        self.slots.push(slot);
        self.sign(master)?;
        Ok(id)
    }

    /// Another secret that opens a replica, there alone.
    pub fn add_slot_here(
        &mut self,
        master: &Master,
        name: &str,
        secret: &Secret,
        work: Work,
        now: u64,
    ) -> Result<Uuid, KeyringError> {
        let slot = self.new_slot(master, name, secret, work, now)?;
        let id = slot.id;
        self.here.push(slot);
        Ok(id)
    }

    fn new_slot(
        &self,
        master: &Master,
        name: &str,
        secret: &Secret,
        work: Work,
        now: u64,
    ) -> Result<Slot, KeyringError> {
        secret.check()?;
        if self.slots().count() >= SLOTS_MAX {
            return Err(KeyringError::TooManySlots);
        }
        let kind = secret.kind();
        let work = (kind == SlotKind::Passphrase).then_some(work);
        let salt = random_salt()?;
        let id = Uuid::new_v4();
        let name = name.to_owned();
        let mut slot = Slot { id, kind, name, created: now, work, salt: Hex(salt.to_vec()), sealed: Hex::default() };
        let key = slot_key(secret, &salt, work)?;
        slot.sealed = Hex(wrap(&key, &master.0, &self.slot_aad(&slot))?);
        Ok(slot)
    }

    /// Takes a slot away, named by its id, the beginning of it, or its name.
    pub fn remove_slot(&mut self, master: &Master, named: &str) -> Result<Slot, KeyringError> {
        let removed = self.removable(named)?;
        self.slots.retain(|slot| slot.id != removed.id);
        self.here.retain(|slot| slot.id != removed.id);
        self.sign(master)?;
        Ok(removed)
    }

    /// Takes a slot away at a replica, there alone.
    pub fn remove_slot_here(&mut self, named: &str) -> Result<Slot, KeyringError> {
        let removed = self.removable(named)?;
        self.here.retain(|slot| slot.id != removed.id);
        if self.slots.iter().any(|slot| slot.id == removed.id) {
            if self.without.len() >= WITHOUT_MAX {
                return Err(KeyringError::TooManySlots);
            }
            self.without.push(removed.id);
        }
        Ok(removed)
    }

    /// `keyring.last_slot_stays`
    fn removable(&self, named: &str) -> Result<Slot, KeyringError> {
        let all: Vec<Slot> = self.slots().cloned().collect();
        let at = find_slot(&all, named)?;
        if all.len() == 1 {
            return Err(KeyringError::LastSlot);
        }
        all.into_iter().nth(at).ok_or_else(|| KeyringError::NoSuchSlot(named.to_owned()))
    }

    /// A new volume key, for what is written from now on. Returns its number.
    pub fn add_key(&mut self, master: &Master, now: u64) -> Result<u32, KeyringError> {
        let number = self.newest() + 1;
        self.push_generation(master, number, now, &VolumeKey::random()?)?;
        Ok(number)
    }

    fn push_generation(
        &mut self,
        master: &Master,
        number: u32,
        created: u64,
        volume_key: &VolumeKey,
    ) -> Result<(), KeyringError> {
        let salt = random_salt()?;
        let key = hkdf(&salt, &master.0[..], &[b"larder keyring"], WRAP.key_bytes());
        let sealed = wrap(&key, volume_key.bytes(), &self.generation_aad(number))?;
        self.generations.push(Generation { number, created, salt: Hex(salt.to_vec()), sealed: Hex(sealed) });
        Ok(())
    }

    /// The keyring of the volume once it is re-keyed: a new master key, all volume keys of before and a new one, and the slots that are
    /// not among `dropped`. Each of them needs its own secret (`keyring.rekeyed_slot_by_slot`).
    pub fn rekeyed(
        &self,
        secrets: &[Secret],
        dropped: &[String],
        cipher: Option<Cipher>,
        now: u64,
    ) -> Result<(Self, Master), KeyringError> {
        let mut left: Vec<Slot> = self.slots().cloned().collect();
        for named in dropped {
            let at = find_slot(&left, named)?;
            left.remove(at);
        }
        let mut opened = Vec::new();
        let mut without = Vec::new();
        for slot in &left {
            let found = secrets.iter().find_map(|secret| {
                let tried = self.open_slot(slot, secret);
                tried.map(|master| master.map(|master| (slot, secret, master))).transpose()
            });
            match found.transpose()? {
                Some(found) => opened.push(found),
                None => without.push(format!("the {} '{}'", slot.kind.name(), slot.name)),
            }
        }
        if !without.is_empty() {
            return Err(KeyringError::NoSecretFor(without.join(" and ")));
        }
        let Some((_, _, old)) = opened.first() else { return Err(KeyringError::LastSlot) };
        let generations = self.opened_generations(old)?;
        let mut master = Master(LockedKey::zeroed());
        fill_random(&mut *master.0)?;
        let cipher = cipher.unwrap_or(self.cipher);
        let mut ring = Self::empty(self.domain, cipher);
        for (one, key) in self.generations.iter().zip(&generations) {
            ring.push_generation(&master, one.number, one.created, key)?;
        }
        ring.add_key(&master, now)?;
        for (slot, secret, _) in &opened {
            let salt = random_salt()?;
            let mut slot = Slot { salt: Hex(salt.to_vec()), sealed: Hex::default(), ..(*slot).clone() };
            let key = slot_key(secret, &salt, slot.work)?;
            slot.sealed = Hex(wrap(&key, &master.0, &ring.slot_aad(&slot))?);
            ring.slots.push(slot);
        }
        ring.sign(&master)?;
        Ok((ring, master))
    }

    /// The master key, if this secret is that of the slot.
    fn open_slot(&self, slot: &Slot, secret: &Secret) -> Result<Option<Master>, KeyringError> {
        if slot.kind != secret.kind() {
            return Ok(None);
        }
        let key = slot_key(secret, &slot.salt.0, slot.work)?;
        Ok(unwrap(&key, &slot.sealed.0, &self.slot_aad(slot)).ok().map(Master))
    }

    /// The number of the key that seals what is written now.
    pub fn newest(&self) -> u32 {
        self.generations.iter().map(|one| one.number).max().unwrap_or(0)
    }

    /// Whether it has keys that seal nothing new.
    pub fn has_old_keys(&self) -> bool {
        self.generations.len() > 1
    }

    /// Forgets the keys older than the newest, once nothing is sealed with them any more. Needs no secret: it opens nothing.
    pub fn forget_old_keys(&mut self) {
        let newest = self.newest();
        self.generations.retain(|one| one.number == newest);
    }

    fn generation_aad(&self, number: u32) -> Vec<u8> {
        let parts = [b"larder volume key", &self.domain.into_bytes()[..], &[self.cipher.code()], &number.to_le_bytes()];
        parts.concat()
    }

    fn slot_aad(&self, slot: &Slot) -> Vec<u8> {
        let work = slot.work.map(|work| [work.memory_kib, work.passes, work.lanes]).unwrap_or_default();
        let work: Vec<u8> = work.iter().flat_map(|number| number.to_le_bytes()).collect();
        let parts =
            [&b"larder key slot"[..], &self.domain.into_bytes(), &slot.id.into_bytes(), &[slot.kind as u8], &work];
        parts.concat()
    }
}

impl Secret {
    pub fn kind(&self) -> SlotKind {
        match self {
            Secret::Passphrase(_) => SlotKind::Passphrase,
            Secret::KeyFile(_) => SlotKind::KeyFile,
            Secret::Recovery(_) => SlotKind::Recovery,
        }
    }

    /// Refuses what would be guessed.
    pub fn check(&self) -> Result<(), KeyringError> {
        match self {
            Secret::Passphrase(text) if text.chars().count() < PASSPHRASE_CHARS_MIN => Err(KeyringError::Weak(
                format!("a passphrase needs at least {PASSPHRASE_CHARS_MIN} characters; several random words are best"),
            )),
            Secret::KeyFile(bytes) if !(KEY_FILE_BYTES_MIN..=KEY_FILE_BYTES_MAX).contains(&bytes.len()) => {
                Err(KeyringError::Weak(format!(
                    "a key file has {KEY_FILE_BYTES_MIN} bytes to 1 MiB of random data, this one has {}",
                    bytes.len()
                )))
            }
            _ => Ok(()),
        }
    }
}

/// The place of the slot that is named by its id, the beginning of it, or its name.
fn find_slot(slots: &[Slot], named: &str) -> Result<usize, KeyringError> {
    let is = |slot: &Slot| !named.is_empty() && (slot.name == named || slot.id.to_string().starts_with(named));
    let found: Vec<usize> = slots.iter().enumerate().filter(|(_, slot)| is(slot)).map(|(at, _)| at).collect();
    match found[..] {
        [] => Err(KeyringError::NoSuchSlot(named.to_owned())),
        [at] => Ok(at),
        _ => Err(KeyringError::SeveralSlots(named.to_owned(), found.len())),
    }
}

/// What the master key is sealed with in a slot.
fn slot_key(secret: &Secret, salt: &[u8], work: Option<Work>) -> Result<Zeroizing<Vec<u8>>, KeyringError> {
    let len = WRAP.key_bytes();
    match secret {
        Secret::Passphrase(text) => {
            let work = work.ok_or_else(|| KeyringError::Damaged("a passphrase's slot without its cost".into()))?;
            work.check()?;
            let damaged = |error: argon2::Error| KeyringError::Damaged(error.to_string());
            let params = Params::new(work.memory_kib, work.passes, work.lanes, Some(len)).map_err(damaged)?;
            let mut key = Zeroizing::new(vec![0; len]);
            let argon2 = Argon2::new(Algorithm::Argon2id, Version::V0x13, params);
            argon2.hash_password_into(text.as_bytes(), salt, &mut key).map_err(damaged)?;
            Ok(key)
        }
        Secret::KeyFile(bytes) => Ok(hkdf(salt, bytes, &[b"larder key file"], len)),
        Secret::Recovery(key) => Ok(hkdf(salt, key.bytes(), &[b"larder recovery key"], len)),
    }
}

/// `key` is used once: it was derived with a random salt. So its one nonce is 0.
fn wrap(key: &[u8], secret: &[u8; 32], aad: &[u8]) -> Result<Vec<u8>, SealError> {
    let mut sealed = secret.to_vec();
    let tag = FrameKey::new(WRAP, key).seal(&mut sealed, 0, aad)?;
    sealed.extend_from_slice(&tag);
    Ok(sealed)
}

fn unwrap(key: &[u8], sealed: &[u8], aad: &[u8]) -> Result<LockedKey, SealError> {
    let (sealed, tag) = sealed.split_at_checked(sealed.len().wrapping_sub(TAG_BYTES)).ok_or(SealError::Forged)?;
    if sealed.len() != 32 {
        return Err(SealError::Forged);
    }
    let mut secret = LockedKey::zeroed();
    FrameKey::new(WRAP, key).open(sealed, tag, 0, aad, &mut *secret)?;
    Ok(secret)
}

fn random_salt() -> Result<[u8; SALT_BYTES], SealError> {
    let mut salt = [0; SALT_BYTES];
    fill_random(&mut salt)?;
    Ok(salt)
}

/// Bytes as hexadecimal text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Hex(Vec<u8>);

impl Serialize for Hex {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0.iter().map(|byte| format!("{byte:02x}")).collect::<String>())
    }
}

impl<'de> Deserialize<'de> for Hex {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let digits: Option<Vec<u32>> = text.chars().map(|digit| digit.to_digit(16)).collect();
        match digits {
            Some(digits) if digits.len() % 2 == 0 => {
                Ok(Self(digits.chunks(2).map(|pair| (pair[0] << 4 | pair[1]) as u8).collect()))
            }
            _ => Err(serde::de::Error::custom("hexadecimal digits are wanted")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHEAP: Work = Work { memory_kib: 64, passes: 1, lanes: 1 };

    fn passphrase(text: &str) -> Secret {
        Secret::Passphrase(Zeroizing::new(text.to_owned()))
    }

    fn key_file(byte: u8) -> Secret {
        Secret::KeyFile(Zeroizing::new(vec![byte; 64]))
    }

    fn ring() -> (Keyring, Master) {
        Keyring::create(Cipher::Aes256Gcm, "mine", &passphrase("correct horse"), CHEAP, 7).expect("a keyring")
    }

    fn tag(keys: &Keys, generation: u32) -> [u8; TAG_BYTES] {
        let key = keys.derive(generation, keys.cipher(), &[0; SALT_BYTES], "test", "a").expect("a key");
        key.seal(&mut [0; 4], 0, &[]).expect("seals")
    }

    #[test]
    fn every_slot_opens_the_same_keys_and_nothing_else_does() {
        let (mut ring, master) = ring();
        let recovery = RecoveryKey::random().expect("random");
        let typed = RecoveryKey::parse(&recovery.text()).expect("parses");
        ring.add_slot(&master, "paper", &Secret::Recovery(recovery), CHEAP, 8).expect("a slot");
        ring.add_slot(&master, "stick", &key_file(3), CHEAP, 9).expect("a slot");
        let ring = Keyring::decode(&ring.encode()).expect("decodes");
        let expected = tag(&ring.keys(&master).expect("keys"), 1);
        for secret in [passphrase("correct horse"), key_file(3), Secret::Recovery(typed)] {
            let opened = ring.unlock(&secret).expect("opens");
            assert_eq!(tag(&ring.keys(&opened).expect("keys"), 1), expected);
        }
        assert_eq!(ring.unlock(&passphrase("correct house")).err(), Some(KeyringError::Refused("passphrase")));
        assert_eq!(ring.unlock(&key_file(4)).err(), Some(KeyringError::Refused("key file")));
    }

    #[test]
    fn a_flipped_bit_in_any_byte_never_opens_other_keys() {
        let (mut ring, master) = ring();
        ring.add_slot(&master, "stick", &key_file(3), CHEAP, 9).expect("a slot");
        let expected = tag(&ring.keys(&master).expect("keys"), 1);
        let text = ring.encode();
        for at in 0..text.len() {
            let mut changed = text.to_vec();
            changed[at] ^= 1;
            let Ok(ring) = Keyring::decode(&changed) else { continue };
            // A label may be changed; what opens still opens the same keys.
            let Ok(opened) = ring.unlock(&key_file(3)) else { continue };
            let Ok(keys) = ring.keys(&opened) else { continue };
            if keys.newest() == 1 && keys.cipher() == Cipher::Aes256Gcm {
                assert_eq!(tag(&keys, 1), expected, "byte {at}");
            }
        }
    }

    #[test]
    fn slots_come_and_go_and_the_last_one_stays() {
        let (mut ring, master) = ring();
        assert_eq!(ring.remove_slot(&master, "mine").err(), Some(KeyringError::LastSlot));
        let id = ring.add_slot(&master, "new", &passphrase("battery staple"), CHEAP, 8).expect("a slot");
        ring.remove_slot(&master, "mine").expect("removed");
        assert_eq!(ring.slots().map(|slot| slot.id).collect::<Vec<_>>(), [id]);
        assert!(ring.unlock(&passphrase("correct horse")).is_err());
        assert!(ring.unlock(&passphrase("battery staple")).is_ok());
        assert_eq!(ring.remove_slot(&master, "mine").err(), Some(KeyringError::NoSuchSlot("mine".into())));
        while ring.slots().count() < SLOTS_MAX {
            ring.add_slot(&master, "more", &key_file(1), CHEAP, 9).expect("a slot");
        }
        assert_eq!(ring.add_slot(&master, "more", &key_file(1), CHEAP, 9), Err(KeyringError::TooManySlots));
        assert!(
            matches!(ring.remove_slot(&master, "more"), Err(KeyringError::SeveralSlots(_, 31))),
            "which one is meant?"
        );
        assert!(matches!(ring.remove_slot(&master, ""), Err(KeyringError::NoSuchSlot(_))), "nothing is no beginning");
    }

    #[test]
    fn a_new_key_leaves_the_old_one_readable_until_it_is_forgotten() {
        let (mut ring, master) = ring();
        let old = tag(&ring.keys(&master).expect("keys"), 1);
        assert_eq!(ring.add_key(&master, 9).expect("a key"), 2);
        let keys = ring.keys(&master).expect("keys");
        assert_eq!((keys.newest(), tag(&keys, 1)), (2, old));
        assert_ne!(tag(&keys, 2), old);
        ring.forget_old_keys();
        let keys = ring.keys(&master).expect("keys");
        assert_eq!(keys.derive(1, keys.cipher(), &[0; SALT_BYTES], "test", "a").err(), Some(SealError::UnknownKey(1)));
        assert_eq!(ring.add_key(&master, 9).expect("a key"), 3, "no number is used twice");
    }

    #[test]
    fn a_rekeyed_ring_opens_with_the_secrets_that_stay_and_nothing_of_before_opens_what_is_new() {
        let (mut ring, master) = ring();
        ring.add_slot(&master, "stick", &key_file(3), CHEAP, 8).expect("a slot");
        ring.add_slot(&master, "lost", &key_file(4), CHEAP, 8).expect("a slot");
        let old = ring.clone();
        let lacking = ring.rekeyed(&[passphrase("correct horse")], &["lost".into()], None, 9);
        assert_eq!(lacking.err(), Some(KeyringError::NoSecretFor("the key file 'stick'".into())));
        let wrong = ring.rekeyed(&[key_file(3), passphrase("another one")], &["lost".into()], None, 9);
        assert!(matches!(wrong.err(), Some(KeyringError::NoSecretFor(_))));
        let all = ["mine", "stick", "lost"].map(str::to_owned);
        assert_eq!(ring.rekeyed(&[], &all, None, 9).err(), Some(KeyringError::LastSlot));
        let secrets = [passphrase("correct horse"), key_file(3)];
        let (new, _) = ring.rekeyed(&secrets, &["lost".into()], Some(Cipher::ChaCha20Poly1305), 9).expect("a ring");
        let mut new = Keyring::decode(&new.encode()).expect("decodes");
        let expected = tag(&old.keys(&master).expect("keys"), 1);
        for secret in &secrets {
            let keys = new.keys(&new.unlock(secret).expect("opens")).expect("keys");
            assert_eq!((keys.newest(), keys.cipher()), (2, Cipher::ChaCha20Poly1305));
            let (gcm, salt) = (Cipher::Aes256Gcm, [0; SALT_BYTES]);
            let first = keys.derive(1, gcm, &salt, "test", "a").expect("a key");
            assert_eq!(first.seal(&mut [0; 4], 0, &[]).expect("seals"), expected, "what is there is read");
        }
        assert!(new.unlock(&key_file(4)).is_err(), "it was let go");
        // The secret that was let go opens the keyring of before, and that master key opens nothing of the new one.
        let master = old.unlock(&key_file(4)).expect("opens the old one");
        assert!(matches!(new.keys(&master), Err(KeyringError::Damaged(_))));
        new.forget_old_keys();
        let keys = new.keys(&new.unlock(&key_file(3)).expect("opens")).expect("keys");
        assert!(keys.derive(1, keys.cipher(), &[0; SALT_BYTES], "test", "a").is_err(), "the old key is forgotten");
    }

    #[test]
    fn what_is_weak_is_refused() {
        let (mut ring, master) = ring();
        for weak in [passphrase("1234567"), Secret::KeyFile(Zeroizing::new(vec![0; 31]))] {
            assert!(matches!(ring.add_slot(&master, "weak", &weak, CHEAP, 8), Err(KeyringError::Weak(_))));
        }
        for memory in [512 << 20, 64 << 30] {
            let work = Work::for_memory(memory);
            assert!((64 << 10..=512 << 10).contains(&work.memory_kib));
            work.check().expect("sane");
        }
    }

    /// Every change of the text either is refused or opens nothing, but for what is not secret.
    #[test]
    fn a_changed_keyring_opens_nothing_else() {
        let (ring, master) = ring();
        let text = String::from_utf8(ring.encode()).expect("text");
        let expected = tag(&ring.keys(&master).expect("keys"), 1);
        let unchecked = |at: usize| {
            text[..at].lines().last().is_some_and(|line| line.contains("\"name\"") || line.contains("\"created\""))
        };
        for at in (0..text.len()).filter(|&at| !unchecked(at)) {
            let mut changed = text.clone().into_bytes();
            changed[at] = match changed[at] {
                b'0' => b'1',
                b'1'..=b'9' => changed[at] - 1,
                b'a'..=b'f' => (changed[at] - b'a' + 1) % 6 + b'a',
                _ => continue,
            };
            let Ok(changed) = Keyring::decode(&changed) else { continue };
            let Ok(opened) = changed.unlock(&passphrase("correct horse")) else { continue };
            if let Ok(keys) = changed.keys(&opened) {
                assert!(keys.newest() != 1 || tag(&keys, 1) == expected, "byte {at}");
            }
        }
    }

    #[test]
    fn damage_is_named() {
        let (ring, _) = ring();
        let text = String::from_utf8(ring.encode()).expect("text");
        assert_eq!(
            Keyring::decode(text.replace("\"format\": 2", "\"format\": 3").as_bytes()).err(),
            Some(KeyringError::UnknownFormat(3))
        );
        let greedy = text.replace("\"memory_kib\": 64", "\"memory_kib\": 4294967295");
        let greedy = Keyring::decode(greedy.as_bytes()).expect("decodes");
        assert!(matches!(greedy.unlock(&passphrase("correct horse")), Err(KeyringError::Damaged(_))));
        for wrong in ["", "{}", &text[..text.len() / 2], &text.replace("\"slots\"", "\"slits\"")] {
            assert!(matches!(Keyring::decode(wrong.as_bytes()), Err(KeyringError::Damaged(_))), "{wrong}");
        }
    }
}
