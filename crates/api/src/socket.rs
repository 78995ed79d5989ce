//! Unix sockets at paths of any length.
//!
//! `sun_path` holds 107 bytes, and data folders of tests and of nested homes are longer. Linux
//! resolves `/proc/self/fd/N/larder.sock` through an open folder, which is always short.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

/// The longest path that goes into `sun_path` with its terminator.
const DIRECT_BYTES_MAX: usize = 107;

/// A path to bind or connect to, valid as long as this value lives.
pub struct SocketPath {
    path: PathBuf,
    _folder: Option<File>,
}

impl SocketPath {
    pub fn of(socket: &Path) -> io::Result<Self> {
        if socket.as_os_str().len() <= DIRECT_BYTES_MAX {
            return Ok(Self { path: socket.to_owned(), _folder: None });
        }
        let (Some(folder), Some(name)) = (socket.parent(), socket.file_name()) else {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not the path of a socket"));
        };
        let folder = File::open(folder)?;
        let path = PathBuf::from(format!("/proc/self/fd/{}", folder.as_raw_fd())).join(name);
        Ok(Self { path, _folder: Some(folder) })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}
