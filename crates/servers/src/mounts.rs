//! Local mounts of the daemon's volumes.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use larder_api::{Failure, MountStatus};
use larder_base::{shell, task};
use larder_document::{Kind, Standing, Standings, Wait};
use larder_files::Files;
use larder_fuse::{FuseMount, MountOptions, clear_remains};
use larder_keep::Storage;
use parking_lot::Mutex;

use crate::processes;
use larder_config::edit::{Saved, Staged};
use larder_config::{MountConfig, VolumeName, mount_options};

/// Mounts of one daemon beyond this are refused.
const MOUNTS_MAX: usize = 64;

/// Users of a mount that are named.
const NAMED_MAX: usize = 5;

/// Cheap to clone: all clones are one.
#[derive(Clone)]
pub struct Mounts {
    storage: Arc<Storage>,
    standings: Standings,
    mounts: Arc<Mutex<Vec<Mounted>>>,
    /// Those of volumes that are closed for a moment.
    aside: Arc<Mutex<Vec<MountConfig>>>,
}

struct Mounted {
    /// As it was asked for; its folder may be a link.
    wanted: MountConfig,
    files: Files,
    read_only: bool,
    for_others: bool,
    fuse: Arc<FuseMount>,
    /// Forgets the mount when its connection has ended; holds `fuse` meanwhile.
    watcher: tokio::task::JoinHandle<()>,
}

impl Mounted {
    fn is_at(&self, dir: &Path) -> bool {
        (self.fuse.dir() == dir || self.wanted.dir == dir) && self.fuse.is_mounted()
    }

    fn status(&self) -> MountStatus {
        let dir = self.fuse.dir().to_owned();
        let (volume, snapshot) = (self.wanted.volume.to_string(), self.wanted.snapshot.clone());
        MountStatus { dir, volume, snapshot, read_only: self.read_only, at_start: false }
    }
}

/// A mount, for a person who asks what may be done through it.
pub struct MountedAt {
    pub dir: PathBuf,
    pub read_only: bool,
    /// Other users than the one larder runs as may enter it.
    pub for_others: bool,
}

impl Mounts {
    pub fn new(storage: &Arc<Storage>, standings: &Standings) -> Self {
        let (mounts, aside) = Default::default();
        Self { storage: Arc::clone(storage), standings: standings.clone(), mounts, aside }
    }

    /// Makes mounts again that were taken away. One that fails is only told.
    pub async fn make_again(&self, wanted: impl Iterator<Item = &MountConfig>) {
        for mount in wanted {
            if let Err(failure) = self.make(mount).await {
                tracing::error!("{} is not mounted: {}", mount.dir.display(), failure.message);
            }
        }
    }

    pub async fn make(&self, wanted: &MountConfig) -> Result<MountStatus, Failure> {
        let options = mount_options(&wanted.options).map_err(Failure::invalid)?;
        let files = self.storage.files(&wanted.volume).await?;
        let mut options = MountOptions { source: wanted.volume.to_string(), ..options };
        if let Some(snapshot) = &wanted.snapshot {
            let name = format!("{}@{snapshot}", wanted.volume);
            let found = self.storage.volume(&wanted.volume).await?.snapshot_root(snapshot).await;
            options.top = found.map_err(|error| larder_keep::snapshot_words::snapshot_error(&name, &error))?.id.ino;
            options.read_only = true;
            options.source = name;
        }
        self.add(wanted, files, options).await
    }

    /// Saves the file. With the words for doing it anyway, mounts go away first, or refuse it while
    /// a program uses one. Where the file is not saved, they are made again.
    pub async fn commit_unmounted(
        &self,
        staged: Staged,
        of: impl Fn(&VolumeName) -> bool,
        anyway: Option<String>,
    ) -> Result<Saved, Failure> {
        let before = self.wanted_of(&of);
        let unmounted = match anyway {
            Some(anyway) => self.unmount_unused(&of, anyway).await,
            None => Ok(()),
        };
        let failure = match unmounted {
            Ok(()) => match staged.commit() {
                Ok(saved) => return Ok(saved),
                Err(failure) => failure,
            },
            Err(failure) => failure,
        };
        let still = self.wanted_of(&of);
        self.make_again(before.iter().filter(|mount| !still.contains(mount))).await;
        Err(failure)
    }

    pub async fn unmount_unused(&self, of: impl Fn(&VolumeName) -> bool, anyway: String) -> Result<(), Failure> {
        let busy = self.remove_unused_of(of).await;
        busy.map_err(|in_use| in_use.action(format!("end what uses it, or take it away: {anyway}")))
    }

    /// The mounts of a volume as it is now.
    pub fn of(&self, name: &VolumeName) -> Vec<MountedAt> {
        let at = |mounted: &Mounted| MountedAt {
            dir: mounted.fuse.dir().to_owned(),
            read_only: mounted.read_only,
            for_others: mounted.for_others,
        };
        let is_of = |mounted: &&Mounted| {
            mounted.wanted.volume == *name && mounted.wanted.snapshot.is_none() && mounted.fuse.is_mounted()
        };
        self.mounts.lock().iter().filter(is_of).map(at).collect()
    }

    /// Mounts a volume, or a snapshot of it.
    async fn add(&self, wanted: &MountConfig, files: Files, options: MountOptions) -> Result<MountStatus, Failure> {
        let dir = &wanted.dir;
        let (show, word) = (dir.display().to_string(), shell::word(dir));
        let dir = clear_remains(dir).and_then(|_| dir.canonicalize()).map_err(|e| {
            Failure::io(format_args!("cannot mount on {show}"), &e).action(format!("make the folder: mkdir -p {word}"))
        })?;
        self.check_room(&dir)?;
        let (read_only, for_others) = (options.read_only, options.allow_other);
        let (runtime, target, served) = (tokio::runtime::Handle::current(), dir.clone(), files.clone());
        let mounted = task::blocking(move || FuseMount::mount(served, &target, options, runtime)).await;
        let fuse = mounted
            .map_err(|e| Failure::internal(format!("mounting on {show} crashed: {e}")))?
            .map_err(|e| mount_failure(&show, &e))?;
        let fuse = Arc::new(fuse);
        // Under the lock, so that a mount that ends at once is forgotten after it was entered.
        let mut mounts = self.mounts.lock();
        let watcher = self.watch(fuse.clone());
        let mounted = Mounted { wanted: wanted.clone(), files, read_only, for_others, fuse, watcher };
        let status = mounted.status();
        mounts.push(mounted);
        self.standings.set_known(Kind::Mount, &show, Standing::Ok);
        Ok(status)
    }

    fn check_room(&self, dir: &Path) -> Result<(), Failure> {
        let mounts = self.mounts.lock();
        if mounts.iter().any(|mounted| mounted.is_at(dir)) {
            let show = dir.display();
            let failure = Failure::exists(format!("{show} is a mount of larder already"));
            return Err(failure.action(format!("take it away first: larder umount {show}")));
        }
        if mounts.len() >= MOUNTS_MAX {
            return Err(Failure::busy(format!("there are {MOUNTS_MAX} mounts already")));
        }
        Ok(())
    }

    fn watch(&self, fuse: Arc<FuseMount>) -> tokio::task::JoinHandle<()> {
        let mounts = self.clone();
        task::spawn(async move {
            fuse.ended().await;
            let gone = mounts.forget(&fuse);
            // Dropping may block, so never on a thread of the runtime.
            task::blocking(move || drop((gone, fuse)));
        })
    }

    fn forget(&self, fuse: &Arc<FuseMount>) -> Option<Mounted> {
        let mut mounts = self.mounts.lock();
        let at = mounts.iter().position(|mounted| Arc::ptr_eq(&mounted.fuse, fuse))?;
        Some(mounts.remove(at))
    }

    /// Those of the mount table. One that somebody took away may live on where a program or another mount namespace holds it.
    pub fn list(&self) -> Vec<MountStatus> {
        let mut list: Vec<_> =
            self.mounts.lock().iter().filter(|mounted| mounted.fuse.is_mounted()).map(Mounted::status).collect();
        list.sort_by(|a, b| a.dir.cmp(&b.dir));
        list
    }

    /// The mount of one of these snapshots, if there is one: the snapshot and the folder.
    pub fn of_snapshot(&self, volume: &VolumeName, names: &[String]) -> Option<(String, PathBuf)> {
        let mounts = self.mounts.lock();
        mounts.iter().filter(|mounted| mounted.wanted.volume == *volume && mounted.fuse.is_mounted()).find_map(
            |mounted| {
                let snapshot = mounted.wanted.snapshot.clone().filter(|snapshot| names.contains(snapshot))?;
                Some((snapshot, mounted.fuse.dir().to_owned()))
            },
        )
    }

    pub fn is_mounted(&self, dir: &Path) -> bool {
        self.mounts.lock().iter().any(|mounted| mounted.is_at(dir))
    }

    /// Takes the mount on `dir` away, unless a file is open there. As with any filesystem, what was written is
    /// durable afterwards.
    pub async fn remove(&self, dir: &Path) -> Result<(), Failure> {
        let found = {
            let mounts = self.mounts.lock();
            let mounted = mounts.iter().find(|mounted| mounted.is_at(dir));
            mounted.map(|mounted| (mounted.fuse.clone(), mounted.files.clone()))
        };
        let Some((fuse, files)) = found else {
            return Err(Failure::not_found(format!("{} is not a mount of this larder", dir.display()))
                .action("see those there are with: findmnt -t fuse,fuse.larder"));
        };
        self.take_away(fuse).await?;
        let unsafe_yet = format!("{} is unmounted, but what was written is not durable yet", dir.display());
        files.sync().await.map_err(|e| larder_keep::translate::volume_error(unsafe_yet, &e))
    }

    async fn take_away(&self, fuse: Arc<FuseMount>) -> Result<(), Failure> {
        let dir = fuse.dir().to_owned();
        let mount = fuse.clone();
        let done = task::blocking(move || mount.unmount()).await;
        match done {
            Ok(Ok(())) => {
                drop(self.forget(&fuse));
                Ok(())
            }
            Ok(Err(e)) => {
                let of_task = dir.clone();
                let looked = task::blocking(move || in_use(&of_task)).await;
                Err(looked.ok().flatten().unwrap_or_else(|| {
                    Failure::io(format_args!("cannot unmount {}", dir.display()), &e)
                        .action(format!("see who is in it with: sudo fuser -vm {}", dir.display()))
                }))
            }
            Err(e) => Err(Failure::internal(format!("unmounting {} crashed: {e}", dir.display()))),
        }
    }

    /// As they were asked for.
    pub fn wanted_of(&self, matches: impl Fn(&VolumeName) -> bool) -> Vec<MountConfig> {
        let mounts = self.mounts.lock();
        let of_it = mounts.iter().filter(|mounted| matches(&mounted.wanted.volume) && mounted.fuse.is_mounted());
        of_it.map(|mounted| mounted.wanted.clone()).collect()
    }

    /// Remembers the mounts of a volume that is about to close for a moment, until [`Mounts::take_aside`].
    pub fn set_aside(&self, of: &VolumeName) {
        let mounts = self.mounts.lock();
        let of_it = mounts.iter().filter(|mounted| mounted.wanted.volume == *of && mounted.fuse.is_mounted());
        let mut aside = self.aside.lock();
        for mounted in of_it {
            aside.retain(|other| other.dir != mounted.wanted.dir);
            aside.push(mounted.wanted.clone());
        }
    }

    /// What was set aside of a volume.
    pub fn take_aside(&self, of: &VolumeName) -> Vec<MountConfig> {
        let mut aside = self.aside.lock();
        let (taken, left) = aside.drain(..).partition(|mount| mount.volume == *of);
        *aside = left;
        taken
    }

    /// The mount on `dir`, as it was asked for.
    pub fn wanted_at(&self, dir: &Path) -> Option<MountConfig> {
        self.mounts.lock().iter().find(|mounted| mounted.is_at(dir)).map(|mounted| mounted.wanted.clone())
    }

    /// With the folders by which the file may name them.
    fn found(&self, matches: impl Fn(&VolumeName) -> bool) -> Vec<(PathBuf, Arc<FuseMount>)> {
        let mounts = self.mounts.lock();
        let of_it = mounts.iter().filter(|mounted| matches(&mounted.wanted.volume));
        of_it.map(|mounted| (mounted.wanted.dir.clone(), mounted.fuse.clone())).collect()
    }

    /// The next reconciliation makes a mount of the file again.
    fn closed(&self, dir: &Path) {
        let why = Failure::unavailable("its volume is closed for a moment");
        self.standings.set_known(Kind::Mount, &dir.display().to_string(), Standing::waits(Wait::Moment, why));
    }

    /// Takes those of one pool away; while a program uses one of them nothing changes.
    pub async fn remove_unused_of(&self, matches: impl Fn(&VolumeName) -> bool) -> Result<(), Failure> {
        let found = self.found(matches);
        let dirs: Vec<PathBuf> =
            found.iter().filter(|(_, fuse)| fuse.is_mounted()).map(|(_, fuse)| fuse.dir().to_owned()).collect();
        let looked = task::blocking(move || dirs.iter().find_map(|dir| in_use(dir))).await;
        if let Ok(Some(failure)) = looked {
            return Err(failure);
        }
        for (dir, fuse) in found {
            self.take_away(fuse).await?;
            self.closed(&dir);
        }
        Ok(())
    }

    /// Takes those of one volume or pool away, with files open or not: their holders get errors.
    pub async fn remove_of(&self, matches: impl Fn(&VolumeName) -> bool) {
        for (dir, fuse) in self.found(matches) {
            self.closed(&dir);
            if let Err(failure) = self.take_away(fuse.clone()).await {
                tracing::warn!("{}: detached while in use", failure.message);
                let mounted = self.forget(&fuse);
                if let Some(mounted) = mounted {
                    mounted.watcher.abort();
                    let _ = mounted.watcher.await;
                }
                // The last owner detaches the mount as it goes, which may block.
                let _ = task::blocking(move || drop(fuse)).await;
            }
        }
    }
}

/// Says who uses the mount, if anybody does.
fn in_use(dir: &Path) -> Option<Failure> {
    let users = processes::of(dir);
    let last = users.len().checked_sub(1)?;
    let named: Vec<String> = users.iter().take(NAMED_MAX).map(ToString::to_string).collect();
    let more = if last >= NAMED_MAX { format!(" and {} more", last + 1 - NAMED_MAX) } else { String::new() };
    let show = dir.display();
    let failure = Failure::busy(format!("{show} is in use by {}{more}", named.join(", ")));
    Some(failure.action("end what uses it, then try again"))
}

/// Whether this is the kernel's error for a mount whose server is gone.
pub fn is_dead(error: &std::io::Error) -> bool {
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
