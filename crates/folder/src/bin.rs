//! Folders of a recycle bin on the host.
//!
//! - `bins.only_ours`: a folder of the bin is given owner, mode and lists only if larder made it for the very folder that
//!   it stands for; it says so in an attribute that only root can set. A folder that somebody else put there under the name
//!   is used as it is if it has these rights already, and passed over otherwise.
//! - `bins.entered`: thinning enters folders that larder made. So a user who moves a folder into the bin, or gives it
//!   the bin's name, cannot have removed what others keep in it. A bin without the attribute is an older larder's, or lies on
//!   a filesystem that keeps none: there the owner has to be that of the folder it lies in, or this one is root's.

use std::os::fd::AsFd;

use larder_fs::{Attr, Cred, FileKind, FsError, FsResult, Ino, SetAttr};
use rustix::fs::XattrFlags;
use rustix::io::Errno;

use crate::Folder;
use crate::attrs::LISTS;
use crate::host::{Node, birth_time, by_number, failed};
use crate::kernel::xattr;

/// The folder that a folder of the bin stands for: number and generation. Only root sets attributes of this kind.
const MARK: &str = "trusted.larder.bin";
const MARK_BYTES_MAX: usize = 64;

fn mark_of(model: &Attr) -> Vec<u8> {
    format!("{} {}", model.id.ino.0, model.id.generation).into_bytes()
}

impl Folder {
    /// The folder `name` of the bin's folder `parent` for removals from `like`. `None` if something else has the name.
    pub async fn bin_folder(&self, parent: Ino, name: &[u8], like: Ino) -> FsResult<Option<Ino>> {
        let name = name.to_vec();
        self.run(move |folder| {
            let parent = folder.host.node(parent)?.directory()?;
            let model = folder.host.node(like)?.directory()?;
            match folder.host.child(&parent, &name) {
                Ok(found) => folder.bin_folder_found(&found, &model),
                Err(FsError::NotFound) => folder.bin_folder_made(&parent, &name, &model),
                Err(error) => Err(error),
            }
        })
        .await
    }

    fn bin_folder_found(&self, found: &Node, model: &Node) -> FsResult<Option<Ino>> {
        if found.attr.kind != FileKind::Directory {
            return Ok(None);
        }
        if self.is_like(found, model)? {
            return Ok(Some(found.ino()));
        }
        if mark(found)? != Some(mark_of(&model.attr)) {
            return Ok(None);
        }
        self.dress_like(found, model)?;
        Ok(Some(found.ino()))
    }

    fn bin_folder_made(&self, parent: &Node, name: &[u8], model: &Node) -> FsResult<Option<Ino>> {
        let Attr { mode, uid, gid, .. } = model.attr;
        let set = SetAttr { mode: Some(mode), uid: Some(uid), gid: Some(gid), ..SetAttr::default() };
        let made = match self.make_directory(&Cred::root(), parent, name, set) {
            Ok(made) => made,
            // By another removal.
            Err(FsError::Exists) => return Err(FsError::Stale),
            Err(error) => return Err(error),
        };
        let (made, is_proven) = made;
        if is_proven {
            match rustix::fs::setxattr(by_number(made.fd.as_fd()), MARK, &mark_of(&model.attr), XattrFlags::empty()) {
                // The filesystem keeps no such attributes, or a container may not set them.
                Ok(()) | Err(Errno::OPNOTSUPP | Errno::PERM) => {}
                Err(error) => return Err(failed(error)),
            }
            self.dress_like(&made, model)?;
        } else if birth_time(made.fd.as_fd()).is_some() && !self.is_like(&made, model)? {
            return Err(FsError::Stale);
        }
        Ok(Some(made.ino()))
    }

    fn is_like(&self, node: &Node, model: &Node) -> FsResult<bool> {
        let (own, wanted) = (&node.attr, &model.attr);
        if (own.mode, own.uid, own.gid) != (wanted.mode, wanted.uid, wanted.gid) {
            return Ok(false);
        }
        for name in LISTS {
            if self.host.list(node, name)? != self.host.list(model, name)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Gives a folder of the bin owner, mode and lists of the folder that it stands for.
    fn dress_like(&self, node: &Node, model: &Node) -> FsResult<()> {
        if self.is_like(node, model)? {
            return Ok(());
        }
        let Attr { mode, uid, gid, .. } = model.attr;
        // Nobody but its owner reaches it until it has its lists.
        self.chmod(node, mode & 0o7700)?;
        self.own(node, Some(uid), Some(gid))?;
        for name in LISTS {
            let path = by_number(node.fd.as_fd());
            match self.host.list(model, name)? {
                Some(list) => rustix::fs::setxattr(path, name, &list, XattrFlags::empty()).map_err(failed)?,
                None => match rustix::fs::removexattr(path, name) {
                    Ok(()) | Err(Errno::NODATA | Errno::OPNOTSUPP) => {}
                    Err(error) => return Err(failed(error)),
                },
            }
        }
        self.chmod(node, mode)?;
        if self.is_durable() { self.host.flush(node) } else { Ok(()) }
    }

    /// Whether larder made it as a folder of a bin.
    pub async fn is_bin_folder(&self, dir: Ino) -> FsResult<bool> {
        self.run(move |folder| Ok(mark(&folder.host.node(dir)?)?.is_some())).await
    }
}

fn mark(node: &Node) -> FsResult<Option<Vec<u8>>> {
    match xattr(node.fd.as_fd(), MARK.as_bytes(), MARK_BYTES_MAX) {
        Ok(mark) => Ok(Some(mark)),
        Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::PERM | Errno::RANGE) => Ok(None),
        Err(error) => Err(failed(error)),
    }
}
