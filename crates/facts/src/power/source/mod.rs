//! Sources of watts. Those of the machine itself (RAPL, sensors) are found; plugs and UPS are named in the configuration.

use std::time::Duration;

use serde::Serialize;

use crate::Machine;

mod error;
#[cfg(any(test, fuzzing))]
pub(super) mod fuzz;
mod http;
mod hwmon;
mod login;
mod model;
mod plug;
mod rapl;
mod reading;
mod ups;

pub use error::SourceError;
pub use login::Login;
use model::Model;
pub use model::PartSpec;
pub use reading::{Basis, Reading, Scope, Total};
pub use ups::variable as ups_variable;

/// More meters than this on one machine are a mistake.
const SOURCES_MAX: usize = 64;

/// A meter named in the configuration.
#[derive(Clone, Debug, PartialEq)]
pub enum SourceSpec {
    /// Gen1 or Gen2 and later: found out by asking.
    Shelly {
        address: String,
        channel: u8,
        login: Login,
    },
    Tasmota {
        address: String,
        channel: u8,
        login: Login,
    },
    Nut {
        address: String,
        ups: String,
    },
    /// A number that somebody read off a meter.
    Typed {
        watts: f64,
    },
}

#[derive(Debug)]
enum Source {
    Rapl(rapl::Rapl),
    Hwmon(hwmon::Hwmon),
    Named(SourceSpec),
}

/// All sources together, read at once.
#[derive(Debug)]
pub struct Sources {
    machine: Machine,
    sources: Vec<Source>,
    model: Option<Model>,
}

/// The readings of one look at all sources.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Readout {
    /// Of the whole machine; `null` when nothing can tell.
    pub total: Option<Total>,
    pub readings: Vec<Reading>,
    pub faults: Vec<SourceError>,
}

impl Sources {
    /// `parts`: what the machine is made of, where nothing measures; empty: guessed from what is found.
    pub fn new(machine: &Machine, specs: &[SourceSpec], parts: &[PartSpec], supply_efficiency: Option<f64>) -> Self {
        let mut sources = vec![Source::Rapl(rapl::Rapl::default()), Source::Hwmon(hwmon::Hwmon)];
        sources.extend(specs.iter().take(SOURCES_MAX).cloned().map(Source::Named));
        Self { machine: machine.clone(), sources, model: Model::new(machine, parts, supply_efficiency) }
    }

    /// Reads everything. Counters give watts from the second reading on: `now` is the time since some beginning.
    pub fn read(&mut self, now: Duration) -> Readout {
        let mut readout = Readout::default();
        for answer in self.answers(now) {
            match answer {
                Ok(readings) => readout.readings.extend(readings),
                Err(error) => readout.faults.push(error),
            }
        }
        readout.readings.extend(self.model.as_mut().and_then(|model| model.read(&self.machine)));
        readout.total = total(&readout.readings);
        readout
    }

    /// Of several plugs that are gone only one time-out is waited for.
    fn answers(&mut self, now: Duration) -> Vec<Result<Vec<Reading>, SourceError>> {
        let machine = &self.machine;
        if self.sources.iter().filter(|source| matches!(source, Source::Named(_))).count() < 2 {
            return self.sources.iter_mut().map(|source| source.read(machine, now)).collect();
        }
        std::thread::scope(|scope| {
            let ask = |source| scope.spawn(move || Source::read(source, machine, now));
            let asked: Vec<_> = self.sources.iter_mut().map(ask).collect();
            asked.into_iter().filter_map(|thread| thread.join().ok()).collect()
        })
    }

    /// The first look of counters, which give watts only from the second on. Nobody else is asked.
    pub fn begin(&mut self) {
        for source in self.sources.iter_mut().filter(|source| matches!(source, Source::Rapl(_))) {
            let _ = source.read(&self.machine, Duration::ZERO);
        }
    }

    /// Takes the password that a person typed for a source that was locked (`source_name` of its error).
    pub fn unlock(&mut self, source_name: &str, password: &str) {
        for source in &mut self.sources {
            let (kind, address, login) = match source {
                Source::Named(SourceSpec::Shelly { address, login, .. }) => ("shelly", address, login),
                Source::Named(SourceSpec::Tasmota { address, login, .. }) => ("tasmota", address, login),
                _ => continue,
            };
            if source_name == format!("{kind} {address}") {
                login.typed(password.to_owned());
            }
        }
    }

    /// Idle and load as estimated from parts.
    pub fn estimate(&self) -> Option<super::Profile> {
        self.model.as_ref().map(Model::profile)
    }
}

impl Source {
    fn read(&mut self, machine: &Machine, now: Duration) -> Result<Vec<Reading>, SourceError> {
        match self {
            Self::Rapl(rapl) => rapl.read(machine, now),
            Self::Hwmon(hwmon) => Ok(hwmon.read(machine)),
            Self::Named(SourceSpec::Shelly { address, channel, login }) => {
                plug::shelly(address, *channel, login).map(|r| vec![r])
            }
            Self::Named(SourceSpec::Tasmota { address, channel, login }) => {
                plug::tasmota(address, *channel, login).map(|r| vec![r])
            }
            Self::Named(SourceSpec::Nut { address, ups }) => ups::read(address, ups).map(|r| vec![r]),
            Self::Named(SourceSpec::Typed { watts }) => Ok(vec![Reading {
                source: "typed".to_owned(),
                of: "the machine, as somebody read it off".to_owned(),
                scope: Scope::Outlet,
                basis: Basis::Typed,
                watts: *watts,
                energy_wh: None,
            }]),
        }
    }
}

/// Measured before typed before estimated, and the wall before the board; parts never make a whole
/// (`power.parts_are_no_whole`).
fn total(readings: &[Reading]) -> Option<Total> {
    let best = readings.iter().filter(|r| r.scope != Scope::Part).min_by_key(|r| (r.basis, r.scope))?;
    Some(Total { watts: best.watts, source: best.source.clone(), scope: best.scope, basis: best.basis })
}

#[cfg(test)]
mod tests;
