//! Operations that change nothing.

use std::sync::Arc;

use bytes::Bytes;
use larder_base::boxed;
use larder_base::traffic::{self, Did, Wait};
use larder_fs::acl::{Acl, Rights};
use larder_fs::{
    ACCESS_EXECUTE, AccessMask, Attr, Cred, FileId, FsError, FsResult, Grounds, Ino, Listing, NameMatch, ReadData,
    SeekTo, SnapshotInfo, Wish,
};
use larder_opens::Caches;

use crate::tree::OpenNode;
use crate::{Files, HeldInode, Open, Uses};

impl Files {
    /// At most [`larder_fs::IO_BYTES_MAX`] bytes, including writes that other clients still
    /// cache (`files.recall_first`). The caller has checked the rights. `files.data_unboxed`
    pub async fn read(&self, ino: Ino, offset: u64, len: usize) -> FsResult<ReadData> {
        traffic::waiting(Wait::Other, self.recall(ino, Caches::WRITES)).await;
        let read = self.tree.read(ino, offset, len).await?;
        traffic::did(Did::Read, read.chunks.iter().map(Bytes::len).sum());
        Ok(read)
    }

    /// As [`Files::read`], for a mount: its open has asked already, and from then on nobody caches
    /// writes (`files.opens_seen_by_all`). A wait here would be one of a kernel that holds the
    /// page, which the writer's answer may need.
    #[boxed]
    pub async fn read_opened(&self, ino: Ino, offset: u64, len: usize) -> FsResult<ReadData> {
        self.tree.read(ino, offset, len).await
    }

    /// The next data or hole at or after `offset`; [`larder_fs::FsError::NotFound`] past the end (ENXIO).
    #[boxed]
    pub async fn seek(&self, ino: Ino, offset: u64, to: SeekTo) -> FsResult<u64> {
        self.tree.seek(ino, offset, to).await
    }

    /// [`FsError::Shared`] if another door has it open and denies what this open does, [`FsError::ReadOnly`] for writing to a
    /// snapshot.
    #[boxed]
    pub async fn open(&self, ino: Ino, does: Uses) -> FsResult<Open> {
        let file = self.tree.open(ino).await?;
        self.opened(ino, file, does).await
    }

    /// As [`Files::open`], of the inode that was judged (`files.number_held`): [`FsError::Stale`] if its number is another's.
    #[boxed]
    pub async fn open_judged(&self, id: FileId, does: Uses) -> FsResult<Open> {
        let file = self.tree.open_judged(id).await?;
        self.opened(id.ino, file, does).await
    }

    /// Whether a call that judges an inode and then acts on it has to hold it meanwhile (`files.number_held`).
    pub fn reuses_numbers(&self) -> bool {
        self.tree.reuses_numbers()
    }

    /// Keeps the inode that a call judges and acts on; other doors see no open. [`FsError::Stale`] if the number is another's.
    #[boxed]
    pub async fn hold(&self, id: FileId) -> FsResult<HeldInode> {
        Ok(HeldInode { _file: self.tree.hold(id).await? })
    }

    async fn opened(&self, ino: Ino, file: OpenNode, does: Uses) -> FsResult<Open> {
        if does.writes() {
            self.tree.check_changeable(ino)?;
        }
        // Known as open before others are asked: what they are granted from then on takes it into account.
        let open = match Open::new(file, &self.shared.opens, self.door, does) {
            Ok(open) => open,
            // A client may only keep it open for later.
            Err(file) => {
                self.recall(ino, Caches::HANDLES).await;
                Open::new(file, &self.shared.opens, self.door, does).map_err(|_| FsError::Shared)?
            }
        };
        self.recall(ino, Caches::WRITES).await;
        Ok(open)
    }

    /// The attributes as they are stored: what somebody has written and not yet sent is not in them.
    #[boxed]
    pub async fn getattr(&self, ino: Ino) -> FsResult<Attr> {
        self.tree.getattr(ino).await
    }

    /// For a client that plans its reads by the answer: includes writes that other clients still
    /// cache (`files.recall_first`).
    #[boxed]
    pub async fn getattr_settled(&self, id: FileId) -> FsResult<Attr> {
        self.recall(id.ino, Caches::WRITES).await;
        self.tree.resolve(id).await
    }

    /// Checks a handle from a client: [`larder_fs::FsError::Stale`] when the inode is gone or is another generation.
    #[boxed]
    pub async fn resolve(&self, id: FileId) -> FsResult<Attr> {
        self.tree.resolve(id).await
    }

    /// Fails with [`larder_fs::FsError::Access`] unless all of `mask` is granted.
    #[boxed]
    pub async fn access(&self, cred: &Cred, ino: Ino, mask: AccessMask) -> FsResult<Attr> {
        self.tree.access(cred, ino, mask).await
    }

    /// As [`Files::resolve`], with the permissions that `cred` has. `files.data_unboxed`
    pub async fn resolve_granted(&self, cred: &Cred, id: FileId) -> FsResult<(Attr, AccessMask)> {
        self.tree.resolve_granted(cred, id).await
    }

    /// The rights of `cred` on a file in the directory `parent`; without one, on the root of a share.
    #[boxed]
    pub async fn rights(&self, cred: &Cred, ino: Ino, parent: Option<Ino>) -> FsResult<Rights> {
        self.tree.rights(cred, ino, parent).await
    }

    /// Whether `cred` may do `wish`, as the change itself would be judged. `by_bits` judges by the mode bits alone.
    #[boxed]
    pub async fn permits(&self, cred: &Cred, ino: Ino, parent: Option<Ino>, wish: Wish, by_bits: bool) -> FsResult<()> {
        self.tree.permits(cred, ino, parent, wish, by_bits).await
    }

    /// The facts that decide about `wish`, for a person who wants to know why.
    #[boxed]
    pub async fn grounds(&self, cred: &Cred, ino: Ino, wish: Wish, by_bits: bool) -> FsResult<Grounds> {
        self.tree.grounds(cred, ino, wish, by_bits).await
    }

    /// Whether files have named attributes (SMB's streams). A folder of the host has, where files have extended attributes.
    pub fn keeps_streams(&self) -> bool {
        self.tree.keeps_streams()
    }

    /// The snapshots, the oldest first. A folder of the host has none.
    pub fn snapshots(&self) -> Vec<SnapshotInfo> {
        self.tree.snapshots()
    }

    /// The attributes, and the list that decides in place of the mode bits, where there is one.
    #[boxed]
    pub async fn acl(&self, ino: Ino) -> FsResult<(Attr, Option<Arc<Acl>>)> {
        self.tree.acl(ino).await
    }

    /// The attributes of the inode that a name in `dir` leads to. [`FsError::NotFound`] if there is no such name.
    #[boxed]
    pub async fn lookup(&self, cred: &Cred, dir: Ino, name: &[u8], how: NameMatch) -> FsResult<Attr> {
        let found = match self.tree.lookup(cred, dir, name, how).await {
            Err(FsError::NotFound) if self.ignores_forms && !name.is_ascii() => {
                Box::pin(self.lookup_by_form(cred, dir, name, how)).await
            }
            found => found,
        };
        if let Ok(attr) = &found {
            self.met(attr.id.ino, dir, name);
        }
        found
    }

    /// The spelling of the entry that `name` matches without regard to case.
    #[boxed]
    pub async fn stored_name(&self, dir: Ino, name: &[u8]) -> FsResult<Bytes> {
        match self.tree.stored_name(dir, name).await {
            Err(FsError::NotFound) if self.ignores_forms && !name.is_ascii() => {
                Box::pin(self.stored_by_form(dir, name)).await
            }
            found => found,
        }
    }

    /// The directory that holds the directory `dir`; the root holds itself.
    #[boxed]
    pub async fn parent(&self, dir: Ino) -> FsResult<Ino> {
        self.tree.parent(dir).await
    }

    /// As [`Files::parent`], for a door whose top is the directory `top`: `top` holds itself, and so does its past in a
    /// snapshot. [`FsError::Stale`] for a directory that does not lie below `top`.
    #[boxed]
    pub async fn parent_within(&self, dir: Ino, top: Ino) -> FsResult<Ino> {
        self.tree.parent_within(dir, top).await
    }

    /// The seconds since 1970 in which snapshots were taken that may hold the directory `dir`: newest first, each once.
    pub fn snapshot_seconds(&self, dir: Ino) -> Vec<i64> {
        self.tree.snapshot_seconds(dir)
    }

    /// The directory `dir` as it was in the last snapshot of that second; [`FsError::NotFound`] if there is none.
    #[boxed]
    pub async fn dir_at(&self, cred: &Cred, dir: Ino, second: i64) -> FsResult<Attr> {
        self.tree.dir_at(cred, dir, second).await
    }

    /// The target of a symbolic link.
    #[boxed]
    pub async fn readlink(&self, ino: Ino) -> FsResult<Bytes> {
        self.tree.readlink(ino).await
    }

    /// Entries of a directory behind `cookie` (0: from the start), at most `max`. Needs read permission. Attributes come
    /// with them for users who may search the directory (`files.attributes_by_search`).
    #[boxed]
    pub async fn readdir(&self, cred: &Cred, dir: Ino, cookie: u64, max: usize, with_attrs: bool) -> FsResult<Listing> {
        self.readdir_before(cred, dir, cookie, u64::MAX, max, with_attrs).await
    }

    /// As [`Files::readdir`], of entries before the cookie `end`.
    #[boxed]
    pub async fn readdir_before(
        &self,
        cred: &Cred,
        dir: Ino,
        cookie: u64,
        end: u64,
        max: usize,
        with_attrs: bool,
    ) -> FsResult<Listing> {
        traffic::did(Did::Listed, 0);
        let may_see =
            with_attrs && (cred.checked || cred.uid == 0 || self.tree.access(cred, dir, ACCESS_EXECUTE).await.is_ok());
        if self.shown_in == Some(dir) {
            return self.readdir_showing(cred, dir, cookie, end, max, may_see).await;
        }
        let listing = self.tree.readdir_before(cred, dir, cookie, end, max, may_see).await?;
        if self.auditing().is_some() {
            listing.entries.iter().for_each(|entry| self.met(entry.ino, dir, &entry.name));
        }
        Ok(listing)
    }

    /// The value of an extended attribute. [`FsError::NoAttribute`] if there is none, or if `cred` may not know of it.
    #[boxed]
    pub async fn getxattr(&self, cred: &Cred, ino: Ino, name: &[u8]) -> FsResult<Bytes> {
        self.tree.getxattr(cred, ino, name).await
    }

    /// The names of all extended attributes that `cred` may know of.
    #[boxed]
    pub async fn listxattr(&self, cred: &Cred, ino: Ino) -> FsResult<Vec<Bytes>> {
        self.tree.listxattr(cred, ino).await
    }
}
