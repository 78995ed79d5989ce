//! One schedule from one seed: several lives of a process on the same disks.

use std::sync::Arc;
use std::time::Duration;

use crate::chance;
use crate::disk::{Counts, Plant, World};
use crate::plan::{Kind, Limits, Plan, Trouble};
use crate::pool_run::PoolRun;
use crate::session::{Run, Stop};
use crate::split::SplitRun;
use crate::turns;
use crate::volume_run::VolumeRun;

#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    pub kind: Option<Kind>,
    pub limits: Limits,
    pub plant: Option<Plant>,
    pub has_trace: bool,
}

enum Subject {
    Pool(PoolRun),
    Split(SplitRun),
    Volume(Box<VolumeRun>),
}

/// How a schedule went.
#[derive(Clone, Debug)]
pub struct Report {
    pub seed: u64,
    pub plan: Plan,
    pub failure: Option<String>,
    pub counts: Counts,
    /// Operations of clients that were answered.
    pub answered: u64,
    /// Of all that happened: the same seed, the same digest.
    pub digest: u64,
    pub virtual_time: Duration,
    pub trace: Vec<String>,
}

/// Runs on its own thread (`chance.fresh_thread`).
pub fn run(seed: u64, options: Options) -> Report {
    let thread = std::thread::Builder::new().name(format!("seed-{seed}")).stack_size(8 << 20);
    let started = thread.spawn(move || {
        chance::enter(seed);
        turns::open_seams(seed);
        let report = run_here(seed, options);
        chance::leave();
        report
    });
    match started.map(std::thread::JoinHandle::join) {
        Ok(Ok(report)) => report,
        Ok(Err(panic)) => died(seed, options, &panic),
        Err(error) => died(seed, options, &error.to_string()),
    }
}

fn died(seed: u64, options: Options, panic: &(dyn std::any::Any + Send)) -> Report {
    let text = panic.downcast_ref::<String>().cloned();
    let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default();
    Report {
        seed,
        plan: Plan::new(seed, options.kind, options.limits),
        failure: Some(format!("panic: {text}")),
        counts: Counts::default(),
        answered: 0,
        digest: 0,
        virtual_time: Duration::ZERO,
        trace: Vec::new(),
    }
}

fn run_here(seed: u64, options: Options) -> Report {
    let plan = Plan::new(seed, options.kind, options.limits);
    let world = World::new(seed, plan.disks.clone(), options.has_trace);
    world.plant(options.plant);
    world.note(|| format!("{plan:?}"));
    if plan.kind == Kind::Bucket {
        let outcome = crate::bucket::run(seed, &plan, &world);
        return Report {
            seed,
            plan,
            failure: outcome.failure,
            counts: world.counts(),
            answered: outcome.answered,
            digest: world.hash(),
            virtual_time: outcome.virtual_time,
            trace: world.trace(),
        };
    }
    let run = Arc::new(Run::new(seed, plan.clone(), world.clone()));
    let subject = match plan.kind {
        Kind::Pool if plan.trouble == Trouble::Split => Subject::Split(SplitRun::new(run.clone())),
        Kind::Pool => Subject::Pool(PoolRun::new(run.clone())),
        _ => Subject::Volume(Box::new(VolumeRun::new(run.clone()))),
    };
    let mut failure = None;
    let mut elapsed = Duration::ZERO;
    for life in 0..plan.sessions {
        world.note(|| format!("life {life}"));
        let Some(runtime) = runtime() else {
            failure = Some("there is no runtime".to_owned());
            break;
        };
        let outcome = runtime.block_on(async {
            turns::start_time(elapsed);
            let outcome = match &subject {
                Subject::Pool(subject) => subject.session(life).await,
                Subject::Split(subject) => subject.session(life).await,
                Subject::Volume(subject) => subject.session(life).await,
            };
            elapsed = turns::elapsed();
            *run.ended.lock() = elapsed;
            outcome
        });
        drop(runtime);
        match outcome {
            Ok(()) => world.restart_process(),
            Err(Stop::Cut) => world.start_again(),
            Err(Stop::Failed(why)) => {
                failure = Some(why);
                break;
            }
        }
    }
    let failure = failure.or_else(|| run.failed());
    if let Some(why) = &failure {
        world.note(|| format!("FAILED: {why}"));
    }
    let answered = *run.answered.lock();
    Report {
        seed,
        plan,
        failure,
        counts: world.counts(),
        answered,
        digest: world.hash(),
        virtual_time: elapsed,
        trace: world.trace(),
    }
}

fn runtime() -> Option<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().ok()
}
