//! Boxes that nobody reported: what physics says of them.

use super::{causes, diagnosis};

struct Box {
    text: &'static str,
    /// The last measurement's cause begins with this.
    cause: &'static str,
    /// The first fix has these words; empty: none.
    fix: &'static str,
}

const BOXES: &[Box] = &[
    // Four hard disks on a USB 2.0 hub in a USB 3 port.
    Box {
        text: r#"
            name = "hub"
            disk = [{ name = "d", kind = "hdd", count = 4, read = "150MB/s", via = ["hub"] }]
            network = { name = "gigabit", limit = "940Mbit/s" }
            [[link]]
            name = "root port"
            type = "USB 3.0"
            [[link]]
            name = "hub"
            type = "USB 2.0"
            via = ["root port"]
            [[measured]]
            path = "disks"
            what = "read"
            rate = "38MB/s"
            [[measured]]
            path = "share"
            what = "read"
            rate = "36MB/s""#,
        cause: "hub (the disks as measured side by side)",
        fix: "without the limit of hub",
    },
    // A switch of the last century between box and client.
    Box {
        text: r#"
            name = "switch"
            disk = [{ name = "d", kind = "hdd", count = 2, read = "180MB/s" }]
            network = { name = "gigabit", type = "gigabit", via = ["switch"] }
            link = [{ name = "switch", type = "100 Mbit Ethernet" }]
            measured = [{ path = "share", what = "read", rate = "11.4MB/s" }]"#,
        cause: "switch",
        fix: "without the limit of switch",
    },
    // Gigabit cards with a cable of two pairs.
    Box {
        text: r#"
            name = "cable"
            disk = [{ name = "d", kind = "hdd", count = 2, read = "180MB/s" }]
            network = { name = "gigabit Ethernet", limit = "940Mbit/s" }
            measured = [{ path = "share", what = "read", rate = "11.3MB/s" }]"#,
        cause: "rung-below: a part of the way that runs at 100 Mbit Ethernet",
        fix: "the full speed of what is there",
    },
    // RAIDZ2 of hard disks with nothing known of them.
    Box {
        text: r#"
            name = "raidz"
            layout = "raidz2"
            disk = [{ name = "d", kind = "hdd", count = 6 }]
            measured = [{ path = "local", what = "random-read", iops = 130, depth = 32 }]"#,
        cause: "one disk, the slowest: each record of a RAIDZ lies on all of them",
        fix: "SSDs instead of hard disks",
    },
    Box {
        text: r#"
            name = "shingled"
            disk = [{ name = "d", kind = "smr", read = "180MB/s", write = "150MB/s" }]
            network = { name = "gigabit", limit = "940Mbit/s" }
            measured = [{ path = "share", what = "write", rate = "18MB/s", cores = [20, 5, 5, 5] }]"#,
        cause: "smr: ",
        fix: "conventional (CMR) disks",
    },
    // Each write waits for its flush: Little's law.
    Box {
        text: r#"
            name = "flush"
            disk = [{ name = "d", kind = "sata-ssd", write = "400MB/s", flush = "2ms" }]
            measured = [{ path = "local", what = "random-write", iops = 480, depth = 1, sync = true }]"#,
        cause: "one request at a time, each 2.0 ms",
        fix: "a disk with power-loss protection",
    },
    Box {
        text: r#"
            name = "far away"
            disk = [{ name = "d", kind = "nvme", read = "3GB/s" }]
            network = { name = "gigabit", type = "gigabit", round_trip = "20ms", window = "256KiB" }
            measured = [{ path = "share", what = "read", rate = "12.5MB/s" }]"#,
        cause: "the TCP window over the round trip",
        fix: "larger TCP windows",
    },
    // RAIDZ2 writes 8 bytes for each 6: the slot is full at three quarters of its rate.
    Box {
        text: r#"
            name = "HBA"
            layout = "raidz2"
            disk = [{ name = "d", kind = "sata-ssd", count = 8, read = "550MB/s", write = "500MB/s", via = ["slot"] }]
            link = [{ name = "slot", type = "PCIe 2.0 x4" }]
            measured = [{ path = "local", what = "write", rate = "1.3GB/s", cores = [40, 40, 40, 40] }]"#,
        cause: "slot",
        fix: "without the limit of slot",
    },
    Box {
        text: r#"
            name = "cipher"
            disk = [{ name = "d", kind = "hdd", count = 4, read = "200MB/s" }]
            network = { name = "gigabit", limit = "940Mbit/s" }
            work = [{ name = "AES without instructions", rate_per_core = "90MB/s" }]
            measured = [{ path = "share", what = "read", rate = "82MB/s", cores = [99, 20, 10, 10] }]"#,
        cause: "AES without instructions on one core",
        fix: "less work for the processor",
    },
    Box {
        text: r#"
            name = "bulk only"
            disk = [{ name = "d", kind = "hdd", read = "120MB/s", connection = "USB 2.0 BOT" }]
            measured = [{ path = "local", what = "read", rate = "33MB/s" }]"#,
        cause: "the USB 2.0 with BOT connection",
        fix: "'d' on a faster connection than USB 2.0 with BOT",
    },
    // A full-duplex lane carries disks one way and the card the other.
    Box {
        text: r#"
            name = "duplex"
            disk = [{ name = "d", kind = "sata-ssd", read = "550MB/s", via = ["lane"] }]
            network = { name = "10 GbE", type = "10 GbE", via = ["lane"] }
            link = [{ name = "lane", type = "PCIe 2.0 x1" }]
            measured = [{ path = "share", what = "read", rate = "430MB/s" }]"#,
        cause: "lane",
        fix: "without the limit of lane",
    },
    // 200 GB into a QLC disk whose first 100 GB are fast.
    Box {
        text: r#"
            name = "knee"
            disk = [{ name = "d", kind = "qlc", write = "90MB/s", write_cached = "900MB/s", cache = "100GB" }]
            measured = [{ path = "local", what = "write", rate = "160MB/s", file = "200GB" }]"#,
        cause: "the disk itself",
        fix: "one disk more",
    },
    // RAID 5 reads and writes data and parity for each small write.
    Box {
        text: r#"
            name = "raid5"
            layout = "raid5"
            disk = [{ name = "d", kind = "hdd", count = 4, random_write = 180 }]
            measured = [{ path = "local", what = "random-write", iops = 170, depth = 32 }]"#,
        cause: "the disks, which read old data and parity before each small write",
        fix: "SSDs instead of hard disks",
    },
    Box {
        text: r#"
            name = "lossy"
            disk = [{ name = "d", kind = "nvme", read = "3GB/s" }]
            network = { name = "10 GbE", type = "10 GbE" }
            measured = [{ path = "share", what = "read", rate = "400MB/s", retransmits = 2.5, cores = [40, 10] }]"#,
        cause: "retransmits: losses on the wire",
        fix: "a wire without losses",
    },
    Box {
        text: r#"
            name = "client's core"
            disk = [{ name = "d", kind = "nvme", read = "3GB/s" }]
            network = { name = "10 GbE", type = "10 GbE" }
            measured = [{ path = "share", what = "read", rate = "400MB/s", cores = [40, 10], client_cores = [100, 5] }]"#,
        cause: "client",
        fix: "a faster client",
    },
];

#[test]
fn physics_decides() {
    for Box { text, cause, fix } in BOXES {
        let found = diagnosis(text);
        assert!(found.questions.is_empty(), "{text}\n{:#?}", found.questions);
        let last = causes(&found).pop().unwrap();
        assert!(last.starts_with(cause), "{text}\n{last}\n{:#?}", found.findings.last().unwrap().stages);
        let first = found.advice.first().map_or("", |a| &a.what);
        assert!(first.starts_with(fix), "{text}\n{:#?}", found.advice);
        assert!(found.advice.len() <= 3);
        for advice in &found.advice {
            assert!(advice.gain_percent > 0.0 && advice.rate_after > advice.rate_before && !advice.how.is_empty());
        }
    }
}

#[test]
fn without_measurements_the_paper_is_asked() {
    let text = "name = \"x\"\n[[disk]]\nname = \"d\"\ncount = 2\nread = \"3GB/s\"\n[network]\nname = \"10 GbE\"\nlimit = \"9.4Gbit/s\"";
    let found = diagnosis(text);
    assert!(
        found.verdict.contains("On paper reading over the network would be capped by 10 GbE at 1.18 GB/s"),
        "{}",
        found.verdict
    );
}
