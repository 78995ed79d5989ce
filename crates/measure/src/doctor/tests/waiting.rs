//! Boxes whose figures are made of waiting (flushes, round trips, one connection, one copy) and of links that run slower
//! than their name, each judged by hand first.

use super::judged::{Box, check};

const BOXES: &[Box] = &[
    // A flush that nobody timed.
    Box {
        text: r#"
            disk = [{ name = "consumer SSD", kind = "nvme", random_write = 250000 }]
            measured = [{ path = "local", what = "random-write", iops = 640, depth = 1, sync = true, cores = [4, 2, 2, 1] }]"#,
        says: &["the flush of each write", "1.56 ms", "power-loss protection"],
        never: &["nconnect", "contradicts"],
        fix: "a disk with power-loss protection",
    },
    Box {
        text: r#"
            layout = "mirror"
            disk = [{ name = "hdd", kind = "hdd", count = 4, write = "180MB/s" }]
            network = { name = "gigabit", round_trip = "300us" }
            measured = [{ path = "share", what = "write", rate = "1.2MB/s", block = "16KiB", depth = 1, sync = true, cores = [5, 3, 2, 2] }]"#,
        says: &["the flush of each write", "13.35 ms", "half a turn"],
        never: &["something the disks share"],
        fix: "a disk with power-loss protection",
    },
    // With capacitors it is not the flush.
    Box {
        text: r#"
            disk = [{ name = "P4510", kind = "nvme", random_write = 200000, flush = "40us" }]
            network = { name = "10 GbE", round_trip = "900us" }
            measured = [{ path = "share", what = "random-write", iops = 990, depth = 1, sync = true }]"#,
        says: &["one request at a time, each 940 us: 93 %"],
        never: &["the flush of"],
        fix: "eight times",
    },
    // fio without an engine that keeps a queue.
    Box {
        text: r#"
            disk = [{ name = "ssd", kind = "sata-ssd", random_read = 90000, latency = "110us" }]
            measured = [{ path = "local", what = "random-read", iops = 8900, depth = 32, cores = [25, 3, 2, 2] }]"#,
        says: &["one request at a time, though 32 were meant", "psync"],
        never: &["contradicts"],
        fix: "as many requests at once as were meant",
    },
    Box {
        text: r#"
            disk = [{ name = "nvme", kind = "nvme", random_read = 600000 }]
            measured = [{ path = "local", what = "random-read", iops = 11800, depth = 64, latency = "84us" }]"#,
        says: &["one request at a time, though 64 were meant"],
        never: &["contradicts"],
        fix: "as many requests at once as were meant",
    },
    // Fewer requests than disks keep only so many of them busy.
    Box {
        text: r#"
            disk = [{ name = "ssd", kind = "sata-ssd", count = 8, random_read = 90000 }]
            measured = [{ path = "local", what = "random-read", iops = 9300, depth = 1, cores = [20, 5, 5, 5] }]"#,
        says: &["the time of single requests", "0.11 ms"],
        never: &["something the disks share"],
        fix: "eight times",
    },
    Box {
        text: r#"
            disk = [{ name = "hdd", kind = "hdd", count = 12, random_read = 180 }]
            measured = [{ path = "local", what = "random-read", iops = 330, depth = 4, cores = [5, 5, 5, 5] }]"#,
        says: &["the time of single requests", "4 in flight"],
        never: &["something the disks share"],
        fix: "eight times",
    },
    // One connection over a fast wire.
    Box {
        text: r#"
            disk = [{ name = "n", kind = "nvme", read = "3GB/s" }]
            network = { name = "10 GbE", round_trip = "500us" }
            measured = [{ path = "network", what = "read", rate = "9.4Gbit/s", jobs = 4, cores = [40, 35, 35, 35] },
                        { path = "network", what = "read", rate = "3.9Gbit/s", jobs = 1, cores = [40, 5, 5, 5], client_cores = [45, 5, 5, 5] }]"#,
        says: &["what one connection carries", "4 at once 1.18 GB/s", "238 KiB in each round trip"],
        never: &["the disk"],
        fix: "several connections at once",
    },
    Box {
        text: r#"
            disk = [{ name = "n", kind = "nvme", read = "3GB/s" }]
            network = { name = "10 GbE" }
            measured = [{ path = "network", what = "read", rate = "3.9Gbit/s", jobs = 1 },
                        { path = "network", what = "read", rate = "9.4Gbit/s", jobs = 4 },
                        { path = "local", what = "read", rate = "2.9GB/s" },
                        { path = "share", what = "read", rate = "455MB/s", cores = [55, 10, 10, 5], client_cores = [60, 10, 5, 5] }]"#,
        says: &["what one connection carries"],
        never: &["the client or the protocol"],
        fix: "several connections at once",
    },
    Box {
        text: r#"
            disk = [{ name = "n", kind = "nvme", read = "3GB/s" }]
            network = { name = "10 GbE", round_trip = "500us", window = "256KiB" }
            measured = [{ path = "network", what = "read", rate = "9.3Gbit/s", jobs = 4 }]"#,
        says: &["nothing is wrong, the wire is full"],
        never: &["capped by the TCP window"],
        fix: "25 gigabit",
    },
    Box {
        text: r#"
            disk = [{ name = "n", kind = "nvme", read = "3GB/s" }]
            network = { name = "10 GbE", round_trip = "500us", window = "256KiB" }
            measured = [{ path = "network", what = "read", rate = "3.9Gbit/s", jobs = 1, cores = [30, 5, 5, 5] }]"#,
        says: &["the TCP window over the round trip: 93 %"],
        never: &["iodepth"],
        fix: "larger TCP windows",
    },
    Box {
        text: r#"
            disk = [{ name = "n", kind = "nvme", read = "3GB/s" }]
            network = { name = "10 GbE" }
            measured = [{ path = "network", what = "read", rate = "2.9Gbit/s", cores = [40, 5, 5, 5] }]"#,
        says: &["is not explained", "iperf3 -P 4", "round_trip ="],
        never: &["the disk alone"],
        fix: "",
    },
    // Copies of a mirror.
    Box {
        text: r#"
            layout = "mirror"
            disk = [{ name = "hdd", kind = "hdd", count = 2, read = "180MB/s" }]
            measured = [{ path = "local", what = "read", rate = "176MB/s", jobs = 1, cores = [20, 20, 10, 10] }]"#,
        says: &["one copy of the mirror"],
        never: &[],
        fix: "several files read at once",
    },
    Box {
        text: r#"
            layout = "mirror"
            disk = [{ name = "hdd", kind = "hdd", count = 2, read = "180MB/s" }]
            measured = [{ path = "local", what = "read", rate = "345MB/s", cores = [20, 20, 10, 10] }]"#,
        says: &["is capped by the disks together: 96 % of the 360 MB/s"],
        never: &["where the data lies"],
        fix: "2 disks more",
    },
    // Links that run slower than their name.
    Box {
        text: r#"
            disk = [{ name = "ssd", kind = "sata-ssd", read = "500MB/s" }]
            link = [{ name = "the dongle's USB 3.0 port" }]
            network = { name = "2.5 GbE", via = ["the dongle's USB 3.0 port"] }
            measured = [{ path = "network", what = "read", rate = "310Mbit/s", cores = [20, 10, 5, 5] },
                        { path = "network", what = "write", rate = "305Mbit/s", cores = [20, 10, 5, 5] }]"#,
        says: &["the dongle's USB 3.0 port, which runs at USB 2.0"],
        never: &[],
        fix: "the full speed of that link",
    },
    Box {
        text: r#"
            disk = [{ name = "hdd", kind = "hdd", count = 3, read = "160MB/s", via = ["USB 3.0 hub"] }]
            link = [{ name = "USB 3.0 hub" }]
            measured = [{ path = "disks", what = "read", disks = [["hdd", 1]], rate = "38MB/s" },
                        { path = "disks", what = "read", rate = "39MB/s" }]"#,
        says: &["USB 3.0 hub, which runs at USB 2.0"],
        never: &[],
        fix: "the full speed of that link",
    },
    Box {
        text: r#"
            disk = [{ name = "n", kind = "nvme", read = "3GB/s" }]
            link = [{ name = "the slot", type = "PCIe 3.0 x4" }]
            network = { name = "10 GbE", via = ["the slot"] }
            measured = [{ path = "network", what = "read", rate = "6.8Gbit/s", jobs = 4, cores = [40, 30, 20, 20] }]"#,
        says: &["the slot, which runs at PCIe 3.0 x1"],
        never: &[],
        fix: "the full speed of that link",
    },
    Box {
        text: r#"
            disk = [{ name = "ssd", kind = "sata-ssd", read = "500MB/s", via = ["the USB-C hub"] }]
            link = [{ name = "the USB-C hub", type = "USB 3.0" }]
            network = { name = "gigabit", via = ["the USB-C hub"] }
            measured = [{ path = "local", what = "read", rate = "38MB/s" }, { path = "share", what = "read", rate = "19MB/s" }]"#,
        says: &["the USB-C hub, which runs at USB 2.0: 38 MB/s is what"],
        never: &[],
        fix: "the full speed of that link",
    },
    // Whoever was faster over it shows that it does not.
    Box {
        text: r#"
            disk = [{ name = "ssd", kind = "sata-ssd", read = "500MB/s" }]
            link = [{ name = "USB 3.0 port" }]
            network = { name = "2.5 GbE", via = ["USB 3.0 port"] }
            measured = [{ path = "network", what = "read", rate = "310Mbit/s", cores = [20, 10, 5, 5] },
                        { path = "network", what = "write", rate = "2.3Gbit/s", cores = [20, 10, 5, 5] }]"#,
        says: &["something that slows this direction alone"],
        never: &["runs at USB 2.0"],
        fix: "both directions",
    },
    Box {
        text: r#"
            disk = [{ name = "archive", kind = "smr", write = "150MB/s", via = ["USB 3.0 hub"] }]
            link = [{ name = "USB 3.0 hub" }]
            measured = [{ path = "local", what = "write", rate = "38MB/s", file = "300GB" }]"#,
        says: &["the shingled disk"],
        never: &["USB 2.0"],
        fix: "conventional",
    },
    // A cable that is good one way is good both ways.
    Box {
        text: r#"
            disk = [{ name = "n", kind = "nvme", read = "3GB/s" }]
            network = { name = "10 GbE" }
            measured = [{ path = "network", what = "write", rate = "9.3Gbit/s" },
                        { path = "network", what = "read", rate = "41Mbit/s", retransmits = 6 },
                        { path = "share", what = "read", rate = "4.1MB/s", retransmits = 5 }]"#,
        says: &["losses on the wire", "the cable is good", "another MTU"],
        never: &["another cable and switch port"],
        fix: "a wire without losses",
    },
    // A hard disk has one head, however many wait for it.
    Box {
        text: r#"
            disk = [{ name = "hdd", kind = "hdd", random_read = 150, latency = "9ms" }]
            network = { name = "gigabit", round_trip = "500us" }
            measured = [{ path = "share", what = "read", rate = "12.6MB/s", block = "128KiB", depth = 1 }]"#,
        says: &["one request at a time, each 9.5 ms"],
        never: &["110 MB/s"],
        fix: "eight times",
    },
    Box {
        text: r#"
            disk = [{ name = "ssd", kind = "sata-ssd", write = "500MB/s" }]
            network = { name = "gigabit", round_trip = "300us" }
            measured = [{ path = "share", what = "random-write", iops = 190, block = "16KiB", depth = 1, cores = [8, 5, 3, 2] }]"#,
        says: &["the round trip is 0.30 ms", "the rest passes at the server"],
        never: &["rsize"],
        fix: "eight times",
    },
    // Memory answered, and the wire was full all the same.
    Box {
        text: r#"
            memory = "16GiB"
            disk = [{ name = "hdd", kind = "hdd", read = "180MB/s" }]
            network = { name = "gigabit" }
            measured = [{ path = "share", what = "read", rate = "112MB/s", file = "4GB" }]"#,
        says: &["proves nothing", "96 % of what gigabit carries, so that is full"],
        never: &[],
        fix: "",
    },
    // Of the field.
    Box {
        text: r#"
            layout = "raidz1"
            degraded = true
            disk = [{ name = "red plus", kind = "hdd", count = 3, read = "180MB/s", write = "175MB/s" },
                    { name = "red", kind = "smr", read = "180MB/s", write = "150MB/s" }]
            measured = [{ path = "local", what = "write", rate = "38MB/s", cores = [12, 8, 5, 5], iowait = 20 }]"#,
        says: &["the shingled disk"],
        never: &["degraded pool"],
        fix: "conventional",
    },
    Box {
        text: r#"
            disk = [{ name = "hdd", kind = "hdd", count = 5, read = "190MB/s", via = ["port multiplier"] }]
            link = [{ name = "port multiplier", type = "SATA 3G" }]
            measured = [{ path = "disks", what = "read", disks = [["hdd", 1]], rate = "185MB/s" },
                        { path = "disks", what = "read", rate = "118MB/s", cores = [10, 5, 5, 5] }]"#,
        says: &["port multiplier"],
        never: &["something the disks share"],
        fix: "without the limit of port multiplier",
    },
    Box {
        text: r#"
            disk = [{ name = "hdd", kind = "hdd", read = "120MB/s", via = ["the USB 2.0 bus"] }]
            link = [{ name = "the USB 2.0 bus" }]
            network = { name = "gigabit", via = ["the USB 2.0 bus"] }
            measured = [{ path = "network", what = "read", rate = "290Mbit/s" },
                        { path = "local", what = "read", rate = "37MB/s" },
                        { path = "share", what = "read", rate = "18.5MB/s", cores = [60, 30, 20, 20] }]"#,
        says: &["the USB 2.0 bus, which disks and network share: 92 %"],
        never: &[],
        fix: "the network card on a link of its own",
    },
    Box {
        text: r#"
            disk = [{ name = "ssd", kind = "sata-ssd", read = "350MB/s", connection = "USB 3.0" }]
            network = { name = "gigabit", limit = "941Mbit/s" }
            work = [{ name = "SMB signing (AES-CMAC)", rate_per_core = "62MB/s", paths = ["share"] }]
            measured = [{ path = "local", what = "read", rate = "345MB/s", cores = [40, 20, 10, 10] },
                        { path = "network", what = "read", rate = "938Mbit/s", cores = [30, 10, 5, 5] },
                        { path = "share", what = "read", rate = "58MB/s", cores = [99, 15, 10, 8] }]"#,
        says: &["SMB signing (AES-CMAC) on one core: 94 %"],
        never: &[],
        fix: "less work for the processor than SMB signing",
    },
    // Several connections have a window each, also those of a share.
    Box {
        text: r#"
            disk = [{ name = "hdd", kind = "hdd", write = "150MB/s" }]
            network = { name = "the line through the VPN", limit = "200Mbit/s", round_trip = "35ms", window = "128KiB" }
            measured = [{ path = "network", what = "write", rate = "29.5Mbit/s", jobs = 1 },
                        { path = "share", what = "write", rate = "3.5MB/s", cores = [4, 3, 2, 2] }]"#,
        says: &["the TCP window over the round trip (the line through the VPN, as measured alone): 95 %"],
        never: &["at most 3.7 MB/s", "iperf3 -P 8"],
        fix: "larger TCP windows",
    },
    Box {
        text: r#"
            disk = [{ name = "hdd", kind = "hdd", write = "150MB/s" }]
            network = { name = "the line through the VPN", limit = "500Mbit/s", round_trip = "35ms", window = "128KiB" }
            measured = [{ path = "network", what = "write", rate = "57Mbit/s", jobs = 2 },
                        { path = "share", what = "write", rate = "3.5MB/s", cores = [4, 3, 2, 2] }]"#,
        says: &["the TCP window over the round trip: 93 %"],
        never: &["contradicts", "at most 7.1 MB/s"],
        fix: "larger TCP windows",
    },
    // The cipher of one program fills a core; another has none and was tried.
    Box {
        text: r#"
            disk = [{ name = "ssd", kind = "sata-ssd", read = "540MB/s" }]
            network = { name = "2.5 GbE" }
            measured = [{ path = "network", what = "read", rate = "2.34Gbit/s" },
                        { path = "share", what = "read", rate = "118MB/s", with = "sshfs", file = "64GB", cores = [60, 20, 10, 5], client_cores = [99, 15, 10, 10] },
                        { path = "share", what = "read", rate = "285MB/s", with = "NFS", file = "64GB", cores = [30, 20, 10, 5], client_cores = [40, 15, 10, 10] }]"#,
        says: &["118 MB/s", "the client's processor"],
        never: &[],
        fix: "the client that was faster (NFS)",
    },
    // What nobody described is found by halves.
    Box {
        text: r#"
            disk = [{ name = "stick", kind = "nvme", count = 4, read = "3.4GB/s", connection = "PCIe 3.0 x1" }]
            measured = [{ path = "disks", what = "read", disks = [["stick", 1]], rate = "868MB/s", depth = 32, block = "1MiB" },
                        { path = "disks", what = "read", rate = "1.75GB/s", depth = 32, block = "1MiB", cores = [35, 30, 25, 20] }]"#,
        says: &["something the disks share that is not described"],
        never: &["contradicts", "3.54 GB/s"],
        fix: "the disks on ways of their own",
    },
];

#[test]
fn what_waits_is_named() {
    check(BOXES);
}
