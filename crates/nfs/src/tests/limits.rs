//! Bad input, slow and idle clients, and the end.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::super::NfsConfig;
use super::super::proto::Proc;
use super::client::*;
use super::{PANICS, PANICS_LATER};

/// Whether the server ends the connection, whatever it says before.
async fn is_closed(c: &mut Client) -> bool {
    let mut rest = Vec::new();
    let read = tokio::time::timeout(Duration::from_secs(5), c.stream.read_to_end(&mut rest)).await;
    read.is_ok()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn garbage_ends_its_connection_and_no_other() {
    let server = Server::start().await;
    let mut good = server.mounted().await;
    let garbage: [&[u8]; 6] = [
        b"GET / HTTP/1.1\r\n\r\n",
        &[0xff; 4096],
        &[0x80, 0, 0, 8, 1, 2, 3, 4, 5, 6, 7, 8],
        &[0; 400],
        &[0x7f, 0xff, 0xff, 0xff],
        b"\x80\x00\x00\x04SSH-",
    ];
    for bytes in garbage {
        let mut bad = server.client().await;
        bad.stream.write_all(bytes).await.unwrap();
        assert!(is_closed(&mut bad).await, "{:?}", &bytes[..4]);
        let root = good.root.clone();
        assert!(good.getattr(&root).await.is_ok());
    }
    assert!(server.handle.stats().connections_dropped >= 6);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panic_ends_its_connection_and_no_other() {
    let server = Server::start().await;
    let mut good = server.mounted().await;
    let root = good.root.clone();
    for name in [PANICS, PANICS_LATER] {
        // A call that may get a task of its own, and one that stays with its connection.
        for (proc, args) in [(Proc::Lookup, name_args(&root, name)), (Proc::Create, guarded_args(&root, name))] {
            let mut bad = server.mounted().await;
            bad.send(proc, &args).await;
            assert!(is_closed(&mut bad).await, "{proc:?} {name:?}");
            good.getattr(&root).await.unwrap();
        }
    }
    // The client connects again, and what it asks for next is carried out.
    let mut again = server.mounted().await;
    let file = again.make(Proc::Create, &root, b"f", 0o644).await.unwrap();
    again.write(&file, 0, b"content", 2).await.unwrap();
    assert_eq!(good.read(&file, 0, 10).await.unwrap().0, b"content");
    drop(again);
    for _ in 0..500 {
        if server.handle.stats().connections_open == 1 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{} connections are counted as open", server.handle.stats().connections_open);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_and_half_calls_disturb_nobody() {
    let server = Server::start().await;
    let mut waiting = Vec::new();
    for i in 0..200 {
        let mut idle = server.client().await;
        if i % 2 == 0 {
            idle.stream.write_all(&[0x80, 0, 4, 0, 1, 2, 3]).await.unwrap();
        }
        waiting.push(idle);
    }
    let mut c = server.mounted().await;
    let root = c.root.clone();
    for _ in 0..100 {
        c.getattr(&root).await.unwrap();
    }
    assert_eq!(server.handle.stats().connections_open, 201);
    drop(waiting);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_does_not_read_is_not_fed() {
    let config = NfsConfig { requests_max: 8, connection_bytes_max: 4 << 20, ..NfsConfig::default() };
    let server = Server::with(config).await;
    let mut c = server.mounted().await;
    let root = c.root.clone();
    let file = c.make(Proc::Create, &root, b"f", 0o644).await.unwrap();
    c.write(&file, 0, &vec![7; 1 << 20], 2).await.unwrap();
    for _ in 0..200 {
        c.send(Proc::Read, &read_args(&file, 0, 1 << 20)).await;
    }
    tokio::time::sleep(Duration::from_millis(300)).await;
    // 4 MiB and one call beyond, and what the kernel's buffers took.
    let fed = server.handle.stats().read_bytes;
    assert!(fed < 40 << 20, "{fed}");
    let mut other = server.mounted().await;
    assert_eq!(other.read(&file, 0, 10).await.unwrap().0, [7; 10]);
    for _ in 0..200 {
        assert_eq!(read_result(&c.receive().await.unwrap().1).unwrap().0.len(), 1 << 20);
    }
}

#[tokio::test]
async fn too_many_connections_are_refused() {
    let server = Server::with(NfsConfig { connections_max: 3, ..NfsConfig::default() }).await;
    let mut held = Vec::new();
    for _ in 0..3 {
        held.push(server.mounted().await);
    }
    assert!(is_closed(&mut server.client().await).await);
    assert_eq!(server.handle.stats().connections_refused, 1);
    held.pop();
    tokio::time::sleep(Duration::from_millis(200)).await;
    server.mounted().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shutdown_lets_calls_finish() {
    let server = Server::start().await;
    let mut c = server.mounted().await;
    let root = c.root.clone();
    for i in 0..50u32 {
        c.send(
            Proc::MkDir,
            &args(|w| {
                w.opaque(&root);
                w.opaque(format!("d{i}").as_bytes());
                sattr(w, Some(0o755), None);
            }),
        )
        .await;
    }
    c.receive().await.unwrap();
    server.shutdown.cancel();
    tokio::time::timeout(Duration::from_secs(8), server.serving).await.unwrap().unwrap();
    while let Ok((_, answer)) = c.receive().await {
        assert_eq!(answer.status(), 0);
    }
}

/// A call's future is moved once per call, so large states belong behind a box.
#[test]
fn futures_are_small() {
    fn size<A, F: Future>(_: impl FnOnce(A) -> F) -> usize {
        size_of::<F>()
    }
    let work = size(super::super::session::Work::run);
    assert!(work <= 2688, "{work}");
}
