//! Folders that a bench writes into, and what is left of one that was killed.
//!
//! `.larder-bench-XXXX` in the folder that is measured, with a marker file in it that says who made it, and that its
//! maker holds locked as long as it runs. Only a folder of our own user whose marker says that its maker ran on this
//! machine, and is known to be gone, is taken away. What is not known never means gone.
//!
//! Whoever may write to the folder that is measured can put links and other folders in our way. So a folder is known
//! by its device and inode, not by its name, and nothing here follows a link.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, OFlags};
use serde::{Deserialize, Serialize};

use super::control::Control;
use super::error::BenchError;
use super::leftovers::Leftovers;
use super::removal::{Identity, MARKER, remove};
use crate::Machine;

const PREFIX: &str = ".larder-bench-";
const MARKER_BYTES_MAX: u64 = 4096;
const ENTRIES_MAX: usize = 100_000;
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Marker {
    program: String,
    host: String,
    /// Two machines may have one name.
    machine_id: String,
    /// Numbers of processes mean something in their namespace alone.
    pid_namespace: String,
    /// Changes with every start of the machine.
    boot: String,
    pid: u32,
    /// In clock ticks since the start of the machine: tells a process from a later one of the same number.
    pid_started: u64,
}

impl Marker {
    fn ours(machine: &Machine) -> Self {
        let pid = std::process::id();
        Self {
            program: "larder bench".to_owned(),
            host: machine.host_name().unwrap_or_default(),
            machine_id: machine.machine_id().unwrap_or_default(),
            pid_namespace: machine.pid_namespace().unwrap_or_default(),
            boot: machine.boot_id().unwrap_or_default(),
            pid,
            pid_started: machine.process_started(pid).unwrap_or(0),
        }
    }

    fn of(file: &File) -> Option<Self> {
        let mut text = String::new();
        file.take(MARKER_BYTES_MAX).read_to_string(&mut text).ok()?;
        serde_json::from_str(&text).ok().filter(|marker: &Self| marker.program == "larder bench")
    }

    /// Its maker ran here, and does no longer.
    fn is_orphan(&self, machine: &Machine) -> bool {
        let same = |theirs: &str, ours: String| !ours.is_empty() && theirs == ours;
        same(&self.host, machine.host_name().unwrap_or_default())
            && same(&self.machine_id, machine.machine_id().unwrap_or_default())
            && same(&self.pid_namespace, machine.pid_namespace().unwrap_or_default())
            && self.has_ended(machine)
    }

    fn has_ended(&self, machine: &Machine) -> bool {
        let boot = machine.boot_id().unwrap_or_default();
        if boot.is_empty() || self.boot.is_empty() {
            return false;
        }
        let gone = || !machine.exists(format!("/proc/{}", self.pid));
        let reused = |now: u64| self.pid_started > 0 && now != self.pid_started;
        boot != self.boot || machine.process_started(self.pid).map_or_else(gone, reused)
    }
}

/// A folder of this bench; gone when this is.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
    identity: Identity,
    /// Locked until this goes: other benches see by it that its maker is alive. Closed before it is removed: a filesystem
    /// in user space keeps an open file under another name, and the folder with it.
    marker: Option<File>,
    leftovers: Leftovers,
}

impl Scratch {
    /// Makes one in `folder`, after what killed benches left there was taken away.
    pub fn make(machine: &Machine, folder: &Path, control: &Control) -> Result<Self, BenchError> {
        sweep(machine, folder);
        let uuid = machine.random_uuid().unwrap_or_default();
        let unique: String = uuid.chars().filter(char::is_ascii_alphanumeric).take(8).collect();
        let path = folder.join(format!("{PREFIX}{unique}"));
        fs::create_dir(&path).map_err(|e| BenchError::at("make the folder", &path, e))?;
        let marker = path.join(MARKER);
        let made = mark(machine, &marker);
        let made = made.map_err(|e| {
            // Nothing is in it but the marker.
            let _ = fs::remove_file(&marker).and_then(|()| fs::remove_dir(&path));
            BenchError::at("write", &marker, e)
        })?;
        let identity = Identity::of(&path).map_err(|e| BenchError::at("look at", &path, e))?;
        control.leftovers().left().folders.push((path.clone(), identity.clone()));
        Ok(Self { path, identity, marker: Some(made), leftovers: control.leftovers().clone() })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Locked before there is anything in it to be read: a marker that can be understood is one whose maker had locked it.
fn mark(machine: &Machine, path: &Path) -> std::io::Result<File> {
    let text = serde_json::to_string(&Marker::ours(machine)).map_err(std::io::Error::other)?;
    let mut file = File::create_new(path)?;
    // A filesystem without locks has none for those who sweep either, and is not swept.
    let _ = rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive);
    file.write_all(text.as_bytes())?;
    Ok(file)
}

impl Drop for Scratch {
    fn drop(&mut self) {
        drop(self.marker.take());
        if let Err(error) = remove(&Machine::this(), &self.path, &self.identity) {
            self.leftovers.add(format!("{} was left behind: {error}", self.path.display()));
        }
        self.leftovers.left().folders.retain(|(path, _)| *path != self.path);
    }
}

/// Takes away what killed benches left in a folder, and says what that was.
pub fn sweep(machine: &Machine, folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let ours = |name: &std::ffi::OsStr| name.to_str().is_some_and(|name| name.starts_with(PREFIX));
    let named = entries.take(ENTRIES_MAX).flatten().filter(|entry| ours(&entry.file_name()));
    named.map(|entry| entry.path()).filter(|path| sweep_one(machine, path).is_some()).collect()
}

/// `None`: it stays.
fn sweep_one(machine: &Machine, path: &Path) -> Option<()> {
    let us = rustix::process::geteuid().as_raw();
    let identity = Identity::of(path).ok()?;
    let folder = fs::symlink_metadata(path).ok()?;
    if folder.uid() != us || !identity.is_of(&folder) {
        return None;
    }
    // Neither a link nor a pipe of that name is followed or waited for.
    let flags = i32::try_from((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits()).ok()?;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path.join(MARKER)).ok()?;
    let found = file.metadata().ok()?;
    if !found.is_file() || found.uid() != us {
        return None;
    }
    rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).ok()?;
    Marker::of(&file).filter(|marker| marker.is_orphan(machine))?;
    drop(file);
    remove(machine, path, &identity).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::removal::MOUNTS;

    #[test]
    fn whoever_will_not_wait_leaves_nothing_that_can_be_taken_away() {
        let folder = tempfile::tempdir().unwrap();
        let control = Control::new(|_| {});
        let make = || Scratch::make(&Machine::this(), folder.path(), &control).unwrap();
        drop(make());
        let (one, other) = (make(), make());
        let open = File::create(one.path().join("data")).unwrap();
        // Somebody else's folder is in the other's place by now.
        let moved = folder.path().join("moved");
        fs::rename(other.path(), &moved).unwrap();
        fs::create_dir(other.path()).unwrap();
        control.leftovers().device(Path::new("/dev/sdx"));
        let result = folder.path().join("result");
        fs::create_dir_all(result.join("logs")).unwrap();
        control.leftovers().result(&result);
        let left = control.abandon();
        assert!(!one.path().exists() && !result.exists() && other.path().exists(), "{left:?}");
        let [there, device] = left.as_slice() else { panic!("{left:?}") };
        assert!(there.contains(&other.path().display().to_string()) && device.contains("/dev/sdx"), "{left:?}");
        assert!(control.abandon().is_empty());
        drop((one, open));
    }

    #[test]
    fn only_orphans_of_this_machine_are_taken_away() {
        let machine = Machine::this();
        let folder = tempfile::tempdir().unwrap();
        let control = Control::new(|_| {});
        let alive = Scratch::make(&machine, folder.path(), &control).unwrap();
        fs::write(alive.path().join("data"), "x").unwrap();
        let make = |name: &str, change: &dyn Fn(&mut Marker)| {
            let path = folder.path().join(format!("{PREFIX}{name}"));
            fs::create_dir_all(path.join("deep/er")).unwrap();
            let mut marker = Marker::ours(&machine);
            change(&mut marker);
            fs::write(path.join(MARKER), serde_json::to_string(&marker).unwrap()).unwrap();
            path
        };
        let reused = make("reused", &|m| m.pid_started += 1);
        let gone = make("gone", &|m| m.pid = u32::MAX);
        let before = make("before", &|m| m.boot = "earlier".to_owned());
        let far = make("far", &|m| (m.host, m.pid) = ("elsewhere".to_owned(), u32::MAX));
        let spaceless = make("spaceless", &|m| (m.pid_namespace, m.pid) = (String::new(), u32::MAX));
        let unsure = make("unsure", &|m| m.pid_started = 0);
        let locked = make("locked", &|m| m.pid = u32::MAX);
        let held = File::open(locked.join(MARKER)).unwrap();
        rustix::fs::flock(&held, FlockOperation::LockExclusive).unwrap();
        // A marker that is a link, and a link to a whole folder, may belong to anybody.
        let linked = make("linked", &|m| m.pid = u32::MAX);
        fs::rename(linked.join(MARKER), folder.path().join("marker")).unwrap();
        std::os::unix::fs::symlink(folder.path().join("marker"), linked.join(MARKER)).unwrap();
        std::os::unix::fs::symlink(folder.path(), folder.path().join(format!("{PREFIX}link"))).unwrap();
        let unmarked = folder.path().join(format!("{PREFIX}unmarked"));
        fs::create_dir(&unmarked).unwrap();
        let mut removed = sweep(&machine, folder.path());
        removed.sort();
        assert_eq!(removed, [before, gone, reused]);
        assert!(alive.path().join("data").exists());
        for stays in [far, unmarked, spaceless, unsure, locked, linked] {
            assert!(stays.exists(), "{}", stays.display());
        }
        let path = alive.path().to_owned();
        drop(alive);
        assert!(!path.exists() && control.leftovers().take().is_empty());
    }

    #[test]
    fn nothing_but_what_was_made_is_removed() {
        let (machine, control) = (Machine::this(), Control::new(|_| {}));
        let folder = tempfile::tempdir().unwrap();
        let precious = folder.path().join("precious");
        fs::create_dir(&precious).unwrap();
        fs::write(precious.join("file"), "x").unwrap();
        let scratch = Scratch::make(&machine, folder.path(), &control).unwrap();
        std::os::unix::fs::symlink(&precious, scratch.path().join("data")).unwrap();
        std::os::unix::fs::symlink(&precious, scratch.path().join(MOUNTS[2])).unwrap();
        drop(scratch);
        assert!(precious.join("file").exists() && control.leftovers().take().is_empty());
        for swapped in [true, false] {
            let scratch = Scratch::make(&machine, folder.path(), &control).unwrap();
            let path = scratch.path().to_owned();
            fs::rename(&path, folder.path().join(format!("moved{swapped}"))).unwrap();
            match swapped {
                true => fs::create_dir(&path).unwrap(),
                false => std::os::unix::fs::symlink(&precious, &path).unwrap(),
            }
            drop(scratch);
            let left = control.leftovers().take();
            assert!(left.len() == 1 && left[0].starts_with(&path.display().to_string()), "{left:?}");
            assert!(precious.join("file").exists() && fs::symlink_metadata(&path).is_ok());
        }
    }
}
