use std::sync::Arc;

use crate::config::ConfigError;
use crate::conn::state::{Connection, Session, TreeConnect};
use crate::door::view::VisitedShare;
use crate::{Access, Share, SmbServer};
use larder_smb_wire::auth::ntlm::Identity;

async fn test_server() -> SmbServer {
    SmbServer::builder()
        .listen("127.0.0.1:0".parse().unwrap())
        .user("alice", "password")
        .share(
            Share::of("home", VisitedShare::in_memory().await.with_file("seed.txt", b"").await)
                .user("alice", Access::ReadWrite),
        )
        .build()
        .expect("build")
}

async fn public_server() -> SmbServer {
    SmbServer::builder()
        .listen("127.0.0.1:0".parse().unwrap())
        .share(Share::of("public", VisitedShare::in_memory().await).public())
        .build()
        .expect("build")
}

async fn register_session(server: &SmbServer, identity: Identity, share_name: &str) -> Arc<Connection> {
    let state = server.state();
    let conn =
        Arc::new(Connection::new(state.config.server_guid, state.config.max_read_size, state.config.max_write_size));
    state.active_connections.register(&conn).await;

    let session = Session::new(identity, [0; 16], false);
    let session = Arc::new(session);
    let share = state.find_share(share_name).await.expect("share");
    let tree = Arc::new(TreeConnect::new(1, share, Access::ReadWrite));
    session.trees.change().await.insert(1, tree);
    conn.sessions.change().await.insert(1, session);
    conn
}

async fn register_alice_session(server: &SmbServer) -> Arc<Connection> {
    register_session(server, Identity::User { user: "alice".to_string(), domain: String::new() }, "home").await
}

#[tokio::test]
async fn config_handle_adds_users_and_shares() {
    let server = SmbServer::builder().listen("127.0.0.1:0".parse().unwrap()).build().expect("build");
    let config = server.config_handle();

    config.add_user_nt_hash("bob", [7; 16]).await.expect("add user");
    config
        .add_share(Share::of("media", VisitedShare::in_memory().await).user("bob", Access::Read))
        .await
        .expect("add share");

    let state = server.state();
    assert!(state.lookup_user("bob").await.is_some());
    assert!(state.find_share("media").await.is_some());
}

#[tokio::test]
async fn reserved_and_unreachable_share_names_are_rejected() {
    let server = public_server().await;
    let config = server.config_handle();
    let add = async |name: &str| config.add_share(Share::of(name, VisitedShare::in_memory().await).public()).await;

    for name in ["IPC$", "ipc$"] {
        assert_eq!(add(name).await, Err(ConfigError::ReservedShareName(name.to_string())));
    }
    for name in ["", "a\\b", "a/b", "\\share", "a\0b"] {
        assert_eq!(add(name).await, Err(ConfigError::InvalidShareName(name.to_string())));
        assert!(server.state().find_share(name).await.is_none());
    }
    assert_eq!(add("share$").await, Ok(()));
}

#[tokio::test]
async fn removing_user_revokes_active_sessions() {
    let server = test_server().await;
    let conn = register_alice_session(&server).await;

    server.config_handle().remove_user("alice").await.expect("remove user");

    assert!(server.state().lookup_user("alice").await.is_none());
    assert!(conn.sessions.is_empty());
}

#[tokio::test]
async fn removing_share_revokes_active_trees() {
    let server = test_server().await;
    let conn = register_alice_session(&server).await;

    server.config_handle().remove_share("home").await.expect("remove share");

    assert!(server.state().find_share("home").await.is_none());
    assert!(conn.sessions.get(1).expect("session remains").trees.is_empty());
}

#[tokio::test]
async fn trees_of_one_user_end_and_those_of_others_stay() {
    let server = test_server().await;
    let alice = register_alice_session(&server).await;
    let bob = Identity::User { user: "bob".to_string(), domain: String::new() };
    let bob = register_session(&server, bob, "home").await;

    server.config_handle().end_trees("home", "alice").await.expect("end trees");

    let trees = |conn: &Arc<Connection>| conn.sessions.get(1).expect("session").trees.len();
    assert_eq!((trees(&alice), trees(&bob)), (0, 1));
    let missing = server.config_handle().end_trees("none", "alice").await;
    assert_eq!(missing, Err(ConfigError::UnknownShare("none".to_string())));
}
