//! Data of files: the namespace's part of it. The rest is in `data`.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use larder_fs::access::{clear_suid, touch_mtime};
use larder_fs::places::place_of;
use larder_fs::*;

use crate::attr::current;
use crate::data::{CloneSpan, WriteAt};
use crate::inode::Inode;
use crate::volume::{OpenFile, Volume};

impl Volume {
    /// The target of a symbolic link.
    pub async fn readlink(&self, ino: Ino) -> FsResult<Bytes> {
        let inode = self.state.inode(ino).await?;
        let target = {
            let core = inode.core.lock();
            match core.attr.kind {
                FileKind::Symlink if !core.gone => core.target.clone(),
                FileKind::Symlink => return Err(FsError::Stale),
                _ => return Err(FsError::Invalid("not a symbolic link")),
            }
        };
        self.touch_atime(&inode);
        Ok(target)
    }

    /// Bytes from `offset` on: at most `len`, [`IO_BYTES_MAX`], and what the file holds. Checks no
    /// permission: callers check at open, or per call with [`Volume::access`].
    pub async fn read(&self, ino: Ino, offset: u64, len: usize) -> FsResult<ReadData> {
        let mut tries = 0;
        loop {
            let inode = self.state.file(ino).await?;
            match self.read_of(&inode, offset, len).await {
                Err(FsError::Io(_)) if self.state.reads_again(&inode, &mut tries).await => {}
                read => return read,
            }
        }
    }

    async fn read_of(&self, inode: &Arc<Inode>, offset: u64, len: usize) -> FsResult<ReadData> {
        let (state, ino) = (&*self.state, inode.id.ino);
        let size = current(inode)?.size;
        let left = size.saturating_sub(offset);
        let len = usize::try_from(left).unwrap_or(usize::MAX).min(len).min(IO_BYTES_MAX);
        let chunks = match len {
            0 => Vec::new(),
            _ => state.catalog.unless_destroyed(place_of(ino), state.data.read(inode, offset, len).await)?,
        };
        self.touch_atime(inode);
        let counts = state.data.counts();
        counts.reads.add(1);
        counts.read_bytes.add(len as u64);
        let attr = current(inode)?;
        Ok(ReadData { chunks, eof: offset.saturating_add(len as u64) >= attr.size, attr: Some(attr) })
    }

    /// Writes `data` at `offset`, at most [`IO_BYTES_MAX`] bytes, all or nothing. Waits while too
    /// much data is dirty. Clears setuid and setgid unless `cred` is root. Checks no permission, as
    /// [`Volume::read`]. [`FsError::NoSpace`] or [`FsError::Quota`] if there is no room; an
    /// accepted write never fails for room later.
    pub async fn write(
        &self,
        cred: &Cred,
        ino: Ino,
        offset: u64,
        data: Vec<Bytes>,
        stability: Stability,
    ) -> FsResult<Written> {
        let (_, written) = self.write_at(cred, ino, WriteAt::Offset(offset), data, stability).await?;
        Ok(written)
    }

    /// Writes at the end of the file, atomically; returns the offset written at.
    pub async fn append(
        &self,
        cred: &Cred,
        ino: Ino,
        data: Vec<Bytes>,
        stability: Stability,
    ) -> FsResult<(u64, Written)> {
        self.write_at(cred, ino, WriteAt::Append, data, stability).await
    }

    async fn write_at(
        &self,
        cred: &Cred,
        ino: Ino,
        at: WriteAt,
        data: Vec<Bytes>,
        stability: Stability,
    ) -> FsResult<(u64, Written)> {
        let state = &*self.state;
        let inode = state.changeable_file(ino).await?;
        let len = data.iter().map(Bytes::len).sum::<usize>() as u64;
        check_extent(at, len)?;
        if len > IO_BYTES_MAX as u64 {
            return Err(FsError::Invalid("a write is larger than the largest"));
        }
        let verifier = state.verifier;
        if len == 0 {
            let after = current(&inode)?;
            let changed = Changed { before: PreAttr::of(&after), after };
            return Ok((after.size, Written { changed, stability, verifier }));
        }
        let start = match at {
            WriteAt::Offset(offset) => offset,
            WriteAt::Append => current(&inode)?.size,
        };
        state.admit_data(&inode, start..start.saturating_add(len)).await?;
        let update = |attr: &mut Attr| clear_suid(attr, cred);
        let (offset, changed) = state.data.write(&inode, at, data, stability, state.now(), update).await?;
        let counts = state.data.counts();
        counts.writes.add(1);
        counts.written_bytes.add(len);
        state.send(|| Event::Data { origin: self.origin, ino, offset, len });
        Ok((offset, Written { changed, stability, verifier }))
    }

    /// Makes all data written to `ino` before this call durable: fsync, COMMIT, FLUSH.
    pub async fn commit(&self, ino: Ino) -> FsResult<(Changed, WriteVerifier)> {
        let state = &*self.state;
        let inode = state.inode(ino).await?;
        let before = PreAttr::of(&current(&inode)?);
        if current(&inode)?.kind == FileKind::File && state.followed.is_none() {
            state.data.commit(&inode).await?;
            state.data.counts().commits.add(1);
        }
        // The newest batch that carried the record may be another's, and not durable yet (sync =
        // relaxed).
        state.await_inode(&inode).await?;
        Ok((Changed { before, after: current(&inode)? }, state.verifier))
    }

    /// fallocate(2) over `len` bytes from `offset`. [`FsError::NoSpace`] if `mode` reserves and
    /// there is no room.
    pub async fn allocate(
        &self,
        cred: &Cred,
        ino: Ino,
        offset: u64,
        len: u64,
        mode: AllocateMode,
    ) -> FsResult<Changed> {
        let state = &*self.state;
        let inode = state.changeable_file(ino).await?;
        if len == 0 {
            return Err(FsError::Invalid("an empty range"));
        }
        check_extent(WriteAt::Offset(offset), len)?;
        let mut _turn = None;
        if mode.reserves() {
            _turn = Some(state.data.reserving().await);
            state.admit_data(&inode, offset..offset + len).await?;
        }
        state.meta.admit().await?;
        let now = state.now();
        let update = |attr: &mut Attr| {
            clear_suid(attr, cred);
            touch_mtime(attr, now);
        };
        let (changed, ticket) = state.data.allocate(&inode, offset, len, mode, update).await?;
        state.send(|| Event::Data { origin: self.origin, ino, offset, len });
        self.await_durable(ticket).await?;
        Ok(changed)
    }

    /// Lets `len` bytes of `target` from `to` on be those that `source` has from `from` on, without a copy: both refer to the
    /// same records (`share.*`). All or nothing, as FICLONERANGE, RFC 7862 15.13. Checks no permission.
    /// [`FsError::Invalid`] if the range ends behind the end of `source`, or overlaps itself. What cannot be shared in one step
    /// is refused: [`FsError::FileTooLarge`] for too many extents over data, [`FsError::NotSupported`] for a file of a snapshot.
    /// Then the range can be shared in parts, or copied.
    pub async fn clone_range(
        &self,
        cred: &Cred,
        source: (Ino, u64),
        target: (Ino, u64),
        len: u64,
    ) -> FsResult<Changed> {
        let state = &*self.state;
        let ((source, from), (target, to)) = (source, target);
        // `share.living_segments`
        if source.is_past() {
            return Err(FsError::NotSupported);
        }
        check_extent(WriteAt::Offset(from), len)?;
        check_extent(WriteAt::Offset(to), len)?;
        let (source, target) = (state.file(source).await?, state.changeable_file(target).await?);
        if source.id.ino == target.id.ino && from < to + len && to < from + len {
            return Err(FsError::Invalid("the ranges overlap"));
        }
        if from + len > current(&source)?.size {
            return Err(FsError::Invalid("the range ends behind the end of the file that is cloned"));
        }
        if len == 0 {
            let after = current(&target)?;
            return Ok(Changed { before: PreAttr::of(&after), after });
        }
        let data = state.admit_clone((&source, from..from + len), (&target, to..to + len)).await?;
        let (cred, now) = (cred.clone(), state.now());
        let update = move |attr: &mut Attr| {
            clear_suid(attr, &cred);
            touch_mtime(attr, now);
        };
        let (changed, ticket) =
            state.data.clone_range(&source, &target, CloneSpan { from, to, len, data }, update).await?;
        let counts = state.data.counts();
        counts.writes.add(1);
        state.send(|| Event::Data { origin: self.origin, ino: target.id.ino, offset: to, len });
        self.await_durable(ticket).await?;
        Ok(changed)
    }

    /// The next data or hole at or after `offset`; [`FsError::NotFound`] past the end (ENXIO).
    pub async fn seek(&self, ino: Ino, offset: u64, to: SeekTo) -> FsResult<u64> {
        let mut tries = 0;
        loop {
            let inode = self.state.file(ino).await?;
            if offset >= current(&inode)?.size {
                return Err(FsError::NotFound);
            }
            match self.state.data.seek(&inode, offset, to).await {
                Err(FsError::Io(_)) if self.state.reads_again(&inode, &mut tries).await => {}
                found => return found,
            }
        }
    }

    /// Keeps the inode alive until the [`OpenFile`] is dropped; [`FsError::Stale`] if it is gone.
    pub async fn open(&self, ino: Ino) -> FsResult<OpenFile> {
        let inode = self.state.inode(ino).await?;
        {
            // Under `core`: either the removal of the last link sees this open, or this open sees
            // that the inode is gone (`inode.gone_is_final`).
            let core = inode.core.lock();
            if core.gone {
                return Err(FsError::Stale);
            }
            inode.opens.fetch_add(1, Ordering::AcqRel);
        }
        Ok(OpenFile { inode, state: Arc::clone(&self.state) })
    }
}

fn check_extent(at: WriteAt, len: u64) -> FsResult<()> {
    match at {
        WriteAt::Offset(offset) if offset.checked_add(len).is_none_or(|end| end > FILE_BYTES_MAX) => {
            Err(FsError::FileTooLarge)
        }
        _ => Ok(()),
    }
}
