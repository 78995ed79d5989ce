//! This box beside another: what it saves, and when that has paid for it.

use serde::Serialize;

use super::profile::Profile;
use super::tariff::Tariff;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    pub currency: String,
    pub this: Yearly,
    pub other: Yearly,
    /// Of a year; negative when this box costs more.
    pub saved_per_year: f64,
    /// The price of this box.
    pub invested: f64,
    /// `null`: never.
    pub payback_years: Option<f64>,
    pub estimated: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Yearly {
    pub idle_watts: f64,
    pub load_watts: f64,
    pub mean_watts: f64,
    pub idle_cost: f64,
    pub load_cost: f64,
    pub mean_cost: f64,
}

impl Yearly {
    pub(super) fn of(profile: &Profile, tariff: &Tariff) -> Self {
        let mean_watts = profile.mean_watts();
        Self {
            idle_watts: profile.idle_watts,
            load_watts: profile.load_watts,
            mean_watts,
            idle_cost: tariff.per_year(profile.idle_watts),
            load_cost: tariff.per_year(profile.load_watts),
            mean_cost: tariff.per_year(mean_watts),
        }
    }
}

pub fn compare(this: &Profile, other: &Profile, invested: f64, tariff: &Tariff) -> Comparison {
    let (mine, theirs) = (Yearly::of(this, tariff), Yearly::of(other, tariff));
    let saved = theirs.mean_cost - mine.mean_cost;
    Comparison {
        currency: tariff.currency.clone(),
        this: mine,
        other: theirs,
        saved_per_year: saved,
        invested,
        payback_years: (saved > 0.0).then(|| invested / saved),
        estimated: this.estimated || other.estimated,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(idle_watts: f64, load_watts: f64, load_hours_per_day: f64) -> Profile {
        Profile { idle_watts, load_watts, load_hours_per_day, estimated: false }
    }

    /// The Pi box beside the one it replaces: 92.24 a year, just under 25 years for 1880 + 50 + 350.
    #[test]
    fn the_pi_box_pays_back_in_just_under_25_years() {
        let tariff = Tariff::flat(0.39, "EUR");
        let found = compare(&profile(17.0, 26.0, 0.0), &profile(44.0, 63.0, 0.0), 1880.0 + 50.0 + 350.0, &tariff);
        let shown = |money: f64| format!("{money:.2}");
        assert_eq!(shown(found.saved_per_year), "92.24");
        assert_eq!([shown(found.this.idle_cost), shown(found.this.load_cost)], ["58.08", "88.83"]);
        assert_eq!([shown(found.other.idle_cost), shown(found.other.load_cost)], ["150.32", "215.23"]);
        let years = found.payback_years.unwrap();
        assert!((24.5..25.0).contains(&years), "{years}");
    }

    #[test]
    fn what_costs_more_never_pays_back() {
        let tariff = Tariff::flat(0.39, "EUR");
        let found = compare(&profile(44.0, 63.0, 0.0), &profile(17.0, 26.0, 0.0), 100.0, &tariff);
        assert_eq!((found.payback_years, found.saved_per_year < 0.0), (None, true));
        assert_eq!(profile(10.0, 34.0, 6.0).mean_watts(), 16.0);
    }
}
