//! Couriers: one for each receiver, with tries that come less and less often (`watch.receivers_apart`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use larder_watch::send::{Receiver, SendError, ping};
use larder_watch::{Condition, EventKind};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::clock::now_ms;
use super::state::Watch;
use crate::config::alert::PingConfig;
use crate::daemon::Daemon;

const RETRY_FIRST: Duration = Duration::from_secs(2);
const RETRY_MAX: Duration = Duration::from_secs(15 * 60);
/// A receiver that refuses a message for good may have been set up wrongly; then it is given up.
const REFUSALS_MAX: u32 = 8;

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
pub(super) async fn run(daemon: &Arc<Daemon>) {
    let mut receivers: BTreeMap<String, Courier<Receiver>> = BTreeMap::new();
    let mut pings: BTreeMap<String, Courier<PingConfig>> = BTreeMap::new();
    loop {
        // Registered first: news from now on wakes us.
        let news = daemon.watch.news.notified();
        let config = daemon.state.lock().await.config.alerts.clone();
        daemon.watch.set_receivers(config.receivers.clone());
        receivers.retain(|name, courier| config.receivers.iter().any(|one| one.name == *name && *one == courier.of));
        for of in config.receivers {
            receivers.entry(of.name.clone()).or_insert_with(|| {
                let task = tokio::spawn(deliver(Arc::clone(daemon), of.clone()));
                Courier { of, task }
            });
        }
        pings.retain(|name, courier| config.pings.iter().any(|one| one.name == *name && *one == courier.of));
        for of in config.pings {
            pings.entry(of.name.clone()).or_insert_with(|| {
                let task = tokio::spawn(keep_pinging(Arc::clone(daemon), of.clone()));
                Courier { of, task }
            });
        }
        news.await;
    }
}

async fn deliver(daemon: Arc<Daemon>, receiver: Receiver) {
    let watch = &daemon.watch;
    let (mut wait, mut refusals) = (RETRY_FIRST, 0);
    loop {
        let news = watch.news.notified();
        let next = watch.kept.lock().queue.next(&receiver.name).cloned();
        let Some(message) = next else {
            news.await;
            continue;
        };
        let sent = receiver.send(&message).await;
        refusals = if matches!(sent, Err(SendError::Refused(_))) { refusals + 1 } else { 0 };
        let is_over = sent.is_ok() || refusals >= REFUSALS_MAX;
        watch.note_try(&receiver.name, sent.as_ref().err(), is_over.then_some(message.number));
        if is_over {
            (wait, refusals) = (RETRY_FIRST, 0);
            continue;
        }
        sleep(wait).await;
        wait = (wait * 2).min(RETRY_MAX);
    }
}

async fn keep_pinging(daemon: Arc<Daemon>, of: PingConfig) {
    loop {
        let limit = larder_watch::send::TRY_TIME_MAX;
        let late = || Err(SendError::Later(format!("no answer within {} s", limit.as_secs())));
        let sent = tokio::time::timeout(limit, ping(&of.url)).await.unwrap_or_else(|_| late());
        daemon.watch.note_try(&of.name, sent.as_ref().err(), None);
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
            tracing::error!("the alert '{name}' gives up a message that its receiver refuses");
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
