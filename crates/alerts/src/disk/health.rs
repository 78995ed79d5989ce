//! What a disk's report means, in words.
//!
//! Limits are the device's own where it names them. The others come from published studies of many disks:
//!
//! - E. Pinheiro, W.-D. Weber, L. A. Barroso, "Failure Trends in a Large Disk Drive Population", USENIX FAST 2007: within 60 days of the first
//!   scan error a disk is 39 times as likely to fail as others, of the first reallocation 14 times, of the first sector on probation
//!   16 times. More than half of the disks that failed had shown nothing: "well" is no promise.
//! - Backblaze, "What SMART Stats Tell Us About Hard Drives" (2016): of the disks that failed, 77 % had a count above zero in one of the
//!   attributes 5, 187, 188, 197 and 198; of those that ran, 4 %.
//! - B. Schroeder, R. Lagisetty, A. Merchant, "Flash Reliability in Production", USENIX FAST 2016: flash fails by age as well as by wear, and
//!   a block that went bad is followed by more.
//! - NVM Express Base Specification 2.0, SMART / Health Information: critical warnings, spare, percentage used.

use larder_facts::machine::{BlockDevice, Medium, SelfTest, Smart, TestOutcome};
use serde::{Deserialize, Serialize};

use super::ring::{Column, Ring};

/// From well to worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// It gives no report.
    Unknown,
    Well,
    /// Nothing to do about it now.
    Note,
    /// Something is wrong or wears out; the disk can be used.
    Watch,
    /// It is likely to fail.
    Replace,
    /// It says itself that it fails.
    Failing,
}

impl Verdict {
    pub fn words(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Well => "well",
            Self::Note => "well",
            Self::Watch => "watch it",
            Self::Replace => "replace it soon",
            Self::Failing => "failing: replace it now",
        }
    }
}

/// What a finding is about: each is an alert of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum About {
    Errors,
    Heat,
    Wear,
    Age,
    /// How it is connected: nothing that the disk is ill of.
    Link,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    pub about: About,
    pub verdict: Verdict,
    pub text: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Health {
    pub verdict: Verdict,
    /// Figures of a disk that is well: temperature, age, wear.
    pub figures: String,
    /// The worst first.
    pub findings: Vec<Finding>,
}

impl Health {
    /// One line.
    pub fn text(&self) -> String {
        let texts: Vec<&str> = self.findings.iter().map(|finding| finding.text.as_str()).collect();
        let figures = if self.figures.is_empty() { String::new() } else { format!(" ({})", self.figures) };
        match texts.as_slice() {
            [] => format!("{}{figures}", self.verdict.words()),
            texts => format!("{}: {}{figures}", self.verdict.words(), texts.join("; ")),
        }
    }

    /// Adds what its report does not say.
    pub fn add(&mut self, finding: Option<Finding>) {
        self.findings.extend(finding);
        self.findings.sort_by_key(|finding| std::cmp::Reverse(finding.verdict));
        self.verdict = self.findings.first().map_or(self.verdict, |finding| finding.verdict);
    }

    pub fn of(&self, about: About) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(move |finding| finding.about == about)
    }
}

const DAY_S: u64 = 24 * 3600;
/// Growth within this time counts as growing.
const GROWTH_DAYS: u64 = 30;
/// Rated writes used; after 100 % the maker promises nothing.
const WEAR_WATCH_PERCENT: u64 = 80;
/// Data sheets of hard disks allow 60 °C at the case, those of flash 70 °C.
const HARD_DISK_C_MAX: i64 = 60;
const FLASH_C_MAX: i64 = 70;
const WARM_C: i64 = 5;
/// Five years: what most data sheets and warranties speak of.
const HARD_DISK_HOURS: u64 = 5 * 365 * 24;
/// Data sheets of 3.5-inch disks promise 300,000 or 600,000.
const LOAD_CYCLES_NOTE: u64 = 300_000;
const LOAD_CYCLES_WATCH: u64 = 600_000;

/// The temperature that it may have, and the one at which it is in danger.
pub fn temperature_limits(smart: &Smart, medium: Medium) -> (i64, i64) {
    let usual = if is_hard_disk(smart, medium) { HARD_DISK_C_MAX } else { FLASH_C_MAX };
    // Some bridges answer 0 for what they do not know.
    let fit = |limit: Option<i64>| limit.filter(|limit| (40..=120).contains(limit));
    let max = fit(smart.temperature_max_c).unwrap_or(usual);
    (max, fit(smart.temperature_critical_c).unwrap_or(max + 10).max(max + 1))
}

fn is_hard_disk(smart: &Smart, medium: Medium) -> bool {
    smart.rotation_rpm.is_some() || (medium == Medium::HardDisk && smart.spare_percent.is_none())
}

/// Judges a report beside what the disk reported before.
pub fn judge(smart: &Smart, medium: Medium, past: Option<&Ring>, now_s: u64) -> Health {
    let disk = Disk { smart, hard: is_hard_disk(smart, medium), past, now_s, medium };
    let mut findings: Vec<Finding> = disk
        .own_words()
        .into_iter()
        .chain(disk.self_test())
        .chain(disk.errors())
        .chain(disk.wear())
        .chain(disk.heat())
        .chain(disk.age())
        .collect();
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.verdict));
    let verdict = findings.first().map_or(Verdict::Well, |finding| finding.verdict);
    Health { verdict, figures: disk.figures(), findings }
}

struct Disk<'a> {
    smart: &'a Smart,
    hard: bool,
    past: Option<&'a Ring>,
    now_s: u64,
    medium: Medium,
}

impl Disk<'_> {
    /// What the disk says of itself.
    fn own_words(&self) -> Vec<Finding> {
        let smart = self.smart;
        let mut found = Vec::new();
        let mut failing = |text: String| found.push(Finding { about: About::Errors, verdict: Verdict::Failing, text });
        let warnings = critical_warnings(smart.critical_warning.unwrap_or(0));
        warnings.iter().for_each(|warning| failing((*warning).to_owned()));
        if let (Some(spare), Some(min)) = (smart.spare_percent, smart.spare_percent_min)
            && spare < min
            && !warnings.contains(&SPARE_LOW)
        {
            failing(format!("{spare} % of its spare blocks are left, less than its limit of {min} %"));
        }
        if !smart.failing.is_empty() {
            failing(format!("below its maker's limit: {}", smart.failing.join(", ").replace('_', " ")));
        } else if smart.passed == Some(false) && warnings.is_empty() && smart.critical_warning.unwrap_or(0) == 0 {
            failing("it says that it fails (SMART status)".to_owned());
        }
        found
    }

    /// The newest test of itself that came to an end, if it failed. Entries before it are about sectors that were mended since.
    fn self_test(&self) -> Option<Finding> {
        let test = self.newest_test().filter(|test| test.outcome == TestOutcome::Failed)?;
        let text = format!("its {} self-test{} failed: {}", test.length.word(), self.ago(test), test.text);
        Some(Finding { about: About::Errors, verdict: Verdict::Replace, text })
    }

    fn newest_test(&self) -> Option<&SelfTest> {
        let ended = |test: &&SelfTest| matches!(test.outcome, TestOutcome::Passed | TestOutcome::Failed);
        self.smart.self_tests.iter().find(ended)
    }

    fn ago(&self, test: &SelfTest) -> String {
        let hours = self.smart.power_on_hours.and_then(|now| test.age_hours(now));
        match hours {
            None => String::new(),
            Some(hours) if hours < 48 => format!(" {hours} hours ago"),
            Some(hours) => format!(" {} days ago", hours / 24),
        }
    }

    /// Sectors and transfers that went wrong.
    fn errors(&self) -> Vec<Finding> {
        let smart = self.smart;
        let (bad, old) = (Verdict::Replace, Verdict::Watch);
        // Flash replaces blocks from its first day; a hard disk should not.
        let (replaced, replaced_old) = if self.hard { (bad, Verdict::Note) } else { (old, Verdict::Note) };
        let counts = [
            (
                smart.pending_sectors,
                Some(Column::Pending),
                bad,
                old,
                ["sector cannot be read", "sectors cannot be read"],
            ),
            (
                smart.uncorrectable_sectors.max(smart.reported_errors).max(smart.media_errors),
                Some(Column::Uncorrectable),
                bad,
                old,
                ["read or write failed for good", "reads or writes failed for good"],
            ),
            (
                smart.reallocated_sectors.max(smart.grown_defects),
                Some(Column::Reallocated),
                replaced,
                replaced_old,
                ["sector was replaced by a spare one", "sectors were replaced by spare ones"],
            ),
            (
                smart.crc_errors,
                Some(Column::Crc),
                Verdict::Watch,
                Verdict::Note,
                ["transfer was damaged on the cable", "transfers were damaged on the cable"],
            ),
            (
                smart.command_timeouts.filter(|_| self.hard),
                None,
                Verdict::Note,
                Verdict::Note,
                ["command was not answered in time", "commands were not answered in time"],
            ),
        ];
        counts
            .into_iter()
            .filter_map(|(count, column, grows, stays, words)| self.count(count, column, grows, stays, words))
            .collect()
    }

    /// A counter above zero: worse while it grows.
    fn count(
        &self,
        count: Option<u64>,
        column: Option<Column>,
        grows: Verdict,
        stays: Verdict,
        [one, many]: [&str; 2],
    ) -> Option<Finding> {
        let count = count.filter(|count| *count > 0)?;
        let words = if count == 1 { one } else { many };
        let before = column.and_then(|column| self.before(column));
        let (verdict, since) = match before {
            Some((past, days)) if count > u64::from(past) => {
                (grows, format!(", {} more than {days} days ago", thousands(count - u64::from(past))))
            }
            Some((_, days)) => (stays, format!(", as {days} days ago")),
            None => (stays, String::new()),
        };
        let cable = if column == Some(Column::Crc) && verdict == Verdict::Watch { ": try another cable" } else { "" };
        let text = format!("{} {words}{since}{cable}", thousands(count));
        Some(Finding { about: About::Errors, verdict, text })
    }

    /// A column's value some weeks ago, or as long ago as there is one; and how many days that is.
    fn before(&self, column: Column) -> Option<(u32, u64)> {
        let past = self.past?;
        [GROWTH_DAYS, 7, 2].into_iter().find_map(|days| {
            let at_s = self.now_s.checked_sub(days * DAY_S)?;
            past.before(column, at_s).map(|value| (value, days))
        })
    }

    fn wear(&self) -> Option<Finding> {
        let percent = self.smart.wear_percent.filter(|&percent| percent >= WEAR_WATCH_PERCENT)?;
        let verdict = if percent >= 100 { Verdict::Replace } else { Verdict::Watch };
        let text = format!("{percent} % of the writes that it is rated for are used{}", self.wear_left(percent));
        Some(Finding { about: About::Wear, verdict, text })
    }

    /// When all rated writes are used, at the rate of the last year.
    fn wear_left(&self, percent: u64) -> String {
        let past = self.past.map(|past| past.samples(1)).unwrap_or_default();
        let worn = |sample: &super::ring::Sample| {
            let value = sample.values.get(Column::WearPercent as usize).copied().flatten()?;
            Some((sample.at_s * 1000, f64::from(value)))
        };
        let line: Vec<(u64, f64)> = past.iter().filter_map(worn).collect();
        match crate::space::days_left(&line, 100.0).filter(|_| percent < 100) {
            Some(days) => format!(", all of them in about {days:.0} days"),
            None => String::new(),
        }
    }

    fn heat(&self) -> Option<Finding> {
        let degrees = self.smart.temperature_c?;
        let (max, _) = temperature_limits(self.smart, self.medium);
        let (verdict, text) = match degrees {
            hot if hot >= max => (Verdict::Watch, format!("{hot} °C is as hot as it may be ({max} °C)")),
            warm if warm >= max - WARM_C => (Verdict::Note, format!("{warm} °C is warm; it may have {max} °C")),
            _ => return None,
        };
        Some(Finding { about: About::Heat, verdict, text })
    }

    fn age(&self) -> Vec<Finding> {
        let note = |verdict, text| Finding { about: About::Age, verdict, text };
        let mut found = Vec::new();
        if let Some(hours) = self.smart.power_on_hours.filter(|&hours| self.hard && hours > HARD_DISK_HOURS) {
            found.push(note(Verdict::Note, format!("it has run for {} years", hours / (365 * 24))));
        }
        if let Some(cycles) = self.smart.load_cycles.filter(|&cycles| self.hard && cycles >= LOAD_CYCLES_NOTE) {
            let verdict = if cycles >= LOAD_CYCLES_WATCH { Verdict::Watch } else { Verdict::Note };
            found.push(note(verdict, format!("its heads were parked {} times", thousands(cycles))));
        }
        found
    }

    fn figures(&self) -> String {
        let smart = self.smart;
        let parts = [
            smart.temperature_c.map(|degrees| format!("{degrees} °C")),
            smart.power_on_hours.map(|hours| format!("{} hours", thousands(hours))),
            smart.wear_percent.map(|percent| format!("{percent} % worn")),
            self.newest_test()
                .filter(|test| test.outcome == TestOutcome::Passed)
                .map(|test| format!("{} self-test passed{}", test.length.word(), self.ago(test))),
        ];
        parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
    }
}

/// USB 2.0.
const USB_SLOW_MBITS: u64 = 480;

/// A connection below what the disk can: SATA by its report, NVMe and USB by the kernel.
pub fn judge_link(device: &BlockDevice, smart: Option<&Smart>) -> Option<Finding> {
    let text = smart.and_then(slow_sata).or_else(|| slow_pcie(device)).or_else(|| slow_usb(device));
    text.map(of_link)
}

fn of_link(text: String) -> Finding {
    Finding { about: About::Link, verdict: Verdict::Note, text }
}

fn slow_sata(smart: &Smart) -> Option<String> {
    let (link, best) = (smart.link.as_ref()?, smart.link_max.as_ref()?);
    let speed = |text: &str| text.split_whitespace().next().and_then(|number| number.parse::<f64>().ok());
    let is_slow = speed(link)? < speed(best)?;
    is_slow.then(|| format!("it is connected at {link} and can {best}: try another cable or port"))
}

fn slow_pcie(device: &BlockDevice) -> Option<String> {
    let pcie = device.pcie.as_ref().filter(|pcie| pcie.below_best())?;
    let (speed, lanes, speed_max, lanes_max) = (&pcie.speed, pcie.width_lanes, &pcie.speed_max, pcie.width_lanes_max);
    Some(format!("its slot gives it {lanes} lanes of {speed}, and it can {lanes_max} of {speed_max}"))
}

fn slow_usb(device: &BlockDevice) -> Option<String> {
    let usb = device.usb.as_ref()?;
    let speed = usb.speed_mbits.filter(|&speed| speed <= USB_SLOW_MBITS)?;
    let can_more = usb.version.as_deref().is_some_and(|version| version.trim().starts_with('3'));
    can_more.then(|| {
        format!("it is connected at {speed} Mbit/s and its bridge can USB 3: use a blue port and another cable")
    })
}

const SPARE_LOW: &str = "its spare blocks are used up";

/// NVM Express Base Specification 2.0, 5.16.1.3, Critical Warning. Bit 1 is the temperature, which is judged by its limits.
fn critical_warnings(bits: u64) -> Vec<&'static str> {
    const MEANINGS: [(u64, &str); 5] = [
        (0, SPARE_LOW),
        (2, "it calls itself unreliable after errors"),
        (3, "it takes no more writes"),
        (4, "its backup power failed"),
        (5, "its persistent memory failed"),
    ];
    MEANINGS.iter().filter(|(bit, _)| bits & (1 << bit) != 0).map(|(_, words)| *words).collect()
}

fn thousands(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::disk::ring::COLUMNS;

    /// `fixtures/smartctl/*.json`, and what is said of each: `fixtures/smartctl/said.txt`.
    #[test]
    fn reports_of_many_models_in_words() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/smartctl");
        let mut names: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        names.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
        names.sort();
        let mut said = String::new();
        for path in &names {
            let answer: serde_json::Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
            let smart = Smart::parse(&answer);
            let medium = if smart.rotation_rpm.is_some() { Medium::HardDisk } else { Medium::Unknown };
            let tells = smart.passed.is_some() || smart.temperature_c.is_some() || smart.power_on_hours.is_some();
            let mut health = judge(&smart, medium, None, 0);
            health.add(slow_sata(&smart).map(of_link));
            let words = if tells { health.text() } else { "no report".to_owned() };
            said.push_str(&format!("{}\n    {words}\n", path.file_stem().unwrap().to_string_lossy()));
        }
        assert!(names.len() >= 20, "{}", names.len());
        let expected = std::fs::read_to_string(format!("{folder}/said.txt")).unwrap();
        assert_eq!(said, expected, "\n{said}");
    }

    fn past(columns: &[(Column, u32)], days_ago: u64, now_s: u64) -> Ring {
        let mut ring = Ring::new("x");
        let mut values = [None; COLUMNS];
        columns.iter().for_each(|(column, value)| values[*column as usize] = Some(*value));
        ring.add(now_s - days_ago * DAY_S, values);
        ring
    }

    #[test]
    fn what_grows_is_worse_than_what_stays() {
        let now_s = 1_800_000_000;
        let check = |smart: &Smart, past: &Ring| judge(smart, Medium::HardDisk, Some(past), now_s).text();
        let smart = Smart { reallocated_sectors: Some(24), rotation_rpm: Some(5400), ..Smart::default() };
        assert_eq!(
            check(&smart, &past(&[(Column::Reallocated, 16)], 40, now_s)),
            "replace it soon: 24 sectors were replaced by spare ones, 8 more than 30 days ago"
        );
        assert_eq!(
            check(&smart, &past(&[(Column::Reallocated, 24)], 9, now_s)),
            "well: 24 sectors were replaced by spare ones, as 7 days ago"
        );
        let smart = Smart { crc_errors: Some(1), ..smart };
        assert!(
            check(&smart, &past(&[(Column::Crc, 0)], 3, now_s))
                .contains("1 transfer was damaged on the cable, 1 more than 2 days ago: try another cable")
        );
    }

    #[test]
    fn the_newest_self_test_counts() {
        use larder_facts::machine::TestLength;
        let test = |outcome, hours| SelfTest {
            length: TestLength::Long,
            outcome,
            text: "Completed: read failure".to_owned(),
            hours: Some(hours),
        };
        let check = |tests: &[SelfTest]| {
            let smart = Smart {
                self_tests: tests.to_vec(),
                power_on_hours: Some(1000),
                temperature_c: Some(30),
                ..Smart::default()
            };
            judge(&smart, Medium::HardDisk, None, 0).text()
        };
        let (failed, passed) = (test(TestOutcome::Failed, 980), test(TestOutcome::Passed, 400));
        assert_eq!(
            check(&[test(TestOutcome::Running, 999), failed.clone(), passed.clone()]),
            "replace it soon: its long self-test 20 hours ago failed: Completed: read failure (30 °C, 1,000 hours)"
        );
        assert_eq!(check(&[passed, failed]), "well (30 °C, 1,000 hours, long self-test passed 25 days ago)");
        assert_eq!(check(&[test(TestOutcome::Interrupted, 5)]), "well (30 °C, 1,000 hours)");
    }

    #[test]
    fn a_link_below_what_the_disk_can_is_said() {
        let check = |files: &[(&str, &str)], link: Option<(&str, &str)>, expected: Option<&str>| {
            let folder = tempfile::tempdir().unwrap();
            let all = [("sys/class/block/sda/dev", "8:0"), ("sys/class/block/sda/size", "1000")];
            for (path, text) in all.iter().chain(files) {
                let path = folder.path().join(path);
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(path, text).unwrap();
            }
            let machine = larder_facts::Machine::recorded(folder.path()).unwrap();
            let device = BlockDevice::read(&machine, "sda").unwrap();
            let smart = link.map(|(link, best)| Smart {
                link: Some(link.to_owned()),
                link_max: Some(best.to_owned()),
                ..Smart::default()
            });
            let said = judge_link(&device, smart.as_ref()).map(|finding| finding.text);
            assert_eq!(said.as_deref(), expected);
        };
        let slow = "it is connected at 3.0 Gb/s and can 6.0 Gb/s: try another cable or port";
        check(&[], Some(("3.0 Gb/s", "6.0 Gb/s")), Some(slow));
        check(&[], Some(("6.0 Gb/s", "6.0 Gb/s")), None);
        check(&[], Some(("6.0 Gb/s", "3.0 Gb/s")), None);
        check(&[], Some(("?", "6.0 Gb/s")), None);
        check(&[], None, None);
    }

    #[test]
    fn wear_has_a_date() {
        let now_s = 1_800_000_000;
        let mut ring = Ring::new("x");
        for day in 0..30u64 {
            let mut values = [None; COLUMNS];
            values[Column::WearPercent as usize] = Some(60 + day as u32);
            ring.add(now_s - (30 - day) * DAY_S, values);
        }
        let smart = Smart { wear_percent: Some(89), ..Smart::default() };
        let said = judge(&smart, Medium::Flash, Some(&ring), now_s).text();
        assert_eq!(
            said,
            "watch it: 89 % of the writes that it is rated for are used, all of them in about 11 days (89 % worn)"
        );
    }
}
