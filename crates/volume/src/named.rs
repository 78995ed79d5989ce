//! Named attributes: files that belong to a file or directory (OPENATTR of RFC 8881 5.3, the
//! alternate data streams of SMB).
//!
//! - `named.directory_without_name`: they are the entries of a directory that has no name. Its
//!   number stands in a record among the owner's extended attributes that no protocol can ask for
//!   ([`own_records::NAMED`]), and its parent is its owner.
//! - `named.lives_with_owner`: the directory is made with the first attribute, in one batch with
//!   the record that leads to it. It goes with its owner: first the entries, each as by an unlink,
//!   so an open one stays until it is closed; then the directory and the record in one batch.
//! - `named.of_its_user`: they are their owner's user's and group's, whose quotas bear them, whoever makes them. Rights are the
//!   owner's all the same: the protocol servers ask those.
//! - `named.regular_files_only`: the directory holds regular files alone. The protocol servers
//!   refuse other kinds, and links and renames across its border.

use std::sync::Arc;

use larder_fs::access::touch_ctime;
use larder_fs::*;

use crate::attr::current;
use crate::charge;
use crate::cores::Cores;
use crate::features;
use crate::inode::Inode;
use crate::keys;
use crate::meta::{Batch, Owned};
use crate::namespace::{NewInode, new_child};
use crate::own_records;
use crate::state::State;
use crate::volume::Volume;

const ENTRIES_PAGE: usize = 256;
/// Removals that find new entries start over. A directory without an owner gets none, so one round
/// is usual and a second one rare.
const ROUNDS_MAX: usize = 8;

impl State {
    async fn named_dir(&self, owner: &Arc<Inode>) -> FsResult<Option<Ino>> {
        if owner.core.lock().xattrs == 0 {
            return Ok(None);
        }
        let key = keys::xattr_key(owner.id.ino, own_records::NAMED);
        let Some(value) = self.meta.get(&key).await? else { return Ok(None) };
        let value = keys::decode_xattr(&key, &value)?;
        let dir = own_records::directory_in(own_records::NAMED, &value);
        dir.map(Some).ok_or_else(|| keys::damaged(&key, "it leads to no directory"))
    }

    /// Removes the named attributes of an owner that is gone (`named.lives_with_owner`). May be
    /// repeated after a crash.
    pub(crate) async fn reap_named(self: &Arc<Self>, owner: &Arc<Inode>) -> FsResult<()> {
        let Some(dir) = self.named_dir(owner).await? else { return Ok(()) };
        let mut batch = Batch::default();
        batch.delete(keys::xattr_key(owner.id.ino, own_records::NAMED));
        match self.inode(dir).await {
            Ok(dir) => {
                let volume = Volume {
                    state: self.clone(),
                    origin: 0,
                    answers: Answers::Ordered,
                    access_times: AccessTimes::NEVER,
                    only: None,
                };
                let mut rounds = 0;
                while !self.close_named(&dir).await? {
                    rounds += 1;
                    if rounds > ROUNDS_MAX {
                        return Err(FsError::Busy("entries of the named attributes cannot be removed"));
                    }
                    volume.empty(&dir).await?;
                }
                self.data.forget(&dir);
                batch.delete_record(dir.id.ino, &mut dir.core.lock());
                batch.usage.inodes = -1;
            }
            Err(FsError::Stale) => {}
            Err(error) => return Err(error),
        }
        self.meta.write(batch).await?;
        self.inodes.remove(dir);
        let mut core = owner.core.lock();
        core.xattrs = core.xattrs.saturating_sub(1);
        Ok(())
    }

    /// Stops new entries (`inode.gone_is_final`), unless the directory has entries: a client that
    /// found it before its owner was gone may have made one more. Returns whether it was empty.
    async fn close_named(&self, dir: &Arc<Inode>) -> FsResult<bool> {
        let _names = dir.namespace.lock().await;
        // Count its rows: the number in its record may be damaged.
        let (from, to) = keys::range_of(keys::tag::ENTRY, dir.id.ino);
        let is_empty = self.meta.scan(&from, &to, 1).await?.is_empty();
        dir.core.lock().gone |= is_empty;
        Ok(is_empty)
    }
}

impl Volume {
    /// The directory of the named attributes of `ino`. `None` if it has none and `make` is false.
    pub async fn named_dir(&self, ino: Ino, make: bool) -> FsResult<Option<Ino>> {
        let state = &*self.state;
        let owner = state.inode(ino).await?;
        current(&owner)?;
        let found = state.named_dir(&owner).await?;
        if let Some(dir) = found
            && make
            && state.inode(dir).await?.ids() != owner.ids()
        {
            // Older programs made it root's.
            self.hand_over_named(&owner).await?;
        }
        if found.is_some() || !make {
            return Ok(found);
        }
        state.check_changeable(ino)?;
        state.marks.set(features::NAMED_ATTRIBUTES).await?;
        let asked = charge::ATTRIBUTE_BYTES + charge::INODE_BYTES + charge::NAME_BYTES;
        let asked = Owned { metadata_bytes: asked, ..owner.core.lock().owned_nothing() };
        state.admit_entry(asked).await?;
        state.meta.admit().await?;
        let guard = owner.namespace.lock().await;
        if let Some(dir) = state.named_dir(&owner).await? {
            return Ok(Some(dir));
        }
        let id = state.new_id().await?;
        let ticket = {
            let mut cores = Cores::lock(&[&owner]);
            let core = cores.of(&owner);
            // Without a name, but open: the directory goes with it, by the same orphan mark.
            if core.gone {
                return Err(FsError::Stale);
            }
            let now = state.now();
            let (uid, gid) = (Some(core.attr.uid), Some(core.attr.gid));
            let private = SetAttr { mode: Some(0o700), uid, gid, ..SetAttr::default() };
            let kind = FileKind::Directory;
            let mut dir = new_child(&core.guarded(), &Cred::root(), id, kind, NewInode::default(), &private, now);
            let mut batch = Batch::default();
            batch.put_record(id.ino, &mut dir);
            batch.put(keys::xattr_key(ino, own_records::NAMED), keys::encode_xattr(&id.ino.0.to_be_bytes()));
            batch.usage.inodes = 1;
            core.xattrs += 1;
            touch_ctime(&mut core.attr, now);
            let ticket = cores.submit(&*state.meta, batch)?;
            state.inodes.insert(dir).core.lock().ticket = ticket;
            ticket
        };
        drop(guard);
        self.await_durable(ticket).await?;
        Ok(Some(id.ino))
    }

    /// Gives the named attributes of `owner` to the user and group that it has (`named.of_its_user`). The directory comes last: what a
    /// crash leaves undone is done when the next one is made.
    pub(crate) async fn hand_over_named(&self, owner: &Arc<Inode>) -> FsResult<()> {
        let Some(dir) = self.state.named_dir(owner).await? else { return Ok(()) };
        let (uid, gid) = owner.ids();
        let set = || SetAttr { uid: Some(uid), gid: Some(gid), ..SetAttr::default() };
        let (mut from, to) = keys::range_of(keys::tag::ENTRY, dir);
        loop {
            let page = self.state.meta.scan(&from, &to, ENTRIES_PAGE).await?;
            let Some((last, _)) = page.last() else { break };
            from = [&last[..], &[0]].concat().into();
            for (key, value) in &page {
                let stream = keys::decode_entry(key, value)?.ino;
                match Box::pin(self.setattr(&Cred::root(), stream, set())).await {
                    // Removed meanwhile.
                    Ok(_) | Err(FsError::Stale | FsError::NotFound) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Box::pin(self.setattr(&Cred::root(), dir, set())).await.map(drop)
    }

    /// Removes all named attributes of `ino`, as overwriting a file over SMB does (MS-FSA
    /// 2.1.5.1.2).
    pub async fn remove_named(&self, ino: Ino) -> FsResult<()> {
        let owner = self.state.changeable(ino).await?;
        let Some(dir) = self.state.named_dir(&owner).await? else { return Ok(()) };
        let dir = self.state.inode(dir).await?;
        self.empty(&dir).await?;
        self.await_newest(&dir).await
    }

    async fn empty(&self, dir: &Arc<Inode>) -> FsResult<()> {
        let (from, to) = keys::range_of(keys::tag::ENTRY, dir.id.ino);
        loop {
            let page = self.state.meta.scan(&from, &to, ENTRIES_PAGE).await?;
            if page.is_empty() {
                return Ok(());
            }
            let mut is_removed = false;
            for (key, _) in page {
                match self.remove_name(&Cred::root(), dir, &keys::rest_of(&key)).await {
                    Ok(_) => is_removed = true,
                    // Another client was quicker.
                    Err(FsError::NotFound) => {}
                    Err(error) => return Err(error),
                }
            }
            if !is_removed {
                return Ok(());
            }
        }
    }
}
