//! The ways into shares.

/// A way into shares, with what it knows of the client beside name and address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Door {
    /// NFS, versions 3 and 4.
    Nfs {
        /// The port that the client calls from; `None`: one that may come in.
        port: Option<u16>,
    },
    /// SMB 2 and 3.
    Smb {
        /// The session has keys to encrypt with.
        encrypts: bool,
    },
    /// SFTP.
    Sftp,
    /// WebDAV, and its pages in a browser.
    Webdav,
    /// A mount of a volume on this machine. The kernel lets in whom it lets in; this says whom.
    Mount {
        /// The only user whom the kernel lets in, if it is for one.
        private_to: Option<u32>,
    },
}

impl Door {
    /// NFS, from a port that may come in.
    pub const NFS: Door = Door::Nfs { port: None };
    /// SMB, by a client that encrypts.
    pub const SMB: Door = Door::Smb { encrypts: true };
}
