//! Our own load over a share's protocol, by URL, without mounting.
//!
//! ```text
//!   open(url) -> ShareClient     mod.rs; share_client.rs: the face of a client; options.rs, url.rs: its arguments
//!   Client<Target>               folder.rs: the bench's folder: made, filled, removed
//!   drive(Job)                   drive.rs: the clock; slots.rs: the work of a thread; shared.rs: state of both; job.rs
//!   copy()                       copy.rs: from one client to another; steps.rs: one end's part; local.rs: a folder as an end
//!   Share / Target               share.rs: the operations of a protocol
//!   nfs/ smb/ sftp/ webdav/
//! ```
//!
//! - `load.jobs_times_depth`: the workload's number of requests, jobs times depth, is in flight, spread over the
//!   connections.
//! - `load.contents_differ`: contents do not compress unless asked, no two blocks are alike, and every read is compared
//!   with them.
//! - `load.clock_ends_on_disk`: the clock starts once every connection stands and every file is open. Where data has to
//!   be on disk, the clock stops when the server has said so. A block is flushed before it is written a second time;
//!   otherwise its first contents would never reach a disk.
//! - `load.error_ends_repeat`: an error ends the repeat: a fast failure is no result.
//! - `load.answers_bounded`: every answer of a server is bounded before it is believed.
//! - `load.one_folder`: everything that was made lies in one folder, `.larder-bench-*`, which is removed at the end. A
//!   folder left by a killed bench of this machine is removed at the beginning of the next.

mod contents;
mod copy;
mod drive;
mod error;
mod folder;
mod histogram;
mod job;
mod layout;
mod leftover;
mod local;
mod nfs;
mod options;
mod outbox;
mod patience;
mod runtime;
mod sftp;
mod share;
mod share_client;
mod shared;
mod slots;
mod smb;
mod steps;
mod url;
mod webdav;

use std::io::Read;
use std::path::Path;

pub use copy::copy;
pub use error::ClientError;
pub use options::ClientOptions;
pub use share_client::ShareClient;
pub use steps::Steps;
pub use url::shown as shown_url;

use url::PASSWORD_FILE;

/// The machine that a URL names.
pub fn host_of(url: &str) -> Option<String> {
    url::ShareUrl::parse(url).ok().map(|url| url.host).filter(|host| !host.is_empty())
}

/// Options that a URL of these schemes may have.
const OPTIONS: &[(&[&str], &[&str])] = &[
    (&["nfs"], &["version", "vers", "nfsport", "mountport"]),
    (&["smb", "cifs"], &["encrypt", PASSWORD_FILE]),
    (&["sftp", "ssh"], &["cipher", PASSWORD_FILE]),
    (&["http", "https", "dav", "davs", "webdav", "webdavs"], &["any-certificate", PASSWORD_FILE]),
];
/// A password is a line.
const PASSWORD_BYTES_MAX: u64 = 4096;

/// The password of `file`, or why there is none.
pub fn password_in(file: &Path) -> Result<String, ClientError> {
    let mut text = String::new();
    let read = std::fs::File::open(file).and_then(|file| file.take(PASSWORD_BYTES_MAX).read_to_string(&mut text));
    let what = || format!("the password in {}", file.display());
    read.map_err(|e| ClientError::Local { what: what(), reason: format!("{e}; give a file with one line") })?;
    Ok(text.lines().next().unwrap_or_default().to_owned())
}

/// A folder of this machine, as one end of a copy.
pub fn open_folder(path: &Path) -> Result<Box<dyn ShareClient>, ClientError> {
    folder::Client::open(local::Folder::new(path), &ClientOptions::default())
}

/// Connects once, so that what is wrong with an address or a password is said here.
pub fn open(url: &str, options: &ClientOptions) -> Result<Box<dyn ShareClient>, ClientError> {
    let mut url = url::ShareUrl::parse(url)?;
    if let Some((_, known)) = OPTIONS.iter().find(|(schemes, _)| schemes.contains(&url.scheme.as_str())) {
        url.check_options(known)?;
    }
    if let Some(file) = url.option(PASSWORD_FILE).filter(|_| url.password.is_none()) {
        url.password = Some(password_in(Path::new(file))?);
    }
    match url.scheme.as_str() {
        "nfs" => folder::Client::open(nfs::NfsTarget::new(&url, options)?, options),
        "smb" | "cifs" => folder::Client::open(smb::SmbTarget::new(&url, options)?, options),
        "sftp" | "ssh" => folder::Client::open(sftp::SftpTarget::new(&url, options)?, options),
        "http" | "https" | "dav" | "davs" | "webdav" | "webdavs" => {
            folder::Client::open(webdav::DavTarget::new(&url, options)?, options)
        }
        _ => Err(ClientError::UnknownScheme { scheme: url.scheme }),
    }
}
