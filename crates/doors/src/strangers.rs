//! Connections without a right, of all doors: their number, their time and the memory that they hold.
//!
//! A stranger is a connection without a login and without a call that an export admits. Buffers of
//! partial requests, handshakes and forms of strangers share one budget over all doors.
//!
//! - `strangers.one_budget`: strangers of all doors together hold at most the budget's bytes. Beyond it
//!   one of them ends: of the network that holds most, the one that holds most, the newest of equals.
//!   A connection with a right never ends for the budget.
//! - `strangers.rights_go_first`: a partial request of a client that an export admits is lent room
//!   ([`Meter::borrows`]), and strangers end for it. Where clients with rights hold all of the room,
//!   reading waits until requests of theirs complete or stall.
//! - `strangers.timed`: a stranger ends after [`STRANGER_TIME`]. One network has at most
//!   [`STRANGERS_MAX`] of them at one door.
//! - `strangers.make_room`: a door admits a newcomer even so. The oldest stranger of its network
//!   ends, or the oldest of all if the door has all the connections it may have. Idle connections thus
//!   keep nobody out. At most [`STRANGERS_MAX`] evicted ones are still ending. Where everybody has logged
//!   in, the party that holds most makes room at the newcomer's login ([`crate::parties`]), and over SFTP
//!   a connection that is idle ([`crate::residents`]).
//! - `strangers.never_before_rights`: a login at a full door is not refused for the sake of strangers. Those
//!   whose end is under way do not count as open, and one more ends where none is.
//! - `strangers.by_network`: an IPv6 client has a whole /64, so that counts as one address.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{Hash, Hasher};
use std::net::IpAddr;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use larder_base::metrics::Metrics;
/// The network that an address counts as (`strangers.by_network`).
pub use larder_base::network::network;
use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

use crate::handshake::{self, Pace, Paced};
use crate::parties::{Parties, Party, PartyPlace, Visitor};
use crate::turns::Turns;

/// Connections of one network at one door that have shown nothing yet.
pub const STRANGERS_MAX: usize = 256;
/// How long such a connection may stay.
pub const STRANGER_TIME: Duration = Duration::from_secs(30);
/// The memory of all strangers, unless the configuration says otherwise.
pub const BUDGET_BYTES: usize = 64 << 20;
/// Wakers of connections that wait; beyond them all are woken, and wait anew.
const WAITING_MAX: usize = 16_384;
/// A network may always borrow this part of the budget: it does not wait because another one stalls.
const SHARE_OF_NETWORK: usize = 8;
/// The part of the budget that a network with some logins under way has.
const SMALL_NETWORK: usize = 64;

/// A number that stands for a network, where addresses are no keys.
pub fn number(network: IpAddr) -> u64 {
    let mut hasher = std::hash::DefaultHasher::new();
    network.hash(&mut hasher);
    hasher.finish()
}

struct Held {
    network: IpAddr,
    bytes: usize,
    /// Of these, what may not be taken back (`strangers.rights_go_first`).
    is_borrowed: bool,
    evicted: CancellationToken,
}

/// What the connections of one network hold.
#[derive(Default)]
struct Holdings {
    bytes: usize,
    borrowed: usize,
    /// Those that may end, by size and then by age.
    by_size: BTreeSet<(usize, u64)>,
}

impl Holdings {
    fn may_end(&self) -> usize {
        self.bytes - self.borrowed
    }
}

#[derive(Default)]
struct Table {
    next: u64,
    held: HashMap<u64, Held>,
    networks: HashMap<IpAddr, Holdings>,
    /// Networks by the bytes of their connections that may end.
    by_size: BTreeSet<(usize, IpAddr)>,
    bytes: usize,
    /// Evicted, and not yet gone.
    leaving: HashMap<u64, usize>,
    leaving_bytes: usize,
    ended: u64,
    /// Connections that wait for room. Each waits anew when it is woken in vain.
    waiting: Vec<Waker>,
}

impl Table {
    /// Changes what a network holds, and keeps the orders in step.
    fn change(&mut self, network: IpAddr, change: impl FnOnce(&mut Holdings)) {
        let holdings = self.networks.entry(network).or_default();
        let (before, bytes_before) = (holdings.may_end(), holdings.bytes);
        change(holdings);
        let (after, bytes_after) = (holdings.may_end(), holdings.bytes);
        let is_empty = holdings.by_size.is_empty() && holdings.bytes == 0;
        self.by_size.remove(&(before, network));
        match is_empty {
            true => _ = self.networks.remove(&network),
            false => _ = self.by_size.insert((after, network)),
        }
        self.bytes = self.bytes - bytes_before + bytes_after;
        if bytes_after < bytes_before {
            self.waiting.drain(..).for_each(Waker::wake);
        }
    }

    fn set(&mut self, id: u64, bytes: usize, is_borrowed: bool) {
        let Some(held) = self.held.get_mut(&id) else { return };
        let (network, before, was_borrowed) = (held.network, held.bytes, held.is_borrowed);
        (held.bytes, held.is_borrowed) = (bytes, is_borrowed);
        self.change(network, |holdings| {
            holdings.bytes = holdings.bytes - before + bytes;
            match was_borrowed {
                true => holdings.borrowed -= before,
                false => _ = holdings.by_size.remove(&(before, id)),
            }
            match is_borrowed {
                true => holdings.borrowed += bytes,
                false => _ = holdings.by_size.insert((bytes, id)),
            }
        });
    }

    fn insert(&mut self, network: IpAddr, evicted: CancellationToken) -> u64 {
        let id = self.next;
        self.next += 1;
        self.held.insert(id, Held { network, bytes: 0, is_borrowed: false, evicted });
        self.change(network, |holdings| {
            holdings.by_size.insert((0, id));
        });
        id
    }

    fn remove(&mut self, id: u64) -> Option<Held> {
        let held = self.held.remove(&id)?;
        self.change(held.network, |holdings| {
            holdings.bytes -= held.bytes;
            match held.is_borrowed {
                true => holdings.borrowed -= held.bytes,
                false => _ = holdings.by_size.remove(&(held.bytes, id)),
            }
        });
        Some(held)
    }

    /// Ends strangers until at most `bytes_max` are held, or none is left (`strangers.one_budget`).
    fn make_room(&mut self, bytes_max: usize) {
        while self.bytes > bytes_max {
            let hungriest = self.by_size.last().filter(|(bytes, _)| *bytes > 0).map(|(_, network)| *network);
            let Some(holdings) = hungriest.and_then(|network| self.networks.get(&network)) else { return };
            let Some((_, id)) = holdings.by_size.last().copied() else { return };
            let Some(held) = self.remove(id) else { return };
            held.evicted.cancel();
            self.leaving.insert(id, held.bytes);
            self.leaving_bytes += held.bytes;
            self.ended += 1;
        }
    }
}

/// The memory of strangers of all doors (`strangers.one_budget`).
pub struct Budget {
    bytes_max: usize,
    handshakes: Arc<Turns>,
    table: Mutex<Table>,
}

impl std::fmt::Debug for Budget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Budget({} bytes)", self.bytes_max)
    }
}

impl Default for Budget {
    fn default() -> Self {
        Self::new(BUDGET_BYTES)
    }
}

impl Budget {
    /// A budget of so many bytes.
    pub fn new(bytes_max: usize) -> Self {
        Self { bytes_max, handshakes: handshake::turns(), table: Mutex::default() }
    }

    fn enter(self: &Arc<Self>, address: IpAddr, evicted: CancellationToken) -> Meter {
        let id = self.table.lock().insert(network(address), evicted);
        Meter { budget: Arc::clone(self), id }
    }

    /// Adds the counters to `out`, in the form of Prometheus.
    pub fn metrics(&self, out: &mut Metrics) {
        let table = self.table.lock();
        let help = "Bytes that connections without a login hold.";
        out.gauge("larder_serve_stranger_bytes", help, &[], table.bytes as u64);
        let help = "Connections without a login, and stalled requests, that ended for want of room.";
        out.counter("larder_serve_ended_strangers_total", help, &[], table.ended);
    }
}

/// Reports what one connection holds.
#[derive(Clone)]
pub struct Meter {
    budget: Arc<Budget>,
    id: u64,
}

impl Meter {
    /// A stranger holds so many bytes now. `false`: it has to end.
    #[must_use]
    pub fn holds(&self, bytes: usize) -> bool {
        let mut table = self.budget.table.lock();
        if !table.held.contains_key(&self.id) {
            // It has a right by now, or its end is under way.
            return !table.leaving.contains_key(&self.id);
        }
        table.set(self.id, bytes, false);
        table.make_room(self.budget.bytes_max);
        // Ones that have not gone yet have their memory: no more than an eighth of the budget, but for networks
        // that hold little.
        let bytes_max = self.budget.bytes_max;
        let is_over = table.bytes + table.leaving_bytes > bytes_max + bytes_max / 8;
        let own = table.held.get(&self.id).and_then(|held| table.networks.get(&held.network));
        let is_small = own.is_some_and(|own| own.bytes <= bytes_max / SMALL_NETWORK);
        (!is_over || is_small) && !table.leaving.contains_key(&self.id)
    }

    /// A client with a right holds so many bytes of a request that has not arrived completely
    /// (`strangers.rights_go_first`). `false`: there is no room; `waker` is woken when there is more.
    #[must_use]
    pub fn borrows(&self, bytes: usize, waker: &Waker) -> bool {
        let mut table = self.budget.table.lock();
        let Some((network, before)) = table.held.get(&self.id).map(|held| (held.network, held.bytes)) else {
            // Its requests have stalled, and it ends.
            return !table.leaving.contains_key(&self.id);
        };
        let bytes_max = self.budget.bytes_max;
        if bytes > before && table.bytes - before + bytes > bytes_max {
            table.make_room(bytes_max.saturating_sub(bytes - before));
            let own = table.networks.get(&network).map_or(0, |holdings| holdings.bytes);
            let total = table.bytes - before + bytes;
            let is_small = own - before + bytes <= bytes_max / SHARE_OF_NETWORK && total <= bytes_max / 2 * 3;
            if total > bytes_max && !is_small {
                if table.waiting.len() >= WAITING_MAX {
                    table.waiting.drain(..).for_each(Waker::wake);
                }
                table.waiting.push(waker.clone());
                return false;
            }
        }
        table.set(self.id, bytes, true);
        true
    }

    fn leave(&self) {
        let mut table = self.budget.table.lock();
        if table.remove(self.id).is_none()
            && let Some(bytes) = table.leaving.remove(&self.id)
        {
            table.leaving_bytes -= bytes;
        }
    }

    fn moves_to(&self, address: IpAddr) {
        let (mut table, network) = (self.budget.table.lock(), network(address));
        let Some(held) = table.held.get(&self.id).filter(|held| held.network != network) else { return };
        let (bytes, is_borrowed) = (held.bytes, held.is_borrowed);
        table.set(self.id, 0, false);
        let Some(held) = table.remove(self.id) else { return };
        table.held.insert(self.id, Held { network, bytes: 0, is_borrowed: false, ..held });
        let id = self.id;
        table.change(network, |holdings| {
            holdings.by_size.insert((0, id));
        });
        table.set(id, bytes, is_borrowed);
    }
}

/// The strangers of one door (`strangers.timed`, `strangers.make_room`).
#[derive(Default)]
pub struct Strangers {
    budget: Arc<Budget>,
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    next: u64,
    /// By age: a lower number came earlier.
    by_age: BTreeMap<u64, (IpAddr, CancellationToken)>,
    by_network: HashMap<IpAddr, BTreeSet<u64>>,
    /// Evicted strangers whose connections have not ended yet.
    leaving: usize,
}

/// One of them, until it is dropped.
pub struct Stranger {
    all: Arc<Strangers>,
    id: u64,
    evicted: CancellationToken,
    meter: Meter,
    /// The meter outlives the stranger: the connection has a right, and still borrows.
    keeps_meter: bool,
}

impl Strangers {
    /// Strangers that hold their memory from `budget`.
    pub fn new(budget: Arc<Budget>) -> Self {
        Self { budget, waiting: Mutex::default() }
    }

    /// `None`: the network has too many of them.
    pub fn admit(self: &Arc<Self>, address: IpAddr) -> Option<Stranger> {
        let mut all = self.waiting.lock();
        (all.count_of(network(address)) < STRANGERS_MAX).then(|| self.insert(&mut all, address))
    }

    /// Admits a newcomer; where there is no room an older stranger is evicted
    /// (`strangers.make_room`). `is_full`: the server has all the connections it may have.
    pub fn admit_newest(self: &Arc<Self>, address: IpAddr, is_full: bool) -> Option<Stranger> {
        let mut all = self.waiting.lock();
        let network = network(address);
        let oldest = match all.count_of(network) < STRANGERS_MAX {
            false => all.by_network.get(&network).and_then(|ids| ids.first().copied()),
            true if is_full => Some(*all.by_age.first_key_value()?.0),
            true => None,
        };
        if let Some(oldest) = oldest {
            if all.leaving >= STRANGERS_MAX {
                return None;
            }
            let evicted = all.remove(oldest)?;
            evicted.cancel();
            all.leaving += 1;
        }
        Some(self.insert(&mut all, address))
    }

    fn insert(self: &Arc<Self>, all: &mut Waiting, address: IpAddr) -> Stranger {
        let (id, evicted) = (all.next, CancellationToken::new());
        all.next += 1;
        let network = network(address);
        all.by_age.insert(id, (network, evicted.clone()));
        all.by_network.entry(network).or_default().insert(id);
        let meter = self.budget.enter(network, evicted.clone());
        Stranger { all: Arc::clone(self), id, evicted, meter, keeps_meter: false }
    }
}

impl Waiting {
    fn count_of(&self, network: IpAddr) -> usize {
        self.by_network.get(&network).map_or(0, BTreeSet::len)
    }

    fn remove(&mut self, id: u64) -> Option<CancellationToken> {
        let (network, evicted) = self.by_age.remove(&id)?;
        if let Some(ids) = self.by_network.get_mut(&network) {
            ids.remove(&id);
            if ids.is_empty() {
                self.by_network.remove(&network);
            }
        }
        Some(evicted)
    }
}

impl Stranger {
    /// Cancelled when the connection has to end, for the sake of a newcomer or of the budget.
    pub fn evicted(&self) -> CancellationToken {
        self.evicted.clone()
    }

    /// The stranger's socket, for the time of the handshake (`handshake.in_turns`).
    pub fn paces(&self, socket: TcpStream, address: IpAddr) -> Paced {
        Paced::new(socket, Pace::new(Arc::clone(&self.meter.budget.handshakes), address))
    }

    /// By which the connection reports what it holds. It counts nothing after the stranger's end.
    pub fn meter(&self) -> Meter {
        self.meter.clone()
    }

    /// The client behind a proxy is another than the address of the connection.
    pub fn belongs_to(&self, address: IpAddr) {
        let (mut all, network) = (self.all.waiting.lock(), network(address));
        if let Some(place) = all.by_age.get(&self.id).filter(|(of, _)| *of != network).cloned() {
            all.remove(self.id);
            all.by_age.insert(self.id, (network, place.1));
            all.by_network.entry(network).or_default().insert(self.id);
        }
        drop(all);
        self.meter.moves_to(address);
    }

    /// The client has a right: a place among its party's, at a door with `open` connections including this one. `idle` may
    /// end an idle one where nobody has to. `None`: the party has too many ([`Parties::enter`]).
    pub fn enters(
        &self,
        parties: &Arc<Parties>,
        party: Party,
        visitor: Option<Visitor>,
        open: usize,
        idle: impl FnOnce() -> bool,
    ) -> Option<PartyPlace> {
        let staying = open.saturating_sub(self.all.waiting.lock().leaving);
        parties.enter(party, visitor, staying, self.evicted(), || self.make_room() || idle())
    }

    /// Evicts the oldest other stranger of the door (`strangers.never_before_rights`). `false`: there is none.
    fn make_room(&self) -> bool {
        let mut all = self.all.waiting.lock();
        let oldest = all.by_age.keys().copied().find(|id| *id != self.id);
        let Some(evicted) = oldest.and_then(|oldest| all.remove(oldest)) else { return false };
        evicted.cancel();
        all.leaving += 1;
        true
    }

    /// The client has a right. What its partial requests hold is still metered.
    pub fn becomes_known(mut self) -> Borrower {
        self.keeps_meter = true;
        let _ = self.meter.borrows(0, Waker::noop());
        Borrower(self.meter.clone())
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        if !self.keeps_meter {
            self.meter.leave();
        }
        let mut all = self.all.waiting.lock();
        // One that the budget has ended is still in the table.
        if all.remove(self.id).is_none() {
            all.leaving -= 1;
        }
    }
}

/// A client with a right whose partial requests are metered, until it is dropped.
pub struct Borrower(Meter);

impl Borrower {
    /// By which it reports.
    pub fn meter(&self) -> &Meter {
        &self.0
    }
}

impl Drop for Borrower {
    fn drop(&mut self) {
        self.0.leave();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const A: &str = "10.0.0.1";
    const B: &str = "10.0.0.2";

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn strangers(bytes_max: usize) -> Arc<Strangers> {
        Arc::new(Strangers::new(Arc::new(Budget::new(bytes_max))))
    }

    fn is_empty(strangers: &Strangers) -> bool {
        let (all, table) = (strangers.waiting.lock(), strangers.budget.table.lock());
        let counts = table.bytes + table.leaving_bytes + table.held.len() + table.leaving.len() + table.by_size.len();
        all.by_age.is_empty() && all.by_network.is_empty() && all.leaving == 0 && counts + table.networks.len() == 0
    }

    #[test]
    fn strangers_of_one_network_are_bounded() {
        let strangers = Arc::new(Strangers::default());
        let mut held: Vec<_> = (0..STRANGERS_MAX).map(|_| strangers.admit(ip(A)).unwrap()).collect();
        assert!(strangers.admit(ip("::ffff:10.0.0.1")).is_none() && strangers.admit(ip(B)).is_some());
        held.pop();
        assert!(strangers.admit(ip(A)).is_some());
        let of_64 = |n: usize| strangers.admit(ip(&format!("2001:db8::{n:x}")));
        let held: Vec<_> = (0..STRANGERS_MAX).map(|n| of_64(n).unwrap()).collect();
        assert!(of_64(held.len()).is_none() && strangers.admit(ip("2001:db8:0:1::1")).is_some());
    }

    #[test]
    fn the_oldest_stranger_makes_room_for_a_newcomer() {
        let strangers = Arc::new(Strangers::default());
        let oldest = strangers.admit_newest(ip(B), false).unwrap();
        let held: Vec<_> = (0..STRANGERS_MAX).map(|_| strangers.admit_newest(ip(A), false).unwrap()).collect();
        let evicted = || held.iter().filter(|stranger| stranger.evicted().is_cancelled()).count();
        assert_eq!(evicted(), 0);
        let newcomer = strangers.admit_newest(ip(A), false).unwrap();
        assert!(held[0].evicted().is_cancelled() && evicted() == 1 && !oldest.evicted().is_cancelled());
        let other = strangers.admit_newest(ip(B), true).unwrap();
        assert!(oldest.evicted().is_cancelled() && evicted() == 1, "a full server ends the oldest of all");
        drop((oldest, newcomer, other, held));
        assert!(is_empty(&strangers));
    }

    #[test]
    fn a_login_at_a_full_door_ends_strangers_alone() {
        use crate::parties::{Parties, Party};

        let (strangers, parties) = (Arc::new(Strangers::default()), Arc::new(Parties::new(2)));
        let held: Vec<_> = (0..2).map(|_| strangers.admit_newest(ip(A), false).unwrap()).collect();
        // Their connections are open until their tasks have seen the end.
        let logs_in = |open| {
            let newcomer = strangers.admit_newest(ip(B), parties.is_full(open, None)).unwrap();
            let place = newcomer.enters(&parties, Party::of(Some("ann"), ip(B)), None, open + 1, || false);
            place.map(|place| (place, newcomer.becomes_known()))
        };
        let first = logs_in(2);
        assert!(first.is_some() && held[0].evicted().is_cancelled() && !held[1].evicted().is_cancelled());
        let second = logs_in(3);
        assert!(second.is_some() && held[1].evicted().is_cancelled());
        drop(held);
        let third = strangers.admit_newest(ip(B), false).unwrap();
        let enters = || third.enters(&parties, Party::of(Some("ann"), ip(B)), None, 3, || false);
        assert!(enters().is_none(), "everybody has logged in");
        let late = strangers.admit_newest(ip(A), false).unwrap();
        assert!(enters().is_some() && late.evicted().is_cancelled() && !third.evicted().is_cancelled());
    }

    #[test]
    fn evicted_strangers_that_have_not_ended_are_bounded() {
        let strangers = Arc::new(Strangers::default());
        let mut held: Vec<_> = (0..2 * STRANGERS_MAX).map(|_| strangers.admit_newest(ip(A), false).unwrap()).collect();
        assert!(strangers.admit_newest(ip(A), false).is_none());
        held.remove(0);
        assert!(strangers.admit_newest(ip(A), false).is_some(), "one of them has ended");
        let nobody = Arc::new(Strangers::default());
        assert!(nobody.admit_newest(ip(A), true).is_none(), "everybody has logged in: nobody makes room");
    }

    #[test]
    fn the_hungriest_stranger_of_the_hungriest_network_ends() {
        let strangers = strangers(100);
        let [a, b, c] = [A, A, B].map(|address| strangers.admit_newest(ip(address), false).unwrap());
        let ends = || [&a, &b, &c].map(|one| one.evicted().is_cancelled());
        assert!(a.meter().holds(30) && b.meter().holds(20) && c.meter().holds(45));
        assert_eq!(ends(), [false; 3]);
        assert!(b.meter().holds(26), "the network of a and b has most, and a most of them");
        assert_eq!(ends(), [true, false, false]);
        assert!(!a.meter().holds(1), "its end is under way");
        assert!(b.meter().holds(30) && !c.meter().holds(90), "the others of the budget are not its fault");
        assert_eq!(ends(), [true, false, true]);
        drop((a, b, c));
        assert!(is_empty(&strangers));
    }

    #[test]
    fn what_has_not_gone_yet_is_bounded_too() {
        let strangers = strangers(100);
        let held: Vec<_> = (0..10).map(|_| strangers.admit_newest(ip(A), false).unwrap()).collect();
        let taken = held.iter().filter(|one| one.meter().holds(30)).count();
        assert!(taken < 6, "{taken} hold 30 bytes each");
    }

    #[test]
    fn strangers_end_for_clients_with_rights() {
        let strangers = strangers(80);
        let [a, b, c] = [A, B, A].map(|address| strangers.admit_newest(ip(address), false).unwrap());
        assert!(a.meter().holds(70));
        let (b, c) = (b.becomes_known(), c.becomes_known());
        assert!(b.meter().borrows(60, Waker::noop()) && a.evicted().is_cancelled());
        assert!(!b.meter().borrows(100, Waker::noop()) && !b.meter().borrows(81, Waker::noop()), "it waits for room");
        assert!(b.meter().borrows(80, Waker::noop()));
        assert!(
            c.meter().borrows(10, Waker::noop()) && !c.meter().borrows(11, Waker::noop()),
            "each network has its part, come what may"
        );
        assert!(!b.meter().holds(81), "a request that stalls is a stranger's");
        assert!(c.meter().borrows(70, Waker::noop()));
        drop((a, b, c));
        assert!(is_empty(&strangers));
    }

    #[test]
    fn a_client_behind_a_proxy_counts_by_itself() {
        let strangers = strangers(100);
        let held: Vec<_> = (0..STRANGERS_MAX).map(|_| strangers.admit_newest(ip(A), false).unwrap()).collect();
        assert!(held[0].meter().holds(60));
        held[0].belongs_to(ip(B));
        assert!(strangers.admit(ip(A)).is_some());
        assert!(held[1].meter().holds(41) && held[0].evicted().is_cancelled());
        drop(held);
        assert!(is_empty(&strangers));
    }
}
