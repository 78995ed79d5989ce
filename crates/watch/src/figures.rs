//! Alerts and the health of disks as metrics. Waits for nobody: while the state is being written, alerts are left out.

use larder_alerts::Severity;
use larder_base::metrics::Metrics;

use crate::state::Watch;

impl Watch {
    pub fn metrics(&self, out: &mut Metrics) {
        if let Some(kept) = self.kept.try_lock() {
            let open = kept.alerts.open();
            for severity in [Severity::Info, Severity::Warning, Severity::Critical] {
                let count = open.iter().filter(|alert| alert.severity == severity).count() as u64;
                let labels = [("severity", severity.word())];
                out.gauge("larder_watch_alerts", "Alerts that are open.", &labels, count);
            }
            for one in self.receivers.lock().iter() {
                let labels = [("receiver", one.name.as_str())];
                let waiting = kept.queue.count(&one.name) as u64;
                out.gauge("larder_watch_waiting_messages", "Messages that wait for a receiver.", &labels, waiting);
            }
        }
        self.ups.metrics(out);
        self.disks.metrics(out);
    }
}
