//! Names of replicas and clones that one task has to itself, and the bells that interrupt receptions.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use parking_lot::Mutex;
use tokio::sync::Notify;

/// Names that somebody has alone.
pub(crate) type Receiving = Arc<Mutex<HashMap<String, Arc<Bell>>>>;

/// Interrupts a reception.
#[derive(Default)]
pub(crate) struct Bell {
    pub(crate) rings: Notify,
    /// A reception listens. Others that have a name alone do not.
    pub(crate) is_heard: AtomicBool,
}

/// A name that nobody else receives into, promotes or destroys while this is held.
pub(crate) struct Alone {
    receiving: Receiving,
    name: String,
    pub(crate) bell: Arc<Bell>,
}

impl Drop for Alone {
    fn drop(&mut self) {
        self.receiving.lock().remove(&self.name);
    }
}

impl Alone {
    /// `None`: somebody else has the name.
    pub(crate) fn take(receiving: &Receiving, name: &str) -> Option<Self> {
        let mut all = receiving.lock();
        if all.contains_key(name) {
            return None;
        }
        let bell = Arc::<Bell>::default();
        all.insert(name.to_owned(), Arc::clone(&bell));
        Some(Self { receiving: Arc::clone(receiving), name: name.to_owned(), bell })
    }
}
