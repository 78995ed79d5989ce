//! RPC, MOUNT and portmapper: refusals, retries, versions.

use larder_people::Squash;
use tokio::io::AsyncWriteExt;
use tokio::net::UdpSocket;

use super::super::NfsConfig;
use super::super::mount::MOUNT_PROGRAM;
use super::super::portmap::PORTMAP_PROGRAM;
use super::super::proto::{NFS_PROGRAM, Proc};
use super::super::rpc::tests::call;
use super::super::xdr::Reader;
use super::client::*;

#[tokio::test]
async fn calls_to_nothing_are_refused_as_the_rfc_says() {
    let server = Server::start().await;
    let mut c = server.mounted().await;
    assert_eq!(c.rpc(100_227, 3, 0, b"").await.accept, 1, "PROG_UNAVAIL");
    let cases = [(NFS_PROGRAM, 5, 3u32, 4u32), (NFS_PROGRAM, 2, 3, 4), (MOUNT_PROGRAM, 4, 1, 3)];
    for (prog, vers, low, high) in cases {
        let answer = c.rpc(prog, vers, 0, b"").await;
        assert_eq!(answer.accept, 2, "PROG_MISMATCH");
        assert_eq!(answer.body, [low.to_be_bytes(), high.to_be_bytes()].concat());
    }
    assert_eq!(c.rpc(NFS_PROGRAM, 4, 0, b"").await.accept, 0, "version 4 has NULL and COMPOUND");
    assert_eq!(c.rpc(NFS_PROGRAM, 4, 2, b"").await.accept, 3, "PROC_UNAVAIL");
    assert_eq!(c.rpc(NFS_PROGRAM, 4, 1, b"").await.accept, 4, "GARBAGE_ARGS");
    assert_eq!(c.rpc(NFS_PROGRAM, 3, 22, b"").await.accept, 3, "PROC_UNAVAIL");
    assert_eq!(c.rpc(MOUNT_PROGRAM, 3, 6, b"").await.accept, 3);
    c.cred = None;
    assert_eq!(c.nfs(Proc::Null, b"").await.accept, 0, "AUTH_NONE will do");
    let root = c.root.clone();
    let made = c.make(Proc::Create, &root, b"anonymous", 0o644).await.unwrap();
    assert_eq!(c.getattr(&made).await.unwrap().uid, larder_people::NOBODY);

    let mut gss = call(9, NFS_PROGRAM, 3, 0, None, b"");
    gss[24..28].copy_from_slice(&6u32.to_be_bytes());
    c.stream.write_all(&[&(gss.len() as u32 | 1 << 31).to_be_bytes()[..], &gss].concat()).await.unwrap();
    let (xid, answer) = c.receive().await.unwrap();
    assert_eq!((xid, answer.accept), (9, u32::MAX), "MSG_DENIED");
    assert_eq!(answer.body, [1u32.to_be_bytes(), 1u32.to_be_bytes()].concat(), "AUTH_ERROR, AUTH_BADCRED");
}

#[tokio::test]
async fn mounting() {
    let server = Server::start().await;
    let mut c = server.mounted().await;
    let root = c.root.clone();
    assert_eq!(c.mount("/tank/").await, Ok(root.clone()));
    assert_eq!(c.mount("/").await, Err(2));
    assert_eq!(c.mount("/tankard").await, Err(2));
    assert_eq!(c.mount("/tank/none").await, Err(2));
    assert_eq!(c.mount("/tank/../tank").await, Err(2));
    let dir = c.make(Proc::MkDir, &root, b"dir", 0o755).await.unwrap();
    assert_eq!(c.mount("/tank/dir").await, Ok(dir), "directories below an export, too");
    c.make(Proc::Create, &root, b"file", 0o644).await.unwrap();
    assert_eq!(c.mount("/tank/file").await, Err(20));

    let list = |answer: &Answer| {
        let mut r = answer.reader();
        let mut all = Vec::new();
        while r.bool().unwrap() {
            all.push(String::from_utf8(r.opaque(1024).unwrap().to_vec()).unwrap());
            while r.bool().unwrap() {
                all.push(String::from_utf8(r.opaque(1024).unwrap().to_vec()).unwrap());
            }
        }
        all
    };
    for vers in 1..=3 {
        assert_eq!(list(&c.rpc(MOUNT_PROGRAM, vers, 5, b"").await), ["/tank", "127.0.0.0/8", "::1/128"]);
    }
    let dump = c.rpc(MOUNT_PROGRAM, 3, 2, b"").await;
    let mut r = dump.reader();
    assert!(r.bool().unwrap());
    assert_eq!(r.opaque(100).unwrap(), b"127.0.0.1");
    assert_eq!(c.rpc(MOUNT_PROGRAM, 3, 4, b"").await.body.len(), 0);
    assert_eq!(c.rpc(MOUNT_PROGRAM, 3, 2, b"").await.body, [0; 4], "UMNTALL forgot them");
}

#[tokio::test]
async fn handles_survive_a_new_server() {
    let first = Server::start().await;
    let mut c = first.mounted().await;
    let root = c.root.clone();
    let file = c.make(Proc::Create, &root, b"f", 0o644).await.unwrap();
    let server = super::super::NfsServer::bind("127.0.0.1:0".parse().unwrap(), NfsConfig::default()).await.unwrap();
    server.set_exports(vec![export(&first.volume, "/tank", 1, everybody(Squash::None))]);
    let addr = server.local_addr();
    tokio::spawn(server.serve(first.shutdown.clone()));
    assert!(Client::connect(addr).await.getattr(&file).await.is_ok());
}

#[tokio::test]
async fn a_retry_is_answered_from_memory() {
    let server = Server::start().await;
    let mut c = server.mounted().await;
    let root = c.root.clone();
    c.make(Proc::Create, &root, b"f", 0o644).await.unwrap();
    let remove = c.encode(77, NFS_PROGRAM, 3, Proc::Remove as u32, &name_args(&root, b"f"));
    c.stream.write_all(&remove).await.unwrap();
    let (_, first) = c.receive().await.unwrap();
    assert_eq!(first.status(), 0);
    let mut again = c.reconnected(server.addr).await;
    again.stream.write_all(&[&remove[..], &remove].concat()).await.unwrap();
    for _ in 0..2 {
        let (xid, retry) = again.receive().await.unwrap();
        assert_eq!((xid, retry.body), (77, first.body.clone()));
    }
    assert_eq!(server.handle.stats().replayed, 2);
    let other = again.encode(78, NFS_PROGRAM, 3, Proc::Remove as u32, &name_args(&root, b"f"));
    again.stream.write_all(&other).await.unwrap();
    assert_eq!(again.receive().await.unwrap().1.status(), 2, "another call finds it gone");
}

/// Two programs on one machine that count from the same number: what one does is not the other's retry.
#[tokio::test]
async fn clients_that_count_alike_are_told_apart() {
    let server = Server::start().await;
    let (mut a, mut b) = (server.mounted().await, server.mounted().await);
    let root = a.root.clone();
    let call = a.encode(7, NFS_PROGRAM, 3, Proc::Create as u32, &guarded_args(&root, b"one"));
    let mut outcomes = Vec::new();
    for first in [true, false, true] {
        let client = if first { &mut a } else { &mut b };
        client.stream.write_all(&call).await.unwrap();
        outcomes.push(client.receive().await.unwrap().1.status());
    }
    assert_eq!(outcomes, [0, 17, 0], "one made it, the other found it, and a retry is a retry");
    let mut later = server.client().await;
    later.stream.write_all(&call).await.unwrap();
    assert_eq!(later.receive().await.unwrap().1.status(), 17, "from another port it is carried out");

    // The same again from the start: the first run cleaned up after itself.
    let run = async |mut client: Client| {
        let mut outcomes = Vec::new();
        for (xid, proc) in [(21, Proc::Create), (22, Proc::Remove)] {
            let args = if proc == Proc::Create { guarded_args(&root, b"again") } else { name_args(&root, b"again") };
            let bytes = client.encode(xid, NFS_PROGRAM, 3, proc as u32, &args);
            client.stream.write_all(&bytes).await.unwrap();
            outcomes.push(client.receive().await.unwrap().1.status());
        }
        outcomes
    };
    for _ in 0..3 {
        assert_eq!(run(server.client().await).await, [0, 0]);
        assert_eq!(a.lookup(&root, b"again").await, Err(2), "it was made, and is gone");
    }
    assert_eq!(server.handle.stats().replayed, 1);
}

#[tokio::test]
async fn the_portmapper_knows_the_port() {
    let config = NfsConfig { portmapper: Some("127.0.0.1:0".parse().unwrap()), ..NfsConfig::default() };
    let server = Server::with(config).await;
    let addr = server.portmapper.unwrap();
    let get_port = |prog: u32, protocol: u32| args(|w| [prog, 3, protocol, 0].into_iter().for_each(|word| w.u32(word)));
    let mut c = Client::connect(addr).await;
    let port = server.addr.port();
    let own = [(PORTMAP_PROGRAM, 6, 111), (PORTMAP_PROGRAM, 17, 111)];
    let files = [(NFS_PROGRAM, 6, port), (MOUNT_PROGRAM, 6, port), (NFS_PROGRAM, 17, 0), (7, 6, 0)];
    for (prog, protocol, port) in own.into_iter().chain(files) {
        let answer = c.rpc(PORTMAP_PROGRAM, 2, 3, &get_port(prog, protocol)).await;
        assert_eq!(answer.status(), u32::from(port));
    }
    assert_eq!(c.rpc(PORTMAP_PROGRAM, 5, 3, b"").await.accept, 2);
    assert_eq!(c.rpc(PORTMAP_PROGRAM, 4, 3, b"").await.accept, 4, "a question without words");
    assert_eq!(c.rpc(PORTMAP_PROGRAM, 2, 4, b"").await.body.len(), 10 * 20 + 4);
    assert_eq!(c.rpc(NFS_PROGRAM, 3, 0, b"").await.accept, 1, "files are served elsewhere");

    let udp = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    udp.send_to(&call(3, PORTMAP_PROGRAM, 2, 3, None, &get_port(NFS_PROGRAM, 6)), addr).await.unwrap();
    let mut buf = [0; 512];
    let (len, _) = udp.recv_from(&mut buf).await.unwrap();
    let mut r = Reader::new(&buf[..len]);
    assert_eq!(r.u32().unwrap(), 3);
    r.skip(20).unwrap();
    assert_eq!(r.u32().unwrap(), u32::from(server.addr.port()));
}
