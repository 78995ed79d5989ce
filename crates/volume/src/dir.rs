//! Looking up and listing.

use std::sync::Arc;

use bytes::Bytes;
use futures::StreamExt;
use larder_fs::access;
use larder_fs::judge::{check_name, is_dots};
use larder_fs::places::catalog_of;
use larder_fs::*;

use crate::attr::{current, guarded};
use crate::inode::Inode;
use crate::inode_core;
use crate::keys::{self, Entry};
use crate::state::State;
use crate::volume::Volume;

/// One call lists at most this many; callers ask for the entries that fit a reply.
const PAGE_ENTRIES_MAX: usize = 16 << 10;
/// Inodes read at once for a listing with attributes.
const LOADS_MAX: usize = 32;
/// Inode numbers at most this far apart are read by one scan, if there are at least `RUN_MIN`.
const GAP_MAX: u64 = 8;
/// Deeper than any path of a client.
const DEPTH_MAX: usize = 4096;
const RUN_MIN: usize = 4;

impl Volume {
    /// The attributes of the inode that a name leads to; `.` and `..` are resolved too. Needs
    /// search permission on `dir`. [`FsError::NotFound`] if there is no such name.
    pub async fn lookup(&self, cred: &Cred, dir: Ino, name: &[u8], how: NameMatch) -> FsResult<Attr> {
        let state = &*self.state;
        check_name(name)?;
        let dir = state.directory(dir).await?;
        let object = guarded(&dir)?;
        access::require(&object, cred, ACCESS_EXECUTE)?;
        if name == b"." {
            return Ok(object.attr);
        }
        if name == b".." {
            let parent = dir.core.lock().parent;
            return self.getattr(parent).await;
        }
        loop {
            let (stored, entry) = match how {
                NameMatch::Exact => (None, state.entry(&dir, name).await?),
                NameMatch::Folded => {
                    state.folded_entry(&dir, name).await?.map_or((None, None), |(s, e)| (Some(s), Some(e)))
                }
            };
            let Some(entry) = entry else { return Err(FsError::NotFound) };
            let exact = stored.as_deref().unwrap_or(name);
            if let Some((_, inode)) = state.entry_inode(&dir, exact, entry).await?
                && let Ok(attr) = current(&inode)
            {
                return Ok(attr);
            }
        }
    }

    /// The spelling of the entry that `name` matches without regard to case.
    pub async fn stored_name(&self, dir: Ino, name: &[u8]) -> FsResult<Bytes> {
        check_name(name)?;
        if is_dots(name) {
            return Ok(Bytes::copy_from_slice(name));
        }
        let dir = self.state.directory(dir).await?;
        let found = self.state.folded_entry(&dir, name).await?;
        found.map(|(stored, _)| stored).ok_or(FsError::NotFound)
    }

    /// The directory that holds the directory `dir`; the root holds itself.
    pub async fn parent(&self, dir: Ino) -> FsResult<Ino> {
        let dir = self.state.directory(dir).await?;
        let core = dir.core.lock();
        if core.gone { Err(FsError::Stale) } else { Ok(core.parent) }
    }

    /// A directory that holds `ino`: of a directory the one that does, of others a hint.
    pub async fn holder(&self, ino: Ino) -> FsResult<Ino> {
        let inode = self.state.inode(ino).await?;
        let core = inode.core.lock();
        if core.gone { Err(FsError::Stale) } else { Ok(core.parent) }
    }

    /// The directory above `dir`, for a door whose top is the directory `top`: `top` is above itself, and so is, in a snapshot,
    /// what it was then, below its directory of snapshots. [`FsError::Stale`] for a directory that does not lie below `top`.
    pub async fn parent_within(&self, dir: Ino, top: Ino) -> FsResult<Ino> {
        let is_top = |ino: Ino| ino.is_or_was(top);
        let parent = match dir {
            dir if dir == top => return Ok(top),
            dir if is_top(dir) => return Ok(catalog_of(top)),
            dir => self.parent(dir).await?,
        };
        let mut at = parent;
        for _ in 0..DEPTH_MAX {
            match at {
                at if is_top(at) => return Ok(parent),
                Ino::ROOT => break,
                _ => at = self.parent(at).await?,
            }
        }
        Err(FsError::Stale)
    }

    /// Entries after `cookie` (0: from the start), at most `max` and at most 16,384. Needs read
    /// permission.
    pub async fn readdir(&self, cred: &Cred, dir: Ino, cookie: u64, max: usize, with_attrs: bool) -> FsResult<Listing> {
        self.readdir_before(cred, dir, cookie, u64::MAX, max, with_attrs).await
    }

    /// As [`Volume::readdir`], but only entries before the cookie `end`. A server takes `end` from
    /// the first page ([`Listing::end`]), so that a listing ends although its reader adds entries.
    pub async fn readdir_before(
        &self,
        cred: &Cred,
        dir: Ino,
        cookie: u64,
        end: u64,
        max: usize,
        with_attrs: bool,
    ) -> FsResult<Listing> {
        let state = &*self.state;
        let dir = state.directory(dir).await?;
        access::require(&guarded(&dir)?, cred, ACCESS_READ)?;
        let max = max.clamp(1, PAGE_ENTRIES_MAX);
        let first = cookie.saturating_add(1).max(inode_core::FIRST_COOKIE);
        let (is_empty, next_cookie) = {
            let core = dir.core.lock();
            (core.entries == 0, core.next_cookie)
        };
        let to = match end {
            u64::MAX => keys::range_of(keys::tag::COOKIE, dir.id.ino).1,
            end => keys::cookie_key(dir.id.ino, end),
        };
        let pairs = if is_empty || cookie == u64::MAX || first >= end {
            Vec::new()
        } else {
            state.meta.scan(&keys::cookie_key(dir.id.ino, first), &to, max + 1).await?
        };
        let eof = pairs.len() <= max;
        let entries: FsResult<Vec<DirEntry>> =
            pairs.iter().take(max).map(|(key, value)| keys::decode_cookie(key, value)).collect();
        let mut entries = entries?;
        if with_attrs {
            state.fill_attrs(&mut entries).await?;
            for entry in entries.iter_mut().filter(|entry| entry.attr.is_none()) {
                state.look_again(&dir, entry).await?;
            }
        }
        self.touch_atime(&dir);
        Ok(Listing { entries, eof, end: next_cookie, dir: current(&dir)? })
    }
}

impl State {
    /// The inode of an entry is gone: the name was removed, or leads to another one by now.
    async fn look_again(&self, dir: &Arc<Inode>, entry: &mut DirEntry) -> FsResult<()> {
        while let Some(now) = self.entry(dir, &entry.name).await? {
            if let Some((now, inode)) = self.entry_inode(dir, &entry.name, now).await?
                && let Ok(attr) = current(&inode)
            {
                (entry.ino, entry.kind, entry.attr) = (now.ino, now.kind, Some(attr));
                break;
            }
        }
        Ok(())
    }

    /// An entry whose inode went away meanwhile keeps `None`.
    async fn fill_attrs(&self, entries: &mut [DirEntry]) -> FsResult<()> {
        let mut missing = Vec::new();
        for (place, entry) in entries.iter_mut().enumerate() {
            match self.inodes.cached(entry.ino) {
                Some(inode) => entry.attr = current(&inode).ok(),
                None => missing.push((place, entry.ino)),
            }
        }
        missing.sort_by_key(|&(_, ino)| ino);
        let is_near = |a: &(usize, Ino), b: &(usize, Ino)| b.1.0 - a.1.0 <= GAP_MAX;
        let runs: Vec<Vec<(usize, Ino)>> = missing.chunk_by(is_near).map(<[_]>::to_vec).collect();
        let mut loads = futures::stream::iter(runs).map(|run| self.load_run(run)).buffer_unordered(LOADS_MAX);
        while let Some(loaded) = loads.next().await {
            for (place, attr) in loaded? {
                entries[place].attr = attr;
            }
        }
        Ok(())
    }

    /// Files made together have numbers close together: one scan is far cheaper than a look-up
    /// each.
    async fn load_run(&self, run: Vec<(usize, Ino)>) -> FsResult<Vec<(usize, Option<Attr>)>> {
        if let [(_, first), .., (_, last)] = run[..]
            && run.len() >= RUN_MIN
        {
            self.inodes.prefetch(first, last).await?;
        }
        let mut attrs = Vec::with_capacity(run.len());
        for (place, ino) in run {
            match self.inode(ino).await {
                Ok(inode) => attrs.push((place, current(&inode).ok())),
                Err(FsError::Stale) => attrs.push((place, None)),
                Err(error) => return Err(error),
            }
        }
        Ok(attrs)
    }

    /// The inode that an entry leads to; `None` when the entry is gone by now or leads elsewhere.
    pub(crate) async fn entry_inode(
        &self,
        dir: &Arc<Inode>,
        name: &[u8],
        entry: Entry,
    ) -> FsResult<Option<(Entry, Arc<Inode>)>> {
        match self.inode(entry.ino).await {
            Ok(inode) => Ok(Some((entry, inode))),
            Err(FsError::Stale) if self.entry(dir, name).await? != Some(entry) => Ok(None),
            Err(FsError::Stale) => {
                let name = String::from_utf8_lossy(name);
                let why = format!(
                    "'{name}' in directory {} leads to inode {}, which does not exist",
                    dir.id.ino.0, entry.ino.0
                );
                Err(FsError::Io(why.into()))
            }
            Err(error) => Err(error),
        }
    }
}
