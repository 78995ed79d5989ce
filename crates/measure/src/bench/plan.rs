//! Presets: which workloads, how long, how often, on how much data.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::result::{Caches, Kind, Note, Workload};
use larder_load::RunLimits;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// Time for opening files, flushing and dropping caches beside each repeat.
pub(super) const OVERHEAD_S: f64 = 1.5;
/// All of `quick`, with some room below two minutes for making the data.
const QUICK_S: f64 = 105.0;
/// What `quick` promises.
const QUICK_PROMISED_S: f64 = 120.0;
/// Of other presets, this part of the planned time may go to repeats that tell which of the others was odd.
const SPARE_SHARE: f64 = 0.1;
/// A repeat that is shorter says nothing.
pub(super) const MEASURE_S_MIN: f64 = 2.0;
/// Fewer say little of how much they differ.
const REPEATS_MIN: u32 = 3;
const BLOCK_BYTES_MIN: u64 = 4 * KIB;
const BLOCK_BYTES_MAX: u64 = 32 * MIB;
const SMALL_FILE_BYTES: u64 = 16 * KIB;
/// Data of a tree: a few large files, many small ones.
const TREE_BYTES: u64 = 256 * MIB;
/// How `cat` asks (coreutils 9).
const CAT_BYTES: u64 = 128 * KIB;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preset {
    /// Two minutes whole.
    Quick,
    Standard,
    Thorough,
    Throughput,
    Iops,
    /// Block sizes from 4 KiB to 32 MiB.
    Blocksize,
    /// Ways of reaching the same data, against each other.
    Access,
    /// Kinds of encryption, against each other.
    Encryption,
}

const PRESETS: [(Preset, &str); 8] = [
    (Preset::Quick, "quick"),
    (Preset::Standard, "standard"),
    (Preset::Thorough, "thorough"),
    (Preset::Throughput, "throughput"),
    (Preset::Iops, "iops"),
    (Preset::Blocksize, "blocksize"),
    (Preset::Access, "access"),
    (Preset::Encryption, "encryption"),
];

impl fmt::Display for Preset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = PRESETS.iter().find(|(preset, _)| preset == self).map_or("?", |(_, name)| name);
        f.pad(name)
    }
}

impl FromStr for Preset {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let known = || PRESETS.map(|(_, name)| name).join(", ");
        let found = PRESETS.iter().find(|(_, name)| *name == text).map(|(preset, _)| *preset);
        found.ok_or_else(|| format!("'{text}' is not a preset: choose from {}", known()))
    }
}

/// A person's changes of a preset.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    /// Of the data on each subject.
    pub size_bytes: Option<u64>,
    /// Of each repeat, without warming up.
    pub seconds: Option<f64>,
    pub repeats: Option<u32>,
    /// Only these; empty: all.
    pub kinds: Vec<Kind>,
    /// In the place of each other block size; empty: those of the preset.
    pub block_bytes: Vec<u64>,
    pub depths: Vec<u32>,
    pub compressible: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    pub kind: Kind,
    pub block_bytes: u64,
    pub depth: u32,
    pub jobs: u32,
    pub files: u64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    pub preset: Preset,
    pub shapes: Vec<Shape>,
    pub repeats: u32,
    pub warm_up_s: f64,
    pub measure_s: f64,
    /// On each subject.
    pub data_bytes: u64,
    pub compressible: bool,
}

fn shape(kind: Kind, block_bytes: u64, depth: u32, jobs: u32) -> Shape {
    Shape { kind, block_bytes, depth, jobs, files: 1 }
}

fn files(kind: Kind, files: u64) -> Shape {
    Shape { kind, block_bytes: SMALL_FILE_BYTES, depth: 1, jobs: 1, files }
}

/// Order matters: files are there before they are read, and gone at last.
fn of_files(count: u64) -> [Shape; 6] {
    [
        files(Kind::CreateFiles, count),
        files(Kind::ReadFiles, count),
        files(Kind::StatFiles, count),
        files(Kind::DeleteFiles, count),
        Shape { block_bytes: MIB, ..files(Kind::CopyTreeIn, count / 4) },
        Shape { block_bytes: MIB, ..files(Kind::CopyTreeOut, count / 4) },
    ]
}

fn basics() -> Vec<Shape> {
    vec![
        shape(Kind::Write, MIB, 16, 1),
        shape(Kind::Read, MIB, 16, 1),
        shape(Kind::RandomWrite, 4 * KIB, 32, 1),
        shape(Kind::RandomRead, 4 * KIB, 32, 1),
    ]
}

fn standard(files: u64) -> Vec<Shape> {
    let mut shapes = basics();
    shapes.extend([
        shape(Kind::RandomRead, 4 * KIB, 1, 1),
        shape(Kind::RandomWrite, 4 * KIB, 1, 1),
        shape(Kind::RandomMixed, 4 * KIB, 64, 1),
        shape(Kind::Cat, CAT_BYTES, 1, 1),
    ]);
    shapes.extend(of_files(files));
    shapes
}

fn sweep() -> Vec<Shape> {
    let sizes = std::iter::successors(Some(BLOCK_BYTES_MIN), |size| Some(size * 2));
    let sizes = sizes.take_while(|size| *size <= BLOCK_BYTES_MAX);
    // One request at a time, as a program that copies: with more in flight the block size matters less.
    sizes.flat_map(|size| [shape(Kind::Write, size, 1, 1), shape(Kind::Read, size, 1, 1)]).collect()
}

fn in_parallel(kinds: &[Kind], block_bytes: u64, ways: &[(u32, u32)]) -> Vec<Shape> {
    kinds
        .iter()
        .flat_map(|&kind| ways.iter().map(move |&(depth, jobs)| shape(kind, block_bytes, depth, jobs)))
        .collect()
}

impl Plan {
    /// For storage: a disk, a pool, a share. `memory_bytes` of this machine.
    pub fn storage(preset: Preset, changes: &Changes, memory_bytes: u64) -> Self {
        use Kind::*;
        let twice = memory_bytes.saturating_mul(2);
        let random = [RandomRead, RandomWrite, RandomMixed];
        let (shapes, repeats, warm_up_s, measure_s, data_bytes) = match preset {
            Preset::Quick => (basics(), 3, 1.0, 5.0, GIB),
            Preset::Standard => (standard(2000), 3, 2.0, 10.0, 4 * GIB),
            Preset::Thorough => {
                let mut shapes = standard(10_000);
                shapes.extend(in_parallel(&[Read, Write], MIB, &[(1, 1), (16, 4)]));
                shapes.extend(in_parallel(&random, 4 * KIB, &[(64, 4)]));
                (shapes, 5, 5.0, 60.0, twice.max(16 * GIB))
            }
            Preset::Throughput => {
                (in_parallel(&[Write, Read], MIB, &[(1, 1), (32, 1), (32, 4)]), 3, 3.0, 30.0, 8 * GIB)
            }
            Preset::Iops => {
                (in_parallel(&random, 4 * KIB, &[(1, 1), (16, 1), (64, 1), (64, 4)]), 3, 3.0, 15.0, 8 * GIB)
            }
            Preset::Blocksize => (sweep(), 3, 0.5, 3.0, 2 * GIB),
            Preset::Access => {
                let mut shapes = in_parallel(&[Write, Read], MIB, &[(8, 1)]);
                shapes.extend(in_parallel(&[RandomRead, RandomWrite], 4 * KIB, &[(1, 1), (16, 1)]));
                shapes.push(shape(Cat, CAT_BYTES, 1, 1));
                shapes.extend([files(CreateFiles, 1000), files(ReadFiles, 1000), files(DeleteFiles, 1000)]);
                (shapes, 3, 2.0, 8.0, 2 * GIB)
            }
            Preset::Encryption => {
                let mut shapes = in_parallel(&[Write, Read], MIB, &[(16, 1), (16, 4)]);
                shapes.extend(in_parallel(&[RandomWrite, RandomRead], 4 * KIB, &[(32, 1)]));
                shapes.push(shape(Cat, CAT_BYTES, 1, 1));
                (shapes, 5, 2.0, 10.0, 4 * GIB)
            }
        };
        Self { preset, shapes, repeats, warm_up_s, measure_s, data_bytes, compressible: false }.changed(changes)
    }

    /// For a copy: a large file, then a tree. Neither can be warmed up; both go to their end.
    pub fn copies(preset: Preset, changes: &Changes) -> Self {
        let copy = |count| Shape { files: count, ..shape(Kind::Copy, MIB, 1, 1) };
        let (files, repeats, data_bytes) = match preset {
            Preset::Quick => (500, 3, GIB),
            Preset::Thorough => (10_000, 5, 16 * GIB),
            _ => (2000, 3, 4 * GIB),
        };
        // One size fits no one: what a gigabit's wire takes for the data.
        let measure_s = data_bytes as f64 / 100e6;
        let shapes = vec![copy(1), copy(files)];
        let plain = Changes { block_bytes: Vec::new(), depths: Vec::new(), seconds: None, ..changes.clone() };
        Self { preset, shapes, repeats, warm_up_s: 0.0, measure_s, data_bytes, compressible: false }.changed(&plain)
    }

    /// For the wire: both directions, one stream and several, then both at once.
    pub fn wire(preset: Preset, changes: &Changes) -> Self {
        use Kind::*;
        let stream = |kind, jobs| Shape { files: 0, ..shape(kind, 128 * KIB, 1, jobs) };
        let shapes =
            vec![stream(Send, 1), stream(Receive, 1), stream(Send, 4), stream(Receive, 4), stream(SendReceive, 1)];
        let (repeats, warm_up_s, measure_s) = match preset {
            Preset::Quick => (3, 1.0, 5.0),
            Preset::Thorough => (5, 3.0, 30.0),
            _ => (3, 2.0, 10.0),
        };
        let plain = Changes { block_bytes: Vec::new(), depths: Vec::new(), size_bytes: None, ..changes.clone() };
        Self { preset, shapes, repeats, warm_up_s, measure_s, data_bytes: 0, compressible: false }.changed(&plain)
    }

    fn changed(mut self, changes: &Changes) -> Self {
        self.shapes.retain(|s| changes.kinds.is_empty() || changes.kinds.contains(&s.kind));
        let sized = |kind: Kind| {
            matches!(kind, Kind::Read | Kind::Write | Kind::RandomRead | Kind::RandomWrite | Kind::RandomMixed)
        };
        if !changes.block_bytes.is_empty() {
            self.vary(sized, &changes.block_bytes, |shape, bytes| shape.block_bytes = bytes);
        }
        if !changes.depths.is_empty() {
            self.vary(sized, &changes.depths, |shape, depth| shape.depth = depth);
        }
        self.repeats = changes.repeats.unwrap_or(self.repeats).max(1);
        self.data_bytes = changes.size_bytes.unwrap_or(self.data_bytes);
        if let Some(seconds) = changes.seconds {
            self.measure_s = seconds.max(1.0);
            self.warm_up_s = self.warm_up_s.min((seconds / 4.0).ceil());
        }
        self.compressible = changes.compressible;
        self
    }

    /// Each shape once for each value, without what is there twice then.
    fn vary<T: Copy>(&mut self, applies: impl Fn(Kind) -> bool, values: &[T], set: impl Fn(&mut Shape, T)) {
        let mut varied: Vec<Shape> = Vec::new();
        for shape in &self.shapes {
            let mut variants = vec![*shape];
            if applies(shape.kind) {
                variants = values
                    .iter()
                    .map(|value| (*shape, *value))
                    .map(|(mut s, v)| {
                        set(&mut s, v);
                        s
                    })
                    .collect();
            }
            varied.extend(variants);
        }
        self.shapes.clear();
        for shape in varied {
            if !self.shapes.contains(&shape) {
                self.shapes.push(shape);
            }
        }
    }

    /// `quick` keeps its word whatever the number of subjects: repeats become shorter, then fewer.
    pub fn fitted(mut self, subjects: usize, seconds_given: bool) -> Self {
        if self.preset != Preset::Quick || seconds_given {
            return self;
        }
        let runs = (self.shapes.len() * subjects.max(1)) as f64;
        let room = |repeats: u32| QUICK_S / (runs * f64::from(repeats)) - self.warm_up_s - OVERHEAD_S;
        while self.repeats > 1 && room(self.repeats) < MEASURE_S_MIN {
            self.repeats -= 1;
        }
        self.measure_s = room(self.repeats).floor().clamp(MEASURE_S_MIN, self.measure_s);
        self
    }

    /// A note where time was left for fewer repeats than show their spread.
    pub fn few_repeats(&self, changes: &Changes) -> Option<Note> {
        let few = self.repeats < REPEATS_MIN && changes.repeats.is_none();
        let text = format!(
            "'{}' had time for {} of each measurement, so how much repeats differ is hardly known: measure fewer subjects, or give --repeats {REPEATS_MIN} or --preset standard",
            self.preset,
            if self.repeats == 1 { "1 repeat".to_owned() } else { format!("{} repeats", self.repeats) }
        );
        few.then(|| Note { code: "few-repeats".to_owned(), text, misleading: false })
    }

    /// Seconds beyond the planned ones that repeats may take where the planned ones disagree (`again.within_the_time`).
    pub fn spare_seconds(&self, planned_s: f64, changes: &Changes) -> f64 {
        match self.preset {
            // Their number is a person's wish.
            _ if changes.repeats.is_some() => 0.0,
            Preset::Quick if changes.seconds.is_none() => (QUICK_PROMISED_S - planned_s).max(0.0),
            _ => planned_s * SPARE_SHARE,
        }
    }

    pub fn limits(&self) -> RunLimits {
        RunLimits {
            warm_up: Duration::from_secs_f64(self.warm_up_s.clamp(0.0, 3600.0)),
            measure_max: Duration::from_secs_f64(self.measure_s.clamp(1.0, 86_400.0)),
            again: true,
        }
    }

    /// The time of one shape on one subject.
    pub fn run_seconds(&self) -> f64 {
        f64::from(self.repeats) * (self.warm_up_s + self.measure_s + OVERHEAD_S)
    }

    pub fn seconds(&self, subjects: usize) -> f64 {
        self.run_seconds() * (self.shapes.len() * subjects) as f64
    }

    /// Caches are said later, by whoever knows them.
    pub fn workload(&self, shape: &Shape) -> Workload {
        let writes = !matches!(
            shape.kind,
            Kind::Read | Kind::RandomRead | Kind::Cat | Kind::ReadFiles | Kind::StatFiles | Kind::CopyTreeOut
        );
        let data_bytes = match shape.kind {
            Kind::CreateFiles | Kind::ReadFiles | Kind::StatFiles | Kind::DeleteFiles => {
                shape.files * shape.block_bytes
            }
            Kind::CopyTreeIn | Kind::CopyTreeOut => TREE_BYTES.min(self.data_bytes),
            Kind::Copy if shape.files > 1 => TREE_BYTES.min(self.data_bytes),
            _ => self.data_bytes,
        };
        Workload {
            kind: shape.kind,
            block_bytes: shape.block_bytes,
            depth: shape.depth,
            jobs: shape.jobs,
            data_bytes,
            files: shape.files,
            caches: Caches::Unknown,
            compressible: self.compressible,
            synced: writes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quick_takes_two_minutes_however_many_disks() {
        for disks in [1usize, 2, 3, 5] {
            // Each alone, and all at once.
            let subjects = if disks > 1 { disks + 1 } else { 1 };
            let plan = Plan::storage(Preset::Quick, &Changes::default(), 8 * GIB).fitted(subjects, false);
            let seconds = plan.seconds(subjects);
            assert!(seconds <= 120.0 && plan.measure_s >= MEASURE_S_MIN, "{disks}: {seconds} {plan:?}");
        }
        // Fewer repeats are never silent.
        let few = Plan::storage(Preset::Quick, &Changes::default(), 8 * GIB).fitted(9, false);
        assert!(few.repeats < 3 && few.few_repeats(&Changes::default()).unwrap().text.contains("--repeats 3"));
        let one = Plan::storage(Preset::Quick, &Changes::default(), 8 * GIB).fitted(1, false);
        assert_eq!(one.few_repeats(&Changes::default()), None);
        assert_eq!((one.repeats, one.measure_s), (3, 5.0));
        assert!(Plan::wire(Preset::Quick, &Changes::default()).fitted(1, false).seconds(1) <= 120.0);
        // Repeats that disagree have what is left of the two minutes, and none beyond the number that was given.
        assert_eq!(one.spare_seconds(one.seconds(1), &Changes::default()), 120.0 - one.seconds(1));
        assert_eq!(few.spare_seconds(130.0, &Changes::default()), 0.0);
        let given = Changes { repeats: Some(2), ..Changes::default() };
        assert_eq!(one.spare_seconds(90.0, &given), 0.0);
        let standard = Plan::storage(Preset::Standard, &Changes::default(), 8 * GIB);
        assert_eq!(standard.spare_seconds(600.0, &Changes::default()), 60.0);
    }

    #[test]
    fn presets_are_what_they_are_named_after() {
        let shapes = |preset| Plan::storage(preset, &Changes::default(), 64 * GIB).shapes;
        let sizes: Vec<u64> =
            shapes(Preset::Blocksize).iter().filter(|s| s.kind == Kind::Read).map(|s| s.block_bytes).collect();
        assert_eq!((sizes.len(), sizes.first(), sizes.last()), (14, Some(&(4 * KIB)), Some(&(32 * MIB))));
        assert!(shapes(Preset::Iops).iter().all(|s| s.kind.counts_operations()));
        assert!(shapes(Preset::Throughput).iter().all(|s| !s.kind.counts_operations()));
        for kind in [Kind::RandomMixed, Kind::Cat, Kind::CreateFiles, Kind::CopyTreeIn] {
            assert!(shapes(Preset::Standard).iter().any(|s| s.kind == kind), "{kind:?}");
        }
        for preset in [Preset::Access, Preset::Encryption] {
            assert!(shapes(preset).iter().any(|s| s.kind == Kind::Cat), "{preset:?}");
        }
        let thorough = Plan::storage(Preset::Thorough, &Changes::default(), 64 * GIB);
        assert_eq!(thorough.data_bytes, 128 * GIB);
        assert!("quick".parse() == Ok(Preset::Quick) && "x".parse::<Preset>().unwrap_err().contains("blocksize"));
    }

    #[test]
    fn presets_can_be_changed() {
        let changes = Changes {
            size_bytes: Some(64 * MIB),
            seconds: Some(2.0),
            repeats: Some(1),
            kinds: vec![Kind::Read, Kind::CreateFiles],
            block_bytes: vec![4 * KIB, MIB],
            depths: vec![1, 8],
            compressible: true,
        };
        let plan = Plan::storage(Preset::Standard, &changes, GIB);
        let reads: Vec<(u64, u32)> =
            plan.shapes.iter().filter(|s| s.kind == Kind::Read).map(|s| (s.block_bytes, s.depth)).collect();
        assert_eq!(reads, [(4096, 1), (4096, 8), (MIB, 1), (MIB, 8)]);
        assert_eq!(plan.shapes.len(), 5, "small files have sizes of their own");
        assert_eq!((plan.repeats, plan.measure_s, plan.warm_up_s, plan.data_bytes), (1, 2.0, 1.0, 64 * MIB));
        let workload = plan.workload(&plan.shapes[0]);
        assert!(workload.compressible && !workload.synced && workload.data_bytes == 64 * MIB);
    }
}
