//! TREE_CONNECT handler: share lookup and authorization.

use std::sync::Arc;

use larder_smb_wire::header::{SMB2_FLAGS_SIGNED, Smb2Header};
use larder_smb_wire::messages::{Dialect, TreeConnectRequest, TreeConnectResponse};
use tracing::{info, warn};

use crate::conn::state::{Connection, TreeConnect};
use crate::handlers::response::{Answered, HandlerResponse};
use crate::handlers::shared::lookup_session;
use crate::share::Admitted;
use crate::state::ServerState;
use larder_smb_wire::access_mask::maximal_access;
use larder_smb_wire::ntstatus;
use larder_smb_wire::text::utf16le_to_units;

const SHARE_TYPE_DISK: u8 = 0x01;
const SHARE_TYPE_PIPE: u8 = 0x02;
const SHAREFLAG_ENCRYPT_DATA: u32 = 0x0000_8000;

pub async fn handle(
    server: &Arc<ServerState>,
    conn: &Arc<Connection>,
    hdr: &Smb2Header,
    body: &[u8],
    encrypted: bool,
) -> Answered {
    let sess = lookup_session(conn, hdr.session_id)?;
    let caller = sess.caller(conn.peer_addr.map(|peer| peer.ip()));
    // MS-SMB2 3.3.5.7: on 3.1.1 an authenticated session's TREE_CONNECT
    // must be signed or encrypted, or the connection is dropped.
    let is_protected = encrypted || hdr.flags & SMB2_FLAGS_SIGNED != 0;
    if conn.negotiated.dialect() == Some(Dialect::Smb311) && !sess.is_anonymous() && !is_protected {
        warn!("unsigned SMB 3.1.1 TREE_CONNECT; closing the connection");
        conn.request_disconnect();
        return Err(ntstatus::STATUS_ACCESS_DENIED);
    }

    let name = requested(body)?;
    // IPC$: synthetic share, whose opens are named pipes.
    let is_ipc = name.eq_ignore_ascii_case("IPC$");
    let share = match is_ipc {
        true => crate::share::ShareBindings::ipc(),
        false => server.find_share(&name).await.ok_or(ntstatus::STATUS_BAD_NETWORK_NAME)?,
    };
    // The share is looked for and its doorkeeper asked with the session's tree
    // table locked. Both change before the trees are swept, and the sweep waits
    // for this lock, so a tree inserted here is either admitted by the new
    // configuration or removed by the sweep.
    let trees = sess.trees.change().await;
    if trees.len() >= server.auth.settings.max_trees_per_session {
        warn!(trees = trees.len(), "tree connect limit reached on session");
        return Err(ntstatus::STATUS_INSUFFICIENT_RESOURCES);
    }
    if !is_ipc && !server.find_share(&name).await.is_some_and(|current| Arc::ptr_eq(&current, &share)) {
        return Err(ntstatus::STATUS_BAD_NETWORK_NAME);
    }
    let Some(Admitted { view, access: granted }) = share.admit(&caller.visitor()) else {
        warn!(identity = ?caller.identity, share = %share.name, "TREE_CONNECT denied");
        if let Some(peer) = conn.peer_addr {
            let refused =
                crate::admission::Admission::ShareRefused { user: caller.identity.user(), share: &share.name };
            server.observe(peer.ip(), refused);
        }
        return Err(ntstatus::STATUS_ACCESS_DENIED);
    };
    let mut tc = TreeConnect::new(sess.alloc_tree_id(), share.clone(), granted);
    if view.is_some() {
        tc.view = view;
    }
    let tree_id = tc.id;
    trees.insert(tree_id, Arc::new(tc));
    drop(trees);

    let resp = TreeConnectResponse {
        structure_size: 16,
        share_type: if share.is_ipc { SHARE_TYPE_PIPE } else { SHARE_TYPE_DISK },
        reserved: 0,
        share_flags: if share.encrypt_data && caller.can_encrypt { SHAREFLAG_ENCRYPT_DATA } else { 0 },
        capabilities: 0,
        maximal_access: maximal_access(granted),
    };
    let mut buf = Vec::new();
    resp.write_to(&mut buf).expect("encode");
    info!(tree_id, share = %share.name, ?granted, "tree connect");
    let mut hr = HandlerResponse::ok(buf);
    hr.override_tree_id = Some(tree_id);
    Ok(hr)
}

/// The name of the share that a request is for.
fn requested(body: &[u8]) -> Result<String, u32> {
    let req = TreeConnectRequest::parse(body).map_err(|_| ntstatus::STATUS_INVALID_PARAMETER)?;
    let units = req.path_in(body).and_then(utf16le_to_units).ok_or(ntstatus::STATUS_INVALID_PARAMETER)?;
    let path = String::from_utf16_lossy(&units);
    tracing::debug!(?path, "tree connect path");
    let Some(name) = share_name(&path) else {
        warn!(?path, "tree connect path is not \\\\server\\share");
        return Err(ntstatus::STATUS_INVALID_PARAMETER);
    };
    Ok(name.to_owned())
}

/// The share component of a `\\server\share` path (MS-SMB2 2.2.9), or
/// `None` when the path has another form: the server part is 1 to 255
/// characters, and the share part 1 to 80 characters with none of the
/// characters MS-FSCC 2.1.6 forbids in share names.
fn share_name(unc: &str) -> Option<&str> {
    let rest = unc.strip_prefix(r"\\")?;
    let (server, share) = rest.split_once('\\')?;
    let server_len = server.chars().count();
    let share_len = share.chars().count();
    if !(1..256).contains(&server_len) || !(1..=80).contains(&share_len) {
        return None;
    }
    const INVALID: &[char] = &['"', '\\', '/', '[', ']', ':', '|', '<', '>', '+', '=', ';', ',', '*', '?'];
    if share.chars().any(|c| c < ' ' || INVALID.contains(&c)) {
        return None;
    }
    Some(share)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conn::state::Session;
    use larder_smb_wire::auth::ntlm::Identity;
    use larder_smb_wire::crypto::SigningAlgo;
    use larder_smb_wire::header::{Command, HeaderTail};

    fn alice() -> Identity {
        Identity::User { user: "alice".to_string(), domain: String::new() }
    }

    async fn connection(dialect: Dialect, identity: Identity) -> (Arc<ServerState>, Arc<Connection>) {
        let server = crate::SmbServer::builder()
            .listen("127.0.0.1:0".parse().unwrap())
            .user("alice", "password")
            .share(crate::Share::of("home", crate::door::view::VisitedShare::in_memory().await).public())
            .build()
            .expect("build")
            .state();
        let conn = Arc::new(Connection::new(server.config.server_guid, 65536, 65536));
        conn.negotiated.set_dialect(dialect, SigningAlgo::HmacSha256);
        let session = Session::new(identity, [0; 16], false);
        conn.sessions.change().await.insert(7, Arc::new(session));
        (server, conn)
    }

    fn request(path: &str, flags: u32) -> (Smb2Header, Vec<u8>) {
        let hdr = Smb2Header {
            credit_charge: 1,
            channel_sequence_status: 0,
            command: Command::TreeConnect,
            credit_request_response: 1,
            flags,
            next_command: 0,
            message_id: 5,
            tail: HeaderTail::sync(0),
            session_id: 7,
            signature: [0; 16],
        };
        let path: Vec<u8> = path.encode_utf16().flat_map(u16::to_le_bytes).collect();
        let mut body = Vec::new();
        TreeConnectRequest { structure_size: 9, flags: 0, path_offset: 64 + 8, path_length: path.len() as u16, path }
            .write_to(&mut body)
            .unwrap();
        (hdr, body)
    }

    #[tokio::test]
    async fn unsigned_smb311_tree_connect_requests_a_disconnect() {
        let (server, conn) = connection(Dialect::Smb311, alice()).await;
        let (hdr, body) = request(r"\\srv\home", 0);
        let resp = handle(&server, &conn, &hdr, &body, false).await.unwrap_or_else(HandlerResponse::err);
        assert_ne!(resp.status, ntstatus::STATUS_SUCCESS);
        assert!(conn.disconnect_requested());

        // Signed, anonymous, or an older dialect: no disconnect.
        let (server, conn) = connection(Dialect::Smb311, alice()).await;
        let (hdr, body) = request(r"\\srv\home", SMB2_FLAGS_SIGNED);
        assert_eq!(handle(&server, &conn, &hdr, &body, false).await.unwrap_or_else(HandlerResponse::err).status, 0);
        let (server, conn) = connection(Dialect::Smb311, Identity::Anonymous).await;
        let (hdr, body) = request(r"\\srv\home", 0);
        assert_eq!(handle(&server, &conn, &hdr, &body, false).await.unwrap_or_else(HandlerResponse::err).status, 0);
        let (server, conn) = connection(Dialect::Smb302, alice()).await;
        let (hdr, body) = request(r"\\srv\home", 0);
        assert_eq!(handle(&server, &conn, &hdr, &body, false).await.unwrap_or_else(HandlerResponse::err).status, 0);
        assert!(!conn.disconnect_requested());
    }

    #[test]
    fn share_name_needs_the_server_share_form() {
        assert_eq!(share_name(r"\\srv\home"), Some("home"));
        assert_eq!(share_name(r"\\10.0.0.1\IPC$"), Some("IPC$"));
        let long_share = format!(r"\\srv\{}", "x".repeat(81));
        let long_server = format!(r"\\{}\home", "s".repeat(256));
        for bad in [
            "home",
            r"\home",
            r"\\srv",
            r"\\\home",
            r"\\srv\",
            r"\\srv\a\b",
            r"\\srv\a:b",
            r"\\srv\a*",
            "//srv/home",
            "\\\\srv\\a\u{1}",
            &long_share,
            &long_server,
        ] {
            assert!(share_name(bad).is_none(), "{bad:?}");
        }
    }

    /// A TREE_CONNECT that read the share before `remove_share` and
    /// inserts after it does not leave a tree on the removed share.
    #[tokio::test(flavor = "multi_thread", worker_threads = 3)]
    async fn tree_connect_racing_remove_share_leaves_no_tree() {
        let (arrived, go) = (Arc::new(std::sync::Barrier::new(2)), Arc::new(std::sync::Barrier::new(2)));
        let stops = {
            let (arrived, go) = (Arc::clone(&arrived), Arc::clone(&go));
            move || _ = (arrived.wait(), go.wait())
        };
        let server = crate::SmbServer::builder()
            .listen("127.0.0.1:0".parse().unwrap())
            .share(crate::Share::of("home", crate::door::view::VisitedShare::in_memory().await).public().watched(stops))
            .build()
            .expect("build");
        let state = server.state();
        let config = server.config_handle();
        let conn = Arc::new(Connection::new(state.config.server_guid, 65536, 65536));
        state.active_connections.register(&conn).await;
        conn.negotiated.set_dialect(Dialect::Smb302, SigningAlgo::HmacSha256);
        let session = Arc::new(Session::new(Identity::Anonymous, [0; 16], false));
        conn.sessions.change().await.insert(7, session.clone());

        // The TREE_CONNECT stops at its doorkeeper, after its share lookup.
        let (hdr, body) = request(r"\\srv\home", 0);
        let tc = tokio::spawn({
            let (state, conn) = (state.clone(), conn.clone());
            async move { handle(&state, &conn, &hdr, &body, false).await.unwrap_or_else(HandlerResponse::err).status }
        });
        tokio::task::spawn_blocking(move || arrived.wait()).await.unwrap();
        let remove = tokio::spawn(async move { config.remove_share("home").await });
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        tokio::task::spawn_blocking(move || go.wait()).await.unwrap();
        tc.await.unwrap();
        remove.await.unwrap().unwrap();

        assert!(session.trees.is_empty());
    }

    #[tokio::test]
    async fn trees_per_session_are_capped() {
        let (server, conn) = connection(Dialect::Smb302, alice()).await;
        let max = server.auth.settings.max_trees_per_session;
        let (hdr, body) = request(r"\\srv\home", 0);
        for _ in 0..max {
            assert_eq!(handle(&server, &conn, &hdr, &body, false).await.unwrap_or_else(HandlerResponse::err).status, 0);
        }
        assert_eq!(
            handle(&server, &conn, &hdr, &body, false).await.unwrap_or_else(HandlerResponse::err).status,
            ntstatus::STATUS_INSUFFICIENT_RESOURCES
        );
    }
}
