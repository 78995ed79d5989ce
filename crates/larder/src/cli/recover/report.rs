//! The report of a recovery: `report.json` and `report.txt`, written as the work goes on, so that millions of files need
//! no memory.

use std::fs::File;
use std::io::{BufWriter, IsTerminal, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use larder_api::Failure;
use larder_base::printed;
use larder_base::units::ByteSize;
use larder_pool::salvage::SalvageReport;
use larder_volume::salvage::{Salvage, Verdict, VolumeFound};
use serde::Serialize;

pub(super) const JSON_NAME: &str = "report.json";
pub(super) const TEXT_NAME: &str = "report.txt";
/// More sentences about one volume help nobody.
const FAULTS_MAX: usize = 1000;
const PROGRESS: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum State {
    /// All that the metadata says.
    Complete,
    /// All that the metadata says which is left; a newer state of it may be lost.
    Older,
    /// Ranges are missing or in doubt.
    Partial,
    /// Nothing of its content, or not even its kind.
    Lost,
}

/// One file, directory or other thing with a name.
#[derive(Debug, Serialize)]
pub(super) struct Entry {
    pub(super) path: String,
    pub(super) kind: &'static str,
    pub(super) inode: u64,
    pub(super) state: State,
    pub(super) size_bytes: u64,
    /// Written as holes: start, end.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) missing: Vec<(u64, u64)>,
    /// Put together from the segments alone: may be older, or from before a truncation.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) doubtful: Vec<(u64, u64)>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) notes: Vec<String>,
    /// Metadata that is newer than what is left of it may be lost.
    #[serde(skip)]
    pub(super) may_be_older: bool,
}

impl Entry {
    pub(super) fn new(path: &Path, kind: &'static str, inode: u64) -> Self {
        Self {
            path: path.to_string_lossy().into_owned(),
            kind,
            inode,
            state: State::Complete,
            size_bytes: 0,
            missing: Vec::new(),
            doubtful: Vec::new(),
            notes: Vec::new(),
            may_be_older: false,
        }
    }

    pub(super) fn lost(mut self, why: impl Into<String>) -> Self {
        self.state = State::Lost;
        self.notes.push(why.into());
        self
    }
}

pub(super) fn pairs(ranges: &[Range<u64>]) -> Vec<(u64, u64)> {
    ranges.iter().map(|range| (range.start, range.end)).collect()
}

/// The outcome for one volume.
#[derive(Clone, Debug, Serialize)]
pub(super) struct VolumeSummary {
    pub(super) name: String,
    pub(super) id: uuid::Uuid,
    pub(super) metadata: Verdict,
    pub(super) directories: u64,
    pub(super) files: u64,
    pub(super) others: u64,
    pub(super) bytes: u64,
    pub(super) complete: u64,
    pub(super) older: u64,
    pub(super) partial: u64,
    pub(super) lost: u64,
    pub(super) faults: Vec<String>,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct Summary {
    pub(super) pool: Option<String>,
    pub(super) report: PathBuf,
    pub(super) volumes: Vec<VolumeSummary>,
    /// Encrypted volumes that nothing given opens: nothing of them was recovered.
    pub(super) locked: Vec<Locked>,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct Locked {
    pub(super) name: String,
    pub(super) why: String,
}

impl Summary {
    pub(super) fn is_complete(&self) -> bool {
        let whole = |v: &VolumeSummary| v.older + v.partial + v.lost == 0 && v.metadata == Verdict::Whole;
        self.locked.is_empty() && self.volumes.iter().all(whole)
    }

    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        for volume in &self.volumes {
            text.push_str(&volume.text());
        }
        for Locked { name, why } in &self.locked {
            text.push_str(&format!(
                "volume: {name}\nlocked: {why}; nothing of it was recovered; again with its key: --volume {name} [--key-file FILE]\n"
            ));
        }
        text.push_str(&format!("report: {}\n", self.report.display()));
        if !self.is_complete() && !self.volumes.is_empty() {
            text.push_str(&format!(
                "action: see which files are not whole: grep -v '^complete' {}\n",
                self.report.display()
            ));
        }
        text
    }
}

impl VolumeSummary {
    fn text(&self) -> String {
        let metadata = match self.metadata {
            Verdict::Whole => "whole",
            Verdict::Damaged => {
                "damaged: deleted files may be back, the newest changes may be missing, files of up to 1 KiB too; \
                 files that may have been changed later are listed as older"
            }
            Verdict::Missing => "lost: files have no names, and files of up to 1 KiB are gone: they lay in it",
        };
        let mut text = format!("volume: {}\nmetadata: {metadata}\n", self.name);
        text.push_str(&format!(
            "recovered: {} files ({}), {} directories, {} others: {} complete, {} older, {} partial, {} lost\n",
            self.files,
            ByteSize(self.bytes),
            self.directories,
            self.others,
            self.complete,
            self.older,
            self.partial,
            self.lost
        ));
        for fault in &self.faults {
            text.push_str(&format!("fault: {fault}\n"));
        }
        text
    }
}

pub(super) struct Report {
    json: BufWriter<File>,
    text: BufWriter<File>,
    folder: PathBuf,
    pool: Option<String>,
    done: Vec<VolumeSummary>,
    current: Option<VolumeSummary>,
    locked: Vec<Locked>,
    shown: Instant,
    progress: bool,
}

impl Report {
    pub(super) fn create(folder: &Path, pool: &SalvageReport, faults: &[String]) -> Result<Self, Failure> {
        let make = |name: &str| {
            let path = folder.join(name);
            File::create_new(&path).map(BufWriter::new).map_err(|error| Failure::io(path.display(), &error))
        };
        let mut report = Self {
            json: make(JSON_NAME)?,
            text: make(TEXT_NAME)?,
            folder: folder.to_owned(),
            pool: pool.name.clone(),
            done: Vec::new(),
            current: None,
            locked: Vec::new(),
            shown: Instant::now(),
            progress: std::io::stderr().is_terminal(),
        };
        let head = format!("{{\"format\":1,\"pool\":{},\"faults\":{},\"volumes\":[", json(pool)?, json(&faults)?);
        let mut text = super::pool_text(pool);
        faults.iter().for_each(|fault| text.push_str(&format!("fault: {fault}\n")));
        report.put(&head, &text)?;
        Ok(report)
    }

    fn put(&mut self, json: &str, text: &str) -> Result<(), Failure> {
        let written = self.json.write_all(json.as_bytes()).and_then(|()| self.text.write_all(text.as_bytes()));
        written.map_err(|error| Failure::io(format_args!("the report in {}", self.folder.display()), &error))
    }

    /// An encrypted volume that nothing given opens.
    pub(super) fn locked(&mut self, name: String, why: String) -> Result<(), Failure> {
        self.put("", &format!("locked: volume {name}: {why}\n"))?;
        self.locked.push(Locked { name, why });
        Ok(())
    }

    pub(super) fn begin_volume(&mut self, volume: &VolumeFound, salvage: &Salvage) -> Result<(), Failure> {
        let comma = if self.done.is_empty() { "" } else { "," };
        let head = format!(
            "{comma}{{\"name\":{},\"id\":{},\"metadata\":{},\"files\":[",
            json(&volume.name)?,
            json(&volume.id)?,
            json(&salvage.verdict())?
        );
        self.current = Some(VolumeSummary {
            name: volume.label(),
            id: volume.id,
            metadata: salvage.verdict(),
            directories: 0,
            files: 0,
            others: 0,
            bytes: 0,
            complete: 0,
            older: 0,
            partial: 0,
            lost: 0,
            faults: salvage.faults().iter().take(FAULTS_MAX).cloned().collect(),
        });
        self.put(&head, &format!("\nvolume {}\n", volume.label()))
    }

    /// Something else that is wrong with the volume.
    pub(super) fn fault(&mut self, fault: String) {
        if let Some(current) = &mut self.current
            && current.faults.len() < FAULTS_MAX
        {
            current.faults.push(fault);
        }
    }

    pub(super) fn entry(&mut self, mut entry: Entry, bytes: u64) -> Result<(), Failure> {
        let Some(current) = &mut self.current else { return Ok(()) };
        let first = current.complete + current.older + current.partial + current.lost == 0;
        if entry.state == State::Complete && entry.may_be_older {
            entry.state = State::Older;
        }
        match entry.kind {
            "file" => current.files += 1,
            "directory" => current.directories += 1,
            _ => current.others += 1,
        }
        match entry.state {
            State::Complete => current.complete += 1,
            State::Older => current.older += 1,
            State::Partial => current.partial += 1,
            State::Lost => current.lost += 1,
        }
        current.bytes += bytes;
        let (files, total) = (current.files, current.bytes);
        if self.progress && self.shown.elapsed() > PROGRESS {
            self.shown = Instant::now();
            eprint!("\r{files} files, {}   ", ByteSize(total));
        }
        let comma = if first { "\n" } else { ",\n" };
        self.put(&format!("{comma}{}", json(&entry)?), &line(&entry))
    }

    pub(super) fn end_volume(&mut self) -> Result<(), Failure> {
        let Some(current) = self.current.take() else { return Ok(()) };
        let text = format!("\n{}", current.text());
        self.put(&format!("],\"summary\":{}}}", json(&current)?), &text)?;
        self.done.push(current);
        Ok(())
    }

    pub(super) fn finish(mut self) -> Result<Summary, Failure> {
        if self.progress {
            eprint!("\r");
        }
        self.put("]}\n", "")?;
        let report = self.folder.join(TEXT_NAME);
        let flushed = self.json.flush().and_then(|()| self.text.flush());
        flushed.map_err(|error| Failure::io(report.display(), &error))?;
        Ok(Summary { pool: self.pool, report, volumes: self.done, locked: self.locked })
    }
}

fn line(entry: &Entry) -> String {
    let state = match entry.state {
        State::Complete => "complete",
        State::Older => "older   ",
        State::Partial => "partial ",
        State::Lost => "lost    ",
    };
    let mut line = format!("{state}  {:9}  {:>12}  {}", entry.kind, entry.size_bytes, printed::shown(&entry.path));
    let ranges = |pairs: &[(u64, u64)]| pairs.iter().map(|(a, b)| format!("{a}-{b}")).collect::<Vec<_>>().join(" ");
    if !entry.missing.is_empty() {
        line.push_str(&format!("  missing: {}", ranges(&entry.missing)));
    }
    if !entry.doubtful.is_empty() {
        line.push_str(&format!("  doubtful: {}", ranges(&entry.doubtful)));
    }
    for note in &entry.notes {
        line.push_str(&format!("  ({})", printed::shown(note)));
    }
    line.push('\n');
    line
}

fn json<T: Serialize + ?Sized>(value: &T) -> Result<String, Failure> {
    let line = serde_json::to_string(value).map_err(|error| Failure::internal(error.to_string()))?;
    Ok(printed::json(&line).into_owned())
}
