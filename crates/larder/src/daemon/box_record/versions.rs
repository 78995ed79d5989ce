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
use larder_api::{Failure, FailureKind};
use larder_crypt::{Keyring, Keys, SealedStore};
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutMode, PutPayload};
use uuid::Uuid;

use super::contents::{CONTENTS_BYTES_MAX, Contents};

pub(crate) const VERSIONS_MAX: usize = 50;
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
pub(crate) struct Place {
    pub(crate) box_id: Uuid,
    pub(crate) life: Uuid,
}

impl Place {
    fn folder(self) -> Path {
        Path::from(BOXES).join(self.box_id.to_string()).join(self.life.to_string())
    }

    pub(crate) fn keyring(self) -> Path {
        self.folder().join(KEYRING)
    }

    pub(crate) fn version(self, number: u64) -> Path {
        self.folder().join(VERSIONS).join(format!("{number:020}"))
    }
}

/// A version that is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Listed {
    pub(crate) place: Place,
    pub(crate) number: u64,
    pub(crate) written_secs: i64,
}

/// The versions of all boxes, or of one; the newest first.
pub(crate) async fn list(store: &dyn ObjectStore, of: Option<Uuid>) -> Result<Vec<Listed>, Failure> {
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
pub(crate) async fn keyring(store: &dyn ObjectStore, place: Place) -> Result<Option<Keyring>, Failure> {
    match bytes(store, &place.keyring(), KEYRING_BYTES_MAX).await? {
        Some(bytes) => Keyring::decode(&bytes).map(Some).map_err(|error| failed("cannot be opened", &error)),
        None => Ok(None),
    }
}

pub(crate) async fn write_keyring(store: &dyn ObjectStore, place: Place, keyring: &Keyring) -> Result<(), Failure> {
    let put = store.put(&place.keyring(), PutPayload::from(keyring.encode())).await;
    put.map(drop).map_err(|error| failed("cannot be written", &error))
}

/// A life that was before has no keyring any more: its secrets may be older ones.
pub(crate) async fn forget_keyring(store: &dyn ObjectStore, place: Place) -> Result<(), Failure> {
    match store.delete(&place.keyring()).await {
        Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
        Err(error) => Err(failed("cannot be written", &error)),
    }
}

pub(crate) async fn read(
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
    let damaged = |why: String| Failure::new(FailureKind::Unavailable, format!("{name} is damaged: {why}"));
    let contents = Contents::decode(&found).map_err(damaged)?;
    match contents.number == number && contents.box_id == place.box_id && contents.life.id == place.life {
        true => Ok(contents),
        false => Err(damaged("it is another one".to_owned())),
    }
}

/// `false`: there is one of this number already (`versions.never_replaced`).
pub(crate) async fn write(
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
pub(crate) async fn prune(store: &dyn ObjectStore, box_id: Uuid, lives: &[Uuid]) -> Result<(), Failure> {
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
pub(crate) async fn raw(store: &dyn ObjectStore, path: &Path) -> Result<Option<Vec<u8>>, Failure> {
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
    Failure::new(FailureKind::Unavailable, format!("the record of the box {what}: {error}"))
}
