//! Boxes of the kinds that people build, judged by hand before they were judged here: each has one true sentence, and
//! no fix that the rest of it does not allow.

use super::diagnosis;

pub(super) struct Box {
    pub(super) text: &'static str,
    /// Words of the verdict.
    pub(super) says: &'static [&'static str],
    /// Words of neither verdict nor fixes.
    pub(super) never: &'static [&'static str],
    /// The first fix begins with this; empty: none.
    pub(super) fix: &'static str,
}

const BOXES: &[Box] = &[
    // What a pool gives says nothing of its disk.
    Box {
        text: r#"
            disk = [{ name = "a" }]
            measured = [{ path = "disks", what = "read", rate = "500MB/s" },
                        { path = "local", what = "read", disks = [["a", 1]], rate = "250MB/s" }]"#,
        says: &["is not explained", "500 MB/s"],
        never: &["contradicts"],
        fix: "",
    },
    Box {
        text: r#"
            disk = [{ name = "a", kind = "nvme" }]
            network = { name = "10 GbE" }
            measured = [{ path = "disks", what = "write", rate = "1900MB/s" },
                        { path = "local", what = "write", disks = [["a", 1]], rate = "600MB/s", cores = [99, 20, 10, 10] },
                        { path = "share", what = "write", rate = "560MB/s", cores=[99, 50, 10, 10] }]"#,
        says: &["capped by the processor: 1 core"],
        never: &["contradicts"],
        fix: "the work spread",
    },
    // Cores that are full of somebody else's work hide no wire.
    Box {
        text: r#"
            disk = [{ name = "d", kind = "hdd", read = "180MB/s" }]
            network = { name = "gigabit" }
            measured = [{ path = "network", what = "read", rate = "94Mbit/s", cores = [100, 100, 100, 100] }]"#,
        says: &["runs at 100 Mbit Ethernet", "all 4 cores are busy"],
        never: &[],
        fix: "the full speed of what is there",
    },
    Box {
        text: r#"
            disk = [{ name = "d", kind = "hdd", read = "180MB/s" }]
            network = { name = "gigabit" }
            measured = [{ path = "network", what = "read", rate = "93Mbit/s", cores = [100, 99, 100, 100] },
                        { path = "share", what = "read", rate = "10.8MB/s", cores = [100, 99, 100, 100] }]"#,
        says: &["runs at 100 Mbit Ethernet"],
        never: &[],
        fix: "the full speed of what is there",
    },
    Box {
        text: r#"
            disk = [{ name = "d", kind = "hdd", read = "180MB/s" }]
            network = { name = "100 Mbit" }
            measured = [{ path = "share", what = "read", rate = "10.7MB/s", cores = [100, 100] }]"#,
        says: &["capped by 100 Mbit: 91 %"],
        never: &[],
        fix: "2.5 gigabit Ethernet",
    },
    Box {
        text: r#"
            disk = [{ name = "d", kind = "hdd", write = "180MB/s" }]
            network = { name = "100 Mbit" }
            measured = [{ path = "share", what = "write", rate = "9.28MB/s", cores = [99, 100], client_cores = [100, 98] }]"#,
        says: &["most likely capped by 100 Mbit: 79 %", "no more to give either"],
        never: &["both ends", "nothing is wrong"],
        fix: "2.5 gigabit Ethernet",
    },
    // A wire that is full drops what is too much.
    Box {
        text: r#"
            disk = [{ name = "d", kind = "nvme", read = "3GB/s" }]
            network = { name = "2.5 GbE" }
            measured = [{ path = "network", what = "read", rate = "941Mbit/s", retransmits = 0.8 }]"#,
        says: &["runs at gigabit Ethernet"],
        never: &["losses"],
        fix: "the full speed of what is there",
    },
    Box {
        text: r#"
            disk = [{ name = "d", kind = "nvme", read = "3GB/s" }]
            network = { name = "gigabit" }
            measured = [{ path = "share", what = "read", rate = "112MB/s", retransmits = 1.2 }]"#,
        says: &["nothing is wrong, the wire is full"],
        never: &["losses"],
        fix: "10 gigabit",
    },
    Box {
        text: r#"
            disk = [{ name = "d", kind = "nvme", read = "3GB/s" }]
            network = { name = "gigabit" }
            measured = [{ path = "share", what = "read", rate = "97MB/s", retransmits = 3.2 }]"#,
        says: &["losses on the wire"],
        never: &[],
        fix: "a wire without losses",
    },
    Box {
        text: r#"
            disk = [{ name = "d", kind = "hdd", read = "180MB/s" }]
            network = { name = "Wi-Fi 5" }
            measured = [{ path = "share", what = "read", rate = "12MB/s", retransmits = 4 }]"#,
        says: &["losses in the air"],
        never: &["cable, a duplex", "switch port"],
        fix: "air without losses",
    },
    // Disks that are equally slow share nothing.
    Box {
        text: r#"
            disk = [{ name = "d", kind = "hdd", count = 4, read = "250MB/s" }]
            measured = [{ path = "disks", what = "read", disks = [["d", 1]], rate = "160MB/s", depth = 4, block = "1MiB" },
                        { path = "disks", what = "read", rate = "630MB/s", depth = 16, block = "1MiB" }]"#,
        says: &["the disks together: 98 %"],
        never: &["share"],
        fix: "one disk more",
    },
    Box {
        text: r#"
            disk = [{ name = "d", kind = "hdd", count = 6, read = "260MB/s" }]
            measured = [{ path = "local", what = "read", rate = "1000MB/s" }]"#,
        says: &["slower than described", "167 MB/s"],
        never: &["something"],
        fix: "",
    },
    Box {
        text: r#"
            disk = [{ name = "d", kind = "hdd", count = 8, read = "250MB/s", via = ["HBA"] }]
            link = [{ name = "HBA", type = "PCIe 3.0 x8" }]
            measured = [{ path = "disks", what = "read", rate = "1.2GB/s" }]"#,
        says: &["slower than described"],
        never: &["HBA"],
        fix: "",
    },
    Box {
        text: r#"
            disk = [{ name = "d", kind = "sata-ssd", count = 4 }]
            measured = [{ path = "disks", what = "read", disks = [["d", 1]], rate = "520MB/s" },
                        { path = "disks", what = "read", rate = "530MB/s" }]"#,
        says: &["something the disks share"],
        never: &[],
        fix: "the disks on ways of their own",
    },
    Box {
        text: r#"
            disk = [{ name = "hdd", kind = "hdd", count = 8 }]
            measured = [{ path = "disks", what = "read", disks = [["hdd", 1]], rate = "200MB/s" },
                        { path = "disks", what = "read", rate = "1.05GB/s" }]"#,
        says: &["something the disks share"],
        never: &[],
        fix: "the disks on ways of their own",
    },
    // Beyond what physics allows nothing is concluded.
    Box {
        text: r#"
            disk = [{ name = "d", read = "1.4GB/s", connection = "SATA 6G" }]
            measured = [{ path = "local", what = "read", rate = "540MB/s" }]"#,
        says: &["contradicts itself", "1.40 GB/s"],
        never: &[],
        fix: "",
    },
    Box {
        text: r#"
            disk = [{ name = "d", kind = "nvme", read = "3GB/s" }]
            network = { name = "gigabit" }
            client = [{ name = "laptop", type = "Wi-Fi 5", limit = "2Gbit/s" }]
            measured = [{ path = "share", what = "read", rate = "60MB/s" }]"#,
        says: &["contradicts itself", "Wi-Fi 5"],
        never: &[],
        fix: "",
    },
    Box {
        text: r#"
            disk = [{ name = "d", kind = "nvme", read = "3GB/s" }]
            network = { name = "10 GbE" }
            measured = [{ path = "network", what = "read", rate = "600MB/s" },
                        { path = "share", what = "read", rate = "680MB/s" }]"#,
        says: &["most likely", "alone it gave 600 MB/s"],
        never: &["113 %"],
        fix: "a wire as fast",
    },
    Box {
        text: r#"
            disk = [{ name = "d", kind = "hdd" }]
            measured = [{ path = "local", what = "random-read", iops = 600, depth = 1 }]"#,
        says: &["contradicts itself", "at least 2.00 ms"],
        never: &[],
        fix: "",
    },
    Box {
        text: r#"
            disk = [{ name = "d", kind = "hdd" }]
            measured = [{ path = "disks", what = "read", rate = "200MB/s" },
                        { path = "local", what = "read", rate = "245MB/s" }]"#,
        says: &["most likely", "alone it gave 200 MB/s"],
        never: &["123 %"],
        fix: "one disk more",
    },
    // Work is no limit where the cores that do it are idle.
    Box {
        text: r#"
            disk = [{ name = "d", kind = "nvme", read = "3GB/s" }]
            network = { name = "10 GbE" }
            work = [{ name = "dm-crypt", rate_per_core = "250MB/s", cores = 4 }]
            measured = [{ path = "share", what = "read", rate = "850MB/s", cores = [30, 30, 25, 30] }]"#,
        says: &["is not explained"],
        never: &["capped by dm-crypt"],
        fix: "",
    },
    Box {
        text: r#"
            disk = [{ name = "d", kind = "hdd", read = "220MB/s" }]
            network = { name = "gigabit" }
            work = [{ name = "AES", rate_per_core = "110MB/s" }]
            measured = [{ path = "share", what = "read", rate = "95MB/s", cores = [15, 10, 10, 5] }]"#,
        says: &["capped by gigabit: 81 %"],
        never: &["capped by AES"],
        fix: "2.5 gigabit",
    },
    Box {
        text: r#"
            disk = [{ name = "ssd", kind = "sata-ssd", count = 4, read = "530MB/s" }]
            work = [{ name = "dm-crypt", rate_per_core = "110MB/s", cores = 4 }]
            measured = [{ path = "local", what = "read", rate = "430MB/s", cores = [100, 100, 99, 99] }]"#,
        says: &["capped by dm-crypt on 4 cores: 98 %"],
        never: &[],
        fix: "less work for the processor than dm-crypt",
    },
    // The full rate of a wire is nothing wrong, whatever names it.
    Box {
        text: r#"
            disk = [{ name = "d", kind = "hdd", read = "180MB/s" }]
            link = [{ name = "gigabit switch" }]
            network = { name = "gigabit", via = ["gigabit switch"] }
            measured = [{ path = "network", what = "read", rate = "935Mbit/s" }]"#,
        says: &["nothing is wrong, the wire is full"],
        never: &[],
        fix: "10 gigabit",
    },
    Box {
        text: r#"
            disk = [{ name = "d", kind = "hdd", read = "180MB/s" }]
            network = { name = "gigabit" }
            measured = [{ path = "network", what = "read", rate = "935Mbit/s" },
                        { path = "network", what = "write", rate = "930Mbit/s" }]"#,
        says: &["nothing is wrong, the wire is full"],
        never: &[],
        fix: "10 gigabit",
    },
    Box {
        text: r#"
            disk = [{ name = "d", kind = "hdd", read = "180MB/s" }]
            network = { name = "10 GbE" }
            measured = [{ path = "network", what = "read", rate = "9.41Gbit/s" }]"#,
        says: &["nothing is wrong, the wire is full"],
        never: &[],
        fix: "40 gigabit",
    },
    Box {
        text: r#"
            disk = [{ name = "d", kind = "hdd", read = "180MB/s" }]
            network = { name = "25 GbE" }
            measured = [{ path = "network", what = "read", rate = "23.5Gbit/s", cores = [96, 20, 20, 20] }]"#,
        says: &["nothing is wrong, the wire is full"],
        never: &[],
        fix: "",
    },
    Box {
        text: r#"
            disk = [{ name = "d", kind = "nvme", read = "3GB/s" }]
            network = { name = "gigabit" }
            measured = [{ path = "network", what = "read", rate = "930Mbit/s" },
                        { path = "share", what = "read", rate = "113MB/s" }]"#,
        says: &["nothing is wrong, the wire is full"],
        never: &[],
        fix: "10 gigabit",
    },
    Box {
        text: r#"
            disk = [{ name = "d", kind = "nvme", read = "3GB/s" }]
            network = { name = "gigabit", limit = "941Mbit/s" }
            measured = [{ path = "network", what = "read", rate = "905Mbit/s" },
                        { path = "share", what = "read", rate = "111MB/s" }]"#,
        says: &["nothing is wrong, the wire is full"],
        never: &[],
        fix: "10 gigabit",
    },
    Box {
        text: r#"
            disk = [{ name = "nvme", kind = "nvme", read = "3GB/s", connection = "PCIe 3.0 x4" }]
            network = { name = "2.5 GbE" }
            measured = [{ path = "network", what = "read", rate = "2.35Gbit/s" },
                        { path = "share", what = "read", rate = "282MB/s", cores = [40, 30, 20, 10] }]"#,
        says: &["nothing is wrong, the wire is full"],
        never: &[],
        fix: "10 gigabit",
    },
    Box {
        text: r#"
            disk = [{ name = "hdd", kind = "hdd", read = "180MB/s" }]
            network = { name = "fibre", limit = "940Mbit/s", round_trip = "20ms" }
            measured = [{ path = "share", what = "read", rate = "114MB/s" }]"#,
        says: &["nothing is wrong, the wire is full"],
        never: &["gigabit Ethernet"],
        fix: "",
    },
    // Both ends at once.
    Box {
        text: r#"
            disk = [{ name = "d", kind = "nvme", read = "3GB/s" }]
            network = { name = "10 GbE" }
            measured = [{ path = "share", what = "read", rate = "400MB/s", cores = [100, 20, 10, 10], client_cores = [99, 98] }]"#,
        says: &["both ends: the processor, 1 core", "the client's processor, all 2 cores"],
        never: &[],
        fix: "less work at both ends",
    },
    Box {
        text: r#"
            disk = [{ name = "d", kind = "nvme", read = "3GB/s" }]
            network = { name = "10 GbE" }
            work = [{ name = "SMB encryption", rate_per_core = "420MB/s" }, { name = "SMB decryption", rate_per_core = "430MB/s", at = "client" }]
            measured = [{ path = "share", what = "read", rate = "400MB/s", cores = [100, 20, 10, 10], client_cores = [99, 10] }]"#,
        says: &["SMB encryption on one core", "SMB decryption at the client on one core allows hardly more"],
        never: &[],
        fix: "",
    },
    // Disks that slow themselves down.
    Box {
        text: r#"
            disk = [{ name = "d", kind = "nvme", read = "3.5GB/s", write = "3GB/s", connection = "PCIe 3.0 x4" }]
            measured = [{ path = "local", what = "write", rate = "700MB/s", file = "300GB" }]"#,
        says: &["once its fast cache is full"],
        never: &[],
        fix: "",
    },
    Box {
        text: r#"
            disk = [{ name = "d", kind = "nvme", write = "600MB/s", write_cached = "3GB/s", cache = "40GB" }]
            measured = [{ path = "local", what = "write", rate = "640MB/s", file = "400GB" }]"#,
        says: &["the disk itself, whose fast cache is full"],
        never: &[],
        fix: "one disk more",
    },
    Box {
        text: r#"
            disk = [{ name = "d", kind = "smr" }]
            measured = [{ path = "local", what = "write", rate = "22MB/s", file = "200GB" }]"#,
        says: &["the shingled disk"],
        never: &[],
        fix: "conventional (CMR)",
    },
    Box {
        text: r#"
            disk = [{ name = "d", kind = "nvme", read = "3.5GB/s", write = "3GB/s", temperature = 84 }]
            measured = [{ path = "local", what = "read", rate = "1.1GB/s" }]"#,
        says: &["while it is hot", "84 degrees"],
        never: &[],
        fix: "a cooler disk",
    },
    Box {
        text: r#"
            layout = "mirror"
            disk = [{ name = "a", kind = "nvme", write = "2GB/s", temperature = 55 }, { name = "b", kind = "nvme", write = "2GB/s", temperature = 81 }]
            measured = [{ path = "local", what = "write", rate = "500MB/s", cores = [20, 10, 10, 10] }]"#,
        says: &["'b', which holds itself back while it is hot"],
        never: &[],
        fix: "a cooler disk",
    },
    Box {
        text: r#"
            disk = [{ name = "a", kind = "nvme", read = "3.4GB/s", temperature = 81 }]
            measured = [{ path = "local", what = "read", rate = "3.35GB/s" }]"#,
        says: &["the disk itself: 99 %"],
        never: &["hot"],
        fix: "one disk more",
    },
    Box {
        text: r#"
            layout = "mirror"
            disk = [{ name = "smr", kind = "smr", count = 2, read = "180MB/s" }]
            network = { name = "gigabit" }
            measured = [{ path = "share", what = "write", rate = "31MB/s", file = "300GB" }]"#,
        says: &["the shingled disk"],
        never: &[],
        fix: "conventional (CMR)",
    },
    // A fix that is there already, or that the rest does not allow.
    Box {
        text: r#"
            disk = [{ name = "d", kind = "nvme", read = "3GB/s" }]
            network = { name = "2.5 GbE", limit = "941Mbit/s" }
            measured = [{ path = "share", what = "read", rate = "112MB/s" }]"#,
        says: &["2.5 GbE (which runs at gigabit Ethernet)"],
        never: &["nothing is wrong", "10 gigabit"],
        fix: "the full speed of what is there",
    },
    Box {
        text: r#"
            disk = [{ name = "d", kind = "sata-ssd", read = "400MB/s" }]
            network = { name = "gigabit Ethernet", limit = "310Mbit/s" }
            measured = [{ path = "share", what = "read", rate = "36MB/s" }]"#,
        says: &["capped by gigabit Ethernet: 93 % of the 39 MB/s"],
        never: &["nothing is wrong", "2.5"],
        fix: "all that gigabit Ethernet carries",
    },
    Box {
        text: r#"
            disk = [{ name = "d", kind = "sata-ssd", read = "550MB/s", connection = "SATA 6G" }]
            network = { name = "10 GbE" }
            measured = [{ path = "share", what = "read", rate = "540MB/s", cores = [20, 10] }]"#,
        says: &["SATA 6 Gbit/s connection"],
        never: &["port"],
        fix: "NVMe instead of SATA",
    },
    Box {
        text: r#"
            disk = [{ name = "fast", kind = "nvme", read = "7GB/s", connection = "PCIe 3.0 x4" }, { name = "backup", kind = "hdd", connection = "USB 2.0" }]
            measured = [{ path = "local", what = "read", disks = [["fast", 1]], rate = "3.4GB/s" }]"#,
        says: &["PCIe 3.0 x4 connection"],
        never: &["USB"],
        fix: "'fast' on a faster connection",
    },
    Box {
        text: r#"
            disk = [{ name = "card", kind = "sd-card", read = "23MB/s" }]
            network = { name = "gigabit" }
            measured = [{ path = "share", what = "read", rate = "22MB/s" }]"#,
        says: &["the disk itself: 96 %"],
        never: &["more"],
        fix: "an SSD instead of a card",
    },
    Box {
        text: r#"
            disk = [{ name = "d", kind = "sata-ssd", read = "430MB/s", connection = "USB 3.0" }]
            measured = [{ path = "local", what = "read", rate = "420MB/s" }]"#,
        says: &["the disk itself: 98 %"],
        never: &["NVMe"],
        fix: "one disk more",
    },
    Box {
        text: r#"
            layout = "mirror"
            disk = [{ name = "d", kind = "hdd", count = 2, write = "200MB/s" }]
            measured = [{ path = "local", what = "write", rate = "195MB/s" }]"#,
        says: &["as often as there are copies"],
        never: &["one disk"],
        fix: "2 disks more",
    },
    Box {
        text: r#"
            layout = "raid5"
            slots = 4
            disk = [{ name = "d", kind = "hdd", count = 4, write = "200MB/s" }]
            measured = [{ path = "local", what = "write", rate = "590MB/s" }]"#,
        says: &["without parity"],
        never: &["more"],
        fix: "",
    },
    Box {
        text: r#"
            layout = "raidz2"
            groups = 2
            disk = [{ name = "hdd", kind = "hdd", count = 12, write = "190MB/s" }]
            measured = [{ path = "local", what = "write", rate = "1.45GB/s" }]"#,
        says: &["without parity"],
        never: &["one disk"],
        fix: "6 disks more",
    },
    // What was negotiated, although both ends can more.
    Box {
        text: r#"
            disk = [{ name = "d", kind = "nvme", read = "3.4GB/s", connection = "PCIe 3.0 x1", could = "PCIe 3.0 x4" }]
            measured = [{ path = "local", what = "read", rate = "860MB/s" }]"#,
        says: &["PCIe 3.0 x1 connection of the disk (negotiated, although both ends can PCIe 3.0 x4)"],
        never: &[],
        fix: "'d' at PCIe 3.0 x4",
    },
    Box {
        text: r#"
            disk = [{ name = "d", kind = "nvme", read = "3.4GB/s", connection = "PCIe 3.0 x4" }]
            measured = [{ path = "local", what = "read", rate = "870MB/s" }]"#,
        says: &["runs at PCIe 3.0 x1 or PCIe 1.0 x4"],
        never: &[],
        fix: "the full speed of its slot",
    },
    Box {
        text: r#"
            disk = [{ name = "d", kind = "hdd", count = 8, read = "220MB/s", via = ["HBA"] }]
            link = [{ name = "HBA", type = "PCIe 2.0 x1", could = "PCIe 2.0 x8" }]
            measured = [{ path = "disks", what = "read", rate = "430MB/s" }]"#,
        says: &["HBA (negotiated, although both ends can PCIe 2.0 x8)"],
        never: &[],
        fix: "HBA at PCIe 2.0 x8",
    },
    Box {
        text: r#"
            disk = [{ name = "d", kind = "nvme", read = "3.4GB/s" }]
            network = { name = "10 GbE", via = ["slot"] }
            link = [{ name = "slot", type = "PCIe 2.0 x1", could = "PCIe 2.0 x4" }]
            measured = [{ path = "network", what = "read", rate = "3.5Gbit/s" }]"#,
        says: &["slot (negotiated, although both ends can PCIe 2.0 x4)"],
        never: &[],
        fix: "slot at PCIe 2.0 x4",
    },
    Box {
        text: r#"
            disk = [{ name = "nvme", kind = "nvme", read = "3GB/s" }]
            network = { name = "2.5 GbE", via = ["slot"] }
            link = [{ name = "slot", type = "PCIe 1.0 x1", could = "PCIe 2.0 x1" }]
            measured = [{ path = "network", what = "read", rate = "1.75Gbit/s" }]"#,
        says: &["slot (negotiated, although both ends can PCIe 2.0 x1)"],
        never: &[],
        fix: "slot at PCIe 2.0 x1",
    },
    Box {
        text: r#"
            disk = [{ name = "d", kind = "hdd", flush = "30ms" }]
            measured = [{ path = "local", what = "write", rate = "130kB/s", block = "4KiB", depth = 1, sync = true }]"#,
        says: &["(130 kB/s)"],
        never: &[],
        fix: "a disk with power-loss",
    },
    // Of the field.
    Box {
        text: r#"
            disk = [{ name = "usb", kind = "hdd", connection = "USB 3.0" }]
            measured = [{ path = "local", what = "read", rate = "37MB/s", caches = "bypassed" }]"#,
        says: &["runs at USB 2.0"],
        never: &[],
        fix: "the full speed of what is there",
    },
    Box {
        text: r#"
            memory = "4GiB"
            disk = [{ name = "ssd", kind = "sata-ssd", read = "360MB/s", write = "330MB/s", connection = "USB 3.0" }]
            network = { name = "gigabit" }
            measured = [{ path = "network", what = "write", rate = "940Mbit/s" },
                        { path = "local", what = "write", rate = "310MB/s" },
                        { path = "share", what = "write", rate = "62MB/s", file = "20GB", cores = [100, 30, 20, 10] }]"#,
        says: &["the processor: 1 core"],
        never: &[],
        fix: "the work spread",
    },
    Box {
        text: r#"
            disk = [{ name = "ssd", kind = "sata-ssd", read = "360MB/s", connection = "USB 3.0" }]
            network = { name = "gigabit" }
            measured = [{ path = "share", what = "read", rate = "70MB/s", cores = [70, 40, 30, 20], throttled = 45 }]"#,
        says: &["which was throttled"],
        never: &[],
        fix: "a processor that is not throttled",
    },
    Box {
        text: r#"
            disk = [{ name = "usb", kind = "hdd", read = "120MB/s", via = ["USB 2.0 bus"] }]
            link = [{ name = "USB 2.0 bus" }]
            network = { name = "gigabit Ethernet", limit = "315Mbit/s", via = ["USB 2.0 bus"] }
            measured = [{ path = "share", what = "read", rate = "18MB/s", file = "8GB" }]"#,
        says: &["USB 2.0 bus, which disks and network share"],
        never: &[],
        fix: "the network card on a link of its own",
    },
    Box {
        text: r#"
            layout = "raidz2"
            disk = [{ name = "hdd", kind = "hdd", count = 8, read = "180MB/s", write = "175MB/s" }]
            network = { name = "10 GbE" }
            measured = [{ path = "local", what = "read", rate = "980MB/s" },
                        { path = "network", what = "read", rate = "9.4Gbit/s" },
                        { path = "share", what = "read", rate = "930MB/s", cores = [60, 40, 30, 20] }]"#,
        says: &["as fast as the slowest of them (the storage as measured"],
        never: &[],
        fix: "one disk more",
    },
    Box {
        text: r#"
            disk = [{ name = "nvme", kind = "nvme", count = 2, read = "3GB/s" }]
            network = { name = "10 GbE" }
            measured = [{ path = "network", what = "read", rate = "5.1Gbit/s", cores = [40, 20, 5, 5], client_cores = [100, 10, 5, 5] },
                        { path = "share", what = "read", rate = "560MB/s", cores = [45, 20, 5, 5], client_cores = [100, 35, 5, 5] }]"#,
        says: &["the client's processor: 1 core"],
        never: &["gigabit Ethernet"],
        fix: "the work spread over the client's",
    },
    Box {
        text: r#"
            disk = [{ name = "hdd", kind = "hdd", count = 2, read = "180MB/s" }]
            network = { name = "gigabit" }
            client = [{ name = "laptop", type = "Wi-Fi 6" }]
            measured = [{ path = "share", what = "read", rate = "55MB/s" }]"#,
        says: &["Wi-Fi 6"],
        never: &[],
        fix: "a wire instead of Wi-Fi",
    },
    Box {
        text: r#"
            disk = [{ name = "smr", kind = "smr", read = "180MB/s" }]
            network = { name = "gigabit" }
            measured = [{ path = "share", what = "read", rate = "112MB/s" }]"#,
        says: &["nothing is wrong"],
        never: &["shingled"],
        fix: "2.5 gigabit",
    },
    Box {
        text: r#"
            disk = [{ name = "ssd", kind = "sata-ssd", count = 8, read = "530MB/s", via = ["the HBA's slot"] }]
            link = [{ name = "the HBA's slot", type = "PCIe 2.0 x4" }]
            measured = [{ path = "disks", what = "read", rate = "1.7GB/s" }]"#,
        says: &["the HBA's slot: 94 %"],
        never: &[],
        fix: "without the limit of the HBA's slot",
    },
    Box {
        text: r#"
            disk = [{ name = "ssd", kind = "sata-ssd", count = 4, read = "530MB/s" }]
            network = { name = "10 GbE" }
            measured = [{ path = "network", what = "read", rate = "9.3Gbit/s", jobs = 4 },
                        { path = "local", what = "read", rate = "2.0GB/s" },
                        { path = "share", what = "read", rate = "610MB/s", with = "SMB", cores = [100, 14, 8, 5, 3, 3, 2, 2] }]"#,
        says: &["the processor: 1 core"],
        never: &[],
        fix: "the work spread",
    },
    Box {
        text: r#"
            layout = "stripe"
            disk = [{ name = "old", kind = "hdd", read = "90MB/s" }, { name = "new", kind = "hdd", count = 3, read = "230MB/s" }]
            measured = [{ path = "local", what = "read", rate = "350MB/s" }]"#,
        says: &["the slowest of them ('old')"],
        never: &[],
        fix: "'old' as fast",
    },
    Box {
        text: r#"
            disk = [{ name = "hdd", kind = "hdd", count = 3, read = "180MB/s", via = ["hub"] }]
            link = [{ name = "hub", type = "USB 3.0" }]
            measured = [{ path = "disks", what = "read", rate = "405MB/s" }]"#,
        says: &["hub: 92 %"],
        never: &[],
        fix: "without the limit of hub",
    },
    Box {
        text: r#"
            disk = [{ name = "ssd", kind = "sata-ssd", count = 4, read = "530MB/s", write = "500MB/s" }]
            network = { name = "10 GbE" }
            measured = [{ path = "network", what = "read", rate = "9.4Gbit/s" },
                        { path = "network", what = "write", rate = "1.2Gbit/s" }]"#,
        says: &["something that slows this direction alone"],
        never: &[],
        fix: "both directions",
    },
    Box {
        text: r#"
            disk = [{ name = "nvme", kind = "nvme", read = "3GB/s" }]
            network = { name = "10 GbE" }
            client = [{ name = "pc", type = "10 GbE", disk_write = "480MB/s" }]
            measured = [{ path = "share", what = "read", rate = "465MB/s" }]"#,
        says: &["the disk of pc"],
        never: &[],
        fix: "an NVMe disk in pc",
    },
    Box {
        text: r#"
            disk = [{ name = "nvme", kind = "nvme", random_read = 400000, latency = "80us" }]
            network = { name = "gigabit", round_trip = "200us" }
            measured = [{ path = "share", what = "random-read", iops = 26500, block = "4KiB", depth = 32, caches = "bypassed" }]"#,
        says: &["nothing is wrong"],
        never: &[],
        fix: "10 gigabit",
    },
    Box {
        text: r#"
            disk = [{ name = "stick", kind = "usb-stick" }]
            network = { name = "gigabit" }
            measured = [{ path = "share", what = "write", rate = "12MB/s", file = "10GB" }]"#,
        says: &["are usual of a USB stick"],
        never: &["100 Mbit"],
        fix: "an SSD instead",
    },
    Box {
        text: r#"
            disk = [{ name = "hdd", kind = "hdd", read = "180MB/s" }]
            network = { name = "gigabit", via = ["powerline"] }
            link = [{ name = "powerline", limit = "90Mbit/s" }]
            measured = [{ path = "share", what = "read", rate = "10.6MB/s" }]"#,
        says: &["powerline: 94 %"],
        never: &["nothing is wrong"],
        fix: "without the limit of powerline",
    },
    Box {
        text: r#"
            disk = [{ name = "nvme", kind = "nvme", count = 4, read = "3GB/s" }]
            network = { name = "40 GbE" }
            measured = [{ path = "share", what = "read", rate = "2.1GB/s", cores = [70, 40, 30, 30], client_cores = [92, 20, 10, 10] }]"#,
        says: &["the client's processor"],
        never: &[],
        fix: "the work spread over the client's",
    },
    Box {
        text: r#"
            disk = [{ name = "nvme", kind = "nvme", count = 4, write = "2GB/s" }]
            network = { name = "25 GbE" }
            work = [{ name = "zstd-9", rate_per_core = "60MB/s", cores = 8, of = ["write"] }]
            measured = [{ path = "local", what = "write", rate = "450MB/s", cores = [99, 99, 98, 97, 99, 98, 99, 99] },
                        { path = "share", what = "write", rate = "440MB/s" }]"#,
        says: &["zstd-9 on 8 cores (the storage"],
        never: &["allows hardly more"],
        fix: "less work for the processor than zstd-9",
    },
    Box {
        text: r#"
            disk = [{ name = "nvme", kind = "nvme", read = "3GB/s" }]
            network = { name = "10 GbE" }
            client = [{ name = "pc", type = "2.5 GbE" }]
            measured = [{ path = "network", what = "read", rate = "2.35Gbit/s" },
                        { path = "share", what = "read", rate = "285MB/s" }]"#,
        says: &["the 2.5 gigabit Ethernet of pc"],
        never: &[],
        fix: "10 gigabit Ethernet at pc",
    },
    Box {
        text: r#"
            compression_ratio = 2.0
            disk = [{ name = "hdd", kind = "hdd", read = "180MB/s" }]
            measured = [{ path = "local", what = "read", rate = "350MB/s", file = "100GB" }]"#,
        says: &["the disk itself: 97 % of the 360 MB/s"],
        never: &[],
        fix: "one disk more",
    },
    Box {
        text: r#"
            disk = [{ name = "ssd", kind = "sata-ssd", read = "540MB/s", connection = "SATA 3G", could = "SATA 6G" }]
            measured = [{ path = "local", what = "read", rate = "268MB/s" }]"#,
        says: &["SATA 3 Gbit/s connection of the disk (negotiated, although both ends can SATA 6 Gbit/s)"],
        never: &[],
        fix: "'ssd' at SATA 6 Gbit/s",
    },
    Box {
        text: r#"
            disk = [{ name = "usb", kind = "hdd", connection = "USB 2.0", could = "USB 3.0" }]
            network = { name = "gigabit" }
            measured = [{ path = "local", what = "read", rate = "38MB/s" },
                        { path = "share", what = "read", rate = "37MB/s" }]"#,
        says: &["(negotiated, although both ends can USB 3)"],
        never: &[],
        fix: "'usb' at USB 3",
    },
    Box {
        text: r#"
            disk = [{ name = "nvme", kind = "nvme", read = "3GB/s" }]
            network = { name = "10 GbE" }
            measured = [{ path = "share", what = "read", rate = "1.15GB/s", retransmits = 0.9 }]"#,
        says: &["nothing is wrong"],
        never: &["losses"],
        fix: "40 gigabit",
    },
    Box {
        text: r#"
            disk = [{ name = "qlc", kind = "qlc", count = 4, write = "200MB/s" }]
            measured = [{ path = "local", what = "write", rate = "500MB/s", cores = [20, 20] }]"#,
        says: &["the QLC disks themselves"],
        never: &["something"],
        fix: "TLC disks",
    },
    Box {
        text: r#"
            disk = [{ name = "nvme", kind = "nvme", read = "3GB/s" }]
            network = { name = "10 GbE" }
            measured = [{ path = "network", what = "read", rate = "9.4Gbit/s" },
                        { path = "share", what = "read", rate = "390MB/s", cores = [100, 30, 10, 10], client_cores = [97, 20, 10, 10], with = "SMB" }]"#,
        says: &["both ends"],
        never: &[],
        fix: "less work at both ends",
    },
    Box {
        text: r#"
            disk = [{ name = "hdd", kind = "hdd", temperature = 45, read = "200MB/s" }]
            measured = [{ path = "local", what = "read", rate = "120MB/s" }]"#,
        says: &["is not explained"],
        never: &["hot"],
        fix: "",
    },
    Box {
        text: r#"
            disk = [{ name = "nvme", kind = "nvme" }]
            measured = [{ path = "local", what = "random-read", iops = 400000, depth = 1 }]"#,
        says: &["contradicts itself", "at least 0.01 ms"],
        never: &[],
        fix: "",
    },
    Box {
        text: r#"
            disk = [{ name = "hdd", kind = "hdd", read = "200MB/s" }]
            network = { name = "gigabit", limit = "600Mbit/s" }
            measured = [{ path = "share", what = "read", rate = "72MB/s" }]"#,
        says: &["gigabit: 96 % of the 75 MB/s"],
        never: &["nothing is wrong", "2.5"],
        fix: "all that gigabit Ethernet carries",
    },
    Box {
        text: r#"
            disk = [{ name = "nvme", kind = "nvme", read = "3GB/s" }]
            network = { name = "gigabit" }
            work = [{ name = "sftp's cipher", rate_per_core = "70MB/s", at = "client" }]
            measured = [{ path = "share", what = "read", rate = "66MB/s", client_cores = [25, 25, 24, 24] }]"#,
        says: &["sftp's cipher at the client on one core"],
        never: &[],
        fix: "less work for the processor than sftp's cipher",
    },
];

#[test]
fn each_box_has_one_true_sentence() {
    check(BOXES);
}

pub(super) fn check(boxes: &[Box]) {
    let mut wrong = Vec::new();
    for Box { text, says, never, fix } in boxes {
        let found = diagnosis(&format!("name = \"box\"\n{text}"));
        let first = found.advice.first().map_or("", |a| &a.what);
        let fixes: Vec<String> = found.advice.iter().map(|a| format!("{} :: {}", a.sentence, a.how)).collect();
        let all = format!("{} {}", found.verdict, fixes.join(" "));
        let right = says.iter().all(|words| found.verdict.contains(words))
            && never.iter().all(|words| !all.contains(words))
            && (first.starts_with(fix) && first.is_empty() == fix.is_empty());
        if !right {
            wrong.push(format!("{text}\n{}\n{fixes:#?}", found.verdict));
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), boxes.len(), wrong.join("\n\n"));
}

/// What nothing else explains, and what was reached.
#[test]
fn certain_is_only_what_was_reached_and_has_no_rival() {
    use super::super::Confidence::{Certain, Likely};
    let share = |rest: &str| {
        format!(
            "name = \"box\"\ndisk = [{{ name = \"d\", kind = \"nvme\", read = \"3GB/s\" }}]\nnetwork = {{ name = \"gigabit\" }}\n\
             measured = [{{ path = \"share\", what = \"read\", {rest} }}]"
        )
    };
    for (rest, confidence) in [
        ("rate = \"112MB/s\"", Certain),
        ("rate = \"97MB/s\"", Likely),
        ("rate = \"113MB/s\", cores = [100, 20]", Likely),
        ("rate = \"60MB/s\", cores = [100, 20]", Certain),
        ("rate = \"60MB/s\", cores = [100, 20], retransmits = 3", Likely),
    ] {
        let found = diagnosis(&share(rest));
        assert_eq!(found.confidence, confidence, "{rest}: {}", found.verdict);
        assert_eq!(found.verdict.contains("is most likely capped"), confidence == Likely, "{}", found.verdict);
    }
}
