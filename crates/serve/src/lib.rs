//! Protocols: each a codec, a session and operations on a volume.

pub mod fuse;
pub mod nfs;
pub mod smb;
