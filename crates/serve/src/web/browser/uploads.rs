//! Uploads that a cut of the connection does not end: the table of those that are under way.
//!
//! - `uploads.bounded`: there are at most [`UPLOADS_MAX`], of one user [`OF_USER_MAX`]. Each keeps up to
//!   4 MiB in memory and a file without a name in its volume.
//! - `uploads.expire`: one that was not heard of for [`SILENT_MAX`] is dropped, and its file with it. So
//!   is one whose share is gone or changed. None outlives the server.
//! - `uploads.of_one_user`: an upload is of a name and a number, and gone on with by that user, or by an app token that may write in its
//!   share.
//! - `uploads.newest_request_wins`: a request for an upload ends the one before: after a cut the server
//!   may still wait for the old one.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use hyper::StatusCode;
use larder_base::hex;
use parking_lot::Mutex;
use tokio::sync::{Mutex as Turn, OwnedMutexGuard, watch};

use super::super::fail::Fail;
use super::super::put::Arriving;
use super::sessions::secret;
use crate::login::DoorUser;
use crate::token::DoorToken;
use crate::tree::ShareState;

const UPLOADS_MAX: usize = 256;
const OF_USER_MAX: usize = 32;
const SILENT_MAX: Duration = Duration::from_secs(2 * 3600);
/// For the request before to notice that it is over.
const HANDOVER_TIME: Duration = Duration::from_secs(10);

pub enum Stage {
    Arriving(Box<Arriving>),
    /// It has its name. Kept for a client that did not hear of it.
    Done,
    /// It cannot go on.
    Failed(Fail),
}

pub struct Entry {
    user: String,
    uid: u32,
    share: Arc<ShareState>,
    pub length: u64,
    seen: Mutex<Instant>,
    stage: Arc<Turn<Stage>>,
    requests: watch::Sender<u64>,
}

#[derive(Default)]
pub struct Uploads(Mutex<HashMap<String, Arc<Entry>>>);

/// The right to go on with an upload, until another request comes for it.
pub struct Held {
    pub entry: Arc<Entry>,
    pub stage: OwnedMutexGuard<Stage>,
    /// Changes when another request has come for the same upload.
    pub superseded: watch::Receiver<u64>,
}

impl Entry {
    /// `uploads.newest_request_wins`.
    pub async fn hold(self: &Arc<Self>) -> Result<Held, Fail> {
        self.requests.send_modify(|count| *count += 1);
        let superseded = self.requests.subscribe();
        let turn = tokio::time::timeout(HANDOVER_TIME, Arc::clone(&self.stage).lock_owned()).await;
        let stage = turn.map_err(|_| Fail::new(StatusCode::SERVICE_UNAVAILABLE, "the upload is busy: try again"))?;
        *self.seen.lock() = Instant::now();
        Ok(Held { entry: Arc::clone(self), stage, superseded })
    }

    pub fn touch(&self) {
        *self.seen.lock() = Instant::now();
    }
}

impl Uploads {
    pub fn add(&self, user: &DoorUser, arriving: Arriving, length: u64) -> Result<String, Fail> {
        const FULL: Fail = Fail::new(StatusCode::SERVICE_UNAVAILABLE, "as many uploads are under way as there may be");
        let mut all = self.0.lock();
        if all.len() >= UPLOADS_MAX || all.values().filter(|entry| entry.user == user.name).count() >= OF_USER_MAX {
            // Those that are done are of little use.
            all.retain(|_, entry| !entry.stage.try_lock().is_ok_and(|stage| !matches!(*stage, Stage::Arriving(_))));
        }
        if all.len() >= UPLOADS_MAX || all.values().filter(|entry| entry.user == user.name).count() >= OF_USER_MAX {
            return Err(FULL);
        }
        let id = hex::encode(&secret::<16>());
        let entry = Entry {
            user: user.name.clone(),
            uid: user.uid,
            share: Arc::clone(arriving.share()),
            length,
            seen: Mutex::new(Instant::now()),
            stage: Arc::new(Turn::new(Stage::Arriving(Box::new(arriving)))),
            requests: watch::Sender::new(0),
        };
        all.insert(id.clone(), Arc::new(entry));
        Ok(id)
    }

    /// `uploads.of_one_user`
    pub fn find(&self, id: &str, user: &DoorUser) -> Result<Arc<Entry>, Fail> {
        const NONE: Fail = Fail::new(StatusCode::NOT_FOUND, "there is no such upload, or it was given up: begin anew");
        let may = |entry: &&Arc<Entry>| {
            let opens = |token: &Arc<DoorToken>| {
                !token.read_only && token.share.as_ref().is_none_or(|share| *share == entry.share.share.name)
            };
            entry.user == user.name && entry.uid == user.uid && user.token.as_ref().is_none_or(opens)
        };
        self.0.lock().get(id).filter(may).cloned().ok_or(NONE)
    }

    pub fn remove(&self, id: &str) {
        self.0.lock().remove(id);
    }

    /// Drops what nobody goes on with (`uploads.expire`).
    pub fn expire(&self, now: Instant) {
        self.0.lock().retain(|_, entry| now.saturating_duration_since(*entry.seen.lock()) < SILENT_MAX);
    }

    /// Drops those whose users are gone, or are others of the same name.
    pub fn keep_users(&self, users: &HashSet<(&str, u32)>) {
        self.0.lock().retain(|_, entry| users.contains(&(entry.user.as_str(), entry.uid)));
    }

    pub fn forget_share(&self, share: &Arc<ShareState>) {
        self.0.lock().retain(|_, entry| !Arc::ptr_eq(&entry.share, share));
    }
}
