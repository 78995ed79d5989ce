//! As much HTTP as a plug speaks: one GET, answered by a small JSON text (RFC 9112).

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::error::HttpError;
use super::login::Credentials;

/// A plug on the same network answers in milliseconds; one that is gone must not hold up a reading.
const TIMEOUT: Duration = Duration::from_secs(3);
/// And one that says a little now and then no longer than this.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(8);
const ANSWER_BYTES_MAX: u64 = 64 << 10;

/// `address`: HOST or HOST:PORT.
///
/// The password is proved only to a plug that asks for it.
pub(super) fn get_json(address: &str, path: &str, credentials: Option<&Credentials>) -> Result<Value, HttpError> {
    let exchange = |authorization: Option<&str>| {
        let answer = exchange(address, path, authorization).map_err(|e| HttpError::Unreachable(e.to_string()))?;
        Answer::parse(&answer)
    };
    let mut answer = exchange(None)?;
    if let (401, Some(credentials)) = (answer.status, credentials) {
        answer = exchange(Some(&credentials.answer(&answer.all("www-authenticate"), path)?))?;
    }
    match (answer.status, credentials) {
        (200, _) => serde_json::from_slice(&answer.body).map_err(|_| HttpError::NotUnderstood("it is no JSON")),
        (401, None) => Err(HttpError::Locked),
        (401, Some(_)) => Err(HttpError::WrongPassword),
        (code, _) => Err(HttpError::Status(code)),
    }
}

/// A value within a query (RFC 3986, 2.1).
pub(super) fn escaped(text: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-._~".contains(&b);
    text.bytes().map(|b| if plain(b) { char::from(b).to_string() } else { format!("%{b:02X}") }).collect()
}

fn exchange(address: &str, path: &str, authorization: Option<&str>) -> io::Result<Vec<u8>> {
    let mut stream = connect(address, 80)?;
    // Host and path come from the configuration: a line break in them would be a second header.
    let clean = |text: &str| text.chars().filter(|c| !c.is_control()).collect::<String>();
    let authorization = authorization.map_or(String::new(), |value| format!("Authorization: {}\r\n", clean(value)));
    let request = format!(
        "GET {} HTTP/1.1\r\nHost: {}\r\nAccept: application/json\r\n{authorization}Connection: close\r\n\r\n",
        clean(path),
        clean(address)
    );
    stream.write_all(request.as_bytes())?;
    let (mut timed, mut answer, mut part) = (TimedStream::new(stream), Vec::new(), [0; 4096]);
    // Some keep the connection, whatever they were asked for.
    while !is_whole(&answer) {
        match timed.read(&mut part)? {
            0 => break,
            n => answer.extend_from_slice(part.get(..n).unwrap_or_default()),
        }
        if answer.len() as u64 > ANSWER_BYTES_MAX {
            return Err(io::Error::other("its answer has no end"));
        }
    }
    Ok(answer)
}

/// Whether an answer says itself where it ends, and has come so far.
fn is_whole(answer: &[u8]) -> bool {
    let ends =
        |a: Answer| a.status != 200 || !a.all("content-length").is_empty() || !a.all("transfer-encoding").is_empty();
    Answer::parse(answer).is_ok_and(ends)
}

/// A connection whose answer has to be complete in time.
pub(super) struct TimedStream {
    stream: TcpStream,
    until: Instant,
}

impl TimedStream {
    pub(super) fn new(stream: TcpStream) -> Self {
        Self { stream, until: Instant::now() + ANSWER_TIME_MAX }
    }
}

impl Read for TimedStream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let left = self.until.saturating_duration_since(Instant::now()).min(TIMEOUT);
        let late = || io::Error::new(io::ErrorKind::TimedOut, "it does not answer in time");
        if left.is_zero() {
            return Err(late());
        }
        self.stream.set_read_timeout(Some(left))?;
        self.stream.read(into).map_err(|e| match e.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => late(),
            _ => e,
        })
    }
}

/// A connection with time-outs, to HOST or HOST:PORT.
pub(super) fn connect(address: &str, port: u16) -> io::Result<TcpStream> {
    let has_port =
        address.rsplit_once(':').is_some_and(|(host, port)| !host.ends_with(':') && port.parse::<u16>().is_ok());
    let full = if has_port { address.to_owned() } else { format!("{address}:{port}") };
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for socket in full.to_socket_addrs()?.take(4) {
        match TcpStream::connect_timeout(&socket, TIMEOUT) {
            Ok(stream) => {
                stream.set_read_timeout(Some(TIMEOUT))?;
                stream.set_write_timeout(Some(TIMEOUT))?;
                return Ok(stream);
            }
            Err(e) => last = e,
        }
    }
    Err(last)
}

struct Answer {
    status: u16,
    /// Names in small letters.
    headers: Vec<(String, String)>,
    /// Chunks are put together.
    body: Vec<u8>,
}

impl Answer {
    /// A complete one.
    fn parse(answer: &[u8]) -> Result<Self, HttpError> {
        let end = answer.windows(4).position(|w| w == b"\r\n\r\n");
        let end = end.ok_or(HttpError::NotUnderstood("its header does not end"))?;
        let head = String::from_utf8_lossy(answer.get(..end).unwrap_or_default()).into_owned();
        let rest = answer.get(end + 4..).unwrap_or_default();
        let mut lines = head.split("\r\n");
        let status = lines.next().and_then(|line| line.split(' ').nth(1)).and_then(|code| code.parse::<u16>().ok());
        let status = status.ok_or(HttpError::NotUnderstood("it is no HTTP"))?;
        let headers: Vec<(String, String)> = lines
            .filter_map(|line| line.split_once(':'))
            .map(|(name, value)| (name.to_lowercase(), value.trim().to_owned()))
            .collect();
        let header = |name: &str| headers.iter().find(|(n, _)| n == name).map(|(_, value)| value.to_lowercase());
        let body = if status != 200 {
            Vec::new()
        } else if header("transfer-encoding").is_some_and(|v| v.contains("chunked")) {
            unchunked(rest).ok_or(HttpError::NotUnderstood("its chunks are cut off"))?
        } else {
            match header("content-length").and_then(|v| v.parse::<usize>().ok()) {
                Some(length) => rest.get(..length).ok_or(HttpError::NotUnderstood("it is cut off"))?.to_vec(),
                None => rest.to_vec(),
            }
        };
        Ok(Self { status, headers, body })
    }

    fn all(&self, name: &str) -> Vec<&str> {
        self.headers.iter().filter(|(n, _)| n == name).map(|(_, value)| value.as_str()).collect()
    }
}

#[cfg(any(test, fuzzing))]
pub(super) fn fuzz_answer(data: &[u8]) {
    use super::login::Scheme;
    let _ = is_whole(data);
    let Ok(answer) = Answer::parse(data) else { return };
    assert!(answer.body.len() <= data.len());
    let _ = serde_json::from_slice::<Value>(&answer.body);
    for scheme in [Scheme::Basic, Scheme::Digest] {
        let credentials = Credentials { scheme, user: "admin", password: "secret" };
        if let Ok(said) = credentials.answer(&answer.all("www-authenticate"), "/rpc") {
            assert!(!said.contains(char::is_control), "it would be a header of its own");
        }
    }
}

/// RFC 9112, 7.1.
fn unchunked(mut rest: &[u8]) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let line = rest.windows(2).position(|w| w == b"\r\n")?;
        let size = std::str::from_utf8(rest.get(..line)?).ok()?;
        let size = usize::from_str_radix(size.split(';').next()?.trim(), 16).ok()?;
        rest = rest.get(line + 2..)?;
        if size == 0 {
            return Some(body);
        }
        body.extend_from_slice(rest.get(..size)?);
        rest = rest.get(size.checked_add(2)?..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Says its parts with pauses between them, and keeps the connection.
    fn plug(parts: &'static [&'static str], pause: Duration, times: usize) -> String {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.read(&mut [0; 4096]);
            for part in parts.iter().cycle().take(parts.len() * times) {
                if stream.write_all(part.as_bytes()).is_err() {
                    return;
                }
                std::thread::sleep(pause);
            }
            std::thread::sleep(Duration::from_secs(60));
        });
        address
    }

    #[test]
    fn slow_plugs_are_waited_for_and_endless_ones_are_not() {
        let begin = Instant::now();
        let parts = &["HTTP/1.1 200 OK\r\nContent-Length: 13\r\n\r\n", "{\"power\":", "4.5}"];
        let found = get_json(&plug(parts, Duration::from_millis(200), 1), "/", None).unwrap();
        assert_eq!(found["power"], 4.5);
        assert!(begin.elapsed() < Duration::from_secs(3), "the connection is kept, and the answer whole");
        let error = get_json(&plug(&["x"], Duration::from_millis(500), 60), "/", None).unwrap_err();
        assert!(error.to_string().contains("does not answer in time"), "{error}");
        assert!(begin.elapsed() < Duration::from_secs(15));
    }

    #[test]
    fn answers_of_all_three_shapes_are_read() {
        let text = |answer: &str| {
            let answer = Answer::parse(answer.as_bytes()).map_err(|e| e.to_string())?;
            if answer.status == 200 { Ok(String::from_utf8(answer.body).unwrap()) } else { Err(String::new()) }
        };
        let check = |answer: &str, found: &str| assert_eq!(text(answer).as_deref(), Ok(found), "{answer:?}");
        check("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}\r\n", "{}");
        check("HTTP/1.0 200 OK\r\n\r\n{}", "{}");
        check(
            "HTTP/1.1 200 OK\r\ntransfer-encoding: Chunked\r\n\r\n3\r\n{\"a\r\n4;x=y\r\n\":1}\r\n0\r\n\r\n",
            "{\"a\":1}",
        );
        for bad in [
            "",
            "x\r\n\r\n",
            "HTTP/1.1 200 OK\r\n",
            "HTTP/1.1 500 Oops\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n{}",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{}",
        ] {
            assert!(text(bad).is_err(), "{bad:?}");
        }
        assert_eq!(escaped("a b&c=ü/~"), "a%20b%26c%3D%C3%BC%2F~");
    }
}
