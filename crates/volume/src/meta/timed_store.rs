//! A store whose reads fail after a time limit, because the engine repeats failed requests for
//! ever.
//!
//! That is right for a disk that is back in a moment, and wrong for an object of which too little
//! is left: opening the volume or listing a directory in it would hang instead of failing. The same
//! goes for writes, but only while a volume is being opened: on a full pool, the user who could
//! make room waits for it.
//!
//! - `timedstore.no_manifest_for_a_successor`: where other machines can reach the store, a manifest or a list of compactions is put
//!   only on a proof of ownership that is asked for after the one before it was read. The engine would else end the writer, or the
//!   compactor, of the machine that has taken over. What was read before that and arrives late is refused: its number is taken.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::stream::BoxStream;
use larder_base::LogStore;
use larder_base::log::LogError;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use parking_lot::Mutex;
use slatedb_common::retry::{NonRetryable, should_retry};
use tokio::time::Instant;

/// A disk on USB that was reset is back within this time.
const READ_WAIT_MAX: Duration = Duration::from_secs(20);
/// After a wait in vain, reads do not wait for this long: a check meets a lost table many times.
const IMPATIENCE: Duration = Duration::from_secs(60);
const OPENING_MAX: Duration = Duration::from_secs(24 * 3600);
const PAUSES: [Duration; 4] =
    [Duration::from_millis(50), Duration::from_millis(200), Duration::from_millis(500), Duration::from_secs(1)];

pub(crate) struct TimedStore {
    store: Arc<dyn ObjectStore>,
    /// Knows whether this machine has the store.
    log: Option<Arc<dyn LogStore>>,
    /// The time from which on a read waits for disks that may come back.
    waits_from: Mutex<Instant>,
}

impl TimedStore {
    /// While a volume is being opened, waiting helps no user.
    pub(crate) fn new(store: Arc<dyn ObjectStore>, log: Option<Arc<dyn LogStore>>) -> Self {
        Self { store, log, waits_from: Mutex::new(Instant::now() + OPENING_MAX) }
    }

    pub(crate) fn is_open(&self) {
        *self.waits_from.lock() = Instant::now();
    }

    /// `timedstore.no_manifest_for_a_successor`
    async fn check_tenure(&self, at: &Path) -> Result<()> {
        let is_state = |part: &str| matches!(part, "manifest" | "compactions");
        match &self.log {
            Some(log) if at.parts().any(|part| is_state(part.as_ref())) => log.prove_tenure().await.map_err(|error| {
                let is_lost = matches!(error, LogError::Poisoned(_));
                let error = Error::Generic { store: "metadata", source: Box::new(error) };
                if is_lost || self.is_opening() { in_the_end(error) } else { error }
            }),
            _ => Ok(()),
        }
    }

    fn is_opening(&self) -> bool {
        self.waits_from.lock().saturating_duration_since(Instant::now()) > IMPATIENCE
    }
}

/// An error that the engine does not retry.
fn in_the_end(error: Error) -> Error {
    Error::Generic { store: "metadata", source: Box::new(NonRetryable(Box::new(error))) }
}

impl std::fmt::Debug for TimedStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TimedStore({:?})", self.store)
    }
}

impl std::fmt::Display for TimedStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.store.fmt(f)
    }
}

#[async_trait]
impl ObjectStore for TimedStore {
    async fn get_opts(&self, at: &Path, options: GetOptions) -> Result<GetResult> {
        let begun = Instant::now();
        let mut pauses = PAUSES.iter().chain(std::iter::repeat(&PAUSES[PAUSES.len() - 1]));
        loop {
            let error = match self.store.get_opts(at, options.clone()).await {
                Err(error) if should_retry(&error) => error,
                outcome => return outcome,
            };
            let pause = *pauses.next().unwrap_or(&READ_WAIT_MAX);
            let waited = begun.elapsed() + pause > READ_WAIT_MAX;
            if waited || begun < *self.waits_from.lock() {
                if waited {
                    *self.waits_from.lock() = Instant::now() + IMPATIENCE;
                }
                return Err(in_the_end(error));
            }
            tokio::time::sleep(pause).await;
        }
    }

    async fn put_opts(&self, at: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        self.check_tenure(at).await?;
        match self.store.put_opts(at, payload, options).await {
            Err(error) if self.is_opening() && should_retry(&error) => Err(in_the_end(error)),
            outcome => outcome,
        }
    }

    async fn put_multipart_opts(&self, at: &Path, options: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        self.store.put_multipart_opts(at, options).await
    }

    fn delete_stream(&self, paths: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.store.delete_stream(paths)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.store.list(prefix)
    }

    fn list_with_offset(&self, prefix: Option<&Path>, offset: &Path) -> BoxStream<'static, Result<ObjectMeta>> {
        self.store.list_with_offset(prefix, offset)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.store.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.store.copy_opts(from, to, options).await
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::atomic::{AtomicBool, Ordering};

    use larder_base::MemLog;
    use object_store::ObjectStoreExt;
    use object_store::memory::InMemory;

    use super::*;

    /// A store of which tables cannot be read, or that is full.
    #[derive(Debug, Default)]
    struct Broken {
        store: InMemory,
        broken: AtomicBool,
        full: AtomicBool,
    }

    impl std::fmt::Display for Broken {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("Broken")
        }
    }

    #[async_trait]
    impl ObjectStore for Broken {
        async fn get_opts(&self, at: &Path, options: GetOptions) -> Result<GetResult> {
            if self.broken.load(Ordering::Relaxed) && at.as_ref().ends_with(".sst") {
                return Err(Error::Generic { store: "broken", source: "too little is left of it".into() });
            }
            self.store.get_opts(at, options).await
        }
        async fn put_opts(&self, at: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
            if self.full.load(Ordering::Relaxed) {
                return Err(Error::Generic { store: "broken", source: "there is no room".into() });
            }
            self.store.put_opts(at, payload, options).await
        }
        async fn put_multipart_opts(
            &self,
            at: &Path,
            options: PutMultipartOptions,
        ) -> Result<Box<dyn MultipartUpload>> {
            self.store.put_multipart_opts(at, options).await
        }
        fn delete_stream(&self, paths: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
            self.store.delete_stream(paths)
        }
        fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
            self.store.list(prefix)
        }
        async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
            self.store.list_with_delimiter(prefix).await
        }
        async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
            self.store.copy_opts(from, to, options).await
        }
    }

    #[tokio::test(start_paused = true)]
    async fn waits_for_disks_but_not_for_ever() {
        let broken = Arc::new(Broken::default());
        let at = Path::from("a.sst");
        broken.put(&at, "x".into()).await.unwrap();
        broken.broken.store(true, Ordering::Relaxed);
        let patient = Arc::new(TimedStore::new(Arc::clone(&broken) as Arc<_>, None));
        let begun = Instant::now();
        assert!(!should_retry(&patient.get(&at).await.unwrap_err()));
        assert_eq!(begun.elapsed(), Duration::ZERO);
        patient.is_open();
        assert!(!should_retry(&patient.get(&at).await.unwrap_err()));
        assert!(begun.elapsed() > READ_WAIT_MAX - Duration::from_secs(2) && begun.elapsed() <= READ_WAIT_MAX);
        let begun = Instant::now();
        patient.get(&at).await.unwrap_err();
        assert_eq!(begun.elapsed(), Duration::ZERO);
        tokio::time::sleep(IMPATIENCE).await;
        let reader = Arc::clone(&patient);
        let read = tokio::spawn(async move { reader.get(&Path::from("a.sst")).await.is_ok() });
        tokio::time::sleep(READ_WAIT_MAX / 2).await;
        broken.broken.store(false, Ordering::Relaxed);
        assert!(read.await.unwrap());
        // A read of an object that does not exist does not wait.
        let begun = Instant::now();
        assert!(matches!(patient.get(&Path::from("b")).await, Err(Error::NotFound { .. })));
        assert_eq!(begun.elapsed(), Duration::ZERO);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_volume_of_which_too_little_is_left_is_refused_at_once() {
        use crate::tests::{Box_, err};
        let broken = Arc::new(Broken::default());
        let mut place = Box_::new();
        place.store = Arc::clone(&broken) as Arc<_>;
        place.log = Some(Arc::new(MemLog::default()));
        let (registry, volume) = place.open().await;
        drop(volume);
        registry.close().await.unwrap();
        broken.broken.store(true, Ordering::Relaxed);
        let registry = place.registry().await;
        let opened = tokio::time::timeout(Duration::from_secs(10), registry.volume("v")).await;
        assert!(err(opened.unwrap()).contains("too little is left of it"));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_volume_on_a_full_store_is_refused_at_once() {
        use crate::tests::{Box_, err};
        let full = Arc::new(Broken::default());
        let mut place = Box_::new();
        place.store = Arc::clone(&full) as Arc<_>;
        place.log = Some(Arc::new(MemLog::default()));
        let (registry, volume) = place.open().await;
        drop(volume);
        registry.close().await.unwrap();
        full.full.store(true, Ordering::Relaxed);
        let registry = place.registry().await;
        let opened = tokio::time::timeout(Duration::from_secs(10), registry.volume("v")).await;
        assert!(err(opened.unwrap()).contains("there is no room"));
        full.full.store(false, Ordering::Relaxed);
        registry.volume("v").await.unwrap();
    }
}
