//! Attributes, permissions, extended attributes.

use std::os::fd::AsFd;
use std::sync::Arc;

use larder_base::Timestamp;
use larder_fs::acl::{Acl, Rights};
use larder_fs::judge::{self, Guarded};
use larder_fs::posix_acl::{self, Expressed};
use larder_fs::{
    AccessMask, Attr, Changed, Cred, Event, FILE_BYTES_MAX, FileId, FileKind, FsError, FsResult, Grounds, Ino, PreAttr,
    SetAttr, SetTime, Wish,
};
use rustix::fs::{AtFlags, CWD, Gid, Mode, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, Uid, XattrFlags};
use rustix::io::Errno;

use crate::Folder;
use crate::host::{Node, bears_user, by_number, failed};
use crate::notify::Own;
use crate::numbers::is_stream;

const S_ISGID: u32 = 0o2000;
/// The list that a directory hands on.
pub(crate) const DEFAULT_LIST: &str = "system.posix_acl_default";
pub(crate) const LISTS: [&str; 2] = ["system.posix_acl_access", DEFAULT_LIST];

impl Folder {
    pub async fn getattr(&self, ino: Ino) -> FsResult<Attr> {
        self.run(move |folder| match is_stream(ino) {
            true => folder.host.stream_getattr(ino),
            false => Ok(folder.shown(&folder.host.node(ino)?)),
        })
        .await
    }

    pub async fn resolve(&self, id: FileId) -> FsResult<Attr> {
        self.run(move |folder| Ok(folder.host.resolve(id)?.attr)).await
    }

    pub async fn resolve_granted(&self, cred: &Cred, id: FileId) -> FsResult<(Attr, AccessMask)> {
        let cred = cred.clone();
        self.run(move |folder| {
            let node = folder.host.resolve(id)?;
            let object = folder.host.guarded(&node, &cred)?;
            Ok((object.attr, judge::granted(&object, &cred)))
        })
        .await
    }

    pub async fn access(&self, cred: &Cred, ino: Ino, mask: AccessMask) -> FsResult<Attr> {
        let cred = cred.clone();
        self.run(move |folder| {
            let node = folder.host.node(ino)?;
            judge::require(&folder.host.guarded(&node, &cred)?, &cred, mask)?;
            Ok(node.attr)
        })
        .await
    }

    pub async fn rights(&self, cred: &Cred, ino: Ino, parent: Option<Ino>) -> FsResult<Rights> {
        let cred = cred.clone();
        self.run(move |folder| {
            let host = &folder.host;
            let object = host.guarded(&host.node(ino)?, &cred)?;
            let parent = match parent {
                Some(parent) => Some(host.guarded(&host.node(parent)?, &cred)?),
                None => None,
            };
            Ok(judge::rights(&object, parent.as_ref(), &cred))
        })
        .await
    }

    pub async fn permits(&self, cred: &Cred, ino: Ino, parent: Option<Ino>, wish: Wish, by_bits: bool) -> FsResult<()> {
        let cred = cred.clone();
        self.run(move |folder| {
            let object = folder.judged(ino, by_bits)?;
            let parent = match parent {
                Some(parent) => Some(folder.judged(parent, by_bits)?),
                None => None,
            };
            judge::permitted(&object, parent.as_ref(), &cred, wish)
        })
        .await
    }

    pub async fn grounds(&self, cred: &Cred, ino: Ino, wish: Wish, by_bits: bool) -> FsResult<Grounds> {
        let cred = cred.clone();
        self.run(move |folder| Ok(judge::grounds_of(&folder.judged(ino, by_bits)?, &cred, wish))).await
    }

    fn judged(&self, ino: Ino, by_bits: bool) -> FsResult<Guarded> {
        let node = self.host.node(ino)?;
        if by_bits { Ok(Guarded { attr: node.attr, acl: None }) } else { self.host.with_list(&node, false) }
    }

    pub async fn acl(&self, ino: Ino) -> FsResult<(Attr, Option<Arc<Acl>>)> {
        self.run(move |folder| {
            let node = folder.host.node(ino)?;
            let Guarded { acl, .. } = folder.host.with_list(&node, true)?;
            Ok((folder.with_dos_of(&node), acl))
        })
        .await
    }

    /// Sets a list as the host can have it, mode bits and POSIX lists, or takes it away, so that the mode decides.
    /// [`FsError::NotSupported`] for a list that these cannot say (`express.never_more`).
    pub async fn set_acl(&self, cred: &Cred, ino: Ino, set: SetAttr, acl: Option<Acl>) -> FsResult<Changed> {
        let cred = cred.clone();
        self.run(move |folder| {
            let node = folder.host.node(ino)?;
            folder.host.admit()?;
            folder.check_set(&node, &cred, &SetAttr { size: None, mode: Some(node.attr.mode), ..set })?;
            let _own = folder.host.notices.own(&[Own::Changes(ino)]);
            let Some(acl) = acl else {
                put_lists(&node, [None, None])?;
                let set = SetAttr { size: None, guard_ctime: None, mode: set.mode.or(Some(node.attr.mode)), ..set };
                let set = like_unmarked(&node, set);
                return folder.set(&cred, node, set);
            };
            let before = PreAttr::of(&node.attr);
            let (uid, gid) = (set.uid.unwrap_or(node.attr.uid), set.gid.unwrap_or(node.attr.gid));
            let Expressed { permissions, access, default } =
                posix_acl::express(&acl, &Attr { uid, gid, ..node.attr }).ok_or(FsError::NotSupported)?;
            folder.own(&node, set.uid, set.gid)?;
            let mode = node.attr.mode & !0o777 | permissions;
            // The bits of the group are the mask of a list: neither list is under the other's.
            folder.chmod(&node, mode & !0o070)?;
            put_lists(&node, [access, default])?;
            let attr = folder.host.again(&node)?;
            let set = SetAttr { size: None, guard_ctime: None, mode: Some(mode), uid: None, gid: None, ..set };
            let done = folder.set(&Cred::root(), Node { attr, ..node }, set)?;
            Ok(Changed { before, ..done })
        })
        .await
    }

    pub async fn setattr(&self, cred: &Cred, ino: Ino, set: SetAttr) -> FsResult<Changed> {
        let cred = cred.clone();
        self.run(move |folder| {
            if is_stream(ino) {
                return folder.stream_setattr(ino, &set);
            }
            let node = folder.host.node(ino)?;
            folder.set_judged(&cred, node, set)
        })
        .await
    }

    /// Gives what was just made the list that its directory hands on. The kernel has given it one that is bounded by the mode,
    /// which means less here: clients have taken an umask off ([`posix_acl::inherited`]).
    pub(crate) fn inherit(&self, handed: Option<&[u8]>, made: &Node, mode: u32) -> FsResult<()> {
        let Some(handed) = handed.filter(|_| bears_user(made)) else { return Ok(()) };
        let list = posix_acl::inherited(handed, mode, made.is_dir());
        let list = list.ok_or_else(|| FsError::Io("the host's default list of the folder is damaged".into()))?;
        let [access, _] = LISTS;
        rustix::fs::setxattr(by_number(made.fd.as_fd()), access, &list, XattrFlags::empty()).map_err(failed)
    }

    pub(crate) fn set_judged(&self, cred: &Cred, node: Node, set: SetAttr) -> FsResult<Changed> {
        self.host.admit()?;
        self.check_set(&node, cred, &set)?;
        self.set(cred, node, set)
    }

    fn check_set(&self, node: &Node, cred: &Cred, set: &SetAttr) -> FsResult<()> {
        judge::may_set(&self.host.guarded(node, cred)?, cred, set)?;
        match set.guard_ctime {
            Some(guard) if guard != node.attr.ctime => Err(FsError::NotSync),
            _ => Ok(()),
        }
    }

    /// Carries out a change that was judged, and makes it durable.
    fn set(&self, cred: &Cred, node: Node, set: SetAttr) -> FsResult<Changed> {
        let before = node.attr;
        let own = self.host.notices.own(&[Own::Changes(node.ino())]);
        if let Some(size) = set.size {
            self.resize(cred, &node, size)?;
        }
        self.own(&node, set.uid, set.gid)?;
        if let Some(mode) = set.mode {
            let gid = set.gid.unwrap_or(before.gid);
            // The group must be one's own for setgid to be kept.
            let is_member = cred.checked || cred.uid == 0 || cred.in_group(gid);
            self.chmod(&node, if is_member { mode } else { mode & !S_ISGID })?;
        }
        let is_marked = self.set_dos(&node, set.dos, set.btime)?;
        set_times(&node, set.atime, set.mtime)?;
        drop(own);
        let is_change = is_marked
            || set.size.is_some()
            || set.mode.is_some()
            || set.uid.is_some()
            || set.gid.is_some()
            || set.atime.is_some()
            || set.mtime.is_some();
        if is_change && self.is_durable() {
            self.host.flush(&node)?;
        }
        let after = self.host.again(&node)?;
        let (origin, ino) = (self.origin, node.ino());
        if set.size.is_some() {
            let (offset, len) = (before.size.min(after.size), before.size.abs_diff(after.size));
            self.host.events.send(|| Event::Data { origin, ino, offset, len });
        }
        self.host.events.send(|| Event::Attr { origin, ino });
        Ok(Changed { before: PreAttr::of(&before), after })
    }

    fn resize(&self, cred: &Cred, node: &Node, size: u64) -> FsResult<()> {
        match node.attr.kind {
            FileKind::File => {}
            FileKind::Directory => return Err(FsError::IsDirectory),
            _ => return Err(FsError::Invalid("only regular files have a size to set")),
        }
        if size > FILE_BYTES_MAX {
            return Err(FsError::FileTooLarge);
        }
        let file = self.host.data(node, true)?;
        rustix::fs::ftruncate(file, size).map_err(failed)?;
        self.clear_suid(cred, node)
    }

    /// A change of content by an unprivileged user. The kernel sees larder's own privileges, and would keep the bits.
    pub(crate) fn clear_suid(&self, cred: &Cred, node: &Node) -> FsResult<()> {
        let mode = judge::without_suid(node.attr.mode, cred.in_group(node.attr.gid));
        if cred.uid != 0 && node.attr.kind == FileKind::File && mode != node.attr.mode {
            self.chmod(node, mode)?;
        }
        Ok(())
    }

    pub(crate) fn own(&self, node: &Node, uid: Option<u32>, gid: Option<u32>) -> FsResult<()> {
        let uid = uid.filter(|uid| *uid != node.attr.uid);
        let gid = gid.filter(|gid| *gid != node.attr.gid);
        if uid.is_none() && gid.is_none() {
            return Ok(());
        }
        if uid == Some(u32::MAX) || gid == Some(u32::MAX) {
            return Err(FsError::Invalid("no owner has that number"));
        }
        let (uid, gid) = (uid.map(Uid::from_raw), gid.map(Gid::from_raw));
        rustix::fs::chownat(&node.fd, "", uid, gid, AtFlags::EMPTY_PATH).map_err(failed)
    }

    /// A symbolic link has no mode of its own.
    pub(crate) fn chmod(&self, node: &Node, mode: u32) -> FsResult<()> {
        if node.attr.kind == FileKind::Symlink {
            return Ok(());
        }
        rustix::fs::chmod(by_number(node.fd.as_fd()), Mode::from_raw_mode(mode & 0o7777)).map_err(failed)
    }
}

/// Sets or removes the list for access, and the one that children get.
fn put_lists(node: &Node, lists: [Option<Vec<u8>>; 2]) -> FsResult<()> {
    for (name, list) in LISTS.into_iter().zip(lists) {
        let path = by_number(node.fd.as_fd());
        match list {
            Some(list) => rustix::fs::setxattr(path, name, &list, XattrFlags::empty()).map_err(failed)?,
            None => match rustix::fs::removexattr(path, name) {
                Ok(()) | Err(Errno::NODATA | Errno::OPNOTSUPP) => {}
                Err(error) => return Err(failed(error)),
            },
        }
    }
    Ok(())
}

/// A file that becomes like one without DOS attributes of its own stays without them: the other's time of creation is the
/// host's (`dos.default_unwritten`).
fn like_unmarked(node: &Node, set: SetAttr) -> SetAttr {
    if set.dos.is_some_and(|dos| dos == super::dos::default_of(&node.attr)) {
        SetAttr { btime: None, ..set }
    } else {
        set
    }
}

fn timespec(time: Timestamp) -> Timespec {
    Timespec { tv_sec: time.secs, tv_nsec: i64::from(time.nanos) as _ }
}

/// The times of access and of the last change.
pub(crate) fn set_times(node: &Node, atime: Option<SetTime>, mtime: Option<SetTime>) -> FsResult<()> {
    if atime.is_none() && mtime.is_none() {
        return Ok(());
    }
    let spec = |time: Option<SetTime>| match time {
        None => Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT as _ },
        Some(SetTime::Now) => Timespec { tv_sec: 0, tv_nsec: UTIME_NOW as _ },
        Some(SetTime::To(time)) => timespec(time),
    };
    let times = Timestamps { last_access: spec(atime), last_modification: spec(mtime) };
    let done = match node.attr.kind {
        FileKind::Symlink => rustix::fs::utimensat(&node.fd, "", &times, AtFlags::EMPTY_PATH),
        _ => rustix::fs::utimensat(CWD, by_number(node.fd.as_fd()), &times, AtFlags::empty()),
    };
    done.map_err(failed)
}
