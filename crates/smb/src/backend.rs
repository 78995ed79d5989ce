//! `ShareBackend` and `Handle` traits: the storage abstraction.
//!
//! Implementors of these traits plug into `Share::new(name, backend)`. The
//! protocol layer never exposes raw FS types to backends; everything goes
//! through validated `SmbPath`s and the small structs below.

use async_trait::async_trait;
use std::time::SystemTime;

use crate::error::{SmbError, SmbResult};
use crate::files::Watches;
use crate::moment::Moment;
use crate::path::SmbPath;
use crate::security::SecurityDescriptor;

// ---------------------------------------------------------------------------
// OpenOptions
// ---------------------------------------------------------------------------

/// SMB CREATE disposition as seen by a backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenIntent {
    /// `FILE_OPEN`: open existing only; fail if missing.
    Open,
    /// `FILE_CREATE`: create new only; fail if exists.
    Create,
    /// `FILE_OPEN_IF`: open existing or create new.
    OpenOrCreate,
    /// `FILE_OVERWRITE_IF`: open existing (truncating) or create new.
    OverwriteOrCreate,
    /// `FILE_OVERWRITE`: open existing and truncate; fail if missing.
    Truncate,
}

/// Options passed to `ShareBackend::open`.
#[derive(Debug, Clone)]
pub struct OpenOptions {
    /// The open was granted `FILE_READ_DATA`, or has no data write access.
    /// At least one of `read` and `write` is set.
    pub read: bool,
    /// The open was granted `FILE_WRITE_DATA` or `FILE_APPEND_DATA`.
    pub write: bool,
    /// The open was granted `FILE_WRITE_ATTRIBUTES`: the handle must be able
    /// to change times and attributes, including on a read-only file.
    pub write_attributes: bool,
    /// The file rights the client asked for (MS-SMB2 2.2.13.1.1), generic
    /// rights mapped; without those MAXIMUM_ALLOWED added.
    pub access: u32,
    /// CREATE disposition.
    pub intent: OpenIntent,
    /// `FILE_DIRECTORY_FILE` was set on CREATE: open or create a directory.
    pub directory: bool,
    /// `FILE_NON_DIRECTORY_FILE` was set on CREATE: fail if the target is a directory.
    pub non_directory: bool,
    /// `FILE_DELETE_ON_CLOSE` was set on CREATE.
    pub delete_on_close: bool,
    /// The file attributes that a created or overwritten file is to have. A
    /// file that is HIDDEN (0x2) or SYSTEM (0x4) is not overwritten by a client
    /// that does not ask for the same (MS-FSA 2.1.5.1.2.1).
    pub attributes: u32,
    /// What a file that is made is to be given instead of what it inherits.
    pub security: Option<SecurityDescriptor>,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self {
            read: true,
            write: false,
            write_attributes: false,
            access: 0,
            intent: OpenIntent::Open,
            directory: false,
            non_directory: false,
            delete_on_close: false,
            attributes: 0,
            security: None,
        }
    }
}

/// What `ShareBackend::open` did to the file (MS-SMB2 2.2.14 CreateAction).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenAction {
    /// An existing file or directory was opened.
    Opened,
    /// A new file or directory was created.
    Created,
    /// An existing file was truncated to zero length, as
    /// [`OpenIntent::Truncate`] and [`OpenIntent::OverwriteOrCreate`] do.
    Overwritten,
}

// ---------------------------------------------------------------------------
// FileInfo / DirEntry / FileTimes
// ---------------------------------------------------------------------------

/// Filesystem-style metadata for a single file or directory. Built with
/// [`FileInfo::new`]; every field is public.
#[derive(Debug, Clone)]
pub struct FileInfo {
    /// Display name (last component). For QUERY_INFO at the share root this
    /// is the share name.
    pub name: String,
    /// File size in bytes.
    pub end_of_file: u64,
    /// Allocation size, usually `end_of_file` rounded up to a cluster.
    /// Backends may return `end_of_file`.
    pub allocation_size: u64,
    /// FILETIME (100ns ticks since 1601).
    pub creation_time: u64,
    pub last_access_time: u64,
    pub last_write_time: u64,
    pub change_time: u64,
    /// True if this is a directory.
    pub is_directory: bool,
    /// The file has `FILE_ATTRIBUTE_READONLY`.
    pub read_only: bool,
    /// Further file attributes (MS-FSCC 2.6) to report: HIDDEN, SYSTEM,
    /// ARCHIVE, TEMPORARY, OFFLINE and NOT_CONTENT_INDEXED. Other bits are
    /// ignored.
    pub stored_attributes: u32,
    /// Stable id of the file, unique within the share including any mounts
    /// below the share root, reported as the file id by QUERY_INFO and
    /// QUERY_DIRECTORY. Backends return the same value from `Handle::stat`
    /// and `Handle::list_dir` for the same file, across opens and renames.
    /// Never `0`. The server tells files apart by it, whatever their names.
    pub file_index: u64,
    /// Of a named stream: an id of its own, which no file has. `file_index`
    /// is that of the file or directory it belongs to. `0` otherwise.
    pub stream_index: u64,
}

// File attributes (MS-FSCC 2.6).
pub(crate) const FILE_ATTRIBUTE_READONLY: u32 = 0x0000_0001;
pub(crate) const FILE_ATTRIBUTE_HIDDEN: u32 = 0x0000_0002;
pub(crate) const FILE_ATTRIBUTE_SYSTEM: u32 = 0x0000_0004;
pub(crate) const FILE_ATTRIBUTE_DIRECTORY: u32 = 0x0000_0010;
pub(crate) const FILE_ATTRIBUTE_ARCHIVE: u32 = 0x0000_0020;
pub(crate) const FILE_ATTRIBUTE_NORMAL: u32 = 0x0000_0080;
pub(crate) const FILE_ATTRIBUTE_TEMPORARY: u32 = 0x0000_0100;
pub(crate) const FILE_ATTRIBUTE_SPARSE_FILE: u32 = 0x0000_0200;
pub(crate) const FILE_ATTRIBUTE_OFFLINE: u32 = 0x0000_1000;
pub(crate) const FILE_ATTRIBUTE_NOT_CONTENT_INDEXED: u32 = 0x0000_2000;

/// Attributes FileBasicInformation can set (MS-FSA 2.1.5.15.2).
pub(crate) const VALID_SET_ATTRIBUTES: u32 = FILE_ATTRIBUTE_READONLY
    | FILE_ATTRIBUTE_HIDDEN
    | FILE_ATTRIBUTE_SYSTEM
    | FILE_ATTRIBUTE_ARCHIVE
    | FILE_ATTRIBUTE_TEMPORARY
    | FILE_ATTRIBUTE_OFFLINE
    | FILE_ATTRIBUTE_NOT_CONTENT_INDEXED;

impl FileInfo {
    /// A zero-length, writable file named `name` with no times and no file
    /// id. Set the fields the backend knows.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            end_of_file: 0,
            allocation_size: 0,
            creation_time: 0,
            last_access_time: 0,
            last_write_time: 0,
            change_time: 0,
            is_directory: false,
            read_only: false,
            stored_attributes: 0,
            file_index: 0,
            stream_index: 0,
        }
    }

    /// SMB2 file attributes (MS-FSCC 2.6) for this file:
    /// `FILE_ATTRIBUTE_DIRECTORY` for directories,
    /// `FILE_ATTRIBUTE_READONLY` for read-only files, and the stored ones.
    /// `FILE_ATTRIBUTE_NORMAL` stands alone when none applies.
    pub fn attributes(&self) -> u32 {
        let mut attributes = self.stored_attributes & VALID_SET_ATTRIBUTES & !FILE_ATTRIBUTE_READONLY;
        if self.is_directory {
            attributes |= FILE_ATTRIBUTE_DIRECTORY;
        } else {
            attributes |= self.stored_attributes & FILE_ATTRIBUTE_SPARSE_FILE;
        }
        if self.read_only {
            attributes |= FILE_ATTRIBUTE_READONLY;
        }
        if attributes == 0 { FILE_ATTRIBUTE_NORMAL } else { attributes }
    }
}

/// One entry of a directory listing.
#[derive(Debug, Clone)]
pub struct DirEntry {
    pub info: FileInfo,
    /// Position after the entry, for [`Handle::list_dir_page`]; 0 in a listing without pages.
    pub position: u64,
}

/// A stream of a file or directory; the data of a file itself has no name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamInfo {
    pub name: String,
    pub size: u64,
    pub allocation_size: u64,
}

/// A small value that a file carries beside its data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExtendedAttribute {
    pub name: Vec<u8>,
    pub value: Vec<u8>,
}

/// Part of a directory listing; see [`Handle::list_dir_page`].
#[derive(Debug, Clone)]
pub struct DirPage {
    pub entries: Vec<DirEntry>,
    /// Position after the last entry that was looked at, to ask for the next page with. Entries that
    /// are not shown lie between the last one's position and this one.
    pub next: u64,
    /// No entry follows.
    pub end: bool,
}

/// Optional FILETIME values for `set_times`. `None` means "leave unchanged".
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FileTimes {
    pub creation_time: Option<u64>,
    pub last_access_time: Option<u64>,
    pub last_write_time: Option<u64>,
    pub change_time: Option<u64>,
}

impl FileTimes {
    /// `FileTimes` with all four fields set to `t`.
    pub fn all(t: SystemTime) -> Self {
        let ft = crate::utils::system_time_to_filetime(t);
        Self { creation_time: Some(ft), last_access_time: Some(ft), last_write_time: Some(ft), change_time: Some(ft) }
    }
}

// ---------------------------------------------------------------------------
// BackendCapabilities
// ---------------------------------------------------------------------------

/// Static, advertised capabilities of a backend. Built from
/// [`BackendCapabilities::default`]; every field is public.
#[derive(Debug, Clone, Copy, Default)]
pub struct BackendCapabilities {
    /// True iff the backend treats names case-sensitively.
    pub case_sensitive: bool,
    /// True iff files can be sparse: [`Handle::set_sparse`],
    /// [`Handle::zero_range`] and [`Handle::allocated_ranges`] work.
    pub sparse_files: bool,
    /// Files can share extents ([`Handle::share_from`]).
    pub shared_extents: bool,
    /// True iff files and directories can have named streams: paths with
    /// [`SmbPath::stream`] open them, and [`Handle::streams`] lists them.
    pub named_streams: bool,
}

// ---------------------------------------------------------------------------
// Traits
// ---------------------------------------------------------------------------

/// Pluggable storage backend mounted as a share.
///
/// Implementors must be `Send + Sync + 'static` so the server can spawn
/// per-request handlers freely.
#[async_trait]
pub trait ShareBackend: Send + Sync + 'static {
    /// Open or create a file or directory. Returns a fresh handle and what
    /// the open did to the file.
    ///
    /// Fail with [`SmbError::PathNotFound`] when a directory on the way to
    /// `path` is missing and [`SmbError::NotFound`] when only the last
    /// component is.
    async fn open(&self, path: &SmbPath, opts: OpenOptions) -> SmbResult<(Box<dyn Handle>, OpenAction)>;

    /// What `path` leads to now.
    ///
    /// Fails with [`SmbError::PathNotFound`] when a directory on the way is missing.
    async fn locate(&self, path: &SmbPath) -> SmbResult<Located>;

    /// Whether the directory with the id `dir` is the one with the id `top` or lies below it.
    async fn is_within(&self, dir: u64, top: u64) -> bool;

    /// The moments that the share can be seen at, newest first and each once: paths with a [`SmbPath::moment`] lead through the
    /// share as it was then. Must not wait. The default has none.
    fn moments(&self) -> Vec<Moment> {
        Vec::new()
    }

    /// The watched directories of the store behind the share. The backend tells them of each change of names, whoever makes it,
    /// while a [`Handle::watch`] is kept. The default tells of nothing.
    fn watches(&self) -> Watches {
        Watches::default()
    }

    /// The entry at `path` has new contents or attributes: the FILE_NOTIFY_CHANGE_* bits `what`. The backend tells
    /// [`watches`](Self::watches) of it among the changes of names, in order. Called only while somebody watches.
    async fn modified(&self, _path: &SmbPath, _what: u32) {}

    /// Returns once [`watches`](Self::watches) have been told of every change that was answered before.
    async fn settle_notices(&self) {}

    /// Static capabilities.
    fn capabilities(&self) -> BackendCapabilities;

    /// Size, free space and identity of the volume behind the share, for the
    /// filesystem QUERY_INFO classes. The default returns
    /// [`VolumeInfo::default`].
    async fn volume_info(&self) -> SmbResult<VolumeInfo> {
        Ok(VolumeInfo::default())
    }
}

/// What a path leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Located {
    /// The id of the directory that holds the name; `0` for the root of the share.
    pub dir: u64,
    /// The id of the file, directory or stream; `None` where the name is free.
    pub file: Option<u64>,
}

/// The name of an open as the store has it now: whoever renames it or a directory above it, it stays the name of what was
/// opened. It outlives the handle. Operations on a name that is gone, or that leads to something else by now, fail with
/// [`SmbError::NotFound`].
#[async_trait]
pub trait OpenName: Send + Sync {
    /// The path of the CREATE.
    fn opened_as(&self) -> &SmbPath;

    /// The id of the directory that holds it now, of a stream that of its file. `None` when it is gone, and for the root.
    async fn dir(&self) -> Option<u64>;

    /// The path in the share now.
    async fn path(&self) -> SmbResult<SmbPath>;

    /// Gives what was opened the name `to` in place of this one, as the open's user; a stream the name of the stream of `to`.
    ///
    /// If `to` names an existing file, including another
    /// hard link to the same file, fail with [`SmbError::Exists`] unless
    /// `replace` is set, in which case the existing file is
    /// replaced. An existing directory at `to` is never
    /// replaced: fail with [`SmbError::AccessDenied`].
    async fn rename(&self, to: &SmbPath, replace: bool) -> SmbResult<()>;

    /// Makes `to` a further name of the file that was opened.
    ///
    /// If `to` names an existing entry, fail with [`SmbError::Exists`]
    /// unless `replace` is set; a directory is never replaced:
    /// fail with [`SmbError::AccessDenied`].
    async fn link(&self, to: &SmbPath, replace: bool) -> SmbResult<()>;

    /// Removes the name, of a directory an empty one. The open was granted DELETE.
    async fn remove(&self) -> SmbResult<()>;

    /// As [`ShareBackend::modified`] for this entry, of a stream for its file.
    async fn modified(&self, what: u32);
}

/// A live open file or directory handle.
///
/// One handle per `CREATE`. `close` runs when CLOSE arrives, and when the
/// tree, session or connection the open belongs to ends. A durable open's
/// handle stays open past the end of its session or connection, until its
/// client takes the open back, the open expires, or something else closes
/// it; see the crate docs.
#[async_trait]
pub trait Handle: Send + Sync {
    /// Whether the file is one of the past, which nobody writes.
    fn is_past(&self) -> bool {
        false
    }

    /// The name that the open was made by.
    fn name(&self) -> std::sync::Arc<dyn OpenName>;

    /// The open's client asks for the file's removal, which happens by [`OpenName::remove`] later. `false`: it may
    /// not. Must not wait.
    fn asks_for_removal(&self) -> bool {
        true
    }

    /// Read up to `len` bytes at `offset`. May return fewer.
    async fn read(&self, offset: u64, len: u32) -> SmbResult<bytes::Bytes>;

    /// Like [`read`](Self::read), for a backend that has the data in pieces:
    /// they go into the response as they are, in order. READ calls this.
    async fn read_chunks(&self, offset: u64, len: u32) -> SmbResult<Vec<bytes::Bytes>> {
        Ok(vec![self.read(offset, len).await?])
    }

    /// Write `data` at `offset`. Returns bytes written.
    async fn write(&self, offset: u64, data: &[u8]) -> SmbResult<u32>;

    /// Write owned `data` at `offset`. Backends that need ownership across a
    /// blocking boundary can override this to avoid an extra copy.
    async fn write_owned(&self, offset: u64, data: Vec<u8>) -> SmbResult<u32> {
        self.write(offset, &data).await
    }

    /// Write `data`, part of the frame that carried it, at `offset`. WRITE
    /// calls this; a backend that keeps `Bytes` overrides it and copies
    /// nothing.
    async fn write_bytes(&self, offset: u64, data: bytes::Bytes) -> SmbResult<u32> {
        self.write_owned(offset, data.into()).await
    }

    /// What the open is of, for another one of the same backend: the store and the number of the file in it. `None`: nothing
    /// is shared with it.
    fn identity(&self) -> Option<(u128, u64)> {
        None
    }

    /// Lets `len` bytes from `to` on be those that the file `source` has from `from` on, all or nothing, without copying them.
    /// `false`: this cannot be done, the bytes have to be copied.
    async fn share_from(&self, _source: (u128, u64), _from: u64, _to: u64, _len: u64) -> SmbResult<bool> {
        Ok(false)
    }

    /// As [`share_from`](Self::share_from), of as much from the front as can be done at once, and in whatever way is best: the
    /// number of bytes.
    async fn copy_from(&self, _source: (u128, u64), _from: u64, _to: u64, _len: u64) -> SmbResult<u64> {
        Ok(0)
    }

    /// Flush buffered writes. May be a no-op on backends that always flush.
    async fn flush(&self) -> SmbResult<()>;

    /// Stat: current file info.
    async fn stat(&self) -> SmbResult<FileInfo>;

    /// Set timestamps on a file or directory. `None` fields leave the
    /// corresponding time alone.
    ///
    /// Return [`SmbError::NotSupported`] for an access or write time the
    /// backend cannot store. A backend that cannot store a creation time
    /// ignores it and applies the other fields; a request with only a
    /// creation time then succeeds and changes nothing.
    /// `change_time` is the time of the last change: a backend whose
    /// storage moves it to the current time on every change, as POSIX ctime
    /// does, may keep doing so and not store the requested value.
    async fn set_times(&self, times: FileTimes) -> SmbResult<()>;

    /// Set the attributes (MS-FSCC 2.6) of a file or directory to
    /// `attributes`, a combination of `FILE_ATTRIBUTE_READONLY` (0x1),
    /// `HIDDEN` (0x2), `SYSTEM` (0x4), `ARCHIVE` (0x20), `TEMPORARY`
    /// (0x100), `OFFLINE` (0x1000) and `NOT_CONTENT_INDEXED` (0x2000).
    /// Flags left out are cleared. The protocol layer calls this only when
    /// the request differs from the attributes [`Handle::stat`] reports.
    ///
    /// Return [`SmbError::NotSupported`] if a flag cannot be stored.
    async fn set_attributes(&self, attributes: u32) -> SmbResult<()>;

    /// Truncate (or extend) to `len` bytes. For directories: the protocol
    /// layer rejects this before reaching the backend.
    async fn truncate(&self, len: u64) -> SmbResult<()>;

    /// The file's owner, group and DACL. The default returns
    /// [`SmbError::NotSupported`](crate::SmbError::NotSupported): the store
    /// keeps no security descriptors.
    async fn security(&self) -> SmbResult<SecurityDescriptor> {
        Err(SmbError::NotSupported)
    }

    /// Changes the parts that `descriptor` has. The open was granted
    /// WRITE_OWNER for an owner or a group and WRITE_DAC for a DACL.
    async fn set_security(&self, _descriptor: SecurityDescriptor) -> SmbResult<()> {
        Err(SmbError::NotSupported)
    }

    /// Marks a file as sparse (FILE_ATTRIBUTE_SPARSE_FILE, 0x200, in
    /// [`FileInfo::stored_attributes`]) or not. [`Handle::set_attributes`]
    /// leaves the mark alone. The default returns
    /// [`SmbError::NotSupported`](crate::SmbError::NotSupported).
    async fn set_sparse(&self, _sparse: bool) -> SmbResult<()> {
        Err(SmbError::NotSupported)
    }

    /// Makes `range` read as zeros, giving up its storage where that is
    /// possible. The file's size stays. The default returns
    /// [`SmbError::NotSupported`](crate::SmbError::NotSupported).
    async fn zero_range(&self, _range: std::ops::Range<u64>) -> SmbResult<()> {
        Err(SmbError::NotSupported)
    }

    /// The parts of `range`, which lies within the file, that have storage,
    /// in order, up to `max` of them. The default returns
    /// [`SmbError::NotSupported`](crate::SmbError::NotSupported).
    async fn allocated_ranges(
        &self,
        _range: std::ops::Range<u64>,
        _max: usize,
    ) -> SmbResult<Vec<std::ops::Range<u64>>> {
        Err(SmbError::NotSupported)
    }

    /// The streams of the file or directory (of a stream: of what it belongs
    /// to), the data of a file itself first. The default returns
    /// [`SmbError::NotSupported`](crate::SmbError::NotSupported).
    async fn streams(&self) -> SmbResult<Vec<StreamInfo>> {
        Err(SmbError::NotSupported)
    }

    /// The extended attributes of the file or directory. The default returns
    /// [`SmbError::NotSupported`](crate::SmbError::NotSupported).
    async fn extended_attributes(&self) -> SmbResult<Vec<ExtendedAttribute>> {
        Err(SmbError::NotSupported)
    }

    /// Sets one, or removes it if its value is empty. The open was granted
    /// FILE_WRITE_EA, or made the file.
    async fn set_extended_attribute(&self, _attribute: ExtendedAttribute) -> SmbResult<()> {
        Err(SmbError::NotSupported)
    }

    /// List directory entries matching the optional pattern. The pattern
    /// uses the wildcards of MS-FSA 2.1.4.4: `*` and `?`, and the DOS forms
    /// `<` (DOS_STAR), `>` (DOS_QM) and `"` (DOS_DOT).
    /// QUERY_DIRECTORY returns the result as is, so the backend applies the
    /// pattern. The `.` and `..` entries are left out; QUERY_DIRECTORY adds
    /// them.
    async fn list_dir(&self, pattern: Option<&str>) -> SmbResult<Vec<DirEntry>>;

    /// The entries after position `after` (0 from the start), at most `max`
    /// of them, for a backend whose directories may be too large to list as
    /// a whole. Positions stay good while entries come and go. QUERY_DIRECTORY
    /// then applies the pattern, keeps nothing but a position between two
    /// requests, and calls [`Handle::list_dir`] only for a pattern without
    /// wildcards. The default returns `Ok(None)`: listings are whole, and an
    /// open keeps the part of its own that is not sent yet.
    async fn list_dir_page(&self, _after: u64, _max: usize) -> SmbResult<Option<DirPage>> {
        Ok(None)
    }

    /// Close the handle. Boxed self lets implementors consume internal state.
    async fn close(self: Box<Self>) -> SmbResult<()>;

    /// The rights that permissions of the file allow this open's user. An
    /// open for MAXIMUM_ALLOWED is granted no more than these and what it
    /// asked for by name, and the MxAc create context reports them, both
    /// within what the share allows. The default allows everything.
    fn maximal_access(&self) -> u32 {
        u32::MAX
    }

    /// Number of hard links to the file, reported as NumberOfLinks by
    /// FileStandardInformation. `0` means the file has been deleted while
    /// open. The default reports `1`.
    async fn link_count(&self) -> SmbResult<u32> {
        Ok(1)
    }

    /// True if this directory has no entries other than `.` and `..`,
    /// including entries [`Handle::list_dir`] leaves out. The default checks
    /// `list_dir(None)`, so a backend whose listing hides entries overrides
    /// it.
    async fn dir_is_empty(&self) -> SmbResult<bool> {
        Ok(self.list_dir(None).await?.is_empty())
    }

    /// Before a first CHANGE_NOTIFY on this directory: the backend tells [`ShareBackend::watches`] of changes of its entries, and
    /// of all below it, whoever makes them, as long as the result is kept. It has told of those before, as in
    /// [`ShareBackend::settle_notices`]. The default tells of nothing.
    async fn watch(&self) -> Watching {
        Box::new(())
    }
}

/// Keeps a backend telling of changes, until it is dropped.
pub type Watching = Box<dyn Send + Sync>;

/// Backend for the synthetic IPC$ share, where nothing is opened.
pub(crate) struct NotSupportedBackend;

#[async_trait]
impl ShareBackend for NotSupportedBackend {
    async fn open(&self, _path: &SmbPath, _opts: OpenOptions) -> SmbResult<(Box<dyn Handle>, OpenAction)> {
        Err(SmbError::NotSupported)
    }
    async fn locate(&self, _path: &SmbPath) -> SmbResult<Located> {
        Err(SmbError::NotSupported)
    }
    async fn is_within(&self, _dir: u64, _top: u64) -> bool {
        false
    }
    fn capabilities(&self) -> BackendCapabilities {
        BackendCapabilities { case_sensitive: false, sparse_files: false, named_streams: false, shared_extents: false }
    }
}

// ---------------------------------------------------------------------------
// VolumeInfo
// ---------------------------------------------------------------------------

/// Volume behind a share, as reported by FileFsVolumeInformation,
/// FileFsSizeInformation, FileFsFullSizeInformation,
/// FileFsAttributeInformation and FileFsSectorSizeInformation (MS-FSCC 2.5).
///
/// Sizes count allocation units of `sectors_per_allocation_unit *
/// bytes_per_sector` bytes. Built from [`VolumeInfo::default`]; every
/// field is public.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeInfo {
    /// Total allocation units on the volume.
    pub total_allocation_units: u64,
    /// Free allocation units available to the share's users, after quotas
    /// and reserved space.
    pub caller_available_allocation_units: u64,
    /// Free allocation units on the volume.
    pub actual_available_allocation_units: u64,
    /// Sectors in one allocation unit.
    pub sectors_per_allocation_unit: u32,
    /// Bytes in one sector.
    pub bytes_per_sector: u32,
    /// Volume serial number.
    pub serial_number: u32,
    /// Volume label. `None` reports the share name.
    pub label: Option<String>,
    /// Longest file name the volume stores, in characters.
    pub max_name_length: u32,
}

impl Default for VolumeInfo {
    /// A 4 PiB volume with 2 PiB free, in 4 KiB allocation units.
    fn default() -> Self {
        Self {
            total_allocation_units: 1 << 40,
            caller_available_allocation_units: 1 << 39,
            actual_available_allocation_units: 1 << 39,
            sectors_per_allocation_unit: 1,
            bytes_per_sector: 4096,
            serial_number: crate::info_class::VOLUME_SERIAL_NUMBER,
            label: None,
            max_name_length: 255,
        }
    }
}
