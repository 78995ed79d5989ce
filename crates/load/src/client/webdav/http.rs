//! HTTP/1.1 connections of one share: one for each request in flight, kept for the next.

use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

use crate::client::contents::Contents;
use crate::client::error::{ClientError, Outcome};
use crate::client::patience;

const CONNECT_TIME_MAX: Duration = Duration::from_secs(10);
const FRAME_BYTES: u64 = 256 << 10;

/// How much of a body went out, for whoever waits beside it.
#[derive(Default)]
pub(super) struct Sent {
    bytes: Cell<u64>,
    waker: RefCell<Option<Waker>>,
}

impl Sent {
    pub fn poll_bytes(&self, cx: &Context<'_>) -> u64 {
        *self.waker.borrow_mut() = Some(cx.waker().clone());
        self.bytes.get()
    }
}

/// A file's contents, straight from the pool; or a few bytes; or nothing.
pub(super) enum Payload {
    Text(Option<Bytes>),
    Contents { contents: Arc<Contents>, file: u64, generation: u64, at: u64, len: u64, sent: Rc<Sent> },
}

impl Payload {
    pub fn empty() -> Self {
        Self::Text(None)
    }
}

impl Body for Payload {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        match &mut *self {
            Self::Text(text) => Poll::Ready(text.take().map(|text| Ok(Frame::data(text)))),
            Self::Contents { at, len, .. } if at == len => Poll::Ready(None),
            Self::Contents { contents, file, generation, at, len, sent } => {
                let piece = contents.piece(*file, *generation, *at, FRAME_BYTES.min(*len - *at) as usize);
                *at += piece.len() as u64;
                sent.bytes.set(*at);
                if let Some(waker) = sent.waker.borrow_mut().take() {
                    waker.wake();
                }
                Poll::Ready(Some(Ok(Frame::data(piece))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Text(text) => text.is_none(),
            Self::Contents { at, len, .. } => at == len,
        }
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(match self {
            Self::Text(text) => text.as_ref().map_or(0, |t| t.len() as u64),
            Self::Contents { at, len, .. } => len - at,
        })
    }
}

/// The place of a share, and the way to it.
#[derive(Clone)]
pub(super) struct Place {
    pub host: String,
    pub port: u16,
    pub tls: Option<TlsConnector>,
}

pub(super) struct Pool {
    place: Place,
    idle: RefCell<Vec<SendRequest<Payload>>>,
    /// TLS version and cipher, as agreed.
    pub protection: RefCell<Option<String>>,
}

impl Pool {
    pub fn new(place: Place) -> Self {
        Self { place, idle: RefCell::default(), protection: RefCell::default() }
    }

    fn address(&self) -> String {
        format!("{}:{}", self.place.host, self.place.port)
    }

    async fn connect(&self) -> Outcome<SendRequest<Payload>> {
        let address = self.address();
        let unreachable = |e: std::io::Error| ClientError::unreachable(&address, &e);
        let connecting = TcpStream::connect((self.place.host.as_str(), self.place.port));
        let stream = tokio::time::timeout(CONNECT_TIME_MAX, connecting).await;
        let stream = stream.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into())).map_err(unreachable)?;
        stream.set_nodelay(true).map_err(unreachable)?;
        let Some(tls) = &self.place.tls else { return self.talk(stream).await };
        let name = ServerName::try_from(self.place.host.clone()).map_err(|e| ClientError::protocol(&address, e))?;
        let shaking = tokio::time::timeout(CONNECT_TIME_MAX, tls.connect(name, stream)).await;
        let stream = shaking.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into())).map_err(|e| {
            let way_out =
                "a certificate that the server made itself has to be allowed with --any-certificate".to_owned();
            ClientError::Unreachable { address: address.clone(), reason: format!("TLS: {e}"), way_out }
        })?;
        let (_, session) = stream.get_ref();
        if let (Some(version), Some(suite)) = (session.protocol_version(), session.negotiated_cipher_suite()) {
            *self.protection.borrow_mut() = Some(format!("{version:?} with {:?}", suite.suite()));
        }
        self.talk(stream).await
    }

    async fn talk(&self, stream: impl AsyncRead + AsyncWrite + Unpin + 'static) -> Outcome<SendRequest<Payload>> {
        let (sender, connection) =
            handshake(TokioIo::new(stream)).await.map_err(|e| ClientError::lost(self.address(), e))?;
        // It ends with its sender; what went wrong, the request says.
        tokio::task::spawn_local(async move {
            let _ = connection.await;
        });
        Ok(sender)
    }

    /// One that is open, or a new one.
    async fn take(&self) -> Outcome<SendRequest<Payload>> {
        loop {
            let idle = self.idle.borrow_mut().pop();
            let Some(mut sender) = idle else { return self.connect().await };
            if sender.ready().await.is_ok() {
                return Ok(sender);
            }
        }
    }

    /// A request that is sent at once and answered in time.
    pub async fn ask(&self, request: impl Fn() -> Request<Payload>) -> Outcome<(Response<Incoming>, Lease<'_>)> {
        patience::reply(&self.place.host, self.ask_long(request, true)).await
    }

    /// Without a limit of time, for what takes long to send.
    ///
    /// Servers close connections that are idle, perhaps just now: what can be asked again is.
    pub async fn ask_long(
        &self,
        request: impl Fn() -> Request<Payload>,
        again: bool,
    ) -> Outcome<(Response<Incoming>, Lease<'_>)> {
        let mut retries = u32::from(again);
        loop {
            let mut sender = self.take().await?;
            match sender.send_request(request()).await {
                Ok(response) => return Ok((response, Lease { pool: self, sender: Some(sender) })),
                Err(_) if retries > 0 => retries -= 1,
                Err(error) => return Err(ClientError::lost(self.address(), error)),
            }
        }
    }
}

/// A connection that is kept only if its response was read to the end.
pub(super) struct Lease<'a> {
    pool: &'a Pool,
    sender: Option<SendRequest<Payload>>,
}

impl Lease<'_> {
    pub fn keep(mut self) {
        if let Some(sender) = self.sender.take() {
            self.pool.idle.borrow_mut().push(sender);
        }
    }
}
