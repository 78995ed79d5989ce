//! Changes. Each is facts and an act ([`Change`]), and [`Files::change`] does the duties of every
//! act in one order:
//!
//! | duty | before the act | after it |
//! |---|---|---|
//! | Block | a client that the guard has blocked is refused | |
//! | Spelling | names become those that are stored (`forms.as_stored`) | |
//! | Bound | growth beyond the share's size is refused (`bound.growth_alone`) | |
//! | Guard | what is about to be lost is looked at | and counted (`guard.loss_counts`) |
//! | Recall | others' caches come back, and others' denials are asked (`files.recall_first`) | |
//! | Bin | a removal becomes a move into the bin (`recycle.one_rename`) | |
//! | Tree | the act | |
//! | Audit | | it is told of (`fileaudit.done_only`) |
//! | Witnesses | | the caches of mounts have dropped what is stale (`files.caches_before_answer`) |
//!
//! - `change.order`: a refusal costs clients nothing, so nobody is asked for a cache before it. The
//!   guard reads what is stored, and what others cache is theirs to lose.
//! - `change.says_why`: a duty that not all acts need has a `match` of all of them, and a comment
//!   at those that it does nothing for. The table of `change/tests.rs` shows the duties of each
//!   operation.
//! - `change.failed_waits`: a change may fail because another door made the same change a moment
//!   before ("it exists"), so a failed change waits for the witnesses as well.

use bytes::Bytes;
use larder_base::boxed;
use larder_base::traffic::{self, Did};
use larder_fs::Unnamed;
use larder_fs::acl::Acl;
use larder_fs::{
    AllocateMode, Attr, Changed, CreateMode, Cred, FileKind, FsError, FsResult, Ino, RenameMode, SetAttr, Stability,
    WriteVerifier, Written, XattrMode,
};

use crate::audit::is_acl;
use crate::facts::{Act, Change, Duty, Name, Outcome, does};
use crate::guarded::Seen;
use crate::{Files, Open, Uses, audited, bound, forms, guarded, recall, recycle};

impl Files {
    /// Does `act` with the names that are stored, and all duties of a change. It is compiled for each act: the duties are apart.
    pub(crate) async fn change<'a, T: Outcome, F: Future<Output = FsResult<T>>>(
        &self,
        mut change: Change<'a>,
        act: impl FnOnce([Name<'a>; 2]) -> F,
    ) -> FsResult<T> {
        let (seen, kept) = before(self, &mut change).await?;
        let done = match kept.map(|kept| kept.and_then(T::kept)).transpose() {
            Some(done) => done,
            None => {
                does(Duty::Tree);
                act(change.names()).await
            }
        };
        after(self, &change, &seen, done.as_ref().ok().map(|done| done as &dyn Outcome)).await;
        done
    }

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
        let (len, look) = (data.iter().map(Bytes::len).sum(), guarded::sample(self, offset, &data));
        let change = Change::of(cred, Act::Write { ino, offset, len: len as u64, look });
        let act = |_| {
            traffic::did(Did::Written, len);
            self.tree.write(cred, ino, offset, data, stability)
        };
        self.change(change, act).await
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
        let len = data.iter().map(Bytes::len).sum();
        let act = |_| {
            traffic::did(Did::Written, len);
            self.tree.append(cred, ino, data, stability)
        };
        self.change(Change::of(cred, Act::Append { ino, len: len as u64 }), act).await
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
        let change = Change::of(cred, Act::Allocate { ino, offset, len });
        self.change(change, |_| self.tree.allocate(cred, ino, offset, len, mode)).await
    }

    /// chmod, chown, utimes and truncate with POSIX rules: who may, what clears setuid/setgid.
    #[boxed]
    pub async fn setattr(&self, cred: &Cred, ino: Ino, set: SetAttr) -> FsResult<Changed> {
        let permissions = set.mode.is_some() || set.uid.is_some() || set.gid.is_some();
        let change = Change::of(cred, Act::Attributes { ino, size: set.size, permissions });
        self.change(change, |_| self.tree.setattr(cred, ino, set)).await
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
        let change = Change::of(cred, Act::Attributes { ino, size: None, permissions: true });
        self.change(change, |_| self.tree.set_acl(cred, ino, set, acl)).await
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
        let size = set.size.filter(|_| mode == CreateMode::Unchecked);
        let change = Change::at(cred, Act::Create { size }, dir, name);
        self.change(change, |[name, _]| async move { self.tree.create(cred, dir, &name, mode, set).await }).await
    }

    /// A file that has no name until it is linked.
    #[boxed]
    pub async fn create_unnamed(&self, cred: &Cred, dir: Ino, set: SetAttr) -> FsResult<(Attr, Open)> {
        self.make_unnamed(cred, dir, Unnamed::File, set).await
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
        let change = Change::at(cred, Act::Unnamed, dir, b"");
        let (attr, file) = self.change(change, |_| self.tree.make_unnamed(cred, dir, what, set)).await?;
        let open = Open::new(file, &self.shared.opens, self.door, Uses::READ.and(Uses::WRITE));
        Ok((attr, open.map_err(|_| FsError::Shared)?))
    }

    /// Makes a directory. Returns its attributes and the change of `dir`.
    #[boxed]
    pub async fn mkdir(&self, cred: &Cred, dir: Ino, name: &[u8], set: SetAttr) -> FsResult<(Attr, Changed)> {
        let change = Change::at(cred, Act::Make, dir, name);
        self.change(change, |[name, _]| async move { self.tree.mkdir(cred, dir, &name, set).await }).await
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
        let change = Change::at(cred, Act::Make, dir, name);
        self.change(change, |[name, _]| async move { self.tree.mknod(cred, dir, &name, kind, rdev, set).await }).await
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
        let change = Change::at(cred, Act::Make, dir, name);
        self.change(change, |[name, _]| async move { self.tree.symlink(cred, dir, &name, target, set).await }).await
    }

    /// Gives an inode that is no directory another name. Returns its attributes and the change of `dir`.
    #[boxed]
    pub async fn link(&self, cred: &Cred, ino: Ino, dir: Ino, name: &[u8]) -> FsResult<(Attr, Changed)> {
        let change = Change::at(cred, Act::Link { ino }, dir, name);
        self.change(change, |[name, _]| async move { self.tree.link(cred, ino, dir, &name).await }).await
    }

    /// Gives a file a name that another file has, in one step: that one loses it. Returns the inode after.
    #[boxed]
    pub async fn relink(&self, cred: &Cred, ino: Ino, dir: Ino, name: &[u8]) -> FsResult<(Attr, Changed)> {
        let change = Change::at(cred, Act::Relink { ino, does: Uses::DELETE }, dir, name);
        self.change(change, |[name, _]| async move { self.tree.relink(cred, ino, dir, &name).await }).await
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
        let change = Change::at(cred, Act::Relink { ino, does: Uses::DELETE.and(Uses::WRITE) }, dir, name);
        self.change(change, |[name, _]| async move { self.tree.relink_over(cred, ino, dir, &name, over).await }).await
    }

    /// Removes a name of anything but a directory, into the bin of [`Files::recycling`] if there is one. Returns the attributes
    /// afterwards (`nlink` may be 0) and the change of `dir`. [`FsError::Shared`] if another door has it open and denies this.
    #[boxed]
    pub async fn unlink(&self, cred: &Cred, dir: Ino, name: &[u8]) -> FsResult<(Attr, Changed)> {
        let change = Change::at(cred, Act::Unlink, dir, name);
        self.change(change, |[name, _]| async move { self.tree.unlink(cred, dir, &name).await }).await
    }

    /// Removes an empty directory, into the bin of [`Files::recycling`] if there is one. Returns the change of `dir`. [`FsError::NotEmpty`] if it is not empty,
    /// [`FsError::Shared`] if another door has it open and denies this.
    #[boxed]
    pub async fn rmdir(&self, cred: &Cred, dir: Ino, name: &[u8]) -> FsResult<Changed> {
        let change = Change::at(cred, Act::Rmdir, dir, name);
        self.change(change, |[name, _]| async move { self.tree.rmdir(cred, dir, &name).await }).await
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
        let change = Change { cred, act: Act::Rename, entries: [(from, from_name.into()), (to, to_name.into())] };
        self.change(change, |[old, new]| async move { self.tree.rename(cred, from, &old, to, &new, mode).await }).await
    }

    /// Sets an extended attribute.
    #[boxed]
    pub async fn setxattr(&self, cred: &Cred, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> FsResult<()> {
        let change = Change::of(cred, Act::Attributes { ino, size: None, permissions: is_acl(name) });
        self.change(change, |_| self.tree.setxattr(cred, ino, name, value, mode)).await
    }

    /// Removes an extended attribute. [`FsError::NoAttribute`] if there is none.
    #[boxed]
    pub async fn removexattr(&self, cred: &Cred, ino: Ino, name: &[u8]) -> FsResult<()> {
        let change = Change::of(cred, Act::Attributes { ino, size: None, permissions: is_acl(name) });
        self.change(change, |_| self.tree.removexattr(cred, ino, name)).await
    }

    /// The directory of the named attributes of `ino`: its entries are made, read and removed as any others. `None` if it
    /// has none and none is to be made: an empty one shows nowhere, so making it is no change.
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
    pub async fn remove_named(&self, cred: &Cred, ino: Ino) -> FsResult<()> {
        let change = Change::of(cred, Act::Attributes { ino, size: None, permissions: false });
        self.change(change, |_| self.tree.remove_named(ino)).await
    }
}

/// Returns what the guard has seen, and what a bin has kept. `files.data_unboxed`
async fn before(files: &Files, change: &mut Change<'_>) -> FsResult<(Seen, FsResult<Option<(Attr, Changed)>>)> {
    files.check_unblocked(change.cred)?;
    forms::before(files, change).await;
    bound::before(files, change).await?;
    let seen = guarded::before(files, change).await;
    recall::before(files, change).await?;
    Ok((seen, recycle::before(files, change).await))
}

async fn after(files: &Files, change: &Change<'_>, seen: &Seen, done: Option<&dyn Outcome>) {
    if let Some(done) = done {
        guarded::after(files, change, seen, done);
        audited::after(files, change, done).await;
    }
    // Nobody caches what has no name.
    if !matches!(change.act, Act::Unnamed) {
        files.await_witnesses().await;
    }
}

#[cfg(test)]
mod tests;
