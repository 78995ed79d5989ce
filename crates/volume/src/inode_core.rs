//! The truth about an inode: the content of its record, and the state of its batches and names
//! beyond that.

use std::sync::Arc;

use bytes::Bytes;
use larder_base::Timestamp;
use larder_fs::acl::{self, Acl, Guarded};
use larder_fs::{Attr, FileId, FileKind, Ino, SetAttr};

use crate::charge::Charged;
use crate::meta::{Owned, Ticket};
use larder_base::negative_names::NegativeNames;

/// Cookies 0, 1 and 2 mean start, `.` and `..` to protocols.
pub(crate) const FIRST_COOKIE: u64 = 3;

/// By how much the times of a file move that lost data in a crash. Programs that compare whole seconds see it, too.
const LOST_SECS: i64 = 1;

pub(crate) struct InodeCore {
    pub(crate) attr: Attr,
    /// `attr` is ahead of the engine.
    pub(crate) attr_dirty: bool,
    /// The size in the record, when it is less than `attr.size`: unstable data beyond it is not in
    /// the engine yet, and a crash must not leave a file of zeros. `None`: the record has
    /// `attr.size`.
    pub(crate) size_stored: Option<u64>,
    /// Some data is neither in extents nor in an intent, so a crash takes it (`inode.lost_is_another`).
    pub(crate) has_unstable: bool,
    /// Bytes that the extents in the engine take up, and reserved bytes: the record's `allocated`.
    /// `attr.allocated` adds dirty bytes outside reserved ranges.
    pub(crate) stored_bytes: u64,
    /// There are reserved ranges.
    pub(crate) has_reserved: bool,
    /// Whose bytes the record stands for; `None`: there is no record yet, or no more.
    pub(crate) recorded: Option<Owned>,
    /// The newest batch that carries the record.
    pub(crate) ticket: Ticket,
    /// Last link and last open are gone (`inode.gone_is_final`).
    pub(crate) gone: bool,
    /// The directory that holds a directory; of other inodes a hint.
    pub(crate) parent: Ino,
    /// Verifier of an exclusive create, until the first SETATTR.
    pub(crate) verifier: Option<[u8; 8]>,
    /// Of a directory: the cookie of the next entry.
    pub(crate) next_cookie: u64,
    /// Of a directory: how many entries it has.
    pub(crate) entries: u64,
    /// The names of a directory that was empty while in memory.
    pub(crate) negative_names: Option<Box<NegativeNames>>,
    /// How many extended attributes there are: the common answer "none" needs no look-up.
    pub(crate) xattrs: u32,
    /// Bytes of the names and values of the extended attributes that protocols can ask for. 0 beside attributes: a program
    /// that did not count them wrote the record.
    pub(crate) xattr_bytes: u64,
    /// Of a symbolic link.
    pub(crate) target: Bytes,
    /// The rules that decide in place of the mode bits.
    pub(crate) acl: Option<Arc<Acl>>,
}

impl InodeCore {
    /// Whose bytes a record of it stands for.
    pub(crate) fn owned(&self) -> Owned {
        let Attr { uid, gid, .. } = self.attr;
        Owned { uid, gid, data_bytes: self.stored_bytes, metadata_bytes: self.charge() }
    }

    /// `charge.from_the_record`
    fn charge(&self) -> u64 {
        let Attr { kind, nlink, .. } = self.attr;
        let (target, acl) = (&self.target[..], self.acl.as_deref());
        Charged { kind, nlink, target, acl, xattrs: self.xattrs, xattr_bytes: self.xattr_bytes }.bytes()
    }

    /// The owner who bears the charge for changes of it, and no charge.
    pub(crate) fn owned_nothing(&self) -> Owned {
        Owned { data_bytes: 0, metadata_bytes: 0, ..self.owned() }
    }

    /// The facts that decide about access to it.
    pub(crate) fn guarded(&self) -> Guarded {
        Guarded { attr: self.attr, acl: self.acl.clone() }
    }

    /// Times of change, and the number of changes, for the record: those of the state that a crash would leave
    /// (`inode.lost_is_another`).
    pub(crate) fn recorded_state(&self) -> (Timestamp, Timestamp, u64) {
        let Attr { mtime, ctime, change, .. } = self.attr;
        if !self.has_unstable {
            return (mtime, ctime, change);
        }
        let later = |time: Timestamp| Timestamp { secs: time.secs.saturating_add(LOST_SECS), ..time };
        (later(mtime), later(ctime), change.saturating_sub(1))
    }

    /// Adapts the list after `set` was applied to an inode with the permission bits `before`
    /// (`acl.chmod_discards`).
    pub(crate) fn follow_list(&mut self, set: &SetAttr, before: u32) {
        let Some(list) = self.acl.clone() else { return };
        // An exclusive create carries no mode: the client sets it next.
        let is_being_made = self.verifier.is_some();
        let is_discarded = set.mode.is_some_and(|mode| match is_being_made {
            true => acl::is_private(mode),
            false => mode & 0o777 != before & 0o777,
        });
        if is_discarded {
            self.acl = None;
            return;
        }
        self.attr.mode = list.mode(&self.attr);
    }

    /// Whether a directory surely holds neither `name` nor a name whose folding is `name`.
    pub(crate) fn surely_lacks(&self, name: &[u8]) -> bool {
        self.entries == 0 || self.negative_names.as_ref().is_some_and(|names| !names.may_hold(name))
    }

    /// Called before an added entry is counted (`negative.kept_under_core`).
    pub(crate) fn learn_name(&mut self, name: &[u8], folded: &[u8]) {
        if self.entries == 0 {
            self.negative_names = Some(Box::default());
        }
        if self.negative_names.as_mut().is_some_and(|names| !(names.insert(name) && names.insert(folded))) {
            self.negative_names = None;
        }
    }
}

/// An inode with nothing in it, owned by root, mode 0.
pub(crate) fn new_core(id: FileId, kind: FileKind, parent: Ino, now: Timestamp) -> InodeCore {
    let is_dir = kind == FileKind::Directory;
    let attr = Attr {
        id,
        kind,
        mode: 0,
        nlink: if is_dir { 2 } else { 1 },
        uid: 0,
        gid: 0,
        size: if is_dir { directory_size(0) } else { 0 },
        allocated: 0,
        rdev: (0, 0),
        atime: now,
        mtime: now,
        ctime: now,
        btime: now,
        change: 1,
        dos: 0,
    };
    InodeCore {
        attr,
        attr_dirty: false,
        size_stored: None,
        has_unstable: false,
        stored_bytes: 0,
        has_reserved: false,
        recorded: None,
        ticket: Ticket(0),
        gone: false,
        parent,
        verifier: None,
        next_cookie: FIRST_COOKIE,
        entries: 0,
        negative_names: None,
        xattrs: 0,
        xattr_bytes: 0,
        target: Bytes::new(),
        acl: None,
    }
}

/// A size that grows with the entries.
pub(crate) fn directory_size(entries: u64) -> u64 {
    entries.saturating_mul(32).saturating_add(64)
}

#[cfg(test)]
#[path = "inode_core_tests.rs"]
mod tests;
