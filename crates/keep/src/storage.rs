//! All stores that this process has open.
//!
//! The daemon holds one [`Storage`] for its life; a command without a daemon opens one, asks, and closes
//! it. Both run the code below, so they answer alike.

use std::collections::BTreeMap;
use std::sync::Arc;

use larder_api::{CheckResult, Failure, PoolListed, PoolStatus, VolumeStatus};
use larder_base::boxed;
use larder_files::Files;
use larder_files::folders::Folders;
use larder_volume::Volume;
use parking_lot::RwLock;

use crate::names::VolumeName;
use crate::store::Store;

/// The open pools by name.
#[derive(Default)]
pub struct Storage {
    pools: RwLock<BTreeMap<String, Arc<Store>>>,
    /// Folders of the host that are shared.
    pub folders: Arc<Folders>,
}

impl Storage {
    pub fn add(&self, pool: Store) -> Arc<Store> {
        let pool = Arc::new(pool);
        self.pools.write().insert(pool.name.clone(), pool.clone());
        pool
    }

    pub fn remove(&self, name: &str) {
        self.pools.write().remove(name);
    }

    pub fn all(&self) -> Vec<Arc<Store>> {
        self.pools.read().values().cloned().collect()
    }

    /// The pool of that name; without a name the only one.
    pub fn pool(&self, name: Option<&str>) -> Result<Arc<Store>, Failure> {
        let pools = self.pools.read();
        let names = || match pools.is_empty() {
            true => "none".to_owned(),
            false => pools.keys().cloned().collect::<Vec<_>>().join(", "),
        };
        match name {
            Some(name) => pools.get(name).cloned().ok_or_else(|| {
                Failure::not_found(format!("there is no pool '{name}' here (open: {})", names()))
                    .action("see which there are with: larder pool list")
            }),
            None if pools.len() == 1 => pools.values().next().cloned().ok_or_else(|| Failure::internal("no pool")),
            None if pools.is_empty() => Err(Failure::not_found("no pool is open").action(
                "make one with: larder pool create NAME DIR... --layout raidz1; then: larder pool import DIR...",
            )),
            None => Err(Failure::invalid(format!("there are several pools ({}): name one, as POOL/VOLUME", names()))),
        }
    }

    /// An existing volume, `VOLUME` or `POOL/VOLUME` as a person writes it: of several pools the only one that has such a volume.
    #[boxed]
    pub async fn find(&self, text: &str) -> Result<(Arc<Store>, String), Failure> {
        let pools = self.all();
        if text.contains('/') || pools.len() < 2 {
            return self.named(text);
        }
        let (mut having, mut failed) = (Vec::new(), None);
        for pool in pools {
            match pool.registry.list().await {
                Ok(infos) if infos.iter().any(|info| info.name == text) => having.push(pool),
                Ok(_) => {}
                Err(error) => failed = Some(pool.failure(text, &error)),
            }
        }
        let full = |pool: &Arc<Store>| format!("{}/{text}", pool.name);
        match having.as_slice() {
            [one] => Ok((one.clone(), text.to_owned())),
            [] => Err(failed.unwrap_or_else(|| {
                Failure::not_found(format!("no pool has a volume '{text}'"))
                    .action("see which there are with: larder volume list")
            })),
            many => {
                let names = many.iter().map(full).collect::<Vec<_>>().join(", ");
                Err(Failure::invalid(format!("several pools have a volume '{text}': name one of {names}")))
            }
        }
    }

    /// A volume that may be made, `VOLUME` or `POOL/VOLUME` as a person writes it.
    pub fn named(&self, text: &str) -> Result<(Arc<Store>, String), Failure> {
        match text.split_once('/') {
            Some((pool, volume)) => Ok((self.pool(Some(pool))?, volume.to_owned())),
            None => Ok((self.pool(None)?, text.to_owned())),
        }
    }

    /// Refuses while the journal of this pool answers for a store.
    pub fn check_no_journal(&self, pool: &str) -> Result<(), Failure> {
        let on_it = |other: &Arc<Store>| other.bucket().is_some_and(|bucket| bucket.journal_pool() == Some(pool));
        let Some(store) = self.all().into_iter().find(on_it) else { return Ok(()) };
        Err(Failure::busy(format!("the store '{}' answers from the journal of the pool '{pool}'", store.name)).action(
            "write durability = \"bucket\" into its [[store]] in larder.toml, and restart larder; then try again",
        ))
    }

    /// The disks of all pools.
    pub fn disks(&self) -> Vec<std::path::PathBuf> {
        self.all().iter().flat_map(|pool| pool.disks()).collect()
    }

    /// Whether the volume is closed and comes back by itself.
    pub fn is_closed_for_now(&self, name: &str) -> bool {
        self.named(name).is_ok_and(|(pool, volume)| pool.closed.lock().contains(&volume))
    }

    #[boxed]
    pub async fn files(&self, name: &VolumeName) -> Result<Files, Failure> {
        self.pool(Some(&name.pool))?.files(&name.volume).await
    }

    #[boxed]
    pub async fn volume(&self, name: &VolumeName) -> Result<Volume, Failure> {
        self.pool(Some(&name.pool))?.volume(&name.volume).await
    }

    /// Makes what `listed` and `statuses` say true now: idle pools do not look at their disks.
    #[boxed]
    pub async fn look(&self) {
        for pool in self.all() {
            pool.look().await;
        }
    }

    pub fn listed(&self) -> Vec<PoolListed> {
        self.all().iter().map(|p| p.listed()).collect()
    }

    #[boxed]
    pub async fn statuses(&self) -> Vec<PoolStatus> {
        let mut list = Vec::new();
        for pool in self.all() {
            list.push(pool.status_with_damage().await);
        }
        list
    }

    /// Without a read of any disk.
    pub fn known_statuses(&self) -> Vec<PoolStatus> {
        self.all().iter().map(|pool| pool.known_status()).collect()
    }

    #[boxed]
    pub async fn volumes(&self) -> Result<Vec<VolumeStatus>, Failure> {
        let mut list = Vec::new();
        for pool in self.all() {
            list.extend(pool.volumes().await?);
        }
        Ok(list)
    }

    /// Checks one volume, all of a pool, or all there are.
    #[boxed]
    pub async fn check(
        &self,
        pool: Option<&str>,
        volume: Option<&str>,
        read_data: bool,
    ) -> Result<Vec<CheckResult>, Failure> {
        let pools = match (pool, volume) {
            (Some(name), _) => vec![self.pool(Some(name))?],
            (None, Some(_)) => vec![self.pool(None)?],
            (None, None) => self.all(),
        };
        let mut results = Vec::new();
        for pool in pools {
            let names: Vec<(String, bool)> = match volume {
                Some(name) => vec![(name.to_owned(), false)],
                None => {
                    pool.volumes().await?.into_iter().map(|v| (v.name, v.locked && (v.copy || !v.replica))).collect()
                }
            };
            // Copies and parity that reading the volumes would not touch.
            let rebuilt = if read_data && pool.has_disks() { pool.scrub_through().await? } else { 0 };
            let first = results.len();
            for (name, locked) in names {
                if locked {
                    results.push(CheckResult {
                        pool: pool.name.clone(),
                        volume: name,
                        locked,
                        ..CheckResult::default()
                    });
                    continue;
                }
                if pool.is_replica(&name).await? && !pool.is_copy(&name).await? {
                    let report = pool.registry.check_replica(&name, read_data).await;
                    let report = report.map_err(|error| pool.failure(&name, &error))?;
                    results.push(CheckResult {
                        pool: pool.name.clone(),
                        volume: name,
                        segments: report.objects,
                        data_bytes: report.bytes,
                        problems: report.problems,
                        replica: true,
                        rebuilt,
                        ..CheckResult::default()
                    });
                    continue;
                }
                results.push(CheckResult { rebuilt, ..pool.check(&name, read_data).await? });
            }
            if let Some(result) = results.get_mut(first) {
                result.problems.extend(pool.owed());
            }
        }
        Ok(results)
    }

    /// Closes every pool; the first failure is returned after all were tried. Stores come first: the journal of a pool may be theirs.
    #[boxed]
    pub async fn close(&self) -> Result<(), Failure> {
        let mut first = Ok(());
        let mut all = self.all();
        all.sort_by_key(|pool| pool.has_disks());
        for pool in all {
            let closed = pool.close().await;
            if first.is_ok() {
                first = closed;
            }
        }
        self.pools.write().clear();
        first
    }
}
