//! The health of the machine's disks, asked seldom and only while they are in use.
//!
//! - `disks.busy_only`: a disk is asked once after the start, and then at most once an hour, if it was read or written since the last time.
//!   A question resets the clock of some disks' own standby, so a disk that rests is not asked; `smartctl -n standby` leaves one that
//!   sleeps asleep.
//! - `disks.kernel_heat`: where there is no report (no smartctl, a bridge), the temperature is the kernel's. Nothing tells then whether a
//!   hard disk sleeps, so it is read only if the disk worked since the last time.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use larder_alerts::disk::{About, COLUMNS, Column, Health, Verdict, judge, judge_link, temperature_limits};
use larder_alerts::{Condition, EventKind, Severity};
use larder_api::DiskHealth;
use larder_base::metrics::Metrics;
use larder_facts::Machine;
use larder_facts::machine::{BlockDevice, Bus, Medium, Smart, SmartAnswer, whole_devices};
use parking_lot::Mutex;

use crate::clock::now_ms;
use crate::history::History;
use crate::self_tests::{Candidate, SelfTests, due};
use larder_config::SelfTestSchedule;

const ASK_EVERY: Duration = Duration::from_secs(3600);
/// A machine with more disks is not a home's.
const DISKS_MAX: usize = 128;
/// Below the limit by so much it is not hot any more.
const COOL_C: f64 = 5.0;
/// Histories are written so often, while pools are written to.
const WRITE_EVERY: Duration = Duration::from_secs(6 * 3600);
/// A box that runs in the evenings alone has its histories written, too.
const WRITE_FIRST_AFTER: Duration = Duration::from_secs(3600);

/// What is known of a disk.
struct Known {
    device: BlockDevice,
    /// Reads and writes that it had done when it was asked.
    traffic: Option<String>,
    asked: Instant,
    asked_ms: Option<u64>,
    asleep: bool,
    /// The last report.
    smart: Option<Smart>,
    health: Option<Health>,
    /// Why there is none.
    why: Option<String>,
    /// Then its temperature (`disks.kernel_heat`).
    kernel: Option<Smart>,
}

impl Known {
    /// The report, or what the kernel knows.
    fn heat(&self) -> Option<&Smart> {
        self.smart.as_ref().or(self.kernel.as_ref())
    }
}

#[derive(Default)]
pub(crate) struct Disks {
    known: Mutex<BTreeMap<String, Known>>,
    written: Mutex<Option<(Instant, u64)>>,
    tests: Mutex<SelfTests>,
}

/// For the week's digest.
#[derive(Default)]
pub(crate) struct Summary {
    pub(crate) well: usize,
    pub(crate) troubled: Vec<String>,
}

/// By which a disk's history and alerts are kept, wherever it is plugged in.
fn subject(device: &BlockDevice) -> String {
    let model = device.model.clone().unwrap_or_else(|| "disk".to_owned());
    match &device.serial {
        Some(serial) => format!("{model} {}", serial.text),
        None => format!("{model} {}", device.name),
    }
}

/// Disks that may have a report: not those of virtual machines.
fn devices(machine: &Machine) -> Vec<BlockDevice> {
    let names = whole_devices(machine).into_iter().take(DISKS_MAX);
    let all = names.filter_map(|name| BlockDevice::read(machine, &name));
    all.filter(|device| !matches!(device.bus, Bus::Virtual | Bus::Mmc | Bus::Virtio | Bus::Xen)).collect()
}

/// The kernel's counters of a device: what it was asked for. Reading them asks no disk.
fn traffic(machine: &Machine, device: &BlockDevice) -> Option<String> {
    machine.read(Path::new("/sys/class/block").join(&device.name).join("stat"))
}

/// Reads and writes of the kernel's counters (Documentation/block/stat.rst, fields 1 and 5).
fn calls(traffic: &str) -> Option<u64> {
    let fields: Vec<u64> = traffic.split_whitespace().filter_map(|field| field.parse().ok()).collect();
    Some(fields.first()?.saturating_add(*fields.get(4)?))
}

impl Disks {
    /// Of those that tell it, as they told it last.
    pub(crate) fn hottest(&self) -> Option<i64> {
        let known = self.known.lock();
        known.values().filter_map(|known| known.heat()?.temperature_c).max()
    }

    /// Whether histories are written now. To be asked at each look (`looking.nothing_written_idle`).
    pub(crate) fn is_time_to_write(&self, written_bytes: u64, now: Instant) -> bool {
        let mut last = self.written.lock();
        let first = now.checked_sub(WRITE_EVERY - WRITE_FIRST_AFTER).unwrap_or(now);
        let (at, bytes) = last.get_or_insert((first, written_bytes));
        // Since the last look: disks are awake now.
        let is_written = written_bytes > std::mem::replace(bytes, written_bytes);
        let is_due = is_written && now.duration_since(*at) >= WRITE_EVERY;
        if is_due {
            *at = now;
        }
        is_due
    }

    /// Asks disks, each if it is its turn (`disks.busy_only`), or all that are awake.
    pub(crate) fn ask(&self, machine: &Machine, history: &History, all: bool) {
        let devices = devices(machine);
        let names: Vec<String> = devices.iter().map(subject).collect();
        self.known.lock().retain(|subject, _| names.contains(subject));
        for (device, subject) in devices.into_iter().zip(names) {
            let traffic = traffic(machine, &device);
            let is_turn = match self.known.lock().get(&subject) {
                Some(known) if all => known.asked.elapsed() >= Duration::from_secs(60) || known.asleep,
                Some(known) => known.asked.elapsed() >= ASK_EVERY && known.traffic != traffic,
                None => true,
            };
            if is_turn {
                self.ask_one(machine, history, device, subject, traffic);
            }
        }
    }

    fn ask_one(
        &self,
        machine: &Machine,
        history: &History,
        device: BlockDevice,
        subject: String,
        traffic: Option<String>,
    ) {
        // Nobody waits at the lock for a disk.
        let answer = machine.smart_unless_asleep(&device);
        let worked = self.known.lock().get(&subject).is_some_and(|known| known.traffic != traffic);
        let has_no_report = matches!(answer, Some(SmartAnswer::Unknown { .. }));
        let kernel = (has_no_report && (worked || device.medium == Medium::Flash))
            .then(|| machine.kernel_temperature(&device))
            .flatten();
        let (now_ms, medium) = (now_ms(), device.medium);
        let mut known = self.known.lock();
        let entry = known.entry(subject.clone()).or_insert_with(|| Known {
            device: device.clone(),
            traffic: None,
            asked: Instant::now(),
            asked_ms: None,
            asleep: false,
            smart: None,
            health: None,
            why: None,
            kernel: None,
        });
        (entry.device, entry.traffic, entry.asked) = (device, traffic, Instant::now());
        entry.asleep = answer.is_none();
        match answer {
            None => {}
            Some(SmartAnswer::Unknown { why, action }) => {
                entry.why = Some(action.map_or_else(|| why.clone(), |action| format!("{why} ({action})")));
                (entry.smart, entry.health) = (None, None);
                if let Some(heat) = kernel {
                    history.add(&subject, now_ms / 1000, columns(&heat));
                    (entry.kernel, entry.asked_ms) = (Some(heat), Some(now_ms));
                }
            }
            Some(SmartAnswer::Smart(smart)) => {
                let now_s = now_ms / 1000;
                history.add(&subject, now_s, columns(&smart));
                let past = history.ring(&subject);
                let mut health = judge(&smart, medium, past.as_ref(), now_s);
                health.add(judge_link(&entry.device, Some(&smart)));
                entry.health = Some(health);
                (entry.smart, entry.asked_ms, entry.why, entry.kernel) = (Some(*smart), Some(now_ms), None, None);
            }
        }
    }

    /// What is the case with the disks, as far as they were asked.
    pub(crate) fn conditions(&self) -> (Vec<Condition>, Vec<larder_alerts::Unknown>) {
        let (mut conditions, mut unknown) = (Vec::new(), Vec::new());
        for (subject, known) in self.known.lock().iter() {
            let kinds = [EventKind::DiskHealth, EventKind::DiskHot, EventKind::DiskWorn];
            match (&known.smart, &known.health) {
                (Some(smart), Some(health)) => conditions.extend(said(subject, known, smart, health)),
                _ => {
                    conditions.extend(known.kernel.iter().flat_map(|heat| hot(subject, known, heat)));
                    let kinds = kinds.into_iter().filter(|kind| *kind != EventKind::DiskHot || known.kernel.is_none());
                    unknown.extend(kinds.map(|event| larder_alerts::Unknown { event, subject: Some(subject.clone()) }));
                }
            }
        }
        (conditions, unknown)
    }

    /// What disks said when they were asked last.
    pub(crate) fn metrics(&self, out: &mut Metrics) {
        for (subject, known) in self.known.lock().iter() {
            let labels = [("disk", known.device.name.as_str()), ("serial", subject.as_str())];
            if let Some(health) = &known.health {
                let help = "0: well, 1: watch it, 2: replace it soon, 3: failing.";
                let level = match health.verdict {
                    Verdict::Unknown | Verdict::Well | Verdict::Note => 0,
                    Verdict::Watch => 1,
                    Verdict::Replace => 2,
                    Verdict::Failing => 3,
                };
                out.gauge("larder_watch_disk_verdict", help, &labels, level);
            }
            let smart = known.heat();
            if let Some(degrees) = smart.and_then(|smart| u64::try_from(smart.temperature_c?).ok()) {
                out.gauge("larder_watch_disk_temperature_celsius", "Its own measurement.", &labels, degrees);
            }
            if let Some(percent) = smart.and_then(|smart| smart.wear_percent) {
                out.gauge("larder_watch_disk_wear_percent", "Of the writes that it is rated for.", &labels, percent);
            }
        }
    }

    /// Has one of the disks below these folders test itself, if it is its turn (`selftests.one_at_a_time`).
    pub(crate) fn test_one(&self, machine: &Machine, folders: &[PathBuf], schedule: SelfTestSchedule) {
        if schedule == SelfTestSchedule::default() {
            return;
        }
        let mounts = machine.mounts();
        let below = folders.iter().filter_map(|folder| mounts.of(folder)).map(|mount| machine.below_mount(mount));
        let names: Vec<String> = below.flat_map(|below| below.devices).collect();
        let is_tested = |known: &&Known| {
            let of_pool = names.contains(&known.device.name) && known.device.bus != Bus::Usb;
            of_pool && !known.asleep && known.asked.elapsed() < ASK_EVERY
        };
        let candidates: Vec<Candidate> = {
            let known = self.known.lock();
            let all = known.iter().filter(|(_, known)| is_tested(known));
            let candidate = |(subject, known): (&String, &Known)| {
                let calls = calls(&traffic(machine, &known.device)?)?;
                Some(Candidate {
                    subject: subject.clone(),
                    calls,
                    due: known.smart.as_ref().and_then(|smart| due(smart, schedule)),
                })
            };
            all.filter_map(candidate).collect()
        };
        let Some((subject, length)) = self.tests.lock().choose(Instant::now(), &candidates) else { return };
        let Some(device) = self.known.lock().get(&subject).map(|known| known.device.clone()) else { return };
        match machine.start_self_test(&device, length) {
            Ok(()) => tracing::info!("{} ({subject}) begins its {} self-test", device.name, length.word()),
            Err(why) => {
                tracing::debug!("{} ({subject}) does not begin a self-test: {why}", device.name);
                self.tests.lock().did_not_begin();
            }
        }
    }

    pub(crate) fn summary(&self) -> Summary {
        let mut summary = Summary::default();
        for (subject, known) in self.known.lock().iter() {
            match &known.health {
                Some(health) if health.verdict >= Verdict::Watch => {
                    summary.troubled.push(format!("{subject}: {}", health.text()));
                }
                Some(_) => summary.well += 1,
                None => {}
            }
        }
        summary
    }

    /// All disks, with the pools that lie on them.
    pub(crate) fn list(
        &self,
        history: &History,
        pools: &[(String, Vec<PathBuf>)],
        machine: &Machine,
    ) -> Vec<DiskHealth> {
        let mut list: Vec<DiskHealth> = Vec::new();
        for (subject, known) in self.known.lock().iter() {
            let (pool, folders) = pool_on(machine, &known.device, pools);
            let listed = listed(known, history.ring(subject).as_ref());
            list.push(DiskHealth { pool, folders, ..listed });
        }
        list.sort_by(|a, b| a.name.cmp(&b.name));
        list
    }
}

/// The disks of a machine without a daemon: each that is awake is asked.
pub fn without_daemon(machine: &Machine) -> Vec<DiskHealth> {
    let disks = Disks::default();
    let history = History::of(Path::new("/nonexistent"));
    disks.ask(machine, &history, true);
    disks.list(&History::of(Path::new("/nonexistent")), &[], machine)
}

/// The pool that lies on a device, and the folders of pools there.
fn pool_on(
    machine: &Machine,
    device: &BlockDevice,
    pools: &[(String, Vec<PathBuf>)],
) -> (Option<String>, Vec<PathBuf>) {
    let mounts = machine.mounts();
    let lies_here = |folder: &&PathBuf| {
        mounts.of(folder).is_some_and(|mount| machine.below_mount(mount).devices.contains(&device.name))
    };
    let all = pools.iter().flat_map(|(name, folders)| folders.iter().map(move |folder| (name, folder)));
    let here: Vec<_> = all.filter(|(_, folder)| lies_here(folder)).collect();
    let pool = here.first().map(|(name, _)| (*name).clone());
    (pool, here.into_iter().map(|(_, folder)| folder.clone()).collect())
}

fn listed(known: &Known, past: Option<&larder_alerts::disk::Ring>) -> DiskHealth {
    let (device, smart) = (&known.device, known.smart.as_ref());
    let text = match (&known.health, &known.why) {
        (Some(health), _) => health.text(),
        (None, Some(why)) => match known.kernel.as_ref().and_then(|heat| heat.temperature_c) {
            Some(degrees) => format!("unknown: {why}; {degrees} °C by the kernel"),
            None => format!("unknown: {why}"),
        },
        (None, None) if known.asleep => "asleep, and not asked since larder was started".to_owned(),
        (None, None) => "not asked yet".to_owned(),
    };
    let days = past.map(|past| past.samples(1)).unwrap_or_default();
    let temperature =
        |sample: &larder_alerts::disk::Sample| sample.values.get(Column::Celsius as usize).copied().flatten();
    let verdict = known.health.as_ref().map_or(Verdict::Unknown, |health| health.verdict);
    DiskHealth {
        name: device.name.clone(),
        path: device.path.clone(),
        model: device.model.clone().or_else(|| smart.and_then(|smart| smart.model.clone())),
        serial: device
            .serial
            .as_ref()
            .map(|serial| serial.text.clone())
            .or_else(|| smart.and_then(|smart| smart.serial.clone())),
        size_bytes: device.size_bytes,
        medium: device.medium.word().to_owned(),
        pool: None,
        folders: Vec::new(),
        verdict: format!("{verdict:?}").to_lowercase(),
        text,
        asleep: known.asleep,
        asked_ms: known.asked_ms,
        temperature_c: known.heat().and_then(|smart| smart.temperature_c),
        power_on_hours: smart.and_then(|smart| smart.power_on_hours),
        wear_percent: smart.and_then(|smart| smart.wear_percent),
        daily_temperatures_c: days.iter().rev().take(30).rev().filter_map(temperature).collect(),
    }
}

fn columns(smart: &Smart) -> [Option<u32>; COLUMNS] {
    let number = |value: Option<u64>| value.map(|value| u32::try_from(value).unwrap_or(u32::MAX - 1));
    let mut columns = [None; COLUMNS];
    let mut set = |column: Column, value: Option<u64>| columns[column as usize] = number(value);
    set(Column::Celsius, smart.temperature_c.and_then(|degrees| u64::try_from(degrees).ok()));
    set(Column::WearPercent, smart.wear_percent);
    set(Column::Reallocated, smart.reallocated_sectors.max(smart.grown_defects));
    set(Column::Pending, smart.pending_sectors);
    set(Column::Uncorrectable, smart.uncorrectable_sectors.max(smart.reported_errors).max(smart.media_errors));
    set(Column::Crc, smart.crc_errors);
    set(Column::PowerOnHours, smart.power_on_hours);
    set(Column::Starts, smart.starts);
    columns
}

fn said(subject: &str, known: &Known, smart: &Smart, health: &Health) -> Vec<Condition> {
    let mut conditions = Vec::new();
    for (about, event) in [(About::Errors, EventKind::DiskHealth), (About::Wear, EventKind::DiskWorn)] {
        let bad: Vec<_> = health.of(about).filter(|finding| finding.verdict >= Verdict::Watch).collect();
        let Some(worst) = bad.iter().map(|finding| finding.verdict).max() else { continue };
        let texts: Vec<&str> = bad.iter().map(|finding| finding.text.as_str()).collect();
        let severity = if worst == Verdict::Failing { Severity::Critical } else { Severity::Warning };
        let text = format!("{} ({}): {}.", worst.words(), known.device.name, texts.join("; "));
        conditions.push(Condition::is(event, subject, text).severity(severity));
    }
    conditions.extend(hot(subject, known, smart));
    conditions
}

fn hot(subject: &str, known: &Known, smart: &Smart) -> Vec<Condition> {
    let Some(degrees) = smart.temperature_c else { return Vec::new() };
    let (max, critical) = temperature_limits(smart, known.device.medium);
    let limits = |limit: i64| [limit as f64, limit as f64 - COOL_C];
    let text = || format!("{} has {degrees} °C; it may have {max} °C.", known.device.name);
    let hot = Condition::of_value(EventKind::DiskHot, subject, degrees as f64, limits(max), limits(critical), text);
    hot.into_iter().collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// A machine with one disk, which gives a report of the fixtures.
    fn machine(folder: &Path, report: &str) -> Machine {
        let write = |path: &str, text: &str| {
            let path = folder.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("sys/class/block/sda/dev", "8:0");
        write("sys/class/block/sda/size", "15628053168");
        write("sys/class/block/sda/queue/rotational", "1");
        write("sys/class/block/sda/stat", "1 2 3");
        write("tools/smartctl/sda", report);
        Machine::recorded(folder).unwrap()
    }

    fn report(name: &str) -> String {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../alerts/fixtures/smartctl");
        std::fs::read_to_string(format!("{folder}/{name}.json")).unwrap()
    }

    #[test]
    fn a_failing_disk_is_told_and_a_sleeping_one_keeps_its_alert() {
        let (folder, rings) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (disks, history) = (Disks::default(), History::of(rings.path()));
        disks.ask(&machine(folder.path(), &report("05-seagate-barracuda-2tb-failing")), &history, true);
        let (conditions, unknown) = disks.conditions();
        assert!(unknown.is_empty());
        let found: Vec<_> = conditions.iter().filter(|one| one.holds.is_some()).collect();
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!((found[0].key.event, found[0].holds), (EventKind::DiskHealth, Some(Severity::Critical)));
        // It is not asked again within a minute, and when it sleeps what it said stays.
        let asleep = r#"{"smartctl":{"messages":[{"string":"Device is in STANDBY mode, exit(2)"}]}}"#;
        let machine = machine(folder.path(), asleep);
        disks.known.lock().values_mut().for_each(|known| known.asked -= Duration::from_secs(61));
        disks.ask(&machine, &history, true);
        assert_eq!(disks.conditions().0.len(), conditions.len());
        let list = disks.list(&history, &[], &machine);
        assert!(list[0].asleep && list[0].verdict == "failing" && list[0].text.starts_with("failing"), "{list:?}");
    }

    #[test]
    fn a_disk_that_rests_is_not_asked() {
        let (folder, rings) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (disks, history) = (Disks::default(), History::of(rings.path()));
        let machine = machine(folder.path(), &report("01-wd-red-plus-8tb-well"));
        disks.ask(&machine, &history, false);
        let asked = || disks.known.lock().values().next().unwrap().asked_ms;
        let first = asked();
        let rewind = || {
            disks
                .known
                .lock()
                .values_mut()
                .for_each(|known| (known.asked, known.asked_ms) = (known.asked - ASK_EVERY, None))
        };
        rewind();
        disks.ask(&machine, &history, false);
        assert!(first.is_some() && asked().is_none(), "it did nothing since");
        std::fs::write(folder.path().join("sys/class/block/sda/stat"), "2 2 3").unwrap();
        disks.ask(&machine, &history, false);
        assert!(asked().is_some());
    }

    /// `looking.nothing_written_idle`: a year of virtual time, in which a pool of four disks is used on weekdays from 8 to 20.
    #[test]
    fn a_year_of_history_is_written_beside_other_writes_alone() {
        let (disks, begin, rings) = (Disks::default(), Instant::now(), tempfile::tempdir().unwrap());
        let history = History::of(rings.path());
        let (mut pool_bytes, mut idle_bytes, mut bytes, mut writes) = (0, 0, 0, 0u32);
        for minute in 0..365 * 24 * 60u64 {
            let (hour, day) = (minute / 60 % 24, minute / (24 * 60));
            let is_used = (8..20).contains(&hour) && day % 7 < 5;
            pool_bytes += u64::from(is_used) * 50_000_000;
            // A disk that works is asked once an hour.
            if is_used && minute % 60 == 0 {
                (0..4).for_each(|n| history.add(&format!("disk {n}"), minute * 60, [Some(30); COLUMNS]));
            }
            if disks.is_time_to_write(pool_bytes, begin + Duration::from_secs(minute * 60)) {
                let written = history.write();
                (bytes, writes) = (bytes + written, writes + u32::from(written > 0));
                idle_bytes += if is_used { 0 } else { written };
            }
        }
        assert_eq!(idle_bytes, 0);
        assert!((365..3 * 365).contains(&writes) && bytes < 60 << 20, "{writes} times, {bytes} bytes");
    }

    /// `disks.kernel_heat`
    #[test]
    fn without_a_report_the_kernel_knows_the_heat_of_a_disk_that_works() {
        let (folder, rings) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (disks, history) = (Disks::default(), History::of(rings.path()));
        let machine = machine(folder.path(), "{}");
        let monitor = folder.path().join("sys/class/block/sda/device/hwmon/hwmon0");
        std::fs::create_dir_all(&monitor).unwrap();
        std::fs::write(monitor.join("temp1_input"), "72000").unwrap();
        let text = || disks.list(&history, &[], &machine)[0].text.clone();
        disks.ask(&machine, &history, false);
        assert!(!text().contains("°C"), "it may sleep: {}", text());
        std::fs::write(folder.path().join("sys/class/block/sda/stat"), "2 2 3").unwrap();
        disks.known.lock().values_mut().for_each(|known| known.asked -= ASK_EVERY);
        disks.ask(&machine, &history, false);
        assert!(text().starts_with("unknown: ") && text().ends_with("; 72 °C by the kernel"), "{}", text());
        let hot: Vec<_> = disks.conditions().0.into_iter().filter(|one| one.holds.is_some()).collect();
        assert_eq!((hot.len(), hot[0].key.event), (1, EventKind::DiskHot));
        assert_eq!(disks.list(&history, &[], &machine)[0].temperature_c, Some(72));
    }

    #[test]
    fn histories_are_written_with_other_writes() {
        let (disks, begin) = (Disks::default(), Instant::now());
        assert!(!disks.is_time_to_write(5, begin));
        assert!(!disks.is_time_to_write(9, begin + WRITE_FIRST_AFTER / 2), "not yet");
        for minute in 0..2000 {
            assert!(!disks.is_time_to_write(9, begin + WRITE_EVERY + Duration::from_secs(60 * minute)), "idle");
        }
        assert!(disks.is_time_to_write(10, begin + WRITE_EVERY * 9));
        assert!(!disks.is_time_to_write(11, begin + WRITE_EVERY * 9 + Duration::from_secs(60)), "just done");
    }
}
