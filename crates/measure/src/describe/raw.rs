//! The fields of a description as they are written (docs/doctor.md has the table), and what each must be.

use serde::Deserialize;

use super::described::{Caching, Client, Described, Disk, Goal, How, Layout, Link, Measured, Network, Side, Work};
use super::error::BadDescription;
use super::limits::{DiskKind, Duplex, Wire};
use super::units::{rate, seconds, size};
use super::way::{Path, What};

/// More of anything is no home's box.
pub(crate) const COUNT_MAX: usize = 256;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Raw {
    name: String,
    memory: Option<String>,
    #[serde(default)]
    layout: Layout,
    #[serde(default = "one")]
    groups: u32,
    #[serde(default = "two")]
    copies: u32,
    record: Option<String>,
    compression_ratio: Option<f64>,
    #[serde(default)]
    degraded: bool,
    slots: Option<u32>,
    #[serde(default)]
    link: Vec<RawLink>,
    #[serde(default)]
    disk: Vec<RawDisk>,
    network: Option<RawNetwork>,
    #[serde(default)]
    upgrade: Vec<RawNetwork>,
    #[serde(default)]
    client: Vec<RawClient>,
    #[serde(default)]
    work: Vec<RawWork>,
    #[serde(default)]
    goal: Vec<RawGoal>,
    #[serde(default)]
    measured: Vec<RawMeasured>,
}

/// A rate that somebody wants, each of so many clients.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawGoal {
    what: Option<What>,
    rate: Option<String>,
    network: Option<String>,
    #[serde(default = "one")]
    clients: u32,
}

fn one() -> u32 {
    1
}

fn two() -> u32 {
    2
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawLink {
    name: String,
    #[serde(rename = "type")]
    kind: Option<String>,
    limit: Option<String>,
    limit_read: Option<String>,
    limit_write: Option<String>,
    could: Option<String>,
    duplex: Option<Duplex>,
    #[serde(default)]
    via: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawDisk {
    name: String,
    #[serde(default = "one")]
    count: u32,
    kind: Option<DiskKind>,
    connection: Option<String>,
    could: Option<String>,
    temperature: Option<f64>,
    temperature_limit: Option<f64>,
    read: Option<String>,
    write: Option<String>,
    random_read: Option<f64>,
    random_write: Option<f64>,
    latency: Option<String>,
    flush: Option<String>,
    cache: Option<String>,
    write_cached: Option<String>,
    #[serde(default)]
    via: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawNetwork {
    name: String,
    #[serde(rename = "type")]
    kind: Option<String>,
    limit: Option<String>,
    round_trip: Option<String>,
    window: Option<String>,
    #[serde(default)]
    via: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawClient {
    name: String,
    memory: Option<String>,
    #[serde(rename = "type")]
    kind: Option<String>,
    limit: Option<String>,
    disk_read: Option<String>,
    disk_write: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawWork {
    name: String,
    rate_per_core: String,
    #[serde(default = "one")]
    cores: u32,
    at: Option<Side>,
    #[serde(default)]
    of: Vec<What>,
    #[serde(default)]
    paths: Vec<Path>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawMeasured {
    path: Path,
    what: RawWhat,
    rate: Option<String>,
    /// Of a mix, percent.
    reads: Option<f64>,
    /// Files or entries each second, and the size of one.
    files: Option<f64>,
    size: Option<String>,
    iops: Option<f64>,
    #[serde(default)]
    disks: Vec<(String, u32)>,
    #[serde(default)]
    cores: Vec<f64>,
    file: Option<String>,
    with: Option<String>,
    block: Option<String>,
    depth: Option<u32>,
    jobs: Option<u32>,
    latency: Option<String>,
    #[serde(default)]
    sync: bool,
    caches: Option<Caching>,
    client: Option<String>,
    encryption: Option<String>,
    #[serde(default)]
    client_cores: Vec<f64>,
    iowait: Option<f64>,
    irq: Option<f64>,
    steal: Option<f64>,
    throttled: Option<f64>,
    retransmits: Option<f64>,
    disk_busy: Option<f64>,
    fragments: Option<u64>,
    port: Option<String>,
}

/// Accesses as people name them.
#[derive(Clone, Copy, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
enum RawWhat {
    Read,
    Write,
    RandomRead,
    RandomWrite,
    /// Random reads and writes together, as fio's `rwmixread`.
    Mixed,
    /// Many small files, thumbnails among them.
    ReadFiles,
    WriteFiles,
    /// Names of a folder, with their attributes.
    List,
}

impl RawWhat {
    fn what(self) -> What {
        match self {
            Self::Read | Self::ReadFiles => What::Read,
            Self::Write | Self::WriteFiles => What::Write,
            Self::RandomRead | Self::Mixed | Self::List => What::RandomRead,
            Self::RandomWrite => What::RandomWrite,
        }
    }

    fn is_of_files(self) -> bool {
        matches!(self, Self::ReadFiles | Self::WriteFiles | Self::List)
    }
}

type Result<T> = std::result::Result<T, BadDescription>;

pub(crate) fn described(raw: Raw) -> Result<Described> {
    let mut described = as_written(raw)?;
    // All disks of a box with one are that one by itself.
    if let [only] = described.disks.as_slice()
        && only.count == 1
    {
        let all = described.measured.iter_mut().filter(|m| m.path == Path::Disks && m.disks.is_empty());
        all.for_each(|m| m.disks = vec![(only.name.clone(), 1)]);
    }
    Ok(described)
}

fn as_written(raw: Raw) -> Result<Described> {
    Ok(Described {
        name: raw.name,
        memory_bytes: optional(&raw.memory, size)?,
        layout: raw.layout,
        groups: raw.groups,
        copies: raw.copies,
        record_bytes: optional(&raw.record, size)?,
        compression_ratio: raw.compression_ratio.unwrap_or(1.0),
        degraded: raw.degraded,
        slots: raw.slots,
        of_bench: false,
        of_machine: false,
        links: raw.link.into_iter().map(link).collect::<Result<_>>()?,
        disks: raw.disk.into_iter().map(disk).collect::<Result<_>>()?,
        network: raw.network.map(network).transpose()?,
        upgrades: raw.upgrade.into_iter().map(network).collect::<Result<_>>()?,
        clients: raw.client.into_iter().map(client).collect::<Result<_>>()?,
        work: raw.work.into_iter().map(work).collect::<Result<_>>()?,
        ciphers: Vec::new(),
        goals: raw.goal.into_iter().map(goal).collect::<Result<_>>()?,
        measured: raw.measured.into_iter().map(measured).collect::<Result<_>>()?,
    })
}

fn goal(raw: RawGoal) -> Result<Goal> {
    let senseless = |text: &str| Err(BadDescription::Senseless(text.to_owned()));
    if !(1..=1000).contains(&raw.clients) {
        return senseless("clients of a goal are 1 to 1000");
    }
    if raw.what.is_some_and(|what| !matches!(what, What::Read | What::Write)) {
        return senseless("what of a goal is read or write; without it both are meant");
    }
    let rate = match (&raw.rate, &raw.network) {
        (Some(text), None) => rate(text)?,
        (None, Some(name)) => match Wire::named(name) {
            Some(wire) => wire.practical,
            None => return senseless(&format!("'{name}' of a goal is no network that is known: give its rate")),
        },
        _ => return senseless("a goal has either a rate or a network"),
    };
    Ok(Goal { what: raw.what, rate, network: raw.network, clients: raw.clients })
}

fn optional<T>(text: &Option<String>, read: fn(&str) -> Result<T>) -> Result<Option<T>> {
    text.as_deref().map(read).transpose()
}

fn senseless<T>(text: impl Into<String>) -> Result<T> {
    Err(BadDescription::Senseless(text.into()))
}

fn wire(kind: &Option<String>) -> Result<Option<Wire>> {
    optional(kind, |text| Wire::named(text).ok_or_else(|| BadDescription::Wire(text.to_owned())))
}

/// Of a type, or of what something is called. Several cables together are none of the wires that their name has.
fn by_name(wire: Option<Wire>, name: &str) -> Option<Wire> {
    wire.or_else(|| Wire::named(name).filter(|_| !is_bond(name)))
}

fn link(raw: RawLink) -> Result<Link> {
    let wire = wire(&raw.kind)?;
    let called = by_name(wire.clone(), &raw.name);
    let unsaid = raw.limit.is_none() && raw.limit_read.is_none() && raw.limit_write.is_none();
    let wire = wire.or(called.clone().filter(|_| unsaid));
    let both = optional(&raw.limit, rate)?.or(wire.as_ref().map(|w| w.practical));
    let (read, write) = (optional(&raw.limit_read, rate)?.or(both), optional(&raw.limit_write, rate)?.or(both));
    let (Some(read), Some(write)) = (read, write) else {
        return senseless(format!(
            "how fast is the link '{}'? Give type = (such as \"PCIe 3.0 x4\") or limit = (in practice)",
            raw.name
        ));
    };
    // A figure alone says nothing of directions: it is what all that passes has together. A name may say more.
    let duplex = raw.duplex.unwrap_or(called.as_ref().map_or(Duplex::Half, |w| w.duplex));
    let could = more(self::wire(&raw.could)?, read.min(write), &raw.name)?;
    Ok(Link { name: raw.name, read, write, wire, could, duplex, address: None, via: raw.via })
}

fn disk(raw: RawDisk) -> Result<Disk> {
    if raw.count == 0 || raw.count as usize > COUNT_MAX {
        return senseless(format!("count = {} of the disk '{}': how many of it are in the box?", raw.count, raw.name));
    }
    for (field, value) in [("random_read", raw.random_read), ("random_write", raw.random_write)] {
        if let Some(value) = value.filter(|v| !v.is_finite() || *v <= 0.0) {
            return senseless(format!(
                "{field} = {value} of the disk '{}': how many operations does it do each second? Leave the field out if that is not known",
                raw.name
            ));
        }
    }
    let connection = wire(&raw.connection)?;
    let least = connection.as_ref().map_or(f64::INFINITY, |wire| wire.practical);
    if let Some(wire) = connection.as_ref().filter(|w| w.is_air() || w.is_ethernet()) {
        return senseless(format!(
            "the disk '{}' is connected by {}: a disk hangs on PCIe, SATA, SAS or USB. Is it reached over a network (then describe that as a [[link]], and name it in via =)?",
            raw.name, wire.name
        ));
    }
    let given = [raw.temperature, raw.temperature_limit].into_iter().flatten();
    if let Some(at) = given.into_iter().find(|t| !(-40.0..=150.0).contains(t)) {
        return senseless(format!("temperature = {at} of the disk '{}': how many degrees Celsius?", raw.name));
    }
    Ok(Disk {
        could: more(wire(&raw.could)?, least, &raw.name)?,
        temperature_c: raw.temperature,
        temperature_max_c: raw.temperature_limit,
        kind: raw.kind,
        read: optional(&raw.read, rate)?,
        write: optional(&raw.write, rate)?,
        random_read: raw.random_read,
        random_write: raw.random_write,
        latency_s: optional(&raw.latency, seconds)?,
        flush_s: optional(&raw.flush, seconds)?,
        cache_bytes: optional(&raw.cache, size)?,
        write_cached: optional(&raw.write_cached, rate)?,
        connection,
        name: raw.name,
        count: raw.count,
        via: raw.via,
    })
}

/// The best of both ends, which must be more than they agreed on.
fn more(could: Option<Wire>, now: f64, name: &str) -> Result<Option<Wire>> {
    match &could {
        Some(wire) if wire.practical <= now => senseless(format!(
            "could = \"{}\" of '{name}' is no more than what it has: give connection = or type = as negotiated, and could = what both ends can",
            wire.name
        )),
        _ => Ok(could),
    }
}

fn network(raw: RawNetwork) -> Result<Network> {
    let wire = by_name(wire(&raw.kind)?, &raw.name);
    let Some(bytes_per_s) = optional(&raw.limit, rate)?.or(wire.as_ref().map(|w| w.practical)) else {
        return senseless(format!(
            "how fast is the network '{}'? Give limit = as iperf3 measures it, or type = (such as \"2.5 GbE\")",
            raw.name
        ));
    };
    if raw.window.is_some() && raw.round_trip.is_none() {
        return senseless(format!(
            "window = of the network '{}' needs round_trip =: how long does a packet take there and back (ping says)?",
            raw.name
        ));
    }
    Ok(Network {
        radio: wire.as_ref().is_some_and(Wire::is_air) || is_radio(&raw.name),
        wire,
        bonded: is_bond(&raw.name),
        name: raw.name,
        bytes_per_s,
        round_trip_s: optional(&raw.round_trip, seconds)?,
        window_bytes: optional(&raw.window, size)?,
        via: raw.via,
    })
}

/// Whether a name says that a network is radio.
pub(crate) fn is_radio(name: &str) -> bool {
    let plain = name.to_lowercase();
    ["wi-fi", "wifi", "wlan", "wireless", "802.11"].iter().any(|word| plain.contains(word))
}

/// Whether a name says that several cables are used as one (IEEE 802.1AX).
pub(crate) fn is_bond(name: &str) -> bool {
    let plain = name.to_lowercase();
    ["bond", "lacp", "lagg", "aggregat", "802.3ad"].iter().any(|word| plain.contains(word))
}

pub(crate) fn client_alone(text: &str) -> Result<Client> {
    let raw: RawClient = toml::from_str(text).map_err(|e| BadDescription::Toml(e.to_string().trim_end().to_owned()))?;
    client(raw)
}

fn client(raw: RawClient) -> Result<Client> {
    let wire = wire(&raw.kind)?;
    let own = optional(&raw.limit, rate)?.or(wire.as_ref().map(|w| w.practical));
    let kind = wire.as_ref().map_or("network card".to_owned(), |w| w.name.clone());
    Ok(Client {
        wire,
        network: own.map(|bytes| (format!("the {kind} of {}", raw.name), bytes)),
        memory_bytes: optional(&raw.memory, size)?,
        disk_read: optional(&raw.disk_read, rate)?,
        disk_write: optional(&raw.disk_write, rate)?,
        name: raw.name,
    })
}

fn work(raw: RawWork) -> Result<Work> {
    if raw.cores == 0 {
        return senseless(format!("'{}' on 0 cores: on how many can it run at the same time?", raw.name));
    }
    Ok(Work {
        bytes_per_s: rate(&raw.rate_per_core)? * f64::from(raw.cores),
        name: raw.name,
        cores: raw.cores,
        at: raw.at.unwrap_or(Side::Server),
        of: raw.of,
        paths: raw.paths,
    })
}

fn measured(raw: RawMeasured) -> Result<Measured> {
    let block_bytes = optional(&raw.block, size)?;
    let what = raw.what.what();
    let rate = match (what.is_random(), &raw.rate, raw.iops) {
        _ if raw.files.is_some() => files_rate(&raw)?,
        (false, Some(text), None) => rate(text)?,
        (true, None, Some(iops)) if iops.is_finite() && iops > 0.0 => iops,
        (true, Some(text), None) if block_bytes.is_some() => rate(text)? / block_bytes.unwrap_or(1) as f64,
        (true, None, Some(iops)) => {
            return senseless(format!("iops = {iops} was measured: how many operations each second, more than 0?"));
        }
        (_, Some(_), Some(_)) => {
            return senseless("a measurement has rate = and iops =: which of the two was measured?");
        }
        _ => {
            return senseless(
                "a measurement of read or write needs rate =, one of random-read or random-write needs iops =, or rate = and block =",
            );
        }
    };
    if raw.reads.is_some() != (raw.what == RawWhat::Mixed) || raw.reads.is_some_and(|p| !(0.0..=100.0).contains(&p)) {
        return senseless("what = \"mixed\" needs reads =, and nothing else has it: how many percent of it are reads?");
    }
    if raw.depth == Some(0) || raw.jobs == Some(0) {
        return senseless(
            "depth = 0 or jobs = 0: how many requests were in flight? Leave them out if that is not known",
        );
    }
    let in_order = !what.is_random() && !raw.what.is_of_files();
    if raw.fragments.is_some_and(|n| n == 0 || raw.file.is_none() || !in_order) {
        return senseless(
            "fragments = is in how many pieces one large file lies, at least 1, and needs file =: how large is it?",
        );
    }
    let in_flight =
        raw.depth.or(raw.jobs).map(|_| f64::from(raw.depth.unwrap_or(1)) * f64::from(raw.jobs.unwrap_or(1)));
    Ok(Measured {
        path: raw.path,
        what,
        rate,
        disks: raw.disks,
        cores_percent: raw.cores,
        file_bytes: optional(&raw.file, size)?,
        with: raw.with,
        how: How {
            block_bytes,
            in_flight,
            latency_s: optional(&raw.latency, seconds)?,
            sync: raw.sync,
            small_files: raw.what.is_of_files(),
            reads_percent: raw.reads,
            caches: raw.caches,
            client: raw.client,
            encryption: raw.encryption.filter(|kind| kind != "none"),
            client_cores: raw.client_cores,
            iowait_percent: raw.iowait,
            irq_percent: raw.irq,
            steal_percent: raw.steal,
            retransmits_percent: raw.retransmits,
            throttled_percent: raw.throttled,
            disk_busy_percent: raw.disk_busy,
            fragments: raw.fragments,
            port: raw.port,
            ..How::default()
        },
    })
}

/// Files each second, by their size; names of a folder have none.
fn files_rate(raw: &RawMeasured) -> Result<f64> {
    let files = raw.files.filter(|files| files.is_finite() && *files > 0.0 && raw.what.is_of_files());
    match (files, optional(&raw.size, size)?, raw.what) {
        (Some(files), _, RawWhat::List) => Ok(files),
        (Some(files), Some(size), _) if size > 0 && raw.rate.is_none() => Ok(files * size as f64),
        _ => senseless(
            "files = is how many files or entries each second, more than 0, of read-files, write-files or list; files need size = (of one) or rate = instead",
        ),
    }
}
