//! No answer before what it says is durable.

use std::pin::pin;

use async_trait::async_trait;
use larder_base::log::{LogEntry, LogError, Receipt};
use tokio::sync::watch;

use super::*;

/// A log that makes nothing durable while it is held.
struct HeldLog {
    log: MemLog,
    held: watch::Sender<bool>,
}

#[async_trait]
impl LogStore for HeldLog {
    async fn begin(&self, stream: &str, id: u64, payload: Vec<Bytes>) -> Result<Receipt, LogError> {
        let receipt = self.log.begin(stream, id, payload).await?;
        let mut held = self.held.subscribe();
        Ok(Box::pin(async move {
            // The sender lives as long as the log.
            let _ = held.wait_for(|held| !held).await;
            receipt.await
        }))
    }

    async fn replay(&self, stream: &str, after: u64) -> Result<Vec<LogEntry>, LogError> {
        self.log.replay(stream, after).await
    }

    async fn trim(&self, stream: &str, through: u64) -> Result<(), LogError> {
        self.log.trim(stream, through).await
    }

    async fn remove(&self, stream: &str) -> Result<(), LogError> {
        self.log.remove(stream).await
    }

    fn held_bytes(&self, stream: &str) -> u64 {
        self.log.held_bytes(stream)
    }

    fn usage(&self) -> (u64, u64) {
        self.log.usage()
    }
}

/// `change` is visible at once and answered late; `again`, which finds it and changes nothing, is
/// answered no earlier.
async fn check<T, U, V>(
    prepare: impl AsyncFn(&Volume),
    change: impl AsyncFn(&Volume) -> FsResult<T>,
    is_visible: impl AsyncFn(&Volume) -> FsResult<U>,
    again: impl AsyncFn(&Volume) -> FsResult<V>,
) {
    let held = watch::channel(false).0;
    let log = Arc::new(HeldLog { log: MemLog::default(), held: held.clone() });
    let place = Box_ { log: Some(log), ..Box_::new() };
    let (_registry, volume) = place.open().await;
    prepare(&volume).await;
    held.send_replace(true);
    let mut change = pin!(change(&volume));
    while is_visible(&volume).await.is_err() {
        assert!(futures::poll!(&mut change).is_pending());
        tokio::task::yield_now().await;
    }
    let mut again = pin!(again(&volume));
    for _ in 0..100 {
        assert!(futures::poll!(&mut again).is_pending(), "answered before it is durable");
        assert!(futures::poll!(&mut change).is_pending());
        tokio::task::yield_now().await;
    }
    held.send_replace(false);
    change.await.unwrap();
    again.await.unwrap();
}

fn look(name: &'static [u8]) -> impl AsyncFn(&Volume) -> FsResult<Attr> {
    async move |volume: &Volume| volume.lookup(&root(), Ino::ROOT, name, NameMatch::Exact).await
}

#[tokio::test]
async fn a_create_that_finds_the_file_waits_for_it() {
    for mode in [CreateMode::Unchecked, CreateMode::Exclusive([7; 8])] {
        let create = async move |volume: &Volume| {
            volume.create(&root(), Ino::ROOT, b"f", mode, SetAttr::default()).await.map(|(attr, ..)| attr)
        };
        check(async |_| {}, create, look(b"f"), create).await;
    }
}

#[tokio::test]
async fn a_name_that_leads_there_already_is_waited_for() {
    let prepare = async |volume: &Volume| {
        file(volume, Ino::ROOT, "f").await;
    };
    let link = async |volume: &Volume| {
        let ino = look(b"f")(volume).await?.id.ino;
        volume.link(&root(), ino, Ino::ROOT, b"g").await.map(drop)
    };
    let relink = async |volume: &Volume| {
        let ino = look(b"f")(volume).await?.id.ino;
        volume.relink(&root(), ino, Ino::ROOT, b"g").await.map(drop)
    };
    let rename = async |volume: &Volume| {
        volume.rename(&root(), Ino::ROOT, b"f", Ino::ROOT, b"g", RenameMode::Replace).await.map(drop)
    };
    check(prepare, link, look(b"g"), relink).await;
    check(prepare, link, look(b"g"), rename).await;
}
