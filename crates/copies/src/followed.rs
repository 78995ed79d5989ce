//! A read-only replica hears of what its owner does to volumes as such: new ones, quotas, encryption, keys, promotion.
//!
//! - `replica.looks_while_used`: while clients read, or a share waits for its volume, the registry is looked at every half of the bound.
//!   A replica that nobody asks and that lacks nothing makes no request.
//! - `replica.keys_follow`: keys that the keyring has outgrown are forgotten before the volume is opened anew. Where larder.toml names
//!   the key, it is read again; otherwise the volume is locked, and its shares say so.

use std::sync::Arc;

use larder_fs::FsResult;
use larder_keep::Store;
use larder_volume::Outdated;
use tokio::time::Instant;

use crate::seats::Seats;
use larder_config::VolumeName;
use larder_document::{Kind, Look, State, Wait};

/// One followed store, as it was looked at last.
#[derive(Default)]
pub(crate) struct Sight {
    version: Option<String>,
    looked: Option<Instant>,
    /// Some volume is being given other keys: its keyring changes without the registry.
    is_sealing: bool,
}

impl Seats {
    pub(crate) async fn look_at_owner(&self, pool: &Arc<Store>, sight: &mut Sight) -> FsResult<()> {
        let Some((_, bound)) = pool.registry.behind() else { return Ok(()) };
        if sight.looked.is_some_and(|looked| looked.elapsed() < bound / 2) {
            return Ok(());
        }
        // `replica.looks_while_used`
        let lacks = self.lacks_volumes(&pool.name);
        if !lacks && !sight.is_sealing && !pool.registry.is_asked(bound) {
            return Ok(());
        }
        sight.looked = Some(Instant::now());
        let version = pool.registry.version().await?;
        if version == sight.version && !sight.is_sealing {
            return Ok(());
        }
        let (outgrown, is_sealing) = pool.outgrown_keys().await?;
        let mut outdated = pool.registry.read_again().await?;
        let mut state = self.document.lock().await;
        for one in &outgrown {
            // `replica.keys_follow`
            pool.unlocked.forget(one.id);
        }
        outdated.extend(outgrown.into_iter().filter(|one| !outdated.contains(one)).collect::<Vec<_>>());
        for one in &outdated {
            self.reopen(&mut state, pool, one).await;
        }
        if outdated.is_empty() && lacks && version != sight.version {
            state.reconcile(Look::All).await;
        }
        (sight.version, sight.is_sealing) = (version, is_sealing);
        Ok(())
    }

    /// Whether a share waits for a volume of this store.
    fn lacks_volumes(&self, store: &str) -> bool {
        let config = self.document.config();
        let mut of_store = config.shares.iter().filter(|share| share.volume.as_ref().is_some_and(|v| v.pool == store));
        of_store.any(|share| {
            let standing = self.standings.of(Kind::Share, &share.name);
            !standing.is_ok() && standing.wait() != Some(Wait::Key)
        })
    }

    async fn reopen(&self, state: &mut State, pool: &Arc<Store>, one: &Outdated) {
        let name = VolumeName { pool: pool.name.clone(), volume: one.name.clone() };
        tracing::info!("the owner of '{name}' has changed what it is: it is opened anew");
        self.doors.close_doors(state, pool, &name).await;
        if let Err(error) = pool.registry.let_go(one.id).await {
            tracing::warn!("'{name}' did not close: {error}");
        }
        pool.open_again(&one.name);
        state.reconcile(Look::All).await;
        self.doors.open_doors(state, pool, &name, &name).await;
        let infos = pool.registry.list().await.unwrap_or_default();
        if infos.iter().any(|info| info.id == one.id && pool.is_locked(info)) {
            tracing::warn!(
                "'{name}' is encrypted with a key that this machine does not have: open it with: larder volume unlock {name}"
            );
        }
    }
}
