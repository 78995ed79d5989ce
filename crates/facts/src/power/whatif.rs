//! Power states against the time of a job: energy is watts times time, so the lower of two powers is not
//! always the cheaper. A box that is done earlier goes back to idle earlier, and that counts: all settings are held
//! over the time of the slowest.

use serde::Serialize;

use super::Tariff;
use super::tariff::minute_name;

const SETTINGS_MAX: usize = 64;
/// No meter tells less than this from nothing.
const ALIKE: f64 = 1e-3;

/// How a job can be run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Setting {
    pub name: String,
    pub watts: f64,
    pub seconds: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Choice {
    #[serde(flatten)]
    pub setting: Setting,
    /// Of the job itself.
    pub job_wh: f64,
    /// And of waiting idle for the slowest.
    pub total_wh: f64,
    /// Missing without a price of a kWh.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_per_year: Option<f64>,
    /// Missing where the size of the job is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_per_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub joules_per_gib: Option<f64>,
}

/// The cheapest setting instead of another one. Negative figures are what it takes more.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Saving {
    pub instead_of: String,
    pub watts: f64,
    /// Each time, waiting included.
    pub wh: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_year: Option<f64>,
    /// The extra time of each job.
    pub seconds_longer: f64,
}

fn savings(choices: &[Choice]) -> Vec<Saving> {
    let Some((best, others)) = choices.split_first() else { return Vec::new() };
    let saving = |other: &Choice| Saving {
        instead_of: other.setting.name.clone(),
        watts: other.setting.watts - best.setting.watts,
        wh: other.total_wh - best.total_wh,
        per_year: other.cost_per_year.zip(best.cost_per_year).map(|(other, best)| other - best),
        seconds_longer: best.setting.seconds - other.setting.seconds,
    };
    others.iter().map(saving).collect()
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WhatIf {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub currency: Option<String>,
    pub idle_watts: f64,
    pub per_year: f64,
    /// The cheapest first.
    pub choices: Vec<Choice>,
    /// Savings of the cheapest setting against each other one, the least first.
    pub savings: Vec<Saving>,
    /// One sentence.
    pub verdict: String,
    /// With prices that change: when the job is cheapest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cheapest_start: Option<String>,
}

/// Which setting costs least, for a job of `bytes` (if known) that is run `per_year` times. `None`: no settings. Energy
/// has no need of a tariff.
pub fn what_if(
    settings: &[Setting],
    idle_watts: f64,
    bytes: Option<u64>,
    per_year: f64,
    tariff: Option<&Tariff>,
) -> Option<WhatIf> {
    let settings = settings.get(..settings.len().min(SETTINGS_MAX)).unwrap_or_default();
    let slowest = settings.iter().map(|s| s.seconds).fold(0.0, f64::max);
    let mut choices: Vec<Choice> = settings
        .iter()
        .map(|setting| {
            let job_j = setting.watts * setting.seconds;
            let waiting_s = slowest - setting.seconds;
            let priced = |tariff: &Tariff| {
                let start = tariff.cheapest_start(setting.seconds);
                let later = start.saturating_add((setting.seconds / 60.0) as u32);
                tariff.of_job(setting.watts, setting.seconds, start) + tariff.of_job(idle_watts, waiting_s, later)
            };
            let cost = tariff.map(priced);
            Choice {
                setting: setting.clone(),
                job_wh: job_j / 3600.0,
                total_wh: (job_j + idle_watts * waiting_s) / 3600.0,
                cost,
                cost_per_year: cost.map(|cost| cost * per_year),
                bytes_per_s: bytes.map(|b| b as f64 / setting.seconds),
                joules_per_gib: bytes.filter(|&b| b > 0).map(|b| job_j / (b as f64 / (1u64 << 30) as f64)),
            }
        })
        .collect();
    // With prices that change the least energy is not always the least money.
    let windows = tariff.is_some_and(|tariff| !tariff.windows.is_empty());
    let costs = |choice: &Choice| choice.cost.filter(|_| windows).unwrap_or(choice.total_wh);
    choices.sort_by(|a, b| costs(a).total_cmp(&costs(b)));
    let currency = tariff.map(|tariff| tariff.currency.clone());
    let verdict = verdict(&choices, currency.as_deref(), per_year)?;
    let begin = |(tariff, best): (&Tariff, &Choice)| minute_name(tariff.cheapest_start(best.setting.seconds));
    let cheapest_start = tariff.zip(choices.first()).filter(|_| windows).map(begin);
    let savings = savings(&choices);
    Some(WhatIf { currency, idle_watts, per_year, choices, savings, verdict, cheapest_start })
}

fn verdict(choices: &[Choice], currency: Option<&str>, per_year: f64) -> Option<String> {
    let (best, rest) = choices.split_first()?;
    let name = &best.setting.name;
    let Some(next) = rest.first() else {
        return Some(format!("{name} takes {:.2} Wh; there is nothing to compare it with", best.total_wh));
    };
    let saved = next.total_wh - best.total_wh;
    let percent = saved / next.total_wh.max(f64::MIN_POSITIVE) * 100.0;
    let money =
        next.cost_per_year.zip(best.cost_per_year).zip(currency).map_or(String::new(), |((next, best), currency)| {
            format!("; {:.2} {currency} a year at {per_year:.0} times", next - best)
        });
    let alike = |a: f64, b: f64| (a - b).abs() <= a.abs().max(b.abs()) * ALIKE;
    let same_money = next.cost.zip(best.cost).is_none_or(|(next, best)| alike(next, best));
    if alike(next.total_wh, best.total_wh) && same_money {
        let quick = choices.iter().min_by(|a, b| a.setting.seconds.total_cmp(&b.setting.seconds)).unwrap_or(best);
        return Some(format!(
            "it makes no difference: each takes {:.2} Wh; '{}' is done first",
            best.total_wh, quick.setting.name
        ));
    }
    let speed = match best.setting.seconds > next.setting.seconds {
        true => "although it is slower",
        false => "and is not slower",
    };
    if saved < 0.0 {
        let next = &next.setting.name;
        return Some(format!(
            "'{name}' costs least, at the cheapest time: it takes {:.2} Wh more than '{next}', of which more is cheap, {speed}{money}",
            -saved
        ));
    }
    Some(format!(
        "'{name}' costs least: {saved:.2} Wh ({percent:.1} %) less than '{}' each time, {speed}{money}",
        next.setting.name
    ))
}

/// Of two settings with one name nobody could tell which is meant, and of too many some would be left out.
pub fn check_settings(settings: &[Setting]) -> Result<(), String> {
    let known = |(n, setting): (usize, &Setting)| settings[..n].iter().any(|earlier| earlier.name == setting.name);
    if let Some((_, twice)) = settings.iter().enumerate().find(|pair| known(*pair)) {
        return Err(format!("'{}' is there twice: give each setting a name of its own", twice.name));
    }
    match settings.len() {
        0..=SETTINGS_MAX => Ok(()),
        n => Err(format!("{n} settings are too many: {SETTINGS_MAX} are compared at most")),
    }
}

/// No socket of a house gives more.
pub const WATTS_MAX: f64 = 3680.0;

/// The question about more watts than a socket gives.
pub fn absurd_watts(watts: f64) -> String {
    format!("{watts:.0} W is more than a socket gives (16 A at 230 V are {WATTS_MAX:.0} W): are those milliwatts?")
}

/// `NAME=WATTS:TIME`, such as `full=98W:10m36s`.
pub fn parse_setting(text: &str) -> Result<Setting, String> {
    let bad = || format!("'{text}' is not a setting: write NAME=WATTS:TIME, such as full=98W:10m36s");
    let (name, rest) = text.split_once('=').ok_or_else(bad)?;
    let (watts, time) = rest.split_once(':').ok_or_else(bad)?;
    let watts: f64 = watts.trim().trim_end_matches(['W', 'w']).trim().parse().map_err(|_| bad())?;
    let seconds = parse_time(time).ok_or_else(bad)?;
    let sensible = |value: f64| value.is_finite() && value > 0.0 && value < 1e9;
    if watts.is_finite() && watts > WATTS_MAX {
        return Err(absurd_watts(watts));
    }
    if name.trim().is_empty() || !sensible(watts) || !sensible(seconds) {
        return Err(bad());
    }
    Ok(Setting { name: name.trim().to_owned(), watts, seconds })
}

/// Seconds of `1.5h`, `10min` or `10m36s`: numbers with units, the largest unit first.
fn parse_time(text: &str) -> Option<f64> {
    const UNITS: &[(&[&str], f64)] =
        &[(&["h", "hours"], 3600.0), (&["m", "min", "minutes"], 60.0), (&["s", "sec"], 1.0)];
    let (mut rest, mut seconds, mut last) = (text.trim(), 0.0, f64::INFINITY);
    while !rest.is_empty() {
        let (number, after) = rest.split_at(rest.find(|c: char| !c.is_ascii_digit() && c != '.')?);
        let after = after.trim_start();
        let end = after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len());
        let (unit, after) = after.split_at(end);
        let (_, factor) = UNITS.iter().find(|(names, factor)| names.contains(&unit) && *factor < last)?;
        seconds += number.parse::<f64>().ok()? * factor;
        (rest, last) = (after.trim_start(), *factor);
    }
    (last < f64::INFINITY).then_some(seconds)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::power::tariff::Window;

    fn settings(texts: &[&str]) -> Vec<Setting> {
        texts.iter().map(|text| parse_setting(text).unwrap()).collect()
    }

    /// Field note D: a scrub of 6.84 TiB in 10 to 11 minutes at 85 to 98 W, idle at 34 W.
    #[test]
    fn the_scrub_of_the_notes() {
        let bytes = (6.84 * (1u64 << 40) as f64) as u64;
        let tariff = Tariff::flat(0.39, "EUR");
        let found =
            what_if(&settings(&["full=98W:10m", "saving=85W:11m"]), 34.0, Some(bytes), 12.0, Some(&tariff)).unwrap();
        let wh: Vec<String> =
            found.choices.iter().map(|c| format!("{} {:.2} {:.2}", c.setting.name, c.job_wh, c.total_wh)).collect();
        assert_eq!(wh, ["saving 15.58 15.58", "full 16.33 16.90"]);
        let rate = found.choices[1].bytes_per_s.unwrap() / (1u64 << 30) as f64;
        assert!((11.0..12.0).contains(&rate), "{rate} GiB/s");
        assert!((found.choices[0].joules_per_gib.unwrap() - 85.0 * 660.0 / (6.84 * 1024.0)).abs() < 1e-6);
        assert!(found.verdict.starts_with("'saving' costs least: 1.32 Wh"), "{}", found.verdict);
        assert!((found.choices[0].cost.unwrap() - 15.5833 / 1000.0 * 0.39).abs() < 1e-6);
    }

    #[test]
    fn the_lower_power_is_not_always_the_cheaper() {
        let tariff = Tariff::flat(0.39, "EUR");
        let found = what_if(&settings(&["slow=60:20m", "fast=90:10m"]), 30.0, None, 52.0, Some(&tariff)).unwrap();
        // 60 W for 20 minutes are 20 Wh; 90 W for 10 and then 10 idle at 30 are 20 Wh as well, at 0 W idle only 15.
        assert_eq!(format!("{:.3} {:.3}", found.choices[0].total_wh, found.choices[1].total_wh), "20.000 20.000");
        assert_eq!(found.verdict, "it makes no difference: each takes 20.00 Wh; 'fast' is done first");
        let found = what_if(&settings(&["slow=60:20m", "fast=90:10m"]), 5.0, None, 52.0, Some(&tariff)).unwrap();
        assert_eq!(found.choices[0].setting.name, "fast");
        assert!(what_if(&[], 5.0, None, 1.0, Some(&tariff)).is_none());
    }

    /// 20 hours do not fit into a cheap night, and 8 do.
    #[test]
    fn with_changing_prices_money_decides() {
        let night = Window::parse("all", "22:00", "06:00", 0.10).unwrap();
        let tariff = Tariff { windows: vec![night], ..Tariff::flat(0.50, "EUR") };
        let found = what_if(&settings(&["slow=40:20h", "fast=110:8h"]), 0.0, None, 12.0, Some(&tariff)).unwrap();
        // 880 Wh at 0.10, and 800 Wh of which 480 at 0.50.
        assert_eq!(found.choices[0].setting.name, "fast");
        assert!((found.choices[0].cost.unwrap() - 0.088).abs() < 1e-9);
        assert!((found.choices[1].cost.unwrap() - (0.24 + 0.032)).abs() < 1e-9);
        assert_eq!(found.cheapest_start.as_deref(), Some("Mon 22:00"));
        assert!(
            found.verdict.starts_with("'fast' costs least, at the cheapest time: it takes 80.00 Wh more"),
            "{}",
            found.verdict
        );
    }

    #[test]
    fn energy_needs_no_price() {
        let found = what_if(&settings(&["full=98W:10m", "saving=85W:11m"]), 34.0, None, 12.0, None).unwrap();
        assert!(found.choices.iter().all(|c| c.cost.is_none() && c.total_wh > 0.0));
        assert!(found.verdict.ends_with("although it is slower"), "{}", found.verdict);
    }

    #[test]
    fn each_setting_has_a_name_of_its_own() {
        assert_eq!(check_settings(&settings(&["a=90:10m", "b=90:10m"])), Ok(()));
        let twice = check_settings(&settings(&["a=90:10m", "b=60:20m", " a =30:1h"])).unwrap_err();
        assert!(twice.starts_with("'a' is there twice"), "{twice}");
        let many: Vec<Setting> = (0..65).map(|n| Setting { name: n.to_string(), watts: 1.0, seconds: 1.0 }).collect();
        assert!(check_settings(&many).unwrap_err().contains("64 are compared at most"));
        assert_eq!(check_settings(&many[..64]), Ok(()));
    }

    /// With the next best: the worst may be a setting that nobody would choose.
    #[test]
    fn a_setting_is_held_against_the_next_best() {
        let tariff = Tariff::flat(0.39, "EUR");
        let found = what_if(&settings(&["a=100:10m", "b=95:10m", "c=300:10m"]), 0.0, None, 100.0, Some(&tariff));
        let found = found.unwrap();
        assert!(found.verdict.starts_with("'b' costs least: 0.83 Wh (5.0 %) less than 'a'"), "{}", found.verdict);
        let told: Vec<(&str, f64)> = found.savings.iter().map(|s| (s.instead_of.as_str(), s.watts)).collect();
        assert_eq!(told, [("a", 5.0), ("c", 205.0)]);
        assert!((found.savings[0].per_year.unwrap() - 0.0325).abs() < 1e-4, "{:?}", found.savings);
        assert!(parse_setting("a=98000W:10m").unwrap_err().contains("more than a socket gives"));
    }

    #[test]
    fn settings_parse() {
        for (time, seconds) in
            [("1.5h", 5400.0), ("10m", 600.0), ("10min", 600.0), ("10m36s", 636.0), ("1 h 5 min", 3900.0)]
        {
            assert_eq!(parse_setting(&format!("a=98W:{time}")).unwrap().seconds, seconds, "{time}");
        }
        for bad in [
            "", "a", "a=1", "a=1:", "a=1:5", "=1:5m", "a=x:5m", "a=-1:5m", "a=nan:5m", "a=1:0s", "a=1:5é", "a=1:5s6m",
            "a=1:5m6",
        ] {
            assert!(parse_setting(bad).is_err(), "{bad}");
        }
    }
}
