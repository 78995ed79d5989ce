//! Folders of the host that are copied into volumes, each on threads of its own.
//!
//! The process that has the pool open reads the folder itself. The socket is open to its owner alone, so nobody gets to read
//! through the daemon what this user may not read anyway.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::BoxStream;
use larder_api::{Failure, FailureKind, ImportEvent, ImportFault, ImportProgress, ImportReport, ImportRequest};
use larder_base::task;
use larder_files::Files;
use larder_fs::{Cred, FileKind, FsError, Ino, NameMatch, SetAttr};
use larder_import::{Failed, Fault, Options, Phase, Progress, Report};
use larder_keep::Store;
use tokio::task::JoinHandle;

use larder_config::check_folder;

/// The tag of changes by imports in events.
const ORIGIN: u32 = u32::from_be_bytes(*b"IMPT");
/// How often progress is told.
const TELL_EVERY: Duration = Duration::from_millis(500);
/// A folder made on the way to the one that is filled.
const FOLDER_MODE: u32 = 0o755;

/// Stops the import when nobody waits for its outcome any more.
struct Running {
    progress: Arc<Progress>,
    task: Option<JoinHandle<Result<Report, Failed>>>,
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.task.is_some() {
            self.progress.stop();
        }
    }
}

/// Places of this larder that must not be copied into itself.
#[derive(Clone, Default)]
pub struct Own {
    pub disks: Vec<PathBuf>,
    pub mounts: Vec<PathBuf>,
}

/// Begins to copy the folder. The stream ends with the outcome; to drop it stops the import.
pub async fn import(
    store: Arc<Store>,
    volume: &str,
    request: ImportRequest,
    own: Own,
) -> Result<BoxStream<'static, ImportEvent>, Failure> {
    let folder = request.folder.as_deref().map(check_folder).transpose().map_err(Failure::invalid)?;
    let dir = request.dir.clone();
    let avoided = task::blocking(move || avoided(&dir, &own)).await;
    let avoided = avoided.map_err(|error| Failure::internal(error.to_string()))??;
    let files = store.files(volume).await?.for_door(ORIGIN);
    let to = destination(&files, folder.as_deref().unwrap_or_default(), request.dry_run).await;
    let to = to.map_err(|error| match error {
        FsError::NotDirectory => Failure::invalid(format!(
            "'{}' is no folder in {}/{volume}",
            folder.clone().unwrap_or_default(),
            store.name
        )),
        error => store.failure(volume, &error),
    })?;
    let progress = Arc::<Progress>::default();
    store.imports.begin(&progress);
    let importing = store.uses.begin(volume, format!("the import of {}", request.dir.display()));
    let options = Options {
        cross: request.cross,
        delete: request.delete,
        overwrite: request.overwrite,
        verify: request.verify,
        dry_run: request.dry_run,
        avoided,
    };
    let (own, source, service) = (Arc::clone(&progress), request.dir.clone(), files.clone());
    let task = store.imports.tasks.spawn_blocking(move || {
        let _use = importing;
        larder_import::run(&source, service, to, options, &own)
    });
    let running = Running { progress, task: Some(task) };
    let volume = volume.to_owned();
    let events = futures::stream::unfold(running, move |mut running| {
        let (pool, volume, request, files) = (Arc::clone(&store), volume.clone(), request.clone(), files.clone());
        async move {
            let task = running.task.as_mut()?;
            let event = match tokio::time::timeout(TELL_EVERY, task).await {
                Err(_) => ImportEvent::Progress(told(&running.progress)),
                Ok(ended) => {
                    running.task = None;
                    match ended {
                        Ok(Ok(report)) => ImportEvent::Done(reported(&pool, &volume, &request, report, &files)),
                        Ok(Err(failed)) => ImportEvent::Failed(import_failed(&pool, &volume, &request.dir, failed)),
                        Err(error) => ImportEvent::Failed(Failure::internal(error.to_string())),
                    }
                }
            };
            Some((event, running))
        }
    });
    Ok(events.boxed())
}

fn reported(store: &Store, volume: &str, request: &ImportRequest, report: Report, files: &Files) -> ImportReport {
    ImportReport {
        pool: store.name.clone(),
        volume: volume.to_owned(),
        folder: request.folder.clone(),
        dry_run: request.dry_run,
        directories: report.directories,
        files_copied: report.copied_files,
        bytes_copied: report.copied_bytes,
        symlinks: report.symlinks,
        specials: report.specials,
        links: report.links,
        attributes: report.attributes,
        unchanged: report.unchanged,
        removed: report.removed,
        files_verified: report.verified_files,
        bytes_verified: report.verified_bytes,
        available_bytes: files.statfs(&Cred::root()).available_bytes,
        left_out: report.left_out.iter().map(fault).collect(),
        faults: report.faults.iter().map(fault).collect(),
        faults_total: report.faults_total,
    }
}

fn import_failed(store: &Store, volume: &str, dir: &Path, failed: Failed) -> Failure {
    const AGAIN: &str = "; what has been copied is kept, and the same command goes on";
    match failed {
        Failed::Folder(error) => unreadable(dir, &error.into()),
        Failed::Empty => {
            Failure::invalid(format!("{} is empty, and --delete would remove all that was imported", dir.display()))
                .action("mount it, or remove the folder in the volume by hand")
        }
        Failed::Volume(error) => {
            let failure = store.failure(volume, &error);
            Failure { message: format!("{}{AGAIN}", failure.message), ..failure }
        }
        Failed::Stopped => Failure::unavailable(format!("the import was stopped{AGAIN}")),
    }
}

fn unreadable(dir: &Path, error: &std::io::Error) -> Failure {
    let failure = Failure::io(dir.display(), error);
    let uid = rustix::process::geteuid();
    match failure.kind {
        FailureKind::Denied if !uid.is_root() => failure.action(format!(
            "larder reads it as the user with uid {}, who may not: let that user read it, or run larder as root",
            uid.as_raw()
        )),
        _ => failure,
    }
}

/// Directories that are not entered: the disks of pools. Refuses a folder that is part of this larder.
fn avoided(dir: &Path, own: &Own) -> Result<Vec<larder_import::DirectoryId>, Failure> {
    let id = |path: &Path| larder_import::directory_id(path);
    let (device, _) = id(dir).map_err(|error| unreadable(dir, &error))?;
    let disks: Vec<_> = own.disks.iter().filter_map(|disk| id(disk).ok()).collect();
    let real = dir.canonicalize().map_err(|error| unreadable(dir, &error))?;
    if real.ancestors().filter_map(|above| id(above).ok()).any(|above| disks.contains(&above)) {
        return Err(Failure::invalid(format!("{} lies on a disk of a pool", dir.display())).action(
            "files of a pool that cannot be opened are read back with: larder recover --disk DIR... --to DIR",
        ));
    }
    if own.mounts.iter().filter_map(|mount| id(mount).ok()).any(|(mounted, _)| mounted == device) {
        return Err(Failure::invalid(format!("{} is a volume of this larder, mounted here", dir.display()))
            .action("copy within a mount with cp -a; a whole volume with: larder snap clone"));
    }
    Ok(disks)
}

/// The directory to fill, made where it is missing; `None` in a dry run that would make it.
async fn destination(files: &Files, folder: &str, dry_run: bool) -> Result<Option<Ino>, FsError> {
    let (root, cred) = (files.getattr(Ino::ROOT).await?, Cred::root());
    let mut at = Ino::ROOT;
    for name in folder.split('/').filter(|part| !part.is_empty()) {
        at = match files.lookup(&cred, at, name.as_bytes(), NameMatch::Exact).await {
            Ok(attr) if attr.kind == FileKind::Directory => attr.id.ino,
            Ok(_) => return Err(FsError::NotDirectory),
            Err(FsError::NotFound) if dry_run => return Ok(None),
            Err(FsError::NotFound) => {
                let (mode, uid, gid) = (Some(FOLDER_MODE), Some(root.uid), Some(root.gid));
                let set = SetAttr { mode, uid, gid, ..SetAttr::default() };
                files.mkdir(&cred, at, name.as_bytes(), set).await?.0.id.ino
            }
            Err(error) => return Err(error),
        };
    }
    Ok(Some(at))
}

fn told(progress: &Progress) -> ImportProgress {
    let seen = progress.look();
    let phase = match seen.phase {
        Phase::Copying => "copying",
        Phase::Flushing => "flushing",
        Phase::Verifying => "verifying",
    };
    ImportProgress {
        phase: phase.to_owned(),
        files_total: seen.total.map(|(files, _)| files),
        bytes_total: seen.total.map(|(_, bytes)| bytes),
        files_seen: seen.seen.0,
        bytes_seen: seen.seen.1,
        files_copied: seen.copied.0,
        bytes_copied: seen.copied.1,
        files_verified: seen.verified.0,
        bytes_verified: seen.verified.1,
        faults: seen.faults,
    }
}

fn fault(fault: &Fault) -> ImportFault {
    ImportFault { path: text(fault.path.as_os_str().as_bytes()), why: fault.why.clone() }
}

/// A path as text: what is no UTF-8 is shown as \xNN. The folder itself is a dot.
fn text(path: &[u8]) -> String {
    if path.is_empty() {
        return ".".to_owned();
    }
    let mut text = String::new();
    for chunk in path.utf8_chunks() {
        text.push_str(chunk.valid());
        chunk.invalid().iter().for_each(|byte| text.push_str(&format!("\\x{byte:02x}")));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::text;

    #[test]
    fn paths_of_any_bytes_are_text() {
        assert_eq!(text(b""), ".");
        assert_eq!(text("a/b ä".as_bytes()), "a/b ä");
        assert_eq!(text(b"a\xff/b\xc3"), "a\\xff/b\\xc3");
    }
}
