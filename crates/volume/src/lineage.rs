//! The segments of a clone that are still its ancestors'.
//!
//! ```text
//! volumes/<clone>/seg/0000000000000007  -->  volumes/<ancestor>/seg/0000000000000007
//! ```
//!
//! - `lineage.by_number`: a clone begins with the segments of a snapshot, and numbers its own after all that its ancestors had then.
//!   So the number of a segment says whose it is. Encryption lies above: it binds an object to its path below the volume's prefix,
//!   which is the same on both sides.
//! - `lineage.read_only`: a clone neither writes nor deletes what is an ancestor's. It keeps these segments as those of a snapshot
//!   with the number 0, which is never destroyed, so that no collection touches them.
//! - `lineage.snapshot_stays`: the snapshot that a clone began as cannot be destroyed, nor its volume.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, PutMultipartOptions,
    PutOptions, PutPayload, PutResult, Result,
};
use parking_lot::RwLock;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::data::{SegmentId, segment_of};
use crate::layout::prefix_of;

/// The number of the snapshot that stands for what a clone has of its ancestors.
pub(crate) const INHERITED: u64 = 0;

/// The beginning of a clone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Origin {
    /// The snapshot that it was: its volume, its number there, and its name then.
    pub(crate) volume: Uuid,
    pub(crate) snapshot: u64,
    pub(crate) name: String,
    /// The volumes whose segments it reads, the oldest first.
    pub(crate) lineage: Vec<Ancestor>,
}

/// A volume whose segments a clone reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ancestor {
    pub(crate) volume: Uuid,
    /// Segments up to this number are this volume's, if they are not those of one before.
    pub(crate) newest: u64,
}

/// The newest number that is an ancestor's; 0: there is none.
pub(crate) fn newest(lineage: &[Ancestor]) -> u64 {
    lineage.last().map_or(0, |ancestor| ancestor.newest)
}

/// The ancestor whose segment it is.
pub(crate) fn owner(lineage: &[Ancestor], id: SegmentId) -> Option<Uuid> {
    lineage.iter().find(|ancestor| id.0 <= ancestor.newest).map(|ancestor| ancestor.volume)
}

/// A store in which the segments of ancestors seem to be the clone's own.
#[derive(Clone)]
pub(crate) struct Lineage(Arc<Inner>);

struct Inner {
    inner: Arc<dyn ObjectStore>,
    folder: Path,
    lineage: RwLock<Vec<Ancestor>>,
}

impl Lineage {
    pub(crate) fn new(inner: Arc<dyn ObjectStore>, clone: Uuid, lineage: Vec<Ancestor>) -> Self {
        Self(Arc::new(Inner { inner, folder: prefix_of(clone).join("seg"), lineage: RwLock::new(lineage) }))
    }

    /// Other ancestors have the same segments from now on. Of none: all are its own.
    pub(crate) fn set(&self, lineage: Vec<Ancestor>) {
        *self.0.lineage.write() = lineage;
    }

    /// The folders of its ancestors' segments.
    pub(crate) fn folders(&self) -> Vec<Path> {
        self.0.lineage.read().iter().map(|ancestor| prefix_of(ancestor.volume).join("seg")).collect()
    }

    /// The place of an object of an ancestor; `None` for its own.
    pub(crate) fn place(&self, location: &Path) -> Option<Path> {
        self.0.inherited(location)
    }
}

impl Inner {
    /// The place of an object of an ancestor.
    fn inherited(&self, location: &Path) -> Option<Path> {
        let id = segment_of(location).filter(|_| location.prefix_matches(&self.folder))?;
        let owner = owner(&self.lineage.read(), id)?;
        Some(prefix_of(owner).join("seg").join(location.filename()?))
    }

    /// `lineage.read_only`
    fn check_own(&self, location: &Path) -> Result<()> {
        match self.inherited(location) {
            None => Ok(()),
            Some(at) => Err(object_store::Error::Generic {
                store: "lineage",
                source: format!("{location} is {at}, which a clone does not change").into(),
            }),
        }
    }
}

impl fmt::Debug for Lineage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lineage({}, {:?})", self.0.folder, self.0.lineage.read())
    }
}

impl fmt::Display for Lineage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the clone {} over {}", self.0.folder, self.0.inner)
    }
}

#[async_trait]
impl ObjectStore for Lineage {
    async fn put_opts(&self, location: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        self.0.check_own(location)?;
        self.0.inner.put_opts(location, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.0.check_own(location)?;
        self.0.inner.put_multipart_opts(location, options).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        match self.0.inherited(location) {
            Some(at) => self.0.inner.get_opts(&at, options).await,
            None => self.0.inner.get_opts(location, options).await,
        }
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        match self.0.inherited(location) {
            Some(at) => self.0.inner.get_ranges(&at, ranges).await,
            None => self.0.inner.get_ranges(location, ranges).await,
        }
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let own = Arc::clone(&self.0);
        let checked = locations.map(move |location| location.and_then(|at| own.check_own(&at).map(|()| at)));
        self.0.inner.delete_stream(checked.boxed())
    }

    /// Only its own.
    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.0.inner.list(prefix)
    }

    fn list_with_offset(&self, prefix: Option<&Path>, offset: &Path) -> BoxStream<'static, Result<ObjectMeta>> {
        self.0.inner.list_with_offset(prefix, offset)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.0.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.0.check_own(to)?;
        match self.0.inherited(from) {
            Some(at) => self.0.inner.copy_opts(&at, to, options).await,
            None => self.0.inner.copy_opts(from, to, options).await,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use object_store::ObjectStoreExt;
    use object_store::memory::InMemory;

    use super::*;
    use crate::data::object_path;

    #[test]
    fn golden_text() {
        let [volume, parent] = [1, 2].map(Uuid::from_u128);
        let lineage = vec![Ancestor { volume, newest: 3 }, Ancestor { volume: parent, newest: 6 }];
        let origin = Origin { volume: parent, snapshot: 5, name: "a".into(), lineage };
        let golden = concat!(
            r#"{"volume":"00000000-0000-0000-0000-000000000002","snapshot":5,"name":"a","#,
            r#""lineage":[{"volume":"00000000-0000-0000-0000-000000000001","newest":3},"#,
            r#"{"volume":"00000000-0000-0000-0000-000000000002","newest":6}]}"#
        );
        assert_eq!(serde_json::to_string(&origin).unwrap(), golden);
        assert_eq!(serde_json::from_str::<Origin>(golden).unwrap(), origin);
    }

    #[tokio::test]
    async fn the_number_of_a_segment_says_whose_it_is() {
        let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
        let ids = [1, 2, 3].map(Uuid::from_u128);
        let put = async |volume: usize, number: u64, text: &'static str| {
            let at = object_path(&prefix_of(ids[volume]), SegmentId(number));
            store.put(&at, text.into()).await.unwrap();
        };
        put(0, 2, "oldest").await;
        put(0, 5, "oldest, later").await;
        put(1, 5, "parent").await;
        let of = |volume: usize, newest: u64| Ancestor { volume: ids[volume], newest };
        let clone = Lineage::new(Arc::clone(&store), ids[2], vec![of(0, 3), of(1, 6)]);
        let at = |number| object_path(&prefix_of(ids[2]), SegmentId(number));
        let read =
            async |number| String::from_utf8(clone.get(&at(number)).await.unwrap().bytes().await.unwrap().to_vec());
        assert_eq!(read(2).await.unwrap(), "oldest");
        assert_eq!(read(5).await.unwrap(), "parent");
        assert!(clone.put(&at(6), "x".into()).await.is_err(), "it would be an ancestor's");
        clone.put(&at(7), "own".into()).await.unwrap();
        assert_eq!(read(7).await.unwrap(), "own");
        assert!(clone.delete(&at(5)).await.is_err(), "nothing of an ancestor goes");
        clone.delete(&at(7)).await.unwrap();
        assert_eq!(read(5).await.unwrap(), "parent");
        assert!(clone.get(&at(7)).await.is_err());
        clone.set(Vec::new());
        assert!(clone.get(&at(5)).await.is_err());
        clone.put(&at(5), "own".into()).await.unwrap();
    }
}
