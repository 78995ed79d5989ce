//! What doors' calls tell the guard of their share, before and after ([`crate::guard`]).
//!
//! - `guard.cheap_calls`: reads, and writes beyond the first [`JUDGED_BYTES`] of a file, cost nothing. A write there costs the look
//!   at a kilobyte; a creation, removal or truncation an entry in a table.

use std::sync::Arc;

use bytes::Bytes;
use larder_base::boxed;
use larder_fs::{Attr, Cred, FileKind, FsError, FsResult, Ino, NameMatch};

use crate::Files;
use crate::guard::sample::{Look, SAMPLE_BYTES, look_at};
use crate::guard::{Guard, GuardMode};

/// Ransomware begins at the beginning of a file, and later bytes of compressed files have no form anyway.
const JUDGED_BYTES: u64 = 64 << 10;

/// A write that has to be judged: what is written, and what it is written over as far as somebody looked.
pub(crate) struct FormlessWrite {
    offset: u64,
    empty: bool,
    old: Option<Look>,
}

/// A file that is about to take another one's name.
#[derive(Clone, Copy)]
pub(crate) enum Successor<'n> {
    Name(Ino, &'n [u8]),
    File(Ino),
}

impl Files {
    /// The same door, whose clients `guard` watches.
    pub fn guarded(&self, guard: Arc<Guard>) -> Files {
        Files { guard: Some(guard), ..self.clone() }
    }

    /// [`FsError::Access`] for a client that its guard has blocked (`guard.one_client`).
    pub fn check_unblocked(&self, cred: &Cred) -> FsResult<()> {
        match &self.guard {
            Some(guard) if guard.is_blocked(cred) => Err(FsError::Access),
            _ => Ok(()),
        }
    }

    /// Before a write. `None`: it needs no judging (`guard.cheap_calls`).
    pub(crate) fn judged_write(&self, cred: &Cred, offset: u64, data: &[Bytes]) -> FsResult<Option<FormlessWrite>> {
        let Some(guard) = &self.guard else { return Ok(None) };
        if guard.is_blocked(cred) {
            return Err(FsError::Access);
        }
        if offset >= JUDGED_BYTES || guard.is(GuardMode::Off) {
            return Ok(None);
        }
        let look = look_at(data, offset);
        let is_judged = matches!(look, Look::Formless | Look::Empty);
        Ok(is_judged.then_some(FormlessWrite { offset, empty: look == Look::Empty, old: None }))
    }

    /// Looks what the write goes over, if its client has become suspicious.
    #[boxed]
    pub(crate) async fn look_below(&self, cred: &Cred, ino: Ino, write: &mut FormlessWrite) {
        if self.guard.as_ref().is_some_and(|guard| guard.may_read(cred)) {
            write.old = Some(self.look_at_file(ino, write.offset).await);
        }
    }

    /// Before bytes of one file are shared with another. `None`: it needs no judging.
    pub(crate) async fn judged_share(
        &self,
        cred: &Cred,
        source: (Ino, u64),
        target: (Ino, u64),
    ) -> FsResult<Option<FormlessWrite>> {
        let Some(guard) = &self.guard else { return Ok(None) };
        self.check_unblocked(cred)?;
        if target.1 >= JUDGED_BYTES || guard.is(GuardMode::Off) {
            return Ok(None);
        }
        let is_formless = Box::pin(self.look_at_file(source.0, source.1)).await == Look::Formless;
        let mut write = FormlessWrite { offset: target.1, empty: false, old: None };
        if is_formless {
            Box::pin(self.look_below(cred, target.0, &mut write)).await;
        }
        Ok(is_formless.then_some(write))
    }

    /// After it.
    pub(crate) fn wrote_formless(&self, cred: &Cred, ino: Ino, write: &FormlessWrite, size_before: u64) {
        // Zeros are a loss over a form alone.
        if write.empty && write.old != Some(Look::Formed) {
            return;
        }
        if let Some(guard) = &self.guard {
            let existed = size_before > write.offset;
            guard.count(cred, |record| record.wrote_formless(ino, existed, write.old));
        }
    }

    /// Before a file is emptied: what it is, if its client has become suspicious.
    pub(crate) async fn look_before_emptied(&self, cred: &Cred, ino: Ino) -> Option<Look> {
        let guard = self.guard.as_ref()?;
        if !guard.may_read(cred) {
            return None;
        }
        Some(Box::pin(self.look_at_file(ino, 0)).await)
    }

    pub(crate) fn emptied(&self, cred: &Cred, ino: Ino, old: Option<Look>) {
        if let Some(guard) = &self.guard {
            guard.count(cred, |record| record.emptied(ino, old));
        }
    }

    pub(crate) fn made(&self, cred: &Cred, dir: Ino, made: &Attr) {
        if let Some(guard) = &self.guard {
            guard.count(cred, |record| record.created(made.id.ino, dir));
        }
    }

    /// Before a name is removed: what its file is, if its client has become suspicious.
    pub(crate) async fn look_before_removed(&self, cred: &Cred, dir: Ino, name: &[u8]) -> Option<Look> {
        let guard = self.guard.as_ref()?;
        if !guard.may_read(cred) {
            return None;
        }
        Some(Box::pin(self.look_at_name(dir, name)).await?.1)
    }

    /// `attr`: afterwards.
    pub(crate) fn removed(&self, cred: &Cred, dir: Ino, old: Option<Look>, attr: &Attr) {
        let is_loss = attr.kind == FileKind::File && attr.size > 0 && (attr.nlink == 0 || self.bin.is_some());
        if let Some(guard) = self.guard.as_ref().filter(|_| is_loss) {
            guard.count(cred, |record| record.removed(dir, old));
        }
    }

    /// Before a folder is removed: its inode, if its client has become suspicious.
    pub(crate) async fn folder_to_remove(&self, cred: &Cred, dir: Ino, name: &[u8]) -> Option<Ino> {
        let guard = self.guard.as_ref()?;
        if !guard.count(cred, |record| record.is_suspicious()).unwrap_or(false) {
            return None;
        }
        let found = Box::pin(self.tree.lookup(&Cred::root(), dir, name, NameMatch::Exact)).await;
        found.ok().map(|attr| attr.id.ino)
    }

    pub(crate) fn folder_removed(&self, cred: &Cred, folder: Option<Ino>) {
        if let (Some(guard), Some(folder)) = (&self.guard, folder) {
            guard.count(cred, |record| record.folder_removed(folder));
        }
    }

    /// Before a rename: the file that takes a name from one with a form, having none itself.
    pub(crate) async fn formless_successor(
        &self,
        cred: &Cred,
        successor: Successor<'_>,
        to: (Ino, &[u8]),
    ) -> Option<Ino> {
        let guard = self.guard.as_ref()?;
        if !guard.may_read(cred) {
            return None;
        }
        Box::pin(async {
            let (_, old) = self.look_at_name(to.0, to.1).await?;
            let (ino, new) = match successor {
                Successor::Name(dir, name) => self.look_at_name(dir, name).await?,
                Successor::File(ino) => (ino, self.look_at_file(ino, 0).await),
            };
            (old == Look::Formed && new == Look::Formless).then_some(ino)
        })
        .await
    }

    pub(crate) fn replaced(&self, cred: &Cred, by: Option<Ino>) {
        if let (Some(guard), Some(by)) = (&self.guard, by) {
            guard.count(cred, |record| record.replaced(by));
        }
    }

    async fn look_at_name(&self, dir: Ino, name: &[u8]) -> Option<(Ino, Look)> {
        let attr = self.tree.lookup(&Cred::root(), dir, name, NameMatch::Exact).await.ok()?;
        if attr.kind != FileKind::File {
            return None;
        }
        Some((attr.id.ino, self.look_at_file(attr.id.ino, 0).await))
    }

    async fn look_at_file(&self, ino: Ino, offset: u64) -> Look {
        match self.tree.read(ino, offset, SAMPLE_BYTES).await {
            Ok(data) => look_at(&data.chunks, offset),
            Err(_) => Look::Unclear,
        }
    }
}
