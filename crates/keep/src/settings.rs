//! How a store in a bucket is opened.

use std::path::PathBuf;

use larder_base::Seat;
use larder_base::units::ByteSize;
use larder_store::{BucketSettings, Prices};

/// Volumes in a bucket. Keys are not in here: they come from the environment, a profile or the machine's role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreSettings {
    pub name: String,
    pub bucket: BucketSettings,
    /// Machines at other seats serve other volumes of the store.
    pub seat: Seat,
    /// Another machine takes over when this one is silent, and this one waits while another has the store.
    pub standby: bool,
    /// Another machine writes the store: its volumes are served read-only, at most so many seconds behind.
    pub read_only: Option<u64>,
    pub cache: Option<CacheSettings>,
    /// The pool whose journal answers: `durability = "journal"`. Without one the bucket does.
    pub journal: Option<String>,
    /// `None`: nobody said what the bucket costs.
    pub prices: Option<Prices>,
}

/// A cache on a local disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheSettings {
    pub dir: PathBuf,
    pub bytes: ByteSize,
}
