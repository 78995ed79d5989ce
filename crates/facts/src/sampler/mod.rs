//! The work of the machine while a load runs: a thread that looks at the kernel's counters.
//!
//! It looks only while it is told to, so that neither preparing nor cleaning up is taken for the load's doing. The
//! number of looks is bounded: what lies beyond is not kept.

use std::collections::BTreeMap;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::Machine;
use crate::samples::{CoreSeries, DiskSeries, NetSeries, Samples, Series};

mod look;
mod others;
mod watts;

use crate::machine::proc::DiskCounters;
pub use look::{CORES_MAX, DISKS_MAX, NETS_MAX, SENSORS_MAX};
use look::{CoreTicks, Counters, Look, NetCounts, link_bytes_per_s};
use others::Shared;
pub use watts::Meter;
use watts::Wattmeter;

/// Below this, ticks of 10 ms are too coarse.
pub const INTERVAL: Duration = Duration::from_millis(500);
/// An hour of half seconds.
pub const LOOKS_MAX: usize = 7200;

enum Order {
    Look,
    Rest,
    End,
}

pub struct Sampler {
    orders: Sender<Order>,
    thread: Option<JoinHandle<Samples>>,
}

impl Sampler {
    /// `began`: when the bench did, which all times count from.
    pub fn start(machine: &Machine, began: Instant, meter: Option<Meter>) -> Self {
        let (orders, received) = channel();
        let machine = machine.clone();
        let thread = std::thread::spawn(move || {
            let mut counters = Counters::new(&machine);
            let meter = meter.map(|meter| Wattmeter::start(meter, began, INTERVAL));
            let mut recorder = Recorder::default();
            let mut last: Option<(Instant, Look)> = None;
            loop {
                match received.recv_timeout(INTERVAL) {
                    Ok(Order::Look) => last = Some((Instant::now(), counters.look())),
                    Ok(Order::Rest) => last = None,
                    Ok(Order::End) | Err(RecvTimeoutError::Disconnected) => return recorder.finish(&machine),
                    Err(RecvTimeoutError::Timeout) => {}
                }
                let Some((before_at, before)) = &last else { continue };
                if before_at.elapsed() < INTERVAL / 2 {
                    continue;
                }
                let watts = meter.as_ref().and_then(Wattmeter::now);
                let (now_at, now) = (Instant::now(), counters.look());
                let at_ms = u64::try_from((now_at - began).as_millis()).unwrap_or(u64::MAX);
                recorder.add(at_ms, (now_at - *before_at).as_secs_f64(), before, &now, watts);
                last = Some((now_at, now));
            }
        });
        Self { orders, thread: Some(thread) }
    }

    pub fn look(&self) {
        let _ = self.orders.send(Order::Look);
    }

    pub fn rest(&self) {
        let _ = self.orders.send(Order::Rest);
    }

    pub fn end(mut self) -> Samples {
        let _ = self.orders.send(Order::End);
        self.thread.take().and_then(|thread| thread.join().ok()).unwrap_or_default()
    }
}

/// Makes series of looks; each has as many values as there are times.
#[derive(Default)]
struct Recorder {
    at_ms: Vec<u64>,
    cores: BTreeMap<u32, CoreSeries>,
    disks: BTreeMap<String, DiskSeries>,
    nets: BTreeMap<String, NetSeries>,
    temperatures: BTreeMap<String, Vec<f64>>,
    clocks: BTreeMap<u32, Vec<f64>>,
    /// By what measures them: that may fail, and another take its place.
    watts: BTreeMap<String, Vec<f64>>,
    throttled: u64,
    quotas: BTreeMap<String, Vec<f64>>,
}

/// Adds a value at the end, and holes for the times at which it was not there.
fn put(series: &mut Vec<f64>, length: usize, value: f64) {
    series.resize(length, f64::NAN);
    series.push(value);
}

impl Recorder {
    fn add(&mut self, at_ms: u64, seconds: f64, before: &Look, now: &Look, watts: Option<(String, f64)>) {
        let n = self.at_ms.len();
        if n >= LOOKS_MAX || seconds <= 0.0 {
            return;
        }
        for (&core, ticks) in &now.cores {
            if let Some(earlier) = before.cores.get(&core) {
                let spent = |look: &Look| Some(look.shared.as_ref()?.get(&core).copied().unwrap_or_default());
                let since = |(now, before): (Shared, Shared)| Shared {
                    others: now.others.saturating_sub(before.others),
                    waited_ns: now.waited_ns.saturating_sub(before.waited_ns),
                };
                let waited_max_ns = seconds * 1e9;
                let shared = spent(now).zip(spent(before)).map(since);
                let waited = shared.map(|shared| (shared.waited_ns as f64 / waited_max_ns * 100.0).min(100.0));
                self.add_core(n, core, [earlier, ticks], shared.map(|shared| shared.others), waited);
            }
        }
        for (disk, counts) in &now.disks {
            if let Some(earlier) = before.disks.get(disk) {
                self.add_disk(n, disk, seconds, earlier, counts);
            }
        }
        let again = now.retransmits.zip(before.retransmits).map_or(f64::NAN, |(a, b)| a.saturating_sub(b) as f64);
        for (interface, counts) in &now.nets {
            if let Some(earlier) = before.nets.get(interface) {
                self.add_net(n, interface, seconds, earlier, counts, again);
            }
        }
        for (name, &value) in &now.temperatures {
            put(self.temperatures.entry(name.clone()).or_default(), n, value);
        }
        for (&core, &value) in &now.clocks {
            put(self.clocks.entry(core).or_default(), n, value);
        }
        for (name, &(periods, held_back)) in &now.quotas {
            let (was, was_held_back) = before.quotas.get(name).copied().unwrap_or((periods, held_back));
            let ran = periods.saturating_sub(was).max(1) as f64;
            let percent = held_back.saturating_sub(was_held_back) as f64 / ran * 100.0;
            put(self.quotas.entry(name.clone()).or_default(), n, percent.min(100.0));
        }
        if let Some((name, value)) = watts {
            put(self.watts.entry(name).or_default(), n, value);
        }
        self.throttled += now.throttled.saturating_sub(before.throttled) + u64::from(now.throttled_now);
        self.at_ms.push(at_ms);
    }

    fn add_core(
        &mut self,
        n: usize,
        core: u32,
        [before, now]: [&CoreTicks; 2],
        others: Option<u64>,
        waited: Option<f64>,
    ) {
        let part = |f: fn(&CoreTicks) -> u64| f(now).saturating_sub(f(before)) as f64;
        let parts: [fn(&CoreTicks) -> u64; 7] =
            [|t| t.user, |t| t.nice, |t| t.system, |t| t.iowait, |t| t.irq, |t| t.steal, |t| t.idle];
        let total: f64 = parts.iter().map(|f| part(*f)).sum();
        let percent = |f: fn(&CoreTicks) -> u64| if total > 0.0 { part(f) / total * 100.0 } else { f64::NAN };
        let [user, nice, system, iowait, irq, steal, _] = parts.map(percent);
        // Threads move between looks: no core gave other programs more than it gave all.
        let most = user + nice + system;
        let others = others.filter(|_| total > 0.0).map_or(f64::NAN, |ticks| (ticks as f64 / total * 100.0).min(most));
        let series = self.cores.entry(core).or_insert_with(|| CoreSeries { core, ..CoreSeries::default() });
        let lists = [
            (&mut series.user, user),
            (&mut series.nice, nice),
            (&mut series.system, system),
            (&mut series.iowait, iowait),
            (&mut series.irq, irq),
            (&mut series.steal, steal),
            (&mut series.others, others),
            (&mut series.waited, waited.unwrap_or(f64::NAN)),
        ];
        lists.into_iter().for_each(|(list, value)| put(list, n, value));
    }

    fn add_disk(&mut self, n: usize, disk: &str, seconds: f64, before: &DiskCounters, now: &DiskCounters) {
        let part = |f: fn(&DiskCounters) -> u64| f(now).saturating_sub(f(before)) as f64;
        let requests = part(|c| c.reads.saturating_add(c.writes));
        let waited = if requests > 0.0 { part(|c| c.waited_ms) / requests } else { f64::NAN };
        let new = || DiskSeries { disk: disk.to_owned(), ..DiskSeries::default() };
        let series = self.disks.entry(disk.to_owned()).or_insert_with(new);
        put(&mut series.busy, n, (part(|c| c.busy_ms) / (seconds * 10.0)).min(100.0));
        put(&mut series.read_bytes_per_s, n, part(|c| c.read_bytes) / seconds);
        put(&mut series.write_bytes_per_s, n, part(|c| c.written_bytes) / seconds);
        put(&mut series.latency_ms, n, waited);
    }

    fn add_net(&mut self, n: usize, name: &str, seconds: f64, before: &NetCounts, now: &NetCounts, again: f64) {
        let part = |f: fn(&NetCounts) -> u64| f(now).saturating_sub(f(before)) as f64 / seconds;
        let new = || NetSeries { interface: name.to_owned(), ..NetSeries::default() };
        let series = self.nets.entry(name.to_owned()).or_insert_with(new);
        put(&mut series.receive_bytes_per_s, n, part(|c| c.received_bytes));
        put(&mut series.send_bytes_per_s, n, part(|c| c.sent_bytes));
        put(&mut series.retransmits, n, again);
    }

    /// Disks and interfaces that did nothing at all are left out, and quotas that held nobody back.
    fn finish(self, machine: &Machine) -> Samples {
        let n = self.at_ms.len();
        let moved = |lists: [&[f64]; 2]| lists.iter().any(|list| list.iter().any(|v| *v > 0.0));
        let named = |(name, values)| Series { name, values };
        let mut disks: Vec<DiskSeries> = self.disks.into_values().collect();
        disks.retain(|d| moved([&d.read_bytes_per_s, &d.write_bytes_per_s]));
        let mut nets: Vec<NetSeries> = self.nets.into_values().collect();
        nets.retain(|i| moved([&i.receive_bytes_per_s, &i.send_bytes_per_s]));
        nets.iter_mut().for_each(|i| i.bytes_per_s_max = link_bytes_per_s(machine, &i.interface));
        let mut quotas: Vec<Series> = self.quotas.into_iter().map(named).collect();
        quotas.retain(|quota| quota.values.iter().any(|v| *v > 0.0));
        // The source that measured most of the time: a mixture of two would be neither.
        let known = |values: &Vec<f64>| values.iter().filter(|v| v.is_finite()).count();
        let watts = self.watts.into_iter().max_by_key(|(_, values)| known(values)).map(named);
        let mut samples = Samples {
            quotas,
            at_ms: self.at_ms,
            cores: self.cores.into_values().collect(),
            disks,
            nets,
            temperatures: self.temperatures.into_iter().map(named).collect(),
            clocks: self.clocks.into_iter().map(|(core, v)| named((format!("core {core}"), v))).collect(),
            throttled: self.throttled,
            watts,
        };
        // Where processes cannot be seen there is no such series.
        let unknown = |core: &&mut CoreSeries| core.others.iter().all(|value| value.is_nan());
        samples.cores.iter_mut().filter(unknown).for_each(|core| {
            core.others.clear();
            core.waited.clear();
        });
        for list in lists(&mut samples) {
            list.resize(n, f64::NAN);
        }
        samples
    }
}

/// All series, each as long as `at_ms`.
pub fn lists(samples: &mut Samples) -> Vec<&mut Vec<f64>> {
    let mut lists = Vec::new();
    for c in &mut samples.cores {
        lists.extend([&mut c.user, &mut c.nice, &mut c.system, &mut c.iowait, &mut c.irq, &mut c.steal]);
        lists.extend([&mut c.others, &mut c.waited].into_iter().filter(|list| !list.is_empty()));
    }
    for d in &mut samples.disks {
        lists.extend([&mut d.busy, &mut d.read_bytes_per_s, &mut d.write_bytes_per_s, &mut d.latency_ms]);
    }
    for i in &mut samples.nets {
        lists.extend([&mut i.receive_bytes_per_s, &mut i.send_bytes_per_s, &mut i.retransmits]);
    }
    let named = samples.temperatures.iter_mut().chain(&mut samples.clocks).chain(&mut samples.watts);
    let named = named.chain(&mut samples.quotas);
    lists.extend(named.map(|series| &mut series.values));
    lists
}

#[cfg(test)]
mod tests;
