//! The machine that measures, in a few words.

use crate::Machine;
use crate::samples::MachineFacts;

pub fn facts(machine: &Machine) -> MachineFacts {
    let processor = machine.processor_field(&["model name", "Model"]).unwrap_or_default();
    let stat = machine.read("/proc/stat").unwrap_or_default();
    let cores = stat.lines().filter(|l| l.starts_with("cpu") && !l.starts_with("cpu ")).count();
    MachineFacts {
        host: machine.host_name().unwrap_or_default(),
        model: machine.board().unwrap_or_else(|| processor.clone()),
        processor,
        cores: u32::try_from(cores).unwrap_or(u32::MAX),
        memory_bytes: machine.memory_field("MemTotal").unwrap_or(0),
        kernel: machine.kernel_release().unwrap_or_default(),
    }
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
