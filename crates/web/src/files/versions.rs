//! A file or folder as it was in the snapshots of its volume.

use askama::Template;
use bytes::Bytes;
use hyper::StatusCode;
use larder_base::Timestamp;
use larder_dav::browsers::{Answer, Fail, join, name, parent};
use larder_doors::tree::{Room, Spot};
use larder_fs::{Attr, FileKind, FsError, NameMatch};

use super::shelf::{Shelf, human, respond};
use super::visit::{FileVisit, SNAPSHOTS};
use crate::text::Moment;
use crate::visit::Frame;

/// Snapshots that are looked at, the newest first.
const SNAPSHOTS_MAX: usize = 400;

struct Version {
    snapshot: String,
    taken: Timestamp,
    attr: Attr,
}

/// A version as the page shows it.
struct VersionView {
    href: String,
    take_href: String,
    /// The address without a query, from which it is restored.
    from: String,
    taken: Moment,
    taken_secs: i64,
    size: String,
    changed: Moment,
}

impl VersionView {
    fn of(visit: &FileVisit, version: &Version) -> Self {
        let is_folder = version.attr.kind == FileKind::Directory;
        let from = visit.href(&path_of(visit.path(), &version.snapshot), is_folder);
        let (query, take) = if is_folder { ("", "?zip") } else { ("?view", "?download") };
        Self {
            href: format!("{from}{query}"),
            take_href: format!("{from}{take}"),
            from,
            taken: Moment::of_stamp(version.taken),
            taken_secs: version.taken.secs,
            size: if is_folder { String::new() } else { human(version.attr.size) },
            changed: Moment::of_stamp(version.attr.mtime),
        }
    }
}

#[derive(Template)]
#[template(path = "files/versions.html")]
struct VersionsPage {
    frame: Frame,
    shelf: Shelf,
    name: String,
    versions: Vec<VersionView>,
    /// The snapshots that were looked at, where there are more.
    cut: Option<usize>,
    may_change: bool,
    /// The address that a version is restored to.
    to: String,
    back_href: String,
}

pub async fn page(visit: &FileVisit, room: &Room, attr: &Attr) -> Answer {
    let (versions, is_cut) = versions(visit, room, attr).await?;
    let what = String::from_utf8_lossy(name(visit.path())).into_owned();
    let is_folder = attr.kind == FileKind::Directory;
    let to = visit.href(visit.path(), is_folder);
    let page = VersionsPage {
        frame: visit.viewer.frame(&format!("Versions of {what}")),
        shelf: Shelf::of(visit, "past"),
        name: what,
        versions: versions.iter().map(|version| VersionView::of(visit, version)).collect(),
        cut: is_cut.then_some(SNAPSHOTS_MAX),
        may_change: visit.may_change(Some(room)),
        back_href: format!("{to}{}", if is_folder { "" } else { "?view" }),
        to,
    };
    respond(StatusCode::OK, &page, &page.frame.nonce, visit.is_head())
}

/// `a/b` as it was: `a/.snapshots/NAME/b`.
fn path_of(path: &Bytes, snapshot: &str) -> Bytes {
    let at = join(&join(&parent(path), SNAPSHOTS), snapshot.as_bytes());
    join(&at, name(path))
}

/// What had this name in each snapshot, the newest first, each state once; and whether there are
/// more snapshots.
async fn versions(visit: &FileVisit, room: &Room, now: &Attr) -> Result<(Vec<Version>, bool), Fail> {
    let mut snapshots = room.files().snapshots();
    snapshots.reverse();
    let is_cut = snapshots.len() > SNAPSHOTS_MAX;
    let parent = parent(visit.path());
    let mut found: Vec<Version> = Vec::new();
    if parent.is_empty() {
        // The top of a share has a past of its own, and nothing beside it to be restored to.
        return Ok((found, false));
    }
    let past = match visit.context.view.find(&join(&parent, SNAPSHOTS), true).await {
        Ok(Spot::In(_, attr)) => attr,
        _ => return Ok((found, false)),
    };
    for snapshot in snapshots.into_iter().take(SNAPSHOTS_MAX) {
        let (files, cred) = (room.files(), &room.cred);
        let folder = match files.lookup(cred, past.id.ino, snapshot.name.as_bytes(), NameMatch::Exact).await {
            Ok(folder) => folder,
            // The folder was not there then, or was not the user's to read.
            Err(FsError::NotFound | FsError::Stale | FsError::Access) => continue,
            Err(error) => return Err(error.into()),
        };
        let attr = match files.lookup(cred, folder.id.ino, name(visit.path()), NameMatch::Exact).await {
            Ok(attr) if attr.kind == now.kind => attr,
            Ok(_) | Err(FsError::NotFound | FsError::Stale | FsError::Access | FsError::NotDirectory) => continue,
            Err(error) => return Err(error.into()),
        };
        let is_same = |version: &Version| {
            let state = |attr: &Attr| (attr.size, attr.mtime, attr.ctime, attr.change);
            state(&version.attr) == state(&attr)
        };
        // A folder's own state says nothing of what is below it.
        if now.kind == FileKind::Directory || !found.last().is_some_and(is_same) {
            found.push(Version { snapshot: snapshot.name, taken: snapshot.created, attr });
        }
    }
    Ok((found, is_cut))
}
