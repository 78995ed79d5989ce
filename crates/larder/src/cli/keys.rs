//! `larder volume unlock | lock | key`: what opens encrypted volumes.
//!
//! Secrets are typed unseen, or come from a file, a descriptor or a pipe; they are in no argument, which `ps` shows.

use std::path::Path;

use larder_api::endpoints::{ChangeKeys, GetKeys};
use larder_api::{Client, Failure, KeysRequest, VolumeSecret};

use super::args::{Disks, Global, KeyArgs, KeyCommand};
use super::password;
use super::reach::{self, Backend};
use super::volume_name::split;
use crate::render;
use larder_daemon::keys::read_key_file;

/// The secret that a new volume, or a new way to open one, gets.
pub(super) fn new_secret(
    volume: &str,
    key_file: Option<&Path>,
    passphrase_file: Option<&Path>,
) -> Result<VolumeSecret, Failure> {
    match (key_file, passphrase_file) {
        (Some(file), _) => read_key_file(file).map(VolumeSecret::KeyFile),
        (None, Some(file)) => password::passphrase_in(file).map(VolumeSecret::Passphrase),
        (None, None) => {
            password::secret_line(&format!("New passphrase of {volume}"), true).map(VolumeSecret::Passphrase)
        }
    }
}

/// A secret that opens `volume` now.
pub(super) fn secret(volume: &str, key: &KeyArgs) -> Result<VolumeSecret, Failure> {
    match (&key.key_file, &key.passphrase_file) {
        (Some(file), _) => read_key_file(file).map(VolumeSecret::KeyFile),
        (None, Some(file)) => password::passphrase_in(file).map(VolumeSecret::Passphrase),
        (None, None) if key.recovery_key => {
            password::secret_line(&format!("Recovery key of {volume}"), false).map(VolumeSecret::Recovery)
        }
        (None, None) => password::secret_line(&format!("Passphrase of {volume}"), false).map(VolumeSecret::Passphrase),
    }
}

pub(super) fn recovery_text(key: &str) -> String {
    format!(
        "\n\nRecovery key: {key}\nIt opens the volume when nothing else does, and is shown this once. Write it down, and keep it away from \
         these disks.\nWithout any of its keys nobody opens this volume, ever."
    )
}

pub(super) async fn unlock(global: &Global, name: &str, key: &KeyArgs) -> Result<(), Failure> {
    split(name)?;
    let client = daemon(global).await?;
    let status = client.call(ChangeKeys, name, &KeysRequest::Unlock { secret: secret(name, key)? }).await?;
    global.out().answer(&status, |s| {
        let note = render::opened_with(s);
        let note = if note.is_empty() { note } else { format!("\n{}", note.trim_end()) };
        format!("unlocked the volume {}/{}{note}", s.pool, s.volume)
    })
}

pub(super) async fn lock(global: &Global, name: &str, force: bool) -> Result<(), Failure> {
    split(name)?;
    let status = daemon(global).await?.call(ChangeKeys, name, &KeysRequest::Lock { force }).await?;
    global.out().answer(&status, |s| format!("locked the volume {}/{}", s.pool, s.volume))
}

/// Keys are in the memory of a daemon alone.
pub(super) async fn daemon(global: &Global) -> Result<Client, Failure> {
    Backend::of(global, &Disks::default()).await?.daemon().ok_or_else(|| {
        Failure::not_found("no larder is running: a volume is locked as long as none is")
            .action("start it with: larder serve")
    })
}

pub(super) async fn run(global: &Global, command: KeyCommand) -> Result<(), Failure> {
    match command {
        KeyCommand::List { name, disks } => {
            split(&name)?;
            let status = reach::call(global, &disks, GetKeys, &name, ()).await?;
            global.out().answer(&status, render::keys)
        }
        KeyCommand::Add { name, label, new_key_file, new_passphrase_file, new_recovery_key, key, disks } => {
            split(&name)?;
            let secret = secret(&name, &key)?;
            let request = match new_recovery_key {
                true => KeysRequest::AddRecovery { secret, name: label },
                false => {
                    let new = new_secret(&name, new_key_file.as_deref(), new_passphrase_file.as_deref())?;
                    KeysRequest::Add { secret, new, name: label }
                }
            };
            change(global, &name, request, &disks).await
        }
        KeyCommand::Remove { name, slot, key, disks } => {
            split(&name)?;
            let request = KeysRequest::Remove { secret: secret(&name, &key)?, slot };
            change(global, &name, request, &disks).await
        }
    }
}

async fn change(global: &Global, name: &str, request: KeysRequest, disks: &Disks) -> Result<(), Failure> {
    let status = reach::call(global, disks, ChangeKeys, name, request).await?;
    global.out().answer(&status, |status| {
        let key = status.recovery_key.as_deref().map(recovery_text);
        format!("{}{}", render::keys(status).trim_end(), key.unwrap_or_default())
    })
}
