//! `larder volume ...`

use std::io::{IsTerminal, Write};
use std::path::PathBuf;

use larder_api::endpoints::{CreateVolume, DestroyVolume, GetOwners, GetVolumes, MoveVolume, SetVolume};
use larder_api::{Encrypt, Failure, ShareStatus, TakeAway, VolumeCreate, VolumeMove, VolumeMoved, VolumeStatus};

use super::args::{Disks, Global, VolumeCommand};
use super::keys;
use super::reach::{self, Backend, absolute};
use super::sealing;
use super::volume_name::split;
use crate::render;
use larder_config::VolumeName;
use larder_config::edit::Editor;
use larder_document::folder;

pub(super) async fn run(global: &Global, command: VolumeCommand) -> Result<(), Failure> {
    match command {
        VolumeCommand::Create {
            name,
            properties,
            no_share,
            encrypt,
            key_file,
            passphrase_file,
            no_recovery_key,
            disks,
        } => {
            let (pool, volume) = split(&name)?;
            let change = properties.change();
            let shared = !no_share;
            let encrypt = match encrypt {
                Some(cipher) => Some(Encrypt {
                    cipher,
                    secret: keys::new_secret(&name, key_file.as_deref(), passphrase_file.as_deref())?,
                    recovery: !no_recovery_key,
                }),
                None => None,
            };
            let request = VolumeCreate { pool, name: volume, properties: change, share: shared, encrypt };
            let status = reach::call(global, &disks, CreateVolume, (), request).await?;
            global.out().answer(&status, made)
        }
        VolumeCommand::List { disks } => {
            let volumes = reach::call(global, &disks, GetVolumes, (), ()).await?;
            global.out().answer(&volumes, |volumes| render::volume_list(volumes))
        }
        VolumeCommand::Set { name, properties, disks } => {
            split(&name)?;
            let change = properties.change();
            if change == Default::default() {
                return Err(Failure::invalid("nothing to set").action("name a property: see larder volume set --help"));
            }
            let has_no_owners = change.user_quotas.is_empty() && change.group_quotas.is_empty();
            let status = reach::call(global, &disks, SetVolume, &name, change).await?;
            if has_no_owners {
                return global.out().answer(&status, |v| render::volume_list(std::slice::from_ref(v)));
            }
            quota(global, &name, &disks).await
        }
        VolumeCommand::Quota { name, disks } => {
            split(&name)?;
            quota(global, &name, &disks).await
        }
        VolumeCommand::Unlock { name, key } => keys::unlock(global, &name, &key).await,
        VolumeCommand::Lock { name, force } => keys::lock(global, &name, force).await,
        VolumeCommand::Encrypt { name, cipher, key_file, passphrase_file, no_recovery_key, how } => {
            split(&name)?;
            let secret = || keys::new_secret(&name, key_file.as_deref(), passphrase_file.as_deref());
            sealing::encrypt(global, &name, (cipher, !no_recovery_key), secret, how).await
        }
        VolumeCommand::Rekey { name, cipher, key_file, passphrase_file, drop, new_recovery_key, how } => {
            split(&name)?;
            let (key_files, passphrase_files) = (key_file, passphrase_file);
            let choice = sealing::RekeyChoice { cipher, key_files, passphrase_files, drop, new_recovery_key };
            sealing::rekey(global, &name, choice, how).await
        }
        VolumeCommand::Key(command) => keys::run(global, command).await,
        VolumeCommand::Promote { name, disks } => super::replica::promote(global, &name, &disks).await,
        VolumeCommand::Move { name, to, keep, force, limit } => {
            split(&name)?;
            let limit_bytes = limit.map(|limit| limit.0);
            move_to(global, &VolumeMove { volume: name, to, keep, force, limit_bytes }).await
        }
        VolumeCommand::Destroy { name, yes, force, with_snapshots, disks } => {
            destroy(global, &name, yes, TakeAway { force, with_snapshots }, &disks).await
        }
    }
}

async fn quota(global: &Global, name: &str, disks: &Disks) -> Result<(), Failure> {
    let owners = reach::call(global, disks, GetOwners, name, ()).await?;
    global.out().answer(&owners, |owners| render::owners(owners))
}

fn made(volume: &VolumeStatus) -> String {
    let mut text = format!("made the volume {}/{}", volume.pool, volume.name);
    if let Some(cipher) = &volume.encryption {
        text.push_str(&format!(", encrypted with {cipher}"));
    }
    if let Some(share) = &volume.shared {
        text.push_str(&shared_text(share));
    }
    if let Some(key) = &volume.recovery_key {
        text.push_str(&keys::recovery_text(key));
    }
    text
}

/// A new volume is open to others at once: who they are, and how to close it.
fn shared_text(share: &ShareStatus) -> String {
    let word = larder_base::shell::word(std::path::Path::new(&share.name));
    format!(
        "\nshared as '{}': SMB, SFTP and WebDAV with {}; NFS with {}\n\
         to share it with some users alone: larder share set {word} --users NAMES; with nobody: larder share remove {word}",
        share.name, share.smb_rule, share.nfs_rule
    )
}

async fn move_to(global: &Global, request: &VolumeMove) -> Result<(), Failure> {
    let client = reach::daemon(global).await?;
    let asked = client.call(MoveVolume, (), request);
    let moved = super::replicate::watched(&client, asked).await?;
    global.out().answer(&moved, moved_text)
}

fn handed_over_text(moved: &VolumeMoved) -> String {
    let VolumeMoved { volume, to, .. } = moved;
    let mut text = match (&moved.fault, moved.closed_ms) {
        (Some(fault), _) => format!("'{volume}' was handed over to {to}: {fault}"),
        (None, 0) => format!("'{volume}' is served by {to}"),
        (None, ms) => format!(
            "handed '{volume}' over to {to}; nobody could use it for {:.1} s\n\
             NFS clients go on there with the handles that they have; others connect again",
            ms as f64 / 1000.0
        ),
    };
    for note in &moved.notes {
        text.push_str(&format!("\n{note}"));
    }
    text
}

fn moved_text(moved: &VolumeMoved) -> String {
    let VolumeMoved { volume, to, .. } = moved;
    let secs = moved.closed_ms as f64 / 1000.0;
    if moved.handed_over {
        return handed_over_text(moved);
    }
    let mut text = format!(
        "moved '{volume}' to '{to}'; it was closed for {secs:.1} s\n\
         NFS clients go on with the handles that they have; SMB, SFTP and WebDAV clients connect again"
    );
    match (&moved.fault, moved.kept) {
        (Some(fault), _) => text.push_str(&format!("\nthe old volume '{volume}' is still there: {fault}")),
        (None, true) => text.push_str(&format!(
            "\nthe old volume is still there; destroy it with: larder volume destroy {volume} --with-snapshots"
        )),
        (None, false) => {}
    }
    text
}

async fn destroy(global: &Global, name: &str, yes: bool, how: TakeAway, disks: &Disks) -> Result<(), Failure> {
    split(name)?;
    if !yes && !confirmed(name)? {
        return Err(Failure::invalid(format!("the volume '{name}' was left as it is")));
    }
    let done = Backend::of(global, disks)
        .await?
        .closing(async |backend| {
            if let Backend::Direct(storage) = backend {
                let (pool, volume) = storage.find(name).await?;
                pool.may_be_destroyed(&volume, how.with_snapshots).await?;
                // As the daemon does: first nobody wants it any more, then it goes.
                forget(global, &VolumeName { pool: pool.name.clone(), volume })?;
            }
            backend.call(DestroyVolume, name, how).await
        })
        .await?;
    global.out().answer(&done, |_| format!("destroyed the volume '{name}'"))
}

/// Takes the volume, its shares and its mounts out of the configuration of the data folder, if there is one: a share without its
/// volume would keep the next start from serving.
fn forget(global: &Global, volume: &VolumeName) -> Result<(), Failure> {
    let data = global.data_named().unwrap_or_else(|| PathBuf::from(folder::DEFAULT));
    let file = absolute(&data.join(folder::CONFIG_NAME))?;
    if !file.exists() {
        return Ok(());
    }
    let mut editor = Editor::open(&file)?;
    editor.remove_volume(volume);
    editor.save().map(drop)
}

/// Asks a person; a script must say --yes.
fn confirmed(name: &str) -> Result<bool, Failure> {
    if !std::io::stdin().is_terminal() {
        return Err(Failure::invalid(format!("destroying '{name}' deletes everything in it"))
            .action("if you mean it, add --yes"));
    }
    eprint!("Destroy the volume '{name}' and everything in it? Type its name: ");
    let _ = std::io::stderr().flush();
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).map_err(|e| Failure::io("cannot read the answer", &e))?;
    Ok(line.trim() == name)
}
