//! Attributes: handles, getattr, access, setattr.

use std::sync::Arc;

use crate::access::{self, apply, touch_mtime, wants_atime};
use crate::inode::{Inode, InodeCore};
use crate::meta::{Batch, Ticket};
use crate::state::{Cores, State, pre};
use crate::types::*;
use crate::volume::Volume;

impl Volume {
    /// Checks a handle from a client: [`FsError::Stale`] when the inode is gone or is another generation.
    pub async fn resolve(&self, id: FileId) -> FsResult<Attr> {
        let attr = self.getattr(id.ino).await?;
        if attr.id == id { Ok(attr) } else { Err(FsError::Stale) }
    }

    pub async fn getattr(&self, ino: Ino) -> FsResult<Attr> {
        current(&*self.state.inode(ino).await?)
    }

    /// Fails with [`FsError::Access`] unless all of `mask` is granted.
    pub async fn access(&self, cred: &Cred, ino: Ino, mask: AccessMask) -> FsResult<Attr> {
        let attr = self.getattr(ino).await?;
        access::require(&attr, cred, mask)?;
        Ok(attr)
    }

    /// chmod, chown, utimes and truncate with POSIX rules: who may, what clears setuid/setgid.
    pub async fn setattr(&self, cred: &Cred, ino: Ino, set: SetAttr) -> FsResult<Changed> {
        let state = &*self.state;
        let inode = state.inode(ino).await?;
        state.meta.admit().await?;
        let (changed, ticket) = match set.size {
            Some(size) => self.resize(cred, &inode, size, set).await?,
            None => set_without_size(state, cred, &inode, &set)?,
        };
        state.send(|| Event::Attr { origin: self.origin, ino });
        self.settle(ticket).await?;
        Ok(changed)
    }

    async fn resize(&self, cred: &Cred, inode: &Arc<Inode>, size: u64, set: SetAttr) -> FsResult<(Changed, Ticket)> {
        let state = &*self.state;
        let now = state.now();
        {
            let core = inode.core.lock();
            check_set(&core, cred, &set)?;
            match core.attr.kind {
                FileKind::File => {}
                FileKind::Directory => return Err(FsError::IsDirectory),
                _ => return Err(FsError::Invalid("only regular files have a size to set")),
            }
        }
        if size > FILE_BYTES_MAX {
            return Err(FsError::FileTooLarge);
        }
        let before = inode.core.lock().attr.size;
        let update = |attr: &mut Attr| {
            access::clear_suid(attr, cred);
            touch_mtime(attr, now);
            apply(attr, cred, &set, now);
        };
        let (changed, ticket) = state.data.truncate(inode, size, update).await?;
        inode.core.lock().verifier = None;
        let (offset, len) = (before.min(size), before.abs_diff(size));
        state.send(|| Event::Data { origin: self.origin, ino: inode.id.ino, offset, len });
        Ok((changed, ticket))
    }
}

fn check_set(core: &InodeCore, cred: &Cred, set: &SetAttr) -> FsResult<()> {
    if core.gone {
        return Err(FsError::Stale);
    }
    access::may_set(&core.attr, cred, set)?;
    match set.guard_ctime {
        Some(guard) if guard != core.attr.ctime => Err(FsError::NotSync),
        _ => Ok(()),
    }
}

fn set_without_size(state: &State, cred: &Cred, inode: &Arc<Inode>, set: &SetAttr) -> FsResult<(Changed, Ticket)> {
    let now = state.now();
    let mut cores = Cores::lock(&[inode]);
    let core = cores.of(inode);
    check_set(core, cred, set)?;
    let before = pre(&core.attr);
    let nothing = SetAttr { guard_ctime: set.guard_ctime, ..SetAttr::default() };
    if *set == nothing {
        return Ok((Changed { before, after: core.attr }, Ticket(0)));
    }
    apply(&mut core.attr, cred, set, now);
    core.verifier = None;
    let after = core.attr;
    let ticket = cores.submit(&*state.meta, Batch::default())?;
    Ok((Changed { before, after }, ticket))
}

/// Of an inode that still exists.
pub(crate) fn current(inode: &Inode) -> FsResult<Attr> {
    let core = inode.core.lock();
    if core.gone { Err(FsError::Stale) } else { Ok(core.attr) }
}

impl Volume {
    /// relatime. The record follows within seconds; a reader never waits for it.
    pub(crate) fn touch_atime(&self, inode: &Arc<Inode>) {
        if !self.access_times {
            return;
        }
        let state = &*self.state;
        let now = state.now();
        {
            let mut core = inode.core.lock();
            if core.gone || !wants_atime(&core.attr, now) {
                return;
            }
            core.attr.atime = now;
            core.attr_dirty = true;
        }
        state.data.touch(inode);
    }
}
