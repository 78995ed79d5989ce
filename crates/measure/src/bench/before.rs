//! Disturbances of a measurement that are there before it begins.

use std::path::Path;

use super::result::Note;
use crate::Machine;

/// Of each core, on average over the last minute.
const LOAD_SHARE_MAX: f64 = 0.25;

/// The codes of what is in the way of all figures of a bench.
pub(super) const DISTURBANCES: [&str; 3] = ["machine-busy", "governor", "on-battery"];

pub(super) fn notes(machine: &Machine, cores: u32) -> Vec<Note> {
    [busy(machine, cores), governor(machine), battery(machine)].into_iter().flatten().collect()
}

fn busy(machine: &Machine, cores: u32) -> Option<Note> {
    let text = machine.read("/proc/loadavg")?;
    let load: f64 = text.split_whitespace().next()?.parse().ok()?;
    let bound = (f64::from(cores) * LOAD_SHARE_MAX).max(0.5);
    (load > bound).then(|| Note {
        code: "machine-busy".to_owned(),
        text: format!(
            "the machine was busy before: a load of {load:.2} on {cores} cores in the last minute. Somebody else's work is in these figures: stop it and measure again"
        ),
        misleading: false,
    })
}

/// A governor that follows the load sees waiting for a disk as idleness, and clocks down. Processors that choose their
/// own clock (intel_pstate and amd-pstate-epp, whose "powersave" is the usual setting) do not.
fn governor(machine: &Machine) -> Option<Note> {
    let folder = Path::new("/sys/devices/system/cpu/cpu0/cpufreq");
    let governor = machine.read(folder.join("scaling_governor"))?;
    let driver = machine.read(folder.join("scaling_driver")).unwrap_or_default();
    let own_clock = driver == "intel_pstate" || driver == "amd-pstate-epp";
    let slow = matches!(governor.as_str(), "powersave" | "ondemand" | "conservative") && !own_clock;
    slow.then(|| Note {
        code: "governor".to_owned(),
        text: format!(
            "the CPU governor is {governor}: it takes waiting for a disk for idleness and clocks down. Measure again after: cpupower frequency-set -g performance"
        ),
        misleading: false,
    })
}

fn battery(machine: &Machine) -> Option<Note> {
    let top = Path::new("/sys/class/power_supply");
    let names = machine.list(top);
    let mains = |name: &&String| machine.read(top.join(name).join("type")).is_some_and(|t| t == "Mains");
    let mut supplies = names.iter().filter(mains).peekable();
    supplies.peek()?;
    let plugged = supplies.any(|name| machine.flag(top.join(name).join("online")).unwrap_or(true));
    (!plugged).then(|| Note {
        code: "on-battery".to_owned(),
        text: "this machine runs on its battery: it saves power at the cost of speed. Plug it in and measure again"
            .to_owned(),
        misleading: false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::Fixture;

    #[test]
    fn disturbances_are_named() {
        let check = |text: &str, codes: &[&str]| {
            let found = notes(&Fixture::new(text).machine, 4);
            assert_eq!(found.iter().map(|n| n.code.as_str()).collect::<Vec<_>>(), codes, "{text}");
        };
        let governor = |g: &str, driver: &str| {
            let folder = "/sys/devices/system/cpu/cpu0/cpufreq";
            format!("{folder}/scaling_governor = {g}\n{folder}/scaling_driver = {driver}\n")
        };
        check("", &[]);
        check("/proc/loadavg = 0.90 0.1 0.1 1/100 5\n", &[]);
        check("/proc/loadavg = 1.20 0.1 0.1 1/100 5\n", &["machine-busy"]);
        check(&governor("ondemand", "cpufreq-dt"), &["governor"]);
        check(&governor("powersave", "intel_pstate"), &[]);
        check(&governor("performance", "cpufreq-dt"), &[]);
        check("/sys/class/power_supply/AC/type = Mains\n/sys/class/power_supply/AC/online = 0\n", &["on-battery"]);
    }
}
