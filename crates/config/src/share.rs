//! Shares: their folders, and the rules of entrance that they have in the file ([`larder_people::Share`]).
//!
//! - `share.volume_or_host`: without a volume a share is a folder of the host, named by its absolute path. It must not
//!   overlap with the disks of a pool, where nobody but larder may write, or with larder's own data.
//! - `share.bound_of_whole_volume`: a size of Time Machine is kept by what files of the volume hold together, so the share is the
//!   whole volume. Macs find it by SMB.

use std::ops::{Deref, DerefMut};
use std::path::Path;

use larder_files::audit::{FileAct, FileActs};
use larder_files::guard::GuardMode;

use larder_base::units::ByteSize;
use larder_people::{NOBODY, Share, Squash, Writers};

use super::spanned::Spanned;

use super::raw::{RawRecycle, RawShare, RawUsers};
use super::{Checked, Config, Validator, VolumeName, check_share_name, parse_network};

/// A share of the file: who may come in, and the place that it is of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShareConfig {
    /// Who may come in: what the doors ask.
    pub rules: Share,
    /// `None`: a folder of the host (`share.volume_or_host`).
    pub volume: Option<VolumeName>,
    /// The folder of the volume that is shared, such as `photos/2024`; empty: all of it. Of the host: the absolute path.
    pub folder: String,
    /// Removals over SMB and WebDAV go to `.recycle`, where they stay this many days.
    pub recycle_days: Option<u32>,
    /// `.snapshots` is listed at the top.
    pub snapshots_shown: bool,
    /// Names that differ in their Unicode form alone are one, over every network door.
    pub normalize: bool,
    /// What happens about a client that ruins files.
    pub guard: GuardMode,
    /// Operations of its clients that the audit log has.
    pub audit: FileActs,
    /// Macs back up to it.
    pub time_machine: Option<TimeMachine>,
}

/// A share for Time Machine (`share.bound_of_whole_volume`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeMachine {
    /// What the backups may hold; `None`: as much as there is room for.
    pub size: Option<ByteSize>,
}

impl TimeMachine {
    /// `true`, `false` or a size.
    pub fn parse(text: &str) -> Result<Option<TimeMachine>, String> {
        const BYTES_MIN: u64 = 1 << 30;
        match text {
            "true" | "yes" => Ok(Some(TimeMachine { size: None })),
            "false" | "no" => Ok(None),
            size => {
                let size: ByteSize = size.parse().map_err(|e| format!("{e}"))?;
                match size.0 >= BYTES_MIN {
                    true => Ok(Some(TimeMachine { size: Some(size) })),
                    false => Err(format!("{size} is too little for backups of a Mac: give 1GiB or more")),
                }
            }
        }
    }

    pub fn word(self) -> String {
        self.size.map_or_else(|| "yes".to_owned(), |size| size.to_string())
    }
}

pub fn parse_squash(text: &str) -> Result<Squash, String> {
    let squash = Squash::EACH.into_iter().find(|squash| squash.word() == text);
    squash.ok_or_else(|| format!("'{text}' is not a squash rule: use root, all or none"))
}

/// The word of a guard's mode.
pub fn guard_word(mode: GuardMode) -> &'static str {
    match mode {
        GuardMode::Off => "off",
        GuardMode::Alert => "alert",
        GuardMode::Block => "block",
    }
}

pub fn parse_guard(text: &str) -> Result<GuardMode, String> {
    let modes = [GuardMode::Off, GuardMode::Alert, GuardMode::Block];
    let known = modes.into_iter().find(|mode| guard_word(*mode) == text);
    known.ok_or_else(|| format!("'{text}' is not a guard: use off, alert or block"))
}

/// `off`, `all`, or the words of some acts.
pub fn audit_words(acts: FileActs) -> String {
    if acts == FileActs::NONE {
        return "off".to_owned();
    }
    if acts == FileActs::of(FileAct::ALL) {
        return "all".to_owned();
    }
    let words: Vec<&str> = FileAct::ALL.into_iter().filter(|act| acts.has(*act)).map(FileAct::word).collect();
    words.join(",")
}

pub fn parse_audit(text: &str) -> Result<FileActs, String> {
    match text {
        "off" | "no" => return Ok(FileActs::NONE),
        "all" | "yes" => return Ok(FileActs::of(FileAct::ALL)),
        _ => {}
    }
    let mut acts = Vec::new();
    for word in text.split(',').map(str::trim) {
        acts.push(FileAct::ALL.into_iter().find(|act| act.word() == word).ok_or_else(|| {
            format!("'{word}' is not audited: use off, all, or some of created, removed, renamed, permissions")
        })?);
    }
    Ok(FileActs::of(acts))
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
        if self.smb && self.is_for_nobody() {
            notes.push(format!(
                "share '{name}' lists no user, so nobody may use it over SMB: name some with users = [...], or write \
                 users = \"all\""
            ));
        }
        if self.nfs && self.nfs_networks().is_none() {
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
        if self.encrypt && self.nfs_networks().is_some() {
            notes.push(format!(
                "share '{name}' requires encryption over SMB, and is exported over NFS, which does not encrypt: write \
                 nfs = false if nothing may be sent in clear"
            ));
        }
        notes
    }
}

/// `share.bound_of_whole_volume`
pub fn check_time_machine(
    wanted: Option<TimeMachine>,
    volume: Option<&VolumeName>,
    folder: &str,
    smb: bool,
) -> Result<(), String> {
    match wanted {
        Some(_) if !smb => Err("Time Machine reaches a share by SMB alone: smb = true".to_owned()),
        Some(TimeMachine { size: Some(_) }) if volume.is_none() || !folder.is_empty() => Err(
            "a size of Time Machine needs a share of a whole volume: larder volume create NAME makes one, with its share"
                .to_owned(),
        ),
        _ => Ok(()),
    }
}

/// How long removals are kept where nothing is said.
pub const RECYCLE_DAYS: u32 = 30;

/// From a day to a hundred years.
pub fn check_recycle_days(days: u32) -> Result<u32, String> {
    const DAYS_MAX: u32 = 36_500;
    if !(1..=DAYS_MAX).contains(&days) {
        return Err(format!("a recycle bin keeps files for 1 to {DAYS_MAX} days, not {days}: without one write false"));
    }
    Ok(days)
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
        if volume.is_none() && raw.snapshots_shown == Some(true) {
            return Err(self.wrong(
                &raw.name,
                "a folder of this machine has no snapshots: leave snapshots_shown out, or share a volume",
            ));
        }
        let networks = |list: Vec<Spanned<String>>| {
            list.iter().map(|n| self.at(n, parse_network(n.get_ref()))).collect::<Checked<_>>()
        };
        let squash = self.optional(raw.squash, parse_squash)?;
        let encrypt = self.optional(raw.encrypt, |text| match text {
            "offered" => Ok(false),
            "required" => Ok(true),
            _ => Err(format!("'{text}' is not an encryption rule: use offered or required")),
        })?;
        let users = match (raw.users, &raw.read_only_users) {
            (Some(users), _) => self.writers(users, config)?,
            (None, Some(_)) => Writers::Listed(Vec::new()),
            (None, None) => Writers::All,
        };
        let time_machine = match &raw.time_machine {
            None => None,
            Some(word) => self.at(word, TimeMachine::parse(&word.get_ref().word()))?,
        };
        check_time_machine(time_machine, volume.as_ref(), &folder, raw.smb.unwrap_or(true))
            .map_err(|what| self.wrong(&raw.name, what))?;
        let rules = Share {
            name: raw.name.into_inner(),
            nfs: raw.nfs.unwrap_or(true),
            smb: raw.smb.unwrap_or(true),
            sftp: raw.sftp.unwrap_or(true),
            webdav: raw.webdav.unwrap_or(true),
            read_only: raw.read_only.unwrap_or(false),
            networks: raw.networks.map(networks).transpose()?,
            secure: raw.secure.unwrap_or(true),
            only_from: raw.only_from.map(networks).transpose()?,
            squash: squash.unwrap_or(Squash::Root),
            anon_uid: raw.anon_uid.unwrap_or(NOBODY),
            anon_gid: raw.anon_gid.unwrap_or(NOBODY),
            users,
            read_only_users: self.users(raw.read_only_users.unwrap_or_default(), config)?,
            encrypt: encrypt.unwrap_or(false),
            guest: raw.guest.unwrap_or(false),
            common: raw.common.unwrap_or(false),
        };
        Ok(ShareConfig {
            rules,
            volume,
            folder,
            recycle_days: match raw.recycle {
                None => None,
                Some(raw) => match raw.get_ref() {
                    RawRecycle::Word(false) => None,
                    RawRecycle::Word(true) => Some(RECYCLE_DAYS),
                    RawRecycle::Days(days) => Some(self.at(&raw, check_recycle_days(*days))?),
                },
            },
            snapshots_shown: raw.snapshots_shown.unwrap_or(false),
            normalize: raw.normalize.unwrap_or(false),
            guard: self.optional(raw.guard, parse_guard)?.unwrap_or(GuardMode::Alert),
            audit: self.optional(raw.audit, parse_audit)?.unwrap_or_default(),
            time_machine,
        })
    }

    fn writers(&self, users: Spanned<RawUsers>, config: &Config) -> Checked<Writers> {
        let word = match users.get_ref() {
            RawUsers::Word(word) => word,
            RawUsers::List(names) => return Ok(Writers::Listed(self.users(names.clone(), config)?)),
        };
        match word.as_str() {
            "all" => Ok(Writers::All),
            _ => Err(self.wrong(
                &users,
                format!("users is \"all\" or a list: for the user '{word}' alone write users = [\"{word}\"]"),
            )),
        }
    }

    fn users(&self, names: Vec<Spanned<String>>, config: &Config) -> Checked<Vec<String>> {
        let known = |name: Spanned<String>| {
            self.at(&name, config.check_entry(name.get_ref()))?;
            Ok(name.into_inner())
        };
        names.into_iter().map(known).collect()
    }
}
