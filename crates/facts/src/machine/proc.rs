//! The machine and its processes according to `/proc` (proc(5)).

use std::collections::BTreeMap;

use super::Machine;

/// A machine with more processes is not looked at whole.
const PROCESSES_MAX: usize = 32_768;
/// `/proc/diskstats` counts these, whatever the device's own sectors are.
const SECTOR_BYTES: u64 = 512;

/// Of a disk since the machine started (Documentation/admin-guide/iostats.rst).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DiskCounters {
    pub reads: u64,
    pub writes: u64,
    /// Since Linux 5.5.
    pub flushes: u64,
    pub read_bytes: u64,
    pub written_bytes: u64,
    /// Of all requests together.
    pub waited_ms: u64,
    pub busy_ms: u64,
}

/// A line of `/proc/interrupts`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InterruptLine {
    pub id: String,
    pub on_cores: Vec<u64>,
    /// The controller, the device and its drivers.
    pub words: Vec<String>,
}

impl Machine {
    pub fn host_name(&self) -> Option<String> {
        self.read("/proc/sys/kernel/hostname")
    }

    pub fn kernel_release(&self) -> Option<String> {
        self.read("/proc/sys/kernel/osrelease")
    }

    /// Another one after each start.
    pub fn boot_id(&self) -> Option<String> {
        self.read("/proc/sys/kernel/random/boot_id")
    }

    pub fn machine_id(&self) -> Option<String> {
        self.read("/etc/machine-id")
    }

    /// Process numbers mean something within one of these: "pid:[4026531836]".
    pub fn pid_namespace(&self) -> Option<String> {
        let target = self.link_target("/proc/self/ns/pid")?;
        target.file_name().map(|name| name.to_string_lossy().into_owned())
    }

    /// A new one each time it is asked for.
    pub fn random_uuid(&self) -> Option<String> {
        self.read("/proc/sys/kernel/random/uuid")
    }

    /// `Raspberry Pi 4 Model B Rev 1.4`, or what the firmware of a PC says.
    pub fn board(&self) -> Option<String> {
        let tree = || self.read("/sys/firmware/devicetree/base/model").or_else(|| self.read("/proc/device-tree/model"));
        let tree = tree().map(|name| name.trim_matches('\0').to_owned());
        tree.or_else(|| self.read("/sys/class/dmi/id/product_name")).filter(|name| !name.is_empty())
    }

    /// A field of `/proc/meminfo`, such as `MemTotal`.
    pub fn memory_field(&self, name: &str) -> Option<u64> {
        let text = self.read("/proc/meminfo")?;
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        value.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
    }

    /// The first field of `/proc/cpuinfo` that has one of these names.
    pub fn processor_field(&self, names: &[&str]) -> Option<String> {
        let text = self.read("/proc/cpuinfo")?;
        let mut fields = text.lines().filter_map(|line| line.split_once(':'));
        fields.find(|(key, _)| names.contains(&key.trim())).map(|(_, value)| value.trim().to_owned())
    }

    pub fn process_ids(&self) -> impl Iterator<Item = u32> {
        self.list("/proc").into_iter().filter_map(|name| name.parse().ok()).take(PROCESSES_MAX)
    }

    /// A process's name, which may hold blanks and brackets, and what follows it in `/proc/PID/stat`: the third field first.
    pub fn process_stat(&self, pid: u32) -> Option<(String, Vec<String>)> {
        self.stat_in(&format!("/proc/{pid}"))
    }

    /// The same of a thread, by its folder.
    pub(crate) fn stat_in(&self, folder: &str) -> Option<(String, Vec<String>)> {
        parse_stat(&self.read(format!("{folder}/stat"))?)
    }

    /// In ticks since the machine started (field 22). With the pid it tells a process.
    pub fn process_started(&self, pid: u32) -> Option<u64> {
        self.process_stat(pid)?.1.get(19)?.parse().ok()
    }

    pub(crate) fn disk_counters(&self) -> BTreeMap<String, DiskCounters> {
        parse_diskstats(&self.read("/proc/diskstats").unwrap_or_default())
    }

    pub(crate) fn interrupt_lines(&self) -> Vec<InterruptLine> {
        parse_interrupts(&self.read("/proc/interrupts").unwrap_or_default())
    }
}

fn parse_stat(stat: &str) -> Option<(String, Vec<String>)> {
    let (before, after) = stat.rsplit_once(')')?;
    let name = before.split_once('(')?.1.to_owned();
    Some((name, after.split_whitespace().map(str::to_owned).collect()))
}

fn parse_diskstats(text: &str) -> BTreeMap<String, DiskCounters> {
    let line = |line: &str| {
        let mut fields = line.split_whitespace().skip(2);
        let name = fields.next()?.to_owned();
        let counts: Vec<u64> = fields.map_while(|field| field.parse().ok()).collect();
        let at = |place: usize| counts.get(place).copied().unwrap_or(0);
        let counters = DiskCounters {
            reads: at(0),
            read_bytes: at(2).saturating_mul(SECTOR_BYTES),
            writes: at(4),
            written_bytes: at(6).saturating_mul(SECTOR_BYTES),
            waited_ms: at(3).saturating_add(at(7)),
            busy_ms: at(9),
            flushes: at(15),
        };
        (counts.len() >= 7).then_some((name, counters))
    };
    text.lines().filter_map(line).collect()
}

/// One line for each source, one column for each processor: `24:  12  7  IR-PCI-MSI 327680-edge  xhci_hcd`.
fn parse_interrupts(text: &str) -> Vec<InterruptLine> {
    let mut lines = text.lines();
    let processors = lines.next().unwrap_or_default().split_whitespace().count();
    let line = |line: &str| {
        let (id, rest) = line.trim().split_once(':')?;
        let on_cores: Vec<u64> = rest.split_whitespace().take(processors).map_while(|f| f.parse().ok()).collect();
        let words = rest.split_whitespace().skip(on_cores.len()).map(str::to_owned).collect();
        Some(InterruptLine { id: id.to_owned(), on_cores, words })
    };
    lines.filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_files_are_understood() {
        let stat = "7 (a) b (c)) S 1 7 7 0 -1 4194560 100 200 0 0 30 12 0 0 20 0 1 0 5 1 1";
        let (name, fields) = parse_stat(stat).unwrap();
        assert_eq!((name.as_str(), fields[11].as_str(), fields[19].as_str()), ("a) b (c)", "30", "5"));
        assert_eq!((parse_stat("7 (x"), parse_stat("")), (None, None));
        let text = "   8 0 sda 10 0 100 50 20 0 200 70 3 90 120 0 0 0 0 4 9\n 8 1 sda1 1 1\n";
        let counters = DiskCounters {
            reads: 10,
            writes: 20,
            flushes: 4,
            read_bytes: 51_200,
            written_bytes: 102_400,
            waited_ms: 120,
            busy_ms: 90,
        };
        assert_eq!(parse_diskstats(text), BTreeMap::from([("sda".to_owned(), counters)]));
        let found = parse_interrupts("   CPU0 CPU1\n 24: 12 7 IR-PCI-MSI edge xhci_hcd\nERR: 0\n");
        assert_eq!((found[0].id.as_str(), &found[0].on_cores[..], found[0].words.len()), ("24", &[12, 7][..], 3));
        assert_eq!(found.len(), 2);
    }
}
