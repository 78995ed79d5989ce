//! Results that are kept: a folder each, with `result.json`, the job files and what the programs said.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::result::{BenchResult, Repeat, SCHEMA, VERSION};
use super::show::words;
use larder_load::BenchError;

const FILE: &str = "result.json";
const RESULT_BYTES_MAX: u64 = 256 << 20;
/// The newest of them.
const LISTED_MAX: usize = 1000;
const SLUG_CHARS_MAX: usize = 48;
/// The end of the year 9999.
const TIME_MS_MAX: u64 = 253_402_300_799_999;

/// One line of `bench history`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Kept {
    pub id: String,
    pub title: String,
    pub preset: String,
    pub started_ms: u64,
    pub seconds: f64,
    pub runs: usize,
    pub interrupted: bool,
    pub host: String,
    pub folder: PathBuf,
}

/// `20261122T112030-disk-mnt-a`: the time (UTC) sorts, the rest is for people.
pub(super) fn id(started_ms: u64, title: &str) -> String {
    let plain = title.rsplit('@').next().unwrap_or(title);
    let verb = title.split(' ').next().unwrap_or("bench");
    let words: String = if plain.starts_with(verb) { plain.to_owned() } else { format!("{verb} {plain}") };
    let mut slug = String::new();
    for c in words.chars() {
        match c.is_ascii_alphanumeric() {
            true => slug.push(c.to_ascii_lowercase()),
            false if !slug.ends_with('-') => slug.push('-'),
            false => {}
        }
    }
    let slug: String = slug.trim_matches('-').chars().take(SLUG_CHARS_MAX).collect();
    format!("{}-{}", stamp(started_ms), slug.trim_end_matches('-'))
}

/// Date and time of the day in UTC, proleptic Gregorian.
fn stamp(ms: u64) -> String {
    let ms = ms.min(TIME_MS_MAX);
    let (seconds, mut days) = (ms / 1000 % 86_400, ms / 86_400_000);
    let mut year = 1970u64;
    let leap = |y: u64| y.is_multiple_of(4) && (!y.is_multiple_of(100) || y.is_multiple_of(400));
    let length = |y: u64| if leap(y) { 366 } else { 365 };
    while days >= length(year) {
        days -= length(year);
        year += 1;
    }
    let mut month = 1;
    for of_month in [31, if leap(year) { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30] {
        if days < of_month {
            break;
        }
        days -= of_month;
        month += 1;
    }
    let (h, m, s) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}{month:02}{:02}T{h:02}{m:02}{s:02}", days + 1)
}

/// Makes the folder of a result, under a name that is not taken.
pub(super) fn make(history: &Path, id: &str) -> Result<(String, PathBuf), BenchError> {
    fs::create_dir_all(history).map_err(|e| BenchError::at("make the folder", history, e))?;
    for n in 1..1000 {
        let name = if n == 1 { id.to_owned() } else { format!("{id}-{n}") };
        let folder = history.join(&name);
        match fs::create_dir(&folder) {
            Ok(()) => return Ok((name, folder)),
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(e) => return Err(BenchError::at("make the folder", &folder, e)),
        }
    }
    Err(BenchError::invalid(format!("{} is full of results of this second", history.display()), ""))
}

/// Whole or not at all.
pub(super) fn save(folder: &Path, result: &BenchResult) -> Result<(), BenchError> {
    let text = serde_json::to_vec(result).map_err(|e| BenchError::answer("larder", e.to_string()))?;
    let (file, part) = (folder.join(FILE), folder.join("result.part"));
    fs::write(&part, text).and_then(|()| fs::rename(&part, &file)).map_err(|e| BenchError::at("write", &file, e))
}

/// A file, a folder of the history, or the beginning of an id; `last` is the newest, `last~1` the one before.
pub fn load(history: &Path, name: &str) -> Result<BenchResult, BenchError> {
    let path = Path::new(name);
    let own = history.join(name);
    let file = match () {
        () if name.is_empty() => return Err(unknown(history, name)),
        () if path.is_file() => path.to_owned(),
        () if path.join(FILE).is_file() => path.join(FILE),
        () if !name.contains('/') && own.join(FILE).is_file() => own.join(FILE),
        () => named(history, name)?.join(FILE),
    };
    read(&file)
}

fn named(history: &Path, name: &str) -> Result<PathBuf, BenchError> {
    let ids = ids(history);
    let place = match name {
        "last" => Some(0),
        _ => name.strip_prefix("last~").and_then(|n| n.parse::<usize>().ok()),
    };
    if let Some(place) = place {
        return ids.get(place).map(|id| history.join(id)).ok_or_else(|| unknown(history, name));
    }
    let found: Vec<&String> = ids.iter().filter(|id| id.starts_with(name)).collect();
    match found.as_slice() {
        [one] => Ok(history.join(one)),
        [] => Err(unknown(history, name)),
        many => {
            let what = format!("'{name}' is the beginning of {} results", many.len());
            Err(BenchError::invalid(what, "write more of its id: larder bench history"))
        }
    }
}

fn unknown(history: &Path, name: &str) -> BenchError {
    let what = format!("there is no result '{name}' in {}", history.display());
    BenchError::invalid(what, "see: larder bench history; or give the path of a result.json")
}

fn read(file: &Path) -> Result<BenchResult, BenchError> {
    let mut bytes = Vec::new();
    let opened = fs::File::open(file).and_then(|f| f.take(RESULT_BYTES_MAX).read_to_end(&mut bytes));
    opened.map_err(|e| BenchError::at("read", file, e))?;
    let show = file.display();
    const WHOLE: &str = "see those that are whole: larder bench history; or measure again";
    let damaged = |why: String| BenchError::invalid(format!("{show} is damaged: {why}"), WHOLE);
    let head: serde_json::Value = serde_json::from_slice(&bytes).map_err(|e| damaged(e.to_string()))?;
    if head["schema"].as_str() != Some(SCHEMA) {
        return Err(BenchError::invalid(format!("{show} is not a result of larder bench"), WHOLE));
    }
    if head["version"].as_u64().is_none_or(|version| version > u64::from(VERSION)) {
        return Err(BenchError::invalid(format!("{show} is of a newer larder"), "read it with that"));
    }
    let found: BenchResult = serde_json::from_slice(&bytes).map_err(|e| damaged(e.to_string()))?;
    match found.runs.iter().find(|run| !run.repeats.iter().all(Repeat::is_sound)) {
        Some(run) => Err(damaged(format!("{} has a figure below nothing, or none", words::clean(&run.subject)))),
        None => Ok(found),
    }
}

/// The newest first.
fn ids(history: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(history) else { return Vec::new() };
    let folders = entries.flatten().filter(|e| e.path().join(FILE).is_file());
    let mut ids: Vec<String> = folders.filter_map(|e| e.file_name().into_string().ok()).collect();
    ids.sort_by(|a, b| b.cmp(a));
    ids
}

/// The newest first. What cannot be read is left out.
pub fn list(history: &Path) -> Vec<Kept> {
    let kept = |id: String| {
        let folder = history.join(&id);
        let result = read(&folder.join(FILE)).ok()?;
        Some(Kept {
            id,
            title: result.title,
            preset: result.preset,
            started_ms: result.started_ms,
            seconds: result.ended_ms.saturating_sub(result.started_ms) as f64 / 1e3,
            runs: result.runs.len(),
            interrupted: result.interrupted,
            host: result.machine.host,
            folder,
        })
    };
    ids(history).into_iter().take(LISTED_MAX).filter_map(kept).collect()
}

/// Removes a result with all that belongs to it, by its whole id.
pub fn remove(history: &Path, id: &str) -> Result<(), BenchError> {
    if !ids(history).iter().any(|kept| kept == id) {
        return Err(unknown(history, id));
    }
    let folder = history.join(id);
    fs::remove_dir_all(&folder).map_err(|e| BenchError::at("remove", &folder, e))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(id: &str) -> BenchResult {
        BenchResult {
            schema: SCHEMA.to_owned(),
            version: VERSION,
            id: id.to_owned(),
            title: "disk /mnt/a".to_owned(),
            preset: "quick".to_owned(),
            started_ms: 1,
            ended_ms: 2001,
            larder: "0.1.0".to_owned(),
            interrupted: false,
            machine: Default::default(),
            far_machine: None,
            ciphers: Vec::new(),
            runs: Vec::new(),
            notes: Vec::new(),
        }
    }

    #[test]
    fn ids_sort_by_time_and_hold_no_password() {
        assert_eq!(id(1_795_346_430_000, "disk /mnt/a, /mnt/b"), "20261122T112030-disk-mnt-a-mnt-b");
        assert_eq!(id(951_782_400_000, "net"), "20000229T000000-net");
        assert_eq!(id(0, "share smb://me:secret@nas/x"), "19700101T000000-share-nas-x");
        assert!(id(u64::MAX, &"x ".repeat(100)).len() < 70);
    }

    #[test]
    fn results_are_found_by_name_place_and_path() {
        let history = tempfile::tempdir().unwrap();
        for id in ["20260101T000000-disk-a", "20260102T000000-disk-a", "20260102T000000-net-b"] {
            let (name, folder) = make(history.path(), id).unwrap();
            save(&folder, &result(&name)).unwrap();
        }
        let again = make(history.path(), "20260101T000000-disk-a").unwrap();
        assert_eq!(again.0, "20260101T000000-disk-a-2");
        let found = |name: &str| load(history.path(), name).map(|r| r.id).map_err(|e| e.to_string());
        assert_eq!(found("last").unwrap(), "20260102T000000-net-b");
        assert_eq!(found("last~2").unwrap(), "20260101T000000-disk-a");
        assert_eq!(found("20260101").unwrap(), "20260101T000000-disk-a");
        assert_eq!(found("20260102T000000-n").unwrap(), "20260102T000000-net-b");
        let path = history.path().join("20260101T000000-disk-a/result.json");
        assert_eq!(found(&path.display().to_string()).unwrap(), "20260101T000000-disk-a");
        assert!(found("20260102").unwrap_err().contains("2 results"));
        for name in ["", "last~9", "x", "../x"] {
            assert!(found(name).unwrap_err().contains("no result"), "{name}");
        }
        let kept = list(history.path());
        assert_eq!((kept.len(), kept[0].id.as_str(), kept[0].seconds), (3, "20260102T000000-net-b", 2.0));
    }

    #[test]
    fn what_is_no_result_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let check = |text: &str, reason: &str| {
            fs::write(folder.path().join(FILE), text).unwrap();
            let error = load(folder.path(), &folder.path().display().to_string()).unwrap_err().to_string();
            assert!(error.contains(reason), "{text}: {error}");
        };
        check("", "damaged: EOF");
        check("[1]", "not a result");
        check("{\"schema\": \"other\"}", "not a result");
        check("{\"schema\": \"larder-bench\", \"version\": 99}", "newer larder");
        check("{\"schema\": \"larder-bench\", \"version\": 1}", "damaged");
        let mut whole = super::super::show::sample::box_a();
        let text = |result: &BenchResult| serde_json::to_string(result).unwrap();
        fs::write(folder.path().join(FILE), text(&whole)).unwrap();
        assert!(load(folder.path(), &folder.path().display().to_string()).is_ok());
        check(&text(&whole)[..500], "damaged: EOF");
        whole.runs[0].repeats[0].bytes_per_s = -5.0;
        check(&text(&whole), "below nothing");
    }
}
