//! Rights to read or write by stateids that were judged before, for looks without the lock of all state.
//!
//! An open that reads keeps other clients' delegations to write away, and one that writes keeps all of them away: none is
//! granted beside it, and it is not granted before theirs have ended. So nothing has to be asked again while the state
//! stands as it is.
//!
//! - `rights.end_with_state`: the table of states forgets a right with each change of its state. Both happen under the
//!   lock, so a right that is found is one of a state that stood a moment ago, as with any request on its way.

use std::collections::HashMap;

use parking_lot::RwLock;

use super::file_key::{FileKey, ShareBits};
use super::openers::Openers;
use super::stateids::StateNumber;
use super::types::ClientId;

const SHARDS: usize = 32;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownRight {
    pub client: ClientId,
    pub file: FileKey,
    pub seqid: u32,
    pub access: ShareBits,
    pub openers: Openers,
}

/// At most one for each state.
pub struct KnownRights {
    shards: [RwLock<HashMap<StateNumber, KnownRight>>; SHARDS],
}

impl Default for KnownRights {
    fn default() -> Self {
        Self { shards: std::array::from_fn(|_| RwLock::default()) }
    }
}

impl KnownRights {
    fn shard(&self, number: StateNumber) -> Option<&RwLock<HashMap<StateNumber, KnownRight>>> {
        self.shards.get(usize::try_from(number.0).unwrap_or(0) % SHARDS)
    }

    #[cfg(test)]
    pub fn all(&self) -> Vec<(StateNumber, KnownRight)> {
        let of_shard =
            |shard: &RwLock<HashMap<_, _>>| shard.read().iter().map(|(number, right)| (*number, *right)).collect();
        self.shards.iter().flat_map(|shard| -> Vec<_> { of_shard(shard) }).collect()
    }

    pub fn find(&self, number: StateNumber) -> Option<KnownRight> {
        self.shard(number)?.read().get(&number).copied()
    }

    pub fn insert(&self, number: StateNumber, right: KnownRight) {
        if let Some(shard) = self.shard(number) {
            shard.write().insert(number, right);
        }
    }

    /// `rights.end_with_state`
    pub fn forget(&self, number: StateNumber) {
        if let Some(shard) = self.shard(number)
            && shard.read().contains_key(&number)
        {
            shard.write().remove(&number);
        }
    }
}
