//! Disks beside each other, and flush rates beside what the medium can do.

use super::*;
use crate::disk::flush::FlushRate;
use crate::disk::rules;

fn levels(report: &CheckReport, code: &str) -> Vec<Level> {
    let all = report.disks.iter().flat_map(|d| &d.findings);
    all.filter(|f| f.code == code).map(|f| f.level).collect()
}

#[test]
fn folders_on_one_disk_share_its_fate() {
    let check = |fixture: &Fixture, given: &[&str], code: &str, found: &[Level]| {
        assert_eq!(levels(&report(fixture, given), code), found, "{given:?} {code}");
    };
    use Level::{Refuse, Warning};
    let desktop = desktop();
    check(&desktop, &["/srv/a", "/srv/b"], "same-disk", &[Warning, Warning]);
    check(&desktop, &["/srv/old/x", "/mnt/image/y"], "same-disk", &[Warning, Warning]);
    check(&desktop, &["/mnt/fast", "/mnt/server"], "same-disk", &[]);
    check(&desktop, &["/dev/sda", "/dev/md127"], "same-disk", &[Refuse, Refuse]);
    check(&desktop, &["/mnt/fast/a", "/mnt/fast/a"], "same-place", &[Refuse, Refuse]);
    check(&desktop, &["/mnt/fast", "/mnt/fast/a"], "same-place", &[Refuse, Refuse]);
    check(&desktop, &["/mnt/fast/a", "/mnt/fast/ab"], "same-place", &[]);
    let pi = pi();
    check(&pi, &["/mnt/hdd1", "/mnt/hdd2"], "same-wire", &[Warning, Warning]);
    check(&pi, &["/mnt/ssd", "/mnt/hdd2"], "same-wire", &[]);
    check(&pi, &["/mnt/ssd", "/mnt/bay2"], "same-wire", &[Warning, Warning]);
    let smr = smr();
    check(&smr, &["/mnt/c", "/mnt/d"], "same-wire", &[Warning, Warning]);
    // One disk on two paths; and a dock's invented number only while the disk's own is not known.
    check(&smr, &["/mnt/e", "/mnt/f"], "same-serial", &[Refuse, Refuse]);
    pi.write("/tools/smartctl/sdb", "{}");
    check(&pi, &["/mnt/hdd1", "/mnt/hdd2"], "same-serial", &[Warning, Warning]);
}

#[test]
fn members_are_looked_at_too() {
    let fixture = desktop();
    let options = CheckOptions { members: vec![PathBuf::from("/mnt/fast/old")], ..CheckOptions::default() };
    let report = check(&fixture.machine, &[PathBuf::from("/mnt/fast/new")], &options);
    assert_eq!(report.disks.len(), 1);
    assert!(finding(&report.disks[0], "same-disk").what.contains("(a member)"));
}

#[test]
fn a_platter_cannot_flush_faster_than_it_turns() {
    let rate =
        |per_s: f64| FlushRate { flushes: 64, per_s, median_us: (1e6 / per_s) as u64, worst_us: 1, direct: true };
    let check = |fixture: &Fixture, path: &str, per_s: f64, level: Level, code: &str| {
        let report = report(fixture, &[path]);
        let devices: Vec<_> = report.disks[0].devices.iter().map(|d| &d.device).collect();
        let found = rules::flush::flush(&rate(per_s), &devices, &[]);
        assert_eq!((found[0].level, found[0].code), (level, code), "{path} {per_s}");
    };
    check(&smr(), "/mnt/d", 118.0, Level::Ok, "flush");
    check(&smr(), "/mnt/d", 290.0, Level::Ok, "flush");
    check(&smr(), "/mnt/d", 8000.0, Level::Warning, "false-flush");
    check(&smr(), "/mnt/d", 20.0, Level::Note, "flush");
    check(&pi(), "/mnt/hdd2", 2500.0, Level::Warning, "false-flush");
    check(&desktop(), "/mnt/fast", 8000.0, Level::Ok, "flush");
    // A host's cache and a controller's battery may be that fast.
    check(&virtual_machine(), "/srv", 8000.0, Level::Ok, "flush");
    check(&desktop(), "/mnt/many", 8000.0, Level::Ok, "flush");
}
