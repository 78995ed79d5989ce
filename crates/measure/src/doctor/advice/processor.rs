//! Less work for a processor, or more of it.

use super::{Candidate, Means, candidate, forget_busy};
use crate::doctor::describe::{Described, Layout, Measured, Path, Side};
use crate::doctor::stages::{Stage, StageKind};
use crate::doctor::suspects::{IRQ_PERCENT, STEAL_PERCENT, THROTTLED_PERCENT};

const SERVER: &[Side] = &[Side::Server];
const CLIENT: &[Side] = &[Side::Client];

pub(super) fn at_processor(described: &Described, measured: &Measured) -> Vec<Candidate> {
    let mut all = Vec::new();
    let parity = matches!(described.shape(measured).layout, Layout::Raid5 | Layout::Raid6);
    if let Some(at_most) = spread_over(measured, &measured.cores_percent) {
        let how = match measured.path {
            Path::Share => {
                "mount -o nconnect=4 ... (NFS), multichannel (SMB), more server threads; IRQs of the card off cpu0: larder doctor --fix"
            }
            // One thread of its own computes parity, however many write.
            _ if measured.what.writes() && parity => {
                "echo 4 > /sys/block/mdX/md/group_thread_count (md); elsewhere more jobs at once"
            }
            _ => "more jobs at once, so that more than one core works",
        };
        let after = forget_busy(described, Side::Server);
        let what = "the work spread over the idle cores";
        let mut spread = candidate(what, Means::Command, how, after.clone(), measured);
        (spread.at_most, spread.relieves) = (at_most, SERVER);
        all.push(spread);
        if measured.how.irq_percent.is_some_and(|irq| irq >= IRQ_PERCENT) {
            all.insert(0, interrupts_spread(described, measured));
        }
    }
    let idle = !all.is_empty();
    all.extend(not_throttled(described, measured));
    all.extend(measured.how.steal_percent.filter(|s| *s >= STEAL_PERCENT).map(|_| calmer_host(described, measured)));
    let mut faster = faster_core(described, measured);
    faster.what =
        if idle { "a faster core, or less work for it" } else { "a faster processor, or less work for it" }.into();
    all.push(faster);
    all
}

/// What all cores could do together, where some have room.
pub(super) fn spread_over(measured: &Measured, cores: &[f64]) -> Option<f64> {
    let busy: f64 = cores.iter().sum();
    let idle = cores.len() > 1 && busy > 0.0 && busy < 90.0 * cores.len() as f64;
    idle.then(|| measured.rate * cores.len() as f64 * 100.0 / busy)
}

pub(super) fn interrupts_spread(described: &Described, measured: &Measured) -> Candidate {
    let how = "larder doctor --fix (IRQ affinity, RPS)";
    let after = forget_busy(described, Side::Server);
    let mut one = candidate("interrupts spread over the cores", Means::Command, how, after, measured);
    one.at_most = spread_over(measured, &measured.cores_percent).unwrap_or(f64::INFINITY);
    one.relieves = SERVER;
    one
}

/// A clock that is held down is about half of what it could be.
const THROTTLED_CLOCK: f64 = 0.5;

pub(super) fn not_throttled(described: &Described, measured: &Measured) -> Option<Candidate> {
    let time = measured.how.throttled_percent.filter(|t| *t >= THROTTLED_PERCENT)? / 100.0;
    let how = "a heat sink, a fan, dust out of it; on a Pi its own power supply; vcgencmd get_throttled, or larder doctor, says which";
    let after = forget_busy(described, Side::Server);
    let mut one = candidate("a processor that is not throttled", Means::Change, how, after, measured);
    one.at_most = measured.rate / (1.0 - time.min(1.0) * (1.0 - THROTTLED_CLOCK));
    one.relieves = SERVER;
    Some(one)
}

pub(super) fn calmer_host(described: &Described, measured: &Measured) -> Candidate {
    let taken = measured.how.steal_percent.unwrap_or_default().clamp(0.0, 99.0) / 100.0;
    let how = "at the host: fewer guests, cores pinned or reserved for this one (virsh vcpupin, Proxmox CPU units), or a larger plan";
    let after = forget_busy(described, Side::Server);
    let mut one = candidate("a host that takes nothing", Means::Change, how, after, measured);
    (one.at_most, one.relieves) = (measured.rate / (1.0 - taken), SERVER);
    one
}

/// All work on it gets faster by as much: ciphers, compressors and the rest.
pub(super) fn faster_core(described: &Described, measured: &Measured) -> Candidate {
    let mut after = forget_busy(described, Side::Server);
    after.work.retain(|w| w.at == Side::Client);
    let how = match described.work.is_empty() && described.compression_ratio == 1.0 {
        true => "a processor with faster cores; before that: governor performance (larder doctor --fix)",
        false => {
            "a processor with faster cores; before that: governor performance (larder doctor --fix), lighter compression or cipher"
        }
    };
    let mut one = candidate("a faster core", Means::Purchase, how, after, measured);
    one.relieves = SERVER;
    one
}

/// Than a cipher or a compressor makes.
pub(super) fn less_work(described: &Described, measured: &Measured, stage: &Stage) -> Candidate {
    let (side, relieves) = match stage.kind {
        StageKind::Client => (Side::Client, CLIENT),
        _ => (Side::Server, SERVER),
    };
    let mut after = forget_busy(described, side);
    after.work.retain(|w| w.at != side || !stage.name.starts_with(&w.name));
    let what = format!("less work for the processor than {}", stage.name);
    let how = "a lighter setting of it, or a processor with instructions for it";
    Candidate { relieves, ..candidate(what, Means::Change, how, after, measured) }
}
