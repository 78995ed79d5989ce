//! Governor, heat, instructions, and who else works.

use super::notice::{Change, Gain, Noticed, Rule, noticed};
use larder_facts::disk::Level;
use larder_facts::reading::{Hog, Reading};

pub(super) const RULES: &[Rule] = &[
    Rule {
        code: "governor",
        level: Level::Warning,
        why: "the clock stays low, or rises too late for the short bursts of work that serving files is",
        source: "kernel, Documentation/admin-guide/pm/cpufreq.rst",
        test: governor,
    },
    Rule {
        code: "ondemand-io",
        level: Level::Note,
        why: "ondemand counts waiting for disks as idleness, so the clock falls while files are served",
        source: "kernel, cpufreq.rst: io_is_busy",
        test: ondemand_io,
    },
    Rule {
        code: "clock-capped",
        level: Level::Warning,
        why: "a setting keeps the clock below what the processor can",
        source: "kernel, cpufreq.rst: scaling_max_freq, cpuinfo_max_freq, boost",
        test: capped,
    },
    Rule {
        code: "throttled",
        level: Level::Warning,
        why: "heat or a weak power supply slowed the processor down; a long measurement shows it, a short one does not",
        source: "kernel, thermal_throttle; Raspberry Pi firmware, get_throttled",
        test: throttled,
    },
    Rule {
        code: "no-aes",
        level: Level::Note,
        why: "without instructions for AES a core encrypts some 50 to 200 MB/s instead of gigabytes",
        source: "cryptsetup benchmark; ARMv8 Cryptographic Extension, Intel AES-NI",
        test: no_aes,
    },
    Rule {
        code: "hog",
        level: Level::Warning,
        why: "it takes processor time from whoever serves files",
        source: "/proc/PID/stat, proc(5)",
        test: hogs,
    },
    Rule {
        code: "cpu-quota",
        level: Level::Warning,
        why: "a control group lets it use a part of the processor only: cores look idle while it waits for its next share",
        source: "kernel, Documentation/scheduler/sched-bwc.rst: cpu.max, nr_throttled",
        test: quota,
    },
    Rule {
        code: "stolen",
        level: Level::Warning,
        why: "the virtual machine's host gave this processor's time to others",
        source: "/proc/stat, proc(5): steal",
        test: stolen,
    },
    Rule {
        code: "swapping",
        level: Level::Note,
        why: "what was swapped out is read back from a disk when it is needed, and memory for caches is short",
        source: "/proc/meminfo, proc(5)",
        test: swapping,
    },
    Rule {
        code: "little-memory",
        level: Level::Note,
        why: "caches and read-ahead of several users do not fit",
        source: "/proc/meminfo, proc(5)",
        test: little_memory,
    },
];

/// Drivers that choose the clock themselves: their `powersave` is what others call ondemand.
const CHOOSE_THEMSELVES: [&str; 3] = ["intel_pstate", "amd-pstate-epp", "amd_pstate_epp"];

fn governor(reading: &Reading) -> Vec<Noticed> {
    let mut found: Vec<Noticed> = Vec::new();
    for policy in &reading.processor.policies {
        let own = policy.driver.as_deref().is_some_and(|d| CHOOSE_THEMSELVES.contains(&d));
        let slow = matches!(policy.governor.as_str(), "powersave" | "conservative" | "userspace");
        if own || !slow || !policy.governors.iter().any(|g| g == "performance") {
            continue;
        }
        let file = format!("/sys/devices/system/cpu/cpufreq/{}/scaling_governor", policy.name);
        match found.first_mut() {
            Some(first) => {
                first.changes.push(Change { file, value: "performance".to_owned() });
            }
            None => {
                let what = format!("the processor's governor is {}", policy.governor);
                let action = "echo performance | tee /sys/devices/system/cpu/cpufreq/policy*/scaling_governor";
                // From the lowest clock to the highest, at most; what work gains of it is less.
                found.push(noticed(what, action).gain(Gain::thumb(50.0)).write(file, "performance"));
            }
        }
    }
    found
}

fn ondemand_io(reading: &Reading) -> Vec<Noticed> {
    let ondemand = reading.processor.policies.iter().any(|p| p.governor == "ondemand");
    if !ondemand || reading.processor.io_is_busy != Some(false) {
        return Vec::new();
    }
    let file = "/sys/devices/system/cpu/cpufreq/ondemand/io_is_busy";
    vec![
        noticed("ondemand does not count I/O as work", format!("echo 1 > {file}"))
            .gain(Gain::thumb(20.0))
            .write(file, "1"),
    ]
}

fn capped(reading: &Reading) -> Vec<Noticed> {
    let mut found = Vec::new();
    for policy in &reading.processor.policies {
        if let (Some(max), Some(hardware)) = (policy.max_khz, policy.hardware_max_khz)
            && max < hardware * 95 / 100
        {
            let file = format!("/sys/devices/system/cpu/cpufreq/{}/scaling_max_freq", policy.name);
            let what = format!("{} is held at {} of {} MHz", policy.name, max / 1000, hardware / 1000);
            let gain = Gain::by((hardware as f64 / max.max(1) as f64 - 1.0) * 100.0, "the clock that is not used");
            found.push(noticed(what, format!("echo {hardware} > {file}")).gain(gain).write(file, hardware.to_string()));
        }
    }
    if reading.processor.boost_off {
        found.push(noticed(
            "the processor's boost is turned off",
            "echo 1 > /sys/devices/system/cpu/cpufreq/boost, or the firmware's setup",
        ));
    }
    found
}

fn throttled(reading: &Reading) -> Vec<Noticed> {
    let mut found = Vec::new();
    if reading.processor.throttled > 0 {
        let what = format!("the processor was throttled {} times since the start", reading.processor.throttled);
        found.push(noticed(what, "cooling: fan, dust, thermal paste"));
    }
    // Bits 0 to 3: now; 16 to 19: since the start (vcgencmd get_throttled).
    let bits = reading.processor.pi_throttled.unwrap_or(0);
    if bits & 0x1_0001 != 0 {
        found.push(noticed(
            "the Pi has had too little voltage",
            "a better power supply and cable; disks on a powered hub",
        ));
    }
    if bits & 0xE_000E != 0 {
        found.push(noticed("the Pi has lowered its clock", "cooling, and a better power supply"));
    }
    found
}

fn no_aes(reading: &Reading) -> Vec<Noticed> {
    match reading.processor.aes {
        Some(false) => {
            vec![noticed("the processor has no instructions for AES", "no encryption on it, or a processor with them")]
        }
        _ => Vec::new(),
    }
}

/// Whoever serves files takes no time from them.
const SERVE: &[&str] =
    &["larder", "smbd", "nfsd", "ganesha.nfsd", "ksmbd", "sshd", "sshd-session", "sftp-server", "rclone", "iperf3"];

fn hogs(reading: &Reading) -> Vec<Noticed> {
    let serves = |h: &Hog| SERVE.contains(&h.name.as_str());
    let all = reading.busy.iter().flat_map(|b| &b.hogs).filter(|h| h.percent >= 25.0 && !serves(h));
    all.map(|hog| {
        let what = format!("{} (pid {}) takes {:.0} % of a core", hog.name, hog.pid, hog.percent);
        noticed(what, "stop it, or move it to another time: systemctl status PID")
    })
    .collect()
}

fn quota(reading: &Reading) -> Vec<Noticed> {
    let all = reading.quotas.iter();
    all.map(|q| {
        let what = format!(
            "{} (pid {}) may use {:.2} cores and was held back {:.0} % of the time",
            q.name, q.pid, q.cores, q.held_back_percent
        );
        let action = format!("raise it: systemctl set-property UNIT CPUQuota=, or the limit in {}", q.group);
        let all_cores = reading.processor.cores.max(1) as f64;
        noticed(what, action).gain(Gain::by((all_cores / q.cores - 1.0) * 100.0, "the cores that it may not use"))
    })
    .collect()
}

fn stolen(reading: &Reading) -> Vec<Noticed> {
    match reading.busy.as_ref().map(|b| b.steal_percent).filter(|s| *s >= 5.0) {
        Some(steal) => vec![noticed(
            format!("{steal:.0} % of the processor's time was stolen"),
            "fewer guests on that host, or a share of its own",
        )],
        None => Vec::new(),
    }
}

fn swapping(reading: &Reading) -> Vec<Noticed> {
    const MUCH: u64 = 256 << 20;
    match reading.host.swap_used_bytes.filter(|b| *b > MUCH) {
        Some(bytes) => {
            let what = format!("{} are swapped out", larder_base::units::ByteSize(bytes));
            vec![noticed(what, "more memory, or fewer services")]
        }
        None => Vec::new(),
    }
}

fn little_memory(reading: &Reading) -> Vec<Noticed> {
    match reading.host.memory_bytes.filter(|b| *b < 900 << 20) {
        Some(bytes) => {
            vec![noticed(format!("{} of memory", larder_base::units::ByteSize(bytes)), "a board with 2 GiB or more")]
        }
        None => Vec::new(),
    }
}
