//! Local mounts of the daemon's volumes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use larder_api::{Failure, FailureKind, MountStatus};
use larder_base::shell;
use larder_serve::fuse::{FuseMount, MountOptions, clear_remains};
use larder_volume::Volume;
use parking_lot::Mutex;

use super::{translate, users};
use crate::config::VolumeName;

/// Mounts of one daemon beyond this are refused.
const MOUNTS_MAX: usize = 64;

/// Users of a mount that are named.
const NAMED_MAX: usize = 5;

/// Cheap to clone: all clones are one.
#[derive(Clone, Default)]
pub(crate) struct Mounts {
    mounts: Arc<Mutex<BTreeMap<PathBuf, Mounted>>>,
}

struct Mounted {
    name: VolumeName,
    volume: Volume,
    read_only: bool,
    fuse: Arc<FuseMount>,
    /// Forgets the mount when somebody took it away with `umount`; holds `fuse` meanwhile.
    watcher: tokio::task::JoinHandle<()>,
}

impl Mounts {
    pub(crate) async fn add(
        &self,
        name: VolumeName,
        volume: Volume,
        dir: &Path,
        options: MountOptions,
    ) -> Result<MountStatus, Failure> {
        let (show, word) = (dir.display().to_string(), shell::word(dir));
        let dir = clear_remains(dir).and_then(|_| dir.canonicalize()).map_err(|e| {
            Failure::io(format_args!("cannot mount on {show}"), &e).action(format!("make the folder: mkdir -p {word}"))
        })?;
        self.check_room(&dir)?;
        let read_only = options.read_only;
        let (runtime, target, served) = (tokio::runtime::Handle::current(), dir.clone(), volume.clone());
        let mounted = tokio::task::spawn_blocking(move || FuseMount::mount(served, &target, options, runtime)).await;
        let fuse = mounted
            .map_err(|e| Failure::internal(format!("mounting on {show} crashed: {e}")))?
            .map_err(|e| mount_failure(&show, &e))?;
        let fuse = Arc::new(fuse);
        // Under the lock, so that a mount that ends at once is forgotten after it was entered.
        let mut mounts = self.mounts.lock();
        let watcher = self.watch(dir.clone(), fuse.clone());
        let mounted = Mounted { name, volume, read_only, fuse, watcher };
        let status = status(&dir, &mounted);
        mounts.insert(dir, mounted);
        Ok(status)
    }

    fn check_room(&self, dir: &Path) -> Result<(), Failure> {
        let mounts = self.mounts.lock();
        if mounts.contains_key(dir) {
            let show = dir.display();
            let failure = Failure::new(FailureKind::Exists, format!("{show} is a mount of larder already"));
            return Err(failure.action(format!("take it away first: larder umount {show}")));
        }
        if mounts.len() >= MOUNTS_MAX {
            return Err(Failure::new(FailureKind::Busy, format!("there are {MOUNTS_MAX} mounts already")));
        }
        Ok(())
    }

    fn watch(&self, dir: PathBuf, fuse: Arc<FuseMount>) -> tokio::task::JoinHandle<()> {
        let mounts = self.mounts.clone();
        tokio::spawn(async move {
            fuse.ended().await;
            let mut all = mounts.lock();
            let gone = match all.get(&dir).is_some_and(|m| Arc::ptr_eq(&m.fuse, &fuse)) {
                true => all.remove(&dir),
                false => None,
            };
            drop(all);
            // Dropping may block, so never on a thread of the runtime.
            tokio::task::spawn_blocking(move || drop((gone, fuse)));
        })
    }

    pub(crate) fn list(&self) -> Vec<MountStatus> {
        self.mounts.lock().iter().map(|(dir, mounted)| status(dir, mounted)).collect()
    }

    /// Takes the mount on `dir` away, unless a file is open there. As with any filesystem, what was written is
    /// durable afterwards.
    pub(crate) async fn remove(&self, dir: &Path) -> Result<(), Failure> {
        let found = self.mounts.lock().get(dir).map(|mounted| (mounted.fuse.clone(), mounted.volume.clone()));
        let Some((fuse, volume)) = found else {
            return Err(Failure::not_found(format!("{} is not a mount of this larder", dir.display()))
                .action("see those there are with: findmnt -t fuse,fuse.larder"));
        };
        self.take_away(dir, fuse).await?;
        let unsafe_yet = format!("{} is unmounted, but what was written is not durable yet", dir.display());
        volume.sync().await.map_err(|e| translate::volume_failure(unsafe_yet, &e))
    }

    async fn take_away(&self, dir: &Path, fuse: Arc<FuseMount>) -> Result<(), Failure> {
        let done = tokio::task::spawn_blocking(move || fuse.unmount()).await;
        match done {
            Ok(Ok(())) => {
                drop(self.mounts.lock().remove(dir));
                Ok(())
            }
            Ok(Err(e)) => {
                let of_task = dir.to_owned();
                let looked = tokio::task::spawn_blocking(move || in_use(&of_task)).await;
                Err(looked.ok().flatten().unwrap_or_else(|| {
                    Failure::io(format_args!("cannot unmount {}", dir.display()), &e)
                        .action(format!("see who is in it with: fuser -vm {}", dir.display()))
                }))
            }
            Err(e) => Err(Failure::internal(format!("unmounting {} crashed: {e}", dir.display()))),
        }
    }

    /// Takes those of one pool away; while a program uses one of them nothing changes.
    pub(crate) async fn remove_unused_of(&self, matches: impl Fn(&VolumeName) -> bool) -> Result<(), Failure> {
        let found: Vec<_> = {
            let mounts = self.mounts.lock();
            let found = mounts.iter().filter(|(_, mounted)| matches(&mounted.name));
            found.map(|(dir, mounted)| (dir.clone(), mounted.fuse.clone())).collect()
        };
        let dirs: Vec<PathBuf> = found.iter().map(|(dir, _)| dir.clone()).collect();
        let looked = tokio::task::spawn_blocking(move || dirs.iter().find_map(|dir| in_use(dir))).await;
        if let Ok(Some(failure)) = looked {
            return Err(failure);
        }
        for (dir, fuse) in found {
            self.take_away(&dir, fuse).await?;
        }
        Ok(())
    }

    /// Takes those of one volume or pool away, with files open or not: their holders get errors.
    pub(crate) async fn remove_of(&self, matches: impl Fn(&VolumeName) -> bool) {
        let found: Vec<_> = self
            .mounts
            .lock()
            .iter()
            .filter(|(_, m)| matches(&m.name))
            .map(|(d, m)| (d.clone(), m.fuse.clone()))
            .collect();
        for (dir, fuse) in found {
            if let Err(failure) = self.take_away(&dir, fuse).await {
                tracing::warn!("{}: detached while in use", failure.message);
                let Some(mounted) = self.mounts.lock().remove(&dir) else { continue };
                mounted.watcher.abort();
                let _ = mounted.watcher.await;
                // The last owner detaches the mount as it goes.
                let _ = tokio::task::spawn_blocking(move || drop(mounted.fuse)).await;
            }
        }
    }
}

/// Says who uses the mount, if anybody does.
fn in_use(dir: &Path) -> Option<Failure> {
    let users = users::of(dir);
    let last = users.len().checked_sub(1)?;
    let named: Vec<String> = users.iter().take(NAMED_MAX).map(ToString::to_string).collect();
    let more = if last >= NAMED_MAX { format!(" and {} more", last + 1 - NAMED_MAX) } else { String::new() };
    let show = dir.display();
    let failure = Failure::new(FailureKind::Busy, format!("{show} is in use by {}{more}", named.join(", ")));
    Some(failure.action("end what uses it, then try again"))
}

fn status(dir: &Path, mounted: &Mounted) -> MountStatus {
    MountStatus { dir: dir.to_owned(), volume: mounted.name.to_string(), read_only: mounted.read_only }
}

/// What the kernel says of a mount whose server is gone.
pub(crate) fn is_dead(error: &std::io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::NOTCONN.raw_os_error())
}

fn mount_failure(show: &str, error: &std::io::Error) -> Failure {
    let mut failure = Failure::io(format_args!("cannot mount on {show}"), error);
    if error.to_string().starts_with("cannot mount") {
        failure.message = error.to_string();
    }
    match Path::new("/dev/fuse").exists() {
        true => failure,
        false => failure.action("this kernel has no FUSE: load it with: sudo modprobe fuse; or: apt install fuse3"),
    }
}
