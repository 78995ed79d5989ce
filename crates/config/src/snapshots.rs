//! How many automatic snapshots of a volume are kept: `snapshots = { hourly = 24, daily = 30, weekly = 8, monthly =
//! 12 }`.

use larder_api::SnapshotCounts;
use serde::Deserialize;

/// The largest count of a kind. Four kinds of this many are 10,000 snapshots; listing and destroying stay fast with as many.
const COUNT_MAX: u32 = 2_500;

#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct RawSnapshots {
    /// The newest one of so many hours.
    #[serde(default)]
    hourly: u32,
    /// The newest one of so many days.
    #[serde(default)]
    daily: u32,
    /// The newest one of so many weeks.
    #[serde(default)]
    weekly: u32,
    /// The newest one of so many months.
    #[serde(default)]
    monthly: u32,
}

impl RawSnapshots {
    pub(super) fn counts(&self) -> Result<SnapshotCounts, String> {
        let kinds =
            [("hourly", self.hourly), ("daily", self.daily), ("weekly", self.weekly), ("monthly", self.monthly)];
        if let Some((kind, count)) = kinds.iter().find(|(_, count)| *count > COUNT_MAX) {
            return Err(format!("{kind} = {count} is more than a volume keeps: give at most {COUNT_MAX}"));
        }
        if kinds.iter().all(|(_, count)| *count == 0) {
            return Err(
                "snapshots keeps none: give hourly, daily, weekly or monthly a number, or take the line out".to_owned()
            );
        }
        Ok(SnapshotCounts { hourly: self.hourly, daily: self.daily, weekly: self.weekly, monthly: self.monthly })
    }
}
