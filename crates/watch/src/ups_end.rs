//! Asks the UPS, and stops the daemon in order when the power stays away.
//!
//! - `ups.flushed_then_parked`: at the end all is durable first, then the disks are parked, then the owner's command runs.

use std::path::PathBuf;
use std::time::Duration;

use larder_alerts::ups::{Nut, Reading, Source, Ups, read_batteries};
use larder_alerts::{Condition, EventKind};
use larder_api::{Failure, UpsStatus};
use larder_facts::Machine;

use crate::ups::{name, plan};
use crate::watcher::Watcher;
use larder_config::UpsConfig;

/// As often as the drivers of NUT ask the UPS itself.
const ASK_EVERY: Duration = Duration::from_secs(5);
/// The message about the stop has so long to be delivered.
const TELL_WAIT: Duration = Duration::from_secs(3);

/// Asks for as long as the configuration names a UPS.
pub(crate) async fn run(watcher: &Watcher) {
    let mut connection: Option<(Source, Nut)> = None;
    loop {
        let config = watcher.document.config().ups.clone();
        if let Some(config) = config {
            let answer = ask(&config.source, &mut connection).await;
            let was_well = watcher.watch.ups.conditions(Some(&config)).is_empty();
            let why = watcher.watch.ups.take(answer, &config);
            if was_well != watcher.watch.ups.conditions(Some(&config)).is_empty() {
                watcher.watch.look_soon().await;
            }
            if let Some(why) = why {
                return watcher.end_by_ups(&config, why).await;
            }
        } else {
            connection = None;
            *watcher.watch.ups.state.lock() = Ups::default();
            // Nothing is asked, and nobody is woken, until a configuration names one.
            watcher.watch.ups.configured.notified().await;
            continue;
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

impl Watcher {
    async fn end_by_ups(&self, config: &UpsConfig, why: String) {
        let text = format!("larder stops in order: {why}.");
        self.watch.note(Condition::is(EventKind::UpsStops, name(config), text));
        tokio::time::sleep(TELL_WAIT).await;
        self.watch.ups.stop.cancel();
    }

    /// The disks of pools and the owner's command, where the UPS ends the watcher.
    pub fn after_ups(&self) -> Option<(Vec<PathBuf>, Vec<String>)> {
        if !self.watch.ups.has_ended() {
            return None;
        }
        let then = self.document.config().ups.clone().map(|ups| ups.then).unwrap_or_default();
        Some((self.storage.all().iter().flat_map(|pool| pool.disks()).collect(), then))
    }

    pub fn ups_status(&self) -> Result<UpsStatus, Failure> {
        let Some(config) = self.document.config().ups.clone() else {
            return Err(Failure::not_found("the configuration names no UPS").action(
                "add [ups] to larder.toml, such as: [ups] name = \"ups\" stop_after = \"10m\"; then: larder reload",
            ));
        };
        let watched = &self.watch.ups;
        let on_battery_for = watched.on_battery_for();
        let state = watched.state.lock();
        let last = state.last().cloned().unwrap_or_default();
        Ok(UpsStatus {
            name: name(&config).to_owned(),
            model: last.model.clone(),
            says: state.last().map(Reading::words),
            on_battery: last.on_battery,
            on_battery_seconds: on_battery_for.map(|time| time.as_secs()),
            charge_percent: last.charge_percent,
            runtime_seconds: last.runtime_s,
            plan: plan(&config),
            fault: state.fault().map(str::to_owned),
        })
    }
}

/// What comes after an orderly end that the UPS asked for (`ups.flushed_then_parked`).
pub fn afterwards(disks: &[PathBuf], then: &[String]) {
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
