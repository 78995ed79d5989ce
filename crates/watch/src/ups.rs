//! What is known of the UPS, and what is told of it.

use std::time::{Duration, Instant};

use larder_alerts::ups::{Reading, Source, Ups};
use larder_alerts::{Condition, EventKind};
use larder_base::metrics::Metrics;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use larder_config::UpsConfig;

/// What is known of the UPS.
pub struct Watched {
    began: Instant,
    pub(crate) state: Mutex<Ups>,
    pub(crate) stop: CancellationToken,
    /// The configuration may name another one.
    pub(crate) configured: Notify,
}

impl Default for Watched {
    fn default() -> Self {
        Self {
            began: Instant::now(),
            state: Mutex::default(),
            stop: CancellationToken::new(),
            configured: Notify::new(),
        }
    }
}

impl Watched {
    /// Until the power has been away for too long.
    pub async fn ends(&self) {
        self.stop.cancelled().await;
    }

    /// Whether it has.
    pub fn has_ended(&self) -> bool {
        self.stop.is_cancelled()
    }

    pub(crate) fn conditions(&self, config: Option<&UpsConfig>) -> Vec<Condition> {
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

    pub(crate) fn metrics(&self, out: &mut Metrics) {
        let state = self.state.lock();
        let Some(last) = state.last() else { return };
        let help = "1 while the machine runs on the battery of its UPS.";
        out.gauge("larder_watch_ups_on_battery", help, &[], last.on_battery.into());
        if let Some(charge) = last.charge_percent {
            out.gauge("larder_watch_ups_charge_percent", "Charge of the battery of the UPS.", &[], u64::from(charge));
        }
    }

    pub(crate) fn on_battery_for(&self) -> Option<Duration> {
        self.state.lock().on_battery_for(self.began.elapsed())
    }

    pub(crate) fn take(&self, answer: Result<Reading, String>, config: &UpsConfig) -> Option<String> {
        self.state.lock().take(self.began.elapsed(), answer, config.limits)
    }
}

/// How people name it.
pub(crate) fn name(config: &UpsConfig) -> &str {
    match &config.source {
        Source::Nut { name, .. } => name,
        Source::Battery(_) => "battery",
    }
}

pub(crate) fn plan(config: &UpsConfig) -> String {
    let mut parts = Vec::new();
    parts.extend(config.limits.after.map(|after| format!("after {} s on the battery", after.as_secs())));
    parts.extend(config.limits.below_percent.map(|below| format!("below {below} %")));
    parts.push("when the battery is low".to_owned());
    format!("larder stops in order {}.", parts.join(", or "))
}
