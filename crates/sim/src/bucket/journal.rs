//! The pool of a machine, whose journal answers for the bucket: it outlives the machine's processes, and no other machine has it.

use std::sync::Arc;

use futures::future::BoxFuture;
use larder_base::log::{LogError, LogStore, MemLog};
use larder_store::{AfterLog, BucketError, BucketLog, JournalMark, JournalTeller, JournaledLog, Local, Owner};
use object_store::ObjectStore;
use object_store::memory::InMemory;
use object_store::path::Path;

/// A pool, as far as a journal needs one. Its disks are sound: other schedules have those that are not.
#[derive(Clone)]
pub struct Disks {
    name: &'static str,
    journal: MemLog,
    objects: Arc<InMemory>,
}

/// What a volume stands on.
pub struct Ground {
    pub store: Arc<dyn ObjectStore>,
    pub log: Arc<dyn LogStore>,
    pub journal: Option<JournaledLog>,
}

impl Disks {
    pub fn new(name: &'static str) -> Self {
        Self { name, journal: MemLog::default(), objects: Arc::default() }
    }

    /// As the daemon opens it: what is left goes into the bucket, then the record says that answers come from here.
    pub fn answer(
        self,
        store: Arc<dyn ObjectStore>,
        owner: Owner,
        bucket: BucketLog,
    ) -> BoxFuture<'static, Result<Ground, BucketError>> {
        Box::pin(async move { self.opened(store, owner, bucket).await })
    }

    async fn opened(self, store: Arc<dyn ObjectStore>, owner: Owner, bucket: BucketLog) -> Result<Ground, BucketError> {
        let local = Local::new("s3://sim", Arc::new(self.journal.clone()), self.objects.clone());
        let log = JournaledLog::recover(bucket, local).await;
        let log = log.map_err(|error: LogError| BucketError::Damaged("the journal".to_owned(), error.to_string()))?;
        // Entries that have no place in the bucket any more may be there: of a process that was killed before it answered anybody.
        // That nothing answered is among them, the volume's model says (`owner.journal_is_not_dropped`).
        owner.settle_journal(Some(self.teller(&log))).await?;
        let store = Arc::new(AfterLog::new(store, log.barrier(), is_immutable));
        Ok(Ground { store, log: Arc::new(log.clone()), journal: Some(log) })
    }

    fn teller(&self, log: &JournaledLog) -> JournalTeller {
        let (name, log, drained_ms) = (self.name.to_owned(), log.clone(), log.drained_ms());
        Box::new(move || {
            let waits = log.undrained();
            let (pool, pool_id) = (name.clone(), name.clone());
            let (entries, bytes) = (waits.entries, waits.bytes);
            JournalMark { pool, pool_id, drained_ms: drained_ms(), entries, bytes, ..JournalMark::default() }
        })
    }
}

fn is_immutable(path: &Path) -> bool {
    path.as_ref().contains("/seg/") || path.as_ref().ends_with(".sst")
}
