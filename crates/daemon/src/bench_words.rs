//! Words of a bench that the command line and the page have in common: subjects, kinds, titles, errors.

use std::path::{Path, PathBuf};

use larder_api::Failure;
use larder_document::folder::absolute;
use larder_facts::Machine;
use larder_load::{BenchError, Device, Kind};
use larder_measure::bench::result::BenchResult;
use larder_measure::bench::show::html;
use larder_measure::bench::{DiskTarget, ShareTarget};

/// The longest run, a day.
pub const SECONDS_MAX: f64 = 86_400.0;
/// Repeats of one measurement.
pub const REPEATS_MAX: i64 = 100;

/// Beside the result, for whoever looks into the folder.
const PAGE_NAME: &str = "report.html";

/// A folder, or a device of this machine.
///
/// # Errors
/// The device cannot be looked at.
pub fn disk_target(path: &Path) -> Result<DiskTarget, Failure> {
    let path = absolute(path)?;
    match larder_load::is_device(&path) {
        true => Device::look(&Machine::this(), &path).map(DiskTarget::Device).map_err(|e| failure(&e)),
        false => Ok(DiskTarget::Folder(path)),
    }
}

/// A URL, or the folder where a share is mounted.
///
/// # Errors
/// The path cannot be made absolute.
pub fn share_target(text: &str) -> Result<ShareTarget, Failure> {
    // A folder is loaded by fio, however it is written.
    let text = text.strip_prefix("file://").unwrap_or(text);
    match text.contains("://") {
        true => Ok(ShareTarget::Url(text.to_owned())),
        false => absolute(Path::new(text)).map(ShareTarget::Mount),
    }
}

/// A kind of workload by its name, such as `random-read`.
///
/// # Errors
/// A sentence with all kinds.
pub fn kind(text: &str) -> Result<Kind, String> {
    let named = |kind: &Kind| serde_json::to_value(kind).ok().and_then(|name| name.as_str().map(str::to_owned));
    let known = || Kind::ALL.iter().filter_map(named).collect::<Vec<_>>().join(", ");
    serde_json::from_value(serde_json::Value::from(text))
        .map_err(|_| format!("'{text}' is not a kind of workload: choose from {}", known()))
}

/// The title of a result: one line.
///
/// # Errors
/// A sentence that says what a title is.
pub fn title(text: &str) -> Result<String, String> {
    const CHARS_MAX: usize = 120;
    let sound = (1..=CHARS_MAX).contains(&text.trim().chars().count()) && !text.contains(char::is_control);
    let refused = || format!("a title is one line of 1 to {CHARS_MAX} characters");
    sound.then(|| text.trim().to_owned()).ok_or_else(refused)
}

/// The page of a result in its folder. A result without its page is a result all the same.
pub fn keep_page(folder: &Path, result: &BenchResult) -> Option<PathBuf> {
    let page = folder.join(PAGE_NAME);
    std::fs::write(&page, html(result)).ok().map(|()| page)
}

/// The error, and the way out.
pub fn failure(error: &BenchError) -> Failure {
    let message = error.to_string();
    let failure = match error {
        BenchError::Invalid { .. } => Failure::invalid(message),
        BenchError::Busy { .. } => Failure::busy(message),
        BenchError::Io { what, source } => Failure::io(what, source),
        BenchError::Stopped => {
            return Failure::unavailable("the bench was stopped before anything was measured")
                .action("nothing is kept; what was written is removed");
        }
        _ => Failure::unavailable(message),
    };
    match error.action() {
        Some(action) => failure.action(action),
        None => failure,
    }
}
