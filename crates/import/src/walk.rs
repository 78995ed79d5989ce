//! The walk through the folder: a page of names at a time, the files of a page before its directories.

use std::ffi::{CStr, CString};
use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use larder_fs::{FileKind, FsError, Ino, SetAttr};

use crate::directory::{Directory, Job, LEVELS_MAX, PATH_BYTES_MAX};
use crate::links::Way;
use crate::source::{self, Names, Stat};
use crate::state::Import;
use crate::{copy, doubles, dress, remove, settle, verify};

const TOO_DEEP: &str = "it lies deeper than an import goes: 4,096 folders, or a path of 32 KiB";

/// The purpose of a walk.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum For {
    Copying,
    Verifying,
}

/// A directory that is being walked through.
struct Level {
    dir: Arc<Directory>,
    names: Names,
    /// Directories of the page, each with what it is.
    below: Vec<(CString, Stat)>,
    /// All names were read: only then a name that is missing is gone.
    is_whole: bool,
}

pub(crate) fn walk(import: &Import, top: Arc<Directory>, jobs: &SyncSender<Job>, how: For) {
    let mount = top.stat.clone();
    let mut levels = Vec::new();
    levels.extend(enter(import, top, how));
    loop {
        let depth = levels.len();
        let Some(level) = levels.last_mut() else { return };
        if import.progress.is_stopped() {
            return;
        }
        if let Some((name, stat)) = level.below.pop() {
            let path_bytes = level.dir.path.as_os_str().len() + name.to_bytes().len();
            let is_too_deep = depth >= LEVELS_MAX || path_bytes >= PATH_BYTES_MAX;
            let below = match is_too_deep {
                true => {
                    import.fault(&level.dir.path, TOO_DEEP);
                    None
                }
                false => descend(import, &level.dir, &name, stat, &mount, how),
            };
            if how == For::Copying {
                settle::release(import, &level.dir);
            }
            levels.extend(below.and_then(|below| enter(import, below, how)));
            continue;
        }
        if page(import, level, jobs, how) {
            continue;
        }
        if let Some(level) = levels.pop() {
            leave(import, &level, how);
        }
    }
}

fn enter(import: &Import, dir: Arc<Directory>, how: For) -> Option<Level> {
    match Names::of(&dir.fd) {
        Ok(names) => Some(Level { dir, names, below: Vec::new(), is_whole: true }),
        Err(error) => {
            import.source_fault(&dir.path, error);
            if how == For::Copying {
                settle::release(import, &dir);
            }
            None
        }
    }
}

/// Hands out the next page; `false` when there is none.
fn page(import: &Import, level: &mut Level, jobs: &SyncSender<Job>, how: For) -> bool {
    let names = match level.names.page() {
        Ok(names) => names,
        Err(error) => {
            level.is_whole = false;
            import.source_fault(&level.dir.path, error);
            return false;
        }
    };
    if names.is_empty() {
        return false;
    }
    for name in names {
        match source::stat(&level.dir.fd, &name) {
            Ok(stat) if stat.kind == FileKind::Directory => {
                level.dir.hold();
                level.below.push((name, stat));
            }
            Ok(stat) if doubles::is_double(&level.dir.fd, &name, &stat) => {
                level.dir.note_double();
                import.progress.seen_files.add(1);
                import.progress.seen_bytes.add(stat.size);
            }
            Ok(stat) => hand_out(import, Job { dir: Arc::clone(&level.dir), name, stat, linked: None }, jobs, how),
            // Removed since the directory was read.
            Err(rustix::io::Errno::NOENT) => {}
            Err(error) => import.source_fault(&level.dir.path_of(&name), error),
        }
    }
    true
}

/// A receiver that is gone was stopped.
fn hand_out(import: &Import, job: Job, jobs: &SyncSender<Job>, how: For) {
    job.dir.hold();
    if job.stat.nlink < 2 || how == For::Verifying || import.options.dry_run {
        let _ = jobs.send(job);
        return;
    }
    match import.links.come(job) {
        Way::First(job) => drop(jobs.send(job)),
        Way::Link(job, ino) => drop(jobs.send(Job { linked: Some(ino), ..job })),
        Way::Waits => {}
        Way::TooMany(job) => {
            import.fault(&job.path(), "it is a file of its own now: too many files with several names are half way");
            let _ = jobs.send(job);
        }
    }
}

fn descend(
    import: &Import,
    parent: &Directory,
    name: &CStr,
    stat: Stat,
    mount: &Stat,
    how: For,
) -> Option<Arc<Directory>> {
    let path = parent.path_of(name);
    if let Some(why) = import.left_out(mount, &stat) {
        if how == For::Copying {
            import.leave_out(&path, why);
        }
        return None;
    }
    let opened = source::open(&parent.fd, name, FileKind::Directory);
    // The name may have been exchanged since it was looked at: what is listed is what the attributes are of.
    let opened = opened.and_then(|fd| source::stat_open(&fd).map(|stat| (fd, stat)));
    let (fd, stat) = match opened {
        Ok(opened) => opened,
        Err(error) => {
            import.source_fault(&path, error);
            return None;
        }
    };
    if let Some(why) = import.left_out(mount, &stat) {
        import.leave_out(&path, why);
        return None;
    }
    let dest = match how {
        For::Copying => destination(import, parent, name, &stat),
        For::Verifying => import.lookup(parent.dest, name.to_bytes()).map(|found| found.map(|attr| attr.id.ino)),
    };
    match dest {
        Ok(None) if how == For::Verifying => {
            import.fault(&path, "it is not in the volume");
            None
        }
        Ok(dest) => Some(parent.below(name, fd, stat, dest)),
        Err(error) => {
            import.volume_fault(&path, error);
            None
        }
    }
}

/// The directory of that name in the volume, made where there is none.
fn destination(import: &Import, parent: &Directory, name: &CStr, stat: &Stat) -> Result<Option<Ino>, FsError> {
    let name = name.to_bytes();
    match import.lookup(parent.dest, name)? {
        Some(attr) if attr.kind == FileKind::Directory => return Ok(Some(attr.id.ino)),
        Some(attr) if copy::may_replace(import, &attr)? => {
            if import.options.dry_run {
                return Ok(None);
            }
            let dir = parent.dest.ok_or(FsError::NotFound)?;
            import.on(import.files.unlink(&import.cred, dir, name))?;
        }
        Some(_) => return Err(FsError::Refused(copy::OTHERS.into())),
        None => {}
    }
    let Some(dir) = parent.dest.filter(|_| !import.options.dry_run) else { return Ok(None) };
    let set = SetAttr { mode: Some(stat.mode), uid: Some(stat.uid), gid: Some(stat.gid), ..SetAttr::default() };
    let (attr, _) = import.on(import.files.mkdir(&import.cred, dir, name, set))?;
    // From now on it is known as imported, whenever the import is killed.
    dress::mark(import, attr.id.ino, stat)?;
    Ok(Some(attr.id.ino))
}

/// All names of the directory have come by.
fn leave(import: &Import, level: &Level, how: For) {
    import.counts.directories.add(u64::from(how == For::Copying));
    match how {
        For::Copying => {
            if import.options.delete && level.is_whole {
                remove::gone(import, &level.dir);
            }
            settle::release(import, &level.dir);
        }
        For::Verifying => verify::directory(import, &level.dir),
    }
}
