//! One import from beginning to end: its threads, and what runs in each.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};

use larder_files::Files;
use larder_fs::Ino;
use parking_lot::Mutex;
use rustix::io::Errno;

use crate::directory::{Directory, Job};
use crate::name::UNNAMED_MAX;
use crate::progress::{Phase, Progress};
use crate::source::{self, Stat};
use crate::state::{Failed, Import, Options, Report};
use crate::{copy, count, name, verify, walk};

/// Files that are copied at a time. A disk that seeks gains nothing from more, and a network or an SSD is kept busy.
const COPIERS: usize = 6;
/// Jobs that wait for a copier.
const JOBS_MAX: usize = 256;

/// Copies the folder `from` into the directory `to` of the volume, on this thread and others; the root of a volume keeps its
/// own attributes. `to` is `None` in a dry run where there is no such directory. Must run where a tokio runtime is entered, on a thread that may block.
pub fn run(
    from: &Path,
    files: Files,
    to: Option<Ino>,
    options: Options,
    progress: &Arc<Progress>,
) -> Result<Report, Failed> {
    let top = source::open_top(from).map_err(Failed::Folder)?;
    let stat = source::stat_open(&top).map_err(Failed::Folder)?;
    if options.delete && source::Names::of(&top).and_then(|mut names| names.page()).map_err(Failed::Folder)?.is_empty()
    {
        return Err(Failed::Empty);
    }
    let import = Import::new(files, options, progress);
    import.work(top, &stat, to)?;
    if import.options.verify && !import.options.dry_run {
        progress.enter(Phase::Verifying);
        let top = source::open_top(from).map_err(Failed::Folder)?;
        import.check(top, &stat, to)?;
    }
    Ok(import.report())
}

impl Import {
    fn work(&self, top: OwnedFd, stat: &Stat, to: Option<Ino>) -> Result<(), Failed> {
        self.progress.enter(Phase::Copying);
        let (jobs, wanted) = sync_channel::<Job>(JOBS_MAX);
        let (ready, named) = sync_channel(UNNAMED_MAX);
        let wanted = Mutex::new(wanted);
        let counted = top.try_clone().map_err(|_| Failed::Folder(Errno::MFILE))?;
        let top = Directory::top(top, stat.clone(), to);
        std::thread::scope(|threads| {
            threads.spawn(|| count::count(self, &counted, stat));
            threads.spawn(move || self.entered(|| name::name(self, &named)));
            for _ in 0..COPIERS {
                let ready = ready.clone();
                let wanted = &wanted;
                threads.spawn(move || self.entered(|| self.each(wanted, |job| copy::copy(self, job, &ready))));
            }
            drop(ready);
            self.entered(|| walk::walk(self, top, &jobs, walk::For::Copying));
            drop(jobs);
        });
        self.ended()?;
        if !self.options.dry_run {
            self.progress.enter(Phase::Flushing);
            self.on(self.files.sync()).map_err(Failed::Volume)?;
        }
        Ok(())
    }

    fn check(&self, top: OwnedFd, stat: &Stat, to: Option<Ino>) -> Result<(), Failed> {
        let (jobs, wanted) = sync_channel::<Job>(JOBS_MAX);
        let wanted = Mutex::new(wanted);
        let top = Directory::top(top, stat.clone(), to);
        std::thread::scope(|threads| {
            for _ in 0..COPIERS {
                threads.spawn(|| self.entered(|| self.each(&wanted, |job| verify::verify(self, &job))));
            }
            self.entered(|| walk::walk(self, top, &jobs, walk::For::Verifying));
            drop(jobs);
        });
        self.ended()
    }

    /// Takes jobs until there are no more. After a stop they are dropped unlooked at: the walk must not wait for room.
    fn each(&self, jobs: &Mutex<Receiver<Job>>, work: impl Fn(Job)) {
        loop {
            let next = jobs.lock().recv();
            match next {
                Ok(job) if !self.progress.is_stopped() => work(job),
                Ok(_) => {}
                Err(_) => return,
            }
        }
    }
}
