//! How often something is done by itself.

use std::time::Duration;

const DAY: Duration = Duration::from_secs(24 * 3600);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Schedule {
    Off,
    Daily,
    Weekly,
    #[default]
    Monthly,
    Quarterly,
}

/// How often disks of pools test themselves. Off unless somebody asks for it: a test takes hours of a disk, and `smartd` of the
/// system may run its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SelfTestSchedule {
    pub(crate) short: Schedule,
    pub(crate) long: Schedule,
}

impl Default for SelfTestSchedule {
    fn default() -> Self {
        Self { short: Schedule::Off, long: Schedule::Off }
    }
}

impl Schedule {
    const ALL: [Schedule; 5] = [Self::Off, Self::Daily, Self::Weekly, Self::Monthly, Self::Quarterly];

    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Daily => "daily",
            Self::Weekly => "weekly",
            Self::Monthly => "monthly",
            Self::Quarterly => "quarterly",
        }
    }

    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let words = || Self::ALL.map(Self::word).join(", ");
        let found = Self::ALL.into_iter().find(|schedule| schedule.word() == text);
        found.ok_or_else(|| format!("'{text}' is not a schedule: use one of {}", words()))
    }

    /// `None`: never.
    pub(crate) fn interval(self) -> Option<Duration> {
        match self {
            Self::Off => None,
            Self::Daily => Some(DAY),
            Self::Weekly => Some(DAY * 7),
            Self::Monthly => Some(DAY * 30),
            Self::Quarterly => Some(DAY * 91),
        }
    }
}
