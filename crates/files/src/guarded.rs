//! What changes tell the guard of their share, before and after ([`crate::guard`]).
//!
//! - `guard.cheap_calls`: reads, and writes beyond the first [`JUDGED_BYTES`] of a file, cost nothing. A write there costs the look
//!   at a kilobyte; a creation, removal or truncation an entry in a table.

use std::sync::Arc;

use bytes::Bytes;
use larder_base::boxed;
use larder_fs::{Cred, FileKind, FsError, FsResult, Ino, NameMatch};

use crate::Files;
use crate::facts::{Act, Change, Duty, Name, Outcome, does};
use crate::guard::sample::{Look, SAMPLE_BYTES, look_at};
use crate::guard::{Guard, GuardMode};
use crate::tree::Tree;

/// Ransomware begins at the beginning of a file, and later bytes of compressed files have no form anyway.
const JUDGED_BYTES: u64 = 64 << 10;

/// What was there before a change, as far as somebody looked.
pub(crate) enum Seen {
    Nothing,
    /// The content of a file that is emptied or removed.
    Old(Look),
    /// What formless bytes go over, and the size of the file that shares them.
    Below {
        old: Option<Look>,
        size: Option<u64>,
    },
    /// A folder that is removed, or a formless file that takes the name of one with a form.
    Inode(Ino),
}

impl Files {
    /// The same door, whose clients `guard` watches.
    pub fn guarded(&self, guard: Arc<Guard>) -> Files {
        Files { guard: Some(guard), ..self.clone() }
    }

    /// [`FsError::Access`] for a client that its guard has blocked (`guard.one_client`).
    pub fn check_unblocked(&self, cred: &Cred) -> FsResult<()> {
        let Some(guard) = &self.guard else { return Ok(()) };
        does(Duty::Block);
        if guard.is_blocked(cred) { Err(FsError::Access) } else { Ok(()) }
    }
}

/// The look of data that is written at `offset`. `None`: it needs no judging
/// (`guard.cheap_calls`).
pub(crate) fn sample(files: &Files, offset: u64, data: &[Bytes]) -> Option<Look> {
    let guard = files.guard.as_ref().filter(|guard| offset < JUDGED_BYTES && !guard.is(GuardMode::Off));
    guard.map(|_| look_at(data, offset))
}

/// Looks at what a change is about to lose, if its client has become suspicious
/// (`guard.cheap_until_suspicious`).
pub(crate) async fn before(files: &Files, change: &Change<'_>) -> Seen {
    let Some(guard) = files.guard.as_ref().filter(|guard| !guard.is(GuardMode::Off)) else { return Seen::Nothing };
    let (tree, cred, entries) = (&files.tree, change.cred, &change.entries);
    match change.act {
        Act::Write { ino, offset, look: Some(Look::Formless | Look::Empty), .. } => {
            let old = if guard.may_read(cred) { Some(look_at_file(tree, ino, offset).await) } else { None };
            Seen::Below { old, size: None }
        }
        Act::Share { source, target, .. } if target.1 < JUDGED_BYTES => {
            look_at_share(tree, guard, cred, source, target).await
        }
        Act::Attributes { ino, size: Some(0), .. } if guard.may_read(cred) => {
            Seen::Old(look_at_file(tree, ino, 0).await)
        }
        Act::Create { size: Some(0) } | Act::Unlink if guard.may_read(cred) => {
            look_at_entry(tree, &entries[0]).await.map_or(Seen::Nothing, |(_, old)| Seen::Old(old))
        }
        Act::Rmdir if guard.count(cred, |record| record.is_suspicious()) == Some(true) => {
            look_at_folder(tree, &entries[0]).await
        }
        Act::Relink { ino, .. } if guard.may_read(cred) => {
            look_at_names(tree, Some(ino), &entries[0], &entries[0]).await
        }
        Act::Rename if guard.may_read(cred) => look_at_names(tree, None, &entries[0], &entries[1]).await,
        // Bytes that go over none, or that have a form (`guard.loss_counts`); and clients that are
        // not suspicious.
        Act::Write { .. } | Act::Append { .. } | Act::Allocate { .. } | Act::Share { .. } => Seen::Nothing,
        Act::Attributes { .. } | Act::Create { .. } | Act::Unlink | Act::Rmdir => Seen::Nothing,
        Act::Relink { .. } | Act::Rename => Seen::Nothing,
        // Nothing is lost by a new name.
        Act::Unnamed | Act::Make | Act::Link { .. } => Seen::Nothing,
    }
}

/// Counts what a change that was made has lost.
pub(crate) fn after(files: &Files, change: &Change<'_>, seen: &Seen, done: &dyn Outcome) {
    let Some(guard) = &files.guard else { return };
    let (cred, dir) = (change.cred, change.entries[0].0);
    let (made, size_before) = (done.attr(), done.size_before());
    let old = if let Seen::Old(look) = seen { Some(*look) } else { None };
    let counted = match (change.act, seen) {
        // Zeros are a loss over a form alone.
        (Act::Write { look: Some(Look::Empty), .. }, Seen::Below { old, .. }) if *old != Some(Look::Formed) => None,
        (Act::Write { ino, offset, .. }, Seen::Below { old, .. }) => {
            let existed = size_before.is_some_and(|size| size > offset);
            guard.count(cred, |record| record.wrote_formless(ino, existed, *old))
        }
        (Act::Share { target: (ino, offset), .. }, Seen::Below { old, size }) if done.is_new() => {
            let existed = size_before.or(*size).is_some_and(|size| size > offset);
            guard.count(cred, |record| record.wrote_formless(ino, existed, *old))
        }
        (Act::Attributes { ino, size: Some(0), .. }, _) if size_before.is_some_and(|size| size > 0) => {
            guard.count(cred, |record| record.emptied(ino, old))
        }
        (Act::Create { .. } | Act::Unnamed, _) if done.is_new() => {
            made.and_then(|made| guard.count(cred, |record| record.created(made.id.ino, dir)))
        }
        (Act::Create { size: Some(0) }, _) => {
            made.and_then(|made| guard.count(cred, |record| record.emptied(made.id.ino, old)))
        }
        (Act::Unlink, _) => {
            let is_lost = |nlink| nlink == 0 || files.bin.is_some();
            let lost = made.filter(|made| made.kind == FileKind::File && made.size > 0 && is_lost(made.nlink));
            lost.and_then(|_| guard.count(cred, |record| record.removed(dir, old)))
        }
        (Act::Rmdir, Seen::Inode(folder)) => guard.count(cred, |record| record.folder_removed(*folder)),
        (Act::Relink { .. } | Act::Rename, Seen::Inode(by)) => guard.count(cred, |record| record.replaced(*by)),
        _ => None,
    };
    if counted.is_some() {
        does(Duty::Guard);
    }
}

/// A range that becomes that of another file.
#[boxed]
async fn look_at_share(tree: &Tree, guard: &Guard, cred: &Cred, source: (Ino, u64), target: (Ino, u64)) -> Seen {
    if look_at_file(tree, source.0, source.1).await != Look::Formless {
        return Seen::Nothing;
    }
    let old = if guard.may_read(cred) { Some(look_at_file(tree, target.0, target.1).await) } else { None };
    Seen::Below { old, size: tree.getattr(target.0).await.ok().map(|attr| attr.size) }
}

/// The file `ino`, or that of `from`, takes the name `to`.
#[boxed]
async fn look_at_names(tree: &Tree, ino: Option<Ino>, from: &(Ino, Name<'_>), to: &(Ino, Name<'_>)) -> Seen {
    let Some((_, Look::Formed)) = look_at_entry(tree, to).await else { return Seen::Nothing };
    let new = match ino {
        Some(ino) => Some((ino, look_at_file(tree, ino, 0).await)),
        None => look_at_entry(tree, from).await,
    };
    if let Some((by, Look::Formless)) = new { Seen::Inode(by) } else { Seen::Nothing }
}

#[boxed]
async fn look_at_folder(tree: &Tree, (dir, name): &(Ino, Name<'_>)) -> Seen {
    does(Duty::Guard);
    let found = tree.lookup(&Cred::root(), *dir, name, NameMatch::Exact).await;
    found.map_or(Seen::Nothing, |attr| Seen::Inode(attr.id.ino))
}

#[boxed]
async fn look_at_entry(tree: &Tree, (dir, name): &(Ino, Name<'_>)) -> Option<(Ino, Look)> {
    let attr = tree.lookup(&Cred::root(), *dir, name, NameMatch::Exact).await.ok()?;
    if attr.kind != FileKind::File {
        return None;
    }
    Some((attr.id.ino, look_at_file(tree, attr.id.ino, 0).await))
}

#[boxed]
async fn look_at_file(tree: &Tree, ino: Ino, offset: u64) -> Look {
    does(Duty::Guard);
    match tree.read(ino, offset, SAMPLE_BYTES).await {
        Ok(data) => look_at(&data.chunks, offset),
        Err(_) => Look::Unclear,
    }
}
