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
//! - `invalidate.own_thread`: no thread that answers requests waits for a notification. The kernel
//!   may block it on a page or directory whose request is being answered. One thread decides, and
//!   another one writes ([`Teller`]).
//! - `invalidate.lost_means_all`: a mount that lost events forgets everything. The queue of
//!   repetitions is bounded; a repetition that does not fit counts as a lost event.
//! - `invalidate.own_stale_once`: an entry that the mount itself finds stale is invalidated once.
//!   The kernel knows the inode, and locks a page until its read is answered.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use larder_fs::{Event, Ino, Witness};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use tokio_util::sync::CancellationToken;

use super::own::OwnStale;
use super::state::KernelInodes;
use super::tell::{Stale, Teller};

const REPEAT_AFTER: Duration = Duration::from_millis(100);
const REPEATS_MAX: usize = 65_536;

pub(super) struct Invalidator {
    pub(super) origin: u32,
    pub(super) teller: Teller,
    /// The kernel can be told to look all names up again.
    pub(super) has_epochs: bool,
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
            let now = Instant::now();
            let due = repeats.partition_point(|(at, _)| *at <= now);
            self.teller.tell(repeats.drain(..due).map(|(_, stale)| stale).collect());
            match batch {
                Batch::Nothing => {}
                Batch::Everything => {
                    repeats.clear();
                    self.forget_everything();
                }
                Batch::Some(stale) => self.tell_twice(stale, &mut repeats),
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

    fn tell_twice(&self, batch: Vec<Stale>, repeats: &mut VecDeque<(Instant, Stale)>) {
        self.teller.tell(batch.clone());
        for stale in batch {
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
    }

    fn tell_own(&self) {
        let (inodes, asked) = self.own.take();
        match inodes {
            None => self.forget_everything(),
            Some(inodes) => {
                let stale = inodes.into_iter().map(|(ino, from)| match from {
                    Some(offset) => Stale::Data { ino, offset, len: 0 },
                    None => Stale::Attr(ino),
                });
                self.teller.tell(stale.collect());
            }
        }
        self.own.told(asked);
    }

    fn forget_everything(&self) {
        tracing::debug!("the mount lost track of changes: the kernel's caches are dropped");
        let names = self.has_epochs.then_some(Stale::AllNames);
        // The root is known without a look-up.
        let root = Stale::Data { ino: Ino::ROOT, offset: 0, len: 0 };
        self.teller.tell(names.into_iter().chain([root]).collect());
        self.kernel_inodes.for_each(|ino| self.teller.tell(vec![Stale::Data { ino, offset: 0, len: 0 }]));
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
    use larder_fs::FileKind;

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
}
