//! The pool, on the machine itself: one that is mounted, or one that is made for this.

use std::path::{Path, PathBuf};

use larder_base::units::ByteSize;

use super::super::error::BenchError;
use super::super::ground::{Ground, is_larder};
use super::super::local::{LocalLoad, Place};
use super::super::plan::Plan;
use super::super::pool::{PoolSpec, TemporaryPool};
use super::super::result::{Caches, Layer, Note};
use super::super::runner::{Runner, Spec};
use super::super::scratch::Scratch;
use super::disks::{only_writes, same_filesystem};
use super::{Bench, PoolTarget, is_root};

/// A daemon needs no more to be fast, and less data then shows its disks.
const MEMORY_BYTES: u64 = 1 << 30;
const MEMORY_BYTES_MIN: u64 = 256 << 20;
/// A pool takes this part of a machine's memory unless it is told otherwise.
const MEMORY_SHARE: u64 = 4;

impl Bench<'_> {
    pub(super) fn pool(&self, runner: &mut Runner, target: &PoolTarget) -> Result<(), BenchError> {
        match self.mounted(target)? {
            Some(folder) => self.mounted_pool(runner, &folder),
            None => self.made_pools(runner, target),
        }
    }

    /// Given, or the only one there is; `None`: one is to be made.
    fn mounted(&self, target: &PoolTarget) -> Result<Option<PathBuf>, BenchError> {
        if let [folder] = target.folders.as_slice() {
            return Ok(Ground::of(self.machine, folder)?.is_larder().then(|| folder.clone()));
        }
        if !target.folders.is_empty() {
            return Ok(None);
        }
        let mounts = self.machine.mounts();
        let larder = mounts.all().iter().filter(|m| is_larder(&m.filesystem, &m.source));
        let points: Vec<&Path> = larder.map(|m| m.point.as_path()).collect();
        let action =
            "mount one with: larder mount DIR; or name a folder on each disk, to have a pool made there for a while";
        match points.as_slice() {
            [one] => Ok(Some((*one).to_owned())),
            [] => Err(BenchError::invalid("no pool of larder is mounted here", action)),
            _ => {
                let names: Vec<String> = points.iter().map(|p| p.display().to_string()).collect();
                Err(BenchError::invalid(
                    format!("several pools are mounted: {}", names.join(", ")),
                    "name the folder of one",
                ))
            }
        }
    }

    fn mounted_pool(&self, runner: &mut Runner, folder: &Path) -> Result<(), BenchError> {
        let memory = self.memory_bytes / MEMORY_SHARE;
        let plan = self.storage_plan();
        self.measure_pool(runner, folder, &folder.display().to_string(), memory, &self.request.labels.clone(), plan)
    }

    fn made_pools(&self, runner: &mut Runner, target: &PoolTarget) -> Result<(), BenchError> {
        let of = |list: &[String]| match list {
            [] => vec![None],
            list => list.iter().cloned().map(Some).collect(),
        };
        let plan = self.fitting(runner, &target.folders)?;
        let memory_bytes = (plan.data_bytes / 2).clamp(MEMORY_BYTES_MIN, MEMORY_BYTES);
        let names: Vec<String> = target.folders.iter().map(|f| f.display().to_string()).collect();
        for layout in of(&target.layouts) {
            for compression in of(&target.compressions) {
                let spec = PoolSpec { layout: layout.clone(), compression: compression.clone(), memory_bytes };
                let mut variant = self.request.labels.clone();
                variant.extend(layout.clone().map(|l| ("layout".to_owned(), l)));
                variant.extend(compression.map(|c| ("compression".to_owned(), c)));
                let pool =
                    TemporaryPool::start(self.machine, &self.request.program, &target.folders, &spec, runner.control)?;
                self.measure_pool(runner, pool.mount(), &names.join(", "), memory_bytes, &variant, plan.clone())?;
            }
        }
        Ok(())
    }

    /// A layout may put all of the data on each of its disks. Refuses what is memory, as for a single disk.
    fn fitting(&self, runner: &mut Runner, folders: &[PathBuf]) -> Result<Plan, BenchError> {
        let mut plan = self.storage_plan();
        for folder in folders {
            let sharers = same_filesystem(folder, folders.iter().map(PathBuf::as_path));
            let ground = Ground::of(self.machine, folder)?;
            let (data_bytes, less) = ground.room(plan.data_bytes, self.size_given(), sharers)?;
            plan.data_bytes = data_bytes;
            less.into_iter().for_each(|note| runner.note(note));
        }
        Ok(plan)
    }

    fn measure_pool(
        &self,
        runner: &mut Runner,
        mount: &Path,
        subject: &str,
        memory_bytes: u64,
        variant: &std::collections::BTreeMap<String, String>,
        plan: Plan,
    ) -> Result<(), BenchError> {
        let ground = Ground::of(self.machine, mount)?;
        let (data_bytes, less) = ground.room(plan.data_bytes, self.size_given(), 1)?;
        let plan = Plan { data_bytes, ..plan };
        let place = Place::Folder(Scratch::make(self.machine, &ground.folder, runner.control)?);
        let mut load = LocalLoad::new(self.machine, vec![&place], "mount")?;
        let (caches, note) = caches(data_bytes, memory_bytes);
        for shape in &plan.shapes {
            // What is only written counts when it is flushed.
            let note = note.clone().filter(|_| !only_writes(shape.kind));
            let mut workload = plan.workload(shape);
            workload.caches = caches;
            runner.measure(
                &mut load,
                Spec {
                    layer: Layer::Pool,
                    subject: subject.to_owned(),
                    variant: variant.clone(),
                    workload,
                    limits: plan.limits(),
                    repeats: plan.repeats,
                    notes: less.iter().cloned().chain(note).collect(),
                    far: false,
                },
            )?;
        }
        Ok(())
    }
}

/// Dropping the kernel's caches leaves the daemon's own.
fn caches(data_bytes: u64, memory_bytes: u64) -> (Caches, Option<Note>) {
    let show = |bytes| ByteSize(bytes).to_string();
    if data_bytes < memory_bytes.saturating_mul(2) {
        let text = format!(
            "larder keeps up to {} in memory, and {} of data is less than twice that: reads come from memory in part. Measure with --size {} or more",
            show(memory_bytes),
            show(data_bytes),
            show(memory_bytes.saturating_mul(2))
        );
        return (Caches::Warm, Some(Note { code: "memory-measured".to_owned(), text, misleading: true }));
    }
    match is_root() {
        true => (Caches::Dropped, None),
        false => {
            let text =
                "caches of the disks below the pool cannot be dropped without root: reads come from memory in part"
                    .to_owned();
            (Caches::Warm, Some(Note { code: "caches-warm".to_owned(), text, misleading: true }))
        }
    }
}
