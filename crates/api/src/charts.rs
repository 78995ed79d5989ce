//! What the box did and drew over time.

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Charts {
    /// Hour, day, month, year.
    pub spans: Vec<ChartSpan>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum ChartSpanName {
    Hour,
    Day,
    Month,
    Year,
}

impl ChartSpanName {
    pub const ALL: [Self; 4] = [Self::Hour, Self::Day, Self::Month, Self::Year];

    pub fn word(self) -> &'static str {
        match self {
            Self::Hour => "hour",
            Self::Day => "day",
            Self::Month => "month",
            Self::Year => "year",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ChartSpan {
    pub span: ChartSpanName,
    /// The time that a sample stands for.
    pub step_s: u64,
    /// Oldest first. While larder does not run there are none.
    pub samples: Vec<ChartSample>,
}

/// Means of a time; absent where nothing was known.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ChartSample {
    /// When it began, in seconds since 1970.
    pub at_s: u64,
    /// Bytes of files that clients read.
    pub read_bytes_per_s: Option<f64>,
    pub written_bytes_per_s: Option<f64>,
    /// Of all disks of pools together.
    pub disk_calls_per_s: Option<f64>,
    /// Of one call.
    pub disk_latency_us: Option<f64>,
    /// Of the whole machine, where something measures it.
    pub watts: Option<f64>,
    /// The hottest disk.
    pub disk_celsius: Option<f64>,
}
