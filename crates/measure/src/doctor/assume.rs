//! Other parts: `--assume nic=2.5g` changes one thing of a box, `--plan` asks what a box would give each client.
//!
//! Both ask the chain that the verdicts come from. Measurements count as long as they did not cross what changes.

use larder_base::units::ByteSize;
use serde::Serialize;

use super::sentences::{Words, what_words};
use super::words::rate_words;
use crate::describe::limits::{DiskKind, Wire};
use crate::describe::{BadDescription, Described, Disk, Layout, Network, Path, Shape, What};
use crate::reason::{Basis, ResourceId, Rig, Stage, Table, asked_about, expected, in_another_rig, judge};

type Change = fn(&mut Described, &str) -> Option<ResourceId>;

/// The assumptions: key, form of the value, and change. A new one is a row here.
const ASSUMPTIONS: &[(&str, &str, Change)] = &[
    ("nic", "2.5g, 10g or a name such as Wi-Fi 6", |described, value| {
        let wire = wire(value)?;
        let old = described.network.take();
        let via = old.as_ref().map_or(Vec::new(), |network| network.via.clone());
        let round_trip_s = old.and_then(|network| network.round_trip_s);
        let (name, bytes_per_s) = (wire.name.clone(), wire.practical);
        let radio = wire.is_air();
        let wire = Some(wire);
        let network = Network { name, bonded: false, bytes_per_s, wire, radio, round_trip_s, window_bytes: None, via };
        described.network = Some(network);
        Some(ResourceId::Network)
    }),
    ("client", "the clients' card: 2.5g, 10g or a name such as Wi-Fi 6", |described, value| {
        let wire = wire(value)?;
        for client in &mut described.clients {
            client.network = Some((wire.name.clone(), wire.practical));
            client.wire = Some(wire.clone());
        }
        (!described.clients.is_empty()).then_some(ResourceId::ClientCard(0))
    }),
    ("disks", "how many, such as 6", |described, value| {
        let wanted = value.parse::<u32>().ok().filter(|n| (1..=1000).contains(n))?;
        let others: u32 = described.disks.iter().rev().skip(1).map(|disk| disk.count).sum();
        described.disks.last_mut()?.count = wanted.checked_sub(others).filter(|n| *n > 0)?;
        Some(ResourceId::Disks)
    }),
    ("kind", "hdd, sata-ssd, qlc, nvme, ...", |described, value| {
        let kind: DiskKind = serde_json::from_value(serde_json::Value::String(value.to_owned())).ok()?;
        for disk in &mut described.disks {
            let (name, count, via) = (disk.name.clone(), disk.count, disk.via.clone());
            *disk = Disk { name, count, via, kind: Some(kind), ..Disk::default() };
        }
        Some(ResourceId::Disks)
    }),
    ("layout", "stripe, mirror, raidz1, raidz2, ...", |described, value| {
        let Shape { layout, groups, copies } = Shape::named(value)?;
        (described.layout, described.groups, described.copies) = (layout, groups, copies);
        let disks: u32 = described.disks.iter().map(|disk| disk.count).sum();
        let enough = if layout == Layout::Mirror { copies } else { layout.parity() + 2 };
        (layout == Layout::Stripe || disks >= enough).then_some(ResourceId::Disks)
    }),
    ("record", "a size such as 16KiB", |described, value| {
        described.record_bytes = Some(value.parse::<ByteSize>().ok()?.0);
        Some(ResourceId::Disks)
    }),
];

/// `2.5g` and `100m` as people say it, or any name of a wire.
fn wire(text: &str) -> Option<Wire> {
    let plain = text.to_lowercase();
    let number = |suffix: char| plain.strip_suffix(suffix).filter(|n| n.parse::<f64>().is_ok());
    match (number('g'), number('m')) {
        (Some("1"), _) => Wire::named("gigabit"),
        (Some(gigabits), _) => Wire::named(&format!("{gigabits}gbe")),
        (_, Some(megabits)) => Wire::named(&format!("{megabits}mbit")),
        _ => Wire::named(text),
    }
}

/// The predicted rates of a box with one part changed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Assumed {
    pub version: u32,
    pub name: String,
    pub assumptions: Vec<String>,
    pub ways: Vec<AssumedWay>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AssumedWay {
    pub title: String,
    pub of: What,
    /// As measured, or what the chain of the box as it is allows.
    pub rate_now: f64,
    pub is_measured: bool,
    pub rate_then: f64,
    /// The bottleneck then.
    pub limit: String,
    /// How that limit is known.
    pub basis: Option<Basis>,
}

/// Applies `KEY=VALUE`s to a box and asks its chain again.
pub fn assume(described: &Described, assumptions: &[String]) -> Result<Assumed, BadDescription> {
    let mut after = described.clone();
    let mut touched = Vec::new();
    for text in assumptions {
        let (key, value) = text.split_once('=').unwrap_or((text, ""));
        let Some((_, written, change)) = ASSUMPTIONS.iter().find(|(known, ..)| *known == key) else {
            let known: Vec<&str> = ASSUMPTIONS.iter().map(|(key, ..)| *key).collect();
            return Err(BadDescription::Senseless(format!("'{key}' cannot be assumed: write {}", known.join(", "))));
        };
        let wrong = || BadDescription::Senseless(format!("'{text}' does not fit this box: {key}= takes {written}"));
        touched.push(change(&mut after, value).ok_or_else(wrong)?);
    }
    let (rig, table) = (Rig::new(described), Table::of(described));
    let verdicts: Vec<_> = (0..table.rows.len()).filter_map(|row| judge(rig, &table, row)).collect();
    let rows = asked_about(&table, &verdicts, described.of_bench);
    let words = Words { rig: Rig::new(&after), table: &table };
    let titles = words.titles();
    let measured = rows.iter().filter_map(|row| {
        let m = described.measured.get(*row)?;
        let (rate_then, then) = in_another_rig(rig, &table, *row, &after, &touched)?;
        let limit = then.map_or("not known".to_owned(), |id| words.resource(*row, id));
        let title = titles.get(*row)?.clone();
        let rate_then = if rate_then.is_finite() { rate_then } else { m.rate };
        Some(AssumedWay { title, of: m.what, rate_now: m.rate, is_measured: true, rate_then, limit, basis: None })
    });
    let mut ways: Vec<AssumedWay> = measured.collect();
    if ways.is_empty() {
        ways.extend([What::Read, What::Write, What::RandomRead, What::RandomWrite].into_iter().filter_map(|what| {
            let path = path_of(&after);
            let (now, then) = (expected(described, path, what, None), expected(&after, path, what, None));
            let (now, then) = (now.first()?, then.first()?);
            Some(AssumedWay {
                title: format!("{}{}", what_words(what), place(path)),
                of: what,
                rate_now: now.limit,
                is_measured: false,
                rate_then: then.limit,
                limit: imagined_name(&after, then),
                basis: Some(then.basis),
            })
        }));
    }
    Ok(Assumed { version: 1, name: described.name.clone(), assumptions: assumptions.to_vec(), ways })
}

fn path_of(described: &Described) -> Path {
    if described.network.is_some() { Path::Share } else { Path::Local }
}

fn place(path: Path) -> &'static str {
    if path == Path::Share { " over the network" } else { " on the machine itself" }
}

fn imagined_name(described: &Described, stage: &Stage) -> String {
    Rig::new(described).name(stage.resource)
}

/// The predicted rates of a box for each client, before it is bought.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Plan {
    pub version: u32,
    pub name: String,
    pub ways: Vec<PlannedWay>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PlannedWay {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    /// The box's network, or one of its upgrades.
    pub network: String,
    pub of: What,
    /// At least and at most, where the parts leave a range.
    pub rate_low: f64,
    pub rate: f64,
    pub limit: String,
    pub basis: Basis,
    /// The next bottleneck, if that one were wider.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

pub fn plan(described: &Described) -> Plan {
    let clients: Vec<Option<&str>> = match described.clients.as_slice() {
        [] => vec![None],
        clients => clients.iter().map(|client| Some(client.name.as_str())).collect(),
    };
    let networks = described.network.iter().chain(&described.upgrades).cloned();
    let mut boxes: Vec<Described> = networks.map(|n| Described { network: Some(n), ..described.clone() }).collect();
    if boxes.is_empty() {
        boxes.push(described.clone());
    }
    let mut ways = Vec::new();
    for one in &boxes {
        let network = one.network.as_ref().map_or("none".to_owned(), |network| network.name.clone());
        for client in &clients {
            for what in [What::Read, What::Write, What::RandomRead, What::RandomWrite] {
                let stages = expected(one, path_of(one), what, *client);
                let Some(lowest) = stages.first() else { continue };
                let next = stages.iter().find(|s| s.resource != lowest.resource && s.limit > lowest.limit * 1.05);
                let next = next.map(|s| format!("{} by {}", rate_words(s.limit, what), imagined_name(one, s)));
                let (rate_low, rate) = (stages.iter().map(|s| s.limit_low).fold(f64::INFINITY, f64::min), lowest.limit);
                let limit = imagined_name(one, lowest);
                let client = client.map(str::to_owned);
                let network = network.clone();
                ways.push(PlannedWay { client, network, of: what, rate_low, rate, limit, basis: lowest.basis, next });
            }
        }
    }
    Plan { version: 1, name: described.name.clone(), ways }
}
