//! A volume that stopped storing is opened anew once its pool takes writes again.
//!
//! - `reopening.as_after_a_crash`: a volume takes no writes any more once its journal or its metadata could not be written
//!   (`meta.poison_after_failure`). When the disks are back it is closed and opened again, by the doors' way for that. All that
//!   was acknowledged is there. NFS clients send again what they had not committed; others connect again.
//! - `reopening.disks_first`: while too few disks take writes it stays as it is, because what is cached can be read. An attempt
//!   that fails is made again after twice the time, up to five minutes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use larder_keep::Store;
use tokio::time::Instant;

use super::Daemon;
use crate::config::VolumeName;

/// How often the volumes are looked at. No disk is touched for that.
const LOOK: Duration = Duration::from_secs(2);
const PAUSE_MAX: Duration = Duration::from_secs(300);

/// When a volume whose opening failed is tried again, and how long the pause before was.
struct Again {
    at: Instant,
    pause: Duration,
}

/// Runs until the daemon stops.
pub(crate) async fn run(daemon: Arc<Daemon>) {
    let mut again: BTreeMap<VolumeName, Again> = BTreeMap::new();
    loop {
        tokio::time::sleep(LOOK).await;
        for pool in daemon.storage.all() {
            let failed = pool.to_open_anew().into_iter();
            let failed = failed.map(|volume| VolumeName { pool: pool.name.clone(), volume });
            let waiting = again.keys().filter(|name| name.pool == pool.name).cloned();
            let due = failed.chain(waiting.collect::<Vec<_>>());
            let due = due.filter(|name| again.get(name).is_none_or(|again| Instant::now() >= again.at));
            for name in due.collect::<BTreeSet<_>>() {
                let Err(why) = daemon.open_anew(&pool, &name).await else {
                    again.remove(&name);
                    continue;
                };
                let pause = again.get(&name).map_or(LOOK, |again| again.pause * 2).min(PAUSE_MAX);
                tracing::warn!("'{name}' is not opened anew, and tried again in {} s: {why}", pause.as_secs());
                again.insert(name, Again { at: Instant::now() + pause, pause });
            }
        }
    }
}

impl Daemon {
    async fn open_anew(&self, pool: &Arc<Store>, name: &VolumeName) -> Result<(), String> {
        let mut state = self.state.lock().await;
        tracing::warn!("'{name}' had stopped storing: it is opened anew, now that its disks take writes");
        self.close_doors(&mut state, pool, name).await;
        let opened = pool.open_anew(&name.volume).await;
        self.open_doors(&mut state, pool, name, name).await;
        opened.map_err(|failure| failure.message().to_owned())
    }
}
