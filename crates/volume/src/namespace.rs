//! Making, linking and removing names. Renaming is in `rename`.
//!
//! Errors come in the order in which Linux gives them, because programs rely on it: search
//! permission, the name (missing, existing), write permission and the sticky bit, the types, then
//! errors that only the change itself finds.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use larder_fs::Kept;
use larder_fs::access::{self, touch_ctime, touch_mtime};
use larder_fs::acl::{self, Guarded};
use larder_fs::judge::{check_name, check_new_name, is_dots};
use larder_fs::*;

use crate::charge;
use crate::cores::Cores;
use crate::inode::Inode;
use crate::inode::kind_of;
use crate::inode_core::InodeCore;
use crate::inode_core::new_core;
use crate::keys::{self, Entry};
use crate::meta::{Batch, Owned, Ticket};
use crate::names::{add_entry, drop_entry, put_entry};
use crate::state::State;
use crate::volume::{OpenFile, Volume};

/// The parts of a new inode beyond its name and owner.
#[derive(Default)]
pub(crate) struct NewInode {
    rdev: (u32, u32),
    target: Bytes,
    verifier: Option<[u8; 8]>,
}

impl NewInode {
    fn symlink(target: &[u8]) -> FsResult<Self> {
        if target.is_empty() || target.contains(&0) {
            return Err(FsError::Invalid("the target of a symbolic link must not be empty or hold a zero byte"));
        }
        if target.len() > SYMLINK_BYTES_MAX {
            return Err(FsError::NameTooLong);
        }
        Ok(Self { target: Bytes::copy_from_slice(target), ..Self::default() })
    }

    fn special(cred: &Cred, kind: FileKind, rdev: (u32, u32)) -> FsResult<Self> {
        let is_device = matches!(kind, FileKind::CharDevice | FileKind::BlockDevice);
        if is_device && cred.uid != 0 && !cred.checked {
            return Err(FsError::NotPermitted);
        }
        if matches!(kind, FileKind::Directory | FileKind::Symlink) {
            return Err(FsError::Invalid("mknod makes neither directories nor symbolic links"));
        }
        let rdev = if is_device { rdev } else { (0, 0) };
        Ok(Self { rdev, ..Self::default() })
    }
}

impl Volume {
    /// Makes a regular file. Returns its attributes, whether it was made, and the change of the
    /// directory.
    pub async fn create(
        &self,
        cred: &Cred,
        dir: Ino,
        name: &[u8],
        mode: CreateMode,
        set: SetAttr,
    ) -> FsResult<(Attr, bool, Changed)> {
        let verifier = match mode {
            CreateMode::Exclusive(verifier) => Some(verifier),
            _ => None,
        };
        if mode == CreateMode::Unchecked && is_dots(name) {
            return Err(FsError::IsDirectory);
        }
        loop {
            let new = NewInode { verifier, ..NewInode::default() };
            match self.make(cred, dir, name, FileKind::File, new, set).await {
                Ok((attr, changed)) => return Ok((attr, true, changed)),
                Err(FsError::Exists) if mode != CreateMode::Guarded && !is_dots(name) => {}
                Err(error) => return Err(error),
            }
            match self.existing(cred, dir, name, mode, set).await {
                // It was removed in between: then it can be made. Or replaced: then it is looked up again.
                Err(FsError::NotFound | FsError::Stale) => tokio::task::yield_now().await,
                other => return other.map(|(attr, changed)| (attr, false, changed)),
            }
        }
    }

    /// The file that a create found in the way.
    async fn existing(
        &self,
        cred: &Cred,
        dir: Ino,
        name: &[u8],
        mode: CreateMode,
        set: SetAttr,
    ) -> FsResult<(Attr, Changed)> {
        let attr = self.lookup(cred, dir, name, NameMatch::Exact).await?;
        let inode = self.state.inode(attr.id.ino).await?;
        match (mode, attr.kind) {
            // A file that somebody has written to since is nobody's new one.
            (CreateMode::Exclusive(wanted), FileKind::File)
                if attr.size == 0 && inode.core.lock().verifier == Some(wanted) => {}
            (CreateMode::Exclusive(_), _) => return Err(FsError::Exists),
            (_, FileKind::Directory) => return Err(FsError::IsDirectory),
            (_, FileKind::File) => {}
            _ => return Err(FsError::Exists),
        }
        // "It exists" promises as much as "it was made": the create that the client did not hear
        // of, or that of a door with ordered answers, must be durable
        // (`meta.durable_before_answer`).
        self.await_newest(&inode).await?;
        let attr = match (mode, set.size) {
            (CreateMode::Unchecked, Some(size)) if attr.size != size => {
                self.setattr(cred, attr.id.ino, SetAttr { size: Some(size), ..SetAttr::default() }).await?.after
            }
            _ => attr,
        };
        let dir = self.getattr(dir).await?;
        Ok((attr, Changed { before: PreAttr::of(&dir), after: dir }))
    }

    /// Makes a regular file without a name and opens it (O_TMPFILE). It is removed when it is
    /// closed, unless [`Volume::link`] has given it a name by then.
    pub async fn create_unnamed(&self, cred: &Cred, dir: Ino, set: SetAttr) -> FsResult<(Attr, OpenFile)> {
        self.make_unnamed(cred, dir, Unnamed::File, set).await
    }

    /// [`Volume::create_unnamed`] for whatever is not a directory: it can be dressed before anybody sees it.
    pub async fn make_unnamed(
        &self,
        cred: &Cred,
        dir: Ino,
        what: Unnamed<'_>,
        set: SetAttr,
    ) -> FsResult<(Attr, OpenFile)> {
        let (kind, new) = match what {
            Unnamed::File => (FileKind::File, NewInode::default()),
            Unnamed::Symlink(target) => (FileKind::Symlink, NewInode::symlink(target)?),
            Unnamed::Special(kind, rdev) => (kind, NewInode::special(cred, kind, rdev)?),
        };
        let state = &self.state;
        let dir = state.changeable_directory(dir).await?;
        state.meta.admit().await?;
        let parent = live(&mut dir.core.lock())?.guarded();
        access::may_add(&parent, cred, kind)?;
        state.admit_entry(asked_for_new(&parent, cred, kind, &new, &set)).await?;
        let id = state.new_id().await?;
        let mut core = new_child(&parent, cred, id, kind, new, &set, state.now());
        (core.attr.nlink, core.parent) = (0, NOWHERE);
        let attr = core.attr;
        let mut batch = Batch::default();
        batch.put_record(id.ino, &mut core);
        batch.put(keys::orphan_key(id.ino), keys::MARK);
        batch.usage.inodes = 1;
        let inode = state.inodes.insert(core);
        // Open before anybody can find the mark (`inode.gone_is_final`).
        inode.opens.fetch_add(1, Ordering::AcqRel);
        let file = OpenFile { inode: Arc::clone(&inode), state: Arc::clone(state) };
        let mut core = inode.core.lock();
        // No promise: after a crash no client could find it.
        core.ticket = state.meta.submit(batch)?;
        drop(core);
        Ok((attr, file))
    }

    /// Makes a directory. Returns its attributes and the change of `dir`.
    pub async fn mkdir(&self, cred: &Cred, dir: Ino, name: &[u8], set: SetAttr) -> FsResult<(Attr, Changed)> {
        self.make(cred, dir, name, FileKind::Directory, NewInode::default(), set).await
    }

    /// Makes a FIFO, a socket or a device node (the latter only as root). `rdev` is (major, minor)
    /// of a device.
    pub async fn mknod(
        &self,
        cred: &Cred,
        dir: Ino,
        name: &[u8],
        kind: FileKind,
        rdev: (u32, u32),
        set: SetAttr,
    ) -> FsResult<(Attr, Changed)> {
        self.make(cred, dir, name, kind, NewInode::special(cred, kind, rdev)?, set).await
    }

    /// Makes a symbolic link to `target`, at most [`SYMLINK_BYTES_MAX`] bytes, which is not
    /// interpreted.
    pub async fn symlink(
        &self,
        cred: &Cred,
        dir: Ino,
        name: &[u8],
        target: &[u8],
        set: SetAttr,
    ) -> FsResult<(Attr, Changed)> {
        self.make(cred, dir, name, FileKind::Symlink, NewInode::symlink(target)?, set).await
    }

    async fn make(
        &self,
        cred: &Cred,
        dir: Ino,
        name: &[u8],
        kind: FileKind,
        new: NewInode,
        set: SetAttr,
    ) -> FsResult<(Attr, Changed)> {
        let state = &*self.state;
        check_new_name(name)?;
        let dir = state.changeable_directory(dir).await?;
        state.meta.admit().await?;
        let asked = |parent: &Guarded| asked_for_new(parent, cred, kind, &new, &set);
        let (namespace, parent) = self.enter(cred, &dir, name, kind, asked).await?;
        let id = state.new_id().await?;
        let mut core = new_child(&parent, cred, id, kind, new, &set, state.now());
        let now = core.attr.ctime;
        let (attr, changed, ticket) = {
            let mut cores = Cores::lock(&[&dir]);
            let parent = live(cores.of(&dir))?;
            if kind == FileKind::Directory && parent.attr.nlink >= LINKS_MAX {
                return Err(FsError::TooManyLinks);
            }
            let before = PreAttr::of(&parent.attr);
            let mut batch = Batch::default();
            batch.put_record(id.ino, &mut core);
            batch.usage.inodes = 1;
            let entry = add_entry(&mut batch, dir.id.ino, parent, name, id.ino, kind);
            parent.attr.nlink += u32::from(kind == FileKind::Directory);
            touch_mtime(&mut parent.attr, now);
            let after = parent.attr;
            let attr = core.attr;
            let ticket = cores.submit(&*state.meta, batch)?;
            let inode = state.inodes.insert(core);
            inode.core.lock().ticket = ticket;
            state.note_entry(&dir, name, Some(entry));
            (attr, Changed { before, after }, ticket)
        };
        drop(namespace);
        let event = || Event::Added { origin: self.origin, dir: dir.id.ino, name: Bytes::copy_from_slice(name), kind };
        state.send(event);
        self.await_durable(ticket).await?;
        Ok((attr, changed))
    }

    /// Checks that `dir` may be searched, holds no `name`, and may get an entry of `kind`. Called
    /// under its `namespace`.
    async fn writable(&self, cred: &Cred, dir: &Arc<Inode>, name: &[u8], kind: FileKind) -> FsResult<Guarded> {
        let parent = {
            let mut core = dir.core.lock();
            live(&mut core)?.guarded()
        };
        access::require(&parent, cred, ACCESS_EXECUTE)?;
        if self.state.entry(dir, name).await?.is_some() {
            return Err(FsError::Exists);
        }
        access::may_add(&parent, cred, kind)?;
        Ok(parent)
    }

    /// Locks a directory in which `name` may be made, and in which there is room for the charge that `asked` says.
    async fn enter<'d>(
        &self,
        cred: &Cred,
        dir: &'d Arc<Inode>,
        name: &[u8],
        kind: FileKind,
        asked: impl Fn(&Guarded) -> Owned,
    ) -> FsResult<(tokio::sync::MutexGuard<'d, ()>, Guarded)> {
        loop {
            let namespace = dir.namespace.lock().await;
            let parent = self.writable(cred, dir, name, kind).await?;
            let asked = asked(&parent);
            if self.state.admits_entry(asked)? {
                return Ok((namespace, parent));
            }
            // A client that removes names here makes room.
            drop(namespace);
            self.state.admit_entry(asked).await?;
        }
    }

    /// Gives a file another name. Directories have one: [`FsError::NotPermitted`].
    pub async fn link(&self, cred: &Cred, ino: Ino, dir: Ino, name: &[u8]) -> FsResult<(Attr, Changed)> {
        let state = &*self.state;
        check_new_name(name)?;
        let dir = state.changeable_directory(dir).await?;
        let inode = state.changeable(ino).await?;
        state.meta.admit().await?;
        let asked = |_: &Guarded| Owned { metadata_bytes: charge::NAME_BYTES, ..inode.core.lock().owned_nothing() };
        let (namespace, _) = self.enter(cred, &dir, name, kind_of(&inode), asked).await?;
        if kind_of(&inode) == FileKind::Directory {
            return Err(FsError::NotPermitted);
        }
        let now = state.now();
        let (attr, changed, ticket) = {
            let mut cores = Cores::lock(&[&dir, &inode]);
            live(cores.of(&dir))?;
            may_link(cores.of(&inode), cred)?;
            let mut batch = Batch::default();
            let attr = linked(cores.of(&inode), dir.id.ino, &mut batch, now)?;
            let parent = cores.of(&dir);
            let before = PreAttr::of(&parent.attr);
            let entry = add_entry(&mut batch, dir.id.ino, parent, name, ino, attr.kind);
            touch_mtime(&mut parent.attr, now);
            let after = parent.attr;
            let ticket = cores.submit(&*state.meta, batch)?;
            state.note_entry(&dir, name, Some(entry));
            (attr, Changed { before, after }, ticket)
        };
        drop(namespace);
        let name = || Bytes::copy_from_slice(name);
        state.send(|| Event::Added { origin: self.origin, dir: dir.id.ino, name: name(), kind: attr.kind });
        state.send(|| Event::Attr { origin: self.origin, ino });
        self.await_durable(ticket).await?;
        Ok((attr, changed))
    }

    /// Gives a file a name that another file has, in one step; the other file loses it. Returns the
    /// attributes afterwards.
    pub async fn relink(&self, cred: &Cred, ino: Ino, dir: Ino, name: &[u8]) -> FsResult<(Attr, Changed)> {
        self.take_name(cred, ino, dir, name, None).await
    }

    /// As [`Volume::relink`], from the file `over` alone: [`FsError::NotFound`] if the name leads to another.
    pub async fn relink_over(
        &self,
        cred: &Cred,
        ino: Ino,
        dir: Ino,
        name: &[u8],
        over: Ino,
    ) -> FsResult<(Attr, Changed)> {
        self.take_name(cred, ino, dir, name, Some(over)).await
    }

    async fn take_name(
        &self,
        cred: &Cred,
        ino: Ino,
        dir: Ino,
        name: &[u8],
        over: Option<Ino>,
    ) -> FsResult<(Attr, Changed)> {
        let state = &self.state;
        check_new_name(name)?;
        let dir = state.changeable_directory(dir).await?;
        let inode = state.changeable(ino).await?;
        state.admit_removal().await?;
        let namespace = dir.namespace.lock().await;
        let parent = dir.core.lock().attr;
        access::require(&dir.core.lock().guarded(), cred, ACCESS_EXECUTE)?;
        let old = state.entry(&dir, name).await?.ok_or(FsError::NotFound)?;
        if old.ino == ino {
            drop(namespace);
            self.await_newest(&inode).await?;
            let attr = inode.core.lock().attr;
            return Ok((attr, Changed { before: PreAttr::of(&parent), after: parent }));
        }
        if over.is_some_and(|over| over != old.ino) {
            return Err(FsError::NotFound);
        }
        let victim = state.changeable(old.ino).await?;
        let (object, replaced) = (dir.core.lock().guarded(), victim.core.lock().guarded());
        access::may_remove(&object, &replaced, cred)?;
        if old.kind == FileKind::Directory {
            return Err(FsError::IsDirectory);
        }
        if kind_of(&inode) == FileKind::Directory {
            return Err(FsError::NotPermitted);
        }
        let now = state.now();
        let (attr, replaced, changed, ticket, fate) = {
            let mut cores = Cores::lock(&[&dir, &inode, &victim]);
            live(cores.of(&dir))?;
            may_link(cores.of(&inode), cred)?;
            let mut batch = Batch::default();
            let attr = linked(cores.of(&inode), dir.id.ino, &mut batch, now)?;
            let fate = unlinked(state, &victim, cores.of(&victim), &mut batch, now);
            let replaced = cores.of(&victim).attr;
            // The name and its cookie stay and lead to another inode.
            let entry = Entry { ino, kind: attr.kind, cookie: old.cookie };
            put_entry(&mut batch, dir.id.ino, name, entry);
            let parent = cores.of(&dir);
            let before = PreAttr::of(&parent.attr);
            touch_mtime(&mut parent.attr, now);
            let after = parent.attr;
            let ticket = cores.submit(&*state.meta, batch)?;
            state.note_entry(&dir, name, Some(entry));
            fate.mark_gone(cores.of(&victim));
            (attr, replaced, Changed { before, after }, ticket, fate)
        };
        state.after_unlink(&victim, fate);
        drop(namespace);
        self.send_removed(dir.id.ino, name, &replaced);
        let name = || Bytes::copy_from_slice(name);
        state.send(|| Event::Added { origin: self.origin, dir: dir.id.ino, name: name(), kind: attr.kind });
        state.send(|| Event::Attr { origin: self.origin, ino });
        self.await_durable(ticket).await?;
        Ok((attr, changed))
    }

    /// Removes a name of anything but a directory. Returns the attributes afterwards (`nlink` may
    /// be 0).
    pub async fn unlink(&self, cred: &Cred, dir: Ino, name: &[u8]) -> FsResult<(Attr, Changed)> {
        check_name(name)?;
        if is_dots(name) {
            return Err(FsError::IsDirectory);
        }
        let dir = self.state.changeable_directory(dir).await?;
        self.state.admit_removal().await?;
        let (attr, changed, ticket) = self.remove_name(cred, &dir, name).await?;
        self.await_durable(ticket).await?;
        Ok((attr, changed))
    }

    /// [`Volume::unlink`] after admission; the caller waits for the ticket.
    pub(crate) async fn remove_name(
        &self,
        cred: &Cred,
        dir: &Arc<Inode>,
        name: &[u8],
    ) -> FsResult<(Attr, Changed, Ticket)> {
        let state = &self.state;
        let namespace = dir.namespace.lock().await;
        let parent = dir.core.lock().guarded();
        access::require(&parent, cred, ACCESS_EXECUTE)?;
        let entry = state.entry(dir, name).await?.ok_or(FsError::NotFound)?;
        self.check_only(entry.ino)?;
        let inode = state.changeable(entry.ino).await?;
        let object = inode.core.lock().guarded();
        access::may_remove(&parent, &object, cred)?;
        if entry.kind == FileKind::Directory {
            return Err(FsError::IsDirectory);
        }
        let now = state.now();
        let (attr, changed, ticket, fate) = {
            let mut cores = Cores::lock(&[dir, &inode]);
            let mut batch = Batch::default();
            let fate = unlinked(state, &inode, cores.of(&inode), &mut batch, now);
            let attr = cores.of(&inode).attr;
            let parent = cores.of(dir);
            let before = PreAttr::of(&parent.attr);
            drop_entry(&mut batch, dir.id.ino, parent, name, entry);
            touch_mtime(&mut parent.attr, now);
            let after = parent.attr;
            let ticket = cores.submit(&*state.meta, batch)?;
            state.note_entry(dir, name, None);
            fate.mark_gone(cores.of(&inode));
            (attr, Changed { before, after }, ticket, fate)
        };
        state.after_unlink(&inode, fate);
        drop(namespace);
        self.send_removed(dir.id.ino, name, &attr);
        Ok((attr, changed, ticket))
    }

    pub(crate) fn send_removed(&self, dir: Ino, name: &[u8], attr: &Attr) {
        let (origin, ino, kind) = (self.origin, attr.id.ino, attr.kind);
        self.state.send(|| Event::Removed { origin, dir, name: Bytes::copy_from_slice(name), ino, kind });
        if attr.nlink > 0 {
            self.state.send(|| Event::Attr { origin, ino });
        }
    }

    /// Removes an empty directory; [`FsError::NotEmpty`] otherwise. Returns the change of `dir`.
    pub async fn rmdir(&self, cred: &Cred, dir: Ino, name: &[u8]) -> FsResult<Changed> {
        check_name(name)?;
        match name {
            b"." => return Err(FsError::Invalid("'.' cannot be removed")),
            b".." => return Err(FsError::NotEmpty),
            _ => {}
        }
        let state = &self.state;
        let dir = state.changeable_directory(dir).await?;
        loop {
            state.admit_removal().await?;
            access::require(&dir.core.lock().guarded(), cred, ACCESS_EXECUTE)?;
            let entry = state.entry(&dir, name).await?.ok_or(FsError::NotFound)?;
            self.check_only(entry.ino)?;
            let victim = match state.changeable(entry.ino).await {
                // Another client removed it in between.
                Err(FsError::Stale) if state.entry(&dir, name).await? != Some(entry) => continue,
                other => other?,
            };
            let locks = lock_namespaces(vec![&dir, &victim]).await;
            if state.entry(&dir, name).await? != Some(entry) {
                continue;
            }
            let (parent, object) = (dir.core.lock().guarded(), victim.core.lock().guarded());
            access::may_remove(&parent, &object, cred)?;
            if entry.kind != FileKind::Directory {
                return Err(FsError::NotDirectory);
            }
            let now = state.now();
            let (attr, changed, ticket, fate) = {
                let mut cores = Cores::lock(&[&dir, &victim]);
                if cores.of(&victim).entries > 0 {
                    return Err(FsError::NotEmpty);
                }
                let mut batch = Batch::default();
                let fate = unlinked(state, &victim, cores.of(&victim), &mut batch, now);
                let attr = cores.of(&victim).attr;
                let parent = cores.of(&dir);
                let before = PreAttr::of(&parent.attr);
                drop_entry(&mut batch, dir.id.ino, parent, name, entry);
                parent.attr.nlink = parent.attr.nlink.saturating_sub(1);
                touch_mtime(&mut parent.attr, now);
                let after = parent.attr;
                let ticket = cores.submit(&*state.meta, batch)?;
                state.note_entry(&dir, name, None);
                fate.mark_gone(cores.of(&victim));
                (attr, Changed { before, after }, ticket, fate)
            };
            state.after_unlink(&victim, fate);
            drop(locks);
            self.send_removed(dir.id.ino, name, &attr);
            self.await_durable(ticket).await?;
            return Ok(changed);
        }
    }
}

/// The parent of a file that never had a name.
const NOWHERE: Ino = Ino(0);

/// Counts one more name of a file, in `dir`. One that has lost its last name gets none again; one
/// that never had any may.
/// A file without a name belongs to the door that made it.
fn may_link(core: &InodeCore, cred: &Cred) -> FsResult<()> {
    if core.attr.nlink == 0 { Ok(()) } else { access::may_link(&core.guarded(), cred) }
}

fn linked(core: &mut InodeCore, dir: Ino, batch: &mut Batch, now: larder_base::Timestamp) -> FsResult<Attr> {
    if core.gone || core.attr.nlink == 0 && core.parent != NOWHERE {
        return Err(if core.gone { FsError::Stale } else { FsError::NotFound });
    }
    if core.attr.nlink == 0 {
        batch.delete(keys::orphan_key(core.attr.id.ino));
    }
    if core.attr.nlink >= LINKS_MAX {
        return Err(FsError::TooManyLinks);
    }
    core.attr.nlink += 1;
    core.parent = dir;
    touch_ctime(&mut core.attr, now);
    Ok(core.attr)
}

/// A directory that still has a name: POSIX lets nothing be made in one that has not.
pub(crate) fn live(core: &mut InodeCore) -> FsResult<&mut InodeCore> {
    if core.gone {
        return Err(FsError::Stale);
    }
    if core.attr.nlink == 0 { Err(FsError::NotFound) } else { Ok(core) }
}

/// The `namespace` locks of several directories (`inode.lock_order`), each once.
pub(crate) async fn lock_namespaces<'a>(mut dirs: Vec<&'a Arc<Inode>>) -> Vec<tokio::sync::MutexGuard<'a, ()>> {
    dirs.sort_by_key(|dir| dir.id.ino);
    dirs.dedup_by_key(|dir| dir.id.ino);
    let mut guards = Vec::with_capacity(dirs.len());
    for dir in dirs {
        guards.push(dir.namespace.lock().await);
    }
    guards
}

/// The charge for a new inode with a name, and who bears it. A list that it inherits is no longer than its parent's.
pub(crate) fn asked_for_new(parent: &Guarded, cred: &Cred, kind: FileKind, new: &NewInode, set: &SetAttr) -> Owned {
    let (uid, gid, _) = access::ownership(&parent.attr, cred, kind, set.mode.unwrap_or(0), set);
    let list = parent.acl.as_deref().filter(|list| list.hands_on());
    let metadata_bytes = charge::INODE_BYTES + charge::NAME_BYTES + new.target.len() as u64 + charge::of_list(list);
    Owned { uid, gid, data_bytes: 0, metadata_bytes }
}

pub(crate) fn new_child(
    parent: &Guarded,
    cred: &Cred,
    id: FileId,
    kind: FileKind,
    new: NewInode,
    set: &SetAttr,
    now: larder_base::Timestamp,
) -> InodeCore {
    let mut core = new_core(id, kind, parent.attr.id.ino, now);
    let default_mode = match kind {
        FileKind::Directory => 0o755,
        FileKind::Symlink => 0o777,
        _ => 0o644,
    };
    let attr = &mut core.attr;
    let mode = set.mode.unwrap_or(default_mode);
    (attr.uid, attr.gid, attr.mode) = access::ownership(&parent.attr, cred, kind, mode, set);
    if kind != FileKind::Symlink && !acl::is_private(mode) {
        core.acl = parent.acl.as_ref().and_then(|acl| acl.inherited(kind, attr.uid, attr.gid)).map(Arc::new);
    }
    attr.mode = core.acl.as_ref().map_or(attr.mode, |acl| acl.mode(attr));
    let time = |wanted: Option<SetTime>| match wanted {
        Some(SetTime::To(time)) => time,
        _ => now,
    };
    attr.atime = time(set.atime);
    attr.mtime = time(set.mtime);
    attr.btime = set.btime.unwrap_or(now);
    attr.dos = set.dos.unwrap_or(0);
    attr.rdev = new.rdev;
    if kind == FileKind::Symlink {
        attr.size = new.target.len() as u64;
    }
    if let (FileKind::File, Some(size)) = (kind, set.size) {
        // A new file may be born with a size: it is all hole.
        attr.size = size.min(FILE_BYTES_MAX);
    }
    core.target = new.target;
    core.verifier = new.verifier;
    core
}

// -------------------------------------------------------------------------------------- end of a life

/// The further life of an inode that lost a link.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It has other links.
    Linked,
    /// It is open.
    Open,
    /// Its record went with the batch.
    Removed,
    /// Marked as orphan; data or attributes are still to be removed.
    Orphan,
}

impl Fate {
    /// After the batch is submitted, still under `core` (`inode.gone_is_final`).
    pub(crate) fn mark_gone(self, core: &mut InodeCore) {
        core.gone |= matches!(self, Fate::Removed | Fate::Orphan);
    }
}

/// Removes a link (all of a directory's) and adds the consequences to `batch`
/// (`volume.orphan_marks`).
pub(crate) fn unlinked(
    state: &Arc<State>,
    inode: &Arc<Inode>,
    core: &mut InodeCore,
    batch: &mut Batch,
    now: larder_base::Timestamp,
) -> Fate {
    let is_dir = core.attr.kind == FileKind::Directory;
    core.attr.nlink = if is_dir { 0 } else { core.attr.nlink.saturating_sub(1) };
    touch_ctime(&mut core.attr, now);
    if core.attr.nlink > 0 {
        return Fate::Linked;
    }
    state.keepers.ask(inode.id.ino, &|| -> Kept {
        inode.opens.fetch_add(1, Ordering::AcqRel);
        Box::new(OpenFile { inode: Arc::clone(inode), state: Arc::clone(state) })
    });
    let open = inode.opens.load(Ordering::Acquire) > 0;
    let has_data = core.attr.kind == FileKind::File && !state.data.is_traceless(inode);
    if !open && !has_data && core.xattrs == 0 {
        batch.delete_record(inode.id.ino, core);
        batch.usage.inodes -= 1;
        // The record must not be written by this very batch.
        core.gone = true;
        return Fate::Removed;
    }
    batch.put(keys::orphan_key(inode.id.ino), keys::MARK);
    if open { Fate::Open } else { Fate::Orphan }
}

impl State {
    /// The work that remains once the batch is submitted.
    pub(crate) fn after_unlink(self: &Arc<Self>, inode: &Arc<Inode>, fate: Fate) {
        match fate {
            Fate::Linked | Fate::Open => {}
            Fate::Removed => {
                self.data.forget(inode);
                self.inodes.remove(inode.id.ino);
            }
            Fate::Orphan => self.reap_later(inode),
        }
    }

    /// The newest batch about an inode is durable.
    pub(crate) async fn await_inode(&self, inode: &Inode) -> FsResult<()> {
        let ticket: Ticket = inode.core.lock().ticket;
        self.meta.durable(ticket).await
    }
}
