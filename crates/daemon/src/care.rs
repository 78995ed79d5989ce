//! Power, the doctor and kept benches, as the commands have them. No disk is asked: health and sleep of disks are left alone.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use larder_api::{
    BenchCompare, BenchKept, DoctorReport, Failure, PowerCost, PowerFault, PowerReading, PowerStatus, PowerYear,
    Report, TopConfidence, TopConnection, TopLimit, WhatIfRequest,
};
use larder_base::task;
use larder_facts::Machine;
use larder_facts::power::{self, Activity, Profile, Readout, ReportInput, Snapshot, Sources};
use larder_facts::reading::{ReadOptions, Reading};
use larder_measure::bench::show::Style;
use larder_measure::bench::{compare, history, show};
use larder_measure::doctor::{self, Confidence};
use larder_measure::live::Transfer;

use serde::Serialize;
use serde_json::Value;

use super::benches::Benches;
use super::pools::Pools;
use super::top::TopState;
use crate::{bench_words, power_text, power_words};
use larder_config::power::PowerConfig;
use larder_document::DataFolder;
use larder_document::Document;

/// Between the two looks that a counter needs.
const LOOK: Duration = Duration::from_millis(500);
/// `larder power awake` watches longer; a page waits for this.
const AWAKE: Duration = Duration::from_secs(5);
const TIMES_A_YEAR: f64 = 12.0;
/// Reports for pages are as wide as this, in characters.
const STYLE: Style = Style { width: 96, colour: false, unicode: true, cores: false };

pub(super) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Failure> {
    let done = task::blocking(work).await;
    done.map_err(|e| Failure::internal(format!("the daemon failed at this: {e}")))
}

/// Two looks, a moment apart: counters give watts only then.
pub fn look(sources: &mut Sources) -> Readout {
    let started = Instant::now();
    sources.begin();
    std::thread::sleep(LOOK);
    sources.read(started.elapsed())
}

fn status(config: &PowerConfig, usable_bytes: Option<u64>) -> PowerStatus {
    let mut sources = Sources::new(&Machine::this(), &config.sources, &config.parts, config.supply_efficiency);
    let readout = look(&mut sources);
    let reading = |source: &str, of: &str, basis, watts| PowerReading {
        source: source.to_owned(),
        of: of.to_owned(),
        basis: power_text::basis(basis).to_owned(),
        watts,
    };
    let fault = |failure: Failure| PowerFault { text: failure.message, action: failure.action };
    let (year, year_fault) = match year(config, &readout, sources.estimate(), usable_bytes) {
        Ok(year) => (Some(year), None),
        Err(failure) => (None, Some(fault(failure))),
    };
    PowerStatus {
        total: readout
            .total
            .as_ref()
            .map(|total| reading(&total.source, "the whole machine", total.basis, total.watts)),
        readings: readout.readings.iter().map(|one| reading(&one.source, &one.of, one.basis, one.watts)).collect(),
        faults: readout
            .faults
            .iter()
            .map(|fault| PowerFault { text: fault.to_string(), action: fault.action.clone() })
            .collect(),
        year,
        year_fault,
    }
}

fn year(
    config: &PowerConfig,
    readout: &Readout,
    estimate: Option<Profile>,
    usable_bytes: Option<u64>,
) -> Result<PowerYear, Failure> {
    let tariff = config.tariff.clone().ok_or_else(|| {
        Failure::invalid("nobody has said what a kWh costs").action("add price = 0.39 to [power] of larder.toml")
    })?;
    let (profile, basis) = power_words::profile(config, readout, estimate)?;
    let found = power::report(&ReportInput { profile, usable_bytes, bytes_per_s: None, tariff });
    Ok(PowerYear {
        basis,
        estimated: found.estimated,
        currency: found.currency,
        price_per_kwh: found.price_per_kwh,
        load_hours_per_day: found.load_hours_per_day,
        idle: PowerCost { watts: found.year.idle_watts, kwh: found.idle_kwh, cost: found.year.idle_cost },
        load: PowerCost { watts: found.year.load_watts, kwh: found.load_kwh, cost: found.year.load_cost },
        used: PowerCost { watts: found.year.mean_watts, kwh: found.mean_kwh, cost: found.year.mean_cost },
        watts_per_tb: found.watts_per_tb,
    })
}

/// Power, the doctor and benches of this daemon.
pub struct Care {
    pub document: Arc<Document>,
    pub folder: Arc<DataFolder>,
    pub pools: Arc<Pools>,
    pub top: Arc<TopState>,
    pub benches: Arc<Benches>,
}

impl Care {
    pub async fn power(&self) -> Result<PowerStatus, Failure> {
        let config = self.document.config();
        let pools = self.pools.known_statuses();
        let usable = Some(pools.iter().map(|pool| pool.total_bytes).sum::<u64>()).filter(|bytes| *bytes > 0);
        blocking(move || status(&config.power, usable)).await
    }

    pub async fn power_what_if(&self, request: WhatIfRequest) -> Result<Report, Failure> {
        let config = self.document.config();
        let config = &config.power;
        let settings: Result<Vec<_>, String> = request.settings.iter().map(|one| power::parse_setting(one)).collect();
        let settings = settings.map_err(Failure::invalid)?;
        power::check_settings(&settings).map_err(Failure::invalid)?;
        let per_year = request.per_year.unwrap_or(TIMES_A_YEAR);
        if !(0.0..=1e6).contains(&per_year) {
            return Err(Failure::invalid("a job is done between 0 and a million times a year"));
        }
        let idle = config.idle_watts.unwrap_or(0.0);
        let found = power::what_if(&settings, idle, request.size_bytes, per_year, config.tariff.as_ref())
            .ok_or_else(|| Failure::invalid("there are no settings to compare"))?;
        let answer = power_words::Answer::new("settings as given".to_owned(), found);
        report(&answer, power_text::what_if(&answer))
    }

    pub async fn power_awake(&self) -> Result<Report, Failure> {
        let take = || Snapshot::take(&Machine::this(), std::process::id());
        let started = Instant::now();
        let before = blocking(take).await?;
        tokio::time::sleep(AWAKE).await;
        let found = blocking(move || {
            let machine = Machine::this();
            let after = Snapshot::take(&machine, std::process::id());
            Activity { before: &before, after: &after, seconds: started.elapsed().as_secs_f64() }.report(&machine)
        });
        let answer = power_words::Answer::new("counters of the kernel".to_owned(), found.await?);
        report(&answer, power_text::awake(&answer))
    }

    /// Asks no disk for its health: that may wake one.
    pub async fn doctor(&self) -> Result<DoctorReport, Failure> {
        let top = self.top.look().await;
        let limited = top.connections.into_iter().filter(|one| one.limited_by != TopLimit::Nothing);
        let now: Vec<_> = limited.map(transfer).collect();
        let examined = blocking(move || {
            let machine = Machine::this();
            let reading = Reading::of(&machine, ReadOptions { smart: false, ..ReadOptions::default() });
            let sources = doctor::Sources { bench: None, client: None, now: Some(&now) };
            let found = doctor::examine(&machine, reading, &sources).map_err(|e| Failure::internal(e.to_string()))?;
            Ok(DoctorReport {
                verdict: found.diagnosis.verdict.clone(),
                text: doctor::text::examination(&found, &STYLE),
                why: doctor::text::why(&found.diagnosis, &STYLE),
                data: data(&found)?,
            })
        });
        examined.await?
    }

    /// As `larder bench --data` keeps them.
    pub(super) fn bench_folder(&self) -> PathBuf {
        self.folder.path().join("bench")
    }

    pub async fn bench_list(&self) -> Result<Vec<BenchKept>, Failure> {
        let folder = self.bench_folder();
        let found = blocking(move || history::list(&folder)).await?;
        let kept = |one: history::Kept| BenchKept {
            id: one.id,
            title: one.title,
            preset: one.preset,
            started_ms: one.started_ms,
            seconds: one.seconds,
            runs: one.runs as u64,
            interrupted: one.interrupted,
        };
        Ok(found.into_iter().map(kept).collect())
    }

    pub async fn bench_show(&self, id: String) -> Result<Report, Failure> {
        let folder = self.bench_folder();
        blocking(move || {
            let result = kept(&folder, &id)?;
            report(&result, show::text(&result, &STYLE))
        })
        .await?
    }

    pub async fn bench_remove(&self, id: String) -> Result<(), Failure> {
        let folder = self.bench_folder();
        blocking(move || history::remove(&folder, &id).map_err(|e| bench_words::failure(&e))).await?
    }

    pub async fn bench_compare(&self, request: BenchCompare) -> Result<Report, Failure> {
        let folder = self.bench_folder();
        blocking(move || {
            let (a, b) = (kept(&folder, &request.a)?, kept(&folder, &request.b)?);
            let found = compare::compare(&a, &b);
            report(&found, compare::text(&found, &STYLE))
        })
        .await?
    }
}

fn data(found: &impl Serialize) -> Result<Value, Failure> {
    serde_json::to_value(found).map_err(|error| Failure::internal(error.to_string()))
}

fn report(found: &impl Serialize, text: String) -> Result<Report, Failure> {
    Ok(Report { data: data(found)?, text })
}

/// A result of the history, by its name there: a name from outside is no path.
fn kept(folder: &std::path::Path, id: &str) -> Result<larder_measure::bench::BenchResult, Failure> {
    let is_kept = history::list(folder).iter().any(|one| one.id == id);
    if !is_kept {
        return Err(Failure::not_found(format!("no result '{id}' is kept"))
            .action("see which there are with: larder bench history --data DIR"));
    }
    history::load(folder, id).map_err(|e| bench_words::failure(&e))
}

/// A transfer of now, for the doctor.
pub fn transfer(one: TopConnection) -> Transfer {
    Transfer {
        address: one.address,
        door: one.door,
        does: one.does,
        confidence: match one.confidence {
            TopConfidence::Open => Confidence::Open,
            TopConfidence::Maybe => Confidence::Maybe,
            TopConfidence::Likely => Confidence::Likely,
            TopConfidence::Certain => Confidence::Certain,
        },
        sentence: one.sentence,
        help: one.help,
    }
}
