//! A volume that stopped storing, because its disks failed while it wrote, stores again once they take writes.
//!
//! - `reopening.as_after_a_crash`: such a volume takes no writes (`meta.poison_after_failure`). It is closed and opened again, by
//!   the doors' way for that. All that was acknowledged is there. NFS clients send again what they had not committed; others
//!   connect again.
//! - `reopening.journal_restarts`: where no copy of the pool's journal could be written, nobody knows what the disks kept of it,
//!   and the pool has to be opened anew. A daemon with a service manager ends for that, and is started again. Without one a
//!   person restarts it: until then what can be read is served.
//! - `reopening.disks_first`: while too few disks take writes nothing is done. An attempt that fails is made again after twice
//!   the time, up to five minutes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use larder_api::Failure;
use larder_keep::{Remedy, Store};
use tokio::time::Instant;

use super::Daemon;
use crate::config::VolumeName;
use crate::notify;

/// How often the volumes are looked at. No disk is touched for that.
const LOOK: Duration = Duration::from_secs(2);
const PAUSE_MAX: Duration = Duration::from_secs(300);

/// When the volumes of a pool are looked at again after an attempt, and how long the pause is.
struct Again {
    at: Instant,
    pause: Duration,
}

/// Runs until the daemon stops, or has to (`reopening.journal_restarts`).
pub(crate) async fn run(daemon: Arc<Daemon>) -> Failure {
    let mut again: BTreeMap<String, Again> = BTreeMap::new();
    loop {
        tokio::time::sleep(LOOK).await;
        for pool in daemon.storage.all() {
            if again.get(&pool.name).is_some_and(|again| Instant::now() < again.at) {
                continue;
            }
            let volumes = match pool.remedy().await {
                None => {
                    again.remove(&pool.name);
                    continue;
                }
                Some(Remedy::OpenAnew(volumes)) => volumes,
                Some(Remedy::Restart) if notify::has_manager() => {
                    return Failure::internal(format!(
                        "no copy of the journal of '{}' could be written for a while, and its disks take writes again: larder ends, to be started again by its service",
                        pool.name
                    ));
                }
                Some(Remedy::Restart) => Vec::new(),
            };
            for volume in volumes {
                daemon.open_anew(&pool, VolumeName { pool: pool.name.clone(), volume }).await;
            }
            let pause = again.get(&pool.name).map_or(LOOK, |again| again.pause * 2).min(PAUSE_MAX);
            again.insert(pool.name.clone(), Again { at: Instant::now() + pause, pause });
        }
    }
}

impl Daemon {
    async fn open_anew(&self, pool: &Arc<Store>, name: VolumeName) {
        let mut state = self.state.lock().await;
        self.close_doors(&mut state, pool, &name).await;
        let opened = pool.open_anew(&name.volume).await;
        self.open_doors(&mut state, pool, &name, &name).await;
        match opened {
            Ok(()) => tracing::warn!("'{name}' had stopped storing: it is open anew, now that its disks take writes"),
            Err(failure) => tracing::warn!("'{name}' has stopped storing, and is not open anew: {}", failure.message()),
        }
    }
}
