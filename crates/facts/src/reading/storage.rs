//! One disk: its way, its queue, what is mounted from it.

use std::path::Path;

use serde::Serialize;

use super::bracketed::bracketed;
use super::hops::{Hop, hops};
use crate::Machine;
use crate::disk::DeviceReport;
use crate::machine::{BlockDevice, Bus, Medium, UsbDriver};

#[derive(Clone, Debug, Serialize)]
pub struct Drive {
    pub name: String,
    pub title: String,
    pub bus: Bus,
    pub medium: Medium,
    pub size_bytes: u64,
    pub hops: Vec<Hop>,
    /// `uas` or `usb-storage`.
    pub usb_driver: Option<UsbDriver>,
    /// The speed of the SATA link, and the best of disk and port: `6.0 Gbps`.
    pub sata_now: Option<String>,
    pub sata_best: Option<String>,
    pub scheduler: Option<String>,
    pub schedulers: Vec<String>,
    pub read_ahead_kib: Option<u64>,
    pub requests: Option<u64>,
    pub temperature_c: Option<i64>,
    /// From here on it says itself that it is too warm.
    pub temperature_max_c: Option<i64>,
    pub wear_percent: Option<u64>,
    pub model: Option<String>,
    pub shingled: bool,
    /// Four bits a cell, by its model's name.
    pub four_bits: bool,
    /// Made by a host or a controller.
    pub hidden: bool,
    /// Folder, filesystem and options.
    pub mounts: Vec<(String, String, Vec<String>)>,
}

/// Models with four bits a cell, from their makers' data sheets. The text is somewhere in the model's name.
const FOUR_BITS: &[&str] = &[
    "870 QVO",
    "860 QVO",
    "MZ-77Q",
    "MZ-76Q",
    "CT1000P1",
    "CT2000P1",
    "CT500P1",
    "CT500P2",
    "CT1000P2",
    "CT2000P2",
    "CT500P3",
    "CT1000P3",
    "CT2000P3",
    "CT4000P3",
    "CT1000BX500",
    "CT2000BX500",
    "660P",
    "670P",
    "SSDPEKNW",
    "SSDPEKNU",
    "SSDPEK1A",
    "SSDPFINT",
    "SNV2S",
    "SABRENT ROCKET Q",
    "SABRENT_ROCKET_Q",
    "WD GREEN SN350",
    "WDS200T3G0C",
    "5210_MTFD",
    "SSDPFWNV",
    "BARRACUDA Q5",
];

/// The limit that a disk's own sensor reports, in thousandths of a degree (kernel, Documentation/hwmon: nvme, drivetemp).
fn temperature_max_c(machine: &Machine, device: &Path) -> Option<i64> {
    let sensors = machine.list(device).into_iter().filter(|name| name.starts_with("hwmon"));
    let files = sensors.flat_map(|name| match name.as_str() {
        "hwmon" => machine.list(device.join("hwmon")).into_iter().map(|one| device.join("hwmon").join(one)).collect(),
        name => vec![device.join(name)],
    });
    let limit = |sensor: std::path::PathBuf| machine.number(sensor.join("temp1_max"));
    let degrees = files.filter_map(limit).map(|milli| milli / 1000).find(|degrees| (30..=150).contains(degrees))?;
    i64::try_from(degrees).ok()
}

impl Drive {
    pub(super) fn read(machine: &Machine, report: &DeviceReport, shingled: bool) -> Self {
        let device = &report.device;
        let sys = Path::new("/sys/class/block").join(&device.name);
        let queue = sys.join("queue");
        let schedulers = machine.read(queue.join("scheduler")).unwrap_or_default();
        let (sata_now, sata_best) = sata(machine, report);
        let smart = report.smart.as_ref();
        let model = device.model.clone().or_else(|| smart.and_then(|s| s.model.clone()));
        let upper = model.clone().unwrap_or_default().to_uppercase();
        Self {
            title: device.title(),
            bus: device.bus,
            medium: device.medium,
            size_bytes: device.size_bytes,
            hops: way(machine, device),
            usb_driver: device.usb.as_ref().map(|usb| usb.driver),
            sata_now,
            sata_best,
            scheduler: bracketed(&schedulers),
            schedulers: schedulers.split_whitespace().map(|s| s.trim_matches(['[', ']']).to_owned()).collect(),
            read_ahead_kib: machine.number(queue.join("read_ahead_kb")),
            requests: machine.number(queue.join("nr_requests")),
            temperature_c: smart.and_then(|s| s.temperature_c),
            temperature_max_c: temperature_max_c(machine, &sys.join("device")),
            wear_percent: smart.and_then(|s| s.wear_percent),
            shingled,
            four_bits: FOUR_BITS.iter().any(|known| upper.contains(known)),
            model,
            hidden: device.curtain.is_some(),
            mounts: mounts(machine, device),
            name: device.name.clone(),
        }
    }

    /// The rate of the narrowest wire on its way, with what that is.
    pub fn narrowest(&self) -> Option<&Hop> {
        self.hops.iter().min_by(|a, b| a.bytes_per_s.total_cmp(&b.bytes_per_s))
    }
}

fn way(machine: &Machine, device: &BlockDevice) -> Vec<Hop> {
    // A multipath NVMe namespace hangs below a virtual subsystem; its function knows the way.
    let sys = device.pcie.as_ref().map(|link| link.sys.clone());
    let sys = sys.or_else(|| machine.real(Path::new("/sys/class/block").join(&device.name)));
    sys.map(|sys| hops(machine, &sys)).unwrap_or_default()
}

fn sata(machine: &Machine, report: &DeviceReport) -> (Option<String>, Option<String>) {
    let port = report.device.sata.as_ref();
    let smart = report.smart.as_ref();
    let now = port.and_then(|p| p.speed.clone()).or_else(|| smart.and_then(|s| s.link.clone()));
    let number = port.and_then(|p| p.port.strip_prefix("ata").map(str::to_owned));
    let limit = number.and_then(|n| machine.read(format!("/sys/class/ata_link/link{n}/hw_sata_spd_limit")));
    let best = [limit, smart.and_then(|s| s.link_max.clone())].into_iter().flatten();
    // The lesser of what both ends can; "6.0 Gbps" and "6.0 Gb/s" mean the same.
    let best = best
        .filter(|t| gigabits(t).is_some())
        .min_by(|a, b| gigabits(a).partial_cmp(&gigabits(b)).unwrap_or(std::cmp::Ordering::Equal));
    (now, best)
}

/// `6.0` of `6.0 Gbps`.
pub fn gigabits(text: &str) -> Option<f64> {
    text.split(' ').next()?.parse().ok()
}

/// A folder of a filesystem that is mounted elsewhere as a whole (a bind mount) is nothing of its own.
fn mounts(machine: &Machine, device: &BlockDevice) -> Vec<(String, String, Vec<String>)> {
    let mounts = machine.mounts();
    let mine = mounts.all().iter().filter(|m| machine.below_mount(m).devices.contains(&device.name));
    let mine = mine.filter(|m| !m.part || mounts.of_number(&m.number).iter().all(|other| other.part));
    mine.take(16).map(|m| (m.point.display().to_string(), m.filesystem.clone(), m.options.clone())).collect()
}
