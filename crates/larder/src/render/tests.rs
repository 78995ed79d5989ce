#![allow(clippy::unwrap_used)]

use larder_api::DiskStatus;

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
        total_bytes: 8 << 40,
        used_bytes: 2 << 40,
        available_bytes: 6 << 40,
        disks,
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
 layout: raidz1
  space: 2.00 TiB used of 8.00 TiB, 6.00 TiB available
disks:

    NAME      STATE      READ WRITE CKSUM      FREE
    tank      DEGRADED      0     0     0
      /mnt/a  ONLINE        0     0     3  3.00 TiB
      /mnt/b  UNAVAIL    1.2K     7     0  3.00 TiB  no such folder

errors: 1244 counted since they were cleared
";
    assert_eq!(pool_status(&pool, Paint { colour: false }), want);
    let painted = pool_status(&pool, Paint { colour: true });
    let stripped =
        painted.replace("\x1b[31m", "").replace("\x1b[32m", "").replace("\x1b[33m", "").replace("\x1b[0m", "");
    assert_eq!(stripped, want);
}

#[test]
fn long_sentences_are_folded_under_their_label() {
    let mut pool = pool(vec![]);
    pool.status = Some("word ".repeat(40).trim().to_owned());
    let text = pool_status(&pool, Paint { colour: false });
    assert!(text.lines().all(|l| l.chars().count() <= 110), "{text}");
    assert!(text.contains("\n         word"), "{text}");
}

#[test]
fn columns_line_up() {
    let rows = vec![row(["A", "N"]), row(["long", "1"]), row(["x", "100"])];
    assert_eq!(table(&rows, &[1]), "A       N\nlong    1\nx     100\n");
}
