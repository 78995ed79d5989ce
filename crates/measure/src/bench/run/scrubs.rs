//! A scrub of a pool: its rate, and its price for those who use the pool meanwhile.

use std::ffi::OsString;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use larder_load::RunLimits;
use larder_load::{BenchError, Control, Load, LocalLoad, Place, Progress, Scene, Scratch, process};

use super::super::ground::Ground;
use super::super::plan::{Plan, Shape};
use super::super::pool::{PoolSpec, TemporaryPool};
use super::super::result::{Kind, Layer, Note, Repeat, Run, SCRUB, Workload};
use super::super::runner::{Runner, Spec, title};
use super::disks::only_writes;
use super::pools::caches;
use super::{Bench, PoolTarget, is_root};
use crate::Machine;

const COMMAND_TIME_MAX: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(250);
/// A scrub that has checked nothing by then is no scrub.
const FIRST_TIME_MAX: Duration = Duration::from_secs(60);

/// The pool that is scrubbed, through the program's own commands.
struct Scrubber<'a> {
    machine: &'a Machine,
    program: &'a Path,
    data: Option<&'a Path>,
    pool: String,
    /// Its daemon has no other: then it is not named, since a folder may have that name.
    only: bool,
}

/// The fields of `pool scrub status --json`.
#[derive(Clone, Debug, Default, serde::Deserialize)]
struct Status {
    phase: String,
    elapsed_ms: u64,
    bytes_done: u64,
    bytes_total: u64,
    unrepaired: u64,
}

impl Scrubber<'_> {
    fn command(&self, verb: &str) -> Result<Option<Status>, BenchError> {
        let mut words: Vec<OsString> = vec!["--json".into()];
        words.extend(self.data.iter().flat_map(|data| ["--data".into(), data.into()]));
        words.extend(["pool", "scrub", verb].map(OsString::from));
        words.extend((!self.only).then(|| OsString::from(&self.pool)));
        let program = self.program.to_string_lossy();
        // Also once the bench was stopped: the scrub that it began ends with it.
        let control = Control::new(|_| {});
        let done = process::run(self.machine, &program, &words, COMMAND_TIME_MAX, &control, &mut |_| {})?;
        let name = format!("larder pool scrub {verb}");
        if done.code != Some(0) {
            return Err(BenchError::tool(&name, super::super::pool::told(&done.stderr)));
        }
        let pools: serde_json::Value =
            serde_json::from_slice(&done.stdout).map_err(|e| BenchError::answer(&name, e.to_string()))?;
        serde_json::from_slice(pools[0]["scrub"].to_string().as_bytes())
            .map_err(|e| BenchError::answer(&name, e.to_string()))
    }

    /// Somebody's own scrub is not taken from him.
    fn check_idle(&self) -> Result<(), BenchError> {
        match self.command("status")? {
            Some(status) if matches!(status.phase.as_str(), "running" | "paused") => Err(BenchError::invalid(
                format!("a scrub of {} is {} already", self.pool, status.phase),
                format!("wait for its end: larder pool scrub status --wait {}", self.pool),
            )),
            _ => Ok(()),
        }
    }

    /// From its beginning until its end or `over`.
    fn scrub(&self, over: &dyn Fn(&Status) -> bool) -> Result<Status, BenchError> {
        self.command("start")?;
        let mut last = Status::default();
        loop {
            let found = self.command("status");
            match &found {
                Ok(Some(status)) if status.phase == "running" && !over(status) => last = status.clone(),
                Ok(Some(status)) if status.phase != "running" => return Ok(status.clone()),
                _ => {
                    // It is given up where nobody waits for its end, and may have ended by itself just now.
                    let stopped = self.command("stop").or_else(|_| self.command("status"));
                    return found.and_then(|status| Ok(stopped?.or(status).unwrap_or(last)));
                }
            }
            std::thread::sleep(LOOK);
        }
    }
}

/// The scrub by itself.
struct ScrubLoad<'a>(&'a Scrubber<'a>);

impl Load for ScrubLoad<'_> {
    fn access(&self) -> String {
        "local".to_owned()
    }

    fn with(&self, _kind: Kind) -> String {
        format!("larder {}", env!("CARGO_PKG_VERSION"))
    }

    fn prepare(&mut self, _workload: &Workload, scene: &Scene) -> Result<(), BenchError> {
        scene.go_on()
    }

    fn run(&mut self, _workload: &Workload, limits: &RunLimits, scene: &Scene) -> Result<Repeat, BenchError> {
        let began = Instant::now();
        let status = self.0.scrub(&|status| {
            let done = Some(status.bytes_done as f64 / status.bytes_total.max(1) as f64);
            let bytes_per_s = status.bytes_done as f64 / (status.elapsed_ms as f64 / 1e3).max(1e-3);
            scene.control.tell(Progress { done, bytes_per_s, operations_per_s: 0.0 });
            // The first bytes are checked behind what others ask for.
            let time_max = if status.bytes_done > 0 { limits.measure_max } else { FIRST_TIME_MAX };
            began.elapsed() >= time_max || scene.control.is_stopped()
        })?;
        scene.go_on()?;
        let seconds = (status.elapsed_ms as f64 / 1e3).max(1e-3);
        if status.bytes_done == 0 {
            return Err(BenchError::tool("larder pool scrub", "it checked nothing within a minute"));
        }
        Ok(Repeat {
            seconds,
            bytes: status.bytes_done,
            bytes_per_s: status.bytes_done as f64 / seconds,
            ..Repeat::default()
        })
    }

    fn clean_up(&mut self) -> Result<(), BenchError> {
        Ok(())
    }
}

/// Another load while the pool is scrubbed, again and again.
struct Beside<'a> {
    load: LocalLoad<'a>,
    scrubber: &'a Scrubber<'a>,
}

impl Load for Beside<'_> {
    fn access(&self) -> String {
        self.load.access()
    }

    fn with(&self, kind: Kind) -> String {
        self.load.with(kind)
    }

    fn prepare(&mut self, workload: &Workload, scene: &Scene) -> Result<(), BenchError> {
        self.load.prepare(workload, scene)
    }

    fn run(&mut self, workload: &Workload, limits: &RunLimits, scene: &Scene) -> Result<Repeat, BenchError> {
        let over = AtomicBool::new(false);
        let (scrubber, load) = (self.scrubber, &mut self.load);
        std::thread::scope(|scope| {
            let scrubs = scope.spawn(|| -> Result<(), BenchError> {
                while !over.load(Ordering::Acquire) {
                    scrubber.scrub(&|_| over.load(Ordering::Acquire))?;
                }
                Ok(())
            });
            let repeat = load.run(workload, limits, scene);
            over.store(true, Ordering::Release);
            let ended = scrubs.join().unwrap_or_else(|_| Err(BenchError::tool("larder", "a thread ended early")));
            repeat.and_then(|repeat| ended.map(|()| repeat))
        })
    }

    fn clean_up(&mut self) -> Result<(), BenchError> {
        self.load.clean_up()
    }
}

impl Bench<'_> {
    pub(super) fn scrub(&self, runner: &mut Runner, target: &PoolTarget) -> Result<(), BenchError> {
        let program = &self.request.program;
        if let Some(folder) = self.mounted(target)? {
            let ground = Ground::of(self.machine, &folder)?;
            let pool = ground.source.split('/').next().unwrap_or_default().to_owned();
            let scrubber =
                Scrubber { machine: self.machine, program, data: self.request.data.as_deref(), pool, only: false };
            return self.scrubbed(runner, &folder, &folder.display().to_string(), &scrubber, self.storage_plan());
        }
        let plan = self.fitting(runner, &target.folders)?;
        let memory_bytes = super::pools::memory_for(&plan);
        let spec = PoolSpec { layout: target.layouts.first().cloned(), memory_bytes, ..PoolSpec::default() };
        let pool = TemporaryPool::start(self.machine, program, &target.folders, &spec, runner.control)?;
        let names: Vec<String> = target.folders.iter().map(|f| f.display().to_string()).collect();
        let (data, pool_name) = (Some(pool.data()), pool.name().to_owned());
        let scrubber = Scrubber { machine: self.machine, program, data, pool: pool_name, only: true };
        self.scrubbed(runner, pool.mount(), &names.join(", "), &scrubber, plan)
    }

    /// Each workload without and with a scrub, then the scrub by itself.
    fn scrubbed(
        &self,
        runner: &mut Runner,
        mount: &Path,
        subject: &str,
        scrubber: &Scrubber,
        plan: Plan,
    ) -> Result<(), BenchError> {
        scrubber.check_idle()?;
        let ground = Ground::of(self.machine, mount)?;
        let (data_bytes, less) = ground.room(plan.data_bytes, self.size_given(), 1)?;
        let plan = Plan { data_bytes, ..plan };
        let place = Place::Folder(Scratch::make(self.machine, &ground.folder, runner.control)?);
        let memory_bytes = super::pools::memory_for(&plan);
        let local = || LocalLoad::new(self.machine, vec![&place], "mount");
        let spec = |workload: Workload, scrub: Option<&str>, notes: Vec<Note>| Spec {
            layer: Layer::Pool,
            subject: subject.to_owned(),
            variant: scrub.map_or_else(|| self.request.labels.clone(), |scrub| self.labelled(SCRUB, scrub)),
            workload,
            limits: plan.limits(),
            repeats: plan.repeats,
            notes,
            far: false,
        };
        for shape in plan.shapes.iter().filter(|shape| is_use(shape)) {
            let mut workload = plan.workload(shape);
            let (known, note) = caches(&workload, memory_bytes, is_root());
            workload.caches = known;
            // Both rows read the same memory: what a scrub costs is told all the same.
            let note = note.filter(|_| !only_writes(shape.kind)).map(|note| Note { misleading: false, ..note });
            let notes: Vec<Note> = less.iter().cloned().chain(note).collect();
            runner.measure(&mut local()?, spec(workload.clone(), Some("none"), notes.clone()))?;
            runner.measure(&mut Beside { load: local()?, scrubber }, spec(workload, Some("running"), notes))?;
        }
        let alone = Shape { kind: Kind::Scrub, block_bytes: 0, depth: 1, jobs: 1, files: 0 };
        let workload = Workload { synced: false, ..plan.workload(&alone) };
        runner.measure(&mut ScrubLoad(scrubber), spec(workload, None, Vec::new()))?;
        let notes: Vec<Note> = costs(&runner.runs).into_iter().chain(damage(scrubber)).collect();
        notes.into_iter().for_each(|note| runner.note(note));
        Ok(())
    }
}

/// Whether people do this while a pool is scrubbed.
fn is_use(shape: &Shape) -> bool {
    matches!(shape.kind, Kind::Read | Kind::Write | Kind::RandomRead)
}

/// One sentence: of each workload the part that is left while a scrub runs.
fn costs(runs: &[Run]) -> Option<Note> {
    let of = |run: &Run, value: &str| run.variant.get(SCRUB).is_some_and(|scrub| scrub == value);
    let left = |busy: &Run| {
        let same = |idle: &&Run| of(idle, "none") && idle.workload == busy.workload && idle.subject == busy.subject;
        let idle = runs.iter().find(same)?.median().filter(|median| *median > 0.0)?;
        Some(format!("{} keeps {:.0} %", title(&busy.workload), busy.median()? / idle * 100.0))
    };
    let kept: Vec<String> = runs.iter().filter(|run| of(run, "running")).filter_map(left).collect();
    let text = format!("while a scrub runs, {}", kept.join(", "));
    (!kept.is_empty()).then(|| Note { code: "scrub-cost".to_owned(), text, misleading: false })
}

/// A pool that is not whole is not what was meant to be measured.
fn damage(scrubber: &Scrubber) -> Option<Note> {
    let lost = scrubber.command("status").ok()??.unrepaired;
    let text = format!(
        "the scrub found {lost} objects that are not whole: larder pool scrub status {} names the files",
        scrubber.pool
    );
    (lost > 0).then(|| Note { code: "damage".to_owned(), text, misleading: false })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::bench::show::sample;

    #[test]
    fn the_price_is_told_by_workload() {
        let mut runs = sample::box_a().runs;
        runs.truncate(2);
        let [idle, busy] = runs.as_mut_slice() else { panic!("two runs") };
        *busy = idle.clone();
        for (run, value, rate) in [(idle, "none", 400e6), (busy, "running", 300e6)] {
            run.variant = BTreeMap::from([(SCRUB.to_owned(), value.to_owned())]);
            run.workload.kind = Kind::Read;
            run.repeats.truncate(1);
            run.repeats[0].bytes_per_s = rate;
        }
        assert!(costs(&runs).unwrap().text.ends_with("keeps 75 %"), "{:?}", costs(&runs));
        assert_eq!(costs(&runs[..1]), None);
    }
}
