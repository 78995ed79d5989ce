//! The evidence of a connection's time, the strongest first (`live.ranked`).

use super::cause::Cause;
use super::seen::{Deed, Seen};
use crate::reason::{Confidence, End, Evidence, Mode, ResourceId, Use};

/// From this share of the time on something is what is waited for.
const MOST: f64 = 0.5;
/// The kernel's own accounts of a sender are exact, and a third of the time is much of them.
const WINDOW_FULL: f64 = 0.3;
const LOSSES: f64 = 0.005;
/// A control group that holds a process back in every third period takes the time of whatever waits beside it.
const THROTTLED: f64 = 0.34;
/// Cores, or one thread, that do nothing else.
const FULL: f64 = 0.9;
/// Threads that are ready wait for a core longer than they run.
const DELAYED: f64 = 0.5;
/// Threads wait for a core four times as long as they run, and at most moments one does (`live.starved`).
const STARVED: f64 = 0.8;
const ONE_WAITS: f64 = 0.6;
/// As `reason` has it: from this share of a card's rate on it is full.
const LINE_FULL: f64 = 0.8;
/// A transfer over a wire comes without gaps, and a step of it brings no more than that many times the mean.
const GAPLESS: f64 = 0.8;
const EVEN: f64 = 2.6;
/// While a wire is full, bytes of some request come at nearly every moment. A client that asks for one thing after another and needs
/// time in between is silent for much of it.
const SILENT: f64 = 0.3;
/// A look whose samples came so late had no core itself (`live.late`).
const LATE: f64 = 0.5;
/// Enough beside threads that wait.
const RATHER_LATE: f64 = 0.3;
/// Samples in which the client took nothing.
const STOPPED: f64 = 0.2;
/// Less than most of the time, where nothing else has as much.
const MUCH: f64 = 0.3;
/// Requests under way at the client: about one.
const ABOUT_ONE: std::ops::RangeInclusive<f64> = 0.45..=1.6;

pub(super) struct Found {
    pub cause: Cause,
    pub resource: Option<ResourceId>,
    pub evidence: Evidence,
    pub confidence: Confidence,
}

type Finder = fn(&Seen) -> Option<(Cause, f64)>;

/// A row is a name for what it says, and the function that finds it: the cause, and its share of the time.
pub(super) const RANKING: &[(&str, Finder)] = &[
    ("nothing is transferred", idle),
    ("a quota is used up", quota),
    ("the process gets no core", starved),
    ("the client's window is full", slow_to_take),
    ("the wire holds the answers", wire_out),
    ("requests wait here", here),
    ("the wire holds the requests", wire_in),
    ("bytes wait to be read here", unread),
    ("the cores are full", cores),
    ("one request is under way", one_request),
    ("bytes come in bursts", slow_to_give),
];

pub(super) fn first(seen: &Seen) -> Found {
    let found = RANKING.iter().find_map(|(_, find)| find(seen));
    let (cause, share) = found.unwrap_or((Cause::OneRequest, seen.time.client));
    let confidence = match share {
        share if share >= 0.8 => Confidence::Certain,
        share if share >= MOST => Confidence::Likely,
        _ => Confidence::Maybe,
    };
    let (resource, evidence) = as_reason(cause, share);
    Found { cause, resource, evidence, confidence }
}

/// The cause in the words of `reason`.
fn as_reason(cause: Cause, share: f64) -> (Option<ResourceId>, Evidence) {
    let reached = |resource, mode| (Some(resource), Evidence::Reached { mode, share });
    let busy = |resource, what| (Some(resource), Evidence::Busy { what, percent: share * 100.0 });
    match cause {
        Cause::Idle => (None, Evidence::Usual),
        Cause::OneRequest => reached(ResourceId::Requests, Mode::OneInFlight),
        Cause::SlowToTake | Cause::SlowToGive => reached(ResourceId::ClientSide, Mode::Normal),
        Cause::WireRate => reached(ResourceId::Network, Mode::Normal),
        Cause::WireLoss => reached(ResourceId::Network, Mode::Losses),
        Cause::Quota => busy(ResourceId::Processor(End::Server), Use::Quota),
        Cause::OtherWork | Cause::Cores => busy(ResourceId::Processor(End::Server), Use::Cores),
        Cause::DiskRead | Cause::DiskWrite => busy(ResourceId::Disks, Use::Disks),
        Cause::Journal | Cause::JournalFull => reached(ResourceId::Disks, Mode::Flush),
        Cause::Lease => reached(ResourceId::Requests, Mode::Normal),
    }
}

fn idle(seen: &Seen) -> Option<(Cause, f64)> {
    (seen.does == Deed::Idle).then_some((Cause::Idle, 1.0))
}

fn quota(seen: &Seen) -> Option<(Cause, f64)> {
    (seen.around.throttled >= THROTTLED).then_some((Cause::Quota, seen.around.throttled))
}

fn starved(seen: &Seen) -> Option<(Cause, f64)> {
    let around = seen.around;
    if around.late >= LATE {
        return Some((Cause::OtherWork, around.late));
    }
    // On a machine that is merely busy threads wait as long, and a thread that slept has its turn soon.
    let starves = around.delayed >= STARVED && around.waiting >= ONE_WAITS && around.late >= RATHER_LATE;
    starves.then_some((Cause::OtherWork, around.delayed))
}

/// A queue on the way fills a window, too, and then it is the wire's: but a wire always has bytes on it.
fn slow_to_take(seen: &Seen) -> Option<(Cause, f64)> {
    (seen.window_full >= WINDOW_FULL && (!seen.is_queued() || seen.stopped >= STOPPED))
        .then_some((Cause::SlowToTake, seen.window_full.max(MOST)))
}

fn wire_out(seen: &Seen) -> Option<(Cause, f64)> {
    let is_busy = seen.does != Deed::Write && seen.sender_busy.max(seen.time.sending) >= MOST;
    let holds = [seen.unsent, seen.wire_bound, seen.buffer_full].into_iter().fold(0.0, f64::max);
    let is_queued = seen.is_queued() && seen.time.sending >= MOST;
    (is_busy && (holds >= 0.4 || is_queued)).then(|| (wire(seen), holds.max(seen.sender_busy)))
}

/// `live.full_or_lossy`
fn wire(seen: &Seen) -> Cause {
    if seen.lost() >= LOSSES && !seen.is_queued() { Cause::WireLoss } else { Cause::WireRate }
}

fn wire_in(seen: &Seen) -> Option<(Cause, f64)> {
    let reads = seen.unread < MOST && seen.time.here() < MOST;
    (seen.does == Deed::Write && reads).then_some(())?;
    if seen.lost_receiving >= LOSSES && seen.steps_with_bytes > 0.0 {
        return Some((wire(seen), MOST));
    }
    if ABOUT_ONE.contains(&seen.asked_at_once()) && !seen.is_queued() {
        return None;
    }
    let is_full = seen.around.line_bytes_per_s.is_some_and(|line| seen.rate() >= line * LINE_FULL);
    let flows = seen.steps_with_bytes >= GAPLESS && seen.burst <= EVEN && seen.silent < SILENT;
    (is_full || flows && seen.is_queued_coming()).then_some((Cause::WireRate, seen.steps_with_bytes))
}

fn here(seen: &Seen) -> Option<(Cause, f64)> {
    let time = &seen.time;
    let disk = if seen.does == Deed::Write { Cause::DiskWrite } else { Cause::DiskRead };
    let journal = if seen.around.log_full { Cause::JournalFull } else { Cause::Journal };
    let waits = [(disk, time.disks), (journal, time.durability), (Cause::Lease, time.other_client)];
    let (cause, share) = waits.into_iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
    let is_first = share >= time.client.max(time.sending);
    let is_much = time.here() >= MOST || time.here() >= MUCH && is_first;
    (is_much && share >= time.processor).then_some((cause, time.here()))
}

/// The bytes are here, and larder does not come to read them.
fn unread(seen: &Seen) -> Option<(Cause, f64)> {
    (seen.does == Deed::Write && seen.unread >= MOST).then_some(())?;
    let time = &seen.time;
    match () {
        () if time.disks > time.processor.max(time.durability) => Some((Cause::DiskWrite, seen.unread)),
        () if time.durability > time.processor => Some((Cause::Journal, seen.unread)),
        () => cores(seen),
    }
}

/// Work that is no wait, on cores that have no more to give.
fn cores(seen: &Seen) -> Option<(Cause, f64)> {
    let around = seen.around;
    let used = around.cores_used / around.cores.max(0.01);
    let wants = seen.time.processor.max(seen.unread);
    if used >= FULL || around.thread_busy >= FULL {
        return Some((Cause::Cores, used.max(around.thread_busy).min(1.0)));
    }
    (around.delayed >= DELAYED && wants >= 0.3).then_some((Cause::OtherWork, around.delayed))
}

fn one_request(seen: &Seen) -> Option<(Cause, f64)> {
    let is_one = ABOUT_ONE.contains(&seen.asked_at_once());
    (is_one || seen.does != Deed::Write).then_some((Cause::OneRequest, seen.time.client + seen.time.sending))
}

fn slow_to_give(seen: &Seen) -> Option<(Cause, f64)> {
    Some((Cause::SlowToGive, seen.time.client.max(1.0 - seen.steps_with_bytes)))
}
