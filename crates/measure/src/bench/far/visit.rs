//! The end that watches.

use std::net::{IpAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

use super::super::result::{FarMachine, Samples};
use super::lines::{LineError, Lines};
use super::{ANSWER_BYTES_MAX, Answer, Ask, Hello, MAGIC, REQUEST_BYTES_MAX, Request, VERSION, sound};

const CONNECT_TIME_MAX: Duration = Duration::from_secs(3);
/// A name with more addresses than this is not a home's.
const ADDRESSES_MAX: usize = 4;
/// Of a short answer; a wire that is full makes it wait a little.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(5);
const SAMPLES_TIME_MAX: Duration = Duration::from_secs(20);
/// The facts of a machine are a line.
const WELCOME_BYTES_MAX: usize = 16 << 10;

#[derive(Debug, thiserror::Error)]
pub(in super::super) enum FarError {
    #[error("{0}")]
    Unreachable(std::io::Error),
    #[error("its name has no address")]
    NoAddress,
    #[error("{0}")]
    Line(#[from] LineError),
    #[error("it says: {0}")]
    Refused(String),
    #[error("{0}")]
    Unsound(&'static str),
}

/// The other end of a bench, and what is known of it.
#[derive(Clone, Debug)]
pub struct FarEnd {
    pub name: String,
    pub port: u16,
}

/// One run, watched from here.
pub(in super::super) struct Visit {
    lines: Lines<'static>,
    from_ms: u64,
    pub(in super::super) machine: FarMachine,
}

impl Visit {
    /// `at_ms`: now, since the bench began (`far.near_clock`).
    pub(in super::super) fn begin(end: &FarEnd, at_ms: u64) -> Result<Self, FarError> {
        let mut lines = Lines::new(connected(end)?, &|| false)?;
        lines.write(&Hello { magic: MAGIC.to_owned(), version: VERSION, at_ms }, ANSWER_TIME_MAX)?;
        let answer = answer(&mut lines, WELCOME_BYTES_MAX, ANSWER_TIME_MAX)?;
        if answer.magic != MAGIC {
            return Err(FarError::Unsound("what answers is not larder"));
        }
        let told = answer.machine.unwrap_or_default();
        let machine = FarMachine {
            name: end.name.clone(),
            version: VERSION,
            larder: sound::name(&answer.larder),
            machine: sound::facts(&told),
        };
        Ok(Self { lines, from_ms: at_ms, machine })
    }

    pub(in super::super) fn look(&mut self) -> Result<(), FarError> {
        self.ask(Ask::Look)
    }

    pub(in super::super) fn rest(&mut self) -> Result<(), FarError> {
        self.ask(Ask::Rest)
    }

    /// The samples of the far end. `at_ms`: now.
    pub(in super::super) fn end(mut self, at_ms: u64) -> Result<Samples, FarError> {
        self.lines.write(&Request { ask: Ask::Samples }, ANSWER_TIME_MAX)?;
        let answer = answer(&mut self.lines, ANSWER_BYTES_MAX, SAMPLES_TIME_MAX)?;
        let samples = answer.samples.ok_or(FarError::Unsound("it sent no samples"))?;
        sound::sound(samples, self.from_ms, at_ms).map_err(FarError::Unsound)
    }

    fn ask(&mut self, ask: Ask) -> Result<(), FarError> {
        self.lines.write(&Request { ask }, ANSWER_TIME_MAX)?;
        let answer = answer(&mut self.lines, REQUEST_BYTES_MAX, ANSWER_TIME_MAX)?;
        if answer.done { Ok(()) } else { Err(LineError::Nonsense.into()) }
    }
}

fn answer(lines: &mut Lines, bytes_max: usize, time_max: Duration) -> Result<Answer, FarError> {
    let answer: Answer = lines.read(bytes_max, time_max)?;
    match answer.error {
        Some(text) => Err(FarError::Refused(sound::name(&text))),
        None => Ok(answer),
    }
}

fn connected(end: &FarEnd) -> Result<TcpStream, FarError> {
    let addresses = (end.name.as_str(), end.port).to_socket_addrs().map_err(FarError::Unreachable)?;
    let mut last = FarError::NoAddress;
    for address in addresses.take(ADDRESSES_MAX) {
        match TcpStream::connect_timeout(&address, CONNECT_TIME_MAX) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = FarError::Unreachable(error),
        }
    }
    Err(last)
}

/// By name or by address.
pub(in super::super) fn is_same_host(a: &str, b: &str) -> bool {
    let addresses = |host: &str| -> Vec<IpAddr> {
        (host, 0).to_socket_addrs().map(|all| all.take(ADDRESSES_MAX).map(|a| a.ip()).collect()).unwrap_or_default()
    };
    a.eq_ignore_ascii_case(b) || {
        let known = addresses(b);
        addresses(a).iter().any(|address| known.contains(address))
    }
}
