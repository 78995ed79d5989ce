//! The recycle bin of one top, as all shares of it know it. Its operations are in `recycle`.

use std::collections::HashMap;

use bytes::Bytes;
use larder_fs::{Attr, Ino};
use parking_lot::Mutex;

/// The bin, at the top of a share.
pub(crate) const BIN_NAME: &[u8] = b".recycle";
/// Folders whose names are remembered: more than lie on one way down, else removals in the deepest read whole folders.
pub(crate) const NAMES_MAX: usize = 8192;

/// The bin of the shares with one top.
pub(crate) struct Bin {
    pub(crate) top: Ino,
    /// Of folders: where they lay when they were last looked for, and under which name. Checked before use.
    pub(crate) names: Mutex<HashMap<Ino, (Ino, Bytes)>>,
    pub(crate) oldest: Mutex<Oldest>,
}

/// The oldest removal in a bin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Oldest {
    /// Nobody has looked yet.
    #[default]
    Unknown,
    Empty,
    /// Or later: as its ctime has it, in seconds since 1970.
    At(i64),
}

impl Bin {
    pub(crate) fn new(top: Ino) -> Bin {
        Bin { top, names: Mutex::default(), oldest: Mutex::default() }
    }

    pub(crate) fn note(&self, removed: &Attr) {
        let mut oldest = self.oldest.lock();
        if *oldest == Oldest::Empty {
            *oldest = Oldest::At(removed.ctime.secs);
        }
    }
}
