//! From a path to a file: the shares of a user side by side at the top, and below them their files.
//!
//! - `tree.user_decides`: each name is looked up with the credentials of the user, in shares that list
//!   the user. A share that does not is not there.
//! - `tree.links_stay_within`: the server follows symbolic links ([`crate::steps`]), and `..` in one stops at the share's top.
//! - `tree.names_are_always_there`: a name that another client replaces leads to the old file or to the new one. What was
//!   looked up and is gone before it is used is looked up again, [`LOOKS_MAX`] times.

use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use larder_base::boxed;
use larder_files::Files;
use larder_fs::{ACCESS_EXECUTE, Attr, Cred, FileKind, FsError, Ino, NameMatch};
use larder_people::{Door, Entrance, User, Who};

use crate::share::ServedShare;
use crate::steps::{LostWay, STEPS_MAX, Steps};

/// The longest path, as Linux has it.
const PATH_BYTES_MAX: usize = 4096;
/// More than this, and a request fails: each look but the first follows a replacement of what the one before had found.
pub const LOOKS_MAX: usize = 64;

/// A share that is offered, until it is taken away or changed.
pub struct ShareState {
    /// The share, and the service that it is a part of.
    pub served: ServedShare,
    /// As this door, its answers durable.
    pub files: Files,
    /// As this door, its answers ordered.
    pub ordered: Files,
}

/// The shares of `door` from now on. One that stays as it was keeps its state; the second list is of those that do not.
pub fn replace_shares(
    door: Door,
    old: &[Arc<ShareState>],
    new: Vec<ServedShare>,
) -> (Vec<Arc<ShareState>>, Vec<Arc<ShareState>>) {
    let is_same = |old: &ServedShare, new: &ServedShare| old.is_as_at(new, door) && old.share.lists_as(&new.share);
    let state = |served: ServedShare| match old.iter().find(|state| is_same(&state.served, &served)) {
        Some(state) => Arc::clone(state),
        None => Arc::new(ShareState { files: served.files.clone(), ordered: served.files.ordered(), served }),
    };
    let shares: Vec<Arc<ShareState>> = new.into_iter().map(state).collect();
    let gone = old.iter().filter(|state| !shares.iter().any(|kept| Arc::ptr_eq(kept, state))).cloned().collect();
    (shares, gone)
}

/// A share as one user sees it.
#[derive(Clone)]
pub struct Room {
    /// The share.
    pub state: Arc<ShareState>,
    /// Whom the volume takes the user for.
    pub cred: Cred,
    /// Whether the share lets the user change anything.
    pub may_write: bool,
}

impl Room {
    fn of(state: &Arc<ShareState>, user: &User, address: IpAddr, door: Door) -> Option<Room> {
        let Entrance { rights, .. } = state.served.share.entrance(Who::User(user), Some(address), door);
        let rights = rights?;
        let cred = rights.cred_of(Some(user)).of_client(Some(address), Some(&user.name));
        Some(Room { state: Arc::clone(state), cred, may_write: rights.may_write })
    }

    /// The share's name.
    pub fn name(&self) -> &str {
        &self.state.served.share.name
    }

    /// The service of the share, its answers durable.
    pub fn files(&self) -> &Files {
        &self.state.files
    }

    /// The service for a change.
    pub fn to_change(&self) -> Result<&Files, NoWay> {
        self.writable().map(|()| &self.state.files)
    }

    /// The service for a change that may be lost in a crash with everything after it.
    pub fn to_change_ordered(&self) -> Result<&Files, NoWay> {
        self.writable().map(|()| &self.state.ordered)
    }

    fn writable(&self) -> Result<(), NoWay> {
        match self.may_write {
            true => Ok(()),
            false => Err(NoWay::ReadOnly),
        }
    }

    /// The directory that the share shows.
    pub fn root(&self) -> Ino {
        self.state.served.root
    }
}

/// Why a path leads nowhere, or to nothing that may be changed.
#[derive(Clone, Debug)]
pub enum NoWay {
    /// Nothing is there, and why.
    NoSuchFile(&'static str),
    /// No path at all.
    BadPath(&'static str),
    /// The user may only read.
    ReadOnly,
    /// It names a share, or something beside the shares.
    Top,
    /// The volume refuses it.
    Volume(FsError),
}

impl NoWay {
    const fn none() -> Self {
        Self::NoSuchFile("no such file or directory")
    }
}

impl From<FsError> for NoWay {
    fn from(error: FsError) -> Self {
        Self::Volume(error)
    }
}

impl From<LostWay> for NoWay {
    fn from(lost: LostWay) -> Self {
        match lost {
            LostWay::TooLong => Self::NoSuchFile("the path is too long"),
            LostWay::Nowhere => Self::NoSuchFile("the symbolic link leads nowhere on the server"),
            LostWay::Volume(error) => Self::Volume(error),
        }
    }
}

/// What a path leads to.
#[derive(Clone)]
#[expect(clippy::large_enum_variant, reason = "one lives as long as a request; `Top` is the rare one")]
pub enum Spot {
    /// The directory of shares.
    Top,
    /// A file or directory of a share.
    In(Room, Attr),
}

/// A name in a directory, which may exist or not.
pub struct Entry {
    /// The share.
    pub room: Room,
    /// The directory.
    pub dir: Ino,
    /// The name in it.
    pub name: Bytes,
}

/// Everything that one user may see.
#[derive(Clone)]
pub struct View {
    /// The user.
    pub user: Arc<User>,
    /// Where the user is.
    pub address: IpAddr,
    /// By which door.
    pub door: Door,
    /// All shares of the door.
    pub shares: Arc<Vec<Arc<ShareState>>>,
}

fn check(path: &Bytes) -> Result<(), NoWay> {
    if path.len() > PATH_BYTES_MAX {
        return Err(NoWay::BadPath("the path is too long"));
    }
    if path.contains(&0) { Err(NoWay::NoSuchFile("a name has a zero byte")) } else { Ok(()) }
}

/// The path without `.`, `..` and doubled slashes, without slashes at its ends.
pub fn plain(path: &Bytes) -> Bytes {
    let mut names: Vec<&[u8]> = Vec::new();
    for name in path.split(|&byte| byte == b'/') {
        match name {
            b"" | b"." => {}
            b".." => drop(names.pop()),
            name => names.push(name),
        }
    }
    Bytes::from(names.join(&b'/'))
}

impl View {
    /// The shares that list the user, in the order of the configuration.
    pub fn rooms(&self) -> impl Iterator<Item = Room> {
        self.shares.iter().filter_map(|state| Room::of(state, &self.user, self.address, self.door))
    }

    fn room(&self, name: &[u8]) -> Result<Room, NoWay> {
        self.rooms().find(|room| room.name().as_bytes() == name).ok_or(NoWay::none())
    }

    /// What `path` leads to; a link at its end is followed if `follow`.
    #[boxed]
    pub async fn find(&self, path: &Bytes, follow: bool) -> Result<Spot, NoWay> {
        check(path)?;
        self.walk(Steps::of(path)?, follow || path.ends_with(b"/")).await
    }

    /// The walk begins again when a folder or link on the way was replaced (`tree.names_are_always_there`).
    async fn walk(&self, steps: Steps, follow: bool) -> Result<Spot, NoWay> {
        for _ in 1..LOOKS_MAX {
            match self.walk_once(steps.clone(), follow).await {
                Err(NoWay::Volume(FsError::Stale)) => {}
                found => return found,
            }
        }
        self.walk_once(steps, follow).await
    }

    async fn walk_once(&self, mut steps: Steps, follow: bool) -> Result<Spot, NoWay> {
        let mut at = Spot::Top;
        // The folders above, from the top of the share: climbing by inodes would cost each `..` the depth that it is at.
        let mut above: Vec<Attr> = Vec::new();
        while let Some(name) = steps.next().await {
            let (room, dir) = match at {
                Spot::Top if *name == *b".." => continue,
                Spot::Top => {
                    let room = self.room(&name)?;
                    let attr = room.files().getattr(room.root()).await?;
                    at = Spot::In(room, attr);
                    continue;
                }
                Spot::In(ref room, dir) => (room, dir),
            };
            if *name == *b".." {
                if dir.kind != FileKind::Directory {
                    return Err(NoWay::none());
                }
                room.files().access(&room.cred, dir.id.ino, ACCESS_EXECUTE).await?;
                at = match (above.pop(), steps.are_of_links()) {
                    (Some(above), _) => Spot::In(room.clone(), above),
                    (None, false) => Spot::Top,
                    // Nothing above the top of the share is reached by a link (`tree.links_stay_within`).
                    (None, true) => continue,
                };
                continue;
            }
            let next = room.files().lookup(&room.cred, dir.id.ino, &name, NameMatch::Exact).await?;
            if next.kind != FileKind::Symlink || (!follow && steps.are_over()) {
                if above.len() >= STEPS_MAX {
                    return Err(NoWay::NoSuchFile("the path is too long"));
                }
                above.push(dir);
                at = Spot::In(room.clone(), next);
                continue;
            }
            steps.follow(room.files(), next.id.ino).await?;
        }
        Ok(at)
    }

    /// The directory and the last name of `path`.
    #[boxed]
    pub async fn entry(&self, path: &Bytes) -> Result<Entry, NoWay> {
        check(path)?;
        let mut steps = Steps::of(path)?;
        let name = steps.take_last().filter(|name| **name != *b"..");
        let name = name.ok_or(NoWay::BadPath("the path ends in no name"))?;
        match self.walk(steps, true).await? {
            Spot::Top => Err(NoWay::Top),
            Spot::In(_, dir) if dir.kind != FileKind::Directory => Err(NoWay::none()),
            Spot::In(room, dir) => Ok(Entry { room, dir: dir.id.ino, name }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_paths_have_no_detours() {
        for (path, expected) in [
            ("", ""),
            (".", ""),
            ("/", ""),
            ("/../..", ""),
            ("a", "a"),
            ("//a//b/", "a/b"),
            ("/a/./b/../c", "a/c"),
            ("/a/...", "a/..."),
        ] {
            assert_eq!(plain(&Bytes::from_static(path.as_bytes())), expected, "{path}");
        }
    }
}
