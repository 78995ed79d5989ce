//! The work of a copy that goes on behind its answer: piece by piece, and then the call to its client ([`super::offload`]).
//!
//! - `offload.judged_again`: before each piece the exports, their rules for the client, and the client itself are looked at
//!   again, and delegations of others are recalled: the stateids of the request may be gone by then.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use larder_files::{Open, Uses};
use larder_fs::{FsError, Stability};

use super::super::rpc::reply_results;
use super::super::shared::Shared;
use super::super::xdr::Reader;
use super::callback::{CbArgOp, CbCompoundResult, CbOffloadArgs, CbResOp, OffloadInfo};
use super::convert::{stable_how, stat_of};
use super::file_key::FileKey;
use super::offload::Offload;
use super::place::Object;
use super::stateids;
use super::types::{ClientId, NfsStat, SessionId, StateId, WriteResponse};
use super::wire::{Opaque, Xdr};

/// Bytes that a copy moves at once.
pub const COPY_PIECE_BYTES: usize = 1 << 20;
/// A shorter copy takes less time than to tell of its end.
pub const OFFLOAD_BYTES_MIN: u64 = 4 << 20;
/// Between calls to a client that does not answer.
const TELL_AGAIN_AFTER: Duration = Duration::from_secs(5);

/// The work of a copy.
pub struct CopyJob {
    pub shared: Arc<Shared>,
    pub peer: SocketAddr,
    pub source: CopyEnd,
    pub target: CopyEnd,
    pub bytes: u64,
    /// The request that it answered, whose reply the call-back may overtake: session, slot, number.
    pub referring: Option<(SessionId, u32, u32)>,
}

/// A file and a place in it, open for the time of a copy.
pub struct CopyEnd {
    pub object: Object,
    pub file: FileKey,
    pub offset: u64,
    /// While the copy goes on.
    open: Option<Open>,
}

impl CopyEnd {
    pub async fn open(object: Object, file: FileKey, offset: u64, does: Uses) -> Result<Self, NfsStat> {
        let open = object.files().open_judged(object.id, does).await.map_err(|error| match error {
            FsError::Shared => NfsStat::Locked,
            error => stat_of(&error),
        })?;
        Ok(Self { object, file, offset, open: Some(open) })
    }
}

impl CopyJob {
    /// Copies, and tells the client.
    pub async fn run(mut self, copy: Arc<Offload>) {
        let stopped = copy.stopped.clone().drop_guard();
        let outcome = tokio::select! {
            biased;
            () = copy.stop.cancelled() => None,
            outcome = self.copy_all(&copy) => Some(outcome.err().unwrap_or(NfsStat::Ok)),
        };
        (self.source.open, self.target.open) = (None, None);
        drop(stopped);
        if let Some(status) = outcome {
            copy.set_outcome(status);
            tokio::select! {
                biased;
                () = copy.stop.cancelled() => {}
                () = self.tell(&copy, status) => {}
            }
        }
        self.shared.v4.offloads.forget(&copy);
    }

    async fn copy_all(&self, copy: &Offload) -> Result<(), NfsStat> {
        let (source, target) = (&self.source.object, &self.target.object);
        let mut copied = 0;
        while copied < self.bytes {
            self.judge(copy.client).await?;
            let bytes = usize::try_from(self.bytes - copied).unwrap_or(usize::MAX).min(COPY_PIECE_BYTES);
            let read = source.files().read(source.id.ino, self.source.offset + copied, bytes).await;
            let read = read.map_err(|error| stat_of(&error))?;
            let len = read.len() as u64;
            if len == 0 {
                // The source has become shorter.
                return Ok(());
            }
            let at = self.target.offset + copied;
            let written = target.files().write(&target.cred, target.id.ino, at, read.chunks, Stability::Unstable).await;
            written.map_err(|error| stat_of(&error))?;
            copied += len;
            copy.set_copied(copied);
        }
        Ok(())
    }

    /// `offload.judged_again`
    async fn judge(&self, client: ClientId) -> Result<(), NfsStat> {
        let v4 = &self.shared.v4;
        if !v4.lock().clients.is_confirmed(client) {
            return Err(NfsStat::Expired);
        }
        let exports = self.shared.exports();
        for (end, writes) in [(&self.source, false), (&self.target, true)] {
            let export = exports.by_key(&end.object.export.key).ok_or(NfsStat::Stale)?;
            let rights = export.entrance(self.peer).map_err(|_| NfsStat::Access)?;
            if writes && !rights.may_write {
                return Err(NfsStat::RoFs);
            }
        }
        for (end, writes) in [(&self.source, false), (&self.target, true)] {
            if v4.has_delegations() {
                v4.recall(end.file, Some(client), writes).await;
            }
        }
        Ok(())
    }

    /// `offload.known_until_told`
    async fn tell(&self, copy: &Offload, status: NfsStat) {
        let v4 = &self.shared.v4;
        let target = &self.target.object;
        let (handle, copied) = (target.handle(target.id), copy.copied());
        let info = match status {
            NfsStat::Ok => OffloadInfo::Done(response(target, None, copied)),
            status => OffloadInfo::Failed { status, bytes_copied: copied },
        };
        let stateid = stateids::make(v4.life(), copy.number, 1);
        while v4.lock().clients.is_confirmed(copy.client) {
            let op = CbArgOp::Offload(CbOffloadArgs { handle: Opaque(&handle), stateid, info });
            let answer = v4.call_client(copy.client, self.referring, op).await;
            if answer.is_some_and(|reply| is_answered(&reply)) {
                return;
            }
            tokio::time::sleep(TELL_AGAIN_AFTER).await;
        }
    }
}

/// The result of a copy, done or begun (`write_response4`).
pub fn response(target: &Object, callback: Option<StateId>, count: u64) -> WriteResponse {
    let verifier = target.files().verifier().0;
    WriteResponse { callback, count, committed: stable_how(Stability::Unstable), verifier }
}

/// Whether a client has answered CB_OFFLOAD itself, and does not want it again later.
fn is_answered(reply: &[u8]) -> bool {
    let results = reply_results(reply).and_then(|results| CbCompoundResult::get(&mut Reader::new(results)).ok());
    results.is_some_and(|answer| {
        answer.results.iter().any(|result| matches!(result, CbResOp::Offload(told) if told != Err(NfsStat::Delay)))
    })
}
