//! Network cards and TCP: speed, duplex, errors, queues, offloads, interrupts.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Serialize;

use super::hops::{Hop, hops};
use crate::Machine;
use crate::machine::proc::InterruptLine;

#[derive(Clone, Debug, Serialize)]
pub struct Nic {
    pub name: String,
    pub driver: Option<String>,
    pub up: bool,
    pub wireless: bool,
    pub speed_mbits: Option<u64>,
    /// The most that it says it supports (ethtool).
    pub speed_best_mbits: Option<u64>,
    pub duplex: Option<String>,
    pub mtu: Option<u64>,
    pub queue_length: Option<u64>,
    pub receive_queues: usize,
    /// The cores that receive queues are spread over by software (RPS), as masks.
    pub rps: Vec<String>,
    pub packets: u64,
    pub errors: u64,
    pub dropped: u64,
    /// On and off (ethtool -k): those that matter for throughput.
    pub offloads: BTreeMap<String, bool>,
    pub interrupts: Vec<Interrupt>,
    pub hops: Vec<Hop>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Interrupt {
    pub number: u32,
    /// Counted on each core.
    pub on_cores: Vec<u64>,
    pub affinity: Option<String>,
}

/// `min default max` of the buffers, and what else bounds a connection.
#[derive(Clone, Debug, Serialize)]
pub struct Tcp {
    pub receive_max_bytes: Option<u64>,
    pub send_max_bytes: Option<u64>,
    pub receive_buffers: Option<String>,
    pub send_buffers: Option<String>,
    pub backlog: Option<u64>,
    pub congestion_control: Option<String>,
    pub window_scaling: Option<bool>,
}

impl Tcp {
    pub(super) fn read(machine: &Machine) -> Self {
        let net = |name: &str| machine.read(format!("/proc/sys/net/{name}"));
        let last = |text: &Option<String>| text.as_ref()?.split_whitespace().last()?.parse().ok();
        let blanks = |text: Option<String>| text.map(|t| t.split_whitespace().collect::<Vec<_>>().join(" "));
        let (receive, send) = (blanks(net("ipv4/tcp_rmem")), blanks(net("ipv4/tcp_wmem")));
        Self {
            receive_max_bytes: last(&receive),
            send_max_bytes: last(&send),
            receive_buffers: receive,
            send_buffers: send,
            backlog: net("core/netdev_max_backlog").and_then(|t| t.parse().ok()),
            congestion_control: net("ipv4/tcp_congestion_control"),
            window_scaling: machine.flag("/proc/sys/net/ipv4/tcp_window_scaling"),
        }
    }
}

/// Cards with hardware behind them; bridges, tunnels and the loopback have none.
pub(super) fn nics(machine: &Machine) -> Vec<Nic> {
    let interrupts = machine.interrupt_lines();
    let mut names = machine.list("/sys/class/net");
    names.retain(|name| machine.exists(Path::new("/sys/class/net").join(name).join("device")));
    names.truncate(32);
    names.into_iter().map(|name| nic(machine, name, &interrupts)).collect()
}

fn nic(machine: &Machine, name: String, interrupts: &[InterruptLine]) -> Nic {
    let sys = Path::new("/sys/class/net").join(&name);
    let count = |what: &str| machine.number(sys.join("statistics").join(what)).unwrap_or(0);
    let mut queues = machine.list(sys.join("queues"));
    queues.retain(|q| q.starts_with("rx-"));
    let real = machine.real(sys.join("device"));
    Nic {
        driver: machine.link_name(sys.join("device/driver")),
        up: machine.read(sys.join("operstate")).is_some_and(|s| s == "up" || s == "unknown"),
        wireless: machine.exists(sys.join("wireless")) || machine.exists(sys.join("phy80211")),
        // A card without a link says -1 or an error.
        speed_mbits: machine.number(sys.join("speed")).filter(|s| *s > 0 && *s < 1_000_000),
        speed_best_mbits: supported(machine, &name),
        duplex: machine.read(sys.join("duplex")).filter(|d| d == "full" || d == "half"),
        mtu: machine.number(sys.join("mtu")),
        queue_length: machine.number(sys.join("tx_queue_len")),
        receive_queues: queues.len(),
        rps: queues.iter().filter_map(|q| machine.read(sys.join("queues").join(q).join("rps_cpus"))).collect(),
        packets: count("rx_packets").saturating_add(count("tx_packets")),
        errors: count("rx_errors").saturating_add(count("tx_errors")).saturating_add(count("collisions")),
        dropped: count("rx_missed_errors").saturating_add(count("rx_fifo_errors")),
        offloads: offloads(machine, &name),
        interrupts: own_interrupts(machine, &name, interrupts, real.as_deref()),
        hops: real.map(|real| hops(machine, &real)).unwrap_or_default(),
        name,
    }
}

/// `1000baseT/Full` and their kind, after `Supported link modes:` and up to the next field.
fn supported(machine: &Machine, name: &str) -> Option<u64> {
    let said = machine.run("ethtool", &[name], name).ok()?;
    let text = String::from_utf8_lossy(&said.stdout).into_owned();
    let modes = text.split_once("Supported link modes:")?.1;
    let modes = modes.split_once("Supported pause").map_or(modes, |(before, _)| before);
    let number = |word: &str| word.split_once("base").and_then(|(digits, _)| digits.parse::<u64>().ok());
    modes.split_whitespace().filter_map(number).max()
}

const OFFLOADS: [&str; 4] =
    ["tcp-segmentation-offload", "generic-receive-offload", "rx-checksumming", "tx-checksumming"];

fn offloads(machine: &Machine, name: &str) -> BTreeMap<String, bool> {
    // A recorded machine keeps this under a subject of its own: ethtool/NAME-features.
    let Ok(said) = machine.run("ethtool", &["-k", name], &format!("{name}-features")) else { return BTreeMap::new() };
    let text = String::from_utf8_lossy(&said.stdout).into_owned();
    let lines = text.lines().filter_map(|line| line.trim().split_once(": "));
    let known = lines.filter(|(key, value)| OFFLOADS.contains(key) && !value.contains("[fixed]"));
    known.map(|(key, value)| (key.to_owned(), value.starts_with("on"))).collect()
}

/// Lines of /proc/interrupts that name the card, or the numbers that its device lists (MSI).
fn own_interrupts(machine: &Machine, name: &str, interrupts: &[InterruptLine], real: Option<&Path>) -> Vec<Interrupt> {
    let msi: Vec<String> = real.map(|dir| machine.list(dir.join("msi_irqs"))).unwrap_or_default();
    let own = |line: &InterruptLine| {
        let number: u32 = line.id.parse().ok()?;
        let named = line.words.iter().any(|word| *word == name || word.starts_with(&format!("{name}-")));
        (named || msi.contains(&line.id)).then(|| Interrupt {
            number,
            on_cores: line.on_cores.clone(),
            affinity: machine.read(format!("/proc/irq/{number}/smp_affinity_list")),
        })
    };
    interrupts.iter().filter_map(own).take(128).collect()
}
