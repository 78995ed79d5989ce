//! Ways and accesses: the layers that a measurement goes through, and its direction and pattern.

use serde::{Deserialize, Serialize};

/// The way that was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Path {
    /// The disks side by side, without a pool.
    #[serde(alias = "disk")]
    Disks,
    /// Through the pool, on the machine itself.
    #[serde(alias = "pool")]
    Local,
    /// The wire alone, without storage: reading is towards the client.
    #[serde(alias = "network", alias = "wire")]
    Net,
    /// Through pool and network.
    Share,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum What {
    Read,
    Write,
    RandomRead,
    RandomWrite,
}

impl What {
    pub fn is_random(self) -> bool {
        matches!(self, Self::RandomRead | Self::RandomWrite)
    }

    pub fn writes(self) -> bool {
        matches!(self, Self::Write | Self::RandomWrite)
    }
}
