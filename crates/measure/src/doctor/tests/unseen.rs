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
    // Each byte of a mirror is written twice through a hub of USB 2.0.
    Box {
        text: r#"
            name = "Pi 4, two USB disks on a USB 2 hub"
            memory = "4GiB"
            layout = "mirror"
            [[link]]
            name = "the hub"
            type = "USB 2.0"
            [[disk]]
            name = "USB disk"
            kind = "hdd"
            count = 2
            read = "140MB/s"
            write = "135MB/s"
            via = ["the hub"]
            [network]
            name = "gigabit Ethernet"
            limit = "940Mbit/s"
            [[measured]]
            path = "local"
            what = "write"
            rate = "18.5MB/s"
            file = "16GB"
            [[measured]]
            path = "share"
            what = "read"
            rate = "36MB/s"
            file = "16GB"
            [[measured]]
            path = "share"
            what = "write"
            rate = "18MB/s"
            file = "16GB""#,
        cause: "the hub (the storage as measured on the machine itself)",
        fix: "without the limit of the hub",
    },
    // Four SSDs behind one lane: named once, however far below it was seen.
    Box {
        text: r#"
            name = "N100, four SATA SSDs behind an ASM1166"
            memory = "16GiB"
            layout = "raid5"
            [[link]]
            name = "the ASM1166's slot"
            type = "PCIe 3.0 x1"
            [[disk]]
            name = "SSD"
            kind = "sata-ssd"
            count = 4
            connection = "SATA 6G"
            read = "540MB/s"
            write = "500MB/s"
            via = ["the ASM1166's slot"]
            [network]
            name = "10 GbE"
            type = "10 GbE"
            [[measured]]
            path = "disks"
            what = "read"
            rate = "850MB/s"
            [[measured]]
            path = "local"
            what = "read"
            rate = "845MB/s"
            file = "64GB"
            [[measured]]
            path = "share"
            what = "read"
            rate = "820MB/s"
            file = "64GB"
            [[measured]]
            path = "share"
            what = "write"
            rate = "610MB/s"
            file = "64GB""#,
        cause: "the ASM1166's slot",
        fix: "without the limit of the ASM1166's slot",
    },
    // The cipher runs on one core, whatever else there is.
    Box {
        text: r#"
            name = "WireGuard on a small ARM"
            memory = "2GiB"
            [[disk]]
            name = "HDD"
            kind = "hdd"
            read = "180MB/s"
            write = "170MB/s"
            [network]
            name = "gigabit Ethernet"
            type = "gigabit"
            [[work]]
            name = "ChaCha20 of WireGuard"
            rate_per_core = "55MB/s"
            paths = ["share", "network"]
            [[measured]]
            path = "network"
            what = "read"
            rate = "52MB/s"
            cores = [99, 20, 10, 5]
            [[measured]]
            path = "share"
            what = "read"
            rate = "50MB/s"
            file = "16GB"
            cores = [98, 25, 10, 5]"#,
        cause: "ChaCha20 of WireGuard on one core (gigabit Ethernet, as measured alone)",
        fix: "less work for the processor than ChaCha20",
    },
    Box {
        text: r#"
            name = "2.5 GbE negotiated 1 Gbit"
            memory = "8GiB"
            layout = "mirror"
            [[disk]]
            name = "SSD"
            kind = "sata-ssd"
            count = 2
            read = "540MB/s"
            write = "500MB/s"
            [network]
            name = "2.5 GbE"
            type = "2.5 GbE"
            [[measured]]
            path = "network"
            what = "read"
            rate = "941Mbit/s"
            [[measured]]
            path = "share"
            what = "read"
            rate = "111MB/s"
            file = "32GB"
            [[measured]]
            path = "share"
            what = "write"
            rate = "110MB/s"
            file = "32GB""#,
        cause: "rung-below: a part of the way that runs at gigabit Ethernet",
        fix: "the full speed of what is there",
    },
    Box {
        text: r#"
            name = "half duplex"
            memory = "8GiB"
            [[disk]]
            name = "HDD"
            kind = "hdd"
            read = "200MB/s"
            write = "190MB/s"
            [network]
            name = "gigabit Ethernet"
            type = "gigabit"
            [[measured]]
            path = "network"
            what = "read"
            rate = "94Mbit/s"
            retransmits = 0.1
            [[measured]]
            path = "share"
            what = "read"
            rate = "4.2MB/s"
            retransmits = 3.5
            file = "20GB""#,
        cause: "retransmits: losses on the wire",
        fix: "a wire without losses",
    },
    // Copies, and what a QLC disk takes fast.
    Box {
        text: r#"
            name = "QLC"
            memory = "16GiB"
            layout = "mirror"
            [[disk]]
            name = "QLC"
            kind = "qlc"
            count = 2
            connection = "PCIe 3.0 x4"
            read = "2.4GB/s"
            write = "110MB/s"
            write_cached = "1.8GB/s"
            cache = "200GB"
            [network]
            name = "10 GbE"
            type = "10 GbE"
            [[measured]]
            path = "share"
            what = "write"
            rate = "1.1GB/s"
            file = "100GB"
            [[measured]]
            path = "share"
            what = "write"
            rate = "190MB/s"
            file = "500GB""#,
        cause: "the disks, each byte written as often as there are copies",
        fix: "2 disks more",
    },
    // 4 KiB of 128 KiB: 32 times as much is read as was asked for.
    Box {
        text: r#"
            name = "raidz1 of SSD, 4K random over 128K records"
            memory = "32GiB"
            layout = "raidz1"
            record = "128KiB"
            [[disk]]
            name = "SSD"
            kind = "sata-ssd"
            count = 4
            random_read = 90000
            random_write = 60000
            read = "540MB/s"
            write = "500MB/s"
            [[measured]]
            path = "local"
            what = "random-read"
            iops = 11000
            depth = 32
            block = "4KiB"
            caches = "bypassed"
            cores = [40,30,30,20]"#,
        cause: "the disks, which read a whole record of 128 KiB for each 4.00 KiB",
        fix: "records of 16",
    },
    Box {
        text: r#"
            name = "small files over SMB"
            memory = "8GiB"
            [[disk]]
            name = "NVMe"
            kind = "nvme"
            read = "3GB/s"
            write = "2GB/s"
            latency = "80us"
            [network]
            name = "gigabit Ethernet"
            type = "gigabit"
            round_trip = "300us"
            [[measured]]
            path = "share"
            what = "read"
            rate = "9MB/s"
            block = "4KiB"
            depth = 1
            with = "SMB, 4 KiB files""#,
        cause: "one request at a time, each 380 us",
        fix: "eight times as many requests at once",
    },
    // The laptop's air is narrower than the box's wire.
    Box {
        text: r#"
            name = "laptop on Wi-Fi"
            memory = "8GiB"
            [[disk]]
            name = "HDD"
            kind = "hdd"
            count=2
            read = "200MB/s"
            write = "190MB/s"
            [network]
            name = "gigabit Ethernet"
            type = "gigabit"
            [[client]]
            name = "laptop"
            type = "Wi-Fi 5"
            [[client]]
            name = "desktop"
            type = "gigabit"
            [[measured]]
            path = "share"
            what = "read"
            rate = "110MB/s"
            client = "desktop"
            file = "20GB"
            [[measured]]
            path = "share"
            what = "read"
            rate = "48MB/s"
            client = "laptop"
            file = "20GB""#,
        cause: "client-wifi: the Wi-Fi 5, two streams of 80 MHz of laptop",
        fix: "a wire instead of Wi-Fi at the client",
    },
    Box {
        text: r#"
            name = "one stream, one core"
            memory = "32GiB"
            layout = "mirror"
            [[disk]]
            name = "NVMe"
            kind = "nvme"
            count = 2
            read = "3GB/s"
            write = "2.5GB/s"
            [network]
            name = "25 GbE"
            type = "25 GbE"
            [[measured]]
            path = "network"
            what = "read"
            rate = "23Gbit/s"
            jobs = 8
            [[measured]]
            path = "share"
            what = "read"
            rate = "1.4GB/s"
            file = "100GB"
            cores = [99, 12, 10, 8, 5, 5, 2, 2]"#,
        cause: "1 of 8 cores",
        fix: "the work spread over the idle cores",
    },
    Box {
        text: r#"
            name = "NVMe in an x1 slot"
            memory = "16GiB"
            [[disk]]
            name = "NVMe"
            kind = "nvme"
            connection = "PCIe 3.0 x1"
            read = "3.5GB/s"
            write = "3GB/s"
            [network]
            name = "10 GbE"
            type = "10 GbE"
            [[measured]]
            path = "local"
            what = "read"
            rate = "860MB/s"
            caches = "bypassed"
            [[measured]]
            path = "share"
            what = "read"
            rate = "840MB/s"
            file = "100GB""#,
        cause: "the PCIe 3.0 x1 connection of the disk (the storage",
        fix: "'NVMe' on a faster connection than PCIe 3.0 x1",
    },
    Box {
        text: r#"
            name = "one of four disks in SATA 3G"
            memory = "8GiB"
            layout = "stripe"
            [[disk]]
            name = "fast port"
            kind = "sata-ssd"
            count = 3
            connection = "SATA 6G"
            read = "540MB/s"
            write = "500MB/s"
            [[disk]]
            name = "slow port"
            kind = "sata-ssd"
            connection = "SATA 3G"
            read = "540MB/s"
            write = "500MB/s"
            [network]
            name = "10 GbE"
            type = "10 GbE"
            [[measured]]
            path = "local"
            what = "read"
            rate = "1.06GB/s"
            file = "32GB""#,
        cause: "the SATA 3 Gbit/s connection of 'slow port'",
        fix: "'slow port' on a faster connection",
    },
    // Small writes of many: RAID 6 has six operations for each.
    Box {
        text: r#"
            name = "32 clients on hard disks"
            memory = "16GiB"
            layout = "raid6"
            [[disk]]
            name = "HDD"
            kind = "hdd"
            count = 8
            read = "220MB/s"
            write = "210MB/s"
            random_read = 180
            random_write = 170
            [network]
            name = "10 GbE"
            type = "10 GbE"
            [[measured]]
            path = "share"
            what = "random-read"
            iops = 1350
            block = "64KiB"
            jobs = 32
            depth = 1
            file = "500GB"
            [[measured]]
            path = "share"
            what = "random-write"
            iops = 215
            block = "64KiB"
            jobs = 32
            depth = 1
            file = "500GB""#,
        cause: "the disks, which read old data and parity before each small write",
        fix: "SSDs instead of hard disks",
    },
    Box {
        text: r#"
            name = "NFS sync on hard disks"
            memory = "8GiB"
            layout = "mirror"
            [[disk]]
            name = "HDD"
            kind = "hdd"
            count = 2
            read = "200MB/s"
            write = "190MB/s"
            flush = "16ms"
            [network]
            name = "gigabit Ethernet"
            type = "gigabit"
            round_trip = "200us"
            [[measured]]
            path = "share"
            what = "write"
            rate = "3.9MB/s"
            block = "64KiB"
            depth = 1
            sync = true
            file = "4GB""#,
        cause: "one request at a time, each 17.1 ms",
        fix: "a disk with power-loss protection",
    },
    Box {
        text: r#"
            name = "Pi 3: Ethernet and disk on one USB 2"
            memory = "1GiB"
            [[link]]
            name = "the USB 2.0 bus"
            type = "USB 2.0"
            [[disk]]
            name = "disk"
            kind = "hdd"
            read = "120MB/s"
            write = "115MB/s"
            via = ["the USB 2.0 bus"]
            [network]
            name = "gigabit Ethernet on USB 2.0"
            limit = "310Mbit/s"
            via = ["the USB 2.0 bus"]
            [[measured]]
            path = "share"
            what = "read"
            rate = "17MB/s"
            file = "4GB"
            cores=[60,30,20,10]"#,
        cause: "the USB 2.0 bus, which disks and network share",
        fix: "the network card on a link of its own",
    },
    // A single connection over two cables.
    Box {
        text: r#"
            name = "bond"
            disk = [{ name = "d", kind = "sata-ssd", count = 2, read = "540MB/s" }]
            network = { name = "2 x gigabit, bonded", limit = "1880Mbit/s" }
            measured = [{ path = "share", what = "read", rate = "112MB/s", cores = [30, 10, 10, 10], file = "64GB" }]"#,
        cause: "one-of-a-bond: one cable of '2 x gigabit, bonded'",
        fix: "several connections over the bond",
    },
    // A file lies on one of the disks, and nobody says on which.
    Box {
        text: r#"
            name = "jbod"
            layout = "jbod"
            disk = [{ name = "old", kind = "hdd", read = "90MB/s" }, { name = "new", kind = "hdd", read = "240MB/s" }]
            network = { name = "2.5 GbE", type = "2.5 GbE" }
            measured = [{ path = "share", what = "read", rate = "88MB/s" }]"#,
        cause: "one disk: a file lies on one",
        fix: "'old' as fast as the others",
    },
    // Megabytes of window over a far wire: more requests in the same window bring nothing.
    Box {
        text: r#"
            name = "backup over the Internet"
            disk = [{ name = "d", kind = "hdd", read = "200MB/s" }]
            network = { name = "fibre", limit = "300Mbit/s", round_trip = "35ms", window = "512KiB" }
            measured = [{ path = "share", what = "read", rate = "14MB/s", file = "20GB" }]"#,
        cause: "the TCP window over the round trip",
        fix: "larger TCP windows",
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

/// Negotiated speeds hold for both directions, and so do good cables.
#[test]
fn one_slow_direction_is_neither_speed_nor_cable() {
    let text = |retransmits: &str| {
        format!(
            r#"
            name = "jumbo frames at one end"
            disk = [{{ name = "d", kind = "sata-ssd", count = 4, read = "540MB/s", write = "500MB/s" }}]
            network = {{ name = "10 GbE", type = "10 GbE" }}
            [[measured]]
            path = "network"
            what = "read"
            rate = "9.4Gbit/s"
            [[measured]]
            path = "network"
            what = "write"
            rate = "90Mbit/s"
            {retransmits}
            [[measured]]
            path = "share"
            what = "write"
            rate = "10.5MB/s"
            {retransmits}"#
        )
    };
    let lossy = diagnosis(&text("retransmits = 4.0"));
    assert!(causes(&lossy)[1].starts_with("retransmits"), "{:?}", causes(&lossy));
    assert!(
        lossy.findings[1].sentence.contains("so the cable is good: look for another MTU"),
        "{:#?}",
        lossy.findings[1]
    );
    let silent = diagnosis(&text(""));
    assert!(causes(&silent)[1].starts_with("one-direction: "), "{:?}", causes(&silent));
    assert_eq!(silent.advice[0].what, "both directions as fast as the better one");
    assert!(silent.advice[0].how.contains("mtu"), "{:#?}", silent.advice);
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

/// A figure that nobody gave is not infinite: no hard disk writes what 10 GbE carries.
#[test]
fn on_paper_a_kind_of_disk_is_a_limit_too() {
    let text = "name = \"x\"\nmemory = \"8GiB\"\ndisk = [{ name = \"d\", kind = \"hdd\", read = \"180MB/s\" }]\n\
        network = { name = \"10 GbE\" }\n\
        measured = [{ path = \"share\", what = \"read\", rate = \"870MB/s\", file = \"4GB\" }]";
    let found = diagnosis(text);
    for said in [
        "reading over the network would be capped by the disk itself at 180 MB/s",
        "writing over the network would be capped by the disk itself at no more than 285 MB/s",
    ] {
        assert!(found.verdict.contains(said), "{}", found.verdict);
    }
}
