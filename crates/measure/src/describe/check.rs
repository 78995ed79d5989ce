//! Requirements of a description before anything is concluded from it: names that are defined, counts that exist.

use std::collections::BTreeSet;

use larder_base::units::ByteSize;

use super::described::{Described, Layout, Measured};
use super::error::BadDescription;
use super::raw::COUNT_MAX;
use super::way::Path;
use crate::bench::show::words;

type Result<T> = std::result::Result<T, BadDescription>;

fn senseless(text: impl Into<String>) -> Result<()> {
    Err(BadDescription::Senseless(text.into()))
}

pub(super) fn check(described: &Described) -> Result<()> {
    let d = described;
    if d.disks.is_empty() {
        return senseless("a box without disks: add a [[disk]]");
    }
    let longest = [
        d.measured.len(),
        d.disks.len(),
        d.links.len(),
        d.clients.len(),
        d.work.len(),
        d.upgrades.len(),
        d.goals.len(),
    ];
    if longest.into_iter().any(|n| n > COUNT_MAX) {
        return senseless("the description is too long");
    }
    seen(d)?;
    once("disk", d.disks.iter().map(|d| &d.name))?;
    once("link", d.links.iter().map(|l| &l.name))?;
    once("client", d.clients.iter().map(|c| &c.name))?;
    names(d)?;
    memory("the box", d.memory_bytes)?;
    d.clients.iter().try_for_each(|c| memory(&c.name, c.memory_bytes))?;
    if let Some(disk) = d.disks.iter().find(|disk| disk.cache_bytes.is_some_and(|bytes| bytes > DISK_MAX)) {
        let cache = ByteSize(disk.cache_bytes.unwrap_or_default());
        return senseless(format!(
            "cache of the disk '{}' is {cache}, more than any disk has: is the unit right?",
            disk.name
        ));
    }
    layout(d)?;
    d.measured.iter().try_for_each(|m| measured(d, m))?;
    let of_wire = d.measured.iter().find(|m| matches!(m.path, Path::Share | Path::Net));
    match of_wire.filter(|_| d.network.is_none()) {
        Some(_) => senseless(
            "a share was measured: add a [network]. How fast is the wire between box and client (iperf3 says), or of what type?",
        ),
        None => Ok(()),
    }
}

/// No machine that runs a kernel and serves files, or asks for some, has less.
const MEMORY_MIN: u64 = 16 << 20;
/// 24 modules of 512 GiB: what two sockets of today's servers hold.
const MEMORY_MAX: u64 = 12 << 40;
/// The largest disk sold has 246 TB (2025), and no fast cache is larger than its disk.
const DISK_MAX: u64 = 250_000_000_000_000;

fn memory(whose: &str, bytes: Option<u64>) -> Result<()> {
    match bytes.filter(|bytes| !(MEMORY_MIN..=MEMORY_MAX).contains(bytes)) {
        Some(bytes) => senseless(format!("memory of {whose} is {}: is the unit right? Write 8GiB", ByteSize(bytes))),
        None => Ok(()),
    }
}

/// Names are shown on terminals, and two that look alike would be two things.
fn seen(d: &Described) -> Result<()> {
    let networks =
        d.network.iter().map(|n| ("network", &n.name)).chain(d.upgrades.iter().map(|n| ("upgrade", &n.name)));
    let others = d.links.iter().map(|l| ("link", &l.name)).chain(d.clients.iter().map(|c| ("client", &c.name)));
    let work = d.work.iter().map(|w| ("work", &w.name));
    let with = d.measured.iter().filter_map(|m| Some(("program (with =)", m.with.as_ref()?)));
    let disks = d.disks.iter().map(|disk| ("disk", &disk.name));
    let all = std::iter::once(("box", &d.name)).chain(disks).chain(networks).chain(others).chain(work).chain(with);
    for (kind, name) in all {
        let shown = words::clean(name);
        if shown.is_empty() {
            return senseless(format!("a {kind} has an empty name: what is it called?"));
        }
        if shown != name.trim() {
            return senseless(format!(
                "the name of the {kind} '{shown}' has characters that cannot be seen, or no end: write it without them"
            ));
        }
    }
    Ok(())
}

/// `1 disk`, `2 disks`.
fn several(count: u32, name: &str) -> String {
    if count == 1 { format!("1 {name}") } else { format!("{count} {name}s") }
}

fn once<'a>(kind: &str, names: impl Iterator<Item = &'a String>) -> Result<()> {
    let mut seen = BTreeSet::new();
    for name in names {
        if !seen.insert(name) {
            return senseless(format!(
                "there are two {kind}s '{name}': which is meant where it is named? Name them differently"
            ));
        }
    }
    Ok(())
}

fn names(d: &Described) -> Result<()> {
    let networks = d.network.iter().chain(&d.upgrades);
    let vias = d.disks.iter().map(|d| &d.via).chain(networks.map(|n| &n.via)).chain(d.links.iter().map(|l| &l.via));
    for name in vias.flatten() {
        if !d.links.iter().any(|link| link.name == *name) {
            return Err(BadDescription::Missing { kind: "link", name: name.clone() });
        }
    }
    for name in d.measured.iter().filter_map(|m| m.how.client.as_ref()) {
        if !d.clients.iter().any(|c| c.name == *name) {
            return Err(BadDescription::Missing { kind: "client", name: name.clone() });
        }
    }
    Ok(())
}

fn layout(d: &Described) -> Result<()> {
    let disks: u32 = d.disks.iter().map(|disk| disk.count).sum();
    if d.groups == 0 || d.groups > disks {
        return senseless(format!(
            "{} of {}: how many parity groups (vdevs) are there?",
            several(d.groups, "group"),
            several(disks, "disk")
        ));
    }
    if let Some(slots) = d.slots.filter(|slots| *slots < disks) {
        return senseless(format!(
            "slots = {slots}, and there are {}: for how many disks is there room?",
            several(disks, "disk")
        ));
    }
    if d.layout == Layout::Mirror && (d.copies < 2 || d.copies > disks) {
        return senseless(format!(
            "a mirror of {} on {}: how many copies are there?",
            match d.copies {
                1 => "1 copy".to_owned(),
                n => format!("{n} copies"),
            },
            several(disks, "disk")
        ));
    }
    // A box may also list disks that the pool does not use, so only too few of them is an error.
    let needed = (d.layout.parity() + 1) * d.groups;
    if d.layout.parity() > 0 && disks < needed {
        return senseless(format!(
            "the layout needs at least {needed} disks and the box has {disks}: which layout is it, or which disk is missing?"
        ));
    }
    if d.degraded && matches!(d.layout, Layout::Stripe | Layout::Linear) {
        return senseless(
            "degraded, and a layout without copies or parity: what was on the missing disk is lost. Which layout is it?",
        );
    }
    if !d.compression_ratio.is_finite() || !(1.0..=100.0).contains(&d.compression_ratio) {
        return senseless(format!(
            "compression_ratio = {}: how many bytes of data are one byte on the disks? 1 is none, 1.5 is usual",
            d.compression_ratio
        ));
    }
    Ok(())
}

fn measured(d: &Described, m: &Measured) -> Result<()> {
    for (name, count) in &m.disks {
        match d.disks.iter().find(|disk| disk.name == *name) {
            None => return Err(BadDescription::Missing { kind: "disk", name: name.clone() }),
            Some(disk) if *count == 0 || *count > disk.count => {
                return senseless(format!(
                    "{} '{name}' measured, and the box has {}",
                    several(*count, "disk"),
                    disk.count
                ));
            }
            Some(_) => {}
        }
    }
    let percents = [
        ("iowait", m.how.iowait_percent),
        ("irq", m.how.irq_percent),
        ("steal", m.how.steal_percent),
        ("throttled", m.how.throttled_percent),
        ("retransmits", m.how.retransmits_percent),
        ("disk_busy", m.how.disk_busy_percent),
    ];
    let cores = m.cores_percent.iter().chain(&m.how.client_cores).map(|p| ("cores", Some(*p)));
    for (field, percent) in cores.chain(percents) {
        // A hundredth above is a sampler's rounding.
        if percent.is_some_and(|p| !(0.0..=101.0).contains(&p)) {
            let said = percent.unwrap_or_default();
            return senseless(format!(
                "{field} has {said} percent: each is of one, from 0 to 100. Is it the sum of several?"
            ));
        }
    }
    Ok(())
}

/// Replaces `via` by all links on the way: one hub hangs on another.
pub(super) fn follow_links(described: &mut Described) -> Result<()> {
    let all: Vec<(String, Vec<String>)> = described.links.iter().map(|l| (l.name.clone(), l.via.clone())).collect();
    let follow = |via: &[String]| -> Result<Vec<String>> {
        let mut way: Vec<String> = Vec::new();
        let mut next: Vec<String> = via.to_vec();
        while let Some(name) = next.pop() {
            if !way.contains(&name) {
                next.extend(all.iter().filter(|(n, _)| *n == name).flat_map(|(_, via)| via.clone()));
                way.push(name);
            }
        }
        Ok(way)
    };
    for (name, via) in &all {
        if follow(via)?.contains(name) {
            return senseless(format!(
                "the link '{name}' leads back to itself: which end of it is nearer to the processor?"
            ));
        }
    }
    for disk in &mut described.disks {
        disk.via = follow(&disk.via)?;
    }
    for network in described.network.iter_mut().chain(&mut described.upgrades) {
        network.via = follow(&network.via)?;
    }
    Ok(())
}
