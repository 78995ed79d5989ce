//! Listing a directory: `.` and `..` first, then the volume's entries behind their cookies.
//!
//! The offset of an entry is where the listing resumes behind it: 1 after `.`, 2 after `..`, then the volume's
//! cookies, which begin at 3 and survive whatever is added and removed in between. A listing ends at the entries that
//! were made after its first page, so that a program that renames or adds files while it lists comes to an end.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use bytes::Bytes;
use fuser::{FileAttr, Generation, INodeNo, ReplyDirectory, ReplyDirectoryPlus};
use larder_fs::{Attr, Cred, DirEntry, FileKind, FsError, FsResult, Ino, Listing};

use super::convert::{errno, file_attr, file_type};
use super::session::Session;

/// Entries fetched at a time: the crate does not say how large the kernel's buffer is, so it is filled in
/// steps, small where each entry costs an inode.
const STEP: usize = 128;
const STEP_PLUS: usize = 48;

const AFTER_DOT: u64 = 1;
const AFTER_DOTDOT: u64 = 2;

pub(super) async fn list(session: &Session, cred: &Cred, dir: (Ino, u64), offset: u64, mut reply: ReplyDirectory) {
    let filled = fill(session, cred, dir, offset, STEP, false, |entry| {
        let kind = file_type(entry.kind);
        reply.add(INodeNo(entry.ino.0), entry.cookie, kind, OsStr::from_bytes(&entry.name))
    });
    match filled.await {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(errno(&error)),
    }
}

pub(super) async fn list_plus(
    session: &Session,
    cred: &Cred,
    dir: (Ino, u64),
    offset: u64,
    mut reply: ReplyDirectoryPlus,
) {
    let filled = fill(session, cred, dir, offset, STEP_PLUS, true, |entry| {
        // Without attributes there is nothing to teach the kernel: the entry was removed while it was listed.
        let Some(attr) = &entry.attr else { return false };
        let ttl = session.attr_ttl(attr).min(session.entry_ttl());
        add_plus(&mut reply, entry, &file_attr(attr), attr, &ttl)
    });
    match filled.await {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(errno(&error)),
    }
}

fn add_plus(
    reply: &mut ReplyDirectoryPlus,
    entry: &DirEntry,
    file: &FileAttr,
    attr: &Attr,
    ttl: &std::time::Duration,
) -> bool {
    let (name, generation) = (OsStr::from_bytes(&entry.name), Generation(attr.id.generation));
    reply.add(INodeNo(entry.ino.0), entry.cookie, name, ttl, file, generation)
}

/// Hands entries from `offset` on to `add` until it says that the buffer is full or the directory ends.
async fn fill(
    session: &Session,
    cred: &Cred,
    (dir, handle): (Ino, u64),
    offset: u64,
    step: usize,
    with_attrs: bool,
    mut add: impl FnMut(&DirEntry) -> bool,
) -> FsResult<()> {
    if offset < AFTER_DOT && add(&dot(session, dir, dir, b".", AFTER_DOT).await?) {
        return Ok(());
    }
    if offset < AFTER_DOTDOT {
        let parent = match session.files.parent(dir).await {
            Ok(parent) => parent,
            // A removed directory that is still open has no parent and lists as empty.
            Err(FsError::NotFound | FsError::Stale) => dir,
            Err(error) => return Err(error),
        };
        if add(&dot(session, dir, parent, b"..", AFTER_DOTDOT).await?) {
            return Ok(());
        }
    }
    let mut cookie = if offset <= AFTER_DOTDOT { 0 } else { offset };
    let mut end = if offset == 0 { u64::MAX } else { session.handles.list_end(handle) };
    loop {
        let removals = session.kernel_inodes.removals();
        let listing = match session.files.readdir_before(cred, dir, cookie, end, step, with_attrs).await {
            Ok(listing) => listing,
            Err(FsError::NotFound | FsError::Stale) => return Ok(()),
            Err(error) => return Err(error),
        };
        let Listing { mut entries, eof, end: begun_at, .. } = listing;
        if offset == 0 && end == u64::MAX {
            session.handles.set_list_end(handle, begun_at);
            end = begun_at;
        }
        entries.iter_mut().for_each(|entry| session.past.list(dir, entry));
        if with_attrs {
            learn(session, cred, dir, &mut entries, removals).await;
        }
        if let Some(first_left) = entries.iter().position(&mut add) {
            if with_attrs {
                let left = entries[first_left..].iter().filter(|entry| entry.attr.is_some());
                left.for_each(|entry| session.kernel_inodes.forget(entry.ino.0, 1));
            }
            return Ok(());
        }
        match entries.last() {
            Some(last) if !eof => cookie = last.cookie,
            _ => return Ok(()),
        }
    }
}

/// Enters what the kernel will know when the answer is out (`kernel.alive_when_learned`). It takes no reference by `.` and
/// `..`, which are not among `entries`.
async fn learn(session: &Session, cred: &Cred, dir: Ino, entries: &mut [DirEntry], removals: u64) {
    for entry in entries.iter_mut().filter(|entry| entry.attr.is_some()) {
        session.kernel_inodes.learn(entry.ino);
        if !session.is_alive_since(removals, entry.ino).await {
            session.kernel_inodes.forget(entry.ino.0, 1);
            entry.attr = session.look_up(cred, dir, &entry.name).await.ok();
            (entry.ino, entry.kind) = entry.attr.map_or((entry.ino, entry.kind), |attr| (attr.id.ino, attr.kind));
        }
    }
}

async fn dot(session: &Session, dir: Ino, ino: Ino, name: &'static [u8], cookie: u64) -> FsResult<DirEntry> {
    let attr = match session.files.getattr(ino).await {
        Ok(attr) => attr,
        Err(_) => session.files.getattr(dir).await?,
    };
    Ok(DirEntry { cookie, name: Bytes::from_static(name), ino, kind: FileKind::Directory, attr: Some(attr) })
}
