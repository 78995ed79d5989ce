//! Machine and processor: what it is, how it is set, whether it is throttled.

use serde::Serialize;

use super::bracketed::bracketed;
use crate::Machine;

#[derive(Clone, Debug, Serialize)]
pub struct Host {
    pub name: String,
    /// Such as `Raspberry Pi 4 Model B Rev 1.4`.
    pub model: Option<String>,
    pub kernel: Option<String>,
    pub memory_bytes: Option<u64>,
    pub swap_used_bytes: Option<u64>,
    pub virtual_machine: bool,
}

impl Host {
    pub(super) fn read(machine: &Machine) -> Self {
        let swap = machine.memory_field("SwapTotal").zip(machine.memory_field("SwapFree"));
        let flags = machine.processor_field(&["flags"]).unwrap_or_default();
        Self {
            name: machine.host_name().unwrap_or_else(|| "this machine".to_owned()),
            model: machine.board(),
            kernel: machine.kernel_release(),
            memory_bytes: machine.memory_field("MemTotal"),
            swap_used_bytes: swap.map(|(all, free)| all.saturating_sub(free)),
            virtual_machine: flags.split(' ').any(|flag| flag == "hypervisor"),
        }
    }
}

#[derive(Clone, Debug, Serialize)]
pub struct Processor {
    pub model: Option<String>,
    pub cores: usize,
    /// One for each policy: name of the policy's folder, driver, governor, and the governors there are.
    pub policies: Vec<Policy>,
    /// ondemand counts waiting for disks as work.
    pub io_is_busy: Option<bool>,
    /// Turned off by a setting.
    pub boost_off: bool,
    pub throttled: u64,
    /// A Raspberry Pi's own word: bits of what happens and happened.
    pub pi_throttled: Option<u64>,
    pub aes: Option<bool>,
    pub simd: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Policy {
    pub name: String,
    pub driver: Option<String>,
    pub governor: String,
    pub governors: Vec<String>,
    pub max_khz: Option<u64>,
    pub hardware_max_khz: Option<u64>,
}

impl Processor {
    pub(super) fn read(machine: &Machine) -> Self {
        let info = machine.read("/proc/cpuinfo").unwrap_or_default();
        let flags = machine.processor_field(&["flags", "Features"]);
        let has = |flag: &str| flags.as_ref().is_some_and(|f| f.split(' ').any(|one| one == flag));
        let simd = ["avx512f", "avx2", "sse4_2", "gfni", "sha_ni", "vaes", "asimd", "neon", "sha2", "pmull", "crc32"];
        let cpu = "/sys/devices/system/cpu";
        let cores = machine.list(cpu).iter().filter(|n| is_core(n)).count();
        Self {
            model: machine.processor_field(&["model name", "Model", "Hardware"]),
            cores: cores.max(info.lines().filter(|l| l.starts_with("processor")).count()),
            policies: policies(machine),
            io_is_busy: machine.flag(format!("{cpu}/cpufreq/ondemand/io_is_busy")),
            boost_off: machine.flag(format!("{cpu}/cpufreq/boost")) == Some(false)
                || machine.flag(format!("{cpu}/intel_pstate/no_turbo")) == Some(true),
            throttled: throttled(machine),
            pi_throttled: machine
                .read("/sys/devices/platform/soc/soc:firmware/get_throttled")
                .and_then(|t| u64::from_str_radix(t.trim_start_matches("0x"), 16).ok()),
            aes: flags.is_some().then(|| has("aes")),
            simd: simd.iter().filter(|f| has(f)).map(|f| (*f).to_owned()).collect(),
        }
    }
}

fn is_core(name: &str) -> bool {
    name.strip_prefix("cpu").is_some_and(|n| n.parse::<u32>().is_ok())
}

fn policies(machine: &Machine) -> Vec<Policy> {
    let all = "/sys/devices/system/cpu/cpufreq";
    let mut names = machine.list(all);
    names.retain(|n| n.starts_with("policy"));
    names
        .into_iter()
        .filter_map(|name| {
            let at = |file: &str| format!("{all}/{name}/{file}");
            let governors = machine.read(at("scaling_available_governors")).unwrap_or_default();
            Some(Policy {
                driver: machine.read(at("scaling_driver")),
                governor: machine.read(at("scaling_governor")).and_then(|g| bracketed(&g))?,
                governors: governors.split_whitespace().map(str::to_owned).collect(),
                max_khz: machine.number(at("scaling_max_freq")),
                hardware_max_khz: machine.number(at("cpuinfo_max_freq")),
                name,
            })
        })
        .collect()
}

fn throttled(machine: &Machine) -> u64 {
    let cpu = "/sys/devices/system/cpu";
    let cores = machine.list(cpu);
    let counts = cores.iter().filter(|n| is_core(n)).map(|core| {
        let of = |what: &str| machine.number(format!("{cpu}/{core}/thermal_throttle/{what}_throttle_count"));
        of("core").unwrap_or(0).saturating_add(of("package").unwrap_or(0))
    });
    counts.max().unwrap_or(0)
}
