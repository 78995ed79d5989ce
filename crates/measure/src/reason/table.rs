//! The table of measurements. A run of the bench and a typed `[[measured]]` become the same row.

use crate::describe::{Caching, Described, Measured, Path, RANDOM_BLOCK_BYTES, Shape, What};

use super::doubt::{Doubt, doubt};
use crate::stats::Sample;

/// Read-ahead cuts larger blocks into such pieces.
const LARGE_BLOCK_BYTES: u64 = 1 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// Towards the client.
    Read,
    Write,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pattern {
    Sequential,
    Random,
}

/// How something was measured: what two rows must share to be compared.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Setup {
    pub layer: Path,
    pub direction: Direction,
    pub pattern: Pattern,
    pub block_bytes: Option<u64>,
    /// Requests in flight, of all jobs together; connections where the wire alone was measured.
    pub in_flight: Option<f64>,
    pub sync: bool,
    /// Many small files, one after the other.
    pub small_files: bool,
    /// Percent of reads in a mix of both directions.
    pub reads_percent: Option<f64>,
    pub caches: Option<Caching>,
    /// Indices of the rig's disks, and how many of each took part.
    pub disks: Vec<(usize, u32)>,
    pub shape: Shape,
    /// Index of the rig's clients.
    pub client: Option<usize>,
    /// The program as it was named, and the client where the rig does not describe it.
    pub program: Option<String>,
    /// The machine that serves, where that is not the rig.
    pub server: Option<String>,
    /// The cipher, as it was named; nothing where it was plain.
    pub encryption: Option<String>,
    /// The port, cable, adapter or enclosure, as it was named; one without a name is another one.
    pub port: Option<String>,
}

impl Setup {
    pub(crate) fn what(&self) -> What {
        match (self.direction, self.pattern) {
            (Direction::Read, Pattern::Sequential) => What::Read,
            (Direction::Write, Pattern::Sequential) => What::Write,
            (Direction::Read, Pattern::Random) => What::RandomRead,
            (Direction::Write, Pattern::Random) => What::RandomWrite,
        }
    }

    pub(crate) fn reads(&self) -> bool {
        self.direction == Direction::Read
    }

    pub(crate) fn writes(&self) -> bool {
        self.direction == Direction::Write
    }

    pub(crate) fn is_random(&self) -> bool {
        self.pattern == Pattern::Random
    }

    /// Bytes of one counted unit: of an operation, or one.
    pub(crate) fn unit_bytes(&self) -> f64 {
        match self.pattern {
            Pattern::Random => self.block_bytes.unwrap_or(RANDOM_BLOCK_BYTES) as f64,
            Pattern::Sequential => 1.0,
        }
    }

    pub(crate) fn disk_count(&self) -> u32 {
        self.disks.iter().map(|(_, count)| count).sum()
    }

    /// Whether the way passes a network.
    pub(crate) fn is_remote(&self) -> bool {
        matches!(self.layer, Path::Net | Path::Share)
    }

    pub(crate) fn with_direction(&self, direction: Direction) -> Self {
        Self { direction, ..self.clone() }
    }
}

/// The load of resources meanwhile, in percent of the time.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Usage {
    pub cores: Vec<f64>,
    pub client_cores: Vec<f64>,
    pub iowait: Option<f64>,
    /// Interrupts, of the busiest core.
    pub irq: Option<f64>,
    pub steal: Option<f64>,
    pub throttled: Option<f64>,
    pub disk_busy: Option<f64>,
    /// Of the segments that TCP sent.
    pub retransmits: Option<f64>,
    /// A control group's quota held a process of this work back.
    pub quota: bool,
    /// A disk fell behind its own beginning.
    pub slowed: bool,
    /// The cores were full of work that is not this load.
    pub foreign_work: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Measurement {
    pub setup: Setup,
    /// Bytes or operations per second.
    pub rate: f64,
    /// Its repeats, where there were any.
    pub sample: Sample,
    pub file_bytes: Option<u64>,
    /// Of the pieces in which the file lies on its disk, on average.
    pub piece_bytes: Option<f64>,
    /// The client kept nothing: all that was read came over the network, from the server's disks or its memory.
    pub past_client: bool,
    /// Of one request, where it was timed.
    pub latency_s: Option<f64>,
    pub usage: Usage,
    /// Why it measured something else than it says.
    pub doubt: Option<Doubt>,
}

impl Measurement {
    pub(crate) fn bytes_per_s(&self) -> f64 {
        self.rate * self.setup.unit_bytes()
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Table {
    pub rows: Vec<Measurement>,
}

impl Table {
    pub(crate) fn of(described: &Described) -> Self {
        Self { rows: described.measured.iter().map(|measured| row(described, measured)).collect() }
    }

    /// Rows that measured what they say, without the one that is judged.
    pub(crate) fn others(&self, but: usize) -> impl Iterator<Item = (usize, &Measurement)> {
        self.rows.iter().enumerate().filter(move |(at, m)| *at != but && m.doubt.is_none())
    }
}

fn row(described: &Described, measured: &Measured) -> Measurement {
    let how = &measured.how;
    Measurement {
        setup: setup(described, measured),
        rate: measured.rate,
        sample: how.sample.clone(),
        file_bytes: measured.file_bytes,
        piece_bytes: measured.file_bytes.zip(how.fragments).map(|(bytes, pieces)| bytes as f64 / pieces.max(1) as f64),
        past_client: how.past_client,
        latency_s: how.latency_s,
        usage: Usage {
            cores: measured.cores_percent.clone(),
            client_cores: how.client_cores.clone(),
            iowait: how.iowait_percent,
            irq: how.irq_percent,
            steal: how.steal_percent,
            throttled: how.throttled_percent,
            disk_busy: how.disk_busy_percent,
            retransmits: how.retransmits_percent,
            quota: how.quota.is_some(),
            slowed: how.slowed.is_some(),
            foreign_work: how.others_work,
        },
        doubt: doubt(described, measured),
    }
}

fn setup(described: &Described, measured: &Measured) -> Setup {
    let (what, how) = (measured.what, &measured.how);
    let named = |name: &String| described.clients.iter().position(|client| client.name == *name);
    let client = match (&how.client, described.clients.as_slice()) {
        (Some(name), _) => named(name),
        (None, [_]) if matches!(measured.path, Path::Net | Path::Share) => Some(0),
        _ => None,
    };
    Setup {
        layer: measured.path,
        direction: if what.writes() { Direction::Write } else { Direction::Read },
        pattern: if what.is_random() { Pattern::Random } else { Pattern::Sequential },
        block_bytes: how.block_bytes,
        in_flight: how.in_flight,
        sync: how.sync,
        small_files: how.small_files,
        reads_percent: how.reads_percent,
        caches: how.caches,
        disks: disks(described, measured),
        shape: described.shape(measured),
        client,
        program: measured.with.clone(),
        server: how.elsewhere.clone(),
        encryption: how.encryption.clone(),
        port: how.port.clone(),
    }
}

/// The disks that took part; none where they are another machine's, or where only the wire was measured.
fn disks(described: &Described, measured: &Measured) -> Vec<(usize, u32)> {
    if measured.how.elsewhere.is_some() || measured.path == Path::Net {
        return Vec::new();
    }
    let of = |name: &str| measured.disks.iter().filter(|(n, _)| n == name).map(|(_, count)| *count).sum::<u32>();
    let count = |name: &str, all: u32| if measured.disks.is_empty() { all } else { of(name) };
    let all = described.disks.iter().enumerate().map(|(at, disk)| (at, count(&disk.name, disk.count)));
    all.filter(|(_, count)| *count > 0).collect()
}

/// Whether block, depth and flush of the lower measurement are no excuse for being slower than the upper one.
pub(super) fn is_asked_as_hard(lower: &Setup, upper: &Setup) -> bool {
    let in_flight = match (lower.in_flight, upper.in_flight) {
        (Some(lower), Some(upper)) => lower >= upper,
        // One request at a time says little of many.
        (Some(lower), None) => lower > 1.0,
        _ => true,
    };
    let blocks = match (lower.block_bytes, upper.block_bytes) {
        (Some(lower), Some(large)) if upper.is_random() => lower == large,
        (Some(lower), Some(large)) => lower >= large.min(LARGE_BLOCK_BYTES),
        _ => true,
    };
    // Many small files, and a mix of directions, are asked in another way.
    let alike = lower.small_files == upper.small_files && lower.reads_percent == upper.reads_percent;
    in_flight && blocks && alike && (upper.sync || !lower.sync)
}
