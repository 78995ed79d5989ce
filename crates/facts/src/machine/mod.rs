//! The machine as the kernel describes it: this one, or a recorded copy of another.
//!
//! A recorded copy is a folder that holds parts of `/sys`, `/proc` and `/run/udev` under their own names, and what
//! other programs said under `tools/PROGRAM/SUBJECT`. It never looks outside of itself.

use std::fs;
use std::io::Read;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, OnceLock};

mod block;
#[cfg(test)]
pub(crate) mod fixture;
mod layers;
mod links;
mod mounts;
pub(crate) mod proc;
pub(crate) mod quota;
mod self_test;
mod smart;
mod tool;
mod zfs;
mod zpool;

pub(crate) use block::Udev;
pub use block::{BlockDevice, Bus, Curtain, Medium, Serial, WriteCache, whole_devices};
pub use layers::MEMORY_FILESYSTEMS;
pub use layers::{Arrangement, Below};
pub use links::{PcieLink, SataPort, UsbBridge, UsbDriver};
pub use mounts::{Mount, Mounts};
pub use self_test::{SelfTest, TestLength, TestOutcome};
pub use smart::{Smart, SmartAnswer};
pub use tool::{ToolError, ToolOutput};
pub use zfs::ArcStats;
pub use zpool::{Vdev, ZfsPool};

/// Nothing in /sys or /proc that we ask for is longer.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// A machine with more disks than this is not a home's.
const ENTRIES_MAX: usize = 4096;

#[derive(Clone, Debug)]
pub struct Machine {
    root: PathBuf,
    live: bool,
    /// Asked for once: a program has to be run for it, and many mounts lie on each.
    zfs: Arc<OnceLock<Vec<ZfsPool>>>,
}

impl Machine {
    /// The one we run on.
    pub fn this() -> Self {
        Self { root: PathBuf::from("/"), live: true, zfs: Arc::default() }
    }

    /// A recorded copy.
    pub fn recorded(root: &Path) -> std::io::Result<Self> {
        Ok(Self { root: root.canonicalize()?, live: false, zfs: Arc::default() })
    }

    /// One of which nothing can be read: that of a result which somebody kept.
    pub fn unknown() -> Self {
        Self { root: PathBuf::from("/proc/self/no-machine"), live: false, zfs: Arc::default() }
    }

    /// Whether paths, statistics and programs are those of this machine.
    pub fn is_live(&self) -> bool {
        self.live
    }

    /// The text of a small file without blanks around it; `None` when it is not there, or not for us.
    pub fn read(&self, path: impl AsRef<Path>) -> Option<String> {
        let bytes = self.read_bytes(path)?;
        Some(String::from_utf8_lossy(&bytes).trim().to_owned())
    }

    pub fn read_bytes(&self, path: impl AsRef<Path>) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        fs::File::open(self.inside(path.as_ref())?).ok()?.take(FILE_BYTES_MAX).read_to_end(&mut bytes).ok()?;
        Some(bytes)
    }

    pub fn number(&self, path: impl AsRef<Path>) -> Option<u64> {
        self.read(path)?.parse().ok()
    }

    /// `1` and `0`, as the kernel writes yes and no.
    pub fn flag(&self, path: impl AsRef<Path>) -> Option<bool> {
        self.number(path).map(|n| n != 0)
    }

    /// The path once links are followed.
    pub fn real(&self, path: impl AsRef<Path>) -> Option<PathBuf> {
        self.inside(path.as_ref()).map(|real| self.outside(&real))
    }

    pub fn exists(&self, path: impl AsRef<Path>) -> bool {
        self.inside(path.as_ref()).is_some()
    }

    /// Names in a folder, in order; none when it is not there.
    pub fn list(&self, path: impl AsRef<Path>) -> Vec<String> {
        let Some(entries) = self.inside(path.as_ref()).and_then(|dir| fs::read_dir(dir).ok()) else {
            return Vec::new();
        };
        let mut names: Vec<String> =
            entries.flatten().take(ENTRIES_MAX).filter_map(|e| e.file_name().into_string().ok()).collect();
        names.sort();
        names
    }

    /// The last component of what a link points to, such as a driver's name.
    pub fn link_name(&self, path: impl AsRef<Path>) -> Option<String> {
        self.real(path)?.file_name()?.to_str().map(str::to_owned)
    }

    /// The target of a link, whether it exists or not.
    pub fn link_target(&self, path: impl AsRef<Path>) -> Option<PathBuf> {
        let folder = self.inside(path.as_ref().parent()?)?;
        let target = fs::read_link(folder.join(path.as_ref().file_name()?)).ok()?;
        if target.is_absolute() {
            return Some(target);
        }
        let mut whole = PathBuf::from("/");
        for part in self.outside(&folder).join(target).components() {
            match part {
                Component::ParentDir => drop(whole.pop()),
                Component::Normal(name) => whole.push(name),
                _ => {}
            }
        }
        Some(whole)
    }

    /// The output of a program about a subject (a device): run here, or as it was recorded.
    pub fn run(&self, program: &str, args: &[&str], subject: &str) -> Result<ToolOutput, ToolError> {
        if self.live {
            return tool::run(program, args, tool::QUESTION_TIME_MAX);
        }
        let said = self.read_bytes(Path::new("/tools").join(program).join(subject));
        said.map(|stdout| ToolOutput { code: Some(0), stdout, stderr: String::new() })
            .ok_or(ToolError::Missing { program: program.to_owned() })
    }

    /// Has a program do something to this machine, which may take hours. A recorded machine does nothing.
    pub fn work(&self, program: &str, args: &[&str]) -> Result<ToolOutput, ToolError> {
        match self.live {
            true => tool::run(program, args, tool::WORK_TIME_MAX),
            false => Err(ToolError::Missing { program: program.to_owned() }),
        }
    }

    /// The file behind a path, to write to. Only for functions that were asked to change something
    /// (`facts.looking_changes_nothing`).
    pub fn place(&self, path: impl AsRef<Path>) -> Option<PathBuf> {
        self.inside(path.as_ref())
    }

    /// The path of a program of this machine, looked for in the system's folders. A recorded machine has none.
    pub fn program(&self, name: &str) -> Option<PathBuf> {
        if self.live { tool::find(name) } else { None }
    }

    pub fn mounts(&self) -> Mounts {
        Mounts::parse(&self.read("/proc/self/mountinfo").unwrap_or_default())
    }

    /// The path as the machine knows it.
    fn outside(&self, real: &Path) -> PathBuf {
        real.strip_prefix(&self.root).map_or_else(|_| real.to_owned(), |inner| Path::new("/").join(inner))
    }

    /// The file behind a path, links followed; a recorded copy refuses to be led out of itself.
    fn inside(&self, path: &Path) -> Option<PathBuf> {
        let inner: PathBuf = path.components().filter(|c| !matches!(c, Component::RootDir)).collect();
        let real = self.root.join(inner).canonicalize().ok()?;
        (self.live || real.starts_with(&self.root)).then_some(real)
    }
}
