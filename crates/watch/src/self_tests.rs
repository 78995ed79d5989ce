//! When the disks of pools test themselves: as `[disks]` says, by the hours in their own logs, so tests that somebody else started count.
//!
//! - `selftests.one_at_a_time`: disks are tested one after the other, so that at most one of a pool is slower.
//! - `selftests.users_first`: a test begins on a disk that is awake and has had nothing to do for some minutes. A disk interrupts its test
//!   for each command.
//! - `selftests.no_bridges`: disks behind USB bridges are left alone. Some bridges hang.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use larder_facts::machine::{Smart, TestLength, TestOutcome};

use larder_config::{Schedule, SelfTestSchedule};

/// After a short test another disk may begin one; the longest take five minutes.
const SHORT_TAKES: Duration = Duration::from_secs(1800);
/// The same for long ones: the largest hard disks take a day and a half, and most less than one.
const LONG_TAKES: Duration = Duration::from_secs(36 * 3600);
/// A disk that did not begin a test, or was interrupted, is tried again after that.
const AGAIN: Duration = Duration::from_secs(24 * 3600);
/// Reads and writes between two looks, minutes apart, that are nobody's work.
const QUIET_CALLS: u64 = 100;

/// A disk that could be tested.
pub(crate) struct Candidate {
    pub(crate) subject: String,
    /// Reads and writes since the machine started.
    pub(crate) calls: u64,
    pub(crate) due: Option<TestLength>,
}

/// What was started.
#[derive(Default)]
pub(crate) struct SelfTests {
    /// No other test begins before.
    free: Option<Instant>,
    tried: BTreeMap<String, Instant>,
    calls: BTreeMap<String, u64>,
}

/// The test that a disk needs, by its own log, in hours that the disk has run.
pub(crate) fn due(smart: &Smart, schedule: SelfTestSchedule) -> Option<TestLength> {
    let now = smart.power_on_hours?;
    if smart.self_tests.iter().any(|test| test.outcome == TestOutcome::Running) {
        return None;
    }
    let ended = || smart.self_tests.iter().filter(|test| test.outcome != TestOutcome::Interrupted);
    let newest = ended().filter_map(|test| test.age_hours(now)).min();
    let newest_long =
        ended().filter(|test| test.length == TestLength::Long).filter_map(|test| test.age_hours(now)).min();
    let is_due = |every: Schedule, age_hours: Option<u64>| {
        let every_hours = every.interval().map(|every| every.as_secs() / 3600);
        every_hours.is_some_and(|every| age_hours.is_none_or(|age| age >= every))
    };
    let (short, long) = (is_due(schedule.short, newest), is_due(schedule.long, newest_long));
    match (short, long) {
        // A disk that was never tested is tried for minutes before it is for hours.
        (true, true) if newest.is_none() => Some(TestLength::Short),
        (_, true) => Some(TestLength::Long),
        (true, false) => Some(TestLength::Short),
        (false, false) => None,
    }
}

impl SelfTests {
    /// The disk that begins a test now. To be asked at each look.
    pub(crate) fn choose(&mut self, now: Instant, candidates: &[Candidate]) -> Option<(String, TestLength)> {
        let before = std::mem::take(&mut self.calls);
        self.calls = candidates.iter().map(|one| (one.subject.clone(), one.calls)).collect();
        self.tried.retain(|_, at| now.duration_since(*at) < AGAIN);
        if self.free.is_some_and(|free| now < free) {
            return None;
        }
        let is_quiet = |one: &&Candidate| {
            before.get(&one.subject).is_some_and(|calls| one.calls.saturating_sub(*calls) <= QUIET_CALLS)
        };
        let is_next = |one: &&Candidate| one.due.is_some() && !self.tried.contains_key(&one.subject);
        let chosen = candidates.iter().filter(is_next).find(is_quiet)?;
        let length = chosen.due?;
        self.tried.insert(chosen.subject.clone(), now);
        self.free = Some(now + if length == TestLength::Short { SHORT_TAKES } else { LONG_TAKES });
        Some((chosen.subject.clone(), length))
    }

    /// It did not begin: another disk may.
    pub(crate) fn did_not_begin(&mut self) {
        self.free = None;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use larder_facts::machine::SelfTest;

    const USUAL: SelfTestSchedule = SelfTestSchedule { short: Schedule::Weekly, long: Schedule::Monthly };

    fn smart(hours: u64, log: &[(TestLength, TestOutcome, u64)]) -> Smart {
        let test = |&(length, outcome, hours)| SelfTest { length, outcome, text: String::new(), hours: Some(hours) };
        Smart { power_on_hours: Some(hours), self_tests: log.iter().map(test).collect(), ..Smart::default() }
    }

    #[test]
    fn the_log_says_what_is_due() {
        use TestLength::{Long, Short};
        use TestOutcome::{Failed, Interrupted, Passed, Running};
        let check = |log: &[_], expected| assert_eq!(due(&smart(10_000, log), USUAL), expected, "{log:?}");
        check(&[], Some(Short));
        check(&[(Short, Passed, 9_999)], Some(Long));
        check(&[(Short, Passed, 9_999), (Long, Passed, 9_900)], None);
        check(&[(Long, Failed, 9_900)], None);
        check(&[(Long, Passed, 9_832)], Some(Short));
        check(&[(Short, Passed, 9_900), (Long, Passed, 9_280)], Some(Long));
        check(&[(Short, Running, 10_000), (Long, Passed, 9_000)], None);
        check(&[(Short, Interrupted, 10_000), (Long, Passed, 9_800)], Some(Short));
        assert_eq!(due(&Smart::default(), USUAL), None, "its age is not known");
    }

    #[test]
    fn the_schedule_says_which_tests_there_are() {
        use Schedule::{Daily, Off, Quarterly};
        use TestLength::{Long, Short};
        use TestOutcome::Passed;
        let check = |short, long, log: &[_], expected| {
            assert_eq!(
                due(&smart(10_000, log), SelfTestSchedule { short, long }),
                expected,
                "{short:?} {long:?} {log:?}"
            );
        };
        assert_eq!(SelfTestSchedule::default(), SelfTestSchedule { short: Off, long: Off });
        check(Off, Off, &[], None);
        check(Off, Off, &[(Long, Passed, 1)], None);
        check(Off, Quarterly, &[], Some(Long));
        check(Off, Quarterly, &[(Long, Passed, 9_000)], None);
        check(Off, Quarterly, &[(Short, Passed, 9_999), (Long, Passed, 7_000)], Some(Long));
        check(Daily, Off, &[], Some(Short));
        check(Daily, Off, &[(Short, Passed, 9_990)], None);
        check(Daily, Off, &[(Short, Passed, 9_976)], Some(Short));
        check(Daily, Off, &[(Long, Passed, 9_980)], None);
    }

    /// A year of four disks, one of which is busy by day, with looks of five minutes.
    #[test]
    fn a_year_of_tests_is_staggered_and_never_in_the_way() {
        let (begin, look) = (Instant::now(), Duration::from_secs(300));
        let mut tests = SelfTests::default();
        let mut logs: Vec<Vec<(TestLength, TestOutcome, u64)>> = vec![Vec::new(); 4];
        let (mut calls, mut running): ([u64; 4], Vec<(usize, TestLength, u64)>) = ([0; 4], Vec::new());
        let mut started = [[0u32; 2]; 4];
        for n in 0..365 * 24 * 12u64 {
            let hour = n / 12;
            let is_day = hour % 24 >= 8;
            if is_day {
                calls[0] += 5_000;
            }
            running.retain(|&(disk, length, ends)| {
                let has_ended = n >= ends;
                if has_ended {
                    logs[disk].insert(0, (length, TestOutcome::Passed, hour));
                }
                !has_ended
            });
            let candidates: Vec<Candidate> = (0..4)
                .map(|disk| Candidate {
                    subject: disk.to_string(),
                    calls: calls[disk],
                    due: due(&smart(hour, &logs[disk]), USUAL),
                })
                .collect();
            if let Some((subject, length)) = tests.choose(begin + look * u32::try_from(n).unwrap(), &candidates) {
                let disk: usize = subject.parse().unwrap();
                assert!(running.is_empty(), "one at a time");
                assert!(disk != 0 || !is_day, "users first");
                started[disk][usize::from(length == TestLength::Long)] += 1;
                running.push((disk, length, n + if length == TestLength::Short { 1 } else { 20 * 12 }));
            }
        }
        for [short, long] in started {
            assert!((35..=52).contains(&short) && (10..=13).contains(&long), "{started:?}");
        }
    }

    #[test]
    fn a_disk_that_did_not_begin_is_tried_again_after_a_day() {
        let now = Instant::now();
        let mut tests = SelfTests::default();
        let choose = |tests: &mut SelfTests, hours: u64| {
            let one = |name: &str| Candidate { subject: name.to_owned(), calls: 7, due: Some(TestLength::Short) };
            tests.choose(now + Duration::from_secs(hours * 3600), &[one("a"), one("b")]).map(|(subject, _)| subject)
        };
        assert_eq!(choose(&mut tests, 0), None, "nothing is known of its work yet");
        assert_eq!(choose(&mut tests, 1).as_deref(), Some("a"));
        tests.did_not_begin();
        assert_eq!(choose(&mut tests, 1).as_deref(), Some("b"));
        assert_eq!(choose(&mut tests, 2), None);
        assert_eq!(choose(&mut tests, 25).as_deref(), Some("a"));
    }
}
