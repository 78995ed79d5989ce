//! CREATE requests by the CreateGuid they carry (MS-SMB2 3.3.5.9.10): a
//! client that sends one again is answered by the open it made, also one that
//! is not durable, and is told to wait while the first one is still at it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use uuid::Uuid;

/// Connection.ClientGuid and CreateGuid.
type Key = (Uuid, [u8; 16]);

/// Every version 2 CREATE that is under way or whose open is there.
pub(crate) struct Replays<Open>(Mutex<HashMap<Key, Place<Open>>>);

/// What became of a CREATE.
pub(crate) enum Place<Open> {
    UnderWay,
    /// It made this open, which may be answered again.
    Made(Weak<Open>),
}

/// A CREATE's place, which is empty again when this is dropped: with a CREATE
/// that fails, or with the open.
pub(crate) struct Begun<Open> {
    table: Arc<Replays<Open>>,
    key: Key,
}

impl<Open> Default for Replays<Open> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<Open> Replays<Open> {
    fn places(&self) -> MutexGuard<'_, HashMap<Key, Place<Open>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a CREATE; or what another with the same names has come to.
    pub(crate) fn begin(self: &Arc<Self>, client: Uuid, create_guid: [u8; 16]) -> Result<Begun<Open>, Place<Open>> {
        let key = (client, create_guid);
        let mut places = self.places();
        match places.get(&key) {
            Some(Place::UnderWay) => Err(Place::UnderWay),
            Some(Place::Made(open)) => Err(Place::Made(Weak::clone(open))),
            None => {
                places.insert(key, Place::UnderWay);
                Ok(Begun { table: Arc::clone(self), key })
            }
        }
    }
}

impl<Open> Begun<Open> {
    /// The CREATE made `open`.
    pub(crate) fn made(&self, open: &Arc<Open>) {
        self.table.places().insert(self.key, Place::Made(Arc::downgrade(open)));
    }
}

impl<Open> Drop for Begun<Open> {
    fn drop(&mut self) {
        self.table.places().remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_create_is_under_way_until_it_ends() {
        let table = Arc::new(Replays::<()>::default());
        let (one, other) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let first = table.begin(one, [7; 16]).ok().unwrap();
        assert!(matches!(table.begin(one, [7; 16]), Err(Place::UnderWay)));
        assert!(table.begin(other, [7; 16]).is_ok() && table.begin(one, [8; 16]).is_ok());
        drop(first);
        assert!(table.begin(one, [7; 16]).is_ok());
        assert!(table.places().is_empty());
    }
}
