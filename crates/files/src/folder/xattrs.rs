//! Extended attributes: those of users, without the ones that stand for something else over SMB.

use std::os::fd::{AsFd, BorrowedFd};

use bytes::Bytes;
use larder_volume::judge;
use larder_volume::{
    ACCESS_READ, ACCESS_WRITE, Cred, Event, FileKind, FsError, FsResult, Ino, XATTR_BYTES_MAX, XattrMode,
};
use rustix::fs::XattrFlags;
use rustix::io::Errno;

use super::Folder;
use super::host::{Node, by_number, failed};
use super::{dos, streams};

const S_ISVTX: u32 = 0o1000;
/// XATTR_LIST_MAX of linux/limits.h.
const NAMES_BYTES_MAX: usize = 65536;

impl Folder {
    pub(crate) async fn getxattr(&self, cred: &Cred, ino: Ino, name: &[u8]) -> FsResult<Bytes> {
        check_xattr(name)?;
        if is_hidden(name) {
            return Err(FsError::NoAttribute);
        }
        let (cred, name) = (cred.clone(), name.to_vec());
        self.run(move |folder| {
            let node = folder.host.node(ino)?;
            if !bears_user(&node) {
                return Err(FsError::NoAttribute);
            }
            judge::require(&folder.host.guarded(&node, &cred)?, &cred, ACCESS_READ)?;
            match xattr(node.fd.as_fd(), &name, XATTR_BYTES_MAX) {
                Err(Errno::OPNOTSUPP) => Err(FsError::NoAttribute),
                other => other.map(Bytes::from).map_err(failed),
            }
        })
        .await
    }

    pub(crate) async fn listxattr(&self, _cred: &Cred, ino: Ino) -> FsResult<Vec<Bytes>> {
        self.run(move |folder| {
            let node = folder.host.node(ino)?;
            if !bears_user(&node) {
                return Ok(Vec::new());
            }
            let mut names = users(&node)?;
            names.retain(|name| !is_hidden(name));
            Ok(names)
        })
        .await
    }

    pub(crate) async fn setxattr(
        &self,
        cred: &Cred,
        ino: Ino,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
    ) -> FsResult<()> {
        check_xattr(name)?;
        if is_hidden(name) {
            return Err(FsError::NotSupported);
        }
        if value.len() > XATTR_BYTES_MAX {
            return Err(FsError::TooBig);
        }
        let (name, value) = (name.to_vec(), value.to_vec());
        let flags = match mode {
            XattrMode::Set => XattrFlags::empty(),
            XattrMode::Create => XattrFlags::CREATE,
            XattrMode::Replace => XattrFlags::REPLACE,
        };
        self.change_xattr(cred, ino, move |path| rustix::fs::setxattr(path, &name[..], &value, flags)).await
    }

    pub(crate) async fn removexattr(&self, cred: &Cred, ino: Ino, name: &[u8]) -> FsResult<()> {
        check_xattr(name)?;
        if is_hidden(name) {
            return Err(FsError::NoAttribute);
        }
        let name = name.to_vec();
        self.change_xattr(cred, ino, move |path| rustix::fs::removexattr(path, &name[..])).await
    }

    async fn change_xattr(
        &self,
        cred: &Cred,
        ino: Ino,
        change: impl FnOnce(&str) -> Result<(), Errno> + Send + 'static,
    ) -> FsResult<()> {
        let cred = cred.clone();
        self.run(move |folder| {
            let node = folder.host.node(ino)?;
            folder.host.admit()?;
            let object = folder.host.guarded(&node, &cred)?;
            let is_sticky = node.is_dir() && node.attr.mode & S_ISVTX != 0;
            if !bears_user(&node) || is_sticky && !judge::owns(&node.attr, &cred) {
                return Err(FsError::NotPermitted);
            }
            judge::require(&object, &cred, ACCESS_WRITE)?;
            change(&by_number(node.fd.as_fd())).map_err(failed)?;
            if folder.is_durable() {
                folder.host.flush(&node)?;
            }
            folder.host.events.send(|| Event::Attr { origin: folder.origin, ino });
            Ok(())
        })
        .await
    }
}

/// The attributes of users alone: the others mean something to the host.
fn check_xattr(name: &[u8]) -> FsResult<()> {
    if name.len() > larder_volume::NAME_BYTES_MAX {
        return Err(FsError::NameTooLong);
    }
    if name.contains(&0) {
        return Err(FsError::Invalid("an attribute's name must not hold a zero byte"));
    }
    match name.strip_prefix(b"user.") {
        Some(rest) if !rest.is_empty() => Ok(()),
        _ => Err(FsError::NotSupported),
    }
}

/// Links and special files have no attributes of users.
pub(super) fn bears_user(node: &Node) -> bool {
    matches!(node.attr.kind, FileKind::File | FileKind::Directory)
}

/// Whether SMB shows it as something else: DOS attributes, or a stream. No protocol can ask for it as an attribute.
fn is_hidden(name: &[u8]) -> bool {
    name == dos::NAME || name.starts_with(streams::PREFIX)
}

/// The names of all attributes of users.
pub(super) fn users(node: &Node) -> FsResult<Vec<Bytes>> {
    let mut names = vec![0; NAMES_BYTES_MAX];
    let len = match rustix::fs::listxattr(by_number(node.fd.as_fd()), &mut names[..]) {
        Ok(len) => len,
        Err(Errno::OPNOTSUPP) => 0,
        Err(error) => return Err(failed(error)),
    };
    names.truncate(len);
    let users = names.split(|byte| *byte == 0).filter(|name| name.starts_with(b"user."));
    Ok(users.map(Bytes::copy_from_slice).collect())
}

/// An extended attribute of an open node.
pub(super) fn xattr(fd: BorrowedFd<'_>, name: &[u8], bytes_max: usize) -> Result<Vec<u8>, Errno> {
    let path = by_number(fd);
    let mut value = vec![0; 256];
    loop {
        match rustix::fs::getxattr(&path, name, &mut value[..]) {
            Ok(len) => {
                value.truncate(len);
                return Ok(value);
            }
            Err(Errno::RANGE) if value.len() < bytes_max => value = vec![0; bytes_max],
            Err(error) => return Err(error),
        }
    }
}
