//! Shares: their folders, and the rules of entrance that they have in the file ([`larder_people::Share`]).
//!
//! - `share.volume_or_host`: without a volume a share is a folder of the host, named by its absolute path. It must not
//!   overlap with the disks of a pool, where nobody but larder may write, or with larder's own data.
//! - `share.bound_of_whole_volume`: a size of Time Machine is kept by what files of the volume hold together, so the share is the
//!   whole volume. Macs find it by SMB.

use std::ops::{Deref, DerefMut};
use std::path::Path;

use larder_api::setting::{Kind, Setting, Values};
use larder_api::share::{READ_ONLY_USERS, SETTINGS, SNAPSHOTS_SHOWN, TIME_MACHINE, USERS};
use larder_api::{Failure, ShareChange, ShareUsers};
use larder_base::units::ByteSize;
use larder_people::{Door, Field, NOBODY, Network, Share, Squash, Writers};
use serde_json::Value;

use super::raw_share::{RawShare, declared};
use super::{Checked, Config, Validator, VolumeName, check_share_name, parse_network, parse_networks};

/// A share of the file: who may come in, and the place that it is of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShareConfig {
    /// Who may come in: what the doors ask.
    pub rules: Share,
    /// `None`: a folder of the host (`share.volume_or_host`).
    pub volume: Option<VolumeName>,
    /// The folder of the volume that is shared, such as `photos/2024`; empty: all of it. Of the host: the absolute path.
    pub folder: String,
    /// The other settings, by their keys, where they are not the default.
    settings: Values,
}

pub fn parse_squash(text: &str) -> Result<Squash, String> {
    let squash = Squash::EACH.into_iter().find(|squash| squash.word() == text);
    squash.ok_or_else(|| format!("'{text}' is not a squash rule: use root, all or none"))
}

impl Deref for ShareConfig {
    type Target = Share;

    fn deref(&self) -> &Share {
        &self.rules
    }
}

impl DerefMut for ShareConfig {
    fn deref_mut(&mut self) -> &mut Share {
        &mut self.rules
    }
}

impl ShareConfig {
    /// A whole volume, or without one a folder of the host that is named later.
    pub fn new(rules: Share, volume: Option<VolumeName>) -> ShareConfig {
        ShareConfig { rules, volume, folder: String::new(), settings: Values::new() }
    }

    /// The value of a setting.
    pub fn value(&self, setting: &Setting) -> Value {
        match self.rules.clone().field(setting.key) {
            Some(Field::Switch(is_on)) => (*is_on).into(),
            Some(Field::Number(number)) => (*number).into(),
            Some(Field::Networks(None)) => Value::Null,
            Some(Field::Networks(Some(networks))) => networks.iter().map(Network::to_string).collect(),
            Some(Field::Squash(squash)) => squash.word().into(),
            Some(Field::Writers(Writers::All)) => "all".into(),
            Some(Field::Writers(Writers::Listed(names)) | Field::Names(names)) => std::mem::take(names).into(),
            None => self.settings.get(setting.key).cloned().unwrap_or_else(|| setting.default()),
        }
    }

    /// Gives a setting a value. The complaint is for people.
    pub fn set(&mut self, setting: &Setting, value: Value) -> Result<(), String> {
        let value = setting.check(value)?;
        let words: Vec<String> = serde_json::from_value(value.clone()).unwrap_or_default();
        match self.rules.field(setting.key) {
            Some(Field::Switch(is_on)) => *is_on = value == true,
            Some(Field::Number(number)) => *number = serde_json::from_value(value).unwrap_or(NOBODY),
            Some(Field::Networks(networks)) => {
                *networks = (!value.is_null()).then(|| parse_networks(&words)).transpose()?;
            }
            Some(Field::Squash(squash)) => *squash = parse_squash(value.as_str().unwrap_or_default())?,
            Some(Field::Writers(writers)) if value.is_array() => *writers = Writers::Listed(words),
            Some(Field::Writers(writers)) => *writers = Writers::All,
            Some(Field::Names(names)) => *names = words,
            None if value == setting.default() => drop(self.settings.remove(setting.key)),
            None => drop(self.settings.insert(setting.key.to_owned(), value)),
        }
        Ok(())
    }

    pub fn is_on(&self, setting: &Setting) -> bool {
        self.value(setting) == true
    }

    /// The value of a setting that is a word or several.
    pub fn words(&self, setting: &Setting) -> String {
        setting.text(&self.value(setting))
    }

    /// The value of a setting that is a number, or none.
    pub fn number(&self, setting: &Setting) -> Option<u32> {
        self.value(setting).as_u64().and_then(|number| number.try_into().ok())
    }

    /// Whether Macs can back up to it.
    pub fn takes_backups(&self) -> bool {
        !self.value(&TIME_MACHINE).is_null() && self.offers(Door::SMB) && self.is_writable()
    }

    /// The most that the backups of Macs may hold, if that is bounded.
    pub fn backup_bytes(&self) -> Option<u64> {
        self.value(&TIME_MACHINE).as_str()?.parse().ok().map(|size: ByteSize| size.0)
    }

    /// Checks the settings that depend on the place or on one another (`share.bound_of_whole_volume`).
    pub fn check(&self) -> Result<(), &'static str> {
        if self.is_on(&SNAPSHOTS_SHOWN) && self.volume.is_none() {
            return Err("a folder of this machine has no snapshots: leave snapshots_shown out, or share a volume");
        }
        if !self.value(&TIME_MACHINE).is_null() && !self.offers(Door::SMB) {
            return Err("Time Machine reaches a share by SMB alone: smb = true");
        }
        if self.backup_bytes().is_some() && (self.volume.is_none() || !self.folder.is_empty()) {
            return Err(
                "a size of Time Machine needs a share of a whole volume: larder volume create NAME makes one, with its share",
            );
        }
        Ok(())
    }

    /// Changes the lists of people. `known` refuses an entry that names nobody.
    pub fn change_people(
        &mut self,
        change: &ShareChange,
        known: impl Fn(&str) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let known = |names: &[String]| names.iter().try_for_each(|name| known(name));
        match &change.users {
            Some(ShareUsers::All) => self.users = Writers::All,
            Some(ShareUsers::Listed(names)) => {
                known(names)?;
                self.users = Writers::Listed(names.clone());
            }
            None => {}
        }
        known(&change.add_users)?;
        let rules = &mut self.rules;
        match &mut rules.users {
            Writers::Listed(names) => {
                names.extend(change.add_users.iter().filter(|name| !names.contains(name)).cloned().collect::<Vec<_>>());
                names.retain(|name| !change.remove_users.contains(name));
                rules.read_only_users.retain(|name| !change.add_users.contains(name));
            }
            Writers::All if change.add_users.is_empty() && change.remove_users.is_empty() => {}
            Writers::All => {
                return Err(Failure::invalid(format!("the share '{}' is for all users", self.name))
                    .action("say for whom it is instead: --users ann,bob"));
            }
        }
        rules.read_only_users.retain(|name| !change.remove_users.contains(name));
        if let Some(names) = &change.read_only_users {
            known(names)?;
            rules.read_only_users = names.clone();
        }
        Ok(())
    }

    /// The folder of the host that is shared, if it is none of a volume.
    pub fn host_folder(&self) -> Option<&Path> {
        self.volume.is_none().then(|| Path::new(&self.folder))
    }

    /// Remarks for the owner of the share that the file does not show.
    pub fn notes(&self, config: &Config) -> Vec<String> {
        let mut notes = Vec::new();
        let name = &self.name;
        if self.host_folder().is_some_and(|folder| !folder.is_dir()) {
            notes.push(format!(
                "share '{name}' is the folder {} of this machine, which is not there: it is not served until it is made or \
                 mounted, and larder is restarted or gets SIGHUP",
                self.folder
            ));
        }
        if self.offers(Door::SMB) && self.is_for_nobody() {
            notes.push(format!(
                "share '{name}' lists no user, so nobody may use it over SMB: name some with users = [...], or write \
                 users = \"all\""
            ));
        }
        if self.offers(Door::NFS) && self.nfs_networks().is_none() {
            notes.push(format!(
                "share '{name}' is for certain users, and NFS cannot tell who asks, so it is not exported over NFS: if \
                 every machine of a network may be trusted, name it with networks = [\"192.168.1.0/24\"]; otherwise \
                 write nfs = false"
            ));
        }
        notes.extend(config.ways_around(self).into_iter().map(|way| {
            format!(
                "share '{name}' is for certain users, and the same files are reached {way}; for files that nobody else may \
                 reach make a volume of their own: larder volume create NAME --no-share"
            )
        }));
        if self.requires_encryption() && self.nfs_networks().is_some() {
            notes.push(format!(
                "share '{name}' requires encryption over SMB, and is exported over NFS, which does not encrypt: write \
                 nfs = false if nothing may be sent in clear"
            ));
        }
        notes
    }
}

/// A folder of a volume, without slashes at either end.
pub fn check_folder(text: &str) -> Result<String, String> {
    const BYTES_MAX: usize = 1024;
    let folder = text.trim_matches('/');
    let bad = |part: &str| part.is_empty() || part == "." || part == ".." || part.len() > 255;
    if folder.len() > BYTES_MAX || folder.contains(|c: char| c.is_control()) || folder.split('/').any(bad) {
        return Err(format!(
            "'{text}' is not a folder of a volume: write names with / between them, such as photos/2024"
        ));
    }
    Ok(folder.to_owned())
}

/// A folder of the host: an absolute path without detours (`share.volume_or_host`).
pub fn check_host_folder(text: &str, config: &Config) -> Result<String, String> {
    const BYTES_MAX: usize = 4000;
    let folder = text.trim_end_matches('/');
    let parts = || folder.split('/').skip(1);
    let is_bad = |part: &str| part.is_empty() || part == "." || part == ".." || part.len() > 255;
    if !folder.starts_with('/') || folder.len() > BYTES_MAX || folder.contains(char::is_control) || parts().any(is_bad)
    {
        return Err(format!(
            "'{text}' is no folder of this machine that can be shared: write its absolute path, such as /srv/photos; a \
             folder of a volume needs its volume: volume = \"POOL/VOLUME\""
        ));
    }
    let path = Path::new(folder);
    let overlaps = |other: &Path| path.starts_with(other) || other.starts_with(path);
    if let Some(disk) = config.pools.iter().flat_map(|pool| &pool.disks).find(|disk| overlaps(disk)) {
        return Err(format!(
            "'{folder}' overlaps with the disk {}, where nobody but larder may write: share another folder",
            disk.display()
        ));
    }
    if overlaps(&config.data) {
        return Err(format!(
            "'{folder}' overlaps with larder's own data in {}: share another folder",
            config.data.display()
        ));
    }
    Ok(folder.to_owned())
}

impl Validator<'_> {
    pub(super) fn share(&self, raw: RawShare, config: &Config) -> Checked<ShareConfig> {
        // A misspelt key first: without it others are missing.
        for (key, _) in &raw.settings {
            self.at(key, declared(key.get_ref(), &SETTINGS))?;
        }
        self.at(&raw.name, check_share_name(raw.name.get_ref()))?;
        let (volume, folder) = match (&raw.volume, raw.folder) {
            (Some(volume), folder) => {
                (Some(self.volume_name(volume, config)?), self.optional(folder, check_folder)?.unwrap_or_default())
            }
            (None, Some(folder)) => (None, self.at(&folder, check_host_folder(folder.get_ref(), config))?),
            (None, None) => {
                return Err(self.wrong(
                    &raw.name,
                    "a share needs a volume = \"POOL/VOLUME\", or the absolute path of a folder of this machine: \
                     folder = \"/srv/photos\"",
                ));
            }
        };
        let mut share = ShareConfig::new(Share::new(raw.name.get_ref()), volume);
        share.folder = folder;
        for (key, raw) in &raw.settings {
            let setting = self.at(key, declared(key.get_ref(), &SETTINGS))?;
            let value = self.at(raw, raw.get_ref().read(setting))?;
            for entry in raw.get_ref().entries() {
                let known = match setting.kind {
                    Kind::Networks { .. } => parse_network(entry.get_ref()).map(drop),
                    _ => config.check_entry(entry.get_ref()),
                };
                self.at(entry, known)?;
            }
            self.at(raw, share.set(setting, value))?;
        }
        // A list alone lets in nobody else.
        let has = |setting: &Setting| raw.settings.iter().any(|(key, _)| key.get_ref() == setting.key);
        if has(&READ_ONLY_USERS) && !has(&USERS) {
            share.users = Writers::Listed(Vec::new());
        }
        self.at(&raw.name, share.check().map_err(str::to_owned))?;
        Ok(share)
    }
}
