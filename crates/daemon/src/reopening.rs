//! A volume that stopped storing, because its disks failed while it wrote, stores again once they take writes.
//!
//! - `reopening.as_after_a_crash`: such a volume takes no writes (`meta.poison_after_failure`). It is closed and opened again, by
//!   the doors' way for that. All that was acknowledged is there. NFS clients send again what they had not committed; others
//!   connect again.
//! - `reopening.pool_too`: where no copy of the pool's journal could be written, nobody knows what the disks kept of it. Then the
//!   whole pool is closed and opened again, in this process; until then what can be read is served.
//! - `reopening.tried_on`: a pool that cannot be opened again is tried on, or its service starts larder anew, where there is one.
//! - `reopening.shares_too`: a share whose volume could not be opened while disks were away is served once they take writes. That is
//!   tried for some minutes after they are back: a share that is down for another reason wakes no disk.
//! - `reopening.disks_first`: while too few disks take writes nothing is done. An attempt that fails is made again after twice
//!   the time, up to five minutes. A person who clears the pool makes one at once. Disks that lack are looked for every ten
//!   seconds: nobody writes who would find out that they are back.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use larder_api::Failure;
use larder_keep::{Remedy, Store};
use larder_pool::{OpenOptions, Pool};
use tokio::time::Instant;

use super::pools::{Pools, configured, open_pool};
use super::{notify, translate};
use larder_config::VolumeName;
use larder_document::Look;
use larder_document::State;
use larder_document::{Kind, Standing, Wait};

/// How often the volumes are looked at. No disk is touched for that.
const LOOK: Duration = Duration::from_secs(2);
/// How many looks later disks that lack are looked for.
const LOOKS_PER_SEARCH: u64 = 5;
/// The shares, among the names of pools.
const SHARES: &str = "";
const PAUSE_MAX: Duration = Duration::from_secs(300);

/// When the volumes of a pool are looked at again after an attempt, and how long the pause is.
struct Again {
    at: Instant,
    pause: Duration,
}

/// Runs until the daemon stops, or has to (`reopening.tried_on`).
pub async fn run(pools: Arc<Pools>) -> Failure {
    let mut again: BTreeMap<String, Again> = BTreeMap::new();
    // Pools whose disks were away.
    let mut away: BTreeSet<String> = BTreeSet::new();
    let mut looks = 0u64;
    loop {
        tokio::time::sleep(LOOK).await;
        looks += 1;
        away.extend(pools.storage.all().iter().filter(|pool| is_away(pool)).map(|pool| pool.name.clone()));
        if looks.is_multiple_of(LOOKS_PER_SEARCH) {
            for pool in pools.storage.all().into_iter().filter(|pool| pool.lacks_disks()) {
                pool.look().await;
            }
        }
        let served = pools.storage.all().into_iter().map(|pool| (pool.name.clone(), Some(pool)));
        let given_up = pools.given_up().into_iter().map(|name| (name, None));
        let shares = std::iter::once((SHARES.to_owned(), None));
        for (name, pool) in served.chain(given_up).chain(shares).collect::<Vec<_>>() {
            if again.get(&name).is_some_and(|again| Instant::now() < again.at) {
                continue;
            }
            let tried = match &pool {
                Some(pool) => pools.remedied(pool).await,
                None if name == SHARES => Ok(pools.serve_again(&away).await),
                None => pools.take_up(&name).await.map(|()| true),
            };
            match tried {
                Ok(false) => {
                    again.remove(&name);
                    if name == SHARES {
                        away.retain(|name| pools.storage.pool(Some(name)).is_ok_and(|pool| is_away(&pool)));
                    }
                    continue;
                }
                Ok(true) => {}
                Err(failure) if notify::has_manager() && pools.given_up().contains(&name) => {
                    return Failure::internal(format!(
                        "the pool '{name}' could not be opened anew: larder ends, to be started again by its service: {}",
                        failure.message
                    ));
                }
                Err(failure) => tracing::warn!("'{name}' stores nothing, and is not opened anew: {}", failure.message),
            }
            let pause = again.get(&name).map_or(LOOK, |again| again.pause * 2).min(PAUSE_MAX);
            if name == SHARES && pause == PAUSE_MAX {
                away.clear();
            }
            again.insert(name, Again { at: Instant::now() + pause, pause });
        }
    }
}

fn is_away(pool: &Store) -> bool {
    pool.lacks_disks() || pool.has_stopped()
}

impl Pools {
    /// Sets the error counters of a pool to zero. One that stores nothing is opened anew first, or it is said why it cannot be.
    pub async fn clear(&self, name: &str) -> Result<(), Failure> {
        if self.given_up().iter().any(|one| one == name) {
            self.take_up(name).await?;
        }
        let pool = self.storage.pool(Some(name))?;
        let is_stopped = !self.remedied(&pool).await? && pool.has_stopped();
        let pool = self.storage.pool(Some(name))?;
        if !is_stopped {
            pool.clear().await?;
        }
        if is_stopped || pool.lacks_disks() {
            let message =
                format!("nothing was mended: too few disks of '{name}' take writes for anything to be stored");
            return Err(Failure::unavailable(message).action(format!(
                "connect its disks again (larder pool status {name} says which are away), then run: larder pool clear {name}"
            )));
        }
        self.serve_again(&BTreeSet::from([name.to_owned()])).await;
        Ok(())
    }

    /// `reopening.shares_too`, of these pools. `false`: nothing was to be done.
    async fn serve_again(&self, pools: &BTreeSet<String>) -> bool {
        if pools.is_empty() {
            return false;
        }
        let mut state = self.document.lock().await;
        let is_back = |volume: &VolumeName| {
            let pool = Some(volume.pool.as_str()).filter(|pool| pools.contains(*pool));
            pool.and_then(|pool| self.storage.pool(Some(pool)).ok()).is_some_and(|pool| !is_away(&pool))
        };
        let down = self.standings.unserved(Kind::Share).into_iter();
        let mut down = down.filter(|(_, standing)| standing.wait().is_none()).map(|(name, _)| name);
        let volume = |name: String| state.config.shares.iter().find(|share| share.name == name)?.volume.clone();
        let is_due = down.any(|name| volume(name).is_some_and(|volume| is_back(&volume)));
        if is_due {
            state.reconcile(Look::Shares).await;
        }
        is_due
    }

    /// Opens anew what had stopped. `false`: nothing was to be done, or can be.
    async fn remedied(&self, pool: &Arc<Store>) -> Result<bool, Failure> {
        match pool.remedy().await {
            None => Ok(false),
            Some(Remedy::OpenAnew(volumes)) => {
                for volume in volumes {
                    self.open_anew(pool, VolumeName { pool: pool.name.clone(), volume }).await?;
                }
                Ok(true)
            }
            Some(Remedy::PoolAnew) => self.open_pool_anew(pool).await.map(|()| true),
        }
    }

    async fn open_anew(&self, pool: &Arc<Store>, name: VolumeName) -> Result<(), Failure> {
        let mut state = self.document.lock().await;
        self.doors.close_doors(&mut state, pool, &name).await;
        let opened = pool.open_anew(&name.volume).await;
        self.doors.open_doors(&mut state, pool, &name, &name).await;
        opened?;
        tracing::warn!("'{name}' had stopped storing: it is open anew, now that its disks take writes");
        Ok(())
    }

    /// `reopening.pool_too`
    async fn open_pool_anew(&self, pool: &Arc<Store>) -> Result<(), Failure> {
        let mut state = self.document.lock().await;
        let name = &pool.name;
        // Somebody else was first.
        if !self.storage.pool(Some(name)).is_ok_and(|now| Arc::ptr_eq(&now, pool) && now.has_stopped()) {
            return Ok(());
        }
        self.storage.check_no_journal(name)?;
        let volumes = pool.volumes().await?.into_iter();
        let volumes = volumes.map(|volume| VolumeName { pool: name.clone(), volume: volume.name }).collect::<Vec<_>>();
        for volume in &volumes {
            self.doors.close_doors(&mut state, pool, volume).await;
        }
        self.storage.remove(name);
        // What could not be stored was not acknowledged.
        if let Err(failure) = pool.close().await {
            tracing::debug!("closing '{name}' to open it anew: {}", failure.message);
        }
        let opened = self.open_again(&state, name, Some(pool)).await;
        let outcome = self.taken_up(name, opened);
        for volume in &volumes {
            let now = self.storage.pool(Some(name)).unwrap_or_else(|_| Arc::clone(pool));
            self.doors.open_doors(&mut state, &now, volume, volume).await;
        }
        outcome
    }

    /// Opens a pool of the configuration, whose volumes are unlocked as they were in `before`.
    async fn open_again(&self, state: &State, name: &str, before: Option<&Arc<Store>>) -> Result<Store, Failure> {
        let memory = self.memory_each(&state.config, 0);
        let entry = state.config.pools.iter().find(|entry| entry.name == name);
        let entry = entry.ok_or_else(|| Failure::not_found(format!("the configuration has no pool '{name}'")))?;
        let options = configured(entry, self.folder.path(), false, false);
        // The labels know better than the file.
        let disks = before.map_or_else(|| options.disks.clone(), |before| before.disks());
        let options = OpenOptions { disks, ..options };
        match before {
            None => open_pool(options, memory).await,
            Some(before) => {
                let pool = Pool::open(options).await.map_err(|e| translate::pool_error(&e))?;
                before.start_again(pool, memory).await
            }
        }
    }

    /// `reopening.tried_on`
    fn taken_up(&self, name: &str, opened: Result<Store, Failure>) -> Result<(), Failure> {
        match opened {
            Ok(open) => {
                self.storage.add(open);
                self.standings.set(Kind::Pool, name, Standing::Ok);
                tracing::warn!("'{name}' had stopped storing: it is open anew, now that its disks take writes");
                Ok(())
            }
            Err(failure) => {
                self.standings.set(Kind::Pool, name, Standing::waits(Wait::Disks, failure.clone()));
                Err(failure)
            }
        }
    }

    /// Pools that were served, and are to be again (`reopening.tried_on`).
    fn given_up(&self) -> Vec<String> {
        let unserved = self.standings.unserved(Kind::Pool).into_iter();
        unserved.filter(|(_, standing)| standing.wait() == Some(Wait::Disks)).map(|(name, _)| name).collect()
    }

    async fn take_up(&self, name: &str) -> Result<(), Failure> {
        let mut state = self.document.lock().await;
        if !self.given_up().iter().any(|one| one == name) {
            return Ok(());
        }
        if state.config.pool(name).is_none() || self.storage.pool(Some(name)).is_ok() {
            // Somebody took it away, or imported it.
            self.standings.remove(Kind::Pool, name);
            return Ok(());
        }
        let opened = self.open_again(&state, name, None).await;
        self.taken_up(name, opened)?;
        state.reconcile(Look::All).await;
        Ok(())
    }
}
