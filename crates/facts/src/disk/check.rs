//! Gathers the facts of what is given and of the members, and asks the rules.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use larder_base::shell::word;

use super::flush::measure_flushes;
use super::report::{CheckReport, DeviceReport, DiskReport, Finding, Level, Space, Unknown};
use super::rules;
use super::usage;
use crate::Machine;
use crate::machine::{Below, BlockDevice, Mount, Smart, SmartAnswer};

#[derive(Clone, Debug)]
pub struct CheckOptions {
    /// Folders of the pool's members, beside which the given ones are held.
    pub members: Vec<PathBuf>,
    /// Writes a file of 1 MiB for two seconds.
    pub flush_test: bool,
    pub smart: bool,
    /// A sleeping disk is started for its report.
    pub wake: bool,
    /// The pool that a folder is a disk of: labels are not ours to read.
    pub pool_of: fn(&Path) -> Option<String>,
}

impl Default for CheckOptions {
    fn default() -> Self {
        Self { members: Vec::new(), flush_test: true, smart: true, wake: true, pool_of: |_| None }
    }
}

/// Filesystems without which the machine does not start.
const SYSTEM_MOUNTS: [&str; 6] = ["/", "/boot", "/boot/efi", "/boot/firmware", "/usr", "/var"];

/// Folders and block devices, as candidates for one pool.
pub fn check(machine: &Machine, given: &[PathBuf], options: &CheckOptions) -> CheckReport {
    let mut checker = Checker { machine, options, smart: BTreeMap::new(), system: system_disks(machine) };
    let mut disks: Vec<DiskReport> = given.iter().map(|path| checker.disk(path)).collect();
    let members: Vec<DiskReport> = options.members.iter().map(|path| checker.facts(path)).collect();
    for index in 0..disks.len() {
        let mut found = Vec::new();
        let Some(one) = disks.get(index) else { continue };
        for (at, other) in disks.iter().enumerate() {
            if at != index {
                found.extend(rules::together::beside(one, other, false));
            }
        }
        for member in &members {
            found.extend(rules::together::beside(one, member, true));
        }
        if let Some(one) = disks.get_mut(index) {
            one.findings.extend(found);
            one.findings.sort_by_key(|f| std::cmp::Reverse(f.level));
        }
    }
    let verdict = disks.iter().map(DiskReport::verdict).max().unwrap_or(Level::Ok);
    CheckReport { version: CheckReport::VERSION, verdict, disks }
}

struct Checker<'a> {
    machine: &'a Machine,
    options: &'a CheckOptions,
    /// By kernel name: a disk is asked once, however many folders lie on it.
    smart: BTreeMap<String, SmartAnswer>,
    system: BTreeSet<String>,
}

/// The kind of a given path.
enum Target {
    Device(String),
    Folder { real: PathBuf, mount: Mount },
    Nothing(String),
}

impl Checker<'_> {
    /// Facts and findings of one candidate by itself.
    fn disk(&mut self, given: &Path) -> DiskReport {
        let mut report = self.facts(given);
        if self.options.smart {
            for at in 0..report.devices.len() {
                self.ask_smart(&mut report, at);
            }
        }
        if self.options.flush_test && !report.is_device && !self.is_absent(given) {
            self.test_flush(&mut report);
        }
        let found = self.findings(&report);
        report.findings.extend(found);
        for DeviceReport { device, smart } in &report.devices {
            report.unknown.extend(rules::device::unknown(device));
            report.unknown.extend(rules::flush::unknown(device, smart.as_ref()));
        }
        report
    }

    /// Only what it is and lies on: enough to hold others beside it.
    fn facts(&self, given: &Path) -> DiskReport {
        let mut report = DiskReport {
            given: given.to_owned(),
            place: None,
            is_device: false,
            mount: None,
            space: None,
            layers: Vec::new(),
            devices: Vec::new(),
            flush: None,
            findings: Vec::new(),
            unknown: Vec::new(),
        };
        let below = match self.target(given) {
            Target::Device(name) => {
                report.is_device = true;
                self.machine.below_device(&name)
            }
            Target::Folder { real, mount } => {
                report.space = self.space(&real);
                report.place = self.place(&real);
                let below = self.machine.below_mount(&mount);
                report.mount = Some(mount);
                if self.is_absent(given) {
                    report.findings.push(absent(given));
                }
                below
            }
            Target::Nothing(why) => {
                let what = format!("{} cannot be used: {why}", given.display());
                report.findings.push(
                    Finding::new(Level::Refuse, "missing", what, "").action("name an existing folder or block device"),
                );
                Below::default()
            }
        };
        report.layers = below.layers;
        let why = || "the kernel does not say".to_owned();
        report.unknown.extend(below.unknown.into_iter().map(|what| Unknown { what, why: why(), action: None }));
        let devices = below.devices.iter().filter_map(|name| BlockDevice::read(self.machine, name));
        report.devices = devices.map(|device| DeviceReport { device, smart: None }).collect();
        report
    }

    fn target(&self, given: &Path) -> Target {
        let is_folder = self.machine.is_live() && given.is_dir();
        if given.starts_with("/dev") && !given.starts_with("/dev/shm") && !is_folder {
            return match self.machine.device_name(given) {
                Some(name) => Target::Device(name),
                None => Target::Nothing("it is not a block device of this machine".to_owned()),
            };
        }
        if self.machine.is_live() && given.exists() && !given.is_dir() {
            return Target::Nothing("it is neither a folder nor a block device".to_owned());
        }
        let Some(real) = self.machine.resolve(given) else {
            return Target::Nothing("it is not an absolute path".to_owned());
        };
        match self.machine.mounts().of(&real) {
            Some(mount) => Target::Folder { mount: mount.clone(), real },
            None => Target::Nothing("no mounted filesystem holds it".to_owned()),
        }
    }

    /// A recorded machine has no folders.
    fn is_absent(&self, given: &Path) -> bool {
        self.machine.is_live() && !given.exists()
    }

    /// Of a recorded machine there are no numbers.
    fn space(&self, folder: &Path) -> Option<Space> {
        if !self.machine.is_live() {
            return None;
        }
        let stat = rustix::fs::statvfs(folder).ok()?;
        Some(Space {
            total_bytes: stat.f_blocks.saturating_mul(stat.f_frsize),
            available_bytes: stat.f_bavail.saturating_mul(stat.f_frsize),
            block_bytes: stat.f_frsize,
            inodes: stat.f_files,
            inodes_free: stat.f_favail,
        })
    }

    fn place(&self, folder: &Path) -> Option<(u64, u64)> {
        let stat = rustix::fs::stat(folder).ok().filter(|_| self.machine.is_live())?;
        Some((stat.st_dev, stat.st_ino))
    }

    fn ask_smart(&mut self, report: &mut DiskReport, at: usize) {
        let Some(entry) = report.devices.get_mut(at) else { return };
        // Behind a curtain there is nobody to ask; the report says so already.
        if entry.device.curtain.is_some() {
            return;
        }
        let name = entry.device.name.clone();
        let (machine, wake) = (self.machine, self.options.wake);
        let ask = || match wake {
            true => machine.smart(&entry.device),
            false => machine.smart_unless_asleep(&entry.device).unwrap_or_else(asleep),
        };
        let answer = self.smart.entry(name).or_insert_with(ask);
        match answer {
            SmartAnswer::Smart(smart) => {
                learn(&mut entry.device, smart);
                entry.smart = Some(smart.as_ref().clone());
            }
            SmartAnswer::Unknown { why, action } => report.unknown.push(Unknown {
                what: format!("the health and temperature of {}", entry.device.title()),
                why: why.clone(),
                action: action.clone(),
            }),
        }
    }

    fn test_flush(&self, report: &mut DiskReport) {
        let what = format!("what a flush costs at {}", report.given.display());
        let unwritable = report.mount.as_ref().is_none_or(|m| m.has("ro"));
        let unknown = |why: String, action: Option<&str>| Unknown { what, why, action: action.map(str::to_owned) };
        if !self.machine.is_live() || unwritable {
            report.unknown.push(unknown("nothing can be written there".to_owned(), None));
            return;
        }
        let Some(folder) = self.machine.resolve(&report.given) else { return };
        match measure_flushes(&folder) {
            Ok(rate) => report.flush = Some(rate),
            Err(e) => {
                let denied = e.kind() == std::io::ErrorKind::PermissionDenied;
                report
                    .unknown
                    .push(unknown(e.to_string(), denied.then_some("run it as whoever runs larder, or as root")));
            }
        }
    }

    fn findings(&self, report: &DiskReport) -> Vec<Finding> {
        let mut found = Vec::new();
        // A disk below a loop device or a volume is in use by that device, which is no finding. The device's own users are.
        let is_layered = !report.layers.is_empty();
        let whole: Vec<BlockDevice> = match (report.is_device, is_layered) {
            (false, _) => Vec::new(),
            (true, false) => report.devices.iter().map(|entry| entry.device.clone()).collect(),
            (true, true) => {
                let name = self.machine.device_name(&report.given);
                name.and_then(|name| BlockDevice::read(self.machine, &name)).into_iter().collect()
            }
        };
        found.extend(report.mount.iter().flat_map(rules::filesystem::mount));
        found.extend(report.space.iter().flat_map(rules::filesystem::space));
        found.extend(rules::filesystem::layers(&report.layers, report.devices.len()));
        for DeviceReport { device, smart } in &report.devices {
            found.extend(rules::device::device(device, smart.as_ref()));
            found.extend(smart.iter().flat_map(|smart| rules::health::health(device, smart)));
            found.extend(rules::flush::protected(device, smart.as_ref()));
            if self.system.contains(&device.name) {
                found.push(system_disk(device, report.is_device && !is_layered));
            }
        }
        for device in &whole {
            found.extend(self.in_use(device));
        }
        found.extend(self.member_of(&report.given, &whole));
        if let Some(rate) = &report.flush {
            let disks: Vec<&BlockDevice> = report.devices.iter().map(|d| &d.device).collect();
            found.extend(rules::flush::flush(rate, &disks, &report.layers));
        }
        found
    }

    /// The pool that the folder, or one on a filesystem of these devices, belongs to.
    fn member_of(&self, given: &Path, devices: &[BlockDevice]) -> Option<Finding> {
        if !self.machine.is_live() {
            return None;
        }
        let mounts = self.machine.mounts();
        let numbers = devices.iter().flat_map(|device| device.numbers(self.machine));
        let points: Vec<PathBuf> =
            numbers.flat_map(|number| mounts.of_number(&number)).map(|mount| mount.point.clone()).collect();
        let folders = points.iter().flat_map(|point| [point.clone(), point.join("larder")]);
        let mut folders = std::iter::once(given.to_owned()).filter(|_| devices.is_empty()).chain(folders);
        folders.find_map(|folder| {
            let pool = (self.options.pool_of)(&folder)?;
            let what = format!("{} is a disk of the pool '{pool}' already", folder.display());
            Some(
                Finding::new(Level::Note, "member", what, "a disk belongs to one pool, once")
                    .action(format!("see how it is: larder pool status {}", word(&folder))),
            )
        })
    }

    fn in_use(&self, device: &BlockDevice) -> Vec<Finding> {
        let busy = usage::busy(self.machine, device).into_iter().map(|b| {
            Finding::new(Level::Refuse, "in-use", format!("{}: {}", device.title(), b.text()), "")
                .action("give the folder of a filesystem on it, or another disk")
        });
        busy.collect()
    }
}

fn absent(given: &Path) -> Finding {
    let shown = given.display();
    let why = "what is said here is true of the folder above it; where a disk is not mounted that is another disk";
    Finding::new(Level::Refuse, "missing", format!("there is no folder {shown}"), why)
        .action(format!("see that the disk is mounted, then: mkdir {}", word(given)))
}

fn asleep() -> SmartAnswer {
    SmartAnswer::Unknown { why: "it is asleep, and is not woken for that".to_owned(), action: None }
}

/// Adds properties that only the disk itself knows.
fn learn(device: &mut BlockDevice, smart: &Smart) {
    if device.model.is_none() {
        device.model.clone_from(&smart.model);
    }
    if let Some(text) = &smart.serial {
        // A bridge's own serial number is not the disk's.
        device.serial = Some(crate::machine::Serial { text: text.clone(), source: "smartctl" });
    }
}

pub(super) fn system_disks(machine: &Machine) -> BTreeSet<String> {
    let mounts = machine.mounts();
    let system = mounts.all().iter().filter(|m| SYSTEM_MOUNTS.iter().any(|at| m.point == Path::new(at)));
    system.flat_map(|mount| machine.below_mount(mount).devices).collect()
}

fn system_disk(device: &BlockDevice, is_device: bool) -> Finding {
    let level = if is_device { Level::Refuse } else { Level::Warning };
    let what = format!("{} is the disk that this machine starts from", device.title());
    let why = "logs and updates compete with the pool, a full pool stops the machine, and both fail together";
    Finding::new(level, "system-disk", what, why).action("fine for trying out; otherwise a disk of its own")
}
