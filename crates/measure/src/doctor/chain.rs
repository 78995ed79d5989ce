//! From what was read of a machine to a description of it: disks with their wires, what they share, the network.

use std::collections::BTreeMap;

use crate::describe::limits::{DiskKind, Duplex, Wire};
use crate::describe::{Described, Disk, Link, Network, Shape};
use larder_facts::machine::{Bus, Medium, UsbDriver};
use larder_facts::reading::{Drive, Hop, HopKind, Nic, Reading, gigabits};

/// The parts of the machine as a description, without any measurement.
pub(super) fn chain(reading: &Reading) -> Described {
    let mut links: BTreeMap<String, Link> = BTreeMap::new();
    let mut disks: Vec<Disk> = reading.drives.iter().map(|drive| disk(drive, &mut links)).collect();
    disks.retain(|d| !d.name.is_empty());
    // With one store it is what serves; of several nobody can say which.
    let store = match reading.stores.as_slice() {
        [one] if disks.iter().any(|d| one.disks.contains(&d.name)) => Some(one),
        _ => None,
    };
    let shape = store.and_then(|store| Shape::of(&store.arrangement));
    if let (Some(store), Some(_)) = (store, shape) {
        disks.retain(|d| store.disks.contains(&d.name));
    }
    let shape = shape.unwrap_or(Shape::STRIPE);
    let network = best_nic(reading).and_then(|nic| network(nic, &mut links));
    Described {
        name: reading.host.name.clone(),
        memory_bytes: reading.host.memory_bytes,
        layout: shape.layout,
        groups: shape.groups,
        copies: shape.copies,
        record_bytes: None,
        compression_ratio: 1.0,
        degraded: false,
        slots: None,
        of_bench: false,
        of_machine: true,
        links: links.into_values().collect(),
        disks,
        network,
        upgrades: Vec::new(),
        clients: Vec::new(),
        work: Vec::new(),
        ciphers: Vec::new(),
        goals: Vec::new(),
        measured: Vec::new(),
    }
}

/// The fastest that is up: wires before air.
fn best_nic(reading: &Reading) -> Option<&Nic> {
    reading.nics.iter().filter(|n| n.up).max_by_key(|n| (!n.wireless, n.speed_mbits.unwrap_or(0)))
}

fn disk(drive: &Drive, links: &mut BTreeMap<String, Link>) -> Disk {
    let own = own_wire(drive);
    // A disk's own USB or NVMe wire is its connection; everything nearer to the processor may be shared.
    let direct = matches!(drive.bus, Bus::Nvme | Bus::Usb);
    let shared = drive.hops.iter().skip(usize::from(direct));
    let via = shared.map(|hop| link(hop, links)).collect();
    let best = match drive.bus {
        Bus::Sata => drive.sata_best.as_deref().and_then(sata),
        Bus::Nvme | Bus::Usb => drive.hops.first().and_then(could),
        _ => None,
    };
    let could = best.filter(|best| own.as_ref().is_some_and(|own| best.practical > own.practical * MORE));
    Disk {
        name: drive.name.clone(),
        count: 1,
        kind: kind(drive),
        connection: own,
        could,
        temperature_c: drive.temperature_c.map(|degrees| degrees as f64),
        temperature_max_c: drive.temperature_max_c.map(|degrees| degrees as f64),
        via,
        ..Disk::default()
    }
}

fn kind(drive: &Drive) -> Option<DiskKind> {
    Some(match (drive.bus, drive.medium) {
        _ if drive.hidden => return None,
        (_, Medium::HardDisk) if drive.shingled => DiskKind::Smr,
        (_, Medium::HardDisk) => DiskKind::Hdd,
        _ if drive.four_bits => DiskKind::Qlc,
        (Bus::Nvme, _) => DiskKind::Nvme,
        (Bus::Mmc, _) => DiskKind::SdCard,
        (Bus::Sata | Bus::Usb, Medium::Flash) => DiskKind::SataSsd,
        _ => return None,
    })
}

fn own_wire(drive: &Drive) -> Option<Wire> {
    match drive.bus {
        Bus::Sata => sata(drive.sata_now.as_deref()?),
        Bus::Usb => {
            let hop = drive.hops.first().filter(|h| h.kind == HopKind::Usb)?;
            match drive.usb_driver {
                Some(UsbDriver::BulkOnly) => Wire::named(&format!("{} BOT", hop.now)),
                _ => Wire::named(&hop.now),
            }
        }
        Bus::Nvme => Wire::named(&drive.hops.first().filter(|h| h.kind == HopKind::Pcie)?.now),
        _ => None,
    }
}

/// `3.0 Gbps` as a wire.
fn sata(speed: &str) -> Option<Wire> {
    let speed = gigabits(speed)?;
    Wire::named(if speed < 2.0 {
        "SATA 1.5G"
    } else if speed < 4.0 {
        "SATA 3G"
    } else {
        "SATA 6G"
    })
}

/// So much more than what was agreed on is another speed or width.
const MORE: f64 = 1.02;

/// The best that both ends of a hop support, where they agreed on less.
fn could(hop: &Hop) -> Option<Wire> {
    let best = match (hop.own_best_bytes_per_s, hop.port_best_bytes_per_s) {
        (Some(own), Some(port)) if port < own => hop.port_best.as_deref(),
        _ => hop.own_best.as_deref(),
    };
    Wire::named(best?).filter(|best| best.practical > hop.bytes_per_s * MORE)
}

fn link(hop: &Hop, links: &mut BTreeMap<String, Link>) -> String {
    let role = if hop.role.is_empty() { "controller" } else { hop.role.as_str() };
    let name = format!("the {role} at {} ({})", hop.address, hop.now);
    let wire = Wire::named(&hop.now);
    links.entry(name.clone()).or_insert_with(|| Link {
        name: name.clone(),
        read: hop.bytes_per_s,
        write: hop.bytes_per_s,
        duplex: wire.as_ref().map_or(Duplex::Half, |w| w.duplex),
        could: could(hop),
        wire,
        address: Some(hop.address.clone()),
        via: Vec::new(),
    });
    name
}

fn network(nic: &Nic, links: &mut BTreeMap<String, Link>) -> Option<Network> {
    let mbits = nic.speed_mbits?;
    let wire = Wire::ethernet_of(mbits as f64 * 1e6 / 8.0);
    let via = nic.hops.iter().map(|hop| link(hop, links)).collect();
    Some(Network {
        bonded: crate::describe::is_bond(&nic.name),
        name: format!("{} ({})", nic.name, wire.as_ref().map_or(format!("{mbits} Mbit/s"), |w| w.name.clone())),
        bytes_per_s: wire.as_ref().map_or(mbits as f64 * 1e6 / 8.0 * 0.94, |w| w.practical),
        wire,
        radio: false,
        round_trip_s: None,
        window_bytes: None,
        via,
    })
}
