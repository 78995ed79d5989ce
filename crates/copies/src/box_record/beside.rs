//! The record of the box that sends into a replica, beside that replica.
//!
//! ```text
//! replica-boxes/VOLUME/NUMBER.json   a version as its sender had it sealed, with the keyring that opens it; twenty digits, counted here
//! replica-boxes/VOLUME/box.json      the only one that an older larder kept
//! ```
//!
//! - `sent.append_only`: a sender that was taken over adds versions, and takes none away. What is kept goes by the receiver's days:
//!   the newest version, and the first of each of the last [`DAYS_KEPT`] days on which one came.
//! - `sent.one_box`: what is beside a replica is of one box. A version of another box, of another signer, or older than the newest
//!   is refused.

use std::collections::BTreeMap;

use futures::TryStreamExt;
use larder_api::{Failure, SentRecord};
use larder_base::hex;
use larder_crypt::Keyring;
use larder_keep::Store;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutMode, PutPayload};

/// What fits into one request of the API, with room for the rest of it.
pub(super) const SEALED_BYTES_MAX: usize = 7 << 20;
/// Days on which a version came whose first one is kept.
const DAYS_KEPT: usize = 30;
const BYTES_MAX: u64 = 16 << 20;
const DAY_SECS: i64 = 86_400;

/// A version that is kept beside a replica.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Kept {
    /// Counted by the receiver; 0: the one of an older larder.
    number: u64,
    path: Path,
    /// The day on which it came, of the receiver.
    day: i64,
}

/// The place of the records beside a replica.
async fn folder_of(pool: &Store, volume: &str) -> Result<Path, Failure> {
    let infos = pool.registry.list().await.map_err(|error| pool.failure(volume, &error))?;
    let info = infos.into_iter().find(|info| info.name == volume);
    let info = info.ok_or_else(|| pool.failure(volume, &larder_fs::FsError::NotFound))?;
    Ok(Path::from("replica-boxes").join(info.id.to_string()))
}

fn unavailable(error: &dyn std::fmt::Display) -> Failure {
    Failure::unavailable(format!("the record of the sender: {error}"))
}

/// The newest first.
async fn list(store: &dyn ObjectStore, folder: &Path) -> Result<Vec<Kept>, Failure> {
    let objects: Vec<_> = store.list(Some(folder)).try_collect().await.map_err(|error| unavailable(&error))?;
    let kept = objects.into_iter().filter_map(|object| {
        let number = match object.location.filename()? {
            "box.json" => 0,
            name => name.strip_suffix(".json")?.parse().ok()?,
        };
        Some(Kept { number, day: object.last_modified.timestamp().div_euclid(DAY_SECS), path: object.location })
    });
    let mut kept: Vec<Kept> = kept.collect();
    kept.sort_by_key(|one| std::cmp::Reverse(one.number));
    Ok(kept)
}

async fn read(store: &dyn ObjectStore, path: &Path) -> Result<SentRecord, Failure> {
    let got = store.get(path).await.map_err(|error| unavailable(&error))?;
    if got.meta.size > BYTES_MAX {
        return Err(unavailable(&format_args!("it has {} bytes", got.meta.size)));
    }
    let bytes = got.bytes().await.map_err(|error| unavailable(&error))?;
    serde_json::from_slice(&bytes).map_err(|error| unavailable(&error))
}

/// Those that go (`sent.append_only`); `all` has the newest first.
fn superseded(all: &[Kept]) -> Vec<&Kept> {
    // The first of a day is the last to be met.
    let firsts: BTreeMap<i64, u64> = all.iter().map(|one| (one.day, one.number)).collect();
    let stay: Vec<u64> = firsts.into_values().rev().take(DAYS_KEPT).collect();
    all.iter().skip(1).filter(|one| !stay.contains(&one.number)).collect()
}

/// Whether `sent` may follow `newest`; `false`: it is there already (`sent.one_box`).
fn follows(newest: &SentRecord, sent: &SentRecord) -> Result<bool, String> {
    if newest.box_id != sent.box_id {
        return Err(format!("it is of another box than the ones that are here, which are of {}", newest.box_id));
    }
    let ring = |text: &str| Keyring::decode(text.as_bytes()).map_err(|error| error.to_string());
    let (own, came) = (ring(&newest.keyring)?, ring(&sent.keyring)?);
    own.renewed(&came).map_err(|error| error.to_string())?;
    if (sent.number, came.changes()) < (newest.number, own.changes()) || came.changes() < own.changes() {
        return Err(format!("it is older than number {}, which is here", newest.number));
    }
    Ok(sent != newest)
}

/// Keeps what a sender sent.
pub(crate) async fn keep_beside(pool: &Store, volume: &str, sent: &SentRecord) -> Result<(), Failure> {
    let wrong = |why: String| Failure::invalid(format!("this is no record of a box: {why}"));
    Keyring::decode(sent.keyring.as_bytes()).map_err(|error| wrong(error.to_string()))?;
    if hex::decode(&sent.sealed).is_none_or(|sealed| sealed.len() > SEALED_BYTES_MAX) {
        return Err(wrong("it is too large, or has no digits".to_owned()));
    }
    if !pool.is_replica(volume).await? {
        return Err(Failure::invalid(format!("'{}/{volume}' is no replica", pool.name)));
    }
    add(&*pool.store(), &folder_of(pool, volume).await?, sent).await
}

async fn add(store: &dyn ObjectStore, folder: &Path, sent: &SentRecord) -> Result<(), Failure> {
    let all = list(store, folder).await?;
    for one in &all {
        // One that is damaged tells nothing.
        let Ok(newest) = read(store, &one.path).await else { continue };
        let refused = |why: String| Failure::denied(format!("this record of a box is not taken: {why}"));
        if !follows(&newest, sent).map_err(refused)? {
            return Ok(());
        }
        break;
    }
    let number = all.first().map_or(0, |newest| newest.number) + 1;
    let text = serde_json::to_vec(sent).map_err(|error| Failure::internal(error.to_string()))?;
    let path = folder.clone().join(format!("{number:020}.json"));
    let put = store.put_opts(&path, PutPayload::from(text), PutMode::Create.into()).await;
    put.map_err(|error| unavailable(&error))?;
    for one in superseded(&list(store, folder).await?) {
        match store.delete(&one.path).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => {}
            Err(error) => return Err(unavailable(&error)),
        }
    }
    Ok(())
}

/// The versions beside a replica, the newest first, and what there is to say of those that cannot be read.
pub(super) async fn read_beside(pool: &Store, volume: &str) -> Result<(Vec<SentRecord>, Vec<String>), Failure> {
    let store = pool.store();
    let (mut found, mut notes) = (Vec::new(), Vec::new());
    for one in list(&*store, &folder_of(pool, volume).await?).await? {
        match read(&*store, &one.path).await {
            Ok(sent) => found.push(sent),
            Err(failure) => notes.push(failure.message),
        }
    }
    match (found.is_empty(), notes.first()) {
        (true, None) => Err(Failure::not_found(format!("no box has sent its record to '{}/{volume}'", pool.name))
            .action("a larder that replicates into it sends one with the next snapshot")),
        (true, Some(why)) => Err(Failure::unavailable(why.clone())),
        (false, _) => Ok((found, notes)),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use larder_api::FailureKind;
    use larder_crypt::{Cipher, Secret, Work};
    use object_store::memory::InMemory;

    use super::*;

    fn ring() -> Keyring {
        let secret = Secret::KeyFile([7; 32].to_vec().into());
        let work = Work { memory_kib: 8, passes: 1, lanes: 1 };
        Keyring::create(Cipher::Aes256Gcm, "machine", &secret, work, 1).unwrap().0
    }

    fn sent(ring: &Keyring, box_id: &str, number: u64) -> SentRecord {
        let keyring = String::from_utf8(ring.encode()).unwrap();
        let (volume, life) = ("tank/files".to_owned(), "x".to_owned());
        SentRecord { volume, box_id: box_id.to_owned(), life, number, keyring, sealed: format!("{number:02x}") }
    }

    async fn numbers(store: &InMemory, folder: &Path) -> Vec<u64> {
        let mut found = Vec::new();
        for one in list(store, folder).await.unwrap() {
            found.push(read(store, &one.path).await.unwrap().number);
        }
        found
    }

    /// `sent.append_only`, `sent.one_box`
    #[tokio::test]
    async fn a_sender_adds_versions_of_its_box_and_takes_none_away() {
        let (store, folder, ring, other) = (InMemory::new(), Path::from("replica-boxes/v"), ring(), self::ring());
        // As an older larder left it.
        let old = serde_json::to_vec(&sent(&ring, "a", 3)).unwrap();
        store.put(&folder.clone().join("box.json"), PutPayload::from(old)).await.unwrap();
        for number in [4, 5, 5, 6] {
            add(&store, &folder, &sent(&ring, "a", number)).await.unwrap();
        }
        assert_eq!(numbers(&store, &folder).await, [6, 3], "the newest, and the first of the day");
        for (what, refused) in
            [("another box", sent(&ring, "b", 7)), ("not signed", sent(&other, "a", 7)), ("older", sent(&ring, "a", 5))]
        {
            let why = add(&store, &folder, &refused).await.unwrap_err();
            assert_eq!(why.kind, FailureKind::Denied, "{what}: {}", why.message);
        }
        assert_eq!(numbers(&store, &folder).await, [6, 3]);
    }

    #[test]
    fn the_first_version_of_each_of_the_last_days_stays() {
        let kept = |number: u64, day: i64| Kept { number, day, path: Path::from(number.to_string()) };
        let check = |all: &[(u64, i64)], gone: &[u64]| {
            let all: Vec<Kept> = all.iter().map(|&(number, day)| kept(number, day)).collect();
            assert_eq!(superseded(&all).iter().map(|one| one.number).collect::<Vec<_>>(), gone, "{all:?}");
        };
        check(&[], &[]);
        check(&[(1, 5)], &[]);
        check(&[(4, 5), (3, 5), (2, 5), (1, 5)], &[3, 2]);
        check(&[(5, 7), (4, 6), (3, 6), (2, 5), (1, 5)], &[4, 2]);
        let days: Vec<(u64, i64)> = (1..=DAYS_KEPT as u64 + 2).rev().map(|day| (day, day as i64)).collect();
        check(&days, &[2, 1]);
    }
}
