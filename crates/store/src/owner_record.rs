//! `owner.json`, and `owners/NAME.json` of other seats: who has a store. Read whole, and replaced by conditional writes alone
//! (FORMAT.md, "Buckets").

use std::time::{Duration, SystemTime};

use futures::TryStreamExt;
use larder_base::{Seat, boxed};
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutMode, PutPayload, UpdateVersion};
use serde::{Deserialize, Serialize};

use crate::BucketError;
use crate::names;
use crate::settings::BucketUrl;

const FORMAT: u32 = 1;
const RECORD_BYTES_MAX: u64 = 64 << 10;
/// More seats at a store are not listed.
const SEATS_MAX: usize = 256;

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
    pub(crate) format: u32,
    /// How often the store was taken.
    pub epoch: u64,
    /// Who has it, or had it last.
    pub machine: Machine,
    /// When it was taken, in milliseconds of that machine's clock since 1970. Nothing but words depends on it.
    pub taken_ms: u64,
    /// It was given back.
    pub released: bool,
    /// How often the owner has renewed the record. `None`: it does not, and its silence says nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beat: Option<u64>,
    /// The owner answers from a journal of its own, which only its disks have (`owner.journal_is_named`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub journal: Option<JournalMark>,
    /// The owner has not yet waited until no earlier one answers any more (`owner.wait_is_inherited`).
    #[serde(default, skip_serializing_if = "is_false")]
    pub waits: bool,
    /// Somebody asks the owner to end in order and to give the store back (`owner.asked_in_the_record`): their name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<String>,
}

/// The journal that an owner answers from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JournalMark {
    /// The pool that has it: its name and its id.
    pub pool: String,
    /// See `pool`.
    pub pool_id: String,
    /// The newest life of that pool when this was written, 16 hexadecimal digits: disks of it that do not know this life have
    /// another journal. Empty: not known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub pool_life: String,
    /// Everything acknowledged before this moment is in the bucket, in milliseconds of that machine's clock since 1970.
    pub drained_ms: u64,
    /// Counts renewals, so that each differs from the one before (`owner.each_renewal_differs`).
    #[serde(default)]
    pub renewed: u64,
    /// The name of its machine, for people.
    #[serde(default)]
    pub machine: String,
    /// Log entries that were not in the bucket at this renewal, and their bytes.
    #[serde(default)]
    pub entries: u64,
    /// See `entries`.
    #[serde(default)]
    pub bytes: u64,
    /// The bucket has all that was ever answered from the journal, and nothing is answered from it while the record says so
    /// (`owner.said_before_early`).
    #[serde(default)]
    pub at_rest: bool,
    /// A person has said that the store is served without it.
    #[serde(default)]
    pub given_up: bool,
}

impl JournalMark {
    /// Whether a machine without this journal may lack changes that were acknowledged.
    pub fn may_miss(&self) -> bool {
        !self.at_rest
    }
}

impl OwnerRecord {
    /// The record of a machine that takes the store from `old`, and inherits what is not settled yet.
    pub(crate) fn taken(old: Option<OwnerRecord>, machine: Machine, is_forced: bool, waits: bool) -> OwnerRecord {
        let epoch = old.as_ref().map_or(1, |old| old.epoch.saturating_add(1));
        let journal = old.and_then(|old| {
            let mark = old.journal.filter(JournalMark::may_miss)?;
            let machine = if mark.machine.is_empty() { old.machine.name } else { mark.machine.clone() };
            Some(JournalMark { given_up: mark.given_up || is_forced, machine, ..mark })
        });
        let (taken_ms, released, beat, asked) = (now_ms(), false, None, None);
        OwnerRecord { format: FORMAT, epoch, machine, taken_ms, released, beat, journal, waits, asked }
    }
}

fn is_false(value: &bool) -> bool {
    !value
}

/// The record of the first seat as it is now.
#[boxed]
pub async fn look(store: &dyn ObjectStore) -> Result<Option<OwnerRecord>, BucketError> {
    look_at(store, &Seat::default()).await
}

/// The record of a seat as it is now.
#[boxed]
pub async fn look_at(store: &dyn ObjectStore, seat: &Seat) -> Result<Option<OwnerRecord>, BucketError> {
    Ok(read(store, &names::owner(seat)).await?.map(|(record, _)| record))
}

/// The owners of all seats.
#[boxed]
pub async fn look_at_all(store: &dyn ObjectStore) -> Result<Vec<(Seat, OwnerRecord)>, BucketError> {
    let listed: Vec<_> = store
        .list(Some(&names::owners()))
        .try_collect()
        .await
        .map_err(|source| BucketError::Store { what: "listing the owners".to_owned(), source })?;
    let others = listed.iter().filter_map(|object| names::parse_owner(&object.location)).take(SEATS_MAX);
    let mut found = Vec::new();
    for seat in std::iter::once(Seat::default()).chain(others) {
        if let Some(record) = look_at(store, &seat).await? {
            found.push((seat, record));
        }
    }
    Ok(found)
}

/// A store, and the seat at it unless that is the first.
pub(crate) fn worded(url: &BucketUrl, at: &Path) -> String {
    names::parse_owner(at).map_or_else(|| url.to_string(), |seat| format!("{url} (seat '{seat}')"))
}

pub(crate) async fn read(
    store: &dyn ObjectStore,
    at: &Path,
) -> Result<Option<(OwnerRecord, UpdateVersion)>, BucketError> {
    Ok(read_dated(store, at).await?.map(|(record, version, _)| (record, version)))
}

/// With the moment at which it was written, in milliseconds of the bucket's clock since 1970.
pub(crate) async fn read_dated(
    store: &dyn ObjectStore,
    at: &Path,
) -> Result<Option<(OwnerRecord, UpdateVersion, u64)>, BucketError> {
    let failed = |source| BucketError::Store { what: format!("reading {at}"), source };
    let got = match store.get(at).await {
        Ok(got) => got,
        Err(object_store::Error::NotFound { .. }) => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    let damaged = |why: String| BucketError::Damaged(at.to_string(), why);
    if got.meta.size > RECORD_BYTES_MAX {
        return Err(damaged("it is longer than such a record can be".to_owned()));
    }
    let version = UpdateVersion { e_tag: got.meta.e_tag.clone(), version: got.meta.version.clone() };
    let written_ms = u64::try_from(got.meta.last_modified.timestamp_millis()).unwrap_or(0);
    let bytes = got.bytes().await.map_err(failed)?;
    let record: OwnerRecord = serde_json::from_slice(&bytes).map_err(|error| damaged(error.to_string()))?;
    if record.format != FORMAT {
        return Err(damaged(format!("it has format {}, this larder knows {FORMAT}", record.format)));
    }
    Ok(Some((record, version, written_ms)))
}

/// The version of the record as it is now; `None`: somebody else wrote in between.
pub(crate) async fn write(
    store: &dyn ObjectStore,
    at: &Path,
    record: &OwnerRecord,
    old: Option<UpdateVersion>,
) -> Result<Option<UpdateVersion>, BucketError> {
    let text =
        serde_json::to_vec_pretty(record).map_err(|error| BucketError::Damaged(at.to_string(), error.to_string()))?;
    let mode = old.map_or(PutMode::Create, PutMode::Update);
    match store.put_opts(at, PutPayload::from(text), mode.into()).await {
        Ok(put) => Ok(Some(UpdateVersion { e_tag: put.e_tag, version: put.version })),
        Err(object_store::Error::AlreadyExists { .. } | object_store::Error::Precondition { .. }) => Ok(None),
        // The record that was to be replaced is gone: some servers say so this way.
        Err(object_store::Error::NotFound { .. }) => Ok(None),
        Err(source) => Err(BucketError::Store { what: format!("writing {at}"), source }),
    }
}

pub(crate) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

pub(crate) fn ago(then_ms: u64) -> String {
    match Duration::from_millis(now_ms().saturating_sub(then_ms)).as_secs() {
        secs @ 0..120 => format!("{secs} seconds ago"),
        secs @ 120..7200 => format!("{} minutes ago", secs / 60),
        secs @ 7200..172_800 => format!("{} hours ago", secs / 3600),
        secs => format!("{} days ago", secs / 86400),
    }
}
