//! Named streams of SMB, in the extended attributes in which Samba's `vfs_streams_xattr` keeps them.
//!
//! - `stream.as_samba`: the stream NAME is the attribute `user.DosStream.NAME:$DATA`. Its value is the stream and a zero byte,
//!   because an attribute must not be empty.
//! - `stream.whole_value`: a change reads the value, changes it and sets it again. The host replaces a value whole or not at
//!   all, so a change that does not fit loses nothing.
//! - `stream.attributes_of_the_file`: owner, mode and times are the file's. Size and data are the stream's.

use std::os::fd::AsFd;

use bytes::Bytes;
use larder_fs::judge;
use larder_fs::{
    AllocateMode, Attr, Changed, CreateMode, DirEntry, Event, FileId, FileKind, FsError, FsResult, Ino, Listing,
    NameMatch, PreAttr, ReadData, RenameMode, SeekTo, SetAttr, Stability, WriteVerifier, Written,
};
use rustix::fs::XattrFlags;
use rustix::io::Errno;

use crate::host::{Host, Node, bears_user, by_number, failed};
use crate::kernel::{user_attributes, xattr};
use crate::notify::Own;
use crate::numbers::Stream;
use crate::{Folder, OpenFile};

pub(crate) const PREFIX: &[u8] = b"user.DosStream.";
const SUFFIX: &[u8] = b":$DATA";
/// XATTR_SIZE_MAX of linux/limits.h, with the zero byte at the end.
const VALUE_BYTES_MAX: usize = 65536;
/// XATTR_NAME_MAX of linux/limits.h.
const NAME_BYTES_MAX: usize = 255;
/// A stream as it is found on the host.
struct Found {
    attribute: Bytes,
    name: Bytes,
}

pub(crate) fn name_of(attribute: &Bytes) -> Option<Bytes> {
    let name = attribute.strip_prefix(PREFIX)?;
    let name = name.strip_suffix(SUFFIX).unwrap_or(name);
    (!name.is_empty()).then(|| attribute.slice_ref(name))
}

pub(crate) fn attribute_of(name: &[u8]) -> FsResult<Bytes> {
    if name.is_empty() || name.iter().any(|byte| matches!(byte, 0 | b'/' | b':')) {
        return Err(FsError::Invalid("a stream's name must not be empty or hold '/', ':' or a zero byte"));
    }
    let attribute = [PREFIX, name, SUFFIX].concat();
    if attribute.len() > NAME_BYTES_MAX { Err(FsError::NameTooLong) } else { Ok(Bytes::from(attribute)) }
}

#[cfg(any(test, fuzzing))]
pub(crate) fn fuzz_name(data: &[u8]) {
    let _ = name_of(&Bytes::copy_from_slice(data));
    let Ok(attribute) = attribute_of(data) else { return };
    assert!(attribute.len() <= NAME_BYTES_MAX);
    assert_eq!(name_of(&attribute).as_deref(), Some(data));
}

fn streams_of(node: &Node) -> FsResult<Vec<Found>> {
    if !bears_user(node) {
        return Ok(Vec::new());
    }
    let found = |attribute: Bytes| name_of(&attribute).map(|name| Found { attribute, name });
    Ok(user_attributes(node.fd.as_fd()).map_err(failed)?.into_iter().filter_map(found).collect())
}

/// The stream that a client calls `name`: as it is spelled, or else in any case.
fn find(node: &Node, name: &[u8], how: NameMatch) -> FsResult<Option<Found>> {
    let mut all = streams_of(node)?;
    let exact = all.iter().position(|found| found.name == name);
    let folded = || match how {
        NameMatch::Folded => all.iter().position(|found| judge::fold(&found.name) == judge::fold(name)),
        NameMatch::Exact => None,
    };
    Ok(exact.or_else(folded).map(|at| all.swap_remove(at)))
}

/// The stream without the zero byte behind it. `None` if it is gone.
fn content(node: &Node, attribute: &[u8]) -> FsResult<Option<Vec<u8>>> {
    match xattr(node.fd.as_fd(), attribute, VALUE_BYTES_MAX) {
        Ok(value) => Ok(Some(without_end(value))),
        Err(Errno::NODATA) => Ok(None),
        Err(error) => Err(failed(error)),
    }
}

/// Without the zero byte behind a stream.
pub(crate) fn without_end(mut value: Vec<u8>) -> Vec<u8> {
    value.pop_if(|last| *last == 0);
    value
}

fn put(node: &Node, attribute: &[u8], mut data: Vec<u8>, flags: XattrFlags) -> FsResult<()> {
    data.push(0);
    if data.len() > VALUE_BYTES_MAX {
        return Err(no_room());
    }
    rustix::fs::setxattr(by_number(node.fd.as_fd()), attribute, &data, flags).map_err(|error| match error {
        Errno::NOSPC | Errno::TOOBIG | Errno::RANGE => no_room(),
        error => failed(error),
    })
}

fn no_room() -> FsError {
    FsError::NoSpace(
        "the host keeps streams in extended attributes: on ext4 about 4 KiB for all of a file, on XFS and btrfs at \
         most 64 KiB for each"
            .into(),
    )
}

fn unchanged(attr: Attr) -> Changed {
    Changed { before: PreAttr::of(&attr), after: attr }
}

impl Host {
    fn stream(&self, ino: Ino) -> FsResult<(Node, Stream)> {
        let stream = self.streams.lock().get(ino).ok_or(FsError::Stale)?;
        Ok((self.resolve(stream.owner)?, stream))
    }

    /// A stream itself.
    fn stream_data(&self, ino: Ino) -> FsResult<(Node, Bytes)> {
        match self.stream(ino)? {
            (node, Stream { attribute: Some(attribute), .. }) => Ok((node, attribute)),
            _ => Err(FsError::IsDirectory),
        }
    }

    /// The file that a directory of streams belongs to.
    fn stream_owner(&self, dir: Ino) -> FsResult<Node> {
        match self.stream(dir)? {
            (node, Stream { attribute: None, .. }) => Ok(node),
            _ => Err(FsError::NotDirectory),
        }
    }

    fn stream_attr(&self, node: &Node, attribute: &Bytes, size: usize) -> FsResult<Attr> {
        let stream = Stream { owner: node.attr.id, attribute: Some(attribute.clone()) };
        let ino = self.streams.lock().number(stream)?;
        let id = FileId { ino, generation: node.attr.id.generation };
        let size = size as u64;
        Ok(Attr { id, kind: FileKind::File, nlink: 1, size, allocated: size, rdev: (0, 0), ..node.attr })
    }

    fn found_attr(&self, node: &Node, attribute: &Bytes) -> FsResult<Option<Attr>> {
        let found = content(node, attribute)?;
        found.map(|data| self.stream_attr(node, attribute, data.len())).transpose()
    }

    fn stream_dir_attr(&self, node: &Node) -> FsResult<Attr> {
        let ino = self.streams.lock().number(Stream { owner: node.attr.id, attribute: None })?;
        let id = FileId { ino, generation: node.attr.id.generation };
        Ok(Attr { id, kind: FileKind::Directory, nlink: 2, size: 0, allocated: 0, rdev: (0, 0), ..node.attr })
    }

    pub(crate) fn stream_getattr(&self, ino: Ino) -> FsResult<Attr> {
        let (node, stream) = self.stream(ino)?;
        match stream.attribute {
            Some(attribute) => self.found_attr(&node, &attribute)?.ok_or(FsError::Stale),
            None => self.stream_dir_attr(&node),
        }
    }

    pub(crate) fn stream_lookup(&self, dir: Ino, name: &[u8], how: NameMatch) -> FsResult<Attr> {
        let node = self.stream_owner(dir)?;
        let found = find(&node, name, how)?.ok_or(FsError::NotFound)?;
        self.found_attr(&node, &found.attribute)?.ok_or(FsError::NotFound)
    }

    pub(crate) fn stream_stored_name(&self, dir: Ino, name: &[u8]) -> FsResult<Bytes> {
        let found = find(&self.stream_owner(dir)?, name, NameMatch::Folded)?;
        found.map(|found| found.name).ok_or(FsError::NotFound)
    }

    /// A page in the order of numbers, which are the cookies.
    pub(crate) fn stream_listing(&self, dir: Ino, cookie: u64, max: usize) -> FsResult<Listing> {
        let node = self.stream_owner(dir)?;
        let mut entries = Vec::new();
        for Found { attribute, name } in streams_of(&node)? {
            let Some(attr) = self.found_attr(&node, &attribute)? else { continue };
            let ino = attr.id.ino;
            entries.push(DirEntry { cookie: ino.0, name, ino, kind: FileKind::File, attr: Some(attr) });
        }
        entries.retain(|entry| entry.cookie > cookie);
        entries.sort_by_key(|entry| entry.cookie);
        let eof = entries.len() <= max.max(1);
        entries.truncate(max.max(1));
        Ok(Listing { entries, eof, end: u64::MAX, dir: self.stream_dir_attr(&node)? })
    }

    pub(crate) fn stream_read(&self, ino: Ino, offset: u64, len: usize) -> FsResult<ReadData> {
        let (node, attribute) = self.stream_data(ino)?;
        let data = Bytes::from(content(&node, &attribute)?.ok_or(FsError::Stale)?);
        let start = usize::try_from(offset).map_or(data.len(), |offset| offset.min(data.len()));
        let end = start.saturating_add(len).min(data.len());
        let attr = self.stream_attr(&node, &attribute, data.len())?;
        let chunks = if start == end { Vec::new() } else { vec![data.slice(start..end)] };
        Ok(ReadData { chunks, eof: end == data.len(), attr: Some(attr) })
    }

    pub(crate) fn stream_seek(&self, ino: Ino, offset: u64, to: SeekTo) -> FsResult<u64> {
        let size = self.stream_getattr(ino)?.size;
        match to {
            _ if offset >= size => Err(FsError::NotFound),
            SeekTo::Data => Ok(offset),
            SeekTo::Hole => Ok(size),
        }
    }
}

impl Folder {
    /// The directory of the streams of `ino`. Making it changes nothing on the host.
    pub async fn named_dir(&self, ino: Ino, make: bool) -> FsResult<Option<Ino>> {
        self.run(move |folder| {
            let node = folder.host.node(ino)?;
            let is_there = match make {
                true if bears_user(&node) && folder.host.has_xattrs => true,
                true => return Err(FsError::NotSupported),
                false => !streams_of(&node)?.is_empty(),
            };
            is_there.then(|| folder.host.stream_dir_attr(&node).map(|attr| attr.id.ino)).transpose()
        })
        .await
    }

    pub async fn remove_named(&self, ino: Ino) -> FsResult<()> {
        self.run(move |folder| {
            let node = folder.host.node(ino)?;
            let all = streams_of(&node)?;
            if all.is_empty() {
                return Ok(());
            }
            folder.host.admit()?;
            let _turn = folder.host.turn(ino).lock();
            for found in all {
                folder.take(&node, &found.attribute)?;
            }
            folder.stream_changed(&node, None)
        })
        .await
    }

    fn take(&self, node: &Node, attribute: &Bytes) -> FsResult<()> {
        let _own = self.host.notices.own(&[Own::Changes(node.ino())]);
        match rustix::fs::removexattr(by_number(node.fd.as_fd()), &attribute[..]) {
            Ok(()) | Err(Errno::NODATA) => {}
            Err(error) => return Err(failed(error)),
        }
        self.host.streams.lock().forget(&Stream { owner: node.attr.id, attribute: Some(attribute.clone()) });
        Ok(())
    }

    /// After a change: durable, and others hear of it.
    fn stream_changed(&self, node: &Node, stream: Option<Ino>) -> FsResult<()> {
        if self.is_durable() {
            self.host.flush(node)?;
        }
        let origin = self.origin;
        if let Some(ino) = stream {
            self.host.events.send(|| Event::Attr { origin, ino });
        }
        self.host.events.send(|| Event::Attr { origin, ino: node.ino() });
        Ok(())
    }

    pub(crate) fn stream_create(
        &self,
        dir: Ino,
        name: &[u8],
        mode: CreateMode,
        set: &SetAttr,
    ) -> FsResult<(Attr, bool, Changed)> {
        let host = &self.host;
        host.admit()?;
        let node = host.stream_owner(dir)?;
        let _turn = host.turn(node.ino()).lock();
        if let Some(found) = find(&node, name, NameMatch::Exact)? {
            if mode == CreateMode::Guarded {
                return Err(FsError::Exists);
            }
            let attr = host.found_attr(&node, &found.attribute)?.ok_or(FsError::NotFound)?;
            return Ok((attr, false, unchanged(host.stream_dir_attr(&node)?)));
        }
        let attribute = attribute_of(name)?;
        let size = usize::try_from(set.size.unwrap_or(0)).unwrap_or(usize::MAX);
        if size >= VALUE_BYTES_MAX {
            return Err(no_room());
        }
        let _own = host.notices.own(&[Own::Changes(node.ino())]);
        put(&node, &attribute, vec![0; size], XattrFlags::CREATE)?;
        self.stream_changed(&node, None)?;
        let attr = host.stream_attr(&node, &attribute, size)?;
        Ok((attr, true, unchanged(host.stream_dir_attr(&node)?)))
    }

    pub(crate) fn stream_unlink(&self, dir: Ino, name: &[u8]) -> FsResult<(Attr, Changed)> {
        let host = &self.host;
        host.admit()?;
        let node = host.stream_owner(dir)?;
        let _turn = host.turn(node.ino()).lock();
        let found = find(&node, name, NameMatch::Exact)?.ok_or(FsError::NotFound)?;
        let attr = host.found_attr(&node, &found.attribute)?.ok_or(FsError::NotFound)?;
        self.take(&node, &found.attribute)?;
        self.stream_changed(&node, Some(attr.id.ino))?;
        Ok((Attr { nlink: 0, ..attr }, unchanged(host.stream_dir_attr(&node)?)))
    }

    /// Under its new name first: a crash between the two steps leaves both.
    pub(crate) fn stream_rename(
        &self,
        from: Ino,
        from_name: &[u8],
        to: Ino,
        to_name: &[u8],
        mode: RenameMode,
    ) -> FsResult<(Changed, Changed)> {
        if from != to || mode == RenameMode::Exchange {
            return Err(FsError::NotSupported);
        }
        let host = &self.host;
        host.admit()?;
        let node = host.stream_owner(from)?;
        let _turn = host.turn(node.ino()).lock();
        let source = find(&node, from_name, NameMatch::Exact)?.ok_or(FsError::NotFound)?;
        let target = attribute_of(to_name)?;
        let done = unchanged(host.stream_dir_attr(&node)?);
        if source.attribute == target {
            return Ok((done, done));
        }
        let data = content(&node, &source.attribute)?.ok_or(FsError::NotFound)?;
        let flags = if mode == RenameMode::NoReplace { XattrFlags::CREATE } else { XattrFlags::empty() };
        let _own = host.notices.own(&[Own::Changes(node.ino())]);
        put(&node, &target, data, flags)?;
        let stream = |attribute: &Bytes| Stream { owner: node.attr.id, attribute: Some(attribute.clone()) };
        host.streams.lock().renamed(&stream(&source.attribute), stream(&target));
        rustix::fs::removexattr(by_number(node.fd.as_fd()), &source.attribute[..]).map_err(failed)?;
        self.stream_changed(&node, None)?;
        Ok((done, done))
    }

    /// Changes the content in one step (`stream.whole_value`).
    fn stream_edit(
        &self,
        ino: Ino,
        is_stable: bool,
        edit: impl FnOnce(&mut Vec<u8>) -> FsResult<()>,
    ) -> FsResult<Changed> {
        let host = &self.host;
        host.admit()?;
        let (node, attribute) = host.stream_data(ino)?;
        let _turn = host.turn(node.ino()).lock();
        let mut data = content(&node, &attribute)?.ok_or(FsError::Stale)?;
        let before = PreAttr::of(&host.stream_attr(&node, &attribute, data.len())?);
        edit(&mut data)?;
        let size = data.len();
        let own = host.notices.own(&[Own::Changes(node.ino())]);
        put(&node, &attribute, data, XattrFlags::REPLACE)?;
        drop(own);
        if is_stable {
            host.flush(&node)?;
        }
        let (origin, len) = (self.origin, size as u64);
        host.events.send(|| Event::Data { origin, ino, offset: 0, len });
        host.events.send(|| Event::Attr { origin, ino: node.ino() });
        Ok(Changed { before, after: host.stream_attr(&node, &attribute, size)? })
    }

    /// At the end without an offset. Returns the offset.
    pub(crate) fn stream_write(
        &self,
        ino: Ino,
        offset: Option<u64>,
        pieces: &[Bytes],
        stability: Stability,
    ) -> FsResult<(u64, Written)> {
        let mut at = 0;
        let changed = self.stream_edit(ino, stability > Stability::Unstable, |data| {
            at = offset.unwrap_or(data.len() as u64);
            let new = pieces.concat();
            let start = usize::try_from(at).ok().filter(|start| *start < VALUE_BYTES_MAX).ok_or_else(no_room)?;
            let end = start.checked_add(new.len()).filter(|end| *end < VALUE_BYTES_MAX).ok_or_else(no_room)?;
            if data.len() < end {
                data.resize(end, 0);
            }
            data.splice(start..end, new);
            Ok(())
        })?;
        Ok((at, Written { changed, stability, verifier: self.host.verifier }))
    }

    /// Only the size is the stream's own.
    pub(crate) fn stream_setattr(&self, ino: Ino, set: &SetAttr) -> FsResult<Changed> {
        let Some(size) = set.size else { return Ok(unchanged(self.host.stream_getattr(ino)?)) };
        let size = usize::try_from(size).ok().filter(|size| *size < VALUE_BYTES_MAX).ok_or_else(no_room)?;
        self.stream_edit(ino, self.is_durable(), |data| {
            data.resize(size, 0);
            Ok(())
        })
    }

    pub(crate) fn stream_allocate(&self, ino: Ino, offset: u64, len: u64, mode: AllocateMode) -> FsResult<Changed> {
        let end = offset.saturating_add(len);
        let (zeroes, extends) = match mode {
            AllocateMode::Extend => (false, true),
            // The host reserves nothing for it.
            AllocateMode::KeepSize => return Ok(unchanged(self.host.stream_getattr(ino)?)),
            AllocateMode::PunchHole | AllocateMode::ZeroKeepSize => (true, false),
            AllocateMode::Zero => (true, true),
        };
        self.stream_edit(ino, self.is_durable(), |data| {
            let size = data.len() as u64;
            if extends && end > size {
                data.resize(usize::try_from(end).ok().filter(|end| *end < VALUE_BYTES_MAX).ok_or_else(no_room)?, 0);
            }
            if zeroes {
                // Both are within the size.
                let range = offset.min(size) as usize..end.min(size) as usize;
                data.get_mut(range).into_iter().flatten().for_each(|byte| *byte = 0);
            }
            Ok(())
        })
    }

    pub(crate) fn stream_commit(&self, ino: Ino) -> FsResult<(Changed, WriteVerifier)> {
        let attr = self.host.stream_getattr(ino)?;
        let (node, _) = self.host.stream(ino)?;
        self.host.flush(&node)?;
        Ok((unchanged(attr), self.host.verifier))
    }

    pub(crate) fn stream_open(&self, ino: Ino) -> FsResult<OpenFile> {
        self.host.stream_getattr(ino)?;
        self.host.streams.lock().pin(ino);
        Ok(OpenFile { host: self.host.clone(), ino })
    }
}
