//! Layouts: how many pieces an object is cut into, and how many of them may be lost.
//!
//! A layout says `m` (how many disks may fail); the width is only an upper bound. An object is
//! written over as many disks as have room for it, so its own `k` and `m` are kept with each
//! object: a full or absent disk narrows the stripe instead of stopping the writer, and a pool may
//! change its layout object by object.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Disks a pool may have.
pub const DISKS_MAX: usize = 32;

/// How redundancy is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Layout {
    /// No redundancy.
    Stripe,
    /// Two copies: survives the loss of one disk.
    #[serde(rename = "mirror")]
    Mirror2,
    /// Three copies: survives the loss of two disks.
    Mirror3,
    /// One parity shard: survives the loss of one disk.
    Raidz1,
    /// Two parity shards: survives the loss of two disks.
    Raidz2,
    /// Three parity shards: survives the loss of three disks.
    Raidz3,
}

impl Layout {
    /// All layouts, in the order in which they are offered.
    pub const ALL: [Self; 6] = [Self::Stripe, Self::Mirror2, Self::Mirror3, Self::Raidz1, Self::Raidz2, Self::Raidz3];

    /// Disks that may fail without loss.
    pub fn failures(self) -> u8 {
        match self {
            Self::Stripe => 0,
            Self::Mirror2 | Self::Raidz1 => 1,
            Self::Mirror3 | Self::Raidz2 => 2,
            Self::Raidz3 => 3,
        }
    }

    /// The fewest disks that make sense: a parity layout with one data disk is a mirror.
    pub fn disks_min(self) -> usize {
        match self {
            Self::Stripe => 1,
            Self::Mirror2 => 2,
            Self::Mirror3 | Self::Raidz1 => 3,
            Self::Raidz2 => 4,
            Self::Raidz3 => 5,
        }
    }

    /// The width used unless the user asks for another. Wider stripes save little space, cost
    /// more disks per large read and more reading per rebuilt byte.
    pub fn width_default(self, disks: usize) -> u8 {
        let most = match self {
            Self::Stripe | Self::Raidz1 => 8,
            Self::Mirror2 => 2,
            Self::Mirror3 => 3,
            Self::Raidz2 => 10,
            Self::Raidz3 => 11,
        };
        disks.min(most) as u8
    }

    /// Whether objects are copied whole, without parity.
    pub fn is_mirror(self) -> bool {
        matches!(self, Self::Mirror2 | Self::Mirror3)
    }

    /// Data and parity pieces of an object written to `disks` disks at once: `k` and `m`.
    pub fn shape(self, width: u8, disks: usize) -> (u8, u8) {
        let n = disks.min(usize::from(width)) as u8;
        let m = self.failures();
        if self.is_mirror() { (1, m) } else { (n.saturating_sub(m).max(1), m) }
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Stripe => "stripe",
            Self::Mirror2 => "mirror",
            Self::Mirror3 => "mirror3",
            Self::Raidz1 => "raidz1",
            Self::Raidz2 => "raidz2",
            Self::Raidz3 => "raidz3",
        })
    }
}

/// The name of an unknown layout.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a layout: use stripe, mirror, mirror3, raidz1, raidz2 or raidz3")]
pub struct ParseLayoutError(String);

impl FromStr for Layout {
    type Err = ParseLayoutError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(match text.trim().to_ascii_lowercase().as_str() {
            "stripe" | "raid0" | "single" | "jbod" => Self::Stripe,
            // A mirror spreads its pairs over any number of disks, like RAID 10 elsewhere.
            "mirror" | "mirror2" | "raid1" | "raid10" | "raid1+0" => Self::Mirror2,
            "mirror3" | "raid1c3" => Self::Mirror3,
            "raidz" | "raidz1" | "z1" | "raid-z1" | "raid5" => Self::Raidz1,
            "raidz2" | "z2" | "raid-z2" | "raid6" => Self::Raidz2,
            "raidz3" | "z3" | "raid-z3" => Self::Raidz3,
            _ => return Err(ParseLayoutError(text.to_owned())),
        })
    }
}
