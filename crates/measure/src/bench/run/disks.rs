//! Disks: each alone, then all at once.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::super::ground::{Ground, buffered};
use super::super::plan::Plan;
use super::super::result::{Caches, ENCRYPTION, Kind, Layer, Note, Run};
use super::super::runner::{Runner, Spec, title};
use super::{Bench, DiskTarget, is_root};
use larder_load::BenchError;
use larder_load::Scratch;
use larder_load::{LocalLoad, Place};

/// All at once give at least this part of what they give one after the other, or something that they share is full.
const SUM_HOLDS: f64 = 0.9;

/// One disk, and what is known about measuring there.
pub(super) struct Site {
    pub(super) subject: String,
    pub(super) place: Place,
    pub(super) devices: Vec<String>,
    pub(super) data_bytes: u64,
    pub(super) caches: Caches,
    pub(super) encryption: String,
    pub(super) notes: Vec<Note>,
}

impl Site {
    /// Notes for the reader of one kind of workload.
    fn notes_for(&self, kind: Kind) -> impl Iterator<Item = Note> {
        self.notes.iter().filter(move |note| !only_writes(kind) || note.code != "memory-measured").cloned()
    }

    fn can(&self, kind: Kind) -> bool {
        self.place.can(kind)
    }
}

impl Bench<'_> {
    pub(super) fn disks(&self, runner: &mut Runner, targets: &[DiskTarget]) -> Result<(), BenchError> {
        let plan = self.storage_plan();
        let sites = targets.iter().map(|t| self.site(t, &plan, sharers(t, targets))).collect::<Result<Vec<_>, _>>()?;
        same_disk(&sites).into_iter().for_each(|note| runner.note(note));
        let measured = self.alone(runner, &sites, &plan).and_then(|()| match sites.len() {
            0 | 1 => Ok(()),
            _ => self.at_once(runner, &sites, &plan),
        });
        // Also when it was stopped.
        measured.and(emptied(runner, &sites))
    }

    pub(super) fn site(&self, target: &DiskTarget, plan: &Plan, sharers: u64) -> Result<Site, BenchError> {
        match target {
            DiskTarget::Device(device) => {
                let data_bytes = plan.data_bytes.min(device.size_bytes) >> 20 << 20;
                let loops = self.machine.below_device(&device.name).buffered;
                let warm = buffered(&target.show(), &loops, data_bytes, self.memory_bytes);
                Ok(Site {
                    subject: target.show(),
                    devices: vec![device.name.clone()],
                    data_bytes,
                    caches: if warm.is_some() { Caches::Warm } else { Caches::Bypassed },
                    encryption: "none".to_owned(),
                    notes: device.notes().into_iter().chain(warm).collect(),
                    place: Place::Device(device.clone()),
                })
            }
            DiskTarget::Folder(folder) => {
                let ground = Ground::of(self.machine, folder)?;
                let (data_bytes, less) = ground.room(plan.data_bytes, self.size_given(), sharers)?;
                let place = Place::Folder(Scratch::make(self.machine, &ground.folder, self.control)?);
                let direct = LocalLoad::new(self.machine, vec![&place], "local")?.is_direct();
                let (caches, note) = ground.caches(direct, is_root(), data_bytes, self.memory_bytes);
                let notes = ground.notes().into_iter().chain(less).chain(note).collect();
                let encryption = match self.request.preset == super::Preset::Encryption {
                    true => self.encryption_of(&ground),
                    false => ground.encryption(),
                };
                Ok(Site {
                    subject: target.show(),
                    place,
                    devices: ground.devices,
                    data_bytes,
                    caches,
                    encryption,
                    notes,
                })
            }
        }
    }

    fn alone(&self, runner: &mut Runner, sites: &[Site], plan: &Plan) -> Result<(), BenchError> {
        for site in sites {
            let mut load = LocalLoad::new(self.machine, vec![&site.place], "local")?;
            let plan = Plan { data_bytes: site.data_bytes, ..plan.clone() };
            for shape in plan.shapes.iter().filter(|shape| site.can(shape.kind)) {
                let mut workload = plan.workload(shape);
                workload.caches = caches_of(shape.kind, site.caches);
                let mut variant = self.labelled("disk", &site.subject);
                if plan.preset == super::Preset::Encryption {
                    variant.entry(ENCRYPTION.to_owned()).or_insert_with(|| site.encryption.clone());
                }
                runner.measure(
                    &mut load,
                    Spec {
                        layer: Layer::Disk,
                        subject: site.subject.clone(),
                        variant,
                        workload,
                        limits: plan.limits(),
                        repeats: plan.repeats,
                        notes: site.notes_for(shape.kind).collect(),
                        far: false,
                    },
                )?;
            }
        }
        Ok(())
    }

    fn at_once(&self, runner: &mut Runner, sites: &[Site], plan: &Plan) -> Result<(), BenchError> {
        let mut load = LocalLoad::new(self.machine, sites.iter().map(|site| &site.place).collect(), "local")?;
        let least = sites.iter().map(|site| site.data_bytes).min().unwrap_or(0);
        let plan = Plan { data_bytes: least * sites.len() as u64, ..plan.clone() };
        let subject = sites.iter().map(|site| site.subject.as_str()).collect::<Vec<_>>().join(", ");
        let blocks =
            |kind| matches!(kind, Kind::Read | Kind::Write | Kind::RandomRead | Kind::RandomWrite | Kind::RandomMixed);
        for shape in plan.shapes.iter().filter(|s| blocks(s.kind) && sites.iter().all(|site| site.can(s.kind))) {
            let mut workload = plan.workload(shape);
            workload.files = sites.len() as u64;
            workload.caches =
                sites.iter().map(|site| site.caches).find(|c| *c != Caches::Bypassed).unwrap_or(Caches::Bypassed);
            let before = runner.runs.len();
            runner.measure(
                &mut load,
                Spec {
                    layer: Layer::Disks,
                    subject: subject.clone(),
                    variant: self.request.labels.clone(),
                    workload,
                    limits: plan.limits(),
                    repeats: plan.repeats,
                    notes: sites.iter().flat_map(|site| site.notes_for(shape.kind)).chain(same_disk(sites)).collect(),
                    far: false,
                },
            )?;
            let (earlier, new) = runner.runs.split_at_mut(before);
            if let Some(run) = new.first_mut().filter(|_| same_disk(sites).is_empty()) {
                let note = together(run, earlier, sites.len());
                run.notes.extend(note);
            }
        }
        Ok(())
    }
}

/// A device that was written to had been empty, and is again.
pub(super) fn emptied(runner: &Runner, sites: &[Site]) -> Result<(), BenchError> {
    let mut ended = Ok(());
    for site in sites {
        if let Place::Device(device) = &site.place
            && device.was_written()
        {
            runner.watch.began(&format!("{}: making the device empty again", site.subject), 0, 0, 0.0);
            ended = ended.and(device.empty_again());
        }
    }
    ended
}

/// `cat` and plain files go through the page cache, which is emptied before them.
pub(super) fn caches_of(kind: Kind, caches: Caches) -> Caches {
    let blocks = matches!(kind, Kind::Read | Kind::Write | Kind::RandomRead | Kind::RandomWrite | Kind::RandomMixed);
    if !blocks && caches == Caches::Bypassed { Caches::Dropped } else { caches }
}

/// Whether a workload only writes. Such data counts when it is flushed, whatever memory it goes through.
pub(super) fn only_writes(kind: Kind) -> bool {
    matches!(kind, Kind::Write | Kind::RandomWrite | Kind::CreateFiles | Kind::DeleteFiles | Kind::CopyTreeIn)
}

/// Does the sum of the disks hold when all are busy?
fn together(run: &Run, earlier: &[Run], disks: usize) -> Option<Note> {
    let shape = |r: &Run| (r.workload.kind, r.workload.block_bytes, r.workload.depth, r.workload.jobs);
    let alone: Vec<f64> =
        earlier.iter().filter(|r| r.layer == Layer::Disk && shape(r) == shape(run)).filter_map(Run::median).collect();
    let sum: f64 = alone.iter().sum();
    let all = run.median().filter(|_| alone.len() == disks && sum > 0.0)?;
    let unit = |value: f64| match run.workload.kind.counts_operations() {
        true => format!("{value:.0} IOPS"),
        false => format!("{:.0} MB/s", value / 1e6),
    };
    let figures = format!(
        "{}: all at once {}, one after the other {} together ({:.0} %)",
        title(&run.workload),
        unit(all),
        unit(sum),
        all / sum * 100.0
    );
    let (code, text) = match all / sum >= SUM_HOLDS {
        true => ("sum-holds", format!("{figures}: they share nothing that is full")),
        false => (
            "shared-limit",
            format!("{figures}: something that they share (a bus, a controller, the processor) is full"),
        ),
    };
    Some(Note { code: code.to_owned(), text, misleading: false })
}

/// How many of the targets lie on the filesystem of this one, itself included: they have its room together.
pub(super) fn sharers(target: &DiskTarget, targets: &[DiskTarget]) -> u64 {
    let folders = targets.iter().filter_map(|t| match t {
        DiskTarget::Folder(folder) => Some(folder.as_path()),
        DiskTarget::Device(_) => None,
    });
    match target {
        DiskTarget::Folder(folder) => same_filesystem(folder, folders),
        DiskTarget::Device(_) => 1,
    }
}

pub(super) fn same_filesystem<'a>(folder: &Path, others: impl Iterator<Item = &'a Path>) -> u64 {
    let device = |path: &Path| std::fs::metadata(path).ok().map(|found| found.dev());
    let own = device(folder);
    (others.filter(|other| own.is_some() && device(other) == own).count() as u64).max(1)
}

/// Two folders of one disk are not two disks.
fn same_disk(sites: &[Site]) -> Vec<Note> {
    let mut notes = Vec::new();
    for (index, a) in sites.iter().enumerate() {
        for b in sites.iter().skip(index + 1) {
            if let Some(device) = a.devices.iter().find(|device| b.devices.contains(device)) {
                let text = format!(
                    "{} and {} lie on the same disk ({device}): all at once, they share it",
                    a.subject, b.subject
                );
                notes.push(Note { code: "same-disk".to_owned(), text, misleading: true });
            }
        }
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::super::super::plan::{Changes, Preset};
    use super::super::super::result::{Repeat, Samples};
    use super::*;

    fn run(layer: Layer, rate: f64) -> Run {
        let plan = Plan::storage(Preset::Quick, &Changes::default(), 0);
        Run {
            layer,
            subject: "x".to_owned(),
            access: "local".to_owned(),
            here: None,
            variant: Default::default(),
            workload: plan.workload(&plan.shapes[0]),
            with: "fio".to_owned(),
            repeats: vec![Repeat { bytes_per_s: rate, ..Repeat::default() }],
            samples: Samples::default(),
            far_samples: None,
            saturated: Vec::new(),
            notes: Vec::new(),
        }
    }

    #[test]
    fn one_filesystem_has_its_room_once() {
        let folder = tempfile::tempdir().unwrap();
        let of = |path: &Path| DiskTarget::Folder(path.to_owned());
        let targets = [of(folder.path()), of(&folder.path().join(".")), of(Path::new("/proc"))];
        assert_eq!(targets.iter().map(|t| sharers(t, &targets)).collect::<Vec<_>>(), [2, 2, 1]);
    }

    #[test]
    fn a_shared_bus_is_seen() {
        // Box A: four disks on one lane of PCIe 2.0; box B: eight disks, 23.5 of 30 GiB/s.
        let check = |alone: &[f64], all: f64, code: Option<&str>| {
            let earlier: Vec<Run> = alone.iter().map(|rate| run(Layer::Disk, *rate)).collect();
            let found = together(&run(Layer::Disks, all), &earlier, 4).map(|n| n.code);
            assert_eq!(found.as_deref(), code, "{alone:?} {all}");
        };
        check(&[418e6; 4], 395e6, Some("shared-limit"));
        check(&[4e9, 4e9, 4e9, 2.7e9], 14.4e9, Some("sum-holds"));
        check(&[418e6; 3], 395e6, None);
    }
}
