//! The engine's contract in its simplest form: a map. For unit tests; every batch is durable at
//! once.

use std::collections::BTreeMap;

use async_trait::async_trait;
use bytes::Bytes;
use larder_fs::{FsError, FsResult};
use parking_lot::Mutex;

use super::{Batch, Meta, Ticket, Usage};
use crate::keys;

#[derive(Default)]
pub(crate) struct MemMeta {
    state: Mutex<MemState>,
}

#[derive(Default)]
struct MemState {
    map: BTreeMap<Bytes, Bytes>,
    usage: Usage,
    newest: u64,
    closed: bool,
}

#[async_trait]
impl Meta for MemMeta {
    async fn get(&self, key: &[u8]) -> FsResult<Option<Bytes>> {
        Ok(self.state.lock().map.get(key).cloned())
    }

    async fn scan(&self, from: &[u8], to: &[u8], limit: usize) -> FsResult<Vec<(Bytes, Bytes)>> {
        if from >= to {
            return Ok(Vec::new());
        }
        let state = self.state.lock();
        let range = state.map.range(Bytes::copy_from_slice(from)..Bytes::copy_from_slice(to));
        Ok(range.take(limit).map(|(key, value)| (key.clone(), value.clone())).collect())
    }

    async fn last(&self, from: &[u8], to: &[u8]) -> FsResult<Option<(Bytes, Bytes)>> {
        if from >= to {
            return Ok(None);
        }
        let state = self.state.lock();
        let mut range = state.map.range(Bytes::copy_from_slice(from)..Bytes::copy_from_slice(to));
        Ok(range.next_back().map(|(key, value)| (key.clone(), value.clone())))
    }

    async fn admit(&self) -> FsResult<()> {
        Ok(())
    }

    fn submit(&self, batch: Batch) -> FsResult<Ticket> {
        let mut state = self.state.lock();
        if state.closed {
            return Err(FsError::Poisoned("the volume is closed".into()));
        }
        for (key, value) in batch.ops {
            match value {
                Some(value) => state.map.insert(key, value),
                None => state.map.remove(&key),
            };
        }
        if !batch.usage.is_zero() {
            state.usage = state.usage.plus(batch.usage);
            let value = keys::encode_usage(state.usage);
            state.map.insert(Bytes::from_static(keys::USAGE_KEY), value);
        }
        state.newest += 1;
        Ok(Ticket(state.newest))
    }

    async fn durable(&self, _ticket: Ticket) -> FsResult<()> {
        Ok(())
    }

    fn newest(&self) -> Ticket {
        Ticket(self.state.lock().newest)
    }

    fn usage(&self) -> Usage {
        self.state.lock().usage
    }

    fn fault(&self) -> Option<FsError> {
        None
    }

    async fn close(&self) -> FsResult<()> {
        self.state.lock().closed = true;
        Ok(())
    }
}
