//! `larder import`: a folder of this machine, copied into a volume.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use futures::StreamExt;
use larder_api::endpoints::ImportFolder;
use larder_api::{Failure, ImportEvent, ImportFault, ImportProgress, ImportReport, ImportRequest};
use larder_base::units::ByteSize;

use super::args::{Disks, Global};
use super::reach::{Backend, absolute, closing};
use super::volume_name::split;
use crate::out::Out;
use crate::render;
use larder_daemon::direct;
use larder_daemon::imports::Own;

/// A file counts as so many bytes more when the time that is left is estimated: opening it takes time as well.
const FILE_WEIGHT_BYTES: u64 = 64 << 10;
/// An estimate from less than this is no better than a guess.
const ESTIMATE_AFTER: Duration = Duration::from_secs(2);
/// Faults that are shown; --json has more.
const SHOWN_MAX: usize = 50;

#[derive(Debug, Args)]
pub(crate) struct ImportArgs {
    /// The folder to copy
    dir: PathBuf,
    /// VOLUME or POOL/VOLUME, and the folder in it that becomes a copy of DIR, made where it is missing
    #[arg(value_name = "VOLUME[:FOLDER]")]
    to: String,
    /// Only say how much would be copied
    #[arg(long, conflicts_with = "verify")]
    dry_run: bool,
    /// Read everything a second time afterwards, and compare each byte with what the volume has
    #[arg(long)]
    verify: bool,
    /// Remove what an earlier import brought and DIR no longer has
    #[arg(long)]
    delete: bool,
    /// Replace files of the volume that no import brought, or that were changed there since
    #[arg(long)]
    overwrite: bool,
    /// Also copy other filesystems that are mounted below DIR
    #[arg(long)]
    cross: bool,
    #[command(flatten)]
    disks: Disks,
}

pub(super) async fn run(global: &Global, args: ImportArgs) -> Result<(), Failure> {
    let (volume, folder) = match args.to.split_once(':') {
        Some((volume, folder)) => (volume, Some(folder.trim_matches('/')).filter(|folder| !folder.is_empty())),
        None => (args.to.as_str(), None),
    };
    split(volume)?;
    let request = ImportRequest {
        dir: absolute(&args.dir)?,
        folder: folder.map(str::to_owned),
        cross: args.cross,
        delete: args.delete,
        overwrite: args.overwrite,
        verify: args.verify,
        dry_run: args.dry_run,
    };
    let shown = Shown::default();
    let report = match Backend::of(global, &args.disks).await? {
        Backend::Daemon(client) => {
            let mut lines = client.lines(ImportFolder, volume, &request).await?;
            loop {
                match lines.next().await? {
                    Some(ImportEvent::Progress(progress)) => shown.show(&progress),
                    Some(ImportEvent::Done(report)) => break Ok(report),
                    Some(ImportEvent::Failed(failure)) => break Err(failure),
                    None => {
                        let message = "the daemon went away before the import ended; the same command goes on";
                        return Err(Failure::unavailable(message));
                    }
                }
            }
        }
        Backend::Direct(storage) => {
            closing(storage, async |storage| {
                let own = Own { disks: storage.disks(), ..Own::default() };
                let mut events = direct::import(storage, volume, request, own).await?;
                while let Some(event) = events.next().await {
                    match event {
                        ImportEvent::Progress(progress) => shown.show(&progress),
                        ImportEvent::Done(report) => return Ok(report),
                        ImportEvent::Failed(failure) => return Err(failure),
                    }
                }
                Err(Failure::internal("the import ended without an outcome"))
            })
            .await
        }
    };
    shown.clear();
    answer(global.out(), &args.dir, &report?)
}

/// The report, and a failure if not everything is as in the folder.
fn answer(out: Out, dir: &std::path::Path, report: &ImportReport) -> Result<(), Failure> {
    out.answer(report, |report| text(dir, report))?;
    if report.faults_total == 0 {
        return Ok(());
    }
    if !out.json {
        list(&report.faults, report.faults_total, "error");
    }
    let what = if report.faults_total == 1 { "1 path was" } else { &format!("{} paths were", report.faults_total) };
    Err(Failure::unavailable(format!("{what} not imported as in {}", dir.display()))
        .action("mend the reasons above and run the command again: it brings only what is missing"))
}

fn list(faults: &[ImportFault], total: u64, word: &str) {
    for fault in faults.iter().take(SHOWN_MAX) {
        crate::out::tell(&format!("{word}: {}: {}", render::shown(&fault.path), render::shown(&fault.why)));
    }
    let more = total.saturating_sub(faults.len().min(SHOWN_MAX) as u64);
    if more > 0 {
        eprintln!("{word}: and {more} more; --json names a thousand");
    }
}

fn text(dir: &std::path::Path, report: &ImportReport) -> String {
    let place = match &report.folder {
        Some(folder) => format!("{}/{}:{folder}", report.pool, report.volume),
        None => format!("{}/{}", report.pool, report.volume),
    };
    let verb = if report.dry_run { "would be " } else { "" };
    let mut lines = vec![format!(
        "{} to {place}: {} files ({}) {verb}copied, {} unchanged, in {} folders",
        dir.display(),
        report.files_copied,
        ByteSize(report.bytes_copied),
        report.unchanged,
        report.directories
    )];
    let others = [
        (report.links, "further names of files"),
        (report.symlinks, "symbolic links"),
        (report.specials, "pipes, sockets and devices"),
        (
            report.attributes,
            if report.dry_run {
                "to be compared, because only their attributes changed"
            } else {
                "with new attributes only"
            },
        ),
        (report.removed, "removed"),
    ];
    lines.extend(others.iter().filter(|(number, _)| *number > 0).map(|(number, what)| format!("  {number} {what}")));
    if report.files_verified > 0 {
        let bytes = ByteSize(report.bytes_verified);
        lines.push(format!("  {} read a second time and compared ({bytes})", report.files_verified));
    }
    if report.dry_run && report.bytes_copied > report.available_bytes {
        lines.push(format!("  the volume takes only {} more", ByteSize(report.available_bytes)));
    }
    for left in report.left_out.iter().take(SHOWN_MAX) {
        lines.push(format!("  left out: {}: {}", render::shown(&left.path), left.why));
    }
    if report.left_out.len() > SHOWN_MAX {
        lines.push(format!("  left out: and {} more", report.left_out.len() - SHOWN_MAX));
    }
    lines.join("\n")
}

/// Progress on a terminal: one line that is written over.
struct Shown {
    began: Instant,
    is_shown: bool,
}

impl Default for Shown {
    fn default() -> Self {
        Self { began: Instant::now(), is_shown: std::io::stderr().is_terminal() }
    }
}

impl Shown {
    fn show(&self, progress: &ImportProgress) {
        if self.is_shown {
            eprint!("\r{}\x1b[K", render::shown(&line(progress, self.began.elapsed())));
        }
    }

    fn clear(&self) {
        if self.is_shown {
            eprint!("\r\x1b[K");
        }
    }
}

fn line(progress: &ImportProgress, elapsed: Duration) -> String {
    let of = |total: Option<u64>| total.map_or_else(String::new, |total| format!(" of {total}"));
    let bytes_of = |total: Option<u64>| total.map_or_else(String::new, |total| format!(" of {}", ByteSize(total)));
    let (files, bytes) = match progress.phase.as_str() {
        "verifying" => (progress.files_verified, progress.bytes_verified),
        _ => (progress.files_seen, progress.bytes_seen),
    };
    let mut line = format!(
        "{} {files}{} files, {}{}",
        progress.phase,
        of(progress.files_total),
        ByteSize(bytes),
        bytes_of(progress.bytes_total)
    );
    if progress.phase == "copying" {
        let rate = progress.bytes_copied as f64 / elapsed.as_secs_f64().max(0.001);
        line.push_str(&format!(", {}/s", ByteSize(rate as u64)));
        if let Some(left) = left(progress, elapsed) {
            line.push_str(&format!(", {} left", render::duration(left.as_secs())));
        }
    }
    if progress.faults > 0 {
        line.push_str(&format!(", {} faults", progress.faults));
    }
    line
}

/// The time that is left, if all goes on as it has so far.
fn left(progress: &ImportProgress, elapsed: Duration) -> Option<Duration> {
    let work = |files: u64, bytes: u64| bytes.saturating_add(files.saturating_mul(FILE_WEIGHT_BYTES)) as f64;
    let total = work(progress.files_total?, progress.bytes_total?);
    let done = work(progress.files_seen, progress.bytes_seen);
    if elapsed < ESTIMATE_AFTER || done <= 0.0 {
        return None;
    }
    Duration::try_from_secs_f64(elapsed.as_secs_f64() * (total - done).max(0.0) / done).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_left_follows_from_the_work_done() {
        let progress = ImportProgress {
            phase: "copying".into(),
            files_total: Some(100),
            bytes_total: Some(100 << 20),
            files_seen: 25,
            bytes_seen: 25 << 20,
            bytes_copied: 10 << 20,
            ..ImportProgress::default()
        };
        assert_eq!(left(&progress, Duration::from_secs(1)), None);
        assert_eq!(left(&progress, Duration::from_secs(10)), Some(Duration::from_secs(30)));
        assert_eq!(
            line(&progress, Duration::from_secs(10)),
            "copying 25 of 100 files, 25.0 MiB of 100 MiB, 1.00 MiB/s, 30 s left"
        );
        let uncounted = ImportProgress { files_total: None, ..progress };
        assert_eq!(left(&uncounted, Duration::from_secs(10)), None);
    }
}
