//! The guard of a share: it notices a client that ruins files, as ransomware does, and may take its right to write.
//!
//! Doors say whom a call is for ([`larder_volume::Client`]). The guard counts what each client does to files that were there
//! before ([`record`]), and tells once about a client. Nothing is judged by a file's name, and nothing by one file.
//!
//! - `guard.cheap_calls`: reads, and writes beyond the first [`JUDGED_BYTES`] of a file, cost nothing. A write there costs the look
//!   at a kilobyte; a creation, removal or truncation an entry in a table.
//! - `guard.table_bounded`: [`CLIENTS_MAX`] clients, each with a fixed amount of memory. The client that was quiet for longest is
//!   forgotten first; one that was told about is not.
//! - `guard.one_client`: a client is a login at an address. Who is blocked is refused each change at every door of the share,
//!   also through files that are open. Others are not.
//! - `guard.told_once`: a client that was told about is not judged until somebody answers.

mod record;
mod sample;

use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasher, Hash, RandomState};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering::Relaxed};

use bytes::Bytes;
use larder_base::{Clock, Timestamp};
use larder_volume::{Attr, Changed, Cred, FileKind, FsError, FsResult, Ino, NameMatch};
use parking_lot::Mutex;

pub use record::Harm;
use record::Record;
use sample::{Look, SAMPLE_BYTES, look_at};

use crate::Files;

/// Ransomware begins at the beginning of a file, and later bytes of compressed files have no form anyway.
const JUDGED_BYTES: u64 = 64 << 10;
/// Clients of one share.
const CLIENTS_MAX: usize = 512;
/// A client that somebody vouched for is not judged for so long: what it does may take a while.
const TRUSTED_SECS: u64 = 24 * 3600;

/// What a guard does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum GuardMode {
    /// Nothing.
    Off,
    /// It tells.
    Alert,
    /// It tells, and the client may not write any more.
    Block,
}

/// A client, as people name it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Suspect {
    /// The login, or `uid 1000` where the door knows numbers alone.
    pub user: String,
    /// `None`: this machine.
    pub address: Option<IpAddr>,
}

impl fmt::Display for Suspect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.address {
            Some(address) => write!(f, "{} at {address}", self.user),
            None => write!(f, "{} on this machine", self.user),
        }
    }
}

/// A client that a guard tells about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alarm {
    /// The client.
    pub suspect: Suspect,
    /// What it seems to do.
    pub harm: Harm,
    /// When it began.
    pub since: Timestamp,
    /// It may not write any more.
    pub blocked: bool,
}

/// The guard of one share, for all its doors.
pub struct Guard {
    mode: AtomicU8,
    clients: Mutex<HashMap<u64, Watched>>,
    /// How many are blocked: while it is none, nobody is looked for.
    blocked: AtomicUsize,
    keys: RandomState,
    clock: Arc<dyn Clock>,
    tell: Box<dyn Fn(Alarm) + Send + Sync>,
}

struct Watched {
    suspect: Suspect,
    record: Record,
    seen_secs: u64,
    /// The first sign that has not faded.
    began: Timestamp,
    told: bool,
    blocked: bool,
    trusted_until_secs: u64,
}

/// A write that has to be judged: what is written, and what it is written over as far as somebody looked.
pub(crate) struct FormlessWrite {
    offset: u64,
    empty: bool,
    old: Option<Look>,
}

/// A file that is about to take another one's name.
#[derive(Clone, Copy)]
pub(crate) enum Successor<'n> {
    Name(Ino, &'n [u8]),
    File(Ino),
}

impl Guard {
    /// `tell` must not wait: a client's call waits for it.
    pub fn new(clock: Arc<dyn Clock>, tell: impl Fn(Alarm) + Send + Sync + 'static) -> Arc<Guard> {
        Arc::new(Guard {
            mode: AtomicU8::new(GuardMode::Alert as u8),
            clients: Mutex::default(),
            blocked: AtomicUsize::new(0),
            keys: RandomState::new(),
            clock,
            tell: Box::new(tell),
        })
    }

    /// From now on. Without a guard nobody is blocked.
    pub fn set_mode(&self, mode: GuardMode) {
        self.mode.store(mode as u8, Relaxed);
    }

    /// A client that was told about in an earlier life.
    pub fn restore(&self, suspect: Suspect, blocked: bool) {
        self.with_suspect(suspect, |watched, _| (watched.told, watched.blocked) = (true, blocked));
    }

    /// Somebody vouches for the client: it may write, and is not judged for a day.
    pub fn release(&self, suspect: Suspect) {
        self.with_suspect(suspect, |watched, now_secs| {
            (watched.told, watched.blocked) = (false, false);
            watched.record = Record::default();
            watched.trusted_until_secs = now_secs + TRUSTED_SECS;
        });
    }

    fn with_suspect(&self, suspect: Suspect, change: impl FnOnce(&mut Watched, u64)) {
        let (key, now_secs) = (self.key(&suspect), self.now_secs());
        let mut clients = self.clients.lock();
        if let Some(watched) = entry(&mut clients, key, now_secs, || suspect) {
            change(watched, now_secs);
        }
        self.blocked.store(clients.values().filter(|watched| watched.blocked).count(), Relaxed);
    }

    fn is(&self, mode: GuardMode) -> bool {
        self.mode.load(Relaxed) == mode as u8
    }

    fn now_secs(&self) -> u64 {
        self.clock.elapsed().as_secs()
    }

    fn key(&self, suspect: &impl Hash) -> u64 {
        self.keys.hash_one(suspect)
    }

    fn is_blocked(&self, cred: &Cred) -> bool {
        if self.blocked.load(Relaxed) == 0 || self.is(GuardMode::Off) {
            return false;
        }
        let key = self.key(&suspect_of(cred));
        self.clients.lock().get(&key).is_some_and(|watched| watched.blocked)
    }

    /// Counts something, and tells if that was enough.
    fn count<T>(&self, cred: &Cred, change: impl FnOnce(&mut Record) -> T) -> Option<T> {
        if self.is(GuardMode::Off) {
            return None;
        }
        let (suspect, now_secs) = (suspect_of(cred), self.now_secs());
        let key = self.key(&suspect);
        let mut clients = self.clients.lock();
        let watched = entry(&mut clients, key, now_secs, || suspect)?;
        watched.seen_secs = now_secs;
        if watched.told || now_secs < watched.trusted_until_secs {
            return None;
        }
        watched.record.fade(now_secs);
        let was_calm = watched.record.is_calm();
        let answer = change(&mut watched.record);
        if was_calm && !watched.record.is_calm() {
            watched.began = self.clock.now();
        }
        let Some(harm) = watched.record.harm() else { return Some(answer) };
        watched.told = true;
        watched.blocked = self.is(GuardMode::Block);
        let (suspect, blocked) = (watched.suspect.clone(), watched.blocked);
        watched.record = Record::default();
        self.blocked.fetch_add(usize::from(blocked), Relaxed);
        // A client that shows a sign now and then has done so for hours.
        let now = self.clock.now();
        let since = watched.began.max(Timestamp::new(now.secs - record::MEMORY_SECS, now.nanos));
        drop(clients);
        (self.tell)(Alarm { suspect, harm, since, blocked });
        Some(answer)
    }

    fn may_read(&self, cred: &Cred) -> bool {
        self.count(cred, Record::may_read).unwrap_or(false)
    }
}

/// The entry of a client, which may push another one out (`guard.table_bounded`). `None`: all are told about.
fn entry<'c>(
    clients: &'c mut HashMap<u64, Watched>,
    key: u64,
    now_secs: u64,
    suspect: impl FnOnce() -> Suspect,
) -> Option<&'c mut Watched> {
    if !clients.contains_key(&key) && clients.len() >= CLIENTS_MAX {
        let may_go = clients.iter().filter(|(_, watched)| !watched.told);
        let (oldest, _) = may_go.min_by_key(|(_, watched)| watched.seen_secs)?;
        let oldest = *oldest;
        clients.remove(&oldest);
    }
    Some(clients.entry(key).or_insert_with(|| Watched {
        suspect: suspect(),
        record: Record::default(),
        seen_secs: now_secs,
        began: Timestamp::default(),
        told: false,
        blocked: false,
        trusted_until_secs: 0,
    }))
}

fn suspect_of(cred: &Cred) -> Suspect {
    let user = cred.client.user.as_ref().map_or_else(|| format!("uid {}", cred.uid), |user| user.to_string());
    Suspect { user, address: cred.client.address }
}

impl Files {
    /// The same door, whose clients `guard` watches.
    pub fn guarded(&self, guard: Arc<Guard>) -> Files {
        Files { guard: Some(guard), ..self.clone() }
    }

    /// [`FsError::Access`] for a client that its guard has blocked (`guard.one_client`).
    pub fn check_unblocked(&self, cred: &Cred) -> FsResult<()> {
        match &self.guard {
            Some(guard) if guard.is_blocked(cred) => Err(FsError::Access),
            _ => Ok(()),
        }
    }

    /// Before a write. `None`: it needs no judging (`guard.cheap_calls`).
    pub(crate) fn judged_write(&self, cred: &Cred, offset: u64, data: &[Bytes]) -> FsResult<Option<FormlessWrite>> {
        let Some(guard) = &self.guard else { return Ok(None) };
        if guard.is_blocked(cred) {
            return Err(FsError::Access);
        }
        if offset >= JUDGED_BYTES || guard.is(GuardMode::Off) {
            return Ok(None);
        }
        let look = look_at(data, offset);
        let is_judged = matches!(look, Look::Formless | Look::Empty);
        Ok(is_judged.then_some(FormlessWrite { offset, empty: look == Look::Empty, old: None }))
    }

    /// Looks what the write goes over, if its client has become suspicious.
    pub(crate) async fn look_below(&self, cred: &Cred, ino: Ino, write: &mut FormlessWrite) {
        if self.guard.as_ref().is_some_and(|guard| guard.may_read(cred)) {
            write.old = Some(self.look_at_file(ino, write.offset).await);
        }
    }

    /// After it.
    pub(crate) fn wrote_formless(&self, cred: &Cred, ino: Ino, write: &FormlessWrite, changed: &Changed) {
        // Zeros are a loss over a form alone.
        if write.empty && write.old != Some(Look::Formed) {
            return;
        }
        if let Some(guard) = &self.guard {
            let existed = changed.before.size > write.offset;
            guard.count(cred, |record| record.wrote_formless(ino, existed, write.old));
        }
    }

    /// Before a file is emptied: what it is, if its client has become suspicious.
    pub(crate) async fn look_before_emptied(&self, cred: &Cred, ino: Ino) -> Option<Look> {
        let guard = self.guard.as_ref()?;
        if !guard.may_read(cred) {
            return None;
        }
        Some(Box::pin(self.look_at_file(ino, 0)).await)
    }

    pub(crate) fn emptied(&self, cred: &Cred, ino: Ino, old: Option<Look>) {
        if let Some(guard) = &self.guard {
            guard.count(cred, |record| record.emptied(ino, old));
        }
    }

    pub(crate) fn made(&self, cred: &Cred, dir: Ino, made: &Attr) {
        if let Some(guard) = &self.guard {
            guard.count(cred, |record| record.created(made.id.ino, dir));
        }
    }

    /// Before a name is removed: what its file is, if its client has become suspicious.
    pub(crate) async fn look_before_removed(&self, cred: &Cred, dir: Ino, name: &[u8]) -> Option<Look> {
        let guard = self.guard.as_ref()?;
        if !guard.may_read(cred) {
            return None;
        }
        Some(Box::pin(self.look_at_name(dir, name)).await?.1)
    }

    /// `attr`: afterwards.
    pub(crate) fn removed(&self, cred: &Cred, dir: Ino, old: Option<Look>, attr: &Attr) {
        let is_loss = attr.kind == FileKind::File && attr.size > 0 && (attr.nlink == 0 || self.bin.is_some());
        if let Some(guard) = self.guard.as_ref().filter(|_| is_loss) {
            guard.count(cred, |record| record.removed(dir, old));
        }
    }

    /// Before a folder is removed: its inode, if its client has become suspicious.
    pub(crate) async fn folder_to_remove(&self, cred: &Cred, dir: Ino, name: &[u8]) -> Option<Ino> {
        let guard = self.guard.as_ref()?;
        if !guard.count(cred, |record| record.is_suspicious()).unwrap_or(false) {
            return None;
        }
        let found = Box::pin(self.tree.lookup(&Cred::root(), dir, name, NameMatch::Exact)).await;
        found.ok().map(|attr| attr.id.ino)
    }

    pub(crate) fn folder_removed(&self, cred: &Cred, folder: Option<Ino>) {
        if let (Some(guard), Some(folder)) = (&self.guard, folder) {
            guard.count(cred, |record| record.folder_removed(folder));
        }
    }

    /// Before a rename: the file that takes a name from one with a form, having none itself.
    pub(crate) async fn formless_successor(
        &self,
        cred: &Cred,
        successor: Successor<'_>,
        to: (Ino, &[u8]),
    ) -> Option<Ino> {
        let guard = self.guard.as_ref()?;
        if !guard.may_read(cred) {
            return None;
        }
        Box::pin(async {
            let (_, old) = self.look_at_name(to.0, to.1).await?;
            let (ino, new) = match successor {
                Successor::Name(dir, name) => self.look_at_name(dir, name).await?,
                Successor::File(ino) => (ino, self.look_at_file(ino, 0).await),
            };
            (old == Look::Formed && new == Look::Formless).then_some(ino)
        })
        .await
    }

    pub(crate) fn replaced(&self, cred: &Cred, by: Option<Ino>) {
        if let (Some(guard), Some(by)) = (&self.guard, by) {
            guard.count(cred, |record| record.replaced(by));
        }
    }

    async fn look_at_name(&self, dir: Ino, name: &[u8]) -> Option<(Ino, Look)> {
        let attr = self.tree.lookup(&Cred::root(), dir, name, NameMatch::Exact).await.ok()?;
        if attr.kind != FileKind::File {
            return None;
        }
        Some((attr.id.ino, self.look_at_file(attr.id.ino, 0).await))
    }

    async fn look_at_file(&self, ino: Ino, offset: u64) -> Look {
        match self.tree.read(ino, offset, SAMPLE_BYTES).await {
            Ok(data) => look_at(&data.chunks, offset),
            Err(_) => Look::Unclear,
        }
    }
}

#[cfg(test)]
mod tests;
