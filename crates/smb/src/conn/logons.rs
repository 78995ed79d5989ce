//! The logons of a connection that have not come to their end: SESSION_SETUP exchanges between two of their rounds.
//!
//! - `logons.one_entry`: whatever is kept for a logon is one entry, which goes when the logon succeeds, fails, is ended by its
//!   client or takes too long.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use larder_smb_wire::auth::ntlm::NtlmServer;
use larder_smb_wire::crypto::PreauthIntegrity;

/// The server's side of an exchange, and whether the client sent raw NTLMSSP (true) or wrapped it in SPNEGO (false): the
/// answer has the form of the request.
pub type Acceptor = Arc<Mutex<(NtlmServer, bool)>>;

/// Most logons that one connection may have waiting for their next round.
const MAX_PENDING_LOGONS: usize = 16;

/// Keyed by the SessionId of the session to be. A `Session` exists once its logon has succeeded.
#[derive(Default)]
pub struct PendingLogons(Mutex<HashMap<u64, PendingLogon>>);

struct PendingLogon {
    /// Absent while a round runs.
    acceptor: Option<Acceptor>,
    /// Of the exchange so far, with SMB 3.1.1. Absent while a round runs.
    hash: Option<PreauthIntegrity>,
    /// When its first round began.
    started: Instant,
}

impl PendingLogon {
    fn new() -> Self {
        Self { acceptor: None, hash: None, started: Instant::now() }
    }
}

impl PendingLogons {
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, PendingLogon>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the logon waits for its next round.
    pub fn is_waiting(&self, session_id: u64) -> bool {
        self.lock().get(&session_id).is_some_and(|logon| logon.acceptor.is_some())
    }

    /// Begins a logon, or lets one begin anew. False where too many wait.
    #[must_use]
    pub fn begin(&self, session_id: u64, acceptor: Acceptor) -> bool {
        let mut logons = self.lock();
        if logons.values().filter(|logon| logon.acceptor.is_some()).count() >= MAX_PENDING_LOGONS {
            return false;
        }
        logons.entry(session_id).or_insert_with(PendingLogon::new).acceptor = Some(acceptor);
        true
    }

    /// Takes the acceptor of a logon for its next round.
    pub fn take(&self, session_id: u64) -> Option<Acceptor> {
        self.lock().get_mut(&session_id)?.acceptor.take()
    }

    /// Keeps the acceptor for another round.
    pub fn wait_again(&self, session_id: u64, acceptor: Acceptor) {
        self.lock().entry(session_id).or_insert_with(PendingLogon::new).acceptor = Some(acceptor);
    }

    pub fn take_hash(&self, session_id: u64) -> Option<PreauthIntegrity> {
        self.lock().get_mut(&session_id)?.hash.take()
    }

    pub fn keep_hash(&self, session_id: u64, hash: PreauthIntegrity) {
        self.lock().entry(session_id).or_insert_with(PendingLogon::new).hash = Some(hash);
    }

    /// Forgets a logon, and whatever was kept for it. False where none waits.
    pub fn end(&self, session_id: u64) -> bool {
        self.lock().remove(&session_id).is_some_and(|logon| logon.acceptor.is_some())
    }

    /// Forgets the logons that began more than `timeout` ago, so that abandoned ones leave room for others. Returns their
    /// number.
    pub fn drop_stale(&self, timeout: Duration) -> usize {
        let mut logons = self.lock();
        let before = logons.len();
        logons.retain(|_, logon| logon.started.elapsed() < timeout);
        before - logons.len()
    }

    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_smb_wire::auth::ntlm::NtlmTargetInfo;

    fn acceptor() -> Acceptor {
        Arc::new(Mutex::new((NtlmServer::new([0; 8], NtlmTargetInfo::new("S", "S", "S", "", ""), 0), false)))
    }

    #[test]
    fn nothing_stays_of_a_logon_that_ended() {
        let logons = PendingLogons::default();
        for id in 1..100 {
            logons.keep_hash(id, PreauthIntegrity::new());
            assert!(!logons.end(id), "no exchange was under way");
            assert!(logons.begin(id, acceptor()));
            logons.keep_hash(id, PreauthIntegrity::new());
            assert!(logons.end(id));
        }
        assert!(logons.is_empty());
    }

    #[test]
    fn only_so_many_logons_wait_until_some_take_too_long() {
        let logons = PendingLogons::default();
        for id in 0..MAX_PENDING_LOGONS as u64 {
            assert!(logons.begin(id, acceptor()));
        }
        assert!(!logons.begin(99, acceptor()));
        // One whose round runs does not wait.
        let taken = logons.take(3).unwrap();
        assert!(!logons.is_waiting(3) && logons.take(3).is_none());
        assert!(logons.begin(99, acceptor()));
        logons.wait_again(3, taken);
        assert_eq!(logons.drop_stale(Duration::from_secs(3600)), 0);
        assert_eq!(logons.drop_stale(Duration::ZERO), MAX_PENDING_LOGONS + 1);
        assert!(logons.is_empty());
    }

    #[test]
    fn a_logon_that_begins_anew_has_no_more_time() {
        let logons = PendingLogons::default();
        assert!(logons.begin(1, acceptor()));
        std::thread::sleep(Duration::from_millis(20));
        assert!(logons.begin(1, acceptor()));
        assert_eq!(logons.drop_stale(Duration::from_millis(20)), 1);
    }
}
