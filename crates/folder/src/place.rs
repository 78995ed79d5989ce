//! Where open nodes are now: the kernel follows them, whoever renames them or a folder above them.

use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use larder_fs::{FsError, FsResult, Ino};
use rustix::fs::{Mode, OFlags};

use crate::Folder;
use crate::host::{Node, failed};
use crate::kernel::by_number;

fn path_of(fd: BorrowedFd<'_>) -> FsResult<PathBuf> {
    std::fs::read_link(by_number(fd)).map_err(|error| FsError::Io(error.to_string().into()))
}

impl Folder {
    /// The directory that holds the inode, and its name there. [`FsError::NotFound`] if it has none any more, or none that the
    /// kernel knows.
    pub async fn place(&self, ino: Ino) -> FsResult<(Ino, Bytes)> {
        self.run(move |folder| {
            let host = &folder.host;
            let path = path_of(host.node(ino)?.fd.as_fd())?;
            let (Some(above), Some(name)) = (path.parent(), path.file_name()) else { return Err(FsError::NotFound) };
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let fd = rustix::fs::open(above, flags, Mode::empty()).map_err(failed)?;
            let attr = host.identify(fd.as_fd())?;
            let dir = Node { fd: std::sync::Arc::new(fd), attr };
            host.remember_dir(&dir);
            match host.child(&dir, name.as_bytes())?.ino() == ino {
                true => Ok((dir.ino(), Bytes::copy_from_slice(name.as_bytes()))),
                false => Err(FsError::NotFound),
            }
        })
        .await
    }

    /// The names of the directories on the way from `top` to `dir`. [`FsError::NotFound`] if it does not lie there.
    pub async fn names_below(&self, dir: Ino, top: Ino) -> FsResult<Vec<Bytes>> {
        self.run(move |folder| {
            let path = |ino| path_of(folder.host.node(ino)?.fd.as_fd());
            let (path, top) = (path(dir)?, path(top)?);
            let below: &Path = path.strip_prefix(&top).map_err(|_| FsError::NotFound)?;
            Ok(below.iter().map(|name: &OsStr| Bytes::copy_from_slice(name.as_bytes())).collect())
        })
        .await
    }
}
