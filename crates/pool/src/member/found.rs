//! The contents of directories that may be disks: labels, damaged labels, and the reasons why
//! others cannot be used.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::disk::{DiskIo, DiskOpener};
use crate::member::adopt::{self, Damaged};
use crate::member::label::{self, Label};

/// A directory with a label that can be read.
pub struct Labelled {
    pub path: PathBuf,
    pub disk: Arc<dyn DiskIo>,
    pub label: Label,
    /// Only the second copy could be read.
    pub second: bool,
}

/// The labels found in some directories.
#[derive(Default)]
pub struct Directories {
    pub labelled: Vec<Labelled>,
    pub damaged: Vec<Damaged>,
    /// Where nothing answers.
    pub hanging: Vec<PathBuf>,
    /// Why others cannot be used.
    pub notes: Vec<String>,
}

pub fn read_labels(opener: &dyn DiskOpener, paths: &[PathBuf]) -> Directories {
    let Directories { mut labelled, mut damaged, mut hanging, mut notes } = Directories::default();
    let mut seen = Vec::new();
    for path in paths {
        let path = absolute(path);
        let disk = match opener.open_disk(&path) {
            Ok(disk) => disk,
            Err(error) => {
                notes.push(format!("{}: {error}", path.display()));
                hanging.extend((error.kind() == std::io::ErrorKind::TimedOut).then_some(path));
                continue;
            }
        };
        let identity = disk.identity().ok();
        if identity.is_some() && seen.contains(&identity) {
            continue;
        }
        seen.push(identity);
        match label::read_copies(&*disk) {
            Ok(Ok((label, second))) => labelled.push(Labelled { path, disk, label, second }),
            Ok(Err(label::NEWER)) => notes.push(format!("{}: {}", path.display(), label::NEWER)),
            Ok(Err(why)) => damaged.push(Damaged { path, disk, why }),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && adopt::is_in_use(&*disk) => {
                damaged.push(Damaged { path, disk, why: adopt::UNLABELLED });
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                notes.push(no_larder_disk(&path));
            }
            Err(error) => {
                notes.push(format!("{}: {error}", path.display()));
                hanging.extend((error.kind() == std::io::ErrorKind::TimedOut).then_some(path));
            }
        }
    }
    Directories { labelled, damaged, hanging, notes }
}

pub fn no_larder_disk(path: &Path) -> String {
    format!("{}: no larder disk", path.display())
}

pub fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}
