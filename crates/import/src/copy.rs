//! One name: whether its file in the volume is as it should be, and else a copy.

use std::os::fd::OwnedFd;
use std::sync::mpsc::SyncSender;

use larder_files::Open;
use larder_fs::Unnamed as Nameless;
use larder_fs::{Attr, FileKind, FsError, Ino, SeekTo, SetAttr, Stability};

use crate::directory::Job;
use crate::dress::{self, Trouble};
use crate::marker::Marker;
use crate::settle;
use crate::source::{self, PIECE_BYTES, Stat};
use crate::state::Import;

/// How often a file is copied anew because it changed meanwhile.
const ATTEMPTS: usize = 3;

pub(crate) const OTHERS: &str = "the volume has something else of that name, which no import brought or somebody changed since; --overwrite replaces it";
const CHANGING: &str = "it changes while it is read";

/// A whole copy with its attributes, not durable, without a name.
pub(crate) struct Unnamed {
    pub(crate) job: Job,
    pub(crate) ino: Ino,
    pub(crate) file: Open,
    /// The name leads to another inode, whose place it takes.
    pub(crate) replaces: bool,
}

/// The way to make a name what it should be.
enum Need {
    Nothing,
    /// Sizes and times agree, and nothing says that the contents do.
    Look(Attr),
    Copy {
        replaces: bool,
    },
    Refused,
}

/// Whether an import brought it and nobody changed it since (`import.nothing_of_others`).
pub(crate) fn may_replace(import: &Import, attr: &Attr) -> Result<bool, FsError> {
    if attr.kind == FileKind::Directory {
        return Ok(false);
    }
    Ok(import.options.overwrite || dress::marker(import, attr.id.ino)?.is_some_and(|marker| marker.is_unchanged(attr)))
}

pub(crate) fn copy(import: &Import, job: Job, ready: &SyncSender<Unnamed>) {
    let size = if job.stat.kind == FileKind::File { job.stat.size } else { 0 };
    let path = job.path();
    let done = bring(import, job, ready);
    import.progress.seen_files.add(1);
    import.progress.seen_bytes.add(size);
    dress::fault(import, &path, done);
}

fn bring(import: &Import, job: Job, ready: &SyncSender<Unnamed>) -> Result<(), Trouble> {
    if let Some(ino) = job.linked {
        let done = link(import, &job, ino);
        settle::release(import, &job.dir);
        return Ok(done?);
    }
    let brought = match need(import, &job) {
        Ok(Need::Nothing) => {
            import.counts.unchanged.add(1);
            here(import, &job)
        }
        Ok(Need::Look(attr)) => look(import, &job, &attr),
        Ok(Need::Copy { replaces }) => Ok(Brought::Copy { replaces }),
        Ok(Need::Refused) => Err(FsError::Refused(OTHERS.into()).into()),
        Err(error) => Err(error.into()),
    };
    let brought = match brought {
        Ok(Brought::Copy { replaces }) => make(import, &job, replaces),
        other => other,
    };
    match brought {
        // Its name comes when it is durable.
        Ok(Brought::Unnamed { ino, file, replaces }) => {
            let _ = ready.send(Unnamed { job, ino, file, replaces });
            Ok(())
        }
        Ok(Brought::There(ino)) => {
            came(import, &job, ino);
            Ok(())
        }
        Ok(Brought::Copy { .. }) => Ok(()),
        Err(error) => {
            came(import, &job, None);
            Err(error)
        }
    }
}

enum Brought {
    /// It had its name before; `None` in a dry run.
    There(Option<Ino>),
    Unnamed {
        ino: Ino,
        file: Open,
        replaces: bool,
    },
    /// Nothing yet.
    Copy {
        replaces: bool,
    },
}

fn here(import: &Import, job: &Job) -> Result<Brought, Trouble> {
    Ok(Brought::There(import.lookup(job.dir.dest, job.bytes())?.map(|attr| attr.id.ino)))
}

/// The name is there, or will not be: so may those be that wait for it.
pub(crate) fn came(import: &Import, job: &Job, ino: Option<Ino>) {
    if job.stat.nlink > 1 {
        for waiting in import.links.came(&job.stat, ino) {
            match ino {
                Some(ino) => {
                    if let Err(error) = link(import, &waiting, ino) {
                        import.volume_fault(&waiting.path(), error);
                    }
                }
                None => import.fault(&waiting.path(), "another name of the same file could not be copied"),
            }
            import.progress.seen_files.add(1);
            import.progress.seen_bytes.add(waiting.stat.size);
            settle::release(import, &waiting.dir);
        }
    }
    settle::release(import, &job.dir);
}

fn need(import: &Import, job: &Job) -> Result<Need, FsError> {
    let stat = &job.stat;
    let Some(attr) = import.lookup(job.dir.dest, job.bytes())? else { return Ok(Need::Copy { replaces: false }) };
    let marker = dress::marker(import, attr.id.ino)?;
    let is_ours = import.options.overwrite || marker.is_some_and(|marker| marker.is_unchanged(&attr));
    let replace = match is_ours && attr.kind != FileKind::Directory {
        true => Need::Copy { replaces: true },
        false => Need::Refused,
    };
    if attr.kind != stat.kind {
        return Ok(replace);
    }
    // Names that lead to one inode here and to several there. A name whose other names are gone keeps the inode that is its copy.
    let is_parted = attr.nlink > 1 && marker.map_or(stat.nlink < 2, |marker| marker.ino != stat.ino);
    let looks_same = attr.mtime == stat.mtime && (stat.kind != FileKind::File || attr.size == stat.size);
    Ok(match looks_same && !is_parted {
        true if marker == Some(Marker::of(stat)) => Need::Nothing,
        true => Need::Look(attr),
        false => replace,
    })
}

/// Compares what looks the same, and mends its attributes if the contents are.
fn look(import: &Import, job: &Job, attr: &Attr) -> Result<Brought, Trouble> {
    if import.options.dry_run {
        import.counts.attributes.add(1);
        return Ok(Brought::There(Some(attr.id.ino)));
    }
    let (stat, ino) = (&job.stat, attr.id.ino);
    let file = (stat.kind == FileKind::File).then(|| source::open(&job.dir.fd, &job.name, stat.kind)).transpose()?;
    if let Some(file) = &file
        && !source::stat_open(file)?.is_same_state(stat)
    {
        // Another file has the name by now: its attributes are not those that were looked at.
        return Err(FsError::Refused(CHANGING.into()).into());
    }
    let same = match (&file, stat.kind) {
        (Some(file), _) => equal(import, file, stat, ino, &|_| {})?,
        (None, FileKind::Symlink) => {
            import.on(import.files.readlink(ino))?[..] == source::read_link(&job.dir.fd, &job.name)?
        }
        (None, _) => attr.rdev == dress::device(stat),
    };
    if !same {
        let may = may_replace(import, attr)?;
        return if may { Ok(Brought::Copy { replaces: true }) } else { Err(FsError::Refused(OTHERS.into()).into()) };
    }
    dress::dress(import, ino, stat, file.as_ref())?;
    import.counts.attributes.add(1);
    Ok(Brought::There(Some(ino)))
}

/// Whether a file of the volume has the bytes of the source. Where both have holes nothing is read.
pub(crate) fn equal(
    import: &Import,
    file: &OwnedFd,
    stat: &Stat,
    ino: Ino,
    done: &dyn Fn(u64),
) -> Result<bool, Trouble> {
    let mut offset = 0;
    while offset < stat.size && !import.progress.is_stopped() {
        let ours = match import.on(import.files.seek(ino, offset, SeekTo::Data)) {
            Ok(next) => next,
            Err(FsError::NotFound) => stat.size,
            Err(error) => return Err(error.into()),
        };
        let theirs = source::next_data(file, offset, stat.size)?.map_or(stat.size, |range| range.start);
        offset = ours.min(theirs);
        if offset >= stat.size {
            break;
        }
        let len = usize::try_from(stat.size - offset).unwrap_or(usize::MAX).min(PIECE_BYTES);
        let piece = source::read(file, offset, len)?;
        let copy = import.on(import.files.read(ino, offset, len))?;
        let mut rest = &piece[..];
        for chunk in &copy.chunks {
            match rest.split_at_checked(chunk.len()) {
                Some((head, tail)) if head == &chunk[..] => rest = tail,
                _ => return Ok(false),
            }
        }
        if !rest.is_empty() || piece.len() < len {
            return Ok(false);
        }
        done(len as u64);
        offset += len as u64;
    }
    Ok(true)
}

/// Makes a copy without a name (`import.named_when_durable`).
fn make(import: &Import, job: &Job, replaces: bool) -> Result<Brought, Trouble> {
    let stat = &job.stat;
    let counts = &import.counts;
    let Some(dir) = job.dir.dest.filter(|_| !import.options.dry_run) else {
        match stat.kind {
            FileKind::File => {
                import.progress.copied_files.add(1);
                import.progress.copied_bytes.add(stat.size);
            }
            FileKind::Symlink => counts.symlinks.add(1),
            _ => counts.specials.add(1),
        }
        return Ok(Brought::There(None));
    };
    let (ino, file) = match stat.kind {
        FileKind::File => copied(import, job, dir)?,
        FileKind::Symlink => {
            let target = source::read_link(&job.dir.fd, &job.name)?;
            let made = dressed(import, stat, dir, Nameless::Symlink(&target))?;
            counts.symlinks.add(1);
            made
        }
        kind => {
            let made = dressed(import, stat, dir, Nameless::Special(kind, dress::device(stat)))?;
            counts.specials.add(1);
            made
        }
    };
    Ok(Brought::Unnamed { ino, file, replaces })
}

/// What has no contents, with its attributes.
fn dressed(import: &Import, stat: &Stat, dir: Ino, what: Nameless<'_>) -> Result<(Ino, Open), Trouble> {
    let set = SetAttr { mode: Some(stat.mode), uid: Some(stat.uid), gid: Some(stat.gid), ..SetAttr::default() };
    let (attr, open) = import.on(import.files.make_unnamed(&import.cred, dir, what, set))?;
    dress::dress(import, attr.id.ino, stat, None::<&OwnedFd>)?;
    Ok((attr.id.ino, open))
}

/// A copy of a file that did not change while it was read, with its attributes.
fn copied(import: &Import, job: &Job, dir: Ino) -> Result<(Ino, Open), Trouble> {
    let source = source::open(&job.dir.fd, &job.name, FileKind::File)?;
    for _ in 0..ATTEMPTS {
        let before = source::stat_open(&source)?;
        if before.kind != FileKind::File {
            break;
        }
        // Its owner's from the first byte: so are quotas.
        let (mode, uid, gid) = (Some(before.mode & 0o777), Some(before.uid), Some(before.gid));
        let set = SetAttr { mode, uid, gid, ..SetAttr::default() };
        let (attr, open) = import.on(import.files.create_unnamed(&import.cred, dir, set))?;
        let bytes = contents(import, &source, &before, attr.id.ino)?;
        dress::dress(import, attr.id.ino, &before, Some(&source))?;
        if source::stat_open(&source)?.is_same_state(&before) {
            source::drop_cache(&source);
            import.progress.copied_files.add(1);
            import.progress.copied_bytes.add(bytes);
            return Ok((attr.id.ino, open));
        }
    }
    Err(FsError::Refused(CHANGING.into()).into())
}

/// Writes the data of the source, leaves its holes, and sets its size. Returns the bytes of data.
fn contents(import: &Import, source: &OwnedFd, stat: &Stat, ino: Ino) -> Result<u64, Trouble> {
    let (files, cred) = (&import.files, &import.cred);
    let (mut offset, mut bytes) = (0, 0);
    while let Some(range) = source::next_data(source, offset, stat.size)? {
        offset = range.start;
        while offset < range.end {
            if import.progress.is_stopped() {
                return Ok(bytes);
            }
            let len = usize::try_from(range.end - offset).unwrap_or(usize::MAX).min(PIECE_BYTES);
            let piece = source::read(source, offset, len)?;
            if piece.is_empty() {
                // It is shorter now: the look at its state afterwards says so.
                return Ok(bytes);
            }
            let len = piece.len() as u64;
            import.on(files.write(cred, ino, offset, vec![piece], Stability::Unstable))?;
            offset += len;
            bytes += len;
        }
    }
    if offset < stat.size {
        import.on(files.setattr(cred, ino, SetAttr { size: Some(stat.size), ..SetAttr::default() }))?;
    }
    Ok(bytes)
}

/// Gives the inode another name.
fn link(import: &Import, job: &Job, ino: Ino) -> Result<(), FsError> {
    let (files, cred, name) = (&import.files, &import.cred, job.bytes());
    let dir = job.dir.dest.ok_or(FsError::NotFound)?;
    match import.lookup(Some(dir), name)? {
        Some(attr) if attr.id.ino == ino => {
            import.counts.unchanged.add(1);
            return Ok(());
        }
        Some(attr) if may_replace(import, &attr)? => drop(import.on(files.relink(cred, ino, dir, name))?),
        Some(_) => return Err(FsError::Refused(OTHERS.into())),
        None => drop(import.on(files.link(cred, ino, dir, name))?),
    }
    import.counts.links.add(1);
    Ok(())
}
