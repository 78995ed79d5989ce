//! A file, an entry of a directory and a stream, as their information classes tell of them
//! ([`crate::info_class`]).

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
pub const FILE_ATTRIBUTE_READONLY: u32 = 0x0000_0001;
pub const FILE_ATTRIBUTE_HIDDEN: u32 = 0x0000_0002;
pub const FILE_ATTRIBUTE_SYSTEM: u32 = 0x0000_0004;
pub const FILE_ATTRIBUTE_DIRECTORY: u32 = 0x0000_0010;
pub const FILE_ATTRIBUTE_ARCHIVE: u32 = 0x0000_0020;
pub const FILE_ATTRIBUTE_NORMAL: u32 = 0x0000_0080;
pub const FILE_ATTRIBUTE_TEMPORARY: u32 = 0x0000_0100;
pub const FILE_ATTRIBUTE_SPARSE_FILE: u32 = 0x0000_0200;
pub const FILE_ATTRIBUTE_OFFLINE: u32 = 0x0000_1000;
pub const FILE_ATTRIBUTE_NOT_CONTENT_INDEXED: u32 = 0x0000_2000;

/// Attributes FileBasicInformation can set (MS-FSA 2.1.5.15.2).
pub const VALID_SET_ATTRIBUTES: u32 = FILE_ATTRIBUTE_READONLY
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
