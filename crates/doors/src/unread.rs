//! Memory of the connections of a door whose clients have logged in: requests that arrive or wait, requests that run, and
//! answers that no client has taken.
//!
//! - `unread.one_budget`: all connections together hold at most the budget's bytes. Beyond it one of them ends: of the
//!   party whose connections hold most, the one that holds most. So the number of connections, which is the client's
//!   choice, changes nothing.
//! - `unread.large_parties_wait`: a party with more than its part ([`PART_DIVISOR`]) waits where the budget is used up
//!   ([`Account::room`]), or goes on with less ([`Account::try_room`]). One with less never waits for others.
//! - `unread.until_it_left`: an answer counts until the connection has put it into packets, also in the queues of SSH.
//! - `unread.stalled`: a connection ends whose answers wait while the client has taken nothing for [`STALL_MAX`].

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::parties::Party;

/// The memory of all connections of a door that keeps little for each: several of the longest requests of each of some
/// parties.
pub const DOOR_BYTES_MAX: usize = 96 << 20;
/// A party has this part of a budget whatever others hold: at least one of the longest requests.
const PART_DIVISOR: usize = 8;
/// The memory of all connections of SFTP, unless the configuration says otherwise.
pub const UNREAD_BYTES_MAX: usize = 384 << 20;
/// Two connections with as much waiting as each may have.
pub const UNREAD_BYTES_MIN: usize = 64 << 20;
/// As long as people leave a transfer stopped; at 1 KiB/s the longest answer has left by then.
pub const STALL_MAX: Duration = Duration::from_secs(300);

/// The memory of the connections of one server (`unread.one_budget`).
pub struct Unread {
    bytes_max: usize,
    bytes: AtomicUsize,
    accounts: Mutex<Accounts>,
    /// Some bytes are free again.
    freed: Notify,
}

#[derive(Default)]
struct Accounts {
    next: u64,
    all: HashMap<u64, Arc<Account>>,
    /// What the connections of each party hold.
    parties: HashMap<Party, Weak<AtomicUsize>>,
}

impl Unread {
    /// The memory of a server whose connections hold at most `bytes_max`.
    pub fn new(bytes_max: usize) -> Self {
        Self { bytes_max, bytes: AtomicUsize::new(0), accounts: Mutex::default(), freed: Notify::new() }
    }

    /// What requests and answers of all connections may hold before they wait for each other. The rest is for requests
    /// that wait.
    pub fn answer_bytes_max(&self) -> usize {
        self.bytes_max / 3 * 2
    }

    /// The account of a connection of `party`. `cut` is cancelled when the connection has to end.
    pub fn enter(self: &Arc<Self>, party: Party, cut: CancellationToken) -> Entered {
        let mut accounts = self.accounts.lock();
        let of_party = accounts.parties.get(&party).and_then(Weak::upgrade).unwrap_or_default();
        accounts.parties.insert(party.clone(), Arc::downgrade(&of_party));
        let account = Arc::new(Account {
            all: Arc::clone(self),
            party,
            of_party,
            cut,
            held: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            ends: AtomicBool::new(false),
            left: CancellationToken::new(),
            sending: Mutex::new(Sending { pieces: 0, progress: Instant::now() }),
        });
        accounts.next += 1;
        let id = accounts.next;
        accounts.all.insert(id, Arc::clone(&account));
        drop(accounts);
        Entered { account, id }
    }

    /// Ends connections until the others hold no more than the budget (`unread.one_budget`).
    fn make_room(&self) {
        let accounts = self.accounts.lock();
        let mut staying: Vec<(&Arc<Account>, usize)> =
            accounts.all.values().filter(|account| !account.ends.load(Relaxed)).map(|a| (a, a.bytes())).collect();
        let mut parties: HashMap<&Party, usize> = HashMap::new();
        staying.iter().for_each(|(account, bytes)| *parties.entry(&account.party).or_default() += bytes);
        while parties.values().sum::<usize>() > self.bytes_max {
            let Some(party) = parties.iter().max_by_key(|(_, bytes)| **bytes).map(|(party, _)| *party) else { return };
            let of_party = staying.iter().enumerate().filter(|(_, (account, _))| account.party == *party);
            let Some(largest) = of_party.max_by_key(|(_, (_, bytes))| *bytes).map(|(at, _)| at) else { return };
            let (account, bytes) = staying.swap_remove(largest);
            parties.entry(party).and_modify(|held| *held -= bytes);
            tracing::debug!(?party, bytes, "a connection ends: all of its door hold too much");
            account.ends.store(true, Relaxed);
            account.cut.cancel();
        }
    }
}

struct Sending {
    /// Answers on their way to the client.
    pieces: usize,
    /// When the client has taken something, or the first of them began to wait.
    progress: Instant,
}

/// What one connection holds.
pub struct Account {
    all: Arc<Unread>,
    party: Party,
    /// What all connections of the party hold.
    of_party: Arc<AtomicUsize>,
    cut: CancellationToken,
    /// By requests that run and answers that have not left.
    held: AtomicUsize,
    /// By requests that wait.
    waiting: AtomicUsize,
    ends: AtomicBool,
    /// Cancelled when the connection is dropped.
    left: CancellationToken,
    sending: Mutex<Sending>,
}

/// An account, until its connection is dropped.
pub struct Entered {
    account: Arc<Account>,
    id: u64,
}

impl Entered {
    /// The account itself.
    pub fn account(&self) -> &Arc<Account> {
        &self.account
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        let mut accounts = self.account.all.accounts.lock();
        accounts.all.remove(&self.id);
        let is_last = accounts.all.values().all(|other| other.party != self.account.party);
        if is_last {
            accounts.parties.remove(&self.account.party);
        }
        drop(accounts);
        self.account.left.cancel();
    }
}

impl Account {
    fn bytes(&self) -> usize {
        self.held() + self.waiting()
    }

    /// Bytes of requests that run and of answers that have not left.
    pub fn held(&self) -> usize {
        self.held.load(Relaxed)
    }

    /// Bytes of requests that wait.
    pub fn waiting(&self) -> usize {
        self.waiting.load(Relaxed)
    }

    fn hold(self: &Arc<Self>, kind: Kind, bytes: usize) -> Hold {
        kind.of(self).fetch_add(bytes, Relaxed);
        self.of_party.fetch_add(bytes, Relaxed);
        if self.all.bytes.fetch_add(bytes, Relaxed) + bytes > self.all.bytes_max {
            self.all.make_room();
        }
        Hold { account: Arc::clone(self), kind, bytes }
    }

    /// Room for so many bytes of a request or an answer, if there is some at once (`unread.large_parties_wait`).
    pub fn try_room(self: &Arc<Self>, bytes: usize) -> Option<Hold> {
        let all = &self.all;
        let is_small = self.of_party.load(Relaxed) + bytes <= all.bytes_max / PART_DIVISOR;
        (is_small || all.bytes.load(Relaxed) + bytes <= all.bytes_max).then(|| self.runs(bytes))
    }

    /// Waits for the room, or for the connection's end. More bytes than there may ever be count as all.
    pub async fn room(self: &Arc<Self>, bytes: usize) -> Hold {
        let bytes = bytes.min(self.all.bytes_max / PART_DIVISOR);
        loop {
            let freed = self.all.freed.notified();
            if let Some(hold) = self.try_room(bytes) {
                // There may be room for another one.
                self.all.freed.notify_one();
                return hold;
            }
            tokio::select! {
                () = freed => {}
                () = self.cut.cancelled() => return self.runs(0),
            }
        }
    }

    /// A request that waits, or a part of one.
    pub fn waits(self: &Arc<Self>, bytes: usize) -> Hold {
        self.hold(Kind::Waiting, bytes)
    }

    /// A request that runs, and later its answer.
    pub fn runs(self: &Arc<Self>, bytes: usize) -> Hold {
        self.hold(Kind::Held, bytes)
    }

    /// The client takes something.
    pub fn progress(&self) {
        self.sending.lock().progress = Instant::now();
    }

    /// `unread.stalled`.
    fn is_stalled(&self, now: Instant) -> bool {
        let sending = self.sending.lock();
        sending.pieces > 0 && now.duration_since(sending.progress) >= STALL_MAX
    }

    /// Returns when the connection is stalled.
    pub async fn stalled(&self) {
        while !self.is_stalled(Instant::now()) {
            tokio::time::sleep(STALL_MAX / 10).await;
        }
    }

    /// Returns when the connection is dropped.
    pub async fn left(&self) {
        self.left.cancelled().await;
    }

    /// An answer on its way, which counts until it has left (`unread.until_it_left`).
    pub fn piece(self: &Arc<Self>, bytes: Bytes, holds: Vec<Hold>) -> Bytes {
        let mut sending = self.sending.lock();
        if sending.pieces == 0 {
            sending.progress = Instant::now();
        }
        sending.pieces += 1;
        drop(sending);
        Bytes::from_owner(Piece { bytes, _holds: holds, account: Arc::clone(self) })
    }
}

#[derive(Clone, Copy)]
enum Kind {
    Waiting,
    Held,
}

impl Kind {
    fn of(self, account: &Account) -> &AtomicUsize {
        match self {
            Kind::Waiting => &account.waiting,
            Kind::Held => &account.held,
        }
    }
}

/// Bytes that a connection holds, until it is dropped.
pub struct Hold {
    account: Arc<Account>,
    kind: Kind,
    bytes: usize,
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.kind.of(&self.account).fetch_sub(self.bytes, Relaxed);
        self.account.of_party.fetch_sub(self.bytes, Relaxed);
        self.account.all.bytes.fetch_sub(self.bytes, Relaxed);
        self.account.all.freed.notify_one();
    }
}

struct Piece {
    bytes: Bytes,
    _holds: Vec<Hold>,
    account: Arc<Account>,
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        let mut sending = self.account.sending.lock();
        sending.pieces -= 1;
        sending.progress = Instant::now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beyond_the_budget_the_largest_connection_of_the_hungriest_user_ends() {
        let all = Arc::new(Unread::new(100));
        let cuts: [CancellationToken; 4] = Default::default();
        let ended = || cuts.each_ref().map(CancellationToken::is_cancelled);
        let users = ["bob", "bob", "bob", "alice"].map(party);
        let entered: Vec<Entered> =
            users.into_iter().zip(&cuts).map(|(user, cut)| all.enter(user, cut.clone())).collect();
        let account = |at: usize| Arc::clone(entered[at].account());
        let holds = [account(0).waits(20), account(1).runs(10), account(1).waits(15), account(2).runs(15)];
        let alices = account(3).runs(40);
        assert_eq!(ended(), [false; 4], "100 of 100 bytes");
        assert_eq!((account(1).held(), account(1).waiting()), (10, 15));
        let more = account(3).waits(1);
        assert_eq!(ended(), [false, true, false, false], "bob's hold 60, and the second of them most of that");
        let again = account(3).waits(24);
        assert_eq!(ended(), [false, true, false, false], "its bytes no longer count");
        let far = account(3).waits(30);
        assert_eq!(ended(), [false, true, false, true], "alice's holds most now");
        drop((holds, alices, more, again, far));
        assert_eq!(all.bytes.load(Relaxed), 0);
        drop(entered);
        let accounts = all.accounts.lock();
        assert!(accounts.all.is_empty() && accounts.parties.is_empty());
    }

    /// `unread.large_parties_wait`
    #[tokio::test]
    async fn a_large_party_waits_and_a_small_one_does_not() {
        let all = Arc::new(Unread::new(800));
        let cuts: [CancellationToken; 3] = Default::default();
        let bobs = [all.enter(party("bob"), cuts[0].clone()), all.enter(party("bob"), cuts[1].clone())];
        let alice = all.enter(party("alice"), cuts[2].clone());
        let [one, two] = bobs.each_ref().map(Entered::account);
        let first = one.room(100).await;
        let mut held: Vec<Hold> = Vec::new();
        while let Some(hold) = two.try_room(100) {
            held.push(hold);
        }
        assert_eq!((held.len(), cuts.iter().any(CancellationToken::is_cancelled)), (7, false));
        let mut waits = polled(two.room(100));
        assert!(waits().is_none(), "bob holds all of it");
        let alices = alice.account().try_room(100);
        assert!(alices.is_some(), "alice has her part");
        assert!(
            cuts[1].is_cancelled() && !cuts[0].is_cancelled() && !cuts[2].is_cancelled(),
            "bob's largest ends for it"
        );
        drop((first, held, alices));
        assert!(waits().is_some());
    }

    /// Polls a future by hand.
    fn polled<T>(future: impl Future<Output = T>) -> impl FnMut() -> Option<T> {
        let mut future = Box::pin(future);
        move || match future.as_mut().poll(&mut std::task::Context::from_waker(std::task::Waker::noop())) {
            std::task::Poll::Ready(done) => Some(done),
            std::task::Poll::Pending => None,
        }
    }

    fn party(name: &str) -> Party {
        Party::of(Some(name), std::net::IpAddr::from([10, 0, 0, 1]))
    }

    #[test]
    fn an_answer_counts_until_it_has_left_and_one_that_stays_stalls() {
        let all = Arc::new(Unread::new(100));
        let entered = all.enter(party("bob"), CancellationToken::new());
        let account = entered.account();
        let late = || Instant::now() + STALL_MAX + Duration::from_secs(1);
        let running = account.runs(30);
        assert!(!account.is_stalled(late()), "a slow volume is not the client's fault");
        let piece = account.piece(Bytes::from_static(b"answer"), vec![running]);
        let copy = piece.clone();
        drop(piece);
        assert_eq!((&copy[..], account.held()), (&b"answer"[..], 30));
        assert!(account.is_stalled(late()) && !account.is_stalled(Instant::now()));
        drop(copy);
        assert_eq!(account.held(), 0);
        assert!(!account.is_stalled(late()));
    }
}
