//! What a UPS or a battery says, and where that comes from.

use serde::{Deserialize, Serialize};

use crate::send::Secret;

/// Where the answers come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A server of Network UPS Tools.
    Nut { address: String, name: String, user: Option<String>, password: Option<Secret> },
    /// Batteries that the kernel knows: a folder such as /sys/class/power_supply.
    Battery(std::path::PathBuf),
}

/// One answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reading {
    pub on_battery: bool,
    /// It says itself that it is about to end.
    pub is_low: bool,
    /// Whoever owns the UPS has ordered everybody to stop.
    pub is_forced: bool,
    pub replace_battery: bool,
    pub charge_percent: Option<u32>,
    pub runtime_s: Option<u64>,
    pub load_percent: Option<u32>,
    pub model: Option<String>,
}

impl Reading {
    /// In words, as in "on battery, 84 %, 12 min left".
    pub fn words(&self) -> String {
        let mut parts = vec![if self.on_battery { "on battery" } else { "on mains" }.to_owned()];
        if self.is_low {
            parts.push("battery low".to_owned());
        }
        if self.replace_battery {
            parts.push("battery worn out".to_owned());
        }
        parts.extend(self.charge_percent.map(|charge| format!("{charge} %")));
        parts.extend(self.runtime_s.map(|seconds| format!("{} min left", seconds / 60)));
        parts.extend(self.load_percent.map(|load| format!("load {load} %")));
        parts.join(", ")
    }
}
