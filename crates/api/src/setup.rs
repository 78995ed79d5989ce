//! The first run: what a person chose for a new box, and how far its making is.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::Failure;

/// A new box.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SetupPlan {
    /// Folders that become disks of the pool.
    pub folders: Vec<PathBuf>,
    /// Whole disks that are erased for it.
    pub devices: Vec<SetupDevice>,
    pub layout: String,
    /// The name that people see in their network; empty: the machine's.
    pub box_name: String,
    pub user: String,
    /// Never kept in a file.
    #[serde(skip)]
    pub password: String,
    pub share: String,
    /// Automatic snapshots by the usual schedule.
    pub snapshots: bool,
    pub doors: SetupDoors,
}

/// A box that comes back from its disks.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct SetupImport {
    pub folders: Vec<PathBuf>,
    /// The password of an owner, or the recovery key.
    pub secret: String,
    /// Also where another machine did not give the disks back.
    pub force: bool,
}

/// Without its secret.
impl fmt::Debug for SetupImport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SetupImport").field("folders", &self.folders).finish_non_exhaustive()
    }
}

/// Without its password.
impl fmt::Debug for SetupPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SetupPlan")
            .field("folders", &self.folders)
            .field("devices", &self.devices)
            .finish_non_exhaustive()
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SetupDevice {
    pub path: PathBuf,
    /// What a person typed so that it may be erased.
    pub typed: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SetupDoors {
    pub smb: bool,
    pub webdav: bool,
    pub sftp: bool,
    pub nfs: bool,
    /// A machine that NFS trusts beside this one.
    pub nfs_from: Option<IpAddr>,
}

/// What a plan would do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SetupCheck {
    /// Sentences in the order of the deeds.
    pub deeds: Vec<String>,
    pub erased: Vec<SetupErased>,
}

/// A disk that would be erased.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SetupErased {
    pub device: PathBuf,
    pub title: String,
    /// What would be lost; empty where nothing is.
    pub holds: Vec<String>,
    /// To be typed where something is lost.
    pub token: String,
}

/// How far it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SetupProgress {
    pub steps: Vec<String>,
    /// Steps that are done; the next one is under way.
    pub done: usize,
    pub failure: Option<SetupFailure>,
    /// Everything is served.
    pub served: Option<SetupServed>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SetupFailure {
    /// The step where it can be mended: `disks`, `names` or `review`.
    pub step: String,
    pub failure: Failure,
}

/// The way into the set-up of a box that serves nothing yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SetupLink {
    /// For a browser in the network of the box. It is good for one browser and for an hour.
    pub url: String,
    /// The SHA-256 of the certificate that the browser is shown.
    pub fingerprint: String,
}

/// What is needed to reach the new box.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SetupServed {
    /// The address by which others reach it.
    pub host: String,
    pub user: String,
    pub share: String,
    pub smb_port: Option<u16>,
    pub nfs: Option<SetupNfs>,
    pub sftp: Option<SetupSecure>,
    pub webdavs: Option<SetupSecure>,
    /// The port of the page.
    pub page_port: Option<u16>,
    /// The public key of the certificate, as curl pins it.
    pub pin: Option<String>,
    /// Opens the box's record when nothing else does. Shown this once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recovery_key: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SetupNfs {
    pub port: u16,
    pub export: String,
    /// The machine that it trusts beside this one.
    pub from: Option<IpAddr>,
}

/// A door with a key that clients are shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SetupSecure {
    pub port: u16,
    pub fingerprint: String,
}
