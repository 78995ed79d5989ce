//! Asks the UPS, and stops the daemon in order when the power stays away.
//!
//! - `ups.flushed_then_parked`: at the end all is durable first, then the disks are parked, then the owner's command runs.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use larder_api::{Failure, UpsStatus};
use larder_base::metrics::Metrics;
use larder_facts::Machine;
use larder_watch::ups::{Nut, Reading, Source, Ups, read_batteries};
use larder_watch::{Condition, EventKind};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::config::UpsConfig;
use crate::daemon::Daemon;

/// As often as the drivers of NUT ask the UPS itself.
const ASK_EVERY: Duration = Duration::from_secs(5);
/// The message about the stop has so long to be delivered.
const TELL_WAIT: Duration = Duration::from_secs(3);

/// What is known of the UPS.
pub(crate) struct Watched {
    began: Instant,
    state: Mutex<Ups>,
    /// Why the daemon stops, once it does.
    why: Mutex<Option<String>>,
    stop: CancellationToken,
}

impl Default for Watched {
    fn default() -> Self {
        Self { began: Instant::now(), state: Mutex::default(), why: Mutex::default(), stop: CancellationToken::new() }
    }
}

impl Watched {
    /// Until the power has been away for too long.
    pub(crate) async fn ends(&self) {
        self.stop.cancelled().await;
    }

    /// Whether it has.
    pub(crate) fn has_ended(&self) -> bool {
        self.stop.is_cancelled()
    }

    pub(super) fn conditions(&self, config: Option<&UpsConfig>) -> Vec<Condition> {
        let Some(config) = config else { return Vec::new() };
        let (name, state) = (name(config), self.state.lock());
        let mut conditions = Vec::new();
        if let Some(fault) = state.fault() {
            conditions.push(Condition::is(
                EventKind::UpsSilent,
                name,
                format!("The UPS {name} cannot be asked: {fault}."),
            ));
        }
        let Some(last) = state.last() else { return conditions };
        if last.on_battery {
            let text = format!("The power is away: {}. {}", last.words(), plan(config));
            conditions.push(Condition::is(EventKind::UpsOnBattery, name, text));
            if last.is_low {
                let text = format!("The battery of the UPS {name} is low: {}.", last.words());
                conditions.push(Condition::is(EventKind::UpsLow, name, text));
            }
        }
        if last.replace_battery {
            let text = format!("The UPS {name} says that its battery is worn out.");
            conditions.push(Condition::is(EventKind::UpsBatteryWorn, name, text));
        }
        conditions
    }

    pub(super) fn metrics(&self, out: &mut Metrics) {
        let state = self.state.lock();
        let Some(last) = state.last() else { return };
        let help = "1 while the machine runs on the battery of its UPS.";
        out.gauge("larder_watch_ups_on_battery", help, &[], last.on_battery.into());
        if let Some(charge) = last.charge_percent {
            out.gauge("larder_watch_ups_charge_percent", "Charge of the battery of the UPS.", &[], u64::from(charge));
        }
    }

    fn take(&self, answer: Result<Reading, String>, config: &UpsConfig) -> Option<String> {
        self.state.lock().take(self.began.elapsed(), answer, config.limits)
    }
}

/// How people name it.
fn name(config: &UpsConfig) -> &str {
    match &config.source {
        Source::Nut { name, .. } => name,
        Source::Battery(_) => "battery",
    }
}

fn plan(config: &UpsConfig) -> String {
    let mut parts = Vec::new();
    parts.extend(config.limits.after.map(|after| format!("after {} s on the battery", after.as_secs())));
    parts.extend(config.limits.below_percent.map(|below| format!("below {below} %")));
    parts.push("when the battery is low".to_owned());
    format!("larder stops in order {}.", parts.join(", or "))
}

/// Asks for as long as the configuration names a UPS.
pub(super) async fn run(daemon: &Arc<Daemon>) {
    let mut connection: Option<(Source, Nut)> = None;
    loop {
        let config = daemon.state.lock().await.config.ups.clone();
        if let Some(config) = config {
            let answer = ask(&config.source, &mut connection).await;
            let was_well = daemon.watch.ups.conditions(Some(&config)).is_empty();
            let why = daemon.watch.ups.take(answer, &config);
            if was_well != daemon.watch.ups.conditions(Some(&config)).is_empty() {
                daemon.look_soon().await;
            }
            if let Some(why) = why {
                return daemon.end_by_ups(&config, why).await;
            }
        } else {
            connection = None;
            *daemon.watch.ups.state.lock() = Ups::default();
        }
        tokio::time::sleep(ASK_EVERY).await;
    }
}

async fn ask(source: &Source, connection: &mut Option<(Source, Nut)>) -> Result<Reading, String> {
    if let Source::Battery(folder) = source {
        return read_batteries(folder);
    }
    let mut nut = match connection.take() {
        Some((known, nut)) if known == *source => nut,
        _ => Nut::connect(source).await?,
    };
    let answer = nut.ask().await;
    if answer.is_ok() {
        *connection = Some((source.clone(), nut));
    }
    answer
}

impl Daemon {
    async fn end_by_ups(&self, config: &UpsConfig, why: String) {
        let text = format!("larder stops in order: {why}.");
        self.watch.note(Condition::is(EventKind::UpsStops, name(config), text));
        *self.watch.ups.why.lock() = Some(why);
        tokio::time::sleep(TELL_WAIT).await;
        self.watch.ups.stop.cancel();
    }

    /// The disks of pools and the owner's command, where the UPS ends the daemon.
    pub(crate) async fn after_ups(&self) -> Option<(Vec<PathBuf>, Vec<String>)> {
        if !self.watch.ups.has_ended() {
            return None;
        }
        let then = self.state.lock().await.config.ups.clone().map(|ups| ups.then).unwrap_or_default();
        Some((self.storage.all().iter().flat_map(|pool| pool.disks()).collect(), then))
    }

    pub(crate) async fn ups_status(&self) -> Result<UpsStatus, Failure> {
        let Some(config) = self.state.lock().await.config.ups.clone() else {
            return Err(Failure::not_found("the configuration names no UPS").action(
                "add [ups] to larder.toml, such as: [ups] name = \"ups\" stop_after = \"10m\"; then: larder reload",
            ));
        };
        let watched = &self.watch.ups;
        let state = watched.state.lock();
        let last = state.last().cloned().unwrap_or_default();
        Ok(UpsStatus {
            name: name(&config).to_owned(),
            model: last.model.clone(),
            says: state.last().map(Reading::words),
            on_battery: last.on_battery,
            on_battery_seconds: state.on_battery_for(watched.began.elapsed()).map(|time| time.as_secs()),
            charge_percent: last.charge_percent,
            runtime_seconds: last.runtime_s,
            plan: plan(&config),
            fault: state.fault().map(str::to_owned),
        })
    }
}

/// What comes after an orderly end that the UPS asked for (`ups.flushed_then_parked`).
pub(crate) fn afterwards(disks: &[PathBuf], then: &[String]) {
    let parked = Machine::this().park(disks);
    if !parked.is_empty() {
        tracing::info!("parked {}", parked.join(", "));
    }
    let Some((program, args)) = then.split_first() else { return };
    match std::process::Command::new(program).args(args).stdin(std::process::Stdio::null()).status() {
        Ok(status) if status.success() => {}
        Ok(status) => tracing::error!("{program} ended with {status}"),
        Err(error) => tracing::error!("{program} cannot be run: {error}"),
    }
}
