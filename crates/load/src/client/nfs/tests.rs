//! Against a server that forgets, is busy, and talks nonsense: what no real one does when asked.

use std::io::{Read, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::proto;
use super::xdr::{Reader, Writer};
use crate::Control;
use crate::client::{ClientError, ClientOptions, open};
use crate::workload::{Caches, Kind, RunLimits, Workload};

/// How it behaves, and what it saw.
#[derive(Default)]
struct Server {
    /// WRITEs so far that are to be answered with "busy".
    busy: u32,
    /// COMMIT shows another verifier than WRITE, once.
    forgets: bool,
    /// Every READ is answered with more data than was asked for.
    lies: bool,
    writes: Vec<(u64, u32)>,
    free_bytes: u32,
}

impl Server {
    fn answer(&mut self, program: u32, procedure: u32, mut r: Reader<'_>, w: &mut Writer) {
        let mut words = |words: &[u32]| words.iter().for_each(|word| w.u32(*word));
        match (program, procedure) {
            (100_005, proto::MNT) => words(&[0, 4, 7, 0]),
            (100_005, _) => {}
            // No attributes; sizes for reading and writing.
            (_, proto::FSINFO) => words(&[0, 0, 65536, 65536, 1, 65536, 65536, 1, 4096, 0, 0, 0, 1, 0]),
            (_, proto::FSSTAT) => words(&[0, 0, 1, 0, 1, 0, 0, self.free_bytes, 0, 0, 0, 0, 0, 0, 0]),
            (_, proto::LOOKUP) => words(&[0, 4, 7, 0, 0]),
            (_, proto::CREATE | proto::MKDIR) => words(&[0, 1, 4, 7, 0, 0, 0]),
            (_, proto::READDIRPLUS) => words(&[0, 0, 0, 0, 0, 1]),
            (_, proto::READ) if self.lies => words(&[0, 0, 1 << 30, 0, 1 << 30, 0]),
            (_, proto::WRITE) if self.busy > 0 => {
                self.busy -= 1;
                words(&[proto::JUKEBOX, 0, 0]);
            }
            (_, proto::WRITE) => {
                r.opaque(64).unwrap();
                let (offset, count, stable) = (r.u64().unwrap(), r.u32().unwrap(), r.u32().unwrap());
                self.writes.push((offset, stable));
                words(&[0, 0, 0, count, stable, 0, 1]);
            }
            (_, proto::COMMIT) => words(&[0, 0, 0, 0, if std::mem::take(&mut self.forgets) { 2 } else { 1 }]),
            _ => words(&[0, 0, 0]),
        }
    }
}

fn serve(mut stream: TcpStream, server: &Mutex<Server>) -> Option<()> {
    loop {
        let mut mark = [0; 4];
        stream.read_exact(&mut mark).ok()?;
        let mut record = vec![0; (u32::from_be_bytes(mark) & 0x7fff_ffff) as usize];
        stream.read_exact(&mut record).ok()?;
        let mut r = Reader(&record);
        let head: Vec<u32> = (0..6).map(|_| r.u32().unwrap()).collect();
        for _ in 0..2 {
            r.u32().unwrap();
            r.opaque(400).unwrap();
        }
        let mut w = Writer(Vec::new());
        [0, head[0], 1, 0, 0, 0, 0].into_iter().for_each(|word| w.u32(word));
        server.lock().unwrap().answer(head[3], head[5], r, &mut w);
        let mark = 1 << 31 | (w.0.len() - 4) as u32;
        w.0[..4].copy_from_slice(&mark.to_be_bytes());
        stream.write_all(&w.0).ok()?;
    }
}

fn start(server: Server) -> (String, Arc<Mutex<Server>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("nfs://{}/x", listener.local_addr().unwrap());
    let server = Arc::new(Mutex::new(server));
    let shared = server.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let shared = shared.clone();
            std::thread::spawn(move || serve(stream, &shared));
        }
    });
    (url, server)
}

fn run(url: &str, kind: Kind) -> Result<u64, ClientError> {
    let workload = Workload {
        kind,
        block_bytes: 65536,
        depth: 4,
        jobs: 1,
        data_bytes: 1 << 20,
        files: 1,
        caches: Caches::Unknown,
        compressible: false,
        synced: true,
    };
    let limits = RunLimits { warm_up: Duration::ZERO, measure_max: Duration::from_secs(20), again: false };
    let mut client = open(url, &ClientOptions::default())?;
    client.run(&workload, &limits, &Control::new(|_| ())).map(|repeat| repeat.bytes)
}

#[test]
fn what_a_server_forgot_is_written_again_to_stay() {
    let (url, server) = start(Server { forgets: true, ..Server::default() });
    assert_eq!(run(&url, Kind::Write).unwrap(), 1 << 20);
    let writes = server.lock().unwrap().writes.clone();
    let offsets = |stable| {
        let mut all: Vec<u64> = writes.iter().filter(|w| w.1 == stable).map(|w| w.0).collect();
        all.sort_unstable();
        all
    };
    let all: Vec<u64> = (0..16).map(|n| n * 65536).collect();
    assert_eq!((offsets(proto::UNSTABLE), offsets(proto::FILE_SYNC)), (all.clone(), all));
}

#[test]
fn a_server_that_remembers_is_not_bothered_again() {
    let (url, server) = start(Server::default());
    run(&url, Kind::Write).unwrap();
    assert!(server.lock().unwrap().writes.iter().all(|w| w.1 == proto::UNSTABLE));
}

#[test]
fn a_busy_server_is_asked_again() {
    let (url, server) = start(Server { busy: 3, ..Server::default() });
    assert_eq!(run(&url, Kind::Write).unwrap(), 1 << 20);
    assert_eq!(server.lock().unwrap().writes.len(), 16);
}

#[test]
fn a_server_that_lies_is_not_believed() {
    let (url, _server) = start(Server { lies: true, ..Server::default() });
    assert!(matches!(run(&url, Kind::Read), Err(ClientError::Protocol { .. })));
}

#[test]
fn a_server_is_not_filled() {
    for (free_bytes, fits) in [(2 << 20, true), ((2 << 20) - 1, false), (0, true)] {
        let (url, _server) = start(Server { free_bytes, ..Server::default() });
        let outcome = run(&url, Kind::Write);
        assert_eq!(matches!(outcome, Err(ClientError::NoSpace { .. })), !fits, "{free_bytes}: {outcome:?}");
    }
}
