//! An empty disk becomes a member: one XFS filesystem on the whole of it, mounted now and at every start.
//!
//! - `prepare.never_in_use`: nothing is written to a device that is in use, whatever is typed.
//! - `prepare.serial_typed`: a device that holds data, or that may hold data, is written to only after its serial number
//!   was typed (its path, where it has none). The letter in `/dev/sdX` moves from boot to boot; a serial number does not.
//! - `prepare.users_looked_for_twice`: users of the device are looked for again right before the first write.
//! - `prepare.mounted_by_uuid`: the mount is by the filesystem's own UUID.
//!
//! XFS, because it makes inodes as they are needed (a pool is many files of MiBs) and allocates in parallel. `crc=1`:
//! its metadata carries checksums. `reflink=0`: the pool never shares blocks, and the room kept back for the tree
//! that counts sharers is considerable: of a fresh 8 TiB filesystem 8.2 GiB are taken without it and 57.1 GiB with it
//! (xfsprogs 6.1). No partition table: nobody else is to have a part of the disk, and what is whole is aligned.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use serde::Serialize;

use super::check::system_disks;
use super::fstab::{self, Entry};
use super::usage::{Use, uses};
use crate::Machine;
use crate::machine::{BlockDevice, SmartAnswer, ToolError};

/// XFS keeps no more of a label.
const LABEL_CHARS_MAX: usize = 12;
/// Below this mkfs.xfs refuses.
const SIZE_BYTES_MIN: u64 = 300 << 20;

#[derive(Clone, Debug)]
pub struct PrepareOptions {
    pub device: PathBuf,
    pub label: Option<String>,
    pub mount: Option<PathBuf>,
    pub fstab: PathBuf,
}

#[derive(Debug, thiserror::Error)]
pub enum PrepareError {
    #[error("{0}")]
    Invalid(String),
    #[error("{device} is in use: {reasons}")]
    Busy { device: String, reasons: String },
    #[error("{device} is not empty: {reasons}")]
    NotEmpty { device: String, reasons: String, token: String },
    #[error("'{typed}' is not the serial number of {device}")]
    WrongSerial { device: String, typed: String },
    #[error(transparent)]
    Tool(#[from] ToolError),
    #[error("{command} failed: {reason}")]
    Step { command: String, reason: String },
    #[error("{what}: {source}")]
    Io { what: String, source: std::io::Error },
}

/// A plan: the device and the commands that would make it ready.
#[derive(Clone, Debug, Serialize)]
pub struct Prepare {
    pub device: BlockDevice,
    pub label: String,
    pub mount: PathBuf,
    pub uuid: String,
    pub uses: Vec<Use>,
    /// The text that permits overwriting it: its serial number, or its path where it has none.
    pub token: String,
    pub commands: Vec<String>,
    #[serde(skip)]
    fstab: PathBuf,
}

#[derive(Clone, Debug, Serialize)]
pub struct Prepared {
    pub device: PathBuf,
    pub uuid: String,
    pub label: String,
    pub mount: PathBuf,
    pub fstab: PathBuf,
    /// The file as it was before, if it was changed.
    pub fstab_backup: Option<PathBuf>,
}

impl Prepare {
    /// Looks, and writes nothing.
    pub fn plan(machine: &Machine, options: &PrepareOptions) -> Result<Self, PrepareError> {
        let device = whole_device(machine, &options.device)?;
        let device = with_serial(machine, device);
        let shown = device.path.display().to_string();
        if device.read_only {
            return Err(PrepareError::Invalid(format!("{shown} is write-protected")));
        }
        if device.size_bytes < SIZE_BYTES_MIN {
            return Err(PrepareError::Invalid(format!("{shown} is too small: an XFS filesystem needs 300 MiB")));
        }
        if system_disks(machine).contains(&device.name) {
            return Err(PrepareError::Busy { device: shown, reasons: "this machine starts from it".to_owned() });
        }
        let found = uses(machine, &device);
        refuse_busy(&device, &found)?;
        let label = label(options.label.as_deref(), &device)?;
        let mount = options.mount.clone().unwrap_or_else(|| Path::new("/mnt").join(&label));
        check_mount_point(machine, &mount)?;
        let uuid = machine.read("/proc/sys/kernel/random/uuid").unwrap_or_default();
        let token = device.serial.as_ref().map_or_else(|| shown.clone(), |s| s.text.clone());
        let mut plan =
            Self { device, label, mount, uuid, uses: found, token, commands: Vec::new(), fstab: options.fstab.clone() };
        plan.check_fstab()?;
        plan.commands = plan.steps().iter().map(|step| step.join(" ")).collect();
        plan.commands.push(format!("echo '{}' >> {}", plan.entry().line(), plan.fstab.display()));
        Ok(plan)
    }

    pub fn is_empty(&self) -> bool {
        self.uses.is_empty()
    }

    /// "ATA Samsung SSD 870 (sdb), serial S5XYZ, 3.64 TiB".
    pub fn title(&self) -> String {
        let serial =
            self.device.serial.as_ref().map_or("no serial number".to_owned(), |s| format!("serial {}", s.text));
        let size = larder_base::units::ByteSize(self.device.size_bytes);
        format!("{}, {serial}, {size}", self.device.title())
    }

    /// Does it. `typed` is what somebody gave as the serial number, if anything was.
    pub fn run(self, machine: &Machine, typed: Option<&str>) -> Result<Prepared, PrepareError> {
        self.permitted(&self.uses, typed)?;
        // Time has passed since the first look (`prepare.users_looked_for_twice`), and some users leave no trace in /sys: the
        // kernel knows them.
        let now = uses(machine, &self.device);
        refuse_busy(&self.device, &now)?;
        self.permitted(&now, typed)?;
        claim(&self.device)?;
        for step in self.steps() {
            self.step(machine, &step)?;
        }
        let io = |what: &str, source| PrepareError::Io { what: format!("{what} {}", self.fstab.display()), source };
        let fstab_backup =
            fstab::add(&self.fstab, &self.entry()).map_err(|e| io("the disk is mounted, but not entered into", e))?;
        reload(machine, &self.fstab);
        Ok(Prepared {
            device: self.device.path,
            uuid: self.uuid,
            label: self.label,
            mount: self.mount,
            fstab: self.fstab,
            fstab_backup,
        })
    }

    /// `prepare.serial_typed`.
    fn permitted(&self, found: &[Use], typed: Option<&str>) -> Result<(), PrepareError> {
        let device = self.device.path.display().to_string();
        match typed.map(str::trim) {
            Some(typed) if typed == self.token => Ok(()),
            Some(typed) => Err(PrepareError::WrongSerial { device, typed: typed.to_owned() }),
            None if found.is_empty() => Ok(()),
            None => Err(PrepareError::NotEmpty { device, reasons: reasons(found), token: self.token.clone() }),
        }
    }

    fn entry(&self) -> Entry {
        Entry { uuid: self.uuid.clone(), point: self.mount.clone(), comment: self.title() }
    }

    fn check_fstab(&self) -> Result<(), PrepareError> {
        let text = std::fs::read_to_string(&self.fstab).unwrap_or_default();
        fstab::with(&text, &self.entry()).map(drop).map_err(|line| {
            let (file, at) = (self.fstab.display(), self.mount.display());
            PrepareError::Invalid(format!(
                "{file} has something else for {at}: '{line}'; choose another folder with --mount DIR"
            ))
        })
    }

    fn steps(&self) -> Vec<Vec<String>> {
        let device = self.device.path.display().to_string();
        let mount = self.mount.display().to_string();
        let words = |list: &[&str]| list.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
        let mut steps = Vec::new();
        let mut mkfs = words(&["mkfs.xfs", "-q"]);
        if !self.is_empty() {
            steps.push(words(&["wipefs", "--quiet", "--all", "--force", &device]));
            mkfs.push("-f".to_owned());
        }
        mkfs.extend(words(&["-L", &self.label, "-m"]));
        mkfs.push(format!("crc=1,reflink=0,uuid={}", self.uuid));
        mkfs.push(device.clone());
        steps.push(mkfs);
        steps.push(words(&["mkdir", "-p", &mount]));
        steps.push(words(&["mount", "-t", "xfs", "-o", "noatime", &device, &mount]));
        steps
    }

    fn step(&self, machine: &Machine, words: &[String]) -> Result<(), PrepareError> {
        let args: Vec<&str> = words.iter().map(String::as_str).collect();
        let Some((program, args)) = args.split_first() else { return Ok(()) };
        let said = machine.work(program, args)?;
        match said.code {
            Some(0) => Ok(()),
            _ => Err(PrepareError::Step { command: words.join(" "), reason: said.stderr }),
        }
    }
}

fn whole_device(machine: &Machine, path: &Path) -> Result<BlockDevice, PrepareError> {
    let show = path.display();
    let name = machine
        .device_name(path)
        .ok_or_else(|| PrepareError::Invalid(format!("{show} is not a block device; see: larder disk list")))?;
    if machine.exists(Path::new("/sys/class/block").join(&name).join("partition")) {
        let message =
            format!("{show} is a partition: give the whole disk, or make and mount a filesystem on it yourself");
        return Err(PrepareError::Invalid(message));
    }
    BlockDevice::read(machine, &name)
        .filter(|device| device.size_bytes > 0)
        .ok_or_else(|| PrepareError::Invalid(format!("{show} has no medium in it")))
}

/// Asks the disk for its serial number if neither the kernel nor udev knows it.
fn with_serial(machine: &Machine, mut device: BlockDevice) -> BlockDevice {
    if device.serial.is_none()
        && let SmartAnswer::Smart(smart) = machine.smart(&device)
    {
        device.serial = smart.serial.map(|text| crate::machine::Serial { text, source: "smartctl" });
    }
    device
}

/// `prepare.never_in_use`.
fn refuse_busy(device: &BlockDevice, found: &[Use]) -> Result<(), PrepareError> {
    let busy: Vec<Use> = found.iter().filter(|u| matches!(u, Use::Busy(_))).cloned().collect();
    match busy.is_empty() {
        true => Ok(()),
        false => Err(PrepareError::Busy { device: device.path.display().to_string(), reasons: reasons(&busy) }),
    }
}

fn reasons(found: &[Use]) -> String {
    found.iter().map(Use::text).collect::<Vec<_>>().join("; ")
}

/// The kernel lends a block device exclusively to one user at a time, and refuses while it is in use.
fn claim(device: &BlockDevice) -> Result<(), PrepareError> {
    let flags = i32::try_from(OFlags::EXCL.bits()).unwrap_or_default();
    let opened = OpenOptions::new().read(true).write(true).custom_flags(flags).open(&device.path);
    opened.map(drop).map_err(|source| PrepareError::Io {
        what: format!("{} cannot be had for ourselves", device.path.display()),
        source,
    })
}

fn label(wanted: Option<&str>, device: &BlockDevice) -> Result<String, PrepareError> {
    let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let Some(label) = wanted else {
        let id = device.serial.as_ref().map_or(device.name.as_str(), |s| s.text.as_str());
        let id: Vec<char> = id.chars().filter(char::is_ascii_alphanumeric).collect();
        let tail: String = id[id.len().saturating_sub(5)..].iter().collect();
        return Ok(format!("larder-{tail}"));
    };
    if label.is_empty() || label.len() > LABEL_CHARS_MAX || !label.chars().all(good) || label.starts_with(['-', '.']) {
        return Err(PrepareError::Invalid(format!(
            "'{label}' is not a label for XFS: write 1 to {LABEL_CHARS_MAX} letters, digits, '-', '_' or '.'"
        )));
    }
    Ok(label.to_owned())
}

fn check_mount_point(machine: &Machine, point: &Path) -> Result<(), PrepareError> {
    let show = point.display();
    if !point.is_absolute() || point.parent().is_none() {
        return Err(PrepareError::Invalid(format!("{show} is not a place to mount at: give an absolute path")));
    }
    if let Some(mount) = machine.mounts().all().iter().find(|m| m.point == point) {
        return Err(PrepareError::Invalid(format!(
            "{} is mounted at {show} already: choose another with --mount DIR",
            mount.source
        )));
    }
    let trouble = match std::fs::read_dir(point).map(|mut entries| entries.next().is_some()) {
        Ok(true) => "is not empty: what is in it would be hidden",
        Err(e) if e.kind() == std::io::ErrorKind::NotADirectory => "is not a folder",
        _ => return Ok(()),
    };
    Err(PrepareError::Invalid(format!("{show} {trouble}; choose another with --mount DIR")))
}

/// systemd makes its own units from the file; where it does not run there is nobody to tell.
fn reload(machine: &Machine, fstab: &Path) {
    if fstab == Path::new("/etc/fstab") && machine.exists("/run/systemd/system") {
        let _ = machine.work("systemctl", &["daemon-reload"]);
    }
}
