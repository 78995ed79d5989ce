//! A daemon that waits for a store which another machine has, and one that is asked to give it up.
//!
//! - `bucket.standby_has_no_doors`: a process that stands by listens to nobody until it has the store. So a port that answers is a
//!   sign that this machine serves. The pool whose journal is to answer is opened then, too.
//! - `bucket.asked_ends`: a daemon that is asked for its store ends in order, everything in the bucket, and gives the store back. It
//!   stays until another machine has the store, for a moment only, so that whatever starts it again does not take it back.

use std::time::Duration;

use larder_api::Failure;
use larder_keep::Storage;
use larder_keep::journal_place::JournalPlace;
use larder_keep::missing::waiting;
use larder_pool::{OpenOptions, Pool};
use larder_store::{Beating, Bucket, Owner, Watched};

use crate::bucket::this_machine;
use larder_config::times;
use larder_config::{Config, PoolConfig, StoreSettings};
use larder_document::DataFolder;
use larder_keep::bucket::bucket_error;

/// A standby takes what was given back within its next look, every 2 s.
const SUCCESSOR_WAIT_MAX: Duration = Duration::from_secs(15);

/// Waits until this machine may have the store, if its configuration says that another machine stands in for it. Takes it then;
/// opening it takes it once more. Until the answer is dropped the record is renewed, so that nobody takes the store meanwhile.
pub async fn stand_by(config: &Config, folder: &DataFolder) -> Result<Option<Beating>, Failure> {
    let Some(store) = config.stores.iter().find(|store| store.standby) else { return Ok(None) };
    let is_its_pool = |pool: &PoolConfig| store.journal.as_ref() == Some(&pool.name);
    if config.stores.len() > 1 || !config.pools.iter().all(is_its_pool) {
        return Err(Failure::invalid(format!(
            "the store '{}' has a standby, and this daemon has other pools or stores: they would wait with it",
            store.name
        ))
        .action("serve them by a daemon of their own: larder serve --data ANOTHER-DIR"));
    }
    let failed = |error| bucket_error(&store.name, &error);
    let bucket = Bucket::open(&store.bucket).map_err(failed)?;
    let machine = this_machine(folder)?;
    if let Ok(Some(owner)) = larder_store::look_at(&*bucket.store, &store.seat).await
        && !owner.released
        && owner.machine.id != machine.id
    {
        keep_what_waits(config, store).await;
    }
    let url = bucket.url.to_string();
    let told = |watched: &Watched| say(store, &url, watched);
    let owner = Owner::stand_by_seat(bucket.store, &bucket.url, &store.seat, machine, told).await.map_err(failed)?;
    tracing::info!(store = store.name, epoch = owner.epoch(), "took the store");
    Ok(Some(owner.beating()))
}

/// What this machine acknowledged as the owner before, and perhaps never got into the bucket.
async fn keep_what_waits(config: &Config, store: &StoreSettings) {
    let Some(pool) = config.pools.iter().find(|pool| store.journal.as_ref() == Some(&pool.name)) else { return };
    let options = OpenOptions { name: Some(pool.name.clone()), ..OpenOptions::new(pool.disks.clone()) };
    let open = match Pool::open(options).await {
        Ok(open) => open,
        Err(error) => {
            return tracing::warn!(
                store = store.name, pool = pool.name, %error,
                "the pool cannot be looked into for changes that the bucket lacks"
            );
        }
    };
    JournalPlace::on(&open, store, &pool.name).keep(&store.name).await;
    if let Err(error) = open.close().await {
        tracing::warn!(store = store.name, pool = pool.name, %error, "the pool is not closed well");
    }
}

fn say(store: &StoreSettings, url: &str, watched: &Watched) {
    let seat = store.seat.name().map(|name| format!(" --seat {name}")).unwrap_or_default();
    let store = &store.name;
    let (owner, epoch) = (&watched.machine.name, watched.epoch);
    match (&watched.silence, watched.beats) {
        (Some(silence), _) => tracing::error!(
            store,
            owner,
            epoch,
            "the owner has been silent since {}, and the store is not taken over: changes after {} may be missing, which only its pool '{}' has ({}). \
             Start larder there, and nothing is lost; if that machine is gone for good, go on without them: larder store takeover {url}{seat} --force",
            times::local(silence.since_ms),
            times::local(silence.journal.drained_ms),
            silence.journal.pool,
            waiting(&silence.journal)
        ),
        (None, true) => tracing::info!(store, owner, epoch, "stands by"),
        (None, false) => tracing::warn!(
            store,
            owner,
            epoch,
            "stands by until the owner gives the store back: it shows no sign of life, because its [[store]] has no standby = true"
        ),
    }
}

/// A store that somebody asks for, and its owner here.
pub struct Asked {
    store: String,
    owner: Owner,
}

/// The place in the pool whose journal answers for a store.
///
/// # Errors
/// The pool is not open, or has no disks.
pub fn journal_place(storage: &Storage, store: &StoreSettings, pool: &str) -> Result<JournalPlace, Failure> {
    let closed = |why: &str| {
        Failure::unavailable(format!(
            "the store '{}' answers from the journal of the pool '{pool}', which {why}",
            store.name
        ))
        .action(format!("see what is wrong with the pool: larder pool status {pool}"))
    };
    let open = storage.pool(Some(pool)).map_err(|_| closed("is not open"))?;
    let disks = open.disk_pool().ok_or_else(|| closed("has no disks"))?;
    Ok(JournalPlace::on(disks, store, pool))
}

impl Asked {
    /// Waits until somebody asks for a store that is served here (`bucket.asked_ends`).
    pub async fn any(storage: &Storage) -> Asked {
        let owners = storage.all().into_iter().filter_map(|pool| {
            let owner = pool.bucket()?.owner()?.clone();
            Some(Asked::wait(pool.name.clone(), owner))
        });
        let owners: Vec<_> = owners.map(Box::pin).collect();
        if owners.is_empty() {
            return std::future::pending().await;
        }
        futures::future::select_all(owners).await.0
    }

    async fn wait(store: String, owner: Owner) -> Asked {
        let by = owner.asked().await;
        tracing::warn!(store, by, "is asked for the store: larder ends, and gives it back");
        Asked { store, owner }
    }

    /// After the end in order (`bucket.asked_ends`).
    pub async fn given_back(&self) {
        match self.owner.await_successor(SUCCESSOR_WAIT_MAX).await {
            Some(now) => tracing::warn!(store = self.store, "{now} has the store now"),
            None => tracing::warn!(store = self.store, "the store was given back, and nobody has taken it yet"),
        }
    }
}
