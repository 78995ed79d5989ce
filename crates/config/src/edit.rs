//! Edits of the file as a person would make them: an entry is added, changed or taken out, and every
//! comment and blank line elsewhere stays.
//!
//! - `edit.validated_whole`: a file is validated as a whole before it is saved, and replaces the
//!   old file in one step.
//! - `edit.over_what_was_read`: a file that somebody else saved since it was read is not replaced. No filesystem compares and renames
//!   in one step, so the last look is the one before the rename: microseconds stay.
//! - `edit.staged_before_deeds`: a change of more than the file stages the file first. The new file is checked and lies beside the
//!   old one, so that a folder that is full or read-only refuses the change while everything is as before. Then comes the deed,
//!   and the rename at last.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use larder_api::setting::{Kind, Setting};
use larder_api::share::SETTINGS;
use larder_api::{Failure, SnapshotCounts, UserRole, VolumeChange};
use larder_base::units::ByteSize;
use toml_edit::{Array, ArrayOfTables, DocumentMut, InlineTable, Item, Table, Value, value};

use super::schema::toml_of;
use super::{
    Config, GroupConfig, Listen, MountConfig, PageListen, Place, PoolConfig, ReplicaConfig, ReplicateConfig, Schedule,
    ShareConfig, UserConfig, VolumeConfig, VolumeName, group::GROUP_SIGN,
};

/// The file's text, being edited.
pub struct Editor {
    file: PathBuf,
    document: DocumentMut,
    /// What the text meant when it was read.
    read: Arc<Config>,
    /// Lines end as on Windows. The document knows only one kind of line end.
    has_crlf: bool,
    /// What the file had when it was read.
    was: Option<String>,
}

impl Editor {
    pub fn open(file: &Path) -> Result<Editor, Failure> {
        Editor::open_after(file, None)
    }

    /// The same; where the file still is what was `saved` last, its meaning is known.
    pub fn open_after(file: &Path, saved: Option<&Saved>) -> Result<Editor, Failure> {
        let text = super::read_text(file)?;
        let read = match saved {
            Some(saved) if saved.text == text => Arc::clone(&saved.config),
            _ => Arc::new(Config::parse(&text, file)?),
        };
        Ok(Editor { was: Some(text.clone()), ..Editor::parse(&text, file, read)? })
    }

    /// Edits `text` as the contents of `file`.
    pub fn of(text: &str, file: &Path) -> Result<Editor, Failure> {
        Editor::parse(text, file, Arc::new(Config::parse(text, file)?))
    }

    fn parse(text: &str, file: &Path, read: Arc<Config>) -> Result<Editor, Failure> {
        let document = text.parse().map_err(|e: toml_edit::TomlError| Failure::invalid(e.to_string()))?;
        let has_crlf = text.split_once('\n').is_some_and(|(first, _)| first.ends_with('\r'));
        Ok(Editor { file: file.to_owned(), document, read, has_crlf, was: None })
    }

    /// As it is edited so far.
    pub fn text(&self) -> String {
        let text = self.document.to_string();
        if self.has_crlf { text.replace("\r\n", "\n").replace('\n', "\r\n") } else { text }
    }

    /// The meaning of the file before it is edited.
    pub fn read(&self) -> Arc<Config> {
        Arc::clone(&self.read)
    }

    /// The meaning of the file as it is edited so far.
    pub fn config(&self) -> Result<Config, Failure> {
        Config::parse(&self.document.to_string(), &self.file)
    }

    /// Validates the whole, saves it atomically and durably (`edit.validated_whole`), and returns
    /// what it means.
    pub fn save(self) -> Result<Config, Failure> {
        Ok(Arc::unwrap_or_clone(self.stage()?.commit()?.config))
    }

    /// Does all of `save` but the last step (`edit.staged_before_deeds`).
    pub fn stage(self) -> Result<Staged, Failure> {
        let text = self.text();
        let config = Arc::new(Config::parse(&text, &self.file)?);
        let beside = Beside::write(&self.file, text.as_bytes(), 0o600)?;
        Ok(Staged { saved: Saved { text, config }, beside, was: self.was })
    }

    pub fn add_pool(&mut self, pool: &PoolConfig) {
        let folder = self.file.parent().unwrap_or(Path::new("")).to_owned();
        let mut table = Table::new();
        table.insert("name", value(&pool.name));
        table.insert("disks", value(disk_names(&pool.disks, &folder)));
        if pool.scrub != Schedule::default() {
            table.insert("scrub", value(pool.scrub.word()));
        }
        self.tables("pool").push(table);
    }

    /// The pools, volumes, shares and users of a configuration whose file has none, and the name of the box.
    pub fn add_entries(&mut self, config: &Config) {
        config.pools.iter().for_each(|pool| self.add_pool(pool));
        for volume in &config.volumes {
            self.tables("volume").push(volume_table(volume));
        }
        config.shares.iter().for_each(|share| self.add_share(share));
        config.users.iter().for_each(|user| self.add_user(user));
        if let Some(name) = &config.discovery.name {
            let section = self.document.entry("discovery").or_insert_with(|| Item::Table(Table::new()));
            if let Some(section) = section.as_table_like_mut() {
                section.insert("name", value(name));
            }
        }
    }

    /// Names other disks for a pool. Whether there is such a pool.
    pub fn set_pool_disks(&mut self, name: &str, disks: &[PathBuf]) -> bool {
        let folder = self.file.parent().unwrap_or(Path::new("")).to_owned();
        let is_it = |table: &&mut Table| text(table, "name") == Some(name);
        let Some(table) = self.tables("pool").iter_mut().find(is_it) else { return false };
        table.insert("disks", value(disk_names(disks, &folder)));
        true
    }

    /// Sets how often a pool is scrubbed by itself. Whether there is such a pool.
    pub fn set_scrub(&mut self, pool: &str, schedule: Schedule) -> bool {
        let is_it = |table: &&mut Table| text(table, "name") == Some(pool);
        let Some(table) = self.tables("pool").iter_mut().find(is_it) else { return false };
        table.insert("scrub", value(schedule.word()));
        true
    }

    /// Sets how many automatic snapshots of a volume are kept; `None`: none is taken any more.
    pub fn set_snapshots(&mut self, name: &VolumeName, keep: Option<SnapshotCounts>) {
        let name = name.to_string();
        let tables = self.tables("volume");
        let is_known = tables.iter().any(|t| text(t, "name") == Some(&name));
        let Some(keep) = keep else {
            let of_volume = tables.iter_mut().filter(|t| text(t, "name") == Some(&name));
            return of_volume.for_each(|table| drop(table.remove("snapshots")));
        };
        if !is_known {
            let mut table = Table::new();
            table.insert("name", value(&name));
            tables.push(table);
        }
        if let Some(table) = tables.iter_mut().find(|t| text(t, "name") == Some(&name)) {
            table.insert("snapshots", value(counts(keep)));
        }
    }

    /// The data folder is where the file is.
    pub fn forget_data_folder(&mut self) {
        self.document.remove("data");
    }

    /// The addresses of `other` take the place of its own.
    pub fn take_doors(&mut self, other: &Editor) {
        match other.document.get("listen") {
            Some(listen) => drop(self.document.insert("listen", listen.clone())),
            None => drop(self.document.remove("listen")),
        }
        let listen = |document: &DocumentMut| document.get("page").and_then(|page| page.get("listen")).cloned();
        match (listen(&other.document), self.document.get_mut("page").and_then(Item::as_table_like_mut)) {
            (Some(listen), Some(page)) => drop(page.insert("listen", listen)),
            (None, Some(page)) => drop(page.remove("listen")),
            (Some(_), None) => {
                let page = other.document.get("page").cloned().unwrap_or_default();
                self.document.insert("page", page);
            }
            (None, None) => {}
        }
    }

    /// This machine's pools, doors and mounts with the people of another box and its shares of `source`, which are of `here` from now
    /// on. Returns the text, and the shares of other volumes, which are left out.
    pub fn becoming(
        mut self,
        other: &str,
        source: &VolumeName,
        here: &VolumeName,
    ) -> Result<(String, Vec<String>), Failure> {
        let mut other = Editor::of(other, &self.file)?;
        let of_source = |table: &Table| text(table, "volume") == Some(&source.to_string());
        let left_out = other.tables("share").iter().filter(|table| !of_source(table)).filter_map(|t| text(t, "name"));
        let left_out = left_out.map(str::to_owned).collect();
        other.tables("share").retain(of_source);
        other.tables("share").iter_mut().for_each(|table| drop(table.insert("volume", value(here.to_string()))));
        for key in ["next_uid", "user", "group", "share", "alert", "discovery", "sftp", "nfs"] {
            self.document.remove(key);
            if let Some(item) = other.document.remove(key) {
                // Tables stand where they stood in the other file; a plain value stands before all of them.
                self.document.insert(key, item);
            }
        }
        self.check()?;
        Ok((self.text(), left_out))
    }

    /// Validates the whole as it would be saved.
    pub fn check(&self) -> Result<(), Failure> {
        Config::parse(&self.document.to_string(), &self.file).map(drop)
    }

    /// Lets everything that names a pool name it anew: its volumes with their schedules, shares, mounts and replications.
    pub fn rename_pool(&mut self, old: &str, new: &str) {
        let renamed = |name: &str| match name.split_once('/') {
            Some((pool, rest)) if pool == old => Some(format!("{new}/{rest}")),
            None if name == old => Some(new.to_owned()),
            _ => None,
        };
        let keys = [
            ("pool", "name"),
            ("store", "journal"),
            ("volume", "name"),
            ("share", "volume"),
            ("mount", "volume"),
            ("replicate", "volume"),
            ("replicate", "to"),
            ("replica", "name"),
        ];
        for (kind, key) in keys {
            for table in self.tables(kind).iter_mut() {
                let Some(renamed) = text(table, key).and_then(renamed) else { continue };
                if let Some(old) = table.get_mut(key).and_then(Item::as_value_mut) {
                    replace_value(old, &Value::from(renamed));
                }
            }
        }
    }

    /// Takes out a pool with its volumes and shares.
    pub fn remove_pool(&mut self, name: &str) {
        let within = |table: &Table, key: &str| text(table, key).is_some_and(|v| v.split('/').next() == Some(name));
        for kind in ["pool", "store"] {
            self.tables(kind).retain(|t| text(t, "name") != Some(name));
        }
        self.tables("volume").retain(|t| !within(t, "name"));
        self.tables("share").retain(|t| !within(t, "volume"));
        self.tables("mount").retain(|t| !within(t, "volume"));
        self.tables("replicate").retain(|t| !within(t, "volume"));
        self.tables("replica").retain(|t| !within(t, "name"));
    }

    pub fn add_share(&mut self, share: &ShareConfig) {
        let table = share_table(share, &SETTINGS);
        self.tables("share").push(table);
    }

    /// Takes out a volume and the shares of it.
    pub fn remove_volume(&mut self, name: &VolumeName) {
        let name = name.to_string();
        self.tables("volume").retain(|t| text(t, "name") != Some(&name));
        self.tables("share").retain(|t| text(t, "volume") != Some(&name));
        self.tables("mount").retain(|t| text(t, "volume") != Some(&name));
        self.tables("replicate").retain(|t| text(t, "volume") != Some(&name));
        self.tables("replica").retain(|t| text(t, "name") != Some(&name));
    }

    /// Lets everything that names a volume name the one that takes its place. It is replicated to that place no more.
    pub fn move_volume(&mut self, from: &VolumeName, to: &VolumeName) {
        self.remove_replicate(from, &Place::Here(to.clone()));
        let (from, to) = (from.to_string(), to.to_string());
        self.tables("replica").retain(|t| text(t, "name") != Some(&to));
        for (kind, key) in [("volume", "name"), ("share", "volume"), ("mount", "volume"), ("replicate", "volume")] {
            for table in self.tables(kind).iter_mut().filter(|t| text(t, key) == Some(&from)) {
                if let Some(old) = table.get_mut(key).and_then(Item::as_value_mut) {
                    replace_value(old, &Value::from(&to));
                }
            }
        }
    }

    /// Names a volume to replicate, or changes what is said of that.
    pub fn set_replicate(&mut self, replicate: &ReplicateConfig) {
        let (volume, to) = (replicate.volume.to_string(), &replicate.to);
        let is_it =
            |t: &Table| text(t, "volume") == Some(&volume) && text(t, "to").is_some_and(|named| leads(named, to));
        let tables = self.tables("replicate");
        if !tables.iter().any(is_it) {
            let mut table = Table::new();
            table.insert("volume", value(&volume));
            table.insert("to", value(to.to_string()));
            tables.push(table);
        }
        let Some(table) = tables.iter_mut().find(|table| is_it(table)) else { return };
        if let Some(limit) = replicate.limit {
            table.insert("limit", value(limit.exact()));
        }
        if let Some(machine) = &replicate.machine {
            table.insert("machine", value(machine));
        }
        if replicate.as_files {
            table.insert("as_files", value(true));
        }
    }

    pub fn remove_replicate(&mut self, volume: &VolumeName, to: &Place) {
        let volume = volume.to_string();
        let leads = |t: &Table| text(t, "to").is_some_and(|named| leads(named, to));
        self.tables("replicate").retain(|t| text(t, "volume") != Some(&volume) || !leads(t));
    }

    /// Names a replica, or changes the retention and the machines of one.
    pub fn set_replica(&mut self, replica: &ReplicaConfig) {
        let name = replica.name.to_string();
        let tables = self.tables("replica");
        if !tables.iter().any(|t| text(t, "name") == Some(&name)) {
            let mut table = Table::new();
            table.insert("name", value(&name));
            tables.push(table);
        }
        let Some(table) = tables.iter_mut().find(|t| text(t, "name") == Some(&name)) else { return };
        if let Some(keep) = replica.keep {
            table.insert("keep", value(counts(keep)));
        }
        match replica.quota_bytes {
            Some(bytes) => drop(table.insert("quota", value(ByteSize(bytes).exact()))),
            None => drop(table.remove("quota")),
        }
        if !replica.from.is_empty() {
            table.insert("from", value(replica.from.iter().collect::<Array>()));
        }
    }

    /// Properties that the file sets for this volume follow the change; others are the volume's own affair.
    pub fn set_volume(&mut self, name: &VolumeName, change: &VolumeChange) {
        let name = name.to_string();
        let Some(table) = self.tables("volume").iter_mut().find(|t| text(t, "name") == Some(&name)) else { return };
        let mut set = |key: &str, new: Option<String>| {
            if let (Some(new), true) = (new, table.contains_key(key)) {
                table.insert(key, value(new));
            }
        };
        set("record_size", change.record_bytes.map(|bytes| ByteSize(bytes.into()).exact()));
        set("compression", change.compression.clone());
        set(
            "quota",
            change.quota_bytes.map(|bytes| if bytes == 0 { "none".to_owned() } else { ByteSize(bytes).exact() }),
        );
        set("sync", change.sync.clone());
        for (key, quotas) in [("user_quotas", &change.user_quotas), ("group_quotas", &change.group_quotas)] {
            let Some(list) = table.get_mut(key).and_then(Item::as_table_like_mut) else { continue };
            for (owner, bytes) in quotas {
                let size = if *bytes == 0 { "none".to_owned() } else { ByteSize(*bytes).exact() };
                list.insert(owner, value(size));
            }
        }
    }

    /// Names a mount, in place of one on the same folder.
    pub fn set_mount(&mut self, mount: &MountConfig) {
        self.remove_mount(&mount.dir);
        let mut table = Table::new();
        table.insert("dir", value(mount.dir.to_string_lossy().into_owned()));
        table.insert("volume", value(mount.volume.to_string()));
        if !mount.options.is_empty() {
            table.insert("options", value(mount.options.iter().collect::<Array>()));
        }
        if let Some(snapshot) = &mount.snapshot {
            table.insert("snapshot", value(snapshot));
        }
        self.tables("mount").push(table);
    }

    /// Returns whether there was one.
    pub fn remove_mount(&mut self, dir: &Path) -> bool {
        let folder = self.file.parent().unwrap_or(Path::new("")).to_owned();
        let tables = self.tables("mount");
        let before = tables.len();
        tables.retain(|t| text(t, "dir").is_none_or(|named| folder.join(named) != dir));
        tables.len() < before
    }

    pub fn add_user(&mut self, user: &UserConfig) {
        let table = user_table(user);
        self.tables("user").push(table);
    }

    pub fn add_group(&mut self, group: &GroupConfig) {
        let mut table = Table::new();
        table.insert("name", value(&group.name));
        table.insert("gid", value(i64::from(group.gid)));
        table.insert("members", value(group.members.iter().collect::<Array>()));
        self.tables("group").push(table);
    }

    /// Takes out a group, also from the lists of shares; its number is not given again.
    pub fn remove_group(&mut self, name: &str) {
        let gid = self.tables("group").iter().find(|t| text(t, "name") == Some(name)).and_then(|t| integer(t, "gid"));
        self.tables("group").retain(|t| text(t, "name") != Some(name));
        self.keep_free(gid.unwrap_or(0));
        self.unlist("share", &people(), &format!("{GROUP_SIGN}{name}"));
    }

    pub fn set_members(&mut self, group: &str, members: &[String]) {
        self.set_list("group", group, "members", members);
    }

    pub fn set_role(&mut self, user: &str, role: UserRole) {
        let Some(table) = self.tables("user").iter_mut().find(|t| text(t, "name") == Some(user)) else { return };
        table.insert("role", value(role.word()));
    }

    pub fn set_ssh_keys(&mut self, user: &str, keys: &[String]) {
        self.set_list("user", user, "ssh_keys", keys);
    }

    /// Makes a list of one table what it should be. Entries that stay keep their comments.
    fn set_list(&mut self, kind: &str, name: &str, key: &str, wanted: &[String]) {
        let Some(table) = self.tables(kind).iter_mut().find(|t| text(t, "name") == Some(name)) else { return };
        let list = table.entry(key).or_insert_with(|| value(Array::new()));
        let Some(list) = list.as_array_mut() else { return };
        list.retain(|v| v.as_str().is_some_and(|v| wanted.iter().any(|wanted| wanted == v)));
        for entry in wanted {
            if !list.iter().any(|v| v.as_str() == Some(entry)) {
                list.push(entry);
            }
        }
        if list.is_empty() && key == "ssh_keys" {
            table.remove(key);
        }
    }

    /// Takes an entry out of the lists `keys` of all tables of a kind.
    fn unlist(&mut self, kind: &str, keys: &[&str], entry: &str) {
        for table in self.tables(kind).iter_mut() {
            for key in keys {
                if let Some(list) = table.get_mut(key).and_then(Item::as_array_mut) {
                    list.retain(|v| v.as_str() != Some(entry));
                }
            }
        }
    }

    /// Takes out a user, also from the lists of groups and shares. A list that becomes empty admits
    /// nobody (`share.listed_people_only`).
    pub fn remove_user(&mut self, name: &str) {
        let uid = self.tables("user").iter().find(|t| text(t, "name") == Some(name)).and_then(|t| integer(t, "uid"));
        self.tables("user").retain(|t| text(t, "name") != Some(name));
        self.keep_free(uid.unwrap_or(0));
        self.unlist("share", &people(), name);
        self.unlist("group", &["members"], name);
    }

    /// Keeps the numbers of users and groups that are left out now, and of those before them, from new ones. Returns whether
    /// that changed anything.
    pub fn keep_numbers(&mut self, before: &Config) -> Result<bool, Failure> {
        let now = self.config()?;
        self.keep_free(i64::from(before.next_uid) - 1);
        for user in before.users.iter().filter(|user| !now.users.iter().any(|one| one.name == user.name)) {
            self.keep_free(user.uid.into());
        }
        for group in before.groups.iter().filter(|group| !now.groups.iter().any(|one| one.name == group.name)) {
            self.keep_free(group.gid.into());
        }
        Ok(self.config()?.next_uid != now.next_uid)
    }

    /// Keeps a number from new users, since files of the removed user still have it
    /// (`user.numbers_never_reused`).
    fn keep_free(&mut self, uid: i64) {
        /// Above these, numbers are chosen by people and may be anything.
        const CHOSEN_MAX: i64 = 1 << 20;
        let next = self.document.get("next_uid").and_then(Item::as_integer).unwrap_or(0);
        if uid >= next.max(1000) && uid < CHOSEN_MAX {
            if let Some(there) = self.document.get_mut("next_uid").and_then(Item::as_value_mut) {
                return replace_value(there, &Value::from(uid + 1));
            }
            // The file's head stands before its first table; a key that comes before that table takes the head along.
            let first = self.document.iter_mut().next().and_then(|(_, item)| item.as_table_mut());
            let head = first.map(|table| std::mem::take(table.decor_mut()));
            self.document.insert("next_uid", value(uid + 1));
            let head = head.as_ref().and_then(|decor| decor.prefix()?.as_str());
            if let (Some(head), Some(mut key)) = (head, self.document.key_mut("next_uid")) {
                key.leaf_decor_mut().set_prefix(head);
            }
        }
    }

    /// Writes what has changed into the share's table; the rest stays as a person wrote it. False: there is none of that name.
    pub fn set_share(&mut self, share: &ShareConfig) -> bool {
        self.set_share_of(share, &SETTINGS)
    }

    fn set_share_of(&mut self, share: &ShareConfig, settings: &[&Setting]) -> bool {
        let new = share_table(share, settings);
        let Some(old) = self.tables("share").iter_mut().find(|t| text(t, "name") == Some(&share.name)) else {
            return false;
        };
        for key in ["volume", "folder"].into_iter().chain(settings.iter().map(|setting| setting.key)) {
            match (new.get(key).and_then(Item::as_value), old.get_mut(key).and_then(Item::as_value_mut)) {
                (Some(new), Some(old)) => replace_value(old, new),
                (Some(new), None) => drop(old.insert(key, Item::Value(new.clone()))),
                (None, _) => drop(old.remove(key)),
            }
        }
        true
    }

    pub fn remove_share(&mut self, name: &str) -> bool {
        let shares = self.tables("share");
        let before = shares.len();
        shares.retain(|t| text(t, "name") != Some(name));
        shares.len() < before
    }

    fn tables(&mut self, key: &str) -> &mut ArrayOfTables {
        let item = self.document.entry(key).or_insert_with(|| Item::ArrayOfTables(ArrayOfTables::new()));
        // An inline `user = []` is valid TOML for an empty list: make it the form that can grow.
        if !item.is_array_of_tables() {
            let inline = std::mem::take(item);
            *item = Item::ArrayOfTables(inline.into_array_of_tables().unwrap_or_default());
        }
        match item {
            Item::ArrayOfTables(tables) => tables,
            _ => unreachable!("made an array of tables just above"),
        }
    }
}

/// The settings of a share that list people.
fn people() -> Vec<&'static str> {
    let lists = |setting: &&Setting| matches!(setting.kind, Kind::Everybody | Kind::Names);
    SETTINGS.into_iter().filter(lists).map(|setting| setting.key).collect()
}

/// Whether a place of the file is that one, in whichever way it is written.
fn leads(named: &str, to: &Place) -> bool {
    Place::parse(named).as_ref() == Ok(to)
}

/// The file that `larder up` writes on its first run.
pub fn fresh(config: &Config, folder: &Path) -> String {
    let mut text = String::from(
        "# What larder serves. `larder up` wrote this on its first run and has read it since. Edit it by hand, then\n\
         # restart larder or send it SIGHUP (shares and users take effect at once). Passwords are kept elsewhere.\n\n",
    );
    text.push_str(&listen_text(&config.listen));
    // The usual place stays unsaid.
    match config.page.listen {
        Some(PageListen::At(addr)) => text.push_str(&format!("\n[page]\nlisten = \"{addr}\"\n")),
        Some(PageListen::Off) => text.push_str("\n[page]\nlisten = \"off\"\n"),
        Some(PageListen::Usual(_)) | None => {}
    }
    text.push_str(
        "\n[limits]\n# Caches and unwritten data of all volumes together; a quarter of RAM when not given.\n",
    );
    match config.memory {
        Some(memory) => text.push_str(&format!("memory = \"{}\"\n", memory.exact())),
        None => text.push_str("# memory = \"2GiB\"\n"),
    }
    let mut document = DocumentMut::new();
    let mut pools = ArrayOfTables::new();
    for pool in &config.pools {
        let mut table = Table::new();
        table.insert("name", value(&pool.name));
        table.insert("disks", value(disk_names(&pool.disks, folder)));
        pools.push(table);
    }
    if !config.stores.is_empty() {
        document.insert("store", Item::ArrayOfTables(config.stores.iter().map(super::store::table).collect()));
    }
    let mut volumes = ArrayOfTables::new();
    for volume in &config.volumes {
        volumes.push(volume_table(volume));
    }
    if let Some(name) = &config.discovery.name {
        let mut table = Table::new();
        table.insert("name", value(name));
        document.insert("discovery", Item::Table(table));
    }
    if !config.pools.is_empty() {
        document.insert("pool", Item::ArrayOfTables(pools));
    }
    document.insert("volume", Item::ArrayOfTables(volumes));
    document.insert(
        "share",
        Item::ArrayOfTables(config.shares.iter().map(|share| share_table(share, &SETTINGS)).collect()),
    );
    document.insert("user", Item::ArrayOfTables(config.users.iter().map(user_table).collect()));
    text.push('\n');
    text.push_str(&document.to_string());
    text
}

/// As a first run makes it.
fn volume_table(volume: &VolumeConfig) -> Table {
    let mut table = Table::new();
    table.insert("name", value(volume.name.to_string()));
    if let Some(kept) = &volume.snapshots {
        table.insert("snapshots", value(counts_table(kept)));
    }
    table
}

fn counts_table(kept: &SnapshotCounts) -> InlineTable {
    let kinds = [("hourly", kept.hourly), ("daily", kept.daily), ("weekly", kept.weekly), ("monthly", kept.monthly)];
    kinds.into_iter().filter(|(_, count)| *count > 0).map(|(kind, count)| (kind, i64::from(count))).collect()
}

fn listen_text(listen: &Listen) -> String {
    let word = |addr: Option<std::net::SocketAddr>| addr.map_or("off".to_owned(), |a| a.to_string());
    let mut text = format!("[listen]\nnfs = \"{}\"\nsmb = \"{}\"\n", word(listen.nfs), word(listen.smb));
    if let Some(sftp) = listen.sftp {
        text.push_str(&format!("sftp = \"{sftp}\"\n"));
    }
    if let Some(webdav) = listen.webdav {
        text.push_str(&format!("webdav = \"{webdav}\"\n"));
    }
    if let Some(webdavs) = listen.webdavs {
        text.push_str(&format!("webdavs = \"{webdavs}\"\n"));
    }
    if let Some(replication) = listen.replication {
        text.push_str(&format!("replication = \"{replication}\"\n"));
    }
    if let Some(portmapper) = listen.portmapper {
        text.push_str(&format!("portmapper = \"{portmapper}\"\n"));
    }
    if let Some(metrics) = listen.metrics {
        text.push_str(&format!("\n[metrics]\nlisten = \"{metrics}\"\n"));
    }
    text
}

/// Disks within the file's folder are named relative to it, so that the folder may be moved.
fn disk_names(disks: &[PathBuf], folder: &Path) -> Array {
    let name = |disk: &PathBuf| disk.strip_prefix(folder).unwrap_or(disk).to_string_lossy().into_owned();
    disks.iter().map(name).collect()
}

fn share_table(share: &ShareConfig, settings: &[&Setting]) -> Table {
    let mut table = Table::new();
    table.insert("name", value(&share.name));
    if let Some(volume) = &share.volume {
        table.insert("volume", value(volume.to_string()));
    }
    if !share.folder.is_empty() {
        table.insert("folder", value(&share.folder));
    }
    for setting in settings {
        let to = share.value(setting);
        if let (true, Some(to)) = (setting.is_written || to != setting.default(), setting_value(setting, &to)) {
            table.insert(setting.key, value(to));
        }
    }
    table
}

/// As the file has it.
pub(super) fn setting_value(setting: &Setting, to: &serde_json::Value) -> Option<Value> {
    match (setting.kind, to) {
        (Kind::Pair(words, _), to) => Some(words[usize::from(*to == true)].into()),
        (Kind::Days { .. }, serde_json::Value::Number(days)) => {
            Some(InlineTable::from_iter([("days", days.as_i64()?)]).into())
        }
        (Kind::Size { .. }, to) if *to == "yes" => Some(true.into()),
        _ => toml_of(to),
    }
}

fn user_table(user: &UserConfig) -> Table {
    let mut table = Table::new();
    table.insert("name", value(&user.name));
    table.insert("uid", value(i64::from(user.uid)));
    table.insert("gid", value(i64::from(user.gid)));
    if !user.groups.is_empty() {
        let list: Array = user.groups.iter().map(|&gid| Value::from(i64::from(gid))).collect();
        table.insert("groups", value(list));
    }
    if !user.ssh_keys.is_empty() {
        table.insert("ssh_keys", value(user.ssh_keys.iter().collect::<Array>()));
    }
    if user.role != UserRole::default() {
        table.insert("role", value(user.role.word()));
    }
    table
}

/// Replaces a value if the new one differs; a comment behind the old value stays.
fn replace_value(old: &mut Value, new: &Value) {
    let plain = |value: &Value| {
        let mut value = value.clone();
        value.decor_mut().clear();
        value
    };
    let mut new = plain(new);
    if plain(old).to_string() != new.to_string() {
        *new.decor_mut() = old.decor().clone();
        *old = new;
    }
}

fn integer(table: &Table, key: &str) -> Option<i64> {
    table.get(key).and_then(Item::as_integer)
}

fn text<'a>(table: &'a Table, key: &str) -> Option<&'a str> {
    table.get(key).and_then(Item::as_str)
}

/// Writes beside and renames over; the old file or the new one is there at every moment. The owner, the group and the mode of
/// the old one stay; `mode` is that of a file that was not there. A symbolic link stays one: the file that it names is replaced.
pub fn replace_file(file: &Path, bytes: &[u8], mode: u32) -> Result<(), Failure> {
    replace(file, bytes, (mode, None))
}

/// The same, if the file still is what was read (`edit.over_what_was_read`).
pub fn replace_same(file: &Path, bytes: &[u8], was: &str) -> Result<(), Failure> {
    replace(file, bytes, (0o600, Some(was)))
}

/// Whether a file could be replaced by so many bytes now; it stays as it is.
pub fn check_replaceable(file: &Path, bytes: &[u8]) -> Result<(), Failure> {
    Beside::write(file, bytes, 0o600).map(drop)
}

fn replace(file: &Path, bytes: &[u8], (mode, was): (u32, Option<&str>)) -> Result<(), Failure> {
    Beside::write(file, bytes, mode)?.rename(was)
}

/// A new file that is written, durable and dressed, and does not have its name yet. It goes away unless it gets that.
struct Beside {
    /// The file to replace.
    file: PathBuf,
    new: PathBuf,
    is_named: bool,
}

impl Beside {
    fn write(file: &Path, bytes: &[u8], mode: u32) -> Result<Beside, Failure> {
        use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
        /// Read, write and search of owner, group and others.
        const PERMISSIONS: u32 = 0o777;
        let named = if file.is_symlink() { std::fs::canonicalize(file).ok() } else { None };
        let file = named.as_deref().unwrap_or(file);
        let mut name = file.file_name().unwrap_or_default().to_owned();
        name.push(".new");
        let beside = Beside { file: file.to_owned(), new: file.with_file_name(name), is_named: false };
        let write = || -> std::io::Result<()> {
            let _ = std::fs::remove_file(&beside.new);
            let old = std::fs::metadata(file).ok();
            // Nobody else reads it before it is whole and dressed.
            let mut new =
                std::fs::OpenOptions::new().write(true).create_new(true).mode(mode & 0o600).open(&beside.new)?;
            new.write_all(bytes)?;
            // A new one is the folder's. Only root gives files away: whoever may not owns it.
            let of = old.clone().or_else(|| std::fs::metadata(file.parent()?).ok());
            if let Some(of) = of {
                let _ = fchown(&new, Some(of.uid()), Some(of.gid()));
            }
            let mode = old.map_or(mode, |old| old.mode() & PERMISSIONS);
            new.set_permissions(std::fs::Permissions::from_mode(mode))?;
            new.sync_all()
        };
        write().map_err(|error| beside.failed(&error))?;
        Ok(beside)
    }

    /// Gives it its name, unless the file is another than it was.
    fn rename(mut self, was: Option<&str>) -> Result<(), Failure> {
        let file = self.file.clone();
        if was.is_some_and(|was| std::fs::read(&file).is_ok_and(|now| now != was.as_bytes())) {
            let message = format!("somebody else saved {} meanwhile, and that is kept", file.display());
            return Err(Failure::busy(message).action("repeat the command"));
        }
        let mut rename = || -> std::io::Result<()> {
            std::fs::rename(&self.new, &file)?;
            self.is_named = true;
            match file.parent() {
                Some(folder) => File::open(folder)?.sync_all(),
                None => Ok(()),
            }
        };
        rename().map_err(|error| self.failed(&error))
    }

    fn failed(&self, error: &std::io::Error) -> Failure {
        Failure::io(format_args!("cannot write {}", self.file.display()), error)
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        if !self.is_named {
            let _ = std::fs::remove_file(&self.new);
        }
    }
}

/// A file of the configuration that only lacks its name (`edit.staged_before_deeds`).
pub struct Staged {
    saved: Saved,
    beside: Beside,
    was: Option<String>,
}

impl Staged {
    /// It is the file from now on.
    pub fn commit(self) -> Result<Saved, Failure> {
        self.beside.rename(self.was.as_deref())?;
        Ok(self.saved)
    }
}

/// A file that was saved: its text, and what that means.
pub struct Saved {
    text: String,
    pub config: Arc<Config>,
}

/// `{ hourly = 24, daily = 30 }`
fn counts(keep: SnapshotCounts) -> toml_edit::InlineTable {
    let kinds = [("hourly", keep.hourly), ("daily", keep.daily), ("weekly", keep.weekly), ("monthly", keep.monthly)];
    let some = kinds.into_iter().filter(|(_, count)| *count > 0);
    some.map(|(kind, count)| (kind, Value::from(i64::from(count)))).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    use larder_api::FailureKind;
    use larder_api::setting::EXAMPLE;
    use larder_people::Share;

    use super::*;
    use crate::raw_share::{RawShare, declared};
    use crate::schema::from_types::of_share;

    /// `settings.declared_once`: what one declaration brings to the file.
    #[test]
    fn a_declared_setting_is_read_and_edited() {
        static SETTINGS: [&Setting; 1] = [&EXAMPLE];
        let raw: RawShare = toml::from_str("name = \"s\"\nwaiting_tune = \"harp\"").unwrap();
        let (key, value) = &raw.settings[0];
        let setting = declared(key.get_ref(), &SETTINGS).unwrap();
        let mut share = ShareConfig::new(Share::new("s"), None);
        share.set(setting, value.get_ref().read(setting).unwrap()).unwrap();
        assert_eq!(share.words(&EXAMPLE), "harp");
        assert_eq!(share.set(&EXAMPLE, "drum".into()).unwrap_err(), "'drum' is not a tune: use none or harp");
        assert!(declared("waiting_tone", &SETTINGS).unwrap_err().contains("did you mean `waiting_tune`?"));
        assert_eq!(of_share(&SETTINGS).to_value()["properties"]["waiting_tune"]["enum"][1], "harp");

        // The text around it stays, byte for byte.
        let text = "# ours\n[[share]] # the only one\nname = \"s\"   # in blanks\nfolder = \"/srv/s\"\n\n# end\n";
        let mut editor = Editor::of(text, Path::new("/data/larder.toml")).unwrap();
        share.folder = "/srv/s".to_owned();
        assert!(editor.set_share_of(&share, &SETTINGS));
        let there = text.replace("\n\n# end", "\nwaiting_tune = \"harp\"\n\n# end");
        assert_eq!(editor.text(), there);
        share.set(&EXAMPLE, "none".into()).unwrap();
        assert!(editor.set_share_of(&share, &SETTINGS));
        assert_eq!(editor.text(), text, "the default is unsaid");
    }

    #[test]
    fn a_link_stays_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("kept/nas.toml"), folder.path().join("larder.toml"));
        std::fs::create_dir(folder.path().join("kept")).unwrap();
        std::fs::write(&file, "one").unwrap();
        std::os::unix::fs::symlink("kept/nas.toml", &link).unwrap();
        replace_file(&link, b"two", 0o600).unwrap();
        assert!(link.is_symlink());
        assert_eq!(std::fs::read(&file).unwrap(), b"two");
    }

    #[test]
    fn a_file_that_somebody_saved_meanwhile_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("larder.toml");
        std::fs::write(&file, "# one\n").unwrap();
        let editor = Editor::open(&file).unwrap();
        std::fs::write(&file, "# of an editor\n").unwrap();
        let refused = editor.save().unwrap_err();
        assert_eq!(refused.kind, FailureKind::Busy);
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "# of an editor\n");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left beside it");
        Editor::open(&file).unwrap().save().unwrap();
    }

    /// `edit.staged_before_deeds`
    #[test]
    fn a_staged_file_counts_from_its_commit_on() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("larder.toml");
        std::fs::write(&file, "[[pool]]\nname = \"tank\"\ndisks = [\"a\"]\n").unwrap();
        let stage = || {
            let mut editor = Editor::open(&file).unwrap();
            editor.remove_pool("tank");
            editor.stage()
        };
        let pools = || Config::load(&file).unwrap().pools.len();
        let entries = || std::fs::read_dir(folder.path()).unwrap().count();
        drop(stage().unwrap());
        assert_eq!((pools(), entries()), (1, 1), "given up, and nothing is left beside it");
        let staged = stage().unwrap();
        assert_eq!((pools(), entries()), (1, 2));
        assert_eq!(staged.commit().unwrap().config.pools.len(), 0);
        assert_eq!((pools(), entries()), (0, 1));
        // What is in the way here keeps even root from writing.
        std::fs::create_dir(folder.path().join("larder.toml.new")).unwrap();
        assert!(stage().err().unwrap().message.contains("cannot write"));
    }

    #[test]
    fn an_edit_keeps_the_ends_of_lines() {
        let check = |text: &str| {
            let mut editor = Editor::of(text, Path::new("/data/larder.toml")).unwrap();
            editor.remove_pool("tank");
            let edited = editor.text();
            assert_eq!(
                edited.matches("\r\n").count() == edited.matches('\n').count(),
                text.contains('\r'),
                "{edited:?}"
            );
            assert!(edited.contains("# mine"), "{edited:?}");
        };
        let text = "# mine\n[listen]\nnfs = \":0\" # a door\n\n[[pool]]\nname = \"tank\"\ndisks = [\n  \"a\",\n]\n";
        check(text);
        check(&text.replace('\n', "\r\n"));
    }

    #[test]
    fn a_file_that_is_replaced_keeps_its_mode_and_owner() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("larder.toml");
        replace_file(&file, b"one", 0o600).unwrap();
        let found = || std::fs::metadata(&file).unwrap();
        assert_eq!(found().mode() & 0o777, 0o600);
        for mode in [0o600, 0o640, 0o644, 0o400] {
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
            let before = (found().uid(), found().gid());
            replace_file(&file, b"two", 0o600).unwrap();
            assert_eq!((found().mode() & 0o777, (found().uid(), found().gid())), (mode, before));
        }
        // Only root gives files away.
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&file, Some(1234), Some(4321)).unwrap();
            replace_file(&file, b"three", 0o600).unwrap();
            assert_eq!((found().uid(), found().gid()), (1234, 4321));
        }
    }
}
