//! The status monitor: a client that restarts says so and loses its locks; after this server's restart its clients hear
//! of it and take back what they had.
//!
//! ```text
//! start -> records are loaded -> SM_NOTIFY to each address in them -> LOCK with reclaim -> grace ends
//!                                 ^ again until answered, while grace lasts
//! ```
//!
//! - `restarts.announced_from_the_record`: whoever is in a volume's record and may reclaim hears of the restart, at this
//!   machine or at one that took the volume over.
//! - `restarts.of_the_caller`: a restart is believed of the address that tells it.
//! - `restarts.by_all_names`: a client finds its server by the name that it monitors, which is the address of its mount (Linux)
//!   or the name in it (BSD, macOS). It hears of the restart once for each of them: the address that the call leaves from
//!   first, since no name service is asked about an address, then the name of the machine, then its other addresses. All
//!   have one number, so a status monitor that matched one of them ignores the others.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use larder_base::task;
use larder_files::Files;
use nix::ifaddrs::getifaddrs;
use tokio_util::sync::CancellationToken;

use super::super::export::Exports;
use super::super::portmap::source_to;
use super::super::rpc::{AcceptStat, CallHeader, begin_accepted};
use super::super::xdr::Writer;
use super::call_out::Way;
use super::server::Nlm;
use super::wire::{MonitorRequest, NOTIFY, NSM_PROGRAM, NSM_V1, encode_notify};
use larder_doors::door::shown;

/// How often machines are looked after while there are some.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Between calls to a client that does not hear of the restart.
const NOTIFY_AGAIN_MAX: Duration = Duration::from_secs(15);
/// Names of this machine in announcements. A server at home has one or two addresses; beyond these a client is told of the
/// first ones alone, and has to have mounted one of them.
const NAMES_MAX: usize = 16;
/// `stat_fail`: this server watches its own clients, and nobody for others.
const STAT_FAIL: u32 = 1;

impl Nlm {
    /// Answers a call of the status monitor but NULL.
    pub fn monitor(&self, call: &CallHeader<'_>, client: IpAddr, w: &mut Writer) {
        let request = match MonitorRequest::decode(call.proc_num, call.args) {
            Ok(Some(request)) => request,
            Ok(None) => return begin_accepted(w, call.xid, AcceptStat::ProcUnavail),
            Err(_) => return begin_accepted(w, call.xid, AcceptStat::GarbageArgs),
        };
        begin_accepted(w, call.xid, AcceptStat::Success);
        match request {
            MonitorRequest::Watch => {
                w.u32(STAT_FAIL);
                w.u32(self.life.load(Relaxed));
            }
            MonitorRequest::Unwatch => w.u32(self.life.load(Relaxed)),
            MonitorRequest::Simulate => {}
            MonitorRequest::Notify { name, life } => self.client_restarted(client, &name, life),
        }
    }

    /// `restarts.of_the_caller`
    pub fn client_restarted(&self, client: IpAddr, name: &[u8], life: u32) {
        let freed = self.book.lock().free(client, name, life);
        if freed > 0 {
            let name = shown(&String::from_utf8_lossy(name));
            tracing::info!(%client, %name, "an NFS client has restarted: its locks are free");
        }
    }

    /// These are exported, and nothing else.
    pub fn set_exports(self: &Arc<Self>, exports: Arc<Exports>) {
        let is_kept = |key, files: &Files, client| {
            let export = exports.of_client(&key, client);
            export.is_some_and(|export| export.locks.id() == files.id() && export.locks.verifier() == files.verifier())
        };
        self.book.lock().keep_exports(is_kept);
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let nlm = Arc::clone(self);
        task::spawn_on(&runtime, async move {
            let mut told = BTreeSet::new();
            for files in exports.list.iter().map(|export| &export.locks) {
                // Its record is loaded then. A client that takes back locks of the next one waits until that is, too.
                let _ = nlm.v4.volume(files).await;
                nlm.announce(&mut told);
            }
        });
    }

    /// `restarts.announced_from_the_record`
    fn announce(self: &Arc<Self>, told: &mut BTreeSet<IpAddr>) {
        let clients: Vec<IpAddr> =
            self.v4.awaited_lockers().into_iter().filter(|client| told.insert(*client)).collect();
        if clients.is_empty() {
            return;
        }
        // A client takes a number that it knows for the same restart, and has asked for the volumes that there were then.
        let life = self.life.fetch_add(2, Relaxed);
        for client in clients {
            let nlm = Arc::clone(self);
            task::spawn(async move { nlm.announce_to(client, life).await });
        }
    }

    /// Until the client has heard of it by all names, or nobody waits for it any more (`restarts.by_all_names`).
    async fn announce_to(&self, client: IpAddr, life: u32) {
        let way = Way { client, from: None };
        let mut names = own_names(client);
        let (mut pause, mut has_heard) = (Duration::from_secs(1), false);
        while self.v4.awaits_locker(client) {
            let mut unheard = Vec::new();
            for name in names {
                let args = encode_notify(name.as_bytes(), life);
                let heard = way.call((NSM_PROGRAM, NSM_V1, NOTIFY), &args).await.is_ok();
                if !heard {
                    unheard.push(name);
                } else if !std::mem::replace(&mut has_heard, true) {
                    tracing::info!(
                        %client, "an NFS client has heard that larder has restarted, and may take back its locks"
                    );
                }
            }
            if unheard.is_empty() {
                return;
            }
            names = unheard;
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(NOTIFY_AGAIN_MAX);
        }
    }

    /// Looks for machines that are done, until `shutdown`.
    pub async fn look_after_locks(self: Arc<Self>, shutdown: CancellationToken) {
        loop {
            let is_used = !self.book.lock().is_empty();
            tokio::select! {
                () = self.used.notified(), if !is_used => {}
                () = tokio::time::sleep(LOOK_EVERY), if is_used => {}
                () = shutdown.cancelled() => return,
            }
            if self.sweep(Instant::now()) {
                // What could not be written is tried again by the sweeper of version 4.
                let _ = self.v4.settle().await;
            }
        }
    }

    /// Whether records have changed.
    fn sweep(&self, now: Instant) -> bool {
        // Under the book's lock: nobody takes a lock between the look and the end of the record.
        let mut book = self.book.lock();
        let swept = book.sweep(now, |client| self.v4.awaits_locker(client));
        swept.completed.iter().for_each(|client| self.v4.locker_completed(*client));
        swept.idle.iter().for_each(|client| self.v4.forget_locker(*client));
        !swept.completed.is_empty() || !swept.idle.is_empty()
    }
}

/// The names by which a client may know this server, the likeliest first (`restarts.by_all_names`).
fn own_names(client: IpAddr) -> Vec<String> {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let mut names: Vec<String> = source_to(client).map(|address| address.to_string()).into_iter().collect();
    names.extend([host].into_iter().filter(|name| !name.is_empty()));
    let others = getifaddrs().into_iter().flatten().filter_map(|one| {
        let storage = one.address?;
        let v4 = storage.as_sockaddr_in().map(|at| IpAddr::V4(at.ip()));
        v4.or_else(|| storage.as_sockaddr_in6().map(|at| IpAddr::V6(at.ip())))
    });
    for address in others.filter(|address| is_of_network(*address) && address.is_ipv4() == client.is_ipv4()) {
        let name = address.to_string();
        if names.len() < NAMES_MAX && !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// Whether machines of a network may know this one by an address.
fn is_of_network(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => !v4.is_loopback() && !v4.is_link_local(),
        IpAddr::V6(v6) => !v6.is_loopback() && !v6.is_unicast_link_local(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_that_calls_leave_from_is_the_first_name() {
        let names = own_names(IpAddr::from([127, 0, 0, 9]));
        assert_eq!(names.first().map(String::as_str), Some("127.0.0.1"));
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        assert_eq!(names.get(1), Some(&host));
        assert!(names.len() <= NAMES_MAX && names.iter().all(|name| !name.contains(':')), "of the client's family");
    }

    #[test]
    fn addresses_that_no_other_machine_knows() {
        let is = |address: &str| address.parse().is_ok_and(is_of_network);
        assert!(is("10.1.2.3") && is("2001:db8::1") && is("fd00::1"));
        assert!(!is("127.0.0.1") && !is("169.254.1.2") && !is("::1") && !is("fe80::1"));
    }
}
