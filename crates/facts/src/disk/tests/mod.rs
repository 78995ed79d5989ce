//! Recorded machines against what a person should be told about them.

use std::path::PathBuf;

use super::*;
use crate::machine::fixture::Fixture;
use crate::machine::{Bus, Curtain, Medium, UsbDriver};

mod together;

fn pi() -> Fixture {
    Fixture::new(include_str!("../../../fixtures/pi-usb.txt"))
}

fn desktop() -> Fixture {
    Fixture::new(include_str!("../../../fixtures/nvme-desktop.txt"))
}

fn smr() -> Fixture {
    Fixture::new(include_str!("../../../fixtures/smr-disks.txt"))
}

fn virtual_machine() -> Fixture {
    Fixture::new(include_str!("../../../fixtures/virtual-machine.txt"))
}

fn report(fixture: &Fixture, given: &[&str]) -> CheckReport {
    let given: Vec<PathBuf> = given.iter().map(PathBuf::from).collect();
    check(&fixture.machine, &given, &CheckOptions::default())
}

/// All findings of a path worse than ok, as "level code", in order.
fn codes(fixture: &Fixture, path: &str) -> Vec<String> {
    let report = report(fixture, &[path]);
    let findings = report.disks[0].findings.iter().filter(|f| f.level > Level::Ok);
    findings.map(|f| format!("{} {}", f.level.word(), f.code)).collect()
}

fn finding<'a>(report: &'a DiskReport, code: &str) -> &'a Finding {
    report.findings.iter().find(|f| f.code == code).unwrap_or_else(|| panic!("no {code} in {:#?}", report.findings))
}

#[test]
fn an_ssd_behind_a_usb_bridge() {
    let fixture = pi();
    assert_eq!(codes(&fixture, "/mnt/ssd/larder"), ["warning usb-bridge"]);
    let report = report(&fixture, &["/mnt/ssd/larder"]);
    let disk = &report.disks[0];
    let device = &disk.devices[0].device;
    assert_eq!((device.name.as_str(), device.bus, device.medium), ("sda", Bus::Usb, Medium::Flash));
    assert_eq!(
        device.usb.as_ref().map(|u| (u.driver, u.speed_mbits, u.behind_hub)),
        Some((UsbDriver::Uas, Some(5000), false))
    );
    // The disk's own serial number, not the bridge's.
    assert_eq!(device.serial.as_ref().map(|s| s.text.as_str()), Some("S3Z9NB0K123456X"));
    assert_eq!(disk.devices[0].smart.as_ref().unwrap().wear_percent, Some(7));
    assert!(disk.unknown.iter().any(|u| u.what.contains("when the power goes")), "{:?}", disk.unknown);
    assert!(finding(disk, "usb-bridge").why.contains("FUA"));
    assert!(finding(disk, "disk").what.ends_with("write cache flushed"), "{:?}", finding(disk, "disk"));
}

#[test]
fn hard_disks_in_bad_docks() {
    let fixture = pi();
    assert_eq!(
        codes(&fixture, "/mnt/hdd1"),
        [
            "refuse cache-hidden",
            "warning data-writeback",
            "warning usb-slow",
            "warning errors",
            "warning errors",
            "note usb-bot",
            "note usb-hub",
            "note old"
        ]
    );
    // Without an answer of smartctl the cache is a suspicion, and the gap is named.
    assert_eq!(
        codes(&fixture, "/mnt/hdd2"),
        ["refuse no-barrier", "warning usb-slow", "warning cache-hidden", "note usb-bot", "note usb-hub"]
    );
    let report = report(&fixture, &["/mnt/hdd1", "/mnt/hdd2"]);
    assert!(
        report.disks[1].unknown.iter().any(|u| u.why.contains("Unknown USB bridge")),
        "{:?}",
        report.disks[1].unknown
    );
    assert!(finding(&report.disks[0], "usb-slow").action.as_ref().unwrap().contains("USB 3 port"));
    assert_eq!(finding(&report.disks[1], "usb-slow").action.as_deref(), Some("use USB 3"));
}

#[test]
fn filesystems_that_cannot_hold_a_pool() {
    let fixture = pi();
    assert_eq!(codes(&fixture, "/mnt/nas/x"), ["refuse filesystem", "refuse read-only"]);
    assert_eq!(codes(&fixture, "/mnt/usb"), ["refuse filesystem"]);
    assert_eq!(codes(&fixture, "/boot/firmware/x")[0], "refuse filesystem");
    assert_eq!(codes(&virtual_machine(), "/mnt/ram"), ["refuse filesystem"]);
    assert_eq!(codes(&fixture, "/dev/nothing"), ["refuse missing"]);
    assert_eq!(codes(&desktop(), "/dev/shm/x"), ["refuse filesystem"]);
}

#[test]
fn a_memory_card_is_found_below_the_system() {
    assert_eq!(codes(&pi(), "/home/pi/larder"), ["warning card", "warning system-disk"]);
    assert_eq!(
        codes(&pi(), "/dev/mmcblk0p2"),
        ["refuse system-disk", "refuse in-use", "refuse in-use", "warning card"]
    );
}

#[test]
fn nvme_disks() {
    let fixture = desktop();
    assert_eq!(codes(&fixture, "/home"), ["warning system-disk"]);
    assert_eq!(codes(&fixture, "/mnt/fast"), ["warning errors", "warning worn", "warning hot", "note link-slow"]);
    assert_eq!(codes(&fixture, "/mnt/server"), ["refuse failing"]);
    let report = report(&fixture, &["/mnt/server", "/"]);
    assert!(finding(&report.disks[0], "failing").what.contains("spare blocks used up, read-only"));
    assert!(finding(&report.disks[0], "power-loss-protection").what.contains("no volatile write cache"));
    // A namespace of a multipath subsystem: model, serial number and link come from its controller.
    let device = &report.disks[1].devices[0].device;
    assert_eq!(device.model.as_deref(), Some("Samsung SSD 990 PRO 2TB"));
    assert_eq!(device.serial.as_ref().map(|s| s.text.as_str()), Some("S6Z2NJ0W100001A"));
    assert_eq!(device.pcie.as_ref().map(|p| p.address.as_str()), Some("0000:01:00.0"));
}

#[test]
fn through_loop_lvm_and_raid_to_the_disks() {
    let fixture = desktop();
    let report = report(&fixture, &["/mnt/image/a", "/srv/old", "/mnt/many"]);
    let names = |at: usize| report.disks[at].devices.iter().map(|d| d.device.name.as_str()).collect::<Vec<_>>();
    assert_eq!(names(0), ["sda", "sdb"]);
    assert_eq!(
        report.disks[0].layers,
        ["loop0 (the file /srv/old/images/disk.img)", "dm-0 (LVM vg-data)", "md127 (raid1)"]
    );
    assert_eq!(names(1), ["sda", "sdb"]);
    assert_eq!(names(2), ["sdc", "sdd"]);
    assert!(
        matches!(&report.disks[2].devices[0].device.curtain, Some(Curtain::RaidController(d)) if d == "megaraid_sas")
    );
    assert!(report.disks[2].unknown.iter().any(|u| u.action.as_deref().is_some_and(|a| a.contains("JBOD"))));
    assert_eq!(codes(&fixture, "/mnt/image/a"), ["warning loop", "warning spans-disks", "warning link-slow"]);
    let protected = finding(&report.disks[1], "power-loss-protection");
    assert!(protected.what.contains("sdb") && protected.what.contains("capacitor"));
}

#[test]
fn shingled_disks() {
    let fixture = smr();
    assert_eq!(codes(&fixture, "/home"), ["warning smr", "warning system-disk"]);
    assert_eq!(codes(&fixture, "/mnt/b"), ["warning smr"]);
    assert_eq!(codes(&fixture, "/mnt/c"), ["warning smr", "warning port-multiplier"]);
    assert_eq!(
        codes(&fixture, "/mnt/d"),
        ["refuse failing", "warning port-multiplier", "warning errors", "warning hot"]
    );
    assert_eq!(codes(&fixture, "/dev/sdg"), ["refuse smr"]);
    assert_eq!(codes(&fixture, "/mnt/e"), ["warning mounted-sync", "note filesystem"]);
}

#[test]
fn a_virtual_machine_knows_little_and_says_so() {
    let fixture = virtual_machine();
    assert_eq!(codes(&fixture, "/srv/x"), ["warning system-disk"]);
    let report = report(&fixture, &["/srv/x"]);
    let device = &report.disks[0].devices[0].device;
    assert_eq!((device.medium, device.rotational), (Medium::Unknown, Some(true)));
    assert_eq!(device.serial, None);
    let unknown: Vec<&str> = report.disks[0].unknown.iter().map(|u| u.what.as_str()).collect();
    assert!(unknown.iter().any(|what| what.contains("what becomes of a flush")), "{unknown:?}");
    let listed: Vec<String> = list(&fixture.machine).into_iter().map(|l| l.device.name).collect();
    assert_eq!(listed, ["vda"]);
}

#[test]
fn without_smartctl_the_gap_is_named() {
    let fixture = smr();
    let report = report(&fixture, &["/mnt/b"]);
    let unknown = report.disks[0].unknown.iter().find(|u| u.what.starts_with("the health")).unwrap();
    assert_eq!(
        (unknown.why.as_str(), unknown.action.as_deref()),
        ("smartctl is not installed", Some("apt install smartmontools"))
    );
}

#[test]
fn the_list_says_what_each_disk_is_used_for() {
    let fixture = desktop();
    let listed = list(&fixture.machine);
    let of = |name: &str| listed.iter().find(|l| l.device.name == name).unwrap();
    assert!(of("nvme0n1").system && of("nvme0n1").used.iter().any(|u| u.contains("swap")));
    assert_eq!(of("sda").used, ["md127 is built on it"]);
    assert_eq!(of("sdc").used, ["it is mounted at /mnt/many (btrfs)"]);
    assert_eq!(of("sdd").partitions.len(), 0);
}

#[test]
fn the_json_form_is_versioned() {
    let json = serde_json::to_value(report(&pi(), &["/mnt/ssd"])).unwrap();
    assert_eq!((json["version"].as_u64(), json["verdict"].as_str()), (Some(1), Some("warning")));
    let device = &json["disks"][0]["devices"][0];
    assert_eq!(
        (device["name"].as_str(), device["bus"].as_str(), device["medium"].as_str()),
        (Some("sda"), Some("usb"), Some("flash"))
    );
    assert_eq!(device["usb"]["driver"], "uas");
    assert_eq!(json["disks"][0]["findings"][0]["code"], "usb-bridge");
}
