//! Whether the clock was set: wall time against the time since the start of the machine, sleep included.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use larder_config::times::local;

/// Time services slew less than this, and leap seconds are one.
const JUMP_MIN_S: i64 = 60;

/// The time, in milliseconds since 1970.
pub(crate) fn now_ms() -> u64 {
    u64::try_from(chrono::Utc::now().timestamp_millis()).unwrap_or(0)
}

/// A clock that is behind by less may be that of another machine which is ahead.
const BEHIND_MIN_MS: u64 = 10 * 60 * 1000;

/// In words, where the clock says less than a time that has passed: the newest of those that are known.
pub(crate) fn behind(now_ms: u64, passed: impl IntoIterator<Item = (String, u64)>) -> Option<String> {
    let (what, newest_ms) = passed.into_iter().max_by_key(|(_, at_ms)| *at_ms)?;
    let is_behind = now_ms.saturating_add(BEHIND_MIN_MS) < newest_ms;
    let (now, then) = (local(now_ms), local(newest_ms));
    is_behind.then(|| format!("The clock of this machine says {now}, and {what} was at {then}."))
}

pub(crate) struct Clock {
    wall_s: i64,
    boot_s: i64,
}

impl Clock {
    pub(crate) fn now() -> Self {
        let seconds = |clock| clock_gettime(clock).tv_sec;
        Self { wall_s: seconds(ClockId::Realtime), boot_s: seconds(ClockId::Boottime) }
    }

    /// Since the last question: what happened, in words.
    pub(crate) fn jumped(&mut self) -> Option<String> {
        let now = Self::now();
        let words = now.jump_since(self);
        *self = now;
        words
    }

    fn jump_since(&self, before: &Self) -> Option<String> {
        let jump = (self.wall_s - before.wall_s) - (self.boot_s - before.boot_s);
        let by = Duration::from_secs(jump.unsigned_abs());
        let way = if jump > 0 { "forward" } else { "back" };
        (jump.abs() >= JUMP_MIN_S).then(|| format!("The clock was set {way} by {}.", words(by)))
    }
}

fn words(span: Duration) -> String {
    let minutes = span.as_secs() / 60;
    match minutes {
        0..120 => format!("{minutes} min"),
        120..2880 => format!("{} hours", minutes / 60),
        _ => format!("{} days", minutes / 1440),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_before_a_time_that_passed_is_told() {
        let known = || [("the end of larder".to_owned(), 5_000_000), ("the release".to_owned(), 4_000_000)];
        assert_eq!(behind(5_000_000, known()), None);
        assert_eq!(behind(4_500_000, known()), None, "ten minutes are no matter");
        assert!(behind(0, known()).is_some_and(|text| text.contains("the end of larder")), "the newest");
        assert_eq!(behind(0, []), None);
    }

    #[test]
    fn sleep_is_no_jump() {
        let check = |wall: i64, boot: i64, words: Option<&str>| {
            let before = Clock { wall_s: 1000, boot_s: 10 };
            let now = Clock { wall_s: 1000 + wall, boot_s: 10 + boot };
            assert_eq!(now.jump_since(&before).as_deref(), words);
        };
        check(60, 60, None);
        check(8 * 3600, 8 * 3600, None);
        check(62, 60, None);
        check(60 + 3600, 60, Some("The clock was set forward by 60 min."));
        check(-86_400 * 3, 60, Some("The clock was set back by 3 days."));
    }
}
