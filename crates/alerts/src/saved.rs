//! Small files of the daemon's state: whole or not at all.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::{Serialize, de::DeserializeOwned};

/// Larger state is not ours.
const STATE_BYTES_MAX: u64 = 16 << 20;

#[derive(Debug, thiserror::Error)]
pub enum SaveError {
    #[error("cannot {what} {path}: {source}")]
    Io { what: &'static str, path: PathBuf, source: std::io::Error },
    #[error("{path} is damaged: {why}")]
    Damaged { path: PathBuf, why: String },
}

fn io<'a>(what: &'static str, path: &'a Path) -> impl Fn(std::io::Error) -> SaveError + use<'a> {
    move |source| SaveError::Io { what, path: path.to_owned(), source }
}

/// The bytes take the place of the file: durable before this returns, and the old ones stay if it fails.
pub fn replace(path: &Path, bytes: &[u8]) -> Result<(), SaveError> {
    let beside = path.with_extension("new");
    let write = || -> std::io::Result<()> {
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&beside)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        std::fs::rename(&beside, path)?;
        match path.parent() {
            Some(folder) => File::open(folder)?.sync_all(),
            None => Ok(()),
        }
    };
    write().map_err(io("write", path))
}

pub fn save<T: Serialize>(path: &Path, value: &T) -> Result<(), SaveError> {
    let bytes =
        serde_json::to_vec(value).map_err(|e| SaveError::Damaged { path: path.to_owned(), why: e.to_string() })?;
    replace(path, &bytes)
}

/// `None`: there is no such file.
pub fn load<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, SaveError> {
    let Some(bytes) = read(path, STATE_BYTES_MAX)? else { return Ok(None) };
    let damaged = |e: serde_json::Error| SaveError::Damaged { path: path.to_owned(), why: e.to_string() };
    serde_json::from_slice(&bytes).map(Some).map_err(damaged)
}

pub(crate) fn read(path: &Path, bytes_max: u64) -> Result<Option<Vec<u8>>, SaveError> {
    let file = match File::open(path) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        other => other.map_err(io("read", path))?,
    };
    let mut bytes = Vec::new();
    file.take(bytes_max + 1).read_to_end(&mut bytes).map_err(io("read", path))?;
    if bytes.len() as u64 > bytes_max {
        return Err(SaveError::Damaged { path: path.to_owned(), why: "it is far too large".to_owned() });
    }
    Ok(Some(bytes))
}
