//! The face of a client.

use super::error::ClientError;
use super::steps::Steps;
use crate::control::Control;
use crate::workload::{Repeat, RunLimits, Workload};

/// One share of one server, being measured.
pub trait ShareClient: Send {
    /// `nfs3`, `smb3`, `sftp`, or `webdav`.
    fn access(&self) -> &str;
    /// How it is reached, for a person: protocol version, transfer sizes, signing or cipher, fingerprint.
    fn describe(&self) -> String;
    /// The cipher or signature on the way, in a word or two; `none`.
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
    /// Does the steps of a copy until there are no more; see [`copy`](super::copy()).
    fn serve_copy(&mut self, workload: &Workload, steps: Steps) -> Result<(), ClientError>;
    /// Removes everything that was made. Also after an error, a stop, or nothing at all.
    fn clean_up(&mut self) -> Result<(), ClientError>;
}
