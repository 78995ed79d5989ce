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

use bytes::Bytes;
use larder_base::boxed;
use larder_files::{Open, OpenInode};
use larder_fs::{
    AllocateMode, Attr, Cred, FileKind, FsError, IO_BYTES_MAX, Ino, NameMatch, SeekTo, SetAttr, SetTime, Stability,
    XattrMode,
};
use larder_opens::Entry;

use crate::error::{SmbError, SmbResult};
use crate::files::Watching;
#[cfg(test)]
use crate::tests::seam::Step;
use crate::words::{DirPage, ExtendedAttribute, FileTimes};
use larder_smb_wire::file_info::{DirEntry, FileInfo, StreamInfo};
use larder_smb_wire::security::SecurityDescriptor;

use super::open_name::EntryName;
use super::stats::Op;
use super::status::OrStatus;
use super::view::Core;
use super::{names, rights, security, times};

const ATTRIBUTES_BYTES_MAX: usize = 64 << 10;
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
    /// The open in the table of all doors, until its CREATE is judged ([`FileHandle::take_entry`]).
    pub entry: Option<Entry>,
    pub _inode: OpenInode,
    pub entry_name: Arc<EntryName>,
    #[cfg(test)]
    pub _counted: Arc<()>,
}

impl FileHandle {
    /// Whether the file is one of the past, which nobody writes.
    pub fn is_past(&self) -> bool {
        self.ino.is_past()
    }

    /// The open's client asks for the file's removal, which happens by [`EntryName::remove`] later.
    /// `false`: it may not.
    pub fn asks_for_removal(&self) -> bool {
        self.core.files.check_unblocked(&self.who).is_ok()
    }

    /// The open in the table of all doors, for the one that judges it (`files/file_ref.rs`).
    pub fn take_entry(&mut self) -> Option<Entry> {
        self.entry.take()
    }

    /// The name that the open was made by.
    pub fn name(&self) -> Arc<EntryName> {
        Arc::clone(&self.entry_name)
    }

    /// Up to `len` bytes at `offset`, in the pieces that the store has (`handle.moves_bytes`).
    pub async fn read_chunks(&self, offset: u64, len: u32) -> SmbResult<Vec<Bytes>> {
        let _op = self.core.stats.begin(Op::Read);
        let data = self.core.files.read(self.ino, offset, (len as usize).min(IO_BYTES_MAX)).await.or_status()?;
        self.core.stats.read(data.len());
        Ok(data.chunks)
    }

    /// Writes `data`, part of the frame that carried it, at `offset`. Returns the bytes written.
    pub async fn write_bytes(&self, offset: u64, data: Bytes) -> SmbResult<u32> {
        let _op = self.core.stats.begin(Op::Write);
        let len = data.len() as u32;
        self.core.files.write(&self.who, self.ino, offset, vec![data], Stability::Unstable).await.or_status()?;
        self.core.stats.written(len);
        Ok(len)
    }

    /// Whether both are opens of one store.
    fn is_beside(&self, source: &FileHandle) -> bool {
        self.core.files.id() == source.core.files.id()
    }

    /// Whether both are opens of one file.
    pub fn is_same_file(&self, other: &FileHandle) -> bool {
        self.is_beside(other) && self.ino == other.ino
    }

    /// Lets `len` bytes from `to` on be those that `source` has from `from` on, all or nothing,
    /// without copying them. `false`: this cannot be done, the bytes have to be copied.
    #[boxed]
    pub async fn share_from(&self, source: &FileHandle, from: u64, to: u64, len: u64) -> SmbResult<bool> {
        if !self.is_beside(source) {
            return Ok(false);
        }
        let _op = self.core.stats.begin(Op::Write);
        match self.core.files.clone_range(&self.who, (source.ino, from), (self.ino, to), len).await {
            Ok(_) => Ok(true),
            Err(FsError::NotSupported | FsError::FileTooLarge | FsError::Busy(_)) => Ok(false),
            Err(error) => Err(error).or_status(),
        }
    }

    /// As [`FileHandle::share_from`], of as much from the front as can be done at once, and in
    /// whatever way is best: the number of bytes.
    #[boxed]
    pub async fn copy_from(&self, source: &FileHandle, from: u64, to: u64, len: u64) -> SmbResult<u64> {
        if !self.is_beside(source) {
            return Ok(0);
        }
        let _op = self.core.stats.begin(Op::Write);
        self.core.files.copy_range(&self.who, (source.ino, from), (self.ino, to), len).await.or_status()
    }

    /// Makes what was written durable.
    #[boxed]
    pub async fn flush(&self) -> SmbResult<()> {
        let _op = self.core.stats.begin(Op::Sync);
        self.core.files.commit(self.ino).await.or_status()?;
        Ok(())
    }

    /// What the open is of, now.
    #[boxed]
    pub async fn stat(&self) -> SmbResult<FileInfo> {
        let _op = self.core.stats.begin(Op::GetAttributes);
        #[cfg(test)]
        self.core.seam.pass(Step::Stat(&self.name)).await?;
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

    /// Sets times; `None` leaves one alone. The time of the last change cannot be set.
    #[boxed]
    pub async fn set_times(&self, times: FileTimes) -> SmbResult<()> {
        #[cfg(test)]
        let times = self.core.seam.kept(times);
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

    /// Sets the attributes (MS-FSCC 2.6) that a client may set; those left out are cleared.
    #[boxed]
    pub async fn set_attributes(&self, attributes: u32) -> SmbResult<()> {
        let kept = self.attr().await?.dos & rights::DOS_SPARSE;
        self.set(SetAttr { dos: Some(attributes & rights::DOS_SETTABLE | kept), ..SetAttr::default() }).await
    }

    /// The file's owner, group and DACL.
    #[boxed]
    pub async fn security(&self) -> SmbResult<SecurityDescriptor> {
        let _op = self.core.stats.begin(Op::GetAttributes);
        let (attr, acl) = self.core.files.acl(self.owner()).await.or_status()?;
        Ok(security::descriptor(&attr, acl.as_deref()))
    }

    /// Changes the parts that `descriptor` has. The open was granted the right to.
    #[boxed]
    pub async fn set_security(&self, descriptor: SecurityDescriptor) -> SmbResult<()> {
        let _op = self.core.stats.begin(Op::SetAttributes);
        security::set(&self.core.files, &self.who, self.owner(), &descriptor).await
    }

    /// Marks a file as sparse, or not. [`FileHandle::set_attributes`] leaves the mark alone.
    #[boxed]
    pub async fn set_sparse(&self, sparse: bool) -> SmbResult<()> {
        let dos = self.attr().await?.dos;
        let to = if sparse { dos | rights::DOS_SPARSE } else { dos & !rights::DOS_SPARSE };
        if to == dos {
            return Ok(());
        }
        self.set(SetAttr { dos: Some(to), ..SetAttr::default() }).await
    }

    /// Makes `range` read as zeros, giving up its storage. The file's size stays.
    #[boxed]
    pub async fn zero_range(&self, range: Range<u64>) -> SmbResult<()> {
        let end = range.end.min(self.core.files.getattr(self.ino).await.or_status()?.size);
        if range.start >= end {
            return Ok(());
        }
        let len = end - range.start;
        self.core.files.allocate(&self.who, self.ino, range.start, len, AllocateMode::PunchHole).await.or_status()?;
        Ok(())
    }

    /// The parts of `range` that have storage, in order, up to `max` of them.
    #[boxed]
    pub async fn allocated_ranges(&self, range: Range<u64>, max: usize) -> SmbResult<Vec<Range<u64>>> {
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

    /// Cuts the file to `len` bytes, or extends it.
    #[boxed]
    pub async fn truncate(&self, len: u64) -> SmbResult<()> {
        let _op = self.core.stats.begin(Op::SetAttributes);
        let set = SetAttr { size: Some(len), ..SetAttr::default() };
        self.core.files.setattr(&self.who, self.ino, set).await.or_status()?;
        Ok(())
    }

    /// The extended attributes of users.
    #[boxed]
    pub async fn extended_attributes(&self) -> SmbResult<Vec<ExtendedAttribute>> {
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

    /// Sets one, or removes it if its value is empty.
    #[boxed]
    pub async fn set_extended_attribute(&self, attribute: ExtendedAttribute) -> SmbResult<()> {
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

    /// The streams of the file or directory (of a stream: of what it belongs to), the data of a
    /// file itself first.
    #[boxed]
    pub async fn streams(&self) -> SmbResult<Vec<StreamInfo>> {
        let _op = self.core.stats.begin(Op::List);
        self.list_streams().await
    }

    /// The rights that permissions of the file allow this open's user.
    pub fn maximal_access(&self) -> u32 {
        self.rights
    }

    /// Windows counts names; a directory has one, whatever POSIX counts. 0: it was removed.
    #[boxed]
    pub async fn link_count(&self) -> SmbResult<u32> {
        let attr = self.attr().await?;
        Ok(if attr.kind == FileKind::Directory { attr.nlink.min(1) } else { attr.nlink })
    }

    /// Whether a directory has no entries, shown or not.
    #[boxed]
    pub async fn dir_is_empty(&self) -> SmbResult<bool> {
        let listing = self.core.files.readdir(&Cred::root(), self.ino, 0, 1, false).await.or_status()?;
        Ok(listing.entries.is_empty())
    }

    /// Before a first CHANGE_NOTIFY on this directory: those who watch are told of changes of its
    /// entries, and of all below it, as long as the result is kept ([`super::notices`]).
    pub async fn watch(&self) -> Watching {
        self.core.notices.watch(self.ino).await
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

    /// The entry that a client calls `name`, for a pattern without wildcards.
    #[boxed]
    pub async fn list_one(&self, name: &str) -> SmbResult<Option<DirEntry>> {
        // QUERY_DIRECTORY lists these two itself.
        if matches!(name, "." | "..") {
            return Ok(None);
        }
        let _op = self.core.stats.begin(Op::List);
        let (attr, stored) = match self.core.find_stored(&self.who, self.ino, name).await {
            Ok(found) => found,
            Err(FsError::NotFound | FsError::NameTooLong) => return Ok(None),
            Err(e) => return Err(super::status::status(e)),
        };
        Ok(self.entry(&stored, attr, 0).await)
    }

    /// The entries after position `after` (0 from the start), at most `max` of them. Positions stay
    /// good while entries come and go.
    #[boxed]
    pub async fn list_page(&self, after: u64, max: usize) -> SmbResult<DirPage> {
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
