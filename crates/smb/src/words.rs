//! What SMB asks of files, and is told of them.

use crate::security::SecurityDescriptor;

/// A CREATE disposition (MS-SMB2 2.2.13).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OpenIntent {
    /// `FILE_OPEN`: open existing only; fail if missing.
    #[default]
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

/// What an open is to be.
#[derive(Debug, Clone, Default)]
pub struct OpenOptions {
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

/// What an open did to the file (MS-SMB2 2.2.14 CreateAction).
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

/// Filesystem-style metadata for a single file or directory. Built with
/// [`FileInfo::new`]; every field is public.
#[derive(Debug, Clone)]
pub struct FileInfo {
    /// Display name (last component). For QUERY_INFO at the share root this
    /// is the share name.
    pub name: String,
    /// File size in bytes.
    pub end_of_file: u64,
    /// What it takes, in whole clusters.
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
    /// The file's number in its store, whatever its names, reported as the file id by QUERY_INFO
    /// and QUERY_DIRECTORY. Never `0`.
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
    /// id.
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
    /// Position after the entry, to ask for the next page with; 0 for "." and "..".
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

/// Part of a directory listing; see
/// [`FileHandle::list_page`](crate::door::handle::FileHandle::list_page).
#[derive(Debug, Clone)]
pub struct DirPage {
    pub entries: Vec<DirEntry>,
    /// Position after the last entry that was looked at, to ask for the next page with. Entries
    /// that are not shown lie between the last one's position and this one.
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

/// What a path leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Located {
    /// The id of the directory that holds the name; `0` for the root of the share.
    pub dir: u64,
    /// The id of the file, directory or stream; `None` where the name is free.
    pub file: Option<u64>,
}

/// Room of the volume behind a share, in the units of [`ALLOCATION_BYTES`](crate::door::handle)
/// (MS-FSCC 2.5).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeInfo {
    /// Total allocation units on the volume.
    pub total_allocation_units: u64,
    /// Free allocation units available to the share's users, after quotas
    /// and reserved space.
    pub caller_available_allocation_units: u64,
    /// Free allocation units on the volume.
    pub actual_available_allocation_units: u64,
    /// Volume serial number.
    pub serial_number: u32,
}
