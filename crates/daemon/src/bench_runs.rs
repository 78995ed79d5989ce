//! Starting a bench within the daemon: requests are checked as the command line checks its own.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use larder_api::{BenchEnded, BenchStart, BenchState, BenchSubject, Failure};
use larder_base::task;
use larder_facts::Machine;
use larder_facts::power::Sources;
use larder_load::PORT;
use larder_load::client::ClientOptions;
use larder_measure::bench::{
    self, Changes, FarEnd, Finished, Host, PoolTarget, Preset, Request, Subjects, samples_port,
};

use super::benches::Running;
use super::care::{Care, blocking};
use crate::bench_words::{self, REPEATS_MAX, SECONDS_MAX};
use larder_config::power::PowerConfig;

/// Folders and devices of one bench.
const PATHS_MAX: usize = 64;
const SIZE_BYTES_MIN: u64 = 1 << 20;

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
            let disks = paths.iter().map(|path| bench_words::disk_target(path)).collect::<Result<_, _>>()?;
            ("disk", Subjects { disks, ..Subjects::default() })
        }
        BenchSubject::Pool { paths } => {
            checked(paths)?;
            let pool = Some(PoolTarget { folders: paths.clone(), ..PoolTarget::default() });
            ("pool", Subjects { pool, ..Subjects::default() })
        }
        BenchSubject::Net { host } => {
            larder_load::checked_host(host).map_err(|e| bench_words::failure(&e))?;
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
            ("share", Subjects { shares: vec![bench_words::share_target(target)?], ..Subjects::default() })
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
    let kinds = start.only.iter().map(|kind| bench_words::kind(kind)).collect::<Result<_, _>>();
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
    let title = start.title.as_deref().map(bench_words::title).transpose().map_err(Failure::invalid)?;
    let meter = Sources::new(&Machine::this(), &power.sources, &power.parts, power.supply_efficiency);
    Ok(Request {
        verb: verb.to_owned(),
        subjects,
        preset: start.preset.parse::<Preset>().map_err(Failure::invalid)?,
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
            let _ = bench_words::keep_page(&folder, &result);
            (Some(result.id), failure)
        }
        Err(error) => (None, Some(error)),
    };
    let fault = fault.map(|error| match error {
        larder_load::BenchError::Stopped => Failure::invalid("it was stopped; what it wrote is removed"),
        error => bench_words::failure(&error),
    });
    let (fault, action) = fault.map(|failure| (Some(failure.message), failure.action)).unwrap_or_default();
    BenchEnded { title, at_ms, id, fault, action }
}

impl Care {
    pub async fn bench_start(&self, start: BenchStart) -> Result<BenchState, Failure> {
        let config = self.document.config();
        let (data, history) = (self.folder.path().to_owned(), self.bench_folder());
        let title = named(&start);
        let preset = start.preset.clone();
        let request = blocking(move || request(&start, &config.power, data, history)).await??;
        let (running, control, watched) = Running::new(title.clone(), preset);
        self.benches.begin(running)?;
        let benches = Arc::clone(&self.benches);
        task::spawn(async move {
            let done = task::blocking(move || bench::run(&Machine::this(), &request, &control, &*watched));
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
}
