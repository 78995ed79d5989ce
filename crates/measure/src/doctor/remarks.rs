//! What is worth saying beside the verdict: disks that are slower than their siblings, and shares that were not asked.

use super::describe::{Described, Disk, Path, Side, What, Work};
use super::diagnose::Finding;
use super::stages::cheaper_than_said;
use super::words::{bytes_words, rate_words};

/// Below this part of its siblings' rate a disk is an outlier.
const OUTLIER: f64 = 0.8;

pub(super) fn remarks(described: &Described, findings: &[Finding]) -> Vec<String> {
    let mut remarks = outliers_described(described);
    remarks.extend(outliers_measured(described, findings));
    remarks.extend(cheaper_work(described));
    remarks
}

/// Work that takes less than is said of it is no limit at that rate.
fn cheaper_work(described: &Described) -> Vec<String> {
    let seen = |work: &Work| {
        let m = described.measured.iter().find(|m| cheaper_than_said(work, m))?;
        let cores = if work.at == Side::Server { &m.cores_percent } else { &m.how.client_cores };
        Some(format!(
            "'{}' takes less than rate_per_core says: at {} the cores were busy {:.0} % together, so it was not the limit there",
            work.name,
            bytes_words(m.bytes_per_s()),
            cores.iter().sum::<f64>()
        ))
    };
    described.work.iter().filter_map(seen).collect()
}

fn slower(described: &Described, disk: &Disk, rate: f64, others: f64, what: What) -> String {
    let own = match &disk.connection {
        Some(wire) if wire.practical * 0.75 <= rate && !what.is_random() => {
            format!(": its connection, {}, explains that; give it a slot like the others'", wire.name)
        }
        Some(_) => {
            ": its connection does not explain that; look at its heat, its firmware and how full it is".to_owned()
        }
        None => ": compare its slot, its link speed (larder doctor reads it) and its temperature".to_owned(),
    };
    let wait = match described.layout {
        layout if layout.parity() > 0 => "; with parity all disks wait for it",
        super::describe::Layout::Stripe => "; in a stripe all disks wait for it",
        _ => "",
    };
    format!(
        "'{}' is an outlier: {} where its siblings give {}{own}{wait}",
        disk.name,
        rate_words(rate, what),
        rate_words(others, what)
    )
}

/// By the figures of the description itself.
fn outliers_described(described: &Described) -> Vec<String> {
    let mut remarks = Vec::new();
    for what in [What::Read, What::RandomRead] {
        let rates: Vec<(&Disk, f64)> = described.disks.iter().filter_map(|d| Some((d, d.rate(what)?))).collect();
        for (disk, rate) in &rates {
            let others: u32 =
                rates.iter().filter(|(d, r)| d.kind == disk.kind && *rate < r * OUTLIER).map(|(d, _)| d.count).sum();
            let best = rates.iter().filter(|(d, _)| d.kind == disk.kind).map(|(_, r)| *r).fold(0.0, f64::max);
            if others > disk.count {
                remarks.push(slower(described, disk, *rate, best, what));
            }
        }
    }
    remarks
}

/// By single disks that were measured alike.
fn outliers_measured(described: &Described, findings: &[Finding]) -> Vec<String> {
    let single = |f: &&Finding| {
        f.measured.path == Path::Disks && f.measured.disks.len() == 1 && f.measured.disks.iter().all(|(_, n)| *n == 1)
    };
    let mut remarks = Vec::new();
    for one in findings.iter().filter(single) {
        let alike = findings.iter().filter(single).filter(|f| {
            f.measured.what == one.measured.what
                && f.measured.how.block_bytes == one.measured.how.block_bytes
                && f.measured.how.in_flight == one.measured.how.in_flight
        });
        let mut rates: Vec<f64> = alike.map(|f| f.measured.rate).collect();
        rates.sort_by(f64::total_cmp);
        let Some(median) = rates.get(rates.len() / 2).filter(|m| rates.len() >= 2 && one.measured.rate < **m * OUTLIER)
        else {
            continue;
        };
        let name = one.measured.disks.first().map(|(name, _)| name);
        let Some(disk) = described.disks.iter().find(|d| Some(&d.name) == name) else { continue };
        remarks.push(slower(described, disk, one.measured.rate, *median, one.measured.what));
    }
    remarks
}
