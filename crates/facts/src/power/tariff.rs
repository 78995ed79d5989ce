//! The price of a kilowatt-hour, by the hour of the week.

use serde::Serialize;

use super::profile::kwh_per_year;

const MINUTES_PER_DAY: u32 = 24 * 60;
const MINUTES_PER_WEEK: u32 = 7 * MINUTES_PER_DAY;
/// Rounding, in prices times minutes.
const SAME_PRICE: f64 = 1e-6;
const DAYS: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];

/// A flat price, and windows of the week that have another.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Tariff {
    pub price_per_kwh: f64,
    pub currency: String,
    /// Of two that overlap the later one counts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub windows: Vec<Window>,
}

/// Certain hours of certain days. One that ends before it begins goes on after midnight.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Window {
    /// From Monday.
    pub days: [bool; 7],
    pub from_minute: u32,
    pub to_minute: u32,
    pub price_per_kwh: f64,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadTariff {
    #[error("'{0}' is not a price per kWh: write a number such as 0.39")]
    Price(String),
    #[error("'{0}' is not a time of day: write 22:00")]
    Time(String),
    #[error("'{0}' are not days: write mon-fri, sat,sun or all")]
    Days(String),
}

impl Tariff {
    pub fn flat(price_per_kwh: f64, currency: &str) -> Self {
        Self { price_per_kwh, currency: currency.to_owned(), windows: Vec::new() }
    }

    /// At a minute of the week, counted from Monday midnight.
    pub fn price_at(&self, minute: u32) -> f64 {
        let minute = minute % MINUTES_PER_WEEK;
        let window = self.windows.iter().rev().find(|w| w.covers(minute));
        window.map_or(self.price_per_kwh, |w| w.price_per_kwh)
    }

    /// Averaged over the week: the price of what runs all the time.
    pub fn mean_price(&self) -> f64 {
        if self.windows.is_empty() {
            return self.price_per_kwh;
        }
        (0..MINUTES_PER_WEEK).map(|minute| self.price_at(minute)).sum::<f64>() / f64::from(MINUTES_PER_WEEK)
    }

    /// The first minute of the week at which a job of that time costs least: a long one goes on beyond the cheapest hour.
    pub fn cheapest_start(&self, seconds: f64) -> u32 {
        if self.windows.is_empty() {
            return 0;
        }
        // Whole weeks cost the same whenever they begin.
        let minutes = ((seconds / 60.0).ceil() % f64::from(MINUTES_PER_WEEK)) as usize;
        let mut sums = vec![0.0];
        for minute in 0..2 * MINUTES_PER_WEEK {
            sums.push(sums.last().copied().unwrap_or(0.0) + self.price_at(minute));
        }
        let cost =
            |start: usize| sums.get(start + minutes).zip(sums.get(start)).map_or(0.0, |(end, begin)| end - begin);
        let mut best = (0, cost(0));
        for start in 1..MINUTES_PER_WEEK as usize {
            // Sums differ by rounding where prices do not.
            if cost(start) < best.1 - SAME_PRICE {
                best = (start, cost(start));
            }
        }
        best.0 as u32
    }

    pub fn per_year(&self, watts: f64) -> f64 {
        kwh_per_year(watts) * self.mean_price()
    }

    /// Of a job that begins at a minute of the week.
    pub fn of_job(&self, watts: f64, seconds: f64, start_minute: u32) -> f64 {
        if self.windows.is_empty() {
            return watts * seconds / 3_600_000.0 * self.price_per_kwh;
        }
        let (mut left, mut at, mut money) = (seconds, start_minute, 0.0);
        // A week costs the same as every other: only what is beyond whole ones is walked through.
        let week_s = f64::from(MINUTES_PER_WEEK) * 60.0;
        let weeks = (left / week_s).floor();
        money += weeks * week_s * self.mean_price();
        left -= weeks * week_s;
        while left > 0.0 {
            let step = left.min(60.0);
            money += step * self.price_at(at);
            left -= step;
            at += 1;
        }
        watts * money / 3_600_000.0
    }
}

impl Window {
    /// `days`: `all`, `mon-fri`, `sat,sun`; times: `22:00`.
    pub fn parse(days: &str, from: &str, to: &str, price_per_kwh: f64) -> Result<Self, BadTariff> {
        if !price_per_kwh.is_finite() || price_per_kwh < 0.0 {
            return Err(BadTariff::Price(price_per_kwh.to_string()));
        }
        Ok(Self { days: parse_days(days)?, from_minute: parse_time(from)?, to_minute: parse_time(to)?, price_per_kwh })
    }

    fn covers(&self, minute: u32) -> bool {
        let (day, at) = ((minute / MINUTES_PER_DAY) as usize, minute % MINUTES_PER_DAY);
        let on = |day: usize| self.days.get(day % 7).copied().unwrap_or(false);
        if self.from_minute < self.to_minute {
            return on(day) && (self.from_minute..self.to_minute).contains(&at);
        }
        // Past midnight it still belongs to the day on which it began.
        (on(day) && at >= self.from_minute) || (on(day + 6) && at < self.to_minute)
    }
}

/// `00:00` to `24:00`, in minutes.
fn parse_time(text: &str) -> Result<u32, BadTariff> {
    let bad = || BadTariff::Time(text.to_owned());
    let (hours, minutes) = text.split_once(':').ok_or_else(bad)?;
    let (hours, minutes): (u32, u32) = (hours.parse().map_err(|_| bad())?, minutes.parse().map_err(|_| bad())?);
    let total = hours.checked_mul(60).and_then(|h| h.checked_add(minutes)).ok_or_else(bad)?;
    if minutes < 60 && total <= MINUTES_PER_DAY { Ok(total) } else { Err(bad()) }
}

fn parse_days(text: &str) -> Result<[bool; 7], BadTariff> {
    let bad = || BadTariff::Days(text.to_owned());
    let day = |name: &str| DAYS.iter().position(|d| *d == name.trim()).ok_or_else(bad);
    let lower = text.to_lowercase();
    if lower == "all" {
        return Ok([true; 7]);
    }
    let mut days = [false; 7];
    for part in lower.split(',') {
        let (first, last) = match part.split_once('-') {
            Some((first, last)) => (day(first)?, day(last)?),
            None => (day(part)?, day(part)?),
        };
        // "fri-mon" goes over the end of the week.
        for offset in 0..=(last + 7 - first) % 7 {
            days[(first + offset) % 7] = true;
        }
    }
    Ok(days)
}

/// "Sat 22:00".
pub(super) fn minute_name(minute: u32) -> String {
    let (day, at) = ((minute / MINUTES_PER_DAY % 7) as usize, minute % MINUTES_PER_DAY);
    let name = DAYS.get(day).copied().unwrap_or("mon");
    format!("{}{} {:02}:{:02}", name[..1].to_uppercase(), &name[1..], at / 60, at % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The Pi box of the field notes, to the cent.
    #[test]
    fn a_year_costs_what_the_notes_say() {
        let tariff = Tariff::flat(0.39, "EUR");
        for (watts, cost) in [(17.0, "58.08"), (24.0, "81.99"), (26.0, "88.83"), (44.0, "150.32"), (63.0, "215.23")] {
            assert_eq!(format!("{:.2}", tariff.per_year(watts)), cost, "{watts} W");
        }
    }

    #[test]
    fn windows_change_the_price() {
        let night = Window::parse("all", "22:00", "06:00", 0.20).unwrap();
        let weekend = Window::parse("sat,sun", "00:00", "24:00", 0.10).unwrap();
        let tariff = Tariff { windows: vec![night, weekend], ..Tariff::flat(0.40, "EUR") };
        let at = |day: u32, hour: u32| tariff.price_at((day * 24 + hour) * 60);
        assert_eq!(
            [at(0, 12), at(0, 22), at(1, 5), at(1, 6), at(5, 12), at(6, 23)],
            [0.40, 0.20, 0.20, 0.40, 0.10, 0.10]
        );
        // Monday early: Sunday's night window reaches over the end of the week.
        assert_eq!(at(0, 5), 0.20);
        let mean = (5.0 * (16.0 * 0.40 + 8.0 * 0.20) + 2.0 * 24.0 * 0.10) / 168.0;
        assert!((tariff.mean_price() - mean).abs() < 1e-9, "{} {mean}", tariff.mean_price());
        assert_eq!(tariff.cheapest_start(600.0), 5 * 24 * 60);
        // Two days and a night: the weekend, and what is cheap before it.
        assert_eq!(minute_name(tariff.cheapest_start(50.0 * 3600.0)), "Fri 22:00");
        assert_eq!(minute_name(5 * 24 * 60 + 61), "Sat 01:01");
    }

    /// An hour for nothing at noon is no time for eight.
    #[test]
    fn a_long_job_begins_where_all_of_it_is_cheap() {
        let gift = Window::parse("sun", "12:00", "13:00", 0.0).unwrap();
        let night = Window::parse("all", "22:00", "06:00", 0.20).unwrap();
        let tariff = Tariff { windows: vec![night, gift], ..Tariff::flat(0.40, "EUR") };
        assert_eq!(minute_name(tariff.cheapest_start(3600.0)), "Sun 12:00");
        assert_eq!(minute_name(tariff.cheapest_start(8.0 * 3600.0)), "Mon 22:00");
        let begin = tariff.cheapest_start(24.0 * 3600.0);
        assert!(tariff.of_job(1000.0, 24.0 * 3600.0, begin) < 16.0 * 0.40 + 8.0 * 0.20 - 0.39);
        assert_eq!(Tariff::flat(0.39, "EUR").cheapest_start(600.0), 0);
    }

    #[test]
    fn a_job_pays_for_the_hours_it_runs_in() {
        let night = Window::parse("mon-sun", "22:00", "06:00", 0.20).unwrap();
        let tariff = Tariff { windows: vec![night], ..Tariff::flat(0.40, "EUR") };
        let hours = |h: f64| h * 3600.0;
        // 1 kW from 21:00 to 23:00.
        assert!((tariff.of_job(1000.0, hours(2.0), 21 * 60) - 0.60).abs() < 1e-9);
        let week = tariff.of_job(1000.0, hours(168.0), 300);
        assert!((week - 168.0 * tariff.mean_price()).abs() < 1e-6, "{week}");
        assert!((Tariff::flat(0.39, "EUR").of_job(98.0, 600.0, 0) - 98.0 / 6000.0 * 0.39).abs() < 1e-12);
    }

    #[test]
    fn what_is_no_tariff_is_refused() {
        for (days, from, to) in
            [("mon-", "1:00", "2:00"), ("x", "1:00", "2:00"), ("all", "25:00", "2:00"), ("all", "1", "2:00")]
        {
            assert!(Window::parse(days, from, to, 0.1).is_err(), "{days} {from} {to}");
        }
        assert!(Window::parse("all", "1:00", "2:00", f64::NAN).is_err());
        assert_eq!(parse_days("fri-mon").unwrap(), [true, false, false, false, true, true, true]);
    }
}
