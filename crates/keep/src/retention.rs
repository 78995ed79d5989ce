//! Automatic snapshots: when one is due, and how long each is kept. Pure functions of times.
//!
//! One snapshot serves every kind. Of each hour, day, week (from Monday) and month the newest is kept, for as many hours, days,
//! weeks and months *with snapshots* as were asked for. All of it in UTC.
//!
//! - `retention.own_names_only`: snapshots named exactly as [`names_at`] names them take part; no other is ever destroyed.
//! - `retention.order_of_taking`: a snapshot is newer than those taken before it, whatever the clock said then. No age is
//!   compared with the present, so neither a wrong clock nor idle years destroy anything.
//! - `retention.one_a_period`: a snapshot is due when some kind has none in the present period that was taken since the clock
//!   went back last. So neither a snapshot from the future nor one of another life in 1970 stands in the way of any. A minute
//!   that has one already gives a second one a number.
//! - `retention.receiver_counts`: the names in a replica are its sender's words. So the first snapshot that arrived in a period, by the
//!   receiver's own time, stays until as many periods as are kept have really passed there; each stays for a period at least. A
//!   name from the future is not the schedule's.

use std::collections::{BTreeSet, HashSet};

use chrono::{DateTime, Datelike, Days, Months, NaiveDateTime, NaiveTime, TimeDelta, Utc};
use larder_api::SnapshotCounts;

/// Legal at every door: SMB and Windows want no colon.
const NAME: &str = "auto-%Y-%m-%d_%H-%MZ";
const NAME_LEN: usize = "auto-2026-11-25_04-00Z".len();
/// More snapshots of one minute are none of the schedule's: retention thins those of a board that always begins in 1970.
const AGAIN_MAX: u32 = 999;
const HOUR_SECS: i64 = 3600;
const DAY_SECS: i64 = 24 * HOUR_SECS;
/// A clock that goes back by less stands in the way for less.
const BACK_MIN: TimeDelta = TimeDelta::hours(1);
/// Clocks of two machines differ, and one may have no battery. More than a day is no such difference.
const AHEAD_MAX: TimeDelta = TimeDelta::days(1);

/// The name of a snapshot taken now. There is none outside of the years 0 to 9999.
pub fn name_at(now: DateTime<Utc>) -> Option<String> {
    let name = now.format(NAME).to_string();
    time_of(&name).map(|_| name)
}

/// Names for a snapshot taken now, in the order in which they are tried: the clock may say this minute for the second time.
pub(crate) fn names_at(now: DateTime<Utc>) -> impl Iterator<Item = String> {
    let first = name_at(now).into_iter();
    first.flat_map(|name| std::iter::once(name.clone()).chain((2..=AGAIN_MAX).map(move |n| format!("{name}-{n}"))))
}

/// The time that a name of the schedule says (`retention.own_names_only`).
pub(crate) fn time_of(name: &str) -> Option<DateTime<Utc>> {
    let (moment, again) = name.split_at_checked(NAME_LEN)?;
    let is_number = |n: u32| (2..=AGAIN_MAX).contains(&n) && format!("-{n}") == again;
    if !again.is_empty() && !again.get(1..).and_then(|n| n.parse().ok()).is_some_and(is_number) {
        return None;
    }
    let at = NaiveDateTime::parse_from_str(moment, NAME).ok()?.and_utc();
    (at.format(NAME).to_string() == moment).then_some(at)
}

/// Those that were taken since the clock went back last, of snapshots in the order of taking (`retention.one_a_period`).
fn since_set_back(taken: &[DateTime<Utc>], now: DateTime<Utc>) -> &[DateTime<Utc>] {
    let mut next = now;
    let later = taken.iter().rev().take_while(|at| **at <= std::mem::replace(&mut next, **at) + BACK_MIN).count();
    taken.get(taken.len() - later..).unwrap_or_default()
}

/// As [`time_of`], of a name that somebody else chose: none from the future (`retention.receiver_counts`).
pub(crate) fn plausible_time_of(name: &str, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
    time_of(name).filter(|named| *named <= now + AHEAD_MAX)
}

/// Whether a snapshot should be taken now, beside those that were taken at these times (`retention.one_a_period`).
pub fn is_due(keep: &SnapshotCounts, taken: &[DateTime<Utc>], now: DateTime<Utc>) -> bool {
    let taken = since_set_back(taken, now);
    kinds(keep).any(|(kind, _)| !has_one(kind, taken, kind.begin(now)))
}

/// The longest time for which a schedule may take nothing while files change: twice its shortest period.
pub(crate) fn late_after_secs(keep: &SnapshotCounts) -> Option<i64> {
    kinds(keep).map(|(kind, _)| 2 * kind.secs_max()).min()
}

/// The beginning of the hour in which a snapshot is taken next, if anything changes until then. One that is due already, and could
/// not be taken or was not needed, is tried again every hour.
pub fn next(keep: &SnapshotCounts, taken: &[DateTime<Utc>], now: DateTime<Utc>) -> DateTime<Utc> {
    let next_hour = Kind::Hourly.end(Kind::Hourly.begin(now));
    if is_due(keep, taken, now) {
        return next_hour;
    }
    let taken = since_set_back(taken, now);
    let free = kinds(keep).map(|(kind, _)| {
        let mut begin = kind.end(kind.begin(now));
        // Each turn finds another snapshot's period.
        for _ in 0..taken.len() {
            if !has_one(kind, taken, begin) {
                break;
            }
            begin = kind.end(begin);
        }
        begin
    });
    free.min().unwrap_or(next_hour)
}

/// The places of those that no period needs any more, among the snapshots in the order of taking.
pub(crate) fn unneeded(keep: &SnapshotCounts, taken: &[DateTime<Utc>]) -> Vec<usize> {
    let needed: BTreeSet<usize> = kinds(keep).flat_map(|(kind, count)| kept(kind, count, taken)).collect();
    // A schedule that keeps nothing is none.
    if needed.is_empty() {
        return Vec::new();
    }
    (0..taken.len()).filter(|place| !needed.contains(place)).collect()
}

/// A snapshot of a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// The time that its name says.
    pub named: DateTime<Utc>,
    /// The moment it arrived, by the receiver's own time.
    pub arrived: DateTime<Utc>,
}

/// As [`unneeded`], of a replica whose own time is `now` (`retention.receiver_counts`).
pub(crate) fn unneeded_arrivals(keep: &SnapshotCounts, arrivals: &[Arrival], now: DateTime<Utc>) -> Vec<usize> {
    let named: Vec<DateTime<Utc>> = arrivals.iter().map(|one| one.named).collect();
    let shortest_secs = kinds(keep).map(|(kind, _)| kind.secs_max()).min().unwrap_or(DAY_SECS).max(DAY_SECS);
    let stays: HashSet<usize> = kinds(keep).flat_map(|(kind, count)| firsts(kind, count, arrivals, now)).collect();
    let is_old = |one: &Arrival| now.signed_duration_since(one.arrived).num_seconds() >= shortest_secs;
    let mut out = unneeded(keep, &named);
    out.retain(|place| arrivals.get(*place).is_some_and(is_old) && !stays.contains(place));
    out
}

/// The first that arrived in each period, of those whose names are of one period, while fewer than `count` have passed since.
fn firsts(kind: Kind, count: u32, arrivals: &[Arrival], now: DateTime<Utc>) -> Vec<usize> {
    let mut periods = HashSet::new();
    let present = kind.number(now);
    let firsts = arrivals.iter().enumerate().filter(|(_, one)| {
        let passed = present.saturating_sub(kind.number(one.arrived));
        periods.insert((kind.number(one.arrived), kind.number(one.named))) && passed < i64::from(count)
    });
    firsts.map(|(place, _)| place).collect()
}

/// How many periods of each kind have a snapshot that is kept for them.
pub fn counts(keep: &SnapshotCounts, taken: &[DateTime<Utc>]) -> SnapshotCounts {
    let mut counts = SnapshotCounts::default();
    for (kind, count) in kinds(keep) {
        let held = u32::try_from(kept(kind, count, taken).len()).unwrap_or(count);
        match kind {
            Kind::Hourly => counts.hourly = held,
            Kind::Daily => counts.daily = held,
            Kind::Weekly => counts.weekly = held,
            Kind::Monthly => counts.monthly = held,
        }
    }
    counts
}

/// The newest of each of the last `count` periods (`retention.order_of_taking`).
fn kept(kind: Kind, count: u32, taken: &[DateTime<Utc>]) -> Vec<usize> {
    let mut periods = HashSet::new();
    let newest_first = taken.iter().enumerate().rev();
    let newest_of_periods = newest_first.filter(|(_, at)| periods.insert(kind.begin(**at)));
    newest_of_periods.map(|(place, _)| place).take(count as usize).collect()
}

fn has_one(kind: Kind, taken: &[DateTime<Utc>], begin: DateTime<Utc>) -> bool {
    taken.iter().any(|at| kind.begin(*at) == begin)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Hourly,
    Daily,
    Weekly,
    Monthly,
}

/// The kinds that are asked for, and how many of each.
fn kinds(keep: &SnapshotCounts) -> impl Iterator<Item = (Kind, u32)> {
    let all = [
        (Kind::Hourly, keep.hourly),
        (Kind::Daily, keep.daily),
        (Kind::Weekly, keep.weekly),
        (Kind::Monthly, keep.monthly),
    ];
    all.into_iter().filter(|(_, count)| *count > 0)
}

impl Kind {
    /// The beginning of the period that `at` lies in.
    fn begin(self, at: DateTime<Utc>) -> DateTime<Utc> {
        let day = at.date_naive();
        let first = match self {
            Kind::Hourly => {
                let secs = at.timestamp();
                return DateTime::from_timestamp(secs - secs.rem_euclid(HOUR_SECS), 0).unwrap_or(at);
            }
            Kind::Daily => Some(day),
            Kind::Weekly => day.checked_sub_days(Days::new(day.weekday().num_days_from_monday().into())),
            Kind::Monthly => day.with_day(1),
        };
        first.unwrap_or(day).and_time(NaiveTime::MIN).and_utc()
    }

    /// Periods of this kind since some moment. Of two in a row the numbers are, too.
    fn number(self, at: DateTime<Utc>) -> i64 {
        let begin = self.begin(at);
        match self {
            Kind::Hourly => begin.timestamp().div_euclid(HOUR_SECS),
            Kind::Daily => begin.timestamp().div_euclid(DAY_SECS),
            Kind::Weekly => begin.timestamp().div_euclid(7 * DAY_SECS),
            Kind::Monthly => i64::from(begin.year()) * 12 + i64::from(begin.month0()),
        }
    }

    /// The length of the longest period of this kind.
    fn secs_max(self) -> i64 {
        match self {
            Kind::Hourly => HOUR_SECS,
            Kind::Daily => DAY_SECS,
            Kind::Weekly => 7 * DAY_SECS,
            Kind::Monthly => 31 * DAY_SECS,
        }
    }

    /// The beginning of the period after the one that begins at `begin`.
    fn end(self, begin: DateTime<Utc>) -> DateTime<Utc> {
        let end = match self {
            Kind::Hourly => DateTime::from_timestamp(begin.timestamp() + HOUR_SECS, 0),
            Kind::Daily => begin.checked_add_days(Days::new(1)),
            Kind::Weekly => begin.checked_add_days(Days::new(7)),
            Kind::Monthly => begin.checked_add_months(Months::new(1)),
        };
        end.unwrap_or(begin)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    type Times = Vec<DateTime<Utc>>;

    fn keep(hourly: u32, daily: u32, weekly: u32, monthly: u32) -> SnapshotCounts {
        SnapshotCounts { hourly, daily, weekly, monthly }
    }

    fn at(text: &str) -> DateTime<Utc> {
        NaiveDateTime::parse_from_str(text, "%Y-%m-%d %H:%M").unwrap().and_utc()
    }

    fn secs(secs: i64) -> DateTime<Utc> {
        DateTime::from_timestamp(secs, 0).unwrap()
    }

    fn without(taken: &[DateTime<Utc>], places: &[usize]) -> Times {
        (0..taken.len()).filter(|place| !places.contains(place)).map(|place| taken[place]).collect()
    }

    /// A life of a volume that changes all the time: the clock is looked at at these times.
    fn live(keep: &SnapshotCounts, clock: &[DateTime<Utc>]) -> Times {
        let mut taken = Times::new();
        for now in clock {
            if is_due(keep, &taken, *now) {
                taken.push(*now);
            }
            taken = without(&taken, &unneeded(keep, &taken));
        }
        taken
    }

    #[test]
    fn names_are_those_of_the_schedule_alone() {
        assert_eq!(name_at(at("2026-11-25 04:07")).as_deref(), Some("auto-2026-11-25_04-07Z"));
        assert_eq!(time_of("auto-2026-11-25_04-07Z"), Some(at("2026-11-25 04:07")));
        for other in [
            "",
            "auto",
            "auto-2026-11-25_04-07",
            "auto-2026-11-25_04-07Zx",
            "auto-2026-11-25_04-07Z-hourly",
            "auto-2026-11-25_04-07Z-1",
            "auto-2026-11-25_04-07Z-02",
            "auto-2026-11-25_04-07Z-+2",
            "auto-2026-11-25_04-07Z-1000",
            "auto-2026-11-5_04-007Z",
            "auto-+026-11-25_04-07Z",
            "auto-2026-11-25_24-00Z",
            "auto-2026-02-30_04-07Z",
            "auto-2026-11-25 04-07Z",
            "Auto-2026-11-25_04-07Z",
            "2026-11-25_04-07-00Z",
            "before the holiday",
        ] {
            assert_eq!(time_of(other), None, "{other}");
        }
        assert_eq!(name_at(DateTime::<Utc>::MAX_UTC), None);
        assert_eq!(name_at(DateTime::<Utc>::MIN_UTC), None);
    }

    #[test]
    fn a_year_of_hours() {
        let keep = keep(24, 30, 8, 12);
        let start = at("2025-11-25 04:00").timestamp();
        let clock: Times = (0..366 * 24).map(|hour| secs(start + hour * 3600 + 5)).collect();
        let taken = live(&keep, &clock);
        let last = clock[clock.len() - 1];
        assert_eq!(taken.last(), Some(&last));
        assert_eq!(counts(&keep, &taken), keep);
        let since = |days| taken.iter().filter(|at| last - **at < chrono::TimeDelta::days(days)).count();
        assert_eq!(since(1), 24, "each hour of the last day");
        assert_eq!(
            since(30),
            24 + 28,
            "the last of each of the days before: 24 hours reach into two days, which are in both"
        );
        for at in taken.iter().filter(|at| last - **at > chrono::TimeDelta::days(40)) {
            let next_hour = *at + chrono::TimeDelta::hours(1);
            let (begins_week, begins_month) = (next_hour.weekday().num_days_from_monday() == 0, next_hour.day() == 1);
            assert!(begins_week || begins_month, "{at} is the last of a week or month");
        }
        assert!(taken.len() <= 24 + 30 + 8 + 12);
    }

    #[test]
    fn one_is_due_in_each_period_without_one() {
        let daily = keep(0, 7, 0, 0);
        let taken = [at("2026-11-25 08:00")];
        assert!(is_due(&daily, &[], at("2026-11-25 08:00")));
        assert!(!is_due(&daily, &taken, at("2026-11-25 23:59")));
        assert!(!is_due(&daily, &taken, at("2026-11-25 07:10")), "the clock was set back a little");
        assert!(is_due(&daily, &taken, at("2026-11-25 00:00")), "the clock was set back");
        assert!(is_due(&daily, &taken, at("2026-11-26 00:00")));
        assert!(is_due(&daily, &taken, at("2019-01-01 00:00")), "the clock was set back by years");
        assert!(is_due(&daily, &[at("2099-01-01 00:00")], at("2026-11-25 00:00")), "one from the future");
        let weekly = keep(0, 0, 4, 0);
        assert!(!is_due(&weekly, &[at("2026-11-23 00:00")], at("2026-11-29 23:00")), "Monday to Sunday");
        assert!(is_due(&weekly, &[at("2026-11-29 23:00")], at("2026-11-30 00:00")));
        assert!(is_due(&keep(0, 0, 4, 4), &[at("2026-11-30 00:00")], at("2026-12-01 00:00")), "a new month");
        assert!(!is_due(&keep(0, 0, 0, 0), &[], at("2026-11-30 00:00")));
    }

    /// Each day has one, whatever the clock said before it was put right.
    #[test]
    fn a_clock_that_was_ahead_costs_no_day() {
        let daily = keep(0, 30, 0, 0);
        let day = |n: i64| at("2026-11-25 00:00") + TimeDelta::days(n);
        let ahead = (5..11).map(day);
        let right = (6..12).map(|n| day(n) + TimeDelta::hours(3));
        let clock: Times = ahead.chain(right.clone()).collect();
        let taken = live(&daily, &clock);
        assert!(right.clone().all(|at| taken.contains(&at)), "{taken:?}");
        // A board without a battery, which begins each time in 1970 and stays there for five hours.
        let mut lives = Times::new();
        for _ in 0..10 {
            let before = lives.len();
            for now in (0..5).map(|hour| secs(hour * 3600 + 10)) {
                if is_due(&daily, &lives[before..], now) {
                    lives.push(now);
                }
            }
            assert_eq!(lives.len(), before + 1, "one of this life");
            lives = without(&lives, &unneeded(&daily, &lives));
        }
        let names: Vec<String> = names_at(secs(10)).take(3).collect();
        assert_eq!(names, ["auto-1970-01-01_00-00Z", "auto-1970-01-01_00-00Z-2", "auto-1970-01-01_00-00Z-3"]);
        assert!(names.iter().all(|name| time_of(name) == Some(secs(0))));
    }

    #[test]
    fn the_next_one() {
        let daily = keep(0, 7, 0, 0);
        let now = at("2026-11-25 08:30");
        assert_eq!(next(&daily, &[], now), at("2026-11-25 09:00"), "overdue: tried every hour");
        assert_eq!(next(&daily, &[at("2026-11-25 01:00")], now), at("2026-11-26 00:00"));
        let ahead = [at("2026-11-25 01:00"), at("2026-11-26 01:00"), at("2026-11-27 01:00")];
        assert_eq!(next(&daily, &ahead, now), at("2026-11-25 09:00"), "the clock was set back: overdue");
        assert_eq!(next(&keep(3, 7, 0, 1), &[at("2026-11-25 08:00")], now), at("2026-11-25 09:00"));
    }

    fn arrival(named: &str, arrived: &str) -> Arrival {
        Arrival { named: at(named), arrived: at(arrived) }
    }

    /// The names of those that stay.
    fn left_of(keep: &SnapshotCounts, arrivals: &[Arrival], now: &str) -> Vec<String> {
        let gone = unneeded_arrivals(keep, arrivals, at(now));
        let stays = (0..arrivals.len()).filter(|place| !gone.contains(place));
        stays.map(|place| arrivals[place].named.format("%m-%d_%H").to_string()).collect()
    }

    #[test]
    fn a_sender_that_says_anything_displaces_nothing_before_its_time() {
        let daily = keep(0, 3, 0, 0);
        // Three honest ones arrived at once: a first replication.
        let honest = ["2026-11-20 04:00", "2026-11-21 04:00", "2026-11-22 04:00"];
        let honest: Vec<Arrival> = honest.iter().map(|named| arrival(named, "2026-11-22 10:00")).collect();
        let names = ["11-20_04", "11-21_04", "11-22_04"].map(str::to_owned);
        // Then as many as somebody likes, on that day: of the past, of the present, of the same days again.
        let mut all = honest.clone();
        for day in 1..=22 {
            for hour in 0..24 {
                all.push(arrival(&format!("2026-11-{day:02} {hour:02}:30"), "2026-11-22 11:00"));
            }
        }
        for now in ["2026-11-22 12:00", "2026-11-23 23:00", "2026-11-24 23:59"] {
            let left = left_of(&daily, &all, now);
            assert!(names.iter().all(|name| left.contains(name)), "{now}: {left:?}");
        }
        // Three days have passed.
        assert!(!names.iter().all(|name| left_of(&daily, &all, "2026-11-25 23:59").contains(name)));
        // A clock that goes back, or a moment out of all bounds, takes nothing.
        assert_eq!(left_of(&daily, &all, "2019-11-25 23:59").len(), all.len());
        assert_eq!(unneeded_arrivals(&daily, &all, DateTime::<Utc>::MIN_UTC), Vec::<usize>::new());
    }

    #[test]
    fn each_of_a_day_stays_for_a_day() {
        let daily = keep(0, 3, 0, 0);
        let today = ["2026-11-22 04:00", "2026-11-22 05:00", "2026-11-22 06:00"];
        let all: Vec<Arrival> = today.iter().map(|named| arrival(named, named)).collect();
        assert_eq!(left_of(&daily, &all, "2026-11-22 23:00").len(), 3);
        assert_eq!(left_of(&daily, &all, "2026-11-23 07:00"), ["11-22_04", "11-22_06"], "the first, and the last");
    }

    #[test]
    fn a_replica_that_follows_is_thinned_as_its_volume_is() {
        let keep = keep(24, 7, 0, 0);
        let start = at("2026-01-01 00:00").timestamp();
        let mut all: Vec<Arrival> = Vec::new();
        for hour in 0..24 * 30 {
            let now = secs(start + hour * 3600);
            all.push(Arrival { named: now, arrived: now });
            let gone = unneeded_arrivals(&keep, &all, now);
            all = (0..all.len()).filter(|place| !gone.contains(place)).map(|place| all[place]).collect();
        }
        // The last 24 hours, and of each day before the first and the last.
        assert!(all.len() <= 25 + 2 * 7, "{}", all.len());
        assert_eq!(counts(&keep, &all.iter().map(|one| one.named).collect::<Vec<_>>()), keep);
    }

    #[test]
    fn names_from_the_future_are_not_the_schedules() {
        let now = at("2026-11-25 04:07");
        for name in ["auto-2026-11-25_04-07Z", "auto-2026-11-26_04-07Z", "auto-2006-11-26_04-07Z"] {
            assert!(plausible_time_of(name, now).is_some(), "{name}");
        }
        for name in ["auto-2026-11-26_04-08Z", "auto-2030-01-01_00-00Z", "auto-9999-01-01_00-00Z", "auto"] {
            assert_eq!(plausible_time_of(name, now), None, "{name}");
        }
    }

    #[test]
    fn a_day_in_a_wrong_year_costs_no_more_than_a_day() {
        let keep = keep(24, 30, 8, 12);
        let hours = |from: &str, count: i64| -> Times {
            let from = at(from).timestamp();
            (0..count).map(|hour| secs(from + hour * 3600)).collect()
        };
        let right = hours("2026-01-01 00:00", 24 * 300);
        let mut clock = right.clone();
        for wrong in ["2099-01-01 00:00", "1970-01-01 00:00"] {
            clock.truncate(right.len());
            clock.extend(hours(wrong, 24));
            let after = live(&keep, &clock);
            let lost = live(&keep, &right).iter().filter(|at| !after.contains(at)).count();
            assert!(lost <= 24 + 1 + 1 + 1, "{lost} were destroyed");
            assert!(counts(&keep, &after).monthly >= 11);
            clock.extend(hours("2026-10-29 00:00", 24 * 40));
            let later = live(&keep, &clock);
            assert!(later.iter().filter(|at| at.year() == 2026).count() > 24 + 25 + 5, "it goes on as before");
        }
    }

    /// Looks at the clock that go forward by hours, stand still, and jump by years in both directions.
    fn clocks() -> impl Strategy<Value = Times> {
        const YEAR: i64 = 365 * 24 * 3600;
        let step = prop_oneof![
            12 => Just(3600i64),
            4 => 0..7200i64,
            3 => 0..40 * 24 * 3600i64,
            1 => -50 * 3600..0i64,
            1 => -80 * YEAR..80 * YEAR,
        ];
        prop::collection::vec(step, 1..120).prop_map(|steps| {
            let mut now = 1_790_000_000i64;
            let mut walk = |step: i64| {
                now = (now + step).clamp(-2_000_000_000, 20_000_000_000);
                secs(now)
            };
            steps.into_iter().map(&mut walk).collect()
        })
    }

    fn keeps() -> impl Strategy<Value = SnapshotCounts> {
        let any = (0..6u32, 0..6u32, 0..4u32, 0..4u32);
        any.prop_map(|(h, d, w, m)| keep(h, d, w, m)).prop_filter("keeps nothing", |keep| kinds(keep).count() > 0)
    }

    proptest! {
        #[test]
        fn what_a_period_needs_stays(keep in keeps(), clock in clocks()) {
            let gone = unneeded(&keep, &clock);
            let left = without(&clock, &gone);
            prop_assert_eq!(left.last(), clock.last(), "the newest stays");
            prop_assert!(left.len() as u32 <= keep.hourly + keep.daily + keep.weekly + keep.monthly);
            prop_assert_eq!(unneeded(&keep, &left), Vec::<usize>::new(), "thinned once is thinned");
            prop_assert_eq!(counts(&keep, &left), counts(&keep, &clock));
            for (kind, count) in kinds(&keep) {
                // Told in another way: a place is needed if it is the last of its period, and fewer than `count` periods end later.
                let is_last = |place: usize| !clock[place + 1..].iter().any(|at| kind.begin(*at) == kind.begin(clock[place]));
                for place in (0..clock.len()).filter(|place| is_last(*place)) {
                    let later = (place + 1..clock.len()).filter(|place| is_last(*place)).count();
                    prop_assert!(later >= count as usize || !gone.contains(&place), "{place} is needed");
                }
            }
        }

        #[test]
        fn an_arrival_that_was_first_stays_for_its_periods(keep in keeps(), clock in clocks(), names in clocks(), pause in 0..40i64) {
            let mut arrived = clock;
            arrived.sort();
            let all: Vec<Arrival> =
                arrived.iter().zip(&names).map(|(&arrived, &named)| Arrival { named, arrived }).collect();
            let now = all.last().map_or(secs(0), |last| last.arrived) + TimeDelta::hours(pause);
            let gone = unneeded_arrivals(&keep, &all, now);
            for (kind, count) in kinds(&keep) {
                for (place, one) in all.iter().enumerate().filter(|(place, _)| gone.contains(place)) {
                    prop_assert!(now - one.arrived >= TimeDelta::days(1));
                    let is_first = place == 0 || kind.begin(all[place - 1].arrived) != kind.begin(one.arrived);
                    let passed = kind.number(now) - kind.number(one.arrived);
                    prop_assert!(!is_first || passed >= i64::from(count), "{place} went after {passed}");
                }
            }
        }

        #[test]
        fn thinning_at_each_step_is_thinning_at_the_end(keep in keeps(), clock in clocks()) {
            let mut at_each = Times::new();
            for now in &clock {
                at_each.push(*now);
                at_each = without(&at_each, &unneeded(&keep, &at_each));
            }
            prop_assert_eq!(at_each, without(&clock, &unneeded(&keep, &clock)));
        }

        #[test]
        fn no_period_gets_a_second_one_and_none_waits_for_ever(keep in keeps(), clock in clocks()) {
            let mut taken = Times::new();
            for now in clock {
                let due = is_due(&keep, &taken, now);
                let lately = since_set_back(&taken, now);
                let free = kinds(&keep).any(|(kind, _)| lately.iter().all(|at| kind.begin(*at) != kind.begin(now)));
                prop_assert_eq!(due, free);
                let next = next(&keep, &taken, now);
                prop_assert!(next > now && (due || is_due(&keep, &taken, next)));
                if due {
                    taken.push(now);
                    prop_assert!(!is_due(&keep, &taken, now));
                    prop_assert!(!is_due(&keep, &taken, Kind::Hourly.begin(now)), "set back within the hour");
                }
                taken = without(&taken, &unneeded(&keep, &taken));
            }
        }

        #[test]
        fn names_say_their_times(minutes in -1_000_000_000..4_200_000_000i64) {
            let at = secs(minutes * 60);
            let name = name_at(at).unwrap();
            prop_assert_eq!(time_of(&name), Some(at));
            prop_assert!(name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte)));
        }
    }
}
