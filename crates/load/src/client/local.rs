//! A folder of this machine as one end of a copy: plain calls of the system, as `cp` makes them.

use std::fs::{self, File, OpenOptions};
use std::io::{Error, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::Advice;

use super::error::{ClientError, Outcome};
use super::share::{Entry, Identity, Share, Target, ended_early};
use crate::workload::Workload;

pub(super) struct Folder(PathBuf);

impl Folder {
    pub fn new(path: &Path) -> Self {
        Self(path.to_owned())
    }
}

impl Target for Folder {
    type Share = Self;
    const ACCESS: &'static str = "local";

    async fn connect(&self, _workload: Option<&Workload>) -> Outcome<Self> {
        // One that is not there is better known now than in the middle.
        fs::metadata(&self.0).map_err(|e| wrong(&self.0, &e))?;
        Ok(Self(self.0.clone()))
    }

    fn describe(&self) -> String {
        format!("{} of this machine", self.0.display())
    }
}

fn wrong(path: &Path, error: &Error) -> ClientError {
    let what = path.display().to_string();
    match error.kind() {
        ErrorKind::NotFound => ClientError::not_found(what, error),
        ErrorKind::PermissionDenied => ClientError::Denied { what, reason: error.to_string() },
        ErrorKind::ReadOnlyFilesystem => ClientError::ReadOnly { what },
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => ClientError::NoSpace { what },
        _ => ClientError::Local { what, reason: error.to_string() },
    }
}

impl Folder {
    fn at<R>(&self, path: &str, act: impl FnOnce(&Path) -> Result<R, Error>) -> Outcome<R> {
        let path = self.0.join(path);
        act(&path).map_err(|e| wrong(&path, &e))
    }
}

/// An open file, with its name for messages.
pub(super) struct Opened {
    file: File,
    path: PathBuf,
}

impl Share for Folder {
    type File = Opened;

    async fn make_folder(&self, path: &str) -> Outcome<()> {
        self.at(path, |path| match fs::create_dir(path) {
            Err(e) if e.kind() == ErrorKind::AlreadyExists => Ok(()),
            made => made,
        })
    }

    async fn list(&self, path: &str) -> Outcome<Vec<Entry>> {
        self.at(path, |path| {
            let entry = |entry: fs::DirEntry| {
                let name = entry.file_name().to_string_lossy().into_owned();
                Ok(Entry { name, folder: entry.file_type()?.is_dir() })
            };
            fs::read_dir(path)?.map(|found| found.and_then(entry)).collect()
        })
    }

    async fn is_own_folder(&self, path: &str) -> Outcome<bool> {
        self.at(path, |path| Ok(fs::symlink_metadata(path)?.is_dir()))
    }

    async fn remove(&self, path: &str) -> Outcome<()> {
        self.at(path, |path| fs::remove_file(path))
    }

    async fn free_bytes(&self) -> Outcome<Option<u64>> {
        self.at("", |path| {
            let stat = rustix::fs::statvfs(path)?;
            Ok(Some(stat.f_bavail.saturating_mul(stat.f_frsize)))
        })
    }

    async fn remove_folder(&self, path: &str) -> Outcome<()> {
        self.at(path, |path| fs::remove_dir(path))
    }

    async fn size(&self, path: &str) -> Outcome<u64> {
        self.at(path, |path| Ok(fs::symlink_metadata(path)?.len()))
    }

    async fn create(&self, path: &str) -> Outcome<Opened> {
        self.at(path, |path| Ok(Opened { file: File::create(path)?, path: path.to_owned() }))
    }

    async fn open(&self, path: &str, to_write: bool) -> Outcome<Opened> {
        self.at(path, |path| {
            let file = OpenOptions::new().read(true).write(to_write).open(path)?;
            if !to_write {
                // Out of the page cache, where the filesystem listens.
                let _ = rustix::fs::fadvise(&file, 0, None, Advice::DontNeed);
            }
            Ok(Opened { file, path: path.to_owned() })
        })
    }

    async fn read(&self, opened: &Opened, at: u64, len: u64, identity: Identity<'_>) -> Outcome<()> {
        let mut buffer = vec![0; usize::try_from(len).unwrap_or(usize::MAX)];
        let name = opened.path.display().to_string();
        match opened.file.read_exact_at(&mut buffer, at) {
            Err(e) if e.kind() == ErrorKind::UnexpectedEof => Err(ended_early(&name, at)),
            Err(e) => Err(wrong(&opened.path, &e)),
            Ok(()) => identity.check(&name, at, &buffer),
        }
    }

    async fn write(&self, opened: &Opened, at: u64, len: u64, identity: Identity<'_>) -> Outcome<()> {
        let mut done = 0;
        while done < len {
            let left = usize::try_from(len - done).unwrap_or(usize::MAX);
            let piece = identity.contents.piece(identity.file, identity.generation, at + done, left);
            opened.file.write_all_at(&piece, at + done).map_err(|e| wrong(&opened.path, &e))?;
            done += piece.len() as u64;
        }
        Ok(())
    }

    async fn flush(&self, opened: &Opened, _identity: Identity<'_>) -> Outcome<()> {
        opened.file.sync_all().map_err(|e| wrong(&opened.path, &e))
    }

    /// One call for all files, as `sync` after a copy. Servers behind a mount hear of it only file by file.
    async fn flush_all(&self) -> Outcome<bool> {
        self.at("", |path| {
            let folder = File::open(path)?;
            let served = crate::files::is_served(&folder)?;
            if !served {
                rustix::fs::syncfs(&folder)?;
            }
            Ok(!served)
        })
    }

    async fn close(&self, _opened: Opened) -> Outcome<()> {
        Ok(())
    }
}
