//! READ, WRITE, COMMIT (RFC 8881 18.3, 18.22, 18.32).

use std::sync::atomic::Ordering::Relaxed;

use bytes::Bytes;
use larder_fs::{ACCESS_EXECUTE, ACCESS_READ, ACCESS_WRITE, AccessMask, Attr, FILE_BYTES_MAX, ReadData, Stability};

use super::super::compound::CompoundReply;
use super::super::convert::{check_file, stability, stable_how, stat_of};
use super::super::file_key::{FileKey, ShareBits};
use super::super::ops::{ArgOp, CommitArgs, ReadArgs, ReadOk, ResOp, WriteArgs, WriteOk};
use super::super::place::Object;
use super::super::stateids::{self, Named};
use super::super::types::{NfsStat, StateId, Verifier};
use super::super::wire::FileData;
use super::{IO_BYTES_MAX, Run};
use crate::may_io;

/// A right to read or write by a stateid.
#[derive(Clone, Copy, Debug)]
pub(super) struct Right {
    /// The caller opened the file for this, so its mode is not asked (`openers.each_their_own`).
    pub is_opener: bool,
}

impl<'m> Run<'m> {
    pub(super) async fn data_operation(&mut self, op: ArgOp<'m>, reply: &mut CompoundReply) {
        match op {
            ArgOp::Read(args) => match self.read(&args).await {
                Ok(read) => {
                    let bytes = read.len() as u64;
                    self.caller.shared.stats.read_bytes.fetch_add(bytes, Relaxed);
                    let ok = ReadOk { eof: read.eof, data: FileData::Chunks(&read.chunks) };
                    self.push(reply, &ResOp::Read(Ok(ok)));
                }
                Err(status) => self.push(reply, &ResOp::Read(Err(status))),
            },
            ArgOp::Write(args) => {
                let done = Box::pin(self.write(&args)).await;
                self.push(reply, &ResOp::Write(done));
            }
            ArgOp::Commit(args) => {
                let done = Box::pin(self.commit(&args)).await;
                self.push(reply, &ResOp::Commit(done));
            }
            other => self.push(reply, &ResOp::failed(other.number(), NfsStat::ServerFault)),
        }
    }

    /// The judgement of opens, denials, delegations and grace.
    pub(super) async fn data_right(&self, stateid: &StateId, object: &Object, writes: bool) -> Result<Right, NfsStat> {
        match self.known_right(stateid, object, writes) {
            Some(right) => Ok(right),
            None => Box::pin(self.judged_right(stateid, object, writes)).await,
        }
    }

    /// A right that was judged before (`server.common_requests_pass_by`).
    fn known_right(&self, stateid: &StateId, object: &Object, writes: bool) -> Option<Right> {
        // NFSv4.0 renews its lease by it, and the stateid alone says whose it is.
        let client = self.client.filter(|_| self.minor > 0)?;
        let Ok(Named::State { number, seqid }) = stateids::name(stateid, self.v4.life(), self.minor) else {
            return None;
        };
        let known = self.v4.rights().find(number)?;
        let volume = self.v4.known_volume(object.files())?.number;
        let is_it = known.client == client && known.file == FileKey { volume, inode: object.id.ino.0 };
        let is_newest = seqid == 0 || seqid == known.seqid;
        let wanted = access_of(writes);
        let may = known.access.has(wanted);
        (is_it && is_newest && may).then(|| Right { is_opener: known.openers.may(object.cred.uid, wanted) })
    }

    async fn judged_right(&self, stateid: &StateId, object: &Object, writes: bool) -> Result<Right, NfsStat> {
        let is_special = matches!(*stateid, stateids::ANONYMOUS | stateids::READ_BYPASS);
        let volume = self.v4.volume(object.files()).await?;
        let judge = || -> Result<_, NfsStat> {
            let mut state = self.v4.lock();
            let state = &mut *state;
            // RFC 8881 8.4.2.1: an open that is about to be reclaimed may deny it.
            if is_special && state.is_in_grace(volume.book()) {
                return Err(NfsStat::Grace);
            }
            let file = Self::key(state, object.files(), object.id.ino)?;
            let judged = state.states.data_right(stateid, file, writes, self.by());
            let right = match judged {
                Ok(right) => right,
                Err(status) => return Ok((file, Err(status))),
            };
            if self.minor == 0
                && let Some(client) = right.client
            {
                state.clients.renew(client, self.v4.now())?;
            }
            state.states.remember_right(stateid, self.minor);
            // An open for writing is read through, by those who may read the file.
            let is_opener = right.openers.may(object.cred.uid, access_of(writes));
            Ok((file, Ok(Right { is_opener })))
        };
        let (file, mut judged) = judge()?;
        let is_in_the_way = matches!(judged, Err(NfsStat::Locked | NfsStat::Delay));
        if is_in_the_way && self.end_silent(file, self.client).await? {
            judged = judge()?.1;
        }
        if matches!(judged, Err(NfsStat::Delay)) {
            self.v4.recalls_wait();
        }
        judged
    }

    /// The current object as a regular file for which the stateid, and one of `masks` or its open, let the caller do
    /// this. Its owner always passes: a client may hold an open whose mode was changed behind it.
    pub(super) async fn file_for(
        &self,
        stateid: StateId,
        writes: bool,
        masks: &[AccessMask],
    ) -> Result<(Object, Attr), NfsStat> {
        let object = self.object(NfsStat::IsDir)?;
        let stateid = self.stateids.resolve(stateid, self.minor)?;
        let granted = object.files().resolve_granted(&object.cred, object.id).await;
        let (attr, bits) = granted.map_err(|error| stat_of(&error))?;
        check_file(&attr, self.minor)?;
        if writes {
            object.may_change()?;
        }
        let right = self.data_right(&stateid, &object, writes).await?;
        let may = right.is_opener || may_io(&object.cred, &attr, bits, masks);
        if may { Ok((object, attr)) } else { Err(NfsStat::Access) }
    }

    pub(super) async fn read(&self, args: &ReadArgs) -> Result<ReadData, NfsStat> {
        let (object, attr) = self.file_for(args.stateid, false, &[ACCESS_READ, ACCESS_EXECUTE]).await?;
        // A short answer is one, where the client's bound leaves no room for more. What a slot is to keep is not cut.
        let room = match self.bounds.too_big {
            NfsStat::RepTooBigToCache => usize::MAX,
            _ => self.bounds.bytes_max.saturating_sub(READ_FRAME_BYTES).max(1),
        };
        let count = (args.count.min(IO_BYTES_MAX) as usize).min(room);
        if count == 0 {
            return Ok(ReadData { eof: args.offset >= attr.size, ..ReadData::default() });
        }
        if args.offset > FILE_BYTES_MAX {
            return Ok(ReadData { eof: true, ..ReadData::default() });
        }
        object.files().read(object.id.ino, args.offset, count).await.map_err(|error| stat_of(&error))
    }

    async fn write(&self, args: &WriteArgs<'m>) -> Result<WriteOk, NfsStat> {
        let (object, _) = self.file_for(args.stateid, true, &[ACCESS_WRITE]).await?;
        let files = object.files();
        let data = kept(&args.data);
        let bytes: usize = data.iter().map(Bytes::len).sum();
        let count = u32::try_from(bytes).map_err(|_| NfsStat::Inval)?;
        if bytes == 0 {
            let committed = stable_how(Stability::FileSync);
            return Ok(WriteOk { count, committed, verifier: files.verifier().0 });
        }
        if args.offset.checked_add(bytes as u64).is_none_or(|end| end > FILE_BYTES_MAX) {
            return Err(NfsStat::FBig);
        }
        let how = stability(args.stable);
        let written = files.write(&object.cred, object.id.ino, args.offset, data, how).await;
        let written = written.map_err(|error| stat_of(&error))?;
        self.caller.shared.stats.written_bytes.fetch_add(bytes as u64, Relaxed);
        Ok(WriteOk { count, committed: stable_how(written.stability), verifier: written.verifier.0 })
    }

    /// The whole file, whatever the range: more is not wrong, and durability comes in groups.
    async fn commit(&self, args: &CommitArgs) -> Result<Verifier, NfsStat> {
        let object = self.object(NfsStat::IsDir)?;
        if args.offset.checked_add(u64::from(args.count)).is_none() {
            return Err(NfsStat::Inval);
        }
        check_file(&object.resolve().await?, self.minor)?;
        let (_, verifier) = object.files().commit(object.id.ino).await.map_err(|error| stat_of(&error))?;
        Ok(verifier.0)
    }
}

fn access_of(writes: bool) -> ShareBits {
    if writes { ShareBits::WRITE } else { ShareBits::READ }
}

/// What stands around the data of a READ with SEQUENCE, PUTFH and GETATTR.
const READ_FRAME_BYTES: usize = 512;

/// As much of a payload as is written at once: the reply says how much.
fn kept(data: &FileData<'_>) -> Vec<Bytes> {
    let mut left = IO_BYTES_MAX as usize;
    match *data {
        FileData::Slice(slice) => {
            let kept = slice.get(..slice.len().min(left)).unwrap_or_default();
            if kept.is_empty() { Vec::new() } else { vec![Bytes::copy_from_slice(kept)] }
        }
        FileData::Chunks(chunks) => {
            let mut kept = chunks.to_vec();
            kept.retain_mut(|chunk| {
                chunk.truncate(left);
                left -= chunk.len();
                !chunk.is_empty()
            });
            kept
        }
    }
}
