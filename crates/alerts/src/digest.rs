//! The week in a message: health, room, what changed.

use larder_base::passed;

use crate::alerts::{Alert, DAY_MS};

pub const WEEK_MS: u64 = 7 * DAY_MS;
/// Lines of each part.
const LINES_MAX: usize = 20;

/// What a digest is made of.
#[derive(Clone, Debug, Default)]
pub struct Week<'a> {
    pub open: &'a [Alert],
    /// Began or ended within the week, oldest first.
    pub changed: &'a [Alert],
    /// A line for each pool.
    pub room: &'a [String],
    /// A line for each disk that is not simply well; how many are.
    pub disks: &'a [String],
    pub disks_well: usize,
}

impl Week<'_> {
    pub fn text(&self) -> String {
        let mut text = match self.open.len() {
            0 => "All is well: no alert is open.\n".to_owned(),
            1 => "1 alert is open:\n".to_owned(),
            n => format!("{n} alerts are open:\n"),
        };
        let line = |alert: &Alert| format!("{}: {}: {}", alert.severity, alert.key.subject, alert.text);
        list(&mut text, &self.open.iter().map(line).collect::<Vec<_>>());
        if !self.room.is_empty() {
            text.push_str("\nRoom\n");
            list(&mut text, self.room);
        }
        if self.disks_well + self.disks.len() > 0 {
            let all = self.disks_well + self.disks.len();
            text.push_str(&format!("\nDisks: {} of {all} are well\n", self.disks_well));
            list(&mut text, self.disks);
        }
        text.push_str(if self.changed.is_empty() { "\nNothing happened this week.\n" } else { "\nThis week\n" });
        let line = |alert: &Alert| {
            let over = if alert.ended_ms.is_some() { ", over" } else { "" };
            format!("{}: {}{over}", alert.key.event, alert.key.subject)
        };
        list(&mut text, &self.changed.iter().map(line).collect::<Vec<_>>());
        text
    }
}

fn list(text: &mut String, lines: &[String]) {
    for line in lines.iter().take(LINES_MAX) {
        text.push_str(&format!("- {line}\n"));
    }
    if lines.len() > LINES_MAX {
        text.push_str(&format!("- and {} more\n", lines.len() - LINES_MAX));
    }
}

/// Whether a digest is due: at `hour` of local time, a week after the last. The first comes at the first such hour.
pub fn is_due(last_ms: u64, now_ms: u64, hour_now: u32, hour: u32) -> bool {
    // Two hours of grace: else each would come later than the one before.
    let since = passed::since_ms(last_ms, now_ms) + 2 * 3600 * 1000;
    since >= WEEK_MS && (hour_now == hour || since >= WEEK_MS + DAY_MS)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::alerts::{Alerts, Condition};
    use crate::event::EventKind;

    #[test]
    fn a_week_reads_well() {
        let mut alerts = Alerts::default();
        alerts.look(0, &[Condition::is(EventKind::DiskMissing, "/disk1", "/disk1 is missing")], &[]);
        let open = alerts.open();
        let lines = ["tank: 1.2 TiB of 4 TiB used".to_owned()];
        let week = Week { open: &open, changed: &open, room: &lines, disks: &[], disks_well: 3 };
        let expected = "1 alert is open:\n- critical: /disk1: /disk1 is missing\n\nRoom\n- tank: 1.2 TiB of 4 TiB used\n\n\
                        Disks: 3 of 3 are well\n\nThis week\n- disk-missing: /disk1\n";
        assert_eq!(week.text(), expected);
        assert_eq!(Week::default().text(), "All is well: no alert is open.\n\nNothing happened this week.\n");
    }

    #[test]
    fn once_a_week_in_the_morning() {
        let due = |last_day: u64, day: u64, hour: u64| {
            is_due(last_day * DAY_MS, day * DAY_MS + hour * 3_600_000, hour as u32, 8)
        };
        assert!(!due(10, 17, 7) && due(10, 17, 8) && !due(10, 16, 8));
        assert!(due(10, 20, 15), "the box was off at eight");
    }
}
