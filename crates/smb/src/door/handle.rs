//! One open file or directory.
//!
//! - `handle.checked_at_open`: rights are checked at the open, and belong to the open from then on,
//!   as in POSIX. Later operations run with a checked [`Cred`], and a chmod does not cut an open
//!   off.
//! - `handle.holds_the_inode`: the inode is held open, so it can be read and written after its last
//!   name has been removed.
//! - `handle.attributes_bounded`: of a file's extended attributes SMB shows those up to [`ATTRIBUTES_BYTES_MAX`], as much as
//!   Windows keeps. Other doors store more, and each query reads them.
//! - `handle.moves_bytes`: data moves as `Bytes`: a read returns the volume's own chunks, a write
//!   passes on the frame.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::{
    DirEntry, DirPage, ExtendedAttribute, FileInfo, FileTimes, Handle, OpenName, Pattern, SecurityDescriptor, SmbError,
    SmbResult, StreamInfo, Watching,
};
use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use larder_files::Open;
use larder_fs::{
    AllocateMode, Attr, Cred, FileKind, FsError, IO_BYTES_MAX, Ino, NameMatch, ReadData, SeekTo, SetAttr, SetTime,
    Stability, XattrMode,
};

use super::open_name::EntryName;
use super::stats::Op;
use super::status::OrStatus;
use super::tree::Core;
use super::{names, rights, security, times};

const ATTRIBUTES_BYTES_MAX: usize = 64 << 10;
/// Entries that one page of a listing asks the volume for: about as many as fit one answer.
const PAGE_ENTRIES: usize = 1024;
/// The namespace of users' extended attributes.
const USER_SPACE: &[u8] = b"user.";
/// Allocation sizes are told in these units, as `volume_info` says.
pub const ALLOCATION_BYTES: u64 = 4096;

pub struct FileHandle {
    pub core: Arc<Core>,
    pub who: Cred,
    /// The inode that holds the data.
    pub ino: Ino,
    /// The file that a stream belongs to (`streams.attributes_of_the_file`).
    pub base: Option<(Ino, Open)>,
    pub name: String,
    pub rights: u32,
    /// The cookie at which a listing under way ends; set by its first page.
    pub list_end: AtomicU64,
    /// Holds the inode. What the open does and denies is claimed where its CREATE is judged
    /// (`files/file_ref.rs`).
    pub _open: Open,
    pub entry_name: Arc<EntryName>,
}

#[async_trait]
impl Handle for FileHandle {
    fn is_past(&self) -> bool {
        self.ino.is_past()
    }

    fn asks_for_removal(&self) -> bool {
        self.core.files.check_unblocked(&self.who).is_ok()
    }

    fn name(&self) -> Arc<dyn OpenName> {
        self.entry_name.clone()
    }

    async fn read(&self, offset: u64, len: u32) -> SmbResult<Bytes> {
        let mut data = self.read_data(offset, len).await?;
        if data.chunks.len() == 1 {
            return Ok(data.chunks.swap_remove(0));
        }
        let mut joined = BytesMut::with_capacity(data.len());
        data.chunks.iter().for_each(|chunk| joined.extend_from_slice(chunk));
        Ok(joined.freeze())
    }

    async fn read_chunks(&self, offset: u64, len: u32) -> SmbResult<Vec<Bytes>> {
        Ok(self.read_data(offset, len).await?.chunks)
    }

    async fn write(&self, offset: u64, data: &[u8]) -> SmbResult<u32> {
        self.write_bytes(offset, Bytes::copy_from_slice(data)).await
    }

    async fn write_bytes(&self, offset: u64, data: Bytes) -> SmbResult<u32> {
        let _op = self.core.stats.begin(Op::Write);
        let len = data.len() as u32;
        self.core.files.write(&self.who, self.ino, offset, vec![data], Stability::Unstable).await.or_status()?;
        self.core.stats.written(len);
        Ok(len)
    }

    fn identity(&self) -> Option<(u128, u64)> {
        Some((self.core.files.id().as_u128(), self.ino.0))
    }

    async fn share_from(&self, (store, source): (u128, u64), from: u64, to: u64, len: u64) -> SmbResult<bool> {
        if store != self.core.files.id().as_u128() {
            return Ok(false);
        }
        let _op = self.core.stats.begin(Op::Write);
        match self.core.files.clone_range(&self.who, (Ino(source), from), (self.ino, to), len).await {
            Ok(_) => Ok(true),
            Err(FsError::NotSupported | FsError::FileTooLarge | FsError::Busy(_)) => Ok(false),
            Err(error) => Err(error).or_status(),
        }
    }

    async fn copy_from(&self, (store, source): (u128, u64), from: u64, to: u64, len: u64) -> SmbResult<u64> {
        if store != self.core.files.id().as_u128() {
            return Ok(0);
        }
        let _op = self.core.stats.begin(Op::Write);
        self.core.files.copy_range(&self.who, (Ino(source), from), (self.ino, to), len).await.or_status()
    }

    async fn flush(&self) -> SmbResult<()> {
        let _op = self.core.stats.begin(Op::Sync);
        self.core.files.commit(self.ino).await.or_status()?;
        Ok(())
    }

    async fn stat(&self) -> SmbResult<FileInfo> {
        let _op = self.core.stats.begin(Op::GetAttributes);
        let mut info = info(self.name.clone(), &self.attr().await?);
        if self.base.is_some() {
            let data = self.core.files.getattr(self.ino).await.or_status()?;
            info.is_directory = false;
            info.end_of_file = data.size;
            info.allocation_size = data.allocated.next_multiple_of(ALLOCATION_BYTES);
            info.stream_index = self.ino.0;
        }
        Ok(info)
    }

    async fn set_times(&self, times: FileTimes) -> SmbResult<()> {
        let to = |time: Option<u64>| time.map(times::timestamp);
        let set = SetAttr {
            atime: to(times.last_access_time).map(SetTime::To),
            mtime: to(times.last_write_time).map(SetTime::To),
            btime: to(times.creation_time),
            ..SetAttr::default()
        };
        if set == SetAttr::default() {
            return Ok(());
        }
        self.set(set).await
    }

    async fn set_attributes(&self, attributes: u32) -> SmbResult<()> {
        let kept = self.attr().await?.dos & rights::DOS_SPARSE;
        self.set(SetAttr { dos: Some(attributes & rights::DOS_SETTABLE | kept), ..SetAttr::default() }).await
    }

    async fn security(&self) -> SmbResult<SecurityDescriptor> {
        let _op = self.core.stats.begin(Op::GetAttributes);
        let (attr, acl) = self.core.files.acl(self.owner()).await.or_status()?;
        Ok(security::descriptor(&attr, acl.as_deref()))
    }

    /// The open was granted the right to change what is changed.
    async fn set_security(&self, descriptor: SecurityDescriptor) -> SmbResult<()> {
        let _op = self.core.stats.begin(Op::SetAttributes);
        security::set(&self.core.files, &self.who, self.owner(), &descriptor).await
    }

    async fn set_sparse(&self, sparse: bool) -> SmbResult<()> {
        let dos = self.attr().await?.dos;
        let to = if sparse { dos | rights::DOS_SPARSE } else { dos & !rights::DOS_SPARSE };
        if to == dos {
            return Ok(());
        }
        self.set(SetAttr { dos: Some(to), ..SetAttr::default() }).await
    }

    async fn zero_range(&self, range: Range<u64>) -> SmbResult<()> {
        let end = range.end.min(self.core.files.getattr(self.ino).await.or_status()?.size);
        if range.start >= end {
            return Ok(());
        }
        let len = end - range.start;
        self.core.files.allocate(&self.who, self.ino, range.start, len, AllocateMode::PunchHole).await.or_status()?;
        Ok(())
    }

    async fn allocated_ranges(&self, range: Range<u64>, max: usize) -> SmbResult<Vec<Range<u64>>> {
        let mut ranges = Vec::new();
        let mut at = range.start;
        while at < range.end && ranges.len() < max {
            let Some(start) = self.seek(at, SeekTo::Data).await?.filter(|&start| start < range.end) else { break };
            let end = self.seek(start, SeekTo::Hole).await?.unwrap_or(range.end).min(range.end);
            if end <= start {
                // The file shrank or was punched between the two.
                break;
            }
            ranges.push(start..end);
            at = end;
        }
        Ok(ranges)
    }

    async fn truncate(&self, len: u64) -> SmbResult<()> {
        let _op = self.core.stats.begin(Op::SetAttributes);
        let set = SetAttr { size: Some(len), ..SetAttr::default() };
        self.core.files.setattr(&self.who, self.ino, set).await.or_status()?;
        Ok(())
    }

    async fn extended_attributes(&self) -> SmbResult<Vec<ExtendedAttribute>> {
        let files = &self.core.files;
        let (mut found, mut bytes) = (Vec::new(), 0);
        for name in files.listxattr(&self.who, self.owner()).await.or_status()? {
            // `handle.attributes_bounded`
            if bytes >= ATTRIBUTES_BYTES_MAX {
                break;
            }
            let Some(shown) = name.strip_prefix(USER_SPACE) else { continue };
            match files.getxattr(&self.who, self.owner(), &name).await {
                Ok(value) => {
                    bytes += shown.len() + value.len();
                    found.push(ExtendedAttribute { name: shown.to_vec(), value: value.to_vec() });
                }
                Err(FsError::NoAttribute) => {}
                Err(error) => return Err(super::status::status(error)),
            }
        }
        Ok(found)
    }

    async fn set_extended_attribute(&self, attribute: ExtendedAttribute) -> SmbResult<()> {
        let _op = self.core.stats.begin(Op::SetAttributes);
        let (files, owner) = (&self.core.files, self.owner());
        let name = self.stored_attribute(&attribute.name).await?;
        if !attribute.value.is_empty() {
            return files.setxattr(&self.who, owner, &name, &attribute.value, XattrMode::Set).await.or_status();
        }
        match files.removexattr(&self.who, owner, &name).await {
            Err(FsError::NoAttribute) => Ok(()),
            done => done.or_status(),
        }
    }

    async fn streams(&self) -> SmbResult<Vec<StreamInfo>> {
        let _op = self.core.stats.begin(Op::List);
        self.list_streams().await
    }

    /// Whole listings are for patterns without wildcards, which name at most one entry, and for callers
    /// that cannot do with pages.
    async fn list_dir(&self, pattern: Option<&str>) -> SmbResult<Vec<DirEntry>> {
        if let Some(name) = pattern.filter(|p| !p.contains(['*', '?', '<', '>', '"'])) {
            return self.list_one(name).await;
        }
        let matcher = pattern.map(|p| Pattern::new(p, true));
        let mut entries = Vec::new();
        let mut after = 0;
        loop {
            let page = self.page(after, PAGE_ENTRIES).await?;
            entries
                .extend(page.entries.into_iter().filter(|e| matcher.as_ref().is_none_or(|m| m.matches(&e.info.name))));
            if page.end {
                return Ok(entries);
            }
            after = page.next;
        }
    }

    async fn list_dir_page(&self, after: u64, max: usize) -> SmbResult<Option<DirPage>> {
        self.page(after, max).await.map(Some)
    }

    async fn close(self: Box<Self>) -> SmbResult<()> {
        Ok(())
    }

    fn maximal_access(&self) -> u32 {
        self.rights
    }

    /// Windows counts names; a directory has one, whatever POSIX counts.
    async fn link_count(&self) -> SmbResult<u32> {
        let attr = self.attr().await?;
        Ok(if attr.kind == FileKind::Directory { attr.nlink.min(1) } else { attr.nlink })
    }

    async fn dir_is_empty(&self) -> SmbResult<bool> {
        let listing = self.core.files.readdir(&Cred::root(), self.ino, 0, 1, false).await.or_status()?;
        Ok(listing.entries.is_empty())
    }

    async fn watch(&self) -> Watching {
        self.core.door.notices.watch(self.ino).await
    }
}

impl FileHandle {
    async fn read_data(&self, offset: u64, len: u32) -> SmbResult<ReadData> {
        let _op = self.core.stats.begin(Op::Read);
        let data = self.core.files.read(self.ino, offset, (len as usize).min(IO_BYTES_MAX)).await.or_status()?;
        self.core.stats.read(data.len());
        Ok(data)
    }

    /// The file itself, or the file that a stream belongs to (`streams.attributes_of_the_file`).
    pub(super) fn owner(&self) -> Ino {
        self.base.as_ref().map_or(self.ino, |(base, _)| *base)
    }

    /// The name that an extended attribute has or gets, as Samba has it: `user.` and what the client calls it, in any case.
    async fn stored_attribute(&self, name: &[u8]) -> SmbResult<Vec<u8>> {
        let wanted = [USER_SPACE, name].concat();
        let names = self.core.files.listxattr(&self.who, self.owner()).await.or_status()?;
        let stored = names.into_iter().find(|stored| stored.eq_ignore_ascii_case(&wanted));
        Ok(stored.map_or(wanted, |stored| stored.to_vec()))
    }

    /// Of the owner.
    async fn attr(&self) -> SmbResult<Attr> {
        self.core.files.getattr(self.owner()).await.or_status()
    }

    /// `None` past the last data, or the end of the file.
    async fn seek(&self, offset: u64, to: SeekTo) -> SmbResult<Option<u64>> {
        match self.core.files.seek(self.ino, offset, to).await {
            Ok(at) => Ok(Some(at)),
            Err(FsError::NotFound) => Ok(None),
            Err(e) => Err(super::status::status(e)),
        }
    }

    async fn set(&self, set: SetAttr) -> SmbResult<()> {
        let _op = self.core.stats.begin(Op::SetAttributes);
        self.core.files.setattr(&self.who, self.owner(), set).await.or_status()?;
        Ok(())
    }

    async fn list_one(&self, name: &str) -> SmbResult<Vec<DirEntry>> {
        // The library lists these two itself.
        if matches!(name, "." | "..") {
            return Ok(Vec::new());
        }
        let _op = self.core.stats.begin(Op::List);
        let (attr, stored) = match self.core.find_stored(&self.who, self.ino, name).await {
            Ok(found) => found,
            Err(FsError::NotFound | FsError::NameTooLong) => return Ok(Vec::new()),
            Err(e) => return Err(super::status::status(e)),
        };
        Ok(self.entry(&stored, attr, 0).await.into_iter().collect())
    }

    async fn page(&self, after: u64, max: usize) -> SmbResult<DirPage> {
        let _op = self.core.stats.begin(Op::List);
        let end = if after == 0 { u64::MAX } else { self.list_end.load(Ordering::Relaxed) };
        let listing = self.core.files.readdir_before(&self.who, self.ino, after, end, max, true).await;
        let listing = listing.or_status()?;
        if after == 0 {
            self.list_end.store(listing.end, Ordering::Relaxed);
        }
        let next = listing.entries.last().map_or(after, |last| last.cookie);
        let mut entries = Vec::with_capacity(listing.entries.len());
        for entry in listing.entries {
            // Gone meanwhile, or not this user's to look up (`files.attributes_by_search`).
            if let Some(attr) = entry.attr {
                entries.extend(self.entry(&entry.name, attr, entry.cookie).await);
            }
        }
        if next == after && !listing.eof {
            // A page that does not move on would be asked for again for ever.
            return Err(SmbError::Io(std::io::Error::other("a listing stands still")));
        }
        Ok(DirPage { entries, next, end: listing.eof })
    }

    /// A symbolic link is shown as what it leads to; one that leads nowhere is not shown.
    async fn entry(&self, name: &[u8], attr: Attr, position: u64) -> Option<DirEntry> {
        let attr = match attr.kind {
            FileKind::Symlink => self.core.follow(&self.who, self.ino, attr).await.ok()?,
            _ => attr,
        };
        Some(DirEntry { info: info(names::shown(name), &attr), position })
    }
}

pub fn info(name: String, attr: &Attr) -> FileInfo {
    let mut info = FileInfo::new(name);
    info.is_directory = attr.kind == FileKind::Directory;
    if !info.is_directory {
        info.end_of_file = if attr.kind == FileKind::File { attr.size } else { 0 };
        info.allocation_size = attr.allocated.next_multiple_of(ALLOCATION_BYTES);
    }
    info.creation_time = times::filetime(attr.btime);
    info.last_access_time = times::filetime(attr.atime);
    info.last_write_time = times::filetime(attr.mtime);
    // As Samba has it: a client that sets all four times reads all four back, and ctime cannot be set.
    info.change_time = info.last_write_time;
    // A removal is carried out when the file is closed, where no answer can refuse it: what is read-only is refused before.
    info.read_only = attr.dos & rights::DOS_READONLY != 0 || attr.id.ino.is_past();
    info.stored_attributes = attr.dos;
    info.file_index = attr.id.ino.0;
    info
}

/// How SMB looks names up.
pub const MATCH: NameMatch = NameMatch::Folded;
