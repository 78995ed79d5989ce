//! A box that is found in a store, and opened with the password of an owner or the recovery key.
//!
//! - `found.newest_that_opens`: of several boxes the one that wrote last and opens is meant; of its versions the newest that can be
//!   read.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use larder_api::{BoxFound, Failure, FailureKind, UserRole};
use larder_base::{task, wipe};
use larder_crypt::{Keyring, KeyringError, Master, RecoveryKey, Secret};
use object_store::ObjectStore;

use super::contents::Contents;
use super::own::{self, Own};
use super::versions::{self, Listed};
use larder_config::Config;
use larder_config::edit::Editor;
use larder_config::{PoolConfig, Schedule};
use larder_document::folder::CONFIG_NAME;

/// Boxes of one store that are tried.
const BOXES_MAX: usize = 16;

/// A record that was opened.
pub struct OpenedBox {
    pub contents: Contents,
    keyring: Keyring,
    master: Master,
    /// What a person should know before it is that box: newer versions that cannot be read, and folders and pools that stay out.
    pub notes: Vec<String>,
}

/// What a person typed: eleven groups of five are the recovery key, and anything else is a password.
pub fn secret_of(typed: &str) -> Secret {
    match RecoveryKey::parse(typed) {
        Some(key) => Secret::Recovery(key),
        None => Secret::Passphrase(typed.trim_end_matches(['\n', '\r']).to_owned().into()),
    }
}

/// Whether any box has left its record.
pub async fn is_there(store: &dyn ObjectStore) -> Result<bool, Failure> {
    versions::list(store, None).await.map(|all| !all.is_empty())
}

/// Opens the box of a store (`found.newest_that_opens`). `None`: no box has left anything there.
pub async fn open(store: Arc<dyn ObjectStore>, secret: &Arc<Secret>) -> Result<Option<OpenedBox>, Failure> {
    let all = versions::list(&*store, None).await?;
    let mut boxes: Vec<Vec<Listed>> = Vec::new();
    for one in all {
        match boxes.iter_mut().find(|known| known[0].place.box_id == one.place.box_id) {
            Some(known) => known.push(one),
            None => boxes.push(vec![one]),
        }
    }
    boxes.sort_by_key(|versions| std::cmp::Reverse(versions.iter().map(|one| one.written_secs).max()));
    let mut refused = None;
    for versions in boxes.into_iter().take(BOXES_MAX) {
        match open_one(&store, &versions, secret).await {
            Err(failure) if failure.kind == FailureKind::Denied => refused = Some(failure),
            other => return other.map(Some),
        }
    }
    refused.map_or(Ok(None), Err)
}

async fn open_one(store: &Arc<dyn ObjectStore>, all: &[Listed], secret: &Arc<Secret>) -> Result<OpenedBox, Failure> {
    let mut opened = None;
    let mut tried = Vec::new();
    for one in all {
        if tried.contains(&one.place) {
            continue;
        }
        tried.push(one.place);
        if let Some(keyring) = versions::keyring(&**store, one.place).await? {
            opened = Some(unlocked(keyring, secret).await?);
            break;
        }
    }
    let Some((keyring, master)) = opened else {
        return Err(Failure::unavailable("the record of the box has lost its keyring"));
    };
    let keys = wipe::without_contents(|| keyring.keys(&master)).map_err(|error| own::failure(&error))?;
    let (keys, mut notes) = (Arc::new(keys), Vec::new());
    for one in all {
        match versions::read(store, (one.place, one.number), &keys).await {
            Ok(contents) => return Ok(OpenedBox { contents, keyring, master, notes }),
            Err(failure) => notes.push(failure.message),
        }
    }
    Err(Failure::unavailable(format!("no version of the box can be read: {}", notes.join("; "))))
}

/// On a thread of its own: a passphrase takes a second of a core, on purpose.
pub(super) async fn unlocked(keyring: Keyring, secret: &Arc<Secret>) -> Result<(Keyring, Master), Failure> {
    let secret = Arc::clone(secret);
    let work = move || wipe::without_contents(|| keyring.unlock(&secret)).map(|master| (keyring, master));
    let done = task::blocking(work).await.map_err(|error| Failure::internal(error.to_string()))?;
    done.map_err(|error| match error {
        KeyringError::Refused(what) => {
            let what = if what == "passphrase" { "password" } else { what };
            Failure::denied(format!("the record of the box does not open with this {what}")).action(
                "try the password of another owner, or the recovery key; the data opens without: larder up DIR...",
            )
        }
        other => own::failure(&other),
    })
}

impl OpenedBox {
    pub(super) fn of(contents: Contents, keyring: Keyring, master: Master) -> Self {
        Self { contents, keyring, master, notes: Vec::new() }
    }

    /// The `box.json` of its next life (`record.lives_are_told_apart`).
    pub fn next_life(&self) -> Result<Vec<u8>, Failure> {
        let Contents { box_id, life, former, owners, number, .. } = self.contents.clone();
        let ring = (self.keyring.clone(), &self.master);
        Own::reborn(box_id, (life, former), ring, owners, number)?.encode()
    }

    /// Its larder.toml for `data`, with the pools where they are now (name, and disks), at the doors of `service`.
    pub fn config_for(
        &self,
        data: &Path,
        pools: &[(String, Vec<PathBuf>)],
        service: Option<&str>,
    ) -> Result<String, Failure> {
        let file = data.join(CONFIG_NAME);
        let mut editor = Editor::of(self.contents.config()?, &file)?;
        editor.forget_data_folder();
        if let Some(service) = service {
            editor.take_doors(&Editor::of(service, &file)?);
        }
        for (name, disks) in pools {
            if !editor.set_pool_disks(name, disks) {
                editor.add_pool(&PoolConfig { name: name.clone(), disks: disks.clone(), scrub: Schedule::default() });
            }
        }
        editor.check()?;
        Ok(editor.text())
    }

    /// Of versions that lie in a store the newest that is this box's, with its number and when it was written. Its keys open it: a name
    /// alone proves nothing.
    pub async fn newest_of(&self, all: &[Listed], store: &Arc<dyn ObjectStore>) -> Result<Option<(u64, i64)>, Failure> {
        let keys = wipe::without_contents(|| self.keyring.keys(&self.master)).map_err(|error| own::failure(&error))?;
        let keys = Arc::new(keys);
        for one in all.iter().filter(|one| one.place.box_id == self.contents.box_id) {
            if versions::read(store, (one.place, one.number), &keys).await.is_ok() {
                return Ok(Some((one.number, one.written_secs)));
            }
        }
        Ok(None)
    }

    /// The pools that its larder.toml names.
    pub fn pool_names(&self) -> Result<Vec<String>, Failure> {
        let config = Config::parse(self.contents.config()?, Path::new(CONFIG_NAME))?;
        Ok(config.pools.into_iter().map(|pool| pool.name).collect())
    }

    /// What box it was, for people.
    pub fn shown(&self, data: &Path, pools: Vec<String>) -> Result<BoxFound, Failure> {
        let contents = &self.contents;
        let config = Config::parse(contents.config()?, &data.join(CONFIG_NAME))?;
        let role = |role: UserRole| if role == UserRole::Owner { " (owner)" } else { "" };
        let listen = &config.listen;
        let doors = [
            ("NFS", listen.nfs),
            ("SMB", listen.smb),
            ("SFTP", listen.sftp),
            ("WebDAV", listen.webdav),
            ("HTTPS", listen.webdavs),
            ("replication", listen.replication),
        ];
        Ok(BoxFound {
            name: contents.box_name.clone(),
            number: contents.number,
            life: contents.life.number,
            written_secs: contents.written_secs,
            machine: contents.machine.clone(),
            pools,
            users: config.users.iter().map(|user| format!("{}{}", user.name, role(user.role))).collect(),
            shares: config.shares.iter().map(|share| share.name.clone()).collect(),
            doors: doors.iter().filter_map(|(name, at)| at.map(|at| format!("{name} {}", at.port()))).collect(),
            notes: self.notes.clone(),
        })
    }
}
