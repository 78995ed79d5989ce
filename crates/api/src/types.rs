//! Requests and answers. Names of fields are the wire form: change them only by adding.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::ShareStatus;

/// Where a protocol is served.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct NfsEndpoint {
    pub host: String,
    pub port: u16,
    /// The export of the first share, such as `/files`.
    pub export: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SmbEndpoint {
    pub host: String,
    pub port: u16,
    /// The name of the first share.
    pub share: Option<String>,
}

/// Where SFTP answers: every share is a folder at its top.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SftpEndpoint {
    pub host: String,
    pub port: u16,
}

/// Where WebDAV answers: every share is a folder at its top.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct WebdavEndpoint {
    pub host: String,
    pub port: u16,
}

/// The one line that `larder up --json` prints when everything is being served.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Ready {
    pub pid: u32,
    pub nfs: Option<NfsEndpoint>,
    pub smb: Option<SmbEndpoint>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sftp: Option<SftpEndpoint>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub webdav: Option<WebdavEndpoint>,
    /// The same over TLS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub webdavs: Option<WebdavEndpoint>,
    /// `null` where the page is off.
    #[serde(default)]
    pub page: Option<PageEndpoint>,
    pub user: Option<String>,
    /// `null` when it was chosen by a person earlier: only its hash is kept.
    pub password: Option<String>,
    /// On the first run alone: opens the box's record when nothing else does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recovery_key: Option<String>,
    pub mount: Option<PathBuf>,
    /// The data folder, for `larder --data`.
    pub data: PathBuf,
}

/// Where the page is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PageEndpoint {
    pub url: String,
    /// The link of a first run; `null` once there is a pool.
    pub setup: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DaemonInfo {
    pub pid: u32,
    pub version: String,
    pub data: PathBuf,
    pub uptime_secs: u64,
    pub nfs: Option<SocketAddr>,
    pub smb: Option<SocketAddr>,
    #[serde(default)]
    pub sftp: Option<SocketAddr>,
    #[serde(default)]
    pub webdav: Option<SocketAddr>,
    #[serde(default)]
    pub webdavs: Option<SocketAddr>,
    #[serde(default)]
    pub page: Option<SocketAddr>,
    pub memory_bytes: u64,
    pub pools: Vec<String>,
    /// The disks of each pool, as last known: answered without looking at any of them.
    #[serde(default)]
    pub disks: BTreeMap<String, Vec<PathBuf>>,
}

impl DaemonInfo {
    /// Whether the daemon answers at a door of shares at all.
    pub fn serves(&self, door: &str) -> bool {
        let at = match door {
            "NFS" => self.nfs,
            "SMB" => self.smb,
            "SFTP" => self.sftp,
            _ => self.webdav.or(self.webdavs),
        };
        at.is_some()
    }
}

/// A pool as `zpool status` would show it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PoolStatus {
    pub name: String,
    pub id: String,
    pub layout: String,
    /// ONLINE, DEGRADED, FAULTED, UNAVAIL.
    pub state: String,
    /// One sentence; absent when all is well.
    pub status: Option<String>,
    /// What to do about it, copy-pasteable.
    pub action: Option<String>,
    /// Repair under way or done since the pool was opened.
    pub scan: Option<String>,
    /// The scrub that runs, or the last one.
    #[serde(default)]
    pub scrub: Option<ScrubStatus>,
    /// What is lost: damage that redundancy could not make good.
    #[serde(default)]
    pub damage: Damage,
    /// Objects that have fewer copies or parity pieces than the layout says, though their disks are there.
    #[serde(default)]
    pub owed_objects: u64,
    /// Bytes of object data after redundancy.
    pub total_bytes: u64,
    pub used_bytes: u64,
    /// What can really be written now.
    pub available_bytes: u64,
    pub disks: Vec<DiskStatus>,
    /// Disks that wait for another to fail.
    #[serde(default)]
    pub spares: Vec<PathBuf>,
    /// What is being moved between disks.
    #[serde(default)]
    pub moving: Option<PoolMoving>,
    /// Foreign, duplicated and stale disks, and whatever else was found when it was opened.
    #[serde(default)]
    pub notes: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DiskStatus {
    pub path: PathBuf,
    pub id: String,
    pub state: String,
    pub read_errors: u64,
    pub write_errors: u64,
    pub checksum_errors: u64,
    pub size_bytes: u64,
    pub used_bytes: u64,
    pub free_bytes: u64,
    /// Other disks of the pool lie on the same filesystem: what is free is there once for all of them.
    #[serde(default)]
    pub shares_room: bool,
    /// What lies on it is moving to other disks; then it is forgotten.
    #[serde(default)]
    pub leaving: bool,
    /// Why it is in that state, if not ONLINE.
    pub note: Option<String>,
}

/// Shards on their way to other disks, or objects to another layout.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PoolMoving {
    /// Such as "removing /disk1".
    pub why: String,
    pub objects: u64,
    pub objects_done: u64,
    pub moved_bytes: u64,
    pub seconds: u64,
    pub seconds_left: Option<u64>,
    /// Why something cannot be moved now; it is tried again.
    pub stuck: Option<String>,
}

/// A change of a pool's disks or layout. Disks of the pool are named by absolute path or by the first letters of their id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case", tag = "change")]
pub enum PoolChange {
    Add {
        disks: Vec<PathBuf>,
        spare: bool,
    },
    Replace {
        old: String,
        new: PathBuf,
    },
    Remove {
        disk: String,
    },
    /// A disk that is being removed stays after all.
    Keep {
        disk: String,
    },
    Offline {
        disk: String,
    },
    Online {
        disk: String,
        /// Gives up what it has written by itself, where it has diverged from the pool.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        discard: bool,
    },
    Rebalance {
        layout: Option<String>,
        width: Option<u8>,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PoolChangeRequest {
    #[serde(flatten)]
    pub change: PoolChange,
    /// Only say what it would do.
    pub dry_run: bool,
}

/// What a pool is worth, before or after a change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PoolWorth {
    pub layout: String,
    pub width: u8,
    pub disks: usize,
    /// Bytes of object data that fit in all.
    pub usable_bytes: u64,
    /// Disks that may fail, from now on, without loss.
    pub failures_survived: u8,
}

/// What a change does or would do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PoolChangePlan {
    pub before: PoolWorth,
    pub after: PoolWorth,
    /// Bytes to be written to other disks until it is done.
    pub move_bytes: u64,
    /// About how long that takes, by the rate at which the disks were read just now.
    pub seconds: Option<u64>,
    pub warnings: Vec<String>,
    /// Snapshots that were taken before the layout changed, as POOL/VOLUME@NAME.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub snapshots: Vec<String>,
}

/// A scrub, under way or over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ScrubStatus {
    /// running, paused, stopped, finished.
    pub phase: String,
    /// Who wanted it: "asked for" or "scheduled".
    pub why: String,
    pub started_ms: u64,
    /// When it ended or paused.
    pub ended_ms: Option<u64>,
    /// Time at work; pauses are not counted.
    pub elapsed_ms: u64,
    pub objects_done: u64,
    pub objects_total: u64,
    /// Bytes on disks, redundancy included.
    pub bytes_done: u64,
    pub bytes_total: u64,
    /// Damaged blocks, labels and journal copies that were found.
    pub errors: u64,
    /// Pieces made anew.
    pub repaired: u64,
    pub repaired_bytes: u64,
    /// Objects that are not whole afterwards.
    pub unrepaired: u64,
    /// Now; of the whole scrub when it has ended.
    pub bytes_per_second: u64,
    pub seconds_left: Option<u64>,
}

/// What cannot be read any more.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Damage {
    pub files: Vec<DamagedFile>,
    pub metadata: Vec<DamagedMetadata>,
    /// Objects or files beyond those listed.
    pub more: u64,
    /// How many of the objects cannot be read now and may be whole again when disks are back.
    #[serde(default)]
    pub out_of_reach: u64,
}

impl Damage {
    pub fn count(&self) -> u64 {
        (self.files.len() + self.metadata.len()) as u64 + self.more
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DamagedFile {
    /// `pool/volume`.
    pub volume: String,
    pub inode: u64,
    /// All its names; none for a file that was removed and is still open.
    pub paths: Vec<String>,
    pub ranges: Vec<ByteRange>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DamagedMetadata {
    /// `pool/volume`; absent where it is the pool's own.
    pub volume: Option<String>,
    pub object: String,
    /// Of the object.
    pub ranges: Vec<ByteRange>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ByteRange {
    pub start: u64,
    /// The first byte behind it.
    pub end: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ScrubRequest {
    /// start (also goes on with a paused one), pause, stop.
    pub action: String,
}

/// What is known of a pool's scrub.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PoolScrub {
    pub pool: String,
    /// Absent if there never was one.
    pub scrub: Option<ScrubStatus>,
    pub damage: Damage,
}

/// What happened to a pool, oldest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PoolHistory {
    pub pool: String,
    pub events: Vec<PoolEvent>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PoolEvent {
    /// Counts the events of the pool.
    pub number: u64,
    pub at_ms: u64,
    /// created, opened, imported, exported, disk-out, disk-back, resilvered, errors, cleared, scrub-started, ...
    pub kind: String,
    pub text: String,
}

/// A pool found on disks: imported by this daemon or waiting to be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PoolListed {
    pub name: String,
    pub id: String,
    pub layout: String,
    pub state: String,
    pub total_bytes: u64,
    pub used_bytes: u64,
    pub available_bytes: u64,
    pub disks: Vec<PathBuf>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PoolImport {
    pub disks: Vec<PathBuf>,
    pub force: bool,
    /// Without disks that had everything when the pool was last used.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub degraded: bool,
    /// The pool to open, by name or id, where the disks hold several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// Its name from now on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rename: Option<String>,
    /// The name of the pool, which is opened once although acknowledged changes are lost. Without disks those of the
    /// configuration are used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accept_loss: Option<String>,
}

/// Another name for a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PoolRename {
    pub name: String,
    /// Also where programs use a mount of it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub force: bool,
}

/// For a pool that is exported, or a volume that is destroyed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct TakeAway {
    /// Also mounts that are in use.
    pub force: bool,
    /// Also a volume that has snapshots, which go with it.
    #[serde(default)]
    pub with_snapshots: bool,
}

/// Properties of a volume that may change at any time. In a request, what is absent stays.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct VolumeChange {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub record_bytes: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compression: Option<String>,
    /// 0 takes the quota away.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sync: Option<String>,
    /// Bytes by the name or number of a user; 0 takes the quota away.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub user_quotas: BTreeMap<String, u64>,
    /// As `user_quotas`, of groups.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub group_quotas: BTreeMap<String, u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum OwnerKind {
    User,
    Group,
}

/// What the files of a user or a group in a volume take up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct OwnerUse {
    pub kind: OwnerKind,
    pub id: u32,
    /// Absent where nobody here has the number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The bytes that the quota counts: data as it is stored, holes left out, reserved room, and the charge for names and attributes.
    pub used_bytes: u64,
    /// Files, directories and all else.
    pub inodes: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota_bytes: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct VolumeCreate {
    pub pool: Option<String>,
    pub name: String,
    pub properties: VolumeChange,
    /// Also serve it as a share of the same name.
    pub share: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encrypt: Option<crate::Encrypt>,
}

/// Move a volume with its snapshots to another pool or store of this daemon, or to another machine at the same store, and answer when
/// it is done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct VolumeMove {
    pub volume: String,
    /// POOL/NAME; or, without a slash, the seat or the host name of another machine.
    pub to: String,
    /// The old volume stays, and nobody uses it.
    pub keep: bool,
    /// Even while clients have files open for writing, or programs use a mount.
    pub force: bool,
    /// Bytes a second at most, while the volume is served.
    pub limit_bytes: Option<u64>,
}

/// A volume that was moved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct VolumeMoved {
    /// POOL/NAME, before and now.
    pub volume: String,
    pub to: String,
    /// For how long nobody could use it.
    pub closed_ms: u64,
    /// The old volume is still there.
    pub kept: bool,
    /// The reason why, unless somebody asked for that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
    /// It was given to another machine at the same store, `to`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub handed_over: bool,
    /// The words of that machine.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct VolumeStatus {
    pub pool: String,
    pub name: String,
    pub id: String,
    pub record_bytes: u32,
    pub compression: String,
    pub quota_bytes: Option<u64>,
    pub sync: String,
    /// Data of its files, holes left out; with a quota what that counts, so the charge for names and attributes, too. Absent when the volume is not open.
    pub used_bytes: Option<u64>,
    /// What that takes up once it is compressed, before redundancy.
    #[serde(default)]
    pub stored_bytes: Option<u64>,
    /// How many bytes of data one stored byte stands for; absent where nothing is stored yet.
    #[serde(default)]
    pub compression_ratio: Option<f64>,
    pub available_bytes: Option<u64>,
    /// The cipher of an encrypted volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encryption: Option<String>,
    /// It is encrypted, and its keys are not there.
    #[serde(default)]
    pub locked: bool,
    /// While its objects are being sealed anew.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sealing: Option<crate::SealingStatus>,
    /// It only receives snapshots of another volume.
    #[serde(default)]
    pub replica: bool,
    /// It is a replica as files, with properties of its own.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub copy: bool,
    /// It is a clone, and began as this snapshot: `VOLUME@NAME`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<String>,
    /// In the answer to the request that made the volume only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recovery_key: Option<String>,
    /// The share that was made with it, in the answer to that request only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared: Option<Box<ShareStatus>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct CheckRequest {
    pub pool: Option<String>,
    pub volume: Option<String>,
    /// Read every record and verify its checksum, not only what refers to what.
    pub read_data: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct CheckResult {
    pub pool: String,
    pub volume: String,
    pub inodes: u64,
    pub entries: u64,
    pub extents: u64,
    pub segments: u64,
    pub data_bytes: u64,
    /// Damaged or missing pieces of objects that were rebuilt, in the whole pool; with `read_data` only.
    pub rebuilt: u64,
    pub problems: Vec<String>,
    /// It is encrypted and its keys are not there: nothing of it was checked.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub locked: bool,
    /// It is a replica: its objects are scrubbed with the pool, and read when it is promoted.
    #[serde(default)]
    pub replica: bool,
}

/// What a user is on the page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum UserRole {
    /// Sees and changes everything.
    Owner,
    /// Sees and changes what is the user's own.
    #[default]
    User,
    /// Sees everything and changes only what is the looker's own.
    Looker,
}

impl UserRole {
    pub const ALL: [Self; 3] = [Self::Owner, Self::User, Self::Looker];

    pub fn word(self) -> &'static str {
        match self {
            Self::Owner => "owner",
            Self::User => "user",
            Self::Looker => "looker",
        }
    }
}

impl std::str::FromStr for UserRole {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|role| role.word() == word);
        found.ok_or_else(|| format!("'{word}' is not a role: write owner, user or looker"))
    }
}

/// Changes of a user; what is not named stays.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct UserChange {
    pub role: Option<UserRole>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct UserStatus {
    pub name: String,
    pub uid: u32,
    pub gid: u32,
    pub groups: Vec<u32>,
    /// A user without a password cannot log in.
    pub has_password: bool,
    /// The password was set while SMB was not served. It opens SMB once it is set again.
    #[serde(default)]
    pub needs_password_for_smb: bool,
    /// Public keys for SFTP.
    #[serde(default)]
    pub keys: usize,
    #[serde(default)]
    pub group_names: Vec<String>,
    /// On the page.
    #[serde(default)]
    pub role: UserRole,
}

/// Carries a password: the socket is the only way it travels, and it is never logged.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct UserAdd {
    pub name: String,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub groups: Vec<u32>,
    /// On the page [default: user].
    #[serde(default)]
    pub role: Option<UserRole>,
    pub password: String,
    /// Even as root, or with a password that anybody guesses.
    #[serde(default)]
    pub force: bool,
}

/// A user was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct UserAdded {
    pub user: UserStatus,
    /// What whoever made it should know.
    pub notes: Vec<String>,
}

/// A user was removed; files stay.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct UserRemoved {
    pub uid: u32,
    /// Shares that nobody may use over SMB any more.
    pub shares_for_nobody: Vec<String>,
}

#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct UserPassword {
    pub password: String,
    #[serde(default)]
    pub force: bool,
    /// The links that the user made in the browser do not end.
    #[serde(default)]
    pub keep_links: bool,
    /// Passkeys and codes of the user do not end.
    #[serde(default)]
    pub keep_factors: bool,
}

/// The configuration was read, or only looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ConfigRead {
    pub file: PathBuf,
    /// What is valid and perhaps not meant.
    pub notes: Vec<String>,
    /// What takes effect at the next start.
    pub at_next_start: Vec<String>,
}

/// A pool was destroyed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PoolDestroyed {
    pub erased: Vec<PathBuf>,
    /// Disks that keep what is on them, and why.
    pub kept: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct MountRequest {
    /// Absolute.
    pub dir: PathBuf,
    /// `volume` or `pool/volume`; the only one when absent.
    pub volume: Option<String>,
    /// As `mount -o` has them: `ro`, `noatime`, ...
    #[serde(default)]
    pub options: Vec<String>,
    /// Mounted at every start from now on: the configuration names it.
    #[serde(default)]
    pub at_start: bool,
    /// The snapshot of the volume that is mounted; the volume as it is when absent.
    #[serde(default)]
    pub snapshot: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct MountStatus {
    pub dir: PathBuf,
    pub volume: String,
    /// The snapshot of it, if one is mounted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<String>,
    pub read_only: bool,
    /// The configuration names it.
    #[serde(default)]
    pub at_start: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct UnmountRequest {
    pub dir: PathBuf,
    /// Not mounted at the next start either: the configuration names it no longer.
    #[serde(default)]
    pub at_start: bool,
}

/// Done; nothing more to say.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Done {}
