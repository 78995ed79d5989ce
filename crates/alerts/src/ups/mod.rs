//! The battery behind this machine: what it says, and when to stop.
//!
//! - `ups.silence_is_no_power_cut`: without an answer nothing is stopped, unless the last answer was that it runs on the battery: then
//!   the time goes on, and a machine at the other end of a dead network stops as well.
//! - `ups.time_counts_from_the_first`: the time on the battery begins with the first answer that says so, and ends with the first
//!   that does not.

mod battery;
mod nut;
mod reading;

use std::time::Duration;

pub use battery::read_batteries;
pub use nut::Nut;
pub use reading::{Reading, Source};

/// When the machine is stopped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// So long on the battery; `None`: as long as it lasts.
    pub after: Option<Duration>,
    /// Percent of charge, on the battery.
    pub below_percent: Option<u32>,
}

/// What was said so far.
#[derive(Clone, Debug, Default)]
pub struct Ups {
    last: Option<Reading>,
    fault: Option<String>,
    /// On the injected clock.
    on_battery_since: Option<Duration>,
}

impl Ups {
    /// Takes in an answer, or why there is none. Returns why to stop now.
    pub fn take(&mut self, now: Duration, answer: Result<Reading, String>, limits: Limits) -> Option<String> {
        match answer {
            Ok(reading) => {
                self.on_battery_since = reading.on_battery.then(|| self.on_battery_since.unwrap_or(now));
                (self.last, self.fault) = (Some(reading), None);
            }
            Err(fault) => self.fault = Some(fault),
        }
        let reading = self.last.as_ref()?;
        if reading.is_forced {
            return Some("the UPS is about to be switched off".to_owned());
        }
        let since = self.on_battery_since?;
        if reading.is_low {
            return Some("the battery of the UPS is low".to_owned());
        }
        if let (Some(below), Some(charge)) = (limits.below_percent, reading.charge_percent)
            && charge < below
        {
            return Some(format!("the battery has {charge} %, less than stop_below"));
        }
        let on_for = now.saturating_sub(since);
        let is_over = limits.after.is_some_and(|after| on_for >= after);
        is_over.then(|| format!("the power has been away for {} s, as long as stop_after", on_for.as_secs()))
    }

    pub fn last(&self) -> Option<&Reading> {
        self.last.as_ref()
    }

    pub fn fault(&self) -> Option<&str> {
        self.fault.as_deref()
    }

    pub fn on_battery_for(&self, now: Duration) -> Option<Duration> {
        self.on_battery_since.map(|since| now.saturating_sub(since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(on_battery: bool, charge: u32) -> Reading {
        Reading { on_battery, charge_percent: Some(charge), ..Reading::default() }
    }

    /// The first second at which it stops, for these answers, one a second.
    fn stops(limits: Limits, answers: &[Result<Reading, &str>]) -> Option<usize> {
        let mut ups = Ups::default();
        answers.iter().enumerate().position(|(second, answer)| {
            let answer = answer.clone().map_err(str::to_owned);
            ups.take(Duration::from_secs(second as u64), answer, limits).is_some()
        })
    }

    #[test]
    fn it_stops_when_it_has_to_and_not_before() {
        let (mains, battery) = (Ok(reading(false, 100)), Ok(reading(true, 90)));
        let after = |seconds| Limits { after: Some(Duration::from_secs(seconds)), below_percent: None };
        let none = Limits::default();
        assert_eq!(stops(none, &vec![battery.clone(); 500]), None, "as long as it lasts");
        assert_eq!(stops(after(3), &vec![battery.clone(); 9]), Some(3));
        let back = [&vec![battery.clone(); 3][..], std::slice::from_ref(&mains), &vec![battery.clone(); 4]].concat();
        assert_eq!(stops(after(3), &back), Some(7), "the time begins anew");
        let low = Ok(Reading { is_low: true, ..reading(true, 50) });
        assert_eq!(stops(none, &[mains.clone(), battery.clone(), low]), Some(2));
        let low_on_mains = Ok(Reading { is_low: true, ..reading(false, 5) });
        assert_eq!(stops(none, &[low_on_mains]), None, "it charges");
        let forced = Ok(Reading { is_forced: true, ..reading(false, 100) });
        assert_eq!(stops(none, &[mains.clone(), forced]), Some(1));
        let below = Limits { after: None, below_percent: Some(40) };
        assert_eq!(stops(below, &[Ok(reading(false, 10)), Ok(reading(true, 40)), Ok(reading(true, 39))]), Some(2));
    }

    #[test]
    fn silence_is_no_power_cut_but_the_time_goes_on() {
        let limits = Limits { after: Some(Duration::from_secs(5)), below_percent: Some(50) };
        assert_eq!(stops(limits, &vec![Err("no answer"); 100]), None);
        assert_eq!(stops(limits, &[&[Ok(reading(false, 9))][..], &vec![Err("no answer"); 100]].concat()), None);
        let on_battery = [&[Ok(reading(true, 90))][..], &vec![Err("no answer"); 100]].concat();
        assert_eq!(stops(limits, &on_battery), Some(5));
    }
}
