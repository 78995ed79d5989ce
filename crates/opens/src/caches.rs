//! What clients may cache of a file.

/// What a client may cache of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Caches(u8);

impl Caches {
    /// Nothing.
    pub const NOTHING: Caches = Caches(0);
    /// Data that is read.
    pub const READS: Caches = Caches(1);
    /// Data that is written and not yet sent. Needed back before data or sizes are read.
    pub const WRITES: Caches = Caches(2);
    /// All data. Needed back before it changes.
    pub const DATA: Caches = Self::READS.and(Self::WRITES);
    /// Opens that are kept for later. Needed back before the name goes.
    pub const HANDLES: Caches = Caches(4);
    /// Attributes. Needed back before others than the size change, and names are added.
    pub const ATTRIBUTES: Caches = Caches(8);

    /// Needed back before a lock: whoever takes it reads what was written before, and with an
    /// exclusive one nobody reads what was cached before.
    pub const fn of_lock(is_exclusive: bool) -> Caches {
        if is_exclusive { Self::DATA } else { Self::WRITES }
    }

    /// Both together.
    #[must_use]
    pub const fn and(self, other: Caches) -> Caches {
        Caches(self.0 | other.0)
    }

    /// Both together if `also`, else this alone.
    #[must_use]
    pub const fn and_if(self, also: bool, other: Caches) -> Caches {
        if also { self.and(other) } else { self }
    }

    pub(crate) const fn within(self, other: Caches) -> Caches {
        Caches(self.0 & other.0)
    }

    pub(crate) const fn meets(self, other: Caches) -> bool {
        self.within(other).0 != 0
    }

    pub(crate) const fn has(self, other: Caches) -> bool {
        self.within(other).0 == other.0
    }
}

/// What a grant has to know of the other doors' clients of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Others {
    /// One has it open, or was promised something.
    pub is_open: bool,
    /// One may write it.
    pub is_written: bool,
}

/// A promise as the record of its file has it.
pub(crate) struct Promised {
    pub id: u64,
    pub door: u32,
    pub caches: Caches,
    /// The part that an access waits for. The door tells its client about the rest in time.
    pub awaited: Caches,
    /// The part that the client was asked for.
    pub asked: Caches,
}

impl Promised {
    pub fn is_awaited(&self, door: u32, what: Caches) -> bool {
        self.door != door && self.caches.within(self.awaited).meets(what)
    }
}
