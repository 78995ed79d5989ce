//! The record of this box: what makes it this box, sealed, in every pool and store that it writes.
//!
//! ```text
//! data folder --gather--> contents --seal (box.json)--> boxes/BOX/LIFE/versions/N in each pool
//!                                                         |
//!          larder up --import, config restore  <--open (password of an owner, recovery key)
//! ```
//!
//! - `record.follows_changes`: a change of a file that makes the box is noticed by the kernel's notice of it, whoever made it. It is
//!   written [`GATHER_FOR`] later with those that came meanwhile, and at most once in [`PAUSE`]. Without a change nothing is asked and
//!   no disk is touched.
//! - `record.never_in_the_way`: a record that cannot be written is said, and tried again. What opens it is in the pools before the
//!   answer to a new password or recovery key ([`ANSWER_MAX`]); nothing else waits for it.
//! - `record.log_in_mends`: an owner whose password opens nothing gets a slot at the next log-in to the page, where the password is
//!   in clear for a moment.
//! - `record.lives_are_told_apart`: a box that begins on another machine has another life, with a number and a name of its own.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use larder_api::{BoxRecoveryKey, ConfigHistory, ConfigVersion, ConfigVersionText, Failure, FailureKind, UserRole};
use larder_base::{hex, task};
use larder_crypt::Secret;
use larder_keep::keyrings;
use larder_keep::{Storage, Store};
use larder_people::PasswordHash;
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use tokio::sync::Notify;
use uuid::Uuid;

pub(crate) mod beside;
pub mod contents;
pub mod found;
mod notices;
mod own;
pub mod sent;
pub mod versions;

use contents::{Contents, Gathered, Writer};
use own::Own;
use versions::{Listed, Place};

use crate::replication::runs::Runs;
use larder_config::differences::differences;
use larder_config::machine;
use larder_config::{Config, VolumeName};
use larder_document::{DataFolder, Document, Kind, NtHashes, Secrets, Standings};
use larder_servers::passwords::{Held, Passwords};

/// A person who changes one thing often changes another.
const GATHER_FOR: Duration = Duration::from_secs(1);
/// Between two versions, so that a script that makes a hundred users does not wash the history away.
const PAUSE: Duration = Duration::from_secs(5);
/// After a failure, doubled up to an hour.
const RETRY: Duration = Duration::from_secs(60);
const RETRY_MAX: Duration = Duration::from_secs(3600);
/// At the end of the daemon. A store may not answer.
const LAST_MAX: Duration = Duration::from_secs(10);
/// Before an answer that says what opens the record. Whoever waits is told if it was too short.
const ANSWER_MAX: Duration = Duration::from_secs(10);

pub struct BoxRecord {
    own: tokio::sync::Mutex<Own>,
    passwords: Arc<Passwords>,
    wake: Arc<Notify>,
    /// The newest version that this process wrote or read.
    last: Mutex<Option<Contents>>,
    /// The newest version that each machine with a replica has had.
    sent: Mutex<HashMap<(VolumeName, VolumeName), u64>>,
    folder: Arc<DataFolder>,
    document: Arc<Document>,
    storage: Arc<Storage>,
    replication: Arc<Runs>,
    standings: Standings,
}

impl BoxRecord {
    /// That of the data folder, or the beginning of a new one. `wake`: something of the box may
    /// have changed.
    pub fn open(
        folder: &Arc<DataFolder>,
        document: &Arc<Document>,
        storage: &Arc<Storage>,
        (replication, standings, wake): (&Arc<Runs>, &Standings, Arc<Notify>),
    ) -> Result<Self, Failure> {
        let own = match Own::load(folder.path())? {
            Some(own) => own,
            None => {
                let own = Own::create()?;
                own.save(folder.path())?;
                own
            }
        };
        let passwords = Arc::new(Passwords { wake: Arc::clone(&wake), ..Passwords::default() });
        let (last, sent) = Default::default();
        let (folder, document) = (Arc::clone(folder), Arc::clone(document));
        let (storage, replication) = (Arc::clone(storage), Arc::clone(replication));
        let standings = standings.clone();
        Ok(Self { own: own.into(), passwords, wake, last, sent, folder, document, storage, replication, standings })
    }

    /// Something of the box may have changed.
    pub fn wake(&self) {
        self.wake.notify_one();
    }

    /// What is told of log-ins.
    pub fn passwords(&self) -> Arc<Passwords> {
        Arc::clone(&self.passwords)
    }

    /// The password that somebody has. It becomes a slot if that is an owner.
    pub fn note_password(&self, user: &str, password: &str) {
        self.passwords.note(user, password);
    }
}

/// Which pool has which version.
fn key_of(pool: &Store) -> String {
    match (pool.disk_pool(), pool.bucket()) {
        (Some(pool), _) => pool.id().to_string(),
        (None, Some(bucket)) => bucket.url().to_string(),
        (None, None) => pool.name.clone(),
    }
}

fn digest(bytes: &[u8]) -> String {
    hex::encode(&Sha256::digest(bytes))
}

/// Writes the record whenever it changes, until the daemon stops.
pub async fn run(record: Arc<BoxRecord>) {
    let file = &record.document.file;
    // A link to it may lie elsewhere.
    let file = std::fs::canonicalize(file).unwrap_or_else(|_| file.clone());
    let notices = notices::Notices::of(record.folder.path(), &file);
    if let Err(error) = &notices {
        tracing::warn!(%error, "changes of the data folder by other programs are in the record of this box at the next start");
    }
    let mut said = Vec::new();
    let mut retry = RETRY;
    loop {
        let kept = record.keep().await;
        let again = match &kept {
            Ok(notes) => {
                if !notes.is_empty() && said != *notes {
                    tracing::warn!("the record of this box: {}", notes.join("; "));
                }
                (said, retry) = (notes.clone(), RETRY);
                None
            }
            Err(_) => {
                let after = retry;
                retry = (retry * 2).min(RETRY_MAX);
                Some(after)
            }
        };
        record.standings.set(Kind::Record, &machine::host_name(), kept.map(drop));
        let written = tokio::time::Instant::now();
        let later = async {
            match again {
                Some(after) => tokio::time::sleep(after).await,
                None => std::future::pending().await,
            }
        };
        let noticed = async {
            match &notices {
                Ok(notices) => notices.next().await,
                Err(_) => std::future::pending().await,
            }
        };
        tokio::select! {
            () = record.wake.notified() => {}
            () = noticed => {}
            () = later => {}
        }
        tokio::time::sleep_until((written + PAUSE).max(tokio::time::Instant::now() + GATHER_FOR)).await;
    }
}

impl BoxRecord {
    /// Lets a password open the record before it is set (`own.slot_before_password`). Returns what keeps the slot, and what
    /// is to be said about a password that opens nothing.
    pub async fn expect_password(
        &self,
        user: &str,
        password: &str,
        hash: &PasswordHash,
    ) -> Result<(Held, Vec<String>), Failure> {
        let held = self.passwords.hold(user);
        let mut own = self.own.lock().await;
        let (mut next, of, login) = (own.clone(), user.to_owned(), login_of(hash));
        let secret = Secret::Passphrase(password.to_owned().into());
        let made = task::blocking(move || next.expect_owner(&of, &secret, &login).map(|()| next)).await;
        match made.map_err(|error| Failure::internal(error.to_string()))? {
            Ok(next) => {
                next.save(self.folder.path())?;
                *own = next;
                Ok((held, Vec::new()))
            }
            Err(failure) if failure.kind == FailureKind::Invalid => Ok((held, vec![opens_nothing(user, &failure)])),
            Err(failure) => Err(failure),
        }
    }

    /// Brings the record up to date before an answer. Returns what kept it from that, in words.
    pub async fn keep_before_answer(&self) -> Option<String> {
        let why = match tokio::time::timeout(ANSWER_MAX, self.keep()).await {
            Ok(Ok(_)) => return None,
            Ok(Err(failure)) => failure.message,
            Err(_) => "a store did not answer".to_owned(),
        };
        self.wake();
        Some(format!("the record of this box in its pools is not up to date: {why}; larder goes on trying"))
    }

    /// Writes what is not yet written, at the end.
    pub async fn keep_at_last(&self) {
        match tokio::time::timeout(LAST_MAX, self.keep()).await {
            Ok(Ok(_)) => {}
            Ok(Err(failure)) => tracing::warn!("the record of this box is not up to date: {}", failure.message),
            Err(_) => tracing::warn!("the record of this box is not up to date: a store did not answer"),
        }
    }

    /// Brings the record up to date in every pool. Returns what it lacks, in words.
    async fn keep(&self) -> Result<Vec<String>, Failure> {
        let mut own = self.own.lock().await;
        let (config, logins) = {
            let state = self.document.lock().await;
            (Arc::clone(&state.config), logins(&state.config, &state.secrets))
        };
        if config.pools.is_empty() && config.stores.is_empty() {
            return Ok(Vec::new());
        }
        let mut notes = self.settle_owners(&mut own, &logins).await?;
        let (data, file, now) = (self.folder.path().to_owned(), self.document.file.clone(), Arc::clone(&config));
        let gathered = task::blocking(move || {
            // `contents.no_nt_hashes_without_smb`
            let nt_hashes = NtHashes::of(&now, &file);
            Gathered::read(&data, &file, nt_hashes)
        });
        let gathered = gathered.await;
        let (gathered, unread) = gathered.map_err(|error| Failure::internal(error.to_string()))??;
        notes.extend(unread);
        let now = gathered.digest(&own.owners);
        let ring = digest(&own.keyring().encode());
        let wanted = [now.clone(), ring.clone()];
        let pools = self.storage.all();
        let lacking = |pool: &&Arc<Store>| !pool.is_read_only() && own.kept.get(&key_of(pool)) != Some(&wanted);
        let lacking: Vec<Arc<Store>> = pools.iter().filter(lacking).cloned().collect();
        let Some(first) = lacking.first() else { return Ok(notes) };
        let keys = own.keys()?;
        let is_new = own.digest != now;
        let mut number = if is_new { own.newest + 1 } else { own.newest };
        if is_new {
            // A data folder that was put back from a copy, or a crash, does not know the newest versions.
            for pool in &lacking {
                let there = self.own_versions(&own, pool).await?;
                number = number.max(there.first().map_or(0, |newest| newest.number + 1));
            }
        }
        let changes = match is_new {
            true => self.changes_since_last(&own, first, &keys, &gathered).await,
            false => self.last.lock().as_ref().map(|last| last.changes.clone()).unwrap_or_default(),
        };
        let by = Writer {
            machine: machine::host_name(),
            box_name: config.discovery.name.clone().unwrap_or_else(machine::host_name),
            box_id: own.id,
            life: own.life.clone(),
            former: own.former.clone(),
            owners: own.owners.clone(),
        };
        let contents = gathered.into_version(number, keyrings::now(), by, changes);
        let mut failed = None;
        for pool in lacking {
            let has = own.kept.get(&key_of(&pool)).cloned().unwrap_or_default();
            match self.keep_in(&pool, &own, &keys, (&contents, &wanted, &has)).await {
                Ok(()) => drop(own.kept.insert(key_of(&pool), wanted.clone())),
                Err(failure) => {
                    let message = format!("pool '{}': {}", pool.name, failure.message);
                    failed = Some(Failure { message, ..failure });
                }
            }
        }
        if own.kept.values().any(|kept| *kept == wanted) {
            (own.newest, own.digest) = (number, now);
            own.save(self.folder.path())?;
            tracing::debug!(number, "wrote a version of this box");
            *self.last.lock() = Some(contents);
            // Machines that keep replicas of this box's volumes get it, too.
            self.replication.wake();
        }
        failed.map_or(Ok(notes), Err)
    }

    /// The keyring before the version, and keyrings of former lives go last: what is there can be opened at every moment.
    async fn keep_in(
        &self,
        pool: &Store,
        own: &Own,
        keys: &Arc<larder_crypt::Keys>,
        (contents, wanted, has): (&Contents, &[String; 2], &[String; 2]),
    ) -> Result<(), Failure> {
        let store = pool.store();
        let place = Place { box_id: own.id, life: own.life.id };
        if has[1] != wanted[1] {
            versions::write_keyring(&*store, place, own.keyring()).await?;
        }
        if has[0] != wanted[0] {
            // Where it is already a crash came before `box.json` said so.
            versions::write(&store, place, keys, contents).await?;
            versions::prune(&*store, own.id, &lives(own)).await?;
        }
        if has[1] != wanted[1] {
            for life in &own.former {
                versions::forget_keyring(&*store, Place { life: life.id, ..place }).await?;
            }
        }
        Ok(())
    }

    /// Slots for owners whose passwords are known, and none for others (`own.slots_follow_logins`).
    async fn settle_owners(&self, own: &mut Own, logins: &BTreeMap<String, String>) -> Result<Vec<String>, Failure> {
        let passwords = &self.passwords;
        let held = passwords.held.lock().clone();
        let mut changed = own.keep_owners(logins, &held)?;
        let mut notes = Vec::new();
        let mut unfit = BTreeSet::new();
        let given = passwords.given.lock().clone();
        for (name, secret) in given {
            // It waits until its slot is made: a daemon that stops meanwhile makes it at the end.
            let done = || passwords.given.lock().retain(|_, waiting| !Arc::ptr_eq(waiting, &secret));
            let login = logins.get(&name).cloned();
            let has_slot = |login: &String| own.owners.get(&name).is_some_and(|slot| slot.login == *login);
            let Some(login) = login.filter(|login| !has_slot(login)) else {
                done();
                continue;
            };
            let given = Arc::clone(&secret);
            let mut next = own.clone();
            let of = name.clone();
            let made = task::blocking(move || next.set_owner(&of, &given, &login).map(|()| next)).await;
            match made.map_err(|error| Failure::internal(error.to_string()))? {
                Ok(next) => {
                    (*own, changed) = (next, true);
                    done();
                }
                Err(failure) if failure.kind == FailureKind::Invalid => {
                    done();
                    notes.push(opens_nothing(&name, &failure));
                    unfit.insert(name);
                }
                Err(failure) => return Err(failure),
            }
        }
        if changed {
            own.save(self.folder.path())?;
        }
        let lacks = |name: &&String| !own.owners.contains_key(*name) && !held.contains(*name);
        let lacking: BTreeSet<String> = logins.keys().filter(lacks).cloned().collect();
        for name in lacking.difference(&unfit) {
            notes.push(opens_later(name));
        }
        // One that is unfit would be tried at each log-in.
        *passwords.settled.lock() = own.owners.keys().chain(&unfit).cloned().collect();
        *passwords.lacking.lock() = lacking.difference(&unfit).cloned().collect();
        if own.opens_with().is_empty() {
            notes.push(
                "nothing opens it on another machine; make a recovery key with: larder config recovery-key".to_owned(),
            );
        }
        Ok(notes)
    }

    /// The versions of this box in one pool, of all lives that it knows of.
    async fn own_versions(&self, own: &Own, pool: &Store) -> Result<Vec<Listed>, Failure> {
        let lives = lives(own);
        let all = versions::list(&*pool.store(), Some(own.id)).await?;
        Ok(all.into_iter().filter(|one| lives.contains(&one.place.life)).collect())
    }

    async fn changes_since_last(
        &self,
        own: &Own,
        pool: &Store,
        keys: &Arc<larder_crypt::Keys>,
        now: &Gathered,
    ) -> Vec<String> {
        let known = self.last.lock().clone();
        let before = match known {
            Some(known) => Some(known),
            None => match self.own_versions(own, pool).await.ok().and_then(|all| all.first().copied()) {
                Some(newest) => versions::read(&pool.store(), (newest.place, newest.number), keys).await.ok(),
                None => None,
            },
        };
        let differs = before.as_ref().map(|before| self.entries_that_differ(before, now)).unwrap_or_default();
        let mut changes = Contents::changes_since(before.as_ref(), now, differs);
        if before.is_some_and(|before| before.life.id != own.life.id) {
            changes.insert(0, format!("the box came back, life {}", own.life.number));
        }
        changes
    }

    fn entries_that_differ(&self, before: &Contents, now: &Gathered) -> Vec<String> {
        let (Ok(old), Ok(new)) = (before.config(), now.config()) else { return Vec::new() };
        let parsed = |text: &str| Config::parse(text, &self.document.file);
        match (parsed(old), parsed(new)) {
            (Ok(before), Ok(after)) => {
                let all = differences((&before, old), (&after, new), &self.document.file);
                all.into_iter().map(|one| one.entry).collect()
            }
            _ => vec!["larder.toml".to_owned()],
        }
    }

    pub async fn history(&self) -> Result<ConfigHistory, Failure> {
        let own = self.own.lock().await.clone();
        let keys = own.keys()?;
        let lacking = self.passwords.lacking.lock().clone();
        let (mut found, mut notes) = (Vec::new(), lacking.iter().map(|name| opens_later(name)).collect::<Vec<_>>());
        for pool in self.storage.all() {
            for listed in self.own_versions(&own, &pool).await? {
                if found.iter().any(|one: &ConfigVersion| one.number == listed.number) {
                    continue;
                }
                match versions::read(&pool.store(), (listed.place, listed.number), &keys).await {
                    Ok(contents) => found.push(shown(&contents)),
                    Err(failure) => notes.push(failure.message),
                }
            }
        }
        found.sort_by_key(|one| std::cmp::Reverse(one.number));
        let (box_id, opens_with) = (own.id.to_string(), own.opens_with());
        Ok(ConfigHistory { box_id, life: own.life.number, opens_with, versions: found, notes })
    }

    /// A version of this box, from whichever pool has it.
    ///
    /// # Errors
    /// No pool has it, or none that has it can be read.
    pub async fn version(&self, number: u64) -> Result<Contents, Failure> {
        let own = self.own.lock().await.clone();
        let keys = own.keys()?;
        let mut failed = None;
        for pool in self.storage.all() {
            let all = self.own_versions(&own, &pool).await?;
            for listed in all.iter().filter(|one| one.number == number) {
                match versions::read(&pool.store(), (listed.place, number), &keys).await {
                    Ok(contents) => return Ok(contents),
                    Err(failure) => failed = Some(failure),
                }
            }
        }
        Err(failed.unwrap_or_else(|| {
            Failure::not_found(format!("there is no version {number} of this box"))
                .action("see which there are with: larder config history")
        }))
    }

    pub async fn version_text(&self, number: &str) -> Result<ConfigVersionText, Failure> {
        let number = number.parse().map_err(|_| {
            Failure::invalid(format!("'{number}' is no number of a version"))
                .action("see which there are with: larder config history")
        })?;
        let contents = self.version(number).await?;
        let text = contents.config()?.to_owned();
        Ok(ConfigVersionText { version: shown(&contents), text, files: contents.names() })
    }

    /// The recovery key of a box that has none yet.
    pub async fn first_recovery_key(&self) -> Result<Option<String>, Failure> {
        let mut own = self.own.lock().await;
        if own.has_recovery() {
            return Ok(None);
        }
        let key = self.renew(&mut own)?;
        drop(own);
        if let Some(note) = self.keep_before_answer().await {
            tracing::warn!("{note}");
        }
        Ok(Some(key))
    }

    pub async fn renew_recovery_key(&self) -> Result<BoxRecoveryKey, Failure> {
        let mut own = self.own.lock().await;
        let recovery_key = self.renew(&mut own)?;
        drop(own);
        // Before anybody writes it down: it opens what the pools have.
        self.keep().await?;
        Ok(BoxRecoveryKey { recovery_key })
    }

    fn renew(&self, own: &mut Own) -> Result<String, Failure> {
        let mut next = own.clone();
        let text = next.renew_recovery()?;
        next.save(self.folder.path())?;
        *own = next;
        self.wake();
        Ok(text)
    }
}

fn lives(own: &Own) -> Vec<Uuid> {
    own.former.iter().map(|life| life.id).chain([own.life.id]).collect()
}

fn shown(contents: &Contents) -> ConfigVersion {
    ConfigVersion {
        number: contents.number,
        written_secs: contents.written_secs,
        machine: contents.machine.clone(),
        life: contents.life.number,
        changes: contents.changes.clone(),
    }
}

/// The owners that have passwords, each with a digest of the password's hash.
fn logins(config: &Config, secrets: &Secrets) -> BTreeMap<String, String> {
    let owners = config.users.iter().filter(|user| user.role == UserRole::Owner);
    let login = |name: &str| secrets.password_hash(name).ok().flatten().map(|hash| login_of(&hash));
    owners.filter_map(|user| Some((user.name.clone(), login(&user.name)?))).collect()
}

fn login_of(hash: &PasswordHash) -> String {
    digest(hash.to_text().as_bytes())
}

fn opens_later(user: &str) -> String {
    format!("the password of {user} opens the record of this box after the next log-in to the page")
}

fn opens_nothing(user: &str, why: &Failure) -> String {
    format!("the password of {user} does not open the record of this box: {}", why.message)
}

/// Without a daemon: the slot of a password that an owner is about to have, in the data folder. The next start has it in the
/// pools. Returns what is to be said.
pub fn expect_password_without_daemon(
    data: &Path,
    user: &str,
    password: &str,
    hash: &PasswordHash,
) -> Result<Vec<String>, Failure> {
    let Some(mut own) = Own::load(data)? else { return Ok(Vec::new()) };
    match own.expect_owner(user, &Secret::Passphrase(password.to_owned().into()), &login_of(hash)) {
        Ok(()) => own.save(data).map(|()| Vec::new()),
        Err(failure) if failure.kind == FailureKind::Invalid => Ok(vec![opens_nothing(user, &failure)]),
        Err(failure) => Err(failure),
    }
}
