//! Couriers: one for each receiver, with tries that come less and less often (`watch.receivers_apart`).
//!
//! - `couriers.refused_for_good`: a message that its receiver refuses for good is given up after [`REFUSALS_MAX`] tries, over about
//!   four minutes, so that a receiver that was set up wrongly can be mended. While it goes on to refuse, each message behind that one
//!   is tried once: none waits for hours behind others.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use larder_alerts::send::{Receiver, SendError, ping};
use larder_alerts::{Condition, EventKind};
use larder_base::task;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::clock::now_ms;
use crate::state::Watch;
use crate::watcher::Watcher;
use larder_config::alert::PingConfig;

const RETRY_FIRST: Duration = Duration::from_secs(2);
const RETRY_MAX: Duration = Duration::from_secs(15 * 60);
/// A receiver that refuses a message for good may have been set up wrongly; then it is given up (`couriers.refused_for_good`).
const REFUSALS_MAX: u32 = 8;

/// The tries of one receiver.
struct Tries {
    /// Before the next one.
    wait: Duration,
    /// Of the message that is next.
    refusals: u32,
    /// It has refused a message for good, and taken none since.
    refuses: bool,
}

/// After a try of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// It is delivered.
    Delivered,
    /// It is given up. The next message comes after this.
    GivenUp(Duration),
    Again(Duration),
}

impl Tries {
    fn new() -> Self {
        Self { wait: RETRY_FIRST, refusals: 0, refuses: false }
    }

    /// `couriers.refused_for_good`
    fn after(&mut self, sent: &Result<(), SendError>) -> Next {
        match sent {
            Ok(()) => {
                *self = Self::new();
                Next::Delivered
            }
            Err(SendError::Refused(_)) if self.refuses || self.refusals + 1 >= REFUSALS_MAX => {
                *self = Self { refuses: true, ..Self::new() };
                Next::GivenUp(RETRY_FIRST)
            }
            Err(error) => {
                self.refusals += u32::from(matches!(error, SendError::Refused(_)));
                let wait = self.wait;
                self.wait = (wait * 2).min(RETRY_MAX);
                Next::Again(wait)
            }
        }
    }
}

/// A task that ends with its owner.
struct Courier<T> {
    of: T,
    task: JoinHandle<()>,
}

impl<T> Drop for Courier<T> {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Keeps a courier for each receiver and ping of the configuration.
pub(crate) async fn run(watcher: &Arc<Watcher>) {
    let mut receivers: BTreeMap<String, Courier<Receiver>> = BTreeMap::new();
    let mut pings: BTreeMap<String, Courier<PingConfig>> = BTreeMap::new();
    loop {
        // Registered first: news from now on wakes us.
        let news = watcher.watch.news.notified();
        let config = watcher.document.config().alerts.clone();
        watcher.watch.set_receivers(config.receivers.clone());
        receivers.retain(|name, courier| config.receivers.iter().any(|one| one.name == *name && *one == courier.of));
        for of in config.receivers {
            receivers.entry(of.name.clone()).or_insert_with(|| {
                let task = task::spawn(deliver(Arc::clone(&watcher.watch), of.clone()));
                Courier { of, task }
            });
        }
        pings.retain(|name, courier| config.pings.iter().any(|one| one.name == *name && *one == courier.of));
        for of in config.pings {
            pings.entry(of.name.clone()).or_insert_with(|| {
                let task = task::spawn(keep_pinging(Arc::clone(&watcher.watch), of.clone()));
                Courier { of, task }
            });
        }
        news.await;
    }
}

async fn deliver(watch: Arc<Watch>, receiver: Receiver) {
    let mut tries = Tries::new();
    loop {
        let news = watch.news.notified();
        let next = watch.kept.lock().queue.next(&receiver.name).cloned();
        let Some(message) = next else {
            news.await;
            continue;
        };
        let sent = receiver.send(&message).await;
        let next = tries.after(&sent);
        let over = (!matches!(next, Next::Again(_))).then_some(message.number);
        watch.note_try(&receiver.name, sent.as_ref().err(), over);
        match next {
            Next::Delivered => {}
            Next::GivenUp(wait) | Next::Again(wait) => sleep(wait).await,
        }
    }
}

async fn keep_pinging(watch: Arc<Watch>, of: PingConfig) {
    loop {
        let limit = larder_alerts::send::TRY_TIME_MAX;
        let late = || Err(SendError::Later(format!("no answer within {} s", limit.as_secs())));
        let sent = tokio::time::timeout(limit, ping(&of.url)).await.unwrap_or_else(|_| late());
        watch.note_try(&of.name, sent.as_ref().err(), None);
        sleep(Duration::from_secs(of.every_seconds)).await;
    }
}

impl Watch {
    /// How a try ended; a message that is delivered, or given up, waits no more.
    fn note_try(&self, name: &str, error: Option<&SendError>, over: Option<u64>) {
        let mut tried = self.tried.lock();
        let entry = tried.entry(name.to_owned()).or_default();
        let fault = error.map(ToString::to_string);
        // Said once, not with each try.
        if let Some(fault) = fault.as_ref().filter(|fault| entry.fault.as_ref() != Some(*fault)) {
            tracing::warn!("the alert '{name}' is not delivered: {fault}");
        } else if fault.is_none() && entry.fault.is_some() {
            tracing::info!("the alert '{name}' is delivered again");
        }
        if fault.is_none() {
            entry.delivered_ms = Some(now_ms());
        } else if over.is_some() {
            entry.given_up += 1;
            // Said once, as its fault is.
            if entry.given_up == 1 {
                tracing::error!("the alert '{name}' gives up a message that its receiver refuses; see: larder alerts");
            }
        }
        entry.fault = fault;
        drop(tried);
        let Some(number) = over else { return };
        let mut kept = self.kept.lock();
        kept.queue.done(name, number);
        let dropped = kept.queue.take_dropped();
        self.save(&kept);
        drop(kept);
        if let Some(dropped) = dropped {
            let text = format!("{dropped} messages could not be delivered for too long and were dropped.");
            self.note(Condition::is(EventKind::MessagesDropped, &self.host, text));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `couriers.refused_for_good`
    #[test]
    fn a_receiver_that_refuses_for_good_holds_nothing_up() {
        let refused = || Err(SendError::Refused("it answered 404 Not Found".to_owned()));
        let later = || Err(SendError::Later("no route".to_owned()));
        let mut tries = Tries::new();
        let mut waited = Duration::ZERO;
        for n in 1..REFUSALS_MAX {
            let Next::Again(wait) = tries.after(&refused()) else { panic!("given up after {n} tries") };
            waited += wait;
            // A network that is away in between does not begin anew, and gives nothing up.
            if n == 3 {
                assert!(matches!(tries.after(&later()), Next::Again(_)));
            }
        }
        assert!(waited < Duration::from_secs(10 * 60), "{waited:?}");
        assert_eq!(tries.after(&refused()), Next::GivenUp(RETRY_FIRST));
        // 200 messages behind it are through in minutes, and not in a day.
        for _ in 0..200 {
            assert_eq!(tries.after(&refused()), Next::GivenUp(RETRY_FIRST));
        }
        // A network that is away keeps them.
        for _ in 0..50 {
            assert!(matches!(tries.after(&later()), Next::Again(_)));
        }
        assert_eq!(tries.after(&Ok(())), Next::Delivered);
        // It took one: the next refusal may be a fault that somebody mends.
        assert_eq!(tries.after(&refused()), Next::Again(RETRY_FIRST));
    }
}
