//! What a change is, as far as its duties ask ([`Files::change`](crate::Files::change)).

use std::borrow::Cow;

use larder_fs::{Attr, Changed, Cred, Ino, Written};
use larder_opens::{Caches, Uses};

use crate::audit::FileAct;
use crate::guard::sample::Look;
use crate::tree::OpenNode;

pub(crate) type Name<'a> = Cow<'a, [u8]>;

/// One operation that changes the tree.
pub(crate) struct Change<'a> {
    pub(crate) cred: &'a Cred,
    pub(crate) act: Act,
    /// The entry that is made, replaced, removed or renamed, and the one that a rename makes. No
    /// names where an act has none.
    pub(crate) entries: [(Ino, Name<'a>); 2],
}

/// Each duty says for every act what it does about it, or why it does nothing.
#[derive(Clone, Copy)]
pub(crate) enum Act {
    /// `look`: what the bytes look like, where the guard asks.
    Write {
        ino: Ino,
        offset: u64,
        len: u64,
        look: Option<Look>,
    },
    Append {
        ino: Ino,
        len: u64,
    },
    /// Space is reserved, punched or zeroed.
    Allocate {
        ino: Ino,
        offset: u64,
        len: u64,
    },
    /// `len` bytes become those of another file, from the offsets.
    Share {
        source: (Ino, u64),
        target: (Ino, u64),
        len: u64,
    },
    /// `permissions`: mode, owner or access list are among them.
    Attributes {
        ino: Ino,
        size: Option<u64>,
        permissions: bool,
    },
    /// `size`: the one that a file gets which has the name already.
    Create {
        size: Option<u64>,
    },
    /// Without a name, in the directory of the entry.
    Unnamed,
    /// A directory, a symbolic link, a FIFO, a socket or a device node.
    Make,
    Link {
        ino: Ino,
    },
    /// `does`: to other doors, to the file that loses its name.
    Relink {
        ino: Ino,
        does: Uses,
    },
    Unlink,
    Rmdir,
    /// Or an exchange.
    Rename,
}

impl<'a> Change<'a> {
    /// Of an inode alone.
    pub(crate) fn of(cred: &'a Cred, act: Act) -> Self {
        Self { cred, act, entries: [(Ino(0), Cow::Borrowed(b"")), (Ino(0), Cow::Borrowed(b""))] }
    }

    pub(crate) fn at(cred: &'a Cred, act: Act, dir: Ino, name: &'a [u8]) -> Self {
        Self { entries: [(dir, name.into()), (Ino(0), Cow::Borrowed(b""))], ..Self::of(cred, act) }
    }

    /// As they are stored.
    pub(crate) fn names(&self) -> [Name<'a>; 2] {
        self.entries.each_ref().map(|(_, name)| name.clone())
    }
}

/// What a change has done, as far as its duties ask.
pub(crate) trait Outcome: Sync {
    /// Of the inode that was made, linked or removed, afterwards.
    fn attr(&self) -> Option<&Attr> {
        None
    }

    fn size_before(&self) -> Option<u64> {
        None
    }

    /// Something was made or written that was not there before.
    fn is_new(&self) -> bool {
        true
    }

    /// Of a removal that a bin has taken.
    fn kept(_removed: (Attr, Changed)) -> Option<Self>
    where
        Self: Sized,
    {
        None
    }
}

impl Outcome for () {}
impl Outcome for (u64, Written) {}
impl Outcome for (Changed, Changed) {}

impl Outcome for Changed {
    fn size_before(&self) -> Option<u64> {
        Some(self.before.size)
    }

    fn kept((_, changed): (Attr, Changed)) -> Option<Self> {
        Some(changed)
    }
}

impl Outcome for Written {
    fn size_before(&self) -> Option<u64> {
        self.changed.size_before()
    }
}

/// Bytes that were copied.
impl Outcome for u64 {
    fn is_new(&self) -> bool {
        *self > 0
    }
}

impl Outcome for (Attr, Changed) {
    fn attr(&self) -> Option<&Attr> {
        Some(&self.0)
    }

    fn kept(removed: (Attr, Changed)) -> Option<Self> {
        Some(removed)
    }
}

impl Outcome for (Attr, bool, Changed) {
    fn attr(&self) -> Option<&Attr> {
        Some(&self.0)
    }

    fn is_new(&self) -> bool {
        self.1
    }
}

impl Outcome for (Attr, OpenNode) {
    fn attr(&self) -> Option<&Attr> {
        Some(&self.0)
    }
}

/// A duty, as tests see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Duty {
    Block,
    Spelling,
    Bound,
    Guard,
    Recall(Caches),
    Bin,
    Tree,
    Audit(FileAct),
    Witnesses,
}

#[cfg(test)]
thread_local! {
    pub(crate) static DONE: std::cell::RefCell<Vec<Duty>> = const { std::cell::RefCell::new(Vec::new()) };
}

/// Where a duty does something, so that a test can tell (`change/tests.rs`).
#[inline]
pub(crate) fn does(_duty: Duty) {
    #[cfg(test)]
    DONE.with_borrow_mut(|done| done.push(_duty));
}
