//! The machine that measures, in a few words.

use crate::Machine;
use crate::samples::MachineFacts;

pub fn facts(machine: &Machine) -> MachineFacts {
    let cpuinfo = machine.read("/proc/cpuinfo").unwrap_or_default();
    let field = |name: &str| {
        let mut lines = cpuinfo.lines().filter_map(|line| line.split_once(':'));
        lines.find(|(key, _)| key.trim() == name).map(|(_, value)| value.trim().to_owned())
    };
    let board = || machine.read("/sys/firmware/devicetree/base/model").map(|m| m.trim_end_matches('\0').to_owned());
    let product = || machine.read("/sys/class/dmi/id/product_name");
    let processor = field("model name").or_else(|| field("Model")).unwrap_or_default();
    let stat = machine.read("/proc/stat").unwrap_or_default();
    let cores = stat.lines().filter(|l| l.starts_with("cpu") && !l.starts_with("cpu ")).count();
    MachineFacts {
        host: machine.read("/proc/sys/kernel/hostname").unwrap_or_default(),
        model: board().or_else(product).filter(|m| !m.is_empty()).unwrap_or_else(|| processor.clone()),
        processor,
        cores: u32::try_from(cores).unwrap_or(u32::MAX),
        memory_bytes: memory_bytes(machine),
        kernel: machine.read("/proc/sys/kernel/osrelease").unwrap_or_default(),
    }
}

pub(super) fn memory_bytes(machine: &Machine) -> u64 {
    let text = machine.read("/proc/meminfo").unwrap_or_default();
    let total = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib = total.and_then(|t| t.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    kib.unwrap_or(0).saturating_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::fixture::Fixture;

    #[test]
    fn a_board_is_named_before_its_processor() {
        let text = "/proc/cpuinfo <<\nprocessor : 0\nmodel name : ARMv7 rev 3\n>>\n/proc/stat <<\ncpu  1\ncpu0 1\ncpu1 1\n>>\n\
            /proc/meminfo = MemTotal:        1000 kB\n/proc/sys/kernel/hostname = nas\n";
        let plain = facts(&Fixture::new(text).machine);
        assert_eq!((plain.model.as_str(), plain.cores, plain.memory_bytes), ("ARMv7 rev 3", 2, 1_024_000));
        let board = format!("{text}/sys/firmware/devicetree/base/model = Raspberry Pi 4 Model B Rev 1.4\0\n");
        let found = facts(&Fixture::new(&board).machine);
        assert_eq!((found.model.as_str(), found.host.as_str()), ("Raspberry Pi 4 Model B Rev 1.4", "nas"));
    }
}
