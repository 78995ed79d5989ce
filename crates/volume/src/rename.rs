//! Renaming: the one operation that touches up to four inodes.
//!
//! - `rename.one_directory_move`: a directory moves to another directory only under `State::moves`,
//!   so the parents that the loop check walks cannot change under it.
//! - `rename.look_again`: names looked up before the `namespace` locks are looked up again under
//!   them. If one changed, the rename starts over.

use std::sync::Arc;

use bytes::Bytes;
use larder_fs::access::{self, touch_ctime, touch_mtime};
use larder_fs::judge::{check_name, is_dots};
use larder_fs::places::check_changeable;
use larder_fs::*;

use crate::cores::Cores;
use crate::inode::Inode;
use crate::keys::Entry;
use crate::meta::{Batch, Ticket};
use crate::names::{add_entry, add_entry_at, drop_entry, put_entry};
use crate::namespace::{Fate, live, lock_namespaces, unlinked};
use crate::state::State;
use crate::volume::Volume;

/// Deeper trees do not exist: a longer walk is a loop of damaged parents.
const DEPTH_MAX: usize = 1 << 16;

/// The purpose of a rename.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Intent {
    Rename(RenameMode),
    /// A removal that keeps the inode under a free name. Of a directory, if `directory`, and then of an empty one.
    SetAside {
        directory: bool,
    },
}

impl Intent {
    fn mode(self) -> RenameMode {
        match self {
            Intent::Rename(mode) => mode,
            Intent::SetAside { .. } => RenameMode::NoReplace,
        }
    }

    /// Errors of unlink and rmdir.
    fn check_kind(self, is_dir: bool) -> FsResult<()> {
        match self {
            Intent::SetAside { directory: false } if is_dir => Err(FsError::IsDirectory),
            Intent::SetAside { directory: true } if !is_dir => Err(FsError::NotDirectory),
            _ => Ok(()),
        }
    }
}

/// One side of a rename: a directory and a name in it.
struct Side<'a> {
    dir: Arc<Inode>,
    name: &'a [u8],
}

/// The entry and the inode that a name led to.
#[derive(Clone)]
struct FoundEntry {
    entry: Entry,
    inode: Arc<Inode>,
}

impl FoundEntry {
    fn is_dir(&self) -> bool {
        self.entry.kind == FileKind::Directory
    }
}

impl Volume {
    /// Renames `from_name` in `from` to `to_name` in `to`. Returns the changes of the source and
    /// the target directory.
    pub async fn rename(
        &self,
        cred: &Cred,
        from: Ino,
        from_name: &[u8],
        to: Ino,
        to_name: &[u8],
        mode: RenameMode,
    ) -> FsResult<(Changed, Changed)> {
        check_name(from_name)?;
        check_name(to_name)?;
        if is_dots(from_name) || is_dots(to_name) {
            return Err(FsError::Invalid("'.' and '..' cannot be renamed"));
        }
        let state = &self.state;
        let from = Side { dir: state.changeable_directory(from).await?, name: from_name };
        let to = Side { dir: state.changeable_directory(to).await?, name: to_name };
        loop {
            state.admit_removal().await?;
            if let Some((_, changes)) = self.try_rename(cred, &from, &to, Intent::Rename(mode)).await? {
                return Ok(changes);
            }
        }
    }

    /// Removes `from_name` from `from` as [`Volume::unlink`] does, or [`Volume::rmdir`] if `directory`, and keeps its inode as
    /// `to_name` in `to`, in one step. `cred` needs the right to remove and none in `to`. Returns the inode's attributes
    /// afterwards and the change of `from`. [`FsError::Exists`] if `to_name` is taken.
    pub async fn set_aside(
        &self,
        cred: &Cred,
        from: Ino,
        from_name: &[u8],
        to: Ino,
        to_name: &[u8],
        directory: bool,
    ) -> FsResult<(Attr, Changed)> {
        check_name(from_name)?;
        check_name(to_name)?;
        if is_dots(from_name) || is_dots(to_name) {
            return Err(FsError::Invalid("'.' and '..' cannot be removed"));
        }
        let state = &self.state;
        let from = Side { dir: state.changeable_directory(from).await?, name: from_name };
        let to = Side { dir: state.changeable_directory(to).await?, name: to_name };
        loop {
            state.admit_removal().await?;
            if let Some((attr, (changed, _))) =
                self.try_rename(cred, &from, &to, Intent::SetAside { directory }).await?
            {
                return Ok((attr, changed));
            }
        }
    }

    /// `None`: something moved between look-up and lock (`rename.look_again`).
    async fn try_rename(
        &self,
        cred: &Cred,
        from: &Side<'_>,
        to: &Side<'_>,
        intent: Intent,
    ) -> FsResult<Option<(Attr, (Changed, Changed))>> {
        let (state, mode) = (&self.state, intent.mode());
        access::require(&from.dir.core.lock().guarded(), cred, ACCESS_EXECUTE)?;
        if matches!(intent, Intent::Rename(_)) {
            access::require(&to.dir.core.lock().guarded(), cred, ACCESS_EXECUTE)?;
        }
        let Some(source) = state.find(from).await? else { return Err(FsError::NotFound) };
        self.check_only(source.entry.ino)?;
        intent.check_kind(source.is_dir())?;
        let target = state.find(to).await?;
        check_changeable(source.entry.ino)?;
        target.as_ref().map_or(Ok(()), |target| check_changeable(target.entry.ino))?;
        let crosses = from.dir.id.ino != to.dir.id.ino;
        let moves_dir =
            source.is_dir() || (mode == RenameMode::Exchange && target.as_ref().is_some_and(FoundEntry::is_dir));
        let _moves = if crosses && moves_dir { Some(state.moves.lock().await) } else { None };
        let mut dirs = vec![&from.dir, &to.dir];
        dirs.extend(target.iter().filter(|t| t.is_dir() && mode == RenameMode::Replace).map(|t| &t.inode));
        let locks = lock_namespaces(dirs).await;
        let now_target = state.entry(&to.dir, to.name).await?;
        if state.entry(&from.dir, from.name).await? != Some(source.entry)
            || now_target != target.as_ref().map(|found| found.entry)
        {
            return Ok(None);
        }
        if let Some(target) = &target
            && mode == RenameMode::NoReplace
            && (source.entry.ino != target.entry.ino || from.name != to.name || crosses)
        {
            return Err(FsError::Exists);
        }
        if mode == RenameMode::Exchange && target.is_none() {
            return Err(FsError::NotFound);
        }
        if crosses && source.is_dir() && state.is_within(&to.dir, source.entry.ino).await? {
            return Err(FsError::Invalid("a directory cannot move into itself"));
        }
        if let (true, RenameMode::Exchange, Some(target)) = (crosses, mode, &target)
            && target.is_dir()
            && state.is_within(&from.dir, target.entry.ino).await?
        {
            return Err(FsError::Invalid("a directory cannot move into itself"));
        }
        let (changes, ticket) = match &target {
            Some(target) if target.entry.ino == source.entry.ino => {
                // Both names may not be durable yet.
                drop(locks);
                self.await_newest(&from.dir).await?;
                self.await_newest(&to.dir).await?;
                let attr = source.inode.core.lock().attr;
                return Ok(Some((attr, unchanged(from, to))));
            }
            Some(target) if mode == RenameMode::Exchange => self.exchange(cred, from, to, &source, target)?,
            target => self.replace(cred, from, to, &source, target.as_ref(), intent)?,
        };
        let attr = source.inode.core.lock().attr;
        drop(locks);
        let (ino, kind) = (source.entry.ino, source.entry.kind);
        let copy = Bytes::copy_from_slice;
        let renamed = |from: &Side<'_>, to: &Side<'_>, (ino, kind)| {
            state.send(|| Event::Renamed {
                origin: self.origin,
                from: from.dir.id.ino,
                from_name: copy(from.name),
                to: to.dir.id.ino,
                to_name: copy(to.name),
                ino,
                kind,
            });
        };
        match intent {
            Intent::Rename(mode) => {
                renamed(from, to, (ino, kind));
                if let (RenameMode::Exchange, Some(target)) = (mode, &target) {
                    renamed(to, from, (target.entry.ino, target.entry.kind));
                }
            }
            // To others it is a removal: nobody goes on with the file at its new place.
            Intent::SetAside { .. } => {
                let (origin, gone, kept) = (self.origin, (from.dir.id.ino, from.name), (to.dir.id.ino, to.name));
                state.send(|| Event::Removed { origin, dir: gone.0, name: copy(gone.1), ino, kind });
                state.send(|| Event::Added { origin, dir: kept.0, name: copy(kept.1), kind });
            }
        }
        // Other names of either inode show its times and link count.
        for found in std::iter::once(&source).chain(&target) {
            state.send(|| Event::Attr { origin: self.origin, ino: found.entry.ino });
        }
        self.await_durable(ticket).await?;
        Ok(Some((attr, changes)))
    }

    fn replace(
        &self,
        cred: &Cred,
        from: &Side<'_>,
        to: &Side<'_>,
        source: &FoundEntry,
        target: Option<&FoundEntry>,
        intent: Intent,
    ) -> FsResult<((Changed, Changed), Ticket)> {
        let state = &self.state;
        let root = Cred::root();
        let placing = if matches!(intent, Intent::Rename(_)) { cred } else { &root };
        may_rename(cred, placing, from, to, source, target)?;
        let mut locked = vec![&from.dir, &to.dir, &source.inode];
        locked.extend(target.map(|found| &found.inode));
        let now = state.now();
        let (from_ino, to_ino) = (from.dir.id.ino, to.dir.id.ino);
        let mut cores = Cores::lock(&locked);
        live(cores.of(&to.dir))?;
        if let Some(target) = target
            && cores.of(&target.inode).entries > 0
        {
            return Err(FsError::NotEmpty);
        }
        if intent == (Intent::SetAside { directory: true }) && cores.of(&source.inode).entries > 0 {
            return Err(FsError::NotEmpty);
        }
        let crosses = from_ino != to_ino;
        if source.is_dir() && crosses && cores.of(&to.dir).attr.nlink >= LINKS_MAX {
            return Err(FsError::TooManyLinks);
        }
        let before = (PreAttr::of(&cores.of(&from.dir).attr), PreAttr::of(&cores.of(&to.dir).attr));
        let mut batch = Batch::default();
        drop_entry(&mut batch, from_ino, cores.of(&from.dir), from.name, source.entry);
        let mut fate = Fate::Linked;
        if let Some(target) = target {
            drop_entry(&mut batch, to_ino, cores.of(&to.dir), to.name, target.entry);
            fate = unlinked(state, &target.inode, cores.of(&target.inode), &mut batch, now);
            if target.is_dir() {
                let parent = cores.of(&to.dir);
                parent.attr.nlink = parent.attr.nlink.saturating_sub(1);
            }
        }
        // The target's place in listings, or else the source's: a name that exists throughout is
        // listed throughout, and a file renamed behind a listing is not listed again.
        let cookie = target.map(|target| target.entry.cookie).or((!crosses).then_some(source.entry.cookie));
        let (ino, kind) = (source.entry.ino, source.entry.kind);
        let entry = match cookie {
            Some(cookie) => {
                let entry = Entry { ino, kind, cookie };
                add_entry_at(&mut batch, to_ino, cores.of(&to.dir), to.name, entry)
            }
            None => add_entry(&mut batch, to_ino, cores.of(&to.dir), to.name, ino, kind),
        };
        if source.is_dir() && crosses {
            let old = cores.of(&from.dir);
            old.attr.nlink = old.attr.nlink.saturating_sub(1);
            cores.of(&to.dir).attr.nlink += 1;
        }
        let moved = cores.of(&source.inode);
        moved.parent = to_ino;
        touch_ctime(&mut moved.attr, now);
        touch_mtime(&mut cores.of(&from.dir).attr, now);
        if crosses {
            touch_mtime(&mut cores.of(&to.dir).attr, now);
        }
        let after = (cores.of(&from.dir).attr, cores.of(&to.dir).attr);
        let replaced = target.map(|target| cores.of(&target.inode).attr);
        let ticket = cores.submit(&*state.meta, batch)?;
        state.note_entry(&from.dir, from.name, None);
        state.note_entry(&to.dir, to.name, Some(entry));
        if let Some(target) = target {
            fate.mark_gone(cores.of(&target.inode));
        }
        drop(cores);
        if let Some(target) = target {
            state.after_unlink(&target.inode, fate);
        }
        if let Some(attr) = replaced {
            self.send_removed(to_ino, to.name, &attr);
        }
        Ok((changes(before, after), ticket))
    }

    fn exchange(
        &self,
        cred: &Cred,
        from: &Side<'_>,
        to: &Side<'_>,
        source: &FoundEntry,
        target: &FoundEntry,
    ) -> FsResult<((Changed, Changed), Ticket)> {
        let state = &self.state;
        for (side, found) in [(from, source), (to, target)] {
            let (dir, object) = (side.dir.core.lock().guarded(), found.inode.core.lock().guarded());
            access::may_remove(&dir, &object, cred)?;
        }
        let (from_ino, to_ino) = (from.dir.id.ino, to.dir.id.ino);
        let now = state.now();
        let mut cores = Cores::lock(&[&from.dir, &to.dir, &source.inode, &target.inode]);
        let before = (PreAttr::of(&cores.of(&from.dir).attr), PreAttr::of(&cores.of(&to.dir).attr));
        let mut batch = Batch::default();
        // Names and cookies stay; the inodes that they lead to change places.
        let at_from = Entry { cookie: source.entry.cookie, ..target.entry };
        let at_to = Entry { cookie: target.entry.cookie, ..source.entry };
        put_entry(&mut batch, from_ino, from.name, at_from);
        put_entry(&mut batch, to_ino, to.name, at_to);
        if from_ino != to_ino && source.is_dir() != target.is_dir() {
            let (gains, loses) = if target.is_dir() { (&from.dir, &to.dir) } else { (&to.dir, &from.dir) };
            cores.of(gains).attr.nlink += 1;
            let loser = cores.of(loses);
            loser.attr.nlink = loser.attr.nlink.saturating_sub(1);
        }
        for (found, parent) in [(source, to_ino), (target, from_ino)] {
            let core = cores.of(&found.inode);
            core.parent = parent;
            touch_ctime(&mut core.attr, now);
        }
        touch_mtime(&mut cores.of(&from.dir).attr, now);
        if from_ino != to_ino {
            touch_mtime(&mut cores.of(&to.dir).attr, now);
        }
        let after = (cores.of(&from.dir).attr, cores.of(&to.dir).attr);
        let ticket = cores.submit(&*state.meta, batch)?;
        state.note_entry(&from.dir, from.name, Some(at_from));
        state.note_entry(&to.dir, to.name, Some(at_to));
        drop(cores);
        // Caches of names learn that both names lead elsewhere now.
        for (side, found, other) in [(from, source, target), (to, target, source)] {
            let (origin, dir, name) = (self.origin, side.dir.id.ino, || Bytes::copy_from_slice(side.name));
            let (ino, kind) = (found.entry.ino, found.entry.kind);
            state.send(|| Event::Removed { origin, dir, name: name(), ino, kind });
            state.send(|| Event::Added { origin, dir, name: name(), kind: other.entry.kind });
        }
        Ok((changes(before, after), ticket))
    }
}

/// The checks of Linux' vfs_rename, in its order. `cred` takes the name away, `placing` gives the new one.
fn may_rename(
    cred: &Cred,
    placing: &Cred,
    from: &Side<'_>,
    to: &Side<'_>,
    source: &FoundEntry,
    target: Option<&FoundEntry>,
) -> FsResult<()> {
    let from_dir = from.dir.core.lock().guarded();
    let to_dir = to.dir.core.lock().guarded();
    let moved = source.inode.core.lock().guarded();
    access::may_remove(&from_dir, &moved, cred)?;
    match target {
        None => access::may_add(&to_dir, placing, moved.attr.kind)?,
        Some(target) => {
            let replaced = target.inode.core.lock().guarded();
            access::may_remove(&to_dir, &replaced, placing)?;
            match (source.is_dir(), target.is_dir()) {
                (true, false) => return Err(FsError::NotDirectory),
                (false, true) => return Err(FsError::IsDirectory),
                _ => {}
            }
        }
    }
    // Its '..' changes.
    if source.is_dir() && from_dir.attr.id != to_dir.attr.id {
        access::require(&moved, placing, ACCESS_WRITE)?;
    }
    Ok(())
}

fn changes(before: (PreAttr, PreAttr), after: (Attr, Attr)) -> (Changed, Changed) {
    (Changed { before: before.0, after: after.0 }, Changed { before: before.1, after: after.1 })
}

fn unchanged(from: &Side<'_>, to: &Side<'_>) -> (Changed, Changed) {
    let same = |dir: &Inode| {
        let attr = dir.core.lock().attr;
        Changed { before: PreAttr::of(&attr), after: attr }
    };
    (same(&from.dir), same(&to.dir))
}

impl State {
    async fn find(&self, side: &Side<'_>) -> FsResult<Option<FoundEntry>> {
        while let Some(entry) = self.entry(&side.dir, side.name).await? {
            // Replaced in between: the name is there all the same.
            if let Some((entry, inode)) = self.entry_inode(&side.dir, side.name, entry).await? {
                return Ok(Some(FoundEntry { entry, inode }));
            }
        }
        Ok(None)
    }

    /// Whether `dir` is the directory `ancestor` or lies below it.
    async fn is_within(&self, dir: &Arc<Inode>, ancestor: Ino) -> FsResult<bool> {
        let mut at = dir.id.ino;
        for _ in 0..DEPTH_MAX {
            if at == ancestor {
                return Ok(true);
            }
            if at == Ino::ROOT {
                return Ok(false);
            }
            at = self.inode(at).await?.core.lock().parent;
        }
        Err(FsError::Io(format!("the parents of directory {} form a loop", dir.id.ino.0).into()))
    }
}
