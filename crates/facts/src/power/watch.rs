//! One meter's watts over time. A meter that does not answer leaves a gap: another's watts in it would be a mixture that
//! belongs to neither.

use std::time::Duration;

use super::{Basis, Meter, Reading, Readout, Scope, Summary};

#[derive(Clone, Debug, Default)]
pub struct Watch {
    meter: Meter,
    /// Whoever told the total first, and in words whether that is measured.
    source: Option<(String, Basis)>,
    missed: u64,
}

impl Watch {
    /// Adds the reading at a time since some beginning. `None`: the meter did not answer, or there is none.
    pub fn add(&mut self, at: Duration, readout: &Readout) -> Option<f64> {
        if self.source.is_none() {
            self.source = readout.total.as_ref().map(|total| (total.source.clone(), total.basis));
        }
        let (source, basis) = self.source.as_ref()?;
        let same = |r: &&Reading| r.source == *source && r.basis == *basis && r.scope != Scope::Part;
        let Some(reading) = readout.readings.iter().filter(same).min_by_key(|r| r.scope) else {
            self.missed += 1;
            return None;
        };
        self.meter.add(at, reading.watts);
        Some(reading.watts)
    }

    pub fn source(&self) -> Option<&str> {
        self.source.as_ref().map(|(name, _)| name.as_str())
    }

    pub fn is_estimated(&self) -> bool {
        self.source.as_ref().is_some_and(|(_, basis)| *basis == Basis::Estimated)
    }

    /// How often the meter did not answer.
    pub fn missed(&self) -> u64 {
        self.missed
    }

    pub fn summary(&self) -> Option<Summary> {
        self.meter.summary()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::power::{SourceError, Total};

    fn reading(source: &str, scope: Scope, basis: Basis, watts: f64) -> Reading {
        Reading { source: source.to_owned(), of: String::new(), scope, basis, watts, energy_wh: None }
    }

    fn readout(readings: Vec<Reading>) -> Readout {
        let best = readings.iter().filter(|r| r.scope != Scope::Part).min_by_key(|r| (r.basis, r.scope));
        let total = best.map(|r| Total { watts: r.watts, source: r.source.clone(), scope: r.scope, basis: r.basis });
        Readout { total, readings, faults: Vec::<SourceError>::new() }
    }

    #[test]
    fn a_plug_that_does_not_answer_leaves_a_gap() {
        let model = || reading("model", Scope::Outlet, Basis::Estimated, 60.0);
        let plug = |watts| reading("shelly", Scope::Outlet, Basis::Measured, watts);
        let mut watch = Watch::default();
        let at = Duration::from_secs;
        assert_eq!(watch.add(at(0), &readout(vec![plug(20.0), model()])), Some(20.0));
        assert_eq!(watch.add(at(1), &readout(vec![model()])), None);
        assert_eq!(watch.add(at(2), &readout(vec![])), None);
        assert_eq!(watch.add(at(3), &readout(vec![model(), plug(22.0)])), Some(22.0));
        let found = watch.summary().unwrap();
        assert_eq!((found.readings, found.max_watts, found.mean_watts, found.seconds), (2, 22.0, 21.0, 3.0));
        assert_eq!((watch.source(), watch.missed(), watch.is_estimated()), (Some("shelly"), 2, false));
    }

    #[test]
    fn without_a_meter_nothing_is_missed() {
        let mut watch = Watch::default();
        assert_eq!(watch.add(Duration::ZERO, &readout(vec![reading("rapl", Scope::Part, Basis::Measured, 9.0)])), None);
        assert_eq!((watch.source(), watch.missed(), watch.summary()), (None, 0, None));
    }
}
