//! What changes between two configurations: entry by entry, whom it interrupts, and what no file changes.
//!
//! - `differences.by_meaning`: entries are compared as they are understood. "64K" and "65536 B" are no difference,
//!   nor is a default that is written out.
//! - `differences.access_is_of_the_share`: whoever loses access to a share by a change of a group or user is named at
//!   the share.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use larder_alerts::send::Receiver;
use larder_api::setting::{Interrupts, Setting};
use larder_api::share::SETTINGS;
use larder_api::{ConfigDifference, ConfigHow, ConfigKey, Failure};
use larder_base::units::ByteSize;
use larder_people::Door;
use toml_edit::{DocumentMut, Item, TableLike};

use super::alert::PingConfig;
use super::power::PowerConfig;
use super::schema::with_defaults;
use super::{
    Config, DiscoveryConfig, GroupConfig, Listen, MountConfig, Network, PageConfig, PoolConfig, ReplicaConfig,
    ReplicateConfig, SelfTestSchedule, ShareConfig, StoreSettings, UpsConfig, UserConfig, VolumeConfig, WebdavConfig,
};

/// In the order in which they are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Listen,
    Nfs,
    Limits,
    Metrics,
    Webdav,
    Page,
    Sftp,
    Discovery,
    Disks,
    Pool,
    Store,
    Volume,
    User,
    Group,
    Share,
    Mount,
    Replicate,
    Replica,
    Alert,
    Power,
    Ups,
}

impl Kind {
    fn word(self) -> &'static str {
        match self {
            Self::Listen => "listen",
            Self::Nfs => "nfs",
            Self::Limits => "limits",
            Self::Metrics => "metrics",
            Self::Webdav => "webdav",
            Self::Page => "page",
            Self::Sftp => "sftp",
            Self::Discovery => "discovery",
            Self::Disks => "disks",
            Self::Pool => "pool",
            Self::Store => "store",
            Self::Volume => "volume",
            Self::User => "user",
            Self::Group => "group",
            Self::Share => "share",
            Self::Mount => "mount",
            Self::Replicate => "replicate",
            Self::Replica => "replica",
            Self::Alert => "alert",
            Self::Power => "power",
            Self::Ups => "ups",
        }
    }

    fn entry(self, name: &str) -> String {
        match name {
            "" => format!("[{}]", self.word()),
            name => format!("[[{}]] {name}", self.word()),
        }
    }
}

/// An entry as it is understood (`differences.by_meaning`).
#[derive(Debug, PartialEq)]
enum Part<'a> {
    Listen(Box<Listen>),
    Nfs(Option<&'a str>),
    Limits(Option<ByteSize>, u32, ByteSize),
    Metrics(Option<std::net::SocketAddr>),
    Webdav(&'a WebdavConfig),
    Page(&'a PageConfig),
    Sftp(&'a [String]),
    Discovery(&'a DiscoveryConfig),
    Disks(SelfTestSchedule),
    Pool(&'a PoolConfig),
    Store(&'a StoreSettings),
    Volume(&'a VolumeConfig),
    User(&'a UserConfig),
    Group(&'a GroupConfig),
    /// With everybody who has access, and whether to write.
    Share(&'a ShareConfig, BTreeMap<&'a str, bool>),
    Mount(&'a MountConfig),
    Replicate(&'a ReplicateConfig),
    Replica(&'a ReplicaConfig),
    Alert(&'a Receiver),
    Ping(&'a PingConfig),
    Power(&'a PowerConfig),
    Ups(&'a UpsConfig),
}

type Parts<'a> = BTreeMap<(Kind, String), Part<'a>>;

fn parts(config: &Config) -> Parts<'_> {
    let doors = Listen { metrics: None, ..config.listen };
    let mut parts = Parts::from([
        ((Kind::Listen, String::new()), Part::Listen(Box::new(doors))),
        ((Kind::Nfs, String::new()), Part::Nfs(config.nfs_domain.as_deref())),
        ((Kind::Limits, String::new()), Part::Limits(config.memory, config.connections, config.strangers)),
        ((Kind::Metrics, String::new()), Part::Metrics(config.listen.metrics)),
        ((Kind::Webdav, String::new()), Part::Webdav(&config.webdav)),
        ((Kind::Page, String::new()), Part::Page(&config.page)),
        ((Kind::Sftp, String::new()), Part::Sftp(&config.ssh_ca_keys)),
        ((Kind::Discovery, String::new()), Part::Discovery(&config.discovery)),
        ((Kind::Disks, String::new()), Part::Disks(config.self_tests)),
        ((Kind::Power, String::new()), Part::Power(&config.power)),
    ]);
    let access = |share: &ShareConfig| -> BTreeMap<&str, bool> {
        let entrance = |user| share.writes_by_lists(&config.person(user));
        config.users.iter().filter_map(|user| Some((user.name.as_str(), entrance(user)?))).collect()
    };
    parts.extend(config.pools.iter().map(|pool| ((Kind::Pool, pool.name.clone()), Part::Pool(pool))));
    parts.extend(config.stores.iter().map(|store| ((Kind::Store, store.name.clone()), Part::Store(store))));
    parts.extend(config.volumes.iter().map(|one| ((Kind::Volume, one.name.to_string()), Part::Volume(one))));
    parts.extend(config.users.iter().map(|user| ((Kind::User, user.name.clone()), Part::User(user))));
    parts.extend(config.groups.iter().map(|group| ((Kind::Group, group.name.clone()), Part::Group(group))));
    let share = |share| Part::Share(share, access(share));
    parts.extend(config.shares.iter().map(|one| ((Kind::Share, one.name.clone()), share(one))));
    parts.extend(config.mounts.iter().map(|one| ((Kind::Mount, one.dir.display().to_string()), Part::Mount(one))));
    let pair = |one: &ReplicateConfig| format!("{} to {}", one.volume, one.to);
    parts.extend(config.replicates.iter().map(|one| ((Kind::Replicate, pair(one)), Part::Replicate(one))));
    parts.extend(config.ups.iter().map(|ups| ((Kind::Ups, String::new()), Part::Ups(ups))));
    let alerts = &config.alerts;
    parts.extend(alerts.receivers.iter().map(|one| ((Kind::Alert, one.name.clone()), Part::Alert(one))));
    parts.extend(alerts.pings.iter().map(|one| ((Kind::Alert, one.name.clone()), Part::Ping(one))));
    parts.extend(config.replicas.iter().map(|one| ((Kind::Replica, one.name.to_string()), Part::Replica(one))));
    parts
}

/// The entries that differ. The texts are those of the files, for the keys that differ.
pub fn differences(
    (old, old_text): (&Config, &str),
    (new, new_text): (&Config, &str),
    file: &Path,
) -> Vec<ConfigDifference> {
    let documents = [old_text, new_text].map(|text| with_defaults(text).ok()?.parse::<DocumentMut>().ok());
    let (before, after) = (parts(old), parts(new));
    let ids: BTreeSet<&(Kind, String)> = before.keys().chain(after.keys()).collect();
    // Access that is gained by a user or group is said there.
    let only_gains = |id: &(Kind, String)| match (before.get(id), after.get(id)) {
        (Some(Part::Share(was, _)), Some(Part::Share(is, _))) => {
            was == is && interrupts(before.get(id), after.get(id)).is_empty()
        }
        _ => false,
    };
    let differing = ids.into_iter().filter(|id| before.get(id) != after.get(id) && !only_gains(id));
    let difference = |id: &(Kind, String)| {
        let (kind, name) = id;
        let (was, is) = (before.get(id), after.get(id));
        let mut difference = ConfigDifference {
            entry: kind.entry(name),
            how: match (was, is) {
                (None, _) => ConfigHow::Added,
                (_, None) => ConfigHow::Removed,
                _ => ConfigHow::Changed,
            },
            keys: match &documents {
                [Some(before), Some(after)] => keys(table(before, id, file), table(after, id, file)),
                _ => Vec::new(),
            },
            interrupts: interrupts(was, is),
            at_next_start: matches!(
                kind,
                Kind::Listen | Kind::Limits | Kind::Metrics | Kind::Webdav | Kind::Page | Kind::Store
            ),
            refused: refusal(was, is),
        };
        if difference.refused.is_some() {
            (difference.at_next_start, difference.interrupts) = (false, Vec::new());
        }
        difference
    };
    differing.map(difference).collect()
}

/// The data folder is where larder runs: no file moves it.
pub fn other_data_folder(now: &Path) -> ConfigDifference {
    let refused = Failure::invalid(format!("larder runs in {}, and no file moves that", now.display()))
        .action("leave data as it is; or stop larder, move the folder, and start it with: larder serve --config FILE");
    ConfigDifference {
        entry: "data".to_owned(),
        how: ConfigHow::Changed,
        keys: Vec::new(),
        interrupts: Vec::new(),
        at_next_start: false,
        refused: Some(refused),
    }
}

/// Disks join and leave a pool by commands, which know what is on them.
fn refusal(was: Option<&Part<'_>>, is: Option<&Part<'_>>) -> Option<Failure> {
    let words = |disks: &[PathBuf]| {
        disks.iter().map(|disk| larder_base::shell::word(disk).to_string()).collect::<Vec<_>>().join(" ")
    };
    match (was, is) {
        (None, Some(Part::Pool(pool))) => {
            let name = &pool.name;
            let failure = Failure::invalid(format!("the pool '{name}' is not open here: no file opens a pool"));
            Some(failure.action(format!("open it first with: larder pool import {}", words(&pool.disks))))
        }
        (Some(Part::Pool(pool)), None) => {
            let name = &pool.name;
            let failure = Failure::invalid(format!("the pool '{name}' is open: no file closes a pool"));
            Some(failure.action(format!("take it away with: larder pool export {name}")))
        }
        (Some(Part::Pool(old)), Some(Part::Pool(new))) if !same_disks(&old.disks, &new.disks) => {
            let name = &new.name;
            let joining: Vec<PathBuf> = new.disks.iter().filter(|disk| !old.disks.contains(disk)).cloned().collect();
            let leaving: Vec<PathBuf> = old.disks.iter().filter(|disk| !new.disks.contains(disk)).cloned().collect();
            let command = match (joining.as_slice(), leaving.as_slice()) {
                ([new], [old]) => {
                    format!("replace {name} {} {}", words(std::slice::from_ref(old)), words(std::slice::from_ref(new)))
                }
                (joining, []) => format!("add {name} {}", words(joining)),
                ([], leaving) => format!("remove {name} {}", words(leaving)),
                (joining, leaving) => {
                    format!("add {name} {}; then: larder pool remove {name} {}", words(joining), words(leaving))
                }
            };
            let failure =
                Failure::invalid(format!("the disks of the pool '{name}' hold its data: no file exchanges them"));
            Some(failure.action(format!("larder pool {command}; it changes the file, too")))
        }
        _ => None,
    }
}

/// The order does not matter.
fn same_disks(a: &[PathBuf], b: &[PathBuf]) -> bool {
    a.len() == b.len() && a.iter().all(|disk| b.contains(disk))
}

fn interrupts(was: Option<&Part<'_>>, is: Option<&Part<'_>>) -> Vec<String> {
    match (was, is) {
        (Some(Part::Share(share, _)), None) => vec![format!("clients of the share '{}' lose it", share.name)],
        (Some(Part::Share(old, before)), Some(Part::Share(new, after))) => of_share((old, before), (new, after)),
        (Some(Part::User(user)), None) => vec![format!("'{}' is logged out and lets nobody in any more", user.name)],
        (Some(Part::User(old)), Some(Part::User(new)))
            if (old.uid, old.gid, &old.groups) != (new.uid, new.gid, &new.groups) =>
        {
            vec![format!("'{}' is logged out of SMB, and has other files as the own ones afterwards", new.name)]
        }
        (Some(Part::Mount(mount)), _) => vec![format!("{} is unmounted", mount.dir.display())],
        (Some(Part::Volume(old)), Some(Part::Volume(new))) => match (old.snapshots, new.snapshots) {
            (Some(old), Some(new_counts)) if keeps_less(&old, &new_counts) => {
                vec![format!("automatic snapshots of {} beyond the new numbers are destroyed", new.name)]
            }
            _ => Vec::new(),
        },
        (Some(Part::Replica(old)), Some(Part::Replica(new))) => match (old.keep, new.keep) {
            (None, Some(_)) => {
                vec![format!("automatic snapshots in {} beyond the new numbers are destroyed", new.name)]
            }
            (Some(old), Some(counts)) if keeps_less(&old, &counts) => {
                vec![format!("automatic snapshots in {} beyond the new numbers are destroyed", new.name)]
            }
            _ => Vec::new(),
        },
        _ => Vec::new(),
    }
}

fn keeps_less(old: &larder_api::SnapshotCounts, new: &larder_api::SnapshotCounts) -> bool {
    let counts = |of: &larder_api::SnapshotCounts| [of.hourly, of.daily, of.weekly, of.monthly];
    counts(old).iter().zip(counts(new)).any(|(old, new)| new < *old)
}

fn of_share(
    (old, before): (&ShareConfig, &BTreeMap<&str, bool>),
    (new, after): (&ShareConfig, &BTreeMap<&str, bool>),
) -> Vec<String> {
    let name = &new.name;
    let moved = (&old.volume, &old.folder) != (&new.volume, &new.folder);
    let mut found = Vec::new();
    if moved {
        return vec![format!("clients of the share '{name}' see other files, and lose those that they have open")];
    }
    let interrupted = |clients: fn(&Setting) -> Interrupts| {
        SETTINGS.into_iter().any(|setting| clients(setting).is_met(&old.value(setting), &new.value(setting)))
    };
    let (doors, has_other_owner) = (new.doors_of_people(), old.common_owner() != new.common_owner());
    let closed = old.doors_of_people().into_iter().filter(|door| !doors.contains(door));
    found.extend(closed.map(|door| format!("{door} clients of '{name}' lose it")));
    if old.offers(Door::SMB) && new.offers(Door::SMB) && (has_other_owner || interrupted(|setting| setting.smb)) {
        found.push(format!("SMB clients of '{name}' are disconnected, and connect again"));
    }
    if let Some(was) = old.nfs_networks() {
        let is_within = |network: &Network, of: &[Network]| of.contains(network);
        match new.nfs_networks() {
            None => found.push(format!("NFS clients of '{name}' lose it")),
            Some(is) if !was.iter().all(|network| is_within(network, &is)) => {
                found.push(format!("NFS clients of '{name}' in networks that are not named any more lose it"));
            }
            Some(_) => {}
        }
        if interrupted(|setting| setting.nfs) {
            found.push(format!("NFS clients of '{name}' may be refused what they could do"));
        }
    }
    for (user, wrote) in before {
        match after.get(user) {
            None => found.push(format!("'{user}' loses '{name}'")),
            Some(writes) if *wrote && !writes => found.push(format!("'{user}' may only read in '{name}'")),
            // The right is taken when a client connects.
            Some(writes) if *writes && !wrote && new.offers(Door::SMB) && !new.lets_in_guests() => {
                found.push(format!("SMB clients of '{user}' connect to '{name}' again"));
            }
            Some(_) => {}
        }
    }
    found
}

/// The entry's table in a file. Entries that are named in another way than a name are found by what names them.
fn table<'a>(document: &'a DocumentMut, (kind, name): &(Kind, String), file: &Path) -> Option<&'a dyn TableLike> {
    let item = document.get(kind.word())?;
    if name.is_empty() {
        return item.as_table_like();
    }
    let is_it = |table: &&dyn TableLike| match kind {
        Kind::Mount => {
            let folder = file.parent().unwrap_or(Path::new(""));
            table.get("dir").and_then(Item::as_str).is_some_and(|dir| folder.join(dir) == Path::new(name))
        }
        // As `config/alert.rs` names those that have none.
        Kind::Alert => {
            let part = |key| table.get(key).and_then(Item::as_str);
            part("name").or_else(|| part("kind")).unwrap_or("ping") == name
        }
        Kind::Replicate => {
            let part = |key| table.get(key).and_then(Item::as_str).unwrap_or_default();
            format!("{} to {}", part("volume"), part("to")) == *name
        }
        _ => table.get("name").and_then(Item::as_str) == Some(name),
    };
    let mut tables = item.as_array_of_tables()?.iter().map(|table| table as &dyn TableLike);
    tables.find(is_it)
}

fn keys(before: Option<&dyn TableLike>, after: Option<&dyn TableLike>) -> Vec<ConfigKey> {
    let names = |table: Option<&dyn TableLike>| -> Vec<String> {
        table.into_iter().flat_map(|table| table.iter().map(|(key, _)| key.to_owned())).collect()
    };
    let value = |table: Option<&dyn TableLike>, key: &str| {
        let value = table?.get(key)?.as_value()?;
        let mut value = value.clone();
        value.decor_mut().clear();
        Some(value.to_string())
    };
    // An entry that comes or goes is described by its own keys; defaults say nothing there.
    let is_default = |table: Option<&dyn TableLike>, key: &str| {
        let suffix = table.and_then(|table| table.get(key)?.as_value()?.decor().suffix()?.as_str());
        suffix.is_some_and(|suffix| suffix.trim() == "# default")
    };
    let mut all: Vec<String> = names(before);
    all.extend(names(after).into_iter().filter(|key| !names(before).contains(key)));
    let one_is_missing = before.is_none() || after.is_none();
    let key = |key: String| {
        let (was, is) = (value(before, &key), value(after, &key));
        let says_nothing = one_is_missing && (is_default(before, &key) || is_default(after, &key) || key == "name");
        (was != is && !says_nothing).then_some(ConfigKey { key, before: was, after: is })
    };
    all.into_iter().filter_map(key).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const FILE: &str = "/data/larder.toml";
    const BASE: &str = "[[pool]]\nname = \"t\"\ndisks = [\"a\", \"b\"]\n[[user]]\nname = \"ann\"\nuid = 1\n[[user]]\nname = \"bob\"\nuid = 2\n\
         [[group]]\nname = \"g\"\ngid = 9\nmembers = [\"ann\"]\n[[share]]\nname = \"s\"\nvolume = \"t/v\"\nusers = [\"@g\", \"bob\"]\n\
         [[mount]]\ndir = \"m\"\nvolume = \"t/v\"\n[[volume]]\nname = \"t/v\"\nrecord_size = \"64K\"\nsnapshots = { daily = 9 }\n";

    fn between(old: &str, new: &str) -> Vec<ConfigDifference> {
        let parse = |text: &str| Config::parse(text, Path::new(FILE)).unwrap();
        differences((&parse(old), old), (&parse(new), new), Path::new(FILE))
    }

    #[test]
    fn entries_that_mean_the_same_do_not_differ() {
        let other = BASE.replace("\"64K\"", "\"65536\"").replace("[\"a\", \"b\"]", "[ '/data/a', \"b\" ]");
        assert_eq!(between(BASE, &format!("# a comment\n{other}[listen]\nsmb = \"0.0.0.0:14445\"\n")), []);
    }

    #[test]
    fn each_change_says_whom_it_interrupts() {
        let check = |from: &str, to: &str, entry: &str, interrupts: &[&str]| {
            assert!(BASE.contains(from), "{from}");
            let found = between(BASE, &BASE.replacen(from, to, 1));
            let one = found.iter().find(|one| one.entry == entry).unwrap_or_else(|| panic!("{entry} in {found:?}"));
            assert_eq!(one.interrupts, interrupts, "{from} -> {to}");
            assert!(one.refused.is_none() && !one.at_next_start, "{one:?}");
        };
        let check_share = |to: &str, interrupts: &[&str]| {
            check("volume = \"t/v\"\nusers", &format!("volume = \"t/v\"\n{to}users"), "[[share]] s", interrupts);
        };
        check_share(
            "read_only = true\n",
            &[
                "SMB clients of 's' are disconnected, and connect again",
                "'ann' may only read in 's'",
                "'bob' may only read in 's'",
            ],
        );
        check_share("sftp = false\n", &["SFTP clients of 's' lose it"]);
        check_share("networks = [\"10.0.0.0/8\"]\n", &[]);
        check("members = [\"ann\"]", "members = []", "[[share]] s", &["'ann' loses 's'"]);
        check("members = [\"ann\"]", "members = []", "[[group]] g", &[]);
        check(
            "uid = 2",
            "uid = 3",
            "[[user]] bob",
            &["'bob' is logged out of SMB, and has other files as the own ones afterwards"],
        );
        check(
            "daily = 9",
            "daily = 8",
            "[[volume]] t/v",
            &["automatic snapshots of t/v beyond the new numbers are destroyed"],
        );
        check("daily = 9", "daily = 10", "[[volume]] t/v", &[]);
        check("[[mount]]\ndir = \"m\"\nvolume = \"t/v\"\n", "", "[[mount]] /data/m", &["/data/m is unmounted"]);
        check("name = \"s\"", "name = \"r\"", "[[share]] s", &["clients of the share 's' lose it"]);
        check("name = \"s\"", "name = \"r\"", "[[share]] r", &[]);
    }

    #[test]
    fn changes_that_no_file_makes_name_the_command() {
        let check = |to: &str, command: &str| {
            let found = between(BASE, &BASE.replace("disks = [\"a\", \"b\"]", &format!("disks = {to}")));
            let refused = found[0].refused.as_ref().unwrap();
            assert!(refused.action.as_ref().unwrap().starts_with(command), "{refused:?}");
            assert_eq!(found.len(), 1);
        };
        check("[\"a\", \"b\", \"c\"]", "larder pool add t /data/c;");
        check("[\"a\", \"c\"]", "larder pool replace t /data/b /data/c;");
        check("[\"a\"]", "larder pool remove t /data/b;");
        assert_eq!(between(BASE, &BASE.replace("[\"a\", \"b\"]", "[\"b\", \"a\"]"))[0].refused, None);
        let more = format!("{BASE}[[pool]]\nname = \"u\"\ndisks = [\"x\"]\n");
        let action = |old: &str, new: &str| between(old, new)[0].refused.clone().unwrap().action.unwrap();
        assert_eq!(action(BASE, &more), "open it first with: larder pool import /data/x");
        assert_eq!(action(&more, BASE), "take it away with: larder pool export u");
    }

    #[test]
    fn keys_are_shown_with_their_values() {
        let one = |new: &str| between(BASE, new).remove(0);
        let key = |key: &str, before: Option<&str>, after: Option<&str>| ConfigKey {
            key: key.to_owned(),
            before: before.map(str::to_owned),
            after: after.map(str::to_owned),
        };
        let listen = one(&format!("{BASE}[listen]\nnfs = \"off\"  # no\n"));
        assert_eq!(listen.keys, [key("nfs", Some("\"0.0.0.0:12049\""), Some("\"off\""))]);
        assert!(listen.at_next_start);
        let added = one(&format!("{BASE}[[user]]\nname = \"eve\"\nuid = 7\n"));
        assert_eq!((added.keys, added.how), (vec![key("uid", None, Some("7"))], ConfigHow::Added));
    }
}
