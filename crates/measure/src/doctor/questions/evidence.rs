//! What stands beside a figure and does not go with it: times, queues, busy disks, segments sent again.
//!
//! Not of a bench: its figures are of many moments, and of disks that it saw from above.

use larder_base::units::ByteSize;

use super::{Question, SLACK_WIRE, ask};
use crate::doctor::describe::{Described, Measured, Path};
use crate::doctor::limits::DiskKind;
use crate::doctor::misleading::misleading;
use crate::doctor::stages::{Basis, StageKind, stages};
use crate::doctor::words::{bytes_words, path_words, rate_words};

/// Times are rounded.
const SLACK_TIMES: f64 = 0.9;
/// A queue that was meant to be there is there for most of the time.
const QUEUE_KEPT: f64 = 0.3;
/// About one under way is what a program has that waits for each: that is told as the limit, and no contradiction.
const ONE_UNDER_WAY: std::ops::RangeInclusive<f64> = 0.7..=1.3;
/// How much busier than it was seen to be a disk must have been before it is asked about.
const BUSIER: f64 = 1.5;

/// No disk of its kind answers so soon.
pub(super) fn answers_too_soon(described: &Described) -> Vec<Question> {
    let soon = described.disks.iter().filter_map(|disk| {
        let (latency, physical) = (disk.latency_s?, disk.kind?.physical());
        let least = physical.least_latency_s;
        let text = format!(
            "latency of the disk '{}' is {}, and no {} answers in less than {}. Is the unit right, or did a cache answer?",
            disk.name,
            time_words(latency),
            physical.name,
            time_words(least)
        );
        (latency < least * SLACK_TIMES).then(|| ask("answers-too-soon", text))
    });
    soon.collect()
}

fn time_words(seconds: f64) -> String {
    if seconds < 1e-3 { format!("{:.0} us", seconds * 1e6) } else { format!("{:.1} ms", seconds * 1e3) }
}

/// What speaks NVMe has no SATA plug.
pub(super) fn plugs(described: &Described) -> Vec<Question> {
    let nvme = described.disks.iter().filter(|disk| disk.kind == Some(DiskKind::Nvme));
    let on_sata = nvme.filter_map(|disk| {
        let wire = disk.connection.as_ref().filter(|w| w.name.starts_with("SATA") || w.name.starts_with("SAS"))?;
        let text = format!(
            "the disk '{}' is an NVMe SSD and connected by {}, and there are none with that plug: is it an M.2 SATA SSD (kind = \"sata-ssd\"), or connected by PCIe?",
            disk.name, wire.name
        );
        Some(ask("wrong-plug", text))
    });
    on_sata.collect()
}

/// Whoever measures on the machine itself is no client.
pub(super) fn clients_here(described: &Described) -> Vec<Question> {
    each(described, |at, m| {
        let client = m.how.client.as_ref().filter(|_| matches!(m.path, Path::Disks | Path::Local))?;
        let text = format!(
            "{} has client = \"{client}\", and on the machine itself no client takes part: was it over the network (path = \"share\")?",
            path_words(m)
        );
        Some(Question { code: "client-here", text, measured: Some(at) })
    })
}

/// What is sent again was sent, and on the machine itself nothing is.
pub(super) fn segments_here(described: &Described) -> Vec<Question> {
    each(described, |at, m| {
        let here = matches!(m.path, Path::Disks | Path::Local);
        let again = m.how.retransmits_percent.filter(|again| here && *again > 0.0)?;
        let text = format!(
            "{} has retransmits = {again}, and on the machine itself nothing is sent: was it over the network (path = \"share\"), or were they another program's segments?",
            path_words(m)
        );
        Some(Question { code: "segments-here", text, measured: Some(at) })
    })
}

/// From here on somebody else's use of disks is felt while they have no part in it.
const DISKS_BUSY_PERCENT: f64 = 50.0;
const DISKS_WAITED_PERCENT: f64 = 25.0;

/// A wire is measured from memory to memory.
pub(super) fn disks_beside_wire(described: &Described) -> Vec<Question> {
    each(described, |at, m| {
        let how = |field, percent: Option<f64>, least| Some((field, percent.filter(|p| *p >= least)?));
        let (field, percent) = how("disk_busy", m.how.disk_busy_percent, DISKS_BUSY_PERCENT)
            .or_else(|| how("iowait", m.how.iowait_percent, DISKS_WAITED_PERCENT))
            .filter(|_| m.path == Path::Net)?;
        let text = format!(
            "{} has {field} = {percent:.0}, and no disk takes part in that: what else was running, or was it a share (path = \"share\")?",
            path_words(m)
        );
        Some(Question { code: "disks-beside-wire", text, measured: Some(at) })
    })
}

pub(super) fn blocks_beyond_files(described: &Described) -> Vec<Question> {
    each(described, |at, m| {
        let (block, file) = (m.how.block_bytes?, m.file_bytes?);
        let text = format!(
            "{} has blocks of {} and a file of {}: which of the two is right?",
            path_words(m),
            ByteSize(block),
            ByteSize(file)
        );
        (block > file).then_some(Question { code: "block-beyond-file", text, measured: Some(at) })
    })
}

/// What is sent again passes the wire, too.
pub(super) fn sent_again(described: &Described) -> Vec<Question> {
    each(described, |at, m| {
        let again = m.how.retransmits_percent.filter(|_| matches!(m.path, Path::Share | Path::Net))? / 100.0;
        let network = described.network.as_ref()?;
        let line = network.wire.as_ref().map_or(network.bytes_per_s, |wire| wire.line.max(network.bytes_per_s));
        let sent = m.bytes_per_s() / (1.0 - again).max(1e-3);
        let text = format!(
            "{} gave {}, and {:.0} % of the segments were sent again: that would be {} on a wire of {}. Which of the two is of something else?",
            path_words(m),
            rate_words(m.rate, m.what),
            again * 100.0,
            bytes_words(sent),
            bytes_words(line)
        );
        // What exceeds the wire by itself is asked about elsewhere.
        let fits = m.bytes_per_s() <= line * SLACK_WIRE;
        (fits && sent > line * SLACK_WIRE).then_some(Question { code: "sent-again", text, measured: Some(at) })
    })
}

/// A disk that gives much of what it can is busy for as much of the time.
pub(super) fn idle_disks(described: &Described) -> Vec<Question> {
    each(described, |at, m| {
        let busy = m.how.disk_busy_percent.filter(|_| m.path != Path::Net)? / 100.0;
        let stages = stages(described, m);
        let all = stages.iter().find(|s| s.kind == StageKind::Disks && s.basis != Basis::Usual)?.capacity;
        let needed = (m.rate / all).min(1.0);
        let gathers = m.what.is_random() && m.what.writes();
        let text = format!(
            "{} gave {}, which is {:.0} % of what the disks can, and they were busy {:.0} % of the time. Did memory answer, or is disk_busy of another disk?",
            path_words(m),
            rate_words(m.rate, m.what),
            m.rate / all * 100.0,
            busy * 100.0
        );
        let odd = !gathers && needed > busy * BUSIER + 0.1;
        odd.then_some(Question { code: "idle-disks", text, measured: Some(at) })
    })
}

/// Little's law from the other side: what was meant to be in flight was not.
pub(super) fn queue_not_kept(described: &Described) -> Vec<Question> {
    each(described, |at, m| {
        let (depth, latency) = (m.how.in_flight.filter(|n| *n >= 4.0)?, m.how.latency_s?);
        let per_s = if m.what.is_random() { m.rate } else { m.rate / m.how.block_bytes? as f64 };
        let kept = per_s * latency;
        let text = format!(
            "{}: {per_s:.0} requests a second of {} each are {kept:.1} in flight (Little's law), and {depth:.0} are said. Was the program itself held up, is latency of another run, or a rate in another unit?",
            path_words(m),
            time_words(latency)
        );
        let odd = kept < depth * QUEUE_KEPT && !ONE_UNDER_WAY.contains(&kept);
        odd.then_some(Question { code: "queue-not-kept", text, measured: Some(at) })
    })
}

fn each(described: &Described, rule: impl Fn(usize, &Measured) -> Option<Question>) -> Vec<Question> {
    let honest = described.measured.iter().enumerate().filter(|(_, m)| misleading(described, m).is_none());
    honest.filter(|_| !described.of_bench).filter_map(|(at, m)| rule(at, m)).collect()
}
