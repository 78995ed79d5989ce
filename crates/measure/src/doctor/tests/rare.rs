//! Boxes that are rare, each with what physics says of it.

use super::judged::{Box, check};

const BOXES: &[Box] = &[
    // Cores: who wanders, and who stays.
    Box {
        text: r#"
            disk = [{ name = "n", kind = "nvme", read = "3GB/s" }]
            network = { name = "10 GbE" }
            measured = [{ path = "share", what = "read", rate = "500MB/s", cores = [70, 20, 10, 10] }]"#,
        says: &["is not explained"],
        never: &["one thread"],
        fix: "",
    },
    Box {
        text: r#"
            disk = [{ name = "n", kind = "nvme", read = "3GB/s" }]
            network = { name = "10 GbE" }
            measured = [{ path = "share", what = "read", rate = "500MB/s", cores = [28, 26, 24, 25] }]"#,
        says: &["one thread of work"],
        never: &[],
        fix: "the work spread",
    },
    Box {
        text: r#"
            disk = [{ name = "hdd", kind = "hdd", read = "180MB/s" }]
            work = [{ name = "LUKS without AES", rate_per_core = "85MB/s", cores = 4 }]
            measured = [{ path = "local", what = "read", rate = "118MB/s", cores = [45, 40, 42, 38] }]"#,
        says: &["is not explained", "inner tracks"],
        never: &["capped by LUKS", "they share"],
        fix: "",
    },
    Box {
        text: r#"
            disk = [{ name = "n", kind = "nvme", read = "3GB/s" }]
            measured = [{ path = "local", what = "read", rate = "1GB/s", cores = [20, 10] }]"#,
        says: &["is not explained", "measure the disk alone"],
        never: &["they share"],
        fix: "",
    },
    // A line is sold with less in one direction; a wire of the house is not.
    Box {
        text: r#"
            disk = [{ name = "hdd", kind = "hdd", read = "180MB/s" }]
            network = { name = "the fibre line", limit = "300Mbit/s", round_trip = "18ms" }
            measured = [{ path = "network", what = "write", rate = "290Mbit/s" },
                        { path = "network", what = "read", rate = "38Mbit/s" },
                        { path = "share", what = "read", rate = "4.5MB/s" }]"#,
        says: &["this direction of the fibre line"],
        never: &["MTU", "ip link set"],
        fix: "both directions",
    },
    // One request after the other has all its times one after the other.
    Box {
        text: r#"
            disk = [{ name = "hdd", kind = "hdd", write = "180MB/s", flush = "25ms" }]
            network = { name = "gigabit" }
            measured = [{ path = "share", what = "write", rate = "25.5MB/s", block = "1MiB", depth = 1, sync = true }]"#,
        says: &["one request at a time, each 39.8 ms: 97 %"],
        never: &[],
        fix: "eight times",
    },
    Box {
        text: r#"
            record = "1MiB"
            disk = [{ name = "hdd", kind = "hdd", read = "180MB/s", random_read = 180 }]
            measured = [{ path = "local", what = "random-read", iops = 84, depth = 4, block = "4KiB" }]"#,
        says: &["a whole record of 1.00 MiB for each 4.00 KiB: 9"],
        never: &[],
        fix: "SSDs instead",
    },
    Box {
        text: r#"
            disk = [{ name = "hdd", kind = "hdd", read = "180MB/s", random_read = 180 }]
            measured = [{ path = "local", what = "random-read", iops = 84, depth = 4, block = "1MiB" }]"#,
        says: &["the disk itself: 9"],
        never: &[],
        fix: "SSDs instead",
    },
    Box {
        text: r#"
            layout = "raidz2"
            groups = 2
            record = "128KiB"
            disk = [{ name = "hdd", kind = "hdd", count = 12, read = "200MB/s", random_read = 180 }]
            measured = [{ path = "local", what = "random-read", iops = 330, depth = 32, block = "4KiB" }]"#,
        says: &["one disk of each group, the slowest"],
        never: &[],
        fix: "SSDs instead",
    },
    // Disks that are waited for are looked at before more are bought.
    Box {
        text: r#"
            layout = "raidz1"
            disk = [{ name = "hdd", kind = "hdd", count = 3, write = "150MB/s" }]
            measured = [{ path = "local", what = "write", rate = "21MB/s", cores = [15, 10, 10, 10], iowait = 60 }]"#,
        says: &["cores waited for them 60 %"],
        never: &[],
        fix: "the disks as fast as they are described",
    },
    Box {
        text: r#"
            disk = [{ name = "hdd", kind = "hdd", read = "180MB/s" }]
            measured = [{ path = "local", what = "read", rate = "40MB/s", disk_busy = 100 }]"#,
        says: &["they were busy 100 %"],
        never: &[],
        fix: "the disks as fast as they are described",
    },
    Box {
        text: r#"
            layout = "raid5"
            disk = [{ name = "hdd", kind = "hdd", count = 4, write = "170MB/s" }]
            network = { name = "gigabit" }
            measured = [{ path = "network", what = "write", rate = "940Mbit/s" },
                        { path = "local", what = "write", rate = "75MB/s", cores = [30, 20, 10, 10], disk_busy = 98 },
                        { path = "share", what = "write", rate = "70MB/s" }]"#,
        says: &["RAID 5, which reads before it writes (the storage as measured"],
        never: &["chipset"],
        fix: "whole stripes at a time",
    },
    // What is usual of a card needs no bad cable, and what memory answered is told.
    Box {
        text: r#"
            disk = [{ name = "card", kind = "sd-card" }]
            network = { name = "gigabit" }
            measured = [{ path = "share", what = "write", rate = "10.5MB/s", file = "8GB" }]"#,
        says: &["usual of a memory card"],
        never: &["100 Mbit"],
        fix: "an SSD instead of a card",
    },
    Box {
        text: r#"
            disk = [{ name = "hdd", kind = "hdd", read = "180MB/s" }]
            measured = [{ path = "local", what = "read", rate = "4GB/s", caches = "warm", file = "2GB" }]"#,
        says: &[
            "nothing was measured that could be explained (reading on the machine itself (4.00 GB/s) proves nothing",
        ],
        never: &[],
        fix: "",
    },
    // Shared wires: a part of the disks behind one, copies, both directions.
    Box {
        text: r#"
            disk = [{ name = "inside", kind = "hdd", count = 2, read = "180MB/s" },
                    { name = "outside", kind = "hdd", count = 2, read = "180MB/s", via = ["hub"] }]
            link = [{ name = "hub", type = "USB 2.0" }]
            measured = [{ path = "local", what = "read", rate = "77MB/s" }]"#,
        says: &["hub: 96 % of the 80 MB/s"],
        never: &[],
        fix: "without the limit of hub",
    },
    Box {
        text: r#"
            layout = "mirror"
            disk = [{ name = "ssd", kind = "sata-ssd", count = 2, read = "430MB/s", write = "420MB/s", via = ["hub"] }]
            link = [{ name = "hub", type = "USB 3.0" }]
            measured = [{ path = "local", what = "write", rate = "208MB/s" }]"#,
        says: &["hub: 95 %"],
        never: &[],
        fix: "without the limit of hub",
    },
    Box {
        text: r#"
            layout = "mirror"
            disk = [{ name = "inside", kind = "hdd", write = "170MB/s" }, { name = "outside", kind = "hdd", write = "170MB/s", via = ["hub"] }]
            link = [{ name = "hub", type = "USB 2.0" }]
            measured = [{ path = "local", what = "write", rate = "38MB/s" }]"#,
        says: &["hub: 95 %"],
        never: &[],
        fix: "without the limit of hub",
    },
    Box {
        text: r#"
            disk = [{ name = "ssd", kind = "sata-ssd", read = "440MB/s", write = "430MB/s", via = ["dock"] }]
            link = [{ name = "dock", type = "USB 3.0", duplex = "half" }]
            network = { name = "2.5 GbE", via = ["dock"] }
            measured = [{ path = "share", what = "write", rate = "210MB/s" }]"#,
        says: &["dock, which disks and network share"],
        never: &[],
        fix: "the network card on a link of its own",
    },
    Box {
        text: r#"
            disk = [{ name = "n", kind = "nvme", count = 8, read = "6GB/s" }]
            link = [{ name = "slot", type = "PCIe 3.0 x8" }]
            network = { name = "100 GbE", via = ["slot"] }
            measured = [{ path = "network", what = "read", rate = "55Gbit/s", cores = [60, 50, 50, 40] }]"#,
        says: &["slot: 97 %"],
        never: &["40 gigabit"],
        fix: "without the limit of slot",
    },
    Box {
        text: r#"
            disk = [{ name = "ssd", kind = "sata-ssd", read = "500MB/s" }]
            link = [{ name = "port", type = "USB 2.0" }]
            network = { name = "2.5 GbE", via = ["port"] }
            measured = [{ path = "network", what = "read", rate = "312Mbit/s" }, { path = "share", what = "read", rate = "37MB/s" }]"#,
        says: &["capped by port"],
        never: &["nothing is wrong"],
        fix: "without the limit of port",
    },
    // Measured one by one, and one of them is the reason.
    Box {
        text: r#"
            layout = "raidz2"
            disk = [{ name = "good", kind = "hdd", count = 5 }, { name = "bad", kind = "hdd" }]
            measured = [{ path = "disks", what = "read", disks = [["good", 1]], rate = "210MB/s" },
                        { path = "disks", what = "read", disks = [["bad", 1]], rate = "38MB/s" },
                        { path = "local", what = "read", rate = "149MB/s", cores = [20, 10, 10, 10] }]"#,
        says: &["as fast as the slowest of them ('bad')"],
        never: &[],
        fix: "'bad' as fast",
    },
    Box {
        text: r#"
            layout = "raidz1"
            disk = [{ name = "cmr", kind = "hdd", count = 3, write = "180MB/s" }, { name = "smr", kind = "smr", write = "170MB/s" }]
            measured = [{ path = "local", what = "write", rate = "90MB/s", file = "500GB" }]"#,
        says: &["the shingled disk"],
        never: &[],
        fix: "conventional",
    },
    Box {
        text: r#"
            layout = "raidz1"
            degraded = true
            disk = [{ name = "hdd", kind = "hdd", count = 4, read = "180MB/s" }]
            measured = [{ path = "local", what = "read", rate = "120MB/s" }]"#,
        says: &["the degraded pool"],
        never: &[],
        fix: "the missing disk replaced",
    },
    Box {
        text: r#"
            layout = "mirror"
            disk = [{ name = "ssd", kind = "sata-ssd", random_write = 60000 }, { name = "hdd", kind = "hdd", random_write = 170 }]
            measured = [{ path = "local", what = "random-write", iops = 165, depth = 32 }]"#,
        says: &["'hdd' is the slowest"],
        never: &[],
        fix: "'hdd' as fast",
    },
    // Who asks: far away, one at a time, with one core.
    Box {
        text: r#"
            disk = [{ name = "hdd", kind = "hdd", read = "180MB/s" }]
            network = { name = "satellite", limit = "100Mbit/s", round_trip = "600ms", window = "64KiB" }
            measured = [{ path = "share", what = "read", rate = "105kB/s" }]"#,
        says: &["the TCP window over the round trip"],
        never: &[],
        fix: "larger TCP windows",
    },
    Box {
        text: r#"
            disk = [{ name = "n", kind = "nvme", count = 2, read = "3GB/s" }]
            network = { name = "10 GbE" }
            measured = [{ path = "network", what = "read", rate = "4.1Gbit/s", jobs = 1, client_cores = [100, 10, 5, 5] },
                        { path = "network", what = "read", rate = "9.4Gbit/s", jobs = 4, client_cores = [70, 60, 60, 60] },
                        { path = "share", what = "read", rate = "500MB/s", client_cores = [100, 5, 5, 5] }]"#,
        says: &["the client's processor: 1 core"],
        never: &[],
        fix: "the work spread over the client's",
    },
    Box {
        text: r#"
            memory = "512MiB"
            disk = [{ name = "stick", kind = "usb-stick", read = "30MB/s" }]
            network = { name = "100 Mbit" }
            measured = [{ path = "share", what = "read", rate = "4.8MB/s", cores = [100], file = "8GB" }]"#,
        says: &["the processor: its core is busy"],
        never: &[],
        fix: "a faster processor",
    },
    Box {
        text: r#"
            disk = [{ name = "n", kind = "nvme", read = "3GB/s" }]
            network = { name = "2.5 GbE" }
            client = [{ name = "laptop", type = "Wi-Fi 6" }]
            measured = [{ path = "network", what = "read", rate = "410Mbit/s", client = "laptop" },
                        { path = "share", what = "read", rate = "48MB/s", client = "laptop", with = "Finder" }]"#,
        says: &["the Wi-Fi 6"],
        never: &["nothing is wrong"],
        fix: "a wire instead of Wi-Fi",
    },
    // Nothing is wrong.
    Box {
        text: r#"
            layout = "raidz3"
            disk = [{ name = "hdd", kind = "hdd", count = 11, read = "200MB/s", write = "190MB/s" }]
            network = { name = "10 GbE" }
            measured = [{ path = "local", what = "write", rate = "1.48GB/s" }, { path = "share", what = "write", rate = "1.13GB/s", cores = [50, 40, 30, 30] }]"#,
        says: &["nothing is wrong, the wire is full"],
        never: &[],
        fix: "25 gigabit",
    },
];

#[test]
fn rare_boxes_have_one_true_sentence() {
    check(BOXES);
}
