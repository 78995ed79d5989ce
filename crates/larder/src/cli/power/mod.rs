//! `larder power ...`: what the box draws and costs.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use larder_api::Failure;
use larder_api::endpoints::{GetInfo, ListPools};
use larder_base::units::ByteSize;
use larder_facts::Machine;
use larder_facts::power::{
    self, Activity, AwakeReport, PowerReport, Profile, Readout, ReportInput, Setting, Snapshot, Sources, Tariff,
};
use serde::Serialize;

use super::args::Global;
use super::disk::Recorded;
use super::password;
use crate::out;
use larder_config::Config;
use larder_config::power::PowerConfig;
use larder_daemon::care::look;
use larder_document::folder;

use larder_daemon::power_text as text;
use larder_daemon::power_words::{Answer, Watched, check_order, nothing_measures, profile};

/// A processor's counter begins anew after 20 minutes at 200 W: it has to be read more often.
const INTERVAL_S_MAX: f64 = 300.0;
const SECONDS_MAX: f64 = 366.0 * 86_400.0;

#[derive(Debug, Subcommand)]
pub(crate) enum PowerCommand {
    /// Watts now, of everything that measures
    Now {
        #[command(flatten)]
        recorded: Recorded,
    },
    /// Watts over time; ends with mean, idle, load, kWh and joules per GiB moved
    Watch {
        /// How long [default: until Ctrl-C]
        #[arg(long, value_parser = seconds)]
        seconds: Option<f64>,
        /// Between two readings
        #[arg(long, default_value = "1", value_name = "SECONDS", value_parser = seconds)]
        interval: f64,
        #[command(flatten)]
        recorded: Recorded,
    },
    /// A year of it: kWh and money, watts per TB, joules per GiB
    Report {
        #[command(flatten)]
        box_: BoxArgs,
        /// Usable space after redundancy, for watts per TB [default: the daemon's pools]
        #[arg(long, value_name = "SIZE")]
        usable: Option<ByteSize>,
        /// Bytes moved per second under load, for joules per GiB
        #[arg(long, value_name = "SIZE")]
        rate: Option<ByteSize>,
    },
    /// This box beside another: money saved, and when that has paid for it
    Compare {
        #[command(flatten)]
        box_: BoxArgs,
        /// The other box, idle
        #[arg(long, value_name = "WATTS", value_parser = watts)]
        other_idle: f64,
        /// The other box under load [default: as idle]
        #[arg(long, value_name = "WATTS", value_parser = watts)]
        other_load: Option<f64>,
        /// Price of this box
        #[arg(long, value_name = "MONEY", default_value = "0", value_parser = money)]
        cost: f64,
    },
    /// Settings of a job (a scrub, a backup) against each other: which costs least?
    Whatif {
        /// NAME=WATTS:TIME, such as full=98W:10m saving=85W:11m
        #[arg(required = true, value_name = "SETTING", value_parser = power::parse_setting)]
        settings: Vec<Setting>,
        #[command(flatten)]
        box_: BoxArgs,
        /// Bytes that the job reads or writes
        #[arg(long, value_name = "SIZE")]
        size: Option<ByteSize>,
        /// How often it is done in a year
        #[arg(long, default_value = "12", value_name = "TIMES", value_parser = money)]
        per_year: f64,
    },
    /// Find processes that keep disks from spinning down and the processor from sleeping
    Awake {
        /// How long to watch
        #[arg(long, default_value = "10", value_parser = seconds)]
        seconds: f64,
        #[command(flatten)]
        recorded: Recorded,
    },
}

/// This box and the price of energy; what is not given comes from `[power]`, then from what measures, then from its
/// parts.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct BoxArgs {
    /// Watts of this box, idle
    #[arg(long, value_name = "WATTS", value_parser = watts)]
    idle: Option<f64>,
    /// Watts of this box under load [default: as idle]
    #[arg(long, value_name = "WATTS", value_parser = watts)]
    load: Option<f64>,
    /// How many hours of a day have load
    #[arg(long, value_name = "HOURS", value_parser = hours)]
    load_hours: Option<f64>,
    /// Of a kWh [default: price in [power]]
    #[arg(long, value_parser = money)]
    price: Option<f64>,
    #[arg(long)]
    currency: Option<String>,
    #[command(flatten)]
    recorded: Recorded,
}

/// With a point or, as most of Europe writes it, a comma. Both together are a group of thousands for one half of the
/// world and a mistake for the other.
fn decimal(text: &str) -> Option<f64> {
    match text.matches(',').count() {
        1 if !text.contains('.') => text.replace(',', ".").parse().ok(),
        _ => text.parse().ok(),
    }
}

fn number(text: &str, most: f64, what: &str) -> Result<f64, String> {
    let value = decimal(text.trim()).filter(|v| (0.0..=most).contains(v));
    value.ok_or_else(|| format!("'{text}' is not {what}"))
}

fn watts(text: &str) -> Result<f64, String> {
    let watts = number(text.trim_end_matches(['W', 'w']), f64::MAX, "a number of watts")?;
    if watts > power::WATTS_MAX { Err(power::absurd_watts(watts)) } else { Ok(watts) }
}

fn hours(text: &str) -> Result<f64, String> {
    number(text, 24.0, "a number of hours of a day")
}

fn money(text: &str) -> Result<f64, String> {
    number(text, 1e9, "a number from 0 on")
}

fn seconds(text: &str) -> Result<f64, String> {
    number(text, SECONDS_MAX, "a number of seconds").and_then(|s| match s > 0.0 {
        true => Ok(s),
        false => Err("0 seconds are too few".to_owned()),
    })
}

pub(super) async fn run(global: &Global, command: PowerCommand) -> Result<(), Failure> {
    let config = config(global).await?;
    match command {
        PowerCommand::Now { recorded } => now(global, &config, &recorded.machine()?),
        PowerCommand::Watch { seconds, interval, recorded } => {
            watch(global, &config, &recorded.machine()?, seconds, interval.min(INTERVAL_S_MAX)).await
        }
        PowerCommand::Report { box_, usable, rate } => report(global, &config, &box_, usable, rate).await,
        PowerCommand::Compare { box_, other_idle, other_load, cost } => {
            let tariff = box_.tariff(&config)?;
            check_order("the other box", other_idle, other_load.unwrap_or(other_idle))?;
            let (this, basis) = box_.profile(&config)?;
            let other = Profile {
                idle_watts: other_idle,
                load_watts: other_load.unwrap_or(other_idle),
                load_hours_per_day: this.load_hours_per_day,
                estimated: false,
            };
            let found = Answer::new(basis, power::compare(&this, &other, cost, &tariff));
            global.out().answer(&found, text::comparison)
        }
        PowerCommand::Whatif { settings, box_, size, per_year } => {
            power::check_settings(&settings).map_err(Failure::invalid)?;
            let tariff = box_.known_tariff(&config);
            let idle = box_.idle.or(config.idle_watts).unwrap_or(0.0);
            let found = power::what_if(&settings, idle, size.map(|s| s.0), per_year, tariff.as_ref())
                .ok_or_else(|| Failure::invalid("there are no settings to compare"))?;
            global.out().answer(&Answer::new("settings as given".to_owned(), found), text::what_if)
        }
        PowerCommand::Awake { seconds, recorded } => {
            let found = awake(&recorded.machine()?, seconds).await;
            global.out().answer(&Answer::new("counters of the kernel".to_owned(), found), text::awake)
        }
    }
}

/// `[power]` of the configuration in the data folder, or of the only daemon running; without one, nothing is
/// configured.
async fn config(global: &Global) -> Result<PowerConfig, Failure> {
    let named = global.data_named();
    let folder = named.clone().unwrap_or_else(|| PathBuf::from(folder::DEFAULT));
    let file = super::reach::absolute(&folder.join(folder::CONFIG_NAME))?;
    if named.is_some() || file.exists() {
        return Config::load(&file).map(|config| config.power);
    }
    if let [(_, client)] = super::reach::running().await.as_slice() {
        let info = client.ask(GetInfo).await?;
        return Config::load(&info.data.join(folder::CONFIG_NAME)).map(|config| config.power);
    }
    Ok(PowerConfig::default())
}

/// Everything here that measures watts. A folder for results needs no configuration.
pub(super) async fn all_sources(global: &Global) -> Result<Sources, Failure> {
    let new = global.data_named().is_some_and(|data| !data.join(folder::CONFIG_NAME).exists());
    let config = if new { Ok(PowerConfig::default()) } else { config(global).await };
    config.map(|config| sources(&config, &Machine::this()))
}

/// Plugs that want a password and have no file with it ask whoever sits at the terminal, once.
fn sources(config: &PowerConfig, machine: &Machine) -> Sources {
    let mut sources = Sources::new(machine, &config.sources, &config.parts, config.supply_efficiency);
    if std::io::stdin().is_terminal() && !config.sources.is_empty() {
        for fault in sources.read(Duration::ZERO).faults.iter().filter(|fault| fault.locked) {
            if let Some(password) = password::ask_person(&fault.source_name) {
                sources.unlock(&fault.source_name, &password);
            }
        }
    }
    sources
}

fn now(global: &Global, config: &PowerConfig, machine: &Machine) -> Result<(), Failure> {
    let found = tokio::task::block_in_place(|| look(&mut sources(config, machine)));
    let basis = found.total.as_ref().map_or("nothing".to_owned(), |t| text::basis(t.basis).to_owned());
    global.out().answer(&Answer::new(basis, found), text::readout)
}

async fn watch(
    global: &Global,
    config: &PowerConfig,
    machine: &Machine,
    seconds: Option<f64>,
    interval: f64,
) -> Result<(), Failure> {
    let mut sources = sources(config, machine);
    let mut kept = power::Watch::default();
    let started = Instant::now();
    let moved_before = power::moved_bytes(machine);
    let end = seconds.map(Duration::from_secs_f64);
    let mut tick = tokio::time::interval(Duration::from_secs_f64(interval));
    // Readings that a slow plug delayed are not made up for by asking it more often.
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let stop = tokio::signal::ctrl_c();
    tokio::pin!(stop);
    loop {
        tokio::select! {
            _ = &mut stop => break,
            _ = tick.tick() => {}
        }
        let at = started.elapsed();
        let readout = tokio::task::block_in_place(|| sources.read(at));
        let watts = kept.add(at, &readout);
        let Some(source) = kept.source() else { return Err(nothing_measures(&readout)) };
        match global.json {
            true => global.out().answer(&Moment { at_s: at.as_secs_f64(), readout: &readout }, |_| String::new())?,
            false => out::say(&text::moment(at, source, watts, kept.is_estimated(), &readout)),
        }
        if end.is_some_and(|end| at >= end) {
            break;
        }
    }
    let moved_bytes = power::moved_bytes(machine).saturating_sub(moved_before);
    let summary = kept.summary();
    let gib = moved_bytes as f64 / (1u64 << 30) as f64;
    let joules_per_gib = summary.filter(|_| moved_bytes > 0).map(|s| s.kwh * 3.6e6 / gib);
    let (source, estimated) = (kept.source().map(str::to_owned), kept.is_estimated());
    let watched = Watched { summary, source, estimated, missed: kept.missed(), moved_bytes, joules_per_gib };
    global
        .out()
        .answer(&Answer::new(if estimated { "estimated" } else { "measured" }.to_owned(), watched), text::watched)
}

#[derive(Serialize)]
struct Moment<'a> {
    at_s: f64,
    #[serde(flatten)]
    readout: &'a Readout,
}

impl BoxArgs {
    fn tariff(&self, config: &PowerConfig) -> Result<Tariff, Failure> {
        self.known_tariff(config).ok_or_else(|| {
            Failure::invalid("nobody has said what a kWh costs")
                .action("add --price 0.39, or price = 0.39 in [power] of larder.toml")
        })
    }

    fn known_tariff(&self, config: &PowerConfig) -> Option<Tariff> {
        let configured = config.tariff.clone();
        let currency = self.currency.clone().or(configured.as_ref().map(|t| t.currency.clone()));
        let currency = currency.unwrap_or_else(|| "EUR".to_owned());
        match (self.price, configured) {
            (Some(price), _) => Some(Tariff::flat(price, &currency)),
            (None, Some(tariff)) => Some(Tariff { currency, ..tariff }),
            (None, None) => None,
        }
    }

    /// Given, configured, measured now, or estimated from parts; and in words which of these.
    fn profile(&self, config: &PowerConfig) -> Result<(Profile, String), Failure> {
        let config = PowerConfig {
            idle_watts: self.idle.or(config.idle_watts),
            load_watts: self.load.or(config.load_watts),
            load_hours_per_day: self.load_hours.or(config.load_hours_per_day),
            ..config.clone()
        };
        if config.idle_watts.is_some() {
            let nothing = Readout { total: None, readings: Vec::new(), faults: Vec::new() };
            return profile(&config, &nothing, None);
        }
        let mut sources = sources(&config, &self.recorded.machine()?);
        let readout = tokio::task::block_in_place(|| look(&mut sources));
        profile(&config, &readout, sources.estimate())
    }
}

async fn report(
    global: &Global,
    config: &PowerConfig,
    box_: &BoxArgs,
    usable: Option<ByteSize>,
    rate: Option<ByteSize>,
) -> Result<(), Failure> {
    let tariff = box_.tariff(config)?;
    let (profile, basis) = box_.profile(config)?;
    let usable_bytes = match usable {
        Some(size) => Some(size.0),
        None => pools_bytes(global).await,
    };
    let input = ReportInput { profile, usable_bytes, bytes_per_s: rate.map(|r| r.0 as f64), tariff };
    let found: Answer<PowerReport> = Answer::new(basis, power::report(&input));
    global.out().answer(&found, text::report)
}

/// Bytes that the daemon's pools can hold, if a daemon runs.
async fn pools_bytes(global: &Global) -> Option<u64> {
    let super::reach::Target::Daemon(client) = super::reach::maybe_target(global).await.ok()?? else { return None };
    let pools = client.ask(ListPools).await.ok()?;
    Some(pools.iter().map(|pool| pool.total_bytes).sum::<u64>()).filter(|&bytes| bytes > 0)
}

async fn awake(machine: &Machine, seconds: f64) -> AwakeReport {
    let ourselves = std::process::id();
    let started = Instant::now();
    let before = tokio::task::block_in_place(|| Snapshot::take(machine, ourselves));
    tokio::time::sleep(Duration::from_secs_f64(seconds)).await;
    tokio::task::block_in_place(|| {
        let after = Snapshot::take(machine, ourselves);
        Activity { before: &before, after: &after, seconds: started.elapsed().as_secs_f64() }.report(machine)
    })
}
