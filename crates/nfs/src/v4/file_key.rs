//! A file, and what an open of a client does with it and denies to others.

use larder_opens::Uses;

/// A file of all volumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileKey {
    pub volume: u64,
    pub inode: u64,
}

/// A set of reading and writing: what an open does, or what it denies to others (`OPEN4_SHARE_*`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ShareBits(u8);

impl ShareBits {
    pub const NONE: ShareBits = ShareBits(0);
    pub const READ: ShareBits = ShareBits(1);
    pub const WRITE: ShareBits = ShareBits(2);
    pub const BOTH: ShareBits = ShareBits(3);

    /// Of the lower bits of `share_access` or `share_deny`; the upper ones of `share_access` are
    /// wishes.
    pub fn from_number(number: u32) -> Option<Self> {
        u8::try_from(number).ok().filter(|bits| *bits <= 3).map(ShareBits)
    }

    #[must_use]
    pub fn and(self, other: ShareBits) -> ShareBits {
        ShareBits(self.0 | other.0)
    }

    #[must_use]
    pub fn common(self, other: ShareBits) -> ShareBits {
        ShareBits(self.0 & other.0)
    }

    pub fn has(self, other: ShareBits) -> bool {
        self.0 & other.0 == other.0
    }

    pub fn meets(self, other: ShareBits) -> bool {
        self.0 & other.0 != 0
    }

    /// As all doors know them.
    pub fn uses(self) -> Uses {
        Uses::NOTHING.and_if(self.has(Self::READ), Uses::READ).and_if(self.has(Self::WRITE), Uses::WRITE)
    }

    /// 0 to 3.
    pub fn number(self) -> u8 {
        self.0
    }
}
