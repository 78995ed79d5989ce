//! Files that clients have open or locked.

use serde::{Deserialize, Serialize};

/// Opens of clients of SMB and NFSv4, the newest first. The other doors keep none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct OpenFiles {
    pub opens: Vec<OpenFile>,
    /// Older ones that are not listed.
    pub more: u64,
}

/// A use of an open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum OpenUse {
    Read,
    Write,
    /// Removing and renaming.
    Delete,
}

impl OpenUse {
    /// As people read it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Delete => "delete",
        }
    }
}

/// One open of one client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct OpenFile {
    /// By which it is ended. Of this run of the daemon.
    pub id: String,
    /// nfs, smb.
    pub door: String,
    /// Absent: a guest, or a number that no user has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Absent: the client of SMB is away, and may come back for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// The own name of a client of NFS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    /// Of SMB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<String>,
    /// Of NFS: `pool/volume`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume: Option<String>,
    /// From the top of the share or volume. Absent: a client of NFS opened it by its handle alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    #[serde(default)]
    pub directory: bool,
    pub does: Vec<OpenUse>,
    /// What nobody else may do meanwhile.
    pub denies: Vec<OpenUse>,
    /// Ranges of SMB that are locked, or processes of NFS that have locked some.
    pub locks: u64,
    /// The client caches the file: it is asked before somebody else gets it.
    pub caches: bool,
}
