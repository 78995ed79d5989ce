//! The versions of boxes in a store, beside the registry of its volumes:
//!
//! ```text
//! boxes/BOX/LIFE/keyring.json      what opens them: a keyring as volumes have (FORMAT.md)
//! boxes/BOX/LIFE/versions/NUMBER   a version, sealed with it; twenty digits
//! ```
//!
//! - `versions.never_replaced`: a version is put where nothing is, and is whole or not there.
//! - `versions.life_writes_alone`: a life of a box writes below its own name. So a machine that was overtaken, and one that was the
//!   box before, never write over what the box writes now. All lives of a box have the same keys.
//! - `versions.bounded`: a box has at most [`VERSIONS_MAX`] of all its lives in a store.

use std::sync::Arc;

use futures::TryStreamExt;
use larder_api::Failure;
use larder_crypt::{Keyring, Keys, SealedStore};
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutMode, PutPayload};
use uuid::Uuid;

use super::contents::{CONTENTS_BYTES_MAX, Contents};

pub const VERSIONS_MAX: usize = 50;
const BOXES: &str = "boxes";
const VERSIONS: &str = "versions";
const KEYRING: &str = "keyring.json";
const KEYRING_BYTES_MAX: u64 = 1 << 20;
/// With the frames of the encryption.
const SEALED_BYTES_MAX: u64 = 2 * CONTENTS_BYTES_MAX as u64;
/// Objects of boxes that are looked at in one store.
const LISTED_MAX: usize = 16_384;

/// Where a life of a box has its versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    pub box_id: Uuid,
    pub life: Uuid,
}

impl Place {
    fn folder(self) -> Path {
        Path::from(BOXES).join(self.box_id.to_string()).join(self.life.to_string())
    }

    pub fn keyring(self) -> Path {
        self.folder().join(KEYRING)
    }

    pub fn version(self, number: u64) -> Path {
        self.folder().join(VERSIONS).join(format!("{number:020}"))
    }
}

/// A version that is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listed {
    pub place: Place,
    pub number: u64,
    pub written_secs: i64,
}

/// The versions of all boxes, or of one; the newest first.
pub async fn list(store: &dyn ObjectStore, of: Option<Uuid>) -> Result<Vec<Listed>, Failure> {
    let prefix = of.map_or_else(|| Path::from(BOXES), |id| Path::from(BOXES).join(id.to_string()));
    let mut objects = store.list(Some(&prefix));
    let (mut found, mut seen) = (Vec::new(), 0);
    while let Some(object) = objects.try_next().await.map_err(|error| failed("cannot be listed", &error))? {
        seen += 1;
        if seen > LISTED_MAX {
            break;
        }
        if let Some((place, number)) = parse(&object.location) {
            found.push(Listed { place, number, written_secs: object.last_modified.timestamp() });
        }
    }
    found.sort_by_key(|one| std::cmp::Reverse((one.number, one.written_secs)));
    Ok(found)
}

fn parse(path: &Path) -> Option<(Place, u64)> {
    let parts: Vec<String> = path.parts().map(|part| part.as_ref().to_owned()).collect();
    let [boxes, box_id, life, versions, number] = parts.as_slice() else { return None };
    let place = Place { box_id: box_id.parse().ok()?, life: life.parse().ok()? };
    (boxes == BOXES && versions == VERSIONS).then_some((place, number.parse().ok()?))
}

/// `None`: the box of this life has none here.
pub async fn keyring(store: &dyn ObjectStore, place: Place) -> Result<Option<Keyring>, Failure> {
    match bytes(store, &place.keyring(), KEYRING_BYTES_MAX).await? {
        Some(bytes) => Keyring::decode(&bytes).map(Some).map_err(|error| failed("cannot be opened", &error)),
        None => Ok(None),
    }
}

pub async fn write_keyring(store: &dyn ObjectStore, place: Place, keyring: &Keyring) -> Result<(), Failure> {
    let put = store.put(&place.keyring(), PutPayload::from(keyring.encode())).await;
    put.map(drop).map_err(|error| failed("cannot be written", &error))
}

/// A life that was before has no keyring any more: its secrets may be older ones.
pub async fn forget_keyring(store: &dyn ObjectStore, place: Place) -> Result<(), Failure> {
    match store.delete(&place.keyring()).await {
        Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
        Err(error) => Err(failed("cannot be written", &error)),
    }
}

pub async fn read(
    store: &Arc<dyn ObjectStore>,
    (place, number): (Place, u64),
    keys: &Arc<Keys>,
) -> Result<Contents, Failure> {
    let sealed = SealedStore::new(Arc::clone(store), place.folder(), Arc::clone(keys));
    let name = format!("version {number} of the box");
    let found = bytes(&sealed, &place.version(number), CONTENTS_BYTES_MAX as u64).await?;
    let found = found.ok_or_else(|| {
        Failure::not_found(format!("there is no {name}")).action("see which there are with: larder config history")
    })?;
    let damaged = |why: String| Failure::unavailable(format!("{name} is damaged: {why}"));
    let contents = Contents::decode(&found).map_err(damaged)?;
    match contents.number == number && contents.box_id == place.box_id && contents.life.id == place.life {
        true => Ok(contents),
        false => Err(damaged("it is another one".to_owned())),
    }
}

/// `false`: there is one of this number already (`versions.never_replaced`).
pub async fn write(
    store: &Arc<dyn ObjectStore>,
    place: Place,
    keys: &Arc<Keys>,
    contents: &Contents,
) -> Result<bool, Failure> {
    let sealed = SealedStore::new(Arc::clone(store), place.folder(), Arc::clone(keys));
    let payload = PutPayload::from(contents.encode()?);
    match sealed.put_opts(&place.version(contents.number), payload, PutMode::Create.into()).await {
        Ok(_) => Ok(true),
        Err(object_store::Error::AlreadyExists { .. }) => Ok(false),
        Err(error) => Err(failed("cannot be written", &error)),
    }
}

/// Removes what is beyond [`VERSIONS_MAX`], of these lives.
pub async fn prune(store: &dyn ObjectStore, box_id: Uuid, lives: &[Uuid]) -> Result<(), Failure> {
    let all = list(store, Some(box_id)).await?;
    let own = all.into_iter().filter(|one| lives.contains(&one.place.life));
    for old in own.skip(VERSIONS_MAX) {
        match store.delete(&old.place.version(old.number)).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => {}
            Err(error) => return Err(failed("cannot be written", &error)),
        }
    }
    Ok(())
}

/// The bytes of an object as it lies there.
pub async fn raw(store: &dyn ObjectStore, path: &Path) -> Result<Option<Vec<u8>>, Failure> {
    bytes(store, path, SEALED_BYTES_MAX).await
}

async fn bytes(store: &dyn ObjectStore, path: &Path, max: u64) -> Result<Option<Vec<u8>>, Failure> {
    let got = match store.get(path).await {
        Ok(got) => got,
        Err(object_store::Error::NotFound { .. }) => return Ok(None),
        Err(error) => return Err(failed("cannot be read", &error)),
    };
    if got.meta.size > max {
        return Err(failed("cannot be read", &format_args!("{path} has {} bytes", got.meta.size)));
    }
    got.bytes().await.map(|bytes| Some(bytes.into())).map_err(|error| failed("cannot be read", &error))
}

fn failed(what: &str, error: &dyn std::fmt::Display) -> Failure {
    Failure::unavailable(format!("the record of the box {what}: {error}"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use object_store::memory::InMemory;

    use super::super::contents::{Gathered, Writer};
    use super::super::own::Own;
    use super::*;
    use larder_document::NtHashes;

    fn version(own: &Own, data: &std::path::Path, number: u64) -> Contents {
        std::fs::write(data.join("larder.toml"), format!("# {number}\n")).unwrap();
        let (gathered, _) = Gathered::read(data, &data.join("larder.toml"), NtHashes::Kept).unwrap();
        let by = Writer {
            machine: "nas".to_owned(),
            box_name: "nas".to_owned(),
            box_id: own.id,
            life: own.life.clone(),
            former: own.former.clone(),
            owners: own.owners.clone(),
        };
        gathered.into_version(number, 7, by, Vec::new())
    }

    /// `versions.never_replaced`, `versions.bounded`
    #[tokio::test]
    async fn versions_are_sealed_bound_to_their_place_and_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let (own, other) = (Own::create().unwrap(), Own::create().unwrap());
        let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
        let place = Place { box_id: own.id, life: own.life.id };
        let keys = own.keys().unwrap();
        write_keyring(&*store, place, own.keyring()).await.unwrap();
        for number in 1..=53 {
            assert!(write(&store, place, &keys, &version(&own, folder.path(), number)).await.unwrap());
        }
        assert!(!write(&store, place, &keys, &version(&own, folder.path(), 7)).await.unwrap(), "there is one");
        let of_other = Place { box_id: other.id, life: other.life.id };
        assert!(write(&store, of_other, &other.keys().unwrap(), &version(&other, folder.path(), 1)).await.unwrap());
        prune(&*store, own.id, &[own.life.id]).await.unwrap();
        let listed = list(&*store, Some(own.id)).await.unwrap();
        let numbers: Vec<u64> = listed.iter().map(|one| one.number).collect();
        assert_eq!(numbers, (4..=53).rev().collect::<Vec<u64>>());
        assert_eq!(list(&*store, None).await.unwrap().len(), 51);
        assert_eq!(read(&store, (place, 53), &keys).await.unwrap().config().unwrap(), "# 53\n");
        let sealed = raw(&*store, &place.version(53)).await.unwrap().unwrap();
        assert!(!sealed.windows(6).any(|bytes| bytes == b"# 53\\n"));
        // What is put elsewhere, or changed, does not open.
        let forge = async |to: u64, bytes: Vec<u8>| {
            store.put(&place.version(to), bytes.into()).await.unwrap();
            read(&store, (place, to), &keys).await
        };
        assert!(forge(4, sealed.clone()).await.is_err());
        for at in [0, 20, sealed.len() - 1] {
            let mut bytes = sealed.clone();
            bytes[at] ^= 1;
            assert!(forge(53, bytes).await.is_err(), "{at}");
        }
        assert!(read(&store, (place, 1), &keys).await.unwrap_err().message.contains("no version 1"));
    }

    /// Golden: the document of a version, as FORMAT.md has it.
    #[test]
    fn a_version_of_format_1_stays_readable() {
        let golden = include_str!("golden/version.json");
        let read = Contents::decode(golden.as_bytes()).unwrap();
        assert_eq!((read.number, read.life.number, read.box_name.as_str()), (12, 2, "The Pantry"));
        assert_eq!(read.config().unwrap(), "# mine\n");
        assert_eq!(String::from_utf8(read.encode().unwrap()).unwrap(), golden.trim_end());
    }
}
