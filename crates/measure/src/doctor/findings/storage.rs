//! Queues, mounts and power states of disks.

use super::notice::{Gain, Noticed, Rule, noticed};
use larder_facts::disk::Level;
use larder_facts::machine::{Bus, Medium, UsbDriver};
use larder_facts::reading::{Drive, Reading};

pub(super) const RULES: &[Rule] = &[
    Rule {
        code: "scheduler",
        level: Level::Note,
        why: "a hard disk gains from requests in the order of their places, and each request of a fast NVMe disk pays for a scheduler that cannot help it",
        source: "kernel, Documentation/block/switching-sched.rst, bfq-iosched.rst",
        test: scheduler,
    },
    Rule {
        code: "read-ahead",
        level: Level::Note,
        why: "one reader of a large file gets no more than is read ahead for it: over USB and from hard disks 128 KiB are little",
        source: "kernel, Documentation/ABI/stable/sysfs-block: read_ahead_kb",
        test: read_ahead,
    },
    Rule {
        code: "qlc",
        level: Level::Note,
        why: "four bits a cell: fast until its cache is full, then 80 to 450 MB/s; fit for what is written once",
        source: "makers' data sheets",
        test: four_bits,
    },
    Rule {
        code: "hot-disk",
        level: Level::Warning,
        why: "NVMe and SATA SSDs throttle themselves at 70 to 80 degrees, hard disks age above 50",
        source: "NVMe, HCTM and WCTEMP; makers' data sheets",
        test: hot,
    },
    Rule {
        code: "mount-atime",
        level: Level::Note,
        why: "every read writes a time that nobody asks for",
        source: "mount(8): strictatime, noatime",
        test: strictatime,
    },
    Rule {
        code: "mount-discard",
        level: Level::Note,
        why: "each deletion waits for the disk to trim; once a week is enough",
        source: "fstrim(8), mount(8): discard",
        test: discard,
    },
    Rule {
        code: "aspm",
        level: Level::Note,
        why: "links that sleep deeply save watts and answer some microseconds later: good for cost, bad for latency",
        source: "kernel, Documentation/admin-guide/kernel-parameters.txt: pcie_aspm.policy",
        test: aspm,
    },
    Rule {
        code: "nvme-sleep",
        level: Level::Note,
        why: "disks may enter states that take milliseconds to wake from; a first request waits for that",
        source: "kernel, nvme_core.default_ps_max_latency_us (APST)",
        test: nvme_sleep,
    },
    Rule {
        code: "zfs-degraded",
        level: Level::Warning,
        why: "what a missing disk held is computed from the others for each read, and a resilver takes their time, too",
        source: "OpenZFS, zpool-status(8), zpoolconcepts(7)",
        test: zfs_degraded,
    },
    Rule {
        code: "zfs-full",
        level: Level::Warning,
        why: "a pool that is nearly full writes into small gaps, which is slower the fuller it gets",
        source: "OpenZFS, Performance and Tuning, Workload Tuning: free space",
        test: zfs_full,
    },
    Rule {
        code: "usb-bot-bandwidth",
        level: Level::Note,
        why: "Bulk-Only Transport sends one command at a time: 30 to 35 MB/s on USB 2.0, and random reads that never overlap",
        source: "USB Mass Storage Class, Bulk-Only Transport 1.0; USB Attached SCSI",
        test: bulk_only,
    },
];

/// From here on free room is in small pieces, and writing looks for them.
const ZFS_FULL_PERCENT: u64 = 90;

fn zfs_full(reading: &Reading) -> Vec<Noticed> {
    let full =
        reading.zfs.iter().filter_map(|pool| Some((pool, pool.used_percent.filter(|p| *p >= ZFS_FULL_PERCENT)?)));
    full.map(|(pool, used)| {
        let pieces = pool.fragmented_percent.map_or(String::new(), |f| format!(", its free room {f} % fragmented"));
        noticed(
            format!("the ZFS pool {} is {used} % full{pieces}", pool.name),
            "delete snapshots and files, or add a vdev",
        )
    })
    .collect()
}

fn zfs_degraded(reading: &Reading) -> Vec<Noticed> {
    let unwell = reading.zfs.iter().filter(|pool| pool.state != "ONLINE");
    unwell
        .map(|pool| {
            noticed(format!("the ZFS pool {} is {}", pool.name, pool.state), format!("zpool status {}", pool.name))
        })
        .collect()
}

fn queue(drive: &Drive, file: &str) -> String {
    format!("/sys/block/{}/queue/{file}", drive.name)
}

fn scheduler(reading: &Reading) -> Vec<Noticed> {
    let wrong = |drive: &Drive| {
        let now = drive.scheduler.as_deref()?;
        let wanted = match (drive.medium, drive.bus) {
            (Medium::HardDisk, _) if now == "none" => "mq-deadline",
            (Medium::Flash, Bus::Nvme) if now == "bfq" => "none",
            _ => return None,
        };
        drive.schedulers.iter().any(|s| s == wanted).then_some(())?;
        let file = queue(drive, "scheduler");
        let what = format!("{} is scheduled by {now}; for it {wanted} is right", drive.title);
        let command = format!("echo {wanted} > {file}");
        Some(noticed(what, command).on(&drive.name).gain(Gain::thumb(10.0)).write(file, wanted))
    };
    reading.drives.iter().filter(|d| !d.hidden).filter_map(wrong).collect()
}

/// The read-ahead that the fix sets.
const READ_AHEAD_KIB: u64 = 1024;

fn read_ahead(reading: &Reading) -> Vec<Noticed> {
    let little = |drive: &&Drive| {
        let slow = drive.medium == Medium::HardDisk || drive.bus == Bus::Usb;
        slow && !drive.hidden && drive.read_ahead_kib.is_some_and(|kib| kib <= 128)
    };
    let all = reading.drives.iter().filter(little);
    all.map(|drive| {
        let file = queue(drive, "read_ahead_kb");
        let what = format!("{} reads {} KiB ahead", drive.title, drive.read_ahead_kib.unwrap_or_default());
        noticed(what, format!("echo {READ_AHEAD_KIB} > {file}"))
            .on(&drive.name)
            .gain(Gain::thumb(10.0))
            .write(file, READ_AHEAD_KIB.to_string())
    })
    .collect()
}

fn four_bits(reading: &Reading) -> Vec<Noticed> {
    let all = reading.drives.iter().filter(|d| d.four_bits);
    all.map(|d| noticed(format!("{} is a QLC disk", d.title), "for sustained writing a TLC disk").on(&d.name)).collect()
}

fn hot(reading: &Reading) -> Vec<Noticed> {
    let usual = |drive: &Drive| if drive.medium == Medium::HardDisk { 50 } else { 70 };
    let limit = |drive: &Drive| drive.temperature_max_c.unwrap_or_else(|| usual(drive));
    let all = reading.drives.iter().filter(|d| d.temperature_c.is_some_and(|t| t >= limit(d)));
    all.map(|d| {
        let what = format!("{} is at {} degrees", d.title, d.temperature_c.unwrap_or_default());
        noticed(what, "air over it, or a heat sink").on(&d.name)
    })
    .collect()
}

/// Each mount with this option, once.
fn mounted(reading: &Reading, option: &str) -> Vec<String> {
    let mounts = reading.drives.iter().flat_map(|d| &d.mounts);
    let mut points: Vec<String> =
        mounts.filter(|(_, _, options)| options.iter().any(|o| o == option)).map(|(point, ..)| point.clone()).collect();
    points.sort();
    points.dedup();
    points
}

fn strictatime(reading: &Reading) -> Vec<Noticed> {
    let all = mounted(reading, "strictatime").into_iter();
    all.map(|at| noticed(format!("{at} is mounted with strictatime"), format!("mount -o remount,noatime {at}")))
        .collect()
}

fn discard(reading: &Reading) -> Vec<Noticed> {
    let all = mounted(reading, "discard").into_iter();
    all.map(|at| {
        let action = format!("systemctl enable --now fstrim.timer; mount -o remount,nodiscard {at}");
        noticed(format!("{at} is mounted with discard"), action)
    })
    .collect()
}

fn aspm(reading: &Reading) -> Vec<Noticed> {
    match reading.aspm_policy.as_deref() {
        Some(policy @ ("powersave" | "powersupersave")) => {
            let file = "/sys/module/pcie_aspm/parameters/policy";
            let what = format!("PCIe links save power ({policy})");
            vec![noticed(what, format!("while measuring: echo performance > {file}")).write(file, "performance")]
        }
        _ => Vec::new(),
    }
}

fn nvme_sleep(reading: &Reading) -> Vec<Noticed> {
    let has_nvme = reading.drives.iter().any(|d| d.bus == Bus::Nvme);
    match reading.nvme_latency_max_us.filter(|us| has_nvme && *us > 25_000) {
        Some(us) => {
            let what = format!("NVMe disks may take {} ms to wake up", us / 1000);
            vec![noticed(what, "kernel parameter nvme_core.default_ps_max_latency_us=5500, at the next start")]
        }
        None => Vec::new(),
    }
}

fn bulk_only(reading: &Reading) -> Vec<Noticed> {
    let all = reading.drives.iter().filter(|d| d.usb_driver == Some(UsbDriver::BulkOnly));
    all.map(|d| {
        let rate = d.narrowest().map_or("USB", |hop| hop.now.as_str());
        noticed(format!("{} speaks Bulk-Only Transport over {rate}", d.title), "a bridge that speaks UAS")
            .on(&d.name)
            .gain(Gain::thumb(20.0))
    })
    .collect()
}
