//! The client of a daemon: one connection per request, every answer bounded.

use std::any::TypeId;
use std::convert::Infallible;
use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Body, Frame, Incoming};
use hyper::client::conn::http1::SendRequest;
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde::{Serialize, de::DeserializeOwned};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::endpoint::{self, Endpoint, Param, Query};
use crate::{BODY_BYTES_MAX, BY_HEADER, Failure, FailureKind, STREAM_BYTES_HEADER, SocketPath};
use larder_base::task;

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

    /// No time limit on the answer: a check of a large volume takes hours, and Ctrl-C is at hand.
    pub async fn call<E: endpoint::Json>(
        &self,
        _: E,
        param: <E::Param as Param>::Given<'_>,
        request: &E::Request,
    ) -> Result<E::Response, Failure> {
        let body = Full::new(encoded(request)?);
        let (status, bytes) = self.exchange(E::METHOD, &E::path(param), body).await?;
        decode(status, &bytes)
    }

    /// Calls an endpoint that wants to know nothing.
    pub async fn ask<E: endpoint::Json<Param = (), Request = ()>>(&self, endpoint: E) -> Result<E::Response, Failure> {
        self.call(endpoint, (), &()).await
    }

    /// An answer that is text, not JSON.
    pub async fn text<E: endpoint::Text<Param = (), Request = ()>>(&self, _: E) -> Result<String, Failure> {
        let (status, bytes) = self.exchange(E::METHOD, &E::path(()), Full::default()).await?;
        if !status.is_success() {
            return decode::<String>(status, &bytes);
        }
        String::from_utf8(bytes.to_vec()).map_err(|e| Failure::internal(format!("the daemon's answer is no text: {e}")))
    }

    /// Asks for a stream of bytes. A failure before its first byte is told as such.
    pub async fn download<E: endpoint::Download>(
        &self,
        _: E,
        param: <E::Param as Param>::Given<'_>,
        request: &E::Request,
    ) -> Result<Download, Failure> {
        self.stream::<E>(param, request).await
    }

    /// Asks for lines of JSON.
    pub async fn lines<E: endpoint::Lines>(
        &self,
        _: E,
        param: <E::Param as Param>::Given<'_>,
        request: &E::Request,
    ) -> Result<Lines<E::Response>, Failure> {
        let answer = self.stream::<E>(param, request).await?;
        Ok(Lines { answer, rest: Vec::new(), of: PhantomData })
    }

    /// Sends pieces until their sender is gone, and returns the answer, which may come earlier.
    pub async fn upload<E: endpoint::Upload>(
        &self,
        _: E,
        param: <E::Param as Param>::Given<'_>,
        request: &E::Request,
        pieces: mpsc::Receiver<Bytes>,
    ) -> Result<E::Response, Failure> {
        let path = format!("{}{}", E::path(param), request.written());
        let (status, bytes) = self.exchange(E::METHOD, &path, Pieces(pieces)).await?;
        decode(status, &bytes)
    }

    /// Sends a request in its wire form and returns the answer in its own: for callers that hold endpoints as values.
    pub async fn carry(&self, method: Method, path: &str, body: Bytes) -> Result<Bytes, Failure> {
        let (status, bytes) = self.exchange(method, path, Full::new(body)).await?;
        if status.is_success() { Ok(bytes) } else { Err(refusal(status, &bytes)) }
    }

    fn lost(&self, why: &str) -> Failure {
        Failure::new(FailureKind::Unavailable, format!("the daemon at {} went away: {why}", self.way.place()))
    }

    fn request<B>(&self, method: Method, path: &str, body: B) -> Result<Request<B>, Failure> {
        let request = Request::builder().method(method).uri(path).header("host", "larder").header(BY_HEADER, "command");
        let request = request.header("content-type", "application/json").body(body);
        request.map_err(|e| Failure::internal(e.to_string()))
    }

    /// A connection of its own, and the task that drives it.
    async fn sender<B>(&self) -> Result<(SendRequest<B>, JoinHandle<hyper::Result<()>>), Failure>
    where
        B: Body<Data = Bytes, Error = Infallible> + Send + 'static,
    {
        let stream = self.way.connect().await.map_err(|e| self.lost(&told(&e)))?;
        let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(ReadToTheEnd(stream)))
            .await
            .map_err(|e| self.lost(&told(&e)))?;
        Ok((sender, task::spawn_for(connection)))
    }

    async fn stream<E: Endpoint>(
        &self,
        param: <E::Param as Param>::Given<'_>,
        request: &E::Request,
    ) -> Result<Download, Failure> {
        let request = self.request(E::METHOD, &E::path(param), Full::new(encoded(request)?))?;
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

    async fn exchange<B>(&self, method: Method, path: &str, body: B) -> Result<(StatusCode, Bytes), Failure>
    where
        B: Body<Data = Bytes, Error = Infallible> + Send + 'static,
    {
        let request = self.request(method, path, body)?;
        let (mut sender, driver) = self.sender().await?;
        let answer = async {
            let response = sender.send_request(request).await.map_err(|e| self.lost(&told(&e)))?;
            let status = response.status();
            let body = Limited::new(response.into_body(), BODY_BYTES_MAX).collect().await;
            Ok((status, body.map_err(|e| self.lost(&told(&*e)))?.to_bytes()))
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

/// An answer that comes as lines of JSON.
pub struct Lines<T> {
    answer: Download,
    rest: Vec<u8>,
    of: PhantomData<T>,
}

impl<T: DeserializeOwned> Lines<T> {
    /// The next line; `None` at the end.
    pub async fn next(&mut self) -> Result<Option<T>, Failure> {
        loop {
            if let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=end).collect();
                return serde_json::from_slice(&line).map(Some).map_err(|e| of_another_version(&e));
            }
            match self.answer.next().await {
                Some(piece) if self.rest.len() <= BODY_BYTES_MAX => self.rest.extend_from_slice(&piece?),
                Some(_) => return Err(Failure::internal("the daemon's answer is too long")),
                None => return Ok(None),
            }
        }
    }
}

fn of_another_version(error: &serde_json::Error) -> Failure {
    Failure::internal(format!("the daemon's answer is of another version: {error}"))
}

/// A request as a body; none where there is nothing to say.
fn encoded<T: Serialize + 'static>(request: &T) -> Result<Bytes, Failure> {
    if TypeId::of::<T>() == TypeId::of::<()>() {
        return Ok(Bytes::new());
    }
    serde_json::to_vec(request).map(Bytes::from).map_err(|e| Failure::internal(e.to_string()))
}

/// An error with its causes: the first is often that there was one.
fn told(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// A connection whose end is found by reading alone.
///
/// A daemon that refuses a body answers before it has read all of it, and closes. The rest of the
/// body then meets a closed connection, while the answer waits to be read. So such a write stays
/// pending. Reading gives the answer, or says that the daemon went away.
struct ReadToTheEnd<S>(S);

impl<S: AsyncWrite + Unpin> ReadToTheEnd<S> {
    fn unless_closed<T>(written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        match written {
            // Reading has the waker.
            Poll::Ready(Err(e)) if matches!(e.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset) => {
                Poll::Pending
            }
            written => written,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for ReadToTheEnd<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for ReadToTheEnd<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Self::unless_closed(Pin::new(&mut self.0).poll_write(cx, bytes))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Self::unless_closed(Pin::new(&mut self.0).poll_write_vectored(cx, pieces))
    }

    fn is_write_vectored(&self) -> bool {
        self.0.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Self::unless_closed(Pin::new(&mut self.0).poll_flush(cx))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
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
        return serde_json::from_slice(bytes).map_err(|e| of_another_version(&e));
    }
    Err(refusal(status, bytes))
}

fn refusal(status: StatusCode, bytes: &[u8]) -> Failure {
    serde_json::from_slice(bytes).unwrap_or_else(|_| {
        let text = String::from_utf8_lossy(bytes);
        Failure::internal(format!("the daemon answered {status}: {}", text.trim()))
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::task::Waker;

    use super::*;

    /// So much of a request is taken.
    const TAKEN_BYTES: usize = 16;

    /// A daemon that takes the beginning of a request, has said `answer` and is gone.
    #[derive(Clone, Default)]
    struct Closed {
        answer: Bytes,
        is_begun: bool,
        is_met: bool,
        reader: Option<Waker>,
    }

    impl AsyncRead for Closed {
        fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
            if !self.is_met {
                self.reader = Some(cx.waker().clone());
                return Poll::Pending;
            }
            let length = self.answer.len().min(into.remaining());
            into.put_slice(&self.answer.split_to(length));
            Poll::Ready(Ok(()))
        }
    }

    impl AsyncWrite for Closed {
        fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            if !self.is_begun {
                self.is_begun = true;
                return Poll::Ready(Ok(bytes.len().min(TAKEN_BYTES)));
            }
            self.is_met = true;
            if let Some(reader) = self.reader.take() {
                reader.wake();
            }
            Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    impl Connect for Closed {
        fn connect(&self) -> Connecting<'_> {
            let connection = self.clone();
            Box::pin(async move { Ok(Box::new(connection) as Box<dyn Connection>) })
        }

        fn place(&self) -> String {
            "a test".to_owned()
        }
    }

    async fn told_by(answer: String) -> Failure {
        let client = Client::over(Arc::new(Closed { answer: answer.into(), ..Closed::default() }));
        client.carry(Method::POST, "/v1/receive/copy", Bytes::from(vec![0; 1 << 20])).await.unwrap_err()
    }

    #[tokio::test]
    async fn an_answer_is_read_although_the_body_was_not() {
        let refused = Failure::invalid("keys of another volume");
        let body = serde_json::to_string(&refused).unwrap();
        let head = format!("HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", body.len());
        assert_eq!(told_by(head + &body).await, refused);
    }

    #[tokio::test]
    async fn a_daemon_that_goes_away_without_an_answer_is_named() {
        let lost = told_by(String::new()).await;
        assert_eq!(lost.kind, FailureKind::Unavailable);
        assert!(lost.message.starts_with("the daemon at a test went away"), "{}", lost.message);
    }
}
