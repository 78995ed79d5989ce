//! Connections with a right, by party: nobody takes all places of a door.
//!
//! A party is a user, or all clients of one network that come without a name: guests, visitors of links, machines of NFS.
//!
//! - `parties.most_makes_room`: a newcomer with a right at a full door takes the place of the party that holds most. That
//!   party's newest connection ends as if the client had lost it.
//! - `parties.few_always_find_place`: a newcomer whose party holds no more than [`FEW`] takes the place of any party that
//!   holds more than its own would. So a door is shut only to a party that holds as much as every other one.
//! - `parties.fair_part`: for more than that no connection ends unless its party holds more than [`Parties::fair`] and more
//!   than the newcomer's party would. A newcomer of such a party is refused itself.
//! - `parties.visitors_have_a_part`: visitors of public links have half of the places together, and those of one link a
//!   quarter. Beyond that one visitor takes another's place, or is refused. At a full door idle visitors go first, whoever
//!   comes, and a user takes the place of any visitor.
//! - `parties.strangers_wait_beside`: the party of a newcomer is unknown before its login. While room can be made a full door has
//!   [`Parties::extra`] places more, for newcomers that log in.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::strangers::{STRANGERS_MAX, network};

/// Parties that share a full door evenly have this many part each.
const FAIR_DIVISOR: usize = 64;
/// Connections of a client at work: a browser opens six.
const FEW: usize = 8;
/// Visitors of links together, and those of one link, have these parts of the places.
const VISITORS_DIVISOR: usize = 2;
const LINK_DIVISOR: usize = 4;
/// A visitor without a byte for so long is idle.
const VISITOR_IDLE: Duration = Duration::from_secs(5);
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

/// When bytes went over a connection last.
pub struct LastBytes(Mutex<Instant>);

impl Default for LastBytes {
    fn default() -> Self {
        Self(Mutex::new(Instant::now()))
    }
}

impl LastBytes {
    /// Bytes went over the connection.
    pub fn now(&self) {
        *self.0.lock() = Instant::now();
    }

    fn idle(&self, now: Instant) -> Duration {
        now.saturating_duration_since(*self.0.lock())
    }
}

/// A connection that came by a public link.
#[derive(Clone)]
pub struct Visitor {
    /// The link, by what tells it from others.
    pub link: Arc<str>,
    /// When it was used last.
    pub last: Arc<LastBytes>,
}

struct Held {
    party: Party,
    end: CancellationToken,
    visitor: Option<Visitor>,
}

#[derive(Default)]
struct Table {
    next: u64,
    held: HashMap<u64, Held>,
    /// Those who came by a link, and how many by each.
    visitors: BTreeSet<u64>,
    links: HashMap<Arc<str>, usize>,
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

    fn insert(&mut self, held: Held) -> u64 {
        let id = self.next;
        self.next += 1;
        self.change(&held.party, |ids| _ = ids.insert(id));
        if let Some(visitor) = &held.visitor {
            self.visitors.insert(id);
            *self.links.entry(Arc::clone(&visitor.link)).or_default() += 1;
        }
        self.held.insert(id, held);
        id
    }

    fn remove(&mut self, id: u64) -> Option<CancellationToken> {
        let held = self.held.remove(&id)?;
        self.change(&held.party, |ids| _ = ids.remove(&id));
        if let Some(visitor) = &held.visitor {
            self.visitors.remove(&id);
            let count = self.links.entry(Arc::clone(&visitor.link)).or_default();
            *count -= 1;
            if *count == 0 {
                self.links.remove(&visitor.link);
            }
        }
        Some(held.end)
    }

    /// One ends for another.
    fn end(&mut self, id: u64) {
        if let Some(end) = self.remove(id) {
            self.leaving.insert(id);
            end.cancel();
        }
    }

    /// The visitor, of `link` where one is given, that was idle for longest, if that is long.
    fn idle_visitor(&self, link: Option<&str>) -> Option<u64> {
        let now = Instant::now();
        let idle = |id: &u64| {
            let visitor = self.held.get(id)?.visitor.as_ref()?;
            let idle = visitor.last.idle(now);
            let is_of_link = link.is_none_or(|link| *visitor.link == *link);
            (is_of_link && idle >= VISITOR_IDLE).then_some((idle, *id))
        };
        self.visitors.iter().filter_map(idle).max().map(|(_, id)| id)
    }

    /// The newest visitor, of `link` where one is given, of the party that holds most, if that is more than `own`.
    fn visitor_of_most(&self, link: Option<&str>, own: usize) -> Option<u64> {
        let rank = |id: &u64| {
            let held = self.held.get(id)?;
            let is_of_link =
                link.is_none_or(|link| held.visitor.as_ref().is_some_and(|visitor| *visitor.link == *link));
            let count = self.count_of(&held.party);
            (is_of_link && count > own).then_some((count, *id))
        };
        self.visitors.iter().filter_map(rank).max().map(|(_, id)| id)
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
        let own = party.map_or(1, |own| table.count_of(own) + 1);
        let can_make_room = !table.visitors.is_empty() || self.most_above(&table, own).is_some();
        !can_make_room || open >= self.places + self.extra()
    }

    /// The party that makes room for one that would hold `own` (`parties.most_makes_room`).
    fn most_above<'a>(&self, table: &'a Table, own: usize) -> Option<&'a Party> {
        let (count, most) = table.most()?;
        (*count > own && (own <= FEW || *count > self.fair())).then_some(most)
    }

    /// The connection that ends for one of `party`, which would hold `own` then.
    fn victim(&self, table: &Table, party: &Party, own: usize) -> Option<u64> {
        let of_most = || table.parties.get(self.most_above(table, own)?)?.last().copied();
        let of_visitors = || match party {
            Party::User(_) if own <= FEW => table.visitor_of_most(None, 0),
            _ => None,
        };
        table.idle_visitor(None).or_else(of_most).or_else(of_visitors)
    }

    /// Whether one more visitor of `link` has a place among the visitors, perhaps by ending another
    /// (`parties.visitors_have_a_part`).
    fn has_part(&self, table: &mut Table, link: &str, own: usize) -> bool {
        let of_link = table.links.get(link).copied().unwrap_or_default();
        let among = match () {
            () if of_link >= (self.places / LINK_DIVISOR).max(1) => Some(link),
            () if table.visitors.len() >= (self.places / VISITORS_DIVISOR).max(1) => None,
            () => return true,
        };
        let victim = table.idle_visitor(among).or_else(|| table.visitor_of_most(among, own));
        victim.inspect(|victim| table.end(*victim)).is_some()
    }

    /// A connection gets a right, at a door with `open` connections including this one. Another one ends for it if the door is
    /// full: `end` is cancelled then. `idle` may end an idle one where nobody has to. `None`: the party has too many.
    pub fn enter(
        self: &Arc<Self>,
        party: Party,
        visitor: Option<Visitor>,
        open: usize,
        end: CancellationToken,
        idle: impl FnOnce() -> bool,
    ) -> Option<PartyPlace> {
        let mut table = self.table.lock();
        let own = table.count_of(&party) + 1;
        if let Some(visitor) = &visitor
            && !self.has_part(&mut table, &visitor.link, own)
        {
            return None;
        }
        if open.saturating_sub(table.leaving.len()) > self.places {
            let victim = self.victim(&table, &party, own);
            if let Some(victim) = victim {
                table.end(victim);
            } else {
                drop(table);
                if !idle() {
                    return None;
                }
                table = self.table.lock();
            }
        }
        let id = table.insert(Held { party, end, visitor });
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
            let place = self.parties.enter(party.clone(), None, self.open.len() + 1, end.clone(), || false);
            place.map(|place| self.open.push((place, end))).is_some()
        }

        /// The same, by a link.
        fn visits(&mut self, party: &Party, link: &str, last: &Arc<LastBytes>) -> bool {
            if self.parties.is_full(self.open.len(), None) {
                return false;
            }
            let (end, visitor) = (CancellationToken::new(), Visitor { link: link.into(), last: Arc::clone(last) });
            let open = self.open.len() + 1;
            let place = self.parties.enter(party.clone(), Some(visitor), open, end.clone(), || false);
            let came = place.map(|place| self.open.push((place, end))).is_some();
            self.settle();
            came
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
            let visitors = table.visitors.len() + table.links.len();
            visitors + table.held.len() + table.parties.len() + table.by_count.len() + table.leaving.len() == 0
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

    /// `parties.few_always_find_place`: however many parties share a door.
    #[test]
    fn a_newcomer_with_nothing_always_finds_a_place() {
        for of_each in [1, 2, 3, PLACES / 64, PLACES / 8] {
            let mut door = TestDoor::new();
            let parties: Vec<Party> = (0..PLACES / of_each)
                .map(|n| Party::of(None, IpAddr::from([10, 0, (n >> 8) as u8, n as u8])))
                .collect();
            while door.open.len() < PLACES {
                let least = parties.iter().min_by_key(|party| door.count(party)).unwrap().clone();
                assert!(door.comes(&least));
            }
            let comes = door.comes(&user("alice"));
            assert_eq!(comes, of_each > 1, "{of_each} of each: with one of each nobody holds more");
            door.settle();
            // It does not take more than others have.
            for _ in 0..3 * FEW {
                door.comes(&user("alice"));
                door.settle();
            }
            let most = parties.iter().map(|party| door.count(party)).max().unwrap();
            assert!(door.count(&user("alice")) <= most.max(1), "{of_each}");
            assert_eq!(door.open.len(), PLACES);
        }
    }

    #[test]
    fn a_fair_part_is_kept() {
        let places = 64 * 64;
        let parties = Arc::new(Parties::new(places));
        let enter = |party: Party, open| parties.enter(party, None, open, CancellationToken::new(), || false);
        let held: Vec<_> = (0..places).map(|n| enter(guests((n % 64) as u8), n + 1).unwrap()).collect();
        let of_alice: Vec<_> = (0..FEW).map(|n| enter(user("alice"), places + 1 + n).unwrap()).collect();
        assert!(enter(user("alice"), places + 1 + FEW).is_none(), "more than few take nobody's fair part");
        let count = |party: &Party| parties.table.lock().count_of(party);
        assert_eq!((0..64).filter(|n| count(&guests(*n)) < 64).count(), FEW);
        drop((held, of_alice));
    }

    /// `parties.visitors_have_a_part`
    #[test]
    fn visitors_of_links_have_a_part_and_users_come_before_them() {
        let mut door = TestDoor::new();
        let last = Arc::<LastBytes>::default();
        let network = |n: usize| Party::of(None, IpAddr::from([10, 0, (n >> 8) as u8, n as u8]));
        let came = (0..PLACES).filter(|n| door.visits(&network(*n), "one", &last)).count();
        assert_eq!((came, door.open.len()), (PLACES / 4, PLACES / 4), "one link");
        let came = (0..PLACES).filter(|n| door.visits(&network(*n), &format!("link {n}"), &last)).count();
        assert!(came >= PLACES / 4 && door.open.len() == PLACES / 2, "all links: {came}");
        assert!((0..PLACES / 2).all(|_| door.comes(&user("bob"))), "the rest is the users'");
        assert!(door.comes(&user("alice")));
        assert_eq!(door.open.iter().filter(|(_, end)| end.is_cancelled()).count(), 1);
        door.open.clear();
        assert!(door.is_empty());
    }

    #[test]
    fn idle_visitors_go_first() {
        let mut door = TestDoor::new();
        let (busy, idle) = (Arc::<LastBytes>::default(), Arc::<LastBytes>::default());
        let ago = Instant::now().checked_sub(VISITOR_IDLE);
        *idle.0.lock() = ago.expect("the machine is up for some seconds");
        assert!(door.visits(&guests(1), "one", &busy) && door.visits(&guests(2), "one", &idle));
        assert!((0..PLACES - 2).all(|_| door.comes(&user("bob"))));
        assert!(door.comes(&user("alice")));
        let ended: Vec<bool> = door.open.iter().take(3).map(|(_, end)| end.is_cancelled()).collect();
        assert_eq!(ended, [false, true, false]);
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
        let enter = |idle| door.parties.enter(user("bob"), None, PLACES + 1, CancellationToken::new(), move || idle);
        assert!(enter(false).is_none() && enter(true).is_some());
    }

    #[test]
    fn guests_of_one_ipv6_network_are_one_party() {
        let of = |text: &str| Party::of(None, text.parse().unwrap());
        assert!(of("2001:db8::1") == of("2001:db8::2") && of("2001:db8::1") != of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:10.0.0.1"), guests(1));
    }
}
