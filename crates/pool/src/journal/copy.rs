//! One copy of the journal: an open file on one disk, and a thread that writes and syncs it.
//!
//! With several copies each has a helper thread, so that a disk that hangs holds up its own thread
//! and no other copy. A single copy, or a copy in a simulator, is written by the journal's own
//! thread.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, mpsc};

use bytes::Bytes;

use crate::disk::DiskFile;
use crate::disk::watch::{Watch, hangs};
use crate::disk::work::wait_watched;
use crate::member::member_disk::MemberDisk;
use crate::member::members::Members;

/// Open segments by the number of their file.
pub type Held = BTreeMap<u32, Arc<dyn DiskFile>>;

/// One copy of the journal.
pub struct Copy {
    pub(super) slot: u8,
    /// The file of the segment being written.
    pub(super) file: Option<Arc<dyn DiskFile>>,
    /// All segments in use: an open file can be read after its name has been removed.
    pub(super) held: Held,
    pub(super) helper: Option<Helper>,
    pub(super) watch: Arc<Watch>,
}

pub struct Helper {
    jobs: mpsc::SyncSender<Job>,
    results: mpsc::Receiver<io::Result<bool>>,
}

/// Work for the thread of a copy.
pub enum Job {
    Write { file: Arc<dyn DiskFile>, bytes: Bytes, offset: u64, sync: Sync },
    Flush(Arc<dyn DiskFile>),
}

/// The sync that makes a written copy durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sync {
    /// Its own, right after the write.
    Own,
    /// The sync of another copy on the same device, if this one was written past the cache.
    Shared,
    /// Its own, once all copies are written: where one thread writes all of them, the writes are
    /// still under way side by side.
    Later,
}

impl Helper {
    pub fn start() -> io::Result<Self> {
        let (jobs, work) = mpsc::sync_channel::<Job>(1);
        let (done, results) = mpsc::sync_channel(1);
        std::thread::Builder::new().name("larder-journal-copy".into()).spawn(move || {
            while let Ok(job) = work.recv() {
                if done.send(job.run()).is_err() {
                    return;
                }
            }
        })?;
        Ok(Self { jobs, results })
    }
}

impl Job {
    /// Whether the bytes are durable already.
    pub fn run(&self) -> io::Result<bool> {
        match self {
            Self::Write { file, bytes, offset, sync } => {
                let went_past_the_cache = file.write_direct_at(bytes, *offset)?;
                if *sync == Sync::Later || *sync == Sync::Shared && went_past_the_cache {
                    return Ok(false);
                }
                file.sync().map(|()| true)
            }
            Self::Flush(file) => file.sync().map(|()| true),
        }
    }
}

impl Copy {
    pub fn new(members: &Members, slot: u8) -> Self {
        let watch = members.member(slot).map(MemberDisk::watch).unwrap_or_default();
        Self { slot, file: None, held: Held::new(), helper: None, watch }
    }

    /// Its disk takes writes, and has done so since the copy was opened.
    pub fn is_in_use(&self, members: &Members) -> bool {
        let member = members.member(self.slot);
        member.is_some_and(|member| member.is_writable() && Arc::ptr_eq(&member.watch(), &self.watch))
    }

    /// Hands the job to the copy's thread; gives it back where there is none.
    pub fn begin(&self, job: Job) -> Result<(), Job> {
        match &self.helper {
            Some(helper) => helper.jobs.send(job).map_err(|mpsc::SendError(job)| job),
            None => Err(job),
        }
    }

    /// The result of the job that was begun, or an error when the disk hangs
    /// (`hang.call_too_long`).
    pub fn finish(&self) -> io::Result<bool> {
        let results = self.helper.as_ref().map(|helper| &helper.results);
        let done = results.and_then(|results| wait_watched(results, std::slice::from_ref(&self.watch)));
        done.unwrap_or_else(|| Err(if self.watch.is_closed() { hangs() } else { io::Error::other("a thread died") }))
    }

    pub fn run(&self, job: Job) -> io::Result<bool> {
        match self.begin(job) {
            Ok(()) => self.finish(),
            Err(job) => job.run(),
        }
    }
}
