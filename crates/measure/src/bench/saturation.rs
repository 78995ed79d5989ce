//! Which core, disk or interface had no more to give, and when.

use super::result::{CoreSeries, Samples, Saturation};

/// Percent of a core. At 100 % of a core one tick in twenty is still lost to looking.
const CORE_PERCENT: f64 = 95.0;
const DISK_PERCENT: f64 = 95.0;
/// Of a link's nominal rate: headers and gaps of Ethernet take 5 to 6 % of it.
const LINK_SHARE: f64 = 0.9;
/// Of the periods of a quota: in each of them who is held back waits for the next.
const QUOTA_PERCENT: f64 = 50.0;
/// A resource that was saturated for less than this part of a run did not limit it.
const SHARE_MIN: f64 = 0.1;

/// The longest first.
pub(super) fn saturated(samples: &Samples) -> Vec<Saturation> {
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
        let Some(limit) = net.bytes_per_s_max.map(|rate| rate * LINK_SHARE) else { continue };
        let both = net.receive_bytes_per_s.iter().zip(&net.send_bytes_per_s);
        let full: Vec<bool> = both.map(|(a, b)| *a >= limit || *b >= limit).collect();
        found.extend(stretch(times, &full, net.interface.clone()));
    }
    for quota in &samples.quotas {
        let full: Vec<bool> = quota.values.iter().map(|percent| *percent >= QUOTA_PERCENT).collect();
        found.extend(stretch(times, &full, format!("the quota of {}", quota.name)));
    }
    longest_first(&mut found);
    found
}

/// Of both ends; what belongs to the other one begins with its name.
pub(super) fn at_both_ends(near: &Samples, far: Option<(&str, &Samples)>) -> Vec<Saturation> {
    let mut found = saturated(near);
    if let Some((name, far)) = far {
        let named = |s: Saturation| Saturation { what: format!("{name}: {}", s.what), ..s };
        found.extend(saturated(far).into_iter().map(named));
    }
    longest_first(&mut found);
    found
}

/// Equal shares stay in their order; "all cores" says more than each of them.
fn longest_first(found: &mut [Saturation]) {
    let all = |s: &Saturation| s.what.ends_with("all cores");
    found.sort_by(|a, b| b.share.total_cmp(&a.share).then(all(b).cmp(&all(a))));
}

/// Full of the load: what other programs take is not its limit.
fn full(core: &CoreSeries) -> Vec<bool> {
    let stolen = |at: usize| core.steal.get(at).copied().filter(|percent| percent.is_finite()).unwrap_or(0.0);
    (0..core.user.len()).map(|at| core.busy_of_load(at) + stolen(at) >= CORE_PERCENT).collect()
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

#[cfg(test)]
mod tests {
    use super::super::result::{DiskSeries, NetSeries, Series};
    use super::*;

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
            others: Vec::new(),
            waited: Vec::new(),
        }
    }

    #[test]
    fn what_was_at_its_end_is_named_with_its_time() {
        let net = |interface: &str, rates: &[f64]| NetSeries {
            interface: interface.to_owned(),
            bytes_per_s_max: (interface == "eth0").then_some(125e6),
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
        let found = saturated(&samples);
        let told: Vec<_> = found.iter().map(|s| (s.what.as_str(), s.share, s.from_ms, s.to_ms)).collect();
        // Waiting for disks is not work: core 1 had more to give.
        assert_eq!(told, [("eth0", 0.75, 1000, 3000), ("core 0", 0.5, 1000, 3000), ("disk sda", 0.25, 1000, 2000)]);
        // The other end's are among them, by its name.
        let far = Samples { at_ms: vec![1, 2], cores: vec![core(3, &[99.0; 2], 0.0)], ..Samples::default() };
        let both = at_both_ends(&samples, Some(("nas", &far)));
        let names: Vec<_> = both.iter().map(|s| s.what.as_str()).collect();
        assert_eq!(names, ["nas: core 3", "eth0", "core 0", "disk sda"]);
        let quotas = vec![Series { name: "smbd".into(), values: vec![10.0, 90.0, 100.0, 0.0] }];
        let held = saturated(&Samples { at_ms: vec![1, 2, 3, 4], quotas, ..Samples::default() });
        assert_eq!((held[0].what.as_str(), held[0].share), ("the quota of smbd", 0.5));
    }

    #[test]
    fn a_core_that_other_programs_fill_is_not_the_loads_limit() {
        let shared = |others: f64| {
            let cores = vec![CoreSeries { others: vec![others; 2], ..core(0, &[99.0; 2], 0.0) }];
            saturated(&Samples { at_ms: vec![1, 2], cores, ..Samples::default() }).len()
        };
        assert_eq!([0.0, 10.0, 50.0, 99.0].map(shared), [1, 1, 0, 0]);
        // A load that would have taken the others' part, too, is held by the core.
        let (others, waited) = (vec![50.0; 2], vec![80.0; 2]);
        let cores = vec![CoreSeries { others, waited, ..core(0, &[99.0; 2], 0.0) }];
        assert_eq!(saturated(&Samples { at_ms: vec![1, 2], cores, ..Samples::default() }).len(), 1);
    }

    #[test]
    fn all_cores_together_come_first() {
        let samples = Samples {
            at_ms: vec![1, 2],
            cores: vec![core(0, &[99.0; 2], 0.0), core(1, &[99.0; 2], 0.0)],
            ..Samples::default()
        };
        let found = saturated(&samples);
        let names: Vec<&str> = found.iter().map(|s| s.what.as_str()).collect();
        assert_eq!(names, ["all cores", "core 0", "core 1"]);
        assert!(saturated(&Samples::default()).is_empty());
    }
}
