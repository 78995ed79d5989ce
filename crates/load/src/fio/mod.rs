//! fio (flexible I/O tester, 3.x): jobs are written to a file, its JSON is read back.

use std::ffi::OsString;
use std::fs;
use std::io::Read;
use std::path::Path;
use std::time::Duration;

mod answer;
mod job;
mod log;

pub(crate) use job::{FioJob, Target};

use super::control::Progress;
use super::error::BenchError;
use super::load::Scene;
use super::process;
use super::series;
use crate::Machine;
use crate::workload::{Kind, Repeat, RunLimits, Side};

/// A histogram of each of 64 jobs.
const ANSWER_BYTES_MAX: u64 = 64 << 20;
const LOG_BYTES_MAX: u64 = 16 << 20;
/// Beyond the time it was given: for opening files, for the last flush.
const SLACK: Duration = Duration::from_secs(300);
/// fio that writes `json+` with latency bins for all of its latencies.
const MAJOR_MIN: u32 = 3;

/// "fio 3.33"; an error that says how to get one where there is none that will do.
pub(crate) fn version(machine: &Machine) -> Result<String, BenchError> {
    let missing = || BenchError::Missing { program: "fio".to_owned(), package: "fio".to_owned() };
    let said = machine.run("fio", &["--version"], "version").map_err(|_| missing())?;
    let text = String::from_utf8_lossy(&said.stdout).trim().to_owned();
    let number = text.strip_prefix("fio-").unwrap_or(&text).to_owned();
    let major = number.split('.').next().and_then(|n| n.parse::<u32>().ok());
    match major {
        Some(major) if major >= MAJOR_MIN => Ok(format!("fio {number}")),
        Some(_) => Err(BenchError::invalid(format!("fio {number} is too old"), "install fio 3.0 or newer")),
        None => Err(BenchError::answer("fio", format!("'{text}' is not a version"))),
    }
}

/// Runs one job; its file, its answer and its logs stay in the scene's folder.
pub(crate) fn run(job: &FioJob, limits: &RunLimits, scene: &Scene) -> Result<Repeat, BenchError> {
    let name = format!("run{:03}", scene.run);
    let file = scene.keep.join(format!("{name}.fio"));
    let answer = scene.keep.join(format!("{name}-{}.json", scene.repeat + 1));
    let logs = tempfile_folder(scene)?;
    let prefix = logs.path().join("fio");
    job.check(&prefix)?;
    fs::write(&file, job.text(&prefix)).map_err(|e| BenchError::at("write", &file, e))?;
    let args = arguments(job, &file, &answer);
    let whole = limits.warm_up + limits.measure_max;
    let mut said = |line: &str| {
        if let Some(progress) = answer::progress(line) {
            scene.control.tell(progress);
        }
    };
    let done = process::run(scene.machine, "fio", &args, whole + SLACK, scene.control, &mut said)?;
    let bytes = read_bounded(&answer, ANSWER_BYTES_MAX).unwrap_or_default();
    let found = answer::parse(&bytes);
    if done.code != Some(0) {
        return Err(BenchError::tool("fio", reason(&done.stderr)));
    }
    let found = found?;
    scene.control.tell(Progress { done: Some(1.0), ..Progress::default() });
    Ok(repeat(job, &found, &logs_of(logs.path(), job)))
}

/// The first line that says what went wrong; the rest is how far it was.
fn reason(stderr: &str) -> String {
    let line = stderr.lines().find(|line| !line.trim().is_empty()).unwrap_or("it said nothing");
    line.trim_start_matches("fio: ").to_owned()
}

/// Logs are many small files that nobody reads again: what they say is in the result.
struct Logs(std::path::PathBuf);

impl Logs {
    fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Logs {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn tempfile_folder(scene: &Scene) -> Result<Logs, BenchError> {
    let path = scene.keep.join(format!("logs-{:03}-{}", scene.run, scene.repeat));
    fs::create_dir_all(&path).map_err(|e| BenchError::at("make the folder", &path, e))?;
    Ok(Logs(path))
}

fn arguments(job: &FioJob, file: &Path, answer: &Path) -> Vec<OsString> {
    let mut args: Vec<OsString> =
        ["--eta=always", "--eta-newline=500ms", "--output-format=json+"].map(OsString::from).to_vec();
    if !job.writes() {
        // A second lock on the door: fio itself refuses to write.
        args.push("--readonly".into());
    }
    args.push("--output".into());
    args.extend([answer.as_os_str().to_owned(), file.as_os_str().to_owned()]);
    args
}

fn read_bounded(path: &Path, bytes_max: u64) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(bytes_max).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// `PREFIX_bw.N.log` and `PREFIX_iops.N.log`, N from 1.
fn logs_of(folder: &Path, job: &FioJob) -> Vec<crate::workload::Moment> {
    let read = |kind: &str, n: u32| {
        let path = folder.join(format!("fio_{kind}.{n}.log"));
        String::from_utf8_lossy(&read_bounded(&path, LOG_BYTES_MAX).unwrap_or_default()).into_owned()
    };
    let count = job.processes();
    let of = |kind: &str| (1..=count).map(|n| read(kind, n)).collect::<Vec<_>>();
    log::moments(&of("bw"), &of("iops"), job::LOG_MS)
}

/// The counts of fio, which for writing include everything until the last flush was over.
///
/// If a disk's fast cache filled up in the middle, sequential writing counts from there on, but never for more than the
/// whole: the rate of memory is no rate of a disk, however steady it is.
fn repeat(job: &FioJob, found: &answer::Answer, moments: &[crate::workload::Moment]) -> Repeat {
    let mut repeat = Repeat {
        seconds: found.seconds,
        bytes: found.bytes,
        operations: found.operations,
        bytes_per_s: found.bytes_per_s(),
        operations_per_s: found.operations_per_s(),
        latency: found.latency,
        over_time: moments.to_vec(),
        load_cpu_s: Some(found.cpu_s),
        ..Repeat::default()
    };
    if job.kind == Kind::RandomMixed {
        let [read, write] =
            found.sides.map(|(bytes, operations, latency)| Some(Side::new(bytes, operations, found.seconds, latency)));
        (repeat.read, repeat.write) = (read, write);
    }
    if job.kind != Kind::Write || !job.direct {
        // Without direct I/O the log shows what memory took.
        return repeat;
    }
    let Some(knee) = series::knee(moments, job.warm_up_s) else { return repeat };
    let steady = series::steady(moments, knee.at_s).filter(|s| s.bytes_per_s() <= found.bytes_per_s());
    if let Some(steady) = steady {
        repeat.knee = Some(knee);
        let part = (steady.seconds / found.seconds.max(f64::MIN_POSITIVE)).min(1.0);
        repeat.load_cpu_s = Some(found.cpu_s * part);
        (repeat.seconds, repeat.bytes) = (steady.seconds, steady.bytes as u64);
        repeat.operations = steady.operations as u64;
        (repeat.bytes_per_s, repeat.operations_per_s) = (steady.bytes_per_s(), steady.operations_per_s());
    }
    repeat
}

#[cfg(test)]
mod tests;
