//! `.snapshots` at the top of a mount that lists it (`-o snapshots`).
//!
//! - `past.listed_as_a_link`: it is listed as a symbolic link, to a name beside it that no listing has. All of a mount has one
//!   device number, and a kernel takes mount points within it from virtiofs alone. So `du -x`, `find -xdev` and `rsync -x` would
//!   walk through every snapshot, but they do not follow links. A program that opens the link is in the directory of snapshots.

use larder_files::Files;
use larder_fs::{Attr, Cred, DirEntry, FileId, FileKind, FsResult, Ino, NameMatch, SNAPSHOTS_NAME};

/// In the range of directories of snapshots, of a directory that no volume has.
pub(super) const LINK: Ino = Ino(u64::MAX);
/// The name that the link leads to.
pub(super) const TARGET: &[u8] = b".snapshots.all";

/// The directory that lists `.snapshots`, if any does.
pub(super) struct Past(Option<Ino>);

impl Past {
    pub(super) fn listed_in(top: Option<Ino>) -> Self {
        Self(top)
    }

    /// The name by which the volume knows what the kernel asks for.
    pub(super) fn name_in_volume<'n>(&self, dir: Ino, name: &'n [u8]) -> &'n [u8] {
        if self.0 == Some(dir) && name == TARGET { SNAPSHOTS_NAME } else { name }
    }

    /// What the kernel sees under `name`, where the volume has found `attr`.
    pub(super) fn as_seen(&self, dir: Ino, name: &[u8], attr: Attr) -> Attr {
        let is_it = self.0 == Some(dir) && name == SNAPSHOTS_NAME && attr.id.ino.is_past();
        if is_it { link_like(attr) } else { attr }
    }

    /// Makes the entry of a listing what [`Past::as_seen`] says.
    pub(super) fn list(&self, dir: Ino, entry: &mut DirEntry) {
        if self.0 == Some(dir) && entry.name == SNAPSHOTS_NAME && entry.ino.is_past() {
            (entry.ino, entry.kind, entry.attr) = (LINK, FileKind::Symlink, entry.attr.map(link_like));
        }
    }
}

/// The attributes of [`LINK`] in `top`.
pub(super) async fn link(files: &Files, top: Ino) -> FsResult<Attr> {
    files.lookup(&Cred::root(), top, SNAPSHOTS_NAME, NameMatch::Exact).await.map(link_like)
}

/// The link has the times and the owner of the directory of snapshots.
fn link_like(attr: Attr) -> Attr {
    let id = FileId { ino: LINK, generation: attr.id.generation };
    Attr { id, kind: FileKind::Symlink, mode: 0o777, nlink: 1, size: TARGET.len() as u64, allocated: 0, ..attr }
}
