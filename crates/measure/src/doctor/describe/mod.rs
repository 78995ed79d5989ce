//! A box as a person (or a bench) describes it, in TOML: what is in it, how it hangs together, what was measured.
//!
//! `raw.rs` has the fields as they are written, this file what they mean once they are checked: every name that is
//! used is defined, every figure is positive, and ways through links are followed to their end.

use serde::{Deserialize, Serialize};

use super::limits::{DiskKind, Duplex, Wire};
use super::stages::Stage;
use crate::machine::Arrangement;

mod check;
mod raw;
mod units;

pub(super) use raw::is_bond;
#[cfg(test)]
pub(super) use units::rate;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadDescription {
    #[error("{0}")]
    Toml(String),
    #[error("'{0}' is not a rate: write 450MB/s, 4GiB/s or 935Mbit/s")]
    Rate(String),
    #[error("'{0}': bits or bytes? Write Mbit/s or MB/s, they are eight apart")]
    BitsOrBytes(String),
    #[error("'{0}' is not a size: write 8GiB or 32GB")]
    Size(String),
    #[error("'{0}' is not a time: write 80us, 5ms or 1.5s")]
    Time(String),
    #[error(
        "'{0}' names no wire: write PCIe 3.0 x4, USB 3.0, USB 2.0 BOT, SATA 6G, 2.5 GbE or Wi-Fi 5, or give limit ="
    )]
    Wire(String),
    #[error("there is no {kind} '{name}' in the description")]
    Missing { kind: &'static str, name: String },
    #[error("{0}")]
    Senseless(String),
}

/// The way that was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Path {
    /// The disks side by side, without a pool.
    #[serde(alias = "disk")]
    Disks,
    /// Through the pool, on the machine itself.
    #[serde(alias = "pool")]
    Local,
    /// The wire alone, without storage: reading is towards the client.
    #[serde(alias = "network", alias = "wire")]
    Net,
    /// Through pool and network.
    Share,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum What {
    Read,
    Write,
    RandomRead,
    RandomWrite,
}

impl What {
    pub fn is_random(self) -> bool {
        matches!(self, Self::RandomRead | Self::RandomWrite)
    }

    pub fn writes(self) -> bool {
        matches!(self, Self::Write | Self::RandomWrite)
    }
}

/// How one piece of data lies on the disks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Layout {
    #[default]
    #[serde(alias = "raid0")]
    Stripe,
    /// One disk after the other: a file lies on one.
    #[serde(alias = "single", alias = "jbod")]
    Linear,
    /// Two copies, or as many as `copies` says.
    #[serde(alias = "raid1", alias = "raid10")]
    Mirror,
    /// Each record on all disks, as in ZFS.
    #[serde(alias = "raidz")]
    Raidz1,
    Raidz2,
    Raidz3,
    /// Chunks on single disks with parity beside them, as in md.
    Raid5,
    Raid6,
}

impl Layout {
    pub(super) fn parity(self) -> u32 {
        match self {
            Self::Raidz1 | Self::Raid5 => 1,
            Self::Raidz2 | Self::Raid6 => 2,
            Self::Raidz3 => 3,
            Self::Stripe | Self::Linear | Self::Mirror => 0,
        }
    }

    pub(super) fn is_raidz(self) -> bool {
        matches!(self, Self::Raidz1 | Self::Raidz2 | Self::Raidz3)
    }
}

/// A layout with its numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Shape {
    pub(super) layout: Layout,
    /// Parity groups (vdevs) beside each other.
    pub(super) groups: u32,
    pub(super) copies: u32,
}

impl Shape {
    pub(super) const STRIPE: Self = Self { layout: Layout::Stripe, groups: 1, copies: 1 };

    /// As larder and the kernel name layouts.
    pub(super) fn named(kind: &str) -> Option<Self> {
        let one = |layout| Self { layout, ..Self::STRIPE };
        Some(match kind {
            "stripe" => Self::STRIPE,
            "linear" => one(Layout::Linear),
            "mirror" => Self { copies: 2, ..one(Layout::Mirror) },
            "mirror3" => Self { copies: 3, ..one(Layout::Mirror) },
            "raidz1" => one(Layout::Raidz1),
            "raidz2" => one(Layout::Raidz2),
            "raidz3" => one(Layout::Raidz3),
            "raid5" => one(Layout::Raid5),
            "raid6" => one(Layout::Raid6),
            _ => return None,
        })
    }

    pub(super) fn of(arrangement: &Arrangement) -> Option<Self> {
        let shape = Self::named(&arrangement.kind)?;
        Some(Self { groups: arrangement.groups.max(1), copies: arrangement.copies.max(1), ..shape })
    }
}

/// A box, checked: every name that is used is defined.
#[derive(Clone, Debug)]
pub struct Described {
    pub name: String,
    pub(super) memory_bytes: Option<u64>,
    pub(super) layout: Layout,
    /// Parity groups (vdevs) beside each other.
    pub(super) groups: u32,
    pub(super) copies: u32,
    pub(super) record_bytes: Option<u64>,
    /// Bytes of data for each byte on the disks.
    pub(super) compression_ratio: f64,
    /// A disk of the pool is missing, or being rebuilt.
    pub(super) degraded: bool,
    /// For how many disks there is room.
    pub(super) slots: Option<u32>,
    pub(super) links: Vec<Link>,
    pub(super) disks: Vec<Disk>,
    pub(super) network: Option<Network>,
    pub(super) upgrades: Vec<Network>,
    /// Whether a bench measured all of it: each figure is of one moment, and disks of virtual machines vary.
    pub(super) of_bench: bool,
    pub(super) clients: Vec<Client>,
    pub(super) work: Vec<Work>,
    pub measured: Vec<Measured>,
}

#[derive(Clone, Debug)]
pub(super) struct Link {
    pub(super) name: String,
    /// Towards the machine, and away from it.
    pub(super) read: f64,
    pub(super) write: f64,
    pub(super) wire: Option<Wire>,
    /// What both ends can, where they agreed on less.
    pub(super) could: Option<Wire>,
    pub(super) duplex: Duplex,
    /// The links between it and the machine.
    pub(super) via: Vec<String>,
}

/// Disks of one kind. Rates are those of one disk by itself, where they are known.
#[derive(Clone, Debug, Default)]
pub(super) struct Disk {
    pub(super) name: String,
    pub(super) count: u32,
    pub(super) kind: Option<DiskKind>,
    pub(super) read: Option<f64>,
    pub(super) write: Option<f64>,
    pub(super) random_read: Option<f64>,
    pub(super) random_write: Option<f64>,
    /// Of one request, when nothing else is under way.
    pub(super) latency_s: Option<f64>,
    pub(super) flush_s: Option<f64>,
    /// What it takes fast before it takes things slowly, and how fast.
    pub(super) cache_bytes: Option<u64>,
    pub(super) write_cached: Option<f64>,
    /// Each disk's own wire.
    pub(super) connection: Option<Wire>,
    /// What both ends of it can, where they agreed on less.
    pub(super) could: Option<Wire>,
    /// While it worked, degrees Celsius.
    pub(super) temperature_c: Option<f64>,
    /// All links between it and the machine.
    pub(super) via: Vec<String>,
}

impl Disk {
    pub(super) fn rate(&self, what: What) -> Option<f64> {
        match what {
            What::Read => self.read,
            What::Write => self.write,
            What::RandomRead => self.random_read,
            What::RandomWrite => self.random_write,
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Network {
    pub(super) name: String,
    pub(super) bytes_per_s: f64,
    pub(super) wire: Option<Wire>,
    pub(super) round_trip_s: Option<f64>,
    pub(super) window_bytes: Option<u64>,
    /// Links that a byte passes on the network's side: those that the card shares with disks, switches, powerline.
    pub(super) via: Vec<String>,
}

/// Who asks.
#[derive(Clone, Debug)]
pub(super) struct Client {
    pub(super) name: String,
    pub(super) memory_bytes: Option<u64>,
    /// Its own card, where that is not the network's.
    pub(super) network: Option<(String, f64)>,
    /// Of what type that card is.
    pub(super) wire: Option<Wire>,
    pub(super) disk_read: Option<f64>,
    pub(super) disk_write: Option<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Side {
    Server,
    Client,
}

/// What a processor does with each byte: a cipher, a compressor, a checksum.
#[derive(Clone, Debug)]
pub(super) struct Work {
    pub(super) name: String,
    /// Bytes per second on all cores that it can use.
    pub(super) bytes_per_s: f64,
    pub(super) cores: u32,
    pub(super) at: Side,
    pub(super) of: Vec<What>,
    pub(super) paths: Vec<Path>,
}

/// Whether caches could have answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Caching {
    /// O_DIRECT.
    Bypassed,
    Dropped,
    Warm,
}

/// Bytes or operations per second, and what was seen meanwhile.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Measured {
    pub path: Path,
    pub what: What,
    /// Per second: bytes, or operations of random access.
    pub rate: f64,
    /// Of which kind of disk how many took part; empty: all.
    pub disks: Vec<(String, u32)>,
    /// How busy the cores were, in percent.
    pub cores_percent: Vec<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub with: Option<String>,
    #[serde(flatten)]
    pub how: How,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Ends {
    pub server: String,
    pub client: String,
}

/// How it was measured, and what else was seen: all optional.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct How {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block_bytes: Option<u64>,
    /// Requests in flight, of all jobs together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_flight: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_s: Option<f64>,
    /// Of the pool that was measured, where it is not the box's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shape: Option<Shape>,
    /// Each write waited for its flush.
    pub sync: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub caches: Option<Caching>,
    /// Why it proves nothing, as who measured says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub doubt: Option<String>,
    /// The client keeps nothing: all that was read came over the network, from the server's disks or its memory.
    pub past_client: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub client_cores: Vec<f64>,
    /// Who serves, where that is not the machine whose disks are described: then nothing is known of what lies below.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub elsewhere: Option<String>,
    /// The machines that served and that asked, by name, where both were watched.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ends: Option<Ends>,
    /// Percent of the time in which cores waited for disks, spent in interrupts, or were taken by a host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iowait_percent: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub irq_percent: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steal_percent: Option<f64>,
    /// Percent of the segments that TCP sent again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retransmits_percent: Option<f64>,
    /// Percent of the time in which heat or a weak power supply held the clock down.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub throttled_percent: Option<f64>,
    /// A process that does this work and what holds it back, by a control group's quota.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quota: Option<String>,
    /// Where a disk was seen to fall behind its own beginning: how much, and why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slowed: Option<String>,
    /// Of the machine that served, where that is not the one described; and of the one that asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_memory_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_memory_bytes: Option<u64>,
    /// How busy disks were, in percent of the time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk_busy_percent: Option<f64>,
    /// Cores were full, and not of this: they say nothing of it, and it says little of the box.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub others_work: bool,
}

/// What fio and its kind take where nothing is said.
pub(super) const RANDOM_BLOCK_BYTES: u64 = 4096;

impl Measured {
    pub(super) fn block_bytes(&self) -> Option<u64> {
        self.how.block_bytes.or(self.what.is_random().then_some(RANDOM_BLOCK_BYTES))
    }

    /// Of random access too: operations times their size.
    pub(super) fn bytes_per_s(&self) -> f64 {
        match self.what.is_random() {
            true => self.rate * self.block_bytes().unwrap_or(RANDOM_BLOCK_BYTES) as f64,
            false => self.rate,
        }
    }
}

/// What is mostly meant where a type is wrong.
fn hinted(text: &str) -> String {
    let hint = match text {
        t if t.contains("expected a string") => {
            "; rates, sizes and times are in quotes and have a unit, such as \"450MB/s\": which is it?"
        }
        t if t.contains("invalid type: string") && t.contains("expected f64") => {
            "; operations and percents are plain numbers, such as 90000"
        }
        _ => "",
    };
    format!("{text}{hint}")
}

impl Described {
    /// How what was measured lies on its disks.
    pub(super) fn shape(&self, measured: &Measured) -> Shape {
        let own = Shape { layout: self.layout, groups: self.groups, copies: self.copies };
        measured.how.shape.unwrap_or(own)
    }

    /// Whether a stage is work that is described, at either end.
    pub(super) fn is_work(&self, stage: &Stage) -> bool {
        self.work.iter().any(|work| stage.name.starts_with(&work.name))
    }

    pub fn parse(text: &str) -> Result<Self, BadDescription> {
        let raw: raw::Raw = toml::from_str(text).map_err(|e| BadDescription::Toml(hinted(e.to_string().trim_end())))?;
        let mut described = raw::described(raw)?;
        check::check(&described)?;
        check::follow_links(&mut described)?;
        Ok(described)
    }

    /// The fields of one `[[client]]`, as a file of its own.
    pub(super) fn client(text: &str) -> Result<Client, BadDescription> {
        raw::client_alone(text)
    }
}
