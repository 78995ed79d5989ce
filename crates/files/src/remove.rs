//! Removing a name with everything below it.
//!
//! - `remove.by_inode`: names are removed within the folders that the walk entered, whatever path leads to them now.
//! - `remove.durable_at_the_end`: removals below the top are ordered. The last one is durable, and everything before it with
//!   it; where something stays, the tree is flushed.
//! - `remove.failures_stay`: a name that cannot be removed stays, with the folders around it.

use bytes::Bytes;
use larder_base::{Timestamp, boxed};
use larder_fs::{Attr, Cred, DirEntry, FileKind, FsError, FsResult, Ino};

use crate::Files;
use crate::walk::{Report, Step, Stop, Walk};

/// A folder that the walk is in, by its name in the folder above.
struct Doomed {
    parent: Ino,
    name: Bytes,
    /// Something in it stays.
    stays: bool,
}

impl Files {
    /// Removes `name` in `dir`, the inode of `attr`, with everything below it. Files that changed after `unchanged_since` stay,
    /// with [`FsError::NotSync`].
    #[boxed]
    pub async fn remove_tree<'a>(
        &'a self,
        cred: &Cred,
        (dir, name): (Ino, &[u8]),
        attr: &Attr,
        unchanged_since: Option<Timestamp>,
        stop: Stop<'a>,
    ) -> Report {
        let mut report = Report::default();
        if attr.kind != FileKind::Directory {
            if let Err(error) = unlink(self, cred, (dir, name), Some(attr), unchanged_since).await {
                report.fail(Bytes::new(), error);
            }
            return report;
        }
        let inner = self.ordered();
        let mut walk = Walk::new(self.tree.clone(), cred.clone(), unchanged_since.is_some());
        match walk.open(attr.id.ino).await {
            Ok(opened) => {
                walk.enter(opened, b"", Doomed { parent: dir, name: Bytes::copy_from_slice(name), stays: false });
            }
            // An empty folder needs no reading.
            Err(FsError::Access) if self.rmdir(cred, dir, name).await.is_ok() => return report,
            Err(error) => report.fail(Bytes::new(), error),
        }
        while let Some(step) = walk.next().await {
            let failed = match step {
                Step::Left(folder, trouble) => {
                    let path = walk.path();
                    let files = if walk.dir().is_some() { &inner } else { self };
                    let done = match trouble {
                        Some(error) => Err(error),
                        None if folder.stays => Ok(false),
                        None => gone(files.rmdir(cred, folder.parent, &folder.name).await.map(drop)).map(|()| true),
                    };
                    match done {
                        Ok(true) => None,
                        Ok(false) => Some(None),
                        Err(error) => Some(Some((path, error))),
                    }
                }
                Step::Entry(entry) if entry.kind == FileKind::Directory => {
                    enter(&inner, cred, &mut walk, &entry).await.err().map(Some)
                }
                Step::Entry(entry) => {
                    let dir = walk.dir().unwrap_or(dir);
                    let done =
                        gone(unlink(&inner, cred, (dir, &entry.name), entry.attr.as_ref(), unchanged_since).await);
                    done.err().map(|error| Some((walk.path_of(&entry.name), error)))
                }
            };
            if let Some(failure) = failed {
                if let Some(above) = walk.data() {
                    above.stays = true;
                }
                if let Some((path, error)) = failure {
                    report.fail(path, error);
                }
            }
            report.is_cut |= stop();
            if report.is_cut {
                break;
            }
        }
        if !report.is_whole()
            && let Err(error) = self.sync().await
        {
            report.fail(Bytes::new(), error);
        }
        report
    }
}

async fn enter(files: &Files, cred: &Cred, walk: &mut Walk<Doomed>, entry: &DirEntry) -> Result<(), (Bytes, FsError)> {
    let Some(parent) = walk.dir() else { return Ok(()) };
    match walk.open(entry.ino).await {
        Ok(opened) => {
            walk.enter(opened, &entry.name, Doomed { parent, name: entry.name.clone(), stays: false });
            Ok(())
        }
        Err(FsError::Access) if files.rmdir(cred, parent, &entry.name).await.is_ok() => Ok(()),
        Err(error) => gone(Err(error)).map_err(|error| (walk.path_of(&entry.name), error)),
    }
}

async fn unlink(
    files: &Files,
    cred: &Cred,
    (dir, name): (Ino, &[u8]),
    attr: Option<&Attr>,
    unchanged_since: Option<Timestamp>,
) -> FsResult<()> {
    if let (Some(since), Some(attr)) = (unchanged_since, attr)
        && attr.ctime > since
    {
        return Err(FsError::NotSync);
    }
    files.unlink(cred, dir, name).await.map(drop)
}

/// Removed by somebody else meanwhile.
fn gone(done: FsResult<()>) -> FsResult<()> {
    match done {
        Err(FsError::NotFound | FsError::Stale) => Ok(()),
        done => done,
    }
}
