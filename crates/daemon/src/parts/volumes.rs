//! The volumes that the configuration names: made where they are missing, with the properties that
//! it says, unlocked by the keys that it names.

use std::sync::Arc;

use larder_api::{Encrypt, Failure, FailureKind, VolumeChange, VolumeStatus};
use larder_fs::{Cred, Ino, SetAttr};
use larder_keep::{Storage, Store};

use crate::{keys, owner_quotas, translate};
use larder_config::{VolumeConfig, VolumeName, check_name, machine};
use larder_document::Source;
use larder_document::things::Part;
use larder_document::{Kind, Standing, Wait};

pub struct VolumePart {
    pub storage: Arc<Storage>,
}

impl Part for VolumePart {
    /// With the numbers of the owners that its quotas name.
    type Wanted = (VolumeConfig, Result<VolumeChange, Failure>);
    const KIND: Kind = Kind::Volume;

    fn wants(source: &Source<'_>) -> Vec<(String, Self::Wanted)> {
        let wanted = |volume: &VolumeConfig| (volume.clone(), owner_quotas::numbered(&volume.change, source.config));
        source.config.volumes.iter().map(|volume| (volume.name.to_string(), wanted(volume))).collect()
    }

    async fn make(&mut self, name: &str, (volume, change): &Self::Wanted) -> Standing {
        // `handing.configured_twice`
        if self.storage.is_elsewhere(name).await {
            return Standing::waits(Wait::Elsewhere, Failure::invalid("another machine serves it"));
        }
        let made = match (&volume.key, change) {
            // It is made by `volume create --encrypt` alone: never in clear because it is not
            // there.
            (Some(key), _) => keys::unlock_configured(&self.storage, volume, key).await,
            (None, Ok(change)) => ensure(&self.storage, &volume.name, change).await,
            (None, Err(failure)) => Err(failure.clone()),
        };
        made.into()
    }

    /// Volumes are destroyed by hand alone.
    fn take_away(&mut self, _name: &str) {}
}

/// Gives a volume its properties, and makes it first if it is missing.
pub async fn ensure(storage: &Storage, name: &VolumeName, change: &VolumeChange) -> Result<(), Failure> {
    let pool = storage.pool(Some(&name.pool))?;
    if pool.is_read_only() {
        // The machine that writes the store makes volumes and sets what they are.
        return Ok(());
    }
    match pool.set(&name.volume, change).await {
        Err(failure) if failure.kind == FailureKind::NotFound => {
            create_volume(&pool, &name.volume, change, None).await.map(drop)
        }
        set => set.map(drop),
    }
}

/// A new volume belongs to whoever runs larder; like /tmp, everybody may write into its top folder
/// and nobody may remove what is another's there.
pub async fn create_volume(
    pool: &Store,
    name: &str,
    change: &VolumeChange,
    encrypt: Option<Encrypt>,
) -> Result<VolumeStatus, Failure> {
    check_name(name).map_err(Failure::invalid)?;
    let status = pool.create(name, change, encrypt).await?;
    let (uid, gid) = machine::owner();
    let set = SetAttr { mode: Some(0o1777), uid: Some(uid), gid: Some(gid), ..SetAttr::default() };
    let volume = pool.volume(name).await?;
    volume
        .setattr(&Cred::root(), Ino::ROOT, set)
        .await
        .map_err(|e| translate::volume_error(format_args!("the top folder of '{}/{name}'", pool.name), &e))?;
    Ok(status)
}
