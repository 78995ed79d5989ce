//! The record of a box beside a replica of its volumes, on another machine.
//!
//! - `sent.recovery_key_alone`: the other machine may be anybody's, and guesses as long as it likes. So the recovery key opens what
//!   is sent, and passwords, which people choose, do not.

use std::sync::Arc;

use larder_api::{Done, Failure, SentRecord};
use larder_base::hex;
use larder_crypt::Keyring;
use object_store::memory::InMemory;
use object_store::{ObjectStore, ObjectStoreExt, PutPayload};

use super::beside::{SEALED_BYTES_MAX, keep_beside, read_beside};
use super::found::{OpenedBox, unlocked};
use super::versions::{self, Place};
use super::{BoxRecord, own};
use crate::replication::Receiver;
use larder_config::VolumeName;
use larder_keep::Store;

impl BoxRecord {
    /// Sends the newest version of this box to the machine that keeps a replica of one of its volumes, if it has not had it.
    /// A machine with an older larder takes none.
    pub(crate) async fn send(&self, volume: &VolumeName, receiver: &Receiver) {
        // The pools of this box have its record.
        let Receiver::Daemon(_, replica, _) = receiver else { return };
        match self.to_send(volume).await {
            Ok(Some(sent)) => match receiver.keep_record(&sent).await {
                Ok(Done {}) => drop(self.sent.lock().insert((volume.clone(), replica.clone()), sent.number)),
                Err(failure) => {
                    tracing::debug!("the record of this box was not taken by {replica}: {}", failure.message)
                }
            },
            Ok(None) => {}
            Err(failure) => tracing::debug!("the record of this box was not sent: {}", failure.message),
        }
    }

    async fn to_send(&self, volume: &VolumeName) -> Result<Option<SentRecord>, Failure> {
        let own = self.own.lock().await.clone();
        if own.newest == 0 || self.sent.lock().iter().any(|((of, _), number)| of == volume && *number == own.newest) {
            return Ok(None);
        }
        let place = Place { box_id: own.id, life: own.life.id };
        let store = self.storage.pool(Some(&volume.pool))?.store();
        let Some(sealed) = versions::raw(&*store, &place.version(own.newest)).await? else { return Ok(None) };
        if sealed.len() > SEALED_BYTES_MAX {
            return Err(Failure::invalid(format!("it has {} bytes, more than fit into a request", sealed.len())));
        }
        Ok(Some(SentRecord {
            volume: volume.to_string(),
            box_id: own.id.to_string(),
            life: own.life.id.to_string(),
            number: own.newest,
            keyring: String::from_utf8_lossy(&own.keyring_for_others()?.encode()).into_owned(),
            sealed: hex::encode(&sealed),
        }))
    }

    pub async fn receive(&self, name: &str, sent: SentRecord) -> Result<(), Failure> {
        let (pool, volume) = self.storage.named(name)?;
        keep_beside(&pool, &volume, &sent).await
    }
}

/// The version of that number beside a replica, or the newest that opens; with notes on those that do not.
///
/// # Errors
/// None opens with the secret.
pub async fn opened_beside(
    pool: &Store,
    volume: &str,
    number: Option<u64>,
    secret: &Arc<larder_crypt::Secret>,
) -> Result<(SentRecord, OpenedBox, Vec<String>), Failure> {
    let (found, mut notes) = read_beside(pool, volume).await?;
    let numbers: Vec<String> = found.iter().map(|one| one.number.to_string()).collect();
    let mut refused = None;
    for sent in found.into_iter().filter(|one| number.is_none_or(|number| one.number == number)) {
        match open_sent(&sent, secret).await {
            Ok(opened) => return Ok((sent, opened, notes)),
            Err(failure) => {
                notes.push(format!("version {} does not open: {}", sent.number, failure.message));
                refused.get_or_insert(failure);
            }
        }
    }
    Err(refused.unwrap_or_else(|| {
        Failure::not_found("there is no such version beside the replica")
            .action(format!("there are: {}", numbers.join(", ")))
    }))
}

/// Opens it where it would be opened in a pool: what is sealed is bound to its place.
async fn open_sent(sent: &SentRecord, secret: &Arc<larder_crypt::Secret>) -> Result<OpenedBox, Failure> {
    let damaged = |why: String| Failure::unavailable(format!("the record beside the replica is damaged: {why}"));
    let keyring = Keyring::decode(sent.keyring.as_bytes()).map_err(|error| damaged(error.to_string()))?;
    let id = |text: &str| text.parse().map_err(|_| damaged(format!("'{text}' is no id")));
    let place = Place { box_id: id(&sent.box_id)?, life: id(&sent.life)? };
    let sealed = hex::decode(&sent.sealed).ok_or_else(|| damaged("it has no digits".to_owned()))?;
    let (keyring, master) = unlocked(keyring, secret).await?;
    let keys = larder_base::wipe::without_contents(|| keyring.keys(&master)).map_err(|error| own::failure(&error))?;
    let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    let put = store.put(&place.version(sent.number), PutPayload::from(sealed)).await;
    put.map_err(|error| damaged(error.to_string()))?;
    let contents = versions::read(&store, (place, sent.number), &Arc::new(keys)).await?;
    Ok(OpenedBox::of(contents, keyring, master))
}
