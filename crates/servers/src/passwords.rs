//! Passwords of owners on their way into slots of the record (`own.slot_before_password`, `record.log_in_mends`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use larder_crypt::Secret;
use parking_lot::Mutex;
use tokio::sync::Notify;

/// Passwords in clear, for as long as slots are made of them.
#[derive(Default)]
pub struct Passwords {
    /// Until their slots are made.
    pub given: Mutex<BTreeMap<String, Arc<Secret>>>,
    /// Users whose passwords need no slot: they have one, or are too weak for one.
    pub settled: Mutex<BTreeSet<String>>,
    /// Owners whose passwords open nothing yet.
    pub lacking: Mutex<BTreeSet<String>>,
    /// Users whose passwords are being set.
    pub held: Mutex<BTreeSet<String>>,
    pub wake: Arc<Notify>,
}

impl Passwords {
    pub fn note(&self, user: &str, password: &str) {
        let secret = Arc::new(Secret::Passphrase(password.to_owned().into()));
        self.given.lock().insert(user.to_owned(), secret);
        self.wake.notify_one();
    }

    /// An owner logged in (`record.log_in_mends`).
    pub fn seen(&self, user: &str, password: &str) {
        if !self.settled.lock().contains(user) {
            self.note(user, password);
        }
    }

    pub fn hold(self: &Arc<Self>, user: &str) -> Held {
        self.held.lock().insert(user.to_owned());
        Held { user: user.to_owned(), passwords: Arc::clone(self) }
    }
}

/// The slot of a password that is being set stays while this does (`own.slot_before_password`).
pub struct Held {
    user: String,
    passwords: Arc<Passwords>,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.passwords.held.lock().remove(&self.user);
        self.passwords.wake.notify_one();
    }
}
