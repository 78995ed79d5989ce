//! The way from a device to the processor, hop by hop, as the device tree in /sys has it: PCIe functions and bridges,
//! USB devices and hubs.

use std::path::Path;

use serde::Serialize;

use crate::Machine;
use crate::wires::Wire;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum HopKind {
    Pcie,
    Usb,
}

/// One wire on the way. Rates are bytes per second in practice.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Hop {
    pub kind: HopKind,
    /// `0000:01:00.0`, `2-1.3`.
    pub address: String,
    /// The negotiated standard; then the best of this end, and of the end nearer to the processor.
    pub now: String,
    pub bytes_per_s: f64,
    pub own_best: Option<String>,
    pub own_best_bytes_per_s: Option<f64>,
    pub port_best: Option<String>,
    pub port_best_bytes_per_s: Option<f64>,
    /// `bridge`, `hub`, or empty for the device itself.
    pub role: String,
}

impl Hop {
    /// The best rate that both ends support.
    pub fn best_bytes_per_s(&self) -> Option<f64> {
        match (self.own_best_bytes_per_s, self.port_best_bytes_per_s) {
            (Some(own), Some(port)) => Some(own.min(port)),
            (one, None) => one,
            (None, _) => None,
        }
    }
}

/// From the device towards the processor.
pub(super) fn hops(machine: &Machine, sys: &Path) -> Vec<Hop> {
    let all: Vec<&Path> = sys.ancestors().collect();
    all.iter().filter_map(|dir| pcie(machine, dir).or_else(|| usb(machine, dir))).collect()
}

fn name(dir: &Path) -> Option<&str> {
    dir.file_name()?.to_str()
}

/// `0000:01:00.0`
fn is_pci(name: &str) -> bool {
    let bytes = name.as_bytes();
    bytes.len() == 12 && bytes.get(4) == Some(&b':') && bytes.get(7) == Some(&b':') && bytes.get(10) == Some(&b'.')
}

/// `8.0 GT/s PCIe` and lanes.
fn lanes(machine: &Machine, dir: &Path, which: &str) -> Option<Wire> {
    let speed = machine.read(dir.join(format!("{which}_link_speed")))?;
    let width = machine.number(dir.join(format!("{which}_link_width")))?;
    let giga: f64 = speed.split(' ').next()?.parse().ok()?;
    let generation = match giga {
        g if g < 3.0 => 1,
        g if g < 6.0 => 2,
        g if g < 10.0 => 3,
        g if g < 20.0 => 4,
        g if g < 40.0 => 5,
        _ => 6,
    };
    Wire::pcie(generation, u32::try_from(width).ok()?)
}

fn pcie(machine: &Machine, dir: &Path) -> Option<Hop> {
    let address = name(dir).filter(|n| is_pci(n))?.to_owned();
    let now = lanes(machine, dir, "current")?;
    let own = lanes(machine, dir, "max");
    // The bridge above is the other end of this wire.
    let above = dir.parent().filter(|up| name(up).is_some_and(is_pci));
    let bridge = machine.read(dir.join("class")).is_some_and(|class| class.starts_with("0x0604"));
    // Root ports and the lower ports of switches have the figures of the wire below them, which is the next hop's.
    let above_count = dir.ancestors().skip(1).filter(|up| name(up).is_some_and(is_pci)).count();
    if bridge && above_count % 2 == 0 {
        return None;
    }
    let port = above.and_then(|up| lanes(machine, up, "max"));
    Some(Hop {
        kind: HopKind::Pcie,
        address,
        bytes_per_s: now.practical,
        now: now.name,
        own_best_bytes_per_s: own.as_ref().map(|w| w.practical),
        own_best: own.map(|w| w.name),
        port_best_bytes_per_s: port.as_ref().map(|w| w.practical),
        port_best: port.map(|w| w.name),
        role: if bridge { "bridge".to_owned() } else { String::new() },
    })
}

fn usb_wire(mbits: f64) -> Option<Wire> {
    Wire::named(match mbits {
        m if m < 100.0 => "USB 1",
        m if m < 1000.0 => "USB 2.0",
        m if m < 8000.0 => "USB 3",
        m if m < 15000.0 => "USB 3.2 Gen 2",
        m if m < 30000.0 => "USB 3.2 Gen 2x2",
        _ => "USB4",
    })
}

fn usb(machine: &Machine, dir: &Path) -> Option<Hop> {
    let address = name(dir)?.to_owned();
    machine.exists(dir.join("idVendor")).then_some(())?;
    // usb1, usb2, ... are the controllers themselves.
    let root = address.starts_with("usb");
    let now = usb_wire(machine.read(dir.join("speed"))?.parse().ok()?)?;
    if root {
        return None;
    }
    let version: Option<f64> = machine.read(dir.join("version")).and_then(|v| v.trim().parse().ok());
    // 3.1 and 3.2 are versions, not speeds: they promise 5 Gbit/s and allow more.
    let own = version.and_then(|v| {
        usb_wire(match v {
            v if v >= 3.0 => 5000.0,
            v if v >= 2.0 => 480.0,
            _ => 12.0,
        })
    });
    let hub = machine.read(dir.join("bDeviceClass")).is_some_and(|class| class == "09");
    Some(Hop {
        kind: HopKind::Usb,
        address,
        bytes_per_s: now.practical,
        now: now.name,
        own_best_bytes_per_s: own.as_ref().map(|w| w.practical.max(now.practical)),
        own_best: own.map(|w| w.name),
        port_best: None,
        port_best_bytes_per_s: None,
        role: if hub { "hub".to_owned() } else { String::new() },
    })
}
