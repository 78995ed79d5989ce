//! The ground below a folder, and whether a measurement there would mislead.

use std::path::{Path, PathBuf};

use larder_base::units::ByteSize;
use rustix::fs;

use super::result::{Caches, Note};
use crate::Machine;
use larder_facts::machine::MEMORY_FILESYSTEMS;
use larder_load::BenchError;

/// Filesystems of another machine: what is in its memory is not known here.
const NETWORK: [&str; 14] = [
    "nfs",
    "nfs4",
    "cifs",
    "smb3",
    "smbfs",
    "9p",
    "ceph",
    "afs",
    "glusterfs",
    "davfs",
    "fuse.sshfs",
    "fuse.davfs2",
    "fuse.glusterfs",
    "fuse.rclone",
];
/// Filesystems that keep a cache of their own beside the kernel's: dropping the latter is not enough.
const OWN_CACHE: [&str; 2] = ["zfs", "fuse.zfs"];
/// Files that the filesystem itself encrypts, by the name of the tool that sets it up.
const FSCRYPT: &str = "fscrypt";
/// A filesystem that is fuller spreads new files over what gaps it has.
const USED_SHARE_MAX: f64 = 0.9;
/// Never taken: a full filesystem breaks whoever else uses it.
const LEFT_SHARE: f64 = 0.05;
const DATA_BYTES_MIN: u64 = 16 << 20;

#[derive(Clone, Debug)]
pub(super) struct Ground {
    pub(super) folder: PathBuf,
    pub(super) filesystem: String,
    pub(super) source: String,
    pub(super) options: Vec<String>,
    pub(super) devices: Vec<String>,
    pub(super) layers: Vec<String>,
    /// Loop devices below, whose files are read through this machine's memory.
    pub(super) buffered: Vec<String>,
    pub(super) total_bytes: u64,
    pub(super) free_bytes: u64,
}

impl Ground {
    /// Refuses what can only mislead.
    pub(super) fn of(machine: &Machine, folder: &Path) -> Result<Self, BenchError> {
        let show = folder.display();
        let real = folder.canonicalize().map_err(|e| BenchError::at("measure", folder, e))?;
        if !real.is_dir() {
            let action = "give a folder on the disk, or the disk's device";
            return Err(BenchError::invalid(format!("{show} is neither a folder nor a block device"), action));
        }
        let mounts = machine.mounts();
        let mount = mounts.of(&real);
        let mount =
            mount.ok_or_else(|| BenchError::invalid(format!("nobody knows what {show} is mounted from"), ""))?;
        if MEMORY_FILESYSTEMS.contains(&mount.filesystem.as_str()) {
            let what =
                format!("{show} is on {}, which is memory: its figures would say nothing of a disk", mount.filesystem);
            return Err(BenchError::invalid(what, "give a folder on a disk"));
        }
        if mount.has("ro") {
            let action = format!("mount it for writing: mount -o remount,rw {}", mount.point.display());
            return Err(BenchError::invalid(format!("{show} is mounted read-only"), action));
        }
        let stat = fs::statvfs(&real).map_err(|e| BenchError::at("look at", folder, e.into()))?;
        let below = machine.below_mount(mount);
        if let Some(memory) = below.memory.first() {
            let what = format!("{show} lies on {memory}, which is memory: its figures would say nothing of a disk");
            return Err(BenchError::invalid(what, "give a folder on a disk"));
        }
        Ok(Self {
            folder: real,
            filesystem: mount.filesystem.clone(),
            source: mount.source.clone(),
            options: mount.options.clone(),
            devices: below.devices,
            layers: below.layers,
            buffered: below.buffered,
            total_bytes: stat.f_blocks.saturating_mul(stat.f_frsize),
            free_bytes: stat.f_bavail.saturating_mul(stat.f_frsize),
        })
    }

    pub(super) fn is_network(&self) -> bool {
        NETWORK.contains(&self.filesystem.as_str())
    }

    pub(super) fn is_larder(&self) -> bool {
        is_larder(&self.filesystem, &self.source)
    }

    /// "dm-crypt" below, "none" where nothing is found, unknown where nobody can see.
    pub(super) fn encryption(&self) -> String {
        let below = self.layers.iter().any(|layer| layer.contains("(encrypted"));
        match () {
            () if below && self.is_fscrypt() => format!("dm-crypt and {FSCRYPT}"),
            () if below => "dm-crypt".to_owned(),
            () if self.is_fscrypt() => FSCRYPT.to_owned(),
            () if self.filesystem == "fuse.gocryptfs" || self.filesystem == "ecryptfs" => self.filesystem.clone(),
            () if self.is_network() || self.filesystem.starts_with("fuse") || self.filesystem == "zfs" => {
                "unknown".to_owned()
            }
            () => "none".to_owned(),
        }
    }

    /// Whether the filesystem itself encrypts new files in this folder: fscrypt, of ext4, f2fs, ubifs and ceph.
    fn is_fscrypt(&self) -> bool {
        let found = fs::statx(fs::CWD, &self.folder, fs::AtFlags::empty(), fs::StatxFlags::TYPE);
        let encrypted = fs::StatxAttributes::ENCRYPTED;
        found.is_ok_and(|found| {
            found.stx_attributes_mask.contains(encrypted) && found.stx_attributes.contains(encrypted)
        })
    }

    /// As much of what is wanted as there is room for; `sharers` on the same filesystem want as much each.
    pub(super) fn room(&self, wanted: u64, asked_for: bool, sharers: u64) -> Result<(u64, Option<Note>), BenchError> {
        let keep = (self.total_bytes as f64 * LEFT_SHARE) as u64;
        let room = self.free_bytes.saturating_sub(keep) / sharers.max(1);
        if wanted <= room {
            return Ok((wanted, None));
        }
        let show = self.folder.display();
        let too_full = |least: u64| {
            let what = format!(
                "{show} has {} free, of which {} must stay: too little for {} to measure with",
                ByteSize(self.free_bytes),
                ByteSize(keep),
                ByteSize(least)
            );
            BenchError::invalid(what, "make room, or measure less with --size SIZE")
        };
        if asked_for {
            return Err(too_full(wanted));
        }
        // Whole MiB, so that block sizes divide it.
        let less = (room / 2) >> 20 << 20;
        if less < DATA_BYTES_MIN {
            return Err(too_full(DATA_BYTES_MIN));
        }
        let text = format!(
            "{show} has room for {} of data only, not {}: caches of that size would answer alone",
            ByteSize(less),
            ByteSize(wanted)
        );
        Ok((less, Some(Note { code: "less-data".to_owned(), text, misleading: false })))
    }

    /// The state of caches, and a note for the reader.
    pub(super) fn caches(
        &self,
        direct: bool,
        root: bool,
        data_bytes: u64,
        memory_bytes: u64,
    ) -> (Caches, Option<Note>) {
        let show = self.folder.display();
        let note = |code: &str, text: String, misleading| Some(Note { code: code.to_owned(), text, misleading });
        let large = data_bytes >= memory_bytes.saturating_mul(2);
        if self.is_network() {
            let text = format!(
                "{show} is {} from {}: what its server has in memory is not known here; only data of twice the server's memory, not {}, shows its disks",
                self.filesystem,
                self.source,
                ByteSize(data_bytes)
            );
            return (Caches::Unknown, note("server-memory", text, false));
        }
        if OWN_CACHE.contains(&self.filesystem.as_str()) && !large {
            let text = format!(
                "{show} is {}, whose cache cannot be passed by or dropped, and {} is less than twice the memory: reads come from memory",
                self.filesystem,
                ByteSize(data_bytes)
            );
            return (Caches::Warm, note("memory-measured", text + "; measure with --size or --preset thorough", true));
        }
        if let Some(note) = buffered(&show.to_string(), &self.buffered, data_bytes, memory_bytes) {
            return (Caches::Warm, Some(note));
        }
        let one_by_one = ["ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs"].contains(&self.filesystem.as_str());
        match () {
            () if direct && self.buffered.is_empty() => (Caches::Bypassed, None),
            () if direct => (Caches::TooSmall, None),
            () if root => {
                let text = format!(
                    "{show} ({}) does not take direct I/O: caches were dropped before each repeat",
                    self.filesystem
                );
                (Caches::Dropped, note("no-direct-io", text, false))
            }
            () if large => (Caches::TooSmall, None),
            () if one_by_one => {
                let text = format!(
                    "{show} ({}) does not take direct I/O: the cache of the file was dropped before each repeat",
                    self.filesystem
                );
                (Caches::Dropped, note("no-direct-io", text, false))
            }
            () => {
                let text = format!(
                    "{show} ({}) takes no direct I/O, caches cannot be dropped without root, and {} is less than twice the memory: memory was measured",
                    self.filesystem,
                    ByteSize(data_bytes)
                );
                (Caches::Warm, note("caches-warm", text + "; run it as root, or with --size of twice the memory", true))
            }
        }
    }

    pub(super) fn notes(&self) -> Vec<Note> {
        let mut notes = Vec::new();
        let used = 1.0 - self.free_bytes as f64 / self.total_bytes.max(1) as f64;
        if used > USED_SHARE_MAX {
            let text = format!(
                "{} is {:.0} % full: new files lie in its last gaps, and are slower than they were on an empty disk",
                self.folder.display(),
                used * 100.0
            );
            notes.push(Note { code: "nearly-full".to_owned(), text, misleading: false });
        }
        if self.filesystem == "overlay" {
            let text = format!(
                "{} is an overlay of a container: measure the folder of the host below it",
                self.folder.display()
            );
            notes.push(Note { code: "overlay".to_owned(), text, misleading: false });
        }
        notes
    }
}

/// A loop device without direct I/O takes direct I/O, and then reads its file as everybody does: through the page cache.
/// Dropping that helps until the second time over the data.
pub(super) fn buffered(show: &str, loops: &[String], data_bytes: u64, memory_bytes: u64) -> Option<Note> {
    let first = loops.first().filter(|_| data_bytes < memory_bytes.saturating_mul(2))?;
    let text = format!(
        "{show} lies on {first}, which goes to its file through this machine's memory (/sys/block/{first}/loop/dio is 0), and {} is less than twice that memory: memory was measured. Let it pass that by with losetup --direct-io=on /dev/{first}, or measure with --size {}G",
        ByteSize(data_bytes),
        memory_bytes.saturating_mul(2).div_ceil(1 << 30)
    );
    Some(Note { code: "memory-measured".to_owned(), text, misleading: true })
}

/// A mount of ours is of `POOL/VOLUME`. The kernel keeps the `.larder` of its kind only where `fusermount3` made it.
pub(super) fn is_larder(filesystem: &str, source: &str) -> bool {
    let name = |text: &str| !text.is_empty() && !text.contains(['/', ':', '@', ' ']);
    let volume = source.split_once('/').is_some_and(|(pool, volume)| name(pool) && name(volume));
    filesystem == "fuse.larder" || filesystem == "fuse" && volume
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ground(filesystem: &str, total_gib: u64, free_gib: u64) -> Ground {
        Ground {
            folder: "/mnt/a".into(),
            filesystem: filesystem.into(),
            source: "x".into(),
            options: Vec::new(),
            devices: Vec::new(),
            layers: Vec::new(),
            buffered: Vec::new(),
            total_bytes: total_gib << 30,
            free_bytes: free_gib << 30,
        }
    }

    #[test]
    fn what_can_only_mislead_is_refused() {
        let machine = Machine::this();
        let memory = Ground::of(&machine, Path::new("/dev/shm")).unwrap_err();
        assert!(memory.to_string().contains("which is memory") && memory.action().is_some(), "{memory}");
        assert!(Ground::of(&machine, Path::new("/no/such/folder")).is_err());
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(Ground::of(&machine, file.path()).unwrap_err().to_string().contains("neither a folder"));
    }

    #[test]
    fn a_pool_of_ours_is_known_by_its_mount() {
        let check = |filesystem: &str, source: &str, ours| {
            assert_eq!(is_larder(filesystem, source), ours, "{filesystem} {source}");
        };
        check("fuse", "tank/files", true);
        check("fuse.larder", "tank/files", true);
        check("fuse.sshfs", "tank/files", false);
        check("fuse", "me@nas:/files", false);
        check("fuse", "/dev/fuse", false);
        check("zfs", "tank/files", false);
    }

    #[test]
    fn room_is_left_for_others() {
        let (bytes, note) = ground("ext4", 100, 50).room(1 << 30, false, 1).unwrap();
        assert!(bytes == 1 << 30 && note.is_none());
        let (bytes, note) = ground("ext4", 100, 10).room(64 << 30, false, 1).unwrap();
        assert!(bytes == 5 << 29 && note.is_some(), "{bytes}");
        let (bytes, _) = ground("ext4", 100, 9).room(64 << 30, false, 4).unwrap();
        assert_eq!(bytes, 1 << 29);
        assert!(ground("ext4", 100, 9).room(3 << 30, true, 1).is_ok());
        assert!(ground("ext4", 100, 9).room(3 << 30, true, 2).is_err());
        assert!(ground("ext4", 100, 10).room(64 << 30, true, 1).is_err());
        assert!(ground("ext4", 100, 5).room(1 << 30, false, 1).is_err());
        assert!(ground("ext4", 100, 6).notes().iter().any(|n| n.code == "nearly-full"));
        assert!(ground("ext4", 100, 60).notes().is_empty());
    }

    #[test]
    fn caches_are_never_passed_over_in_silence() {
        let check = |filesystem: &str, direct, root, data_gib: u64, caches, code: &str| {
            let (found, note) = ground(filesystem, 1, 1).caches(direct, root, data_gib << 30, 8 << 30);
            assert_eq!((found, note.map_or(String::new(), |n| n.code).as_str()), (caches, code), "{filesystem}");
        };
        check("xfs", true, false, 1, Caches::Bypassed, "");
        check("fuseblk", false, true, 1, Caches::Dropped, "no-direct-io");
        check("ext4", false, false, 1, Caches::Dropped, "no-direct-io");
        check("fuseblk", false, false, 1, Caches::Warm, "caches-warm");
        check("fuseblk", false, false, 16, Caches::TooSmall, "");
        check("zfs", true, true, 1, Caches::Warm, "memory-measured");
        check("zfs", true, true, 16, Caches::Bypassed, "");
        check("nfs4", true, true, 1, Caches::Unknown, "server-memory");
        let looped = |data_gib: u64| {
            let ground = Ground { buffered: vec!["loop1".into()], ..ground("ext4", 1, 1) };
            ground.caches(true, true, data_gib << 30, 8 << 30)
        };
        let (caches, note) = looped(1);
        let note = note.unwrap();
        assert!(
            caches == Caches::Warm && note.misleading && note.text.contains("--direct-io=on /dev/loop1"),
            "{note:?}"
        );
        assert_eq!(looped(16), (Caches::TooSmall, None));
    }
}
