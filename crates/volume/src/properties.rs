//! The name of a volume and the choices that a person may change.

/// The codec of records written from now on. Records keep the codec that they were written with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Compression {
    /// Records are stored as they are.
    None,
    /// Fast enough to be hidden behind the disks: the default.
    Lz4,
    /// Level 3: smaller than LZ4, for several times its CPU time.
    Zstd,
}

/// When the answer to a metadata operation is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SyncMode {
    /// Once the change is durable.
    Standard,
    /// Once the change is in memory. It becomes durable within 5 s, in order. fsync and COMMIT
    /// still wait.
    Relaxed,
}

/// The choices that a person may change about a volume at any time.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Properties {
    /// Bytes of a record, the unit of compression and checksums: a power of two from 4 KiB to 1
    /// MiB. Applies to data written from now on.
    pub record_bytes: u32,
    /// The codec of data written from now on.
    pub compression: Compression,
    /// The most bytes of file data, before compression and redundancy. `None`: as much as the store
    /// holds.
    pub quota_bytes: Option<u64>,
    /// When metadata operations are answered.
    pub sync: SyncMode,
    /// The most that the files of a user may take up, and those of a group.
    #[serde(flatten)]
    pub owner_quotas: OwnerQuotas,
}

/// The quota of a user or group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct OwnerQuota {
    /// The uid or gid; not 0.
    pub id: u32,
    /// Bytes of data that files of this owner may hold, before compression and redundancy.
    pub bytes: u64,
}

/// Quotas by owner, each list in the order of numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct OwnerQuotas {
    /// Of users.
    #[serde(default, rename = "user_quotas", skip_serializing_if = "Vec::is_empty")]
    pub users: Vec<OwnerQuota>,
    /// Of groups.
    #[serde(default, rename = "group_quotas", skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<OwnerQuota>,
}

impl OwnerQuotas {
    /// Nobody has one.
    pub fn is_empty(&self) -> bool {
        self.users.is_empty() && self.groups.is_empty()
    }

    /// Sets the quota of an owner in `list`; `None` takes it away.
    pub fn set(list: &mut Vec<OwnerQuota>, id: u32, bytes: Option<u64>) {
        list.retain(|quota| quota.id != id);
        if let Some(bytes) = bytes {
            let at = list.partition_point(|quota| quota.id < id);
            list.insert(at, OwnerQuota { id, bytes });
        }
    }

    /// The quota of an owner in `list`.
    pub fn of(list: &[OwnerQuota], id: u32) -> Option<u64> {
        list.iter().find(|quota| quota.id == id).map(|quota| quota.bytes)
    }
}

impl Default for Properties {
    fn default() -> Self {
        Self {
            record_bytes: 128 << 10,
            compression: Compression::Lz4,
            quota_bytes: None,
            sync: SyncMode::Standard,
            owner_quotas: OwnerQuotas::default(),
        }
    }
}

/// The reason why the objects of a volume are sealed anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Sealing {
    /// It was in clear before.
    Encrypt,
    /// It has a new key.
    Rekey,
}

impl Sealing {
    /// The word of a sentence: the volume is being ...
    pub fn word(self) -> &'static str {
        match self {
            Self::Encrypt => "encrypted",
            Self::Rekey => "re-keyed",
        }
    }
}

/// A volume's entry in the registry of its store.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct VolumeInfo {
    /// Unique among the volumes of the store; 1 to 64 bytes of `[a-z0-9_.-]`.
    pub name: String,
    /// Never changes and is never used again. Paths of objects contain it.
    pub id: uuid::Uuid,
    /// The choices that apply to the volume now.
    pub properties: Properties,
    /// It is encrypted (feature `encryption`).
    #[serde(skip)]
    pub sealed: bool,
    /// Its objects are being sealed anew, and are of two kinds meanwhile (feature `sealing`).
    #[serde(skip)]
    pub sealing: Option<Sealing>,
    /// It only receives snapshots of another volume, and is opened once it was promoted (feature `replica`).
    #[serde(skip)]
    pub replica: bool,
    /// The volume and the snapshot that it began as, if it is a clone: `VOLUME@NAME` (feature `clone`). In lists only.
    #[serde(skip)]
    pub origin: Option<String>,
}

impl VolumeInfo {
    /// The prefix of the paths of all its objects, with the slash at its end.
    pub fn prefix(&self) -> String {
        format!("{}/", crate::layout::prefix_of(self.id))
    }
}
