//! The doors of a share, by the origin that their changes carry. SMB's shares have origins of their own.

pub const ORIGIN_NFS: u32 = 1;
pub const ORIGIN_SFTP: u32 = u32::from_be_bytes(*b"SFTP");
pub const ORIGIN_WEBDAV: u32 = u32::from_be_bytes(*b"WDAV");

/// As people name it.
pub fn door_word(origin: u32) -> &'static str {
    match origin {
        ORIGIN_NFS => "nfs",
        ORIGIN_SFTP => "sftp",
        ORIGIN_WEBDAV => "webdav",
        _ => "smb",
    }
}
