//! Our own load over a share's protocol, by URL, without mounting.
//!
//! ```text
//!   open(url) -> ShareClient     mod.rs: what others see
//!   Client<Target>               folder.rs: the bench's folder: made, filled, removed
//!   drive()                      drive.rs: threads, slots, clock, stop
//!   copy()                       copy.rs: from one of them to another; local.rs: a folder as an end
//!   Share / Target               share.rs: what a protocol can do
//!   nfs/ smb/ sftp/ webdav/
//! ```
//!
//! G1. As many requests are in flight as the workload says, jobs times depth, spread over the connections.
//! G2. Contents do not compress unless asked, no two blocks are alike, and what is read is compared with it.
//! G3. The clock begins when every connection stands and every file is open. Where data has to be on disk it ends when
//!     the server has said so.
//!     What is written a second time was flushed before, or it would never get to a disk.
//! G4. An error ends the repeat: a fast failure is no result.
//! G5. Whatever comes from a server is bounded before it is believed.
//! G6. All that was made lies in one folder, `.larder-bench-*`, which goes at the end; one that a killed bench of this
//!     machine left goes at the beginning of the next.

mod contents;
mod copy;
mod drive;
mod error;
mod folder;
mod histogram;
mod layout;
mod leftover;
mod local;
mod nfs;
mod patience;
mod sftp;
mod share;
mod slots;
mod smb;
mod url;
mod webdav;

use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::control::Control;
use crate::workload::{Repeat, Workload};

pub use copy::{Steps, copy};
pub use error::ClientError;
pub use url::shown as shown_url;

/// One share of one server, being measured.
pub trait ShareClient: Send {
    /// `nfs3`, `smb3`, `sftp`, or `webdav`.
    fn access(&self) -> &str;
    /// How it is reached, for a person: protocol version, transfer sizes, signing or cipher, fingerprint.
    fn describe(&self) -> String;
    /// What encrypts or signs on the way, in a word or two; `none`.
    fn encryption(&self) -> String;
    /// Of the share when it was opened, where its protocol tells. More than half of it is never used.
    fn free_bytes(&self) -> Option<u64>;
    /// Makes the files that a workload needs. Those of the last one are used again where they fit.
    fn prepare(&mut self, workload: &Workload, control: &Control) -> Result<(), ClientError>;
    /// One repeat.
    ///
    /// Random workloads end at `measure_max`, sequential ones too if they go over the data `again`; else, as those on many
    /// files, when all of it went through once after warming up. Making and deleting files and copying trees have no
    /// warm-up, for nothing could be done twice. Stopped: [`ClientError::Stopped`], within a tenth of a second.
    fn run(&mut self, workload: &Workload, limits: &RunLimits, control: &Control) -> Result<Repeat, ClientError>;
    /// Makes ready for a copy: the source its files, the target an empty folder.
    fn prepare_copy(&mut self, workload: &Workload, source: bool, control: &Control) -> Result<(), ClientError>;
    /// Does the steps of a copy until there are no more; see [`copy`].
    fn serve_copy(&mut self, workload: &Workload, steps: Steps) -> Result<(), ClientError>;
    /// Removes everything that was made. Also after an error, a stop, or nothing at all.
    fn clean_up(&mut self) -> Result<(), ClientError>;
}

#[derive(Clone, Copy, Debug)]
pub struct RunLimits {
    pub warm_up: Duration,
    pub measure_max: Duration,
    /// Whether sequential reading and writing begin anew where the data ends, until `measure_max`.
    pub again: bool,
}

/// What a URL does not say.
#[derive(Clone, Default)]
pub struct ClientOptions {
    /// Those in the URL come first.
    pub user: Option<String>,
    pub password: Option<String>,
    /// A private key in OpenSSH's format, for SFTP.
    pub key_file: Option<PathBuf>,
    /// As many as the workload has jobs, if not given.
    pub connections: Option<u32>,
    /// Of AUTH_SYS; our own if not given.
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    /// Certificates are not checked: many a NAS has one that it made itself.
    pub any_certificate: bool,
    /// Every byte that is read is compared, not just samples.
    pub verify_all: bool,
}

/// The machine that a URL names.
pub fn host_of(url: &str) -> Option<String> {
    url::ShareUrl::parse(url).ok().map(|url| url.host).filter(|host| !host.is_empty())
}

/// In a URL's query: a file whose first line is this share's password. Shares of several owners are measured at once.
const PASSWORD_FILE: &str = "password-file";
/// Options that a URL of these schemes may have.
const OPTIONS: &[(&[&str], &[&str])] = &[
    (&["nfs"], &["version", "vers", "nfsport", "mountport"]),
    (&["smb", "cifs"], &["encrypt", PASSWORD_FILE]),
    (&["sftp", "ssh"], &["cipher", PASSWORD_FILE]),
    (&["http", "https", "dav", "davs"], &["any-certificate", PASSWORD_FILE]),
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
        "http" | "https" | "dav" | "davs" => folder::Client::open(webdav::DavTarget::new(&url, options)?, options),
        _ => Err(ClientError::UnknownScheme { scheme: url.scheme }),
    }
}
