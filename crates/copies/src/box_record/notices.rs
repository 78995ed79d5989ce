//! The kernel's notices of changes in the data folder (`record.follows_changes`).

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::inotify::{self, CreateFlags, Reader, WatchFlags};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::contents;

const BUFFER_BYTES: usize = 16 << 10;

pub(super) struct Notices(AsyncFd<OwnedFd>);

impl Notices {
    pub(super) fn of(data: &Path, config: &Path) -> std::io::Result<Self> {
        let fd = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        let what = WatchFlags::MOVED_TO | WatchFlags::CLOSE_WRITE | WatchFlags::DELETE | WatchFlags::ONLYDIR;
        inotify::add_watch(&fd, data, what)?;
        if let Some(folder) = config.parent().filter(|folder| *folder != data) {
            inotify::add_watch(&fd, folder, what)?;
        }
        // SAFETY: an `OwnedFd` is open, and stays the same until the `AsyncFd` that owns it is dropped.
        #[allow(unsafe_code)]
        let fd = unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) };
        Ok(Self(fd.map_err(std::io::Error::from)?))
    }

    /// Returns when a file changed that makes the box, or perhaps one: the kernel's queue was full.
    pub(super) async fn next(&self) {
        loop {
            let Ok(mut ready) = self.0.readable().await else { return std::future::pending().await };
            if self.read() {
                return;
            }
            ready.clear_ready();
        }
    }

    /// Empties the queue. Whether such a file was in it.
    fn read(&self) -> bool {
        let mut buffer = [MaybeUninit::uninit(); BUFFER_BYTES];
        let mut reader = Reader::new(self.0.get_ref().as_fd(), &mut buffer);
        let mut is_ours = false;
        while let Ok(event) = reader.next() {
            let name = event.file_name().map(|name| name.to_string_lossy().into_owned());
            is_ours |= name.is_none_or(|name| contents::is_kept(&name));
        }
        is_ours
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn files_of_the_box_are_noticed_and_no_others() {
        let folder = tempfile::tempdir().unwrap();
        let notices = Notices::of(folder.path(), &folder.path().join("larder.toml")).unwrap();
        let noticed = || tokio::time::timeout(Duration::from_millis(200), notices.next());
        std::fs::write(folder.path().join("pool-lives"), "x").unwrap();
        assert!(noticed().await.is_err());
        std::fs::write(folder.path().join("tokens.new"), "x").unwrap();
        assert!(noticed().await.is_err());
        std::fs::rename(folder.path().join("tokens.new"), folder.path().join("tokens")).unwrap();
        assert!(noticed().await.is_ok());
    }
}
