//! ECHO handler (MS-SMB2 3.3.5.17).

use std::sync::Arc;

use larder_smb_wire::header::{SMB2_FLAGS_SIGNED, Smb2Header};

use crate::conn::state::Connection;
use crate::handlers::response::{Answered, HandlerResponse};
use crate::handlers::shared::lookup_session;

pub fn handle(conn: &Arc<Connection>, hdr: &Smb2Header) -> Answered {
    // Without a session ECHO is answered as well, as Windows and Samba do;
    // the handshake timeout bounds such a connection.
    if hdr.flags & SMB2_FLAGS_SIGNED != 0 || hdr.session_id != 0 {
        lookup_session(conn, hdr.session_id)?;
    }
    Ok(HandlerResponse::empty())
}
