//! Destroying a pool: it is closed, then its disks become empty folders.
//!
//! - `erase.own_files_only`: only files that a pool makes are removed, by their names, and only
//!   from folders whose label says that they belong to this pool. Labels are removed first, on all
//!   disks: a half-erased pool is no pool any more.

use std::io;
use std::path::{Path, PathBuf};

use larder_api::{Failure, PoolDestroyed, TakeAway};
use larder_base::task;
use larder_keep::Store;
use larder_pool::Pool;

use super::pools::Pools;

/// Files of a disk begin with this; folders have these names.
const FILES: &str = "larder.";
const LABELS: [&str; 2] = ["larder.label", "larder.label.2"];
const FOLDERS: [&str; 2] = ["objects", "journal"];

/// Closes the pool, whose volumes nobody uses any more, and erases the disks that are there.
pub async fn destroy(pool: &Store) -> Result<PoolDestroyed, Failure> {
    pool.check_all_unheld().await?;
    let status = pool.status();
    pool.export().await?;
    let disks: Vec<PathBuf> = status.disks.into_iter().map(|disk| disk.path).chain(status.spares).collect();
    let id = status.id;
    let erased = task::blocking(move || erase(&disks, &id)).await;
    erased.map_err(|e| Failure::internal(format!("erasing the disks crashed: {e}")))
}

fn erase(disks: &[PathBuf], id: &str) -> PoolDestroyed {
    let mut done = PoolDestroyed::default();
    let is_ours = |disk: &Path| Pool::scan(&[disk.to_owned()]).iter().any(|pool| pool.id.to_string() == id);
    let (ours, others): (Vec<&PathBuf>, Vec<&PathBuf>) = disks.iter().partition(|disk| is_ours(disk));
    for disk in others {
        let show = disk.display();
        done.kept.push(format!("{show} is not there, or is no disk of this pool: what is on it stays"));
    }
    let unlabelled: Vec<io::Result<()>> = ours.iter().map(|disk| remove_labels(disk)).collect();
    for (disk, unlabelled) in ours.into_iter().zip(unlabelled) {
        match unlabelled.and_then(|()| remove_rest(disk)) {
            Ok(()) => done.erased.push(disk.clone()),
            Err(error) => done.kept.push(format!("{} could not be emptied: {error}", disk.display())),
        }
    }
    done
}

fn remove_labels(disk: &Path) -> io::Result<()> {
    LABELS.iter().try_for_each(|name| gone(std::fs::remove_file(disk.join(name))))?;
    std::fs::File::open(disk)?.sync_all()
}

fn remove_rest(disk: &Path) -> io::Result<()> {
    FOLDERS.iter().try_for_each(|name| gone(std::fs::remove_dir_all(disk.join(name))))?;
    for entry in std::fs::read_dir(disk)? {
        let entry = entry?;
        let is_ours = entry.file_name().to_str().is_some_and(|name| name.starts_with(FILES));
        if is_ours && entry.file_type()?.is_file() {
            gone(std::fs::remove_file(entry.path()))?;
        }
    }
    std::fs::File::open(disk)?.sync_all()
}

/// A file that is gone already counts as removed.
fn gone(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

impl Pools {
    /// Stops serving the pool, takes it out of the file and erases it. Unless forced to, not while a program uses a mount
    /// of it.
    pub async fn destroy(&self, name: &str, request: TakeAway) -> Result<PoolDestroyed, Failure> {
        let mut state = self.document.lock().await;
        let pool = self.storage.pool(Some(name))?;
        pool.need_disks()?;
        self.storage.check_no_journal(name)?;
        pool.check_all_unheld().await?;
        self.take_out(&mut state, name, request, format!("larder pool destroy {name} --force")).await?;
        destroy(&pool).await
    }
}
