//! `larder volume encrypt | rekey`: all that a volume has stored is sealed anew while it is served.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::time::Duration;

use larder_api::endpoints::{ChangeKeys, GetKeys};
use larder_api::{Client, Encrypt, Failure, FailureKind, KeysRequest, KeysStatus, Rekey, VolumeSecret};

use super::args::{Global, SealingArgs};
use super::keys::{daemon, recovery_text};
use super::password;
use crate::{out, render};
use larder_daemon::keys::read_key_file;

/// How often it is asked how far the work is.
const LOOK_EVERY: Duration = Duration::from_millis(300);
/// The pause before a volume that is in use is tried again.
const TRY_AGAIN: Duration = Duration::from_secs(2);

/// What a person wants of a new key.
pub(super) struct RekeyChoice {
    pub(super) cipher: Option<String>,
    pub(super) key_files: Vec<PathBuf>,
    /// Passphrases. Those of slots that are not among them are asked for where none was given.
    pub(super) passphrase_files: Vec<PathBuf>,
    pub(super) drop: Vec<String>,
    pub(super) new_recovery_key: bool,
}

pub(super) async fn encrypt(
    global: &Global,
    name: &str,
    (cipher, recovery): (Option<String>, bool),
    secret: impl FnOnce() -> Result<VolumeSecret, Failure>,
    how: SealingArgs,
) -> Result<(), Failure> {
    let client = daemon(global).await?;
    let encrypt = Encrypt { cipher, secret: secret()?, recovery };
    let request = KeysRequest::Encrypt { encrypt, force: how.force };
    begin(global, &client, name, &request, how.wait).await
}

pub(super) async fn rekey(global: &Global, name: &str, choice: RekeyChoice, how: SealingArgs) -> Result<(), Failure> {
    let client = daemon(global).await?;
    let status = client.call(GetKeys, name, &()).await?;
    let files = choice.key_files.iter().map(|file| read_key_file(file).map(VolumeSecret::KeyFile));
    let mut secrets = files.collect::<Result<Vec<_>, _>>()?;
    for file in &choice.passphrase_files {
        secrets.push(VolumeSecret::Passphrase(password::passphrase_in(file)?));
    }
    let stays =
        |id: &str, label: &str| !choice.drop.iter().any(|named| named == label || id.starts_with(named.as_str()));
    for slot in status.slots.iter().filter(|slot| stays(&slot.id, &slot.name)) {
        let whose = format!("'{}' of {name}", slot.name);
        match slot.kind.as_str() {
            // A passphrase that none of the files has is named by the answer.
            "passphrase" if choice.passphrase_files.is_empty() => {
                let text = password::secret_line(&format!("Passphrase {whose}"), false)?;
                secrets.push(VolumeSecret::Passphrase(text));
            }
            "recovery key" => {
                let text = password::secret_line(&format!("Recovery key {whose}"), false)?;
                secrets.push(VolumeSecret::Recovery(text));
            }
            _ => {}
        }
    }
    let RekeyChoice { cipher, drop, new_recovery_key, .. } = choice;
    let rekey = Rekey { secrets, drop, cipher, new_recovery: new_recovery_key, force: how.force };
    begin(global, &client, name, &KeysRequest::Rekey(rekey), how.wait).await
}

async fn begin(global: &Global, client: &Client, name: &str, request: &KeysRequest, wait: bool) -> Result<(), Failure> {
    let begun = begun(client, name, request, wait).await?;
    let recovery_key = begun.recovery_key.clone();
    if let Some(key) = recovery_key.as_deref().filter(|_| wait && !global.json) {
        // Whatever becomes of the wait, it was shown.
        out::say(&format!("{}\n", recovery_text(key).trim_start()));
    }
    let status = if wait { ended(client, name).await? } else { begun };
    let status = KeysStatus { recovery_key, ..status };
    global.out().answer(&status, |status| text(status, wait))
}

/// Sends the request. With `wait` again and again while the volume is in use: nothing has changed before it could be closed.
async fn begun(client: &Client, name: &str, request: &KeysRequest, wait: bool) -> Result<KeysStatus, Failure> {
    let mut told = String::new();
    loop {
        match client.call(ChangeKeys, name, request).await {
            Err(failure) if wait && failure.kind == FailureKind::Busy => {
                if failure.message != told {
                    out::tell(&format!("{}; trying again until it is free", failure.message));
                    told = failure.message;
                }
                tokio::time::sleep(TRY_AGAIN).await;
            }
            begun => return begun,
        }
    }
}

async fn ended(client: &Client, name: &str) -> Result<KeysStatus, Failure> {
    let shows = std::io::stderr().is_terminal();
    loop {
        let status = client.call(GetKeys, name, &()).await?;
        if shows {
            eprint!("\r{}\x1b[K", status.sealing.as_ref().map(render::sealing).unwrap_or_default());
        }
        let Some(sealing) = &status.sealing else { return Ok(status) };
        if let Some(fault) = &sealing.fault {
            return Err(Failure::unavailable(format!("'{name}' is not done yet: {fault}")).action(format!(
                "it is tried again by itself; see how far it is with: larder volume key list {name}"
            )));
        }
        if !sealing.running {
            return Err(Failure::locked(format!("'{name}' was locked before all was encrypted"))
                .action(format!("go on with: larder volume unlock {name}")));
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

fn text(status: &KeysStatus, waited: bool) -> String {
    let full = format!("{}/{}", status.pool, status.volume);
    let key = status.recovery_key.as_deref().filter(|_| !waited).map(recovery_text).unwrap_or_default();
    let old = "The disks may still hold what was there before, until it is overwritten. Replicas of before receive no more: send a whole \
               snapshot into a new name.";
    match &status.sealing {
        None => format!("all of the volume {full} is encrypted with its newest key ({}). {old}{key}", status.cipher),
        Some(_) => format!(
            "the volume {full} is served, and is being encrypted with {}; a restart locks it, and unlocking it goes on with the work.\nSee how far it is \
             with: larder volume key list {full}\n{old}{key}",
            status.cipher
        ),
    }
}
