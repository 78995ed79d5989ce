//! Applies changes that are safe, hold until the next start only, and can be taken back.
//!
//! - `fix.allowed_files_only`: only values are written, and only to files that a rule may write. A state file is trusted no
//!   more than any other file.
//! - `fix.recorded_before`: the old value is on disk before a new one is written, so that an interrupted fix can be undone.
//! - `fix.read_back`: a change is checked by reading it back: the kernel may refuse silently, or take less. The record holds
//!   the value that it took.
//! - `fix.others_left_alone`: undoing leaves alone a value that somebody else has changed since, and remembers it.
//! - `fix.ends_at_restart`: neither a change nor its record outlives a restart.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::findings::Change;
use crate::Machine;
use larder_facts::reading::bracketed;

/// A state file is a page.
const STATE_BYTES_MAX: u64 = 1 << 20;
const CHANGES_MAX: usize = 1024;
/// The longest are three numbers of TCP's.
const VALUE_BYTES_MAX: usize = 256;

#[derive(Debug, thiserror::Error)]
pub enum FixError {
    #[error("{0} is not one of the files that are changed by this")]
    NotAllowed(String),
    #[error("{file}: {source}")]
    Io { file: String, source: std::io::Error },
    #[error("{file} is '{now}' after '{value}' was written to it: the kernel does not take it")]
    NotTaken { file: String, value: String, now: String },
    #[error("the record of what was changed ({0}) cannot be read: {1}")]
    State(PathBuf, String),
}

/// One thing that was changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Done {
    pub file: String,
    pub before: String,
    pub after: String,
}

/// The outcome of undoing one change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Undone {
    pub file: String,
    pub value: String,
    /// Why it was left as it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left: Option<String>,
}

/// The outcome of writing an old value back, with the reason of a failure.
enum Back {
    Done,
    /// It stays on record.
    Later(String),
    Never(String),
}

#[derive(Default, Serialize, Deserialize)]
struct State {
    version: u32,
    /// Identifies the start that the changes belong to (`fix.ends_at_restart`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    boot_id: Option<String>,
    changes: Vec<Done>,
}

/// Beginning and end of each path that may be written (`fix.allowed_files_only`).
const ALLOWED: &[(&str, &str)] = &[
    ("/sys/devices/system/cpu/cpufreq/policy", "/scaling_governor"),
    ("/sys/devices/system/cpu/cpufreq/policy", "/scaling_max_freq"),
    ("/sys/devices/system/cpu/cpufreq/ondemand/io_is_busy", ""),
    ("/sys/block/", "/queue/scheduler"),
    ("/sys/block/", "/queue/read_ahead_kb"),
    ("/sys/module/pcie_aspm/parameters/policy", ""),
    ("/sys/class/net/", "/rps_cpus"),
    ("/proc/irq/", "/smp_affinity_list"),
    ("/proc/sys/net/ipv4/tcp_rmem", ""),
    ("/proc/sys/net/ipv4/tcp_wmem", ""),
    ("/proc/sys/net/ipv4/tcp_window_scaling", ""),
    ("/proc/sys/net/core/netdev_max_backlog", ""),
];

fn allowed(file: &str) -> Result<(), FixError> {
    let fits = |(start, end): &(&str, &str)| match file.strip_prefix(start) {
        Some(rest) if end.is_empty() => rest.is_empty(),
        Some(rest) => rest.strip_suffix(end).is_some_and(|name| !name.is_empty() && name.len() < 256),
        None => false,
    };
    let plain = !file.split('/').any(|part| part == ".." || part == ".") && !file.contains('\0');
    if plain && ALLOWED.iter().any(fits) { Ok(()) } else { Err(FixError::NotAllowed(file.to_owned())) }
}

/// The changes of a machine, and the record of them.
pub struct Fixer<'a> {
    machine: &'a Machine,
    state: PathBuf,
}

impl<'a> Fixer<'a> {
    pub fn new(machine: &'a Machine, state: &Path) -> Self {
        Self { machine, state: state.to_owned() }
    }

    /// Writes one value, after its record (`fix.recorded_before`), and reads it back (`fix.read_back`).
    pub fn apply(&self, change: &Change) -> Result<Done, FixError> {
        allowed(&change.file)?;
        let before = self.value(&change.file)?;
        let mut state = self.load()?;
        self.record(
            &mut state,
            Done { file: change.file.clone(), before: before.clone(), after: change.value.clone() },
        )?;
        let written = self.write(&change.file, &change.value);
        // Also after an error: undoing has to know its own work again.
        let now = self.value(&change.file)?;
        let done = Done { file: change.file.clone(), before, after: now.clone() };
        self.record(&mut state, done.clone())?;
        written?;
        if !same(&change.file, &now, &change.value) {
            return Err(FixError::NotTaken { file: change.file.clone(), value: change.value.clone(), now });
        }
        Ok(done)
    }

    /// The first value of a file is what was there before all fixes, and stays.
    fn record(&self, state: &mut State, done: Done) -> Result<(), FixError> {
        let full = state.changes.len() >= CHANGES_MAX;
        match state.changes.iter_mut().find(|known| known.file == done.file) {
            Some(known) => known.after = done.after,
            None if !full => state.changes.push(done),
            None => return Err(FixError::State(self.state.clone(), "it is full: undo first".to_owned())),
        }
        self.save(state)
    }

    /// The recorded changes.
    pub fn recorded(&self) -> Result<Vec<Done>, FixError> {
        Ok(self.load()?.changes)
    }

    /// Puts back what was there before, the last first; what could not be put back stays on record.
    pub fn undo(&self) -> Result<Vec<Undone>, FixError> {
        let mut state = self.load()?;
        let mut undone = Vec::new();
        let mut kept = Vec::new();
        while let Some(mut done) = state.changes.pop() {
            let back = self.put_back(&mut done);
            let left = match back {
                Back::Done => None,
                Back::Later(why) => {
                    kept.push(done.clone());
                    Some(why)
                }
                Back::Never(why) => Some(why),
            };
            undone.push(Undone { file: done.file, value: done.before, left });
        }
        kept.reverse();
        state.changes = kept;
        match state.changes.is_empty() {
            true => self.forget()?,
            false => self.save(&state)?,
        }
        Ok(undone)
    }

    fn put_back(&self, done: &mut Done) -> Back {
        if let Err(error) = allowed(&done.file) {
            return Back::Never(error.to_string());
        }
        if !is_value(&done.before) {
            return Back::Never("what was there before is no value: the record was changed by somebody".to_owned());
        }
        let now = match self.value(&done.file) {
            Ok(now) => now,
            // A disk or card that is gone.
            Err(error) => return Back::Never(error.to_string()),
        };
        if same(&done.file, &now, &done.before) {
            return Back::Done;
        }
        if !same(&done.file, &now, &done.after) {
            return Back::Later(format!("it is '{now}' now: somebody else changed it"));
        }
        self.write_back(done).unwrap_or_else(|error| Back::Later(error.to_string()))
    }

    /// Reads back as well (`fix.read_back`).
    fn write_back(&self, done: &mut Done) -> Result<Back, FixError> {
        self.write(&done.file, &done.before)?;
        let now = self.value(&done.file)?;
        if same(&done.file, &now, &done.before) {
            return Ok(Back::Done);
        }
        done.after.clone_from(&now);
        Err(FixError::NotTaken { file: done.file.clone(), value: done.before.clone(), now })
    }

    fn value(&self, file: &str) -> Result<String, FixError> {
        let text = self.machine.read(file).ok_or_else(|| FixError::Io {
            file: file.to_owned(),
            source: std::io::Error::from(std::io::ErrorKind::NotFound),
        })?;
        // Of `[a] b` the marked one is the value; lists of numbers are values as they are.
        let marked = text.contains('[').then(|| bracketed(&text)).flatten();
        Ok(marked.unwrap_or_else(|| text.split_whitespace().collect::<Vec<_>>().join(" ")))
    }

    fn write(&self, file: &str, value: &str) -> Result<(), FixError> {
        let io = |source| FixError::Io { file: file.to_owned(), source };
        let place = self.machine.place(file).ok_or_else(|| io(std::io::ErrorKind::NotFound.into()))?;
        let mut opened =
            fs::OpenOptions::new().write(true).truncate(!self.machine.is_live()).open(place).map_err(io)?;
        opened.write_all(format!("{value}\n").as_bytes()).map_err(io)
    }

    /// Without the changes that a restart has taken back already (`fix.ends_at_restart`).
    fn load(&self) -> Result<State, FixError> {
        let state = self.load_any()?;
        let boot_id = self.machine.boot_id();
        match (&state.boot_id, &boot_id) {
            (Some(then), Some(now)) if then != now => Ok(State { version: 1, boot_id, changes: Vec::new() }),
            _ => Ok(State { boot_id, ..state }),
        }
    }

    fn load_any(&self) -> Result<State, FixError> {
        use std::io::Read;
        let bad = |why: String| FixError::State(self.state.clone(), why);
        let mut text = String::new();
        match fs::File::open(&self.state) {
            Ok(file) => file.take(STATE_BYTES_MAX).read_to_string(&mut text).map_err(|e| bad(e.to_string()))?,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(State { version: 1, ..State::default() }),
            Err(e) => return Err(bad(e.to_string())),
        };
        serde_json::from_str(&text).map_err(|e| bad(e.to_string()))
    }

    /// With nothing to put back there is no record: undoing leaves no file where none was.
    fn forget(&self) -> Result<(), FixError> {
        match fs::remove_file(&self.state) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                Err(FixError::Io { file: self.state.display().to_string(), source: e })
            }
            _ => Ok(()),
        }
    }

    /// Written whole beside the old one, then renamed.
    fn save(&self, state: &State) -> Result<(), FixError> {
        let io = |source| FixError::Io { file: self.state.display().to_string(), source };
        let text = serde_json::to_string_pretty(state).map_err(|e| io(e.into()))?;
        if let Some(folder) = self.state.parent() {
            fs::create_dir_all(folder).map_err(io)?;
        }
        let fresh = self.state.with_extension("new");
        let mut file = fs::File::create(&fresh).map_err(io)?;
        file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(io)?;
        fs::rename(&fresh, &self.state).map_err(io)
    }
}

/// Lists come back with other blanks, masks with leading zeros and commas. In a list of numbers a comma means something.
fn same(file: &str, now: &str, value: &str) -> bool {
    let plain = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let mask = |text: &str| {
        let sound = !text.is_empty() && text.chars().all(|c| c.is_ascii_hexdigit() || c == ',');
        sound.then(|| text.replace(',', "").trim_start_matches('0').to_ascii_lowercase())
    };
    let masks = file.ends_with("/rps_cpus") || file.ends_with("/smp_affinity");
    plain(now) == plain(value) || masks && mask(now).is_some_and(|now| mask(value) == Some(now))
}

/// Something that a file of these can hold: short, and one line.
fn is_value(text: &str) -> bool {
    let printable = |c: char| c == ' ' || c.is_ascii_graphic();
    !text.trim().is_empty() && text.len() <= VALUE_BYTES_MAX && text.chars().all(printable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_and_lists_are_compared_as_what_they_are() {
        let (mask, list) = ("/sys/class/net/eth0/queues/rx-0/rps_cpus", "/proc/irq/39/smp_affinity_list");
        for (file, now, value, wanted) in [
            (mask, "00000000,0000000f", "f", true),
            (mask, "00", "0", true),
            (mask, "e", "f", false),
            (mask, "", "0", false),
            (list, "0,4", "0,4", true),
            (list, "0,4", "4", false),
            (list, "04", "4", false),
            ("/proc/sys/net/ipv4/tcp_rmem", "4096\t131072 6291456", "4096 131072 6291456", true),
            ("/proc/sys/net/core/netdev_max_backlog", "01000", "1000", false),
        ] {
            assert_eq!(same(file, now, value), wanted, "{file}: {now:?} and {value:?}");
        }
    }

    #[test]
    fn values_are_short_and_one_line() {
        for good in ["powersave", "4096 131072 6291456", "0,4-7"] {
            assert!(is_value(good), "{good}");
        }
        for bad in ["", " ", "a\nb", "a\0", "\u{1b}[2J", "\u{fc}", &"x".repeat(300)] {
            assert!(!is_value(bad), "{bad:?}");
        }
    }
}
