//! What opens an encrypted volume: unlocking, locking, and the ways in.
//!
//! - `page.secrets_are_wiped`: before a form with a secret of a volume is read, the process begins to zero what it frees
//!   (`wipe.freed_is_zeroed`). A page shows a recovery key once and keeps none.

use askama::Template;
use hyper::StatusCode;
use larder_api::endpoints::{ChangeKeys, GetKeys};
use larder_api::{Encrypt, Failure, KeySlot, KeysRequest, KeysStatus, SealingStatus, VolumeSecret, VolumeStatus};

use crate::note::Note;
use crate::text::{Moment, percent, size};
use crate::visit::{Answer, Frame, Local, Outcome, Visit, rendered};

pub struct SlotView {
    pub id: String,
    pub name: String,
    pub kind: String,
    pub created: Moment,
    pub traits: Vec<&'static str>,
}

impl SlotView {
    fn of(slot: &KeySlot, keys: &KeysStatus) -> Self {
        let opened = (keys.opened_with.as_ref() == Some(&slot.id)).then_some("opened it");
        Self {
            id: slot.id.clone(),
            name: slot.name.clone(),
            kind: slot.kind.clone(),
            created: Moment::of_secs(slot.created),
            traits: [opened, slot.here_only.then_some("of this replica alone")].into_iter().flatten().collect(),
        }
    }
}

/// The encryption of a volume, as its page shows it.
pub enum KeysView {
    /// It can be encrypted.
    Plain,
    /// It is no volume of its own: its source decides.
    Foreign,
    Sealed(Sealed),
}

pub struct Sealed {
    pub cipher: String,
    pub is_locked: bool,
    pub slots: Vec<SlotView>,
    pub sealing: Option<(u8, String)>,
    pub fault: Option<String>,
}

impl KeysView {
    pub async fn of(visit: &Visit<'_>, name: &str, volume: &VolumeStatus) -> Self {
        let Some(cipher) = &volume.encryption else {
            return if volume.replica && !volume.copy { Self::Foreign } else { Self::Plain };
        };
        let sealing = volume.sealing.as_ref().map(sealing);
        let sealed = |slots, fault| {
            let (cipher, is_locked) = (cipher.clone(), volume.locked);
            Self::Sealed(Sealed { cipher, is_locked, slots, sealing, fault })
        };
        match visit.about(GetKeys, name).await {
            Ok(keys) => sealed(keys.slots.iter().map(|slot| SlotView::of(slot, &keys)).collect(), None),
            Err(failure) => sealed(Vec::new(), Some(failure.message)),
        }
    }
}

/// How far sealing anew is.
pub fn sealing(status: &SealingStatus) -> (u8, String) {
    let verb = if status.rekey { "New key" } else { "Encryption" };
    let fault = status.fault.as_ref().map(|fault| format!("; {fault}")).unwrap_or_default();
    let waits = if status.running { "" } else { ", waits until the volume is unlocked" };
    let (done, total) = (size(status.done_bytes), size(status.total_bytes));
    (percent(status.done_bytes, status.total_bytes), format!("{verb}: {done} of {total}{waits}{fault}"))
}

#[derive(Template)]
#[template(path = "recovery.html")]
struct RecoveryPage {
    frame: Frame,
    volume: String,
    key: String,
    back: String,
}

/// Shows a recovery key, which no later page can.
pub fn show_recovery(visit: &Visit<'_>, volume: String, key: String) -> Answer {
    let back = Local::with("/volume", "name", &volume).path().to_owned();
    let page = RecoveryPage { frame: visit.frame("storage", "Recovery key"), volume, key, back };
    Ok(Outcome::Page(StatusCode::OK, rendered(&page)?))
}

/// A secret that a form names: a passphrase, or a recovery key.
fn secret(visit: &Visit<'_>) -> Result<VolumeSecret, Failure> {
    let secret = visit.form.get("secret").unwrap_or_default();
    if secret.is_empty() {
        return Err(Failure::invalid("the passphrase or recovery key is missing"));
    }
    Ok(match visit.form.text("kind") {
        "recovery" => VolumeSecret::Recovery(secret.to_owned()),
        _ => VolumeSecret::Passphrase(secret.to_owned()),
    })
}

/// A new passphrase, written twice.
pub fn new_passphrase(visit: &Visit<'_>) -> Result<VolumeSecret, Failure> {
    let new = visit.form.get("passphrase").unwrap_or_default();
    if new.is_empty() || visit.form.get("again") != Some(new) {
        return Err(Failure::invalid("the new passphrase and its repetition differ, or are empty"));
    }
    Ok(VolumeSecret::Passphrase(new.to_owned()))
}

/// What a form says of the encryption of a volume.
pub fn encrypt_of(visit: &Visit<'_>) -> Result<Encrypt, Failure> {
    Ok(Encrypt { cipher: None, secret: new_passphrase(visit)?, recovery: visit.form.is_checked("recovery") })
}

async fn change(visit: &Visit<'_>, done: &str, request: Result<KeysRequest, Failure>) -> Answer {
    let volume = visit.form.text("volume").to_owned();
    let back = Local::with("/volume", "name", &volume);
    let changed = async {
        visit.required("volume", "the volume")?;
        visit.call(ChangeKeys, &volume, &request?).await
    };
    match changed.await {
        Ok(KeysStatus { recovery_key: Some(key), .. }) => show_recovery(visit, volume, key),
        Ok(_) => visit.back(back, Ok(Note::done(done))),
        Err(failure) => visit.back(back, Err(failure)),
    }
}

pub async fn unlock(visit: &Visit<'_>) -> Answer {
    let request = secret(visit).map(|secret| KeysRequest::Unlock { secret });
    change(visit, "The volume is unlocked.", request).await
}

pub async fn lock(visit: &Visit<'_>) -> Answer {
    let request = KeysRequest::Lock { force: visit.form.is_checked("force") };
    change(visit, "The volume is locked: its keys are forgotten.", Ok(request)).await
}

pub async fn add(visit: &Visit<'_>) -> Answer {
    let request = || {
        let name = visit.required("name", "a name for the passphrase")?;
        Ok(KeysRequest::Add { secret: secret(visit)?, new: new_passphrase(visit)?, name })
    };
    change(visit, "The new passphrase opens the volume.", request()).await
}

pub async fn add_recovery(visit: &Visit<'_>) -> Answer {
    let name = visit.form.text("name").to_owned();
    let request = secret(visit).map(|secret| KeysRequest::AddRecovery { secret, name });
    change(visit, "The recovery key is made.", request).await
}

pub async fn remove(visit: &Visit<'_>) -> Answer {
    let request = || {
        let slot = visit.required("slot", "the key")?;
        visit.typed(visit.form.text("slot_name"))?;
        Ok(KeysRequest::Remove { secret: secret(visit)?, slot })
    };
    change(visit, "That key opens the volume no longer.", request()).await
}

pub async fn encrypt(visit: &Visit<'_>) -> Answer {
    let request = || {
        let encrypt = encrypt_of(visit)?;
        visit.typed(visit.form.text("volume"))?;
        Ok(KeysRequest::Encrypt { encrypt, force: visit.form.is_checked("force") })
    };
    change(visit, "The volume is being encrypted.", request()).await
}
