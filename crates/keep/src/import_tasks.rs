//! The imports that run, so that a pool is not closed under them.

use std::sync::{Arc, Weak};

use larder_base::boxed;
use larder_import::Progress;
use parking_lot::Mutex;
use tokio_util::task::TaskTracker;

/// The imports into the volumes of one pool.
#[derive(Default)]
pub struct Imports {
    pub tasks: TaskTracker,
    running: Mutex<Vec<Weak<Progress>>>,
}

impl Imports {
    pub fn begin(&self, progress: &Arc<Progress>) {
        let mut running = self.running.lock();
        running.retain(|other| other.strong_count() > 0);
        running.push(Arc::downgrade(progress));
    }

    /// Ends all, with what has its name kept.
    #[boxed]
    pub async fn stop(&self) {
        self.tasks.close();
        self.running.lock().iter().filter_map(Weak::upgrade).for_each(|progress| progress.stop());
        self.tasks.wait().await;
    }
}
