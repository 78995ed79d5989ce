//! A request of a browser for something stored: by its user, or by a link.
//!
//! - `visit.links_stay_below`: by a link nothing is reached but what is below it. Symbolic links
//!   below it are not followed, and there are no snapshots.

use std::sync::Arc;

use bytes::Bytes;
use hyper::Method;
use larder_dav::browsers::{Context, Fail, href, is_within, name, parent};
use larder_doors::tree::{Room, Spot};
use larder_fs::{Attr, FileKind, NameMatch};

use super::state::Files;
use super::viewer::{SHARES, Viewer};
use crate::form::Form;

/// The name under which each directory shows its past.
pub const SNAPSHOTS: &[u8] = b".snapshots";

pub struct FileVisit {
    pub files: Arc<Files>,
    pub context: Context,
    pub query: Form,
    /// The user, as the pages know the user.
    pub viewer: Viewer,
    pub link: Option<OfLink>,
}

/// By which link somebody comes.
pub struct OfLink {
    /// The path of the link's page, without a slash at its end.
    pub prefix: String,
    /// What it leads to.
    pub base: Bytes,
}

impl FileVisit {
    pub fn path(&self) -> &Bytes {
        &self.context.place.path
    }

    pub fn is_head(&self) -> bool {
        self.context.method == Method::HEAD
    }

    /// The URL of a path, as this visitor reaches it.
    pub fn href(&self, path: &[u8], is_folder: bool) -> String {
        let Some(link) = &self.link else {
            // A browser that asks for `/` alone may be the page's.
            let is_shared = path.is_empty() && self.files.page().is_some();
            return if is_shared { SHARES.to_owned() } else { href(path, is_folder) };
        };
        let below = path.strip_prefix(&link.base[..]).unwrap_or_default();
        let below = href(below.strip_prefix(b"/").unwrap_or(below), is_folder);
        // What the link itself leads to has no slash of its own, so that the pages' relative URLs
        // hold.
        if below == "/" && !is_folder { link.prefix.clone() } else { format!("{}{below}", link.prefix) }
    }

    pub async fn find(&self) -> Result<Spot, Fail> {
        let Some(link) = &self.link else { return Ok(self.context.view.find(self.path(), true).await?) };
        if !is_within(self.path(), &link.base) {
            return Err(Fail::not_found());
        }
        let mut at = self.context.view.find(&link.base, true).await?;
        let below = self.path().get(link.base.len()..).unwrap_or_default();
        for name in below.split(|&byte| byte == b'/').filter(|name| !name.is_empty()) {
            let Spot::In(room, dir) = at else { return Err(Fail::not_found()) };
            if name == SNAPSHOTS {
                return Err(Fail::not_found());
            }
            let next = room.files().lookup(&room.cred, dir.id.ino, name, NameMatch::Exact).await?;
            at = match next.kind {
                FileKind::File | FileKind::Directory => Spot::In(room, next),
                _ => return Err(Fail::not_found()),
            };
        }
        Ok(at)
    }

    /// What an entry of a folder is for this visitor; `None` if nothing that can be used.
    pub async fn entry(&self, room: &Room, attr: &Attr, path: &Bytes) -> Option<(Room, Attr)> {
        if self.link.is_some() && attr.kind == FileKind::Symlink {
            return None;
        }
        match self.context.resolved(room, attr, path).await? {
            Spot::In(room, attr) => Some((room, attr)),
            Spot::Top => None,
        }
    }

    pub fn is_in_the_past(&self) -> bool {
        self.path().split(|&byte| byte == b'/').any(|name| name == SNAPSHOTS)
    }

    /// Whether something may be changed here, as far as that is known beforehand.
    pub fn may_change(&self, at: Option<&Room>) -> bool {
        self.link.is_none() && at.is_some_and(|room| room.may_write) && !self.is_in_the_past()
    }

    /// The path at the top of this visitor's crumbs.
    pub fn top(&self) -> Bytes {
        self.link.as_ref().map(|link| link.base.clone()).unwrap_or_default()
    }

    /// The folders from the top to `path`, itself included.
    pub fn trail(&self, path: &Bytes) -> Vec<Bytes> {
        let (top, mut at, mut trail) = (self.top(), path.clone(), Vec::new());
        while at != top && !at.is_empty() {
            trail.push(at.clone());
            at = parent(&at);
        }
        trail.reverse();
        trail
    }

    pub fn top_name(&self) -> Bytes {
        match &self.link {
            Some(link) => link.base.slice_ref(name(&link.base)),
            None => Bytes::from_static(b"Shares"),
        }
    }
}
