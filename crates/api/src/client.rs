//! The client of a daemon: one connection per request, every answer bounded.

use std::convert::Infallible;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Body, Frame, Incoming};
use hyper::client::conn::http1::SendRequest;
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde::{Serialize, de::DeserializeOwned};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::{BODY_BYTES_MAX, Failure, FailureKind, STREAM_BYTES_HEADER, SocketPath};

/// A daemon that does not accept within this time hangs.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// A connection to a daemon.
pub trait Connection: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Connection for T {}

/// A connection that is being made.
pub type Connecting<'a> = Pin<Box<dyn Future<Output = io::Result<Box<dyn Connection>>> + Send + 'a>>;

/// The way to a daemon.
pub trait Connect: Send + Sync {
    /// A new connection.
    fn connect(&self) -> Connecting<'_>;

    /// The place that a message names.
    fn place(&self) -> String;
}

/// A daemon of this machine.
struct Socket(PathBuf);

impl Connect for Socket {
    fn connect(&self) -> Connecting<'_> {
        Box::pin(async {
            let path = SocketPath::of(&self.0)?;
            match tokio::time::timeout(CONNECT_TIMEOUT, tokio::net::UnixStream::connect(path.path())).await {
                Ok(stream) => Ok(Box::new(stream?) as Box<dyn Connection>),
                Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "no answer in 10 s: the daemon hangs")),
            }
        })
    }

    fn place(&self) -> String {
        self.0.display().to_string()
    }
}

/// Speaks to one daemon.
#[derive(Clone)]
pub struct Client {
    way: Arc<dyn Connect>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Client({})", self.way.place())
    }
}

impl Client {
    /// The daemon behind another way than a socket of this machine.
    pub fn over(way: Arc<dyn Connect>) -> Client {
        Client { way }
    }

    /// The daemon behind `socket`; `None` when nobody listens there (no file, or one left by a crash).
    pub async fn connect(socket: &Path) -> Result<Option<Client>, Failure> {
        let client = Client { way: Arc::new(Socket(socket.to_owned())) };
        match client.way.connect().await {
            Ok(_) => Ok(Some(client)),
            Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => Ok(None),
            Err(e) => Err(Failure::io(format_args!("the daemon's socket {}", socket.display()), &e)),
        }
    }

    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Failure> {
        self.call("GET", path, None::<&()>).await
    }

    /// An answer that is text, not JSON.
    pub async fn get_text(&self, path: &str) -> Result<String, Failure> {
        let (status, bytes) = self.exchange("GET", path, None::<&()>).await?;
        if !status.is_success() {
            return decode::<String>(status, &bytes);
        }
        String::from_utf8(bytes.to_vec()).map_err(|e| Failure::internal(format!("the daemon's answer is no text: {e}")))
    }

    pub async fn post<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, Failure> {
        self.call("POST", path, Some(body)).await
    }

    pub async fn patch<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, Failure> {
        self.call("PATCH", path, Some(body)).await
    }

    pub async fn delete<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, Failure> {
        self.call("DELETE", path, Some(body)).await
    }

    /// No time limit on the answer: a check of a large volume takes hours, and Ctrl-C is at hand.
    async fn call<T: DeserializeOwned>(
        &self,
        method: &str,
        path: &str,
        body: Option<&impl Serialize>,
    ) -> Result<T, Failure> {
        let (status, bytes) = self.exchange(method, path, body).await?;
        decode(status, &bytes)
    }

    fn lost(&self, why: &str) -> Failure {
        Failure::new(FailureKind::Unavailable, format!("the daemon at {} went away: {why}", self.way.place()))
    }

    fn request<B>(&self, method: &str, path: &str, body: B) -> Result<Request<B>, Failure> {
        let request = Request::builder().method(method).uri(path).header("host", "larder");
        let request = request.header("content-type", "application/json").body(body);
        request.map_err(|e| Failure::internal(e.to_string()))
    }

    /// A connection of its own, and the task that drives it.
    async fn sender<B>(&self) -> Result<(SendRequest<B>, JoinHandle<hyper::Result<()>>), Failure>
    where
        B: Body<Data = Bytes, Error = Infallible> + Send + 'static,
    {
        let stream = self.way.connect().await.map_err(|e| self.lost(&told(&e)))?;
        let (sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|e| self.lost(&told(&e)))?;
        Ok((sender, tokio::spawn(connection)))
    }

    /// Asks for a stream of bytes. A failure before its first byte is told as such.
    pub async fn download(&self, path: &str, body: &impl Serialize) -> Result<Download, Failure> {
        let bytes = serde_json::to_vec(body).map_err(|e| Failure::internal(e.to_string()))?;
        let request = self.request("POST", path, Full::new(Bytes::from(bytes)))?;
        let (mut sender, driver) = self.sender().await?;
        let response = sender.send_request(request).await.map_err(|e| self.lost(&told(&e)))?;
        let status = response.status();
        if !status.is_success() {
            let body = Limited::new(response.into_body(), BODY_BYTES_MAX).collect().await;
            let body = body.map_err(|e| self.lost(&told(&*e)))?.to_bytes();
            return Err(decode::<serde_json::Value>(status, &body).err().unwrap_or_else(|| self.lost("no answer")));
        }
        let about = response.headers().get(STREAM_BYTES_HEADER);
        let bytes = about.and_then(|value| value.to_str().ok()).and_then(|text| text.parse().ok());
        Ok(Download { client: self.clone(), body: response.into_body(), bytes, driver })
    }

    /// Sends pieces until their sender is gone, and returns the answer, which may come earlier.
    pub async fn upload<T: DeserializeOwned>(&self, path: &str, pieces: mpsc::Receiver<Bytes>) -> Result<T, Failure> {
        let request = self.request("POST", path, Pieces(pieces))?;
        let (mut sender, driver) = self.sender().await?;
        let answer = async {
            let response = sender.send_request(request).await.map_err(|e| self.lost(&told(&e)))?;
            let status = response.status();
            let body = Limited::new(response.into_body(), BODY_BYTES_MAX).collect().await;
            decode(status, &body.map_err(|e| self.lost(&told(&*e)))?.to_bytes())
        };
        let answer = answer.await;
        driver.abort();
        answer
    }

    async fn exchange(
        &self,
        method: &str,
        path: &str,
        body: Option<&impl Serialize>,
    ) -> Result<(StatusCode, Bytes), Failure> {
        let lost = |why: String| self.lost(&why);
        let bytes = match body {
            Some(body) => serde_json::to_vec(body).map_err(|e| Failure::internal(e.to_string()))?,
            None => Vec::new(),
        };
        let request = self.request(method, path, Full::new(Bytes::from(bytes)))?;
        let (mut sender, driver) = self.sender().await?;
        let answer = async {
            let response = sender.send_request(request).await.map_err(|e| lost(told(&e)))?;
            let status = response.status();
            let body = Limited::new(response.into_body(), BODY_BYTES_MAX).collect().await;
            Ok((status, body.map_err(|e| lost(told(&*e)))?.to_bytes()))
        };
        let answer = answer.await;
        driver.abort();
        answer
    }
}

/// An answer that comes piece by piece.
pub struct Download {
    client: Client,
    body: Incoming,
    /// About how many bytes it has, where the daemon says so.
    pub bytes: Option<u64>,
    driver: JoinHandle<hyper::Result<()>>,
}

impl Download {
    /// The next piece; `None` at the end.
    pub async fn next(&mut self) -> Option<Result<Bytes, Failure>> {
        loop {
            match self.body.frame().await? {
                Ok(frame) => {
                    if let Ok(data) = frame.into_data() {
                        return Some(Ok(data));
                    }
                }
                Err(_) => {
                    let why = "it ended the stream in the middle; its log says why";
                    return Some(Err(self.client.lost(why)));
                }
            }
        }
    }
}

impl Drop for Download {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// An error with its causes: the first is often that there was one.
fn told(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// A body out of pieces.
struct Pieces(mpsc::Receiver<Bytes>);

impl Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(cx).map(|piece| piece.map(|piece| Ok(Frame::data(piece))))
    }
}

fn decode<T: DeserializeOwned>(status: StatusCode, bytes: &[u8]) -> Result<T, Failure> {
    if status.is_success() {
        return serde_json::from_slice(bytes)
            .map_err(|e| Failure::internal(format!("the daemon's answer is of another version: {e}")));
    }
    Err(serde_json::from_slice(bytes).unwrap_or_else(|_| {
        let text = String::from_utf8_lossy(bytes);
        Failure::internal(format!("the daemon answered {status}: {}", text.trim()))
    }))
}

/// A name as one segment of a path: of users and shares, which may have blanks and letters of any alphabet.
pub fn segment(name: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~');
    name.bytes().map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

#[cfg(test)]
mod tests {
    use super::segment;

    #[test]
    fn names_become_one_segment() {
        assert_eq!(segment("Family photos/ä?#"), "Family%20photos%2F%C3%A4%3F%23");
        assert_eq!(segment("ann-1_b.c"), "ann-1_b.c");
    }
}
