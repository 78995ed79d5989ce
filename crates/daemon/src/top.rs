//! `larder top`: the connections of clients, watched for a second; and the transfers of two days that something limited.
//!
//! - `top.nothing_unasked`: connections are sampled while somebody asks, and for [`WINDOW`] once in [`KEEP_EVERY`] while
//!   bytes move. No disk is asked: figures come from memory, `/proc` and `/sys`.
//! - `top.bounded`: at most [`CONNECTIONS_MAX`] connections are sampled, [`KEPT_MAX`] transfers kept. Callers at the same
//!   time share one look.
//! - `top.written_seldom`: the file is written once in [`WRITE_EVERY`] while transfers run, and at an orderly end.

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use larder_api::{Top, TopConfidence, TopConnection, TopFigures, TopLimit, TopTime, TopWorst};
use larder_base::task;
use larder_base::traffic::{self, Moment, Protocol, Traffic};
use larder_facts::Machine;
use larder_facts::work::Work;
use larder_keep::Storage;
use larder_measure::doctor::Confidence;
use larder_measure::live::{Around, Deed, Limit, Verdict, Watched, judge};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use larder_base::rounds;
use larder_config::edit::replace_file;
use larder_config::user::Accounts;
use larder_document::Document;

const WINDOW: Duration = Duration::from_secs(1);
/// Between two samples.
const STEP: Duration = Duration::from_millis(20);
/// 64 of them take 0.6 % of a core.
const CONNECTIONS_MAX: usize = 64;
/// How long the busiest are looked for where there are more.
const CHOICE: Duration = Duration::from_millis(100);
const KEEP_EVERY: Duration = Duration::from_secs(30);
/// Less within that time is no transfer.
const KEEP_BYTES_MIN: u64 = 8 << 20;
/// Looks further apart are of two transfers.
const GAP_MAX_MS: u64 = 3 * 60 * 1000;
const KEPT_MAX: usize = 256;
const KEPT_MS: u64 = 2 * 24 * 3600 * 1000;
const WRITE_EVERY: Duration = Duration::from_secs(600);
/// As the metadata engine has it: from there on a log takes nothing before it was relieved.
const LOG_FULL_PERCENT: u64 = 85;
/// In the folder `watch`.
const FILE: &str = "top.json";
const FILE_BYTES_MAX: u64 = 4 << 20;

/// The last look, and the transfers that are kept.
pub struct TopState {
    last: tokio::sync::Mutex<Option<(Instant, Top)>>,
    kept: Mutex<Kept>,
    file: PathBuf,
    document: Arc<Document>,
    storage: Arc<Storage>,
}

#[derive(Default)]
struct Kept {
    transfers: VecDeque<KeptTransfer>,
    written: Option<Instant>,
    is_changed: bool,
}

/// A transfer, with what was seen of it by its causes.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct KeptTransfer {
    at_ms: u64,
    until_ms: u64,
    door: String,
    user: Option<String>,
    address: String,
    does: String,
    causes: BTreeMap<String, Seen>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Seen {
    looks: u64,
    bytes_per_s: u64,
    lost_percent: f64,
    limited_by: TopLimit,
    sentence: String,
    help: Option<String>,
}

impl TopState {
    /// What an earlier run kept. A file that cannot be read is no loss: it is begun anew.
    pub fn open(folder: &Path, document: &Arc<Document>, storage: &Arc<Storage>) -> Self {
        let file = folder.join("watch").join(FILE);
        let is_small = std::fs::metadata(&file).is_ok_and(|of| of.len() <= FILE_BYTES_MAX);
        let bytes = if is_small { std::fs::read(&file).unwrap_or_default() } else { Vec::new() };
        let mut transfers: VecDeque<KeptTransfer> = serde_json::from_slice(&bytes).unwrap_or_default();
        transfers.truncate(KEPT_MAX);
        let (document, storage) = (Arc::clone(document), Arc::clone(storage));
        let kept = Mutex::new(Kept { transfers, ..Kept::default() });
        Self { last: tokio::sync::Mutex::default(), kept, file, document, storage }
    }

    /// `top.written_seldom`
    fn write(&self, is_end: bool) {
        let bytes = {
            let mut kept = self.kept.lock();
            let is_due = is_end || kept.written.is_none_or(|at| at.elapsed() >= WRITE_EVERY);
            if !kept.is_changed || !is_due {
                return;
            }
            (kept.is_changed, kept.written) = (false, Some(Instant::now()));
            serde_json::to_vec(&kept.transfers).unwrap_or_default()
        };
        if let Err(error) = replace_file(&self.file, &bytes, 0o600) {
            tracing::warn!("the slowest transfers are not kept: {error}");
        }
    }

    fn note(&self, top: &Top) {
        let mut kept = self.kept.lock();
        for one in top.connections.iter().filter(|one| one.read_bytes_per_s + one.written_bytes_per_s > 0) {
            kept.note(one, top.at_ms);
        }
        while kept.transfers.len() > KEPT_MAX
            || kept.transfers.front().is_some_and(|oldest| oldest.until_ms + KEPT_MS < top.at_ms)
        {
            kept.transfers.pop_front();
        }
    }
}

impl Kept {
    fn note(&mut self, one: &TopConnection, now_ms: u64) {
        let is_same = |old: &&mut KeptTransfer| {
            let who = old.address == one.address && old.door == one.door && old.user == one.user;
            who && old.does == one.does && now_ms.saturating_sub(old.until_ms) <= GAP_MAX_MS
        };
        self.is_changed = true;
        let at = self.transfers.iter_mut().rev().find(is_same);
        let transfer = match at {
            Some(transfer) => transfer,
            None => {
                self.transfers.push_back(KeptTransfer {
                    at_ms: now_ms,
                    until_ms: now_ms,
                    door: one.door.clone(),
                    user: one.user.clone(),
                    address: one.address.clone(),
                    does: one.does.clone(),
                    causes: BTreeMap::new(),
                });
                let Some(new) = self.transfers.back_mut() else { return };
                new
            }
        };
        transfer.until_ms = now_ms;
        let bytes_per_s = if one.does == Deed::Write.name() { one.written_bytes_per_s } else { one.read_bytes_per_s };
        let new = Seen {
            looks: 0,
            bytes_per_s,
            lost_percent: one.lost_percent,
            limited_by: one.limited_by,
            sentence: one.sentence.clone(),
            help: one.help.clone(),
        };
        let seen = transfer.causes.entry(one.cause.clone()).or_insert_with(|| new.clone());
        // The slowest moment speaks for a cause.
        *seen = if bytes_per_s < seen.bytes_per_s { Seen { looks: seen.looks, ..new } } else { seen.clone() };
        seen.looks += 1;
    }
}

impl KeptTransfer {
    /// As what limited it most often.
    fn told(&self) -> Option<TopWorst> {
        let (cause, seen) = self.causes.iter().max_by_key(|(_, seen)| seen.looks)?;
        Some(TopWorst {
            at_ms: self.at_ms,
            lasted_ms: self.until_ms.saturating_sub(self.at_ms),
            looks: seen.looks,
            door: self.door.clone(),
            user: self.user.clone(),
            address: self.address.clone(),
            does: self.does.clone(),
            bytes_per_s: seen.bytes_per_s,
            lost_percent: seen.lost_percent,
            limited_by: seen.limited_by,
            cause: cause.clone(),
            sentence: seen.sentence.clone(),
            help: seen.help.clone(),
        })
    }
}

/// Keeps what limits transfers, sparsely (`top.nothing_unasked`).
pub async fn keep(top: Arc<TopState>) {
    let mut before = moved();
    loop {
        rounds::sleep(KEEP_EVERY).await;
        let now = moved();
        // Connections that ended meanwhile take their bytes with them.
        let bytes: u64 = now.iter().map(|(id, bytes)| bytes - before.get(id).copied().unwrap_or(0)).sum();
        before = now;
        if bytes >= KEEP_BYTES_MIN {
            top.look().await;
            top.write(false);
        }
    }
}

fn moved() -> BTreeMap<u64, u64> {
    traffic::open().iter().map(|one| (one.id(), one.bytes())).collect()
}

/// The numbers of some connections over a window.
#[derive(Default)]
struct Samples {
    /// Of each connection.
    moments: Vec<Vec<Moment>>,
    window_s: f64,
    /// The share of the window by which samples came late.
    late: f64,
}

impl Samples {
    fn take(of: &[Arc<Traffic>]) -> Self {
        let (began, mut late) = (Instant::now(), Duration::ZERO);
        let mut moments: Vec<Vec<Moment>> = of.iter().map(|one| vec![one.moment()]).collect();
        while began.elapsed() < WINDOW {
            let slept = Instant::now();
            std::thread::sleep(STEP);
            late += slept.elapsed().saturating_sub(STEP);
            for (one, moments) in of.iter().zip(&mut moments) {
                moments.push(one.moment());
            }
        }
        let window_s = began.elapsed().as_secs_f64();
        Self { moments, window_s, late: late.as_secs_f64() / window_s }
    }
}

impl TopState {
    /// One look, shared by all who ask meanwhile (`top.bounded`).
    pub async fn look(&self) -> Top {
        let asked = Instant::now();
        let mut last = self.last.lock().await;
        if let Some((began, top)) = &*last
            && *began >= asked
        {
            return top.clone();
        }
        let began = Instant::now();
        let top = self.watch().await;
        self.note(&top);
        *last = Some((began, top.clone()));
        top
    }

    /// The last first.
    pub fn worst(&self) -> Vec<TopWorst> {
        let since_ms = now_ms().saturating_sub(KEPT_MS);
        let kept = self.kept.lock();
        kept.transfers.iter().rev().filter(|one| one.until_ms >= since_ms).filter_map(KeptTransfer::told).collect()
    }

    /// At an orderly end.
    pub fn end(&self) {
        self.write(true);
    }

    async fn watch(&self) -> Top {
        let machine = Machine::this();
        let chosen = chosen().await;
        let (work, disks) = (Work::now(&machine), self.disk_waits());
        let sampled = chosen.clone();
        // A thread that does nothing else: what makes it late is the processor (`live.late`), and no task of this process.
        let samples = task::blocking(move || Samples::take(&sampled)).await.unwrap_or_default();
        let Samples { moments, window_s, late } = samples;
        let worked = Work::now(&machine).since(&work);
        let mut waited: Vec<(String, u64)> = self
            .disk_waits()
            .into_iter()
            .map(|(disk, us)| (disk.clone(), us - disks.get(&disk).copied().unwrap_or(us)))
            .collect();
        waited.sort_by_key(|(_, us)| std::cmp::Reverse(*us));
        let around = Around {
            throttled: worked.throttled,
            cores_used: worked.cores,
            cores: std::thread::available_parallelism().map_or(1.0, |cores| cores.get() as f64),
            thread_busy: worked.busiest_thread,
            delayed: worked.delayed,
            waiting: worked.waiting,
            disk: waited.into_iter().find(|(_, us)| *us > 0).map(|(disk, _)| disk),
            late,
            log_full: self.has_full_log(),
            line_bytes_per_s: line(&machine),
        };
        let judged = chosen.iter().zip(moments).map(|(one, moments)| {
            let address = one.peer().ip().to_canonical().to_string();
            let watched = Watched { protocol: one.protocol(), address, window_s, moments };
            told(one, judge(&watched, &around), &around)
        });
        let mut connections: Vec<TopConnection> = judged.collect();
        connections.sort_by(|a, b| weight(b).total_cmp(&weight(a)));
        self.name_users(&mut connections);
        Top { at_ms: now_ms(), window_ms: (window_s * 1000.0) as u64, connections }
    }

    /// NFS knows its users by numbers alone.
    fn name_users(&self, connections: &mut [TopConnection]) {
        let is_nfs = |one: &TopConnection| one.door == Protocol::Nfs.name() && one.user.is_some();
        if !connections.iter().any(is_nfs) {
            return;
        }
        let names = self.document.owners();
        let host = Accounts::of_machine();
        for one in connections.iter_mut().filter(|one| is_nfs(one)) {
            let Some(uid) = one.user.as_deref().and_then(|user| user.parse::<u32>().ok()) else { continue };
            let own = names.users.get(&uid).cloned();
            one.user = Some(own.or_else(|| host.name_of_user(uid)).unwrap_or_else(|| format!("uid {uid}")));
        }
    }

    /// The time that calls to disks took so far.
    fn disk_waits(&self) -> BTreeMap<String, u64> {
        let pools = self.storage.all();
        let disks = pools.iter().filter_map(|pool| pool.disk_pool()).flat_map(|pool| pool.disk_times());
        disks.map(|disk| (disk.path.display().to_string(), disk.took_us)).collect()
    }

    fn has_full_log(&self) -> bool {
        let pools = self.storage.all();
        let mut usages = pools.iter().filter_map(|pool| pool.disk_pool()).map(|pool| pool.log().usage());
        usages.any(|(used, all)| used.saturating_mul(100) >= all.saturating_mul(LOG_FULL_PERCENT) && all > 0)
    }
}

/// The busiest first; connections that never named a file are no clients of files.
fn weight(one: &TopConnection) -> f64 {
    (one.read_bytes_per_s + one.written_bytes_per_s) as f64 * 1e3 + one.requests_per_s + one.under_way
}

/// The connections to sample (`top.bounded`).
async fn chosen() -> Vec<Arc<Traffic>> {
    let mut open: Vec<Arc<Traffic>> = traffic::open().into_iter().filter(|one| is_of_files(one)).collect();
    if open.len() > CONNECTIONS_MAX {
        let before: Vec<u64> = open.iter().map(|one| one.bytes()).collect();
        tokio::time::sleep(CHOICE).await;
        let mut moved: Vec<(u64, Arc<Traffic>)> =
            open.into_iter().zip(before).map(|(one, before)| (one.bytes() - before, one)).collect();
        moved.sort_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
        open = moved.into_iter().map(|(_, one)| one).take(CONNECTIONS_MAX).collect();
    }
    open
}

/// A page in a browser is no transfer, nor somebody who has not logged in.
fn is_of_files(one: &Traffic) -> bool {
    one.has_done() || one.user().is_some()
}

fn told(one: &Traffic, verdict: Verdict, around: &Around) -> TopConnection {
    let since = one.since().duration_since(UNIX_EPOCH).unwrap_or_default();
    let percent = |share: f64| (share * 1000.0).round() / 10.0;
    let (time, figures) = (verdict.time, verdict.figures);
    let share = |of: f64| (of * 1000.0).round() / 1000.0;
    TopConnection {
        id: one.id(),
        door: one.protocol().name().to_owned(),
        user: one.user(),
        address: one.peer().ip().to_canonical().to_string(),
        port: one.peer().port(),
        since_ms: since.as_millis() as u64,
        does: verdict.does.name().to_owned(),
        read_bytes_per_s: verdict.read_bytes_per_s as u64,
        written_bytes_per_s: verdict.written_bytes_per_s as u64,
        requests_per_s: (verdict.requests_per_s * 10.0).round() / 10.0,
        request_bytes: verdict.request_bytes as u64,
        latency_us: (verdict.latency_s * 1e6) as u64,
        under_way: (verdict.under_way * 100.0).round() / 100.0,
        rtt_us: (verdict.rtt_s * 1e6) as u64,
        lost_percent: percent(verdict.lost),
        limited_by: match verdict.cause.limit() {
            Limit::Nothing => TopLimit::Nothing,
            Limit::Client => TopLimit::Client,
            Limit::Wire => TopLimit::Wire,
            Limit::Processor => TopLimit::Processor,
            Limit::Disks => TopLimit::Disks,
            Limit::Durability => TopLimit::Durability,
            Limit::OtherClient => TopLimit::OtherClient,
        },
        cause: verdict.cause.code().to_owned(),
        confidence: match verdict.confidence {
            Confidence::Open => TopConfidence::Open,
            Confidence::Maybe => TopConfidence::Maybe,
            Confidence::Likely => TopConfidence::Likely,
            Confidence::Certain => TopConfidence::Certain,
        },
        sentence: verdict.sentence,
        help: verdict.help,
        time: TopTime {
            disks: percent(time.disks),
            durability: percent(time.durability),
            processor: percent(time.processor),
            other_client: percent(time.other_client),
            sending: percent(time.sending),
            client: percent(time.client),
        },
        figures: TopFigures {
            rtt_min_us: (figures.rtt_min_s * 1e6) as u64,
            receiving_rtt_us: (figures.receiving_rtt_s * 1e6) as u64,
            sender_busy: share(figures.sender_busy),
            window_full: share(figures.window_full),
            buffer_full: share(figures.buffer_full),
            unsent: share(figures.unsent),
            wire_bound: share(figures.wire_bound),
            unread: share(figures.unread),
            steps_with_bytes: share(figures.steps_with_bytes),
            silent: share(figures.silent),
            burst: share(figures.burst),
            asked_at_once: share(figures.asked_at_once),
            throttled: share(around.throttled),
            cores_used: share(around.cores_used),
            thread_busy: share(around.thread_busy),
            delayed: share(around.delayed),
        },
    }
}

/// The rate of the fastest network card, of those that say one.
fn line(machine: &Machine) -> Option<f64> {
    let cards = machine.list("/sys/class/net");
    let speeds =
        cards.iter().filter_map(|card| machine.read(format!("/sys/class/net/{card}/speed"))?.parse::<f64>().ok());
    speeds.filter(|mbit| *mbit > 0.0).map(|mbit| mbit * 125_000.0).reduce(f64::max)
}

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}
