//! What SMB asks of files, and is told of them.

use larder_smb_wire::file_info::DirEntry;
use larder_smb_wire::security::SecurityDescriptor;

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
