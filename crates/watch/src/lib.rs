//! The daemon watches itself: it looks at what it knows, keeps alerts, and has them delivered; it audits; it knows its disks' health.
//!
//! - `looking.no_disk_asked`: a look reads what is in memory already. Once a minute, and when somebody asks for alerts; a disk is
//!   asked for its health only while it is in use anyway (`disks.busy_only`).
//! - `looking.nothing_written_idle`: nothing is written where nothing changed. The history of disks is written while pools are written
//!   to, every few hours, and at the end.
//!
//! What lies in the folder `watch` of the data folder: `state` (alerts, messages that wait), `audit*.jsonl` (also of operations on files), `history/` (rings), and
//! `running`, which an orderly end removes. The pools have copies of the rings (`copies.with_other_writes`).

use std::sync::Arc;
use std::time::{Duration, Instant};

use larder_alerts::{Condition, EventKind};
use larder_api::Failure;
use larder_base::task;
use larder_facts::Machine;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use larder_base::rounds;
use larder_document::box_time;

mod alarms;
mod answers;
mod certificate;
mod clock;
mod conditions;
mod couriers;
mod damage;
mod disks;
mod figures;
mod file_audits;
mod guards;
mod history;
mod history_copies;
mod last_looks;
mod logins;
mod places;
mod self_tests;
mod slow;
mod state;
mod ups;
mod ups_end;
mod watcher;

pub use answers::audit_of;
pub use disks::without_daemon;
pub use state::{SetUpDeed, Watch};
pub use ups_end::afterwards;
pub use watcher::{Told, Watcher};

/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_secs(60);
/// Between two rounds over the disks; each has its turn more seldom (`disks.busy_only`).
const ASK_DISKS_EVERY: Duration = Duration::from_secs(5 * 60);
/// Work on volumes that takes longer goes on by itself: a pool may hang.
const VOLUMES_WAIT_MAX: Duration = Duration::from_secs(30);
/// The end of the thread is waited for so long.
const END_WAIT_MAX: Duration = Duration::from_secs(5);

/// The thread that watches, while this value lives. It is its own: its state lies on a disk that may hang, and what waits for that disk
/// must not be a thread that serves.
pub struct Watching {
    stop: CancellationToken,
    ended: tokio::sync::oneshot::Receiver<()>,
}

/// Begins to watch; `beside` runs on the same thread.
///
/// # Errors
/// The system has no thread left.
pub fn start(watcher: Arc<Watcher>, beside: impl Future<Output = ()> + Send + 'static) -> Result<Watching, Failure> {
    let failed = |e: std::io::Error| Failure::io("cannot start the thread that watches", &e);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    // A note of the start is for those who are told now.
    let receivers = watcher.document.config().alerts.receivers.clone();
    watcher.watch.set_receivers(receivers);
    watcher.watch.note_start();
    let (stop, (end, ended)) = (CancellationToken::new(), tokio::sync::oneshot::channel());
    let stopped = stop.clone();
    // What works on volumes does so where they live: a volume that is opened begins tasks of its own.
    let main = Handle::current();
    let watch = move || {
        runtime.block_on(async {
            tokio::select! {
                ((), ()) = async { tokio::join!(run(&watcher, &main), beside) } => {}
                () = stopped.cancelled() => {}
            }
        });
        let _ = end.send(());
    };
    std::thread::Builder::new().name("watch".to_owned()).spawn(watch).map_err(failed)?;
    Ok(Watching { stop, ended })
}

impl Watching {
    /// Ends it; one that waits for a disk is left behind.
    pub async fn end(self) {
        self.stop.cancel();
        let _ = tokio::time::timeout(END_WAIT_MAX, self.ended).await;
    }
}

async fn run(watcher: &Arc<Watcher>, main: &Handle) {
    let watch = &watcher.watch;
    let (passages, asked) = (watch.passages.lock().take(), watch.asked.lock().take());
    let alarms = watch.alarms.lock().take();
    // Before the first look begins histories anew.
    let restored = task::spawn_on(main, Arc::clone(watcher).restore_histories());
    let _ = tokio::time::timeout(VOLUMES_WAIT_MAX, restored).await;
    tokio::join!(
        looks(watcher, main, asked),
        ask_disks(watcher),
        couriers::run(watcher),
        logins::run(watch, passages),
        alarms::run(watcher, main, alarms),
        file_operations(watch),
        ups_end::run(watcher)
    );
}

/// Writes operations on files in batches.
async fn file_operations(watch: &Watch) {
    loop {
        watch.file_audits.batch().await;
        watch.write_file_operations();
    }
}

/// Looks once a minute, and when somebody asks.
async fn looks(watcher: &Arc<Watcher>, main: &Handle, asked: Option<mpsc::Receiver<oneshot::Sender<()>>>) {
    let Some(mut asked) = asked else { return };
    let (mut clock, mut next) = (clock::Clock::now(), tokio::time::Instant::now());
    loop {
        let asker = tokio::select! {
            () = tokio::time::sleep_until(next) => None,
            Some(asker) = asked.recv() => Some(asker),
        };
        if asker.is_none() {
            next = rounds::next(LOOK_EVERY);
            if let Some(jump) = clock.jumped() {
                watcher.watch.note(Condition::is(EventKind::ClockJumped, &watcher.watch.host, jump));
                box_time::keep(watcher.folder.path());
            }
        }
        if watcher.look(asker.is_none()).await {
            // A pool that hangs is not waited for.
            task::spawn_on(main, Arc::clone(watcher).copy_histories());
        }
        let looker = Arc::clone(watcher);
        let look = task::spawn_on(main, async move { looker.look_at_damage().await });
        let _ = tokio::time::timeout(VOLUMES_WAIT_MAX, look).await;
        if let Some(asker) = asker {
            let _ = asker.send(());
        }
    }
}

/// Gives the disks their turns. Each question may take a minute, and nothing else waits for it.
async fn ask_disks(watcher: &Arc<Watcher>) {
    loop {
        let asker = Arc::clone(watcher);
        let folders: Vec<_> = watcher.storage.all().iter().flat_map(|pool| pool.disks()).collect();
        let schedule = watcher.document.config().self_tests;
        let asked = move || {
            let machine = Machine::this();
            asker.watch.disks.ask(&machine, &asker.watch.history, false);
            asker.watch.disks.test_one(&machine, &folders, schedule);
        };
        if let Err(error) = task::blocking(asked).await {
            tracing::warn!("the disks' health is not known: {error}");
        }
        tokio::time::sleep(ASK_DISKS_EVERY).await;
    }
}

impl Watcher {
    /// One look. `in_turn`: histories and digests have their turn too. Returns whether histories were written.
    async fn look(&self, in_turn: bool) -> bool {
        let watch = &self.watch;
        // Somebody changes something that takes long: everything stays as it was seen last.
        let Some(seen) = conditions::gather(self).await else { return false };
        watch.take_in(&seen.conditions, &seen.unknown);
        if !in_turn {
            return false;
        }
        watch.digest(&seen.room, &watch.disks.summary());
        let pools = self.storage.all();
        let disks = pools.iter().filter_map(|pool| pool.disk_pool()).flat_map(|pool| pool.disk_times());
        let is_time = watch.disks.is_time_to_write(disks.map(|disk| disk.written_bytes).sum(), Instant::now());
        if is_time {
            watch.history.write();
            box_time::keep(self.folder.path());
        }
        is_time
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::path::Path;

    /// The code below a folder, without its tests.
    fn sources(folder: &Path, text: &mut String) {
        for entry in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if entry.is_dir() {
                sources(&entry, text);
            } else if entry.extension().is_some_and(|extension| extension == "rs") {
                let source = std::fs::read_to_string(&entry).unwrap();
                text.push_str(source.split("#[cfg(test)]").next().unwrap());
            }
        }
    }

    /// The list of docs/alerts.md promises nothing that never happens.
    #[test]
    fn each_event_is_raised_somewhere() {
        let mut text = String::new();
        for folder in ["src", "../daemon/src"] {
            sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join(folder), &mut text);
        }
        let names: std::collections::BTreeSet<&str> = text
            .split("EventKind::")
            .skip(1)
            .map(|rest| rest.split(|c: char| !c.is_ascii_alphanumeric()).next().unwrap())
            .collect();
        for event in larder_alerts::EVENTS {
            assert!(names.contains(format!("{:?}", event.kind).as_str()), "nothing raises {}", event.id);
        }
    }
}
