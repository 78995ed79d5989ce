//! What a volume holds that programs before it could not know, said in its entry of the registry before it is made: a program that does not know
//! the mark opens the volume for reading at most.

use std::sync::Arc;

use object_store::ObjectStore;
use uuid::Uuid;

use crate::registry;
use crate::types::FsResult;

/// Files have room reserved (`data::reserved`). Who does not know would write over it, and never give it back.
pub(crate) const RESERVED_RANGES: &str = "reserved-ranges";
/// Files have named attributes (`named`). Who does not know would leave them behind when it removes the file.
pub(crate) const NAMED_ATTRIBUTES: &str = "named-attributes";

/// Files have access control lists (`acl`). Who does not know would judge by the mode bits alone, and drop them.
pub(crate) const ACCESS_LISTS: &str = "access-lists";

/// All of them.
pub(crate) const KNOWN: [&str; 3] = [ACCESS_LISTS, NAMED_ATTRIBUTES, RESERVED_RANGES];

pub(crate) struct Marks {
    /// `None`: the volume has no registry, in tests.
    entry: Option<(Arc<dyn ObjectStore>, Uuid)>,
    /// Those that are known to be set.
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
            registry::mark(&**store, *id, mark).await?;
        }
        if !set.contains(&mark) {
            set.push(mark);
        }
        Ok(())
    }
}
