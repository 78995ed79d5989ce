//! Making a shard anew: its sources, and the reasons why it failed.

use std::io;

use crate::error::PoolError;

/// Where the bytes of a new shard come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The shard where it is now; the other shards give its damaged blocks.
    Itself,
    Others,
}

pub enum Rebuild {
    /// The object cannot be read.
    Read(PoolError),
    /// The target cannot be written.
    Write(io::Error),
}

impl From<io::Error> for Rebuild {
    fn from(error: io::Error) -> Self {
        Self::Write(error)
    }
}
