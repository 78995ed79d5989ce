//! Passes over the objects of volumes that are being sealed anew.
//!
//! - `passes.resumed_by_unlocking`: the registry says that a volume is being sealed, and nothing else does. After a restart it is locked,
//!   and unlocking it goes on with the work.
//! - `passes.old_keys_last`: the keyring forgets keys once a pass found nothing to do, and only if its newest key is the one that the
//!   pass sealed with.
//! - `passes.stopped_first`: a pass ends before its volume is locked or its pool closes.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use larder_api::{Failure, SealingStatus};
use larder_base::{boxed, task};
use larder_crypt::{Keys, Passed, Progress, Resealing};
use larder_volume::{Registry, Sealing, VolumeInfo};
use object_store::{ObjectStore, PutMode};
use parking_lot::Mutex;
use uuid::Uuid;

use crate::keyrings::{self, folder_of};

/// Objects that could not be sealed are tried again after this time, twice as long after each failure.
const AGAIN_MIN: Duration = Duration::from_secs(15);
const AGAIN_MAX: Duration = Duration::from_secs(3600);

/// The passes that are under way in one pool.
#[derive(Default)]
pub struct Passes(Mutex<HashMap<Uuid, Pass>>);

struct Pass {
    task: tokio::task::JoinHandle<()>,
    state: Arc<Mutex<PassState>>,
}

impl Pass {
    /// An aborted task still runs to where it waits next: it has ended once its handle says so.
    async fn stop(self) {
        self.task.abort();
        match self.task.await {
            Err(error) if error.is_panic() => tracing::error!("a pass over a volume crashed: {error}"),
            _ => {}
        }
    }
}

#[derive(Clone, Default)]
struct PassState {
    progress: Progress,
    fault: Option<String>,
}

impl Passes {
    /// Begins the work, unless it is under way.
    pub(crate) fn go_on(&self, work: Work) {
        let mut passes = self.0.lock();
        if passes.get(&work.info.id).is_some_and(|pass| !pass.task.is_finished()) {
            return;
        }
        let (id, state) = (work.info.id, Arc::clone(&work.state));
        let task = task::spawn(work.run());
        passes.insert(id, Pass { task, state });
    }

    /// `passes.stopped_first`
    #[boxed]
    pub async fn stop(&self, id: Uuid) {
        let pass = self.0.lock().remove(&id);
        if let Some(pass) = pass {
            pass.stop().await;
        }
    }

    /// `passes.stopped_first`
    pub(crate) async fn stop_all(&self) {
        let passes: Vec<Pass> = self.0.lock().drain().map(|(_, pass)| pass).collect();
        passes.iter().for_each(|pass| pass.task.abort());
        for pass in passes {
            pass.stop().await;
        }
    }

    /// How far the volume has come; `None`: it is not being sealed.
    pub fn status(&self, info: &VolumeInfo) -> Option<SealingStatus> {
        let work = info.sealing?;
        let state = self.0.lock().get(&info.id).map(|pass| pass.state.lock().clone());
        let running = state.is_some();
        let PassState { progress, fault } = state.unwrap_or_default();
        let Progress { done_bytes, total_bytes, .. } = progress;
        Some(SealingStatus { rekey: work == Sealing::Rekey, running, done_bytes, total_bytes, fault })
    }
}

/// The work on one volume.
pub struct Work {
    pool: String,
    info: VolumeInfo,
    registry: Arc<Registry>,
    store: Arc<dyn ObjectStore>,
    keys: Arc<Keys>,
    state: Arc<Mutex<PassState>>,
}

impl Work {
    pub fn new(
        pool: &str,
        info: &VolumeInfo,
        registry: &Arc<Registry>,
        store: Arc<dyn ObjectStore>,
        keys: Arc<Keys>,
    ) -> Self {
        let (pool, info, registry) = (pool.to_owned(), info.clone(), Arc::clone(registry));
        Self { pool, info, registry, store, keys, state: Arc::default() }
    }

    async fn run(self) {
        let Self { pool, info, .. } = &self;
        let (name, word) = (&info.name, info.sealing.map_or("sealed", Sealing::word));
        tracing::info!("the volume '{pool}/{name}' is being {word}");
        let mut wait = AGAIN_MIN;
        loop {
            let fault = match self.pass().await {
                Ok(Passed { sealed: 0, faults }) if faults.is_empty() => match self.end().await {
                    Ok(()) => break,
                    Err(failure) => failure.message,
                },
                Ok(Passed { faults, .. }) if faults.is_empty() => {
                    wait = AGAIN_MIN;
                    continue;
                }
                Ok(Passed { faults, .. }) => faults.join("; "),
                Err(error) => error.to_string(),
            };
            if self.state.lock().fault.replace(fault.clone()).as_ref() != Some(&fault) {
                tracing::warn!("the volume '{pool}/{name}' is not {word} yet: {fault}");
            }
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(AGAIN_MAX);
        }
        tracing::info!("the volume '{pool}/{name}' is {word}");
    }

    #[boxed]
    pub async fn pass(&self) -> object_store::Result<Passed> {
        let resealing = Resealing {
            store: Arc::clone(&self.store),
            prefix: folder_of(self.info.id),
            keys: Arc::clone(&self.keys),
            from_clear: self.info.sealing == Some(Sealing::Encrypt),
        };
        resealing.pass(|progress| self.state.lock().progress = progress).await
    }

    /// `passes.old_keys_last`
    #[boxed]
    pub async fn end(&self) -> Result<(), Failure> {
        let lost = || Failure::unavailable("its keyring is gone");
        let (mut ring, version) = keyrings::keyring(&*self.store, self.info.id).await?.ok_or_else(lost)?;
        if ring.newest() != self.keys.newest() {
            let name = &self.info.name;
            return Err(Failure::unavailable(format!(
                "its keyring has a newer key: larder volume lock {name}, then larder volume unlock {name}"
            )));
        }
        if ring.has_old_keys() {
            ring.forget_old_keys();
            keyrings::write_keyring(&*self.store, self.info.id, &ring, PutMode::Update(version)).await?;
        }
        let ended = self.registry.end_sealing(self.info.id).await;
        ended.map_err(|error| Failure::unavailable(error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc;

    use super::*;

    /// A pass that is busy when it is told to stop, and says when it has ended.
    fn busy(passes: &Passes, id: Uuid) -> Arc<AtomicBool> {
        let ended = Arc::new(AtomicBool::new(false));
        let (begun, has_begun) = mpsc::channel();
        let task = tokio::spawn({
            let ended = Arc::clone(&ended);
            async move {
                begun.send(()).ok();
                std::thread::sleep(Duration::from_millis(200));
                ended.store(true, Ordering::SeqCst);
                std::future::pending().await
            }
        });
        has_begun.recv().ok();
        passes.0.lock().insert(id, Pass { task, state: Arc::default() });
        ended
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 3)]
    async fn a_pass_has_ended_when_it_is_stopped() {
        let passes = Passes::default();
        let id = Uuid::from_u128(1);
        let ended = busy(&passes, id);
        passes.stop(id).await;
        assert!(ended.load(Ordering::SeqCst));

        let ended = [busy(&passes, id), busy(&passes, Uuid::from_u128(2))];
        passes.stop_all().await;
        assert!(ended.iter().all(|ended| ended.load(Ordering::SeqCst)));
        assert!(passes.0.lock().is_empty());
    }
}
