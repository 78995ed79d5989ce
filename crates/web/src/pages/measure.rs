//! The doctor's verdict; benches that are run, watched and stopped; results that are kept.

use std::sync::Arc;
use std::time::Duration;

use askama::Template;
use futures::future::BoxFuture;
use larder_api::endpoints::{
    CompareBenches, GetBench, GetBenchState, GetBenches, GetMounts, GetPoolsKnown, RemoveBench, RunDoctor, StartBench,
    StopBench,
};
use larder_api::{BenchCompare, BenchKept, BenchRunning, BenchStart, BenchState, BenchSubject, DoctorReport, Failure};

use super::storage::size_of;
use crate::ask;
use crate::form::encoded;
use crate::live::{self, Look, Watch};
use crate::note::Note;
use crate::shell_words::on_page;
use crate::text::{Moment, duration, grouped, rate};
use crate::visit::{Answer, Frame, Local, Server, Visit, page as show, rendered};

#[derive(Template)]
#[template(path = "doctor.html")]
struct DoctorPage {
    frame: Frame,
    found: Option<DoctorReport>,
}

/// Runs when it is asked to: it watches the connections for a second.
pub async fn doctor(visit: &Visit<'_>) -> Answer {
    let found = match visit.query.is_checked("run") {
        true => {
            let found = visit.ask(RunDoctor).await?;
            Some(DoctorReport { verdict: on_page(&found.verdict), text: on_page(&found.text), ..found })
        }
        false => None,
    };
    show(&DoctorPage { frame: visit.frame("care", "Doctor"), found })
}

pub struct BenchView {
    pub id: String,
    pub href: String,
    pub title: String,
    pub at: Moment,
    pub took: String,
    pub runs: u64,
    pub preset: String,
    pub interrupted: bool,
}

impl BenchView {
    fn of(one: &BenchKept) -> Self {
        Self {
            id: one.id.clone(),
            href: format!("/+/care/bench?id={}", encoded(&one.id)),
            title: one.title.clone(),
            at: Moment::of_ms_unsigned(one.started_ms),
            took: duration(one.seconds.max(0.0) as u64),
            runs: one.runs,
            preset: one.preset.clone(),
            interrupted: one.interrupted,
        }
    }
}

/// The presets of `larder bench`, and how long each takes.
pub const PRESETS: [(&str, &str); 6] = [
    ("quick", "Quick: two minutes"),
    ("standard", "Standard: ten minutes each"),
    ("thorough", "Thorough: two hours each"),
    ("throughput", "Throughput: ten minutes each"),
    ("iops", "Small requests: twelve minutes each"),
    ("blocksize", "Block sizes: seven minutes each"),
];
const WHILE_RUNNING: Duration = Duration::from_secs(1);
const WHILE_IDLE: Duration = Duration::from_secs(10);

pub struct RunView {
    pub title: String,
    pub preset: String,
    pub percent: u8,
    pub left: String,
    pub elapsed: String,
    pub now: String,
    pub rate: String,
    pub stopping: bool,
    pub results: Vec<String>,
    pub notes: Vec<String>,
}

impl RunView {
    fn of(run: BenchRunning) -> Self {
        let repeat = if run.repeat == 0 { String::new() } else { format!(", {} of {}", run.repeat, run.repeats) };
        let mut rates = Vec::new();
        if run.bytes_per_s >= 1.0 {
            rates.push(rate(run.bytes_per_s as u64));
        }
        if run.operations_per_s >= 1.0 {
            rates.push(format!("{} IOPS", grouped(run.operations_per_s as u64)));
        }
        Self {
            now: if run.workload.is_empty() { "getting ready".to_owned() } else { run.workload + &repeat },
            title: run.title,
            preset: run.preset,
            percent: run.percent,
            left: duration(run.left_s.max(0.0) as u64),
            elapsed: duration(run.elapsed_s.max(0.0) as u64),
            rate: rates.join(", "),
            stopping: run.stopping,
            results: run.results,
            notes: run.notes,
        }
    }
}

pub struct EndView {
    pub title: String,
    pub at: Moment,
    pub href: Option<String>,
    pub fault: Option<String>,
    pub action: Option<String>,
}

#[derive(Template)]
#[template(path = "parts/bench.html")]
struct BenchFragment {
    running: Option<RunView>,
    ended: Option<EndView>,
    csrf: String,
    may_stop: bool,
}

impl BenchFragment {
    fn of(state: BenchState, csrf: String, may_stop: bool) -> Self {
        let ended = state.ended.map(|end| EndView {
            title: end.title,
            at: Moment::of_ms_unsigned(end.at_ms),
            href: end.id.map(|id| format!("/+/care/bench?id={}", encoded(&id))),
            fault: end.fault,
            action: end.action.as_deref().map(on_page),
        });
        Self { running: state.running.map(RunView::of), ended, csrf, may_stop }
    }
}

#[derive(Template)]
#[template(path = "bench.html")]
struct BenchPage {
    frame: Frame,
    progress: String,
    disks: Vec<String>,
    /// The folder, and the volume that is mounted there.
    mounts: Vec<(String, String)>,
    kept: Vec<BenchView>,
    title: String,
    report: Option<String>,
}

pub async fn bench(visit: &Visit<'_>) -> Answer {
    let kept = visit.ask(GetBenches).await?;
    let (id, a, b) = (visit.query.text("id"), visit.query.text("a"), visit.query.text("b"));
    let (title, report) = match (id, a, b) {
        ("", "", "") => (String::new(), None),
        ("", a, b) => {
            let request = BenchCompare { a: a.to_owned(), b: b.to_owned() };
            (format!("{a} beside {b}"), Some(visit.call(CompareBenches, (), &request).await?.text))
        }
        (id, ..) => (id.to_owned(), Some(visit.about(GetBench, id).await?.text)),
    };
    let frame = visit.frame("care", "Benches");
    let state = visit.ask(GetBenchState).await?;
    let progress = rendered(&BenchFragment::of(state, frame.csrf.clone(), frame.changes_storage()))?;
    let shown = |path: &std::path::Path| path.to_str().map(str::to_owned);
    let pools = visit.ask(GetPoolsKnown).await?;
    let disks = pools.iter().flat_map(|pool| &pool.disks).filter(|disk| disk.state == "ONLINE");
    let disks = disks.filter_map(|disk| shown(&disk.path)).collect();
    let mounts = visit.ask(GetMounts).await?;
    let mounts = mounts.iter().filter(|mount| !mount.read_only);
    let mounts = mounts.filter_map(|mount| Some((shown(&mount.dir)?, mount.volume.clone()))).collect();
    show(&BenchPage { frame, progress, disks, mounts, kept: kept.iter().map(BenchView::of).collect(), title, report })
}

pub async fn bench_live(visit: &Visit<'_>) -> Answer {
    let frame = visit.frame("care", "Benches");
    live::stream(visit, BenchWatch { csrf: frame.csrf.clone(), may_stop: frame.changes_storage() })
}

/// `live.wakes_nothing`: the state is in memory.
struct BenchWatch {
    csrf: String,
    may_stop: bool,
}

impl Watch for BenchWatch {
    fn look<'a>(&'a mut self, server: &'a Arc<Server>) -> BoxFuture<'a, Result<Look, Failure>> {
        Box::pin(async move {
            let state = ask::call(&*server.ask, None, GetBenchState, (), None).await?;
            let again = if state.running.is_some() { WHILE_RUNNING } else { WHILE_IDLE };
            let fragment = rendered(&BenchFragment::of(state, self.csrf.clone(), self.may_stop))?;
            Ok(Look { fragment, again })
        })
    }
}

fn subject(visit: &Visit<'_>) -> Result<BenchSubject, Failure> {
    let paths = || {
        let lines = visit.form.text("more").lines().map(str::trim).filter(|line| !line.is_empty());
        visit.form.all("path").chain(lines).map(Into::into).collect()
    };
    Ok(match visit.form.text("kind") {
        "disk" => BenchSubject::Disk { paths: paths() },
        "pool" => BenchSubject::Pool { paths: paths() },
        "net" => BenchSubject::Net { host: visit.required("host", "the other machine")? },
        "share" => BenchSubject::Share {
            target: visit.required("target", "the share")?,
            user: visit.form.filled("user"),
            password: visit.form.get("password").filter(|password| !password.is_empty()).map(str::to_owned),
        },
        _ => return Err(Failure::invalid("the thing to measure is missing")),
    })
}

fn back(visit: &Visit<'_>, outcome: Result<Note, Failure>) -> Answer {
    visit.back(Local::of("/care/bench"), outcome)
}

pub async fn bench_start(visit: &Visit<'_>) -> Answer {
    let change = async {
        let request = BenchStart {
            subject: subject(visit)?,
            preset: visit.required("preset", "the preset")?,
            title: visit.form.filled("title"),
            size_bytes: size_of(visit.form.text("size"))?,
            seconds: None,
            repeats: None,
            only: Vec::new(),
        };
        visit.call(StartBench, (), &request).await?;
        Ok(Note::done("The bench runs. This page shows how far it is; it goes on when the page is closed."))
    };
    back(visit, change.await)
}

pub async fn bench_stop(visit: &Visit<'_>) -> Answer {
    let change = async {
        visit.ask(StopBench).await?;
        Ok(Note::done("The bench stops, and removes the files that it wrote."))
    };
    back(visit, change.await)
}

pub async fn bench_remove(visit: &Visit<'_>) -> Answer {
    let change = async {
        let id = visit.required("id", "the result")?;
        visit.about(RemoveBench, &id).await?;
        Ok(Note::done(format!("The result {id} was removed.")))
    };
    back(visit, change.await)
}
