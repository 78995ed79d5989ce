//! The state of the watch: alerts, messages that wait, and what its parts remember.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use larder_alerts::audit::{Audit, Record, RecordKind};
use larder_alerts::damage::DamageLog;
use larder_alerts::queue::Queue;
use larder_alerts::send::Receiver;
use larder_alerts::{Alert, Alerts, Change, Condition, EventKind, Message, MessageKind, digest};
use larder_api::Failure;
use larder_base::{passed, task};
use larder_files::guard::Alarm;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::{Notify, mpsc, oneshot};

use crate::clock::now_ms;
use crate::file_audits::FileAudits;
use crate::guards::{Guards, Suspects};
use crate::last_looks::LastLooks;
use crate::places::{self, Places};
use crate::{certificate, disks, history, slow, ups};

/// Logins and refusals that wait for the audit log. More at once are left out, and that is said.
const PASSAGES_MAX: usize = 1024;
/// Questions for a look that wait.
const ASKERS_MAX: usize = 16;
/// The last writes are waited for so long.
const END_WAIT_MAX: Duration = Duration::from_secs(5);
/// Local time of the week's digest.
const DIGEST_HOUR: u32 = 8;

/// A set-up that a person ordered in a browser.
#[derive(Clone, Debug)]
pub struct SetUpDeed {
    pub what: &'static str,
    pub target: String,
    /// The browser.
    pub from: std::net::IpAddr,
}

impl SetUpDeed {
    fn record(self, result: Result<(), &Failure>) -> Record {
        Record {
            number: 0,
            at_ms: 0,
            kind: RecordKind::Act,
            who: String::new(),
            from: self.from.to_canonical().to_string(),
            by: "set-up".to_owned(),
            what: self.what.to_owned(),
            target: self.target,
            result: result.map_or_else(|failure| format!("failed: {}", failure.message), |()| "done".to_owned()),
        }
    }

    /// It failed before there was a daemon that could record it.
    pub fn failed(self, data: &Path, failure: &Failure) {
        let folder = data.join("watch");
        let added = make_folder(&folder).and_then(|()| Audit::of(&folder).add(now_ms(), self.record(Err(failure))));
        if let Err(error) = added {
            tracing::error!("the audit log in {} cannot be written: {error}", folder.display());
        }
    }
}

fn make_folder(folder: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

/// What became of the last try.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tried {
    pub(crate) delivered_ms: Option<u64>,
    pub(crate) fault: Option<String>,
    /// Messages that it refused for good.
    pub(crate) given_up: u64,
}

/// What is kept over restarts.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Kept {
    pub(crate) alerts: Alerts,
    pub(crate) queue: Queue,
    digest_ms: u64,
    pub(crate) places: Places,
    pub(crate) suspects: Suspects,
    pub(crate) damage: DamageLog,
}

pub struct Watch {
    pub(crate) folder: PathBuf,
    pub(crate) host: String,
    pub(crate) audit: Arc<Audit>,
    pub(crate) kept: Mutex<Kept>,
    pub(crate) receivers: Mutex<Vec<Receiver>>,
    /// What became of the last try of each receiver and ping.
    pub(crate) tried: Mutex<BTreeMap<String, Tried>>,
    /// There is something to deliver.
    pub(crate) news: Notify,
    /// Why the configuration was not read again.
    pub(crate) config_fault: Mutex<Option<String>>,
    pub(crate) disks: disks::Disks,
    pub(crate) history: history::History,
    pub(crate) certificate: certificate::Watched,
    pub(crate) slow: slow::Slow,
    pub guards: Guards,
    pub file_audits: FileAudits,
    pub(crate) damage: LastLooks,
    pub ups: ups::Watched,
    pub(crate) alarms: Mutex<Option<mpsc::Receiver<(String, Alarm)>>>,
    pub(crate) passages: Mutex<Option<mpsc::Receiver<larder_doors::door::Passage>>>,
    pub(crate) ask: mpsc::Sender<oneshot::Sender<()>>,
    pub(crate) asked: Mutex<Option<mpsc::Receiver<oneshot::Sender<()>>>>,
}

impl Watch {
    /// The state of a data folder. A state that cannot be read is put aside: a box without memory of its alerts is better than none.
    pub fn open(data: &Path) -> Result<Self, Failure> {
        let folder = data.join("watch");
        make_folder(&folder.join("history"))
            .map_err(|e| Failure::io(format_args!("cannot make {}", folder.display()), &e))?;
        let state = folder.join("state");
        let kept = larder_alerts::load(&state).unwrap_or_else(|error| {
            let aside = folder.join("state.damaged");
            tracing::error!("alerts begin anew; the old state is put aside as {}: {error}", aside.display());
            let _ = std::fs::rename(&state, &aside);
            None
        });
        let (sender, passages) = mpsc::channel(PASSAGES_MAX);
        let (ask, asked) = mpsc::channel(ASKERS_MAX);
        let (guards, alarms) = Guards::new(kept.as_ref().map_or(&Suspects::default(), |kept: &Kept| &kept.suspects));
        larder_doors::door::observe(move |passage| places::pass_on(&sender, passage));
        Ok(Self {
            host: larder_config::machine::host_name(),
            audit: Arc::new(Audit::of(&folder)),
            kept: Mutex::new(kept.unwrap_or_default()),
            receivers: Mutex::default(),
            tried: Mutex::default(),
            news: Notify::new(),
            config_fault: Mutex::default(),
            disks: disks::Disks::default(),
            history: history::History::of(&folder.join("history")),
            certificate: certificate::Watched::default(),
            slow: slow::Slow::default(),
            guards,
            file_audits: FileAudits::default(),
            damage: LastLooks::default(),
            ups: ups::Watched::default(),
            alarms: Mutex::new(Some(alarms)),
            passages: Mutex::new(Some(passages)),
            ask,
            asked: Mutex::new(Some(asked)),
            folder,
        })
    }

    /// `running` lies there from here to an orderly end.
    pub(crate) fn note_start(&self) {
        let running = self.folder.join("running");
        if running.exists() {
            let last = std::fs::metadata(&running).and_then(|about| about.modified()).ok();
            let last = last.and_then(|at| at.duration_since(std::time::UNIX_EPOCH).ok());
            let since = last.map_or_else(String::new, |at| {
                format!(" It had run since {}.", larder_config::times::local(at.as_millis() as u64))
            });
            self.note(Condition::is(
                EventKind::Restarted,
                &self.host,
                format!("larder was not stopped in order and has started again.{since}"),
            ));
        }
        if let Err(error) = std::fs::write(&running, b"") {
            tracing::warn!("{}: {error}", running.display());
        }
    }

    /// An orderly end.
    pub async fn stopped(self: &Arc<Self>) {
        let watch = Arc::clone(self);
        let last = task::blocking(move || {
            watch.history.write();
            watch.write_file_operations();
            let _ = std::fs::remove_file(watch.folder.join("running"));
        });
        let _ = tokio::time::timeout(END_WAIT_MAX, last).await;
    }

    /// Who is told from now on.
    pub(crate) fn set_receivers(&self, receivers: Vec<Receiver>) {
        let mut current = self.receivers.lock();
        if *current == receivers {
            return;
        }
        let names: BTreeSet<String> = receivers.iter().map(|one| one.name.clone()).collect();
        *current = receivers;
        drop(current);
        let mut kept = self.kept.lock();
        kept.queue.keep_only(&names);
        self.save(&kept);
        drop(kept);
        self.news.notify_waiters();
    }

    /// The configuration may name other receivers, or another UPS.
    pub fn wake(&self) {
        self.news.notify_waiters();
        self.ups.configured.notify_one();
    }

    /// Something happened and is over.
    pub(crate) fn note(&self, condition: Condition) {
        let mut kept = self.kept.lock();
        let news = kept.alerts.note(now_ms(), &condition);
        self.publish(&mut kept, vec![news]);
    }

    /// Takes in what is the case now.
    pub(crate) fn take_in(&self, conditions: &[Condition], unknown: &[larder_alerts::Unknown]) {
        let mut kept = self.kept.lock();
        let news = kept.alerts.look(now_ms(), conditions, unknown);
        if !news.is_empty() {
            self.publish(&mut kept, news);
        }
    }

    /// `watch.saved_before_sent`
    fn publish(&self, kept: &mut Kept, news: Vec<(Change, Alert)>) {
        for (change, alert) in &news {
            let words = format!("{}: {}: {}", alert.key.event, alert.key.subject, alert.text);
            match change {
                Change::Reminder => {}
                Change::Cleared => tracing::info!("over: {words}"),
                _ if alert.severity == larder_alerts::Severity::Info => tracing::info!("{words}"),
                _ => tracing::warn!("{words}"),
            }
        }
        for message in Message::of_news(&self.host, now_ms(), &news) {
            self.push(kept, message);
        }
        self.save(kept);
        self.news.notify_waiters();
    }

    fn push(&self, kept: &mut Kept, message: Message) {
        let receivers = self.receivers.lock();
        let to = receivers.iter().filter(|one| one.wants(&message)).map(|one| one.name.clone()).collect();
        kept.queue.push(message, to);
    }

    pub(crate) fn save(&self, kept: &Kept) {
        if let Err(error) = self.try_save(kept) {
            tracing::error!("alerts are not kept over a restart: {error}");
        }
    }

    /// The same for what a person is to be told about.
    pub(crate) fn try_save(&self, kept: &Kept) -> Result<(), larder_alerts::SaveError> {
        larder_alerts::save(&self.folder.join("state"), kept)
    }

    /// Adds to the audit log.
    pub fn record(&self, record: Record) {
        if let Err(error) = self.audit.add(now_ms(), record) {
            tracing::error!("the audit log in {} cannot be written: {error}", self.folder.display());
        }
    }

    /// Writes operations on files that wait, without waiting for more.
    pub(crate) fn write_file_operations(&self) {
        let records = self.file_audits.take();
        if let Err(error) = self.audit.add_file_operations(records) {
            tracing::error!("operations on files are not in the audit log in {}: {error}", self.folder.display());
        }
    }

    /// The configuration was to be read again.
    pub fn config_fault(&self, result: Result<(), &Failure>) {
        *self.config_fault.lock() = result.err().map(|failure| failure.message.clone());
    }

    /// A set-up in a browser, at its end: it is no act of the API.
    pub async fn set_up(self: &Arc<Self>, deed: SetUpDeed, result: Result<(), &Failure>) {
        let (record, watch) = (deed.record(result), Arc::clone(self));
        let _ = task::blocking(move || watch.record(record)).await;
    }

    /// As [`Watch::config_fault`], and it is no act of the API, which is recorded as such.
    pub fn config_read(self: &Arc<Self>, by: &str, result: Result<(), &Failure>) {
        self.config_fault(result);
        let record = Record {
            number: 0,
            at_ms: 0,
            kind: RecordKind::Config,
            who: String::new(),
            from: "local".to_owned(),
            by: by.to_owned(),
            what: "the configuration was read again".to_owned(),
            target: String::new(),
            result: result.map_or_else(|failure| failure.message.clone(), |()| "done".to_owned()),
        };
        let watch = Arc::clone(self);
        task::blocking(move || watch.record(record));
    }

    /// A digest, if the week is over.
    pub(crate) fn digest(&self, room: &[String], disks: &disks::Summary) {
        use chrono::Timelike;
        let (now, hour) = (now_ms(), chrono::Local::now().hour());
        let mut kept = self.kept.lock();
        if !digest::is_due(kept.digest_ms, now, hour, DIGEST_HOUR) {
            return;
        }
        let open = kept.alerts.open();
        let is_recent = |alert: &&Alert| now.saturating_sub(alert.ended_ms.unwrap_or(alert.since_ms)) < digest::WEEK_MS;
        let began = open.iter().filter(|alert| now.saturating_sub(alert.since_ms) < digest::WEEK_MS);
        let mut changed: Vec<Alert> = kept.alerts.past().filter(is_recent).chain(began).cloned().collect();
        changed.sort_by_key(|alert| alert.since_ms);
        let week =
            digest::Week { open: &open, changed: &changed, room, disks: &disks.troubled, disks_well: disks.well };
        kept.digest_ms = now;
        let message = Message::of_box(&self.host, now, MessageKind::Digest, &self.host, week.text());
        self.push(&mut kept, message);
        self.save(&kept);
        drop(kept);
        self.news.notify_waiters();
    }

    /// As [`Watch::note`], at most once an hour about one thing: a guesser is locked out every minute.
    pub(crate) fn note_once(&self, condition: Condition) {
        const AGAIN_MS: u64 = 3600 * 1000;
        let now = now_ms();
        let told = |alert: &Alert| alert.key == condition.key && passed::since_ms(alert.since_ms, now) < AGAIN_MS;
        if !self.kept.lock().alerts.past().any(told) {
            self.note(condition);
        }
    }
}
