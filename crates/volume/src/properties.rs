//! What a volume is called and how it stores: what a person chooses and may change.

/// Codec of new records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Compression {
    None,
    Lz4,
    Zstd,
}

/// When a metadata operation is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SyncMode {
    /// When it is durable.
    Standard,
    /// When it is in memory; durable within 5 s, in order. fsync and COMMIT still wait.
    Relaxed,
}

/// What a person may change about a volume at any time.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Properties {
    /// Bytes; a power of two from 4 KiB to 1 MiB. Applies to data written from now on.
    pub record_bytes: u32,
    pub compression: Compression,
    /// Bytes of file data and metadata, before compression and redundancy.
    pub quota_bytes: Option<u64>,
    pub sync: SyncMode,
}

impl Default for Properties {
    fn default() -> Self {
        Self { record_bytes: 128 << 10, compression: Compression::Lz4, quota_bytes: None, sync: SyncMode::Standard }
    }
}

/// A volume's entry in the registry of its store.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct VolumeInfo {
    pub name: String,
    pub id: uuid::Uuid,
    pub properties: Properties,
    /// It is encrypted (feature `encryption`).
    #[serde(skip)]
    pub sealed: bool,
}

impl VolumeInfo {
    /// What the paths of all its objects begin with.
    pub fn prefix(&self) -> String {
        format!("{}/", crate::layout::prefix_of(self.id))
    }
}
