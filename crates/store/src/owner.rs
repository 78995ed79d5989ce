//! The owner of a store: one machine at a time, written in the store itself.
//!
//! `owner.json` is replaced by conditional writes alone. Each that takes the store raises its epoch; giving it back when the daemon
//! stops only says so. No heartbeat is written, so that an idle store costs nothing: whether a machine that has not given its store
//! back is gone for good, a person has to say.
//!
//! - `owner.asks_first`: a store that another machine has not given back is not taken unasked.
//! - `owner.log_fences`: this record is for people and for deletions. That an owner who lost the store acknowledges nothing more is
//!   the log's doing ([`crate::log`]), whatever this record says.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutMode, PutPayload, UpdateVersion};
use serde::{Deserialize, Serialize};

use crate::BucketError;
use crate::names::OWNER;
use crate::settings::BucketUrl;

const FORMAT: u32 = 1;
const RECORD_BYTES_MAX: u64 = 64 << 10;
const TRIES_MAX: usize = 16;

/// A machine that serves a store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Its name, for people.
    pub name: String,
    /// Tells it from all others, with the data folder of its daemon.
    pub id: String,
}

/// `owner.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnerRecord {
    format: u32,
    /// How often the store was taken.
    pub epoch: u64,
    /// Who has it, or had it last.
    pub machine: Machine,
    /// When it was taken, in milliseconds of that machine's clock since 1970. Nothing but words depends on it.
    pub taken_ms: u64,
    /// It was given back.
    pub released: bool,
}

/// What this process knows of its ownership.
#[derive(Clone)]
pub struct Owner {
    store: Arc<dyn ObjectStore>,
    url: BucketUrl,
    record: OwnerRecord,
}

impl Owner {
    /// Takes the store. With `take_over` also from a machine that has not given it back.
    pub async fn take(
        store: Arc<dyn ObjectStore>,
        url: &BucketUrl,
        machine: Machine,
        take_over: bool,
    ) -> Result<Owner, BucketError> {
        for _ in 0..TRIES_MAX {
            let (old, version) = read(&*store).await?.unzip();
            let epoch = match &old {
                Some(old) if !old.released && old.machine.id != machine.id && !take_over => {
                    return Err(BucketError::Owned {
                        url: url.to_string(),
                        machine: old.machine.name.clone(),
                        since: ago(old.taken_ms),
                    });
                }
                Some(old) => old.epoch.saturating_add(1),
                None => 1,
            };
            let record =
                OwnerRecord { format: FORMAT, epoch, machine: machine.clone(), taken_ms: now_ms(), released: false };
            if write(&*store, &record, version).await? {
                return Ok(Owner { store, url: url.clone(), record });
            }
            // Somebody else was quicker. Whoever that is has it now, and is asked about as any other.
        }
        Err(BucketError::Invalid(format!("others keep taking the store {url}")))
    }

    /// How often the store was taken.
    pub fn epoch(&self) -> u64 {
        self.record.epoch
    }

    /// Fails if another has taken the store.
    pub async fn verify(&self) -> Result<(), BucketError> {
        let now = read(&*self.store).await?.map(|(now, _)| now);
        match now {
            Some(now) if now.epoch == self.record.epoch && now.machine == self.record.machine => Ok(()),
            now => Err(BucketError::Lost {
                url: self.url.to_string(),
                machine: now.map_or_else(|| "nobody: its owner.json is gone".to_owned(), |now| now.machine.name),
            }),
        }
    }

    /// Says that another machine may have it.
    pub async fn release(&self) -> Result<(), BucketError> {
        let Some((now, version)) = read(&*self.store).await? else { return Ok(()) };
        if now.epoch == self.record.epoch && now.machine == self.record.machine {
            write(&*self.store, &OwnerRecord { released: true, ..now }, Some(version)).await?;
        }
        Ok(())
    }
}

async fn read(store: &dyn ObjectStore) -> Result<Option<(OwnerRecord, UpdateVersion)>, BucketError> {
    let failed = |source| BucketError::Store { what: format!("reading {OWNER}"), source };
    let got = match store.get(&Path::from(OWNER)).await {
        Ok(got) => got,
        Err(object_store::Error::NotFound { .. }) => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    let damaged = |why: String| BucketError::Damaged(OWNER.to_owned(), why);
    if got.meta.size > RECORD_BYTES_MAX {
        return Err(damaged("it is longer than such a record can be".to_owned()));
    }
    let version = UpdateVersion { e_tag: got.meta.e_tag.clone(), version: got.meta.version.clone() };
    let bytes = got.bytes().await.map_err(failed)?;
    let record: OwnerRecord = serde_json::from_slice(&bytes).map_err(|error| damaged(error.to_string()))?;
    if record.format != FORMAT {
        return Err(damaged(format!("it has format {}, this larder knows {FORMAT}", record.format)));
    }
    Ok(Some((record, version)))
}

/// Whether the record is as given now; not if somebody else wrote in between.
async fn write(store: &dyn ObjectStore, record: &OwnerRecord, old: Option<UpdateVersion>) -> Result<bool, BucketError> {
    let text =
        serde_json::to_vec_pretty(record).map_err(|error| BucketError::Damaged(OWNER.into(), error.to_string()))?;
    let mode = old.map_or(PutMode::Create, PutMode::Update);
    match store.put_opts(&Path::from(OWNER), PutPayload::from(text), mode.into()).await {
        Ok(_) => Ok(true),
        Err(object_store::Error::AlreadyExists { .. } | object_store::Error::Precondition { .. }) => Ok(false),
        Err(source) => Err(BucketError::Store { what: format!("writing {OWNER}"), source }),
    }
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

fn ago(then_ms: u64) -> String {
    match Duration::from_millis(now_ms().saturating_sub(then_ms)).as_secs() {
        secs @ 0..120 => format!("{secs} seconds ago"),
        secs @ 120..7200 => format!("{} minutes ago", secs / 60),
        secs @ 7200..172_800 => format!("{} hours ago", secs / 3600),
        secs => format!("{} days ago", secs / 86400),
    }
}
