use larder_smb_wire::header::{SMB2_FLAGS_ASYNC_COMMAND, SMB2_FLAGS_SERVER_TO_REDIR};
use larder_smb_wire::messages::FileId;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;

use super::*;
use crate::client::smb::requests;

/// A client and the other end of its connection, on one thread as in a bench.
fn with_server<F: Future<Output = ()>>(run: impl FnOnce(Connection, TcpStream) -> F) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (connection, server) = tokio::join!(Connection::open(&address), listener.accept());
        run(connection.unwrap(), server.unwrap().0).await;
    });
}

async fn request(server: &mut TcpStream) -> Vec<(Smb2Header, Bytes)> {
    let len = server.read_u32().await.unwrap();
    let mut frame = vec![0; len as usize];
    server.read_exact(&mut frame).await.unwrap();
    answers::split(frame.into()).unwrap()
}

fn answer(to: &Smb2Header, status: u32, credits: u16, body: &[u8]) -> Vec<u8> {
    let flags = SMB2_FLAGS_SERVER_TO_REDIR | if status == STATUS_PENDING { SMB2_FLAGS_ASYNC_COMMAND } else { 0 };
    let mut header = Smb2Header { flags, next_command: 0, credit_request_response: credits, ..*to };
    header.channel_sequence_status = status;
    if status == STATUS_PENDING {
        header.tail = HeaderTail::async_(9);
    }
    let mut message = Vec::new();
    header.write(&mut message).unwrap();
    [message, body.to_vec()].concat()
}

fn framed(message: &[u8]) -> Vec<u8> {
    [&frame_header(message.len()).unwrap(), message].concat()
}

fn close() -> Request {
    requests::close(FileId::any()).unwrap()
}

#[test]
fn answers_find_their_requests_and_credits_are_waited_for() {
    with_server(async |connection, mut server| {
        let clients = async {
            let (first, second) = tokio::join!(connection.call([close()]), connection.call([close(), close()]));
            assert_eq!(first.unwrap()[0].status(), 1);
            assert_eq!(second.unwrap().map(|answer| answer.status()), [2, 3]);
            // One was there and one taken, three came and two were taken, and the last answer
            // brought five.
            assert_eq!(connection.shared.credits.available_permits(), 6);
            assert_eq!(connection.shared.state.borrow().credits, 6);
        };
        let server = async {
            // The second has to wait for the two credits of an interim answer.
            let first = request(&mut server).await;
            let interim = answer(&first[0].0, STATUS_PENDING, 3, &[]);
            server.write_all(&framed(&interim)).await.unwrap();
            let chain = request(&mut server).await;
            assert_eq!(chain.iter().map(|(header, _)| header.message_id).collect::<Vec<_>>(), [1, 2]);
            assert_eq!(chain.iter().map(|(header, _)| header.flags).collect::<Vec<_>>(), [0, 4]);
            for (to, status, credits) in [(&chain[1], 3, 0), (&chain[0], 2, 0), (&first[0], 1, 5)] {
                server.write_all(&framed(&answer(&to.0, status, credits, &[0; 8]))).await.unwrap();
            }
        };
        tokio::join!(clients, server);
    });
}

/// The failure of a request that is answered with `bytes`, of those that come later, and of none
/// that waits for ever.
fn failure_of(protection: Protection, bytes: impl FnOnce(&Smb2Header) -> Vec<u8>) -> String {
    let mut found = String::new();
    with_server(async |connection, mut server| {
        connection.protect(protection);
        let lie = async {
            let asked = request(&mut server).await;
            server.write_all(&bytes(&asked[0].0)).await.unwrap();
            server
        };
        let (asked, _server) = tokio::join!(connection.call([close()]), lie);
        let later = connection.call([close()]).await.map(drop).unwrap_err();
        found = asked.map(drop).unwrap_err().to_string();
        assert_eq!(found, later.to_string());
    });
    found
}

#[test]
fn a_server_that_lies_is_not_believed() {
    let plain = |bytes: fn(&Smb2Header) -> Vec<u8>| failure_of(Protection::None, bytes);
    assert_eq!(plain(|_| vec![0, 0x11, 0, 1]), "an answer of 1114113 bytes");
    assert!(plain(|_| vec![0x85, 0, 0, 0]).contains("NetBIOS"));
    assert!(plain(|_| framed(b"HTTP/1.1 400")).contains("header"));
    assert!(plain(|to| framed(&answer(&Smb2Header { command: Command::Echo, ..*to }, 0, 1, &[]))).contains("command"));
    assert!(plain(|_| framed(&[b"\xfdSMB", &[0; 80][..]].concat())).contains("encrypted"));
    let chain = |to: &Smb2Header| {
        let mut chain = answer(to, 0, 1, &[0; 8]);
        chain[20] = 200;
        framed(&chain)
    };
    assert!(plain(chain).contains("NextCommand"));
    let signed = || Protection::Signed([7; 16], SigningAlgo::AesGmac);
    let unsigned = failure_of(signed(), |to| framed(&answer(to, 0xC000_0203, 1, &[0; 8])));
    assert_eq!(unsigned, "an answer is not signed (STATUS_USER_SESSION_DELETED during Close)");
    let forged = |to: &Smb2Header| {
        let mut forged = answer(to, 0, 1, &[0; 8]);
        forged[16] |= SMB2_FLAGS_SIGNED as u8;
        framed(&forged)
    };
    assert!(failure_of(signed(), forged).contains("signature mismatch"));
}

#[test]
fn a_request_ends_with_its_connection() {
    with_server(async |connection, mut server| {
        let ending = async {
            request(&mut server).await;
            drop(server);
        };
        let (asked, ()) = tokio::join!(connection.call([close()]), ending);
        assert!(matches!(asked.map(drop), Err(Failure::Lost(_))));
    });
}
