//! What the command line and the page say of power in common: answers, and the profile of a box.

use larder_api::Failure;
use larder_config::power::PowerConfig;
use larder_facts::power::{self, Profile, Readout, Summary};
use serde::Serialize;

/// The form of every JSON answer of `power`.
const VERSION: u32 = 1;

/// Every JSON answer: its version, and where its figures come from.
#[derive(Debug, Serialize)]
pub struct Answer<T> {
    pub version: u32,
    pub basis: String,
    #[serde(flatten)]
    pub found: T,
}

impl<T> Answer<T> {
    pub fn new(basis: String, found: T) -> Self {
        Self { version: VERSION, basis, found }
    }
}

/// The summary at the end of `watch`.
#[derive(Debug, Serialize)]
pub struct Watched {
    pub summary: Option<Summary>,
    /// The source of all readings, where they have one in common.
    pub source: Option<String>,
    pub estimated: bool,
    /// How often it did not answer: what lies between is taken for even.
    pub missed: u64,
    /// Read and written by all disks.
    pub moved_bytes: u64,
    /// Energy of the whole box for each GiB that its disks moved.
    pub joules_per_gib: Option<f64>,
}

/// Typed in, measured, or estimated from parts; and in words which of these.
pub fn profile(
    config: &PowerConfig,
    readout: &Readout,
    estimate: Option<Profile>,
) -> Result<(Profile, String), Failure> {
    let (load, load_hours_per_day) = (config.load_watts, config.load_hours_per_day.unwrap_or(0.0));
    if let Some(idle_watts) = config.idle_watts {
        let load_watts = load.unwrap_or(idle_watts);
        check_order("this box", idle_watts, load_watts)?;
        return Ok((Profile { idle_watts, load_watts, load_hours_per_day, estimated: false }, "typed in".to_owned()));
    }
    let total = readout.total.clone().ok_or_else(|| nothing_measures(readout))?;
    let estimated = total.basis == power::Basis::Estimated;
    if let Some(estimate) = estimate.filter(|_| total.source == "model") {
        let profile = Profile { load_watts: load.unwrap_or(estimate.load_watts), load_hours_per_day, ..estimate };
        return Ok((profile, "estimated from parts".to_owned()));
    }
    let idle_watts = total.watts;
    let profile = Profile { idle_watts, load_watts: load.unwrap_or(idle_watts), load_hours_per_day, estimated };
    let how = if estimated { "estimated by" } else { "measured now by" };
    Ok((profile, format!("{how} {}", total.source)))
}

/// Nothing tells the watts of the whole machine.
pub fn nothing_measures(readout: &Readout) -> Failure {
    let faults: Vec<String> = readout.faults.iter().map(ToString::to_string).collect();
    let why = if faults.is_empty() { String::new() } else { format!(" ({})", faults.join("; ")) };
    Failure::unavailable(format!("nothing tells how many watts the whole machine draws{why}"))
        .action("add a [[power.source]] (a plug with a meter, a UPS), or type them in: idle_watts = in [power], or --idle WATTS")
}

/// Nothing draws less for working.
pub fn check_order(what: &str, idle_watts: f64, load_watts: f64) -> Result<(), Failure> {
    match load_watts < idle_watts {
        true => Err(Failure::invalid(format!(
            "{what} draws {idle_watts} W idle and {load_watts} W under load: are they the other way round?"
        ))
        .action("give what it draws idle first, and no less under load")),
        false => Ok(()),
    }
}
