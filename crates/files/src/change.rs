//! Changes, in one shape: recall (`files.recall_first`), then the volume, then wait for the caches
//! of others (`files.caches_before_answer`). A change may fail because another door made the same
//! change a moment before ("it exists"), so a failed change waits as well.

use bytes::Bytes;
use larder_base::boxed;
use larder_base::traffic::{self, Did, Wait};
use larder_fs::Unnamed;
use larder_fs::acl::Acl;
use larder_fs::{
    AllocateMode, Attr, Changed, CreateMode, Cred, FileKind, FsError, FsResult, Ino, NameMatch, RenameMode, SetAttr,
    Stability, WriteVerifier, Written, XattrMode,
};
use larder_opens::Caches;

use crate::audit::{FileAct, is_acl};
use crate::guarded::Successor;
use crate::{Files, Open, Uses};

impl Files {
    /// Writes `data` at `offset` (in bytes), all or nothing, after other clients have given back their caches.
    /// [`FsError::NoSpace`] or [`FsError::Quota`] if there is no room. `files.data_unboxed`
    pub async fn write(
        &self,
        cred: &Cred,
        ino: Ino,
        offset: u64,
        data: Vec<Bytes>,
        stability: Stability,
    ) -> FsResult<Written> {
        let mut judged = self.judged_write(cred, offset, &data)?;
        if self.bound_bytes.is_some() {
            let len = data.iter().map(|piece| piece.len() as u64).sum();
            self.check_bound(ino, offset.saturating_add(len), len).await?;
        }
        if let Some(write) = &mut judged {
            self.look_below(cred, ino, write).await;
        }
        traffic::waiting(Wait::Other, self.recall(ino, Caches::DATA)).await;
        traffic::did(Did::Written, data.iter().map(Bytes::len).sum());
        let done = self.tree.write(cred, ino, offset, data, stability).await;
        if let (Some(write), Ok(written)) = (&judged, &done) {
            self.wrote_formless(cred, ino, write, written.changed.before.size);
        }
        self.await_witnesses().await;
        done
    }

    /// Writes at the end, atomically; returns the offset written at.
    #[boxed]
    pub async fn append(
        &self,
        cred: &Cred,
        ino: Ino,
        data: Vec<Bytes>,
        stability: Stability,
    ) -> FsResult<(u64, Written)> {
        self.check_unblocked(cred)?;
        if self.bound_bytes.is_some() {
            let len = data.iter().map(|piece| piece.len() as u64).sum();
            self.check_bound(ino, u64::MAX, len).await?;
        }
        traffic::waiting(Wait::Other, self.recall(ino, Caches::DATA)).await;
        traffic::did(Did::Written, data.iter().map(Bytes::len).sum());
        let done = self.tree.append(cred, ino, data, stability).await;
        self.await_witnesses().await;
        done
    }

    /// Makes all that was changed of it before durable.
    #[boxed]
    pub async fn commit(&self, ino: Ino) -> FsResult<(Changed, WriteVerifier)> {
        self.tree.commit(ino).await
    }

    /// Makes all that was changed before durable.
    #[boxed]
    pub async fn sync(&self) -> FsResult<()> {
        self.tree.sync().await
    }

    /// Reserves, punches or zeroes `len` bytes from `offset` on. [`FsError::NoSpace`] if `mode` reserves and there is no
    /// room.
    #[boxed]
    pub async fn allocate(
        &self,
        cred: &Cred,
        ino: Ino,
        offset: u64,
        len: u64,
        mode: AllocateMode,
    ) -> FsResult<Changed> {
        self.check_unblocked(cred)?;
        self.check_bound(ino, offset.saturating_add(len), len).await?;
        self.recall(ino, Caches::DATA).await;
        let done = self.tree.allocate(cred, ino, offset, len, mode).await;
        self.await_witnesses().await;
        done
    }

    /// chmod, chown, utimes and truncate with POSIX rules: who may, what clears setuid/setgid.
    #[boxed]
    pub async fn setattr(&self, cred: &Cred, ino: Ino, set: SetAttr) -> FsResult<Changed> {
        self.check_unblocked(cred)?;
        let permissions = set.mode.is_some() || set.uid.is_some() || set.gid.is_some();
        let empties = set.size == Some(0);
        let old = if empties { self.look_before_emptied(cred, ino).await } else { None };
        self.recall(ino, if set.size.is_some() { Caches::DATA } else { Caches::ATTRIBUTES }).await;
        let done = self.tree.setattr(cred, ino, set).await;
        if empties && done.as_ref().is_ok_and(|changed| changed.before.size > 0) {
            self.emptied(cred, ino, old);
        }
        if permissions && self.auditing().is_some() && done.is_ok() {
            Box::pin(self.audit_permissions(cred, ino)).await;
        }
        self.await_witnesses().await;
        done
    }

    /// As [`Files::setattr`], of a file that the client has not open for that: a size is refused
    /// ([`FsError::Shared`]) where an open to write is.
    #[boxed]
    pub async fn setattr_unopened(&self, cred: &Cred, ino: Ino, set: SetAttr) -> FsResult<Changed> {
        if set.size.is_some() && self.is_denied_elsewhere(ino, Uses::WRITE).await {
            return Err(FsError::Shared);
        }
        self.setattr(cred, ino, set).await
    }

    /// Changes attributes (not the size) and the access control list, or takes it away, in one step.
    #[boxed]
    pub async fn set_acl(&self, cred: &Cred, ino: Ino, set: SetAttr, acl: Option<Acl>) -> FsResult<Changed> {
        self.check_unblocked(cred)?;
        self.recall(ino, Caches::ATTRIBUTES).await;
        let done = self.tree.set_acl(cred, ino, set, acl).await;
        if self.auditing().is_some() && done.is_ok() {
            Box::pin(self.audit_permissions(cred, ino)).await;
        }
        self.await_witnesses().await;
        done
    }

    /// A regular file. Returns it, whether it was created, and the directory's change.
    #[boxed]
    pub async fn create(
        &self,
        cred: &Cred,
        dir: Ino,
        name: &[u8],
        mode: CreateMode,
        set: SetAttr,
    ) -> FsResult<(Attr, bool, Changed)> {
        self.check_unblocked(cred)?;
        let stored = self.spelling(cred, dir, name).await;
        let name = stored.as_deref().unwrap_or(name);
        if mode == CreateMode::Unchecked && set.size.is_some() {
            self.recall_named(cred, dir, name, Caches::DATA).await;
        }
        let empties = mode == CreateMode::Unchecked && set.size == Some(0);
        let old = if empties { self.look_before_removed(cred, dir, name).await } else { None };
        let done = self.tree.create(cred, dir, name, mode, set).await;
        match &done {
            Ok((attr, true, _)) => self.made(cred, dir, attr),
            Ok((attr, false, _)) if empties => self.emptied(cred, attr.id.ino, old),
            _ => {}
        }
        if self.auditing().is_some()
            && let Ok((attr, true, _)) = &done
        {
            Box::pin(self.audit_entry(FileAct::Created, cred, dir, name, Some(attr.id.ino))).await;
        }
        self.await_witnesses().await;
        done
    }

    /// A file that has no name until it is linked.
    #[boxed]
    pub async fn create_unnamed(&self, cred: &Cred, dir: Ino, set: SetAttr) -> FsResult<(Attr, Open)> {
        self.check_unblocked(cred)?;
        let (attr, file) = self.tree.create_unnamed(cred, dir, set).await?;
        self.made(cred, dir, &attr);
        let open = Open::new(file, &self.shared.opens, self.door, Uses::READ.and(Uses::WRITE));
        Ok((attr, open.map_err(|_| FsError::Shared)?))
    }

    /// [`Files::create_unnamed`] for whatever is not a directory; in volumes alone for what is no file.
    #[boxed]
    pub async fn make_unnamed<'a>(
        &'a self,
        cred: &Cred,
        dir: Ino,
        what: Unnamed<'a>,
        set: SetAttr,
    ) -> FsResult<(Attr, Open)> {
        self.check_unblocked(cred)?;
        let (attr, file) = self.tree.make_unnamed(cred, dir, what, set).await?;
        self.made(cred, dir, &attr);
        let open = Open::new(file, &self.shared.opens, self.door, Uses::READ.and(Uses::WRITE));
        Ok((attr, open.map_err(|_| FsError::Shared)?))
    }

    /// Makes a directory. Returns its attributes and the change of `dir`.
    #[boxed]
    pub async fn mkdir(&self, cred: &Cred, dir: Ino, name: &[u8], set: SetAttr) -> FsResult<(Attr, Changed)> {
        self.check_unblocked(cred)?;
        let stored = self.spelling(cred, dir, name).await;
        let name = stored.as_deref().unwrap_or(name);
        let done = self.tree.mkdir(cred, dir, name, set).await;
        if self.auditing().is_some()
            && let Ok((attr, _)) = &done
        {
            Box::pin(self.audit_entry(FileAct::Created, cred, dir, name, Some(attr.id.ino))).await;
        }
        self.await_witnesses().await;
        done
    }

    /// FIFOs, sockets and device nodes (the latter only by root).
    #[boxed]
    pub async fn mknod(
        &self,
        cred: &Cred,
        dir: Ino,
        name: &[u8],
        kind: FileKind,
        rdev: (u32, u32),
        set: SetAttr,
    ) -> FsResult<(Attr, Changed)> {
        self.check_unblocked(cred)?;
        let stored = self.spelling(cred, dir, name).await;
        let name = stored.as_deref().unwrap_or(name);
        let done = self.tree.mknod(cred, dir, name, kind, rdev, set).await;
        if self.auditing().is_some()
            && let Ok((attr, _)) = &done
        {
            Box::pin(self.audit_entry(FileAct::Created, cred, dir, name, Some(attr.id.ino))).await;
        }
        self.await_witnesses().await;
        done
    }

    /// Makes a symbolic link to `target`, which is not interpreted. Returns its attributes and the change of `dir`.
    #[boxed]
    pub async fn symlink(
        &self,
        cred: &Cred,
        dir: Ino,
        name: &[u8],
        target: &[u8],
        set: SetAttr,
    ) -> FsResult<(Attr, Changed)> {
        self.check_unblocked(cred)?;
        let stored = self.spelling(cred, dir, name).await;
        let name = stored.as_deref().unwrap_or(name);
        let done = self.tree.symlink(cred, dir, name, target, set).await;
        if self.auditing().is_some()
            && let Ok((attr, _)) = &done
        {
            Box::pin(self.audit_entry(FileAct::Created, cred, dir, name, Some(attr.id.ino))).await;
        }
        self.await_witnesses().await;
        done
    }

    /// Gives an inode that is no directory another name. Returns its attributes and the change of `dir`.
    #[boxed]
    pub async fn link(&self, cred: &Cred, ino: Ino, dir: Ino, name: &[u8]) -> FsResult<(Attr, Changed)> {
        self.check_unblocked(cred)?;
        let stored = self.spelling(cred, dir, name).await;
        let name = stored.as_deref().unwrap_or(name);
        self.recall(ino, Caches::ATTRIBUTES).await;
        let done = self.tree.link(cred, ino, dir, name).await;
        if self.auditing().is_some()
            && let Ok((attr, _)) = &done
        {
            Box::pin(self.audit_entry(FileAct::Created, cred, dir, name, Some(attr.id.ino))).await;
        }
        self.await_witnesses().await;
        done
    }

    /// Gives a file a name that another file has, in one step: that one loses it. Returns the inode after.
    #[boxed]
    pub async fn relink(&self, cred: &Cred, ino: Ino, dir: Ino, name: &[u8]) -> FsResult<(Attr, Changed)> {
        self.check_unblocked(cred)?;
        let stored = self.spelling(cred, dir, name).await;
        let name = stored.as_deref().unwrap_or(name);
        self.before_removal(cred, dir, name).await?;
        let successor = self.formless_successor(cred, Successor::File(ino), (dir, name)).await;
        let done = self.tree.relink(cred, ino, dir, name).await;
        if done.is_ok() {
            self.replaced(cred, successor);
        }
        if self.auditing().is_some()
            && let Ok((attr, _)) = &done
        {
            Box::pin(self.audit_entry(FileAct::Created, cred, dir, name, Some(attr.id.ino))).await;
        }
        self.await_witnesses().await;
        done
    }

    /// As [`Files::relink`], from the file `over` alone, which was judged: [`FsError::NotFound`] if the name leads to another. To
    /// other doors it is a write of that file, whose content it replaces: [`FsError::Shared`] if one of them denies that.
    #[boxed]
    pub async fn relink_over(
        &self,
        cred: &Cred,
        ino: Ino,
        dir: Ino,
        name: &[u8],
        over: Ino,
    ) -> FsResult<(Attr, Changed)> {
        self.check_unblocked(cred)?;
        let stored = self.spelling(cred, dir, name).await;
        let name = stored.as_deref().unwrap_or(name);
        self.before_taking(cred, dir, name, Uses::DELETE.and(Uses::WRITE)).await?;
        let successor = self.formless_successor(cred, Successor::File(ino), (dir, name)).await;
        let done = self.tree.relink_over(cred, ino, dir, name, over).await;
        if done.is_ok() {
            self.replaced(cred, successor);
        }
        if self.auditing().is_some()
            && let Ok((attr, _)) = &done
        {
            Box::pin(self.audit_entry(FileAct::Created, cred, dir, name, Some(attr.id.ino))).await;
        }
        self.await_witnesses().await;
        done
    }

    /// Removes a name of anything but a directory, into the bin of [`Files::recycling`] if there is one. Returns the attributes
    /// afterwards (`nlink` may be 0) and the change of `dir`. [`FsError::Shared`] if another door has it open and denies this.
    #[boxed]
    pub async fn unlink(&self, cred: &Cred, dir: Ino, name: &[u8]) -> FsResult<(Attr, Changed)> {
        self.check_unblocked(cred)?;
        let stored = self.spelling(cred, dir, name).await;
        let name = stored.as_deref().unwrap_or(name);
        self.before_removal(cred, dir, name).await?;
        let old = self.look_before_removed(cred, dir, name).await;
        let done = self.unlink_or_keep(cred, dir, name).await;
        if let Ok((attr, _)) = &done {
            self.removed(cred, dir, old, attr);
        }
        if self.auditing().is_some()
            && let Ok((attr, _)) = &done
        {
            Box::pin(self.audit_entry(FileAct::Removed, cred, dir, name, Some(attr.id.ino))).await;
        }
        self.await_witnesses().await;
        done
    }

    /// Removes an empty directory, into the bin of [`Files::recycling`] if there is one. Returns the change of `dir`. [`FsError::NotEmpty`] if it is not empty,
    /// [`FsError::Shared`] if another door has it open and denies this.
    #[boxed]
    pub async fn rmdir(&self, cred: &Cred, dir: Ino, name: &[u8]) -> FsResult<Changed> {
        self.check_unblocked(cred)?;
        let stored = self.spelling(cred, dir, name).await;
        let name = stored.as_deref().unwrap_or(name);
        self.before_removal(cred, dir, name).await?;
        let folder = self.folder_to_remove(cred, dir, name).await;
        let done = self.rmdir_or_keep(cred, dir, name).await;
        if done.is_ok() {
            self.folder_removed(cred, folder);
        }
        if self.auditing().is_some()
            && let Ok(_) = &done
        {
            Box::pin(self.audit_entry(FileAct::Removed, cred, dir, name, None)).await;
        }
        self.await_witnesses().await;
        done
    }

    /// Returns the changes of the source and the target directory.
    #[boxed]
    pub async fn rename(
        &self,
        cred: &Cred,
        from: Ino,
        from_name: &[u8],
        to: Ino,
        to_name: &[u8],
        mode: RenameMode,
    ) -> FsResult<(Changed, Changed)> {
        self.check_unblocked(cred)?;
        let stored = self.spelling(cred, from, from_name).await;
        let from_name = stored.as_deref().unwrap_or(from_name);
        // An entry takes its own other form (`forms.as_stored`).
        let replaced = self.spelling(cred, to, to_name).await.filter(|name| (from, from_name) != (to, &**name));
        let to_name = replaced.as_deref().unwrap_or(to_name);
        self.before_removal(cred, from, from_name).await?;
        self.before_removal(cred, to, to_name).await?;
        let successor = self.formless_successor(cred, Successor::Name(from, from_name), (to, to_name)).await;
        let done = self.tree.rename(cred, from, from_name, to, to_name, mode).await;
        if done.is_ok() {
            self.replaced(cred, successor);
        }
        if self.auditing().is_some() && done.is_ok() {
            Box::pin(self.audit_renamed(cred, (from, from_name), (to, to_name))).await;
        }
        self.await_witnesses().await;
        done
    }

    /// Sets an extended attribute.
    #[boxed]
    pub async fn setxattr(&self, cred: &Cred, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> FsResult<()> {
        self.check_unblocked(cred)?;
        self.recall(ino, Caches::ATTRIBUTES).await;
        let done = self.tree.setxattr(cred, ino, name, value, mode).await;
        if self.auditing().is_some() && done.is_ok() && is_acl(name) {
            Box::pin(self.audit_permissions(cred, ino)).await;
        }
        self.await_witnesses().await;
        done
    }

    /// Removes an extended attribute. [`FsError::NoAttribute`] if there is none.
    #[boxed]
    pub async fn removexattr(&self, cred: &Cred, ino: Ino, name: &[u8]) -> FsResult<()> {
        self.check_unblocked(cred)?;
        self.recall(ino, Caches::ATTRIBUTES).await;
        let done = self.tree.removexattr(cred, ino, name).await;
        if self.auditing().is_some() && done.is_ok() && is_acl(name) {
            Box::pin(self.audit_permissions(cred, ino)).await;
        }
        self.await_witnesses().await;
        done
    }

    /// The directory of the named attributes of `ino`: its entries are made, read and removed as any others. `None` if it
    /// has none and none is to be made.
    #[boxed]
    pub async fn named_dir(&self, ino: Ino, make: bool) -> FsResult<Option<Ino>> {
        self.tree.named_dir(ino, make).await
    }

    /// Makes a named attribute of `owner`, whose user bears it. `root` may do everything.
    #[boxed]
    pub async fn create_named(
        &self,
        root: &Cred,
        owner: &Attr,
        (dir, name): (Ino, &[u8]),
        mode: CreateMode,
    ) -> FsResult<Attr> {
        let set = SetAttr { mode: Some(0o600), uid: Some(owner.uid), gid: Some(owner.gid), ..SetAttr::default() };
        self.create(root, dir, name, mode, set).await.map(|(attr, ..)| attr)
    }

    /// Removes all named attributes.
    #[boxed]
    pub async fn remove_named(&self, ino: Ino) -> FsResult<()> {
        self.tree.remove_named(ino).await
    }

    /// Before a name is taken from what has it now: clients that keep it open for later close it, and none may have it open in
    /// a way that denies this (`files.opens_seen_by_all`).
    async fn before_removal(&self, cred: &Cred, dir: Ino, name: &[u8]) -> FsResult<()> {
        self.before_taking(cred, dir, name, Uses::DELETE).await
    }

    async fn before_taking(&self, cred: &Cred, dir: Ino, name: &[u8], does: Uses) -> FsResult<()> {
        // A door without holders may deny as well: a lock over WebDAV is an open.
        let may_be_denied = self.shared.opens.has_doors() || self.shared.opens.has_denials();
        if may_be_denied && let Ok(attr) = self.tree.lookup(cred, dir, name, NameMatch::Exact).await {
            self.recall(attr.id.ino, Caches::HANDLES).await;
            if self.denies_elsewhere(attr.id.ino, does) {
                return Err(FsError::Shared);
            }
        }
        Ok(())
    }

    /// Of the file that has a name now, if any has.
    async fn recall_named(&self, cred: &Cred, dir: Ino, name: &[u8], what: Caches) {
        if self.shared.opens.has_doors()
            && let Ok(attr) = self.tree.lookup(cred, dir, name, NameMatch::Exact).await
        {
            self.recall(attr.id.ino, what).await;
        }
    }
}
