//! Bulk data: many large calls in flight, odd sizes, odd fragments.

use std::collections::HashMap;

use tokio::io::AsyncWriteExt;

use super::super::proto::{NFS_PROGRAM, Proc};
use super::client::*;

/// Bytes that are different at every offset.
fn pattern(offset: u64, len: usize) -> Vec<u8> {
    (offset..offset + len as u64).map(|at| (at.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_large_calls_in_flight() {
    const STEP: usize = (1 << 20) - 4096 + 13;
    const CALLS: u64 = 48;
    let server = Server::start().await;
    let mut c = server.mounted().await;
    let root = c.root.clone();
    let file = c.make(Proc::Create, &root, b"big", 0o644).await.unwrap();
    for i in 0..CALLS {
        let offset = i * STEP as u64;
        c.send(Proc::Write, &write_args(&file, offset, &pattern(offset, STEP), 0)).await;
    }
    for _ in 0..CALLS {
        assert_eq!(c.receive().await.unwrap().1.status(), 0);
    }
    assert_eq!(c.nfs(Proc::Commit, &read_args(&file, 0, 0)).await.status(), 0);
    let mut wanted = HashMap::new();
    for i in 0..CALLS {
        let offset = i * STEP as u64;
        wanted.insert(c.send(Proc::Read, &read_args(&file, offset, STEP as u32)).await, offset);
    }
    for _ in 0..CALLS {
        let (xid, answer) = c.receive().await.unwrap();
        let (data, _) = read_result(&answer).unwrap();
        assert!(data == pattern(wanted.remove(&xid).unwrap(), STEP));
    }
}

#[tokio::test]
async fn writes_in_fragments_and_of_odd_sizes() {
    let server = Server::start().await;
    let mut c = server.mounted().await;
    let root = c.root.clone();
    let file = c.make(Proc::Create, &root, b"odd", 0o644).await.unwrap();
    for (i, size) in [1usize, 3, 4095, 16_384, 16_385, 70_001, 262_143, 1 << 20].into_iter().enumerate() {
        let data = pattern(i as u64, size);
        let message = c.encode(500 + i as u32, NFS_PROGRAM, 3, Proc::Write as u32, &write_args(&file, 0, &data, 2));
        let body = &message[4..];
        let mut parts = body.chunks(body.len() / 3 + 1).peekable();
        while let Some(part) = parts.next() {
            let last = if parts.peek().is_none() { 1u32 << 31 } else { 0 };
            c.stream.write_all(&(part.len() as u32 | last).to_be_bytes()).await.unwrap();
            c.stream.write_all(part).await.unwrap();
        }
        assert_eq!(c.receive().await.unwrap().1.status(), 0);
        assert_eq!(c.read(&file, 0, size as u32).await.unwrap().0, data, "in fragments, {size}");
        assert_eq!(c.write(&file, 7, &data, 0).await.unwrap().0 as usize, size);
        assert_eq!(c.read(&file, 7, size as u32).await.unwrap().0, data, "whole, {size}");
    }
    let short = args(|w| {
        w.opaque(&file);
        w.u64(0);
        w.u32(10);
        w.u32(2);
        w.opaque(b"1234");
    });
    assert_eq!(c.nfs(Proc::Write, &short).await.status(), 22, "more announced than sent");
    assert_eq!(c.write(&file, u64::MAX - 5, b"0123456789", 0).await, Err(27));
    assert_eq!(c.write(&file, 0, b"", 2).await.unwrap().0, 0);
    assert_eq!(c.read(&file, u64::MAX, 10).await.unwrap(), (vec![], true));
}
