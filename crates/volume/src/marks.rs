//! Marks of features in the registry entry of a volume, written before the feature is first used. A
//! program that does not know a mark opens the volume for reading at most.

use std::sync::Arc;

use larder_fs::FsResult;
use object_store::ObjectStore;
use uuid::Uuid;

use crate::registry::document;

pub(crate) struct Marks {
    /// `None`: the volume has no registry, in tests.
    entry: Option<(Arc<dyn ObjectStore>, Uuid)>,
    /// The marks that are known to be set.
    set: tokio::sync::Mutex<Vec<&'static str>>,
}

impl Marks {
    pub(crate) fn of(store: Arc<dyn ObjectStore>, id: Uuid) -> Arc<Self> {
        Arc::new(Self { entry: Some((store, id)), set: Default::default() })
    }

    #[cfg(test)]
    pub(crate) fn without_registry() -> Arc<Self> {
        Arc::new(Self { entry: None, set: Default::default() })
    }

    /// Durable when it returns.
    pub(crate) async fn set(&self, mark: &'static str) -> FsResult<()> {
        let mut set = self.set.lock().await;
        if let Some((store, id)) = &self.entry
            && !set.contains(&mark)
        {
            document::mark(&**store, *id, mark).await?;
        }
        if !set.contains(&mark) {
            set.push(mark);
        }
        Ok(())
    }
}
