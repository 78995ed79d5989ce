//! A description once it is checked.

use larder_facts::machine::Arrangement;
use serde::{Deserialize, Serialize};

use super::limits::{DiskKind, Duplex, Wire};
use super::way::{Path, What};

/// How one piece of data lies on the disks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Layout {
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
    pub(crate) fn parity(self) -> u32 {
        match self {
            Self::Raidz1 | Self::Raid5 => 1,
            Self::Raidz2 | Self::Raid6 => 2,
            Self::Raidz3 => 3,
            Self::Stripe | Self::Linear | Self::Mirror => 0,
        }
    }

    pub(crate) fn is_raidz(self) -> bool {
        matches!(self, Self::Raidz1 | Self::Raidz2 | Self::Raidz3)
    }
}

/// A layout with its numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Shape {
    pub(crate) layout: Layout,
    /// Parity groups (vdevs) beside each other.
    pub(crate) groups: u32,
    pub(crate) copies: u32,
}

impl Shape {
    pub(crate) const STRIPE: Self = Self { layout: Layout::Stripe, groups: 1, copies: 1 };

    /// As larder and the kernel name layouts.
    pub(crate) fn named(kind: &str) -> Option<Self> {
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

    pub(crate) fn of(arrangement: &Arrangement) -> Option<Self> {
        let shape = Self::named(&arrangement.kind)?;
        Some(Self { groups: arrangement.groups.max(1), copies: arrangement.copies.max(1), ..shape })
    }
}

/// A box, checked: every name that is used is defined.
#[derive(Clone, Debug)]
pub struct Described {
    pub name: String,
    pub(crate) memory_bytes: Option<u64>,
    pub(crate) layout: Layout,
    /// Parity groups (vdevs) beside each other.
    pub(crate) groups: u32,
    pub(crate) copies: u32,
    pub(crate) record_bytes: Option<u64>,
    /// Bytes of data for each byte on the disks.
    pub(crate) compression_ratio: f64,
    /// A disk of the pool is missing, or being rebuilt.
    pub(crate) degraded: bool,
    /// For how many disks there is room.
    pub(crate) slots: Option<u32>,
    pub(crate) links: Vec<Link>,
    pub(crate) disks: Vec<Disk>,
    pub(crate) network: Option<Network>,
    pub(crate) upgrades: Vec<Network>,
    /// Whether a bench measured all of it: each figure is of one moment, and disks of virtual machines vary.
    pub(crate) of_bench: bool,
    /// Whether wires are as a machine negotiated them, and not as somebody names them.
    pub(crate) of_machine: bool,
    pub(crate) clients: Vec<Client>,
    pub(crate) work: Vec<Work>,
    /// The rate at which one core encrypts, by the cipher's name.
    pub(crate) ciphers: Vec<(String, f64)>,
    pub(crate) goals: Vec<Goal>,
    pub measured: Vec<Measured>,
}

/// What somebody wants of it.
#[derive(Clone, Debug)]
pub(crate) struct Goal {
    /// Both directions where none is named.
    pub(crate) what: Option<What>,
    /// Of one client.
    pub(crate) rate: f64,
    /// The network that one client is to fill.
    pub(crate) network: Option<String>,
    pub(crate) clients: u32,
}

impl Goal {
    pub(crate) fn words(&self) -> String {
        let clients = if self.clients == 1 { "one client".to_owned() } else { format!("{} clients", self.clients) };
        self.network.as_ref().map_or(clients.clone(), |network| format!("{clients} with {network}"))
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Link {
    pub(crate) name: String,
    /// Towards the machine, and away from it.
    pub(crate) read: f64,
    pub(crate) write: f64,
    pub(crate) wire: Option<Wire>,
    /// The best that both ends support, where they agreed on less.
    pub(crate) could: Option<Wire>,
    pub(crate) duplex: Duplex,
    /// Its place in the kernel's device tree, of a machine that was read.
    pub(crate) address: Option<String>,
    /// The links between it and the machine.
    pub(crate) via: Vec<String>,
}

/// Disks of one kind. Rates are those of one disk by itself, where they are known.
#[derive(Clone, Debug, Default)]
pub(crate) struct Disk {
    pub(crate) name: String,
    pub(crate) count: u32,
    pub(crate) kind: Option<DiskKind>,
    pub(crate) read: Option<f64>,
    pub(crate) write: Option<f64>,
    pub(crate) random_read: Option<f64>,
    pub(crate) random_write: Option<f64>,
    /// Of one request, when nothing else is under way.
    pub(crate) latency_s: Option<f64>,
    pub(crate) flush_s: Option<f64>,
    /// Size of its fast cache, and the rate at which the cache takes writes.
    pub(crate) cache_bytes: Option<u64>,
    pub(crate) write_cached: Option<f64>,
    /// Each disk's own wire.
    pub(crate) connection: Option<Wire>,
    /// The best that both ends of the wire support, where they agreed on less.
    pub(crate) could: Option<Wire>,
    /// While it worked, degrees Celsius.
    pub(crate) temperature_c: Option<f64>,
    /// From here on it throttles, by its own sensor or its data sheet.
    pub(crate) temperature_max_c: Option<f64>,
    /// All links between it and the machine.
    pub(crate) via: Vec<String>,
}

impl Disk {
    pub(crate) fn rate(&self, what: What) -> Option<f64> {
        match what {
            What::Read => self.read,
            What::Write => self.write,
            What::RandomRead => self.random_read,
            What::RandomWrite => self.random_write,
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Network {
    pub(crate) name: String,
    /// Several cables are used as one.
    pub(crate) bonded: bool,
    pub(crate) bytes_per_s: f64,
    pub(crate) wire: Option<Wire>,
    /// Its name or its type says that it is radio.
    pub(crate) radio: bool,
    pub(crate) round_trip_s: Option<f64>,
    pub(crate) window_bytes: Option<u64>,
    /// Links that a byte passes on the network's side: those that the card shares with disks, switches, powerline.
    pub(crate) via: Vec<String>,
}

/// A client of the box.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    pub(crate) name: String,
    pub(crate) memory_bytes: Option<u64>,
    /// Its own card, where that is not the network's.
    pub(crate) network: Option<(String, f64)>,
    /// Of what type that card is.
    pub(crate) wire: Option<Wire>,
    pub(crate) disk_read: Option<f64>,
    pub(crate) disk_write: Option<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Side {
    Server,
    Client,
}

/// A processor's work on each byte: a cipher, a compressor, a checksum.
#[derive(Clone, Debug)]
pub(crate) struct Work {
    pub(crate) name: String,
    /// Bytes per second on all cores that it can use.
    pub(crate) bytes_per_s: f64,
    pub(crate) cores: u32,
    pub(crate) at: Side,
    pub(crate) of: Vec<What>,
    pub(crate) paths: Vec<Path>,
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
    /// Its repeats.
    #[serde(skip)]
    pub(crate) sample: crate::stats::Sample,
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
    /// Many small files, one after the other.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub small_files: bool,
    /// Percent of reads in a mix of both directions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reads_percent: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub caches: Option<Caching>,
    /// The cipher, by name; nothing where it was plain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub encryption: Option<String>,
    /// Why it proves nothing, as who measured says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub doubt: Option<String>,
    /// The client keeps nothing: all that was read came over the network, from the server's disks or its memory.
    pub past_client: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub client_cores: Vec<f64>,
    /// The serving machine, where that is not the one whose disks are described: then nothing is known of its disks.
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
    /// A disk that fell behind its own beginning: by how much, and why.
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
    /// The pieces of the disk in which the file lies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fragments: Option<u64>,
    /// The port, cable, adapter or enclosure, where others were tried.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<String>,
    /// Cores were full, and not of this: they say nothing of it, and it says little of the box.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub others_work: bool,
}

/// The block size of fio and its kind where none is given.
pub(crate) const RANDOM_BLOCK_BYTES: u64 = 4096;

impl Measured {
    /// A measurement that nobody has taken, to ask for its limits.
    pub(crate) fn imagined(path: Path, what: What) -> Self {
        Self {
            path,
            what,
            rate: f64::MIN_POSITIVE,
            disks: Vec::new(),
            cores_percent: Vec::new(),
            file_bytes: None,
            with: None,
            how: How::default(),
        }
    }

    pub(crate) fn block_bytes(&self) -> Option<u64> {
        self.how.block_bytes.or(self.what.is_random().then_some(RANDOM_BLOCK_BYTES))
    }

    /// Of random access too: operations times their size.
    pub(crate) fn bytes_per_s(&self) -> f64 {
        match self.what.is_random() {
            true => self.rate * self.block_bytes().unwrap_or(RANDOM_BLOCK_BYTES) as f64,
            false => self.rate,
        }
    }
}

impl Described {
    /// How what was measured lies on its disks.
    pub(crate) fn shape(&self, measured: &Measured) -> Shape {
        measured.how.shape.unwrap_or(self.own_shape())
    }

    pub(crate) fn own_shape(&self) -> Shape {
        Shape { layout: self.layout, groups: self.groups, copies: self.copies }
    }
}
