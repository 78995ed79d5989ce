//! The hash of the messages that set up a connection and its sessions (MS-SMB2 3.3.5.4, 3.3.5.5): it goes on from NEGOTIATE
//! to each SESSION_SETUP exchange, whose keys are derived from it.

use std::sync::{Arc, MutexGuard, PoisonError};

use tracing::error;

use super::reply::Reply;
use crate::conn::state::{Connection, SessionKeys};
use crate::handlers::response::HandlerResponse;
use crate::utils::{read_u32, read_u64};
use larder_smb_wire::crypto::{PreauthIntegrity, SessionCipher, sign_pieces, signing_key_311};
use larder_smb_wire::header::{Command, Smb2Header};
use larder_smb_wire::messages::Dialect;
use larder_smb_wire::ntstatus;

/// The hash that a request belongs to.
pub(super) enum Preauth {
    None,
    /// Of the connection.
    Negotiate,
    /// Of an exchange of SMB 3.1.1.
    Session(PreauthIntegrity),
}

impl Preauth {
    /// Hashes the request.
    pub(super) fn begin(conn: &Arc<Connection>, hdr: &Smb2Header, received: &[u8]) -> Self {
        match hdr.command {
            Command::Negotiate => {
                of_connection(conn).update(received);
                Self::Negotiate
            }
            Command::SessionSetup if conn.negotiated.dialect() == Some(Dialect::Smb311) => {
                let mut hash = take_session_preauth(conn, hdr.session_id);
                hash.update(received);
                Self::Session(hash)
            }
            _ => Self::None,
        }
    }

    /// Gives a session, or a connection bound to one, its keys if the
    /// handler asks for that: before the response is hashed.
    pub(super) fn set_keys(&self, conn: &Connection, resp: &HandlerResponse) {
        let Some(sid) = resp.take_preauth_snapshot_for_session else {
            return;
        };
        let Self::Session(hash) = self else {
            unreachable!("only SESSION_SETUP of SMB 3.1.1 asks for it");
        };
        let snap = hash.snapshot();
        if let Some(base_key) = resp.channel_base_key {
            conn.channel_keys.set(sid, signing_key_311(&base_key, &snap));
        } else if let Some(session) = conn.sessions.get(sid) {
            let signing = signing_key_311(&session.session_base_key, &snap);
            let cipher = conn.negotiated.cipher().filter(|_| !session.is_anonymous());
            let derive = |cipher| Arc::new(SessionCipher::derive(cipher, &session.session_base_key, Some(&snap)));
            session.set_keys(SessionKeys { signing, cipher: cipher.map(derive) });
        }
    }

    /// Hashes the response, and keeps the hash of an exchange that goes on.
    pub(super) fn end(self, conn: &Connection, response: &mut Reply) {
        let hash = match self {
            Self::None => return,
            Self::Negotiate => {
                of_connection(conn).update(&response.bytes);
                return;
            }
            Self::Session(hash) => hash,
        };
        if read_u32(&response.bytes, 0x08) != ntstatus::STATUS_MORE_PROCESSING_REQUIRED {
            return;
        }
        // What is hashed is what the client sees, its signature included.
        if let Some(key) = response.signing_key.take()
            && let Err(e) = sign_pieces(&mut response.bytes, std::iter::empty(), &key.key, key.algo)
        {
            error!(error = %e, "failed to sign response");
        }
        let mut hash = hash;
        hash.update(&response.bytes);
        conn.logons.keep_hash(read_u64(&response.bytes, 0x28), hash);
    }
}

fn of_connection(conn: &Connection) -> MutexGuard<'_, PreauthIntegrity> {
    conn.preauth.lock().unwrap_or_else(PoisonError::into_inner)
}

fn take_session_preauth(conn: &Connection, session_id: u64) -> PreauthIntegrity {
    conn.logons.take_hash(session_id).unwrap_or_else(|| of_connection(conn).clone())
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn test_conn() -> Arc<Connection> {
        Arc::new(Connection::new(Uuid::nil(), 1024 * 1024, 1024 * 1024))
    }

    fn negotiated_preauth() -> PreauthIntegrity {
        let mut preauth = PreauthIntegrity::new();
        preauth.update(b"negotiate request");
        preauth.update(b"negotiate response");
        preauth
    }

    #[test]
    fn new_session_setup_preauth_starts_from_negotiate_base() {
        let conn = test_conn();
        let base = negotiated_preauth();
        *conn.preauth.lock().expect("preauth lock") = base.clone();

        let mut first_session = take_session_preauth(&conn, 0);
        first_session.update(b"session one request");
        first_session.update(b"session one response");
        conn.logons.keep_hash(1, first_session);

        let mut second_session = take_session_preauth(&conn, 0);
        second_session.update(b"session two request");

        let mut expected = base.clone();
        expected.update(b"session two request");

        let mut polluted = base;
        polluted.update(b"session one request");
        polluted.update(b"session one response");
        polluted.update(b"session two request");

        assert_eq!(second_session.snapshot(), expected.snapshot());
        assert_ne!(second_session.snapshot(), polluted.snapshot());
    }

    #[test]
    fn followup_session_setup_consumes_stored_session_preauth() {
        let conn = test_conn();
        let mut stored = negotiated_preauth();
        stored.update(b"session setup request");
        stored.update(b"session setup more-processing response");
        let expected = stored.snapshot();
        conn.logons.keep_hash(7, stored);

        let got = take_session_preauth(&conn, 7);

        assert_eq!(got.snapshot(), expected);
        assert!(conn.logons.take_hash(7).is_none());
    }
}
