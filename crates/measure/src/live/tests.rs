#![allow(clippy::unwrap_used)]
//! Connections as they were seen, and what is said of each.

use std::time::Duration;

use larder_base::traffic::{Did, Moment, Protocol, TcpState, WAITS, Wait};

use super::*;

const STEPS: u64 = 50;

/// What one second of a connection looks like: per step of 20 ms.
#[derive(Clone, Copy)]
struct Shape {
    protocol: Protocol,
    does: Did,
    requests: u64,
    request_bytes: u64,
    /// Of two samples one sees a request, and it waits for this.
    busy_every: u64,
    waits: Option<Wait>,
    rtt_us: u64,
    rtt_min_us: u64,
    unsent: u32,
    is_idle_sender: bool,
    busy: f64,
    window_full: f64,
    retransmitted: u64,
    /// Bytes come in one step of so many.
    comes_every: u64,
    out_of_order: u64,
    unread: u64,
    unacked: u32,
    silent_ms: u64,
    receiving_rtt_us: u64,
}

const QUIET: Shape = Shape {
    protocol: Protocol::Nfs,
    does: Did::Read,
    requests: 5,
    request_bytes: 131_072,
    busy_every: 0,
    waits: None,
    rtt_us: 200,
    rtt_min_us: 150,
    unsent: 0,
    is_idle_sender: true,
    busy: 0.3,
    window_full: 0.0,
    retransmitted: 0,
    comes_every: 1,
    out_of_order: 0,
    unread: 0,
    unacked: 1,
    silent_ms: 0,
    receiving_rtt_us: 0,
};

fn moments(shape: &Shape) -> Vec<Moment> {
    let at = |step: u64| {
        let requests = step * shape.requests;
        let mut moment = Moment { requests, ..Moment::default() };
        moment.done[shape.does as usize] = (requests, requests * shape.request_bytes);
        if shape.busy_every > 0 && step.is_multiple_of(shape.busy_every) {
            moment.under_way = 1;
            let mut waiting = [0; WAITS];
            if let Some(on) = shape.waits {
                waiting[on as usize] = 1;
            }
            moment.waiting = waiting;
        }
        let received = step / shape.comes_every * shape.comes_every * shape.requests * shape.request_bytes;
        let took = Duration::from_millis(20 * step);
        moment.tcp = Some(TcpState {
            is_idle_sender: shape.is_idle_sender,
            unacked: if shape.busy >= 0.5 { shape.unacked } else { 0 },
            rtt: Duration::from_micros(shape.rtt_us),
            rtt_min: Duration::from_micros(shape.rtt_min_us),
            retransmitted: (step * shape.retransmitted) as u32,
            data_segments_sent: (step * 100) as u32,
            data_segments_received: (step * 100) as u32,
            out_of_order: (step * shape.out_of_order) as u32,
            unsent_bytes: shape.unsent,
            received_bytes: if shape.does == Did::Written { received } else { 100 * step },
            unread_bytes: shape.unread,
            silent: Duration::from_millis(shape.silent_ms),
            receiving_rtt: Duration::from_micros(shape.receiving_rtt_us),
            busy: took.mul_f64(shape.busy),
            window_full: took.mul_f64(shape.window_full),
            ..TcpState::default()
        });
        moment
    };
    (0..=STEPS).map(at).collect()
}

fn check(shape: Shape, around: &Around, cause: Cause) -> Verdict {
    let address = "192.168.1.7".to_owned();
    let watched = Watched { protocol: shape.protocol, address, window_s: 1.0, moments: moments(&shape) };
    let verdict = judge(&watched, around);
    assert_eq!(verdict.cause, cause, "{verdict:#?}");
    verdict
}

#[test]
fn each_limit_is_named() {
    let calm = Around { cores: 4.0, ..Around::default() };
    let reads = |waits| Shape { busy_every: 1, waits, ..QUIET };
    let writes = Shape { does: Did::Written, busy: 0.05, ..QUIET };
    // Small requests over a wire of 4 ms: busy with it, and never with enough to send.
    let small =
        Shape { protocol: Protocol::Sftp, request_bytes: 32_768, rtt_us: 4000, rtt_min_us: 3900, busy: 0.95, ..QUIET };
    let said = check(small, &calm, Cause::OneRequest);
    assert_eq!(said.sentence, "SFTP asks for 32 KiB at a time over 4.0 ms of wire: at most 8.2 MB/s");
    check(Shape { busy: 1.0, unsent: 400_000, is_idle_sender: false, rtt_us: 40_000, ..QUIET }, &calm, Cause::WireRate);
    let lossy = Shape { busy: 1.0, unsent: 400_000, is_idle_sender: false, retransmitted: 2, rtt_us: 400, ..QUIET };
    assert!(check(lossy, &calm, Cause::WireLoss).sentence.contains("loses 2.0 %"));
    // A full wire drops what is too much.
    check(Shape { rtt_us: 40_000, ..lossy }, &calm, Cause::WireRate);
    check(Shape { busy: 1.0, unsent: 400_000, window_full: 0.9, ..QUIET }, &calm, Cause::SlowToTake);
    // Probes of a window of zero take long: a queue has bytes on the way, and this has none.
    let stopped = Shape { busy: 1.0, unsent: 400_000, window_full: 1.0, rtt_us: 13_000, unacked: 0, ..QUIET };
    check(stopped, &calm, Cause::SlowToTake);
    check(Shape { unacked: 20, ..stopped }, &calm, Cause::WireRate);
    // A thread that is woken late has little to read; a backlog is more.
    let late = Around { delayed: 0.95, ..calm.clone() };
    check(Shape { rtt_us: 60_000, unread: 50_000, ..writes }, &late, Cause::WireRate);
    check(Shape { unread: 2_000_000, ..writes }, &late, Cause::OtherWork);
    check(reads(Some(Wait::Disk)), &calm, Cause::DiskRead);
    check(reads(Some(Wait::Other)), &calm, Cause::Lease);
    let disk = Around { disk: Some("/mnt/b".to_owned()), ..calm.clone() };
    assert!(check(reads(Some(Wait::Disk)), &disk, Cause::DiskRead).sentence.contains("/mnt/b"));
    check(Shape { busy_every: 1, waits: Some(Wait::Durable), ..writes }, &calm, Cause::Journal);
    let full = Around { log_full: true, ..calm.clone() };
    check(Shape { busy_every: 1, waits: Some(Wait::Durable), ..writes }, &full, Cause::JournalFull);
    check(Shape { rtt_us: 60_000, ..writes }, &calm, Cause::WireRate);
    check(Shape { out_of_order: 2, ..writes }, &calm, Cause::WireLoss);
    check(Shape { comes_every: 10, ..writes }, &calm, Cause::SlowToGive);
    let quota = Around { throttled: 0.8, ..calm.clone() };
    check(QUIET, &quota, Cause::Quota);
    let cores = Around { cores_used: 3.9, ..calm.clone() };
    check(reads(None), &cores, Cause::Cores);
    check(reads(None), &Around { delayed: 0.7, ..calm.clone() }, Cause::OtherWork);
    // Held back by a control group that it cannot see: a full socket of 240 MB/s looks like a full wire.
    let held = Shape { busy: 1.0, unsent: 400_000, is_idle_sender: false, rtt_us: 40_000, ..QUIET };
    check(held, &Around { delayed: 0.93, waiting: 0.9, late: 0.4, ..calm.clone() }, Cause::OtherWork);
    // As measured beside eight compilers: threads wait, and the look is hardly late.
    check(held, &Around { delayed: 0.97, waiting: 0.9, late: 0.1, ..calm.clone() }, Cause::WireRate);
    // Few threads that are woken late on a busy machine are no reason.
    check(held, &Around { delayed: 0.93, waiting: 0.2, ..calm.clone() }, Cause::WireRate);
    // The look itself had no core, whatever the connection looks like (`live.late`).
    check(held, &Around { late: 0.8, ..calm.clone() }, Cause::OtherWork);
    check(held, &Around { late: 0.2, ..calm.clone() }, Cause::WireRate);
    // A client of small writes that works for 16 ms between them: each step has one, and the kernel's guess of the round trip is its
    // pause. It is silent meanwhile, which a full wire is not.
    let one_write = Shape {
        protocol: Protocol::Smb,
        requests: 1,
        request_bytes: 32_768,
        rtt_us: 4_000,
        rtt_min_us: 3_900,
        receiving_rtt_us: 19_000,
        silent_ms: 10,
        ..writes
    };
    check(one_write, &calm, Cause::SlowToGive);
    // As measured: it acknowledges an answer with its next request, so the round trip contains its work.
    let acknowledged_late =
        Shape { rtt_us: 21_438, rtt_min_us: 4_314, receiving_rtt_us: 18_343, busy: 0.94, ..one_write };
    let said = check(acknowledged_late, &calm, Cause::OneRequest);
    assert_eq!(said.sentence, "SMB asks for 32 KiB at a time every 20.0 ms: at most 1.6 MB/s");
    check(Shape { silent_ms: 1, ..acknowledged_late }, &calm, Cause::WireRate);
    check(Shape { silent_ms: 1, ..one_write }, &calm, Cause::WireRate);
    check(Shape { requests: 0, busy: 0.0, ..QUIET }, &calm, Cause::Idle);
}

#[test]
fn the_wire_stands_before_what_is_only_read_ahead() {
    let calm = Around { cores: 4.0, ..Around::default() };
    let ahead =
        Shape { busy_every: 1, waits: Some(Wait::Disk), busy: 1.0, unsent: 400_000, is_idle_sender: false, ..QUIET };
    check(Shape { rtt_us: 40_000, ..ahead }, &calm, Cause::WireRate);
}

#[test]
fn shares_of_time_are_whole() {
    let calm = Around { cores: 4.0, ..Around::default() };
    let verdict = check(Shape { busy_every: 2, waits: Some(Wait::Disk), busy: 0.4, ..QUIET }, &calm, Cause::DiskRead);
    let time = verdict.time;
    let all = time.here() + time.sending + time.client;
    assert!((all - 1.0).abs() < 1e-9, "{time:?}");
    assert!((time.disks - 0.5).abs() < 0.02, "{time:?}");
}

/// `live.rate_of_wire`: requests of 512 KiB over a wire of 100 kB/s, of which one ends every five windows or so.
#[test]
fn a_slow_wire_is_shown_as_it_is() {
    const RATE: u64 = 100_000;
    const REQUEST: u64 = 512 << 10;
    let around = Around { cores: 4.0, ..Around::default() };
    // What the wire has passed at this time, and what is counted of whole requests.
    let rate = |does: Did, second: u64| {
        let at = |step: u64| {
            let wire = RATE * (second * STEPS + step) / STEPS;
            // A read is counted before its bytes leave, a write once they are here.
            let ended = if does == Did::Read { wire.div_ceil(REQUEST) + 1 } else { wire / REQUEST };
            let mut moment = Moment { requests: ended, under_way: 1, ..Moment::default() };
            moment.done[does as usize] = (ended, ended * REQUEST);
            let mut tcp = TcpState { rtt: Duration::from_millis(30), ..TcpState::default() };
            match does {
                Did::Read => (tcp.acked_bytes, tcp.unsent_bytes) = (wire, (ended * REQUEST - wire) as u32),
                _ => {
                    tcp.received_bytes = wire;
                    moment.waiting[Wait::Client as usize] = 1;
                }
            }
            moment.tcp = Some(tcp);
            moment
        };
        let moments = (0..=STEPS).map(at).collect();
        let watched = Watched { protocol: Protocol::WebDav, address: "10.0.0.7".to_owned(), window_s: 1.0, moments };
        let verdict = judge(&watched, &around);
        let (does, other) = match does {
            Did::Read => (Deed::Read, verdict.written_bytes_per_s),
            _ => (Deed::Write, verdict.read_bytes_per_s),
        };
        assert_eq!((verdict.does, other), (does, 0.0), "{verdict:#?}");
        verdict.read_bytes_per_s + verdict.written_bytes_per_s
    };
    for does in [Did::Read, Did::Written] {
        for second in 0..20 {
            assert_eq!(rate(does, second), RATE as f64, "{does:?} in second {second}");
        }
    }
}

/// Data that is compressed on the wire, and small requests with heads: what clients got counts.
#[test]
fn requests_count_where_the_wire_carries_other_bytes() {
    let rate = |shape: Shape, wire: f64| {
        let mut moments = moments(&shape);
        for moment in &mut moments {
            let tcp = moment.tcp.as_mut().unwrap();
            tcp.acked_bytes = (moment.done[Did::Read as usize].1 as f64 * wire) as u64;
        }
        let watched = Watched { protocol: shape.protocol, address: "10.0.0.7".to_owned(), window_s: 1.0, moments };
        judge(&watched, &Around { cores: 4.0, ..Around::default() }).read_bytes_per_s
    };
    let all = 50.0 * 5.0 * 131_072.0;
    assert_eq!(rate(QUIET, 0.3), all);
    assert_eq!(rate(Shape { request_bytes: 4096, ..QUIET }, 1.1), all / 32.0);
}
