//! The end that is watched.

use std::io::{ErrorKind, Write};
use std::net::{Ipv4Addr, Ipv6Addr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::lines::{LineError, Lines};
use super::sound::thinned;
use super::{AT_MS_MAX, Answer, Ask, Hello, MAGIC, POLL, REQUEST_BYTES_MAX, Request, VERSION};
use crate::Machine;
use larder_facts::about;
use larder_facts::sampler::Sampler;
use larder_load::BenchError;

/// Several benches may watch at once; each costs a look twice a second.
const CONNECTIONS_MAX: usize = 16;
/// Whoever does not say within this who he is, is a port scanner.
const HELLO_TIME_MAX: Duration = Duration::from_secs(5);
/// Between two requests lies a repeat: as long as looks are kept for.
const SILENCE_TIME_MAX: Duration = Duration::from_secs(3600);
const SEND_TIME_MAX: Duration = Duration::from_secs(20);
/// A look and a rest for each repeat.
const REQUESTS_MAX: usize = 1000;

pub(in super::super) struct Listener {
    listener: TcpListener,
    live: AtomicUsize,
}

impl Listener {
    pub(in super::super) fn bind(port: u16) -> Result<Self, BenchError> {
        // Both families where the machine has both.
        let listener = TcpListener::bind((Ipv6Addr::UNSPECIFIED, port))
            .or_else(|error| match error.kind() {
                ErrorKind::AddrInUse | ErrorKind::PermissionDenied => Err(error),
                _ => TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)),
            })
            .and_then(|listener| listener.set_nonblocking(true).map(|()| listener));
        let listener = listener.map_err(|e| {
            let what = format!("cannot offer this machine's samples on port {port}: {e}");
            BenchError::invalid(what, "choose another with --samples-port PORT, here and at the end that measures")
        })?;
        Ok(Self { listener, live: AtomicUsize::new(0) })
    }

    /// Until it is over.
    pub(in super::super) fn serve(&self, machine: &Machine, over: &(dyn Fn() -> bool + Sync)) {
        std::thread::scope(|scope| {
            while !over() {
                match self.listener.accept() {
                    Ok((stream, _)) if self.live.load(Ordering::Acquire) >= CONNECTIONS_MAX => refuse(stream),
                    Ok((stream, _)) => {
                        self.live.fetch_add(1, Ordering::AcqRel);
                        scope.spawn(|| {
                            // Whoever it was has gone, or is told what was wrong: nothing to do here.
                            let _ = converse(machine, stream, over);
                            self.live.fetch_sub(1, Ordering::AcqRel);
                        });
                    }
                    Err(_) => std::thread::sleep(POLL),
                }
            }
        });
    }

    #[cfg(test)]
    pub(super) fn port(&self) -> u16 {
        self.listener.local_addr().unwrap().port()
    }
}

fn refuse(stream: TcpStream) {
    let text = format!("{{\"error\":\"{CONNECTIONS_MAX} benches watch this machine already\"}}\n");
    let _ = stream.set_nonblocking(true);
    let _ = (&stream).write(text.as_bytes());
}

fn converse(machine: &Machine, stream: TcpStream, over: &(dyn Fn() -> bool + Sync)) -> Result<(), LineError> {
    let mut lines = Lines::new(stream, over)?;
    let hello: Hello = lines.read(REQUEST_BYTES_MAX, HELLO_TIME_MAX)?;
    if hello.magic != MAGIC {
        return Err(LineError::Nonsense);
    }
    let at = Duration::from_millis(hello.at_ms.min(AT_MS_MAX));
    let Some(began) = Instant::now().checked_sub(at).filter(|_| hello.version == VERSION) else {
        let text = format!("larder {} speaks version {VERSION} of this", env!("CARGO_PKG_VERSION"));
        return wrong(&mut lines, &text);
    };
    let welcome = Answer {
        magic: MAGIC.to_owned(),
        version: Some(VERSION),
        larder: env!("CARGO_PKG_VERSION").to_owned(),
        machine: Some(about::facts(machine)),
        ..Answer::default()
    };
    lines.write(&welcome, SEND_TIME_MAX)?;
    let sampler = Sampler::start(machine, began, None);
    for _ in 0..REQUESTS_MAX {
        match lines.read(REQUEST_BYTES_MAX, SILENCE_TIME_MAX) {
            Ok(Request { ask: Ask::Look }) => sampler.look(),
            Ok(Request { ask: Ask::Rest }) => sampler.rest(),
            Ok(Request { ask: Ask::Samples }) => {
                let samples = Some(thinned(sampler.end()));
                return lines.write(&Answer { samples, ..Answer::default() }, SEND_TIME_MAX);
            }
            Err(LineError::Nonsense) => return wrong(&mut lines, "that is no request"),
            Err(error) => return Err(error),
        }
        lines.write(&Answer { done: true, ..Answer::default() }, SEND_TIME_MAX)?;
    }
    wrong(&mut lines, "that were too many requests")
}

fn wrong(lines: &mut Lines, text: &str) -> Result<(), LineError> {
    lines.write(&Answer { error: Some(text.to_owned()), ..Answer::default() }, SEND_TIME_MAX)
}
