//! The name of a volume and the choices that a person may change.

use std::fmt;
use std::str::FromStr;

/// The codec of records written from now on. Records keep the codec that they were written with, and say which it is. They
/// do not say how hard the writer tried, and no reader has to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(into = "StoredCompression", from = "StoredCompression")]
pub enum Compression {
    /// Records are stored as they are.
    None,
    /// Fast enough to be hidden behind the disks: the default.
    Lz4,
    /// Smaller than LZ4, for several times its CPU time.
    Zstd(ZstdLevel),
}

/// How hard zstd tries: 1 to 19.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ZstdLevel(u8);

impl ZstdLevel {
    /// The level of `zstd` without a number.
    pub const DEFAULT: Self = Self(3);
    /// Beyond it zstd takes hundreds of MiB of memory a core.
    const MAX: Self = Self(19);

    /// `None`: there is no such level.
    pub fn new(level: u8) -> Option<Self> {
        (1..=Self::MAX.0).contains(&level).then_some(Self(level))
    }

    /// The number.
    pub fn get(self) -> u8 {
        self.0
    }
}

impl Compression {
    /// zstd at its default level.
    pub const ZSTD: Self = Self::Zstd(ZstdLevel::DEFAULT);
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Lz4 => f.write_str("lz4"),
            &Self::ZSTD => f.write_str("zstd"),
            Self::Zstd(level) => write!(f, "zstd:{}", level.0),
        }
    }
}

impl FromStr for Compression {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let level = |text: &str| text.parse().ok().and_then(ZstdLevel::new).map(Self::Zstd);
        let known = match text {
            "none" => Some(Self::None),
            "lz4" => Some(Self::Lz4),
            "zstd" => Some(Self::ZSTD),
            _ => text.strip_prefix("zstd:").and_then(level),
        };
        known.ok_or_else(|| {
            format!("'{text}' is not a compression: use lz4, zstd, zstd:LEVEL (1 to {}) or none", ZstdLevel::MAX.0)
        })
    }
}

/// The compression in a registry. Programs that know no levels read the codec, and write at the default level.
#[derive(serde::Serialize, serde::Deserialize)]
struct StoredCompression {
    compression: StoredCodec,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    compression_level: Option<u8>,
}

#[derive(Clone, Copy, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
enum StoredCodec {
    None,
    Lz4,
    Zstd,
}

impl From<Compression> for StoredCompression {
    fn from(compression: Compression) -> Self {
        let (compression, compression_level) = match compression {
            Compression::None => (StoredCodec::None, None),
            Compression::Lz4 => (StoredCodec::Lz4, None),
            Compression::Zstd(level) => (StoredCodec::Zstd, (level != ZstdLevel::DEFAULT).then_some(level.0)),
        };
        Self { compression, compression_level }
    }
}

impl From<StoredCompression> for Compression {
    fn from(stored: StoredCompression) -> Self {
        match stored.compression {
            StoredCodec::None => Self::None,
            StoredCodec::Lz4 => Self::Lz4,
            // Another program may know more levels.
            StoredCodec::Zstd => Self::Zstd(
                stored
                    .compression_level
                    .map_or(ZstdLevel::DEFAULT, |level| ZstdLevel(level.clamp(1, ZstdLevel::MAX.0))),
            ),
        }
    }
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
    #[serde(flatten)]
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
    /// It is a replica as files, with properties of its own (feature `copy`).
    #[serde(skip)]
    pub copy: bool,
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn compressions_are_read_and_written() {
        for text in ["none", "lz4", "zstd", "zstd:1", "zstd:9", "zstd:19"] {
            assert_eq!(text.parse::<Compression>().unwrap().to_string(), text);
        }
        assert_eq!("zstd:3".parse(), Ok(Compression::ZSTD));
        for text in ["", "zst", "zstd:", "zstd:0", "zstd:20", "zstd:256", "zstd:x", "lz4:1", "zstd:-1"] {
            assert!(text.parse::<Compression>().unwrap_err().contains("zstd:LEVEL (1 to 19)"), "{text}");
        }
    }

    #[test]
    fn a_level_stands_beside_the_codec_that_older_programs_know() {
        let stored = |text: &str| {
            let properties = Properties { compression: text.parse().unwrap(), ..Properties::default() };
            let json = serde_json::to_string(&properties).unwrap();
            assert_eq!(serde_json::from_str::<Properties>(&json).unwrap(), properties);
            json
        };
        assert_eq!(
            stored("zstd"),
            r#"{"record_bytes":131072,"compression":"zstd","quota_bytes":null,"sync":"standard"}"#
        );
        let harder = stored("zstd:9");
        assert!(harder.contains(r#""compression":"zstd","compression_level":9,"#), "{harder}");
        let beyond = harder.replace(":9,", ":200,");
        assert_eq!(serde_json::from_str::<Properties>(&beyond).unwrap().compression.to_string(), "zstd:19");
    }
}
