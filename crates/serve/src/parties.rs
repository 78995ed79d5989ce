//! Connections with a right, by party: nobody takes all places of a door.
//!
//! A party is a user, or all clients of one network that come without a name: guests, visitors of links, machines of NFS.
//!
//! - `parties.most_makes_room`: a newcomer with a right at a full door takes the place of the party that holds most. That
//!   party's newest connection ends as if the client had lost it.
//! - `parties.fair_part`: no connection ends for a newcomer unless its party holds more than [`Parties::fair`] and more than the
//!   newcomer's party would. A newcomer of such a party is refused itself.
//! - `parties.strangers_wait_beside`: the party of a newcomer is unknown before its login. While room can be made a full door has
//!   [`Parties::extra`] places more, for newcomers that log in.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::strangers::{STRANGERS_MAX, network};

/// Parties that share a full door evenly have this many part each.
const FAIR_DIVISOR: usize = 64;
/// A full door lets newcomers log in at this part of its places, beside them.
const EXTRA_DIVISOR: usize = 8;

/// The holder of connections.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Party {
    /// A user who has logged in.
    User(Arc<str>),
    /// Clients without a name, as [`network`] has it.
    Network(IpAddr),
}

impl Party {
    /// A user by name; without one the network of the address.
    pub fn of(user: Option<&str>, address: IpAddr) -> Self {
        match user {
            Some(name) => Self::User(name.into()),
            None => Self::Network(network(address)),
        }
    }
}

#[derive(Default)]
struct Table {
    next: u64,
    held: HashMap<u64, (Party, CancellationToken)>,
    /// By age: a higher number came later.
    parties: HashMap<Party, BTreeSet<u64>>,
    by_count: BTreeSet<(usize, Party)>,
    /// Ended for others, and not yet gone.
    leaving: HashSet<u64>,
}

impl Table {
    fn count_of(&self, party: &Party) -> usize {
        self.parties.get(party).map_or(0, BTreeSet::len)
    }

    /// Changes the connections of a party, and keeps the orders in step.
    fn change(&mut self, party: &Party, change: impl FnOnce(&mut BTreeSet<u64>)) {
        let ids = self.parties.entry(party.clone()).or_default();
        let before = ids.len();
        change(ids);
        let after = ids.len();
        self.by_count.remove(&(before, party.clone()));
        match after {
            0 => _ = self.parties.remove(party),
            _ => _ = self.by_count.insert((after, party.clone())),
        }
    }

    fn insert(&mut self, party: Party, end: CancellationToken) -> u64 {
        let id = self.next;
        self.next += 1;
        self.change(&party, |ids| _ = ids.insert(id));
        self.held.insert(id, (party, end));
        id
    }

    fn remove(&mut self, id: u64) -> Option<CancellationToken> {
        let (party, end) = self.held.remove(&id)?;
        self.change(&party, |ids| _ = ids.remove(&id));
        Some(end)
    }

    /// The party that holds most.
    fn most(&self) -> Option<&(usize, Party)> {
        self.by_count.last()
    }
}

/// The connections with a right of one door.
pub struct Parties {
    places: usize,
    table: Mutex<Table>,
}

/// The place of one connection, until it is dropped.
pub struct PartyPlace {
    parties: Arc<Parties>,
    id: u64,
}

impl Parties {
    /// For a door that has so many connections at most.
    pub fn new(places: usize) -> Self {
        Self { places, table: Mutex::default() }
    }

    /// Connections that a party may always have (`parties.fair_part`).
    fn fair(&self) -> usize {
        (self.places / FAIR_DIVISOR).max(1)
    }

    /// Places for newcomers of a full door (`parties.strangers_wait_beside`).
    fn extra(&self) -> usize {
        (self.places / EXTRA_DIVISOR).clamp(1, 2 * STRANGERS_MAX)
    }

    /// Whether a door with `open` connections has no place for a newcomer, not even by ending others. `party`: the
    /// newcomer's, if its login cannot change it.
    pub fn is_full(&self, open: usize, party: Option<&Party>) -> bool {
        if open < self.places {
            return false;
        }
        let table = self.table.lock();
        let can_make_room = table.most().is_some_and(|(count, most)| {
            *count > self.fair() && party.is_none_or(|own| own != most && *count > table.count_of(own) + 1)
        });
        !can_make_room || open >= self.places + self.extra()
    }

    /// A connection gets a right, at a door with `open` connections including this one. Another one ends for it if the door is
    /// full: `end` is cancelled then. `idle` may end one of the same party where it has to. `None`: the party has too many.
    pub fn enter(
        self: &Arc<Self>,
        party: Party,
        open: usize,
        end: CancellationToken,
        idle: impl FnOnce() -> bool,
    ) -> Option<PartyPlace> {
        let mut table = self.table.lock();
        if open.saturating_sub(table.leaving.len()) > self.places {
            let own = table.count_of(&party) + 1;
            let most = table.most().filter(|(count, _)| *count > self.fair() && *count > own);
            let newest = most.and_then(|(_, most)| table.parties.get(most)?.last().copied());
            if let Some(newest) = newest {
                if let Some(end) = table.remove(newest) {
                    table.leaving.insert(newest);
                    end.cancel();
                }
            } else if own > self.fair() {
                drop(table);
                if !idle() {
                    return None;
                }
                table = self.table.lock();
            }
        }
        let id = table.insert(party, end);
        Some(PartyPlace { parties: Arc::clone(self), id })
    }
}

impl Drop for PartyPlace {
    fn drop(&mut self) {
        let mut table = self.parties.table.lock();
        if table.remove(self.id).is_none() {
            table.leaving.remove(&self.id);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const PLACES: usize = 256;
    const FAIR: usize = PLACES / FAIR_DIVISOR;

    /// A door as the servers have it: connections with their ends.
    struct TestDoor {
        parties: Arc<Parties>,
        open: Vec<(PartyPlace, CancellationToken)>,
    }

    impl TestDoor {
        fn new() -> Self {
            Self { parties: Arc::new(Parties::new(PLACES)), open: Vec::new() }
        }

        /// Whether a newcomer gets in: as a stranger, and then by its login.
        fn comes(&mut self, party: &Party) -> bool {
            if self.parties.is_full(self.open.len(), None) {
                return false;
            }
            let end = CancellationToken::new();
            let place = self.parties.enter(party.clone(), self.open.len() + 1, end.clone(), || false);
            place.map(|place| self.open.push((place, end))).is_some()
        }

        /// Connections that had to end are gone.
        fn settle(&mut self) {
            self.open.retain(|(_, end)| !end.is_cancelled());
        }

        fn count(&self, party: &Party) -> usize {
            self.parties.table.lock().count_of(party)
        }

        fn is_empty(&self) -> bool {
            let table = self.parties.table.lock();
            table.held.len() + table.parties.len() + table.by_count.len() + table.leaving.len() == 0
        }
    }

    fn user(name: &str) -> Party {
        Party::of(Some(name), IpAddr::from([10, 0, 0, 1]))
    }

    fn guests(n: u8) -> Party {
        Party::of(None, IpAddr::from([10, 0, 0, n]))
    }

    #[test]
    fn the_party_that_holds_most_makes_room() {
        for greedy in [user("bob"), guests(1)] {
            let mut door = TestDoor::new();
            assert!((0..PLACES).all(|_| door.comes(&greedy)));
            assert!(!door.comes(&greedy), "it is refused itself");
            assert!(door.open.iter().all(|(_, end)| !end.is_cancelled()));
            for n in 1..=20 {
                assert!(door.comes(&user("alice")));
                assert_eq!(door.open.iter().filter(|(_, end)| end.is_cancelled()).count(), n, "one for each");
                assert!(door.open[PLACES - n].1.is_cancelled(), "the newest of the greedy");
            }
            door.settle();
            assert!(door.open.len() == PLACES && door.count(&user("alice")) == 20);
            assert!(!door.comes(&greedy));
            door.open.clear();
            assert!(door.is_empty());
        }
    }

    #[test]
    fn two_that_want_all_share_it() {
        let mut door = TestDoor::new();
        assert!((0..PLACES).all(|_| door.comes(&user("bob"))));
        for _ in 0..2 * PLACES {
            door.comes(&guests(1));
            door.settle();
        }
        assert_eq!([door.count(&user("bob")), door.count(&guests(1))], [PLACES / 2; 2]);
        assert!(door.comes(&guests(2)));
        door.settle();
        assert_eq!(door.open.len(), PLACES);
    }

    #[test]
    fn a_fair_part_is_kept() {
        let mut door = TestDoor::new();
        let parties: Vec<Party> = (0..FAIR_DIVISOR).map(|n| guests(n as u8)).collect();
        assert!((0..FAIR).all(|_| parties.iter().all(|party| door.comes(party))));
        assert!(!door.comes(&user("alice")), "nobody holds more than a fair part");
        assert!(door.open.iter().all(|(_, end)| !end.is_cancelled()));
        door.open.pop();
        assert!(door.comes(&guests(0)));
        assert!(door.comes(&user("alice")), "one holds more");
    }

    #[test]
    fn newcomers_without_a_login_end_nobody_and_are_bounded() {
        let mut door = TestDoor::new();
        assert!((0..PLACES).all(|_| door.comes(&user("bob"))));
        let parties = &door.parties;
        assert!(!parties.is_full(PLACES, None) && !parties.is_full(PLACES + parties.extra() - 1, None));
        assert!(parties.is_full(PLACES + parties.extra(), None));
        assert!(parties.is_full(PLACES, Some(&user("bob"))) && !parties.is_full(PLACES, Some(&guests(1))));
        assert!(door.open.iter().all(|(_, end)| !end.is_cancelled()));
    }

    #[test]
    fn an_idle_one_of_the_same_party_may_make_room() {
        let mut door = TestDoor::new();
        assert!((0..PLACES).all(|_| door.comes(&user("bob"))));
        let enter = |idle| door.parties.enter(user("bob"), PLACES + 1, CancellationToken::new(), move || idle);
        assert!(enter(false).is_none() && enter(true).is_some());
    }

    #[test]
    fn guests_of_one_ipv6_network_are_one_party() {
        let of = |text: &str| Party::of(None, text.parse().unwrap());
        assert!(of("2001:db8::1") == of("2001:db8::2") && of("2001:db8::1") != of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:10.0.0.1"), guests(1));
    }
}
