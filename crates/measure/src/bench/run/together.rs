//! Disks and the wire at the same time: a machine whose disks and network share a bus or a core shows it here.

use super::super::plan::{Plan, Shape};
use super::super::result::{Kind, Layer, Run};
use super::super::runner::{Runner, Spec};
use super::disks::{emptied, sharers};
use super::{Bench, DiskTarget, Host};
use larder_load::BenchError;
use larder_load::BothLoad;
use larder_load::NetLoad;
use larder_load::{LocalLoad, Place};

/// As when a file is served, and as when one is taken in.
const PAIRS: [(Kind, Kind); 2] = [(Kind::Read, Kind::Send), (Kind::Write, Kind::Receive)];
const BLOCK_BYTES: u64 = 1 << 20;
const DEPTH: u32 = 16;

impl Bench<'_> {
    pub(super) fn both(&self, runner: &mut Runner, disks: &[DiskTarget], host: &Host) -> Result<(), BenchError> {
        let plan = self.storage_plan();
        let sites = disks.iter().map(|d| self.site(d, &plan, sharers(d, disks))).collect::<Result<Vec<_>, _>>()?;
        let least = sites.iter().map(|site| site.data_bytes).min().unwrap_or(0);
        let plan = Plan { data_bytes: least * sites.len() as u64, ..plan };
        let wire_plan = self.wire_plan();
        for (disk_kind, wire_kind) in PAIRS {
            let shape =
                Shape { kind: disk_kind, block_bytes: BLOCK_BYTES, depth: DEPTH, jobs: 1, files: sites.len() as u64 };
            let wire = Shape { kind: wire_kind, block_bytes: 128 << 10, depth: 1, jobs: 1, files: 0 };
            let local =
                LocalLoad::new(self.machine, sites.iter().map(|site| &site.place).collect::<Vec<&Place>>(), "local")?;
            if !local.can(disk_kind) {
                continue;
            }
            let net = NetLoad::new(self.machine, &host.name, host.port)?;
            let mut load = BothLoad { local, net, wire: wire_plan.workload(&wire), side: Vec::new() };
            let mut workload = plan.workload(&shape);
            workload.caches = sites.first().map_or(workload.caches, |site| site.caches);
            let before = runner.runs.len();
            let spec = Spec {
                layer: Layer::Both,
                subject: sites.iter().map(|site| site.subject.as_str()).collect::<Vec<_>>().join(", "),
                variant: self.labelled("beside", &host.name),
                workload,
                limits: plan.limits(),
                repeats: plan.repeats,
                notes: Vec::new(),
                far: true,
            };
            let ended = runner.measure(&mut load, spec);
            self.keep_side(runner, before, load, host);
            if ended.is_err() {
                let emptied = emptied(runner, &sites);
                return ended.and(emptied);
            }
        }
        emptied(runner, &sites)
    }

    /// The wire's half of it is a run of its own, with the same samples.
    fn keep_side(&self, runner: &mut Runner, before: usize, load: BothLoad, host: &Host) {
        let Some(disks) = runner.runs.get(before).filter(|_| !load.side.is_empty()) else { return };
        let mut repeats = load.side;
        for (repeat, beside) in repeats.iter_mut().zip(&disks.repeats) {
            repeat.start_ms = beside.start_ms;
        }
        let with = larder_load::Load::with(&load.net, load.wire.kind);
        let run = Run {
            subject: host.name.clone(),
            access: "tcp".to_owned(),
            variant: self.labelled("beside", &disks.subject),
            workload: load.wire,
            with,
            repeats,
            // A run that was too short for the disks was too short for the wire.
            notes: disks.notes.iter().filter(|note| note.misleading).cloned().collect(),
            ..disks.clone()
        };
        runner.watch.ended(&run);
        runner.runs.push(run);
    }
}
