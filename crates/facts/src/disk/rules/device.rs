//! One disk: how it records, how it is attached, what its cache is called.

use larder_base::units::ByteSize;

use crate::disk::known;
use crate::disk::report::{Finding, Level, Unknown};
use crate::machine::{BlockDevice, Bus, Curtain, Medium, Smart, UsbDriver, WriteCache};

/// USB 2.0.
const USB_SLOW_MBITS: u64 = 480;

pub(in crate::disk) fn device(disk: &BlockDevice, smart: Option<&Smart>) -> Vec<Finding> {
    let mut found = Vec::new();
    if disk.read_only {
        let what = format!("{} is write-protected", disk.title());
        found.push(Finding::new(Level::Refuse, "read-only", what, "nothing can be written to it"));
    }
    found.extend(shingled(disk, smart));
    found.extend(usb(disk));
    found.extend(cache(disk, smart));
    found.extend(links(disk, smart));
    found.extend(kind(disk));
    found
}

/// Facts that are hidden from this machine.
pub(in crate::disk) fn unknown(disk: &BlockDevice) -> Vec<Unknown> {
    let what = format!("what {} really is, its health, and what becomes of a flush", disk.title());
    let (why, action) = match &disk.curtain {
        Some(Curtain::Hypervisor(kind)) => (
            format!("the disk is made by a virtual machine's host ({kind})"),
            "look on the host: larder disk check there",
        ),
        Some(Curtain::RaidController(driver)) => (
            format!("a RAID controller ({driver}) shows volumes of its own"),
            "let the controller pass disks through (HBA, IT or JBOD mode)",
        ),
        Some(Curtain::Network(kind)) => (format!("it lies on another machine ({kind})"), "look on that machine"),
        None => return Vec::new(),
    };
    vec![Unknown { what, why, action: Some(action.to_owned()) }]
}

fn shingled(disk: &BlockDevice, smart: Option<&Smart>) -> Option<Finding> {
    const WHY: &str = "shingled tracks (SMR): long writes, such as a rebuild, fall to a few MB/s or time out";
    let title = disk.title();
    let finding = |level, what: String| {
        Some(
            Finding::new(level, "smr", what, WHY)
                .action("use a disk with conventional recording (CMR); fit for archives that are written once"),
        )
    };
    let model = disk.model.as_deref().or(smart.and_then(|s| s.model.as_deref())).unwrap_or_default();
    match disk.zoned.as_str() {
        "host-managed" => {
            return finding(Level::Refuse, format!("{title} is host-managed: it takes no ordinary writes"));
        }
        "host-aware" => return finding(Level::Warning, format!("{title} is host-aware SMR")),
        _ => {}
    }
    if let Some(known) = known::shingled(model) {
        return finding(Level::Warning, format!("{title} is an SMR model ({})", known.source));
    }
    if smart.is_some_and(|s| s.device_managed_zones) {
        return finding(Level::Warning, format!("{title} says that it manages zones (SMR)"));
    }
    let trims = disk.discard || smart.and_then(|s| s.trim) == Some(true);
    if disk.medium == Medium::HardDisk && trims {
        return finding(Level::Warning, format!("{title} is a hard disk that takes TRIM, as only shingled ones do"));
    }
    None
}

fn usb(disk: &BlockDevice) -> Vec<Finding> {
    let Some(usb) = &disk.usb else { return Vec::new() };
    let title = disk.title();
    let mut found = Vec::new();
    if let Some(known) = known::bridge(&usb.id) {
        let what = format!("{title} hangs on the USB bridge {} ({})", known.name, usb.id);
        found.push(
            Finding::new(Level::Warning, "usb-bridge", what, format!("it {}", known.trouble))
                .action("another bridge, or SATA"),
        );
    }
    if usb.driver == UsbDriver::BulkOnly {
        let why = "one command at a time (BOT): random reads do not overlap, and flushes stop everything";
        found.push(
            Finding::new(Level::Note, "usb-bot", format!("{title} is driven by usb-storage"), why)
                .action("a bridge that speaks UAS"),
        );
    }
    if let Some(speed) = usb.speed_mbits.filter(|&speed| speed <= USB_SLOW_MBITS) {
        let can_more = usb.version.as_deref().is_some_and(|v| v.trim().starts_with('3'));
        let action =
            if can_more { "the bridge can do more: use a USB 3 port (blue) and another cable" } else { "use USB 3" };
        let what = format!("{title} is connected at {speed} Mbit/s");
        found.push(
            Finding::new(Level::Warning, "usb-slow", what, "30 to 40 MB/s at best: a rebuild takes days")
                .action(action),
        );
    }
    if usb.behind_hub {
        let what = format!("{title} hangs on a USB hub (port {})", usb.port);
        found.push(
            Finding::new(Level::Note, "usb-hub", what, "everything on the hub shares one link, and goes away together")
                .action("plug it into the machine itself"),
        );
    }
    found
}

/// A cache that the kernel does not know of is never flushed.
fn cache(disk: &BlockDevice, smart: Option<&Smart>) -> Option<Finding> {
    if disk.curtain.is_some() || disk.write_cache != Some(WriteCache::Through) {
        return None;
    }
    let (title, name) = (disk.title(), &disk.name);
    let why = "the kernel takes it for a disk without a cache and sends no flushes: what was answered as stored is lost in a power cut";
    let action = format!(
        "echo 'write back' > /sys/block/{name}/queue/write_cache (at every boot: a udev rule), or: hdparm -W0 /dev/{name}"
    );
    match smart.and_then(|s| s.write_cache) {
        Some(true) => Some(
            Finding::new(
                Level::Refuse,
                "cache-hidden",
                format!("the write cache of {title} is on and never flushed"),
                why,
            )
            .action(action),
        ),
        None if disk.bus == Bus::Usb => Some(
            Finding::new(
                Level::Warning,
                "cache-hidden",
                format!("the bridge of {title} says nothing of its write cache"),
                why,
            )
            .action(action),
        ),
        _ => None,
    }
}

fn links(disk: &BlockDevice, smart: Option<&Smart>) -> Vec<Finding> {
    let title = disk.title();
    let mut found = Vec::new();
    if let Some(sata) = disk.sata.as_ref().filter(|sata| sata.multiplier) {
        let what = format!("{title} hangs on a port multiplier ({})", sata.port);
        let why = "its disks share one link, and one that fails can take the others with it";
        found.push(
            Finding::new(Level::Warning, "port-multiplier", what, why).action("a SATA port for each disk (an HBA)"),
        );
    }
    if let Some(smart) = smart
        && let (Some(link), Some(best)) = (&smart.link, &smart.link_max)
        && link != best
    {
        let what = format!("{title} is connected at {link} and could {best}");
        found.push(
            Finding::new(Level::Warning, "link-slow", what, "an old port, or a bad cable")
                .action("another cable or port; see: dmesg | grep -i 'sata link'"),
        );
    }
    if let Some(pcie) = disk.pcie.as_ref().filter(|pcie| pcie.below_best()) {
        let what =
            format!("{title} has {} x{} of {} x{}", pcie.speed, pcie.width_lanes, pcie.speed_max, pcie.width_lanes_max);
        let why = "its slot, or a saving of power, gives it less than it can";
        found.push(
            Finding::new(Level::Note, "link-slow", what, why)
                .action("another slot, if it is to be as fast as the others"),
        );
    }
    found
}

/// Cards and sticks; and what all is well with.
fn kind(disk: &BlockDevice) -> Option<Finding> {
    let title = disk.title();
    if disk.bus == Bus::Mmc || (disk.bus == Bus::Usb && disk.removable && disk.medium != Medium::HardDisk) {
        let why = "cards and sticks are slow at small flushes, wear out soon, and fail without warning";
        return Some(
            Finding::new(Level::Warning, "card", format!("{title} is a memory card or stick"), why)
                .action("an SSD or a hard disk"),
        );
    }
    if disk.curtain.is_some() {
        return None;
    }
    let fua = if disk.fua == Some(true) { " with FUA" } else { "" };
    let cache = match disk.write_cache {
        Some(WriteCache::Back) => format!(", write cache flushed{fua}"),
        Some(WriteCache::Through) => ", no write cache".to_owned(),
        None => String::new(),
    };
    let (bus, medium) = (disk.bus.word(), disk.medium.word());
    let what = format!("{title}: {bus} {medium}, {}{cache}", ByteSize(disk.size_bytes));
    Some(Finding::new(Level::Ok, "disk", what, ""))
}
