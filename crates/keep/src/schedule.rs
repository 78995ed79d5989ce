//! How often something is done by itself, and when a scrub begins by itself: in the night, when nobody uses the pool.
//!
//! A machine that is switched off at night would never scrub; an overdue scrub begins at any time.

use std::time::Duration;

use larder_base::passed;

const DAY: Duration = Duration::from_secs(24 * 3600);
/// Hours of local time in which a scrub begins: from the first on, before the second.
const NIGHT: std::ops::Range<u32> = 3..6;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Schedule {
    Off,
    Daily,
    Weekly,
    #[default]
    Monthly,
    Quarterly,
}

impl Schedule {
    const ALL: [Schedule; 5] = [Self::Off, Self::Daily, Self::Weekly, Self::Monthly, Self::Quarterly];

    pub fn word(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Daily => "daily",
            Self::Weekly => "weekly",
            Self::Monthly => "monthly",
            Self::Quarterly => "quarterly",
        }
    }

    pub fn parse(text: &str) -> Result<Self, String> {
        let words = || Self::ALL.map(Self::word).join(", ");
        let found = Self::ALL.into_iter().find(|schedule| schedule.word() == text);
        found.ok_or_else(|| format!("'{text}' is not a schedule: use one of {}", words()))
    }

    /// `None`: never.
    pub fn interval(self) -> Option<Duration> {
        match self {
            Self::Off => None,
            Self::Daily => Some(DAY),
            Self::Weekly => Some(DAY * 7),
            Self::Monthly => Some(DAY * 30),
            Self::Quarterly => Some(DAY * 91),
        }
    }

    /// Whether a scrub begins now, at this hour of local time.
    pub fn is_due(self, last_ms: u64, now_ms: u64, hour: u32, is_busy: bool) -> bool {
        let Some(interval) = self.interval() else { return false };
        let since = Duration::from_millis(passed::since_ms(last_ms, now_ms));
        // An hour of grace: else each would begin an hour later than the one before.
        let due = since + Duration::from_secs(3600) >= interval;
        let overdue = since >= interval + interval / 2;
        overdue || (due && NIGHT.contains(&hour) && !is_busy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY_MS: u64 = 24 * 3600 * 1000;

    #[test]
    fn at_night_when_idle_or_at_any_time_when_overdue() {
        let check = |schedule: Schedule, days: u64, hour, busy| schedule.is_due(5, 5 + days * DAY_MS, hour, busy);
        assert!(check(Schedule::Weekly, 7, 3, false));
        assert!(!check(Schedule::Weekly, 7, 3, true), "somebody uses it");
        assert!(!check(Schedule::Weekly, 7, 12, false), "not by day");
        assert!(!check(Schedule::Weekly, 6, 4, false));
        assert!(check(Schedule::Weekly, 11, 12, true), "never at night, it seems");
        assert!(check(Schedule::Monthly, 30, 5, false) && !check(Schedule::Monthly, 30, 6, false));
        assert!(!check(Schedule::Off, 1000, 3, false));
        assert!(!Schedule::Daily.is_due(DAY_MS + 1000, DAY_MS, 3, false), "the clock was set back a little");
        assert!(Schedule::Daily.is_due(10 * DAY_MS, DAY_MS, 3, false), "the clock was wrong when it was scrubbed");
    }
}
