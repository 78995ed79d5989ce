//! Whether the clock was set: wall time against the time since the start of the machine, sleep included.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Time services slew less than this, and leap seconds are one.
const JUMP_MIN_S: i64 = 60;

/// The time, in milliseconds since 1970.
pub(super) fn now_ms() -> u64 {
    u64::try_from(chrono::Utc::now().timestamp_millis()).unwrap_or(0)
}

pub(super) struct Clock {
    wall_s: i64,
    boot_s: i64,
}

impl Clock {
    pub(super) fn now() -> Self {
        let seconds = |clock| clock_gettime(clock).tv_sec;
        Self { wall_s: seconds(ClockId::Realtime), boot_s: seconds(ClockId::Boottime) }
    }

    /// Since the last question: what happened, in words.
    pub(super) fn jumped(&mut self) -> Option<String> {
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
