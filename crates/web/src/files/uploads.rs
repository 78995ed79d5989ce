//! Uploads that a cut of the connection does not end: the table of those that are under way.
//!
//! - `uploads.bounded`: there are at most [`UPLOADS_MAX`], of one user [`OF_USER_MAX`]. Each keeps
//!   up to 4 MiB in memory and a file without a name in its volume.
//! - `uploads.expire`: one that was not heard of for [`SILENT_MAX`] is dropped, and its file with
//!   it. So is one whose share is gone or changed. None outlives the server.
//! - `uploads.of_one_user`: an upload is of a name and a number, and gone on with by that user, or
//!   by an app token that may write in its share.
//! - `uploads.silent_bounded`: an upload of which less than [`LIVELY_BYTES`] came for
//!   [`SILENT_AFTER`] is silent. So is one of which nothing came for [`IDLE_AFTER`] while its user
//!   went on with another. Silent uploads of a user hold at most one [`SHARE_OF_USER`]th of the
//!   bytes that their volume has left, those of all users one [`SHARE_OF_ALL`]th; the longest
//!   silent ones go first. With less than one [`TIGHT`]th of the volume left, all silent ones go.
//! - `uploads.newest_request_wins`: a request for an upload ends the one before: after a cut the
//!   server may still wait for the old one.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use hyper::StatusCode;
use larder_base::hex;
use larder_dav::browsers::{Arriving, Fail};
use larder_doors::tree::ShareState;
use larder_fs::Cred;
use larder_people::{Door, User, Who};
use parking_lot::Mutex;
use tokio::sync::{Mutex as Turn, Notify, OwnedMutexGuard, watch};

use crate::session::secret;

const UPLOADS_MAX: usize = 256;
const OF_USER_MAX: usize = 32;
const EXPIRE_EVERY: Duration = Duration::from_secs(20);
const SILENT_MAX: Duration = Duration::from_secs(2 * 3600);
/// A client that sends less in [`SILENT_AFTER`] holds its place without using it.
const LIVELY_BYTES: u64 = 1 << 20;
const SILENT_AFTER: Duration = Duration::from_secs(5 * 60);
/// The last upload of a user that was cut off has [`SILENT_AFTER`] to come back. Others make room
/// sooner.
const IDLE_AFTER: Duration = Duration::from_secs(10);
const SHARE_OF_USER: u64 = 8;
const SHARE_OF_ALL: u64 = 4;
const TIGHT: u64 = 10;
/// For the request before to notice that it is over.
const HANDOVER_TIME: Duration = Duration::from_secs(10);

pub enum Stage {
    Arriving(Box<Arriving>),
    /// It has its name. Kept for a client that did not hear of it.
    Done,
    /// It cannot go on.
    Failed(Fail),
}

/// An upload that is under way.
pub struct Resumable {
    user: String,
    uid: u32,
    share: Arc<ShareState>,
    pub length: u64,
    seen: Mutex<Progress>,
    stage: Arc<Turn<Stage>>,
    requests: watch::Sender<u64>,
}

/// What came of an upload, and when.
#[derive(Clone, Copy)]
struct Progress {
    /// The last request or byte.
    last: Instant,
    bytes: u64,
    /// The last time that it was lively, and its bytes then (`uploads.silent_bounded`).
    lively: Instant,
    lively_bytes: u64,
}

/// A silent upload, as the bounds see it.
struct Silent {
    id: String,
    user: String,
    since: Instant,
    bytes: u64,
}

/// The ids that have to go so that the others hold the bounds.
fn surplus(mut silent: Vec<Silent>, left_bytes: u64, total_bytes: u64) -> Vec<String> {
    if left_bytes < total_bytes / TIGHT {
        return silent.into_iter().map(|upload| upload.id).collect();
    }
    silent.sort_by_key(|upload| upload.since);
    let mut of_all: u64 = silent.iter().map(|upload| upload.bytes).sum();
    let mut of_users: HashMap<String, u64> = HashMap::new();
    for upload in &silent {
        *of_users.entry(upload.user.clone()).or_default() += upload.bytes;
    }
    let mut gone = Vec::new();
    for upload in silent {
        let of_user = of_users.entry(upload.user).or_default();
        if of_all > left_bytes / SHARE_OF_ALL || *of_user > left_bytes / SHARE_OF_USER {
            of_all -= upload.bytes;
            *of_user -= upload.bytes;
            gone.push(upload.id);
        }
    }
    gone
}

#[derive(Default)]
pub struct Uploads {
    all: Mutex<HashMap<String, Arc<Resumable>>>,
    /// Whoever looks after them sleeps while there are none.
    begun: Notify,
}

/// The right to go on with an upload, until another request comes for it.
pub struct Held {
    pub entry: Arc<Resumable>,
    pub stage: OwnedMutexGuard<Stage>,
    /// Changes when another request has come for the same upload.
    pub superseded: watch::Receiver<u64>,
}

impl Resumable {
    /// `uploads.newest_request_wins`.
    pub async fn hold(self: &Arc<Self>) -> Result<Held, Fail> {
        self.requests.send_modify(|count| *count += 1);
        let superseded = self.requests.subscribe();
        let turn = tokio::time::timeout(HANDOVER_TIME, Arc::clone(&self.stage).lock_owned()).await;
        let stage = turn.map_err(|_| Fail::new(StatusCode::SERVICE_UNAVAILABLE, "the upload is busy: try again"))?;
        self.seen.lock().last = Instant::now();
        Ok(Held { entry: Arc::clone(self), stage, superseded })
    }

    /// More of it has come: `bytes` in all.
    pub fn came(&self, bytes: u64) {
        let (mut seen, now) = (self.seen.lock(), Instant::now());
        (seen.last, seen.bytes) = (now, bytes);
        if bytes >= seen.lively_bytes + LIVELY_BYTES {
            (seen.lively, seen.lively_bytes) = (now, bytes);
        }
    }
}

impl Uploads {
    pub fn add(&self, user: &User, arriving: Arriving, length: u64) -> Result<String, Fail> {
        const FULL: Fail = Fail::new(StatusCode::SERVICE_UNAVAILABLE, "as many uploads are under way as there may be");
        let mut all = self.all.lock();
        if all.len() >= UPLOADS_MAX || all.values().filter(|entry| entry.user == user.name).count() >= OF_USER_MAX {
            // Those that are done are of little use.
            all.retain(|_, entry| !entry.stage.try_lock().is_ok_and(|stage| !matches!(*stage, Stage::Arriving(_))));
        }
        if all.len() >= UPLOADS_MAX || all.values().filter(|entry| entry.user == user.name).count() >= OF_USER_MAX {
            return Err(FULL);
        }
        let (id, now) = (hex::encode(&secret::<16>()), Instant::now());
        let entry = Resumable {
            user: user.name.clone(),
            uid: user.uid,
            share: Arc::clone(arriving.share()),
            length,
            seen: Mutex::new(Progress { last: now, bytes: 0, lively: now, lively_bytes: 0 }),
            stage: Arc::new(Turn::new(Stage::Arriving(Box::new(arriving)))),
            requests: watch::Sender::new(0),
        };
        all.insert(id.clone(), Arc::new(entry));
        self.begun.notify_one();
        Ok(id)
    }

    /// Gives up those that nobody goes on with. Never returns.
    pub async fn expire_in_time(&self) {
        loop {
            self.any().await;
            tokio::time::sleep(EXPIRE_EVERY).await;
            // A panic ends this round. It would end the door, whose connections wait beside this.
            let round = std::panic::AssertUnwindSafe(|| self.expire(Instant::now()));
            let _ = std::panic::catch_unwind(round);
        }
    }

    /// Returns at once while there are uploads, and otherwise with the first.
    async fn any(&self) {
        let is_empty = self.all.lock().is_empty();
        if is_empty {
            self.begun.notified().await;
        }
    }

    /// `uploads.of_one_user`
    pub fn find(&self, id: &str, user: &User) -> Result<Arc<Resumable>, Fail> {
        const NONE: Fail = Fail::new(StatusCode::NOT_FOUND, "there is no such upload, or it was given up: begin anew");
        let may = |entry: &&Arc<Resumable>| {
            let writes = || {
                let share = &entry.share.served.share;
                share.entrance(Who::User(user), None, Door::Webdav).rights.is_some_and(|rights| rights.may_write)
            };
            entry.user == user.name && entry.uid == user.uid && (user.token.is_none() || writes())
        };
        self.all.lock().get(id).filter(may).cloned().ok_or(NONE)
    }

    pub fn remove(&self, id: &str) {
        self.all.lock().remove(id);
    }

    /// Drops what nobody goes on with (`uploads.expire`, `uploads.silent_bounded`).
    pub fn expire(&self, now: Instant) {
        let mut all = self.all.lock();
        all.retain(|_, entry| now.saturating_duration_since(entry.seen.lock().last) < SILENT_MAX);
        let mut by_tree: HashMap<uuid::Uuid, (Arc<ShareState>, Vec<Silent>)> = HashMap::new();
        let mut newest: HashMap<&str, Instant> = HashMap::new();
        for entry in all.values() {
            let (last, newest) = (entry.seen.lock().last, newest.entry(&entry.user));
            newest.and_modify(|newest| *newest = last.max(*newest)).or_insert(last);
        }
        for (id, entry) in all.iter() {
            let seen = *entry.seen.lock();
            let is_newest = newest.get(entry.user.as_str()) == Some(&seen.last);
            let is_idle = !is_newest && now.saturating_duration_since(seen.last) >= IDLE_AFTER;
            let is_silent = is_idle || now.saturating_duration_since(seen.lively) >= SILENT_AFTER;
            if is_silent && seen.bytes > 0 {
                let (_, silent) =
                    by_tree.entry(entry.share.files.id()).or_insert_with(|| (Arc::clone(&entry.share), Vec::new()));
                let (id, user) = (id.clone(), entry.user.clone());
                silent.push(Silent { id, user, since: seen.lively, bytes: seen.bytes });
            }
        }
        for (share, silent) in by_tree.into_values() {
            let room = share.files.statfs(&Cred::root());
            for id in surplus(silent, room.available_bytes, room.total_bytes) {
                if let Some(entry) = all.remove(&id) {
                    // A request that trickles ends with it.
                    entry.requests.send_modify(|count| *count += 1);
                    tracing::info!("a silent upload of '{}' was given up: the volume has little room", entry.user);
                }
            }
        }
    }

    /// Drops those whose users are gone, or are others of the same name.
    pub fn keep_users(&self, users: &HashSet<(&str, u32)>) {
        self.all.lock().retain(|_, entry| users.contains(&(entry.user.as_str(), entry.uid)));
    }

    pub fn forget_share(&self, share: &Arc<ShareState>) {
        self.all.lock().retain(|_, entry| !Arc::ptr_eq(&entry.share, share));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `surplus` of uploads, each a user, bytes, and how long before now it fell silent.
    fn gone(uploads: &[(&str, u64, u64)], left_bytes: u64) -> Vec<String> {
        let now = Instant::now() + Duration::from_secs(1 << 20);
        let silent = |(n, (user, bytes, secs)): (usize, &(&str, u64, u64))| Silent {
            id: n.to_string(),
            user: (*user).to_owned(),
            since: now - Duration::from_secs(*secs),
            bytes: *bytes,
        };
        let mut gone = surplus(uploads.iter().enumerate().map(silent).collect(), left_bytes, 1000);
        gone.sort();
        gone
    }

    #[test]
    fn silent_uploads_hold_a_part_of_what_is_left() {
        for (uploads, left, expected) in [
            (&[("ann", 50, 400), ("ann", 50, 500)][..], 800, &[][..]),
            // Of one user the longest silent goes.
            (&[("ann", 60, 400), ("ann", 50, 500)], 800, &["1"]),
            // Of all users together.
            (&[("ann", 90, 400), ("bob", 90, 500), ("carl", 90, 600)], 800, &["2"]),
            // A volume that is nearly full keeps none.
            (&[("ann", 1, 400), ("bob", 1, 500)], 99, &["0", "1"]),
        ] {
            assert_eq!(gone(uploads, left), expected, "{uploads:?} of {left}");
        }
    }
}
