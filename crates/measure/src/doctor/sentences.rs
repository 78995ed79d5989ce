//! From ids and enums to words: resources, evidence, questions. Nothing reads these words back.

use larder_base::units::ByteSize;

use super::words::{bytes_words, rate_words};
use crate::describe::limits::Wire;
use crate::describe::{Described, Measured, Path, What};
use crate::reason::{
    Basis, Confidence, Contrast, Doubt, End, Evidence, Fix, MISLEADING, MORE_REQUESTS, Measurement, Misfit, Mode,
    Property, ResourceId, ResourceKind, Rig, SPREAD, Stage, Table, Use, Verdict, contrasts, judge,
};

/// Sentences about the rows of one box.
#[derive(Clone, Copy)]
pub(super) struct Words<'a> {
    pub rig: Rig<'a>,
    pub table: &'a Table,
}

/// A resource by name, and why it is the limit.
#[derive(Debug)]
pub(super) struct Limit {
    pub name: String,
    pub why: String,
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

fn of(name: String, why: String) -> Limit {
    Limit { name, why }
}

impl Confidence {
    pub(super) fn is_limited_by(self) -> &'static str {
        match self {
            Self::Certain => "is limited by",
            Self::Likely => "is probably limited by",
            Self::Maybe | Self::Open => "may be limited by",
        }
    }

    pub(super) fn are_limited_by(self) -> &'static str {
        match self {
            Self::Certain => "are limited by",
            Self::Likely => "are probably limited by",
            Self::Maybe | Self::Open => "may be limited by",
        }
    }
}

/// Reads a disk and never writes to it.
const FIO_OF_ONE_DISK: &str =
    ": fio --name=a --filename=/dev/DISK --readonly --rw=read --bs=1M --iodepth=32 --direct=1";

/// Of several names at most these are told.
const NAMES_MAX: usize = 3;

impl<'a> Words<'a> {
    fn described(&self) -> &'a Described {
        self.rig.described
    }

    fn measured(&self, row: usize) -> Option<&'a Measured> {
        self.described().measured.get(row)
    }

    fn rate(&self, row: usize) -> String {
        self.measured(row).map_or(String::new(), |m| rate_words(m.rate, m.what))
    }

    /// The measured way: `reading over the network with mac`, and the program where several did the same.
    pub fn way(&self, row: usize) -> String {
        let Some(m) = self.measured(row) else { return String::new() };
        let way = way(self.described(), m);
        let others = self.described().measured.iter().filter(|other| other.path == m.path && other.what == m.what);
        let remote = matches!(m.path, Path::Share | Path::Net);
        let several = remote && others.into_iter().any(|other| other.with != m.with);
        match m.with.as_ref().filter(|_| several) {
            Some(program) => format!("{way}, {program}"),
            None => way,
        }
    }

    /// The ways of all rows, each with what tells it from others of the same name.
    pub fn titles(&self) -> Vec<String> {
        let ways: Vec<String> = (0..self.table.rows.len()).map(|row| self.way(row)).collect();
        let more = |row: usize| {
            let alike: Vec<usize> = (0..ways.len()).filter(|other| ways.get(*other) == ways.get(row)).collect();
            let told = DIFFERENCES.iter().filter_map(|tell| {
                let own = tell(self, row)?;
                let differs = alike.iter().any(|other| tell(self, *other).as_ref() != Some(&own));
                differs.then_some(own)
            });
            told.fold(String::new(), |text, own| format!("{text}, {own}"))
        };
        ways.iter().enumerate().map(|(row, way)| format!("{way}{}", more(row))).collect()
    }

    /// A way with its rate.
    pub fn doing(&self, row: usize) -> String {
        format!("{} ({})", self.way(row), self.rate(row))
    }

    /// A resource by name, as a row meets it.
    pub fn resource(&self, row: usize, id: ResourceId) -> String {
        let measured = self.measured(row);
        let remote = measured.is_some_and(|m| matches!(m.path, Path::Net | Path::Share));
        let ends = measured.and_then(|m| m.how.ends.as_ref());
        match id {
            ResourceId::Disks => self.disks(row),
            ResourceId::Link(at) => match self.rig.link(at).and_then(|link| link.could.as_ref()) {
                Some(could) => format!("{} (both ends can {})", self.rig.name(id), could.name),
                None => self.rig.name(id),
            },
            ResourceId::Port(at) => match self.rig.disk(at).and_then(|disk| disk.could.as_ref()) {
                Some(could) => format!("{} (both ends can {})", self.rig.name(id), could.name),
                None => self.rig.name(id),
            },
            ResourceId::Processor(End::Server) => match ends {
                Some(ends) => format!("the processor of {}", ends.server),
                None if remote => "the server's processor".to_owned(),
                None => "the processor".to_owned(),
            },
            ResourceId::Processor(End::Client) => match ends {
                Some(ends) => format!("the client's processor ({})", ends.client),
                None => "the client's processor".to_owned(),
            },
            ResourceId::ClientSide if !remote => "the program or driver".to_owned(),
            ResourceId::ClientSide => "the client's side".to_owned(),
            ResourceId::UnknownLink if self.measured(row).is_some_and(|m| m.how.port.is_some()) => {
                self.measured(row).and_then(|m| m.how.port.clone()).unwrap_or_default()
            }
            ResourceId::UnknownLink if self.table.rows.get(row).is_some_and(|m| m.setup.disk_count() > 1) => {
                "a link that the disks share and that is not described".to_owned()
            }
            id => self.rig.name(id),
        }
    }

    fn disks(&self, row: usize) -> String {
        let Some(setup) = self.table.rows.get(row).map(|m| &m.setup) else { return "the disks".to_owned() };
        match setup.disk_count() {
            0 => "the server's disks".to_owned(),
            1 => "the disk itself".to_owned(),
            _ if setup.shape.layout.is_raidz() && setup.is_random() && setup.layer != Path::Disks => {
                "the slowest disk (a RAIDZ record lies on every disk)".to_owned()
            }
            _ => "the disks together".to_owned(),
        }
    }

    /// The bottleneck of a row, where there is one.
    pub fn limit(&self, row: usize, verdict: &Verdict) -> Option<Limit> {
        let resource = verdict.resource?;
        let name = self.resource(verdict.row, resource);
        let limit = match verdict.evidence {
            Evidence::Reached { mode: Mode::Normal, share } => of(name, self.reached(row, verdict, share)),
            Evidence::Reached { mode, share } => self.mode(verdict.row, resource, name, mode, share),
            Evidence::Busy { what, percent } => self.busy(verdict.row, name, what, percent),
            Evidence::Contrast { property, row: other, ratio } => {
                self.contrast(verdict.row, resource, name, Contrast { property, row: other, ratio })
            }
            Evidence::Usual => of(name, self.usual(verdict.row, resource, verdict)),
            Evidence::Missing(_) | Evidence::Contradiction { .. } | Evidence::Misfit(_) | Evidence::Doubtful => {
                return None;
            }
        };
        // A bottleneck that was found further down is named with the measurement that found it.
        let below = verdict.stages.iter().find_map(|stage| stage.row).filter(|_| verdict.row != row);
        let slower = matches!(verdict.evidence, Evidence::Reached { mode, .. } if mode != Mode::Normal);
        Some(match below {
            Some(below) if slower => {
                of(limit.name, format!("{} ({} gave {})", limit.why, self.way(below), self.rate(below)))
            }
            Some(below) => of(limit.name, format!("{} gave {}", self.way(below), self.rate(below))),
            None => limit,
        })
    }

    fn reached(&self, row: usize, verdict: &Verdict, share: f64) -> String {
        let (Some(measured), Some(stage)) =
            (self.measured(row), verdict.stages.iter().find(|stage| Some(stage.resource) == verdict.resource))
        else {
            return percent(share);
        };
        let most = rate_words(stage.limit, measured.what);
        let share = percent(share);
        match (stage.row, stage.basis) {
            (Some(below), _) => format!("{share} of what {} gave{}", self.way(below), self.unexplained(below)),
            _ if stage.is_range() => {
                format!("{} to {most} is possible", rate_words(stage.limit_low, measured.what))
            }
            (None, Basis::Measured) if stage.resource == ResourceId::Cipher => {
                format!("{share} of the {most} that one core encrypts")
            }
            (None, Basis::Measured) if self.table.rows.get(row).is_some_and(|m| m.setup.disk_count() == 1) => {
                format!("{share} of the {most} that it gave alone")
            }
            (None, Basis::Measured) => format!("{share} of the {most} that each gave alone"),
            (None, Basis::Standard) if stage.resource == ResourceId::Requests => self.requests(row, stage),
            (None, Basis::Standard) => format!("{share} of the {most} that it carries"),
            (None, Basis::Typed | Basis::Usual | Basis::Physics) => format!("{share} of {most}"),
        }
    }

    /// The next measurement of a row below that is not explained itself.
    fn unexplained(&self, row: usize) -> String {
        let open = judge(self.rig, self.table, row).and_then(|verdict| match verdict.evidence {
            Evidence::Missing(property) => Some(self.next(row, &verdict, property)),
            _ => None,
        });
        open.map_or(String::new(), |next| format!(", which is not explained: {next}"))
    }

    fn requests(&self, row: usize, stage: &Stage) -> String {
        let setup = self.table.rows.get(row).map(|m| &m.setup);
        let bytes = setup.filter(|setup| !setup.is_random()).and_then(|setup| setup.block_bytes).unwrap_or(1);
        let in_flight = setup.and_then(|setup| setup.in_flight).unwrap_or(1.0);
        format!("{in_flight:.0} in flight, each {}", time_words(in_flight * bytes as f64 / stage.limit))
    }

    fn usual(&self, row: usize, resource: ResourceId, verdict: &Verdict) -> String {
        let stage = verdict.stages.iter().find(|stage| stage.resource == resource && stage.is_range());
        let (Some(stage), Some(measured)) = (stage, self.measured(row)) else { return String::new() };
        let (low, high) = (rate_words(stage.limit_low, measured.what), rate_words(stage.limit, measured.what));
        format!("{low} to {high} is usual")
    }

    fn mode(&self, row: usize, resource: ResourceId, name: String, mode: Mode, share: f64) -> Limit {
        let Some(m) = self.table.rows.get(row) else { return of(name, String::new()) };
        let usage = &m.usage;
        let of_share = percent(share);
        match mode {
            Mode::Normal => of(name, of_share),
            Mode::SlowerStandard => match self.lower_standard(resource, m.bytes_per_s() / share) {
                Some(lower) => of(
                    format!("a part of {name} that runs at {}", lower.name),
                    format!("{of_share} of {}", bytes_words(lower.practical)),
                ),
                None => of(name, "it runs at a lower standard".to_owned()),
            },
            Mode::DuplexMismatch => {
                of(name, "its ends disagree about duplex: one sends while the other does".to_owned())
            }
            Mode::OneCableOfBond => of(format!("one cable of {name}"), format!("{of_share} of what one cable carries")),
            Mode::WeakRadio => of(name, format!("radio gives {of_share} of its rate")),
            Mode::Losses => {
                let lost = usage.retransmits.unwrap_or_default();
                of(name, format!("{lost:.1} % of the segments are lost"))
            }
            Mode::Hot => {
                let disks = self.rig.disks(&m.setup.disks);
                let hottest = disks.iter().filter_map(|(disk, _)| disk.temperature_c).reduce(f64::max);
                let known = disks.iter().filter_map(|(disk, _)| disk.temperature_max_c).reduce(f64::min);
                let said = match known {
                    Some(most) => format!("and throttles from {most:.0} on"),
                    None => "and may throttle: smartctl -x or nvme smart-log names its own limit".to_owned(),
                };
                of(name, format!("a disk has {:.0} degrees Celsius {said}", hottest.unwrap_or_default()))
            }
            Mode::Shingled => of(name, "a shingled disk rewrites whole bands".to_owned()),
            Mode::CacheFull => {
                let seen = self.measured(row).and_then(|m| m.how.slowed.clone());
                let seen = seen.map_or(String::new(), |seen| format!(": {seen}"));
                of(name, format!("the fast cache is full{seen}"))
            }
            Mode::Degraded => of(name, "a disk is missing, and its data is computed from the others".to_owned()),
            Mode::ReadsBeforeWrites => of(name, "old data and parity are read before each write".to_owned()),
            Mode::OneCopy => of("one copy of the mirror".to_owned(), "one reader is sent to one copy".to_owned()),
            Mode::Flush => of(name, "each write waits for a flush".to_owned()),
            Mode::FewInFlight => of(name, format!("{:.0} in flight at a time", 1.0 / share)),
            Mode::OneInFlight => of(name, format!("one is in flight instead of {:.0}", 1.0 / share)),
            Mode::Between => of(name, format!("both directions alike, {of_share} of the next limit")),
            Mode::WholeRecords => {
                let record = self.described().record_bytes.unwrap_or_default();
                of(name, format!("each small access moves a whole record of {}", ByteSize(record)))
            }
            Mode::InPieces => {
                let piece = m.piece_bytes.unwrap_or_default() as u64;
                let why = format!(
                    "the file lies in many fragments, of {} each on average, and a head looks for each",
                    ByteSize(piece)
                );
                of(name, why)
            }
            Mode::OneFileAtATime => of(name, "small files wait for one another, one request at a time".to_owned()),
            Mode::BelowFigure => of(name, format!("each gives what is usual, and {of_share} of its figure")),
        }
    }

    /// The standard below a resource's own that carries this.
    fn lower_standard(&self, resource: ResourceId, bytes_per_s: f64) -> Option<Wire> {
        let wire = match resource {
            ResourceId::Network => self.rig.network()?.wire.as_ref()?,
            ResourceId::Link(at) => self.rig.link(at)?.wire.as_ref()?,
            ResourceId::Port(at) => self.rig.disk(at)?.connection.as_ref()?,
            _ => return None,
        };
        wire.rungs_below().into_iter().min_by(|a, b| {
            let far = |wire: &Wire| (wire.practical - bytes_per_s).abs();
            far(a).total_cmp(&far(b))
        })
    }

    fn busy(&self, row: usize, name: String, what: Use, share: f64) -> Limit {
        let Some(m) = self.measured(row) else { return of(name, String::new()) };
        match what {
            Use::Cores => of(name, self.cores(row, m)),
            Use::OneThread => of(name, format!("one thread that moves between cores ({share:.0} % together)")),
            Use::Interrupts => of(name, format!("interrupts take {share:.0} % of the busiest core")),
            Use::Quota => of(
                "the processor time that its control group allows".to_owned(),
                m.how.quota.clone().unwrap_or_else(|| "its quota was used up".to_owned()),
            ),
            Use::Throttled => {
                of(name, format!("heat or a weak power supply held the clock down {share:.0} % of the time"))
            }
            Use::Stolen => {
                of("the virtual machine's host".to_owned(), format!("it took {share:.0} % of the processor time"))
            }
            Use::Disks => of(name, format!("busy {share:.0} % of the time")),
            Use::IoWait => of(name, format!("cores waited for them {share:.0} % of the time")),
        }
    }

    fn cores(&self, row: usize, measured: &Measured) -> String {
        let usage = self.table.rows.get(row).map(|m| &m.usage);
        let full = |cores: &[f64]| match (
            cores.iter().filter(|busy| **busy >= crate::reason::CORE_FULL_PERCENT).count(),
            cores.len(),
        ) {
            (0, _) => cores.iter().copied().reduce(f64::max).map(|busy| format!("busiest core {busy:.0} %")),
            (n, all) if n == all && all > 1 => Some(format!("all {all} cores full")),
            (n, all) => Some(format!("{n} of {all} cores full")),
        };
        let (here, there) = (full(&measured.cores_percent), full(&measured.how.client_cores));
        let client =
            usage.is_some_and(|usage| usage.client_cores.iter().any(|busy| *busy >= crate::reason::CORE_FULL_PERCENT));
        let server =
            usage.is_some_and(|usage| usage.cores.iter().any(|busy| *busy >= crate::reason::CORE_FULL_PERCENT));
        match (here, there) {
            (Some(here), Some(there)) if client && server => format!("{here}, and {there} at the client"),
            (_, Some(there)) if client => there,
            (Some(here), _) => here,
            (None, there) => there.unwrap_or_default(),
        }
    }

    /// The single difference of another row, and its rate.
    pub fn differs(&self, row: usize, contrast: Contrast) -> String {
        let wire = self.table.rows.get(row).is_some_and(|m| m.setup.layer == Path::Net);
        let resource = if wire { ResourceId::Connection } else { ResourceId::Requests };
        self.contrast(row, resource, String::new(), contrast).why
    }

    fn contrast(&self, row: usize, resource: ResourceId, name: String, contrast: Contrast) -> Limit {
        let Contrast { property, row: other, ratio } = contrast;
        let rate = self.rate(other);
        let sides = || {
            let (this, that) = (self.table.rows.get(row)?, self.table.rows.get(other)?);
            self.rig.differing_side(&that.setup, &this.setup)
        };
        let why = match property {
            Property::Port => {
                let port = self.measured(other).and_then(|m| m.how.port.clone());
                format!("{} gave {rate}", port.unwrap_or_else(|| "another one".to_owned()))
            }
            Property::Program | Property::Client => {
                format!("{} gets {rate}", sides().unwrap_or_else(|| "another one".to_owned()))
            }
            Property::Direction if self.table.rows.get(row).is_none_or(|m| m.setup.layer != Path::Net) => {
                format!("{} gives {rate}", self.measured(other).map_or("the other direction", |m| what_words(m.what)))
            }
            Property::Direction => format!("the other direction carries {rate}"),
            Property::Encryption if resource == ResourceId::Requests => {
                let block = self.table.rows.get(row).and_then(|m| m.setup.block_bytes).unwrap_or_default();
                format!("each block of {} is encrypted by itself; without it is {rate}", ByteSize(block))
            }
            Property::Encryption => match self.table.rows.get(other).and_then(|m| m.setup.encryption.as_ref()) {
                Some(kind) => format!("with {kind} it is {rate}"),
                None => format!("without it it is {rate}"),
            },
            Property::Block => {
                let block = self.table.rows.get(other).and_then(|m| m.setup.block_bytes).unwrap_or_default();
                format!("blocks of {} give {rate}", ByteSize(block))
            }
            Property::InFlight if resource == ResourceId::Requests => {
                let depth = self.table.rows.get(other).and_then(|m| m.setup.in_flight).unwrap_or_default();
                format!("{depth:.0} in flight give {rate}")
            }
            Property::Sync => format!("without a flush after each write it is {rate}"),
            Property::SmallFiles => format!("one file at a time, each with its own requests; large files give {rate}"),
            Property::Layout => format!("another layout gives {rate}"),
            Property::InFlight => {
                let connections = self.table.rows.get(other).and_then(|m| m.setup.in_flight).unwrap_or_default();
                format!("{connections:.0} connections carry {rate}")
            }
            Property::Layer => "disks and wire, each alone, are much faster".to_owned(),
            Property::Disks if other != row && self.is_single(row) => format!("{} gave {rate}", self.way(other)),
            Property::Disks if other != row => format!("one disk alone gives {rate}"),
            Property::Disks => format!("together they give {} of their sum", percent(1.0 / ratio)),
            Property::CoresWatched => format!("{} kept every core full", self.way(other)),
            _ => format!("{} gave {rate}", self.way(other)),
        };
        let name = match (property, resource) {
            (Property::Direction, ResourceId::Network) => format!("one direction of {name}"),
            _ => name,
        };
        of(name, why)
    }

    fn is_single(&self, row: usize) -> bool {
        self.table.rows.get(row).is_some_and(|m| m.setup.disk_count() == 1)
    }

    /// One sentence on a row.
    pub fn sentence(&self, row: usize, verdict: &Verdict) -> String {
        let claim = self.claim(row, verdict);
        let explained = !matches!(verdict.evidence, Evidence::Doubtful);
        match self.table.rows.get(row).is_some_and(|m| m.doubt.is_some()) && explained {
            true => format!("{claim} (the server had the file in memory: its disks may be slower)"),
            false => claim,
        }
    }

    pub fn claim(&self, row: usize, verdict: &Verdict) -> String {
        let doing = self.doing(row);
        match verdict.evidence {
            Evidence::Doubtful => format!("{doing} proves nothing: {}", self.doubt(row)),
            Evidence::Missing(property @ Property::Negotiated) => {
                format!("{doing} is not explained: {}", self.open(row, verdict, property))
            }
            Evidence::Missing(property) => format!("{doing} is not explained: {}", self.next(row, verdict, property)),
            Evidence::Contradiction { .. } | Evidence::Misfit(_) => {
                format!("{doing} cannot be judged: {}", self.question(row, verdict).unwrap_or_default().1)
            }
            _ => {
                let limit = self.limit(row, verdict).unwrap_or(of("nothing".to_owned(), String::new()));
                format!("{doing} {} {}: {}", verdict.confidence.is_limited_by(), limit.name, limit.why)
            }
        }
    }

    /// Why a row proves nothing.
    pub fn doubt(&self, row: usize) -> String {
        match self.table.rows.get(row).and_then(|m| m.doubt.as_ref()) {
            Some(Doubt::Reported(text)) => text.clone(),
            Some(Doubt::WarmCaches) => {
                "the caches were warm, so it measures memory: drop them or take a file of twice the memory".to_owned()
            }
            Some(Doubt::FileInMemory { file_bytes, memory_bytes, of }) => format!(
                "a file of {} fits into the {} of memory {}: take one of twice that",
                ByteSize(*file_bytes),
                ByteSize(*memory_bytes),
                of.words()
            ),
            Some(Doubt::Program(at)) => MISLEADING.get(*at).map_or(String::new(), |(_, why)| (*why).to_owned()),
            None => String::new(),
        }
    }

    /// How a stage's limit is known.
    pub fn known(&self, stage: &Stage) -> String {
        let by_name = || if self.described().of_machine { "negotiated" } else { "by its name" };
        let network = self.rig.network().filter(|_| stage.resource == ResourceId::Network);
        let named = network.is_some_and(|n| n.wire.as_ref().is_some_and(|wire| wire.practical == n.bytes_per_s));
        match (stage.row, stage.basis) {
            (Some(row), _) => return format!("measured: {}", self.way(row)),
            (None, Basis::Measured) if stage.resource == ResourceId::Cipher => "measured: one core in memory",
            (None, Basis::Measured) => "measured: each alone",
            (None, Basis::Typed) if named => by_name(),
            (None, Basis::Typed) => "typed",
            (None, Basis::Standard) if self.rig.kind(stage.resource) == ResourceKind::Waiting => "computed",
            (None, Basis::Standard) => by_name(),
            (None, Basis::Usual) => "assumed: usual of its kind",
            (None, Basis::Physics) => "physics",
        }
        .to_owned()
    }

    /// The next measurement to take: the property that nobody has varied, as something to do.
    pub fn next(&self, row: usize, verdict: &Verdict, property: Property) -> String {
        let Some(m) = self.table.rows.get(row) else { return String::new() };
        let has = |kind: ResourceKind| self.has_below(verdict, kind);
        let reads = m.setup.reads();
        match property {
            Property::CoresWatched if m.usage.foreign_work => {
                "the cores were full of somebody else's work: stop that, and measure again"
            }
            Property::CoresWatched | Property::ClientCoresWatched => "watch each core meanwhile: top, then press 1",
            Property::Layer if m.setup.server.is_some() && !has(ResourceKind::Disks) => {
                "measure the disks of the machine that serves (there: cat FILE > /dev/null)"
            }
            Property::Layer if m.setup.layer == Path::Share && !has(ResourceKind::Network) && reads => {
                "measure the wire alone: iperf3 -c SERVER -R"
            }
            Property::Layer if m.setup.layer == Path::Share && !has(ResourceKind::Network) => {
                "measure the wire alone: iperf3 -c SERVER"
            }
            Property::Layer if m.setup.layer == Path::Share && reads => {
                "read a large file on the server itself: cat FILE > /dev/null"
            }
            Property::Layer if m.setup.layer == Path::Share => {
                "write on the server itself: dd if=/dev/zero of=FILE bs=1M count=20000 conv=fsync"
            }
            Property::Layer => "read each disk alone: fio --readonly on /dev/DISK",
            Property::Encryption => "measure the same without encryption",
            Property::Ends => "either end: watch the cores of both (top), then try another client or program",
            Property::InFlight => "measure several connections at once: iperf3 -c SERVER -P 4",
            Property::Direction if reads => "measure the other direction: iperf3 -c SERVER",
            Property::Direction => "measure the other direction: iperf3 -c SERVER -R",
            Property::RoundTrip => "say how long a packet takes there and back (round_trip =, from ping)",
            Property::Program if m.setup.layer != Path::Share => "try another program, or another filesystem",
            Property::Program => "try another program or client on the same share",
            Property::Client => "try another client, cable and port: ethtool IFACE says what was negotiated",
            Property::Negotiated => "ask what was negotiated: ethtool IFACE, smartctl -i, lsusb -t, lspci -vv",
            Property::Record => "say how large records are (record =): zfs get recordsize",
            Property::Disks => "read one disk alone: fio --readonly on /dev/DISK",
            Property::Pieces => {
                "see in how many fragments the file lies: filefrag FILE (Windows: fsutil file queryextents FILE)"
            }
            Property::Port => "try another port, cable or enclosure: lsusb -t, smartctl -i, lspci -vv say what it is",
            _ => "measure it once more with one thing different",
        }
        .to_owned()
    }

    /// The observations on a row that is not explained, and the next measurement to take.
    pub fn open(&self, row: usize, verdict: &Verdict, property: Property) -> String {
        let next = self.next(row, verdict, property);
        let seen = match property {
            Property::Negotiated => self.table.rows.get(row).and_then(|m| self.looks_like(row, m)),
            _ => contrasts(self.table, row).into_iter().find(|c| c.ratio >= SPREAD).map(|c| self.differs(row, c)),
        };
        let told = seen.map_or_else(|| next.clone(), |seen| format!("{seen}; {next}"));
        let of_disk = matches!(property, Property::Disks)
            || property == Property::Layer && self.table.rows.get(row).is_some_and(|m| !m.setup.is_remote());
        let command = if of_disk { FIO_OF_ONE_DISK } else { "" };
        match self.outcomes(row, verdict, property) {
            "" => told,
            outcomes => format!("{told}{command} ({outcomes})"),
        }
    }

    /// The meaning of each outcome of the next measurement.
    fn outcomes(&self, row: usize, verdict: &Verdict, property: Property) -> &'static str {
        let Some(m) = self.table.rows.get(row) else { return "" };
        let wire = self.has_below(verdict, ResourceKind::Network);
        match (property, m.setup.layer) {
            (Property::Layer, Path::Share) if !wire => {
                "as slow: the wire, its adapter or what was negotiated; much faster: the disks or either end"
            }
            (Property::Layer, Path::Share) => {
                "as slow: its disks; much faster: either end, so watch the cores of both with top"
            }
            (Property::Layer, _) => "as slow: the disk; much faster: the pool, its filesystem, driver or cores (top)",
            (Property::Encryption, _) => "faster: the core that encrypts; as slow: not the cipher",
            (Property::Ends, _) => {
                "a core at 100 %: that end; another client faster: the first one; as slow: the server"
            }
            (Property::CoresWatched, _) => "one at 100 %: the processor; all idle: requests that wait for one another",
            (Property::InFlight, Path::Net) => {
                "more together: one connection's window or core; as much: the wire or an adapter"
            }
            (Property::Direction, _) => {
                "as slow: an adapter, cable or what was negotiated (ethtool IFACE); faster: losses, or one end's driver"
            }
            (Property::Client, _) => "faster: the first one's adapter, cable or port; as slow: the server's",
            (Property::Program, _) => "faster: the program or filesystem; as slow: what lies below it",
            (Property::Disks, _) => "as fast as all together: a link that they share; a part of it: the layout",
            (Property::Pieces, _) => {
                "pieces of less than a few MB: copy the file and read the copy; one piece: read each disk alone, and watch the cores (top)"
            }
            (Property::Port, _) => "faster: that port, cable or enclosure; as slow: the disk itself",
            _ => "",
        }
    }

    fn has_below(&self, verdict: &Verdict, kind: ResourceKind) -> bool {
        verdict.stages.iter().any(|stage| stage.row.is_some() && self.rig.kind(stage.resource) == kind)
    }

    /// `it is the rate of 100 Mbit Ethernet, of which nothing else speaks`
    fn looks_like(&self, row: usize, m: &Measurement) -> Option<String> {
        let port = m.setup.disks.first().map_or(ResourceId::Network, |(at, _)| ResourceId::Port(*at));
        let resource = if m.setup.is_remote() { ResourceId::Network } else { port };
        let wire = self.lower_standard(resource, m.bytes_per_s())?;
        Some(format!("{} gives {}, and nothing else speaks for that", wire.name, self.rate(row)))
    }

    /// A stable code and a question, where a row contradicts the description or itself.
    pub fn question(&self, row: usize, verdict: &Verdict) -> Option<(&'static str, String)> {
        let m = self.table.rows.get(row)?;
        let way = self.way(row);
        match verdict.evidence {
            Evidence::Contradiction { limit, basis } => {
                let (name, kind) = (self.resource(row, verdict.resource?), self.rig.kind(verdict.resource?));
                let (rate, most) = (self.rate(row), rate_words(limit, m.setup.what()));
                let hint = self.hint(row, kind, limit, basis);
                let code = if basis == Basis::Physics { "beyond-physics" } else { "beyond-limit" };
                let allows = match basis {
                    Basis::Measured => "gave only",
                    Basis::Physics => "cannot give more than",
                    _ => "allows",
                };
                Some((code, format!("{way} gave {rate}, and {name} {allows} {most}. {hint}")))
            }
            Evidence::Misfit(misfit) => Some((misfit.code(), format!("{way}: {}", misfit_words(misfit, m)))),
            _ => None,
        }
    }

    fn hint(&self, row: usize, kind: ResourceKind, limit: f64, basis: Basis) -> String {
        let Some(m) = self.table.rows.get(row) else { return String::new() };
        let network = matches!(kind, ResourceKind::Network | ResourceKind::Client);
        let bits = m.rate > limit * 2.0 && m.rate / 8.0 <= limit * 1.05;
        if network && !m.setup.is_random() && bits {
            return format!("Do you mean {:.0} Mbit/s, is the network faster, or did memory answer?", m.rate / 1e6);
        }
        match (kind, basis) {
            (_, Basis::Measured) => "Did memory answer, or were they measured differently (block, depth, file)?",
            (ResourceKind::Network, _) => "Is the network faster, are blocks smaller (block =), or did memory answer?",
            (ResourceKind::Disks, _) => "Did memory answer, is the data compressible, or are the disks faster?",
            (ResourceKind::Link, _) => "Is its limit higher, or did memory answer?",
            (ResourceKind::Waiting, _) => "Were more requests in flight, is each faster, or did a cache answer?",
            (ResourceKind::Processor | ResourceKind::BothEnds, _) => {
                "Is its rate per core higher, or does it run on more cores?"
            }
            (ResourceKind::Client, _) => "Which of the two is right?",
        }
        .to_owned()
    }

    /// The name of a remedy.
    pub fn remedy(&self, fix: &Fix) -> String {
        let at = self.rig.name(fix.at);
        let thing = fix.thing.as_deref().unwrap_or("another one");
        fix.remedy.what().replace("{at}", &at).replace("{thing}", thing)
    }

    pub fn how(&self, fix: &Fix) -> String {
        let in_flight = self.table.rows.get(fix.row).and_then(|m| m.setup.in_flight).unwrap_or(1.0);
        let depth = format!("{:.0}", in_flight * MORE_REQUESTS);
        fix.remedy.how().replace("{at}", &self.rig.name(fix.at)).replace("{depth}", &depth)
    }

    /// The bottleneck after a fix.
    pub fn then(&self, fix: &Fix) -> Option<String> {
        let name = self.resource(fix.row, fix.then?);
        let usage = self.table.rows.get(fix.row).map(|m| &m.usage)?;
        let cores = match fix.then? {
            ResourceId::Processor(End::Server) => &usage.cores,
            ResourceId::Processor(End::Client) => &usage.client_cores,
            _ => return Some(name),
        };
        let busiest = cores.iter().copied().reduce(f64::max)?;
        Some(format!("{name} (one core is busy {busiest:.0} % already)"))
    }
}

/// Differences that tell two measurements of the same way apart.
const DIFFERENCES: &[fn(&Words, usize) -> Option<String>] = &[
    |words, row| {
        let m = words.measured(row)?;
        let whole = m.disks.is_empty() || m.path == Path::Disks;
        (!whole).then(|| few_disks(&m.disks))
    },
    |words, row| words.measured(row).filter(|m| !matches!(m.path, Path::Share | Path::Net))?.with.clone(),
    |words, row| words.measured(row)?.how.port.clone(),
    |words, row| {
        let m = words.table.rows.get(row)?;
        m.setup.is_random().then_some(())?;
        Some(ByteSize(m.setup.block_bytes?).to_string())
    },
    |words, row| {
        let m = words.table.rows.get(row)?;
        let count = m.setup.in_flight?;
        let streams = match (m.setup.layer, count <= 1.0) {
            (Path::Net, true) => "connection",
            (Path::Net, false) => "connections",
            _ => "in flight",
        };
        Some(format!("{count:.0} {streams}"))
    },
    |words, row| words.table.rows.get(row)?.setup.sync.then(|| "flushed".to_owned()),
    |words, row| words.table.rows.get(row)?.setup.encryption.clone(),
    |words, row| Some(format!("{} file", ByteSize(words.measured(row)?.file_bytes?))),
];

/// A way in words: what was done, and through what.
pub(super) fn way(described: &Described, measured: &Measured) -> String {
    let what = match (measured.how.small_files, measured.how.reads_percent) {
        (true, _) if measured.what.is_random() => "listing files".to_owned(),
        (true, _) => format!("{} small files", what_words(measured.what)),
        (_, Some(percent)) => format!("random access, {percent:.0} % of it reads,"),
        _ => what_words(measured.what).to_owned(),
    };
    match measured.path {
        Path::Disks => format!("{what} {}", disks_words(described, &measured.disks)),
        Path::Local => format!("{what} on the machine itself"),
        Path::Net => {
            let client = measured.how.client.as_deref().unwrap_or("the client");
            format!("the wire alone, {} {client}", if measured.what.writes() { "from" } else { "to" })
        }
        Path::Share => match &measured.how.client {
            Some(client) => format!("{what} over the network with {client}"),
            None => format!("{what} over the network"),
        },
    }
}

pub(super) fn what_words(what: What) -> &'static str {
    match what {
        What::Read => "reading",
        What::Write => "writing",
        What::RandomRead => "random reading",
        What::RandomWrite => "random writing",
    }
}

fn disks_words(described: &Described, disks: &[(String, u32)]) -> String {
    let alone = described.disks.len() == 1 && described.disks.iter().all(|disk| disk.count == 1);
    match disks {
        [] if alone => "the disk by itself".to_owned(),
        [] => "all disks side by side".to_owned(),
        [(name, 1)] => format!("{name} by itself"),
        several => format!("{} side by side", few_disks(several)),
    }
}

/// `TLC and 4 x QLC`, or how many there are.
fn few_disks(disks: &[(String, u32)]) -> String {
    let count = |(name, n): &(String, u32)| if *n == 1 { name.clone() } else { format!("{n} x {name}") };
    match disks.len() <= NAMES_MAX {
        true => disks.iter().map(count).collect::<Vec<_>>().join(" and "),
        false => format!("{} disks", disks.iter().map(|(_, n)| n).sum::<u32>()),
    }
}

fn misfit_words(misfit: Misfit, m: &Measurement) -> String {
    let usage = &m.usage;
    match misfit {
        Misfit::BusyAndWaiting => format!(
            "cores worked and waited ({:.0} %) for more than all of the time. Is waiting counted as busy in cores =?",
            usage.iowait.unwrap_or_default()
        ),
        Misfit::QueueNotKept => format!(
            "by rate and latency far fewer than {:.0} requests were in flight (Little's law). Was the program held up, or is latency of another run?",
            m.setup.in_flight.unwrap_or_default()
        ),
        Misfit::ClientHere => {
            "on the machine itself no client takes part. Was it over the network (path = \"share\")?".to_owned()
        }
        Misfit::SegmentsHere => {
            "retransmissions need a network; a local measurement has none. Was it over the network (path = \"share\")?"
                .to_owned()
        }
        Misfit::DisksBesideWire => {
            "no disk takes part in a measurement of the wire. What else was running, or was it a share?".to_owned()
        }
        Misfit::BlockBeyondFile => format!(
            "blocks of {} in a file of {}. Which of the two is right?",
            ByteSize(m.setup.block_bytes.unwrap_or_default()),
            ByteSize(m.file_bytes.unwrap_or_default())
        ),
    }
}

pub(super) fn time_words(seconds: f64) -> String {
    match seconds {
        s if s < 1e-3 => format!("{:.0} us", s * 1e6),
        s if s < 1.0 => format!("{:.1} ms", s * 1e3),
        s => format!("{s:.1} s"),
    }
}
