//! A longer way to an S3 server: `larder-test-bucket via PORT HOST:PORT [latency_ms=20]`.
//!
//! Bytes are passed on as they are, half the latency later in each direction. So signatures stay valid, the line has no limit of its
//! own, and any client can be measured on any server. Connections are made without delay, unlike over a real line.
//!
//! `GET /_counts` tells the requests so far, `POST /_reset` forgets them, `POST /_faults?latency_ms=5` changes the latency.
//!
//! - `via.one_request_a_turn`: clients of HTTP/1.1 send a request when they have the whole answer to the one before. So the first
//!   bytes that follow an answer are the head of the next request.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::Instant;

const CHUNK_BYTES: usize = 256 << 10;
/// Of one direction of one connection: 16 MiB are on the line at most.
const CHUNKS_MAX: usize = 64;
const METHODS: [&str; 5] = ["DELETE", "GET", "HEAD", "POST", "PUT"];

pub struct Via {
    target: String,
    latency_ms: AtomicU64,
    counts: Mutex<BTreeMap<String, u64>>,
}

impl Via {
    pub fn new(target: &str) -> Self {
        Self { target: target.to_owned(), latency_ms: AtomicU64::new(0), counts: Mutex::default() }
    }

    pub fn set(&self, name: &str, value: &str) {
        if name == "latency_ms" {
            self.latency_ms.store(value.parse().unwrap_or(0), Ordering::Relaxed);
        }
    }

    pub async fn serve(self: Arc<Self>, listener: TcpListener) {
        loop {
            let Ok((client, _)) = listener.accept().await else { continue };
            let via = Arc::clone(&self);
            tokio::spawn(async move { via.connect(client).await });
        }
    }

    async fn connect(self: Arc<Self>, mut client: TcpStream) -> std::io::Result<()> {
        client.set_nodelay(true)?;
        let mut first = vec![0; CHUNK_BYTES];
        let length = client.read(&mut first).await?;
        first.truncate(length);
        if let Some(rest) = path_of(&first).filter(|path| path.starts_with("/_")) {
            return client.write_all(self.control(rest).as_bytes()).await;
        }
        let server = TcpStream::connect(&self.target).await?;
        server.set_nodelay(true)?;
        let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
        // Whether the next bytes of the client begin a request.
        let is_turn = Arc::new(AtomicBool::new(true));
        let (turn, via) = (Arc::clone(&is_turn), Arc::clone(&self));
        let up = pass(Arc::clone(&self), first, from_client, to_server, move |bytes| {
            if turn.swap(false, Ordering::AcqRel) {
                via.count(bytes);
            }
        });
        let down = pass(Arc::clone(&self), Vec::new(), from_server, to_client, move |bytes| {
            if !bytes.starts_with(b"HTTP/1.1 100") {
                is_turn.store(true, Ordering::Release);
            }
        });
        tokio::join!(up, down);
        Ok(())
    }

    fn count(&self, head: &[u8]) {
        let Some(method) = METHODS.iter().find(|method| head.starts_with(method.as_bytes())) else { return };
        let path = path_of(head).unwrap_or("");
        let has = |name: &str| path.split(['?', '&']).skip(1).any(|pair| pair.split('=').next() == Some(name));
        let kind = match *method {
            "GET" if has("list-type") || has("prefix") || has("delimiter") || has("max-keys") => "list",
            "GET" => "get",
            "HEAD" => "head",
            "PUT" => "put",
            "DELETE" => "delete",
            _ if has("delete") => "delete",
            _ => "post",
        };
        *self.counts.lock().entry(kind.to_owned()).or_default() += 1;
    }

    fn control(&self, path: &str) -> String {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        match path {
            "/_faults" => query.split('&').filter_map(|pair| pair.split_once('=')).for_each(|(n, v)| self.set(n, v)),
            "/_reset" => self.counts.lock().clear(),
            _ => {}
        }
        let counts: Vec<String> = self.counts.lock().iter().map(|(kind, n)| format!("\"{kind}\":{n}")).collect();
        let body = format!("{{{}}}", counts.join(","));
        format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}", body.len())
    }
}

/// The path of a request whose head begins here.
fn path_of(head: &[u8]) -> Option<&str> {
    let line = head.split(|byte| *byte == b'\r').next()?;
    std::str::from_utf8(line).ok()?.split(' ').nth(1)
}

/// One direction of a connection, until its end.
async fn pass(
    via: Arc<Via>,
    first: Vec<u8>,
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut seen: impl FnMut(&[u8]) + Send,
) {
    let (sender, mut receiver) = mpsc::channel::<(Instant, Vec<u8>)>(CHUNKS_MAX);
    let due = |via: &Via| Instant::now() + Duration::from_millis(via.latency_ms.load(Ordering::Relaxed)) / 2;
    let read = async move {
        let mut chunk = first;
        loop {
            if !chunk.is_empty() {
                seen(&chunk);
                if sender.send((due(&via), chunk)).await.is_err() {
                    return;
                }
            }
            chunk = Vec::with_capacity(CHUNK_BYTES);
            if !matches!(from.read_buf(&mut chunk).await, Ok(1..)) {
                return;
            }
        }
    };
    let write = async move {
        while let Some((due, chunk)) = receiver.recv().await {
            tokio::time::sleep_until(due).await;
            if to.write_all(&chunk).await.is_err() {
                return;
            }
        }
        let _ = to.shutdown().await;
    };
    tokio::join!(read, write);
}
