//! The rows of one snapshot: those of its image over those of the engine then.

use std::sync::Arc;

use bytes::Bytes;
use larder_fs::{FsResult, Ino};

use crate::keys::{self, tag};
use crate::meta::Frozen;
use crate::meta::overlay::Changes;

pub(crate) struct View {
    engine: Arc<dyn Frozen>,
    /// Newer than the engine's, or gone there.
    over: Changes,
}

impl View {
    pub(crate) fn new(engine: Arc<dyn Frozen>, over: Changes) -> Self {
        Self { engine, over }
    }

    /// The inodes whose records the image has: what was dirty then is in no table, and may never have come into one.
    pub(crate) fn patched(&self) -> impl Iterator<Item = Ino> + '_ {
        let records = self.over.keys().filter(|key| key.first() == Some(&tag::INODE));
        records.filter_map(|key| keys::ino_of(key).ok())
    }

    pub(crate) async fn get(&self, key: &[u8]) -> FsResult<Option<Bytes>> {
        match self.over.get(key) {
            Some(value) => Ok(value.clone()),
            None => self.engine.get(key).await,
        }
    }

    /// Up to `limit` pairs with `from <= key < to`, in key order.
    pub(crate) async fn scan(&self, from: &[u8], to: &[u8], limit: usize) -> FsResult<Vec<(Bytes, Bytes)>> {
        let (mut out, mut at) = (Vec::new(), Bytes::copy_from_slice(from));
        while out.len() < limit && at[..] < *to {
            let stored = self.engine.scan(&at, to, limit).await?;
            let is_last = stored.len() < limit;
            // The next page begins right behind the last row.
            let next = match stored.last() {
                Some((last, _)) if !is_last => [last, &[0][..]].concat().into(),
                _ => Bytes::copy_from_slice(to),
            };
            out.extend(merge(stored, self.over.range(at..next.clone())));
            at = next;
        }
        out.truncate(limit);
        Ok(out)
    }
}

#[async_trait::async_trait]
impl Frozen for View {
    async fn get(&self, key: &[u8]) -> FsResult<Option<Bytes>> {
        View::get(self, key).await
    }

    async fn scan(&self, from: &[u8], to: &[u8], limit: usize) -> FsResult<Vec<(Bytes, Bytes)>> {
        View::scan(self, from, to, limit).await
    }
}

/// Two sequences in key order as one; `over` wins.
fn merge<'a>(
    stored: Vec<(Bytes, Bytes)>,
    over: impl Iterator<Item = (&'a Bytes, &'a Option<Bytes>)>,
) -> Vec<(Bytes, Bytes)> {
    let mut out = Vec::with_capacity(stored.len());
    let mut stored = stored.into_iter().peekable();
    for (key, value) in over {
        while let Some(pair) = stored.next_if(|(at, _)| at < key) {
            out.push(pair);
        }
        stored.next_if(|(at, _)| at == key);
        out.extend(value.clone().map(|value| (key.clone(), value)));
    }
    out.extend(stored);
    out
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::BTreeMap;

    use super::*;
    use async_trait::async_trait;
    use proptest::prelude::*;

    struct Map(BTreeMap<Bytes, Bytes>);

    #[async_trait]
    impl Frozen for Map {
        async fn get(&self, key: &[u8]) -> FsResult<Option<Bytes>> {
            Ok(self.0.get(key).cloned())
        }
        async fn scan(&self, from: &[u8], to: &[u8], limit: usize) -> FsResult<Vec<(Bytes, Bytes)>> {
            let range = self.0.range(Bytes::copy_from_slice(from)..Bytes::copy_from_slice(to));
            Ok(range.take(limit).map(|(key, value)| (key.clone(), value.clone())).collect())
        }
    }

    proptest! {
        #[test]
        fn behaves_like_one_map(
            stored in prop::collection::btree_map(0u8..60, any::<u8>(), 0..40),
            over in prop::collection::btree_map(0u8..60, any::<Option<u8>>(), 0..20),
            from in 0u8..60, to in 0u8..61, limit in 1usize..12,
        ) {
            let bytes = |byte: u8| Bytes::copy_from_slice(&[byte]);
            let mut model: BTreeMap<u8, u8> = stored.clone();
            for (&key, &value) in &over {
                match value {
                    Some(value) => model.insert(key, value),
                    None => model.remove(&key),
                };
            }
            let engine = Map(stored.iter().map(|(&key, &value)| (bytes(key), bytes(value))).collect());
            let view = View::new(
                Arc::new(engine),
                over.iter().map(|(&key, value)| (bytes(key), value.map(bytes))).collect(),
            );
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let seen = runtime.block_on(view.scan(&[from], &[to], limit)).unwrap();
            let want: Vec<_> = model.range(from..to.max(from)).take(limit).map(|(&k, &v)| (bytes(k), bytes(v))).collect();
            prop_assert_eq!(seen, want);
            prop_assert_eq!(runtime.block_on(view.get(&[from])).unwrap(), model.get(&from).map(|&v| bytes(v)));
        }
    }
}
