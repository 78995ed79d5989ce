//! What keeps a volume from being closed: the work that holds it by name, and the time that is given to all else.

use larder_base::boxed;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Doors let go of a volume within this time: calls under way end, or their clients are cut off.
const PATIENCE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(50);

/// How long a caller goes on trying to close a volume.
pub struct Patience {
    until: Instant,
}

impl Patience {
    pub fn from_now() -> Self {
        Self { until: Instant::now() + PATIENCE }
    }

    pub fn is_left(&self) -> bool {
        Instant::now() < self.until
    }

    #[boxed]
    pub async fn pause(&self) {
        tokio::time::sleep(PAUSE).await;
    }
}

/// The long work on the volumes of one pool (`closing.uses_named`).
#[derive(Default)]
pub struct Uses(Mutex<Vec<Entry>>);

struct Entry {
    volume: String,
    what: String,
    is_alive: Weak<()>,
}

/// Work is under way as long as this is kept.
#[derive(Clone)]
pub struct Use {
    _alive: Arc<()>,
}

impl Uses {
    /// `what` completes "the volume is in use by".
    pub fn begin(&self, volume: &str, what: String) -> Use {
        let alive = Arc::new(());
        let mut all = self.0.lock();
        all.retain(|entry| entry.is_alive.strong_count() > 0);
        all.push(Entry { volume: volume.to_owned(), what, is_alive: Arc::downgrade(&alive) });
        Use { _alive: alive }
    }

    pub fn of(&self, volume: &str) -> Vec<String> {
        let all = self.0.lock();
        let alive = all.iter().filter(|entry| entry.volume == volume && entry.is_alive.strong_count() > 0);
        alive.map(|entry| entry.what.clone()).collect()
    }
}
