//! Operations of NFSv4.2 on ranges of files (RFC 7862 15): ALLOCATE, DEALLOCATE, SEEK, READ_PLUS, IO_ADVISE, COPY, CLONE,
//! OFFLOAD_STATUS, OFFLOAD_CANCEL.

use std::sync::Arc;
use std::time::{Duration, Instant};

use larder_base::task;
use larder_files::Uses;
use larder_fs::{
    ACCESS_EXECUTE, ACCESS_READ, ACCESS_WRITE, AllocateMode, FILE_BYTES_MAX, FsError, ReadData, SeekTo, Stability,
};

use super::super::bitmap::Bitmap;
use super::super::compound::CompoundReply;
use super::super::convert::{check_file, stat_of};
use super::super::copy_job::{self, COPY_PIECE_BYTES, CopyEnd, CopyJob, OFFLOAD_BYTES_MIN};
use super::super::offload::Offload;
use super::super::ops::{
    AllocateArgs, ArgOp, CloneArgs, ContentData, ContentHole, CopyArgs, CopyOk, CopyRequirements, OffloadStatusOk,
    ReadArgs, ReadContent, ReadPlusOk, ResOp, SeekArgs, SeekOk,
};
use super::super::place::{Object, Place};
use super::super::stateids::{self, Named};
use super::super::types::{ContentKind, DetailedResult, NfsStat, StateId, WriteResponse};
use super::super::wire::{FileData, XdrList};
use super::{IO_BYTES_MAX, Run};
use crate::may_io;

/// Data and holes by turns in one READ_PLUS.
const CONTENTS_MAX: usize = 64;
/// A COPY answers after this time with what it has: the client asks for the rest, and its slot is free in between.
const COPY_TIME: Duration = Duration::from_secs(4);

/// A part of a READ_PLUS.
enum Content {
    Data(u64, ReadData),
    Hole(ContentHole),
}

impl<'m> Run<'m> {
    pub(super) async fn range_operation(&mut self, op: ArgOp<'m>, reply: &mut CompoundReply) {
        match op {
            ArgOp::Allocate(args) => {
                let done = Box::pin(self.allocate(&args, AllocateMode::Extend)).await;
                self.push(reply, &ResOp::Allocate(done));
            }
            ArgOp::Deallocate(args) => {
                let done = Box::pin(self.allocate(&args, AllocateMode::PunchHole)).await;
                self.push(reply, &ResOp::Deallocate(done));
            }
            ArgOp::Seek(args) => {
                let done = self.seek(&args).await;
                self.push(reply, &ResOp::Seek(done));
            }
            ArgOp::ReadPlus(args) => self.read_plus(&args, reply).await,
            // Advice is taken note of by nobody: no hint is followed (RFC 7862 15.5.3).
            ArgOp::IoAdvise(args) => {
                let done = self.file_for(args.stateid, false, &[ACCESS_READ, ACCESS_EXECUTE]).await;
                self.push(reply, &ResOp::IoAdvise(done.map(|_| Bitmap::EMPTY)));
            }
            ArgOp::Copy(args) => {
                let result = match Box::pin(self.copy(&args)).await {
                    Ok(response) => {
                        let synchronous = response.callback.is_none();
                        let requirements = CopyRequirements { consecutive: true, synchronous };
                        DetailedResult::Ok(CopyOk { response, requirements })
                    }
                    Err(status) => DetailedResult::Err(status),
                };
                self.push(reply, &ResOp::Copy(result));
            }
            ArgOp::OffloadStatus(stateid) => {
                let progress = self.offload(&stateid).map(|copy| copy.progress());
                let result = progress.map(|(count, complete)| OffloadStatusOk { count, complete });
                self.push(reply, &ResOp::OffloadStatus(result));
            }
            ArgOp::OffloadCancel(stateid) => {
                let found = self.offload(&stateid);
                if let Ok(copy) = &found {
                    self.v4.offloads.cancel(copy).await;
                }
                self.push(reply, &ResOp::OffloadCancel(found.map(|_| ())));
            }
            ArgOp::Clone(args) => {
                let done = Box::pin(self.clone_range(&args)).await;
                self.push(reply, &ResOp::Clone(done));
            }
            other => self.push(reply, &ResOp::failed(other.number(), NfsStat::ServerFault)),
        }
    }

    async fn allocate(&self, args: &AllocateArgs, mode: AllocateMode) -> Result<(), NfsStat> {
        let (object, _) = self.file_for(args.stateid, true, &[ACCESS_WRITE]).await?;
        if args.length == 0 {
            return Err(NfsStat::Inval);
        }
        if args.offset.checked_add(args.length).is_none_or(|end| end > FILE_BYTES_MAX) {
            return Err(NfsStat::FBig);
        }
        let done = object.files().allocate(&object.cred, object.id.ino, args.offset, args.length, mode).await;
        done.map(|_| ()).map_err(|error| stat_of(&error))
    }

    /// RFC 7862 15.11: the end of the file counts as a hole. Other contents than data and holes may come (11.1.1.1).
    async fn seek(&self, args: &SeekArgs) -> Result<SeekOk, NfsStat> {
        let (object, attr) = self.file_for(args.stateid, false, &[ACCESS_READ, ACCESS_EXECUTE]).await?;
        let what = ContentKind::from_number(args.what).ok_or(NfsStat::UnionNotSupp)?;
        if args.offset >= attr.size {
            return Err(NfsStat::NxIo);
        }
        let to = if what == ContentKind::Data { SeekTo::Data } else { SeekTo::Hole };
        match object.files().seek(object.id.ino, args.offset, to).await {
            Ok(offset) => Ok(SeekOk { eof: offset >= attr.size, offset }),
            Err(FsError::NotFound) => Ok(SeekOk { eof: true, offset: attr.size }),
            Err(error) => Err(stat_of(&error)),
        }
    }

    async fn read_plus(&mut self, args: &ReadArgs, reply: &mut CompoundReply) {
        let (eof, parts) = match Box::pin(self.contents(args)).await {
            Ok(read) => read,
            Err(status) => return self.push(reply, &ResOp::ReadPlus(Err(status))),
        };
        let contents: Vec<ReadContent<'_>> = parts
            .iter()
            .map(|part| match part {
                Content::Data(offset, read) => {
                    ReadContent::Data(ContentData { offset: *offset, data: FileData::Chunks(&read.chunks) })
                }
                Content::Hole(hole) => ReadContent::Hole(*hole),
            })
            .collect();
        self.push(reply, &ResOp::ReadPlus(Ok(ReadPlusOk { eof, contents: XdrList::of(&contents) })));
    }

    async fn contents(&self, args: &ReadArgs) -> Result<(bool, Vec<Content>), NfsStat> {
        let (object, attr) = self.file_for(args.stateid, false, &[ACCESS_READ, ACCESS_EXECUTE]).await?;
        let room = self.bounds.bytes_max.saturating_sub(1024).max(1);
        let count = (args.count.min(IO_BYTES_MAX) as usize).min(room) as u64;
        let end = args.offset.saturating_add(count).min(attr.size);
        let (files, ino) = (object.files(), object.id.ino);
        let (mut parts, mut at) = (Vec::new(), args.offset);
        while at < end && parts.len() < CONTENTS_MAX {
            let data_at = match files.seek(ino, at, SeekTo::Data).await {
                Ok(offset) => offset.min(end),
                Err(FsError::NotFound) => end,
                Err(error) => return Err(stat_of(&error)),
            };
            if data_at > at {
                parts.push(Content::Hole(ContentHole { offset: at, length: data_at - at }));
                at = data_at;
                continue;
            }
            let hole_at = files.seek(ino, at, SeekTo::Hole).await.map_err(|error| stat_of(&error))?.clamp(at + 1, end);
            let bytes = usize::try_from(hole_at - at).unwrap_or(usize::MAX);
            let read = files.read(ino, at, bytes).await.map_err(|error| stat_of(&error))?;
            let len = read.len() as u64;
            if len == 0 {
                break;
            }
            parts.push(Content::Data(at, read));
            at += len;
        }
        Ok((at >= attr.size, parts))
    }

    /// The saved handle is the source (RFC 7862 15.2), in any export. What cannot share extents is copied piece by piece: as
    /// far as [`COPY_TIME`] goes, or behind the answer where the client lets it and can be called.
    async fn copy(&self, args: &CopyArgs<'_>) -> Result<WriteResponse, NfsStat> {
        if args.servers.len() > 0 {
            return Err(NfsStat::NotSupp);
        }
        let source = self.source(args.source).await?;
        let (target, _) = self.file_for(args.target, true, &[ACCESS_WRITE]).await?;
        let size = source.resolve().await?.size;
        if args.source_offset > size || args.source_offset.checked_add(args.count).is_none_or(|end| end > size) {
            return Err(NfsStat::Inval);
        }
        let is_one_tree = source.files().id() == target.files().id();
        let wanted = if args.count == 0 { size - args.source_offset } else { args.count };
        if args.target_offset.checked_add(wanted).is_none_or(|end| end > FILE_BYTES_MAX) {
            return Err(NfsStat::FBig);
        }
        let overlaps = is_one_tree
            && source.id.ino == target.id.ino
            && args.source_offset < args.target_offset.saturating_add(wanted)
            && args.target_offset < args.source_offset.saturating_add(wanted);
        if overlaps {
            return Err(NfsStat::Inval);
        }
        let (began, mut done) = (Instant::now(), 0);
        // RFC 7862 4.1: how the bytes come there is the server's.
        while is_one_tree && done < wanted && began.elapsed() < COPY_TIME {
            let (from, to) = ((source.id.ino, args.source_offset + done), (target.id.ino, args.target_offset + done));
            match target.files().copy_range(&target.cred, from, to, wanted - done).await {
                Ok(0) => break,
                Ok(shared) => done += shared,
                Err(_) if done > 0 => break,
                Err(error) => return Err(stat_of(&error)),
            }
        }
        if done == 0 && wanted >= OFFLOAD_BYTES_MIN && !args.synchronous {
            let (from, to) = ((&source, args.source_offset), (&target, args.target_offset));
            if let Some(stateid) = Box::pin(self.begin_offload(from, to, wanted)).await? {
                return Ok(copy_job::response(&target, Some(stateid), 0));
            }
        }
        while done < wanted && began.elapsed() < COPY_TIME {
            let bytes = usize::try_from(wanted - done).unwrap_or(usize::MAX).min(COPY_PIECE_BYTES);
            let read = source.files().read(source.id.ino, args.source_offset + done, bytes).await;
            let read = read.map_err(|error| stat_of(&error))?;
            let len = read.len() as u64;
            if len == 0 {
                break;
            }
            let at = args.target_offset + done;
            let written = target.files().write(&target.cred, target.id.ino, at, read.chunks, Stability::Unstable).await;
            match written {
                Ok(_) => done += len,
                // What was copied before is there.
                Err(_) if done > 0 => break,
                Err(error) => return Err(stat_of(&error)),
            }
        }
        Ok(copy_job::response(&target, None, done))
    }

    /// Begins a copy that goes on behind the answer. `None`: this client has to wait for it.
    async fn begin_offload(
        &self,
        (source, source_offset): (&Object, u64),
        (target, target_offset): (&Object, u64),
        bytes: u64,
    ) -> Result<Option<StateId>, NfsStat> {
        let Some(client) = self.client else { return Ok(None) };
        let (source_file, target_file) = {
            let mut state = self.v4.lock();
            if state.clients.back_channel(client).is_none() {
                return Ok(None);
            }
            let source = Self::key(&mut state, source.files(), source.id.ino)?;
            (source, Self::key(&mut state, target.files(), target.id.ino)?)
        };
        let does = Uses::READ.and(Uses::WRITE);
        let job = CopyJob {
            shared: Arc::clone(self.caller.shared),
            peer: self.caller.peer,
            source: CopyEnd::open(source.clone(), source_file, source_offset, Uses::READ).await?,
            target: CopyEnd::open(target.clone(), target_file, target_offset, does).await?,
            bytes,
            referring: self.slot.request(),
        };
        let number = self.v4.lock().states.unused_number();
        let Some(copy) = self.v4.offloads.begin(number, client, target_file) else { return Ok(None) };
        task::spawn(job.run(copy));
        Ok(Some(stateids::make(self.v4.life(), number, 1)))
    }

    /// The copy into the current file that a stateid names.
    fn offload(&self, stateid: &StateId) -> Result<Arc<Offload>, NfsStat> {
        let object = self.object(NfsStat::IsDir)?;
        let client = self.client.ok_or(NfsStat::BadStateId)?;
        let file = Self::key(&mut self.v4.lock(), object.files(), object.id.ino)?;
        let Named::State { number, seqid } = stateids::name(stateid, self.v4.life(), self.minor)? else {
            return Err(NfsStat::BadStateId);
        };
        let copy = self.v4.offloads.find(number, client, file).ok_or(NfsStat::BadStateId)?;
        stateids::check_seqid(seqid, 1, self.minor)?;
        Ok(copy)
    }

    /// RFC 7862 15.13: all or nothing. A count of 0 reaches to the end of the source, which no other may pass.
    async fn clone_range(&self, args: &CloneArgs) -> Result<(), NfsStat> {
        let source = self.source(args.source).await?;
        let (target, _) = self.file_for(args.target, true, &[ACCESS_WRITE]).await?;
        if source.export.key != target.export.key {
            return Err(NfsStat::XDev);
        }
        let size = source.resolve().await?.size;
        if args.source_offset > size || args.source_offset.checked_add(args.count).is_none_or(|end| end > size) {
            return Err(NfsStat::Inval);
        }
        let count = if args.count == 0 { size - args.source_offset } else { args.count };
        if args.target_offset.checked_add(count).is_none_or(|end| end > FILE_BYTES_MAX) {
            return Err(NfsStat::FBig);
        }
        let (from, to) = ((source.id.ino, args.source_offset), (target.id.ino, args.target_offset));
        match target.files().clone_range(&target.cred, from, to, count).await {
            Ok(_) => Ok(()),
            Err(FsError::Busy(_)) => Err(NfsStat::Delay),
            Err(error) => Err(stat_of(&error)),
        }
    }

    async fn source(&self, stateid: StateId) -> Result<Object, NfsStat> {
        let Place::Object(saved) = self.saved.as_ref().ok_or(NfsStat::NoFileHandle)? else {
            return Err(NfsStat::IsDir);
        };
        let granted = saved.files().resolve_granted(&saved.cred, saved.id).await;
        let (attr, bits) = granted.map_err(|error| stat_of(&error))?;
        check_file(&attr, self.minor)?;
        let right = self.data_right(&stateid, saved, false).await?;
        let masks = [ACCESS_READ, ACCESS_EXECUTE];
        let may = right.is_opener || may_io(&saved.cred, &attr, bits, &masks);
        if may { Ok(saved.clone()) } else { Err(NfsStat::Access) }
    }
}
