//! Boxes whose limit is one of several alike, or stands behind the one that seems to be it; and fixes held to what the
//! rest of the way was seen to give.

use super::{causes, diagnosis};

struct Box {
    text: &'static str,
    /// The last measurement's cause begins with this.
    cause: &'static str,
    /// Words of its sentence.
    says: &'static str,
    /// The first fix begins with this; empty: none.
    fix: &'static str,
    /// What no fix promises more than: MB/s, or operations.
    at_most: f64,
}

const BOXES: &[Box] = &[
    // Each byte goes to both.
    Box {
        text: r#"
            layout = "mirror"
            disk = [{ name = "a", kind = "hdd", write = "60MB/s" }, { name = "b", kind = "hdd", write = "230MB/s" }]
            measured = [{ path = "local", what = "write", rate = "59MB/s" }]"#,
        cause: "the disks, each byte written as often as there are copies; 'a' is the slowest",
        says: "98 % of the 60 MB/s",
        fix: "'a' as fast as the others",
        at_most: 230.0,
    },
    Box {
        text: r#"
            layout = "mirror"
            disk = [{ name = "a", kind = "nvme", write = "5GB/s", connection = "PCIe 4.0 x4" },
                    { name = "b", kind = "nvme", write = "5GB/s", connection = "PCIe 3.0 x1" }]
            measured = [{ path = "local", what = "write", rate = "870MB/s" }]"#,
        cause: "the PCIe 3.0 x1 connection of 'b'",
        says: "98 % of the 886 MB/s",
        fix: "'b' on a faster connection",
        at_most: 5000.0,
    },
    Box {
        text: r#"
            layout = "mirror"
            disk = [{ name = "a", kind = "hdd", write = "200MB/s", connection = "SATA 6G" },
                    { name = "b", kind = "hdd", write = "150MB/s", connection = "USB 2.0" }]
            measured = [{ path = "local", what = "write", rate = "38MB/s" }]"#,
        cause: "the USB 2.0 connection of 'b'",
        says: "95 % of the 40 MB/s",
        fix: "'b' on a faster connection",
        at_most: 150.0,
    },
    // Pairs: what the slowest pair gives, unless whoever places data evades it.
    Box {
        text: r#"
            layout = "raid10"
            disk = [{ name = "a", kind = "hdd", write = "60MB/s" }, { name = "b", kind = "hdd", write = "230MB/s", count = 3 }]
            measured = [{ path = "local", what = "write", rate = "118MB/s" }]"#,
        cause: "the disks, each byte written as often as there are copies; 'a' is the slowest",
        says: "120 MB/s to 375 MB/s are possible",
        fix: "'a' as fast as the others",
        at_most: 460.0,
    },
    // The wire is full, and so is a core: a faster wire alone brings nothing.
    Box {
        text: r#"
            disk = [{ name = "d", kind = "nvme", read = "3GB/s" }]
            network = { name = "gigabit Ethernet", type = "gigabit" }
            measured = [{ path = "share", what = "read", rate = "113MB/s", cores = [100, 30, 10, 10] }]"#,
        cause: "gigabit Ethernet",
        says: "the processor has no more to give either: 1 core",
        fix: "",
        at_most: 113.0,
    },
    Box {
        text: r#"
            disk = [{ name = "d", kind = "nvme", read = "3GB/s" }]
            network = { name = "2.5 GbE", type = "2.5 GbE" }
            measured = [{ path = "share", what = "read", rate = "285MB/s", cores = [20, 10], client_cores = [100, 100] }]"#,
        cause: "2.5 GbE",
        says: "the client's processor has no more to give either: all 2 cores",
        fix: "",
        at_most: 285.0,
    },
    // Half of a core for a gigabit is a core for two.
    Box {
        text: r#"
            disk = [{ name = "d", kind = "nvme", read = "3GB/s" }]
            network = { name = "gigabit Ethernet", type = "gigabit" }
            measured = [{ path = "share", what = "read", rate = "113MB/s", cores = [50, 30, 10, 10] }]"#,
        cause: "gigabit Ethernet",
        says: "97 % of",
        fix: "2.5 gigabit Ethernet",
        at_most: 226.0,
    },
    // The name of the work that fills the core, and a faster core does that work faster, too.
    Box {
        text: r#"
            disk = [{ name = "d", kind = "hdd", read = "180MB/s" }]
            network = { name = "gigabit Ethernet", type = "gigabit" }
            work = [{ name = "dm-crypt", rate_per_core = "45MB/s" }]
            measured = [{ path = "local", what = "read", rate = "44MB/s", cores = [100, 10] },
                        { path = "share", what = "read", rate = "38MB/s", cores = [100, 35] }]"#,
        cause: "dm-crypt on one core",
        says: "84 % of the 45 MB/s",
        fix: "less work for the processor than dm-crypt",
        at_most: 117.0,
    },
    Box {
        text: r#"
            disk = [{ name = "d", kind = "hdd", read = "180MB/s" }]
            network = { name = "gigabit Ethernet", type = "gigabit" }
            work = [{ name = "OpenVPN", rate_per_core = "22MB/s", paths = ["network", "share"] }]
            measured = [{ path = "network", what = "read", rate = "21MB/s", cores = [100, 10] },
                        { path = "share", what = "read", rate = "15MB/s", cores = [100, 35] }]"#,
        cause: "1 of 2 cores",
        says: "OpenVPN on one core has 68 % of what it allows",
        fix: "a faster core, or less work for it",
        at_most: 117.0,
    },
    // What was measured of the wire alone was that core, too.
    Box {
        text: r#"
            disk = [{ name = "d", kind = "nvme", read = "3GB/s" }]
            network = { name = "10 GbE", type = "10 GbE" }
            measured = [{ path = "network", what = "read", rate = "525MB/s", cores = [100, 10, 5, 5], irq = 97 },
                        { path = "share", what = "read", rate = "430MB/s", cores = [100, 20, 10, 5], irq = 97 }]"#,
        cause: "1 of 4 cores",
        says: "interrupts took 97 % of the busiest one's time",
        fix: "interrupts spread over the cores",
        at_most: 1177.0,
    },
    // The slowest is what is replaced, not what stands beside it.
    Box {
        text: r#"
            disk = [{ name = "S", kind = "sata-ssd", count = 3, read = "540MB/s" }, { name = "H", kind = "hdd", read = "200MB/s" }]
            measured = [{ path = "local", what = "read", rate = "780MB/s" }]"#,
        cause: "the disks, as fast as the slowest of them ('H')",
        says: "98 % of the 800 MB/s",
        fix: "'H' as fast as the others",
        at_most: 2160.0,
    },
    Box {
        text: r#"
            layout = "raid5"
            disk = [{ name = "good", kind = "hdd", count = 3, read = "200MB/s", connection = "SATA 6G" },
                    { name = "dying", kind = "hdd", read = "22MB/s" }]
            measured = [{ path = "local", what = "read", rate = "64MB/s" }]"#,
        cause: "the disks without parity, as fast as the slowest of them ('dying')",
        says: "97 % of the 66 MB/s",
        fix: "'dying' as fast as the others",
        at_most: 600.0,
    },
    // Without flushes the pool gave 480: with fast flushes it gives no more.
    Box {
        text: r#"
            layout = "raidz1"
            disk = [{ name = "d", kind = "hdd", count = 4, write = "285MB/s", flush = "15ms" }]
            network = { name = "10 GbE", type = "10 GbE" }
            measured = [{ path = "local", what = "write", rate = "480MB/s" },
                        { path = "share", what = "write", rate = "60MB/s", block = "1MiB", depth = 1, sync = true }]"#,
        cause: "one request at a time, each 17.1 ms",
        says: "98 % of",
        fix: "eight times as many requests at once",
        at_most: 480.0,
    },
    // The figure is what the enclosure lets through: no hard disk is so slow.
    Box {
        text: r#"
            disk = [{ name = "d", kind = "hdd", read = "33MB/s", connection = "USB 2.0 BOT" }]
            network = { name = "gigabit Ethernet", type = "gigabit" }
            measured = [{ path = "share", what = "read", rate = "31MB/s" }]"#,
        cause: "the USB 2.0 with BOT connection of the disk",
        says: "94 % of the 33 MB/s",
        fix: "'d' on a faster connection than USB 2.0 with BOT",
        at_most: 117.0,
    },
    // One end at half duplex.
    Box {
        text: r#"
            disk = [{ name = "d", kind = "hdd", read = "180MB/s", write = "170MB/s" }]
            network = { name = "wire", type = "100 Mbit" }
            measured = [{ path = "network", what = "read", rate = "92Mbit/s" },
                        { path = "network", what = "write", rate = "3Mbit/s" }]"#,
        cause: "duplex-mismatch: a duplex mismatch",
        says: "half duplex",
        fix: "both ends at full duplex",
        at_most: 294.0,
    },
    Box {
        text: r#"
            disk = [{ name = "d", kind = "hdd", read = "180MB/s", write = "170MB/s" }]
            network = { name = "gigabit", type = "gigabit" }
            measured = [{ path = "network", what = "read", rate = "90Mbit/s" },
                        { path = "network", what = "write", rate = "4Mbit/s", retransmits = 6 },
                        { path = "share", what = "write", rate = "0.45MB/s", retransmits = 6 }]"#,
        cause: "a duplex mismatch (gigabit, as measured alone)",
        says: "90 % of",
        fix: "both ends at full duplex",
        at_most: 11.25,
    },
    // Each end has a fix of its own.
    Box {
        text: r#"
            disk = [{ name = "d", kind = "nvme", read = "3GB/s" }]
            network = { name = "gigabit", type = "gigabit" }
            client = [{ name = "laptop", disk_write = "40MB/s" }]
            measured = [{ path = "share", what = "read", rate = "38MB/s" }]"#,
        cause: "the disk of laptop",
        says: "95 % of the 40 MB/s",
        fix: "an SSD in laptop",
        at_most: 117.0,
    },
    Box {
        text: r#"
            disk = [{ name = "d", kind = "nvme", read = "3GB/s" }]
            network = { name = "gigabit", type = "gigabit" }
            client = [{ name = "television", type = "100 Mbit" }]
            measured = [{ path = "share", what = "read", rate = "11.2MB/s" }]"#,
        cause: "the 100 Mbit Ethernet of television",
        says: "96 % of the 12 MB/s",
        fix: "gigabit Ethernet at television",
        at_most: 117.0,
    },
    Box {
        text: r#"
            disk = [{ name = "d", kind = "nvme", read = "3GB/s" }]
            network = { name = "gigabit", type = "gigabit" }
            client = [{ name = "laptop", type = "Wi-Fi 5" }]
            measured = [{ path = "share", what = "read", rate = "60MB/s" }]"#,
        cause: "the Wi-Fi 5",
        says: "92 % of",
        fix: "a wire instead of Wi-Fi at the client",
        at_most: 117.0,
    },
    Box {
        text: r#"
            disk = [{ name = "d", kind = "nvme", read = "3GB/s" }]
            network = { name = "gigabit", type = "gigabit" }
            work = [{ name = "WireGuard", rate_per_core = "40MB/s", at = "client" }]
            measured = [{ path = "share", what = "read", rate = "36MB/s", client_cores = [99, 20] }]"#,
        cause: "WireGuard at the client on one core",
        says: "90 % of the 40 MB/s",
        fix: "less work for the processor than WireGuard at the client",
        at_most: 117.0,
    },
    // Nothing is known of it but that it waits.
    Box {
        text: r#"
            disk = [{ name = "d", kind = "hdd" }]
            measured = [{ path = "local", what = "random-read", iops = 120, disk_busy = 100 }]"#,
        cause: "disks-wait: the disks",
        says: "they were busy 100 % of the time",
        fix: "SSDs instead of hard disks",
        at_most: 100e3,
    },
    Box {
        text: r#"
            disk = [{ name = "d", kind = "nvme", read = "3GB/s" }]
            network = { name = "10 GbE", type = "10 GbE" }
            measured = [{ path = "share", what = "read", rate = "300MB/s", steal = 40, cores = [50, 40] }]"#,
        cause: "host-steals",
        says: "it took 40 %",
        fix: "a host that takes nothing",
        at_most: 500.0,
    },
    Box {
        text: r#"
            layout = "jbod"
            disk = [{ name = "d", kind = "hdd", count = 4, read = "180MB/s" }]
            measured = [{ path = "local", what = "read", rate = "175MB/s" }]"#,
        cause: "one disk: a file lies on one",
        says: "97 % of the 180 MB/s",
        fix: "a stripe instead of one disk after the other",
        at_most: 720.0,
    },
    // The client's card is the same wire.
    Box {
        text: r#"
            disk = [{ name = "d", kind = "nvme", read = "3GB/s" }]
            network = { name = "gigabit", limit = "941Mbit/s" }
            client = [{ name = "desktop", type = "gigabit" }]
            measured = [{ path = "share", what = "read", rate = "112MB/s" }]"#,
        cause: "gigabit",
        says: "95 % of the 118 MB/s",
        fix: "10 gigabit Ethernet",
        at_most: 1177.0,
    },
    // Near a standard's rate, and not at it.
    Box {
        text: r#"
            disk = [{ name = "d", kind = "nvme", read = "3GB/s", write = "2GB/s" }]
            network = { name = "10 GbE", type = "10 GbE" }
            measured = [{ path = "share", what = "write", rate = "520MB/s" }]"#,
        cause: "unexplained",
        says: "measure the wire alone",
        fix: "",
        at_most: 520.0,
    },
    // Whoever read faster over the same wire did not negotiate less.
    Box {
        text: r#"
            disk = [{ name = "d", kind = "nvme", read = "3GB/s", write = "2GB/s" }]
            network = { name = "10 GbE", type = "10 GbE" }
            measured = [{ path = "share", what = "read", rate = "800MB/s" }, { path = "share", what = "write", rate = "285MB/s" }]"#,
        cause: "unexplained",
        says: "measure the wire alone",
        fix: "",
        at_most: 285.0,
    },
    // A bridge asks its SSD one thing at a time, however many wait.
    Box {
        text: r#"
            disk = [{ name = "d", kind = "sata-ssd", connection = "USB 3.0 BOT" }]
            measured = [{ path = "local", what = "random-read", iops = 5200, depth = 32 }]"#,
        cause: "one command at a time (BOT)",
        says: "are usual",
        fix: "'d' on a faster connection than USB 3 with BOT",
        at_most: 100e3,
    },
    Box {
        text: r#"
            disk = [{ name = "d", kind = "usb-stick" }]
            measured = [{ path = "local", what = "write", rate = "9MB/s" }]"#,
        cause: "the disk itself",
        says: "5.0 MB/s to 55 MB/s are usual",
        fix: "an SSD instead of a card or stick",
        at_most: 530.0,
    },
    // A wire by its name alone.
    Box {
        text: r#"
            disk = [{ name = "d", kind = "nvme", read = "3GB/s" }]
            network = { name = "gigabit" }
            measured = [{ path = "share", what = "read", rate = "112MB/s" }]"#,
        cause: "gigabit",
        says: "96 % of the 117 MB/s",
        fix: "10 gigabit Ethernet",
        at_most: 1177.0,
    },
    // QLC in lanes gives way to what is in lanes.
    Box {
        text: r#"
            disk = [{ name = "d", kind = "qlc", read = "3GB/s", write = "110MB/s", connection = "PCIe 3.0 x4" }]
            measured = [{ path = "local", what = "write", rate = "105MB/s" }]"#,
        cause: "the disk itself",
        says: "95 % of the 110 MB/s",
        fix: "TLC disks instead of QLC",
        at_most: 800.0,
    },
    // A clock that is held down fills a core early.
    Box {
        text: r#"
            disk = [{ name = "d", kind = "nvme", read = "3GB/s" }]
            network = { name = "2.5 GbE" }
            measured = [{ path = "share", what = "read", rate = "100MB/s", cores = [99, 98, 97, 99], throttled = 60 }]"#,
        cause: "4 of 4 cores",
        says: "heat or a weak power supply held the clock down 60 %",
        fix: "a faster processor",
        at_most: 294.0,
    },
    Box {
        text: r#"
            disk = [{ name = "d", kind = "nvme", read = "3GB/s" }]
            network = { name = "2.5 GbE" }
            measured = [{ path = "share", what = "read", rate = "120MB/s", cores = [80, 40], throttled = 60 }]"#,
        cause: "throttled: the processor, which was throttled",
        says: "60 % of the time",
        fix: "a processor that is not throttled",
        at_most: 172.0,
    },
    // Without one of five each second read is one of all others.
    Box {
        text: r#"
            layout = "raid5"
            degraded = true
            disk = [{ name = "d", kind = "hdd", count = 5, random_read = 200 }]
            measured = [{ path = "local", what = "random-read", iops = 470, depth = 32 }]"#,
        cause: "the disks, which are all read for what was on the missing one",
        says: "94 % of the 500",
        fix: "SSDs instead of hard disks",
        at_most: 100e3,
    },
    Box {
        text: r#"
            layout = "raidz2"
            degraded = true
            disk = [{ name = "d", kind = "hdd", count = 6, read = "200MB/s" }]
            measured = [{ path = "local", what = "read", rate = "310MB/s" }]"#,
        cause: "degraded: the degraded pool",
        says: "a rebuild takes the disks' time",
        fix: "the missing disk replaced and rebuilt",
        at_most: 800.0,
    },
    // The figure of the disk is its hub's.
    Box {
        text: r#"
            disk = [{ name = "d", kind = "hdd", read = "36MB/s", via = ["hub"] }]
            link = [{ name = "hub", type = "USB 2.0" }]
            network = { name = "gigabit" }
            measured = [{ path = "share", what = "read", rate = "34MB/s" }]"#,
        cause: "hub",
        says: "94 % of the 36 MB/s",
        fix: "without the limit of hub",
        at_most: 80.0,
    },
    Box {
        text: r#"
            disk = [{ name = "d", kind = "nvme", read = "3GB/s" }]
            network = { name = "10 GbE" }
            client = [{ name = "mac", disk_write = "300MB/s" }]
            measured = [{ path = "share", what = "read", rate = "290MB/s" }]"#,
        cause: "the disk of mac",
        says: "97 % of the 300 MB/s",
        fix: "an NVMe disk in mac",
        at_most: 800.0,
    },
    // Of disks of which nothing is known another one is one more.
    Box {
        text: r#"
            disk = [{ name = "d", count = 2 }]
            network = { name = "gigabit" }
            measured = [{ path = "share", what = "read", rate = "30MB/s", iowait = 85 }]"#,
        cause: "disks-wait: the disks",
        says: "cores waited for them 85 % of the time",
        fix: "one disk more",
        at_most: 45.0,
    },
    Box {
        text: r#"
            disk = [{ name = "d", kind = "nvme", read = "3GB/s", write = "2GB/s" }]
            network = { name = "100 Mbit" }
            measured = [{ path = "share", what = "read", rate = "11.2MB/s" },
                        { path = "share", what = "write", rate = "0.4MB/s", retransmits = 8 }]"#,
        cause: "duplex-mismatch: a duplex mismatch",
        says: "the other direction gives 11 MB/s",
        fix: "both ends at full duplex",
        at_most: 294.0,
    },
    Box {
        text: r#"
            disk = [{ name = "d", kind = "hdd", read = "180MB/s" }]
            network = { name = "gigabit" }
            measured = [{ path = "share", what = "read", rate = "60MB/s", steal = 35, cores = [99, 98] }]"#,
        cause: "2 of 2 cores",
        says: "the host took 35 % of its time for others",
        fix: "a faster processor",
        at_most: 117.0,
    },
    // A third disk as fast as the one that was measured.
    Box {
        text: r#"
            disk = [{ name = "d", kind = "hdd", count = 2 }]
            measured = [{ path = "disks", what = "read", disks = [["d", 1]], rate = "180MB/s" },
                        { path = "local", what = "read", rate = "355MB/s" }]"#,
        cause: "the disks, as fast as the slowest of them",
        says: "99 % of the 360 MB/s",
        fix: "one disk more",
        at_most: 535.0,
    },
    // No hard disk is so slow in a USB 3 port, but any is in a USB 2 one.
    Box {
        text: r#"
            disk = [{ name = "d", kind = "hdd", connection = "USB 3.0" }]
            network = { name = "gigabit" }
            measured = [{ path = "share", what = "read", rate = "38MB/s" }]"#,
        cause: "rung-below: a connection that runs at USB 2.0",
        says: "USB 3 is described",
        fix: "the full speed of what is there",
        at_most: 117.0,
    },
];

#[test]
fn the_limit_is_named_and_no_fix_promises_more_than_the_rest_gives() {
    let mut wrong = Vec::new();
    for Box { text, cause, says, fix, at_most } in BOXES {
        let found = diagnosis(&format!("name = \"box\"\n{text}"));
        let last = found.findings.last().unwrap();
        let first = found.advice.first().map_or("", |a| &a.what);
        let most = found.advice.iter().map(|a| a.rate_after / if a.of.is_random() { 1.0 } else { 1e6 });
        let right = found.questions.is_empty()
            && causes(&found).pop().unwrap().starts_with(cause)
            && last.sentence.contains(says)
            && (first.starts_with(fix) && first.is_empty() == fix.is_empty())
            && most.fold(0.0, f64::max) <= at_most * 1.001;
        if !right {
            let fixes: Vec<&String> = found.advice.iter().map(|a| &a.sentence).collect();
            wrong.push(format!("{text}\n{:?}\n{}\n{fixes:#?}\n{:#?}", found.questions, last.sentence, last.stages));
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), BOXES.len(), wrong.join("\n\n"));
}

#[test]
fn a_shipped_box_s_next_wire_is_held_by_its_cores() {
    let found = diagnosis(include_str!("../../../fixtures/boxes/raidz.toml"));
    // 70 % of its busiest core at 1.1 GB/s.
    assert!(found.advice.iter().all(|a| a.path != super::Path::Share || a.rate_after <= 1.1e9 / 0.7 + 1.0));
    assert!(found.advice.iter().any(|a| a.sentence.contains("one core was busy 70 % already")), "{:#?}", found.advice);
}
