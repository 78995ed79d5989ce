//! Block devices: what `/sys/class/block`, udev and (where it was asked) the disk itself say they are.

use std::path::{Path, PathBuf};

use serde::Serialize;

use super::Machine;
use super::links::{PcieLink, SataPort, UsbBridge};

/// `/sys/class/block/*/size` counts these, whatever the device's own sectors are.
const SYSFS_SECTOR_BYTES: u64 = 512;

/// How a disk is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bus {
    Nvme,
    Sata,
    Scsi,
    Usb,
    Mmc,
    Virtio,
    Xen,
    /// loop, zram, ram, dm, md: made by this kernel.
    Virtual,
    Unknown,
}

impl Bus {
    pub fn word(self) -> &'static str {
        match self {
            Self::Nvme => "NVMe",
            Self::Sata => "SATA",
            Self::Scsi => "SCSI",
            Self::Usb => "USB",
            Self::Mmc => "MMC",
            Self::Virtio => "virtio",
            Self::Xen => "Xen",
            Self::Virtual => "virtual",
            Self::Unknown => "?",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Medium {
    HardDisk,
    Flash,
    Memory,
    Unknown,
}

impl Medium {
    pub fn word(self) -> &'static str {
        match self {
            Self::HardDisk => "HDD",
            Self::Flash => "SSD",
            Self::Memory => "RAM",
            Self::Unknown => "?",
        }
    }
}

/// A layer that hides the disk itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Curtain {
    /// A virtual machine's host.
    Hypervisor(String),
    /// A controller that makes disks of its own out of others.
    RaidController(String),
    /// A volume of another machine.
    Network(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum WriteCache {
    /// An answered write may still be in memory: flushes count.
    Back,
    /// The kernel takes answered writes for stored, and sends no flushes.
    Through,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Serial {
    pub text: String,
    /// The source: `sysfs`, `udev`, `vpd` or `smartctl`.
    pub source: &'static str,
}

#[derive(Clone, Debug, Serialize)]
pub struct BlockDevice {
    /// The kernel's name, such as `sda` or `nvme0n1`.
    pub name: String,
    pub path: PathBuf,
    /// `major:minor`.
    pub number: String,
    pub size_bytes: u64,
    pub bus: Bus,
    pub medium: Medium,
    pub model: Option<String>,
    pub serial: Option<Serial>,
    pub wwn: Option<String>,
    pub rotational: Option<bool>,
    pub write_cache: Option<WriteCache>,
    pub fua: Option<bool>,
    /// `none`, `host-aware` or `host-managed`.
    pub zoned: String,
    /// Whether it takes discards (TRIM).
    pub discard: bool,
    pub logical_block_bytes: u64,
    pub physical_block_bytes: u64,
    pub removable: bool,
    pub read_only: bool,
    pub usb: Option<UsbBridge>,
    pub sata: Option<SataPort>,
    pub pcie: Option<PcieLink>,
    pub curtain: Option<Curtain>,
    #[serde(skip)]
    pub(super) sys: PathBuf,
}

impl BlockDevice {
    /// A whole device (not a partition) by its kernel name.
    pub fn read(machine: &Machine, name: &str) -> Option<Self> {
        let sys = machine.real(Path::new("/sys/class/block").join(name))?;
        let queue = sys.join("queue");
        let number = machine.read(sys.join("dev"))?;
        let udev = Udev::read(machine, &number);
        let bus = bus(name, &sys);
        let model = model(machine, &sys, &udev);
        let zoned = machine.read(queue.join("zoned")).unwrap_or_else(|| "none".to_owned());
        let rotational = machine.flag(queue.join("rotational"));
        let curtain = curtain(machine, &sys, bus, model.as_deref());
        Some(Self {
            path: Path::new("/dev").join(name.replace('!', "/")),
            size_bytes: machine.number(sys.join("size"))?.saturating_mul(SYSFS_SECTOR_BYTES),
            medium: medium(name, bus, rotational, curtain.is_some()),
            serial: serial(machine, &sys, &udev),
            wwn: wwn(machine, &sys, &udev),
            write_cache: machine.read(queue.join("write_cache")).and_then(|text| match text.as_str() {
                "write back" => Some(WriteCache::Back),
                "write through" => Some(WriteCache::Through),
                _ => None,
            }),
            fua: machine.flag(queue.join("fua")),
            discard: machine.number(queue.join("discard_max_bytes")).is_some_and(|bytes| bytes > 0),
            logical_block_bytes: machine.number(queue.join("logical_block_size")).unwrap_or(512),
            physical_block_bytes: machine.number(queue.join("physical_block_size")).unwrap_or(512),
            removable: machine.flag(sys.join("removable")).unwrap_or(false),
            read_only: machine.flag(sys.join("ro")).unwrap_or(false),
            usb: UsbBridge::read(machine, &sys),
            sata: SataPort::read(machine, &sys),
            pcie: Some(bus).filter(|bus| *bus == Bus::Nvme).and_then(|_| PcieLink::read(machine, &sys)),
            name: name.to_owned(),
            number,
            bus,
            model,
            rotational,
            zoned,
            curtain,
            sys,
        })
    }

    /// Kernel names of its partitions.
    pub fn partitions(&self, machine: &Machine) -> Vec<String> {
        let mut names = machine.list(&self.sys);
        names.retain(|name| name.starts_with(&self.name) && machine.exists(self.sys.join(name).join("partition")));
        names
    }

    /// Kernel names of what is built on it (md, dm, bcache), partitions included.
    pub fn holders(&self, machine: &Machine) -> Vec<String> {
        let mut holders = machine.list(self.sys.join("holders"));
        for partition in self.partitions(machine) {
            holders.extend(machine.list(self.sys.join(partition).join("holders")));
        }
        holders.sort();
        holders.dedup();
        holders
    }

    /// The numbers of the device and its partitions.
    pub fn numbers(&self, machine: &Machine) -> Vec<String> {
        let parts = self.partitions(machine);
        let numbers = parts.iter().filter_map(|name| machine.read(self.sys.join(name).join("dev")));
        std::iter::once(self.number.clone()).chain(numbers).collect()
    }

    /// "WDC WD40EFAX-68JH4N1 (sda)".
    pub fn title(&self) -> String {
        match &self.model {
            Some(model) => format!("{model} ({})", self.name),
            None => self.name.clone(),
        }
    }
}

/// Whole devices that something could be kept on, by kernel name.
pub fn whole_devices(machine: &Machine) -> Vec<String> {
    let mut names = machine.list("/sys/class/block");
    names.retain(|name| {
        let sys = Path::new("/sys/class/block").join(name);
        let scratch = ["zram", "ram", "sr", "fd"].iter().any(|kind| name.starts_with(kind));
        let hidden = machine.flag(sys.join("hidden")).unwrap_or(false);
        let empty = machine.number(sys.join("size")).unwrap_or(0) == 0;
        !scratch && !hidden && !empty && !machine.exists(sys.join("partition"))
    });
    names
}

/// The path through the device tree names every bus on the way to the disk.
fn bus(name: &str, sys: &Path) -> Bus {
    let parts: Vec<&str> = sys.iter().filter_map(|part| part.to_str()).collect();
    let passes = |test: fn(&str) -> bool| parts.iter().any(|part| test(part));
    // A multipath NVMe namespace hangs below a virtual subsystem: its name says more than its place.
    if name.starts_with("nvme") {
        return Bus::Nvme;
    }
    if passes(|p| p == "virtual") {
        return Bus::Virtual;
    }
    if passes(|p| p.strip_prefix("usb").is_some_and(|n| n.parse::<u32>().is_ok())) {
        return Bus::Usb;
    }
    if passes(|p| p.strip_prefix("ata").is_some_and(|n| n.parse::<u32>().is_ok())) {
        return Bus::Sata;
    }
    match () {
        () if passes(|p| p.starts_with("mmc")) => Bus::Mmc,
        () if name.starts_with("vd") && passes(|p| p.starts_with("virtio")) => Bus::Virtio,
        () if passes(|p| p.starts_with("vbd-")) => Bus::Xen,
        () if passes(|p| p.starts_with("host")) => Bus::Scsi,
        () => Bus::Unknown,
    }
}

fn medium(name: &str, bus: Bus, rotational: Option<bool>, hidden: bool) -> Medium {
    match (bus, rotational) {
        (Bus::Nvme | Bus::Mmc, _) => Medium::Flash,
        _ if name.starts_with("zram") || name.starts_with("ram") => Medium::Memory,
        // Hosts and controllers report defaults for their disks more often than facts.
        _ if hidden => Medium::Unknown,
        (Bus::Virtio | Bus::Xen | Bus::Virtual | Bus::Unknown, _) | (_, None) => Medium::Unknown,
        (_, Some(true)) => Medium::HardDisk,
        (_, Some(false)) => Medium::Flash,
    }
}

/// Properties that udev found, kept in `/run/udev/data`.
pub(crate) struct Udev(Vec<(String, String)>);

impl Udev {
    pub(crate) fn read(machine: &Machine, number: &str) -> Self {
        let text = machine.read(format!("/run/udev/data/b{number}")).unwrap_or_default();
        let properties = text.lines().filter_map(|line| line.strip_prefix("E:")?.split_once('='));
        Self(properties.map(|(key, value)| (key.to_owned(), value.trim().to_owned())).collect())
    }

    /// Whether udev looked at the device; without it nothing is known.
    pub(crate) fn has_looked(machine: &Machine, number: &str) -> bool {
        machine.exists(format!("/run/udev/data/b{number}"))
    }

    pub(crate) fn get(&self, key: &str) -> Option<String> {
        self.0.iter().find(|(k, value)| k == key && !value.is_empty()).map(|(_, value)| value.clone())
    }
}

fn filled(text: Option<String>) -> Option<String> {
    text.map(|t| t.trim().to_owned()).filter(|t| !t.is_empty())
}

/// The first `device/NAME`, on the device or (multipath NVMe) on the controller that its subsystem links to.
fn attribute(machine: &Machine, sys: &Path, name: &str) -> Option<String> {
    let own = filled(machine.read(sys.join("device").join(name)));
    own.or_else(|| {
        let subsystem = sys.parent()?;
        filled(machine.read(subsystem.join(name)))
    })
}

fn model(machine: &Machine, sys: &Path, udev: &Udev) -> Option<String> {
    let model = attribute(machine, sys, "model").or_else(|| udev.get("ID_MODEL")).or_else(|| {
        // Memory cards have a name instead of a model.
        filled(machine.read(sys.join("device/name")))
    });
    let vendor = filled(machine.read(sys.join("device/vendor")));
    match (vendor, model) {
        // "ATA" is no vendor, and a virtio device's is a number.
        (Some(vendor), Some(model)) if vendor != "ATA" && !vendor.starts_with("0x") && !model.starts_with(&vendor) => {
            Some(format!("{vendor} {model}"))
        }
        (_, model) => model,
    }
}

fn serial(machine: &Machine, sys: &Path, udev: &Udev) -> Option<Serial> {
    let kernel = || attribute(machine, sys, "serial").or_else(|| filled(machine.read(sys.join("serial"))));
    if let Some(text) = udev.get("ID_SERIAL_SHORT") {
        return Some(Serial { text, source: "udev" });
    }
    if let Some(text) = kernel() {
        return Some(Serial { text, source: "sysfs" });
    }
    // Vital product data page 0x80 (SPC-4, 7.8.10): four bytes of header, then the serial number.
    let page = machine.read_bytes(sys.join("device/vpd_pg80"))?;
    let text =
        String::from_utf8_lossy(page.get(4..)?).trim_matches(|c: char| c == '\0' || c.is_whitespace()).to_owned();
    (!text.is_empty()).then_some(Serial { text, source: "vpd" })
}

fn wwn(machine: &Machine, sys: &Path, udev: &Udev) -> Option<String> {
    let own = filled(machine.read(sys.join("wwid"))).or_else(|| attribute(machine, sys, "wwid"));
    own.or_else(|| udev.get("ID_WWN"))
}

/// Drivers of controllers that hide their disks behind volumes of their own.
const RAID_DRIVERS: [&str; 9] =
    ["megaraid_sas", "hpsa", "smartpqi", "aacraid", "arcmsr", "3w-9xxx", "3w-sas", "cciss", "mpi3mr"];
/// How virtual disks introduce themselves.
const VIRTUAL_MODELS: [&str; 7] =
    ["QEMU", "VBOX HARDDISK", "VMware", "Virtual Disk", "Virtual disk", "Amazon Elastic Block Store", "PersistentDisk"];

fn curtain(machine: &Machine, sys: &Path, bus: Bus, model: Option<&str>) -> Option<Curtain> {
    let model = model.unwrap_or_default();
    match bus {
        Bus::Virtio => return Some(Curtain::Hypervisor("virtio".to_owned())),
        Bus::Xen => return Some(Curtain::Hypervisor("Xen".to_owned())),
        _ if VIRTUAL_MODELS.iter().any(|known| model.contains(known)) => {
            return Some(Curtain::Hypervisor(model.to_owned()));
        }
        _ => {}
    }
    if sys.iter().any(|part| part.to_str().is_some_and(|p| p.starts_with("session"))) {
        return Some(Curtain::Network("iSCSI".to_owned()));
    }
    if name_of(sys).starts_with("nbd") || name_of(sys).starts_with("rbd") {
        return Some(Curtain::Network(name_of(sys).to_owned()));
    }
    let host = sys.iter().filter_map(|p| p.to_str()).find(|p| p.starts_with("host"))?;
    let driver = machine.read(Path::new("/sys/class/scsi_host").join(host).join("proc_name"))?;
    RAID_DRIVERS.contains(&driver.as_str()).then_some(Curtain::RaidController(driver))
}

fn name_of(sys: &Path) -> &str {
    sys.file_name().and_then(|n| n.to_str()).unwrap_or_default()
}
