//! Watts, read on a thread of their own: a plug may take seconds to answer, and nobody's counters wait for it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::power::{Basis, Readout, Sources};

/// An older reading does not count as the present one: the series has a hole instead.
const FRESH: Duration = Duration::from_secs(2);

/// The sources of watts, shared with their owner.
pub type Meter = Arc<Mutex<Sources>>;

type Latest = Arc<Mutex<Option<(Instant, String, f64)>>>;

pub(super) struct Wattmeter {
    latest: Latest,
    over: Arc<AtomicBool>,
}

impl Wattmeter {
    pub(super) fn start(meter: Meter, began: Instant, interval: Duration) -> Self {
        let (latest, over) = (Latest::default(), Arc::new(AtomicBool::new(false)));
        let (told, ended) = (latest.clone(), over.clone());
        std::thread::spawn(move || {
            while !ended.load(Ordering::Acquire) {
                let asked = Instant::now();
                let readout = meter.lock().unwrap_or_else(PoisonError::into_inner).read(began.elapsed());
                let found = chosen(&readout).map(|(name, watts)| (Instant::now(), name, watts));
                *told.lock().unwrap_or_else(PoisonError::into_inner) = found;
                std::thread::sleep(interval.saturating_sub(asked.elapsed()));
            }
        });
        Self { latest, over }
    }

    pub(super) fn now(&self) -> Option<(String, f64)> {
        let latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner).clone();
        latest.filter(|(at, ..)| at.elapsed() <= FRESH).map(|(_, name, watts)| (name, watts))
    }
}

/// Its thread is not waited for: it ends once its plug has answered, or has not.
impl Drop for Wattmeter {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Release);
    }
}

/// The whole machine where that is measured; else the parts that are, and they are called so. What is estimated or
/// typed in is the same whatever the load does.
pub(super) fn chosen(readout: &Readout) -> Option<(String, f64)> {
    if let Some(total) = readout.total.as_ref().filter(|total| total.basis == Basis::Measured) {
        return Some((total.source.clone(), total.watts));
    }
    let parts: Vec<_> = readout.readings.iter().filter(|r| r.basis == Basis::Measured).collect();
    let names: Vec<&str> = parts.iter().map(|r| r.of.as_str()).collect();
    (!parts.is_empty()).then(|| (format!("only {}", names.join(", ")), parts.iter().map(|r| r.watts).sum()))
}
