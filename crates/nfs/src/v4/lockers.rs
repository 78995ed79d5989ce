//! Clients of NFS v3 that lock files, in the records and in the grace of version 4: a volume has one record of clients
//! and one grace, whatever they speak ([`super::grace`]).
//!
//! - `lockers.by_address`: such a client is known by its address, to which a restart is announced.
//! - `lockers.forgotten_without_locks`: a client without locks leaves the record, so no restart waits for it.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use super::clients::OwnerKey;
use super::server::{KnownVolume, NfsV4};
use super::types::NfsStat;

impl NfsV4 {
    /// The record of a volume's clients has this one, durably (`grace.recorded_before_answered`).
    pub async fn record_locker(self: &Arc<Self>, client: IpAddr, volume: &KnownVolume) -> Result<(), NfsStat> {
        self.record_owner(OwnerKey::of_address(client), volume).await
    }

    /// Whether the client had locks in the volume before the restart and may take them back now.
    pub fn may_reclaim_locks(&self, client: IpAddr, volume: &KnownVolume) -> bool {
        let state = self.lock();
        state.books.get(&volume.book()).is_some_and(|grace| grace.may_reclaim(&OwnerKey::of_address(client)).is_ok())
    }

    /// The clients that hear of a restart: each may reclaim in some volume.
    pub fn awaited_lockers(&self) -> BTreeSet<IpAddr> {
        let state = self.lock();
        state.books.values().flat_map(|grace| grace.awaited().filter_map(OwnerKey::address)).collect()
    }

    /// Whether some volume waits for what the client had.
    pub fn awaits_locker(&self, client: IpAddr) -> bool {
        let key = OwnerKey::of_address(client);
        self.lock().books.values().any(|grace| grace.awaited().any(|owner| *owner == key))
    }

    /// The client has taken back all that it had. Durable with [`NfsV4::settle`].
    pub fn locker_completed(&self, client: IpAddr) {
        let now = self.now();
        self.lock().completed(&OwnerKey::of_address(client), now);
    }

    /// `lockers.forgotten_without_locks`. Durable with [`NfsV4::settle`].
    pub fn forget_locker(&self, client: IpAddr) {
        self.lock().forget(&OwnerKey::of_address(client));
    }
}
