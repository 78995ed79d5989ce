//! Waiting for work on disks, and no longer than the disks answer.

use std::sync::Arc;

use crate::disk::watch::Watch;
use crate::error::PoolError;
use crate::member::members::Members;

/// Slots of disks that do not answer any more; at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hanging(pub Vec<u8>);

impl Members {
    /// Runs blocking work on a thread that may block.
    pub async fn blocking<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Arc<Self>) -> T + Send + 'static,
    ) -> Result<T, PoolError> {
        let members = self.clone();
        self.work.blocking(move || work(&members)).await.ok_or_else(|| PoolError::Cancelled(self.name.clone()))
    }

    /// Waits for `work`, but no longer than the disks at these slots answer (`hang.call_too_long`).
    pub async fn while_answering<T>(
        &self,
        slots: impl IntoIterator<Item = u8>,
        work: impl Future<Output = T>,
    ) -> Result<T, Hanging> {
        let watches = self.watches(slots);
        tokio::select! {
            biased;
            done = work => Ok(done),
            hanging = self.until_closed(&watches) => Err(hanging),
        }
    }

    /// The disks at these slots that answer, as far as is known.
    fn watches(&self, slots: impl IntoIterator<Item = u8>) -> Vec<(u8, Arc<Watch>)> {
        let watches = slots.into_iter().filter_map(|slot| Some((slot, self.member(slot)?.watch())));
        watches.filter(|(_, watch)| !watch.is_closed()).collect()
    }

    async fn until_closed(&self, watches: &[(u8, Arc<Watch>)]) -> Hanging {
        loop {
            let mut hung = std::pin::pin!(self.hangs.notified());
            hung.as_mut().enable();
            let closed = watches.iter().filter(|(_, watch)| watch.is_closed());
            let closed: Vec<u8> = closed.map(|(slot, _)| *slot).collect();
            if !closed.is_empty() {
                return Hanging(closed);
            }
            hung.await;
        }
    }

    /// Does `work`, which reads from the disks at these slots, again and again without those that
    /// turn out to hang. Blocks.
    pub fn without_hanging<T: Send + 'static>(
        self: &Arc<Self>,
        slots: &[u8],
        work: impl Fn(&Arc<Self>) -> T + Clone + Send + 'static,
    ) -> Result<T, PoolError> {
        for _ in 0..=slots.len() {
            let watches = self.watches(slots.iter().copied()).into_iter().map(|(_, watch)| watch);
            let (watches, members, work) = (watches.collect::<Vec<Arc<Watch>>>(), self.clone(), work.clone());
            if let Some(done) = self.work.watched(&watches, move || work(&members)) {
                return Ok(done);
            }
        }
        Err(PoolError::Cancelled(self.name.clone()))
    }
}
