//! Samples of one connection as figures.
//!
//! - `live.rate_of_wire`: a request's bytes are counted at once when it ends. On a slow wire that is a burst every few windows, and
//!   nothing in between. So the bytes that TCP saw acknowledged or received count, as long as both counts differ by no more than whole
//!   requests and the socket's buffer explain. Where they differ by more (compressed data, many small requests with their heads), the
//!   requests count.

use larder_base::traffic::{Did, Moment, Protocol, TcpState, Wait};

use super::watched::{Around, Watched};

/// What a connection does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deed {
    Read,
    Write,
    List,
    Other,
    Idle,
}

impl Deed {
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::List => "list",
            Self::Other => "other",
            Self::Idle => "idle",
        }
    }
}

/// Where the time went, as shares of the window (`live.time_is_divided`).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TimeShares {
    pub disks: f64,
    pub durability: f64,
    pub processor: f64,
    pub other_client: f64,
    pub sending: f64,
    pub client: f64,
}

impl TimeShares {
    /// In which requests were under way here.
    pub fn here(&self) -> f64 {
        self.disks + self.durability + self.processor + self.other_client
    }
}

/// What a verdict follows from, for programs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figures {
    pub rtt_min_s: f64,
    pub receiving_rtt_s: f64,
    pub sender_busy: f64,
    pub window_full: f64,
    pub buffer_full: f64,
    pub unsent: f64,
    pub wire_bound: f64,
    pub unread: f64,
    pub steps_with_bytes: f64,
    pub burst: f64,
    pub silent: f64,
    pub asked_at_once: f64,
}

/// The figures of one connection.
#[derive(Clone, Debug)]
pub(super) struct Seen<'a> {
    pub protocol: Protocol,
    pub address: &'a str,
    pub around: &'a Around,
    pub does: Deed,
    /// In the direction of what it does: see `live.rate_of_wire`.
    pub read_bytes_per_s: f64,
    pub written_bytes_per_s: f64,
    pub requests_per_s: f64,
    pub request_bytes: f64,
    pub latency_s: f64,
    pub under_way: f64,
    pub time: TimeShares,
    pub rtt_s: f64,
    pub rtt_min_s: f64,
    /// The round trip as the receiving side sees it: from an acknowledgement to the bytes that it let come.
    pub receiving_rtt_s: f64,
    /// Segments that this end sent again, and segments that came behind a gap, as shares.
    pub lost_sending: f64,
    pub lost_receiving: f64,
    /// Shares of the window.
    pub sender_busy: f64,
    pub window_full: f64,
    pub buffer_full: f64,
    /// Shares of the samples: bytes not yet sent; a sender that had enough to send; bytes that this end has not read.
    pub unsent: f64,
    pub wire_bound: f64,
    pub unread: f64,
    /// Bytes to send, and none on the way: the client takes none.
    pub stopped: f64,
    /// Shares of the steps between samples in which bytes came.
    pub steps_with_bytes: f64,
    /// The best twentieth of these steps beside the mean of all steps: 1 comes evenly.
    pub burst: f64,
    /// Shares of the samples: nothing came for far longer than segments are apart.
    pub silent: f64,
}

/// Longer than a step of the kernel's clock and a hiccup of the machine.
const SILENCE_S: f64 = 0.005;
/// A slow wire has its segments far apart.
const SILENCE_FACTOR: f64 = 4.0;
/// A backlog, and not what came since a thread was woken.
const UNREAD_BYTES: u64 = 256 << 10;
/// Requests whose bytes are counted and have not passed yet, or the other way round: one at either end of the window.
const REQUESTS_AHEAD: f64 = 2.0;
/// Rounding and clocks: a round trip below this is no queue.
const QUEUE_S: f64 = 0.002;
/// A round trip this many times its least has waited in a queue.
const QUEUE_FACTOR: f64 = 2.5;

impl<'a> Seen<'a> {
    pub(super) fn of(watched: &'a Watched, around: &'a Around) -> Self {
        let moments = &watched.moments;
        let none = Moment::default();
        let (first, last) = (moments.first().unwrap_or(&none), moments.last().unwrap_or(&none));
        let window_s = watched.window_s.max(1e-3);
        let done = |what: Did| {
            let of = |moment: &Moment| moment.done.get(what as usize).copied().unwrap_or_default();
            (of(last).0.saturating_sub(of(first).0) as f64, of(last).1.saturating_sub(of(first).1) as f64)
        };
        let ((reads, read), (writes, written), (lists, _)) = (done(Did::Read), done(Did::Written), done(Did::Listed));
        let requests = last.requests.saturating_sub(first.requests) as f64;
        let under_way = mean(moments, |moment| f64::from(working(moment)));
        let tcp: Vec<TcpState> = moments.iter().filter_map(|moment| moment.tcp).collect();
        let share =
            |of: &dyn Fn(&TcpState) -> bool| tcp.iter().filter(|tcp| of(tcp)).count() as f64 / tcp.len().max(1) as f64;
        let (begun, ended) = (tcp.first().copied().unwrap_or_default(), tcp.last().copied().unwrap_or_default());
        let within =
            |of: fn(&TcpState) -> std::time::Duration| of(&ended).saturating_sub(of(&begun)).as_secs_f64() / window_s;
        let part = |some: u32, all: u32| if all == 0 { 0.0 } else { f64::from(some) / f64::from(all) };
        let unsent = share(&|tcp| tcp.unsent_bytes > 0);
        let sent = ended.acked_bytes.saturating_sub(begun.acked_bytes) as f64;
        let received = ended.received_bytes.saturating_sub(begun.received_bytes) as f64;
        // A write that has begun, and whose bytes are coming.
        let comes = received > 0.0 && moments.iter().any(|moment| moment.waiting[Wait::Client as usize] > 0);
        let has_work = under_way > 0.0 || unsent > 0.0;
        let does = match () {
            () if read > 0.0 && read >= written => Deed::Read,
            () if written > 0.0 => Deed::Write,
            () if lists > 0.0 => Deed::List,
            () if requests > 0.0 => Deed::Other,
            () if comes => Deed::Write,
            // It stalls: what it did last.
            () if has_work && last.done[0].1 >= last.done[1].1 => Deed::Read,
            () if has_work => Deed::Write,
            () => Deed::Idle,
        };
        let (times, bytes) = match does {
            Deed::Write => (writes, written),
            _ => (reads, read),
        };
        let request_bytes = if times > 0.0 { bytes / times } else { 0.0 };
        let passed = |passed: f64, buffered_bytes: u64| {
            let slack = request_bytes * REQUESTS_AHEAD + buffered_bytes as f64;
            if tcp.len() > 1 && (bytes == 0.0 || (bytes - passed).abs() <= slack) { passed } else { bytes }
        };
        let buffered = |of: fn(&TcpState) -> u64| of(&begun).max(of(&ended));
        let (read, written) = match does {
            Deed::Read => (passed(sent, buffered(|tcp| u64::from(tcp.unsent_bytes))), written),
            Deed::Write => (read, passed(received, buffered(|tcp| tcp.unread_bytes))),
            _ => (read, written),
        };
        let (steps_with_bytes, burst) = arrivals(&tcp);
        let segments = ended.data_segments_received.wrapping_sub(begun.data_segments_received);
        let silence_s = (window_s / f64::from(segments.max(1)) * SILENCE_FACTOR).max(SILENCE_S);
        Self {
            protocol: watched.protocol,
            address: &watched.address,
            around,
            does,
            read_bytes_per_s: read / window_s,
            written_bytes_per_s: written / window_s,
            requests_per_s: requests.max(times) / window_s,
            request_bytes,
            latency_s: if requests > 0.0 { under_way * window_s / requests.max(times) } else { 0.0 },
            under_way,
            time: divided(moments),
            rtt_s: tcp.iter().map(|tcp| tcp.rtt.as_secs_f64()).sum::<f64>() / tcp.len().max(1) as f64,
            rtt_min_s: ended.rtt_min.as_secs_f64(),
            receiving_rtt_s: ended.receiving_rtt.as_secs_f64(),
            lost_sending: part(
                ended.retransmitted.wrapping_sub(begun.retransmitted),
                ended.data_segments_sent.wrapping_sub(begun.data_segments_sent),
            ),
            lost_receiving: part(
                ended.out_of_order.wrapping_sub(begun.out_of_order),
                ended.data_segments_received.wrapping_sub(begun.data_segments_received),
            ),
            sender_busy: within(|tcp| tcp.busy),
            window_full: within(|tcp| tcp.window_full),
            buffer_full: within(|tcp| tcp.buffer_full),
            unsent,
            wire_bound: share(&|tcp| !tcp.is_idle_sender && tcp.unacked > 0),
            unread: share(&|tcp| tcp.unread_bytes >= UNREAD_BYTES),
            stopped: share(&|tcp| tcp.unsent_bytes > 0 && tcp.unacked == 0),
            steps_with_bytes,
            burst,
            silent: share(&|tcp| tcp.silent.as_secs_f64() > silence_s),
        }
    }

    pub(super) fn figures(&self) -> Figures {
        Figures {
            rtt_min_s: self.rtt_min_s,
            receiving_rtt_s: self.receiving_rtt_s,
            sender_busy: self.sender_busy,
            window_full: self.window_full,
            buffer_full: self.buffer_full,
            unsent: self.unsent,
            wire_bound: self.wire_bound,
            unread: self.unread,
            steps_with_bytes: self.steps_with_bytes,
            burst: self.burst,
            silent: self.silent,
            asked_at_once: self.asked_at_once(),
        }
    }

    /// Bytes a second in the direction of what it does.
    pub(super) fn rate(&self) -> f64 {
        if self.does == Deed::Write { self.written_bytes_per_s } else { self.read_bytes_per_s }
    }

    pub(super) fn lost(&self) -> f64 {
        if self.does == Deed::Write { self.lost_receiving } else { self.lost_sending }
    }

    /// Whether packets wait in a queue on the way (`live.full_or_lossy`).
    pub(super) fn is_queued(&self) -> bool {
        self.rtt_s > self.rtt_min_s * QUEUE_FACTOR + QUEUE_S
    }

    /// The same for bytes that come, where this end may send nothing whose round trip could be taken. A client that
    /// pauses looks alike, so it says something only of bytes that come without gaps.
    pub(super) fn is_queued_coming(&self) -> bool {
        self.is_queued() || self.receiving_rtt_s > self.rtt_min_s * QUEUE_FACTOR + QUEUE_S
    }

    /// Requests that the client has under way, by Little's law: the time of one is a round trip, and the time here.
    pub(super) fn asked_at_once(&self) -> f64 {
        self.requests_per_s * (self.rtt_s + self.latency_s)
    }
}

/// Requests that are complete and not answered.
fn working(moment: &Moment) -> u32 {
    let waits = |on: Wait| moment.waiting.get(on as usize).copied().unwrap_or(0);
    let here = waits(Wait::Disk) + waits(Wait::Durable) + waits(Wait::Other);
    moment.under_way.saturating_sub(waits(Wait::Client)).max(here)
}

/// `live.time_is_divided`
fn divided(moments: &[Moment]) -> TimeShares {
    let mut time = TimeShares::default();
    for moment in moments {
        let waits = |on: Wait| f64::from(moment.waiting.get(on as usize).copied().unwrap_or(0));
        let all = f64::from(working(moment));
        if all > 0.0 {
            let (disks, durable, other) = (waits(Wait::Disk), waits(Wait::Durable), waits(Wait::Other));
            time.disks += disks / all;
            time.durability += durable / all;
            time.other_client += other / all;
            time.processor += ((all - disks - durable - other) / all).max(0.0);
        } else if moment.tcp.is_some_and(|tcp| tcp.unsent_bytes > 0 || tcp.unacked > 0) {
            time.sending += 1.0;
        } else {
            time.client += 1.0;
        }
    }
    let of = |sum: f64| sum / moments.len().max(1) as f64;
    TimeShares {
        disks: of(time.disks),
        durability: of(time.durability),
        processor: of(time.processor),
        other_client: of(time.other_client),
        sending: of(time.sending),
        client: of(time.client),
    }
}

/// How evenly bytes came.
fn arrivals(tcp: &[TcpState]) -> (f64, f64) {
    let mut steps: Vec<f64> =
        tcp.windows(2).map(|two| two[1].received_bytes.saturating_sub(two[0].received_bytes) as f64).collect();
    let (count, sum) = (steps.len() as f64, steps.iter().sum::<f64>());
    if steps.is_empty() || sum == 0.0 {
        return (0.0, 0.0);
    }
    let with_bytes = steps.iter().filter(|bytes| **bytes > 0.0).count() as f64 / count;
    steps.sort_by(f64::total_cmp);
    let best = steps.get(steps.len() * 19 / 20).copied().unwrap_or_default();
    (with_bytes, best / (sum / count))
}

fn mean(moments: &[Moment], of: impl Fn(&Moment) -> f64) -> f64 {
    moments.iter().map(of).sum::<f64>() / moments.len().max(1) as f64
}
