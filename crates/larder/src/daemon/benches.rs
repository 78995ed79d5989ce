//! The bench that runs within the daemon, for the page and the API.
//!
//! - `benches.one_at_a_time`: two benches would measure each other.
//! - `benches.taken_away`: a bench that is stopped, and a daemon that stops, remove what the bench wrote. A daemon waits for that for
//!   [`END_TIME_MAX`]; then what can be removed at once is removed (`Control::abandon`).
//! - `benches.bounded`: of results and notes the newest [`LINES_MAX`] are shown while it runs. The kept result has all.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use larder_api::{BenchEnded, BenchRunning, BenchStart, BenchState, BenchSubject, Failure, FailureKind};
use larder_facts::Machine;
use larder_facts::power::Sources;
use larder_load::client::ClientOptions;
use larder_load::{Control, Note, PORT};
use larder_measure::bench::result::Run;
use larder_measure::bench::{
    self, Changes, FarEnd, Finished, Host, PoolTarget, Request, Subjects, Watch, samples_port,
};
use parking_lot::Mutex;

use super::Daemon;
use super::care::blocking;
use crate::cli::bench as cli;
use crate::cli::bench::args::{REPEATS_MAX, SECONDS_MAX};
use crate::cli::bench::progress::{State, line};
use crate::config::power::PowerConfig;

/// More than any preset has.
const LINES_MAX: usize = 500;
/// Folders and devices of one bench.
const PATHS_MAX: usize = 64;
const SIZE_BYTES_MIN: u64 = 1 << 20;
/// Removing files takes a moment; a disk that hangs would keep the daemon forever.
const END_TIME_MAX: Duration = Duration::from_secs(10);

struct Running {
    title: String,
    preset: String,
    control: Arc<Control>,
    watched: Arc<Watched>,
}

#[derive(Default)]
struct Inner {
    running: Option<Running>,
    ended: Option<BenchEnded>,
}

#[derive(Default)]
pub(super) struct Benches {
    inner: Mutex<Inner>,
    /// Told when one ends.
    over: tokio::sync::Notify,
}

/// What a bench tells while it runs.
struct Watched {
    state: Mutex<State>,
    lines: Mutex<(Vec<String>, Vec<String>)>,
}

fn push(lines: &mut Vec<String>, text: String) {
    if lines.len() == LINES_MAX {
        lines.remove(0);
    }
    lines.push(text);
}

impl Watch for Watched {
    fn planned(&self, seconds: f64) {
        self.state.lock().planned(seconds);
    }

    fn began(&self, what: &str, repeat: u32, repeats: u32, seconds: f64) {
        self.state.lock().began(what, repeat, repeats, seconds);
    }

    fn ended(&self, run: &Run) {
        push(&mut self.lines.lock().0, line(run));
    }

    fn noted(&self, note: &Note) {
        push(&mut self.lines.lock().1, note.text.clone());
    }
}

impl Running {
    fn shown(&self) -> BenchRunning {
        let now = Instant::now();
        let state = self.watched.state.lock();
        let (part, left_s) = state.part_and_left(now);
        let (results, notes) = self.watched.lines.lock().clone();
        BenchRunning {
            title: self.title.clone(),
            preset: self.preset.clone(),
            elapsed_s: state.elapsed_s(now),
            left_s,
            percent: (part * 100.0).clamp(0.0, 100.0) as u8,
            workload: state.what.clone(),
            repeat: state.repeat.0,
            repeats: state.repeat.1,
            bytes_per_s: state.live.bytes_per_s,
            operations_per_s: state.live.operations_per_s,
            stopping: self.control.is_stopped(),
            results,
            notes,
        }
    }
}

impl Benches {
    pub(super) fn state(&self) -> BenchState {
        let inner = self.inner.lock();
        BenchState { running: inner.running.as_ref().map(Running::shown), ended: inner.ended.clone() }
    }

    pub(super) fn stop(&self) -> BenchState {
        if let Some(running) = &self.inner.lock().running {
            running.control.stop();
        }
        self.state()
    }

    /// `benches.one_at_a_time`
    fn begin(&self, running: Running) -> Result<(), Failure> {
        let mut inner = self.inner.lock();
        if let Some(other) = &inner.running {
            let text = format!("the bench of {} runs: two would measure each other", other.title);
            return Err(Failure::new(FailureKind::Busy, text).action("wait until it is done, or stop it"));
        }
        inner.running = Some(running);
        Ok(())
    }

    fn end_with(&self, ended: BenchEnded) {
        let mut inner = self.inner.lock();
        (inner.running, inner.ended) = (None, Some(ended));
        self.over.notify_waiters();
    }

    /// The daemon stops (`benches.taken_away`).
    pub(super) async fn end(&self) {
        let control = self.inner.lock().running.as_ref().map(|running| running.control.clone());
        let Some(control) = control else { return };
        control.stop();
        let over = async {
            loop {
                let told = self.over.notified();
                if self.inner.lock().running.is_none() {
                    return;
                }
                // A bench that ended between the two looks told nobody.
                let _ = tokio::time::timeout(Duration::from_millis(200), told).await;
            }
        };
        if tokio::time::timeout(END_TIME_MAX, over).await.is_err() {
            let left = blocking(move || control.abandon()).await.unwrap_or_default();
            left.iter().for_each(|text| tracing::warn!("the bench was ended before it could end in order: {text}"));
        }
    }
}

/// Absolute paths, as a caller elsewhere has no working folder here.
fn checked(paths: &[PathBuf]) -> Result<(), Failure> {
    if paths.is_empty() || paths.len() > PATHS_MAX {
        return Err(Failure::invalid(format!("a bench is of 1 to {PATHS_MAX} folders or devices")));
    }
    match paths.iter().find(|path| !path.is_absolute()) {
        None => Ok(()),
        Some(path) => Err(Failure::invalid(format!("{} is no whole path", path.display()))
            .action("write it from the root, such as /mnt/disk1")),
    }
}

fn subjects(subject: &BenchSubject) -> Result<(&'static str, Subjects, ClientOptions), Failure> {
    let mut client = ClientOptions::default();
    let (verb, subjects) = match subject {
        BenchSubject::Disk { paths } => {
            checked(paths)?;
            let disks = paths.iter().map(|path| cli::disk_target(path)).collect::<Result<_, _>>()?;
            ("disk", Subjects { disks, ..Subjects::default() })
        }
        BenchSubject::Pool { paths } => {
            checked(paths)?;
            let pool = Some(PoolTarget { folders: paths.clone(), ..PoolTarget::default() });
            ("pool", Subjects { pool, ..Subjects::default() })
        }
        BenchSubject::Net { host } => {
            larder_load::checked_host(host).map_err(|e| cli::failure(&e))?;
            let far = Some(FarEnd { name: host.clone(), port: samples_port(PORT) });
            ("net", Subjects { host: Some(Host { name: host.clone(), port: PORT }), far, ..Subjects::default() })
        }
        BenchSubject::Share { target, user, password } => {
            // Whoever asks by the API sees no file of this machine.
            if target.contains("-file=") {
                return Err(Failure::invalid("a share for the daemon names no file with a password or key")
                    .action("give user and password beside it"));
            }
            client.user.clone_from(user);
            client.password.clone_from(password);
            if !target.contains("://") {
                checked(&[PathBuf::from(target)])?;
            }
            ("share", Subjects { shares: vec![cli::share_target(target)?], ..Subjects::default() })
        }
    };
    Ok((verb, subjects, client))
}

fn changes(start: &BenchStart) -> Result<Changes, Failure> {
    if start.size_bytes.is_some_and(|bytes| bytes < SIZE_BYTES_MIN) {
        return Err(Failure::invalid("less than 1 MiB of data is too little to measure with"));
    }
    if start.seconds.is_some_and(|seconds| !(1.0..=SECONDS_MAX).contains(&seconds)) {
        return Err(Failure::invalid(format!("a repeat takes 1 to {SECONDS_MAX} seconds")));
    }
    if start.repeats.is_some_and(|repeats| !(1..=REPEATS_MAX).contains(&i64::from(repeats))) {
        return Err(Failure::invalid(format!("a workload is measured 1 to {REPEATS_MAX} times")));
    }
    let kinds = start.only.iter().map(|kind| cli::args::kind(kind)).collect::<Result<_, _>>();
    Ok(Changes {
        size_bytes: start.size_bytes,
        seconds: start.seconds,
        repeats: start.repeats,
        kinds: kinds.map_err(Failure::invalid)?,
        ..Changes::default()
    })
}

/// Whose names are all checked. Looks at the disks.
fn request(start: &BenchStart, power: &PowerConfig, data: PathBuf, history: PathBuf) -> Result<Request, Failure> {
    let (verb, subjects, client) = subjects(&start.subject)?;
    let title = start.title.as_deref().map(cli::args::title).transpose().map_err(Failure::invalid)?;
    let meter = Sources::new(&Machine::this(), &power.sources, &power.parts, power.supply_efficiency);
    Ok(Request {
        verb: verb.to_owned(),
        subjects,
        preset: start.preset.parse().map_err(|e| Failure::invalid(format!("{e}")))?,
        changes: changes(start)?,
        ciphers: false,
        labels: Default::default(),
        title,
        client,
        history,
        program: std::env::current_exe().map_err(|e| Failure::io("cannot find this program", &e))?,
        data: Some(data),
        meter: Some(Arc::new(std::sync::Mutex::new(meter))),
    })
}

/// The subject as a person named it.
fn named(start: &BenchStart) -> String {
    let joined = |paths: &[PathBuf]| paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ");
    match (&start.title, &start.subject) {
        (Some(title), _) => title.clone(),
        (None, BenchSubject::Disk { paths }) => format!("disk {}", joined(paths)),
        (None, BenchSubject::Pool { paths }) => format!("pool {}", joined(paths)),
        (None, BenchSubject::Net { host }) => format!("net {host}"),
        (None, BenchSubject::Share { target, .. }) => format!("share {}", larder_load::client::shown_url(target)),
    }
}

fn ended(title: String, found: Result<Finished, larder_load::BenchError>) -> BenchEnded {
    let at_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_millis() as u64);
    let (id, fault) = match found {
        Ok(Finished { result, folder, failure }) => {
            let _ = cli::show::keep_page(&folder, &result);
            (Some(result.id), failure)
        }
        Err(error) => (None, Some(error)),
    };
    let fault = fault.map(|error| match error {
        larder_load::BenchError::Stopped => Failure::invalid("it was stopped; what it wrote is removed"),
        error => cli::failure(&error),
    });
    let (fault, action) = fault.map(|failure| (Some(failure.message), failure.action)).unwrap_or_default();
    BenchEnded { title, at_ms, id, fault, action }
}

impl Daemon {
    pub(crate) async fn bench_start(&self, start: BenchStart) -> Result<BenchState, Failure> {
        let power = self.state.lock().await.config.power.clone();
        let (data, history) = (self.folder.path().to_owned(), self.bench_folder());
        let title = named(&start);
        let preset = start.preset.clone();
        let request = blocking(move || request(&start, &power, data, history)).await??;
        let watched = Arc::new(Watched { state: Mutex::new(State::new(Instant::now())), lines: Mutex::default() });
        let telling = watched.clone();
        let control = Arc::new(Control::new(move |progress| telling.state.lock().live = progress));
        let running = Running { title: title.clone(), preset, control: control.clone(), watched: watched.clone() };
        self.benches.begin(running)?;
        let benches = self.benches.clone();
        tokio::spawn(async move {
            let done = tokio::task::spawn_blocking(move || bench::run(&Machine::this(), &request, &control, &*watched));
            let found = match done.await {
                Ok(found) => ended(title, found),
                Err(e) => BenchEnded {
                    fault: Some(format!("the bench failed within larder: {e}")),
                    ..ended(title, Err(larder_load::BenchError::Stopped))
                },
            };
            benches.end_with(found);
        });
        Ok(self.benches.state())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn start(subject: BenchSubject) -> BenchStart {
        let preset = "quick".to_owned();
        BenchStart { subject, preset, title: None, size_bytes: None, seconds: None, repeats: None, only: Vec::new() }
    }

    #[test]
    fn requests_are_checked_before_anything_runs() {
        let disk = |paths: &[&str]| start(BenchSubject::Disk { paths: paths.iter().map(PathBuf::from).collect() });
        let refused = |start: &BenchStart| {
            let read = request(start, &PowerConfig::default(), "/data".into(), "/data/bench".into());
            read.err().map(|failure| failure.message).unwrap_or_default()
        };
        let fine = disk(&["/tmp"]);
        for (wrong, why) in [
            (disk(&[]), "1 to 64"),
            (disk(&["relative"]), "no whole path"),
            (disk(&vec!["/tmp"; PATHS_MAX + 1]), "1 to 64"),
            (BenchStart { preset: "loud".to_owned(), ..fine.clone() }, "loud"),
            (BenchStart { title: Some("a\nb".to_owned()), ..fine.clone() }, "one line"),
            (BenchStart { size_bytes: Some(1), ..fine.clone() }, "too little"),
            (BenchStart { seconds: Some(f64::NAN), ..fine.clone() }, "seconds"),
            (BenchStart { repeats: Some(0), ..fine.clone() }, "times"),
            (BenchStart { only: vec!["fly".to_owned()], ..fine.clone() }, "fly"),
            (
                start(BenchSubject::Share {
                    target: "smb://a@b/c?password-file=/etc/shadow".to_owned(),
                    user: None,
                    password: None,
                }),
                "names no file",
            ),
            (start(BenchSubject::Net { host: "-x".to_owned() }), "-x"),
        ] {
            assert!(refused(&wrong).contains(why), "{wrong:?}: {}", refused(&wrong));
        }
        assert_eq!(refused(&fine), "");
    }

    #[test]
    fn one_runs_at_a_time() {
        let benches = Benches::default();
        let running = || Running {
            title: "a".to_owned(),
            preset: "quick".to_owned(),
            control: Arc::new(Control::new(|_| {})),
            watched: Arc::new(Watched { state: Mutex::new(State::new(Instant::now())), lines: Mutex::default() }),
        };
        benches.begin(running()).unwrap();
        assert_eq!(benches.begin(running()).unwrap_err().kind, FailureKind::Busy);
        assert!(benches.stop().running.unwrap().stopping);
        benches.end_with(ended("a".to_owned(), Err(larder_load::BenchError::Stopped)));
        let state = benches.state();
        assert!(state.running.is_none() && state.ended.unwrap().id.is_none());
        benches.begin(running()).unwrap();
    }
}
