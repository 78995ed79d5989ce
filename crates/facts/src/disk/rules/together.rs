//! Disks beside each other: what fails together is no redundancy.

use std::path::Path;

use crate::disk::report::{DiskReport, Finding, Level};
use crate::machine::BlockDevice;

/// Of `one`, in the face of another disk that is given with it or a member already.
pub(in crate::disk) fn beside(one: &DiskReport, other: &DiskReport, other_is_member: bool) -> Vec<Finding> {
    let title = match other_is_member {
        true => format!("{} (a member)", other.given.display()),
        false => other.given.display().to_string(),
    };
    // The folder above one that does not exist is the place of many.
    let is_there = |report: &DiskReport| report.findings.iter().all(|finding| finding.code != "missing");
    let is_same = one.place.is_some() && one.place == other.place && is_there(one) && is_there(other);
    if let Some(finding) = same_place(&one.given, &other.given, is_same, &title) {
        return vec![finding];
    }
    let mine = || one.devices.iter().map(|d| &d.device);
    let theirs = || other.devices.iter().map(|d| &d.device);
    let shared: Vec<&BlockDevice> = mine().filter(|a| theirs().any(|b| a.name == b.name)).collect();
    if let Some(disk) = shared.first() {
        let both = one.is_device && other.is_device;
        let level = if both { Level::Refuse } else { Level::Warning };
        let what = format!("it lies on the same disk as {title}: {}", disk.title());
        let why = "when that disk fails, both are gone";
        return vec![
            Finding::new(level, "same-disk", what, why).action("fine for trying out; otherwise one disk for each"),
        ];
    }
    let mut found = Vec::new();
    for a in mine() {
        for b in theirs() {
            found.extend(same_identity(a, b, &title));
            found.extend(same_wire(a, b, &title));
        }
    }
    found
}

fn same_place(one: &Path, other: &Path, is_same: bool, title: &str) -> Option<Finding> {
    let refuse = |what: String| {
        Some(
            Finding::new(Level::Refuse, "same-place", what, "a pool wants one place for each disk")
                .action("name each place once"),
        )
    };
    if one == other {
        return refuse(format!("it is given twice: {title}"));
    }
    if is_same {
        return refuse(format!("it is the same folder as {title}, by another path"));
    }
    if one.starts_with(other) || other.starts_with(one) {
        return refuse(format!("it lies within {title}, or that within it"));
    }
    None
}

/// Two devices that call themselves the same: one disk on two paths, or a bridge that invents serial numbers.
fn same_identity(a: &BlockDevice, b: &BlockDevice, title: &str) -> Option<Finding> {
    if a.curtain.is_some() || b.curtain.is_some() {
        return None;
    }
    let same_wwn = a.wwn.is_some() && a.wwn == b.wwn;
    let serial = |d: &BlockDevice| d.serial.as_ref().map(|s| s.text.clone());
    let same_serial = serial(a).is_some() && serial(a) == serial(b) && a.model == b.model;
    if !same_wwn && !same_serial {
        return None;
    }
    let name = serial(a).or_else(|| a.wwn.clone()).unwrap_or_default();
    let what = format!("{} and {} of {title} have the same serial number {name}", a.title(), b.name);
    if a.usb.is_some() || b.usb.is_some() {
        let why = "USB bridges invent them: which disk is which cannot be told by it, and links in /dev/disk/by-id change at every boot";
        return Some(
            Finding::new(Level::Warning, "same-serial", what, why)
                .action("mount them by the UUID of their filesystems"),
        );
    }
    let why = "it is one disk, seen on two paths: both fail together";
    Some(Finding::new(Level::Refuse, "same-serial", what, why).action("use one of the paths, or multipathd"))
}

/// A hub, a dock with several bays or a port multiplier takes all of its disks along.
fn same_wire(a: &BlockDevice, b: &BlockDevice, title: &str) -> Option<Finding> {
    let shared = |of: fn(&BlockDevice) -> Option<String>| of(a).filter(|wire| of(b).as_ref() == Some(wire));
    let wire = shared(bridge).or_else(|| shared(hub)).or_else(|| shared(multiplier))?;
    let what = format!("it shares {wire} with {title}");
    let why = "when that fails, or its plug is touched, both are gone at once";
    Some(Finding::new(Level::Warning, "same-wire", what, why).action("a port of the machine for each"))
}

fn bridge(disk: &BlockDevice) -> Option<String> {
    disk.usb.as_ref().map(|usb| format!("the USB bridge at {}", usb.port))
}

fn hub(disk: &BlockDevice) -> Option<String> {
    let port = &disk.usb.as_ref().filter(|usb| usb.behind_hub)?.port;
    port.rsplit_once('.').map(|(hub, _)| format!("the USB hub {hub}"))
}

fn multiplier(disk: &BlockDevice) -> Option<String> {
    let sata = disk.sata.as_ref().filter(|sata| sata.multiplier)?;
    Some(format!("the port multiplier on {}", sata.port))
}
