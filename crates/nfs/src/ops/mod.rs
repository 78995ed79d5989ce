//! The procedures of NFS v3 (RFC 1813 3.3): a decoded call goes to the volume, its outcome is encoded.
//!
//! - `ops.reply_after_volume`: a reply is begun only after the volume has answered, so its promises
//!   (stability, existence) hold.
//! - `ops.handle_first`: every call resolves its handle first, so that no generation aliases
//!   another.
//! - `ops.inode_held`: in a folder of the host, a call that judges an inode and then acts on it holds the inode until it ends
//!   (`files.number_held`).
//! - `ops.drop_is_clean`: dropping [`run`]'s future never leaves half a change, and the duplicate
//!   request cache forgets the call (`drc.no_reply_no_trace`).

mod attrs;
mod data;
mod list;
mod names;

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use bytes::Bytes;
use larder_files::{Files, HeldInode};
use larder_fs::{Attr, Cred, FileId};

use super::drc;
use super::export::ExportState;
use super::handle;
use super::outbox::Reply;
use super::proto::{Fail, FailShape, Proc, Status};
use super::rpc::{AcceptStat, begin_accepted, set_record_mark};
use super::shared::Shared;
use super::xdr::{Reader, Writer, padding};

pub use attrs::truncating;
pub use data::may_io;

pub use data::IO_BYTES_MAX;

/// A call that may be carried out: its caller is allowed in, its handle decodes.
pub struct Call {
    pub shared: Arc<Shared>,
    pub export: Arc<ExportState>,
    pub cred: Cred,
    pub id: FileId,
    pub read_only: bool,
    pub proc: Proc,
    pub xid: u32,
    pub message: Bytes,
    /// Offset in `message` of the arguments behind the first handle, in bytes.
    pub args_at: usize,
    /// The payload of a large WRITE, behind `message`.
    pub tail: Option<Vec<Bytes>>,
    /// For calls that must not be carried out twice.
    pub once: Option<drc::Key>,
    /// Room for the reply.
    pub scratch: Vec<u8>,
}

/// The answer of a procedure: encoded results, and file data behind them.
struct Answer {
    w: Writer,
    data: Vec<Bytes>,
    data_bytes: usize,
}

impl Call {
    fn files(&self) -> &Files {
        &self.export.export.files
    }

    fn fsid(&self) -> u64 {
        self.export.key.fsid
    }

    fn args(&self) -> Reader<'_> {
        Reader::new(self.message.get(self.args_at..).unwrap_or_default())
    }

    async fn resolve(&self) -> Result<Attr, Fail> {
        Ok(self.files().resolve(self.id).await?)
    }

    /// The handle of another object in the arguments, which must be of the same volume (RENAME, LINK). It is held as the first.
    async fn resolve_second(&self, handle: &[u8]) -> Result<(Attr, HeldInode), Fail> {
        let (key, id) = handle::decode(handle).ok_or(Status::BadHandle)?;
        if key != self.export.key {
            return Err(Status::XDev.into());
        }
        if !handle::is_of(handle, id.ino, &self.export.seal) {
            return Err(Status::BadHandle.into());
        }
        let held = self.files().hold(id).await?;
        Ok((self.files().resolve(id).await?, held))
    }

    fn handle(&self, id: FileId) -> [u8; handle::HANDLE_BYTES] {
        handle::encode(&self.export.key, &self.export.seal, id)
    }
}

/// Carries out a call.
pub async fn run(mut call: Call) -> Reply {
    match call.once.take() {
        None => carry_out(&mut call).await,
        Some(key) => Box::pin(run_once(&mut call, key)).await,
    }
}

/// Carries out a call once: a duplicate gets the stored reply, or waits for the first
/// (`drc.duplicate_waits`).
async fn run_once(call: &mut Call, key: drc::Key) -> Reply {
    let shared = Arc::clone(&call.shared);
    loop {
        match shared.drc.begin(key) {
            drc::Begin::Run(ticket) => {
                let reply = carry_out(call).await;
                // "Try later" is no outcome to remember.
                if reply.head.get(28..32) != Some(&(Status::Jukebox as u32).to_be_bytes()) {
                    ticket.finish(&reply.head);
                }
                return reply;
            }
            drc::Begin::Replay(head) => return replay(&shared, &head),
            drc::Begin::Wait(outcome) => {
                if let Ok(head) = outcome.await {
                    return replay(&shared, &head);
                }
            }
        }
    }
}

fn replay(shared: &Shared, head: &Bytes) -> Reply {
    shared.stats.replayed.fetch_add(1, Relaxed);
    Reply { head: head.to_vec(), ..Reply::default() }
}

async fn carry_out(call: &mut Call) -> Reply {
    let began = Instant::now();
    let mut w = Writer::new(std::mem::take(&mut call.scratch));
    w.truncate(0);
    begin_accepted(&mut w, call.xid, AcceptStat::Success);
    let mut answer = Answer { w, data: Vec::new(), data_bytes: 0 };
    #[cfg(test)]
    super::tests::fail_as_planted(&call.message).await;
    let outcome = match call.files().reuses_numbers() && call.proc.judges_first() {
        false => procedure(call, &mut answer).await,
        true => Box::pin(holding(call, &mut answer)).await,
    };
    if let Err(fail) = &outcome {
        let after = match fail {
            Fail::Garbage | Fail::Status(Status::Stale) => None,
            Fail::Status(_) => call.files().resolve(call.id).await.ok(),
        };
        (answer.data, answer.data_bytes) = (Vec::new(), 0);
        encode_fail(&mut answer.w, call.xid, call.proc, fail, after.as_ref(), call.fsid());
    }
    call.shared.stats.count(call.proc, outcome.is_err());
    call.shared.stats.took(call.proc, began.elapsed());
    set_record_mark(&mut answer.w, answer.data_bytes + padding(answer.data_bytes));
    Reply { head: answer.w.into_inner(), data: answer.data, data_bytes: answer.data_bytes }
}

/// `ops.inode_held`.
async fn holding(call: &mut Call, out: &mut Answer) -> Result<(), Fail> {
    let _held = call.files().hold(call.id).await?;
    procedure(call, out).await
}

/// The states of the larger procedures are boxed: the future of every call is moved once, and the small and
/// frequent ones should not carry the room that a CREATE needs.
async fn procedure(call: &mut Call, out: &mut Answer) -> Result<(), Fail> {
    match call.proc {
        Proc::Null => Ok(()),
        Proc::GetAttr => call.get_attr(out).await,
        Proc::SetAttr => Box::pin(call.set_attr(out)).await,
        Proc::Lookup => call.lookup(out).await,
        Proc::Access => call.access(out).await,
        Proc::ReadLink => call.read_link(out).await,
        Proc::Read => call.read(out).await,
        Proc::Write => Box::pin(call.write(out)).await,
        Proc::Create => Box::pin(call.create(out)).await,
        Proc::MkDir => Box::pin(call.mkdir(out)).await,
        Proc::SymLink => Box::pin(call.symlink(out)).await,
        Proc::MkNod => Box::pin(call.mknod(out)).await,
        Proc::Remove => Box::pin(call.remove(out)).await,
        Proc::RmDir => Box::pin(call.rmdir(out)).await,
        Proc::Rename => Box::pin(call.rename(out)).await,
        Proc::Link => Box::pin(call.link(out)).await,
        Proc::ReadDir => Box::pin(call.read_dir(out)).await,
        Proc::ReadDirPlus => Box::pin(call.read_dir_plus(out)).await,
        Proc::FsStat => call.fs_stat(out).await,
        Proc::FsInfo => call.fs_info(out).await,
        Proc::PathConf => call.path_conf(out).await,
        Proc::Commit => Box::pin(call.commit(out)).await,
    }
}

/// Encodes a whole reply that says that the call failed, in place of whatever is in `w`.
pub fn encode_fail(w: &mut Writer, xid: u32, proc: Proc, fail: &Fail, after: Option<&Attr>, fsid: u64) {
    w.truncate(0);
    let status = match fail {
        Fail::Garbage => return begin_accepted(w, xid, AcceptStat::GarbageArgs),
        Fail::Status(status) => *status,
    };
    begin_accepted(w, xid, AcceptStat::Success);
    w.status(status);
    match proc.fail_shape() {
        FailShape::Nothing => {}
        FailShape::Post => w.post_attr(after, fsid),
        FailShape::Wcc => w.wcc_after(after, fsid),
        FailShape::WccWcc => {
            w.wcc_after(after, fsid);
            w.wcc_after(None, fsid);
        }
        FailShape::PostWcc => {
            w.post_attr(after, fsid);
            w.wcc_after(None, fsid);
        }
    }
}
