//! Lines of JSON over TCP: bounded in length and in time, and given up as soon as nobody wants them any more (`far.no_trust`).

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::POLL;

const CHUNK_BYTES: usize = 16 << 10;
/// An end that lost its power says nothing: after this, and three questions more, its kernel is taken for gone.
const KEEPALIVE: Duration = Duration::from_secs(30);

#[derive(Debug, thiserror::Error)]
pub(in super::super) enum LineError {
    #[error("it closed the connection")]
    Closed,
    #[error("it did not answer within {} s", .0.as_secs())]
    Late(Duration),
    #[error("it sent more than {0} bytes in a line")]
    TooLong(usize),
    #[error("what it sent is not understood")]
    Nonsense,
    #[error("nobody waits any more")]
    Over,
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

pub(super) struct Lines<'a> {
    stream: TcpStream,
    /// Bytes received after the last line.
    rest: Vec<u8>,
    over: &'a (dyn Fn() -> bool + Sync),
}

impl<'a> Lines<'a> {
    pub(super) fn new(stream: TcpStream, over: &'a (dyn Fn() -> bool + Sync)) -> Result<Self, LineError> {
        stream.set_nonblocking(false)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(POLL))?;
        stream.set_write_timeout(Some(POLL))?;
        use rustix::net::sockopt;
        let lasting = sockopt::set_socket_keepalive(&stream, true)
            .and_then(|()| sockopt::set_tcp_keepidle(&stream, KEEPALIVE))
            .and_then(|()| sockopt::set_tcp_keepintvl(&stream, KEEPALIVE / 3))
            .and_then(|()| sockopt::set_tcp_keepcnt(&stream, 3));
        lasting.map_err(std::io::Error::from)?;
        Ok(Self { stream, rest: Vec::new(), over })
    }

    pub(super) fn read<T: DeserializeOwned>(&mut self, bytes_max: usize, time_max: Duration) -> Result<T, LineError> {
        let end = Instant::now() + time_max;
        let mut seen = 0;
        let mut chunk = [0u8; CHUNK_BYTES];
        let length = loop {
            let fresh = self.rest.get(seen..).unwrap_or_default();
            if let Some(at) = fresh.iter().position(|b| *b == b'\n') {
                break seen + at;
            }
            seen = self.rest.len();
            if seen > bytes_max {
                return Err(LineError::TooLong(bytes_max));
            }
            self.go_on(end, time_max)?;
            match self.stream.read(&mut chunk) {
                Ok(0) => return Err(LineError::Closed),
                Ok(count) => self.rest.extend_from_slice(chunk.get(..count).unwrap_or_default()),
                Err(error) => waits(error)?,
            }
        };
        if length > bytes_max {
            return Err(LineError::TooLong(bytes_max));
        }
        let line: Vec<u8> = self.rest.drain(..=length).collect();
        serde_json::from_slice(&line).map_err(|_| LineError::Nonsense)
    }

    pub(super) fn write(&mut self, value: &impl Serialize, time_max: Duration) -> Result<(), LineError> {
        let mut line = serde_json::to_vec(value).map_err(|_| LineError::Nonsense)?;
        line.push(b'\n');
        let end = Instant::now() + time_max;
        let mut left = line.as_slice();
        while !left.is_empty() {
            self.go_on(end, time_max)?;
            match self.stream.write(left.get(..CHUNK_BYTES).unwrap_or(left)) {
                Ok(0) => return Err(LineError::Closed),
                Ok(count) => left = left.get(count..).unwrap_or_default(),
                Err(error) => waits(error)?,
            }
        }
        Ok(())
    }

    fn go_on(&self, end: Instant, time_max: Duration) -> Result<(), LineError> {
        match ((self.over)(), Instant::now() < end) {
            (true, _) => Err(LineError::Over),
            (_, false) => Err(LineError::Late(time_max)),
            _ => Ok(()),
        }
    }
}

/// Whether to try again.
fn waits(error: std::io::Error) -> Result<(), LineError> {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted => Ok(()),
        ErrorKind::ConnectionReset | ErrorKind::BrokenPipe | ErrorKind::ConnectionAborted => Err(LineError::Closed),
        _ => Err(error.into()),
    }
}
