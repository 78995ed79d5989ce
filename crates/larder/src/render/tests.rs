#![allow(clippy::unwrap_used)]

use larder_api::{ByteRange, Damage, DamagedFile, DiskStatus, PoolStatus, ScrubStatus};

use super::*;

fn disk(path: &str, state: &str, errors: [u64; 3], note: Option<&str>) -> DiskStatus {
    DiskStatus {
        path: path.into(),
        id: String::new(),
        state: state.into(),
        read_errors: errors[0],
        write_errors: errors[1],
        checksum_errors: errors[2],
        size_bytes: 4 << 40,
        used_bytes: 1 << 40,
        free_bytes: 3 << 40,
        shares_room: false,
        leaving: false,
        note: note.map(str::to_owned),
    }
}

fn pool(disks: Vec<DiskStatus>) -> PoolStatus {
    PoolStatus {
        name: "tank".into(),
        id: "7".into(),
        layout: "raidz1".into(),
        state: "DEGRADED".into(),
        status: Some("The disk /mnt/b does not answer. Data is safe; no further disk may fail.".into()),
        action: Some("Connect the disk again, or replace it.".into()),
        scan: None,
        scrub: None,
        damage: Damage::default(),
        owed_objects: 0,
        total_bytes: 8 << 40,
        used_bytes: 2 << 40,
        available_bytes: 6 << 40,
        disks,
        spares: Vec::new(),
        moving: None,
        notes: Vec::new(),
    }
}

#[test]
fn a_degraded_pool() {
    let pool = pool(vec![
        disk("/mnt/a", "ONLINE", [0, 0, 3], None),
        disk("/mnt/b", "UNAVAIL", [1234, 7, 0], Some("no such folder")),
    ]);
    let want = "   pool: tank
  state: DEGRADED
 status: The disk /mnt/b does not answer. Data is safe; no further disk may fail.
 action: Connect the disk again, or replace it.
   scan: none requested
 layout: raidz1
  space: 2.00 TiB used of 8.00 TiB, 6.00 TiB available
 config:

    NAME      STATE      READ WRITE CKSUM      FREE
    tank      DEGRADED      0     0     0
      /mnt/a  ONLINE        0     0     3  3.00 TiB
      /mnt/b  UNAVAIL    1.2K     7     0  3.00 TiB  no such folder

errors: No known data errors
";
    assert_eq!(status::pool(&pool, false, Paint { colour: false }), want);
    let painted = status::pool(&pool, false, Paint { colour: true });
    let stripped =
        painted.replace("\x1b[31m", "").replace("\x1b[32m", "").replace("\x1b[33m", "").replace("\x1b[0m", "");
    assert_eq!(stripped, want);
}

fn scrub(phase: &str) -> ScrubStatus {
    ScrubStatus {
        phase: phase.into(),
        why: "asked for".into(),
        started_ms: 0,
        ended_ms: None,
        elapsed_ms: 754_000,
        objects_done: 1,
        objects_total: 4,
        bytes_done: 1 << 30,
        bytes_total: 4 << 30,
        errors: 3,
        repaired: 2,
        repaired_bytes: 3 << 20,
        unrepaired: 1,
        bytes_per_second: 100 << 20,
        seconds_left: Some(30),
    }
}

#[test]
fn scrubs_and_what_they_found() {
    let mut pool = pool(vec![]);
    pool.scrub = Some(scrub("running"));
    let text = status::pool(&pool, false, Paint { colour: false });
    assert!(text.contains("   scan: scrub in progress since "), "{text}");
    let lines =
        "\n         1.00 GiB of 4.00 GiB read at 100 MiB/s\n         3.00 MiB repaired, 25.00 % done, 0:30 to go\n";
    assert!(text.contains(lines), "{text}");
    pool.scrub = Some(scrub("finished"));
    let text = status::pool(&pool, false, Paint { colour: false });
    assert!(text.contains("scrub repaired 3.00 MiB in 12:34 with 1 error on "), "{text}");
    assert!(status::progress(&scrub("running")).starts_with("[#######-----------------------]  25.0 %"));
}

#[test]
fn files_that_have_lost_data_are_listed_up_to_a_bound() {
    let mut pool = pool(vec![]);
    let file = |n: u64| DamagedFile {
        volume: "tank/files".into(),
        inode: n,
        paths: vec![format!("/a{n}"), format!("/b{n}")],
        ranges: vec![ByteRange { start: 4096, end: 8192 }],
    };
    pool.damage = Damage { files: (0..8).map(file).collect(), metadata: Vec::new(), more: 2, out_of_reach: 0 };
    let text = status::pool(&pool, false, Paint { colour: false });
    assert!(text.contains("\n        tank/files:/a0  (4.00 KiB from byte 4096 on)\n        tank/files:/b0"), "{text}");
    assert!(text.ends_with("and 8 more (all of them: --json)\n") && !text.contains("/a5"), "{text}");
    assert!(status::pool(&pool, true, Paint { colour: false }).contains("/b7"));
    pool.state = "ONLINE".into();
    pool.status = None;
    assert!(!status::is_well(&pool));
    pool.damage = Damage::default();
    assert!(status::is_well(&pool));
    assert_eq!(status::unwell(&[pool]), "all pools are healthy");
}

#[test]
fn long_sentences_are_folded_under_their_label() {
    let mut pool = pool(vec![]);
    pool.status = Some("word ".repeat(40).trim().to_owned());
    let text = status::pool(&pool, false, Paint { colour: false });
    assert!(text.lines().all(|l| l.chars().count() <= 110), "{text}");
    assert!(text.contains("\n         word"), "{text}");
}

#[test]
fn a_command_stands_unbroken_on_its_own_line() {
    let disks = "/srv/disks/with-a-long-name-1 ".repeat(6);
    let command = format!("larder recover --disk {disks}--to DIR");
    for action in [format!("Save what can be read: {command}; or wait."), format!("Save what can be read:\n{command}")]
    {
        let mut pool = pool(vec![]);
        pool.action = Some(action);
        let text = status::pool(&pool, false, Paint { colour: false });
        assert!(text.contains(" action: Save what can be read:\n"), "{text}");
        assert!(text.lines().any(|line| line.trim() == command), "{text}");
    }
    let mut pool = pool(vec![]);
    pool.action = Some("larder pool online tank /a".into());
    assert!(status::pool(&pool, false, Paint { colour: false }).contains(" action: larder pool online tank /a\n"));
}

#[test]
fn columns_line_up() {
    let rows = vec![row(["A", "N"]), row(["long", "1"]), row(["x", "100"])];
    assert_eq!(table(&rows, &[1]), "A       N\nlong    1\nx     100\n");
}
