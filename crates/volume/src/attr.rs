//! Attributes: handles, getattr, access, setattr.

use std::sync::Arc;

use larder_fs::access::{self, apply, touch_mtime, wants_atime};
use larder_fs::acl::{Acl, Guarded, Rights};
use larder_fs::places::{Place, place_of};
use larder_fs::*;

use crate::charge;
use crate::cores::Cores;
use crate::features;
use crate::inode::Inode;
use crate::inode_core::InodeCore;
use crate::meta::{Batch, Owned, Ticket};
use crate::state::State;
use crate::volume::Volume;

impl Volume {
    /// Checks a handle from a client: [`FsError::Stale`] if the inode is gone or has another
    /// generation.
    pub async fn resolve(&self, id: FileId) -> FsResult<Attr> {
        let attr = self.getattr(id.ino).await?;
        if attr.id == id { Ok(attr) } else { Err(FsError::Stale) }
    }

    /// The attributes of an inode; [`FsError::Stale`] if it does not exist.
    pub async fn getattr(&self, ino: Ino) -> FsResult<Attr> {
        current(&*self.state.inode(ino).await?)
    }

    /// The attributes, if all of `mask` is granted to `cred`; [`FsError::Access`] otherwise.
    pub async fn access(&self, cred: &Cred, ino: Ino, mask: AccessMask) -> FsResult<Attr> {
        let object = guarded(&*self.state.inode(ino).await?)?;
        access::require(&object, cred, mask)?;
        Ok(object.attr)
    }

    /// As [`Volume::resolve`], with the permissions that `cred` has.
    pub async fn resolve_granted(&self, cred: &Cred, id: FileId) -> FsResult<(Attr, AccessMask)> {
        let object = guarded(&*self.state.inode(id.ino).await?)?;
        if object.attr.id != id {
            return Err(FsError::Stale);
        }
        Ok((object.attr, access::granted(&object, cred)))
    }

    /// The rights of `cred` on a file in the directory `parent`. `None`: the file is the root of
    /// the share.
    pub async fn rights(&self, cred: &Cred, ino: Ino, parent: Option<Ino>) -> FsResult<Rights> {
        let object = guarded(&*self.state.inode(ino).await?)?;
        let parent = match parent {
            Some(parent) => Some(guarded(&*self.state.inode(parent).await?)?),
            None => None,
        };
        Ok(access::rights(&object, parent.as_ref(), cred))
    }

    /// The attributes, and the list that decides in place of the mode bits, where there is one.
    pub async fn acl(&self, ino: Ino) -> FsResult<(Attr, Option<Arc<Acl>>)> {
        let object = guarded(&*self.state.inode(ino).await?)?;
        Ok((object.attr, object.acl))
    }

    /// Changes attributes (not the size) and sets the list, or removes it, in one step. The
    /// permission bits follow from the list. [`FsError::TooBig`] beyond
    /// [`larder_fs::acl::ACL_BYTES_MAX`].
    pub async fn set_acl(&self, cred: &Cred, ino: Ino, set: SetAttr, acl: Option<Acl>) -> FsResult<Changed> {
        if acl.as_ref().is_some_and(|acl| !acl.fits()) {
            return Err(FsError::TooBig);
        }
        let state = &*self.state;
        let inode = state.changeable(ino).await?;
        if acl.is_some() {
            state.marks.set(features::ACCESS_LISTS).await?;
        }
        await_owner(state, cred, &inode, &set).await?;
        let longer = {
            let core = inode.core.lock();
            let metadata_bytes = charge::of_list(acl.as_ref()).saturating_sub(charge::of_list(core.acl.as_deref()));
            Owned { metadata_bytes, ..core.owned_nothing() }
        };
        if longer.metadata_bytes > 0 {
            state.admit_entry(longer).await?;
        }
        state.meta.admit().await?;
        let now = state.now();
        let (changed, ticket) = {
            let mut cores = Cores::lock(&[&inode]);
            let core = cores.of(&inode);
            check_set(state, core, cred, &SetAttr { size: None, mode: Some(core.attr.mode), ..set })?;
            let before = PreAttr::of(&core.attr);
            apply(&mut core.attr, cred, &set, now);
            core.verifier = None;
            core.acl = acl.map(Arc::new);
            if let Some(acl) = &core.acl {
                core.attr.mode = acl.mode(&core.attr);
            }
            let after = core.attr;
            (Changed { before, after }, cores.submit(&*state.meta, Batch::default())?)
        };
        state.send(|| Event::Attr { origin: self.origin, ino });
        self.await_durable(ticket).await?;
        Ok(changed)
    }

    /// chmod, chown, utimes and truncate by the rules of POSIX: who may, and which change clears
    /// setuid and setgid. [`FsError::NotSync`] if the guard does not match.
    pub async fn setattr(&self, cred: &Cred, ino: Ino, set: SetAttr) -> FsResult<Changed> {
        let state = &*self.state;
        let inode = state.changeable(ino).await?;
        let before = (set.uid.is_some() || set.gid.is_some()).then(|| inode.ids());
        await_owner(state, cred, &inode, &set).await?;
        state.meta.admit().await?;
        let (changed, ticket) = match set.size {
            Some(size) => self.resize(cred, &inode, size, set).await?,
            None => set_without_size(state, cred, &inode, &set)?,
        };
        state.send(|| Event::Attr { origin: self.origin, ino });
        self.await_durable(ticket).await?;
        if before.is_some_and(|before| before != (changed.after.uid, changed.after.gid)) {
            self.hand_over_named(&inode).await?;
        }
        Ok(changed)
    }

    async fn resize(&self, cred: &Cred, inode: &Arc<Inode>, size: u64, set: SetAttr) -> FsResult<(Changed, Ticket)> {
        let state = &*self.state;
        let now = state.now();
        let has_acl = {
            let core = inode.core.lock();
            check_set(state, &core, cred, &set)?;
            match core.attr.kind {
                FileKind::File => {}
                FileKind::Directory => return Err(FsError::IsDirectory),
                _ => return Err(FsError::Invalid("only regular files have a size to set")),
            }
            core.acl.is_some()
        };
        if size > FILE_BYTES_MAX {
            return Err(FsError::FileTooLarge);
        }
        let set = if has_acl && (set.mode.is_some() || set.uid.is_some() || set.gid.is_some()) {
            // File data does not know access control lists.
            set_without_size(state, cred, inode, &SetAttr { size: None, ..set })?;
            SetAttr { size: Some(size), ..SetAttr::default() }
        } else {
            set
        };
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

fn check_set(state: &State, core: &InodeCore, cred: &Cred, set: &SetAttr) -> FsResult<()> {
    if core.gone {
        return Err(FsError::Stale);
    }
    access::may_set(&core.guarded(), cred, set)?;
    if let Some((before, after)) = handed_over(core, set) {
        state.admit_owner(before, after)?;
    }
    match set.guard_ctime {
        Some(guard) if guard != core.attr.ctime => Err(FsError::NotSync),
        _ => Ok(()),
    }
}

/// The charge of an inode before and after another owner or group gets it. `None`: none does.
fn handed_over(core: &InodeCore, set: &SetAttr) -> Option<(Owned, Owned)> {
    let before = core.owned();
    let (uid, gid) = (set.uid.unwrap_or(before.uid), set.gid.unwrap_or(before.gid));
    (set.uid.is_some() || set.gid.is_some()).then_some((before, Owned { uid, gid, ..before }))
}

/// Outside every lock. The change itself finds out whether it is permitted, and whether there is room.
async fn await_owner(state: &State, cred: &Cred, inode: &Inode, set: &SetAttr) -> FsResult<()> {
    let handed_over = {
        let core = inode.core.lock();
        let is_permitted = access::may_set(&core.guarded(), cred, set).is_ok();
        handed_over(&core, set).filter(|_| is_permitted)
    };
    match handed_over {
        Some((before, after)) => state.await_owner(before, after).await,
        None => Ok(()),
    }
}

fn set_without_size(state: &State, cred: &Cred, inode: &Arc<Inode>, set: &SetAttr) -> FsResult<(Changed, Ticket)> {
    let now = state.now();
    let mut cores = Cores::lock(&[inode]);
    let core = cores.of(inode);
    check_set(state, core, cred, set)?;
    let before = PreAttr::of(&core.attr);
    let nothing = SetAttr { guard_ctime: set.guard_ctime, ..SetAttr::default() };
    if *set == nothing {
        return Ok((Changed { before, after: core.attr }, Ticket(0)));
    }
    let bits = core.attr.mode;
    apply(&mut core.attr, cred, set, now);
    core.follow_list(set, bits);
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

pub(crate) fn guarded(inode: &Inode) -> FsResult<Guarded> {
    let core = inode.core.lock();
    if core.gone { Err(FsError::Stale) } else { Ok(core.guarded()) }
}

impl Volume {
    /// By the rule of this handle. The record follows within seconds; a reader never waits for it.
    pub(crate) fn touch_atime(&self, inode: &Arc<Inode>) {
        if self.access_times.moves == AtimeMoves::Never
            || place_of(inode.id.ino) != Place::Head
            || self.state.followed.is_some()
        {
            return;
        }
        let state = &*self.state;
        let now = state.now();
        {
            let mut core = inode.core.lock();
            let is_meant = self.access_times.of_directories || core.attr.kind != FileKind::Directory;
            let is_due = self.access_times.moves == AtimeMoves::Always || wants_atime(&core.attr, now);
            if core.gone || !is_meant || !is_due {
                return;
            }
            core.attr.atime = now;
            core.attr_dirty = true;
        }
        state.data.touch(inode);
    }
}
