//! What the clients of each network hold: opens, locks and delegations, and owners.
//!
//! - `networks.parts`: a network has at most an eighth of a table, and may not add to the last quarter of it beyond its
//!   [`reserve`]. So whatever some networks take, another one finds room for a little. An IPv6 client has a whole /64, which
//!   counts as one address.
//!
//! A machine makes up as many clients as it likes, so a bound by client would be none.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};

use super::super::types::ClientId;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Holdings {
    pub states: usize,
    pub owners: usize,
}

#[derive(Debug, Default)]
pub(super) struct Networks {
    /// Confirmed clients, until their end.
    clients: HashMap<ClientId, IpAddr>,
    held: HashMap<IpAddr, Holdings>,
}

/// The part of a table of `all_max` entries that every network may have.
const fn reserve(all_max: usize) -> usize {
    all_max / 2048
}

/// Whether a network that holds `own` may have one more of a table with `all` entries (`networks.parts`).
pub(super) fn has_part(own: usize, all: usize, all_max: usize) -> bool {
    let has_little = own < reserve(all_max);
    all < all_max && (has_little || !has_its_part(own, all_max) && all < all_max / 4 * 3)
}

/// Whether a network that holds `own` may have no more, whatever others hold.
pub(super) fn has_its_part(own: usize, all_max: usize) -> bool {
    own >= all_max / 8
}

impl Networks {
    pub(super) fn admit(&mut self, client: ClientId, network: IpAddr) {
        self.clients.entry(client).or_insert(network);
        self.held.entry(network).or_default();
    }

    /// Without [`Networks::admit`] all are of one network.
    pub(super) fn of(&self, client: ClientId) -> IpAddr {
        self.clients.get(&client).copied().unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED))
    }

    pub(super) fn held_by(&self, client: ClientId) -> Holdings {
        self.held.get(&self.of(client)).copied().unwrap_or_default()
    }

    pub(super) fn held_by_mut(&mut self, client: ClientId) -> &mut Holdings {
        self.held.entry(self.of(client)).or_default()
    }

    pub(super) fn gives_back(&mut self, client: ClientId, less: Holdings) {
        let held = self.held_by_mut(client);
        held.states = held.states.saturating_sub(less.states);
        held.owners = held.owners.saturating_sub(less.owners);
    }

    /// The client holds nothing any more.
    pub(super) fn end(&mut self, client: ClientId) {
        let network = self.of(client);
        self.clients.remove(&client);
        if self.held.get(&network) == Some(&Holdings::default()) {
            self.held.remove(&network);
        }
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.clients.is_empty() && self.held.values().all(|held| *held == Holdings::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: usize = 1 << 17;

    /// Each of `networks` takes what it may, one after the other; the parts that they have then.
    fn taken(networks: usize) -> Vec<usize> {
        let mut all = 0;
        let take = |_| {
            let before = all;
            while has_part(all - before, all, ALL) {
                all += 1;
            }
            all - before
        };
        (0..networks).map(take).collect()
    }

    #[test]
    fn some_networks_leave_room_for_others() {
        assert_eq!(taken(1), [ALL / 8]);
        let many = taken(100);
        assert!(many.iter().all(|part| *part >= reserve(ALL)), "{many:?}");
        assert!(many.iter().sum::<usize>() < ALL);
        assert!(reserve(ALL) >= 64, "enough for a machine at work");
    }
}
