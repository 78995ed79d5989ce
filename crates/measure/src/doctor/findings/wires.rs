//! Wires on the way of disks and cards: slower than both ends can, or shared.

use std::collections::BTreeMap;

use super::notice::{Gain, Noticed, Rule, noticed};
use crate::describe::limits::Wire;
use crate::doctor::words::bytes_words;
use larder_facts::disk::Level;
use larder_facts::reading::{Drive, Hop, HopKind, Reading, gigabits};

pub(super) const RULES: &[Rule] = &[
    Rule {
        code: "pcie-below-both",
        level: Level::Warning,
        why: "both ends could do more than they agreed on: a bad contact, a riser, a setting of the firmware, or saved power (links of an idle device may be slow: look again while it works)",
        source: "PCI Express Base Specification, link training; kernel: current_link_speed, max_link_speed",
        test: pcie_below_both,
    },
    Rule {
        code: "pcie-slot",
        level: Level::Note,
        why: "the slot is slower or narrower than the device",
        source: "kernel: max_link_speed and max_link_width of both ends",
        test: pcie_slot,
    },
    Rule {
        code: "sata-below-both",
        level: Level::Warning,
        why: "disk and port could do more: an old cable, a dusty contact, or a limit after errors (dmesg: limiting SATA link speed)",
        source: "kernel: ata_link sata_spd, hw_sata_spd_limit; smartctl interface_speed",
        test: sata_below_both,
    },
    Rule {
        code: "usb-below-best",
        level: Level::Warning,
        why: "a USB 3 device on USB 2.0: the port, the cable or a hub between is USB 2.0",
        source: "USB 3.2, bcdUSB; kernel: speed, version",
        test: usb_below_best,
    },
    Rule {
        code: "shared-wire",
        level: Level::Note,
        why: "what hangs on one wire has its rate together, so the sum of the disks is not reached",
        source: "the device tree in /sys",
        test: shared,
    },
    Rule {
        code: "net-and-disks-share",
        level: Level::Warning,
        why: "every byte of a share passes the same wire twice, from the disk and to the card",
        source: "the device tree in /sys; boards whose Ethernet is a USB device",
        test: net_and_disks,
    },
];

fn below(hop: &Hop) -> bool {
    hop.best_bytes_per_s().is_some_and(|best| hop.bytes_per_s < best * 0.98)
}

fn pcie_below_both(reading: &Reading) -> Vec<Noticed> {
    let all = titled(reading).into_iter().filter(|(.., hop)| hop.kind == HopKind::Pcie && below(hop));
    let mut found: Vec<(String, Noticed)> = Vec::new();
    for (title, device, hop) in all {
        let best = hop.own_best.clone().unwrap_or_default();
        let what = format!(
            "{title}: {} runs at {}, and both ends can {}",
            hop.address,
            hop.now,
            least_name(hop).unwrap_or(best)
        );
        let gain = hop.best_bytes_per_s().and_then(|best| Gain::between(hop.bytes_per_s, best));
        let action = format!(
            "lspci -vvs {} | grep -E 'LnkCap|LnkSta'; reseat it; firmware: slot speed auto, no bifurcation below its width",
            hop.address
        );
        if !found.iter().any(|(address, _)| *address == hop.address) {
            found.push((hop.address.clone(), noticed(what, action).on(device).gain(gain)));
        }
    }
    found.into_iter().map(|(_, n)| n).collect()
}

/// The lesser of what both ends can, by name.
fn least_name(hop: &Hop) -> Option<String> {
    match (hop.own_best_bytes_per_s, hop.port_best_bytes_per_s) {
        (Some(own), Some(port)) if port < own => hop.port_best.clone(),
        _ => hop.own_best.clone(),
    }
}

fn pcie_slot(reading: &Reading) -> Vec<Noticed> {
    // A disk behind a controller is not the card in the slot.
    let title = |drive: &Drive, hop: &Hop| match drive.bus {
        larder_facts::machine::Bus::Nvme => drive.title.clone(),
        _ => format!("the controller at {} (of {})", hop.address, on_it(reading, hop)),
    };
    let drives = reading.drives.iter().flat_map(|d| d.hops.iter().map(move |h| (title(d, h), d.name.as_str(), h)));
    let slow = drives.filter(|(.., hop)| {
        let port = hop.port_best_bytes_per_s.zip(hop.own_best_bytes_per_s);
        hop.kind == HopKind::Pcie && hop.role.is_empty() && port.is_some_and(|(port, own)| port < own * 0.98)
    });
    let mut seen: Vec<&str> = Vec::new();
    let once = slow.filter(|(.., hop)| {
        let new = !seen.contains(&hop.address.as_str());
        seen.push(&hop.address);
        new
    });
    once.map(|(title, device, hop)| {
        let (own, port) = (hop.own_best.as_deref().unwrap_or("?"), hop.port_best.as_deref().unwrap_or("?"));
        let what = format!("{title} could {own}, and its slot gives {port}");
        let gain = hop.own_best_bytes_per_s.and_then(|best| Gain::between(hop.bytes_per_s, best));
        noticed(what, format!("a slot with {own}; in a RAIDZ or stripe all disks wait for it")).on(device).gain(gain)
    })
    .collect()
}

/// The disks behind a hop, by name.
fn on_it(reading: &Reading, hop: &Hop) -> String {
    let behind = reading.drives.iter().filter(|d| d.hops.iter().any(|h| h.address == hop.address));
    behind.map(|d| d.name.as_str()).collect::<Vec<_>>().join(", ")
}

fn sata_below_both(reading: &Reading) -> Vec<Noticed> {
    let slow = |drive: &Drive| {
        let (now, best) = (drive.sata_now.as_ref()?, drive.sata_best.as_ref()?);
        let (now_g, best_g) = (gigabits(now)?, gigabits(best)?);
        (now_g < best_g).then_some(())?;
        let wire =
            |g: f64| Wire::named(&format!("SATA {}G", if g < 2.0 { "1.5".to_owned() } else { format!("{g:.0}") }));
        let gain = Gain::between(wire(now_g)?.practical, wire(best_g)?.practical);
        let what = format!("{} is connected at {now}, and disk and port can {best}", drive.title);
        Some(
            noticed(what, "another cable, then another port; dmesg | grep -i 'sata link'; smartctl -A (199 UDMA_CRC)")
                .on(&drive.name)
                .gain(gain),
        )
    };
    reading.drives.iter().filter_map(slow).collect()
}

fn usb_below_best(reading: &Reading) -> Vec<Noticed> {
    let slow =
        titled(reading).into_iter().filter(|(.., hop)| hop.kind == HopKind::Usb && hop.role.is_empty() && below(hop));
    slow.map(|(title, device, hop)| {
        let best = hop.own_best.as_deref().unwrap_or("more");
        let what = format!("{title} is connected at {} (port {}), and its bridge can {best}", hop.now, hop.address);
        let gain = hop.best_bytes_per_s().and_then(|best| Gain::between(hop.bytes_per_s, best));
        noticed(what, "a blue (USB 3) port of the machine itself and a USB 3 cable; check: lsusb -t")
            .on(device)
            .gain(gain)
    })
    .collect()
}

/// All hops of all disks and cards that are up: title, device, hop.
fn titled(reading: &Reading) -> Vec<(String, &str, &Hop)> {
    let drives = reading.drives.iter().flat_map(|d| d.hops.iter().map(|h| (d.title.clone(), d.name.as_str(), h)));
    let nics = reading.nics.iter().flat_map(|n| n.hops.iter().map(|h| (n.name.clone(), n.name.as_str(), h)));
    drives.chain(nics).collect()
}

fn shared(reading: &Reading) -> Vec<Noticed> {
    let mut on: BTreeMap<&str, (&Hop, Vec<&Drive>)> = BTreeMap::new();
    for drive in reading.drives.iter().filter(|d| !d.hidden) {
        for hop in &drive.hops {
            on.entry(&hop.address).or_insert_with(|| (hop, Vec::new())).1.push(drive);
        }
    }
    let mut found: Vec<(Vec<&str>, Noticed)> = Vec::new();
    let mut all: Vec<_> = on.into_values().filter(|(_, drives)| drives.len() > 1).collect();
    // Of several wires that the same disks share the narrowest counts.
    all.sort_by(|a, b| a.0.bytes_per_s.total_cmp(&b.0.bytes_per_s));
    for (hop, drives) in all {
        let names: Vec<&str> = drives.iter().map(|d| d.name.as_str()).collect();
        let sum: f64 = drives.iter().map(|d| usual_bytes_per_s(d)).sum();
        if found.iter().any(|(seen, _)| *seen == names) || sum <= hop.bytes_per_s {
            continue;
        }
        let what = format!(
            "{} share {} {} ({}): at most {} together",
            names.join(", "),
            if hop.role.is_empty() { "the controller at" } else { hop.role.as_str() },
            hop.address,
            hop.now,
            bytes_words(hop.bytes_per_s)
        );
        let gain = Gain::between(hop.bytes_per_s, sum);
        let notice = noticed(what, "divide them over several ports or slots, or a wider one").gain(gain);
        let notice = names.iter().fold(notice, |notice, name| notice.on(name));
        found.push((names, notice));
    }
    found.into_iter().map(|(_, n)| n).collect()
}

/// The read rate of an ordinary disk of its kind.
pub(in crate::doctor) fn usual_bytes_per_s(drive: &Drive) -> f64 {
    use larder_facts::machine::{Bus, Medium};
    let own = drive.hops.first().filter(|h| h.role.is_empty()).map_or(f64::INFINITY, |h| h.bytes_per_s);
    let kind: f64 = match (drive.bus, drive.medium) {
        (_, Medium::HardDisk) => 200e6,
        (Bus::Nvme, _) => 3.5e9,
        (Bus::Mmc, _) => 90e6,
        _ => 500e6,
    };
    let many = drive.hops.first().is_some_and(|h| h.role.is_empty() && drive.bus == Bus::Sata);
    // A SATA controller's lanes are no disk's own.
    if many { kind } else { kind.min(own) }
}

fn net_and_disks(reading: &Reading) -> Vec<Noticed> {
    let mut found = Vec::new();
    for nic in reading.nics.iter().filter(|n| n.up) {
        for hop in &nic.hops {
            let disks: Vec<&str> = reading
                .drives
                .iter()
                .filter(|d| d.hops.iter().any(|h| h.address == hop.address))
                .map(|d| d.name.as_str())
                .collect();
            let narrow = nic.speed_mbits.is_none_or(|m| hop.bytes_per_s < 2.2 * m as f64 * 1e6 / 8.0);
            if disks.is_empty() || !narrow {
                continue;
            }
            let what = format!("{} and {} share {} ({})", nic.name, disks.join(", "), hop.address, hop.now);
            let notice = noticed(what, "the card or the disks on another port, slot or controller")
                .on(&nic.name)
                .gain(Gain::by(100.0, "each byte passing that link twice"));
            found.push(disks.iter().fold(notice, |notice, disk| notice.on(disk)));
            break;
        }
    }
    found
}
