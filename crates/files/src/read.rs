//! Looks that ask other doors, or that a share shows in its own way. All others are
//! [`Tree`](crate::Tree)'s.

use bytes::Bytes;
use larder_base::boxed;
use larder_base::traffic::{self, Did, Wait};
use larder_fs::{ACCESS_EXECUTE, Attr, Cred, FileId, FsError, FsResult, Ino, Listing, NameMatch, ReadData};
use larder_opens::Caches;

use crate::tree::OpenNode;
use crate::{Files, HeldInode, Open, Uses, forms, shown};

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

    /// For a client that plans its reads by the answer: includes writes that other clients still
    /// cache (`files.recall_first`).
    #[boxed]
    pub async fn getattr_settled(&self, id: FileId) -> FsResult<Attr> {
        self.recall(id.ino, Caches::WRITES).await;
        self.tree.resolve(id).await
    }

    /// The attributes of the inode that a name in `dir` leads to. [`FsError::NotFound`] if there is no such name.
    #[boxed]
    pub async fn lookup(&self, cred: &Cred, dir: Ino, name: &[u8], how: NameMatch) -> FsResult<Attr> {
        let found = match self.tree.lookup(cred, dir, name, how).await {
            Err(FsError::NotFound) if self.ignores_forms => forms::lookup(&self.tree, cred, dir, name, how).await,
            found => found,
        };
        if let (Ok(attr), Some(audit)) = (&found, self.auditing()) {
            audit.met(attr.id.ino, dir, name);
        }
        found
    }

    /// The spelling of the entry that `name` matches without regard to case.
    #[boxed]
    pub async fn stored_name(&self, dir: Ino, name: &[u8]) -> FsResult<Bytes> {
        match self.tree.stored_name(dir, name).await {
            Err(FsError::NotFound) if self.ignores_forms => forms::stored_name(&self.tree, dir, name).await,
            found => found,
        }
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
            return shown::readdir(&self.tree, cred, dir, (cookie, end), max, may_see).await;
        }
        let listing = self.tree.readdir_before(cred, dir, cookie, end, max, may_see).await?;
        if let Some(audit) = self.auditing() {
            listing.entries.iter().for_each(|entry| audit.met(entry.ino, dir, &entry.name));
        }
        Ok(listing)
    }
}
