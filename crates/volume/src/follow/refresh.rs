//! Looks, and the turns to newer views.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use larder_fs::FsResult;

use super::parts::{Caches, Change, Sight};
use super::tail::Tail;
use super::{Followed, Look, boot_ms};
use crate::keys::tag;

impl Followed {
    /// Who waits for a look that fails, fails with it: a store that does not answer is not asked once for each of them.
    pub(super) async fn look(&self, why: Look) -> FsResult<()> {
        let came_ms = boot_ms();
        self.asked_ms.fetch_max(came_ms, Ordering::AcqRel);
        let mut tail = self.tail.lock().await;
        if let Some((failed_ms, error)) = &tail.failed
            && *failed_ms > came_ms
        {
            return Err(error.clone());
        }
        let looked = self.look_now(&mut tail, why).await;
        tail.failed = looked.as_ref().err().map(|error| (boot_ms(), error.clone()));
        looked
    }

    async fn look_now(&self, tail: &mut Tail, why: Look) -> FsResult<()> {
        let is_past = match &why {
            Look::Older(age) if self.age() < *age => return Ok(()),
            // Somebody has looked since.
            Look::Past(sight) if !Arc::ptr_eq(sight, &self.sight()) => return Ok(()),
            Look::Older(_) => false,
            Look::Past(_) => true,
        };
        let asked = boot_ms();
        tail.read_on(&self.parts, is_past).await?;
        let caches = self.caches.get().and_then(Weak::upgrade);
        if tail.owes_turn() || is_past {
            let sight = match tail.sight().await {
                // Perhaps the tables of this manifest are gone.
                Err(_) if !is_past => {
                    tail.read_on(&self.parts, true).await?;
                    tail.sight().await?
                }
                seen => seen?,
            };
            let sight = Arc::new(sight);
            let change = std::mem::replace(&mut tail.unturned, Change::Keys(BTreeSet::new()));
            tail.owes_catalog |= change.is_about(tag::SNAPSHOT);
            let before = self.sight();
            self.turn(Arc::clone(&sight), caches.as_deref(), &change);
            if let Some(caches) = &caches {
                caches.tell(&before.view, &sight.view, &change).await;
            }
        }
        if let Some(caches) = &caches
            && tail.owes_catalog
        {
            caches.read_catalog(&self.sight().view).await?;
            tail.owes_catalog = false;
        }
        self.looked_ms.fetch_max(asked, Ordering::AcqRel);
        Ok(())
    }

    /// `follow.one_turn`
    fn turn(&self, sight: Arc<Sight>, caches: Option<&dyn Caches>, change: &Change) {
        let _turning = self.turning.write();
        *self.sight.write() = sight;
        self.generation.fetch_add(1, Ordering::AcqRel);
        if let Some(caches) = caches {
            caches.forget(change);
        }
    }
}

impl Change {
    fn is_about(&self, tag: u8) -> bool {
        match self {
            Change::All => true,
            Change::Keys(keys) => keys.iter().any(|key| key.first() == Some(&tag)),
        }
    }
}
