//! Tells the kernel about changes by other protocols.
//!
//! The kernel caches names, attributes and pages for long (the mount has [`super::ENTRY_TTL`] and
//! [`super::ATTR_TTL`]), because it hears of every change that did not come through itself.
//!
//! - `invalidate.before_answer`: a change by another origin is invalidated as soon as its event
//!   arrives. The change is answered after that, so a client that has the answer sees the change
//!   through the mount.
//! - `invalidate.repeated_once`: each invalidation is repeated once, [`REPEAT_AFTER`] later. The
//!   kernel may take in a reply that was computed before the change after the invalidation. It
//!   discards such a reply where it already knew the inode or holds the directory's lock, but not
//!   where the inode was new to it. The repetition comes after that moment.
//! - `invalidate.own_thread`: one thread writes notifications and answers no requests. The kernel
//!   may block a notification on a page or directory whose request is being answered.
//! - `invalidate.lost_means_all`: a mount that lost events forgets everything. The queue of
//!   repetitions is bounded; a repetition that does not fit counts as a lost event.
//! - `invalidate.own_stale_once`: an entry that the mount itself finds stale is invalidated once.
//!   The kernel knows the inode, and locks a page until its read is answered. A change that a
//!   program must see at once is answered after the kernel has been notified.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use fuser::{INodeNo, Notifier};
use larder_volume::{Event, Ino, Witness};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use tokio_util::sync::CancellationToken;

use super::own::OwnStale;
use super::state::KernelInodes;

const REPEAT_AFTER: Duration = Duration::from_millis(100);
const REPEATS_MAX: usize = 65_536;
/// FUSE_NOTIFY_INC_EPOCH, from protocol 7.44 on: the kernel looks every name up again.
const NOTIFY_INC_EPOCH: i32 = 8;

/// Something that the kernel should no longer believe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Stale {
    Attr(Ino),
    Data { ino: Ino, offset: u64, len: u64 },
    Name { dir: Ino, name: Bytes },
}

pub(super) struct Invalidator {
    pub(super) origin: u32,
    pub(super) notifier: Notifier,
    /// The kernel's device, for the one notification that the crate does not offer; `None` where the kernel has it not.
    pub(super) epoch_device: Option<OwnedFd>,
    pub(super) kernel_inodes: Arc<KernelInodes>,
    pub(super) events: broadcast::Receiver<Event>,
    /// The answers to other origins' changes wait for it (`invalidate.before_answer`).
    pub(super) witness: Witness,
    pub(super) own: Arc<OwnStale>,
    pub(super) stop: CancellationToken,
}

impl Invalidator {
    /// Runs until the mount ends, on its own thread (`invalidate.own_thread`).
    pub(super) fn run(mut self, runtime: &tokio::runtime::Handle) {
        let mut repeats: VecDeque<(Instant, Stale)> = VecDeque::new();
        while let Some((batch, events)) = runtime.block_on(self.next(repeats.front().map(|(at, _)| *at))) {
            let due = Instant::now();
            while repeats.front().is_some_and(|(at, _)| *at <= due) {
                if let Some((_, stale)) = repeats.pop_front() {
                    self.tell(&stale);
                }
            }
            match batch {
                Batch::Nothing => {}
                Batch::Everything => {
                    repeats.clear();
                    self.forget_everything();
                }
                Batch::Some(stale) => stale.into_iter().for_each(|stale| self.tell_twice(stale, &mut repeats)),
                Batch::Own => self.tell_own(),
            }
            if events > 0 {
                self.witness.saw(events);
            }
        }
    }

    /// The next things to invalidate, and how many events said so; `None` when the mount ends.
    async fn next(&mut self, repeat_at: Option<Instant>) -> Option<(Batch, u64)> {
        let repeat = async {
            match repeat_at {
                Some(at) => tokio::time::sleep_until(at.into()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = self.stop.cancelled() => None,
            event = self.events.recv() => match event {
                Ok(event) => Some((Batch::Some(stale_by(&event, self.origin)), 1)),
                Err(RecvError::Lagged(lost)) => Some((Batch::Everything, lost)),
                Err(RecvError::Closed) => None,
            },
            () = self.own.more() => Some((Batch::Own, 0)),
            () = repeat => Some((Batch::Nothing, 0)),
        }
    }

    fn tell_twice(&self, stale: Stale, repeats: &mut VecDeque<(Instant, Stale)>) {
        self.tell(&stale);
        // A burst about one thing (a client streaming into a file) needs one repetition, not thousands.
        if repeats.back().is_some_and(|(_, last)| *last == stale) {
            repeats.pop_back();
        }
        if repeats.len() >= REPEATS_MAX {
            repeats.clear();
            return self.forget_everything();
        }
        repeats.push_back((Instant::now() + REPEAT_AFTER, stale));
    }

    fn tell_own(&self) {
        let (inodes, asked) = self.own.take();
        match inodes {
            None => self.forget_everything(),
            Some(inodes) => inodes.into_iter().for_each(|(ino, from)| match from {
                Some(offset) => self.tell(&Stale::Data { ino, offset, len: 0 }),
                None => self.tell(&Stale::Attr(ino)),
            }),
        }
        self.own.told(asked);
    }

    fn tell(&self, stale: &Stale) {
        let told = match stale {
            // A negative offset means the attributes only.
            Stale::Attr(ino) => self.notifier.inval_inode(INodeNo(ino.0), -1, 0),
            Stale::Data { ino, offset, len } => {
                let (offset, len) = page_range(*offset, *len);
                self.notifier.inval_inode(INodeNo(ino.0), offset, len)
            }
            Stale::Name { dir, name } => self.notifier.inval_entry(INodeNo(dir.0), OsStr::from_bytes(name)),
        };
        if let Err(error) = told {
            tracing::debug!(?stale, %error, "the kernel refused an invalidation");
        }
    }

    fn forget_everything(&self) {
        tracing::debug!("the mount lost track of changes: the kernel's caches are dropped");
        if let Some(device) = &self.epoch_device {
            // struct fuse_out_header { len, error = the notification's code, unique = 0 }
            let mut message = [0u8; 16];
            message[..4].copy_from_slice(&16u32.to_ne_bytes());
            message[4..8].copy_from_slice(&NOTIFY_INC_EPOCH.to_ne_bytes());
            if let Err(error) = rustix::io::write(device, &message) {
                tracing::warn!(%error, "names cached by the kernel stay until they expire");
            }
        }
        // The root is known without a look-up.
        self.tell(&Stale::Data { ino: Ino::ROOT, offset: 0, len: 0 });
        self.kernel_inodes.for_each(|ino| self.tell(&Stale::Data { ino, offset: 0, len: 0 }));
    }
}

impl Drop for Invalidator {
    /// Nobody waits for what nobody tells.
    fn drop(&mut self) {
        self.own.told(u64::MAX);
    }
}

enum Batch {
    Nothing,
    /// Findings of the mount itself.
    Own,
    Some(Vec<Stale>),
    Everything,
}

/// The kernel takes signed numbers, and a length of 0 as "to the end".
fn page_range(offset: u64, len: u64) -> (i64, i64) {
    (i64::try_from(offset).unwrap_or(i64::MAX), i64::try_from(len).unwrap_or(0))
}

/// The entries that an event makes stale in the cache of a kernel whose own operations carry `origin`.
fn stale_by(event: &Event, origin: u32) -> Vec<Stale> {
    match event {
        Event::Attr { origin: by, ino } if *by != origin => vec![Stale::Attr(*ino)],
        Event::Data { origin: by, ino, offset, len } if *by != origin => {
            vec![Stale::Data { ino: *ino, offset: *offset, len: *len }]
        }
        Event::Added { origin: by, dir, name, .. } if *by != origin => {
            vec![Stale::Name { dir: *dir, name: name.clone() }, Stale::Attr(*dir)]
        }
        Event::Removed { origin: by, dir, name, ino, .. } if *by != origin => {
            // Other names of the inode show its link count.
            vec![Stale::Name { dir: *dir, name: name.clone() }, Stale::Attr(*dir), Stale::Attr(*ino)]
        }
        Event::Renamed { origin: by, from, from_name, to, to_name, .. } if *by != origin => vec![
            Stale::Name { dir: *from, name: from_name.clone() },
            Stale::Name { dir: *to, name: to_name.clone() },
            Stale::Attr(*from),
            Stale::Attr(*to),
        ],
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_volume::FileKind;

    #[test]
    fn own_changes_are_known_to_the_kernel() {
        let event = Event::Data { origin: 7, ino: Ino(9), offset: 4096, len: 10 };
        assert_eq!(stale_by(&event, 7), []);
        assert_eq!(stale_by(&event, 8), [Stale::Data { ino: Ino(9), offset: 4096, len: 10 }]);
    }

    #[test]
    fn a_foreign_rename_stales_both_names_and_both_directories() {
        let event = Event::Renamed {
            origin: 0,
            from: Ino(2),
            from_name: "a".into(),
            to: Ino(3),
            to_name: "b".into(),
            ino: Ino(9),
            kind: FileKind::File,
        };
        let stale = stale_by(&event, 1);
        assert!(stale.contains(&Stale::Name { dir: Ino(2), name: "a".into() }));
        assert!(stale.contains(&Stale::Name { dir: Ino(3), name: "b".into() }));
        assert!(stale.contains(&Stale::Attr(Ino(2))) && stale.contains(&Stale::Attr(Ino(3))));
    }

    #[test]
    fn ranges_fit_the_kernels_signed_numbers() {
        assert_eq!(page_range(0, u64::MAX), (0, 0));
        assert_eq!(page_range(u64::MAX, 5), (i64::MAX, 5));
    }
}
