//! Which core, disk or interface had no more to give, and when.

use std::path::Path;

use super::result::{CoreSeries, Samples, Saturation};
use crate::Machine;

/// Percent of a core. At 100 % of a core one tick in twenty is still lost to looking.
const CORE_PERCENT: f64 = 95.0;
const DISK_PERCENT: f64 = 95.0;
/// Of a link's nominal rate: headers and gaps of Ethernet take 5 to 6 % of it.
const LINK_SHARE: f64 = 0.9;
/// Of the periods of a quota: in each of them who is held back waits for the next.
const QUOTA_PERCENT: f64 = 50.0;
/// What was at its end for less than this part of a run did not limit it.
const SHARE_MIN: f64 = 0.1;

/// The longest first.
pub(super) fn saturated(machine: &Machine, samples: &Samples) -> Vec<Saturation> {
    let times = &samples.at_ms;
    let mut found = Vec::new();
    let cores: Vec<Vec<bool>> = samples.cores.iter().map(full).collect();
    for (series, core) in cores.iter().zip(&samples.cores) {
        found.extend(stretch(times, series, format!("core {}", core.core)));
    }
    if cores.len() > 1 {
        let all: Vec<bool> = (0..times.len()).map(|i| cores.iter().all(|c| c.get(i) == Some(&true))).collect();
        found.extend(stretch(times, &all, "all cores".to_owned()));
    }
    for disk in &samples.disks {
        let full: Vec<bool> = disk.busy.iter().map(|busy| *busy >= DISK_PERCENT).collect();
        found.extend(stretch(times, &full, format!("disk {}", disk.disk)));
    }
    for net in &samples.nets {
        let Some(limit) = bytes_per_s(machine, &net.interface).map(|rate| rate * LINK_SHARE) else { continue };
        let both = net.receive_bytes_per_s.iter().zip(&net.send_bytes_per_s);
        let full: Vec<bool> = both.map(|(a, b)| *a >= limit || *b >= limit).collect();
        found.extend(stretch(times, &full, net.interface.clone()));
    }
    for quota in &samples.quotas {
        let full: Vec<bool> = quota.values.iter().map(|percent| *percent >= QUOTA_PERCENT).collect();
        found.extend(stretch(times, &full, format!("the quota of {}", quota.name)));
    }
    // Equal shares stay in their order; "all cores" says more than each of them.
    found.sort_by(|a, b| b.share.total_cmp(&a.share).then((b.what == "all cores").cmp(&(a.what == "all cores"))));
    found
}

fn full(core: &CoreSeries) -> Vec<bool> {
    let at = |list: &[f64], i: usize| list.get(i).copied().unwrap_or(f64::NAN);
    let busy =
        |i: usize| at(&core.user, i) + at(&core.nice, i) + at(&core.system, i) + at(&core.irq, i) + at(&core.steal, i);
    (0..core.user.len()).map(|i| busy(i) >= CORE_PERCENT).collect()
}

fn stretch(times: &[u64], full: &[bool], what: String) -> Option<Saturation> {
    let count = full.iter().filter(|f| **f).count();
    let share = count as f64 / times.len().max(1) as f64;
    let first = full.iter().position(|f| *f)?;
    let last = full.iter().rposition(|f| *f)?;
    // A time is the end of its interval.
    let from_ms = first.checked_sub(1).and_then(|i| times.get(i)).or(times.get(first)).copied()?;
    (share >= SHARE_MIN).then_some(Saturation { what, share, from_ms, to_ms: *times.get(last)? })
}

/// Of one direction; unknown for links that have no speed, such as loopback and bridges.
fn bytes_per_s(machine: &Machine, interface: &str) -> Option<f64> {
    let megabits: f64 = machine.read(Path::new("/sys/class/net").join(interface).join("speed"))?.parse().ok()?;
    (megabits > 0.0).then_some(megabits * 1e6 / 8.0)
}

#[cfg(test)]
mod tests {
    use super::super::result::{DiskSeries, NetSeries, Series};
    use super::*;
    use crate::machine::fixture::Fixture;

    fn core(core: u32, system: &[f64], iowait: f64) -> CoreSeries {
        let even = |v: f64| vec![v; system.len()];
        CoreSeries {
            core,
            user: even(0.0),
            nice: even(0.0),
            system: system.to_vec(),
            iowait: even(iowait),
            irq: even(1.0),
            steal: even(0.0),
        }
    }

    #[test]
    fn what_was_at_its_end_is_named_with_its_time() {
        let fixture = Fixture::new("/sys/class/net/eth0/speed = 1000\n/sys/class/net/br0/speed = -1\n");
        let net = |interface: &str, rates: &[f64]| NetSeries {
            interface: interface.to_owned(),
            receive_bytes_per_s: vec![0.0; rates.len()],
            send_bytes_per_s: rates.to_vec(),
            retransmits: vec![0.0; rates.len()],
        };
        let samples = Samples {
            at_ms: vec![1000, 2000, 3000, 4000],
            cores: vec![core(0, &[50.0, 98.0, 99.0, 20.0], 0.0), core(1, &[10.0; 4], 89.0)],
            disks: vec![DiskSeries {
                disk: "sda".into(),
                busy: vec![f64::NAN, 99.0, 20.0, 20.0],
                ..Default::default()
            }],
            nets: vec![net("eth0", &[118e6, 118e6, 118e6, 60e6]), net("br0", &[500e6; 4]), net("lo", &[9e9; 4])],
            ..Samples::default()
        };
        let found = saturated(&fixture.machine, &samples);
        let told: Vec<_> = found.iter().map(|s| (s.what.as_str(), s.share, s.from_ms, s.to_ms)).collect();
        // Waiting for disks is not work: core 1 had more to give.
        assert_eq!(told, [("eth0", 0.75, 1000, 3000), ("core 0", 0.5, 1000, 3000), ("disk sda", 0.25, 1000, 2000)]);
        let quotas = vec![Series { name: "smbd".into(), values: vec![10.0, 90.0, 100.0, 0.0] }];
        let held = saturated(&fixture.machine, &Samples { at_ms: vec![1, 2, 3, 4], quotas, ..Samples::default() });
        assert_eq!((held[0].what.as_str(), held[0].share), ("the quota of smbd", 0.5));
    }

    #[test]
    fn all_cores_together_come_first() {
        let samples = Samples {
            at_ms: vec![1, 2],
            cores: vec![core(0, &[99.0; 2], 0.0), core(1, &[99.0; 2], 0.0)],
            ..Samples::default()
        };
        let found = saturated(&Fixture::new("").machine, &samples);
        let names: Vec<&str> = found.iter().map(|s| s.what.as_str()).collect();
        assert_eq!(names, ["all cores", "core 0", "core 1"]);
        assert!(saturated(&Fixture::new("").machine, &Samples::default()).is_empty());
    }
}
