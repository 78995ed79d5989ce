//! Several disks of which fewer work than there are, or at other work than was asked for.

use super::judged::{Box, check};
use super::{causes, diagnosis};

const BOXES: &[Box] = &[
    // No bus is filled by 165 reads of 4 KiB.
    Box {
        text: r#"
            layout = "stripe"
            disk = [{ name = "d", kind = "hdd", count = 4, read = "200MB/s", random_read = 160 }]
            measured = [{ path = "local", what = "random-read", iops = 165, depth = 32, cores = [4, 2], caches = "bypassed" }]"#,
        says: &["one request at a time, though 32 were meant", "6.25 ms each"],
        never: &["they share"],
        fix: "as many requests at once as were meant",
    },
    Box {
        text: r#"
            layout = "stripe"
            link = [{ name = "USB 3.0 hub" }]
            disk = [{ name = "d", kind = "hdd", count = 4, read = "200MB/s", random_read = 160, via = ["USB 3.0 hub"] }]
            measured = [{ path = "disks", what = "random-read", iops = 155, disks = [["d", 1]], depth = 8 },
                        { path = "local", what = "random-read", iops = 230, depth = 32, cores = [4, 2] }]"#,
        says: &["is not explained", "aqu-sz"],
        never: &["USB 3.0 hub", "they share"],
        fix: "",
    },
    // Records of 16 KiB lie on four of the twelve.
    Box {
        text: r#"
            layout = "raidz2"
            record = "16KiB"
            disk = [{ name = "d", kind = "hdd", count = 12, read = "240MB/s", random_read = 160 }]
            measured = [{ path = "local", what = "random-read", iops = 170, block = "16KiB", depth = 32 }]"#,
        says: &["one request at a time, though 32 were meant"],
        never: &["lies on all of them"],
        fix: "as many requests at once as were meant",
    },
    Box {
        text: r#"
            layout = "raidz2"
            record = "16KiB"
            disk = [{ name = "d", kind = "hdd", count = 12, read = "240MB/s", random_read = 160 }]
            measured = [{ path = "local", what = "random-read", iops = 450, block = "16KiB", depth = 32 }]"#,
        says: &[
            "the disks, of which each small record of a RAIDZ takes several: 95 % of the 476 operations/s that they allow",
        ],
        never: &["lies on all of them"],
        fix: "SSDs instead of hard disks",
    },
    // Reads are as they should be, and so is each disk; only the array writes slowly, with cores idle.
    Box {
        text: r#"
            layout = "raid5"
            disk = [{ name = "d", kind = "hdd", count = 4, read = "200MB/s", write = "190MB/s" }]
            measured = [{ path = "disks", what = "write", rate = "188MB/s", disks = [["d", 1]] },
                        { path = "local", what = "read", rate = "560MB/s", file = "64GiB" },
                        { path = "local", what = "write", rate = "140MB/s", file = "64GiB", cores = [30, 12], disk_busy = 97 }]"#,
        says: &["RAID 5, which reads before it writes", "give 190 MB/s at most, and 570 MB/s where whole stripes"],
        never: &["they share"],
        fix: "whole stripes at a time",
    },
    Box {
        text: r#"
            layout = "raid6"
            disk = [{ name = "d", kind = "hdd", count = 8, read = "210MB/s", write = "205MB/s" }]
            network = { name = "10 GbE" }
            measured = [{ path = "local", what = "write", rate = "180MB/s", cores = [35, 18], iowait = 45 },
                        { path = "share", what = "write", rate = "172MB/s", cores = [35, 28] }]"#,
        says: &["RAID 6, which reads before it writes"],
        never: &[],
        fix: "whole stripes at a time",
    },
    // One thread of md's is a core, not the heads.
    Box {
        text: r#"
            layout = "raid6"
            disk = [{ name = "d", kind = "nvme", count = 6, write = "3GB/s" }]
            measured = [{ path = "local", what = "write", rate = "1.6GB/s", cores = [93, 18, 5, 5] }]"#,
        says: &["one core was busy 93 %"],
        never: &["reads before it writes", "they share"],
        fix: "a faster core",
    },
    Box {
        text: r#"
            layout = "raid5"
            link = [{ name = "SATA 3G port multiplier", type = "SATA 3G" }]
            disk = [{ name = "d", kind = "hdd", count = 5, write = "170MB/s", via = ["SATA 3G port multiplier"] }]
            measured = [{ path = "local", what = "write", rate = "95MB/s", cores = [22, 9] }]"#,
        says: &["SATA 3G port multiplier and the controller behind it"],
        never: &["reads before it writes"],
        fix: "without the limit of SATA 3G port multiplier",
    },
    // More disks of which each gives a thirtieth give as little.
    Box {
        text: r#"
            layout = "mirror"
            disk = [{ name = "d", kind = "hdd", count = 2, read = "200MB/s", write = "190MB/s" }]
            measured = [{ path = "local", what = "write", rate = "6MB/s", cores = [12, 8], disk_busy = 100 }]"#,
        says: &["they were busy 100 % of the time"],
        never: &[],
        fix: "the disks as fast as they are described",
    },
    // The pool's figure is open, but the slot is proven to be in its way.
    Box {
        text: r#"
            layout = "raidz2"
            link = [{ name = "PCIe 2.0 x1", could = "PCIe 2.0 x8" }]
            disk = [{ name = "d", kind = "hdd", count = 8, read = "220MB/s", via = ["PCIe 2.0 x1"] }]
            network = { name = "10 GbE" }
            measured = [{ path = "disks", what = "read", rate = "432MB/s" },
                        { path = "local", what = "read", rate = "318MB/s" },
                        { path = "share", what = "read", rate = "305MB/s", cores = [50, 20] }]"#,
        says: &["the storage as measured on the machine itself"],
        never: &[],
        fix: "PCIe 2.0 x1 at PCIe 2.0 x8",
    },
];

#[test]
fn disks_together_have_one_true_sentence() {
    check(BOXES);
}

#[test]
fn nobody_buys_disks_for_one_that_is_slow_or_alone() {
    let slow = diagnosis(&format!("name = \"x\"\n{}", BOXES[8].text));
    assert_eq!(slow.advice.len(), 1, "{:#?}", slow.advice);
    let text = r#"
        disk = [{ name = "d", kind = "hdd" }]
        measured = [{ path = "disks", what = "read", rate = "150MB/s" }]"#;
    let alone = diagnosis(&format!("name = \"x\"\n{text}"));
    assert_eq!(causes(&alone), ["the disk itself"]);
    assert!(alone.advice.is_empty(), "{:#?}", alone.advice);
}

/// Each disk's wire is one limit, however many disks have it.
#[test]
fn wires_of_their_own_are_one_limit() {
    let text = r#"
        name = "old ports"
        layout = "stripe"
        disk = [{ name = "d", kind = "sata-ssd", count = 2, read = "550MB/s", connection = "SATA 3G", could = "SATA 6G" }]
        measured = [{ path = "local", what = "read", rate = "535MB/s" }]"#;
    let found = diagnosis(text);
    assert_eq!(found.confidence.word(), "certain", "{}", found.verdict);
}
