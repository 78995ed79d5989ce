//! What the API answers about alerts, the audit log and disks.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use larder_alerts::audit::{self, Record};
use larder_alerts::{Alert, Message, MessageKind};
use larder_api::{
    AlertChange, AlertReceiver, AlertStatus, AlertTested, AlertsStatus, AuditQuery, AuditRecord, DiskHealth, Failure,
};
use larder_base::task;
use larder_facts::Machine;
use tokio::sync::oneshot;

use crate::clock::now_ms;
use crate::state::{Kept, Watch};
use crate::watcher::Watcher;

/// A look that takes longer is not waited for: what was seen last is answered.
const LOOK_WAIT_MAX: Duration = Duration::from_secs(10);
/// A disk of the data folder that does not answer keeps the state.
const STATE_WAIT_MAX: Duration = Duration::from_secs(5);
/// Ten years.
const SILENCE_SECONDS_MAX: u64 = 3660 * 24 * 3600;

fn shown(alert: &Alert) -> AlertStatus {
    let event = alert.key.event.event();
    AlertStatus {
        id: alert.id,
        event: event.id.to_owned(),
        subject: alert.key.subject.clone(),
        severity: alert.severity.word().to_owned(),
        text: alert.text.clone(),
        action: alert.action.clone().unwrap_or_else(|| event.action.to_owned()),
        since_ms: alert.since_ms,
        ended_ms: alert.ended_ms,
        acknowledged: alert.acknowledged,
        silent_until_ms: alert.silent_until_ms,
    }
}

fn record(record: Record) -> AuditRecord {
    AuditRecord {
        number: record.number,
        at_ms: record.at_ms,
        kind: format!("{:?}", record.kind).to_lowercase(),
        who: record.who,
        from: record.from,
        by: record.by,
        what: record.what,
        target: record.target,
        result: record.result,
    }
}

fn unknown_alert(error: &larder_alerts::NoAlert) -> Failure {
    Failure::not_found(error.to_string()).action("see which there are with: larder alerts")
}

/// Records of a data folder's audit log. Needs no daemon.
pub fn audit_of(data: &std::path::Path, query: &AuditQuery) -> Result<Vec<AuditRecord>, Failure> {
    let folder = data.join("watch");
    let records = audit::read(&folder, query.since_ms, query.after_number);
    let failed = |e| Failure::io(format_args!("cannot read the audit log in {}", folder.display()), &e);
    Ok(records.map_err(failed)?.into_iter().map(record).collect())
}

impl Watch {
    /// The temperature of the hottest disk, as it told it last. Asks none.
    pub fn hottest_disk(&self) -> Option<f64> {
        self.disks.hottest().map(|degrees| degrees as f64)
    }

    /// Has the watch look, and waits for it.
    pub(crate) async fn look_soon(&self) {
        let (done, is_done) = oneshot::channel();
        if self.ask.try_send(done).is_ok() {
            let _ = tokio::time::timeout(LOOK_WAIT_MAX, is_done).await;
        }
    }

    fn newest_records(&self, count: usize) -> Result<Vec<AuditRecord>, Failure> {
        let failed = |e| Failure::io(format_args!("cannot read the audit log in {}", self.folder.display()), &e);
        Ok(self.audit.newest(count).map_err(failed)?.into_iter().map(record).collect())
    }

    /// Works on the state away from threads that serve, and with a limit.
    async fn with_state<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Watch, &mut Kept) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Failure> {
        let watch = Arc::clone(self);
        let worked = task::blocking(move || {
            let mut kept = watch.kept.lock();
            work(&watch, &mut kept)
        });
        match tokio::time::timeout(STATE_WAIT_MAX, worked).await {
            Ok(worked) => worked.unwrap_or_else(|e| Err(Failure::internal(format!("the daemon failed at this: {e}")))),
            Err(_) => {
                Err(Failure::unavailable("the alerts cannot be read: the disk of the data folder does not answer")
                    .action("see whether it does: ls in the data folder"))
            }
        }
    }
}

/// A person who changed something hears that it does not last.
fn kept_or_told(watch: &Watch, kept: &Kept) -> Result<(), Failure> {
    watch.try_save(kept).map_err(|error| {
        let message = format!("it is as you say until larder is started again: {error}");
        Failure::unavailable(message).action("make room in the data folder, and repeat the command")
    })
}

impl Watcher {
    /// What the alert `id` tells of is wanted.
    async fn vouch_for(&self, id: u64) -> Result<AlertStatus, Failure> {
        let alert = self
            .watch
            .with_state(move |watch, kept| {
                let found = kept.alerts.open().iter().find(|alert| alert.id == id).cloned();
                let alert = found.ok_or_else(|| unknown_alert(&larder_alerts::NoAlert(id)))?;
                let Some(suspect) = kept.suspects.take(&alert.key) else {
                    return Err(Failure::invalid(format!("the alert {id} is not about a client that ruins files"))
                        .action("no more reminders of it: larder alerts ack ID"));
                };
                let saved = kept_or_told(watch, kept);
                watch.guards.release(&suspect);
                saved.map(|()| shown(&alert))
            })
            .await?;
        self.watch.look_soon().await;
        Ok(alert)
    }

    pub async fn alerts(&self) -> Result<AlertsStatus, Failure> {
        self.watch.look_soon().await;
        let config = self.document.config().alerts.clone();
        let tried = self.watch.tried.lock().clone();
        self.watch
            .with_state(move |_, kept| {
                let receiver = |name: &String, kind: &str| {
                    let tried = tried.get(name).cloned().unwrap_or_default();
                    AlertReceiver {
                        name: name.clone(),
                        kind: kind.to_owned(),
                        waiting: kept.queue.count(name) as u64,
                        delivered_ms: tried.delivered_ms,
                        fault: tried.fault,
                        given_up: tried.given_up,
                    }
                };
                let receivers = config.receivers.iter().map(|one| receiver(&one.name, one.way.word()));
                let pings = config.pings.iter().map(|one| receiver(&one.name, "ping"));
                Ok(AlertsStatus {
                    open: kept.alerts.open().iter().map(shown).collect(),
                    past: kept.alerts.past().rev().map(shown).collect(),
                    receivers: receivers.chain(pings).collect(),
                })
            })
            .await
    }

    pub async fn alert_change(&self, change: AlertChange) -> Result<AlertStatus, Failure> {
        if let AlertChange::Silence { seconds, .. } = change
            && seconds > SILENCE_SECONDS_MAX
        {
            return Err(Failure::invalid("an alert is silenced for ten years at most"));
        }
        if let AlertChange::Release { id } = change {
            return self.vouch_for(id).await;
        }
        self.watch
            .with_state(move |watch, kept| {
                let changed = match change {
                    AlertChange::Release { id } => Err(larder_alerts::NoAlert(id)),
                    AlertChange::Acknowledge { id } => kept.alerts.acknowledge(id),
                    AlertChange::Silence { id, seconds } => kept.alerts.silence(id, now_ms() + seconds * 1000),
                };
                let alert = changed.map_err(|e| unknown_alert(&e))?;
                kept_or_told(watch, kept).map(|()| shown(&alert))
            })
            .await
    }

    /// A message to each receiver, past the queue: whoever asks wants to know now.
    pub async fn alerts_test(&self) -> Result<Vec<AlertTested>, Failure> {
        let config = self.document.config().alerts.clone();
        if config.receivers.is_empty() && config.pings.is_empty() {
            return Err(Failure::not_found("the configuration names no [[alert]]")
                .action("add one to larder.toml, such as: [[alert]] kind = \"ntfy\" url = \"https://ntfy.sh/TOPIC\"; then: larder reload"));
        }
        let text = "Somebody typed: larder alerts test. Messages of this box arrive here.".to_owned();
        let message = Message::of_box(&self.watch.host, now_ms(), MessageKind::Test, &self.watch.host, text);
        let receivers = config.receivers.iter().map(|one| {
            let message = message.clone();
            async move {
                let fault = one.send(&message).await.err().map(|error| error.to_string());
                AlertTested { name: one.name.clone(), kind: one.way.word().to_owned(), fault }
            }
        });
        let pings = config.pings.iter().map(|one| async move {
            let sent =
                tokio::time::timeout(larder_alerts::send::TRY_TIME_MAX, larder_alerts::send::ping(&one.url)).await;
            let fault = match sent {
                Ok(sent) => sent.err().map(|error| error.to_string()),
                Err(_) => Some("no answer in time".to_owned()),
            };
            AlertTested { name: one.name.clone(), kind: "ping".to_owned(), fault }
        });
        let (mut tested, pinged) = tokio::join!(futures::future::join_all(receivers), futures::future::join_all(pings));
        tested.extend(pinged);
        Ok(tested)
    }

    pub async fn audit_records(&self, query: AuditQuery) -> Result<Vec<AuditRecord>, Failure> {
        let (data, watch) = (self.folder.path().to_owned(), Arc::clone(&self.watch));
        larder_servers::answer::finish(async move {
            let read = task::blocking(move || match query.newest {
                Some(count) => watch.newest_records(count as usize),
                None => {
                    watch.write_file_operations();
                    audit_of(&data, &query)
                }
            });
            read.await.unwrap_or_else(|e| Err(Failure::internal(format!("the daemon failed at this: {e}"))))
        })
        .await
    }

    /// Asks the disks that are awake, and says what is known of the others.
    pub async fn disk_health(&self) -> Result<Vec<DiskHealth>, Failure> {
        let pools: Vec<(String, Vec<PathBuf>)> =
            self.storage.all().iter().map(|pool| (pool.name.clone(), pool.disks())).collect();
        let watch = Arc::clone(&self.watch);
        let asked = task::blocking(move || {
            let machine = Machine::this();
            watch.disks.ask(&machine, &watch.history, true);
            watch.disks.list(&watch.history, &pools, &machine)
        });
        asked.await.map_err(|e| Failure::internal(format!("the daemon failed at this: {e}")))
    }
}
