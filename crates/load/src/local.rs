//! Load on folders and devices of this machine: fio for blocks, plain files for files.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::OFlags;

use super::control::Control;
use super::device::Device;
use super::error::BenchError;
use super::files;
use super::fio::{self, FioJob, Target};
use super::load::{Load, Scene};
use super::scratch::Scratch;
use crate::Machine;
use crate::workload::{Kind, Repeat, RunLimits, Workload};

/// A place in which data is put, and from which it is taken away.
#[derive(Debug)]
pub enum Place {
    Folder(Scratch),
    Device(Device),
}

impl Place {
    pub fn path(&self) -> &Path {
        match self {
            Self::Folder(scratch) => scratch.path(),
            Self::Device(device) => &device.path,
        }
    }

    /// Whether a workload can be made here at all.
    pub fn can(&self, kind: Kind) -> bool {
        let writes = matches!(kind, Kind::Write | Kind::RandomWrite | Kind::RandomMixed);
        match self {
            Self::Folder(_) => true,
            Self::Device(device) => !needs_files(kind) && (!writes || device.may_write()),
        }
    }

    fn data(&self) -> PathBuf {
        match self {
            Self::Folder(scratch) => scratch.path().join("data"),
            Self::Device(device) => device.path.clone(),
        }
    }
}

/// Several places are loaded at the same time.
pub struct LocalLoad<'a> {
    places: Vec<&'a Place>,
    access: String,
    direct: bool,
    engine: &'static str,
    fio: String,
}

impl<'a> LocalLoad<'a> {
    pub fn new(machine: &Machine, places: Vec<&'a Place>, access: &str) -> Result<Self, BenchError> {
        let direct = places.iter().all(|place| takes_direct(place));
        let fio = fio::version(machine)?;
        Ok(Self { places, access: access.to_owned(), direct, engine: engine(machine, direct), fio })
    }

    pub fn is_direct(&self) -> bool {
        self.direct
    }

    pub fn can(&self, kind: Kind) -> bool {
        self.places.iter().all(|place| place.can(kind))
    }

    fn job(&self, workload: &Workload, limits: &RunLimits) -> FioJob {
        let share = workload.data_bytes / self.places.len().max(1) as u64;
        let target = |place: &&Place| Target { path: place.data(), bytes: share };
        FioJob {
            kind: workload.kind,
            block_bytes: workload.block_bytes,
            depth: workload.depth,
            jobs: workload.jobs,
            targets: self.places.iter().map(target).collect(),
            direct: self.direct,
            engine: self.engine,
            compressible: workload.compressible,
            warm_up_s: limits.warm_up.as_secs_f64().ceil(),
            seconds: limits.measure_max.as_secs_f64().ceil(),
        }
    }

    fn will_write(&self, workload: &Workload, control: &Control) {
        // fio rounds up to a block, which may reach beyond the place's share.
        let share = workload.data_bytes / self.places.len().max(1) as u64;
        let blocks = workload.block_bytes.saturating_mul(u64::from(workload.jobs.max(1)));
        for place in &self.places {
            if let Place::Device(device) = place {
                device.will_write(share.saturating_add(blocks));
                control.leftovers().device(&device.path);
            }
        }
    }

    /// Does the same on every place at once, and adds it up.
    fn on_all(&self, work: impl Fn(&Path) -> Result<Repeat, BenchError> + Sync) -> Result<Repeat, BenchError> {
        let work = &work;
        let found: Vec<Result<Repeat, BenchError>> = std::thread::scope(|scope| {
            let threads: Vec<_> = self.places.iter().map(|place| scope.spawn(move || work(place.path()))).collect();
            let ended = |t: std::thread::ScopedJoinHandle<'_, _>| {
                t.join().unwrap_or_else(|_| Err(BenchError::tool("larder", "a thread of the load ended early")))
            };
            threads.into_iter().map(ended).collect()
        });
        let found = found.into_iter().collect::<Result<Vec<_>, _>>()?;
        let mut found = found.into_iter();
        let mut sum = found.next().unwrap_or_default();
        for other in found {
            sum.seconds = sum.seconds.max(other.seconds);
            sum.bytes = sum.bytes.saturating_add(other.bytes);
            sum.operations = sum.operations.saturating_add(other.operations);
            (sum.latency, sum.over_time) = (None, Vec::new());
        }
        sum.bytes_per_s = sum.bytes as f64 / sum.seconds.max(1e-9);
        sum.operations_per_s = sum.operations as f64 / sum.seconds.max(1e-9);
        Ok(sum)
    }
}

fn needs_files(kind: Kind) -> bool {
    !matches!(kind, Kind::Read | Kind::Write | Kind::RandomRead | Kind::RandomWrite | Kind::RandomMixed)
}

impl Load for LocalLoad<'_> {
    fn access(&self) -> String {
        self.access.clone()
    }

    fn with(&self, kind: Kind) -> String {
        match needs_files(kind) {
            true => format!("larder {}", env!("CARGO_PKG_VERSION")),
            false => self.fio.clone(),
        }
    }

    fn prepare(&mut self, workload: &Workload, scene: &Scene) -> Result<(), BenchError> {
        scene.go_on()?;
        let share = workload.data_bytes / self.places.len().max(1) as u64;
        for place in &self.places {
            let Place::Folder(scratch) = place else { continue };
            if needs_files(workload.kind) && workload.kind != Kind::Cat {
                files::prepare(scratch.path(), workload, scene.control)?;
                continue;
            }
            let data = place.data();
            // A larger file is as good; one that was cut short is not.
            if std::fs::metadata(&data).map_or(0, |m| m.len()) < share {
                files::fill(&data, share, workload.compressible, self.direct, scene.control)?;
            }
        }
        Ok(())
    }

    fn run(&mut self, workload: &Workload, limits: &RunLimits, scene: &Scene) -> Result<Repeat, BenchError> {
        let time_max = limits.warm_up + limits.measure_max;
        if matches!(workload.kind, Kind::Write | Kind::RandomWrite | Kind::RandomMixed) {
            self.will_write(workload, scene.control);
        }
        match workload.kind {
            kind if !needs_files(kind) => fio::run(&self.job(workload, limits), limits, scene),
            Kind::Cat => self.on_all(|place| files::cat(&place.join("data"), workload, time_max, scene.control)),
            _ => self.on_all(|place| files::run(place, workload, scene)),
        }
    }

    /// Folders go with their [`Scratch`]; devices are zeroed by whoever holds them.
    fn clean_up(&mut self) -> Result<(), BenchError> {
        Ok(())
    }
}

/// Whether a file can be opened past the kernel's cache; asked of a file, since filesystems say no only then.
fn takes_direct(place: &Place) -> bool {
    let flags = i32::try_from(OFlags::DIRECT.bits()).unwrap_or_default();
    match place {
        Place::Device(_) => true,
        Place::Folder(scratch) => {
            let path = scratch.path().join("direct");
            let made = File::create_new(&path).and_then(|file| file.set_len(4096));
            let opened = made.and_then(|()| OpenOptions::new().read(true).write(true).custom_flags(flags).open(&path));
            let _ = std::fs::remove_file(&path);
            opened.is_ok()
        }
    }
}

/// Buffered asynchronous I/O is asynchronous with io_uring alone, which some systems switch off.
fn engine(machine: &Machine, direct: bool) -> &'static str {
    let uring = machine.number("/proc/sys/kernel/io_uring_disabled") == Some(0);
    match (direct, uring) {
        (true, _) => "libaio",
        (false, true) => "io_uring",
        (false, false) => "psync",
    }
}

/// Between repeats, so that one does not pay for what the one before left to be written.
pub const SETTLE: Duration = Duration::from_millis(200);
