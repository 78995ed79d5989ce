//! `[power]`: what a kilowatt-hour costs, where watts are measured, what the machine is made of.

use std::path::PathBuf;

use super::spanned::Spanned;
use larder_api::Failure;
use larder_facts::power::{Login, PartSpec, SourceSpec, Tariff, Window};
use serde::Deserialize;

use super::{Checked, Validator};

const CURRENCY: &str = "EUR";
/// A number of watts beyond this is a mistake in the file.
const WATTS_MAX: f64 = 100_000.0;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct PowerConfig {
    /// `None`: nobody said what a kilowatt-hour costs.
    pub tariff: Option<Tariff>,
    pub sources: Vec<SourceSpec>,
    pub parts: Vec<PartSpec>,
    pub supply_efficiency: Option<f64>,
    pub idle_watts: Option<f64>,
    pub load_watts: Option<f64>,
    pub load_hours_per_day: Option<f64>,
}

#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct RawPower {
    /// Of a kWh.
    price: Option<Spanned<f64>>,
    /// EUR when it is not given.
    currency: Option<String>,
    /// Other prices at certain hours; of two that overlap the later one counts.
    #[serde(default)]
    price_at: Vec<Spanned<RawWindow>>,
    /// What a meter showed.
    idle_watts: Option<Spanned<f64>>,
    /// What a meter showed under load.
    load_watts: Option<Spanned<f64>>,
    /// Hours of load; 0 when it is not given.
    load_hours_per_day: Option<Spanned<f64>>,
    /// For the estimate from parts, 0.1 to 1.
    supply_efficiency: Option<Spanned<f64>>,
    /// Where watts are measured.
    #[serde(default)]
    source: Vec<Spanned<RawSource>>,
    /// What the machine is made of, where nothing measures.
    #[serde(default)]
    part: Vec<RawPart>,
}

#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct RawWindow {
    /// Such as mon-fri or sat,sun.
    #[cfg_attr(test, schemars(extend("default" = "all")))]
    days: Option<String>,
    /// HH:MM.
    from: String,
    /// HH:MM.
    to: String,
    /// Of a kWh.
    price: f64,
}

#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct RawSource {
    /// The kind of meter.
    #[cfg_attr(test, schemars(extend("enum" = ["shelly", "tasmota", "nut"])))]
    kind: Spanned<String>,
    /// HOST or HOST:PORT.
    address: Option<String>,
    /// The meter's channel.
    #[cfg_attr(test, schemars(extend("default" = 0)))]
    channel: Option<u8>,
    /// nut only, as upsc -l shows it.
    ups: Option<String>,
    /// The login of the meter.
    user: Option<String>,
    /// An absolute path; passwords are not in this file.
    password_file: Option<PathBuf>,
}

#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct RawPart {
    /// Its name.
    name: String,
    /// How many.
    #[cfg_attr(test, schemars(extend("default" = 1)))]
    count: Option<u32>,
    /// Of each.
    idle_watts: Spanned<f64>,
    /// Of each; as idle when it is not given.
    load_watts: Option<Spanned<f64>>,
}

impl Validator<'_> {
    pub(super) fn power(&self, raw: RawPower) -> Checked<PowerConfig> {
        let price = self.number(raw.price, 0.0..=1000.0, "a price of a kWh, such as 0.39")?;
        if let (None, Some(window)) = (price, raw.price_at.first()) {
            return Err(self.wrong(window, "prices at certain hours need a price = of all others in [power]"));
        }
        let windows = raw.price_at.into_iter().map(|w| self.window(w)).collect::<Checked<Vec<_>>>()?;
        let currency = raw.currency.unwrap_or_else(|| CURRENCY.to_owned());
        let idle_watts = self.watts(raw.idle_watts)?;
        let sources = raw.source.into_iter().map(|s| self.source(s)).collect::<Checked<Vec<_>>>()?;
        Ok(PowerConfig {
            tariff: price.map(|price| Tariff { windows, ..Tariff::flat(price, &currency) }),
            sources,
            parts: raw.part.into_iter().map(|p| self.part(p)).collect::<Checked<_>>()?,
            supply_efficiency: self.number(raw.supply_efficiency, 0.1..=1.0, "an efficiency: write 0.1 to 1")?,
            idle_watts,
            load_watts: self.watts(raw.load_watts)?,
            load_hours_per_day: self.number(raw.load_hours_per_day, 0.0..=24.0, "hours of a day: write 0 to 24")?,
        })
    }

    fn window(&self, raw: Spanned<RawWindow>) -> Checked<Window> {
        let window = raw.get_ref();
        let days = window.days.as_deref().unwrap_or("all");
        self.at(&raw, Window::parse(days, &window.from, &window.to, window.price).map_err(|e| e.to_string()))
    }

    fn source(&self, raw: Spanned<RawSource>) -> Checked<SourceSpec> {
        let source = raw.get_ref();
        let kind = source.kind.get_ref().as_str();
        let channel = source.channel.unwrap_or(0);
        let address = || -> Result<String, Failure> {
            let given = source.address.clone().filter(|a| !a.is_empty() && !a.contains(char::is_whitespace));
            given.ok_or_else(|| self.wrong(&raw, format!("a {kind} needs address = \"HOST\" or \"HOST:PORT\"")))
        };
        match kind {
            "shelly" => Ok(SourceSpec::Shelly { address: address()?, channel, login: self.login(&raw)? }),
            "tasmota" => Ok(SourceSpec::Tasmota { address: address()?, channel, login: self.login(&raw)? }),
            "nut" => {
                let named = source.ups.clone().filter(|name| !name.is_empty());
                let ups = named.ok_or_else(|| self.wrong(&raw, "a nut needs ups = \"NAME\", as upsc -l shows it"))?;
                let address = source.address.clone().unwrap_or_else(|| "127.0.0.1".to_owned());
                Ok(SourceSpec::Nut { address, ups })
            }
            _ => {
                Err(self.wrong(&source.kind, format!("'{kind}' is not a source of watts: use shelly, tasmota or nut")))
            }
        }
    }

    fn login(&self, raw: &Spanned<RawSource>) -> Checked<Login> {
        let source = raw.get_ref();
        let odd = |user: &String| user.is_empty() || user.contains(|c: char| c.is_control() || ":\"\\".contains(c));
        if source.user.as_ref().is_some_and(odd) {
            return Err(self.wrong(raw, "user = is a name without colons and quotes"));
        }
        if source.password_file.as_ref().is_some_and(|file| !file.is_absolute()) {
            return Err(self.wrong(raw, "password_file = must begin with /"));
        }
        Ok(Login::new(source.user.clone(), source.password_file.clone()))
    }

    fn part(&self, raw: RawPart) -> Checked<PartSpec> {
        let idle_watts = self.watts(Some(raw.idle_watts))?.unwrap_or(0.0);
        let load_watts = self.watts(raw.load_watts)?.unwrap_or(idle_watts);
        Ok(PartSpec { name: raw.name, count: raw.count.unwrap_or(1), idle_watts, load_watts })
    }

    fn watts(&self, value: Option<Spanned<f64>>) -> Checked<Option<f64>> {
        self.number(value, 0.0..=WATTS_MAX, "a number of watts")
    }

    fn number(
        &self,
        value: Option<Spanned<f64>>,
        range: std::ops::RangeInclusive<f64>,
        what: &str,
    ) -> Checked<Option<f64>> {
        let Some(value) = value else { return Ok(None) };
        if range.contains(value.get_ref()) {
            return Ok(Some(value.into_inner()));
        }
        Err(self.wrong(&value, format!("{} is not {what}", value.get_ref())))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::Config;

    fn parse(text: &str) -> Result<PowerConfig, String> {
        Config::parse(text, Path::new("/etc/larder/larder.toml")).map(|c| c.power).map_err(|e| e.message)
    }

    #[test]
    fn tariff_sources_and_parts() {
        let power = parse(
            r#"
            [power]
            price = 0.39
            idle_watts = 17
            load_watts = 26.5
            [[power.price_at]]
            days = "mon-fri"
            from = "22:00"
            to = "06:00"
            price = 0.25
            [[power.source]]
            kind = "shelly"
            address = "10.0.0.7"
            [[power.source]]
            kind = "nut"
            ups = "pantry"
            [[power.part]]
            name = "hard disk"
            count = 4
            idle_watts = 4.5
            load_watts = 7
            "#,
        )
        .unwrap();
        let tariff = power.tariff.unwrap();
        assert_eq!((tariff.price_per_kwh, tariff.currency.as_str(), tariff.windows.len()), (0.39, "EUR", 1));
        assert_eq!((power.idle_watts, power.load_watts, power.load_hours_per_day), (Some(17.0), Some(26.5), None));
        let login = larder_facts::power::Login::default();
        assert_eq!(power.sources[0], SourceSpec::Shelly { address: "10.0.0.7".to_owned(), channel: 0, login });
        assert_eq!(power.sources[1], SourceSpec::Nut { address: "127.0.0.1".to_owned(), ups: "pantry".to_owned() });
        assert_eq!(power.parts[0].count, 4);
        assert_eq!(parse("").unwrap(), PowerConfig::default());
    }

    #[test]
    fn mistakes_are_named_with_their_place() {
        for (text, message) in [
            ("[power]\nprice = -1.0", "2:9: -1 is not a price"),
            ("[power]\nload_hours_per_day = 25.0", "hours of a day"),
            ("[power]\nsupply_efficiency = 0.0", "efficiency"),
            ("[power]\n[[power.price_at]]\nfrom = \"1:00\"\nto = \"2:00\"\nprice = 0.1", "need a price ="),
            (
                "[power]\nprice = 0.3\n[[power.price_at]]\nfrom = \"1\"\nto = \"2:00\"\nprice = 0.1",
                "'1' is not a time of day",
            ),
            ("[[power.source]]\nkind = \"fritz\"", "'fritz' is not a source of watts"),
            ("[[power.source]]\nkind = \"tasmota\"", "needs address ="),
            ("[[power.source]]\nkind = \"nut\"", "needs ups ="),
            ("[[power.source]]\nkind = \"shelly\"\naddress = \"a\"\npassword_file = \"b\"", "must begin with /"),
            ("[[power.source]]\nkind = \"shelly\"\naddress = \"a\"\npassword = \"b\"", "unknown key"),
            ("[[power.source]]\nkind = \"shelly\"\naddress = \"a\"\nuser = \"a:b\"", "without colons"),
            ("[power]\nwatts = 3", "unknown key"),
        ] {
            let complaint = parse(text).unwrap_err();
            assert!(complaint.contains(message), "{text}\n{complaint}");
        }
    }
}
