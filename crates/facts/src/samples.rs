//! A machine, and its work during a measurement.
//!
//! These types are part of the format of results: fields are added, never given another meaning.

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MachineFacts {
    pub host: String,
    /// Such as `Raspberry Pi 4 Model B Rev 1.4`, or a processor's name.
    pub model: String,
    pub processor: String,
    pub cores: u32,
    pub memory_bytes: u64,
    pub kernel: String,
}

/// `others.small_part`: a load that is held by a full core beside so much other work would hardly be quicker without.
pub const OTHERS_PERCENT_SMALL: f64 = 15.0;

/// The machine's work during a run. All series have as many values as `at_ms`; an unknown value is NaN in memory and
/// `null` in JSON.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Samples {
    /// Since the beginning of the bench: the end of each interval.
    pub at_ms: Vec<u64>,
    /// Percent of one core each.
    #[serde(default)]
    pub cores: Vec<CoreSeries>,
    #[serde(default)]
    pub disks: Vec<DiskSeries>,
    #[serde(default)]
    pub nets: Vec<NetSeries>,
    /// Degrees Celsius, by sensor.
    #[serde(default)]
    pub temperatures: Vec<Series>,
    /// MHz, by core.
    #[serde(default)]
    pub clocks: Vec<Series>,
    /// How often the processor was throttled because of heat or power, since the run began.
    #[serde(default)]
    pub throttled: u64,
    /// With the source's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub watts: Option<Series>,
    /// Percent of the periods in which a control group's quota held a server back, by the server.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub quotas: Vec<Series>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Series {
    pub name: String,
    #[serde(with = "holes")]
    pub values: Vec<f64>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CoreSeries {
    pub core: u32,
    #[serde(with = "holes")]
    pub user: Vec<f64>,
    #[serde(with = "holes")]
    pub nice: Vec<f64>,
    #[serde(with = "holes")]
    pub system: Vec<f64>,
    #[serde(with = "holes")]
    pub iowait: Vec<f64>,
    /// Hard and soft.
    #[serde(with = "holes")]
    pub irq: Vec<f64>,
    #[serde(with = "holes")]
    pub steal: Vec<f64>,
    /// The part of user, nice and system of programs that take no part in the load; empty where that is not known.
    #[serde(default, with = "holes", skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<f64>,
    /// The time in which threads of the load could have run there and did not; empty where that is not known.
    #[serde(default, with = "holes", skip_serializing_if = "Vec::is_empty")]
    pub waited: Vec<f64>,
}

impl CoreSeries {
    /// Percent at one moment, waiting left out; unknown parts count nothing.
    pub fn busy(&self, at: usize) -> f64 {
        let parts = [&self.user, &self.nice, &self.system, &self.irq];
        parts.iter().filter_map(|part| part.get(at)).filter(|value| value.is_finite()).sum::<f64>().clamp(0.0, 100.0)
    }

    pub fn others(&self, at: usize) -> f64 {
        self.others.get(at).copied().filter(|value| value.is_finite()).unwrap_or(0.0)
    }

    /// Of the load. A core of which it has nearly all is full of it, although somebody else has the rest
    /// (`others.small_part`).
    pub fn busy_of_load(&self, at: usize) -> f64 {
        let (busy, others) = (self.busy(at), self.others(at));
        // `others.wanted`: what the load waited for while others had the core would have been its own.
        let waited = self.waited.get(at).copied().filter(|value| value.is_finite()).unwrap_or(0.0).min(others);
        if others <= OTHERS_PERCENT_SMALL { busy } else { (busy - others + waited).max(0.0) }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DiskSeries {
    pub disk: String,
    /// Percent of the time in which it had something to do.
    #[serde(with = "holes")]
    pub busy: Vec<f64>,
    #[serde(with = "holes")]
    pub read_bytes_per_s: Vec<f64>,
    #[serde(with = "holes")]
    pub write_bytes_per_s: Vec<f64>,
    /// Mean milliseconds of a request.
    #[serde(with = "holes")]
    pub latency_ms: Vec<f64>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NetSeries {
    pub interface: String,
    #[serde(with = "holes")]
    pub receive_bytes_per_s: Vec<f64>,
    #[serde(with = "holes")]
    pub send_bytes_per_s: Vec<f64>,
    /// TCP segments sent again, of the whole machine, in the interval.
    #[serde(with = "holes")]
    pub retransmits: Vec<f64>,
    /// The rate of its link in one direction, where it has a speed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_per_s_max: Option<f64>,
}

/// NaN in memory is `null` in JSON.
mod holes {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(values: &[f64], to: S) -> Result<S::Ok, S::Error> {
        let values: Vec<Option<f64>> = values.iter().map(|v| v.is_finite().then_some(*v)).collect();
        values.serialize(to)
    }

    pub(super) fn deserialize<'d, D: Deserializer<'d>>(from: D) -> Result<Vec<f64>, D::Error> {
        let values = Vec::<Option<f64>>::deserialize(from)?;
        Ok(values.into_iter().map(|v| v.unwrap_or(f64::NAN)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_values_survive_json() {
        let series = Series { name: "x".into(), values: vec![1.5, f64::NAN] };
        let text = serde_json::to_string(&series).unwrap();
        assert_eq!(text, r#"{"name":"x","values":[1.5,null]}"#);
        let back: Series = serde_json::from_str(&text).unwrap();
        assert!(back.values[0] == 1.5 && back.values[1].is_nan());
    }
}
