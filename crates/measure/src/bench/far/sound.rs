//! The part of another machine's samples that may be believed (`far.no_trust`).

use super::super::result::{MachineFacts, Samples, Series};
use super::{NAME_CHARS_MAX, VALUES_MAX};
use larder_facts::sampler::{CORES_MAX, DISKS_MAX, LOOKS_MAX, NETS_MAX, SENSORS_MAX, lists};

/// Between the clocks of two machines, over the hours of a bench.
const DRIFT_MS_MAX: u64 = 2000;

/// Each second look is left out until the rest fits into an answer.
pub(super) fn thinned(mut samples: Samples) -> Samples {
    while lists(&mut samples).iter().map(|list| list.len()).sum::<usize>() + samples.at_ms.len() > VALUES_MAX {
        let mut n = 0;
        samples.at_ms.retain(|_| every_second(&mut n));
        for list in lists(&mut samples) {
            let mut n = 0;
            list.retain(|_| every_second(&mut n));
        }
    }
    samples
}

fn every_second(n: &mut usize) -> bool {
    *n += 1;
    n.is_multiple_of(2)
}

/// Samples with clean names, or why they are none. `from_ms` to `to_ms`: when they were asked for.
pub(super) fn sound(mut samples: Samples, from_ms: u64, to_ms: u64) -> Result<Samples, &'static str> {
    let times = &samples.at_ms;
    let looks = times.len();
    if looks > LOOKS_MAX
        || samples.cores.len() > CORES_MAX
        || samples.disks.len() > DISKS_MAX
        || samples.nets.len() > NETS_MAX
        || samples.temperatures.len() > SENSORS_MAX
        || samples.quotas.len() > SENSORS_MAX
        || samples.clocks.len() > CORES_MAX
    {
        return Err("it tells of more than any machine has");
    }
    let (least, most) = (from_ms.saturating_sub(DRIFT_MS_MAX), to_ms.saturating_add(DRIFT_MS_MAX));
    if !times.is_sorted() || times.iter().any(|at| !(least..=most).contains(at)) {
        return Err("its times are not those of this measurement");
    }
    for list in lists(&mut samples) {
        if list.len() != looks {
            return Err("its series have other lengths than its times");
        }
        // Nothing that is counted here is below nothing but temperatures, and no plot has room for more.
        list.iter_mut().filter(|v| v.abs() > 1e15).for_each(|v| *v = f64::NAN);
    }
    samples.disks.iter_mut().for_each(|disk| disk.disk = name(&disk.disk));
    for net in &mut samples.nets {
        net.interface = name(&net.interface);
        net.bytes_per_s_max = net.bytes_per_s_max.filter(|rate| rate.is_finite() && *rate > 0.0);
    }
    let series = samples.temperatures.iter_mut().chain(&mut samples.clocks).chain(&mut samples.watts);
    let series = series.chain(&mut samples.quotas);
    series.for_each(|series: &mut Series| series.name = name(&series.name));
    Ok(samples)
}

/// What a far end answers: samples that are taken have the series and names of some machine.
#[cfg(any(test, fuzzing))]
pub(super) fn fuzz_samples(data: &[u8]) {
    if let Ok(told) = serde_json::from_slice::<MachineFacts>(data) {
        assert!(facts(&told).host.chars().count() <= NAME_CHARS_MAX);
    }
    let Ok(samples) = serde_json::from_slice::<Samples>(data) else { return };
    let Ok(found) = sound(samples, 0, 10_000) else { return };
    let looks = found.at_ms.len();
    assert!(found.disks.iter().all(|disk| !disk.disk.contains(char::is_control)));
    assert!(lists(&mut thinned(found)).iter().all(|list| list.len() <= looks));
}

pub(super) fn facts(told: &MachineFacts) -> MachineFacts {
    MachineFacts {
        host: name(&told.host),
        model: name(&told.model),
        processor: name(&told.processor),
        cores: told.cores,
        memory_bytes: told.memory_bytes,
        kernel: name(&told.kernel),
    }
}

/// Nothing that moves a cursor or turns text around, and not long.
pub(super) fn name(text: &str) -> String {
    super::super::show::words::clean(text).chars().take(NAME_CHARS_MAX).collect()
}
