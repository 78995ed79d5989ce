//! A file or folder as it was in the snapshots of its volume.

use bytes::Bytes;
use larder_base::Timestamp;
use larder_fs::{Attr, FileKind, FsError, NameMatch};

use super::super::context::Answer;
use super::super::path::{join, name, parent};
use super::frame::{around_of, crumbs, tools};
use super::html::{Page, human, icon, shown, time, verbatim};
use super::visit::{SNAPSHOTS, Visit};
use larder_doors::tree::Room;

/// Snapshots that are looked at, the newest first.
const SNAPSHOTS_MAX: usize = 400;

struct Version {
    snapshot: String,
    taken: Timestamp,
    attr: Attr,
}

pub async fn page(visit: &Visit, room: &Room, attr: &Attr) -> Answer {
    let (versions, is_cut) = versions(visit, room, attr).await?;
    let what = shown(name(visit.path()));
    let is_folder = attr.kind == FileKind::Directory;
    let mut main = format!("<h1 class=\"title\">Versions of “<bdi>{what}</bdi>”</h1>");
    if versions.is_empty() {
        main.push_str("<p class=\"empty\">No snapshot has it. Snapshots are taken by schedules, or by somebody who cares for the box.</p>");
    } else {
        main.push_str(
            "<p class=\"dim\">As it was when each snapshot was taken. Versions that are the same are shown once.</p>\
             <table class=\"files versions\"><thead><tr><th scope=\"col\" class=\"name\">Snapshot of</th><th scope=\"col\" class=\"size\">Size</th>\
             <th scope=\"col\" class=\"time\">Changed</th><th scope=\"col\"><span class=\"hidden\">Actions</span></th></tr></thead><tbody>",
        );
        versions.iter().for_each(|version| push(&mut main, visit, room, version));
        main.push_str("</tbody></table>");
    }
    if is_cut {
        main.push_str(&format!("<p class=\"dim\">Only the newest {SNAPSHOTS_MAX} snapshots were looked at. The others are in the folder .snapshots.</p>"));
    }
    let back = visit.href(visit.path(), is_folder);
    let query = if is_folder { "" } else { "?view" };
    main.push_str(&format!("<p><a class=\"button\" href=\"{back}{query}\">{} Back</a></p>", icon("back")));
    let page = Page {
        title: format!("Versions of {}", String::from_utf8_lossy(name(visit.path()))),
        head: crumbs(visit),
        tools: tools(visit),
        around: around_of(visit),
        main,
        csrf: visit.csrf(),
        class: "past",
        ..Page::default()
    };
    Ok(page.respond(visit.is_head()))
}

fn push(out: &mut String, visit: &Visit, room: &Room, version: &Version) {
    let is_folder = version.attr.kind == FileKind::Directory;
    let path = path_of(visit.path(), &version.snapshot);
    let url = visit.href(&path, is_folder);
    let (query, take) = if is_folder { ("", "?zip") } else { ("?view", "?download") };
    let mut actions = format!("<a class=\"button\" href=\"{url}{take}\">{} <span>Download</span></a>", icon("down"));
    if visit.may_change(Some(room)) {
        actions.push_str(&format!(
            "<button class=\"button js restore\" hidden data-from=\"{url}\" data-to=\"{}\" data-name=\"{}\" data-taken=\"{}\">Restore</button>",
            visit.href(visit.path(), is_folder),
            verbatim(name(visit.path())),
            version.taken.secs
        ));
    }
    let size = if is_folder { String::new() } else { human(version.attr.size) };
    out.push_str(&format!(
        "<tr><td class=\"name\"><a href=\"{url}{query}\">{}<span class=\"label\">{}</span></a><span class=\"below dim\">{size}</span></td>\
         <td class=\"size\">{size}</td><td class=\"time\">{}</td><td class=\"acts\">{actions}</td></tr>\n",
        icon("clock"),
        time(version.taken),
        time(version.attr.mtime)
    ));
}

/// `a/b` as it was: `a/.snapshots/NAME/b`.
fn path_of(path: &Bytes, snapshot: &str) -> Bytes {
    let at = join(&join(&parent(path), SNAPSHOTS), snapshot.as_bytes());
    join(&at, name(path))
}

/// What had this name in each snapshot, the newest first, each state once; and whether there are more snapshots.
async fn versions(visit: &Visit, room: &Room, now: &Attr) -> Result<(Vec<Version>, bool), super::super::fail::Fail> {
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
        Ok(larder_doors::tree::Spot::In(_, attr)) => attr,
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
