//! What clients of NLM hold and wait for: machines by address, on each its clients by name, their owners, and files with
//! locks. The locks themselves are in the table of all doors; this says whose they are, and that they end.
//!
//! - `lockbook.bounded`: machines, clients, owners, files and waits have bounds, each network a part, and networks with
//!   few a reserve. Beyond them a client is told that there are too many locks.
//! - `lockbook.nothing_left`: an owner without locks and waits is forgotten, and so are a file without owners and a client
//!   without either.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use larder_files::locks::{Held, LockError, Range};
use larder_files::{Files, Open};
use larder_fs::Ino;
use tokio_util::sync::CancellationToken;

use super::super::handle::ExportKey;
use super::wire::{LockHolder, LockStat};
use larder_doors::strangers;

/// Addresses with locks. A network at home has some ten; beyond a thousand somebody makes them up.
const MACHINES_MAX: usize = 1024;
/// Of one network: an IPv6 client has a whole /64.
const MACHINES_OF_NETWORK_MAX: usize = MACHINES_MAX / 8;
/// Names of clients at one address: containers and machines behind one router.
const CLIENTS_OF_MACHINE_MAX: usize = 64;
/// Files that the owners of one network have locked. A mail server has some thousand.
const FILES_OF_NETWORK_MAX: usize = 16 << 10;
/// All files: each is open here. The last quarter is for networks with few.
const FILES_MAX: usize = 64 << 10;
/// Locks that one network waits for, each a task.
const WAITS_OF_NETWORK_MAX: usize = 256;
const WAITS_MAX: usize = 4096;
/// A network with fewer has few.
const FEW: usize = 16;
/// A machine without locks stays in the durable record for so long: programs lock again, and each time would be a write.
const IDLE_TIME: Duration = Duration::from_secs(60);
/// A machine that took locks back and has not asked for another one for so long is done. Linux takes them back one after
/// the other.
const QUIET_TIME: Duration = Duration::from_secs(15);
/// Opens of a door have numbers in the same space, from 1.
const FIRST_OWNER: u64 = 1 << 63;

/// A client: its address, and its name for itself (`nlm.address_decides`).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ClientKey {
    pub address: IpAddr,
    pub name: Box<[u8]>,
}

/// A file, by an export: what is held by one ends with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LockedKey {
    pub export: ExportKey,
    pub ino: Ino,
}

/// The owner of locks, and a file.
#[derive(Clone, Copy)]
pub struct Target<'a> {
    pub client: &'a ClientKey,
    pub process: u32,
    pub owner: &'a [u8],
    pub key: LockedKey,
    pub files: &'a Files,
}

impl Target<'_> {
    /// Locks that are taken here count against the machine, whatever it calls itself (`locks.bounded_by_party`).
    pub fn locking(&self) -> Files {
        self.files.locking_for(strangers::number(strangers::network(self.client.address)))
    }
}

/// A byte range, and how it is locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WantedLock {
    pub range: Range,
    pub exclusive: bool,
}

/// How a lock is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attempt {
    New,
    /// As before this server's restart.
    Reclaim,
    /// As held still: others may have had it meanwhile if the owner has no lock of the file.
    IfHeld,
}

struct LockedFile {
    files: Files,
    /// `nlm.open_beside_lock`
    open: Open,
    is_open_to_write: bool,
    owners: HashSet<u64>,
}

struct OwnerRecord {
    client: ClientKey,
    process: u32,
    name: Box<[u8]>,
    files: HashSet<LockedKey>,
}

/// The owner of a share, and its file.
type ShareKey = (Box<[u8]>, LockedKey);

#[derive(Default)]
struct Client {
    owners: HashMap<(u32, Box<[u8]>), u64>,
    shares: HashMap<ShareKey, (Files, Open)>,
    /// The last number of its life that it named; 0: none.
    life: u32,
}

struct Machine {
    clients: HashMap<Box<[u8]>, Client>,
    /// Calls under way that may lock something.
    busy: usize,
    files: usize,
    waits: usize,
    /// It is in a volume's record.
    is_recorded: bool,
    idle_since: Instant,
    reclaimed_at: Option<Instant>,
}

/// Whether a network with `own` of something may have one more, where all have `all` (`lockbook.bounded`).
fn has_part(own: usize, all: usize, own_max: usize, all_max: usize) -> bool {
    all < all_max && (own < FEW || own < own_max && all < all_max / 4 * 3)
}

/// A lock that a client waits for, or has and was not told yet.
pub struct Wait {
    pub owner: u64,
    pub key: LockedKey,
    pub wanted: WantedLock,
    pub is_granted: bool,
    /// Ends its task.
    pub stop: CancellationToken,
    files: Files,
    address: IpAddr,
}

#[derive(Default)]
pub struct LockBook {
    machines: HashMap<IpAddr, Machine>,
    owners: HashMap<u64, OwnerRecord>,
    files: HashMap<LockedKey, LockedFile>,
    waits: HashMap<u64, Wait>,
    next: u64,
}

/// Machines with something to be done, found by a look at all.
#[derive(Default, Debug, PartialEq, Eq)]
pub struct Swept {
    /// They took back all that they had.
    pub completed: Vec<IpAddr>,
    /// They have had nothing for a while, and are forgotten.
    pub idle: Vec<IpAddr>,
}

impl Machine {
    fn new(now: Instant) -> Self {
        Self {
            clients: HashMap::new(),
            busy: 0,
            files: 0,
            waits: 0,
            is_recorded: false,
            idle_since: now,
            reclaimed_at: None,
        }
    }

    fn is_idle(&self) -> bool {
        self.clients.is_empty() && self.busy == 0
    }
}

impl LockBook {
    /// A call of a machine that may lock something begins. Until [`LockBook::end_call`] it is not forgotten.
    pub fn begin_call(&mut self, address: IpAddr, now: Instant) -> Result<(), LockStat> {
        let is_new = !self.machines.contains_key(&address);
        if is_new
            && !has_part(self.of_network(address, |_| 1), self.machines.len(), MACHINES_OF_NETWORK_MAX, MACHINES_MAX)
        {
            return Err(LockStat::DeniedNoLocks);
        }
        self.machines.entry(address).or_insert_with(|| Machine::new(now)).busy += 1;
        Ok(())
    }

    /// What the machines of a network have.
    fn of_network(&self, address: IpAddr, count: impl Fn(&Machine) -> usize) -> usize {
        let network = strangers::network(address);
        if network.is_ipv4() {
            return self.machines.get(&address).map_or(0, count);
        }
        let of_network = self.machines.iter().filter(|(other, _)| strangers::network(**other) == network);
        of_network.map(|(_, machine)| count(machine)).sum()
    }

    pub fn end_call(&mut self, address: IpAddr, now: Instant) {
        if let Some(machine) = self.machines.get_mut(&address) {
            machine.busy -= 1;
            machine.idle_since = now;
        }
    }

    /// The machine of a call under way is in a record.
    pub fn is_recorded(&mut self, address: IpAddr) {
        if let Some(machine) = self.machines.get_mut(&address) {
            machine.is_recorded = true;
        }
    }

    /// Nobody but machines that are done with everything is there.
    pub fn is_empty(&self) -> bool {
        self.machines.is_empty()
    }

    fn client(&mut self, key: &ClientKey) -> Result<&mut Client, LockStat> {
        let machine = self.machines.get_mut(&key.address).ok_or(LockStat::DeniedNoLocks)?;
        if !machine.clients.contains_key(&key.name) && machine.clients.len() >= CLIENTS_OF_MACHINE_MAX {
            return Err(LockStat::DeniedNoLocks);
        }
        Ok(machine.clients.entry(key.name.clone()).or_default())
    }

    /// The number of an owner who has something.
    pub fn owner(&self, target: &Target<'_>) -> Option<u64> {
        let client = self.machines.get(&target.client.address)?.clients.get(&target.client.name)?;
        client.owners.get(&(target.process, target.owner.into())).copied()
    }

    fn owner_or_new(&mut self, target: &Target<'_>) -> Result<u64, LockStat> {
        if let Some(owner) = self.owner(target) {
            return Ok(owner);
        }
        let number = FIRST_OWNER + self.next;
        self.client(target.client)?.owners.insert((target.process, target.owner.into()), number);
        self.next += 1;
        let (client, name) = (target.client.clone(), target.owner.into());
        self.owners.insert(number, OwnerRecord { client, process: target.process, name, files: HashSet::new() });
        Ok(number)
    }

    /// The lock in the way, as its holder is named to clients. Those of other doors have no owner that a client knows.
    pub fn holder(&self, files: &Files, held: &Held) -> LockHolder {
        let own = files.own_owner(held).and_then(|owner| self.owners.get(&owner));
        let (process, owner) = own.map_or((held.pid, Box::default()), |own| (own.process, own.name.clone()));
        LockHolder { exclusive: held.exclusive, process, owner, range: held.range }
    }

    /// Tries to lock; `open` is taken with the lock.
    pub fn lock(
        &mut self,
        target: &Target<'_>,
        wanted: WantedLock,
        how: Attempt,
        open: &mut Option<Open>,
    ) -> Result<(), LockStat> {
        let owner = self.owner_or_new(target)?;
        let done = self.try_lock(target, owner, wanted, how, open);
        if done.is_err() {
            self.tidy(owner, target.key);
        }
        done
    }

    fn try_lock(
        &mut self,
        target: &Target<'_>,
        owner: u64,
        wanted: WantedLock,
        how: Attempt,
        open: &mut Option<Open>,
    ) -> Result<(), LockStat> {
        let (files, ino, WantedLock { range, exclusive }) = (target.locking(), target.key.ino, wanted);
        self.check_room(target, owner)?;
        let done = match how {
            Attempt::Reclaim => files.reclaim_lock(ino, owner, range, exclusive, target.process),
            Attempt::IfHeld if !files.has_locks(ino, owner) => return Err(LockStat::DeniedGracePeriod),
            Attempt::New | Attempt::IfHeld => files.lock(ino, owner, range, exclusive, target.process),
        };
        done.map_err(stat_of)?;
        // It has it, told or not.
        self.end_waits(|wait| (wait.owner, wait.key, wait.wanted) == (owner, target.key, wanted));
        self.keep(target, owner, exclusive, open);
        Ok(())
    }

    fn check_room(&self, target: &Target<'_>, owner: u64) -> Result<(), LockStat> {
        let of_network = self.of_network(target.client.address, |machine| machine.files);
        let is_known = self.owners.get(&owner).is_some_and(|owner| owner.files.contains(&target.key));
        let is_full = !has_part(of_network, self.files.len(), FILES_OF_NETWORK_MAX, FILES_MAX);
        if is_full && !is_known { Err(LockStat::DeniedNoLocks) } else { Ok(()) }
    }

    fn keep(&mut self, target: &Target<'_>, owner: u64, exclusive: bool, open: &mut Option<Open>) {
        let Some(open) = open.take() else { return };
        let file = match self.files.entry(target.key) {
            std::collections::hash_map::Entry::Vacant(vacant) => vacant.insert(LockedFile {
                files: target.files.clone(),
                open,
                is_open_to_write: exclusive,
                owners: HashSet::new(),
            }),
            std::collections::hash_map::Entry::Occupied(occupied) => {
                let file = occupied.into_mut();
                if exclusive && !file.is_open_to_write {
                    (file.open, file.is_open_to_write) = (open, true);
                }
                file
            }
        };
        file.owners.insert(owner);
        let record = self.owners.get_mut(&owner);
        let is_new = record.is_some_and(|record| record.files.insert(target.key));
        if let Some(machine) = self.machines.get_mut(&target.client.address).filter(|_| is_new) {
            machine.files += 1;
        }
    }

    /// A client of an owner begins to wait. Its number, and the owner's.
    pub fn begin_wait(
        &mut self,
        target: &Target<'_>,
        wanted: WantedLock,
        open: &mut Option<Open>,
    ) -> Result<(u64, u64, CancellationToken), LockStat> {
        let of_network = self.of_network(target.client.address, |machine| machine.waits);
        if !has_part(of_network, self.waits.len(), WAITS_OF_NETWORK_MAX, WAITS_MAX) {
            return Err(LockStat::DeniedNoLocks);
        }
        let owner = self.owner_or_new(target)?;
        self.check_room(target, owner).inspect_err(|_| self.tidy_unkept(owner))?;
        self.keep(target, owner, wanted.exclusive, open);
        let (number, stop) = (self.next, CancellationToken::new());
        self.next += 1;
        let address = target.client.address;
        let (files, stopped) = (target.files.clone(), stop.clone());
        let wait = Wait { owner, key: target.key, wanted, is_granted: false, stop, files, address };
        self.waits.insert(number, wait);
        if let Some(machine) = self.machines.get_mut(&address) {
            machine.waits += 1;
        }
        Ok((number, owner, stopped))
    }

    /// The number of the wait for exactly this.
    pub fn find_wait(&self, target: &Target<'_>, wanted: WantedLock) -> Option<(u64, bool)> {
        let owner = self.owner(target)?;
        let is_it = |wait: &Wait| (wait.owner, wait.key, wait.wanted) == (owner, target.key, wanted);
        self.waits.iter().find(|(_, wait)| is_it(wait)).map(|(number, wait)| (*number, wait.is_granted))
    }

    pub fn waits(&self, number: u64) -> bool {
        self.waits.contains_key(&number)
    }

    /// The lock of a wait was taken; its client is to be told.
    pub fn granted(&mut self, number: u64) {
        if let Some(wait) = self.waits.get_mut(&number) {
            wait.is_granted = true;
        }
    }

    /// A wait is over; with `gives_up` what was granted and not told is free again.
    pub fn end_wait(&mut self, number: u64, gives_up: bool) {
        let Some(wait) = self.waits.remove(&number) else { return };
        wait.stop.cancel();
        if let Some(machine) = self.machines.get_mut(&wait.address) {
            machine.waits -= 1;
        }
        if wait.is_granted && gives_up {
            // Where one lock became two there may be no room: then it stays until the owner unlocks all.
            let _ = wait.files.unlock(wait.key.ino, wait.owner, wait.wanted.range);
        }
        self.tidy(wait.owner, wait.key);
    }

    fn end_waits(&mut self, ends: impl Fn(&Wait) -> bool) {
        let ended: Vec<u64> = self.waits.iter().filter(|(_, wait)| ends(wait)).map(|(number, _)| *number).collect();
        ended.into_iter().for_each(|number| self.end_wait(number, false));
    }

    pub fn unlock(&mut self, target: &Target<'_>, range: Range) -> LockStat {
        let Some(owner) = self.owner(target) else { return LockStat::Granted };
        // It has unlocked what it was about to be told of.
        let is_meant = |wait: &Wait| {
            wait.is_granted && (wait.owner, wait.key) == (owner, target.key) && overlap(wait.wanted.range, range)
        };
        self.end_waits(is_meant);
        let done = target.files.unlock(target.key.ino, owner, range);
        self.tidy(owner, target.key);
        done.map_or_else(stat_of, |()| LockStat::Granted)
    }

    /// `lockbook.nothing_left`
    fn tidy(&mut self, owner: u64, key: LockedKey) {
        let waits = self.waits.values().any(|wait| (wait.owner, wait.key) == (owner, key));
        let locks = self.files.get(&key).is_some_and(|file| file.files.has_locks(key.ino, owner));
        if !waits && !locks {
            self.drop_file(owner, key);
        }
        self.tidy_unkept(owner);
    }

    fn drop_file(&mut self, owner: u64, key: LockedKey) {
        let Some(record) = self.owners.get_mut(&owner) else { return };
        if record.files.remove(&key)
            && let Some(machine) = self.machines.get_mut(&record.client.address)
        {
            machine.files -= 1;
        }
        if let Some(file) = self.files.get_mut(&key) {
            file.owners.remove(&owner);
            if file.owners.is_empty() {
                self.files.remove(&key);
            }
        }
    }

    fn tidy_unkept(&mut self, owner: u64) {
        let is_over = |record: &mut OwnerRecord| record.files.is_empty();
        let std::collections::hash_map::Entry::Occupied(mut record) = self.owners.entry(owner) else { return };
        if !is_over(record.get_mut()) {
            return;
        }
        let record = record.remove();
        if let Some(machine) = self.machines.get_mut(&record.client.address)
            && let Some(client) = machine.clients.get_mut(&record.client.name)
        {
            client.owners.remove(&(record.process, record.name));
        }
        self.tidy_client(&record.client);
    }

    fn tidy_client(&mut self, key: &ClientKey) {
        let Some(machine) = self.machines.get_mut(&key.address) else { return };
        let is_over =
            machine.clients.get(&key.name).is_some_and(|client| client.owners.is_empty() && client.shares.is_empty());
        if is_over {
            machine.clients.remove(&key.name);
            machine.idle_since = Instant::now();
        }
    }

    /// A client in a life of this number has a lock.
    pub fn lives(&mut self, key: &ClientKey, life: u32) {
        let client = self.machines.get_mut(&key.address).and_then(|machine| machine.clients.get_mut(&key.name));
        if let Some(client) = client {
            client.life = life;
        }
    }

    pub fn reclaimed(&mut self, address: IpAddr, now: Instant) {
        if let Some(machine) = self.machines.get_mut(&address) {
            machine.reclaimed_at = Some(now);
        }
    }

    /// A share mode of an owner is there; takes the place of its former one.
    pub fn share(&mut self, target: &Target<'_>, open: Open) -> Result<(), LockStat> {
        let of_machine = |machine: &Machine| machine.clients.values().map(|client| client.shares.len()).sum();
        if self.of_network(target.client.address, of_machine) >= FILES_OF_NETWORK_MAX {
            return Err(LockStat::DeniedNoLocks);
        }
        let client = self.client(target.client)?;
        client.shares.insert((target.owner.into(), target.key), (target.files.clone(), open));
        Ok(())
    }

    /// The share mode of an owner, if it has one.
    pub fn shared(&self, target: &Target<'_>) -> Option<&Open> {
        let client = self.machines.get(&target.client.address)?.clients.get(&target.client.name)?;
        client.shares.get(&(target.owner.into(), target.key)).map(|(_, open)| open)
    }

    pub fn unshare(&mut self, target: &Target<'_>) {
        if let Ok(client) = self.client(target.client) {
            client.shares.remove(&(target.owner.into(), target.key));
        }
        self.tidy_client(target.client);
    }

    /// The client of an address with this name has begun another life: all that it had is free. A status monitor may have
    /// another name for it, with its domain or without; the only client of an address is meant by any. How many clients.
    pub fn free(&mut self, address: IpAddr, name: &[u8], life: u32) -> usize {
        let Some(machine) = self.machines.get(&address) else { return 0 };
        let names = || machine.clients.keys().filter(|known| is_same_name(known, name));
        let meant: Vec<Box<[u8]>> = match (names().count(), machine.clients.len()) {
            (0, 1) => machine.clients.keys().cloned().collect(),
            _ => names().cloned().collect(),
        };
        // What it has from this very life stays: the message is late, or came twice.
        let is_older = |name: &[u8]| machine.clients.get(name).is_some_and(|client| client.life != life || life == 0);
        let ended: Vec<Box<[u8]>> = meant.into_iter().filter(|name| is_older(name)).collect();
        ended.iter().for_each(|name| self.end_client(&ClientKey { address, name: name.clone() }));
        ended.len()
    }

    fn end_client(&mut self, key: &ClientKey) {
        let client = self.machines.get_mut(&key.address).and_then(|machine| machine.clients.get_mut(&key.name));
        let Some(client) = client else { return };
        client.shares.clear();
        let owners: HashSet<u64> = client.owners.values().copied().collect();
        self.end_waits(|wait| owners.contains(&wait.owner));
        for owner in owners {
            let files: Vec<LockedKey> =
                self.owners.get(&owner).into_iter().flat_map(|record| record.files.iter().copied()).collect();
            for key in files {
                if let Some(file) = self.files.get(&key) {
                    file.files.end_locks(key.ino, owner);
                }
                self.tidy(owner, key);
            }
        }
        self.tidy_client(key);
    }

    /// What a client holds by an export and is to keep; the rest ends, and nothing keeps its files open.
    pub fn keep_exports(&mut self, is_kept: impl Fn(ExportKey, &Files, IpAddr) -> bool) {
        self.end_waits(|wait| !is_kept(wait.key.export, &wait.files, wait.address));
        let all =
            self.owners.iter().flat_map(|(owner, record)| record.files.iter().map(move |key| (owner, record, key)));
        let gone: Vec<_> = all
            .filter_map(|(owner, record, key)| {
                Some((*owner, *key, record.client.address, self.files.get(key)?.files.clone()))
            })
            .filter(|(_, key, address, files)| !is_kept(key.export, files, *address))
            .collect();
        for (owner, key, _, files) in gone {
            files.end_locks(key.ino, owner);
            self.tidy(owner, key);
        }
        for (address, machine) in &mut self.machines {
            let clients = machine.clients.values_mut();
            clients
                .for_each(|client| client.shares.retain(|(_, key), (files, _)| is_kept(key.export, files, *address)));
            machine.clients.retain(|_, client| !client.owners.is_empty() || !client.shares.is_empty());
        }
    }

    /// Machines that are done with taking back, and those that have had nothing for a while. `awaited` ones stay.
    pub fn sweep(&mut self, now: Instant, awaited: impl Fn(IpAddr) -> bool) -> Swept {
        let mut swept = Swept::default();
        for (address, machine) in &mut self.machines {
            let is_done = |at: Instant| now.saturating_duration_since(at) >= QUIET_TIME && machine.busy == 0;
            if machine.reclaimed_at.is_some_and(is_done) {
                machine.reclaimed_at = None;
                swept.completed.push(*address);
            }
        }
        self.machines.retain(|address, machine| {
            let is_over = machine.is_idle()
                && machine.reclaimed_at.is_none()
                && now.saturating_duration_since(machine.idle_since) >= IDLE_TIME
                && !awaited(*address);
            if is_over && machine.is_recorded {
                swept.idle.push(*address);
            }
            !is_over
        });
        swept
    }
}

pub fn stat_of(error: LockError) -> LockStat {
    match error {
        LockError::Conflict(_) => LockStat::Denied,
        LockError::Deadlock => LockStat::Deadlock,
        LockError::TooMany => LockStat::DeniedNoLocks,
        LockError::Reclaims => LockStat::DeniedGracePeriod,
    }
}

fn overlap(a: Range, b: Range) -> bool {
    a.start <= b.last && b.start <= a.last
}

/// Whether two names are of one machine: one may lack its domain.
fn is_same_name(a: &[u8], b: &[u8]) -> bool {
    let host = |name: &[u8]| name.split(|byte| *byte == b'.').next().map(<[u8]>::to_ascii_lowercase);
    let has_domain = |name: &[u8]| name.contains(&b'.');
    a.eq_ignore_ascii_case(b) || (has_domain(a) != has_domain(b) && host(a) == host(b))
}

#[cfg(test)]
impl LockBook {
    /// Owners, files, waits, clients.
    pub fn counts(&self) -> [usize; 4] {
        let clients = self.machines.values().map(|machine| machine.clients.len()).sum();
        let waits: usize = self.machines.values().map(|machine| machine.waits).sum();
        let files: usize = self.machines.values().map(|machine| machine.files).sum();
        assert_eq!(waits, self.waits.len());
        assert_eq!(files, self.owners.values().map(|owner| owner.files.len()).sum::<usize>());
        [self.owners.len(), self.files.len(), self.waits.len(), clients]
    }
}
