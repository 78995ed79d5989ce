//! Extended attributes: those of users, without the ones that stand for something else over SMB.

use std::os::fd::AsFd;

use bytes::Bytes;
use larder_fs::judge;
use larder_fs::{ACCESS_READ, ACCESS_WRITE, Cred, Event, FsError, FsResult, Ino, XATTR_BYTES_MAX, XattrMode};
use rustix::fs::XattrFlags;
use rustix::io::Errno;

use crate::Folder;
use crate::host::{bears_user, by_number, failed};
use crate::kernel::{user_attributes, xattr};
use crate::notify::Own;
use crate::{dos, streams};

const S_ISVTX: u32 = 0o1000;

impl Folder {
    pub async fn getxattr(&self, cred: &Cred, ino: Ino, name: &[u8]) -> FsResult<Bytes> {
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

    pub async fn listxattr(&self, _cred: &Cred, ino: Ino) -> FsResult<Vec<Bytes>> {
        self.run(move |folder| {
            let node = folder.host.node(ino)?;
            if !bears_user(&node) {
                return Ok(Vec::new());
            }
            let mut names = user_attributes(node.fd.as_fd()).map_err(failed)?;
            names.retain(|name| !is_hidden(name));
            Ok(names)
        })
        .await
    }

    pub async fn setxattr(&self, cred: &Cred, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> FsResult<()> {
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

    pub async fn removexattr(&self, cred: &Cred, ino: Ino, name: &[u8]) -> FsResult<()> {
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
            let own = folder.host.notices.own(&[Own::Changes(ino)]);
            change(&by_number(node.fd.as_fd())).map_err(failed)?;
            drop(own);
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
    if name.len() > larder_fs::NAME_BYTES_MAX {
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

/// Whether SMB shows it as something else: DOS attributes, or a stream. No protocol can ask for it as an attribute.
fn is_hidden(name: &[u8]) -> bool {
    name == dos::NAME || name.starts_with(streams::PREFIX)
}
