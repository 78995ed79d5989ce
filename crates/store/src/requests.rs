//! Requests by kind, as they are on the bill: each one that leaves this machine, repeated ones too.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use larder_base::metrics::{Counter, Metrics};
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpRequest, HttpResponse, HttpService, ReqwestConnector,
};

/// Kinds of requests. Most stores have one price for the first three, another for GET and none for DELETE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Objects and parts written.
    Put,
    /// Copies, and beginnings and ends of uploads in parts.
    Post,
    /// Pages of listings.
    List,
    /// Objects and ranges read, and questions whether there is one.
    Get,
    /// Deletions, of one object or of many.
    Delete,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Kind; 5] = [Kind::Put, Kind::Post, Kind::List, Kind::Get, Kind::Delete];

    /// Its name in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Put => "put",
            Kind::Post => "post",
            Kind::List => "list",
            Kind::Get => "get",
            Kind::Delete => "delete",
        }
    }

    fn of(request: &HttpRequest) -> Kind {
        let query = request.uri().query().unwrap_or("");
        let has = |name: &str| query.split('&').any(|pair| pair.split('=').next() == Some(name));
        match request.method().as_str() {
            "PUT" if request.headers().contains_key("x-amz-copy-source") => Kind::Post,
            "PUT" => Kind::Put,
            "GET" | "HEAD" if has("list-type") => Kind::List,
            "GET" | "HEAD" => Kind::Get,
            "DELETE" => Kind::Delete,
            _ if has("delete") => Kind::Delete,
            _ => Kind::Post,
        }
    }
}

/// Requests since the store was opened.
#[derive(Debug)]
pub struct Requests {
    since: Instant,
    kinds: [Counter; Kind::ALL.len()],
    sent_bytes: Counter,
    received_bytes: Counter,
    pub(crate) repeated: Counter,
    /// The newest minute with a request, counted from 1.
    newest_minute: AtomicU64,
    minutes: Counter,
}

impl Default for Requests {
    fn default() -> Self {
        Self {
            since: Instant::now(),
            kinds: Default::default(),
            sent_bytes: Counter::new(),
            received_bytes: Counter::new(),
            repeated: Counter::new(),
            newest_minute: AtomicU64::new(0),
            minutes: Counter::new(),
        }
    }
}

impl Requests {
    pub(crate) fn count(&self, kind: Kind, count: u64) {
        if let Some(counter) = self.kinds.get(kind as usize) {
            counter.add(count);
        }
        let minute = self.since.elapsed().as_secs() / 60 + 1;
        if self.newest_minute.fetch_max(minute, Ordering::Relaxed) < minute {
            self.minutes.add(1);
        }
    }

    pub(crate) fn receive(&self, bytes: u64) {
        self.received_bytes.add(bytes);
    }

    /// For how long they have been counted.
    pub fn lasts(&self) -> Duration {
        self.since.elapsed()
    }

    /// How many minutes had a request (`bill.hours_of_use`).
    pub fn minutes_of_use(&self) -> u64 {
        self.minutes.get()
    }

    /// How many there were of one kind.
    pub fn of(&self, kind: Kind) -> u64 {
        self.kinds.get(kind as usize).map_or(0, Counter::get)
    }

    /// How many there were in all.
    pub fn all(&self) -> u64 {
        self.kinds.iter().map(Counter::get).sum()
    }

    /// Bytes of bodies, sent and received.
    pub fn bytes(&self) -> (u64, u64) {
        (self.sent_bytes.get(), self.received_bytes.get())
    }

    /// Adds what was counted for the store of this name.
    pub fn metrics(&self, store: &str, out: &mut Metrics) {
        for kind in Kind::ALL {
            let labels = [("store", store), ("kind", kind.name())];
            out.counter("larder_store_requests_total", "Requests to the bucket.", &labels, self.of(kind));
        }
        let labels = [("store", store)];
        let (sent, received) = self.bytes();
        out.counter("larder_store_sent_bytes_total", "Bytes sent to the bucket.", &labels, sent);
        out.counter("larder_store_received_bytes_total", "Bytes received from the bucket.", &labels, received);
        let repeated = self.repeated.get();
        out.counter("larder_store_repeated_total", "Calls to the bucket that were tried again.", &labels, repeated);
    }
}

/// Makes clients whose requests are counted.
#[derive(Debug)]
pub(crate) struct CountedConnector(pub(crate) Arc<Requests>);

impl HttpConnector for CountedConnector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let inner = ReqwestConnector::default().connect(options)?;
        Ok(HttpClient::new(Counted { inner, requests: Arc::clone(&self.0) }))
    }
}

#[derive(Debug)]
struct Counted {
    inner: HttpClient,
    requests: Arc<Requests>,
}

#[async_trait]
impl HttpService for Counted {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        self.requests.count(Kind::of(&request), 1);
        let is_head = request.method().as_str() == "HEAD";
        self.requests.sent_bytes.add(request.body().content_length() as u64);
        let response = self.inner.execute(request).await?;
        let length = response.headers().get("content-length").filter(|_| !is_head);
        let length = length.and_then(|value| value.to_str().ok()?.parse().ok());
        self.requests.receive(length.unwrap_or(0));
        Ok(response)
    }
}
