//! Things that a bench has made and not yet taken away.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::removal::{Identity, remove};
use crate::Machine;

/// Whoever will not wait waits no longer than this.
const ABANDON_TIME_MAX: Duration = Duration::from_secs(1);

/// Things that could not be taken away, for a note at the end; shared by all folders of a bench.
#[derive(Clone, Debug, Default)]
pub struct Leftovers(Arc<Mutex<Left>>);

#[derive(Debug, Default)]
pub(super) struct Left {
    words: Vec<String>,
    /// Folders that are there now.
    pub(super) folders: Vec<(PathBuf, Identity)>,
    /// Devices that were written to.
    devices: Vec<PathBuf>,
    /// Of the result that is being made.
    results: Vec<PathBuf>,
}

impl Leftovers {
    pub(super) fn left(&self) -> MutexGuard<'_, Left> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn add(&self, text: String) {
        self.left().words.push(text);
    }

    pub fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.left().words)
    }

    pub fn device(&self, path: &Path) {
        let mut left = self.left();
        if !left.devices.iter().any(|known| known == path) {
            left.devices.push(path.to_owned());
        }
    }

    pub fn result(&self, folder: &Path) {
        self.left().results.push(folder.to_owned());
    }

    /// While somebody still writes there. A disk that does not answer may keep this from being done, too.
    pub fn abandon(&self) -> Vec<String> {
        let Left { folders, devices, results, .. } = std::mem::take(&mut *self.left());
        let (sender, gone) = std::sync::mpsc::channel();
        let all = folders.clone();
        std::thread::spawn(move || {
            for path in results {
                let _ = fs::remove_dir_all(path);
            }
            let machine = Machine::this();
            for (path, identity) in all {
                let removed = match remove(&machine, &path, &identity) {
                    Err(error) => error.kind() == std::io::ErrorKind::NotFound,
                    Ok(()) => true,
                };
                let _ = sender.send((path, removed));
            }
        });
        let until = Instant::now() + ABANDON_TIME_MAX;
        let next = || gone.recv_timeout(until.saturating_duration_since(Instant::now())).ok();
        let removed: Vec<PathBuf> = std::iter::from_fn(next).filter(|(_, gone)| *gone).map(|(path, _)| path).collect();
        let there = folders
            .into_iter()
            .filter(|(path, _)| !removed.contains(path))
            .map(|(path, _)| format!("{} is still there: the next bench in that folder removes it", path.display()));
        let written =
            devices.iter().map(|path| format!("{} was written to, and may not be zeroes again", path.display()));
        there.chain(written).collect()
    }
}
