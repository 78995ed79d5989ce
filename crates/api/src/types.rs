//! Requests and answers. Names of fields are the wire form: change them only by adding.

use std::net::SocketAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Where a protocol is served.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NfsEndpoint {
    pub host: String,
    pub port: u16,
    /// The export of the first share, such as `/files`.
    pub export: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SmbEndpoint {
    pub host: String,
    pub port: u16,
    /// The name of the first share.
    pub share: Option<String>,
}

/// The one line that `larder up --json` prints when everything is being served.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ready {
    pub pid: u32,
    pub nfs: Option<NfsEndpoint>,
    pub smb: Option<SmbEndpoint>,
    pub user: Option<String>,
    /// `null` when it was chosen by a person earlier: only its hash is kept.
    pub password: Option<String>,
    pub mount: Option<PathBuf>,
    /// The data folder, for `larder --data`.
    pub data: PathBuf,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DaemonInfo {
    pub pid: u32,
    pub version: String,
    pub data: PathBuf,
    pub uptime_secs: u64,
    pub nfs: Option<SocketAddr>,
    pub smb: Option<SocketAddr>,
    pub memory_bytes: u64,
    pub pools: Vec<String>,
}

/// A pool as `zpool status` would show it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
    /// Repair or scrub under way or last done.
    pub scan: Option<String>,
    /// Bytes of object data after redundancy.
    pub total_bytes: u64,
    pub used_bytes: u64,
    /// What can really be written now.
    pub available_bytes: u64,
    pub disks: Vec<DiskStatus>,
    /// Foreign, duplicated and stale disks, and whatever else was found when it was opened.
    #[serde(default)]
    pub notes: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
    /// Why it is in that state, if not ONLINE.
    pub note: Option<String>,
}

/// A pool found on disks: imported by this daemon or waiting to be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
pub struct PoolImport {
    pub disks: Vec<PathBuf>,
    pub force: bool,
}

/// Properties of a volume that may change at any time. In a request, what is absent stays.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeCreate {
    pub pool: Option<String>,
    pub name: String,
    pub properties: VolumeChange,
    /// Also serve it as a share of the same name.
    pub share: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeStatus {
    pub pool: String,
    pub name: String,
    pub id: String,
    pub record_bytes: u32,
    pub compression: String,
    pub quota_bytes: Option<u64>,
    pub sync: String,
    /// Absent when the volume is not open.
    pub used_bytes: Option<u64>,
    pub available_bytes: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckRequest {
    pub pool: Option<String>,
    pub volume: Option<String>,
    /// Read every record and verify its checksum, not only what refers to what.
    pub read_data: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShareStatus {
    pub name: String,
    /// `pool/volume`.
    pub volume: String,
    pub nfs: Option<String>,
    pub smb: Option<String>,
    pub read_only: bool,
    pub squash: String,
    pub networks: Vec<String>,
    /// Empty: every user.
    pub users: Vec<String>,
    /// Why it is not being served, if so.
    pub fault: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserStatus {
    pub name: String,
    pub uid: u32,
    pub gid: u32,
    pub groups: Vec<u32>,
    /// A user without a password cannot log in.
    pub has_password: bool,
}

/// Carries a password: the socket is the only way it travels, and it is never logged.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserAdd {
    pub name: String,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub groups: Vec<u32>,
    pub password: String,
}

#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserPassword {
    pub password: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountRequest {
    /// Absolute.
    pub dir: PathBuf,
    /// `volume` or `pool/volume`; the only one when absent.
    pub volume: Option<String>,
    pub read_only: bool,
    /// Only the user who runs the daemon may look in.
    pub private: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountStatus {
    pub dir: PathBuf,
    pub volume: String,
    pub read_only: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnmountRequest {
    pub dir: PathBuf,
}

/// Done; nothing more to say.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Done {}
