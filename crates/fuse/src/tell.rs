//! The thread that writes notifications to the kernel.
//!
//! - `tell.no_shared_descriptors`: a notification waits in the kernel for pages and directories that are
//!   locked until their request is answered. A kill of the process cannot end this wait. It ends the
//!   requests by closing the descriptors that they were read from, so the thread shares none with
//!   the others ([`Notifier::of_thread`]). Therefore it only takes work from a channel: what wakes a
//!   task of the runtime may write to a descriptor.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::mpsc::{self, Receiver, SyncSender};

use bytes::Bytes;
use fuser::{INodeNo, Notifier};
use larder_fs::Ino;

/// Something that the kernel should no longer believe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Stale {
    Attr(Ino),
    Data {
        ino: Ino,
        offset: u64,
        len: u64,
    },
    Name {
        dir: Ino,
        name: Bytes,
    },
    /// For kernels that have epochs.
    AllNames,
}

/// One batch at a time is under way.
const BATCHES_MAX: usize = 1;

/// Writes notifications, each batch to its end before the call returns.
pub(super) struct Teller {
    work: SyncSender<Vec<Stale>>,
    done: Receiver<io::Result<()>>,
}

impl Teller {
    /// Starts the thread for the connection of `device`.
    pub(super) fn start(device: BorrowedFd<'_>) -> io::Result<Teller> {
        let (work, batches) = mpsc::sync_channel(BATCHES_MAX);
        let (told, done) = mpsc::sync_channel(BATCHES_MAX);
        let number = device.as_raw_fd();
        let body = move || match Notifier::of_thread(number) {
            Ok(notifier) => {
                if told.send(Ok(())).is_ok() {
                    serve(&notifier, &batches, &told);
                }
            }
            Err(error) => drop(told.send(Err(error))),
        };
        std::thread::Builder::new().name("larder-notify".to_owned()).spawn(body)?;
        // The descriptor is borrowed until the thread has a clone of it.
        done.recv().map_err(|_| io::Error::other("the thread for notifications ended"))??;
        Ok(Teller { work, done })
    }

    pub(super) fn tell(&self, stale: Vec<Stale>) {
        if stale.is_empty() || self.work.send(stale).is_err() {
            return;
        }
        if let Ok(Err(error)) = self.done.recv() {
            tracing::debug!(%error, "the kernel refused an invalidation");
        }
    }
}

/// Until the sender of `batches` is gone.
fn serve(notifier: &Notifier, batches: &Receiver<Vec<Stale>>, told: &SyncSender<io::Result<()>>) {
    for batch in batches {
        let mut result = Ok(());
        for stale in &batch {
            result = result.and(tell(notifier, stale));
        }
        if told.send(result).is_err() {
            return;
        }
    }
}

fn tell(notifier: &Notifier, stale: &Stale) -> io::Result<()> {
    match stale {
        // A negative offset means the attributes only.
        Stale::Attr(ino) => notifier.inval_inode(INodeNo(ino.0), -1, 0),
        Stale::Data { ino, offset, len } => {
            let (offset, len) = page_range(*offset, *len);
            notifier.inval_inode(INodeNo(ino.0), offset, len)
        }
        Stale::Name { dir, name } => notifier.inval_entry(INodeNo(dir.0), OsStr::from_bytes(name)),
        Stale::AllNames => notifier.inc_epoch(),
    }
}

/// The kernel takes signed numbers, and a length of 0 as "to the end".
fn page_range(offset: u64, len: u64) -> (i64, i64) {
    (i64::try_from(offset).unwrap_or(i64::MAX), i64::try_from(len).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_fit_the_kernels_signed_numbers() {
        assert_eq!(page_range(0, u64::MAX), (0, 0));
        assert_eq!(page_range(u64::MAX, 5), (i64::MAX, 5));
    }
}
