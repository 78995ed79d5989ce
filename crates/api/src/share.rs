//! Shares: their settings, and the requests and answers about them.
//!
//! - `settings.declared_once`: a setting of a share is declared here. Its key in the file with its
//!   check and its edits, its place in requests and answers, both schemas, its option of the
//!   command line, its field on the page, the words about it, the clients that a change of it
//!   interrupts and its line in docs/config.md follow from that. The code that acts on it is all
//!   else that names it.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::setting::Interrupts::{Changed, On, Switched};
use crate::setting::{Kind, Setting, Values};

/// An entry reads: sentences about it, constant, key, kind, default as JSON, and what else there is
/// to say.
macro_rules! settings {
    ($($(#[doc = $about:literal])+ $name:ident $key:literal $kind:expr, $default:literal $(, $field:ident: $value:expr)*;)+) => {
        $(pub const $name: Setting =
            Setting { $($field: $value,)* ..Setting::new($key, $kind, $default, concat!($($about),+).trim_ascii()) };)+

        /// In the order of the file.
        pub const SETTINGS: [&Setting; [$($key),+].len()] = [$(&$name),+];
    };
}

settings! {
    /// Who may read and write over SMB, SFTP and WebDAV: all, or a list of users and @groups;
    /// without any list all.
    USERS "users" Kind::Everybody, "null", example: "\"all\"", is_written: true;
    /// Users and @groups who may only read over SMB, SFTP and WebDAV.
    READ_ONLY_USERS "read_only_users" Kind::Names, "[]", example: "[\"bob\"]";
    /// All files belong to the anonymous user, the share's owner, so that everybody may change and
    /// delete them.
    COMMON "common" Kind::Switch, "false", label: "All files belong to the share's owner: everybody may change and delete them",
        said: &[("yes", "common", "everybody may change and delete what another made")], nfs: Changed;
    /// SMB only: anybody may use it, without a password.
    GUEST "guest" Kind::Switch, "false", label: "Anybody may use it over SMB, without a password",
        said: &[("yes", "guests", "anybody may use it over SMB, without a password")], smb: Changed;
    /// Nobody may write through it.
    READ_ONLY "read_only" Kind::Switch, "false", label: "Read only", said: &[("yes", "read-only", "nobody may write")], smb: Changed, nfs: On;
    /// NFS serves it; a share with lists of users only to networks that are named.
    NFS "nfs" Kind::Switch, "true", door: Some("NFS");
    /// NFS only: networks whose machines are believed about their users; this machine alone when it
    /// is not given.
    NETWORKS "networks" Kind::Networks { none: "usual" }, "null", example: "[\"192.168.1.0/24\"]",
        label: "Networks for NFS, such as 192.168.1.0/24";
    /// NFS only: ports below 1024 alone, which only root of a client uses; false for libnfs without
    /// root and Macs without resvport.
    SECURE "secure" Kind::Switch, "true", label: "NFS answers ports below 1024 alone", said: &[("no", "NFS from any port", "")],
        nfs_alone: true, nfs: On;
    /// Every door: nobody comes in from outside of these networks.
    ONLY_FROM "only_from" Kind::Networks { none: "anywhere" }, "null", example: "[\"192.168.0.0/16\"]",
        label: "Networks outside of which no door lets anybody in", smb: Changed,
        said: &[("", "only from nowhere", "no door lets anybody in"), ("*", "only from {}", "every door is for {} alone")];
    /// NFS only. root: root becomes the anonymous user; all: everybody does; none: nobody, so root
    /// of every client is root here.
    SQUASH "squash" Kind::Word(&["root", "all", "none"], "a squash rule"), "\"root\"", label: "Callers of NFS who become the share's owner",
        said: &[("all", "NFS squashes all", "everybody on NFS is the share's owner"), ("none", "NFS trusts root", "root of NFS clients is root here")],
        nfs_alone: true, is_written: true, nfs: Changed;
    /// The anonymous user of NFS, and the owner of a common share.
    ANON_UID "anon_uid" Kind::Number, "65534", is_written: true, nfs: Changed;
    /// The group of the anonymous user.
    ANON_GID "anon_gid" Kind::Number, "65534", is_written: true, nfs: Changed;
    /// SMB serves it.
    SMB "smb" Kind::Switch, "true", door: Some("SMB");
    /// SFTP serves it, where that is open, to the users that SMB lets in.
    SFTP "sftp" Kind::Switch, "true", door: Some("SFTP");
    /// WebDAV serves it, where that is open, to the users that SMB lets in.
    WEBDAV "webdav" Kind::Switch, "true", door: Some("WebDAV");
    /// SMB only: required refuses clients that do not encrypt.
    ENCRYPT "encrypt" Kind::Pair(["offered", "required"], "an encryption rule"), "false", label: "SMB clients that do not encrypt are refused",
        said: &[("yes", "encrypted SMB", "SMB clients that do not encrypt are refused")], smb: Changed;
    /// Days that removals over SMB and WebDAV stay in .recycle at its top; true is 30.
    RECYCLE "recycle" Kind::Days { most: 36_500, usual: 30 }, "null", name: "recycle_days", example: "{ days = 30 }",
        label: "Days that removed files stay in the recycle bin", smb: Switched,
        said: &[("*", "recycles for {} d", "removals over SMB and WebDAV stay in .recycle for {} days")];
    /// Its top lists .snapshots, which can be opened either way.
    SNAPSHOTS_SHOWN "snapshots_shown" Kind::Switch, "false", label: "List snapshots as the folder .snapshots",
        said: &[("yes", "shows .snapshots", ".snapshots is listed at its top")], smb: Changed;
    /// Names that differ in their Unicode form alone (NFC of Windows and Linux, NFD of Macs) are
    /// one. New shares: true.
    NORMALIZE "normalize" Kind::Switch, "false", label: "Names that differ in their Unicode form alone are one", smb: Changed;
    /// A client that ruins very many files within minutes, as ransomware does, is told about;
    /// block: it may not write any more, either, until larder alerts release (docs/alerts.md).
    GUARD "guard" Kind::Word(&["off", "alert", "block"], "a guard"), "\"alert\"", label: "A client that ruins very many files",
        said: &[("off", "no guard", "no guard: clients that ruin files are not told about"),
            ("block", "guard blocks", "a client that ruins files is told about, and loses its right to write")];
    /// Operations of clients that the audit log has: off, all, or some of created, removed,
    /// renamed, permissions (docs/alerts.md).
    AUDIT "audit" Kind::Some(&["created", "removed", "renamed", "permissions"], "audited"), "\"off\"",
        label: "Operations of clients that the audit log has", said: &[("*", "audits {}", "operations in the audit log: {}")];
    /// Macs back up to it with Time Machine; a size is the most that the backups hold
    /// (docs/guide.md).
    TIME_MACHINE "time_machine" Kind::Size { least: 1 << 30, of: "backups of a Mac" }, "null", example: "\"2TB\"",
        label: "Macs back up to it: yes, no, or the most that the backups hold", smb: Changed,
        said: &[("yes", "Time Machine", "Macs find it in Time Machine"),
            ("*", "Time Machine", "Macs find it in Time Machine, with {} for their backups")];
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ShareStatus {
    pub name: String,
    /// `pool/volume`; empty: a folder of the host.
    pub volume: String,
    /// Of the volume; empty: all of it. Of the host: its path.
    #[serde(default)]
    pub folder: String,
    pub nfs: Option<String>,
    pub smb: Option<String>,
    /// Networks whose machines NFS believes, those of a share that names none included.
    pub networks: Vec<String>,
    /// The ways past its lists of users: other shares over the same files.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reached: Vec<String>,
    #[serde(flatten)]
    pub people: SharePeople,
    /// Who comes in by each door, for people.
    #[serde(default)]
    pub nfs_rule: String,
    #[serde(default)]
    pub smb_rule: String,
    /// What differs from a share without options, for people: `read-only`, `encrypted`, ...
    #[serde(default)]
    pub options: Vec<String>,
    /// Why it is not being served, if so.
    pub fault: Option<String>,
    /// Its volume is encrypted and waits for its keys: a fault that was to be expected.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub locked: bool,
    /// Another machine serves its volume: no fault of this one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub rests: bool,
    /// What helps against that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
    /// The settings that have no field of their own.
    #[serde(flatten)]
    #[cfg_attr(test, schemars(schema_with = "crate::openapi::from_types::of_answer"))]
    pub settings: Values,
}

impl ShareStatus {
    /// Whether answers tell it in a field of its own.
    pub fn has_apart(setting: &Setting) -> bool {
        [USERS, READ_ONLY_USERS, NFS, NETWORKS, SMB].iter().any(|one| one.key == setting.key)
    }

    /// Nothing that is usual is absent but what an older daemon does not know.
    pub fn value(&self, setting: &Setting) -> Value {
        match setting.key {
            "nfs" => self.nfs.is_some().into(),
            "smb" => self.smb.is_some().into(),
            "networks" => self.networks.clone().into(),
            _ => self.settings.get(setting.name).cloned().unwrap_or_default(),
        }
    }

    pub fn is_on(&self, setting: &Setting) -> bool {
        self.value(setting) == Value::Bool(true)
    }

    /// The path by which NFS exports it.
    pub fn export(&self) -> Option<&str> {
        self.nfs.as_deref()
    }

    /// The networks whose machines NFS believes.
    pub fn machines(&self) -> &[String] {
        &self.networks
    }

    /// Whom NFS takes root of a client for.
    pub fn root_over_nfs(&self) -> &'static str {
        match self.value(&SQUASH).as_str() {
            _ if self.nfs.is_none() => "-",
            Some("none") => "root",
            Some("all") => "all are the owner",
            _ => "owner",
        }
    }

    /// Whether NFS answers clients that are not root.
    pub fn takes_any_port(&self) -> bool {
        self.value(&SECURE) == false
    }

    /// A sentence about each setting that differs from the usual.
    pub fn sentences(&self) -> impl Iterator<Item = String> {
        SETTINGS.into_iter().filter_map(|setting| setting.sentence(&self.value(setting)))
    }
}

/// The people of a share.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SharePeople {
    /// Users and `@groups` of its lists; see `everybody`.
    pub users: Vec<String>,
    /// Those of `users` who may only read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub read_only_users: Vec<String>,
    /// Every user may use it over SMB, listed or not.
    #[serde(default)]
    pub everybody: bool,
}

impl SharePeople {
    pub fn new(writers: &[String], readers: Vec<String>, everybody: bool) -> SharePeople {
        SharePeople { users: [writers, &readers].concat(), read_only_users: readers, everybody }
    }

    /// Whether a user may come in of whom `names` knows the name and the groups.
    pub fn lets_in(&self, names: impl Fn(&String) -> bool) -> bool {
        self.everybody || self.users.iter().any(names)
    }

    /// Users and `@groups` of its lists: those who may write, and those who may only read.
    pub fn lists(&self) -> [Vec<String>; 2] {
        let writers = self.users.iter().filter(|name| !self.read_only_users.contains(name)).cloned().collect();
        [writers, self.read_only_users.clone()]
    }
}

/// Who may write over SMB.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum ShareUsers {
    All,
    Listed(Vec<String>),
}

/// What a share may say. In a request, what is absent stays, or is as usual.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct ShareChange {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub users: Option<ShareUsers>,
    pub add_users: Vec<String>,
    pub remove_users: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_only_users: Option<Vec<String>>,
    /// As written: addresses, address/prefix, or `private`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub networks: Option<Vec<String>>,
    /// NFS goes back to the networks that it trusts where none are named.
    pub usual_networks: bool,
    /// Of the volume; empty: all of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub folder: Option<String>,
    /// `pool/volume`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume: Option<String>,
    /// The settings that have no field of their own.
    #[serde(flatten)]
    #[cfg_attr(test, schemars(schema_with = "crate::openapi::from_types::of_request"))]
    pub settings: Values,
}

impl ShareChange {
    /// Whether requests have it in a field of its own.
    pub fn has_apart(setting: &Setting) -> bool {
        [USERS, READ_ONLY_USERS, NETWORKS].iter().any(|one| one.key == setting.key)
    }

    /// Asks for other lists of people; `None` stays.
    pub fn of_people(writers: Option<ShareUsers>, readers: Option<Vec<String>>) -> ShareChange {
        ShareChange { users: writers, read_only_users: readers, ..ShareChange::default() }
    }

    /// Asks for a checked value of a setting.
    pub fn set(&mut self, setting: &Setting, value: Value) {
        let names = || value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect();
        match setting.key {
            "users" if value == "all" => self.users = Some(ShareUsers::All),
            "users" => self.users = Some(ShareUsers::Listed(names())),
            "read_only_users" => self.read_only_users = Some(names()),
            "networks" if value.is_null() => self.usual_networks = true,
            "networks" => self.networks = Some(names()),
            _ => drop(self.settings.insert(setting.name.to_owned(), setting.asked(value))),
        }
    }

    /// The wish for a switch.
    pub fn is_on(&self, setting: &Setting) -> Option<bool> {
        self.settings.get(setting.name)?.as_bool()
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ShareAdd {
    pub name: String,
    /// `volume` or `pool/volume`; the only one when absent, unless `folder` is an absolute path: of
    /// the host.
    pub volume: Option<String>,
    /// A folder of the volume, made when it is missing; all of it when absent.
    pub folder: Option<String>,
    pub change: ShareChange,
}

/// A share was made or changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ShareChanged {
    pub share: ShareStatus,
    pub notes: Vec<String>,
}
