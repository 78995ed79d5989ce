//! Recorded machines: what is read of them, what follows, and what can be changed and taken back.

use larder_facts::reading::{Busy, Hog, ReadOptions, Reading};
use std::path::PathBuf;
use std::time::Duration;

use super::super::*;
use crate::describe::Layout;
use crate::fixture::Fixture;

fn read(fixture: &Fixture) -> Reading {
    Reading::of(&fixture.machine, ReadOptions { smart: true, watch: Duration::ZERO })
}

fn codes(notices: &[Notice]) -> Vec<&str> {
    notices.iter().map(|n| n.code).collect()
}

fn of<'a>(notices: &'a [Notice], code: &str) -> &'a Notice {
    notices.iter().find(|n| n.code == code).unwrap_or_else(|| panic!("no {code} in {:?}", codes(notices)))
}

#[test]
fn a_folder_without_a_machine_is_no_healthy_machine() {
    let fixture = Fixture::new("/etc/hostname = nas");
    let found = examine(&fixture.machine, read(&fixture), &Sources::default()).unwrap();
    assert!(found.diagnosis.verdict.starts_with("nothing could be read"), "{}", found.diagnosis.verdict);
}

#[test]
fn a_pi_with_everything_wrong_is_told_so() {
    let fixture = Fixture::new(include_str!("../../../../facts/fixtures/pi-usb.txt"));
    let reading = read(&fixture);
    assert_eq!((reading.host.name.as_str(), reading.processor.cores, reading.processor.aes), ("pi", 4, Some(false)));
    let sdb = reading.drives.iter().find(|d| d.name == "sdb").unwrap();
    let way: Vec<(&str, &str)> = sdb.hops.iter().map(|h| (h.address.as_str(), h.now.as_str())).collect();
    assert_eq!(way, [("1-1.3", "USB 2.0"), ("1-1", "USB 2.0"), ("0000:01:00.0", "PCIe 2.0 x1")]);
    let found = notices(&reading);
    let wanted = [
        "governor",
        "irq-one-core",
        "rps-off",
        "nic-slow",
        "nic-errors",
        "offload-off",
        "tcp-buffers",
        "throttled",
        "no-aes",
    ];
    let disks =
        ["usb-below-best", "usb-bot-bandwidth", "shared-wire", "scheduler", "read-ahead", "usb-slow", "errors", "card"];
    for code in wanted.iter().chain(&disks) {
        // RPS is for a gigabit; this card has a tenth.
        let absent = *code == "rps-off";
        let has = codes(&found).contains(code);
        assert_eq!(has, !absent, "{code}: {:?}", codes(&found));
    }
    let slow = of(&found, "nic-slow");
    assert!(slow.what.contains("runs at 100 Mbit/s and supports 1000"), "{slow:?}");
    assert!((slow.gain.unwrap().percent - 900.0).abs() < 1.0);
    let affinity = of(&found, "irq-one-core");
    let files: Vec<(&str, &str)> = affinity.changes.iter().map(|c| (c.file.as_str(), c.value.as_str())).collect();
    assert_eq!(files, [("/proc/irq/39/smp_affinity_list", "1"), ("/proc/irq/40/smp_affinity_list", "2")]);
    let buffers = of(&found, "tcp-buffers");
    assert_eq!(buffers.changes[0].value, "4096 32768 16777216");
    // Once of each disk, by the rule that knows most.
    let slow = found.iter().filter(|n| ["usb-slow", "usb-below-best"].contains(&n.code) && n.what.contains("(sdb)"));
    assert_eq!(slow.count(), 1, "{found:#?}");
    let hub = "sdb, sdc share hub 1-1 (USB 2.0): at most 40 MB/s together";
    assert!(found.iter().any(|n| n.code == "shared-wire" && n.what == hub), "{found:#?}");
    assert!(found.iter().all(|n| !n.what.is_empty() && !n.why.is_empty()));
}

/// Nobody is told to stop the server that all of this is for.
#[test]
fn who_serves_files_is_no_thief() {
    let mut reading = read(&Fixture::new(include_str!("../../../../facts/fixtures/pi-usb.txt")));
    let hog = |(pid, name): (u32, &str)| Hog { pid, name: name.to_owned(), percent: 60.0 };
    let hogs = [(1, "larder"), (2, "smbd"), (3, "ganesha.nfsd"), (4, "updatedb"), (5, "larderd")].map(hog).to_vec();
    reading.busy = Some(Busy { seconds: 1.0, hogs, iowait_percent: 0.0, steal_percent: 0.0 });
    let found: Vec<String> = notices(&reading).into_iter().filter(|n| n.code == "hog").map(|n| n.what).collect();
    assert_eq!(found, ["updatedb (pid 4) takes 60 % of a core", "larderd (pid 5) takes 60 % of a core"]);
}

#[test]
fn slots_and_cables_of_a_desktop_are_seen() {
    let fixture = Fixture::new(include_str!("../../../../facts/fixtures/nvme-desktop.txt"));
    let reading = read(&fixture);
    let found = notices(&reading);
    let slot = of(&found, "pcie-slot");
    assert!(slot.what.contains("could PCIe 4.0 x4, and its slot gives PCIe 3.0 x4"), "{slot:?}");
    assert!((slot.gain.unwrap().percent - 100.0).abs() < 0.1);
    assert!(of(&found, "qlc").what.contains("CT4000P3SSD8"));
    let sata = of(&found, "sata-below-both");
    assert!(sata.what.contains("connected at 3.0 Gbps"), "{sata:?}");
    let lane = of(&found, "nic-lane");
    assert!(lane.what.contains("10000 Mbit/s on its cable and PCIe 2.0 x1"), "{lane:?}");
    // A RAID controller's volumes have no way of their own to speak of.
    assert!(
        reading
            .drives
            .iter()
            .filter(|d| d.hidden)
            .all(|d| !found.iter().any(|n| n.code == "scheduler" && n.what.contains(&d.name)))
    );
    let examined = examine(&fixture.machine, reading, &Sources::default()).unwrap();
    assert!(examined.diagnosis.verdict.contains("more warnings"), "{}", examined.diagnosis.verdict);
    assert!(examined.diagnosis.verdict.contains("larder bench all"));
}

/// md RAID 1 of partitions of two SATA SSDs, and LVM on it, are two disks and not four.
#[test]
fn what_is_made_of_disks_is_not_a_disk_beside_them() {
    let fixture = Fixture::new(include_str!("../../../../facts/fixtures/nvme-desktop.txt"));
    let reading = read(&fixture);
    let names: Vec<&str> = reading.drives.iter().map(|d| d.name.as_str()).collect();
    assert_eq!(names, ["nvme0n1", "nvme1n1", "nvme2n1", "sda", "sdb", "sdc", "sdd"]);
    let found = notices(&reading);
    assert!(found.iter().all(|n| n.code != "same-disk"), "{:?}", codes(&found));
    for notice in &found {
        let alike = found.iter().filter(|n| n.code == notice.code && n.what == notice.what).count();
        assert!(alike == 1 && !notice.what.starts_with("it "), "{notice:?}");
    }
    let slow = found.iter().filter(|n| n.what.contains("3.0 Gbps")).count();
    let hot = found.iter().filter(|n| n.what.contains("72")).count();
    assert_eq!((slow, hot), (1, 1), "{found:#?}");
    // Its namespace hangs below a virtual subsystem.
    let multipath = &reading.drives[0];
    let way: Vec<(&str, &str)> = multipath.hops.iter().map(|h| (h.address.as_str(), h.now.as_str())).collect();
    assert_eq!(way, [("0000:01:00.0", "PCIe 4.0 x4")]);
}

#[test]
fn a_bind_mount_is_not_named_beside_its_filesystem() {
    let fixture = Fixture::new(include_str!("../../../../facts/fixtures/nvme-desktop.txt"));
    fixture.write(
        "/proc/self/mountinfo",
        "40 25 259:5 / /mnt/fast rw - xfs /dev/nvme1n1 rw,discard\n46 25 259:5 /ns /run/netns rw - xfs /dev/nvme1n1 rw,discard\n",
    );
    let found = notices(&read(&fixture));
    let named: Vec<&str> = found.iter().filter(|n| n.code == "mount-discard").map(|n| n.what.as_str()).collect();
    assert_eq!(named, ["/mnt/fast is mounted with discard"]);
}

#[test]
fn two_paths_that_multipathd_put_together_are_one_disk() {
    let text = include_str!("../../../../facts/fixtures/smr-disks.txt");
    let said = |fixture: &Fixture| {
        let reading = read(fixture);
        let paths = reading.drives.iter().filter(|d| ["sde", "sdf"].contains(&d.name.as_str())).count();
        (paths, notices(&reading).iter().filter(|n| n.code == "same-serial").count())
    };
    // Otherwise they are one disk on two paths, which is said once.
    assert_eq!(said(&Fixture::new(text)), (2, 1));
    let together = "\n@mpath = /sys/devices/virtual/block/dm-1\n@mpath/dev = 253:1\n@mpath/size = 7814037168\n\
        @mpath/dm/uuid = mpath-35000cca25d000001\n@mpath/slaves/sde -> @sde\n@mpath/slaves/sdf -> @sdf\n\
        /sys/class/block/dm-1 -> @mpath\n";
    assert_eq!(said(&Fixture::new(&format!("{text}{together}"))), (1, 0));
}

#[test]
fn a_disk_that_fails_comes_before_one_that_is_warm() {
    let fixture = Fixture::new(include_str!("../../../../facts/fixtures/smr-disks.txt"));
    let examined = examine(&fixture.machine, read(&fixture), &Sources::default()).unwrap();
    let verdict = &examined.diagnosis.verdict;
    assert!(verdict.contains("(sdd) says that it is failing (SMART): see to that before anything else"), "{verdict}");
    assert_eq!(examined.notices.iter().filter(|n| n.what.contains("61")).count(), 1, "{:#?}", examined.notices);
}

#[test]
fn a_machine_in_a_cloud_has_little_to_say() {
    let fixture = Fixture::new(include_str!("../../../../facts/fixtures/virtual-machine.txt"));
    let reading = read(&fixture);
    assert!(reading.drives.iter().all(|d| d.hidden && d.hops.is_empty()), "{:?}", reading.drives);
    let found = notices(&reading);
    assert!(found.iter().all(|n| n.changes.is_empty()), "{found:?}");
}

fn value(fixture: &Fixture, file: &str) -> String {
    fixture.machine.read(file).unwrap()
}

#[test]
fn fixes_are_taken_back() {
    let fixture = Fixture::new(include_str!("../../../../facts/fixtures/pi-usb.txt"));
    let folder = tempfile::tempdir().unwrap();
    let fixer = Fixer::new(&fixture.machine, &folder.path().join("lib/changes.json"));
    let found = notices(&read(&fixture));
    let governor = "/sys/devices/system/cpu/cpufreq/policy0/scaling_governor";
    let changes: Vec<Change> = found.iter().flat_map(|n| n.changes.clone()).collect();
    assert!(changes.len() >= 5, "{changes:?}");
    for change in &changes {
        fixer.apply(change).unwrap();
        assert_eq!(value(&fixture, &change.file), change.value);
    }
    assert_eq!(fixer.recorded().unwrap().len(), changes.len());
    // A second fix keeps the first one's memory of what was there.
    fixer.apply(&Change { file: governor.to_owned(), value: "ondemand".to_owned() }).unwrap();
    let mine = fixer.recorded().unwrap().into_iter().find(|d| d.file == governor).unwrap();
    assert_eq!((mine.before.as_str(), mine.after.as_str()), ("powersave", "ondemand"));
    // A value that somebody else has changed since is theirs.
    fixture.write("/proc/irq/39/smp_affinity_list", "3\n");
    let undone = fixer.undo().unwrap();
    let left: Vec<&str> = undone.iter().filter(|u| u.left.is_some()).map(|u| u.file.as_str()).collect();
    assert_eq!(left, ["/proc/irq/39/smp_affinity_list"]);
    assert_eq!(value(&fixture, governor), "powersave");
    assert_eq!(value(&fixture, "/sys/block/sdb/queue/scheduler"), "none");
    assert_eq!(value(&fixture, "/proc/irq/39/smp_affinity_list"), "3");
    assert_eq!(value(&fixture, "/proc/sys/net/ipv4/tcp_rmem"), "4096 32768 60000");
    // Theirs stays on record, for when they are done with it.
    assert_eq!(fixer.recorded().unwrap().len(), 1);
    let ours = fixer.recorded().unwrap().remove(0);
    fixture.write("/proc/irq/39/smp_affinity_list", &ours.after);
    assert_eq!(fixer.undo().unwrap()[0].left, None);
    assert_eq!(value(&fixture, "/proc/irq/39/smp_affinity_list"), ours.before);
    assert!(fixer.undo().unwrap().is_empty());
}

/// Whoever only asks leaves nothing behind, and neither does a fix that was taken back.
#[test]
fn undoing_nothing_writes_nothing() {
    let fixture = Fixture::new(include_str!("../../../../facts/fixtures/pi-usb.txt"));
    let folder = tempfile::tempdir().unwrap();
    let lib = folder.path().join("lib");
    let state = lib.join("changes.json");
    let fixer = Fixer::new(&fixture.machine, &state);
    assert!(fixer.undo().unwrap().is_empty() && !lib.exists());
    let governor = "/sys/devices/system/cpu/cpufreq/policy0/scaling_governor";
    fixer.apply(&Change { file: governor.to_owned(), value: "performance".to_owned() }).unwrap();
    assert!(state.exists());
    assert_eq!(fixer.undo().unwrap().len(), 1);
    assert_eq!(std::fs::read_dir(&lib).unwrap().count(), 0);
}

/// A fixer of a box, with a state file of these changes.
fn recorded(fixture: &Fixture, boot_id: Option<&str>, changes: serde_json::Value) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("changes.json");
    if let Some(boot_id) = boot_id {
        fixture.write("/proc/sys/kernel/random/boot_id", "now\n");
        let text = serde_json::json!({"version": 1, "boot_id": boot_id, "changes": changes});
        std::fs::write(&state, text.to_string()).unwrap();
    } else {
        std::fs::write(&state, serde_json::json!({"version": 1, "changes": changes}).to_string()).unwrap();
    }
    (folder, state)
}

#[test]
fn what_a_restart_took_back_is_forgotten() {
    let fixture = Fixture::new(include_str!("../../../../facts/fixtures/pi-usb.txt"));
    let governor = "/sys/devices/system/cpu/cpufreq/policy0/scaling_governor";
    let changes = serde_json::json!([{"file": governor, "before": "ondemand", "after": "powersave"}]);
    let (_folder, state) = recorded(&fixture, Some("before"), changes.clone());
    let fixer = Fixer::new(&fixture.machine, &state);
    assert!(fixer.undo().unwrap().is_empty());
    assert_eq!(value(&fixture, governor), "powersave");
    let (_folder, state) = recorded(&fixture, Some("now"), changes);
    let fixer = Fixer::new(&fixture.machine, &state);
    assert_eq!(fixer.undo().unwrap().len(), 1);
    assert_eq!(value(&fixture, governor), "ondemand");
    fixer.apply(&Change { file: governor.to_owned(), value: "performance".to_owned() }).unwrap();
    assert!(std::fs::read_to_string(&state).unwrap().contains(r#""boot_id": "now""#));
}

#[test]
fn a_state_file_cannot_write_what_is_no_value() {
    let fixture = Fixture::new(include_str!("../../../../facts/fixtures/pi-usb.txt"));
    let governor = "/sys/devices/system/cpu/cpufreq/policy0/scaling_governor";
    for before in ["", "ondemand\nx", &"x".repeat(1000)] {
        let changes = serde_json::json!([{"file": governor, "before": before, "after": "powersave"}]);
        let (_folder, state) = recorded(&fixture, None, changes);
        let undone = Fixer::new(&fixture.machine, &state).undo().unwrap();
        assert!(undone[0].left.as_ref().unwrap().contains("is no value"), "{undone:?}");
        assert_eq!(value(&fixture, governor), "powersave");
    }
}

/// A file that takes a value and has another one afterwards, as the kernel's limits do: here its `[marked]` part.
#[test]
fn what_the_kernel_made_of_a_value_is_recorded() {
    let fixture = Fixture::new(include_str!("../../../../facts/fixtures/pi-usb.txt"));
    let folder = tempfile::tempdir().unwrap();
    let fixer = Fixer::new(&fixture.machine, &folder.path().join("changes.json"));
    let governor = "/sys/devices/system/cpu/cpufreq/policy0/scaling_governor";
    let refused = fixer.apply(&Change { file: governor.to_owned(), value: "[ondemand] performance".to_owned() });
    assert!(matches!(refused, Err(FixError::NotTaken { .. })), "{refused:?}");
    assert_eq!(fixer.recorded().unwrap()[0].after, "ondemand");
    assert_eq!(fixer.undo().unwrap()[0].left, None);
    assert_eq!(value(&fixture, governor), "powersave");
    // Undoing reads back too.
    let changes = serde_json::json!([{"file": governor, "before": "[ondemand] performance", "after": "powersave"}]);
    let (_folder, state) = recorded(&fixture, None, changes);
    let fixer = Fixer::new(&fixture.machine, &state);
    let undone = fixer.undo().unwrap();
    assert!(undone[0].left.as_ref().unwrap().contains("does not take it"), "{undone:?}");
    assert_eq!(fixer.recorded().unwrap()[0].after, "ondemand");
}

#[test]
fn only_known_files_are_written() {
    let fixture = Fixture::new(include_str!("../../../../facts/fixtures/pi-usb.txt"));
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("changes.json");
    let fixer = Fixer::new(&fixture.machine, &state);
    for file in [
        "/etc/passwd",
        "/proc/sys/kernel/core_pattern",
        "/sys/block/../../etc/x/queue/scheduler",
        "/sys/block//queue/scheduler",
        "/proc/sys/net/ipv4/tcp_rmem.x",
    ] {
        let change = Change { file: file.to_owned(), value: "x".to_owned() };
        assert!(matches!(fixer.apply(&change), Err(FixError::NotAllowed(_))), "{file}");
    }
    // A state file that somebody wrote by hand is trusted no more.
    std::fs::write(&state, r#"{"version":1,"changes":[{"file":"/proc/swaps","before":"x","after":"y"}]}"#).unwrap();
    let undone = fixer.undo().unwrap();
    assert!(undone[0].left.as_ref().unwrap().contains("is not one of the files"));
    assert!(value(&fixture, "/proc/swaps").starts_with("Filename"));
    std::fs::write(&state, "nonsense").unwrap();
    assert!(matches!(fixer.undo(), Err(FixError::State(..))));
}

#[test]
fn a_zfs_pool_is_followed_to_its_disks() {
    let fixture = Fixture::new(include_str!("../../../../facts/fixtures/zfs-box.txt"));
    let reading = read(&fixture);
    let names: Vec<_> = reading.stores.iter().map(|s| s.name.as_str()).collect();
    assert_eq!(names, ["tank (ZFS 2 x raidz2 of 4)", "fast (ZFS mirror of 2)"]);
    let codes: Vec<_> = notices(&reading).iter().map(|n| n.code).filter(|c| c.starts_with("zfs")).collect();
    assert_eq!(codes, ["zfs-degraded", "zfs-full"]);
    // With two pools nobody can say which serves; with one it is the chain.
    assert_eq!(chain::chain(&reading).layout, Layout::Stripe);
    let one = Reading { stores: reading.stores[..1].to_vec(), ..reading };
    let described = chain::chain(&one);
    let shape = (described.layout, described.groups, described.disks.len());
    assert_eq!(shape, (Layout::Raidz2, 2, 8));
}
