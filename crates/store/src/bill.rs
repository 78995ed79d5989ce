//! What a bucket costs, by the prices of the configuration.
//!
//! - `bill.counts_what_left`: requests are counted as they leave this machine, further tries included, as the server bills them.
//! - `bill.claims_nothing`: without prices there are counts and no sums; without a price of storage or of egress there is no word
//!   of it.
//! - `bill.hours_of_use`: the time that requests are divided by has only the minutes in which there was one. So "an hour" is one
//!   in which somebody works, however long the daemon has run.

use std::time::Duration;

use larder_base::metrics::Metrics;
use larder_base::units::ByteSize;

use crate::requests::{Kind, Requests};

/// An amount of money in billionths of the currency's unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Nanos(pub u64);

/// Units of money in a price beyond this are a mistake in the file.
const PRICE_MAX: f64 = 1_000_000.0;
const NANOS: f64 = 1e9;
const GIB: u128 = 1 << 30;
/// A rate per GiB needs about as many bytes as one segment has.
const WRITTEN_BYTES_MIN: u64 = 64 << 20;

impl Nanos {
    /// `None`: negative, not a number, or no price.
    pub fn of_units(units: f64) -> Option<Nanos> {
        (0.0..=PRICE_MAX).contains(&units).then(|| Nanos((units * NANOS).round() as u64))
    }

    /// In units of the currency.
    pub fn units(self) -> f64 {
        self.0 as f64 / NANOS
    }

    /// This price for `count` of `per`.
    fn times(self, count: u64, per: u128) -> Nanos {
        let product = u128::from(self.0) * u128::from(count) / per;
        Nanos(u64::try_from(product).unwrap_or(u64::MAX))
    }

    fn plus(self, other: Nanos) -> Nanos {
        Nanos(self.0.saturating_add(other.0))
    }
}

/// Prices as providers list them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prices {
    /// Of 1,000 requests that write or list: PUT, COPY, POST, LIST.
    pub put: Nanos,
    /// Of 1,000 others that read: GET, HEAD. Deletions are free.
    pub get: Nanos,
    /// Of a GiB kept for a month.
    pub gib_month: Option<Nanos>,
    /// Of a GiB that leaves the bucket for this machine.
    pub egress_gib: Option<Nanos>,
    /// The unit, for people.
    pub currency: String,
}

impl Prices {
    fn of_requests(&self, requests: &Requests) -> Nanos {
        let writing: u64 = [Kind::Put, Kind::Post, Kind::List].into_iter().map(|kind| requests.of(kind)).sum();
        self.put.times(writing, 1000).plus(self.get.times(requests.of(Kind::Get), 1000))
    }

    fn of_egress(&self, requests: &Requests) -> Option<Nanos> {
        Some(self.egress_gib?.times(requests.bytes().1, GIB))
    }

    fn money(&self, amount: Nanos) -> String {
        let units = amount.units();
        let decimals = match units {
            1.0.. => 2,
            0.01.. => 4,
            _ => 6,
        };
        format!("{units:.decimals$} {}", self.currency)
    }
}

/// A store's use, as far as it is known.
#[derive(Clone, Copy, Debug, Default)]
pub struct Use {
    /// Bytes that clients wrote since the store was opened.
    pub written_bytes: u64,
    /// Bytes of objects that volumes have there now. `None`: they are another machine's to pay for, or it is not known.
    pub stored_bytes: Option<u64>,
}

/// The bill of one store since it was opened.
pub struct Bill<'a> {
    /// Every request.
    pub requests: &'a Requests,
    /// `None`: nobody has said any (`bill.claims_nothing`).
    pub prices: Option<&'a Prices>,
    /// What it was used for.
    pub used: Use,
}

impl Bill<'_> {
    /// For people, a line each.
    pub fn lines(&self) -> Vec<String> {
        let requests = self.requests;
        let (sent, received) = requests.bytes();
        let kinds = Kind::ALL.map(|kind| format!("{} {}", requests.of(kind), kind.name().to_uppercase())).join(", ");
        let mut lines = vec![format!(
            "{} requests since it was opened {} ago ({kinds}); {} sent, {} received",
            requests.all(),
            span(requests.lasts()),
            ByteSize(sent),
            ByteSize(received)
        )];
        lines.extend(self.rates());
        lines.extend(self.sums());
        lines
    }

    fn an_hour(&self, amount: u64) -> Option<u64> {
        let minutes = self.requests.minutes_of_use();
        (minutes > 0).then(|| amount.saturating_mul(60) / minutes)
    }

    fn a_gib(&self, amount: u64) -> Option<u64> {
        let written = self.used.written_bytes;
        let scaled = u128::from(amount) * GIB / u128::from(written.max(1));
        (written >= WRITTEN_BYTES_MIN).then(|| u64::try_from(scaled).unwrap_or(u64::MAX))
    }

    fn rates(&self) -> Option<String> {
        let all = self.requests.all();
        let hour = self.an_hour(all)?;
        let minutes = self.requests.minutes_of_use();
        let written = self.a_gib(all).map_or(String::new(), |gib| format!("; {gib} requests for a GiB written"));
        Some(format!("{hour} requests an hour of use (of {minutes} min){written}"))
    }

    fn sums(&self) -> Vec<String> {
        let Some(prices) = self.prices else { return Vec::new() };
        let (requests, egress) = (prices.of_requests(self.requests), prices.of_egress(self.requests));
        let sum = requests.plus(egress.unwrap_or_default());
        let parts = match egress {
            Some(egress) => format!("requests {}, bytes received {}", prices.money(requests), prices.money(egress)),
            None => "requests alone".to_owned(),
        };
        let mut line = format!("cost since then: {} ({parts})", prices.money(sum));
        if let Some(hour) = self.an_hour(sum.0) {
            line.push_str(&format!("; {} an hour of use", prices.money(Nanos(hour))));
        }
        if let Some(gib) = self.a_gib(sum.0) {
            line.push_str(&format!("; {} for a GiB written", prices.money(Nanos(gib))));
        }
        let stored = self.a_month().map(|(bytes, month)| {
            format!("{} stored by open volumes: {} a month", ByteSize(bytes), prices.money(month))
        });
        std::iter::once(line).chain(stored).collect()
    }

    fn a_month(&self) -> Option<(u64, Nanos)> {
        let bytes = self.used.stored_bytes?;
        Some((bytes, self.prices?.gib_month?.times(bytes, GIB)))
    }

    /// Adds sums of money, in millionths of the currency's unit.
    pub fn metrics(&self, store: &str, out: &mut Metrics) {
        let Some(prices) = self.prices else { return };
        let sums = [("requests", Some(prices.of_requests(self.requests))), ("egress", prices.of_egress(self.requests))];
        let help = "What the bucket has cost since it was opened, by the prices of the configuration.";
        for (of, sum) in sums {
            let labels = [("store", store), ("of", of), ("currency", prices.currency.as_str())];
            if let Some(sum) = sum {
                out.counter("larder_store_cost_millionths_total", help, &labels, sum.0 / 1000);
            }
        }
        let labels = [("store", store), ("currency", prices.currency.as_str())];
        if let Some((_, month)) = self.a_month() {
            let help = "What a month of the objects of open volumes costs.";
            out.gauge("larder_store_month_cost_millionths", help, &labels, month.0 / 1000);
        }
    }
}

fn span(lasts: Duration) -> String {
    match lasts.as_secs() {
        secs @ 0..120 => format!("{secs} s"),
        secs @ 120..7200 => format!("{} min", secs / 60),
        secs @ 7200..172_800 => format!("{} h", secs / 3600),
        secs => format!("{} days", secs / 86400),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn prices() -> Prices {
        let of = |units| Nanos::of_units(units).unwrap();
        Prices {
            put: of(0.005),
            get: of(0.0004),
            gib_month: Some(of(0.023)),
            egress_gib: Some(of(0.09)),
            currency: "USD".into(),
        }
    }

    fn requests() -> Requests {
        let requests = Requests::default();
        [(Kind::Put, 2000), (Kind::List, 1000), (Kind::Get, 10_000), (Kind::Delete, 5000)]
            .into_iter()
            .for_each(|(kind, count)| requests.count(kind, count));
        requests.receive(2 << 30);
        requests
    }

    #[test]
    fn sums_are_those_of_the_list() {
        let (requests, prices) = (requests(), prices());
        let used = Use { written_bytes: 4 << 30, stored_bytes: Some(100 << 30) };
        let bill = Bill { requests: &requests, prices: Some(&prices), used };
        // 3,000 writing requests at 0.005, 10,000 reading ones at 0.0004; 2 GiB at 0.09.
        assert_eq!(prices.of_requests(&requests), Nanos(19_000_000));
        assert_eq!(prices.of_egress(&requests), Some(Nanos(180_000_000)));
        let lines = bill.lines();
        assert!(lines[0].starts_with("18000 requests") && lines[0].contains("5000 DELETE"), "{lines:?}");
        assert_eq!(lines[1], "1080000 requests an hour of use (of 1 min); 4500 requests for a GiB written");
        assert_eq!(
            lines[2],
            "cost since then: 0.1990 USD (requests 0.0190 USD, bytes received 0.1800 USD); 11.94 USD an hour of use; 0.0498 USD for a GiB written"
        );
        assert_eq!(lines[3], "100 GiB stored by open volumes: 2.30 USD a month");
        let mut out = Metrics::default();
        bill.metrics("store", &mut out);
        let text = out.text();
        assert!(
            text.contains(
                "larder_store_cost_millionths_total{store=\"store\",of=\"requests\",currency=\"USD\"} 19000\n"
            )
        );
        assert!(text.contains("larder_store_month_cost_millionths{store=\"store\",currency=\"USD\"} 2300000\n"));
    }

    #[test]
    fn nothing_is_claimed_without_prices() {
        let requests = requests();
        let bill = Bill { requests: &requests, prices: None, used: Use::default() };
        let text = bill.lines().join("\n");
        assert!(!text.contains("cost") && !text.contains("month") && !text.contains("GiB written"), "{text}");
        let mut out = Metrics::default();
        bill.metrics("store", &mut out);
        assert_eq!(out.text(), "");
        let prices = Prices { gib_month: None, egress_gib: None, ..prices() };
        let text = Bill { prices: Some(&prices), ..bill }.lines().join("\n");
        assert!(text.contains("(requests alone)") && !text.contains("month"), "{text}");
    }

    #[test]
    fn prices_that_are_none() {
        for wrong in [-0.1, f64::NAN, f64::INFINITY, 1e12] {
            assert_eq!(Nanos::of_units(wrong), None);
        }
        assert_eq!(Nanos::of_units(0.0004), Some(Nanos(400_000)));
        assert_eq!(Nanos(400_000).units(), 0.0004);
    }
}
