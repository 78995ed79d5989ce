//! What a user may do with a file through each door, and why.

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ExplainRequest {
    pub user: String,
    /// `/SHARE/inside`, or `POOL/VOLUME/inside`.
    pub path: String,
    /// The address that the user asks from; absent: one that may come in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<std::net::IpAddr>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Explanation {
    pub user: String,
    pub uid: u32,
    pub gid: u32,
    /// Numbers of all further groups.
    pub gids: Vec<u32>,
    /// Names of all groups.
    pub groups: Vec<String>,
    /// `pool/volume`.
    pub volume: String,
    /// In the volume; empty: its root.
    pub path: String,
    /// Absent where the volume is not served, or there is nothing at the path.
    pub object: Option<ExplainedObject>,
    /// Why nothing can be said about the object.
    pub fault: Option<String>,
    pub doors: Vec<ExplainedDoor>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ExplainedObject {
    /// file, folder, link, ...
    pub kind: String,
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    /// Names of owner and group, where users and groups have the numbers.
    pub owner: Option<String>,
    pub group: Option<String>,
    /// An access control list decides in place of the mode.
    pub has_list: bool,
    pub attributes: Vec<String>,
}

/// One way to the object: a door, and a share of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ExplainedDoor {
    /// NFS, SMB, SFTP, WebDAV, mount.
    pub door: String,
    pub share: Option<String>,
    /// The uid and gid that the user acts under; absent where there is no way in.
    pub acts_as: Option<(u32, u32)>,
    pub operations: Vec<ExplainedOperation>,
    /// In the order in which they are looked at.
    pub reasons: Vec<ExplainedReason>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ExplainedOperation {
    /// see, read, write, truncate, set-times, set-mode, rename, remove, list, enter, add-file, add-folder.
    pub name: String,
    /// Absent: this door has no such operation.
    pub allowed: Option<bool>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ExplainedReason {
    /// Whether it opens the way, bounds it, or closes it.
    pub effect: ReasonEffect,
    pub text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum ReasonEffect {
    Opens,
    Bounds,
    Closes,
}
