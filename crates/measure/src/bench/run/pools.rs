//! The pool, on the machine itself: one that is mounted, or one that is made for this.

use std::path::{Path, PathBuf};

use larder_base::units::ByteSize;

use super::super::ground::{Ground, is_larder};
use super::super::plan::{Plan, Preset};
use super::super::pool::{Encryption, PoolSpec, TemporaryPool, ciphers_of_volumes};
use super::super::result::{Caches, ENCRYPTION, Kind, Layer, Note, Workload};
use super::super::runner::{Runner, Spec};
use super::disks::{only_writes, same_filesystem};
use super::{Bench, PoolTarget, is_root};
use larder_load::BenchError;
use larder_load::Scratch;
use larder_load::{LocalLoad, Place};

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
    pub(super) fn mounted(&self, target: &PoolTarget) -> Result<Option<PathBuf>, BenchError> {
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
        let mut plan = self.storage_plan();
        // Reading less than that is reading memory. Two minutes are not enough to write so much first.
        let beyond = beyond_memory(memory).max(plan.data_bytes);
        if self.request.preset != Preset::Quick && !self.size_given() {
            let ground = Ground::of(self.machine, folder)?;
            if let Ok((_, None)) = ground.room(beyond, false, 1) {
                plan.data_bytes = beyond;
            }
        }
        let mut variant = self.request.labels.clone();
        if self.request.preset == Preset::Encryption {
            let ground = Ground::of(self.machine, folder)?;
            variant.entry(ENCRYPTION.to_owned()).or_insert_with(|| self.encryption_of(&ground));
        }
        self.measure_pool(runner, folder, &folder.display().to_string(), memory, &variant, plan)
    }

    /// Of a folder; of a volume of larder its daemon says.
    pub(super) fn encryption_of(&self, ground: &Ground) -> String {
        let volumes =
            || ciphers_of_volumes(self.machine, &self.request.program, self.request.data.as_deref(), self.control);
        let of_larder = ground.is_larder().then(|| volumes().remove(&ground.source)).flatten();
        of_larder.unwrap_or_else(|| ground.encryption())
    }

    fn made_pools(&self, runner: &mut Runner, target: &PoolTarget) -> Result<(), BenchError> {
        let of = |list: &[String]| match list {
            [] => vec![None],
            list => list.iter().cloned().map(Some).collect(),
        };
        let plan = self.fitting(runner, &target.folders)?;
        let memory_bytes = memory_for(&plan);
        let encryptions = match target.encryptions.is_empty() && self.request.preset == Preset::Encryption {
            true => Encryption::all(self.machine),
            false => target.encryptions.clone(),
        };
        let names: Vec<String> = target.folders.iter().map(|f| f.display().to_string()).collect();
        for layout in of(&target.layouts) {
            for compression in of(&target.compressions) {
                for encryption in of(&encryptions) {
                    let spec = PoolSpec {
                        layout: layout.clone(),
                        compression: compression.clone(),
                        encryption: encryption.as_deref().map(Encryption::named).unwrap_or_default(),
                        memory_bytes,
                    };
                    let mut variant = self.request.labels.clone();
                    let told =
                        [("layout", layout.clone()), ("compression", compression.clone()), (ENCRYPTION, encryption)];
                    variant.extend(told.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))));
                    let (program, folders) = (&self.request.program, &target.folders);
                    let pool = TemporaryPool::start(self.machine, program, folders, &spec, runner.control)?;
                    self.measure_pool(runner, pool.mount(), &names.join(", "), memory_bytes, &variant, plan.clone())?;
                }
            }
        }
        Ok(())
    }

    /// A layout may put all of the data on each of its disks. Refuses what is memory, as for a single disk.
    pub(super) fn fitting(&self, runner: &mut Runner, folders: &[PathBuf]) -> Result<Plan, BenchError> {
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
        for shape in &plan.shapes {
            let mut workload = plan.workload(shape);
            let (caches, note) = caches(&workload, memory_bytes, is_root());
            // Data that is only written counts when it is flushed.
            let note = note.filter(|_| !only_writes(shape.kind));
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

/// Of a pool that is made for a bench.
pub(super) fn memory_for(plan: &Plan) -> u64 {
    (plan.data_bytes / 2).clamp(MEMORY_BYTES_MIN, MEMORY_BYTES)
}

/// Twice that, in whole GiB, so that all block sizes divide it.
fn beyond_memory(memory_bytes: u64) -> u64 {
    memory_bytes.saturating_mul(2).next_multiple_of(1 << 30)
}

/// Dropping the kernel's caches leaves the daemon's own.
pub(super) fn caches(workload: &Workload, memory_bytes: u64, root: bool) -> (Caches, Option<Note>) {
    let (kept, data) = (ByteSize(memory_bytes), ByteSize(workload.data_bytes));
    let note = |code: &str, text: String, misleading| Some(Note { code: code.to_owned(), text, misleading });
    let few = workload.data_bytes < memory_bytes.saturating_mul(2);
    // Of small files and trees there are as many as the preset says, however much other data.
    let counted = workload.kind.counts_files() || matches!(workload.kind, Kind::CopyTreeIn | Kind::CopyTreeOut);
    match () {
        () if few && counted => {
            let text = format!(
                "larder keeps up to {kept} in memory and had the {data} of files in it: what its processor takes for them, not its disks"
            );
            (Caches::Warm, note("memory-measured", text, false))
        }
        () if few => {
            let text = format!(
                "larder keeps up to {kept} in memory, and {data} of data is less than twice that: reads come from memory in part. Measure with --size {}G or more",
                beyond_memory(memory_bytes) >> 30
            );
            (Caches::Warm, note("memory-measured", text, true))
        }
        () if root => (Caches::Dropped, None),
        () => {
            let text =
                "caches of the disks below the pool cannot be dropped without root: reads come from memory in part";
            (Caches::Warm, note("caches-warm", text.to_owned(), true))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::plan::Changes;
    use super::*;

    #[test]
    fn files_are_not_made_more_by_a_size() {
        let plan = |data_gib: u64| {
            let changes = Changes { size_bytes: Some(data_gib << 30), ..Changes::default() };
            Plan::storage(Preset::Standard, &changes, 24 << 30)
        };
        let of = |kind: Kind, data_gib: u64, root| {
            let plan = plan(data_gib);
            let shape = plan.shapes.iter().find(|s| s.kind == kind).unwrap();
            let (caches, note) = caches(&plan.workload(shape), 6 << 30, root);
            (caches, note.map(|n| (n.misleading, n.text.contains("--size 12G"))))
        };
        for kind in [Kind::Read, Kind::RandomRead, Kind::Cat] {
            assert_eq!(of(kind, 4, true), (Caches::Warm, Some((true, true))), "{kind:?}");
            assert_eq!(of(kind, 12, true), (Caches::Dropped, None), "{kind:?}");
            assert_eq!(of(kind, 12, false), (Caches::Warm, Some((true, false))), "{kind:?}");
        }
        for kind in [Kind::ReadFiles, Kind::StatFiles, Kind::CopyTreeOut] {
            assert_eq!(of(kind, 12, true), (Caches::Warm, Some((false, false))), "{kind:?}");
        }
        assert_eq!(beyond_memory(6_324_000_000), 12 << 30);
    }
}
