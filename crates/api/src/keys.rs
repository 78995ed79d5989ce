//! Encrypted volumes: what opens them, and what is said of that.

use serde::{Deserialize, Serialize};

/// A secret that opens an encrypted volume. It travels over the daemon's own socket only, and is never shown.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case", from = "Received")]
#[cfg_attr(test, schemars(!from))]
pub enum VolumeSecret {
    Passphrase(String),
    /// The bytes of a key file.
    KeyFile(Vec<u8>),
    /// The recovery key, as a person types it.
    Recovery(String),
}

/// A secret as it arrives, in a request whose memory is zeroed when it is freed (`wipe.freed_is_zeroed`).
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Received {
    Passphrase(String),
    KeyFile(Vec<u8>),
    Recovery(String),
}

impl From<Received> for VolumeSecret {
    fn from(received: Received) -> Self {
        larder_base::wipe::begin();
        match received {
            Received::Passphrase(text) => Self::Passphrase(text),
            Received::KeyFile(bytes) => Self::KeyFile(bytes),
            Received::Recovery(text) => Self::Recovery(text),
        }
    }
}

impl std::fmt::Debug for VolumeSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("VolumeSecret")
    }
}

/// How a new volume is encrypted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Encrypt {
    /// By default the one that this machine is quickest at.
    pub cipher: Option<String>,
    pub secret: VolumeSecret,
    /// Also make a recovery key; it is in the answer, and nowhere else.
    pub recovery: bool,
}

/// What is done with the keys of a volume. Whatever changes them needs a secret that opens it now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum KeysRequest {
    Unlock {
        secret: VolumeSecret,
    },
    /// Forget the keys. With `force` also where a program uses a mount of it.
    Lock {
        force: bool,
    },
    Add {
        secret: VolumeSecret,
        new: VolumeSecret,
        name: String,
    },
    /// A recovery key, made anew; it is in the answer.
    AddRecovery {
        secret: VolumeSecret,
        /// What people call it.
        name: String,
    },
    /// By name, id, or the beginning of an id.
    Remove {
        secret: VolumeSecret,
        slot: String,
    },
    /// Encrypt a volume that is not. With `force` also where programs use it, which closes for a moment.
    Encrypt {
        encrypt: Encrypt,
        force: bool,
    },
    Rekey(Rekey),
}

/// A new key for a volume, under which all that is stored is sealed anew.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Rekey {
    /// Those of all ways to open it that stay.
    pub secrets: Vec<VolumeSecret>,
    /// Ways to open it that go: by name, id, or the beginning of an id.
    pub drop: Vec<String>,
    /// By default the one of before.
    pub cipher: Option<String>,
    /// Also make a recovery key; it is in the answer, and nowhere else.
    pub new_recovery: bool,
    /// Also where programs use the volume, which closes for a moment.
    pub force: bool,
}

/// How far a volume is whose objects are being sealed anew.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SealingStatus {
    /// It has a new key; otherwise it was not encrypted before.
    pub rekey: bool,
    /// Not while the volume is locked.
    pub running: bool,
    pub done_bytes: u64,
    pub total_bytes: u64,
    /// The reason why it could not be ended yet. It is tried again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
}

/// The keys of a volume, as people see them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct KeysStatus {
    pub pool: String,
    pub volume: String,
    pub cipher: String,
    pub locked: bool,
    pub slots: Vec<KeySlot>,
    /// The id of the slot whose secret opened it, while it is open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub opened_with: Option<String>,
    /// That slot has been removed since.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub opened_with_removed: bool,
    /// While its objects are being sealed anew.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sealing: Option<SealingStatus>,
    /// In the answer to the request that made it only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recovery_key: Option<String>,
}

/// One way to open the volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct KeySlot {
    pub id: String,
    /// `passphrase`, `key file` or `recovery key`.
    pub kind: String,
    pub name: String,
    /// Seconds since 1970.
    pub created: u64,
    /// Of a replica: the volume itself does not have it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub here_only: bool,
}
