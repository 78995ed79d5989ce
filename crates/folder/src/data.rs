//! The data of files.

use std::io::IoSlice;
use std::os::fd::OwnedFd;

use bytes::Bytes;
use larder_base::traffic::Wait;
use larder_fs::{
    AllocateMode, Changed, Cred, Event, FILE_BYTES_MAX, FileId, FileKind, FsError, FsResult, IO_BYTES_MAX, Ino,
    PreAttr, ReadData, SeekTo, Stability, WriteVerifier, Written,
};
use rustix::fs::{FallocateFlags, OFlags, SeekFrom};
use rustix::io::{Errno, ReadWriteFlags};

use crate::host::{Node, failed};
use crate::notify::Own;
use crate::numbers::is_stream;
use crate::{Folder, OpenFile};

/// Bytes that the host copies in one call: where it cannot share them this takes a second or two.
const COPIED_BYTES_MAX: u64 = 256 << 20;
/// IOV_MAX of Linux.
const SLICES_MAX: usize = 1024;

fn waits_for(stability: Stability) -> Wait {
    if stability > Stability::Unstable { Wait::Durable } else { Wait::Disk }
}

impl Folder {
    pub async fn read(&self, ino: Ino, offset: u64, len: usize) -> FsResult<ReadData> {
        self.run_waiting(Wait::Disk, move |folder| {
            if is_stream(ino) {
                return folder.host.stream_read(ino, offset, len);
            }
            let node = folder.host.node(ino)?;
            let file = folder.host.data(&node, false)?;
            let left = usize::try_from(node.attr.size.saturating_sub(offset)).unwrap_or(usize::MAX);
            let data = read_all(&file, offset, len.min(left).min(IO_BYTES_MAX))?;
            let attr = folder.host.again(&node)?;
            let end = offset.saturating_add(data.len() as u64);
            let chunks = if data.is_empty() { Vec::new() } else { vec![Bytes::from(data)] };
            Ok(ReadData { chunks, eof: end >= attr.size, attr: Some(attr) })
        })
        .await
    }

    pub async fn write(
        &self,
        cred: &Cred,
        ino: Ino,
        offset: u64,
        data: Vec<Bytes>,
        stability: Stability,
    ) -> FsResult<Written> {
        let cred = cred.clone();
        let write = move |folder: &Folder| Ok(folder.write_at(&cred, ino, Some(offset), &data, stability)?.1);
        self.run_waiting(waits_for(stability), write).await
    }

    pub async fn append(
        &self,
        cred: &Cred,
        ino: Ino,
        data: Vec<Bytes>,
        stability: Stability,
    ) -> FsResult<(u64, Written)> {
        let cred = cred.clone();
        let write = move |folder: &Folder| folder.write_at(&cred, ino, None, &data, stability);
        self.run_waiting(waits_for(stability), write).await
    }

    /// At the end without an offset. Returns the offset.
    fn write_at(
        &self,
        cred: &Cred,
        ino: Ino,
        offset: Option<u64>,
        data: &[Bytes],
        stability: Stability,
    ) -> FsResult<(u64, Written)> {
        let host = &self.host;
        let len = data.iter().map(Bytes::len).sum::<usize>() as u64;
        if offset.is_some_and(|offset| offset.checked_add(len).is_none_or(|end| end > FILE_BYTES_MAX)) {
            return Err(FsError::FileTooLarge);
        }
        if len > IO_BYTES_MAX as u64 {
            return Err(FsError::Invalid("a write is larger than the largest"));
        }
        if is_stream(ino) {
            return self.stream_write(ino, offset, data, stability);
        }
        host.admit()?;
        // Two appends at once must not be told the same offset.
        let _turn = offset.is_none().then(|| host.turn(ino).lock());
        let node = host.node(ino)?;
        let before = node.attr;
        let file = host.data(&node, true)?;
        if len > 0 {
            let _own = host.notices.own(&[Own::Changes(ino)]);
            self.clear_suid(cred, &node)?;
            write_all(&file, offset, data)?;
        }
        if stability > Stability::Unstable {
            host.flush_names()?;
            host.flushed(rustix::fs::fsync(&file))?;
        }
        let after = host.again(&node)?;
        let start = offset.unwrap_or(after.size.saturating_sub(len));
        if len > 0 {
            host.events.send(|| Event::Data { origin: self.origin, ino, offset: start, len });
        }
        let changed = Changed { before: PreAttr::of(&before), after };
        Ok((start, Written { changed, stability, verifier: host.verifier }))
    }

    pub async fn commit(&self, ino: Ino) -> FsResult<(Changed, WriteVerifier)> {
        self.run_waiting(Wait::Durable, move |folder| {
            if is_stream(ino) {
                return folder.stream_commit(ino);
            }
            let node = folder.host.node(ino)?;
            let before = PreAttr::of(&node.attr);
            folder.host.flush_names()?;
            folder.host.flush(&node)?;
            Ok((Changed { before, after: folder.host.again(&node)? }, folder.host.verifier))
        })
        .await
    }

    pub async fn allocate(
        &self,
        cred: &Cred,
        ino: Ino,
        offset: u64,
        len: u64,
        mode: AllocateMode,
    ) -> FsResult<Changed> {
        if len == 0 {
            return Err(FsError::Invalid("an empty range"));
        }
        if offset.checked_add(len).is_none_or(|end| end > FILE_BYTES_MAX) {
            return Err(FsError::FileTooLarge);
        }
        let flags = match mode {
            AllocateMode::Extend => FallocateFlags::empty(),
            AllocateMode::KeepSize => FallocateFlags::KEEP_SIZE,
            AllocateMode::PunchHole => FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
            AllocateMode::Zero => FallocateFlags::ZERO_RANGE,
            AllocateMode::ZeroKeepSize => FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE,
        };
        let cred = cred.clone();
        self.run(move |folder| {
            if is_stream(ino) {
                return folder.stream_allocate(ino, offset, len, mode);
            }
            let node = folder.host.node(ino)?;
            folder.host.admit()?;
            let file = folder.host.data(&node, true)?;
            let own = folder.host.notices.own(&[Own::Changes(ino)]);
            folder.clear_suid(&cred, &node)?;
            rustix::fs::fallocate(&file, flags, offset, len).map_err(failed)?;
            drop(own);
            if folder.is_durable() {
                folder.host.flushed(rustix::fs::fsync(&file))?;
            }
            folder.host.events.send(|| Event::Data { origin: folder.origin, ino, offset, len });
            Ok(Changed { before: PreAttr::of(&node.attr), after: folder.host.again(&node)? })
        })
        .await
    }

    /// Lets the host copy, at most [`COPIED_BYTES_MAX`]. Returns how many bytes; 0: it cannot.
    pub async fn copy_range(&self, cred: &Cred, source: (Ino, u64), target: (Ino, u64), len: u64) -> FsResult<u64> {
        let cred = cred.clone();
        let ((source, mut from), (target, to)) = (source, target);
        self.run(move |folder| {
            if is_stream(source) || is_stream(target) {
                return Ok(0);
            }
            let host = &folder.host;
            let (read, node) = (host.node(source)?, host.node(target)?);
            host.admit()?;
            let (input, output) = (host.data(&read, false)?, host.data(&node, true)?);
            let own = host.notices.own(&[Own::Changes(target)]);
            folder.clear_suid(&cred, &node)?;
            let (mut at, end) = (to, to.saturating_add(len.min(COPIED_BYTES_MAX)));
            while at < end {
                let left = usize::try_from(end - at).unwrap_or(usize::MAX);
                match rustix::fs::copy_file_range(&input, Some(&mut from), &output, Some(&mut at), left) {
                    Ok(0) => break,
                    Ok(_) | Err(Errno::INTR) => {}
                    // The caller moves the rest, and meets what is wrong.
                    Err(_) => break,
                }
            }
            drop(own);
            if at > to {
                if folder.is_durable() {
                    host.flushed(rustix::fs::fsync(&output))?;
                }
                host.events.send(|| Event::Data { origin: folder.origin, ino: target, offset: to, len: at - to });
            }
            Ok(at - to)
        })
        .await
    }

    pub async fn seek(&self, ino: Ino, offset: u64, to: SeekTo) -> FsResult<u64> {
        self.run(move |folder| {
            if is_stream(ino) {
                return folder.host.stream_seek(ino, offset, to);
            }
            let node = folder.host.node(ino)?;
            if node.attr.kind != FileKind::File {
                return Err(FsError::Invalid("only regular files have holes"));
            }
            // The position belongs to the descriptor, so it is nobody else's.
            let file = folder.host.reopen(std::os::fd::AsFd::as_fd(&node.fd), OFlags::RDONLY)?;
            let to = match to {
                SeekTo::Data => SeekFrom::Data(offset),
                SeekTo::Hole => SeekFrom::Hole(offset),
            };
            match rustix::fs::seek(file, to) {
                Err(Errno::NXIO) => Err(FsError::NotFound),
                other => other.map_err(failed),
            }
        })
        .await
    }

    pub async fn open(&self, ino: Ino) -> FsResult<OpenFile> {
        self.run(move |folder| {
            if is_stream(ino) {
                return folder.stream_open(ino);
            }
            let node = folder.host.node(ino)?;
            Ok(folder.opened(&node))
        })
        .await
    }

    pub async fn open_judged(&self, id: FileId) -> FsResult<OpenFile> {
        self.run(move |folder| {
            if is_stream(id.ino) {
                return folder.stream_open(id.ino);
            }
            Ok(folder.opened(&folder.host.resolve(id)?))
        })
        .await
    }

    /// For the length of a call. The other streams of a file are opened for it.
    pub async fn hold(&self, id: FileId) -> FsResult<OpenFile> {
        self.run(move |folder| {
            if is_stream(id.ino) {
                return folder.stream_open(id.ino);
            }
            let node = folder.host.resolve(id)?;
            folder.host.pin(&node, false);
            Ok(OpenFile { host: folder.host.clone(), ino: id.ino })
        })
        .await
    }

    pub(crate) fn opened(&self, node: &Node) -> OpenFile {
        self.host.pin(node, true);
        OpenFile { host: self.host.clone(), ino: node.ino() }
    }
}

fn read_all(file: &OwnedFd, offset: u64, len: usize) -> FsResult<Vec<u8>> {
    let mut data: Vec<u8> = Vec::with_capacity(len);
    while data.len() < len {
        let at = offset.saturating_add(data.len() as u64);
        match rustix::io::pread(file, rustix::buffer::spare_capacity(&mut data), at) {
            Ok(0) => break,
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(failed(error)),
        }
    }
    data.truncate(len);
    Ok(data)
}

fn write_all(file: &OwnedFd, offset: Option<u64>, data: &[Bytes]) -> FsResult<()> {
    let mut pieces: Vec<&[u8]> = data.iter().map(|piece| &piece[..]).filter(|piece| !piece.is_empty()).collect();
    let mut at = offset.unwrap_or_default();
    let flags = if offset.is_none() { ReadWriteFlags::APPEND } else { ReadWriteFlags::empty() };
    while !pieces.is_empty() {
        let slices: Vec<IoSlice<'_>> = pieces.iter().take(SLICES_MAX).map(|piece| IoSlice::new(piece)).collect();
        let mut written = match rustix::io::pwritev2(file, &slices, at, flags) {
            Ok(0) => return Err(FsError::Io("the host wrote nothing".into())),
            Ok(written) => written,
            Err(Errno::INTR) => continue,
            Err(error) => return Err(failed(error)),
        };
        at += written as u64;
        pieces.retain_mut(|piece| {
            let taken = written.min(piece.len());
            written -= taken;
            *piece = &piece[taken..];
            !piece.is_empty()
        });
    }
    Ok(())
}
