//! Connection limits and timeouts.

use std::time::Duration;

use larder_smb_wire::header::Command;
use larder_smb_wire::messages::Dialect;

/// Files and named pipes one connection may hold open. A CREATE past it
/// fails with STATUS_INSUFFICIENT_RESOURCES.
pub const MAX_OPENS_PER_CONNECTION: usize = 16384;

/// Files and named pipes that one user may hold open, on all connections, and guests of one network
/// (an address, or a /64 of IPv6) together. As many as one connection may four times over: about
/// 128 MiB. A CREATE past it fails with STATUS_INSUFFICIENT_RESOURCES.
pub const MAX_OPENS_PER_HOLDER: usize = 65_536;

/// Files and named pipes that all clients may hold open, about 512 MiB. A CREATE past it fails with
/// STATUS_INSUFFICIENT_RESOURCES.
pub const MAX_OPENS: usize = 262_144;

/// Byte-range locks that one user may hold, on all connections, and guests of one network together. A
/// LOCK past it fails with STATUS_INSUFFICIENT_RESOURCES.
pub const MAX_LOCKS_PER_HOLDER: usize = 65_536;

/// Byte-range locks that all clients may hold: half of those that a volume has for all doors. A LOCK
/// past it fails with STATUS_INSUFFICIENT_RESOURCES.
pub const MAX_LOCKS: usize = 524_288;

/// Bytes that the watches of one user buffer, on all connections, and those of guests of one network
/// together: full buffers of 256 watches. Past it a watch drops what it holds and answers
/// STATUS_NOTIFY_ENUM_DIR next.
pub const MAX_NOTICE_BYTES_PER_HOLDER: usize = 16 << 20;

/// Bytes that the watches of all clients buffer. Past it, as past the limit of a user.
pub const MAX_NOTICE_BYTES: usize = 64 << 20;

/// Opens of one file by one user, or by guests of one network. Some work grows with the opens of a
/// file (a break of a lease, a rename of a folder above). A CREATE past it fails with
/// STATUS_INSUFFICIENT_RESOURCES.
pub const MAX_OPENS_OF_FILE: usize = 4096;

/// Byte-range locks one open may hold. A LOCK past it fails with
/// STATUS_INSUFFICIENT_RESOURCES.
pub const MAX_LOCKS_PER_OPEN: usize = 1024;

/// Largest request other than READ, WRITE, IOCTL, QUERY_DIRECTORY,
/// CHANGE_NOTIFY, QUERY_INFO and SET_INFO (MS-SMB2 3.3.5.2), and the largest
/// frame accepted on a connection without a session: it can NEGOTIATE and
/// set one up.
pub const MAX_SMALL_REQUEST: usize = 68 * 1024;

/// Largest request frame accepted once a dialect is negotiated and a session
/// set up: the largest negotiated transfer size plus 256 bytes of headers
/// (MS-SMB2 3.3.5.2). MaxTransactSize is advertised equal to `max_read_size`.
pub fn max_request_frame(dialect: Option<Dialect>, has_session: bool, max_read: u32, max_write: u32) -> usize {
    match dialect {
        None | Some(Dialect::Smb2Wildcard) => MAX_SMALL_REQUEST,
        Some(_) if !has_session => MAX_SMALL_REQUEST,
        Some(_) => max_read.max(max_write) as usize + 256,
    }
}

/// Commands whose requests may exceed [`MAX_SMALL_REQUEST`].
pub fn is_bulk(command: Command) -> bool {
    matches!(
        command,
        Command::Read
            | Command::Write
            | Command::Ioctl
            | Command::QueryDirectory
            | Command::ChangeNotify
            | Command::QueryInfo
            | Command::SetInfo
    )
}

/// Connection.SupportsMultiCredit: SMB 2.1 and 3.x over TCP.
pub fn supports_multi_credit(dialect: Option<Dialect>) -> bool {
    matches!(dialect, Some(Dialect::Smb210 | Dialect::Smb300 | Dialect::Smb302 | Dialect::Smb311))
}

/// Limits and timeouts of a server's connections.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Most connections served at once, counting every client together.
    pub max_connections: usize,
    /// Most connections of one address without a session.
    pub max_unauthenticated_per_address: usize,
    /// Time a new connection has to establish its first session, and each
    /// SESSION_SETUP exchange has to finish.
    pub handshake_timeout: Duration,
    /// Time without requests after which a connection with no open files
    /// closes.
    pub idle_timeout: Duration,
    /// Time allowed to receive the rest of a started frame, and to send one
    /// response.
    pub io_timeout: Duration,
    /// Idle time before TCP keepalive probes start; `None` leaves keepalive
    /// off.
    pub tcp_keepalive: Option<Duration>,
    /// How long a durable open is kept after its session ends. A version 2
    /// request gets the time it asks for up to this or 5 minutes.
    pub durable_handle_timeout: Duration,
    /// Most durable opens kept at once, counting every client together.
    pub max_disconnected_opens: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_connections: 1024,
            max_unauthenticated_per_address: 256,
            handshake_timeout: Duration::from_secs(30),
            idle_timeout: Duration::from_mins(15),
            io_timeout: Duration::from_secs(60),
            tcp_keepalive: Some(Duration::from_secs(60)),
            durable_handle_timeout: Duration::from_mins(2),
            max_disconnected_opens: 4096,
        }
    }
}
