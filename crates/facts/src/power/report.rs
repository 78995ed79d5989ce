//! A year of this box: energy, money, and what a terabyte and a gibibyte cost of it.

use serde::Serialize;

use super::compare::Yearly;
use super::profile::{Profile, kwh_per_year};
use super::tariff::Tariff;

#[derive(Clone, Debug)]
pub struct ReportInput {
    pub profile: Profile,
    /// Usable space, after redundancy.
    pub usable_bytes: Option<u64>,
    /// Bytes moved under load.
    pub bytes_per_s: Option<f64>,
    pub tariff: Tariff,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PowerReport {
    pub currency: String,
    /// Averaged over the week.
    pub price_per_kwh: f64,
    pub load_hours_per_day: f64,
    #[serde(flatten)]
    pub year: Yearly,
    pub idle_kwh: f64,
    pub load_kwh: f64,
    pub mean_kwh: f64,
    /// Of 10^12 bytes, idle.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub watts_per_tb: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_per_tb: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub joules_per_gib: Option<f64>,
    pub estimated: bool,
}

pub fn report(input: &ReportInput) -> PowerReport {
    let year = Yearly::of(&input.profile, &input.tariff);
    let terabytes = input.usable_bytes.filter(|&bytes| bytes > 0).map(|bytes| bytes as f64 / 1e12);
    let gib_per_s = input.bytes_per_s.filter(|&rate| rate > 0.0).map(|rate| rate / (1u64 << 30) as f64);
    PowerReport {
        currency: input.tariff.currency.clone(),
        price_per_kwh: input.tariff.mean_price(),
        load_hours_per_day: input.profile.load_hours_per_day,
        idle_kwh: kwh_per_year(year.idle_watts),
        load_kwh: kwh_per_year(year.load_watts),
        mean_kwh: kwh_per_year(year.mean_watts),
        watts_per_tb: terabytes.map(|tb| year.idle_watts / tb),
        cost_per_tb: terabytes.map(|tb| year.mean_cost / tb),
        joules_per_gib: gib_per_s.map(|rate| year.load_watts / rate),
        estimated: input.profile.estimated,
        year,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The Pi box: 4 x 8 TB as RAID 0, 24 W while it writes 96.7 MB/s over NFS.
    #[test]
    fn a_terabyte_and_a_gibibyte_of_the_pi_box() {
        let profile = Profile { idle_watts: 17.0, load_watts: 24.0, load_hours_per_day: 2.0, estimated: false };
        let input = ReportInput {
            profile,
            usable_bytes: Some(32_000_000_000_000),
            bytes_per_s: Some(96.7e6),
            tariff: Tariff::flat(0.39, "EUR"),
        };
        let found = report(&input);
        let shown = |value: f64| format!("{value:.2}");
        assert_eq!(
            [shown(found.idle_kwh), shown(found.year.idle_cost), shown(found.year.load_cost)],
            ["148.92", "58.08", "81.99"]
        );
        assert_eq!(found.watts_per_tb, Some(17.0 / 32.0));
        assert_eq!(shown(found.joules_per_gib.unwrap()), "266.49");
        assert_eq!(shown(found.year.mean_watts), "17.58");
        let bare = report(&ReportInput { usable_bytes: Some(0), bytes_per_s: None, ..input });
        assert_eq!((bare.watts_per_tb, bare.joules_per_gib), (None, None));
    }
}
